"""Eight live nodes on loopback: they join through one, look up, keep values and providers, and pass over one that went."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio

from libweft.overlays.kademlia.config import KademliaConfig
from libweft.overlays.kademlia.messages import PROTOCOL, FindNode
from libweft.overlays.kademlia.put_and_get import Kademlia
from libweft.overlays.kademlia.space import place_of, place_of_key
from libweft.peer.libp2p.ids import Identity
from libweft.peer.live.driver import Driver, run_stack
from libweft.peer.live.host import Host, open_host
from libweft.peer.machine import SECOND, Peer, PeerInfo
from tests.waiting import until

pytestmark = pytest.mark.live

HERE = ["/ip4/127.0.0.1/tcp/0"]
DEADLINE_S = 60
NODES = 8
KEY = b"/anything/key"
CONFIG = KademliaConfig(k=4, alpha=3, patience=20 * SECOND, slow=5 * SECOND, near_every=SECOND)


class Node:
    """A host and its stack, in a task that ends when the node is to leave."""

    host: Host
    driver: Driver

    def __init__(self) -> None:
        self._leaves = trio.Event()
        self._left = trio.Event()

    async def run(self, bootstrap: Node | None, config: KademliaConfig, task_status: trio.TaskStatus[Node]) -> None:
        contacts: list[Peer] = [bootstrap.host.peer] if bootstrap is not None else []
        async with open_host(Identity.new(), listen=HERE) as self.host:
            if bootstrap is not None:
                self.host.learn(bootstrap.host.peer, bootstrap.host.addresses)
            async with run_stack(self.host, lambda env: [Kademlia(env(), contacts, config)]) as self.driver:
                task_status.started(self)
                await self._leaves.wait()
        self._left.set()

    async def leave(self) -> None:
        self._leaves.set()
        await self._left.wait()

    @property
    def kademlia(self) -> Kademlia:
        machine = self.driver.machines[0]
        assert isinstance(machine, Kademlia)
        return machine

    async def ask(self, call: Callable[..., None], *args: Any) -> Any:
        """What `done`, the last argument, hears."""
        heard: list[Any] = []
        call(*args, heard.append)
        await until(lambda: bool(heard))
        return heard[0]


class Eight:
    """The nodes that are there; all of them joined through the first, and know their nearest."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.nodes: list[Node] = []

    async def add(self, config: KademliaConfig = CONFIG) -> Node:
        node: Node = await self._nursery.start(Node().run, self.nodes[0] if self.nodes else None, config)
        return node

    async def settle(self) -> None:
        await until(lambda: all(knows_its_nearest(node, self.nodes) for node in self.nodes))


@asynccontextmanager
async def eight_nodes() -> AsyncIterator[Eight]:
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            eight = Eight(nursery)
            for _ in range(NODES):
                eight.nodes.append(await eight.add())
            await until(lambda: all(node.kademlia.has_joined for node in eight.nodes[1:]))
            await eight.settle()
            yield eight
            for node in eight.nodes:
                await node.leave()


def nearest(nodes: Sequence[Node], place: int, but: Node) -> list[bytes]:
    peers = [node.host.peer for node in nodes if node is not but]
    return sorted(peers, key=lambda peer: place_of(peer) ^ place)[: CONFIG.k]


def knows_its_nearest(node: Node, nodes: Sequence[Node]) -> bool:
    mine = node.kademlia.table.mine
    return node.kademlia.table.nearest(mine, CONFIG.k) == nearest(nodes, mine, node)


async def test_eight_nodes_that_join_through_one_look_up_exactly_and_keep_values() -> None:
    async with eight_nodes() as eight:
        for number, node in enumerate(eight.nodes):
            key = b"key %d" % number
            found: Sequence[PeerInfo] = await node.ask(node.kademlia.lookup, key)
            assert [info.peer for info in found] == nearest(eight.nodes, place_of_key(key), node)
            assert all(info.addresses for info in found)
        second, last = eight.nodes[1], eight.nodes[-1]
        taken: int = await second.ask(second.kademlia.put, KEY, b"value", 60 * SECOND)
        assert taken == CONFIG.k
        assert [await node.ask(node.kademlia.get, KEY) for node in eight.nodes] == [b"value"] * NODES
        assert await last.ask(last.kademlia.get, b"/anything/other") is None


async def test_live_providers_are_found_by_all() -> None:
    async with eight_nodes() as eight:
        providers = eight.nodes[0], eight.nodes[-1]
        for provider in providers:
            provider.kademlia.announce("news")
        expected = {provider.host.peer for provider in providers}
        for node in eight.nodes:
            peers: set[Any] = set()
            while peers != expected:  # a message without an answer may be on its way still
                peers = {info.peer for info in await node.ask(node.kademlia.find, "news", 5)}


async def test_a_live_node_that_closes_is_passed_over() -> None:
    async with eight_nodes() as eight:
        await eight.nodes[2].ask(eight.nodes[2].kademlia.put, KEY, b"value", 60 * SECOND)
        gone = eight.nodes.pop(3)
        await gone.leave()
        for node in eight.nodes:
            found: Sequence[PeerInfo] = await node.ask(node.kademlia.lookup, b"key")
            assert gone.host.peer not in {info.peer for info in found}
            assert await node.ask(node.kademlia.get, KEY) == b"value"
        await eight.settle()
        for node in eight.nodes:
            found = await node.ask(node.kademlia.lookup, b"key")
            assert [info.peer for info in found] == nearest(eight.nodes, place_of_key(b"key"), node)


async def test_a_client_asks_live_servers_and_is_in_no_table() -> None:
    async with eight_nodes() as eight:
        client, asked = await eight.add(replace(CONFIG, server=False)), eight.nodes[5]
        await until(lambda: client.kademlia.has_joined)
        assert await client.ask(client.kademlia.put, KEY, b"value", 60 * SECOND) == CONFIG.k
        assert await asked.ask(asked.kademlia.get, KEY) == b"value"
        assert not any(client.host.peer in node.kademlia.table for node in eight.nodes)
        assert PROTOCOL not in client.host.protocols and PROTOCOL in asked.host.protocols
        answers: list[Any] = []  # of the one by whom the client joined
        asked.kademlia.ask(
            eight.nodes[0].host.peer, FindNode(client.host.peer), lambda _, msg: answers.append(msg), lambda *_: None
        )
        await until(lambda: bool(answers))
        assert answers[0].closer[0].peer == client.host.peer and answers[0].closer[0].addresses
        await client.leave()
