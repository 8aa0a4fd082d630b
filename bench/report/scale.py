"""From figures to places on an axis: a scale, its ticks, and how a tick is written.

A scale ends where ticks stand, and never has no width: a single value gets some room around it. Steps are 1, 2 or 5 times
a power of ten; an axis over several powers of ten is logarithmic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from libweft.bench.report.text import decimals, figure, percent, plain

TICKS = 5


class Scale(NamedTuple):
    low: float
    high: float
    step: float = 1.0
    log: bool = False

    def share(self, value: float) -> float:
        """Where it lies between the ends, from 0 to 1; what lies outside is moved to the end."""
        low, high, value = (self._inner(number) for number in (self.low, self.high, value))
        return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.5

    def ticks(self) -> list[float]:
        if self.log:
            return _log_ticks(self.low, self.high)
        first, last = math.ceil(self.low / self.step - 1e-9), math.floor(self.high / self.step + 1e-9)
        return [place * self.step for place in range(first, last + 1)]

    def _inner(self, value: float) -> float:
        return math.log10(max(value, self.low)) if self.log else value


class Axis(NamedTuple):
    scale: Scale
    name: str
    percent: bool = False

    def text(self, value: float) -> str:
        """As many decimals as the step has."""
        factor = 100 if self.percent else 1
        places = max(0, -math.floor(math.log10(self.scale.step * factor) + 1e-9)) if not self.scale.log else 6
        text = plain(f"{value * factor or 0:,.{places}f}")
        return f"{text} %" if self.percent else text

    def exact(self, value: float) -> str:
        """As a table would say it."""
        return f"{percent(value)} %" if self.percent else plain(figure(value, max(2, decimals([value]))))


def linear(
    values: Iterable[float],
    *,
    ceiling: float | None = None,
    span: float = 0.0,
    zero: bool = False,
    whole: bool = False,
    tight: bool = False,
    most: int = TICKS,
) -> Scale:
    """Around these values, in round steps: `span` wide at least, not above the ceiling; from nought, in whole steps, or
    ending where the values do, where asked."""
    found = list(values)
    low, high = (min(found), max(found)) if found else (0.0, 1.0)
    low, high = _widen(min(low, 0.0) if zero else low, high, span, ceiling)
    step = max(_step(high - low, most), 1.0 if whole else 0.0)
    if not tight:
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return Scale(low, high if ceiling is None else min(high, ceiling), step)


def of_shares(values: Iterable[float], most: int = TICKS) -> Scale:
    """Not above one, and wide enough that a difference of a thousandth looks small."""
    return linear(values, ceiling=1.0, span=0.01, most=most)


def logarithmic(values: Iterable[float]) -> Scale:
    """Over the positive ones among these, at least a factor of two."""
    found = [value for value in values if value > 0] or [1.0]
    low, high = min(found), max(found)
    return Scale(low, max(high, 2 * low), log=True)


def _widen(low: float, high: float, span: float, ceiling: float | None) -> tuple[float, float]:
    if ceiling is not None:
        low, high = min(low, ceiling), min(high, ceiling)
    wanted = span or (0.0 if high > low else 0.2 * abs(high) or 1.0)
    if high - low >= wanted:
        return low, high
    if ceiling is not None:
        high = min(ceiling, high + wanted / 2)
        return high - wanted, high
    centre = (low + high) / 2
    return (centre - wanted / 2, centre + wanted / 2) if low > 0 or high < 0 else (low, low + wanted)


def _step(width: float, most: int) -> float:
    """The smallest round one that needs no more than so many."""
    power = 10.0 ** math.floor(math.log10(width / most))
    return next(power * factor for factor in (1, 2, 5, 10, 20) if width / (power * factor) <= most)


def _log_ticks(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors in ((1,), (1, 3), (1, 2, 5)):
        ticks = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
        inside = [tick for tick in ticks if low <= tick * (1 + 1e-9) and tick <= high * (1 + 1e-9)]
        if len(inside) >= 3:
            break
    return inside[:: -(-len(inside) // (TICKS + 2)) or 1]
