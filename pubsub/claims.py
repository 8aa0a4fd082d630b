"""What a message of any router may say of ids, numbers and topics; of peers it is `libweft.overlays.claims`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from libweft.overlays.claims import check_peer
from libweft.peer.errors import PeerError
from libweft.peer.machine import MessageId, Peer
from libweft.pubsub.message import OrderHeader
from libweft.pubsub.router import TOPIC

NUMBER = (1 << 63) - 1  # as a trace has room for

Number = Annotated[int, Meta(ge=0, le=NUMBER)]
Topic = Annotated[str, Meta(max_length=TOPIC)]


def check_id(me: Peer, key: MessageId) -> None:
    check_ids(me, (key,))


def check_ids(me: Peer | None, keys: Iterable[MessageId]) -> None:
    """Sources are peers of one kind with `me`; without one, of either kind."""
    for key in keys:
        if type(key.source) is not int or type(me) is bytes:
            check_peer(key.source if me is None else me, key.source)
        if not (0 <= key.epoch <= NUMBER and 0 <= key.sequence <= NUMBER):
            raise PeerError("an id with a number that no node counts to")


def check_order(order: OrderHeader) -> None:
    """Whether its dependencies are peers of this node's kind, the order that waits for them judges."""
    if not (0 <= order.epoch <= NUMBER and 0 <= order.sequence <= NUMBER):
        raise PeerError("an order with a number that no node counts to")
    check_ids(None, order.dependencies)
