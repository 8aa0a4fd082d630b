"""The boxes that charts stand in: a card for one plot, panels for many runs, and a line where there is nothing to show.

A chart of up to OVERLAID runs draws them in one plot, each in its own colour, which is the same in the whole report. More
runs get a panel each, in one colour, with all others in grey behind it; beyond PANELS the card says how many it left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from libweft.bench.report import chart_drawing
from libweft.bench.report.chart_drawing import Line, Mark, Words
from libweft.bench.report.input import Between, Given, Point, Run
from libweft.bench.report.scale import Axis
from libweft.bench.report.text import escape

OVERLAID = 6  # runs in one plot, as many as there are colours that nobody mixes up
PANELS = 24
NARROW = 2  # panels that fit beside another card

Marks = Callable[[Sequence[Run]], list[Mark]]
"""The instants to be shown in a plot of these runs."""


class Series(NamedTuple):
    run: Run
    points: list[Point]
    band: Sequence[Between] = ()


class Axes(NamedTuple):
    x: Axis
    y: Axis


def key_colour(given: Given, run: Run) -> int:
    """The run's own colour, 1 to OVERLAID; 0 where there are more runs than colours."""
    return 1 + given.runs.index(run) if len(given.runs) <= OVERLAID else 0


def curves(given: Given, words: Words, series: Sequence[Series], axes: Axes, marks: Marks | None = None) -> str:
    """A line a run: in one plot, or in a panel each."""
    if len(series) > OVERLAID:
        return _separate(given, words, series, axes, marks)
    lines = [Line(one.run.label, key_colour(given, one.run) or at, one.points, one.band) for at, one in enumerate(series, 1)]
    instants = marks([one.run for one in series]) if marks else []
    heard = words._replace(description="; ".join(_heard(line, axes) for line in lines))
    plot = chart_drawing.lines(heard, lines, axes.x, axes.y, instants)
    return card(words.title, words.description, plot, "wide" if marks else "")


def _separate(given: Given, words: Words, series: Sequence[Series], axes: Axes, marks: Marks | None) -> str:
    lines = [Line(one.run.label, 0, one.points, one.band) for one in series]
    drawn = []
    for place, (one, line) in enumerate(zip(series[:PANELS], lines, strict=False)):
        own = Words(f"{words.key}-{place}", f"{words.title}: {line.label}", _heard(line, axes))
        plot = chart_drawing.panel(own, line, axes.x, axes.y, marks([one.run]) if marks else [], f"{words.key}-all")
        drawn.append(panel(given, one.run, plot))
    behind = chart_drawing.backdrop(f"{words.key}-all", lines, axes.x, axes.y)
    about = f"{words.description} Across: {axes.x.name}; up: {axes.y.name}. In grey: all runs.".strip()
    return panels(words.title, about, drawn, len(series), behind)


def _heard(line: Line, axes: Axes) -> str:
    """A line in words: where it begins, where it ends, and between which values it runs."""
    points = [(at, value) for at, value in line.points if value is not None]
    first, last = (f"{axes.y.exact(value)} at {axes.x.exact(at)}" for at, value in (points[0], points[-1]))
    values = [value for _, value in points]
    return f"{line.label}: from {first} to {last}, least {axes.y.exact(min(values))}, most {axes.y.exact(max(values))}"


def panel(given: Given, run: Run, drawn: str) -> str:
    colour = key_colour(given, run)
    key = f'<i class="key c{colour}"></i>' if colour else ""
    return f'<div class="panel"><p title="{escape(run.label)}">{key}{escape(run.label)}</p>{drawn}</div>'


def panels(title: str, about: str, drawn: Sequence[str], runs: int, behind: str = "") -> str:
    note = f" <strong>The first {len(drawn)} of {runs} runs are shown.</strong>" if runs > len(drawn) else ""
    body = f'{behind}<div class="panels">{"".join(drawn)}</div>'
    same = " All panels have the same axes." if runs > 1 else ""
    return card(title, about + same, body, "wide" if len(drawn) > NARROW else "", note)


def card(title: str, about: str, drawn: str, kind: str = "", note: str = "") -> str:
    words = f"<p>{escape(about)}{note}</p>" if about or note else ""
    caption = f"<figcaption><h4>{escape(title)}</h4>{words}</figcaption>"
    return f'<figure class="{f"card {kind}".rstrip()}">{caption}{drawn}</figure>'


def more(title: str, cards: Sequence[str]) -> str:
    """Cards that are there for who asks."""
    inner = f'<summary>{escape(title)}</summary><div class="cards">{"".join(cards)}</div>'
    return f'<details class="more">{inner}</details>' if cards else ""


def nothing(title: str, why: str) -> str:
    return f'<p class="nothing"><strong>{escape(title)}.</strong> Nothing to show: {escape(why)}.</p>'
