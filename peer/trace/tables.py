"""Rows as Arrow tables: ids become whole numbers, and side tables say which id each number stands for.

Bounds: KEYS cached ids of each sort.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from libweft.peer.machine import Lane, MessageId, Peer
from libweft.peer.trace.kinds import PUBLISH, Row

if TYPE_CHECKING:
    import pyarrow as pa

KEYS = 65_536
_LANES = {lane: lane.name.lower() for lane in Lane}
_NO_ROWS: tuple[tuple[Any, ...], ...] = ((),) * 12
encode = msgspec.msgpack.Encoder().encode


class Keys:
    """Ids as the rows hold them. Both are pure functions, so forgetting is harmless but for a node listed twice."""

    def __init__(self) -> None:
        self.fresh: dict[bytes, int] = {}
        self._nodes: dict[bytes, int] = {}
        self._messages: dict[MessageId, int] = {}

    def node(self, peer: Peer) -> int:
        if isinstance(peer, int):
            return peer
        key = self._nodes.get(peer)
        if key is None:
            if len(self._nodes) >= KEYS:
                self._nodes.clear()
            key = self._nodes[peer] = self.fresh[peer] = node_key(peer)
        return key

    def message(self, msg: MessageId) -> int:
        key = self._messages.get(msg)
        if key is None:
            if len(self._messages) >= KEYS:
                self._messages.clear()
            key = self._messages[msg] = message_key(msg)
        return key


def node_key(peer: Peer) -> int:
    """A node in the rows: an int is itself, a peer id is 63 bits of its hash, which `nodes` maps back."""
    return peer if isinstance(peer, int) else hash63(peer)


def message_key(msg: MessageId) -> int:
    """A message in the rows: 63 bits of the hash of (source, epoch, sequence), which `messages` maps back."""
    return hash63(encode(msg))


def row_table(rows: Sequence[Row], keys: Keys) -> pa.Table:
    import pyarrow as pa

    t, node, kind, topic, msg, peer, hops, copies, size, lane, reason, dependencies = (
        zip(*rows, strict=True) if rows else _NO_ROWS
    )
    columns = {
        "t": pa.array(t, pa.int64()),
        "node": pa.array([keys.node(n) for n in node], pa.int64()),
        "kind": _words(kind),
        "topic": _words(topic),
        "msg": pa.array([None if m is None else keys.message(m) for m in msg], pa.int64()),
        "peer": pa.array([None if p is None else keys.node(p) for p in peer], pa.int64()),
        "hops": pa.array(hops, pa.int32()),
        "copies": pa.array(copies, pa.int32()),
        "bytes": pa.array(size, pa.int64()),
        "lane": _words([None if x is None else _LANES[x] for x in lane]),
        "reason": pa.array(reason, pa.string()),
        "dependencies": pa.array(
            [[keys.message(m) for m in d] if k == PUBLISH else None for k, d in zip(kind, dependencies, strict=True)],
            pa.list_(pa.int64()),
        ),
    }
    return pa.table(columns)


def message_table(rows: Sequence[Row], keys: Keys) -> pa.Table:
    import pyarrow as pa

    published = [row[4] for row in rows if row[2] == PUBLISH and row[4] is not None]
    columns = {
        "msg": [keys.message(m) for m in published],
        "source": [keys.node(m.source) for m in published],
        "epoch": [m.epoch for m in published],
        "sequence": [m.sequence for m in published],
    }
    return pa.table({name: pa.array(column, pa.int64()) for name, column in columns.items()})


def node_table(keys: Keys) -> pa.Table:
    """Those seen since the last part."""
    import pyarrow as pa

    fresh, keys.fresh = keys.fresh, {}
    return pa.table({"node": pa.array(fresh.values(), pa.int64()), "peer": pa.array(fresh.keys(), pa.binary())})


def _words(column: Sequence[str | None]) -> Any:
    import pyarrow as pa

    return pa.array(column, pa.dictionary(pa.int32(), pa.string()))


def hash63(data: bytes) -> int:
    """Return the 63-bit number that stands for `data` in rows."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big") >> 1
