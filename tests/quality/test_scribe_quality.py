"""SRPT in the simulator, among some dozens of nodes: what gets through and what it costs, calm, after crashes and under churn."""

from __future__ import annotations

import pytest

from libweft.bench.runs.replay import command
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Churn, Scenario, Workload
from libweft.peer.sim.faults import Crash, Loss, MassCrash
from tests.conftest import note_replay

pytestmark = pytest.mark.slow

NODES = 80
ONE = Crash(at=8.0, nodes=(5,))
STACKS = ("vcube/srpt-s", "vcube/srpt-b", "kademlia/srpt-s")


def judged(**more: object) -> dict[str, object]:
    told = Scenario(**more)  # type: ignore[arg-type]
    note_replay(command(told))
    return run(told)


@pytest.mark.parametrize("stack", STACKS)
def test_all_subscribers_are_reached_while_nodes_come_and_go(stack: str) -> None:
    overlay = {"start": "order"} if stack.startswith("vcube") else {}
    churn = Churn(session=300.0, start=5.0, stop=35.0)
    found = judged(
        stack=stack, nodes=NODES, warmup=10.0, window=30.0, overlay=overlay, churn=churn, workload=Workload(messages=50, rate=2.0)
    )
    assert found["reliability"] > 0.99  # type: ignore[operator]


@pytest.mark.parametrize("stack", STACKS)
def test_survivors_of_a_crash_of_a_fifth_are_reached_though_copies_are_lost(stack: str) -> None:
    overlay = {"start": "order"} if stack.startswith("vcube") else {}
    faults, work = (MassCrash(at=12.0, share=0.2), Loss(at=10.0, duration=20.0, p=0.01)), Workload(messages=50, rate=5.0)
    found = judged(stack=stack, nodes=NODES, warmup=10.0, window=60.0, overlay=overlay, faults=faults, workload=work)
    assert found["reliability"] > 0.98  # type: ignore[operator]


def test_the_roots_of_many_topics_are_many_and_the_crash_of_one_costs_its_topics_alone() -> None:
    work = Workload(topics=20, interests=5, messages=200, rate=20.0)
    found = judged(stack="vcube/srpt-s", nodes=NODES, window=40.0, overlay={"start": "order"}, faults=(ONE,), workload=work)
    assert found["reliability"] > 0.99  # type: ignore[operator]
