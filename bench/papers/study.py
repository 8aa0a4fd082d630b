"""A. Duarte, D. Almeida, D. Fona: "A Study on Publish-Subscribe Systems over Overlay Networks", 2022: its empty results.

It has HyParView with Plumtree, a flood, Kademlia with GossipSub, of which only the meshes are left, and Kademlia with KadPubSub,
and asks for reliability, redundancy and latency against the rate and the size of messages. It says nothing of nodes, topics or
links: what stands here is ours, and the same for all. GossipSub with its scores is shown beside.

500 nodes, TOPICS topics, each node subscribes to INTERESTS of them and publishes to one of its own. Links take 10 to 100 ms and a
node sends BANDWIDTH bytes a second, so that copies cost time. Nodes join one by one, each through a random one of those before
it, and have some seconds to settle. With crashes a fifth of the nodes is gone at the moment of the first message, and the rest
notices after five seconds: the messages that are out by then meet the damage, later ones the repair.

The three figures are of the same runs, which are made once where they are asked for together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from libweft.bench.papers.figure import Figure, Measures, Row, measured
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.runs.scenario import Network, Options, Scenario, Workload
from libweft.peer.sim.faults import MassCrash
from libweft.peer.trace.kinds import DELIVER, DROP, JOINED, LEAVE, NODE_DOWN, PUBLISH, RECEIVE, SEND

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NODES, QUICK_NODES = 500, 60
MESSAGES, QUICK_MESSAGES = 30, 20
TOPICS, INTERESTS = 10, 2
BANDWIDTH = 1_250_000.0  # 10 Mbit/s
JOIN_EVERY = 0.05
SETTLED = 15.0  # seconds from the last join to the first message
CRASHED = 0.2
PLAIN: Options = {"score": "off", "gater": False, "flood_publish": False, "px": False}
STACKS: dict[str, tuple[str, Options]] = {
    "hyparview/plumtree": ("hyparview/plumtree", {}),
    "hyparview/flood": ("hyparview/flood", {}),
    "kademlia/gossipsub": ("kademlia/gossipsub", PLAIN),
    "kademlia/gossipsub, scored": ("kademlia/gossipsub", {}),
    "kademlia/kadpubsub": ("kademlia/kadpubsub", {}),
}


class Load(NamedTuple):
    """Messages a second, and bytes of one."""

    rate: float
    size: int

    def __str__(self) -> str:
        return f"{self.rate:g}/s of {self.size} B"


USUAL = Load(10.0, 1_024)
RATES = (Load(1.0, 1_024), USUAL, Load(100.0, 1_024))
SIZES = (USUAL, Load(10.0, 8_192))
LOADS = tuple(dict.fromkeys(RATES + SIZES))


class Case(NamedTuple):
    name: str
    load: Load
    crashed: float

    def __str__(self) -> str:
        return f"{self.name}: {self.load}{f', {self.crashed:.0%} crashed' if self.crashed else ''}"


def cases(quick: bool) -> Iterator[Case]:
    return (Case(*case) for case in product(STACKS, (USUAL,) if quick else LOADS, (0.0, CRASHED)))


def scenario(case: Case, seed: int, *, quick: bool) -> Scenario:
    stack, router = STACKS[case.name]
    nodes = QUICK_NODES if quick else NODES
    warmup = nodes * JOIN_EVERY + SETTLED
    return Scenario(
        stack=stack,
        nodes=nodes,
        seed=seed,
        join_every=JOIN_EVERY,
        warmup=warmup,
        router=router,
        network=Network(bandwidth=BANDWIDTH),
        workload=Workload(
            topics=TOPICS,
            interests=INTERESTS,
            messages=QUICK_MESSAGES if quick else MESSAGES,
            rate=case.load.rate,
            size=case.load.size,
        ),
        faults=(MassCrash(at=warmup, share=case.crashed),) if case.crashed else (),
    )


def figure(shown: dict[str, Callable[[Measures], float]]) -> Figure:
    """Of each case one row for each that is `shown`, whose unit is in its name; the first of them is drawn."""

    def rows(lab: Lab) -> list[Row]:
        asked = [(case, seed) for case in cases(lab.quick) for seed in lab.seeds]
        found = dict(zip(asked, lab.measure([scenario(case, seed, quick=lab.quick) for case, seed in asked]), strict=True))
        return [
            measured(f"{case}: {what}", None, [of(found[case, seed]) for seed in lab.seeds], 0.0, "no")
            for case in cases(lab.quick)
            for what, of in shown.items()
        ]

    first = next(iter(shown))
    return Figure(
        kinds=(PUBLISH, SEND, DROP, RECEIVE, DELIVER, JOINED, LEAVE, NODE_DOWN),
        runs=5,
        quick_runs=1,
        rows=rows,
        draw=lambda axes, rows: _draw(axes, rows, first),
    )


def _draw(axes: Axes, rows: Sequence[Row], what: str) -> None:
    """The rates on the left and the sizes on the right, a line a stack; dashed with crashes."""
    drawn = {row.name: row.ours for row in rows}
    groups = [[load for load in loads if _named(load, what) in drawn] for loads in (RATES, SIZES)]
    for number, (name, crashed) in enumerate(product(STACKS, (0.0, CRASHED))):
        for first, loads in zip((0, len(groups[0]) + 1), groups, strict=True):
            values = [drawn[f"{Case(name, load, crashed)}: {what}"] for load in loads]
            label = f"{name}{f', {crashed:.0%} crashed' if crashed else ''}" if first == 0 else "_"
            style = "--" if crashed else "-"
            axes.plot(range(first, first + len(loads)), values, style, marker="o", color=f"C{number // 2}", label=label)
    ticks = [[f"{load.rate:g}/s\n{load.size} B" for load in loads] for loads in groups]
    axes.set_xticks(range(len(ticks[0]) + 1 + len(ticks[1])), [*ticks[0], "", *ticks[1]])
    axes.set_ylabel(what)


def _named(load: Load, what: str) -> str:
    return f"{Case(next(iter(STACKS)), load, 0.0)}: {what}"
