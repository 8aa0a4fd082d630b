"""A wire that joins whole stacks in one virtual time, without latency or loss.

Bounds: each outbox to a peer has `limit` bytes, under the policy of `libweft.peer.machine.admit`; a run that does not come to
rest in STEPS steps is an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from libweft.peer.dispatch import ask, hears, receive, told, twin
from libweft.peer.errors import PeerError, Refused, UsageError
from libweft.peer.fake.env import FakeClock, FakeEnv, FakeRequest, FakeTimer
from libweft.peer.machine import Build, Codec, Link, Machine, Message, Peer
from libweft.peer.overload import admit

STEPS = 100_000
OUTBOX_LIMIT = 1 << 20
Wired: TypeAlias = Message | list[bytes]
"""A message on its way: as it is, or its frames when the codec is in the loop."""


class WireLink:
    """A link between two nodes; `up` until it breaks for both at once."""

    __slots__ = ("dialler", "incarnation", "open_requests", "target", "up")

    def __init__(self, dialler: WireNode, target: WireNode, incarnation: int) -> None:
        self.dialler = dialler
        self.target = target
        self.incarnation = incarnation
        self.up = True
        self.open_requests: list[tuple[WireEnv, FakeRequest]] = []

    def other(self, node: WireNode) -> WireNode:
        return self.target if node is self.dialler else self.dialler


class WireNode:
    """One stack. `links` are those it may send on: not one that it is closing. `dials` knows who waits for each."""

    def __init__(self, me: int) -> None:
        self.me = me
        self.alive = True
        self.envs: list[WireEnv] = []
        self.links: dict[Peer, WireLink] = {}
        self.dials: dict[Peer, dict[WireEnv, None]] = {}

    @property
    def machines(self) -> list[Machine]:
        return [env.machine for env in self.envs]

    def holders(self, peer: Peer) -> list[WireEnv]:
        return [env for env in self.envs if peer in env.holds]


class WireEnv(FakeEnv):
    """Records as FakeEnv does, and lets it happen on the wire."""

    machine: Machine
    codec: Codec

    def __init__(self, wire: FakeWire, node: WireNode) -> None:
        super().__init__(node.me, seed=f"{wire.seed}/{node.me}/{len(node.envs)}", clock=wire.clock)
        self.wire = wire
        self.node = node
        if node.envs:
            self.infos = node.envs[0].infos

    def bind(self, machine: Machine) -> None:
        self.machine = machine
        self.codec = machine.codec()

    def after(self, delay: int, action: Callable[..., None], *args: Any) -> FakeTimer:
        return super().after(delay, self._fired, action, args)

    def send(self, peer: Peer, msg: Message) -> None:
        super().send(peer, msg)
        self.wire.carry(self, peer, msg)

    def request(
        self, peer: Peer, msg: Message, timeout: int, on_reply: Callable[[Peer, Any], None], on_fail: Callable[[Peer, str], None]
    ) -> None:
        super().request(peer, msg, timeout, on_reply, on_fail)
        self.wire.carry_request(self, self.requests[-1])

    def connect(self, peer: Peer) -> None:
        super().connect(peer)
        self.wire.hold(self, peer)

    def disconnect(self, peer: Peer) -> None:
        held = peer in self.holds
        super().disconnect(peer)
        if held:
            self.wire.release(self.node, peer)

    def twin(self, link: WireLink) -> WireEnv | None:
        """The Env at the other end whose machine speaks this one's protocol, and serves."""
        others = link.other(self.node)
        machine = twin(self.machine, others.machines)
        return next((env for env in others.envs if env.machine is machine and machine.serves), None)

    def _fired(self, action: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self.node.alive:
            action(*args)


class FakeWire:
    """Joins stacks; peers are ints from 0, in order of `add`.

    `errors` holds (node, peer at fault, error) for each PeerError: it costs that link, and nothing else.
    With `codec`, each message is packed when it is sent and unpacked where it arrives.
    """

    def __init__(self, codec: bool = False, seed: int = 0, limit: int = OUTBOX_LIMIT) -> None:
        self.codec = codec
        self.seed = seed
        self.limit = limit
        self.clock = FakeClock()
        self.nodes: list[WireNode] = []
        self.errors: list[tuple[Peer, Peer, PeerError]] = []
        self._queue: deque[Callable[[], None]] = deque()
        self._incarnation = 0

    @property
    def now(self) -> int:
        return self.clock.now

    def add(self, build: Build) -> int:
        """Build a stack and start it, lowest machine first."""
        node = WireNode(len(self.nodes))
        machines = build(partial(self._env, node))
        if [machine.env for machine in machines] != node.envs:
            raise UsageError("a Build calls its argument once for each machine, lowest first")
        for env, machine in zip(node.envs, machines, strict=True):
            env.bind(machine)
        self.nodes.append(node)
        for machine in machines:
            machine.start()
        return node.me

    def connect(self, a: int, b: int) -> None:
        """Let `a` dial `b`, without a hold of any machine."""
        self._later(self._dial, self.nodes[a], b)

    def cut(self, a: int, b: int, reason: str = "cut") -> None:
        """Break the link at both ends; what is on its way is lost."""
        if link := self.nodes[a].links.get(b):
            self._break(link, reason)

    def stop(self, node: int) -> None:
        """The whole stack ends in order, highest machine first; its links close after what it sent."""
        stopped = self.nodes[node]
        for machine in reversed(stopped.machines):
            machine.stop()
        for peer in list(stopped.links):
            self._close(stopped, peer)
        self._later(self.crash, node)

    def crash(self, node: int) -> None:
        """Nothing of the stack runs any more, and its links break."""
        self.nodes[node].alive = False
        for link in list(self.nodes[node].links.values()):
            self._break(link, "the peer is down")

    def step(self) -> bool:
        """Do the oldest thing that waits, a delivery for instance; False when nothing does."""
        if self._queue:
            self._queue.popleft()()
            return True
        return False

    def run(self, us: int = 0) -> None:
        """Do all that waits, let time pass, and do what the timers bring about."""
        until = self.clock.now + us
        for _ in range(STEPS):
            if not self.step() and not self.clock.fire(until):
                return
        raise UsageError(f"no rest after {STEPS} steps: do two machines answer each other without end?")

    def _env(self, node: WireNode) -> WireEnv:
        env = WireEnv(self, node)
        node.envs.append(env)
        return env

    def _later(self, action: Callable[..., None], *args: Any) -> None:
        self._queue.append(partial(action, *args))

    def _upcall(self, node: WireNode, peer: Peer, action: Callable[..., None], *args: Any) -> None:
        """The one place where a peer's fault ends; its link breaks next, before anything else it sent is looked at."""
        if not node.alive:
            return
        try:
            action(*args)
        except PeerError as error:
            self.errors.append((node.me, peer, error))
            if link := node.links.get(peer):
                self._queue.appendleft(partial(self._break, link, str(error)))

    def hold(self, env: WireEnv, peer: Peer) -> None:
        """Dial the peer for a machine that holds it.

        If the link is up, the machine knows; only a link of no use to this machine ends as a failed dial.
        """
        link = self._reach(env, peer)
        if link:
            self._later(self._useless, env, peer, link)

    def release(self, node: WireNode, peer: Peer) -> None:
        """Close the link if no machine of the node holds it any more."""
        if not node.holders(peer):
            self._close(node, peer)

    def _reach(self, env: WireEnv, peer: Peer) -> WireLink | None:
        """The link there is, or a dial on its way."""
        node, link = env.node, env.node.links.get(peer)
        if link is None:
            if peer not in node.dials:
                self._later(self._dial, node, peer)
            node.dials.setdefault(peer, {})[env] = None
        return link

    def _dial(self, node: WireNode, peer: Peer) -> None:
        waiting = node.dials.pop(peer, {})
        if not node.alive or peer in node.links:
            return
        target = next((other for other in self.nodes if other.me == peer and other.alive and other is not node), None)
        if target is not None:
            self._open(node, target)
            return
        for env in waiting:
            self._failed(env, peer, "no such peer, or it is down")

    def _open(self, dialler: WireNode, target: WireNode) -> None:
        self._incarnation += 1
        link = WireLink(dialler, target, self._incarnation)
        dialler.links[target.me] = target.links[dialler.me] = link
        for node, other in ((dialler, target), (target, dialler)):
            for machine, protocol in told(node.machines, other.machines):
                self._upcall(node, other.me, machine.link_up, other.me, Link(link.incarnation, node is dialler, protocol))
        for env in dialler.holders(target.me):
            self._useless(env, target.me, link)

    def _useless(self, env: WireEnv, peer: Peer, link: WireLink) -> None:
        if peer in env.holds and not hears(env.machine, env.node.machines, link.other(env.node).machines):
            self._failed(env, peer, "no common protocol")
            self.release(env.node, peer)

    def _failed(self, env: WireEnv, peer: Peer, reason: str) -> None:
        env.holds.pop(peer, None)
        self._upcall(env.node, peer, env.machine.link_down, peer, 0, reason)

    def _close(self, node: WireNode, peer: Peer) -> None:
        if link := node.links.pop(peer, None):
            self._later(self._break, link, "closed")

    def _break(self, link: WireLink, reason: str) -> None:
        if not link.up:
            return
        link.up = False
        for node in (link.dialler, link.target):
            self._forget(node, link)
        for node in (link.dialler, link.target):
            peer = link.other(node).me
            for machine, _ in told(node.machines, link.other(node).machines):
                self._upcall(node, peer, machine.link_down, peer, link.incarnation, reason)
        for env, request in link.open_requests:
            self._upcall(env.node, request.peer, request.fail, reason)

    def _forget(self, node: WireNode, link: WireLink) -> None:
        """Holds taken after this end began to close are meant for the next link, and stay."""
        peer = link.other(node).me
        if node.links.get(peer) is link:
            del node.links[peer]
            for env in node.envs:
                env.holds.pop(peer, None)

    def carry(self, env: WireEnv, peer: Peer, msg: Message) -> None:
        """Put a message on the wire, unless the outbox is full."""
        size = env.codec.size(msg)
        verdict = admit(msg, size, env.backlog(peer), self.limit)
        if verdict == "send":
            env.backlogs[peer] = env.backlog(peer) + size
            self._later(self._arrive, env, peer, self._reach(env, peer), msg, self._wired(env, msg))
        elif verdict == "close" and peer in env.node.links:
            self._later(self._break, env.node.links[peer], "the outbox is full")
        else:
            self._later(self._upcall, env.node, peer, env.machine.dropped, peer, msg)

    def _arrive(self, env: WireEnv, peer: Peer, link: WireLink | None, msg: Message, wired: Wired) -> None:
        """What was sent on a link is lost with it; what waited for a dial goes over the link that came of it."""
        env.backlogs[peer] -= env.codec.size(msg)
        link = link or env.node.links.get(peer)
        twin = env.twin(link) if link else None
        if link is None or twin is None:
            self._upcall(env.node, peer, env.machine.dropped, peer, msg)
        elif link.up:
            self._upcall(twin.node, env.me, self._receive, twin, env.me, wired)
            if not env.backlogs[peer]:
                self._upcall(env.node, peer, env.machine.drained, peer)

    def _receive(self, env: WireEnv, sender: Peer, wired: Wired) -> None:
        for msg in self._unwired(env, wired):
            receive(env.machine, sender, msg)

    def carry_request(self, env: WireEnv, request: FakeRequest) -> None:
        """Put a request on the wire."""
        self._later(self._asked, env, request, self._reach(env, request.peer), self._wired(env, request.msg))

    def _asked(self, env: WireEnv, request: FakeRequest, link: WireLink | None, wired: Wired) -> None:
        link = link or env.node.links.get(request.peer)
        twin = env.twin(link) if link else None
        if link is None or twin is None or not link.up:
            self._upcall(env.node, request.peer, request.fail, "no link")
            return
        link.open_requests = [(other, asked) for other, asked in link.open_requests if not asked.settled]
        link.open_requests.append((env, request))
        self._upcall(twin.node, env.me, self._answer, env, request, link, twin, wired)

    def _answer(self, env: WireEnv, request: FakeRequest, link: WireLink, twin: WireEnv, wired: Wired) -> None:
        def reply(msg: Message) -> None:
            self._later(self._replied, env, request, link, self._wired(twin, msg))

        try:
            for msg in self._unwired(twin, wired):
                ask(twin.machine, env.me, msg, reply)
        except Refused as error:
            self._later(self._upcall, env.node, request.peer, request.fail, f"refused: {error}")

    def _replied(self, env: WireEnv, request: FakeRequest, link: WireLink, wired: Wired) -> None:
        if link.up:
            self._upcall(env.node, request.peer, self._heard, env, request, wired)

    def _heard(self, env: WireEnv, request: FakeRequest, wired: Wired) -> None:
        for msg in self._unwired(env, wired):
            request.reply(msg)

    def _wired(self, env: WireEnv, msg: Message) -> Wired:
        return env.codec.pack([msg]) if self.codec else msg

    def _unwired(self, env: WireEnv, wired: Wired) -> list[Message]:
        if isinstance(wired, Message):
            return [wired]
        return [msg for frame in wired for msg in env.codec.unpack(frame)]
