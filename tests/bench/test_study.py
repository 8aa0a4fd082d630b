"""The study's three figures: the same systems under the same loads, each run once, and pictures with a line a stack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from libweft.bench.papers import study_latency, study_redundancy, study_reliability
from libweft.bench.papers.figure import Figure, Row
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.papers.study import CRASHED, LOADS, NODES, STACKS
from libweft.bench.runs.scenario import Scenario
from libweft.peer.sim.faults import MassCrash

FIGURES: list[Figure] = [study_reliability.FIGURE, study_redundancy.FIGURE, study_latency.FIGURE]


class CannedLab(Lab):
    """Answers by what was asked for: a share that is lost in a crash, and a latency that grows with the rate."""

    def __init__(self, quick: bool = False, runs: int = 2) -> None:
        super().__init__(cast(Any, None), (), quick=quick, runs=runs, simulate=lambda: None, analyse=lambda: [])
        self.asked: list[Scenario] = []

    def measure(self, scenarios: Sequence[Scenario]) -> list[dict[str, Any]]:
        self.asked += scenarios
        return [_canned(each) for each in scenarios]


def _canned(scenario: Scenario) -> dict[str, Any]:
    rate = scenario.workload.rate
    counts = {"rmr": 1.5, "payload_per_delivery": 2.5, "false_positives": 0.25, "bytes": 4_000, "deliveries": 2}
    return {"reliability": 0.9 if scenario.faults else 1.0, "latency_ms": {"p50": rate, "p99": 2 * rate}, **counts}


def test_every_system_meets_every_load_with_and_without_crashes_on_the_same_terms() -> None:
    lab = CannedLab(runs=5)
    study_reliability.FIGURE.rows(lab)
    assert len(lab.asked) == len(STACKS) * len(LOADS) * 2 * 5
    met = {(each.stack, str(each.router), each.workload.rate, each.workload.size, each.faults, each.seed) for each in lab.asked}
    assert len(met) == len(lab.asked)
    assert {each.nodes for each in lab.asked} == {NODES}
    terms = {(each.workload.topics, each.workload.messages, each.network, each.latency, each.warmup) for each in lab.asked}
    assert len(terms) == 1
    assert {each.faults for each in lab.asked} == {(), (MassCrash(at=lab.asked[0].warmup, share=CRASHED),)}


def test_the_figures_ask_for_the_same_runs() -> None:
    labs = [CannedLab() for _ in FIGURES]
    for figure, lab in zip(FIGURES, labs, strict=True):
        figure.rows(lab)
    assert labs[0].asked == labs[1].asked == labs[2].asked
    assert len({figure.kinds for figure in FIGURES}) == 1


def test_rows_say_the_system_the_load_and_what_they_measure() -> None:
    reached, copies, late = ({row.name: row for row in figure.rows(CannedLab())} for figure in FIGURES)
    assert reached["hyparview/plumtree: 10/s of 1024 B: reliability (%)"].ours == 100.0
    assert reached["kademlia/kadpubsub: 1/s of 1024 B, 20% crashed: reliability (%)"].ours == 90.0
    assert copies["hyparview/flood: 10/s of 8192 B: bytes a delivery"].ours == 2_000.0
    assert copies["hyparview/flood: 10/s of 8192 B: relayed for others (%)"].ours == 25.0
    assert late["kademlia/gossipsub, scored: 100/s of 1024 B: p99 (ms)"].ours == 200.0
    assert {(row.paper, row.ok) for row in [*reached.values(), *copies.values(), *late.values()]} == {(None, None)}


@pytest.mark.parametrize("quick", [False, True])
def test_a_picture_has_a_line_a_stack_for_rates_and_one_for_sizes(quick: bool) -> None:
    from matplotlib.figure import Figure as Page

    for figure in FIGURES:
        axes = Page().subplots()
        rows: list[Row] = figure.rows(CannedLab(quick=quick))
        figure.draw(axes, rows)
        assert len(axes.get_lines()) == len(STACKS) * 2 * 2
        assert len(axes.get_legend_handles_labels()[1]) == len(STACKS) * 2
        assert len(axes.get_xticks()) == (3 if quick else 6)
