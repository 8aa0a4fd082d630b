"""From a publisher to the root, in order and without holes: what is on its way, and what the root has had of each source.

A source numbers what it publishes to a topic. The root takes the next number alone, and answers up to where it is; what was not
answered for `patience` is sent again, all of it, to whoever is the root by then. A new root begins at the source's `base`.
Bounds: WINDOW of a topic on their way, the rest waits; OUTLETS topics; SOURCES, of which the one heard from longest ago goes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from libweft.peer.machine import MessageId, Peer, PeerInfo
from libweft.pubsub.message import Publication, weight
from libweft.pubsub.scribe.messages import Publish

WINDOW = 256
BURST = 1 << 18  # bytes that are sent again at once: below what a link takes, see `libweft.peer.machine.admit`
OUTLETS = 4_096
SOURCES = 4_096


class Outlet:
    """What this node publishes to one topic. `sent` have left, and are not answered for; `queue` waits for room."""

    __slots__ = ("asked", "bytes", "next", "queue", "sent", "since")

    def __init__(self, number: int) -> None:
        self.next = number
        self.sent: dict[int, Publication] = {}
        self.queue: deque[Publication] = deque()
        self.bytes = 0
        self.asked: Peer | None = None  # to whom the last of it was sent
        self.since = 0  # the moment of the last answer, or of the last try

    @property
    def base(self) -> int:
        return next(iter(self.sent), self.next)

    def add(self, publication: Publication) -> None:
        self.queue.append(publication)
        self.bytes += weight(publication)

    def due(self, life: int, source: PeerInfo) -> Iterator[Publish]:
        """What may leave now."""
        while self.queue and len(self.sent) < WINDOW:
            number = self.next
            self.sent[number] = publication = self.queue.popleft()
            self.next += 1
            yield Publish.of(publication, number, self.base, life, source)

    def again(self, life: int, source: PeerInfo) -> Iterator[Publish]:
        """What was sent before, as much of it as goes at once."""
        base, room = self.base, BURST
        for number, publication in list(self.sent.items()):
            if room > 0:
                room -= weight(publication)
                yield Publish.of(publication, number, base, life, source)

    def taken(self, number: int) -> bool:
        """The root has all below; whether that is news."""
        done = [sent for sent in self.sent if sent < number]
        for sent in done:
            self.bytes -= weight(self.sent.pop(sent))
        return bool(done)


class Inlet:
    """What the root has had of one source and topic: `next` is what it takes, and all below `floor` are handed on.

    `newest` is the last that it took, from whomever.
    """

    __slots__ = ("floor", "life", "newest", "next")

    def __init__(self, life: int, base: int, newest: MessageId | None = None) -> None:
        self.life = life
        self.newest = newest
        self.next = base
        self.floor = base


class Inlets:
    def __init__(self) -> None:
        self.sources: dict[tuple[Peer, str], Inlet] = {}

    def find(self, m: Publish) -> Inlet:
        inlet = self.sources.pop((m.id.source, m.topic), None)
        if inlet is None or m.life > inlet.life:
            inlet = Inlet(m.life, m.base, inlet.newest if inlet is not None else None)
        elif m.life == inlet.life and m.base > inlet.next:
            inlet.next = inlet.floor = m.base  # another root had those between
        return self._keep(m.id.source, m.topic, inlet)

    def bequeathed(self, id: MessageId, topic: str) -> bool:
        """Whether a message of a reign before may still be handed on: a later one of its source must not have been."""
        inlet = self.sources.pop((id.source, topic), None) or Inlet(-1, 0)
        fresh = inlet.newest is None or id > inlet.newest
        if fresh:
            inlet.newest = id
        self._keep(id.source, topic, inlet)
        return fresh

    def _keep(self, source: Peer, topic: str, inlet: Inlet) -> Inlet:
        if len(self.sources) >= SOURCES:
            del self.sources[next(iter(self.sources))]
        self.sources[source, topic] = inlet
        return inlet

    def of(self, source: Peer, topic: str) -> Inlet | None:
        return self.sources.get((source, topic))

    def forget(self, topic: str) -> None:
        """Of a topic whose root is another now: it may come back, and the numbers will have gone on."""
        for key in [key for key in self.sources if key[1] == topic]:
            del self.sources[key]
