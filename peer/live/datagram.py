"""Datagrams on a socket: the Env of `libweft.peer.datagram`, and its loop on trio.

    async with open_datagram(lambda env: Machine(env, ...), port=0) as node:
        answer = await node.call(node.machine.get_something, within=30)

Bounds: BURST datagrams before other tasks have their turn; datagrams that the kernel has no room for are lost, as on the way.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from ipaddress import ip_address
from math import inf
from random import SystemRandom
from typing import Any, TypeVar

import trio

from libweft.peer.datagram import CONTENT_LIMIT, HEAD, UNSENT, Address, DatagramEnv, Endpoint, Machine, NoAnswer
from libweft.peer.errors import UsageError, alone
from libweft.peer.machine import SECOND

BURST = 64

Result = TypeVar("Result")


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
