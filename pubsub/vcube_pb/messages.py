"""What VCube-PB's nodes say beyond VCube-PS: publishers register, and whoever lacks a message asks for it.

PUB is the paper's TREE; SUB and UNS are VCUBE_JOIN and VCUBE_LEAVE of a subscriber, REG and UNREG those of a publisher.
Bounds: LIST numbers or streams in a message; numbers as a trace has room for.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from libweft.overlays.claims import check_infos
from libweft.peer.errors import PeerError
from libweft.peer.machine import Message, MessageId, Peer, PeerInfo
from libweft.pubsub.claims import NUMBER, Number, Topic
from libweft.pubsub.vcube_ps.config import WINDOW
from libweft.pubsub.vcube_ps.messages import Change, Standing

LIST = 1_024


class Unreg(Change, frozen=True, tag=9):
    pass


class Decline(Message, frozen=True, tag=10):
    """The sender was never told who subscribes, as one that began anew: somebody else must hand the message on."""

    id: MessageId
    standing: Standing


class Position(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A source in one of its lives, and the lowest number of it in a topic that is missing."""

    source: Peer
    epoch: Number
    next: Number


class AskMissing(Message, frozen=True, tag=11):
    """The receiver sends what it has of that source from `next` up to and without `end`, as PUB, and says which these are.

    Of these only what came to it in the last `age` microseconds: the sender has not subscribed for longer.
    """

    topic: Topic
    position: Position
    end: Number
    age: Number


class Missing(Message, frozen=True, tag=12):
    numbers: Annotated[tuple[Number, ...], Meta(max_length=WINDOW)]


class AskSince(Message, frozen=True, tag=13):
    """The sender subscribes, as of that epoch and sequence, and wants all that came in the last `age` microseconds.

    It knows those streams up to where they stand. Telling and asking are one, or a message between the two would be missed.
    """

    topic: Topic
    epoch: Number
    sequence: Number
    age: Number
    known: Annotated[tuple[Position, ...], Meta(max_length=LIST)]


class Since(Message, frozen=True, tag=14):
    """Whether there is more than the link takes at once."""

    more: bool


def check_position(me: Peer, position: Position) -> None:
    check_infos(me, (PeerInfo(position.source),))
    check_numbers(position.epoch, position.next)


def check_numbers(*several: int) -> None:
    for number in several:
        if not 0 <= number <= NUMBER:
            raise PeerError(f"no node counts to {number}")
