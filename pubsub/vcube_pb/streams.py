"""Per-source FIFO reception without loss: whoever has one message of a source and lacks the one before it asks for that.

VCube-PS takes `base` for a proof that what has not come was not meant for this node. That holds for the first message of a
source that comes here, as `first_rec` of the papers does, and no longer: a node that was taken for down was passed over, and
what it missed was acknowledged by all others. So later gaps are asked for (`pubsub.vcube_pb.recovery`), and given up only
when nobody has what is missing.
Bounds: STREAMS, of which the oldest goes; WINDOW messages of one wait, and `room` bytes in all: beyond that it goes on without
those that are missing.
"""

from __future__ import annotations

from collections.abc import Callable

from pubsub.message import weight
from pubsub.vcube_pb.kept import Key
from pubsub.vcube_ps.config import WINDOW
from pubsub.vcube_ps.streams import STREAMS, Item, Stream


class Streams:
    """`ask(key)` is called where a stream begins to wait; `skipped` counts what was given up."""

    def __init__(self, room: int, ask: Callable[[Key], None]) -> None:
        self.streams: dict[Key, Stream] = {}
        self.late = 0
        self.skipped = 0
        self.bytes = 0
        self._room = room
        self._ask = ask

    def arrived(self, key: Key, number: int, base: int, item: Item | None) -> list[Item]:
        """What may be handed up now, in order. A message that was refused, or came otherwise, is None."""
        stream = self.streams.get(key) or self._begin(key, base)
        if number < stream.next or number in stream.held:
            self.late += 1
            return []
        stream.held[number] = item
        self.bytes += weight(item.publication) if item is not None else 0
        out = stream.run()
        while stream.held and (len(stream.held) > WINDOW or self.bytes - _weight(out) > self._room):
            out += self._skip(stream)
        freed = self._freed(out)
        if stream.held and not stream.asking:
            stream.asking = True
            self._ask(key)
        return freed

    def gap(self, key: Key) -> tuple[int, int] | None:
        """From the first that is missing up to and without the first that is there."""
        stream = self.streams.get(key)
        return (stream.next, min(stream.held)) if stream is not None and stream.held else None

    def closed(self, key: Key) -> None:
        if key in self.streams:
            self.streams[key].asking = False

    def give_up(self, key: Key) -> list[Item]:
        """Nobody has what is missing: go on without it."""
        stream = self.streams.get(key)
        return self._freed(self._skip(stream)) if stream is not None and stream.held else []

    def leave(self, topic: str) -> None:
        for key in [key for key in self.streams if key[1] == topic]:
            self._drop(key)

    def _skip(self, stream: Stream) -> list[Item | None]:
        first = min(stream.held)
        self.skipped += first - stream.next
        return stream.raise_to(first)

    def _drop(self, key: Key) -> None:
        self._freed(list(self.streams.pop(key).held.values()))

    def _begin(self, key: Key, base: int) -> Stream:
        if len(self.streams) >= STREAMS:
            self._drop(next(iter(self.streams)))
        stream = self.streams[key] = Stream(key[2], base)
        return stream

    def _freed(self, out: list[Item | None]) -> list[Item]:
        self.bytes -= _weight(out)
        return [item for item in out if item is not None]


def _weight(out: list[Item | None]) -> int:
    return sum(weight(item.publication) for item in out if item is not None)
