"""Links of the simulator, from dial to close.

Dialling takes a round trip and may fail; the far end's link comes up half a round trip later; a close arrives after the
data sent before it; a crash shows at the other end only after a detection delay, and the link is half-open until then.
One link a pair: of two dials at once the first to end wins, and a new link replaces one that its other end has left.
Bounds: PENDING messages wait for a dial to one peer. An idle link closes up to a LOOKS-th of that time late.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

from libweft.peer.dispatch import about, told, twin
from libweft.peer.errors import PeerError
from libweft.peer.machine import Link, Machine, Message, Peer
from libweft.peer.sim.env import Deaf, SimEnv, SimNode
from libweft.peer.sim.link_faults import CLOSED
from libweft.peer.sim.network import Freight, Half, Parcel
from libweft.peer.trace.kinds import DROP, LINK_DOWN, LINK_UP

if TYPE_CHECKING:
    from libweft.peer.sim.simulator import Simulator

PENDING = 256
LOOKS = 64  # in the time after which an idle link closes

Waiting: TypeAlias = list[tuple[int, Freight]]
Asked: TypeAlias = list[tuple[SimEnv, int]]


class Links:
    def __init__(self, sim: Simulator) -> None:
        self.sim = sim
        self.behind_nat: dict[int, int] = {}
        self._incarnations = 0
        self._watched: dict[int, dict[Half, None]] = {}  # links that nobody holds, by when they are looked at
        self._agreements: dict[tuple[object, object], tuple[tuple[str | None, ...], tuple[int, ...]]] = {}

    def hold(self, node: SimNode, peer: Peer, port: int) -> None:
        if not node.up:
            return
        if peer == node.id:
            self.sim.at(self.sim.now, self._tell_no_link, node, port, peer, "a node has no link to itself")
            return
        if peer in node.links and self._agreement(node, node.links[peer].target)[0][port] is None:
            self.sim.at(self.sim.now, self._tell_no_link, node, port, peer, "no common protocol")
            return
        node.holds[peer] = node.holds.get(peer, 0) | 1 << port
        if peer not in node.links:
            self._dial(node, peer)

    def _tell_no_link(self, node: SimNode, port: int, peer: Peer, reason: str) -> None:
        if node.up:
            self.sim.events += 1
            node.machines[port].link_down(peer, 0, reason)

    def release(self, node: SimNode, peer: Peer, port: int) -> None:
        left = node.holds.get(peer, 0) & ~(1 << port)
        if left:
            node.holds[peer] = left
        elif node.holds.pop(peer, 0) and peer in node.links:
            self.close(node, peer, "released")

    def wait_for_dial(self, node: SimNode, peer: Peer, port: int, msg: Freight) -> None:
        self._dial(node, peer)
        waiting = node.dials.get(peer)
        if waiting is None or len(waiting) >= PENDING:
            self.dropped(node, peer, port, msg, "no link")
        else:
            waiting.append((port, msg))

    def _dial(self, node: SimNode, peer: Peer) -> None:
        if peer in node.dials or not node.up or peer == node.id:
            return
        node.dials[peer] = waiting = Waiting()
        assert isinstance(peer, int)
        there, back = self.sim.network.dial_delay(node.id, peer), self.sim.network.dial_delay(peer, node.id)
        self.sim.at(self.sim.now + there + back, self._dialled, node, peer, waiting, self.sim.now)

    def _dialled(self, node: SimNode, peer: int, waiting: Waiting, began: int) -> None:
        target = self.sim.nodes.get(peer)
        if not node.up or node.dials.get(peer) is not waiting:
            return
        if target is None or not target.up:
            self._dial_failed(node, peer, waiting, "refused")
        elif peer in self.behind_nat or self._cut_between(node.id, peer):
            deadline = max(self.sim.now, began + self.sim.dial_timeout)
            self.sim.at(deadline, self._dial_failed, node, peer, waiting, "no answer")
        elif not self._arriving(node, target):
            self._establish(node, target)

    def _arriving(self, node: SimNode, target: SimNode) -> bool:
        """The other side's dial was first: its link is on the way here, unless it is an old one that this end left."""
        half = target.links.get(node.id)
        return half is not None and half.target is node and not (half.trouble is not None and half.trouble.closed)

    def _cut_between(self, a: int, b: int) -> bool:
        troubles = (self.sim.network.faults.trouble_of(a, b), self.sim.network.faults.trouble_of(b, a))
        return any(trouble is not None and trouble.cut for trouble in troubles)

    def _dial_failed(self, node: SimNode, peer: Peer, waiting: Waiting, reason: str) -> None:
        if not node.up or node.dials.get(peer) is not waiting:
            return
        del node.dials[peer]
        held = node.holds.pop(peer, 0)
        for port, msg in waiting:
            self.dropped(node, peer, port, msg, reason)
        ports = {port for port, _ in waiting}
        for port, machine in enumerate(node.machines):
            if held >> port & 1 or port in ports:
                self.sim.events += 1
                machine.link_down(peer, 0, reason)
        for env, number in self._asked(node, peer):
            env.failed(number, reason)

    def _establish(self, node: SimNode, target: SimNode) -> None:
        self._incarnations += 1
        here = Half(node.id, target, self._ears(node, target), self._incarnations)
        there = Half(target.id, node, self._ears(target, node), self._incarnations)
        here.twin, there.twin = there, here
        old = target.links.get(node.id)
        if old is not None and old.target is node:
            here.clock = old.twin.clock  # what was sent on the old link, its close included, comes before the new one
        self.sim.network.faults.renew(here)
        self.sim.network.faults.renew(there)
        node.links[target.id] = here
        node.relinked()
        arrival = self.sim.network.in_turn(node, here, self.sim.now + self.sim.network.dial_delay(node.id, target.id))
        self.sim.at(arrival, self._accepted, target, there)
        self._up(node, here, outbound=True)

    def _accepted(self, target: SimNode, half: Half) -> None:
        """The far end's link comes up; `half` is the direction that it sends on."""
        node = half.target
        if half.twin.trouble is not None and half.twin.trouble.closed:  # it broke on the way here
            return
        if not target.up:
            half.twin.suffer(CLOSED)
            self.sim.at(self.sim.now + self.sim.detection, self.lost, node, half.twin, "timeout")
            return
        if (old := target.links.get(node.id)) is not None:
            self.lost(target, old, "replaced")
        target.links[node.id] = half
        target.relinked()
        if not node.up:
            half.suffer(CLOSED)
            self.sim.at(self.sim.now + self.sim.detection, self.lost, target, half, "timeout")
        elif half.trouble is None or not half.trouble.closed:
            self.sim.network.faults.renew(half)
        self._up(target, half, outbound=False)

    def _up(self, node: SimNode, half: Half, outbound: bool) -> None:
        peer = half.target
        self.sim.note(node, LINK_UP, peer.id)
        for port, msg in node.dials.pop(peer.id, ()):
            self._late_post(node, half, port, msg)
        protocols, _ = self._agreement(node, peer)
        address = self.sim.addresses.get(peer.id) or f"sim/{peer.id}"
        for port, protocol in enumerate(protocols):
            if protocol is not None:
                self._tell_up(node, port, half, Link(half.incarnation, outbound, protocol, address))
            elif node.holds.get(peer.id, 0) >> port & 1:
                self.sim.events += 1
                self.release(node, peer.id, port)
                node.machines[port].link_down(peer.id, 0, "no common protocol")
        if peer.id not in node.holds:
            self._watch(half, self.sim.now + self.sim.idle)

    def _tell_up(self, node: SimNode, port: int, half: Half, link: Link) -> None:
        self.sim.events += 1
        try:
            node.machines[port].link_up(half.target.id, link)
        except PeerError as error:
            self.blame(half.twin, error)

    def _late_post(self, node: SimNode, half: Half, port: int, msg: Freight) -> None:
        freight = node.envs[port].parcels("tell", msg) if self.sim.codec and isinstance(msg, Message) else [msg]
        for item in freight:
            self.sim.network.post(node, half, port, item)

    def _watch(self, half: Half, due: int) -> None:
        """Many at once, so that a link which closes before is forgotten: most are up for a message or two."""
        every = max(1, self.sim.idle // LOOKS)
        half.watched = -(-due // every) * every
        if half.watched not in self._watched:
            self._watched[half.watched] = {}
            self.sim.at(half.watched, self._look, half.watched)
        self._watched[half.watched][half] = None

    def _unwatch(self, half: Half) -> None:
        self._watched.get(half.watched, {}).pop(half, None)

    def _look(self, t: int) -> None:
        for half in self._watched.pop(t):
            self._idle(half.twin.target, half)

    def _idle(self, node: SimNode, half: Half) -> None:
        """A link that nobody holds closes when nothing has used it for a while."""
        peer = half.target
        if not node.up or node.links.get(peer.id) is not half or peer.id in node.holds or node.id in peer.holds:
            return
        used = max(node.clock, peer.clock) if self.sim.network.shared_clock else max(half.clock, half.twin.clock)
        if used + self.sim.idle <= self.sim.now:
            self.close(node, peer.id, "idle")
        else:
            self._watch(half, used + self.sim.idle)

    def close(self, node: SimNode, peer: Peer, reason: str) -> None:
        """From this end: nothing is taken in from now on, and the other end learns it after what was sent."""
        half = node.links.pop(peer)
        self._unwatch(half)
        node.relinked()
        node.holds.pop(peer, None)
        half.twin.suffer(CLOSED)
        self.sim.network.faults.forget(half.twin)
        self.sim.network.close_after(node, half, reason)
        self.sim.at(self.sim.now, self._tell_down, node, peer, half.incarnation, reason, self._asked(node, peer))

    def send_close(self, node: SimNode, half: Half, reason: str) -> None:
        delay = self.sim.network.delay(half.source, half.target.id)
        self.sim.network.faults.closing[half] = None
        self.sim.at(self.sim.network.in_turn(node, half, self.sim.now + delay), self._closed, half)

    def _closed(self, half: Half) -> None:
        """The other end's close arrives; it crosses no cut, and overtakes nothing that waits at a busy receiver."""
        if half.trouble is not None and half.trouble.cut:
            self.sim.network.faults.park(half, partial(self._closed, half))
        elif half.target.busy_until > self.sim.now:
            self.sim.at(half.target.busy_until, self._closed, half)
        else:
            self.sim.network.faults.closing.pop(half, None)
            self.lost(half.target, half.twin, "closed")
            _part(half)

    def lost(self, node: SimNode, half: Half, reason: str) -> None:
        """This end of a link finds that the other is gone; `half` is the direction that it sends on."""
        peer = half.target.id
        if node.up and node.links.get(peer) is half:
            del node.links[peer]
            self._unwatch(half)
            node.relinked()
            node.holds.pop(peer, None)
            _end(half)
            self.sim.network.strand(node, half)
            self.sim.network.faults.forget(half)
            self.sim.network.faults.forget(half.twin)
            self._tell_down(node, peer, half.incarnation, reason, self._asked(node, peer))
            _part(half)

    def break_link(self, half: Half, reason: str) -> None:
        """Both ends at once, with what is in flight."""
        _end(half)
        self.sim.network.faults.forget(half)
        self.sim.network.faults.forget(half.twin)
        there = half.twin
        self.lost(there.target, half, reason)
        self.lost(half.target, there, reason)

    def _tell_down(self, node: SimNode, peer: Peer, incarnation: int, reason: str, asked: Asked) -> None:
        if not node.up:
            return
        self.sim.note(node, LINK_DOWN, peer, reason)
        assert isinstance(peer, int)
        protocols, _ = self._agreement(node, self.sim.nodes[peer])
        for machine, protocol in zip(node.machines, protocols, strict=True):
            if protocol is not None:
                self.sim.events += 1
                machine.link_down(peer, incarnation, reason)
        for env, number in asked:
            env.failed(number, reason)

    def _asked(self, node: SimNode, peer: Peer) -> Asked:
        """The requests that a link's end leaves without an answer; what is asked later goes by another link."""
        return [(env, number) for env in node.envs for number, request in (env.requests or {}).items() if request.peer == peer]

    def _agreement(self, node: SimNode, peer: SimNode) -> tuple[tuple[str | None, ...], tuple[int, ...]]:
        """For each machine of a node: the protocol by which it is told of the link, and the peer's machine that hears it."""
        key = (node.shape, peer.shape)
        if key not in self._agreements:
            heard = {id(machine): protocol for machine, protocol in told(node.machines, peer.machines)}
            twins = [twin(machine, peer.machines) for machine in node.machines]
            ears = tuple(-1 if other is None else list(peer.machines).index(other) for other in twins)
            self._agreements[key] = (tuple(heard.get(id(machine)) for machine in node.machines), ears)
        return self._agreements[key]

    def _ears(self, node: SimNode, peer: SimNode) -> Sequence[Machine]:
        """See `libweft.peer.sim.network.Half.ears`."""
        _, ears = self._agreement(node, peer)
        heard = all(ear == port for port, ear in enumerate(ears) if node.shape[port][0])
        if heard and len(ears) == len(peer.machines) and all(machine.serves for machine in peer.machines):
            return peer.machines  # shared by all links between equal stacks
        return [self._ear(env, peer.machines[ear] if ear >= 0 else None) for env, ear in zip(node.envs, ears, strict=True)]

    def _ear(self, env: SimEnv, twin: Machine | None) -> Machine:
        return twin if twin is not None and twin.serves else Deaf(env, twin)

    def blame(self, half: Half, error: PeerError) -> None:
        """The one place where a peer's fault costs a link."""
        if half.target.links.get(half.source) is half.twin:
            self.close(half.target, half.source, f"peer error: {error}")

    def refused(self, node: SimNode, half: Half, port: int, msg: Freight, close: bool) -> None:
        self.dropped(node, half.target.id, port, msg, "overload" if close else "queue full")
        if close and node.links.get(half.target.id) is half:
            self.close(node, half.target.id, "overload")

    def dropped(self, node: SimNode, peer: Peer, port: int, msg: Freight, reason: str) -> None:
        plain = msg if isinstance(msg, Message) else msg.msg
        if self.sim.tracer is not None:
            topic, known = about(plain)
            self.sim.tracer.emit(self.sim.now, node.id, DROP, topic, known, peer, None, 1, None, plain.lane, reason)
        if not node.up:
            return
        if isinstance(msg, Parcel) and msg.role == "ask":
            self.sim.at(self.sim.now, node.envs[port].failed, msg.number, reason)
        elif not (isinstance(msg, Parcel) and msg.role == "refuse"):
            self.sim.at(self.sim.now, self._tell_dropped, node, peer, port, plain)

    def _tell_dropped(self, node: SimNode, peer: Peer, port: int, msg: Message) -> None:
        if node.up:
            node.machines[port].dropped(peer, msg)


def _end(half: Half) -> None:
    """Nothing gets through any more, either way."""
    half.suffer(CLOSED)
    half.twin.suffer(CLOSED)


def _gone() -> Half:
    nobody: Any = SimpleNamespace(id=-1, links={}, up=False, troubled=False)
    half = Half(-1, nobody, (), 0)
    half.trouble = CLOSED
    return half


GONE = _gone()


def _part(half: Half) -> None:
    """Both ends have left it; as a cycle it would stay in memory, since no garbage is collected in a run."""
    half.twin.twin, half.twin = GONE, GONE
