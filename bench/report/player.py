"""The player, which shows one message of each run as it spreads: a canvas per run, one clock for all, and counts beside each.

`player.js` moves the pictures. It reads the events as JSON from a script element that is no script (`text.data` escapes it):
the places of nodes, the links, and in columns the sender and receiver of each copy, its arrival in tenths of a millisecond after
the event before, and its time on the way. A text below the picture lists what the trace lacks, and which trace would have it.
Without scripts a line of text stands in the place of the player.

Bounds: PANELS canvases at a time, whatever the number of runs; those beyond are picked by name.
"""

from __future__ import annotations

from collections.abc import Iterator

from libweft.bench.report.input import Given
from libweft.bench.report.picture import AGAIN, FIRST, LAZY, LETTERS, Picture
from libweft.bench.report.rings import rings
from libweft.bench.report.text import data, escape

PANELS = 4
UNIT = 100  # microseconds

LEGEND = {
    "first copy": '<path class="first" d="M0 5H26"/><circle class="first" cx="30" cy="5" r="3.5"/>',
    "duplicate": '<path class="again" d="M0 5H26"/><path class="again cross" d="M27 2l6 6m0-6l-6 6"/>',
    "announcement, graft or prune": '<path class="lazy" d="M0 5H26"/><path class="lazy head" d="M30 1l4 4l-4 4l-4-4z"/>',
    "reached": '<circle class="there" cx="30" cy="5" r="3.5"/>',
    "not reached": '<circle class="away" cx="30" cy="5" r="3"/>',
}
COUNTS = (("reached", "reached"), ("copies", "copies"), ("again", "duplicates"), ("lazy", "announcements"))
SPEEDS = {"slow": "20", "normal": "10", "fast": "4"}
"""Seconds for the whole."""


def player(given: Given) -> str:
    """Return the player with its data, or nothing if there is no picture."""
    if not given.pictures:
        return ""
    labels = _labels(given)
    shown = given.pictures[:PANELS]
    panels = "".join(_panel(place, labels) for place in range(len(shown)))
    samples = (f'<svg width="36" height="10" aria-hidden="true">{drawn}</svg>{name}' for name, drawn in LEGEND.items())
    legend = "".join(f"<li>{sample}</li>" for sample in samples)
    plain = '<p class="nothing without">The pictures move by a script; this browser runs none.</p>'
    columns = data([_columns(picture, labels[place]) for place, picture in enumerate(given.pictures)])
    return (
        f'<div id="player" hidden>{_controls()}<ul class="legend">{legend}</ul><div class="stages">{panels}</div>'
        f'<p class="heard" role="status"></p></div>{plain}'
        f'<script type="application/json" id="player-data">{columns}</script>'
    )


def _labels(given: Given) -> list[str]:
    known = {run.number: run.title for run in given.runs}
    return [known.get(picture.run, f"run {picture.run}") for picture in given.pictures]


def _controls() -> str:
    chosen = {"normal": " selected"}
    speeds = "".join(f'<option value="{value}"{chosen.get(name, "")}>{name}</option>' for name, value in SPEEDS.items())
    return (
        '<div class="controls"><button type="button" class="play">Play</button>'
        '<label class="time">Time <input type="range" class="scrub" min="0" max="1000" step="1" value="1000"></label>'
        '<output class="clock"></output>'
        f'<label>Speed <select class="speed">{speeds}</select></label></div>'
    )


def _panel(place: int, labels: list[str]) -> str:
    """Its name, or a choice of names where there are more runs than panels."""
    if len(labels) <= PANELS:
        name = f"<h3>{escape(labels[place])}</h3>"
    else:
        options = "".join(
            f'<option value="{number}"{" selected" if number == place else ""}>{escape(label)}</option>'
            for number, label in enumerate(labels)
        )
        name = f'<label class="pick"><span class="unseen">Run in picture {place + 1}</span><select>{options}</select></label>'
    counts = "".join(f'<div><dt>{name}</dt><dd data-count="{key}"></dd></div>' for key, name in COUNTS)
    return (
        f'<figure class="card stage" data-shows="{place}">{name}<canvas role="img"></canvas>'
        f'<dl class="counts">{counts}</dl><p class="notes"></p></figure>'
    )


def _columns(picture: Picture, label: str) -> dict[str, object]:
    """In the order of time; an announcement is at the time at which it was sent."""
    at = [event.at // UNIT for event in picture.events]
    return {
        "label": label,
        "topic": picture.topic,
        "root": picture.publisher,
        "nodes": [number for place in rings(picture).places for number in place],
        "links": [node for link in picture.links for node in link],
        "what": "".join(LETTERS[event.what] for event in picture.events),
        "from": [event.source for event in picture.events],
        "to": [event.target for event in picture.events],
        "after": [later - sooner for sooner, later in zip([0, *at], at, strict=False)],
        "took": [then - event.sent // UNIT for then, event in zip(at, picture.events, strict=True)],
        "notes": list(_notes(picture)),
    }


def _notes(picture: Picture) -> Iterator[str]:
    """What is left out of the picture, and what the trace does not tell."""
    for what, name in ((FIRST, "first copies"), (AGAIN, "duplicates"), (LAZY, "announcements"), ("links", "links")):
        if picture.told.get(what, 0) > picture.shown(what):
            yield f"Shown are {picture.shown(what):,} of {picture.told[what]:,} {name}."
    if not any(event.what == FIRST for event in picture.events):
        yield "No copy of this message came to anybody."
    if lacking := [kind for kind in picture.lacks if kind in ("duplicate", "neighbor_up", "send")]:
        yield f"The trace has no rows of kind {', '.join(lacking)}; leave out --kinds to have them."
    if picture.level == "default" and not {"send"} & set(picture.lacks):
        yield (
            "Announcements to several peers at once do not tell to whom, and copies that were lost are not shown; "
            "a trace with --trace-level full tells the first."
        )
