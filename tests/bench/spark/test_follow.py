"""A trace that is followed: its table against the analysis, what is kept of it, and files that are none."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from libweft.__main__ import main
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Scenario, Workload
from libweft.bench.spark.follow import Follower, View, compacted, following, reduced, window_figures
from libweft.bench.spark.traces import ROWS
from libweft.peer.machine import SECOND, MessageId
from libweft.peer.trace.kinds import DELIVER, DUPLICATE, JOINED, LEAVE, NODE_DOWN, PUBLISH, SEND
from libweft.peer.trace.tracer import Tracer

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 120
VIEW = View(window=20.0, slack=2.0)
KEPT = ("t", "node", "kind", "topic")


def traced(folder: Path, *rows: tuple[Any, ...]) -> Path:
    tracer = Tracer(folder)
    for row in sorted(rows):
        tracer.emit(*row)
    tracer.close()
    return folder


def frame(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.schema(ROWS).option("pathGlobFilter", "rows-*.parquet").parquet(str(folder))


def at(seconds: float, node: int, kind: str, msg: int | None = None, topic: str | None = "a") -> tuple[Any, ...]:
    return (round(seconds * SECOND), node, kind, topic, None if msg is None else MessageId(0, 1, msg))


def test_the_table_of_a_window(spark: SparkSession, tmp_path: Path) -> None:
    """Of four nodes one is of another topic, and one leaves before the second message's window is over."""
    members = [at(0, node, JOINED) for node in (0, 1, 2)] + [at(0, 3, JOINED, topic="b")]
    first = [at(10, 0, PUBLISH, 1), at(10, 0, DELIVER, 1), at(10.5, 1, DELIVER, 1), at(13, 2, DELIVER, 1)]
    second = [at(11, 0, PUBLISH, 2), at(11.1, 1, DELIVER, 2), at(11.2, 1, DELIVER, 2), at(12.9, 2, LEAVE), at(12.5, 2, JOINED)]
    young = [at(19, 0, PUBLISH, 3), at(19.2, 2, DUPLICATE, 3)]
    sent = [(round(19 * SECOND), 0, SEND, "a", None, None, None, 3, 100)]
    kept = reduced(frame(spark, traced(tmp_path / "run", *members, *first, *second, *young, *sent)))
    found = window_figures(kept, 20 * SECOND, View(window=15.0, slack=2.0))
    assert (found["messages"], found["deliveries"], found["duplicates"]) == (3, 3, 1)
    assert (found["judged"], found["reliability"], found["reliability_min"]) == (2, 0.75, 0.5), "one was late, one had left"
    assert found["latency_ms"] == {"p50": 500.0, "p99": 3_000.0}
    assert found["bytes_per_s"] == pytest.approx(300 / 15) and found["messages_per_s"] == pytest.approx(3 / 15)


def test_a_delivery_that_clocks_put_before_its_publish_counts_and_took_no_time(spark: SparkSession, tmp_path: Path) -> None:
    members = [at(0, node, JOINED) for node in (0, 1, 2)]
    rows = [at(10, 0, PUBLISH, 1), at(9.999, 1, DELIVER, 1), at(8, 2, DELIVER, 1)]
    kept = reduced(frame(spark, traced(tmp_path / "run", *members, *rows)))
    found = window_figures(kept, 20 * SECOND, View(window=15.0, slack=2.0))
    assert (found["deliveries"], found["reliability"]) == (1, 0.5), "one is two seconds before it: no clock of ours"
    assert found["latency_ms"] == {"p50": 0.0, "p99": 0.0}


def test_deliveries_of_what_nobody_here_published_are_counted_apart(spark: SparkSession, tmp_path: Path) -> None:
    rows = [at(0, 1, JOINED), at(10, 0, PUBLISH, 1), at(11, 1, DELIVER, 1), at(11, 1, DELIVER, 2), at(12, 2, DELIVER, 2)]
    found = window_figures(reduced(frame(spark, traced(tmp_path / "run", *rows))), 20 * SECOND, View(window=15.0, slack=2.0))
    assert (found["deliveries"], found["deliveries_unpublished"]) == (1, 2)


