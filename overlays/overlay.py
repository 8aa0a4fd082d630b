"""The overlay contract: a machine that chooses neighbours, and knows nothing of messages that are published.

Watchers (routers, orders) are told of every neighbour that comes and goes. An overlay that can do more names its powers
(`libweft.overlays.powers`) in `powers`. An overlay may be computed outside and handed in.
Bounds: `neighbors` is bounded by the overlay's own view sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol

from libweft.peer.machine import Env, Machine, Peer
from libweft.peer.trace.kinds import NEIGHBOR_DOWN, NEIGHBOR_UP


class Watcher(Protocol):
    def neighbor_up(self, peer: Peer) -> None: ...
    def neighbor_down(self, peer: Peer, reason: str) -> None: ...


class Overlay(Machine):
    __slots__ = ("everyone", "neighbors", "rerouted", "watchers")

    powers: ClassVar[tuple[type, ...]] = ()

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

    def suspect(self, peer: Peer) -> None:
        """Somebody has reason to doubt that the peer is up; an overlay that can looks."""
