"""The routers that number what a source publishes, on real sockets: each message once, in order, and whoever crashes."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import trio

from libweft.overlays.description import Options
from libweft.pubsub.live.api import PubSub, PubSubConfig

pytestmark = pytest.mark.live

STACKS = ("vcube/vcube-ps", "vcube/vcube-pb", "vcube/srpt-s", "vcube/srpt-b", "kademlia/srpt-s")
HERE = ("/ip4/127.0.0.1/tcp/0",)
AT_FIRST: Options = {"root": 0}  # the first node has that place
SAID = [b"%02d" % turn for turn in range(40)]  # more than the window


@pytest.mark.parametrize("stack", STACKS)
async def test_live_nodes_deliver_to_each_subscriber_once_and_in_order(stack: str) -> None:
    with trio.fail_after(240):
        async with (
            PubSub.open(stack, listen=HERE) as first,
            PubSub.open(stack, bootstrap=first.addresses, listen=HERE) as second,
            PubSub.open(stack, bootstrap=first.addresses, listen=HERE) as third,
            first.subscribe("t") as one,
            second.subscribe("t") as two,
            third.subscribe("t") as three,
        ):
            for turn in range(30):
                for name, node in (("a", first), ("b", second), ("c", third)):
                    await node.publish("t", f"{name}{turn}".encode())
            for messages in (one, two, three):
                heard = [(await anext(messages)).data.decode() for _ in range(90)]
                assert {name: [text for text in heard if text[0] == name] for name in "abc"} == {
                    name: [f"{name}{turn}" for turn in range(30)] for name in "abc"
                }


@pytest.mark.parametrize(
    ("stack", "options", "victim", "publisher"),
    [
        ("vcube/vcube-ps", {}, 2, 0),
        ("vcube/vcube-pb", {}, 2, 0),
        ("vcube/srpt-s", AT_FIRST, 0, 1),
        ("vcube/srpt-b", AT_FIRST, 0, 1),
    ],
)
async def test_live_nodes_go_on_without_one_that_crashed(stack: str, options: Options, victim: int, publisher: int) -> None:
    """A forwarder; in a tree with a root the root."""
    config = PubSubConfig(router=options)
    with trio.fail_after(240):
        async with AsyncExitStack() as opened:
            nodes: list[PubSub] = []
            inboxes = []
            for _ in range(6):
                bootstrap = nodes[-1].addresses if nodes else ()  # any member admits
                nodes.append(
                    await opened.enter_async_context(PubSub.open(stack, bootstrap=bootstrap, listen=HERE, config=config))
                )
                inboxes.append(await opened.enter_async_context(nodes[-1].subscribe("t")))
            crashed = nodes[victim]
            crashed.driver.stopped = True
            crashed.host.halt("crash")
            for data in SAID:
                await nodes[publisher].publish("t", data)
            for node, messages in zip(nodes, inboxes, strict=True):
                if node is not crashed:
                    assert [(await anext(messages)).data for _ in SAID] == SAID


async def test_live_subscribers_have_all_of_a_publisher_that_does_not_subscribe_though_one_of_them_crashes() -> None:
    """What VCube-PB alone promises: in the midst of it."""
    stack = "vcube/vcube-pb"
    with trio.fail_after(120):
        async with AsyncExitStack() as opened:
            nodes = [await opened.enter_async_context(PubSub.open(stack, listen=HERE))]
            inboxes = []
            for _ in range(4):
                nodes.append(await opened.enter_async_context(PubSub.open(stack, bootstrap=nodes[-1].addresses, listen=HERE)))
                inboxes.append(await opened.enter_async_context(nodes[-1].subscribe("t", order="fifo")))
            for data in SAID[:10]:
                await nodes[0].publish("t", data)
            crashed = nodes[2]
            crashed.driver.stopped = True
            crashed.host.halt("crash")
            for data in SAID[10:]:
                await nodes[0].publish("t", data)
            for node, messages in zip(nodes[1:], inboxes, strict=True):
                if node is not crashed:
                    assert [(await anext(messages)).data for _ in SAID] == SAID
