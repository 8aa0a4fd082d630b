"""Twenty live peers over Kademlia on loopback: KadPubSub and a flood deliver each message once to each subscriber."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio

from libweft.overlays.kademlia.put_and_get import Kademlia
from libweft.peer.machine import SECOND
from libweft.pubsub.live.api import PubSub, PubSubConfig
from libweft.pubsub.live.subscription import Subscription
from tests.waiting import until

pytestmark = pytest.mark.live

HERE = ("/ip4/127.0.0.1/tcp/0",)
DEADLINE_S = 240
PEERS = 20
TOPICS = ("red", "green", "blue")
MESSAGES = 5


def kademlia(node: PubSub) -> Kademlia:
    (machine,) = (machine for machine in node.driver.machines if isinstance(machine, Kademlia))
    return machine


def strangers(nodes: list[PubSub]) -> list[int]:
    return [number for number, node in enumerate(nodes) if number and not kademlia(node).has_joined]


@asynccontextmanager
async def network(stack: str, config: PubSubConfig | None = None) -> AsyncIterator[list[PubSub]]:
    """All of them have joined through the first; not each need know all others, for who is slow to answer is forgotten."""
    with trio.fail_after(DEADLINE_S):
        async with AsyncExitStack() as opened:
            nodes: list[PubSub] = []
            for _ in range(PEERS):
                bootstrap = nodes[0].addresses if nodes else ()
                node = PubSub.open(stack, bootstrap=bootstrap, listen=HERE, config=config)
                nodes.append(await opened.enter_async_context(node))
            await until(lambda: all(kademlia(node).has_joined for node in nodes[1:]), lambda: f"a join of {strangers(nodes)}")
            yield nodes


async def heard(messages: Subscription, count: int) -> list[bytes]:
    return sorted([(await anext(messages)).data for _ in range(count)])


@pytest.mark.parametrize("stack", ["kademlia/kadpubsub", "kademlia/flood", "kademlia/srpt-s"])
async def test_each_subscriber_of_three_topics_has_each_message_of_any_peer_once(stack: str) -> None:
    # All nodes share one core with other programs: nobody is to be given up because it is slow.
    config = PubSubConfig(router={"patience": 60 * SECOND}) if stack == "kademlia/kadpubsub" else None
    async with network(stack, config) as nodes, AsyncExitStack() as subscribed:
        inboxes: list[tuple[str, Subscription]] = []
        for number, node in enumerate(nodes):
            topic = TOPICS[number % len(TOPICS)]
            inboxes.append((topic, await subscribed.enter_async_context(node.subscribe(topic, buffer=1_000))))
        if stack == "kademlia/flood":
            for node in nodes:
                await node.neighbors_up(3)
        sent: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
        for number, node in enumerate(nodes):
            for topic in TOPICS:
                for turn in range(MESSAGES):
                    data = f"{number} says {turn}".encode()
                    await node.publish(topic, data)
                    sent[topic].append(data)

        def lacking() -> dict[int, int]:
            """Return how many messages each node still lacks."""
            counts = ((number, len(sent[topic]) - len(messages)) for number, (topic, messages) in enumerate(inboxes))
            return {number: count for number, count in counts if count > 0}

        await until(lambda: not lacking(), lambda: f"messages that nodes lack: {lacking()}")
        for topic, messages in inboxes:
            assert await heard(messages, len(sent[topic])) == sorted(sent[topic])
        assert all(len(messages) == 0 for _, messages in inboxes)
        if stack == "kademlia/kadpubsub":
            assert all(node.router.refused == 0 for node in nodes)


async def test_kadpubsub_passes_over_those_that_have_gone_without_a_word() -> None:
    async with network("kademlia/kadpubsub") as nodes, AsyncExitStack() as subscribed:
        inboxes = [await subscribed.enter_async_context(node.subscribe("all", buffer=100)) for node in nodes[5:]]
        for node in nodes[10:14]:
            node.driver.stopped = True  # its machines answer nobody any more
        await nodes[0].publish("all", b"who is there?")
        for number, messages in enumerate(inboxes, 5):
            if number not in range(10, 14):
                assert await heard(messages, 1) == [b"who is there?"]


@pytest.mark.parametrize("stack", ["kademlia/kadpubsub", "kademlia/srpt-s"])
async def test_what_was_published_last_arrives_although_the_node_closes_at_once(stack: str) -> None:
    """It is not known yet where it goes when the block ends."""
    with trio.fail_after(DEADLINE_S):
        async with PubSub.open(stack, listen=HERE) as hearer, hearer.subscribe("news", buffer=100) as messages:
            async with PubSub.open(stack, bootstrap=hearer.addresses, listen=HERE) as node:
                for number in range(20):
                    await node.publish("news", b"%02d" % number)
            assert await heard(messages, 20) == [b"%02d" % number for number in range(20)]
