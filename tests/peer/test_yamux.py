"""Yamux, frame by frame: what we write, what we understand, and what no peer can do to us."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from itertools import chain
from struct import Struct

import pytest

from libweft.peer.errors import PeerError, UsageError
from libweft.peer.libp2p.yamux import (
    ACK,
    AWAY,
    DATA,
    DEFAULTS,
    FIN,
    HEADER,
    INITIAL,
    LARGEST,
    LATE,
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

SMALL = YamuxLimits(streams=4, unacknowledged=3, held=2 * INITIAL, pings=2, control=20 * SIZE)

Frame = tuple[int, int, int, bytes]


def frame(head: int, stream: int, length: int = 0, body: bytes = b"") -> bytes:
    return HEADER.pack(head, stream, length) + body


def data(stream: int, body: bytes, flags: int = 0) -> bytes:
    return frame(DATA | flags, stream, len(body), body)


def frames(wire: bytes) -> list[Frame]:
    found, at = [], 0
    while at < len(wire):
        head, stream, length = HEADER.unpack_from(wire, at)
        size = length if head >> 16 == 0 else 0
        found.append((head, stream, length, wire[at + SIZE : at + SIZE + size]))
        at += SIZE + size
    assert at == len(wire)
    return found


def dialler(limits: YamuxLimits = DEFAULTS) -> Yamux:
    return Yamux(initiator=True, limits=limits)


def listener(limits: YamuxLimits = DEFAULTS) -> Yamux:
    return Yamux(initiator=False, limits=limits)


def with_stream(limits: YamuxLimits = DEFAULTS) -> Yamux:
    """A listener on which stream 1 is open, and answered."""
    end = listener(limits)
    assert end.feed(frame(WINDOW | SYN, 1)) == [Opened(1)]
    end.send(1, b"hi")
    assert frames(end.take()) == [(DATA | ACK, 1, 2, b"hi")]
    return end


def opened(end: Yamux) -> int:
    stream = end.open()
    assert stream is not None
    return stream


def accused(end: Yamux, wire: bytes, match: str) -> None:
    """The bytes are the peer's fault: it is told so, and the connection is of no more use."""
    end.take()
    with pytest.raises(PeerError, match=match):
        end.feed(wire)
    assert frames(end.take())[-1] == (AWAY, 0, 1, b"")
    with pytest.raises(PeerError, match=match):
        end.feed(b"")
    assert end.open() is None


def memory(wires: Iterable[bytes], end: Yamux) -> int:
    """The most memory that was in use while the wires were fed, events thrown away."""
    tracemalloc.start()
    try:
        for wire in wires:
            end.feed(wire)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# the wire


def test_a_header_is_twelve_bytes_in_network_order() -> None:
    end = dialler()
    end.send(opened(end), b"hello")
    assert end.take() == bytes.fromhex("00 00 0001 00000001 00000005") + b"hello"
    end.ping(0x01020304)
    assert end.take() == bytes.fromhex("00 02 0001 00000000 01020304")
    end.go_away(2)
    assert end.take() == bytes.fromhex("00 03 0000 00000000 00000002")
    end.finish(1)
    assert end.take() == bytes.fromhex("00 01 0004 00000001 00000000")
    end.reset(1)
    assert end.take() == bytes.fromhex("00 01 0008 00000001 00000000")


def test_diallers_open_odd_streams_and_listeners_even_ones() -> None:
    assert [dialler().open(), listener().open()] == [1, 2]
    end = dialler()
    assert [end.open(), end.open(), end.open()] == [1, 3, 5]


def test_syn_goes_with_the_first_data() -> None:
    end = dialler()
    stream = opened(end)
    end.send(stream, b"a")
    end.send(stream, b"b")
    assert frames(end.take()) == [(DATA | SYN, 1, 1, b"a"), (DATA, 1, 1, b"b")]


def test_syn_goes_alone_when_nothing_was_sent() -> None:
    end = dialler()
    stream = opened(end)
    assert end.pending == SIZE
    assert frames(end.take()) == [(WINDOW | SYN, 1, 0, b"")]
    end.send(stream, b"a")
    assert frames(end.take()) == [(DATA, 1, 1, b"a")]


