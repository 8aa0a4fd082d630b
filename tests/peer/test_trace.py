"""The trace: hash, files, levels, kinds, hops, and what is left behind when a run dies."""

from __future__ import annotations

import builtins
import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libweft.peer.errors import UsageError
from libweft.peer.machine import Lane, MessageId
from libweft.peer.trace import hops as hops_module
from libweft.peer.trace import tables
from libweft.peer.trace.files import read_rows
from libweft.peer.trace.kinds import DELIVER, DUPLICATE, JOINED, KINDS, PUBLISH, RECEIVE, ROLE, SEND, TraceError
from libweft.peer.trace.tracer import Tracer

ROOT = Path(__file__).resolve().parents[2]
M = MessageId(0, 1, 1)
COLUMNS = ["t", "node", "kind", "topic", "msg", "peer", "hops", "copies", "bytes", "lane", "reason", "dependencies"]

FROM_HERE = "import os, signal, sys; from pathlib import Path; from tests.peer.test_trace import *; "


def run(tracer: Tracer, messages: int = 40) -> str | None:
    """Each message is published, sent to three nodes by one call, received and delivered."""
    for i in range(messages):
        m, topic = MessageId(i % 5, 1, i), f"topic {i % 3}"
        tracer.emit(i * 10, i % 5, PUBLISH, topic, m, None, 0, dependencies=(MessageId(0, 1, 0),) if i else ())
        tracer.emit(i * 10, i % 5, SEND, topic, m, None, None, 3, 100 + i, Lane.PAYLOAD)
        tracer.copies(i * 10, i % 5, [5, 6, 7], topic, m, 100 + i, Lane.PAYLOAD)
        for node in (5, 6, 7):
            tracer.emit(i * 10 + node, node, RECEIVE, topic, m, i % 5)
            tracer.emit(i * 10 + node, node, DELIVER, topic, m)
    return tracer.hash


def in_process(code: str, *args: object, seed: str = "0") -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONHASHSEED": seed}
    return subprocess.run([sys.executable, "-c", FROM_HERE + code, *map(str, args)], env=env, capture_output=True, text=True)


ROWS = 40 * 8


def column(directory: Path, name: str) -> list:
    found: list = read_rows(directory).column(name).to_pylist()
    return found


def manifest(directory: Path) -> dict:
    found: dict = json.loads((directory / "manifest.json").read_text())
    return found


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def contents(directory: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.glob("*.parquet")}


class Seen:
    def __init__(self) -> None:
        self.rows: list[tuple] = []

    def observe(self, *row) -> None:
        self.rows.append(row)


def test_the_kinds_are_those_of_the_schema() -> None:
    assert " ".join(KINDS) == (
        "node_up node_down link_up link_down neighbor_up neighbor_down join joined leave publish send receive duplicate"
        " deliver reject drop graft prune queue role"
    )


def test_a_row_comes_back_as_it_was_emitted(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path / "run")
    other = MessageId(4, 2, 9)
    tracer.emit(7, 3, PUBLISH, "news", M, None, 0, dependencies=(other,))
    tracer.emit(8, 3, SEND, "news", M, 5, None, 2, 64, Lane.PAYLOAD)
    tracer.emit(9, 5, "reject", "news", M, 3, 1, None, None, None, "too long")
    tracer.close()
    table = read_rows(tmp_path / "run")
    key = tables.message_key(M)
    assert table.column_names == COLUMNS
    assert [list(row.values()) for row in table.to_pylist()] == [
        [7, 3, "publish", "news", key, None, 0, None, None, None, None, [tables.message_key(other)]],
        [8, 3, "send", "news", key, 5, None, 2, 64, "payload", None, None],
        [9, 5, "reject", "news", key, 3, 1, None, None, None, "too long", None],
    ]


def test_columns_have_the_types_of_schema_version_1(tmp_path: Path) -> None:
    Tracer(tmp_path / "run").close()
    found = {field.name: str(field.type) for field in read_rows(tmp_path / "run").schema}
    word = "dictionary<values=string, indices=int32, ordered=0>"
    assert found == {
        **{"t": "int64", "node": "int64", "kind": word, "topic": word, "msg": "int64", "peer": "int64", "hops": "int32"},
        **{"copies": "int32", "bytes": "int64", "lane": word, "reason": "string", "dependencies": "list<element: int64>"},
    }


@given(cuts=st.lists(st.integers(1, 300), max_size=6), rows=st.integers(0, 300))
def test_the_hash_does_not_see_where_chunks_end(cuts: list[int], rows: int) -> None:
    whole, cut = Tracer(), Tracer()
    for i in range(rows):
        for tracer in (whole, cut):
            tracer.emit(i, i % 7, ROLE, reason=str(i))
        if i in cuts:
            assert cut.hash
    assert whole.hash == cut.hash


