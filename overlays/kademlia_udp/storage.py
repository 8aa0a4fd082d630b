"""What a node of a `kademlia` network keeps: contacts in k-buckets, and values for others.

P. Maymounkov, D. Mazières: "Kademlia: a peer-to-peer information system based on the XOR metric", IPTPS 2002, sections 2.2, 2.4.
The nearest k are exact: all contacts are looked at. (The package walks outwards from one bucket and stops at k.)
Bounds: k contacts and k spares a bucket, 160 buckets, one contact an address; values by number, by bytes of one and of all, and
by age. Full values make room by distance: what is farthest from this node's id is the least its own to keep.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import nsmallest
from typing import NamedTuple

from libweft.overlays.kademlia_udp.wire import Contact, Value, encode
from libweft.peer.datagram import Address


class Bucket:
    """Longest silent first, both. `looked`: when a lookup last went there."""

    __slots__ = ("contacts", "looked", "spares")

    def __init__(self, now: int) -> None:
        self.contacts: dict[bytes, Contact] = {}
        self.spares: dict[bytes, Contact] = {}
        self.looked = now


class Table:
    def __init__(self, me: bytes, k: int) -> None:
        self.me = int.from_bytes(me, "big")
        self.k = k
        self.buckets: dict[int, Bucket] = {}
        self.ids: dict[Address, bytes] = {}

    def __len__(self) -> int:
        return sum(len(bucket.contacts) for bucket in self.buckets.values())

    def __iter__(self) -> Iterator[Contact]:
        for bucket in self.buckets.values():
            yield from bucket.contacts.values()

    def get(self, node: bytes) -> Contact | None:
        """Spares are known too."""
        bucket = self.buckets.get(self._index(node))
        return (bucket.contacts.get(node) or bucket.spares.get(node)) if bucket else None

    def has_room(self, node: bytes) -> bool:
        """A node that lives is welcome until even the spares are full: who was long there will likely stay."""
        bucket = self.buckets.get(self._index(node))
        return bucket is None or len(bucket.contacts) < self.k or len(bucket.spares) < self.k

    def add(self, contact: Contact, now: int) -> Contact | None:
        """One that is not known into its bucket, or its spares; who had its address before is gone.

        Answers the longest silent of a full bucket, for somebody to ask whether it lives.
        """
        self.remove(contact.address)
        bucket = self.buckets.setdefault(self._index(contact.id), Bucket(now))
        full = len(bucket.contacts) >= self.k
        if full and len(bucket.spares) >= self.k:
            return None
        (bucket.spares if full else bucket.contacts)[contact.id] = contact
        self.ids[contact.address] = contact.id
        return next(iter(bucket.contacts.values())) if full else None

    def touch(self, contact: Contact) -> None:
        """It was heard of, so it is no longer the longest silent."""
        bucket = self.buckets[self._index(contact.id)]
        shelf = bucket.contacts if contact.id in bucket.contacts else bucket.spares
        shelf[contact.id] = shelf.pop(contact.id)

    def remove(self, address: Address) -> None:
        """A spare takes the place, the one heard of last."""
        node = self.ids.pop(address, None)
        if node is None:
            return
        bucket = self.buckets[self._index(node)]
        bucket.spares.pop(node, None)
        if bucket.contacts.pop(node, None) is not None and bucket.spares:
            spare, contact = bucket.spares.popitem()
            bucket.contacts[spare] = contact

    def nearest(self, key: bytes, count: int, but: bytes = b"") -> list[Contact]:
        number = int.from_bytes(key, "big")
        return nsmallest(count, (node for node in self if node.id != but), key=lambda node: node.number ^ number)

    def looking(self, key: bytes, now: int) -> None:
        """A lookup of the key refreshes its bucket."""
        if (bucket := self.buckets.get(self._index(key))) is not None:
            bucket.looked = now

    def stale(self, before: int) -> list[int]:
        return [index for index, bucket in self.buckets.items() if bucket.looked < before and bucket.contacts]

    def oldest(self, index: int) -> Contact | None:
        return next(iter(self.buckets[index].contacts.values()), None)

    def _index(self, node: bytes) -> int:
        """By the highest bit that differs from this node's id; -1 is that id itself."""
        return (int.from_bytes(node, "big") ^ self.me).bit_length() - 1


class Kept(NamedTuple):
    """`told`: when this node last heard, or told others, that it should be kept."""

    value: Value
    size: int
    since: int
    told: int


class Values:
    """In order of age. A store of the same key makes it young again, as in the package."""

    def __init__(self, me: bytes, most: int, most_bytes: int, most_each: int, life: int) -> None:
        self.me = int.from_bytes(me, "big")
        self.most = most
        self.most_bytes = most_bytes
        self.most_each = most_each
        self.life = life
        self.bytes = 0
        self.kept: dict[bytes, Kept] = {}
        self.by_distance: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self.kept)

    def get(self, key: bytes, now: int) -> Value | None:
        kept = self.kept.get(key)
        return kept.value if kept is not None and kept.since > now - self.life else None

    def put(self, key: bytes, value: Value, now: int) -> bool:
        """False where there is no room; then what was kept is kept."""
        size = len(encode(value))
        self.expire(now)
        if size > self.most_each or not self._make_room(key, size):
            return False
        self.drop(key)
        self.kept[key] = Kept(value, size, now, now)
        self.bytes += size
        insort(self.by_distance, self._place(key))
        return True

    def drop(self, key: bytes) -> None:
        if (kept := self.kept.pop(key, None)) is not None:
            self.bytes -= kept.size
            del self.by_distance[bisect_left(self.by_distance, self._place(key))]

    def expire(self, now: int) -> None:
        while self.kept and (oldest := next(iter(self.kept.items())))[1].since <= now - self.life:
            self.drop(oldest[0])

    def untold(self, before: int) -> list[bytes]:
        return [key for key, kept in self.kept.items() if kept.told <= before]

    def telling(self, key: bytes, now: int) -> None:
        self.kept[key] = self.kept[key]._replace(told=now)

    def _make_room(self, key: bytes, size: int) -> bool:
        """Farther values give way, if that is enough; else none does."""
        old = self.kept.get(key)
        count, total = len(self.kept) + (old is None), self.bytes + size - (old.size if old else 0)
        leaving = []
        for place in reversed(self.by_distance):
            if (count <= self.most and total <= self.most_bytes) or place < self._place(key):
                break
            if place[1] != key:
                leaving.append(place[1])
                count, total = count - 1, total - self.kept[place[1]].size
        fits = count <= self.most and total <= self.most_bytes
        for farther in leaving if fits else ():
            self.drop(farther)
        return fits

    def _place(self, key: bytes) -> tuple[int, bytes]:
        return int.from_bytes(key, "big") ^ self.me, key
