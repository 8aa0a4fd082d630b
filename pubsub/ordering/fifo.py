"""FIFO: what one source publishes on a topic is delivered in the order of its publishing.

The source stamps each message of such a topic with a sequence that counts without holes from its epoch's 1. A subscriber
delivers the next one at once and holds back later ones; a hole that lasts `patience` is given up, and what comes for it
after that is not delivered any more. Somebody who joined late begins with the lowest that has come when `patience`
has passed since the first. Topics that were not opened with the order pass through untouched.

Below: a router. Above: the app. Promises: per source, epoch and topic never an earlier message after a later one.
Bounds: `held` messages a source and topic, beyond which the hole is given up at once; SOURCES streams, the longest
quiet forgotten first.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

from peer.machine import SECOND, Env, Peer, Timer
from pubsub.message import OrderHeader, Publication
from pubsub.ordering.order import Order
from pubsub.router import App, Router

PATIENCE = 5 * SECOND  # a guess: longer than any repair of the routers here
HELD = 256
SOURCES = 4_096

Key: TypeAlias = tuple[Peer, int, str]


class Stream:
    """One source's messages on one topic; `next` is None until it is known where to begin."""

    __slots__ = ("held", "next", "timer")

    def __init__(self) -> None:
        self.next: int | None = None
        self.held: dict[int, Publication] = {}
        self.timer: Timer | None = None


class Fifo(Order):
    __slots__ = ("held", "late", "patience", "sent", "streams", "topics")

    def __init__(self, env: Env, router: Router, app: App, patience: int = PATIENCE, held: int = HELD) -> None:
        super().__init__(env, router, app)
        self.patience = patience
        self.held = held
        self.topics: dict[str, None] = {}
        self.sent: dict[str, int] = {}
        self.streams: OrderedDict[Key, Stream] = OrderedDict()
        self.late = 0  # messages that came after their hole was given up

    def open(self, topic: str) -> None:
        """From now on this node stamps what it publishes there, and delivers in order."""
        self.topics[topic] = None

    def deliver(self, publication: Publication) -> None:
        header = publication.order
        if header is None or publication.topic not in self.topics or publication.id.source == self.env.me:
            self._release(publication)
        else:
            self._take(self._stream((publication.id.source, header.epoch, publication.topic)), header.sequence, publication)

    def _header(self, topic: str) -> OrderHeader | None:
        if topic not in self.topics:
            return None
        self.sent[topic] = self.sent.get(topic, 0) + 1
        return OrderHeader(self.env.epoch, self.sent[topic])

    def _stream(self, key: Key) -> Stream:
        stream = self.streams.pop(key, None) or Stream()
        self.streams[key] = stream
        if len(self.streams) > SOURCES:
            self._skip(self.streams.popitem(last=False)[1])
        return stream

    def _take(self, stream: Stream, sequence: int, publication: Publication) -> None:
        if stream.next is None and sequence == 1:
            stream.next = 1
        if stream.next is not None and sequence < stream.next:
            self.late += 1
            return
        stream.held[sequence] = publication
        self._advance(stream)
        if len(stream.held) > self.held:
            self._skip(stream)
        elif stream.held and stream.timer is None:
            stream.timer = self.env.after(self.patience, self._waited, stream)

    def _advance(self, stream: Stream) -> None:
        while stream.next in stream.held:
            assert stream.next is not None
            publication = stream.held.pop(stream.next)
            stream.next += 1
            self._release(publication)
        if not stream.held and stream.timer is not None:
            stream.timer.cancel()
            stream.timer = None

    def _waited(self, stream: Stream) -> None:
        stream.timer = None
        self._skip(stream)
        if stream.held:
            stream.timer = self.env.after(self.patience, self._waited, stream)

    def _skip(self, stream: Stream) -> None:
        """Give up the first hole."""
        if stream.held:
            stream.next = min(stream.held)
            self._advance(stream)
