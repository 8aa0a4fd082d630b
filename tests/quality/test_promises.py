"""Every stack keeps its promise of reach under each kind of fault that the promise names, one kind at a time.

The faults last from 2 s before the first message to 8 s after the last one, and delay no copy by more than the second for which
the times of promises hold. Mixes of faults are for other tests.
"""

from __future__ import annotations

import pytest

from libweft.bench.runs.replay import command
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Scenario, Workload
from libweft.peer.sim import faults
from libweft.peer.sim.faults import AnyFault
from libweft.pubsub import stacks
from libweft.pubsub.promises import Property
from tests.conftest import note_replay

pytestmark = pytest.mark.slow

NODES, WARMUP, MESSAGES, RATE = 20, 60.0, 40, 4.0
BEGIN, LAST = WARMUP - 2.0, 20.0
FAULTS: dict[str, AnyFault] = {
    "duplicate": faults.Duplicate(at=BEGIN, duration=LAST, p=1.0),
    "reorder": faults.Reorder(at=BEGIN, duration=LAST, p=0.5, ms=900.0),
    "delay_spike": faults.DelaySpike(at=BEGIN, duration=LAST, ms=900.0),
    "slow_node": faults.SlowNode(at=BEGIN, duration=LAST, nodes=(3, 7), factor=9.0),
    "skew": faults.Skew(at=BEGIN, duration=LAST, nodes=(3, 7), factor=3.0),
    "loss": faults.Loss(at=BEGIN, duration=LAST, p=0.2),
    "burst_loss": faults.BurstLoss(at=BEGIN, duration=LAST, p=0.05),
    "cut": faults.Cut(at=BEGIN, duration=LAST, sources=(3,), targets=tuple(range(NODES))),
    "partition": faults.Partition(at=BEGIN, duration=LAST),
    "reset": faults.Reset(at=WARMUP + 1.0, share=0.5),
    "crash": faults.Crash(at=BEGIN, nodes=(3, 7)),
    "mass_crash": faults.MassCrash(at=BEGIN, share=0.3),
}


@pytest.mark.parametrize("stack", stacks.names())
def test_a_stack_reaches_all_under_each_fault_that_its_promise_withstands(stack: str) -> None:
    (promise,) = (each for each in stacks.find(stack, {}, {}).promises if each.property is Property.REACH)
    workload = Workload(messages=MESSAGES, rate=RATE)
    broken = []
    for kind in sorted(promise.withstands):
        scenario = Scenario(
            stack=stack,
            nodes=NODES,
            seed=7,
            warmup=WARMUP,
            window=LAST + promise.within_s,
            workload=workload,
            faults=(FAULTS[kind],),
        )
        note_replay(command(scenario))
        reached = run(scenario)["reliability"]
        if reached != 1.0:
            broken.append((kind, reached))
    assert broken == []
