"""vcube-ps.fig4b: how many PUB messages one publication takes, against the number of nodes.

Exact by construction: only subscribers carry a message, each gets it once, so there are as many as other subscribers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bench.papers.figure import Figure, Lab, Row, measured, number
from bench.papers.vcube_ps_setting import KINDS, PROGRAM, QUICK_RUNS, RUNS, Point, measure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def rows(lab: Lab) -> list[Row]:
    return [
        measured(_name(point), _others(point), [number(measures, "payload_messages") for measures in runs], 0.0)
        for point, runs in measure(lab).items()
    ]


def _name(point: Point) -> str:
    return f"PUB messages, {point.nodes} nodes, {point.share:.0%} subscribe"


def _others(point: Point) -> float:
    return round(point.share * point.nodes) - 1


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    from bench.papers import picture

    named = {row.name: row for row in rows}
    for share in (1.0, 0.25):
        shown = [point for point in PROGRAM if point.share == share and _name(point) in named]
        nodes = [float(point.nodes) for point in shown]
        picture.paper(axes, nodes, [_others(point) for point in shown], f"subscribers less one, {share:.0%} subscribe")
        picture.ours(axes, nodes, [named[_name(point)] for point in shown])
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlabel("nodes")
    axes.set_ylabel("PUB messages")


FIGURE = Figure(kinds=KINDS, runs=RUNS, quick_runs=QUICK_RUNS, rows=rows, draw=draw)
