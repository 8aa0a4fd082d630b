"""A host inside a program that is not trio's: one that runs on asyncio, or one of plain threads.

    async with in_asyncio(partial(open_host, identity, listen=[...])) as guest:     # asyncio's async with
        link = await guest.call(guest.value.connect, address)
    with in_thread(partial(open_host, identity, listen=[...])) as portal:           # no event loop at all
        seconds = portal.call(portal.value.ping, address, timeout=5)

What is opened is any async context manager of trio; `value` is what it gave, to be used inside of trio only. On asyncio
trio runs as a guest of its loop, in the same thread, of which trio allows one: for two hosts, open both in one manager.

Asks below: `trio.lowlevel.start_guest_run`, or a thread. Promises above: `call` gives back the result or raises the
error; whoever is cancelled or interrupted while waiting for it first cancels it in trio and waits for its end. What
fails at the opening is raised there; what ends trio later (a MachineError) is raised by calls under way, by each later
one and at the end of the block, so that `call(trio.sleep_forever)` is a way to wait for it. The end of a block, also
by an error, cancels the calls under way and waits for the clean close; a second cancellation makes that a quick one.
Bounds: a stream has at most 2 * `buffer` + 2 items ahead of who takes them; calls are as many as the program makes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager, nullcontext, suppress
from functools import partial
from threading import Thread
from typing import Any, Generic, TypeAlias, TypeVar, TypeVarTuple

import trio

from libweft.peer.errors import UsageError, alone

BUFFER = 64
WAKES = 0.5  # seconds; how late an interrupt may be

_V = TypeVar("_V")
_R = TypeVar("_R")
_Ts = TypeVarTuple("_Ts")
Opener: TypeAlias = Callable[[], AbstractAsyncContextManager[_V]]
Source: TypeAlias = AsyncIterable[_R] | AbstractAsyncContextManager[AsyncIterable[_R]]


class _Call(Generic[_R]):
    """One function on its way through trio. Its future is cancelled only when its caller gave it up."""

    def __init__(self, function: Callable[[], Awaitable[_R]], timeout: float | None = None) -> None:
        if trio.lowlevel.in_trio_task():
            raise UsageError("this is a task of trio, which awaits the function itself")
        self.function = function
        self.timeout = timeout
        self.future: Future[_R] = Future()
        self.scope = trio.CancelScope()
        self.given_up = False

    async def run(self) -> None:
        """When all of trio ends the future is left open, for whoever knows why it ended."""
        if self.timeout is not None:
            self.scope.deadline = trio.current_time() + self.timeout
        try:
            with self.scope:
                result = await self.function()
        except Exception as error:  # noqa: BLE001 - the future hands it to the caller
            self.future.set_exception(error)
            return
        if not self.scope.cancelled_caught:
            self.future.set_result(result)
        elif self.given_up:
            self.future.cancel()
        else:
            self.future.set_exception(TimeoutError(f"the call took more than {self.timeout:g} s"))

    def give_up(self) -> None:
        self.given_up = True
        self.scope.cancel()


def _pump(
    source: Callable[[], Source[_R]], buffer: int
) -> tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[list[_R]]]]:
    """What carries items to the edge of trio until they end, and what takes all that are there: none at the end."""
    sender, receiver = trio.open_memory_channel[_R](buffer)

    async def run() -> None:
        # The channel is closed last and without a checkpoint: by then an error of the source is on its way to the future.
        with sender:
            async with _entered(source()) as items:
                async for item in items:
                    await sender.send(item)

    async def take() -> list[_R]:
        batch: list[_R] = []
        with suppress(trio.EndOfChannel, trio.WouldBlock):
            batch.append(await receiver.receive())
            while True:
                batch.append(receiver.receive_nowait())
        return batch

    return run, take


def _entered(source: Source[_R]) -> AbstractAsyncContextManager[AsyncIterable[_R]]:
    """A generator is closed in the task that ran it; a channel is a context manager that closes itself."""
    if isinstance(source, AbstractAsyncContextManager):
        return source
    return aclosing(source) if isinstance(source, AsyncGenerator) else nullcontext(source)


class _TrioRun(Generic[_V]):
    """A run of trio, and what it opened, as its guest or its thread drives it.

    A method may be called only inside of trio, unless its docstring says "from any thread".
    """

    def __init__(self, opener: Opener[_V]) -> None:
        if trio.lowlevel.in_trio_run():
            raise UsageError("trio runs in this thread already; open all that you need in one context manager of trio")
        self._opener = opener
        self._token: Future[trio.lowlevel.TrioToken] = Future()
        self.opened: Future[_V] = Future()
        self.over: Future[None] = Future()  # trio is gone
        self.closing = trio.Event()
        self.scope = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self._calls: dict[_Call[Any], None] = {}
        self._ended = False
        self._left = False
        self._error: BaseException | None = None

    @property
    def value(self) -> _V:
        """From any thread: what the context manager gave."""
        if self.over.done():
            raise self._why()
        return self.opened.result()

    async def main(self) -> None:
        """The main task of trio: open, run the calls until `closing` is set, close."""
        self._token.set_result(trio.lowlevel.current_trio_token())
        try:
            with alone(), self.scope:
                async with self._opener() as value, trio.open_nursery() as self._nursery:
                    self.opened.set_result(value)
                    try:
                        await self.closing.wait()
                    finally:
                        nursery, self._nursery = self._nursery, None
                        nursery.cancel_scope.cancel()
        except BaseException as error:  # noqa: BLE001 - `leave` raises it again outside
            self._error = error
        self._ended = True
        if not self.opened.done():
            self.opened.set_exception(self._why())
        for call in list(self._calls):
            self._cut_off(call)

    def begin(self, call: _Call[Any]) -> None:
        """From any thread: start the call in trio."""
        try:
            self._token.result().run_sync_soon(self._start, call)
        except trio.RunFinishedError:
            call.future.set_exception(self._why())

    def _start(self, call: _Call[Any]) -> None:
        self._calls[call] = None
        call.future.add_done_callback(lambda _: self._calls.pop(call))
        if self._nursery is not None:
            self._nursery.start_soon(call.run)
        elif self._ended:
            self._cut_off(call)

    def _cut_off(self, call: _Call[Any]) -> None:
        if call.given_up:
            call.future.cancel()
        else:
            call.future.set_exception(self._why())

    def give_up(self, call: _Call[Any]) -> None:
        """From any thread, also when an interrupt came before the call had begun: its future is done in the end."""

        def cancel() -> None:
            call.give_up()
            if call not in self._calls:
                call.future.cancel()

        try:
            self._token.result().run_sync_soon(cancel)
        except trio.RunFinishedError:
            call.future.cancel()

    def ask(self, action: Callable[[], object]) -> None:
        """From any thread: do it in trio, also if that has yet to begin, and not at all if it has ended."""

        def pass_on(token: Future[trio.lowlevel.TrioToken]) -> None:
            with suppress(trio.RunFinishedError):
                token.result().run_sync_soon(action)

        self._token.add_done_callback(pass_on)

    def finished(self, error: BaseException | None) -> None:
        """From any thread, when trio is gone. `main` keeps its own errors, so `error` is trio's, or an interrupt it held back."""
        self._error = error or self._error
        self.over.set_result(None)

    def _why(self) -> BaseException:
        if self._error is not None and not self._left:
            return self._error
        return UsageError("this host is closed; it can be used inside its block only")

    def leave(self) -> None:
        """From any thread, at the end of the block: raise what ended trio, if it was an error."""
        self._left = True
        if self._error is not None:
            raise self._error

    def run_in_thread(self) -> None:
        """Outside of trio: the whole run, as the target of a thread."""
        try:
            trio.run(self.main)
        except BaseException as error:  # noqa: BLE001 - `leave` raises it again in the thread that asked for the run
            self.finished(error)
        else:
            self.finished(None)


