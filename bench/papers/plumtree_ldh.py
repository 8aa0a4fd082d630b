"""plumtree.ldh: the last delivery hop when the tree has settled.

SRDS 2007, the evaluation: one message a cycle, from one sender or from a random one each. The tree begins with the first
message after the joins, when views are not yet full, and grows with the overlay. The optimisation's threshold is 3 for one
sender and 7 for many. The latency here is 50 ms a hop, for every hop: the paper's simulator has none, so a first copy is
always one by the shortest way, and by draws of their own for each copy it would not be.

The tree of many senders without the optimisation is shown and not judged: it is 59 hops deep in the paper, which leaves open
how it came to be so deep. The first message builds a tree of shortest ways from its sender; what makes it deeper is only
what repairs and new links do to it later.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from libweft.bench.papers.figure import Figure, Measures, Row, measured, number
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.papers.hyparview_setting import CYCLE, NODES, OVERLAY, warmed
from libweft.bench.papers.plumtree_rmr import SETTLE
from libweft.bench.runs.scenario import Scenario, Workload
from libweft.peer.sim.latency import Constant
from libweft.peer.trace.kinds import DELIVER, JOINED, LEAVE, NODE_DOWN, PUBLISH

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Case(NamedTuple):
    name: str
    stack: str
    publishers: int | float
    threshold: int
    paper: float
    judged: bool


CASES = (
    Case("flood, one sender", "hyparview/flood", 1, 0, 8.65, True),
    Case("one sender", "hyparview/plumtree", 1, 0, 10.0, True),
    Case("one sender, optimised", "hyparview/plumtree", 1, 3, 8.3, True),
    Case("many senders, optimised", "hyparview/plumtree", 1.0, 7, 17.0, True),
    Case("many senders", "hyparview/plumtree", 1.0, 0, 59.0, False),
)
QUICK_NODES = 500
MESSAGES, LAST = 40, 10  # the settled ones: with many senders the optimisation goes on for about 30
NEAR = 0.15
SHALLOWER = 0.75  # with a twentieth of the nodes the depth of a random 5-regular graph falls by log 20 / log 4, from 8.65


def rows(lab: Lab) -> list[Row]:
    nodes, scale = (QUICK_NODES, SHALLOWER) if lab.quick else (NODES, 1.0)
    asked = [(case, seed) for case in CASES for seed in lab.seeds]
    found = lab.measure([scenario(nodes, case, seed) for case, seed in asked])
    depths: dict[str, list[float]] = {case.name: [] for case in CASES}
    for (case, _), measures in zip(asked, found, strict=True):
        depths[case.name].append(depth(measures))
    return [
        measured(
            f"last delivery hop, {case.name}",
            scale * case.paper,
            depths[case.name],
            (NEAR if not lab.quick else 2 * NEAR) * scale * case.paper,
            "near" if case.judged else "no",
        )
        for case in CASES
    ]


def scenario(nodes: int, case: Case, seed: int) -> Scenario:
    base = warmed(nodes, seed, SETTLE, case.stack)
    return replace(
        base,
        latency=Constant(ms=50.0),
        overlay={**OVERLAY, "refill_at_once": False},
        router={"threshold": case.threshold} if case.stack.endswith("plumtree") else {},
        workload=Workload(messages=MESSAGES, rate=1 / CYCLE, publishers=case.publishers),
    )


def depth(measures: Measures) -> float:
    return fmean(number(message, "ldh") for message in measures["per_message"][-LAST:])


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    from libweft.bench.papers import picture

    places = range(len(rows))
    picture.paper(axes, places, [row.paper for row in rows], "Plumtree")
    picture.ours(axes, places, rows)
    axes.set_xticks(places, [case.name.replace(", ", ",\n").replace("many ", "many\n") for case in CASES])
    axes.set_ylabel("last delivery hop")


FIGURE = Figure(
    kinds=(PUBLISH, DELIVER, JOINED, LEAVE, NODE_DOWN), runs=1, quick_runs=1, rows=rows, draw=draw, wants=("messages", "alone")
)
