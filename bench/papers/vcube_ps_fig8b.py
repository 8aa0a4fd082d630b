"""vcube-ps.fig8b: 1,000 subscribers, of whom 1 to 10 % are replaced a minute, for 120 virtual minutes.

The paper: over that range VCube-PS becomes 2.55 times as slow, 2.2 % of what is received are false positives, and a copy waits
28.4 ms in a queue; in SRPT it waits 468 ms at 5 % and 10 s at 10 %. For why none of that can come of such rates see
`libweft.bench.papers.vcube_ps_churn`; the rows "a second" have the same shares a second, for SHORT seconds, and the paper's
values stand beside both. How long a copy waits is how many wait before it, itself included: each takes a unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from libweft.bench.papers.figure import Figure, Measures, Row, measured
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.papers.vcube_ps_churn import MINUTE, PART, SRPT, VCUBE_PS, WANTS, Point, batches, latency, measure, strangers
from libweft.bench.papers.vcube_ps_setting import CHARGED, TIMES
from libweft.peer.trace.kinds import QUEUE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUBSCRIBERS, QUICK_SUBSCRIBERS = 1_000, 30
RUNS = 12  # of PART each
QUICK_SECONDS = 30.0
SHORT, QUICK_SHORT = 20.0, 5.0
SHARES = (0.01, 0.025, 0.05, 0.075, 0.1)
ENDS = (0.01, 0.1)
GROWTH, FALSE = 2.55, 2.2
WAITS = {(VCUBE_PS, 0.01): 28.4, (VCUBE_PS, 0.1): 28.4, (SRPT, 0.05): 468.0, (SRPT, 0.1): 10_000.0}


def named(lab: Lab) -> dict[str, Point]:
    count = QUICK_SUBSCRIBERS if lab.quick else SUBSCRIBERS
    seconds, short = (QUICK_SECONDS, QUICK_SHORT) if lab.quick else (PART, SHORT)
    found = {}
    for system in (VCUBE_PS, SRPT):
        for share in ENDS if lab.quick else SHARES:
            found[f"{system}, {share:.1%} a minute"] = Point(system, count, share / MINUTE, seconds, RUNS)
        for share in ENDS:
            found[f"{system}, {share:.1%} a second"] = Point(system, count, share, short)
    return found


def rows(lab: Lab) -> list[Row]:
    points = named(lab)
    found = measure(lab, points.values())
    several = []
    for name, point in points.items():
        share = next(share for share in SHARES if f" {share:.1%} " in name)
        several.append(latency(name, found[point]))
        several.append(strangers(name, found[point], FALSE if point.system == VCUBE_PS else None))
        waits = [fmean(_waits(each)) for each in found[point]]
        several.append(measured(f"{name}: in a queue (ms)", WAITS.get((point.system, share)), waits, 0.0, "no", costs=CHARGED))
    for system in (VCUBE_PS, SRPT):
        for unit in ("minute", "second"):
            least, most = (batches(found[points[f"{system}, {share:.1%} a {unit}"]]) for share in ENDS)
            paper = GROWTH if system == VCUBE_PS else None
            values = [value / fmean(least) for value in most]
            several.append(measured(f"{system}, from 1 to 10 % a {unit}: times", paper, values, 0.0, "no", costs=CHARGED))
    return several


def _waits(measures: Measures) -> list[float]:
    """Of the nodes that sent anything."""
    return [each["queue"] for each in measures["queues"]]


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    from libweft.bench.papers import picture

    shown = [row for row in rows if row.name.endswith("mean (ms)")]
    places = [float(place) for place in range(len(shown))]
    picture.ours(axes, places, shown)
    axes.set_xticks(places, [row.name.removesuffix(": mean (ms)") for row in shown], rotation=60, ha="right", fontsize=7)
    axes.set_ylabel("ms to a subscriber, mean")


FIGURE = Figure(kinds=(*TIMES, QUEUE), runs=RUNS, quick_runs=1, rows=rows, draw=draw, wants=(*WANTS, "queues"))
