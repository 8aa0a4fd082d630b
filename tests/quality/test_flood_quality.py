"""Flood against theory: distances, redundancy, the last hop, and what is left of a graph after a mass crash."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from statistics import fmean, stdev
from typing import Any, NamedTuple

import pytest

from bench import scenario as scenarios
from bench.run import build, run
from bench.scenario import Network, Scenario, TraceSettings
from bench.scenario import Workload as Work
from bench.workload import Workload
from overlays import graphs
from peer.faults import MassCrash
from peer.latency import Constant
from peer.machine import MS, SECOND, MessageId, Peer
from peer.trace import DELIVER, PUBLISH, Tracer
from pubsub import stacks
from tests.conftest import note_replay

DEGREE = 5


# Distances.


class Spread(NamedTuple):
    """One message: who published it when, and when and after how many hops each node got it."""

    source: Peer
    t: int
    reached: dict[Peer, tuple[int, int | None]]


class Spreads:
    """Gathers them from the rows."""

    def __init__(self) -> None:
        self.of: dict[MessageId, Spread] = {}

    def observe(self, t: int, node: Peer, kind: str, topic: Any, msg: Any, peer: Any, hops: int | None, *_: Any, **__: Any) -> None:
        if kind == PUBLISH:
            self.of[msg] = Spread(node, t, {})
        elif kind == DELIVER:
            assert node not in self.of[msg].reached
            self.of[msg].reached[node] = t - self.of[msg].t, hops


@pytest.mark.parametrize(
    ("graph", "nodes", "draw"), [("regular", 300, "copy"), ("regular", 300, "send"), ("er", 100, "copy"), ("ring", 31, "copy"), ("full", 12, "copy")]
)
def test_without_jitter_hops_are_breadth_first_distances_and_latency_is_hops_times_the_delay(graph: str, nodes: int, draw: str) -> None:
    latency = Constant(ms=7.0, draw=draw)  # type: ignore[arg-type]
    overlay = {"graph": graph, "degree": 8 if graph == "er" else DEGREE}
    scenario = Scenario(nodes=nodes, overlay=overlay, latency=latency, workload=Work(messages=5, rate=1.0))
    note_replay(scenarios.command(scenario))
    spreads = Spreads()
    sim = build(scenario, Tracer(observer=spreads))
    stack = stacks.find(scenario.stack, scenario.overlay, scenario.router)
    workload = Workload(scenario, stack, sim)
    workload.start()
    sim.run(workload.schedule() + 5 * SECOND)
    edges = graphs.draw(graph, nodes, int(overlay["degree"]), sim.stream("overlay"))
    assert len(spreads.of) == 5
    for spread in spreads.of.values():
        assert isinstance(spread.source, int)
        distances = graphs.distances(nodes, edges, spread.source)
        assert spread.reached == {node: (distance * 7 * MS, distance) for node, distance in distances.items()}


# Redundancy and the last hop.


@pytest.mark.parametrize("nodes", [6, 20, 500])
def test_flood_over_a_5_regular_graph_costs_each_link_but_the_tree_s_twice(nodes: int) -> None:
    """The publisher sends 5 copies and every other node 4: m = 5 + 4 (n - 1), so RMR = 3 + 5 / (n - 1)."""
    scenario = Scenario(nodes=nodes, workload=Work(messages=5))
    note_replay(scenarios.command(scenario))
    figures = run(scenario)
    copies = DEGREE + (DEGREE - 1) * (nodes - 1)
    assert figures["reliability"] == figures["reliability_min"] == 1.0
    assert figures["deliveries"] == 5 * (nodes - 1)
    assert figures["payload_per_delivery"] == pytest.approx(copies / (nodes - 1), rel=1e-12)
    assert figures["rmr"] == pytest.approx(3 + DEGREE / (nodes - 1), rel=1e-12)
    assert figures["control_messages"] == 0
    assert figures["false_positives"] == 0.0


def not_reached(nodes: int) -> list[float]:
    """How many nodes of a random 5-regular graph are farther than d = 0, 1, 2, ... hops, on average.

    The graph is laid open from the publisher outwards: the stubs of the last shell pair up with all stubs that are still
    free, so a node that was not reached stays so when each of its 5 stubs meets another such node's.
    """
    far, stubs, found = nodes - 1.0, float(DEGREE), [nodes - 1.0]
    while far > 1e-3 and len(found) < 100:
        met = min(1.0, stubs / (stubs + DEGREE * far - 1))
        after = far * (1 - met) ** DEGREE
        stubs = DEGREE * (far - after) - DEGREE * far * met
        far = after
        found.append(far)
    return found


def test_the_last_delivery_hop_and_the_mean_hops_are_those_of_a_random_regular_graph() -> None:
    """With one delay for all copies the first to arrive came the shortest way."""
    nodes, runs = 1_000, 6
    spreads = Spreads()
    last: list[float] = []
    for seed in range(runs):
        scenario = Scenario(nodes=nodes, seed=seed, latency=Constant(ms=10.0), workload=Work(messages=5, rate=2.0))
        note_replay(scenarios.command(scenario))
        spreads.of.clear()
        sim = build(scenario, Tracer(level="none", observer=spreads))
        workload = Workload(scenario, stacks.find(scenario.stack, {}, {}), sim)
        workload.start()
        sim.run(workload.schedule() + 5 * SECOND)
        found = [[hops for _, hops in spread.reached.values() if hops] for spread in spreads.of.values()]
        last += [max(hops) for hops in found]
        mean_hops = fmean(hop for hops in found for hop in hops)
        assert mean_hops == pytest.approx(sum(not_reached(nodes)) / (nodes - 1), rel=0.01)
    # somebody is farther than d hops with the chance 1 - exp(-expected number), as in Poisson's law
    theory = sum(1 - math.exp(-far) for far in not_reached(nodes))
    print(f"last hop: theory {theory:.2f}, ours {fmean(last):.2f} (n = {nodes}, {len(last)} messages)")
    assert fmean(last) == pytest.approx(theory, abs=0.25)


# Site percolation.


def survival(crashed: float) -> float:
    """The share of the survivors in the giant component: 1 - u^5, where u = 1 - p + p u^4 and p = 1 - crashed.

    u is the chance that a link leads to no infinite part: its far end is down, or up and so are its 4 other links.
    """
    alive, u = 1 - crashed, 0.0
    for _ in range(10_000):
        u = 1 - alive + alive * u ** (DEGREE - 1)
    return 1 - u**DEGREE


@pytest.mark.parametrize(("crashed", "share"), [(0.1, 100.0), (0.2, 99.97), (0.3, 99.73), (0.4, 98.72), (0.5, 95.25), (0.6, 84.20), (0.7, 47.4)])
def test_the_theory_gives_the_published_table(crashed: float, share: float) -> None:
    assert 100 * survival(crashed) == pytest.approx(share, abs=0.05)


def first_flood(nodes: int, crashed: float, seed: int) -> float:
    """The share of the survivors, the publisher included, that the first message after the crash reaches.

    The crash comes before the publish of the same moment, and shows as links going down only after the run.
    """
    scenario = Scenario(
        nodes=nodes,
        seed=seed,
        warmup=1.0,
        window=9.0,
        overlay={"degree": DEGREE},
        network=Network(detection=60.0),
        workload=Work(messages=1),
        faults=(MassCrash(at=1.0, share=crashed),),
        trace=TraceSettings(level="none"),
    )
    note_replay(scenarios.command(scenario))
    reached = int(run(scenario)["deliveries"]) + 1
    return reached / (nodes - round(crashed * nodes))


class Estimate(NamedTuple):
    """A mean with its 99 % confidence interval, and how many of the runs it is taken over."""

    mean: float
    half: float
    inside: int
    runs: int


def estimate(sample: Callable[[int], float], runs: int) -> Estimate:
    """Of the runs whose publisher sat in the giant component; the others reach next to nothing, and are counted apart."""
    shares = [sample(seed) for seed in range(runs)]
    inside = [share for share in shares if share > 0.1]
    student = 2.58 * (1 + 2.0 / (len(inside) - 1))  # Student's quantile for 99 %, a little above the true one
    return Estimate(fmean(inside), student * stdev(inside) / math.sqrt(len(inside)), len(inside), runs)


def check(nodes: int, crashed: float, runs: int) -> None:
    """The theory is for infinite graphs. What a finite one adds:

    - The victims are an exact share, so survivors are not noisy; correlations among them are of order 1/n.
    - Runs with the publisher inside weigh a run by its giant component: var/mean, again of order 1/n.
    - In breadth-first searches of 20,000 graphs of 2,000 nodes the mean differed from the theory by TOLERANCE / n at most.
    """
    theory, ours = survival(crashed), estimate(partial(first_flood, nodes, crashed), runs)
    tolerance = TOLERANCE / nodes
    print(
        f"{crashed:.0%} of {nodes} crashed: theory {theory:.4%}, ours {ours.mean:.4%}, 99% interval"
        f" {ours.mean - ours.half:.4%} .. {ours.mean + ours.half:.4%}, publisher inside in {ours.inside} of {ours.runs} runs"
    )
    assert abs(ours.mean - theory) <= ours.half + tolerance
    assert ours.half < 0.03, "too few runs to say anything"
    # a random survivor is inside with the same chance; four deviations of a binomial count, and one run
    expected, variance = ours.runs * theory, ours.runs * theory * (1 - theory)
    assert abs(ours.inside - expected) <= 4 * math.sqrt(variance) + 1


TOLERANCE = 4.0
CRASHED = (0.2, 0.3, 0.4, 0.5, 0.6)


@pytest.mark.parametrize("crashed", CRASHED)
def test_the_first_flood_after_a_crash_reaches_what_site_percolation_predicts(crashed: float) -> None:
    check(2_000, crashed, 30)


@pytest.mark.slow
@pytest.mark.parametrize("crashed", CRASHED)
def test_the_first_flood_after_a_crash_of_a_large_network_reaches_what_site_percolation_predicts(crashed: float) -> None:
    check(10_000, crashed, 60)


@pytest.mark.parametrize("crashed", [0.8])
def test_above_three_quarters_hardly_anybody_is_reached(crashed: float) -> None:
    """p = 1/4 is the threshold: below it there is no giant component."""
    assert survival(crashed) == pytest.approx(0, abs=1e-6)
    assert fmean(first_flood(1_000, crashed, seed) for seed in range(5)) < 0.1
