"""The output of the command `weft`: tables and JSON on stdout, a progress bar on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from libweft.bench.progress import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

MOST = 30  # rows of one table on a terminal
PATIENCE = 1.0
"""Seconds before a progress bar shows: what is over by then needs none."""


@contextmanager
def progress(quiet: bool) -> Iterator[Progress | None]:
    """Yield a function that draws a bar on stderr once the work has lasted a while, or None if nobody is looking."""
    if quiet or not sys.stderr.isatty() or find_spec("rich") is None:  # rich is in the extra `cli`
        yield None
        return
    bar = _Bar()
    try:
        yield bar
    finally:
        bar.close()


class _Bar:
    def __init__(self) -> None:
        self.born = monotonic()
        self.shown: Bar | None = None

    def __call__(self, share: float, word: str) -> None:
        if self.shown is None:
            if monotonic() - self.born < PATIENCE:
                return
            self.shown = _show_bar()
        self.shown.update(self.shown.task_ids[0], completed=share, description=word)

    def close(self) -> None:
        if self.shown is not None:
            self.shown.stop()


def _show_bar() -> Bar:
    from rich.console import Console
    from rich.progress import Progress as Bar

    # The time left is that of the mean speed of an hour: of long runs only a few end in a minute.
    bar = Bar(console=Console(stderr=True), transient=True, speed_estimate_period=3600.0)
    bar.add_task("", total=1.0)
    bar.start()
    return bar


def print_json(result: object) -> None:
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")


def print_figures(result: Mapping[str, Any]) -> None:
    """One figure a line; a table inside, such as the latencies, gives a line for each of its own."""
    lines = [("figure", "value")]
    for name, value in result.items():
        figures = {f"{name} {part}": item for part, item in value.items()} if isinstance(value, dict) else {name: value}
        lines += [(label.replace("_", " "), cell(figure)) for label, figure in figures.items()]
    _print_table(lines)


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    head = tuple(name.replace("_", " ") for name in columns)
    _print_table([head, *(tuple(cell(row.get(name)) for name in columns) for row in rows)])


def print_titled(table: Mapping[str, Any], most: int = MOST) -> None:
    """A table with its title and definition; its rows are mappings, or lists in the order of `columns`."""
    sys.stdout.write(f"\n{table['title']}\n{fill(table['about'], 110)}\n")
    rows = [row if isinstance(row, Mapping) else dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    if rows:
        print_rows(rows[:most])
    if len(rows) != min(len(rows), most) or not rows:
        sys.stdout.write(f"{len(rows) - most:,} more rows are in the JSON and the Parquet.\n" if rows else "Nothing to show.\n")


def _print_table(lines: Sequence[tuple[str, ...]]) -> None:
    """The head, a rule, and the rows: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for number, line in enumerate(lines):
        cells = [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
        if number == 0:
            sys.stdout.write("  ".join("-" * width for width in widths) + "\n")


def cell(value: object) -> str:
    """A value as tables show it."""
    if isinstance(value, bool) or value is None:
        return {None: "-", True: "yes", False: "no"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    return str(value)


def print_warnings(warnings: Sequence[str]) -> None:
    for warning in warnings:
        print(f"weft: warning: {warning}", file=sys.stderr)


@contextmanager
def resumable(keep: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(f": what is done is kept in {keep}, and the same command goes on with the rest") from error
