"""The simulator: thousands of stacks in one virtual time, the same run for the same seed.

It drives the same machines as a live peer does. Links are things: dialling takes a round trip and may fail, a close
arrives after the data sent before it, a crash shows at the other end only after a detection delay and the link is
half-open until then. Messages pass by reference, or through the real codec when asked. `peer.network` moves the copies.

Events, as counted: copies handed to a machine, timers fired, link upcalls; copies that were lost and timers that were
cancelled are none. Chance comes from named streams of one seed, so that one more fault does not shift other draws.
Bounds: PENDING messages wait for a dial; a request ends at its timeout; everything else is bounded by the machines.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from random import Random
from typing import Any

from peer import faults
from peer.calendar import SHIFT, Calendar, Entry
from peer.errors import PeerError, UsageError
from peer.latency import Model, Uniform
from peer.machine import SECOND, Build, Codec, Lane, Link, Machine, Message, MessageId, Peer, PeerInfo, speaks
from peer.network import CLOSED, Active, Freight, Half, Network, Parcel, Uplink
from peer.trace import DROP, LINK_DOWN, LINK_UP, NODE_DOWN, NODE_UP, QUEUE, SEND, Tracer

PENDING = 256  # messages that wait for a dial, for each peer


class SimTimer:
    __slots__ = ("action", "args", "node")

    def __init__(self, node: SimNode, action: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.node = node
        self.action: Callable[..., None] | None = action
        self.args = args

    def cancel(self) -> None:
        self.action = None
        self.args = ()


class Deaf(Machine):
    """Stands for the machine that a peer does not have: takes nothing."""

    __slots__ = ()


class SimEnv:
    """One machine's view of the simulated world (`peer.machine.Env`)."""

    __slots__ = ("_codec", "me", "node", "port", "requests", "sim", "trace", "tracing")

    def __init__(self, sim: Simulator, node: SimNode, port: int) -> None:
        self.sim = sim
        self.node = node
        self.port = port
        self.me = node.id
        self.tracing = sim.tracer is not None
        self.trace = self._trace if self.tracing else _no_trace
        self.requests: dict[int, Request] | None = None
        self._codec: Codec | None = None

    @property
    def rng(self) -> Random:
        if self.node.rng is None:  # made on first use: a generator is 3 KB
            self.node.rng = self.sim.stream(f"node:{self.me}:{self.node.epoch}")
        return self.node.rng

    @property
    def epoch(self) -> int:
        return self.node.epoch

    @property
    def store(self) -> MutableMapping[str, bytes]:
        return self.sim.stores.setdefault(self.me, {})

    @property
    def codec(self) -> Codec:
        if self._codec is None:
            self._codec = self.node.machines[self.port].codec()
        return self._codec

    def now(self) -> int:
        return self.sim.now

    def after(self, delay: int, action: Callable[..., None], *args: Any) -> SimTimer:
        if delay < 0:
            raise UsageError(f"a timer of {delay} us lies in the past")
        if self.node.skew != 1.0:
            delay = round(delay * self.node.skew)
        timer = SimTimer(self.node, action, args)
        self.sim.calendar.add((self.sim.now + delay, None, timer, None))
        return timer

    def send(self, peer: Peer, msg: Message) -> None:
        self.send_all((peer,), msg)

    def send_all(self, peers: Sequence[Peer], msg: Message) -> None:
        node, sim = self.node, self.sim
        if not node.up or not peers:
            return
        if sim.tracer is not None:
            self._trace_send(peers, msg)
        links = node.links
        try:
            halves = list(map(links.__getitem__, peers))
        except KeyError:
            halves = [links[peer] for peer in peers if peer in links]
            for peer in peers:
                if peer not in links:
                    sim.wait_for_dial(node, peer, self.port, msg)
        if not halves:
            return
        if sim.codec:
            for parcel in self.parcels("tell", msg):
                sim.network.post(node, halves, self.port, parcel)
        else:
            sim.network.post(node, halves, self.port, msg)

    def request(
        self, peer: Peer, msg: Message, timeout: int, on_reply: Callable[[Peer, Any], None], on_fail: Callable[[Peer, str], None]
    ) -> None:
        if not self.node.up:
            return
        if self.requests is None:
            self.requests = {}
        self.sim.asked += 1
        number = self.sim.asked
        timer = self.after(timeout, self.failed, number, "timeout")
        self.requests[number] = Request(peer, on_reply, on_fail, timer)
        self._ship("ask", peer, msg, number)

    def failed(self, number: int, reason: str) -> None:
        request = self.requests.pop(number, None) if self.requests else None
        if request is not None:
            request.timer.cancel()
            request.on_fail(request.peer, reason)

    def connect(self, peer: Peer) -> None:
        self.sim.hold(self.node, peer, self.port)

    def disconnect(self, peer: Peer) -> None:
        self.sim.release(self.node, peer, self.port)

    def backlog(self, peer: Peer) -> int:
        half = self.node.links.get(peer)
        return self.node.uplink.queued.get(half, 0) if half is not None else 0

    def learn(self, info: PeerInfo) -> None:
        """In the simulator every peer can be dialled by its number; there is nothing to remember."""

    def info(self, peer: Peer) -> PeerInfo:
        return PeerInfo(peer)

    def size(self, msg: Freight) -> int:
        if isinstance(msg, Message):
            return self.codec.size(msg)
        return len(msg.frame) if msg.msg is None else self.codec.size(msg.msg)

    def parcels(self, role: str, msg: Message, number: int = 0) -> list[Parcel]:
        if not self.sim.codec:
            return [Parcel(role, msg.lane, msg, number=number)]
        return [Parcel(role, msg.lane, None, frame, number) for frame in self.codec.pack([msg])]

    def take(self, half: Half, parcel: Parcel) -> None:
        """A parcel has come for this machine."""
        parts = (parcel.msg,) if parcel.msg is not None else self.codec.unpack(parcel.frame)
        machine = self.node.machines[self.port]
        for part in parts:
            if parcel.role == "tell":
                tell(machine, half.source, part)
            elif parcel.role == "ask":
                self._answer(machine, half.source, part, parcel.number)
            else:
                self._replied(half.source, part, parcel.number)

    def _answer(self, machine: Machine, sender: int, msg: Message, number: int) -> None:
        answerer = machine.answerers.get(type(msg))
        if answerer is None:
            raise PeerError(f"{type(machine).__name__} answers no {type(msg).__name__}")
        answerer(machine, sender, msg, lambda reply: self._ship("reply", sender, reply, number))

    def _replied(self, sender: int, msg: Message, number: int) -> None:
        request = self.requests.get(number) if self.requests else None
        if request is not None and request.peer == sender and self.requests is not None:
            del self.requests[number]
            request.timer.cancel()
            request.on_reply(sender, msg)

    def _ship(self, role: str, peer: Peer, msg: Message, number: int) -> None:
        if not self.node.up:
            return
        if self.sim.tracer is not None:
            self._trace_send((peer,), msg)
        half = self.node.links.get(peer)
        for parcel in self.parcels(role, msg, number):
            if half is not None:
                self.sim.network.post(self.node, (half,), self.port, parcel)
            else:
                self.sim.wait_for_dial(self.node, peer, self.port, parcel)

    def _trace(
        self,
        kind: str,
        topic: str | None = None,
        msg: MessageId | None = None,
        peer: Peer | None = None,
        hops: int | None = None,
        reason: str | None = None,
        dependencies: tuple[MessageId, ...] = (),
    ) -> None:
        tracer = self.sim.tracer
        assert tracer is not None
        tracer.emit(self.sim.now, self.me, kind, topic, msg, peer, hops, None, None, None, reason, dependencies)

    def _trace_send(self, peers: Sequence[Peer], msg: Message) -> None:
        tracer = self.sim.tracer
        assert tracer is not None
        topic, known = about(msg)
        size, only = self.codec.size(msg), peers[0] if len(peers) == 1 else None
        tracer.emit(self.sim.now, self.me, SEND, topic, known, only, None, len(peers), size, msg.lane)
        if tracer.level == "full":
            tracer.copies(self.sim.now, self.me, peers, topic, known, size, msg.lane)


