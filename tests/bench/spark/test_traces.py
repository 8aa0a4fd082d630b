"""Bad traces: a clear word or a correct figure, never a silent wrong one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Scenario, Workload
from libweft.bench.spark import traces
from libweft.bench.spark.analysis import figures
from libweft.bench.spark.traces import Run, load_traces, look_over
from libweft.peer.errors import UsageError
from libweft.peer.trace.tracer import Tracer

SCENARIO = Scenario(nodes=30, workload=Workload(messages=5))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound") / "trace"
    run(SCENARIO, trace=folder)
    return folder


@pytest.fixture
def trace(sound: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(sound, tmp_path / "trace"))


def look(folder: Path) -> Run:
    return look_over(0, folder.name, folder)


def manifest(folder: Path, **changes: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def rewrite(folder: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    part = folder / "rows-00000.parquet"
    pq.write_table(change(pq.read_table(part)), part)


def test_a_sound_trace_has_no_warning(trace: Path) -> None:
    found = look(trace)
    assert found.warnings == ()
    assert found.window == 10_000_000
    assert found.manifest["rows"] == pq.read_metadata(trace / "rows-00000.parquet").num_rows


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: None, "there is no such file or folder"),
        (lambda folder: folder.mkdir(), "neither it nor a folder in it has a manifest.json"),
        (lambda folder: folder.write_text("x"), "it is a file"),
    ],
)
def test_a_folder_without_a_trace_is_named(tmp_path: Path, make: Callable[[Path], Any], words: str) -> None:
    make(tmp_path / "here")
    with pytest.raises(UsageError, match=words):
        traces.folders_of([tmp_path / "here"])


def test_a_folder_of_traces_stands_for_them(sound: Path, tmp_path: Path) -> None:
    for name in ("b", "a"):
        shutil.copytree(sound, tmp_path / "runs" / name)
    (tmp_path / "runs" / "notes").mkdir()
    assert [folder.name for folder in traces.folders_of([tmp_path / "runs", sound])] == ["a", "b", "trace"]


def test_a_trace_that_is_named_twice_counts_once(sound: Path) -> None:
    assert traces.folders_of([sound, sound.parent, sound / ".." / sound.name]) == [sound / ".." / sound.name]


def spoil_json(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"schema": 1,')


def half_write(folder: Path) -> None:
    part = folder / "rows-00000.parquet"
    part.write_bytes(part.read_bytes()[: part.stat().st_size // 2])


def empty_file(folder: Path) -> None:
    (folder / "messages-00000.parquet").write_bytes(b"")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda f: (f / "manifest.json").unlink(), "has no manifest.json"),
        (spoil_json, "is not the manifest of a trace"),
        (lambda f: (f / "manifest.json").write_text("[]"), "is not the manifest of a trace"),
        (lambda f: manifest(f, parts="x"), "is not the manifest of a trace"),
        (lambda f: manifest(f, rows="5"), "is not the manifest of a trace"),
        (lambda f: manifest(f, kinds=None), "is not the manifest of a trace"),
        (lambda f: manifest(f, scenario=None), "is not the manifest of a trace"),
        (lambda f: manifest(f, scenario={"window": "abc"}), "is not the manifest of a trace"),
        (lambda f: manifest(f, scenario={"faults": [{"at": None}]}), "is not the manifest of a trace"),
        (lambda f: manifest(f, schema=2), "trace schema 2, this weft reads 1"),
        (lambda f: (f / "rows-00000.parquet").unlink(), "rows-00000.parquet is missing"),
        (lambda f: shutil.move(f / "rows-00000.parquet", f / "rows-00002.parquet"), "rows-00000.parquet is missing"),
        (lambda f: (f / "messages-00000.parquet").unlink(), r"tells of \d+ messages, its files hold 0"),
        (lambda f: manifest(f, parts=3), r"rows-00001.parquet is missing \(2 of 3 parts\)"),
        (lambda f: rewrite(f, lambda t: t.slice(5)), "its manifest tells of"),
        (half_write, "rows-00000.parquet is not a whole Parquet file"),
        (empty_file, "messages-00000.parquet is not a whole Parquet file"),
        (lambda f: rewrite(f, lambda t: t.drop_columns(["hops"])), "lacks hops"),
        (lambda f: rewrite(f, lambda t: t.append_column("more", t["t"])), "has also more"),
        (lambda f: rewrite(f, lambda t: t.set_column(0, "t", t["t"].cast(pa.float64()))), "t is double, not int64"),
    ],
)
def test_a_broken_trace_is_refused(trace: Path, spoil: Callable[[Path], Any], words: str) -> None:
    spoil(trace)
    with pytest.raises(UsageError, match=words):
        look(trace)


def test_the_trace_of_one_live_node_is_warned_of(trace: Path) -> None:
    manifest(trace, live=True)
    (warning,) = look(trace).warnings
    assert "one live node" in warning


@pytest.mark.parametrize("status", ["running", "failed"])
def test_an_unfinished_run_is_warned_of(trace: Path, status: str) -> None:
    manifest(trace, status=status, reason="disk full")
    (warning,) = look(trace).warnings
    assert f"did not finish (status {status}: disk full)" in warning


def test_a_run_that_was_killed_is_read_as_far_as_it_went(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path / "t", batch=10)
    for t in range(35):
        tracer.emit(t, 0, "node_up")
    tracer.hash  # noqa: B018 - hands what was emitted to the files
    found = look(tmp_path / "t")
    assert found.manifest["rows"] == 30
    assert "status running" in found.warnings[0]


def at_times(folder: Path, *rows: tuple[int, int]) -> Path:
    """A trace of (t, node) as they were written, in parts of two rows."""
    tracer = Tracer(folder, batch=2)
    for t, node in rows:
        tracer.emit(t, node, "node_up")
    tracer.close()
    return folder


def test_a_clock_that_jumps_back_is_named_with_its_step(tmp_path: Path) -> None:
    trace = at_times(tmp_path / "t", (1_000_000, 1), (2_000_000, 2), (3_000_000, 1), (500_000, 2), (600_000, 2), (3_000_001, 1))
    (warning,) = look(trace).warnings
    assert "clocks jump back on 1 of the nodes, by 1.5 s on node 2" in warning


def test_clocks_of_two_nodes_may_differ(tmp_path: Path) -> None:
    assert look(at_times(tmp_path / "t", (10, 1), (5, 2), (11, 1), (6, 2), (6, 2))).warnings == ()


def test_a_jump_inside_a_part_is_seen_too(tmp_path: Path) -> None:
    assert "by 7e-06 s on node 1" in look(at_times(tmp_path / "t", (8, 1), (1, 1))).warnings[0]


@pytest.mark.parametrize("sign", [" ", "="])
def test_many_runs_in_one_scan_are_told_apart(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sign: str
) -> None:
    """By names of any kind, and by those that Spark takes for partitions."""
    monkeypatch.setattr(traces, "FEW", 1)
    base = tmp_path / "with [odd] {names} é %20"
    for number in range(3):
        run(Scenario(nodes=12, seed=number, workload=Workload(messages=number + 1)), trace=base / f"run{sign}{number}")
    rows = load_traces(spark, [base]).rows.where("kind = 'publish'").groupBy("run").count().collect()
    assert {row.run: row["count"] for row in rows} == {0: 1, 1: 2, 2: 3}


def test_an_empty_trace_has_no_figures_and_no_error(spark: SparkSession, tmp_path: Path) -> None:
    Tracer(tmp_path / "t").close()
    (found,) = figures(spark, [tmp_path / "t"])
    assert (found["messages"], found["deliveries"], found["reliability"], found["rmr"]) == (0, 0, None, None)


@pytest.mark.slow
def test_ten_thousand_small_files_give_the_right_figures(spark: SparkSession, tmp_path: Path) -> None:
    """One file a row."""
    scenario = Scenario(nodes=100, workload=Workload(messages=17))
    wanted = run(scenario, trace=tmp_path / "whole")
    table = pq.read_table(tmp_path / "whole" / "rows-00000.parquet").slice(0, 10_000)
    many = tmp_path / "many"
    many.mkdir()
    for number in range(10_000):
        pq.write_table(table.slice(number, 1), many / f"rows-{number:05}.parquet")
    shutil.copy(tmp_path / "whole" / "messages-00000.parquet", many)
    shutil.copy(tmp_path / "whole" / "manifest.json", many)
    manifest(many, rows=10_000, parts=10_000)
    pq.write_table(table, tmp_path / "whole" / "rows-00000.parquet")
    manifest(tmp_path / "whole", rows=10_000)
    one, other = figures(spark, [tmp_path / "whole", many])
    assert one["messages"] and one["messages"] <= wanted["messages"]
    same = [name for name in one if name not in ("run", "name", "trace", "ci95", "latency_ms", "reception_ms")]
    assert {name: one[name] for name in same} == {name: pytest.approx(other[name]) for name in same}  # sums in another order
    assert one["latency_ms"] == pytest.approx(other["latency_ms"])
