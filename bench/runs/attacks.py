"""Attacks on GossipSub as parts of a scenario: hostile nodes beside the honest ones, and what they do, as data.

    [[attacks]]
    kind = "silent"
    nodes = 400
    at = 60.0

The names are those of the evaluation of GossipSub v1.1 (Vyzovitis et al., 2020): eclipse is `silent` with `targets`, cold boot
`silent` with `at` 0, attack at dawn the same where honest nodes dial each other later (the static overlay's `dial_after`), covert
flash `silent` with `turn`, degradation `silent` with `forwards`, censoring with `censors`.
What they do is in `libweft.bench.runs.sybils`.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

INVALID = b"\xffinvalid"  # what no honest node says; an honest validator rejects it

Count: TypeAlias = Annotated[int, Meta(ge=1, le=100_000)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=1e9)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]


class Attack(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", forbid_unknown_fields=True):
    """`hosts` are the addresses they share among them; 0 says that each has its own."""

    at: Seconds = 0.0
    nodes: Count = 100
    degree: Count = 20
    targets: tuple[int, ...] = ()
    hosts: Annotated[int, Meta(ge=0, le=100_000)] = 0


class Silent(Attack, tag="silent", frozen=True, kw_only=True):
    """They behave for `turn` seconds, then pass on only that share of the messages, and nothing of whom they censor."""

    turn: Seconds = 0.0
    forwards: Share = 0.0
    censors: tuple[int, ...] = ()


class GraftSpam(Attack, tag="graft_spam", frozen=True, kw_only=True):
    """GRAFT every second, back-off or not."""


class IHaveFlood(Attack, tag="ihave_flood", frozen=True, kw_only=True):
    """So many announcements a second to each peer, each of that many ids that nobody has."""

    announcements: Count = 20
    ids: Count = 500


class InvalidSpam(Attack, tag="invalid_spam", frozen=True, kw_only=True):
    """So many messages a second to each peer that no validator accepts."""

    rate: Count = 10


class Replay(Attack, tag="replay", frozen=True, kw_only=True):
    """What was heard is sent once more to everybody, `after` seconds later."""

    after: Seconds = 130.0


class IWantFlood(Attack, tag="iwant_flood", frozen=True, kw_only=True):
    """Every message that is announced is asked for so many times, of who announced it."""

    times: Count = 50


class Poison(Attack, tag="poison", frozen=True, kw_only=True):
    """Peer exchange: a PRUNE that introduces comrades, `introduced` of them, after each GRAFT."""

    introduced: Count = 16


AnyAttack = Silent | GraftSpam | IHaveFlood | InvalidSpam | Replay | IWantFlood | Poison
