"""What waits to leave on one link: a queue a machine and lane, urgent first, turned into bytes when the link can take them.

A message whose codec makes it a frame of its own is encoded once, when it is sent, for all peers it goes to. Where a
codec packs several into one frame, that is done when they leave, so that what queued up travels together.
Each machine has a one-way stream of its own, opened when it first sends; the peer said by identify that it speaks the
protocol, so the first bytes follow the proposal without waiting for its echo.

Bounds: LIMIT bytes a machine and peer, judged by `libweft.peer.machine.admit`; BATCH bytes are turned into frames at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from libweft.peer.libp2p.frame import frame
from libweft.peer.live.link import PENDING, LiveLink, Stream, StreamError
from libweft.peer.machine import Codec, Lane, Message

LIMIT = 1 << 20
BATCH = 1 << 15
LANES = len(Lane)


class Parcel:
    """A message on its way out: `size` is that of its encoding, `wire` its frame, if it has one of its own."""

    __slots__ = ("msg", "size", "wire")

    def __init__(self, msg: Message, codec: Codec) -> None:
        self.msg = msg
        self.wire: bytes | None = None
        if codec.joins:
            self.size = codec.size(msg)
        else:
            [whole] = codec.pack((msg,))  # one message is one frame where none are joined
            self.wire = frame(whole)
            self.size = len(whole)


class Outlet:
    """One machine's way to one peer. `lost` hears why the stream ended, if not by the link's end."""

    __slots__ = ("_codec", "_link", "_protocol", "_rest", "lanes", "lost", "queued", "stream", "waited")

    def __init__(self, link: LiveLink, protocol: str, codec: Codec, lost: Callable[[str], None]) -> None:
        self._link = link
        self._protocol = protocol
        self._codec = codec
        self._rest = b""
        self.lost = lost
        self.lanes: tuple[deque[Parcel], ...] = tuple(deque() for _ in range(LANES))
        self.queued = 0
        self.stream: Stream | None = None
        self.waited = False

    def put(self, parcel: Parcel) -> None:
        self.lanes[parcel.msg.lane].append(parcel)
        if not self.queued:  # else the link is stirred already, or waits for the window or the kernel
            self._link.stir()
        self.queued += parcel.size

    @property
    def waiting(self) -> int:
        """Bytes that have not left: whole messages, and the rest of one that the window cut."""
        return self.queued + len(self._rest)

    def leave(self, lane: int) -> bool:
        """Move what the window takes of one lane to the muxer; false when something of it must wait."""
        queue, muxer = self.lanes[lane], self._link.yamux
        while (queue or self._rest) and muxer.pending < PENDING:
            data = self._rest or self._batch(queue)
            sent = self._open().write(data)
            self._rest = data[sent:]
            if self._rest:
                return False
        return not queue and not self._rest

    def _batch(self, queue: deque[Parcel]) -> bytes:
        parcels, size = [], 0
        while queue and size < BATCH:
            parcels.append(queue.popleft())
            size += parcels[-1].size
        self.queued -= size
        if not self._codec.joins:
            return b"".join([parcel.wire or b"" for parcel in parcels])
        return b"".join(map(frame, self._codec.pack([parcel.msg for parcel in parcels])))

    def _open(self) -> Stream:
        if self.stream is None:
            self.stream = self._link.open((self._protocol,))
            self.stream.on_data = _nothing
            self.stream.on_room = self._link.stir
            self.stream.on_end = self._ended
        return self.stream

    def _ended(self, reason: str | None) -> None:
        if self._link.reason is None:
            self.lost(reason or "the peer ended the stream")


class Outbox:
    """All outlets of one link; `fill` is the link's source."""

    __slots__ = ("_drained", "link", "outlets")

    def __init__(self, link: LiveLink, drained: Callable[[Outlet], None]) -> None:
        self.link = link
        self.outlets: list[Outlet] = []
        self._drained = drained

    def fill(self) -> bool:
        """Urgent first, of all machines; true while something must wait."""
        waiting = False
        busy = [outlet for outlet in self.outlets if outlet.waiting]
        try:
            for lane in range(LANES) if busy else ():
                for outlet in busy:
                    waiting |= not outlet.leave(lane)
        except StreamError as error:
            self.link.close(str(error))
        for outlet in busy:
            if outlet.waiting:
                outlet.waited = True
            elif outlet.waited:
                outlet.waited = False
                self._drained(outlet)
        return waiting


def _nothing(data: bytes) -> None:
    """Nobody answers on a one-way stream."""
