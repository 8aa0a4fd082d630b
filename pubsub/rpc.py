"""libp2p's pub/sub RPC as a codec: the wire form of floodsub, with machines that see only Structs.

One frame is one RPC; what is queued for a peer travels together, as long as it fits JOINED bytes. A message's author and
its sequence number are its id: of eight bytes the upper bits are the epoch, the lower EPOCH_BITS the sequence. Some
peers leave out a leading zero byte, and sign what is left; so the epoch says too how many bytes are missing.
An order's header or attributes have no field in the RPC. They stand before the data, behind MARK, so that whatever has
neither is to the byte what other libraries write; data that happens to begin with MARK is marked too.

Bounds: `limit` bytes a frame; SUBSCRIPTIONS and PUBLICATIONS in one; CACHED encodings, so that a message to many is encoded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import ClassVar

import msgspec

from peer.codec import FRAME_LIMIT
from peer.errors import PeerError, UsageError
from peer.frame import read_uvarint, uvarint
from peer.machine import EPOCH_BITS, Lane, Message, MessageId, Peer
from peer.pb import parse, rpc_pb2
from pubsub.message import Attributes, OrderHeader, Publication

JOINED = 1 << 16  # some peers take no longer RPC unless one message alone is
SUBSCRIPTIONS = PUBLICATIONS = 10_000
CACHED = 64
MARK = b"\x00weft\x01"
SEQNO = 8
MISSING = 8 * SEQNO - EPOCH_BITS  # bits of an epoch; above them it counts missing bytes
SUBSCRIPTIONS_TAG, PUBLISH_TAG = b"\x0a", b"\x12"


class Subscriptions(Message, frozen=True, tag=1):
    """Topics that the sender has joined (true) or left."""

    lane: ClassVar[Lane] = Lane.CONTROL

    changes: tuple[tuple[bool, str], ...]


class Marked(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What stands between MARK and the data."""

    order: OrderHeader | None
    attributes: Attributes


class RpcCodec:
    """`numbered`: peers are ints, as in the simulator, and take eight bytes on the wire."""

    joins = True

    def __init__(self, *, numbered: bool = False, limit: int = FRAME_LIMIT) -> None:
        self.limit = limit
        self._numbered = numbered
        self._cache: dict[int, tuple[Publication, bytes]] = {}  # by the object: ids are only as honest as their senders

    def pack(self, parts: Sequence[Message]) -> list[bytes]:
        frames: list[bytes] = []
        joined: list[bytes] = []
        size = 0
        for part in map(self._encoded, parts):
            if joined and size + len(part) > JOINED:
                frames.append(b"".join(joined))
                joined, size = [], 0
            joined.append(part)
            size += len(part)
        return [*frames, b"".join(joined)]

    def size(self, msg: Message) -> int:
        return len(self._encoded(msg))

    def unpack(self, frame: bytes) -> Sequence[Message]:
        if len(frame) > self.limit:
            raise PeerError(f"a frame of {len(frame)} bytes is over the limit of {self.limit}")
        return self._parts(parse(rpc_pb2.RPC, frame))

    def _parts(self, rpc: rpc_pb2.RPC) -> list[Message]:
        if len(rpc.subscriptions) > SUBSCRIPTIONS:
            raise PeerError(f"{len(rpc.subscriptions)} subscriptions in one RPC")
        if len(rpc.publish) > PUBLICATIONS:
            raise PeerError(f"{len(rpc.publish)} messages in one RPC")
        parts: list[Message] = [self._publication(message) for message in rpc.publish]
        if rpc.subscriptions:
            parts.insert(0, Subscriptions(tuple((change.subscribe, change.topicid) for change in rpc.subscriptions)))
        return parts

    def _encoded(self, msg: Message) -> bytes:
        """One message as a field of an RPC; an RPC is its fields one after the other."""
        if isinstance(msg, Subscriptions):
            return b"".join(subscription(*change) for change in msg.changes)
        assert isinstance(msg, Publication)
        found = self._cache.get(id(msg))
        if found is not None and found[0] is msg:
            return found[1]
        encoded = field(PUBLISH_TAG, self._message(msg).SerializeToString())
        if len(encoded) > self.limit:
            raise UsageError(f"a message of {len(encoded)} bytes is over the frame limit of {self.limit}")
        if len(self._cache) >= CACHED:
            self._cache.clear()
        self._cache[id(msg)] = (msg, encoded)
        return encoded

    def _message(self, publication: Publication) -> rpc_pb2.Message:
        message = unsigned(publication)
        if publication.signature:
            message.signature = publication.signature
        if publication.key:
            message.key = publication.key
        return message

    def _publication(self, message: rpc_pb2.Message) -> Publication:
        if not message.from_peer or not 0 < len(message.seqno) <= SEQNO:
            raise PeerError("a message without an author and a sequence number of one to eight bytes; only signed ones are taken")
        source: Peer = int.from_bytes(message.from_peer) if self._numbered else message.from_peer
        number, missing = int.from_bytes(message.seqno), SEQNO - len(message.seqno)
        key = MessageId(source, (number >> EPOCH_BITS) + (missing << MISSING), number & ((1 << EPOCH_BITS) - 1))
        marked, data = _unmarked(message.data)
        return Publication(key, message.topic, data, marked.order, marked.attributes, message.signature, message.key)


