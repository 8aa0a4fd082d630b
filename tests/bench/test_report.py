"""The report as a file: one page that needs nothing else, says the figures that it was given, and trusts no text."""

from __future__ import annotations

import base64
import copy
import hashlib
import html
import json
import math
import os
import re
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libweft.bench.report import check, render, write
from libweft.bench.report.tables import ROWS
from libweft.bench.report.text import DASH, data, decimals, escape, figure, heading, percent, short
from libweft.peer.errors import UsageError
from tests.bench.test_report_samples import Element, hollow, nothing, pictured, read, sample

SAMPLES = {
    **{"five": sample(), "one": sample(1), "seven": sample(7), "forty": sample(40), "nothing": nothing(), "hollow": hollow()},
    **{"pictured": pictured(), "pictures": pictured(6)},
}
HOSTILE = '</code></script><script>alert("1")</script><b onload=\'x\'>&amp;&lt; "quoted" \u4e2d\u6587 e\u0301 ' + "long" * 60
TITLE = "A flood under loss"
COMPARED = (
    *("reliability", "rmr", "payload_per_delivery", "false_positives", "ldh_mean", "p50", "p90", "p99", "max"),
    *("last_ms", "control_per_delivery", "bytes_per_delivery"),
)
SHARES = ("reliability", "false_positives")
PLACES = ("d", "x1", "x2", "y1", "y2", "cx", "cy", "x", "y", "height")
"""Attributes of drawings that hold numbers."""


def page(analysis: dict[str, Any], title: str = TITLE) -> Element:
    return read(render(analysis, title=title))


@cache
def rendered(name: str) -> str:
    return render(SAMPLES[name], title=TITLE)


@cache
def parsed(name: str) -> Element:
    return read(rendered(name))


@pytest.fixture(params=SAMPLES)
def text(request: pytest.FixtureRequest) -> str:
    return rendered(request.param)


@pytest.fixture(params=SAMPLES)
def tree(request: pytest.FixtureRequest) -> Element:
    return parsed(request.param)


def section(tree: Element, key: str) -> Element:
    (found,) = [one for one in tree.all("section") if one["aria-labelledby"] == key]
    return found


def cells(tree: Element, key: str) -> list[list[Element]]:
    """The body of the table in a section, a list a row."""
    rows = section(tree, key).one("tbody").all("tr")
    return [[one for one in row.inside if isinstance(one, Element)] for row in rows]


def table_of(tree: Element, title: str) -> Element:
    (found,) = [one for one in tree.all("details", "table") if one.one("h3").text == title]
    return found


def body(table: Element) -> list[list[Element]]:
    return [[one for one in row.inside if isinstance(one, Element)] for row in table.one("tbody").all("tr")]


def main_text(cell: Element) -> str:
    """Without the small print."""
    return "".join(part for part in cell.inside if isinstance(part, str))


def smalls(cell: Element) -> list[str]:
    return [small.text for small in cell.all("small")]


def agrees(shown: str, value: float, factor: float = 1) -> bool:
    """Whether the text is the value, rounded at the digits that the text has."""
    digits = shown.replace(",", "")
    places = len(digits.partition(".")[2]) if "e" not in digits else 20
    return math.isclose(float(digits), value * factor, rel_tol=1e-9, abs_tol=0.5000001 * 10.0**-places)


# The page as a whole


def test_tags_nest_and_ids_are_used_once(tree: Element) -> None:
    ids = Counter(one["id"] for one in tree.walk() if "id" in one.attributes)
    assert [key for key, times in ids.items() if times > 1] == []


def test_references_lead_somewhere_in_the_page(tree: Element) -> None:
    ids = {one["id"] for one in tree.walk() if "id" in one.attributes}
    wanted = [key for one in tree.walk() for key in one.attributes.get("aria-labelledby", "").split()]  # type: ignore[union-attr]
    wanted += [one["href"].removeprefix("#") for one in tree.walk() if "href" in one.attributes]
    assert set(wanted) <= ids


