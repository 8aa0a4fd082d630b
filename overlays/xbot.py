"""X-BOT: HyParView that exchanges far neighbours for near ones, and keeps every degree while it does.

J. Leitão, J. Marques, J. Pereira, L. Rodrigues: "X-BOT: A Protocol for Resilient Optimization of Unstructured Overlays", SRDS
2009 (TPDS 2012). Four nodes take part, named as there: the initiator i wants the candidate c in place of its old neighbour o;
c gives up d for i, and d, disconnected from c, is switched to o. OPTIMIZATION i to c, REPLACE c to d, SWITCH d to o, and the
answers back. Links i-o and c-d go, i-c and d-o come, each cheaper for who asked for it: the sum of all costs falls each time.
What is settled here:
- OPTIMIZATIONREPLY and SWITCHREPLY are HyParView's NEIGHBORREPLY, for both answer an ask; what it does about late and crossing
  answers holds. DISCONNECTWAIT is its DISCONNECT: the slot is kept for whoever is asked, so there is nothing to wait with.
- A node takes part in one exchange at a time, and refuses others meanwhile; only o, which answers at once, may be in another.
- The `unbiased` costliest neighbours are left alone by the node itself; the other end of such a link may still give it up.
- Cost is the round-trip time, measured by PROBE on a link that is up, so that dials do not count: the least of some, since
  what makes one longer is queues. A neighbour's is the least of more, which lets it stay where all differences are chance.

Below it asks for: what HyParView does. Above it promises: the same. A SWITCH is believed, as a JOIN is: either costs a neighbour.
Bounds: costs of neighbours alone, WINDOW round trips each; probes under way: neighbours, `psl` candidates until the next
cycle, and one for an exchange; one exchange, with one timer; one timer more than HyParView's four.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from libweft.overlays.claims import learn, told
from libweft.overlays.description import Below, Contacts, OverlayDescription
from libweft.overlays.fault_groups import CRASHES, TRANSIENT
from libweft.overlays.hyparview.config import HyParViewConfig
from libweft.overlays.hyparview.machine import Ask, HyParView
from libweft.overlays.hyparview.messages import Disconnect, Neighbor, NeighborReply
from libweft.peer.errors import UsageError
from libweft.peer.machine import SECOND, Env, Lane, Link, Message, Peer, PeerInfo, Timer, upon

WINDOW = 16  # round trips that a neighbour's cost is the least of; a guess: a changed route shows after as many cycles
NONCE_BITS = 63  # nobody can answer a probe before it came

NEARER = "made room for a nearer one"


class Optimization(Message, frozen=True, tag=16):
    me: PeerInfo
    attempt: int
    old: PeerInfo


class Replace(Message, frozen=True, tag=17):
    number: int
    initiator: Peer
    old: PeerInfo


class ReplaceReply(Message, frozen=True, tag=18):
    """A yes also takes the place of a DISCONNECT: its sender has parted."""

    number: int
    accepted: bool


class Switch(Message, frozen=True, tag=19):
    me: PeerInfo
    attempt: int
    initiator: Peer


class Probe(Message, frozen=True, tag=20):
    """No probe is worth a link that is too slow for it; and it does not queue behind payloads."""

    lane = Lane.URGENT
    droppable = True

    nonce: int


class ProbeReply(Message, frozen=True, tag=21):
    lane = Lane.URGENT
    droppable = True

    nonce: int


@dataclass(frozen=True)
class XBotConfig(HyParViewConfig):
    """HyParView's, and what the optimisation adds."""

    unbiased: int = 1  # the paper's mu; the number is a guess: small worlds need few long links
    psl: int = 2  # the paper's passive scan length
    bias_every: int = 10 * SECOND  # a guess: the paper's cycle, as often as shuffles bring new candidates
    samples: int = 3  # a guess: round trips to measure a stranger by; live, the first also opens a stream each way
    margin: float = 0.1  # a guess: the share by which another must be nearer, so that chance alone moves little

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {"unbiased": self.unbiased < self.active_size, "psl": self.psl >= 1, "bias_every": self.bias_every >= 1}
        allowed |= {"samples": 1 <= self.samples <= WINDOW, "margin": self.margin < 1}
        limits = {"unbiased": "below active_size", "samples": f"from 1 to {WINDOW}", "margin": "below 1"}
        for name in allowed:
            if not allowed[name]:
                raise UsageError(f"xbot: {name} is {getattr(self, name)}; it must be {limits.get(name, 'at least 1')}")


DEFAULTS = XBotConfig()


