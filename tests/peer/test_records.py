"""Signed envelopes and peer records: those that other implementations made, and all that must be refused."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libweft.peer.errors import PeerError, UsageError
from libweft.peer.libp2p.address import Address
from libweft.peer.libp2p.ids import Identity, KeyKind, PublicKey, peer_text
from libweft.peer.libp2p.pb import records_pb2
from libweft.peer.libp2p.records import (
    ADDRESS_LIMIT,
    DOMAIN,
    ENVELOPE_LIMIT,
    PAYLOAD_TYPE,
    PeerRecord,
    open_envelope,
    read_record,
    seal_envelope,
    sign_record,
)

ALICE = Identity.from_seed(bytes(32))
BOB = Identity.from_seed(bytes(31) + b"b")
HOME = Address.parse("/ip4/192.0.2.1/tcp/4001")
AWAY = Address.parse("/ip6/2001:db8::1/udp/4001/quic-v1")
RECORD = sign_record(ALICE, [HOME, AWAY], 7)

# envelopes that travelled between other libp2p nodes, and what is in them
OF_GO_ED25519 = (
    "0a240801122079b5562e8fe654f94078b112e8a98ba7901f853ae695bed7e0e3910bad049664120203011a500a2600240801122079b5562e8fe654f9"
    "4078b112e8a98ba7901f853ae695bed7e0e3910bad0496641088ef99abc5e88c91111a0d0a0b047f00000191020fa1cd031a0d0a0b04c0a8000a9102"
    "2328cd032a40d85c6ac219c546773786025106fb199fa63b456e808af9cdbed155efd4dc1114cf7eb912a0b1cc2adfcb129f4fe54bdc47fb03987733"
    "be3107fed37c6495e30a",
    KeyKind.ED25519,
    "12D3KooWJ1TsijH7H5F74hfAD5XishQz3sxrmAtVY37GtNd9CqYf",
    0x1122334455667788,
    ["/ip4/127.0.0.1/udp/4001/quic-v1", "/ip4/192.168.0.10/udp/9000/quic-v1"],
)
OF_GO_RSA = (
    "0aab02080012a60230820122300d06092a864886f70d01010105000382010f003082010a0282010100a8871d16208d36d56e5f53e8284e43ee1b11b8"
    "aa05d4b0ace9bf1d7457e3311664e82e4b82f30e53a42134722483fde245175766d9ccd3a0395dac375bb4946374c7237bc1e4cde42f183588902ebf"
    "5504734d2d557bb519059f2a0659dcaa4ba9e2bcfcbbf72141d7c277dfeb5d3f9ee2334e72f5edf09c783c52f765c2e8d7290dcf06ad59ff3e7e95df"
    "552a3780ce7e18d51652bd11a988924932ce4ceb1f0cd1d0ae9fbe00fec43fb12cf044e8abd22a2f7ab59f39cd7be53c391440f5e77c2205ce4cc901"
    "d8f901416a15ddc87a341c81852065bdcf14771f8196ba34df4ac72ca2f073caf24150cc6d677a9c63c1e68729985eb2546548188fdcfa36f3020301"
    "0001120203011a460a22122007a83d8b64f660d12e2d5c712ced377fe3f72454aaeec7d4b95c31996fadd49610829bcbd490fcad9c181a0a0a08047f"
    "0000010627101a0a0a0804ac1100020627102a80027b1faebecbcb26848711986fc0379a817d6660d2a63d557dfabe9a210c90bd2d28f08b9d26e071"
    "74a93ecba23a19a9babf489d193d9f4849d19d8cd4fbb92c2c1163f235c727a138165ffbceb733f1088fc209f63ec839a2caf185d8cf71887f78b9f9"
    "f40898937fd05ef9bed29387198ce8a9165028019039ba90b55feb48a1415fc0b7764e32ab5e12de32e14c0df488fa00ee16bef318b37b44e215f41f"
    "23d4b6e813c9b3f65e75f3f5b7b27a45fe11ae3696467aa41219fc2e9311a3c2393b60370f492df04197fee7b10b37cdd35d53eb645c7b03a0b59bb6"
    "340a529d77eeac96accc4070c917b6adbe5d90d02fbac5936c953eac4e8dbb5dc992a85e99",
    KeyKind.RSA,
    "QmNrYMc9V6qdndXv1uDNnwzwmWF8S3A38PE4fmGZkh5szd",
    1745347032778984834,
    ["/ip4/127.0.0.1/tcp/10000", "/ip4/172.17.0.2/tcp/10000"],
)
OF_NIM_SECP256K1 = (
    "0a250802122102339d487ed237392d83791950dc891f0636de698c1fa051ea01ae3fa58bd78580120203011a560a2700250802122102339d487ed237"
    "392d83791950dc891f0636de698c1fa051ea01ae3fa58bd78580109cfd8992061a0b0a090400000000910200011a0b0a090400000000910200021a0b"
    "0a090400000000910200032a4730450221008cc77fd265e33c955174b9f49628048b2d72a6395acb30f0ba9d90536fa1a5d502207fa8e5bab8e8ddee"
    "9884a8e244b0990228e3546b5a9b6848632abd924796e576",
    KeyKind.SECP256K1,
    "16Uiu2HAkxu9sgX6qpwYAWuRYQbQE45LG1gx3Dd7hA9NbZj2xV1CK",
    1648524956,
    ["/ip4/0.0.0.0/udp/1", "/ip4/0.0.0.0/udp/2", "/ip4/0.0.0.0/udp/3"],
)


@pytest.mark.parametrize(("wire", "kind", "peer", "sequence", "addresses"), [OF_GO_ED25519, OF_GO_RSA, OF_NIM_SECP256K1])
def test_a_record_that_another_implementation_signed(
    wire: str, kind: KeyKind, peer: str, sequence: int, addresses: list[str]
) -> None:
    key, _payload = open_envelope(bytes.fromhex(wire), DOMAIN, PAYLOAD_TYPE)
    record = read_record(bytes.fromhex(wire))
    assert key.kind is kind
    assert peer_text(record.peer) == peer
    assert record.sequence == sequence
    assert [str(address) for address in record.addresses] == addresses


def test_a_record_survives_the_way() -> None:
    assert read_record(RECORD) == PeerRecord(ALICE.peer, 7, (HOME, AWAY))
    assert read_record(sign_record(ALICE, [], 0)) == PeerRecord(ALICE.peer, 0, ())


def test_the_payload_of_the_same_record_is_the_same_in_go() -> None:
    wire, _kind, _peer, sequence, addresses = OF_GO_ED25519
    theirs = records_pb2.Envelope.FromString(bytes.fromhex(wire))
    ours = records_pb2.Envelope.FromString(sign_record(ALICE, [Address.parse(text) for text in addresses], sequence))
    assert ours.payload.replace(ALICE.public.data, theirs.public_key[4:]) == theirs.payload
    assert ours.ByteSize() == theirs.ByteSize() == len(bytes.fromhex(wire))


@given(st.text(max_size=20), st.binary(max_size=20), st.binary(max_size=200))
def test_an_envelope_opens_for_its_domain_and_its_type(domain: str, payload_type: bytes, payload: bytes) -> None:
    sealed = seal_envelope(ALICE, domain, payload_type, payload)
    assert open_envelope(sealed, domain, payload_type) == (ALICE.public, payload)
    with pytest.raises(PeerError, match="bad signature"):
        open_envelope(sealed, domain + "x", payload_type)
    with pytest.raises(PeerError, match="of the type"):
        open_envelope(sealed, domain, payload_type + b"x")


def test_what_is_signed_has_lengths_so_that_nothing_can_move_from_field_to_field() -> None:
    envelope = records_pb2.Envelope.FromString(seal_envelope(ALICE, "domain", b"type", b"payload"))
    signed = b"\x06domain\x04type\x07payload"
    assert ALICE.public.verify(envelope.signature, signed)
    envelope.payload_type, envelope.payload = b"typep", b"ayload"
    with pytest.raises(PeerError):
        open_envelope(envelope.SerializeToString(), "domain", b"typep")


def test_the_domain_of_the_rfc_text_is_not_taken() -> None:
    _key, payload = open_envelope(RECORD, DOMAIN, PAYLOAD_TYPE)
    with pytest.raises(PeerError):
        read_record(seal_envelope(ALICE, "libp2p-routing-state", b"/libp2p/routing-state-record", payload))
    with pytest.raises(PeerError, match="bad signature"):
        read_record(seal_envelope(ALICE, "libp2p-routing-state", PAYLOAD_TYPE, payload))


def test_a_record_about_another_peer_is_a_peer_error() -> None:
    _key, payload = open_envelope(RECORD, DOMAIN, PAYLOAD_TYPE)
    with pytest.raises(PeerError, match="another peer"):
        read_record(seal_envelope(BOB, DOMAIN, PAYLOAD_TYPE, payload))


def test_a_signature_of_another_key_is_a_peer_error() -> None:
    envelope = records_pb2.Envelope.FromString(RECORD)
    envelope.public_key = BOB.public.encode()
    with pytest.raises(PeerError, match="bad signature"):
        read_record(envelope.SerializeToString())


@pytest.mark.parametrize("field", ["public_key", "payload_type", "payload", "signature"])
def test_an_envelope_without_one_of_its_fields_is_a_peer_error(field: str) -> None:
    envelope = records_pb2.Envelope.FromString(RECORD)
    envelope.ClearField(field)
    with pytest.raises(PeerError):
        read_record(envelope.SerializeToString())


def test_addresses_that_are_not_known_here_are_left_out() -> None:
    record = records_pb2.PeerRecord(peer_id=ALICE.peer, seq=1)
    for multiaddr in (b"", HOME.encode(), b"\xe0\x03", AWAY.encode(), b"\x04\x7f"):
        record.addresses.add(multiaddr=multiaddr)
    sealed = seal_envelope(ALICE, DOMAIN, PAYLOAD_TYPE, record.SerializeToString())
    assert read_record(sealed).addresses == (HOME, AWAY)


def test_of_very_many_addresses_the_first_are_taken() -> None:
    many = [Address.of_tcp("192.0.2.1", port) for port in range(ADDRESS_LIMIT + 1)]
    assert read_record(sign_record(ALICE, many, 1)).addresses == tuple(many[:ADDRESS_LIMIT])


def test_an_envelope_over_the_limit_is_our_mistake_here_and_the_peers_fault_there() -> None:
    rest = len(seal_envelope(ALICE, "d", b"t", bytes(1_000))) - 1_000
    fits = bytes(ENVELOPE_LIMIT - rest)
    assert len(seal_envelope(ALICE, "d", b"t", fits)) == ENVELOPE_LIMIT
    assert open_envelope(seal_envelope(ALICE, "d", b"t", fits), "d", b"t") == (ALICE.public, fits)
    with pytest.raises(UsageError, match="over the limit"):
        seal_envelope(ALICE, "d", b"t", fits + b"x")
    with pytest.raises(PeerError, match="over the limit"):
        open_envelope(bytes(ENVELOPE_LIMIT + 1), "d", b"t")


@pytest.mark.parametrize("sequence", [-1, 1 << 64])
def test_a_sequence_over_64_bits_is_a_usage_error(sequence: int) -> None:
    with pytest.raises(UsageError, match="64 bits"):
        sign_record(ALICE, [HOME], sequence)


def test_the_highest_sequence_passes() -> None:
    assert read_record(sign_record(ALICE, [HOME], (1 << 64) - 1)).sequence == (1 << 64) - 1


@given(st.binary(max_size=200))
def test_random_bytes_are_no_record(data: bytes) -> None:
    with pytest.raises(PeerError):
        read_record(data)


@given(st.binary(max_size=60))
def test_random_bytes_that_the_peer_did_sign_are_a_record_or_a_peer_error(payload: bytes) -> None:
    with suppress(PeerError):
        assert read_record(seal_envelope(ALICE, DOMAIN, PAYLOAD_TYPE, payload)).peer == ALICE.peer


@given(st.integers(0, len(RECORD) - 1), st.integers(1, 255))
def test_no_byte_of_a_record_can_be_changed(at: int, flip: int) -> None:
    changed = bytearray(RECORD)
    changed[at] ^= flip
    with pytest.raises(PeerError):
        read_record(bytes(changed))


def test_every_truncation_is_a_peer_error() -> None:
    for length in range(len(RECORD)):
        with pytest.raises(PeerError):
            read_record(RECORD[:length])


def test_the_key_of_a_record_is_checked_as_every_key_is() -> None:
    envelope = records_pb2.Envelope.FromString(RECORD)
    envelope.public_key = PublicKey(KeyKind.ED25519, b"short").encode()
    with pytest.raises(PeerError, match="no public key"):
        read_record(envelope.SerializeToString())
