"""Messages that a node keeps to send them again: `msgs` of the paper.

The paper drops a message when the next of its source comes, which says that all have the one before. Here each says below which
number all have acknowledged (`base`). What is not below that is sent again when its source is down; the rest is kept for a
while all the same, for those who were taken for down and were not.
Bounds: `count` messages, `room` bytes of them all, and `age` microseconds since they came; the oldest go first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from libweft.peer.machine import MessageId, Peer
from libweft.pubsub.message import weight
from libweft.pubsub.vcube_ps.messages import Pub

Key: TypeAlias = tuple[Peer, str, int]
"""A source, a topic, and in which of its lives."""


def stream_of(message: Pub) -> Key:
    return message.id.source, message.topic, message.id.epoch


class Entry(NamedTuple):
    message: Pub
    came: int
    weight: int


class Series:
    """Of one source and topic, by number; all below `base` are acknowledged."""

    __slots__ = ("base", "entries")

    def __init__(self) -> None:
        self.base = 0
        self.entries: dict[int, Entry] = {}


class Kept:
    def __init__(self, count: int, room: int, age: int) -> None:
        self.bytes = 0
        self._count = count
        self._room = room
        self._age = age
        self._oldest: dict[MessageId, Entry] = {}
        self._series: dict[Key, Series] = {}

    def __len__(self) -> int:
        return len(self._oldest)

    def get(self, key: MessageId) -> Pub | None:
        entry = self._oldest.get(key)
        return entry.message if entry is not None else None

    def add(self, message: Pub, now: int) -> None:
        self._expire(now)
        if message.id in self._oldest:
            return
        series = self._series.setdefault(stream_of(message), Series())
        series.base = max(series.base, message.base)
        if message.number in series.entries:  # two ids of one number: its source lies, and the first stays
            return
        entry = Entry(message, now, weight(message))
        self._oldest[message.id] = series.entries[message.number] = entry
        self.bytes += entry.weight
        self._expire(now)

    def unacknowledged(self, source: Peer) -> list[Pub]:
        """What may not have come to all, if the source is down."""
        found = [(key, series) for key, series in self._series.items() if key[0] == source]
        return [entry.message for _, series in found for number, entry in series.entries.items() if number >= series.base]

    def between(self, key: Key, begin: int, end: int, start: int) -> list[Pub]:
        """Of one source and topic, those numbers that came at `start` or later."""
        series = self._series.get(key)
        entries = sorted(series.entries.items()) if series is not None else []
        return [entry.message for number, entry in entries if begin <= number < end and entry.came >= start]

    def since(self, topic: str, start: int) -> Iterator[Pub]:
        """All of a topic that came then or later, in the order of their coming."""
        return (entry.message for entry in self._oldest.values() if entry.came >= start and entry.message.topic == topic)

    def _expire(self, now: int) -> None:
        while self._oldest:
            id, entry = next(iter(self._oldest.items()))
            if len(self._oldest) <= self._count and self.bytes <= self._room and entry.came + self._age > now:
                return
            del self._oldest[id]
            self.bytes -= entry.weight
            series = self._series[stream_of(entry.message)]
            del series.entries[entry.message.number]
            if not series.entries:
                del self._series[stream_of(entry.message)]
