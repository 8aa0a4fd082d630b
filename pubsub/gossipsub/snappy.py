"""Snappy's raw block format, the reading half (google/snappy, format_description.txt).

A block is the length of what it holds, as a varint, then elements: literal bytes, or a copy of what came out before. A copy may
reach into itself, which repeats it.
Bounds: `limit` bytes come out at most, and none before the length is known to be within it; one element is made before it is
found to be too many.
"""

from __future__ import annotations

LIMIT = 10 << 20  # the largest payload of Ethereum's consensus layer
LENGTH_BYTES = 5
LITERAL, NEAR, FAR = 0, 1, 2
INLINE = 60  # literals up to this length have it in the tag; above, the tag says how many bytes have it


class SnappyError(ValueError):
    """This is no block, or too long a one."""


def decompress(block: bytes, limit: int = LIMIT) -> bytes:
    size, at = _length(block)
    if size > limit:
        raise SnappyError(f"a block of {size} bytes is over the limit of {limit}")
    out, end = bytearray(), len(block)
    while at < end:
        tag = block[at]
        kind, upper = tag & 3, tag >> 2
        at += 1
        if kind == LITERAL:
            length, at = _literal(block, at, upper)
            _check(at + length <= end)
            out += block[at : at + length]
            at += length
        elif kind == NEAR:
            _check(at < end)
            _copy(out, (tag >> 5) << 8 | block[at], 4 + (upper & 7))
            at += 1
        else:
            width = 2 if kind == FAR else 4
            _check(at + width <= end)
            _copy(out, int.from_bytes(block[at : at + width], "little"), upper + 1)
            at += width
        _check(len(out) <= size)
    _check(len(out) == size)
    return bytes(out)


def _length(block: bytes) -> tuple[int, int]:
    size = 0
    for at, part in enumerate(block[:LENGTH_BYTES]):
        size |= (part & 0x7F) << 7 * at
        if part < 0x80:
            return size, at + 1
    raise SnappyError("a block that ends in its length")


def _literal(block: bytes, at: int, upper: int) -> tuple[int, int]:
    if upper < INLINE:
        return upper + 1, at
    width = upper - INLINE + 1
    return int.from_bytes(block[at : at + width], "little") + 1, at + width


def _copy(out: bytearray, offset: int, length: int) -> None:
    _check(0 < offset <= len(out))
    start = len(out) - offset
    if length <= offset:
        out += out[start : start + length]
    else:
        out += (out[start:] * (length // offset + 1))[:length]


def _check(holds: bool) -> None:
    if not holds:
        raise SnappyError("a block whose elements do not fit it")
