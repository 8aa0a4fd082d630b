"""The short cut of a draw a send: it may save work, and must not change a single row."""

from __future__ import annotations

import pytest

from libweft.bench.runs.replay import command
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Churn, Scenario, Workload
from libweft.peer.sim.faults import AnyFault, Loss, MassCrash, Partition, Reset, Restart
from libweft.peer.sim.latency import Uniform
from libweft.peer.sim.network import Fan
from tests.conftest import note_replay

TROUBLES: dict[str, tuple[AnyFault, ...]] = {
    "none": (),
    "crashes": (MassCrash(at=5.2, share=0.3),),
    "resets and restarts": (Reset(at=5.1, share=0.2), Restart(at=5.3, nodes=(1, 2, 3), down=0.5), Reset(at=5.9, share=0.1)),
    "loss and partition": (Loss(at=5.1, duration=0.5, p=0.2), Partition(at=5.7, duration=8.0)),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_a_fan_without_a_look_at_its_links_gives_the_same_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario(
        nodes=60,
        latency=Uniform(low=10.0, high=100.0, draw="send"),
        workload=Workload(messages=40, rate=20.0),
        churn=Churn(session=30.0, start=5.0),
        faults=TROUBLES[name],
    )
    note_replay(command(scenario))
    quick = run(scenario)
    monkeypatch.setattr(Fan, "clear", False)
    careful = run(scenario)
    assert quick["trace_hash"] == careful["trace_hash"]
    assert quick["events"] == careful["events"]
    assert quick["deliveries"] > 0
