"""What VCube-PS's nodes say to each other: PUB, SUB, UNS and ACK of the paper, and three for what it leaves out.

`height` is CLUSTER(i,j) - 1 of the paper, as its sender knows it: the receiver serves its clusters up to that one. It travels
with the message because the receiver may not have heard yet which place the sender has.
Bounds: a list of standings has one for each place of the largest cube, and fits a frame; numbers as a trace has room for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import accumulate, islice
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from libweft.overlays.claims import check_peer
from libweft.overlays.vcube.cube import DIMENSION, PLACES
from libweft.overlays.vcube.messages import Member
from libweft.peer.codec import FRAME_LIMIT
from libweft.peer.errors import PeerError
from libweft.peer.machine import Message, MessageId, Peer
from libweft.pubsub.carrier import parts
from libweft.pubsub.claims import NUMBER, Number, Topic, check_id, check_order
from libweft.pubsub.message import Publication
from libweft.pubsub.numbering import Numbered
from libweft.pubsub.router import TOPIC

TOPICS = 128  # in one message: half a frame, where names are of the longest letters
SMALL = 8_192  # standings that fit a frame whatever they say
HOPS = 1 << 15

Height = Annotated[int, Meta(ge=0, le=DIMENSION)]


class Standing(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Whether a peer subscribes, as of its own count: `view`'s <n, o, rc> of the paper, with the epoch of n's start."""

    peer: Peer
    subscribed: bool
    epoch: Number
    sequence: Number

    def newer(self, other: Standing) -> bool:
        return (self.epoch, self.sequence) > (other.epoch, other.sequence)


Standings = Annotated[tuple[Standing, ...], Meta(max_length=PLACES)]


def fitting(view: Collection[Standing]) -> tuple[Standing, ...]:
    """As many as one message takes."""
    if len(view) <= SMALL:
        return tuple(view)
    sizes = accumulate(map(_size, view))
    room = FRAME_LIMIT - 1_024
    return tuple(islice((standing for standing, size in zip(view, sizes, strict=True) if size <= room), PLACES))


def _size(standing: Standing) -> int:
    """Of its encoding, at most."""
    return 22 + (len(standing.peer) if isinstance(standing.peer, bytes) else 9)


class Pub(Numbered, frozen=True, tag=1):
    """A publication. `number` counts those of its source and topic; all below `base` are acknowledged.

    `elder` is how many microseconds before it the source sent the one before it there; None for the first, and in VCube-PS.
    """

    counted: ClassVar[tuple[str, ...]] = ("number", "base", "elder")

    number: Number
    base: Number
    hops: Annotated[int, Meta(ge=0, le=HOPS)]
    height: Height
    elder: Number | None = None

    @classmethod
    def of(cls, p: Publication, number: int, base: int) -> Pub:
        return cls(*parts(p), number, base, 1, 0)

    def to(self, height: int) -> Pub:
        return msgspec.structs.replace(self, height=height)

    def onward(self) -> Pub:
        return msgspec.structs.replace(self, hops=min(self.hops + 1, HOPS), height=0)

    def check(self, me: Peer) -> None:
        check_id(me, self.id)
        if self.order is not None:
            check_order(self.order)
        if not 0 <= self.base <= self.number <= NUMBER or not 0 <= (self.elder or 0) <= NUMBER:
            raise PeerError("a message with a number that no node counts to")
        if not 0 <= self.height <= DIMENSION or not 0 <= self.hops <= HOPS:
            raise PeerError("a message for no cube")


class Change(Message, frozen=True):
    """The source of the id subscribes, or does not any more."""

    id: MessageId
    topic: Topic
    height: Height

    def to(self, height: int) -> Change:
        return msgspec.structs.replace(self, height=height)

    def check(self, me: Peer) -> None:
        check_id(me, self.id)
        if len(self.topic) > TOPIC or not 0 <= self.height <= DIMENSION:
            raise PeerError("a subscription to no topic, or for no cube")


class Sub(Change, frozen=True, tag=2):
    """It says which place the source has: all that have acknowledged it can reach the source, whatever they heard before."""

    member: Member


class Uns(Change, frozen=True, tag=3):
    pass


class Reg(Sub, frozen=True, tag=8):
    """The source publishes, and wants to know who subscribes."""


class Ack(Message, frozen=True, tag=4):
    """All below the sender have the message; `view` is what they say of themselves."""

    id: MessageId
    view: Standings


class Told(Message, frozen=True, tag=5):
    """What the sender subscribes to: topic, epoch and sequence. To a member that was not there when SUB went round."""

    topics: Annotated[tuple[tuple[Topic, Number, Number], ...], Meta(max_length=TOPICS)]


class AskFloor(Message, frozen=True, tag=6):
    """Answered when all below the number are acknowledged, so that what has not come by then never will."""

    topic: Topic
    number: Number


class Floor(Message, frozen=True, tag=7):
    base: Number


def check_standings(me: Peer, view: Iterable[Standing]) -> None:
    for standing in view:
        check_peer(me, standing.peer)
        if not (0 <= standing.epoch <= NUMBER and 0 <= standing.sequence <= NUMBER):
            raise PeerError("a standing with a number that no node counts to")
