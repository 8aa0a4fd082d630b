"""The command `weft`: flags in, figures out.

Each command is a function that adds its own parser, in the table `COMMANDS`; what it runs is imported when it runs, so
that help is quick. Figures go to stdout, as a table or with `--json` as one object on the last line; progress and
errors go to stderr. Exit 0 when done, 1 when a run failed, 2 when it was asked for wrongly, 130 when interrupted;
an error is one line that says what to do.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeAlias

import msgspec

from bench import scenario as scenarios
from bench.scenario import Scenario
from bench.show import MOST, print_figures, print_json, print_rows, print_titled, progress
from peer import faults
from peer.errors import UsageError, WeftError

if TYPE_CHECKING:
    from bench.sweep_plan import Plan

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"

class Flag(NamedTuple):
    """A flag that sets one key of the scenario; `text` ones are taken as they are, others are read as TOML."""

    name: str
    key: str
    metavar: str
    help: str
    text: bool = False


FLAGS = (
    Flag("--stack", "stack", "OVERLAY/ROUTER", "what the nodes run; see weft stacks", text=True),
    Flag("--nodes", "nodes", "N", "how many nodes"),
    Flag("--degree", "overlay.degree", "N", "neighbours of a node, where the overlay has such an option"),
    Flag("--seed", "seed", "N", "the same seed gives the same run, to the byte"),
    Flag("--duration", "duration", "S", "virtual seconds at least; a run goes on until the last message's window is over"),
    Flag("--join-every", "join_every", "S", "seconds from one node's start to the next; 0 starts all at once"),
    Flag("--warmup", "warmup", "S", "virtual seconds before the first message"),
    Flag("--window", "window", "S", "seconds in which a message must be delivered to count"),
    Flag("--messages", "workload.messages", "N", "messages published in all"),
    Flag("--rate", "workload.rate", "N", "messages a second, all publishers together"),
    Flag("--arrivals", "workload.arrivals", "HOW", "regular, poisson or phased", text=True),
    Flag("--order", "workload.order", "HOW", "in which messages are delivered: none, fifo or causal", text=True),
    Flag("--size", "workload.size", "BYTES", "payload of a message"),
    Flag("--topics", "workload.topics", "N", "how many topics"),
    Flag("--popularity", "workload.popularity", "HOW", "of topics: uniform, zipf or exponential", text=True),
    Flag("--exponent", "workload.exponent", "X", "of zipf, or the rate of exponential"),
    Flag("--interests", "workload.interests", "N", "topics of each subscriber"),
    Flag("--subscribers", "workload.subscribers", "X", "how many nodes, or with a point which share: 1 is one, 1.0 is all"),
    Flag("--publishers", "workload.publishers", "X", "how many nodes, or with a point which share: 1 is one, 1.0 is all"),
    Flag("--bandwidth", "network.bandwidth", "B/S", "bytes a second a node can send; 0 for no limit"),
    Flag("--queue", "network.queue", "BYTES", "what may wait on a link"),
    Flag("--detection", "network.detection", "S", "seconds until a crash shows as a link going down"),
    Flag("--dial-timeout", "network.dial_timeout", "S", "seconds until a dial that nobody answers fails"),
    Flag("--idle", "network.idle", "S", "seconds after which a link that nobody holds closes"),
    Flag("--churn", "churn.session", "S", "mean seconds a node stays; 0 for no churn"),
    Flag("--churn-correlated", "churn.correlated", "SHARE", "share of the nodes that leave together"),
    Flag("--churn-every", "churn.every", "S", "seconds between two such leaves"),
    Flag("--churn-subscriptions", "churn.subscriptions", "S", "mean seconds a subscription lasts"),
    Flag("--churn-swaps", "churn.swaps", "S", "mean seconds until another node takes over a subscriber's topics"),
    Flag("--churn-start", "churn.start", "S", "when churn begins"),
    Flag("--churn-stop", "churn.stop", "S", "when churn ends"),
    Flag("--trace-level", "trace.level", "LEVEL", "none, default or full (a row a copy)", text=True),
)

SWITCHES = (
    Flag("--codec", "network.codec", "", "pass each message through the real codec"),
    Flag("--churn-replace", "churn.replace", "", "another node joins for each that leaves"),
    Flag("--churn-graceful", "churn.graceful", "", "nodes say goodbye instead of crashing"),
)

LATENCIES: Mapping[str, tuple[str, ...]] = {
    "constant": ("ms",),
    "uniform": ("low", "high"),
    "normal": ("mean", "sd"),
    "lognormal": ("median", "sigma"),
    "matrix": ("file",),
    "vcube-ps": ("setting",),
    "vcube-pb": (),
}
LATENCY_FORMS = "constant:50, uniform:10,100, normal:50,10, lognormal:50,0.5, matrix:FILE, vcube-ps, vcube-ps:program, vcube-pb"


class Parser(argparse.ArgumentParser):
    """argparse prints its usage before an error; one line is enough, and `main` writes it."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see {self.prog} --help)")

    def refuse(self, word: str) -> NoReturn:
        near = get_close_matches(word.partition("=")[0], list(self._option_string_actions), n=1)
        self.error(f"{word} is not understood" + (f"; did you mean {near[0]}?" if near else ""))


