"""Plumtree against its paper: redundancy, the last hop and repair, in the simulator on random 5-regular graphs of 1,000 nodes.

The paper's figures are of 10,000 nodes on HyParView; docstrings name them where they can be compared. What must hold on any
graph (who is reached, what a tree costs) is asserted exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import pytest

from libweft.bench.runs.app import Listener
from libweft.bench.runs.replay import command
from libweft.bench.runs.run import run as run_scenario
from libweft.bench.runs.scenario import Scenario, Workload
from libweft.overlays import graphs
from libweft.overlays.hyparview.machine import HyParView
from libweft.overlays.overlay import Overlay
from libweft.overlays.static import Static
from libweft.peer.machine import SECOND, Build, Env, Lane, Machine, MessageId, Peer
from libweft.peer.sim import faults
from libweft.peer.sim.faults import AnyFault, Loss, MassCrash, Partition
from libweft.peer.sim.latency import Uniform
from libweft.peer.sim.simulator import Simulator
from libweft.peer.trace.kinds import DELIVER, DUPLICATE, GRAFT, NODE_DOWN, PUBLISH, SEND
from libweft.peer.trace.tracer import Tracer
from libweft.pubsub.plumtree import PROTOCOL, Plumtree, PlumtreeConfig
from tests.conftest import note_replay

pytestmark = pytest.mark.slow

NODES, DEGREE = 1_000, 5
FLOOD = DEGREE + (DEGREE - 1) * (NODES - 1)  # copies of one message: what all links together carry
WARMUP = 5.0
SETTLED = 300.0  # 30 shuffles: HyParView's probes of the first minutes, each a change of the tree, have become rare
AFTER = 30 * SECOND


class Spread:
    """One message: who was down, how late and after how many hops each node got it, and what it cost."""

    def __init__(self, source: int, t: int, down: frozenset[Peer]) -> None:
        self.source = source
        self.t = t
        self.down = down
        self.reached: dict[Peer, int] = {source: 0}
        self.last = self.copies = self.grafts = self.duplicates = 0

    @property
    def rmr(self) -> float:
        return self.copies / max(1, len(self.reached) - 1) - 1

    @property
    def ldh(self) -> int:
        return max(self.reached.values())


class Run:
    """Gathers the spreads from the rows, in order of publication."""

    def __init__(self) -> None:
        self.of: dict[MessageId, Spread] = {}
        self.down: set[Peer] = set()
        self.control: list[int] = []
        self.bytes = 0
        self.edges: graphs.Edges = []

    def observe(self, t: int, node: Any, kind: str, _: Any, msg: Any, __: Any, hops: Any, copies: Any, *rest: Any) -> None:
        if kind == NODE_DOWN:
            self.down.add(node)
        elif kind == PUBLISH:
            self.of[msg] = Spread(node, t, frozenset(self.down))
        elif kind == SEND:
            self._sent(t, msg, copies, *rest[:2])
        elif kind == DUPLICATE:
            self.of[msg].duplicates += 1
        elif kind == GRAFT:
            self.of[msg].grafts += 1
        elif kind == DELIVER and node != self.of[msg].source:
            spread = self.of[msg]
            assert node not in spread.reached, "delivered twice"
            spread.reached[node] = hops
            spread.last = t - spread.t

    def _sent(self, t: int, msg: MessageId, copies: int, size: int, lane: Lane) -> None:
        self.bytes += copies * size if self.of else 0  # since the first message
        if lane is Lane.PAYLOAD:
            self.of[msg].copies += copies
        else:
            self.control += [t] * copies

    @property
    def spreads(self) -> list[Spread]:
        return list(self.of.values())

    def connected(self, spread: Spread, nodes: int) -> set[int]:
        left = [(a, b) for a, b in self.edges if a not in spread.down and b not in spread.down]
        return set(graphs.distances(nodes, left, spread.source))


def play(
    publishes: Sequence[tuple[float, int]],
    config: PlumtreeConfig,
    plan: Sequence[AnyFault] = (),
    *,
    nodes: int = NODES,
    seed: int = 1,
    hyparview: bool = False,
) -> Run:
    """Each publish is a moment in seconds after the warm-up and a node; where that is down, the next that is up."""
    run, warmup = Run(), SETTLED if hyparview else WARMUP
    sim = Simulator(seed, Uniform(), Tracer(level="none", observer=run))
    run.edges = [] if hyparview else graphs.draw("regular", nodes, DEGREE, sim.stream("overlay"))
    for node in range(nodes):
        contacts = [b for a, b in run.edges if a == node] if not hyparview else [0] if node else []
        sim.add(built(partial(joining if hyparview else linked, contacts), config))
    sim.inject(faults.settle(plan, range(nodes), sim.stream("faults")))
    for at, node in publishes:
        sim.at(round((warmup + at) * SECOND), publish, sim, node, nodes)
    sim.run(round((warmup + publishes[-1][0]) * SECOND) + AFTER)
    return run


def joining(contacts: Sequence[Peer], env: Env) -> Overlay:
    return HyParView(env, contacts)


def linked(contacts: Sequence[Peer], env: Env) -> Overlay:
    return Static(env, contacts, (PROTOCOL,))


def built(below: Callable[[Env], Overlay], config: PlumtreeConfig) -> Build:
    def machines(env: Callable[[], Env]) -> Sequence[Machine]:
        overlay = below(env())
        router = Plumtree(env(), overlay, Listener(), config)
        router.join("t")
        return [overlay, router]

    return machines


def publish(sim: Simulator, node: int, nodes: int) -> None:
    while not sim.nodes[node % nodes].up:
        node += 1
    router = sim.nodes[node % nodes].machines[-1]
    assert isinstance(router, Plumtree)
    router.publish(router.compose("t", bytes(100)))


def one_sender(messages: int, every: float = 3.0) -> list[tuple[float, int]]:
    return [(every * number, 0) for number in range(messages)]


def many_senders(messages: int, every: float = 3.0, nodes: int = NODES) -> list[tuple[float, int]]:
    return [(every * number, 617 * number % nodes) for number in range(messages)]


def tell(name: str, spreads: Sequence[Spread]) -> None:
    rmr, ldh, last = [f"{s.rmr:.3f}" for s in spreads[:5]], [s.ldh for s in spreads[:5]], spreads[-1]
    print(f"{name}: RMR {' '.join(rmr)} .. {last.rmr:.3f}, LDH {ldh} .. {last.ldh}, last {last.last // 1_000} ms")


def all_reached(run: Run, nodes: int = NODES) -> None:
    assert [len(spread.reached) for spread in run.spreads] == [nodes] * len(run.of)


# A network at rest.


@pytest.mark.parametrize(("threshold", "ldh"), [(0, 13), (3, 10)])
def test_one_sender_builds_its_tree_with_one_flood_and_then_pays_nothing_twice(threshold: int, ldh: int) -> None:
    """The paper, 10,000 nodes: RMR 0, LDH 10.0 plain and 8.3 optimised, where a flood has 8.3 to 9.0."""
    run = play(one_sender(20), PlumtreeConfig(threshold=threshold))
    tell(f"one sender, threshold {threshold}", run.spreads)
    all_reached(run)
    assert run.spreads[0].copies == FLOOD
    assert [spread.copies for spread in run.spreads[1:]] == [NODES - 1] * 19
    assert fmean(spread.ldh for spread in run.spreads[10:]) <= ldh


def test_payloads_and_announcements_together_are_as_many_as_a_flood_s_copies() -> None:
    """As in the paper's table: 9,999 and 29,987 against 39,984. It knows no summaries."""
    run = play(one_sender(10), PlumtreeConfig(threshold=0, summary=False))
    settled = run.spreads[5:]
    control = sum(t >= settled[0].t for t in run.control)
    assert control / len(settled) + NODES - 1 == FLOOD


