"""What faults do to a simulated link while they last, a copy at a time.

All that troubles one direction of a link is one value, `Half.trouble`, None on a healthy one. Loss, duplication and
reordering make a link datagram-like. A cut holds copies back in order, as TCP's repetition does, and a close with them:
when it heals they arrive, unless the ends have given the link up by then.
Bounds: what a cut holds back ends with the link, at the latest after the detection delay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from libweft.peer.errors import UsageError
from libweft.peer.machine import MS, Machine, Message, Rng
from libweft.peer.sim import faults

if TYPE_CHECKING:
    from libweft.peer.sim.network import Freight, Half, Network

DICE = (faults.Loss, faults.BurstLoss, faults.Duplicate, faults.Corrupt, faults.Truncate)


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

    __slots__ = ("closed", "cut", "dice", "extra", "factor", "late")

    def __init__(self, active: Sequence[Active] = (), closed: bool = False, held: bool = False) -> None:
        kinds = [a.fault for a in active]
        self.closed = closed
        self.cut = held or any(isinstance(f, (faults.Cut, faults.Partition)) for f in kinds)
        self.extra = sum(round(f.ms * MS) for f in kinds if isinstance(f, faults.DelaySpike))
        self.factor = max((f.factor for f in kinds if isinstance(f, faults.SlowNode)), default=1.0)
        self.late = [a for a in active if isinstance(a.fault, faults.Reorder)]
        self.dice = [a for a in active if isinstance(a.fault, DICE)]

    @property
    def delays(self) -> bool:
        return bool(self.extra or self.late or self.factor != 1.0)


CLOSED = Trouble(closed=True)
HELD = Trouble(held=True)


class Faults:
    """The faults that are at work now, for a `Network`."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.sim = network.sim
        self.counts = network.counts
        self.active: list[Active] = []
        self.closing: dict[Half, None] = {}  # a close is on its way
        self._parked: dict[Half, list[Callable[[], None]]] = {}
        self._cut_since: dict[Half, int] = {}

    def begin(self, active: Active) -> None:
        self.active.append(active)
        self._review()

    def end(self, active: Active) -> None:
        self.active.remove(active)
        self._review()

    def trouble_of(self, source: int, target: int) -> Trouble | None:
        touching = [active for active in self.active if active.touches(source, target)]
        return Trouble(touching) if touching or self.network.latency.service else None

    def _review(self) -> None:
        for half in list(self._halves()):
            if half.trouble is None or not half.trouble.closed:
                self.renew(half)
        for node in self.sim.nodes.values():
            node.look_over()

    def _halves(self) -> Iterator[Half]:
        for node in self.sim.nodes.values():
            yield from node.links.values()
        yield from self.closing

    def renew(self, half: Half) -> None:
        """What troubles a half now; a cut begins or ends here."""
        trouble = self.trouble_of(half.source, half.target.id)
        if trouble is not None and trouble.cut:
            self._cut(half)
        elif self._cut_since.pop(half, None) is not None and half in self._parked:
            delay = self.network.repeat_delay(half.source, half.target.id)
            self.sim.at(self.sim.now + delay, self._flush, half)
        if half in self._parked and not (trouble is not None and trouble.cut):
            trouble = HELD  # what comes until the flush stays behind what was held back
        half.suffer(trouble)

    def _cut(self, half: Half) -> None:
        if half not in self._cut_since:
            self._cut_since[half] = self.sim.now
            self.sim.at(self.sim.now + self.sim.detection, self._give_up, half, self.sim.now)

    def _give_up(self, half: Half, since: int) -> None:
        if self._cut_since.get(half) == since:
            self.sim.links.break_link(half, "timeout")

    def _flush(self, half: Half) -> None:
        """The link heals: what was held back arrives, in its order."""
        if half.trouble is HELD:
            waiting = self._parked.pop(half)
            self.renew(half)
            half.twin.target.look_over()
            for arrive in waiting:
                arrive()

    def park(self, half: Half, arrive: Callable[[], None]) -> None:
        """Hold something back that would arrive on a cut half."""
        self.counts["cut"] += 1
        self._parked.setdefault(half, []).append(arrive)

    def forget(self, half: Half) -> None:
        self._cut_since.pop(half, None)
        self._parked.pop(half, None)
        self.closing.pop(half, None)

    def judge(self, half: Half, machine: Machine, msg: Freight) -> None:
        """A copy on a troubled half arrives."""
        trouble = half.trouble
        if trouble is None:
            self.sim.hand(half, machine, msg)
        elif trouble.closed:
            self.counts["closed"] += 1
        elif trouble.cut:
            self.park(half, partial(self.judge, half, machine, msg))
        elif (survived := self._roll(trouble, half, machine, msg)) is not None:
            self.network.serve(half, machine, survived)

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
                again = self.sim.now + self.network.repeat_delay(half.source, half.target.id)
                self.sim.at(again, self.sim.hand, half, machine, msg)
            else:
                msg = self._damaged(fault, active.rng, msg)
        return msg

    def _damaged(self, fault: faults.AnyFault, rng: Rng, msg: Freight) -> Freight:
        if isinstance(msg, Message) or msg.frame is None:
            raise UsageError(f"{type(fault).__name__} faults need frames: run with the codec in the loop (network.codec)")
        frame = msg.frame
        if not frame:  # another fault has cut it off already
            return msg
        if isinstance(fault, faults.Truncate):
            self.counts["truncated"] += 1
            return msg.damaged(frame[: rng.randrange(len(frame))])
        self.counts["corrupted"] += 1
        place = rng.randrange(len(frame))
        return msg.damaged(frame[:place] + bytes([frame[place] ^ rng.randrange(1, 256)]) + frame[place + 1 :])
