"""One machine's view of the simulated world: the Env of `libweft.peer.machine`, and one life of a node.

Requests, replies and frames of the real codec travel as parcels; plain messages pass by reference, as they are.
Bounds: a request ends at its timeout; what an Env keeps of its last `send_all` is one tuple of links.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from libweft.peer.dispatch import about, ask, receive
from libweft.peer.errors import Refused, UsageError
from libweft.peer.machine import Build, Codec, Machine, Message, MessageId, Peer, PeerInfo
from libweft.peer.sim.network import Fan, Freight, Half, Parcel, Uplink
from libweft.peer.trace.kinds import SEND

if TYPE_CHECKING:
    from libweft.peer.sim.simulator import Simulator


Started: TypeAlias = "Callable[[SimNode], None]"

RESET = bytes(12)  # a refusal is a stream's end, a frame of Yamux


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
    """Stands for the machine that a peer does not have: takes nothing. Its Env is the sender's.

    Or for one that does not serve, the `asker`: to that belongs only what comes back to it.
    """

    __slots__ = ("asker",)

    def __init__(self, env: SimEnv, asker: Machine | None) -> None:
        super().__init__(env)
        self.asker = asker


class SimEnv:
    """One machine's view of the simulated world (`libweft.peer.machine.Env`)."""

    __slots__ = (
        "_codec", "_fan", "_other_fan", "me", "node", "port", "requests", "sim", "trace", "tracing",
    )  # fmt: skip

    def __init__(self, sim: Simulator, node: SimNode, port: int) -> None:
        self.sim = sim
        self.node = node
        self.port = port
        self.me = node.id
        self.tracing = sim.tracer is not None
        self.trace = self._trace if self.tracing else _no_trace
        self.requests: dict[int, Request] | None = None
        self._codec: Codec | None = None
        self._fan: Fan | None = None
        self._other_fan: Fan | None = None

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
        return self.sim.stores.setdefault((self.me, self.port), {})

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
        node, sim = self.node, self.sim
        half = node.links.get(peer)
        if half is None or sim.traces_sends or sim.codec or not node.up:
            self._ship("tell", peer, msg, 0)
        else:
            sim.network.post(node, half, self.port, msg)

    def send_all(self, peers: tuple[Peer, ...], msg: Message, but: Peer | None = None) -> None:
        if len(peers) == 1:
            if peers[0] != but:
                self.send(peers[0], msg)
            return
        node, sim = self.node, self.sim
        if not node.up:
            return
        if sim.traces_sends:
            self._trace_send(peers, msg, but)
        fan = self._fan
        if fan is None or peers is not fan.peers or node.changes != fan.changes:
            fan = self._fan_to(peers)
        if fan.strangers:
            self._send_strangers(fan, msg, but)
        half = node.links.get(but) if but is not None else None
        skip = half.ears[self.port] if half is not None else None
        if not sim.codec:
            sim.network.post_all(node, fan, self.port, msg, skip)
        else:
            for parcel in self.parcels("tell", msg):
                sim.network.post_all(node, fan, self.port, parcel, skip)

    def _fan_to(self, peers: tuple[Peer, ...]) -> Fan:
        """Which links lead to these peers: kept for the next calls, until a link of this node comes or goes.

        Two are kept, since a router may have two sorts of neighbours and send to each in turn.
        """
        fan, other = self._fan, self._other_fan
        if fan is not None and peers is not fan.peers:
            self._other_fan = fan
            if other is not None and peers is other.peers and self.node.changes == other.changes:
                self._fan = other
                return other
        self._fan = Fan(self.node, peers, self.port)
        return self._fan

    def _send_strangers(self, fan: Fan, msg: Message, but: Peer | None) -> None:
        for peer in fan.strangers:
            if peer != but:
                self.sim.links.wait_for_dial(self.node, peer, self.port, msg)

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
        self.sim.links.hold(self.node, peer, self.port)

    def disconnect(self, peer: Peer) -> None:
        self.sim.links.release(self.node, peer, self.port)

    def backlog(self, peer: Peer) -> int:
        half = self.node.links.get(peer)
        if half is None:
            return sum(self.node.envs[port].size(msg) for port, msg in self.node.dials.get(peer, ()))
        self.sim.network.look(self.node)
        return half.queued

    def learn(self, info: PeerInfo) -> None:
        """Every peer can be dialled by its number here; what was learned is only given back."""
        if self.node.infos is None:
            self.node.infos = {}
        self.node.infos[info.peer] = info

    def info(self, peer: Peer) -> PeerInfo:
        return (self.node.infos or {}).get(peer) or PeerInfo(peer)

    def size(self, msg: Freight) -> int:
        if isinstance(msg, Message):
            return self.codec.size(msg)
        return len(msg.frame) if msg.frame is not None else self.codec.size(msg.msg)

    def parcels(self, role: str, msg: Message, number: int = 0) -> list[Parcel]:
        if not self.sim.codec:
            return [Parcel(role, msg, None, number)]
        return [Parcel(role, msg, frame, number) for frame in self.codec.pack([msg])]

    def take(self, half: Half, parcel: Parcel) -> None:
        """A parcel has come for this machine."""
        if parcel.role == "refuse":
            self.failed(parcel.number, "refused")
            return
        parts = (parcel.msg,) if parcel.frame is None else self.codec.unpack(parcel.frame)
        machine = self.node.machines[self.port]
        for part in parts:
            if parcel.role == "tell":
                receive(machine, half.source, part)
            elif parcel.role == "ask":
                self._asked(machine, half.source, part, parcel.number)
            else:
                self._replied(half.source, part, parcel.number)

    def _asked(self, machine: Machine, sender: int, msg: Message, number: int) -> None:
        try:
            ask(machine, sender, msg, partial(self._reply, sender, number))
        except Refused:
            half = self.node.links.get(sender)
            if half is not None:
                self.sim.network.post(self.node, half, self.port, Parcel("refuse", msg, RESET, number))

    def _reply(self, sender: int, number: int, msg: Message) -> None:
        self._ship("reply", sender, msg, number)

    def _replied(self, sender: int, msg: Message, number: int) -> None:
        request = self.requests.get(number) if self.requests else None
        if request is not None and request.peer == sender and self.requests is not None:
            del self.requests[number]
            request.timer.cancel()
            request.on_reply(sender, msg)

    def _ship(self, role: str, peer: Peer, msg: Message, number: int) -> None:
        half = self.node.links.get(peer)
        if not self.node.up or (role == "reply" and half is None):
            return
        if self.sim.traces_sends:
            self._trace_send((peer,), msg, None)
        plain = role == "tell" and not self.sim.codec
        for freight in (msg,) if plain else self.parcels(role, msg, number):
            if half is not None:
                self.sim.network.post(self.node, half, self.port, freight)
            else:
                self.sim.links.wait_for_dial(self.node, peer, self.port, freight)

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
        if kind not in tracer.needless:
            tracer.emit(self.sim.now, self.me, kind, topic, msg, peer, hops, None, None, None, reason, dependencies)

    def _trace_send(self, peers: tuple[Peer, ...], msg: Message, but: Peer | None) -> None:
        tracer = self.sim.tracer
        assert tracer is not None
        if but is not None:
            peers = tuple(peer for peer in peers if peer != but)
        if not peers:
            return
        topic, known = about(msg)
        size, only = self.codec.size(msg), peers[0] if len(peers) == 1 else None
        tracer.emit(self.sim.now, self.me, SEND, topic, known, only, None, len(peers), size, msg.lane)
        if tracer.level == "full":
            tracer.copies(self.sim.now, self.me, peers, topic, known, size, msg.lane)


