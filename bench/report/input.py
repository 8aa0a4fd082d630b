"""The input of the report: the analysis, checked once as it is read, so that no other module of the report need doubt it.

The analysis is JSON, and any part of it may be missing: no runs, no table, a figure that is null, a row that is too short.
A missing part becomes None and never raises; a number that is not finite counts as missing. Tables know a run by its number.
Readers know it by its label: its name, followed by the number if two runs share the name.

Tables have the names of their columns; `Table.place` finds a column by any of the names that it may have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from libweft.bench.report.picture import Picture, pictures

Point = tuple[float, float | None]
Between = tuple[float, float, float]
"""At a place across, the lower and the upper end of an interval."""

LARGEST = 1e150  # the square of it is still finite


class Run(NamedTuple):
    number: int
    label: str
    facts: Mapping[str, Any]

    @property
    def title(self) -> str:
        """The label, and the stack where that does not say it."""
        stack = self.facts.get("stack")
        return self.label if not isinstance(stack, str) or stack in self.label else f"{self.label} \u00b7 {stack}"

    def figure(self, name: str, part: str | None = None) -> float | None:
        """A number of this run, or one part of a spread such as `latency_ms`."""
        value = self.facts.get(name)
        if part is not None:
            value = value.get(part) if isinstance(value, Mapping) else None
        return number(value)

    def interval(self, name: str) -> tuple[float, float] | None:
        intervals = self.facts.get("ci95")
        ends = intervals.get(name) if isinstance(intervals, Mapping) else None
        if not isinstance(ends, Sequence) or len(ends) != 2:
            return None
        low, high = map(number, ends)
        return None if low is None or high is None else (low, high)


class Table(NamedTuple):
    name: str
    title: str
    about: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def place(self, *names: str) -> int | None:
        """Where the first of these columns is that the table has."""
        return next((self.columns.index(name) for name in names if name in self.columns), None)

    def where(self, column: str, value: object) -> Table:
        """Only the rows with that value; all of them where there is no such column."""
        place = self.place(column)
        return self if place is None else self._replace(rows=tuple(row for row in self.rows if row[place] == value))

    def values(self, column: str) -> list[Any]:
        """The different ones, in order of appearance."""
        place = self.place(column)
        return [] if place is None else list(dict.fromkeys(row[place] for row in self.rows))

    def points(self, run: Run, x: int, y: int) -> list[Point]:
        """Of one run, by x."""
        pairs = ((number(row[x]), number(row[y])) for row in self.where("run", run.number).rows)
        return sorted(((at, value) for at, value in pairs if at is not None), key=lambda point: point[0])


class Given(NamedTuple):
    runs: tuple[Run, ...]
    tables: Mapping[str, Table]
    warnings: tuple[str, ...]
    pictures: tuple[Picture, ...] = ()
    bands: Mapping[tuple[int, str], Sequence[Between]] = {}
    """Of the distribution of what in a run, by place."""

    def table(self, name: str) -> Table | None:
        """One that has rows."""
        table = self.tables.get(name)
        return table if table is not None and table.rows else None


def read(analysis: Mapping[str, Any]) -> Given:
    tables = {str(name): _table(str(name), table) for name, table in (analysis.get("tables") or {}).items()}
    warnings = tuple(map(str, analysis.get("warnings") or ()))
    bands = _bands(analysis.get("bands") or ())
    return Given(_runs(analysis.get("runs") or ()), tables, warnings, pictures(analysis.get("pictures")), bands)


def number(value: object) -> float | None:
    """A finite number of a size that can be drawn; a truth value is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= LARGEST else None  # not a number is not smaller than anything


def numbers(values: Iterable[object]) -> list[float]:
    return [found for value in values if (found := number(value)) is not None]


def _runs(runs: Iterable[Mapping[str, Any]]) -> tuple[Run, ...]:
    facts = [dict(run) for run in runs]
    names = [str(run.get("name") or f"run {place}") for place, run in enumerate(facts)]
    shared = {name for name, times in Counter(names).items() if times > 1}
    found = []
    for place, (name, run) in enumerate(zip(names, facts, strict=True)):
        own = run.get("run")
        key = own if isinstance(own, int) else place
        found.append(Run(key, f"{name} #{key}" if name in shared else name, run))
    return tuple(found)


def _bands(rows: Iterable[Sequence[Any]]) -> dict[tuple[int, str], list[Between]]:
    found: dict[tuple[int, str], list[Between]] = {}
    for run, what, *ends in rows:
        place = numbers(ends)
        if len(place) == len(ends) == 3:
            found.setdefault((run, str(what)), []).append((place[0], place[1], place[2]))
    return {key: sorted(places) for key, places in found.items()}


def _table(name: str, table: Mapping[str, Any] | None) -> Table:
    """Rows are cut and filled to the columns; a value that is not plain becomes its text."""
    table = table or {}
    columns = tuple(map(str, table.get("columns") or ()))
    rows = tuple(_row(row, len(columns)) for row in table.get("rows") or ())
    title = str(table.get("title") or name.replace("_", " ").capitalize())
    return Table(name, title, str(table.get("about") or ""), columns, rows if columns else ())


def _row(row: Sequence[Any], width: int) -> tuple[Any, ...]:
    cells = [cell if cell is None or isinstance(cell, bool | int | float | str) else str(cell) for cell in row[:width]]
    return (*cells, *[None] * (width - len(cells)))
