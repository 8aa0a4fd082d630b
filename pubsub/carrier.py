"""A publication spread out over the message that carries it, so that its id and topic are on the wire once."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

from libweft.peer.machine import Lane, Message, MessageId
from libweft.pubsub.claims import Topic
from libweft.pubsub.interests import Attributes
from libweft.pubsub.message import OrderHeader, Publication

Parts: TypeAlias = tuple[MessageId, str, bytes, OrderHeader | None, Attributes, bytes, bytes]


class Spread(Message, frozen=True):
    lane: ClassVar[Lane] = Lane.PAYLOAD

    id: MessageId
    topic: Topic
    data: bytes
    order: OrderHeader | None
    attributes: Attributes
    signature: bytes
    key: bytes

    def publication(self) -> Publication:
        return Publication(self.id, self.topic, self.data, self.order, self.attributes, self.signature, self.key)


def parts(p: Publication) -> Parts:
    """The first fields of whatever carries it."""
    return p.id, p.topic, p.data, p.order, p.attributes, p.signature, p.key
