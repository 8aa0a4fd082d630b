"""Spark's figures against the simulator's own counters, and the commands that show them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from libweft.__main__ import main
from libweft.bench.cli import demo
from libweft.bench.runs import run as run_module
from libweft.bench.runs.replay import command
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Churn, Network, Scenario, TraceSettings, Workload
from libweft.bench.spark.analysis import analyze
from libweft.bench.spark.generate import Generator
from libweft.peer.machine import SECOND
from libweft.peer.sim.faults import Loss, MassCrash, Restart
from tests.conftest import note_replay

CALM = Scenario(nodes=60, workload=Workload(messages=10))
STORMY = Scenario(
    nodes=80,
    seed=7,
    warmup=2.0,
    window=4.0,
    overlay={"degree": 3},
    network=Network(bandwidth=40_000, queue=2_000),
    churn=Churn(session=30.0, subscriptions=20.0, graceful=True),
    workload=Workload(messages=40, rate=5.0, topics=3, interests=1, subscribers=0.6),
    faults=(Loss(at=2.0, p=0.05), MassCrash(at=6.0, share=0.5), Restart(at=4.0, nodes=(1, 2, 3), down=1.0)),
)


KINDS = ("publish", "deliver", "joined", "leave", "node_down", "send")
RUNS = {
    "calm": CALM,
    "stormy": STORMY,
    "full": Scenario(nodes=40, workload=Workload(messages=5), trace=TraceSettings(level="full")),
    "few kinds": Scenario(nodes=20, trace=TraceSettings(kinds=KINDS)),
}


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, dict[str, Any]]:
    """Folders of traces, with what the counters said of each."""
    base = tmp_path_factory.mktemp("runs")
    note_replay(command(STORMY))
    return {base / name: run(scenario, trace=base / name) for name, scenario in RUNS.items()}


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One node's clock is two seconds late: its times are in order, and yet before what they follow from."""
    folder = tmp_path_factory.mktemp("late") / "late clock"
    run(CALM, trace=folder)
    part = folder / "rows-00000.parquet"
    table = pq.read_table(part)
    rows = zip(table["t"].to_pylist(), table["node"].to_pylist(), strict=True)
    pq.write_table(table.set_column(0, "t", [[t - 2 * SECOND if node == 5 else t for t, node in rows]]), part)
    return folder


@pytest.fixture(scope="module")
def analysis(spark: SparkSession, counted: dict[Path, dict[str, Any]], late: Path) -> dict[str, Any]:
    """All of them in one, since most of its time goes to planning whatever the rows are."""
    return analyze(spark, [*counted, late])


def test_spark_equals_the_counters(analysis: dict[str, Any], counted: dict[Path, dict[str, Any]]) -> None:
    for found, wanted in list(zip(analysis["runs"], counted.values(), strict=False))[:3]:
        shared = found.keys() & wanted.keys()
        assert shared >= {"stack", "nodes", "seed", "reliability_min", "false_positives", "ldh_max", "window_s", "trace_hash"}
        for name in shared:
            assert found[name] == approximately(wanted[name]), (found["name"], name)


def approximately(value: Any) -> Any:
    """Counts exactly, ratios to rounding."""
    if isinstance(value, dict):
        return {name: approximately(part) for name, part in value.items()}
    return pytest.approx(value, rel=1e-12) if isinstance(value, float) else value


def test_the_storm_is_one(analysis: dict[str, Any]) -> None:
    """Otherwise the test above shows nothing."""
    stormy = analysis["runs"][1]
    assert 0 < stormy["reliability"] < 1
    assert stormy["false_positives"] > 0
    assert stormy["latency_ms"]["max"] > stormy["latency_ms"]["p50"]


def test_every_table_is_there_and_names_its_runs(analysis: dict[str, Any]) -> None:
    assert len(analysis["tables"]) == 12
    for name, table in analysis["tables"].items():
        assert table["columns"][0] == "run", name
        assert all(len(row) == len(table["columns"]) for row in table["rows"])
    runs = {row[0] for row in analysis["tables"]["over_time"]["rows"]}
    assert runs == {0, 1, 2, 4}, "a run that lacks a table's kinds has no rows in it"
    assert [row[:2] for row in analysis["tables"]["recovery"]["rows"]] == [[1, 2.0], [1, 4.0], [1, 6.0]]
    assert {tuple(row[1:2]) for row in analysis["tables"]["by_topic"]["rows"] if row[0] == 1} == {("t0",), ("t1",), ("t2",)}


def test_floods_deliver_in_no_order_and_the_overlay_is_the_drawn_graph(analysis: dict[str, Any]) -> None:
    order = analysis["tables"]["order"]
    calm = dict(zip(order["columns"], order["rows"][0], strict=True))
    assert calm["fifo_checked"] == analysis["runs"][0]["deliveries"]
    overlay = analysis["tables"]["overlay"]
    last = [dict(zip(overlay["columns"], row, strict=True)) for row in overlay["rows"] if row[0] == 0][-1]
    assert (last["nodes"], last["edges"], last["degree_min"], last["symmetry"], last["components"]) == (60, 300, 5, 1.0, 1)


