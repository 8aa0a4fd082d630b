"""The page of a sweep: the grid and its intervals, the data of the charts, failures with their replays, hostile names."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from libweft.bench.report import render_sweep, write_sweep
from libweft.bench.report.sweep import FAILURES, label, read
from libweft.bench.report.text import DASH
from tests.bench.test_report_samples import Element
from tests.bench.test_report_samples import read as tree_of

HOSTILE = "</script><script>alert(\"1\")</script><b onload='x'>&amp;"
STACKS, FAULTS, HIGH = ("flood", "plumtree", "gossipsub"), ("calm", "crashes"), (50.0, 200.0, 100.0)


def swept() -> dict[str, Any]:
    """Three stacks in two kinds of weather over links of three lengths, and a failure. Nothing was measured."""
    points = []
    for n, (stack, faults, high) in enumerate(product(STACKS, FAULTS, HIGH)):
        harm, slow = 0.03 * (faults == "crashes") * (n + 1) / 9, high * (2 + n / 10)
        settings = {"stack": stack, "faults": faults, "latency.high": high}
        measures = {
            "reliability": {"mean": 1 - harm, "low": 1 - 1.4 * harm, "high": 1 - 0.6 * harm, "runs": 3},
            "rmr": {"mean": 3.0 / (1 + n), "low": 2.8 / (1 + n), "high": 3.2 / (1 + n), "runs": 3},
            "latency_ms_p99": {"mean": slow, "low": slow - 12, "high": slow + 12, "runs": 3},
            "cpu_s": {"mean": 0.5, "low": None, "high": None, "runs": 1},
        }
        points.append({"point": f"p{n}", "settings": settings, "runs": 3 - (n == 4), "failed": int(n == 4), "measures": measures})
    failure = {"point": "p4", "seed": 2, "error": "it broke", "replay": "weft sim --nodes 100 --seed 2"}
    return {"points": points, "failures": [failure], "seeds": [1, 2, 3], "simulated": 53, "known_before": 0, "runs": []}


def page(result: dict[str, Any], title: str = "Sweep") -> Element:
    return tree_of(render_sweep(result, title=title))


def data(tree: Element) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(tree.by_id("sweep-data").text)
    return found


def test_the_grid_has_a_row_a_point_with_means_and_intervals() -> None:
    rows = page(swept()).one("tbody").all("tr")
    assert len(rows) == 18
    first = [cell.text for cell in rows[0].all("td")]
    assert first[:5] == ["flood", "calm", "50", "3", "0"]
    assert first[5:8] == ["100.00100.00 to 100.00", "3.002.80 to 3.20", "100.088.0 to 112.0"]


def test_numbers_of_an_axis_are_in_order_and_words_in_that_of_the_plan() -> None:
    axes = {axis.name: axis for axis in read(swept()).axes}
    assert axes["latency.high"].values == ["50", "100", "200"] and axes["latency.high"].numbers == [50, 100, 200]
    assert axes["stack"].values == list(STACKS) and axes["stack"].numbers is None


def test_the_charts_get_every_point_and_measure() -> None:
    found = data(page(swept()))
    assert [axis["name"] for axis in found["axes"]] == ["stack", "faults", "latency.high"]
    assert found["lines"] == 0
    assert [one["name"] for one in found["measures"]] == ["reliability", "redundancy (RMR)", "latency p99, ms", "cpu,\u00a0s"]
    place, spreads = found["points"][1]
    assert place == [0, 0, 2] and spreads[2] == pytest.approx([420, 408, 432]) and spreads[3] == [0.5, None, None]


def test_a_measure_is_picked_and_parameters_are_held() -> None:
    tree = page(swept())
    assert [option.text for option in tree.one("select", "measure").all("option")][:2] == ["reliability", "redundancy (RMR)"]
    held = [[option.text for option in pick.all("option")] for pick in tree.all("select", "held")]
    assert held == [["all", *STACKS], list(FAULTS), ["50", "100", "200"]]


def test_the_axis_of_the_only_chart_is_not_held() -> None:
    result = swept()
    for point in result["points"]:
        point["settings"] = {"stack": point["settings"]["stack"]}
    assert not page(result).all("select", "held")


def test_without_stacks_there_is_one_line() -> None:
    result = swept()
    for point in result["points"]:
        del point["settings"]["stack"]
    assert data(page(result))["lines"] == -1


def test_failures_come_with_their_replay() -> None:
    (item,) = page(swept()).one("section", "warnings").all("li")
    assert item.text == "p4, seed 2: it brokereplay: weft sim --nodes 100 --seed 2"
    assert item.one("code").text == "weft sim --nodes 100 --seed 2"


def test_many_failures_are_counted() -> None:
    result = swept()
    result["failures"] *= FAILURES + 7
    items = page(result).one("section", "warnings").all("li")
    assert len(items) == FAILURES + 1 and items[-1].text == "and 7 more, which --json shows"


@pytest.mark.parametrize(
    "result",
    [
        *({}, {"points": None, "failures": None, "seeds": None}, {"points": [{}], "seeds": []}, {"points": [{"settings": 3}, 7]}),
        {"points": [{"settings": {"a": None}, "measures": {"rmr": {}}}], "failures": [{}]},
    ],
)
def test_a_result_may_lack_everything(result: dict[str, Any]) -> None:
    assert "Nothing to show" in page(result).text


def test_a_measure_that_there_is_not_is_a_dash() -> None:
    result = swept()
    result["points"][0]["measures"] = {"rmr": {"mean": float("nan")}}
    cells = page(result).one("tbody").all("tr")[0].all("td")
    assert [cell.text for cell in cells[5:]] == [DASH] * 3


def test_hostile_text_adds_no_tag_and_comes_through_whole() -> None:
    def poisoned(word: str) -> dict[str, Any]:
        result = swept()
        for point in result["points"]:
            point["settings"] = {word: point["settings"].pop("faults"), **point["settings"], "stack": word}
            point["measures"][word] = {"mean": 1.0, "low": None, "high": None}
        result["failures"] = [dict.fromkeys(("point", "seed", "error", "replay"), word)]
        return result

    hostile, tame = page(poisoned(HOSTILE), HOSTILE), page(poisoned("x" * len(HOSTILE)), "x")
    shape = [[one.tag for one in tree.walk() if one.tag != "span"] for tree in (hostile, tame)]
    assert shape[0] == shape[1]
    assert HOSTILE in [axis["name"] for axis in data(hostile)["axes"]]
    assert HOSTILE not in render_sweep(poisoned(HOSTILE), title=HOSTILE)


def test_the_same_result_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_sweep(swept(), tmp_path / name, title="x")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("measure", "shown"), [("latency_ms_p99", "latency p99, ms"), ("last_ms", "last,\u00a0ms"), ("rmr", "redundancy (RMR)")]
)
def test_labels(measure: str, shown: str) -> None:
    assert label(measure) == shown
