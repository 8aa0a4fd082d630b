"""Per-source FIFO reception: what comes of one source in one topic is handed up in the order of its publishing.

VCube-PS, section 3.2.2, has it because a source waits for all acknowledgements before it sends the next. With several on their
way one may overtake another where the tree has changed between them; then the later waits. Each says below which number all are
acknowledged (`base`): what has not come by then was not meant for this node, which had not subscribed yet. Whoever waits asks
the source to say when that is so. With the paper's gate base and number are the same, and nothing ever waits.

Bounds: STREAMS, in shares by source, of which the oldest goes; WINDOW messages of one wait, and `room` bytes in all: beyond that
it goes on without those that are missing. One request a stream that waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from libweft.peer.machine import Peer
from libweft.pubsub.fair_shares import Shares
from libweft.pubsub.message import Publication, weight
from libweft.pubsub.vcube_ps.config import WINDOW

STREAMS = 4_096

Key: TypeAlias = tuple[Peer, str]


class Item(NamedTuple):
    publication: Publication
    hops: int | None


NOTHING: Final[dict[int, Item | None]] = {}  # most streams never hold anything, and there are many


class Stream:
    """`next` is the lowest number that may still come. A message that was refused holds its place as None."""

    __slots__ = ("asking", "epoch", "held", "next")

    def __init__(self, epoch: int, base: int) -> None:
        self.epoch = epoch
        self.next = base
        self.held: dict[int, Item | None] = NOTHING
        self.asking = False

    def hold(self, number: int, item: Item | None) -> None:
        if self.held is NOTHING:
            self.held = {}
        self.held[number] = item

    def raise_to(self, base: int) -> list[Item | None]:
        """What is below `base` and has not come never will."""
        if base <= self.next:
            return []
        out = [self.held.pop(number) for number in sorted(self.held) if number < base]
        self.next = base
        return out + self.run()

    def run(self) -> list[Item | None]:
        out = []
        while self.next in self.held:
            out.append(self.held.pop(self.next))
            self.next += 1
        return out


class Streams:
    """`ask(key, number)` is called where a stream waits, once until `answered`."""

    def __init__(self, room: int, ask: Callable[[Key, int], None]) -> None:
        self.streams: dict[Key, Stream] = {}
        self.shares = Shares()  # of streams, by source
        self.late = 0
        self.bytes = 0
        self._room = room
        self._ask = ask

    def arrived(self, key: Key, epoch: int, number: int, base: int, item: Item | None) -> list[Item]:
        """What may be handed up now, in order."""
        stream, out = self.streams.get(key), []
        if stream is None:
            out = self._make_room(key[0])
            stream = self._begin(key, epoch, base)
        if epoch == stream.epoch and base <= number == stream.next and not stream.held and not out:
            stream.next += 1  # the commonest case
            return [item] if item is not None else []
        if epoch < stream.epoch:
            self.late += 1
            return []
        if epoch > stream.epoch:
            out += self._drop(key)
            stream = self._begin(key, epoch, base)
        out += stream.raise_to(base)
        if number < stream.next:
            self.late += 1
            return self._freed(out)
        stream.hold(number, item)
        self.bytes += weight(item.publication) if item is not None else 0
        out += stream.run()
        while stream.held and (len(stream.held) > WINDOW or self.bytes - self._weight(out) > self._room):
            out += stream.raise_to(min(stream.held))
        freed = self._freed(out)
        self._ask_for(key, stream)
        return freed

    def awaits(self, key: Key, epoch: int, number: int) -> bool:
        """Whether what follows this number waits for it, or will."""
        stream = self.streams.get(key)
        return stream is not None and epoch == stream.epoch and number >= stream.next and number not in stream.held

    def answered(self, key: Key, base: int) -> list[Item]:
        stream = self.streams.get(key)
        if stream is None:
            return []
        stream.asking = False
        freed = self._freed(stream.raise_to(base))
        self._ask_for(key, stream)
        return freed

    def unanswered(self, key: Key) -> list[Item]:
        """The source is gone, or does not say: go on without those that are missing."""
        stream = self.streams.get(key)
        return self.answered(key, min(stream.held)) if stream is not None and stream.held else []

    def drop(self, key: Key) -> list[Item]:
        """Forget the stream; what it held, in order."""
        return self._freed(self._drop(key))

    def leave(self, topic: str) -> None:
        for key in [key for key in self.streams if key[1] == topic]:
            self.drop(key)

    def _drop(self, key: Key) -> list[Item | None]:
        stream = self.streams.pop(key, None)
        if stream is None:
            return []
        self.shares.give_back(key[0])
        return stream.raise_to(1 << 64)

    def _begin(self, key: Key, epoch: int, base: int) -> Stream:
        stream = self.streams[key] = Stream(epoch, base)
        self.shares.take(key[0])
        return stream

    def _make_room(self, source: Peer) -> list[Item | None]:
        """What the stream held that ends for a new one."""
        ends = self.shares.gives_way(source, STREAMS - len(self.streams), self.streams)
        return self._drop(ends) if ends is not None else []

    def _ask_for(self, key: Key, stream: Stream) -> None:
        if stream.held and not stream.asking:
            stream.asking = True
            self._ask(key, min(stream.held))

    def _freed(self, out: list[Item | None]) -> list[Item]:
        self.bytes -= self._weight(out)
        return [item for item in out if item is not None]

    def _weight(self, out: list[Item | None]) -> int:
        return sum(weight(item.publication) for item in out if item is not None)
