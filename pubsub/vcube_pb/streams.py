"""Per-source FIFO reception without loss: whoever has one message of a source and lacks the one before it asks for that.

`first_rec` of the papers says which messages of a source will never come: those before the first that did. A node that was
taken for down was passed over, and all others have acknowledged what it missed; so it must know better. Each message says how
long before it the one before was sent: if that is longer ago than this node's subscription, or there is none, nothing is
missing. Else, and in every later gap, what is missing is asked for (`libweft.pubsub.vcube_pb.recovery`), and given up only when
nobody has it.
Bounds: STREAMS, in shares by source, of which the oldest goes; WINDOW messages of one wait, and `room` bytes in all: beyond that
it goes on without those that are missing.
"""

from __future__ import annotations

from collections.abc import Callable

from libweft.peer.machine import Peer
from libweft.pubsub.fair_shares import Shares
from libweft.pubsub.message import weight
from libweft.pubsub.vcube_pb.message_cache import Key
from libweft.pubsub.vcube_ps.config import WINDOW
from libweft.pubsub.vcube_ps.streams import STREAMS, Item, Stream

UNKNOWN = -1  # the number where a stream begins, until somebody has said


class Streams:
    """`ask(key)` is called where a stream begins to wait; `skipped` counts what was given up."""

    def __init__(self, room: int, ask: Callable[[Key], None]) -> None:
        self.streams: dict[Key, Stream] = {}
        self.shares = Shares()  # of streams, by source
        self.late = 0
        self.skipped = 0
        self.bytes = 0
        self._room = room
        self._ask = ask

    def arrived(self, key: Key, number: int, item: Item | None, whole: bool) -> list[Item]:
        """What may be handed up now, in order. A message that was refused, or came otherwise, is None.

        `whole`: nothing of its source is missing if this is the first that comes.
        """
        stream, out = self.streams.get(key), []
        if stream is None:
            out = self._make_room(key[0])
            stream = self._begin(key, number if whole else UNKNOWN)
        if number == stream.next and not stream.held and not out:
            stream.next += 1  # the commonest case
            return [item] if item is not None else []
        if number < stream.next or number in stream.held:
            self.late += 1
            return []
        stream.hold(number, item)
        self.bytes += weight(item.publication) if item is not None else 0
        out += stream.run()
        while stream.held and (len(stream.held) > WINDOW or self.bytes - _weight(out) > self._room):
            out += self._skip(stream)
        freed = self._freed(out)
        if stream.held and not stream.asking:
            stream.asking = True
            self._ask(key)
        return freed

    def begins(self, key: Key, number: int) -> list[Item]:
        """Somebody knows where a stream begins of which this was unknown."""
        stream = self.streams.get(key)
        if stream is None or stream.next != UNKNOWN:
            return []
        return self._freed(stream.raise_to(min(number, *stream.held)))

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
            self._freed(self._drop(key))

    def _skip(self, stream: Stream) -> list[Item | None]:
        first = min(stream.held)
        self.skipped += first - stream.next if stream.next != UNKNOWN else 0
        return stream.raise_to(first)

    def _drop(self, key: Key) -> list[Item | None]:
        self.shares.give_back(key[0])
        return self.streams.pop(key).raise_to(1 << 64)

    def _begin(self, key: Key, number: int) -> Stream:
        stream = self.streams[key] = Stream(key[2], number)
        self.shares.take(key[0])
        return stream

    def _make_room(self, source: Peer) -> list[Item | None]:
        """What the stream held that ends for a new one."""
        ends = self.shares.gives_way(source, STREAMS - len(self.streams), self.streams)
        return self._drop(ends) if ends is not None else []

    def _freed(self, out: list[Item | None]) -> list[Item]:
        self.bytes -= _weight(out)
        return [item for item in out if item is not None]


def _weight(out: list[Item | None]) -> int:
    return sum(weight(item.publication) for item in out if item is not None)
