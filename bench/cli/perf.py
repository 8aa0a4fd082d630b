"""`weft bench`: what weft itself costs, by one bench for each part of it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from libweft.bench.cli.flags import add_output_flags
from libweft.bench.cli.show import print_figures, print_json, print_rows, progress
from libweft.peer.errors import UsageError, WeftError


class Bench(NamedTuple):
    name: str
    summary: str
    add_flags: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add each bench as a command of its own below `weft bench`."""
    benches = parser.add_subparsers(title="benches", metavar="BENCH")
    for bench in BENCHES:
        described = f"{bench.summary[0].upper()}{bench.summary[1:]}."
        one = benches.add_parser(bench.name, help=bench.summary, description=described, allow_abbrev=False)
        one.set_defaults(run=bench.run, parser=one)
        add_output_flags(one)
        bench.add_flags(one)


def _add_micro(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="smaller and fewer rounds, to see that it works")
    parser.add_argument("--case", action="append", metavar="NAME", help="only this case; may be given again")


def _add_spark(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--events", action="append", metavar="N", help="rows of the trace; may be given again; default: 10000000")
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="after a first that is not counted; default: 3")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="keep the traces there, and use those that are there")
    parser.add_argument("--memory", metavar="SIZE", help="Java's heap, such as 2g; default: a quarter of the machine, 4g at most")


def _add_link(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--messages", type=int, default=200_000, metavar="N", help="slow cases take fewer; default: 200000")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="default: 5")
    parser.add_argument("--no-rivals", action="store_true", help="leave out py-libp2p, which is installed on first use")
    parser.add_argument(
        "--profile", action="store_true", help="instead, say which part of weft takes which share of the CPU time"
    )


def _add_lookups(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=1_000, metavar="N", help="default: 1000")
    parser.add_argument("--lookups", type=int, default=1_000, metavar="N", help="in each phase; default: 1000")
    parser.add_argument("--churn", type=float, default=0.1, metavar="P", help="the share replaced a minute; default: 0.1")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="default: 1")


