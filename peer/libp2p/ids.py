"""Keys, peer ids, and the node's own identity, as in the libp2p spec `peer-ids`.

A peer id is the multihash of the protobuf of a public key: the key itself where that is at most 42 bytes (Ed25519,
secp256k1), else its SHA-256 (RSA, ECDSA). As text it is base58, or a CIDv1, which is read but never written.
A key has one encoding only: what a peer sends in another is refused, so that one key never has two peer ids.

Which odd signatures of Ed25519 are good, implementations differ in, and who passes on what a neighbour refuses is blamed for
it. So all is good that is good for `cryptography`, as it is in Go and Rust, and nothing else.

Below it asks for: `cryptography`; `PyNaCl` to say yes to signatures of Ed25519, which are verified most, in half the time.
Above it promises: `verify` is true or false whatever a peer sends.
Bounds: a key of 2,048 bytes at most; RSA of 2,048 to 8,192 bits with an exponent below 2**31, as in Go, so that no
peer can make verifying slow.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from hashlib import sha256
from typing import TypeAlias

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError

from libweft.peer.errors import PeerError, UsageError
from libweft.peer.libp2p import base58, pb
from libweft.peer.libp2p.pb import keys_pb2

KEY_LIMIT = 2_048
RSA_BITS = range(2_048, 8_192 + 1)
RSA_EXPONENTS = range(3, 1 << 31)
CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
"""Of ECDSA keys; secp256k1 is a kind of its own."""

INLINE_LIMIT = 42
IDENTITY = b"\x00"
SHA256 = b"\x12\x20"
CID = b"\x01\x72"
"""Version 1, content `libp2p-key`."""
TEXT_LIMIT = 100

SEED_SIZE = 32
SIGNATURE_SIZE = 64  # of Ed25519
COFACTORED = (
    bytes.fromhex("f27cb81402e6860c926ff81f393d14340e41a70bc0b0195cf64a90b348cb2fc4"),
    bytes.fromhex("fb15ddd1cd7684fa60e25fe9df39afdc2b12d6908402179723b4d66311f8694a")
    + bytes.fromhex("92ee07d3ed5011251f2fa481fef1c090d03fb3cc7f88e11132a329129a55c604"),
    b"m",
)
"""A key, a signature and a message: good only where both sides are multiplied by the cofactor, as in some libsodium."""


class KeyKind(IntEnum):
    RSA = 0
    ED25519 = 1
    SECP256K1 = 2
    ECDSA = 3


_Loaded: TypeAlias = rsa.RSAPublicKey | Ed25519PublicKey | ec.EllipticCurvePublicKey


@dataclass(frozen=True)
class PublicKey:
    """`data` is DER (PKIX) for RSA and ECDSA, the 32 bytes of Ed25519, the compressed point of secp256k1."""

    kind: KeyKind
    data: bytes

    def encode(self) -> bytes:
        return keys_pb2.PublicKey(Type=_wire(self.kind), Data=self.data).SerializeToString()

    @classmethod
    def decode(cls, data: bytes) -> PublicKey:
        if len(data) > KEY_LIMIT:
            raise PeerError(f"a key of {len(data)} bytes is over the limit of {KEY_LIMIT}")
        wire = pb.parse(keys_pb2.PublicKey, data)
        try:
            key = cls(KeyKind(wire.Type), wire.Data)
            loaded = key._loaded
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise PeerError(f"this is no public key: {error}") from None
        if _data(loaded) != key.data or key.encode() != data:
            raise PeerError("a public key that is not in the one encoding it has")
        return key

    def verify(self, signature: bytes, message: bytes) -> bool:
        if self.kind is KeyKind.ED25519 and SODIUM_AGREES and _sodium_verifies(self.data, signature, message):
            return True
        try:
            _verify(self._loaded, signature, message)
        except (InvalidSignature, ValueError, TypeError, UnsupportedAlgorithm):
            return False
        return True

    @cached_property
    def peer(self) -> bytes:
        encoded = self.encode()
        if len(encoded) <= INLINE_LIMIT:
            return IDENTITY + bytes([len(encoded)]) + encoded
        return SHA256 + sha256(encoded).digest()

    @cached_property
    def _loaded(self) -> _Loaded:
        return _load(self.kind, self.data)


def _wire(kind: KeyKind) -> str:
    return keys_pb2.KeyType.Name(kind)


def _load(kind: KeyKind, data: bytes) -> _Loaded:
    """ValueError for what is no such key, and for one that is out of bounds."""
    if kind is KeyKind.ED25519:
        return Ed25519PublicKey.from_public_bytes(data)
    if kind is KeyKind.SECP256K1:
        return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256K1(), data)
    key = serialization.load_der_public_key(data)
    if kind is KeyKind.RSA and isinstance(key, rsa.RSAPublicKey):
        if key.key_size not in RSA_BITS or key.public_numbers().e not in RSA_EXPONENTS:
            raise ValueError(f"an RSA key of {key.key_size} bits, or its exponent, is out of bounds")
        return key
    if kind is KeyKind.ECDSA and isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, CURVES):
        return key
    raise ValueError(f"a key of another kind than {kind.name}")


def _data(key: _Loaded) -> bytes:
    """The one encoding of a key."""
    if isinstance(key, Ed25519PublicKey):
        return key.public_bytes_raw()
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256K1):
        return key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint)
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _verify(key: _Loaded, signature: bytes, message: bytes) -> None:
    if isinstance(key, Ed25519PublicKey):
        key.verify(signature, message)
    elif isinstance(key, rsa.RSAPublicKey):
        key.verify(signature, message, padding.PKCS1v15(), hashes.SHA256())
    else:
        key.verify(signature, message, ec.ECDSA(hashes.SHA256()))


def _sodium_verifies(key: bytes, signature: bytes, message: bytes) -> bool:
    """False for some that are good elsewhere, too: those with a point of small order, as key or in the signature."""
    if len(signature) != SIGNATURE_SIZE or len(key) != SEED_SIZE:
        return False
    try:
        crypto_sign_open(signature + message, key)
    except BadSignatureError:
        return False
    return True


SODIUM_AGREES = not _sodium_verifies(*COFACTORED)


class Identity:
    """The node's own key pair, always Ed25519: every libp2p must know it, and it is the quickest."""

    __slots__ = ("_key", "peer", "public")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = PublicKey(KeyKind.ED25519, key.public_key().public_bytes_raw())
        self.peer = self.public.peer

    def __repr__(self) -> str:
        return f"Identity({peer_text(self.peer)})"

    @classmethod
    def new(cls) -> Identity:
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_seed(cls, seed: bytes) -> Identity:
        if len(seed) != SEED_SIZE:
            raise UsageError(f"a seed has {SEED_SIZE} bytes, not {len(seed)}")
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    def encode(self) -> bytes:
        """A protobuf PrivateKey, the file format of other libp2p too."""
        data = self._key.private_bytes_raw() + self.public.data
        return keys_pb2.PrivateKey(Type=_wire(KeyKind.ED25519), Data=data).SerializeToString()

    @classmethod
    def decode(cls, data: bytes) -> Identity:
        """Both forms: seed and public key, and the older one that has the public key twice."""
        try:
            wire = pb.parse(keys_pb2.PrivateKey, data)
        except PeerError:
            raise UsageError("this is no private key of libp2p") from None
        if int(wire.Type) != KeyKind.ED25519:
            raise UsageError("the private key is of another kind than Ed25519, the one that weft can use")
        seed, public = wire.Data[:SEED_SIZE], wire.Data[SEED_SIZE:]
        identity = cls.from_seed(seed)
        if public not in (identity.public.data, identity.public.data * 2):
            raise UsageError("the private key does not fit the public key beside it")
        return identity

    def sign(self, message: bytes) -> bytes:
        return self._key.sign(message)


