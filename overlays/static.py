"""The static overlay: neighbours given from outside, kept up.

A node dials the contacts it was given, at its start or `dial_after` microseconds later, and dials again with a growing delay
when a link is lost. Its neighbours are the contacts and every other peer that speaks the router's protocol with it, whoever
dialled and however early; it has no messages of its own.
In the simulator the contacts come from a graph (`libweft.overlays.graphs`), live they are the bootstrap peers.
Bounds: one timer a contact; neighbours are as many as the driver lets in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from libweft.overlays import graphs
from libweft.overlays.description import Below, Contacts, OverlayDescription
from libweft.overlays.fault_groups import TRANSIENT
from libweft.overlays.overlay import Overlay
from libweft.overlays.powers import Connected, Sampling
from libweft.peer.errors import UsageError
from libweft.peer.machine import SECOND, Env, Link, Peer, Rng, Timer

FIRST_RETRY = SECOND
LAST_RETRY = 60 * SECOND  # guesses: soon enough after a restart, rare enough for a dead peer


@dataclass(frozen=True)
class StaticConfig:
    graph: str = "regular"  # who knows whom: regular, ring, full, er, or the name of a file
    degree: int = 5  # links of a node, in the graphs that have a number of them
    dial_after: int = 0  # microseconds from its start until a node dials

    def __post_init__(self) -> None:
        if self.dial_after < 0:
            raise UsageError(f"static: dial_after is {self.dial_after}; it must be 0 or more")


class Static(Overlay):
    powers = (Connected, Sampling)

    __slots__ = ("contacts", "delays", "dial_after", "timers", "watches")

    def __init__(self, env: Env, contacts: Sequence[Peer], watches: Sequence[str], dial_after: int = 0) -> None:
        super().__init__(env)
        self.contacts = tuple(contacts)
        self.watches = tuple(watches)
        self.dial_after = dial_after
        self.delays: dict[Peer, int] | None = None  # these two are made on first use: most simulated nodes never need them
        self.timers: dict[Peer, Timer] | None = None

    def start(self) -> None:
        if self.dial_after:
            self.env.after(self.dial_after, self._dial)
        else:
            self._dial()

    def _dial(self) -> None:
        for peer in self.contacts:
            self.env.connect(peer)

    def sample(self, k: int) -> list[Peer]:
        return self.env.rng.sample(list(self.neighbors), min(k, len(self.neighbors)))

    def link_up(self, peer: Peer, link: Link) -> None:
        if self.delays:
            self.delays.pop(peer, None)
        self._up(peer)

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        self._down(peer, reason)
        if peer in self.contacts:
            self._retry_later(peer)

    def _retry_later(self, peer: Peer) -> None:
        self.delays, self.timers = self.delays or {}, self.timers or {}
        if peer not in self.timers:
            delay = self.delays.get(peer, FIRST_RETRY)
            self.delays[peer] = min(2 * delay, LAST_RETRY)
            self.timers[peer] = self.env.after(delay, self._retry, peer)

    def _retry(self, peer: Peer) -> None:
        assert self.timers is not None
        del self.timers[peer]
        if peer not in self.neighbors:
            self.env.connect(peer)


def _check(config: StaticConfig, nodes: int) -> None:
    graphs.check(config.graph, nodes, config.degree)


def _introduce(config: StaticConfig, nodes: int, rng: Rng, at_once: bool) -> Sequence[Contacts]:
    """Each edge is dialled from one end, the later one if there is one; the other takes every peer that speaks its protocol."""
    contacts: list[list[Peer]] = [[] for _ in range(nodes)]
    for a, b in graphs.draw(config.graph, nodes, config.degree, rng):
        dialler, dialled = (a, b) if at_once else (b, a)
        contacts[dialler].append(dialled)
    return [tuple(peers) for peers in contacts]


def _admit(config: StaticConfig, live: Sequence[int], rng: Rng) -> Contacts:
    return tuple(sorted(rng.sample(live, min(config.degree, len(live)))))


def _build(env: Callable[[], Env], contacts: Contacts, config: StaticConfig, protocols: Sequence[str]) -> Below:
    return [Static(env(), contacts, protocols, config.dial_after)]


DESCRIPTION = OverlayDescription(
    name="static",
    paper="none: neighbours are given from outside",
    use="for a fixed graph or a list of known peers; nothing is repaired but lost links",
    partner="flood",
    machine=Static,
    config=StaticConfig,
    build=_build,
    survives=TRANSIENT,
    introduce=_introduce,
    admit=_admit,
    check=_check,
)
