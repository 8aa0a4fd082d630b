"""Networks of weft nodes alone: a hundred in the simulator under loss, duplication and crashes, and a few on loopback sockets."""

from __future__ import annotations

import socket
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from libweft.overlays.kademlia_udp.config import KademliaUdpConfig
from libweft.overlays.kademlia_udp.live import KademliaNode
from libweft.overlays.kademlia_udp.machine import KademliaUdp
from libweft.overlays.kademlia_udp.wire import digest
from libweft.peer.datagram import GARBAGE, NoAnswer
from libweft.peer.errors import UsageError
from libweft.peer.machine import SECOND
from libweft.peer.sim.datagram import SimDatagrams, SimEndpoint
from libweft.peer.sim.simulator import Simulator
from tests.waiting import until

HERE = "127.0.0.1"
DEADLINE = 60


class World:
    """Nodes that join one after the other through the first."""

    def __init__(self, count: int, seed: int = 1, loss: float = 0.0, duplicate: float = 0.0, k: int = 20) -> None:
        self.sim = Simulator(seed)
        self.net: SimDatagrams[KademliaUdp] = SimDatagrams(self.sim, loss=loss, duplicate=duplicate)
        config = KademliaUdpConfig(k=k)
        self.nodes: list[SimEndpoint[KademliaUdp]] = [self.net.add(lambda env: KademliaUdp(env, config=config))]
        first = self.nodes[0].me
        for number in range(1, count):
            node = self.net.add(lambda env: KademliaUdp(env, [first], config))
            self.nodes.append(node)
            self.sim.at(number * SECOND // 10, node.machine.join, lambda _: None)
        self.run(count // 10 + 130)

    def run(self, seconds: int) -> None:
        self.sim.run(self.sim.now + seconds * SECOND)

    def set_all(self, count: int) -> list[int]:
        taken: list[int] = []
        for number in range(count):
            self.nodes[number * 7 % len(self.nodes)].machine.set(f"key {number}", number, taken.append)
        self.run(60)
        return taken

    def get_all(self, count: int, nodes: list[SimEndpoint[KademliaUdp]]) -> dict[int, Any]:
        found: dict[int, Any] = {}
        for number in range(count):
            nodes[(number * 13 + 5) % len(nodes)].machine.get(f"key {number}", partial(found.__setitem__, number))
        self.run(60)
        return found

    def garbage(self) -> int:
        return sum(node.counts[GARBAGE] for node in self.nodes)


def test_a_hundred_nodes_find_all_values_where_one_datagram_of_twenty_is_lost() -> None:
    world = World(100, loss=0.05, duplicate=0.02)
    assert all(node.machine.table for node in world.nodes)
    assert min(world.set_all(50)) >= 18
    assert world.get_all(50, world.nodes) == {number: number for number in range(50)}
    assert world.net.counts["lost"] > 500 and world.net.counts["duplicated"] > 200
    assert world.garbage() == 0


def test_without_loss_a_value_is_at_the_k_nodes_nearest_to_its_key() -> None:
    world = World(60, k=8)
    assert set(world.set_all(20)) == {8}
    for number in range(20):
        place = int.from_bytes(digest(f"key {number}"), "big")
        order = sorted(world.nodes, key=lambda node: node.machine.number ^ place)
        holders = [node for node in world.nodes if digest(f"key {number}") in node.machine.values.kept]
        others = [node for node in order if node is not world.nodes[number * 7 % 60]]
        assert all(node in holders for node in others[:8])
        assert len(holders) <= 9


def test_values_outlive_a_third_of_the_nodes() -> None:
    world = World(60, k=8)
    world.set_all(30)
    for node in world.nodes[::3]:
        world.net.crash(node.me)
    alive = [node for node in world.nodes if node.up]
    assert world.get_all(30, alive) == {number: number for number in range(30)}


def test_nodes_that_come_later_are_handed_values_so_that_they_outlive_all_that_had_them() -> None:
    world = World(10, k=4)
    world.set_all(20)
    first = world.nodes[0].me
    for _ in range(10):
        node = world.net.add(lambda env: KademliaUdp(env, [first], KademliaUdpConfig(k=4)))
        node.machine.join(lambda _: None)
        world.nodes.append(node)
        world.run(10)
    late = world.nodes[10:]
    assert sum(len(node.machine.values) for node in late) > 10
    world.run(2 * 3_600)
    for node in world.nodes[:10]:
        world.net.crash(node.me)
        world.run(60)
    assert world.get_all(20, late) == {number: number for number in range(20)}


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    def told(seed: int) -> tuple[Counter[str], int, list[int]]:
        world = World(30, seed=seed, loss=0.1)
        return world.net.counts, world.sim.events, [len(node.machine.table) for node in world.nodes]

    assert told(1) == told(1)
    assert told(1) != told(2)


def test_shares_beyond_all_are_refused() -> None:
    with pytest.raises(UsageError, match="shares from 0 to 1"):
        SimDatagrams(Simulator(), loss=5)


# On sockets.


@pytest.mark.live
async def test_live_nodes_set_and_get_and_one_that_comes_later_finds_it() -> None:
    with trio.fail_after(DEADLINE):
        async with AsyncExitStack() as stack:
            nodes = [await stack.enter_async_context(KademliaNode.open(host=HERE))]
            for _ in range(4):
                place = ("localhost", nodes[0].address[1])
                nodes.append(await stack.enter_async_context(KademliaNode.open(host=HERE, bootstrap=[place])))
            await until(lambda: all(len(node.machine.table) == 4 for node in nodes))
            assert await nodes[1].set("colour", "blue") == 4
            late = await stack.enter_async_context(KademliaNode.open(host=HERE, bootstrap=[nodes[3].address]))
            assert [await node.get("colour") for node in (*nodes, late)] == ["blue"] * 6
            assert await late.get("no such") is None
            assert await late.stun(nodes[0].address) == late.address


@pytest.mark.live
async def test_nodes_speak_ipv6_where_there_is_any() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with trio.fail_after(DEADLINE):
        async with (
            KademliaNode.open(host="::1") as a,
            KademliaNode.open(host="::1", bootstrap=[("0:0::1", a.address[1])]) as b,
        ):
            assert await b.set("key", 1) == 1
            assert await a.get("key") == 1
            assert await b.stun(a.address) == b.address


@pytest.mark.live
async def test_a_network_where_nobody_answers_is_told_with_its_address(autojump_clock: trio.testing.MockClock) -> None:
    with pytest.raises(NoAnswer, match=r"nobody answered at 127.0.0.1:9; is a node running"):
        async with KademliaNode.open(host=HERE, bootstrap=[(HERE, 9)]):
            pass


@pytest.mark.live
async def test_a_lonely_node_says_that_nobody_took_its_value() -> None:
    async with KademliaNode.open(host=HERE) as node:
        with pytest.raises(NoAnswer, match="0 are known"):
            await node.set("key", 1)
        assert await node.get("key") is None


@pytest.mark.live
@pytest.mark.parametrize("place", [("", 0), (HERE, 0), (HERE, 1 << 16), (HERE, "5678"), ("no.such.invalid", 5)])
async def test_a_bootstrap_address_that_is_none_is_refused(place: Any) -> None:
    with pytest.raises(UsageError):
        async with KademliaNode.open(host=HERE, bootstrap=[place]):
            pass


@pytest.mark.parametrize(
    "wrong",
    [
        *({"host": None}, {"bootstrap": None}, {"bootstrap": "127.0.0.1:5"}, {"config": None}),
        *({"deadline": "x"}, {"deadline": -1}, {"deadline": 0}, {"deadline": float("nan")}, {"deadline": True}),
    ],
)
async def test_an_argument_of_the_wrong_kind_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        async with KademliaNode.open(**{"host": HERE, **wrong}):
            pass
