"""What a round trip tells of another clock: Cristian's estimate (Probabilistic clock synchronization, 1989, section 3).

The collector asks at `asked`, the peer answers with its own time `told`, and the answer is here at `answered`. Whatever the
two ways took, the peer's clock showed `told` at a moment between both, so what is to be added to it lies in
[asked - told, answered - told]: the middle is the estimate, half the round trip its error. How asymmetric the ways are
moves the truth inside that interval, never out of it.

A sample ages: two clocks drift apart by DRIFT. So the one that is kept is the one with the least error by now, and each
new round trip may replace it. Bounds: one sample.
"""

from __future__ import annotations

from typing import NamedTuple

DRIFT = 200e-6  # twice what cheap quartz does; NTP slews a clock by 500 ppm at most, but these ones are monotonic


class Offset(NamedTuple):
    """Add `offset` to the peer's time; the truth is within `error`. All in microseconds."""

    offset: int
    error: int


class Clock:
    """The clock of one peer, as seen from here."""

    def __init__(self) -> None:
        self._best: Offset | None = None
        self._at = 0

    def heard(self, asked: int, told: int, answered: int) -> None:
        error = (answered - asked + 1) // 2
        new = Offset((asked + answered) // 2 - told, error + 1)  # 1 for the rounding of both clocks
        old = self.now(answered)
        if old is None or new.error <= old.error or self._stepped(old, new):
            self._best, self._at = new, answered

    def now(self, at: int) -> Offset | None:
        """None before the first round trip."""
        if self._best is None:
            return None
        return Offset(self._best.offset, self._best.error + round(DRIFT * max(0, at - self._at)))

    def _stepped(self, old: Offset, new: Offset) -> bool:
        """No offset fits both: one of the hosts slept, and its clock with it."""
        return abs(old.offset - new.offset) > old.error + new.error