class Request(NamedTuple):
    peer: Peer
    on_reply: Callable[[Peer, Any], None]
    on_fail: Callable[[Peer, str], None]
    timer: SimTimer


class SimNode:
    """One life of a node: a restart makes a new one under the same number."""

    __slots__ = (
        "build", "busy_until", "changes", "clock", "dials", "envs", "epoch", "heedful", "holds", "id", "infos",
        "links", "machines", "rng", "shape", "skew", "started", "troubled", "up", "uplink",
    )  # fmt: skip

    def __init__(self, number: int, epoch: int, skew: float, build: Build, started: Started | None) -> None:
        self.id = number
        self.epoch = epoch
        self.skew = skew
        self.build = build
        self.started = started
        self.up = True
        self.machines: Sequence[Machine] = ()
        self.heedful: Sequence[Machine] = ()  # of the machines, those that ask when a link is drained
        self.envs: list[SimEnv] = []
        self.shape: tuple[tuple[tuple[str, ...], tuple[str, ...], bool], ...] = ()
        self.links: dict[Peer, Half] = {}
        self.holds: dict[Peer, int] = {}  # a bit for each port
        self.dials: dict[Peer, list[tuple[int, Freight]]] = {}
        self.rng: Random | None = None
        self.infos: dict[Peer, PeerInfo] | None = None
        self.clock = 0
        self.changes = 0  # of `links`
        self.troubled = False  # whether any of `links` may be
        self.busy_until = 0
        self.uplink: Uplink | None = None  # until `ensure_uplink` makes it

    def relinked(self) -> None:
        """A link came or went."""
        self.changes += 1
        if self.troubled:
            self.look_over()

    def look_over(self) -> None:
        self.troubled = any(half.trouble is not None for half in self.links.values())

    def ensure_uplink(self) -> Uplink:
        """Return the uplink, made at its first use."""
        if self.uplink is None:
            self.uplink = Uplink()
        return self.uplink


def _no_trace(
    kind: str,
    topic: str | None = None,
    msg: MessageId | None = None,
    peer: Peer | None = None,
    hops: int | None = None,
    reason: str | None = None,
    dependencies: tuple[MessageId, ...] = (),
) -> None: ...
