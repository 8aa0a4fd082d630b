"""Whose turn it is: lookups that are under way, and those that wait for one to end.

What the layers above ask for and a node's own upkeep have turns of their own, so that nobody waits behind thousands of values
that are stored again, and those are not put off for ever by a user who never stops asking.
Bounds: `most` at a time. What waits is its caller's to bound; a chore that is fetched only when its turn has come waits nowhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from libweft.overlays.kademlia.query import Query

Key = TypeVar("Key")


class Turns:
    """`chore` gives the next lookup when none waits, or nothing."""

    __slots__ = ("_beginning", "_chore", "_most", "_stopped", "running", "waiting")

    def __init__(self, most: int, chore: Callable[[], Query | None] | None = None) -> None:
        self._most = most
        self._chore = chore
        self._beginning = False
        self._stopped = False
        self.running: dict[Query, None] = {}
        self.waiting: deque[Query] = deque()

    def run(self, query: Query) -> None:
        self.waiting.append(query)
        self.go_on()

    def over(self, query: Query) -> None:
        del self.running[query]
        self.go_on()

    def stop(self) -> None:
        """All are given up, also those that wait."""
        self._stopped = True
        for query in self.running:
            query.abandon()
        ended = (*self.running, *self.waiting)
        self.running.clear()
        self.waiting.clear()
        for query in ended:
            query.given_up()

    def go_on(self) -> None:
        """In a loop: without contacts a query ends as it begins, and thousands may wait."""
        if self._beginning:
            return
        self._beginning = True
        while len(self.running) < self._most and not self._stopped and (query := self._next()) is not None:
            self.running[query] = None
            query.begin(self)
        self._beginning = False

    def _next(self) -> Query | None:
        if self.waiting:
            return self.waiting.popleft()
        return self._chore() if self._chore is not None else None


def first_of(waiting: dict[Key, None]) -> Key:
    """Taken out."""
    first = next(iter(waiting))
    del waiting[first]
    return first
