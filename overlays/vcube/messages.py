"""What VCube's nodes say to each other, and what of it no honest node says.

Bounds: LIST members in a message, places below `cube.PLACES`, counters below COUNTER; what is said of peers by
`libweft.overlays.claims`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from libweft.overlays.claims import check_infos
from libweft.overlays.vcube.cube import DIMENSION, PLACES
from libweft.peer.errors import PeerError
from libweft.peer.machine import Message, Peer, PeerInfo

LIST = 64  # with the most that can be said of each it is about half a frame
COUNTER = 1 << 48  # more changes than any place sees
LAST = COUNTER - 2  # of one that is up
NEVER, FOUNDED = -1, -2  # in place of an epoch: nothing was heard of it yet; nothing but what all founders know


class Member(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Who has a place, and its state counter: even while it is up, odd while it is down; each change adds one."""

    index: int
    info: PeerInfo
    counter: int

    @property
    def peer(self) -> Peer:
        return self.info.peer

    @property
    def up(self) -> bool:
        return self.counter % 2 == 0

    @property
    def worn(self) -> bool:
        """No newer state in which it is up can follow. Only a lie comes so far; its place is left until it is forgotten."""
        return self.counter >= LAST

    def beats(self, other: Member) -> bool:
        """The newer state, or of two that claim one place at once the lower peer id: the same for all who see both."""
        return self.counter > other.counter or (self.counter == other.counter and self.peer < other.peer)  # type: ignore[operator]

    def down(self) -> Member:
        return Member(self.index, self.info, self.counter + 1 if self.up else self.counter)


Members = Annotated[tuple[Member, ...], Meta(max_length=LIST)]


class Join(Message, frozen=True, tag=1):
    """`counter` is above all that the newcomer had, but for a worn one; `lost` has its old place, or tells that it left it."""

    me: PeerInfo
    counter: int
    lost: Member | None


class Admitted(Message, frozen=True, tag=2):
    member: Member


class AreYouUp(Message, frozen=True, tag=3):
    """A test: whether the receiver is up, and what has changed at it since `since`, which it said when it had that `epoch`.

    `yours` is what the tester thinks of the receiver; `digest` is that of all it knows.
    """

    me: Member
    yours: Member | None
    epoch: int
    since: int
    digest: int


class Report(Message, frozen=True, tag=4):
    """`upto` is the `since` of the next test; `more`: that test should come at once."""

    me: Member
    members: Members
    epoch: int
    upto: int
    more: bool


class News(Message, frozen=True, tag=5):
    """Goes down the tree of all members: its receiver tells the clusters up to `height`."""

    members: Members
    height: Annotated[int, Meta(ge=0, le=DIMENSION)]


def check(me: Peer, members: Sequence[Member]) -> None:
    if len(members) > LIST:
        raise PeerError(f"a list of {len(members)} members is over the limit of {LIST}")
    for member in members:
        if not 0 <= member.index < PLACES:
            raise PeerError(f"no cube has a place {member.index}")
        check_counter(member.counter)
    check_infos(me, [member.info for member in members])


def check_counter(counter: int) -> None:
    if not 0 <= counter < COUNTER:
        raise PeerError(f"no node comes to a counter of {counter}")
