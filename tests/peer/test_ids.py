"""Keys and peer ids: the spec's own vectors, what must be refused, and key files that are made once and never lost."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from libweft.peer.errors import PeerError, UsageError
from libweft.peer.libp2p import base58, ids
from libweft.peer.libp2p.ids import (
    COFACTORED,
    INLINE_LIMIT,
    KEY_LIMIT,
    Identity,
    KeyKind,
    PublicKey,
    check_peer,
    key_in,
    parse_peer,
    peer_text,
)
from libweft.peer.libp2p.pb import keys_pb2
from libweft.peer.live.key_file import load_identity

ROOT = Path(__file__).resolve().parent.parent.parent

# libp2p specs, peer-ids, "Test vectors": protobuf PublicKey, and the peer id that follows from it
SPEC_KEYS = {
    KeyKind.RSA: (
        "080012a60430820222300d06092a864886f70d01010105000382020f003082020a0282020100e1beab071d08200bde24eef00d049449b07770ff9910"
        "257b2d7d5dda242ce8f0e2f12e1af4b32d9efd2c090f66b0f29986dbb645dae9880089704a94e5066d594162ae6ee8892e6ec70701db0a6c445c0477"
        "8eb3de1293aa1a23c3825b85c6620a2bc3f82f9b0c309bc0ab3aeb1873282bebd3da03c33e76c21e9beb172fd44c9e43be32e2c99827033cf8d0f0c6"
        "06f4579326c930eb4e854395ad941256542c793902185153c474bed109d6ff5141ebf9cd256cf58893a37f83729f97e7cb435ec679d2e33901d27bb3"
        "5aa0d7e20561da08885ef0abbf8e2fb48d6a5487047a9ecb1ad41fa7ed84f6e3e8ecd5d98b3982d2a901b4454991766da295ab78822add5612a2df83"
        "bcee814cf50973e80d7ef38111b1bd87da2ae92438a2c8cbcc70b31ee319939a3b9c761dbc13b5c086d6b64bf7ae7dacc14622375d92a8ff9af7eb96"
        "2162bbddebf90acb32adb5e4e4029f1c96019949ecfbfeffd7ac1e3fbcc6b6168c34be3d5a2e5999fcbb39bba7adbca78eab09b9bc39f7fa4b93411f"
        "4cc175e70c0a083e96bfaefb04a9580b4753c1738a6a760ae1afd851a1a4bdad231cf56e9284d832483df215a46c1c21bdf0c6cfe951c18f1ee4078c"
        "79c13d63edb6e14feaeffabc90ad317e4875fe648101b0864097e998f0ca3025ef9638cd2b0caecd3770ab54a1d9c6ca959b0f5dcbc90caeefc4135b"
        "aca6fd475224269bbe1b0203010001",
        "QmaeANgBs1DTSxWSrPPtobgQuxW8XTfsS4ydbK4rCHzqxG",
    ),
    KeyKind.ED25519: (
        "080112201ed1e8fae2c4a144b8be8fd4b47bf3d3b34b871c3cacf6010f0e42d474fce27e",
        "12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq",
    ),
    KeyKind.SECP256K1: (
        "08021221037777e994e452c21604f91de093ce415f5432f701dd8cd1a7a6fea0e630bfca99",
        "16Uiu2HAmLhLvBoYaoZfaMUKuibM6ac163GwKY74c5kiSLg5KvLpY",
    ),
    KeyKind.ECDSA: (
        "0803125b3059301306072a8648ce3d020106082a8648ce3d03010703420004de3d300fa36ae0e8f5d530899d83abab44abf3161f162a4bc901d8e6ec"
        "da020e8b6d5f8da30525e71d6851510c098e5c47c646a597fb4dcec034e9f77c409e62",
        "QmVMT29id3TUASyfZZ6k9hmNyc2nYabCo4uMSpDw4zrgDk",
    ),
}
SPEC_PRIVATE = bytes.fromhex(
    "080112407e0830617c4a7de83925dfb2694556b12936c477a0e1feb2e148ec9da60fee7d"
    "1ed1e8fae2c4a144b8be8fd4b47bf3d3b34b871c3cacf6010f0e42d474fce27e"
)
SPEC_SECP256K1_PRIVATE = 0x53DADF1D5A164D6B4ACDB15E24AA4C5B1D3461BDBD42ABEDB0A4404D56CED8FB
SPEC_ECDSA_PRIVATE = 0x3E5B1FE9712E6C314942A750BD67485DE3C1EFE85B1BFB520AE8F9AE3DFA4A4C
ALICE = Identity.from_seed(bytes(32))


def spec_key(kind: KeyKind) -> PublicKey:
    return PublicKey.decode(bytes.fromhex(SPEC_KEYS[kind][0]))


def der(key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def point(key: ec.EllipticCurvePublicKey, form: serialization.PublicFormat) -> bytes:
    return key.public_bytes(serialization.Encoding.X962, form)


def encoded(kind: int, data: bytes) -> bytes:
    return PublicKey(KeyKind(kind), data).encode()


RSA_PRIVATE = rsa.generate_private_key(65_537, 2_048)
SECP256K1_PRIVATE = ec.derive_private_key(SPEC_SECP256K1_PRIVATE, ec.SECP256K1())
ECDSA_PRIVATE = ec.derive_private_key(SPEC_ECDSA_PRIVATE, ec.SECP256R1())
ED25519_PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(32))
KEYS = {
    KeyKind.RSA: PublicKey(KeyKind.RSA, der(RSA_PRIVATE.public_key())),
    KeyKind.ED25519: ALICE.public,
    KeyKind.SECP256K1: spec_key(KeyKind.SECP256K1),
    KeyKind.ECDSA: spec_key(KeyKind.ECDSA),
}


def signed(kind: KeyKind, message: bytes) -> bytes:
    """By `cryptography` alone, as the spec says for each kind."""
    if kind is KeyKind.RSA:
        return RSA_PRIVATE.sign(message, padding.PKCS1v15(), hashes.SHA256())
    if kind is KeyKind.ED25519:
        return ED25519_PRIVATE.sign(message)
    private = SECP256K1_PRIVATE if kind is KeyKind.SECP256K1 else ECDSA_PRIVATE
    return private.sign(message, ec.ECDSA(hashes.SHA256()))


@pytest.mark.parametrize("kind", KeyKind)
def test_the_vectors_of_the_spec(kind: KeyKind) -> None:
    wire, text = SPEC_KEYS[kind]
    key = PublicKey.decode(bytes.fromhex(wire))
    assert key.kind is kind
    assert key.encode().hex() == wire
    assert peer_text(key.peer) == text
    assert parse_peer(text) == key.peer == check_peer(key.peer)


def test_the_public_vectors_belong_to_the_private_ones() -> None:
    assert Identity.decode(SPEC_PRIVATE).public == spec_key(KeyKind.ED25519)
    assert der(ECDSA_PRIVATE.public_key()) == spec_key(KeyKind.ECDSA).data
    compressed = point(SECP256K1_PRIVATE.public_key(), serialization.PublicFormat.CompressedPoint)
    assert compressed == spec_key(KeyKind.SECP256K1).data


@pytest.mark.parametrize("kind", KeyKind)
def test_short_keys_are_inlined_in_the_peer_id_and_long_ones_hashed(kind: KeyKind) -> None:
    key = KEYS[kind]
    if kind in (KeyKind.ED25519, KeyKind.SECP256K1):
        assert key.peer == bytes([0, len(key.encode())]) + key.encode()
        assert key_in(key.peer) == key
    else:
        assert key.peer == b"\x12\x20" + sha256(key.encode()).digest()
        assert key_in(key.peer) is None


def test_keys_are_equal_by_what_they_hold() -> None:
    again = PublicKey.decode(ALICE.public.encode())
    assert again == ALICE.public
    assert len({again, ALICE.public, KEYS[KeyKind.ECDSA]}) == 2


@pytest.mark.parametrize("kind", KeyKind)
def test_a_signature_holds_for_its_message_and_key_alone(kind: KeyKind) -> None:
    key = PublicKey.decode(KEYS[kind].encode())
    signature = signed(kind, b"message")
    assert key.verify(signature, b"message")
    assert not key.verify(signature, b"massage")
    assert not key.verify(signature[:-1], b"message")
    assert not key.verify(b"", b"message")
    assert not key.verify(bytes([signature[0] ^ 1]) + signature[1:], b"message")
    for other in KeyKind:
        assert KEYS[other].verify(signature, b"message") == (other is kind)


@given(st.sampled_from(KeyKind), st.binary(max_size=300), st.binary(max_size=20))
def test_no_signature_makes_verify_raise(kind: KeyKind, signature: bytes, message: bytes) -> None:
    assert KEYS[kind].verify(signature, message) is False


@given(st.sampled_from(KeyKind), st.binary(max_size=100), st.binary(max_size=80))
def test_a_key_of_junk_verifies_nothing(kind: KeyKind, data: bytes, signature: bytes) -> None:
    assert PublicKey(kind, data).verify(signature, b"message") is False


def survives(data: bytes) -> None:
    """A key in its one encoding, or a PeerError; any other exception fails the test."""
    with suppress(PeerError):
        key = PublicKey.decode(data)
        assert key.encode() == data
        assert key.verify(bytes(64), b"message") is False


@given(st.binary(max_size=120))
def test_random_bytes_are_a_key_or_a_peer_error(data: bytes) -> None:
    survives(data)


@given(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=120))
def test_a_random_key_of_a_random_kind_is_a_key_or_a_peer_error(kind: int, data: bytes) -> None:
    survives(keys_pb2.PublicKey(Type=kind, Data=data).SerializeToString())  # type: ignore[arg-type]


@given(st.sampled_from(KeyKind), st.data())
def test_flipped_bytes_of_a_key_never_crash(kind: KeyKind, data: st.DataObject) -> None:
    wire = bytearray(KEYS[kind].encode())
    for _ in range(data.draw(st.integers(1, 3))):
        wire[data.draw(st.integers(0, len(wire) - 1))] ^= data.draw(st.integers(1, 255))
    survives(bytes(wire))


@pytest.mark.parametrize("kind", KeyKind)
def test_every_truncation_of_a_key_is_a_peer_error(kind: KeyKind) -> None:
    wire = KEYS[kind].encode()
    for length in range(len(wire)):
        with pytest.raises(PeerError):
            PublicKey.decode(wire[:length])


ED25519 = ALICE.public.encode()
EC256K1 = SECP256K1_PRIVATE.public_key()
EC256R1 = ECDSA_PRIVATE.public_key()


@pytest.mark.parametrize(
    "wire",
    [
        pytest.param(ED25519[2:] + ED25519[:2], id="fields in another order"),
        pytest.param(ED25519 + b"\x18\x01", id="a field more"),
        pytest.param(b"\x08\x81\x00" + ED25519[2:], id="a varint that is not the shortest"),
        pytest.param(ED25519 + ED25519, id="all fields twice"),
        pytest.param(ED25519[2:], id="no kind"),
        pytest.param(KEYS[KeyKind.RSA].encode()[2:], id="no kind, though 0 is the default"),
        pytest.param(ED25519[:2], id="no data"),
        pytest.param(b"\x08\x04" + ED25519[2:], id="a kind that is not known"),
        pytest.param(encoded(2, point(EC256K1, serialization.PublicFormat.UncompressedPoint)), id="a point not compressed"),
        pytest.param(encoded(2, b"\x05" + bytes(32)), id="no point"),
        pytest.param(encoded(2, b"\x00"), id="the point at infinity"),
        pytest.param(encoded(3, point(EC256R1, serialization.PublicFormat.UncompressedPoint)), id="ECDSA not in DER"),
        pytest.param(encoded(3, der(EC256K1)), id="ECDSA on the curve that is a kind of its own"),
        pytest.param(encoded(3, der(ec.derive_private_key(1, ec.SECP224R1()).public_key())), id="ECDSA on a weaker curve"),
        pytest.param(encoded(3, der(RSA_PRIVATE.public_key())), id="RSA called ECDSA"),
        pytest.param(encoded(0, der(EC256R1)), id="ECDSA called RSA"),
        pytest.param(encoded(0, der(RSA_PRIVATE.public_key()) + b"\x00"), id="bytes after the DER"),
    ],
)
def test_a_key_in_any_other_form_is_a_peer_error(wire: bytes) -> None:
    with pytest.raises(PeerError):
        PublicKey.decode(wire)


def numbers(bits: int, exponent: int) -> bytes:
    """A key of that size, which nobody could sign with: only its numbers are looked at."""
    return encoded(0, der(rsa.RSAPublicNumbers(exponent, (1 << bits - 1) + 1).public_key()))


@pytest.mark.parametrize("bits", [1_024, 2_047, 8_193, 12_000, 16_384])
def test_an_rsa_key_that_is_too_weak_or_too_slow_is_a_peer_error(bits: int) -> None:
    with pytest.raises(PeerError):
        PublicKey.decode(numbers(bits, 65_537))


@pytest.mark.parametrize("bits", [2_048, 4_096, 8_192])
def test_rsa_keys_within_the_bounds_pass(bits: int) -> None:
    assert PublicKey.decode(numbers(bits, 65_537)).verify(bytes(bits // 8), b"message") is False


@pytest.mark.parametrize("exponent", [(1 << 31) + 1, (1 << 64) + 1, (1 << 2_000) + 1])
def test_an_rsa_exponent_that_makes_verifying_slow_is_a_peer_error(exponent: int) -> None:
    with pytest.raises(PeerError):
        PublicKey.decode(numbers(2_048, exponent))


def test_a_key_over_the_limit_is_not_even_parsed() -> None:
    with pytest.raises(PeerError, match="over the limit"):
        PublicKey.decode(bytes(KEY_LIMIT + 1))


def test_a_new_identity_is_another_each_time() -> None:
    first, second = Identity.new(), Identity.new()
    assert first.peer != second.peer
    assert first.public.verify(first.sign(b"message"), b"message")
    assert not second.public.verify(first.sign(b"message"), b"message")


@given(st.binary(min_size=32, max_size=32))
def test_an_identity_survives_both_forms_of_its_encoding(seed: bytes) -> None:
    identity = Identity.from_seed(seed)
    wire = identity.encode()
    assert wire == b"\x08\x01\x12\x40" + seed + identity.public.data
    assert Identity.decode(wire).encode() == wire
    assert Identity.decode(b"\x08\x01\x12\x60" + seed + identity.public.data * 2).encode() == wire


@given(st.binary(max_size=120))
def test_random_bytes_are_no_identity(data: bytes) -> None:
    with pytest.raises(UsageError):
        Identity.decode(data)


PUBLIC = ALICE.public.data


@pytest.mark.parametrize(
    "wire",
    [
        b"\x08\x01\x12\x20" + bytes(32),
        b"\x08\x01\x12\x40" + bytes(64),
        b"\x08\x01\x12\x60" + bytes(32) + PUBLIC + bytes(32),
        b"\x08\x01\x12\x60" + bytes(32) + bytes(32) + PUBLIC,
        b"\x08\x02\x12\x40" + bytes(32) + PUBLIC,
        b"\x12\x40" + bytes(32) + PUBLIC,
        b"\x08\x01",
    ],
)
def test_a_private_key_that_does_not_fit_is_a_usage_error(wire: bytes) -> None:
    with pytest.raises(UsageError):
        Identity.decode(wire)


def test_a_seed_of_another_length_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="32 bytes"):
        Identity.from_seed(bytes(31))


def test_what_is_printed_of_an_identity_is_its_peer_id_alone() -> None:
    assert repr(ALICE) == f"Identity({peer_text(ALICE.peer)})"


# libp2p specs, peer-ids, "String representation", and the same two ids in the other bases
TEXTS = {
    "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N": (
        "bafzbeie5745rpv2m6tjyuugywy4d5ewrqgqqhfnf445he3omzpjbx5xqxe",
        "k2k4r8ncs1yoluq95unsd7x2vfhgve0ncjoggwqx9vyh3vl8warrcp15",
        "zdvgqC3jczfCwLUoSyWT8GLc5UZ9aG4RkAg7XAfidRbX9qVj6",
    ),
    "12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA": (
        "bafzaajaiaejcal72gwuz2or47oyxxn6b3rkwdmmkrxgkjxzy3rqt5kczyn7lcm3l",
        "k51qzi5uqu5dhdmyb9bd18pypu2wp5lpv2xnskfmrqa4lb5knqryrotb05e7or",
        "z5AanNVJCxnJ4fhdT9DsSUYvwjgHpsJ4pn4bueg8bvDe6b1tDj9rmdk",
    ),
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_peer_id_is_read_from_every_text_and_written_in_base58(text: str) -> None:
    peer = parse_peer(text)
    assert peer_text(peer) == text
    assert [parse_peer(cid) for cid in TEXTS[text]] == [peer] * 3


sane_peers = st.binary(min_size=32, max_size=32).map(b"\x12\x20".__add__) | st.binary(min_size=1, max_size=INLINE_LIMIT).map(
    lambda inlined: bytes([0, len(inlined)]) + inlined
)


@given(sane_peers)
def test_every_peer_id_survives_its_text(peer: bytes) -> None:
    assert check_peer(peer) == peer
    assert parse_peer(peer_text(peer)) == peer
    assert parse_peer("z" + base58.encode(b"\x01\x72" + peer)) == peer


@given(st.text(max_size=120) | st.text(alphabet=base58.ALPHABET, max_size=120).map("1".__add__))
def test_any_text_is_a_peer_id_or_a_usage_error(text: str) -> None:
    with suppress(UsageError):
        assert check_peer(parse_peer(text))


@pytest.mark.parametrize("prefix", ["", "1", "Qm", "b", "k", "z", "f", "B", "m"])
@given(digits=st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789=-_ ²", max_size=90))
def test_any_digits_after_a_prefix_are_a_peer_id_or_a_usage_error(prefix: str, digits: str) -> None:
    with suppress(UsageError):
        assert check_peer(parse_peer(prefix + digits))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Qm",
        "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5",
        "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5NN",
        "0mYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N",
        "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhxlN",
        " QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N",
        "BAFZBEIE5745RPV2M6TJYUUGYWY4D5EWRQGQQHFNF445HE3OMZPJBX5XQXE",
        "bAFZBEIE5745RPV2M6TJYUUGYWY4D5EWRQGQQHFNF445HE3OMZPJBX5XQXE",
        "bafybeie5745rpv2m6tjyuugywy4d5ewrqgqqhfnf445he3omzpjbx5xqxe",  # a CID, but of something else than a key
        "1" * 5_000,
        "k" + "0" * 5_000,
    ],
)
def test_what_is_no_peer_id_is_a_usage_error_of_one_short_line(text: str) -> None:
    with pytest.raises(UsageError, match="is no peer id") as caught:
        parse_peer(text)
    assert len(str(caught.value)) < 300


def test_a_long_text_is_refused_before_its_digits_are_counted() -> None:
    with pytest.raises(UsageError, match="too long"):
        parse_peer("1" * 101)


@given(st.binary(max_size=60))
def test_random_bytes_are_a_peer_id_or_a_peer_error(data: bytes) -> None:
    with suppress(PeerError):
        assert check_peer(data) == data
        key = key_in(data)
        assert key is None or key.peer == data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\x00\x00",
        b"\x00\x01",
        b"\x00\x02x",
        b"\x00\x2b" + bytes(43),
        b"\x12\x20" + bytes(31),
        b"\x12\x20" + bytes(33),
        b"\x12\x1f" + bytes(31),
        b"\x13\x40" + bytes(64),
        ALICE.peer + b"\x00",
    ],
)
def test_other_multihashes_are_a_peer_error(data: bytes) -> None:
    with pytest.raises(PeerError):
        check_peer(data)


def test_a_peer_id_that_inlines_something_else_than_a_key_is_a_peer_error() -> None:
    assert check_peer(b"\x00\x05hello")
    with pytest.raises(PeerError):
        key_in(b"\x00\x05hello")


@pytest.mark.parametrize(
    ("data", "text"),
    [(b"", ""), (b"\0", "1"), (b"\0\0\1", "112"), (b"Hello World!", "2NEpo7TZRRrLZSi2U"), (b"\xff", "5Q")],
)
def test_base58(data: bytes, text: str) -> None:
    assert base58.encode(data) == text
    assert base58.decode(text) == data


@given(st.binary(max_size=60))
def test_base58_round_trip(data: bytes) -> None:
    assert base58.decode(base58.encode(data)) == data


def test_a_key_file_is_made_on_first_use_and_read_ever_after(tmp_path: Path) -> None:
    path = tmp_path / "key"
    made = load_identity(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() == made.encode()
    assert load_identity(path).peer == made.peer
    assert os.listdir(tmp_path) == ["key"]


def test_a_key_file_of_another_libp2p_is_read(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(SPEC_PRIVATE)
    path.chmod(0o600)
    assert load_identity(path).public == spec_key(KeyKind.ED25519)
    assert path.read_bytes() == SPEC_PRIVATE


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_a_key_file_is_closed_to_others_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        load_identity(tmp_path / "key")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o666])
def test_a_key_file_that_others_may_open_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    load_identity(path)
    path.chmod(mode)
    with pytest.raises(UsageError, match=f"chmod 600 {path}"):
        load_identity(path)


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00", SPEC_PRIVATE[:-1], SPEC_PRIVATE[:-1] + b"\x00", SPEC_PRIVATE[:40], bytes(68), b"-----BEGIN", bytes(100_000)],
)
def test_a_damaged_key_file_is_refused_and_left_as_it_is(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(data)
    path.chmod(0o600)
    with pytest.raises(UsageError, match=r"remove it to start with a new peer id") as caught:
        load_identity(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == data
    assert os.listdir(tmp_path) == ["key"]


def test_a_key_file_in_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"there is no directory {tmp_path / 'no'}"):
        load_identity(tmp_path / "no" / "key")
    assert os.listdir(tmp_path) == []


def test_a_key_file_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="Not a directory"):
        load_identity(tmp_path / "file" / "key")


def test_a_directory_or_a_pipe_is_no_key_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(UsageError, match="is no file"):
            load_identity(path)


def test_a_link_to_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").symlink_to(tmp_path / "gone")
    with pytest.raises(UsageError, match="link to nowhere"):
        load_identity(tmp_path / "key")
    assert os.listdir(tmp_path) == ["key"]


def test_a_key_file_in_a_directory_that_is_not_writable_is_refused() -> None:
    with TemporaryDirectory() as place:
        os.chmod(place, 0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65_534)  # root may write everywhere
        try:
            with pytest.raises(UsageError, match=f"{place}/key cannot be used: Permission denied"):
                load_identity(Path(place) / "key")
        finally:
            os.seteuid(user)
        assert os.listdir(place) == []


@pytest.mark.parametrize("call", ["open", "fsync", "link"])
def test_a_disk_that_refuses_leaves_no_key_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def refuse(*_args: object) -> int:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(UsageError, match="Read-only file system"):
        load_identity(tmp_path / "key")
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []


def test_the_key_of_a_process_that_was_first_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key"
    link = os.link

    def late(draft: Path, name: Path) -> None:
        (tmp_path / "theirs").write_bytes(SPEC_PRIVATE)
        (tmp_path / "theirs").chmod(0o600)
        os.rename(tmp_path / "theirs", path)
        link(draft, name)

    monkeypatch.setattr(os, "link", late)
    assert load_identity(path).encode() == path.read_bytes() == SPEC_PRIVATE
    assert os.listdir(tmp_path) == ["key"]


def test_threads_that_race_for_a_key_file_all_get_one_key(tmp_path: Path) -> None:
    start = Barrier(8)

    def load(_: int) -> bytes:
        start.wait(30)
        return load_identity(tmp_path / "key").peer

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(load, range(8)))) == 1
    assert os.listdir(tmp_path) == ["key"]


def test_processes_that_race_for_a_key_file_get_one_key(tmp_path: Path) -> None:
    program = "import sys; from pathlib import Path; from libweft.peer.live.key_file import load_identity\n"
    program += "print('ready', flush=True); input()\n"
    program += "print(load_identity(Path(sys.argv[1])).peer.hex())"
    command = [sys.executable, "-c", program, str(tmp_path / "key")]
    racers = [subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for racer in racers:
        assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()
    peers = [racer.communicate(timeout=60)[0] for racer in racers]
    assert peers == [load_identity(tmp_path / "key").peer.hex() + "\n"] * 2
    assert os.listdir(tmp_path) == ["key"]


@given(st.binary(max_size=200), st.integers(0, 64 * 8 - 1), st.integers(0, 3))
def test_a_signature_of_ed25519_is_good_for_one_message_and_in_one_form(message: bytes, bit: int, longer: int) -> None:
    """Beside `cryptography` alone: what it refuses is refused here."""
    identity = Identity.from_seed(bytes(32))
    signature = identity.sign(message)
    assert identity.public.verify(signature, message)
    assert not identity.public.verify(signature, message + b"!")
    flipped = (int.from_bytes(signature) ^ 1 << bit).to_bytes(64)
    with pytest.raises(InvalidSignature):
        Ed25519PublicKey.from_public_bytes(identity.public.data).verify(flipped, message)
    assert not identity.public.verify(flipped, message)
    assert not identity.public.verify(signature + bytes(longer + 1), message)
    assert not identity.public.verify(signature[longer + 1 :], signature[: longer + 1] + message)


ORDER = 2**252 + 27742317777372353535851937790883648493


def test_a_signature_plus_the_order_of_the_group_is_refused() -> None:
    identity = Identity.from_seed(bytes(32))
    signature = identity.sign(b"m")
    again = int.from_bytes(signature[32:], "little") + ORDER
    assert not identity.public.verify(signature[:32] + again.to_bytes(32, "little"), b"m")


def agrees(data: bytes, signature: bytes, message: bytes) -> bool:
    """What `cryptography` says, and that it is what is said here."""
    try:
        Ed25519PublicKey.from_public_bytes(data).verify(signature, message)
        good = True
    except InvalidSignature:
        good = False
    assert PublicKey(KeyKind.ED25519, data).verify(signature, message) is good
    return good


SMALL = [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000080",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
]
"""Points of small order, some in two encodings."""


@pytest.mark.parametrize("point", SMALL)
def test_with_a_key_of_small_order_is_signed_what_is_so_for_others(point: str) -> None:
    """Such a key has no owner, so that nobody is robbed; but who refuses what others pass on, blames them for it."""
    key, starts = bytes.fromhex(point), [bytes.fromhex(start) for start in SMALL]
    assert sum(agrees(key, start + bytes(32), bytes([number])) for start in starts for number in range(16)) > 0


def test_a_signature_that_starts_with_the_neutral_point_is_good_as_it_is_for_others() -> None:
    """Its author gave away the private key; libsodium alone would refuse it."""
    data, _, message = COFACTORED
    neutral = "0100000000000000000000000000000000000000000000000000000000000000"
    rest = "4f2526bc36d5783d52e661044d3403147980469bdc566d12bb36db266600a605"
    assert agrees(data, bytes.fromhex(neutral + rest), message)
    assert not agrees(data, bytes.fromhex(neutral + rest), message + b"!")


def test_a_signature_that_needs_the_cofactor_is_refused() -> None:
    assert not agrees(*COFACTORED)


def test_a_libsodium_that_would_take_it_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "crypto_sign_open", lambda signed, key: signed)
    monkeypatch.setattr(ids, "SODIUM_AGREES", not ids._sodium_verifies(*COFACTORED))
    identity = Identity.from_seed(bytes(32))
    assert identity.public.verify(identity.sign(b"m"), b"m")
    assert not identity.public.verify(identity.sign(b"m"), b"n")