def main(argv: Sequence[str] | None = None) -> int:
    _mend_streams()
    try:
        status = _run(_parser(), argv)
        sys.stdout.flush()
        return status
    except UsageError as error:
        return _complain(str(error), 2)
    except BrokenPipeError:
        return _hang_up()
    except OSError as error:
        return _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error), 1)
    except WeftError as error:
        return _complain(str(error), 1)
    except MemoryError:
        return _complain("out of memory; try fewer nodes or messages", 1)
    except KeyboardInterrupt as error:
        return _complain(f"interrupted{error}", 130)


def _mend_streams() -> None:
    """A stream that was closed before we came takes what is written and forgets it; a poor encoding loses no run."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - it lives as long as the process
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run(parser: Parser, argv: Sequence[str] | None) -> int:
    for word in sys.argv[1:] if argv is None else argv:
        if not word.isprintable() and any("\udc80" <= letter <= "\udcff" for letter in word):
            raise UsageError(f"the argument {word!a} is not text in UTF-8")
    args, strange = parser.parse_known_args(argv)
    if strange:
        args.parser.refuse(strange[0])
    if args.version:
        print(f"weft {_version()}")
        return 0
    if args.run is None:
        args.parser.print_help(sys.stderr)
        return 2
    args.run(args)
    return 0


def _parser() -> Parser:
    description = "Peer-to-peer publish/subscribe: live peers that speak libp2p, a simulator, and measures of both."
    parser = Parser(prog="weft", description=description, allow_abbrev=False)
    parser.add_argument("--version", action="store_true", help="print the version and leave")
    parser.set_defaults(run=None, parser=parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for add in COMMANDS:
        add(commands)
    return parser


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("weft")
    except PackageNotFoundError:
        return "0"


def _complain(text: str, status: int) -> int:
    print(f"weft: {' '.join(text.split())}", file=sys.stderr)
    return status


def _hang_up() -> int:
    """Whoever read our output has left; without this, closing stdout at exit would fail again, aloud."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return 1


def _add_sim(commands: Commands) -> None:
    parser = _add(commands, "sim", "run one scenario in the simulator", sim)
    parser.add_argument("scenario", nargs="?", type=Path, metavar="SCENARIO.toml", help="flags override what it says")
    for flag in FLAGS:
        parser.add_argument(flag.name, dest=flag.key, metavar=flag.metavar, help=flag.help)
    for flag in SWITCHES:
        parser.add_argument(flag.name, dest=flag.key, action=argparse.BooleanOptionalAction, help=flag.help)
    parser.add_argument("--latency", metavar="MODEL", help=f"milliseconds: {LATENCY_FORMS}")
    parser.add_argument("--draw", metavar="HOW", help="a latency for each copy, or one for each send: copy or send")
    parser.add_argument("--loss", metavar="P", help="lose each copy with this probability, from the warmup on")
    parser.add_argument("--crash", metavar="SHARE", help="crash this share of the nodes when the warmup is over")
    parser.add_argument("--faults", type=Path, metavar="FILE", help="add the faults of a saved list")
    parser.add_argument("--save-faults", type=Path, metavar="FILE", help="save the faults as they were drawn, to replay them")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any key: --set overlay.graph=ring")
    parser.add_argument("--trace", type=Path, metavar="DIR", help="write the trace there; without it nothing is written")
    parser.add_argument("--kinds", metavar="A,B,C", help="restrict the trace to these kinds of rows")
    parser.add_argument("--print", action="store_true", help="print the scenario as TOML, and run nothing")


