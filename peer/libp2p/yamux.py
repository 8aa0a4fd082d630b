"""Yamux: many streams, each with its own flow control, over one connection that is reliable and in order.

Spec: libp2p/specs, yamux/README.md (`/yamux/1.0.0`). A machine without IO: `feed` takes the bytes that came, in any cut,
and gives events; calls queue frames; `take` gives the bytes to send. It asks below for an ordered, reliable byte stream.

The frame. A header of twelve bytes, big-endian, and after a data frame's header its bytes.

    version 0: 1 | type: 1 | flags: 2 | stream: 4 | length: 4

    type 0  data           length: bytes that follow
    type 1  window update  length: bytes that the other side may send in addition
    type 2  ping           length: any number; SYN asks, ACK answers with the same number
    type 3  go away        length: 0 normal, 1 the other broke the protocol, 2 own failure; no new streams either way

    flag 1  SYN  the first frame of a stream           flag 4  FIN  the sender of this will send no more
    flag 2  ACK  the first frame in answer to a SYN    flag 8  RST  the stream is over, both ways, at once

Who dialled opens odd streams, who was dialled even ones; 0 is the connection itself. Flags stand on data frames and window
updates alike. After RST a window update's length means nothing: some write an error code there.

Windows. Each side of a stream may send 256 KiB, then as much as window updates add. Only bytes of data frames count. Of what
they may send, a part is still to come (`credit`) and a part is here and unread (`held`); `credit + held` never passes the
window, and once half of it is free, `consumed` gives it back by one window update.

The life of a stream. `finished`: our FIN is queued. `ended`: theirs has come.

    state      we may   they may   finish()   FIN comes   RST comes or reset()   all is consumed
    open       send     send       closing    ended       gone                   -
    closing    -        send       -          unread      gone                   -
    ended      send     -          unread     -           gone                   -
    unread     -        -          -          -           gone, by reset() only  gone

Nothing is kept of a stream that is gone, but numbers are never used twice: frames that still come for it are ignored. A
stream's SYN, or the ACK to it, goes with the first frame we send on it. SYNs may come out of order, since some give a stream
its number long before its first frame; and some reset or finish a stream whose SYN they never sent, which is ignored too.

Promises above: every byte arrives once, in order, on its stream; whatever else comes is a PeerError, after which `take` ends
in the go-away that tells the peer. Who uses it calls `consumed` for all data of a stream or `reset`, and throws unread data
away when a Reset comes.

Bounds, in `YamuxLimits`: streams each way, unread bytes of a stream and of all, frames of ours that are not data. Of a frame
that is not all here yet, only the header is ever kept. What `send` queued is bounded by the peer's windows, and by its
caller, who looks at `pending` before sending more.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

import msgspec

from libweft.peer.errors import PeerError, UsageError

HEADER: Final = Struct(">III")
"""Version, type and flags are read as one number, which is 0 for plain data."""
SIZE: Final = HEADER.size

DATA, WINDOW, PING, AWAY = 0, 1 << 16, 2 << 16, 3 << 16
SYN, ACK, FIN, RST = 1, 2, 4, 8
NORMAL, PROTOCOL, INTERNAL = 0, 1, 2

INITIAL: Final = 256 * 1024
"""What each side may send on a new stream: fixed by the spec."""
LARGEST: Final = 64 * 1024 - SIZE
"""The most data in one frame of ours, so that no stream hogs the connection; as go-yamux."""
LATE: Final = 1_024
"""So many streams of theirs may be opened before one of a lower number; a guess, four times the spec's ACK backlog."""
RECENT: Final = (1 << LATE) - 1
TOP: Final = 2**32 - 1


class YamuxLimits(msgspec.Struct, frozen=True):
    window: int = INITIAL  # unread bytes of one stream; the spec's least
    streams: int = 1_000  # open at once, counted for each side that opens; go-yamux's MaxIncomingStreams
    unacknowledged: int = 256  # streams of ours that were not answered yet; the spec's ACK backlog
    held: int = 16 * 1024 * 1024  # unread bytes of all streams; what go-yamux lets a single one have
    pings: int = 32  # of ours, not answered yet; go-yamux's PingBacklog
    control: int = 64 * 1024  # bytes of frames without data that wait for `take`; a guess, more than 5,000 answers

    def __post_init__(self) -> None:
        if not INITIAL <= self.window <= TOP:
            raise UsageError(f"a window is from {INITIAL} to {TOP} bytes, not {self.window}")


