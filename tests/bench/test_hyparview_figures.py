"""The figures of HyParView and Plumtree on canned measures: which scenarios they ask for, and how they judge what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any, cast

import pytest

from libweft.bench.papers import (
    FIGURES,
    hyparview_graph,
    hyparview_healing,
    hyparview_percolation,
    hyparview_reliability,
    plumtree_churn,
    plumtree_crash,
    plumtree_ldh,
    plumtree_rmr,
)
from libweft.bench.papers import hyparview_setting as setting
from libweft.bench.papers.figure import Row
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.runs.reading import validate
from libweft.bench.runs.scenario import Scenario
from libweft.peer.sim.faults import Crash, MassCrash

NAMES = [name for name in FIGURES if name.startswith(("hyparview", "plumtree"))]
GRAPH = {"clustering": 0.001, "path_mean": 6.4, "degree_full": 0.995, "symmetry": 1.0}


class CannedLab:
    """In the place of `Lab`: every run comes to the same, which a test may change."""

    def __init__(self, quick: bool, runs: int = 1) -> None:
        self.quick = quick
        self.seeds = list(range(1, runs + 1))
        self.asked: list[Scenario] = []
        self.message: dict[str, Any] = {"reliability": 1.0, "rmr": 0.0, "duplicates": 0.0, "ldh": 9}

    def measure(self, scenarios: Sequence[Scenario]) -> list[dict[str, Any]]:
        self.asked += scenarios
        return [
            {"reliability": 1.0, "per_message": [dict(self.message) for _ in range(s.workload.messages)], "overlay": GRAPH}
            for s in scenarios
        ]


def rows_of(name: str, lab: CannedLab) -> list[Row]:
    return cast(list[Row], import_module(FIGURES[name].module).FIGURE.rows(cast(Lab, lab)))


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_every_scenario_of_a_figure_is_valid_and_of_its_size(name: str, quick: bool) -> None:
    lab = CannedLab(quick)
    rows_of(name, lab)
    assert lab.asked
    for scenario in lab.asked:
        validate(scenario)
        assert (scenario.nodes == setting.NODES) is not quick
        assert scenario.stack.startswith("hyparview/")
        assert scenario.join_every * scenario.nodes < scenario.warmup


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_every_figure_can_be_drawn(name: str, quick: bool) -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    rows = rows_of(name, CannedLab(quick))
    import_module(FIGURES[name].module).FIGURE.draw(axes, rows)
    assert axes.get_ylabel()
    assert len({row.name for row in rows}) == len(rows)


def test_a_crash_comes_at_the_moment_of_the_message_that_finds_it_first() -> None:
    for scenario, place in (
        (hyparview_reliability.scenario(100, 0.5, 1), 0),
        (hyparview_percolation.scenario(100, 0.5, 1), 0),
        (plumtree_crash.scenario(100, 0.4, 1), plumtree_crash.BEFORE),
    ):
        [crash] = scenario.faults
        assert isinstance(crash, MassCrash)
        assert crash.at == scenario.warmup + place / scenario.workload.rate


def test_the_thousand_messages_are_over_long_before_the_next_cycle() -> None:
    work = hyparview_reliability.scenario(100, 0.5, 1).workload
    assert work.messages == 1_000
    assert work.messages / work.rate <= 0.1 * setting.CYCLE


def test_of_ten_thousand_fifty_others_crash_in_each_of_a_hundred_cycles() -> None:
    crashes = [fault for fault in plumtree_churn.scenario(10_000, 100, 1).faults if isinstance(fault, Crash)]
    victims = [node for crash in crashes for node in crash.nodes]
    assert [len(crash.nodes) for crash in crashes] == [50] * 100
    assert len(set(victims)) == 5_000
    assert {b.at - a.at for a, b in pairwise(crashes)} == {setting.CYCLE}


def test_healing_is_over_with_the_first_message_that_reaches_as_many_as_before_the_crash() -> None:
    def healed(*reached: float) -> int:
        return hyparview_healing.healed({"per_message": [{"reliability": share} for share in reached]})

    assert healed(1.0, 1.0, 1.0) == 1
    assert healed(0.99, 0.5, 0.98, 0.99) == 3
    assert healed(1.0, *[0.9] * hyparview_healing.AFTER) == hyparview_healing.AFTER + 1


def test_reliability_may_be_better_than_the_paper_s_but_not_worse_than_weft_asks_of_itself() -> None:
    rows = rows_of("hyparview.reliability", CannedLab(quick=False))
    assert [row.ok for row in rows] == [True] * len(hyparview_reliability.PAPER)
    assert {row.name: round((row.paper or 0.0) - row.tolerance, 3) for row in rows[-2:]} == {
        "survivors reached, 90% crashed (%)": 99.5,
        "survivors reached, 95% crashed (%)": 88.0,
    }


def test_a_graph_is_judged_by_what_a_random_one_of_its_size_would_be() -> None:
    full, quick = (rows_of("hyparview.graph", CannedLab(quick)) for quick in (False, True))
    assert [row.ok for row in full] == [True] * 5
    assert quick[0].paper == pytest.approx(hyparview_graph.CLUSTERING * setting.NODES / hyparview_graph.QUICK_NODES)
    shorter, longer = quick[1].paper, full[1].paper
    assert shorter is not None and longer is not None and shorter < longer - 1


def test_a_message_that_stays_outside_counts_as_outside_and_not_as_reach() -> None:
    class HalfOutside(CannedLab):
        def measure(self, scenarios: Sequence[Scenario]) -> list[dict[str, Any]]:
            found = super().measure(scenarios)
            for measures in found:
                for message in measures["per_message"][::2]:
                    message["reliability"] = 0.001
            return found

    *reached, inside = rows_of("hyparview.percolation", HalfOutside(quick=False))
    assert [row.ours for row in reached] == [100.0] * len(reached)
    assert inside.ours == 50.0
    assert not inside.ok


def test_redundancy_that_never_ends_is_not_ok() -> None:
    lab = CannedLab(quick=False)
    lab.message |= {"rmr": 3.0, "duplicates": 3.0}
    verdicts = [row.ok for row in rows_of("plumtree.rmr", lab)]
    tree = len(plumtree_rmr.PLUMTREE)
    assert verdicts[:tree] == [False] * tree
    assert not any(row.ok for row in rows_of("plumtree.crash", lab))
    assert rows_of("plumtree.churn", lab)[-1].ok is False


def test_the_tree_without_optimisation_of_many_senders_is_shown_and_not_judged() -> None:
    verdicts = {row.name: row.ok for row in rows_of("plumtree.ldh", CannedLab(quick=False))}
    assert verdicts.pop("last delivery hop, many senders") is None
    assert None not in verdicts.values()
    assert len(verdicts) == len(plumtree_ldh.CASES) - 1
