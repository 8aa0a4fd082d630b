"""The wire form of Kademlia: libp2p's kad-dht protobuf, one message a frame.

Addresses that do not parse are left out, a peer's id that is none makes the frame a PeerError. In the simulator's codec mode
peers are numbers, of eight bytes.
Bounds: LIMIT bytes a frame, PEERS in a list; a list that is longer is a PeerError. Of one peer ADDRESSES are read, and written as
many of them as have ADDRESS_BYTES in all: whatever others made known, an answer stays within the frame. REMEMBERED addresses
and sizes of peers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache

from libweft.overlays.kademlia.messages import AddProvider, FindNode, GetProviders, GetValue, Ping, PutValue, Record
from libweft.overlays.kademlia.space import NUMBER, name_of
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.libp2p.address import Address
from libweft.peer.libp2p.ids import check_peer
from libweft.peer.libp2p.pb import kad_pb2, parse
from libweft.peer.machine import Message, Peer, PeerInfo

LIMIT = 1 << 18
PEERS = 256
ADDRESSES = 16
ADDRESS_BYTES = 1 << 10
REMEMBERED = 1 << 12  # encoded addresses, and sizes of peers, shared by all nodes of the process
KEY_LIMIT = 256

Kind = kad_pb2.Message.MessageType


class KadCodec:
    joins = False
    limit = LIMIT

    def __init__(self, *, numbered: bool) -> None:
        self._numbered = numbered

    def pack(self, parts: Sequence[Message]) -> list[bytes]:
        return [self._frame(part) for part in parts]

    def size(self, msg: Message) -> int:
        """Of lists each peer is sized alone, as protobuf writes it: simulations size the same few again and again."""
        if isinstance(msg, FindNode):
            return _head_size(Kind.FIND_NODE, msg.key) + sum(map(_listed_size, msg.closer))
        if isinstance(msg, GetProviders):
            listed = sum(map(_listed_size, msg.providers)) + sum(map(_listed_size, msg.closer))
            return _head_size(Kind.GET_PROVIDERS, msg.key) + listed
        return len(_written(msg).SerializeToString())

    def _frame(self, msg: Message) -> bytes:
        frame = _written(msg).SerializeToString()
        if len(frame) > self.limit:
            raise UsageError(f"{type(msg).__name__} of {len(frame)} bytes is over the frame limit of {self.limit}")
        return frame

    def unpack(self, frame: bytes) -> Sequence[Message]:
        if len(frame) > self.limit:
            raise PeerError(f"a frame of {len(frame)} bytes is over the limit of {self.limit}")
        message = parse(kad_pb2.Message, frame)
        if len(message.key) > KEY_LIMIT:
            raise PeerError(f"a key of {len(message.key)} bytes is over the limit of {KEY_LIMIT}")
        return (self._read(message),)

    def _read(self, message: kad_pb2.Message) -> Message:
        key, kind = message.key, message.type
        if kind == Kind.FIND_NODE:
            return FindNode(key, self._peers(message.closerPeers))
        if kind == Kind.GET_VALUE:
            record = _record(message.record) if message.HasField("record") else None
            return GetValue(key, record, self._peers(message.closerPeers))
        if kind == Kind.PUT_VALUE:
            return PutValue(key, _record(message.record))
        if kind == Kind.GET_PROVIDERS:
            return GetProviders(key, self._peers(message.providerPeers), self._peers(message.closerPeers))
        if kind == Kind.ADD_PROVIDER:
            return AddProvider(key, self._peers(message.providerPeers))
        if kind == Kind.PING:
            return Ping()
        raise PeerError(f"a message of the unknown type {kind}")

    def _peers(self, peers: Sequence[kad_pb2.Message.Peer]) -> tuple[PeerInfo, ...]:
        if len(peers) > PEERS:
            raise PeerError(f"a list of {len(peers)} peers is over the limit of {PEERS}")
        return tuple(PeerInfo(self._peer(peer.id), tuple(_addresses(peer.addrs))) for peer in peers)

    def _peer(self, name: bytes) -> Peer:
        if not self._numbered:
            return check_peer(name)
        if len(name) != NUMBER:
            raise PeerError(f"a peer id of {len(name)} bytes where numbers are spoken")
        return int.from_bytes(name)


@cache
def kad(*, numbered: bool) -> KadCodec:
    """One codec for all machines of the process."""
    return KadCodec(numbered=numbered)


def _written(msg: Message) -> kad_pb2.Message:
    if isinstance(msg, FindNode):
        return kad_pb2.Message(type=Kind.FIND_NODE, key=msg.key, closerPeers=map(_wire_peer, msg.closer))
    if isinstance(msg, GetValue):
        record = _wire_record(msg.record) if msg.record is not None else None
        return kad_pb2.Message(type=Kind.GET_VALUE, key=msg.key, record=record, closerPeers=map(_wire_peer, msg.closer))
    if isinstance(msg, PutValue):
        return kad_pb2.Message(type=Kind.PUT_VALUE, key=msg.key, record=_wire_record(msg.record))
    if isinstance(msg, GetProviders):
        providers, closer = map(_wire_peer, msg.providers), map(_wire_peer, msg.closer)
        return kad_pb2.Message(type=Kind.GET_PROVIDERS, key=msg.key, providerPeers=providers, closerPeers=closer)
    if isinstance(msg, AddProvider):
        return kad_pb2.Message(type=Kind.ADD_PROVIDER, key=msg.key, providerPeers=map(_wire_peer, msg.providers))
    return kad_pb2.Message(type=Kind.PING)


def _head_size(kind: kad_pb2.Message.MessageType, key: bytes) -> int:
    return len(kad_pb2.Message(type=kind, key=key).SerializeToString())


@lru_cache(maxsize=REMEMBERED)
def _listed_size(info: PeerInfo) -> int:
    """Closer peers and providers take the same room."""
    return len(kad_pb2.Message(closerPeers=[_wire_peer(info)]).SerializeToString())


def _wire_record(record: Record) -> kad_pb2.Record:
    return kad_pb2.Record(key=record.key, value=record.value, timeReceived=record.received, ttl=record.ttl)


def _record(record: kad_pb2.Record) -> Record:
    return Record(record.key, record.value, record.timeReceived, record.ttl)


def _wire_peer(info: PeerInfo) -> kad_pb2.Message.Peer:
    """Whoever is named can be reached, as far as is known."""
    addresses: list[bytes] = []
    room = ADDRESS_BYTES
    for address in map(_encoded, info.addresses[:ADDRESSES]):
        room -= len(address)
        if room < 0:
            break
        addresses.append(address)
    return kad_pb2.Message.Peer(id=name_of(info.peer), addrs=addresses, connection=kad_pb2.Message.CAN_CONNECT)


@lru_cache(maxsize=REMEMBERED)
def _encoded(address: str) -> bytes:
    """The same few are told again and again, and a long one takes milliseconds to parse."""
    return Address.parse(address).encode()


def _addresses(found: Iterable[bytes]) -> Iterable[str]:
    """Others know transports that are unknown here."""
    for data in list(found)[:ADDRESSES]:
        try:
            yield str(Address.decode(data))
        except PeerError:
            continue