def test_at_rest_summaries_cost_a_tenth_of_the_bytes_and_two_messages_a_node_in_each_period() -> None:
    """A SUMMARY and a HEARD on each link of the tree, with one mention of each message; the payloads here have 100 bytes."""
    told, plain = (play(one_sender(60, 1.0), PlumtreeConfig(summary=summary), nodes=200) for summary in (True, False))
    all_reached(told, 200)
    periods = (60 * SECOND + AFTER) / PlumtreeConfig().summary_every
    more = (len(told.control) - len(plain.control)) / 200 / periods
    print(f"summaries: {told.bytes / plain.bytes - 1:.1%} more bytes, {more:.2f} messages a node and period")
    assert [spread.copies for spread in told.spreads] == [spread.copies for spread in plain.spreads]
    assert told.bytes / plain.bytes < 1.1
    assert more < 2


@pytest.mark.parametrize(("threshold", "ldh"), [(0, 20), (7, 20)])
def test_many_senders_share_one_tree_without_redundancy(threshold: int, ldh: int) -> None:
    """The paper, 10,000 nodes: RMR 0, LDH about 59 plain and 17 optimised, on a tree that grew with the overlay."""
    run = play(many_senders(40), PlumtreeConfig(threshold=threshold))
    tell(f"many senders, threshold {threshold}", run.spreads)
    all_reached(run)
    assert run.spreads[0].copies == FLOOD
    assert fmean(spread.rmr for spread in run.spreads[1:]) < 0.005
    assert fmean(spread.ldh for spread in run.spreads[20:]) <= ldh


