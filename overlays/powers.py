"""The powers of overlays: what a router may ask for beyond neighbours, each a small Protocol.

An overlay names the powers it has in `Overlay.powers`, and a router names those it needs in its description. A stack whose
overlay lacks a power is refused when the stack is named, so that nothing is left to find out while a node runs. Overlays do not
inherit from these classes: a Protocol among the bases of a machine would make every `isinstance` of it slow.
A method that takes `done` calls it once. When the node stops before there is an answer, `done` is called with nothing found, or
with the number of nodes that have taken a value so far; a call after that is a UsageError. In a stack that crashed, `done` is
never called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar, cast

from libweft.peer.errors import UsageError
from libweft.peer.machine import Peer, PeerInfo

Power = TypeVar("Power")
Need: TypeAlias = type | tuple[type, ...]
"""One power, or several of which one is enough."""


class Powerful(Protocol):
    """An overlay, as far as this module looks at it."""

    @property
    def powers(self) -> tuple[type, ...]: ...


class Connected(Protocol):
    """A promise, without a method: links of neighbours are mutual and join all nodes, so that a flood over them reaches all."""


class Sampling(Protocol):
    """The overlay can name some peers at random."""

    def sample(self, k: int) -> list[Peer]:
        """Return up to `k` peers of the system, as near to uniform as the overlay can."""
        ...


class KeyRouting(Protocol):
    """Every key has a root among the nodes, and the overlay knows the way to it."""

    def next_hop(self, key: bytes) -> Peer | None:
        """Return the next node on the way to the root of the key, a neighbour or not; None when this node is the root."""
        ...

    @property
    def can_route(self) -> bool:
        """True once this node has joined; until then `next_hop` knows nobody."""
        ...


class Distances(Protocol):
    """The overlay can compare how far two peers are from a key."""

    def nearer(self, key: bytes, peer: Peer, other: Peer) -> bool:
        """Return whether `peer` is nearer to the key than `other`; this node need not know either of them."""
        ...


class Lookups(Protocol):
    """The overlay can find the nodes nearest to a key."""

    def lookup(self, key: bytes, done: Callable[[Sequence[PeerInfo]], None]) -> None:
        """Find the nodes nearest to the key, nearest first."""
        ...

    def known(self, key: bytes) -> Sequence[Peer]:
        """Return those nearest to the key among the nodes known here, nearest first, without asking anybody."""
        ...


class Directory(Protocol):
    """Peers can be found by a topic that they announced."""

    def announce(self, topic: str) -> None:
        """Be found under the topic until `unannounce`: soft state at other nodes, refreshed before it expires."""
        ...

    def unannounce(self, topic: str) -> None:
        """Forget the topic here at once; others may name this node until the state they keep expires."""
        ...

    def find(self, topic: str, n: int, done: Callable[[Sequence[PeerInfo]], None]) -> None:
        """Find up to `n` peers that announced the topic."""
        ...


class Storage(Protocol):
    """Values can be stored under a key at other nodes."""

    def put(self, key: bytes, value: bytes, ttl: int, done: Callable[[int], None]) -> None:
        """Store a value for `ttl` microseconds; `done` hears how many nodes took it."""
        ...

    def get(self, key: bytes, done: Callable[[bytes | None], None]) -> None:
        """Find a value that was stored under the key."""
        ...


def has(overlay: Powerful, need: Need) -> bool:
    """Return whether an overlay, or a class of overlays, names the power, or one of several."""
    return any(power in overlay.powers for power in (need if isinstance(need, tuple) else (need,)))


def power_of(overlay: Powerful, power: type[Power]) -> Power:
    """Return the overlay as one that has the power; a UsageError for one that has not."""
    if not has(overlay, power):
        raise UsageError(f"the overlay {type(overlay).__name__} has no {name_of(power)}; choose a stack whose overlay does")
    return cast(Power, overlay)


def name_of(need: Need) -> str:
    """Return how errors call a power: `KeyRouting` is "key routing"."""
    if isinstance(need, tuple):
        return " or ".join(map(name_of, need))
    return "connected neighbours" if need is Connected else re.sub("(?<=[a-z])(?=[A-Z])", " ", need.__name__).lower()
