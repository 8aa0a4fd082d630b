"""One chart as SVG: lines with their names at the end, dots with whiskers, and small panels of lines or bars.

A chart takes the width of its box and keeps its height, and its text keeps its size: across, places are percentages of
the plot; down, they are pixels. Only paths cannot have percentages, so they stand in an inner drawing (`_stretched`)
whose width is stretched without its strokes. Names and ticks stand in the margins, which the style sheet gives (classes
`plot-lines`, `plot-dots`, `plot-panel`). Colours are classes `c1` to `c6`, and `c0` where a chart has one colour alone.

Each chart has a title and a description for who does not see it; marks have titles that a browser shows on hovering.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from libweft.bench.report.input import Between, Point
from libweft.bench.report.scale import Axis
from libweft.bench.report.text import escape, short

HEIGHT = 230  # pixels of a plot, without its margins
PANEL_HEIGHT = 76
ROW_HEIGHT, ABOVE_HEIGHT = 24, 44  # of a dot whose name is beside or above it; the style sheet gives names the same
LABEL_HEIGHT = 15
LABEL_WIDTH = 18  # letters of a name at the end of its line
WIDTH = 1_000  # of the inner drawing, before it is stretched
POINTS = 400  # of a line; beyond it, only the extremes of each piece are drawn
MARKED = 12  # a line of so few points shows them


class Line(NamedTuple):
    label: str
    colour: int
    points: Sequence[Point]
    band: Sequence[Between] = ()
    """Its interval, drawn behind it."""


class Mark(NamedTuple):
    """A place on the axis across, such as an instant at which something happened."""

    at: float
    text: str


class Dot(NamedTuple):
    label: str
    colour: int
    value: float | None
    interval: tuple[float, float] | None
    text: str


class Bar(NamedTuple):
    low: float
    high: float
    amount: float


class Words(NamedTuple):
    """The name of a chart on the page, and what it says to who hears it; `key` makes its ids its own."""

    key: str
    title: str
    description: str


def lines(words: Words, series: Sequence[Line], x: Axis, y: Axis, marks: Sequence[Mark] = ()) -> str:
    """All in one plot, each with its name at its end."""
    body = [_grid(x, y, HEIGHT), _marks(marks, x, HEIGHT), _stretched(HEIGHT, _curves(series, x, y, HEIGHT))]
    body += [_reach(line, x, y) + _points(line, x, y, HEIGHT) for line in series]
    return _plot("plot-lines", words, HEIGHT, [*body, _ends(series, y)])


def panel(words: Words, line: Line, x: Axis, y: Axis, marks: Sequence[Mark] = (), backdrop: str = "") -> str:
    """One line of many, before all others in grey."""
    behind = f'<use href="#{backdrop}"/>' if backdrop else ""
    inner = _stretched(PANEL_HEIGHT, [behind, *_curves([line], x, y, PANEL_HEIGHT)])
    return _plot("plot-panel", words, PANEL_HEIGHT, [_ends_of_axes(x, y), _marks(marks, x, PANEL_HEIGHT), inner])


def backdrop(key: str, series: Iterable[Line], x: Axis, y: Axis) -> str:
    """Drawn nowhere, but there for every panel to use."""
    curves = "".join(_path(line, x, y, PANEL_HEIGHT, "behind") for line in series)
    return f'<svg class="store" width="0" height="0" aria-hidden="true"><defs><g id="{key}">{curves}</g></defs></svg>'


def bars(words: Words, colour: int, bins: Sequence[Bar], tallest: float, x: Axis, marks: Sequence[Mark] = ()) -> str:
    """A histogram; the area of a bar is its share, so bins need not be of one width."""
    inner = _stretched(PANEL_HEIGHT, [f'<path class="bars c{colour}" d="{_outline(bins, tallest, x)}"/>'])
    upright = _marks(marks, x, PANEL_HEIGHT)
    return _plot("plot-panel bare", words, PANEL_HEIGHT, [_ends_of_axes(x, None), inner, upright])


def tallness(bins: Sequence[Bar], x: Axis) -> list[float]:
    """The height of each bar: its share of all, over its width on the axis."""
    total = sum(bin_.amount for bin_ in bins) or 1
    widths = [x.scale.share(bin_.high) - x.scale.share(bin_.low) for bin_ in bins]
    return [bin_.amount / total / max(width, 1 / WIDTH) for bin_, width in zip(bins, widths, strict=True)]


def dots(words: Words, rows: Sequence[Dot], x: Axis, above: bool) -> str:
    """A row a run: the dot is the mean, the whisker its interval. Names stand above the dots or left of them."""
    size, inside = (ABOVE_HEIGHT, ABOVE_HEIGHT - 12) if above else (ROW_HEIGHT, ROW_HEIGHT / 2)
    drawn = [_dot(row, size * place + inside, x) for place, row in enumerate(rows)]
    bands = [f'<rect class="band" width="100%" y="{size * place}" height="{size}"/>' for place in range(1, len(rows), 2)]
    return _plot("plot-dots", words, size * len(rows), [*(bands if not above else ()), _uprights(x, size * len(rows)), *drawn])


def _plot(kind: str, words: Words, height: int, body: Iterable[str]) -> str:
    title, description = f"{words.key}-title", f"{words.key}-desc"
    return (
        f'<div class="plot {kind}"><svg role="img" aria-labelledby="{title} {description}" width="100%" height="{height}">'
        f'<title id="{title}">{escape(words.title)}</title><desc id="{description}">{escape(words.description)}</desc>'
        f"{''.join(body)}</svg></div>"
    )


def _stretched(height: int, body: Iterable[str]) -> str:
    size = f'width="100%" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    return f'<svg {size} preserveAspectRatio="none" overflow="visible">{"".join(body)}</svg>'


def _grid(x: Axis, y: Axis, height: int) -> str:
    drawn = [f'<text class="name" x="0" y="-12" dx="-44">{escape(y.name)}</text>']
    for tick in y.scale.ticks():
        at = _down(tick, y, height)
        drawn.append(f'<line class="grid" x1="0" x2="100%" y1="{at}" y2="{at}"/>')
        drawn.append(f'<text class="tick left" x="0" y="{at}" dx="-8" dy="4">{escape(y.text(tick))}</text>')
    return "".join(drawn) + _ticks(x, height)


def _ticks(x: Axis, height: int) -> str:
    texts = [(_across(tick, x), escape(x.text(tick))) for tick in x.scale.ticks()]
    drawn = [f'<text class="tick" x="{at}" y="{height + 18}">{text}</text>' for at, text in texts]
    return "".join(drawn) + f'<text class="name middle" x="50%" y="{height + 36}">{escape(x.name)}</text>'


def _uprights(x: Axis, height: int) -> str:
    places = [_across(tick, x) for tick in x.scale.ticks()]
    return "".join(f'<line class="grid" x1="{at}" x2="{at}" y1="0" y2="{height}"/>' for at in places) + _ticks(x, height)


def _ends_of_axes(x: Axis, y: Axis | None) -> str:
    """A panel has room for the ends alone."""
    base = f'<line class="base" x1="0" x2="100%" y1="{PANEL_HEIGHT}" y2="{PANEL_HEIGHT}"/>'
    low, high = escape(x.exact(x.scale.low)), escape(x.exact(x.scale.high))
    across = f'<text class="tick first" x="0" y="{PANEL_HEIGHT + 15}">{low}</text>'
    across += f'<text class="tick left" x="100%" y="{PANEL_HEIGHT + 15}">{high}</text>'
    if y is None:
        return base + across
    down = f'<text class="tick left" x="0" y="{PANEL_HEIGHT}" dx="-6">{escape(y.text(y.scale.low))}</text>'
    return base + across + down + f'<text class="tick left" x="0" y="0" dx="-6" dy="9">{escape(y.text(y.scale.high))}</text>'


def _marks(marks: Sequence[Mark], x: Axis, height: int) -> str:
    places = [(_across(mark.at, x), escape(mark.text)) for mark in marks]
    kind = f'class="mark" y1="0" y2="{height}"'
    return "".join(f'<line {kind} x1="{at}" x2="{at}"><title>{text}</title></line>' for at, text in places)


def _curves(series: Sequence[Line], x: Axis, y: Axis, height: int) -> list[str]:
    """No band covers a line."""
    return [*(_band(line, x, y, height) for line in series), *(_curve(line, x, y, height) for line in series)]


def _band(line: Line, x: Axis, y: Axis, height: int) -> str:
    if len(line.band) < 2:
        return ""
    round_it = [*((at, high) for at, _, high in line.band), *((at, low) for at, low, _ in reversed(line.band))]
    drawn = "L".join(_place(at, value, x, y, height) for at, value in round_it)
    return f'<path class="sure c{line.colour}" d="M{drawn}"/>'


def _curve(line: Line, x: Axis, y: Axis, height: int) -> str:
    return _path(line, x, y, height, f"line c{line.colour}", f"<title>{escape(line.label)}</title>")


def _path(line: Line, x: Axis, y: Axis, height: int, kind: str, inner: str = "") -> str:
    pieces = [piece for piece in _pieces(_thinned(line.points)) if len(piece) > 1]
    drawn = "".join(f"M{'L'.join(_place(at, value, x, y, height) for at, value in piece)}" for piece in pieces)
    return f'<path class="{kind}" d="{drawn}">{inner}</path>' if drawn else ""


def _pieces(points: Sequence[Point]) -> list[list[tuple[float, float]]]:
    """Cut where a value is missing."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for at, value in points:
        if value is not None:
            pieces[-1].append((at, value))
        elif pieces[-1]:
            pieces.append([])
    return pieces


