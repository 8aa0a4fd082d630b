"""Plumtree: epidemic broadcast trees (Leitao, Pereira and Rodrigues, SRDS 2007; report DI-FCUL TR-07-14).

Payloads are pushed along eager links, which come to form a tree. The other links are lazy: they carry announcements alone,
by which a node finds out that a payload does not come, and asks an announcer for it. That request makes the link eager,
so the tree mends itself; a second copy makes a link lazy, so it has no cycles. All links begin as eager.
- GOSSIP, first copy: sender becomes eager; after validation the payload goes to the other eager links, an IHAVE to the lazy.
- GOSSIP, later copy: sender becomes lazy and gets a PRUNE. PRUNE: sender becomes lazy.
- IHAVE of an unknown id: wait `first_wait` for the payload, then GRAFT an announcer every `second_wait`, each in its turn.
  An announcer makes its link eager that way; if the payload comes from elsewhere, the link is pruned again.
- GRAFT: sender becomes eager, and gets the payload if it is asked for and still held.
- Optimisation: a payload that took `threshold` hops more than an earlier announcement says changes to that announcer's link.

Beyond the paper: that undoing; while messages of many sources overlap, only some of them shape the tree (`settle`), or it
would never come to rest; an announcer is asked again (`graft_tries`), since a GRAFT may be lost; announcements are batched
under load; and, as an option, each source has a tree of its own. Announcements may all be lost, and a partition outlasts
them. So a neighbour hears of what is held and it is not known to have (SUMMARY): when it comes up, and each `summary_every`
until it says that it has all (HEARD). At rest that costs a mention of each message on each link of the tree. A payload
carries its age, and is held until it is `held_age` old, wherever it is: nobody hears of a message after forgetting its id.
A peer that is no neighbour is answered by the same rules, but is never eager or lazy.

Below it needs neighbours. Above it promises each message once while its id is remembered; subscriptions filter what is
delivered, not what is forwarded.
Bounds: PlumtreeConfig has those of payloads held (`Held`), of ids announced and not come (`Missing`) and of trees; ANNOUNCERS
of one id; IDS in one message; what waits for a link to drain (`owed`, `unsent`) is part of what is held, and ends with the
link; `pending_gossip` is as long as pending validations; ids seen in `libweft.pubsub.seen`. Three timers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Annotated, ClassVar, NamedTuple, TypeAlias, TypeVar

from msgspec import Meta
from msgspec.structs import replace

from libweft.overlays.fault_groups import BREAKS, DELAYS, LOSSES
from libweft.overlays.overlay import Overlay
from libweft.overlays.powers import Connected
from libweft.peer.errors import UsageError
from libweft.peer.machine import MS, SECOND, Env, Lane, Message, MessageId, Peer, Timer, upon
from libweft.peer.trace.kinds import DUPLICATE, GRAFT, PRUNE
from libweft.pubsub.carrier import Spread, parts
from libweft.pubsub.description import TOPICS_AND_FILTERS, RouterDescription
from libweft.pubsub.message import Publication, Verdict, weight
from libweft.pubsub.promises import INTEGRITY, ONCE, Promise, Property
from libweft.pubsub.router import App, Role, Router
from libweft.pubsub.seen import LIMIT, TTL, Seen

PROTOCOL = "/weft/plumtree/1.0.0"

IDS = 1_024  # in one message; more is a fault of the peer
ROUNDS = 1 << 15  # more hops than any path has
ANNOUNCERS = 16  # of one missing id; further ones are not remembered
BURST = 1 << 18  # bytes on a link, beyond which payloads that were asked for wait until it has drained
KNOWN = 64  # peers remembered to have a message; to others it is mentioned once more than it need be
OLDEST = 1 << 40  # microseconds, twelve days: any age fits a message

Item = TypeVar("Item")
Round: TypeAlias = Annotated[int, Meta(ge=0, le=ROUNDS)]
"""How many links a payload has crossed when it comes over this one; the publisher's own neighbours get 1."""
Age: TypeAlias = Annotated[int, Meta(ge=0, le=OLDEST)]
"""How long nodes have had a payload since it was published, one after the other; time on links is not counted."""
Serial: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 60)]
"""How many payloads its sender had held before."""
Ids: TypeAlias = Annotated[tuple[MessageId, ...], Meta(max_length=IDS)]


