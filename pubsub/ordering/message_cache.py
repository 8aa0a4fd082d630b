"""Messages kept for those who lack one: the last that came on topics opened with an order.

Bounds: `count` messages, `room` bytes of them all, and `age` microseconds since they came; the oldest go first.
"""

from __future__ import annotations

from typing import NamedTuple

from libweft.peer.machine import MessageId, Peer
from libweft.pubsub.message import Publication, weight


class Entry(NamedTuple):
    publication: Publication
    came: int
    weight: int


class Kept:
    """`horizon`: whatever came later is still here."""

    __slots__ = ("_age", "_count", "_entries", "_room", "bytes", "horizon")

    def __init__(self, count: int, room: int, age: int) -> None:
        self._count = count
        self._room = room
        self._age = age
        self._entries: dict[MessageId, Entry] = {}
        self.bytes = 0
        self.horizon = -1

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, publication: Publication, now: int) -> None:
        if publication.id not in self._entries:
            entry = Entry(publication, now, weight(publication))
            self._entries[publication.id] = entry
            self.bytes += entry.weight
        self._expire(now)

    def get(self, id: MessageId, now: int) -> Entry | None:
        self._expire(now)
        return self._entries.get(id)

    def first(self, topic: str, start: int) -> dict[tuple[Peer, int], int]:
        """The lowest sequence of each source that came at that time or later."""
        found: dict[tuple[Peer, int], int] = {}
        for entry in reversed(self._entries.values()):
            if entry.came < start:
                break
            id = entry.publication.id
            if entry.publication.topic == topic:
                found[id.source, id.epoch] = min(id.sequence, found.get((id.source, id.epoch), id.sequence))
        return found

    def _expire(self, now: int) -> None:
        while self._entries:
            id, entry = next(iter(self._entries.items()))
            if len(self._entries) <= self._count and self.bytes <= self._room and entry.came + self._age > now:
                return
            del self._entries[id]
            self.bytes -= entry.weight
            self.horizon = entry.came
