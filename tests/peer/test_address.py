"""Addresses in text and in bytes: against the package `multiaddr`, and against whatever a peer may send."""

from __future__ import annotations

from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multiaddr import Multiaddr  # type: ignore[import-untyped]

from libweft.peer.errors import PeerError, UsageError
from libweft.peer.libp2p.address import LIMIT, Address
from libweft.peer.libp2p.ids import Identity, peer_text

ALICE = Identity.from_seed(bytes(32)).peer
BOB = Identity.from_seed(bytes(31) + b"b").peer
HASHED = b"\x12\x20" + bytes(range(32))
A, B = peer_text(ALICE), peer_text(BOB)

ip4s = st.binary(min_size=4, max_size=4).map(lambda packed: f"/ip4/{IPv4Address(packed)}")
ip6s = st.binary(min_size=16, max_size=16).map(lambda packed: f"/ip6/{IPv6Address(packed)}")
zones = st.text(alphabet="abcdefghij0123456789.:-_é", min_size=1, max_size=9).map("/ip6zone/{}".format)
labels = st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=9)
domains = st.lists(labels, min_size=1, max_size=4).map(".".join)
names = st.builds("/{}/{}".format, st.sampled_from(["dns", "dns4", "dns6", "dnsaddr"]), domains)
ports = st.builds("/{}/{}".format, st.sampled_from(["tcp", "udp"]), st.integers(0, 65_535))
flags = st.sampled_from(["/p2p-circuit", "/ws", "/wss"])
peer_ids = st.sampled_from([ALICE, BOB, HASHED]).map(lambda peer: f"/p2p/{peer_text(peer)}")
paths = st.lists(st.text(alphabet="abc .-_%é", min_size=1, max_size=9), min_size=1, max_size=4).map("/".join)
ends = st.just("") | paths.map("/unix/{}".format)
old_parts = ip4s | ip6s | zones | names | ports | flags | peer_ids
old_texts = st.builds("{}{}".format, st.lists(old_parts, min_size=1, max_size=8).map("".join), ends)

# younger than the oracle
new_parts = st.sampled_from(["/tls", "/noise", "/quic-v1"]) | domains.map("/sni/{}".format)
new_parts |= st.integers(0, 2**64 - 1).map("/memory/{}".format)
texts = st.builds("{}{}".format, st.lists(old_parts | new_parts, min_size=1, max_size=8).map("".join), ends)


@given(old_texts)
def test_text_and_bytes_are_those_of_the_package_multiaddr(text: str) -> None:
    address, oracle = Address.parse(text), Multiaddr(text)
    assert address.encode() == oracle.to_bytes()
    assert str(address) == str(oracle)
    assert Address.decode(oracle.to_bytes()) == address


@given(texts)
def test_an_address_survives_its_text_and_its_bytes(text: str) -> None:
    address = Address.parse(text)
    assert Address.parse(str(address)) == address
    assert Address.decode(address.encode()) == address
    assert hash(Address.decode(address.encode())) == hash(address)


# from the table of the multiaddr spec: the code of each protocol as it is in bytes, then its value
@pytest.mark.parametrize(
    ("text", "wire"),
    [
        ("/ip4/127.0.0.1/tcp/4001", "04 7f000001 06 0fa1"),
        ("/ip6/::1/udp/65535/quic-v1", "29 00000000000000000000000000000001 9102 ffff cd03"),
        ("/ip6zone/eth0/ip6/fe80::1/tcp/0", "2a 04 65746830 29 fe800000000000000000000000000001 06 0000"),
        ("/dns/a.b", "35 03 612e62"),
        ("/dns4/a.b", "36 03 612e62"),
        ("/dns6/a.b", "37 03 612e62"),
        ("/dnsaddr/a.b", "38 03 612e62"),
        ("/p2p-circuit", "a202"),
        ("/unix/tmp/a", "9003 06 2f746d702f61"),
        ("/tls/sni/a.b/ws", "c003 c103 03 612e62 dd03"),
        ("/noise", "c603"),
        ("/wss", "de03"),
        ("/memory/1", "8906 0000000000000001"),
        (f"/p2p/{A}", f"a503 26 {ALICE.hex()}"),
        (f"/p2p/{peer_text(HASHED)}", f"a503 22 {HASHED.hex()}"),
    ],
)
def test_the_bytes_of_each_protocol(text: str, wire: str) -> None:
    assert Address.parse(text).encode() == bytes.fromhex(wire)
    assert str(Address.decode(bytes.fromhex(wire))) == text


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("/ip4/127.0.0.1/tcp/4001/", "/ip4/127.0.0.1/tcp/4001"),
        ("/ip4/127.0.0.1/tcp/080", "/ip4/127.0.0.1/tcp/80"),
        ("/ip6/0:0:0:0:0:0:0:1/tcp/1", "/ip6/::1/tcp/1"),
        ("/ip6/2001:DB8::A/tcp/1", "/ip6/2001:db8::a/tcp/1"),
        (f"/ipfs/{A}", f"/p2p/{A}"),
        (
            "/p2p/bafzbeie5745rpv2m6tjyuugywy4d5ewrqgqqhfnf445he3omzpjbx5xqxe",
            "/p2p/QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N",
        ),
        ("/unix//tmp/a/", "/unix/tmp/a"),
    ],
)
def test_one_address_has_one_text(text: str, normal: str) -> None:
    assert str(Address.parse(text)) == normal
    assert Address.parse(text) == Address.parse(normal)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "//",
        "ip4/127.0.0.1",
        "127.0.0.1:4001",
        "/ip4",
        "/ip4/",
        "/ip4//tcp/1",
        "/ip4/127.0.0.1//tcp/1",
        "/ip4/127.0.0.256",
        "/ip4/127.0.0.01",
        "/ip4/127.1",
        "/ip4/::1",
        "/ip6/127.0.0.1",
        "/ip6/fe80::1%eth0/tcp/1",
        "/ip6zone/a%b/ip6/::1",
        "/tcp/65536",
        "/tcp/-1",
        "/tcp/+1",
        "/tcp/1_0",
        "/tcp/ 1",
        "/tcp/²",
        "/tcp/٣",
        "/tcp/x",
        "/tcp",
        "/dns/",
        "/dns/a..b",
        "/dns/.a",
        "/dns/" + "a" * 64,
        "/dns/" + "a." * 127,
        "/dns/a b",
        "/dns/a\nb",
        "/dns/a\x00",
        "/dns/a\x1b[31m",
        "/dns/\ud800",
        "/unix",
        "/unix/",
        "/unix/a\x00b",
        "/unix/\ud800",
        "/memory/18446744073709551616",
        "/p2p/x",
        f"/p2p/{A}x",
        "/p2p",
        "/http/a",
        "/IP4/127.0.0.1",
        "/ws/x",
        "/ip4/127.0.0.1/tcp/1/x",
        "/p2p-circuit" * 600,
        "/" * 100_000,
        "/unix/" + "a" * LIMIT,
    ],
)
def test_what_is_no_address_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        Address.parse(text)


