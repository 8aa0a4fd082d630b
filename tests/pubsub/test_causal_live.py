"""Causal order among live peers: an answer that arrives before its question waits for it, and the question is asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import trio

from libweft.peer.errors import UsageError
from libweft.pubsub.gossipsub.router import GossipSub
from libweft.pubsub.kadpubsub.messages import Delegate
from libweft.pubsub.live.api import PubSub
from libweft.pubsub.live.subscription import Message
from libweft.pubsub.message import Publication
from libweft.pubsub.plumtree import Gossip
from tests.waiting import until

pytestmark = pytest.mark.live

HERE = ("/ip4/127.0.0.1/tcp/0",)
DEADLINE_S = 240


async def take(messages: AsyncIterator[Message], count: int) -> list[bytes]:
    return [(await anext(messages)).data for _ in range(count)]


async def subscribers_known(node: PubSub, count: int) -> None:
    """GossipSub sends only to those; to whom it has not heard of it would have to gossip."""
    router = node.router
    if isinstance(router, GossipSub):
        await until(lambda: len(router.subscribers.get("t", ())) >= count)


def deaf(node: PubSub, data: bytes) -> None:
    """The router of this node loses what its neighbours send of that message; what it asks for still comes."""
    carrier = next(kind for kind in (Gossip, Delegate, Publication) if kind in node.router.handlers)
    receive = node.router.handlers[carrier]

    def lossy(router: object, sender: object, message: Gossip | Delegate | Publication) -> None:
        if message.data != data:
            receive(router, sender, message)

    # Of this one object: the class has all nodes of the process.
    node.router.handlers = {**node.router.handlers, carrier: lossy}  # type: ignore[misc]
    if carrier is Publication:
        node.router.brought = lambda sender, publication: receive(node.router, sender, publication)  # type: ignore[method-assign]


STACKS = ("static/flood", "static/gossipsub", "hyparview/plumtree", "kademlia/kadpubsub")


@pytest.mark.parametrize("stack", STACKS)
async def test_an_answer_waits_for_its_question_which_is_asked_for(stack: str) -> None:
    with trio.fail_after(DEADLINE_S):
        async with AsyncExitStack() as stay:
            a = await stay.enter_async_context(PubSub.open(stack, listen=HERE))
            where = HERE if stack.startswith("kademlia") else ()  # there, whoever cannot be reached is no relay
            others = [PubSub.open(stack, listen=where, bootstrap=a.addresses) for _ in range(2)]
            b, c = [await stay.enter_async_context(other) for other in others]
            deaf(c, b"question")
            heard = [await stay.enter_async_context(node.subscribe("t", order="causal")) for node in (a, b, c)]
            await a.neighbors_up(2)
            await b.neighbors_up()
            await c.neighbors_up()
            await subscribers_known(a, 2)
            await a.publish("t", b"question")
            assert await take(heard[1], 1) == [b"question"]
            await b.publish("t", b"answer")
            for messages, count in zip(heard, (2, 1, 2), strict=True):
                assert await take(messages, count) == [b"question", b"answer"][-count:]
            assert c.stats()["given_up"] == c.stats()["late"] == 0


@pytest.mark.parametrize("stack", ["vcube/vcube-ps", "vcube/vcube-pb", "vcube/srpt-s", *STACKS[:3]])
async def test_who_subscribes_right_after_a_message_gives_up_on_nothing(stack: str) -> None:
    """The next message names that one, which no router brings to a newcomer: it is had for the asking, or said to be earlier."""
    with trio.fail_after(DEADLINE_S):
        async with AsyncExitStack() as stay:
            a = await stay.enter_async_context(PubSub.open(stack, listen=HERE))
            first = await stay.enter_async_context(a.subscribe("t", order="causal"))
            await a.publish("t", b"before")
            assert await take(first, 1) == [b"before"]
            b = await stay.enter_async_context(PubSub.open(stack, listen=HERE, bootstrap=a.addresses))
            late = await stay.enter_async_context(b.subscribe("t", order="causal"))
            await a.neighbors_up()
            await b.neighbors_up()
            await subscribers_known(a, 1)
            await a.publish("t", b"after")
            while (await take(late, 1)) != [b"after"]:
                pass
            assert b.stats()["given_up"] == 0


async def test_a_wrong_order_and_two_orders_at_once_are_refused() -> None:
    async with PubSub.open("static/flood", listen=()) as node:
        with pytest.raises(UsageError, match="order is 'total'; choose none, fifo or causal"):
            async with node.subscribe("t", order="total"):  # type: ignore[arg-type]
                pass
        async with node.subscribe("t", order="causal"), node.subscribe("t") as plain:
            with pytest.raises(UsageError, match="a topic has one order at a time"):
                async with node.subscribe("t", order="fifo"):
                    pass
            await node.publish("t", b"own")
            assert await take(plain, 1) == [b"own"]
        async with node.subscribe("t", order="fifo"):
            pass
