"""What is told of one message of a run, read once: its copies, the announcements beside them, and the links at its publish.

Asks for entries as `libweft.bench.spark.picture.pictures` makes them; any of it may be missing or of another form. An event that
cannot be read is left out, and so is a picture without a publisher. Nodes are numbers in the trace and places in `nodes` from
here on, so nothing of a picture but its topic is text. Bounds: those of who made it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

FIRST, AGAIN, GRAFT, PRUNE, LAZY = "first", "again", "graft", "prune", "lazy"
LETTERS = {FIRST: "f", AGAIN: "a", GRAFT: "g", PRUNE: "p", LAZY: "l"}
COPIES = (FIRST, AGAIN)
LONGEST = 1 << 46  # microseconds, two years: a later event is no event but a clock


class Event(NamedTuple):
    """From one place in `nodes` to another, in microseconds after the publish; of what is no copy only `sent` is known."""

    what: str
    at: int
    sent: int
    source: int
    target: int


class Picture(NamedTuple):
    run: int
    topic: str
    publisher: int
    nodes: tuple[int, ...]
    events: tuple[Event, ...]
    links: tuple[tuple[int, int], ...]
    told: Mapping[str, int]
    """How many of each there were, shown or not."""
    level: str
    lacks: tuple[str, ...]
    """Kinds of rows that the trace was not asked to write."""

    def shown(self, what: str) -> int:
        return len(self.links) if what == "links" else sum(event.what == what for event in self.events)


def pictures(entries: object) -> tuple[Picture, ...]:
    """Those that can be drawn, a run once."""
    found = [_picture(entry) for entry in _sequence(entries) if isinstance(entry, Mapping)]
    return tuple({one.run: one for one in found if one is not None}.values())


def _picture(entry: Mapping[str, Any]) -> Picture | None:
    run, publisher = entry.get("run"), entry.get("publisher")
    if not _is_whole(run) or not _is_whole(publisher):
        return None
    rows = sorted(_events(_sequence(entry.get("events"))), key=lambda row: (row[1], row[2:], row[0]))
    links = [(a, b) for a, b in _pairs(_sequence(entry.get("links"))) if a != b]
    nodes = [publisher, *(node for node in _sequence(entry.get("nodes")) if _is_whole(node))]
    nodes += [node for row in rows for node in row[3:]] + [node for link in links for node in link]
    place = {node: number for number, node in enumerate(sorted(set(nodes)))}
    events = [Event(what, at, sent, place[source], place[target]) for what, at, sent, source, target in _timed(rows, publisher)]
    told = entry.get("told")
    counts = {name: n for name, n in told.items() if _is_whole(n)} if isinstance(told, Mapping) else {}
    lacks = tuple(map(str, _sequence(entry.get("lacks"))))
    ends = tuple(sorted({(min(place[a], place[b]), max(place[a], place[b])) for a, b in links}))
    topic, level = str(entry.get("topic") or ""), str(entry.get("level") or "")
    return Picture(run, topic, place[publisher], tuple(sorted(place)), tuple(events), ends, counts, level, lacks)


def _events(rows: Iterable[object]) -> Iterable[tuple[str, int, int | None, int, int]]:
    for row in map(_sequence, rows):
        if len(row) != 5 or row[0] not in LETTERS or not all(map(_is_whole, (row[1], *row[3:]))):
            continue
        what, at, sent, source, target = row
        if 0 <= at <= LONGEST and source != target:
            yield what, at, sent if _is_whole(sent) and 0 <= sent <= at else None, source, target


def _timed(rows: Sequence[tuple[str, int, int | None, int, int]], publisher: int) -> Iterable[tuple[str, int, int, int, int]]:
    """A copy that nobody saw leaving left when its sender had it, as far as one knows."""
    had = {publisher: 0}
    for row in rows:
        if row[0] == FIRST:
            had.setdefault(row[4], row[1])
    for what, at, sent, source, target in rows:
        yield what, at, min(at, had.get(source, at)) if sent is None else sent, source, target


def _pairs(rows: Iterable[object]) -> Iterable[tuple[int, int]]:
    for row in map(_sequence, rows):
        if len(row) == 2 and all(map(_is_whole, row)):
            yield row[0], row[1]


def _sequence(value: object) -> Sequence[Any]:
    return value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else ()


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
