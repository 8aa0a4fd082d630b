"""A host inside asyncio and inside threads: results, errors, cancellation, streams, and the end of the block."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from libweft.peer.errors import UsageError
from libweft.peer.libp2p.ids import Identity
from libweft.peer.live.driver import MachineError, run_stack
from libweft.peer.live.embed import Guest, Portal, in_asyncio, in_thread
from libweft.peer.live.host import Host, open_host
from libweft.peer.machine import Env, Machine

DEADLINE_S = 60
HERE = ["/ip4/127.0.0.1/tcp/0"]
CLOSED = "closed; it can be used inside its block only"


class Log(list[str]):
    """What happened inside of trio, in order; waited for without polling the clock."""

    def __init__(self) -> None:
        self._changed = threading.Condition()

    def note(self, what: str) -> None:
        with self._changed:
            self.append(what)
            self._changed.notify_all()

    def wait_for(self, what: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: what in self, DEADLINE_S), f"{what!r} never came, but {self}"

    async def see(self, what: str) -> None:
        """From asyncio, whose loop must go on meanwhile."""
        await asyncio.to_thread(self.wait_for, what)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def quick_host(log: Log) -> Any:
    """As a host is: it opens, gives something, and has something to do at its end."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[str]:
        log.note("open")
        try:
            yield "host"
            await trio.lowlevel.checkpoint()
            log.note("clean close")
        finally:
            log.note("gone")

    return opened


def on_asyncio(main: Coroutine[Any, Any, Any]) -> Any:
    async def in_time() -> Any:
        async with asyncio.timeout(DEADLINE_S):
            return await main

    return asyncio.run(in_time(), debug=True)


@asynccontextmanager
async def fails_to_open() -> AsyncIterator[None]:
    await trio.lowlevel.checkpoint()
    raise OSError("no such port")
    yield


class Fragile(Machine):
    def start(self) -> None:
        self.env.after(0, self.on_fall)

    def on_fall(self) -> None:
        raise ZeroDivisionError("a bug")


@asynccontextmanager
async def a_crashing_stack() -> AsyncIterator[Host]:
    def build(env: Any) -> list[Machine]:
        made: Env = env()
        return [Fragile(made)]

    async with open_host(Identity.new(), listen=HERE) as host, run_stack(host, build):
        yield host


async def add(a: int, b: int) -> int:
    await trio.lowlevel.checkpoint()
    return a + b


async def blame(who: str) -> None:
    await trio.lowlevel.checkpoint()
    raise LookupError(who)


async def never(log: Log, *, cleaning: int = 3) -> None:
    log.note("begun")
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            for _ in range(cleaning):
                await trio.lowlevel.checkpoint()
        log.note("cleaned up")


async def count(log: Log, end: int | None = None) -> AsyncIterator[int]:
    number = 0
    try:
        while end is None or number < end:
            log.note(str(number))
            yield number
            number += 1
    finally:
        log.note("generator closed")


async def breaks_at(number: int) -> AsyncIterator[int]:
    for value in range(number):
        yield value
    raise LookupError("the source broke")


# On asyncio.


def test_asyncio_gets_results_errors_and_the_value(quick_host: Any, log: Log) -> None:
    async def main() -> None:
        async with in_asyncio(quick_host) as guest:
            assert guest.value == "host"
            assert await guest.call(add, 1, 2) == 3
            assert await asyncio.gather(*(guest.call(add, n, n) for n in range(100))) == [2 * n for n in range(100)]
            with pytest.raises(LookupError, match="me"):
                await guest.call(blame, "me")
            assert await guest.call(add, 3, 4) == 7
        assert log == ["open", "clean close", "gone"]

    on_asyncio(main())


def test_an_opener_that_fails_raises_at_entry_on_asyncio() -> None:
    async def main() -> None:
        with pytest.raises(OSError, match="no such port"):
            async with in_asyncio(fails_to_open):
                raise AssertionError("the block must not run")

    on_asyncio(main())


