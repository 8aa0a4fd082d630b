"""A publication: its envelope, the header of an order, and the verdicts of validation.

A publication is immutable and whole at birth; routers pass it on by reference. Its id is (source, epoch, sequence).
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, Protocol

import msgspec

from libweft.peer.machine import Lane, Message, MessageId
from libweft.pubsub.interests import Attributes


class OrderHeader(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Put there by an order; `sequence` counts without holes for one source and topic, from each epoch's 1."""

    epoch: int
    sequence: int
    dependencies: tuple[MessageId, ...] = ()


class Publication(Message, frozen=True, tag=0):
    lane: ClassVar[Lane] = Lane.PAYLOAD

    id: MessageId
    topic: str
    data: bytes
    order: OrderHeader | None = None
    attributes: Attributes = ()
    signature: bytes = b""  # of its source, and the source's key where the peer id does not hold it: `libweft.pubsub.signing`
    key: bytes = b""


class Verdict(Enum):
    """What validation says of a message; ignored ones are dropped without blame for their sender."""

    ACCEPT = "accept"
    IGNORE = "ignore"
    REJECT = "reject"


class Weighed(Protocol):
    """A publication, or a message that spreads one out."""

    @property
    def topic(self) -> str: ...
    @property
    def data(self) -> bytes: ...
    @property
    def order(self) -> OrderHeader | None: ...
    @property
    def attributes(self) -> Attributes: ...
    @property
    def signature(self) -> bytes: ...
    @property
    def key(self) -> bytes: ...


def weight(m: Weighed) -> int:
    """About the bytes it takes in memory: of small parts many times those on the wire."""
    total = 64 + len(m.data) + len(m.topic) + len(m.signature) + len(m.key)
    if m.attributes:
        total += sum(128 + len(name) + len(str(value)) for name, value in m.attributes)
    return total + 96 * len(m.order.dependencies) if m.order is not None else total
