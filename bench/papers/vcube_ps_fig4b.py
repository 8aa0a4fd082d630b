"""vcube-ps.fig4b: how many PUB messages one publication takes, against the number of nodes.

Exact by construction for VCube-PS: only subscribers carry a message, each once, so there are as many as other subscribers. In
SRPT forwarders get it too; the step to the root is not counted, as in the program. Where all subscribe it is exact again. Else it
depends on who subscribes: a node of the tree has a copy when somebody in its part of it subscribes, so the mean over all draws
is a sum over nodes, `expected` (2.71, 27.2, 223.6 and 1,794 here). The program's value is the mean of 40 draws, whose deviation
is not known: the tolerance is a tenth, or three deviations of as many draws as there are runs (8 nodes: 0.995 copies a draw, over
all 28 pairs of subscribers).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, sqrt
from typing import TYPE_CHECKING

from libweft.bench.papers.figure import Figure, Row, measured, number
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.papers.vcube_ps_setting import COPIES, KINDS, ONCE, PROGRAM, QUICK_RUNS, RUNS, SRPT, WANTS, Point, measure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DEVIATION = 0.995  # of one draw at 8 nodes, where it is the largest part of the mean
PAPER = {(8, 0.25): 2.7, (4_096, 0.25): 1_023 / (1 - 0.43)}  # "2.7 times more", "43% fewer"


def rows(lab: Lab) -> list[Row]:
    own, single = measure(lab)
    return [
        *(_own(point, [number(measures, "payload_messages") for measures in runs]) for point, runs in own.items()),
        *(_srpt(point, [number(measures, "single_root", "copies") for measures in runs]) for point, runs in single.items()),
    ]


def _own(point: Point, values: Sequence[float]) -> Row:
    return measured(_name("VCube-PS", point), _others(point), values, 0.0)


def _srpt(point: Point, values: Sequence[float]) -> Row:
    program = COPIES[SRPT.index(point)]
    room = 0.0 if point.share == 1.0 else max(ONCE * program, 3 * DEVIATION / sqrt(len(values)))
    return measured(_name("SRPT", point), PAPER.get((point.nodes, point.share)), values, room, program=program)


def expected(nodes: int, subscribers: int) -> float:
    """The mean number of nodes below the root with a subscriber in their part of the tree; the lowest bit is that part's size."""
    total = 0.0
    for node in range(1, nodes):
        part = node & -node
        total += 1 - comb(nodes - part, subscribers) / comb(nodes, subscribers)
    return total


def _name(system: str, point: Point) -> str:
    return f"{system}, PUB messages, {point.where}"


def _others(point: Point) -> float:
    return round(point.share * point.nodes) - 1


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    from libweft.bench.papers import picture

    named = {row.name: row for row in rows}
    for share in (1.0, 0.25):
        shown = [point for point in PROGRAM if point.share == share and _name("VCube-PS", point) in named]
        nodes = [float(point.nodes) for point in shown]
        picture.paper(axes, nodes, [_others(point) for point in shown], f"subscribers less one, {share:.0%} subscribe")
        picture.ours(axes, nodes, [named[_name("VCube-PS", point)] for point in shown])
        several = [point for point in SRPT if point.share == share and _name("SRPT", point) in named]
        picture.paper(
            axes, nodes, [COPIES[SRPT.index(point)] for point in several], f"authors' program, SRPT, {share:.0%} subscribe"
        )
        picture.ours(axes, nodes, [named[_name("SRPT", point)] for point in several])
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlabel("nodes")
    axes.set_ylabel("PUB messages")


FIGURE = Figure(kinds=KINDS, runs=RUNS, quick_runs=QUICK_RUNS, rows=rows, draw=draw, wants=WANTS)