def test_asyncio_runs_one_guest_after_the_other_but_not_two_at_once(quick_host: Any) -> None:
    async def main() -> None:
        async with in_asyncio(quick_host) as guest:
            with pytest.raises(UsageError, match="one context manager"):
                async with in_asyncio(quick_host):
                    raise AssertionError("the block must not run")
            assert await guest.call(add, 1, 1) == 2
        async with in_asyncio(quick_host) as guest:
            assert await guest.call(add, 1, 1) == 2

    on_asyncio(main())


def test_a_cancelled_asyncio_task_waits_until_trio_has_cleaned_up(quick_host: Any, log: Log) -> None:
    async def main() -> None:
        async with in_asyncio(quick_host) as guest:
            task = asyncio.create_task(guest.call(partial(never, log, cleaning=50)))
            await log.see("begun")
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()  # to ask twice does not make it quicker
            with pytest.raises(asyncio.CancelledError):
                await task
            assert log[-1] == "cleaned up"
            assert await guest.call(add, 1, 1) == 2

    on_asyncio(main())


def test_asyncio_timeouts_reach_into_trio(quick_host: Any, log: Log) -> None:
    async def main() -> None:
        async with in_asyncio(quick_host) as guest:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await guest.call(never, log)
            assert log[-1] == "cleaned up"

    on_asyncio(main())


def test_an_error_while_a_call_is_cancelled_comes_out(quick_host: Any, log: Log) -> None:
    async def spoilt() -> None:
        try:
            await never(log)
        finally:
            raise LookupError("spoilt")

    async def main() -> None:
        async with in_asyncio(quick_host) as guest:
            task = asyncio.create_task(guest.call(spoilt))
            await log.see("begun")
            task.cancel()
            with pytest.raises(LookupError, match="spoilt"):
                await task

    on_asyncio(main())


def test_a_cancelled_entry_leaves_nothing_behind(log: Log) -> None:
    @asynccontextmanager
    async def slow() -> AsyncIterator[None]:
        await never(log)
        yield

    async def enter() -> None:
        async with in_asyncio(slow):
            raise AssertionError("the block must not run")

    async def main() -> None:
        for begun in (False, True):
            task = asyncio.create_task(enter())
            await (log.see("begun") if begun else asyncio.sleep(0))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not trio.lowlevel.in_trio_run()
        assert log[-1] == "cleaned up"

    on_asyncio(main())


def test_a_cancelled_block_closes_cleanly_and_a_second_cancellation_quickly(log: Log) -> None:
    @asynccontextmanager
    async def reluctant() -> AsyncIterator[None]:
        yield
        await never(log)

    async def hold(opener: Any) -> None:
        async with in_asyncio(opener):
            log.note("inside")
            await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(hold(reluctant))
        await log.see("inside")
        task.cancel()
        await log.see("begun")
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert log[-1] == "cleaned up"

    on_asyncio(main())


def test_an_error_of_the_block_still_closes_cleanly(quick_host: Any, log: Log) -> None:
    async def main() -> None:
        with pytest.raises(LookupError, match="mine"):
            async with in_asyncio(quick_host):
                raise LookupError("mine")
        assert "clean close" in log

    on_asyncio(main())


@pytest.mark.live
def test_a_crash_comes_out_of_calls_under_way_of_the_next_and_at_exit_on_asyncio() -> None:
    async def main() -> None:
        kept: list[Guest[Host]] = []
        with pytest.raises(MachineError) as at_exit:
            async with in_asyncio(a_crashing_stack) as guest:
                kept.append(guest)
                with pytest.raises(MachineError) as under_way:
                    await guest.call(trio.sleep_forever)
                assert isinstance(under_way.value.__cause__, ZeroDivisionError)
                with pytest.raises(MachineError):
                    await guest.call(add, 1, 1)
                with pytest.raises(MachineError):
                    async for _ in guest.stream(count, Log()):
                        raise AssertionError("a dead stack has no items")
        assert at_exit.value is under_way.value
        with pytest.raises(UsageError, match=CLOSED):
            await kept[0].call(add, 1, 1)

    on_asyncio(main())


