"""causal.compare: every system with and without the order on the same terms, and rows of the difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from msgspec.structs import replace

from libweft.bench.papers.causal_compare import FIGURE, SHOWN, SYSTEMS
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Scenario


class CannedLab(Lab):
    """The order adds a tenth to the bytes, and 5 ms."""

    def __init__(self, quick: bool = True, runs: int = 3) -> None:
        super().__init__(cast(Any, None), (), quick=quick, runs=runs, simulate=lambda: None, analyse=lambda: [])
        self.asked: list[Scenario] = []

    def measure(self, scenarios: Sequence[Scenario]) -> list[dict[str, Any]]:
        self.asked += scenarios
        return [_canned(each) for each in scenarios]


def _canned(scenario: Scenario) -> dict[str, Any]:
    ordered = scenario.workload.order == "causal"
    base, late = scenario.seed % 100, 5.0 if ordered else 0.0
    held = {"at_once": 0.75, "mean_ms": 2.0} if ordered else {"at_once": 1.0, "mean_ms": 0.0}
    messages = [{"dependencies": [1, 2]}, {"dependencies": []}]
    sent = {"bytes_per_delivery": base * (1.1 if ordered else 1.0), "latency_ms": {"mean": base + late}, "reliability": 1.0}
    return {**sent, "held": held, "per_message": messages}


def test_every_system_runs_with_and_without_the_order_on_the_same_terms() -> None:
    lab = CannedLab(quick=False)
    FIGURE.rows(lab)
    assert len(lab.asked) == len(SYSTEMS) * 2 * 3
    terms = {(each.nodes, each.seed, each.workload.order) for each in lab.asked}
    assert len(terms) == 2 * 3
    assert len({(each.workload.topics, each.workload.turns, each.latency, each.warmup, each.window) for each in lab.asked}) == 1


def test_what_is_added_is_the_difference_of_two_runs_of_one_seed() -> None:
    rows = {row.name: row for row in FIGURE.rows(CannedLab())}
    assert len(rows) == len(SYSTEMS) * len(SHOWN)
    added = rows["Plumtree: latency (ms), added by the order"]
    assert (added.ours, added.low, added.high, added.ok) == (5.0, 5.0, 5.0, None)
    assert rows["VCube-PS, gate: deliveries held back (%)"].ours == 25.0
    assert rows["flood: dependencies of a message"].ours == 1.0


def test_a_picture_has_a_point_a_system() -> None:
    from matplotlib.figure import Figure as Page

    axes = Page().subplots()
    FIGURE.draw(axes, FIGURE.rows(CannedLab()))
    assert axes.get_legend_handles_labels()[1] == list(SYSTEMS)


def test_over_links_that_keep_their_order_a_flood_needs_no_waiting_for_causal_order() -> None:
    """Whoever forwards before it delivers, on links that are FIFO, hands on in causal order: all comes at the same times."""
    lab = CannedLab(runs=1)
    FIGURE.rows(lab)
    floods = [replace(each, stack="static/flood") for each in lab.asked if each.stack == "hyparview/flood"]
    none, causal = (run(each, hashed=False) for each in floods)
    assert none["latency_ms"] == causal["latency_ms"]
    assert causal["bytes"] > none["bytes"]
