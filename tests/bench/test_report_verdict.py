"""The verdict: who is worst and by how much, and when one may not say so."""

from __future__ import annotations

from typing import Any

import pytest

from libweft.bench.report import render
from libweft.bench.report.verdict import RANKED, Contender, is_clear
from tests.bench.test_report_samples import Element, hollow, nothing, read, sample

TITLES = ("Most redundant", "Least reliable", "Slowest, p99", "Slowest to the last subscriber")


def stacks(**rmr: tuple[float, float]) -> dict[str, Any]:
    """A run a stack, with its RMR and the half of its interval; all else is the same."""
    analysis = sample(len(rmr))
    for run, (name, (value, half)) in zip(analysis["runs"], rmr.items(), strict=True):
        run |= {"stack": f"o/{name}", "name": name, "reliability": 1.0, "rmr": value, "last_ms": 100.0}
        run["ci95"] = {"rmr": [value - half, value + half], "reliability": [1.0, 1.0], "last_ms": [90.0, 110.0]}
    return analysis


def card(analysis: dict[str, Any], title: str = TITLES[0]) -> Element:
    tree = read(render(analysis, title="x"))
    (found,) = [one for one in tree.all("div", "verdict") if one.one("h3").text == title]
    return found


def said(analysis: dict[str, Any], title: str = TITLES[0]) -> tuple[str, str]:
    found = card(analysis, title)
    return found.one("p", "answer").text, found.one("p", "why").text


def names(found: Element) -> list[str]:
    return [one.text for one in found.all("span", "name")]


def test_the_worst_is_named_with_its_interval_and_how_far_the_best_is() -> None:
    analysis = stacks(plumtree=(1.8, 0.1), flood=(18.8, 0.2), gossip=(5.0, 0.1))
    assert said(analysis) == ("o/flood", "18.80 spare copies a receiver (95 %: 18.60\u201319.00), 10 times o/plumtree.")
    assert names(card(analysis)) == ["o/flood", "o/gossip", "o/plumtree"]


def test_longer_bars_are_worse() -> None:
    widths = [float(bar["width"].removesuffix("%")) for bar in card(stacks(a=(1.0, 0.1), b=(4.0, 0.1), c=(2.0, 0.1))).all("rect")]
    assert widths == sorted(widths, reverse=True) and widths[1] == pytest.approx(widths[0] / 2, abs=0.02)


def test_what_chance_may_explain_is_no_difference() -> None:
    answer, why = said(stacks(a=(2.0, 0.3), b=(2.2, 0.3)))
    assert answer == "no clear difference"
    assert why == "2.00\u20132.20 spare copies a receiver: chance among the messages may explain it."


def test_two_that_are_worst_together_are_both_named() -> None:
    answer, why = said(stacks(a=(2.0, 0.3), b=(2.2, 0.3), c=(0.5, 0.1)))
    assert answer == "o/b or o/a"
    assert "4.4 times o/c" in why and "Not clearly apart from o/a" in why


def test_nobody_is_least_reliable_where_nothing_was_missed() -> None:
    assert said(stacks(a=(1.0, 0.1), b=(2.0, 0.1)), TITLES[1]) == ("none", "Nobody missed a message in time.")


def test_what_is_missed_is_told_as_a_share() -> None:
    analysis = stacks(a=(1.0, 0.1), b=(2.0, 0.1))
    analysis["runs"][1] |= {"reliability": 0.9, "ci95": {"reliability": [0.88, 0.92]}}
    assert said(analysis, TITLES[1]) == ("o/b", "10 % missed (95 %: 8 %\u201312 %), o/a missed none.")


def test_a_percentile_has_no_interval_and_the_sentence_says_so() -> None:
    analysis = stacks(a=(1.0, 0.1), b=(2.0, 0.1))
    analysis["runs"][1]["latency_ms"] = {"p99": 900.0}
    answer, why = said(analysis, TITLES[2])
    assert answer == "o/b" and why.endswith("A percentile has no interval here.")
    analysis["runs"][1]["latency_ms"] = {"p99": analysis["runs"][0]["latency_ms"]["p99"] * 1.02}
    assert said(analysis, TITLES[2])[0] == "no clear difference"


def test_a_stack_of_several_runs_has_their_mean_and_range() -> None:
    analysis = stacks(a=(1.0, 0.1), b=(2.0, 0.1), c=(4.0, 0.1), d=(8.0, 0.1))
    for run, stack in zip(analysis["runs"], ("x", "x", "y", "y"), strict=True):
        run["stack"] = stack
    assert said(analysis) == ("y", "6.00 spare copies a receiver (4.00\u20138.00 over 2 runs), 4.0 times x.")


def test_runs_of_one_stack_are_compared_by_name() -> None:
    assert names(card(sample(3)))[0] in [run["name"] for run in sample(3)["runs"]]


def test_many_are_cut_and_counted() -> None:
    found = card(stacks(**{f"s{n}": (float(n), 0.1) for n in range(RANKED + 3)}))
    assert len(found.all("li")) == RANKED and found.one("p", "rest").text == "and 3 more"


@pytest.mark.parametrize("analysis", [sample(1), nothing(), hollow(3), {}])
def test_there_is_no_verdict_on_one_or_on_nothing(analysis: dict[str, Any]) -> None:
    tree = read(render(analysis, title="x"))
    assert not tree.all("div", "verdicts")
    assert "#verdict" not in [one["href"] for one in tree.all("a")]


def test_a_run_without_the_figure_is_left_out() -> None:
    analysis = stacks(a=(1.0, 0.1), b=(2.0, 0.1), c=(3.0, 0.1))
    analysis["runs"][2]["rmr"] = None
    assert names(card(analysis)) == ["o/b", "o/a"]


@pytest.mark.parametrize(
    ("worse", "better", "clear"),
    [
        ((2.0, (1.0, 3.0), 1), (1.0, (0.5, 1.5), 1), False),  # 1 is less than the root of 1 + 0.25
        ((2.2, (1.2, 3.2), 1), (1.0, (0.5, 1.5), 1), True),
        ((2.0, (1.6, 2.4), 3), (1.0, (0.5, 1.5), 1), True),
        ((2.0, (1.4, 2.4), 3), (1.0, (0.5, 1.5), 1), False),
        ((1.0, None, 1), (0.97, None, 1), False),
        ((1.0, None, 1), (0.9, None, 1), True),
        ((1.0, (1.0, 1.0), 1), (1.0, (1.0, 1.0), 1), False),
    ],
)
def test_when_a_difference_is_clear(worse: Any, better: Any, clear: bool) -> None:
    assert is_clear(*(Contender("x", 0, value, ends, runs) for value, ends, runs in (worse, better))) is clear
