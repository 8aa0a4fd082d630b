"""Every decoder of a peer's bytes, or of a user's text, as a function of bytes.

A target raises PeerError, or UsageError where it reads text, or nothing: `check` lets those pass, and whatever else comes is a
bug. Where a decoder promises more, its target asserts it: the same result however the bytes are cut, one text and one encoding
for one value, nothing let through that was not signed or sealed, and what is held within its bounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import msgspec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from libweft.overlays.kademlia.put_and_get import Kademlia
from libweft.overlays.kademlia.wire import PEERS, KadCodec, kad
from libweft.overlays.kademlia_udp.config import KademliaUdpConfig
from libweft.overlays.kademlia_udp.machine import KademliaUdp
from libweft.overlays.kademlia_udp.wire import read_address, read_call, read_id, read_nodes, read_stored, read_value, store
from libweft.overlays.static import Static
from libweft.overlays.vcube.machine import VCube
from libweft.peer.codec import MsgpackCodec
from libweft.peer.datagram import CONTENT_LIMIT, GARBAGE
from libweft.peer.dispatch import ask, receive
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.fake.env import FakeEnv
from libweft.peer.libp2p.address import Address
from libweft.peer.libp2p.frame import Frames, read_uvarint, uvarint
from libweft.peer.libp2p.ids import Identity, PublicKey, check_peer, key_in, parse_peer, peer_text
from libweft.peer.libp2p.multistream import LINE_LIMIT, Answerer, Proposer
from libweft.peer.libp2p.noise import XX, Channel, Handshake
from libweft.peer.libp2p.pb import parse, rpc_pb2
from libweft.peer.libp2p.pnet import read_key
from libweft.peer.libp2p.records import DOMAIN, PAYLOAD_TYPE, open_envelope, read_record, seal_envelope
from libweft.peer.libp2p.yamux import DEFAULTS, SIZE, TOP, Data, Event, Finished, Opened, Yamux, YamuxLimits
from libweft.peer.live import identify
from libweft.peer.live.collect.messages import FROM_COLLECTOR, FROM_PEER, Batch
from libweft.peer.live.collect.peer_account import Account
from libweft.peer.live.ping import PING
from libweft.peer.live.transport import NOISE, YAMUX
from libweft.peer.machine import Link, Message, MessageId
from libweft.peer.sim.datagram import SimDatagrams
from libweft.peer.sim.simulator import Simulator
from libweft.peer.trace.tables import Keys, message_table, row_table
from libweft.pubsub.flood import PROTOCOL
from libweft.pubsub.gossipsub.messages import Graft
from libweft.pubsub.gossipsub.router import GossipSub
from libweft.pubsub.gossipsub.snappy import SnappyError, decompress
from libweft.pubsub.gossipsub.wire import MeshCodec
from libweft.pubsub.message import Publication
from libweft.pubsub.rpc import RpcCodec
from libweft.pubsub.scribe.router import SrptS
from libweft.pubsub.signing import Signing
from tests.fuzz.seeds import DIALLED, DIALLER, KEYS, KINDS, ME, OTHER, authentic, channel, load_once, real, signed_records
from tests.peer.recorded.replay import Recording, Replay
from tests.pubsub.apps import Inbox

Target: TypeAlias = Callable[[bytes], None]


def check(name: str, data: bytes) -> None:
    """Run one target; it is right unless this raises."""
    try:
        TARGETS[name](data)
    except PeerError:
        assert name not in TEXTS, "a text is the local side's, and no peer's fault"
    except UsageError:
        assert name in TEXTS, "a peer's bytes are no fault of the local side"


def pieces(data: bytes) -> Iterator[bytes]:
    """In small pieces of a size that depends on the data."""
    size = sum(data) % 13 + 1
    for at in range(0, len(data), size):
        yield data[at : at + size]


def outcome(action: Callable[[], Any]) -> object:
    try:
        return action()
    except PeerError:
        return PeerError


# Framing and negotiation.


def frames(data: bytes) -> None:
    limit = 1 << 9

    def fed(parts: Iterator[bytes]) -> list[bytes]:
        cut = Frames(limit)
        found: list[bytes] = []
        for part in parts:
            found += cut.feed(part)
            assert cut.buffered <= limit + 9
        cut.finish()
        assert all(len(one) <= limit for one in found)
        return found

    assert outcome(lambda: fed(iter([data]))) == outcome(lambda: fed(pieces(data)))
    if (read := read_uvarint(data)) is not None:
        assert uvarint(read[0]) == data[: read[1]]


def _negotiate(side: Proposer | Answerer, parts: Iterator[bytes]) -> tuple[str | None, bytes, bytes]:
    said, beyond = side.take(), b""
    for part in parts:
        if side.chosen is None:
            side.feed(part)
            said += side.take()
            assert len(side._held) <= LINE_LIMIT + 9
        else:
            beyond += part
    return side.chosen, said, side.rest + beyond


def multistream_proposer(data: bytes) -> None:
    offered = (NOISE, YAMUX, PING)
    whole = outcome(lambda: _negotiate(Proposer(offered), iter([data])))
    assert whole == outcome(lambda: _negotiate(Proposer(offered), pieces(data)))


def multistream_answerer(data: bytes) -> None:
    spoken = (NOISE, YAMUX, PING, identify.ID, PROTOCOL)
    whole = outcome(lambda: _negotiate(Answerer(spoken.__contains__), iter([data])))
    assert whole == outcome(lambda: _negotiate(Answerer(spoken.__contains__), pieces(data)))


# Noise.


def _shake(recording: Recording, data: bytes, parts: Iterator[bytes]) -> bool:
    """Only the recorded peer, with its recorded bytes, gets through."""
    replay = Replay(recording)
    replay._shake()
    handshake = replay.handshake
    assert handshake is not None
    for part in parts:
        if handshake.done:
            break
        handshake.feed(part)
        assert len(handshake._held) < 1 << 16 and len(handshake.take()) < 1 << 10
    if handshake.done:
        assert handshake.peer == parse_peer(recording.peer)
        assert data.startswith(real(DIALLED if recording.outbound else DIALLER).handshake)
    return handshake.done


def noise_dialler(data: bytes) -> None:
    recording = load_once(DIALLED)
    assert outcome(lambda: _shake(recording, data, iter([data]))) == outcome(lambda: _shake(recording, data, pieces(data)))


def noise_listener(data: bytes) -> None:
    recording = load_once(DIALLER)
    assert outcome(lambda: _shake(recording, data, iter([data]))) == outcome(lambda: _shake(recording, data, pieces(data)))


def noise_payload(data: bytes) -> None:
    """The bytes arrive well sealed, by one who has no signature for them, in message 2 or 3."""
    initiator = bool(data and data[0] & 1)
    victim = Handshake(ME, initiator=initiator, muxers=(YAMUX,), static=KEYS[0], ephemeral=KEYS[1])
    static, ephemeral = map(X25519PrivateKey.from_private_bytes, KEYS[2:])
    forger = XX(initiator=not initiator, static=static, ephemeral=ephemeral)
    if initiator:
        forger.read(victim.take()[2:])
    else:
        victim.feed(_message(forger.write(b"")))
        forger.read(victim.take()[2:])
    victim.feed(_message(forger.write(data[1:60_000])))
    assert not victim.done, "a static key that nobody has signed"


def _message(sealed: bytes) -> bytes:
    return len(sealed).to_bytes(2, "big") + sealed


def noise_channel(data: bytes) -> None:
    """What comes out is what the peer sealed, from the beginning, as far as it goes."""
    receiving, plain = channel()
    ours = Channel(bytes(32), receiving)
    for part in pieces(data):
        out = ours.feed(part)
        assert plain.startswith(out)
        plain = plain[len(out) :]
        assert len(ours._held) <= (1 << 16) + 1


# Yamux.


def yamux_dialler(data: bytes) -> None:
    _yamux(data, initiator=True)


def yamux_listener(data: bytes) -> None:
    _yamux(data, initiator=False)


STILL = 256
"""Pieces that come before the link takes what is to be sent."""
SMALL = YamuxLimits(streams=8, held=1 << 10, control=SIZE * 32)


def _yamux(data: bytes, *, initiator: bool) -> None:
    assert outcome(lambda: _events(data, initiator, iter([data]))) == outcome(lambda: _events(data, initiator, pieces(data)))
    _echo(data, initiator)


def _opened(initiator: bool, limits: YamuxLimits = DEFAULTS) -> Yamux:
    """With some streams of its own, in several states."""
    muxer = Yamux(initiator=initiator, limits=limits)
    first, second, third = (muxer.open() for _ in range(3))
    assert first and second and third
    muxer.send(first, b"x" * 100)
    muxer.finish(second)
    muxer.ping(7)
    return muxer


def _events(data: bytes, initiator: bool, parts: Iterator[bytes]) -> tuple[list[Event], dict[int, bytes]]:
    muxer = _opened(initiator)
    events: list[Event] = []
    bodies: dict[int, bytes] = {}
    for part in parts:
        for event in muxer.feed(part):
            if isinstance(event, Data):
                assert event.data
                bodies[event.stream] = bodies.get(event.stream, b"") + event.data
            else:
                events.append(event)
    return events, bodies


def _echo(data: bytes, initiator: bool) -> None:
    """An application that answers everything, on a link that now and then stands still."""
    muxer = _opened(initiator, SMALL)
    for number, part in enumerate(pieces(data)):
        for event in muxer.feed(part):
            if isinstance(event, Opened | Data | Finished):
                muxer.send(event.stream, event.data if isinstance(event, Data) else b"hello")
            if isinstance(event, Data):
                muxer.consumed(event.stream, len(event.data) if number % 3 else len(event.data) // 2)
            elif isinstance(event, Finished):
                muxer.finish(event.stream)
        assert muxer.held <= SMALL.held and muxer.streams <= 2 * SMALL.streams
        assert all(state.room <= TOP for state in muxer._streams.values())
        assert muxer._control <= SMALL.control + SIZE * 16
        if number % 4 == 1 and (stream := muxer.open()) is not None:
            muxer.reset(stream)
        if number % STILL == STILL - 1:
            muxer.take()


# Names, keys and addresses.


def address_bytes(data: bytes) -> None:
    address = Address.decode(data)
    assert address.encode() == data, "a second encoding of the same address"
    _check_address(address)


def address_text(data: bytes) -> None:
    _check_address(Address.parse(_text(data)))


def _check_address(address: Address) -> None:
    text = str(address)
    assert text.isprintable()
    assert Address.decode(address.encode()) == address == Address.parse(text)
    assert address.transport in ("", "tcp", "ws", "quic-v1")
    address.host.partition("%")[0].encode("idna")
    assert 0 <= address.port < 1 << 16
    assert address.peer is None or check_peer(address.peer) == address.peer
    assert address.with_peer(ME.peer).peer == ME.peer
    assert {address: 1}[Address.parse(text)] and sorted([address, address])


def public_key(data: bytes) -> None:
    key = PublicKey.decode(data)
    assert key.encode() == data
    assert not key.verify(data, b"message") and not key.verify(b"", data)
    assert check_peer(key.peer) == key.peer
    assert key_in(key.peer) in (None, key)


def identity(data: bytes) -> None:
    who = Identity.decode(data)
    assert Identity.decode(who.encode()).peer == who.peer
    assert who.public.verify(who.sign(data), data)


def peer_name(data: bytes) -> None:
    peer = parse_peer(_text(data))
    assert parse_peer(peer_text(peer)) == peer


def peer_bytes(data: bytes) -> None:
    assert parse_peer(peer_text(check_peer(data))) == data
    key = key_in(data)
    assert key is None or key.peer == data


def swarm_key(data: bytes) -> None:
    key = read_key(data)
    assert len(key) == 32
    assert read_key(data.decode("latin-1")) == key


def _text(data: bytes) -> str:
    """As it comes from a command line."""
    return data.decode(errors="surrogateescape")


# What peers say of themselves.


def envelope(data: bytes) -> None:
    key, payload = open_envelope(data, DOMAIN, PAYLOAD_TYPE)
    assert payload in signed_records(), "a record that nobody signed"
    assert check_peer(key.peer)


def record(data: bytes) -> None:
    """The payload of a record, well signed: by the key of the recordings, so that it may be about its own peer."""
    who = load_once(DIALLED).identity
    read = read_record(seal_envelope(who, DOMAIN, PAYLOAD_TYPE, data[:4_000]))
    assert read.peer == who.peer and 0 <= read.sequence < 1 << 64 and len(read.addresses) <= 64
    for address in read.addresses:
        _check_address(address)


def identified(data: bytes) -> None:
    cut = Frames(identify.MESSAGE_LIMIT)
    said = identify.read(cut.feed(data), load_once(DIALLED).identity.peer)
    for address in (*(said.addresses or ()), *([said.observed] if said.observed else [])):
        _check_address(address)
    assert len(said.protocols or ()) <= identify.LISTED and len(said.addresses or ()) <= identify.LISTED


# Messages.

SIGNING = Signing(ME)


def rpc(data: bytes) -> None:
    """What is let through was signed and can be passed on; what this side signs of it, the next one lets through."""
    codec = RpcCodec(limit=1 << 16)
    for part in _unpacked(codec, data):
        if isinstance(part, Publication):
            if SIGNING.problem(part) is None:
                assert _again(codec, part) in authentic(), "a message that nobody signed"
            mine = msgspec.structs.replace(part, id=MessageId(ME.peer, part.id.epoch, part.id.sequence))
            signed = SIGNING.sign(mine)
            assert SIGNING.problem(signed) is None
            part = signed
        _again(codec, part)


def _unpacked(codec: RpcCodec, data: bytes) -> Sequence[Message]:
    """By hand and, a second time, out of what was kept: what protobuf reads. As text, since no float need be equal to itself."""
    if len(data) <= codec.limit:
        plain = outcome(lambda: repr(codec._unpacked(parse(rpc_pb2.RPC, data), [])))
        assert [outcome(lambda: repr(codec.unpack(data))) for _ in range(2)] == [plain, plain]
    return codec.unpack(data)


def _again(codec: RpcCodec | MsgpackCodec | KadCodec, part: Message) -> bytes:
    """Packed, unpacked and packed; compared as bytes since no float need be equal to itself."""
    try:
        [packed] = codec.pack((part,))
    except UsageError:  # signed or marked it is over the limit
        return b""
    [read] = codec.unpack(packed)
    assert type(read) is type(part) and codec.pack((read,)) == [packed]
    return packed


def gossipsub(data: bytes) -> None:
    """Whatever is read can be written and read again, and a node that has its sender in a mesh takes it, or blames the sender."""
    codec = MeshCodec(limit=1 << 16)
    parts = _unpacked(codec, data)
    for part in parts:
        if isinstance(part, Publication):
            continue  # `rpc` has them
        frames = codec.pack((part,))
        again = [piece for frame in frames for piece in codec.unpack(frame)]
        assert all(type(piece) is type(part) for piece in again)
        assert [codec.pack((piece,)) for piece in again] == [[frame] for frame in frames]
    node = GossipSub(FakeEnv(ME.peer), Static(FakeEnv(ME.peer), (), ()), Inbox())
    node.join("t")
    node.link_up(OTHER.peer, Link(1, False, "/meshsub/1.2.0"))
    receive(node, OTHER.peer, Graft(("t",)))
    for part in parts:
        receive(node, OTHER.peer, part)
    node.link_down(OTHER.peer, 1, "over")
    assert not node.parties and not node.subscribers and not node.meshes.topics["t"].peers


def snappy(data: bytes) -> None:
    with suppress(SnappyError):
        assert len(decompress(data, 1 << 16)) <= 1 << 16


def msgpack(data: bytes) -> None:
    codec = MsgpackCodec(KINDS, limit=1 << 16)
    [read] = codec.unpack(data)
    assert isinstance(read, KINDS)
    _again(codec, read)


def kad_dht(data: bytes) -> None:
    """Whatever is read can be written; a node that knows its sender answers it once, or takes it, within a frame."""
    codec = kad(numbered=False)
    [read] = codec.unpack(data)
    _again(codec, read)
    machine, sender = Kademlia(FakeEnv(me=ME.peer), ()), load_once(DIALLED).identity.peer
    machine.link_up(sender, Link(1, True, machine.protocols[0]))
    if type(read) in machine.answerers:
        replies: list[Message] = []
        ask(machine, sender, read, replies.append)
        assert [type(reply) for reply in replies] == [type(read)] and len(codec.pack(replies)) == 1
    else:
        receive(machine, sender, read)
    kept = machine.records
    assert len(kept.values) + len(kept.providers) <= 1 and kept.held <= kept.limits.value and list(machine.table) == [sender]
    assert all(len(found) <= PEERS for found in (getattr(read, name, ()) for name in ("closer", "providers")))


def srpt(data: bytes) -> None:
    """Whatever is read can be written; a root and a forwarder take it, and keep what they may."""
    codec = MsgpackCodec(SrptS.kinds, limit=1 << 16)
    [read] = codec.unpack(data)
    _again(codec, read)
    for cube in (VCube(FakeEnv(me=ME.peer), ()), VCube(FakeEnv(me=ME.peer), (OTHER.peer,))):
        cube.start()
        router = SrptS(FakeEnv(me=ME.peer), cube, Inbox())
        router.join("t")
        receive(router, load_once(DIALLED).identity.peer, read)
        assert router.children <= 1 and len(router.trees) <= 2 and len(router.inlets.sources) <= 1


# Datagrams.

STRANGER = ("192.0.2.1", 4_000)


def datagram(data: bytes) -> None:
    """Either garbage, which nobody answers, or a reply that nobody asked for, or a request, which has one answer."""
    network: SimDatagrams[KademliaUdp] = SimDatagrams(Simulator())
    node = network.add(lambda env: KademliaUdp(env, config=KademliaUdpConfig(values=2, value_bytes=1 << 10)))
    for _ in range(3):
        node.take(STRANGER, data)
    dropped = node.counts.total()
    assert dropped in (0, 3) and (dropped == 0 or not network.counts["sent"])
    if not dropped:
        assert 3 <= network.counts["sent"] <= 4, "an answer each, and a ping to a node that is new"
    assert node.counts[GARBAGE] in (0, 3) and len(node.machine.values) <= 1


def kademlia_call(data: bytes) -> None:
    call = read_call(data)
    assert call.name == "stun" or len(call.node) == 20
    if call.name == "store":
        assert len(store(call.node, call.key, call.value)) <= max(len(data), 64) <= CONTENT_LIMIT


def kademlia_answer(data: bytes) -> None:
    counts: Counter[str] = Counter()
    readers: tuple[Callable[[bytes], object], ...] = (read_id, read_stored, read_address)
    answers = [outcome(partial(read, data)) for read in readers]
    assert sum(answer is not PeerError for answer in answers) <= 1
    found = read_value(data[:CONTENT_LIMIT], 20, STRANGER, counts)
    if isinstance(found, list):
        assert found == read_nodes(data[:CONTENT_LIMIT], 20, STRANGER, counts) and len(found) <= 20
        assert all(len(node.id) == 20 and not node.address[0].startswith("127.") for node in found)
    else:
        store(bytes(20), bytes(20), found)


def collect_peer(data: bytes) -> None:
    """What a peer says to a collector; rows that were taken are its own, of no later time than now, and can be written."""
    [read] = FROM_PEER.unpack(data)
    _again(FROM_PEER, read)
    if isinstance(read, Batch):
        now, account = 1 << 50, Account(OTHER.peer, 1 << 20)
        account.clock.heard(now, 1, now)
        account.take(read, len(data), now)
        assert all(row[1] == OTHER.peer and 0 <= row[0] <= now for row in account.rows)
        assert row_table(account.rows, Keys()).num_rows == len(account.rows) == len(read.rows)
        message_table(account.rows, Keys())


def collect_answer(data: bytes) -> None:
    [read] = FROM_COLLECTOR.unpack(data)
    _again(FROM_COLLECTOR, read)


TARGETS: dict[str, Target] = {
    "frames": frames,
    "multistream-proposer": multistream_proposer,
    "multistream-answerer": multistream_answerer,
    "noise-dialler": noise_dialler,
    "noise-listener": noise_listener,
    "noise-payload": noise_payload,
    "noise-channel": noise_channel,
    "yamux-dialler": yamux_dialler,
    "yamux-listener": yamux_listener,
    "address-bytes": address_bytes,
    "address-text": address_text,
    "public-key": public_key,
    "identity": identity,
    "peer-name": peer_name,
    "peer-bytes": peer_bytes,
    "swarm-key": swarm_key,
    "envelope": envelope,
    "record": record,
    "identify": identified,
    "rpc": rpc,
    "gossipsub": gossipsub,
    "snappy": snappy,
    "msgpack": msgpack,
    "kad-dht": kad_dht,
    "srpt": srpt,
    "datagram": datagram,
    "kademlia-call": kademlia_call,
    "kademlia-answer": kademlia_answer,
    "collect-peer": collect_peer,
    "collect-answer": collect_answer,
}
TEXTS = {"address-text", "identity", "peer-name", "swarm-key"}
"""Their input is the local side's."""
