"""The figures of VCube-PB: which runs they ask for and what they judge, on a fake lab; and some of their points for true."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from libweft.bench.papers import vcube_pb_fig3, vcube_pb_fig4, vcube_pb_fig5
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.papers.vcube_pb_fig3 import CASES, levels, neighbours
from libweft.bench.papers.vcube_pb_setting import MOST, QUICK_MOST, ROOT, SIZES, Point, measure, scenario
from libweft.bench.runs.reading import validate
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Scenario


class Told:
    """A lab that answers each run with a latency, in the fixed tree one that is `more` larger."""

    def __init__(self, quick: bool, more: float = 0.6) -> None:
        self.quick = quick
        self.more = more
        self.seeds = list(range(40))
        self.asked: list[Scenario] = []

    def measure(self, scenarios: Sequence[Scenario]) -> list[dict[str, Any]]:
        self.asked += scenarios
        return [self._measures(each) for each in scenarios]

    def _measures(self, each: Scenario) -> dict[str, Any]:
        mean = 10.0 * (1 + self.more * bool(each.router.get("fixed_root"))) + each.seed / 1_000
        held = [{"held": 0 if each.nodes == 8 else 3}]
        return {"latency_ms": {"mean": mean}, "subscribed": {"mean_ms": mean - 5}, "last_ms": mean, "per_message": held}


def lab(quick: bool, more: float = 0.6) -> tuple[Told, Lab]:
    told = Told(quick, more)
    return told, cast(Lab, told)


@pytest.mark.parametrize(("quick", "most"), [(True, QUICK_MOST), (False, MOST)])
def test_a_point_has_so_many_runs_of_both_trees(quick: bool, most: dict[int, int]) -> None:
    told, asked = lab(quick)
    found = measure(asked, (0.25,))
    assert {(point.nodes, point.fixed): len(runs) for point, runs in found.items()} == {
        (nodes, fixed): count for nodes, count in most.items() for fixed in (False, True)
    }
    for each in told.asked[:: len(told.asked) // 10]:
        validate(each)


def test_publishers_speak_once_and_are_the_same_in_both_trees_and_the_fixed_root_only_hands_on() -> None:
    own, fixed = (scenario(Point(32, 0.25, fixed), seed=5).workload for fixed in (False, True))
    assert own.publishing == fixed.publishing and len(set(own.publishing)) == own.messages == 8
    assert ROOT not in fixed.subscribing and len(fixed.subscribing) == 31 and own.subscribing == ()


def test_fig4_judges_the_paper_s_two_sizes_and_its_intervals() -> None:
    rows = {row.name: row for row in vcube_pb_fig4.rows(lab(False)[1])}
    assert rows["below a fixed tree, 8 nodes"].ours == pytest.approx(0.375, abs=0.01)
    assert rows["below a fixed tree, 8 nodes"].ok and not rows["below a fixed tree, 2048 nodes"].ok
    assert rows["below a fixed tree, 128 nodes"].ok is None
    assert rows["half the interval of units to delivery, VCube-PB, 8 nodes"].ok
    assert rows["below a fixed tree, 8 nodes, who had subscribed"].ours == pytest.approx(0.55, abs=0.01)
    assert rows["half the interval of units to delivery, VCube-PB, 8 nodes, who had subscribed"].ok
    near = {row.name: row for row in vcube_pb_fig4.rows(lab(False, more=0.2)[1])}
    assert near["below a fixed tree, 2048 nodes"].ok and not near["below a fixed tree, 8 nodes"].ok


def test_fig5_judges_few_at_first_and_nearly_all_at_last() -> None:
    rows = {row.name: row for row in vcube_pb_fig5.rows(lab(False)[1])}
    assert len(rows) == 3 * 2 * len(SIZES)
    assert rows["messages delayed, VCube-PB, 8 nodes, 50% publish"].ok
    assert rows["messages delayed, VCube-PB, 2048 nodes, 50% publish"].ok
    assert rows["messages delayed, VCube-PB, 128 nodes, 50% publish"].ok is None
    assert rows["between the trees, 128 nodes, 25% publish"].ok


def test_fig3_asks_for_its_sets() -> None:
    assert neighbours(3) == (1, 2, 4) and levels(3) == (4, 6, 7)
    told, asked = lab(True)
    rows = vcube_pb_fig3.rows(asked)
    assert len(rows) == 2 * 3 * len(CASES)
    assert {each.workload.publishing for each in told.asked} == {(0,)}


@pytest.mark.parametrize("case", CASES[:3], ids=lambda case: case.name)
def test_hops_are_those_of_the_hypercube(case: vcube_pb_fig3.Case) -> None:
    result = run(vcube_pb_fig3.scenario(case, 5, seed=1))
    assert case.mean is not None and case.last is not None
    assert result["latency_ms"]["mean"] == pytest.approx(case.mean(5))
    assert result["last_ms"] == result["ldh_max"] == case.last(5)


def test_at_eight_nodes_a_tree_of_its_own_saves_a_third() -> None:
    own, fixed = (
        sum(run(scenario(Point(8, 0.25, fixed), seed), hashed=False)["latency_ms"]["mean"] for seed in range(20))
        for fixed in (False, True)
    )
    assert 1 - own / fixed == pytest.approx(0.37, abs=0.05)
