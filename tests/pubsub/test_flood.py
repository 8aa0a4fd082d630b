"""Flood by hand on a FakeEnv, then whole networks of it: the same deliveries on a fake wire, on trio and in the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Protocol

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from trio.testing import MockClock

from libweft.overlays.overlay import Overlay
from libweft.peer.dispatch import receive
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.fake.env import FakeEnv, Traced
from libweft.peer.fake.wire import FakeWire
from libweft.peer.machine import SECOND, Build, Machine, Message, MessageId, Peer
from libweft.peer.sim.latency import Uniform
from libweft.peer.sim.simulator import Simulator
from libweft.peer.trace.kinds import DELIVER, DUPLICATE, JOIN, JOINED, LEAVE, PUBLISH, RECEIVE, REJECT
from libweft.pubsub import stacks
from libweft.pubsub.flood import PROTOCOL, Flood
from libweft.pubsub.interests import Attributes, Filter, Interest
from libweft.pubsub.message import OrderHeader, Publication, Verdict
from libweft.pubsub.router import Router
from libweft.pubsub.seen import TTL
from libweft.pubsub.signing import Signing
from tests.peer.live_world import JUMP_S, LiveWorld, identity

AMPLE = 20 * SECOND


class Judge:
    """An app that keeps what it gets, and holds every verdict back until the test speaks it."""

    def __init__(self, validates: bool = False) -> None:
        self.validates = validates
        self.cases: list[tuple[Peer, Publication, Callable[[Verdict], None]]] = []
        self.delivered: list[Publication] = []
        self.in_force: list[Interest] = []

    def validate(self, sender: Peer, publication: Publication, answer: Callable[[Verdict], None]) -> None:
        self.cases.append((sender, publication, answer))

    def deliver(self, publication: Publication) -> None:
        self.delivered.append(publication)

    def joined(self, interest: Interest) -> None:
        self.in_force.append(interest)


class Given(Overlay):
    """Neighbours by decree."""

    def set(self, *peers: Peer) -> None:
        for peer in [peer for peer in self.neighbors if peer not in peers]:
            self._down(peer, "decreed")
        for peer in peers:
            self._up(peer)


def flood(*interests: Interest, neighbors: Sequence[Peer] = (1, 2, 3), validates: bool = False) -> tuple[Flood, FakeEnv, Judge]:
    env, app = FakeEnv(me=0), Judge(validates)
    overlay = Given(FakeEnv(me=0))
    router = Flood(env, overlay, app)
    overlay.set(*neighbors)
    for interest in interests:
        router.join(interest)
    env.take_traced()
    return router, env, app


def message(sequence: int = 1, topic: str = "t", source: Peer = 9, attributes: Attributes = ()) -> Publication:
    return Publication(MessageId(source, 1, sequence), topic, b"data", None, attributes)


def kinds(rows: Sequence[Traced]) -> list[str]:
    return [row.kind for row in rows]


# Forwarding and delivery.


def test_the_first_copy_goes_to_all_neighbours_but_its_sender_and_is_delivered() -> None:
    router, env, app = flood("t")
    receive(router, 2, message())
    assert env.take() == [(1, message()), (3, message())]
    assert app.delivered == [message()]
    assert kinds(env.traced) == [RECEIVE, DELIVER]
    assert env.traced[0].peer == 2


@pytest.mark.parametrize("sender", [1, 2, 3])
def test_the_second_copy_is_only_traced(sender: Peer) -> None:
    router, env, app = flood("t")
    receive(router, 2, message())
    env.take(), env.take_traced()
    receive(router, sender, message())
    assert env.take() == []
    assert app.delivered == [message()]
    assert [(row.kind, row.topic, row.msg, row.peer) for row in env.traced] == [(DUPLICATE, "t", message().id, sender)]


def test_a_copy_from_somebody_who_is_no_neighbour_goes_to_all_neighbours() -> None:
    router, env, _ = flood("t")
    receive(router, 7, message())
    assert [peer for peer, _ in env.take()] == [1, 2, 3]


def test_messages_differ_by_their_id_alone() -> None:
    router, _, app = flood("t")
    for number in (1, 2, 1):
        receive(router, 1, message(number))
    assert app.delivered == [message(1), message(2)]


def test_a_message_goes_to_those_who_are_neighbours_now() -> None:
    router, env, _ = flood("t")
    overlay = router.overlay
    assert isinstance(overlay, Given)
    overlay.set(3, 4)
    receive(router, 3, message())
    assert [peer for peer, _ in env.take()] == [4]


def test_who_does_not_subscribe_forwards_and_does_not_deliver() -> None:
    router, env, app = flood("other")
    receive(router, 1, message())
    assert [peer for peer, _ in env.take()] == [2, 3]
    assert app.delivered == []
    assert kinds(env.traced) == [RECEIVE]


def test_an_id_is_new_again_long_after_it_was_forgotten() -> None:
    router, env, app = flood("t")
    receive(router, 1, message())
    env.advance(3 * TTL)
    receive(router, 1, message(2))
    receive(router, 1, message())
    assert len(app.delivered) == 3


def test_a_message_of_another_protocol_is_the_sender_s_fault() -> None:
    class Strange(Message, frozen=True, tag=7):
        pass

    router, _, _ = flood("t")
    with pytest.raises(PeerError):
        receive(router, 1, Strange())


def test_on_the_wire_it_is_floodsub() -> None:
    assert Flood.protocols == (PROTOCOL,) == ("/floodsub/1.0.0",)


# Publishing.


def test_a_publication_goes_to_every_neighbour() -> None:
    router, env, _ = flood()
    mine = router.compose("t", b"data")
    router.publish(mine)
    assert env.take() == [(1, mine), (2, mine), (3, mine)]


def test_a_publisher_that_subscribes_gets_its_own_message_once() -> None:
    router, env, app = flood("t")
    mine = router.compose("t", b"data")
    router.publish(mine)
    assert app.delivered == [mine]
    assert [(row.kind, row.hops) for row in env.take_traced()] == [(PUBLISH, 0), (DELIVER, 0)]
    env.take()
    receive(router, 1, mine)
    assert app.delivered == [mine]
    assert env.take() == []
    assert kinds(env.traced) == [DUPLICATE]


def test_a_publisher_that_does_not_subscribe_gets_none() -> None:
    router, env, app = flood("other")
    mine = router.compose("t", b"data")
    router.publish(mine)
    receive(router, 1, mine)
    assert app.delivered == []
    assert kinds(env.traced) == [PUBLISH, DUPLICATE]


def test_ids_count_up_within_an_epoch_and_hold_who_published() -> None:
    router, env, _ = flood()
    env.epoch = 5
    assert [router.compose(topic, b"").id for topic in "ab"] == [MessageId(0, 5, 1), MessageId(0, 5, 2)]


def test_a_publish_row_names_its_dependencies() -> None:
    router, env, _ = flood()
    router.publish(router.compose("t", b"", OrderHeader(1, 2, (message().id,))))
    assert env.traced[0].dependencies == (message().id,)


def test_a_message_of_one_s_own_is_not_validated() -> None:
    router, _, app = flood("t", validates=True)
    router.publish(router.compose("t", b"data"))
    assert app.cases == []
    assert len(app.delivered) == 1


# Validation.


def test_nothing_is_forwarded_or_delivered_before_the_verdict() -> None:
    router, env, app = flood("t", validates=True)
    receive(router, 2, message())
    assert env.take() == []
    assert app.delivered == []
    assert [(sender, publication) for sender, publication, _ in app.cases] == [(2, message())]


def test_an_accepted_message_is_forwarded_and_delivered_however_late() -> None:
    router, env, app = flood("t", validates=True)
    receive(router, 2, message())
    env.advance(3 * TTL)
    app.cases[0][2](Verdict.ACCEPT)
    assert env.take() == [(1, message()), (3, message())]
    assert app.delivered == [message()]


@pytest.mark.parametrize("verdict", [Verdict.IGNORE, Verdict.REJECT])
def test_a_message_that_is_not_accepted_goes_nowhere(verdict: Verdict) -> None:
    router, env, app = flood("t", validates=True)
    receive(router, 2, message())
    env.take_traced()
    app.cases[0][2](verdict)
    assert env.take() == []
    assert app.delivered == []
    assert [(row.kind, row.peer, row.reason) for row in env.traced] == [(REJECT, 2, verdict.value)]


def test_a_second_copy_is_not_validated_again() -> None:
    router, env, app = flood("t", validates=True)
    receive(router, 2, message())
    receive(router, 3, message())
    assert len(app.cases) == 1
    app.cases[0][2](Verdict.REJECT)
    receive(router, 1, message())
    assert len(app.cases) == 1
    assert kinds(env.traced).count(DUPLICATE) == 2


def test_a_subscription_that_ended_before_the_verdict_gets_nothing() -> None:
    router, env, app = flood("t", validates=True)
    receive(router, 2, message())
    router.leave("t")
    app.cases[0][2](Verdict.ACCEPT)
    assert app.delivered == []
    assert len(env.take()) == 2


def test_what_waits_for_a_verdict_is_bounded_and_the_rest_is_rejected_for_that_reason() -> None:
    router, env, app = flood("t", validates=True)
    for number in range(Router.pending_topic + 3):
        receive(router, 1, message(number))
    assert len(app.cases) == Router.pending_topic
    turned_away = [(row.msg, row.reason) for row in env.traced if row.kind == REJECT]
    assert turned_away == [(message(Router.pending_topic + n).id, "validation queue full") for n in range(3)]


def test_all_that_waits_is_bounded_too_but_a_topic_where_nothing_waits_is_heard() -> None:
    router, _, app = flood("t", validates=True)
    for number in range(10 * Router.pending_limit):
        receive(router, 1, replace(message(number), topic=f"t{number % 100}"))
    assert len(app.cases) == router.pending == Router.pending_limit
    receive(router, 1, replace(message(99_999), topic="quiet"))
    assert len(app.cases) == Router.pending_limit + 1
    for _, _, answer in app.cases:
        answer(Verdict.REJECT)
    assert (router.pending, router.waiting) == (0, {})


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_makes_room_for_the_next_message(verdict: Verdict) -> None:
    router, _, app = flood("t", validates=True)
    for number in range(Router.pending_topic):
        receive(router, 1, message(number))
    app.cases[0][2](verdict)
    receive(router, 1, message(Router.pending_topic))
    assert len(app.cases) == Router.pending_topic + 1


def test_a_validator_that_answers_twice_is_told_so() -> None:
    router, env, app = flood("t", validates=True)
    receive(router, 2, message())
    app.cases[0][2](Verdict.ACCEPT)
    env.take()
    with pytest.raises(UsageError, match="twice"):
        app.cases[0][2](Verdict.ACCEPT)
    assert env.take() == []
    assert router.pending == 0
    assert app.delivered == [message()]


# Interests.


def test_join_ends_in_joined() -> None:
    router, env, app = flood()
    router.join("t")
    assert app.in_force == ["t"]
    assert [(row.kind, row.topic) for row in env.traced] == [(JOIN, "t"), (JOINED, "t")]


def test_joining_twice_is_joining_once() -> None:
    router, env, app = flood("t")
    router.join("t")
    assert app.in_force == ["t"]
    assert env.traced == []
    receive(router, 1, message())
    assert app.delivered == [message()]


def test_after_leave_nothing_is_delivered_and_all_is_forwarded() -> None:
    router, env, app = flood("t")
    router.leave("t")
    assert [(row.kind, row.topic) for row in env.take_traced()] == [(LEAVE, "t")]
    receive(router, 1, message())
    assert app.delivered == []
    assert [peer for peer, _ in env.take()] == [2, 3]
    router.leave("t")
    assert kinds(env.traced) == [RECEIVE]


def test_a_topic_that_is_joined_again_is_delivered_again() -> None:
    router, _, app = flood("t")
    router.leave("t")
    router.join("t")
    receive(router, 1, message())
    assert app.delivered == [message()]


CHEAP = Filter((("price", "<", 10),))
RED = Filter((("colour", "=", "red"),))


def test_a_content_filter_takes_what_it_matches_whatever_the_topic() -> None:
    router, env, app = flood(CHEAP)
    cheap, dear = message(1, attributes=(("price", 3),)), message(2, attributes=(("price", 30),))
    receive(router, 1, cheap)
    receive(router, 1, dear)
    receive(router, 1, message(3))
    assert app.delivered == [cheap]
    assert len(env.take()) == 6


def test_a_message_that_several_interests_take_is_delivered_once() -> None:
    router, _, app = flood("t", CHEAP, RED)
    both = message(attributes=(("price", 3), ("colour", "red")))
    receive(router, 1, both)
    assert app.delivered == [both]


def test_a_filter_that_was_left_takes_nothing_more() -> None:
    router, _, app = flood(CHEAP, RED)
    router.leave(CHEAP)
    receive(router, 1, message(1, attributes=(("price", 3),)))
    red = message(2, attributes=(("colour", "red"),))
    receive(router, 1, red)
    assert app.delivered == [red]


def test_a_publisher_whose_filter_matches_gets_its_own_message() -> None:
    router, _, app = flood(CHEAP)
    router.publish(router.compose("t", b"", attributes=(("price", 3),)))
    router.publish(router.compose("t", b"", attributes=(("price", 30),)))
    assert len(app.delivered) == 1


# Forgeries.


def test_a_forged_copy_does_not_keep_the_true_message_out() -> None:
    router, env, app = flood("t")
    router.signing = Signing(identity(0))
    true = Signing(identity(9)).sign(message(source=identity(9).peer))
    receive(router, 1, Publication(true.id, "t", b"lies", signature=true.signature))
    assert app.delivered == [] and env.take() == [] and kinds(env.take_traced()) == [RECEIVE, REJECT]
    receive(router, 2, true)
    assert app.delivered == [true]
    receive(router, 3, true)
    assert app.delivered == [true]


def test_a_forged_copy_that_is_too_large_does_not_keep_the_true_message_out_either() -> None:
    router, env, app = flood("t")
    router.signing, router.size = Signing(identity(0)), 100
    true = Signing(identity(9)).sign(message(source=identity(9).peer))
    receive(router, 1, Publication(true.id, "t", bytes(101), signature=true.signature))
    assert [row.reason for row in env.take_traced()] == [None, "too large"]
    receive(router, 2, true)
    assert app.delivered == [true]


def test_a_message_that_is_too_large_for_this_node_is_remembered_where_its_author_signed_it() -> None:
    router, env, app = flood("t")
    router.signing, router.size = Signing(identity(0)), 100
    large = Signing(identity(9)).sign(Publication(MessageId(identity(9).peer, 1, 1), "t", bytes(101)))
    receive(router, 1, large)
    receive(router, 2, large)
    assert app.delivered == [] and kinds(env.traced) == [RECEIVE, REJECT, DUPLICATE]


# The same stack in every world.


class Plan:
    """A network of flood nodes, who subscribes to what, and who publishes what; each publication has data of its own."""

    def __init__(self, nodes: int, seed: int) -> None:
        rng = Random(seed)
        self.stack = stacks.find("static/flood", {"graph": "er", "degree": min(3, nodes - 1)}, {})
        self.contacts = self.stack.introduce(nodes, rng)
        self.interests = [rng.sample("abc", rng.randrange(3)) for _ in range(nodes)]
        self.publications = [(rng.randrange(nodes), rng.choice("abc"), b"%d" % number) for number in range(6)]
        self.apps = [Judge() for _ in range(nodes)]

    def builds(self) -> list[Build]:
        return [self.stack.node(contacts, app) for contacts, app in zip(self.contacts, self.apps, strict=True)]

    def live_builds(self) -> list[Build]:
        """As on a real network: peers by their ids, subscriptions announced, every message signed."""
        stack = stacks.find("static/flood", {}, {}, live=True)
        return [
            stack.node([identity(peer).peer for peer in contacts], app, Signing(identity(node)))
            for node, (contacts, app) in enumerate(zip(self.contacts, self.apps, strict=True))
        ]

    def join(self, machines: Callable[[int], Sequence[Machine]]) -> None:
        for node, topics in enumerate(self.interests):
            for topic in topics:
                self.router(machines, node).join(topic)

    def publish(self, machines: Callable[[int], Sequence[Machine]], node: int, topic: str, data: bytes) -> None:
        router = self.router(machines, node)
        router.publish(router.compose(topic, data))

    def router(self, machines: Callable[[int], Sequence[Machine]], node: int) -> Router:
        router = machines(node)[-1]
        assert isinstance(router, Router)
        return router

    def delivered(self) -> list[tuple[int, str, bytes]]:
        """Sorted, and not a set, so that a second delivery shows."""
        return sorted((node, p.topic, p.data) for node, app in enumerate(self.apps) for p in app.delivered)

    def expected(self) -> list[tuple[int, str, bytes]]:
        hears = enumerate(self.interests)
        return sorted((node, t, data) for node, topics in hears for _, t, data in self.publications if t in topics)


class Runs(Protocol):
    def __call__(self, plan: Plan) -> list[tuple[int, str, bytes]]: ...


def on_a_fake_wire(plan: Plan, codec: bool) -> list[tuple[int, str, bytes]]:
    wire = FakeWire(codec=codec)
    for build in plan.builds():
        wire.add(build)
    wire.run(AMPLE)

    def machines(node: int) -> Sequence[Machine]:
        return wire.nodes[node].machines

    plan.join(machines)
    for publication in plan.publications:
        plan.publish(machines, *publication)
    wire.run(AMPLE)
    assert wire.errors == []
    return plan.delivered()


def in_the_simulator(plan: Plan, codec: bool, draw: str = "copy") -> list[tuple[int, str, bytes]]:
    sim = Simulator(3, Uniform(low=1.0, high=200.0, draw=draw), codec=codec)  # type: ignore[arg-type]
    for build in plan.builds():
        sim.add(build)
    sim.run(AMPLE)

    def machines(node: int) -> Sequence[Machine]:
        return sim.nodes[node].machines

    plan.join(machines)
    for publication in plan.publications:
        plan.publish(machines, *publication)
    sim.run(2 * AMPLE)
    return plan.delivered()


def live(plan: Plan) -> list[tuple[int, str, bytes]]:
    async def play() -> None:
        async with trio.open_nursery() as nursery:
            world = LiveWorld(nursery)
            for build in plan.live_builds():
                world.add(build)
            await trio.sleep(AMPLE / SECOND)

            def machines(node: int) -> Sequence[Machine]:
                return world.machines(world.peer(node))

            plan.join(machines)
            for publication in plan.publications:
                plan.publish(machines, *publication)
            await trio.sleep(AMPLE / SECOND)
            world.close()
            nursery.cancel_scope.cancel()

    trio.run(play, clock=MockClock(autojump_threshold=JUMP_S))
    return plan.delivered()


WORLDS: dict[str, Runs] = {
    "a fake wire": partial(on_a_fake_wire, codec=False),
    "a fake wire with the codec": partial(on_a_fake_wire, codec=True),
    "the simulator": partial(in_the_simulator, codec=False),
    "the simulator with a draw a send": partial(in_the_simulator, codec=False, draw="send"),
    "the simulator with the codec": partial(in_the_simulator, codec=True),
    "loopback": live,
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.live if name == "loopback" else ()) for name in WORLDS])
@given(nodes=st.integers(2, 12), seed=st.integers(0, 1_000))
@settings(max_examples=10, deadline=None)
def test_every_world_makes_the_same_deliveries(name: str, nodes: int, seed: int) -> None:
    assert WORLDS[name](Plan(nodes, seed)) == Plan(nodes, seed).expected()
