"""What the figures of VCube-PB with many publishers share: the timing, who comes and goes, and the fixed tree.

SBRC 2017, section 6: a hop takes U(10,20) units, a node handles one message a unit; publishers speak once each, at a moment drawn
from 1,000 units; each 100 units up to 5 % of the nodes subscribe or do not any more; one topic, no crashes. The rival sends every
message to one fixed node, which is the root of all trees. A unit is a millisecond here. What the paper leaves open:
- Acknowledgements cost the receiver nothing. If they did, the root of 2,048 nodes would have six times what it can handle, and
  its latency would be nothing like the paper's.
- Each copy has a draw of its own, and may overtake another on the same channel: the paper asks of channels that they lose
  nothing, and of no order. With order on each channel the fixed tree would keep causal order by itself.
- Channels are always there, as section 3 has them: a dial takes no time. Who subscribes is known at once, by an oracle.
- The root only hands on: it does not subscribe, and is no publisher. So a mean over subscribers leaves it out, and has a hop more
  than a tree of the publisher's own, as in the program that the same authors published for VCube-PS. If the root subscribes
  its own short way counts too, and the rival looks better by about one part in N.
Who has just subscribed and lacks a predecessor that was sent before asks for it, and delivers it; the paper's nodes never do. By
`first_rec` they know of it only when its publisher speaks again, which here nobody does, so by its algorithm they would wait for
ever. Such a message was published up to a second before anybody asked, in both trees alike, and makes both means larger.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from libweft.bench.papers.figure import Measures
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.papers.vcube_ps_setting import measured_at
from libweft.bench.runs.scenario import Churn, Scenario, Workload
from libweft.peer.sim.faults import Reorder
from libweft.peer.sim.latency import VCubePB
from libweft.peer.sim.simulator import stream
from libweft.peer.trace.kinds import DELIVER, JOINED, LEAVE, NODE_DOWN, PUBLISH, RECEIVE

KINDS = (PUBLISH, RECEIVE, DELIVER, JOINED, LEAVE, NODE_DOWN)
WANTS = ("messages", "subscribed")  # of all: a run serves several figures
SIZES = (8, 32, 128, 512, 2_048)
QUICK_SIZES = (8, 32, 128)
RUNS = 40
MOST = {8: 40, 32: 40, 128: 40, 512: 40, 2_048: 4}  # a run of the last takes minutes
QUICK_MOST = {8: 30, 32: 4, 128: 4}
WARMUP = 2.0
LEAST, MOST_MORE = 10.0, 10.0  # of a hop: together U(10,20)
ROOT = 0


class Point(NamedTuple):
    nodes: int
    share: float  # of the nodes publish
    fixed: bool

    @property
    def tree(self) -> str:
        return "a fixed tree" if self.fixed else "VCube-PB"


def measure(lab: Lab, shares: Sequence[float]) -> dict[Point, list[Measures]]:
    return measured_at(lab, list(points(lab, shares)), scenario, lambda point: most(lab, point.nodes))


def sizes(lab: Lab) -> tuple[int, ...]:
    return QUICK_SIZES if lab.quick else SIZES


def points(lab: Lab, shares: Sequence[float]) -> Iterator[Point]:
    return (Point(nodes, share, fixed) for share in shares for nodes in sizes(lab) for fixed in (False, True))


def most(lab: Lab, nodes: int) -> int:
    return (QUICK_MOST if lab.quick else MOST)[nodes]


def scenario(point: Point, seed: int) -> Scenario:
    count = round(point.share * point.nodes)
    others = range(ROOT + 1, point.nodes)
    return Scenario(
        stack="vcube/vcube-pb",
        nodes=point.nodes,
        seed=seed,
        warmup=WARMUP,
        window=10.0,
        latency=VCubePB(low=LEAST, high=LEAST, free=("urgent", "control"), linked=True),
        faults=(Reorder(p=1.0, ms=MOST_MORE),),
        overlay={"start": "oracle"},
        router={"window": 1, "fixed_root": point.fixed},
        churn=Churn(changing=0.05, every=0.1, start=WARMUP, stop=WARMUP + 1.0),
        workload=Workload(
            messages=count,
            rate=float(count),
            arrivals="phased",
            order="causal",
            publishing=tuple(stream(seed, "publishers").sample(others, count)),
            subscribing=tuple(others) if point.fixed else (),
        ),
    )
