"""The wire of `/weft/collect/1.0.0`: varint frames of typed MessagePack, in both directions of one stream.

A row is that of `libweft.peer.trace` without its node. Whatever is beyond a bound below does not fit its type, and is a
PeerError. Bounds: a frame has FRAME bytes; a batch ROWS rows; texts, ids and lists as said at each field.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from libweft.peer.codec import MsgpackCodec
from libweft.peer.machine import Lane, Message, MessageId
from libweft.peer.trace.kinds import KINDS, Row

PROTOCOL: Final = "/weft/collect/1.0.0"
FRAME = 1 << 16
ROWS = 1_024  # of a batch
TOPIC = 1_024  # letters, as routers allow
REASON = 256  # letters; a longer one is cut
DEPENDENCIES = 512  # of a publish, as causal order allows; the first ones are kept

_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}  # on the wire, so KINDS only grows at its end
_encode = msgspec.msgpack.Encoder().encode

Count = Annotated[int, Meta(ge=0, le=(1 << 62) - 1)]
Small = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Id = Annotated[bytes, Meta(max_length=64)]


class WireId(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A MessageId whose source is a peer id."""

    source: Id
    epoch: Count
    sequence: Count

    def known(self) -> MessageId:
        return MessageId(self.source, self.epoch, self.sequence)


class WireRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Time is the sender's own clock."""

    t: Count
    kind: Annotated[int, Meta(ge=0, le=len(KINDS) - 1)]
    topic: Annotated[str, Meta(max_length=TOPIC)] | None
    msg: WireId | None
    peer: Id | None
    hops: Small | None
    copies: Small | None
    size: Count | None
    lane: Lane | None
    reason: Annotated[str, Meta(max_length=REASON)] | None
    dependencies: Annotated[tuple[WireId, ...], Meta(max_length=DEPENDENCIES)]

    def row(self, node: bytes, t: int) -> Row:
        msg = None if self.msg is None else self.msg.known()
        rest = (self.hops, self.copies, self.size, self.lane, self.reason, tuple(one.known() for one in self.dependencies))
        return (t, node, KINDS[self.kind], self.topic, msg, self.peer, *rest)


class Hello(Message, frozen=True, tag=1):
    """The peer's first words; its epoch differs at each start."""

    epoch: Count


class Told(Message, frozen=True, tag=2):
    """The answer to an Ask, at once: the peer's clock in microseconds."""

    number: Count
    t: Count


class Batch(Message, frozen=True, tag=3):
    """`lost` rows did not fit into the peer's buffer since the batch before."""

    number: Annotated[int, Meta(ge=1, le=(1 << 62) - 1)]
    lost: Count
    rows: Annotated[tuple[WireRow, ...], Meta(min_length=1, max_length=ROWS)]


class Ask(Message, frozen=True, tag=1):
    """What time is it?"""

    number: Count


class Taken(Message, frozen=True, tag=2):
    """All batches up to this one are written; 0 for none."""

    number: Count


FROM_PEER = MsgpackCodec((Hello, Told, Batch), FRAME)
FROM_COLLECTOR = MsgpackCodec((Ask, Taken), FRAME)


def pack_batch(number: int, lost: int, rows: Sequence[Row]) -> bytes:
    """The frame's bytes; they may be too many, and then fewer rows are to be tried."""
    return _encode((3, number, lost, [_wire(row) for row in rows]))


def _wire(row: Row) -> tuple[Any, ...]:
    t, _, kind, topic, msg, peer, hops, copies, size, lane, reason, dependencies = row
    short = reason if reason is None else reason[:REASON]
    return (t, _NUMBERS[kind], topic, msg, peer, hops, copies, size, lane, short, dependencies[:DEPENDENCIES])
