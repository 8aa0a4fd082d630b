"""The simulator's queue: a calendar of buckets about a millisecond wide, each sorted when it is opened.

Entries are tuples `(time, what, ...)`. They come out in exact order of time, and in order of insertion at equal times:
a bucket is appended to in that order and the sort is stable, so no sequence number is needed. Appending and sorting a
short list beats a heap of a hundred thousand entries about two times, since it misses the cache less often.
Bounds: none of its own; what is scheduled is bounded by who schedules.
"""

from __future__ import annotations

from bisect import insort
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any, TypeAlias

Entry: TypeAlias = tuple[Any, ...]

SHIFT = 10  # buckets of 1,024 microseconds
TIME = itemgetter(0)


class Calendar:
    __slots__ = ("_heads", "_index", "_open", "buckets")

    def __init__(self) -> None:
        self.buckets: dict[int, list[Entry]] = {}  # senders append to these directly, and call `add` where there is none
        self._heads: list[int] = []
        self._open: list[Entry] = []
        self._index = -1

    def add(self, entry: Entry) -> None:
        index = entry[0] >> SHIFT
        if index == self._index:
            insort(self._open, entry, key=TIME)  # never before the entry being handled: its time is not later
        elif (bucket := self.buckets.get(index)) is not None:
            bucket.append(entry)
        else:
            self.buckets[index] = [entry]
            heappush(self._heads, index)

    def remove(self, entry: Entry) -> bool:
        """Take back what comes later than the entry being handled; whether it was there."""
        index = entry[0] >> SHIFT
        bucket = self._open if index == self._index else self.buckets.get(index, [])
        for place, other in enumerate(bucket):
            if other is entry:
                del bucket[place]
                return True
        return False

    def open(self, last: int) -> list[Entry] | None:
        """The next bucket that begins at or before the moment `last`, sorted; later additions to it land in the same list."""
        while self._heads and self._heads[0] << SHIFT <= last:
            self._index = heappop(self._heads)
            self._open = self.buckets.pop(self._index)
            if self._open:  # else all of it was taken back
                self._open.sort(key=TIME)
                return self._open
        self._open, self._index = [], -1
        return None

    def put_back(self, rest: list[Entry]) -> None:
        """Close the open bucket, keeping what was not handled."""
        if rest:
            self.buckets[self._index] = rest
            heappush(self._heads, self._index)
        self._open, self._index = [], -1
