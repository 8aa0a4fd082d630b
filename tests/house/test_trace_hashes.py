"""The behaviour of every stack, as the hash of its trace under three sets of conditions.

A change that only moves code leaves every hash as it is. A change of behaviour moves some of them: its commit names the stacks
and the first row that differs, and writes the file anew with `python -m tests.house.test_trace_hashes`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from libweft.bench.runs.replay import command
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Churn, Scenario, Workload
from libweft.peer.sim.faults import Loss
from libweft.pubsub import stacks
from tests.conftest import note_replay

HASHES = Path(__file__).with_name("trace_hashes.json")
ORDINARY = Scenario(nodes=24, seed=21, warmup=10.0, window=8.0, workload=Workload(messages=20, rate=5.0, topics=2))
ROUGH = {"faults": (Loss(at=5.0, p=0.05),), "churn": Churn(session=30.0, start=8.0, stop=16.0)}
CONDITIONS = {
    "calm": {},
    "loss and churn": ROUGH,
    "causal": {**ROUGH, "workload": Workload(messages=20, rate=5.0, topics=2, order="causal")},
}


def scenario(stack: str, conditions: str) -> Scenario:
    settings = {name: getattr(ORDINARY, name) for name in ORDINARY.__struct_fields__}
    return Scenario(**{**settings, "stack": stack, **CONDITIONS[conditions]})


def hashes(stack: str) -> dict[str, str]:
    return {conditions: str(run(scenario(stack, conditions))["trace_hash"]) for conditions in CONDITIONS}


@pytest.mark.parametrize("conditions", CONDITIONS)
@pytest.mark.parametrize("stack", stacks.names())
def test_the_trace_has_the_hash_on_file(stack: str, conditions: str) -> None:
    wanted = scenario(stack, conditions)
    note_replay(command(wanted))
    assert run(wanted)["trace_hash"] == json.loads(HASHES.read_text())[stack][conditions]


def test_the_file_names_every_stack_and_no_other() -> None:
    assert list(json.loads(HASHES.read_text())) == stacks.names()


if __name__ == "__main__":
    HASHES.write_text(json.dumps({stack: hashes(stack) for stack in stacks.names()}, indent=2) + "\n")
