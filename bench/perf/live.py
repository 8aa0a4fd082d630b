"""`weft bench live`: what a delivery costs in a network of real nodes, beside other libraries' GossipSub.

All nodes of a case are in one process, on loopback, with Noise, Yamux and signed messages; every node subscribes to one topic,
and they publish in turn. The cases take turns, each in a process of its own, so that a busy machine is busy for all: CPU time,
of the whole process, is what counts, and of that the ratio inside a repetition. What is measured when:
`libweft.bench.perf.live_side`.

`weft` is what `PubSub.open` gives by default, HyParView and Plumtree. The rivals speak GossipSub, which sends a message over most
links of its graph; so `weft gossipsub` and `weft flood` are beside them on the same graph, a ring and random links, DEGREE links
a node in the mean. `--stack` chooses others. The rivals are py-libp2p, js-libp2p and, where there is Go, go-libp2p-pubsub, each
as it comes but for what would lose a burst (each program in `bench/perf/rivals` lists it). py-libp2p takes a tenth of the
messages, since it is so much slower, and the rate is one that it can hold.

`--profile` says instead which part of weft takes which share of the CPU time of a burst, as `weft bench link --profile` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import Any

import msgspec

from libweft.bench.perf.child import command
from libweft.bench.perf.link import Child
from libweft.bench.perf.live_side import LIMIT_S, NUMBER, Plan, part_of
from libweft.bench.perf.rivals.programs import LEFT_OUT, Program, go_libp2p, js_libp2p, py_libp2p
from libweft.bench.perf.swarm.plan import percentile
from libweft.bench.progress import Progress
from libweft.peer.errors import UsageError, WeftError
from libweft.pubsub.stacks import find, full_name

DEGREE = 6
LEAST = 20
NODES = range(2, 101)
MESSAGES = range(LEAST, 100_001)  # of a burst; at the rate no more either
SIZES = range(NUMBER, (1 << 16) + 1)

WEFT = Program("this one", tuple(command("libweft.bench.perf.live_side")))
STACKS = {"hyparview/plumtree": "weft", "static/gossipsub": "weft gossipsub", "static/flood": "weft flood"}
RIVALS: dict[str, Callable[[], Program]] = {
    "py-libp2p": lambda: py_libp2p("py_libp2p_live.py"),
    "js-libp2p": lambda: js_libp2p("js_libp2p_live.mjs"),
    "go-libp2p": lambda: go_libp2p("go_libp2p_live"),
}
SHARES = {"py-libp2p": 0.1}  # of the messages asked for

RATIOS = {  # of CPU time a delivery, and what is aimed at
    "py-libp2p / weft": 30.0,
    "py-libp2p / weft gossipsub": 30.0,
    "py-libp2p / weft flood": None,
    "js-libp2p / weft gossipsub": 2.0,
    "go-libp2p / weft gossipsub": None,
}


@dataclass(frozen=True)
class LiveConfig:
    nodes: int = 20
    messages: int = 500
    sizes: tuple[int, ...] = (100, 1024)
    rate: float = 2.0  # a second
    seconds: float = 10.0  # at that rate
    repetitions: int = 3
    rivals: bool = True
    stacks: tuple[str, ...] = tuple(STACKS)

    def __post_init__(self) -> None:
        for stack in self.stacks:
            find(stack, {}, {}, live=True)
        if self.nodes not in NODES or self.messages not in MESSAGES or self.repetitions < 1:
            nodes, messages = (f"{several[0]} to {several[-1]}" for several in (NODES, MESSAGES))
            raise UsageError(f"{nodes} nodes, {messages} messages and at least one repetition")
        if not self.sizes or any(size not in SIZES for size in self.sizes):
            raise UsageError(f"a message has {SIZES[0]} to {SIZES[-1]} bytes")
        if not (self.rate > 0 and self.seconds * self.rate >= 1):
            raise UsageError("--rate is above 0, and --seconds long enough for one message")
        if self.seconds >= LIMIT_S or self.seconds * self.rate > MESSAGES[-1]:
            raise UsageError(f"--seconds is below {LIMIT_S}, and with --rate makes at most {MESSAGES[-1]} messages")

    @property
    def ours(self) -> dict[str, str]:
        """The cases of weft, and their stacks."""
        return {STACKS.get(stack, f"weft {stack}"): stack for stack in map(full_name, self.stacks)}


QUICK = LiveConfig(nodes=6, messages=60, sizes=(100,), seconds=2.0, repetitions=1)


def bench_live(config: LiveConfig, *, progress: Progress | None = None) -> dict[str, Any]:
    """All cases; WeftError when one of them fails. Where a rival cannot be installed, `rivals` says why."""
    tell = progress or (lambda share, word: None)
    rivals: dict[str, Program] = {}
    for name, installed in RIVALS.items():
        tell(0.0, name)
        rivals[name] = installed() if config.rivals else LEFT_OUT
    names = [*config.ours, *(name for name, rival in rivals.items() if rival.words)]
    found: dict[tuple[str, int], list[dict[str, Any]]] = {(name, size): [] for size in config.sizes for name in names}
    for number in range(config.repetitions):
        for place, (name, size) in enumerate(found):
            tell((number + place / len(found)) / config.repetitions, f"{name}, {size} B")
            found[name, size].append(_once(name, plan_of(config, name, size), rivals.get(name, WEFT)))
    return {
        **{name: getattr(config, name) for name in ("nodes", "rate", "seconds", "repetitions")},
        "links": len(graph(config.nodes)),
        "rivals": {name: rival.about for name, rival in rivals.items()},
        "cases": {_label(name, size): _figures(name, size, runs, config.nodes) for (name, size), runs in found.items()},
        "ratios": _ratios(found),
    }


def profile_live(config: LiveConfig, *, progress: Progress | None = None) -> dict[str, Any]:
    """Of each weft case, how many microseconds of CPU time a delivery takes in each part, and in each function."""
    tell = progress or (lambda share, word: None)
    cases = [(name, size) for size in config.sizes for name in config.ours]
    samples: dict[str, Counter[str]] = {_label(*case): Counter() for case in cases}
    spent: dict[str, list[float]] = {_label(*case): [] for case in cases}
    for number in range(config.repetitions):
        for place, (name, size) in enumerate(cases):
            tell((number + place / len(cases)) / config.repetitions, f"{name}, {size} B")
            run = _once(name, plan_of(config, name, size, profiled=True), WEFT)
            samples[_label(name, size)].update(run["burst"]["samples"])
            spent[_label(name, size)].append(_cpu_us(run))
    return {
        "nodes": config.nodes,
        "repetitions": config.repetitions,
        "samples": {case: several.total() for case, several in samples.items()},
        "cpu_us": {case: median(several) for case, several in spent.items()},
        "parts": {case: _shared_out(_by_part(several), median(spent[case])) for case, several in samples.items()},
        "functions": {case: _shared_out(several, median(spent[case])) for case, several in samples.items()},
    }


def plan_of(config: LiveConfig, name: str, size: int, *, profiled: bool = False) -> Plan:
    stack, paced = config.ours.get(name, ""), int(config.rate * config.seconds)
    burst = max(LEAST, round(config.messages * SHARES.get(name, 1.0)))
    return Plan(stack, config.nodes, graph(config.nodes), size, config.nodes, burst, config.rate, paced, profiled)


def graph(nodes: int) -> tuple[tuple[int, int], ...]:
    """A ring and random links; the same each time. The lower number stands first."""
    rng = Random(1)
    edges = {(min(a, b), max(a, b)) for a, b in ((number, (number + 1) % nodes) for number in range(nodes))}
    while len(edges) < min(nodes * DEGREE, nodes * (nodes - 1)) // 2:
        a, b = sorted(rng.sample(range(nodes), 2))
        edges.add((a, b))
    return tuple(sorted(edges))


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    return list(result["cases"].values())


def ratio_rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"CPU time": name, **figures} for name, figures in result["ratios"].items()]


def profile_rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    """One row a part, in microseconds a delivery, then their sum and the number of samples; the JSON has each function too."""
    cases = result["parts"]
    first = next(iter(cases.values()))
    parts = sorted({part for found in cases.values() for part in found}, key=lambda part: -first.get(part, 0.0))
    table = [{"us a delivery": part} | {case: round(found.get(part, 0.0), 1) for case, found in cases.items()} for part in parts]
    return [*table, {"us a delivery": "all", **result["cpu_us"]}, {"us a delivery": "samples", **result["samples"]}]


def _once(name: str, plan: Plan, side: Program) -> dict[str, Any]:
    with Child([*side.words, msgspec.json.encode(plan).decode()], side.folder) as child:
        run = child.hear()
    if not (run["burst"]["deliveries"] and run["paced"]["deliveries"]):
        raise WeftError(f"{name}: nothing was delivered")
    return run


def _label(name: str, size: int) -> str:
    return f"{name}, {size} B"


def _figures(name: str, size: int, runs: Sequence[dict[str, Any]], nodes: int) -> dict[str, Any]:
    """Medians of the repetitions; of what was delivered, the least."""
    spent = [_cpu_us(run) for run in runs]
    return {
        "case": name,
        "size": size,
        "cpu_us": median(spent),
        "least": min(spent),
        "most": max(spent),
        "deliveries_s": median(run["burst"]["deliveries"] / run["burst"]["wall_s"] for run in runs),
        "burst": runs[0]["burst"]["due"],
        "delivered": min(_delivered(run["burst"]) for run in runs),
        "p50_ms": median(percentile(Counter(run["paced"]["ms"]), 0.5) for run in runs),
        "p99_ms": median(percentile(Counter(run["paced"]["ms"]), 0.99) for run in runs),
        "at_rate": min(_delivered(run["paced"]) for run in runs),
        "doubled": max(run[part]["doubled"] for run in runs for part in ("burst", "paced")),
        "kb_a_node": median((run["rss_kb"] - run["base_kb"]) / nodes for run in runs),
        "up_s": median(run["up_s"] for run in runs),
    }


def _cpu_us(run: dict[str, Any]) -> float:
    return 1e6 * float(run["burst"]["cpu_s"]) / int(run["burst"]["deliveries"])


def _delivered(part: dict[str, Any]) -> float:
    return float(part["deliveries"]) / int(part["due"])


def _ratios(found: dict[tuple[str, int], list[dict[str, Any]]]) -> dict[str, dict[str, float | None]]:
    """How many times the CPU time of weft, inside each repetition; then the median, the least and the most."""
    ratios: dict[str, dict[str, float | None]] = {}
    for size in dict.fromkeys(size for _, size in found):
        for name, aim in RATIOS.items():
            theirs, ours = ((side, size) for side in name.split(" / "))
            if theirs in found and ours in found:
                each = [_cpu_us(a) / _cpu_us(b) for a, b in zip(found[theirs], found[ours], strict=True)]
                ratios[_label(name, size)] = {"median": median(each), "least": min(each), "most": max(each), "aim": aim}
    return ratios


def _by_part(samples: Counter[str]) -> Counter[str]:
    parts: Counter[str] = Counter()
    for function, count in samples.items():
        parts[part_of(*function.split(":"))] += count
    return parts


def _shared_out(samples: Counter[str], cpu_us: float) -> dict[str, float]:
    return {name: cpu_us * count / samples.total() for name, count in samples.most_common()}
