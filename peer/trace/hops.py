"""The hops of messages whose wire form does not carry them: those of the sender plus one.

Bounds: HOPS_BYTES of tables, the oldest message first out; after that its hops stay unknown.
"""

from __future__ import annotations

from array import array

from libweft.peer.machine import MessageId, Peer
from libweft.peer.trace.kinds import DELIVER, PUBLISH

HOPS_BYTES = 64 << 20
UNKNOWN = 0xFFFF


class Hops:
    """For each recent message the hops at which each node got it; only nodes that are ints can index a table."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._width = 64
        self._tables: dict[MessageId, array[int]] = {}

    def fill(self, kind: str, node: Peer, msg: MessageId | None, peer: Peer | None, hops: int | None) -> int | None:
        if msg is None or not isinstance(node, int):
            return hops
        table = self._tables.get(msg)
        if kind == PUBLISH:
            self._note(table if table is not None else self._open(msg), node, 0)
        elif table is None:
            return hops
        elif kind == DELIVER:
            return _at(table, node)
        else:
            if hops is None and isinstance(peer, int):
                before = _at(table, peer)
                hops = None if before is None else before + 1
            if hops is not None and node < len(table) and hops < UNKNOWN:
                table[node] = hops  # the commonest case of a note
            elif hops is not None:
                self._note(table, node, hops)
        return hops

    def _open(self, msg: MessageId) -> array[int]:
        table = self._tables[msg] = array("H")
        self._grow(table, self._width)
        return table

    def _note(self, table: array[int], node: int, hops: int) -> None:
        if node >= len(table):
            self._grow(table, node + 1)
        if node < len(table):
            table[node] = min(hops, UNKNOWN - 1)

    def _grow(self, table: array[int], width: int) -> None:
        """Tables are born as wide as the widest, so that most never grow; a node beyond the limit has no place in one."""
        if 2 * width > self._limit:
            return
        if width > self._width:
            self._width = min(width + width // 4, self._limit // 2)
        more = self._width - len(table)
        table.frombytes(b"\xff\xff" * more)
        self._held += 2 * more
        while self._held > self._limit:
            self._held -= 2 * len(self._tables.pop(next(iter(self._tables))))


def _at(table: array[int], node: int) -> int | None:
    hops = table[node] if 0 <= node < len(table) else UNKNOWN
    return None if hops == UNKNOWN else hops
