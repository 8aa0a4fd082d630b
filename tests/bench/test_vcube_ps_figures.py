"""The figures of VCube-PS: which runs they ask for and what they judge, on a fake lab; and two of their points for true."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from bench.papers import vcube_ps_fig4a, vcube_ps_fig4b, vcube_ps_fig6
from bench.papers.figure import Lab
from bench.papers.vcube_ps_setting import PROGRAM, Point, measure, scenario
from bench.run import run
from bench.scenario import Scenario


class Told:
    """A lab that answers each run with what the program yields, a little later by `off`."""

    def __init__(self, quick: bool, off: float = 0.0) -> None:
        self.quick = quick
        self.off = off
        self.seeds = [1, 2]
        self.asked: list[Scenario] = []

    def measure(self, scenarios: Sequence[Scenario]) -> list[dict[str, Any]]:
        self.asked += scenarios
        return [self._measures(each) for each in scenarios]

    def _measures(self, each: Scenario) -> dict[str, Any]:
        (point,) = (point for point in PROGRAM if (point.nodes, point.share) == (each.nodes, each.workload.subscribers))
        copies = round(point.nodes * point.share) - 1
        return {"latency_ms": {"mean": point.mean + self.off}, "last_ms": point.last + self.off, "payload_messages": copies}


def lab(quick: bool, off: float = 0.0) -> tuple[Told, Lab]:
    told = Told(quick, off)
    return told, cast(Lab, told)


@pytest.mark.parametrize(("quick", "largest"), [(True, 512), (False, 4_096)])
def test_a_point_has_one_run_a_seed_in_the_program_s_setting(quick: bool, largest: int) -> None:
    told, asked = lab(quick)
    found = measure(asked)
    assert max(point.nodes for point in found) == largest
    assert all(len(runs) == 2 for runs in found.values())
    assert {(each.stack, each.router["window"], each.overlay["start"]) for each in told.asked} == {
        ("vcube/vcube-ps", 1, "oracle")
    }


def test_what_the_program_yields_is_ok_and_what_is_far_off_is_not() -> None:
    rows = vcube_ps_fig4a.rows(lab(False)[1])
    assert len(rows) == 2 * len(PROGRAM) + 1
    assert all(row.ok is not False for row in rows)
    assert [row.ok for row in rows if row.name.startswith("last") and "25%" in row.name] == [None] * 4
    late = vcube_ps_fig4a.rows(lab(False, off=100.0)[1])
    assert not any(row.ok for row in late)


def test_copies_are_exact() -> None:
    rows = vcube_ps_fig4b.rows(lab(True)[1])
    assert [row.ours for row in rows] == [1, 7, 15, 63, 127, 511]
    assert all(row.ok and row.tolerance == 0.0 for row in rows)


@pytest.mark.parametrize("point", PROGRAM[1:4:2], ids=str)
def test_where_all_subscribe_the_simulator_agrees_with_the_program(point: Point) -> None:
    result = run(scenario(point, seed=3))
    assert result["latency_ms"]["mean"] == pytest.approx(point.mean, rel=0.015)
    assert result["last_ms"] == pytest.approx(point.last, rel=0.015)
    assert result["deliveries"] == point.nodes - 1 and result["rmr"] == 0.0


class Discussed(Told):
    """Six messages of three rounds: 0; then 1 and 2 after 0; then 3 after both, 4 after 1, and 5 after 4 and 2."""

    def _measures(self, each: Scenario) -> dict[str, Any]:
        needs = ((), (0,), (0,), (1, 2), (1,), (4, 2))
        messages = [{"msg": number, "dependencies": list(of), "deliveries": 255} for number, of in enumerate(needs)]
        return {"per_message": messages, "held": {"at_once": 0.94, "below_10_ms": 0.97, "mean_ms": 1.0, "max_ms": 150.0}}


def test_what_is_not_pruned_is_all_that_happened_before() -> None:
    messages = Discussed(True)._measures(vcube_ps_fig6.scenario(1, 1))["per_message"]
    assert vcube_ps_fig6.pruned(messages) == [0, 1, 1, 2, 1, 2]
    assert vcube_ps_fig6.unpruned(messages) == [0, 1, 1, 3, 2, 4]


def test_barriers_and_delays_are_judged_against_the_program_and_the_paper_stands_beside() -> None:
    told = Discussed(False)
    rows = {row.name: row for row in vcube_ps_fig6.rows(cast(Lab, told))}
    assert {(each.nodes, each.workload.answers, each.router["window"]) for each in told.asked} == {(256, 1, 1), (256, 10, 1)}
    assert rows["p 1, exactly 1 dependency (%)"].ours == 50.0
    assert rows["p 1, exactly 1 dependency, not pruned (%)"].ours == pytest.approx(100 / 3)
    assert rows["p 1, not held back (%)"].ok
    assert rows["p 1, largest delay (units)"].ok is None
    assert rows["p 10, not held back (%), the paper's own value"][1:3] == (84.2, 94.0)
    assert {row.judged for name, row in rows.items() if "paper" in name} == {"no"}


@pytest.mark.slow
def test_a_discussion_in_the_simulator_has_the_barriers_of_the_program() -> None:
    """One run: shares of 256 messages, which vary by some points from run to run."""
    sizes: list[int] = []

    class Barriers:
        def observe(self, t: int, node: int, kind: str, *rest: Any) -> None:
            if kind == "publish":
                sizes.append(len(rest[-1]))

    run(vcube_ps_fig6.scenario(1, seed=3), observer=cast(Any, Barriers()), hashed=False)
    assert len(sizes) == 256
    for bound, program in ((5, 0.578), (15, 0.971)):
        assert sum(size < bound for size in sizes) / 256 == pytest.approx(program, abs=0.18)
