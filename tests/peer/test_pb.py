"""The generated protobuf files: up to date, alone in their packages, and strict about what they parse."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.message import Message
from grpc_tools import protoc  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from libweft.peer.errors import PeerError
from libweft.peer.libp2p import pb
from libweft.peer.libp2p.pb import identify_pb2, kad_pb2, keys_pb2, noise_pb2, records_pb2, rpc_pb2, trace_pb2

ROOT = Path(__file__).resolve().parent.parent.parent
NAMES = sorted(path.stem for path in (ROOT / "peer" / "libp2p" / "pb").glob("*.proto"))
KINDS: tuple[type[Message], ...] = (
    identify_pb2.Identify,
    kad_pb2.Message,
    keys_pb2.PublicKey,
    noise_pb2.NoiseHandshakePayload,
    records_pb2.Envelope,
    records_pb2.PeerRecord,
    rpc_pb2.RPC,
    trace_pb2.TraceEventBatch,
)


def without_json_names(messages: Iterable[descriptor_pb2.DescriptorProto]) -> None:
    """The compiler writes them for some outputs and not for others."""
    for message in messages:
        for field in message.field:
            field.ClearField("json_name")
        without_json_names(message.nested_type)


@pytest.mark.parametrize("name", NAMES)
def test_the_generated_file_is_that_of_its_schema(name: str, tmp_path: Path) -> None:
    made = tmp_path / "schema"
    assert (
        protoc.main(["protoc", f"-I{ROOT / 'src'}", f"--descriptor_set_out={made}", f"libweft/peer/libp2p/pb/{name}.proto"]) == 0
    )
    [schema] = descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes()).file
    committed = descriptor_pb2.FileDescriptorProto()
    importlib.import_module(f"libweft.peer.libp2p.pb.{name}_pb2").DESCRIPTOR.CopyToProto(committed)
    without_json_names([*schema.message_type, *committed.message_type])
    assert schema == committed, "run `make protobuf`"


@pytest.mark.parametrize("name", NAMES)
def test_each_schema_has_a_package_of_its_own(name: str) -> None:
    assert importlib.import_module(f"libweft.peer.libp2p.pb.{name}_pb2").DESCRIPTOR.package == f"weft.{name}"


@pytest.mark.parametrize("name", NAMES)
def test_the_generated_file_loads_with_the_oldest_protobuf_that_is_allowed(name: str) -> None:
    [oldest] = re.findall(r'"protobuf>=([0-9.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    generated = (ROOT / "peer" / "libp2p" / "pb" / f"{name}_pb2.py").read_text(encoding="utf-8")
    [made_by] = re.findall(r"^# Protobuf Python Version: ([0-9.]+)$", generated, re.MULTILINE)
    assert [int(part) for part in made_by.split(".")] <= [int(part) for part in oldest.split(".")]


@given(st.sampled_from(KINDS), st.binary(max_size=60))
def test_random_bytes_are_a_message_or_a_peer_error(kind: type[Message], data: bytes) -> None:
    with suppress(PeerError):
        assert isinstance(pb.parse(kind, data), kind)


@pytest.mark.parametrize("depth", [50, 200, 5_000])
def test_nested_groups_never_crash(depth: int) -> None:
    with pytest.raises(PeerError):
        pb.parse(rpc_pb2.RPC, b"\x7b" * depth)


@pytest.mark.parametrize(
    ("kind", "wire"),
    [
        (rpc_pb2.Message, b"\x22\x02\xff\xfe"),
        (rpc_pb2.ControlGraft, b"\x0a\x01\xff"),
        (identify_pb2.Identify, b"\x1a\x02\xff\xfe"),
        (noise_pb2.NoiseExtensions, b"\x12\x01\x80"),
    ],
)
def test_a_string_that_is_no_utf8_is_a_peer_error(kind: type[Message], wire: bytes) -> None:
    with pytest.raises(PeerError):
        pb.parse(kind, wire)


def test_message_ids_need_not_be_utf8() -> None:
    ids = [b"\xff\xfe", b"\x00"]
    control = rpc_pb2.ControlMessage(ihave=[rpc_pb2.ControlIHave(topicID="t", messageIDs=ids)])
    control.iwant.add(messageIDs=ids)
    control.idontwant.add(messageIDs=ids)
    parsed = pb.parse(rpc_pb2.ControlMessage, control.SerializeToString())
    assert list(parsed.ihave[0].messageIDs) == list(parsed.iwant[0].messageIDs) == list(parsed.idontwant[0].messageIDs) == ids


def test_the_tags_of_the_test_extension() -> None:
    assert rpc_pb2.RPC(testExtension=rpc_pb2.TestExtension()).SerializeToString() == bytes.fromhex("9291e21800")
    assert rpc_pb2.ControlExtensions(testExtension=True).SerializeToString() == bytes.fromhex("9091e21801")


def test_a_field_that_is_set_to_its_default_is_written_and_one_that_is_not_set_is_not() -> None:
    assert rpc_pb2.RPC.SubOpts(subscribe=False, topicid="t").SerializeToString() == b"\x08\x00\x12\x01t"
    assert rpc_pb2.Message(data=b"").SerializeToString() == b"\x12\x00"
    assert not rpc_pb2.Message().HasField("data")
    assert rpc_pb2.RPC(control=rpc_pb2.ControlMessage()).SerializeToString() == b"\x1a\x00"


def test_of_the_topics_of_an_old_message_the_last_is_taken() -> None:
    assert pb.parse(rpc_pb2.Message, b"\x22\x01a\x22\x01b").topic == "b"


def test_a_type_that_is_not_known_reads_as_its_number() -> None:
    assert int(pb.parse(kad_pb2.Message, b"\x08\x63").type) == 99
