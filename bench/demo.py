"""`weft demo`: the main job, for somebody who has just arrived: simulate, trace, analyse on Spark, and a report to look at.

It floods 1,000 nodes in calm weather and then under loss and crashes. All figures come from Spark, over the traces; the
traces themselves are deleted when the report is written.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench import report
from bench.run import run
from bench.scenario import Scenario, Workload
from bench.show import Report
from peer.faults import AnyFault, Loss, MassCrash

NODES = 1_000
WARMUP = 5.0
SIMULATED = 0.3  # the share of the work that the simulations are

WEATHER: dict[str, tuple[AnyFault, ...]] = {
    "calm": (),
    "10% of copies lost": (Loss(at=WARMUP, p=0.1),),
    "30% of nodes crash": (MassCrash(at=WARMUP, share=0.3),),
    "60% of nodes crash": (MassCrash(at=WARMUP, share=0.6),),
    "10% lost, 30% crash": (Loss(at=WARMUP, p=0.1), MassCrash(at=WARMUP, share=0.3)),
}


def demo(args: argparse.Namespace, progress: Report | None = None) -> dict[str, Any]:
    """A row for each kind of weather, what Spark warned of, and where the report is."""
    from bench.spark.session import check, spark_session

    check(args.master, args.memory)
    from bench.spark.analysis import analyze

    report.check(args.report)
    tell = progress or (lambda share, word: None)
    with TemporaryDirectory(prefix="weft-demo-") as folder:
        traces = [Path(folder, name) for name in WEATHER]
        for done, trace in enumerate(traces):
            tell(SIMULATED * done / len(traces), f"static/flood, {NODES} nodes, {trace.name}")
            run(scenario(WEATHER[trace.name]), trace=trace, counters=False)
        tell(SIMULATED, "starting Spark")
        with spark_session(args.master, memory=args.memory, short=True) as spark:
            analysis = analyze(spark, traces, progress=lambda share, word: tell(SIMULATED + (1 - SIMULATED) * share, word))
    report.write(analysis, args.report, title=f"A flood through {NODES:,} nodes, in five kinds of weather")
    rows = [_row(figures) for figures in analysis["runs"]]
    return {"rows": rows, "warnings": analysis["warnings"], "report": str(args.report.resolve())}


def scenario(faults: tuple[AnyFault, ...]) -> Scenario:
    return Scenario(nodes=NODES, warmup=WARMUP, overlay={"degree": 5}, workload=Workload(messages=30, rate=10.0), faults=faults)


def _row(figures: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("deliveries", "reliability", "rmr", "ldh_mean")
    latency = figures["latency_ms"]
    return {"weather": figures["name"], **{key: figures[key] for key in kept}, "p50_ms": latency["p50"], "p99_ms": latency["p99"]}
