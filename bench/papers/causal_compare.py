"""causal.compare: what causal order costs, in bytes and in time: over routers that know nothing of it, and in VCube-PS.

A discussion: one question a topic, and each of its subscribers answers the first TURNS messages that it hears there, each after
up to ANSWER_MS. The same nodes, topics, latencies and seeds for all, and all nodes are there from the start: it is the order that
is compared, and not how overlays grow. Each run is made without an order and with `causal`, and what is added is the difference
of two runs of one seed. As answers follow what is delivered, the two are not the same messages at the
same moments; how long messages are held back between reception and delivery is measured in the one run, and stands beside.

Bytes are all that nodes send in a run, joins, gossip, tests and acknowledgements among them, by each delivery to a subscriber. In
VCube-PS a source waits: with the gate, as in the paper, for all acknowledgements of its last message of a topic, which counts in
the latency; with the window up to 16 of them are on their way. It has no order of its own but that of each source.

There is no paper to hold this against: rows are shown and not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from libweft.bench.papers.figure import Figure, Measures, Row, measured, number
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.runs.scenario import Options, Scenario, Workload
from libweft.peer.trace.kinds import DELIVER, DROP, JOINED, LEAVE, NODE_DOWN, PUBLISH, RECEIVE, SEND

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NODES, QUICK_NODES = 128, 32
TOPICS, INTERESTS = 4, 2
TURNS = 2
ANSWER_MS = 2_000
SETTLED = 20.0  # seconds to the questions: overlays, meshes and subscriptions are at rest

PLACED: Options = {"start": "order"}
SYSTEMS: dict[str, tuple[str, Options, Options]] = {
    "flood": ("hyparview/flood", {}, {}),
    "Plumtree": ("hyparview/plumtree", {}, {}),
    "GossipSub": ("hyparview/gossipsub", {}, {}),
    "VCube-PS, gate": ("vcube/vcube-ps", PLACED, {"window": 1}),
    "VCube-PS, window": ("vcube/vcube-ps", PLACED, {}),
}


class Pair(NamedTuple):
    """Two runs of one seed."""

    none: Measures
    causal: Measures


def _latency(measures: Measures) -> float:
    return number(measures, "latency_ms", "mean")


def _bytes(measures: Measures) -> float:
    return number(measures, "bytes_per_delivery")


BYTES, TIME = "bytes a delivery, added by the order", "latency (ms), added by the order"

SHOWN: dict[str, Callable[[Pair], float]] = {
    "bytes a delivery, no order": lambda pair: _bytes(pair.none),
    BYTES: lambda pair: _bytes(pair.causal) - _bytes(pair.none),
    "latency (ms), no order": lambda pair: _latency(pair.none),
    TIME: lambda pair: _latency(pair.causal) - _latency(pair.none),
    "held back (ms)": lambda pair: number(pair.causal, "held", "mean_ms"),
    "deliveries held back (%)": lambda pair: 100 * (1 - number(pair.causal, "held", "at_once")),
    "dependencies of a message": lambda pair: _dependencies(pair.causal),
    "reliability with the order (%)": lambda pair: 100 * number(pair.causal, "reliability"),
}


def _dependencies(measures: Measures) -> float:
    messages = measures["per_message"]
    return sum(len(message["dependencies"]) for message in messages) / len(messages)


def scenario(system: str, order: str, seed: int, *, quick: bool) -> Scenario:
    stack, overlay, router = SYSTEMS[system]
    nodes = QUICK_NODES if quick else NODES
    talk = Workload(
        topics=TOPICS,
        interests=INTERESTS,
        messages=TOPICS,
        rate=float(TOPICS),
        answers=1,
        answer_ms=ANSWER_MS,
        turns=TURNS,
        order=order,  # type: ignore[arg-type]
    )
    return Scenario(stack=stack, nodes=nodes, seed=seed, warmup=SETTLED, overlay=overlay, router=router, workload=talk)


def rows(lab: Lab) -> list[Row]:
    asked = list(product(SYSTEMS, ("none", "causal"), lab.seeds))
    measures = lab.measure([scenario(*each, quick=lab.quick) for each in asked])
    found = dict(zip(asked, measures, strict=True))
    pairs = {
        system: [Pair(found[system, "none", seed], found[system, "causal", seed]) for seed in lab.seeds] for system in SYSTEMS
    }
    return [
        measured(f"{system}: {what}", None, [of(pair) for pair in pairs[system]], 0.0, "no")
        for system in SYSTEMS
        for what, of in SHOWN.items()
    ]


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    """A point a system: bytes to the right, time upwards."""
    drawn = {row.name: row.ours for row in rows}
    for place, system in enumerate(SYSTEMS):
        axes.plot(drawn[f"{system}: {BYTES}"], drawn[f"{system}: {TIME}"], "osD^v"[place], label=system)
    axes.set_xlabel(BYTES)
    axes.set_ylabel(TIME)


FIGURE = Figure(
    kinds=(PUBLISH, SEND, DROP, RECEIVE, DELIVER, JOINED, LEAVE, NODE_DOWN),
    runs=5,
    quick_runs=1,
    rows=rows,
    draw=draw,
    wants=("messages", "held"),
)
