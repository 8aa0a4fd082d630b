"""Apps for tests: what stands above a router when nobody is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from libweft.peer.machine import Peer
from libweft.pubsub.interests import Interest
from libweft.pubsub.message import Publication, Verdict
from libweft.pubsub.numbering import Numbered, bind


class Inbox:
    """Keeps what it is given."""

    validates = False

    def __init__(self) -> None:
        self.delivered: list[Publication] = []
        self.in_force: list[Interest] = []

    def validate(self, sender: Peer, publication: Publication, answer: Callable[[Verdict], None]) -> None:
        answer(Verdict.ACCEPT)

    def deliver(self, publication: Publication) -> None:
        self.delivered.append(publication)

    def joined(self, interest: Interest) -> None:
        self.in_force.append(interest)


class Seal:
    """In the place of `Signing`, where peers are numbers: what its author signed has the signature b"true"."""

    def problem(self, publication: Publication) -> str | None:
        return None if publication.signature == b"true" else "a false signature"

    def sign(self, publication: Publication) -> Publication:
        return replace(publication, signature=b"true")


M = TypeVar("M", bound=Numbered)


def sealed(m: M) -> M:
    """As its source sends it, with that seal."""
    return bind(Seal(), m)  # type: ignore[arg-type]