def _add_sweep(commands: Commands) -> None:
    parser = _add(commands, "sweep", "run every combination of a grid of scenarios, as Spark tasks", sweep)
    parser.add_argument("plan", type=Path, metavar="SWEEP.toml", help="a base, a grid and variants, and seeds")
    parser.add_argument("--list", action="store_true", help="list the points, and run nothing")
    parser.add_argument("--seeds", type=int, metavar="N", help="how many, in place of what the file says")
    kept = "where the measures of runs are kept, so that an interrupted command goes on when it is repeated; default: weft-runs"
    parser.add_argument("--keep", type=Path, default=Path("weft-runs"), metavar="DIR", help=kept)
    parser.add_argument("--traces", type=Path, metavar="DIR", help="keep the trace of each run too, for weft analyze DIR")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write all measures of all runs there")
    parser.add_argument("--parquet", type=Path, metavar="FILE", help="the same as Parquet")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write an HTML page to look at")
    _add_spark(parser)


def _add_analyze(commands: Commands) -> None:
    parser = _add(commands, "analyze", "compute the figures of traces on Spark", analyze)
    what = "a trace, or a folder of traces; files of go-libp2p-pubsub's tracers are one run, and so is a folder of them"
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE", help=what)
    parser.add_argument("--tables", action="store_true", help="print all tables below the figures")
    page = "write an HTML page to look at; with --follow, again with every table, and the page keeps itself up to date"
    parser.add_argument("--report", type=Path, metavar="FILE", help=page)
    parser.add_argument("--parquet", type=Path, metavar="DIR", help="write all tables in full, into a new folder")
    parser.add_argument("--follow", action="store_true", help="keep the figures of the last minute on the screen, until Ctrl-C")
    parser.add_argument("--window", type=float, metavar="S", help="with --follow: how much of the trace they are of; default: 60")
    parser.add_argument("--no-graph", action="store_true", help="leave out the overlay's quality, which takes longest")
    _add_spark(parser)


def _add_demo(commands: Commands) -> None:
    parser = _add(commands, "demo", "simulate, analyse on Spark, and write a report: the main job in a minute or two", demo)
    parser.add_argument("--report", type=Path, default=Path("weft-demo.html"), metavar="FILE", help="default: weft-demo.html")
    _add_spark(parser)


def _add_reproduce(commands: Commands) -> None:
    parser = _add(commands, "reproduce", "measure a figure of a paper again: the paper's value and ours", reproduce)
    parser.add_argument("ids", nargs="*", metavar="ID", help="which; see --list")
    parser.add_argument("--list", action="store_true", help="list what there is, and run nothing")
    parser.add_argument("--all", action="store_true", help="all of them, in one Spark session")
    parser.add_argument("--quick", action="store_true", help="smaller and fewer runs: under two minutes a figure")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="the seeds of all runs follow from it")
    parser.add_argument("--runs", type=int, metavar="N", help="runs a point, in place of the figure's own number")
    jobs = "runs simulated at a time, as Spark tasks; default: 1, and with --master as many as the cluster takes"
    parser.add_argument("--jobs", type=int, metavar="N", help=jobs)
    parser.add_argument("--pictures", type=Path, default=Path("weft-pictures"), metavar="DIR", help="default: weft-pictures")
    kept = "where the measures of runs are kept, so that an interrupted command goes on when it is repeated; default: weft-runs"
    parser.add_argument("--keep", type=Path, default=Path("weft-runs"), metavar="DIR", help=kept)
    _add_spark(parser)


def _add_spark(parser: Parser) -> None:
    masters = "spark://HOST:PORT, k8s://URL or sc://HOST:PORT; without it SPARK_REMOTE, else Spark runs embedded"
    parser.add_argument("--master", metavar="URL", help=masters)
    parser.add_argument("--memory", metavar="SIZE", help="Java's heap, such as 2g; default: a quarter of the machine, 4g at most")


def _add_stacks(commands: Commands) -> None:
    parser = _add(commands, "stacks", "list the stacks, or the options of one", stacks)
    parser.add_argument("stack", nargs="?", metavar="OVERLAY/ROUTER", help="tell its options, their defaults and what they mean")


