"""The roll: who has which place of the cube and in which state, as far as one node knows; the newest state wins.

Merging is the same in any order and however often: two nodes that have seen the same members have the same roll, but for those
who are gone, and until a peer that had a `worn` place says again where it is. A place is never taken from somebody who is up but
by a newer state, and a peer has one place: when it turns up at another with a higher counter, the one before is down; so it is at
any counter if that one was worn. Of a place that is not known, a member that is down says nothing.

`stamps` number the changes, so that one who asks again is told only what is new; `digest` tells whether two rolls are the same.
`Founders` are nodes that know each other from the start, because a scenario says so; a `Census` is an oracle above that.
Bounds: a member a place, so `cube.PLACES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple, overload

from msgspec.msgpack import encode

from libweft.overlays.vcube.cube import PLACES
from libweft.overlays.vcube.messages import LIST, Member
from libweft.peer.errors import UsageError
from libweft.peer.machine import Peer, PeerInfo


class Change(NamedTuple):
    before: Member | None
    now: Member


class Roll:
    __slots__ = ("changes", "digest", "known", "members", "stamps", "up", "where")

    def __init__(self) -> None:
        self.members: dict[int, Member] = {}
        self.where: dict[Peer, int] = {}
        self.known = 0  # sets of places, as in `cube`
        self.up = 0
        self.changes = 0
        self.stamps: dict[int, int] = {}  # by place, the latest change last
        self.digest = 0

    def copy(self) -> Roll:
        twin = Roll()
        twin.members, twin.where, twin.stamps = dict(self.members), dict(self.where), dict(self.stamps)
        twin.known, twin.up, twin.changes, twin.digest = self.known, self.up, self.changes, self.digest
        return twin

    def of(self, peer: Peer) -> Member | None:
        index = self.where.get(peer)
        return self.members[index] if index is not None else None

    def peer(self, index: int) -> Peer:
        return self.members[index].info.peer

    def merge(self, member: Member) -> list[Change]:
        """What changed by it; nothing when it is no news."""
        before = self.members.get(member.index)
        if not member.up if before is None else not member.beats(before):
            return []
        elsewhere = self.of(member.peer) if member.up else None
        if elsewhere is None or elsewhere.index == member.index:
            return [self.put(member)]
        if not elsewhere.worn and (elsewhere.counter, -elsewhere.index) > (member.counter, -member.index):
            return []
        return [self.put(elsewhere.down()), self.put(member)] if elsewhere.up else [self.put(member)]

    def put(self, member: Member) -> Change:
        before = self.members.get(member.index)
        if before is not None:
            self.digest ^= _mark(before)
            if before.peer != member.peer and self.where.get(before.peer) == before.index:
                del self.where[before.peer]
        index, bit = member.index, 1 << member.index
        self.members[index] = member
        if member.up or member.peer not in self.where:
            self.where[member.peer] = index
        self.known |= bit
        self.up = self.up | bit if member.up else self.up & ~bit
        self.changes += 1
        self.stamps.pop(index, None)
        self.stamps[index] = self.changes
        self.digest ^= _mark(member)
        return Change(before, member)

    def forget(self, index: int) -> Member:
        member = self.members.pop(index)
        if self.where.get(member.peer) == index:
            del self.where[member.peer]
        del self.stamps[index]
        self.known &= ~(1 << index)
        self.up &= ~(1 << index)
        self.digest ^= _mark(member)
        return member

    def since(self, stamp: int) -> tuple[tuple[Member, ...], int, bool]:
        """The oldest changes after that one, up to LIST; the last of these; whether there are more."""
        newest = []
        for index in reversed(self.stamps):
            if self.stamps[index] <= stamp:
                break
            newest.append(index)
        page = newest[: -LIST - 1 : -1]
        more = len(newest) > len(page)
        return tuple(self.members[index] for index in page), self.stamps[page[-1]] if more else self.changes, more


def _mark(member: Member) -> int:
    return int.from_bytes(blake2b(encode((member.index, member.peer, member.counter)), digest_size=8).digest())


class Founders(Sequence[Peer]):
    """The nodes of a simulation in the scenario's order, each at the place of its number; handed to each as its contacts."""

    def __init__(self, nodes: int) -> None:
        if nodes > PLACES:
            raise UsageError(f"{nodes} nodes are more than the {PLACES} places of the largest cube")
        self.roll = Roll()
        for number in range(nodes):
            self.roll.put(Member(number, PeerInfo(number), 0))

    def __len__(self) -> int:
        return len(self.roll.members)

    @overload
    def __getitem__(self, place: int) -> Peer: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Peer]: ...
    def __getitem__(self, place: int | slice) -> Peer | Sequence[Peer]:
        return range(len(self))[place]


class Census(Founders):
    """An oracle, for experiments without faults: one roll for all, and who subscribes to which topic, known at once."""

    def __init__(self, nodes: int) -> None:
        super().__init__(nodes)
        self.subscribers: dict[str, int] = {}
