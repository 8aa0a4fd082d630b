"""The figures of VCube-PS: which runs they ask for and what they judge, on a fake lab; and some of their points for true."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from libweft.bench.papers import (
    vcube_ps_churn,
    vcube_ps_fig4a,
    vcube_ps_fig4b,
    vcube_ps_fig5,
    vcube_ps_fig6,
    vcube_ps_fig7,
    vcube_ps_fig8a,
    vcube_ps_fig8b,
    vcube_ps_fig9,
    vcube_ps_table1,
)
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.papers.vcube_ps_fig4b import expected
from libweft.bench.papers.vcube_ps_setting import CHARGED, COPIES, FREE, PROGRAM, SRPT, Point, measure, scenario
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Scenario

Answer = Callable[[Scenario], dict[str, Any]]


class Told:
    """A lab that answers each run with what the program yields, a little later by `off`."""

    def __init__(self, quick: bool, off: float = 0.0, answer: Answer | None = None) -> None:
        self.quick = quick
        self.off = off
        self.seeds = [1, 2]
        self.asked: list[Scenario] = []
        self.answer = answer or self._one_message

    def measure(self, scenarios: Sequence[Scenario]) -> list[dict[str, Any]]:
        self.asked += scenarios
        return [self.answer(each) for each in scenarios]

    def _one_message(self, each: Scenario) -> dict[str, Any]:
        own = each.stack == "vcube/vcube-ps"
        program = PROGRAM if own else SRPT
        (point,) = (point for point in program if (point.nodes, point.share) == (each.nodes, each.workload.subscribers))
        mean, last = point.mean + self.off, point.last + self.off
        copies = round(point.nodes * point.share) - 1 if own else COPIES[SRPT.index(point)]
        found: dict[str, Any] = {"latency_ms": {"mean": mean}, "last_ms": last, "payload_messages": copies}
        return found if own else {"single_root": {"mean_ms": mean, "last_ms": last, "copies": copies}}


def lab(quick: bool, off: float = 0.0, answer: Answer | None = None) -> tuple[Told, Lab]:
    told = Told(quick, off, answer)
    return told, cast(Lab, told)


@pytest.mark.parametrize(("quick", "largest"), [(True, 512), (False, 4_096)])
def test_a_point_has_one_run_a_seed_in_the_program_s_setting(quick: bool, largest: int) -> None:
    told, asked = lab(quick)
    for found in measure(asked):
        assert max(point.nodes for point in found) == largest
        assert all(len(runs) == 2 for runs in found.values())
    assert {(each.stack, each.overlay["start"], each.router.get("window"), each.router.get("root")) for each in told.asked} == {
        ("vcube/vcube-ps", "oracle", 1, None),
        ("vcube/srpt-s", "oracle", None, 0),
    }


def test_what_the_program_yields_is_ok_and_what_is_far_off_is_not() -> None:
    rows = vcube_ps_fig4a.rows(lab(False)[1])
    assert len(rows) == 2 * (len(PROGRAM) + len(SRPT))
    assert all(row.ok is not False for row in rows)
    assert [row.ok for row in rows if "last" in row.name and "25%" in row.name] == [None] * 8
    assert [row.paper for row in rows if row.paper is not None] == [533.0, 720.0]
    late = vcube_ps_fig4a.rows(lab(False, off=140.0)[1])
    assert not any(row.ok for row in late)


def test_copies_are_exact_where_they_can_be() -> None:
    rows = vcube_ps_fig4b.rows(lab(True)[1])
    assert [row.ours for row in rows] == [1, 7, 15, 63, 127, 511, *COPIES[:6]]
    assert all(row.ok for row in rows)
    assert [row.tolerance for row in rows if "100%" in row.name] == [0.0] * 6


def test_the_program_s_copies_are_near_what_the_tree_must_have_in_the_mean() -> None:
    assert expected(8, 8) == 7 and expected(8, 2) == pytest.approx(76 / 28)
    assert [expected(point.nodes, point.nodes // 4) for point in SRPT[::2]] == pytest.approx(COPIES[::2], rel=0.03)


@pytest.mark.parametrize("point", PROGRAM[1:4:2], ids=str)
def test_where_all_subscribe_the_simulator_agrees_with_the_program(point: Point) -> None:
    result = run(scenario(point, seed=3))
    assert result["latency_ms"]["mean"] == pytest.approx(point.mean, rel=0.015)
    assert result["last_ms"] == pytest.approx(point.last, rel=0.015)
    assert result["deliveries"] == point.nodes - 1 and result["rmr"] == 0.0


# Many publishers.


def at_once(each: Scenario) -> dict[str, Any]:
    """What the program yields in Figure 5, and something at points where it was not run."""
    system = vcube_ps_fig5.VCUBE_PS if each.stack == "vcube/vcube-ps" else vcube_ps_fig5.SRPT
    costs = CHARGED if each.latency.free is None else FREE  # type: ignore[union-attr]
    share = each.workload.messages / each.nodes
    return {"single_root": {"mean_ms": vcube_ps_fig5.PROGRAM.get((system, costs, each.nodes, share), 525.6)}}


def test_each_publisher_publishes_once_within_a_thousand_units() -> None:
    told, asked = lab(True, answer=at_once)
    rows = vcube_ps_fig5.rows(asked)
    assert {each.workload.messages / each.workload.rate for each in told.asked} == {1.0}
    assert {(each.nodes, each.workload.arrivals) for each in told.asked} == {(64, "phased"), (256, "phased")}
    assert all(row.ok for row in rows if row.program is not None)
    assert rows[-1].ours == pytest.approx(2.4865, abs=0.001)


def test_beyond_a_thousand_nodes_nothing_is_judged() -> None:
    rows = vcube_ps_fig5.rows(lab(False, answer=at_once)[1])
    assert all(row.ok is None for row in rows if "2048" in row.name or "t_pp 1000" in row.name)
    assert [row.ok for row in rows if "1024 nodes, rise" in row.name] == [True, True]


def queues(each: Scenario) -> dict[str, Any]:
    """Half of the nodes send nothing; the root has much to send."""
    return {"queues": [{"node": node, "queue": 1.5 if node else 4_600.0} for node in (0, *range(1, each.nodes, 2))]}


def test_nodes_are_counted_by_the_mean_length_of_their_queue() -> None:
    rows = [row for row in vcube_ps_table1.rows(lab(False, answer=queues)[1]) if row.name.startswith("SRPT")]
    assert [row.ours for row in rows] == [511, 512, 0, 0, 0, 0, 1, 4_600]
    assert [row.paper for row in rows] == [512, 448, 60, 3, 0, 0, 1, None]


def test_many_topics_have_a_root_each_and_their_rise_is_judged() -> None:
    def answer(each: Scenario) -> dict[str, Any]:
        system = "VCube-PS" if each.stack == "vcube/vcube-ps" else "SRPT"
        return {"single_root": {"mean_ms": vcube_ps_fig7.PROGRAM[system, each.workload.popularity, 12]}}

    told, asked = lab(False, answer=answer)
    rows = vcube_ps_fig7.rows(asked)
    assert {each.router["root"] for each in told.asked if each.stack == "vcube/srpt-s"} == {-2}
    assert {each.workload.rate for each in told.asked} == {512.0}
    assert all(row.ok for row in rows if row.program is not None or row.paper is not None)
    assert len([row for row in rows if "rise" in row.name]) == 4


def test_brokers_and_those_who_hang_on_them_are_told_apart() -> None:
    def answer(each: Scenario) -> dict[str, Any]:
        group = int(each.router.get("group", 1))
        timed = [{"node": node, "mean_ms": 100.0 if node % group == 0 else 160.0} for node in range(each.nodes)]
        return {"single_root": {"mean_ms": 200.0}, "per_node": timed}

    told, asked = lab(True, answer=answer)
    rows = {row.name: row.ours for row in vcube_ps_fig9.rows(asked)}
    assert rows["SRPT-B, 16 brokers, publishers 8, tree"] == 100.0
    assert rows["SRPT-B, 16 brokers, publishers 8, B-S"] == 60.0
    assert {each.router.get("group") for each in told.asked} == {None, 128, 16, 2}


# A discussion.


def discussed(each: Scenario) -> dict[str, Any]:
    """Six messages of three rounds: 0; then 1 and 2 after 0; then 3 after both, 4 after 1, and 5 after 4 and 2."""
    needs = ((), (0,), (0,), (1, 2), (1,), (4, 2))
    messages = [{"msg": number, "dependencies": list(of), "deliveries": 255} for number, of in enumerate(needs)]
    return {"per_message": messages, "held": {"at_once": 0.94, "below_10_ms": 0.97, "mean_ms": 1.0, "max_ms": 150.0}}


def test_what_is_not_pruned_is_all_that_happened_before() -> None:
    messages = discussed(vcube_ps_fig6.scenario(1, 1))["per_message"]
    assert vcube_ps_fig6.pruned(messages) == [0, 1, 1, 2, 1, 2]
    assert vcube_ps_fig6.unpruned(messages) == [0, 1, 1, 3, 2, 4]


def test_barriers_and_delays_are_judged_against_the_program_and_the_paper_stands_beside() -> None:
    told, asked = lab(False, answer=discussed)
    rows = {row.name: row for row in vcube_ps_fig6.rows(asked)}
    assert {(each.nodes, each.workload.answers, each.router["window"]) for each in told.asked} == {(256, 1, 1), (256, 10, 1)}
    assert rows["p 1, exactly 1 dependency (%)"].ours == 50.0
    assert rows["p 1, exactly 1 dependency, not pruned (%)"].ours == pytest.approx(100 / 3)
    assert rows["p 1, not held back (%)"].ok
    assert rows["p 1, largest delay (units)"].ok is None
    assert (rows["p 10, not held back (%)"].paper, rows["p 10, not held back (%)"].program) == (84.2, 97.4)


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


# Subscribers that change places.


def swapped(each: Scenario) -> dict[str, Any]:
    """Twice as slow where somebody changes places."""
    mean = 600.0 if each.churn.swaps else 300.0
    return {"batches": [mean - 10, mean + 10], "false_positives": 0.02, "queues": [{"node": 0, "queue": 2.0}]}


def test_churn_is_held_against_the_same_run_without_it() -> None:
    told, asked = lab(False, answer=swapped)
    rows = {row.name: row for row in vcube_ps_fig8a.rows(asked)}
    assert rows["VCube-PS, 4000 subscribers, sessions of 1 min: by static"].ours == 2.0
    assert rows["VCube-PS, 4000 subscribers, sessions of 1 min: by static"].ok is False
    assert rows["SRPT, 4000 subscribers, sessions of 1 min: by static"].paper == 3.56
    _, worst, *_ = sorted({each.churn.swaps for each in told.asked if each.nodes == 4_096})  # the first is without
    assert 60 / worst == pytest.approx(46)  # a minute, in the paper's words
    assert {each.router["oracle_until"] for each in told.asked if each.stack == "vcube/vcube-ps"} == {3_000_000}


def test_the_growth_is_shown_for_both_readings_of_the_rate() -> None:
    rows = {row.name: row for row in vcube_ps_fig8b.rows(lab(False, answer=swapped)[1])}
    assert rows["VCube-PS, from 1 to 10 % a minute: times"].ours == rows["VCube-PS, from 1 to 10 % a second: times"].ours == 1.0
    assert rows["SRPT, 5.0% a minute: in a queue (ms)"][1:3] == (468.0, 2.0)
    assert not any(row.ok for row in rows.values())


@pytest.mark.parametrize("system", ["VCube-PS", "SRPT"])
def test_who_changes_places_is_told_by_messages(system: str) -> None:
    """Reliable all along, and some who have just left still get what is on its way."""
    result = run(vcube_ps_churn.scenario(vcube_ps_churn.Point(system, 30, 0.05, 20.0), seed=3), hashed=False)
    assert result["reliability"] == pytest.approx(1.0, abs=0.02)
    assert 0.0 < result["false_positives"] < 0.2