def _add_bench(commands: Commands) -> None:
    benches = commands.add_parser("bench", help="measure weft itself", description="Measure weft itself.", allow_abbrev=False)
    benches.set_defaults(parser=benches)
    kinds = benches.add_subparsers(title="benches", metavar="BENCH")
    micro = _add(kinds, "micro", "speed and memory of the simulator", bench_micro)
    micro.add_argument("--quick", action="store_true", help="smaller and fewer rounds, to see that it works")
    micro.add_argument("--case", action="append", metavar="NAME", help="only this case; may be given again")
    spark = _add(kinds, "spark", "CPU and memory of the analysis on generated traces, beside DuckDB", bench_spark)
    spark.add_argument("--events", action="append", metavar="N", help="rows of the trace; may be given again; default: 10000000")
    spark.add_argument("--repetitions", type=int, default=3, metavar="N", help="after a first that is not counted; default: 3")
    spark.add_argument("--folder", type=Path, metavar="DIR", help="keep the traces there, and use those that are there")
    spark.add_argument("--memory", metavar="SIZE", help="Java's heap, such as 2g; default: a quarter of the machine, 4g at most")
    link = _add(kinds, "link", "CPU time of a message between two processes, beside bare TCP and py-libp2p", bench_link)
    link.add_argument("--messages", type=int, default=200_000, metavar="N", help="slow cases take fewer; default: 200000")
    link.add_argument("--repetitions", type=int, default=5, metavar="N", help="default: 5")
    link.add_argument("--no-rivals", action="store_true", help="leave out py-libp2p, which is installed on first use")
    link.add_argument("--profile", action="store_true", help="instead, say which part of weft takes which share of the CPU time")
    lookups = _add(kinds, "lookups", "how true Kademlia's lookups are, calm, under churn and among liars", bench_lookups)
    lookups.add_argument("--nodes", type=int, default=1_000, metavar="N", help="default: 1000")
    lookups.add_argument("--lookups", type=int, default=1_000, metavar="N", help="in each phase; default: 1000")
    lookups.add_argument("--churn", type=float, default=0.1, metavar="P", help="the share replaced a minute; default: 0.1")
    lookups.add_argument("--seed", type=int, default=1, metavar="N", help="default: 1")
    load = _add(kinds, "load", "memory and CPU time of a host under many links", bench_load)
    load.add_argument("--links", type=int, default=1_000, metavar="N", help="default: 1000")
    load.add_argument("--seconds", type=float, default=60.0, metavar="S", help="how long they send; default: 60")
    load.add_argument("--every", type=float, default=5.0, metavar="S", help="seconds between two messages of a link; default: 5")
    live = _add(kinds, "live", "CPU time of a delivery among live nodes in a process, beside py-, js- and go-libp2p", bench_live)
    stacks = "may be given again; default: hyparview/plumtree, static/gossipsub and static/flood"
    live.add_argument("--stack", action="append", metavar="OVERLAY/ROUTER", help=stacks)
    live.add_argument("--quick", action="store_true", help="fewer nodes and messages, to see that it works")
    live.add_argument("--nodes", type=int, metavar="N", help="default: 20")
    live.add_argument("--messages", type=int, metavar="N", help="of a burst; py-libp2p takes a tenth; default: 500")
    live.add_argument("--size", type=int, action="append", metavar="BYTES", help="may be given again; default: 100 and 1024")
    live.add_argument("--rate", type=float, metavar="N", help="messages a second, for the latencies; default: 2")
    live.add_argument("--seconds", type=float, metavar="S", help="how long at that rate; default: 10")
    live.add_argument("--repetitions", type=int, metavar="N", help="default: 3")
    live.add_argument("--no-rivals", action="store_true", help="leave out other libraries, which are installed on first use")
    live.add_argument("--profile", action="store_true", help="instead, say which part of weft takes how much of the CPU time")
    swarm = _add(kinds, "swarm", "live peers of which some are killed while they talk, beside the simulator", bench_swarm)
    swarm.add_argument("--quick", action="store_true", help="20 peers for 10 seconds, and no highest rate: below a minute")
    swarm.add_argument("--peers", type=int, metavar="N", help="at the start; default: 50")
    swarm.add_argument("--senders", type=int, metavar="N", help="default: 10")
    swarm.add_argument("--rate", type=float, metavar="X", help="messages a second of each sender; default: 4")
    swarm.add_argument("--seconds", type=float, metavar="S", help="how long they send; default: 60")
    swarm.add_argument("--size", type=int, metavar="BYTES", help="of a message; default: 256")
    swarm.add_argument("--killed", type=int, metavar="N", help="peers killed meanwhile, drawn among all; default: 10")
    swarm.add_argument("--joining", type=int, metavar="N", help="peers that join meanwhile; default: 10")
    swarm.add_argument("--processes", type=int, metavar="N", help="beside those that are to be killed; default: 5")
    swarm.add_argument("--step", type=float, metavar="S", help="seconds a rate, to find the highest; 0 finds none; default: 5")
    swarm.add_argument("--seed", type=int, metavar="N", help="who sends, who is killed, who joins, and when; default: 1")