@pytest.mark.live
def test_a_crash_nobody_called_into_comes_out_at_exit() -> None:
    async def main() -> None:
        with pytest.raises(MachineError):
            async with in_asyncio(a_crashing_stack) as guest:
                while not guest._run.over.done():
                    await asyncio.sleep(0.001)

    on_asyncio(main())


def test_an_error_of_one_task_comes_out_without_the_groups_of_nurseries() -> None:
    @asynccontextmanager
    async def two_nurseries() -> AsyncIterator[None]:
        async with trio.open_nursery() as outer, trio.open_nursery():
            outer.start_soon(blame, "a task")
            yield

    with pytest.raises(LookupError, match="a task"), in_thread(two_nurseries) as portal:
        portal.call(trio.sleep_forever)


def test_calls_under_way_end_with_the_block_on_asyncio(quick_host: Any, log: Log) -> None:
    async def main() -> None:
        async with in_asyncio(quick_host) as guest:
            task = asyncio.create_task(guest.call(never, log))
            await log.see("begun")
        with pytest.raises(UsageError, match=CLOSED):
            await task
        assert log.index("cleaned up") < log.index("clean close")
        with pytest.raises(UsageError, match=CLOSED):
            await guest.call(add, 1, 1)
        with pytest.raises(UsageError, match=CLOSED):
            _ = guest.value
        with pytest.raises(UsageError, match=CLOSED):
            async for _ in guest.stream(count, log):
                raise AssertionError("a closed guest has no items")

    on_asyncio(main())


def test_trio_does_not_call_itself_through_the_guest(quick_host: Any) -> None:
    async def main() -> None:
        async with in_asyncio(quick_host) as guest:
            with pytest.raises(UsageError, match="awaits the function itself"):
                await guest.call(guest.call, add, 1, 1)

    on_asyncio(main())


def test_asyncio_takes_a_stream_in_order_to_its_end(quick_host: Any, log: Log) -> None:
    async def main() -> None:
        async with in_asyncio(quick_host) as guest:
            for buffer in (0, 1, 64):
                assert [item async for item in guest.stream(count, log, 200, buffer=buffer)] == list(range(200))
            assert [item async for item in guest.stream(count, log, 0)] == []
        assert log.count("generator closed") == 4

    on_asyncio(main())


@pytest.mark.parametrize("buffer", [0, 1, 5])
def test_a_source_is_held_back_by_who_takes_its_items(quick_host: Any, log: Log, buffer: int) -> None:
    async def settled() -> None:
        await trio.testing.wait_all_tasks_blocked()

    async def main() -> None:
        async with in_asyncio(quick_host) as guest, aclosing(guest.stream(count, log, buffer=buffer)) as numbers:
            for taken in range(20):
                assert await anext(numbers) == taken
                await guest.call(settled)
                made = sum(note.isdigit() for note in log)
                assert made <= taken + 1 + 2 * buffer + 2
        assert "generator closed" in log

    on_asyncio(main())


def test_leaving_the_loop_closes_the_source_on_asyncio(quick_host: Any, log: Log) -> None:
    async def main() -> None:
        async with in_asyncio(quick_host) as guest:
            async for item in guest.stream(count, log):
                if item == 3:
                    break
            await log.see("generator closed")
            assert await guest.call(add, 1, 1) == 2

    on_asyncio(main())


def test_cancelling_who_takes_items_closes_the_source(quick_host: Any, log: Log) -> None:
    async def drain(guest: Guest[str]) -> None:
        async for _ in guest.stream(silent, log):
            raise AssertionError("it has no items")

    async def main() -> None:
        async with in_asyncio(quick_host) as guest:
            task = asyncio.create_task(drain(guest))
            await log.see("begun")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert "cleaned up" in log

    on_asyncio(main())


