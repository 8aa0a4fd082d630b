"""The charts of the report: that places on them are the figures given, and that many runs or none leave them legible."""

from __future__ import annotations

import math
import re
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from libweft.bench.report import chart_drawing, render
from libweft.bench.report.cards import OVERLAID, PANELS
from libweft.bench.report.chart_drawing import HEIGHT, LABEL_HEIGHT, PANEL_HEIGHT, POINTS, WIDTH, Bar, Line, Mark, Words
from libweft.bench.report.chart_list import ABOVE
from libweft.bench.report.input import Point
from libweft.bench.report.scale import Axis, Scale, linear, logarithmic, of_shares
from tests.bench.test_report_samples import Element, hollow, nothing, read, sample

WORDS = Words("key", "Title", "Description")
X, Y = Axis(Scale(0.0, 10.0, 5.0), "across"), Axis(Scale(0.0, 1.0, 0.5), "up", percent=True)


def page(analysis: dict[str, Any]) -> Element:
    return read(render(analysis, title="Charts"))


@cache
def of_sample(runs: int) -> Element:
    return page(sample(runs))


def card(tree: Element, title: str) -> Element:
    (found,) = [one for one in tree.all("figure", "card") if one.one("h4").text == title]
    return found


def missing(tree: Element) -> dict[str, str]:
    """By chart, why there is none."""
    lines = [one for one in tree.all("p", "nothing") if one.all("strong")]
    return {one.one("strong").text.rstrip("."): one.text.partition("show: ")[2] for one in lines}


def percents(elements: list[Element], name: str) -> list[float]:
    return [float(one[name].removesuffix("%")) for one in elements]


def corners(path: Element) -> list[list[tuple[float, float]]]:
    """The points of each piece of a path."""
    pieces = path["d"].split("M")[1:]
    return [[(float(x), float(y)) for x, y in (point.split() for point in piece.split("L"))] for piece in pieces]


def drawn(*series: Line, marks: tuple[Mark, ...] = ()) -> Element:
    return read(chart_drawing.lines(WORDS, series, X, Y, marks))


# Scales


FIGURES = st.floats(-1e9, 1e9, allow_subnormal=False)


@given(st.lists(FIGURES, min_size=1), st.booleans())
def test_a_scale_holds_its_values_and_ends_at_ticks(values: list[float], zero: bool) -> None:
    scale = linear(values, zero=zero)
    room = 1e-6 * (scale.high - scale.low)
    assert scale.low - room <= min(values) and max(values) <= scale.high + room
    assert scale.low < scale.high
    assert 2 <= len(scale.ticks()) <= 8
    assert math.isclose(scale.ticks()[0], scale.low, abs_tol=room) and math.isclose(scale.ticks()[-1], scale.high, abs_tol=room)
    assert not zero or scale.low <= 0


@given(st.lists(FIGURES, min_size=2), FIGURES, FIGURES)
def test_places_keep_the_order(values: list[float], first: float, second: float) -> None:
    scale = linear(values)
    low, high = sorted((first, second))
    assert 0 <= scale.share(low) <= scale.share(high) <= 1


@example([1.0])
@example([0.0])
@given(st.lists(st.floats(0, 1), min_size=1))
def test_shares_end_at_one_and_small_differences_look_small(values: list[float]) -> None:
    scale = of_shares(values)
    assert scale.high <= 1
    assert scale.high - scale.low >= 0.00999999
    assert scale.low <= min(values) + 1e-9


def test_what_is_above_one_does_not_stretch_a_scale_of_shares() -> None:
    scale = of_shares([0.97, 1.04])
    assert scale.high == 1
    assert scale.share(1.04) == 1


def test_values_too_near_to_tell_apart_have_a_place() -> None:
    value = 1e15
    scale = linear([value, math.nextafter(value, math.inf)])
    assert 0 <= scale.share(value) <= 1
    assert Scale(3.0, 3.0).share(3.0) == 0.5


def test_a_tight_scale_ends_with_the_values() -> None:
    scale = linear([3.2, 17.9], tight=True)
    assert (scale.low, scale.high) == (3.2, 17.9)
    assert scale.ticks() == [5.0, 10.0, 15.0]


def test_whole_things_have_whole_steps() -> None:
    assert linear([1, 2], whole=True, tight=True).ticks() == [1.0, 2.0]


@given(st.lists(st.floats(0, 1e9, allow_subnormal=False)))
def test_a_logarithmic_scale_holds_what_is_positive(values: list[float]) -> None:
    scale = logarithmic(values)
    assert 0 < scale.low < scale.high
    assert all(scale.low <= value <= scale.high for value in values if value > 0)
    assert len(scale.ticks()) <= 9
    assert scale.share(0.0) == 0 and scale.share(scale.high) == 1


