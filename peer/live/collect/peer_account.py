"""What a collector knows of one peer: its clock, its rows that wait to be written, and how much it has had.

A peer answers for itself alone. Its rows have no node but itself, and a `publish` row names a message of its own, since by
that row the analysis knows who published: anything else is a PeerError. Times are set right here: a row's time becomes the
collector's, by the offset of the moment; it is never later than now, so that no peer can hurry the time of a run, and a
node's rows never go back, so that a better estimate does not look like a clock that was set.

Bounds: `quota` bytes of batches in all, of this start of the collector and those before; what comes later is counted and
dropped. What waits is bounded by whoever calls.
"""

from __future__ import annotations

from typing import NamedTuple

from libweft.peer.errors import PeerError
from libweft.peer.live.collect.clock import Clock, Offset
from libweft.peer.live.collect.messages import Batch
from libweft.peer.trace.kinds import KINDS, PUBLISH, Row

_PUBLISH = KINDS.index(PUBLISH)


class Standing(NamedTuple):
    """What must outlive the collector; it is written with the rows."""

    epoch: int = 0
    number: int = 0  # of the last batch
    bytes: int = 0
    lost: int = 0  # rows that did not fit into the peer's buffer
    refused: int = 0  # rows beyond the quota
    t: int = 0  # of its last row


class Account:
    def __init__(self, peer: bytes, quota: int, standing: Standing | None = None) -> None:
        self.peer = peer
        self.clock = Clock()
        self.standing = standing or Standing()
        self.written = self.standing
        self.rows: list[Row] = []
        self.waiting = 0  # bytes of these rows as they came
        self._quota = quota

    def greet(self, epoch: int) -> int:
        """The number of the last batch of this epoch that is written."""
        if epoch != self.standing.epoch:
            self.standing = self.standing._replace(epoch=epoch, number=0)
        return self.written.number if self.written.epoch == epoch else 0

    def take(self, batch: Batch, size: int, now: int) -> None:
        """One that came before is passed over: it was sent again because the answer was lost."""
        standing = self.standing
        if batch.number <= standing.number:
            return
        offset = self.clock.now(now)
        if offset is None:
            raise PeerError("a batch before its clock was asked for")
        for row in batch.rows:
            if row.kind == _PUBLISH and (row.msg is None or row.msg.source != self.peer):
                raise PeerError("a row tells that it published a message of somebody else")
        self.standing = standing._replace(number=batch.number, lost=standing.lost + batch.lost)
        if standing.bytes + size <= self._quota:
            self._keep(batch, size, offset, now)
        else:
            self.standing = self.standing._replace(refused=standing.refused + len(batch.rows))

    def handed_over(self) -> tuple[list[Row], Standing]:
        """What is to be written now. Where there are no rows nothing is lost if the standing is not."""
        rows, self.rows, self.waiting = self.rows, [], 0
        return rows, self.standing

    def _keep(self, batch: Batch, size: int, offset: Offset, now: int) -> None:
        last = self.standing.t
        for row in batch.rows:
            last = max(last, min(row.t + offset.offset, now))
            self.rows.append(row.row(self.peer, last))
        self.waiting += size
        self.standing = self.standing._replace(bytes=self.standing.bytes + size, t=last)