def _thinned(points: Sequence[Point]) -> Sequence[Point]:
    """The lowest and the highest of each piece stay: a dip must not vanish with the points between."""
    if len(points) <= POINTS:
        return points
    size = -(-2 * len(points) // POINTS)
    kept: list[Point] = []
    for start in range(0, len(points), size):
        piece = [point for point in points[start : start + size] if point[1] is not None]
        kept += sorted({min(piece, key=_value), max(piece, key=_value)}) if piece else [points[start]]
    return kept


def _value(point: Point) -> float:
    return point[1] or 0.0


def _points(line: Line, x: Axis, y: Axis, height: int) -> str:
    """Of a line that has few, and of any that stands alone between gaps and so has no line to it."""
    pieces = _pieces(line.points)
    few = len(line.points) <= MARKED
    shown = [point for piece in pieces if few or len(piece) == 1 for point in piece]
    return "".join(_point(line, at, value, x, y, height) for at, value in shown)


def _point(line: Line, at: float, value: float, x: Axis, y: Axis, height: int) -> str:
    words = escape(f"{line.label}: {y.exact(value)} at {x.exact(at)}")
    place = f'cx="{_across(at, x)}" cy="{_down(value, y, height)}"'
    return f'<circle class="dot c{line.colour}" {place} r="3"><title>{words}</title></circle>'


def _reach(line: Line, x: Axis, y: Axis) -> str:
    """From the last point of a line that ends early to its name."""
    at, value = next(((at, value) for at, value in reversed(line.points) if value is not None), (x.scale.high, None))
    if value is None or x.scale.share(at) > 0.99:
        return ""
    height = _down(value, y, HEIGHT)
    return f'<line class="reach c{line.colour}" x1="{_across(at, x)}" x2="100%" y1="{height}" y2="{height}"/>'


def _ends(series: Sequence[Line], y: Axis) -> str:
    """Names beside the ends of their lines, moved apart where they would meet."""
    last = [(line, next((value for _, value in reversed(line.points) if value is not None), None)) for line in series]
    ends = [(line, HEIGHT * (1 - y.scale.share(value))) for line, value in last if value is not None]
    ends.sort(key=lambda end: end[1])
    places = _apart([at for _, at in ends])
    drawn = [_end(line, at, place) for (line, at), place in zip(ends, places, strict=True)]
    return f'<svg x="100%" overflow="visible">{"".join(drawn)}</svg>'


def _end(line: Line, at: float, place: float) -> str:
    leader = f'<path class="leader c{line.colour}" d="M1 {_short(at)}L9 {_short(place)}"/>'
    name = f"{escape(short(line.label, LABEL_WIDTH))}<title>{escape(line.label)}</title>"
    return f'{leader}<text class="end c{line.colour}" x="12" y="{_short(place)}" dy="4">{name}</text>'


def _apart(places: Sequence[float]) -> list[float]:
    """Sorted places, each a label's height below the one before, and none below the plot."""
    down: list[float] = []
    for place in places:
        down.append(max(place, down[-1] + LABEL_HEIGHT) if down else place)
    up: list[float] = []
    for place in reversed(down):
        up.append(min(place, up[-1] - LABEL_HEIGHT if up else HEIGHT))
    return up[::-1]


def _dot(row: Dot, y: float, x: Axis) -> str:
    if row.value is None:
        return ""
    drawn = f'<text class="value" x="100%" y="{_short(y)}" dx="10" dy="4">{escape(row.text)}</text>'
    if row.interval is not None:
        low, high = (_across(end, x) for end in row.interval)
        drawn += f'<line class="whisker c{row.colour}" x1="{low}" x2="{high}" y1="{_short(y)}" y2="{_short(y)}"/>'
    title = f"<title>{escape(f'{row.label}: {row.text}')}</title>"
    return f'{drawn}<circle class="dot c{row.colour}" cx="{_across(row.value, x)}" cy="{_short(y)}" r="5">{title}</circle>'


def _outline(bins: Sequence[Bar], tallest: float, x: Axis) -> str:
    drawn = []
    for bin_, height in zip(bins, tallness(bins, x), strict=True):
        left, right = WIDTH * x.scale.share(bin_.low), WIDTH * x.scale.share(bin_.high)
        top = PANEL_HEIGHT * (1 - height / tallest)
        drawn.append(f"M{_short(left)} {PANEL_HEIGHT}V{_short(top)}H{_short(max(right, left + 1))}V{PANEL_HEIGHT}Z")
    return "".join(drawn)


def _place(at: float, value: float, x: Axis, y: Axis, height: int) -> str:
    return f"{_short(WIDTH * x.scale.share(at))} {_down(value, y, height)}"


def _across(value: float, x: Axis) -> str:
    return f"{_short(100 * x.scale.share(value))}%"


def _down(value: float, y: Axis, height: int) -> str:
    return _short(height * (1 - y.scale.share(value)))


def _short(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