class Guest(Generic[_V]):
    """A host as tasks of asyncio see it; made by `in_asyncio`."""

    def __init__(self, run: _TrioRun[_V]) -> None:
        self._run = run

    @property
    def value(self) -> _V:
        """From any thread: what the context manager gave."""
        return self._run.value

    async def call(self, function: Callable[[*_Ts], Awaitable[_R]], *args: *_Ts) -> _R:
        """Run it in trio. A cancellation comes out when it has ended there; if it ended by an error, that comes out."""
        call = _Call(partial(function, *args))
        self._run.begin(call)
        try:
            await _until(call.future, partial(self._run.give_up, call))
        except asyncio.CancelledError:
            if call.future.cancelled() or call.future.exception() is None:
                raise
        return call.future.result()

    async def stream(self, source: Callable[[*_Ts], Source[_R]], *args: *_Ts, buffer: int = BUFFER) -> AsyncGenerator[_R, None]:
        """The items of an async generator, of a channel, or of a context manager that gives one. Leaving the loop closes it."""
        carry, take = _pump(partial(source, *args), buffer)
        call = _Call(carry)
        give_up = partial(self._run.give_up, call)
        try:
            self._run.begin(call)
            while batch := await self.call(take):
                for item in batch:
                    yield item
        finally:
            give_up()
            await _until(call.future, give_up)
            if not call.future.cancelled():
                call.future.result()


