"""Runs of go-libp2p-pubsub through the whole analysis: a small one whose every figure is worked out on paper in `go_traces`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from libweft.__main__ import main
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Scenario, Workload
from libweft.bench.spark import libp2p
from libweft.bench.spark.analysis import analyze, figures
from libweft.bench.spark.libp2p import PubsubTraces, Told, completed, hops_of
from libweft.bench.spark.sources import load_runs, sources_of
from libweft.peer.errors import UsageError
from libweft.peer.trace.tables import node_key
from tests.bench.spark import go_traces as go
from tests.bench.spark.go_traces import BEGIN, FORMS, NEWS, SMALL, A, B, C, D, as_json, written

ALL = [event for events in SMALL.values() for event in events]
a, b, c, d = map(node_key, (A, B, C, D))


SOUND = [*(f"run{form}" for form in FORMS), "together"]


@pytest.fixture(scope="module")
def analysis(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run of each form, one with all nodes in a file, one with bad files, a node alone that traces little, and a run of the
    simulator: all in one, since planning is the cost."""
    base = tmp_path_factory.mktemp("go")
    folders = [written(base / f"run{form}", SMALL, form) for form in FORMS]
    folders.append(written(base / "together", {"all": sorted(ALL, key=lambda event: event["timestamp"])}, ".json"))
    folders.append(spoiled(base / "bad"))
    written(base, {"alone": [event for event in SMALL["b"] if event["type"] in (0, 3, 11)]}, ".json")
    run(Scenario(nodes=12, workload=Workload(messages=2)), trace=base / "weft")
    return analyze(spark, [*folders, base / "alone.json", base / "weft"], graph=False)


def spoiled(folder: Path) -> Path:
    """The last bytes of a gzip stream are missing, between lines is one that is none, there is a type from the future."""
    written(folder, {name: SMALL[name] for name in "abc"}, ".pb.gz")
    (folder / "d.json").write_bytes(as_json(SMALL["d"]) + b"no JSON\n" + as_json([{**go.joined(D, 0), "type": 99}]))
    (folder / "e.json").write_bytes(b"")
    cut = folder / "c.pb.gz"
    cut.write_bytes(cut.read_bytes()[:-5])
    return folder


