"""VCube-PB's options; times in microseconds."""

from __future__ import annotations

from dataclasses import dataclass

from libweft.peer.machine import SECOND
from libweft.pubsub.vcube_ps.config import VCubePSConfig


@dataclass(frozen=True)
class VCubePBConfig(VCubePSConfig):
    sends: int = 6  # a guess: some ten minutes in all, as long as the overlay remembers one that is down
    kept: int = 4_096  # a guess: messages that a node can bring to others
    kept_bytes: int = 1 << 24  # a guess: of these
    kept_for: int = 120 * SECOND  # a guess: many times what it takes to find out who is down, or was not
    fixed_root: bool = False  # all messages go by the lowest place's tree: the rival of section 6, never of use


DEFAULTS = VCubePBConfig()
