"""`weft analyze`: from traces to figures, tables and a page, by Spark.

The session is started for what the traces hold: a large trace is worth compiling for, a small one is not.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from libweft.bench import report
from libweft.bench.cli.flags import add_output_flags, add_spark_flags
from libweft.bench.cli.show import print_json, print_rows, print_titled, print_warnings, progress
from libweft.bench.progress import Progress
from libweft.peer.errors import UsageError

LARGE = 32 << 20
"""Bytes of traces from which on thorough compiling pays: some five million rows."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)
    add_output_flags(parser)
    what = "a trace, or a folder of traces; files of go-libp2p-pubsub's tracers are one run, and so is a folder of them"
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE", help=what)
    parser.add_argument("--tables", action="store_true", help="print all tables below the figures")
    page = "write an HTML page to look at; with --follow, again with every table, and the page keeps itself up to date"
    parser.add_argument("--report", type=Path, metavar="FILE", help=page)
    parser.add_argument("--parquet", type=Path, metavar="DIR", help="write all tables in full, into a new folder")
    parser.add_argument("--follow", action="store_true", help="keep the figures of the last minute on the screen, until Ctrl-C")
    parser.add_argument("--window", type=float, metavar="S", help="with --follow: how much of the trace they are of; default: 60")
    parser.add_argument("--no-graph", action="store_true", help="leave out the overlay's quality, which takes longest")
    add_spark_flags(parser)


def run(args: argparse.Namespace) -> None:
    if args.follow:
        from libweft.bench.cli.follow import follow

        follow(args)
        return
    if args.window is not None:
        raise UsageError("--window goes with --follow; the window of a run is in its manifest")
    with progress(args.quiet) as tell:
        analysis = analyze(args.traces, args, tell)
    if args.json:
        print_json((analysis["runs"][0] if len(analysis["runs"]) == 1 else {}) | analysis)
        return
    print_rows(comparison(analysis["runs"]))
    for table in analysis["tables"].values() if args.tables else ():
        print_titled(table)
    print_warnings(analysis["warnings"])
    for path in (args.parquet, args.report):
        if path is not None:
            print(path.resolve())


def analyze(traces: Sequence[Path], args: argparse.Namespace, tell: Progress | None) -> dict[str, Any]:
    """What `libweft.bench.spark.analysis.analyze` answers; writes the report and the Parquet that were asked for."""
    from libweft.bench.spark.session import require, spark_session

    require()
    from libweft.bench.spark.analysis import analyze as analysis_of
    from libweft.bench.spark.sources import sources_of

    if args.report is not None:
        report.check(args.report)
    short = sources_of(traces).size < LARGE
    with spark_session(args.master, memory=args.memory, short=short) as spark:
        drawn = args.report is not None
        analysis = analysis_of(spark, traces, graph=not args.no_graph, pictures=drawn, parquet=args.parquet, progress=tell)
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
