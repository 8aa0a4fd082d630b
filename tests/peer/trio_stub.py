"""A stub of a live driver: the contract on trio tasks, with memory channels for links and every message through the codec.

One task a node fires its timers, in order of (time, sequence); one task an end of a link reads what arrives. Closing a
channel lets the other end read what is in it first, which is what a release asks for. A PeerError closes its link; any
other error of a machine ends its task, and with it the nursery.
Bounds: CAPACITY frames in a link's channel, and as many that wait for a dial.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, NamedTuple

import trio

from peer.dispatch import ask, hears, receive, told
from peer.errors import PeerError
from peer.fake import FakeEnv, FakeRequest, FakeTimer
from peer.machine import SECOND, Build, Link, Machine, Message, Peer, admit

CAPACITY = 64


class Frame(NamedTuple):
    what: str
    protocols: tuple[str, ...]
    number: int
    data: bytes


class End:
    """One node's end of a link."""

    inbox: trio.MemoryReceiveChannel[Frame]

    def __init__(self, me: Node, other: Node, incarnation: int, outbound: bool) -> None:
        self.me, self.other = me, other
        self.incarnation, self.outbound = incarnation, outbound
        self.reason = "closed"
        self.over = trio.Event()
        self.outbox, self.outlet = trio.open_memory_channel[Frame](CAPACITY)

    def close(self, reason: str) -> None:
        self.reason = reason
        self.outbox.close()
        self.inbox.close()


class TrioEnv(FakeEnv):
    """A FakeEnv for what needs no world; time, links and messages are trio's."""

    machine: Machine

    def __init__(self, node: Node) -> None:
        super().__init__(node.me, seed=f"{node.me}/{len(node.envs)}")
        self.node = node
        if node.envs:
            self.clock = node.envs[0].clock

    def now(self) -> int:
        return round(trio.current_time() * SECOND)

    def after(self, delay: int, action: Callable[..., None], *args: Any) -> FakeTimer:
        self.clock.now = self.now()
        self.node.woken.set()
        return super().after(delay, action, *args)

    def send(self, peer: Peer, msg: Message) -> None:
        self.node.put(self, peer, "tell", 0, msg)

    def request(
        self, peer: Peer, msg: Message, timeout: int, on_reply: Callable[[Peer, Any], None], on_fail: Callable[[Peer, str], None]
    ) -> None:
        super().request(peer, msg, timeout, on_reply, on_fail)
        self.node.requests.append(self.requests[-1])
        self.node.put(self, peer, "ask", len(self.node.requests) - 1, msg)

    def connect(self, peer: Peer) -> None:
        super().connect(peer)
        self.after(0, self.node.useless, self, peer)
        if peer not in self.node.links:
            self.node.dial(peer)

    def disconnect(self, peer: Peer) -> None:
        if peer in self.holds:
            super().disconnect(peer)
            self.node.release(peer)


