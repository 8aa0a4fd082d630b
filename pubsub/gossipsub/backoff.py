"""Backoff: until when a peer that was pruned from a topic's mesh must not be grafted again, whichever side pruned.

An entry outlives its time by `slack`: a GRAFT sent right at the end may be early by the other's clock, so while the entry
is there nobody is grafted, though a GRAFT that comes after `until` is no offence.
Bounds: `limit` entries, the oldest forgotten first. Whoever wants one gone must be pruned under that many other names,
and under any of these names had no backoff to begin with. The caller adds only topics that are its own.
"""

from __future__ import annotations

from libweft.peer.errors import UsageError
from libweft.peer.machine import SECOND, Peer

SLACK = 2 * SECOND  # go-libp2p-pubsub: two heartbeats
LIMIT = 16_384  # a guess


class Backoff:
    def __init__(self, slack: int = SLACK, limit: int = LIMIT) -> None:
        if slack < 0 or limit < 1:
            raise UsageError(f"slack and limit are {slack} and {limit}; slack must be 0 or more, limit 1 at least")
        self.slack = slack
        self.limit = limit
        self._until: dict[tuple[str, Peer], int] = {}

    def __len__(self) -> int:
        return len(self._until)

    def add(self, topic: str, peer: Peer, until: int) -> None:
        """A later end counts from now on, an earlier one does not: no message of a peer shortens what it has to wait."""
        key = (topic, peer)
        if until <= self._until.get(key, -1):
            return
        if key not in self._until and len(self._until) >= self.limit:
            del self._until[next(iter(self._until))]
        self._until[key] = until

    def until(self, topic: str, peer: Peer) -> int:
        """0 where there is none."""
        return self._until.get((topic, peer), 0)

    def has(self, topic: str, peer: Peer) -> bool:
        return (topic, peer) in self._until

    def sweep(self, now: int) -> None:
        """Drop what ended more than `slack` ago; every few heartbeats is often enough."""
        self._until = {key: until for key, until in self._until.items() if until + self.slack >= now}
