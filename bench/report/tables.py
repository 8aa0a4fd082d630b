"""The tables of the report: what ran, the comparison, and every table of the analysis, known to this module or not.

Numbers stand to the right and share the decimals of their column; a figure that there is not is a dash. Each table scrolls
inside its own box. One of more than ROWS rows is cut there, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from libweft.bench.report.cards import key_colour
from libweft.bench.report.input import Given, Run, Table, number, numbers
from libweft.bench.report.text import DASH, between, decimals, escape, figure, heading, percent

ROWS = 50
OPEN = 12  # a table of so few rows is open from the start
TALL = 14  # one of more rows gets a box of bounded height
IDENTIFIERS = frozenset({"seed", "node", "peer", "msg", "publisher", "source", "epoch", "sequence"})
"""Numbers that name something: no decimals, no commas."""


class Figure(NamedTuple):
    """A column of the comparison."""

    head: str
    name: str
    part: str | None = None
    least: str | None = None
    """Another figure, shown small beside this one, after a word."""
    word: str = ""
    share: bool = False


FIGURES = (
    Figure("Reliability,\u00a0%", "reliability", least="reliability_min", word="min", share=True),
    Figure("RMR", "rmr"),
    Figure("Payload per delivery", "payload_per_delivery"),
    Figure("False positives,\u00a0%", "false_positives", share=True),
    Figure("Last delivery hop", "ldh_mean", least="ldh_max", word="max"),
    Figure("p50", "latency_ms", "p50"),
    Figure("p90", "latency_ms", "p90"),
    Figure("p99", "latency_ms", "p99"),
    Figure("max", "latency_ms", "max"),
    Figure("Last subscriber,\u00a0ms", "last_ms"),
    Figure("Control per delivery", "control_per_delivery"),
    Figure("Bytes per delivery", "bytes_per_delivery"),
)

WHAT_RAN = ("Run", "Stack", "Nodes", "Seed", "Messages", "Window,\u00a0s", "Status", "Command")
NUMERIC = frozenset({"Nodes", "Seed", "Messages", "Window,\u00a0s"})
SHORT = 24  # letters
TOKEN = 40  # letters of a word of a command that is not broken


def what_ran(given: Given) -> str:
    """A row a run, with the command that makes it again."""
    head = "".join(f'<th scope="col"{_side(name in NUMERIC)}>{name}</th>' for name in WHAT_RAN)
    body = "".join(f"<tr>{run_cell(given, run)}{_about(run)}</tr>" for run in given.runs)
    return box("What ran", f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>", len(given.runs))


def _about(run: Run) -> str:
    facts, window = run.facts, run.figure("window_s")
    cells = [_words(facts.get("stack")), _count(facts.get("nodes")), _identifier(facts.get("seed"))]
    cells += [_count(facts.get("messages")), _cell(DASH if window is None else f"{window:g}", window)]
    return "".join([*cells, f"<td>{_status(facts.get('status'))}</td>", f"<td>{command(facts.get('command'))}</td>"])


def _status(status: object) -> str:
    kind = "fine" if status == "complete" else "poor"
    return f'<span class="status {kind}">{escape(status)}</span>' if status else DASH


def command(line: object) -> str:
    """A flag is not broken at its hyphens where the line ends."""
    if not line:
        return DASH
    words = [(escape(word), "-" in word and len(word) <= TOKEN) for word in str(line).split(" ")]
    return f"<code>{' '.join(f'<span>{word}</span>' if whole else word for word, whole in words)}</code>"


def comparison(given: Given) -> str:
    """A row a run, a column a figure, each mean with its interval below."""
    columns = [[run.figure(column.name, column.part) for run in given.runs] for column in FIGURES]
    places = [decimals(numbers(values)) for values in columns]
    body = []
    for run in given.runs:
        cells = (_mean(run, column, digits) for column, digits in zip(FIGURES, places, strict=True))
        body.append(f"<tr>{run_cell(given, run)}{''.join(cells)}</tr>")
    return box("Comparison", f"<thead>{_comparison_head()}</thead><tbody>{''.join(body)}</tbody>", len(given.runs), "comparison")


def _comparison_head() -> str:
    """The four latencies share a head of their own."""
    latency = [column for column in FIGURES if column.name == "latency_ms"]
    first = ['<th scope="col" rowspan="2">Run</th>']
    for column in FIGURES:
        if column.part is None:
            first.append(f'<th scope="col" rowspan="2" class="n">{column.head}</th>')
        elif column is latency[0]:
            first.append(f'<th scope="colgroup" colspan="{len(latency)}" class="group">Latency, ms</th>')
    second = "".join(f'<th scope="col" class="n">{column.head}</th>' for column in latency)
    return f"<tr>{''.join(first)}</tr><tr>{second}</tr>"


def _mean(run: Run, column: Figure, places: int) -> str:
    value = run.figure(column.name, column.part)
    smalls = []
    interval = run.interval(column.name) if column.part is None and value is not None else None
    if interval is not None:
        smalls.append(between(*(_figure(end, column.share, places) for end in interval)))
    least = run.figure(column.least) if column.least else None
    if least is not None:
        smalls.append(f"{column.word} {_figure(least, column.share, 0 if float(least).is_integer() else places)}")
    below = "".join(f"<small>{small}</small>" for small in smalls)
    return _cell(_figure(value, column.share, places), value, below)


def _figure(value: float | None, share: bool, places: int) -> str:
    return percent(value) if share else figure(value, places)


def tables(given: Given) -> str:
    """Every table that was given, in the order given."""
    return "".join(_table(given, table) for table in given.tables.values())


def _table(given: Given, table: Table) -> str:
    count = f"{len(table.rows):,} {'row' if len(table.rows) == 1 else 'rows'}"
    summary = f'<summary><h3>{escape(table.title)}</h3> <span class="count">{count}</span></summary>'
    about = f'<p class="about">{escape(table.about)}</p>' if table.about else ""
    is_open = " open" if 0 < len(table.rows) <= OPEN else ""
    return f'<details class="table"{is_open}>{summary}{about}{_rows(given, table)}</details>'


def _rows(given: Given, table: Table) -> str:
    if not table.rows:
        return '<p class="nothing">Nothing to show: the table has no rows.</p>'
    shown = table.rows[:ROWS]
    columns = [_column(given, name, [row[place] for row in shown]) for place, name in enumerate(table.columns)]
    head = "".join(_head(name, [row[place] for row in shown]) for place, name in enumerate(table.columns))
    body = "".join(f"<tr>{''.join(cells)}</tr>" for cells in zip(*columns, strict=True))
    left = len(table.rows) - len(shown)
    rows = "1 more row is" if left == 1 else f"{left:,} more rows are"
    rest = f'<p class="rest">{rows} not shown; the Parquet has all.</p>' if left else ""
    return box(table.title, f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>", len(shown)) + rest


def _head(name: str, values: Sequence[Any]) -> str:
    text = f"{heading(name)},\u00a0%" if _is_share(name) and numbers(values) else heading(name)
    return f'<th scope="col"{_side(bool(numbers(values)) and name != "run")}>{escape(text)}</th>'


def _column(given: Given, name: str, values: Sequence[Any]) -> list[str]:
    if name == "run":
        known = {run.number: run for run in given.runs}
        return [run_cell(given, known[value]) if value in known else f'<th scope="row">{_text(value)}</th>' for value in values]
    found = numbers(values)
    if name in IDENTIFIERS:
        return [_identifier(value) if _is_number(value) else _words(value) for value in values]
    places = 0 if all(float(value).is_integer() for value in found) else decimals(found)
    return [_value(value, _is_share(name), places) if _is_number(value) else _words(value) for value in values]


def _value(value: Any, share: bool, places: int) -> str:
    found = number(value)
    return _cell(_figure(found, share, places), found)


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _is_share(name: str) -> bool:
    return name in ("false_positives", "lowest", "symmetry") or name.startswith("reliability") or name.endswith("_share")


def run_cell(given: Given, run: Run) -> str:
    colour = key_colour(given, run)
    key = f'<i class="key c{colour}"></i>' if colour else ""
    return f'<th scope="row"><span class="who">{key}<bdi>{escape(run.label)}</bdi></span></th>'


def _cell(text: str, value: object, below: str = "") -> str:
    found = number(value)
    key = "" if found is None else f' data-v="{found!r}"'
    return f'<td class="n"{key}>{escape(text)}{below}</td>'


def _words(value: object) -> str:
    """What is short stays on one line."""
    text = _text(value)
    return f'<td class="short"><bdi>{text}</bdi></td>' if len(text) <= SHORT else f"<td><bdi>{text}</bdi></td>"


def _text(value: object) -> str:
    return escape({True: "yes", False: "no"}[value]) if isinstance(value, bool) else DASH if value is None else escape(value)


def _count(value: object) -> str:
    return _cell(figure(number(value), 0), value)


def _identifier(value: object) -> str:
    return _cell(DASH if value is None else str(value), value)


def _side(is_number: bool) -> str:
    return ' class="n"' if is_number else ""


def box(name: str, content: str, rows: int, kind: str = "") -> str:
    """Can be reached and scrolled by keys, so it has a role and a name."""
    size = " tall" if rows > TALL else ""
    table = f'<table class="{kind}">{content}</table>' if kind else f"<table>{content}</table>"
    return f'<div class="box{size}" role="region" aria-label="{escape(name)}" tabindex="0">{table}</div>'
