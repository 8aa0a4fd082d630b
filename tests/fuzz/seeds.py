"""Real bytes for every target to begin with: the recordings, layer by layer, and the values that a spec or a test has.

They say as well what is authentic: a message, a record or a plaintext that is not among them was signed or sealed by nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import NamedTuple

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from libweft.overlays.kademlia.messages import AddProvider, FindNode, GetProviders, GetValue, Ping, PutValue, Record
from libweft.overlays.kademlia.wire import kad
from libweft.overlays.kademlia_udp.wire import contact, encode, find_node, find_value, nodes, ping, store, stun
from libweft.peer.codec import MsgpackCodec
from libweft.peer.errors import PeerError
from libweft.peer.libp2p.address import Address
from libweft.peer.libp2p.frame import Frames, uvarint
from libweft.peer.libp2p.ids import Identity, KeyKind, PublicKey, _data, peer_text
from libweft.peer.libp2p.multistream import HEADER
from libweft.peer.libp2p.noise import Handshake
from libweft.peer.libp2p.pb import parse
from libweft.peer.libp2p.pb.identify_pb2 import Identify
from libweft.peer.libp2p.records import DOMAIN, PAYLOAD_TYPE, open_envelope
from libweft.peer.libp2p.yamux import DATA, PING, SYN, TOP, WINDOW
from libweft.peer.libp2p.yamux import HEADER as HEAD
from libweft.peer.live import identify
from libweft.peer.live.collect.messages import FROM_COLLECTOR, FROM_PEER, Ask, Hello, Told, pack_batch
from libweft.peer.live.collect.messages import Taken as Written
from libweft.peer.live.transport import NOISE, YAMUX
from libweft.peer.machine import Lane, Message, MessageId, PeerInfo
from libweft.peer.trace.kinds import NODE_UP, PUBLISH
from libweft.pubsub.flood import PROTOCOL
from libweft.pubsub.gossipsub.messages import Extensions, Graft, IDontWant, IHave, IWant, Prune, Pruned, Test
from libweft.pubsub.gossipsub.wire import MeshCodec
from libweft.pubsub.message import OrderHeader, Publication
from libweft.pubsub.rpc import RpcCodec, Subscriptions
from libweft.pubsub.scribe.messages import Attached, Beat, Bequest, Down, Got, Join, Leave, Publish, Skip, Taken
from libweft.pubsub.scribe.router import SrptS
from tests.peer.recorded.replay import Recording, Replay, load, names

ME = Identity.from_seed(bytes(32))
OTHER = Identity.from_seed(bytes(31) + b"\x01")
KEYS = tuple(bytes([n]) * 32 for n in (11, 12, 13, 14))
DIALLED, DIALLER = "js-listens", "js-dials"
"""Whose keys the targets above Noise use."""


class Real(NamedTuple):
    """A recording, layer by layer; only what the other side said, unless it says otherwise."""

    recording: Recording
    replay: Replay
    agreed: bytes
    handshake: bytes
    sealed: bytes

    @property
    def muxed(self) -> bytes:
        return self.replay.plain.removeprefix(_line(HEADER) + _line(YAMUX))


load_once = cache(load)


@cache
def real(name: str) -> Real:
    recording = load_once(name)
    replay = Replay(recording).run(recording.chunks)
    theirs = b"".join(chunk.data for chunk in recording.chunks if not chunk.ours)
    agreed = len(b"".join(map(_line, (HEADER, NOISE))))
    end = agreed + sum(2 + int.from_bytes(theirs[at : at + 2], "big") for at in _messages(theirs, agreed, recording.outbound))
    return Real(recording, replay, theirs[:agreed], theirs[agreed:end], theirs[end:])


def _line(text: str) -> bytes:
    return uvarint(len(text) + 1) + text.encode() + b"\n"


def _messages(data: bytes, at: int, outbound: bool) -> Iterator[int]:
    """Where the handshake messages of the other side begin: one of a listener, two of a dialler."""
    for _ in range(1 if outbound else 2):
        yield at
        at += 2 + int.from_bytes(data[at : at + 2], "big")


@cache
def channel() -> tuple[bytes, bytes]:
    replay = real(DIALLED).replay
    assert replay.handshake is not None
    return replay.handshake._xx.split()[1], replay.plain


def _talks(name: str, protocol: str) -> Iterator[bytes]:
    """What was said on streams of the protocol, by either side."""
    for talk in real(name).replay.talks.values():
        if talk.protocol == protocol:
            yield from filter(None, (talk.heard, talk.said))


@cache
def _rpcs() -> tuple[bytes, ...]:
    return tuple(frame for name in names() for said in _talks(name, PROTOCOL) for frame in Frames(1 << 16).feed(said))


def _controls() -> Iterator[bytes]:
    infos = tuple(PeerInfo(peer, (), record) for peer, record in zip((ME.peer, OTHER.peer), signed_records(), strict=False))
    key = ME.peer + bytes(8)
    parts = (
        *(Subscriptions(((True, "t"), (False, "u"))), IHave((("t", (key, b"id")),)), IWant((key,)), Graft(("t",))),
        *(Prune((Pruned("t", infos, 60),)), IDontWant((key,)), Extensions(test=True), Test()),
    )
    yield from _rpcs()
    yield from MeshCodec().pack(parts)
    yield from (MeshCodec().pack((part,))[0] for part in parts)


@cache
def authentic() -> frozenset[bytes]:
    """The recorded messages, one by one, as weft packs them."""
    codec = RpcCodec()
    parts = [part for frame in _rpcs() for part in codec.unpack(frame) if isinstance(part, Publication)]
    plain = [msgspec.structs.replace(part, key=b"") for part in parts]  # a key beside an id that holds it may be lost
    return frozenset(codec.pack((part,))[0] for part in (*parts, *plain))


@cache
def _answers() -> tuple[bytes, ...]:
    """Of identify, framed."""
    return tuple(said for name in names() for said in _talks(name, identify.ID))


@cache
def _envelopes() -> tuple[bytes, ...]:
    messages = (parse(Identify, data) for answer in _answers() for data in Frames(identify.MESSAGE_LIMIT).feed(answer))
    return tuple(filter(None, (said.signedPeerRecord for said in messages)))


@cache
def signed_records() -> frozenset[bytes]:
    payloads = []
    for data in _envelopes():
        with suppress(PeerError):  # some peers sign theirs in an older way
            payloads.append(open_envelope(data, DOMAIN, PAYLOAD_TYPE)[1])
    return frozenset(payloads)


SPEC_KEY = bytes.fromhex("080112201ed1e8fae2c4a144b8be8fd4b47bf3d3b34b871c3cacf6010f0e42d474fce27e")
"""libp2p specs, peer-ids, "Test vectors"."""


@cache
def _keys() -> tuple[bytes, ...]:
    """One of each kind and curve; nobody asks whether an RSA modulus has two primes."""
    point = ec.derive_private_key(5, ec.SECP256K1()).public_key()
    curves = [ec.derive_private_key(5, curve).public_key() for curve in (ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1())]
    modulus = rsa.RSAPublicNumbers(65_537, int.from_bytes(b"\xc1" * 256, "big")).public_key()
    others = (KeyKind.RSA, _data(modulus)), *((KeyKind.ECDSA, _data(key)) for key in curves), (KeyKind.SECP256K1, _data(point))
    return SPEC_KEY, *(PublicKey(kind, data).encode() for kind, data in others)


PLACES = (
    "/ip4/192.0.2.1/tcp/4001/p2p/12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq",
    "/ip6zone/eth0/ip6/fe80::1/udp/4001/quic-v1",
    "/dns4/example.org/tcp/443/tls/sni/example.org/ws",
    "/dnsaddr/bootstrap.example/ipfs/QmVMT29id3TUASyfZZ6k9hmNyc2nYabCo4uMSpDw4zrgDk/p2p-circuit",
    "/unix/tmp/a socket",
    "/memory/18446744073709551615/noise/wss",
)


class Everything(Message, frozen=True, tag=2):
    """All kinds of fields that a message may have."""

    flag: bool
    number: int
    real: float
    text: str
    data: bytes
    ids: tuple[MessageId, ...]
    strangers: tuple[PeerInfo, ...]
    maybe: tuple[int, str] | None = None


EVERYTHING = Everything(
    *(True, -(1 << 40), 0.5, "é", b"data", (MessageId(1, 2, 3),), (PeerInfo(b"p", ("/ip4/192.0.2.1",), b"r"),), (1, "a"))
)


def _payload() -> bytes:
    """Of the third message: XX with both sides' static keys would be needed to read a recorded one."""
    handshake = Handshake(ME, initiator=True, muxers=(YAMUX,), static=KEYS[0])
    return handshake._payload()


