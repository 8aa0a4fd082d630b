"""plumtree.rmr: what the first messages after the joins cost, in copies beyond the one that each node needs.

SRDS 2007, the evaluation: one message a cycle from one sender, the first when all have joined and no cycle has passed. A
flood's RMR is the mean degree less 2, so the paper's first value, 2.03, says that its views were not full then: in its
algorithm a node that is sent DISCONNECT waits for the next cycle before it looks for another neighbour, and so do the nodes
here (`refill_at_once`). What Plumtree pays is what the flood's RMR has grown by since the last message: links that are new
are eager, and each carries one copy that is not needed and is pruned after it.

The tolerance of the first two is for the degree after the joins, which hangs on how walks end and on what is under way at a
time; their sum, the degree after one cycle less 2, has a closer one of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from libweft.bench.papers.figure import Figure, Measures, Row, measured, number
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.papers.hyparview_setting import CYCLE, NODES, OVERLAY, warmed
from libweft.bench.runs.scenario import Scenario, Workload
from libweft.peer.sim.latency import Constant
from libweft.peer.trace.kinds import DELIVER, DROP, JOINED, LEAVE, NODE_DOWN, PUBLISH, RECEIVE, SEND

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUICK_NODES = 1_000
SETTLE = 0.001  # of a cycle: the last joins are over
PLUMTREE = (2.03, 0.89, 0.04, 0.017, 0.009, 0.006)
FLOOD = (2.03, 2.90, 2.94, 2.96)
NEAR = (0.3, 0.3, 0.04, 0.04, 0.04, 0.04)
WIDER = 2.0  # with a tenth of the nodes: the third message of a flood has 2.88 to 2.92 in three seeds
MESSAGES = len(PLUMTREE)


def rows(lab: Lab) -> list[Row]:
    nodes, wider = (QUICK_NODES, WIDER) if lab.quick else (NODES, 1.0)
    stacks = [stack for stack in ("hyparview/plumtree", "hyparview/flood") for _ in lab.seeds]
    found = lab.measure([scenario(nodes, stack, seed) for stack, seed in zip(stacks, 2 * lab.seeds, strict=True)])
    tree, flood = found[: len(lab.seeds)], found[len(lab.seeds) :]
    return [
        *(_row("Plumtree", place, paper, tree, wider) for place, paper in enumerate(PLUMTREE)),
        *(_row("flood", place, paper, flood, wider) for place, paper in enumerate(FLOOD)),
        measured("RMR, Plumtree, messages 1 and 2 together", sum(PLUMTREE[:2]), [_rmr(m, 0) + _rmr(m, 1) for m in tree], 0.1),
    ]


def _row(name: str, place: int, paper: float, found: Sequence[Measures], wider: float) -> Row:
    values = [_rmr(measures, place) for measures in found]
    return measured(f"RMR, {name}, message {place + 1}", paper, values, wider * NEAR[place])


def _rmr(measures: Measures, place: int) -> float:
    return number(measures["per_message"][place], "rmr")


def scenario(nodes: int, stack: str, seed: int) -> Scenario:
    base = warmed(nodes, seed, SETTLE, stack)
    return replace(
        base,
        latency=Constant(ms=50.0),
        overlay={**OVERLAY, "refill_at_once": False},
        workload=Workload(messages=MESSAGES, rate=1 / CYCLE, publishers=1),
    )


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    from libweft.bench.papers import picture

    for paper, name in ((PLUMTREE, "Plumtree"), (FLOOD, "flood")):
        picture.paper(axes, range(1, len(paper) + 1), paper, name)
    picture.ours(axes, range(1, MESSAGES + 1), rows[:MESSAGES])
    picture.ours(axes, range(1, len(FLOOD) + 1), rows[MESSAGES : MESSAGES + len(FLOOD)])
    axes.set_xlabel("message, one a cycle from the end of the joins")
    axes.set_ylabel("RMR")


FIGURE = Figure(
    kinds=(PUBLISH, SEND, DROP, RECEIVE, DELIVER, JOINED, LEAVE, NODE_DOWN),
    runs=1,
    quick_runs=1,
    rows=rows,
    draw=draw,
    wants=("messages", "alone"),
)