class Gossip(Spread, frozen=True, tag=0):
    round: Round
    shapes: bool  # whether the tree is changed after it; see `_shapes`
    age: Age

    @classmethod
    def of(cls, p: Publication, hops: int, shapes: bool = True, age: int = 0) -> Gossip:
        return cls(*parts(p), hops, shapes, age)


class IHave(Message, frozen=True, tag=1):
    """On the lazy lane: behind payloads on a slow link, so that a loaded network asks for less; what is dropped is said later."""

    lane: ClassVar[Lane] = Lane.LAZY

    announced: Annotated[tuple[tuple[MessageId, Round], ...], Meta(max_length=IDS)]


class Graft(Message, frozen=True, tag=2):
    """`payload` false only makes the link eager; the ids then say in which trees."""

    ids: Ids
    payload: bool = True


class Prune(Message, frozen=True, tag=3):
    """`id` is the message that came twice or a long way; it says in which tree."""

    id: MessageId


class Summary(Message, frozen=True, tag=4):
    """What is held, oldest first, with its age: a node leaves out what is older than itself.

    What came to the sender before the payload of that number, and is not named, the receiver is known to have.
    """

    lane: ClassVar[Lane] = Lane.LAZY

    number: Serial
    held: Annotated[tuple[tuple[MessageId, Age], ...], Meta(max_length=IDS)]


class Heard(Message, frozen=True, tag=5):
    """All that the summary of that number names is here; until then it is sent again."""

    number: Serial