def test_a_tree_for_each_source_is_as_deep_as_that_source_s_own_flood() -> None:
    senders = [3, 500, 900]
    publishes = [(3.0 * number, senders[number % 3]) for number in range(15)]
    run = play(publishes, PlumtreeConfig(per_source=True, threshold=3))
    tell("a tree a source", run.spreads)
    all_reached(run)
    assert [spread.copies for spread in run.spreads] == [FLOOD] * 3 + [NODES - 1] * 12
    assert fmean(spread.ldh for spread in run.spreads[6:]) <= 10


# Messages that overlap.


def test_a_shared_tree_comes_to_rest_though_messages_of_many_senders_overlap() -> None:
    """By the paper's rule alone it never does: each message prunes what another needs."""
    nodes, publishes = 300, many_senders(200, 0.1, 300)
    configs = PlumtreeConfig(), PlumtreeConfig(settle=0)
    ours, paper = (play(publishes, config, nodes=nodes).spreads[100:] for config in configs)
    for name, late in (("ours", ours), ("the paper's rule", paper)):
        grafts, rmr, last = fmean(s.grafts for s in late), fmean(s.rmr for s in late), fmean(s.last for s in late)
        print(f"10 messages a second, {name}: RMR {rmr:.3f}, {grafts:.1f} grafts a message, last {last / 1_000:.0f} ms")
        assert all(len(spread.reached) == nodes for spread in late)
    assert fmean(s.rmr for s in ours) < 0.3 < fmean(s.rmr for s in paper)
    assert fmean(s.grafts for s in ours) < fmean(s.grafts for s in paper) / 5
    assert fmean(s.last for s in ours) < fmean(s.last for s in paper) / 1.5


ROUNDS, UNCOUNTED = 30, 3


