"""Requests and replies by message id over datagrams: on a clock of the test's, in the simulator, and on loopback sockets."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable
from functools import partial
from math import inf
from random import Random
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from libweft.peer.datagram import (
    CONTENT_LIMIT,
    GARBAGE,
    HEAD,
    PENDING,
    REFUSED,
    UNASKED,
    UNSENT,
    Address,
    Answer,
    DatagramEnv,
    Endpoint,
    NoAnswer,
)
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.fake.env import FakeClock, FakeTimer
from libweft.peer.live.datagram import open_datagram, resolve
from libweft.peer.machine import MS, SECOND
from libweft.peer.sim.datagram import SimDatagrams
from libweft.peer.sim.latency import Constant
from libweft.peer.sim.simulator import Simulator
from tests.waiting import until

THERE: Address = ("198.51.100.1", 4_000)
HERE = "127.0.0.1"
DEADLINE = 60


class Echo:
    """Answers what it is asked; `no` is not its protocol, `later` waits, `crash` is a mistake of its own."""

    def __init__(self, env: DatagramEnv) -> None:
        self.env = env
        self.patience = SECOND // 2
        self.stopped = False

    def start(self) -> None: ...
    def stop(self) -> None:
        self.stopped = True

    def asked(self, sender: Address, content: bytes, answer: Answer) -> None:
        if content == b"no":
            raise PeerError("no")
        if content == b"crash":
            raise ZeroDivisionError
        if content == b"later":
            self.env.after(SECOND, answer, content)
        else:
            answer(content)

    def ask(self, address: Address, content: bytes, done: Callable[[bytes | None], None]) -> None:
        self.env.request(address, content, self.patience, lambda _, reply: done(reply), lambda _, reason: done(None))


class Bare(Endpoint[Echo]):
    """What is to leave is kept."""

    def __init__(self) -> None:
        super().__init__(("192.0.2.1", 1), Random(0))
        self.clock = FakeClock()
        self.left: list[tuple[Address, bytes]] = []
        self.heard: list[Any] = []
        self.machine = Echo(self)

    def now(self) -> int:
        return self.clock.now

    def after(self, delay: int, action: Callable[..., None], *args: Any) -> FakeTimer:
        return self.clock.after(delay, action, *args)

    def send(self, address: Address, data: bytes) -> None:
        self.left.append((address, data))

    def ask(self, content: bytes = b"question") -> bytes:
        """The id of a new request."""
        on_reply, on_fail = (lambda *heard: self.heard.append(heard)), (lambda *heard: self.heard.append(heard))
        self.request(THERE, content, SECOND, on_reply, on_fail)
        return self.left[-1][1][1:HEAD]


def test_a_request_is_a_zero_an_id_by_chance_and_the_content() -> None:
    node = Bare()
    ids = {node.ask(b"abc") for _ in range(100)}
    assert len(ids) == 100
    assert all(address == THERE and data[0] == 0 and data[21:] == b"abc" for address, data in node.left)


def test_a_request_is_answered_by_a_one_and_its_id() -> None:
    node = Bare()
    node.take(THERE, b"\x00" + b"i" * 20 + b"hello")
    assert node.left == [(THERE, b"\x01" + b"i" * 20 + b"hello")]


def test_a_reply_counts_once_and_only_from_the_address_that_was_asked() -> None:
    node = Bare()
    number = node.ask()
    for sender in (("198.51.100.2", 4_000), ("198.51.100.1", 4_001)):
        node.take(sender, b"\x01" + number + b"forged")
    node.take(THERE, b"\x01" + bytes(20) + b"guessed")
    assert node.heard == []
    node.take(THERE, b"\x01" + number + b"answer")
    node.take(THERE, b"\x01" + number + b"again")
    assert node.heard == [(THERE, b"answer")]
    assert node.counts == {UNASKED: 4}
    assert node.clock.waiting == 0


def test_a_request_without_a_reply_fails_at_its_timeout_and_what_comes_later_is_not_heard() -> None:
    node = Bare()
    number = node.ask()
    while node.clock.fire(SECOND):
        pass
    node.take(THERE, b"\x01" + number + b"late")
    assert node.heard == [(THERE, "timeout")]
    assert node.pending == {}


def test_a_reply_that_does_not_fit_is_garbage_and_the_request_has_failed() -> None:
    node = Bare()

    def refuse(sender: Address, content: bytes) -> None:
        raise PeerError("what is that?")

    node.request(THERE, b"", SECOND, refuse, lambda *heard: node.heard.append(heard))
    node.take(THERE, b"\x01" + node.left[-1][1][1:HEAD] + b"x")
    assert node.heard == [(THERE, "what is that?")]
    assert node.counts == {GARBAGE: 1}


@pytest.mark.parametrize(
    "data", [b"", b"\x00", bytes(21), b"\x02" + bytes(30), bytes(HEAD + CONTENT_LIMIT + 1), b"\x00" + bytes(20) + b"no"]
)
def test_garbage_is_dropped_and_counted(data: bytes) -> None:
    node = Bare()
    node.take(THERE, data)
    assert node.counts == {GARBAGE: 1}
    assert node.left == []


@given(st.lists(st.binary(max_size=50), max_size=20))
def test_no_bytes_raise_and_each_datagram_is_answered_or_counted(datagrams: list[bytes]) -> None:
    node = Bare()
    for data in datagrams:
        node.take(THERE, data)
    assert len(node.left) + node.counts.total() == len(datagrams)


def test_content_over_the_limit_is_refused_at_the_call() -> None:
    node = Bare()
    node.ask(bytes(CONTENT_LIMIT))
    with pytest.raises(UsageError, match="8193 bytes do not fit"):
        node.ask(bytes(CONTENT_LIMIT + 1))
    assert len(node.pending) == 1


def test_requests_under_way_are_bounded_and_one_more_fails_later_not_at_once() -> None:
    node = Bare()
    for _ in range(PENDING + 1):
        node.ask()
    assert len(node.pending) == len(node.left) == PENDING
    assert node.heard == []
    node.clock.fire(0)
    assert node.heard == [(THERE, "too many requests are under way")]
    assert node.counts == {REFUSED: 1}


def test_a_closed_endpoint_neither_hears_nor_answers() -> None:
    node = Bare()
    node.ask()
    node.close()
    node.take(THERE, b"\x00" + bytes(20) + b"hello")
    assert node.machine.stopped
    assert len(node.left) == 1
    assert node.clock.waiting == 0


# In the simulator.


def test_a_round_trip_takes_two_latencies_and_a_crash_is_silence() -> None:
    sim = Simulator(latency=Constant(ms=40))
    net: SimDatagrams[Echo] = SimDatagrams(sim)
    a, b = net.add(Echo), net.add(Echo)
    heard: list[tuple[int, bytes | None]] = []
    a.machine.ask(b.me, b"hello", lambda reply: heard.append((sim.now, reply)))
    sim.run(SECOND)
    net.crash(b.me)
    a.machine.ask(b.me, b"hello", lambda reply: heard.append((sim.now, reply)))
    sim.run(2 * SECOND)
    assert heard == [(80 * MS, b"hello"), (1_500 * MS, None)]
    assert net.counts == {"sent": 3, "nowhere": 1}
    assert sim.events == 3  # two copies and the timeout


def test_copies_are_lost_and_come_twice_as_often_as_asked_for() -> None:
    net: SimDatagrams[Echo] = SimDatagrams(Simulator(), loss=0.2, duplicate=0.1)
    a, b = net.add(Echo), net.add(Echo)
    heard: list[bytes | None] = []
    for _ in range(1_000):
        a.machine.ask(b.me, b"hello", heard.append)
    net.sim.run(10 * SECOND)
    assert len(heard) == 1_000
    assert 600 < sum(reply is not None for reply in heard) < 760
    assert 330 < net.counts["lost"] < 450 and 150 < net.counts["duplicated"] < 230


# On sockets.


@pytest.mark.live
async def test_two_nodes_on_loopback_ask_each_other() -> None:
    with trio.fail_after(DEADLINE):
        async with open_datagram(Echo, host=HERE) as a, open_datagram(Echo, host=HERE) as b:
            assert await a.call(partial(a.machine.ask, b.me, b"no"), DEADLINE) is None
            assert b.counts == {GARBAGE: 1}
            a.machine.patience = b.machine.patience = DEADLINE * SECOND
            assert await a.call(partial(a.machine.ask, b.me, b"hello"), DEADLINE) == b"hello"
            longest = bytes(CONTENT_LIMIT)
            assert await b.call(partial(b.machine.ask, a.me, longest), DEADLINE) == longest


@pytest.mark.live
async def test_a_hundred_requests_at_once_are_answered() -> None:
    """No more than a kernel's buffer holds: beyond it they would be lost."""
    with trio.fail_after(DEADLINE):
        async with open_datagram(Echo, host=HERE) as a, open_datagram(Echo, host=HERE) as b:
            a.machine.patience = DEADLINE * SECOND
            for _ in range(10):
                heard: list[bytes | None] = []
                for number in range(100):
                    a.machine.ask(b.me, b"%d" % number, heard.append)
                await until(lambda heard=heard: len(heard) >= 100)  # type: ignore[misc]
                assert heard == [b"%d" % number for number in range(100)]


