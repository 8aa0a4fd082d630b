"""One message of each run, against the rows of its trace read in plain Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Scenario, TraceSettings, Workload
from libweft.bench.spark import picture
from libweft.bench.spark.gather import Facts, gathered
from libweft.bench.spark.traces import load_traces

FEW = ("publish", "deliver", "joined", "leave", "node_down", "send")
RUNS = {
    "flood": Scenario(nodes=30, workload=Workload(messages=7)),
    "full": Scenario(stack="hyparview/plumtree", nodes=30, workload=Workload(messages=5), trace=TraceSettings(level="full")),
    "few kinds": Scenario(nodes=10, trace=TraceSettings(kinds=FEW)),
    "silent": Scenario(nodes=10, workload=Workload(messages=0)),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("runs")
    for name, scenario in RUNS.items():
        run(scenario, trace=base / name)
    return [base / name for name in RUNS]


@pytest.fixture(scope="module")
def known(spark: SparkSession, folders: list[Path]) -> Iterator[Facts]:
    with gathered(load_traces(spark, folders)) as facts:
        yield facts


@pytest.fixture(scope="module")
def found(known: Facts) -> list[dict[str, Any]]:
    return picture.pictures(known)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(sorted(folder.glob("rows-*.parquet"))).to_pylist()
    return rows


def median(rows: list[dict[str, Any]]) -> tuple[dict[str, Any], int]:
    """The publish row of the message whose last delivery took the median time, and that time."""
    publishes = {row["msg"]: row for row in rows if row["kind"] == "publish"}
    last: dict[int, int] = {}
    for row in rows:
        sent = publishes.get(row["msg"])
        if row["kind"] == "deliver" and sent is not None and row["node"] != sent["node"]:
            last[row["msg"]] = max(last.get(row["msg"], 0), row["t"] - sent["t"])
    ordered = sorted((time, msg) for msg, time in last.items())
    time, msg = ordered[(len(ordered) + 1) // 2 - 1]
    return publishes[msg], time


@pytest.mark.parametrize("place", [0, 1])
def test_it_is_the_message_with_the_median_last_delivery(folders: list[Path], found: list[dict[str, Any]], place: int) -> None:
    sent, last = median(rows_of(folders[place]))
    one = found[place]
    assert (one["run"], one["publisher"], one["at_us"], one["last_us"]) == (place, sent["node"], sent["t"], last)


@pytest.mark.parametrize("place", [0, 1])
def test_every_copy_that_came_is_there_with_its_sender(folders: list[Path], found: list[dict[str, Any]], place: int) -> None:
    rows = rows_of(folders[place])
    sent, _ = median(rows)
    kinds = {"receive": "first", "duplicate": "again"}
    own = [row for row in rows if row["msg"] == sent["msg"] and row["kind"] in kinds]
    expected = sorted((kinds[row["kind"]], row["t"] - sent["t"], row["peer"], row["node"]) for row in own)
    told = [event for event in found[place]["events"] if event[0] in kinds.values()]
    assert sorted((what, at, source, target) for what, at, _, source, target in told) == expected
    assert all(left is not None and left <= at for _, at, left, _, _ in told)
    assert [event[1] for event in found[place]["events"]] == sorted(event[1] for event in found[place]["events"])


def test_announcements_are_those_sent_while_it_spread(folders: list[Path], found: list[dict[str, Any]]) -> None:
    rows = rows_of(folders[1])
    sent, _ = median(rows)
    end = max(event[1] for event in found[1]["events"] if event[0] in ("first", "again"))
    lazy = [row for row in rows if row["kind"] == "send" and row["lane"] == "lazy" and 0 <= row["t"] - sent["t"] <= end]
    told = [event for event in found[1]["events"] if event[0] == "lazy"]
    assert sorted((row["t"] - sent["t"], row["node"], row["peer"]) for row in lazy) == sorted((e[1], e[3], e[4]) for e in told)


def test_the_overlay_is_that_of_the_publish(folders: list[Path], found: list[dict[str, Any]]) -> None:
    rows = rows_of(folders[1])
    views: set[tuple[int, int]] = set()
    for row in rows:
        if row["t"] > found[1]["at_us"]:
            break
        if row["kind"] == "neighbor_up":
            views.add((row["node"], row["peer"]))
        elif row["kind"] == "neighbor_down":
            views.discard((row["node"], row["peer"]))
    assert found[1]["links"] == sorted([list(pair) for pair in {(min(pair), max(pair)) for pair in views}])
    assert found[1]["told"]["links"] == len(found[1]["links"]) and found[1]["nodes"] == list(range(30))


def test_runs_without_messages_or_without_the_rows_have_none(found: list[dict[str, Any]]) -> None:
    assert [one["run"] for one in found] == [0, 1]


def test_what_is_found_is_json(found: list[dict[str, Any]]) -> None:
    assert json.loads(json.dumps(found)) == found
    assert [one["level"] for one in found] == ["default", "full"]


def test_a_sample_keeps_the_earliest_first_copies_and_says_what_there_was(
    known: Facts, found: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture, "MOST", 33)
    monkeypatch.setattr(picture, "LINKS", 5)
    less = picture.pictures(known)
    for whole, part in zip(found, less, strict=True):
        assert part["told"] == whole["told"] and len(part["events"]) == 33 and len(part["links"]) == 5
        firsts = [[event for event in one["events"] if event[0] == "first"] for one in (whole, part)]
        assert firsts[0] == firsts[1]
        assert all(event in whole["events"] for event in part["events"])
    assert picture.pictures(known) == less
