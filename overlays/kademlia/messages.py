"""What Kademlia's nodes say to each other: a Struct for each kind of message of libp2p's kad-dht.

There a request and its answer are the same message, with more fields filled in; so they are here.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from libweft.peer.machine import Message, PeerInfo

PROTOCOL = "/ipfs/kad/1.0.0"


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A stored value; `received` is when its holder got it, RFC 3339: weft leaves it out, and gives back what it was sent.

    `ttl`: seconds that are left of its life. 0, as most other libraries have it, leaves that to who takes it.
    """

    key: bytes
    value: bytes
    received: str = ""
    ttl: int = 0


class PutValue(Message, frozen=True, tag=1):
    """Answered by the same, from who took it, and not at all by others."""

    key: bytes
    record: Record


class GetValue(Message, frozen=True, tag=2):
    key: bytes
    record: Record | None = None
    closer: tuple[PeerInfo, ...] = ()


class AddProvider(Message, frozen=True, tag=3):
    """Has no answer, and libp2p's peers want it on a stream that ends after it."""

    alone: ClassVar[bool] = True

    key: bytes
    providers: tuple[PeerInfo, ...]


class GetProviders(Message, frozen=True, tag=4):
    key: bytes
    providers: tuple[PeerInfo, ...] = ()
    closer: tuple[PeerInfo, ...] = ()


class FindNode(Message, frozen=True, tag=5):
    key: bytes
    closer: tuple[PeerInfo, ...] = ()


class Ping(Message, frozen=True, tag=6):
    """Deprecated, and still answered."""