class Request:
    __slots__ = ("on_fail", "on_reply", "peer", "timer")

    def __init__(self, peer: Peer, on_reply: Callable[[Peer, Any], None], on_fail: Callable[[Peer, str], None], timer: SimTimer) -> None:
        self.peer = peer
        self.on_reply = on_reply
        self.on_fail = on_fail
        self.timer = timer


class SimNode:
    """One life of a node: a restart makes a new one under the same number."""

    __slots__ = (
        "_uplink", "build", "busy_until", "clock", "dials", "ears", "envs", "epoch", "holds", "id", "links", "machines", "rng", "shape",
        "skew", "started", "up",
    )  # fmt: skip

    def __init__(self, number: int, epoch: int, skew: float, build: Build, started: Callable[[SimNode], None] | None) -> None:
        self.id = number
        self.epoch = epoch
        self.skew = skew
        self.build = build
        self.started = started
        self.up = True
        self.machines: Sequence[Machine] = ()
        self.ears: tuple[Any, ...] = ()
        self.envs: list[SimEnv] = []
        self.shape: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
        self.links: dict[Peer, Half] = {}
        self.holds: dict[Peer, int] = {}  # a bit for each port
        self.dials: dict[Peer, list[tuple[int, Freight]]] = {}
        self.rng: Random | None = None
        self.clock = 0
        self.busy_until = 0
        self._uplink: Uplink | None = None

    @property
    def uplink(self) -> Uplink:
        if self._uplink is None:
            self._uplink = Uplink()
        return self._uplink