def peer_text(peer: bytes) -> str:
    return base58.encode(peer)


def parse_peer(text: str) -> bytes:
    """From base58, or from a CIDv1 in base32 (b...), base36 (k...) or base58 (z...)."""
    try:
        if len(text) > TEXT_LIMIT:
            raise ValueError("it is too long")
        return check_peer(base58.decode(text) if text.startswith(("1", "Qm")) else _in_cid(text))
    except (ValueError, PeerError) as error:
        raise UsageError(f"{text[:TEXT_LIMIT]!r} is no peer id: {error}") from None


def _in_cid(text: str) -> bytes:
    cid = _multibase(text[:1], text[1:])
    if not cid.startswith(CID):
        raise ValueError("the CID is not of version 1, or holds no libp2p key")
    return cid[len(CID) :]


def _multibase(prefix: str, digits: str) -> bytes:
    if prefix == "z":
        return base58.decode(digits)
    if prefix == "b" and digits == digits.lower():
        return _base32(digits)
    if prefix == "k" and digits.isascii() and digits.isalnum() and digits == digits.lower():
        # what a CID begins with is never zero, so that no leading zeros are lost
        number = int(digits, 36)
        return number.to_bytes((number.bit_length() + 7) // 8, "big")
    raise ValueError("it begins neither as base58 (1, Qm) nor as a CID in base32 (b), base36 (k) or base58 (z)")


def _base32(digits: str) -> bytes:
    try:
        return base64.b32decode(digits.upper() + "=" * (-len(digits) % 8))
    except binascii.Error:
        raise ValueError("these are no digits of base32") from None


def check_peer(data: bytes) -> bytes:
    """The peer id itself, when its form is that of one; whether an inlined key is any good `key_in` tells."""
    if data.startswith(SHA256) and len(data) == len(SHA256) + 32:
        return data
    if data.startswith(IDENTITY) and 2 < len(data) <= INLINE_LIMIT + 2 and data[1] == len(data) - 2:
        return data
    raise PeerError(f"a peer id of {len(data)} bytes that is neither a SHA-256 multihash nor an inlined key")


def key_in(peer: bytes) -> PublicKey | None:
    """The key that a peer id holds inlined, None where it holds a hash; PeerError where it holds something else."""
    if check_peer(peer).startswith(IDENTITY):
        return PublicKey.decode(peer[2:])
    return None
