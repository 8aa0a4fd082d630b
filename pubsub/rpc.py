"""libp2p's pub/sub RPC as a codec: the wire form of floodsub, with machines that see only Structs.

One frame is one RPC; what is queued for a peer travels together, as long as it fits JOINED bytes. A message's author and
its sequence number are its id: of eight bytes the upper bits are the epoch, the lower EPOCH_BITS the sequence. Some
peers leave out a leading zero byte, and sign what is left; so the epoch says too how many bytes are missing.
An order's header or attributes have no field in the RPC. They stand before the data, behind MARK, so that whatever has
neither is to the byte what other libraries write; data that happens to begin with MARK is marked too.

A message is written by hand, and the same bytes are read once: of what a node hears most is a copy, and objects of protobuf cost
more than all else that is done with one.

Bounds: `limit` bytes a frame, AUTHOR of an author; SUBSCRIPTIONS and PUBLICATIONS in one; what `libweft.pubsub.encoding_cache`
keeps of messages up to KEPT bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import ClassVar

import msgspec
from google.protobuf.unknown_fields import UnknownFieldSet

from libweft.peer.codec import FRAME_LIMIT
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.libp2p.frame import read_uvarint, uvarint
from libweft.peer.libp2p.pb import parse, rpc_pb2
from libweft.peer.machine import EPOCH_BITS, Lane, Message, MessageId, Peer
from libweft.pubsub.encoding_cache import Recent
from libweft.pubsub.interests import Attributes
from libweft.pubsub.message import OrderHeader, Publication, weight

JOINED = 1 << 16  # some peers take no longer RPC unless one message alone is
SUBSCRIPTIONS = PUBLICATIONS = 10_000
KEPT = 1 << 14  # bytes; longer ones are few, and cost more to look up
MARK = b"\x00weft\x01"
SEQNO = 8
AUTHOR = 64  # bytes; a peer id has 44 at most, and what keeps ids counts them by number
MISSING = 8 * SEQNO - EPOCH_BITS  # bits of an epoch; above them it counts missing bytes
SUBSCRIPTIONS_TAG, PUBLISH_TAG = b"\x0a", b"\x12"
TAGS = 0x0A, 0x12, 0x1A  # subscriptions, publications, control
FROM_TAG, DATA_TAG, SEQNO_TAG, TOPIC_TAG, SIGNATURE_TAG, KEY_TAG = b"\x0a", b"\x12", b"\x1a", b"\x22", b"\x2a", b"\x32"


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
        self._encodings: Recent[int, tuple[Publication, bytes]] = Recent()  # by the object: ids are as honest as their senders
        self._readings: Recent[bytes, Publication] = Recent()

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
        bodies, rest = _split(frame)
        if len(bodies) > PUBLICATIONS:
            raise PeerError(f"{len(bodies)} messages in one RPC")
        publications: list[Message] = [found for found in map(self._read, bodies) if found is not None]
        return self._parts(rest, publications) if rest else publications

    def _parts(self, rest: bytes, publications: list[Message]) -> list[Message]:
        """All that is in an RPC, in the order in which it is to be taken; `rest` is what is left of it."""
        return self._unpacked(parse(rpc_pb2.RPC, rest), publications)

    def _unpacked(self, rpc: rpc_pb2.RPC, publications: list[Message]) -> list[Message]:
        if len(rpc.subscriptions) > SUBSCRIPTIONS:
            raise PeerError(f"{len(rpc.subscriptions)} subscriptions in one RPC")
        if len(publications) + len(rpc.publish) > PUBLICATIONS:
            raise PeerError(f"{len(publications) + len(rpc.publish)} messages in one RPC")
        parts = publications + [found for found in map(self._publication, rpc.publish) if found is not None]
        if rpc.subscriptions:
            parts.insert(0, Subscriptions(tuple((change.subscribe, change.topicid) for change in rpc.subscriptions)))
        return parts

    def _encoded(self, msg: Message) -> bytes:
        """One message as a field of an RPC; an RPC is its fields one after the other."""
        if isinstance(msg, Subscriptions):
            return b"".join(subscription(*change) for change in msg.changes)
        assert isinstance(msg, Publication)
        found = self._encodings.get(id(msg))
        if found is not None and found[0] is msg:
            return found[1]
        encoded = field(PUBLISH_TAG, _message(msg))
        if len(encoded) > self.limit:
            raise UsageError(f"a message of {len(encoded)} bytes is over the frame limit of {self.limit}")
        self._encodings.put(id(msg), (msg, encoded), max(len(encoded), weight(msg)))
        return encoded

    def _read(self, body: bytes) -> Publication | None:
        found = self._readings.get(body)
        if found is None:
            found = self._publication(parse(rpc_pb2.Message, body))
            if found is not None and len(body) <= KEPT:
                self._readings.put(body, found, len(body) + weight(found))
        return found

    def _publication(self, message: rpc_pb2.Message) -> Publication | None:
        """None for one that could not be passed on as it was signed: some libraries take it, so nobody is to blame for it."""
        if len(message.from_peer) > AUTHOR:
            raise PeerError(f"an author of {len(message.from_peer)} bytes, which is no peer id")
        if not message.from_peer or not 0 < len(message.seqno) <= SEQNO:
            raise PeerError("a message without an author and a sequence number of one to eight bytes; only signed ones are taken")
        if not message.HasField("data") or len(UnknownFieldSet(message)):
            return None
        source: Peer = int.from_bytes(message.from_peer) if self._numbered else message.from_peer
        number, missing = int.from_bytes(message.seqno), SEQNO - len(message.seqno)
        key = MessageId(source, (number >> EPOCH_BITS) + (missing << MISSING), number & ((1 << EPOCH_BITS) - 1))
        marked, data = _unmarked(message.data)
        return Publication(key, message.topic, data, marked.order, marked.attributes, message.signature, message.key)


def rpc(*, numbered: bool) -> RpcCodec:
    """In the simulator one for all machines of the process, so that a message is encoded once for all of them."""
    return _shared() if numbered else RpcCodec()


@cache
def _shared() -> RpcCodec:
    return RpcCodec(numbered=True)


def unsigned(publication: Publication) -> bytes:
    """The message as it is signed: without signature and key."""
    source, topic = publication.id.source, publication.topic.encode()
    author, data = source if isinstance(source, bytes) else source.to_bytes(8), wire_data(publication)
    seqno = sequence_number(publication.id)
    named = FROM_TAG, uvarint(len(author)), author, DATA_TAG, uvarint(len(data)), data
    return b"".join((*named, SEQNO_TAG, uvarint(len(seqno)), seqno, TOPIC_TAG, uvarint(len(topic)), topic))


def _message(publication: Publication) -> bytes:
    whole = unsigned(publication)
    if publication.signature:
        whole += field(SIGNATURE_TAG, publication.signature)
    if publication.key:
        whole += field(KEY_TAG, publication.key)
    return whole


def _split(frame: bytes) -> tuple[list[bytes], bytes]:
    """The publications of an RPC, and all else as an RPC of its own; where a field is odd or cut short, all from it on."""
    bodies: list[bytes] = []
    others: list[bytes] = []
    at, end = 0, len(frame)
    while at < end:
        length = short_length(frame, at + 1)
        if frame[at] not in TAGS or length is None or length[1] + length[0] > end:
            others.append(frame[at:])
            break
        size, begin = length
        if frame[at] == TAGS[1]:
            bodies.append(frame[begin : begin + size])
        else:
            others.append(frame[at : begin + size])
        at = begin + size
    return bodies, b"".join(others)


def short_length(data: bytes, at: int) -> tuple[int, int] | None:
    """A varint of one to three bytes, and the position after it; None where there is none, or a longer one."""
    size = shift = 0
    for part in data[at : at + 3]:
        at += 1
        size |= (part & 0x7F) << shift
        if part < 0x80:
            return size, at
        shift += 7
    return None


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


def wire_data(publication: Publication) -> bytes:
    """As it stands in the message."""
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
