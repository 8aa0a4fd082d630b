"""FIFO: what one source publishes on a topic is delivered in the order of its publishing.

The source stamps each message of such a topic with a sequence that counts without holes from its epoch's 1. A subscriber
delivers the next one at once and holds back later ones; a hole that lasts `patience` is given up, and what comes for it
after that is not delivered any more. Somebody who joined late begins with the lowest that has come when `patience`
has passed since the first. Topics that were not opened with the order pass through untouched.

Below: a router. Above: the app. Promises: per source, epoch and topic never an earlier message after a later one, while the
source is one of the last STREAMS that were heard.
Bounds: `held` messages of one source and topic and HELD_BYTES of all, beyond which a hole is given up at once; STREAMS
sources and topics, at most half of them of one source, the longest quiet forgotten first.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import TypeAlias

from libweft.peer.errors import UsageError
from libweft.peer.machine import SECOND, Env, Peer, Timer
from libweft.pubsub.fair_shares import Shares
from libweft.pubsub.message import OrderHeader, Publication, weight
from libweft.pubsub.ordering.order import Order
from libweft.pubsub.router import App, Router

HELD_BYTES = 16 << 20
STREAMS = 4_096

Key: TypeAlias = tuple[Peer, int, str]


@dataclass(frozen=True)
class FifoConfig:
    """`patience` is microseconds that a hole may last; `held` is messages of one source and topic behind one."""

    patience: int = 5 * SECOND  # a guess: longer than any repair of the routers here
    held: int = 256

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, int) or value < 1:
                raise UsageError(f"fifo: {name} is {value!r:.80}; it must be a whole number, 1 at least")


DEFAULT = FifoConfig()


class Stream:
    """One source's messages on one topic, with the time they came; `next` is None until it is known where to begin."""

    __slots__ = ("held", "next", "timer")

    def __init__(self) -> None:
        self.next: int | None = None
        self.held: dict[int, tuple[int, Publication]] = {}
        self.timer: Timer | None = None


class Fifo(Order):
    __slots__ = ("config", "given_up", "held_bytes", "late", "sent", "shares", "streams", "topics")

    def __init__(self, env: Env, router: Router, app: App, config: FifoConfig = DEFAULT) -> None:
        super().__init__(env, router, app)
        self.config = config
        self.held_bytes = 0
        self.topics: Counter[str] = Counter()
        self.sent: dict[str, int] = {}
        self.streams: OrderedDict[Key, Stream] = OrderedDict()
        self.shares = Shares()  # of streams, by source
        self.late = 0  # messages that came after their hole was given up
        self.given_up = 0  # messages, as far as holes tell

    @property
    def held(self) -> int:
        return sum(len(stream.held) for stream in self.streams.values())

    def open(self, topic: str) -> None:
        """Until as many calls of `close` this node stamps what it publishes there, and delivers in order."""
        self.topics[topic] += 1

    def close(self, topic: str) -> None:
        if topic not in self.topics:
            raise UsageError(f"{topic!r:.80} is not open with an order on this node")
        self.topics[topic] -= 1
        if not self.topics[topic]:
            del self.topics[topic]
            for key in [key for key in self.streams if key[2] == topic]:
                self._end(key)

    def is_open(self, topic: str) -> bool:
        return topic in self.topics

    def deliver(self, publication: Publication) -> None:
        header = publication.order
        if header is None or publication.topic not in self.topics or publication.id.source == self.env.me:
            self._release(publication)
        else:
            stream = self._stream((publication.id.source, publication.id.epoch, publication.topic))
            if publication.topic in self.topics:
                self._take(stream, header.sequence, publication)
            else:  # what made room for it closed the topic
                self._release(publication)

    def _header(self, topic: str) -> OrderHeader | None:
        if topic not in self.topics:
            return None
        self.sent[topic] = self.sent.get(topic, 0) + 1
        return OrderHeader(self.env.epoch, self.sent[topic])

    def _stream(self, key: Key) -> Stream:
        """The epoch is that of the id, which is signed and counts starts of the source."""
        stream = self.streams.get(key)
        if stream is None:
            stream = self.streams[key] = Stream()
            self._make_room(key[0])
        else:
            self.streams.move_to_end(key)
        return stream

    def _make_room(self, source: Peer) -> None:
        """For one that has just begun; the longest quiet is the first."""
        ends = self.shares.gives_way(source, STREAMS - len(self.streams) + 1, self.streams)
        self.shares.take(source)
        if ends is not None:
            self._end(ends)

    def _take(self, stream: Stream, sequence: int, publication: Publication) -> None:
        if stream.next is None and sequence == 1:
            stream.next = 1
        if sequence < (stream.next or 1) or sequence in stream.held:
            self.late += 1
            return
        stream.held[sequence] = self.env.now(), publication
        self.held_bytes += weight(publication)
        self._advance(stream)
        if len(stream.held) > self.config.held or self.held_bytes > HELD_BYTES:
            self._skip(stream)
        if stream.held and stream.timer is None:
            stream.timer = self.env.after(self.config.patience, self._waited, stream)

    def _advance(self, stream: Stream) -> None:
        while stream.next is not None and stream.next in stream.held:
            _, publication = stream.held.pop(stream.next)
            self.held_bytes -= weight(publication)
            stream.next += 1
            self._release(publication)
        if not stream.held and stream.timer is not None:
            stream.timer.cancel()
            stream.timer = None

    def _waited(self, stream: Stream) -> None:
        """Holes before whatever has waited long enough are given up, all at once."""
        stream.timer = None
        now = self.env.now()
        while any(came + self.config.patience <= now for came, _ in stream.held.values()):
            self._skip(stream)
        if stream.held:
            first = min(came for came, _ in stream.held.values())
            stream.timer = self.env.after(first + self.config.patience - now, self._waited, stream)

    def _skip(self, stream: Stream) -> None:
        """Give up the first hole."""
        if stream.held:
            first = min(stream.held)
            self.given_up += first - stream.next if stream.next is not None else 0
            stream.next = first
            self._advance(stream)

    def _end(self, key: Key) -> None:
        """Deliver what is held, in order."""
        stream = self.streams.pop(key)
        self.shares.give_back(key[0])
        while stream.held:
            self._skip(stream)
