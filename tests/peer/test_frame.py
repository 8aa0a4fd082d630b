"""Varints and frames: one number has one encoding, and how the bytes are cut makes no difference."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libweft.peer.errors import PeerError, UsageError
from libweft.peer.libp2p.frame import VARINT_LIMIT, Frames, frame, read_uvarint, uvarint

LIMIT = 300

numbers = st.integers(0, 300) | st.integers(0, VARINT_LIMIT - 1)
payloads = st.lists(st.binary(max_size=20) | st.binary(min_size=120, max_size=LIMIT), max_size=8)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The data in pieces, the empty ones included."""
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def fed(pieces: list[bytes], limit: int = LIMIT) -> list[bytes]:
    frames = Frames(limit)
    found = []
    for piece in pieces:
        found += frames.feed(piece)
        assert frames.buffered <= limit + 9
    frames.finish()
    return found


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (255, "ff01"),
        (300, "ac02"),
        (16383, "ff7f"),
        (16384, "808001"),
        (2**63 - 1, "ffffffffffffffff7f"),
    ],
)
def test_numbers_of_the_varint_specification(number: int, encoded: str) -> None:
    assert uvarint(number).hex() == encoded
    assert read_uvarint(bytes.fromhex(encoded)) == (number, len(encoded) // 2)


@given(numbers, st.binary(max_size=5), st.binary(max_size=5))
def test_a_number_is_read_where_it_stands_in_any_kind_of_buffer(number: int, before: bytes, after: bytes) -> None:
    data = before + uvarint(number) + after
    found = (number, len(data) - len(after))
    assert read_uvarint(data, len(before)) == found
    assert read_uvarint(bytearray(data), len(before)) == found
    assert read_uvarint(memoryview(data), len(before)) == found


@given(numbers)
def test_a_number_that_is_cut_off_is_none_yet(number: int) -> None:
    encoded = uvarint(number)
    for length in range(len(encoded)):
        assert read_uvarint(encoded[:length]) is None


@given(st.binary(max_size=12))
def test_random_bytes_are_the_shortest_form_of_a_number_or_a_peer_error(data: bytes) -> None:
    with suppress(PeerError):
        found = read_uvarint(data)
        if found is None:
            assert len(data) < 9
        else:
            number, end = found
            assert uvarint(number) == data[:end]


@pytest.mark.parametrize("encoded", ["8000", "ff00", "808000", "ffffffffffffffff00"])
def test_a_number_that_is_not_in_its_shortest_form_is_a_peer_error(encoded: str) -> None:
    with pytest.raises(PeerError, match="shortest"):
        read_uvarint(bytes.fromhex(encoded))


def test_a_tenth_byte_is_a_peer_error_before_it_has_come() -> None:
    assert read_uvarint(b"\xff" * 8) is None
    with pytest.raises(PeerError, match="more than 9 bytes"):
        read_uvarint(b"\xff" * 9)


@pytest.mark.parametrize("number", [-1, 2**63])
def test_a_number_that_no_varint_holds_is_a_local_mistake(number: int) -> None:
    with pytest.raises(UsageError):
        uvarint(number)


@given(payloads, st.lists(st.integers(0), max_size=12))
def test_however_the_bytes_are_cut_the_frames_are_the_same(wanted: list[bytes], places: list[int]) -> None:
    data = b"".join(map(frame, wanted))
    assert fed(cut(data, places)) == wanted


@given(payloads)
def test_one_byte_at_a_time_gives_the_same_frames(wanted: list[bytes]) -> None:
    assert fed([bytes([byte]) for byte in b"".join(map(frame, wanted))]) == wanted


def test_a_frame_is_given_out_with_its_last_byte() -> None:
    frames = Frames(LIMIT)
    assert frames.feed(frame(b"x" * 200)[:-1]) == []
    assert frames.feed(b"x" + frame(b"y")[:1]) == [b"x" * 200]
    assert frames.feed(b"y") == [b"y"]


def test_an_empty_frame_is_a_frame() -> None:
    assert fed([b"\x00\x00", b"\x00"]) == [b"", b"", b""]


def test_a_frame_of_exactly_the_limit_passes_and_one_byte_more_does_not() -> None:
    assert fed([frame(b"x" * LIMIT)]) == [b"x" * LIMIT]
    with pytest.raises(PeerError, match="301 bytes is over the limit of 300"):
        Frames(LIMIT).feed(frame(b"x" * (LIMIT + 1)))


@pytest.mark.parametrize("claim", [LIMIT + 1, 2**32, 2**63 - 1])
def test_a_huge_length_is_refused_before_anything_of_it_has_come(claim: int) -> None:
    frames = Frames(LIMIT)
    *head, last = uvarint(claim)
    assert all(frames.feed(bytes([byte])) == [] for byte in head)
    with pytest.raises(PeerError, match="over the limit"):
        frames.feed(bytes([last]))


def test_a_length_that_never_ends_is_refused_at_its_ninth_byte() -> None:
    frames = Frames(LIMIT)
    assert all(frames.feed(b"\x80") == [] for _ in range(8))
    with pytest.raises(PeerError, match="more than 9 bytes"):
        frames.feed(b"\x80")


def test_the_end_inside_a_frame_or_inside_its_length_is_a_peer_error() -> None:
    whole = frame(b"x" * 200)
    for length in range(1, len(whole)):
        frames = Frames(LIMIT)
        frames.feed(whole[:length])
        assert frames.buffered == length
        with pytest.raises(PeerError, match="inside a frame"):
            frames.finish()


def test_the_end_between_frames_is_good() -> None:
    frames = Frames(LIMIT)
    frames.finish()
    frames.feed(frame(b"x"))
    assert frames.buffered == 0
    frames.finish()


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_random_bytes_give_frames_or_a_peer_error_and_stay_in_bounds(pieces: list[bytes]) -> None:
    frames = Frames(16)
    with suppress(PeerError):
        for piece in pieces:
            assert all(len(found) <= 16 for found in frames.feed(piece))
            assert frames.buffered <= 16 + 9
        frames.finish()


@given(st.binary(max_size=60), st.lists(st.integers(0), max_size=8))
def test_random_bytes_end_the_same_way_however_they_are_cut(data: bytes, places: list[int]) -> None:
    def outcome(pieces: list[bytes]) -> list[bytes] | str:
        try:
            return fed(pieces, limit=16)
        except PeerError as error:
            return str(error)

    assert outcome(cut(data, places)) == outcome([data])


def test_small_pieces_of_a_large_frame_are_not_copied_again_and_again() -> None:
    """Copied at each piece, 4 MiB in pieces of 16 bytes would take minutes."""
    size = 1 << 22
    frames = Frames(size)
    data = memoryview(frame(bytes(size)))
    found = [payload for at in range(0, len(data), 16) for payload in frames.feed(bytes(data[at : at + 16]))]
    assert found == [bytes(size)]