@given(st.text(max_size=60) | st.lists(st.text(max_size=9), max_size=6).map(lambda words: "/" + "/".join(words)))
def test_any_text_is_an_address_or_a_usage_error(text: str) -> None:
    with suppress(UsageError):
        assert Address.parse(str(Address.parse(text))) == Address.parse(text)


words = st.sampled_from(["ip4", "ip6", "ip6zone", "dns", "tcp", "udp", "unix", "p2p", "ws", "memory", "1", "::1", "1.2.3.4", A])


@given(st.lists(words | st.text(max_size=4), max_size=8).map(lambda words: "/" + "/".join(words)))
def test_any_mixture_of_words_is_an_address_or_a_usage_error(text: str) -> None:
    with suppress(UsageError):
        assert Address.decode(Address.parse(text).encode()) == Address.parse(text)


def survives(data: bytes) -> None:
    """An address that its text and its bytes keep, or a PeerError; any other exception fails the test."""
    with suppress(PeerError):
        address = Address.decode(data)
        assert str(address).isprintable()
        assert Address.parse(str(address)) == Address.decode(address.encode()) == address
        for value in (address.peer, address.host, address.port, address.transport):
            assert value is None or isinstance(value, bytes | str | int)
        address.host.encode("idna")


@given(st.binary(max_size=60))
def test_random_bytes_are_an_address_or_a_peer_error(data: bytes) -> None:
    survives(data)


CODES = [b"\x04", b"\x06", b"\x29", b"\x2a", b"\x35", b"\x38", b"\x91\x02", b"\xa2\x02", b"\x90\x03", b"\xa5\x03", b"\xc1\x03"]
sized = st.binary(max_size=40).map(lambda value: bytes([len(value)]) + value)


@given(st.lists(st.tuples(st.sampled_from(CODES), st.binary(max_size=16) | sized), max_size=4))
def test_random_values_of_known_protocols_are_an_address_or_a_peer_error(parts: list[tuple[bytes, bytes]]) -> None:
    survives(b"".join(code + value for code, value in parts))


