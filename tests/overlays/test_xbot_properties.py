"""X-BOT under whatever may come: one machine among peers that say anything, and some together while nodes and links fail.

What one machine holds is looked at in the machine; what becomes of several is judged by the rows of their trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import hypot
from random import Random
from statistics import fmean
from typing import Any, ClassVar

import pytest
import trio
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from libweft.overlays.hyparview.machine import ASKS
from libweft.overlays.hyparview.messages import Disconnect, Join, Neighbor, NeighborReply
from libweft.overlays.xbot import Optimization, Probe, ProbeReply, Replace, ReplaceReply, Switch, XBot, XBotConfig
from libweft.peer.dispatch import receive
from libweft.peer.errors import PeerError
from libweft.peer.fake.env import FakeEnv, FakeTimer
from libweft.peer.machine import MS, SECOND, Build, Link, Message, Peer, PeerInfo, upon
from libweft.peer.sim import faults
from libweft.peer.sim.latency import Matrix
from libweft.peer.sim.simulator import Simulator
from libweft.peer.trace.kinds import NEIGHBOR_DOWN, NEIGHBOR_UP, NODE_DOWN, NODE_UP
from libweft.peer.trace.tracer import Tracer
from tests.overlays.test_hyparview_properties import NODES, PHASES, check_bounds, fault, knowledge, reached, simulated
from tests.peer.live_world import JUMP_S, LiveWorld

CONFIG = XBotConfig(
    active_size=3, passive_size=8, shuffle_every=60 * SECOND, keepalive_every=60 * SECOND, probe_every=10 * SECOND,
    remember=60 * SECOND, last_retry=20 * SECOND, bias_every=5 * SECOND,
)  # fmt: skip
QUIET = 600 * SECOND


def build(contacts: Sequence[Peer], config: XBotConfig = CONFIG) -> Build:
    return lambda env: [XBot(env(), contacts, config)]


# One machine.


PEERS = range(1, 15)


def anything(rng: Random) -> tuple[Peer, Message]:
    """Of anybody; the numbers are as the machine counts, so some are right."""
    me, other, third, number, yes = *(rng.randrange(15) for _ in range(3)), rng.randrange(20), rng.random() < 0.5
    sender = me or 1
    info = PeerInfo(me if rng.random() < 0.1 else sender)
    said = [
        Optimization(info, number, PeerInfo(other)), Replace(number, third, PeerInfo(other)), ReplaceReply(number, yes),
        Switch(info, number, third), Neighbor(info, number, yes), NeighborReply(number, yes), Join(info, number),
        Disconnect(yes, "why"), Probe(number), ProbeReply(number),
    ]  # fmt: skip
    return sender, rng.choice(said)


class Alone:
    """A machine and a driver as the contract has it: who speaks has a link, and a hold goes with its link.

    Anything may be said, but half of what happens is what the machine waits for, or what an honest peer might want of it.
    """

    WHAT = ("cycle", "answered", "replied", "probed", "probed", "probed", "offered", "replaced", "switched", "told", "up")
    NOW_AND_THEN = ("down", "known", "waited")

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.env = FakeEnv(me=0, seed=rng.getrandbits(32))
        self.machine = XBot(self.env, (), replace(CONFIG, samples=1))
        self.links: dict[Peer, int] = {}
        self.count = 0
        self.speaker: Peer = 0
        self.machine.start()

    def link(self, peer: Peer) -> None:
        if peer not in self.links:
            self.count += 1
            self.links[peer] = self.count
            self.machine.link_up(peer, Link(self.count, True, XBot.protocols[0]))

    def unlink(self, peer: Peer) -> None:
        self.env.holds.pop(peer, None)
        self.machine.link_down(peer, self.links.pop(peer, 0), "down")

    def hear(self, sender: Peer, msg: Message) -> None:
        self.speaker = sender
        self.link(sender)
        receive(self.machine, sender, msg)

    def told(self) -> None:
        self.hear(*anything(self.rng))

    def answered(self) -> None:
        if self.machine.asks:
            peer = self.pick(self.machine.asks)
            self.hear(peer, NeighborReply(self.machine.asks[peer].attempt, self.rng.random() < 0.5))

    def replied(self) -> None:
        if (swap := self.machine.swap) is not None:
            self.hear(swap.gives, ReplaceReply(swap.attempt, self.rng.random() < 0.5))

    def probed(self) -> None:
        peer = self.pick(self.machine.probing)
        self.link(peer)
        self.env.advance(self.rng.randrange(100) * MS)
        if (probing := self.machine.probing.get(peer)) is not None and probing.nonce is not None:
            self.hear(peer, ProbeReply(probing.nonce))

    def offered(self) -> None:
        peer = self.pick(PEERS)
        self.hear(peer, Optimization(PeerInfo(peer), 1, PeerInfo(self.pick(PEERS))))

    def replaced(self) -> None:
        self.hear(self.pick(self.machine.neighbors), Replace(1, self.pick(PEERS), PeerInfo(self.pick(PEERS))))

    def switched(self) -> None:
        peer = self.pick(PEERS)
        self.hear(peer, Switch(PeerInfo(peer), 1, self.pick(self.machine.neighbors)))

    def up(self) -> None:
        self.link(self.pick(self.env.holds))

    def down(self) -> None:
        self.unlink(self.pick((*self.links, *self.env.holds)))

    def known(self) -> None:
        peer = self.pick(PEERS)
        if peer not in self.machine.neighbors and len(self.machine.passive) < CONFIG.passive_size:
            self.machine.passive[peer] = None

    def waited(self) -> None:
        self.env.advance(self.rng.randrange(6_000) * MS)

    def cycle(self) -> None:
        """Only where nothing waits: its time is longer than an exchange's."""
        timer = self.machine.timers["bias"]
        assert isinstance(timer, FakeTimer)
        if self.machine.swap is None:
            self.env.advance(timer.due - self.env.now())

    def pick(self, peers: Iterable[Peer]) -> Peer:
        return self.rng.choice(list(peers) or [11])

    def happen(self) -> None:
        """Something; a peer's fault costs its link."""
        what = self.rng.choice((*self.WHAT, *self.NOW_AND_THEN) if self.rng.random() < 0.2 else self.WHAT)
        try:
            getattr(self, what)()
        except PeerError:
            self.unlink(self.speaker)

    def check(self) -> None:
        machine, swap = self.machine, self.machine.swap
        check_bounds(machine, CONFIG)
        assert machine.costs.keys() <= machine.neighbors.keys()
        assert 0 not in machine.probing
        assert len(machine.probing) <= CONFIG.active_size + CONFIG.psl + 1
        kept = {*machine.neighbors, *machine.asks, *machine.replies, *machine.probing}
        if swap is not None:
            event(f"{swap.role}, gives {'one' if swap.gives in machine.neighbors else 'nobody any more'}")
            assert swap.gives != swap.gets and swap.gets not in machine.neighbors and swap.gets != 0
            assert swap.asks or swap.gives in machine.neighbors
            assert swap.asks <= (swap.gets in machine.asks)
            kept.add(swap.gets)
        assert machine.neighbors.keys() <= self.env.holds.keys() <= kept
        assert self.env.clock.waiting <= 6 + ASKS + CONFIG.active_size


