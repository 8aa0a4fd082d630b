"""Text for the page: the one place that escapes, and the rules by which figures are rounded.

Rounding never says more or less than is so: what is not nought is not shown as nought, and a share below one is not shown
as 100 %; such a figure gets more digits than its neighbours. The figures of one column share their number of decimals, so
that points stand under each other.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping
from unicodedata import east_asian_width

DASH = "\u2013"
"""Stands for a figure that there is not."""

MORE = 8  # decimals at most, where two would round a share to all or nothing
_STRANGE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_SUFFIXES = {"ms": "ms", "s": "s"}


def escape(text: object) -> str:
    """Safe between tags and inside quoted attributes. Controls, also those that turn the line around, become visible."""
    return html.escape(_STRANGE.sub("\ufffd", str(text)), quote=True)


def data(value: object) -> str:
    """As JSON that is safe inside a script element: nothing in it ends the element or begins another."""
    text = json.dumps(_visible(value), separators=(",", ":"), allow_nan=False)  # in ASCII alone
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _visible(value: object) -> object:
    if isinstance(value, str):
        return _STRANGE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {_STRANGE.sub("\ufffd", str(key)): _visible(item) for key, item in value.items()}
    return [_visible(item) for item in value] if isinstance(value, list | tuple) else value


def short(text: str, width: int) -> str:
    """At most so many columns; the middle goes, since names of a sweep differ at either end."""
    if _width(text) <= width:
        return text
    head, tail = "", ""
    while _width(head) + _width(tail) + 1 < width and len(head) + len(tail) < len(text):
        if len(head) <= len(tail):
            head += text[len(head)]
        else:
            tail = text[-len(tail) - 1] + tail
    return f"{head.rstrip()}\u2026{tail.lstrip()}"


def heading(column: str) -> str:
    """`p50_ms` is read as "p50, ms", with a space at which no line ends."""
    stem, _, last = column.rpartition("_")
    unit = _SUFFIXES.get(last)
    return f"{stem.replace('_', ' ')},\u00a0{unit}" if stem and unit else column.replace("_", " ")


def decimals(values: Iterable[float]) -> int:
    """How many make the largest of them about four digits long."""
    largest = max(map(abs, values), default=0)
    return next((places for bound, places in ((1_000, 0), (100, 1), (1, 2), (0.1, 3)) if largest >= bound), 4 if largest else 0)


def figure(value: float | None, places: int) -> str:
    if value is None:
        return DASH
    text = f"{value or 0:,.{places}f}"
    return f"{value:.2g}" if value and _read(text) == 0 else text


def percent(value: float | None, places: int = 2) -> str:
    """A share as a number of hundredths, without the sign."""
    if value is None:
        return DASH
    text = f"{100 * value or 0:,.{places}f}"
    rounded_away = value not in (0, 1) and _read(text) in (0, 100)
    return percent(value, places + 1) if rounded_away and places < MORE else text


def plain(text: str) -> str:
    """Without noughts that only align: for a figure that stands alone."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def between(low: str, high: str) -> str:
    """Two figures that are the ends of an interval; a dash before a minus would be misread."""
    return f"{low} to {high}" if "-" in low + high else f"{low}{DASH}{high}"


def _read(text: str) -> float:
    return float(text.replace(",", ""))


def _width(text: str) -> int:
    return sum(2 if east_asian_width(letter) in "FW" else 1 for letter in text)
