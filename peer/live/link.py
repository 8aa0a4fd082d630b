"""One authenticated link to a peer: a wire, its Noise channel, and the streams that Yamux makes of it.

Reading has a task; writing has none. Whoever has something to send puts it into the muxer and calls `stir`; the host
flushes all stirred links a turn later, so that everything said in one turn leaves in one system call. A link that the
kernel takes no more from waits for it in a task of its own, and meanwhile asks its `source` for nothing.

A stream is used in one of two ways. A task may await `receive_some` and `send_all` (it is a trio stream). Or it is
pushed: `on_data`, `on_end` and `on_room` are called as things happen, with no task at all, which is how a driver holds
two streams to each of a thousand peers. Protocols are agreed by multistream without a task too; an opener that knows
the answer may send at once.

Asks below: a Wire, a Channel. Promises above: a PeerError of any layer ends this link alone, with its reason.
Bounds: what Yamux bounds; PENDING bytes on their way out; a stream has `negotiation` seconds to agree on a protocol, and
after its close as long for the other side's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

import trio

from libweft.peer.errors import PeerError, UsageError, WeftError
from libweft.peer.libp2p.address import Address
from libweft.peer.libp2p.multistream import Answerer, Proposer
from libweft.peer.libp2p.yamux import Data, Finished, GoneAway, Opened, Pong, Reset, Room, Yamux
from libweft.peer.live.transport import Secured, Wire

PENDING = 1 << 16  # bytes put into the muxer ahead of the kernel: what comes later may still be more urgent
ROUNDS = 16  # chunks a flush may write before other links have their turn


class StreamError(WeftError):
    """A stream could not be opened, or its protocol was refused."""


class Owner(Protocol):
    """What a link asks of the host."""

    def stir(self, link: LiveLink) -> None: ...
    def supports(self, protocol: str) -> bool: ...
    def accept(self, stream: Stream) -> None: ...
    def wait_writable(self, link: LiveLink) -> None: ...


class Stream(trio.abc.HalfCloseableStream):
    """One stream. `on_data` set: pushed; else bytes wait for `receive_some`, as many as the window allows.

    `negotiate`, `feed`, `feed_end`, `make_room`, `wake_writer` and `break_off` are for its link only.
    """

    __slots__ = (
        *("_buffer", "_closed", "_ended", "_finished", "_negotiation", "_readable", "_writable", "broken"),
        *("born", "id", "link", "on_data", "on_end", "on_room", "protocol"),
    )

    def __init__(self, link: LiveLink, number: int, born: float) -> None:
        self.link = link
        self.id = number
        self.born = born
        self.protocol: str | None = None
        self.broken: str | None = None
        self.on_data: Callable[[bytes], None] | None = None
        self.on_end: Callable[[str | None], None] | None = None
        self.on_room: Callable[[], None] | None = None
        self._negotiation: Proposer | Answerer | None = None
        self._buffer = bytearray()
        self._closed = False
        self._ended = False
        self._finished = False
        self._readable: trio.Event | None = None
        self._writable: trio.Event | None = None

    def write(self, data: bytes | memoryview) -> int:
        """Now, what the window takes of it; 0 when it is closed or full."""
        if self._finished or self.broken is not None:
            return 0
        sent = self.link.yamux.send(self.id, data)
        if sent:
            self.link.stir()
        return sent

    def pushed(self, on_data: Callable[[bytes], None], on_end: Callable[[str | None], None]) -> None:
        """From now on call these; what has come already is handed over at once."""
        self.on_data, self.on_end = on_data, on_end
        if self._buffer:
            data = bytes(self._buffer)
            self._buffer.clear()
            on_data(data)
            self.link.yamux.consumed(self.id, len(data))
        if self._ended or self.broken is not None:
            on_end(self.broken)

    async def agreed(self) -> str:
        """The protocol, once the other side has agreed to one; StreamError when it speaks none of them."""
        while self.protocol is None:
            if self.broken is not None:
                raise StreamError(f"no stream to the peer: {self.broken}")
            await self._until_readable()
        return self.protocol

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Waits while the window is full or the link is slow. After a cancellation some of it may have been sent."""
        rest = memoryview(data)
        while True:
            self._check_open()
            if self.link.yamux.pending < PENDING and rest:
                rest = rest[self.write(rest) :]
            if not rest:
                break
            await self._until_writable()
        await trio.lowlevel.checkpoint()  # at the end, so that it is flushed meanwhile

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()
        self._check_open()
        while not self.link.yamux.window(self.id):
            await self._until_writable()
            self._check_open()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Some bytes, or none when the other side has finished; BrokenResourceError when the stream was reset."""
        if max_bytes is not None and max_bytes < 1:
            raise UsageError(f"receive_some({max_bytes}) asks for nothing; 1 at least")
        if self._closed:
            raise trio.ClosedResourceError("this stream was closed here")
        if self._buffer or self._ended or self.broken is not None:
            await trio.lowlevel.checkpoint()
        while not self._buffer:
            if self._ended:
                return b""
            if self.broken is not None:
                raise trio.BrokenResourceError(self.broken)
            await self._until_readable()
            if self._closed:
                raise trio.ClosedResourceError("this stream was closed here")
        data = bytes(self._buffer[:max_bytes])
        del self._buffer[: len(data)]  # which copies nothing, however small the pieces are
        self.link.yamux.consumed(self.id, len(data))
        if self.link.yamux.pending:
            self.link.stir()
        return data

    async def send_eof(self) -> None:
        await trio.lowlevel.checkpoint()
        self.finish()

    def finish(self) -> None:
        """This side has no more to send."""
        if not self._finished and self.broken is None:
            self._finished = True
            self.link.yamux.finish(self.id)
            self.link.stir()
            self._settle()

    async def aclose(self) -> None:
        """Finish, and take no notice of what may still come; the stream is gone when the other side finishes too."""
        self.finish()
        self._closed = True
        self._wake_reader()
        self.on_data = _ignore
        self.link.yamux.consumed(self.id, len(self._buffer))
        self._buffer.clear()
        if not self._ended and self.broken is None:
            self.born = trio.current_time()
            self.link.closing[self.id] = self
        await trio.lowlevel.checkpoint()

    def reset(self, reason: str = "reset here") -> None:
        if self.broken is None:
            self.link.yamux.reset(self.id)
            self.link.stir()
            self.break_off(reason)

    def negotiate(self, side: Proposer | Answerer) -> None:
        """Begin to agree on a protocol."""
        self._negotiation = side
        self.link.negotiating[self.id] = self
        if out := side.take():
            self.write(out)

    def feed(self, data: bytes) -> None:
        """Take bytes that the peer sent."""
        if self._negotiation is not None:
            data = self._negotiated(self._negotiation, data)
        if not data:
            return
        if self.on_data is not None:
            self.on_data(data)
            self.link.yamux.consumed(self.id, len(data))
        else:
            self._buffer += data
            self._wake_reader()

    def _negotiated(self, side: Proposer | Answerer, data: bytes) -> bytes:
        """Gives back what belongs to the protocol itself."""
        try:
            side.feed(data)
        except PeerError as error:
            if isinstance(side, Answerer):
                raise
            self.reset(str(error))
            return b""
        if out := side.take():
            self.write(out)
        self.link.yamux.consumed(self.id, len(data) - len(side.rest))
        if side.chosen is None:
            return b""
        self._negotiation = None
        self.link.negotiating.pop(self.id, None)
        self.protocol = side.chosen
        if isinstance(side, Answerer):
            self.link.owner.accept(self)
        self._wake_reader()
        return side.rest

    def make_room(self) -> None:
        """The window is larger than before."""
        self.wake_writer()
        if self.on_room is not None:
            self.on_room()

    def feed_end(self) -> None:
        """The peer has no more to send."""
        self._ended = True
        self._wake_reader()
        if self._negotiation is not None:
            self.reset("the peer ended the stream before a protocol was agreed")
        elif self.on_end is not None:
            self.on_end(None)
        self._settle()

    def break_off(self, reason: str) -> None:
        """Nothing more is sent or received; what waits is woken."""
        if self.broken is None:
            self.broken = reason
            self._forget()
            self._wake_reader()
            self.wake_writer()
            if self.on_end is not None:
                self.on_end(reason)

    def _settle(self) -> None:
        if self._ended and self._finished:
            self._forget()

    def _forget(self) -> None:
        for table in (self.link.streams, self.link.negotiating, self.link.closing):
            table.pop(self.id, None)

    def _check_open(self) -> None:
        if self.broken is not None:
            raise trio.BrokenResourceError(self.broken)
        if self._finished:
            raise trio.ClosedResourceError("this side has finished the stream")

    async def _until_readable(self) -> None:
        if self._readable is None:  # one may be left over from a wait that was cancelled
            self._readable = trio.Event()
        await self._readable.wait()

    async def _until_writable(self) -> None:
        if self._writable is None:
            self._writable = trio.Event()
        self.link.writers[self.id] = self
        await self._writable.wait()

    def _wake_reader(self) -> None:
        if self._readable is not None:
            self._readable.set()
            self._readable = None

    def wake_writer(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None


class LiveLink:
    """A link from the end of its handshake to its close. `source` fills the muxer when there is room; the driver sets it."""

    __slots__ = (
        *("_parting", "_rest", "address", "born", "busy", "channel", "closing", "described", "finishing", "heard", "incarnation"),
        *("moved", "negotiating", "outbound", "over", "owner", "peer", "pinged", "protocols", "ready", "reason", "source"),
        *("streams", "told", "wire", "writers", "yamux"),
    )

    def __init__(self, owner: Owner, wire: Wire, secured: Secured, yamux: Yamux, *, outbound: bool, incarnation: int) -> None:
        self.owner = owner
        self.wire = wire
        self.peer = secured.peer
        self.channel = secured.channel
        self.yamux = yamux
        self.outbound = outbound
        self.incarnation = incarnation
        self.address: Address = wire.remote
        self.protocols: tuple[str, ...] = ()
        self.described: tuple[str, ...] = ()  # what the peer was told that this host speaks
        self.told = False
        self.source: Callable[[], bool] | None = None  # true while it has something that the windows do not take
        self.streams: dict[int, Stream] = {}
        self.negotiating: dict[int, Stream] = {}
        self.closing: dict[int, Stream] = {}
        self.writers: dict[int, Stream] = {}
        self.reason: str | None = None
        self.ready = trio.Event()  # the host has told of it, or it is over
        self.over = trio.Event()
        self.finishing: float | None = None  # since when it waits to be closed
        now = trio.current_time()
        self.born = self.busy = now
        self.heard = now  # when the peer last sent anything
        self.moved = now  # when the kernel last took anything, or had taken all
        self.pinged: float | None = None  # since when a ping waits for its answer
        self._rest = memoryview(b"")
        self._parting = ""

    async def run(self, early: bytes) -> str:
        """Until the link is over; gives the reason. The wire and all streams are closed then."""
        try:
            self._feed_plain(early)
            while data := await self.wire.receive():
                self.heard = trio.current_time()
                self._feed_plain(self.channel.feed(data))
                data = b""  # else 64 KiB a link would stay until the next bytes come
            self.close(self._parting or "closed by the peer")
        except PeerError as error:
            self._say_goodbye()
            self.close(str(error))
        except trio.ClosedResourceError:
            pass  # close() gave the reason
        finally:
            self.close("cancelled")
        assert self.reason is not None
        return self.reason

    def open(self, protocols: Sequence[str]) -> Stream:
        """A stream that asks for one of the protocols; with one on offer the caller may send at once."""
        if isinstance(protocols, str):
            raise UsageError(f"protocols are several, such as [{protocols!r}], and not one text")
        proposer = Proposer(protocols)
        number = self.yamux.open() if self.reason is None else None
        if number is None:
            raise StreamError("no room for another stream" if self.reason is None else f"the link is down: {self.reason}")
        stream = self.streams[number] = Stream(self, number, trio.current_time())
        stream.negotiate(proposer)
        return stream

    def stir(self) -> None:
        self.owner.stir(self)

    def flush(self) -> None:
        """Write until nothing is left, the kernel takes no more, or others have waited long enough."""
        if self._rest or self.reason is not None or self.wire.finished:
            return
        try:
            for _ in range(ROUNDS):
                if not self._write_some():
                    break
            else:
                self.stir()
        except OSError:
            self.close("the connection broke")

    async def drain(self) -> None:
        """Wait until the kernel takes what is left; the host runs it, once at a time, after `wait_writable`."""
        try:
            while self._rest and self.reason is None:
                await self.wire.writable()
                self._sent(self.wire.send_now(self._rest))
        except (OSError, trio.ClosedResourceError):
            self.close("the connection broke")
        self.flush()

    def finish(self, reason: str) -> None:
        """Close after what was sent, when the other side has read it all."""
        if self.finishing is None and self.reason is None:
            self.finishing = trio.current_time()
            self._parting = reason
            self.stir()

    def close(self, reason: str) -> None:
        """At once; what was not sent is lost."""
        if self.reason is None:
            self.reason = reason
            self.wire.close()
            self._rest = memoryview(b"")
            for stream in list(self.streams.values()):
                stream.break_off(reason)
            self.ready.set()
            self.over.set()

    def sweep(self, now: float, negotiation: float) -> None:
        """Reset the streams whose time is up."""
        for table in (self.negotiating, self.closing):
            for stream in [stream for stream in table.values() if now - stream.born > negotiation]:
                stream.reset("no protocol was agreed in time" if table is self.negotiating else "closed")

    @property
    def unsent(self) -> int:
        return len(self._rest) + self.yamux.pending

    @property
    def blocked(self) -> bool:
        """Whether the kernel refused to take more."""
        return bool(self._rest)

    def _write_some(self) -> bool:
        """One chunk; false when there is nothing more to do now: then to ask again would cost as much as the chunk."""
        waiting = self.source is not None and (self.yamux.pending >= PENDING or self.source())
        plain = self.yamux.take()
        self._wake_writers()
        if not plain:
            self.moved = trio.current_time()
            if self.finishing is not None and not waiting:
                self._say_goodbye()
                self.wire.finish()  # the other side reads to the end and closes, and then so do we
            return False
        self._rest = memoryview(self.wire.veiled(self.channel.seal(plain)))
        self._sent(self.wire.send_now(self._rest))
        if self._rest:
            self.owner.wait_writable(self)
        return not self._rest and (waiting or self.finishing is not None)

    def _sent(self, count: int) -> None:
        if count:
            self.moved = trio.current_time()
            self._rest = self._rest[count:]

    def _say_goodbye(self) -> None:
        """The muxer's last words, if the kernel takes them at once."""
        if not self._rest and self.reason is None:
            if self.finishing is not None:
                self.yamux.go_away()
            if last := self.yamux.take():
                with suppress(OSError):
                    self.wire.send_now(self.wire.veiled(self.channel.seal(last)))

    def _wake_writers(self) -> None:
        writers, self.writers = self.writers, {}
        for stream in writers.values():
            stream.wake_writer()

    def _feed_plain(self, data: bytes) -> None:
        if self.reason is not None:  # closed while these bytes were on their way here
            return
        streams = self.streams
        for event in self.yamux.feed(data):
            if self.reason is not None:
                return
            if isinstance(event, Data):
                if stream := streams.get(event.stream):
                    stream.feed(event.data)
            elif isinstance(event, Opened):
                stream = streams[event.stream] = Stream(self, event.stream, self.heard)
                stream.negotiate(Answerer(self.owner.supports))
            else:
                self._less_often(event)
        if self.yamux.pending:
            self.stir()

    def _less_often(self, event: Finished | Reset | Room | Pong | GoneAway) -> None:
        if isinstance(event, Pong):
            self.pinged = None
        elif isinstance(event, GoneAway):
            self.finish("the peer went away")
        elif stream := self.streams.get(event.stream):
            if isinstance(event, Finished):
                stream.feed_end()
            elif isinstance(event, Reset):
                stream.break_off("reset by the peer")
            else:
                stream.make_room()


def _ignore(data: bytes) -> None: ...