def _add_live(commands: Commands) -> None:
    from pubsub.cli import add_commands

    add_commands(lambda name, summary, run: _add(commands, name, summary, run, live=True))


COMMANDS: tuple[Callable[[Commands], None], ...] = (
    *(_add_sim, _add_sweep, _add_analyze, _add_demo, _add_reproduce, _add_stacks, _add_live, _add_bench),
)


def _add(
    commands: Commands, name: str, summary: str, run: Callable[[argparse.Namespace], None], *, live: bool = False
) -> Parser:
    parser = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", allow_abbrev=False)
    parser.set_defaults(run=run, parser=parser)
    how = "a line" if live else "instead of a table"
    parser.add_argument("--json", action="store_true", help=f"print JSON, one object {how}")
    if not live:
        parser.add_argument("--quiet", action="store_true", help="show no progress bar")
    return parser


def sim(args: argparse.Namespace) -> None:
    scenario = scenario_of(args)
    if args.print:
        sys.stdout.write(scenarios.to_toml(scenario))
        return
    if args.trace is not None and scenario.trace.level == "none":
        raise UsageError("--trace: nothing would be written, since trace.level is none; leave one of the two out")
    from bench.run import run

    with progress(args.quiet) as tell:
        result = run(scenario, trace=args.trace, save_faults=args.save_faults, progress=tell)
    if args.json:
        print_json(result)
        return
    print_figures(result)
    if args.trace is not None:
        print(f"The trace is in {args.trace}.")


def sweep(args: argparse.Namespace) -> None:
    from bench import sweep_plan

    plan = sweep_plan.load(args.plan, args.seeds)
    if args.list:
        _list_points(plan, args.json)
        return
    if args.traces is not None and any(point.scenario.trace.level == "none" for point in plan.points):
        raise UsageError("--traces: nothing would be written, since trace.level is none; leave one of the two out")
    from bench import sweep as sweeps
    from bench.kept import Kept
    from bench.spark.session import check

    check(args.master, args.memory)
    sweeps.prepare(args.csv, args.parquet, args.report, traces=args.traces)
    with progress(args.quiet) as tell, _resumable(args.keep):
        pool = partial(_spark_tasks, args.master, args.memory)
        result = sweeps.sweep(plan, pool, Kept(args.keep), traces=args.traces, progress=tell)
    if args.json:
        print_json(result)
    else:
        print_rows(sweeps.table(result))
        print(sweeps.last_line(result))
    if args.csv is not None:
        sweeps.write_csv(args.csv, result["runs"])
    if args.parquet is not None:
        sweeps.write_parquet(args.parquet, result["runs"])
    if args.report is not None:
        from bench import report

        report.write_sweep(result, args.report, title=f"Sweep {args.plan.stem}")
    if result["failures"]:
        _print_failures(result["failures"])
        runs = len(plan.points) * len(plan.seeds)
        others = f"; the others are kept in {args.keep}" if len(result["failures"]) < runs else ""
        raise WeftError(f"{len(result['failures'])} of {runs} runs failed{others}")


def _print_failures(failures: Sequence[Mapping[str, object]]) -> None:
    for failed in failures[:MOST]:
        where = f"{failed['point']}, seed {failed['seed']}"
        print(f"weft: failed: {where}: {failed['error']}; replay: {failed['replay']}", file=sys.stderr)
    if len(failures) > MOST:
        print(f"weft: failed: {len(failures) - MOST:,} more, which --json shows", file=sys.stderr)