def test_a_figure_is_null_where_the_trace_lacks_its_kinds(analysis: dict[str, Any], counted: dict[Path, dict[str, Any]]) -> None:
    entry, wanted = analysis["runs"][3], list(counted.values())[3]
    assert entry["reliability"] == wanted["reliability"]
    assert entry["bytes"] == wanted["bytes"]
    assert entry["rmr"] is entry["ci95"]["rmr"] is entry["false_positives"] is entry["reception_ms"]["p50"] is None
    assert any("few kinds: the trace has no rows of kind drop, receive" in warning for warning in analysis["warnings"])
    assert 3 not in {row[0] for row in analysis["tables"]["load"]["rows"]}
    assert 3 in {row[0] for row in analysis["tables"]["by_hop"]["rows"]}


def test_deliveries_before_their_publish_are_warned_of(analysis: dict[str, Any]) -> None:
    told = [warning for warning in analysis["warnings"] if warning.startswith("late clock: ")]
    assert len(told) == 1
    assert "come before their message was published" in told[0]
    assert len(analysis["warnings"]) == 2


@pytest.fixture
def weft(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """The command in this process, on the session that all tests share."""

    @contextmanager
    def shared(*_: object, **__: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("libweft.bench.spark.session.spark_session", shared)

    def call(*words: object) -> tuple[int, str, str]:
        status = main([str(word) for word in words])
        return status, *capsys.readouterr()

    return call


@pytest.fixture
def analysed(analysis: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands get the one analysis that there is."""
    monkeypatch.setattr("libweft.bench.spark.analysis.analyze", lambda *_, **__: analysis)


@pytest.mark.usefixtures("analysed")
def test_analyze_prints_tables_and_names_the_report(
    weft: Callable[..., Any], counted: dict[Path, dict[str, Any]], tmp_path: Path
) -> None:
    status, out, err = weft("analyze", *counted, "--tables", "--report", tmp_path / "r.html")
    assert status == 0
    assert "Latency by hop" in out
    assert out.splitlines()[-1] == str(tmp_path / "r.html")
    assert len(err.splitlines()) == 2 and err.startswith("weft: warning: few kinds")
    assert "<html" in (tmp_path / "r.html").read_text()


def test_one_run_prints_the_keys_of_sim_and_its_parquet_a_row_a_message(
    weft: Callable[..., Any], counted: dict[Path, dict[str, Any]], tmp_path: Path
) -> None:
    words = ("analyze", next(iter(counted)), "--no-graph", "--json", "--parquet", tmp_path / "p")
    status, out, err = weft(*words)
    assert (status, err) == (0, "")
    found, wanted = json.loads(out), next(iter(counted.values()))
    for name in ("reliability", "rmr", "bytes", "trace", "trace_hash", "latency_ms"):
        assert found[name] == found["runs"][0][name] == approximately(wanted[name])
    assert pq.read_table(tmp_path / "p" / "messages").num_rows == 10
    assert pq.read_table(tmp_path / "p" / "nodes").num_rows == 60
    assert {path.name for path in (tmp_path / "p").iterdir()} >= {"by_hop", "order", "load"}
    status, _, err = weft(*words)
    assert (status, "is not empty" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["gone"], "no trace in gone"),
        ([], "required: TRACE"),
        (["{trace}", "--report", "/"], "is a folder"),
        (["{trace}", "--report", "/dev/null/x.html"], "cannot write the report"),
        (["{trace}", "--parquet", "/dev/null/x"], "cannot make the folder"),
    ],
)
def test_analyze_refuses_what_cannot_work(
    weft: Callable[..., Any], counted: dict[Path, dict[str, Any]], words: list[str], told: str
) -> None:
    status, out, err = weft("analyze", *(word.format(trace=next(iter(counted))) for word in words))
    assert (status, out) == (2, "")
    assert told in err
    assert len(err.splitlines()) == 1


@pytest.mark.usefixtures("analysed")
def test_the_demo_needs_no_counters(weft: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: object) -> None:
        raise AssertionError("the demo asked the counters")

    monkeypatch.setattr(run_module, "Counters", broken)
    monkeypatch.setattr(demo, "NODES", 30)
    monkeypatch.setattr(demo, "WEATHER", dict(list(demo.WEATHER.items())[:2]))
    status, out, _ = weft("demo", "--report", tmp_path / "demo.html")
    assert status == 0
    assert out.splitlines()[-1] == f"Open the report in a browser: {tmp_path / 'demo.html'}"
    assert "stormy" in out and "stormy" in (tmp_path / "demo.html").read_text()


@pytest.mark.slow
def test_a_trace_larger_than_the_heap_is_analysed(tmp_path: Path) -> None:
    """Ten million rows of some ninety bytes, where Spark may use less than half of the gigabyte."""
    rows = Generator(seed=3).write(tmp_path / "large", 10_000_000)
    words = ["analyze", str(tmp_path / "large"), "--json", "--no-graph", "--memory", "1g"]
    done = subprocess.run([sys.executable, "-m", "libweft", *words], capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["rows"] == rows
    assert 0.98 < found["reliability"] < 1
