"""The space of Kademlia: 256 bits, where peers and keys have their places, and the exclusive-or of two places is their distance.

libp2p's kad-dht: the place of a peer is the SHA-256 of its id's bytes, that of a key the SHA-256 of the key. So nobody chooses
a place, but whoever tries many ids gets near to one.
Bounds: REMEMBERED places of peers, shared by all nodes of the process.
"""

from __future__ import annotations

from functools import cache, lru_cache
from hashlib import sha256

from libweft.peer.machine import Peer, Rng

BITS = 256
REMEMBERED = 1 << 16
NUMBER = 8  # bytes of a simulated peer's id
MULTIHASH = b"\x12\x20"  # SHA-256, 32 bytes
PREFIX = 12  # bits of a place by which a key can be chosen: enough for networks of 50,000


def place_of_key(key: bytes) -> int:
    return int.from_bytes(sha256(key).digest())


@lru_cache(maxsize=REMEMBERED)
def place_of(peer: Peer) -> int:
    return int.from_bytes(sha256(peer if type(peer) is bytes else name_of(peer)).digest())  # inlined: it is most of an insert


def name_of(peer: Peer) -> bytes:
    """The key under which a peer itself is looked up."""
    return peer if isinstance(peer, bytes) else peer.to_bytes(NUMBER)


def named(key: bytes, me: Peer) -> Peer | None:
    """The peer that is looked up under a key, of one kind with me; a live one may be none that there is."""
    if isinstance(me, bytes):
        return key
    return int.from_bytes(key) if len(key) == NUMBER else None


def topic_key(topic: str) -> bytes:
    """Where the subscribers of a topic are found; go-libp2p-pubsub's discovery uses the same."""
    return MULTIHASH + sha256(b"floodsub:" + topic.encode()).digest()


def key_in_bucket(mine: int, bucket: int, rng: Rng) -> bytes:
    """A key whose place shares just so many bits with mine, fewer than PREFIX; the bits after that are chance."""
    prefix = mine >> (BITS - PREFIX) ^ 1 << (PREFIX - 1 - bucket)
    free = PREFIX - 1 - bucket
    return _keys()[prefix >> free << free | rng.getrandbits(free) if free else prefix]


@cache
def _keys() -> list[bytes]:
    """One key for each beginning of a place; a hash has no inverse, so they are found by trying."""
    found: dict[int, bytes] = {}
    tried = 0
    while len(found) < 1 << PREFIX:
        key = tried.to_bytes(4)
        found.setdefault(place_of_key(key) >> (BITS - PREFIX), key)
        tried += 1
    return [found[prefix] for prefix in range(1 << PREFIX)]
