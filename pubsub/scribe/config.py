"""The options of SRPT-S and SRPT-B; times in microseconds."""

from __future__ import annotations

from dataclasses import dataclass

from libweft.overlays.vcube.cube import PLACES
from libweft.peer.errors import UsageError
from libweft.peer.machine import MS, SECOND

BY_TOPIC, BY_NUMBER = -1, -2
LEAST = {"root": BY_NUMBER, "root_link": 0, "acks": 0, "beats": 1, "keep": 1, "held_bytes": 1, "group": 1}  # the others are times


@dataclass(frozen=True)
class ScribeConfig:
    root: int = BY_TOPIC  # by its hash; or the place in the cube that all topics belong to; -2: the number that ends its name
    root_link: bool = False  # a subscriber holds a link to the root, so that what it publishes meets no dial
    acks: bool = False  # each copy is acknowledged to the parent, for its cost alone: the authors of VCube-PS seem to do so
    beat_every: int = 5 * SECOND  # a guess: the root says that the tree stands, and how far it is
    beats: int = 3  # a guess: so many that did not come are a parent that is gone
    refresh_every: int = 30 * SECOND  # a guess: a child says again that it is one; who is silent for three times that is none
    patience: int = 2 * SECOND  # a guess, above a slow round trip: what was not answered is said again
    keep: int = 256  # a guess: messages of a topic for those who come again
    held_bytes: int = 1 << 24  # a guess: of what is kept, and of what waits for the root

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            least = LEAST.get(name, MS)
            if getattr(self, name) < least:
                raise UsageError(f"srpt: {name} is {getattr(self, name)}; it must be at least {least}")
        if self.root >= PLACES:
            raise UsageError(f"srpt: root is {self.root}; it must be below {PLACES}")


@dataclass(frozen=True)
class BrokerConfig(ScribeConfig):
    group: int = 16  # places of the cube that share a broker; a power of two

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group & (self.group - 1) or self.group > PLACES:
            raise UsageError(f"srpt: group is {self.group}; it must be a power of two up to {PLACES}")


DEFAULTS = ScribeConfig()
BROKERS = BrokerConfig()
