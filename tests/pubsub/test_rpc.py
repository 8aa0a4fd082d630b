"""libp2p's pub/sub RPC as bytes, and StrictSign: what is signed, what is refused, what stays as its author wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from hypothesis import given
from hypothesis import strategies as st

from libweft.peer.errors import PeerError, UsageError
from libweft.peer.libp2p.ids import Identity, KeyKind, PublicKey
from libweft.peer.libp2p.pb import rpc_pb2
from libweft.peer.machine import EPOCH_BITS, Message, MessageId
from libweft.pubsub.encoding_cache import BYTES
from libweft.pubsub.message import OrderHeader, Publication, weight
from libweft.pubsub.rpc import JOINED, MARK, PUBLICATIONS, RpcCodec, Subscriptions, sequence_number, unsigned
from libweft.pubsub.signing import PREFIX, Signing

AUTHOR = Identity.from_seed(bytes(31) + b"\x01")
OTHER = Identity.from_seed(bytes(31) + b"\x02")


def publication(data: bytes = b"data", sequence: int = 7, topic: str = "news") -> Publication:
    return Publication(MessageId(AUTHOR.peer, 123_456, sequence), topic, data)


def through(*parts: Message) -> Sequence[Message]:
    codec = RpcCodec()
    return [part for frame in codec.pack(parts) for part in RpcCodec().unpack(frame)]


# The codec.


def test_a_plain_message_is_to_the_byte_what_the_specification_says() -> None:
    (frame,) = RpcCodec().pack([publication()])
    seqno = (123_456 << EPOCH_BITS | 7).to_bytes(8)
    message = b"\x0a\x26" + AUTHOR.peer + b"\x12\x04data" + b"\x1a\x08" + seqno + b"\x22\x04news"
    assert frame == b"\x12" + bytes([len(message)]) + message


def test_subscriptions_are_to_the_byte_what_the_specification_says() -> None:
    (frame,) = RpcCodec().pack([Subscriptions(((True, "a"), (False, "b")))])
    assert frame == b"\x0a\x05\x08\x01\x12\x01a" + b"\x0a\x05\x08\x00\x12\x01b"


def test_what_is_queued_travels_in_one_frame_as_long_as_it_fits() -> None:
    parts = [Subscriptions(((True, "t"),)), *(publication(bytes(20_000), number) for number in range(5))]
    frames = RpcCodec().pack(parts)
    assert [len(RpcCodec().unpack(frame)) for frame in frames] == [4, 2]
    assert max(map(len, frames)) <= JOINED
    assert through(*parts) == parts


def test_one_large_message_has_a_frame_of_its_own_and_one_too_large_is_refused_at_the_call() -> None:
    large = publication(bytes(1_000_000))
    assert through(large, publication()) == [large, publication()]
    with pytest.raises(UsageError, match="over the frame limit"):
        RpcCodec().size(publication(bytes(1_100_000)))


def test_an_empty_frame_is_legal_and_says_nothing() -> None:
    assert RpcCodec().unpack(b"") == []


@given(st.binary(max_size=8).filter(bool))
def test_a_sequence_number_of_any_length_comes_back_as_it_was(number: bytes) -> None:
    message = rpc_pb2.Message(from_peer=AUTHOR.peer, data=b"x", seqno=number, topic="t")
    (found,) = RpcCodec().unpack(rpc_pb2.RPC(publish=[message]).SerializeToString())
    assert isinstance(found, Publication)
    assert sequence_number(found.id) == number
    assert unsigned(found) == message.SerializeToString()


@pytest.mark.parametrize("odd", [{"data": None}, {"extra": b"\x7a\x01a"}])
def test_what_could_not_be_passed_on_as_it_was_signed_is_passed_over(odd: dict[str, Any]) -> None:
    """Go signs a field that it does not know, and leaves out data that is nil: here its relays would be blamed for that."""
    message = rpc_pb2.Message(from_peer=AUTHOR.peer, seqno=bytes(8), data=odd.get("data", b"x"), topic="t")
    body = message.SerializeToString() + odd.get("extra", b"")
    good = rpc_pb2.Message(from_peer=AUTHOR.peer, seqno=bytes(8), data=b"", topic="t").SerializeToString()
    frame = b"".join(b"\x12" + bytes([len(each)]) + each for each in (body, good))
    assert len(RpcCodec().unpack(frame)) == 1
    subscribed = rpc_pb2.RPC(subscriptions=[rpc_pb2.RPC.SubOpts(subscribe=True, topicid="t")])
    assert RpcCodec().unpack(subscribed.SerializeToString() + frame)[:1] == [Subscriptions(((True, "t"),))]


sizes = st.sampled_from([0, 1, 127, 128, 16_383, 16_384])
texts = st.text(max_size=20) | sizes.map(lambda size: "ä" * (size // 2))
blobs = st.binary(max_size=20) | sizes.map(bytes)
signed = st.builds(
    Publication,
    st.builds(MessageId, st.binary(max_size=40), st.integers(0, 2**40 - 1), st.integers(0, 2**24 - 1)),
    texts,
    blobs,
    st.none(),
    st.just(()),
    blobs,
    blobs,
)


@given(signed)
def test_a_message_has_the_bytes_that_protobuf_gives_it(said: Publication) -> None:
    """Fields that may be empty are written all the same, as they are signed; signature and key are not where there are none."""
    assert isinstance(said.id.source, bytes)
    message = rpc_pb2.Message(from_peer=said.id.source, data=said.data, seqno=sequence_number(said.id), topic=said.topic)
    assert unsigned(said) == message.SerializeToString(deterministic=True)
    if said.signature:
        message.signature = said.signature
    if said.key:
        message.key = said.key
    assert RpcCodec().pack([said]) == [rpc_pb2.RPC(publish=[message]).SerializeToString()]


@pytest.mark.parametrize("seqno", [b"", bytes(9)])
def test_a_sequence_number_that_cannot_be_is_a_peer_error(seqno: bytes) -> None:
    rpc = rpc_pb2.RPC(publish=[rpc_pb2.Message(from_peer=AUTHOR.peer, data=b"x", seqno=seqno, topic="t")])
    with pytest.raises(PeerError, match="sequence number"):
        RpcCodec().unpack(rpc.SerializeToString())


def test_an_author_longer_than_any_peer_id_is_a_peer_error() -> None:
    """Tables of ids are bounded by number: one forged message of a megabyte's name would count as one."""
    frame = rpc_pb2.RPC(publish=[rpc_pb2.Message(from_peer=bytes(100_000), seqno=bytes(8), topic="t")]).SerializeToString()
    with pytest.raises(PeerError, match="an author of 100000 bytes"):
        RpcCodec().unpack(frame)


