"""The overlay contract: a machine that chooses neighbours, and knows nothing of messages that are published.

Watchers (routers, orders) are told of every neighbour that comes and goes. The powers below the line exist where an
overlay has them; a stack that needs one that its overlay lacks gets a UsageError when it is built or first asks.
An overlay may be computed outside and handed in.
A power that takes `done` calls it once; where the node stops before, with nothing found, or with how many have taken a value yet.
A call after that is a UsageError. Nothing is called in a stack that crashed.
Bounds: `neighbors` is bounded by the overlay's own view sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol

from libweft.peer.errors import UsageError
from libweft.peer.machine import Env, Machine, Peer, PeerInfo
from libweft.peer.trace.kinds import NEIGHBOR_DOWN, NEIGHBOR_UP


class Watcher(Protocol):
    def neighbor_up(self, peer: Peer) -> None: ...
    def neighbor_down(self, peer: Peer, reason: str) -> None: ...


class Overlay(Machine):
    __slots__ = ("everyone", "neighbors", "rerouted", "watchers")

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.neighbors: dict[Peer, None] = {}  # a dict: iteration order must be the same in every run
        self.everyone: tuple[Peer, ...] = ()  # the same, for `Env.send_all`
        self.watchers: list[Watcher] = []
        self.rerouted: list[Callable[[], None]] = []  # called when `next_hop` may answer otherwise than before

    def _up(self, peer: Peer) -> None:
        if peer not in self.neighbors:
            self.neighbors[peer] = None
            self.everyone = tuple(self.neighbors)
            self.trace(NEIGHBOR_UP, peer=peer)
            for watcher in self.watchers:
                watcher.neighbor_up(peer)

    def _down(self, peer: Peer, reason: str) -> None:
        if peer in self.neighbors:
            del self.neighbors[peer]
            self.everyone = tuple(self.neighbors)
            self.trace(NEIGHBOR_DOWN, peer=peer, reason=reason)
            for watcher in self.watchers:
                watcher.neighbor_down(peer, reason)

    def _reroute(self) -> None:
        for action in self.rerouted:
            action()

    def sample(self, k: int) -> list[Peer]:
        """Up to k peers of the system, as near to uniform as the overlay can."""
        return self._lacks("sample")

    def next_hop(self, key: bytes) -> Peer | None:
        """The next node on the way to the root of the key, or None when this node is that. A neighbour or not."""
        return self._lacks("next_hop")

    def nearer(self, key: bytes, peer: Peer, other: Peer) -> bool:
        """Whether a peer is nearer to the key than another, known to this node or not."""
        return self._lacks("nearer")

    @property
    def can_route(self) -> bool:
        """Whether this node has joined: until then `next_hop` knows nobody."""
        return True

    def suspect(self, peer: Peer) -> None:
        """Somebody has reason to doubt that the peer is up; an overlay that can looks."""

    def lookup(self, key: bytes, done: Callable[[Sequence[PeerInfo]], None]) -> None:
        """The nodes nearest to the key, nearest first."""
        self._lacks("lookup")

    def known(self, key: bytes) -> Sequence[Peer]:
        """The nodes nearest to the key of those that this one knows, nearest first, without asking anybody."""
        return self._lacks("known")

    def announce(self, topic: str) -> None:
        """Be found under the topic: soft state at other nodes, refreshed before it expires, until `unannounce`."""
        self._lacks("announce")

    def unannounce(self, topic: str) -> None:
        """This node forgets it at once; others may still name it until what they were told expires."""
        self._lacks("unannounce")

    def find(self, topic: str, n: int, done: Callable[[Sequence[PeerInfo]], None]) -> None:
        """Up to n peers that announced the topic."""
        self._lacks("find")

    def put(self, key: bytes, value: bytes, ttl: int, done: Callable[[int], None]) -> None:
        """Store a value for `ttl` microseconds; `done` hears how many nodes took it."""
        self._lacks("put")

    def get(self, key: bytes, done: Callable[[bytes | None], None]) -> None:
        self._lacks("get")

    def members(self, topic: str) -> Sequence[Peer]:
        """Who is in the topic, as far as this node knows."""
        return self._lacks("members")

    def _lacks(self, power: str) -> NoReturn:
        raise UsageError(f"the overlay {type(self).__name__} has no {power}; choose a stack whose overlay does")
