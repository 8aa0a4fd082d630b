"""vcube-ps.fig4a: how long a message takes to a subscriber, one publisher and one message, against the number of nodes.

The tolerance of a mean is one hundredth, for a unit that the program adds or not, and three deviations of as many runs as there
are; the program's own deviation between runs is known for the mean alone, so the last subscriber is judged only where all
subscribe, and there it hardly varies. The paper gives one number, at 4,096 nodes, to be met within 5 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING

from bench.papers.figure import Figure, Lab, Row, measured, number
from bench.papers.vcube_ps_setting import KINDS, PROGRAM, QUICK_RUNS, RUNS, measure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAPER = 533.0  # 4,096 nodes, a quarter of which subscribe
SHARES = (1.0, 0.25)


def rows(lab: Lab) -> list[Row]:
    found = []
    for point, runs in measure(lab).items():
        means = [number(measures, "latency_ms", "mean") for measures in runs]
        lasts = [number(measures, "last_ms") for measures in runs]
        where = f"{point.nodes} nodes, {point.share:.0%} subscribe"
        tolerance = 0.01 * point.mean + 3 * point.deviation / sqrt(len(runs))
        found.append(measured(f"mean, {where}", point.mean, means, tolerance))
        judged = point.share == 1.0
        found.append(measured(f"last, {where}", point.last, lasts, 0.01 * point.last, "near" if judged else "no"))
        if (point.nodes, point.share) == (4_096, 0.25):
            found.append(measured(f"mean, {where}, the paper's own value", PAPER, means, 0.05 * PAPER))
    return found


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    from bench.papers import picture

    for share in SHARES:
        points = [point for point in PROGRAM if point.share == share]
        named = {row.name: row for row in rows}
        ours = [named.get(f"mean, {point.nodes} nodes, {point.share:.0%} subscribe") for point in points]
        shown = [(point, row) for point, row in zip(points, ours, strict=True) if row is not None]
        nodes = [float(point.nodes) for point, _ in shown]
        picture.paper(axes, nodes, [point.mean for point, _ in shown], f"authors' program, {share:.0%} subscribe")
        picture.ours(axes, nodes, [row for _, row in shown])
    axes.set_xscale("log", base=2)
    axes.set_xlabel("nodes")
    axes.set_ylabel("units of time to a subscriber, mean")


FIGURE = Figure(kinds=KINDS, runs=RUNS, quick_runs=QUICK_RUNS, rows=rows, draw=draw)
