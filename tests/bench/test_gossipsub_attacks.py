"""The figure `gossipsub.attacks`: what its runs are, and the start of the one in which sybils are first."""

from __future__ import annotations

from libweft.bench.papers.gossipsub_attacks import DAWN, MESSAGES, NODES, QUICK, ROUTERS, attacks, scenario
from libweft.bench.runs import reading
from libweft.bench.runs.replay import command
from libweft.bench.runs.run import build
from libweft.bench.runs.sybils import Siege
from libweft.bench.runs.workload import Workload
from libweft.peer.machine import SECOND, Peer
from libweft.peer.sim.simulator import Simulator
from libweft.pubsub import stacks
from libweft.pubsub.gossipsub.router import GossipSub
from tests.conftest import note_replay

HONEST = 12


def begun(*, dawn: bool) -> Simulator:
    """A run of the quick figure, made smaller, in which nothing has happened yet."""
    chosen = scenario(HONEST, 1, attacks(HONEST, 1)["attack at dawn"], "hardened", quick=True, dawn=dawn)
    note_replay(command(chosen))
    sim = build(chosen, None)
    workload = Workload(chosen, stacks.find(chosen.stack, chosen.overlay, chosen.router), sim)
    workload.start(workload.stack.introduce(HONEST, sim.stream("overlay")))
    Siege(sim, chosen.attacks, HONEST, workload.topics)
    return sim


def meshes(sim: Simulator) -> list[list[Peer]]:
    routers = [sim.nodes[number].machines[-1] for number in range(HONEST)]
    return [list(router.meshes.topics["t0"].peers) for router in routers if isinstance(router, GossipSub)]


def met(sim: Simulator) -> list[bool]:
    """Of each honest node, whether it has a link to another."""
    return [any(int(peer) < HONEST for peer in sim.nodes[number].links) for number in range(HONEST)]


def test_at_dawn_sybils_fill_the_meshes_before_honest_nodes_meet() -> None:
    sim = begun(dawn=True)
    sim.run(round(DAWN * SECOND) - 1)
    assert not any(met(sim))
    assert all(len(mesh) >= 6 and all(int(peer) >= HONEST for peer in mesh) for mesh in meshes(sim))
    sim.run(round(DAWN * SECOND) + SECOND)
    assert all(met(sim))


def test_in_a_cold_boot_they_meet_at_once() -> None:
    sim = begun(dawn=False)
    sim.run(SECOND)
    assert all(met(sim))


def test_the_table_has_the_attacks_of_the_evaluation_and_each_is_a_scenario() -> None:
    table = attacks(NODES, MESSAGES)
    assert len(table) == 10 and {*QUICK} < {*table} and "attack at dawn" not in QUICK
    assert table["attack at dawn"] == table["cold boot"]  # only the honest nodes are late
    for name, attack in table.items():
        for router in ROUTERS:
            reading.validate(scenario(NODES, 1, attack, router, quick=False, dawn=name == "attack at dawn"))