def _add_load(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--links", type=int, default=1_000, metavar="N", help="default: 1000")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="how long they send; default: 60")
    parser.add_argument(
        "--every", type=float, default=5.0, metavar="S", help="seconds between two messages of a link; default: 5"
    )


def _add_live(parser: argparse.ArgumentParser) -> None:
    stacks = "may be given again; default: hyparview/plumtree, static/gossipsub and static/flood"
    parser.add_argument("--stack", action="append", metavar="STACK", help=stacks)
    parser.add_argument("--quick", action="store_true", help="fewer nodes and messages, to see that it works")
    parser.add_argument("--nodes", type=int, metavar="N", help="default: 20")
    parser.add_argument("--messages", type=int, metavar="N", help="of a burst; py-libp2p takes a tenth; default: 500")
    parser.add_argument("--size", type=int, action="append", metavar="BYTES", help="may be given again; default: 100 and 1024")
    parser.add_argument("--rate", type=float, metavar="N", help="messages a second, for the latencies; default: 2")
    parser.add_argument("--seconds", type=float, metavar="S", help="how long at that rate; default: 10")
    parser.add_argument("--repetitions", type=int, metavar="N", help="default: 3")
    parser.add_argument("--no-rivals", action="store_true", help="leave out other libraries, which are installed on first use")
    parser.add_argument("--profile", action="store_true", help="instead, say which part of weft takes how much of the CPU time")


def _add_swarm(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="20 peers for 10 seconds, and no highest rate: below a minute")
    parser.add_argument("--peers", type=int, metavar="N", help="at the start; default: 50")
    parser.add_argument("--senders", type=int, metavar="N", help="default: 10")
    parser.add_argument("--rate", type=float, metavar="X", help="messages a second of each sender; default: 4")
    parser.add_argument("--seconds", type=float, metavar="S", help="how long they send; default: 60")
    parser.add_argument("--size", type=int, metavar="BYTES", help="of a message; default: 256")
    parser.add_argument("--killed", type=int, metavar="N", help="peers killed meanwhile, drawn among all; default: 10")
    parser.add_argument("--joining", type=int, metavar="N", help="peers that join meanwhile; default: 10")
    parser.add_argument("--processes", type=int, metavar="N", help="beside those that are to be killed; default: 5")
    parser.add_argument("--step", type=float, metavar="S", help="seconds a rate, to find the highest; 0 finds none; default: 5")
    parser.add_argument("--seed", type=int, metavar="N", help="who sends, who is killed, who joins, and when; default: 1")


def bench_micro(args: argparse.Namespace) -> None:
    from libweft.bench.perf.micro import micro

    with progress(args.quiet) as tell:
        result = micro(args.case, args.quick, tell)
    if args.json:
        print_json(result)
    else:
        rows = [{"case": name, **figures} for name, figures in result["cases"].items()]
        for columns in dict.fromkeys(tuple(row) for row in rows):
            print_rows([row for row in rows if tuple(row) == columns])


def bench_spark(args: argparse.Namespace) -> None:
    from libweft.bench.spark.session import require

    require()
    from libweft.bench.spark.speed import bench_spark as measured
    from libweft.bench.spark.speed import rows

    events = [_events(text) for text in args.events or ["10000000"]]
    with progress(args.quiet) as tell:
        result = measured(events, repetitions=args.repetitions, memory=args.memory, folder=args.folder, progress=tell)
    if args.json:
        print_json(result)
    else:
        print_rows(rows(result))


def bench_link(args: argparse.Namespace) -> None:
    from libweft.bench.perf import link

    with progress(args.quiet) as tell:
        if args.profile:
            result = link.profile_link(args.messages, args.repetitions, progress=tell)
        else:
            result = link.bench_link(args.messages, args.repetitions, rivals=not args.no_rivals, progress=tell)
    if args.json:
        print_json(result)
    elif args.profile:
        print_rows(link.profile_rows(result))
    else:
        print_rows(link.rows(result))
        print(f"\npy-libp2p: {result['rivals']['py-libp2p']}\n")
        print_rows(link.ratio_rows(result))


def bench_lookups(args: argparse.Namespace) -> None:
    from libweft.bench.perf import lookups

    with progress(args.quiet) as tell:
        result = lookups.bench_lookups(args.nodes, args.lookups, args.seed, args.churn, tell)
    if args.json:
        print_json(result)
    else:
        print_rows([{"phase": name, **figures} for name, figures in result.pop("phases").items()])
        print()
        print_figures(result)


def bench_load(args: argparse.Namespace) -> None:
    from libweft.bench.perf.load import bench_load as measured

    with progress(args.quiet) as tell:
        result = measured(args.links, args.seconds, args.every, progress=tell)
    print_json(result) if args.json else print_figures(result | {"problems": "; ".join(result["problems"]) or "none"})


def bench_live(args: argparse.Namespace) -> None:
    from dataclasses import replace

    from libweft.bench.perf import live

    asked = {name: getattr(args, name) for name in ("nodes", "messages", "rate", "seconds", "repetitions")}
    asked |= {"sizes": tuple(args.size) if args.size else None, "stacks": tuple(args.stack) if args.stack else None}
    asked |= {"rivals": False if args.no_rivals else None}
    given = {name: value for name, value in asked.items() if value is not None}
    config = replace(live.QUICK if args.quick else live.LiveConfig(), **given)
    with progress(args.quiet) as tell:
        result = (live.profile_live if args.profile else live.bench_live)(config, progress=tell)
    if args.json:
        print_json(result)
    elif args.profile:
        print_rows(live.profile_rows(result))
    else:
        print_rows(live.rows(result))
        print("", *(f"{name}: {about}" for name, about in result["rivals"].items()), sep="\n")
        if result["ratios"]:
            print()
            print_rows(live.ratio_rows(result))


def bench_swarm(args: argparse.Namespace) -> None:
    from libweft.bench.perf.swarm import measure as swarm

    config = swarm.configured(args.quick, {name: value for name, value in vars(args).items() if value is not None})
    with progress(args.quiet) as tell:
        result = swarm.bench_swarm(config, progress=tell)
    if args.json:
        print_json(result)
    else:
        print_figures(swarm.shown(result))
        if steps := swarm.rows(result):
            print()
            print_rows(steps)
    if result["problems"]:
        raise WeftError("; ".join(result["problems"]))
    if not args.json:
        print(swarm.CLAIM)


def _events(text: str) -> int:
    try:
        return int(float(text.replace("_", "")))  # 1e7 is how people write it
    except (ValueError, OverflowError):
        raise UsageError(f"--events {text}: a number, such as 10000000 or 1e7") from None


BENCHES = (
    Bench("micro", "speed and memory of the simulator", _add_micro, bench_micro),
    Bench("spark", "CPU and memory of the analysis on generated traces, beside DuckDB", _add_spark, bench_spark),
    Bench("link", "CPU time of a message between two processes, beside bare TCP and py-libp2p", _add_link, bench_link),
    Bench("lookups", "how true Kademlia's lookups are, calm, under churn and among liars", _add_lookups, bench_lookups),
    Bench("load", "memory and CPU time of a host under many links", _add_load, bench_load),
    Bench("live", "CPU time of a delivery among live nodes in a process, beside py-, js- and go-libp2p", _add_live, bench_live),
    Bench("swarm", "live peers of which some are killed while they talk, beside the simulator", _add_swarm, bench_swarm),
)
