"""A stream of frames in both directions, whose frames leave whole whoever sends them.

Bounds: what came in one piece beyond the frame that was asked for, a window of the stream at most.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import trio

from libweft.peer.codec import MsgpackCodec
from libweft.peer.libp2p.frame import Frames, frame
from libweft.peer.live.link import Stream
from libweft.peer.machine import Message


class FrameStream:
    def __init__(self, stream: Stream, sends: MsgpackCodec, takes: MsgpackCodec) -> None:
        self._stream = stream
        self._sends = sends
        self._takes = takes
        self._cut = Frames(takes.limit)
        self._whole: deque[bytes] = deque()
        self._turn = trio.Lock()

    async def send(self, message: Message) -> None:
        await self.send_packed(self._sends.pack((message,)))

    async def send_packed(self, payloads: Sequence[bytes]) -> None:
        """Cancelled amid a frame it leaves a stream that is good for nothing more."""
        async with self._turn:
            await self._stream.send_all(b"".join(map(frame, payloads)))

    async def next(self) -> tuple[Message, int] | None:
        """A message and its size; None when the other side has finished, and PeerError when that is inside a frame."""
        while not self._whole:
            data = await self._stream.receive_some()
            if not data:
                self._cut.finish()
                return None
            self._whole.extend(self._cut.feed(data))
        payload = self._whole.popleft()
        [message] = self._takes.unpack(payload)
        return message, len(payload)
