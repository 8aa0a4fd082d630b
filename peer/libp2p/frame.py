"""Varint frames: how libp2p's protocols cut a stream of bytes into messages.

A frame is its length as an unsigned varint (multiformats' unsigned-varint: seven bits a byte, lowest first), then that many
bytes. A varint has at most 9 bytes (63 bits), and only its shortest form is taken, so that one number has one encoding.
Below it asks for: bytes in order, cut anyhow. Above it promises: whole frames in order, the same for every cut.
A bad length, or one over the limit, is a PeerError; whoever feeds gives up the stream then, frames before it included.

Bounds: `Frames` holds one unfinished frame, at most `limit` + 9 bytes, and copies each byte a constant number of times
however small the pieces are.
"""

from __future__ import annotations

from libweft.peer.errors import PeerError, UsageError

VARINT_BYTES = 9
VARINT_LIMIT = 1 << 7 * VARINT_BYTES
SHORT = tuple(bytes((number,)) for number in range(0x80))  # the varints of one byte, made once


def uvarint(number: int) -> bytes:
    if 0 <= number < len(SHORT):
        return SHORT[number]
    if not 0 <= number < VARINT_LIMIT:
        raise UsageError(f"{number} does not fit a varint of {VARINT_BYTES} bytes")
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def read_uvarint(data: bytes | bytearray | memoryview, at: int = 0) -> tuple[int, int] | None:
    """The number and the position after it; None when the data ends inside it."""
    number, end = 0, len(data)
    for shift in range(0, 7 * VARINT_BYTES, 7):
        if at >= end:
            return None
        part = data[at]
        at += 1
        number |= (part & 0x7F) << shift
        if part < 0x80:
            if part == 0 and shift:
                raise PeerError("a varint that is not in its shortest form")
            return number, at
    raise PeerError(f"a varint of more than {VARINT_BYTES} bytes")


_SHORT = tuple(bytes((size,)) for size in range(0x80))


def frame(payload: bytes) -> bytes:
    size = len(payload)
    return (_SHORT[size] if size < 0x80 else uvarint(size)) + payload


class Frames:
    """Cuts a stream of bytes into the payloads of its frames."""

    __slots__ = ("_held", "_limit", "_need")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = bytearray()
        self._need = 0  # no fewer bytes than these can finish what is held

    @property
    def buffered(self) -> int:
        return len(self._held)

    def feed(self, data: bytes) -> list[bytes]:
        """All frames that are whole now; PeerError as soon as a length over the limit is read."""
        if self._held:
            if len(self._held) + len(data) < self._need:
                self._held += data
                return []
            data = b"".join((self._held, data))
            self._held.clear()
        frames: list[bytes] = []
        at = self._cut(data, frames)
        if at < len(data):
            self._held += memoryview(data)[at:]
        return frames

    def finish(self) -> None:
        """The stream has ended: PeerError when it did so inside a frame."""
        if self._held:
            raise PeerError(f"the stream ended inside a frame, after {len(self._held)} bytes of it")

    def _cut(self, data: bytes, frames: list[bytes]) -> int:
        """Appends what is whole and returns where the rest begins."""
        limit, end, at = self._limit, len(data), 0
        while at < end:
            size, start = data[at], at + 1
            if size > 0x7F:
                head = read_uvarint(data, at)
                if head is None:
                    self._need = end - at + 1
                    break
                size, start = head
            if size > limit:
                raise PeerError(f"a frame of {size} bytes is over the limit of {limit}")
            stop = start + size
            if stop > end:
                self._need = stop - at
                break
            frames.append(data[start:stop])
            at = stop
        return at
