"""The page: head, the verdict, one message spreading, what ran, the comparison, the charts, the tables, what figures mean.

One file: the style sheet and the scripts stand in it, one that sorts tables and one that plays the message. A policy in the head
lets nothing be loaded, and no script run but those, known by their hashes (`document`). No date, no path, no machine: the same
analysis and title give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from libweft.bench.report.chart_list import charts
from libweft.bench.report.input import Given
from libweft.bench.report.mesh import meshes
from libweft.bench.report.player import player
from libweft.bench.report.tables import comparison, tables, what_ran
from libweft.bench.report.text import DASH, decimals, escape, figure, percent, plain
from libweft.bench.report.verdict import verdict

WARNINGS = 50

DEFINITIONS = {
    "Reliability": "For each message, the share of its expected subscribers that delivered it within the window; then the mean "
    "over messages, and the least of them (min). Expected are the other subscribers that had joined before the publish and "
    "stayed for the window.",
    "RMR": "Relative message redundancy, m / (n \u2212 1) \u2212 1, where m payload copies were put on links and n nodes "
    "received the message or published it. 0 is one copy for each receiver.",
    "Payload per delivery": "Payload copies put on links for each delivery. Unlike RMR it sees relays that do not subscribe.",
    "False positives": "The share of first receptions that were by nodes not subscribed.",
    "Last delivery hop": "The largest number of hops among the deliveries of a message: the mean over messages, and the largest.",
    "Latency": "From the publish to the delivery, over all pairs of message and subscriber; the publisher is left out, and late "
    "deliveries count. A percentile is the smallest value with at least that share at or below it.",
    "Last subscriber": "From the publish to the last delivery of a message, the mean over messages.",
    "Control per delivery": "Copies of messages that are not payload, for each delivery.",
    "Bytes per delivery": "Encoded bytes of all copies sent, payload and control, for each delivery.",
    "95 % confidence interval": "Of a mean over the messages of one run, by the normal distribution: 1.96 standard errors to "
    "either side. It tells how far chance among these messages may have moved the mean, not what another seed would give.",
}

LINKS = {
    **{"verdict": "Verdict", "message": "One message", "runs": "What ran", "comparison": "Comparison"},
    **{"charts": "Charts", "tables": "Tables", "definitions": "Definitions"},
}


def page(given: Given, title: str) -> str:
    sections = [_judged(given), _watched(given), _ran(given), _compared(given), _drawn(given), _listed(given)]
    body = [_header(given, title), _warnings(given), *sections, _footer()]
    return document(title, "".join(body), ["page.js", *(["player.js"] if given.pictures else [])])


def document(title: str, body: str, scripts: Sequence[str]) -> str:
    """A whole page with these scripts, and no other, at its end; `body` is trusted, the title is not."""
    found = [_asset(name) for name in scripts]
    ends = "".join(f"<script>{script}</script>\n" for script in found)
    head = _head(title, found)
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}</head>\n<body>\n{body}{ends}</body>\n</html>\n'


def _head(title: str, scripts: Sequence[str]) -> str:
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}"
    return (
        '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_asset('page.css')}</style>\n"
    )


def _header(given: Given, title: str) -> str:
    left_out = {"verdict" if not verdict(given) else "", "message" if not given.pictures else ""}
    nav = "".join(f'<a href="#{key}">{name}</a>' for key, name in LINKS.items() if key not in left_out)
    return f'<header><h1>{escape(title)}</h1>{_tiles(given)}<nav aria-label="On this page">{nav}</nav></header>\n<main>\n'


def _tiles(given: Given) -> str:
    """The few figures that one wants first, from the least run to the most."""
    tiles = [_tile("Reliability", _range(given, "reliability", share=True), _least(given, "reliability"))]
    tiles.append(_tile("Redundancy (RMR)", _range(given, "rmr"), "copies beyond the first"))
    tiles.append(_tile("Median latency", _range(given, "latency_ms", "p50"), "milliseconds"))
    tiles.append(_tile("Deliveries", _total(given), f"in {len(given.runs)} {'run' if len(given.runs) == 1 else 'runs'}"))
    return f'<dl class="tiles">{"".join(tiles)}</dl>' if given.runs else ""


def _tile(name: str, value: str, below: str) -> str:
    return f"<div><dt>{name}</dt><dd>{escape(value)}<small>{escape(below)}</small></dd></div>"


def _range(given: Given, name: str, part: str | None = None, share: bool = False) -> str:
    values = sorted(value for run in given.runs if (value := run.figure(name, part)) is not None)
    places = min(2, decimals(values))
    texts = [plain(percent(value, 1)) if share else figure(value, places) for value in values]
    if not texts:
        return DASH
    text = texts[0] if texts[0] == texts[-1] else f"{texts[0]} {DASH} {texts[-1]}"
    return f"{text} %" if share else text


def _least(given: Given, name: str) -> str:
    found = [(value, run.label) for run in given.runs if (value := run.figure(name)) is not None]
    if not found or len(given.runs) == 1:
        return "delivered in time" if found else "not known"
    value, label = min(found)
    return f"least: {label}" if value < max(found)[0] else "the same in every run"


def _total(given: Given) -> str:
    values = [value for run in given.runs if (value := run.figure("deliveries")) is not None]
    return figure(sum(values), 0) if values else DASH


def _warnings(given: Given) -> str:
    if not given.warnings:
        return ""
    items = "".join(f"<li>{escape(warning)}</li>" for warning in given.warnings[:WARNINGS])
    left = len(given.warnings) - WARNINGS
    more = f"<li>and {left:,} more</li>" if left > 0 else ""
    heading = '<h2 id="warnings">Warnings</h2>'
    return f'<section class="warnings" aria-labelledby="warnings">{heading}<ul>{items}{more}</ul></section>\n'


def _judged(given: Given) -> str:
    words = (
        "Longer bars are worse. A whisker is a 95 % confidence interval over messages; where a stack has several runs it is "
        "their range."
    )
    found = verdict(given)
    return _section("verdict", words, found) if found else ""


def _watched(given: Given) -> str:
    if not given.pictures:
        return ""
    about = (
        "Of each run the message whose last delivery took the median time, all on one clock from their publishes on. The "
        "publisher stands in the middle, and a ring further out is a hop more. Arrow keys move the time."
    )
    places = "Who was whose neighbour. Nodes stand where they stand above; the numbers are hops."
    moment = f'<h3 id="overlay-moment">The overlay at that publish</h3><p class="about">{places}</p>'
    return _section("message", about, player(given) + moment + meshes(given))


def _ran(given: Given) -> str:
    about = "Each command makes its run again. One click selects it."
    return _section("runs", about, what_ran(given) if given.runs else _no_runs())


def _compared(given: Given) -> str:
    about = "Small, below a mean: its 95 % confidence interval over the messages of the run, and the extreme among them."
    return _section("comparison", about, comparison(given) if given.runs else _no_runs())


def _drawn(given: Given) -> str:
    return _section("charts", "", charts(given) if given.runs else _no_runs())


def _listed(given: Given) -> str:
    empty = '<p class="nothing">Nothing to show: the analysis has no tables.</p>'
    return _section("tables", "", tables(given) or empty)


def _no_runs() -> str:
    return '<p class="nothing">Nothing to show: the analysis has no runs.</p>'


def _section(key: str, about: str, body: str) -> str:
    words = f'<p class="about">{about}</p>' if about else ""
    return f'<section aria-labelledby="{key}"><h2 id="{key}">{LINKS[key]}</h2>{words}{body}</section>\n'


def _footer() -> str:
    terms = "".join(f"<div><dt>{term}</dt><dd>{meaning}</dd></div>" for term, meaning in DEFINITIONS.items())
    made = "Made by <code>weft analyze</code> from the traces of these runs. A dash stands for a figure that there is not."
    heading = '<h2 id="definitions">Definitions</h2>'
    return f'</main>\n<footer>{heading}<dl class="terms">{terms}</dl><p>{made}</p></footer>\n'


@cache
def _asset(name: str) -> str:
    return files("libweft.bench.report").joinpath(name).read_text(encoding="utf-8")
