"""The routing table: for each number of leading bits shared with the own place a bucket of k contacts, and exact nearest-k.

P. Maymounkov, D. Mazières: "Kademlia: A Peer-to-peer Information System Based on the XOR Metric", IPTPS 2002, section 2.2 and
2.4. In a bucket the one heard from longest ago comes first. A full bucket takes nobody in: the newcomer waits among the
spares, and `see` names the oldest contact, which must answer or give way. So those that stay long stay in the table, and a
flood of newcomers cannot wash it out. Among the k nearest to the own place none may be missing (section 4.2: all contacts in
the smallest subtree of k nodes are kept): who is one of them is taken in, and the farthest of its bucket waits.

`nearest` is exact over all contacts: seen from a place that shares c bits with the own one, those in bucket c are nearest,
then all of the deeper buckets together, then bucket c - 1, c - 2 and so on.
Bounds: k contacts and `spares` a bucket, 256 buckets; no bucket is made before it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from libweft.overlays.kademlia.space import BITS, place_of
from libweft.peer.machine import Peer


class Table:
    __slots__ = ("buckets", "k", "mine", "size", "spares", "waiting")

    def __init__(self, me: Peer, k: int, spares: int) -> None:
        self.mine = place_of(me)
        self.k = k
        self.spares = spares
        self.size = 0
        self.buckets: dict[int, dict[Peer, int]] = {}  # by shared bits; peer to place, oldest first
        self.waiting: dict[int, dict[Peer, int]] = {}

    def __len__(self) -> int:
        return self.size

    def __contains__(self, peer: Peer) -> bool:
        return peer in self.buckets.get(self.bucket_of(place_of(peer)), ())

    def __iter__(self) -> Iterator[Peer]:
        for bucket in self.buckets.values():
            yield from bucket

    def bucket_of(self, place: int) -> int:
        return BITS - (place ^ self.mine).bit_length()

    def bucket_of_peer(self, peer: Peer) -> int:
        return self.bucket_of(place_of(peer))

    def see(self, peer: Peer) -> Peer | None:
        """The peer was heard from. If its bucket is full the answer is who must be checked, or nobody."""
        place = place_of(peer)
        number = BITS - (place ^ self.mine).bit_length()
        bucket = self.buckets.get(number)
        if bucket is None:
            if number == BITS:
                return None  # that is me
            self.buckets[number] = {peer: place}
            self.size += 1
        elif bucket.pop(peer, None) is not None:
            bucket[peer] = place
        elif len(bucket) < self.k:
            bucket[peer] = place
            self.size += 1
        elif (farthest := self._gives_way(number, place)) is not None:
            there = bucket.pop(farthest)
            bucket[peer] = place
            self.waiting.get(number, {}).pop(peer, None)
            if self.spares:
                self._wait(number, farthest, there)
        elif self.spares:
            self._wait(number, peer, place)
            return next(iter(bucket))
        return None

    def _gives_way(self, number: int, place: int) -> Peer | None:
        """Of a full bucket the farthest from here, for a newcomer that is among the k nearest of all."""
        room = self.k
        for deeper, bucket in self.buckets.items():
            if deeper > number:
                room -= len(bucket)
                if room <= 0:
                    return None
        ranked = sorted((there ^ self.mine, peer) for peer, there in self.buckets[number].items())
        return ranked[-1][1] if place ^ self.mine < ranked[room - 1][0] else None

    def _wait(self, number: int, peer: Peer, place: int) -> None:
        waiting = self.waiting.get(number)
        if waiting is None:
            waiting = self.waiting[number] = {}
        elif waiting.pop(peer, None) is None and len(waiting) >= self.spares:
            del waiting[next(iter(waiting))]
        waiting[peer] = place

    def drop(self, peer: Peer) -> None:
        """It did not answer; the spare heard from last takes its place."""
        number = self.bucket_of(place_of(peer))
        bucket, waiting = self.buckets.get(number, {}), self.waiting.get(number, {})
        waiting.pop(peer, None)
        if peer not in bucket:
            return
        del bucket[peer]
        if waiting:
            spare, place = waiting.popitem()
            bucket[spare] = place
        else:
            self.size -= 1
        if not waiting:
            self.waiting.pop(number, None)
        if not bucket:
            del self.buckets[number]

    def nearest(self, place: int, count: int, but: Peer | None = None) -> list[Peer]:
        """The contacts nearest to a place, nearest first."""
        buckets = self.buckets
        first = BITS - (place ^ self.mine).bit_length()
        found: list[Peer] = []
        if first in buckets:
            _add(found, buckets[first].items(), place, count, but)
        if len(found) < count:
            deeper = [entry for number, bucket in buckets.items() if number > first for entry in bucket.items()]
            _add(found, deeper, place, count, but)
        for number in range(min(first, BITS) - 1, -1, -1):
            if len(found) >= count:
                break
            if number in buckets:
                _add(found, buckets[number].items(), place, count, but)
        return found


def _add(found: list[Peer], entries: Iterable[tuple[Peer, int]], place: int, count: int, but: Peer | None) -> None:
    near = sorted((there ^ place, peer) for peer, there in entries if peer != but)
    found += [peer for _, peer in near[: count - len(found)]]