DEFAULTS: Final = YamuxLimits()


class Opened(msgspec.Struct, frozen=True, gc=False):
    """The other side opened a stream."""

    stream: int


class Data(msgspec.Struct, frozen=True, gc=False):
    """The next bytes of a stream, never none; not always a whole frame."""

    stream: int
    data: bytes


class Finished(msgspec.Struct, frozen=True, gc=False):
    """The other side will send no more."""

    stream: int


class Reset(msgspec.Struct, frozen=True, gc=False):
    """The other side gave the stream up, or refused it; it is gone."""

    stream: int


class Room(msgspec.Struct, frozen=True, gc=False):
    """A window that was empty has grown."""

    stream: int


class Pong(msgspec.Struct, frozen=True, gc=False):
    value: int


class GoneAway(msgspec.Struct, frozen=True, gc=False):
    """Open streams go on, no new ones will be."""

    code: int


Event: TypeAlias = Opened | Data | Finished | Reset | Room | Pong | GoneAway


class _State:
    """What is known of one stream."""

    __slots__ = ("answered", "credit", "ended", "finished", "flags", "held", "room", "stream")

    def __init__(self, stream: int, flags: int) -> None:
        self.stream = stream
        self.flags = flags  # SYN or ACK, until it has gone with a frame
        self.room = INITIAL  # bytes that we may send
        self.credit = INITIAL  # bytes that they may send
        self.held = 0  # bytes of frames that have begun and are not consumed
        self.answered = flags == ACK
        self.finished = False
        self.ended = False

    @property
    def over(self) -> bool:
        return self.finished and self.ended