@given(seed=st.integers(0, 2**32))
@settings(max_examples=100, phases=PHASES)
def test_whatever_peers_say_and_links_do_one_machine_keeps_its_bounds_and_holds_no_link_for_nothing(seed: int) -> None:
    world = Alone(Random(seed))
    world.machine.passive = dict.fromkeys((7, 8, 9))
    for peer in (1, 2, 3):
        world.hear(peer, Neighbor(PeerInfo(peer), 1, True))
        world.probed()
    for _ in range(300):
        world.happen()
        world.check()


# Some together.


class Views:
    """Who has whom in its active view, from the rows alone; `most` is the largest view there ever was."""

    def __init__(self) -> None:
        self.views: dict[Peer, dict[Peer, None]] = {}
        self.most = 0

    def observe(self, *row: Any, **_: Any) -> None:
        _, node, kind, _, _, peer = row[:6]
        if kind == NODE_UP:
            self.views[node] = {}
        elif kind == NODE_DOWN:
            del self.views[node]
        elif kind == NEIGHBOR_UP:
            self.views.setdefault(node, {})[peer] = None
            self.most = max(self.most, len(self.views[node]))
        elif kind == NEIGHBOR_DOWN:
            del self.views[node][peer]

    def one_sided(self) -> list[tuple[Peer, Peer]]:
        return [(node, peer) for node, view in self.views.items() for peer in view if node not in self.views.get(peer, {})]

    def whole(self) -> bool:
        return reached({node: {*view} for node, view in self.views.items()}) == self.views.keys()

    def pairs(self) -> list[tuple[Peer, Peer]]:
        return [(node, peer) for node, view in self.views.items() for peer in view]


def plane(places: Sequence[tuple[int, int]]) -> Matrix:
    """Milliseconds as the crow flies, and one more."""
    rows = tuple(tuple(round((1 + hypot(a[0] - b[0], a[1] - b[1])) * MS) for b in places) for a in places)
    return Matrix(file="places on a plane", rows=rows)