def named(analysis: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [found for found in analysis["runs"] if found["name"] == name]
    return dict(found)


def said_of(analysis: dict[str, Any], name: str) -> list[str]:
    return [words.removeprefix(f"{name}: ") for words in analysis["warnings"] if words.startswith(f"{name}: ")]


@pytest.mark.parametrize("name", [*SOUND, "bad"])
def test_the_figures_are_those_that_are_worked_out_on_paper(analysis: dict[str, Any], name: str) -> None:
    found = named(analysis, name)
    assert (found["nodes"], found["stack"], found["seed"], found["window_s"]) == (4, "go-libp2p-pubsub", None, 10.0)
    assert found["status"] == ("damaged" if name == "bad" else "complete")
    assert (found["messages"], found["deliveries"]) == (2, 3)
    assert (found["reliability"], found["reliability_min"]) == (0.75, 0.5)
    assert found["rmr"] == pytest.approx(1 / 3)
    assert found["payload_per_delivery"] == 2.25
    assert found["false_positives"] == 0.2
    assert (found["ldh_mean"], found["ldh_max"]) == (1.5, 2)
    assert found["latency_ms"] == pytest.approx({"mean": 43.51 / 3, "p50": 11.01, "p90": 22.0, "p99": 22.0, "max": 22.0})
    assert found["reception_ms"] == pytest.approx({"mean": 15.2525, "p50": 10.01, "p90": 21.0, "p99": 21.0, "max": 21.0})
    assert found["last_ms"] == 16.25
    assert (found["payload_messages"], found["control_messages"]) == (7, 2)
    assert found["control_per_delivery"] == pytest.approx(2 / 3)
    assert (found["bytes"], found["bytes_per_delivery"]) == (None, None)


def test_a_run_of_weft_beside_them_is_as_ever(analysis: dict[str, Any]) -> None:
    found = named(analysis, "weft")
    assert (found["run"], found["nodes"], found["reliability"]) == (0, 12, 1.0)
    assert found["bytes"] > 0
    assert said_of(analysis, "weft") == []


def test_the_tables_are_those_of_any_trace(analysis: dict[str, Any]) -> None:
    numbers = [named(analysis, name)["run"] for name in SOUND]

    def rows(table: str, number: int = numbers[0]) -> list[list[Any]]:
        return [row[1:] for row in analysis["tables"][table]["rows"] if row[0] == number]

    assert [row[:3] for row in rows("by_topic")] == [[NEWS, 2, 3]]
    assert [row[:2] for row in rows("by_hop")] == [[1, 2], [2, 1]]
    assert {row[0]: row[1:3] for row in rows("load")} == {
        **{"payload": [4, 2.0], "control": [4, 0.5], "receptions": [4, 1.25], "duplicates": [4, 0.5]},
        **{"deliveries": [4, 1.25], "dropped": [4, 0.25]},
    }
    assert "bytes" in {row[0] for row in rows("load", 0)}
    [order] = rows("order")
    assert order == [2, 0, 0, 0, 0, 0], "only m1 has a sequence number, and its stream is of one message"
    assert rows("subscription") == rows("queues") == []
    for table in analysis["tables"]:
        first, *others = (rounded(rows(table, number)) for number in numbers)
        assert others == [first] * len(others)


def rounded(rows: list[list[Any]]) -> list[list[Any]]:
    return [[round(value, 9) if isinstance(value, float) else value for value in row] for row in rows]


def test_what_the_format_does_not_tell_is_said(analysis: dict[str, Any]) -> None:
    words = ["the trace does not tell how long messages are, so it tells nothing of bytes, bytes_per_delivery"]
    assert [said_of(analysis, name) for name in SOUND] == [words] * len(SOUND)


def test_bad_files_are_told_of_and_cost_nothing_else(analysis: dict[str, Any]) -> None:
    words = said_of(analysis, "bad")
    assert words[0] == "c.pb.gz: its gzip stream ends too early"
    assert words[1].startswith("d.json: 1 records could not be read and are left out, the first at line 3: it is not the JSON")
    assert words[1].endswith("1 events of unknown types (99) are left out")
    assert words[2] == "e.json: it is empty"


def test_one_node_alone_is_warned_of_and_what_was_not_traced_is_no_figure(analysis: dict[str, Any]) -> None:
    found = named(analysis, "alone.json")
    assert [found[name] for name in ("messages", "reliability", "rmr", "control_messages")] == [1, None, None, None]
    text = " ".join(said_of(analysis, "alone.json"))
    assert "1 peers are named that have no events here" in text
    assert "the trace has no rows of kind joined, send" in text


def test_rows_and_messages_are_those_of_the_schema(spark: SparkSession, tmp_path: Path) -> None:
    traces = load_runs(spark, [written(tmp_path / "go", SMALL, ".json")])
    found = traces.rows.where("kind IN ('receive', 'publish', 'drop', 'reject')").orderBy("t", "kind", "node").collect()
    begin = BEGIN // 1_000
    shown = [(row.t - begin, row.node, row.kind, row.peer, row.hops, row.copies, row.reason) for row in found]
    assert shown == [
        (1_000_000, a, "publish", None, 0, None, None),
        (1_010_010, b, "receive", a, 1, None, None),
        (1_021_000, c, "receive", b, 2, None, None),
        (1_032_010, d, "receive", c, 3, None, None),
        (2_000_000, b, "publish", None, 0, None, None),
        (2_000_020, b, "drop", c, None, 1, None),
        (2_010_000, a, "receive", b, 1, None, None),
        (2_020_000, c, "receive", a, 2, None, None),
        (2_020_100, c, "reject", a, 2, None, "validation failed"),
    ]
    links = traces.rows.where("kind LIKE 'neighbor%'").collect()
    assert sorted((row.node, row.peer) for row in links if row.kind == "neighbor_up") == sorted(
        [(a, b), (a, c), (b, a), (b, c), (c, a), (c, b), (c, d), (d, c)]
    )
    assert [(row.node, row.peer) for row in links if row.kind == "neighbor_down"] == [(c, d)]
    [message] = traces.messages.collect()
    assert (message.source, (message.epoch << 24) + message.sequence) == (a, BEGIN + 7)
    for frame in traces.held:
        frame.unpersist()


def test_the_data_source_reads_one_file_or_many(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path / "go", SMALL, ".pb.gz")
    monkeypatch.setattr(libp2p, "PACK", 1)
    spark.dataSource.register(PubsubTraces)
    source = spark.read.format("go-libp2p-pubsub")
    assert source.load(str(folder / "d.pb.gz")).where("kind = 'arrival'").count() == 1
    many = source.load([str(path) for path in sorted(folder.iterdir())])
    assert sorted(row.file for row in many.where("kind = 'report'").collect()) == [0, 1, 2, 3]


@pytest.mark.parametrize("data", [b"", b'{"a":1}\n', b"\x1f\x8b"])
def test_a_file_without_an_event_is_refused(spark: SparkSession, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(UsageError, match="not one event of go-libp2p-pubsub could be read"):
        figures(spark, [tmp_path / "x"])


def test_files_are_one_run_and_a_folder_of_folders_is_many(tmp_path: Path) -> None:
    for name in ("one", "two"):
        written(tmp_path / "runs" / name, SMALL, ".json")
        (tmp_path / "runs" / name / "notes.txt").write_text("x")
    (tmp_path / "runs" / "empty").mkdir()
    assert [found.name for found in sources_of([tmp_path / "runs"]).recordings] == ["one", "two"]
    (tmp_path / "rows-00000.parquet").touch()
    with pytest.raises(UsageError, match="is a part of a trace of weft; name its folder"):
        sources_of([tmp_path / "rows-00000.parquet"])
    [loose] = sources_of([tmp_path / "runs" / "one" / "a.json", tmp_path / "runs" / "one" / "b.json"]).recordings
    assert (loose.name, len(loose.files)) == ("one", 2)
    one = tmp_path / "runs" / "one"
    assert [len(found.files) for found in sources_of([one, one / ".." / "one"]).recordings] == [4]


def test_a_folder_of_weft_is_weft_whatever_lies_beside_it(tmp_path: Path) -> None:
    run(Scenario(nodes=12, workload=Workload(messages=1)), trace=tmp_path / "runs" / "weft")
    (tmp_path / "runs" / "figures.json").write_text("{}")
    for path in (tmp_path / "runs", tmp_path / "runs" / "weft"):
        assert sources_of([path]) == ([tmp_path / "runs" / "weft"], [])


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(tmp_path / "none.json")]) == 2
    assert "none.json: there is no such file or folder" in capsys.readouterr().err


