"""VCube-PS's options; times in microseconds."""

from __future__ import annotations

from dataclasses import dataclass

from libweft.peer.errors import UsageError
from libweft.peer.machine import SECOND

WINDOW = 256  # the most that a source may have on its way in one topic

FOR_EVER = 1 << 62


@dataclass(frozen=True)
class VCubePSConfig:
    window: int = 16  # a guess: broadcasts of a source and topic under way at once; 1 is the paper's gate
    patience: int = 10 * SECOND  # a guess, above a slow tree's round trip: a child that said nothing gets it again, then rarer
    sends: int = 3  # a guess: then it is passed over, or it would hold the gate for ever
    oracle_until: int = FOR_EVER  # where the overlay has an oracle: from then on subscriptions are told by messages
    held_bytes: int = 1 << 24  # a guess: of messages of this node that wait for the gate, and of others for their predecessors

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1 and not isinstance(value, bool):
                raise UsageError(f"vcube: {name} is {value}; it must be at least 1")
        if self.window > WINDOW:
            raise UsageError(f"vcube: window is {self.window}; it must be at most {WINDOW}")


DEFAULTS = VCubePSConfig()
