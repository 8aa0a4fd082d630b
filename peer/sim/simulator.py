"""The simulator: thousands of stacks in one virtual time, the same run for the same seed.

It drives the same machines as a live peer does: `libweft.peer.sim.env` is what they see, `libweft.peer.sim.links` makes and
breaks links, `libweft.peer.sim.network` moves the copies. Messages pass by reference, or through the real codec when asked.

Events, as counted: copies handed to a machine, timers fired, link upcalls; copies that were lost and timers that were
cancelled are none. Chance comes from named streams of one seed, so that one more fault does not shift other draws.
Bounds: none of its own beside those of the three; the machines bound the rest.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from libweft.peer.dispatch import about, receive
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.machine import SECOND, Build, Machine, Message, Peer
from libweft.peer.sim import faults
from libweft.peer.sim.calendar import SHIFT, Calendar, Entry
from libweft.peer.sim.env import Deaf, SimEnv, SimNode, SimTimer, Started
from libweft.peer.sim.latency import Model, Uniform
from libweft.peer.sim.link_faults import CLOSED, Active
from libweft.peer.sim.links import Links
from libweft.peer.sim.network import Fan, Freight, Half, Network, Parcel
from libweft.peer.trace.kinds import NODE_DOWN, NODE_UP, QUEUE, SEND
from libweft.peer.trace.tracer import Tracer

__all__ = ["SimNode", "Simulator", "stream"]


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
        self.traces_sends = tracer is not None and tracer.heeds(SEND)
        self.samples = tracer is not None and tracer.heeds(QUEUE)
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
        self.live: dict[int, None] = {}
        self.stores: dict[tuple[int, int], dict[str, bytes]] = {}
        self.calendar = Calendar()
        self.network = Network(self)
        self.links = Links(self)
        self.skews: dict[int, list[float]] = {}
        self.addresses: dict[int, str] = {}  # of nodes whose links shall show one
        self._equal: Counter[str] = Counter()  # two equal faults throw dice of their own

    def stream(self, name: str) -> Random:
        return stream(self.seed, name)

    def at(self, t: int, action: Callable[..., None], *args: Any) -> None:
        """Do something from outside at a moment; it is no event of a machine."""
        self.calendar.add((max(t, self.now), None, action, args))

    # Nodes.

    def add(self, build: Build, started: Started | None = None) -> int:
        """Start a node; `started` is called after its machines, at each start."""
        number = len(self.nodes)
        self._start(number, build, started, ())
        return number

    def _start(self, number: int, build: Build, started: Started | None, states: Sequence[bytes | None]) -> None:
        old = self.nodes.get(number)
        epoch = self.now if old is None else max(self.now, old.epoch + 1)
        node = SimNode(number, epoch, self.skews.get(number, [1.0])[-1], build, started)

        def env() -> SimEnv:
            node.envs.append(SimEnv(self, node, len(node.envs)))
            return node.envs[-1]

        machines = list(build(env))
        if [machine.env for machine in machines] != node.envs:
            raise UsageError("a stack must be built lowest machine first, one Env for each machine")
        node.machines = machines
        node.heedful = [machine for machine in machines if type(machine).drained is not Machine.drained]
        node.shape = tuple((machine.protocols, machine.watches, machine.serves) for machine in machines)
        self.nodes[number] = node
        self.live[number] = None
        self.note(node, NODE_UP)
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
        del self.live[number]
        self.note(node, NODE_DOWN, reason=reason)
        for half in node.links.values():
            half.twin.suffer(CLOSED)
            self.at(self.now + self.detection, self.links.lost, half.target, half.twin, "timeout")
        node.links = {}
        node.dials = {}
        self._crash_uplink(node)

    def _crash_uplink(self, node: SimNode) -> None:
        """A crash flushes nothing: links that were closing after their data are found out like the others."""
        self.network.strand(node)
        if node.uplink is not None:
            for half in node.uplink.closing:
                self.at(self.now + self.detection, self.links.lost, half.target, half.twin, "timeout")
            node.uplink.closing.clear()

    def leave(self, number: int) -> None:
        """In good order: machines stop, and links close after what they sent."""
        node = self.nodes[number]
        if not node.up:
            return
        for machine in reversed(node.machines):
            machine.stop()
        for peer in list(node.links):
            self.links.close(node, peer, "left")
        node.up = False
        del self.live[number]
        node.dials = {}
        self.note(node, NODE_DOWN, reason="left")

    def restart(self, number: int, down: int, state: bool) -> None:
        node = self.nodes[number]
        if not node.up:
            return
        states = [machine.snapshot() for machine in node.machines] if state else []
        self.crash(number, "restart")
        if not state:
            for port in range(len(node.machines)):
                self.stores.pop((number, port), None)
        self.at(self.now + down, self._restarted, node, states)

    def _restarted(self, old: SimNode, states: Sequence[bytes | None]) -> None:
        if self.nodes[old.id] is old:
            self._start(old.id, old.build, old.started, states)

    # Arrivals.

    def hand(self, half: Half, machine: Machine, msg: Freight) -> None:
        """Give one copy to its machine, outside the fast path."""
        if half.trouble is not None and half.trouble.closed:
            return
        if isinstance(machine, Deaf) and machine.asker is not None and isinstance(msg, Parcel) and msg.comes_back:
            machine = machine.asker
        env = machine.env
        assert isinstance(env, SimEnv)
        if isinstance(machine, Deaf):
            self.links.dropped(env.node, half.target.id, env.port, msg, "no common protocol")
            return
        self.events += 1
        try:
            if isinstance(msg, Parcel):
                env.take(half, msg)
            else:
                receive(machine, half.source, msg)
        except PeerError as error:
            self.links.blame(half, error)

    def sampled(self, node: SimNode, msg: Freight, waiting: int) -> None:
        """The length of a sender's queue, the new copy included, where somebody asks for it (`samples`)."""
        assert self.tracer is not None
        topic, known = about(msg if isinstance(msg, Message) else msg.msg)
        self.tracer.emit(self.now, node.id, QUEUE, topic, known, None, None, waiting, None, msg.lane)

    def note(self, node: SimNode, kind: str, peer: Peer | None = None, reason: str | None = None) -> None:
        if self.tracer is not None:
            self.tracer.emit(self.now, node.id, kind, None, None, peer, None, None, None, None, reason)

    # Faults.

    def inject(self, plan: Sequence[faults.AnyFault]) -> None:
        """Schedule faults that `libweft.peer.sim.faults.settle` has made concrete."""
        for fault in plan:
            if isinstance(fault, faults.MassCrash) or (isinstance(fault, faults.Partition) and not fault.groups):
                raise UsageError(
                    f"{fault} leaves its victims to chance; settle it before the run, see libweft.peer.sim.faults.settle"
                )
            self.at(round(fault.at * SECOND), self._begin, fault)

    def _begin(self, fault: faults.AnyFault) -> None:
        match fault:
            case faults.Crash():
                for number in self._there(fault.nodes):
                    self.crash(number)
            case faults.Restart():
                for number in self._there(fault.nodes):
                    self.restart(number, round(fault.down * SECOND), fault.state)
            case faults.Reset():
                self._reset(fault)
            case faults.Nat():
                self._count_nat(fault, 1)
                self._later(fault.duration, self._count_nat, fault, -1)
            case faults.Skew():
                self._skew(fault, begins=True)
                self._later(fault.duration, self._skew, fault, False)
            case faults.MassCrash():
                raise AssertionError("inject has refused it")
            case _:
                self._equal[repr(fault)] += 1
                active = Active(fault, self.stream(f"fault:{fault}:{self._equal[repr(fault)]}"))
                self.network.faults.begin(active)
                self._later(fault.duration, self.network.faults.end, active)

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
            self.links.break_link(half, "reset")

    def _count_nat(self, fault: faults.Nat, step: int) -> None:
        for number in fault.nodes:
            left = self.links.behind_nat.pop(number, 0) + step
            if left:
                self.links.behind_nat[number] = left

    def _skew(self, fault: faults.Skew, begins: bool) -> None:
        """Of several skews at once, the last to begin counts."""
        for number in fault.nodes:
            skews = self.skews.setdefault(number, [1.0])
            if begins:
                skews.append(fault.factor)
            else:
                skews.remove(fault.factor)
            if number in self.nodes:
                self.nodes[number].skew = skews[-1]

    def _there(self, numbers: Sequence[int]) -> list[int]:
        """A shrunk or replayed list may name nodes that this run has not."""
        return [number for number in numbers if number in self.nodes]

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
            if not whole:
                return

    def _handle(self, entries: Iterator[Entry]) -> int:
        """The fast path: each copy in as few steps as Python allows; answers how many entries were no event here."""
        judge, others = self.network.faults.judge, 0
        owner = kind = handler = None
        for t, half, machine, msg in entries:
            self.now = t
            if type(half) is Half:
                if type(machine) is not owner or type(msg) is not kind:
                    owner, kind = type(machine), type(msg)
                    handler = owner.handlers.get(kind)
                if half.trouble is not None or handler is None:
                    others += 1
                    judge(half, machine, msg)
                    continue
                try:
                    handler(machine, half.source, msg)
                except PeerError as error:
                    self.links.blame(half, error)
            elif half is not None:
                others += 1 - self._fan_out(half, machine, msg)
            elif type(machine) is SimTimer:
                others += not self._fire(machine)
            else:  # something from outside, with its arguments
                others += 1
                machine(*msg)
        return others

    def _fan_out(self, fan: Fan, skip: Machine | None, msg: Freight) -> int:
        """All copies of one send, which share one arrival; answers how many were handed over here."""
        handler = fan.handlers.get(type(msg))  # type: ignore[arg-type]
        if handler is None or not fan.clear:
            for half, machine in zip(fan.halves, fan.machines, strict=True):
                if machine is not skip:
                    self.network.faults.judge(half, machine, msg)
            return 0
        source, handed = fan.node.id, len(fan.machines)
        for machine in fan.machines:
            if machine is skip:
                handed -= 1
                continue
            try:
                handler(machine, source, msg)
            except PeerError as error:
                self.links.blame(fan.halves[fan.machines.index(machine)], error)
        return handed

    def _fire(self, timer: SimTimer) -> bool:
        action, args = timer.action, timer.args
        if action is None or not timer.node.up:
            return False
        timer.cancel()
        action(*args)
        return True


def stream(seed: int, name: str) -> Random:
    """A stream of chance of its own for each use; Random hashes a text by SHA-512, the same in every process."""
    return Random(f"{seed}/{name}")


def _up_to(until: int, bucket: list[Entry], rest: list[Entry]) -> Iterator[Entry]:
    """The entries of the last bucket that are still in time; the others go to `rest`."""
    entries = iter(bucket)
    for entry in entries:
        if entry[0] > until:
            rest.append(entry)
            rest.extend(entries)
        else:
            yield entry
