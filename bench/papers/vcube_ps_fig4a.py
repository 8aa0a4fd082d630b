"""vcube-ps.fig4a: how long a message takes to a subscriber, one publisher and one message, against the number of nodes.

VCube-PS and SRPT. The program's deviation between runs is known for the mean alone; so the last subscriber is judged only where
all subscribe, with that deviation. The paper gives two numbers, at 4,096 nodes of which a quarter subscribe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from libweft.bench.papers.figure import Figure, Judged, Measures, Row, measured, number
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.papers.vcube_ps_setting import (
    CHARGED,
    FREE,
    KINDS,
    PROGRAM,
    QUICK_RUNS,
    RUNS,
    SRPT,
    WANTS,
    Point,
    measure,
    tolerance,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAPER = {"VCube-PS": 533.0, "SRPT": 720.0}  # 4,096 nodes, a quarter of which subscribe
SHARES = (1.0, 0.25)


def rows(lab: Lab) -> list[Row]:
    own, single = measure(lab)
    found: list[Row] = []
    for point, runs in own.items():
        means, lasts = _values(runs, "latency_ms", "mean"), _values(runs, "last_ms")
        found += _rows("VCube-PS", point, means, lasts, CHARGED)
    for point, runs in single.items():
        means, lasts = _values(runs, "single_root", "mean_ms"), _values(runs, "single_root", "last_ms")
        found += _rows("SRPT", point, means, lasts, FREE)
    return found


def _values(runs: Sequence[Measures], *path: str) -> list[float]:
    return [number(measures, *path) for measures in runs]


def _rows(system: str, point: Point, means: Sequence[float], lasts: Sequence[float], costs: str) -> list[Row]:
    paper = PAPER[system] if (point.nodes, point.share) == (4_096, 0.25) else None
    room = tolerance(point.last, point.deviation)
    judged: Judged = "near" if point.share == 1.0 else "no"
    return [
        measured(_name(system, point), paper, means, point.tolerance, program=point.mean, costs=costs),
        measured(f"{system}, last, {point.where}", None, lasts, room, judged, program=point.last, costs=costs),
    ]


def _name(system: str, point: Point) -> str:
    return f"{system}, mean, {point.where}"


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    from libweft.bench.papers import picture

    named = {row.name: row for row in rows}
    for system, program in (("VCube-PS", PROGRAM), ("SRPT", SRPT)):
        for share in SHARES:
            shown = [point for point in program if point.share == share and _name(system, point) in named]
            nodes = [float(point.nodes) for point in shown]
            label = f"authors' program, {system}, {share:.0%} subscribe"
            picture.paper(axes, nodes, [point.mean for point in shown], label)
            picture.ours(axes, nodes, [named[_name(system, point)] for point in shown])
    axes.set_xscale("log", base=2)
    axes.set_xlabel("nodes")
    axes.set_ylabel("units of time to a subscriber, mean")


FIGURE = Figure(kinds=KINDS, runs=RUNS, quick_runs=QUICK_RUNS, rows=rows, draw=draw, wants=WANTS)