async def silent(log: Log) -> AsyncIterator[int]:
    await never(log)
    yield 0


def test_an_error_of_the_source_comes_after_its_items_on_asyncio(quick_host: Any) -> None:
    async def main() -> None:
        async with in_asyncio(quick_host) as guest:
            taken = []
            with pytest.raises(LookupError, match="the source broke"):
                async for item in guest.stream(breaks_at, 10):
                    taken += [item]
            assert taken == list(range(10))

    on_asyncio(main())


def test_a_channel_and_a_context_manager_are_sources_too(quick_host: Any, log: Log) -> None:
    def channel() -> trio.MemoryReceiveChannel[int]:
        send, receive = trio.open_memory_channel[int](3)
        with send:
            for number in range(3):
                send.send_nowait(number)
        return receive

    @asynccontextmanager
    async def subscription() -> AsyncIterator[trio.MemoryReceiveChannel[int]]:
        yield channel()
        log.note("unsubscribed")

    async def main() -> None:
        async with in_asyncio(quick_host) as guest:
            assert [item async for item in guest.stream(channel)] == [0, 1, 2]
            assert [item async for item in guest.stream(subscription)] == [0, 1, 2]
        assert "unsubscribed" in log

    on_asyncio(main())


# In a thread.


@pytest.fixture
def portal(quick_host: Any) -> Iterator[Portal[str]]:
    with in_thread(quick_host) as portal:
        yield portal


def test_a_thread_gets_results_errors_and_the_value(quick_host: Any, log: Log) -> None:
    with in_thread(quick_host) as portal:
        assert portal.value == "host"
        assert portal.call(add, 1, 2) == 3
        with pytest.raises(LookupError, match="me"):
            portal.call(blame, "me")
        assert portal.call(add, 3, 4, timeout=DEADLINE_S) == 7
    assert log == ["open", "clean close", "gone"]
    assert all(thread.name != "weft" for thread in threading.enumerate())


def test_an_opener_that_fails_raises_at_entry_in_a_thread() -> None:
    with pytest.raises(OSError, match="no such port"), in_thread(fails_to_open):
        raise AssertionError("the block must not run")


def test_many_threads_call_through_one_portal(portal: Portal[str]) -> None:
    sums: list[int] = []
    threads = [threading.Thread(target=lambda n=n: sums.append(portal.call(add, n, n))) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert sorted(sums) == [2 * n for n in range(20)]


def test_a_call_that_takes_too_long_is_cancelled_in_trio(portal: Portal[str], log: Log) -> None:
    with pytest.raises(TimeoutError, match=r"more than 0\.01 s"):
        portal.call(partial(never, log, cleaning=50), timeout=0.01)
    assert log[-1] == "cleaned up"
    assert portal.call(add, 1, 1) == 2


def test_a_timeout_of_the_function_itself_is_its_own(portal: Portal[str]) -> None:
    async def slow() -> None:
        with trio.fail_after(0):
            await trio.sleep_forever()

    with pytest.raises(trio.TooSlowError):
        portal.call(slow, timeout=DEADLINE_S)


@pytest.mark.live
def test_a_crash_comes_out_of_calls_and_at_exit_in_a_thread() -> None:
    with pytest.raises(MachineError) as at_exit, in_thread(a_crashing_stack) as portal:
        with pytest.raises(MachineError) as under_way:
            portal.call(trio.sleep_forever)
        with pytest.raises(MachineError):
            portal.call(add, 1, 1)
        with pytest.raises(MachineError):
            list(portal.stream(count, Log()))
    assert at_exit.value is under_way.value
    with pytest.raises(UsageError, match=CLOSED):
        portal.call(add, 1, 1)


def test_calls_under_way_end_with_the_block_in_a_thread(quick_host: Any, log: Log) -> None:
    seen: list[BaseException] = []

    def wait() -> None:
        try:
            opened.call(never, log)
        except UsageError as error:
            seen.append(error)

    with in_thread(quick_host) as opened:
        thread = threading.Thread(target=wait)
        thread.start()
        log.wait_for("begun")
    thread.join(DEADLINE_S)
    assert [CLOSED in str(error) for error in seen] == [True]
    with pytest.raises(UsageError, match=CLOSED):
        opened.call(add, 1, 1)
    with pytest.raises(UsageError, match=CLOSED):
        _ = opened.value
    with pytest.raises(UsageError, match=CLOSED):
        list(opened.stream(count, log))


def test_a_thread_takes_a_stream_to_its_end_or_leaves_it(portal: Portal[str], log: Log) -> None:
    assert list(portal.stream(count, log, 200, buffer=3)) == list(range(200))
    for item in portal.stream(count, log):
        if item == 3:
            break
    assert log.count("generator closed") == 2
    with pytest.raises(LookupError, match="the source broke"):
        list(portal.stream(breaks_at, 3))


def test_trio_does_not_wait_for_itself_through_the_portal(portal: Portal[str]) -> None:
    async def inside() -> int:
        return portal.call(add, 1, 1)

    with pytest.raises(UsageError, match="awaits the function itself"):
        portal.call(inside)


def interrupt_when(log: Log, what: str) -> None:
    """What Ctrl-C does to the main thread, once it is known to wait."""

    def strike() -> None:
        log.wait_for(what)
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=strike).start()


