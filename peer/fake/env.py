"""The Env of one machine in a unit test: it records what the machine asked for."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any, NamedTuple

from libweft.peer.errors import UsageError
from libweft.peer.machine import Message, MessageId, Peer, PeerInfo


class Traced(NamedTuple):
    """One row, as a machine wrote it."""

    t: int
    kind: str
    topic: str | None = None
    msg: MessageId | None = None
    peer: Peer | None = None
    hops: int | None = None
    reason: str | None = None
    dependencies: tuple[MessageId, ...] = ()


class FakeTimer:
    __slots__ = ("action", "args", "due")

    def __init__(self, due: int, action: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.due = due
        self.action: Callable[..., None] | None = action
        self.args = args

    def cancel(self) -> None:
        self.action = None


class FakeClock:
    """Virtual time in whole microseconds; timers fire in exact order of (time, sequence)."""

    def __init__(self) -> None:
        self.now = 0
        self._timers: list[tuple[int, int, FakeTimer]] = []
        self._sequence = 0

    def after(self, delay: int, action: Callable[..., None], *args: Any) -> FakeTimer:
        if delay < 0:
            raise UsageError(f"a timer of {delay} us lies in the past")
        self._sequence += 1
        timer = FakeTimer(self.now + delay, action, args)
        heappush(self._timers, (timer.due, self._sequence, timer))
        return timer

    def fire(self, until: int) -> bool:
        """Fire the next timer that is due by then, at its own time; False when there is none, and then it is `until`."""
        while self._timers and self._timers[0][0] <= until:
            timer = heappop(self._timers)[2]
            action, timer.action = timer.action, None
            if action is not None:
                self.now = timer.due
                action(*timer.args)
                return True
        self.now = max(self.now, until)
        return False

    @property
    def due(self) -> int | None:
        """The time at which the next timer fires, None if no timer is set."""
        return min((due for due, _, timer in self._timers if timer.action is not None), default=None)

    @property
    def waiting(self) -> int:
        """The number of timers that are set and have neither fired nor been cancelled."""
        return sum(timer.action is not None for _, _, timer in self._timers)


class FakeRequest:
    """A request that waits for `reply` or `fail`; only the first of them is heard."""

    __slots__ = ("_on_fail", "_on_reply", "msg", "peer", "settled", "timeout", "timer")

    def __init__(
        self, peer: Peer, msg: Message, timeout: int, on_reply: Callable[[Peer, Any], None], on_fail: Callable[[Peer, str], None]
    ) -> None:
        self.peer = peer
        self.msg = msg
        self.timeout = timeout
        self.settled = False
        self.timer: FakeTimer | None = None
        self._on_reply = on_reply
        self._on_fail = on_fail

    def reply(self, msg: Message) -> None:
        if self._settle():
            self._on_reply(self.peer, msg)

    def fail(self, reason: str) -> None:
        if self._settle():
            self._on_fail(self.peer, reason)

    def _settle(self) -> bool:
        first, self.settled = not self.settled, True
        if self.timer is not None:
            self.timer.cancel()
        return first


class FakeEnv:
    """Implements `libweft.peer.machine.Env` for one machine, and records.

    `sent`, `requests`, `traced`: in order, until `take`, `take_requests` or `take_traced` clears them.
    `holds`: the peers this machine is connected to by its own wish, in order. `infos`: what it learned.
    `backlogs`: what `backlog` answers, set by the test. `store` and `epoch` are the test's to fill.
    """

    def __init__(self, me: Peer = 0, seed: int | str = 0, epoch: int = 1, clock: FakeClock | None = None) -> None:
        self.me = me
        self.rng = Random(seed)
        self.epoch = epoch
        self.tracing = True
        self.clock = clock or FakeClock()
        self.store: dict[str, bytes] = {}
        self.sent: list[tuple[Peer, Message]] = []
        self.requests: list[FakeRequest] = []
        self.traced: list[Traced] = []
        self.holds: dict[Peer, None] = {}
        self.backlogs: dict[Peer, int] = {}
        self.infos: dict[Peer, PeerInfo] = {}

    def now(self) -> int:
        return self.clock.now

    def after(self, delay: int, action: Callable[..., None], *args: Any) -> FakeTimer:
        return self.clock.after(delay, action, *args)

    def send(self, peer: Peer, msg: Message) -> None:
        self.sent.append((peer, msg))

    def send_all(self, peers: tuple[Peer, ...], msg: Message, but: Peer | None = None) -> None:
        for peer in peers:
            if peer != but:
                self.send(peer, msg)

    def request(
        self, peer: Peer, msg: Message, timeout: int, on_reply: Callable[[Peer, Any], None], on_fail: Callable[[Peer, str], None]
    ) -> None:
        request = FakeRequest(peer, msg, timeout, on_reply, on_fail)
        self.requests.append(request)
        request.timer = self.after(timeout, request.fail, "timeout")

    def connect(self, peer: Peer) -> None:
        self.holds[peer] = None

    def disconnect(self, peer: Peer) -> None:
        self.holds.pop(peer, None)

    def backlog(self, peer: Peer) -> int:
        return self.backlogs.get(peer, 0)

    def learn(self, info: PeerInfo) -> None:
        self.infos[info.peer] = info

    def info(self, peer: Peer) -> PeerInfo:
        return self.infos.get(peer) or PeerInfo(peer)

    def trace(
        self,
        kind: str,
        topic: str | None = None,
        msg: MessageId | None = None,
        peer: Peer | None = None,
        hops: int | None = None,
        reason: str | None = None,
        dependencies: tuple[MessageId, ...] = (),
    ) -> None:
        self.traced.append(Traced(self.now(), kind, topic, msg, peer, hops, reason, dependencies))

    def advance(self, us: int) -> None:
        """Let time pass: all timers due by then fire, those set on the way too."""
        until = self.clock.now + us
        while self.clock.fire(until):
            pass

    def take(self) -> list[tuple[Peer, Message]]:
        sent, self.sent = self.sent, []
        return sent

    def take_requests(self) -> list[FakeRequest]:
        requests, self.requests = self.requests, []
        return requests

    def take_traced(self) -> list[Traced]:
        traced, self.traced = self.traced, []
        return traced
