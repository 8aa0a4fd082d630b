"""plumtree.crash: what messages cost after a mass crash, while the overlay and then the tree mend.

SRDS 2007, the evaluation: one message a cycle, here from a random node each, since one sender might crash. The first after
the crash, of cycle 0, finds what is left of the tree and grafts the rest of what is connected; nobody has made new links
yet, so here a crash is noticed only when this message is over. Then HyParView fills its views: the new links are all eager,
and the message of cycle 1 floods them. Later ones prune the rest.

Copies to those who are down are left out, since nobody is there to receive them: RMR here is what came twice, by what came.

The paper's values are read off its figure; where its curves differ, their middle stands here. The tolerance is 20 % of the
value, and 0.06 at least. In cycle 1 ours must be near: so much is new. In the others less is no fault, and less it is:
grafts that were not needed are undone here, and views are full again before cycle 2, where the paper's go on filling.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from libweft.bench.papers.figure import Figure, Measures, Row, measured, number
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.papers.hyparview_setting import CYCLE, NODES, NOTICED, by_crash, warmed
from libweft.bench.runs.scenario import Network, Scenario, Workload
from libweft.peer.sim.faults import MassCrash
from libweft.peer.sim.latency import Constant
from libweft.peer.trace.kinds import DELIVER, DUPLICATE, JOINED, LEAVE, NODE_DOWN, PUBLISH, RECEIVE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUICK_NODES = 500
CYCLES = 5
BEFORE = 5  # messages, which build the tree
LATE = 60.0  # seconds until a crash is noticed; the first message and all its grafts take less
PAPER = {0.4: (0.20, 1.88, 0.05, 0.01, 0.005), 0.6: (0.045, 2.4, 0.12, 0.02, 0.01), 0.8: (0.0, 1.975, 0.36, 0.04, 0.02)}
NEAR, LEAST = 0.2, 0.06
PAPER_S_OWN: dict[str, bool | int | float | str] = {"summary": False}  # no anti-entropy, which would spread the first later


def rows(lab: Lab) -> list[Row]:
    nodes = QUICK_NODES if lab.quick else NODES
    found = by_crash(lab, PAPER, partial(scenario, nodes))
    return [
        _row(crashed, cycle, paper, found[crashed]) for crashed, values in PAPER.items() for cycle, paper in enumerate(values)
    ]


def _row(crashed: float, cycle: int, paper: float, found: Sequence[Measures]) -> Row:
    values = [number(measures["per_message"][BEFORE + cycle], "duplicates") for measures in found]
    judged: Literal["near", "most"] = "near" if cycle == 1 else "most"
    return measured(f"RMR, {crashed:.0%} crashed, cycle {cycle}", paper, values, max(NEAR * paper, LEAST), judged)


def scenario(nodes: int, crashed: float, seed: int) -> Scenario:
    """The crash comes just before the message of the same moment."""
    base = warmed(nodes, seed, CYCLES, "hyparview/plumtree")
    return replace(
        base,
        latency=Constant(ms=50.0),
        network=Network(detection=LATE, dial_timeout=NOTICED),
        router=PAPER_S_OWN,
        workload=Workload(messages=BEFORE + len(PAPER[crashed]), rate=1 / CYCLE),
        faults=(MassCrash(at=base.warmup + BEFORE * CYCLE, share=crashed),),
    )


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    from libweft.bench.papers import picture

    for place, (crashed, values) in enumerate(PAPER.items()):
        picture.paper(axes, range(len(values)), values, f"{crashed:.0%} crashed")
        picture.ours(axes, range(len(values)), rows[place * len(values) : (place + 1) * len(values)])
    axes.set_xlabel("cycles after the crash")
    axes.set_ylabel("RMR")


FIGURE = Figure(
    kinds=(PUBLISH, RECEIVE, DUPLICATE, DELIVER, JOINED, LEAVE, NODE_DOWN),
    runs=3,  # as in the paper: at 60 % one sender of six is cut off, and reaches nobody in cycle 0
    quick_runs=1,
    rows=rows,
    draw=draw,
    wants=("messages", "alone"),
)