@pytest.mark.live
async def test_timers_fire_in_order_and_a_cancelled_one_does_not() -> None:
    fired: list[int] = []
    async with open_datagram(Echo, host=HERE) as node:
        await trio.testing.wait_all_tasks_blocked()
        for delay in (30, 10, 20):
            node.after(delay * MS, fired.append, delay)
        node.after(5 * MS, fired.append, 5).cancel()
        await until(lambda: len(fired) >= 3)
    assert fired == [10, 20, 30]


def later(node: DatagramEnv, done: Callable[[str], None]) -> None:
    node.after(2 * SECOND, done, "late")


@pytest.mark.live
async def test_a_call_has_a_deadline_and_can_be_cancelled(autojump_clock: trio.testing.MockClock) -> None:
    async with open_datagram(Echo, host=HERE) as node:
        with pytest.raises(NoAnswer, match="no answer within 5 s"):
            await node.call(lambda done: None, 5)
        with trio.move_on_after(1) as scope:
            await node.call(partial(later, node), 5)
        assert scope.cancelled_caught
        await trio.sleep(3)


@pytest.mark.live
async def test_a_call_that_outlives_its_node_is_told_so() -> None:
    told: list[UsageError] = []

    async def wait() -> None:
        try:
            await node.call(lambda done: None, inf)
        except UsageError as error:
            told.append(error)

    with trio.fail_after(DEADLINE):
        async with trio.open_nursery() as nursery, open_datagram(Echo, host=HERE) as node:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
    assert "is closed" in str(told[0])
    with pytest.raises(UsageError, match="is closed"):
        await node.call(lambda done: None, 30)


