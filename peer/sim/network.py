"""The simulated network: how copies travel, what faults do to them, and what waits at a busy sender or receiver.

A link is two `Half`s, one a direction. A half is reliable and FIFO, as TCP is: a copy arrives at the later of its own
draw and the arrival before it. With a draw a send the FIFO clock is the sender's, so that all copies of one send share
one queue entry. What waits in plain order at a busy sender has its place on the link from the sending on. Loss, cuts and closed
ends are judged a copy at a time, when its entry is opened.

What troubles a half is one value, None on a healthy one (`libweft.peer.sim.link_faults`): that is all that the fast path looks
at. Bounds: an uplink holds at most `queue` bytes a link (see `libweft.peer.machine.admit`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from libweft.peer.machine import MS, SECOND, Handlers, Lane, Machine, Message, Peer
from libweft.peer.overload import admit
from libweft.peer.sim import faults
from libweft.peer.sim.calendar import SHIFT, Calendar, Entry
from libweft.peer.sim.link_faults import Faults, Trouble

if TYPE_CHECKING:
    from libweft.peer.sim.simulator import SimNode, Simulator


class Half:
    """One direction of a link; `ears` are the receiver's machines, by the sender's port, `watched` is when its end looks
    whether it is idle."""

    __slots__ = ("clock", "ears", "incarnation", "queued", "source", "target", "trouble", "twin", "watched")

    def __init__(self, source: int, target: SimNode, ears: Sequence[Machine], incarnation: int) -> None:
        self.source = source
        self.target = target
        self.ears = ears
        self.incarnation = incarnation
        self.clock = 0
        self.trouble: Trouble | None = None
        self.twin: Half = self
        self.watched = 0
        self.queued = 0  # bytes that wait at a busy sender, or copies where bytes do not count

    def suffer(self, trouble: Trouble | None) -> None:
        self.trouble = trouble
        if trouble is not None:
            self.twin.target.troubled = True


class Fan:
    """The links that lead from a node to a list of peers, kept from one send to the next.

    While no link of the node changes and none is troubled, the receivers can be handed a message without a look at the
    links: that is worth a third of the time of a simulation with a draw a send.
    """

    __slots__ = ("changes", "halves", "handlers", "machines", "node", "peers", "strangers")

    def __init__(self, node: SimNode, peers: tuple[Peer, ...], port: int) -> None:
        self.node = node
        self.peers = peers
        self.changes = node.changes
        self.halves = halves = tuple(node.links[peer] for peer in peers if peer in node.links)
        self.strangers = tuple(peer for peer in peers if peer not in node.links)
        self.machines = tuple(half.ears[port] for half in halves)
        tables = {id(machine.handlers): machine.handlers for machine in self.machines}
        self.handlers: Handlers = next(iter(tables.values())) if len(tables) == 1 else {}

    @property
    def clear(self) -> bool:
        return self.node.changes == self.changes and not self.node.troubled


class Parcel:
    """What travels when it is more than a plain message: a request, a reply, or a frame of the real codec."""

    __slots__ = ("frame", "msg", "number", "role")

    def __init__(self, role: str, msg: Message, frame: bytes | None = None, number: int = 0) -> None:
        self.role = role  # "tell", "ask", "reply" or "refuse"
        self.msg = msg
        self.frame = frame  # where there is one, the receiver gets what it decodes to, and never `msg`
        self.number = number

    @property
    def comes_back(self) -> bool:
        return self.role in ("reply", "refuse")

    @property
    def lane(self) -> Lane:
        return self.msg.lane

    @property
    def droppable(self) -> bool:
        return self.msg.droppable

    def damaged(self, frame: bytes) -> Parcel:
        return Parcel(self.role, self.msg, frame, self.number)


Freight: TypeAlias = Message | Parcel
Queued: TypeAlias = tuple[Half, int, Freight, int, int]
"""Where to, from which port, what, its bytes, and how long it keeps the sender busy."""
Lined: TypeAlias = tuple[int, Half, int, int, Entry]
"""When it leaves, where to, from which port, its bytes, and its arrival in the calendar."""


class Uplink:
    """What a node has to send when its copies leave one at a time: by lanes, or in plain order where the model says so.

    In plain order it is known when a copy leaves as soon as it is sent, so its arrival is in the calendar at once, and no event
    is spent on its leaving. What has left is forgotten when somebody looks (`Network.look`).
    """

    __slots__ = ("closing", "lanes", "leaving", "line", "waiting")

    def __init__(self) -> None:
        self.closing: dict[Half, str] = {}
        self.line: deque[Lined] = deque()  # in plain order; the rest is for lanes
        self.lanes: tuple[deque[Queued], ...] = tuple(deque() for _ in Lane)
        self.leaving: Queued | None = None  # the copy that is being sent now; nothing overtakes it, and without one nothing waits
        self.waiting = 0


class Network:
    """Moves copies for a `Simulator`; latency and faults in one object."""

    def __init__(self, sim: Simulator) -> None:
        self.sim = sim
        self.calendar: Calendar = sim.calendar
        self.latency = sim.latency
        self.rng = sim.stream("network")
        stream = self.latency.stream(sim.stream("latency"))
        self.draws = stream
        self.dialling = self.latency.stream(sim.stream("dial"))
        self.repeating = self.latency.stream(sim.stream("repeat"))
        self.shared_clock = self.latency.draw == "send"
        self.byte_time = SECOND / sim.bandwidth if sim.bandwidth else 0.0
        self.costs = {lane: self.latency.occupancy(lane) for lane in Lane}
        self.ticks = getattr(self.latency, "setting", "") == "program"
        self.in_order = any(self.costs.values())
        one_at_a_time = self.in_order or bool(self.byte_time)
        self.counts: Counter[str] = Counter()
        self.faults = Faults(self)
        # one copy, in its turn or at once
        self.post = self._line_up if self.in_order else self._queue if self.byte_time else self._carry
        plain = stream is not None and not one_at_a_time
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
        if self.faults.active and any(half.trouble is not None and half.trouble.delays for half in fan.halves):
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

    def _carry(self, node: SimNode, half: Half, port: int, msg: Freight) -> None:
        """Put one copy on its way."""
        self.calendar.add((self._arrival(node, half, self.sim.now), half, half.ears[port], msg))

    def _arrival(self, node: SimNode, half: Half, leaves: int) -> int:
        draws, trouble = self.draws, half.trouble
        delay = next(draws) if draws is not None else self.latency.delay(half.source, half.target.id)
        if trouble is not None:
            delay = round(delay * trouble.factor) + trouble.extra
            if back := self._held_back(trouble):
                return leaves + delay + back
        return self.in_turn(node, half, leaves + delay)

    def _held_back(self, trouble: Trouble) -> int:
        """How long a reordering fault keeps a copy, so that others overtake it."""
        for held in trouble.late:
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
        if not self.latency.dials:
            return 0
        return next(self.dialling) if self.dialling is not None else self.latency.delay(source, target)

    def repeat_delay(self, source: int, target: int) -> int:
        """For what only a fault sends again, so that it shifts no draw of others."""
        return next(self.repeating) if self.repeating is not None else self.latency.delay(source, target)

    # A busy sender.

    def _line_up(self, node: SimNode, half: Half, port: int, msg: Freight) -> None:
        """In plain order: the fast path, for a paper's runs have a thousand million copies."""
        size, cost, now = 1, self.costs[msg.lane], self.sim.now
        if self.byte_time:
            size = node.envs[port].size(msg)
            cost += round(size * self.byte_time)
        if cost == 0:
            self._carry(node, half, port, msg)
            return
        line = (node.uplink or node.ensure_uplink()).line
        while line and line[0][0] < now:
            left = line.popleft()
            left[1].queued -= left[3]
        if half.queued + size > self.sim.queue and not self._admits(node, half, port, msg, size):
            return
        if line:
            leaves = line[-1][0] + cost
        else:  # the authors' program removes a copy at each tick of a timer that is already running or not, at equal odds
            leaves = now + (cost * self.rng.getrandbits(1) if self.ticks else cost)
        t = self._arrival(node, half, leaves)
        entry = (t, half, half.ears[port], msg)
        line.append((leaves, half, port, size, entry))
        half.queued += size
        bucket = self.calendar.buckets.get(t >> SHIFT)
        if bucket is not None:
            bucket.append(entry)
        else:
            self.calendar.add(entry)
        if node.heedful:
            self.calendar.add((leaves, None, self._left, (node, half)))
        if self.sim.samples:
            self.sim.sampled(node, msg, len(line))

    def look(self, node: SimNode, until: int | None = None) -> None:
        """Forget of a line what has left before this moment, or another."""
        if node.uplink is None:
            return
        line, until = node.uplink.line, self.sim.now if until is None else until
        while line and line[0][0] < until:
            left = line.popleft()
            left[1].queued -= left[3]

    def _left(self, node: SimNode, half: Half) -> None:
        self.look(node, self.sim.now + 1)
        if not half.queued:
            self._emptied(node, half)

    def close_after(self, node: SimNode, half: Half, reason: str) -> None:
        """Nothing more is sent on this half; what waits goes first."""
        self.look(node)
        if not half.queued:
            self.sim.links.send_close(node, half, reason)
            return
        node.ensure_uplink().closing[half] = reason
        if self.in_order and not node.heedful:
            last = next(leaves for leaves, other, *_ in reversed(node.ensure_uplink().line) if other is half)
            self.calendar.add((last, None, self._left, (node, half)))

    def strand(self, node: SimNode, half: Half | None = None) -> None:
        """What waits for this half, or for any of a node that crashed, never leaves; its turn passes all the same."""
        self.look(node)
        if node.uplink is None:
            return
        for _, other, port, _, entry in list(node.uplink.line):
            if (half is None or other is half) and entry[0] > self.sim.now and self.calendar.remove(entry):
                self.sim.links.dropped(node, other.target.id, port, entry[3], "no link")

    def _queue(self, node: SimNode, half: Half, port: int, msg: Freight) -> None:
        """By lanes, as bytes take their time."""
        size = node.envs[port].size(msg)
        cost = round(size * self.byte_time)
        if cost == 0:
            self._carry(node, half, port, msg)
            return
        if not self._admits(node, half, port, msg, size):
            return
        uplink, queued = node.ensure_uplink(), (half, port, msg, size, cost)
        half.queued += size
        uplink.waiting += 1
        if uplink.leaving is not None:
            uplink.lanes[msg.lane].append(queued)
        else:
            uplink.leaving = queued
            self.calendar.add((self.sim.now + cost, None, self._departs, (node, uplink)))
        if self.sim.samples:
            self.sim.sampled(node, msg, uplink.waiting)

    def _admits(self, node: SimNode, half: Half, port: int, msg: Freight, size: int) -> bool:
        verdict = admit(msg, size, half.queued, self.sim.queue)
        if verdict != "send":
            self.counts["overload"] += 1
            self.sim.links.refused(node, half, port, msg, close=verdict == "close")
        return verdict == "send"

    def _departs(self, node: SimNode, uplink: Uplink) -> None:
        assert uplink.leaving is not None
        half, port, msg, size, _ = uplink.leaving
        uplink.waiting -= 1
        half.queued -= size
        if (node.up and node.links.get(half.target.id) is half) or half in uplink.closing:
            self._carry(node, half, port, msg)
        else:
            self.sim.links.dropped(node, half.target.id, port, msg, "no link")
        uplink.leaving = None
        if uplink.waiting:
            lane = next(lane for lane in uplink.lanes if lane)
            uplink.leaving = leaving = lane.popleft()
            self.calendar.add((self.sim.now + leaving[4], None, self._departs, (node, uplink)))
        if not half.queued and (node.heedful or uplink.closing):
            self._emptied(node, half)

    def _emptied(self, node: SimNode, half: Half) -> None:
        reason = node.ensure_uplink().closing.pop(half, None)
        if reason is not None:
            self.sim.links.send_close(node, half, reason)
        elif node.up:
            for machine in node.heedful:
                machine.drained(half.target.id)

    # A busy receiver.

    def serve(self, half: Half, machine: Machine, msg: Freight) -> None:
        unit, node, now = self.latency.serves(msg.lane), half.target, self.sim.now
        if not unit:
            self.sim.hand(half, machine, msg)
            return
        turn = max(node.busy_until, now)
        node.busy_until = turn + unit
        self.sim.at(turn, self.sim.hand, half, machine, msg)
