"""Datagrams: the contract of machines over UDP that ask and answer by message id.

The frame is that of the PyPI package rpcudp: one byte, 00 for a request or 01 for a reply, 20 bytes of message id, then the
content, at most 8,192 bytes of it. A machine deals in contents: it is `asked` and answers, and it asks by `Env.request`. It
imports no clock, no chance and no socket, so the same machine runs on a socket (`libweft.peer.live.datagram`) and in the
simulator (`libweft.peer.sim.datagram`).

Below it asks for: nothing. A datagram may be lost, come twice, late, or from somebody who lies about everything but, where a
reply has the id of a request, about having got that request.
Above it promises: a reply counts only from the address that was asked, and once. What does not fit the frame or, by a
PeerError, the machine, is dropped and counted as garbage here and nowhere else; it costs nobody anything more.
Bounds: PENDING requests under way, each until its timeout. Timers are the machine's own, and one a request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from libweft.peer.errors import PeerError, UsageError, WeftError
from libweft.peer.machine import Rng, Timer

Address: TypeAlias = tuple[str, int]
"""An IP address as text, and a port."""

REQUEST, REPLY = 0, 1
ID_SIZE = 20
HEAD = 1 + ID_SIZE
CONTENT_LIMIT = 8_192
PENDING = 4_096

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
