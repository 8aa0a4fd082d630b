"""What a peer holds for its collector: rows as they happen, then numbered batches until they are written over there.

It observes a `Tracer`. Nothing here waits: a row that finds no room is dropped and counted, and the next batch tells how
many were. The oldest rows are kept, since without the `joined` of a node its later deliveries mean nothing.
Bounds: `rows` rows in all, some 500 bytes each until they are packed; BYTES of packed batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from libweft.peer.errors import UsageError
from libweft.peer.live.collect.messages import FRAME, ROWS, pack_batch
from libweft.peer.machine import Lane, MessageId, Peer
from libweft.peer.trace.kinds import Row

HELD = 65_536  # rows
BYTES = 8 << 20


class Packed(NamedTuple):
    number: int
    rows: int
    data: bytes


class Buffer:
    def __init__(self, rows: int = HELD) -> None:
        if rows < 1:
            raise UsageError(f"a buffer of {rows} rows holds nothing; 1 at least")
        self.dropped = 0
        self._limit = rows
        self._fresh: deque[Row] = deque()
        self._packed: deque[Packed] = deque()
        self._in_packed = 0
        self._bytes = 0
        self._number = 0
        self._told = 0  # of `dropped`, by a batch

    def __len__(self) -> int:
        """Rows that are not known to be written."""
        return len(self._fresh) + self._in_packed

    def observe(
        self,
        t: int,
        node: Peer,
        kind: str,
        topic: str | None,
        msg: MessageId | None,
        peer: Peer | None,
        hops: int | None,
        copies: int | None,
        size: int | None,
        lane: Lane | None,
        reason: str | None,
        dependencies: tuple[MessageId, ...],
    ) -> None:
        if len(self._fresh) + self._in_packed >= self._limit:
            self.dropped += 1
        else:
            self._fresh.append((t, node, kind, topic, msg, peer, hops, copies, size, lane, reason, dependencies))

    def after(self, number: int) -> Packed | None:
        """The batch that follows the one with this number, packed now if need be; None when there is none."""
        found = next((batch for batch in self._packed if batch.number > number), None)
        return found or self._pack()

    def written(self, number: int) -> None:
        """Up to this batch all are safe, and forgotten."""
        while self._packed and self._packed[0].number <= number:
            gone = self._packed.popleft()
            self._in_packed -= gone.rows
            self._bytes -= len(gone.data)

    def _pack(self) -> Packed | None:
        if not self._fresh or self._bytes >= BYTES:
            return None
        rows = [self._fresh.popleft() for _ in range(min(ROWS, len(self._fresh)))]
        taken, data = self._fitting(rows)
        self._fresh.extendleft(reversed(rows[taken:]))
        if data is None:  # one row that is larger than a frame
            self.dropped += 1
            return self._pack()
        self._number += 1
        self._told = self.dropped
        self._packed.append(Packed(self._number, taken, data))
        self._in_packed += taken
        self._bytes += len(data)
        return self._packed[-1]

    def _fitting(self, rows: Sequence[Row]) -> tuple[int, bytes | None]:
        count = len(rows)
        while True:
            data = pack_batch(self._number + 1, self.dropped - self._told, rows[:count])
            if len(data) <= FRAME:
                return count, data
            if count == 1:
                return 1, None
            count //= 2
