"""What GossipSub's nodes say to each other, beside publications and subscriptions.

On the wire they are fields of one RPC (`libweft.pubsub.gossipsub.wire`); each kind is one message an RPC, whatever number of
topics it speaks of, since some limits count RPCs. Ids are bytes, made by the topic's id function
(`libweft.pubsub.gossipsub.ids`).
"""

from __future__ import annotations

from typing import ClassVar

from libweft.peer.machine import Lane, Message, PeerInfo


class IHave(Message, frozen=True, tag=2):
    """For each topic, ids of messages that the sender has seen lately."""

    lane: ClassVar[Lane] = Lane.LAZY

    topics: tuple[tuple[str, tuple[bytes, ...]], ...]


class IWant(Message, frozen=True, tag=3):
    ids: tuple[bytes, ...]


class Graft(Message, frozen=True, tag=4):
    """The receiver is in the sender's mesh of these topics."""

    topics: tuple[str, ...]


class Pruned(Message, frozen=True):
    """One topic of a PRUNE: others who are in it, and the seconds before a GRAFT is welcome; 0 says nothing of it."""

    topic: str
    peers: tuple[PeerInfo, ...] = ()
    backoff: int = 0


class Prune(Message, frozen=True, tag=5):
    topics: tuple[Pruned, ...]


class IDontWant(Message, frozen=True, tag=6):
    """Sent as soon as a large message is here, to those who might send it once more."""

    lane: ClassVar[Lane] = Lane.URGENT
    droppable: ClassVar[bool] = True

    ids: tuple[bytes, ...]


class Extensions(Message, frozen=True, tag=7):
    """Only ever the first thing that a peer says, from version 1.3 on; `test` is the one extension that is known here."""

    test: bool = False


class Test(Message, frozen=True, tag=8):
    """Says nothing; sent once where both have that extension."""