def test_the_hash_does_not_see_the_size_of_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = set()
    for size in (1, 15, 16, 17, 1_000, 65_536):
        monkeypatch.setattr("libweft.peer.trace.tracer.CHUNK", size)
        hashes.add(run(Tracer(), 10_000))
    assert len(hashes) == 1


def test_the_hash_is_the_same_whatever_is_written(tmp_path: Path) -> None:
    tracers = [
        Tracer(),
        Tracer(level="full"),
        Tracer(observer=Seen()),
        Tracer(tmp_path / "a"),
        Tracer(tmp_path / "b", batch=3),
        Tracer(tmp_path / "c", kinds=[ROLE]),
        Tracer(tmp_path / "d", level="full"),
        Tracer(tmp_path / "e", level="full", kinds=[SEND], batch=1),
    ]
    assert len({run(tracer) for tracer in tracers}) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"t": 2},
        {"node": 2},
        {"kind": "prune"},
        {"topic": "b"},
        {"msg": MessageId(1, 1, 2)},
        {"peer": 3},
        {"hops": 2},
        {"copies": 2},
        {"size": 2},
        {"lane": Lane.LAZY},
        {"reason": "b"},
        {"dependencies": (M, M)},
    ],
)
def test_the_hash_sees_every_column(change: dict) -> None:
    row: dict = {"t": 1, "node": 1, "kind": "graft", "topic": "a", "msg": M, "peer": 2, "hops": 1, "copies": 1, "size": 1}
    row |= {"lane": Lane.URGENT, "reason": "a", "dependencies": (M,)}
    one, other = Tracer(), Tracer()
    one.emit(**row)
    other.emit(**{**row, **change})
    assert one.hash != other.hash


def test_the_hash_sees_the_order_of_rows() -> None:
    one, other = Tracer(), Tracer()
    for node in (1, 2):
        one.emit(0, node, ROLE)
        other.emit(0, 3 - node, ROLE)
    assert one.hash != other.hash


def test_level_none_has_no_hash_and_still_shows_rows() -> None:
    seen = Seen()
    tracer = Tracer(level="none", observer=seen)
    tracer.emit(0, 0, PUBLISH, "a", M, None, 0)
    tracer.emit(1, 1, RECEIVE, "a", M, 0)
    assert tracer.hash is None
    assert [row[2] for row in seen.rows] == [PUBLISH, RECEIVE]
    assert seen.rows[1][6] == 1, "the observer sees the hops that were filled in"
    tracer.close()
    tracer.abort("late")


@pytest.mark.parametrize("level", ["default", "full"])
def test_files_and_hash_are_the_same_to_the_byte_in_any_process(tmp_path: Path, level: str) -> None:
    code = "tracer = Tracer(Path(sys.argv[1]), level=sys.argv[2], batch=100); print(run(tracer)); tracer.close()"
    hashes, files = [], []
    for seed in ("1", "2"):
        directory = tmp_path / seed
        hashes.append(in_process(code, directory, level, seed=seed).stdout)
        files.append(contents(directory))
    assert hashes[0] == hashes[1] == f"{run(Tracer())}\n"
    assert files[0] == files[1]
    assert len(files[0]) > 2


def test_reading_the_hash_moves_no_file_boundary(tmp_path: Path) -> None:
    for name in ("a", "b"):
        tracer = Tracer(tmp_path / name, batch=10)
        for i in range(35):
            tracer.emit(i, 0, PUBLISH, "a", MessageId(0, 1, i))
            if name == "b":
                assert tracer.hash
        tracer.close()
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_rows_are_cut_into_parts_of_one_batch(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path, batch=100)
    run(tracer)
    tracer.close()
    parts = [f"rows-0000{i}.parquet" for i in range(4)]
    assert [name for name in names(tmp_path) if name.startswith("rows")] == parts
    assert [pq.read_metadata(tmp_path / part).num_rows for part in parts] == [100, 100, 100, 20]
    assert column(tmp_path, "t") == sorted(column(tmp_path, "t"))


def test_parquet_is_zstd_and_holds_no_path(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path / "secret-folder")
    run(tracer)
    tracer.close()
    part = tmp_path / "secret-folder" / "rows-00000.parquet"
    assert pq.ParquetFile(part).metadata.row_group(0).column(0).compression == "ZSTD"
    assert b"secret-folder" not in part.read_bytes()


