"""Noise: the encrypted and authenticated channel under every connection (`/noise`).

Specs: the Noise Protocol Framework, revision 34, for `Noise_XX_25519_ChaChaPoly_SHA256` with an empty prologue; libp2p specs,
noise/README.md, for the payload of messages 2 and 3: the identity's public key, its signature over the static key, and the
muxers it offers. Each message has a length of two bytes, big-endian, before it.
`XX` is the bare pattern, `Handshake` is libp2p's use of it, `Channel` is what both sides speak afterwards.

Below it asks for: bytes in order, cut anyhow. Above it promises: once `done`, the other side holds the private key of `remote`;
a byte that was changed, lost, repeated or sent by another is a PeerError, after which neither object goes on.
Bounds: a handshake message of `HANDSHAKE_LIMIT` bytes, refused by its length alone; a Channel holds one unfinished message
(65,537 bytes); 2**64 - 1 messages each way under one key.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from hmac import digest
from struct import Struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from libweft.peer.errors import PeerError, UsageError
from libweft.peer.libp2p import pb
from libweft.peer.libp2p.ids import Identity, PublicKey, peer_text
from libweft.peer.libp2p.pb.noise_pb2 import NoiseExtensions, NoiseHandshakePayload

PROTOCOL = b"Noise_XX_25519_ChaChaPoly_SHA256"
SIGNED_PREFIX = b"noise-libp2p-static-key:"

KEY = 32
TAG = 16
MESSAGE_LIMIT = 65_535
PLAINTEXT_LIMIT = MESSAGE_LIMIT - TAG
HANDSHAKE_LIMIT = 16_384
"""Ours: several times what the largest key of libp2p (RSA of 8,192 bits) and its signature need."""
LAST_NONCE = (1 << 64) - 1
"""Reserved by Noise, section 5.1; never used."""

_SIZES = ((KEY, KEY), (KEY + KEY + TAG + TAG, HANDSHAKE_LIMIT), (KEY + TAG + TAG, HANDSHAKE_LIMIT))
"""The least and the most bytes of each handshake message; libp2p's first has no payload."""

_LENGTH = Struct(">H")
_NONCE = Struct("<4xQ")
_length = _LENGTH.pack
_nonce = _NONCE.pack


class Handshake:
    """One side of libp2p's handshake: send what `take` gives, `feed` what comes, until `done`.

    `expected` is the peer id that must be at the other end. `muxers` are ours, preferred first: where both sides name some,
    `muxer` is the first of the initiator's that both have; where one names none it is None, and multistream decides.
    `static` and `ephemeral` are private X25519 keys for tests; without them both are new for this handshake.
    """

    remote: PublicKey
    peer: bytes

    def __init__(
        self,
        identity: Identity,
        *,
        initiator: bool,
        expected: bytes | None = None,
        muxers: Sequence[str] = (),
        static: bytes | None = None,
        ephemeral: bytes | None = None,
    ) -> None:
        self.done = False
        self.muxer: str | None = None
        self._identity = identity
        self._initiator = initiator
        self._expected = expected
        self._muxers = tuple(muxers)
        self._xx = XX(initiator=initiator, static=_private(static), ephemeral=_private(ephemeral))
        self._held = bytearray()
        self._out = bytearray()
        self._fault: PeerError | None = None
        self._channel: Channel | None = None
        if initiator:
            self._send(b"")

    def take(self) -> bytes:
        """What is to be sent now."""
        out = bytes(self._out)
        self._out.clear()
        return out

    def feed(self, data: bytes) -> None:
        if self.done:
            raise UsageError("the handshake is done; these bytes are for its channel")
        if self._fault:
            raise PeerError(f"the handshake has failed: {self._fault}")
        self._held += data
        try:
            while not self.done and (message := self._message()) is not None:
                self._receive(message)
        except PeerError as error:
            self._fault = error
            self._out.clear()
            raise

    def channel(self) -> Channel:
        """The channel, the same one at each call; `feed(b"")` gives what came with the end of the handshake."""
        if self._channel is None:
            raise UsageError("the handshake is not done: there is no channel yet")
        return self._channel

    def _message(self) -> bytes | None:
        """The next whole message; one whose length alone is wrong is refused before it has come."""
        if len(self._held) < _LENGTH.size:
            return None
        [size] = _LENGTH.unpack_from(self._held)
        least, most = _SIZES[self._xx.step]
        if not least <= size <= most:
            raise PeerError(f"a handshake message of {size} bytes where {least} to {most} were due")
        end = _LENGTH.size + size
        if len(self._held) < end:
            return None
        message = bytes(self._held[_LENGTH.size : end])
        del self._held[:end]
        return message

    def _receive(self, message: bytes) -> None:
        payload = self._xx.read(message)
        if self._xx.remote_static is None:  # the first message, which carries a key and nothing else
            self._send(self._payload())
            return
        remote, muxers = _open_payload(payload, self._xx.remote_static)
        self._check_peer(remote)
        muxer = self._agree(muxers)
        if self._initiator:
            self._send(self._payload())
        self.remote, self.peer, self.muxer = remote, remote.peer, muxer
        self._channel = Channel(*self._xx.split(), held=bytes(self._held))
        self._held.clear()
        self.done = True

    def _check_peer(self, remote: PublicKey) -> None:
        if self._expected is not None and remote.peer != self._expected:
            raise PeerError(f"the peer is {peer_text(remote.peer)}, not {peer_text(self._expected)} as expected")

    def _agree(self, theirs: Sequence[str]) -> str | None:
        if not self._muxers or not theirs:
            return None
        first, second = (self._muxers, theirs) if self._initiator else (theirs, self._muxers)
        muxer = next((name for name in first if name in second), None)
        if muxer is None:
            raise PeerError(f"no common muxer: here {', '.join(self._muxers)}")
        return muxer

    def _payload(self) -> bytes:
        signature = self._identity.sign(SIGNED_PREFIX + self._xx.static_public)
        payload = NoiseHandshakePayload(identity_key=self._identity.public.encode(), identity_sig=signature)
        if self._muxers:
            payload.extensions.CopyFrom(NoiseExtensions(stream_muxers=self._muxers))
        return payload.SerializeToString()

    def _send(self, payload: bytes) -> None:
        message = self._xx.write(payload)
        self._out += _length(len(message)) + message