def test_a_message_without_an_author_is_a_peer_error() -> None:
    rpc = rpc_pb2.RPC(publish=[rpc_pb2.Message(data=b"x", seqno=bytes(8), topic="t")])
    with pytest.raises(PeerError, match="author"):
        RpcCodec().unpack(rpc.SerializeToString())


headers = st.builds(OrderHeader, st.integers(0, 9), st.integers(0, 9), st.just((MessageId(b"p", 1, 2),)))
attributes = st.lists(st.tuples(st.text(max_size=3), st.integers(0, 9) | st.text(max_size=3)), max_size=2).map(tuple)
contents = st.binary(max_size=40) | st.binary(max_size=20).map(lambda data: MARK + data)


@given(contents, st.none() | headers, attributes)
def test_headers_and_attributes_travel_in_front_of_any_data(data: bytes, order: OrderHeader | None, found: tuple) -> None:
    sent = Publication(MessageId(AUTHOR.peer, 1, 1), "t", data, order, found)
    assert through(sent) == [sent]


@given(st.binary(max_size=30))
def test_data_of_others_that_looks_like_a_mark_is_data(rest: bytes) -> None:
    """Either it reads as a header, which only somebody who means it writes, or it is left as it is."""
    message = rpc_pb2.Message(from_peer=AUTHOR.peer, data=MARK + rest, seqno=bytes(8), topic="t")
    (found,) = RpcCodec().unpack(rpc_pb2.RPC(publish=[message]).SerializeToString())
    assert isinstance(found, Publication)
    assert (MARK + rest).endswith(found.data)


