"""The simulated network: how copies travel, what faults do to them, and what waits at a busy sender or receiver.

A link is two `Half`s, one a direction. A half is reliable and FIFO, as TCP is: a copy arrives at the later of its own
draw and the arrival before it. With a draw a send the FIFO clock is the sender's, so that all copies of one send share
one queue entry. Loss, cuts and closed ends are judged a copy at a time, when its entry is opened.

What troubles a half is one value, None on a healthy one: that is all that the fast path looks at.
Bounds: an uplink holds at most `queue` bytes a link (see `peer.machine.admit`); what a cut holds back ends with the link.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from peer import faults
from peer.calendar import SHIFT, Calendar
from peer.errors import UsageError
from peer.machine import MS, SECOND, Handlers, Lane, Machine, Message, Rng, admit

if TYPE_CHECKING:
    from peer.sim import SimNode, Simulator


DICE = (faults.Loss, faults.BurstLoss, faults.Duplicate, faults.Corrupt, faults.Truncate)


class Half:
    """One direction of a link; `ears` are the receiver's machines, by the sender's port."""

    __slots__ = ("clock", "ears", "incarnation", "source", "target", "trouble", "twin")

    def __init__(self, source: int, target: SimNode, ears: Sequence[Machine], incarnation: int) -> None:
        self.source = source
        self.target = target
        self.ears = ears
        self.incarnation = incarnation
        self.clock = 0
        self.trouble: Trouble | None = None
        self.twin: Half = self

    def suffer(self, trouble: Trouble | None) -> None:
        self.trouble = trouble
        if trouble is not None:
            self.twin.target.troubled = True


class Fan:
    """The links that lead from a node to a list of peers, kept from one send to the next.

    While no link of the node changes and none is troubled, the receivers can be handed a message without a look at the
    links: that is worth a third of the time of a simulation with a draw a send.
    """

    __slots__ = ("changes", "halves", "handlers", "machines", "node")

    def __init__(self, node: SimNode, halves: tuple[Half, ...], port: int) -> None:
        self.node = node
        self.changes = node.changes
        self.halves = halves
        self.machines = tuple(half.ears[port] for half in halves)
        tables = {id(machine.handlers): machine.handlers for machine in self.machines}
        self.handlers: Handlers = next(iter(tables.values())) if len(tables) == 1 else {}

    @property
    def clear(self) -> bool:
        return self.node.changes == self.changes and not self.node.troubled


class Parcel:
    """What travels when it is more than a plain message: a request, a reply, or a frame of the real codec."""

    __slots__ = ("frame", "lane", "msg", "number", "role")

    droppable = False

    def __init__(self, role: str, lane: Lane, msg: Message | None, frame: bytes = b"", number: int = 0) -> None:
        self.role = role  # "tell", "ask" or "reply"
        self.lane = lane
        self.msg = msg  # None when `frame` holds it
        self.frame = frame
        self.number = number

    def damaged(self, frame: bytes) -> Parcel:
        return Parcel(self.role, self.lane, None, frame, self.number)


Freight: TypeAlias = Message | Parcel


class Active:
    """A link fault while it lasts, with its own stream of chance."""

    def __init__(self, fault: faults.AnyFault, rng: Rng) -> None:
        self.fault = fault
        self.rng = rng
        self.bad: set[Half] = set()  # the links in a bad spell (burst loss); membership only
        self.sources = frozenset(getattr(fault, "sources", ()))
        self.targets = frozenset(getattr(fault, "targets", ()))
        self.nodes = frozenset(getattr(fault, "nodes", ()))
        groups = fault.groups if isinstance(fault, faults.Partition) else ()
        self.group = {node: number for number, group in enumerate(groups) for node in group}

    def touches(self, source: int, target: int) -> bool:
        if isinstance(self.fault, faults.LinkFault):
            return (not self.sources or source in self.sources) and (not self.targets or target in self.targets)
        if isinstance(self.fault, faults.Partition):
            return source in self.group and target in self.group and self.group[source] != self.group[target]
        return source in self.nodes or target in self.nodes


class Trouble:
    """All that the active faults, or a busy receiver, do to one half."""

    __slots__ = ("closed", "cut", "dice", "extra", "factor", "held")

    def __init__(self, active: Sequence[Active] = (), closed: bool = False) -> None:
        kinds = [a.fault for a in active]
        self.closed = closed
        self.cut = any(isinstance(f, (faults.Cut, faults.Partition)) for f in kinds)
        self.extra = sum(round(f.ms * MS) for f in kinds if isinstance(f, faults.DelaySpike))
        self.factor = max((f.factor for f in kinds if isinstance(f, faults.SlowNode)), default=1.0)
        self.held = [a for a in active if isinstance(a.fault, faults.Reorder)]
        self.dice = [a for a in active if isinstance(a.fault, DICE)]

    @property
    def delays(self) -> bool:
        return bool(self.extra or self.held or self.factor != 1.0)


CLOSED = Trouble(closed=True)


class Uplink:
    """What a node has to send when its copies leave one at a time; by lanes, or in plain order where the model says so."""

    __slots__ = ("busy", "closing", "lanes", "queued", "waiting")

    def __init__(self) -> None:
        self.lanes: tuple[deque[tuple[Half, int, Freight, int, int]], ...] = tuple(deque() for _ in Lane)
        self.queued: dict[Half, int] = {}
        self.closing: dict[Half, str] = {}
        self.waiting = 0
        self.busy = False


class Network:
    """Moves copies for a `Simulator`; latency and faults in one object."""

    def __init__(self, sim: Simulator) -> None:
        self.sim = sim
        self.calendar: Calendar = sim.calendar
        self.latency = sim.latency
        self.rng = sim.stream("network")
        stream = self.latency.stream(sim.stream("latency"))
        self.draws: Iterator[int] | None = stream
        self.dialling: Iterator[int] | None = self.latency.stream(sim.stream("dial"))
        self.shared_clock = self.latency.draw == "send"
        self.byte_time = SECOND / sim.bandwidth if sim.bandwidth else 0.0
        self.in_order = any(self.latency.occupancy(lane) for lane in Lane)
        self.one_at_a_time = self.in_order or bool(self.byte_time)
        self.active: list[Active] = []
        self.parked: dict[Half, list[tuple[Machine, Freight]]] = {}
        self.cut_since: dict[Half, int] = {}
        self.counts: Counter[str] = Counter()
        plain = stream is not None and not self.one_at_a_time
        self.post_all = self._post_each if not plain else self._post_shared if self.shared_clock else self._post_copies

    def _post_copies(self, node: SimNode, fan: Fan, port: int, msg: Freight, skip: Machine | None) -> None:
        now, draws, buckets = self.sim.now, self.draws, self.calendar.buckets
        assert draws is not None
        for half, machine in zip(fan.halves, fan.machines, strict=True):
            if machine is skip:
                continue
            if half.trouble is not None:
                self._carry(node, half, port, msg)
                continue
            t = now + next(draws)
            if t > half.clock:
                half.clock = t
            else:
                t = half.clock
            bucket = buckets.get(t >> SHIFT)
            if bucket is not None:
                bucket.append((t, half, machine, msg))
            else:
                self.calendar.add((t, half, machine, msg))

    def _post_shared(self, node: SimNode, fan: Fan, port: int, msg: Freight, skip: Machine | None) -> None:
        if self.active and any(half.trouble is not None and half.trouble.delays for half in fan.halves):
            self._post_each(node, fan, port, msg, skip)
            return
        assert self.draws is not None
        t = self.sim.now + next(self.draws)
        if t < node.clock:
            t = node.clock
        node.clock = t
        self.calendar.add((t, fan, skip, msg))

    def _post_each(self, node: SimNode, fan: Fan, port: int, msg: Freight, skip: Machine | None) -> None:
        for half, machine in zip(fan.halves, fan.machines, strict=True):
            if machine is not skip:
                self.post(node, half, port, msg)

    def post(self, node: SimNode, half: Half, port: int, msg: Freight) -> None:
        """One copy: at once, or when the sender's turn for it has come."""
        if self.one_at_a_time:
            self._queue(node, half, port, msg)
        else:
            self._carry(node, half, port, msg)

    def _carry(self, node: SimNode, half: Half, port: int, msg: Freight) -> None:
        """Put one copy on its way."""
        delay, trouble, machine = self.delay(half.source, half.target.id), half.trouble, half.ears[port]
        if trouble is not None:
            delay = round(delay * trouble.factor) + trouble.extra
            if back := self._held_back(trouble):
                self.calendar.add((self.sim.now + delay + back, half, machine, msg))
                return
        self.calendar.add((self.in_turn(node, half, self.sim.now + delay), half, machine, msg))

    def _held_back(self, trouble: Trouble) -> int:
        """How long a reordering fault keeps a copy, so that others overtake it."""
        for held in trouble.held:
            assert isinstance(held.fault, faults.Reorder)
            if held.rng.random() < held.fault.p:
                self.counts["reordered"] += 1
                return 1 + round(held.rng.random() * held.fault.ms * MS)
        return 0

    def in_turn(self, node: SimNode, half: Half, t: int) -> int:
        """The FIFO rule: not before anything that was sent on this half (or, with a draw a send, by this node)."""
        if self.shared_clock:
            node.clock = t = max(node.clock, t)
        else:
            half.clock = t = max(half.clock, t)
        return t

    def delay(self, source: int, target: int) -> int:
        return next(self.draws) if self.draws is not None else self.latency.delay(source, target)

    def dial_delay(self, source: int, target: int) -> int:
        return next(self.dialling) if self.dialling is not None else self.latency.delay(source, target)

    # A busy sender.

    def _queue(self, node: SimNode, half: Half, port: int, msg: Freight) -> None:
        uplink = node.uplink
        lane, size = msg.lane, node.envs[port].size(msg) if self.byte_time else 0
        cost = self.latency.occupancy(lane) + round(size * self.byte_time)
        if cost == 0:
            self._carry(node, half, port, msg)
            return
        queued = uplink.queued.get(half, 0)
        verdict = admit(msg, size, queued, self.sim.queue)
        if verdict != "send":
            self.counts["overload"] += 1
            self.sim.links.refused(node, half, port, msg, close=verdict == "close")
            return
        uplink.queued[half] = queued + max(size, 1)
        uplink.waiting += 1
        uplink.lanes[0 if self.in_order else lane].append((half, port, msg, size, cost))
        self.sim.sampled(node, msg, uplink.waiting)
        if not uplink.busy:
            uplink.busy = True
            self._serve(node, self._first_delay(cost))

    def _first_delay(self, cost: int) -> int:
        """The authors' program removes a copy at each tick of a timer that is already running or not, at equal odds."""
        program = getattr(self.latency, "setting", "") == "program"
        return cost * self.rng.getrandbits(1) if program else cost

    def _serve(self, node: SimNode, delay: int) -> None:
        self.sim.at(self.sim.now + delay, self._departs, node)

    def _departs(self, node: SimNode) -> None:
        uplink = node.uplink
        half, port, msg, size, _ = next(lane for lane in uplink.lanes if lane).popleft()
        uplink.waiting -= 1
        left = uplink.queued.pop(half) - max(size, 1)
        if left:
            uplink.queued[half] = left
        if half in uplink.closing or (node.up and node.links.get(half.target.id) is half):
            self._carry(node, half, port, msg)
        else:
            self.sim.links.refused(node, half, port, msg, close=False)
        if not left:
            self._emptied(node, half)
        following = next((lane for lane in uplink.lanes if lane), None)
        uplink.busy = following is not None
        if following is not None:
            self._serve(node, following[0][4])

    def _emptied(self, node: SimNode, half: Half) -> None:
        reason = node.uplink.closing.pop(half, None)
        if reason is not None:
            self.sim.links.send_close(node, half, reason)
        elif node.up:
            for machine in node.machines:
                machine.drained(half.target.id)

    # Faults.

    def begin(self, active: Active) -> None:
        self.active.append(active)
        self._review()

    def end(self, active: Active) -> None:
        self.active.remove(active)
        self._review()

    def trouble_of(self, source: int, target: int) -> Trouble | None:
        touching = [active for active in self.active if active.touches(source, target)]
        return Trouble(touching) if touching or self.latency.service else None

    def _review(self) -> None:
        for node in list(self.sim.nodes.values()):
            for half in list(node.links.values()):
                if half.trouble is None or not half.trouble.closed:
                    half.suffer(self.trouble_of(half.source, half.target.id))
                    self.note_cut(half)
            node.look_over()

    def note_cut(self, half: Half) -> None:
        """A cut holds copies back, as TCP's repetition does, until it heals or the ends give the link up."""
        cut = half.trouble is not None and half.trouble.cut
        if cut and half not in self.cut_since:
            self.cut_since[half] = self.sim.now
            self.sim.at(self.sim.now + self.sim.detection, self._give_up, half, self.sim.now)
        elif not cut and half in self.cut_since:
            del self.cut_since[half]
            for machine, msg in self.parked.pop(half, ()):
                t = self.in_turn(half.twin.target, half, self.sim.now + self.delay(half.source, half.target.id))
                self.calendar.add((t, half, machine, msg))

    def _give_up(self, half: Half, since: int) -> None:
        if self.cut_since.get(half) == since:
            self.sim.links.break_link(half, "timeout")

    def forget(self, half: Half) -> None:
        self.cut_since.pop(half, None)
        self.parked.pop(half, None)

    def judge(self, half: Half, machine: Machine, msg: Freight) -> None:
        """A copy on a troubled half arrives."""
        trouble = half.trouble
        if trouble is None:
            self.sim.hand(half, machine, msg)
        elif trouble.closed:
            self.counts["closed"] += 1
        elif trouble.cut:
            self.counts["cut"] += 1
            self.parked.setdefault(half, []).append((machine, msg))
        elif (survived := self._roll(trouble, half, machine, msg)) is not None:
            self._serve_in_order(half, machine, survived)

    def _roll(self, trouble: Trouble, half: Half, machine: Machine, msg: Freight) -> Freight | None:
        for active in trouble.dice:
            fault, chance = active.fault, active.rng.random()
            if isinstance(fault, faults.BurstLoss):
                if chance < (fault.stay if half in active.bad else fault.p):
                    active.bad.add(half)
                    self.counts["burst_lost"] += 1
                    return None
                active.bad.discard(half)
            elif chance >= fault.p:  # type: ignore[union-attr]
                continue
            elif isinstance(fault, faults.Loss):
                self.counts["lost"] += 1
                return None
            elif isinstance(fault, faults.Duplicate):
                self.counts["duplicated"] += 1
                self.sim.at(self.sim.now + self.delay(half.source, half.target.id), self.sim.hand, half, machine, msg)
            else:
                msg = self._damaged(fault, active.rng, msg)
        return msg

    def _damaged(self, fault: faults.AnyFault, rng: Rng, msg: Freight) -> Freight:
        if not isinstance(msg, Parcel) or not msg.frame:
            raise UsageError(f"{type(fault).__name__} faults need frames: run with the codec in the loop (network.codec)")
        frame = msg.frame
        if isinstance(fault, faults.Truncate):
            self.counts["truncated"] += 1
            return msg.damaged(frame[: rng.randrange(len(frame))])
        self.counts["corrupted"] += 1
        place = rng.randrange(len(frame))
        return msg.damaged(frame[:place] + bytes([frame[place] ^ rng.randrange(1, 256)]) + frame[place + 1 :])

    # A busy receiver.

    def _serve_in_order(self, half: Half, machine: Machine, msg: Freight) -> None:
        unit, node, now = self.latency.service, half.target, self.sim.now
        if not unit:
            self.sim.hand(half, machine, msg)
            return
        turn = max(node.busy_until, now)
        node.busy_until = turn + unit
        self.sim.at(turn, self.sim.hand, half, machine, msg)