def test_four_nodes_exchange_two_far_links_for_two_near_ones() -> None:
    """0 and 2 are neighbours on the plane, and 1 and 3; but 0 has joined 1, and 2 has joined 3, and none knows better."""
    config = XBotConfig(active_size=1, unbiased=0, bias_every=60 * SECOND, probe_every=0, shuffle_every=3_600 * SECOND)
    views = Views()
    sim = Simulator(1, plane([(0, 0), (90, 0), (0, 9), (90, 9)]), Tracer(level="none", observer=views))
    for contacts in ((), (0,), (), (2,)):
        sim.add(build(contacts, config))
    sim.run(SECOND)
    assert views.views == {0: {1: None}, 1: {0: None}, 2: {3: None}, 3: {2: None}}
    for machine in simulated(sim).values():
        machine.passive |= dict.fromkeys(peer for peer in range(4) if peer != machine.env.me and peer not in machine.neighbors)
    sim.run(600 * SECOND)
    assert views.views == {0: {2: None}, 1: {3: None}, 2: {0: None}, 3: {1: None}}
    assert views.most == 1


def join(sim: Simulator) -> None:
    there = len(sim.nodes)
    sim.add(build([sim.stream(f"join {there}").randrange(there)]))


@given(
    places=st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=NODES, max_size=NODES),
    plan=st.lists(fault(), max_size=5),
    seed=st.integers(0, 9),
)
@example(places=[(n % 2 * 100, n) for n in range(NODES)], plan=[], seed=1)
@settings(max_examples=12, phases=PHASES)
def test_views_become_symmetric_and_connected_again_wherever_nodes_are_and_whatever_fails(
    places: list[tuple[int, int]], plan: list[faults.AnyFault], seed: int
) -> None:
    views = Views()
    sim = Simulator(seed, plane(places), Tracer(level="none", observer=views))
    sim.add(build(()))
    for number in range(1, NODES):
        sim.at(number * SECOND, join, sim)
    sim.inject(faults.settle(plan, range(NODES), sim.stream("faults")))
    sim.run(60 * SECOND)
    if not sim.live:
        return
    could = reached(knowledge(simulated(sim))) == simulated(sim).keys()
    event(f"could be connected: {could}")
    sim.run(sim.now + QUIET)
    for _ in range(100):
        if not views.one_sided() and views.whole() >= could:
            break
        sim.run(sim.now + SECOND // 10)
    assert views.one_sided() == []
    assert views.whole() >= could
    assert views.most <= CONFIG.active_size


# On loopback.


COUNT = 12
LIVE = XBotConfig(active_size=3, unbiased=0, shuffle_every=10 * SECOND, bias_every=5 * SECOND, probe_every=0)


class Distant(XBot):
    """On loopback all are equally near; so these are on a ring, and answer a probe after ten milliseconds a step of it."""

    places: ClassVar[dict[Peer, int]] = {}

    @upon(Probe)
    def probe(self, sender: Peer, msg: Probe) -> None:
        self.env.after(10 * MS * self.steps(self.env.me, sender), self.env.send, sender, ProbeReply(msg.nonce))

    @classmethod
    def steps(cls, a: Peer, b: Peer) -> int:
        ahead = (cls.places[a] - cls.places[b]) % COUNT
        return min(ahead, COUNT - ahead)


def distant(contacts: Sequence[Peer]) -> Build:
    return lambda env: [Distant(env(), contacts, LIVE)]


@pytest.mark.live
async def test_twelve_live_nodes_on_a_ring_exchange_far_neighbours_for_near_ones_and_views_stay_full_and_symmetric(
    autojump_clock: MockClock,
) -> None:
    """A random neighbour is 3.3 steps away, the best three are 1.3 on average."""
    autojump_clock.autojump_threshold = JUMP_S
    views, seen = Views(), []
    async with trio.open_nursery() as nursery:
        world = LiveWorld(nursery)
        Distant.places |= {world.peer(number): number for number in range(COUNT)}
        for number in range(COUNT):
            world.add(distant([world.peer(0)] if number else []), Tracer(level="none", observer=views))
        for _ in range(60):
            await world.run(5 * SECOND)
            pairs = views.pairs()
            mean = fmean(Distant.steps(a, b) for a, b in pairs)
            seen.append((round(mean, 2), len(pairs), views.one_sided()))
            if mean <= 2 and len(pairs) >= 3 * COUNT - 2 and not views.one_sided():
                break
        world.close()
        nursery.cancel_scope.cancel()
    print(*seen, sep="\n")
    assert seen[-1][0] <= 2
    assert seen[-1][1] >= 3 * COUNT - 2
    assert seen[-1][2] == []
    assert views.most <= LIVE.active_size
