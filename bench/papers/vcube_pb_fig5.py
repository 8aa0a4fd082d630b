"""vcube-pb.fig5: how many messages causal order delays, at 25 and 50 % publishers.

A message counts if to one subscriber at least it was not delivered when it came. The paper's figure is known by its text alone:
few in small networks, near all in large ones at 50 %, and near the fixed tree's number. So these are judged: a third at most at
8 nodes; at 2,048 nine tenths at least with 50 %; and at every size no more than a quarter of all messages between the trees.

With 50 % the last is not met from 128 nodes on, and we do not see how it could be: in a fixed tree an answer goes to the root
when its publisher has the question, so it comes after the question by a hop and that publisher's depth, on the same way, and two
draws of U(10,20) a hop seldom make up for that. In trees of their own the two have different ways, of which the answer's may be
shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from libweft.bench.papers.figure import Figure, Measures, Row, measured
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.papers.vcube_pb_setting import KINDS, RUNS, SIZES, WANTS, Point, measure, sizes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHARES = (0.25, 0.5)
FEW, MANY, CLOSE = 1 / 3, 0.9, 0.25


def rows(lab: Lab) -> list[Row]:
    found, told = measure(lab, SHARES), []
    for share in SHARES:
        for nodes in sizes(lab):
            own, fixed = ([delayed(measures) for measures in found[Point(nodes, share, fixed)]] for fixed in (False, True))
            told.append(_judged(_name(nodes, share, "VCube-PB"), nodes, share, own))
            told.append(measured(_name(nodes, share, "a fixed tree"), None, fixed, 0.0, "no"))
            apart = abs(fmean(own) - fmean(fixed))
            told.append(Row(f"between the trees, {nodes} nodes, {share:.0%} publish", 0.0, apart, None, None, CLOSE, "most"))
    return told


def _judged(name: str, nodes: int, share: float, values: Sequence[float]) -> Row:
    if nodes == 8:
        return measured(name, FEW, values, 0.0, "most")
    if nodes == 2_048 and share == 0.5:
        return measured(name, MANY, values, 0.0, "least")
    return measured(name, None, values, 0.0, "no")


def delayed(measures: Measures) -> float:
    return fmean(message["held"] > 0 for message in measures["per_message"])


def _name(nodes: int, share: float, tree: str) -> str:
    return f"messages delayed, {tree}, {nodes} nodes, {share:.0%} publish"


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    from libweft.bench.papers import picture

    named = {row.name: row for row in rows}
    for share in SHARES:
        for tree in ("VCube-PB", "a fixed tree"):
            shown = [nodes for nodes in SIZES if _name(nodes, share, tree) in named]
            ours = [named[_name(nodes, share, tree)] for nodes in shown]
            if tree == "VCube-PB":
                picture.ours(axes, [float(nodes) for nodes in shown], ours)
            else:
                picture.paper(axes, [float(n) for n in shown], [row.ours for row in ours], f"fixed tree, {share:.0%} publish")
    axes.set_xscale("log", base=2)
    axes.set_xlabel("nodes")
    axes.set_ylabel("share of messages delayed by causal order")


FIGURE = Figure(kinds=KINDS, runs=RUNS, quick_runs=RUNS, rows=rows, draw=draw, wants=WANTS)
