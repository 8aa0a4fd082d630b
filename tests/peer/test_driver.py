"""What a driver adds to the contract: bounds, back-pressure, crashes, state over a restart, and traces."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import ClassVar

import pytest
import trio
from pytest_trio import trio_fixture  # type: ignore[import-untyped]
from trio.testing import MockClock

from libweft.peer.errors import UsageError
from libweft.peer.libp2p.frame import uvarint
from libweft.peer.libp2p.ids import Identity, peer_text
from libweft.peer.live.driver import Driver, MachineError, run_stack
from libweft.peer.live.host import open_host
from libweft.peer.live.outbox import LIMIT
from libweft.peer.live.store import FileStore
from libweft.peer.machine import SECOND, Env, Lane, Link, Machine, Message, Peer, Reply, answers, upon
from libweft.peer.trace.kinds import LINK_DOWN, LINK_UP, NODE_DOWN, NODE_UP, ROLE, SEND
from libweft.peer.trace.tracer import Tracer
from tests.peer.live_world import JUMP_S, LiveWorld
from tests.waiting import until

HERE = ["/ip4/127.0.0.1/tcp/0"]
DEADLINE_S = 60
AMPLE = 10 * SECOND


class Rumour(Message, frozen=True, tag=1):
    lane: ClassVar[Lane] = Lane.LAZY

    text: bytes


class Order(Message, frozen=True, tag=2):
    text: bytes


class Urgent(Message, frozen=True, tag=3):
    lane: ClassVar[Lane] = Lane.URGENT

    text: bytes


class Talker(Machine):
    """Keeps what it hears; `break` breaks it."""

    protocols = ("/test/talker",)

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.heard: list[bytes] = []
        self.lost: list[Message] = []
        self.up: dict[Peer, Link] = {}
        self.downs: list[str] = []
        self.drains = 0

    def link_up(self, peer: Peer, link: Link) -> None:
        self.up[peer] = link

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        self.up.pop(peer, None)
        self.downs.append(reason)

    def drained(self, peer: Peer) -> None:
        self.drains += 1

    def dropped(self, peer: Peer, msg: Message) -> None:
        self.lost.append(msg)

    @upon(Rumour)
    def _rumour(self, sender: Peer, msg: Rumour) -> None:
        self.heard.append(msg.text)

    @upon(Order)
    def _order(self, sender: Peer, msg: Order) -> None:
        if msg.text == b"break":
            raise ZeroDivisionError
        self.heard.append(msg.text)

    @upon(Urgent)
    def _urgent(self, sender: Peer, msg: Urgent) -> None:
        self.heard.append(msg.text)


def talker(env: Callable[[], Env]) -> list[Machine]:
    return [Talker(env())]


@trio_fixture
async def world(autojump_clock: MockClock) -> AsyncIterator[LiveWorld]:
    autojump_clock.autojump_threshold = JUMP_S
    async with trio.open_nursery() as nursery:
        world = LiveWorld(nursery)
        yield world
        world.close()
        nursery.cancel_scope.cancel()


def pair(world: LiveWorld) -> tuple[Talker, Talker]:
    machines = [world.machines(world.add(talker))[0] for _ in range(2)]
    one, two = machines
    assert isinstance(one, Talker) and isinstance(two, Talker)
    return one, two


# Bounds.


@pytest.mark.live
async def test_what_waits_for_a_dial_is_bounded_and_the_rest_is_told(world: LiveWorld, autojump_clock: MockClock) -> None:
    one, two = pair(world)
    big = bytes(LIMIT // 4)
    for _ in range(6):
        one.env.send(world.peer(1), Order(big))
    await world.run(AMPLE)
    assert len(two.heard) == 3 and len(one.lost) == 3


@pytest.mark.live
async def test_a_slow_link_drops_lazy_messages_and_is_given_up_for_others(world: LiveWorld, autojump_clock: MockClock) -> None:
    one, two = pair(world)
    one.env.connect(world.peer(1))
    await world.run(AMPLE)
    (link,) = world.drivers[world.peer(0)].host.links.values()
    link.source = None  # nothing leaves any more
    big = bytes(LIMIT // 4)
    for _ in range(6):
        one.env.send(world.peer(1), Rumour(big))
    assert 0 < one.env.backlog(world.peer(1)) <= LIMIT
    await world.run(AMPLE)
    assert len(one.lost) == 3 and one.up
    one.env.send(world.peer(1), Order(big))
    await world.run(AMPLE)
    assert one.downs == ["the outbox is full: the peer is too slow"]
    assert not two.up


@pytest.mark.live
async def test_once_a_backlog_is_gone_that_is_told(world: LiveWorld, autojump_clock: MockClock) -> None:
    one, two = pair(world)
    one.env.connect(world.peer(1))
    await world.run(AMPLE)
    for _ in range(3):
        one.env.send(world.peer(1), Order(bytes(LIMIT // 4)))
    assert one.env.backlog(world.peer(1)) > 3 * LIMIT // 4
    await world.run(AMPLE)
    assert (one.env.backlog(world.peer(1)), one.drains, len(two.heard)) == (0, 1, 3)


@pytest.mark.live
async def test_what_is_urgent_overtakes_what_waits(world: LiveWorld, autojump_clock: MockClock) -> None:
    one, two = pair(world)
    one.env.connect(world.peer(1))
    await world.run(AMPLE)
    for number in range(8):
        one.env.send(world.peer(1), Rumour(b"%d" % number + bytes(100_000)))
    one.env.send(world.peer(1), Urgent(b"now"))
    await world.run(AMPLE)
    assert len(two.heard) == 9 and two.heard[0] == b"now"


@pytest.mark.live
async def test_a_million_bytes_pass_and_more_are_refused_at_the_call(world: LiveWorld, autojump_clock: MockClock) -> None:
    one, two = pair(world)
    one.env.send(world.peer(1), Order(bytes(1_000_000)))
    await world.run(AMPLE)
    assert two.heard == [bytes(1_000_000)]
    with pytest.raises(UsageError, match="over the frame limit"):
        one.env.send(world.peer(1), Order(bytes(2_000_000)))


# Crashes.


@pytest.mark.live
async def test_a_crash_of_a_machine_stops_its_stack_loudly_and_names_the_error() -> None:
    with trio.fail_after(DEADLINE_S):
        async with open_host(Identity.new(), listen=HERE) as a, open_host(Identity.new()) as b, run_stack(b, talker) as sender:
            with pytest.raises(MachineError, match="ZeroDivisionError"):
                async with run_stack(a, talker) as broken:
                    b.learn(a.peer, a.addresses)
                    sender.envs[0].send(a.peer, Order(b"break"))
                    await trio.sleep_forever()
            assert isinstance(broken.crash, ZeroDivisionError)
            assert await b.ping(a.peer) > 0


# State and epochs.


@pytest.mark.live
async def test_what_a_machine_stores_is_there_after_a_restart_and_its_epoch_is_a_later_one(tmp_path: Path) -> None:
    epochs = []
    for turn in range(3):
        async with open_host(Identity.new()) as host, run_stack(host, talker, folder=tmp_path / "state") as driver:
            env = driver.envs[0]
            assert env.store.get("turn", b"") == (b"%d" % (turn - 1) if turn else b"")
            env.store["turn"] = b"%d" % turn
            epochs.append(env.epoch)
    assert epochs == sorted(set(epochs))


def test_a_damaged_store_is_told_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"\xc1nonsense")
    with pytest.raises(UsageError, match="move it away"):
        FileStore(tmp_path / "state")
    assert (tmp_path / "state").read_bytes() == b"\xc1nonsense"


def test_a_store_is_bounded_and_keeps_what_it_had(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "state")
    store["a"] = b"kept"
    with pytest.raises(UsageError, match="limit"):
        store["b"] = bytes(2 << 20)
    assert dict(FileStore(tmp_path / "state")) == {"a": b"kept"}
    del store["a"]
    assert dict(FileStore(tmp_path / "state")) == {}


# Traces.


@pytest.mark.live
async def test_what_a_peer_is_from_now_on_is_logged_though_nobody_traces(
    world: LiveWorld, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    one, _ = pair(world)
    one.env.trace(ROLE, peer=world.peer(1), reason="graylisted")
    assert f"{peer_text(world.peer(1))} is graylisted" in caplog.text


@pytest.mark.live
async def test_a_live_run_is_traced_like_a_simulated_one(tmp_path: Path) -> None:
    rows: list[tuple[object, ...]] = []

    class Observer:
        def observe(self, *row: object) -> None:
            rows.append(row)

    tracer = Tracer(observer=Observer())
    with trio.fail_after(DEADLINE_S):
        async with (
            open_host(Identity.new(), listen=HERE) as a,
            open_host(Identity.new()) as b,
            run_stack(a, talker) as hearer,
            run_stack(b, talker, tracer=tracer) as sender,
        ):
            b.learn(a.peer, a.addresses)
            sender.envs[0].send_all((a.peer,), Order(b"hi"))
            await until(lambda: bool(heard(hearer)))
            sender.envs[0].connect(a.peer)
            sender.envs[0].disconnect(a.peer)
            await until(lambda: any(row[2] == LINK_DOWN for row in rows))
    assert [row[2] for row in rows] == [NODE_UP, SEND, LINK_UP, LINK_DOWN, NODE_DOWN]
    assert {row[1] for row in rows} == {b.peer}
    assert rows[1][5:9] == (a.peer, None, 1, 6)
    times = [row[0] for row in rows]
    assert times == sorted(times)  # type: ignore[type-var]


def heard(driver: Driver) -> list[bytes]:
    machine = driver.machines[0]
    assert isinstance(machine, Talker)
    return machine.heard


# Answers and half frames.


class Large(Message, frozen=True, tag=4):
    text: bytes


class Library(Machine):
    """Answers any number with so many bytes."""

    protocols = ("/test/library",)

    @answers(Order, Large)
    def _order(self, sender: Peer, msg: Order, reply: Reply) -> None:
        reply(Large(bytes(int(msg.text))))


@pytest.mark.live
async def test_an_answer_larger_than_the_window_comes_whole(world: LiveWorld, autojump_clock: MockClock) -> None:
    one, _ = (world.machines(world.add(lambda env: [Library(env())]))[0] for _ in range(2))
    found: list[object] = []
    for size in (10, 300_000, 1_000_000):
        one.env.request(world.peer(1), Order(b"%d" % size), 60 * SECOND, lambda _, reply: found.append(reply), lambda *_: None)
    await world.run(AMPLE)
    assert sorted(len(reply.text) for reply in found if isinstance(reply, Large)) == [10, 300_000, 1_000_000]


@pytest.mark.live
async def test_frames_that_never_end_are_bounded_over_all_streams_of_a_link(world: LiveWorld, autojump_clock: MockClock) -> None:
    one, two = pair(world)
    one.env.connect(world.peer(1))
    await world.run(AMPLE)
    (link,) = world.drivers[world.peer(0)].host.links.values()
    for _ in range(40):
        stream = link.open((Talker.protocols[0],))
        stream.write(uvarint(1_000_000) + bytes(200_000))
    await world.run(AMPLE)
    assert not two.up and "do not end" in two.downs[0]