def test_what_is_kept_is_the_horizon_and_who_is_joined(spark: SparkSession, tmp_path: Path) -> None:
    old = [at(1, 1, JOINED), at(2, 1, JOINED), at(1, 2, JOINED), at(3, 2, LEAVE), at(1, 3, JOINED)]
    again = [at(4, 3, NODE_DOWN, topic=None), at(5, 3, JOINED), at(1, 4, JOINED, topic="b")]
    gone = [at(1, 0, PUBLISH, 1), at(2, 1, DELIVER, 1)]
    new = [at(11, 4, LEAVE, topic="b"), at(12, 0, PUBLISH, 2)]
    rows = reduced(frame(spark, traced(tmp_path / "run", *old, *again, *gone, *new)))
    kept = compacted(rows, 10 * SECOND)
    wanted = [at(2, 1, JOINED), at(5, 3, JOINED), at(1, 4, JOINED, topic="b"), *new]
    assert sorted(tuple(row) for row in kept.select(*KEPT).collect()) == sorted(row[:4] for row in wanted)
    assert sorted(compacted(kept, 10 * SECOND).collect()) == sorted(kept.collect()), "a second time changes nothing"


def until(follower: Follower, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    end = time.monotonic() + DEADLINE_S
    while not true(found := follower.figures()):
        assert time.monotonic() < end, found
        time.sleep(0.1)
    return found


def has_rows(count: int, found: dict[str, Any]) -> bool:
    return bool(found["rows"] >= count)


def test_files_come_one_by_one_and_the_table_follows(spark: SparkSession, tmp_path: Path) -> None:
    """Half a file, one of other columns and one under way are passed over; the figures are those of the whole run."""
    whole = tmp_path / "whole"
    counted = run(Scenario(nodes=12, window=2.0, workload=Workload(messages=10, rate=2.0)), trace=whole)
    table = pq.read_table(whole / "rows-00000.parquet")
    folder = tmp_path / "followed" / "run"
    folder.mkdir(parents=True)
    (folder / "rows-00000.parquet").write_bytes((whole / "rows-00000.parquet").read_bytes()[:500])
    with following(spark, folder.parent, VIEW) as follower:
        assert follower.figures()["rows"] == 0
        third = len(table) // 3
        for number, begin in enumerate(range(0, len(table), third), 1):
            pq.write_table(table.slice(begin, third), folder / f".rows-{number:05}.parquet.tmp")
            assert not (folder / f"rows-{number:05}.parquet").exists()
            (folder / f".rows-{number:05}.parquet.tmp").rename(folder / f"rows-{number:05}.parquet")
            until(follower, partial(has_rows, min(begin + third, len(table))))
            pq.write_table(pa.table({"t": ["x"], "node": [1.5]}), folder / f"rows-{number + 50:05}.parquet")
        end = table["t"].to_pylist()[-1] + 2 * SECOND
        late = {"t": pa.array([end], pa.int64()), "kind": ["role"], "node": pa.array([0], pa.int64())}
        pq.write_table(pa.table(late), folder / "rows-00090.parquet")  # time goes on, so that all messages are old enough
        found = until(follower, lambda found: found["rows"] == len(table) + 1)
        assert (found["messages"], found["deliveries"], found["judged"]) == (10, counted["deliveries"], 10)
        assert (found["reliability"], found["late_rows"]) == (counted["reliability"], 0)
        assert found["latency_ms"] == {name: pytest.approx(counted["latency_ms"][name]) for name in ("p50", "p99")}


def test_a_time_of_the_far_future_moves_nothing_and_late_rows_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    with following(spark, tmp_path, View(window=1.0, slack=1.0)) as follower:
        traced(tmp_path / "first", at(100, 0, PUBLISH, 1), (1 << 61, 1, PUBLISH, "a", MessageId(1, 1, 1)))
        assert until(follower, lambda found: found["rows"] > 0)["messages"] == 1
        traced(tmp_path / "second", at(1, 0, PUBLISH, 2), at(100, 0, PUBLISH, 3))
        found = until(follower, lambda found: found["rows"] == 3)
        assert (found["messages"], found["late_rows"]) == (2, 1)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--follow", "a", "b"], "follows one folder"),
        (["--follow", "a", "--tables"], "no tables or Parquet"),
        (["--follow", "a", "--report", "no/such/folder/r.html"], "cannot write the report"),
        (["--follow", "a", "--window", "0"], "1 to 3600"),
        (["a", "--window", "5"], "goes with --follow"),
        (["--follow", "a", "--master", "sc://there"], "a Spark of its own"),
    ],
)
def test_what_cannot_be_followed_is_one_line(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", *words]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.live
@pytest.mark.slow
def test_an_interrupt_ends_the_command_cleanly(tmp_path: Path) -> None:
    traced(tmp_path / "run", at(1, 0, PUBLISH, 1))
    report = tmp_path / "live.html"
    command = [sys.executable, "-m", "libweft", "analyze", "--follow", "--json", "--memory", "1g"]
    command += ["--report", str(report), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while not json.loads(process.stdout.readline()).get("messages"):
            pass
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, complaints) == (0, "")
    assert "Ended: this is the last page" in report.read_text(encoding="utf-8")
