"""`weft sim`: flags and a scenario file in, the figures of one simulated run out."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from libweft.bench.cli.flags import add_output_flags
from libweft.bench.cli.show import print_figures, print_json, progress
from libweft.bench.runs import reading
from libweft.bench.runs.replay import to_toml
from libweft.bench.runs.scenario import Scenario, to_dict
from libweft.bench.runs.toml_values import value_of
from libweft.peer.errors import UsageError
from libweft.peer.sim import faults


class Flag(NamedTuple):
    """A flag that sets one key of the scenario; `text` ones are taken as they are, others are read as TOML."""

    name: str
    key: str
    metavar: str
    help: str
    text: bool = False


FLAGS = (
    Flag("--stack", "stack", "STACK", "what the nodes run; see weft stacks", text=True),
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


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)
    add_output_flags(parser)
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


def run(args: argparse.Namespace) -> None:
    scenario = scenario_of(args)
    if args.print:
        sys.stdout.write(to_toml(scenario))
        return
    if args.trace is not None and scenario.trace.level == "none":
        raise UsageError("--trace: nothing would be written, since trace.level is none; leave one of the two out")
    from libweft.bench.runs.run import run as simulate

    with progress(args.quiet) as tell:
        result = simulate(scenario, trace=args.trace, save_faults=args.save_faults, progress=tell)
    if args.json:
        print_json(result)
        return
    print_figures(result)
    if args.trace is not None:
        print(f"The trace is in {args.trace}.")


def scenario_of(args: argparse.Namespace) -> Scenario:
    """The file, then the flags, then `--set`; faults come last, since their time is the warmup that all this set."""
    base = reading.load(args.scenario) if args.scenario is not None else None
    pairs, names = _pairs(args)
    scenario = reading.merge(base, pairs, names)
    added = [*_added_faults(args, scenario.warmup)]
    if not added:
        return scenario
    before = to_dict(scenario)["faults"]
    flags = {f"faults[{len(before) + number}]": flag for number, (flag, _) in enumerate(added)}
    return reading.merge(scenario, [("faults", before + [fault for _, fault in added])], {"faults": "the faults", **flags})


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
    own = [reading.assignment(text) for text in args.set]
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
    return value_of(f"0{text}" if text.startswith(".") else text)
