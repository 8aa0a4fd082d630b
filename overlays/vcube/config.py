"""VCube's options; the paper counts in rounds, so all times are guesses, in microseconds."""

from __future__ import annotations

from dataclasses import dataclass

from libweft.peer.errors import UsageError
from libweft.peer.machine import SECOND


@dataclass(frozen=True)
class VCubeConfig:
    round_every: int = SECOND  # between two tests; one cluster is tested a round, so each in log2 N of them
    patience: int = 3 * SECOND  # a few slow round trips: until a test, or an ask to be admitted, has failed
    tries: int = 2  # of a test: a link that breaks is no crash
    announce: bool = True  # events go down the tree at once; false leaves them to test replies, as in the paper
    reuse_after: int = 60 * SECOND  # a place of one that is down; who was wrongly suspected comes back long before
    forget_after: int = 600 * SECOND  # one that is down is tested no longer, and its place is empty
    first_retry: int = SECOND  # until a contact is dialled again; as in `libweft.overlays.static`
    last_retry: int = 60 * SECOND  # the most that this grows to; as in `libweft.overlays.static`

    def __post_init__(self) -> None:
        least = {"last_retry": self.first_retry, "forget_after": self.reuse_after, "announce": 0}
        for name in VCubeConfig.__dataclass_fields__:
            if getattr(self, name) < least.get(name, 1):
                raise UsageError(f"vcube: {name} is {getattr(self, name)}; it must be at least {least.get(name, 1)}")


STARTS = ("join", "order", "oracle")


@dataclass(frozen=True)
class StartConfig(VCubeConfig):
    start: str = "join"  # how nodes find each other: join, one after the other; order, all know all at first; oracle, at any time

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start not in STARTS:
            raise UsageError(f"vcube: start is {self.start!r}; choose {', '.join(STARTS)}")


DEFAULTS = VCubeConfig()
