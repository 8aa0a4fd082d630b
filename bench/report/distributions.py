"""Counts in bins, as latency and load have them: drawn as sums, and as histograms.

A bin may have any width, and the last may have no end. An axis is linear from nought, but logarithmic where the largest
value is more than TAIL times the median: else one straggler would press all others against the left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from libweft.bench.report import chart_drawing
from libweft.bench.report.cards import OVERLAID, PANELS, Axes, Series, curves, key_colour, nothing, panel, panels
from libweft.bench.report.chart_drawing import Bar, Mark, Words
from libweft.bench.report.input import Given, Point, Run, Table, number
from libweft.bench.report.scale import Axis, Scale, linear, logarithmic
from libweft.bench.report.text import decimals, figure, plain

TAIL = 15
KNOWN = {
    "delivery": ("Latency to delivery", "latency_ms"),
    "reception": ("Latency to reception", "reception_ms"),
    "held back": ("Time held back", ""),
}
"""For what was counted: how it is called here, and which figure of a run is about the same."""


class Bins(NamedTuple):
    run: Run
    bars: list[Bar]


class Distribution(NamedTuple):
    what: str
    of_runs: list[Bins]


def distributions(given: Given, name: str, columns: tuple[str, str, str]) -> list[Distribution]:
    """For each `what` of the table, the runs that have counts there; the columns are low, high and count."""
    table = given.table(name)
    places = [table.place(column) for column in columns] if table else [None]
    if table is None or None in places:
        return []
    found = []
    for what in table.values("what") or [""]:
        rows = table.where("what", what)
        bins = [Bins(run, bars) for run in given.runs if (bars := _bars(rows.where("run", run.number), places))]
        found.append(Distribution("" if what is None else str(what), bins))
    return [one for one in found if one.of_runs]


def titled(what: str) -> str:
    return KNOWN[what][0] if what in KNOWN else f"Latency: {what}"


def cumulative(given: Given, key: str, title: str, distribution: Distribution) -> str:
    """A line a run, none where no run has two bins."""
    if _in_one(distribution):
        return ""
    axes = Axes(_axis(distribution, "milliseconds"), Axis(Scale(0.0, 1.0, 0.25), "share that came within", percent=True))
    series = [
        Series(run, _sums(bars, axes.x.scale.high), given.bands.get((run.number, distribution.what), ()))
        for run, bars in distribution.of_runs
    ]
    if len(series) <= OVERLAID:
        series.sort(key=_half_way)  # the names at the right stand in the order of the lines
    sure = " The band is the 95 % confidence interval over the messages of the run." if any(one.band for one in series) else ""
    return curves(given, Words(key, title, f"Further left is faster.{sure}"), series, axes)


def histogram(given: Given, key: str, title: str, distribution: Distribution) -> str:
    """A panel a run; none where no run has two bins, since that is no picture."""
    if _in_one(distribution):
        highest = max(one.bars[-1].high for one in distribution.of_runs)
        return nothing(title, f"in every run all lie in one bin, below {plain(figure(highest, decimals([highest])))}")
    x, bins = _axis(distribution, title), distribution.of_runs
    tallest = max(height for one in bins for height in chart_drawing.tallness(one.bars, x))
    drawn, marked = [], False
    for place, one in enumerate(bins[:PANELS]):
        marks = _percentiles(one.run, distribution.what)
        marked = marked or bool(marks)
        words = Words(f"{key}-{place}", f"{title}: {one.run.label}", _said(one.bars, marks))
        drawn.append(panel(given, one.run, chart_drawing.bars(words, key_colour(given, one.run), one.bars, tallest, x, marks)))
    about = f"The area over a range is the share that lies in it.{' The upright lines are p50 and p99.' if marked else ''}"
    return panels(f"{title}: distribution", about + (" The axis is logarithmic." if x.scale.log else ""), drawn, len(bins))


def _in_one(distribution: Distribution) -> bool:
    return all(len(one.bars) == 1 for one in distribution.of_runs)


def _bars(table: Table, places: Sequence[int | None]) -> list[Bar]:
    """Those that count something, by size. A bin without an end is as wide as its low end is large."""
    found = []
    for row in table.rows:
        low, high, amount = (number(row[place]) for place in places if place is not None)
        low = low or 0.0
        if amount is not None and amount > 0:
            found.append(Bar(low, high if high is not None and high > low else 2 * low or 1.0, amount))
    return sorted(found)


def _axis(distribution: Distribution, name: str) -> Axis:
    bars = sorted((bar for one in distribution.of_runs for bar in one.bars), key=lambda bar: bar.high)
    largest = bars[-1].high
    if largest > TAIL * _median(bars):
        return Axis(logarithmic([*(bar.low or bar.high / 2 for bar in bars), largest]), f"{name} (logarithmic)")
    return Axis(linear((bar.high for bar in bars), zero=True), name)


def _median(bars: Sequence[Bar]) -> float:
    """The end of the bin that holds it; bars are in order."""
    half, passed = sum(bar.amount for bar in bars) / 2, 0.0
    for bar in bars:
        passed += bar.amount
        if passed >= half:
            return bar.high
    return bars[-1].high


def _sums(bars: Sequence[Bar], end: float) -> list[Point]:
    total, passed = sum(bar.amount for bar in bars), 0.0
    points: list[Point] = [(bars[0].low, 0.0)]
    for bar in bars:
        passed += bar.amount
        points.append((bar.high, passed / total))
    return [*points, (end, 1.0)]


def _half_way(series: Series) -> float:
    return next(at for at, share in series.points if share is not None and share >= 0.5)


def _percentiles(run: Run, what: str) -> list[Mark]:
    spread = KNOWN[what][1] if what in KNOWN else ""
    found = [(part, run.figure(spread, part)) for part in ("p50", "p99")]
    return [Mark(value, f"{part} {figure(value, decimals([value]))}") for part, value in found if value is not None]


def _said(bars: Sequence[Bar], marks: Iterable[Mark]) -> str:
    total = sum(bar.amount for bar in bars)
    span = f"{figure(total, 0)} from {figure(bars[0].low, 1)} to {figure(bars[-1].high, 1)}"
    return ", ".join([span, *(mark.text for mark in marks)])