def test_a_logarithmic_scale_gives_each_power_the_same_room() -> None:
    scale = logarithmic([1, 10_000])
    assert [scale.share(tick) for tick in scale.ticks()] == [0, 0.25, 0.5, 0.75, 1]


@pytest.mark.parametrize(
    ("axis", "value", "text"),
    [
        (Axis(Scale(0, 1, 0.25), "", True), 0.25, "25 %"),
        (Axis(Scale(0.99, 1, 0.005), "", True), 0.995, "99.5 %"),
        (Axis(Scale(0, 4_000, 1_000), ""), 2_000, "2,000"),
        (Axis(Scale(0, 0.03, 0.01), ""), 0.02, "0.02"),
        (Axis(Scale(0.001, 1_000, log=True), ""), 0.01, "0.01"),
    ],
)
def test_ticks_have_the_decimals_of_their_step(axis: Axis, value: float, text: str) -> None:
    assert axis.text(value) == text


# Lines


def test_a_line_goes_through_its_points() -> None:
    path = drawn(Line("a", 1, [(0, 0.0), (5, 0.25), (10, 1.0)])).one("path", "line")
    assert corners(path) == [[(0, HEIGHT), (WIDTH / 2, HEIGHT * 0.75), (WIDTH, 0)]]


def test_a_band_lies_behind_its_line() -> None:
    tree = drawn(Line("a", 1, [(0, 0.0), (10, 1.0)], [(0, 0.0, 0.25), (10, 0.75, 1.0)]))
    assert corners(tree.one("path", "sure")) == [[(0, HEIGHT * 0.75), (WIDTH, 0), (WIDTH, HEIGHT / 4), (0, HEIGHT)]]
    assert [path["class"] for path in tree.all("path")][:2] == ["sure c1", "line c1"]
    assert not drawn(Line("a", 1, [(0, 0.0), (10, 1.0)])).all("path", "sure")


def test_a_gap_cuts_a_line_and_a_lone_point_is_a_dot() -> None:
    many: list[Point] = [(at / 10, None if at in (40, 42) else 0.5) for at in range(100)]
    tree = drawn(Line("a", 1, many))
    assert [len(piece) for piece in corners(tree.one("path", "line"))] == [40, 57]
    (lone,) = tree.all("circle")
    assert lone["cx"] == "41%"
    assert lone.one("title").text == "a: 50.00 % at 4.1"


def test_few_points_are_shown_with_their_figures() -> None:
    tree = drawn(Line("a", 1, [(0, 0.9996), (10, 1.0)]))
    assert [one.one("title").text for one in tree.all("circle")] == ["a: 99.96 % at 0", "a: 100.00 % at 10"]


def test_a_dip_survives_the_thinning() -> None:
    many: list[Point] = [(at / 1_000, 0.1 if at == 7_777 else 0.9) for at in range(10_000)]
    (piece,) = corners(drawn(Line("a", 1, many)).one("path", "line"))
    assert len(piece) <= POINTS
    assert max(y for _, y in piece) == pytest.approx(0.9 * HEIGHT)


def test_names_at_the_ends_do_not_meet() -> None:
    series = [Line(f"run {place}", place + 1, [(0, 0.5), (10, 1 - place / 1_000)]) for place in range(6)]
    labels = drawn(*series).all("text", "end")
    assert [re.sub(" *run", "run", one.text)[:5] for one in labels] == [f"run {place}" for place in range(6)]
    places = [float(one["y"]) for one in labels]
    assert all(after - before >= LABEL_HEIGHT for before, after in pairwise(places))


@given(st.lists(st.floats(0, HEIGHT), max_size=OVERLAID))
def test_names_stay_beside_the_plot(places: list[float]) -> None:
    moved = chart_drawing._apart(sorted(places))
    assert all(0 <= place <= HEIGHT for place in moved)
    assert all(after - before >= LABEL_HEIGHT - 1e-9 for before, after in pairwise(moved))


def test_a_line_that_ends_early_reaches_out_to_its_name() -> None:
    reach = drawn(Line("a", 1, [(0, 1.0), (5, 0.5), (10, None)])).one("line", "reach")
    assert (reach["x1"], reach["x2"], float(reach["y1"])) == ("50%", "100%", HEIGHT / 2)
    assert not drawn(Line("a", 1, [(0, 1.0), (10, 0.5)])).all("line", "reach")


