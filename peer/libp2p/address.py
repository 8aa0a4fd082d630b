"""Multiaddresses: where a peer can be reached, as text (`/ip4/192.0.2.1/tcp/4001/p2p/12D3...`) and as bytes.

The multiaddr spec of multiformats, for the protocols in `_PROTOCOLS`: those that a libp2p node over TCP, QUIC or
WebSocket announces. In bytes each part is its code as a varint, then its value, which has a length in front where the
protocol does not fix one. `/memory` is 8 bytes, as Go and Rust have it, though the table of the spec says otherwise.

Above it promises: one address has one text and one encoding, so that addresses compare and sort by their parts; every
text in it is printable, and every name in it is one that a resolver takes without raising.
A text that is no address is a UsageError, bytes that are none a PeerError; so is a protocol that is not in the table.
Bounds: 1,024 bytes an address.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple, TypeAlias

import msgspec

from libweft.peer.errors import PeerError, UsageError
from libweft.peer.libp2p.frame import read_uvarint, uvarint
from libweft.peer.libp2p.ids import check_peer, parse_peer, peer_text

LIMIT = 1_024
NAME_LIMIT = 253
"""Of a domain name, RFC 1035."""

Part: TypeAlias = tuple[str, str]
"""The name of a protocol and its value, which is empty for a protocol that has none."""

HOSTS = ("ip4", "ip6", "dns", "dns4", "dns6", "dnsaddr")
_TRANSPORTS = {("tcp",): "tcp", ("udp", "quic-v1"): "quic-v1", ("tcp", "ws"): "ws"}


class Address(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """Made by `parse`, `decode` and `of_tcp`, which check and normalise the parts; the constructor does not."""

    parts: tuple[Part, ...]

    @classmethod
    def parse(cls, text: str) -> Address:
        if not isinstance(text, str):
            raise UsageError(f"{text!r} is no address; such as /ip4/127.0.0.1/tcp/4001")
        try:
            address = cls(_parse(text))
            size = len(address.encode())
        except (ValueError, UsageError) as error:
            raise UsageError(f"{text[:LIMIT]!r} is no address: {error}") from None
        if size > LIMIT:
            raise UsageError(f"an address of {size} bytes is over the limit of {LIMIT}")
        return address

    def __str__(self) -> str:
        return "".join(_text(name, value) for name, value in self.parts)

    def encode(self) -> bytes:
        return b"".join(_BY_NAME[name].encode(value) for name, value in self.parts)

    @classmethod
    def decode(cls, data: bytes) -> Address:
        if len(data) > LIMIT:
            raise PeerError(f"an address of {len(data)} bytes is over the limit of {LIMIT}")
        try:
            return cls(_decode(data))
        except ValueError as error:
            raise PeerError(f"this is no address: {error}") from None

    @classmethod
    def of_tcp(cls, host: str, port: int) -> Address:
        """From the name of a socket; an IPv4 address that came wrapped in IPv6 is unwrapped."""
        bare, _, zone = host.partition("%")
        try:
            ip = ip_address(bare)
        except ValueError:
            raise UsageError(f"{host!r} is no IP address") from None
        if isinstance(ip, IPv4Address):
            return cls.parse(f"/ip4/{ip}/tcp/{port}")
        if ip.ipv4_mapped is not None:
            return cls.parse(f"/ip4/{ip.ipv4_mapped}/tcp/{port}")
        return cls.parse(f"/ip6zone/{zone}/ip6/{ip}/tcp/{port}" if zone else f"/ip6/{ip}/tcp/{port}")

    @property
    def peer(self) -> bytes | None:
        """Of the last /p2p; none where a relay follows it, since that names the relay."""
        for name, value in reversed(self.parts):
            if name == "p2p-circuit":
                return None
            if name == "p2p":
                return parse_peer(value)
        return None

    def with_peer(self, peer: bytes) -> Address:
        """With /p2p at the end, in place of the one that may be there."""
        return Address((*self.without_peer().parts, ("p2p", peer_text(peer))))

    def without_peer(self) -> Address:
        if self.parts and self.parts[-1][0] == "p2p":
            return Address(self.parts[:-1])
        return self

    @property
    def is_loopback(self) -> bool:
        name, value = self.parts[0] if self.parts else ("", "")
        return (name == "ip4" and value.startswith("127.")) or (name == "ip6" and value == "::1")

    @property
    def host(self) -> str:
        """As a socket wants it, with the zone after %; empty where there is none."""
        zone = ""
        for name, value in self.parts:
            if name in HOSTS:
                return f"{value}%{zone}" if zone else value
            zone = value if name == "ip6zone" else ""
        return ""

    @property
    def port(self) -> int:
        """Of TCP or UDP; 0 where there is none."""
        return next((int(value) for name, value in self.parts if name in ("tcp", "udp")), 0)

    @property
    def transport(self) -> str:
        """`tcp`, `quic-v1`, `ws`, or empty for what cannot be dialled so: a relay, /dnsaddr, anything else."""
        names = tuple(name for name, _ in self.without_peer().parts)
        if names[:2] == ("ip6zone", "ip6"):
            names = names[1:]
        if names and names[0] in HOSTS and names[0] != "dnsaddr":
            return _TRANSPORTS.get(names[1:], "")
        return ""


def _text(name: str, value: str) -> str:
    """The value of /unix, and no other, begins with a slash itself."""
    if not value or value.startswith("/"):
        return f"/{name}{value}"
    return f"/{name}/{value}"


def _parse(text: str) -> tuple[Part, ...]:
    if not text.startswith("/") or len(text) > 8 * LIMIT:
        raise ValueError("it does not begin with a slash, or is too long")
    words = iter(text[1:].rstrip("/").split("/"))
    parts = []
    for name in words:
        protocol = _BY_NAME.get(name)
        if protocol is None:
            raise ValueError(f"there is no protocol {name!r}")
        if protocol.size == 0:
            value = ""
        elif protocol.name == "unix":
            value = "/".join(words)
        else:
            value = next(words, "")
        parts.append((protocol.name, protocol.unpack(protocol.pack(value))))
    return tuple(parts)


def _decode(data: bytes) -> tuple[Part, ...]:
    if not data:
        raise PeerError("an empty address")
    parts: list[Part] = []
    at = 0
    while at < len(data):
        if parts and parts[-1][0] == "unix":
            raise PeerError("in an address something follows a path, which has no end in text")
        code, at = _varint(data, at)
        protocol = _BY_CODE.get(code)
        if protocol is None:
            raise PeerError(f"an address with the protocol {code}, which is not known here")
        size, at = _varint(data, at) if protocol.size is None else (protocol.size, at)
        if size > len(data) - at:
            raise PeerError(f"an address that ends inside its {protocol.name}")
        parts.append((protocol.name, protocol.unpack(data[at : at + size])))
        at += size
    return tuple(parts)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    read = read_uvarint(data, at)
    if read is None:
        raise PeerError("an address that ends inside a number")
    return read


class _Protocol(NamedTuple):
    """`pack` and `unpack` raise ValueError, or an error of weft's own, for what is no such value."""

    name: str
    code: int
    size: int | None
    """Bytes of the value; None where its length stands before it."""
    pack: Callable[[str], bytes]
    unpack: Callable[[bytes], str]

    def encode(self, value: str) -> bytes:
        packed = self.pack(value)
        return uvarint(self.code) + (packed if self.size is not None else uvarint(len(packed)) + packed)


