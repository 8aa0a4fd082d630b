"""GossipSub in the simulator with 1,000 nodes: its meshes come to rest within the bounds, and every message reaches everybody."""

from __future__ import annotations

import pytest

from libweft.bench.runs.attacks import AnyAttack, Silent
from libweft.bench.runs.replay import command
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Scenario, TraceSettings, Workload
from libweft.peer.machine import SECOND
from libweft.peer.sim.faults import Loss, MassCrash
from libweft.peer.sim.simulator import Simulator, stream
from libweft.pubsub import stacks
from libweft.pubsub.gossipsub.router import GossipSub
from tests.conftest import note_replay
from tests.pubsub.apps import Inbox

pytestmark = pytest.mark.slow

NODES, FEWER, DEGREE = 1_000, 300, 20
HEARTBEATS = 10
LATE = 2 * SECOND  # from a node's start to its first heartbeat, and a GRAFT's way


def test_meshes_are_within_their_bounds_and_symmetric_after_ten_heartbeats() -> None:
    """One heartbeat's GRAFTs and PRUNEs are still on their way when a node is looked at; so is what they change."""
    stack = stacks.find("static/gossipsub", {"degree": DEGREE}, {})
    sim = Simulator(seed=1)
    for contacts in stack.introduce(NODES, stream(1, "overlay")):
        sim.add(stack.node(contacts, Inbox()), lambda node: node.machines[-1].join("t"))  # type: ignore[attr-defined]
    sim.run(HEARTBEATS * SECOND + LATE)
    routers = {number: node.machines[-1] for number, node in sim.nodes.items()}
    meshes = {number: router.meshes.topics["t"].peers for number, router in routers.items() if isinstance(router, GossipSub)}
    config = stack.router_options
    assert all(int(config["d_lo"]) <= len(mesh) <= int(config["d_hi"]) for mesh in meshes.values())
    assert all(number in meshes[int(peer)] for number, mesh in meshes.items() for peer in mesh)


@pytest.mark.parametrize("stack", ["static/gossipsub", "hyparview/gossipsub", "kademlia/gossipsub"])
def test_every_message_reaches_everybody(stack: str) -> None:
    overlay: dict[str, bool | int | float | str] = {"degree": DEGREE} if stack.startswith("static") else {}
    scenario = Scenario(
        stack=stack,
        nodes=FEWER,
        warmup=30.0,
        overlay=overlay,
        workload=Workload(messages=20),
        trace=TraceSettings(level="none"),
    )
    note_replay(command(scenario))
    assert run(scenario)["reliability"] == 1.0


def test_gossip_brings_what_links_lose_and_crashes_tear() -> None:
    scenario = Scenario(
        stack="static/gossipsub",
        nodes=FEWER,
        warmup=20.0,
        overlay={"degree": DEGREE},
        workload=Workload(messages=50),
        faults=(Loss(at=0.0, p=0.1), MassCrash(at=19.0, share=0.2)),
        trace=TraceSettings(level="none"),
    )
    note_replay(command(scenario))
    assert run(scenario)["reliability"] > 0.9999


@pytest.mark.parametrize("attack", [Silent(nodes=800, degree=50), Silent(nodes=800, degree=50, at=10.0, turn=15.0)])
def test_sybils_that_do_not_forward_keep_no_message_from_honest_nodes(attack: AnyAttack) -> None:
    scenario = Scenario(
        stack="static/gossipsub",
        nodes=200,
        warmup=20.0,
        overlay={"degree": DEGREE},
        workload=Workload(messages=50),
        attacks=(attack,),
        trace=TraceSettings(level="none"),
    )
    note_replay(command(scenario))
    figures = run(scenario)
    assert figures["reliability"] == 1.0 and figures["latency_ms"]["p99"] < 2_000
