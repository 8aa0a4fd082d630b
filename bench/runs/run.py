"""Runs one scenario in the simulator and answers with its figures, by the definitions of `docs/architecture.md`.

The figures come from in-process counters, unless they are switched off; with a trace folder, the same rows go to disk as
Parquet, from which Spark computes them too. CPU time is that of the event loop alone: building the overlay and writing
files are left out.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from libweft.bench.progress import Progress
from libweft.bench.runs.counters import Counters
from libweft.bench.runs.reading import validate
from libweft.bench.runs.replay import command
from libweft.bench.runs.scenario import Scenario, to_dict
from libweft.bench.runs.sybils import Siege
from libweft.bench.runs.workload import Workload
from libweft.peer.machine import SECOND
from libweft.peer.sim import faults
from libweft.peer.sim.simulator import Simulator, stream
from libweft.peer.trace.kinds import Observer
from libweft.peer.trace.tracer import Tracer
from libweft.pubsub import stacks

SLICES = 200  # how often progress is told


def run(
    scenario: Scenario,
    *,
    trace: Path | None = None,
    save_faults: Path | None = None,
    counters: bool = True,
    hashed: bool = True,
    observer: Observer | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The object that `weft sim --json` prints; without counters it has no figures but those of the run itself.

    Without a hash only the kinds of rows that the scenario asks for cost time. An observer sees all rows, and stands in the
    place of the counters.
    """
    validate(scenario)
    stack = stacks.find(scenario.stack, scenario.overlay, scenario.router)
    scenario = replace(scenario, stack=stack.name)
    contacts = stack.introduce(scenario.nodes, stream(scenario.seed, "overlay"), at_once=not scenario.join_every)
    plan = faults.settle(scenario.faults, range(scenario.nodes), stream(scenario.seed, "faults"))
    if save_faults is not None:
        faults.save(save_faults, plan)
    counted = Counters(round(scenario.window * SECOND)) if counters and observer is None else None
    about = {"scenario": to_dict(scenario), "stack": scenario.stack, "seed": scenario.seed, "command": command(scenario)}
    level, kinds = scenario.trace.level, scenario.trace.kinds or None
    tracer = Tracer(trace, level=level, kinds=kinds, observer=observer or counted, manifest=about, hashed=hashed)
    try:
        sim = build(scenario, tracer)
        workload = Workload(scenario, stack, sim)
        workload.start(contacts)
        sim.inject(plan)
        if scenario.attacks:
            Siege(sim, scenario.attacks, scenario.nodes, workload.topics)
        last = workload.schedule()
        until = max(round((scenario.duration or 0) * SECOND), last + round(scenario.window * SECOND))
        cpu_s = _drive(sim, tracer, until, progress)
        if counted is not None:
            counted.finish(sim.now)
        result = _result(scenario, counted.figures() if counted is not None else {}, sim, cpu_s)
        tracer.close(figures=result, clock_offsets={})
    except BaseException as error:
        tracer.abort("interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}")
        error.add_note(f"replay: {command(scenario)}")
        raise
    return {**result, "trace": str(trace) if trace is not None else None, "trace_hash": tracer.hash}


def build(scenario: Scenario, tracer: Tracer | None) -> Simulator:
    """The simulator that a scenario describes, still empty."""
    network = scenario.network
    return Simulator(
        scenario.seed,
        scenario.latency,
        tracer,
        codec=network.codec,
        bandwidth=network.bandwidth,
        queue=network.queue,
        detection=round(network.detection * SECOND),
        dial_timeout=round(network.dial_timeout * SECOND),
        idle=round(network.idle * SECOND),
    )


def _drive(sim: Simulator, tracer: Tracer, until: int, progress: Progress | None) -> float:
    """Run to the end in slices, telling how far; answers the CPU seconds of the loop, without those of the files."""
    cpu_s = 0.0
    for moment in _slices(until, progress):
        written, began = tracer.io_cpu_s, time.process_time()
        sim.run(moment)
        cpu_s += time.process_time() - began - (tracer.io_cpu_s - written)
        if progress is not None:
            progress(moment / until, f"{moment / SECOND:.1f} s of {until / SECOND:.1f} s, {sim.events:,} events")
    return cpu_s


def _slices(until: int, progress: Progress | None) -> Sequence[int]:
    return [until * step // SLICES for step in range(1, SLICES + 1)] if progress is not None else [until]


def _result(scenario: Scenario, figures: dict[str, Any], sim: Simulator, cpu_s: float) -> dict[str, Any]:
    return {
        "stack": scenario.stack,
        "nodes": scenario.nodes,
        "seed": scenario.seed,
        **figures,
        "window_s": scenario.window,
        "events": sim.events,
        "virtual_s": sim.now / SECOND,
        "cpu_s": cpu_s,
        "events_per_cpu_s": sim.events / cpu_s if cpu_s else None,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "faults": dict(sorted(sim.network.counts.items())),
    }
