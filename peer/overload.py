"""The overload policy of all worlds: what becomes of a message if too much waits for its link already."""

from __future__ import annotations

from typing import Literal, Protocol

from libweft.peer.machine import Lane


class Laden(Protocol):
    """What `admit` looks at: a message, or whatever a driver wraps it in."""

    @property
    def lane(self) -> Lane: ...
    @property
    def droppable(self) -> bool: ...


def admit(msg: Laden, size: int, queued: int, limit: int) -> Literal["send", "drop", "close"]:
    """The overload policy, for every driver: drop what may be dropped, else give up the link that is too slow."""
    if queued + size <= limit or queued == 0:
        return "send"
    return "drop" if msg.lane is Lane.LAZY or msg.droppable else "close"