class Simulator:
    def __init__(
        self,
        seed: int = 0,
        latency: Model | None = None,
        tracer: Tracer | None = None,
        *,
        codec: bool = False,
        bandwidth: float = 0.0,
        queue: int = 1 << 20,
        detection: int = 5 * SECOND,
        dial_timeout: int = 5 * SECOND,
        idle: int = 60 * SECOND,
    ) -> None:
        self.seed = seed
        self.latency = latency if latency is not None else Uniform()
        self.tracer = tracer
        self.codec = codec
        self.bandwidth = bandwidth
        self.queue = queue
        self.detection = detection
        self.dial_timeout = dial_timeout
        self.idle = idle
        self.now = 0
        self.events = 0
        self.asked = 0
        self.nodes: dict[int, SimNode] = {}
        self.stores: dict[int, dict[str, bytes]] = {}
        self.calendar = Calendar()
        self.network = Network(self)
        self.incarnations = 0
        self.behind_nat: dict[int, int] = {}
        self.skews: dict[int, float] = {}
        self._agreements: dict[tuple[object, object], tuple[tuple[str | None, ...], tuple[int, ...]]] = {}

    def stream(self, name: str) -> Random:
        """A stream of chance of its own for each use; Random hashes a text by SHA-512, the same in every process."""
        return Random(f"{self.seed}/{name}")

    def at(self, t: int, action: Callable[..., None], *args: Any) -> None:
        """Do something from outside at a moment; it is no event of a machine."""
        self.calendar.add((max(t, self.now), None, action, args))

    # Nodes.

    def add(self, build: Build, started: Callable[[SimNode], None] | None = None) -> int:
        """Start a node; `started` is called after its machines, at each start."""
        number = len(self.nodes)
        self._start(number, build, started, ())
        return number

    def _start(self, number: int, build: Build, started: Callable[[SimNode], None] | None, states: Sequence[bytes | None]) -> None:
        node = SimNode(number, self.now, self.skews.get(number, 1.0), build, started)

        def env() -> SimEnv:
            node.envs.append(SimEnv(self, node, len(node.envs)))
            return node.envs[-1]

        machines = list(build(env))
        if [machine.env for machine in machines] != node.envs:
            raise UsageError("a stack must be built lowest machine first, one Env for each machine")
        node.machines = machines
        node.ears = both_ways(machines)
        node.shape = tuple((machine.protocols, machine.watches) for machine in machines)
        self.nodes[number] = node
        self._note(node, NODE_UP)
        for machine, state in zip(machines, states, strict=False):
            if state is not None:
                machine.restore(state)
        for machine in machines:
            machine.start()
        if started is not None:
            started(node)

    def crash(self, number: int, reason: str = "crash") -> None:
        """Without a word: the other ends find out after the detection delay."""
        node = self.nodes[number]
        if not node.up:
            return
        node.up = False
        self._note(node, NODE_DOWN, reason=reason)
        for half in node.links.values():
            half.twin.trouble = CLOSED
            self.at(self.now + self.detection, self._lost, half.target, half.twin, "timeout")
        node.links = {}
        node.dials = {}

    def leave(self, number: int) -> None:
        """In good order: machines stop, and links close after what they sent."""
        node = self.nodes[number]
        if not node.up:
            return
        for machine in node.machines:
            machine.stop()
        for peer in list(node.links):
            self._close(node, peer, "left")
        node.up = False
        node.dials = {}
        self._note(node, NODE_DOWN, reason="left")

    def restart(self, number: int, down: int, state: bool) -> None:
        node = self.nodes[number]
        if not node.up:
            return
        states = [machine.snapshot() for machine in node.machines] if state else []
        self.crash(number, "restart")
        if not state:
            self.stores.pop(number, None)
        self.at(self.now + down, self._restarted, node, states)

    def _restarted(self, old: SimNode, states: Sequence[bytes | None]) -> None:
        if self.nodes[old.id] is old:
            self._start(old.id, old.build, old.started, states)

    # Links.

    def hold(self, node: SimNode, peer: Peer, port: int) -> None:
        if not node.up or peer == node.id:
            return
        node.holds[peer] = node.holds.get(peer, 0) | 1 << port
        if peer not in node.links:
            self._dial(node, peer)

    def release(self, node: SimNode, peer: Peer, port: int) -> None:
        left = node.holds.get(peer, 0) & ~(1 << port)
        if left:
            node.holds[peer] = left
        elif node.holds.pop(peer, 0) and peer in node.links:
            self._close(node, peer, "released")

    def wait_for_dial(self, node: SimNode, peer: Peer, port: int, msg: Freight) -> None:
        self._dial(node, peer)
        waiting = node.dials.get(peer)
        if waiting is None or len(waiting) >= PENDING:
            self._dropped(node, peer, port, msg, "no link")
        else:
            waiting.append((port, msg))

    def _dial(self, node: SimNode, peer: Peer) -> None:
        if peer in node.dials or not node.up or peer == node.id:
            return
        node.dials[peer] = []
        assert isinstance(peer, int)
        there, back = self.network.dial_delay(node.id, peer), self.network.dial_delay(peer, node.id)
        self.at(self.now + there + back, self._dialled, node, peer, self.now)

    def _dialled(self, node: SimNode, peer: int, began: int) -> None:
        target = self.nodes.get(peer)
        if not node.up or peer in node.links or peer not in node.dials:
            return
        if target is None or not target.up:
            self._dial_failed(node, peer, "refused")
        elif peer in self.behind_nat or self._cut_between(node.id, peer):
            self.at(max(self.now, began + self.dial_timeout), self._dial_failed, node, peer, "no answer")
        elif node.id not in target.links:  # else the other side's dial was first, and its link is on the way here
            self._establish(node, target)

    def _cut_between(self, a: int, b: int) -> bool:
        troubles = (self.network.trouble_of(a, b), self.network.trouble_of(b, a))
        return any(trouble is not None and trouble.cut for trouble in troubles)

    def _dial_failed(self, node: SimNode, peer: Peer, reason: str) -> None:
        if not node.up or peer not in node.dials or peer in node.links:
            return
        waiting, held = node.dials.pop(peer), node.holds.pop(peer, 0)
        for port, msg in waiting:
            self._dropped(node, peer, port, msg, reason)
        ports = {port for port, _ in waiting}
        for port, machine in enumerate(node.machines):
            if held >> port & 1 or port in ports:
                self.events += 1
                machine.link_down(peer, 0, reason)
        self._fail_requests(node, peer, reason)

    def _establish(self, node: SimNode, target: SimNode) -> None:
        self.incarnations += 1
        here = Half(node.id, target, self._ears(node, target), self.incarnations)
        there = Half(target.id, node, self._ears(target, node), self.incarnations)
        here.twin, there.twin = there, here
        here.trouble = self.network.trouble_of(node.id, target.id)
        there.trouble = self.network.trouble_of(target.id, node.id)
        node.links[target.id] = here
        if self.network.shared_clock:
            node.clock = max(node.clock, self.now)
        arrival = self.network.in_turn(node, here, self.now + self.network.dial_delay(node.id, target.id))
        self.at(arrival, self._accepted, target, there)
        self._up(node, here, outbound=True)

    def _accepted(self, target: SimNode, half: Half) -> None:
        """The far end's link comes up; `half` is the direction that it sends on."""
        node = half.target
        if not target.up:
            half.twin.trouble = CLOSED
            self.at(self.now + self.detection, self._lost, node, half.twin, "timeout")
            return
        target.links[node.id] = half
        if not node.up:
            half.trouble = CLOSED
            self.at(self.now + self.detection, self._lost, target, half, "timeout")
        self._up(target, half, outbound=False)

    def _up(self, node: SimNode, half: Half, outbound: bool) -> None:
        peer = half.target
        self.network.note_cut(half)
        self._note(node, LINK_UP, peer.id)
        protocols, _ = self._agreement(node, peer)
        for machine, protocol in zip(node.machines, protocols, strict=True):
            if protocol is not None:
                self.events += 1
                machine.link_up(peer.id, Link(half.incarnation, outbound, protocol, f"sim/{peer.id}"))
        for port, msg in node.dials.pop(peer.id, ()):
            self._late_post(node, half, port, msg)
        if peer.id not in node.holds:
            self.at(self.now + self.idle, self._idle, node, half)

    def _late_post(self, node: SimNode, half: Half, port: int, msg: Freight) -> None:
        freight = node.envs[port].parcels("tell", msg) if self.codec and isinstance(msg, Message) else [msg]
        for item in freight:
            self.network.post(node, (half,), port, item)

    def _idle(self, node: SimNode, half: Half) -> None:
        """A link that nobody holds closes when nothing has used it for a while."""
        peer = half.target
        if not node.up or node.links.get(peer.id) is not half or peer.id in node.holds or node.id in peer.holds:
            return
        used = max(half.clock, half.twin.clock)
        if used + self.idle <= self.now:
            self._close(node, peer.id, "idle")
        else:
            self.at(used + self.idle, self._idle, node, half)

    def _close(self, node: SimNode, peer: Peer, reason: str) -> None:
        """From this end: nothing is taken in from now on, and the other end learns it after what was sent."""
        half = node.links.pop(peer)
        node.holds.pop(peer, None)
        half.twin.trouble = CLOSED
        self.network.forget(half.twin)
        if node._uplink is not None and half in node.uplink.queued:
            node.uplink.closing[half] = reason
        else:
            self.send_close(node, half, reason)
        self.at(self.now, self._tell_down, node, peer, half.incarnation, reason)

    def send_close(self, node: SimNode, half: Half, reason: str) -> None:
        delay = self.network.delay(half.source, half.target.id)
        self.at(self.network.in_turn(node, half, self.now + delay), self._lost, half.target, half.twin, "closed")

    def _lost(self, node: SimNode, half: Half, reason: str) -> None:
        """This end of a link finds that the other is gone; `half` is the direction that it sends on."""
        peer = half.target.id
        if node.up and node.links.get(peer) is half:
            del node.links[peer]
            node.holds.pop(peer, None)
            half.trouble = half.twin.trouble = CLOSED
            self.network.forget(half)
            self.network.forget(half.twin)
            self._tell_down(node, peer, half.incarnation, reason)

    def break_link(self, half: Half, reason: str) -> None:
        """Both ends at once, with what is in flight."""
        half.trouble = half.twin.trouble = CLOSED
        self._lost(half.twin.target, half, reason)
        self._lost(half.target, half.twin, reason)

    def _tell_down(self, node: SimNode, peer: Peer, incarnation: int, reason: str) -> None:
        if not node.up:
            return
        self._note(node, LINK_DOWN, peer, reason)
        assert isinstance(peer, int)
        protocols, _ = self._agreement(node, self.nodes[peer])
        for machine, protocol in zip(node.machines, protocols, strict=True):
            if protocol is not None:
                self.events += 1
                machine.link_down(peer, incarnation, reason)
        self._fail_requests(node, peer, reason)

    def _fail_requests(self, node: SimNode, peer: Peer, reason: str) -> None:
        for env in node.envs:
            for number, request in list((env.requests or {}).items()):
                if request.peer == peer:
                    env.failed(number, reason)

    def _agreement(self, node: SimNode, peer: SimNode) -> tuple[tuple[str | None, ...], tuple[int, ...]]:
        """For each machine of a node: the protocol by which it is told of the link, and the peer's machine that hears it."""
        key = (node.shape, peer.shape)
        if key not in self._agreements:
            theirs = [protocols for protocols, _ in peer.shape]
            all_mine = [protocol for protocols, _ in node.shape for protocol in protocols]
            common = [protocol for protocols in theirs for protocol in protocols if protocol in all_mine]
            told = tuple(speaks(m, common) or speaks(w, common) or ("" if not m and not w else None) for m, w in node.shape)
            ears = tuple(next((i for i, t in enumerate(theirs) if speaks(m, t)), -1) for m, _ in node.shape)
            self._agreements[key] = (told, ears)
        return self._agreements[key]

    def _ears(self, node: SimNode, peer: SimNode) -> tuple[Any, ...]:
        """See `peer.network.Half.ears`."""
        _, ears = self._agreement(node, peer)
        heard = all(ear == port for port, ear in enumerate(ears) if node.shape[port][0])
        if heard and len(ears) == len(peer.machines):
            return peer.ears  # shared by all links between equal stacks
        return both_ways([peer.machines[ear] if ear >= 0 else Deaf(peer.envs[0]) for ear in ears])

    # Arrivals.

    def hand(self, half: Half, port: int, msg: Freight) -> None:
        """Give one copy to its machine, outside the fast path."""
        if half.trouble is not None and half.trouble.closed:
            return
        machine = half.ears[port]
        self.events += 1
        try:
            if isinstance(msg, Parcel):
                if not isinstance(machine, Deaf):
                    env = machine.env
                    assert isinstance(env, SimEnv)
                    env.take(half, msg)
            else:
                tell(machine, half.source, msg)
        except PeerError as error:
            self._blame(half, error)

    def _blame(self, half: Half, error: PeerError) -> None:
        """The one place where a peer's fault costs a link."""
        if half.target.links.get(half.source) is half.twin:
            self._close(half.target, half.source, f"peer error: {error}")

    def refused(self, node: SimNode, half: Half, port: int, msg: Freight, close: bool) -> None:
        self._dropped(node, half.target.id, port, msg, "overload" if close else "queue full")
        if close and node.links.get(half.target.id) is half:
            self._close(node, half.target.id, "overload")

    def _dropped(self, node: SimNode, peer: Peer, port: int, msg: Freight, reason: str) -> None:
        plain = msg if isinstance(msg, Message) else msg.msg
        if plain is None and isinstance(msg, Parcel):
            plain = node.envs[port].codec.unpack(msg.frame)[0]
        assert plain is not None
        if self.tracer is not None:
            topic, known = about(plain)
            self.tracer.emit(self.now, node.id, DROP, topic, known, peer, None, 1, None, plain.lane, reason)
        if node.up:
            self.at(self.now, self._tell_dropped, node, peer, port, plain)

    def _tell_dropped(self, node: SimNode, peer: Peer, port: int, msg: Message) -> None:
        if node.up:
            node.machines[port].dropped(peer, msg)

    def sampled(self, node: SimNode, msg: Freight, waiting: int) -> None:
        """The length of a sender's queue, the new copy included."""
        if self.tracer is not None:
            topic, known = about(msg) if isinstance(msg, Message) else (None, None)
            self.tracer.emit(self.now, node.id, QUEUE, topic, known, None, None, waiting, None, msg.lane)

    def _note(self, node: SimNode, kind: str, peer: Peer | None = None, reason: str | None = None) -> None:
        if self.tracer is not None:
            self.tracer.emit(self.now, node.id, kind, None, None, peer, None, None, None, None, reason)

    # Faults.

    def inject(self, plan: Sequence[faults.AnyFault]) -> None:
        """Schedule faults that `peer.faults.settle` has made concrete."""
        for fault in plan:
            self.at(round(fault.at * SECOND), self._begin, fault)

    def _begin(self, fault: faults.AnyFault) -> None:
        match fault:
            case faults.Crash():
                for number in fault.nodes:
                    self.crash(number)
            case faults.Restart():
                for number in fault.nodes:
                    self.restart(number, round(fault.down * SECOND), fault.state)
            case faults.Reset():
                self._reset(fault)
            case faults.Nat():
                self._count_nat(fault, 1)
                self._later(fault.duration, self._count_nat, fault, -1)
            case faults.Skew():
                self._skew(fault, fault.factor)
                self._later(fault.duration, self._skew, fault, 1.0)
            case faults.MassCrash():
                raise UsageError("a mass crash must be settled into named victims before the run; see peer.faults.settle")
            case _:
                active = Active(fault, self.stream(f"fault:{fault}"))
                self.network.begin(active)
                self._later(fault.duration, self.network.end, active)

    def _later(self, duration: float, action: Callable[..., None], *args: Any) -> None:
        if duration < faults.FOREVER:
            self.at(self.now + round(duration * SECOND), action, *args)

    def _reset(self, fault: faults.Reset) -> None:
        halves = [half for node in self.nodes.values() for half in node.links.values() if half.source < half.target.id]
        if fault.a is not None and fault.b is not None:
            pair = {fault.a, fault.b}
            chosen = [half for half in halves if {half.source, half.target.id} == pair]
        else:
            chosen = self.stream(f"fault:{fault}").sample(halves, round(fault.share * len(halves)))
        for half in chosen:
            self.network.counts["reset"] += 1
            self.break_link(half, "reset")

    def _count_nat(self, fault: faults.Nat, step: int) -> None:
        for number in fault.nodes:
            left = self.behind_nat.pop(number, 0) + step
            if left:
                self.behind_nat[number] = left

    def _skew(self, fault: faults.Skew, factor: float) -> None:
        for number in fault.nodes:
            self.skews[number] = factor
            if number in self.nodes:
                self.nodes[number].skew = factor

    # The loop.

    def run(self, until: int) -> None:
        """Handle all that happens up to and including the moment `until`; garbage collection pauses meanwhile."""
        if until < self.now:
            raise UsageError(f"the simulation is at {self.now} us already, past {until}")
        collected = gc.isenabled()
        gc.disable()
        try:
            self._loop(until)
        except Exception as error:
            error.add_note(f"simulation: seed {self.seed}, virtual time {self.now / SECOND:.6f} s")
            raise
        finally:
            if collected:
                gc.enable()
        self.now = until

    def _loop(self, until: int) -> None:
        while (bucket := self.calendar.open(until)) is not None:
            rest: list[Entry] = []
            whole = bucket[0][0] >> SHIFT < until >> SHIFT
            others = self._handle(iter(bucket) if whole else _up_to(until, bucket, rest))
            self.events += len(bucket) - len(rest) - others
            self.calendar.put_back(rest)

    def _handle(self, entries: Iterator[Entry]) -> int:
        """The fast path: each copy in as few steps as Python allows; answers how many entries were no event here."""
        judge, others = self.network.judge, 0
        for t, half, port, msg in entries:
            self.now = t
            if half.__class__ is Half:
                ears = half.ears
                handler = ears[~port].get(msg.__class__)
                if half.trouble is not None:
                    others += 1
                    judge(half, port, msg)
                elif handler is None:
                    others += 1
                    self.hand(half, port, msg)
                else:
                    try:
                        handler(ears[port], half.source, msg)
                    except PeerError as error:
                        self._blame(half, error)
            elif half is not None:
                others += 1 - self._fan_out(half, port, msg)
            elif port.__class__ is SimTimer:
                others += not self._fire(port)
            else:
                others += 1
                port(*msg)
        return others

    def _fan_out(self, halves: Sequence[Half], port: int, msg: Freight) -> int:
        """All copies of one send, which share one arrival; answers how many were handed over here."""
        judge, kind, handed, table = self.network.judge, msg.__class__, len(halves), ~port
        for half in halves:
            ears = half.ears
            handler = ears[table].get(kind)
            if half.trouble is not None:
                handed -= 1
                judge(half, port, msg)
            elif handler is None:
                handed -= 1
                self.hand(half, port, msg)
            else:
                try:
                    handler(ears[port], half.source, msg)
                except PeerError as error:
                    self._blame(half, error)
        return handed

    def _fire(self, timer: SimTimer) -> bool:
        action, args = timer.action, timer.args
        if action is None or not timer.node.up:
            return False
        timer.cancel()
        action(*args)
        return True


