"""Which messages have been seen: a set, so that asking costs no call, in two generations that forget by number and by age.

An id is remembered for `ttl` at least and twice that at most, unless half of `limit` ids come after it in that time; the
younger generation is the set itself, and becomes the older one when it is full or, at the next new id, `ttl` old.
Bounds: `limit` ids in all.
"""

from __future__ import annotations

from collections.abc import Hashable

from libweft.peer.errors import UsageError
from libweft.peer.machine import SECOND

LIMIT = 1 << 16
TTL = 120 * SECOND  # as in libp2p's pub/sub


class Seen(set[Hashable]):
    """`key in seen` may miss what only the older generation holds; `note` decides."""

    __slots__ = ("limit", "old", "ttl", "until")

    def __init__(self, limit: int = LIMIT, ttl: int = TTL) -> None:
        super().__init__()
        if limit < 2:
            raise UsageError(f"a limit of {limit} ids is too small for two generations; it must be 2 at least")
        self.limit = limit
        self.ttl = ttl
        self.until = ttl
        self.old: frozenset[Hashable] = frozenset()

    def note(self, key: Hashable, now: int) -> bool:
        """Remember an id; false when it was known already."""
        if now >= self.until or len(self) >= self.limit // 2:
            self._turn(now)
        if key in self or key in self.old:
            return False
        self.add(key)
        return True

    def has(self, key: Hashable) -> bool:
        return key in self or key in self.old

    def _turn(self, now: int) -> None:
        """The younger generation becomes the older, unless it is too old for that too."""
        late = now >= self.until + self.ttl
        self.old = frozenset() if late else frozenset(self)
        self.clear()
        self.until = (self.until if not late and now >= self.until else now) + self.ttl