def test_hops_are_counted_from_the_publisher_on() -> None:
    assert hops_of([1], {1: None, 2: 1, 3: 2, 4: 3, 5: 1}) == {1: 0, 2: 1, 3: 2, 4: 3, 5: 1}


def test_hops_that_lead_to_no_publisher_are_unknown() -> None:
    assert hops_of([], {2: 1, 3: 2}) == {2: None, 3: None}
    assert hops_of([1], {2: 3, 3: 4, 4: 2, 5: 4, 6: 1}) == {1: 0, 2: None, 3: None, 4: None, 5: None, 6: 1}


def told(node: int, ns: int, kind: str, peer: int | None = None) -> Told:
    return Told(0, 9, ns // 1_000, ns, node, kind, "t", peer, None)


def test_the_first_copy_is_the_reception_whatever_order_rows_come_in() -> None:
    rows = [told(2, 3_002, "deliver", 1), told(2, 3_001, "arrival", 1), told(2, 3_009, "arrival", 3), told(1, 5, "publish")]
    made = [(row[1], row[2], row[3], row[6], row[7]) for row in completed(rows)]
    assert made == [(0, 1, "publish", None, 0), (3, 2, "receive", 1, 1), (3, 2, "deliver", None, 1)]


def test_a_delivery_stands_for_its_reception_where_no_rpc_was_traced() -> None:
    rows = [told(1, 5, "publish"), told(1, 5, "deliver", 1), told(2, 9, "deliver", 1)]
    made = [(row[3], row[6], row[7]) for row in completed(rows)]
    assert made == [("publish", None, 0), ("deliver", None, 0), ("receive", 1, 1), ("deliver", None, 1)]


def test_hops_follow_the_copy_that_is_delivered() -> None:
    """Node 3 has the first copy from the publisher, and delivers the second, from node 2."""
    rows = [told(1, 1, "publish"), told(2, 2, "arrival", 1), told(2, 3, "deliver", 1)]
    rows += [told(3, 4, "arrival", 1), told(3, 5, "arrival", 2), told(3, 6, "deliver", 2), told(4, 7, "arrival", 3)]
    made = [(row[2], row[3], row[6], row[7]) for row in completed(rows) if row[2] > 2]
    assert made == [(3, "receive", 1, 1), (3, "deliver", None, 2), (4, "receive", 3, 3)]


def test_ones_own_message_that_comes_back_is_no_reception() -> None:
    assert [row[3] for row in completed([told(1, 5, "publish"), told(1, 7, "arrival", 2)])] == ["publish"]
    assert [row[3] for row in completed([told(1, 5, "deliver", 1)])] == ["deliver"], "its publish may be lost"
