"""Every public call of a host can be cancelled at every checkpoint, and leaves no task, no file descriptor and no stream.

An instrument of trio's counts the steps of the task that makes the call, and cancels it at the k-th: for k = 1, 2, ... until
the call gets through. `after` cancels it as it begins to wait, so that the wait itself is cut short; `before` as it is about
to go on, so that it has its result and learns of the cancellation at the next checkpoint.
"""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from libweft.peer.libp2p.ids import peer_text
from libweft.peer.live.driver import run_stack
from libweft.peer.live.host import Host, HostConfig, open_host
from libweft.peer.live.link import LiveLink, Stream
from tests.peer.live_world import ANYWHERE, JUMP_S, identity
from tests.peer.small_machines import keepers

DEADLINE_S = 2_000.0
STEPS = 200
ECHO, SINK = "/test/echo", "/test/sink"
QUICK = HostConfig(identify_s=5.0, negotiation_s=5.0, close_s=5.0)
MOMENTS = ("after", "before")

pytestmark = [pytest.mark.live, pytest.mark.parametrize("moment", MOMENTS)]


@pytest.fixture
def clock(autojump_clock: MockClock) -> MockClock:
    autojump_clock.autojump_threshold = JUMP_S
    return autojump_clock


class Canceller(trio.abc.Instrument):
    """Cancels the scope at the k-th step of the task from now on; step 0 is the one under way."""

    def __init__(self, task: trio.lowlevel.Task, scope: trio.CancelScope, moment: str, k: int) -> None:
        self.task, self.scope, self.moment, self.k = task, scope, moment, k
        self.steps = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self.task:
            self.steps += 1
            self._step("before")

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self.task:
            self._step("after")

    def _step(self, moment: str) -> None:
        if moment == self.moment and self.steps == self.k:
            self.scope.cancel()


async def cancelled_at(action: Callable[[], Awaitable[object]], moment: str, k: int) -> bool:
    """Whether the action was cancelled; it was not when it has fewer steps."""
    with trio.CancelScope() as scope:
        canceller = Canceller(trio.lowlevel.current_task(), scope, moment, k)
        trio.lowlevel.add_instrument(canceller)
        try:
            await action()
        finally:
            trio.lowlevel.remove_instrument(canceller)
    return scope.cancel_called


class Held:
    """What may not grow."""

    def __init__(self, *hosts: Host) -> None:
        links = [link for host in hosts for link in host.links.values()]
        self.counts = {
            "tasks": trio.lowlevel.current_statistics().tasks_living,
            "descriptors": len(os.listdir("/proc/self/fd")),
            "links": len(links),
            "streams": sum(len(link.streams) for link in links),
            "muxed streams": sum(link.yamux.streams for link in links),
            "addresses": sum(sum(host._ips.values()) for host in hosts),
            "handshakes": sum(host._handshakes for host in hosts),
            "dials": sum(len(host._dials) for host in hosts),
            "protocols": sum(len(host.protocols) for host in hosts),
            "protected": sum(len(host._protected) for host in hosts),
            "watchers": sum(len(host.watchers) for host in hosts),
        }


async def settled(before: Held, *hosts: Host) -> None:
    counts: dict[str, int] = {}
    with trio.move_on_after(60):
        while (counts := Held(*hosts).counts) != before.counts:
            await trio.sleep(0.5)
    assert counts == before.counts


async def held_at_rest(*hosts: Host) -> Held:
    """What tests before left to the collector is not counted, since it may go while this one runs."""
    await wait_all_tasks_blocked()
    gc.collect()
    return Held(*hosts)


async def cancelled_everywhere(
    moment: str, action: Callable[[], Awaitable[object]], *hosts: Host, between: Callable[[], Awaitable[None]] | None = None
) -> None:
    """The action at every step of it; then nothing is left, and the hosts still serve each other."""
    before = await held_at_rest(*hosts)
    first = MOMENTS.index(moment)  # nobody can be before the step under way
    for k in count(first):
        assert k < STEPS, "the call does not get through"
        through = not await cancelled_at(action, moment, k)
        if between is not None:
            await between()
        await settled(before, *hosts)
        if through:
            break
    assert k > first


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Host, Host]]:
    with trio.fail_after(DEADLINE_S):
        async with (
            open_host(identity(0), listen=[ANYWHERE], config=QUICK) as here,
            open_host(identity(1), listen=[ANYWHERE], config=QUICK) as there,
        ):
            there.handle(ECHO, echo)
            there.handle(SINK, sink)
            here.learn(there.peer, there.addresses)
            yield here, there
            assert await here.ping(there.peer) >= 0