@cache
def seeds(name: str) -> tuple[bytes, ...]:
    """Real inputs of a target, the shortest first."""
    found = set(_SEEDS[name]())
    return tuple(sorted(found, key=lambda data: (len(data), data)))


def _layer(of: Callable[[Real], bytes], outbound: bool | None = None) -> Callable[[], Iterator[bytes]]:
    return lambda: (of(real(name)) for name in names() if outbound in (None, real(name).recording.outbound))


def _both(parts: Callable[[], Iterator[bytes]], *more: bytes) -> Callable[[], Iterator[bytes]]:
    def every() -> Iterator[bytes]:
        yield from parts()
        yield from more

    return every


KINDS = (Publication, Subscriptions, Everything)
_CODEC = MsgpackCodec(KINDS)


def _packed() -> Iterator[bytes]:
    yield from _CODEC.pack((EVERYTHING,))
    for frame in _rpcs():
        yield from _CODEC.pack(RpcCodec().unpack(frame))


def _swarm_keys() -> Iterator[bytes]:
    header = b"/key/swarm/psk/1.0.0/\n"
    yield header + b"/base16/\n" + bytes(range(32)).hex().encode() + b"\n"
    yield header + b"/base64/\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n"
    yield header + b"/bin/\n" + bytes(range(32))


