"""Kademlia and KadPubSub in the simulator: exact lookups, churn, crashes, liars; messages to subscribers alone.

`weft bench lookups --nodes 10000` measures the same of lookups at full size; here n is 600 and less.
"""

from __future__ import annotations

from hashlib import sha256
from math import log2
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow.parquet
import pytest
from msgspec.structs import replace

from libweft.bench.perf.lookups import MINUTE, PATHS, Field, summary
from libweft.bench.runs.replay import command
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Churn, Scenario, TraceSettings, Workload
from libweft.overlays.kademlia.config import KademliaConfig
from libweft.overlays.kademlia.space import place_of, place_of_key
from libweft.peer.machine import SECOND
from libweft.peer.sim.faults import AnyFault, Loss, MassCrash
from tests.conftest import note_replay

pytestmark = pytest.mark.slow

NODES = 600
FEW = 200
CALM = Churn()


def test_lookups_are_exact_when_calm_nearly_so_under_churn_and_exact_again_a_minute_after_it() -> None:
    field = Field(NODES, seed=1)
    calm = summary(field.lookups(300))
    assert calm["exact"] == 1
    assert calm["hops"] <= log2(NODES) / 2 + 2
    field.replace(2.5, 0.1)
    field.sim.run(field.sim.now + MINUTE)
    churned = summary(field.lookups(300, every=200 * 1_000))
    assert churned["recall"] > 0.99
    assert churned["nearest"] > 0.99
    field.sim.run(field.sim.now + MINUTE + 30 * SECOND)
    assert summary(field.lookups(300))["exact"] == 1


def test_a_value_survives_the_crash_of_half_the_nodes() -> None:
    field = Field(FEW, seed=2)
    keys = [field.rng.randbytes(32) for _ in range(50)]
    assert min(field.put(keys)) == field.config.k
    field.crash(0.5)
    assert field.get(keys) == 1


def test_a_value_survives_an_hour_of_churn_though_its_author_is_gone() -> None:
    """5 % of the nodes a minute are replaced: after an hour nobody is left who had it first."""
    field = Field(100, seed=3, config=KademliaConfig(near_every=30 * SECOND))
    before = list(field.sim.live)
    keys = [field.rng.randbytes(32) for _ in range(5)]
    field.put(keys)
    field.replace(60, 0.05)
    field.sim.run(field.sim.now + 60 * MINUTE)
    assert sum(number in field.sim.live for number in before) < len(before) / 5
    assert field.get(keys) == 1


def test_a_fifth_of_liars_misleads_hardly_a_lookup_on_disjoint_paths() -> None:
    field = Field(FEW, seed=4, liars=range(1, FEW, 5))
    found = field.lookups(200, paths=PATHS)
    assert fmean(each.honest for each in found) > 0.95
    keys = [field.rng.randbytes(32) for _ in range(50)]
    field.put(keys)
    assert field.get(keys, paths=PATHS) > 0.95


def test_a_value_is_found_though_most_of_the_nodes_nearest_to_its_key_lie() -> None:
    """As if an attacker had tried ids until fifteen of the twenty nearest were its own; they say that they took the value."""
    nodes, key = FEW, b"/sha256/" + sha256(b"the truth").digest()
    nearest = sorted(range(1, nodes), key=lambda number: place_of(number) ^ place_of_key(key))
    field = Field(nodes, seed=6, liars=[*nearest[:15], *range(1, nodes, 6)])
    taken: list[int] = []
    field.someone().put(key, b"the truth", MINUTE, taken.append)
    field.sim.run(field.sim.now + 20 * SECOND)
    found: list[bytes | None] = []
    for _ in range(20):
        field.someone().get(key, found.append, paths=PATHS)
    field.sim.run(field.sim.now + 20 * SECOND)
    assert found.count(b"the truth") >= 19


def scene(*faults: AnyFault, nodes: int = FEW, churn: Churn = CALM, window: float = 20.0) -> Scenario:
    """30 topics, each node interested in three by Zipf's law."""
    return Scenario(
        stack="kademlia/kadpubsub",
        nodes=nodes,
        seed=5,
        warmup=40.0,
        window=window,
        workload=Workload(topics=30, popularity="zipf", interests=3, messages=50, rate=10.0),
        churn=churn,
        faults=faults,
        trace=TraceSettings(kinds=("publish", "receive", "joined", "deliver")),
    )


def test_kadpubsub_reaches_all_subscribers_and_nobody_else(tmp_path: Path) -> None:
    scenario = scene()
    note_replay(command(scenario))
    figures = run(scenario, trace=tmp_path / "trace")
    assert figures["reliability"] == 1
    assert figures["false_positives"] == 0
    assert figures["payload_per_delivery"] == pytest.approx(1, abs=0.01)
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(sorted((tmp_path / "trace").glob("rows-*.parquet"))).to_pylist()
    joined = {(row["node"], row["topic"]) for row in rows if row["kind"] == "joined"}
    assert all((row["node"], row["topic"]) in joined for row in rows if row["kind"] == "receive")


@pytest.mark.parametrize("faults", [(), (MassCrash(at=22.0, share=0.2),)], ids=["calm", "a fifth crashed"])
def test_kadpubsub_reaches_those_who_subscribed_while_the_network_was_small(faults: tuple[AnyFault, ...]) -> None:
    """Long before they register again by themselves, those that are nearest to their topics are others."""
    scenario = replace(scene(*faults), join_every=0.05, warmup=22.0)
    note_replay(command(scenario))
    assert run(scenario)["reliability"] > 0.999


def test_kadpubsub_reaches_the_survivors_of_a_crash_of_a_fifth() -> None:
    scenario = scene(MassCrash(at=39.0, share=0.2))
    note_replay(command(scenario))
    assert run(scenario)["reliability"] > 0.999


def test_kadpubsub_reaches_all_within_seconds_though_links_lose_one_copy_in_fifty() -> None:
    """And sends few again: what was lost, and what its receiver could not say that it had."""
    scenario = scene(Loss(at=40.0, p=0.02), window=5.0)
    note_replay(command(scenario))
    figures = run(scenario)
    assert figures["reliability"] > 0.999
    assert figures["payload_per_delivery"] < 1.06


def test_kadpubsub_reaches_all_who_stay_while_a_quarter_of_the_nodes_a_minute_are_replaced() -> None:
    """Those who have just come are among them, from when their subscription is in force."""
    scenario = scene(nodes=FEW // 2, churn=Churn(session=240.0, start=30.0))
    note_replay(command(scenario))
    figures = run(scenario)
    assert figures["reliability"] > 0.999
    assert figures["payload_per_delivery"] < 1.2
