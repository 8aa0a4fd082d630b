"""Datagrams: the Env of protocols over UDP that ask and answer by message id, and its socket loop on trio.

    async with open_datagram(lambda env: Machine(env, ...), port=0) as node:
        answer = await node.call(node.machine.get_something, within=30)

The frame is that of the PyPI package rpcudp: one byte, 00 for a request or 01 for a reply, 20 bytes of message id, then the
content, at most 8,192 bytes of it. A machine deals in contents: it is `asked` and answers, and it asks by `Env.request`. It
imports no clock, no chance and no socket, so the same machine runs in the simulator (`peer.sim_datagram`).

Below it asks for: nothing. A datagram may be lost, come twice, late, or from somebody who lies about everything but, where a
reply has the id of a request, about having got that request.
Above it promises: a reply counts only from the address that was asked, and once. What does not fit the frame or, by a
PeerError, the machine, is dropped and counted as garbage here and nowhere else; it costs nobody anything more.
Bounds: PENDING requests under way, each until its timeout; BURST datagrams before other tasks have their turn; datagrams that
the kernel has no room for are lost, as on the way. Timers are the machine's own, and one a request.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from heapq import heappop, heappush
from ipaddress import ip_address
from math import inf
from random import SystemRandom
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import trio

from peer.errors import PeerError, UsageError, WeftError, alone
from peer.machine import SECOND, Rng, Timer

Address: TypeAlias = tuple[str, int]
"""An IP address as text, and a port."""

REQUEST, REPLY = 0, 1
ID_SIZE = 20
HEAD = 1 + ID_SIZE
CONTENT_LIMIT = 8_192
PENDING = 4_096
BURST = 64

GARBAGE = "garbage"  # datagrams that fit no frame, or that the machine refused
UNASKED = "unasked"  # replies that nobody waits for: late, a second time, or from another address
UNSENT = "unsent"  # datagrams that the kernel did not take
REFUSED = "refused"  # requests beyond PENDING

Answer: TypeAlias = Callable[[bytes], None]
OnReply: TypeAlias = Callable[[Address, bytes], None]
OnFail: TypeAlias = Callable[[Address, str], None]


class NoAnswer(WeftError):
    """Nobody answered in time; whose fault it is cannot be told."""


class DatagramEnv(Protocol):
    """All that a machine over datagrams may ask of the world. `counts` says what was dropped, and why."""

    @property
    def me(self) -> Address: ...
    @property
    def rng(self) -> Rng: ...
    @property
    def counts(self) -> Counter[str]: ...

    def now(self) -> int: ...
    def after(self, delay: int, action: Callable[..., None], *args: Any) -> Timer: ...

    def send(self, address: Address, data: bytes) -> None:
        """One datagram as it is. Never waits and never raises; whether it arrives, nobody tells."""

    def request(self, address: Address, content: bytes, timeout: int, on_reply: OnReply, on_fail: OnFail) -> None:
        """Until the node is closed exactly one of the two is called, once and later; an `on_reply` that raises PeerError is
        followed by `on_fail`.

        Content over CONTENT_LIMIT raises UsageError, at once.
        """


class DatagramMachine(Protocol):
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def asked(self, sender: Address, content: bytes, answer: Answer) -> None:
        """A request has come; `answer` may be called once, now or later. PeerError for what does not fit."""


Machine = TypeVar("Machine", bound=DatagramMachine)
Result = TypeVar("Result")


class Pending(NamedTuple):
    address: Address
    on_reply: OnReply
    on_fail: OnFail
    timer: Timer


class Endpoint(Generic[Machine]):
    """Requests and replies by message id, without IO; a subclass has a clock, and `send`."""

    machine: Machine

    def __init__(self, me: Address, rng: Rng) -> None:
        self.me = me
        self.rng = rng
        self.counts: Counter[str] = Counter()
        self.pending: dict[bytes, Pending] = {}
        self.closed = False

    def now(self) -> int:
        raise NotImplementedError

    def after(self, delay: int, action: Callable[..., None], *args: Any) -> Timer:
        raise NotImplementedError

    def send(self, address: Address, data: bytes) -> None:
        raise NotImplementedError

    def request(self, address: Address, content: bytes, timeout: int, on_reply: OnReply, on_fail: OnFail) -> None:
        check_size(content)
        if len(self.pending) >= PENDING:
            self.counts[REFUSED] += 1
            self.after(0, on_fail, address, "too many requests are under way")
            return
        number = self.rng.randbytes(ID_SIZE)
        self.pending[number] = Pending(address, on_reply, on_fail, self.after(timeout, self._timed_out, number))
        self.send(address, bytes((REQUEST,)) + number + content)

    def take(self, sender: Address, data: bytes) -> None:
        """A datagram has come. The one place where a peer's fault ends."""
        try:
            self._take(sender, data)
        except PeerError:
            self.counts[GARBAGE] += 1

    def close(self) -> None:
        """What is under way is forgotten, and what still comes is not looked at."""
        self.machine.stop()
        self.closed = True
        for waiting in self.pending.values():
            waiting.timer.cancel()
        self.pending.clear()

    def _take(self, sender: Address, data: bytes) -> None:
        if self.closed:
            return
        if not HEAD < len(data) <= HEAD + CONTENT_LIMIT:
            raise PeerError(f"a datagram of {len(data)} bytes")
        kind, number, content = data[0], data[1:HEAD], data[HEAD:]
        if kind == REQUEST:
            self.machine.asked(sender, content, partial(self._answer, sender, number))
        elif kind == REPLY:
            self._replied(sender, number, content)
        else:
            raise PeerError(f"a datagram of the kind {kind}")

    def _answer(self, address: Address, number: bytes, content: bytes) -> None:
        check_size(content)
        if not self.closed:
            self.send(address, bytes((REPLY,)) + number + content)

    def _replied(self, sender: Address, number: bytes, content: bytes) -> None:
        waiting = self.pending.get(number)
        if waiting is None or waiting.address != sender:
            self.counts[UNASKED] += 1
            return
        del self.pending[number]
        waiting.timer.cancel()
        try:
            waiting.on_reply(sender, content)
        except PeerError as error:
            waiting.on_fail(sender, str(error))
            raise

    def _timed_out(self, number: bytes) -> None:
        if (waiting := self.pending.pop(number, None)) is not None:
            waiting.on_fail(waiting.address, "timeout")


