"""Publishing and taking seldom give way to other tasks, but do, and can be cancelled at any call."""

from __future__ import annotations

import pytest
import trio

from libweft.pubsub.live import api, subscription
from libweft.pubsub.live.api import PubSub


async def count(turns: list[None]) -> None:
    while True:
        await trio.lowlevel.checkpoint()
        turns.append(None)


async def test_publishing_gives_other_tasks_a_turn_now_and_then() -> None:
    turns: list[None] = []
    async with PubSub.open(listen=()) as node, trio.open_nursery() as nursery:
        nursery.start_soon(count, turns)
        for _ in range(10 * api.TURN):
            await node.publish("t", b"x")
        nursery.cancel_scope.cancel()
    assert 7 <= len(turns) <= 11


async def test_taking_gives_other_tasks_a_turn_now_and_then() -> None:
    turns: list[None] = []
    async with PubSub.open(listen=()) as node, node.subscribe("t", buffer=1_000) as messages, trio.open_nursery() as nursery:
        for _ in range(10 * subscription.TURN):
            await node.publish("t", b"x")
        nursery.start_soon(count, turns)
        for _ in range(10 * subscription.TURN):
            await anext(messages)
        nursery.cancel_scope.cancel()
    assert 7 <= len(turns) <= 11


async def test_a_cancelled_scope_publishes_nothing() -> None:
    async with PubSub.open(listen=()) as node, node.subscribe("t") as messages:
        for number in range(api.TURN):
            with trio.CancelScope() as scope:
                scope.cancel()
                await node.publish("t", b"never")
            assert scope.cancelled_caught, number
            await node.publish("t", b"x")
            assert (await anext(messages)).data == b"x"


async def test_taking_from_a_subscription_that_has_ended_is_a_checkpoint() -> None:
    async with PubSub.open(listen=()) as node:
        async with node.subscribe("t") as messages:
            pass
        with pytest.raises(StopAsyncIteration):
            await anext(messages)
        with trio.CancelScope() as scope:
            scope.cancel()
            await anext(messages)
        assert scope.cancelled_caught