def _pack_ip6(text: str) -> bytes:
    if "%" in text:
        raise ValueError("the zone of an IPv6 address stands before it: /ip6zone/eth0/ip6/fe80::1")
    return IPv6Address(text).packed


def _number(size: int) -> tuple[int, Callable[[str], bytes], Callable[[bytes], str]]:
    def pack(text: str) -> bytes:
        if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) < 1 << 8 * size):
            raise ValueError(f"{text!r} is no whole number below {1 << 8 * size}")
        return int(text).to_bytes(size, "big")

    def unpack(data: bytes) -> str:
        return str(int.from_bytes(data, "big"))

    return size, pack, unpack


def _pack_word(text: str) -> bytes:
    if not text or not text.isprintable() or set(text) & set(" /%"):
        raise ValueError(f"{text!r} is empty, or has letters that may not be in it")
    return text.encode()


def _unpack_word(data: bytes) -> str:
    text = data.decode()
    _pack_word(text)
    return text


def _pack_domain(text: str) -> bytes:
    packed = _pack_word(text)
    if len(text) > NAME_LIMIT:
        raise ValueError(f"a domain name of more than {NAME_LIMIT} letters")
    text.encode("idna")  # a resolver does this first, and raises for a label that is empty or over 63 letters
    return packed


def _unpack_domain(data: bytes) -> str:
    text = data.decode()
    _pack_domain(text)
    return text


def _pack_path(text: str) -> bytes:
    text = text.strip("/")
    if not text or not text.isprintable():
        raise ValueError(f"{text!r} is no path")
    return f"/{text}".encode()


def _unpack_path(data: bytes) -> str:
    text = data.decode()
    if _pack_path(text) != data:
        raise ValueError("a path begins with one slash, and ends in none")
    return text


def _unpack_peer(data: bytes) -> str:
    return peer_text(check_peer(data))


_NOTHING = (0, lambda _: b"", lambda _: "")
_WORD = (None, _pack_word, _unpack_word)
_DOMAIN = (None, _pack_domain, _unpack_domain)

_PROTOCOLS = (
    _Protocol("ip4", 4, 4, lambda text: IPv4Address(text).packed, lambda data: str(IPv4Address(data))),
    _Protocol("tcp", 6, *_number(2)),
    _Protocol("ip6", 41, 16, _pack_ip6, lambda data: str(IPv6Address(data))),
    _Protocol("ip6zone", 42, *_WORD),
    _Protocol("dns", 53, *_DOMAIN),
    _Protocol("dns4", 54, *_DOMAIN),
    _Protocol("dns6", 55, *_DOMAIN),
    _Protocol("dnsaddr", 56, *_DOMAIN),
    _Protocol("udp", 273, *_number(2)),
    _Protocol("p2p-circuit", 290, *_NOTHING),
    _Protocol("unix", 400, None, _pack_path, _unpack_path),
    _Protocol("p2p", 421, None, parse_peer, _unpack_peer),
    _Protocol("tls", 448, *_NOTHING),
    _Protocol("sni", 449, *_DOMAIN),
    _Protocol("noise", 454, *_NOTHING),
    _Protocol("quic-v1", 461, *_NOTHING),
    _Protocol("ws", 477, *_NOTHING),
    _Protocol("wss", 478, *_NOTHING),
    _Protocol("memory", 777, *_number(8)),
)
_BY_CODE = {protocol.code: protocol for protocol in _PROTOCOLS}
_BY_NAME = {protocol.name: protocol for protocol in _PROTOCOLS}
_BY_NAME["ipfs"] = _BY_NAME["p2p"]  # its name of old
