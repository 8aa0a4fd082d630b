"""What the API promises an application: buffers and their policies, validators, back-pressure, FIFO, limits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, cast

import pytest
import trio

from libweft.peer.errors import UsageError
from libweft.peer.fake.env import FakeEnv
from libweft.peer.libp2p.ids import Identity, peer_text
from libweft.peer.machine import SECOND, MessageId
from libweft.pubsub.flood import Flood
from libweft.pubsub.live import api
from libweft.pubsub.live.api import Ordered, PubSub, PubSubConfig
from libweft.pubsub.live.subscription import Full, Message
from libweft.pubsub.message import OrderHeader, Publication, Verdict
from libweft.pubsub.ordering.causal import CausalConfig
from libweft.pubsub.ordering.fifo import STREAMS, Fifo, FifoConfig
from tests.pubsub.test_flood import Given, Judge
from tests.waiting import until

HERE = ("/ip4/127.0.0.1/tcp/0",)
STACK = "static/flood"
DEADLINE_S = 240


@pytest.fixture
async def pair() -> AsyncIterator[tuple[PubSub, PubSub]]:
    with trio.fail_after(DEADLINE_S):
        async with PubSub.open(STACK, listen=HERE) as a, PubSub.open(STACK, bootstrap=a.addresses, listen=()) as b:
            await a.neighbors_up()
            await b.neighbors_up()
            yield a, b


async def until_delivered(node: PubSub, count: int) -> None:
    await until(lambda: node.stats().get("delivered", 0) >= count, lambda: f"{count} deliveries: {node.stats()}")


# Buffers.


@pytest.mark.live
@pytest.mark.parametrize(("policy", "kept"), [("drop oldest", [b"2", b"3"]), ("drop newest", [b"0", b"1"])])
async def test_a_full_buffer_drops_as_told_and_counts(pair: tuple[PubSub, PubSub], policy: Full, kept: list[bytes]) -> None:
    a, b = pair
    async with a.subscribe("news", buffer=2, when_full=policy) as messages:
        for number in range(4):
            await b.publish("news", b"%d" % number)
        await until_delivered(a, 4)
        assert [(await anext(messages)).data for _ in range(2)] == kept
        assert messages.dropped == a.stats()["dropped"] == 2


@pytest.mark.live
async def test_a_subscription_that_waits_loses_nothing(pair: tuple[PubSub, PubSub]) -> None:
    a, b = pair
    async with a.subscribe("news", buffer=2, when_full="wait") as messages:
        for number in range(50):
            await b.publish("news", b"%d" % number)
        await until_delivered(a, 2)
        assert a.stats()["held"] == 2
        assert [(await anext(messages)).data for _ in range(50)] == [b"%d" % number for number in range(50)]
        assert messages.dropped == 0


@pytest.mark.live
async def test_leaving_a_subscription_lets_what_waited_for_it_go_on(pair: tuple[PubSub, PubSub]) -> None:
    a, b = pair
    async with a.subscribe("news", buffer=10) as other:
        async with a.subscribe("news", buffer=1, when_full="wait"):
            for number in range(5):
                await b.publish("news", b"%d" % number)
            await until_delivered(a, 1)
        assert [(await anext(other)).data for _ in range(5)] == [b"%d" % number for number in range(5)]


async def test_publishing_waits_for_an_own_subscription_that_waits() -> None:
    async with PubSub.open(STACK, listen=()) as node, node.subscribe("t", buffer=1, when_full="wait") as messages:
        await node.publish("t", b"1")
        with trio.move_on_after(0.05) as limit:
            await node.publish("t", b"2")
        assert limit.cancelled_caught
        assert (await anext(messages)).data == b"1"
        await node.publish("t", b"3")
        assert (await anext(messages)).data == b"3"


async def test_iteration_ends_with_the_subscription() -> None:
    async with PubSub.open(STACK, listen=()) as node:
        async with node.subscribe("t") as messages:
            await node.publish("t", b"last")
        assert [message.data async for message in messages] == [b"last"]


# Validators.


@pytest.mark.live
async def test_validators_plain_and_async_decide_what_is_delivered(pair: tuple[PubSub, PubSub]) -> None:
    a, b = pair

    async def later(message: Message) -> Verdict:
        await trio.sleep(0.001)
        return Verdict.ACCEPT if message.data == b"good" else Verdict.IGNORE

    a.validate("plain", lambda message: message.data == b"good" and message.source == b.peer)
    a.validate("async", later)
    for topic in ("plain", "async"):
        async with a.subscribe(topic) as messages:
            await b.publish(topic, b"bad")
            await b.publish(topic, b"good")
            assert (await anext(messages)).data == b"good"
    # validators run at the same time: the message that is ignored may be so after the good one is here
    await until(lambda: (a.stats()["rejected"], a.stats()["ignored"]) == (1, 1), lambda: f"one of each: {a.stats()}")


@pytest.mark.live
async def test_a_validator_that_raises_rejects_and_the_node_goes_on(pair: tuple[PubSub, PubSub]) -> None:
    a, b = pair

    def broken(message: Message) -> bool:
        return 1 / len(message.data) > 0

    a.validate("t", broken)
    async with a.subscribe("t") as messages:
        await b.publish("t", b"")
        await b.publish("t", b"x")
        assert (await anext(messages)).data == b"x"
    assert a.stats()["validator_failed"] == 1


@pytest.mark.live
async def test_a_slow_validator_is_bounded_and_stops_nobody(pair: tuple[PubSub, PubSub]) -> None:
    a, b = pair
    release = trio.Event()

    async def slow(message: Message) -> bool:
        await release.wait()
        return True

    a.validate("slow", slow, concurrency=2)
    async with a.subscribe("slow") as slowly, a.subscribe("other") as messages:
        for number in range(5):
            await b.publish("slow", b"%d" % number)
        await b.publish("other", b"through")
        assert (await anext(messages)).data == b"through"
        assert a.stats()["validator_busy"] == 3
        release.set()
        assert sorted([(await anext(slowly)).data for _ in range(2)]) == [b"0", b"1"]


@pytest.mark.live
async def test_a_topic_that_nobody_reads_stops_no_other(pair: tuple[PubSub, PubSub]) -> None:
    """Its messages wait for their verdict, and take a share of the room, never all."""
    a, b = pair
    a.router.pending_topic = 2
    async with a.subscribe("stalled", buffer=1, when_full="wait"), a.subscribe("other") as messages:
        for number in range(40):
            await b.publish("stalled", b"%d" % number)
        for number in range(10):
            await b.publish("other", b"%d" % number)
            assert (await anext(messages)).data == b"%d" % number
        assert a.stats()["pending"] <= 2 and a.stats()["refused"] > 0


# What is over.


async def test_whoever_waits_for_a_node_hears_of_its_end() -> None:
    ended: list[str] = []

    async def alone(node: PubSub) -> None:
        with pytest.raises(UsageError, match="closed"):
            await node.neighbors_up()
        ended.append("neighbors_up")

    async def listen(node: PubSub, ready: trio.Event) -> None:
        with suppress(UsageError):
            async with node.subscribe("t") as messages:
                ready.set()
                async for _ in messages:
                    raise AssertionError("nobody said anything")
        ended.append("subscription")

    async def stuck(node: PubSub, ready: trio.Event) -> None:
        with pytest.raises(UsageError, match="closed"):
            async with node.subscribe("full", buffer=1, when_full="wait"):
                await node.publish("full", b"1")
                ready.set()
                await node.publish("full", b"2")
        ended.append("publish")

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery, PubSub.open(listen=()) as node:
            ready, filled = trio.Event(), trio.Event()
            nursery.start_soon(alone, node)
            nursery.start_soon(listen, node, ready)
            nursery.start_soon(stuck, node, filled)
            await ready.wait()
            await filled.wait()
    assert sorted(ended) == ["neighbors_up", "publish", "subscription"]


@pytest.mark.live
@pytest.mark.parametrize("order", ["none", "causal"])
@pytest.mark.parametrize("stack", ["vcube/vcube-ps", "vcube/vcube-pb", "vcube/srpt-s"])
async def test_whoever_waits_for_a_network_that_never_came_hears_of_the_end_too(
    stack: str, order: Ordered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "FLUSH_S", 0.1)
    ended: list[str] = []

    async def listen(node: PubSub) -> None:
        with pytest.raises(UsageError, match="closed"):
            async with node.subscribe("t", order=order):
                raise AssertionError("it cannot be in force")
        ended.append("subscription")

    async def flush(node: PubSub) -> None:
        await node.publish("t", b"nobody knows for whom")
        await node.flushed()
        ended.append("flushed")

    async def press(node: PubSub) -> None:
        with pytest.raises(UsageError, match="closed"):
            while True:
                await node.publish("t", bytes(1_000))
        ended.append("publish")

    nowhere = f"/ip4/127.0.0.1/tcp/9/p2p/{peer_text(Identity.from_seed(bytes(32)).peer)}"
    with trio.fail_after(60):
        config = PubSubConfig(backlog=10_000)
        async with trio.open_nursery() as nursery, PubSub.open(stack, listen=(), bootstrap=[nowhere], config=config) as node:
            for task in (listen, flush, press):
                nursery.start_soon(task, node)
            await trio.sleep(0.1)
    assert sorted(ended) == ["flushed", "publish", "subscription"]
    assert node.stats()["held"] == 0


async def test_the_orders_of_a_node_have_the_patience_that_its_config_gives_them() -> None:
    config = PubSubConfig(causal=CausalConfig(patience=7), fifo=FifoConfig(patience=8, held=9))
    async with PubSub.open(STACK, listen=(), config=config) as node:
        assert (node._order.config.patience, node._order.fifo.config) == (7, FifoConfig(8, 9))
    with pytest.raises(UsageError, match="fifo: held is 0; it must be a whole number, 1 at least"):
        FifoConfig(held=0)


# Mistakes of the caller.


@pytest.mark.parametrize("size", ["x", 0, 1.5])
def test_a_config_that_makes_no_sense_is_refused_at_once(size: Any) -> None:
    with pytest.raises(UsageError, match="size"):
        PubSubConfig(size=size)
    with pytest.raises(UsageError, match="backlog"):
        PubSubConfig(backlog=0)


@pytest.mark.parametrize("wrong", [{"overlay": None}, {"router": [("a", True)]}, {"host": None}, {"causal": {}}, {"fifo": 5}])
def test_options_that_are_none_are_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        PubSubConfig(**wrong)


@pytest.mark.parametrize("wrong", [{"stack": None}, {"listen": [5]}, {"bootstrap": None}, {"config": 3}, {"config": {}}])
async def test_an_argument_of_the_wrong_kind_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        async with PubSub.open(**wrong):
            raise AssertionError("it must not open")


async def test_mistakes_are_refused_where_they_are_made() -> None:
    async with PubSub.open(listen=()) as node:
        for judge, concurrency in ((None, 1), (5, 1), (bool, 1.5), (bool, 0)):
            with pytest.raises(UsageError):
                node.validate("t", cast(Any, judge), concurrency=cast(Any, concurrency))
        with pytest.raises(UsageError):
            await node.neighbors_up(cast(Any, "x"))
        for buffer in (1.5, "x", 0):
            with pytest.raises(UsageError, match="buffer"):
                async with node.subscribe("t", buffer=cast(Any, buffer)):
                    raise AssertionError("it must not begin")
        assert node.stats()["published"] == 0


# Limits and mistakes.


async def test_mistakes_are_told_at_the_call() -> None:
    async with PubSub.open(STACK, listen=(), config=PubSubConfig(size=10)) as node:
        with pytest.raises(UsageError, match="over the limit of 10"):
            await node.publish("t", bytes(11))
        for options in ({"buffer": 0}, {"when_full": "explode"}, {"order": "total"}):
            with pytest.raises(UsageError):
                async with node.subscribe("t", **options):
                    pass
        with pytest.raises(UsageError, match="concurrency"):
            node.validate("t", lambda publication: True, concurrency=0)
    with pytest.raises(UsageError, match="/p2p/"):
        async with PubSub.open(STACK, bootstrap=["/ip4/127.0.0.1/tcp/1"]):
            pass


@pytest.mark.parametrize("topic", [b"t", 5, None, "", "x" * 2_000, "\ud800"])
async def test_a_topic_that_is_none_is_refused(topic: object) -> None:
    async with PubSub.open(STACK, listen=()) as node:
        with pytest.raises(UsageError):
            await node.publish(topic, b"x")  # type: ignore[arg-type]
        with pytest.raises(UsageError):
            async with node.subscribe(topic):  # type: ignore[arg-type]
                pass


async def test_data_that_is_no_bytes_and_one_address_for_several_are_refused() -> None:
    for options in ({"bootstrap": "/ip4/127.0.0.1/tcp/1"}, {"listen": "/ip4/127.0.0.1/tcp/0"}):
        with pytest.raises(UsageError, match="several"):
            async with PubSub.open(STACK, **options):  # type: ignore[arg-type]
                pass
    async with PubSub.open(STACK, listen=()) as node:
        for data in ("text", None, bytearray(b"x")):
            with pytest.raises(UsageError, match="bytes"):
                await node.publish("t", data)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="closed"):
        await node.publish("t", b"x")
    with pytest.raises(UsageError, match="closed"):
        async with node.subscribe("t"):
            pass
    with pytest.raises(UsageError):
        PubSubConfig(size=0)


@pytest.mark.live
async def test_a_message_over_the_limit_is_not_taken_from_others(pair: tuple[PubSub, PubSub]) -> None:
    a, b = pair
    async with a.subscribe("t") as messages:
        b.router.publish(b.router.compose("t", bytes(100_000)))
        await b.publish("t", b"small")
        assert (await anext(messages)).data == b"small"


@pytest.mark.live
async def test_a_busy_topic_loses_nothing_to_a_subscriber_that_keeps_up(pair: tuple[PubSub, PubSub]) -> None:
    a, b = pair
    heard = 0
    async with a.subscribe("t", when_full="wait") as messages, trio.open_nursery() as nursery:

        async def publish() -> None:
            for _ in range(5_000):
                await b.publish("t", b"x")

        nursery.start_soon(publish)
        async for _ in messages:
            heard += 1
            if heard == 5_000:
                break
    assert a.stats()["refused"] == 0


@pytest.mark.live
async def test_cancelling_a_publish_or_a_subscription_leaves_the_node_whole(pair: tuple[PubSub, PubSub]) -> None:
    a, b = pair
    with trio.move_on_after(0):
        async with a.subscribe("t"):
            await trio.sleep_forever()
    with trio.move_on_after(0):
        await b.publish("t", b"never")
    assert "t" not in a.router.interests
    async with a.subscribe("t") as messages:
        await b.publish("t", b"now")
        assert (await anext(messages)).data == b"now"


# FIFO.


def fifo() -> tuple[Fifo, FakeEnv, Judge]:
    app = Judge()
    router = Flood(FakeEnv(me=0), Given(FakeEnv(me=0)), app)
    env = FakeEnv(me=0)
    order = Fifo(env, router, app)
    order.open("t")
    return order, env, app


def numbered(sequence: int, source: int = 9, topic: str = "t") -> Publication:
    return Publication(MessageId(source, 1, sequence), topic, b"%d" % sequence, OrderHeader(1, sequence))


def test_what_comes_out_of_order_is_held_until_its_turn() -> None:
    order, _, app = fifo()
    for sequence in (1, 3, 4, 2, 5):
        order.deliver(numbered(sequence))
    assert [publication.data for publication in app.delivered] == [b"1", b"2", b"3", b"4", b"5"]


def test_a_hole_is_given_up_after_the_patience_and_what_comes_late_is_not_delivered() -> None:
    order, env, app = fifo()
    order.deliver(numbered(1))
    order.deliver(numbered(3))
    env.advance(5 * SECOND - 1)
    assert (len(app.delivered), order.held) == (1, 1)
    env.advance(1)
    assert [publication.data for publication in app.delivered] == [b"1", b"3"] and order.held == 0
    order.deliver(numbered(2))
    assert (len(app.delivered), order.late) == (2, 1)


def test_who_joins_late_begins_with_the_lowest_that_came() -> None:
    order, env, app = fifo()
    for sequence in (8, 7, 9):
        order.deliver(numbered(sequence))
    assert app.delivered == []
    env.advance(5 * SECOND)
    assert [publication.data for publication in app.delivered] == [b"7", b"8", b"9"]
    order.deliver(numbered(10))
    assert len(app.delivered) == 4


def test_sources_do_not_wait_for_each_other_and_other_topics_pass() -> None:
    order, _, app = fifo()
    order.deliver(numbered(2, source=1))
    order.deliver(numbered(1, source=2))
    order.deliver(numbered(5, topic="plain"))
    assert [publication.id.source for publication in app.delivered] == [2, 9]


def test_each_hole_that_has_lasted_is_given_up_at_once() -> None:
    order, env, app = fifo()
    for sequence in (1, 3, 5, 7):
        order.deliver(numbered(sequence))
    env.advance(5 * SECOND)
    assert [publication.data for publication in app.delivered] == [b"1", b"3", b"5", b"7"]


def test_a_forgotten_source_keeps_no_timer_and_its_messages_come_out_in_order() -> None:
    order, env, app = fifo()
    for sequence in (1, 4, 3):
        order.deliver(numbered(sequence, source=-1))
    for source in range(10, STREAMS + 10):
        order.deliver(numbered(2, source=source))
    assert [publication.data for publication in app.delivered] == [b"1", b"3", b"4"]
    assert env.clock.waiting == len(order.streams) == STREAMS


def test_closing_the_topic_ends_the_order() -> None:
    order, _, app = fifo()
    order.open("t")
    order.deliver(numbered(3))
    order.close("t")
    assert app.delivered == []
    order.close("t")
    assert [publication.data for publication in app.delivered] == [b"3"]
    order.deliver(numbered(9))
    assert len(app.delivered) == 2 and order._header("t") is None


def test_what_is_held_is_bounded() -> None:
    order, _, app = fifo()
    order.deliver(numbered(1))
    for sequence in range(3, FifoConfig().held + 4):
        order.deliver(numbered(sequence))
    assert len(app.delivered) == FifoConfig().held + 2


@pytest.mark.live
async def test_fifo_over_a_real_network(pair: tuple[PubSub, PubSub]) -> None:
    a, b = pair
    async with a.subscribe("t", order="fifo") as messages, b.subscribe("t", order="fifo"):
        for number in range(20):
            await b.publish("t", b"%d" % number)
        heard = [await anext(messages) for _ in range(20)]
    assert [message.data for message in heard] == [b"%d" % number for number in range(20)]
    assert [message.publication.order.sequence for message in heard if message.publication.order] == [*range(1, 21)]
