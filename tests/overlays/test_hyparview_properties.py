"""HyParView under random joins, crashes, departures and cuts: what holds at every moment, and what holds after quiet.

On the fake wire all that is sent arrives in one order; in the simulator links have latency, dials cross and crashes are
noticed late; on loopback sockets real hosts do it. The rules are the same. Who is whose neighbour is told by the rows of the
trace; only a machine's own bounds are looked up in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
import trio
from hypothesis import Phase, event, example, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from libweft.overlays.hyparview.config import HyParViewConfig
from libweft.overlays.hyparview.machine import ASKS, REPLIES, HyParView
from libweft.peer.fake.wire import FakeWire
from libweft.peer.machine import SECOND, Build, Peer
from libweft.peer.sim import faults
from libweft.peer.sim.latency import Uniform
from libweft.peer.sim.simulator import Simulator
from libweft.peer.trace.kinds import NEIGHBOR_DOWN, NEIGHBOR_UP, NODE_UP
from libweft.peer.trace.tracer import Tracer
from tests.peer.live_world import JUMP_S, LiveWorld

NODES = 10
CONFIG = HyParViewConfig(
    active_size=3, passive_size=8, shuffle_every=60 * SECOND, keepalive_every=60 * SECOND, probe_every=10 * SECOND,
    remember=60 * SECOND, last_retry=20 * SECOND,
)  # fmt: skip
QUIET = 1_500 * SECOND
PHASES = (Phase.explicit, Phase.generate)  # an example takes too long to shrink


def build(contacts: Sequence[Peer], config: HyParViewConfig = CONFIG) -> Build:
    return lambda env: [HyParView(env(), contacts, config)]


def check_bounds(machine: HyParView, config: HyParViewConfig = CONFIG) -> None:
    """What holds at every moment."""
    me = machine.env.me
    assert len(machine.neighbors) <= config.active_size
    assert len(machine.passive) <= config.passive_size
    assert len(machine.asks) <= ASKS + config.active_size
    assert len(machine.replies) <= REPLIES
    assert len(machine.lost) <= config.passive_size
    assert len(machine.tried) <= 5 * config.passive_size + len(machine.contacts)
    assert me not in machine.neighbors and me not in machine.passive and me not in machine.asks
    assert not machine.neighbors.keys() & machine.passive.keys()
    assert not machine.neighbors.keys() & machine.asks.keys()
    assert machine.everyone == tuple(machine.neighbors)


Views: TypeAlias = dict[Any, dict[Any, None]]


class Rows:
    """Who has whom in its active view, by the rows of a run."""

    def __init__(self) -> None:
        self.views: Views = {}

    def observe(self, t: int, node: Any, kind: str, topic: Any, msg: Any, peer: Any, *_: Any, **__: Any) -> None:
        if kind == NODE_UP:
            self.views[node] = {}
        elif kind == NEIGHBOR_UP:
            self.views[node][peer] = None
        elif kind == NEIGHBOR_DOWN:
            del self.views[node][peer]

    def of(self, nodes: Iterable[Any]) -> Views:
        return {node: self.views[node] for node in nodes}


def one_sided(views: Views) -> list[tuple[Any, Any]]:
    return [(node, peer) for node, view in views.items() for peer in view if node not in views.get(peer, {})]


def reached(edges: Mapping[Any, Iterable[Any]]) -> set[Any]:
    """Those that the first one reaches, whichever way the edges point."""
    both = {node: {*others, *(other for other in edges if node in edges[other])} for node, others in edges.items()}
    found: set[Any] = set()
    frontier = [next(iter(edges))]
    while frontier:
        node = frontier.pop()
        if node not in found:
            found.add(node)
            frontier += both[node] - found
    return found


def knowledge(machines: dict[Any, HyParView]) -> dict[Any, set[Any]]:
    """Who could find whom: contacts and all that are known and alive. No row tells it, and it is no verdict but a premise."""
    return {
        node: {peer for peer in (*machine.neighbors, *machine.passive, *machine.lost, *machine.contacts) if peer in machines}
        for node, machine in machines.items()
    }


def check_quiet(views: Views, machines: dict[Any, HyParView], could: bool) -> None:
    assert one_sided(views) == []
    for machine in machines.values():
        check_bounds(machine)
    if could:
        assert reached(views) == views.keys()


# On the fake wire.


ACTIONS = st.one_of(
    st.tuples(st.just("join"), st.integers(0, NODES), st.integers(0, NODES)),
    st.tuples(st.just("crash"), st.integers(0, NODES), st.just(0)),
    st.tuples(st.just("stop"), st.integers(0, NODES), st.just(0)),
    st.tuples(st.just("cut"), st.integers(0, NODES), st.integers(0, NODES)),
    st.tuples(st.just("step"), st.integers(1, 40), st.just(0)),
    st.tuples(st.just("run"), st.integers(0, 40), st.just(0)),
)


class Wired:
    def __init__(self, seed: int, codec: bool) -> None:
        self.wire = FakeWire(codec=codec, seed=seed)
        self.wire.add(build(()))
        self.left: set[int] = set()

    def alive(self) -> dict[Any, HyParView]:
        found: dict[Any, HyParView] = {}
        for node in self.wire.nodes:
            machine = node.machines[0]
            assert isinstance(machine, HyParView)
            if node.alive and node.me not in self.left:
                found[node.me] = machine
        return found

    def views(self) -> Views:
        rows = Rows()
        for number in self.alive():
            rows.observe(0, number, NODE_UP, None, None, None)
            for row in self.wire.nodes[number].envs[0].traced:
                rows.observe(row.t, number, row.kind, row.topic, row.msg, row.peer)
        return rows.views

    def do(self, action: str, a: int, b: int) -> None:
        wire, there = self.wire, len(self.wire.nodes)
        match action:
            case "join" if there < NODES:
                wire.add(build([a % there, b % there]))
            case "crash" if a < there and len(self.alive()) > 2:
                wire.crash(a)
            case "stop" if a in self.alive() and len(self.alive()) > 2:
                wire.stop(a)
                self.left.add(a)
            case "cut" if a < there:
                wire.cut(a, b)
            case "step":
                for _ in range(a):
                    wire.step()
            case "run":
                wire.run(a * SECOND)
        for machine in self.alive().values():
            check_bounds(machine)


@given(actions=st.lists(ACTIONS, max_size=40), seed=st.integers(0, 9), codec=st.booleans())
@example(actions=[("join", 0, 0)] * 9, seed=0, codec=True)
@example(actions=[*[("join", 0, 0)] * 9, ("run", 9, 0), *[("crash", n, 0) for n in range(6)]], seed=0, codec=False)
@settings(max_examples=150, phases=PHASES)
def test_after_any_joins_crashes_departures_and_cuts_views_are_symmetric_and_connected_where_they_can_be(
    actions: list[tuple[str, int, int]], seed: int, codec: bool
) -> None:
    world = Wired(seed, codec)
    for action in actions:
        world.do(*action)
    world.wire.run()
    machines = world.alive()
    could = reached(knowledge(machines)) == machines.keys()
    event(f"could be connected: {could}")
    world.wire.run(QUIET)
    assert world.wire.errors == []
    views = world.views()
    check_quiet(views, machines, could)
    for node in world.wire.nodes:
        if node.me in machines:
            assert node.envs[0].holds.keys() == views[node.me].keys()
            assert machines[node.me].links.keys() == {peer for peer, link in node.links.items() if link.up}


# In the simulator.


def fault() -> st.SearchStrategy[faults.AnyFault]:
    when = {"at": st.integers(0, 300).map(lambda tenths: tenths / 10)}
    spell = {**when, "duration": st.integers(1, 200).map(lambda tenths: tenths / 10)}
    nodes = st.lists(st.integers(0, NODES - 1), min_size=1, max_size=NODES // 2, unique=True).map(
        lambda found: tuple(sorted(found))
    )
    return st.one_of(
        st.builds(faults.Crash, **when, nodes=nodes),
        st.builds(faults.Restart, **when, nodes=nodes, down=st.sampled_from([0.0, 0.3, 8.0]), state=st.booleans()),
        st.builds(faults.Reset, **when, share=st.sampled_from([0.2, 1.0])),
        st.builds(faults.Partition, **spell, how=st.sampled_from(["halves", "isolate"])),
        st.builds(faults.DelaySpike, **spell, ms=st.sampled_from([100.0, 4_000.0])),
        st.builds(faults.Loss, **spell, p=st.sampled_from([0.1, 0.5])),
    )


def simulated(sim: Simulator) -> dict[Any, HyParView]:
    found = {number: sim.nodes[number].machines[0] for number in sim.live}
    return {number: machine for number, machine in found.items() if isinstance(machine, HyParView)}


def join(sim: Simulator) -> None:
    """Through a random one of those before it, up or not."""
    there = len(sim.nodes)
    sim.add(build([sim.stream(f"join {there}").randrange(there)]))


def settled(sim: Simulator, rows: Rows, could: bool) -> bool:
    """Symmetric and in one piece at some moment: probes go on for ever, and one may be under way."""
    for _ in range(100):
        views = rows.of(sim.live)
        if not one_sided(views) and (reached(views) == views.keys()) >= could:
            return True
        sim.run(sim.now + SECOND // 10)
    return False


@given(
    plan=st.lists(fault(), max_size=5),
    joins=st.lists(st.integers(0, 200), min_size=NODES - 1, max_size=NODES - 1),
    seed=st.integers(0, 9),
)
@example(plan=[faults.Partition(at=10.0, duration=60.0, how="halves")], joins=[0] * 9, seed=1)
@example(plan=[faults.Restart(at=10.0, nodes=(0, 1, 2, 3), down=0.0, state=False)], joins=[0] * 9, seed=1)
@settings(max_examples=25, phases=PHASES)
def test_with_latency_and_faults_views_become_symmetric_and_connected_again(
    plan: list[faults.AnyFault], joins: list[int], seed: int
) -> None:
    rows = Rows()
    sim = Simulator(seed, Uniform(), Tracer(level="none", observer=rows))
    sim.add(build(()))
    for tenths in sorted(joins):
        sim.at(tenths * SECOND // 10, join, sim)
    sim.inject(faults.settle(plan, range(NODES), sim.stream("faults")))
    for _ in range(60):
        sim.run(sim.now + SECOND)
        for machine in simulated(sim).values():
            check_bounds(machine)
    if not sim.live:
        return
    could = reached(knowledge(simulated(sim))) == simulated(sim).keys()
    event(f"could be connected: {could}")
    sim.run(sim.now + QUIET)
    assert settled(sim, rows, could)
    check_quiet(rows.of(sim.live), simulated(sim), could)


# On loopback.


LIVE = replace(CONFIG, active_size=3, shuffle_every=10 * SECOND)


class Eight:
    """Live nodes that joined through the first, and what their rows say."""

    def __init__(self, world: LiveWorld) -> None:
        self.world = world
        self.rows = Rows()
        self.peers: list[bytes] = []

    async def join(self) -> None:
        tracer = Tracer(level="none", observer=self.rows)
        for number in range(8):
            self.peers.append(self.world.add(build([self.world.peer(0)] if number else [], LIVE), tracer))
            self._forget_all_but(self.peers[0])
        await self.world.run(60 * SECOND)

    def _forget_all_but(self, contact: bytes) -> None:
        """Where the others can be reached, only messages tell."""
        for driver in self.world.drivers.values():
            for peer in [peer for peer in driver.host.known if peer != contact]:
                del driver.host.known[peer]

    async def check(self, peers: Sequence[bytes]) -> None:
        views = self.rows.of(peers)
        for _ in range(40):
            if not one_sided(views):
                break
            await self.world.run(SECOND // 10)
        assert one_sided(views) == []
        assert all(views.values())
        assert reached(views) == views.keys()
        for peer in peers:
            machine = self.world.machines(peer)[0]
            assert isinstance(machine, HyParView)
            check_bounds(machine, LIVE)


@pytest.mark.live
async def test_eight_live_nodes_that_join_one_contact_are_one_symmetric_overlay_and_a_crash_heals(
    autojump_clock: MockClock,
) -> None:
    autojump_clock.autojump_threshold = JUMP_S
    async with trio.open_nursery() as nursery:
        eight = Eight(LiveWorld(nursery))
        await eight.join()
        await eight.check(eight.peers)
        gone = eight.peers[0], eight.peers[5]
        for peer in gone:
            eight.world.crash(peer)
        await eight.world.run(60 * SECOND)
        await eight.check([peer for peer in eight.peers if peer not in gone])
        eight.world.close()
        nursery.cancel_scope.cancel()
