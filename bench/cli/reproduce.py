"""`weft reproduce`: figures of papers, measured again.

Figures are named by their ids or by shell patterns of ids. With `--json`, a single id gives the object of that figure; several
names, a pattern and `--all` give a list under "figures", also where only one figure matches.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from libweft.bench.cli.flags import add_keep_flag, add_output_flags, add_spark_flags
from libweft.bench.cli.show import print_json, print_titled, progress, resumable
from libweft.peer.errors import UsageError, WeftError

if TYPE_CHECKING:
    from libweft.bench.papers import Listed


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)
    parser.epilog = "For example: weft reproduce --quick 'plumtree.*' vcube-ps.fig6. Without quotes the shell expands a pattern."
    add_output_flags(parser)
    ids = "a figure's id, or a shell pattern of ids in quotes, such as 'plumtree.*'; see --list"
    parser.add_argument("ids", nargs="*", metavar="ID", help=ids)
    parser.add_argument("--list", action="store_true", help="list the figures that are named, or all, by paper; run nothing")
    parser.add_argument("--all", action="store_true", help="reproduce all figures, in one Spark session")
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

    if args.all and args.ids:
        raise UsageError(f"--all has every figure, {args.ids[0]!r:.80} too; name figures or say --all")
    if not (args.ids or args.all or args.list):
        raise UsageError("name a figure, or --all; weft reproduce --list shows what there is")
    figures = papers.find(args.ids) if args.ids else papers.list_figures()
    if args.list:
        print_json({"figures": [figure._asdict() for figure in figures]}) if args.json else _print_by_paper(figures)
        return
    if args.runs is not None and args.runs < 1:
        raise UsageError(f"--runs is {args.runs}; it must be 1 at least")
    if args.jobs is not None and args.jobs < 1:
        raise UsageError(f"--jobs is {args.jobs}; it must be 1 at least")
    from libweft.bench.papers.reproduction import reproduce as reproduced
    from libweft.bench.spark.session import spark_session

    asked = {"quick": args.quick, "seed": args.seed, "runs": args.runs, "pictures": args.pictures, "keep": args.keep}
    asked["jobs"] = args.jobs
    session = spark_session(args.master, memory=args.memory, short=args.quick)
    with progress(args.quiet) as tell, resumable(args.keep), session as spark:
        results = reproduced([figure.id for figure in figures], spark=spark, progress=tell, **asked)
    if args.json:
        single = len(args.ids) == 1 and not papers.is_pattern(args.ids[0])
        print_json(results[0] if single else {"figures": results})
    for result in () if args.json else results:
        unused = {name for name in ("costs", "program") if all(row[name] is None for row in result["rows"])}
        rows = [{name: value for name, value in row.items() if name not in unused} for row in result["rows"]]
        about = papers.FIGURES[result["id"]].origin
        print_titled({"title": f"{result['id']}: {result['title']}", "about": about, "rows": rows}, most=len(rows))
        print(result["picture"] or "")
    failed = [f"{result['id']}: {result['error']}" for result in results if "error" in result]
    if failed:
        raise WeftError("; ".join(failed))


def _print_by_paper(figures: Sequence[Listed]) -> None:
    """Print the papers' citations, each with its figures' ids and titles indented under it."""
    from libweft.bench import papers

    width = max(len(figure.id) for figure in figures)
    for paper, group in papers.group_by_paper(figures).items():
        print(paper or "No paper")
        for figure in group:
            print(f"  {figure.id.ljust(width)}  {figure.title}")