class Channel:
    """The two directions after a handshake, each with a key and a count of its own."""

    __slots__ = ("_decrypt", "_encrypt", "_held", "_need", "_received", "_sent")

    def __init__(self, sending: bytes, receiving: bytes, *, held: bytes = b"") -> None:
        self._encrypt = ChaCha20Poly1305(sending).encrypt
        self._decrypt = ChaCha20Poly1305(receiving).decrypt
        self._sent = 0
        self._received = 0
        self._held = bytearray(held)
        self._need = 0  # no fewer bytes than these can finish what is held

    def seal(self, data: bytes | memoryview) -> bytes:
        """The messages that carry the data, joined; none for no data."""
        size = len(data)
        if 0 < size <= PLAINTEXT_LIMIT:
            return _length(size + TAG) + self._encrypt(self._next(), data, None)
        view = memoryview(data)
        parts: list[bytes] = []
        for at in range(0, size, PLAINTEXT_LIMIT):
            sealed = self._encrypt(self._next(), view[at : at + PLAINTEXT_LIMIT], None)
            parts += (_length(len(sealed)), sealed)
        return b"".join(parts)

    def feed(self, data: bytes) -> bytes:
        """The plaintext of all messages that are whole now, joined."""
        if self._held:
            if len(self._held) + len(data) < self._need:
                self._held += data
                return b""
            data = b"".join((self._held, data))
            self._held.clear()
        plain: list[bytes] = []
        at = self._open(data, plain)
        if at < len(data):
            self._held += memoryview(data)[at:]
        return b"".join(plain)

    def _next(self) -> bytes:
        count = self._sent
        if count == LAST_NONCE:
            raise UsageError("the channel's nonces are used up: open a new connection")
        self._sent = count + 1
        return _nonce(count)

    def _open(self, data: bytes, plain: list[bytes]) -> int:
        """Appends what is whole and returns where the rest begins."""
        end, at = len(data), 0
        while at + 2 <= end:
            start = at + 2
            stop = start + (data[at] << 8 | data[at + 1])
            if stop > end:
                self._need = stop - at
                return at
            # a slice is a copy, and yet quicker than a view of it
            plain.append(self._open_one(data[start:stop]))
            at = stop
        self._need = 2
        return at

    def _open_one(self, sealed: bytes) -> bytes:
        count = self._received
        if count == LAST_NONCE:
            raise PeerError("the channel has failed, or its nonces are used up")
        try:
            plain = self._decrypt(_nonce(count), sealed, None)
        except InvalidTag:
            self._received = LAST_NONCE  # nothing that comes later may be taken for what was due
            raise PeerError("a message that does not decrypt") from None
        self._received = count + 1
        return plain


