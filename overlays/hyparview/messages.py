"""The messages of HyParView."""

from __future__ import annotations

from libweft.peer.machine import Message, PeerInfo

# Reasons of a DISCONNECT.
MADE_ROOM = "made room for another"
LATE = "the answer came too late"
FULL = "the last slot was taken"
STRANGER = "not a neighbour"
LEFT = "left"
REJOINED = "joined again"


class Join(Message, frozen=True, tag=1):
    me: PeerInfo
    attempt: int


class ForwardJoin(Message, frozen=True, tag=2):
    new: PeerInfo
    ttl: int


class Neighbor(Message, frozen=True, tag=3):
    me: PeerInfo
    attempt: int
    high: bool


class NeighborReply(Message, frozen=True, tag=4):
    """Answers JOIN and NEIGHBOR."""

    attempt: int
    accepted: bool


class Disconnect(Message, frozen=True, tag=5):
    """`alive`: the sender may be asked again; otherwise it is about to be gone."""

    alive: bool
    reason: str


class Shuffle(Message, frozen=True, tag=6):
    """The origin's own id is one of those exchanged; the number comes back in the reply."""

    origin: PeerInfo
    number: int
    peers: tuple[PeerInfo, ...]
    ttl: int


class ShuffleReply(Message, frozen=True, tag=7):
    """Number 0: nobody shuffled, it precedes a DISCONNECT."""

    number: int
    peers: tuple[PeerInfo, ...]


class KeepAlive(Message, frozen=True, tag=8):
    pass