class Node:
    def __init__(self, world: TrioWorld) -> None:
        self.world = world
        self.me = len(world.nodes)
        self.alive = True
        self.envs: list[TrioEnv] = []
        self.links: dict[Peer, End] = {}
        self.dials: dict[Peer, list[tuple[TrioEnv, Message, Frame]]] = {}
        self.requests: list[FakeRequest] = []
        self.woken = trio.Event()

    @property
    def machines(self) -> list[Machine]:
        return [env.machine for env in self.envs]

    def env(self) -> TrioEnv:
        self.envs.append(TrioEnv(self))
        return self.envs[-1]

    async def tick(self) -> None:
        clock = self.envs[0].clock
        while self.alive:
            self.woken = trio.Event()
            with trio.move_on_at(inf if clock.due is None else clock.due / SECOND):
                await self.woken.wait()
            while self.alive and clock.fire(self.envs[0].now()):
                pass

    def put(self, env: TrioEnv, peer: Peer, what: str, number: int, msg: Message) -> None:
        for data in env.machine.codec().pack([msg]):
            frame = Frame(what, env.machine.protocols, number, data)
            if peer in self.links:
                self.post(env, self.links[peer], msg, frame)
            elif len(self.dials.get(peer, ())) < CAPACITY:
                self.dial(peer).append((env, msg, frame))
            else:
                env.after(0, env.machine.dropped, peer, msg)

    def post(self, env: TrioEnv, end: End, msg: Message, frame: Frame) -> None:
        # a link that is going down takes nothing more; its reader is about to tell so
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            try:
                end.outbox.send_nowait(frame)
            except trio.WouldBlock:
                if admit(msg, 1, CAPACITY, CAPACITY) == "close":
                    end.close("the outbox is full")
                env.after(0, env.machine.dropped, end.other.me, msg)

    def dial(self, peer: Peer) -> list[tuple[TrioEnv, Message, Frame]]:
        if peer not in self.dials:
            self.dials[peer] = []
            self.world.nursery.start_soon(self._dial, peer)
        return self.dials[peer]

    async def _dial(self, peer: Peer) -> None:
        await trio.lowlevel.checkpoint()
        for pair in ((self.me, peer), (peer, self.me)):
            if peer not in self.links and pair in self.world.ends:
                await self.world.ends[pair].over.wait()
        target = next((node for node in self.world.nodes if node.me == peer and node.alive and node is not self), None)
        if self.alive and peer in self.dials:
            if target is None:
                self._undialled(peer, self.dials.pop(peer))
            else:
                self.world.join(self, target)

    def _undialled(self, peer: Peer, waiting: list[tuple[TrioEnv, Message, Frame]]) -> None:
        for env in self.envs:
            if peer in env.holds or any(waiter is env for waiter, _, _ in waiting):
                env.holds.pop(peer, None)
                env.machine.link_down(peer, 0, "nobody there")
        for env, msg, frame in waiting:
            if frame.what == "tell":
                env.machine.dropped(peer, msg)
        self._fail_requests(peer, "nobody there")

    def up(self, end: End) -> None:
        """What waited for the dial leaves before anything that `link_up` makes a machine send."""
        peer = end.other.me
        self.links[peer] = end
        self.world.nursery.start_soon(self._read, end)
        for env, msg, frame in self.dials.pop(peer, ()):
            self.post(env, end, msg, frame)
        for machine, protocol in told(self.machines, end.other.machines):
            self._guard(end, machine.link_up, peer, Link(end.incarnation, end.outbound, protocol))
        for env in self.envs:
            self.useless(env, peer)

    def useless(self, env: TrioEnv, peer: Peer) -> None:
        """A hold on a link that this machine cannot use ends as a failed dial."""
        if peer in env.holds and peer in self.links and not hears(env.machine, self.machines, self.links[peer].other.machines):
            del env.holds[peer]
            env.machine.link_down(peer, 0, "no common protocol")
            self.release(peer)

    def release(self, peer: Peer) -> None:
        if peer in self.links and not any(peer in env.holds for env in self.envs):
            self.links.pop(peer).outbox.close()

    async def _read(self, end: End) -> None:
        with suppress(trio.ClosedResourceError):
            async for frame in end.inbox:
                if self.alive:
                    self._guard(end, self._take, end, frame)
        self._down(end)

    def _guard(self, end: End, action: Callable[..., None], *args: Any) -> None:
        try:
            action(*args)
        except PeerError as error:
            self.world.errors.append((self.me, end.other.me, error))
            end.close(str(error))

    def _down(self, end: End) -> None:
        peer = end.other.me
        end.close(end.reason)
        end.over.set()
        if self.links.get(peer) is end:
            del self.links[peer]
            for env in self.envs:
                env.holds.pop(peer, None)
        if self.alive:
            for machine, _ in told(self.machines, end.other.machines):
                machine.link_down(peer, end.incarnation, end.reason)
            self._fail_requests(peer, end.reason)

    def _take(self, end: End, frame: Frame) -> None:
        env = next((env for env in self.envs if set(frame.protocols) & set(env.machine.protocols)), None)
        for msg in env.machine.codec().unpack(frame.data) if env else ():
            assert env is not None
            if frame.what == "tell":
                receive(env.machine, end.other.me, msg)
            elif frame.what == "ask":
                ask(env.machine, end.other.me, msg, partial(self._reply, env, end, frame.number))
            else:
                self.requests[frame.number].reply(msg)

    def _reply(self, env: TrioEnv, end: End, number: int, msg: Message) -> None:
        for data in env.machine.codec().pack([msg]):
            self.post(env, end, msg, Frame("reply", env.machine.protocols, number, data))

    def _fail_requests(self, peer: Peer, reason: str) -> None:
        for request in self.requests:
            if request.peer == peer:
                request.fail(reason)


class TrioWorld:
    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.nodes: list[Node] = []
        self.ends: dict[tuple[Peer, Peer], End] = {}
        self.errors: list[tuple[Peer, Peer, PeerError]] = []
        self._incarnation = 0

    def add(self, build: Build) -> int:
        node = Node(self)
        machines = build(node.env)
        for env, machine in zip(node.envs, machines, strict=True):
            env.machine = machine
        self.nodes.append(node)
        self.nursery.start_soon(node.tick)
        for machine in machines:
            machine.start()
        return node.me

    def join(self, dialler: Node, target: Node) -> None:
        self._incarnation += 1
        here, there = End(dialler, target, self._incarnation, True), End(target, dialler, self._incarnation, False)
        here.inbox, there.inbox = there.outlet, here.outlet
        self.ends[dialler.me, target.me], self.ends[target.me, dialler.me] = here, there
        dialler.up(here)
        target.up(there)

    def crash(self, number: int) -> None:
        self.nodes[number].alive = False
        for end in self.nodes[number].links.values():
            end.close("crash")

    def close(self) -> None:
        for end in self.ends.values():
            end.close("over")
