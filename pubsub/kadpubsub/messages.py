"""What KadPubSub's nodes say to each other.

Bounds: lists of peers are refused beyond SUBSCRIBERS, and numbers beyond what honest peers count to. Of what is sent here a list
has LIST bytes at most: so it fits a frame together with the largest message there is, and lists that are longer go in several.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

from msgspec import Meta

from libweft.overlays.claims import check_infos
from libweft.peer.errors import PeerError
from libweft.peer.machine import Message, MessageId, Peer, PeerInfo
from libweft.pubsub.carrier import Spread, parts
from libweft.pubsub.claims import Topic
from libweft.pubsub.message import Publication

SUBSCRIBERS = 4_096  # of one topic
NEAREST = 64  # to a topic: as long as an answer to a lookup can be

LIST = 1 << 16  # below 1 MiB less `libweft.pubsub.router.LARGEST` and its headers, and above any one PeerInfo
HOPS = 1 << 15  # more than any path has
LONGEST = 1 << 60  # microseconds
LARGEST_NUMBER = (1 << 63) - 1  # in ids and headers of an order: what a trace has room for

Hops = Annotated[int, Meta(ge=0, le=HOPS)]
Infos = Annotated[tuple[PeerInfo, ...], Meta(max_length=SUBSCRIBERS)]


class Delegate(Spread, frozen=True, tag=0):
    """A publication, and whom its receiver is to hand it on to."""

    hops: Hops
    rest: Infos

    @classmethod
    def of(cls, p: Publication, hops: int, rest: Sequence[PeerInfo]) -> Delegate:
        return cls(*parts(p), min(hops, HOPS), tuple(rest))

    def check(self, me: Peer) -> None:
        """Whatever no honest peer sends is a PeerError."""
        check_infos(me, (PeerInfo(self.id.source), *self.rest))
        numbers = (self.id.epoch, self.id.sequence, *((self.order.epoch, self.order.sequence) if self.order is not None else ()))
        if not all(0 <= number <= LARGEST_NUMBER for number in numbers):
            raise PeerError("a message with a number that no node counts to")


class Register(Message, frozen=True, tag=1):
    topic: Topic
    me: PeerInfo


class Registered(Message, frozen=True, tag=2):
    accepted: bool


class Unregister(Message, frozen=True, tag=3):
    topic: Topic


class Ask(Message, frozen=True, tag=4):
    """Who subscribes, of those whose id is above `after`, and who comes and goes from now on."""

    topic: Topic
    after: Peer | None = None


class Subscribers(Message, frozen=True, tag=5):
    """In order of their ids. `leased`: for how long changes are told, in microseconds; `more`: there are some above the last."""

    topic: Topic
    subscribers: Infos
    leased: Annotated[int, Meta(ge=0, le=LONGEST)]
    more: bool = False


class Update(Message, frozen=True, tag=6):
    topic: Topic
    subscriber: PeerInfo
    joined: bool


class Nearest(Message, frozen=True, tag=11):
    """Who is nearest to the topic, as far as the sender knows, itself included: somebody is among them who was not before."""

    topic: Topic
    nearest: Annotated[tuple[PeerInfo, ...], Meta(max_length=NEAREST)]


class Got(Message, frozen=True, tag=7):
    """The sender has the message, and is at it."""

    id: MessageId


class Done(Message, frozen=True, tag=8):
    """The sender has nothing left to do for the message."""

    id: MessageId


class Back(Message, frozen=True, tag=9):
    """The list goes back: the sender had done with the message before, refuses it, does not subscribe, or has too much to do."""

    id: MessageId


class Still(Message, frozen=True, tag=10):
    """Whether the receiver is still at it; answered by GOT, DONE or BACK."""

    id: MessageId


def length(info: PeerInfo) -> int:
    """The bytes it takes in a list, or a few more."""
    total = 10 + (len(info.peer) if isinstance(info.peer, bytes) else 8)
    if info.addresses:
        total += sum(5 + len(address.encode()) for address in info.addresses)
    return total + 5 + len(info.record) if info.record is not None else total


def lists(infos: Iterable[PeerInfo]) -> Iterator[list[PeerInfo]]:
    """In the order given, as few as there can be of LIST bytes each."""
    part: list[PeerInfo] = []
    room = LIST
    for info in infos:
        room -= length(info)
        if room < 0 and part:
            yield part
            part, room = [], LIST - length(info)
        part.append(info)
    if part:
        yield part