def test_level_full_has_a_row_a_copy_in_place_of_the_send(tmp_path: Path) -> None:
    for level in ("default", "full"):
        tracer = Tracer(tmp_path / level, level=level)
        run(tracer, 1)
        tracer.close()
    sends = {level: [r for r in read_rows(tmp_path / level).to_pylist() if r["kind"] == SEND] for level in ("default", "full")}
    assert [(r["peer"], r["copies"]) for r in sends["default"]] == [(None, 3)]
    assert [(r["peer"], r["copies"], r["bytes"], r["lane"]) for r in sends["full"]] == [(p, 1, 100, "payload") for p in (5, 6, 7)]
    assert column(tmp_path / "full", "kind")[:4] == [PUBLISH, SEND, SEND, SEND], "copies stand where the call was"


def test_only_the_kinds_asked_for_are_written(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path, kinds=[DELIVER, RECEIVE], batch=50)
    run(tracer)
    tracer.close()
    assert set(column(tmp_path, "kind")) == {DELIVER, RECEIVE}
    assert manifest(tmp_path)["kinds"] == [RECEIVE, DELIVER]
    assert manifest(tmp_path)["rows"] == 40 * 6


def test_messages_map_back_to_their_ids_though_publish_is_not_written(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path, kinds=[DELIVER], batch=10)
    run(tracer)
    tracer.close()
    found = [row for part in sorted(tmp_path.glob("messages-*.parquet")) for row in pq.read_table(part).to_pylist()]
    wanted = [MessageId(i % 5, 1, i) for i in range(40)]
    assert [MessageId(r["source"], r["epoch"], r["sequence"]) for r in found] == wanted
    assert [r["msg"] for r in found] == [tables.message_key(m) for m in wanted]
    assert {r["msg"] for r in found} == set(column(tmp_path, "msg"))


def test_live_nodes_map_back_to_their_peer_ids(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path, batch=2)
    for t, (node, other) in enumerate([(b"alice", b"bob"), (b"bob", b"carol"), (b"alice", b"carol"), (b"carol", b"dave")]):
        tracer.emit(t, node, "link_up", peer=other)
    tracer.close()
    parts = [pq.read_table(part).to_pylist() for part in sorted(tmp_path.glob("nodes-*.parquet"))]
    assert [[row["peer"] for row in part] for part in parts] == [[b"alice", b"bob", b"carol"], [b"dave"]]
    assert parts[0][0]["node"] == tables.node_key(b"alice") == column(tmp_path, "node")[0]


def test_simulated_nodes_are_themselves_and_need_no_table(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path)
    run(tracer)
    tracer.close()
    assert names(tmp_path) == ["manifest.json", "messages-00000.parquet", "rows-00000.parquet"]