class Portal(Generic[_V]):
    """A host as other threads see it, any number of them; made by `in_thread`."""

    def __init__(self, run: _TrioRun[_V]) -> None:
        self._run = run

    @property
    def value(self) -> _V:
        """From any thread: what the context manager gave."""
        return self._run.value

    def call(self, function: Callable[[*_Ts], Awaitable[_R]], *args: *_Ts, timeout: float | None = None) -> _R:
        """Run it in trio. TimeoutError when it was cancelled there because its time was up."""
        call = _Call(partial(function, *args), timeout)
        _wait(partial(self._run.begin, call), call.future, partial(self._run.give_up, call))
        return call.future.result()

    def stream(self, source: Callable[[*_Ts], Source[_R]], *args: *_Ts, buffer: int = BUFFER) -> Generator[_R, None, None]:
        """As `Guest.stream`."""
        carry, take = _pump(partial(source, *args), buffer)
        call = _Call(carry)
        give_up = partial(self._run.give_up, call)
        try:
            self._run.begin(call)
            while batch := self.call(take):
                yield from batch
        finally:
            _wait(give_up, call.future, give_up)
            if not call.future.cancelled():
                call.future.result()


@asynccontextmanager
async def in_asyncio(opener: Opener[_V]) -> AsyncIterator[Guest[_V]]:
    """Run what `opener` opens on this task's loop, until the block ends."""
    run = _TrioRun(opener)
    loop = asyncio.get_running_loop()
    trio.lowlevel.start_guest_run(
        run.main,
        run_sync_soon_threadsafe=loop.call_soon_threadsafe,
        run_sync_soon_not_threadsafe=loop.call_soon,
        done_callback=lambda outcome: run.finished(getattr(outcome, "error", None)),
        host_uses_signal_set_wakeup_fd=True,
    )
    quick = partial(run.ask, run.scope.cancel)
    try:
        await _until(run.opened, quick)
        run.opened.result()
        yield Guest(run)
    finally:
        run.ask(run.closing.set)
        try:
            await _until(run.over, quick)
        finally:
            run.leave()


@contextmanager
def in_thread(opener: Opener[_V]) -> Iterator[Portal[_V]]:
    """Run what `opener` opens in a thread of its own, until the block ends."""
    run = _TrioRun(opener)
    close, quick = partial(run.ask, run.closing.set), partial(run.ask, run.scope.cancel)
    # A daemon: whatever an interrupt manages to break must not leave a process that never ends.
    thread = Thread(target=run.run_in_thread, name="weft", daemon=True)
    try:
        try:
            thread.start()
            _done(run.opened)
            run.opened.result()
        except BaseException:
            quick()
            raise
        yield Portal(run)
    finally:
        try:
            if thread.is_alive():  # not if an interrupt struck while it was started; it ends by itself then
                _wait(close, run.over, quick)
                thread.join()
        finally:
            run.leave()


async def _until(future: Future[Any], give_up: Callable[[], None]) -> None:
    """Wait until it is done. A cancellation calls `give_up`, and comes out only then."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    future.add_done_callback(lambda _: loop.call_soon_threadsafe(done.set))
    cancelled: asyncio.CancelledError | None = None
    while not done.is_set():
        try:
            await done.wait()
        except asyncio.CancelledError as error:
            cancelled = error
            give_up()
    if cancelled is not None:
        raise cancelled


def _wait(begin: Callable[[], None], future: Future[Any], give_up: Callable[[], None]) -> None:
    """The same for a thread: an interrupt, wherever it strikes, calls `give_up` and waits; a second one waits no longer."""
    try:
        begin()
        _done(future)
    except BaseException:
        give_up()
        _done(future)
        raise


def _done(future: Future[Any]) -> None:
    """A signal that comes just before a thread blocks on a lock is handled only when it wakes: so it wakes now and then."""
    while not future.done():
        with suppress(CancelledError, TimeoutError):
            future.exception(WAKES)  # `concurrent.futures.wait` does not hear of one that was cancelled
