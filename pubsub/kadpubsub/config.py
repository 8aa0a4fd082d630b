"""The options of KadPubSub."""

from __future__ import annotations

from dataclasses import dataclass

from libweft.peer.errors import UsageError
from libweft.peer.machine import MS, SECOND

LOOKS = 3  # for registrars, `slow` apart, before a node takes itself to be alone: one that just began may know nobody yet


@dataclass(frozen=True)
class KadPubSubConfig:
    """All are guesses; times in microseconds."""

    refresh_every: int = 60 * SECOND  # between two registrations; a registration outlives two that were lost
    expiry: int = 180 * SECOND  # how long a registration stands
    watch_every: int = 5 * SECOND  # between two looks who is near: so late may a subscriber be registered at one that is new
    lease: int = 60 * SECOND  # how long registrars tell a publisher of changes
    asks: int = 3  # registrars that are asked for subscribers: one that is new there may not know all
    slow: int = SECOND  # an answer that takes longer is slow, above two round trips; after half of it a message is sent again
    patience: int = 10 * SECOND  # how long an inquiry lasts, and one that has a message to hand on is waited for
    held_bytes: int = 16 << 20  # bytes of messages that wait

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            least, unit = (1, "") if name in ("asks", "held_bytes") else (MS, " microseconds")
            if getattr(self, name) < least:
                raise UsageError(f"kadpubsub: {name} is {getattr(self, name)}; it must be at least {least}{unit}")
        if self.expiry < self.refresh_every:
            raise UsageError(f"kadpubsub: expiry is {self.expiry}; it must be at least refresh_every, {self.refresh_every}")


DEFAULTS = KadPubSubConfig()
