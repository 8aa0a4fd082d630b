"""Private networks: a stream cipher under everything else, keyed by a secret that all members share.

Spec: libp2p specs, pnet/Private-Networks-PSK-V1.md. Each side sends a nonce of 24 bytes in clear, then all its bytes xored
with XSalsa20 of the shared key and that nonce. Who lacks the key reads noise and says noise, and the negotiation above
fails; nothing here authenticates, which is left to `libweft.peer.libp2p.noise` above.
XSalsa20 is Salsa20 under a key that HSalsa20 makes of the shared one and two thirds of the nonce (D. J. Bernstein,
"Extending the Salsa20 nonce"); Salsa20 is pycryptodome's, of the extra `pnet`.

Below it asks for: bytes in order, cut anyhow. Above it promises: the same bytes, veiled on the way.
Bounds: nothing is held but an unfinished nonce.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from struct import Struct
from typing import Any

from libweft.peer.errors import PeerError, UsageError

KEY_SIZE = 32
NONCE_SIZE = 24
HEADER = b"/key/swarm/psk/1.0.0/"
BASE16, BASE64, BINARY = b"/base16/", b"/base64/", b"/bin/"

Xor = Callable[[bytes | memoryview], bytes]

_WORDS = Struct("<16I")
_OUTPUT = Struct("<8I")
_CONSTANTS = (b"expa", b"nd 3", b"2-by", b"te k")
_ROUND = (
    *((0, 4, 8, 12), (5, 9, 13, 1), (10, 14, 2, 6), (15, 3, 7, 11)),  # the columns
    *((0, 1, 2, 3), (5, 6, 7, 4), (10, 11, 8, 9), (15, 12, 13, 14)),  # the rows
)


def read_key(text: str | bytes) -> bytes:
    """The key in a `swarm.key`; a file in the form /bin/ is to be read as bytes."""
    try:
        data = text.encode("latin-1") if isinstance(text, str) else text
    except UnicodeEncodeError:
        raise UsageError("this is no swarm key: it has letters that no key is written in") from None
    header, _, body = data.partition(b"\n")
    form, _, body = body.partition(b"\n")
    if header.rstrip() != HEADER:
        raise UsageError(f"this is no swarm key: its first line is not {HEADER.decode()}")
    key = _decoded(form.rstrip(), body)
    if len(key) != KEY_SIZE:
        raise UsageError(f"the swarm key has {len(key)} bytes instead of {KEY_SIZE}")
    return key


class Veil:
    """One connection's veil, both ways: send what `take` gives before anything that was sealed.

    `nonce` is NONCE_SIZE random bytes that were never used before.
    """

    def __init__(self, key: bytes, nonce: bytes) -> None:
        self._key = key
        self._nonce = nonce
        self._sending = _xsalsa20(key, self._nonce)
        self._taken = False
        self._receiving: Xor | None = None
        self._held = b""

    def take(self) -> bytes:
        """Our nonce, once."""
        if self._taken:
            return b""
        self._taken = True
        return self._nonce

    def seal(self, data: bytes | memoryview) -> bytes:
        if not self._taken:
            raise UsageError("the nonce goes first: take() it before sealing")
        return self._sending(data)

    def feed(self, data: bytes) -> bytes:
        if self._receiving is not None:
            return self._receiving(data)
        self._held += data
        if len(self._held) < NONCE_SIZE:
            return b""
        nonce, rest = self._held[:NONCE_SIZE], self._held[NONCE_SIZE:]
        if nonce == self._nonce:
            raise PeerError("our own nonce came back: somebody reflects what we send")
        self._held = b""
        self._receiving = _xsalsa20(self._key, nonce)
        return self._receiving(rest)


def _decoded(form: bytes, body: bytes) -> bytes:
    try:
        if form == BASE16:
            return binascii.unhexlify(body.strip())
        if form == BASE64:
            return base64.b64decode(body.strip(), validate=True)
    except binascii.Error:
        raise UsageError(f"the swarm key is not written in {form.decode()}, as its second line says") from None
    if form == BINARY:
        return body
    raise UsageError("the second line of a swarm key is /base16/, /base64/ or /bin/")


def _xsalsa20(key: bytes, nonce: bytes) -> Xor:
    if len(key) != KEY_SIZE:
        raise UsageError(f"the key of a private network has {KEY_SIZE} bytes, not {len(key)}")
    encrypt: Xor = cipher().new(_hsalsa20(key, nonce[:16]), nonce[16:]).encrypt
    return encrypt


def cipher() -> Any:
    """Return pycryptodome's Salsa20; a UsageError says what to install where it is missing."""
    try:
        from Crypto.Cipher import Salsa20
    except ImportError:
        raise UsageError("a private network needs pycryptodome: pip install 'libweft[pnet]'") from None
    return Salsa20


def _hsalsa20(key: bytes, nonce: bytes) -> bytes:
    first, second, third, fourth = _CONSTANTS
    x = list(_WORDS.unpack(first + key[:16] + second + nonce + third + key[16:] + fourth))
    for _ in range(10):
        for a, b, c, d in _ROUND:
            x[b] ^= _turned(x[a] + x[d], 7)
            x[c] ^= _turned(x[b] + x[a], 9)
            x[d] ^= _turned(x[c] + x[b], 13)
            x[a] ^= _turned(x[d] + x[c], 18)
    return _OUTPUT.pack(x[0], x[5], x[10], x[15], *x[6:10])


def _turned(word: int, by: int) -> int:
    word &= 0xFFFFFFFF
    return (word << by | word >> 32 - by) & 0xFFFFFFFF