def test_an_interrupted_call_is_cancelled_in_trio_and_the_host_closes_cleanly(quick_host: Any, log: Log) -> None:
    interrupt_when(log, "begun")
    with pytest.raises(KeyboardInterrupt), in_thread(quick_host) as portal:
        portal.call(never, log)
    assert log == ["open", "begun", "cleaned up", "clean close", "gone"]


def test_an_interrupt_while_it_opens_leaves_no_thread(log: Log) -> None:
    @asynccontextmanager
    async def slow() -> AsyncIterator[None]:
        await never(log)
        yield

    interrupt_when(log, "begun")
    with pytest.raises(KeyboardInterrupt), in_thread(slow):
        raise AssertionError("the block must not run")
    assert log == ["begun", "cleaned up"]
    assert all(thread.name != "weft" for thread in threading.enumerate())


def test_an_interrupt_while_it_closes_makes_it_quick(log: Log) -> None:
    @asynccontextmanager
    async def reluctant() -> AsyncIterator[None]:
        yield
        await never(log)

    interrupt_when(log, "begun")
    with pytest.raises(KeyboardInterrupt), in_thread(reluctant):
        pass
    assert log == ["begun", "cleaned up"]


# With real hosts.


@asynccontextmanager
async def two_hosts() -> AsyncIterator[tuple[Host, Host]]:
    async with open_host(Identity.new(), listen=HERE) as one, open_host(Identity.new(), listen=HERE) as other:
        yield one, other


@pytest.mark.live
def test_hosts_ping_each_other_on_asyncio_while_asyncio_goes_on() -> None:
    async def main() -> None:
        turns = 0

        async def beat() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        beating = asyncio.create_task(beat())
        async with in_asyncio(two_hosts) as guest:
            one, other = guest.value
            assert await guest.call(one.ping, other.addresses[0]) > 0
            link = one.links[other.peer]
        assert link.reason is not None and not one.links and not other.links
        beating.cancel()
        assert turns > 0

    on_asyncio(main())


@pytest.mark.live
def test_hosts_in_two_threads_ping_each_other() -> None:
    def opener() -> AbstractAsyncContextManager[Host]:
        return open_host(Identity.new(), listen=HERE)

    with in_thread(opener) as one, in_thread(opener) as other:
        assert one.call(one.value.ping, other.value.addresses[0], timeout=DEADLINE_S) > 0
        host = one.value
    assert not host.links
