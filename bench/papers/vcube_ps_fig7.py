"""vcube-ps.fig7: many topics, some of them popular: 256 nodes, 128 topics, all subscribe to all.

Each node publishes every 500 units from a moment of its own, each time to a topic that is drawn: all alike, or by Zipf's law with
1/rank^0.825. The program was run once, with 2^12 messages; the paper has 2^14, and says by how much Zipf's law is slower: 30.6 %
for SRPT and 9.2 % for VCube-PS, to be met within a tenth of the whole.

SRPT has a root for each topic. The program has such roots and does not call them, so how it places them is not known; here the
root of topic k is node k, which gives each node the same work. Much hangs on that, since nodes have as much to do as they can:
with 2^12 messages one run takes 675 units, by Zipf's law 850; with roots where the hashes of topics fall 832 and 1,040, and with
the root of k at node 2k, which leaves odd nodes nothing to hand on, about 2,500 by either.

512 messages a second come to 510 copies a second for each node to send, and as many ACKs: with those charged a node has just more
to do than it can, and without them half of that. So SRPT acknowledges each copy here too (`acks`): without, it takes 522 units by
either law (2^11 messages, one run), which is that of a message alone, and the program's 629 cannot be had.

By Zipf's law the most popular topic has an eighth of the messages: by the rates its root has about 1,400 copies and ACKs a second
to send, where it can send 1,000, and falls behind for as long as messages come. SRPT's rise grows with their number, from 27 %
with 2^12 to 93 % with 2^14 (two runs), all of them received; the paper's 30.6 % is not met.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from libweft.bench.papers.figure import Figure, Row, measured, number
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.papers.vcube_ps_setting import CHARGED, ONCE, TIMES, measured_at, srpt, vcube_ps
from libweft.bench.runs.scenario import Scenario, Workload
from libweft.pubsub.scribe.config import BY_NUMBER

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NODES, TOPICS, EVERY = 256, 128, 0.5
QUICK_NODES, QUICK_TOPICS = 32, 16
RUNS, QUICK_RUNS = 5, 1
VCUBE_PS, SRPT = "VCube-PS", "SRPT"
SYSTEMS = (VCUBE_PS, SRPT)
PROGRAM = {
    (VCUBE_PS, "uniform", 12): 509.5,
    (VCUBE_PS, "zipf", 12): 561.6,
    (SRPT, "uniform", 12): 629.0,
    (SRPT, "zipf", 12): 793.2,
}
RISES = {VCUBE_PS: 0.092, SRPT: 0.306}
PROGRAM_RISES = {VCUBE_PS: 0.10, SRPT: 0.26}

Popularity = Literal["uniform", "zipf"]


class Point(NamedTuple):
    """`power` is of the number of messages."""

    system: str
    popularity: Popularity
    power: int
    nodes: int
    topics: int

    @property
    def name(self) -> str:
        return f"{self.system}, {self.popularity}, 2^{self.power} messages"


def points(lab: Lab) -> list[Point]:
    nodes, topics, powers = (QUICK_NODES, QUICK_TOPICS, (8,)) if lab.quick else (NODES, TOPICS, (12, 14))
    return [
        Point(system, popularity, power, nodes, topics)
        for power in powers
        for system in SYSTEMS
        for popularity in _popularities()
    ]


def _popularities() -> tuple[Popularity, Popularity]:
    return "uniform", "zipf"


def scenario(point: Point, seed: int) -> Scenario:
    work = Workload(
        topics=point.topics,
        interests=point.topics,
        popularity=point.popularity,
        exponent=0.825,
        messages=1 << point.power,
        rate=point.nodes / EVERY,
        arrivals="phased",
    )
    if point.system == VCUBE_PS:
        return vcube_ps(point.nodes, seed, work, window=10.0)
    return srpt(point.nodes, seed, work, root=BY_NUMBER, acks=True, window=10.0)


def rows(lab: Lab) -> list[Row]:
    measures = measured_at(lab, points(lab), scenario)
    found = {point: [number(each, "single_root", "mean_ms") for each in runs] for point, runs in measures.items()}
    several = []
    for point, values in found.items():
        program = None if lab.quick else PROGRAM.get((point.system, point.popularity, point.power))
        several.append(measured(point.name, None, values, ONCE * (program or 0.0), program=program, costs=CHARGED))
    for point, values in found.items():
        if point.popularity == "zipf":
            several.append(_rise(point, values, found[point._replace(popularity="uniform")], lab.quick))
    return several


def _rise(point: Point, zipf: Sequence[float], uniform: Sequence[float], quick: bool) -> Row:
    values = [above / below - 1 for above, below in zip(zipf, uniform, strict=True)]
    paper = RISES[point.system] if point.power == 14 and not quick else None
    program = PROGRAM_RISES[point.system] if point.power == 12 and not quick else None
    name = f"{point.system}, rise by Zipf's law, 2^{point.power} messages"
    return measured(name, paper, values, ONCE, program=program, costs=CHARGED)


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    from libweft.bench.papers import picture

    shown = [row for row in rows if "rise" not in row.name]
    places = [float(place) for place in range(len(shown))]
    picture.paper(axes, places, [row.program for row in shown], "authors' program")
    picture.ours(axes, places, shown)
    axes.set_xticks(places, [row.name for row in shown], rotation=30, ha="right", fontsize=7)
    axes.set_ylabel("units of time to a subscriber, mean")


FIGURE = Figure(kinds=TIMES, runs=RUNS, quick_runs=QUICK_RUNS, rows=rows, draw=draw, wants=("single_root", "alone"))