def test_nothing_is_loaded_from_anywhere(tree: Element) -> None:
    assert {one.tag for one in tree.walk()}.isdisjoint({"link", "img", "image", "iframe", "object", "embed", "base", "form"})
    assert all(one["href"].startswith("#") for one in tree.walk() if "href" in one.attributes)
    names = {name for one in tree.walk() for name in one.attributes}
    assert names.isdisjoint({"src", "srcset", "style", "action", "xlink:href"})
    assert not [name for name in names if name.startswith("on")]


def test_no_address_stands_in_the_page(text: str) -> None:
    assert not re.search(r"https?://|url\(|@import|\bfetch\b|\bimport\b", text)


def test_only_its_own_scripts_may_run(tree: Element) -> None:
    (policy,) = [one["content"] for one in tree.all("meta") if one.attributes.get("http-equiv") == "Content-Security-Policy"]
    scripts = [one for one in tree.all("script") if "type" not in one.attributes]
    digests = [base64.b64encode(hashlib.sha256(one.text.encode()).digest()).decode() for one in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}"
    assert {one["type"] for one in tree.all("script") if one not in scripts} <= {"application/json"}


def test_headings_come_in_order(tree: Element) -> None:
    levels = [int(one.tag[1]) for one in tree.walk() if re.fullmatch("h[1-6]", one.tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_tables_and_drawings_can_be_heard(tree: Element) -> None:
    ids = {one["id"]: one for one in tree.walk() if "id" in one.attributes}
    assert tree.one("html")["lang"] == "en"
    assert all("scope" in one.attributes for one in tree.all("th"))
    for drawing in (one for one in tree.all("svg") if one.attributes.get("role") == "img"):
        title, description = (ids[key] for key in drawing["aria-labelledby"].split())
        assert (title.tag, description.tag) == ("title", "desc")
        assert title.text and description.text


def test_it_fits_a_phone_and_the_dark() -> None:
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in rendered("five")
    assert "@media (prefers-color-scheme: dark)" in rendered("five")
    holders = [box for box in parsed("five").walk() if any(getattr(one, "tag", "") == "table" for one in box.inside)]
    assert holders and all("box" in box.classes for box in holders)


def test_the_same_analysis_gives_the_same_bytes(tmp_path: Path) -> None:
    write(sample(), tmp_path / "a.html", title=TITLE)
    write(sample(), tmp_path / "b.html", title=TITLE)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_the_analysis_is_left_as_it_was() -> None:
    analysis = sample()
    render(analysis, title=TITLE)
    assert analysis == sample()


def test_no_path_of_this_machine_is_told(text: str) -> None:
    assert "/traces/" not in text


# What ran


def test_every_run_is_told_with_its_command() -> None:
    analysis = sample()
    rows = cells(page(analysis), "runs")
    for run, row in zip(analysis["runs"], rows, strict=True):
        shown = [cell.text for cell in row]
        assert shown == [run["name"], "static/flood", "1,000", str(run["seed"]), "50", "10", run["status"], run["command"]]
        assert row[-1].one("code").text == run["command"]


def test_a_seed_has_no_commas() -> None:
    analysis = sample(1)
    analysis["runs"][0]["seed"] = 123_456_789
    assert cells(page(analysis), "runs")[0][3].text == "123456789"


def test_only_a_complete_run_looks_fine() -> None:
    rows = cells(parsed("five"), "runs")
    assert [row[6].one("span").classes[1] for row in rows] == ["fine", "poor", "fine", "fine", "fine"]


def test_warnings_stand_before_everything_else() -> None:
    analysis = {**sample(), "warnings": ["first", "second"]}
    tree = page(analysis)
    assert [item.text for item in section(tree, "warnings").all("li")] == ["first", "second"]
    assert tree.one("main").all("section")[0]["aria-labelledby"] == "warnings"


def test_many_warnings_are_counted() -> None:
    items = section(page({**sample(), "warnings": ["w"] * 73}), "warnings").all("li")
    assert len(items) == 51
    assert items[-1].text == "and 23 more"


def test_without_warnings_there_is_no_box() -> None:
    assert not page({**sample(), "warnings": []}).all("section", "warnings")


def test_runs_of_one_name_are_told_apart() -> None:
    analysis = sample(3)
    for run in analysis["runs"][:2]:
        run["name"] = "same"
    assert [row[0].text for row in cells(page(analysis), "runs")] == ["same #0", "same #1", analysis["runs"][2]["name"]]


def test_the_tiles_show_the_ends() -> None:
    analysis = sample()
    reliability, rmr, latency, deliveries = (one.text for one in page(analysis).one("dl", "tiles").all("dd"))
    least = min(run["reliability"] for run in analysis["runs"])
    assert reliability == f"{100 * least:.1f} {DASH} 100 %least: 60% of nodes crash"
    redundancies = [run["rmr"] for run in analysis["runs"]]
    assert rmr.startswith(f"{min(redundancies):.2f} {DASH} {max(redundancies):.2f}")
    assert latency.startswith("176.4 ")
    assert deliveries == f"{sum(run['deliveries'] for run in analysis['runs']):,}in 5 runs"


# The comparison


@pytest.mark.parametrize("name", ["one", "five", "forty"])
def test_the_comparison_says_what_was_given(name: str) -> None:
    analysis = SAMPLES[name]
    rows = cells(parsed(name), "comparison")
    for run, row in zip(analysis["runs"], rows, strict=True):
        assert row[0].text == run["name"]
        for column, cell in zip(COMPARED, row[1:], strict=True):
            value = run["latency_ms"][column] if column in run["latency_ms"] else run[column]
            assert agrees(main_text(cell), value, 100 if column in SHARES else 1), (column, value, cell.text)
            assert float(cell["data-v"]) == value


def test_the_comparison_has_every_figure_in_its_order() -> None:
    first, second = section(parsed("five"), "comparison").one("thead").all("tr")
    assert [head.text for head in first.all("th")] == [
        *("Run", "Reliability,\u00a0%", "RMR", "Payload per delivery", "False positives,\u00a0%", "Last delivery hop"),
        *("Latency, ms", "Last subscriber,\u00a0ms", "Control per delivery", "Bytes per delivery"),
    ]
    assert [head.text for head in second.all("th")] == ["p50", "p90", "p99", "max"]


def test_intervals_and_extremes_stand_by_the_means() -> None:
    tree = parsed("five")
    for run, row in zip(SAMPLES["five"]["runs"], cells(tree, "comparison"), strict=True):
        interval, least = smalls(row[1])
        assert all(agrees(shown, end, 100) for shown, end in zip(interval.split(DASH), run["ci95"]["reliability"], strict=True))
        assert least.startswith("min ") and agrees(least.removeprefix("min "), run["reliability_min"], 100)
        for place, name in ((2, "rmr"), (3, "payload_per_delivery"), (5, "ldh_mean"), (10, "last_ms")):
            ends = smalls(row[place])[0].split(DASH)
            assert all(agrees(shown, end) for shown, end in zip(ends, run["ci95"][name], strict=True))
        assert smalls(row[5])[1] == f"max {run['ldh_max']}"
        assert [smalls(cell) for cell in (row[4], *row[6:10], *row[11:])] == [[]] * 7
    assert "over the messages of the run" in section(tree, "comparison").all("p")[0].text


def test_an_interval_below_nought_has_no_dash() -> None:
    analysis = sample(1)
    analysis["runs"][0]["ci95"]["rmr"] = [-0.25, 0.5]
    assert smalls(cells(page(analysis), "comparison")[0][2]) == ["-0.25 to 0.50"]


def test_a_figure_that_there_is_not_is_a_dash() -> None:
    tree = page(hollow())
    for row in cells(tree, "comparison"):
        assert [cell.text for cell in row[1:]] == [DASH] * len(COMPARED)
        assert not any("data-v" in cell.attributes for cell in row)
    assert [cell.text for cell in cells(tree, "runs")[0][1:]] == [DASH] * 7


@pytest.mark.parametrize("strange", [math.nan, math.inf, -math.inf, True, "many", [1], 10**400])
def test_what_is_no_number_is_a_dash(strange: object) -> None:
    analysis = sample(2)
    analysis["runs"][0] |= {"reliability": strange, "rmr": strange, "last_ms": strange, "latency_ms": strange, "ci95": strange}
    row = cells(page(analysis), "comparison")[0]
    assert [row[place].text for place in (2, 6, 7, 8, 9, 10)] == [DASH] * 6
    assert main_text(row[1]) == DASH


# The tables


@pytest.mark.parametrize("name", sample()["tables"])
def test_every_table_says_what_was_given(name: str) -> None:
    analysis = SAMPLES["five"]
    given_ = analysis["tables"][name]
    table = table_of(parsed("five"), given_["title"])
    assert table.one("p", "about").text == given_["about"]
    if not given_["rows"]:
        assert table.one("p", "nothing").text == "Nothing to show: the table has no rows."
        return
    assert len(table.one("thead").all("th")) == len(given_["columns"])
    for row, shown in zip(given_["rows"], body(table), strict=False):
        assert shown[0].text == analysis["runs"][row[0]]["name"]
        for column, value, cell in zip(given_["columns"][1:], row[1:], shown[1:], strict=True):
            share = column.startswith("reliability") or column in ("lowest", "largest_share", "symmetry")
            if isinstance(value, int | float):
                assert "n" in cell.classes and agrees(cell.text, value, 100 if share else 1), (column, value, cell.text)
            else:
                assert cell.text == (DASH if value is None else value)


def test_a_long_table_is_cut_and_says_so() -> None:
    for rows, said in ((ROWS, None), (ROWS + 1, "1 more row is"), (ROWS + 1_234, "1,234 more rows are")):
        analysis = sample(1)
        analysis["tables"]["by_hop"]["rows"] = [[0, hop, 1, 1.5, 1.5, 1.5] for hop in range(rows)]
        table = table_of(page(analysis), "By hop")
        assert len(body(table)) == ROWS
        assert [one.text for one in table.all("p", "rest")] == ([f"{said} not shown; the Parquet has all."] if said else [])
        assert table.one("span", "count").text == f"{rows:,} rows"


def test_a_table_that_nobody_knows_is_shown_too() -> None:
    analysis = sample(2)
    rows = [[0, "x", 1_234.5, True], [7, None, 2, False], [None, "y", None, None]]
    analysis["tables"]["wholly_new"] = {"columns": ["run", "topic", "size_ms", "fine"], "rows": rows}
    table = table_of(page(analysis), "Wholly new")
    assert [head.text for head in table.one("thead").all("th")] == ["run", "topic", "size,\u00a0ms", "fine"]
    shown = [[cell.text for cell in row] for row in body(table)]
    assert shown == [["calm", "x", "1,234", "yes"], ["7", DASH, "2", "no"], [DASH, "y", DASH, DASH]]


def test_rows_that_do_not_fit_are_cut_and_filled() -> None:
    analysis = sample(1)
    analysis["tables"] = {"odd": {"title": "Odd", "columns": ["run", "a"], "rows": [[0], [0, 1, 2], []]}}
    shown = [[cell.text for cell in row] for row in body(table_of(page(analysis), "Odd"))]
    assert shown == [["calm", DASH], ["calm", "1"], [DASH, DASH]]


@pytest.mark.parametrize("table", [None, {}, {"columns": ["run"]}, {"rows": [[1]]}, {"columns": [], "rows": [[]]}])
def test_a_table_without_anything_says_so(table: dict[str, Any] | None) -> None:
    shown = table_of(page({"tables": {"bare": table}}), "Bare")
    assert shown.one("p", "nothing").text == "Nothing to show: the table has no rows."


@pytest.mark.parametrize("analysis", [{}, {"runs": None, "tables": None, "warnings": None}, {"runs": [{}]}])
def test_an_analysis_may_lack_everything(analysis: dict[str, Any]) -> None:
    tree = page(analysis)
    assert tree.one("h1").text == TITLE
    assert "Nothing to show" in section(tree, "charts").text


# Escaping


def poisoned(word: str) -> dict[str, Any]:
    """That word in each place that holds text."""
    analysis = pictured(3)
    for picture in analysis["pictures"]:
        picture |= {"topic": word, "level": word, "lacks": [word]}
    analysis["runs"][0] |= dict.fromkeys(("name", "stack", "status", "command", "trace_hash", "path"), word)
    analysis["warnings"] = [word]
    for table in analysis["tables"].values():
        table |= {"title": word, "about": word}
        table["rows"] = [[word if isinstance(cell, str) else cell for cell in row] for row in table["rows"]]
    analysis["tables"][word] = {"columns": ["run", word], "rows": [[word, word], [0, word]]}
    return analysis


def form(tree: Element) -> list[tuple[str, list[str]]]:
    return [(one.tag, sorted(one.attributes)) for one in tree.walk() if one.tag != "span"]


def test_hostile_text_adds_no_tag_and_no_attribute() -> None:
    tame = "x" * (len(HOSTILE))
    assert form(page(poisoned(HOSTILE), HOSTILE)) == form(page(poisoned(tame), tame))


def test_hostile_text_comes_through_whole() -> None:
    tree = page(poisoned(HOSTILE), HOSTILE)
    assert tree.one("h1").text == tree.one("head").one("title").text == HOSTILE
    row = cells(tree, "runs")[0]
    assert [row[place].text for place in (0, 1, 6, 7)] == [HOSTILE] * 4
    assert section(tree, "warnings").one("li").text == HOSTILE
    assert {one.one("h3").text for one in tree.all("details", "table")} >= {HOSTILE}
    assert HOSTILE not in render(poisoned(HOSTILE), title=HOSTILE)


@pytest.mark.parametrize("strange", ["\x00", "\x1b[31m", "\ud800", "\u202egpj.exe", "\u2066", "\ufffe", "\x7f"])
def test_what_cannot_be_shown_becomes_visible(strange: str, tmp_path: Path) -> None:
    analysis = poisoned(f"a{strange}b")
    write(analysis, tmp_path / "r.html", title=strange)
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    read(text)
    assert strange not in text
    assert "a\ufffd" in text


def test_lines_of_a_command_stay_lines() -> None:
    analysis = sample(1)
    analysis["runs"][0]["command"] = "weft sim \\\n  --set 'a=b'  --trace-dir-with-a-name-of-more-than-forty-letters=x"
    assert cells(page(analysis), "runs")[0][-1].one("code").text == analysis["runs"][0]["command"]


def test_hostile_text_stays_inside_the_data_of_the_picture() -> None:
    text = page(poisoned(HOSTILE), HOSTILE).by_id("player-data").text
    assert not set("<>&") & set(text)
    assert json.loads(text)[0]["topic"] == json.loads(text)[0]["label"] == HOSTILE


# Text


@given(st.text())
def test_data_holds_no_markup_and_is_the_same_again(text: str) -> None:
    found = data({text: [text, 1]})
    assert not set("<>&\u2028\u2029") & set(found) and found.isascii()
    assert json.loads(found) in ({text: [text, 1]}, {_shown(text): [_shown(text), 1]})


def _shown(text: str) -> str:
    return html.unescape(escape(text))


@given(st.text())
def test_escaped_text_holds_no_markup(text: str) -> None:
    assert not set("<>\"'\x00") & set(escape(text))
    assert not re.search("&(?!amp;|lt;|gt;|quot;|#x27;)", escape(text))


@given(st.floats(-1e12, 1e12), st.integers(0, 4))
def test_a_figure_is_rounded_and_never_to_nought(value: float, places: int) -> None:
    text = figure(value, places)
    assert math.isclose(float(text.replace(",", "")), value, rel_tol=0.051, abs_tol=0.5000001 * 10.0**-places)
    assert (float(text.replace(",", "")) == 0) == (value == 0)


@given(st.floats(0, 1))
def test_a_share_is_not_rounded_to_all_or_nothing(share: float) -> None:
    shown = float(percent(share))
    assert math.isclose(shown, 100 * share, abs_tol=0.00500001)
    if 1e-9 < share < 1 - 1e-9:
        assert 0 < shown < 100


@pytest.mark.parametrize(
    ("share", "shown"),
    [(1.0, "100.00"), (0.0, "0.00"), (0.99999, "99.999"), (0.999996, "99.9996"), (0.000001, "0.0001"), (0.1234, "12.34")],
)
def test_shares(share: float, shown: str) -> None:
    assert percent(share) == shown


@pytest.mark.parametrize(
    ("value", "places", "shown"),
    [(1_234.56, 0, "1,235"), (0.00042, 2, "0.00042"), (-0.0, 2, "0.00"), (-0.004, 2, "-0.004"), (2, 0, "2"), (None, 2, DASH)],
)
def test_figures(value: float | None, places: int, shown: str) -> None:
    assert figure(value, places) == shown


@pytest.mark.parametrize(
    ("values", "places"), [([], 0), ([0.0], 0), ([0.01], 4), ([0.5], 3), ([-12, 3], 2), ([100], 1), ([2_000, 1], 0)]
)
def test_columns_share_their_decimals(values: list[float], places: int) -> None:
    assert decimals(values) == places


@pytest.mark.parametrize(
    ("column", "shown"),
    [("p50_ms", "p50,\u00a0ms"), ("time_s", "time,\u00a0s"), ("ldh_mean", "ldh mean"), ("s", "s"), ("_s", " s")],
)
def test_headings(column: str, shown: str) -> None:
    assert heading(column) == shown


@given(st.text(), st.integers(4, 30))
def test_a_short_name_keeps_both_ends(name: str, width: int) -> None:
    found = short(name, width)
    assert found == name or "\u2026" in found
    assert len(found) <= max(width, 4)


def test_a_short_name_counts_wide_letters_twice() -> None:
    assert short("abcdefghij", 10) == "abcdefghij"
    assert short("abcdefghijk", 10) == "abcde\u2026hijk"
    assert short("\u4e2d" * 10, 11) == "\u4e2d\u4e2d\u4e2d\u2026\u4e2d\u4e2d"


# Writing


def test_a_report_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("before")
    write(sample(1), path, title=TITLE)
    assert path.read_text(encoding="utf-8") == render(sample(1), title=TITLE)
    assert os.listdir(tmp_path) == ["report.html"]


@pytest.mark.parametrize("place", ["missing/report.html", "file/report.html", "folder", "x" * 300])
def test_where_nothing_can_be_written_one_line_says_what_to_do(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError) as caught:
        write(sample(1), tmp_path / place, title=TITLE)
    (line,) = str(caught.value).splitlines()
    assert str(tmp_path / place) in line
    assert "name a file in a folder that you can write to" in line
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


@pytest.mark.parametrize("step", ["write_bytes", "replace"])
def test_a_failure_leaves_the_old_report(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    path.write_text("before")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path if step == "write_bytes" else os, step, refuse)
    with pytest.raises(UsageError, match="Permission denied; name a file"):
        write(sample(1), path, title=TITLE)
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["report.html"]


def test_a_place_for_a_report_is_checked_before_the_work(tmp_path: Path) -> None:
    check(tmp_path / "report.html")
    for place in (tmp_path, tmp_path / "missing" / "report.html"):
        with pytest.raises(UsageError, match="name a file in"):
            check(place)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_read_only(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="Permission denied"):
        write(sample(1), tmp_path / "report.html", title=TITLE)


# Anything


ODD: list[Any] = [None, math.nan, math.inf, -1, 0, 1, -0.5, 1e-12, 1e9, 1e308, 10**400, True, "", "x", "<b>", [], {}, [1, 2]]


@settings(max_examples=25)
@given(st.data())
def test_no_analysis_breaks_the_page(data: st.DataObject) -> None:
    """Whatever stands in the place of a figure or a cell, the page is whole."""
    analysis = copy.deepcopy(SAMPLES[data.draw(st.sampled_from(["one", "five"]))])
    chance = data.draw(st.randoms(use_true_random=False))
    for run in analysis["runs"]:
        run |= {name: chance.choice(ODD) for name in chance.sample(sorted(run), 6)}
    for table in analysis["tables"].values():
        table["rows"] = table["rows"][: chance.randrange(20)]
        for row in table["rows"]:
            row[chance.randrange(len(row))] = chance.choice(ODD)
    tree = page(analysis)
    places = [one[name] for one in tree.walk() for name in PLACES if name in one.attributes]
    assert not [place for place in places if not place or "nan" in place or "inf" in place]
