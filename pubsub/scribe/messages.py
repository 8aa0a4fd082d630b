"""What the nodes of a tree say to each other: JOIN, LEAVE and the heartbeat of Scribe, and what makes them reliable.

A `reign` is the time of one root over one topic, and has an id of its own; in it messages are numbered from 1 on, all on every
branch. So a node knows by two numbers what it lacks, and whoever becomes its parent knows what to send it.
Bounds: numbers as a trace has room for; what is said of peers by `libweft.overlays.claims`.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from libweft.overlays.claims import check_infos
from libweft.peer.errors import PeerError
from libweft.peer.machine import Lane, Message, MessageId, Peer, PeerInfo
from libweft.pubsub.carrier import Spread, parts
from libweft.pubsub.claims import NUMBER, Number, Topic, check_id, check_order
from libweft.pubsub.message import Publication
from libweft.pubsub.numbering import Numbered
from libweft.pubsub.router import TOPIC

HOPS = 64  # more than any way to a root has; beyond that it goes round


class Join(Message, frozen=True, tag=1):
    """The sender is a child, and has what was numbered up to `number` in that reign; in none, if it comes for the first time."""

    topic: Topic
    reign: MessageId | None
    number: Number


class Leave(Message, frozen=True, tag=2):
    topic: Topic


class Standing(Message, frozen=True):
    """Of a parent, about its own place: how far it is in which reign."""

    topic: Topic
    reign: MessageId
    number: Number


class Attached(Standing, frozen=True, tag=3):
    """There is a way to the root, and what comes next on it is the one after `number`."""


class Beat(Standing, frozen=True, tag=4):
    """The root is there, and all up to `number` was sent on this link."""


class Skip(Standing, frozen=True, tag=5):
    """In the place of a message that was refused above."""

    def onward(self) -> Skip:
        return self


class Publish(Numbered, frozen=True, tag=6):
    """To the root. `number` counts what its source published to the topic in that life; all below `base` were answered for."""

    counted: ClassVar[tuple[str, ...]] = ("life", "number", "base")

    hops: Number
    number: Number
    base: Number
    life: Number
    source: PeerInfo

    @classmethod
    def of(cls, p: Publication, number: int, base: int, life: int, source: PeerInfo) -> Publish:
        return cls(*parts(p), 1, number, base, life, source)

    def onward(self) -> Publish:
        return msgspec.structs.replace(self, hops=self.hops + 1)


class Down(Spread, frozen=True, tag=7):
    """From a parent to its children."""

    hops: Number
    number: Number
    reign: MessageId

    @classmethod
    def of(cls, p: Publication, hops: int, reign: MessageId, number: int) -> Down:
        return cls(*parts(p), hops, number, reign)

    def onward(self) -> Down:
        return msgspec.structs.replace(self, hops=self.hops + 1)


class Bequest(Spread, frozen=True, tag=8):
    """What was numbered in a reign that is over, from its root to the next: there may be some who lack it."""

    hops: Number
    number: Number

    @classmethod
    def of(cls, m: Down) -> Bequest:
        return cls(*parts(m.publication()), m.hops + 1, m.number)

    def onward(self) -> Bequest:
        return msgspec.structs.replace(self, hops=self.hops + 1)


class Taken(Message, frozen=True, tag=9):
    """The root has what the receiver published to the topic in that life, all below `number`."""

    topic: Topic
    life: Number
    number: Number
    me: PeerInfo


class Got(Standing, frozen=True, tag=10):
    """Of a child, where `acks` says so. Nothing waits for it, so where a link is slow it is the first to go."""

    lane: ClassVar[Lane] = Lane.LAZY


# Whatever no honest peer says is a PeerError; messages that pass by reference have met no decoder. A check for each kind of
# message: to find out of which kinds one is costs more than all that is checked.


def check_topic(topic: str, number: int = 0) -> None:
    """And a number of what is counted in it."""
    if len(topic) > TOPIC:
        raise PeerError("no topic has such a name")
    if not 0 <= number <= NUMBER:
        raise PeerError("a number that no node counts to")


def check_place(me: Peer, m: Join | Standing | Down, known: MessageId | None = None) -> None:
    """Where somebody is in a reign. The one that is `known` was checked when it was learned."""
    check_topic(m.topic, m.number)
    if m.reign is not None and m.reign != known:
        check_id(me, m.reign)


def check_carried(me: Peer, m: Publish | Down | Bequest) -> None:
    check_id(me, m.id)
    if m.order is not None:
        check_order(m.order)
    if not 0 <= m.hops <= NUMBER:
        raise PeerError("no message goes so far")


def check_bequest(me: Peer, m: Bequest) -> None:
    check_topic(m.topic, m.number)
    check_carried(me, m)


def check_publish(me: Peer, m: Publish) -> None:
    check_topic(m.topic, m.number)
    check_carried(me, m)
    check_infos(me, (m.source,))
    if m.source.peer != m.id.source or not 0 <= m.base <= m.number or not 0 <= m.life <= m.id.epoch:
        raise PeerError("a publication in the name of another, or with numbers that no node counts to")


def check_taken(me: Peer, m: Taken) -> None:
    check_topic(m.topic, m.number)
    check_infos(me, (m.me,))
