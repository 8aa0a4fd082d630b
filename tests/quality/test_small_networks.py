"""HyParView and Plumtree where there are hardly any peers: from one node to a dozen, with the default options.

Views of five are larger than most of these networks, so what a larger one has from chance (a second announcer, somebody else
to ask, many who look for the other half) may be missing here. All is judged by the rows of the trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet
import pytest

from libweft.bench.runs.replay import command
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Scenario, TraceSettings, Workload
from libweft.overlays.hyparview.config import HyParViewConfig
from libweft.peer.sim.faults import AnyFault, Crash, Duplicate, Loss, Partition, Reorder
from tests.conftest import note_replay

pytestmark = pytest.mark.slow

SEEDS = range(5)
WARMUP = 30
APART = Partition(at=WARMUP + 10, duration=30.0, how="halves")
ALL = HyParViewConfig().active_size + 1  # so many can all be neighbours of one another


def scene(nodes: int, seed: int, *faults: AnyFault) -> Scenario:
    """A message a second for 50 s, and 90 s to get everywhere."""
    return Scenario(
        stack="hyparview/plumtree",
        nodes=nodes,
        seed=seed,
        warmup=WARMUP,
        window=90.0,
        workload=Workload(messages=50, rate=1.0),
        faults=faults,
        trace=TraceSettings(kinds=("publish", "deliver", "neighbor_up", "neighbor_down")),
    )


def play(scenario: Scenario, folder: Path) -> list[dict[str, Any]]:
    trace = folder / f"{scenario.nodes}-{scenario.seed}"
    note_replay(command(scenario))
    run(scenario, trace=trace)
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(sorted(trace.glob("rows-*.parquet"))).to_pylist()
    assert sum(row["kind"] == "publish" for row in rows) == scenario.workload.messages
    return rows


def check_deliveries(rows: list[dict[str, Any]], stayed: Sequence[int]) -> None:
    """Whoever stayed has each message of those who stayed, once."""
    ours = [row["msg"] for row in rows if row["kind"] == "publish" and row["node"] in stayed]
    counts = Counter((row["node"], row["msg"]) for row in rows if row["kind"] == "deliver")
    assert [(node, msg, counts[node, msg]) for node in stayed for msg in ours if counts[node, msg] != 1] == []


def views(rows: list[dict[str, Any]], nodes: int) -> list[set[int]]:
    found: list[set[int]] = [set() for _ in range(nodes)]
    for row in rows:
        if row["kind"] == "neighbor_up":
            found[row["node"]].add(row["peer"])
        elif row["kind"] == "neighbor_down":
            found[row["node"]].remove(row["peer"])
    return found


@pytest.mark.parametrize("nodes", range(1, 13))
def test_a_few_nodes_have_every_message_once_and_up_to_six_are_all_neighbours(nodes: int, tmp_path: Path) -> None:
    for seed in SEEDS:
        rows = play(scene(nodes, seed), tmp_path)
        check_deliveries(rows, range(nodes))
        if nodes <= ALL:
            assert views(rows, nodes) == [{*range(nodes)} - {node} for node in range(nodes)]


@pytest.mark.parametrize("active", [2, 3, 5])
@pytest.mark.parametrize("nodes", [3, 6, 9, 12])
def test_what_is_published_while_all_join_at_once_through_one_gets_everywhere(nodes: int, active: int, tmp_path: Path) -> None:
    """Neighbours come and are turned out again while messages are on their way to them."""
    rush = {"warmup": 0.0, "overlay": {"active_size": active}, "workload": Workload(messages=60, rate=20.0)}
    for seed in SEEDS:
        check_deliveries(play(msgspec.structs.replace(scene(nodes, seed), **rush), tmp_path), range(nodes))


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 6, 8, 10])
def test_two_halves_of_a_few_nodes_have_all_after_thirty_seconds_apart(nodes: int, tmp_path: Path) -> None:
    for seed in SEEDS:
        check_deliveries(play(scene(nodes, seed, APART), tmp_path), range(nodes))


@pytest.mark.parametrize("nodes", [3, 4, 5, 6, 8, 10])
def test_two_halves_of_a_few_nodes_have_all_though_copies_are_lost_doubled_and_reordered(nodes: int, tmp_path: Path) -> None:
    """Two nodes would be one against one: a lost JOIN is repeated after a pause that soon outlasts what is held."""
    for seed in SEEDS:
        scenario = scene(nodes, seed, Loss(p=0.05), Duplicate(p=0.05), Reorder(p=0.05), APART)
        check_deliveries(play(scenario, tmp_path), range(nodes))


@pytest.mark.parametrize("nodes", [2, 3, 4, 6, 9])
def test_the_others_go_on_when_the_contact_of_all_has_crashed(nodes: int, tmp_path: Path) -> None:
    for seed in SEEDS:
        rows = play(scene(nodes, seed, Crash(at=WARMUP + 20, nodes=(0,))), tmp_path)
        check_deliveries(rows, range(1, nodes))
        assert not any(0 in view for view in views(rows, nodes)[1:])
