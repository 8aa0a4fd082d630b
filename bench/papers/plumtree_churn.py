"""plumtree.churn: 50 of 10,000 nodes crash in each of 100 cycles, and one message is published in each.

SRDS 2007, the evaluation: every message reaches all that are up, at a mean RMR of 0.06, and of 0.025 with the optimisation.
The crash and the message of a cycle are of one moment, and the crash is noticed only when the message is over: grafts alone
must reach those below a dead node. Senders are many, so the threshold is 7, the default.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from msgspec.structs import replace

from libweft.bench.papers.figure import Figure, Row, measured, number
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.papers.hyparview_setting import CYCLE, NODES, NOTICED, warmed
from libweft.bench.papers.plumtree_crash import LATE, PAPER_S_OWN
from libweft.bench.runs.scenario import Network, Scenario, Workload
from libweft.peer.sim.faults import Crash
from libweft.peer.sim.latency import Constant
from libweft.peer.sim.simulator import stream
from libweft.peer.trace.kinds import DELIVER, DUPLICATE, JOINED, LEAVE, NODE_DOWN, PUBLISH, RECEIVE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUICK_NODES = 500
CYCLES = 5
BEFORE = 5  # messages, which build the tree
CHURNED, QUICK_CHURNED = 100, 30  # cycles
SHARE = 0.005  # of all nodes, a cycle
RMR, MORE = 0.025, 0.035  # up to what the paper has without the optimisation


def rows(lab: Lab) -> list[Row]:
    nodes, cycles = (QUICK_NODES, QUICK_CHURNED) if lab.quick else (NODES, CHURNED)
    found = lab.measure([scenario(nodes, cycles, seed) for seed in lab.seeds])
    churned = [measures["per_message"][BEFORE:] for measures in found]
    shares = [[100 * number(message, "reliability") for message in messages] for messages in churned]
    costs = [fmean(number(message, "duplicates") for message in messages) for messages in churned]
    return [
        measured("survivors reached, least of all messages (%)", 100.0, [min(run) for run in shares], 0.0),
        measured("survivors reached, mean (%)", 100.0, [fmean(run) for run in shares], 0.0),
        measured("RMR, mean", RMR, costs, MORE, "most"),
    ]


def scenario(nodes: int, cycles: int, seed: int) -> Scenario:
    base = warmed(nodes, seed, CYCLES, "hyparview/plumtree")
    each = round(SHARE * nodes)
    doomed = stream(seed, "churn").sample(range(nodes), each * cycles)
    first = base.warmup + BEFORE * CYCLE
    crashes = tuple(
        Crash(at=first + cycle * CYCLE, nodes=tuple(sorted(doomed[cycle * each : (cycle + 1) * each]))) for cycle in range(cycles)
    )
    return replace(
        base,
        latency=Constant(ms=50.0),
        network=Network(detection=LATE, dial_timeout=NOTICED),
        router=PAPER_S_OWN,
        workload=Workload(messages=BEFORE + cycles, rate=1 / CYCLE),
        faults=crashes,
    )


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    from libweft.bench.papers import picture

    picture.paper(axes, range(2), [row.paper for row in rows[:2]], "Plumtree")
    picture.ours(axes, range(2), rows[:2])
    axes.set_xticks(range(2), ["least of all messages", "mean"])
    axes.set_ylabel("survivors reached (%)")


FIGURE = Figure(
    kinds=(PUBLISH, RECEIVE, DUPLICATE, DELIVER, JOINED, LEAVE, NODE_DOWN),
    runs=1,
    quick_runs=1,
    rows=rows,
    draw=draw,
    wants=("messages", "alone"),
)
