"""The figures of VCube-PS: which runs they ask for and what they judge, on a fake lab; and two of their points for true."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from bench.papers import vcube_ps_fig4a, vcube_ps_fig4b
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