async def echo(stream: Stream) -> None:
    while data := await stream.receive_some():
        await stream.send_all(data)


async def sink(stream: Stream) -> None:
    while await stream.receive_some():
        pass


async def unlinked(here: Host, there: Host) -> None:
    """Both ends without the link that the call may have made: it is the host's, not the caller's."""
    with trio.fail_after(60):
        while here._dials or here._handshakes or there._handshakes or here.links or there.links:
            for link in [*here.links.values(), *there.links.values()]:
                link.close("between two runs")
            await trio.sleep(0.1)


async def test_open_host(clock: MockClock, moment: str) -> None:
    async def action() -> None:
        async with open_host(identity(2), listen=[ANYWHERE], config=QUICK):
            await trio.lowlevel.checkpoint()

    with trio.fail_after(DEADLINE_S):
        await cancelled_everywhere(moment, action)


async def test_open_host_with_a_link(clock: MockClock, moment: str) -> None:
    async with pair() as (_, there):

        async def action() -> None:
            async with open_host(identity(2), listen=[ANYWHERE], config=QUICK) as host:
                await host.connect(there.addresses[0])

        await cancelled_everywhere(moment, action, there)


async def test_connect(clock: MockClock, moment: str) -> None:
    async with pair() as (here, there):

        async def action() -> None:
            await here.connect(there.peer)

        await cancelled_everywhere(moment, action, here, there, between=lambda: unlinked(here, there))


async def test_a_ping_that_dials(clock: MockClock, moment: str) -> None:
    async with pair() as (here, there):

        async def action() -> None:
            await here.ping(there.peer)

        await cancelled_everywhere(moment, action, here, there, between=lambda: unlinked(here, there))


async def test_a_ping_on_a_link(clock: MockClock, moment: str) -> None:
    async with pair() as (here, there):
        await here.ping(there.peer)

        async def action() -> None:
            await here.ping(there.peer)

        await trio.sleep(10)
        await cancelled_everywhere(moment, action, here, there)


@pytest.mark.parametrize("protocols", [(ECHO,), ("/not/spoken", ECHO)])
async def test_open_stream(clock: MockClock, moment: str, protocols: tuple[str, ...]) -> None:
    async with pair() as (here, there):
        await here.ping(there.peer)

        async def action() -> None:
            stream = await here.open_stream(there.peer, protocols)
            stream.reset()  # no checkpoint between the two

        await trio.sleep(10)
        await cancelled_everywhere(moment, action, here, there)


async def test_agreed(clock: MockClock, moment: str) -> None:
    async with pair() as (here, there):
        link = await here.connect(there.peer)

        async def action() -> None:
            async with link.open(["/not/spoken", ECHO]) as stream:
                await stream.agreed()

        await trio.sleep(10)
        await cancelled_everywhere(moment, action, here, there)


async def test_send_all(clock: MockClock, moment: str) -> None:
    """More than a window, and more than goes out at a time."""
    async with pair() as (here, there):
        link = await here.connect(there.peer)

        async def action() -> None:
            async with link.open([SINK]) as stream:
                await stream.send_all(bytes(600_000))
                await stream.send_eof()

        await trio.sleep(10)
        await cancelled_everywhere(moment, action, here, there)


async def test_receive_some(clock: MockClock, moment: str) -> None:
    async with pair() as (here, there):
        link = await here.connect(there.peer)

        async def action() -> None:
            async with link.open([ECHO]) as stream:
                await stream.send_all(bytes(1_000))
                await stream.send_eof()
                while await stream.receive_some(100):
                    pass

        await trio.sleep(10)
        await cancelled_everywhere(moment, action, here, there)


