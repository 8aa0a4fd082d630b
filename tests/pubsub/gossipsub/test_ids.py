"""Message ids: what other libraries call the same message."""

from __future__ import annotations

from hashlib import sha256

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from msgspec.structs import replace

from libweft.peer.errors import PeerError
from libweft.peer.libp2p.ids import Identity, KeyKind, PublicKey, peer_text
from libweft.peer.machine import MessageId
from libweft.pubsub.gossipsub import ids
from libweft.pubsub.message import Publication
from libweft.pubsub.rpc import RpcCodec, sequence_number

AUTHOR = Identity.from_seed(bytes(range(32)))
LIVE = Publication(MessageId(AUTHOR.peer, 5, 7), "t", b"data")
SEQNO = bytes.fromhex("0000000005000007")
SNAPPY = b"\x08\x0cabcd\x01\x04"  # abcdabcd


def hashed(*parts: bytes) -> bytes:
    return sha256(b"".join(parts)).digest()


def test_go_is_the_authors_bytes_and_the_sequence_number() -> None:
    assert ids.go(LIVE) == AUTHOR.peer + SEQNO


def test_go_takes_a_short_sequence_number_as_it_was_sent() -> None:
    """A peer that left out leading zeros has another id than one that did not: both are known by their bytes."""
    frame = RpcCodec().pack([LIVE])[0].replace(b"\x1a\x08" + SEQNO, b"\x1a\x04" + SEQNO[4:])
    short = RpcCodec().unpack(frame.replace(frame[1:2], bytes([frame[1] - 4]), 1))[0]
    assert isinstance(short, Publication)
    assert sequence_number(short.id) == SEQNO[4:]
    assert ids.go(short) == AUTHOR.peer + SEQNO[4:]


def test_go_in_the_simulator_has_eight_bytes_of_author() -> None:
    assert ids.go(replace(LIVE, id=MessageId(3, 5, 7))) == bytes(7) + b"\x03" + SEQNO


def test_rust_is_text_of_base58_and_decimal() -> None:
    assert ids.rust(LIVE) == (peer_text(AUTHOR.peer) + str((5 << 24) + 7)).encode()
    assert ids.rust(LIVE).startswith(b"12D3Koo")


def test_js_is_the_key_of_the_author_and_eight_bytes() -> None:
    assert ids.js(LIVE) == AUTHOR.public.encode() + SEQNO


def test_js_takes_the_key_of_the_message_where_the_author_is_a_hash() -> None:
    private = rsa.generate_private_key(65_537, 2_048)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    key = PublicKey(KeyKind.RSA, private.public_key().public_bytes(serialization.Encoding.DER, form))
    publication = replace(LIVE, id=replace(LIVE.id, source=key.peer), key=key.encode())
    assert ids.js(publication) == key.encode() + SEQNO
    with pytest.raises(PeerError, match="without the key"):
        ids.js(replace(publication, key=b""))


def test_js_refuses_an_author_that_is_no_peer_id() -> None:
    with pytest.raises(PeerError):
        ids.js(replace(LIVE, id=replace(LIVE.id, source=b"nobody")))


def test_js_in_the_simulator_has_eight_bytes_of_author() -> None:
    assert ids.js(replace(LIVE, id=MessageId(3, 5, 7))) == bytes(7) + b"\x03" + SEQNO


def test_sha256_is_of_the_data_as_it_is_on_the_wire() -> None:
    assert ids.sha256(LIVE) == hashed(b"data")
    marked = replace(LIVE, attributes=(("a", 1),))
    assert ids.sha256(marked) not in (hashed(b"data"), ids.sha256(replace(LIVE, attributes=(("a", 2),))))


def test_ethereum_hashes_what_is_compressed() -> None:
    assert ids.ethereum(replace(LIVE, data=SNAPPY)) == hashed(b"\x01\0\0\0", b"abcdabcd")[:20]


def test_ethereum_hashes_the_raw_data_where_it_is_no_snappy() -> None:
    assert ids.ethereum(LIVE) == hashed(b"\0\0\0\0", b"data")[:20]


def test_ethereum_since_altair_has_the_topic_in_it() -> None:
    topic = b"\x01\0\0\0\0\0\0\0t"
    assert ids.ethereum_altair(replace(LIVE, data=SNAPPY)) == hashed(b"\x01\0\0\0", topic, b"abcdabcd")[:20]
    assert ids.ethereum_altair(LIVE) == hashed(b"\0\0\0\0", topic, b"data")[:20]
    assert ids.ethereum_altair(replace(LIVE, topic="é"))[:20] == hashed(b"\0\0\0\0\x02\0\0\0\0\0\0\0", "é".encode(), b"data")[:20]


def test_every_function_is_found_by_its_name() -> None:
    assert list(ids.BY_NAME) == ["go", "rust", "js", "sha256", "ethereum", "ethereum_altair"]
    assert len({function(LIVE) for function in ids.BY_NAME.values()}) == 6
