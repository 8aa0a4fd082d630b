"""`weft analyze`: from traces to figures, tables and a page, by Spark.

The session is started for what the traces hold: a large trace is worth compiling for, a small one is not.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import report
from bench.show import Report

LARGE = 32 << 20
"""Bytes of traces from which on thorough compiling pays: some five million rows."""


def analyze(traces: Sequence[Path], args: argparse.Namespace, progress: Report | None) -> dict[str, Any]:
    """What `bench.spark.analysis.analyze` answers; writes the report and the Parquet that were asked for."""
    from bench.spark.session import require, spark_session

    require()
    from bench.spark.analysis import analyze as analysis_of
    from bench.spark.sources import sources_of

    if args.report is not None:
        report.check(args.report)
    short = sources_of(traces).size < LARGE
    with spark_session(args.master, memory=args.memory, short=short) as spark:
        drawn = args.report is not None
        analysis = analysis_of(
            spark, traces, graph=not args.no_graph, pictures=drawn, parquet=args.parquet, progress=progress
        )
    if args.report is not None:
        report.write(analysis, args.report, title=_title(analysis["runs"]))
    return {name: found for name, found in analysis.items() if name not in ("pictures", "bands")}


def comparison(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row a figure and one column a run: there are more figures than runs, as a rule."""
    left_out = ("run", "name", "command", "ci95", "trace_hash", "trace")
    lines = {run["name"]: dict(_lines(run, left_out)) for run in runs}
    names = dict.fromkeys(name for figures in lines.values() for name in figures)
    return [{"figure": name, **{run: figures.get(name) for run, figures in lines.items()}} for name in names]


def _lines(run: Mapping[str, Any], left_out: Sequence[str]) -> list[tuple[str, Any]]:
    lines: list[tuple[str, Any]] = []
    for name, value in run.items():
        if name not in left_out:
            parts = {f"{name} {part}": item for part, item in value.items()} if isinstance(value, dict) else {name: value}
            lines += [(label.replace("_", " "), item) for label, item in parts.items()]
    return lines


def _title(runs: Sequence[Mapping[str, Any]]) -> str:
    return runs[0]["name"] if len(runs) == 1 else f"{len(runs)} runs compared"