@pytest.mark.parametrize("hyparview", [False, True], ids=["static", "hyparview"])
@pytest.mark.parametrize(
    ("name", "publishes", "each", "ldh", "rmr"),
    [
        ("one sender", one_sender(UNCOUNTED + ROUNDS, 1.0), 1, 10, 0.1),
        ("random senders", many_senders(UNCOUNTED + ROUNDS, 1.0, 100), 1, 18, 0.5),
        ("all at once", [(5.0 * turn, node) for turn in range(UNCOUNTED + 5) for node in range(100)], 100, 30, 2.0),
    ],
)
def test_a_hundred_nodes_keep_limits_below_those_of_iroh_gossip_s_own_tests(
    name: str, publishes: list[tuple[float, int]], each: int, ldh: int, rmr: float, hyparview: bool
) -> None:
    """Of each round the largest hop and the redundancy of all its messages; then the mean over rounds, as iroh-gossip does it.

    A round is one message or, all at once, one of each node. Three rounds come before those that count: the first is the
    flood that builds the tree, and its RMR of 3 alone would be a tenth of thirty rounds. iroh-gossip counts from the first
    on and allows LDH 15, 18 and 30 and RMR 0.2, 1 and 3.
    """
    for seed in range(1, 5):
        run = play(publishes, PlumtreeConfig(), nodes=100, seed=seed, hyparview=hyparview)
        rounds = [run.spreads[start : start + each] for start in range(0, len(publishes), each)][UNCOUNTED:]
        last = fmean(max(spread.ldh for spread in spreads) for spreads in rounds)
        redundant = fmean(fmean(spread.rmr for spread in spreads) for spreads in rounds)
        print(f"{name}, seed {seed}: LDH {last:.1f}, RMR {redundant:.3f}")
        all_reached(run, 100)
        assert (last < ldh, redundant < rmr) == (True, True)


# Faults.


@pytest.mark.parametrize("crashed", [0.4, 0.6, 0.8])
def test_after_a_mass_crash_every_message_reaches_all_that_is_connected_and_the_tree_mends(crashed: float) -> None:
    """Nobody makes new links here, so the paper's table (0.05, 0.12, 0.36 two messages after it) is for another overlay.

    The first message is published a moment after the crash, before any link is known to be dead: it shows what announcements
    alone repair.
    """
    before, publishes = 5, many_senders(15, 30.0)
    run = play(publishes, PlumtreeConfig(), [MassCrash(at=WARMUP + 30.0 * before - 0.01, share=crashed)])
    after = run.spreads[before:]
    tell(f"{crashed:.0%} crashed", after)
    for spread in after:
        assert set(spread.reached) == run.connected(spread, NODES)
    large = [spread for spread in after[3:] if len(spread.reached) > 20]
    assert all(spread.rmr < 0.1 for spread in large)
    assert crashed > 0.7 or (len(large) > 5 and fmean(spread.rmr for spread in large) < 0.02)
    assert all(spread.last < 20 * SECOND for spread in after)


def test_with_every_twentieth_copy_lost_every_message_reaches_everybody() -> None:
    """Links that lose what they accepted are no TCP links; redundancy stays, since each loss grafts a link."""
    run = play(many_senders(40), PlumtreeConfig(), [Loss(at=WARMUP, p=0.05)])
    tell("5% loss", run.spreads)
    all_reached(run)
    assert fmean(spread.rmr for spread in run.spreads[1:]) < 0.6
    assert max(spread.last for spread in run.spreads) < 10 * SECOND


@pytest.mark.parametrize("again", [True, False])
def test_only_summaries_that_come_again_find_what_was_lost_where_nobody_announces(again: bool) -> None:
    """A ring has no lazy link: who loses its copy hears of it from nobody else, and nothing comes after the last message."""
    scenario = Scenario(
        stack="static/plumtree",
        nodes=40,
        overlay={"graph": "ring"},
        router={} if again else {"summary_every": 10**6 * SECOND},
        window=90.0,
        workload=Workload(messages=40, rate=2.0),
        faults=(Loss(p=0.05),),
    )
    note_replay(command(scenario))
    result = run_scenario(scenario)
    print(f"5% loss on a ring, summaries again {again}: reliability {result['reliability']:.4f}")
    assert (result["reliability_min"] == 1.0) == again


@pytest.mark.parametrize("summary", [True, False])
def test_only_a_summary_mends_what_a_partition_kept_apart(summary: bool) -> None:
    publishes = many_senders(20, 1.0)
    run = play(publishes, PlumtreeConfig(summary=summary), [Partition(at=WARMUP + 2.5, duration=10.0)])
    short = [len(spread.reached) for spread in run.spreads if len(spread.reached) < NODES]
    print(f"partition of 10 s, summary {summary}: {len(short)} of {len(publishes)} messages did not reach all")
    assert bool(short) != summary
