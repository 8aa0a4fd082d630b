"""Kademlia's bytes: those that libp2p writes, by hand; every message there and back; and what is refused."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libweft.overlays.kademlia.config import TOLD, KademliaConfig
from libweft.overlays.kademlia.messages import AddProvider, FindNode, GetProviders, GetValue, Ping, PutValue, Record
from libweft.overlays.kademlia.put_and_get import Kademlia
from libweft.overlays.kademlia.records import RecordLimits
from libweft.overlays.kademlia.wire import ADDRESS_BYTES, ADDRESSES, KEY_LIMIT, LIMIT, PEERS, KadCodec, kad
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.fake.env import FakeEnv
from libweft.peer.libp2p.address import Address
from libweft.peer.libp2p.frame import uvarint
from libweft.peer.libp2p.ids import Identity
from libweft.peer.machine import Message, PeerInfo

LIVE, NUMBERED = kad(numbered=False), kad(numbered=True)
IDS = [Identity.from_seed(bytes([n]) * 32).peer for n in range(3)]
HASHED = b"\x12\x20" + sha256(b"an RSA key").digest()
HERE = "/ip4/192.0.2.1/tcp/4001"
HERE_BYTES = bytes.fromhex("04c0000201060fa1")


def field(number: int, data: bytes | int) -> bytes:
    """As protobuf has it: a tag, and a varint or bytes with their length."""
    if isinstance(data, int):
        return uvarint(number << 3) + uvarint(data)
    return uvarint(number << 3 | 2) + uvarint(len(data)) + data


def peer(name: bytes, *addresses: bytes, connection: int = 2) -> bytes:
    return b"".join([field(1, name), *(field(2, address) for address in addresses), field(3, connection)])


RECEIVED = "2026-01-02T03:04:05.000000006Z"
RECORD = field(1, b"/pk/key") + field(2, b"value") + field(5, RECEIVED.encode())
WRITTEN: list[tuple[bytes, Message]] = [
    (field(1, 4) + field(2, IDS[0]), FindNode(IDS[0])),
    (
        field(1, 4) + field(2, IDS[0]) + field(8, peer(IDS[1], HERE_BYTES)) + field(8, peer(HASHED)),
        FindNode(IDS[0], (PeerInfo(IDS[1], (HERE,)), PeerInfo(HASHED))),
    ),
    (field(2, b"/pk/key") + field(3, RECORD), PutValue(b"/pk/key", Record(b"/pk/key", b"value", RECEIVED))),
    (field(1, 1) + field(2, b"/pk/key"), GetValue(b"/pk/key")),
    (
        field(1, 1) + field(2, b"/pk/key") + field(3, RECORD) + field(8, peer(IDS[2])),
        GetValue(b"/pk/key", Record(b"/pk/key", b"value", RECEIVED), (PeerInfo(IDS[2]),)),
    ),
    (field(1, 2) + field(2, HASHED) + field(9, peer(IDS[0], HERE_BYTES)), AddProvider(HASHED, (PeerInfo(IDS[0], (HERE,)),))),
    (field(1, 3) + field(2, HASHED), GetProviders(HASHED)),
    (
        field(1, 3) + field(2, HASHED) + field(8, peer(IDS[1])) + field(9, peer(IDS[0], HERE_BYTES)),
        GetProviders(HASHED, (PeerInfo(IDS[0], (HERE,)),), (PeerInfo(IDS[1]),)),
    ),
    (field(1, 5), Ping()),
]


@pytest.mark.parametrize(("data", "msg"), WRITTEN, ids=[type(msg).__name__ for _, msg in WRITTEN])
def test_the_bytes_of_libp2p_are_read_and_written(data: bytes, msg: Message) -> None:
    assert LIVE.unpack(data) == (msg,)
    assert LIVE.pack([msg]) == [data]
    assert LIVE.size(msg) == len(data)


def test_fields_that_are_not_needed_are_passed_over() -> None:
    """The cluster level and a type written though it is 0; how a peer is connected; a ttl in a record, as Rust has it."""
    name, record = field(1, IDS[0]), RECORD + field(666, b"publisher") + field(777, 3_600)
    assert LIVE.unpack(field(1, 4) + field(2, b"k") + field(10, 1) + field(8, name)) == (FindNode(b"k", (PeerInfo(IDS[0]),)),)
    assert LIVE.unpack(field(1, 4) + field(8, peer(IDS[0], connection=9))) == (FindNode(b"", (PeerInfo(IDS[0]),)),)
    [put] = LIVE.unpack(field(1, 0) + field(2, b"/pk/key") + field(3, record))
    assert isinstance(put, PutValue) and put.record.value == b"value"


def test_each_message_is_a_frame_of_its_own() -> None:
    assert LIVE.pack([Ping(), Ping()]) == [field(1, 5), field(1, 5)] and not LIVE.joins


# There and back.


PLACES = st.sampled_from([HERE, "/dns4/example.org/tcp/443/tls/ws", "/ip6/::1/udp/1/quic-v1"])
KEYS = st.binary(max_size=KEY_LIMIT)
RECORDS = st.builds(Record, st.binary(max_size=40), st.binary(max_size=300), st.text(max_size=40))


def messages(peers: st.SearchStrategy) -> st.SearchStrategy[Message]:
    named = st.lists(st.builds(PeerInfo, peers, st.lists(PLACES, max_size=3, unique=True).map(tuple)), max_size=5).map(tuple)
    return st.one_of(
        st.builds(FindNode, KEYS, named),
        st.builds(GetValue, KEYS, st.none() | RECORDS, named),
        st.builds(PutValue, KEYS, RECORDS),
        st.builds(GetProviders, KEYS, named, named),
        st.builds(AddProvider, KEYS, named),
        st.just(Ping()),
    )


@given(messages(st.sampled_from([*IDS, HASHED])))
@settings(max_examples=150)
def test_a_live_message_comes_back_as_it_was(msg: Message) -> None:
    [data] = LIVE.pack([msg])
    assert LIVE.unpack(data) == (msg,) and LIVE.size(msg) == len(data)


@given(messages(st.integers(0, (1 << 64) - 1)))
@settings(max_examples=100)
def test_a_simulated_message_comes_back_as_it_was(msg: Message) -> None:
    [data] = NUMBERED.pack([msg])
    assert NUMBERED.unpack(data) == (msg,)


# What is refused.


@pytest.mark.parametrize("kind", [6, 7, 99, 1 << 31])
def test_an_unknown_type_is_the_peer_s_fault(kind: int) -> None:
    with pytest.raises(PeerError, match="unknown type"):
        LIVE.unpack(field(1, kind) + field(2, b"key"))


NO_IDS = [b"", b"x", bytes(34), b"\x12\x20" + bytes(31), b"\x00\x24" + bytes(35), b"\x00\x00", bytes(300)]
BROKEN = [b"\xff", field(1, 4) + b"\x12\x7f", field(1, 4) + field(8, b"\x0a\x7f"), field(3, field(5, b"\xff"))]


@pytest.mark.parametrize("name", NO_IDS)
def test_a_peer_s_id_that_is_none_makes_the_frame_a_fault(name: bytes) -> None:
    for number, kind in ((8, 4), (8, 1), (8, 3), (9, 3), (9, 2)):
        with pytest.raises(PeerError, match="peer id"):
            LIVE.unpack(field(1, kind) + field(2, b"key") + field(number, peer(IDS[0])) + field(number, peer(name)))


def test_where_numbers_are_spoken_an_id_of_another_length_is_a_fault() -> None:
    assert NUMBERED.unpack(field(1, 4) + field(8, peer(bytes(8)))) == (FindNode(b"", (PeerInfo(0),)),)
    for name in (b"", bytes(7), bytes(9), IDS[0]):
        with pytest.raises(PeerError, match="where numbers are spoken"):
            NUMBERED.unpack(field(1, 4) + field(8, peer(name)))


@pytest.mark.parametrize("data", BROKEN)
def test_bytes_that_do_not_parse_are_the_peer_s_fault(data: bytes) -> None:
    with pytest.raises(PeerError, match="this is no Message"):
        LIVE.unpack(data)


def test_addresses_of_unknown_transports_and_those_that_do_not_parse_are_left_out() -> None:
    unknown = [b"\x04\xc0\x00\x02\x01\xff\xff\x7f", b"", b"\x04", b"\xc8\x03\x00"]
    [msg] = LIVE.unpack(field(1, 4) + field(8, peer(IDS[0], unknown[0], HERE_BYTES, *unknown[1:])))
    assert isinstance(msg, FindNode)
    [info] = msg.closer
    assert info.peer == IDS[0] and HERE in info.addresses
    assert all(Address.parse(text).encode() not in unknown[:1] for text in info.addresses)
    assert len(info.addresses) <= 2


def test_keys_lists_addresses_and_frames_are_bounded() -> None:
    head = field(1, 4)
    LIVE.unpack(head + field(2, bytes(KEY_LIMIT)))
    with pytest.raises(PeerError, match="a key of 257 bytes"):
        LIVE.unpack(head + field(2, bytes(KEY_LIMIT + 1)))
    [msg] = LIVE.unpack(head + field(8, peer(IDS[0])) * PEERS)
    assert isinstance(msg, FindNode) and len(msg.closer) == PEERS
    with pytest.raises(PeerError, match="a list of 257 peers"):
        LIVE.unpack(head + field(8, peer(IDS[0])) * (PEERS + 1))
    with pytest.raises(PeerError, match="a list of 257 peers"):
        LIVE.unpack(field(1, 2) + field(9, peer(IDS[0])) * (PEERS + 1))
    places = [Address.parse(f"/ip4/192.0.2.1/tcp/{port}").encode() for port in range(1, 40)]
    [msg] = LIVE.unpack(head + field(8, peer(IDS[0], *places)))
    assert isinstance(msg, FindNode) and len(msg.closer[0].addresses) == ADDRESSES
    with pytest.raises(PeerError, match="over the limit"):
        LIVE.unpack(field(3, field(2, bytes(LIMIT))))
    with pytest.raises(UsageError, match="over the frame limit"):
        LIVE.pack([PutValue(b"key", Record(b"key", bytes(LIMIT)))])


def long_address(number: int) -> str:
    return f"/dns4/{'a' * 60}.{'b' * 60}.{'c' * 60}.{number}/tcp/{number}" + "/p2p-circuit" * 400


def test_however_long_the_addresses_are_that_others_told_an_answer_stays_within_the_frame() -> None:
    """What cannot be packed would be a crash of the node that answers."""
    places = tuple(long_address(number) for number in range(1, ADDRESSES + 1))
    assert len(Address.parse(places[0]).encode()) > ADDRESS_BYTES // 2
    named = tuple(PeerInfo(IDS[0], places) for _ in range(TOLD))
    key, value = bytes(KEY_LIMIT), bytes(RecordLimits().value)
    for msg in (GetProviders(key, named, named), GetValue(key, Record(key, value), named), FindNode(key, named)):
        [frame] = LIVE.pack([msg])
        [read] = LIVE.unpack(frame)
        assert isinstance(read, FindNode | GetValue | GetProviders)
        assert [info.addresses for info in read.closer] == [places[:1]] * TOLD
    assert all(len(Address.parse(place).encode()) <= ADDRESS_BYTES for place in places)


def test_the_codec_of_a_machine_is_that_of_its_peers_names() -> None:
    config = KademliaConfig()
    assert Kademlia(FakeEnv(me=0), (), config).codec() is NUMBERED
    live = Kademlia(FakeEnv(me=IDS[0]), (), config).codec()
    assert live is LIVE and isinstance(live, KadCodec)
