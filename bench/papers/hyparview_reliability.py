"""hyparview.reliability: how many of the survivors a message reaches, on average over 1,000 after a mass crash.

DSN 2007, section 5: after the crash 1,000 messages are flooded, one after the other and all before the next cycle, so all that
mends the overlay is that its nodes notice dead neighbours and turn to their passive views. The first messages reach few;
the mean is what it is because the later ones reach all. Here they are 2 s apart, a tenth of a cycle in all.
A tolerance is what weft asks of itself below the paper's value (read off its figure): better is no fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from libweft.bench.papers.figure import Figure, Row, measured, number
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.papers.hyparview_setting import NODES, by_crash, warmed
from libweft.bench.runs.scenario import Scenario, Workload
from libweft.peer.sim.faults import MassCrash
from libweft.peer.trace.kinds import DELIVER, JOINED, LEAVE, NODE_DOWN, PUBLISH

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUICK_NODES = 500
CYCLES = 10
MESSAGES, APART = 1_000, 2.0
PAPER = {0.1: 100.0, 0.3: 100.0, 0.5: 100.0, 0.6: 99.9, 0.7: 99.9, 0.8: 99.9, 0.9: 99.7, 0.95: 90.9}
QUICK = (0.5, 0.8, 0.9, 0.95)
BELOW = {0.1: 0.05, 0.3: 0.05, 0.5: 0.05, 0.6: 0.1, 0.7: 0.1, 0.8: 0.1, 0.9: 0.2, 0.95: 2.9}


def rows(lab: Lab) -> list[Row]:
    nodes, crashes = (QUICK_NODES, QUICK) if lab.quick else (NODES, tuple(PAPER))
    found = by_crash(lab, crashes, partial(scenario, nodes))
    shares = {crashed: [100 * number(measures, "reliability") for measures in found[crashed]] for crashed in crashes}
    return [
        measured(f"survivors reached, {crashed:.0%} crashed (%)", PAPER[crashed], shares[crashed], BELOW[crashed], "least")
        for crashed in crashes
    ]


def scenario(nodes: int, crashed: float, seed: int) -> Scenario:
    """The crash comes just before the first publish, at the same moment."""
    base = warmed(nodes, seed, CYCLES)
    return replace(base, workload=Workload(messages=MESSAGES, rate=1 / APART), faults=(MassCrash(at=base.warmup, share=crashed),))


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    from libweft.bench.papers import picture

    crashes = list(PAPER) if len(rows) == len(PAPER) else list(QUICK)
    picture.paper(axes, [100 * crashed for crashed in PAPER], list(PAPER.values()), "HyParView")
    picture.ours(axes, [100 * crashed for crashed in crashes], rows)
    axes.set_xlabel("nodes crashed at once (%)")
    axes.set_ylabel(f"survivors reached, mean of {MESSAGES:,} messages (%)")


FIGURE = Figure(kinds=(PUBLISH, DELIVER, JOINED, LEAVE, NODE_DOWN), runs=1, quick_runs=1, rows=rows, draw=draw)
