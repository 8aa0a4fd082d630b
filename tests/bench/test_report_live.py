"""The page of a live network: the figures of the last window, how they went, when it was written, and that it is the last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from libweft.bench.cli import follow
from libweft.bench.report.live import WINDOWS, History
from libweft.bench.report.text import DASH
from tests.bench.test_report_samples import Element, read

AT = 1_700_000_000.0
HOSTILE = '</script><script>alert("1")</script>'


def figures(n: int = 0) -> dict[str, Any]:
    return {
        **{"rows": 1_000 * n, "late_rows": 0, "quiet_s": 0.4, "age_s": 4.2, "messages": 60, "messages_per_s": 1.0, "judged": 50},
        **{"reliability": 1 - n / 1_000, "reliability_min": 0.9, "deliveries": 600, "deliveries_per_s": 10.0 + n},
        **{"latency_ms": {"p50": 20.0, "p99": 43.5 + n}, "sent_per_s": 12.0, "bytes_per_s": 4_096.5, "duplicates": 7},
    }


def history(windows: int, **changes: object) -> History:
    found = History()
    for n in range(windows):
        found.add({**figures(n), **changes}, at=AT + 2 * n)
    return found


def page(found: History, **settings: Any) -> Element:
    return read(found.page(title=settings.pop("title", "Following run"), every=2.0, **settings))


def shown(tree: Element) -> dict[str, str]:
    return {row.one("th").text: row.one("td").text for row in tree.one("tbody").all("tr")}


def test_the_last_window_is_shown() -> None:
    found = shown(page(history(3)))
    assert (found["Reliability, mean"], found["Latency p99"], found["Deliveries a second"]) == ("99.8 %", "45.5 ms", "12")
    assert found["Rows read in all"] == "2,000"


def test_the_page_tells_when_it_was_written_and_from_when_on_it_is_stale() -> None:
    age = page(history(3)).by_id("age")
    assert age.text == "Written at 2023-11-14 22:13:24 UTC."
    assert (age["data-written"], age["data-stale"], age["data-every"]) == ("1700000004000", "10", "2")


def test_the_last_page_says_that_it_is() -> None:
    age = page(history(1), ended=True).by_id("age")
    assert "ended" in age.classes and age.text.startswith("Ended: this is the last page")


def test_the_charts_go_over_the_last_windows_alone() -> None:
    tree = page(history(WINDOWS + 50))
    assert tree.by_id("history").text == f"The last {WINDOWS} windows"
    assert [one.one("h4").text for one in tree.all("figure")] == ["Reliability", "Latency", "Deliveries and copies", "Messages"]
    assert all(line["d"].count("L") < WINDOWS for line in tree.all("path", "line"))


def test_before_the_first_window_there_is_nothing() -> None:
    assert "no window yet" in page(History()).text


@pytest.mark.parametrize("strange", [None, "many", float("nan"), [1], {"p50": "x"}])
def test_a_figure_that_there_is_not_is_a_dash(strange: object) -> None:
    names = ("reliability", "reliability_min", "latency_ms", "deliveries_per_s", "sent_per_s", "messages_per_s")
    tree = page(history(2, **dict.fromkeys(names, strange)))
    assert shown(tree)["Reliability, mean"] == shown(tree)["Latency p50"] == DASH
    assert not tree.all("figure") and "no window has this figure yet" in tree.text


def test_a_trace_without_rows_can_be_shown() -> None:
    found = History()
    found.add({"rows": 0, "quiet_s": 3.0}, at=AT)
    assert shown(page(found))["Rows read in all"] == "0"


def test_a_hostile_name_is_text() -> None:
    tree = page(history(1), title=HOSTILE)
    assert tree.one("h1").text == HOSTILE and len(tree.all("script")) == 2


def test_pages_replace_each_other_and_the_last_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([AT, AT + 9])
    monkeypatch.setattr("libweft.bench.cli.follow.time.time", lambda: next(times))
    pages = follow.Pages(tmp_path / "live.html", "Following run")
    pages.end()
    assert not [*tmp_path.iterdir()]
    for n in range(2):
        pages.write(figures(n))
    age = read((tmp_path / "live.html").read_text(encoding="utf-8")).by_id("age")
    assert (age["data-every"], age["data-stale"]) == ("9", "45")
    pages.end()
    assert "ended" in read((tmp_path / "live.html").read_text(encoding="utf-8")).by_id("age").classes
    assert [path.name for path in tmp_path.iterdir()] == ["live.html"]
