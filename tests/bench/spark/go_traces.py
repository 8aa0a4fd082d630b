"""Events as go-libp2p-pubsub's JSON tracer writes them, and their files; and a run of four nodes that is worked out on paper.

The figures of `SMALL`, message by message; times are microseconds after BEGIN.

    links: A-B, A-C, B-C, C-D; A, B and C join `news`, D does not
    m1  A at 1,000,000, to B and C. B gets it at +10,010 from A, delivers at +11,010, sends to C. C gets it at +21,000 from B,
        delivers at +22,000, sends to D and A, and gets it again from A. D gets it at +32,010 and does not deliver. A gets
        its own back. Copies A-B, A-C, B-C, C-D, C-A: m = 5; B, C and D received: RMR = 5 / 3 - 1 = 2 / 3; 2 deliveries, 5 / 2
        copies each; expected B and C: reliability 1; hops B 1, C 2, D 3; the last delivery is C's.
    m2  B at 2,000,000, to A, with a GRAFT; the RPC to C is dropped. A gets it at +10,000, delivers at +10,500, sends to C, which
        gets it at +20,000 and rejects it. Copies B-A, A-C: m = 2; A and C received: RMR = 0; 1 delivery, 2 copies; expected A and
        C: reliability 1 / 2; hops A 1.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from libweft.peer.libp2p.frame import frame
from libweft.peer.libp2p.pb.trace_pb2 import TraceEvent

Event = dict[str, Any]

BEGIN = 1_700_000_000_000_000_000
A, B, C, D = (b"\x00\x24\x08\x01\x12\x20" + bytes([letter]) * 32 for letter in b"abcd")
M1 = A + (BEGIN + 7).to_bytes(8, "big")
M2 = b"m2"
NEWS = "news"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def event(node: bytes, micros: float, type_: int, name: str, **body: Any) -> Event:
    told = {key: b64(value) if isinstance(value, bytes) else value for key, value in body.items()}
    return {"type": type_, "peerID": b64(node), "timestamp": BEGIN + round(micros * 1_000), name: told}


def publish(node: bytes, at: float, msg: bytes) -> Event:
    return event(node, at, 0, "publishMessage", messageID=msg, topic=NEWS)


def reject(node: bytes, at: float, msg: bytes, sender: bytes, reason: str) -> Event:
    return event(node, at, 1, "rejectMessage", messageID=msg, receivedFrom=sender, reason=reason, topic=NEWS)


def duplicate(node: bytes, at: float, msg: bytes, sender: bytes) -> Event:
    return event(node, at, 2, "duplicateMessage", messageID=msg, receivedFrom=sender, topic=NEWS)


def deliver(node: bytes, at: float, msg: bytes, sender: bytes) -> Event:
    return event(node, at, 3, "deliverMessage", messageID=msg, topic=NEWS, receivedFrom=sender)


def meta(*messages: bytes, **more: Any) -> Event:
    return {"messages": [{"messageID": b64(msg), "topic": NEWS} for msg in messages], **more}


def received(node: bytes, at: float, sender: bytes, *messages: bytes) -> Event:
    return event(node, at, 6, "recvRPC", receivedFrom=sender, meta=meta(*messages))


def sent(node: bytes, at: float, to: bytes, *messages: bytes, **more: Any) -> Event:
    return event(node, at, 7, "sendRPC", sendTo=to, meta=meta(*messages, **more))


def dropped(node: bytes, at: float, to: bytes, *messages: bytes) -> Event:
    return event(node, at, 8, "dropRPC", sendTo=to, meta=meta(*messages))


def joined(node: bytes, at: float) -> Event:
    return event(node, at, 9, "join", topic=NEWS)


def linked(node: bytes, *peers: bytes) -> list[Event]:
    return [event(node, 100, 4, "onNewOutboundStream", peerID=peer, proto="/meshsub/1.2.0") for peer in peers]


SMALL: dict[str, list[Event]] = {
    "a": [
        *(joined(A, 0), *linked(A, B, C), sent(A, 500, B, subscription=[{"subscribe": True, "topic": NEWS}])),
        *(publish(A, 1_000_000, M1), deliver(A, 1_000_001, M1, A), sent(A, 1_000_010, B, M1), sent(A, 1_000_020, C, M1)),
        *(received(A, 1_032_020, C, M1), reject(A, 1_032_021, M1, C, "self originated message")),
        *(received(A, 2_010_000, B, M2), deliver(A, 2_010_500, M2, B), sent(A, 2_010_600, C, M2)),
    ],
    "b": [
        *(joined(B, 0), *linked(B, A, C), event(B, 200, 11, "graft", peerID=A, topic=NEWS)),
        *(received(B, 1_010_010, A, M1), deliver(B, 1_011_010, M1, A), sent(B, 1_011_020, C, M1)),
        *(publish(B, 2_000_000, M2), deliver(B, 2_000_001, M2, B)),
        *(sent(B, 2_000_010, A, M2, control={"graft": [{"topic": NEWS}]}), dropped(B, 2_000_020, C, M2)),
        event(B, 20_000_000, 12, "prune", peerID=A, topic=NEWS),
    ],
    "c": [
        *(joined(C, 0), *linked(C, A, B, D)),
        *(received(C, 1_021_000, B, M1), deliver(C, 1_022_000, M1, B), sent(C, 1_022_010, D, M1), sent(C, 1_022_020, A, M1)),
        *(received(C, 1_050_000, A, M1), duplicate(C, 1_050_001, M1, A)),
        *(received(C, 2_020_000, A, M2), reject(C, 2_020_100, M2, A, "validation failed")),
        *(event(C, 20_000_000, 10, "leave", topic=NEWS), event(C, 20_000_001, 5, "onClosedOutboundStream", peerID=D)),
    ],
    "d": [*linked(D, C), received(D, 1_032_010, C, M1)],
}


def as_json(events: Iterable[Event]) -> bytes:
    """As Go's encoder has it."""
    return b"".join(json.dumps(each, separators=(",", ":")).encode() + b"\n" for each in events)


def message(each: Event) -> TraceEvent:
    return json_format.ParseDict(each, TraceEvent(), ignore_unknown_fields=True)


def as_protobuf(events: Iterable[Event]) -> bytes:
    return b"".join(frame(message(each).SerializeToString()) for each in events)


FORMS = {
    ".json": as_json,
    ".pb": as_protobuf,
    ".json.gz": lambda events: gzip.compress(as_json(events), mtime=0),
    ".pb.gz": lambda events: gzip.compress(as_protobuf(events), mtime=0),
}


def written(folder: Path, nodes: dict[str, Sequence[Event]] | dict[str, list[Event]], form: str) -> Path:
    """A folder with one file a node."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, events in nodes.items():
        (folder / f"{name}{form}").write_bytes(FORMS[form](events))
    return folder
