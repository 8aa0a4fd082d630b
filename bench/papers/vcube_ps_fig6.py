"""vcube-ps.fig6: how many messages a causal barrier names, and how long causal order holds a message back, in a discussion.

256 nodes, p of which ask something at moments of their own; everybody else says one thing, up to 100 units after it has delivered
p messages. The authors' program does so: the first questions come within 500 units, and who has not asked yet when it hears the
first message answers that one. Sizes are counted at each reception.

The algorithm as printed takes from a barrier what a later message covers; the program does not, by a slip, and the paper's sizes
for p = 10 are those of the slip. Here runs the algorithm. As each node publishes once, the program's barrier is all that happened
before a message, which follows from the dependencies that the trace has: so one run gives both. When a message is delivered is
the same with either.

A row is judged against the program in the same setting; the paper's values, of single runs, are shown beside: no one setting of
the program has all of them, and none so many messages that wait as the paper tells of. Of how many runs the program's values are
is not known: some points of tolerance are for that, and three deviations of as many runs as there are come on top. The largest
delay grows with the number of runs, and is not judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import TYPE_CHECKING, Any, TypeAlias

from libweft.bench.papers.figure import Figure, Judged, Measures, Row, measured, number
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.papers.vcube_ps_setting import CHARGED, RUNS, measured_at, vcube_ps
from libweft.bench.runs.scenario import Scenario, Workload
from libweft.peer.trace.kinds import DELIVER, JOINED, LEAVE, NODE_DOWN, PUBLISH, RECEIVE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NODES = 256
ASKED_S = 0.5
QUICK_RUNS = 1

Shares: TypeAlias = dict[str, float]
Messages: TypeAlias = Sequence[Mapping[str, Any]]

PROGRAM: dict[int, Shares] = {
    1: {
        "exactly 1 dependency": 24.0,
        "below 5 dependencies": 57.8,
        "below 15 dependencies": 97.1,
        "exactly 1 dependency, not pruned": 13.6,
        "below 5 dependencies, not pruned": 38.9,
        "below 15 dependencies, not pruned": 77.5,
        "not held back": 93.8,
        "held back below 10 units": 97.0,
        "largest delay": 158.0,
    },
    10: {
        "exactly 10 dependencies": 0.7,
        "below 5 dependencies": 48.5,
        "below 15 dependencies": 98.2,
        "exactly 10 dependencies, not pruned": 34.9,
        "below 5 dependencies, not pruned": 3.9,
        "below 15 dependencies, not pruned": 79.0,
        "not held back": 97.4,
        "held back below 10 units": 98.9,
        "largest delay": 104.0,
    },
}
PAPER: dict[int, Shares] = {
    1: {
        "exactly 1 dependency": 19.9,
        "below 5 dependencies": 51.6,
        "not held back": 87.2,
        "held back below 10 units": 95.1,
        "largest delay": 150.0,
    },
    10: {
        "exactly 10 dependencies, not pruned": 35.2,
        "below 15 dependencies, not pruned": 79.7,
        "not held back": 84.2,
        "largest delay": 187.0,
    },
}
SIZES, DELAYS = (2.0, 4.0), (0.5, 0.8)  # points: the tolerance, and about the deviation of one run, of 256 messages


def scenario(p: int, seed: int) -> Scenario:
    return vcube_ps(NODES, seed, Workload(messages=p, rate=p / ASKED_S, answers=p, answer_ms=100, order="causal"))


def rows(lab: Lab) -> list[Row]:
    found = measured_at(lab, list(PROGRAM)[: 1 if lab.quick else None], scenario)
    runs = {p: [shares(p, measures) for measures in several] for p, several in found.items()}
    return [_row(p, name, [run[name] for run in runs[p]]) for p in runs for name in PROGRAM[p]]


def _row(p: int, name: str, values: Sequence[float]) -> Row:
    open_, deviation = SIZES if "depend" in name else DELAYS
    tolerance = open_ + 3 * deviation / sqrt(len(values))
    unit = "units" if name == "largest delay" else "%"
    judged: Judged = "near" if unit == "%" else "no"
    program, paper = PROGRAM[p][name], PAPER[p].get(name)
    return measured(f"p {p}, {name} ({unit})", paper, values, tolerance, judged, program=program, costs=CHARGED)


def shares(p: int, measures: Measures) -> Shares:
    """Of one run, in percent of receptions; the largest delay in units."""
    messages: Messages = measures["per_message"]
    found: Shares = {}
    for variant, sizes in (("", pruned(messages)), (", not pruned", unpruned(messages))):
        exactly = f"exactly {p} dependenc{'y' if p == 1 else 'ies'}{variant}"
        found[exactly] = _received(messages, [size == p for size in sizes])
        for bound in (5, 15):
            found[f"below {bound} dependencies{variant}"] = _received(messages, [size < bound for size in sizes])
    found["not held back"] = 100 * number(measures, "held", "at_once")
    found["held back below 10 units"] = 100 * number(measures, "held", "below_10_ms")
    found["largest delay"] = number(measures, "held", "max_ms")
    return found


def pruned(messages: Messages) -> list[int]:
    return [len(message["dependencies"]) for message in messages]


def unpruned(messages: Messages) -> list[int]:
    """All that happened before each; a set of messages is one int, a bit a message in the order of their publishing."""
    past: dict[int, int] = {}
    for place, message in enumerate(messages):
        before = 0
        for id in message["dependencies"]:
            before |= past[id]
        past[message["msg"]] = before | 1 << place
    return [past[message["msg"]].bit_count() - 1 for message in messages]


def _received(messages: Messages, counts: Sequence[bool]) -> float:
    every: list[int] = [message["deliveries"] for message in messages]
    return 100 * sum(received for received, counted in zip(every, counts, strict=True) if counted) / sum(every)


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    from libweft.bench.papers import picture

    shown = [row for row in rows if row.name.endswith("(%)")]
    places = [float(place) for place in range(len(shown))]
    picture.paper(axes, places, [row.program for row in shown], "authors' program")
    picture.ours(axes, places, shown)
    axes.set_xticks(places, [row.name.removesuffix(" (%)") for row in shown], rotation=60, ha="right", fontsize=6)
    axes.set_ylabel("% of receptions")


FIGURE = Figure(
    kinds=(PUBLISH, RECEIVE, DELIVER, JOINED, LEAVE, NODE_DOWN),
    runs=RUNS,
    quick_runs=QUICK_RUNS,
    rows=rows,
    draw=draw,
    wants=("messages", "held", "alone"),
)
