"""vcube-ps.fig5: how long messages take where all nodes, or a quarter, publish one each within 1,000 units, and all subscribe.

Figure 5a has t_pp = 100, Figure 5b t_pp = 1,000. In VCube-PS the load is spread over the publishers; SRPT's root must send log2 N
copies of each message, so beyond 128 nodes more comes in than goes out. The program was run at t_pp = 100 up to 1,024 nodes, once
but for SRPT at 256. With 100 % publishers the paper says that VCube-PS takes at most 38.8 % more than with 25 % (4,096 nodes).
Its own cost model cannot give that: each node has about N copies to send within 1,000 units, and with each copy's ACK twice as
many; so `costs` has both, and beyond 1,024 nodes (2,048; at 4,096 a run has 17 million copies) nothing is judged. For Figure 5b
the paper gives no number but says that the ratio narrows, which the last row shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import TYPE_CHECKING, NamedTuple

from libweft.bench.papers.figure import Figure, Judged, Row, measured, number
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.papers.vcube_ps_setting import (
    CHARGED,
    FREE,
    ONCE,
    RUNS,
    TIMES,
    measured_at,
    runs_of,
    srpt,
    tolerance,
    vcube_ps,
)
from libweft.bench.runs.scenario import Scenario, Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VCUBE_PS, SRPT = "VCube-PS", "SRPT"
SYSTEMS = ((VCUBE_PS, CHARGED), (VCUBE_PS, FREE), (SRPT, FREE))
SHARES = (0.25, 1.0)
QUICK_RUNS = 1
RISE, RATIO = 0.388, 2.48  # of the paper


class Point(NamedTuple):
    system: str
    costs: str
    nodes: int
    share: float
    t_pp: float

    @property
    def name(self) -> str:
        return f"{self.system}, {self.nodes} nodes, {self.share:.0%} publish, t_pp {self.t_pp:g}"

    @property
    def messages(self) -> int:
        return round(self.share * self.nodes)


PROGRAM: dict[tuple[str, str, int, float], float] = {
    (VCUBE_PS, CHARGED, 64, 0.25): 312.5,
    (VCUBE_PS, CHARGED, 64, 1.0): 312.7,
    (VCUBE_PS, CHARGED, 256, 0.25): 416.0,
    (VCUBE_PS, CHARGED, 256, 1.0): 417.7,
    (VCUBE_PS, CHARGED, 1_024, 0.25): 525.6,
    (VCUBE_PS, CHARGED, 1_024, 1.0): 765.1,
    (VCUBE_PS, FREE, 1_024, 1.0): 556.6,
    (SRPT, FREE, 64, 0.25): 412.8,
    (SRPT, FREE, 64, 1.0): 414.4,
    (SRPT, FREE, 256, 0.25): 520.0,
    (SRPT, FREE, 256, 1.0): 1_038.6,
    (SRPT, FREE, 1_024, 0.25): 1_388.0,
    (SRPT, FREE, 1_024, 1.0): 5_224.0,
}
DEVIATIONS = {(SRPT, FREE, 256, 1.0): 16.9}


def points(lab: Lab) -> list[Point]:
    if lab.quick:
        small = [Point(system, costs, 64, share, 100.0) for system, costs in SYSTEMS for share in SHARES]
        return [*small, *(Point(system, costs, 256, 1.0, 100.0) for system, costs in (SYSTEMS[0], SYSTEMS[2]))]
    return [
        Point(system, costs, nodes, share, t_pp)
        for t_pp, several in ((100.0, (64, 256, 1_024, 2_048)), (1_000.0, (64, 256, 1_024)))
        for nodes in several
        for system, costs in SYSTEMS
        for share in SHARES
    ]


def scenario(point: Point, seed: int) -> Scenario:
    """Each publisher once: the interval at which one would publish again is the 1,000 units themselves."""
    work = Workload(publishers=point.share, messages=point.messages, rate=float(point.messages), arrivals="phased")
    window = 5.0 + 0.02 * point.t_pp + 1.5 * point.messages * log2(point.nodes) / 1_000
    if point.system == VCUBE_PS:
        return vcube_ps(point.nodes, seed, work, free=point.costs == FREE, t_pp=point.t_pp, window=window)
    return srpt(point.nodes, seed, work, t_pp=point.t_pp, window=window)


def rows(lab: Lab) -> list[Row]:
    measures = measured_at(lab, points(lab), scenario, lambda point: runs_of(point.nodes))
    found = {point: [number(each, "single_root", "mean_ms") for each in runs] for point, runs in measures.items()}
    return [*(_row(point, values) for point, values in found.items()), *_ratios(found)]


def _row(point: Point, values: Sequence[float]) -> Row:
    key = (point.system, point.costs, point.nodes, point.share)
    program = PROGRAM.get(key) if point.t_pp == 100.0 else None
    room = 0.0
    if program is not None:
        room = tolerance(program, DEVIATIONS[key]) if key in DEVIATIONS else ONCE * program
    return measured(point.name, None, values, room, program=program, costs=point.costs)


def _ratios(found: dict[Point, list[float]]) -> list[Row]:
    def quotient(name: str, above: Point, below: Point, paper: float | None, program: float | None, less: float = 0.0) -> Row:
        values = [a / b - less for a, b in zip(found[above], found[below], strict=True)]
        judged: Judged = "no" if program is None else "near"
        room = 0.1 if less else ONCE * (program or 0.0)
        return measured(name, paper, values, room, judged, program=program, costs=above.costs)

    several = []
    for costs, programs in ((CHARGED, {1_024: 0.46}), (FREE, {1_024: 0.06})):
        for nodes in (1_024, 2_048):
            most, few = (Point(VCUBE_PS, costs, nodes, share, 100.0) for share in (1.0, 0.25))
            if most in found:
                name, paper = f"VCube-PS, {nodes} nodes, rise from 25% to 100%", RISE if nodes == 2_048 else None
                several.append(quotient(name, most, few, paper, programs.get(nodes), 1.0))
    for t_pp in (100.0, 1_000.0):
        above, below = Point(SRPT, FREE, 256, 1.0, t_pp), Point(VCUBE_PS, CHARGED, 256, 1.0, t_pp)
        near = t_pp == 100.0
        name = f"SRPT / VCube-PS, 256 nodes, 100% publish, t_pp {t_pp:g}"
        if above in found:
            several.append(quotient(name, above, below, RATIO if near else None, 2.49 if near else None))
    return several


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    from libweft.bench.papers import picture

    named = {(row.name, row.costs): row for row in rows}
    for system, costs in SYSTEMS:
        for share in SHARES:
            keys = [Point(system, costs, nodes, share, 100.0) for nodes in (64, 256, 1_024, 2_048)]
            shown = [point for point in keys if (point.name, costs) in named]
            nodes = [float(point.nodes) for point in shown]
            known = [named[point.name, costs].program for point in shown]
            picture.paper(axes, nodes, known, f"authors' program, {system}, {share:.0%} publish, {costs}")
            picture.ours(axes, nodes, [named[point.name, costs] for point in shown])
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlabel("nodes")
    axes.set_ylabel("units of time to a subscriber, mean, t_pp 100")


FIGURE = Figure(kinds=TIMES, runs=RUNS, quick_runs=QUICK_RUNS, rows=rows, draw=draw, wants=("single_root", "alone"))
