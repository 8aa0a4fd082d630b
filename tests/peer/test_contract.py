"""The contract of `libweft.peer.machine`, held against every world that can run a machine: each test is the same in all of them.

Worlds differ in how long a dial, a message or the news of a crash takes, so the tests look only after ample time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

import pytest
import trio
from pytest_trio import trio_fixture  # type: ignore[import-untyped]
from trio.testing import MockClock

from libweft.peer.fake.wire import FakeWire
from libweft.peer.machine import MS, SECOND, Build, Env, Link, Machine, Peer
from libweft.peer.sim.latency import Constant
from libweft.peer.sim.simulator import Simulator
from libweft.pubsub.router import Router
from tests.peer.live_world import JUMP_S, LiveWorld
from tests.peer.small_machines import Answer, Flood, Keeper, LateApp, Note, Oracle, Question, Refusal, keepers, late_flood, oracle

AMPLE = 20 * SECOND
NOBODY = 77


class World(Protocol):
    """Nodes are added in the order of their numbers; `add` gives the peer, which `peer` knows beforehand."""

    def peer(self, number: int) -> Any: ...
    def add(self, build: Build) -> Any: ...
    def machines(self, peer: Any) -> Sequence[Machine]: ...
    def crash(self, peer: Any) -> None: ...
    async def run(self, us: int) -> None: ...


class Faked:
    def __init__(self, codec: bool) -> None:
        self.wire = FakeWire(codec=codec)
        self.add, self.crash = self.wire.add, self.wire.crash

    def peer(self, number: int) -> int:
        return number

    def machines(self, node: int) -> Sequence[Machine]:
        return self.wire.nodes[node].machines

    async def run(self, us: int) -> None:
        self.wire.run(us)


class Simulated:
    def __init__(self, codec: bool) -> None:
        self.sim = Simulator(seed=1, latency=Constant(ms=5.0), codec=codec)
        self.add, self.crash = self.sim.add, self.sim.crash

    def peer(self, number: int) -> int:
        return number

    def machines(self, node: int) -> Sequence[Machine]:
        return self.sim.nodes[node].machines

    async def run(self, us: int) -> None:
        self.sim.run(self.sim.now + us)


@trio_fixture
async def world(request: pytest.FixtureRequest, autojump_clock: MockClock) -> AsyncIterator[World]:
    if request.param != "live":
        codec = request.param.endswith("+codec")
        yield Faked(codec) if request.param.startswith("fake") else Simulated(codec)
        return
    async with trio.open_nursery() as nursery:
        autojump_clock.autojump_threshold = JUMP_S
        live = LiveWorld(nursery)
        yield live
        live.close()
        nursery.cancel_scope.cancel()


LIVE = pytest.param("live", marks=pytest.mark.live)

pytestmark = pytest.mark.parametrize("world", ["fake", "fake+codec", LIVE, "sim", "sim+codec"], indirect=True)


def keeper(world: World, node: Any, place: int = 0) -> Keeper:
    machine = world.machines(node)[place]
    assert isinstance(machine, Keeper)
    return machine


def oracle_of(world: World, node: Any) -> Oracle:
    machine = world.machines(node)[0]
    assert isinstance(machine, Oracle)
    return machine


def flood(world: World, number: int) -> tuple[Flood, LateApp]:
    machine = world.machines(world.peer(number))[1]
    assert isinstance(machine, Flood) and isinstance(machine.app, LateApp)
    return machine, machine.app


def hold(keeper: Keeper, peer: Peer) -> None:
    keeper.held[peer] = None
    keeper.env.connect(peer)


# Links and holds.


async def test_connect_brings_the_link_up_at_both_ends(world: World, autojump_clock: MockClock) -> None:
    a, b = world.add(keepers({"candidates": (world.peer(1),)})), world.add(keepers({}))
    await world.run(AMPLE)
    here, there = keeper(world, a).up[b], keeper(world, b).up[a]
    assert (here.outbound, there.outbound) == (True, False)
    assert here.incarnation > 0 and there.incarnation > 0
    assert here.protocol == there.protocol == "/test/keeper/0"


async def test_connecting_to_nobody_ends_in_link_down_0_and_the_next_candidate_is_tried(
    world: World, autojump_clock: MockClock
) -> None:
    a = world.add(keepers({"candidates": (world.peer(NOBODY), world.peer(1))}))
    b = world.add(keepers({}))
    await world.run(AMPLE)
    assert keeper(world, a).downs == [(world.peer(NOBODY), 0)]
    assert list(keeper(world, a).held) == list(keeper(world, a).up) == [b]


async def test_connecting_to_a_peer_without_the_protocol_ends_in_link_down_0(world: World, autojump_clock: MockClock) -> None:
    a, b = world.add(keepers({}, {"candidates": (world.peer(1),)})), world.add(keepers({}))
    await world.run(AMPLE)
    assert keeper(world, a, 1).downs == [(b, 0)]
    assert keeper(world, a, 1).up == {}


async def test_a_release_closes_the_link_after_what_was_sent(world: World, autojump_clock: MockClock) -> None:
    a, b = world.add(keepers({"candidates": (world.peer(1),), "every": 8 * SECOND})), world.add(keepers({}))
    await world.run(AMPLE // 2)
    assert [text for _, text in keeper(world, b).notes] == ["hello", "bye"]
    assert keeper(world, a).up == keeper(world, b).up == {}
    assert len(keeper(world, a).downs) == len(keeper(world, b).downs) == 1


async def test_a_link_that_another_machine_of_the_node_holds_stays_up(world: World, autojump_clock: MockClock) -> None:
    swapper, holder = {"candidates": (world.peer(1), world.peer(2)), "every": 3 * SECOND}, {"candidates": (world.peer(1),)}
    a = world.add(keepers(swapper, holder))
    b, c = world.add(keepers({}, {})), world.add(keepers({}, {}))
    await world.run(11 * SECOND)
    assert keeper(world, b, 0).notes.count((a, "bye")) == 2
    assert b in keeper(world, a, 1).up and [peer for peer, _ in keeper(world, a, 1).downs] == [c]
    assert keeper(world, b, 1).downs == []


async def test_a_machine_without_a_hold_cannot_cut_the_link(world: World, autojump_clock: MockClock) -> None:
    a, b = world.add(keepers({}, {"candidates": (world.peer(1),)})), world.add(keepers({}, {}))
    await world.run(AMPLE)
    keeper(world, a, 0).env.disconnect(b)
    keeper(world, b, 0).env.disconnect(a)
    await world.run(AMPLE)
    assert b in keeper(world, a, 1).up and a in keeper(world, b, 1).up


async def test_the_link_closes_with_the_last_hold(world: World, autojump_clock: MockClock) -> None:
    a, b = world.add(keepers({"candidates": (world.peer(1),)}, {"candidates": (world.peer(1),)})), world.add(keepers({}, {}))
    await world.run(AMPLE)
    keeper(world, a, 0).env.disconnect(b)
    await world.run(AMPLE)
    assert b in keeper(world, a, 0).up
    keeper(world, a, 1).env.disconnect(b)
    await world.run(AMPLE)
    assert keeper(world, a, 0).up == keeper(world, b, 1).up == {}


async def test_a_later_link_has_a_higher_incarnation_and_its_fall_names_it(world: World, autojump_clock: MockClock) -> None:
    a, b = world.add(keepers({})), world.add(keepers({}))
    one, seen = keeper(world, a), []
    for _ in range(2):
        hold(one, b)
        await world.run(AMPLE)
        seen.append(one.up[b].incarnation)
        one.env.disconnect(b)
        await world.run(AMPLE)
    assert seen[0] < seen[1]
    assert one.downs == [(b, seen[0]), (b, seen[1])]
    falls = keeper(world, b).downs
    assert [peer for peer, _ in falls] == [a, a] and falls[0][1] < falls[1][1]


async def test_a_connect_right_after_the_last_release_makes_a_new_link(world: World, autojump_clock: MockClock) -> None:
    a, b = world.add(keepers({"candidates": (world.peer(1),)})), world.add(keepers({}))
    await world.run(AMPLE)
    one = keeper(world, a)
    first = one.up[b].incarnation
    del one.held[b]
    one.env.disconnect(b)
    one.env.connect(b)
    await world.run(AMPLE)
    assert one.downs == [(b, first)]
    assert one.up[b].incarnation > first and a in keeper(world, b).up


async def test_two_nodes_that_dial_each_other_at_once_get_one_link(world: World, autojump_clock: MockClock) -> None:
    a, b = world.add(keepers({"candidates": (world.peer(1),)})), world.add(keepers({"candidates": (world.peer(0),)}))
    await world.run(AMPLE)
    assert keeper(world, a).up[b].outbound != keeper(world, b).up[a].outbound
    assert keeper(world, a).downs == keeper(world, b).downs == []


async def test_a_crash_takes_the_links_down_at_the_other_ends(world: World, autojump_clock: MockClock) -> None:
    a = world.add(keepers({"candidates": (world.peer(1), world.peer(2))}))
    b, c = world.add(keepers({})), world.add(keepers({}))
    await world.run(AMPLE)
    incarnation = keeper(world, a).up[b].incarnation
    world.crash(b)
    await world.run(AMPLE)
    assert keeper(world, a).downs == [(b, incarnation)]
    assert list(keeper(world, a).up) == [c]


async def test_a_machine_is_told_of_links_that_it_only_watches(world: World, autojump_clock: MockClock) -> None:
    class Watcher(Machine):
        watches = ("/test/keeper/0",)

        def __init__(self, env: Env) -> None:
            super().__init__(env)
            self.ups: list[tuple[Peer, str]] = []

        def link_up(self, peer: Peer, link: Link) -> None:
            self.ups.append((peer, link.protocol))

    def watched(env: Callable[[], Env]) -> list[Machine]:
        return [Watcher(env()), *keepers({})(env)]

    a, b = world.add(watched), world.add(keepers({"candidates": (world.peer(0),)}))
    await world.run(AMPLE)
    watcher = world.machines(a)[0]
    assert isinstance(watcher, Watcher)
    assert watcher.ups == [(b, "/test/keeper/0")]


# Messages.


async def test_sending_without_a_link_dials(world: World, autojump_clock: MockClock) -> None:
    a, b = world.add(keepers({})), world.add(keepers({}))
    keeper(world, a).env.send(b, Note("news"))
    assert keeper(world, b).notes == []
    await world.run(AMPLE)
    assert keeper(world, b).notes == [(a, "news")]


async def test_messages_arrive_in_the_order_of_their_sending_those_that_waited_for_the_dial_too(
    world: World, autojump_clock: MockClock
) -> None:
    a, b = world.add(keepers({})), world.add(keepers({}))
    one = keeper(world, a)
    for text in "123":
        one.env.send(b, Note(text))
    hold(one, b)
    await world.run(AMPLE)
    for text in "45":
        one.env.send(b, Note(text))
    await world.run(AMPLE)
    assert [text for _, text in keeper(world, b).notes] == ["1", "2", "3", "hello", "4", "5"]


async def test_a_message_to_nobody_is_dropped_and_told(world: World, autojump_clock: MockClock) -> None:
    a = world.add(keepers({}))
    keeper(world, a).env.send(world.peer(NOBODY), Note("lost"))
    assert keeper(world, a).lost == []
    await world.run(AMPLE)
    assert keeper(world, a).lost == [(world.peer(NOBODY), Note("lost"))]


async def test_one_send_to_many_reaches_each_but_the_one_left_out(world: World, autojump_clock: MockClock) -> None:
    a, others = world.add(keepers({})), [world.add(keepers({})) for _ in range(3)]
    keeper(world, a).env.send_all(tuple(others), Note("all"), others[1])
    await world.run(AMPLE)
    assert [keeper(world, other).notes for other in others] == [[(a, "all")], [], [(a, "all")]]


async def test_machines_of_other_protocols_hear_nothing(world: World, autojump_clock: MockClock) -> None:
    a, b = world.add(keepers({}, {})), world.add(keepers({}, {}))
    keeper(world, a, 1).env.send(b, Note("for the second"))
    await world.run(AMPLE)
    assert (keeper(world, b, 0).notes, keeper(world, b, 1).notes) == ([], [(a, "for the second")])


async def test_a_peer_error_costs_one_link_and_nothing_else(world: World, autojump_clock: MockClock) -> None:
    a = world.add(keepers({"candidates": (world.peer(1), world.peer(2)), "k": 2}))
    b, c = world.add(keepers({})), world.add(keepers({}))
    await world.run(AMPLE)
    keeper(world, b).env.send(a, Note("poison"))
    await world.run(AMPLE)
    assert [peer for peer, _ in keeper(world, a).downs] == [b]
    assert [peer for peer, _ in keeper(world, b).downs] == [a]
    keeper(world, c).env.send(a, Note("still here?"))
    await world.run(AMPLE)
    assert keeper(world, a).notes == [(c, "still here?")]


# Timers.


async def test_timers_fire_in_order_of_time_and_then_of_their_setting(world: World, autojump_clock: MockClock) -> None:
    env, fired = world.machines(world.add(keepers({})))[0].env, list[tuple[str, int]]()
    begun = env.now()

    def fire(name: str) -> None:
        fired.append((name, env.now() - begun))

    def fire_at_once() -> None:
        env.after(0, fire, "at once")

    env.after(2 * MS, fire, "late")
    env.after(MS, fire, "first")
    env.after(MS, fire, "second")
    env.after(MS, fire, "never").cancel()
    env.after(MS, fire_at_once)
    await world.run(SECOND)
    assert fired == [("first", MS), ("second", MS), ("at once", MS), ("late", 2 * MS)]


# Requests.


@pytest.mark.parametrize(("number", "answer"), [(4, Answer(8)), (3, Answer(6)), (-1, Refusal("negative"))])
async def test_a_request_is_answered_at_once_or_late(world: World, autojump_clock: MockClock, number: int, answer: Any) -> None:
    a, b = world.add(oracle), world.add(oracle)
    asker = oracle_of(world, a)
    asker.ask(b, number, timeout=10 * SECOND)
    assert asker.heard == []
    await world.run(AMPLE)
    assert (asker.heard, asker.failed) == ([(b, answer)], [])


@pytest.mark.parametrize("number", [0, 3])
async def test_a_request_without_a_reply_in_time_fails_once_and_a_later_reply_is_not_heard(
    world: World, autojump_clock: MockClock, number: int
) -> None:
    a, b = world.add(oracle), world.add(oracle)
    asker = oracle_of(world, a)
    asker.ask(b, number, timeout=Oracle.LATE // 2)
    await world.run(AMPLE)
    assert (asker.heard, len(asker.failed)) == ([], 1)


async def test_each_reply_finds_its_own_request(world: World, autojump_clock: MockClock) -> None:
    a, b = world.add(oracle), world.add(oracle)
    env, found = oracle_of(world, a).env, dict[int, Any]()

    def ask(number: int) -> None:
        env.request(b, Question(number), 10 * SECOND, lambda _, reply: found.update({number: reply}), lambda _, reason: None)

    for number in (3, 4, 5, 6):
        ask(number)
    await world.run(AMPLE)
    assert found == {3: Answer(6), 4: Answer(8), 5: Answer(10), 6: Answer(12)}


async def test_a_request_to_nobody_fails_once(world: World, autojump_clock: MockClock) -> None:
    a = world.add(oracle)
    oracle_of(world, a).ask(world.peer(NOBODY), 4)
    await world.run(AMPLE)
    assert (oracle_of(world, a).heard, len(oracle_of(world, a).failed)) == ([], 1)


async def test_a_request_fails_with_the_link(world: World, autojump_clock: MockClock) -> None:
    a, b = world.add(oracle), world.add(oracle)
    oracle_of(world, a).ask(b, 0, timeout=1_000 * SECOND)
    await world.run(SECOND)
    world.crash(b)
    await world.run(AMPLE)
    assert [peer for peer, _ in oracle_of(world, a).failed] == [b]


async def test_a_request_that_is_refused_fails_at_once_and_costs_no_link(world: World, autojump_clock: MockClock) -> None:
    a, b = world.add(oracle), world.add(oracle)
    asker = oracle_of(world, a)
    for number in (4, 999, 6):
        asker.ask(b, number, timeout=1_000 * SECOND)
    await world.run(AMPLE)
    assert [peer for peer, _ in asker.failed] == [b] and "timeout" not in asker.failed[0][1]
    assert sorted(asker.heard, key=str) == [(b, Answer(12)), (b, Answer(8))]
    assert asker.downs == [] == oracle_of(world, b).downs


async def test_a_request_that_breaks_the_protocol_costs_the_link_and_fails(world: World, autojump_clock: MockClock) -> None:
    a, b = world.add(oracle), world.add(oracle)
    oracle_of(world, a).ask(b, 1_001, timeout=1_000 * SECOND)
    await world.run(AMPLE)
    assert [peer for peer, _ in oracle_of(world, a).failed] == [b]


# A router that validates late.


async def line(world: World, count: int, delay: int = SECOND) -> None:
    """Nodes in a row, each linked to the one before it, all joined."""
    for node in range(count):
        world.add(late_flood([world.peer(node - 1)] if node else [], delay))
    await world.run(AMPLE)
    for node in range(count):
        flood(world, node)[0].join("news")


async def test_a_message_is_forwarded_and_delivered_only_after_it_was_accepted(world: World, autojump_clock: MockClock) -> None:
    late = 10 * SECOND  # much more than a message needs on its way
    await line(world, 3, late)
    router, own = flood(world, 0)
    begun = router.env.now()
    router.publish(router.compose("news", b"good"))
    assert own.delivered == [(begun, b"good")]
    await world.run(late + late // 2)
    assert [flood(world, node)[1].asked for node in (1, 2)] == [[b"good"], [b"good"]]
    assert [len(flood(world, node)[1].delivered) for node in (1, 2)] == [1, 0]
    await world.run(AMPLE)
    times = [flood(world, node)[1].delivered[0][0] - begun for node in (0, 1, 2)]
    assert times[0] == 0 and late <= times[1] < 2 * late <= times[2] < 3 * late
    assert [len(flood(world, node)[1].delivered) for node in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("data", [b"bad", b"dull"])
async def test_a_message_that_is_rejected_or_ignored_goes_no_further(
    world: World, autojump_clock: MockClock, data: bytes
) -> None:
    await line(world, 3)
    router, _ = flood(world, 0)
    router.publish(router.compose("news", data))
    await world.run(AMPLE)
    assert [flood(world, node)[1].asked for node in (1, 2)] == [[data], []]
    assert flood(world, 1)[1].delivered == []
    assert flood(world, 1)[0].pending == 0


async def test_each_message_is_delivered_once_on_a_ring_the_publishers_own_too(world: World, autojump_clock: MockClock) -> None:
    for node in range(4):
        world.add(late_flood([world.peer(node - 1 if node else 3)]))
    await world.run(AMPLE)
    for node in range(4):
        flood(world, node)[0].join("news")
    router, _ = flood(world, 0)
    for data in (b"one", b"two"):
        router.publish(router.compose("news", data))
    await world.run(AMPLE)
    assert [[data for _, data in flood(world, node)[1].delivered] for node in range(4)] == [[b"one", b"two"]] * 4


async def test_what_waits_for_validation_is_bounded(
    world: World, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Router, "pending_topic", 2)
    await line(world, 2)
    router, _ = flood(world, 0)
    for number in range(5):
        router.publish(router.compose("news", b"%d" % number))
    await world.run(AMPLE)
    assert flood(world, 1)[1].asked == [b"0", b"1"]
    router.publish(router.compose("news", b"later"))
    await world.run(AMPLE)
    assert [data for _, data in flood(world, 1)[1].delivered] == [b"0", b"1", b"later"]


async def test_joining_is_told_and_one_that_has_not_joined_forwards_without_delivering(
    world: World, autojump_clock: MockClock
) -> None:
    await line(world, 3)
    middle, app = flood(world, 1)
    assert app.interests == ["news"]
    middle.leave("news")
    router, _ = flood(world, 0)
    router.publish(router.compose("news", b"good"))
    await world.run(AMPLE)
    assert [len(flood(world, node)[1].delivered) for node in range(3)] == [1, 0, 1]
