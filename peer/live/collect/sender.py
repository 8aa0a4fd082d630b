"""The sending side: brings the rows of a buffer to the collector, for as long as the peer lives.

Asks below: a `libweft.peer.live.host`, and the clock that the rows have their time from. Promises above: it never raises,
whatever the collector does; a collector that is away is dialled again, later each time; rows wait in the buffer meanwhile, whose
bounds are all there is. Nothing of the peer's own protocols waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from random import Random

import trio

from libweft.peer.errors import UsageError, WeftError
from libweft.peer.libp2p.address import Address
from libweft.peer.live.collect.buffer import Buffer
from libweft.peer.live.collect.messages import FROM_COLLECTOR, FROM_PEER, PROTOCOL, Ask, Hello, Taken, Told
from libweft.peer.live.collect.stream import FrameStream
from libweft.peer.live.host import Host
from libweft.peer.live.link import Stream

log = logging.getLogger("libweft.collect")

SEND_S = 0.5  # rows gather so long before they are a batch
SOONEST_S, LATEST_S = 0.5, 15.0  # between two dials
AHEAD = 64  # batches under way, each of which waits for the collector's next part
LAST_S = 5.0  # at the end, for what has not been written


class Sender:
    """`run` is a task; `buffer` observes the tracer."""

    def __init__(self, host: Host, collector: Address, buffer: Buffer, epoch: int, wall: Callable[[], int]) -> None:
        if collector.peer is None:
            raise UsageError(f"{collector} does not say which collector to expect there; it must end in /p2p/PEER-ID")
        self.buffer = buffer
        self.away = False  # known to be, since a dial or a stream failed
        self._talking = False
        self._host = host
        self._address = collector
        self._peer = collector.peer
        self._epoch = epoch
        self._wall = wall
        self._sent = 0
        self._written = 0
        self._news = trio.Event()
        self._rng = Random()

    async def run(self) -> None:
        self._host.protect(self._peer)
        self._host.learn(self._peer, [self._address])
        try:
            await self._run()
        finally:
            self._host.unprotect(self._peer)

    async def _run(self) -> None:
        wait = SOONEST_S
        while True:
            try:
                stream = await self._host.open_stream(self._address, [PROTOCOL])
                reason = await self._talk(stream)
            except WeftError as error:
                reason = str(error)
            wait = SOONEST_S if self._talking else min(2 * wait, LATEST_S)
            level = logging.INFO if self.away else logging.WARNING
            log.log(level, "no collector at %s: %s; %d rows wait", self._address, reason, len(self.buffer))
            self.away, self._talking = True, False
            self._stir()
            await trio.sleep(wait * self._rng.uniform(0.5, 1.0))

    async def flushed(self) -> None:
        """Wait until all rows of now are written, LAST_S at most, and not at all for a collector that is away."""
        self._stir()
        with trio.move_on_after(LAST_S):
            while not self.away and len(self.buffer):
                await self._news.wait()

    async def _talk(self, stream: Stream) -> str:
        """Why it ended. No task raises, since their errors would come out in a group."""
        async with stream, trio.open_nursery() as nursery:
            try:
                await self._listen(FrameStream(stream, FROM_PEER, FROM_COLLECTOR), nursery)
                reason = "it ended the stream"
            except (WeftError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
                reason = str(error)
            nursery.cancel_scope.cancel()
        return reason

    async def _listen(self, frames: FrameStream, nursery: trio.Nursery) -> None:
        await frames.send(Hello(self._epoch))
        while (found := await frames.next()) is not None:
            message, _ = found
            if isinstance(message, Ask):
                await frames.send(Told(message.number, self._wall()))
            elif isinstance(message, Taken):
                began = not self._talking
                self._heard(message.number)
                if began:
                    nursery.start_soon(self._send_on, frames)

    def _heard(self, number: int) -> None:
        """The first one tells where to begin: what was sent on an earlier stream may not have come."""
        if not self._talking:
            self._sent = number
        self.away, self._talking = False, True
        self._written = number
        self.buffer.written(number)
        self._stir()

    async def _send_on(self, frames: FrameStream) -> None:
        """A stream that breaks is told of by who reads it."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._send_all(frames)

    async def _send_all(self, frames: FrameStream) -> None:
        while True:
            while self._sent - self._written < AHEAD and (batch := self.buffer.after(self._sent)) is not None:
                await frames.send_packed([batch.data])
                self._sent = batch.number
            with trio.move_on_after(SEND_S):
                await self._news.wait()

    def _stir(self) -> None:
        self._news.set()
        self._news = trio.Event()
