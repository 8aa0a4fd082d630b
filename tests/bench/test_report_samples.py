"""Analyses made by hand for the tests of the report, in the form that `bench.spark.analysis` gives, and a reader of pages.

`sample(runs)` is a flood of a thousand nodes under loss and crashes: as many runs as asked for, every table, numbers of
the size that such runs have. Nothing was measured; the same arguments give the same analysis. `read(text)` is the tree of
a page, and complains of tags that do not nest.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from html.parser import HTMLParser
from random import Random
from typing import Any

import pytest

Rows = list[list[Any]]

WEATHER = ("calm", "10% of copies lost", "30% of nodes crash", "60% of nodes crash", "10% lost, 30% crash")
FLAGS = ("", " --loss 0.1", " --crash 0.3", " --crash 0.6", " --loss 0.1 --crash 0.3")
HARM = (0.0, 0.004, 0.03, 0.19, 0.055)
LOADS = ("payload", "control", "bytes", "received", "duplicates", "delivered", "dropped")
COLUMNS = {
    "by_topic": "run topic messages reliability rmr p50",
    "over_time": "run from_s messages reliability rmr",
    "by_hop": "run hops count mean p50 p99",
    "latency_distribution": "run what low_ms high_ms count",
    "load": "run what count mean p50 p90 p99 max",
    "load_distribution": "run what low high nodes",
    "queues": "run what count mean p50 p90 p99 max",
    "barriers": "run what count mean p50 p90 p99 max",
    "order": "run fifo_checked fifo_violated gapless_checked gapless_violated causal_checked causal_violated",
    "subscription": "run what count mean p50 p90 p99 max",
    "recovery": "run at_s messages lowest recovered_s",
    "overlay": "run time_s nodes edges degree_mean degree_min degree_max symmetry clustering path_mean path_max components "
    "largest_share",
}


def sample(runs: int = 5, seed: int = 1) -> dict[str, Any]:
    chance, numbers = Random(seed), range(runs)
    warning = f"{WEATHER[1]}: the run did not finish (status running); its figures cover what was written"
    found = [_run(number, chance) for number in numbers]
    return {"runs": found, "tables": _tables(numbers, chance), "warnings": [warning] if runs > 1 else []}


def pictured(runs: int = 2, nodes: int = 12) -> dict[str, Any]:
    """The same with a picture a run: a chain of neighbours, some more links, a copy along the chain and others besides."""
    return {**sample(runs), "pictures": [picture(number, nodes) for number in range(runs)]}


def picture(run: int = 0, nodes: int = 12) -> dict[str, Any]:
    """From node 100 to the last one, ten milliseconds a hop; the second node gets a copy too many and grafts the first."""
    numbers = range(100, 100 + nodes)
    chain = [[a, a + 1] for a in numbers[:-1]]
    first = [["first", 10_000 * (hop + 1), 10_000 * hop, a, b] for hop, (a, b) in enumerate(chain)]
    others = [["again", 30_000, 20_000, 102, 101], ["graft", 12_000, 12_000, 101, 100], ["lazy", 15_000, 15_000, 100, 103]]
    links = [*chain, *([[100, 102], [101, 103]] if nodes > 3 else [])]
    events = first + (others if nodes > 3 else [])
    told = {what: sum(event[0] == what for event in events) for what in ("first", "again", "graft", "prune", "lazy")}
    about = {"run": run, "topic": "t0", "publisher": 100, "at_us": 5_000_000, "last_us": 10_000 * nodes, "level": "default"}
    return {**about, "lacks": [], "told": {**told, "links": len(links)}, "nodes": [*numbers], "links": links, "events": events}


def nothing() -> dict[str, Any]:
    return {"runs": [], "tables": {}, "warnings": []}


def hollow(runs: int = 2) -> dict[str, Any]:
    """Every table and every figure is there, and none holds anything."""
    full = sample(runs)
    full["runs"] = [{**dict.fromkeys(run), "run": run["run"], "name": run["name"]} for run in full["runs"]]
    for run in full["runs"]:
        run["latency_ms"] = dict.fromkeys(("mean", "p50", "p90", "p99", "max"))
        run["ci95"] = {"reliability": None, "rmr": [None, None]}
    for table in full["tables"].values():
        table["rows"] = [[row[0]] + [None] * (len(row) - 1) for row in table["rows"][:3]]
    return full


def _run(number: int, chance: Random) -> dict[str, Any]:
    harm, seed = HARM[number % 5] * chance.uniform(0.8, 1.2), 1 + number // 5
    reliability, rmr, hop, last = 1 - harm, 3.0 - 5 * harm + chance.uniform(-0.02, 0.02), 7.34 + 8 * harm, 402.4 + 900 * harm
    deliveries, p50 = round(49_950 * reliability), 176.421 + 400 * harm
    latency = {"mean": p50 + 4.2, "p50": p50, "p90": p50 + 72.3, "p99": p50 + 131.86, "max": p50 + 207.0}
    return {
        "run": number,
        "name": WEATHER[number % 5] + (f", seed {seed}" if seed > 1 else ""),
        "path": f"/traces/{number}",
        "status": "running" if number == 1 else "complete",
        "command": f"weft sim --nodes 1000 --degree 5 --seed {seed} --messages 50 --rate 10.0{FLAGS[number % 5]}",
        "rows": 1_204_117 + number,
        "stack": "static/flood",
        "nodes": 1_000,
        "seed": seed,
        "messages": 50,
        "deliveries": deliveries,
        "reliability": reliability,
        "reliability_min": reliability - 1.7 * harm,
        "rmr": rmr,
        "payload_per_delivery": rmr + 1.004,
        "false_positives": 0.0,
        "ldh_mean": hop,
        "ldh_max": 8 + number % 5,
        "latency_ms": latency,
        "reception_ms": latency,
        "last_ms": last,
        "control_messages": 0,
        "payload_messages": round(deliveries * (rmr + 1)),
        "control_per_delivery": 0.0,
        "bytes": deliveries * 512,
        "bytes_per_delivery": 512.37 + rmr,
        "window_s": 10.0,
        "trace_hash": f"{number:032x}",
        "ci95": {
            "reliability": [reliability - 0.6 * harm, reliability + 0.6 * harm],
            "rmr": [rmr - 0.05, rmr + 0.05],
            "payload_per_delivery": [rmr + 0.95, rmr + 1.06],
            "ldh_mean": [hop - 0.14, hop + 0.16],
            "last_ms": [last - 12.0, last + 12.0],
        },
    }


def _tables(numbers: range, chance: Random) -> dict[str, dict[str, Any]]:
    rows = {
        "by_topic": _by_topic(numbers, chance),
        "over_time": _over_time(numbers, chance),
        "by_hop": _by_hop(numbers, chance),
        "latency_distribution": _latencies(numbers, chance),
        "load": [[n, what, 1_000, 200.0 * chance.random(), 190.0, 240.0, 300.0, 411.0] for n in numbers for what in LOADS],
        "load_distribution": _loads(numbers, chance),
        "queues": [],
        "barriers": [[n, "held back, ms", 49_950, 0.0, 0.0, 0.0, 0.0, 0.0] for n in numbers],
        "order": [[n, 49_950, 12 * n, 48_000, 0, 0, 0] for n in numbers],
        "subscription": [[n, "subscription, ms", 1_000, 0.0, 0.0, 0.0, 0.0, 0.0] for n in numbers],
        "recovery": [[n, 8.0, 220, 1 - 2.1 * HARM[n % 5], None if n % 5 == 3 else 6.5] for n in numbers if n % 5],
        "overlay": _overlay(numbers, chance),
    }
    return {name: _table(name, found) for name, found in rows.items()}


def _table(name: str, rows: Rows) -> dict[str, Any]:
    title = name.replace("_", " ").capitalize()
    about = f"The definition of {title.lower()}, in a sentence."
    return {"title": title, "about": about, "columns": COLUMNS[name].split(), "rows": rows}


def _by_topic(numbers: range, chance: Random) -> Rows:
    share = (1 - HARM[n % 5] * chance.random() for n in numbers for _ in range(2))
    return [[n, f"topic-{topic}", 25, next(share), 3.0, 170.0 + 7 * topic] for n in numbers for topic in range(2)]


def _over_time(numbers: range, chance: Random) -> Rows:
    """After the fault things mend; one second of one run has no message."""
    rows: Rows = []
    for n in numbers:
        for second in range(30):
            harm = HARM[n % 5] * (math.exp(-(second - 8) / 6) if second >= 8 else 0) * chance.uniform(0.7, 1.3)
            rows.append([n, float(second), 10, None if second == 20 and n == 2 else 1 - harm, 3.0 - harm])
    return rows


def _by_hop(numbers: range, chance: Random) -> Rows:
    slow = {n: 38 + 40 * HARM[n % 5] + chance.uniform(-0.5, 0.5) for n in numbers}
    return [[n, hop, 9 * 4**hop % 9_001, slow[n] * hop + 2, slow[n] * hop, 66.0 * hop] for n in numbers for hop in range(1, 9)]


def _latencies(numbers: range, chance: Random) -> Rows:
    rows: Rows = []
    for n in numbers:
        middle = 176 + 400 * HARM[n % 5]
        for what in ("delivery", "reception"):
            for low in range(0, 620, 20):
                count = round(9_000 * math.exp(-(((low + 10 - middle) / 80) ** 2)) * chance.uniform(0.9, 1.1))
                rows.append([n, what, float(low), low + 20.0, count])
        rows.append([n, "held back", 0.0, 0.001, 49_950])
    return rows


def _loads(numbers: range, chance: Random) -> Rows:
    rows: Rows = []
    for n in numbers:
        for what in LOADS:
            heights = [300 * math.exp(-((step - 8) ** 2) / 6) * chance.uniform(0.8, 1.2) for step in range(16)]
            rows += [[n, what, 25 * step, 25 * step + 25, round(height)] for step, height in enumerate(heights)]
    return rows


def _overlay(numbers: range, chance: Random) -> Rows:
    rows: Rows = []
    for n in numbers:
        for second in range(0, 31, 2):
            gone = 0.0 if second < 8 else min(0.6, 4 * HARM[n % 5])
            share, degree = 1 - gone * chance.uniform(0.2, 0.3), 5 * (1 - gone)
            shape = [0.004 + gone / 90, 4.61 + gone, 9, 1 + round(40 * gone), share]
            rows.append([n, float(second), 1_000, 2_500, degree, 0, 9, 1.0, *shape])
    return rows


class Element:
    def __init__(self, tag: str, attributes: dict[str, str | None]) -> None:
        self.tag = tag
        self.attributes = attributes
        self.inside: list[Element | str] = []

    def __getitem__(self, name: str) -> str:
        return self.attributes[name] or ""

    @property
    def classes(self) -> list[str]:
        return (self.attributes.get("class") or "").split()

    @property
    def text(self) -> str:
        return "".join(part if isinstance(part, str) else part.text for part in self.inside)

    def walk(self) -> Iterator[Element]:
        yield self
        for part in self.inside:
            if isinstance(part, Element):
                yield from part.walk()

    def all(self, tag: str, kind: str = "") -> list[Element]:
        return [one for one in self.walk() if one.tag == tag and (not kind or kind in one.classes)]

    def one(self, tag: str, kind: str = "") -> Element:
        (found,) = self.all(tag, kind)
        return found

    def by_id(self, key: str) -> Element:
        (found,) = [one for one in self.walk() if one.attributes.get("id") == key]
        return found


class _Reader(HTMLParser):
    VOID = frozenset({"meta", "input", "br"})

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"<{tag}> has an attribute twice: {attrs}"
        element = Element(tag, dict(attrs))
        self.open[-1].inside.append(element)
        if tag not in self.VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert any(one.tag == "svg" for one in self.open), f"<{tag}/> outside SVG is not closed"
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}> at {self.getpos()}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].inside.append(data)


def read(text: str) -> Element:
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert [one.tag for one in reader.open] == [""], "tags are left open"
    return reader.root


@pytest.mark.parametrize("text", ["<p><b></p></b>", "<p>", "</p>", "<p/>", '<p class="a" class="b"></p>'])
def test_the_reader_complains_about(text: str) -> None:
    with pytest.raises(AssertionError):
        read(text)


@pytest.mark.parametrize("analysis", [sample(), sample(1), sample(40), nothing(), hollow(), pictured()])
def test_a_sample_has_the_form_of_an_analysis(analysis: dict[str, Any]) -> None:
    assert json.loads(json.dumps(analysis)) == analysis
    for table in analysis["tables"].values():
        assert table["columns"][0] == "run"
        assert all(len(row) == len(table["columns"]) for row in table["rows"])


def test_the_same_seed_gives_the_same_sample() -> None:
    assert sample(7, seed=3) == sample(7, seed=3)
    assert sample(7, seed=3) != sample(7, seed=4)