@pytest.mark.live
async def test_a_mistake_of_the_machine_ends_the_block_as_itself() -> None:
    with trio.fail_after(DEADLINE), pytest.raises(ZeroDivisionError):
        async with open_datagram(Echo, host=HERE) as node:
            node.machine.ask(node.me, b"crash", lambda _: None)
            await trio.sleep_forever()
    assert node.machine.stopped


@pytest.mark.live
async def test_the_port_is_free_again_after_the_block_and_no_socket_is_left() -> None:
    async with open_datagram(Echo, host=HERE) as node:
        with pytest.raises(UsageError, match="take another, or 0"):
            async with open_datagram(Echo, host=HERE, port=node.me[1]):
                pass
    async with open_datagram(Echo, host=HERE, port=node.me[1]) as again:
        assert again.me == node.me
    gc.collect()


@pytest.mark.live
async def test_what_the_kernel_does_not_take_is_counted_and_no_error() -> None:
    async with open_datagram(Echo, host=HERE) as node:
        node.send(("::1", 9), b"x")
        node.send(("255.255.255.255", 9), b"x")
        assert node.counts == {UNSENT: 2}


@pytest.mark.live
@pytest.mark.parametrize(("host", "port"), [("localhost", 0), ("", 0), ("203.0.113.1", 0), (HERE, 1 << 16), (HERE, -1)])
async def test_a_place_where_nobody_can_listen_is_refused(host: str, port: int) -> None:
    with pytest.raises(UsageError):
        async with open_datagram(Echo, host=host, port=port):
            pass


async def test_names_become_addresses_of_the_same_family() -> None:
    assert await resolve([("localhost", 5)], like="0.0.0.0") == [(HERE, 5)]
    assert await resolve([("0:0::1", 5)], like="::") == [("::1", 5)]
    with pytest.raises(UsageError, match="cannot be found"):
        await resolve([("::1", 5)], like="0.0.0.0")


@pytest.mark.parametrize("places", [("127.0.0.1", 9), ["127.0.0.1:9"], "127.0.0.1:9", [None], [(None, 9)], [("a", 1, 2)]])
async def test_what_is_no_list_of_places_is_refused_with_an_example(places: Any) -> None:
    with pytest.raises(UsageError, match="such as"):
        await resolve(places, like="0.0.0.0")


@pytest.mark.parametrize("port", ["5", None, 1.5])
async def test_a_port_that_is_no_number_is_refused(port: Any) -> None:
    with pytest.raises(UsageError, match="a port is a whole number"):
        async with open_datagram(Echo, host=HERE, port=port):
            pass


@pytest.mark.live
async def test_a_datagram_over_the_limit_is_garbage() -> None:
    with trio.fail_after(DEADLINE), socket.socket(type=socket.SOCK_DGRAM) as sock:
        async with open_datagram(Echo, host=HERE) as node:
            sock.sendto(bytes(HEAD + CONTENT_LIMIT + 1), node.me)
            await until(lambda: node.counts == {GARBAGE: 1})