class Yamux:
    def __init__(self, *, initiator: bool, limits: YamuxLimits = DEFAULTS) -> None:
        self._limits = limits
        self._next = 1 if initiator else 2  # the number of our next stream
        self._highest = 0 if initiator else -1  # the highest of theirs
        self._opened = 1  # bit n: stream `highest - 2 * n` was opened
        self._streams: dict[int, _State] = {}
        self._unsaid: dict[int, _State] = {}  # opened here, nothing sent yet
        self._held = 0
        self._ours = 0
        self._unacknowledged = 0
        self._pings: set[int] = set()
        self._away = False  # one side has said so
        self._fault: str | None = None
        self._out: list[bytes] = []
        self._queued = 0  # bytes in it
        self._control = 0  # those of frames without data
        self._cut = b""  # the beginning of a header
        self._body = 0  # the stream of the data frame that is being read,
        self._left = 0  # what is still to come of it,
        self._last = False  # and whether FIN comes into force then

    @property
    def streams(self) -> int:
        """How many are open, whoever opened them."""
        return len(self._streams)

    @property
    def held(self) -> int:
        """Bytes of all streams that were received and not consumed."""
        return self._held

    @property
    def pending(self) -> int:
        """How many bytes `take` would give."""
        return self._queued + SIZE * len(self._unsaid)

    def take(self) -> bytes:
        """All that is to be sent now; it is the caller's from then on."""
        for state in list(self._unsaid.values()):
            self._grant(state, self._limits.window - state.credit)
        out = b"".join(self._out)
        self._out.clear()
        self._queued = self._control = 0
        return out

    # what the local side does

    def open(self) -> int | None:
        """A new stream's number; None when there are too many, too many not answered, or a side went away."""
        limits, stream = self._limits, self._next
        full = self._ours >= limits.streams or self._unacknowledged >= limits.unacknowledged
        if full or self._away or stream > TOP:
            return None
        self._next += 2
        self._streams[stream] = self._unsaid[stream] = _State(stream, SYN)
        self._ours += 1
        self._unacknowledged += 1
        return stream

    def send(self, stream: int, data: bytes | memoryview) -> int:
        """How many of the bytes the window took; none once the stream is finished or gone."""
        state = self._streams.get(stream)
        if state is None or state.finished:
            return self._missing(stream)
        size = len(data)
        if size > state.room:
            size = state.room
        state.room -= size
        for at in range(0, size, LARGEST):
            part = bytes(data[at : min(at + LARGEST, size)])
            head = self._flags(state) if state.flags else DATA
            self._out += (HEADER.pack(head, stream, len(part)), part)
            self._queued += SIZE + len(part)
        return size

    def window(self, stream: int) -> int:
        """How many bytes `send` would take now."""
        state = self._streams.get(stream)
        return self._missing(stream) if state is None or state.finished else state.room

    def consumed(self, stream: int, count: int) -> None:
        """The application is done with so many bytes of the stream's data."""
        state = self._streams.get(stream)
        if state is None:
            self._missing(stream)
            return
        if not 0 <= count <= state.held:
            raise UsageError(f"stream {stream} holds {state.held} bytes, {count} cannot be consumed")
        state.held -= count
        self._held -= count
        window = self._limits.window
        free = window - state.credit - state.held
        if state.ended:
            self._settle(state)
        elif free >= window >> 1:
            self._grant(state, free)

    def finish(self, stream: int) -> None:
        """FIN, after what was sent; what the other side sends still comes."""
        state = self._streams.get(stream)
        if state is None or state.finished:
            self._missing(stream)
            return
        state.finished = True
        self._put(WINDOW | FIN | self._flags(state), stream, 0)
        self._settle(state)

    def reset(self, stream: int) -> None:
        """Give the stream up, both ways; unread data of it no longer counts."""
        state = self._streams.get(stream)
        if state is None:
            self._missing(stream)
            return
        if state.flags != SYN and not state.over:  # else they know of no stream, or of none any more
            self._put(WINDOW | RST, stream, 0)
        self._forget(state)

    def ping(self, value: int) -> None:
        """Ask for a Pong of the same value."""
        if not 0 <= value <= TOP:
            raise UsageError(f"the value of a ping is from 0 to {TOP}, not {value}")
        if len(self._pings) >= self._limits.pings:
            raise UsageError(f"{len(self._pings)} pings were not answered; wait, or give the connection up")
        self._pings.add(value)
        self._put(PING | SYN, 0, value)

    def go_away(self, code: int = NORMAL) -> None:
        """No new streams from now on, either way; open ones go on."""
        self._away = True
        self._put(AWAY, 0, code)

    # what the other side does

    def feed(self, data: bytes) -> list[Event]:
        """What the bytes mean, in order. After a PeerError nothing more can be fed, and what came before it in `data` is lost."""
        if self._fault is not None:
            raise PeerError(self._fault)
        events: list[Event] = []
        try:
            self._read(self._cut + data if self._cut else data, events)
        except PeerError as error:
            self._fault = str(error)
            self.go_away(PROTOCOL)
            raise
        return events

    def _read(self, data: bytes, events: list[Event]) -> None:
        self._check_control()
        streams, most, unpack, end = self._streams, self._limits.held, HEADER.unpack_from, len(data)
        at = self._read_body(data, 0, events) if self._left else 0
        while end - at >= SIZE:
            head, stream, length = unpack(data, at)
            at += SIZE
            if not head and (state := streams.get(stream)) is not None:  # plain data, all here: the same as below, but fast
                stop, held = at + length, self._held + length
                if 0 < length <= state.credit and stop <= end and held <= most:
                    state.credit -= length
                    state.held += length
                    self._held = held
                    events.append(Data(stream, data[at:stop]))
                    at = stop
                    continue
            self._frame(head, stream, length, events)
            if self._left or self._last:
                at = self._read_body(data, at, events)
        self._cut = data[at:]

    def _read_body(self, data: bytes, at: int, events: list[Event]) -> int:
        """Hand on what is here of a data frame, and its FIN when that was all; its stream may be gone by now."""
        state = self._streams.get(self._body)
        part = data[at : at + self._left]
        self._left -= len(part)
        if state is not None and part:
            events.append(Data(state.stream, part))
        if self._last and not self._left:
            self._last = False
            if state is not None and not state.ended:
                state.ended = True
                state.credit = 0
                events.append(Finished(state.stream))
                self._settle(state)
        return at + len(part)

    def _frame(self, head: int, stream: int, length: int, events: list[Event]) -> None:
        kind, flags = head & ~0xFFFF, head & 0xFFFF
        if kind in (DATA, WINDOW):
            self._stream_frame(kind, flags, stream, length, events)
        elif kind == PING and flags & SYN:
            self._answer(PING | ACK, 0, length)
        elif kind == PING:
            if length in self._pings:  # an answer to nothing is ignored
                self._pings.remove(length)
                events.append(Pong(length))
        elif kind == AWAY:
            self._away = True
            events.append(GoneAway(length))
        else:
            raise PeerError(f"a yamux frame of version {head >> 24} and type {head >> 16 & 255}")

    def _stream_frame(self, kind: int, flags: int, stream: int, length: int, events: list[Event]) -> None:
        self._body = stream
        if kind == DATA:
            if length > self._limits.window:
                raise PeerError(f"a data frame of {length} bytes, where no window is over {self._limits.window}")
            self._left = length
        state = self._begun(stream, events) if flags & SYN else self._streams.get(stream)
        if state is None:
            self._check_late(flags, stream, length)
            return
        if flags & RST:
            self._body = 0  # bytes that follow are nobody's
            if not state.over:  # else it comes too late to take anything away
                self._forget(state)
                events.append(Reset(stream))
            return
        self._last = bool(flags & FIN)
        if flags & ACK and not state.answered:
            state.answered = True
            self._unacknowledged -= 1
        if kind == DATA:
            self._spend(state, length)
        else:
            self._widen(state, length, events)

    def _begun(self, stream: int, events: list[Event]) -> _State | None:
        """They open a stream; None when it is refused."""
        if self._is_ours(stream) or not stream:
            raise PeerError(f"stream {stream} is not theirs to open")
        if self._was_opened(stream):
            raise PeerError(f"stream {stream} is opened a second time, or far too late")
        self._mark_opened(stream)
        if self._away or len(self._streams) - self._ours >= self._limits.streams:
            self._answer(WINDOW | RST, stream, 0)
            return None
        state = self._streams[stream] = _State(stream, ACK)
        events.append(Opened(stream))
        return state

    def _check_late(self, flags: int, stream: int, length: int) -> None:
        """A frame for no stream is ignored where the stream is gone, or never was and is given up."""
        given_up = flags & RST or (flags & FIN and not length)
        if not self._was_opened(stream) and (self._is_ours(stream) or not stream or not given_up):
            raise PeerError(f"a frame for stream {stream}, which was never opened")

    def _spend(self, state: _State, length: int) -> None:
        """Bytes that a header announces count at once, before they are here."""
        if length > state.credit:
            what = "after its end" if state.ended else f"where {state.credit} were allowed"
            raise PeerError(f"{length} bytes on stream {state.stream}, {what}")
        if self._held + length > self._limits.held:
            raise PeerError(f"{length} bytes more than the {self._held} unread ones on {self.streams} streams are over the limit")
        state.credit -= length
        state.held += length
        self._held += length

    def _widen(self, state: _State, length: int, events: list[Event]) -> None:
        room = state.room + length
        if room > TOP:
            raise PeerError(f"a window of {room} bytes on stream {state.stream}")
        if length and not state.room and not state.finished:
            events.append(Room(state.stream))
        state.room = room

    # helpers of both

    def _is_ours(self, stream: int) -> bool:
        return stream & 1 == self._next & 1

    def _was_opened(self, stream: int) -> bool:
        if self._is_ours(stream):
            return 0 < stream < self._next
        back = (self._highest - stream) >> 1
        return stream > 0 and back >= 0 and (back >= LATE or bool(self._opened >> back & 1))

    def _mark_opened(self, stream: int) -> None:
        ahead = (stream - self._highest) >> 1
        if ahead > 0:
            self._highest = stream
            self._opened = self._opened << ahead & RECENT if ahead < LATE else 0
        self._opened |= 1 << ((self._highest - stream) >> 1)

    def _missing(self, stream: int) -> int:
        """Nothing is done on a stream that is gone: word of a reset may not have reached the caller yet."""
        if not self._was_opened(stream):
            raise UsageError(f"stream {stream} was never opened")
        return 0

    def _settle(self, state: _State) -> None:
        if state.over and not state.held:
            self._forget(state)

    def _forget(self, state: _State) -> None:
        del self._streams[state.stream]
        self._unsaid.pop(state.stream, None)
        self._held -= state.held
        self._ours -= self._is_ours(state.stream)
        self._unacknowledged -= not state.answered

    def _flags(self, state: _State) -> int:
        """SYN or ACK, once."""
        flags, state.flags = state.flags, 0
        if flags == SYN:
            del self._unsaid[state.stream]
        return flags

    def _grant(self, state: _State, count: int) -> None:
        state.credit += count
        self._put(WINDOW | self._flags(state), state.stream, count)

    def _put(self, head: int, stream: int, length: int) -> None:
        self._out.append(HEADER.pack(head, stream, length))
        self._queued += SIZE
        self._control += SIZE

    def _answer(self, head: int, stream: int, length: int) -> None:
        self._put(head, stream, length)
        self._check_control()

    def _check_control(self) -> None:
        """A peer that makes us answer and does not read the answers must not fill the memory."""
        if self._control > self._limits.control:
            raise PeerError(f"{self._control} bytes of answers wait for a peer that goes on asking")
