"""GossipSub's codec: what is packed is read again whole, cut as the other implementations need it, and no bytes break it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libweft.peer.errors import PeerError
from libweft.peer.libp2p.pb import parse, rpc_pb2
from libweft.peer.machine import Message, MessageId, PeerInfo
from libweft.pubsub.gossipsub.messages import Extensions, Graft, IDontWant, IHave, IWant, Prune, Pruned, Test
from libweft.pubsub.gossipsub.wire import CONTROL_TAG, DONT_WANT, IDS, PEERS, TOPICS, MeshCodec
from libweft.pubsub.message import Publication
from libweft.pubsub.rpc import JOINED, Subscriptions, field

RUST_CONTROL = 16 << 10
RUST_RPC = 64 << 10
codec = MeshCodec()

topics = st.text(min_size=1, max_size=20)
ids = st.binary(min_size=1, max_size=60)
id_lists = st.lists(ids, min_size=1, max_size=8).map(tuple)
infos = st.builds(PeerInfo, st.binary(min_size=1, max_size=40), st.just(()), st.none() | st.binary(min_size=1, max_size=50))
publications = st.builds(
    Publication,
    st.builds(MessageId, st.binary(min_size=1, max_size=40), st.integers(0, 2**40 - 1), st.integers(0, 2**24 - 1)),
    topics,
    st.binary(max_size=100),
)
parts = st.one_of(
    publications,
    st.lists(st.tuples(st.booleans(), topics), min_size=1, max_size=5).map(tuple).map(Subscriptions),
    st.lists(st.tuples(topics, id_lists), min_size=1, max_size=4).map(tuple).map(IHave),
    id_lists.map(IWant),
    id_lists.map(IDontWant),
    st.lists(topics, min_size=1, max_size=5).map(tuple).map(Graft),
    st.lists(st.builds(Pruned, topics, st.lists(infos, max_size=3).map(tuple), st.integers(0, 2**63)), min_size=1, max_size=3)
    .map(tuple)
    .map(Prune),
)


def told(messages: Iterable[Message]) -> dict[str, list[object]]:
    """All that they say, by kind and in order, however it is cut."""
    said: dict[str, list[object]] = {}
    for m in messages:
        if isinstance(m, Publication):
            said.setdefault("publish", []).append(m)
        elif isinstance(m, Subscriptions):
            said.setdefault("subscriptions", []).extend(m.changes)
        elif isinstance(m, IHave):
            said.setdefault("ihave", []).extend((topic, key) for topic, keys in m.topics for key in keys)
        elif isinstance(m, IWant | IDontWant):
            said.setdefault(type(m).__name__, []).extend(m.ids)
        elif isinstance(m, Graft | Prune):
            said.setdefault(type(m).__name__, []).extend(m.topics)
    return said


def read(frames: Sequence[bytes]) -> list[Message]:
    return [part for frame in frames for part in codec.unpack(frame)]


@given(st.lists(parts, min_size=1, max_size=12))
def test_what_is_packed_is_read_again(messages: list[Message]) -> None:
    assert told(read(codec.pack(messages))) == told(messages)


@given(st.lists(parts, min_size=1, max_size=12))
def test_a_message_is_as_large_as_it_says(messages: list[Message]) -> None:
    """Its tags and lengths in the RPC come to it."""
    size = sum(map(codec.size, messages))
    assert size <= sum(map(len, codec.pack(messages))) <= size + 8 * len(codec.pack(messages))


def test_long_lists_are_cut_to_what_rust_reads() -> None:
    keys = tuple(number.to_bytes(46) for number in range(5_000))
    many = [IHave((("t" * 1_024, keys), ("u", keys))), IWant(keys), Graft(tuple(f"topic {n}" for n in range(3_000)))]
    subscriptions = Subscriptions(tuple((True, f"{n:0>200}") for n in range(500)))
    frames = codec.pack([*many, subscriptions])
    for frame in frames:
        rpc = rpc_pb2.RPC.FromString(frame)
        control = rpc.control.ByteSize() + sum(each.ByteSize() for each in rpc.subscriptions)
        assert control < RUST_CONTROL and len(frame) < RUST_RPC
    assert told(read(frames)) == told([*many, subscriptions])


def test_publications_travel_together_as_far_as_an_rpc_goes() -> None:
    several = [Publication(MessageId(b"author", 1, number), "t", bytes(1_000)) for number in range(100)]
    frames = codec.pack(several)
    assert all(len(frame) <= JOINED for frame in frames) and len(frames) == 2
    large = Publication(MessageId(b"author", 1, 1), "t", bytes(500_000))
    assert [len(codec.unpack(frame)) for frame in codec.pack([several[0], large, several[1]])] == [1, 1, 1]


def test_no_rpc_has_more_refused_ids_than_go_reads() -> None:
    keys = tuple(bytes([number]) for number in range(25))
    frames = codec.pack([IDontWant(keys), IDontWant((b"last",))])
    counts = [sum(len(each.messageIDs) for each in rpc_pb2.RPC.FromString(frame).control.idontwant) for frame in frames]
    assert counts == [DONT_WANT, DONT_WANT, 6]


@pytest.mark.parametrize("size", [0, 1, 46, 127, 128, 300])
def test_a_refused_id_has_the_bytes_that_protobuf_gives_it(size: int) -> None:
    control = rpc_pb2.ControlMessage(idontwant=[rpc_pb2.ControlIDontWant(messageIDs=[bytes(size)])])
    assert codec.pack([IDontWant((bytes(size),))]) == [rpc_pb2.RPC(control=control).SerializeToString()]


def test_control_of_one_rpc_is_one_message_of_each_kind() -> None:
    """Some limits count RPCs; and not every reader merges two control messages."""
    [frame] = codec.pack([Graft(("a",)), Graft(("b",)), IHave((("a", (b"1",)),)), IHave((("b", (b"2",)),))])
    assert frame == field(CONTROL_TAG, frame[2:])
    assert codec.unpack(frame) == [IHave((("a", (b"1",)), ("b", (b"2",)))), Graft(("a", "b"))]


def test_extensions_are_read_first() -> None:
    [frame] = codec.pack([Subscriptions(((True, "t"),)), Extensions(test=True)])
    assert codec.unpack(frame) == [Extensions(test=True), Subscriptions(((True, "t"),))]
    none = rpc_pb2.RPC(control=rpc_pb2.ControlMessage(extensions=rpc_pb2.ControlExtensions()))
    assert codec.unpack(none.SerializeToString()) == [Extensions()]


def test_the_test_extension_has_the_bytes_of_the_specification() -> None:
    assert codec.pack([Test()]) == [bytes.fromhex("9291e21800")]
    assert codec.unpack(bytes.fromhex("9291e21800")) == [Test()]
    assert bytes.fromhex("9091e21801") in codec.pack([Extensions(test=True)])[0]


def test_introductions_that_do_not_fit_are_left_out() -> None:
    several = tuple(PeerInfo(bytes([number]) * 38, (), bytes(4_000)) for number in range(16))
    [frame] = codec.pack([Prune((Pruned("t", several, 60),))])
    [prune] = codec.unpack(frame)
    assert isinstance(prune, Prune) and prune.topics[0].peers == several[:3] and prune.topics[0].backoff == 60
    assert len(frame) < RUST_CONTROL


def test_peers_are_numbers_in_the_simulator() -> None:
    numbered = MeshCodec(numbered=True)
    prune = Prune((Pruned("t", (PeerInfo(7), PeerInfo(70_000)), 1),))
    assert numbered.unpack(numbered.pack([prune])[0]) == [prune]


CONTROL = rpc_pb2.ControlMessage
TOO_MUCH = {
    "ids": CONTROL(iwant=[rpc_pb2.ControlIWant(messageIDs=[b""] * (IDS + 1))]),
    "topics": CONTROL(graft=[rpc_pb2.ControlGraft()] * (TOPICS + 1)),
    "refusals": CONTROL(idontwant=[rpc_pb2.ControlIDontWant(messageIDs=[b"x"])] * (TOPICS + 1)),
    "peers": CONTROL(prune=[rpc_pb2.ControlPrune(peers=[rpc_pb2.PeerInfo()] * (PEERS + 1))]),
}


@pytest.mark.parametrize("control", TOO_MUCH.values(), ids=TOO_MUCH)
def test_an_rpc_with_too_much_in_it_is_its_senders_fault(control: rpc_pb2.ControlMessage) -> None:
    with pytest.raises(PeerError, match="in one RPC"):
        codec.unpack(rpc_pb2.RPC(control=control).SerializeToString())


@given(st.binary(max_size=300))
def test_no_bytes_do_more_than_a_peer_error(data: bytes) -> None:
    with suppress(PeerError):
        codec.unpack(data)


def outcome(read: Callable[[bytes], Sequence[Message]], data: bytes) -> Sequence[Message] | None:
    try:
        return read(data)
    except PeerError:
        return None


def plainly(data: bytes) -> Sequence[Message]:
    return MeshCodec()._unpacked(parse(rpc_pb2.RPC, data), [])


@given(st.lists(parts, min_size=1, max_size=6), st.data())
def test_what_is_read_by_hand_is_what_protobuf_reads(messages: list[Message], data: st.DataObject) -> None:
    """Whole frames of any parts, and frames with a byte changed, put in or left out."""
    frame = b"".join(codec.pack(messages))
    assert codec.unpack(frame) == plainly(frame)
    at = data.draw(st.integers(0, len(frame)))
    broken = frame[:at] + data.draw(st.binary(max_size=2)) + frame[at + data.draw(st.integers(0, 2)) :]
    assert outcome(codec.unpack, broken) == outcome(plainly, broken)


@given(st.lists(ids, min_size=1, max_size=30))
def test_refusals_by_the_dozen_are_what_protobuf_reads(keys: list[bytes]) -> None:
    each = [rpc_pb2.RPC(control=rpc_pb2.ControlMessage(idontwant=[{"messageIDs": [key]} for key in keys])).SerializeToString()]
    each.append(rpc_pb2.RPC(control=rpc_pb2.ControlMessage(idontwant=[{"messageIDs": keys}])).SerializeToString())
    assert [codec.unpack(frame) for frame in each] == [[IDontWant(tuple(keys))]] * 2


@pytest.mark.parametrize("size", range(120, 132))
def test_a_refusal_whose_length_has_two_bytes_is_what_protobuf_reads(size: int) -> None:
    """A length of 128 or more in one byte is no length, but the beginning of one."""
    written = rpc_pb2.RPC(control=CONTROL(idontwant=[{"messageIDs": [bytes(size)]}])).SerializeToString()
    assert codec.unpack(written) == [IDontWant((bytes(size),))]
    if size < 128:
        frame = field(CONTROL_TAG, bytes([0x2A, size + 2, 0x0A, size]) + bytes(size))
        assert outcome(codec.unpack, frame) == outcome(plainly, frame)


def test_a_frame_that_ends_too_soon_is_its_senders_fault_wherever_it_ends() -> None:
    """What is there of a message may be a message of its own."""
    said = Publication(MessageId(b"author", 1, 2), "t", b"data", None, (), b"signature", b"key")
    [frame] = codec.pack([said, IDontWant((b"id",)), Graft(("t",))])
    for end in range(len(frame)):
        assert outcome(codec.unpack, frame[:end]) == outcome(plainly, frame[:end])


def test_a_second_copy_is_the_same_object_and_a_changed_one_is_not() -> None:
    said = Publication(MessageId(b"author", 1, 2), "t", bytes(1_000))
    (frame,) = MeshCodec().pack([said])
    (first,), (again,) = codec.unpack(frame), codec.unpack(frame)
    (other,) = codec.unpack(frame[:-1] + b"u")
    assert first is again and first == said and other != said
