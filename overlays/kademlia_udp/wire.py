"""The calls of the PyPI package `kademlia` (2.2), as bytes: what stands inside a datagram of `libweft.peer.datagram`.

A request is MessagePack of `[name, [arguments]]`, a reply that of the bare answer. A text stays a text and bytes stay bytes: the
package writes both kinds apart, and msgspec writes the same bytes as it does for every value that it takes.

    stun()                     the address that the request came from, [host, port]
    ping(id)                   the id of the node asked
    find_node(id, key)         up to k nodes near to the key, [[id, host, port], ...]
    find_value(id, key)        {"value": value}, or as find_node where the node has none
    store(id, key, value)      true; weft answers false where it has no room

Ids and keys are SHA-1 digests. What does not fit is a PeerError. A node whose address nobody could send to, or should, is left
out of an answer and counted, but does not spoil it: the package passes on whatever it was told.
Bounds: k nodes in an answer; what `_host` remembers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha1
from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from libweft.peer.datagram import CONTENT_LIMIT, Address
from libweft.peer.errors import PeerError, UsageError

ID_SIZE = 20
UNUSABLE = "unusable"  # nodes in answers that have an address of no use

Value: TypeAlias = int | float | bool | str | bytes
VALUES = (int, float, bool, str, bytes)
Result = TypeVar("Result")

encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_decode_found = msgspec.msgpack.Decoder(list[tuple[bytes, str, int]] | dict[str, Any]).decode

VALUE_LIMIT = CONTENT_LIMIT - len(encode(["store", [bytes(ID_SIZE), bytes(ID_SIZE)]]))
"""Encoded bytes of a value that can be stored; an answer has room for a few more."""


class Contact(NamedTuple):
    """A node: its id, also as a number, and where it is."""

    id: bytes
    number: int
    address: Address


class Call(NamedTuple):
    """A request. `node` is who asks; what the call does not have is empty."""

    name: str
    node: bytes = b""
    key: bytes = b""
    value: Value = b""


def contact(node: bytes, address: Address) -> Contact:
    return Contact(node, int.from_bytes(node, "big"), address)


def digest(key: str | bytes) -> bytes:
    """Where in the network a key is; as the package has it, a text and its UTF-8 bytes are one key."""
    if not isinstance(key, str | bytes):
        raise UsageError(f"a key is a text or bytes, not {type(key).__name__}")
    try:
        return sha1(key.encode() if isinstance(key, str) else key, usedforsecurity=False).digest()
    except UnicodeEncodeError:
        raise UsageError(f"the key {key!a:.80} is no text in UTF-8") from None


# Requests.


def stun() -> bytes:
    return encode(["stun", []])


def ping(me: bytes) -> bytes:
    return encode(["ping", [me]])


def find_node(me: bytes, key: bytes) -> bytes:
    return encode(["find_node", [me, key]])


def find_value(me: bytes, key: bytes) -> bytes:
    return encode(["find_value", [me, key]])


def store(me: bytes, key: bytes, value: Value) -> bytes:
    """UsageError for a value that the network does not take."""
    if type(value) not in VALUES:
        raise UsageError(f"a value is an int, float, bool, str or bytes, not {type(value).__name__}; encode it first")
    try:
        content = encode(["store", [me, key, value]])
    except (OverflowError, UnicodeEncodeError) as error:
        raise UsageError(f"the value has no form in MessagePack: {error}") from None
    if len(content) > CONTENT_LIMIT:
        raise UsageError(f"a value of {len(encode(value))} encoded bytes is over the {VALUE_LIMIT} of a datagram; split it")
    return content


def read_call(content: bytes) -> Call:
    match _plain(content):
        case ["stun", []]:
            return Call("stun")
        case ["ping", [bytes(node)]] if len(node) == ID_SIZE:
            return Call("ping", node)
        case ["find_node" | "find_value" as name, [bytes(node), bytes(key)]] if len(node) == len(key) == ID_SIZE:
            return Call(name, node, key)
        case ["store", [bytes(node), bytes(key), value]] if len(node) == len(key) == ID_SIZE and type(value) in VALUES:
            return Call("store", node, key, value)
    raise PeerError("a request that is none of this protocol's")


# Replies.


def nodes(found: list[Contact]) -> bytes:
    return encode([(node.id, *node.address) for node in found])


def read_id(content: bytes) -> bytes:
    node = _plain(content)
    if type(node) is not bytes or len(node) != ID_SIZE:
        raise PeerError("no node has such an id")
    return node


def read_stored(content: bytes) -> bool:
    stored = _plain(content)
    if type(stored) is not bool:
        raise PeerError("neither stored nor not")
    return stored


def read_address(content: bytes) -> Address:
    """IPv6 has two more fields, which say nothing to us."""
    match _plain(content):
        case [str(host), int(port), *_] if type(port) is int and 0 < port < 1 << 16 and _host(host) is not None:
            return host, port
    raise PeerError("no address")


def read_nodes(content: bytes, k: int, teller: Address, counts: Counter[str]) -> list[Contact]:
    found = _decoded(_decode_found, content)
    if isinstance(found, dict):
        raise PeerError("a value that nobody asked for")
    return _contacts(found, k, teller, counts)


def _contacts(found: list[tuple[bytes, str, int]], k: int, teller: Address, counts: Counter[str]) -> list[Contact]:
    if len(found) > k:
        raise PeerError(f"{len(found)} nodes where {k} are the most")
    contacts = []
    for node, host, port in found:
        if len(node) != ID_SIZE:
            raise PeerError("no node has such an id")
        if (address := usable((host, port), teller)) is None:
            counts[UNUSABLE] += 1
        else:
            contacts.append(contact(node, address))
    return contacts


def read_value(content: bytes, k: int, teller: Address, counts: Counter[str]) -> Value | list[Contact]:
    found = _decoded(_decode_found, content)
    if isinstance(found, list):
        return _contacts(found, k, teller, counts)
    value = found.get("value")
    if len(found) != 1 or type(value) not in VALUES or len(encode(value)) > VALUE_LIMIT:
        raise PeerError("no value that can be stored")
    return value  # type: ignore[no-any-return]


def _plain(content: bytes) -> Any:
    return _decoded(_decode, content)


def _decoded(decode: Callable[[bytes], Result], content: bytes) -> Result:
    try:
        return decode(content)
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError) as error:
        raise PeerError(f"no MessagePack: {error}") from None


# Addresses.


def usable(address: Address, teller: Address) -> Address | None:
    """The address in its one form, or None where nothing should be sent: a name, since asking for it would wait; many at once
    or none; or this very machine's loopback, told by somebody who is not on it."""
    host = _host(address[0])
    if host is None or not 0 < address[1] < 1 << 16:
        return None
    text, loopback = host
    if loopback and not ((known := _host(teller[0])) is not None and known[1]):
        return None
    return text, address[1]


@lru_cache(4_096)
def _host(text: str) -> tuple[str, bool] | None:
    """Its one form, and whether it is a loopback's."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return None
        plain = address.ipv4_mapped or address
    else:
        plain = address
    if plain.is_multicast or plain.is_unspecified or str(plain) == "255.255.255.255":
        return None
    return str(address), plain.is_loopback
