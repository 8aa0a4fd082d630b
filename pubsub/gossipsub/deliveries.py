"""What became of each message that came lately, and who else brought it: the records behind the score's P3 and P4.

A record begins when the first copy goes to validation. Until the verdict it collects who brought further copies, since all of
them have earned what the verdict gives; afterwards it says what a late copy is worth.
Bounds: RECORDS in two generations, of which the older goes as a whole when the younger is full or TTL old; PEERS in one record.
"""

from __future__ import annotations

from libweft.peer.machine import SECOND, Peer

RECORDS = 1 << 16
PEERS = 128  # a guess: several times the largest mesh; whoever comes later is neither thanked nor blamed
TTL = 120 * SECOND  # as long as ids are seen

PENDING, INVALID, DROPPED = -1, -2, -3


class Record:
    """`state` is the time of the verdict where that was valid, else one of the three above. `peers` has all but the first."""

    __slots__ = ("first", "peers", "state")

    def __init__(self, first: Peer) -> None:
        self.first = first
        self.state = PENDING
        self.peers: dict[Peer, None] | None = None  # most messages are valid before a second copy comes

    def again(self, peer: Peer) -> bool:
        """Remember who brought a copy; false when it is known already, or there is no room."""
        if peer == self.first:
            return False
        if self.peers is None:
            self.peers = {peer: None}
        elif peer in self.peers or len(self.peers) >= PEERS:
            return False
        else:
            self.peers[peer] = None
        return True


class Deliveries:
    __slots__ = ("limit", "old", "ttl", "until", "young")

    def __init__(self, limit: int = RECORDS, ttl: int = TTL) -> None:
        self.limit = limit
        self.ttl = ttl
        self.until = 0
        self.young: dict[bytes, Record] = {}
        self.old: dict[bytes, Record] = {}

    def __len__(self) -> int:
        return len(self.young) + len(self.old)

    def find(self, key: bytes) -> Record | None:
        return self.young.get(key) or self.old.get(key)

    def open(self, key: bytes, first: Peer) -> Record:
        """A new record, in the place of any that is there."""
        if len(self.young) >= self.limit // 2:
            self._turn()
        record = self.young[key] = Record(first)
        return record

    def expire(self, now: int) -> None:
        """To be called often; nothing happens before `until`."""
        if now >= self.until:
            self._turn()
            self.until = now + self.ttl

    def _turn(self) -> None:
        self.old, self.young = self.young, {}
