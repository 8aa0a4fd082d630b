"""What the figures of VCube-PS share: the timing, the oracle, the two systems, and what the authors' own program yields.

JPDC 2018, section 4: one message costs t_pc + t_q + t_t + t_pp, and 40 runs make a point. The authors' public program says what
the paper leaves open: a copy keeps its sender busy for one unit, whatever it is, and is 99 or 100 units on its way; membership
is an oracle's; the gate is shut until all acknowledgements are in. A row is judged against that program in the same setting,
where it was run: the mean may differ by two hundredths, or by twice the program's deviation between runs, where that is more, and
by a tenth where the program was run once. A unit is a millisecond here.

SRPT is the router `srpt-s` with its root at node 0, as in the program. The program's SRPT acknowledges nothing; ours does, and
has a heartbeat, all of which costs nothing here (`costs` is "ACKs free"). Its latency is that of
`libweft.bench.spark.single_root`: the publisher's own copy counts, the root's does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from libweft.bench.papers.figure import Measures
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.runs.scenario import Scenario, Workload
from libweft.peer.sim.latency import VCubePS
from libweft.peer.trace.kinds import DELIVER, DROP, DUPLICATE, JOINED, LEAVE, NODE_DOWN, PUBLISH, RECEIVE, SEND

KINDS = (PUBLISH, SEND, DROP, RECEIVE, DUPLICATE, DELIVER, JOINED, LEAVE, NODE_DOWN)  # of most figures: one run serves several
TIMES = (PUBLISH, RECEIVE, DUPLICATE, JOINED, LEAVE, NODE_DOWN)  # all that `libweft.bench.spark.single_root` needs for times
WANTS = ("single_root",)
RUNS = 40
QUICK_RUNS = 5
WARMUP = 3.0  # all have subscribed, and links are up: the paper's channels are always there
TREE = 8.0  # the same, where JOINs go from node to node first
WINDOW = 5.0  # four times the last delivery
ONCE = 0.1  # the tolerance where the program was run once

CHARGED, FREE = "ACKs charged", "ACKs free"

PointT = TypeVar("PointT")


class Point(NamedTuple):
    """What the program yields: the mean over subscribers, its deviation between runs, and the last subscriber."""

    nodes: int
    share: float
    mean: float
    deviation: float
    last: float

    @property
    def where(self) -> str:
        return f"{self.nodes} nodes, {self.share:.0%} subscribe"

    @property
    def tolerance(self) -> float:
        return tolerance(self.mean, self.deviation)


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
SRPT = (
    Point(8, 0.25, 261.0, 65.0, 295),
    Point(8, 1.0, 261.0, 34.0, 390),
    Point(64, 0.25, 410.0, 32.0, 617),
    Point(64, 1.0, 412.7, 1.0, 715),
    Point(512, 0.25, 563.9, 14.7, 964),
    Point(512, 1.0, 569.8, 0.9, 1_038),
    Point(4_096, 0.25, 723.8, 5.0, 1_259),
    Point(4_096, 1.0, 733.5, 0.5, 1_367),
)
COPIES = (2.65, 7.0, 27.1, 63.0, 225.0, 511.0, 1_790.0, 4_095.0)  # of SRPT's tree, at the same points
QUICK_NODES = 512


def tolerance(mean: float, deviation: float) -> float:
    return max(0.02 * mean, 2 * deviation)


def measure(lab: Lab) -> tuple[dict[Point, list[Measures]], dict[Point, list[Measures]]]:
    """One message, by VCube-PS and by SRPT."""
    points = [(single, point) for single, program in ((False, PROGRAM), (True, SRPT)) for point in _points(lab, program)]
    found = measured_at(lab, points, lambda each, seed: (srpt_scenario if each[0] else scenario)(each[1], seed))
    own, single = ({point: runs for (of, point), runs in found.items() if of is which} for which in (False, True))
    return own, single


def measured_at(
    lab: Lab,
    points: Sequence[PointT],
    make: Callable[[PointT, int], Scenario],
    runs: Callable[[PointT], int] = lambda point: RUNS,
) -> dict[PointT, list[Measures]]:
    """The runs of each point, as many as the lab has seeds, and `runs` of them at most."""
    asked = [(point, seed) for point in points for seed in lab.seeds[: runs(point)]]
    found = lab.measure([make(point, seed) for point, seed in asked])
    return {point: [each for (other, _), each in zip(asked, found, strict=True) if other == point] for point in points}


def runs_of(nodes: int) -> int:
    """Fewer where a run takes minutes."""
    return RUNS if nodes <= 512 else 5 if nodes <= 1_024 else 3


def _points(lab: Lab, points: Sequence[Point]) -> list[Point]:
    return [point for point in points if not lab.quick or point.nodes <= QUICK_NODES]


def scenario(point: Point, seed: int) -> Scenario:
    return vcube_ps(point.nodes, seed, Workload(messages=1, publishers=1, subscribers=point.share))


def srpt_scenario(point: Point, seed: int) -> Scenario:
    return srpt(point.nodes, seed, Workload(messages=1, publishers=1, subscribers=point.share))


def vcube_ps(
    nodes: int, seed: int, work: Workload, *, free: bool = False, t_pp: float = 100.0, window: float = WINDOW
) -> Scenario:
    return Scenario(
        stack="vcube/vcube-ps",
        nodes=nodes,
        seed=seed,
        warmup=WARMUP,
        window=window,
        latency=costs(free, t_pp),
        overlay={"start": "oracle"},
        router={"window": 1},
        workload=work,
    )


def srpt(
    nodes: int,
    seed: int,
    work: Workload,
    *,
    root: int = 0,
    group: int = 0,
    acks: bool = False,
    t_pp: float = 100.0,
    window: float = WINDOW,
) -> Scenario:
    """With a `group` it is SRPT-B; a `root` of -2 is the node of the topic's number; `acks` are charged, one for each copy."""
    router: dict[str, bool | int | float | str] = {"root": root, "root_link": True, "patience": 600_000_000, "acks": acks}
    return Scenario(
        stack="vcube/srpt-b" if group else "vcube/srpt-s",
        nodes=nodes,
        seed=seed,
        warmup=TREE * t_pp / 100,
        window=window,
        latency=costs(True, t_pp),
        overlay={"start": "oracle"},
        router={**router, "group": group} if group else router,
        workload=work,
    )


def costs(free: bool, t_pp: float) -> VCubePS:
    return VCubePS(setting="program", t_pp=t_pp, free=("control",) if free else None)
