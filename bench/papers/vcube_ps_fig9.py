"""vcube-ps.fig9: SRPT with brokers, 4,096 nodes that all subscribe: VCube-PS, SRPT-S, and SRPT-B with 32, 256 and 2,048 brokers.

"Publishers are randomly chosen among the subscribers of the topic and send a new message on average every 500 u.t., up to 128
messages": how many publishers there are is not said, and the program's settings do not tell; so it is shown for several numbers,
each publishing every 500 units from a moment of its own, 128 messages in all. With few nothing ever waits; with as many as there
are messages all are published within 500 units. The program was run once with 128, of VCube-PS and SRPT-S alone: it simulates
brokers only, and adds what a broker's subscribers take. The paper says that VCube-PS takes 22 % less than SRPT-B with 256
brokers, and that a broker's subscribers take four times as long with 32 brokers as with the other two; for which number of
publishers that is cannot be known, so it is shown beside each of ours and not judged.

Why ours is not the program's: SRPT-S has a root that must send 12 copies of each of 128 messages, 1,536 units of work. Where they
come within S units each waits (1,536 - S) / 2 in the mean, so with 733 units without a wait it is 1,251 for the S = 500 said
above; the program's 1,475 is that of S = 50, messages that come nearly at once. VCube-PS has a gate: who publishes again before
all have acknowledged waits, two tree heights or 2,500 units, so only where each publishes once does it take 637. And a broker
here has one queue: copies for its subscribers hold up the next message's copies in the tree, which the program keeps apart, so
with 32 brokers it is the tree that is slow, and not B-S.

Of SRPT-B the tree is the mean time to brokers, and B-S what the others take beyond that. Brokers serve the tree first.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from libweft.bench.papers.figure import Figure, Measures, Row, measured, number
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.papers.vcube_ps_setting import CHARGED, FREE, ONCE, TIMES, measured_at, srpt, vcube_ps
from libweft.bench.runs.scenario import Scenario, Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NODES, MESSAGES, EVERY = 4_096, 128, 0.5
QUICK_NODES, QUICK_MESSAGES = 256, 8
RUNS, QUICK_RUNS = 3, 1
PUBLISHERS, QUICK_PUBLISHERS = (1, 32, 128), (1, 8)
GROUPS = (128, 16, 2)  # places that share a broker
OWN, SINGLE = -1, 0  # in the place of a group
PROGRAM = {OWN: 637.0, SINGLE: 1_475.0}  # 128 publishers


class Point(NamedTuple):
    group: int
    publishers: int
    nodes: int
    messages: int

    @property
    def system(self) -> str:
        return {OWN: "VCube-PS", SINGLE: "SRPT-S"}.get(self.group) or f"SRPT-B, {self.nodes // self.group} brokers"

    @property
    def costs(self) -> str:
        return CHARGED if self.group == OWN else FREE


def points(lab: Lab) -> list[Point]:
    nodes, messages, several = (QUICK_NODES, QUICK_MESSAGES, QUICK_PUBLISHERS) if lab.quick else (NODES, MESSAGES, PUBLISHERS)
    return [Point(group, publishers, nodes, messages) for publishers in several for group in (OWN, SINGLE, *GROUPS)]


def scenario(point: Point, seed: int) -> Scenario:
    rate = point.publishers / EVERY
    work = Workload(publishers=point.publishers, messages=point.messages, rate=rate, arrivals="phased")
    if point.group == OWN:
        return vcube_ps(point.nodes, seed, work, window=30.0)
    return srpt(point.nodes, seed, work, group=point.group, window=30.0)


def rows(lab: Lab) -> list[Row]:
    found: list[Row] = []
    means: dict[Point, list[float]] = {}
    parts: dict[Point, list[float]] = {}
    for point, runs in measured_at(lab, points(lab), scenario).items():
        means[point] = [number(measures, "single_root", "mean_ms") for measures in runs]
        program = PROGRAM.get(point.group) if point.publishers == 128 else None
        found.append(measured(_name(point), None, means[point], ONCE * (program or 0.0), program=program, costs=point.costs))
        if point.group > 0:
            trees, parts[point] = zip(*(_split(measures, point.group) for measures in runs), strict=True)  # type: ignore[assignment]
            found.append(measured(f"{_name(point)}, tree", None, trees, 0.0, costs=point.costs))
            found.append(measured(f"{_name(point)}, B-S", None, parts[point], 0.0, costs=point.costs))
    return [*found, *_ratios(means, parts)]


def _split(measures: Measures, group: int) -> tuple[float, float]:
    timed = [(each["node"], each["mean_ms"]) for each in measures["per_node"]]
    tree = fmean(mean for node, mean in timed if node % group == 0)
    return tree, fmean(mean for node, mean in timed if node % group) - tree


def _ratios(means: dict[Point, list[float]], parts: dict[Point, list[float]]) -> list[Row]:
    several = []
    for own in [point for point in means if point.group == OWN]:
        middle, few = own._replace(group=GROUPS[1]), own._replace(group=GROUPS[0])
        less = [a / b for a, b in zip(means[own], means[middle], strict=True)]
        several.append(measured(f"VCube-PS / {_name(middle)}", 0.78, less, 0.0, "no"))
        longer = [a / b for a, b in zip(parts[few], parts[middle], strict=True)]
        several.append(measured(f"B-S, {few.system} / {_name(middle)}", 4.0, longer, 0.0, "no"))
    return several


def _name(point: Point) -> str:
    return f"{point.system}, publishers {point.publishers}"


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    from libweft.bench.papers import picture

    shown = [row for row in rows if row.name.partition("publishers ")[2].isdigit() and " / " not in row.name]
    places = [float(place) for place in range(len(shown))]
    picture.paper(axes, places, [row.program for row in shown], "authors' program")
    picture.ours(axes, places, shown)
    axes.set_xticks(places, [row.name for row in shown], rotation=30, ha="right", fontsize=6)
    axes.set_ylabel("units of time to a subscriber, mean")


FIGURE = Figure(kinds=TIMES, runs=RUNS, quick_runs=QUICK_RUNS, rows=rows, draw=draw, wants=("single_root", "nodes", "alone"))
