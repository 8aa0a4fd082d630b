"""HyParView and Plumtree together through a partition: whoever stays alive has every message of those who stay, once.

Each seed is a run of 30 nodes on links that lose, double and reorder what they accepted, all the time, from the first JOIN
on. The overlay is cut into halves for 30 s and heals; messages are published by anybody before, during and after it. In every
other seed a tenth of the nodes crash at some moment. Nodes notice a dead link after 2, 5 or 15 s or, with 40 s, not before the
heal. All is judged by the rows of the trace, a minute after the last message. A seed that fails shows the command that
replays it; its `reliability` is then below 1. WEFT_SEEDS says how many there are; with 200 it takes some minutes.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet
import pytest

from libweft.bench.runs.replay import command
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Network, Scenario, TraceSettings, Workload
from libweft.peer.machine import SECOND
from libweft.peer.sim.faults import AnyFault, Duplicate, Loss, MassCrash, Partition, Reorder
from tests.conftest import note_replay

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("WEFT_SEEDS", "50"))
NODES = 30
WARMUP, BEFORE, PARTED, AFTER = 20, 15, 30, 10  # seconds, one after the other
MESSAGES = BEFORE + PARTED + AFTER  # one a second
HEAL = WARMUP + BEFORE + PARTED
WINDOW = 60.0
DETECTION = 2.0, 5.0, 15.0, 40.0


def scene(seed: int) -> Scenario:
    faults: list[AnyFault] = [Loss(p=0.05), Duplicate(p=0.05), Reorder(p=0.05, ms=500.0)]
    faults.append(Partition(at=WARMUP + BEFORE, duration=PARTED, how="halves"))
    if seed % 2:
        faults.append(MassCrash(at=WARMUP + 7 * seed % MESSAGES, share=0.1))
    return Scenario(
        stack="hyparview/plumtree",
        nodes=NODES,
        seed=seed,
        warmup=WARMUP,
        window=WINDOW,
        network=Network(detection=DETECTION[seed // 2 % 4]),
        workload=Workload(messages=MESSAGES, rate=1.0),
        faults=tuple(faults),
        trace=TraceSettings(kinds=("publish", "deliver", "node_down")),
    )


class Told(NamedTuple):
    """What the rows say: who published each message and when, who delivered it when and how often, who stayed."""

    published: dict[int, tuple[int, int]]
    delivered: Counter[tuple[int, int]]
    last: dict[int, int]
    stayed: list[int]

    @classmethod
    def read(cls, trace: Path) -> Told:
        told = cls({}, Counter(), {}, list(range(NODES)))
        for row in pyarrow.parquet.read_table(sorted(trace.glob("rows-*.parquet"))).to_pylist():
            told.add(row)
        return told

    def add(self, row: dict[str, Any]) -> None:
        match row["kind"]:
            case "publish":
                self.published[row["msg"]] = row["node"], row["t"]
            case "deliver":
                self.delivered[row["node"], row["msg"]] += 1
                self.last[row["msg"]] = row["t"]
            case "node_down":
                self.stayed.remove(row["node"])

    def wrong(self) -> list[str]:
        """Of those who stayed, by those who stayed: what was not delivered once. Of the others: what was delivered twice."""
        ours = [msg for msg, (publisher, _) in self.published.items() if publisher in self.stayed]
        counts = {(node, msg): self.delivered[node, msg] for msg in ours for node in self.stayed} | self.delivered
        return [
            f"node {node} has {count} times what {self.published[msg][0]} published at {self.published[msg][1] / SECOND} s"
            for (node, msg), count in counts.items()
            if count != 1
        ]

    def kept_apart(self) -> list[int]:
        """Messages from before the heal that somebody got after it."""
        return [msg for msg, (_, t) in self.published.items() if t < HEAL * SECOND <= self.last.get(msg, 0)]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_after_a_partition_whoever_stayed_alive_has_every_message_of_those_who_stayed_once(seed: int, tmp_path: Path) -> None:
    scenario = scene(seed)
    note_replay(command(scenario))
    result = run(scenario, trace=tmp_path / "run")
    told = Told.read(tmp_path / "run")
    assert min(result["faults"][what] for what in ("lost", "duplicated", "cut")) > 0
    assert len(told.published) == MESSAGES
    assert len(told.stayed) == NODES - (NODES // 10 if seed % 2 else 0)
    assert len(told.kept_apart()) > PARTED / 2, "the halves were not apart"
    assert not told.wrong()
