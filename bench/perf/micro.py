"""`weft bench micro`: what the simulator's loop costs, beside a bare heapq loop of the same run.

Machines are shared and noisy, so every figure is CPU time, each case runs in a process of its own, the case and the
yardstick take turns, and the medians and their ratio are what counts. The yardstick is a heap of (time, number, node)
tuples as long as a flood's events in flight, a handler that counts, a draw and a push an event: the least that any
simulator with a heap must do. Garbage collection is off in both.
"""

from __future__ import annotations

import gc
import heapq
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Literal

from libweft.bench.perf.child import command
from libweft.bench.perf.kademlia_table_cost import measure_tables
from libweft.bench.progress import Progress
from libweft.bench.runs.app import Listener, router_of
from libweft.bench.runs.counters import Counters
from libweft.peer.errors import UsageError, WeftError
from libweft.peer.machine import MS, SECOND, Build
from libweft.peer.sim.latency import Uniform
from libweft.peer.sim.simulator import Simulator
from libweft.peer.trace.tracer import Tracer
from libweft.pubsub import stacks

IN_FLIGHT = 100_000
HEAP_EVENTS = 1_000_000
JOIN_EVERY = 10 * MS


@dataclass(frozen=True)
class Case:
    """`watch` is who looks on: nobody, the counters, or a tracer of a level that writes files.

    Nodes of an overlay that makes itself join one after the other, each `JOIN_EVERY`; that is not part of the measured time.
    """

    stack: str = "static/flood"
    nodes: int = 10_000
    draw: Literal["copy", "send"] = "copy"
    watch: Literal["nobody", "counters", "default", "full"] = "nobody"
    messages: int = 50
    rounds: int = 5


CASES = {
    "flood-10000": Case(),
    "flood-10000-send": Case(draw="send"),
    "plumtree-10000": Case(stack="hyparview/plumtree", messages=10, rounds=1),
    "plumtree-1000": Case(stack="hyparview/plumtree", nodes=1_000, messages=100, rounds=3),
    "flood-1000": Case(nodes=1_000, messages=500),
    "flood-1000-send": Case(nodes=1_000, messages=500, draw="send"),
    "flood-1000-counters": Case(nodes=1_000, messages=100, watch="counters"),
    "flood-1000-trace-default": Case(nodes=1_000, messages=100, watch="default"),
    "flood-1000-trace-full": Case(nodes=1_000, messages=100, watch="full"),
}
TABLES = "kademlia-table"  # another kind of case: `libweft.bench.perf.kademlia_table_cost`


def micro(cases: Sequence[str] | None, quick: bool, progress: Progress | None = None) -> dict[str, Any]:
    """Each case in a process of its own: `quick` takes one round and a fifth of the messages."""
    known = [*CASES, TABLES]
    chosen = list(cases or known)
    if unknown := [name for name in chosen if name not in known]:
        raise UsageError(f"no case is called {unknown[0]!r}; there are: {', '.join(known)}")
    results = {}
    for done, name in enumerate(chosen):
        if progress is not None:
            progress(done / len(chosen), name)
        results[name] = _in_a_process(name, quick)
    return {"cases": results}


def _in_a_process(name: str, quick: bool) -> dict[str, Any]:
    child = subprocess.run([*command("libweft.bench.perf.micro"), name, str(int(quick))], capture_output=True, text=True)
    if child.returncode:
        raise WeftError(f"the case {name} failed: {child.stderr.strip().splitlines()[-1] if child.stderr else child.returncode}")
    result: dict[str, Any] = json.loads(child.stdout)
    return result


def measure(name: str, quick: bool) -> dict[str, Any]:
    return measure_tables(quick) if name == TABLES else measure_case(name, quick)


def measure_case(name: str, quick: bool) -> dict[str, Any]:
    """The case and the yardstick take turns; memory is read before the yardstick first runs, since it has a queue of its own."""
    case = CASES[name]
    rounds = 1 if quick else case.rounds
    messages = max(1, case.messages // 5) if quick else case.messages
    empty = _rss_mb()
    ours, bare, events, rss = [], [], 0, 0.0
    for _ in range(rounds):
        events, rate = spread(case, messages)
        ours.append(rate)
        rss = rss or _rss_mb() - empty
        gc.collect()
        bare.append(bare_heap(HEAP_EVENTS // 5 if quick else HEAP_EVENTS, case.nodes))
    return {
        "events": events,
        "rounds": rounds,
        "events_per_cpu_s": median(ours),
        "bare_heap_events_per_cpu_s": median(bare),
        "ratio": median(ours) / median(bare),
        "rss_mb": rss,
    }


def spread(case: Case, messages: int) -> tuple[int, float]:
    """Events, and events a CPU second, of messages that are published each 50 virtual ms; the links are up before."""
    with tempfile.TemporaryDirectory(prefix="weft-micro-") as folder:
        tracer = _tracer(case, Path(folder) / "trace")
        sim = Simulator(1, Uniform(low=10.0, high=100.0, draw=case.draw), tracer)
        ready = _bring_up(sim, case)
        for number in range(messages):
            sim.at(ready + number * 50 * MS, _publish, sim, number * 7919 % case.nodes)
        before, began = sim.events, time.process_time()
        sim.run(ready + messages * 50 * MS + 10 * SECOND)
        spent = time.process_time() - began
        if tracer is not None:
            tracer.close()
    return sim.events - before, (sim.events - before) / spent


def _bring_up(sim: Simulator, case: Case) -> int:
    """When all have joined."""
    fixed = case.stack.startswith("static")
    stack, app = stacks.find(case.stack, {"degree": 8} if fixed else {}, {}), Listener()
    for number, contacts in enumerate(stack.introduce(case.nodes, sim.stream("overlay"), at_once=fixed)):
        build = stack.node(contacts, app)
        sim.at(0 if fixed else number * JOIN_EVERY, _join, sim, build)
    ready = sim.now + SECOND if fixed else case.nodes * JOIN_EVERY + 10 * SECOND
    sim.run(ready)
    return ready


def _join(sim: Simulator, build: Build) -> None:
    sim.add(build, lambda node: router_of(node).join("t"))


def bare_heap(events: int, nodes: int) -> float:
    """Events a CPU second of a heap that always holds IN_FLIGHT entries."""
    random, handled = Random(1).random, [0] * nodes

    def handle(node: int) -> None:
        handled[node] += 1

    queue = [(10_000 + int(random() * 90_001), number, number % nodes) for number in range(IN_FLIGHT)]
    heapq.heapify(queue)
    gc.disable()
    began = time.process_time()
    for number in range(IN_FLIGHT, IN_FLIGHT + events):
        t, _, node = heapq.heappop(queue)
        handle(node)
        heapq.heappush(queue, (t + 10_000 + int(random() * 90_001), number, number % nodes))
    spent = time.process_time() - began
    gc.enable()
    return events / spent


def _publish(sim: Simulator, number: int) -> None:
    router = router_of(sim.nodes[number])
    router.publish(router.compose("t", b"x" * 100))


def _tracer(case: Case, folder: Path) -> Tracer | None:
    if case.watch == "nobody":
        return None
    counters = Counters(10 * SECOND)
    if case.watch == "counters":
        return Tracer(level="none", observer=counters)
    return Tracer(folder, level=case.watch, observer=counters)


def _rss_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], bool(int(sys.argv[2])))))