def test_a_mark_stands_at_its_instant() -> None:
    mark = drawn(Line("a", 1, [(0, 1.0), (10, 1.0)]), marks=(Mark(2.5, "crash"),)).one("line", "mark")
    assert (mark["x1"], mark["x2"], mark.text) == ("25%", "25%", "crash")


# Dots


def test_dots_and_whiskers_lie_at_their_figures() -> None:
    analysis = sample()
    plot = card(of_sample(5), "Redundancy (RMR)")
    dots, whiskers, texts = plot.all("circle"), plot.all("line", "whisker"), plot.all("text", "value")
    values = [run["rmr"] for run in analysis["runs"]]
    ends = [end for run in analysis["runs"] for end in run["ci95"]["rmr"]]
    scale = linear([*values, *ends], most=4)
    assert percents(dots, "cx") == pytest.approx([100 * scale.share(value) for value in values], abs=0.01)
    shown = [end for pair in zip(percents(whiskers, "x1"), percents(whiskers, "x2"), strict=True) for end in pair]
    assert shown == pytest.approx([100 * scale.share(end) for end in ends], abs=0.01)
    assert [float(one.text) for one in texts] == pytest.approx(values, abs=0.005)
    assert [float(one["y"]) for one in texts] == [float(one["cy"]) for one in dots]


def test_a_whisker_of_reliability_ends_at_one() -> None:
    whiskers = card(of_sample(5), "Reliability").all("line", "whisker")
    assert max(percents(whiskers, "x2")) == 100


def test_a_run_without_the_figure_keeps_its_row() -> None:
    analysis = sample(3)
    analysis["runs"][1]["rmr"] = None
    plot = card(page(analysis), "Redundancy (RMR)")
    rows = [float(one["cy"]) for one in plot.all("circle")]
    assert len(plot.all("li")) == 3 and len(rows) == 2
    assert rows[1] - rows[0] == 2 * chart_drawing.ABOVE_HEIGHT


def test_names_of_many_runs_stand_beside_their_dots() -> None:
    assert "beside" not in card(of_sample(5), "Reliability").classes
    many = card(page(sample(ABOVE + 1)), "Reliability")
    assert "beside" in many.classes
    assert float(many.one("svg")["height"]) == chart_drawing.ROW_HEIGHT * (ABOVE + 1)
    assert len(many.all("rect", "band")) == (ABOVE + 1) // 2
    assert len(card(of_sample(60), "Reliability").all("circle")) == 60


# Distributions


def latencies(*rows: tuple[int, str, float | None, float | None, int | None]) -> dict[str, Any]:
    analysis = sample(2)
    analysis["tables"]["latency_distribution"]["rows"] = [list(row) for row in rows]
    return analysis


def test_a_sum_has_the_band_of_its_run_and_what_it_is_of() -> None:
    rows = [(run, "delivery", low, low + 10.0, 2) for run in (0, 1) for low in (0.0, 10.0)]
    ends: list[list[object]] = [[0, "delivery", 20.0, 1.0, 1.0], [0, "delivery", 10.0, 0.0, 0.5]]
    ends += [[1, "reception", 10.0, 0.0, 0.5], [1, "delivery", 10.0, None, 1.0]]
    shown = card(page(latencies(*rows) | {"bands": ends}), "Latency to delivery")
    assert corners(shown.one("path", "sure")) == [[(WIDTH / 2, HEIGHT / 2), (WIDTH, 0), (WIDTH, 0), (WIDTH / 2, HEIGHT)]]
    assert "95 % confidence interval" in shown.one("figcaption").all("p")[0].text
    assert "confidence" not in card(page(latencies(*rows)), "Latency to delivery").one("figcaption").all("p")[0].text


def test_sums_rise_from_nothing_to_all() -> None:
    rows = [(0, "delivery", 10.0, 20.0, 3), (0, "delivery", 0.0, 10.0, 1), (1, "delivery", 0.0, 20.0, 5)]
    first, second = card(page(latencies(*rows)), "Latency to delivery").all("path", "line")
    assert {first.text, second.text} == {"calm", "10% of copies lost"}
    paths = {path.text: corners(path) for path in (first, second)}
    assert paths["calm"] == [[(0, HEIGHT), (WIDTH / 2, HEIGHT * 0.75), (WIDTH, 0), (WIDTH, 0)]]
    assert paths["10% of copies lost"] == [[(0, HEIGHT), (WIDTH, 0), (WIDTH, 0)]]


@pytest.mark.parametrize("title", ["Latency to delivery", "Latency to reception"])
def test_sums_never_fall(title: str) -> None:
    for path in card(of_sample(5), title).all("path", "line"):
        (piece,) = corners(path)
        assert all(x <= x2 and y >= y2 for (x, y), (x2, y2) in pairwise(piece))
        assert piece[0][1] == HEIGHT and piece[-1] == (WIDTH, 0)