@pytest.mark.parametrize("rest", [b"", b"\x0a\x05\x08\x01\x12\x01a", b"\xd2\x02\x01x"], ids=["alone", "subscription", "unknown"])
def test_too_many_messages_in_one_rpc_are_their_senders_fault(rest: bytes) -> None:
    message = b"\x12\x08\x0a\x01x\x12\x00\x1a\x01x"
    assert len(RpcCodec().unpack(message * PUBLICATIONS + rest)) >= PUBLICATIONS
    with pytest.raises(PeerError, match="messages in one RPC"):
        RpcCodec().unpack(message * (PUBLICATIONS // 2) + rest + message * (PUBLICATIONS // 2 + 1))


def test_what_is_kept_is_bounded_by_its_weight_and_not_by_its_bytes() -> None:
    """Attributes of four bytes each on the wire take many times that in memory."""
    small = [Publication(MessageId(AUTHOR.peer, 1, number), "t", b"", None, (("", ""),) * 3_000) for number in range(40)]
    writer, reader = RpcCodec(), RpcCodec()
    read = [part for m in small for frame in writer.pack([m]) for part in reader.unpack(frame)]
    assert read == small and weight(small[0]) * len(small) > 4 * BYTES
    for kept in (writer._encodings, reader._readings):
        assert 0 < len(kept) * weight(small[0]) <= 2 * BYTES


@given(st.binary(max_size=200))
def test_whatever_bytes_come_it_is_messages_or_a_peer_error(frame: bytes) -> None:
    try:
        parts = RpcCodec().unpack(frame)
    except PeerError:
        return
    assert all(isinstance(part, Publication | Subscriptions) for part in parts)


def test_in_the_simulator_peers_are_numbers() -> None:
    codec, sent = RpcCodec(numbered=True), Publication(MessageId(300, 1, 1), "t", b"x")
    assert [part for frame in codec.pack([sent]) for part in codec.unpack(frame)] == [sent]


# Signatures.


def test_what_was_signed_is_accepted_and_the_key_is_left_out() -> None:
    signed = Signing(AUTHOR).sign(publication())
    assert signed.key == b""
    assert AUTHOR.public.verify(signed.signature, PREFIX + unsigned(publication()))
    (found,) = through(signed)
    assert isinstance(found, Publication)
    assert Signing(OTHER).problem(found) is None


def test_an_order_s_header_is_signed_too() -> None:
    plain = publication()
    signed = Signing(AUTHOR).sign(Publication(plain.id, plain.topic, plain.data, OrderHeader(1, 1)))
    assert Signing(OTHER).problem(signed) is None
    bare = Publication(signed.id, signed.topic, signed.data, None, (), signed.signature)
    assert Signing(OTHER).problem(bare) == "a false signature"


@pytest.mark.parametrize("field", ["topic", "data", "id", "signature"])
def test_whatever_is_changed_the_signature_is_false(field: str) -> None:
    signed = Signing(AUTHOR).sign(publication())
    changes = {
        "topic": Publication(signed.id, "olds", signed.data, signature=signed.signature),
        "data": Publication(signed.id, signed.topic, b"lies", signature=signed.signature),
        "id": Publication(MessageId(AUTHOR.peer, 1, 1), signed.topic, signed.data, signature=signed.signature),
        "signature": Publication(signed.id, signed.topic, signed.data, signature=bytes(64)),
    }
    assert Signing(OTHER).problem(changes[field]) == "a false signature"


def test_no_signature_and_the_signature_of_another_are_refused() -> None:
    signing = Signing(OTHER)
    assert signing.problem(publication()) == "no signature"
    assert signing.problem(signing.sign(publication())) == "a false signature"
    signature = signing.sign(publication()).signature
    forged = Publication(publication().id, "news", b"data", None, (), signature, OTHER.public.encode())
    assert signing.problem(forged) == "the key of another author"


@pytest.mark.parametrize(
    ("epoch", "sequence"),
    [(123_455, 7 + (1 << EPOCH_BITS)), (-1, 7), (123_456, -1), (1 << 60, 7), ((1 << 40) + (1 << 39), 7)],
)
def test_the_same_number_under_another_id_is_refused(epoch: int, sequence: int) -> None:
    signed = Signing(AUTHOR).sign(publication())
    other = Publication(MessageId(AUTHOR.peer, epoch, sequence), signed.topic, signed.data, signature=signed.signature)
    assert Signing(OTHER).problem(other) == "an id that no author gives"


def test_an_author_whose_id_holds_no_key_must_send_it() -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    der = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    public = PublicKey(KeyKind.RSA, der)
    plain = Publication(MessageId(public.peer, 1, 1), "t", b"x")
    signature = key.sign(PREFIX + unsigned(plain), padding.PKCS1v15(), hashes.SHA256())
    whole = Publication(plain.id, "t", b"x", None, (), signature, public.encode())
    assert Signing(OTHER).problem(whole) is None
    assert Signing(OTHER).problem(Publication(plain.id, "t", b"x", None, (), signature)) == "no key of its author"