def _greedy(stream: int) -> Iterator[bytes]:
    """What a peer says that wants more than it may have."""
    yield HEAD.pack(DATA | SYN, stream, 2_000) + bytes(2_000)
    yield HEAD.pack(WINDOW | SYN, stream, TOP)
    yield HEAD.pack(PING | SYN, 0, 1) * 200
    yield b"".join(HEAD.pack(WINDOW | SYN, stream + 2 * n, 0) for n in range(50))


def _calls() -> Iterator[bytes]:
    me, key = bytes(range(20)), bytes(range(40, 60))
    yield from (stun(), ping(me), find_node(me, key), find_value(me, key))
    yield from (store(me, key, value) for value in (1 << 63, -1, 1.5, True, "text", b"bytes"))


def _kademlia_answers() -> Iterator[bytes]:
    places = ("192.0.2.1", "127.0.0.1", "::1", "fe80::1%eth0", "example.org", "224.0.0.1", "0.0.0.0")
    yield nodes([contact(bytes([number]) * 20, (host, 4_000 + number)) for number, host in enumerate(places)])
    yield from (encode(answer) for answer in (bytes(range(20)), True, ["192.0.2.1", 4_000], ["::1", 4_000, 0, 0], []))
    yield from (encode({"value": value}) for value in (1 << 63, -1, 1.5, True, "text", b"bytes"))


def _kad_messages() -> Iterator[bytes]:
    """One of each kind, asked and answered."""
    sender = load_once(DIALLED).identity.peer
    key, record = b"/sha256/" + bytes(range(32)), Record(b"key", b"value", "2026-01-02T03:04:05Z")
    named = (PeerInfo(sender, PLACES[:1]), PeerInfo(ME.peer, PLACES[1:3]), PeerInfo(PublicKey.decode(_keys()[1]).peer))
    asked = (FindNode(sender), GetValue(key), GetProviders(key), Ping(), PutValue(b"key", record), AddProvider(key, named))
    answered = (FindNode(sender, named), GetValue(b"key", record, named), GetProviders(key, named, named))
    yield from kad(numbered=False).pack((*asked, *answered))