def test_the_names_of_sums_stand_in_the_order_of_the_lines() -> None:
    names = [one.one("title").text for one in card(of_sample(5), "Latency to delivery").all("text", "end")]
    assert names == ["calm", "10% of copies lost", "30% of nodes crash", "10% lost, 30% crash", "60% of nodes crash"]


def test_the_area_of_a_bar_is_its_share() -> None:
    bins = [Bar(0, 1, 2), Bar(1, 5, 2), Bar(5, 10, 4)]
    heights = chart_drawing.tallness(bins, X)
    widths = [(one.high - one.low) / 10 for one in bins]
    assert [height * width for height, width in zip(heights, widths, strict=True)] == pytest.approx([0.25, 0.25, 0.5])


def test_the_tallest_bar_of_all_panels_fills_its_panel() -> None:
    paths = card(of_sample(5), "Latency to delivery, ms: distribution").all("path", "bars")
    tops = [min(float(top) for top in re.findall(r"V([\d.]+)H", path["d"])) for path in paths]
    assert len(tops) == 5 and min(tops) == 0
    assert all(0 <= top < PANEL_HEIGHT for top in tops)


def test_percentiles_are_marked_in_the_histogram() -> None:
    panel = card(of_sample(5), "Latency to delivery, ms: distribution").all("div", "panel")[0]
    assert [mark.text for mark in panel.all("line", "mark")] == ["p50 176.4", "p99 308.3"]


def test_a_long_tail_makes_the_axis_logarithmic() -> None:
    rows = [(0, "delivery", 0.0, 10.0, 1_000), (0, "delivery", 9_990.0, 10_000.0, 1)]
    tree = page(latencies(*rows))
    assert "milliseconds (logarithmic)" in card(tree, "Latency to delivery").text
    assert "The axis is logarithmic." in card(tree, "Latency to delivery, ms: distribution").one("figcaption").text
    assert "logarithmic" not in card(of_sample(5), "Latency to delivery").text


def test_a_bin_without_an_end_is_drawn() -> None:
    rows = [(0, "delivery", None, 10.0, 5), (0, "delivery", 10.0, None, 5), (0, "delivery", 5.0, 6.0, None)]
    (piece,) = corners(card(page(latencies(*rows)), "Latency to delivery").one("path", "line"))
    assert piece == [(0, HEIGHT), (WIDTH / 2, HEIGHT / 2), (WIDTH, 0), (WIDTH, 0)]


def test_what_lies_in_one_bin_is_no_picture() -> None:
    assert missing(of_sample(5))["Time held back, ms"] == "in every run all lie in one bin, below 0.001."


def test_a_latency_that_nobody_knows_is_drawn_under_its_name() -> None:
    tree = page(latencies((0, "echo", 0.0, 1.0, 1), (0, "echo", 1.0, 2.0, 1)))
    assert card(tree, "Latency: echo").all("path", "line")


def test_every_kind_of_load_is_drawn() -> None:
    titles = [one.text for one in of_sample(5).all("h4")]
    kinds = ("Payload", "Control", "Bytes", "Received", "Duplicates", "Delivered", "Dropped")
    assert [title for title in titles if "of a node" in title] == [f"{kind} of a node: distribution" for kind in kinds]


# Runs, few and many


@pytest.mark.parametrize("title", ["Latency to delivery", "Latency by hop", "Reliability over time", "Mean degree"])
def test_few_runs_share_a_plot(title: str) -> None:
    for runs in (1, OVERLAID):
        plot = card(of_sample(runs), title)
        assert sorted(one.classes[1] for one in plot.all("path", "line")) == [f"c{place}" for place in range(1, runs + 1)]
        assert len(plot.all("text", "end")) == runs
        assert not plot.all("div", "panel")


@pytest.mark.parametrize("title", ["Latency to delivery", "Latency by hop", "Reliability over time", "Mean degree"])
def test_many_runs_get_a_panel_each(title: str) -> None:
    tree = of_sample(OVERLAID + 1)
    plot = card(tree, title)
    panels = plot.all("div", "panel")
    assert [panel.one("p").text for panel in panels] == [run["name"] for run in sample(OVERLAID + 1)["runs"]]
    assert [one.classes[1] for one in plot.all("path", "line")] == ["c0"] * (OVERLAID + 1)
    for panel in panels:
        behind = tree.by_id(panel.one("use")["href"].removeprefix("#"))
        assert len(behind.all("path", "behind")) == OVERLAID + 1
    assert "runs are shown" not in plot.text