def _list_points(plan: Plan, json: bool) -> None:
    rows = [{"point": point.name, "command": scenarios.command(point.scenario)} for point in plan.points]
    if json:
        print_json({"points": rows, "seeds": plan.seeds, "runs": len(rows) * len(plan.seeds)})
        return
    print_rows([{"point": row["point"]} for row in rows])
    print(f"{len(rows)} points x {len(plan.seeds)} seeds = {len(rows) * len(plan.seeds)} runs")


@contextmanager
def _resumable(keep: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(f": what is done is kept in {keep}, and the same command goes on with the rest") from error


@contextmanager
def _spark_tasks(master: str | None, memory: str | None) -> Iterator[Executor]:
    from bench.spark.session import spark_session
    from bench.spark.tasks import SparkExecutor

    with spark_session(master, memory=memory, short=True) as spark, SparkExecutor(spark) as pool:
        yield pool


def analyze(args: argparse.Namespace) -> None:
    if args.follow:
        from bench.follow import follow

        follow(args)
        return
    if args.window is not None:
        raise UsageError("--window goes with --follow; the window of a run is in its manifest")
    from bench.analyze import analyze as analysis_of
    from bench.analyze import comparison

    with progress(args.quiet) as tell:
        analysis = analysis_of(args.traces, args, tell)
    if args.json:
        print_json((analysis["runs"][0] if len(analysis["runs"]) == 1 else {}) | analysis)
        return
    print_rows(comparison(analysis["runs"]))
    for table in analysis["tables"].values() if args.tables else ():
        print_titled(table)
    _print_warnings(analysis["warnings"])
    for path in (args.parquet, args.report):
        if path is not None:
            print(path.resolve())


def demo(args: argparse.Namespace) -> None:
    from bench.demo import demo as result_of_demo

    with progress(args.quiet) as tell:
        result = result_of_demo(args, tell)
    if args.json:
        print_json(result)
        return
    print_rows(result["rows"])
    _print_warnings(result["warnings"])
    print(f"Open the report in a browser: {result['report']}")


def reproduce(args: argparse.Namespace) -> None:
    from bench import papers

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
    from bench.papers.figure import reproduce as reproduced
    from bench.spark.session import spark_session

    asked = {"quick": args.quick, "seed": args.seed, "runs": args.runs, "pictures": args.pictures, "keep": args.keep}
    asked["jobs"] = args.jobs
    session = spark_session(args.master, memory=args.memory, short=args.quick)
    with progress(args.quiet) as tell, _resumable(args.keep), session as spark:
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


def _print_warnings(warnings: Sequence[str]) -> None:
    for warning in warnings:
        print(f"weft: warning: {warning}", file=sys.stderr)


def stacks(args: argparse.Namespace) -> None:
    """Options as `--set` and scenarios take them."""
    from pubsub.options import describe
    from pubsub.stacks import names

    options = describe(args.stack) if args.stack else []
    if args.json:
        print_json({"options": [each._asdict() for each in options]} if args.stack else {"stacks": names()})
        return
    told = [(f"{each.option}={str(each.default).lower()}", each.meaning) for each in options] or [(name, "") for name in names()]
    width = max(len(name) for name, _ in told)
    for name, meaning in told:
        print(f"{name:{width}}  {meaning}".rstrip())
    if options:
        example = f"{options[-1].option}={str(options[-1].default).lower()}"
        print(f"Times are in microseconds. Set one with weft sim --stack {args.stack} --set {example}, or in a scenario's file.")


def bench_micro(args: argparse.Namespace) -> None:
    from bench.micro import micro

    with progress(args.quiet) as tell:
        result = micro(args.case, args.quick, tell)
    if args.json:
        print_json(result)
    else:
        rows = [{"case": name, **figures} for name, figures in result["cases"].items()]
        for columns in dict.fromkeys(tuple(row) for row in rows):
            print_rows([row for row in rows if tuple(row) == columns])


def bench_spark(args: argparse.Namespace) -> None:
    from bench.spark.session import require

    require()
    from bench.spark.speed import bench_spark as measured
    from bench.spark.speed import rows

    events = [_events(text) for text in args.events or ["10000000"]]
    with progress(args.quiet) as tell:
        result = measured(events, repetitions=args.repetitions, memory=args.memory, folder=args.folder, progress=tell)
    if args.json:
        print_json(result)
    else:
        print_rows(rows(result))


def bench_link(args: argparse.Namespace) -> None:
    from bench import link

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


def bench_live(args: argparse.Namespace) -> None:
    from dataclasses import replace

    from bench import live

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


def bench_lookups(args: argparse.Namespace) -> None:
    from bench import lookups

    with progress(args.quiet) as tell:
        result = lookups.bench_lookups(args.nodes, args.lookups, args.seed, args.churn, tell)
    if args.json:
        print_json(result)
    else:
        print_rows([{"phase": name, **figures} for name, figures in result.pop("phases").items()])
        print()
        print_figures(result)


def bench_load(args: argparse.Namespace) -> None:
    from bench.load import bench_load as measured

    with progress(args.quiet) as tell:
        result = measured(args.links, args.seconds, args.every, progress=tell)
    print_json(result) if args.json else print_figures(result | {"problems": "; ".join(result["problems"]) or "none"})


def bench_swarm(args: argparse.Namespace) -> None:
    from bench import swarm

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


def scenario_of(args: argparse.Namespace) -> Scenario:
    """The file, then the flags, then `--set`; faults come last, since their time is the warmup that all this set."""
    base = scenarios.load(args.scenario) if args.scenario is not None else None
    pairs, names = _pairs(args)
    scenario = scenarios.merge(base, pairs, names)
    added = [*_added_faults(args, scenario.warmup)]
    if not added:
        return scenario
    before = scenarios.to_dict(scenario)["faults"]
    flags = {f"faults[{len(before) + number}]": flag for number, (flag, _) in enumerate(added)}
    return scenarios.merge(scenario, [("faults", before + [fault for _, fault in added])], {"faults": "the faults", **flags})


def _pairs(args: argparse.Namespace) -> tuple[list[tuple[str, object]], dict[str, str]]:
    given = {key: value for key, value in vars(args).items() if value is not None}
    pairs: list[tuple[str, object]] = []
    names: dict[str, str] = {}
    for flag in (*FLAGS, *SWITCHES):
        if flag.key in given:
            value = given[flag.key]
            pairs.append((flag.key, value if flag.text or isinstance(value, bool) else _number(value)))
            names[flag.key] = flag.name
    for key, name, value in _shorthands(args):
        pairs.append((key, value))
        names[key] = name
    # A key that is set again by --set is --set's to answer for.
    own = [scenarios.assignment(text) for text in args.set]
    return pairs + own, names | {key: f"--set {key}" for key, _ in own}


def _shorthands(args: argparse.Namespace) -> Iterator[tuple[str, str, object]]:
    """Flags whose text stands for something larger."""
    if args.latency is not None:
        yield "latency", "--latency", _latency(args.latency)
    if args.draw is not None:
        yield "latency.draw", "--draw", args.draw
    if args.kinds is not None:
        yield "trace.kinds", "--kinds", [kind.strip() for kind in args.kinds.split(",") if kind.strip()]


def _latency(text: str) -> dict[str, object]:
    kind, colon, rest = text.partition(":")
    values = [rest] if kind == "matrix" else rest.split(",") if colon else []
    names = LATENCIES.get(kind)
    if names is None or not all(values) or (values and len(values) != len(names)):
        raise UsageError(f"--latency: latency is {text!r}; allowed forms: {LATENCY_FORMS}")
    plain = ("file", "setting")
    given = zip(names, values, strict=False)
    return {"kind": kind} | {name: value if name in plain else _number(value) for name, value in given}


def _added_faults(args: argparse.Namespace, warmup: float) -> Iterator[tuple[str, dict[str, object]]]:
    if args.faults is not None:
        yield from ((f"--faults {args.faults}", msgspec.to_builtins(fault)) for fault in faults.load(args.faults))
    if args.loss is not None:
        yield "--loss", {"kind": "loss", "at": warmup, "p": _number(args.loss)}
    if args.crash is not None:
        yield "--crash", {"kind": "mass_crash", "at": warmup, "share": _number(args.crash)}


def _number(text: str) -> object:
    """As TOML, and as people write on a command line: `.2` is a number too."""
    return scenarios.value_of(f"0{text}" if text.startswith(".") else text)
