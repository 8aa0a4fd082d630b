"""The border between bytes and messages: whatever arrives is a message of the protocol or a PeerError."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from functools import cache

import msgpack as oracle
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from libweft import overlays, pubsub
from libweft.peer.codec import FRAME_LIMIT, MsgpackCodec, msgpack
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.live.collect.messages import FROM_PEER, Ask, Batch, Hello, Taken, Told
from libweft.peer.machine import Machine, Message, MessageId, PeerInfo
from libweft.pubsub.message import OrderHeader, Publication
from libweft.pubsub.scribe.router import Srpt
from tests.fuzz import seeds


class Ping(Message, frozen=True, tag=1):
    pass


class Shuffle(Message, frozen=True, tag=2):
    origin: PeerInfo
    hops: int
    sample: tuple[PeerInfo, ...] = ()


class Score(Message, frozen=True, tag=3):
    value: float
    good: bool
    name: str | None = None


class Tree(Message, frozen=True, tag=4):
    branches: tuple[Tree, ...] = ()


class Stranger(Message, frozen=True, tag=99):
    pass


KINDS = (Ping, Shuffle, Score, Tree, Publication)
CODEC = MsgpackCodec(KINDS)
SMALL = MsgpackCodec(KINDS, limit=64)

numbers = st.integers(-(2**63), 2**64 - 1)
peers = st.integers(0, 2**64 - 1) | st.binary(max_size=40)
infos = st.builds(PeerInfo, peers, st.lists(st.text(max_size=9), max_size=3).map(tuple), st.none() | st.binary(max_size=9))
ids = st.builds(MessageId, peers, numbers, numbers)
orders = st.builds(OrderHeader, numbers, numbers, st.lists(ids, max_size=3).map(tuple))
values = numbers | st.floats(allow_nan=False) | st.text(max_size=9)
attributes = st.lists(st.tuples(st.text(max_size=9), values), max_size=3).map(tuple)
messages = st.one_of(
    st.just(Ping()),
    st.builds(Shuffle, infos, numbers, st.lists(infos, max_size=4).map(tuple)),
    st.builds(Score, st.floats(allow_nan=False), st.booleans(), st.none() | st.text(max_size=9)),
    st.recursive(st.just(Tree()), lambda trees: st.builds(Tree, st.lists(trees, max_size=3).map(tuple)), max_leaves=9),
    st.builds(Publication, ids, st.text(max_size=9), st.binary(max_size=99), st.none() | orders, attributes),
)


def frame_of(msg: Message) -> bytes:
    [frame] = CODEC.pack([msg])
    return frame


def survives(frame: bytes) -> None:
    """A message that its own type allows, or a PeerError; any other exception fails the test."""
    with suppress(PeerError):
        [msg] = CODEC.unpack(frame)
        assert type(msg) in KINDS
        assert list(CODEC.unpack(frame_of(msg)))


@given(messages)
def test_what_is_packed_is_unpacked_as_it_was(msg: Message) -> None:
    frame = frame_of(msg)
    assert list(CODEC.unpack(frame)) == [msg]
    assert CODEC.size(msg) == len(frame)


@given(st.lists(messages, max_size=5))
def test_each_part_has_a_frame_in_order(parts: list[Message]) -> None:
    frames = CODEC.pack(parts)
    assert [msg for frame in frames for msg in CODEC.unpack(frame)] == parts


@given(messages)
def test_every_truncation_is_a_peer_error(msg: Message) -> None:
    frame = frame_of(msg)
    for length in range(len(frame)):
        with pytest.raises(PeerError):
            CODEC.unpack(frame[:length])


@given(messages, st.binary(min_size=1, max_size=9))
def test_bytes_after_the_message_are_a_peer_error(msg: Message, more: bytes) -> None:
    with pytest.raises(PeerError):
        CODEC.unpack(frame_of(msg) + more)


@given(messages, st.data())
def test_flipped_bytes_never_crash(msg: Message, data: st.DataObject) -> None:
    frame = bytearray(frame_of(msg))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    survives(bytes(frame))


@given(st.binary(max_size=99))
def test_random_bytes_never_crash(frame: bytes) -> None:
    survives(frame)


junk = st.recursive(
    st.none() | st.booleans() | numbers | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.integers(0, 5), st.lists(junk, max_size=6))
def test_nested_junk_under_a_known_tag_never_crashes(tag: int, fields: list[object]) -> None:
    survives(msgspec.msgpack.encode([tag, *fields]))


@pytest.mark.parametrize("value", [None, 1, "x", [], {}, [None], ["Ping"], [1.0], [-1], [2**63], {"type": 1}, [[1]]])
def test_what_is_no_tagged_array_is_a_peer_error(value: object) -> None:
    with pytest.raises(PeerError):
        CODEC.unpack(msgspec.msgpack.encode(value))


def test_the_empty_frame_is_a_peer_error() -> None:
    with pytest.raises(PeerError):
        CODEC.unpack(b"")


def test_an_unknown_tag_is_a_peer_error() -> None:
    with pytest.raises(PeerError):
        CODEC.unpack(MsgpackCodec((Stranger,)).pack([Stranger()])[0])


def test_text_that_is_no_utf8_is_a_peer_error() -> None:
    frame = frame_of(Score(1.0, True, "name")).replace(b"name", b"\xff\xfe\xfd\xfc")
    with pytest.raises(PeerError):
        CODEC.unpack(frame)


@pytest.mark.parametrize("depth", [500, 5_000, 100_000])
@pytest.mark.parametrize("opening", [b"\x91", b"\x92\x04\x91", b"\x81\xa1x"])
def test_deep_nesting_is_a_peer_error(opening: bytes, depth: int) -> None:
    for prefix in (b"", b"\x92\x02", b"\x92\x04"):
        with pytest.raises(PeerError):
            CODEC.unpack(prefix + opening * depth)


@pytest.mark.parametrize(
    "claim", [b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff"]
)
def test_a_length_that_the_frame_does_not_have_is_a_peer_error(claim: bytes) -> None:
    for prefix in (b"", b"\x92\x02", b"\x92\x04"):
        with pytest.raises(PeerError):
            CODEC.unpack(prefix + claim)


def test_a_frame_over_the_limit_is_the_senders_mistake_there_and_the_peers_fault_here() -> None:
    large = Score(0.0, True, "x" * 99)
    with pytest.raises(UsageError, match="over the frame limit of 64"):
        SMALL.pack([large])
    with pytest.raises(PeerError, match="over the limit of 64"):
        SMALL.unpack(frame_of(large))


def test_a_frame_of_exactly_the_limit_passes_both_ways() -> None:
    exact = next(msg for n in range(64) if SMALL.size(msg := Score(0.0, True, "x" * n)) == 64)
    assert list(SMALL.unpack(SMALL.pack([exact])[0])) == [exact]


def test_machines_of_one_protocol_share_a_codec() -> None:
    assert msgpack(KINDS) is msgpack(KINDS)
    assert msgpack(KINDS).limit == FRAME_LIMIT


def test_a_protocol_without_messages_takes_no_frame() -> None:
    for frame in (b"", b"\xc0", b"\x90", frame_of(Ping())):
        with pytest.raises(PeerError):
            MsgpackCodec(()).unpack(frame)


def machines(kind: type[Machine] = Machine) -> Iterator[type[Machine]]:
    for heir in kind.__subclasses__():
        yield heir
        yield from machines(heir)


def wire_kinds() -> list[type[Message]]:
    """The messages of every protocol of weft's own: all machines that keep the codec of `Machine`, and the collector's."""
    for package in (overlays, pubsub):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    own = [machine for machine in machines() if machine.__module__.startswith("libweft.") and machine.codec is Machine.codec]
    found: set[type[Message]] = {message for machine in own for message in machine.kinds}
    return sorted(found.union((Hello, Told, Batch, Ask, Taken)), key=full_name)


def full_name(kind: type[Message]) -> str:
    return f"{kind.__module__}.{kind.__name__}".removeprefix("libweft.")


def values_of(hint: inspect.Type) -> st.SearchStrategy:
    """Values that fit the type of a field, within its bounds."""
    match hint:
        case inspect.StructType():
            return st.builds(hint.cls, *(values_of(field.type) for field in hint.fields))
        case inspect.UnionType():
            return st.one_of(*map(values_of, hint.types))
        case inspect.TupleType():
            return st.tuples(*map(values_of, hint.item_types))
        case inspect.VarTupleType():
            return st.lists(values_of(hint.item_type), min_size=hint.min_length or 0, max_size=3).map(tuple)
        case inspect.IntType():
            return st.integers(-(2**63) if hint.ge is None else hint.ge, 2**64 - 1 if hint.le is None else hint.le)
        case inspect.StrType():
            return st.text(max_size=40)
        case inspect.BytesType():
            return st.binary(max_size=40)
        case inspect.EnumType():
            return st.sampled_from(list(hint.cls))
        case inspect.FloatType():
            return st.floats(allow_nan=False)
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
    raise NotImplementedError(f"say here how to make a value of {hint}")


@cache  # because to make a strategy takes longer than to draw from it
def messages_of(kind: type[Message]) -> st.SearchStrategy[Message]:
    return values_of(inspect.type_info(kind))


def untyped(value: object) -> object:
    """What a reader without types gets: an array for a struct or a tuple, which begins with the tag if there is one."""
    if isinstance(value, msgspec.Struct):
        tag = value.__struct_config__.tag
        return [*([] if tag is None else [tag]), *(untyped(getattr(value, name)) for name in value.__struct_fields__)]
    if isinstance(value, tuple):
        return [untyped(part) for part in value]
    return value.value if isinstance(value, Enum) else value


@pytest.mark.parametrize("kind", wire_kinds(), ids=full_name)
@settings(max_examples=10)
@given(data=st.data())
def test_another_messagepack_library_reads_and_writes_every_message(kind: type[Message], data: st.DataObject) -> None:
    msg = data.draw(messages_of(kind))
    codec = MsgpackCodec((kind,))
    [frame] = codec.pack([msg])
    assert repr(oracle.unpackb(frame)) == repr(untyped(msg))  # 1, 1.0 and True are equal, but not on the wire
    assert list(codec.unpack(oracle.packb(untyped(msg)))) == [msg]


@pytest.mark.parametrize(
    ("name", "codec"), [("msgpack", MsgpackCodec(seeds.KINDS)), ("srpt", MsgpackCodec(Srpt.kinds)), ("collect-peer", FROM_PEER)]
)
def test_another_messagepack_library_reads_the_frames_that_fuzzing_begins_with(name: str, codec: MsgpackCodec) -> None:
    for frame in seeds.seeds(name):
        [msg] = codec.unpack(frame)
        assert repr(oracle.unpackb(frame)) == repr(untyped(msg))
