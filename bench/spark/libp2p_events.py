"""Trace files of go-libp2p-pubsub, an event at a time, as rows of weft's trace.

Its tracers write a JSON object a line (`NewJSONTracer`) or protobufs with their length before them (`NewPBTracer`); the
daemon that gathers them from afar writes the second, in gzip, and what goes to it is batches of the same. Which it is
shows in the first bytes. What each event becomes is told in `docs/architecture.md`, "Traces of go-libp2p-pubsub".

Above it promises: every event that can be read, in the order of the file, and a `Report` of what could not be; no file,
whatever is in it, raises or hangs. Bounds: a record of LIMIT bytes, and what is over it is passed by; ids cached as in
`libweft.peer.trace`; numbers of unknown types, STRANGE of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias, cast

import msgspec

from libweft.peer.errors import PeerError
from libweft.peer.libp2p.frame import VARINT_BYTES, read_uvarint
from libweft.peer.libp2p.pb import parse
from libweft.peer.libp2p.pb.trace_pb2 import TraceEvent, TraceEventBatch
from libweft.peer.machine import EPOCH_BITS, SECOND, MessageId
from libweft.peer.trace.kinds import (
    DELIVER,
    DROP,
    DUPLICATE,
    GRAFT,
    JOINED,
    LEAVE,
    NEIGHBOR_DOWN,
    NEIGHBOR_UP,
    PRUNE,
    PUBLISH,
    REJECT,
    SEND,
)
from libweft.peer.trace.tables import KEYS, hash63, message_key, node_key

LIMIT = 16 << 20  # a batch of all that the remote tracer holds, 65,536 events, is 10 MB
CHUNK = 1 << 18
STRANGE = 16
NANOS = 1_000  # in a microsecond
JUMP = SECOND * NANOS  # events are stamped before they wait for their turn, so short steps back are in every file
ARRIVAL = "arrival"
"""In the place of a kind: a copy in an RPC that came; the first of them is the reception."""

CONTROL, PAYLOAD = "control", "payload"
SELF_ORIGIN = "self originated message"
SEQNO = 8
GZIP = b"\x1f\x8b"
BATCH = b"\x0a"  # the first byte of a batch; that of an event is the tag of its type
JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")

Nanos: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Body(msgspec.Struct, gc=False):
    """What any event carries, with the names that the JSON has; an event has those of its type."""

    messageID: bytes | None = None
    topic: str | None = None
    receivedFrom: bytes | None = None
    sendTo: bytes | None = None
    peerID: bytes | None = None
    reason: str | None = None
    proto: str | None = None
    meta: Meta | None = None


class Meta(msgspec.Struct):
    messages: list[MessageMeta] | None = None
    subscription: list[Part] | None = None
    control: Control | None = None


class MessageMeta(msgspec.Struct, gc=False):
    messageID: bytes | None = None
    topic: str | None = None


class Control(msgspec.Struct):
    ihave: list[Part] | None = None
    iwant: list[Part] | None = None
    graft: list[Part] | None = None
    prune: list[Part] | None = None
    idontwant: list[Part] | None = None


class Part(msgspec.Struct, gc=False):
    """What is in it is not asked for."""


class Event(msgspec.Struct):
    type: int | None = None
    peerID: bytes | None = None
    timestamp: Nanos | None = None
    publishMessage: Body | None = None
    rejectMessage: Body | None = None
    duplicateMessage: Body | None = None
    deliverMessage: Body | None = None
    onNewOutboundStream: Body | None = None
    onClosedOutboundStream: Body | None = None
    addPeer: Body | None = None  # the names of the two above, up to April 2026
    removePeer: Body | None = None
    recvRPC: Body | None = None
    sendRPC: Body | None = None
    dropRPC: Body | None = None
    join: Body | None = None
    leave: Body | None = None
    graft: Body | None = None
    prune: Body | None = None


class Row(NamedTuple):
    """One row to be; `source`, `epoch` and `sequence` are of a publish whose id tells them."""

    ns: int
    node: int
    kind: str
    topic: str | None = None
    msg: int | None = None
    peer: int | None = None
    lane: str | None = None
    reason: str | None = None
    source: int | None = None
    epoch: int | None = None
    sequence: int | None = None


class Report(msgspec.Struct):
    """What a file held, and what of it could not be read."""

    file: int
    events: int = 0
    bad: int = 0
    first_bad: str = ""
    unknown: int = 0
    types: list[int] = []
    cut: str = ""
    jump: int = 0


FIELDS: dict[int, tuple[str, ...]] = {
    TraceEvent.PUBLISH_MESSAGE: ("publishMessage",),
    TraceEvent.REJECT_MESSAGE: ("rejectMessage",),
    TraceEvent.DUPLICATE_MESSAGE: ("duplicateMessage",),
    TraceEvent.DELIVER_MESSAGE: ("deliverMessage",),
    TraceEvent.ON_NEW_OUTBOUND_STREAM: ("onNewOutboundStream", "addPeer"),
    TraceEvent.ON_CLOSED_OUTBOUND_STREAM: ("onClosedOutboundStream", "removePeer"),
    TraceEvent.RECV_RPC: ("recvRPC",),
    TraceEvent.SEND_RPC: ("sendRPC",),
    TraceEvent.DROP_RPC: ("dropRPC",),
    TraceEvent.JOIN: ("join",),
    TraceEvent.LEAVE: ("leave",),
    TraceEvent.GRAFT: ("graft",),
    TraceEvent.PRUNE: ("prune",),
}
CONTROLS = ("ihave", "iwant", "graft", "prune", "idontwant")
_decode = msgspec.json.Decoder(Event).decode


class Seen(NamedTuple):
    """An event, whatever form it had; `body` is None where the one of its type is missing."""

    type: int | None
    ns: int | None
    node: bytes | None
    body: Any


class _Bad(Exception):
    """A record that is not an event; others may follow it."""


class _Cut(Exception):
    """Nothing after this can be read."""


def read_rows(path: Path, report: Report) -> Iterator[Row]:
    """The rows of one file; `report` is filled in meanwhile, and whole when they have all been taken."""
    last: dict[int, int] = {}
    try:
        for place, seen in _events(_chunks(path), path.name, report):
            try:
                yield from _rows_of(seen, report, last)
            except _Bad as error:
                _note(report, place, str(error))
    except _Cut as error:
        report.cut = str(error)
    except OSError as error:
        report.cut = f"it cannot be read: {error.strerror or error}"


def _rows_of(seen: Seen, report: Report, last: dict[int, int]) -> list[Row]:
    type_, ns, who, body = seen
    if type_ is None or ns is None or not who:
        raise _Bad("it lacks its type, its time or the peer id of its node")
    if type_ not in FIELDS:
        report.unknown += 1
        if type_ not in report.types and len(report.types) < STRANGE:
            report.types.append(type_)
        return []
    if body is None:
        raise _Bad(f"an event of type {type_} without its {FIELDS[type_][0]}")
    node = _node(who)
    rows = [*_mapped(type_, ns, node, body)]
    report.events += 1
    report.jump = max(report.jump, last.get(node, ns) - ns)
    last[node] = ns
    return rows


def _mapped(type_: int, ns: int, node: int, body: Any) -> Iterator[Row]:
    match type_:
        case TraceEvent.SEND_RPC:
            yield from _copies(SEND, ns, node, body)
        case TraceEvent.DROP_RPC:  # its SEND_RPC is not written: here a drop takes back a send
            yield from _copies(SEND, ns, node, body)
            yield from _copies(DROP, ns, node, body)
        case TraceEvent.RECV_RPC:
            sender = _peer(body.receivedFrom)
            for meta in (body.meta and body.meta.messages) or ():
                if meta.messageID:
                    yield Row(ns, node, ARRIVAL, meta.topic or None, _message(meta.messageID)[0], sender)
        case TraceEvent.PUBLISH_MESSAGE:
            msg, *origin = _message(_id(body))
            yield Row(ns, node, PUBLISH, body.topic or None, msg, None, None, None, *origin)
        case TraceEvent.DELIVER_MESSAGE:
            yield Row(ns, node, DELIVER, body.topic or None, _message(_id(body))[0], _peer(body.receivedFrom))
        case TraceEvent.DUPLICATE_MESSAGE:
            yield Row(ns, node, DUPLICATE, body.topic or None, _message(_id(body))[0], _peer(body.receivedFrom))
        case TraceEvent.REJECT_MESSAGE:  # one's own message that comes back is a duplicate to all measures
            kind = DUPLICATE if body.reason == SELF_ORIGIN else REJECT
            sender = _peer(body.receivedFrom)
            yield Row(ns, node, kind, body.topic or None, _message(_id(body))[0], sender, None, body.reason or None)
        case TraceEvent.ON_NEW_OUTBOUND_STREAM:
            yield Row(ns, node, NEIGHBOR_UP, peer=_named(body), reason=body.proto or None)
        case TraceEvent.ON_CLOSED_OUTBOUND_STREAM:
            yield Row(ns, node, NEIGHBOR_DOWN, peer=_named(body))
        case TraceEvent.JOIN | TraceEvent.LEAVE:
            yield Row(ns, node, JOINED if type_ == TraceEvent.JOIN else LEAVE, body.topic or None)
        case _:
            yield Row(ns, node, GRAFT if type_ == TraceEvent.GRAFT else PRUNE, body.topic or None, None, _named(body))


def _copies(kind: str, ns: int, node: int, body: Any) -> Iterator[Row]:
    """A row for each message in an RPC, and one for each kind of control; one too where nothing is told of what was in it."""
    to, meta = _peer(body.sendTo), body.meta
    messages = (meta and meta.messages) or ()
    for message in messages:
        number = _message(message.messageID)[0] if message.messageID else None
        yield Row(ns, node, kind, message.topic or None, number, to, PAYLOAD)
    said = ["subscriptions"] if meta and meta.subscription else []
    said += [name for name in CONTROLS if meta and meta.control and getattr(meta.control, name)]
    for name in said if said or messages else ("other",):
        yield Row(ns, node, kind, None, None, to, CONTROL, name)


def _id(body: Any) -> bytes:
    if not body.messageID:
        raise _Bad("it lacks the id of its message")
    return bytes(body.messageID)


def _named(body: Any) -> int:
    if not body.peerID:
        raise _Bad("it lacks the peer that it is about")
    return _node(body.peerID)


def _peer(peer: bytes | None) -> int | None:
    return _node(peer) if peer else None


@lru_cache(KEYS)
def _node(peer: bytes) -> int:
    return node_key(peer)


@lru_cache(KEYS)
def _message(key: bytes) -> tuple[int, int | None, int | None, int | None]:
    """The number of a message, and its source, epoch and sequence where its id is of the default form.

    That is the author's peer id and eight bytes of a sequence number: then all is as in the trace of a weft node.
    """
    source, number = key[:-SEQNO], int.from_bytes(key[-SEQNO:])
    if len(source) > 2 and source[0] in (0x00, 0x12) and source[1] == len(source) - 2:
        origin = MessageId(source, number >> EPOCH_BITS, number & ((1 << EPOCH_BITS) - 1))
        return message_key(origin), _node(source), origin.epoch, origin.sequence
    return hash63(key), None, None, None


def _events(chunks: Iterator[bytes], name: str, report: Report) -> Iterator[tuple[str, Seen]]:
    """Where it is, and the event; a record that holds none is noted."""
    head = b""
    for chunk in chunks:
        head += chunk
        if len(head.lstrip()) > 1:
            break
    records, form = (_lines, _from_json) if _is_json(head.lstrip(), name) else (_frames, _from_protobuf)
    for place, record in records(chain((head,), chunks), report):
        try:
            events = form(record)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            _note(report, place, f"it is not the JSON of an event: {error}")
        except PeerError as error:
            _note(report, place, str(error))
        else:
            yield from ((place, seen) for seen in events)


def _is_json(head: bytes, name: str) -> bool:
    """A protobuf of 123 bytes begins with a brace too; what comes next is then the tag of a type or of a batch."""
    if head[:1] == b"{" and head[1:2] not in (b"\x08", b"\x0a"):
        return True
    return name.lower().removesuffix(".gz").endswith(JSON_SUFFIXES)


def _from_json(line: bytes) -> list[Seen]:
    event = _decode(line)
    names = FIELDS.get(event.type, ()) if event.type is not None else ()
    body = next((found for name in names if (found := getattr(event, name)) is not None), None)
    return [Seen(event.type, event.timestamp, event.peerID, body)]


def _from_protobuf(record: bytes) -> list[Seen]:
    events = parse(TraceEventBatch, record).batch if record[:1] == BATCH else [parse(TraceEvent, record)]
    return [_of_message(event) for event in events]


def _of_message(event: TraceEvent) -> Seen:
    type_ = int(event.type) if event.HasField("type") else None
    names = FIELDS.get(type_, ()) if type_ is not None else ()
    body = getattr(event, names[0]) if names and event.HasField(cast(Any, names[0])) else None
    return Seen(type_, event.timestamp if event.HasField("timestamp") else None, event.peerID, body)


def _lines(chunks: Iterable[bytes], report: Report) -> Iterator[tuple[str, bytes]]:
    held, number, over = bytearray(), 1, False
    for chunk in chain(chunks, (b"\n",)):  # the last line may lack its end, and be whole
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            held += end
            if over or len(held) > LIMIT:
                _note(report, f"line {number}", f"it is longer than {LIMIT:,} bytes")
            elif held.strip():
                yield f"line {number}", bytes(held)
            held, over, number = bytearray(), False, number + 1
        held += rest
        if len(held) > LIMIT:
            held, over = bytearray(), True


def _frames(chunks: Iterable[bytes], report: Report) -> Iterator[tuple[str, bytes]]:
    """A record that is too long is passed by; where the length itself is none, what follows is lost."""
    held, begin, skip = bytearray(), 0, 0  # `begin` is the place of what is held
    for chunk in chunks:
        passed = min(skip, len(chunk))
        skip, begin = skip - passed, begin + passed
        held += chunk[passed:]
        at = 0
        while (head := _length(held, at, begin)) is not None:
            length, start = head
            end = start + length
            if length > LIMIT:
                _note(report, f"byte {begin + at:,}", f"it is longer than {LIMIT:,} bytes")
                skip, end = max(0, end - len(held)), min(end, len(held))
            elif end > len(held):
                break
            else:
                yield f"byte {begin + at:,}", bytes(held[start:end])
            at = end
        del held[:at]
        begin += at
    if held or skip:
        raise _Cut(f"it ends inside a record, at byte {begin:,}")


def _length(held: bytearray, at: int, begin: int) -> tuple[int, int] | None:
    """Of the record at `at`, and where it begins."""
    try:
        found = read_uvarint(held[at : at + VARINT_BYTES])
    except PeerError as error:
        raise _Cut(f"at byte {begin + at:,} no record begins ({error}), and what follows is not read") from None
    return found and (found[0], at + found[1])


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        first = file.read(CHUNK)
        chunks = chain((first,), iter(lambda: file.read(CHUNK), b""))
        yield from _unzipped(chunks) if first.startswith(GZIP) else chunks


def _unzipped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Of one gzip stream, or of several one after the other; all that comes before a damage."""
    stream = zlib.decompressobj(wbits=31)
    for chunk in chunks:
        while chunk:
            if stream.eof:
                stream = zlib.decompressobj(wbits=31)
            try:
                yield stream.decompress(chunk, CHUNK)
            except zlib.error as error:
                raise _Cut(f"its gzip stream is damaged ({error}), and what follows is not read") from None
            chunk = stream.unused_data if stream.eof else stream.unconsumed_tail
    if not stream.eof:
        yield stream.flush()
    if not stream.eof:
        raise _Cut("its gzip stream ends too early")


def _note(report: Report, place: str, why: str) -> None:
    report.bad += 1
    report.first_bad = report.first_bad or f"{place}: {why}"