@pytest.mark.parametrize("title", ["Latency to delivery", "Latency to delivery, ms: distribution", "Reliability over time"])
def test_too_many_runs_are_cut_and_counted(title: str) -> None:
    plot = card(of_sample(60), title)
    assert len(plot.all("div", "panel")) == PANELS
    assert f"The first {PANELS} of 60 runs are shown." in plot.one("figcaption").text


def test_a_run_has_one_colour_in_the_whole_report() -> None:
    tree = of_sample(5)
    keys = {cell.text: cell.one("i").classes[1] for cell in tree.all("th") if cell.all("i")}
    assert keys == {run["name"]: f"c{place}" for place, run in enumerate(sample()["runs"], 1)}
    for line in tree.all("path", "line"):
        assert line.classes[1] == keys[line.text]
    for panel in tree.all("div", "panel"):
        assert panel.one("path", "bars").classes[1] == panel.one("i").classes[1] == keys[panel.one("p").text]


def test_many_runs_have_no_keys() -> None:
    assert not of_sample(OVERLAID + 1).all("i")


# Time and faults


def test_reliability_falls_at_the_faults() -> None:
    plot = card(of_sample(5), "Reliability over time")
    (mark,) = plot.all("line", "mark")
    assert float(mark["x1"].removesuffix("%")) == pytest.approx(100 * 8 / 29, abs=0.01)
    assert mark.text == "fault at 8 s"
    assert "instants of faults" in plot.one("figcaption").text


def test_a_panel_marks_the_faults_of_its_own_run() -> None:
    panels = card(of_sample(OVERLAID + 1), "Reliability over time").all("div", "panel")
    assert [len(panel.all("line", "mark")) for panel in panels] == [0, 1, 1, 1, 1, 0, 1]


def test_without_faults_there_is_no_mark() -> None:
    plot = card(of_sample(1), "Reliability over time")
    assert not plot.all("line", "mark")
    assert "faults" not in plot.one("figcaption").text


def test_a_fault_outside_the_messages_widens_the_axis() -> None:
    analysis = sample(2)
    analysis["tables"]["recovery"]["rows"] = [[1, -29.0, 0, None, None]]
    plot = card(page(analysis), "Reliability over time")
    assert plot.one("line", "mark")["x1"] == "0%"
    assert corners(plot.all("path", "line")[0])[0][0][0] == WIDTH / 2


# Nothing


@pytest.mark.parametrize(
    ("table", "charts"),
    [
        ("latency_distribution", ["Latency distribution"]),
        ("by_hop", ["Latency by hop"]),
        ("over_time", ["Reliability over time"]),
        ("load_distribution", ["Load over nodes"]),
        ("overlay", ["Overlay over time"]),
        ("recovery", []),
    ],
)
@pytest.mark.parametrize("how", ["gone", "empty", "null", "other columns"])
def test_a_chart_without_its_table_says_so(table: str, charts: list[str], how: str) -> None:
    analysis = sample(2)
    found = analysis["tables"][table]
    if how == "gone":
        del analysis["tables"][table]
    elif how == "empty":
        found["rows"] = []
    elif how == "null":
        found["rows"] = [[row[0]] + [None] * (len(row) - 1) for row in found["rows"]]
    else:
        found["columns"] = ["run", *(f"other {place}" for place in range(1, len(found["columns"])))]
    said = missing(page(analysis))
    assert [title for title in said if title != "Time held back, ms"] == charts


def test_one_snapshot_is_no_time() -> None:
    analysis = sample(2)
    analysis["tables"]["overlay"]["rows"] = [row for row in analysis["tables"]["overlay"]["rows"] if row[1] == 0]
    assert missing(page(analysis))["Overlay over time"] == "no run has two snapshots; what there is stands in the table."


@pytest.mark.parametrize("analysis", [hollow(), nothing()])
def test_nothing_is_drawn_of_nothing(analysis: dict[str, Any]) -> None:
    tree = page(analysis)
    assert not tree.all("svg") and not tree.all("figure")


@pytest.mark.parametrize("runs", [1, 5, 7, 60])
def test_no_drawing_is_empty_or_leaves_its_plot(runs: int) -> None:
    for plot in of_sample(runs).all("div", "plot"):
        assert [one for one in plot.walk() if one.tag in ("path", "circle")]
        across = [one[name] for one in plot.walk() for name in ("x1", "x2", "cx") if name in one.attributes]
        assert all(0 <= float(place.removesuffix("%")) <= 100 for place in across)