@cache
def rpc(*, numbered: bool) -> RpcCodec:
    """One codec for all machines of the process, so that a message is encoded once for all of them."""
    return RpcCodec(numbered=numbered)


def unsigned(publication: Publication) -> rpc_pb2.Message:
    """The message as it is signed: without signature and key."""
    source = publication.id.source
    return rpc_pb2.Message(
        from_peer=source if isinstance(source, bytes) else source.to_bytes(8),
        data=_marked(publication),
        seqno=sequence_number(publication.id),
        topic=publication.topic,
    )


def canonical(key: MessageId) -> bool:
    """Whether it is the one id that stands for its sequence number: what is signed is the number, not the two halves."""
    missing, epoch = key.epoch >> MISSING, key.epoch & ((1 << MISSING) - 1)
    if not (0 <= missing < SEQNO and 0 <= key.sequence < 1 << EPOCH_BITS):
        return False
    return (epoch << EPOCH_BITS) + key.sequence < 1 << 8 * (SEQNO - missing)


def sequence_number(key: MessageId) -> bytes:
    """As it stands in the message."""
    missing, epoch = key.epoch >> MISSING, key.epoch & ((1 << MISSING) - 1)
    return ((epoch << EPOCH_BITS) + key.sequence).to_bytes(SEQNO - missing)


def _marked(publication: Publication) -> bytes:
    data = publication.data
    if publication.order is None and not publication.attributes and not data.startswith(MARK):
        return data
    header = msgspec.msgpack.encode(Marked(publication.order, publication.attributes))
    return MARK + uvarint(len(header)) + header + data


def _unmarked(data: bytes) -> tuple[Marked, bytes]:
    """Whatever does not read as a mark is plain data: its author knows nothing of marks."""
    if data.startswith(MARK):
        try:
            found = read_uvarint(data, len(MARK))
            if found is not None and found[1] + found[0] <= len(data):
                size, begin = found
                return _decode(data[begin : begin + size]), data[begin + size :]
        except (PeerError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
    return PLAIN, data


def subscription(joined: bool, topic: str) -> bytes:
    return field(SUBSCRIPTIONS_TAG, rpc_pb2.RPC.SubOpts(subscribe=joined, topicid=topic).SerializeToString())


def field(tag: bytes, data: bytes) -> bytes:
    return tag + uvarint(len(data)) + data


PLAIN = Marked(None, ())
_decode = msgspec.msgpack.Decoder(Marked).decode
