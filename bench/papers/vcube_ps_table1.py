"""vcube-ps.table1: how long the send queues of nodes are, 1,024 nodes of which each publishes once within 1,000 units.

The length is taken when a copy of a tree comes to the queue, that copy included; the mean of a node puts it in one of the paper's
bins, and a node that never sends in the first. The step to SRPT's root is no copy of a tree. The paper's table fits free ACKs
only: where they are charged every queue of VCube-PS is longer than 32. Its text gives SRPT's root "9240 (4617)", which looks like
the largest and the mean length, 9,231 and 4,625 in the program. The program was run twice for VCube-PS and once for SRPT: a
number of nodes may differ by a tenth, by as much as those two runs do, or by two deviations of a count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING

from libweft.bench.papers.figure import Figure, Measures, Row, measured
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.papers.vcube_ps_fig5 import SRPT, VCUBE_PS, Point, scenario
from libweft.bench.papers.vcube_ps_setting import CHARGED, FREE, ONCE, RUNS, measured_at
from libweft.peer.trace.kinds import DUPLICATE, PUBLISH, QUEUE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NODES, QUICK_NODES = 1_024, 128
QUICK_RUNS = 1
BINS = (0, 2, 4, 8, 16, 32)
NAMES = ("0", "(0,2]", "(2,4]", "(4,8]", "(8,16]", "(16,32]", "more")

Counts = tuple[float | None, ...]
NOT_RUN: Counts = (None,) * len(NAMES)
PAPER: dict[tuple[str, str], Counts] = {
    (VCUBE_PS, FREE): (0, 0, 0, 495, 510, 19, 0),
    (VCUBE_PS, CHARGED): NOT_RUN,
    (SRPT, FREE): (512, 448, 60, 3, 0, 0, 1),
}
PROGRAM: dict[tuple[str, str], Counts] = {
    (VCUBE_PS, FREE): (0, 0, 0, 423, 540, 60.5, 0.5),
    (VCUBE_PS, CHARGED): (0, 0, 0, 0, 0, 0, 1_024),
    (SRPT, FREE): (512, 444, 62, 5, 0, 0, 1),
}
APART = {(VCUBE_PS, FREE): (0, 0, 0, 40, 56, 15, 1)}  # between the program's two runs
ROOT = 4_625.0


def rows(lab: Lab) -> list[Row]:
    nodes = QUICK_NODES if lab.quick else NODES
    points = [Point(system, costs, nodes, 1.0, 100.0) for system, costs in PROGRAM]
    found: list[Row] = []
    for point, runs in measured_at(lab, points, scenario).items():
        found += _rows(point, runs, judged=not lab.quick)
        if point.system == SRPT:
            mean = [max(each["queue"] for each in measures["queues"]) for measures in runs]
            program = None if lab.quick else ROOT
            found.append(measured("SRPT, the root, mean", None, mean, ONCE * ROOT, program=program, costs=point.costs))
    return found


def _rows(point: Point, runs: Sequence[Measures], judged: bool) -> list[Row]:
    key = (point.system, point.costs)
    counted = [_binned(measures, point.nodes) for measures in runs]
    several = []
    for place, name in enumerate(NAMES):
        paper, program = (PAPER[key][place], PROGRAM[key][place]) if judged else (None, None)
        apart = APART.get(key, (0,) * len(NAMES))[place]
        room = max(ONCE * program, apart, 2 * sqrt(program)) if program is not None else 0.0
        values = [float(counts[place]) for counts in counted]
        several.append(measured(f"{point.system}, nodes with {name}", paper, values, room, program=program, costs=point.costs))
    return several


def _binned(measures: Measures, nodes: int) -> Counter[int]:
    queues = [each["queue"] for each in measures["queues"]]
    counts = Counter(sum(queue > limit for limit in BINS) for queue in queues)
    counts[0] += nodes - len(queues)
    return counts


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    from libweft.bench.papers import picture

    shown = [row for row in rows if row.name.startswith(VCUBE_PS) and row.costs == FREE]
    places = [float(place) for place in range(len(shown))]
    picture.paper(axes, places, [row.paper for row in shown], "paper, VCube-PS")
    picture.ours(axes, places, shown)
    axes.set_xticks(places, NAMES)
    axes.set_xlabel("mean length of the send queue")
    axes.set_ylabel("nodes")


KINDS = (PUBLISH, DUPLICATE, QUEUE)  # a duplicate tells that the step before it was to the root
FIGURE = Figure(kinds=KINDS, runs=RUNS, quick_runs=QUICK_RUNS, rows=rows, draw=draw, wants=("queues", "alone"))
