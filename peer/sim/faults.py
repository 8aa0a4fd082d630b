"""What goes wrong in a simulated run, as data: a list that can be printed, saved, replayed and shrunk.

Each fault is a frozen Struct named by its `kind`; `at` and `duration` are seconds of virtual time. Faults that pick
victims by chance (`mass_crash`, `partition` by halves) are made concrete by `settle` before the run, so a saved list
names them, and deleting one fault leaves the others as they are. Faults that throw dice during the run (`loss`, `reset`
of a share of the links that there are then, ...) have a stream of chance each, named by their own content.

Sources: the fault lists of FoundationDB, TigerBeetle's VOPR and Jepsen. What the faults do is in `libweft.peer.sim.link_faults`
(links) and `libweft.peer.sim.simulator` (nodes).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Literal, TypeAlias

import msgspec

from libweft.peer.errors import UsageError
from libweft.peer.machine import Rng

FOREVER = 1e9


class Fault(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", forbid_unknown_fields=True, omit_defaults=True):
    at: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name in ("at", "duration", "down") and not 0 <= value <= FOREVER:
                raise ValueError(f"{name} is {value} s; it must be from 0 to {FOREVER:.0f}")
            if name in ("p", "share", "stay") and not 0 <= value <= 1:
                raise ValueError(f"{name} is {value}; it must be from 0 to 1")
            if name in ("factor", "ms") and not 0 < value <= 1e6:
                raise ValueError(f"{name} is {value}; it must be above 0, and 1000000 at most")


class LinkFault(Fault, kw_only=True, frozen=True):
    """On every copy from `sources` to `targets` for a while; an empty tuple stands for all nodes."""

    duration: float = FOREVER
    sources: tuple[int, ...] = ()
    targets: tuple[int, ...] = ()


class Loss(LinkFault, tag="loss", frozen=True, kw_only=True):
    p: float


class BurstLoss(LinkFault, tag="burst_loss", frozen=True, kw_only=True):
    """Gilbert's model: a bad spell loses all, begins with probability p a copy, and stays with `stay`."""

    p: float
    stay: float = 0.9


class Duplicate(LinkFault, tag="duplicate", frozen=True, kw_only=True):
    p: float


class Reorder(LinkFault, tag="reorder", frozen=True, kw_only=True):
    """With probability p a copy is held back up to `ms`, and others overtake it."""

    p: float
    ms: float = 100.0


class DelaySpike(LinkFault, tag="delay_spike", frozen=True, kw_only=True):
    ms: float


class Corrupt(LinkFault, tag="corrupt", frozen=True, kw_only=True):
    """Flips one byte of a frame; needs the real codec in the loop."""

    p: float


class Truncate(LinkFault, tag="truncate", frozen=True, kw_only=True):
    """Cuts a frame short; needs the real codec in the loop."""

    p: float


class Cut(LinkFault, tag="cut", frozen=True, kw_only=True):
    """One way: nothing gets from `sources` to `targets`; what TCP would repeat waits, until the link is given up."""


class Partition(Fault, tag="partition", frozen=True, kw_only=True):
    """`halves` and `isolate` pick at random; `settle` turns them into `groups`."""

    duration: float = FOREVER
    how: Literal["groups", "halves", "isolate"] = "halves"
    groups: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.how == "groups" and not self.groups:
            raise ValueError("a partition into groups must name them; or set how to halves or isolate")


class Reset(Fault, tag="reset", frozen=True, kw_only=True):
    """The link breaks at both ends and what is in flight is lost; `share` of all links when no pair is named."""

    a: int | None = None
    b: int | None = None
    share: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        pair = self.a is not None and self.b is not None and self.a != self.b
        if (not pair and (self.a, self.b) != (None, None)) or pair == bool(self.share):
            raise ValueError("a reset names the two ends of a link, a and b, or else a share of all links above 0")


class Crash(Fault, tag="crash", frozen=True, kw_only=True):
    nodes: tuple[int, ...]


class Restart(Fault, tag="restart", frozen=True, kw_only=True):
    """Crash, and start again after `down` seconds, with the stored state and the snapshot or without."""

    nodes: tuple[int, ...]
    down: float = 1.0
    state: bool = True


class MassCrash(Fault, tag="mass_crash", frozen=True, kw_only=True):
    share: float


class SlowNode(Fault, tag="slow_node", frozen=True, kw_only=True):
    """All that it sends and gets takes `factor` times as long."""

    nodes: tuple[int, ...]
    factor: float
    duration: float = FOREVER


class Nat(Fault, tag="nat", frozen=True, kw_only=True):
    """Dials towards these nodes fail."""

    nodes: tuple[int, ...]
    duration: float = FOREVER


class Skew(Fault, tag="skew", frozen=True, kw_only=True):
    """Timers of these nodes run `factor` times as long as asked."""

    nodes: tuple[int, ...]
    factor: float
    duration: float = FOREVER


AnyFault: TypeAlias = (
    Loss
    | BurstLoss
    | Duplicate
    | Reorder
    | DelaySpike
    | Corrupt
    | Truncate
    | Cut
    | Partition
    | Reset
    | Crash
    | Restart
    | MassCrash
    | SlowNode
    | Nat
    | Skew
)


def settle(faults: Sequence[AnyFault], nodes: Sequence[int], rng: Rng) -> list[AnyFault]:
    """Replace what is left to chance by named victims, once and for all, in order of time.

    Each fault draws from a stream of its own, so that one more of them does not change the victims of the others.
    """
    ordered = sorted(faults, key=lambda fault: (fault.at, repr(fault)))
    base, times = rng.getrandbits(64), Counter[str]()
    plan = []
    for fault in ordered:
        times[repr(fault)] += 1
        plan.append(_settled(fault, nodes, Random(f"{base}/{fault}/{times[repr(fault)]}")))
    return plan


def save(path: Path, faults: Sequence[AnyFault]) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(list(faults)), indent=1) + b"\n")


def load(path: Path) -> list[AnyFault]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[AnyFault])
    except OSError as error:
        raise UsageError(f"the fault list {path} cannot be read: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"the fault list {path} is not one: {error}") from None


def _settled(fault: AnyFault, nodes: Sequence[int], rng: Rng) -> AnyFault:
    if isinstance(fault, MassCrash):
        victims = rng.sample(list(nodes), round(fault.share * len(nodes)))
        return Crash(at=fault.at, nodes=tuple(sorted(victims)))
    if isinstance(fault, Partition) and not fault.groups:
        shuffled = rng.sample(list(nodes), len(nodes))
        cut = 1 if fault.how == "isolate" else len(nodes) // 2
        groups = (tuple(sorted(shuffled[:cut])), tuple(sorted(shuffled[cut:])))
        return msgspec.structs.replace(fault, how="groups", groups=groups)
    return fault
