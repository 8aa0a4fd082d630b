"""Files of go-libp2p-pubsub's tracers, read without Spark: both forms alike, and a word about everything that is wrong."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libweft.bench.spark import libp2p_events
from libweft.bench.spark.libp2p_events import ARRIVAL, Report, Row, read_rows
from libweft.peer.libp2p.frame import frame
from libweft.peer.libp2p.pb.trace_pb2 import TraceEvent, TraceEventBatch
from libweft.peer.machine import EPOCH_BITS, MessageId
from libweft.peer.trace.tables import hash63, message_key, node_key
from tests.bench.spark import go_traces as go
from tests.bench.spark.go_traces import BEGIN, FORMS, M1, M2, NEWS, SMALL, A, B, C, Event, as_json, as_protobuf


def read(data: bytes, name: str = "trace") -> tuple[list[Row], Report]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        report = Report(0)
        return list(read_rows(path, report)), report


def rows_of(*events: Event) -> list[tuple[Any, ...]]:
    """kind, topic, msg, peer, lane and reason of what these events become."""
    rows, report = read(as_json(events))
    assert (report.events, report.bad) == (len(events), 0)
    return [row[2:8] for row in rows]


RECORDED = Path(__file__).parent / "recorded"
ONE, TWO = message_key(MessageId(A, (BEGIN + 7) >> EPOCH_BITS, (BEGIN + 7) & ((1 << EPOCH_BITS) - 1))), hash63(M2)
a, b, c = map(node_key, (A, B, C))


def test_a_publish_whose_id_is_of_the_default_form_is_the_message_of_a_weft_trace() -> None:
    [row], _ = read(as_json([go.publish(A, 1.5, M1)]))
    source = (a, (BEGIN + 7) >> EPOCH_BITS, (BEGIN + 7) & ((1 << EPOCH_BITS) - 1))
    assert row == (BEGIN + 1_500, a, "publish", NEWS, ONE, None, None, None, *source)


def test_another_id_is_a_hash_without_a_source() -> None:
    [row], _ = read(as_json([go.publish(B, 0, M2)]))
    assert (row.msg, row.source, row.epoch, row.sequence) == (TWO, None, None, None)


@pytest.mark.parametrize(
    ("event", "rows"),
    [
        (go.deliver(B, 0, M1, A), [("deliver", NEWS, ONE, a, None, None)]),
        (go.duplicate(B, 0, M2, A), [("duplicate", NEWS, TWO, a, None, None)]),
        (go.reject(B, 0, M2, A, "validation failed"), [("reject", NEWS, TWO, a, None, "validation failed")]),
        (go.reject(A, 0, M1, B, "self originated message"), [("duplicate", NEWS, ONE, b, None, "self originated message")]),
        (go.received(B, 0, A, M1, M2), [(ARRIVAL, NEWS, ONE, a, None, None), (ARRIVAL, NEWS, TWO, a, None, None)]),
        (go.received(B, 0, A), []),
        (go.joined(A, 0), [("joined", NEWS, None, None, None, None)]),
        (go.event(A, 0, 10, "leave", topic=NEWS), [("leave", NEWS, None, None, None, None)]),
        (go.event(A, 0, 11, "graft", topic=NEWS, peerID=B), [("graft", NEWS, None, b, None, None)]),
        (go.event(A, 0, 12, "prune", topic=NEWS, peerID=B), [("prune", NEWS, None, b, None, None)]),
        (go.linked(A, B)[0], [("neighbor_up", None, None, b, None, "/meshsub/1.2.0")]),
        (go.event(A, 0, 4, "addPeer", peerID=B, proto="/x"), [("neighbor_up", None, None, b, None, "/x")]),
        (go.event(A, 0, 5, "onClosedOutboundStream", peerID=B), [("neighbor_down", None, None, b, None, None)]),
        (go.event(A, 0, 5, "removePeer", peerID=B), [("neighbor_down", None, None, b, None, None)]),
    ],
)
def test_what_an_event_becomes(event: Event, rows: list[tuple[Any, ...]]) -> None:
    assert rows_of(event) == rows


def test_an_rpc_is_a_row_for_each_message_and_each_kind_of_control() -> None:
    control = {"ihave": [{"topic": NEWS, "messageIDs": [go.b64(M1)]}, {"topic": "x"}], "prune": [{"topic": NEWS}], "iwant": []}
    assert rows_of(go.sent(A, 0, C, M1, M2, control=control, subscription=[{"subscribe": False, "topic": NEWS}])) == [
        ("send", NEWS, ONE, c, "payload", None),
        ("send", NEWS, TWO, c, "payload", None),
        ("send", None, None, c, "control", "subscriptions"),
        ("send", None, None, c, "control", "ihave"),
        ("send", None, None, c, "control", "prune"),
    ]


def test_an_rpc_of_which_nothing_is_told_is_one_control_message() -> None:
    assert rows_of(go.sent(A, 0, C)) == [("send", None, None, c, "control", "other")]


def test_a_dropped_rpc_was_sent_and_taken_back() -> None:
    assert rows_of(go.dropped(A, 0, C, M1)) == [
        ("send", NEWS, ONE, c, "payload", None),
        ("drop", NEWS, ONE, c, "payload", None),
    ]


IDS = st.sampled_from([A, B, C, M1, M2, b"\x12\x20" + bytes(40)]) | st.binary(max_size=60)
TOPICS = st.text(max_size=5)
PARTS = st.lists(st.just({"topic": "x"}), max_size=2)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Event]:
    """Of these fields any."""
    return st.fixed_dictionaries({}, optional=fields)


TEXT = IDS.map(go.b64)
METAS = some(
    messages=st.lists(some(messageID=TEXT, topic=TOPICS), max_size=3),
    subscription=PARTS,
    control=some(ihave=PARTS, iwant=PARTS, graft=PARTS, prune=PARTS, idontwant=PARTS),
)
BODIES = [
    ("publishMessage", some(messageID=TEXT, topic=TOPICS)),
    ("rejectMessage", some(messageID=TEXT, receivedFrom=TEXT, reason=st.sampled_from(["self originated message", "x", ""]))),
    ("duplicateMessage", some(messageID=TEXT, receivedFrom=TEXT, topic=TOPICS)),
    ("deliverMessage", some(messageID=TEXT, receivedFrom=TEXT, topic=TOPICS)),
    ("onNewOutboundStream", some(peerID=TEXT, proto=TOPICS)),
    ("onClosedOutboundStream", some(peerID=TEXT)),
    ("recvRPC", some(receivedFrom=TEXT, meta=METAS)),
    ("sendRPC", some(sendTo=TEXT, meta=METAS)),
    ("dropRPC", some(sendTo=TEXT, meta=METAS)),
    ("join", some(topic=TOPICS)),
    ("leave", some(topic=TOPICS)),
    ("graft", some(peerID=TEXT, topic=TOPICS)),
    ("prune", some(peerID=TEXT, topic=TOPICS)),
]


@st.composite
def events(draw: st.DrawFn) -> Event:
    type_ = draw(st.integers(0, len(BODIES) - 1))
    name, body = BODIES[type_]
    head = {"type": type_, "peerID": draw(TEXT), "timestamp": draw(st.integers(-(1 << 63), (1 << 63) - 1))}
    told = {key: value for key, value in head.items() if draw(st.integers(0, 19))}
    told |= {name: draw(body)} if draw(st.integers(0, 19)) else {}
    return told | ({"type": draw(st.integers(13, 1 << 30))} if not draw(st.integers(0, 19)) else {})


@given(st.lists(events(), min_size=1, max_size=12))
def test_both_forms_of_the_same_events_give_the_same_rows(told: list[Event]) -> None:
    rows, report = read(as_json(told))
    others, other = read(as_protobuf(told))
    batch = TraceEventBatch(batch=[go.message(each) for each in told]).SerializeToString()
    batched, third = read(frame(batch))
    assert rows == others == batched
    for found in (report, other, third):
        assert (found.events, found.bad, found.unknown, found.types, found.cut, found.jump) == (
            *(report.events, report.bad, report.unknown, report.types, "", report.jump),
        )
    assert report.events + report.bad + report.unknown == len(told)


EVENTS = [*SMALL["d"], *SMALL["b"][:4]]


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_is_cut_anywhere_gives_what_is_before_the_cut(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libp2p_events, "CHUNK", 16)
    data = FORMS[form](EVENTS)
    whole, report = read(data, f"x{form}")
    assert report == Report(0, events=len(EVENTS))
    told = []
    for size in range(len(data)):
        rows, report = read(data[:size], f"x{form}")
        assert rows == whole[: len(rows)]
        assert not (report.cut and report.bad)
        told.append(report.events)
        lost = report.events < len(EVENTS)
        assert not lost or report.cut or report.bad or size == 0 or _ends_whole(data[:size], form)
    assert told == sorted(told)
    assert told[-1] >= len(EVENTS) - 1


def _ends_whole(data: bytes, form: str) -> bool:
    """Whether a cut is between two records, which nobody can see."""
    lengths = {len(FORMS[form](EVENTS[:count])) for count in range(len(EVENTS))} if form in (".json", ".pb") else set()
    return len(data) in lengths | {size - 1 for size in lengths if form == ".json"}


@settings(max_examples=300)
@given(st.binary(max_size=200), st.sampled_from(["x.json", "x.pb", "x.json.gz"]))
def test_any_bytes_are_read_to_their_end(data: bytes, name: str) -> None:
    for each in (data, b"{" + data, gzip.compress(data), b"\x1f\x8b" + data):
        rows, report = read(each, name)
        assert len(rows) >= 0 and report.file == 0


@settings(max_examples=200)
@given(st.data())
def test_flipped_bytes_are_noted_or_read(data: st.DataObject) -> None:
    spoiled = bytearray(FORMS[data.draw(st.sampled_from(sorted(FORMS)))](EVENTS))
    spoiled[data.draw(st.integers(0, len(spoiled) - 1))] ^= data.draw(st.integers(1, 255))
    read(bytes(spoiled))


def test_a_line_that_is_no_json_costs_itself_alone() -> None:
    lines = as_json(EVENTS).splitlines(keepends=True)
    rows, report = read(b"".join([lines[0], b"log: hello\n", b"\n", *lines[1:], b"[1]\n", b'{"type":"x"}\n']))
    assert rows == read(as_json(EVENTS))[0]
    assert (report.events, report.bad, report.cut) == (len(EVENTS), 3, "")
    assert report.first_bad.startswith("line 2: it is not the JSON of an event")


def test_a_file_that_is_named_json_may_begin_with_another_line() -> None:
    _, report = read(b"started\n" + as_json(EVENTS), "x.ndjson")
    assert (report.events, report.bad) == (len(EVENTS), 1)


def test_a_protobuf_of_as_many_bytes_as_a_brace_is_no_json() -> None:
    padded = TraceEvent.FromString(go.message(SMALL["d"][0]).SerializeToString())
    padded.onNewOutboundStream.proto += "x" * (123 - padded.ByteSize())
    assert frame(padded.SerializeToString())[:2] == b"{\x08"
    _, report = read(frame(padded.SerializeToString()))
    assert (report.events, report.bad, report.cut) == (1, 0, "")


def test_a_record_that_is_no_event_costs_itself_alone() -> None:
    one = frame(b"\xff\xff\xff")
    rows, report = read(as_protobuf(EVENTS[:1]) + one + as_protobuf(EVENTS[1:]))
    assert rows == read(as_json(EVENTS))[0]
    assert (report.bad, report.cut) == (1, "")
    assert report.first_bad.startswith(f"byte {len(as_protobuf(EVENTS[:1])):,}: this is no TraceEvent")


@pytest.mark.parametrize("chunk", [7, 64, 1 << 18])
@pytest.mark.parametrize("form", [".json", ".pb"])
def test_a_record_over_the_bound_is_passed_by(form: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libp2p_events, "LIMIT", 400)
    monkeypatch.setattr(libp2p_events, "CHUNK", chunk)
    long = go.event(A, 0, 9, "join", topic="x" * 500)
    rows, report = read(FORMS[form]([*EVENTS[:2], long, *EVENTS[2:]]))
    assert rows == read(as_json(EVENTS))[0]
    assert (report.events, report.bad, report.cut) == (len(EVENTS), 1, "")
    assert "it is longer than 400 bytes" in report.first_bad


def test_unknown_types_are_counted_and_named() -> None:
    strange = [{**each, "type": 40 + number} for number, each in enumerate(EVENTS)]
    rows, report = read(as_json([*strange, *strange, *EVENTS]))
    assert rows == read(as_json(EVENTS))[0]
    assert (report.unknown, report.types, report.bad) == (2 * len(EVENTS), [40 + n for n in range(len(EVENTS))], 0)


def test_where_no_length_can_be_read_the_rest_is_given_up() -> None:
    before = as_protobuf(EVENTS)
    _, report = read(before + b"\xff" * 12 + before)
    assert report.events == len(EVENTS)
    assert report.cut.startswith(f"at byte {len(before):,} no record begins")


def test_gzip_streams_one_after_the_other_are_one_file() -> None:
    rows, report = read(gzip.compress(as_json(EVENTS[:2])) + gzip.compress(as_json(EVENTS[2:])))
    assert rows == read(as_json(EVENTS))[0]
    assert (report.bad, report.cut) == (0, "")


def test_a_damaged_gzip_stream_gives_what_is_before_the_damage() -> None:
    data = gzip.compress(as_json(EVENTS)) + b"rubbish"
    _, report = read(data)
    assert report.events == len(EVENTS)
    assert report.cut.startswith("its gzip stream is damaged")


def test_a_file_that_cannot_be_opened_is_told_of(tmp_path: Path) -> None:
    report = Report(0)
    assert list(read_rows(tmp_path / "none.json", report)) == []
    assert report.cut == "it cannot be read: No such file or directory"


def test_the_largest_step_back_of_a_clock_is_kept() -> None:
    _, report = read(as_json([go.joined(A, 10), go.joined(B, 2), go.joined(A, 4), go.joined(B, 3)]))
    assert report.jump == 6_000


def test_numbers_are_read_exactly() -> None:
    """A float would lose the last digits of a time in nanoseconds."""
    [row], _ = read(json.dumps(go.joined(A, 0) | {"timestamp": BEGIN + 123_456_789}).encode())
    assert row.ns == BEGIN + 123_456_789


def test_what_real_nodes_wrote_is_read_alike_in_both_forms() -> None:
    """One event of each sort that came up in a run of go-libp2p-pubsub 0.17.0."""
    forms = [(RECORDED / f"go-libp2p-pubsub-0.17.0.{form}").read_bytes() for form in ("json", "pb")]
    (rows, report), (others, other) = map(read, forms)
    assert rows == others
    assert report == other
    assert (report.events, report.bad, report.unknown, report.cut) == (13, 0, 0, "")
    assert {row.kind for row in rows} == {
        *("joined", "neighbor_up", "graft", "send", "publish", "deliver", ARRIVAL, "duplicate", "neighbor_down")
    }
