"""Message ids, by which messages are announced and asked for: what libraries and networks call the same message.

Libraries differ in their defaults, so that one must be told which to speak: announcements of another are never understood.
All are functions of a publication as it is on the wire. The ids of `go`, `rust` and `js` are author and sequence number;
the others are of the content alone, and two authors who say the same are one.
Bounds: CACHED ids of `go`, which is asked for at every hop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256 as _sha256
from typing import TypeAlias

from libweft.peer.errors import PeerError
from libweft.peer.libp2p import base58
from libweft.peer.libp2p.ids import IDENTITY, check_peer
from libweft.peer.machine import MessageId
from libweft.pubsub.gossipsub.snappy import SnappyError, decompress
from libweft.pubsub.message import Publication
from libweft.pubsub.rpc import SEQNO, sequence_number, wire_data

CACHED = 4_096
LONG = 80  # bytes of an id; a longer one is remembered by its hash
SNAPPY, NO_SNAPPY = b"\x01\x00\x00\x00", b"\x00\x00\x00\x00"
ETHEREUM_SIZE = 20

MessageIdOf: TypeAlias = Callable[[Publication], bytes]


def go(publication: Publication) -> bytes:
    """The specification's, and that of Go and Python: the author's bytes, then the sequence number as it was sent."""
    return _go(publication.id)


@lru_cache(maxsize=CACHED)
def _go(id: MessageId) -> bytes:
    return _author(id) + sequence_number(id)


def rust(publication: Publication) -> bytes:
    """Text: the author in base58, then the sequence number in decimal."""
    number = int.from_bytes(sequence_number(publication.id))
    return f"{base58.encode(_author(publication.id))}{number}".encode()


def js(publication: Publication) -> bytes:
    """The author's key, without the frame of a peer id, then eight bytes of sequence number."""
    number = int.from_bytes(sequence_number(publication.id))
    return _author_key(publication) + number.to_bytes(SEQNO)


def sha256(publication: Publication) -> bytes:
    """That of JavaScript where nothing is signed."""
    return _sha256(wire_data(publication)).digest()


def ethereum(publication: Publication) -> bytes:
    """The consensus layer's at first (phase 0): of what is compressed, or of the raw data where it is not snappy."""
    return _ethereum(publication, b"")


def ethereum_altair(publication: Publication) -> bytes:
    """The consensus layer's ever since (Altair): the topic is part of it."""
    topic = publication.topic.encode()
    return _ethereum(publication, len(topic).to_bytes(8, "little") + topic)


def _ethereum(publication: Publication, topic: bytes) -> bytes:
    data = wire_data(publication)
    try:
        found = SNAPPY + topic + decompress(data)
    except SnappyError:
        found = NO_SNAPPY + topic + data
    return _sha256(found).digest()[:ETHEREUM_SIZE]


def short(key: bytes) -> bytes:
    """To remember an id by that a peer named: it may be as long as a frame."""
    return key if len(key) <= LONG else _sha256(key).digest()


def _author(id: MessageId) -> bytes:
    """In the simulator a number, which has eight bytes on the wire."""
    return id.source if isinstance(id.source, bytes) else id.source.to_bytes(8)


def _author_key(publication: Publication) -> bytes:
    source = publication.id.source
    if not isinstance(source, bytes):
        return _author(publication.id)
    if check_peer(source).startswith(IDENTITY):
        return source[2:]
    if not publication.key:
        raise PeerError("a message without the key of its author, of whom only a hash is known")
    return publication.key


BY_NAME: dict[str, MessageIdOf] = {function.__name__: function for function in (go, rust, js, sha256, ethereum, ethereum_altair)}
