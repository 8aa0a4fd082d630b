"""vcube-ps.fig8a: 500 to 4,000 subscribers, sessions of 1, 30 and 60 minutes, against no churn at all.

120 virtual minutes at 500 and 1,000 subscribers and 30 above, where the paper has 120 for all. The paper: VCube-PS is at most
10 % slower than without churn, SRPT with 4,000 subscribers and sessions of a minute 3.56 times as slow, with 2.74 % false
positives. For what a session means see `libweft.bench.papers.vcube_ps_churn`; the rows "a second" are those of sessions of a
minute, for SHORT seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from libweft.bench.papers.figure import Figure, Row, measured
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.papers.vcube_ps_churn import MINUTE, PART, SRPT, VCUBE_PS, WANTS, Point, batches, latency, measure, strangers
from libweft.bench.papers.vcube_ps_setting import CHARGED, TIMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUBSCRIBERS = {500: (PART, 12), 1_000: (PART, 12), 2_000: (PART, 3), 4_000: (PART, 3)}  # seconds, and how often
QUICK = {30: (60.0, 1)}
LEFT = 46 / 4_000  # of the subscribers, a minute in the paper's words, with sessions of a minute
SESSIONS = (1, 30, 60)  # minutes
SHORT, QUICK_SHORT = 60.0, 10.0
SLOWER = 1.1
SLOWEST, FALSE = 3.56, 2.74


def named(lab: Lab) -> dict[str, Point]:
    found = {}
    for system in (VCUBE_PS, SRPT):
        for count, (seconds, runs) in (QUICK if lab.quick else SUBSCRIBERS).items():
            where = f"{system}, {count} subscribers"
            found[f"{where}, static"] = Point(system, count, 0.0, seconds, runs)
            for session in SESSIONS[:1] if lab.quick else SESSIONS:
                found[f"{where}, sessions of {session} min"] = Point(system, count, LEFT / session / MINUTE, seconds, runs)
            if count <= 1_000:
                found[f"{where}, {LEFT:.2%} a second"] = Point(system, count, LEFT, QUICK_SHORT if lab.quick else SHORT)
    return found


def rows(lab: Lab) -> list[Row]:
    points = named(lab)
    found = measure(lab, points.values())
    several = []
    for name, point in points.items():
        several.append(latency(name, found[point]))
        if point.swaps:
            still = fmean(batches(found[points[f"{point.system}, {point.subscribers} subscribers, static"]]))
            several.append(_slower(name, point, [value / still for value in batches(found[point])]))
            several.append(strangers(name, found[point], FALSE if _worst(name, point) else None))
    return several


def _slower(name: str, point: Point, values: Sequence[float]) -> Row:
    judged = point.system == VCUBE_PS and "session" in name
    paper = SLOWER if judged else SLOWEST if _worst(name, point) else None
    return measured(f"{name}: by static", paper, values, 0.0, "most" if judged else "no", costs=CHARGED)


def _worst(name: str, point: Point) -> bool:
    return point.system == SRPT and point.subscribers == max(SUBSCRIBERS) and name.endswith("sessions of 1 min")


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    from libweft.bench.papers import picture

    shown = [row for row in rows if row.name.endswith("mean (ms)")]
    places = [float(place) for place in range(len(shown))]
    picture.ours(axes, places, shown)
    axes.set_xticks(places, [row.name.removesuffix(": mean (ms)") for row in shown], rotation=75, ha="right", fontsize=6)
    axes.set_ylabel("ms to a subscriber, mean")


FIGURE = Figure(kinds=TIMES, runs=12, quick_runs=1, rows=rows, draw=draw, wants=WANTS)
