"""`weft demo`: the main job, for somebody who has just arrived: simulate, trace, analyse on Spark, and a report to look at.

A flood and Plumtree over HyParView, and VCube-PB over a hypercube, spread the same messages: in calm weather, under loss, and
after crashes that overlays and trees must mend. All figures come from Spark, over the traces; the traces themselves are deleted
when the report is written.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from libweft.bench import report
from libweft.bench.cli.flags import add_output_flags, add_spark_flags
from libweft.bench.cli.show import print_json, print_rows, print_warnings, progress
from libweft.bench.progress import Progress
from libweft.bench.runs.run import run as simulate
from libweft.bench.runs.scenario import Network, Options, Scenario, Workload
from libweft.peer.sim.faults import AnyFault, Loss, MassCrash

NODES = 300
JOIN_EVERY = 0.01
WARMUP = 30.0
CRASH = WARMUP + 2.0  # the tree has been built by then
SIMULATED = 0.4  # the share of the work that the simulations are

STACKS: dict[str, tuple[str, Options]] = {
    "flood": ("hyparview/flood", {}),
    "plumtree": ("hyparview/plumtree", {}),
    "vcube-pb": ("vcube/vcube-pb", {"start": "order"}),  # all have their places, for a rush into a cube takes minutes
}
WEATHER: dict[str, tuple[AnyFault, ...]] = {
    "calm": (),
    "5% of copies lost": (Loss(at=WARMUP, p=0.05),),
    "30% of nodes crash": (MassCrash(at=CRASH, share=0.3),),
    "60% of nodes crash": (MassCrash(at=CRASH, share=0.6),),
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)
    add_output_flags(parser)
    parser.add_argument("--report", type=Path, default=Path("weft-demo.html"), metavar="FILE", help="default: weft-demo.html")
    add_spark_flags(parser)


def run(args: argparse.Namespace) -> None:
    with progress(args.quiet) as tell:
        result = demo(args, tell)
    if args.json:
        print_json(result)
        return
    print_rows(result["rows"])
    print_warnings(result["warnings"])
    print(f"Open the report in a browser: {result['report']}")


def demo(args: argparse.Namespace, tell: Progress | None = None) -> dict[str, Any]:
    """A row for each router and kind of weather, what Spark warned of, and where the report is."""
    from libweft.bench.spark.session import check, spark_session

    check(args.master, args.memory)
    from libweft.bench.spark.analysis import analyze

    report.check(args.report)
    tell = tell or (lambda share, word: None)
    runs = {f"{router}, {weather}": scenario(router, faults) for weather, faults in WEATHER.items() for router in STACKS}
    with TemporaryDirectory(prefix="weft-demo-") as folder:
        traces = [Path(folder, name) for name in runs]
        for done, trace in enumerate(traces):
            tell(SIMULATED * done / len(traces), f"{NODES} nodes, {trace.name}")
            simulate(runs[trace.name], trace=trace, counters=False)
        tell(SIMULATED, "starting Spark")
        with spark_session(args.master, memory=args.memory, short=True) as spark:
            analysis = analyze(spark, traces, pictures=True, progress=partial(_second_part, tell))
    title = f"Flood, Plumtree and VCube-PB among {NODES:,} nodes, in {len(WEATHER)} kinds of weather"
    report.write(analysis, args.report, title=title)
    rows = [_row(figures) for figures in analysis["runs"]]
    return {"rows": rows, "warnings": analysis["warnings"], "report": str(args.report.resolve())}


def scenario(router: str, faults: tuple[AnyFault, ...]) -> Scenario:
    stack, overlay = STACKS[router]
    return Scenario(
        stack=stack,
        overlay=overlay,
        nodes=NODES,
        join_every=JOIN_EVERY,
        warmup=WARMUP,
        network=Network(detection=1.0, dial_timeout=1.0),
        workload=Workload(messages=40, rate=5.0),
        faults=faults,
    )


def _second_part(tell: Progress, share: float, word: str) -> None:
    tell(SIMULATED + (1 - SIMULATED) * share, word)


def _row(figures: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("deliveries", "reliability", "rmr", "ldh_mean")
    latency = figures["latency_ms"]
    return {"run": figures["name"], **{key: figures[key] for key in kept}, "p50_ms": latency["p50"], "p99_ms": latency["p99"]}
