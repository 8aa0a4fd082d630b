"""hyparview.percolation: what the first messages after a mass crash reach over HyParView's views, against site percolation.

As `libweft.bench.papers.flood_percolation`, which has the theory and its tolerances, with the overlay that HyParView makes in the
place of a random regular graph: if its views are as random as such a graph, the same share of the survivors is reached. A run
publishes from `MESSAGES` random survivors at the moment of the crash, before anybody has noticed. All that are inside the giant
component reach the same nodes, so a run has one value for what is reached, and one for how many publishers were inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import sqrt
from statistics import fmean
from typing import TYPE_CHECKING

from msgspec.structs import replace

from libweft.bench.papers.figure import Figure, Measures, Row, measured
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.papers.flood_percolation import CRASHED, DEVIATIONS, INSIDE, UNNOTICED, giant, reached, reached_row
from libweft.bench.papers.hyparview_setting import NODES, by_crash, warmed
from libweft.bench.runs.scenario import Network, Scenario, Workload
from libweft.peer.sim.faults import MassCrash
from libweft.peer.trace.kinds import DELIVER, JOINED, LEAVE, NODE_DOWN, PUBLISH

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUICK_NODES = 500
CYCLES = 10
MESSAGES = 20
MICROSECOND = 1e-6


def rows(lab: Lab) -> list[Row]:
    nodes = QUICK_NODES if lab.quick else NODES
    found = by_crash(lab, CRASHED, partial(scenario, nodes))
    shares = {crashed: [_shares(run, nodes - round(crashed * nodes)) for run in found[crashed]] for crashed in CRASHED}
    outcome = [reached_row(crashed, [max(run) for run in shares[crashed]], nodes) for crashed in CRASHED]
    return [*outcome, _inside_row(shares)]


def scenario(nodes: int, crashed: float, seed: int) -> Scenario:
    """The publishes come one a microsecond, the crash just before the first."""
    base = warmed(nodes, seed, CYCLES)
    return replace(
        base,
        network=Network(detection=UNNOTICED),
        workload=Workload(messages=MESSAGES, rate=1 / MICROSECOND),
        faults=(MassCrash(at=base.warmup, share=crashed),),
    )


def _shares(measures: Measures, survivors: int) -> list[float]:
    return [reached(message["reliability"] or 0.0, survivors) for message in measures["per_message"]]


def _inside_row(shares: dict[float, list[list[float]]]) -> Row:
    """Each message is one draw; as those of a run share its graph, only the draw of the publisher is counted as chance."""
    runs = [run for crashed in CRASHED for run in shares[crashed]]
    theory = [giant(crashed) for crashed in CRASHED]
    draws = len(runs[0]) * len(shares[CRASHED[0]])
    deviation = sqrt(sum(chance * (1 - chance) for chance in theory) * draws)
    inside = [100 * fmean(share > INSIDE for share in run) for run in runs]
    tolerance = 100 * (DEVIATIONS * deviation + 1) / (draws * len(CRASHED))
    return measured("publisher inside (% of messages)", 100 * fmean(theory), inside, tolerance)


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    from libweft.bench.papers import flood_percolation

    flood_percolation.draw(axes, rows)


FIGURE = Figure(
    kinds=(PUBLISH, DELIVER, JOINED, LEAVE, NODE_DOWN), runs=2, quick_runs=2, rows=rows, draw=draw, wants=("messages", "alone")
)