@dataclass(frozen=True)
class PlumtreeConfig:
    """Times in microseconds. The paper gives no times: it asks for waits that fit the diameter and the round trip."""

    first_wait: int = SECOND  # before what was announced is asked for: a guess, as in Babel, a tree of 15 hops of 50 ms
    second_wait: int = 500 * MS  # before another is asked: the paper has about a round trip to a neighbour; this is a guess
    graft_tries: int = 3  # how often each is asked; a guess; the paper asks each announcer once
    threshold: int = 7  # hops by which a lazy link must be shorter: the paper has 3 for one sender, 7 for many; 0 never optimises
    settle: int = 2 * SECOND  # so long one message alone shapes the tree, a guess; 0: all do, as in the paper
    batch: int = 5 * MS  # how long announcements are gathered: a guess, as in iroh-gossip; 0 announces at once, as in the paper
    per_source: bool = False  # a tree for each source, not one for all; the paper discusses both, and measures the shared tree
    trees: int = 1_024  # kept at most; a guess; the longest unused is forgotten, which costs a flood
    summary: bool = True  # new neighbours tell each other what they have; not in the paper
    summary_every: int = 10 * SECOND  # between two of these: a guess, several times while a message is held
    held_messages: int = 4_096  # messages kept for who asks; a guess: outlasts all GRAFTs up to a thousand messages a second
    held_bytes: int = 16 << 20  # bytes of these; a guess
    held_age: int = 100 * SECOND  # how long: a partition of 30 s, two of HyParView's probes; ids are remembered 20 s longer
    missing: int = 4_096  # a guess: ids announced and not come
    missing_each: int = 1_024  # of them, by one announcer: a guess, so that one liar leaves room for others

    def __post_init__(self) -> None:
        least = {"first_wait": 1, "second_wait": 1, "graft_tries": 1, "threshold": 0, "settle": 0, "batch": 0, "trees": 1}
        least |= {"summary_every": 1, "held_messages": 1, "held_bytes": 1, "missing": 1, "missing_each": 1}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be {bound} at least")
        for name, bound in (("held_messages", LIMIT // 2), ("held_age", TTL)):
            if getattr(self, name) > bound:
                forgotten = "ids are forgotten then, and would be new"
                raise UsageError(f"{name} is {getattr(self, name)}; it must be {bound} at most: {forgotten}")
        if self.held_age <= self.first_wait + self.graft_tries * self.second_wait:
            raise UsageError(f"held_age is {self.held_age} us; it must outlast first_wait and graft_tries times second_wait")


DEFAULT = PlumtreeConfig()


class Tree:
    """Which neighbours are eager, which lazy. Tuples, for `Env.send_all`: they are read far more often than they change.

    `shaped_at` is when the last message came that shapes the tree, `others` how many came since.
    """

    __slots__ = ("eager", "lazy", "others", "shaped_at")

    def __init__(self, neighbors: Iterable[Peer]) -> None:
        self.eager: tuple[Peer, ...] = tuple(neighbors)
        self.lazy: tuple[Peer, ...] = ()
        self.shaped_at: int | None = None
        self.others = 0

    def make_eager(self, peer: Peer) -> None:
        if peer in self.lazy:
            self.lazy = _without(self.lazy, peer)
            self.eager += (peer,)

    def make_lazy(self, peer: Peer) -> None:
        if peer in self.eager:
            self.eager = _without(self.eager, peer)
            self.lazy += (peer,)

    def carried(self, m: Gossip, now: int) -> None:
        if m.shapes:
            self.shaped_at, self.others = now, 0
        else:
            self.others += 1

    def remove(self, peer: Peer) -> None:
        self.eager, self.lazy = _without(self.eager, peer), _without(self.lazy, peer)


class Kept:
    """A payload as it came, when it was born by this node's clock, and who else is known to have it."""

    __slots__ = ("born", "known", "m", "weight")

    def __init__(self, m: Gossip, born: int, known: tuple[Peer, ...]) -> None:
        self.m = m
        self.born = born
        self.known = known
        self.weight = weight(m)


class Held:
    """Payloads kept for those who ask; the oldest go first, by number, bytes and age. Serials count them from the first one."""

    __slots__ = ("bytes", "config", "first", "messages", "order")

    def __init__(self, config: PlumtreeConfig) -> None:
        self.config = config
        self.messages: dict[MessageId, Kept] = {}
        self.order: deque[Kept] = deque()
        self.first = 0  # the serial of the oldest
        self.bytes = 0

    @property
    def end(self) -> int:
        """The serial of the next."""
        return self.first + len(self.order)

    def add(self, m: Gossip, now: int, known: tuple[Peer, ...]) -> None:
        if m.id in self.messages:  # it came again after its id was forgotten, or is published again
            return
        kept = Kept(m, now - m.age, known)
        self.messages[m.id] = kept
        self.order.append(kept)
        self.bytes += kept.weight
        self.expire(now)

    def expire(self, now: int) -> None:
        config, order = self.config, self.order
        while order and (
            len(order) > config.held_messages or self.bytes > config.held_bytes or order[0].born + config.held_age <= now
        ):
            gone = order.popleft()
            self.first += 1
            self.bytes -= gone.weight
            del self.messages[gone.m.id]

    def get(self, id: MessageId, now: int) -> Gossip | None:
        """As it is to be sent now: a hop further and so much older. One that came late may be too old before its turn to go."""
        kept = self.messages.get(id)
        if kept is None or kept.born + self.config.held_age <= now:
            return None
        return replace(kept.m, round=min(kept.m.round + 1, ROUNDS), age=now - kept.born)

    def between(self, start: int, end: int, now: int) -> Iterator[tuple[int, Kept]]:
        """Those with serials from `start` to below `end`."""
        start, born = max(start, self.first), now - self.config.held_age
        serials = zip(range(start, end), islice(self.order, start - self.first, None), strict=False)
        return ((serial, kept) for serial, kept in serials if kept.born > born)

    def known_to(self, peer: Peer, id: MessageId) -> None:
        kept = self.messages.get(id)
        if kept is not None and peer not in kept.known and len(kept.known) < KNOWN:
            kept.known += (peer,)


class Pending(NamedTuple):
    """A first copy before its verdict: when it came, whose link would be better, and who is known to have it."""

    m: Gossip
    came: int
    nearest: Peer | None
    known: tuple[Peer, ...]

    def judged(self, now: int) -> tuple[Gossip, Peer | None, tuple[Peer, ...]]:
        m = self.m if now == self.came else replace(self.m, age=min(self.m.age + now - self.came, OLDEST))
        return m, self.nearest, self.known


class Missing:
    """An id that was announced and has not come; who announced it, in order of asking, and how often each may still be asked."""

    __slots__ = ("announcers", "due", "grafted", "made_eager", "nearest", "opener", "round")

    def __init__(self, opener: Peer, due: int) -> None:
        self.opener = opener
        self.due = due
        self.announcers: dict[Peer, int] = {}
        self.grafted = False
        self.made_eager: list[Peer] = []
        self.nearest = opener
        self.round = ROUNDS + 1

    def announced(self, peer: Peer, hops: int, tries: int) -> None:
        if peer not in self.announcers and len(self.announcers) < ANNOUNCERS:
            self.announcers[peer] = tries
        if hops < self.round:
            self.nearest, self.round = peer, hops

    def next(self, eager: Sequence[Peer]) -> Peer | None:
        """Whom to ask now: one of `eager` if there is one, else the first of the line; it goes to the end of the line.

        Who was asked often enough leaves the line.
        """
        self.grafted = True
        peer = next((peer for peer in self.announcers if peer in eager), next(iter(self.announcers), None))
        if peer is not None and (left := self.announcers.pop(peer) - 1):
            self.announcers[peer] = left
        return peer


class Plumtree(Router):
    """`awaited` and `asked` are the missing ids in their first and second wait, each in order of their ends."""

    __slots__ = (
        "announced_at", "asked", "awaited", "began", "config", "confirmed", "held", "lazy_queue", "marked", "neighbors", "opened",
        "owed", "pending_gossip", "queue_timer", "seen", "summary_timer", "timer", "tree", "trees", "unsent",
    )  # fmt: skip

    protocols = (PROTOCOL,)

    def __init__(self, env: Env, overlay: Overlay, app: App, config: PlumtreeConfig = DEFAULT, role: Role = Role.PEER) -> None:
        super().__init__(env, overlay, app, role)
        self.config = config
        self.began = env.now()
        self.neighbors: dict[Peer, None] = {}
        self.tree = Tree(())  # the shared one
        self.trees: dict[Peer, Tree] = {}  # by source, longest unused first
        self.seen = Seen()
        self.held = Held(config)
        self.awaited: dict[MessageId, Missing] = {}
        self.asked: dict[MessageId, Missing] = {}
        self.opened: dict[Peer, int] = {}  # how many of them each peer was the first to announce
        self.timer: Timer | None = None
        self.pending_gossip: dict[MessageId, Pending] = {}  # before the verdict
        self.lazy_queue: dict[Peer, dict[MessageId, int]] = {}
        self.announced_at = -config.batch
        self.queue_timer: Timer | None = None
        self.owed: dict[Peer, dict[MessageId, None]] = {}  # payloads asked for, that wait for the link to drain
        self.unsent: dict[Peer, dict[MessageId, None]] = {}  # what never left, to be announced when it has drained
        self.confirmed: dict[Peer, int] = {}  # of what is held, a neighbour needs nothing before this serial
        self.marked = 0  # the serial at the last summaries: what came later may still be on its way
        self.summary_timer: Timer | None = None

    # The tree: gossip, prune.

    def _spread(self, publication: Publication) -> None:
        self.seen.note(publication.id, self.env.now())
        self._push(Gossip.of(publication, 0, self._shapes(publication.id)), self.env.me, ())

    @upon(Gossip)
    def _gossip(self, sender: Peer, m: Gossip) -> None:
        tree = self._tree(m.id)
        if m.id in self.seen or not self.seen.note(m.id, self.env.now()):
            if self.tracing:
                self.trace(DUPLICATE, m.topic, m.id, sender)
            self.held.known_to(sender, m.id)
            if m.shapes:
                self._prune(tree, sender, m.id, m.topic)
        else:
            tree.make_eager(sender)
            self.pending_gossip[m.id] = self._came(m, sender)
            waiting = self.pending
            self._received(sender, m.publication(), m.round)
            if self.pending == waiting:
                self.pending_gossip.pop(m.id, None)

    def brought(self, sender: Peer, publication: Publication) -> None:
        """It says nothing of the tree, and nobody knows its age, so it is not held: who lacks it asks as well."""
        if publication.id in self.seen or not self.seen.note(publication.id, self.env.now()):
            if self.tracing:
                self.trace(DUPLICATE, publication.topic, publication.id, sender)
            return
        m = _stale(publication, None)
        self.pending_gossip[m.id] = self._came(m, sender)
        waiting = self.pending
        self._received(sender, publication)
        if self.pending == waiting:
            self.pending_gossip.pop(m.id, None)

    @upon(Prune)
    def _pruned(self, sender: Peer, m: Prune) -> None:
        self._tree(m.id).make_lazy(sender)
        self.held.known_to(sender, m.id)

    def judged(self, sender: Peer, publication: Publication, hops: int | None, verdict: Verdict) -> None:
        super().judged(sender, publication, hops, verdict)
        self.pending_gossip.pop(publication.id, None)

    def _accepted(self, sender: Peer, publication: Publication, hops: int | None) -> None:
        """The optimisation comes after the push: who is nearer to the source has this message, and needs no copy.

        Only a verdict so late that the id was forgotten, and came again, finds no gossip left.
        """
        pending = self.pending_gossip.pop(publication.id, None)
        m, nearest, known = pending.judged(self.env.now()) if pending is not None else (_stale(publication, hops), None, ())
        self._push(m, sender, known)
        if nearest is not None and nearest in self.neighbors:
            self._graft(nearest, (m.id,), payload=False)
            self._prune(self._tree(m.id), sender, m.id, m.topic)
        super()._accepted(sender, publication, hops)

    def _forged(self, publication: Publication) -> None:
        self.seen.discard(publication.id)

    def _shapes(self, id: MessageId) -> bool:
        """Whether a message of this node's own is to shape the tree: only some do while many are under way.

        Of two messages that spread at a time, each may prune the links by which the other comes: the tree falls apart, is
        grafted, and never settles. So one that shapes comes when `settle` has passed since the last. As others may publish
        before they hear of it, the odds are one to the number of messages in such a time.
        """
        tree, settle = self._tree(id), self.config.settle
        if tree.shaped_at is None or not settle:
            return True
        passed = self.env.now() - tree.shaped_at
        return passed >= settle and (not tree.others or self.env.rng.random() * (1 + tree.others * settle / passed) < 1)

    def _push(self, m: Gossip, sender: Peer, known: tuple[Peer, ...]) -> None:
        tree, onward, now = self._tree(m.id), min(m.round + 1, ROUNDS), self.env.now()
        self.held.add(m, now, known)
        tree.carried(m, now)
        if self.summary_timer is None and self.confirmed:
            self._await_summary()
        if tree.eager and tree.eager != (sender,):
            self.env.send_all(tree.eager, replace(m, round=onward), sender)
        if tree.lazy and tree.lazy != (sender,):
            self._announce(tree.lazy, m.id, onward, sender)

    def _prune(self, tree: Tree, peer: Peer, id: MessageId, topic: str) -> None:
        tree.make_lazy(peer)
        self.trace(PRUNE, topic, id, peer)
        self.env.send(peer, Prune(id))

    def _tree(self, id: MessageId) -> Tree:
        if not self.config.per_source:
            return self.tree
        tree = self.trees.pop(id.source, None) or Tree(self.neighbors)
        self.trees[id.source] = tree
        if len(self.trees) > self.config.trees:
            del self.trees[next(iter(self.trees))]
        return tree

    # Announcements, and what they lead to: ihave, the waits, graft.

    def _announce(self, peers: tuple[Peer, ...], id: MessageId, hops: int, sender: Peer) -> None:
        """At once when the last announcement is `batch` ago, so that a quiet network pays no timer; else with those to come."""
        now = self.env.now()
        if self.queue_timer is None and now - self.announced_at >= self.config.batch:
            self.announced_at = now
            self.env.send_all(peers, IHave(((id, hops),)), sender)
            return
        for peer in peers:
            if peer != sender:
                self.lazy_queue.setdefault(peer, {})[id] = hops
        if self.queue_timer is None:
            self.queue_timer = self.env.after(self.announced_at + self.config.batch - now, self._batch_full)
        elif any(len(queued) >= IDS for queued in self.lazy_queue.values()):
            self.queue_timer.cancel()
            self._batch_full()

    def _batch_full(self) -> None:
        queue, self.lazy_queue, self.queue_timer = self.lazy_queue, {}, None
        self.announced_at = self.env.now()
        for peer, queued in queue.items():
            self.env.send(peer, IHave(tuple(queued.items())))

    @upon(IHave)
    def _ihave(self, sender: Peer, m: IHave) -> None:
        for id, hops in m.announced:
            self._announced(sender, id, hops)

    def _announced(self, sender: Peer, id: MessageId, hops: int) -> bool:
        """Whether it is here already."""
        if id in self.seen or id in self.seen.old:
            self.held.known_to(sender, id)
            return True
        missing = self.awaited.get(id) or self.asked.get(id)
        if missing is None:
            config, opened = self.config, self.opened.get(sender, 0)
            if opened >= config.missing_each or len(self.awaited) + len(self.asked) >= config.missing:
                return False
            self.opened[sender] = opened + 1
            missing = self.awaited[id] = Missing(sender, self.env.now() + config.first_wait)
        missing.announced(sender, hops, self.config.graft_tries)
        if self.timer is None:
            self._set_timer()
        return False

    def _set_timer(self) -> None:
        """For the first wait to end. A later one never ends earlier, so only `_overdue` has to set it anew."""
        ends = [missing.due for waiting in (self.awaited, self.asked) for missing in islice(waiting.values(), 1)]
        if ends:
            due = min(ends)
            self.timer = self.env.after(max(0, due - self.env.now()), self._overdue, due)

    def _overdue(self, due: int) -> None:
        """What was due when the timer was set is due now, whatever the clock says: timers may be early."""
        wanted: dict[Peer, list[MessageId]] = {}
        awaited, asked = self._over(self.awaited, due), self._over(self.asked, due)
        for id, missing in awaited + asked:
            # at first who is eager already, so that one message does not make a second link eager
            peer = missing.next(() if missing.grafted else self._tree(id).eager)
            if peer is None:  # nobody is left to ask; an announcement to come begins it all again
                self._closed(missing)
            else:
                if peer in self._tree(id).lazy:
                    missing.made_eager.append(peer)
                missing.due = self.env.now() + self.config.second_wait
                self.asked[id] = missing
                wanted.setdefault(peer, []).append(id)
        self.timer = None
        self._set_timer()
        for peer, ids in wanted.items():
            for some in _chunks(ids):
                self._graft(peer, some, payload=True)

    def _over(self, waiting: dict[MessageId, Missing], due: int) -> list[tuple[MessageId, Missing]]:
        over = list(takewhile(lambda pair: pair[1].due <= due, waiting.items()))
        for id, _ in over:
            del waiting[id]
        return over

    def _graft(self, peer: Peer, ids: Sequence[MessageId], payload: bool) -> None:
        for id in ids:
            self._tree(id).make_eager(peer)
            self.trace(GRAFT, None, id, peer)
        self.env.send(peer, Graft(tuple(ids), payload))

    @upon(Graft)
    def _grafted(self, sender: Peer, m: Graft) -> None:
        for id in m.ids:
            self._tree(id).make_eager(sender)
        if m.payload:
            self._keep(self.owed, sender, m.ids)
            self._pay(sender)

    def _pay(self, peer: Peer) -> None:
        """Send what was asked for, while the link takes it: a whole partition's messages at once would overload it."""
        owed = self.owed.pop(peer, {})
        while owed and self.env.backlog(peer) < BURST:
            id = next(iter(owed))
            del owed[id]
            if (m := self.held.get(id, self.env.now())) is not None:
                self.env.send(peer, m)
        if owed:
            self.owed[peer] = owed

    def _came(self, m: Gossip, sender: Peer) -> Pending:
        """It is missing no more: links that were made eager for it, and did not bring it, are lazy again.

        Who announced it by a way shorter by `threshold` will be the better link.
        """
        missing, now = self.awaited.pop(m.id, None) or self.asked.pop(m.id, None), self.env.now()
        if missing is None:
            return Pending(m, now, None, (sender,))
        self._closed(missing)
        for peer in missing.made_eager:
            if peer != sender and peer in self.neighbors:
                self._prune(self._tree(m.id), peer, m.id, m.topic)
        better = m.shapes and self.config.threshold and m.round - missing.round >= self.config.threshold
        return Pending(m, now, missing.nearest if better else None, (sender, *missing.announcers))

    def _closed(self, missing: Missing) -> None:
        left = self.opened.pop(missing.opener) - 1
        if left:
            self.opened[missing.opener] = left

    # What neighbours are told of all that is held: summary, heard.

    def _tell(self, peer: Peer, end: int) -> None:
        """Of what came before `end` and it is not known to have; the oldest first, since those are the first to go."""
        now, number = self.env.now(), end
        told: list[tuple[MessageId, int]] = []
        for serial, kept in self.held.between(self.confirmed[peer], end, now):
            if peer not in kept.known:
                if len(told) == IDS:
                    number = serial
                    break
                told.append((kept.m.id, now - kept.born))
        if told:
            self.env.send(peer, Summary(number, tuple(told)))
        else:
            self.confirmed[peer] = end

    @upon(Summary)
    def _summary(self, sender: Peer, m: Summary) -> None:
        up_for, complete = self.env.now() - self.began, True
        for id, age in m.held:
            if age <= up_for:
                complete &= self._announced(sender, id, ROUNDS)
        if complete:
            self.env.send(sender, Heard(m.number))

    @upon(Heard)
    def _heard(self, sender: Peer, m: Heard) -> None:
        if self.confirmed.get(sender, m.number) < m.number <= self.held.end:
            self.confirmed[sender] = m.number
            if m.number < self.marked:
                self._tell(sender, self.marked)

    def _await_summary(self) -> None:
        self.summary_timer = self.env.after(1 + self.env.rng.randrange(self.config.summary_every), self._summary_due)

    def _summary_due(self) -> None:
        """It goes on while a neighbour may lack something."""
        self.held.expire(self.env.now())
        for peer, confirmed in tuple(self.confirmed.items()):
            if confirmed < self.marked:
                self._tell(peer, self.marked)
        self.marked = self.held.end
        behind = any(confirmed < self.marked for confirmed in self.confirmed.values())
        self.summary_timer = self.env.after(self.config.summary_every, self._summary_due) if behind else None

    # Neighbours and links.

    def neighbor_up(self, peer: Peer) -> None:
        self.neighbors[peer] = None
        for tree in (self.tree, *self.trees.values()):
            tree.remove(peer)
            tree.eager += (peer,)
        if self.config.summary:
            self.confirmed[peer] = 0
            self._tell(peer, self.held.end)
            if self.summary_timer is None and self.confirmed[peer] < self.held.end:
                self._await_summary()

    def neighbor_down(self, peer: Peer, reason: str) -> None:
        self.neighbors.pop(peer, None)
        self.confirmed.pop(peer, None)
        for tree in (self.tree, *self.trees.values()):
            tree.remove(peer)
        for waiting in (self.awaited, self.asked):
            for missing in waiting.values():
                missing.announcers.pop(peer, None)
        self._forget_queued(peer)

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        self._forget_queued(peer)

    def _forget_queued(self, peer: Peer) -> None:
        for queue in (self.lazy_queue, self.owed, self.unsent):
            queue.pop(peer, None)

    def dropped(self, peer: Peer, msg: Message) -> None:
        """What would have told a neighbour of a message is told when the link has drained.

        The others need no help: a GRAFT is sent again after the second wait, a PRUNE after the next copy, a SUMMARY in its time.
        """
        match msg:
            case Gossip():
                ids = [msg.id]
            case IHave():
                ids = [id for id, _ in msg.announced]
            case _:
                return
        if peer in self.neighbors:
            self._keep(self.unsent, peer, ids)

    def _keep(self, queue: dict[Peer, dict[MessageId, None]], peer: Peer, ids: Sequence[MessageId]) -> None:
        """Only what is held now, so that a link which never drains holds no more."""
        messages = self.held.messages
        queue[peer] = {id: None for id in (*queue.get(peer, ()), *ids) if id in messages}

    def drained(self, peer: Peer) -> None:
        held = (self.held.get(id, self.env.now()) for id in self.unsent.pop(peer, ()))
        for some in _chunks([(m.id, m.round) for m in held if m is not None]):
            self.env.send(peer, IHave(tuple(some)))
        self._pay(peer)


def _without(peers: tuple[Peer, ...], peer: Peer) -> tuple[Peer, ...]:
    return tuple(other for other in peers if other != peer)


def _chunks(ids: Sequence[Item]) -> Iterator[Sequence[Item]]:
    return (ids[start : start + IDS] for start in range(0, len(ids), IDS))


def _stale(publication: Publication, hops: int | None) -> Gossip:
    """Older than anybody holds; pushed on once, and not offered to anybody."""
    return Gossip.of(publication, hops or 0, shapes=False, age=TTL)


DESCRIPTION = RouterDescription(
    name="plumtree",
    paper="Leitao, Pereira and Rodrigues: Epidemic Broadcast Trees, SRDS 2007",
    use="for most uses: hardly more copies than receivers, and it fetches what loss, crashes or partitions held back",
    partner="hyparview",
    machine=Plumtree,
    config=PlumtreeConfig,
    protocols=Plumtree.protocols,
    needs=(Connected,),
    interests=TOPICS_AND_FILTERS,
    promises=(
        INTEGRITY,
        ONCE,
        Promise(
            Property.REACH,
            DELAYS | LOSSES | BREAKS | {"crash", "mass_crash"},
            60.0,
            "A node holds messages for 100 s from publication, 4,096 of them and 16 MiB at most, and only those can be fetched.",
        ),
    ),
)