class XX:
    """The bare pattern, with payloads of any kind (Noise, sections 5.2, 5.3 and 7.5).

    `write` and `read` take turns; after the third message `split` gives the keys of both directions.
    """

    PATTERN = (("e",), ("e", "ee", "s", "es"), ("s", "se"))

    def __init__(self, *, initiator: bool, static: X25519PrivateKey, ephemeral: X25519PrivateKey, prologue: bytes = b"") -> None:
        self.step = 0
        self.static_public = static.public_key().public_bytes_raw()
        self.remote_static: bytes | None = None
        self._initiator = initiator
        self._private = {"s": static, "e": ephemeral}
        self._remote: dict[str, bytes] = {}
        self._chain = PROTOCOL
        self._hash = PROTOCOL  # it has just the length of a hash, and so stands for itself
        self._cipher: ChaCha20Poly1305 | None = None
        self._count = 0
        self._mix_hash(prologue)

    def write(self, payload: bytes) -> bytes:
        message = bytearray()
        for token in self.PATTERN[self.step]:
            if token == "e":
                public = self._private["e"].public_key().public_bytes_raw()
                self._mix_hash(public)
                message += public
            elif token == "s":
                message += self._encrypt(self.static_public)
            else:
                self._mix_key(self._agree(token))
        self.step += 1
        return bytes(message + self._encrypt(payload))

    def read(self, message: bytes) -> bytes:
        """The payload; PeerError when a part is missing or does not decrypt."""
        for token in self.PATTERN[self.step]:
            if token == "e":
                self._remote["e"], message = _split(message, KEY)
                self._mix_hash(self._remote["e"])
            elif token == "s":
                sealed, message = _split(message, KEY + TAG)
                self._remote["s"] = self._decrypt(sealed)
            else:
                self._mix_key(self._agree(token))
        payload = self._decrypt(message)
        self.step += 1
        self.remote_static = self._remote.get("s")
        return payload

    def split(self) -> tuple[bytes, bytes]:
        """The keys to send and to receive with."""
        first, second = _hkdf(self._chain, b"")
        return (first, second) if self._initiator else (second, first)

    def _agree(self, token: str) -> bytes:
        """The secret that two keys share: the token names the initiator's first, then the responder's."""
        mine, theirs = (token[0], token[1]) if self._initiator else (token[1], token[0])
        try:
            return self._private[mine].exchange(X25519PublicKey.from_public_bytes(self._remote[theirs]))
        except ValueError:
            raise PeerError("a public key of small order, which shares no secret") from None

    def _mix_hash(self, data: bytes) -> None:
        self._hash = sha256(self._hash + data).digest()

    def _mix_key(self, secret: bytes) -> None:
        self._chain, key = _hkdf(self._chain, secret)
        self._cipher = ChaCha20Poly1305(key)
        self._count = 0

    def _encrypt(self, plain: bytes) -> bytes:
        if self._cipher is None:
            self._mix_hash(plain)
            return plain
        sealed = self._cipher.encrypt(_nonce(self._count), plain, self._hash)
        self._count += 1
        self._mix_hash(sealed)
        return sealed

    def _decrypt(self, sealed: bytes) -> bytes:
        if self._cipher is None:
            self._mix_hash(sealed)
            return sealed
        try:
            plain = self._cipher.decrypt(_nonce(self._count), sealed, self._hash)
        except InvalidTag:
            raise PeerError("a handshake message that does not decrypt") from None
        self._count += 1
        self._mix_hash(sealed)
        return plain


def _open_payload(data: bytes, static: bytes) -> tuple[PublicKey, Sequence[str]]:
    """Who signed the static key, and the muxers it offers."""
    payload = pb.parse(NoiseHandshakePayload, data)
    remote = PublicKey.decode(payload.identity_key)
    if not remote.verify(payload.identity_sig, SIGNED_PREFIX + static):
        raise PeerError("the static key is not signed by the identity that the peer claims")
    return remote, tuple(payload.extensions.stream_muxers)


def _hkdf(chain: bytes, secret: bytes) -> tuple[bytes, bytes]:
    """Noise, section 4.3, with two outputs."""
    key = digest(chain, secret, "sha256")
    first = digest(key, b"\x01", "sha256")
    return first, digest(key, first + b"\x02", "sha256")


def _split(message: bytes, size: int) -> tuple[bytes, bytes]:
    if len(message) < size:
        raise PeerError("a handshake message that is too short")
    return message[:size], message[size:]


def _private(key: bytes | None) -> X25519PrivateKey:
    return X25519PrivateKey.generate() if key is None else X25519PrivateKey.from_private_bytes(key)