def _srpt_messages() -> Iterator[bytes]:
    """One of each kind, of a peer that publishes itself."""
    sender = load_once(DIALLED).identity.peer
    key, reign = MessageId(sender, 1, 2), MessageId(OTHER.peer, 1, 3)
    p = Publication(key, "t", b"data", OrderHeader(1, 2, (key,)), (("a", 1), ("b", "c")))
    down = Down.of(p, 2, reign, 4)
    info = PeerInfo(sender, PLACES[:1])
    standing = (Attached("t", reign, 1), Beat("t", reign, 2), Skip("t", reign, 3), Got("t", reign, 4))
    said = (Join("t", reign, 5), Join("u", None, 0), Leave("t"), *standing, Taken("t", 1, 6, info))
    yield from MsgpackCodec(SrptS.kinds).pack((*said, Publish.of(p, 2, 1, 1, info), down, Bequest.of(down)))


def _collected() -> Iterator[bytes]:
    """What a peer says to a collector, with rows that have everything and rows that have nothing."""
    key = MessageId(OTHER.peer, 1, 2)
    full = (5, OTHER.peer, PUBLISH, "t", key, ME.peer, 1, 2, 3, Lane.PAYLOAD, "because", (key, MessageId(ME.peer, 3, 4)))
    empty = (6, OTHER.peer, NODE_UP, None, None, None, None, None, None, None, None, ())
    yield from FROM_PEER.pack((Hello(1 << 40), Told(3, 1 << 50)))
    yield pack_batch(1, 0, [full, empty])
    yield pack_batch(1 << 20, 7, [empty] * 40)


_SEEDS: dict[str, Callable[[], Iterator[bytes]]] = {
    "frames": _both(lambda: (said for name in names() for said in _talks(name, PROTOCOL)), uvarint(600) + bytes(600)),
    "multistream-proposer": _layer(lambda a: a.agreed),
    "multistream-answerer": _both(_layer(lambda a: a.agreed), _line(HEADER) + _line("/tls/1.0.0") + _line(NOISE)),
    "noise-dialler": _layer(lambda a: a.handshake, True),
    "noise-listener": _layer(lambda a: a.handshake, False),
    "noise-payload": lambda: (side + _payload() for side in (b"\0", b"\1")),
    "noise-channel": lambda: iter([real(DIALLED).sealed]),
    "yamux-dialler": _both(_layer(lambda a: a.muxed, True), *_greedy(2)),
    "yamux-listener": _both(_layer(lambda a: a.muxed, False), *_greedy(1)),
    "address-bytes": lambda: (Address.parse(place).encode() for place in PLACES),
    "address-text": lambda: (place.encode() for place in PLACES),
    "public-key": lambda: iter(_keys()),
    "identity": lambda: iter([ME.encode(), b"\x08\x01\x12\x60" + ME.encode()[4:] + ME.public.data]),
    "peer-name": lambda: (peer_text(PublicKey.decode(key).peer).encode() for key in _keys()),
    "peer-bytes": lambda: (PublicKey.decode(key).peer for key in _keys()),
    "swarm-key": _swarm_keys,
    "envelope": lambda: iter(_envelopes()),
    "record": lambda: iter(signed_records()),
    "identify": lambda: iter(_answers()),
    "rpc": lambda: iter(_rpcs()),
    "gossipsub": _controls,
    "snappy": lambda: iter([b"\x00", b"\x05\x10hello", b"\x0a\x10abcde\x12\x05\x00"]),
    "msgpack": _packed,
    "kad-dht": _kad_messages,
    "srpt": _srpt_messages,
    "datagram": lambda: (kind + bytes(range(20)) + call for kind in (b"\0", b"\1") for call in _calls()),
    "kademlia-call": _calls,
    "kademlia-answer": _kademlia_answers,
    "collect-peer": _collected,
    "collect-answer": lambda: iter(FROM_COLLECTOR.pack((Ask(1), Written(1 << 40)))),
}