@dataclass(slots=True)
class Swap:
    """This node's part in an exchange: it gives up a neighbour and gets another.

    The candidate is asked by whom it gets, the disconnected by whom it gives up: `number` is what that one counts by.
    `attempt` is the own number of what was sent for it: OPTIMIZATION, REPLACE or SWITCH.
    """

    role: Literal["initiator", "candidate", "disconnected"]
    gives: Peer
    gets: Peer
    number: int = 0
    initiator: Peer = 0  # for the disconnected to name
    attempt: int = 0  # not yet
    cost: int = 0  # of the one that was asked
    timer: Timer | None = None

    @property
    def asks(self) -> bool:
        """Whether the one that it gets was asked, and answers."""
        return self.role != "candidate" and self.attempt > 0


class Probing:
    """Round trips to one peer, one after the other: `left` to go, and the least so far."""

    __slots__ = ("least", "left", "nonce", "sent")

    def __init__(self, left: int) -> None:
        self.left = left
        self.least: int | None = None
        self.nonce: int | None = None  # none is under way while the link is not up
        self.sent = 0


class XBot(HyParView):
    __slots__ = ("costs", "probing", "swap")

    protocols = ("/weft/xbot/1.0.0",)
    config: XBotConfig

    def __init__(self, env: Env, contacts: Sequence[Peer], config: XBotConfig = DEFAULTS) -> None:
        super().__init__(env, contacts, config)
        self.costs: dict[Peer, deque[int]] = {}
        self.probing: dict[Peer, Probing] = {}
        self.swap: Swap | None = None

    def stop(self) -> None:
        super().stop()
        if self.swap is not None and self.swap.timer is not None:
            self.swap.timer.cancel()

    # The exchange, in the order of its messages.

    def _bias(self) -> None:
        """A cycle: who did not answer in the last one is given up, but for an exchange; a full view looks at candidates."""
        for peer in [peer for peer in self.probing if self.swap is None or peer != self.swap.gets]:
            del self.probing[peer]
            self._release(peer)
        for peer in self.neighbors:
            self._measure(peer, 1 if peer in self.costs else self.config.samples)
        if self._room() or self.swap is not None:
            return
        self.tried.clear()  # nothing is being refilled
        strangers = self._others(self.passive)
        for peer in self.env.rng.sample(strangers, min(self.config.psl, len(strangers))):
            self._measure(peer, self.config.samples)

    def _consider(self, candidate: Peer, cost: int) -> None:
        """The nearer of several candidates is the first to have answered, and so the first to be considered."""
        old = self._worst(candidate)
        if self.swap is None and not self._room() and old is not None and self._is_nearer(cost, old):
            self.attempts += 1
            self.swap = Swap("initiator", old, candidate, attempt=self.attempts, cost=cost)
            me, known = told(self.env, self.env.me), told(self.env, old)
            self._propose(candidate, Optimization(me, self.attempts, known), 4 * self.config.patience)

    @upon(Optimization)
    def optimization(self, sender: Peer, msg: Optimization) -> None:
        """Where there is room, or a refusal is due, it is no more than a NEIGHBOR of low priority."""
        self._check_own(sender, msg.me)
        self._check((msg.old,))
        gives = self._worst(msg.old.peer)
        easy = sender in self.neighbors or sender in self.asks or self._room()
        if easy or self.swap is not None or gives is None or msg.old.peer in (sender, self.env.me):
            self.neighbor(sender, Neighbor(msg.me, msg.attempt, False))
            return
        learn(self.env, msg.me)
        self.attempts += 1
        timer = self.env.after(3 * self.config.patience, self._end_swap)
        self.swap = Swap("candidate", gives, sender, msg.attempt, attempt=self.attempts, timer=timer)
        self.env.send(gives, Replace(self.attempts, sender, msg.old))

    @upon(Replace)
    def replace(self, sender: Peer, msg: Replace) -> None:
        self._check((msg.old, PeerInfo(msg.initiator)))
        if not self._is_neighbor(sender):
            return
        old, taken = msg.old.peer, (self.env.me, *self.neighbors, *self.asks)
        if self.swap is not None or sender not in self.costs or old in taken or msg.initiator in (old, self.env.me):
            self.env.send(sender, ReplaceReply(msg.number, False))
            return
        learn(self.env, msg.old)
        timer = self.env.after(self.config.patience, self._end_swap)
        self.swap = Swap("disconnected", sender, old, msg.number, msg.initiator, timer=timer)
        self._measure(old, self.config.samples)

    def _decide(self, swap: Swap, cost: int) -> None:
        """The cost of the old one is known; the candidate's was before."""
        if swap.timer is not None:
            swap.timer.cancel()
        if not self._is_nearer(cost, swap.gives) or swap.gets in self.asks:
            self._end_swap()
            return
        self.attempts += 1
        swap.attempt, swap.cost = self.attempts, cost
        me = told(self.env, self.env.me)
        self._propose(swap.gets, Switch(me, self.attempts, swap.initiator), self.config.patience)

    @upon(Switch)
    def switch(self, sender: Peer, msg: Switch) -> None:
        """With the initiator gone there is room; without it, the sender is a NEIGHBOR as any other."""
        self._check_own(sender, msg.me)
        self._check((PeerInfo(msg.initiator),))
        busy = self.swap is not None and msg.initiator in (self.swap.gives, self.swap.gets)
        if msg.initiator in self.neighbors and sender not in self.neighbors and not busy:
            self.env.send(msg.initiator, Disconnect(True, NEARER))
            self._down(msg.initiator, NEARER)
            self._put_aside(msg.initiator)
        self.neighbor(sender, Neighbor(msg.me, msg.attempt, False))

    def neighbor_reply(self, sender: Peer, msg: NeighborReply) -> None:
        """Of the old one to the disconnected, and of the candidate to the initiator. Who refused may be asked again soon."""
        swap = self.swap
        if swap is None or not swap.asks or (swap.gets, swap.attempt) != (sender, msg.attempt):
            super().neighbor_reply(sender, msg)
        elif not msg.accepted:
            self._settle(sender)
            self._refill()
        else:
            self._give_way()
            super().neighbor_reply(sender, msg)
            self._note(sender, swap.cost)

    @upon(ReplaceReply)
    def replace_reply(self, sender: Peer, msg: ReplaceReply) -> None:
        swap = self.swap
        if swap is None or (swap.role, swap.gives, swap.attempt) != ("candidate", sender, msg.number):
            if msg.accepted:
                self.disconnect(sender, Disconnect(True, NEARER))
        elif not msg.accepted:
            self._end_swap()
        else:
            self._close_swap()
            self._down(sender, NEARER)
            self._put_aside(sender)
            self.neighbor(swap.gets, Neighbor(PeerInfo(swap.gets), swap.number, False))

    # What becomes of a part in it.

    def _propose(self, peer: Peer, msg: Optimization | Switch, patience: int) -> None:
        """An ask as HyParView's, worth the neighbour that is given up; its link is up, and held for the probe."""
        timer = self.env.after(patience, self._unanswered, peer, msg.attempt)
        self.asks[peer] = Ask(msg.attempt, False, True, timer)
        self.asks[peer].incarnation = self.links.get(peer)
        self.env.send(peer, msg)

    def _give_way(self) -> None:
        """The one that is got comes; the one that is given up goes."""
        swap = self._close_swap()
        if swap is not None and swap.gives in self.neighbors:
            asked = swap.role == "disconnected"
            self.env.send(swap.gives, ReplaceReply(swap.number, True) if asked else Disconnect(True, NEARER))
            self._down(swap.gives, NEARER)
            self._put_aside(swap.gives)

    def _end_swap(self) -> None:
        """Nothing comes of it; whoever waits for this node is told so."""
        swap = self._close_swap()
        if swap is None or self.stopped:
            return
        self.probing.pop(swap.gets, None)
        self._release(swap.gets)
        if swap.role == "candidate" and swap.gets in self.links:
            self.env.send(swap.gets, NeighborReply(swap.number, False))
        elif swap.role == "disconnected" and swap.gives in self.links:
            self.env.send(swap.gives, ReplaceReply(swap.number, False))

    def _close_swap(self) -> Swap | None:
        swap, self.swap = self.swap, None
        if swap is not None and swap.timer is not None:
            swap.timer.cancel()
        return swap

    def _settle(self, peer: Peer) -> None:
        super()._settle(peer)
        if self.swap is not None and self.swap.gets == peer:
            self._end_swap()

    def _room(self) -> bool:
        """A slot whose peer has gone is kept for the one that was asked; but who has no neighbour takes any."""
        swap = self.swap
        kept = swap is not None and swap.gives not in self.neighbors
        return super()._room() and not (kept and 0 < len(self.neighbors) == self.config.active_size - 1)

    def _make_room(self, peer: Peer) -> None:
        """Whoever is wanted, and comes by itself, comes in the place of the one that would be given up."""
        if self.swap is not None and self.swap.gets == peer and not self._room():
            self._give_way()
        super()._make_room(peer)

    def _up(self, peer: Peer) -> None:
        super()._up(peer)
        self._measure(peer, self.config.samples)

    def _down(self, peer: Peer, reason: str) -> None:
        super()._down(peer, reason)
        self.costs.pop(peer, None)
        self.probing.pop(peer, None)
        swap = self.swap
        if swap is not None and swap.gives == peer:
            if swap.asks:
                self.asks[swap.gets].evicts = False
            else:
                self._end_swap()

    def link_up(self, peer: Peer, link: Link) -> None:
        if peer in self.probing:
            self._send_probe(peer)
        super().link_up(peer, link)

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        latest = incarnation == self.links.get(peer, 0)
        super().link_down(peer, incarnation, reason)
        if latest:
            self.probing.pop(peer, None)
            if self.swap is not None and self.swap.gets == peer and not self.swap.asks:
                self._end_swap()

    def dropped(self, peer: Peer, msg: Message) -> None:
        ask = self.asks.get(peer)
        if ask is not None and isinstance(msg, Optimization | Switch) and msg.attempt == ask.attempt:
            self._failed(peer)
        super().dropped(peer, msg)

    # Costs.

    def _worst(self, but: Peer) -> Peer | None:
        """The costliest neighbour but for those that are left unbiased; one that was not measured yet is none of either."""
        ranked = sorted((peer for peer in self.neighbors if peer in self.costs), key=self._cost, reverse=True)
        return next((peer for peer in ranked[self.config.unbiased :] if peer != but), None)

    def _cost(self, peer: Peer) -> int:
        return min(self.costs[peer])

    def _note(self, peer: Peer, cost: int) -> None:
        if peer in self.neighbors:
            self.costs.setdefault(peer, deque(maxlen=WINDOW)).append(cost)

    def _is_nearer(self, cost: int, neighbor: Peer) -> bool:
        return cost < self._cost(neighbor) * (1 - self.config.margin)

    def _measure(self, peer: Peer, samples: int) -> None:
        self.probing[peer] = Probing(samples)
        if peer not in self.neighbors:
            self.env.connect(peer)
        if peer in self.links:
            self._send_probe(peer)

    def _send_probe(self, peer: Peer) -> None:
        probing = self.probing[peer]
        probing.nonce = self.env.rng.getrandbits(NONCE_BITS)
        probing.sent = self.env.now()
        self.env.send(peer, Probe(probing.nonce))

    @upon(Probe)
    def probe(self, sender: Peer, msg: Probe) -> None:
        self.env.send(sender, ProbeReply(msg.nonce))

    @upon(ProbeReply)
    def probe_reply(self, sender: Peer, msg: ProbeReply) -> None:
        probing = self.probing.get(sender)
        if probing is None or probing.nonce != msg.nonce:
            return
        took = self.env.now() - probing.sent
        probing.least = took if probing.least is None else min(took, probing.least)
        probing.left -= 1
        if probing.left > 0:
            self._send_probe(sender)
        else:
            del self.probing[sender]
            self._measured(sender, probing.least)

    def _measured(self, peer: Peer, cost: int) -> None:
        if peer in self.neighbors:
            self._note(peer, cost)
        elif self.swap is not None and self.swap.role == "disconnected" and self.swap.gets == peer:
            self._decide(self.swap, cost)
        elif peer not in self.asks:
            self._consider(peer, cost)
        self._release(peer)

    def _release(self, peer: Peer) -> None:
        """Links are held for probes too, and for the one that an exchange would bring: it waits at the other end."""
        if peer not in self.probing and not (self.swap is not None and self.swap.gets == peer):
            super()._release(peer)

    # What happens by itself.

    def _periods(self) -> dict[str, int]:
        return {**super()._periods(), "bias": self.config.bias_every}

    def _tick(self, name: str) -> None:
        if name == "bias":
            self.timers[name] = self.env.after(self.config.bias_every, self._tick, name)
            self._bias()
        else:
            super()._tick(name)


def _build(env: Callable[[], Env], contacts: Contacts, config: XBotConfig, protocols: Sequence[str]) -> Below:
    return [XBot(env(), contacts, config)]


DESCRIPTION = OverlayDescription(
    name="xbot",
    paper="Leitao, Marques, Pereira and Rodrigues: X-BOT, SRDS 2009",
    use="where latency depends on who the nodes are: HyParView that exchanges far neighbours for near ones",
    partner="plumtree",
    machine=XBot,
    config=XBotConfig,
    build=_build,
    survives=TRANSIENT | CRASHES,
    protocols=XBot.protocols,
)
