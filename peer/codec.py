"""Typed MessagePack: the wire form of weft's own protocols.

A frame is one message: an array that begins with the class's tag. A frame that does not fit a type of the protocol is
a PeerError. Protocols that others defined bring a codec of their own, of the same shape (`libweft.peer.machine.Codec`).
Bounds: `limit` bytes a frame, checked both ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, reduce
from operator import or_
from typing import Any, Literal

import msgspec

from libweft.peer.errors import PeerError, UsageError
from libweft.peer.machine import Message

FRAME_LIMIT = 1 << 20


class Nothing(Message, frozen=True, tag="nothing"):
    """What a protocol without messages takes: no frame of any peer looks like it."""

    impossible: Literal["nothing"]


class MsgpackCodec:
    joins = False

    def __init__(self, kinds: Sequence[type[Message]], limit: int = FRAME_LIMIT) -> None:
        self.limit = limit
        self._encode = msgspec.msgpack.Encoder().encode
        wire: Any = reduce(or_, kinds) if kinds else Nothing
        self._decode = msgspec.msgpack.Decoder(wire).decode

    def pack(self, parts: Sequence[Message]) -> list[bytes]:
        return [self._frame(part) for part in parts]

    def unpack(self, frame: bytes) -> Sequence[Message]:
        if len(frame) > self.limit:
            raise PeerError(f"a frame of {len(frame)} bytes is over the limit of {self.limit}")
        try:
            return (self._decode(frame),)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise PeerError(f"a frame that does not fit: {error}") from None

    def size(self, msg: Message) -> int:
        return len(self._encode(msg))

    def _frame(self, msg: Message) -> bytes:
        frame = self._encode(msg)
        if len(frame) > self.limit:
            raise UsageError(f"{type(msg).__name__} of {len(frame)} bytes is over the frame limit of {self.limit}")
        return frame


@cache
def msgpack(kinds: tuple[type[Message], ...]) -> MsgpackCodec:
    """One codec a protocol, shared by all its machines in the process."""
    return MsgpackCodec(kinds)