@given(st.integers(0, 2**63 - 1) | st.binary(max_size=40), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_a_key_is_a_non_negative_int64_and_a_function_of_the_id(source, epoch: int, sequence: int) -> None:
    key = tables.message_key(MessageId(source, epoch, sequence))
    assert 0 <= key < 2**63
    assert key == tables.message_key(MessageId(source, epoch, sequence))
    assert 0 <= tables.node_key(source) < 2**63


def test_forgotten_keys_change_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (2, 65_536):
        monkeypatch.setattr(tables, "KEYS", size)
        tracer = Tracer(tmp_path / str(size))
        run(tracer)
        tracer.close()
    assert contents(tmp_path / "2") == contents(tmp_path / "65536")


def test_hops_are_those_of_the_sender_plus_one() -> None:
    seen = Seen()
    tracer = Tracer(level="none", observer=seen)
    tracer.emit(0, 9, PUBLISH, "a", M, None, 0)
    tracer.emit(1, 4, RECEIVE, "a", M, 9)
    tracer.emit(2, 700, RECEIVE, "a", M, 4)
    tracer.emit(3, 700, DUPLICATE, "a", M, 9)
    tracer.emit(4, 700, DELIVER, "a", M)
    tracer.emit(5, 5, RECEIVE, "a", M, 700)
    tracer.emit(6, 5, DELIVER, "a", M)
    assert [row[6] for row in seen.rows] == [0, 1, 2, None, 2, 3, 3]


def test_hops_of_the_wire_are_kept_and_count_for_those_after() -> None:
    seen = Seen()
    tracer = Tracer(level="none", observer=seen)
    tracer.emit(0, 0, PUBLISH, "a", M, None, 0)
    tracer.emit(1, 1, RECEIVE, "a", M, 0, 5)
    tracer.emit(2, 1, DELIVER, "a", M)
    tracer.emit(3, 2, RECEIVE, "a", M, 1)
    tracer.emit(4, 2, DELIVER, "a", M, None, 8)
    assert [row[6] for row in seen.rows] == [0, 5, 5, 6, 8]


def test_hops_stay_unknown_where_nothing_tells_them() -> None:
    seen = Seen()
    tracer = Tracer(level="none", observer=seen)
    tracer.emit(0, 1, RECEIVE, "a", M, 0)
    tracer.emit(1, 0, PUBLISH, "a", M, None, 0)
    tracer.emit(2, 1, RECEIVE, "a", M, 3)
    tracer.emit(3, 1, DELIVER, "a", M)
    tracer.emit(4, b"live", PUBLISH, "a", MessageId(b"live", 1, 1), None, 0)
    tracer.emit(5, b"other", RECEIVE, "a", MessageId(b"live", 1, 1), b"live")
    assert [row[6] for row in seen.rows] == [None, 0, None, None, 0, None]


def test_hop_tables_are_bounded_and_the_oldest_message_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("libweft.peer.trace.tracer.HOPS_BYTES", 1_024)
    seen = Seen()
    tracer = Tracer(level="none", observer=seen)
    messages = [MessageId(0, 1, i) for i in range(100)]
    for m in messages:
        tracer.emit(0, 0, PUBLISH, "a", m, None, 0)
    seen.rows.clear()
    for m in messages:
        tracer.emit(1, 1, RECEIVE, "a", m, 0)
    known = [row[6] for row in seen.rows]
    assert known == [None] * 92 + [1] * 8, "64 nodes of two bytes each: eight tables"
    assert tracer._hops._held <= 1_024


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 400), st.integers(0, 400)), max_size=60))
def test_hop_tables_never_hold_more_than_they_may(events: list[tuple[int, int, int]]) -> None:
    hops = hops_module.Hops(2_048)
    for sequence, node, sender in events:
        m = MessageId(0, 1, sequence)
        hops.fill(PUBLISH, sender, m, None, 0)
        hops.fill(RECEIVE, node, m, sender, None)
        assert hops._held == sum(2 * len(table) for table in hops._tables.values()) <= 2_048


def test_a_node_beyond_the_limit_takes_no_memory() -> None:
    tracer = Tracer(level="none")
    tracer.emit(0, 0, PUBLISH, "a", M, None, 0)
    tracer.emit(0, 1 << 60, RECEIVE, "a", M, 0)
    assert tracer._hops._held == 128, "still the one table of 64 nodes"


def test_the_manifest_is_there_at_once_and_completed_at_the_end(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path, manifest={"seed": 7, "stack": "static/flood", "status": "mine"})
    first = manifest(tmp_path)
    assert (first["status"], first["schema"], first["level"], first["seed"]) == ("running", 1, "default", 7)
    assert first["kinds"] == list(KINDS)
    digest = run(tracer)
    tracer.close(wall_s=1.5)
    last = manifest(tmp_path)
    assert (last["status"], last["wall_s"], last["stack"], last["rows"]) == ("complete", 1.5, "static/flood", ROWS)
    assert last["trace_hash"] == digest


def test_closing_twice_or_aborting_after_it_changes_nothing(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path)
    run(tracer)
    tracer.close()
    before = manifest(tmp_path)
    tracer.close(late=True)
    tracer.abort("late")
    assert manifest(tmp_path) == before


def test_an_aborted_run_keeps_its_rows_and_says_why(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path)
    run(tracer)
    tracer.abort("node 3 raised")
    assert read_rows(tmp_path).num_rows == ROWS
    assert (manifest(tmp_path)["status"], manifest(tmp_path)["reason"]) == ("failed", "node 3 raised")


def test_file_work_is_accounted_apart(tmp_path: Path) -> None:
    tracer, plain = Tracer(tmp_path), Tracer()
    run(tracer, 2_000)
    run(plain)
    tracer.close()
    assert tracer.io_cpu_s > 0
    assert plain.io_cpu_s == 0


def test_a_killed_run_leaves_readable_parts(tmp_path: Path) -> None:
    done = in_process("run(Tracer(Path(sys.argv[1]), batch=100)); os.kill(os.getpid(), signal.SIGKILL)", tmp_path / "run")
    assert done.returncode == -signal.SIGKILL
    assert read_rows(tmp_path / "run").num_rows == 300
    assert manifest(tmp_path / "run")["status"] == "running"
    kept = {key for part in (tmp_path / "run").glob("messages-*.parquet") for key in pq.read_table(part)["msg"].to_pylist()}
    assert set(column(tmp_path / "run", "msg")) <= kept


