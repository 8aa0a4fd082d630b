"""Two ends of Yamux on a wire that cuts bytes anywhere: nothing is lost, mixed up, leaked or left to wait for ever."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from libweft.peer.errors import PeerError
from libweft.peer.libp2p.yamux import (
    ACK,
    AWAY,
    DATA,
    FIN,
    HEADER,
    INITIAL,
    PING,
    RST,
    SIZE,
    SYN,
    TOP,
    WINDOW,
    Data,
    Event,
    Finished,
    GoneAway,
    Opened,
    Pong,
    Reset,
    Room,
    Yamux,
    YamuxLimits,
)

PERIOD = 65_521
PATTERN = Random(1).randbytes(PERIOD) * 6
LIMITS = YamuxLimits(streams=6, unacknowledged=4, window=INITIAL + 1_000)


def piece(at: int, size: int) -> bytes:
    """Bytes of an endless text that differs at every place for longer than any frame."""
    return PATTERN[at % PERIOD : at % PERIOD + size]


class Stream:
    """What one side knows of a stream, beside the machine under test."""

    def __init__(self) -> None:
        self.sent = self.received = self.unread = self.wanted = 0
        self.finished = self.ended = False


class Side:
    """One end with an application on it, and the bytes on their way to it."""

    def __init__(self, initiator: bool) -> None:
        self.initiator = initiator
        self.yamux = Yamux(initiator=initiator, limits=LIMITS)
        self.streams: dict[int, Stream] = {}
        self.gone: dict[int, Stream] = {}
        self.asked: list[int] = []
        self.coming = b""

    def pick(self, number: int) -> int | None:
        return list(self.streams)[number % len(self.streams)] if self.streams else None

    def open(self) -> None:
        stream = self.yamux.open()
        if stream is not None:
            assert stream & 1 == self.initiator
            self.streams[stream] = Stream()

    def push(self, stream: int) -> None:
        """Send what is wanted, as far as the window goes."""
        mine = self.streams[stream]
        while mine.wanted:
            window = self.yamux.window(stream)
            took = self.yamux.send(stream, piece(mine.sent, min(mine.wanted, INITIAL)))
            assert took == min(mine.wanted, INITIAL, window)
            mine.sent += took
            mine.wanted -= took
            if not took:
                return

    def finish(self, stream: int) -> None:
        self.streams[stream].finished = True
        self.streams[stream].wanted = 0
        self.yamux.finish(stream)
        self.settle(stream)

    def reset(self, stream: int) -> None:
        self.yamux.reset(stream)
        self.gone[stream] = self.streams.pop(stream)

    def consume(self, stream: int, count: int) -> None:
        mine = self.streams[stream]
        count = min(count, mine.unread)
        mine.unread -= count
        self.yamux.consumed(stream, count)
        self.settle(stream)

    def settle(self, stream: int) -> None:
        mine = self.streams[stream]
        if mine.finished and mine.ended and not mine.unread:
            self.gone[stream] = self.streams.pop(stream)

    def hear(self, count: int) -> None:
        wire, self.coming = self.coming[:count], self.coming[count:]
        for event in self.yamux.feed(wire):
            self.on(event)

    def on(self, event: Event) -> None:
        match event:
            case Opened(stream):
                assert stream & 1 != self.initiator
                assert stream not in self.streams and stream not in self.gone
                self.streams[stream] = Stream()
            case Data(stream, data):
                mine = self.streams[stream]
                assert data and not mine.ended
                assert data == piece(mine.received, len(data))
                mine.received += len(data)
                mine.unread += len(data)
                assert mine.unread <= LIMITS.window
            case Finished(stream):
                assert not self.streams[stream].ended
                self.streams[stream].ended = True
                self.settle(stream)
            case Reset(stream):
                self.gone[stream] = self.streams.pop(stream)
            case Room(stream):
                assert self.yamux.window(stream) > 0 or stream not in self.yamux._streams  # a Reset may follow at once
                self.push(stream)
            case Pong(value):
                self.asked.remove(value)
            case GoneAway(code):
                assert code == 0


sides = st.integers(0, 1)
numbers = st.integers(0, 9)
sizes = st.integers(0, 40) | st.integers(0, 3 * INITIAL)


class TwoEnds(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.sides = (Side(True), Side(False))

    @rule(side=sides)
    def open(self, side: int) -> None:
        self.sides[side].open()

    @rule(side=sides, number=numbers, size=sizes)
    def send(self, side: int, number: int, size: int) -> None:
        here = self.sides[side]
        stream = here.pick(number)
        if stream is not None and not here.streams[stream].finished:
            here.streams[stream].wanted += size
            here.push(stream)

    @rule(side=sides, number=numbers, size=sizes)
    def consume(self, side: int, number: int, size: int) -> None:
        stream = self.sides[side].pick(number)
        if stream is not None:
            self.sides[side].consume(stream, size)

    @rule(side=sides, number=numbers)
    def finish(self, side: int, number: int) -> None:
        stream = self.sides[side].pick(number)
        if stream is not None:
            self.sides[side].finish(stream)

    @rule(side=sides, number=numbers)
    def reset(self, side: int, number: int) -> None:
        stream = self.sides[side].pick(number)
        if stream is not None:
            self.sides[side].reset(stream)

    @rule(side=sides, value=st.integers(0, TOP))
    def ping(self, side: int, value: int) -> None:
        here = self.sides[side]
        if value not in here.asked and len(here.asked) < LIMITS.pings:
            here.asked.append(value)
            here.yamux.ping(value)

    @rule(side=sides)
    def take(self, side: int) -> None:
        here, there = self.sides[side], self.sides[1 - side]
        pending = here.yamux.pending
        wire = here.yamux.take()
        assert (len(wire), here.yamux.pending) == (pending, 0)
        there.coming += wire

    @rule(side=sides, count=st.integers(0, 30) | st.integers(0, 3 * INITIAL))
    def hear(self, side: int, count: int) -> None:
        self.sides[side].hear(count)

    @invariant()
    def both_agree_with_the_applications(self) -> None:
        for side in self.sides:
            yamux = side.yamux
            assert yamux.streams == len(side.streams) <= 2 * LIMITS.streams
            assert yamux.held >= sum(mine.unread for mine in side.streams.values())
            assert yamux.held == sum(state.held for state in yamux._streams.values())
            for state in yamux._streams.values():
                assert 0 <= state.room <= TOP
                assert state.credit >= 0 <= state.held
                assert state.credit + state.held <= LIMITS.window

    def settle(self) -> None:
        """Let everything through, while the applications read."""
        moved = True
        while moved:
            moved = False
            for number in (0, 1):
                self.take(number)
                moved |= bool(self.sides[1 - number].coming)
                self.sides[1 - number].hear(10**9)
                for side in self.sides:
                    for stream in list(side.streams):
                        side.consume(stream, INITIAL * 2)

    def teardown(self) -> None:
        self.settle()
        for here, there in (self.sides, reversed(self.sides)):
            for stream, mine in here.streams.items():
                assert (mine.wanted, mine.received) == (0, there.streams[stream].sent)
                assert mine.ended == there.streams[stream].finished
            for side in (here, there):
                assert not side.asked
        for side in self.sides:
            for stream in list(side.streams):
                side.finish(stream)
        self.settle()
        for side in self.sides:
            self.is_empty(side.yamux)

    def is_empty(self, yamux: Yamux) -> None:
        kept = (yamux._streams, yamux._unsaid, yamux._pings, yamux._out, yamux._cut)
        assert not any(kept)
        assert (yamux.streams, yamux.pending, yamux.held) == (0, 0, 0)
        assert (yamux._ours, yamux._unacknowledged, yamux._control, yamux._left, yamux._last) == (0, 0, 0, 0, False)
        assert yamux.open() is not None


TestTwoEnds = TwoEnds.TestCase


# whatever comes


def cut(wire: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({0, len(wire), *(place % (len(wire) + 1) for place in places)})
    return [wire[start:end] for start, end in pairwise(ends)]


def joined(events: list[Event]) -> list[Event]:
    """The same events, neighbouring data of one stream in one."""
    out: list[Event] = []
    for event in events:
        if isinstance(event, Data) and out and isinstance(last := out[-1], Data) and last.stream == event.stream:
            out[-1] = Data(event.stream, last.data + event.data)
        else:
            out.append(event)
    return out


def answer(wires: list[bytes], initiator: bool) -> tuple[list[Event], str, bytes]:
    """All that an end says to the wires, which may be a fault; nothing but a PeerError ever is."""
    end = Yamux(initiator=initiator, limits=LIMITS)
    end.open()
    end.open()
    end.send(1 if initiator else 2, bytes(INITIAL))
    events: list[Event] = []
    fault = ""
    try:
        for wire in wires:
            events += end.feed(wire)
    except PeerError as error:
        fault = str(error)
    assert end.held <= LIMITS.streams * 2 * LIMITS.window
    return joined(events), fault, end.take()


kinds = st.sampled_from([DATA, DATA, WINDOW, PING, AWAY]) | st.integers(0, TOP >> 16).map(lambda kind: kind << 16)
flags = st.sampled_from([0, SYN, ACK, FIN, RST, SYN | FIN, ACK | FIN, SYN | RST]) | st.integers(0, 0xFFFF)
streams = st.integers(0, 8) | st.integers(0, TOP)
lengths = st.integers(0, 20) | st.sampled_from([INITIAL, INITIAL + 1, TOP]) | st.integers(0, TOP)


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    kind, length = draw(kinds), draw(lengths)
    body = bytes(length) if kind == DATA and length <= INITIAL else b""
    return HEADER.pack(kind | draw(flags), draw(streams), length) + body


fitting = st.builds(
    lambda kind, flag, stream, size: HEADER.pack(kind | flag, stream, size) + (bytes(size) if kind == DATA else b""),
    st.sampled_from([DATA, DATA, WINDOW]),
    st.sampled_from([0, 0, ACK, FIN, RST, SYN, SYN | FIN]),
    st.integers(1, 4),
    st.integers(0, 9),
)


@given(st.lists(frames() | fitting | st.binary(max_size=2 * SIZE), max_size=12), st.booleans())
def test_whatever_comes_is_understood_or_a_peer_error(wires: list[bytes], initiator: bool) -> None:
    answer(wires, initiator)


@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_are_understood_or_a_peer_error(wire: bytes, initiator: bool) -> None:
    answer([wire], initiator)


@given(st.lists(fitting | frames(), max_size=12).map(b"".join), st.lists(st.integers(0, 10**6), max_size=30), st.booleans())
def test_cuts_change_nothing(wire: bytes, places: list[int], initiator: bool) -> None:
    events, fault, said = answer([wire], initiator)
    for pieces in (cut(wire, places), cut(wire, list(range(200)))):
        cut_events, cut_fault, cut_said = answer(pieces, initiator)
        assert (fault, said) == (cut_fault, cut_said)
        if not fault:  # what came before a fault in the same bytes is lost
            assert events == cut_events