@given(texts, st.data())
def test_flipped_bytes_never_crash(text: str, data: st.DataObject) -> None:
    wire = bytearray(Address.parse(text).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        wire[data.draw(st.integers(0, len(wire) - 1))] ^= data.draw(st.integers(1, 255))
    survives(bytes(wire))


def test_bytes_that_end_inside_a_part_are_a_peer_error() -> None:
    wire = Address.parse(f"/ip6zone/eth0/ip6/::1/tcp/443/tls/sni/a.b/ws/p2p/{A}").encode()
    whole = {len(Address(Address.decode(wire).parts[:count]).encode()) for count in range(1, 9)}
    for length in range(len(wire)):
        if length not in whole:
            with pytest.raises(PeerError):
                Address.decode(wire[:length])


@pytest.mark.parametrize(
    "wire",
    [
        "",
        "00",
        "04",
        "e003",  # http, not in the table
        "8400 7f000001",  # a varint that is not the shortest
        "ffffffffffffffffffff01",
        "35 00",
        "35 03 612e",
        "35 ffffffffffffffff7f 61",
        "35 01 ff",
        "35 01 2f",
        "35 01 00",
        "35 03 612e2e",
        "2a 00",
        "2a 01 25",
        "9003 00",
        "9003 01 2f",
        "9003 02 2f61 06 0001",  # a path has no end in text, so nothing can follow it
        "a503 00",
        "a503 02 1220",
        "a503 23 1220" + "00" * 33,
    ],
)
def test_what_is_no_address_in_bytes_is_a_peer_error(wire: str) -> None:
    with pytest.raises(PeerError):
        Address.decode(bytes.fromhex(wire))


def test_an_address_over_the_limit_is_a_peer_error() -> None:
    circuit = Address.parse("/p2p-circuit").encode()
    assert Address.decode(circuit * (LIMIT // 2)).encode() == circuit * (LIMIT // 2)
    with pytest.raises(PeerError, match="over the limit"):
        Address.decode(circuit * (LIMIT // 2 + 1))
    with pytest.raises(UsageError, match="over the limit"):
        Address.parse("/p2p-circuit" * (LIMIT // 2 + 1))


@pytest.mark.parametrize(
    ("text", "host", "port", "transport", "peer"),
    [
        ("/ip4/192.0.2.1/tcp/4001", "192.0.2.1", 4001, "tcp", None),
        (f"/ip4/192.0.2.1/tcp/4001/p2p/{A}", "192.0.2.1", 4001, "tcp", ALICE),
        (f"/ip6/::1/udp/4001/quic-v1/p2p/{A}", "::1", 4001, "quic-v1", ALICE),
        ("/ip6zone/eth0/ip6/fe80::1/tcp/1", "fe80::1%eth0", 1, "tcp", None),
        ("/dns/example.org/tcp/80/ws", "example.org", 80, "ws", None),
        ("/dns4/example.org/tcp/443/wss", "example.org", 443, "", None),
        ("/dns6/example.org/tcp/443/tls/sni/example.org/ws", "example.org", 443, "", None),
        (f"/dnsaddr/bootstrap.libp2p.io/p2p/{A}", "bootstrap.libp2p.io", 0, "", ALICE),
        ("/dnsaddr/example.org/tcp/1", "example.org", 1, "", None),
        (f"/ip4/192.0.2.1/tcp/1/p2p/{A}/p2p-circuit/p2p/{B}", "192.0.2.1", 1, "", BOB),
        (f"/ip4/192.0.2.1/tcp/1/p2p/{A}/p2p-circuit", "192.0.2.1", 1, "", None),
        ("/ip4/192.0.2.1/udp/1", "192.0.2.1", 1, "", None),
        ("/ip4/192.0.2.1", "192.0.2.1", 0, "", None),
        ("/ip6zone/eth0/ip4/192.0.2.1/tcp/1", "192.0.2.1%eth0", 1, "", None),
        ("/tcp/1", "", 1, "", None),
        (f"/p2p/{A}", "", 0, "", ALICE),
        ("/unix/tmp/a", "", 0, "", None),
        ("/memory/7", "", 0, "", None),
    ],
)
def test_how_to_dial(text: str, host: str, port: int, transport: str, peer: bytes | None) -> None:
    address = Address.parse(text)
    assert (address.host, address.port, address.transport, address.peer) == (host, port, transport, peer)


def test_the_peer_is_put_at_the_end_in_place_of_another() -> None:
    bare = Address.parse("/ip4/192.0.2.1/tcp/1")
    assert str(bare.with_peer(ALICE)) == f"/ip4/192.0.2.1/tcp/1/p2p/{A}"
    assert bare.with_peer(ALICE).with_peer(BOB) == bare.with_peer(BOB)
    assert bare.with_peer(ALICE).without_peer() == bare == bare.without_peer()
    relay = Address.parse(f"/ip4/192.0.2.1/tcp/1/p2p/{A}/p2p-circuit")
    assert relay.with_peer(BOB).peer == BOB
    assert relay.with_peer(BOB).without_peer() == relay


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("127.0.0.1", "/ip4/127.0.0.1/tcp/4001"),
        ("::", "/ip6/::/tcp/4001"),
        ("fe80::1%eth0", "/ip6zone/eth0/ip6/fe80::1/tcp/4001"),
        ("::ffff:192.0.2.1", "/ip4/192.0.2.1/tcp/4001"),
    ],
)
def test_an_address_from_the_name_of_a_socket(host: str, text: str) -> None:
    assert str(Address.of_tcp(host, 4001)) == text


@pytest.mark.parametrize(("host", "port"), [("localhost", 1), ("", 1), ("127.0.0.1", 65_536), ("127.0.0.1", -1), ("::1%a/b", 1)])
def test_a_socket_name_that_is_no_address_is_a_usage_error(host: str, port: int) -> None:
    with pytest.raises(UsageError):
        Address.of_tcp(host, port)


def test_addresses_sort_and_serve_as_keys() -> None:
    one, two = Address.parse("/ip4/192.0.2.1/tcp/1"), Address.parse("/ip4/192.0.2.2/tcp/1")
    assert sorted([two, one]) == [one, two]
    assert len({one, two, Address.of_tcp("192.0.2.1", 1)}) == 2