def full_disk(table, where, **_) -> None:
    Path(where).write_bytes(b"PAR1 and then no more")
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("level", ["default", "full"])
def test_a_full_disk_leaves_no_part_that_looks_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level) -> None:
    tracer = Tracer(tmp_path, level=level, batch=10)
    for i in range(10):
        tracer.emit(i, 0, ROLE)
    assert tracer.hash
    monkeypatch.setattr(pq, "write_table", full_disk)
    with pytest.raises(TraceError) as caught:
        for i in range(10, 20):
            tracer.emit(i, 0, ROLE)
        assert tracer.hash
    assert "No space left on device" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == ["manifest.json", "rows-00000.parquet"]
    assert read_rows(tmp_path).num_rows == 10


def test_after_a_full_disk_the_tracer_is_dead_but_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracer = Tracer(tmp_path, batch=10)
    with monkeypatch.context() as patch:
        patch.setattr(pq, "write_table", full_disk)
        with pytest.raises(TraceError):
            run(tracer)
    run(tracer)
    assert tracer._files is not None
    assert not tracer._files._pending, "nothing piles up for files that will never be"
    with pytest.raises(TraceError):
        tracer.close()
    tracer.abort("disk full")
    assert names(tmp_path) == ["manifest.json"]
    assert manifest(tmp_path)["status"] == "failed"


def test_a_hash_is_right_after_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracer = Tracer(tmp_path, batch=10)
    monkeypatch.setattr(pq, "write_table", full_disk)
    with pytest.raises(TraceError):
        run(tracer)
    assert tracer.hash == run(Tracer())


def test_abort_never_raises_though_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracer = Tracer(tmp_path / "run")
    run(tracer)

    def refuse(*_) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full_disk)
    monkeypatch.setattr(os, "replace", refuse)
    tracer.abort("ran out")
    tracer.abort("again")
    assert names(tmp_path / "run") == ["manifest.json"]
    assert manifest(tmp_path / "run")["status"] == "running", "the old manifest is whole"


def test_a_full_disk_at_the_last_manifest_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracer = Tracer(tmp_path)
    run(tracer)

    def refuse(*_, **__) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(TraceError, match="No space left"):
        tracer.close()
    assert manifest(tmp_path)["status"] == "running"


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        Tracer(tmp_path)
    assert names(tmp_path) == ["notes.txt"]


def test_a_folder_that_cannot_be_made_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for where in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UsageError, match="cannot make the trace folder") as caught:
            Tracer(where)
        assert "\n" not in str(caught.value)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_, **__) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(UsageError, match=r"cannot write to the trace folder .*: Permission denied"):
        Tracer(tmp_path)
    assert names(tmp_path) == []


def test_without_pyarrow_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args, **kwargs):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    assert run(Tracer()), "the hash needs none"
    with pytest.raises(UsageError, match=r"pip install 'libweft\[trace\]'"):
        Tracer(tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [({"kinds": ["sned"]}, "no trace kind sned"), ({"level": "all"}, "no trace level 'all'"), ({"batch": 0}, "at least one row")],
)
def test_a_wrong_option_is_refused_at_once(tmp_path: Path, options: dict, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        Tracer(tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_level_none_with_a_folder_is_a_contradiction(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="level none writes no files"):
        Tracer(tmp_path, level="none")


def test_reading_where_there_is_no_trace_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no trace in"):
        read_rows(tmp_path)


def test_a_temporary_file_is_not_read(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path)
    tracer.emit(0, 0, JOINED, "a")
    tracer.close()
    (tmp_path / ".rows-00001.parquet.tmp").write_bytes(b"half")
    assert read_rows(tmp_path).num_rows == 1


def test_without_a_hash_the_files_are_the_same_and_other_kinds_are_not_kept(tmp_path: Path) -> None:
    rows = []
    for hashed in (True, False):
        folder = tmp_path / str(hashed)
        tracer = Tracer(folder, kinds=(DELIVER,), hashed=hashed)
        assert tracer.heeds(SEND) is hashed
        tracer.emit(1, 0, PUBLISH, "t", MessageId(0, 0, 1))
        tracer.emit(2, 1, RECEIVE, "t", MessageId(0, 0, 1), 0)
        tracer.emit(2, 1, DELIVER, "t", MessageId(0, 0, 1), 0)
        assert (tracer.hash is not None) is hashed
        tracer.close()
        rows.append(pq.read_table(next(folder.glob("rows-*.parquet"))).to_pylist())
    assert rows[0] == rows[1]
    assert [row["hops"] for row in rows[0]] == [1], "the hops are those of a reception that is not kept"
