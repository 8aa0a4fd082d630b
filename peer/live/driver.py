"""The driver: runs a stack of machines on a host, as `libweft.peer.sim.simulator` runs it in virtual time.

    async with open_host(identity, listen=[...]) as host, run_stack(host, build) as driver:
        ...                                   # driver.machines; a machine that crashes ends this block

Each machine has an Env bound to its protocols. What it sends leaves on a one-way stream of its own (`libweft.peer.live.outbox`),
what it asks goes over a stream a request. Links, holds and dials follow the contract of `libweft.peer.machine`; who hears of a
link is decided by `libweft.peer.dispatch`, from the protocols that the peer named by identify. A peer's bytes wait until its link
was told.

One place for a peer's fault: a PeerError out of any upcall costs that peer's link, with a log line. Any other error of a
machine is a crash: no machine is called any more, and `run_stack` raises MachineError.
Bounds: the outbox's; PARKED bytes a machine for a peer that is being dialled; HALF_FRAMES a link, ANSWERS a stream; REQUESTS
under way; timers are the machines' own.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Callable, KeysView, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from heapq import heappop, heappush
from math import inf
from pathlib import Path
from random import Random
from time import time_ns
from typing import Any, TypeAlias

import trio

from libweft.peer.dispatch import about, ask, receive, told_by
from libweft.peer.errors import PeerError, Refused, UsageError, WeftError, alone
from libweft.peer.libp2p.address import Address
from libweft.peer.libp2p.frame import Frames, frame
from libweft.peer.libp2p.ids import peer_text
from libweft.peer.libp2p.records import read_record
from libweft.peer.live.host import Host
from libweft.peer.live.link import LiveLink, Stream, StreamError
from libweft.peer.live.outbox import LIMIT, Outbox, Outlet, Parcel
from libweft.peer.live.store import FileStore
from libweft.peer.machine import EPOCH_BITS, SECOND, Build, Link, Machine, Message, MessageId, Peer, PeerInfo, speaks
from libweft.peer.overload import admit
from libweft.peer.trace.kinds import DROP, LINK_DOWN, LINK_UP, NODE_DOWN, NODE_UP, ROLE, SEND
from libweft.peer.trace.tracer import Tracer

log = logging.getLogger("libweft.driver")

PARKED = LIMIT
REQUESTS = 1_024
HALF_FRAMES = 4 << 20  # bytes a link; one frame may have a quarter of it
ANSWERS = 4 << 20  # bytes a stream that the peer has not taken
ALONE_S = 30.0  # until a message that goes alone was taken, its dial included
FIRED = 256  # timers in a row before other tasks have their turn

Upcall: TypeAlias = Callable[..., None]


class MachineError(WeftError):
    """A machine raised what no machine may raise; the stack was stopped."""


class LiveTimer:
    __slots__ = ("action", "args")

    def __init__(self, action: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.action: Callable[..., None] | None = action
        self.args = args

    def cancel(self) -> None:
        self.action = None


class DriverEnv:
    """The Env of one machine."""

    machine: Machine

    def __init__(self, driver: Driver, store: MutableMapping[str, bytes]) -> None:
        self.driver = driver
        self.me: Peer = driver.host.peer
        self.rng = Random(secrets.randbits(64))
        self.epoch = driver.epoch
        self.tracing = driver.tracer is not None
        self.store = store
        self.holds: dict[bytes, None] = {}
        self.outlets: dict[Peer, Outlet] = {}
        self.now = driver.now
        self.after = driver.after

    def bind(self, machine: Machine) -> None:
        self.machine = machine
        self.codec = machine.codec()

    def send(self, peer: Peer, msg: Message) -> None:
        parcel = Parcel(msg, self.codec)
        self.driver.post(self, peer, parcel)
        if self.driver.tracer is not None:
            self.driver.trace_send((peer,), parcel)

    def send_all(self, peers: tuple[Peer, ...], msg: Message, but: Peer | None = None) -> None:
        parcel = Parcel(msg, self.codec)
        copies = 0
        for peer in peers:
            if peer != but:
                copies += 1
                self.driver.post(self, peer, parcel)
        if self.driver.tracer is not None and copies:
            self.driver.trace_send(peers if but is None else tuple(peer for peer in peers if peer != but), parcel)

    def request(
        self, peer: Peer, msg: Message, timeout: int, on_reply: Callable[[Peer, Any], None], on_fail: Callable[[Peer, str], None]
    ) -> None:
        self.driver.request(self, _bytes(peer), msg, timeout, on_reply, on_fail)

    def connect(self, peer: Peer) -> None:
        self.driver.hold(self, _bytes(peer))

    def disconnect(self, peer: Peer) -> None:
        self.driver.release(self, _bytes(peer))

    def backlog(self, peer: Peer) -> int:
        outlet = self.outlets.get(peer)
        return outlet.waiting if outlet is not None else self.driver.parked_bytes(self, _bytes(peer))

    def learn(self, info: PeerInfo) -> None:
        self.driver.learn(info)

    def info(self, peer: Peer) -> PeerInfo:
        return self.driver.info(_bytes(peer))

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
        if kind == ROLE and peer is not None:
            who = peer_text(_bytes(peer))
            log.warning("%s is %s", who, reason, extra={"peer": who, "reason": reason})
        if (tracer := self.driver.tracer) is not None:
            tracer.emit(self.driver.wall(), self.me, kind, topic, msg, peer, hops, None, None, None, reason, dependencies)


class Linked:
    """A link as this stack sees it: who was told of it, and what waits to leave."""

    __slots__ = ("heard", "held", "link", "outbox")

    def __init__(self, link: LiveLink, outbox: Outbox, heard: list[tuple[Machine, str]]) -> None:
        self.link = link
        self.held = 0  # bytes of frames that have not come whole, on all streams of the link
        self.outbox = outbox
        self.heard = heard


class Driver:
    """Made by `run_stack`; watches the host."""

    def __init__(self, host: Host, nursery: trio.Nursery, tracer: Tracer | None, folder: Path | None) -> None:
        self.host = host
        self.tracer = tracer
        self.envs: list[DriverEnv] = []
        self.crash: Exception | None = None
        self.stopped = False
        self._nursery = nursery
        self._folder = folder
        self.epoch = _epoch(folder)
        self._links: dict[bytes, Linked] = {}
        self._told: dict[LiveLink, Linked] = {}
        self._early: dict[LiveLink, list[tuple[DriverEnv, Stream]]] = {}
        self._dials: dict[bytes, dict[DriverEnv, list[Parcel]]] = {}
        self._timers: list[tuple[int, int, LiveTimer]] = []
        self._sequence = 0
        self._requests = 0
        self._woken = trio.Event()
        self._crashed = trio.Event()
        self._clock = trio.lowlevel.current_clock()
        self._wall = time_ns() // 1_000 - self.now()

    @property
    def machines(self) -> list[Machine]:
        return [env.machine for env in self.envs]

    def speakers(self, machine: Machine) -> KeysView[Peer]:
        """The peers with a link that speak a protocol of the machine's."""
        return next(env.outlets.keys() for env in self.envs if env.machine is machine)

    @property
    def requests(self) -> int:
        return self._requests

    @property
    def timers(self) -> int:
        """Set, and neither fired nor cancelled."""
        return sum(timer.action is not None for _, _, timer in self._timers)

    @property
    def parked(self) -> int:
        """Bytes that wait for a dial."""
        return sum(parcel.size for waiting in self._dials.values() for parcels in waiting.values() for parcel in parcels)

    def now(self) -> int:
        return round(self._clock.current_time() * SECOND)

    def wall(self) -> int:
        """The time of a trace: microseconds since 1970, that never go back."""
        return self._wall + self.now()

    def after(self, delay: int, action: Callable[..., None], *args: Any) -> LiveTimer:
        if delay < 0:
            raise UsageError(f"a timer of {delay} us lies in the past")
        timer = LiveTimer(action, args)
        due = self.now() + delay
        self._sequence += 1
        if not self._timers or due < self._timers[0][0]:
            self._woken.set()
        heappush(self._timers, (due, self._sequence, timer))
        return timer

    # Sending.

    def post(self, env: DriverEnv, peer: Peer, parcel: Parcel) -> None:
        outlet = env.outlets.get(peer)
        if parcel.msg.alone:
            self._post_alone(env, _bytes(peer), parcel)
        elif outlet is None:
            self._post_elsewhere(env, _bytes(peer), parcel)
        elif (verdict := admit(parcel.msg, parcel.size, outlet.queued, LIMIT)) == "send":
            outlet.put(parcel)
        elif verdict == "drop":
            self._never_left(env, peer, parcel, "the outbox is full")
        else:
            self._links[_bytes(peer)].link.close("the outbox is full: the peer is too slow")

    def _post_alone(self, env: DriverEnv, peer: bytes, parcel: Parcel) -> None:
        if self._requests >= REQUESTS:
            self._never_left(env, peer, parcel, "too many requests are under way")
        else:
            self._requests += 1
            self._nursery.start_soon(self._send_alone, env, peer, parcel)

    async def _send_alone(self, env: DriverEnv, peer: bytes, parcel: Parcel) -> None:
        """What went wrong after it was sent is nobody's loss; the stream ends by the peer, or by patience."""
        sent, failure = False, "timeout"
        try:
            with trio.move_on_after(ALONE_S):
                async with await self._stream_for(env, peer) as stream:
                    await stream.send_all(parcel.wire or b"".join(map(frame, env.codec.pack((parcel.msg,)))))
                    stream.finish()
                    sent = True
                    while await stream.receive_some():
                        pass
        except (WeftError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            failure = str(error)
        finally:
            self._requests -= 1
        if not sent:
            self._never_left(env, peer, parcel, failure)

    def _post_elsewhere(self, env: DriverEnv, peer: bytes, parcel: Parcel) -> None:
        """There is no way to the peer yet: a link without it, or none at all, and then one is dialled."""
        if peer in self._links:
            self._never_left(env, peer, parcel, "no common protocol")
        elif admit(parcel.msg, parcel.size, self.parked_bytes(env, peer), PARKED) == "send":
            self._reach(env, peer).append(parcel)
        else:
            self._never_left(env, peer, parcel, "too much waits for the dial")

    def parked_bytes(self, env: DriverEnv, peer: bytes) -> int:
        return sum(parcel.size for parcel in self._dials.get(peer, {}).get(env, ()))

    def _never_left(self, env: DriverEnv, peer: Peer, parcel: Parcel, reason: str) -> None:
        if self.tracer is not None:
            topic, known = about(parcel.msg)
            self.tracer.emit(self.wall(), env.me, DROP, topic, known, peer, None, 1, None, parcel.msg.lane, reason)
        self.after(0, env.machine.dropped, peer, parcel.msg)

    def trace_send(self, peers: tuple[Peer, ...], parcel: Parcel) -> None:
        assert self.tracer is not None
        topic, known = about(parcel.msg)
        only = peers[0] if len(peers) == 1 else None
        t, lane = self.wall(), parcel.msg.lane
        self.tracer.emit(t, self.host.peer, SEND, topic, known, only, None, len(peers), parcel.size, lane)
        self.tracer.copies(t, self.host.peer, peers, topic, known, parcel.size, lane)

    # Requests.

    def request(self, env: DriverEnv, peer: bytes, msg: Message, timeout: int, on_reply: Upcall, on_fail: Upcall) -> None:
        if self._requests >= REQUESTS:
            self.after(0, on_fail, peer, "too many requests are under way")
        else:
            self._requests += 1
            self._nursery.start_soon(self._ask, env, peer, Parcel(msg, env.codec), timeout / SECOND, on_reply, on_fail)

    async def _ask(self, env: DriverEnv, peer: bytes, parcel: Parcel, limit: float, on_reply: Upcall, on_fail: Upcall) -> None:
        failure = "timeout"
        try:
            with trio.move_on_after(limit):
                reply = await self._answer_of(env, peer, parcel)
                self._upcall(peer, on_reply, peer, reply)
                return
        except PeerError as error:
            self._drop(peer, str(error))
            failure = str(error)
        except (WeftError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            failure = str(error)
        finally:
            self._requests -= 1
        self._upcall(peer, on_fail, peer, failure)

    async def _answer_of(self, env: DriverEnv, peer: bytes, parcel: Parcel) -> Message:
        async with await self._stream_for(env, peer) as stream:
            data = parcel.wire or b"".join(map(frame, env.codec.pack((parcel.msg,))))
            await stream.send_all(data)
            frames = Frames(env.codec.limit)
            while data := await stream.receive_some():
                for answer in frames.feed(data):
                    for msg in env.codec.unpack(answer):
                        return msg
        raise StreamError("the peer ended the stream without an answer")

    async def _stream_for(self, env: DriverEnv, peer: bytes) -> AbstractAsyncContextManager[Stream]:
        link = await self.host.connect(peer)
        protocol = speaks(env.machine.protocols, link.protocols)
        if protocol is None:
            raise StreamError("no common protocol")
        return link.open((protocol,))

    # Holds and dials.

    def hold(self, env: DriverEnv, peer: bytes) -> None:
        if peer not in env.holds:
            env.holds[peer] = None
            self.host.protect(peer)
        if peer in self._links:
            self.after(0, self._useless, env, peer)
        else:
            self._reach(env, peer)

    def release(self, env: DriverEnv, peer: bytes) -> None:
        if peer in env.holds:
            self._let_go(env, peer)
            if not any(peer in other.holds for other in self.envs) and (linked := self._links.get(peer)):
                self._unlink(peer)
                linked.link.finish("released")

    def _let_go(self, env: DriverEnv, peer: bytes) -> None:
        if peer in env.holds:
            del env.holds[peer]
            self.host.unprotect(peer)

    def _reach(self, env: DriverEnv, peer: bytes) -> list[Parcel]:
        """What this machine has waiting for the dial, which is begun if need be."""
        waiting = self._dials.get(peer)
        if waiting is None:
            waiting = self._dials[peer] = {}
            self._nursery.start_soon(self._dial, peer)
        return waiting.setdefault(env, [])

    async def _dial(self, peer: bytes) -> None:
        try:
            await self.host.connect(peer)
        except WeftError as error:
            for env, parcels in self._dials.pop(peer, {}).items():
                for parcel in parcels:
                    self._never_left(env, peer, parcel, "no link")
                self._failed(env, peer, str(error))

    def _failed(self, env: DriverEnv, peer: bytes, reason: str) -> None:
        self._let_go(env, peer)
        self._upcall(peer, env.machine.link_down, peer, 0, reason)

    def _useless(self, env: DriverEnv, peer: bytes) -> None:
        """A hold on a link that this machine cannot use ends as a failed dial."""
        linked = self._links.get(peer)
        if linked and peer in env.holds and all(machine is not env.machine for machine, _ in linked.heard):
            self._failed(env, peer, "no common protocol")
            if not any(peer in other.holds for other in self.envs) and self._links.get(peer) is linked:
                self._unlink(peer)
                linked.link.finish("no common protocol")

    # What the host tells.

    def link_up(self, link: LiveLink) -> None:
        peer = link.peer
        heard = told_by(self.machines, link.protocols)
        linked = Linked(link, Outbox(link, partial(self._drained, peer)), heard)
        self._links[peer] = self._told[link] = linked
        link.source = linked.outbox.fill
        for env in self.envs:
            self._open_outlet(env, linked)
        for env, parcels in self._dials.pop(peer, {}).items():
            for parcel in parcels:
                self.post(env, peer, parcel)
        self._note(LINK_UP, peer, None)
        self._tell_up(link, heard)
        for env in self.envs:
            self._useless(env, peer)
        for env, stream in self._early.pop(link, ()):
            self._upcall(peer, self._listen_to, env, stream)

    def link_down(self, link: LiveLink, reason: str) -> None:
        self._early.pop(link, None)
        linked = self._told.pop(link, None)
        if linked is None:
            return
        if self._links.get(link.peer) is linked:
            self._unlink(link.peer)
            for env in self.envs:
                self._let_go(env, link.peer)
        self._note(LINK_DOWN, link.peer, reason)
        for machine, _ in linked.heard:
            self._upcall(link.peer, machine.link_down, link.peer, link.incarnation, reason)

    def protocols_changed(self, link: LiveLink, before: tuple[str, ...]) -> None:
        """A machine that the link is newly of use to hears of it now."""
        if (linked := self._told.get(link)) is None or self._links.get(link.peer) is not linked:
            return
        known = [machine for machine, _ in linked.heard]
        fresh = [(machine, name) for machine, name in told_by(self.machines, link.protocols) if machine not in known]
        linked.heard += fresh
        for env in self.envs:
            if link.peer not in env.outlets:
                self._open_outlet(env, linked)
        self._tell_up(link, fresh)

    def _tell_up(self, link: LiveLink, heard: Sequence[tuple[Machine, str]]) -> None:
        for machine, protocol in heard:
            seen = Link(link.incarnation, link.outbound, protocol, str(link.address))
            self._upcall(link.peer, machine.link_up, link.peer, seen)

    def _unlink(self, peer: bytes) -> None:
        """Nothing more is sent on the link; what was is still flushed."""
        del self._links[peer]
        for env in self.envs:
            env.outlets.pop(peer, None)

    def _open_outlet(self, env: DriverEnv, linked: Linked) -> None:
        link = linked.link
        protocol = speaks(env.machine.protocols, link.protocols)
        if protocol is not None:
            outlet = Outlet(link, protocol, env.codec, lambda reason: link.close(f"{protocol}: {reason}"))
            linked.outbox.outlets.append(outlet)
            env.outlets[link.peer] = outlet

    def _drained(self, peer: bytes, outlet: Outlet) -> None:
        for env in self.envs:
            if env.outlets.get(peer) is outlet:
                self.after(0, env.machine.drained, peer)

    # Receiving.

    def accept(self, env: DriverEnv, stream: Stream) -> None:
        """A peer opened a stream for this machine's protocol; its bytes wait until the machine was told of the link."""
        if stream.link in self._told:
            self._listen_to(env, stream)
        else:
            self._early.setdefault(stream.link, []).append((env, stream))
            stream.on_end = partial(self._early_ended, stream)

    def _early_ended(self, stream: Stream, reason: str | None) -> None:
        """What breaks before its link was told of is forgotten; what only ended may still have bytes for the machine."""
        if reason is not None and stream.link in self._early:
            left = [(env, other) for env, other in self._early.pop(stream.link) if other is not stream]
            if left:
                self._early[stream.link] = left

    def _listen_to(self, env: DriverEnv, stream: Stream) -> None:
        inlet = Inlet(self, env, stream, self._told[stream.link])
        stream.pushed(inlet.data, inlet.end)

    def _drop(self, peer: bytes, reason: str) -> None:
        log.warning("dropped %s: %s", peer_text(peer), reason, extra={"peer": peer_text(peer), "reason": reason})
        if linked := self._links.get(peer):
            linked.link.close(reason)

    def _upcall(self, peer: bytes, action: Callable[..., None], *args: Any) -> None:
        """Every call of a machine that a peer is behind; see the head of this file."""
        if self.stopped:
            return
        try:
            action(*args)
        except PeerError as error:
            self._drop(peer, str(error))
        except Exception as error:  # noqa: BLE001 - the top of the driver: a crash of a machine ends the node
            self.crashed(error)

    def crashed(self, error: Exception) -> None:
        if self.crash is None:
            self.crash = error
            self.stopped = True
            self._crashed.set()
            log.critical("a machine crashed, and its stack stops", exc_info=error)

    def learn(self, info: PeerInfo) -> None:
        """Addresses are hearsay, so what cannot be read is passed over; a record counts only if its owner signed it."""
        peer, record = _bytes(info.peer), info.record
        addresses: list[Address] = []
        if record is not None:
            try:
                record = self._newer(peer, record)
                addresses += read_record(record).addresses if record is not None else ()
            except PeerError:
                record = None
        for text in info.addresses:
            try:
                addresses.append(Address.parse(text))
            except UsageError:
                continue
        self.host.learn(peer, addresses, record, hearsay=True)

    def _newer(self, peer: bytes, record: bytes) -> bytes | None:
        """The record, if its owner is the peer and it is no older than the one that is known."""
        signed, known = read_record(record), self.host.known.get(peer)
        old = known.record if known is not None else None
        if signed.peer != peer or (old is not None and read_record(old).sequence > signed.sequence):
            return None
        return record

    def info(self, peer: bytes) -> PeerInfo:
        if peer == self.host.peer:
            return PeerInfo(peer, tuple(map(str, self.host.addresses)))
        known = self.host.known.get(peer)
        return PeerInfo(peer, tuple(map(str, known.addresses)), known.record) if known else PeerInfo(peer)

    # Life of the stack.

    def env(self) -> DriverEnv:
        """Called once for each machine by what builds the stack."""
        name = f"machine-{len(self.envs)}"
        env = DriverEnv(self, FileStore(self._folder / name) if self._folder is not None else {})
        self.envs.append(env)
        return env

    def start(self, machines: Sequence[Machine]) -> None:
        if [machine.env for machine in machines] != self.envs:
            raise UsageError("a Build calls its argument once for each machine, lowest first")
        for env, machine in zip(self.envs, machines, strict=True):
            env.bind(machine)
        self._note(NODE_UP, None, None)
        for machine in machines:
            machine.start()
        for env in self._serving():
            for protocol in env.machine.protocols:
                self.host.push(protocol, partial(self.accept, env))
        self.host.watchers.append(self)
        for link in list(self.host.links.values()):
            if link.told:
                self.link_up(link)
        self._nursery.start_soon(self._tick)
        self._nursery.start_soon(self._mourn)

    def stop(self) -> None:
        """In order, highest machine first; what they send last still leaves."""
        if not self.stopped:
            for machine in reversed(self.machines):
                machine.stop()
        self.stopped = True
        self.host.watchers.remove(self)
        for env in self.envs:
            for peer in list(env.holds):
                self._let_go(env, peer)
        for env in self._serving():
            for protocol in env.machine.protocols:
                self.host.unhandle(protocol)
        self._note(NODE_DOWN, None, None)

    def _serving(self) -> list[DriverEnv]:
        return [env for env in self.envs if env.machine.serves]

    async def _tick(self) -> None:
        while True:
            fired = 0
            while self._timers and self._timers[0][0] <= self.now() and fired < FIRED:
                self._fire(heappop(self._timers)[2])
                fired += 1
            if fired == FIRED:
                await trio.lowlevel.checkpoint()
                continue
            self._woken = trio.Event()
            with trio.move_on_at(self._timers[0][0] / SECOND if self._timers else inf):
                await self._woken.wait()

    def _fire(self, timer: LiveTimer) -> None:
        action, timer.action = timer.action, None
        if action is not None and not self.stopped:
            try:
                action(*timer.args)
            except PeerError as error:  # it kept something that only now turns out to be nonsense
                log.warning("a timer met a peer's fault: %s", error)
            except Exception as error:  # noqa: BLE001 - the top of the driver: a crash of a machine ends the node
                self.crashed(error)

    async def _mourn(self) -> None:
        await self._crashed.wait()
        raise MachineError(f"a machine crashed: {self.crash!r}") from self.crash

    def _note(self, kind: str, peer: Peer | None, reason: str | None) -> None:
        if self.tracer is not None:
            self.tracer.emit(self.wall(), self.host.peer, kind, None, None, peer, None, None, None, None, reason)


class Inlet:
    """What a peer says on one stream to one machine."""

    __slots__ = ("_driver", "_env", "_frames", "_held", "_linked", "_over", "_rest", "_stream", "_waiting")

    def __init__(self, driver: Driver, env: DriverEnv, stream: Stream, linked: Linked) -> None:
        self._driver = driver
        self._env = env
        self._stream = stream
        self._linked = linked
        self._frames = Frames(env.codec.limit)
        self._held = 0
        self._over = False
        self._rest = b""  # of answers that the window did not take
        self._waiting = 0

    def data(self, data: bytes) -> None:
        """A PeerError goes on to the link, which ends by it."""
        driver, machine, peer, unpack = self._driver, self._env.machine, self._stream.link.peer, self._env.codec.unpack
        try:
            for whole in self._frames.feed(data):
                for msg in unpack(whole):
                    if driver.stopped:
                        return
                    if type(msg) in machine.answerers:
                        self._waiting += 1
                        ask(machine, peer, msg, self._reply)
                    else:
                        receive(machine, peer, msg)
            self._count(self._frames.buffered)
        except Refused as error:
            self._stream.reset(f"refused: {error}")  # as other libraries do: their wire has no word for it
        except PeerError as error:
            who = peer_text(peer)
            log.warning("%s broke the protocol: %s", who, error, extra={"peer": who, "reason": str(error)})
            raise
        except Exception as error:  # noqa: BLE001 - the top of the driver: a crash of a machine ends the node
            driver.crashed(error)

    def end(self, reason: str | None) -> None:
        self._over = True
        self._count(0)
        if reason is None:
            self._finish_when_done()

    def _count(self, held: int) -> None:
        self._linked.held += held - self._held
        self._held = held
        if self._linked.held > HALF_FRAMES:
            raise PeerError(f"more than {HALF_FRAMES} bytes of frames that do not end")

    def _reply(self, msg: Message) -> None:
        self._waiting -= 1
        self._rest += b"".join(map(frame, self._env.codec.pack((msg,))))
        if len(self._rest) > ANSWERS:
            self._stream.reset("the peer does not take its answers")
        else:
            self._stream.on_room = self._write
            self._write()

    def _write(self) -> None:
        self._rest = self._rest[self._stream.write(self._rest) :]
        self._finish_when_done()

    def _finish_when_done(self) -> None:
        if self._over and not self._waiting and not self._rest:
            self._stream.finish()


@asynccontextmanager
async def run_stack(
    host: Host, build: Build, *, tracer: Tracer | None = None, folder: Path | None = None
) -> AsyncIterator[Driver]:
    """Run a stack until the block ends. `folder` keeps what its machines store; without it nothing outlives the block."""
    with alone():
        async with trio.open_nursery() as nursery:
            driver = Driver(host, nursery, tracer, folder)
            driver.start(build(driver.env))
            try:
                yield driver
            finally:
                driver.stop()
                nursery.cancel_scope.cancel()


def _epoch(folder: Path | None) -> int:
    """Later than that of every start before, as far as the clock or the folder knows."""
    epoch = time_ns() >> EPOCH_BITS
    if folder is not None:
        kept = FileStore(folder / "driver")
        epoch = max(epoch, int.from_bytes(kept.get("epoch", b"")) + 1)
        kept["epoch"] = epoch.to_bytes(8)
    return epoch


def _bytes(peer: Peer) -> bytes:
    if not isinstance(peer, bytes):  # messages may name numbers too: those of the simulator
        raise PeerError(f"{peer} is no peer id")
    return peer
