"""Confidence intervals for a mean over a few runs, by Student's t-distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import stdev


def half_width(values: Sequence[float], confidence: float) -> float | None:
    """Return half the width of the interval around the mean of `values`, or None for a single value, which has no deviation."""
    if len(values) < 2:
        return None
    return student(confidence, len(values) - 1) * stdev(values) / math.sqrt(len(values))


def student(confidence: float, freedom: int) -> float:
    """Return t such that |T| < t with probability `confidence`, where T has `freedom` degrees of freedom."""
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < confidence else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _within(angle: float, freedom: int) -> float:
    """Return P(|T| < t) for t = sqrt(freedom) tan(angle): Abramowitz and Stegun, 26.7.3 (odd) and 26.7.4 (even)."""
    if freedom % 2:
        total, term = 2 * angle / math.pi, 2 / math.pi * math.sin(angle) * math.cos(angle)
    else:
        total, term = 0.0, math.sin(angle)
    for k in range(2 + freedom % 2, freedom + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (k - 1) / k
    return total
