"""What was published here a moment ago, for subscriptions that were under way meanwhile.

A link is up before its first words are here, and a subscription takes its time too: who publishes right then knows of no
subscriber, and the message would be lost without a word. So whoever tells of a subscription within `span` gets what was
published to its topic since. No other implementation does that: they publish to nobody, or fail.
Bounds: `limit` messages, the oldest forgotten first; the messages themselves are in the cache, if anywhere.
"""

from __future__ import annotations

from collections import deque

from libweft.peer.machine import SECOND

SPAN = SECOND  # a guess: some round trips of a slow link
LIMIT = 1_024  # a guess


class Fresh:
    def __init__(self, span: int = SPAN, limit: int = LIMIT) -> None:
        self.span = span
        self.limit = limit
        self._order: deque[tuple[int, str, bytes]] = deque()
        self._topics: dict[str, dict[bytes, None]] = {}

    def note(self, topic: str, key: bytes, now: int) -> None:
        """Ids are noted once, since nothing is published twice."""
        self.expire(now)
        if len(self._order) >= self.limit:
            self._forget()
        self._order.append((now + self.span, topic, key))
        self._topics.setdefault(topic, {})[key] = None

    def of(self, topic: str, now: int) -> tuple[bytes, ...]:
        self.expire(now)
        return tuple(self._topics.get(topic, ()))

    def expire(self, now: int) -> None:
        while self._order and self._order[0][0] <= now:
            self._forget()

    def __len__(self) -> int:
        return len(self._order)

    def _forget(self) -> None:
        _, topic, key = self._order.popleft()
        keys = self._topics[topic]
        keys.pop(key, None)
        if not keys:
            del self._topics[topic]
