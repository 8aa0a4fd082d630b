"""GossipSub on the wire: libp2p's pub/sub RPC with its control message, cut so that every known implementation reads it.

What is queued for a peer travels together, in RPCs of JOINED bytes unless one publication alone is longer, with CONTROL bytes of
subscriptions and control in each, the least that others take. An RPC has one control message: not all readers merge
several. Longer lists are cut in pieces; of IDONTWANT ids Go reads only the first ten of an RPC.

Bounds: those of `libweft.pubsub.rpc`; IDS ids, TOPICS topics and PEERS introduced peers in one RPC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

from libweft.peer.errors import PeerError
from libweft.peer.libp2p.pb import rpc_pb2
from libweft.peer.machine import Message, Peer, PeerInfo
from libweft.pubsub.gossipsub.messages import Extensions, Graft, IDontWant, IHave, IWant, Prune, Pruned, Test
from libweft.pubsub.message import Publication
from libweft.pubsub.rpc import JOINED, RpcCodec, Subscriptions, field, short_length, subscription

CONTROL = 15_000  # Rust takes 16 KiB
DONT_WANT = 10
IDS = 30_000  # more than fit a frame of 1 MiB, as long as they are
TOPICS = 10_000
PEERS = 1_000
CONTROL_TAG = b"\x1a"
IDONTWANT_TAG, ID_TAG = b"\x2a", b"\x0a"

SUBSCRIBES, CONTROLS, OTHER = range(3)


class MeshCodec(RpcCodec):
    def pack(self, parts: Sequence[Message]) -> list[bytes]:
        frames: list[bytes] = []
        fields: list[bytes] = []
        control: list[bytes] = []
        size = told = refused = 0
        for part in parts:
            one_more = isinstance(part, IDontWant)
            for kind, piece in self._pieces(part):
                told_too = len(piece) if kind != OTHER else 0
                full = size + len(piece) > JOINED or told + told_too > CONTROL or refused + one_more > DONT_WANT
                if full and (fields or control):
                    frames.append(_frame(fields, control))
                    fields, control, size, told, refused = [], [], 0, 0, 0
                (control if kind == CONTROLS else fields).append(piece)
                size, told, refused = size + len(piece), told + told_too, refused + one_more
        return [*frames, _frame(fields, control)]

    def size(self, msg: Message) -> int:
        return sum(len(piece) for _, piece in self._pieces(msg))

    def _pieces(self, msg: Message) -> Iterable[tuple[int, bytes]]:
        """What of the message may stand in different RPCs."""
        if isinstance(msg, Publication):
            return ((OTHER, self._encoded(msg)),)
        if isinstance(msg, IDontWant):  # one for each large message, to each of a mesh: too many for objects of protobuf
            return [(CONTROLS, field(IDONTWANT_TAG, field(ID_TAG, key))) for key in msg.ids]
        if isinstance(msg, Subscriptions):
            return ((SUBSCRIBES, subscription(*change)) for change in msg.changes)
        if isinstance(msg, Test):
            return ((OTHER, rpc_pb2.RPC(testExtension=rpc_pb2.TestExtension()).SerializeToString()),)
        return ((CONTROLS, piece.SerializeToString()) for piece in self._controls(msg))

    def _controls(self, msg: Message) -> Iterator[rpc_pb2.ControlMessage]:
        whole = rpc_pb2.ControlMessage
        if isinstance(msg, IHave):
            for topic, ids in msg.topics:
                for some in _cut(ids, CONTROL // 2 - len(topic.encode())):
                    yield whole(ihave=[rpc_pb2.ControlIHave(topicID=topic, messageIDs=some)])
        elif isinstance(msg, IWant):
            for some in _cut(msg.ids, CONTROL // 2):
                yield whole(iwant=[rpc_pb2.ControlIWant(messageIDs=some)])
        elif isinstance(msg, Graft):
            for topic in msg.topics:
                yield whole(graft=[rpc_pb2.ControlGraft(topicID=topic)])
        elif isinstance(msg, Prune):
            for pruned in msg.topics:
                yield whole(prune=[self._prune(pruned)])
        else:
            assert isinstance(msg, Extensions)
            yield whole(extensions=rpc_pb2.ControlExtensions(testExtension=msg.test))

    def _prune(self, pruned: Pruned) -> rpc_pb2.ControlPrune:
        """Introductions that would not fit an RPC are left out, the last first."""
        prune = rpc_pb2.ControlPrune(topicID=pruned.topic)
        if pruned.backoff:
            prune.backoff = pruned.backoff
        room = CONTROL - prune.ByteSize() - 16
        for info in pruned.peers:
            peer = rpc_pb2.PeerInfo(peerID=self._id(info.peer), signedPeerRecord=info.record)
            room -= peer.ByteSize() + 4
            if room < 0:
                break
            prune.peers.append(peer)
        return prune

    def _parts(self, rest: bytes, publications: list[Message]) -> list[Message]:
        ids = _refused(rest)
        return [*publications, IDontWant(ids)] if ids else super()._parts(rest, publications)

    def _unpacked(self, rpc: rpc_pb2.RPC, publications: list[Message]) -> list[Message]:
        """Extensions first, since they may be nowhere but in a first RPC."""
        parts = super()._unpacked(rpc, publications)
        if rpc.HasField("control"):
            self._check(rpc.control)
            said = rpc.control
            if said.HasField("extensions"):
                parts.insert(0, Extensions(said.extensions.testExtension))
            parts += filter(None, (take(said) for take in self._kinds()))
        if rpc.HasField("testExtension"):
            parts.append(Test())
        return parts

    def _kinds(self) -> tuple[Callable[[rpc_pb2.ControlMessage], Message | None], ...]:
        return _ihave, _iwant, _graft, self._pruned, _idontwant

    def _pruned(self, said: rpc_pb2.ControlMessage) -> Message | None:
        if not said.prune:
            return None
        return Prune(tuple(Pruned(each.topicID, tuple(map(self._info, each.peers)), each.backoff) for each in said.prune))

    def _info(self, peer: rpc_pb2.PeerInfo) -> PeerInfo:
        name: Peer = int.from_bytes(peer.peerID) if self._numbered else peer.peerID
        return PeerInfo(name, (), peer.signedPeerRecord or None)

    def _id(self, peer: Peer) -> bytes:
        return peer if isinstance(peer, bytes) else peer.to_bytes(8)

    def _check(self, said: rpc_pb2.ControlMessage) -> None:
        ids = sum(len(each.messageIDs) for kind in (said.ihave, said.iwant, said.idontwant) for each in kind)
        if ids > IDS:
            raise PeerError(f"{ids} message ids in one RPC")
        topics = len(said.ihave) + len(said.graft) + len(said.prune) + len(said.iwant) + len(said.idontwant)
        if topics > TOPICS:
            raise PeerError(f"control of {topics} topics in one RPC")
        peers = sum(len(each.peers) for each in said.prune)
        if peers > PEERS:
            raise PeerError(f"{peers} peers introduced in one RPC")


def mesh_rpc(*, numbered: bool) -> MeshCodec:
    """In the simulator one for all machines of the process, so that a message is encoded once for all of them."""
    return _shared() if numbered else MeshCodec()


@cache
def _shared() -> MeshCodec:
    return MeshCodec(numbered=True)


def _refused(rest: bytes) -> tuple[bytes, ...]:
    """The ids of an RPC that has nothing but IDONTWANT, as `pack` writes it; of any other none."""
    ids: list[bytes] = []
    length, end = short_length(rest, 1), len(rest)
    if rest[:1] != CONTROL_TAG or length is None or sum(length) != end:
        return ()
    at = length[1]
    while at < end:
        head = rest[at : at + 4]
        if len(head) < 4 or head[0] != 0x2A or head[2] != 0x0A or head[1] > 0x7F or head[1] != head[3] + 2:
            return ()
        ids.append(rest[at + 4 : at + 4 + head[3]])
        at += 4 + head[3]
    return tuple(ids) if at == end and len(ids) <= TOPICS else ()


def _frame(fields: list[bytes], control: list[bytes]) -> bytes:
    """Serialized control messages one after the other are one control message."""
    if control:
        fields = [*fields, field(CONTROL_TAG, b"".join(control))]
    return b"".join(fields)


def _cut(ids: Sequence[bytes], room: int) -> Iterator[list[bytes]]:
    some: list[bytes] = []
    size = 0
    for key in ids:
        if some and size + len(key) + 4 > room:
            yield some
            some, size = [], 0
        some.append(key)
        size += len(key) + 4
    if some:
        yield some


def _ihave(said: rpc_pb2.ControlMessage) -> Message | None:
    """What names no id says nothing, here and below."""
    topics = tuple((each.topicID, tuple(each.messageIDs)) for each in said.ihave if each.messageIDs)
    return IHave(topics) if topics else None


def _iwant(said: rpc_pb2.ControlMessage) -> Message | None:
    ids = tuple(key for each in said.iwant for key in each.messageIDs)
    return IWant(ids) if ids else None


def _graft(said: rpc_pb2.ControlMessage) -> Message | None:
    return Graft(tuple(each.topicID for each in said.graft)) if said.graft else None


def _idontwant(said: rpc_pb2.ControlMessage) -> Message | None:
    ids = tuple(key for each in said.idontwant for key in each.messageIDs)
    return IDontWant(ids) if ids else None