def both_ways(machines: Sequence[Machine]) -> tuple[Any, ...]:
    """Each machine at its port p, and its table of handlers at ~p: one object to touch for each arrival instead of four."""
    return (*machines, *(machine.handlers for machine in reversed(machines)))


def tell(machine: Machine, sender: Peer, msg: Message) -> None:
    handler = machine.handlers.get(type(msg))
    if handler is not None:
        handler(machine, sender, msg)
    elif not isinstance(machine, Deaf):
        raise PeerError(f"{type(machine).__name__} takes no {type(msg).__name__}")


def about(msg: Message) -> tuple[str | None, MessageId | None]:
    """By what a trace knows a message: a payload has a topic and an id, control traffic has neither."""
    return (msg.topic, msg.id) if msg.lane is Lane.PAYLOAD else (None, None)  # type: ignore[attr-defined]


def _no_trace(
    kind: str,
    topic: str | None = None,
    msg: MessageId | None = None,
    peer: Peer | None = None,
    hops: int | None = None,
    reason: str | None = None,
    dependencies: tuple[MessageId, ...] = (),
) -> None: ...


def _up_to(until: int, bucket: list[Entry], rest: list[Entry]) -> Iterator[Entry]:
    """The entries of the last bucket that are still in time; the others go to `rest`."""
    entries = iter(bucket)
    for entry in entries:
        if entry[0] > until:
            rest.append(entry)
            rest.extend(entries)
        else:
            yield entry
