"""A live network as one page, written again with every window: its figures, and how they went over the last windows.

    history = History()
    history.add(follower.figures(), at=time.time())
    put(path, history.page(title="Following run", every=2.0))

Asks for what `libweft.bench.spark.follow.Follower.figures` answers, and forgives what is missing. The page tells when it was
written; `live.js` reloads it, says how old it is, and says plainly that it is stale when it has not been written for STALE turns.
A page that is the last says that it is, and is not reloaded. Times are of the clock, so this page alone is not the same twice.
Bounds: WINDOWS windows are remembered and drawn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from time import gmtime, strftime
from typing import Any, NamedTuple

from libweft.bench.report import chart_drawing
from libweft.bench.report.cards import card, nothing
from libweft.bench.report.chart_drawing import Line, Words
from libweft.bench.report.html import document
from libweft.bench.report.input import Point, number
from libweft.bench.report.scale import Axis, linear, of_shares
from libweft.bench.report.tables import box
from libweft.bench.report.text import DASH, decimals, escape, figure, percent, plain

WINDOWS = 150
STALE = 5  # turns without a new page
LEAST_S = 10.0  # that a page is not called stale before

Names = tuple[tuple[str, str], ...]
"""Figures with what they are called; a part of a spread is behind a dot."""

CHARTS: tuple[tuple[str, str, str, Names], ...] = (
    ("reliability", "Reliability", "share", (("reliability", "mean"), ("reliability_min", "least"))),
    ("latency", "Latency", "milliseconds", (("latency_ms.p50", "p50"), ("latency_ms.p99", "p99"))),
    ("rate", "Deliveries and copies", "a second", (("deliveries_per_s", "delivered"), ("sent_per_s", "sent"))),
    ("messages", "Messages", "a second", (("messages_per_s", "published"),)),
)
ROWS: tuple[tuple[str, str, str], ...] = (
    ("messages", "Messages published", ""),
    ("messages_per_s", "Messages a second", ""),
    ("judged", "Messages judged", ""),
    ("reliability", "Reliability, mean", "%"),
    ("reliability_min", "Reliability, least", "%"),
    ("deliveries", "Deliveries", ""),
    ("deliveries_per_s", "Deliveries a second", ""),
    ("duplicates", "Duplicates", ""),
    ("latency_ms.p50", "Latency p50", "ms"),
    ("latency_ms.p99", "Latency p99", "ms"),
    ("sent_per_s", "Copies sent a second", ""),
    ("bytes_per_s", "Bytes a second", ""),
    ("rows", "Rows read in all", ""),
    ("late_rows", "Rows that came too late", ""),
    ("age_s", "The window ended before", "s"),
    ("quiet_s", "No row since", "s"),
)


class Window(NamedTuple):
    at: float
    """By the clock, in seconds."""
    figures: Mapping[str, Any]

    def figure(self, name: str) -> float | None:
        name, _, part = name.partition(".")
        value = self.figures.get(name)
        if part:
            value = value.get(part) if isinstance(value, Mapping) else None
        return number(value)


class History:
    def __init__(self) -> None:
        self._windows: deque[Window] = deque(maxlen=WINDOWS)

    def add(self, figures: Mapping[str, Any], at: float) -> None:
        self._windows.append(Window(at, figures))

    def page(self, *, title: str, every: float, ended: bool = False) -> str:
        """As of the last window; `every` is how often one comes, in seconds."""
        windows = list(self._windows)
        written = windows[-1].at if windows else 0.0
        header = f"<header><h1>{escape(title)}</h1>{_age(written, every, ended)}{_tiles(windows)}</header>\n"
        charts = "".join(_chart(windows, written, *about) for about in CHARTS)
        over = f'<h2 id="history">The last {len(windows):,} windows</h2><div class="cards">{charts}</div>'
        now = f'<h2 id="now">The window now</h2>{_table(windows)}'
        body = f'<section aria-labelledby="history">{over}</section>\n<section aria-labelledby="now">{now}</section>\n'
        about = "Reliability is of messages that are ten seconds old at least. A dash stands for a figure that there is not."
        made = f"<footer><p>Made by <code>weft analyze --follow</code>. {about}</p></footer>\n"
        return document(title, f"{header}<main>\n{body}</main>\n{made}", ["page.js", "live.js"])


def _age(written: float, every: float, ended: bool) -> str:
    told = strftime("%Y-%m-%d %H:%M:%S UTC", gmtime(written))
    words = f"Ended: this is the last page, written at {told}." if ended else f"Written at {told}."
    stale = max(LEAST_S, STALE * every)
    facts = f'data-written="{written * 1_000:.0f}" data-stale="{stale:g}" data-every="{max(1.0, every):g}"'
    return f'<p id="age" class="age{" ended" if ended else ""}" role="status" {facts}>{words}</p>'


def _tiles(windows: list[Window]) -> str:
    last = windows[-1] if windows else Window(0.0, {})
    tiles = {
        "Reliability": (_text(last, "reliability", "%"), "delivered in time"),
        "Latency p99": (_text(last, "latency_ms.p99", "ms"), "from publish to delivery"),
        "Deliveries": (_text(last, "deliveries_per_s", ""), "a second"),
        "Messages": (_text(last, "messages_per_s", ""), "a second"),
    }
    shown = "".join(f"<div><dt>{name}</dt><dd>{value}<small>{below}</small></dd></div>" for name, (value, below) in tiles.items())
    return f'<dl class="tiles">{shown}</dl>'


def _chart(windows: list[Window], written: float, key: str, title: str, unit: str, names: Names) -> str:
    lines = [Line(label, 1 + place, _points(windows, written, name)) for place, (name, label) in enumerate(names)]
    lines = [line for line in lines if any(value is not None for _, value in line.points)]
    if not lines:
        return nothing(title, "no window has this figure yet")
    values = [value for line in lines for _, value in line.points if value is not None]
    shares = unit == "share"
    begin = min(-1.0, *(at for line in lines for at, _ in line.points))
    across = Axis(linear([begin, 0.0], tight=True), "seconds before this page")
    up = Axis(of_shares(values) if shares else linear(values, zero=True), unit if not shares else "delivered in time", shares)
    ends = [(line.label, line.points[-1][1]) for line in lines]
    said = "; ".join(f"{label}: now {up.exact(value)}" for label, value in ends if value is not None)
    return card(title, "", chart_drawing.lines(Words(key, title, said or "no figure now"), lines, across, up))


def _points(windows: list[Window], written: float, name: str) -> list[Point]:
    return [(window.at - written, window.figure(name)) for window in windows]


def _table(windows: list[Window]) -> str:
    if not windows:
        return '<p class="nothing">Nothing to show: no window yet.</p>'
    cells = [(escape(name), _text(windows[-1], key, unit)) for key, name, unit in ROWS]
    rows = "".join(f'<tr><th scope="row">{name}</th><td class="n">{text}</td></tr>' for name, text in cells)
    heads = '<thead><tr><th scope="col">Figure</th><th scope="col" class="n">Now</th></tr></thead>'
    return box("The window now", f"{heads}<tbody>{rows}</tbody>", 1)


def _text(window: Window, name: str, unit: str) -> str:
    value = window.figure(name)
    if value is None:
        return DASH
    text = percent(value) if unit == "%" else figure(value, 0 if float(value).is_integer() else min(2, decimals([value])))
    return f"{plain(text)} {unit}".rstrip()
