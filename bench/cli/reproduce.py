"""`weft reproduce`: figures of papers, measured again."""

from __future__ import annotations

import argparse
from pathlib import Path

from libweft.bench.cli.flags import add_keep_flag, add_output_flags, add_spark_flags
from libweft.bench.cli.show import print_json, print_rows, print_titled, progress, resumable
from libweft.peer.errors import UsageError, WeftError


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)
    add_output_flags(parser)
    parser.add_argument("ids", nargs="*", metavar="ID", help="which; see --list")
    parser.add_argument("--list", action="store_true", help="list what there is, and run nothing")
    parser.add_argument("--all", action="store_true", help="all of them, in one Spark session")
    parser.add_argument("--quick", action="store_true", help="smaller and fewer runs: under two minutes a figure")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="the seeds of all runs follow from it")
    parser.add_argument("--runs", type=int, metavar="N", help="runs a point, in place of the figure's own number")
    jobs = "runs simulated at a time, as Spark tasks; default: 1, and with --master as many as the cluster takes"
    parser.add_argument("--jobs", type=int, metavar="N", help=jobs)
    parser.add_argument("--pictures", type=Path, default=Path("weft-pictures"), metavar="DIR", help="default: weft-pictures")
    add_keep_flag(parser)
    add_spark_flags(parser)


def run(args: argparse.Namespace) -> None:
    from libweft.bench import papers

    if args.list:
        listed = [figure._asdict() for figure in papers.list_figures()]
        print_json({"figures": listed}) if args.json else print_rows([{"id": f["id"], "title": f["title"]} for f in listed])
        return
    if args.all and args.ids:
        raise UsageError(f"--all has every figure, {args.ids[0]!r:.80} too; name figures or say --all")
    ids = list(papers.FIGURES) if args.all else args.ids
    if not ids:
        raise UsageError("name a figure, or --all; weft reproduce --list shows what there is")
    papers.find(ids)
    if args.runs is not None and args.runs < 1:
        raise UsageError(f"--runs is {args.runs}; it must be 1 at least")
    if args.jobs is not None and args.jobs < 1:
        raise UsageError(f"--jobs is {args.jobs}; it must be 1 at least")
    from libweft.bench.papers.figure import reproduce as reproduced
    from libweft.bench.spark.session import spark_session

    asked = {"quick": args.quick, "seed": args.seed, "runs": args.runs, "pictures": args.pictures, "keep": args.keep}
    asked["jobs"] = args.jobs
    session = spark_session(args.master, memory=args.memory, short=args.quick)
    with progress(args.quiet) as tell, resumable(args.keep), session as spark:
        results = reproduced(ids, spark=spark, progress=tell, **asked)
    if args.json:
        print_json({"figures": results} if args.all or len(ids) > 1 else results[0])
    for result in () if args.json else results:
        unused = {name for name in ("costs", "program") if all(row[name] is None for row in result["rows"])}
        rows = [{name: value for name, value in row.items() if name not in unused} for row in result["rows"]]
        print_titled({"title": f"{result['id']}: {result['title']}", "about": result["source"], "rows": rows}, most=len(rows))
        print(result["picture"] or "")
    failed = [f"{result['id']}: {result['error']}" for result in results if "error" in result]
    if failed:
        raise WeftError("; ".join(failed))
