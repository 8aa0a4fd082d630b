"""flood.percolation: what the first flood after a mass crash reaches, against site percolation.

20 to 60 % of the nodes of a random 5-regular graph crash at one moment, and a survivor publishes at that very moment,
before anybody has noticed. A flood then reaches what is left of the graph around its publisher, no more and no less.

The theory, for an infinite graph of which a share p survives: a link leads to no infinite part with the chance u, when
its far end is down, or is up and all its 4 other links lead to none: u = 1 - p + p u^4. A survivor sits in the giant
component when one of its 5 links leads on: S = 1 - u^5. So S is two things at once: the chance that the publisher is
inside, and the share of the survivors that a flood from inside reaches. A flood from outside reaches a handful. The mean
over all runs is therefore near S^2 and not S (a mean of few runs jumps, as published curves do above 50 %): the rows
judge the two apart.

- Survivors reached: over the runs whose publisher was inside. A run has one message, since all that are published
  inside reach the same nodes. Reliability leaves the publisher out, as publishers always are; it has the message, so of
  N survivors (N - 1) reliability + 1 have it.
- Publisher inside: over all runs, of every share of crashes.

Tolerances are set before the runs, from breadth-first searches of 15,000 graphs of 500 nodes and 1,500 of 2,000, without
any simulator. A finite graph is off by something of order 1/n: at 500 nodes by +0.03 % (of the survivors) at most up to
50 % crashed and by -0.23 % at 60 %, so 25 (1 - S) / n covers it at the sizes here. The share reached differs from graph
to graph with a deviation of `SPREAD` / sqrt(n); four deviations of the mean are allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import fmean
from typing import TYPE_CHECKING

from libweft.bench.papers.figure import Figure, Row, measured, number
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.runs.scenario import Network, Scenario, Workload
from libweft.peer.sim.faults import MassCrash
from libweft.peer.trace.kinds import DELIVER, JOINED, LEAVE, NODE_DOWN, PUBLISH

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DEGREE = 5
NODES, QUICK_NODES = 10_000, 2_000
CRASHED = (0.2, 0.3, 0.4, 0.5, 0.6)
SPREAD = {0.2: 0.020, 0.3: 0.065, 0.4: 0.162, 0.5: 0.381, 0.6: 1.04}
INSIDE = 0.1  # between the largest part outside, 3 % of the survivors at 2,000 nodes, and the smallest giant, 73 %
DEVIATIONS = 4.0
WARMUP = 1.0
UNNOTICED = 3_600.0  # seconds until a crash shows, past the end of the run


def giant(crashed: float) -> float:
    """S: the share of the survivors in the giant component, and the chance that a survivor is in it."""
    alive, u = 1 - crashed, 0.0
    for _ in range(1_000):
        u = 1 - alive + alive * u ** (DEGREE - 1)
    return 1 - u**DEGREE


def rows(lab: Lab) -> list[Row]:
    nodes = QUICK_NODES if lab.quick else NODES
    asked = [(crashed, seed) for crashed in CRASHED for seed in lab.seeds]
    measures = lab.measure([scenario(nodes, crashed, seed) for crashed, seed in asked])
    shares: dict[float, list[float]] = {crashed: [] for crashed in CRASHED}
    for (crashed, _), found in zip(asked, measures, strict=True):
        shares[crashed].append(reached(number(found, "reliability"), nodes - round(crashed * nodes)))
    return [*(reached_row(crashed, shares[crashed], nodes) for crashed in CRASHED), _inside_row(list(shares.values()))]


def scenario(nodes: int, crashed: float, seed: int) -> Scenario:
    """The crash comes just before the publish of the same moment."""
    return Scenario(
        stack="static/flood",
        nodes=nodes,
        seed=seed,
        warmup=WARMUP,
        overlay={"graph": "regular", "degree": DEGREE},
        network=Network(detection=UNNOTICED),
        workload=Workload(messages=1),
        faults=(MassCrash(at=WARMUP, share=crashed),),
    )


def reached(reliability: float, survivors: int) -> float:
    return ((survivors - 1) * reliability + 1) / survivors


def reached_row(crashed: float, shares: Sequence[float], nodes: int) -> Row:
    theory = giant(crashed)
    inside = [100 * share for share in shares if share > INSIDE]
    noise = DEVIATIONS * SPREAD[crashed] / sqrt(nodes * max(1, len(inside)))
    return measured(f"survivors reached, {crashed:.0%} crashed (%)", 100 * theory, inside, 100 * (noise + _finite(theory, nodes)))


def _finite(theory: float, nodes: int) -> float:
    return 25 * (1 - theory) / nodes


def _inside_row(shares: Sequence[Sequence[float]]) -> Row:
    """All shares of crashes together, since of some runs there are few outside; one run more or less is no difference."""
    theory = [giant(crashed) for crashed in CRASHED]
    inside = [100.0 * (share > INSIDE) for point in shares for share in point]
    deviation = sqrt(sum(chance * (1 - chance) for chance in theory) * len(shares[0]))
    return measured("publisher inside (% of runs)", 100 * fmean(theory), inside, 100 * (DEVIATIONS * deviation + 1) / len(inside))


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    """The row of the publishers has no place on these axes."""
    from libweft.bench.papers import picture

    line = range(15, 66)
    picture.paper(axes, line, [100 * giant(percent / 100) for percent in line], "site percolation")
    picture.ours(axes, [100 * crashed for crashed in CRASHED], rows[: len(CRASHED)])
    axes.set_xlabel("nodes crashed at once (%)")
    axes.set_ylabel("survivors reached from inside the giant component (%)")


FIGURE = Figure(kinds=(PUBLISH, DELIVER, JOINED, LEAVE, NODE_DOWN), runs=40, quick_runs=8, rows=rows, draw=draw)
