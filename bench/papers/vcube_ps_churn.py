"""What both parts of Figure 8 of VCube-PS share: subscribers that change places with others, in a cube somewhat larger.

One topic, a message each 500 ms from a random subscriber. For each that leaves another node subscribes at that moment; the
moments are a Poisson process. Who subscribes at the start is an oracle's knowledge, and every change after it goes by SUB and
UNS, or by JOIN and LEAVE in SRPT, with all copies and acknowledgements charged. The minutes of a point are runs of ten with seeds
of their own, so that a stopped command goes on from there; intervals are of the means of 20 parts of each.

The paper contradicts itself on the rate. It has 46 changes a minute at 4,000 subscribers and a t_med of a minute, 1.1 % a
minute at 1,000, and 1 to 10 % a minute for t_med from 69 to 7 s: all three are ln 2 / t_med **a second**, with t_med as the
median session (4,000 ln 2 / 60 = 46.2; ln 2 / 69 = 1.0 %; ln 2 / 7 = 9.9 %). So what it calls a minute was a second in its
runs. At the rates in its words a node sends six copies a second for all of the churn, of a thousand that it could, and nothing
can become slower by it. Both are here: the rates as told, and, in short runs because they cost sixty times as much, the same
numbers a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from libweft.bench.papers.figure import Measures, Row, measured, number
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.papers.vcube_ps_setting import CHARGED, TREE, WARMUP, measured_at, srpt, vcube_ps
from libweft.bench.runs.scenario import Churn, Scenario, Workload
from libweft.peer.machine import SECOND

WANTS = ("batches", "false_positives", "alone")
VCUBE_PS, SRPT = "VCube-PS", "SRPT"
RATE = 2.0  # messages a second
MINUTE = 60.0
PART = 10 * MINUTE


class Point(NamedTuple):
    """`swaps`: the share of the subscribers that is replaced in a second; `seconds` are of virtual time, a run's; `runs` is how
    many runs the point has."""

    system: str
    subscribers: int
    swaps: float
    seconds: float
    runs: int = 1

    @property
    def nodes(self) -> int:
        """The cube that has them all, and some more."""
        return 1 << self.subscribers.bit_length()


def scenario(point: Point, seed: int) -> Scenario:
    begun = WARMUP if point.system == VCUBE_PS else TREE
    count = point.subscribers
    work = Workload(messages=round(point.seconds * RATE), rate=RATE, publishers=count, subscribers=count)
    churn = Churn(swaps=1 / (point.swaps * count), start=begun, stop=begun + point.seconds) if point.swaps else Churn()
    made = vcube_ps(point.nodes, seed, work) if point.system == VCUBE_PS else srpt(point.nodes, seed, work, acks=True)
    if point.system == VCUBE_PS:
        made = replace(made, router={**made.router, "oracle_until": round(begun * SECOND)})
    return replace(made, churn=churn)


def measure(lab: Lab, points: Iterable[Point]) -> dict[Point, list[Measures]]:
    return measured_at(lab, list(points), scenario, lambda point: point.runs)


def latency(name: str, runs: Sequence[Measures]) -> Row:
    return measured(f"{name}: mean (ms)", None, batches(runs), 0.0, "no", costs=CHARGED)


def strangers(name: str, runs: Sequence[Measures], paper: float | None = None) -> Row:
    """Receptions by who does not subscribe: who left a moment ago, and, in SRPT, who forwards only."""
    values = [100 * number(each, "false_positives") for each in runs]
    return measured(f"{name}: false positives (%)", paper, values, 0.0, "no", costs=CHARGED)


def batches(runs: Sequence[Measures]) -> list[float]:
    return [value for each in runs for value in each["batches"]]
