"""`weft sweep`: every combination of a grid of scenarios, as Spark tasks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from libweft.bench.cli.flags import add_keep_flag, add_output_flags, add_spark_flags
from libweft.bench.cli.show import MOST, cell, print_json, print_rows, progress, resumable
from libweft.bench.runs.replay import command
from libweft.bench.runs.toml_values import inline
from libweft.peer.errors import UsageError, WeftError

if TYPE_CHECKING:
    from libweft.bench.sweep.plan import Plan


SHOWN = ("reliability", "rmr", "latency_ms_mean", "latency_ms_p99", "ldh_mean", "control_messages", "bytes")


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)
    add_output_flags(parser)
    parser.add_argument("plan", type=Path, metavar="SWEEP.toml", help="a base, a grid and variants, and seeds")
    parser.add_argument("--list", action="store_true", help="list the points, and run nothing")
    parser.add_argument("--seeds", type=int, metavar="N", help="how many, in place of what the file says")
    add_keep_flag(parser)
    parser.add_argument("--traces", type=Path, metavar="DIR", help="keep the trace of each run too, for weft analyze DIR")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write all measures of all runs there")
    parser.add_argument("--parquet", type=Path, metavar="FILE", help="the same as Parquet")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write an HTML page to look at")
    add_spark_flags(parser)


def run(args: argparse.Namespace) -> None:
    from libweft.bench.sweep import plan as sweep_plan

    plan = sweep_plan.load(args.plan, args.seeds)
    if args.list:
        _list_points(plan, args.json)
        return
    if args.traces is not None and any(point.scenario.trace.level == "none" for point in plan.points):
        raise UsageError("--traces: nothing would be written, since trace.level is none; leave one of the two out")
    from libweft.bench.spark.session import check
    from libweft.bench.sweep import execution as sweeps
    from libweft.bench.sweep.run_cache import RunCache

    check(args.master, args.memory)
    sweeps.prepare(args.csv, args.parquet, args.report, traces=args.traces)
    with progress(args.quiet) as tell, resumable(args.keep):
        pool = partial(spark_tasks, args.master, args.memory)
        result = sweeps.sweep(plan, pool, RunCache(args.keep), traces=args.traces, progress=tell)
    if args.json:
        print_json(result)
    else:
        print_rows(table(result))
        print(last_line(result))
    if args.csv is not None:
        sweeps.write_csv(args.csv, result["runs"])
    if args.parquet is not None:
        sweeps.write_parquet(args.parquet, result["runs"])
    if args.report is not None:
        from libweft.bench import report

        report.write_sweep(result, args.report, title=f"Sweep {args.plan.stem}")
    if result["failures"]:
        _print_failures(result["failures"])
        runs = len(plan.points) * len(plan.seeds)
        others = f"; the others are kept in {args.keep}" if len(result["failures"]) < runs else ""
        raise WeftError(f"{len(result['failures'])} of {runs} runs failed{others}")


def table(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row per point, with the mean over its runs and how far the interval goes to either side."""
    hidden = () if result["failures"] else ("failed",)
    return [
        {
            **{name: value if isinstance(value, str) else inline(value) for name, value in point["settings"].items()},
            **{name: point[name] for name in ("runs", "failed") if name not in hidden},
            **{name: _spread_cell(point["measures"].get(name)) for name in SHOWN},
        }
        for point in result["points"]
    ]


def last_line(result: Mapping[str, Any]) -> str:
    """Return a line with the number of runs, how many of them were known before, and the average number in parallel."""
    runs = f"{result['simulated']:,} runs made, {result['known_before']:,} known before"
    if (pool := result["pool"]) is None:
        return runs
    took = f"{pool['wall_s']:.1f} s after {pool['start_s']:.1f} s of start"
    return f"{runs}; {took}, {pool['cpu_s']:.1f} CPU seconds: {pool['concurrency']:.2f} at a time"


def _spread_cell(spread: Mapping[str, float | None] | None) -> str | None:
    if spread is None or spread["mean"] is None:
        return None
    if spread["high"] is None:
        return cell(spread["mean"])
    half = spread["high"] - spread["mean"]
    return f"{cell(spread['mean'])} ± {half:,.0f}" if half >= 100 else f"{cell(spread['mean'])} ± {half:.2g}"


def _print_failures(failures: Sequence[Mapping[str, object]]) -> None:
    for failed in failures[:MOST]:
        where = f"{failed['point']}, seed {failed['seed']}"
        print(f"weft: failed: {where}: {failed['error']}; replay: {failed['replay']}", file=sys.stderr)
    if len(failures) > MOST:
        print(f"weft: failed: {len(failures) - MOST:,} more, which --json shows", file=sys.stderr)


def _list_points(plan: Plan, json: bool) -> None:
    rows = [{"point": point.name, "command": command(point.scenario)} for point in plan.points]
    if json:
        print_json({"points": rows, "seeds": plan.seeds, "runs": len(rows) * len(plan.seeds)})
        return
    print_rows([{"point": row["point"]} for row in rows])
    print(f"{len(rows)} points x {len(plan.seeds)} seeds = {len(rows) * len(plan.seeds)} runs")


@contextmanager
def spark_tasks(master: str | None, memory: str | None) -> Iterator[Executor]:
    from libweft.bench.spark.session import spark_session
    from libweft.bench.spark.tasks import SparkExecutor

    with spark_session(master, memory=memory, short=True) as spark, SparkExecutor(spark) as pool:
        yield pool