async def test_bytes_that_a_cancelled_receive_did_not_take_come_by_the_next_one(clock: MockClock, moment: str) -> None:
    async with pair() as (here, there):
        link = await here.connect(there.peer)
        sent = bytes(range(256)) * 4
        for k in range(MOMENTS.index(moment), 30):
            async with link.open([ECHO]) as stream:
                await stream.send_all(sent)
                await stream.send_eof()
                heard = bytearray()

                async def some(stream: Stream = stream, heard: bytearray = heard) -> None:
                    while data := await stream.receive_some(100):
                        heard.extend(data)

                await cancelled_at(some, moment, k)
                await some()
                assert heard == sent


async def test_run_stack(clock: MockClock, moment: str) -> None:
    async with pair() as (here, there):
        await here.connect(there.peer)

        async def action() -> None:
            async with run_stack(here, keepers({"candidates": (there.peer,)}, {})):
                await trio.lowlevel.checkpoint()
                await trio.lowlevel.checkpoint()

        async def between() -> None:
            """Its holds end in a release, for want of a common protocol."""
            await unlinked(here, there)
            await here.connect(there.peer)

        await trio.sleep(10)
        await cancelled_everywhere(moment, action, here, there, between=between)


async def test_run_stack_that_dials(clock: MockClock, moment: str) -> None:
    async with pair() as (here, there), run_stack(there, keepers({})):

        async def action() -> None:
            async with run_stack(here, keepers({"candidates": (there.peer,)})):
                while not here.links:
                    await trio.sleep(0.01)

        await cancelled_everywhere(moment, action, here, there, between=lambda: unlinked(here, there))


async def test_host_close(clock: MockClock, moment: str) -> None:
    async with pair() as (_, there):
        before = await held_at_rest(there)
        for k in count(MOMENTS.index(moment)):
            async with open_host(identity(2), listen=[ANYWHERE], config=QUICK) as host:
                await host.connect(there.addresses[0])
                stream = await host.open_stream(there.peer, [SINK])
                await stream.send_all(bytes(100_000))
                through = not await cancelled_at(host.close, moment, k)
            await settled(before, there)
            if through:
                break
        assert k > MOMENTS.index(moment)


async def test_what_two_share_goes_on_when_one_is_cancelled(clock: MockClock, moment: str) -> None:
    """Two wait for the same dial; it is given up only when both are."""
    async with pair() as (here, there):
        for k in range(MOMENTS.index(moment), 4):
            links: list[LiveLink] = []

            async def patient(links: list[LiveLink] = links) -> None:
                links.append(await here.connect(there.peer))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(patient)
                await cancelled_at(lambda: here.connect(there.peer), moment, k)
            assert [link.reason for link in links] == [None]
            await unlinked(here, there)


async def test_a_cancelled_dial_of_a_peer_that_never_answers(clock: MockClock, moment: str) -> None:
    """The handshake hangs, so the call is cut short in the middle of it, with no link made."""
    with trio.socket.socket() as sock:
        await sock.bind(("127.0.0.1", 0))
        sock.listen()
        silent = f"/ip4/127.0.0.1/tcp/{sock.getsockname()[1]}/p2p/{peer_text(identity(3).peer)}"
        with trio.fail_after(DEADLINE_S):
            async with open_host(identity(0), config=QUICK) as here:

                async def action() -> None:
                    await here.connect(silent)

                before = await held_at_rest(here)
                for k in range(MOMENTS.index(moment), 3):
                    with trio.move_on_after(5):
                        await cancelled_at(action, moment, k)
                    await settled(before, here)


async def test_a_stream_whose_send_was_cancelled_while_it_waited_can_send_on(clock: MockClock, moment: str) -> None:
    async with pair() as (here, there):
        there.handle("/test/late", late)
        link = await here.connect(there.peer)
        async with link.open(["/test/late"]) as stream:
            with trio.move_on_after(1):
                await stream.send_all(bytes(1 << 20))
            await stream.send_all(bytes(1 << 20))


async def late(stream: Stream) -> None:
    await trio.sleep(3)
    await sink(stream)
