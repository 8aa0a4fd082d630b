"""hyparview.graph: what graph the active views form after 50 cycles.

DSN 2007, section 5: clustering 0.00092 and mean shortest path 6.38542 at 10,000 nodes, of which 9,980 have degree 5.
A random 5-regular graph of n nodes has clustering near 4 / n and paths that grow by one with each factor of 4, so for another
size the paper's values are scaled like that. Spark takes paths from 16 nodes to all others.
weft asks of itself clustering below 0.0015, a path of 6.2 to 6.7, 99 % of the nodes with degree 5, and symmetric views.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import TYPE_CHECKING

from msgspec.structs import replace

from libweft.bench.papers.figure import Figure, Row, measured, number
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.papers.hyparview_setting import NODES, warmed
from libweft.bench.runs.scenario import Scenario, Workload
from libweft.peer.trace.kinds import NEIGHBOR_DOWN, NEIGHBOR_UP, NODE_DOWN, NODE_UP

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUICK_NODES = 1_000
CYCLES = 50
FANOUT = 4
CLUSTERING, MOST_CLUSTERING = 0.00092, 0.0015
PATH, SHORTEST, LONGEST = 6.38542, 6.2, 6.7
FULL, LEAST_FULL = 99.8, 99.0


def rows(lab: Lab) -> list[Row]:
    nodes = QUICK_NODES if lab.quick else NODES
    found = lab.measure([scenario(nodes, seed) for seed in lab.seeds])
    values = {name: [number(measures, "overlay", name) for measures in found] for name in ("clustering", "path_mean")}
    shares = {name: [100 * number(measures, "overlay", name) for measures in found] for name in ("degree_full", "symmetry")}
    scale, shift = NODES / nodes, log(nodes / NODES, FANOUT)
    path = PATH + shift
    return [
        measured("clustering", CLUSTERING * scale, values["clustering"], (MOST_CLUSTERING - CLUSTERING) * scale, "most"),
        measured("mean path, at least", path, values["path_mean"], PATH - SHORTEST, "least"),
        measured("mean path, at most", path, values["path_mean"], LONGEST - PATH, "most"),
        measured("nodes with degree 5 (%)", FULL, shares["degree_full"], FULL - LEAST_FULL, "least"),
        measured("symmetric entries of views (%)", 100.0, shares["symmetry"], 0.0),
    ]


def scenario(nodes: int, seed: int) -> Scenario:
    return replace(warmed(nodes, seed, CYCLES), workload=Workload(messages=1))


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    """Each as a share of the paper's value, since their units differ."""
    names = ["clustering", "mean path", "degree 5", "symmetry"]
    shown = [rows[0], *rows[2:]]
    axes.bar(names, [row.ours / row.paper for row in shown if row.paper], color="#0072B2", label="ours")
    axes.axhline(1.0, color="black", linestyle="--", label="HyParView")
    axes.set_ylabel("ours / paper's")


FIGURE = Figure(
    kinds=(NODE_UP, NODE_DOWN, NEIGHBOR_UP, NEIGHBOR_DOWN), runs=1, quick_runs=1, rows=rows, draw=draw, wants=("graph", "alone")
)
