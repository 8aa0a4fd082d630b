"""hyparview.healing: how many cycles it takes after a mass crash until messages reach all survivors again.

DSN 2007, section 5. One message is published before the crash, and one at the end of each cycle after it; the first of these
that reaches as large a share as the one before the crash ends the healing. The paper's values are read off its figure.

Where a survivor knows only dead peers, and no survivor knows it, no cycle brings it back, and healing never ends: `AFTER` and one
more are shown then. Of nodes that each know 35 others at random, about one in a thousand is in that state after a crash of 90 %;
therefore these nodes remember 30 more, that once were in their passive view (`faded`), which the paper has not.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from libweft.bench.papers.figure import Figure, Measures, Row, measured
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.papers.hyparview_setting import CYCLE, NODES, by_crash, warmed
from libweft.bench.runs.scenario import Scenario, Workload
from libweft.peer.sim.faults import MassCrash
from libweft.peer.trace.kinds import DELIVER, JOINED, LEAVE, NODE_DOWN, PUBLISH

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUICK_NODES = 500
CYCLES = 10
AFTER = 6  # cycles; who has not healed by then is shown as one more
PAPER = {0.1: 1, 0.3: 1, 0.5: 1, 0.6: 2, 0.7: 2, 0.8: 2, 0.9: 4}
QUICK = (0.5, 0.8, 0.9)
MORE = 1.0  # cycle than in the paper


def rows(lab: Lab) -> list[Row]:
    nodes, crashes = (QUICK_NODES, QUICK) if lab.quick else (NODES, tuple(PAPER))
    found = by_crash(lab, crashes, partial(scenario, nodes))
    return [
        measured(f"cycles to heal, {crashed:.0%} crashed", PAPER[crashed], [*map(healed, found[crashed])], MORE, "most")
        for crashed in crashes
    ]


def scenario(nodes: int, crashed: float, seed: int) -> Scenario:
    """The crash comes when the first message and its window are over."""
    base = warmed(nodes, seed, CYCLES)
    crash = MassCrash(at=base.warmup + 2 * base.window, share=crashed)
    return replace(base, workload=Workload(messages=AFTER + 1, rate=1 / CYCLE), faults=(crash,))


def healed(measures: Measures) -> int:
    before, *after = (message["reliability"] or 0.0 for message in measures["per_message"])
    return next((cycle for cycle, reached in enumerate(after, 1) if reached >= before), AFTER + 1)


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    from libweft.bench.papers import picture

    crashes = list(PAPER) if len(rows) == len(PAPER) else list(QUICK)
    picture.paper(axes, [100 * crashed for crashed in PAPER], list(PAPER.values()), "HyParView")
    picture.ours(axes, [100 * crashed for crashed in crashes], rows)
    axes.set_xlabel("nodes crashed at once (%)")
    axes.set_ylabel("cycles until a message reaches all survivors")


FIGURE = Figure(
    kinds=(PUBLISH, DELIVER, JOINED, LEAVE, NODE_DOWN), runs=1, quick_runs=1, rows=rows, draw=draw, wants=("messages", "alone")
)
