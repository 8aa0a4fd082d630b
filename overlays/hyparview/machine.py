"""HyParView: a small symmetric active view that is flooded over, a larger passive view to mend it from.

J. Leitão, J. Pereira, L. Rodrigues: "HyParView: a membership protocol for reliable gossip-based broadcast", DSN 2007.
Sections below are that paper's. What it leaves open is settled here as follows:
- Who asks (JOIN, NEIGHBOR) gets an answer, NEIGHBORREPLY, with the number of the attempt. The asked one takes the asker in
  when it says yes, the asker when it hears it; a yes that nobody waits for any more is answered by DISCONNECT. So a peer is
  in `neighbors` only when both sides agreed, and has been reached before anybody is told of it.
- The last node of a join walk asks with low priority: a newcomer that is full need not turn out one that just made room.
- Low priority is refused only by a full view. Several slots are refilled at once, the first with high priority if the view
  is empty; a yes that comes when the last slot was taken meanwhile is answered by DISCONNECT.
- While more of those asked were dead than alive there was a mass crash. Then a full view goes on asking, for many know only
  dead peers and wait for somebody who knows them: such a one says yes, learns who asked, and asks back with high priority.
  And less than half a view asks with high priority too, or a few that have only each other would stay so.
- Who has nobody left to ask asks its contacts, then those that left its passive view to make room (`faded`).
- Who is turned out first gets some peers to turn to (SHUFFLEREPLY), then DISCONNECT, then the link is released.
- KEEPALIVE tells a neighbour that it is one. Whoever is not answers by DISCONNECT, as to all that only neighbours send.
- Nobody can see that the overlay is in parts. So neighbours lost by failure, and contacts that were not reached, are probed
  now and then with high priority; so is one that is known, after the start and after a failure, then ever more rarely.

Below it asks for: `Env.connect` and `disconnect` to hold links, messages in order on a link, crashes told as `link_down`.
Above it promises: `neighbors` of at most `active_size`, symmetric but for what is under way; `sample` over both views.
Bounds: views and `faded` by their sizes; ASKS and REPLIES below; peers tried and lost by a multiple of `passive_size`;
incarnations by the links of the driver; timers: four, and one an ask. Lists, walks and texts are cut or refused at the border.
Length: this is one paper's machine. Its handlers share one state, so that a part of them in another file would not be simpler.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from libweft.overlays.claims import check_infos, learn, told
from libweft.overlays.hyparview.config import DEFAULTS, LIST_LIMIT, HyParViewConfig
from libweft.overlays.hyparview.messages import (
    FULL,
    LATE,
    LEFT,
    MADE_ROOM,
    REJOINED,
    STRANGER,
    Disconnect,
    ForwardJoin,
    Join,
    KeepAlive,
    Neighbor,
    NeighborReply,
    Shuffle,
    ShuffleReply,
)
from libweft.overlays.overlay import Overlay
from libweft.overlays.powers import Connected, Sampling
from libweft.peer.errors import PeerError
from libweft.peer.machine import Env, Link, Message, Peer, PeerInfo, Timer, upon

ASKS = 16  # attempts under way; a walk that ends beyond that leaves the newcomer to the passive view
RARER = 4  # each pause between two probes of the passive view to the one before; a guess
TRIED = 4  # times as many as the passive view holds
REPLIES = 8  # answers to shuffles that wait for a link; the origin shuffles again
TEXT_LIMIT = 256


class Ask:
    """An attempt to become a neighbour of somebody. `evicts`: it is worth a neighbour if the view is full by then.

    `incarnation` is that of a link which came up for it: when that one falls, no answer can come.
    """

    __slots__ = ("attempt", "evicts", "high", "incarnation", "timer")

    def __init__(self, attempt: int, high: bool, evicts: bool, timer: Timer) -> None:
        self.attempt = attempt
        self.high = high
        self.evicts = evicts
        self.timer = timer
        self.incarnation: int | None = None


class HyParView(Overlay):
    """`neighbors` is the active view. `tried` are not asked again before the next round of refilling begins."""

    __slots__ = (
        "asks", "attempts", "config", "contacts", "doubts", "faded", "links", "lost", "passive", "pause", "quiet",
        "quiet_until", "refilling", "refused", "replies", "round", "sent", "shuffles", "stopped", "timers", "tried",
    )  # fmt: skip

    protocols = ("/weft/hyparview/1.0.0",)
    powers = (Connected, Sampling)

    def __init__(self, env: Env, contacts: Sequence[Peer], config: HyParViewConfig = DEFAULTS) -> None:
        super().__init__(env)
        self.config = config
        self.contacts = tuple(peer for peer in dict.fromkeys(contacts) if peer != env.me)
        self.passive: dict[Peer, None] = {}
        self.faded: list[Peer] = []
        self.links: dict[Peer, int] = {}  # the incarnation of each link that is up
        self.asks: dict[Peer, Ask] = {}
        self.attempts = 0
        self.replies: dict[Peer, ShuffleReply] = {}
        self.tried: dict[Peer, None] = {}
        self.lost: dict[Peer, int] = {}  # since when
        self.quiet = config.probe_every
        self.quiet_until = 0
        self.shuffles = 0
        self.sent: tuple[Peer, ...] = ()  # what the last shuffle carried
        self.refilling = config.refill_at_once
        self.refused = 0  # in this round
        self.doubts = 0  # how many more of those asked were dead than alive
        self.pause = config.first_retry
        self.round: Timer | None = None
        self.timers: dict[str, Timer] = {}
        self.stopped = False

    def start(self) -> None:
        for name, period in self._periods().items():
            self.timers[name] = self.env.after(1 + self.env.rng.randrange(period), self._tick, name)
        self._refill()

    def stop(self) -> None:
        self.stopped = True
        pending = [*self.timers.values(), *(ask.timer for ask in self.asks.values()), *([self.round] if self.round else ())]
        for timer in pending:
            timer.cancel()
        self.env.send_all(self.everyone, Disconnect(False, LEFT))

    def sample(self, k: int) -> list[Peer]:
        known = [*self.neighbors, *self.passive]
        return self.env.rng.sample(known, min(k, len(known)))

    def snapshot(self) -> bytes | None:
        known = tuple(self.env.info(peer) for peer in (*self.neighbors, *self.passive))
        return msgspec.msgpack.encode(known) if known else None

    def restore(self, state: bytes) -> None:
        self._merge(msgspec.msgpack.decode(state, type=tuple[PeerInfo, ...]), ())

    # Joining (section 4.2).

    @upon(Join)
    def join(self, sender: Peer, msg: Join) -> None:
        self._check_own(sender, msg.me)
        learn(self.env, msg.me)
        self._make_room(sender)
        others = self.everyone
        self._accept(sender, msg.attempt)
        self.env.send_all(others, ForwardJoin(msg.me, self.config.arwl))
        self._up(sender)
        self._pause()

    @upon(ForwardJoin)
    def forward_join(self, sender: Peer, msg: ForwardJoin) -> None:
        self._check((msg.new,), msg.ttl)
        if not self._is_neighbor(sender):
            return
        new, ttl = msg.new.peer, min(msg.ttl, self.config.arwl)
        onward = [peer for peer in self.neighbors if peer not in (sender, new)]
        if new != self.env.me and new not in self.neighbors:
            if ttl == 0 or not onward:
                self._end_walk(msg.new)
                return
            if ttl == self.config.prwl:
                self._merge((msg.new,), ())
        if ttl and onward:
            self.env.send(self.env.rng.choice(onward), ForwardJoin(msg.new, ttl - 1))

    def _end_walk(self, new: PeerInfo) -> None:
        """The paper takes the newcomer in unasked; here it must answer first, or a dead one would cost a neighbour."""
        learn(self.env, new)
        if new.peer not in self.asks and len(self.asks) < ASKS:
            self._ask(new.peer, high=False, evicts=True)
        else:
            self._merge((new,), ())

    # The active view (section 4.3).

    @upon(Neighbor)
    def neighbor(self, sender: Peer, msg: Neighbor) -> None:
        self._check_own(sender, msg.me)
        learn(self.env, msg.me)
        if msg.high or sender in self.neighbors or sender in self.asks or self._room():
            self._make_room(sender)
            self._accept(sender, msg.attempt)
            self._up(sender)
            self._pause()
        else:
            self.env.send(sender, NeighborReply(msg.attempt, False))

    @upon(NeighborReply)
    def neighbor_reply(self, sender: Peer, msg: NeighborReply) -> None:
        ask = self.asks.get(sender)
        if ask is None or ask.attempt != msg.attempt:
            if msg.accepted and ask is None and sender not in self.neighbors:
                self._part(sender, LATE)
            return
        self._settle(sender)
        self.doubts = max(0, self.doubts - 1)
        if not msg.accepted:
            self.refused += 1
            self._put_aside(sender)
        elif self._room() or ask.evicts:
            self._make_room(sender)
            self._take(sender)
            self._up(sender)
        else:
            self._part(sender, FULL)
            self._put_aside(sender)
        self._refill()

    @upon(Disconnect)
    def disconnect(self, sender: Peer, msg: Disconnect) -> None:
        """To somebody who asks, the answer to the ask will say more: this one was on its way before."""
        if not msg.alive:
            self._forget(sender)
        if sender in self.neighbors:
            self._down(sender, LEFT if not msg.alive else f"disconnected: {msg.reason[:TEXT_LIMIT]}")
            if msg.alive:
                self._put_aside(sender)
            else:
                self._release(sender)
            self._fallen(failed=not msg.alive)

    @upon(KeepAlive)
    def keep_alive(self, sender: Peer, msg: KeepAlive) -> None:
        self._is_neighbor(sender)

    def link_up(self, peer: Peer, link: Link) -> None:
        self.links[peer] = link.incarnation
        if (reply := self.replies.pop(peer, None)) is not None:
            self.env.send(peer, reply)
        if (ask := self.asks.get(peer)) is not None:
            ask.incarnation = link.incarnation
        self._release(peer)

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        """Only the fall of the latest link counts, or of a dial where there is no link."""
        if incarnation != self.links.get(peer, 0):
            return
        self.links.pop(peer, None)
        self.replies.pop(peer, None)
        ask = self.asks.get(peer)
        if ask is not None and incarnation in (0, ask.incarnation):
            self._failed(peer)
        elif incarnation == 0:
            self.passive.pop(peer, None)
        if peer in self.neighbors:
            self._down(peer, reason)
            self._miss(peer)
            self.quiet = self.config.probe_every
            self.quiet_until = self.env.now() + self.quiet
            self.tried.clear()
            self._tried(peer)
            self._release(peer)
            self._fallen(failed=True)

    def dropped(self, peer: Peer, msg: Message) -> None:
        ask = self.asks.get(peer)
        if ask is not None and isinstance(msg, Join | Neighbor) and msg.attempt == ask.attempt:
            self._failed(peer)

    def _room(self) -> bool:
        return len(self.neighbors) < self.config.active_size

    def _make_room(self, peer: Peer) -> None:
        """For the peer. If it is a neighbour already it has forgotten so, and whoever watches must begin anew with it."""
        self._settle(peer)
        if peer in self.neighbors:
            self._down(peer, REJOINED)
        elif not self._room():
            self._evict(self.env.rng.choice(self.everyone))

    def _evict(self, peer: Peer) -> None:
        others = [other for other in (*self.neighbors, *self.passive) if other != peer]
        helpful = self.env.rng.sample(others, min(self.config.ka + self.config.kp, len(others)))
        self.env.send(peer, ShuffleReply(0, self._infos(helpful)))
        self.env.send(peer, Disconnect(True, MADE_ROOM))
        self._down(peer, MADE_ROOM)
        self._put_aside(peer)

    def _accept(self, peer: Peer, attempt: int) -> None:
        self._take(peer)
        self.env.send(peer, NeighborReply(attempt, True))

    def _take(self, peer: Peer) -> None:
        self.passive.pop(peer, None)
        self.lost.pop(peer, None)
        self.env.connect(peer)

    def _part(self, peer: Peer, reason: str) -> None:
        self.env.send(peer, Disconnect(True, reason))
        self._release(peer)

    def _release(self, peer: Peer) -> None:
        """Links are held for neighbours, for asks, and until a reply has left."""
        if peer not in self.neighbors and peer not in self.asks and peer not in self.replies:
            self.env.disconnect(peer)

    def _is_neighbor(self, sender: Peer) -> bool:
        """What it is asked for now, its answer settles; a DISCONNECT would arrive after the ask and undo it."""
        if sender not in self.neighbors and sender not in self.asks:
            self._part(sender, STRANGER)
        return sender in self.neighbors

    # Refilling it.

    def _ask(self, peer: Peer, *, high: bool, evicts: bool = False) -> None:
        self.attempts += 1
        me = told(self.env, self.env.me)
        joins = high and not evicts and not self.neighbors and peer in self.contacts
        timer = self.env.after(self.config.patience, self._unanswered, peer, self.attempts)
        self.asks[peer] = Ask(self.attempts, high, evicts, timer)
        self.env.connect(peer)
        self.env.send(peer, Join(me, self.attempts) if joins else Neighbor(me, self.attempts, high))

    def _unanswered(self, peer: Peer, attempt: int) -> None:
        if peer in self.asks and self.asks[peer].attempt == attempt:
            self._failed(peer)

    def _failed(self, peer: Peer) -> None:
        self._settle(peer)
        self.doubts = min(self.doubts + 1, self.config.passive_size)
        self.passive.pop(peer, None)
        self._tried(peer)
        if peer in self.contacts:
            self._miss(peer)
        self._release(peer)
        self._refill()

    def _settle(self, peer: Peer) -> None:
        if (ask := self.asks.pop(peer, None)) is not None:
            ask.timer.cancel()

    def _fallen(self, failed: bool) -> None:
        """A slot is free again. Who lost its last neighbour by failure has no time to lose, however long the last pause was.

        Who was turned out keeps to it: else all that a rush of joins turns out would join again, and turn out others.
        """
        self.refused = 0
        self.refilling |= failed
        if failed and not self.neighbors:
            self.pause = self.config.first_retry
            if self.round is not None:
                self.round.cancel()
                self.round = None
        self._refill()

    def _refill(self) -> None:
        """Ask as many as there are free slots, and one if in doubt; when all were asked, pause."""
        if self.neighbors and not self.refilling:
            return
        under_way = sum(not ask.evicts for ask in self.asks.values())
        free = self.config.active_size - len(self.neighbors) - under_way
        enough = self.config.active_size / 2 if self.doubts else 1
        for _ in range(free if free > 0 or under_way else min(1, self.doubts)):
            urgent = len(self.neighbors) < enough and not any(ask.high for ask in self.asks.values())
            candidates = self._candidates(urgent)
            if not candidates or self.stopped:
                break
            self._ask(self.env.rng.choice(candidates), high=urgent)
        self.refilling = self.config.refill_at_once or bool(self.asks)
        self._pause()

    def _candidates(self, urgent: bool) -> list[Peer]:
        """Contacts are for those that have nobody: everybody knows them, and they would never have peace."""
        if not urgent and self.refused >= self.config.refusals and not self.doubts:
            return []
        known = (self.passive,) if self.neighbors or not urgent else (self.passive, self.contacts, self.faded)
        untried = ([peer for peer in pool if peer not in self.tried and peer not in self.asks] for pool in known)
        return next(filter(None, untried), [])

    def _pause(self) -> None:
        if not self._room():
            self.pause = self.config.first_retry
        elif self.round is None and not self.asks and not self.stopped and (self.passive or self.contacts or self.faded):
            self.round = self.env.after(self.pause, self._begin_round)
            self.pause = min(2 * self.pause, self.config.last_retry)

    def _begin_round(self) -> None:
        self.round = None
        self.refused = 0
        self.tried.clear()
        self._refill()

    # The passive view (section 4.4).

    @upon(Shuffle)
    def shuffle(self, sender: Peer, msg: Shuffle) -> None:
        self._check((msg.origin, *msg.peers), msg.ttl)
        if not self._is_neighbor(sender):
            return
        origin, ttl = msg.origin.peer, min(msg.ttl, self.config.shuffle_ttl) - 1
        onward = [peer for peer in self.neighbors if peer not in (sender, origin)]
        if ttl > 0 and onward:
            self.env.send(self.env.rng.choice(onward), Shuffle(msg.origin, msg.number, msg.peers, ttl))
        elif origin != self.env.me:
            self._accept_shuffle(msg)

    def _accept_shuffle(self, msg: Shuffle) -> None:
        origin = msg.origin.peer
        learn(self.env, msg.origin)
        others = [peer for peer in self.passive if peer != origin]
        given = self.env.rng.sample(others, min(1 + len(msg.peers), len(others)))
        reply = ShuffleReply(msg.number, self._infos(given))
        self._merge((msg.origin, *msg.peers), given)
        if origin in self.links:
            self.env.send(origin, reply)
        elif len(self.replies) < REPLIES:
            self.replies[origin] = reply
            self.env.connect(origin)
        self._refill()

    @upon(ShuffleReply)
    def shuffle_reply(self, sender: Peer, msg: ShuffleReply) -> None:
        """From whoever took the last shuffle in, or from a neighbour that is about to part; else it is nothing to us."""
        self._check(msg.peers)
        if msg.number and msg.number == self.shuffles:
            self._merge(msg.peers, self.sent)
            self.sent = ()
            self._refill()
        elif msg.number == 0 and sender in self.neighbors:
            self._merge(msg.peers, ())

    def _begin_shuffle(self) -> None:
        if not self.neighbors:
            return
        rng = self.env.rng
        target = rng.choice(self.everyone)
        active = [peer for peer in self.neighbors if peer != target]
        passive = list(self.passive)
        chosen = rng.sample(active, min(self.config.ka, len(active))) + rng.sample(passive, min(self.config.kp, len(passive)))
        self.shuffles += 1
        self.sent = tuple(chosen)
        me = told(self.env, self.env.me)
        self.env.send(target, Shuffle(me, self.shuffles, self._infos(chosen), self.config.shuffle_ttl))

    def _merge(self, infos: Iterable[PeerInfo], given: Iterable[Peer]) -> None:
        """Who is new goes in; in a full view first those leave that the other side was just given, then any."""
        leaving = [peer for peer in given if peer in self.passive]
        for info in infos:
            peer = info.peer
            if peer == self.env.me or peer in self.neighbors or peer in self.passive:
                continue
            while leaving and leaving[-1] not in self.passive:
                leaving.pop()
            if len(self.passive) >= self.config.passive_size:
                self._fade(leaving.pop() if leaving else self.env.rng.choice(list(self.passive)))
            self.passive[peer] = None
            learn(self.env, info)

    def _fade(self, peer: Peer) -> None:
        del self.passive[peer]
        if len(self.faded) < self.config.faded:
            self.faded.append(peer)
        elif self.faded:
            self.faded[self.env.rng.randrange(len(self.faded))] = peer

    def _put_aside(self, peer: Peer) -> None:
        """It lives, but not again at once."""
        self._merge((PeerInfo(peer),), ())
        self._tried(peer)
        self._release(peer)

    def _tried(self, peer: Peer) -> None:
        if len(self.tried) >= TRIED * self.config.passive_size:
            self.tried.clear()
        self.tried[peer] = None

    def _forget(self, peer: Peer) -> None:
        self.passive.pop(peer, None)
        self.lost.pop(peer, None)

    def _infos(self, peers: Iterable[Peer]) -> tuple[PeerInfo, ...]:
        return tuple(told(self.env, peer) for peer in peers)

    # What happens by itself.

    def _periods(self) -> dict[str, int]:
        config = self.config
        periods = {"shuffle": config.shuffle_every, "keepalive": config.keepalive_every, "probe": config.probe_every}
        return {name: period for name, period in periods.items() if period}

    def _tick(self, name: str) -> None:
        self.timers[name] = self.env.after(self._periods()[name], self._tick, name)
        if name == "shuffle":
            self._begin_shuffle()
            if not self.refilling:
                self.refilling = True
                self._refill()
        elif name == "keepalive":
            self.env.send_all(self.everyone, KeepAlive())
        else:
            self._probe()

    def _miss(self, peer: Peer) -> None:
        self.lost.setdefault(peer, self.env.now())
        if len(self.lost) > self.config.passive_size:
            del self.lost[next(iter(self.lost))]

    def _probe(self) -> None:
        """Look for a part of the overlay that this one may have been cut off from; a link to it is worth a neighbour.

        Contacts as often as all of the passive view: islands of a rush of joins may know of no one else outside.
        """
        now, since = self.env.now(), self.env.now() - self.config.remember
        self.lost = {peer: t for peer, t in self.lost.items() if t >= since or peer in self.contacts}
        pools = [pool for pool in map(self._others, (self.passive, self.contacts)) if pool] if now >= self.quiet_until else []
        if pools:
            self.quiet_until = now + self.quiet // 2 + self.env.rng.randrange(self.quiet)  # those that joined together part ways
            self.quiet = min(RARER * self.quiet, self.config.remember)
        missing = self.env.rng.choice(pools) if pools else self._others(self.lost)
        if missing and self.neighbors and len(self.asks) < ASKS:
            self._ask(self.env.rng.choice(missing), high=True, evicts=True)

    def _others(self, peers: Iterable[Peer]) -> list[Peer]:
        return [peer for peer in peers if peer not in self.neighbors and peer not in self.asks]

    # The border.

    def _check_own(self, sender: Peer, info: PeerInfo) -> None:
        self._check((info,))
        if info.peer != sender:
            raise PeerError("a peer asks in the name of another")

    def _check(self, infos: Sequence[PeerInfo], ttl: int = 0) -> None:
        if len(infos) > LIST_LIMIT + 1:
            raise PeerError(f"a list of {len(infos)} peers is over the limit of {LIST_LIMIT}")
        if ttl < 0:
            raise PeerError(f"a walk of {ttl} steps")
        check_infos(self.env.me, infos)
