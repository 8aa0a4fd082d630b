"""Causal order of a topic, over any router: a message comes after all that its publisher had published or delivered there.

Causal barriers (Prakash, Raynal and Singhal, 1997), as VCube-PS has them (de Araujo et al., 2019, section 3.2): a message
names its direct dependencies, what its publisher has delivered since its own last one and that nothing later covers. A
subscriber delivers it when those have been delivered, else holds it. By induction direct ones are enough, and what one
source publishes comes in its order.

VCube-PS has FIFO reception, so it knows from the first message of a source which ones will never come (`first_rec`). The
routers here have none, and lose messages. So who lacks a predecessor asks:
- ASK to some neighbours in turn, and in the end to the publisher of what waits, who has delivered it; again each `ask_every`. The
  first comes after `first_ask`, but at once where a subscription has just begun and nothing was heard of that source.
- COPY is the message, if it came there since the asker subscribed. The router takes it as it takes any copy: its signature
  and the validators have their say first. One that was not asked for, from that peer, is not looked at.
- BEFORE: it came there earlier than that. Somebody who joined late does not wait for it; believed only of a source of
  which nothing was delivered here yet (`last_delvs`). A `reject` row says so, and `before` counts it.
- What nobody brings within `patience`, and the router's own time for repairs, is given up: what waits for it goes on, and it is
  not delivered any more if it comes after all. A `reject` row says so, and `given_up` counts it. So are predecessors that this
  node's own validator refuses.
Whoever names a message that does not exist yet can so keep it from others for a while: its author's signature says who did.
A predecessor known only by one that was given up, or that came before, cannot be waited for: if it comes it may be late.

A message that names an id that no node has is refused here, for not every router looks at headers: an ask for it might fit no
frame. Whoever passed it on is not to blame; who asks or answers with such an id is.

Below: a router, and links to peers that speak this protocol. Above: the app. Topics that were not opened with it are left to
`fifo`. Messages without a header, of peers that have not opened the topic with an order, pass through.
Bounds, all in CausalConfig: messages held back, their bytes, those of one source; ids waited for; sources remembered of a
topic, at most half of them lives of one; ids given up; messages kept for others, by number, bytes and age; dependencies of a
message; ids asked for at a time, and ids that a peer may ask for in a second; BURST bytes that wait on a link before no more
copies are added. One timer. An id has ID_BYTES at most, so an ask has 10 KiB, an answer 100 KiB, and a copy what its router
takes: all fit a frame. A topic on which something was said or heard is remembered as long as the node is there: what it says
later comes after that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from libweft.peer.errors import PeerError, UsageError
from libweft.peer.machine import MS, SECOND, Env, Link, Message, MessageId, Peer, Timer, upon
from libweft.peer.trace.kinds import DUPLICATE, REJECT
from libweft.pubsub.carrier import Spread, parts
from libweft.pubsub.claims import Topic, check_ids
from libweft.pubsub.message import OrderHeader, Publication, Verdict
from libweft.pubsub.ordering.fifo import DEFAULT as FIFO_DEFAULT
from libweft.pubsub.ordering.fifo import Fifo, FifoConfig
from libweft.pubsub.ordering.group import CUT, Group, Held, Wanted
from libweft.pubsub.ordering.message_cache import Kept
from libweft.pubsub.ordering.order import Order
from libweft.pubsub.router import HEADERS, App, Router

PROTOCOL = "/weft/causal/1.0.0"

ASKED = 64  # ids in one message; more is a fault of the peer
BURST = 1 << 18
EVER = 1 << 60  # microseconds: longer than anybody is there
MOST = 1 << 40  # of anything in a configuration; as microseconds twelve days
ID_BYTES = 96  # above 64 of a source, two numbers of 9, and what MessagePack adds

Ids: TypeAlias = Annotated[tuple[MessageId, ...], Meta(max_length=ASKED)]


class Ask(Message, frozen=True, tag=0):
    """`since` is how long the asker has subscribed; what came before that it does not want."""

    topic: Topic
    since: Annotated[int, Meta(ge=0, le=EVER)]
    ids: Ids


class Copy(Spread, frozen=True, tag=1):
    @classmethod
    def of(cls, p: Publication) -> Copy:
        return cls(*parts(p))


class Before(Message, frozen=True, tag=2):
    """These were delivered before the asker subscribed, and so was what `cut` says of the sources heard last."""

    topic: Topic
    ids: Ids
    cut: Annotated[tuple[MessageId, ...], Meta(max_length=CUT)]


@dataclass(frozen=True)
class CausalConfig:
    """Times in microseconds. VCube-PS has no losses, so all of these are guesses."""

    patience: int = 10 * SECOND  # twice that of FIFO: a chain of predecessors is asked for one after the other
    longest: int = 120 * SECOND  # that anything is held: messages that name each other would wait for ever
    first_ask: int = 250 * MS  # the router may bring it yet
    young: int = 2 * SECOND  # a subscription this young asks at once: what it lacks was most likely published before it
    ask_every: int = 500 * MS  # about a round trip to a neighbour
    ask_peers: int = 2  # at a time
    ask_source: int = 3  # asks of neighbours before the publisher of what waits is asked too
    slack: int = 2 * SECOND  # a message this much older than a subscription may still be on its way
    held: int = 4_096
    held_each: int = 256
    held_bytes: int = 16 << 20
    wanted: int = 4_096
    sources: int = 4_096
    given_up: int = 4_096
    kept: int = 1_024
    kept_bytes: int = 8 << 20
    kept_age: int = 60 * SECOND  # below the time for which routers remember ids
    dependencies: int = 512  # of live peers some 28 KiB, below what a router takes for a header
    asks: int = 512

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least = 0 if name in ("ask_source", "slack", "young") else 1
            if type(value) is not int or not least <= value <= MOST:
                raise UsageError(f"causal: {name} is {value!r:.80}; it must be a whole number, {least} to {MOST}")
        if self.dependencies > HEADERS // ID_BYTES:
            raise UsageError(f"causal: dependencies is {self.dependencies}; no router takes more than {HEADERS // ID_BYTES}")


DEFAULT = CausalConfig()


class Causal(Order):
    """Counts: `given_up`, predecessors that were not waited for any longer; `before`, those from before the subscription; `late`,
    messages that came when they had been given up, or come before it, or are here already."""

    protocols = (PROTOCOL,)

    def __init__(
        self, env: Env, router: Router, app: App, config: CausalConfig = DEFAULT, fifo: FifoConfig = FIFO_DEFAULT
    ) -> None:
        self.fifo = Fifo(env, router, app, fifo)
        super().__init__(env, router, app)
        self.config = config
        self.groups: dict[str, Group] = {}
        self.kept = Kept(config.kept, config.kept_bytes, config.kept_age)
        self.speakers: dict[Peer, int] = {}
        self.asks: dict[Peer, tuple[int, int]] = {}  # the second, and how many ids in it
        self.held = self.held_bytes = 0
        self.timer: Timer | None = None
        self.late = self.given_up = self.before = self.cut = 0

    # Opening and publishing.

    def open(self, topic: str, order: Literal["fifo", "causal"] = "causal") -> None:
        """Until as many calls of `close` this node stamps what it publishes there, and delivers in that order."""
        group = self.groups.get(topic)
        other = "causal" if group is not None and group.opened else "fifo" if topic in self.fifo.topics else order
        if other != order:
            raise UsageError(f"{topic!r:.80} is open with the order {other} on this node; a topic has one order at a time")
        if order == "fifo":
            self.fifo.open(topic)
            return
        group = self.groups.setdefault(topic, Group())
        if not group.opened:
            group.begin(self.env.now())
        group.opened += 1

    def is_open(self, topic: str) -> bool:
        return self._open_group(topic) is not None or self.fifo.is_open(topic)

    def close(self, topic: str) -> None:
        """What is still held is dropped, for its subscription is over; if the topic has another without an order, delivered."""
        group = self.groups.get(topic)
        if group is None or not group.opened:
            self.fifo.close(topic)
            return
        while group.opened == 1 and group.held and topic in self.router.interests:
            self._force(group, next(iter(group.held.values())))
        group.opened -= 1
        if not group.opened:
            for held in group.held.values():
                self._forget(held)
            group.begin(self.env.now())
            if group.blank:
                del self.groups[topic]

    def publish(self, topic: str, data: bytes) -> Publication:
        group = self._open_group(topic)
        if group is None:
            return self.fifo.publish(topic, data)
        group.sent += 1
        header = OrderHeader(self.env.epoch, group.sent, tuple(group.barrier))
        publication = self.router.compose(topic, data, header)
        if topic not in self.router.interests:  # then the router does not hand it back
            self._note(group, publication)
        self.router.publish(publication)
        if not group.over(publication.id):  # a router may hand it back later; what is published next comes after it all the same
            self._cover(group, publication)
        return publication

    def _open_group(self, topic: str) -> Group | None:
        group = self.groups.get(topic)
        if group is None or not group.opened:
            return None
        self._end_cut(group, self.config.longest)
        return group

    # Delivery.

    def deliver(self, publication: Publication) -> None:
        group = self._open_group(publication.topic)
        if group is None:
            self.fifo.deliver(publication)
        elif publication.order is None:
            self._release(publication)
        elif publication.id.source == self.env.me and publication.id.epoch >= self.env.epoch:
            self._advance(group, publication)
        elif self._honest(publication, publication.order):
            self._take(group, publication, publication.order)
        else:
            self.trace(REJECT, publication.topic, publication.id, None, None, "a false order")

    def _honest(self, publication: Publication, header: OrderHeader) -> bool:
        """Whether a node may have such an id, and such dependencies."""
        try:
            check_ids(self.env.me, (publication.id, *header.dependencies))
        except PeerError:
            return False
        return True

    def _take(self, group: Group, publication: Publication, header: OrderHeader) -> None:
        id = publication.id
        if group.first_rec is None:
            group.first_rec = self.env.now()
        if group.over(id) or id in group.held:
            self._count_late(publication)
            return
        unmet = {d: None for d in self._heeded(header) if d != id and not group.over(d)}
        group.wanted.pop(id, None)
        if unmet:
            self._hold(group, Held(publication, self.env.now(), unmet))
        else:
            self._advance(group, publication)

    def _heeded(self, header: OrderHeader) -> tuple[MessageId, ...]:
        """What it waits for here; it covers no more than that."""
        return header.dependencies[: self.config.dependencies]

    def _count_late(self, publication: Publication) -> None:
        self.late += 1
        self.trace(REJECT, publication.topic, publication.id, None, None, "late")

    def _hold(self, group: Group, held: Held) -> None:
        now, source = self.env.now(), held.publication.id.source
        group.add(held)
        self.held += 1
        self.held_bytes += held.weight
        missing = [id for id in held.unmet if id not in group.held and id not in group.wanted]
        for id in missing:
            group.wanted[id] = Wanted(now, self.env.rng.random())
        if self.timer is None:
            self.timer = self.env.after(self.config.first_ask, self._tick)
        if self.speakers and now < group.since + self.config.young and len(group.wanted) <= ASKED:
            self._ask(held.publication.topic, group, [id for id in missing if not group.knows((id.source, id.epoch))])
        if group.each[source] > self.config.held_each:
            self._force(group, next(each for each in group.held.values() if each.publication.id.source == source))
        while len(group.wanted) > self.config.wanted:
            self._force(group, next(iter(group.held.values())))
        while self.held > self.config.held:
            fullest = max(self.groups.values(), key=lambda each: len(each.held))
            self._force(fullest, next(iter(fullest.held.values())))
        while self.held_bytes > self.config.held_bytes:
            heaviest = max(self.groups.values(), key=lambda each: each.held_bytes)
            self._force(heaviest, next(iter(heaviest.held.values())))

    def _advance(self, group: Group, publication: Publication) -> None:
        """Deliver it, and whatever waited for it alone. The app may publish from inside: state comes first."""
        ready = deque([publication])
        while ready and group.opened:
            turn = ready.popleft()
            if group.over(turn.id):
                self._count_late(turn)
                continue
            self._note(group, turn)
            waited = group.waited(turn.id)
            for id in sorted(waited, reverse=True):
                if id != turn.id:
                    self._left_behind(turn.topic, group, id)
            ready.extend(self._freed(group, waited))
            self._release(turn)

    def _left_behind(self, topic: str, group: Group, id: MessageId) -> None:
        """Its source has gone on without it, for a message between was passed over; what it names is still waited for."""
        if id in group.held:
            group.bequeath(id, self.config.dependencies)
        else:
            self._tell_given_up(topic, id)

    def _note(self, group: Group, publication: Publication) -> None:
        """last_delvs and the barrier, as VCube-PS has them after Co_Deliver."""
        group.note(publication.id, self.env.now(), self.config.sources)
        self._cover(group, publication)

    def _cover(self, group: Group, publication: Publication) -> None:
        self.kept.add(publication, self.env.now())
        id, header = publication.id, publication.order
        for covered in self._heeded(header) if header is not None else ():
            group.barrier.pop(covered, None)
        group.barrier[id] = None
        if len(group.barrier) > self.config.dependencies:
            del group.barrier[next(iter(group.barrier))]
            self.cut += 1

    def _freed(self, group: Group, ids: Iterable[MessageId]) -> Iterator[Publication]:
        for held in group.met(ids):
            group.remove(held)
            self._forget(held)
            yield held.publication

    def _forget(self, held: Held) -> None:
        self.held -= 1
        self.held_bytes -= held.weight

    # What does not come.

    def _tick(self) -> None:
        """While anything is held: give up, and ask."""
        self.timer, now = None, self.env.now()
        patience = self.config.patience + self.router.repair
        for topic, group in list(self.groups.items()):
            self._end_cut(group, 2 * self.config.patience)
            for id in [id for id, wanted in group.wanted.items() if wanted.since + patience <= now]:
                self._give_up(topic, group, id)
            while group.held and (oldest := next(iter(group.held.values()))).came + self.config.longest <= now:
                self._force(group, oldest)
            self._ask(topic, group, [id for id, wanted in group.wanted.items() if now - wanted.since >= self.config.first_ask])
        if self.held and self.timer is None:
            self.timer = self.env.after(self.config.ask_every, self._tick)

    def _give_up(self, topic: str, group: Group, id: MessageId) -> None:
        if (id.source, id.epoch) in group.waiting and id in group.waiting[id.source, id.epoch]:
            self._tell_given_up(topic, id)
            self._pass_over(group, id)

    def _tell_given_up(self, topic: str, id: MessageId) -> None:
        self.given_up += 1
        self.trace(REJECT, topic, id, None, None, "given up")

    def _pass_over(self, group: Group, id: MessageId) -> None:
        """It is not delivered any more: something that comes after it is. What is known of its source still comes before that."""
        group.given_up[id] = None
        if len(group.given_up) > self.config.given_up:
            group.given_up.popitem(last=False)
        waiting = group.waiting.get((id.source, id.epoch), {}).get(id)
        if waiting is not None:
            group.inherit(waiting, id)
            for publication in list(self._freed(group, [id])):
                self._advance(group, publication)

    def _force(self, group: Group, held: Held) -> None:
        """Deliver it without what it waits for, but after what is here of that. Only in a ring may anything be left after it."""
        missing: dict[MessageId, None] = {}
        reached, todo = {held.publication.id: None}, [held]
        while todo:
            for id in todo.pop().unmet:
                if id not in group.held:
                    missing[id] = None
                elif id not in reached:
                    reached[id] = None
                    todo.append(group.held[id])
        for id in missing:
            self._give_up(held.publication.topic, group, id)
        if held.publication.id in group.held:
            group.remove(held)
            self._forget(held)
            self._advance(group, held.publication)

    # Asking.

    def _ask(self, topic: str, group: Group, ids: Iterable[MessageId]) -> None:
        asks: dict[tuple[Peer, int], list[MessageId]] = {}
        peers, age = tuple(self.speakers), self.env.now() - group.since + self.config.slack
        for id in ids:
            wanted = group.wanted[id]
            since = EVER if group.knows((id.source, id.epoch)) else age
            for peer in self._whom(group, id, wanted, peers):
                wanted.asked[peer] = None
                asks.setdefault((peer, since), []).append(id)
            wanted.tries += 1
        for (peer, since), several in asks.items():
            for start in range(0, len(several), ASKED):
                self.env.send(peer, Ask(topic, since, tuple(several[start : start + ASKED])))

    def _whom(self, group: Group, id: MessageId, wanted: Wanted, peers: tuple[Peer, ...]) -> dict[Peer, None]:
        """Neighbours in turn, from a place drawn for each id; later whoever published what waits, for it has delivered this."""
        first = int(wanted.place * len(peers)) + wanted.tries * self.config.ask_peers
        chosen = {peers[(first + n) % len(peers)]: None for n in range(self.config.ask_peers)} if peers else {}
        if wanted.tries >= self.config.ask_source:
            author = group.waiting[id.source, id.epoch][id][0].publication.id.source
            chosen[author] = None
        return chosen

    @upon(Ask)
    def _asked(self, sender: Peer, m: Ask) -> None:
        check_ids(self.env.me, m.ids)
        group = self._open_group(m.topic)
        if group is None or not self._may_ask(sender, len(m.ids)):
            return
        now = self.env.now()
        start, before = now - m.since, []
        there = group.since < start  # else this node cannot say how things stood then
        for id in m.ids:
            entry, held = self.kept.get(id, now), group.held.get(id)
            found = entry.publication if entry is not None else held.publication if held is not None else None
            if there and (entry.came < start if entry is not None else group.came_before(id, start, self.kept.horizon)):
                before.append(id)
            elif found is not None and found.topic == m.topic and self.env.backlog(sender) < BURST:
                self.env.send(sender, Copy.of(found))
        if before:
            cut = group.cut(start, self.kept.first(m.topic, start), self.kept.horizon < start)
            self.env.send(sender, Before(m.topic, tuple(before), cut))

    def _may_ask(self, peer: Peer, ids: int) -> bool:
        second = self.env.now() // SECOND
        then, count = self.asks.get(peer, (second, 0))
        count = ids if then != second else count + ids
        self.asks[peer] = (second, count)
        return count <= self.config.asks

    @upon(Copy)
    def _copy(self, sender: Peer, m: Copy) -> None:
        if self._answered(sender, m.topic, m.id) is not None:
            self.router.brought(sender, m.publication())
        elif self.tracing:
            self.trace(DUPLICATE, m.topic, m.id, sender)

    @upon(Before)
    def _came_before(self, sender: Peer, m: Before) -> None:
        """Messages from before that are still on their way would come after what comes after them: the cut says which.

        It is heeded for `longest`, since so long a router that repairs may bring such messages, or for twice the patience if
        something is held then; and no longer, so that a liar cannot keep out later ones.
        """
        check_ids(self.env.me, (*m.ids, *m.cut))
        answered = [(self._answered(sender, m.topic, id), id) for id in m.ids]
        passed = [(group, id) for group, id in answered if group is not None and not group.knows((id.source, id.epoch))]
        for group, _ in passed[:1]:
            if group.first_rec is not None and self.env.now() < group.first_rec + self.config.patience:
                self._begin_at(m.topic, group, m.cut)
        for group, id in passed:
            if not group.over(id):
                self._tell_before(m.topic, id)
            self._pass_over(group, id)

    def _tell_before(self, topic: str, id: MessageId) -> None:
        self.before += 1
        self.trace(REJECT, topic, id, None, None, "before")

    def _begin_at(self, topic: str, group: Group, cut: tuple[MessageId, ...]) -> None:
        for id in cut[: max(0, self.config.sources - len(group.starting_cut))]:
            source = id.source, id.epoch
            group.starting_cut[source] = max(id.sequence, group.starting_cut.get(source, -1))
        gone = {id: held for id, held in group.held.items() if group.over(id)}
        for held in gone.values():
            group.remove(held)
            self._forget(held)
        over = [id for several in group.waiting.values() for id in several if group.over(id)]
        for id in {**dict.fromkeys(gone), **dict.fromkeys(over)}:
            self._tell_before(topic, id)
        for publication in list(self._freed(group, over)):
            self._advance(group, publication)

    def _end_cut(self, group: Group, after: int) -> None:
        if group.starting_cut and group.first_rec is not None and self.env.now() >= group.first_rec + after:
            group.starting_cut.clear()

    def _answered(self, sender: Peer, topic: str, id: MessageId) -> Group | None:
        """The group that waits for it, if this peer was asked; each ask is answered once."""
        group = self._open_group(topic)
        wanted = group.wanted.get(id) if group is not None else None
        if wanted is None or sender not in wanted.asked:
            return None
        del wanted.asked[sender]
        return group

    # Validation and links.

    def validate(self, sender: Peer, publication: Publication, answer: Callable[[Verdict], None]) -> None:
        header = publication.order
        if header is not None and self._open_group(publication.topic) is not None and self._honest(publication, header):
            answer = partial(self._judged, publication, answer)
        super().validate(sender, publication, answer)

    def _judged(self, publication: Publication, answer: Callable[[Verdict], None], verdict: Verdict) -> None:
        """What is refused here will not come again: nothing need wait for it."""
        answer(verdict)
        group = self._open_group(publication.topic)
        if verdict is not Verdict.ACCEPT and group is not None:
            self._pass_over(group, publication.id)

    def link_up(self, peer: Peer, link: Link) -> None:
        self.speakers[peer] = link.incarnation

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        self.asks.pop(peer, None)
        if self.speakers.get(peer) == incarnation:
            del self.speakers[peer]