def test_syn_goes_with_fin_on_a_stream_that_says_nothing() -> None:
    end = dialler()
    end.finish(opened(end))
    assert frames(end.take()) == [(WINDOW | SYN | FIN, 1, 0, b"")]


def test_ack_goes_with_the_first_frame_back() -> None:
    for answer in (lambda end: end.send(1, b"a"), lambda end: end.finish(1), lambda end: end.consumed(1, INITIAL // 2)):
        end = listener()
        end.feed(data(1, bytes(INITIAL // 2), SYN))
        assert end.take() == b""
        answer(end)
        [(head, stream, _, _)] = frames(end.take())
        assert (head & (SYN | ACK), stream) == (ACK, 1)
        end.reset(1)
        assert frames(end.take()) == [(WINDOW | RST, 1, 0, b"")]


def test_pending_is_what_take_gives() -> None:
    end = dialler()
    end.send(opened(end), b"hello")
    end.open()
    end.ping(1)
    assert end.pending == len(end.take()) == 3 * SIZE + 5
    assert (end.pending, end.take()) == (0, b"")


def test_a_memoryview_may_change_after_it_was_sent() -> None:
    end = dialler()
    buffer = bytearray(b"hello")
    assert end.send(opened(end), memoryview(buffer)) == 5
    buffer[:] = b"XXXXX"
    assert frames(end.take()) == [(DATA | SYN, 1, 5, b"hello")]


# windows


def test_send_takes_what_the_window_has_in_frames_of_at_most_64_kib() -> None:
    end = dialler()
    stream = opened(end)
    assert end.window(stream) == INITIAL
    assert end.send(stream, bytes(INITIAL + 5)) == INITIAL
    assert (end.window(stream), end.send(stream, b"more")) == (0, 0)
    sizes = [length for _, _, length, _ in frames(end.take())]
    assert sizes == [LARGEST] * 4 + [INITIAL - 4 * LARGEST]
    assert LARGEST + SIZE == 64 * 1024


def test_room_is_told_only_when_the_window_was_empty() -> None:
    end = dialler()
    stream = opened(end)
    assert end.feed(frame(WINDOW | ACK, stream, 10)) == []
    end.send(stream, bytes(INITIAL + 10))
    assert end.feed(frame(WINDOW, stream, 0)) == []
    assert end.feed(frame(WINDOW, stream, 7) * 2) == [Room(stream)]
    assert end.window(stream) == 14
    end.send(stream, bytes(14))
    end.finish(stream)
    assert end.feed(frame(WINDOW, stream, 7)) == []


def test_a_window_update_with_syn_widens_the_new_stream() -> None:
    end = listener()
    assert end.feed(frame(WINDOW | SYN, 1, 1000)) == [Opened(1)]
    assert end.window(1) == INITIAL + 1000


def test_half_a_free_window_is_given_back_in_one_update() -> None:
    end = with_stream()
    end.feed(data(1, bytes(INITIAL)))
    end.consumed(1, INITIAL // 2 - 1)
    assert end.take() == b""
    end.consumed(1, 1)
    assert frames(end.take()) == [(WINDOW, 1, INITIAL // 2, b"")]
    assert end.held == INITIAL // 2
    end.feed(data(1, bytes(INITIAL // 2)))
    end.consumed(1, INITIAL)
    assert frames(end.take()) == [(WINDOW, 1, INITIAL, b"")]
    assert end.held == 0


def test_nothing_is_given_back_after_the_end() -> None:
    end = with_stream()
    end.feed(data(1, bytes(INITIAL), FIN))
    end.consumed(1, INITIAL)
    assert end.take() == b""


def test_a_window_over_the_specs_is_told_with_the_syn_or_at_the_first_byte() -> None:
    wide = YamuxLimits(window=2 * INITIAL)
    end = dialler(wide)
    end.open()
    assert frames(end.take()) == [(WINDOW | SYN, 1, INITIAL, b"")]
    end = with_stream(wide)
    end.feed(data(1, b"x"))
    end.consumed(1, 1)
    assert frames(end.take()) == [(WINDOW, 1, INITIAL + 1, b"")]
    assert len(end.feed(data(1, bytes(2 * INITIAL)))) == 1


@pytest.mark.parametrize("window", [0, INITIAL - 1, TOP + 1])
def test_a_window_that_cannot_be_is_a_mistake(window: int) -> None:
    with pytest.raises(UsageError, match="a window is from"):
        YamuxLimits(window=window)


# the life of a stream


def test_data_is_handed_on_as_it_comes_and_fin_after_all_of_it() -> None:
    end = with_stream()
    wire = data(1, b"hello", FIN)
    assert end.feed(wire[:5]) == []
    assert end.feed(wire[5:14]) == [Data(1, b"he")]
    assert end.feed(wire[14:]) == [Data(1, b"llo"), Finished(1)]


def test_empty_data_frames_say_nothing() -> None:
    assert with_stream().feed(data(1, b"") * 9) == []


def test_syn_data_and_fin_in_one_frame() -> None:
    assert listener().feed(data(1, b"x", SYN | FIN)) == [Opened(1), Data(1, b"x"), Finished(1)]


@pytest.mark.parametrize("fin", [frame(WINDOW | FIN, 1), frame(DATA | FIN, 1)])
def test_fin_may_come_on_either_kind_of_frame_and_twice(fin: bytes) -> None:
    end = with_stream()
    assert end.feed(fin * 2) == [Finished(1)]
    assert end.send(1, b"still") == 5
    end.finish(1)
    assert end.streams == 0


def test_after_finish_nothing_is_sent_but_all_is_received() -> None:
    end = with_stream()
    end.finish(1)
    end.finish(1)
    assert frames(end.take()) == [(WINDOW | FIN, 1, 0, b"")]
    assert (end.send(1, b"x"), end.window(1)) == (0, 0)
    assert end.feed(frame(WINDOW, 1, 5) + data(1, b"x")) == [Data(1, b"x")]


def test_a_stream_that_both_finished_is_gone_once_it_is_read() -> None:
    end = with_stream()
    end.feed(data(1, b"hello", FIN))
    end.finish(1)
    assert (end.streams, end.held) == (1, 5)
    assert end.feed(frame(WINDOW | RST, 1) + data(1, b"why", RST)) == []  # too late to take the data away
    end.consumed(1, 2)
    assert end.streams == 1
    end.consumed(1, 3)
    assert (end.streams, end.held) == (0, 0)


def test_reset_lets_go_of_a_stream_that_nobody_will_read() -> None:
    end = with_stream()
    end.feed(data(1, b"hello", FIN))
    end.finish(1)
    end.take()
    end.reset(1)
    assert (end.streams, end.held, end.take()) == (0, 0, b"")


def test_reset_of_a_stream_that_the_peer_never_saw_says_nothing() -> None:
    end = dialler()
    end.reset(opened(end))
    assert (end.take(), end.streams, end.open()) == (b"", 0, 3)


@pytest.mark.parametrize("rst", [frame(WINDOW | RST, 1), frame(WINDOW | RST, 1, 99), data(1, b"why", RST)])
def test_a_reset_ends_both_ways_whatever_its_length(rst: bytes) -> None:
    end = with_stream()
    end.feed(data(1, b"unread"))
    assert end.feed(rst + frame(PING | SYN, 0, 5)) == [Reset(1)]
    assert (end.streams, end.held) == (0, 0)
    assert frames(end.take()) == [(PING | ACK, 0, 5, b"")]


def test_a_reset_with_bytes_gives_them_to_nobody() -> None:
    end = with_stream()
    end.feed(frame(WINDOW | SYN, 3) + data(3, b"a"))
    assert end.feed(data(1, b"why", RST) + data(3, b"b")) == [Reset(1), Data(3, b"b")]


def test_what_is_done_on_a_stream_that_is_gone_does_nothing() -> None:
    end = with_stream()
    end.feed(data(1, b"unread") + frame(WINDOW | RST, 1))
    assert (end.send(1, b"x"), end.window(1)) == (0, 0)
    end.consumed(1, 6)
    end.finish(1)
    end.reset(1)
    assert end.take() == b""


@pytest.mark.parametrize("late", [data(1, b"late"), frame(WINDOW, 1, 9), frame(WINDOW | RST, 1), frame(DATA | FIN, 1)])
def test_late_frames_for_a_stream_that_is_gone_are_ignored(late: bytes) -> None:
    end = with_stream()
    end.reset(1)
    assert end.feed(late) == []
    mine = dialler()
    mine.send(opened(mine), b"x")
    mine.reset(1)
    assert mine.feed(late) == []
    assert (end.held, mine.held) == (0, 0)


def test_a_reset_in_the_middle_of_a_frame_drops_the_rest_of_it() -> None:
    end = with_stream()
    wire = data(1, b"hello", FIN) + frame(PING | SYN, 0, 5)
    assert end.feed(wire[:14]) == [Data(1, b"he")]
    end.reset(1)
    assert (end.held, end.streams) == (0, 0)
    assert end.feed(wire[14:]) == []
    assert frames(end.take())[-1] == (PING | ACK, 0, 5, b"")


def test_streams_may_be_opened_out_of_order() -> None:
    end = listener()
    assert end.feed(data(5, b"x", SYN) + data(1, b"y", SYN)) == [Opened(5), Data(5, b"x"), Opened(1), Data(1, b"y")]
    assert end.feed(frame(WINDOW | SYN, 3)) == [Opened(3)]


@pytest.mark.parametrize("late", [frame(DATA | RST, 7), frame(WINDOW | RST, 7, 3), frame(DATA | FIN, 7), frame(DATA | RST, 3)])
def test_a_stream_given_up_before_its_syn_is_ignored(late: bytes) -> None:
    end = listener()
    end.feed(frame(WINDOW | SYN, 5))
    assert end.feed(late) == []
    assert end.feed(frame(WINDOW | SYN, 7) + frame(WINDOW | SYN, 3)) == [Opened(7), Opened(3)]


# limits of our own


def test_open_gives_none_until_streams_are_answered() -> None:
    end = dialler(SMALL)
    assert [end.open() for _ in range(4)] == [1, 3, 5, None]
    end.feed(frame(WINDOW | ACK, 3) * 2)
    assert [end.open(), end.open()] == [7, None]  # all four are open
    end.feed(frame(WINDOW | RST, 5))
    assert [end.open(), end.open()] == [9, None]
    for stream in (1, 3, 7, 9):
        end.reset(stream)
    assert [end.open() for _ in range(4)] == [11, 13, 15, None]


def test_streams_are_counted_for_each_side_that_opens() -> None:
    end = listener(SMALL)
    assert [end.open(), end.open()] == [2, 4]
    assert len(end.feed(b"".join(frame(WINDOW | SYN, stream) for stream in (1, 3, 5, 7, 9)))) == SMALL.streams
    assert (end.open(), end.streams) == (6, 7)


def test_open_gives_none_when_the_numbers_are_used_up() -> None:
    end = dialler()
    end._next = TOP
    assert [end.open(), end.open()] == [TOP, None]


def test_either_side_that_goes_away_ends_new_streams_and_no_old_ones() -> None:
    for wire, events in ((b"", []), (frame(AWAY, 0, 2), [GoneAway(2)])):
        end = with_stream()
        if not wire:
            end.go_away()
        assert end.feed(wire) == events
        assert end.open() is None
        end.take()
        assert end.feed(data(3, b"new", SYN) + data(1, b"old")) == [Data(1, b"old")]
        assert frames(end.take()) == [(WINDOW | RST, 3, 0, b"")]
        assert end.feed(data(3, b"more")) == []
        assert end.send(1, b"old") == 3


def test_mistakes_of_our_own_are_told() -> None:
    end = dialler(SMALL)
    for call in (lambda: end.send(1, b"x"), lambda: end.window(2), lambda: end.finish(3), lambda: end.reset(0)):
        with pytest.raises(UsageError, match="never opened"):
            call()
    stream = opened(end)
    end.feed(data(stream, b"hello"))
    for count in (6, -1):
        with pytest.raises(UsageError, match="holds 5 bytes"):
            end.consumed(stream, count)
    for value in (-1, TOP + 1):
        with pytest.raises(UsageError, match="the value of a ping"):
            end.ping(value)


# pings


def test_a_ping_is_answered_and_ours_come_back_once() -> None:
    end = dialler(SMALL)
    end.ping(7)
    end.ping(0)
    with pytest.raises(UsageError, match="2 pings were not answered"):
        end.ping(8)
    assert end.feed(frame(PING | ACK, 0, 7) * 2 + frame(PING | ACK, 0, 9)) == [Pong(7)]
    end.ping(8)
    end.take()
    assert end.feed(frame(PING | SYN, 0, TOP)) == []
    assert frames(end.take()) == [(PING | ACK, 0, TOP, b"")]


# hostile peers


def test_data_beyond_the_window() -> None:
    end = with_stream()
    end.feed(data(1, bytes(INITIAL - 9)))
    accused(end, data(1, bytes(10)), "10 bytes on stream 1, where 9 were allowed")
    accused(listener(), data(1, bytes(INITIAL + 1), SYN), "no window is over")


def test_unread_data_counts_for_the_window_and_read_data_only_once_it_was_given_back() -> None:
    end = with_stream()
    end.feed(data(1, bytes(INITIAL)))
    end.consumed(1, 9)
    accused(end, data(1, b"x"), "where 0 were allowed")


@pytest.mark.parametrize("stream", [1, 3, 999])
def test_a_huge_length_is_refused_before_a_byte_of_it_came(stream: int) -> None:
    accused(with_stream(), frame(DATA, stream, TOP), "a data frame of 4294967295 bytes")


@pytest.mark.parametrize("wire", [data(5, b"c"), data(5, b"c", FIN)])
def test_all_streams_together_hold_no_more_than_the_limit(wire: bytes) -> None:
    end = listener(SMALL)
    end.feed(b"".join(data(stream, bytes(INITIAL - 1), SYN) for stream in (1, 3)))
    end.feed(data(5, b"a", SYN))
    end.feed(data(5, b"b"))
    accused(end, wire, "1 bytes more than the 524288 unread ones on 3 streams")
    assert end.held == SMALL.held


def test_a_flood_of_syns_opens_no_more_than_the_limit() -> None:
    end, events, answers = listener(), list[Event](), 0
    thousand = Struct(">3000I")
    for first in range(1, 400_001, 2_000):
        syns = ((WINDOW | SYN, stream, 0) for stream in range(first, first + 2_000, 2))
        events += end.feed(thousand.pack(*chain.from_iterable(syns)))
        answers += len(end.take()) // SIZE
    assert (len(events), end.streams, answers) == (DEFAULTS.streams, DEFAULTS.streams, 199_000)
    assert end._opened.bit_length() <= LATE


def test_syns_to_one_who_cannot_send_the_refusals_end_the_connection() -> None:
    end = listener(SMALL)
    wire = b"".join(frame(WINDOW | SYN, stream) for stream in range(1, 99, 2))
    with pytest.raises(PeerError, match="goes on asking"):
        end.feed(wire)
    assert end.pending <= SMALL.control + 2 * SIZE


def test_syn_twice() -> None:
    accused(with_stream(), frame(WINDOW | SYN, 1), "stream 1 is opened a second time")


def test_syn_on_a_stream_that_is_gone() -> None:
    for ended in (frame(WINDOW | RST, 1), frame(WINDOW | RST, 1) + frame(WINDOW | SYN, 9), frame(WINDOW | SYN, 1 + 2 * LATE)):
        end = with_stream()
        end.feed(ended)
        accused(end, data(1, b"again", SYN), "stream 1 is opened a second time")


def test_a_refused_stream_cannot_be_opened_later() -> None:
    end = listener(SMALL)
    end.feed(b"".join(frame(WINDOW | SYN, stream) for stream in (1, 3, 5, 7, 9)))
    accused(end, frame(WINDOW | SYN, 9), "stream 9 is opened a second time")


def test_syns_may_be_late_but_not_for_ever() -> None:
    for last in (2 * LATE - 1, 2 * LATE + 1):
        end = listener()
        end.feed(frame(WINDOW | SYN, last))
        if last < 2 * LATE:
            assert end.feed(frame(WINDOW | SYN, 1)) == [Opened(1)]
        else:
            accused(end, frame(WINDOW | SYN, 1), "far too late")
    assert listener().feed(frame(WINDOW | SYN, TOP)) == [Opened(TOP)]


@pytest.mark.parametrize("stream", [0, 2, 4])
def test_syn_of_the_wrong_parity(stream: int) -> None:
    end = with_stream()
    end.open()
    accused(end, frame(WINDOW | SYN, stream), f"stream {stream} is not theirs to open")
    accused(dialler(), frame(DATA | SYN, 1), "stream 1 is not theirs to open")


@pytest.mark.parametrize("head", [DATA, WINDOW, DATA | RST, WINDOW | FIN, DATA | ACK])
def test_frames_for_stream_zero(head: int) -> None:
    for end in (dialler(), listener(), with_stream()):
        accused(end, frame(head, 0), "stream 0, which was never opened")


@pytest.mark.parametrize(
    "wire", [data(3, b"x"), data(3, b"x", FIN), frame(WINDOW, 3, 1), frame(WINDOW | ACK, 2), frame(WINDOW | RST, 2)]
)
def test_frames_for_streams_that_were_never_opened(wire: bytes) -> None:
    accused(with_stream(), wire, "which was never opened")


@pytest.mark.parametrize("head", [4 << 16, 255 << 16, 1 << 24, 0xFFFFFFFF])
def test_unknown_types_and_versions(head: int) -> None:
    accused(with_stream(), frame(head, 1), f"version {head >> 24} and type {head >> 16 & 255}")


def test_a_window_that_overflows() -> None:
    end = with_stream()
    assert end.feed(frame(WINDOW, 1, TOP - end.window(1))) == []
    assert end.window(1) == TOP
    accused(end, frame(WINDOW, 1, 1), "a window of 4294967296 bytes")
    accused(listener(), frame(WINDOW | SYN, 1, TOP), "a window of")


def test_fin_then_data() -> None:
    for wire in (data(1, b"x"), data(1, b"x", FIN), data(1, b"x", ACK)):
        end = with_stream()
        end.feed(frame(WINDOW | FIN, 1))
        accused(end, wire, "1 bytes on stream 1, after its end")


def test_a_flood_of_pings_ends_the_connection_of_who_does_not_read() -> None:
    end = listener()
    with pytest.raises(PeerError, match="goes on asking"):
        end.feed(frame(PING | SYN, 0, 1) * 10_000)
    assert end.pending <= DEFAULTS.control + 2 * SIZE


def test_pings_are_answered_for_ever_to_who_reads() -> None:
    end = listener()
    for _ in range(50):
        end.feed(frame(PING | SYN, 0, 1) * 1_000)
        assert end.pending == 1_000 * SIZE == len(end.take())


def test_a_flood_that_our_own_side_answers_is_bounded_too() -> None:
    end = listener(SMALL)
    with pytest.raises(PeerError, match="goes on asking"):
        for stream in range(1, 999, 2):
            end.feed(frame(WINDOW | SYN, stream))
            end.reset(stream)
    assert end.pending <= SMALL.control + 2 * SIZE


def test_floods_that_ask_for_nothing_take_no_memory() -> None:
    cycles = [
        b"".join(data(stream, b"x" * 50, SYN) + frame(WINDOW | RST, stream) for stream in range(first, first + 200, 2))
        for first in range(3, 40_003, 200)
    ]
    for wires in (cycles, [frame(WINDOW, 1, 1) * 100] * 200, [frame(WINDOW | RST, 1) * 100] * 200, [frame(AWAY, 0) * 100] * 200):
        end = with_stream()
        assert memory(wires, end) < 100_000
        assert (end.held, end.pending) == (0, 0)
        assert end.streams <= 1


def test_slow_bytes_of_a_large_frame_are_not_gathered() -> None:
    end = with_stream()
    end.feed(frame(DATA, 1, INITIAL))
    assert memory([b"x"] * 10_000, end) < 10_000
    assert end.held == INITIAL
