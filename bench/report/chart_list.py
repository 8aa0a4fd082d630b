"""Which charts there are, and from which tables: how runs compare, latency, time and faults, load, the overlay.

Tables are found by name, and so are their columns: the names in TIME, HOP and the like are those that a column may have.
Where a table or a column is not there, or holds no number, a line says so in the chart's place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from libweft.bench.report import chart_drawing
from libweft.bench.report.cards import OVERLAID, PANELS, Axes, Series, card, curves, key_colour, more, nothing
from libweft.bench.report.chart_drawing import Dot, Mark, Words
from libweft.bench.report.distributions import cumulative, distributions, histogram, titled
from libweft.bench.report.input import Given, Run, Table, numbers
from libweft.bench.report.scale import Axis, linear, of_shares
from libweft.bench.report.text import decimals, escape, figure, heading, percent, short

ABOVE = 8  # runs whose names stand above their dots
NAME = 44  # letters of a name beside its dot

TIME = ("from_s", "time_s", "at_s")
HOP = ("hops", "hop")
HOP_LATENCY = ("p50", "p50_ms", "mean", "mean_ms")
OVERLAY = (
    ("degree_mean", "Mean degree", "neighbours"),
    ("path_mean", "Mean shortest path", "hops"),
    ("clustering", "Clustering", "coefficient"),
    ("largest_share", "Largest component", "share of nodes"),
)

Group = tuple[str, str, str, Callable[[Given], list[str]]]


def charts(given: Given) -> str:
    """All of them, by group."""
    interval = "The dot is the mean, the whisker its 95 % confidence interval over the messages of the run."
    groups: list[Group] = [
        ("compare", "How the runs compare", interval, _comparison),
        ("latency", "Latency", "From the publish on; of what came at all, also after the window.", _latency),
        ("time", "Over time", "", _over_time),
        ("load", "Load over nodes", "How evenly the work lies on the nodes.", _load),
        ("overlay", "The overlay", "At each snapshot of who was whose neighbour.", _overlay),
    ]
    return "".join(_group(given, *group) for group in groups)


def _group(given: Given, key: str, title: str, about: str, drawn: Callable[[Given], list[str]]) -> str:
    words = f'<p class="about">{about}</p>' if about else ""
    return f'<h3 id="charts-{key}">{title}</h3>{words}<div class="cards {key}">{"".join(drawn(given))}</div>'


def _comparison(given: Given) -> list[str]:
    return [
        _dots(given, "reliability", "Reliability", "Share of expected deliveries that came in time.", shares=True),
        _dots(given, "rmr", "Redundancy (RMR)", "Payload copies beyond the one that a receiver needs."),
        _dots(given, "last_ms", "Last subscriber, ms", "Until the last one has the message."),
    ]


def _dots(given: Given, name: str, title: str, about: str, shares: bool = False) -> str:
    values = [value for run in given.runs if (value := run.figure(name)) is not None]
    if not values:
        return nothing(title, "no run has this figure")
    ends = [end for run in given.runs for end in run.interval(name) or ()]
    above = len(given.runs) <= ABOVE
    scale = (of_shares if shares else linear)([*values, *ends], most=4 if above else 3)
    rows = [_dot(given, run, name, decimals(values), shares) for run in given.runs]
    words = Words(f"dots-{name}", title, "; ".join(f"{row.label}: {row.text}" for row in rows[:PANELS]))
    names = "".join(f'<li title="{escape(row.label)}">{escape(short(row.label, NAME))}</li>' for row in rows)
    plot = chart_drawing.dots(words, rows, Axis(scale, "", shares), above)
    body = f'<div class="dots{" above" if above else ""}"><ol class="names">{names}</ol>{plot}</div>'
    return card(title, about, body, "" if above else "beside")


def _dot(given: Given, run: Run, name: str, places: int, shares: bool) -> Dot:
    value = run.figure(name)
    text = f"{percent(value)} %" if shares and value is not None else figure(value, places)
    return Dot(run.label, key_colour(given, run), value, run.interval(name), text)


def _latency(given: Given) -> list[str]:
    """The first sort of latency at once, with hops beside it; others for who asks."""
    found = distributions(given, "latency_distribution", ("low_ms", "high_ms", "count"))
    if not found:
        return [nothing("Latency distribution", "no counts in the table latency_distribution"), _by_hop(given)]
    titles = [titled(one.what) for one in found]
    sums = [cumulative(given, f"cdf-{place}", titles[place], one) for place, one in enumerate(found)]
    bars = [histogram(given, f"latency-{place}", f"{titles[place]}, ms", one) for place, one in enumerate(found)]
    others = [f"{first}{second}" for first, second in zip(sums[1:], bars[1:], strict=True)]
    return [sums[0], _by_hop(given), bars[0], more("; ".join(titles[1:]), others)]


def _by_hop(given: Given) -> str:
    title, table = "Latency by hop", given.table("by_hop")
    x, y = (table.place(*HOP), table.place(*HOP_LATENCY)) if table else (None, None)
    if table is None or x is None or y is None:
        return nothing(title, "no rows in the table by_hop")
    series = _series(given, table, x, y)
    if not series:
        return nothing(title, "no latency in the table by_hop")
    about = f"{heading(table.columns[y]).partition(',')[0]} over the deliveries that took so many hops."
    across = Axis(linear(_xs(series), whole=True, span=1.0, tight=True), "hops")
    axes = Axes(across, Axis(linear(_ys(series), zero=True), "milliseconds"))
    return curves(given, Words("by-hop", title, about), series, axes)


def _over_time(given: Given) -> list[str]:
    title, table = "Reliability over time", given.table("over_time")
    x, y = (table.place(*TIME), table.place("reliability")) if table else (None, None)
    if table is None or x is None or y is None:
        return [nothing(title, "no rows in the table over_time")]
    series = _series(given, table, x, y)
    if not series:
        return [nothing(title, "no reliability in the table over_time")]
    instants = [mark.at for mark in _faults(given, [one.run for one in series])]
    axes = Axes(
        Axis(linear([*_xs(series), *instants], tight=True), "seconds"),
        Axis(of_shares(_ys(series)), "reliability", percent=True),
    )
    upright = " Upright lines are the instants of faults." if instants else ""
    words = Words("over-time", title, f"By the time at which messages were published.{upright}")
    return [curves(given, words, series, axes, lambda runs: _faults(given, runs))]


def _faults(given: Given, runs: Sequence[Run]) -> list[Mark]:
    """The instants at which faults struck these runs."""
    table = given.table("recovery")
    at = table.place(*TIME) if table else None
    if table is None or at is None:
        return []
    found = numbers(row[at] for run in runs for row in table.where("run", run.number).rows)
    return [Mark(time, f"fault at {time:g} s") for time in sorted(set(found))]


def _load(given: Given) -> list[str]:
    found = distributions(given, "load_distribution", ("low", "high", "nodes"))
    if not found:
        return [nothing("Load over nodes", "no counts in the table load_distribution")]
    titles = [f"{one.what.replace('_', ' ').capitalize() or 'Load'} of a node" for one in found]
    pairs = enumerate(zip(titles, found, strict=True))
    cards = [histogram(given, f"load-{place}", title, one) for place, (title, one) in pairs]
    return [cards[0], more(f"Other kinds of load ({len(cards) - 1})", cards[1:])]


def _overlay(given: Given) -> list[str]:
    title, table = "Overlay over time", given.table("overlay")
    x = table.place(*TIME) if table else None
    if table is None or x is None:
        return [nothing(title, "no rows in the table overlay")]
    cards = [drawn for name, *words in OVERLAY if (drawn := _quality(given, table, x, name, *words))]
    if not cards:
        return [nothing(title, "no run has two snapshots; what there is stands in the table")]
    if len(given.runs) <= OVERLAID:
        return cards
    return [cards[0], more(f"Other measures of the overlay ({len(cards) - 1})", cards[1:])]


def _quality(given: Given, table: Table, x: int, name: str, title: str, unit: str) -> str:
    y = table.place(name)
    series = _series(given, table, x, y) if y is not None else []
    if not any(len(one.points) > 1 for one in series):
        return ""
    shares = name.endswith("_share")
    scale = of_shares(_ys(series)) if shares else linear(_ys(series))
    axes = Axes(Axis(linear(_xs(series), tight=True), "seconds"), Axis(scale, unit, shares))
    return curves(given, Words(f"overlay-{name}", title, ""), series, axes)


def _series(given: Given, table: Table, x: int, y: int) -> list[Series]:
    """The runs that have a number there."""
    found = [Series(run, table.points(run, x, y)) for run in given.runs]
    return [one for one in found if any(value is not None for _, value in one.points)]


def _xs(series: Iterable[Series]) -> list[float]:
    return [at for one in series for at, _ in one.points]


def _ys(series: Iterable[Series]) -> list[float]:
    return [value for one in series for _, value in one.points if value is not None]
