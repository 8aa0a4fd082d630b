"""The power that VCube gives its routers: every node has a place in a hypercube, and knows the places of all members."""

from __future__ import annotations

from typing import Protocol

from libweft.overlays.vcube.members import Census, Roll
from libweft.overlays.vcube.messages import Member
from libweft.peer.machine import Env, Peer


class Crowd(Protocol):
    """Hears of every member, and not only of neighbours. `member_up` also tells of a member that begins anew."""

    def member_up(self, peer: Peer) -> None: ...
    def member_down(self, peer: Peer) -> None: ...
    def member_gone(self, peer: Peer) -> None: ...
    def placed(self) -> None:
        """This node has a place, and knows the members."""

    def doubted(self) -> None:
        """Others took this node for down, which it was not: it may have missed messages meanwhile."""


class Places(Protocol):
    """An overlay whose nodes have places. `index` is this node's, and `version` counts the changes of `roll`."""

    env: Env
    base: int
    census: Census | None
    crowd: list[Crowd]
    index: int | None
    ready: bool
    roll: Roll
    version: int

    @property
    def dimension(self) -> int:
        """The dimension of the smallest cube that holds all known places."""
        ...

    def own(self) -> Member:
        """Return this node as a member, in its present state."""
        ...

    def hop_to(self, place: int, members: int) -> Peer | None:
        """Return the next node towards that one of `members`, a set of places, which is nearest to `place`."""
        ...

    def introduce(self, member: Member) -> None:
        """Take in a member that a message of another protocol names."""
        ...

    def suspect(self, peer: Peer) -> None:
        """Test a member now, because somebody has reason to doubt that it is up."""
        ...
