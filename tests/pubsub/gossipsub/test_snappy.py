"""Snappy blocks: each kind of element by a crafted block, a writer of others as oracle, and any bytes."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libweft.pubsub.gossipsub.snappy import LIMIT, SnappyError, decompress

BLOCKS = {
    "nothing": (b"\x00", b""),
    "a literal": (b"\x05\x10abcde", b"abcde"),
    "a literal with one byte of length": (b"\x3d\xf0\x3c" + b"x" * 61, b"x" * 61),
    "a literal with two bytes of length": (b"\x80\x02\xf4\xff\x00" + b"x" * 256, b"x" * 256),
    "a literal with three bytes of length": (b"\x02\xf8\x01\x00\x00ab", b"ab"),
    "a literal with four bytes of length": (b"\x02\xfc\x01\x00\x00\x00ab", b"ab"),
    "a near copy": (b"\x08\x0cabcd\x01\x04", b"abcdabcd"),
    "a near copy from beyond 255": (b"\x84\x04\xf8\xff\x01\x00abcd" + b"x" * 508 + b"\x41\x00", b"abcd" + b"x" * 508 + b"abcd"),
    "a copy with two bytes of offset": (b"\x06\x0cabcd\x06\x04\x00", b"abcdab"),
    "a copy with four bytes of offset": (b"\x06\x0cabcd\x07\x04\x00\x00\x00", b"abcdab"),
    "a copy into itself": (b"\x09\x04ab\x1a\x02\x00", b"ababababa"),
    "a copy into itself to a whole number": (b"\x08\x04ab\x16\x02\x00", b"abababab"),
    "a length not in its shortest form": (b"\x82\x00\x04ab", b"ab"),
}
BAD = {
    "nothing at all": b"",
    "a length without an end": b"\x80\x80",
    "a length of six bytes": b"\x80\x80\x80\x80\x80\x00",
    "a length over 32 bits": b"\x82\x80\x80\x80\x10\x04ab",
    "fewer bytes than said": b"\x03\x04ab",
    "more bytes than said": b"\x01\x04ab",
    "a literal that ends early": b"\x03\x10abc",
    "a literal whose length ends early": b"\x05\xf4\x01",
    "a near copy without its offset": b"\x08\x0cabcd\x01",
    "a far copy without its offset": b"\x08\x0cabcd\x0e\x04",
    "a very far copy without its offset": b"\x08\x0cabcd\x0f\x04\x00\x00",
    "a copy from before the beginning": b"\x08\x0cabcd\x01\x05",
    "a copy from nowhere": b"\x08\x0cabcd\x01\x00",
    "a copy beyond the end": b"\x07\x0cabcd\x01\x04",
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_holds(name: str) -> None:
    block, data = BLOCKS[name]
    assert decompress(block) == data


@pytest.mark.parametrize("name", BAD)
def test_a_block_is_refused_for(name: str) -> None:
    with pytest.raises(SnappyError):
        decompress(BAD[name])


def test_a_block_over_the_limit_is_refused_by_its_length_alone() -> None:
    assert decompress(b"\x05\x10abcde", limit=5) == b"abcde"
    with pytest.raises(SnappyError, match="limit of 4"):
        decompress(b"\x05\x10abcde", limit=4)
    with pytest.raises(SnappyError, match=f"limit of {LIMIT}"):
        decompress(b"\x81\x80\x80\x05")


def test_a_block_that_grows_beyond_its_length_is_given_up_at_once() -> None:
    """Else a small message of copies would take twenty times its size."""
    block = b"\x04\x0cabcd" + b"\xfe\x04\x00" * 100_000
    tracemalloc.start()
    try:
        with pytest.raises(SnappyError):
            decompress(block)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


parts = st.lists(st.tuples(st.binary(min_size=1, max_size=300), st.integers(1, 40)), max_size=6)


@given(parts=parts)
@settings(max_examples=150)
def test_what_another_library_writes_is_read_back(parts: list[tuple[bytes, int]]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    data = b"".join(part * count for part, count in parts)
    assert decompress(pyarrow.compress(data, codec="snappy", asbytes=True)) == data


@given(block=st.binary(max_size=200), name=st.sampled_from([*BLOCKS]), at=st.integers(0, 20), byte=st.integers(0, 255))
@settings(max_examples=500)
def test_any_bytes_give_a_block_within_the_limit_or_the_one_error(block: bytes, name: str, at: int, byte: int) -> None:
    changed = bytearray(BLOCKS[name][0])
    changed[at % len(changed)] = byte
    for candidate in (block, b"\xff\x01" + block, bytes(changed)):
        try:
            data = decompress(candidate, limit=255)
        except SnappyError:
            continue
        assert len(data) <= 255
