"""A sweep as one page: the grid, each measure against each swept parameter with its intervals, a line a stack, and what failed.

    write_sweep(libweft.bench.sweep.execution.sweep(...), Path("sweep.html"), title="Crashes")

Asks for what `libweft.bench.sweep.execution.sweep` answers, and forgives what is missing. The grid is a table of every point; the
charts are drawn by `sweep.js` from data in the page, since there are too many to draw all: one a parameter, of the measure that
is picked, with the other parameters held at values that are picked too. Without scripts the table says the same.

Promises what the report does: one file, nothing loaded, text escaped in one place, the same bytes for the same result.
Bounds: POINTS rows of the table, FAILURES failures, all points in the charts, of which a plan bounds the number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from libweft.bench.report.html import document
from libweft.bench.report.input import number
from libweft.bench.report.tables import box, command
from libweft.bench.report.text import DASH, data, decimals, escape, figure, heading, percent

POINTS = 2_000
FAILURES = 100
LINES = ("stack", "router", "variants", "variant")
"""Axes of which each value is a line, the first that there is."""
FIRST = ("reliability", "rmr", "latency_ms_p99", "latency_ms_mean", "last_ms", "ldh_mean", "control_messages", "bytes")
"""Measures in the table, and the order in which they are offered before all others."""
SHARES = ("reliability", "reliability_min", "false_positives")
NAMES = {"rmr": "redundancy (RMR)", "ldh_mean": "last delivery hop, mean", "ldh_max": "last delivery hop, max"}


class Axis(NamedTuple):
    name: str
    values: list[str]
    numbers: list[float] | None
    """Where all of them are numbers."""


class Point(NamedTuple):
    place: list[int]
    """Of its value on each axis."""
    runs: int
    failed: int
    measures: dict[str, list[float | None]]
    """Mean, low and high."""


class Grid(NamedTuple):
    axes: list[Axis]
    points: list[Point]
    measures: list[str]


def render_sweep(result: Mapping[str, Any], *, title: str) -> str:
    grid = read(result)
    failures = [failure for failure in result.get("failures") or () if isinstance(failure, Mapping)]
    body = [_header(title, result, grid, failures), _failed(failures), _charts(grid), _table(grid), _footer()]
    return document(title, "".join(body), ["page.js", "sweep.js"])


def read(result: Mapping[str, Any]) -> Grid:
    points = [point for point in result.get("points") or () if isinstance(point, Mapping)]
    settings = [_settings(point) for point in points]
    names = list(dict.fromkeys(name for each in settings for name in each))
    axes = [_axis(name, [each.get(name) for each in settings]) for name in names]
    places = [[axis.values.index(_text(each.get(axis.name))) for axis in axes] for each in settings]
    found = [_point(point, place) for point, place in zip(points, places, strict=True)]
    known = list(dict.fromkeys(name for point in found for name in point.measures))
    return Grid(axes, found, [*(name for name in FIRST if name in known), *sorted(set(known) - set(FIRST))])


def _settings(point: Mapping[str, Any]) -> dict[str, Any]:
    settings = point.get("settings")
    return {str(name): value for name, value in settings.items()} if isinstance(settings, Mapping) else {}


def _axis(name: str, values: Sequence[object]) -> Axis:
    """Values in the order of the plan, numbers by their size."""
    different = {_text(value): value for value in values}
    amounts = {text: number(value) for text, value in different.items()}
    told = [amount for amount in amounts.values() if amount is not None]
    if told and len(told) == len(amounts):
        texts = sorted(amounts, key=lambda text: amounts[text] or 0.0)
        return Axis(name, texts, sorted(told))
    return Axis(name, list(different), None)


def _point(point: Mapping[str, Any], place: list[int]) -> Point:
    measures = point.get("measures")
    spreads = measures.items() if isinstance(measures, Mapping) else ()
    found = {str(name): [number(spread.get(part)) for part in ("mean", "low", "high")] for name, spread in spreads if spread}
    runs, failed = (number(point.get(name)) or 0 for name in ("runs", "failed"))
    return Point(place, int(runs), int(failed), {name: ends for name, ends in found.items() if ends[0] is not None})


def _text(value: object) -> str:
    return DASH if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _header(title: str, result: Mapping[str, Any], grid: Grid, failures: Sequence[object]) -> str:
    seeds = len(result.get("seeds") or ())
    runs = sum(point.runs for point in grid.points)
    tiles = {
        "Points": (f"{len(grid.points):,}", "of the grid"),
        "Seeds": (f"{seeds:,}", "of each point"),
        "Runs": (f"{runs:,}", "summed up here"),
        "Failures": (f"{len(failures):,}", "replays below" if failures else "all runs ended well"),
    }
    shown = "".join(f"<div><dt>{name}</dt><dd>{value}<small>{below}</small></dd></div>" for name, (value, below) in tiles.items())
    links = {"failures": "Failures", "charts": "Charts", "grid": "The grid"}
    nav = "".join(f'<a href="#{key}">{name}</a>' for key, name in links.items() if key != "failures" or failures)
    header = f'<h1>{escape(title)}</h1><dl class="tiles">{shown}</dl><nav aria-label="On this page">{nav}</nav>'
    return f"<header>{header}</header>\n<main>\n"


def _failed(failures: Sequence[Mapping[str, Any]]) -> str:
    if not failures:
        return ""
    items = "".join(_failure(failure) for failure in failures[:FAILURES])
    left = len(failures) - FAILURES
    more = f"<li>and {left:,} more, which --json shows</li>" if left > 0 else ""
    heading_ = '<h2 id="failures">Failures</h2>'
    return f'<section class="warnings" aria-labelledby="failures">{heading_}<ul>{items}{more}</ul></section>\n'


def _failure(failure: Mapping[str, Any]) -> str:
    where = escape(f"{_text(failure.get('point'))}, seed {_text(failure.get('seed'))}: {_text(failure.get('error'))}")
    return f"<li>{where}<br>replay: {command(failure.get('replay'))}</li>"


def _charts(grid: Grid) -> str:
    about = (
        "A line is a stack. The dot is the mean over the seeds, the whisker its 95 % confidence interval (Student); none where "
        "there is one seed. A chart holds the other parameters at the values that are picked here."
    )
    if not grid.points or not grid.measures:
        return _section("charts", "Charts", "", '<p class="nothing">Nothing to show: no run of the sweep came to its end.</p>')
    measures = "".join(f'<option value="{place}">{escape(label(name))}</option>' for place, name in enumerate(grid.measures))
    several = [(place, axis) for place, axis in enumerate(grid.axes) if len(axis.values) > 1]
    picks = "".join(_pick(place, axis) for place, axis in several) if len(several) > 1 else ""  # else it is the one chart's axis
    controls = f'<div class="controls"><label>Measure <select class="measure">{measures}</select></label>{picks}</div>'
    drawn = f'<div id="sweep" hidden>{controls}<ul class="legend"></ul><div class="cards plots"></div></div>'
    plain = '<p class="nothing without">A script draws the charts; this browser runs none. The grid below has the figures.</p>'
    stored = f'<script type="application/json" id="sweep-data">{data(_columns(grid))}</script>'
    return _section("charts", "Charts", about, drawn + plain + stored)


def _pick(place: int, axis: Axis) -> str:
    """A value to hold the axis at; of the axis whose values are lines, which of them are shown."""
    options = "".join(f'<option value="{value}">{escape(text)}</option>' for value, text in enumerate(axis.values))
    every = '<option value="-1" selected>all</option>' if axis.name in LINES else ""
    return f'<label>{escape(axis.name)} <select class="held" data-axis="{place}">{every}{options}</select></label>'


def _columns(grid: Grid) -> dict[str, object]:
    places = [place for name in LINES for place, axis in enumerate(grid.axes) if axis.name == name]
    return {
        "lines": places[0] if places else -1,
        "axes": [{"name": axis.name, "values": axis.values, "numbers": axis.numbers} for axis in grid.axes],
        "measures": [{"name": label(name), "share": name in SHARES} for name in grid.measures],
        "points": [[point.place, [point.measures.get(name) for name in grid.measures]] for point in grid.points],
    }


def label(measure: str) -> str:
    """`latency_ms_p99` is read as "latency p99, ms"."""
    if measure in NAMES:
        return NAMES[measure]
    stem, unit, part = measure.partition("_ms_")
    return f"{stem.replace('_', ' ')} {part}, ms" if unit else heading(measure)


def _table(grid: Grid) -> str:
    shown = [name for name in FIRST if name in grid.measures]
    heads = [*(axis.name for axis in grid.axes), "runs", *(["failed"] if any(point.failed for point in grid.points) else [])]
    first = "".join(f'<th scope="col"{_side(axis.numbers is not None)}>{escape(axis.name)}</th>' for axis in grid.axes)
    counts = "".join(f'<th scope="col" class="n">{name}</th>' for name in heads[len(grid.axes) :])
    measured = "".join(f'<th scope="col" class="n">{escape(_head(name))}</th>' for name in shown)
    means = {name: [point.measures[name][0] or 0.0 for point in grid.points if name in point.measures] for name in shown}
    places = {name: decimals(found) for name, found in means.items()}
    rows = "".join(_row(grid, point, places, "failed" in heads) for point in grid.points[:POINTS])
    left = len(grid.points) - POINTS
    rest = f'<p class="rest">{left:,} more points are not shown; --csv has all runs.</p>' if left > 0 else ""
    table = box("The grid", f"<thead><tr>{first}{counts}{measured}</tr></thead><tbody>{rows}</tbody>", len(grid.points))
    empty = '<p class="nothing">Nothing to show: the sweep has no points.</p>'
    about = "A row a point: means over its runs, with the 95 % interval below each."
    return _section("grid", "The grid", about, table + rest if grid.points else empty)


def _head(name: str) -> str:
    return f"{label(name)},\u00a0%" if name in SHARES else label(name)


def _row(grid: Grid, point: Point, places: Mapping[str, int], failed: bool) -> str:
    cells = [_setting(axis, place) for axis, place in zip(grid.axes, point.place, strict=True)]
    cells += [_cell(f"{count:,}", count) for count in (point.runs, *([point.failed] if failed else []))]
    cells += [_mean(point.measures.get(name), name in SHARES, digits) for name, digits in places.items()]
    return f"<tr>{''.join(cells)}</tr>"


def _setting(axis: Axis, place: int) -> str:
    text = axis.values[place]
    return _cell(text, axis.numbers[place]) if axis.numbers is not None else f'<td class="short"><bdi>{escape(text)}</bdi></td>'


def _mean(ends: Sequence[float | None] | None, share: bool, places: int) -> str:
    if ends is None or ends[0] is None:
        return f'<td class="n">{DASH}</td>'
    mean, low, high = (percent(end) if share else figure(end, places) for end in ends)
    interval = "" if ends[1] is None or ends[2] is None else f"<small>{low} to {high}</small>"
    return _cell(mean, ends[0], interval)


def _cell(text: str, value: float, below: str = "") -> str:
    return f'<td class="n" data-v="{value!r}">{escape(text)}{below}</td>'


def _side(is_number: bool) -> str:
    return ' class="n"' if is_number else ""


def _section(key: str, title: str, about: str, body: str) -> str:
    words = f'<p class="about">{about}</p>' if about else ""
    return f'<section aria-labelledby="{key}"><h2 id="{key}">{title}</h2>{words}{body}</section>\n'


def _footer() -> str:
    made = "Made by <code>weft sweep</code>. A dash stands for a figure that there is not. What each measure is, "
    return f"</main>\n<footer><p>{made}<code>docs/architecture.md</code> says.</p></footer>\n"
