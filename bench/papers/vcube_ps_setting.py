"""What the figures of VCube-PS share: the timing, the oracle, and what the authors' own program yields.

JPDC 2018, section 4: one message costs t_pc + t_q + t_t + t_pp, and 40 runs make a point. The authors' public program says what
the paper leaves open: a copy keeps its sender busy for one unit, whatever it is, and is 99 or 100 units on its way; membership
is an oracle's; the gate is shut until all acknowledgements are in. A row is judged against that program in the same setting.
A unit is a millisecond here.
"""

from __future__ import annotations

from typing import NamedTuple

from bench.papers.figure import Lab, Measures
from bench.scenario import Scenario, Workload
from peer.latency import VCubePS
from peer.trace import DELIVER, DROP, JOINED, LEAVE, NODE_DOWN, PUBLISH, SEND

KINDS = (PUBLISH, SEND, DROP, DELIVER, JOINED, LEAVE, NODE_DOWN)  # of both figures, so that one run serves both
RUNS = 40
QUICK_RUNS = 5
WARMUP = 3.0  # all have subscribed, and links are up: the paper's channels are always there
WINDOW = 5.0  # four times the last delivery


class Point(NamedTuple):
    """What the program yields: the mean over subscribers, its deviation between runs, and the last subscriber."""

    nodes: int
    share: float
    mean: float
    deviation: float
    last: float


PROGRAM = (
    Point(8, 0.25, 100.0, 0.5, 100),
    Point(8, 1.0, 173.2, 0.7, 303),
    Point(64, 0.25, 230.0, 21.0, 430),
    Point(64, 1.0, 312.5, 0.7, 615),
    Point(512, 0.25, 375.9, 4.8, 738),
    Point(512, 1.0, 469.2, 0.9, 936),
    Point(4_096, 0.25, 534.8, 5.4, 1_068),
    Point(4_096, 1.0, 633.4, 0.3, 1_266),
)
QUICK_NODES = 512


def points(lab: Lab) -> list[Point]:
    return [point for point in PROGRAM if not lab.quick or point.nodes <= QUICK_NODES]


def measure(lab: Lab) -> dict[Point, list[Measures]]:
    runs = [(point, seed) for point in points(lab) for seed in lab.seeds]
    found = lab.measure([scenario(point, seed) for point, seed in runs])
    return {
        point: [measures for (other, _), measures in zip(runs, found, strict=True) if other is point] for point in points(lab)
    }


def scenario(point: Point, seed: int) -> Scenario:
    return Scenario(
        stack="vcube/vcube-ps",
        nodes=point.nodes,
        seed=seed,
        warmup=WARMUP,
        window=WINDOW,
        latency=VCubePS(setting="program"),
        overlay={"start": "oracle"},
        router={"window": 1},
        workload=Workload(messages=1, publishers=1, subscribers=point.share),
    )