def check_size(content: bytes) -> None:
    if len(content) > CONTENT_LIMIT:
        raise UsageError(f"{len(content)} bytes do not fit into a datagram of this protocol, which has {CONTENT_LIMIT} at most")


class LiveTimer:
    __slots__ = ("action", "args")

    def __init__(self, action: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.action: Callable[..., None] | None = action
        self.args = args

    def cancel(self) -> None:
        self.action = None
        self.args = ()


class Datagrams(Endpoint[Machine]):
    """One machine on a UDP socket; made by `open_datagram`. Its chance is the system's, so nobody can guess an id."""

    def __init__(self, sock: socket.socket) -> None:
        host, port = sock.getsockname()[:2]
        super().__init__((host, port), SystemRandom())
        self._socket = sock
        self._timers: list[tuple[int, int, LiveTimer]] = []
        self._sequence = 0
        self._woken = trio.Event()
        self._calls: dict[trio.Event, None] = {}

    def now(self) -> int:
        return round(trio.current_time() * SECOND)

    def after(self, delay: int, action: Callable[..., None], *args: Any) -> LiveTimer:
        timer = LiveTimer(action, args)
        self._sequence += 1
        heappush(self._timers, (self.now() + delay, self._sequence, timer))
        if self._timers[0][2] is timer:
            self._woken.set()
        return timer

    def send(self, address: Address, data: bytes) -> None:
        """A name in place of an IP address would have to be waited for, so whoever calls has made sure that it is none."""
        try:
            self._socket.sendto(data, address)
        except OSError:
            self.counts[UNSENT] += 1

    async def call(self, start: Callable[[Callable[[Result], None]], None], within: float) -> Result:
        """Await what `start` begins, and tells its argument the result of. When cancelled, it goes on unheard until its end.

        NoAnswer after that many seconds, UsageError when the node is closed before.
        """
        results: list[Result] = []
        done = trio.Event()

        def settle(result: Result) -> None:
            results.append(result)
            done.set()

        self._check_open()
        self._calls[done] = None
        try:
            with trio.move_on_after(within):
                start(settle)
                await done.wait()
        finally:
            del self._calls[done]
        if results:
            return results[0]
        self._check_open()
        raise NoAnswer(f"no answer within {within:g} s; is the network reachable over UDP?")

    def close(self) -> None:
        super().close()
        self._timers.clear()
        for done in self._calls:
            done.set()

    def _check_open(self) -> None:
        if self.closed:
            raise UsageError("the node is closed; ask inside its `async with` block")

    async def read(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            for _ in range(BURST):
                try:
                    data, sender = self._socket.recvfrom(HEAD + CONTENT_LIMIT + 1)
                except BlockingIOError:
                    break
                except ConnectionError:  # Windows tells so of an earlier datagram to a port where nobody listens
                    continue
                self.take((sender[0], sender[1]), data)

    async def keep_time(self) -> None:
        while True:
            for _ in range(BURST):
                if not self._timers or self._timers[0][0] > self.now():
                    break
                self._fire(heappop(self._timers)[2])
            self._woken = trio.Event()
            with trio.move_on_at(self._timers[0][0] / SECOND if self._timers else inf):
                await self._woken.wait()

    def _fire(self, timer: LiveTimer) -> None:
        action, args = timer.action, timer.args
        timer.cancel()
        if action is not None:
            action(*args)


@asynccontextmanager
async def open_datagram(
    build: Callable[[DatagramEnv], Machine], *, host: str = "0.0.0.0", port: int = 0
) -> AsyncIterator[Datagrams[Machine]]:
    """A machine on a socket of its own, until the block ends. An error of the machine ends the block too."""
    with alone(), _bound(host, port) as sock:
        endpoint: Datagrams[Machine] = Datagrams(sock)
        endpoint.machine = build(endpoint)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(endpoint.read)
            nursery.start_soon(endpoint.keep_time)
            try:
                endpoint.machine.start()
                yield endpoint
            finally:
                endpoint.close()
                nursery.cancel_scope.cancel()


async def resolve(places: Sequence[Address], like: str) -> list[Address]:
    """Names to IP addresses of the same family as `like`; UsageError where there is none."""
    family = socket.AF_INET6 if ":" in like else socket.AF_INET
    found: list[Address] = []
    for place in places:
        if not isinstance(place, tuple | list) or len(place) != 2 or not isinstance(place[0], str):
            raise UsageError(f"{place!r:.80} is no place of a node; such as ('192.0.2.1', 5678), and several of them in a list")
        host, port = place
        if type(port) is not int or not 0 < port < 1 << 16:
            raise UsageError(f"{host}:{port} names no port from 1 to 65535")
        try:
            [first, *_] = await trio.socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM)
        except (OSError, UnicodeError) as error:
            raise UsageError(f"{host}:{port} cannot be found ({error}); give a name or an IP address of a node") from None
        found.append((str(first[4][0]), port))
    return found


def _bound(host: str, port: int) -> socket.socket:
    if type(port) is not int:
        raise UsageError(f"a port is a whole number, not {port!r:.80}")
    try:
        family = socket.AF_INET6 if ip_address(host).version == 6 else socket.AF_INET
    except ValueError:
        raise UsageError(f"{host!r} is no IP address to listen on; 0.0.0.0 is all of this machine's") from None
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # an IPv4 peer would have two addresses
        sock.bind((host, port))
    except (OSError, OverflowError) as error:
        sock.close()
        raise UsageError(f"UDP port {port} of {host} cannot be had ({error}); take another, or 0 for any that is free") from None
    return sock
