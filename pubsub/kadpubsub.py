"""KadPubSub: subscribers are registered at the nodes nearest to their topic, and a message travels among subscribers alone.

The study that names it leaves it open (Kademlia beneath, one of four systems compared); here it means:
- Who subscribes looks up the k nodes nearest to the topic's hash, its registrars, and is in force when all have answered or
  failed and one has it (REGISTER). It registers again each `refresh_every`, wherever the nearest are by then; without that it
  is forgotten.
- Who publishes asks some registrars for the subscribers (ASK), and is told of changes for a while (UPDATE), so that the next
  message needs no question.
- A message goes by a tree that its sender cuts on the way: the subscribers still to be reached are sorted into buckets of the
  XOR space, as seen from the sender; one of each bucket gets the message and the rest of its bucket (DELEGATE), and does
  the same with it. So only subscribers carry it, each once, in about log2(n) steps.
- A delegate says at once that it has it (GOT), and when all of its part is done (DONE). Who has not said GOT within `slow`, or
  is lost before DONE, is passed over: another one of the bucket gets the rest. Copies that meet by that are known by their ids.

Below it needs an overlay with `lookup`; neighbours it needs none. Above it promises each message once while its id is remembered.
Bounds: TOPICS registered here, SUBSCRIBERS each, LEASES each; TASKS under way, `held_bytes` of messages for them; RECENT lists of
topics published to; the ids in `pubsub.seen`. Lists of others are refused beyond SUBSCRIBERS.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta

from overlays.claims import check_infos
from overlays.kademlia.space import BITS, place_of, place_of_key, topic_key
from overlays.overlay import Overlay
from peer.errors import PeerError, UsageError
from peer.machine import MS, SECOND, Env, Lane, Link, Message, MessageId, Peer, PeerInfo, Reply, Timer, answers, upon
from peer.trace import DUPLICATE
from pubsub.message import Attributes, Interest, OrderHeader, Publication, weight
from pubsub.router import App, Role, Router
from pubsub.seen import Seen

TOPICS = 4_096
SUBSCRIBERS = 4_096
LEASES = 64
TASKS = 1_024
LISTS = 4  # of one message that validation has not judged yet
LOOKS = 3  # for registrars, `slow` apart, before a message is for oneself alone: a node that just began may know nobody yet
RECENT = 256
SUSPECTS = 1_024

Infos = Annotated[tuple[PeerInfo, ...], Meta(max_length=SUBSCRIBERS)]
Topic = Annotated[str, Meta(max_length=1_024)]


class Register(Message, frozen=True, tag=1):
    topic: Topic
    me: PeerInfo


class Registered(Message, frozen=True, tag=2):
    accepted: bool


class Unregister(Message, frozen=True, tag=3):
    topic: Topic


class Ask(Message, frozen=True, tag=4):
    """`lease`: the asker wants to hear of changes."""

    topic: Topic
    lease: bool


class Subscribers(Message, frozen=True, tag=5):
    """`leased`: for how long changes are told, in microseconds."""

    topic: Topic
    subscribers: Infos
    leased: int


class Update(Message, frozen=True, tag=6):
    topic: Topic
    subscriber: PeerInfo
    joined: bool


class Delegate(Message, frozen=True, tag=0):
    """A publication, spread out, and whom its receiver is to hand it on to."""

    lane: ClassVar[Lane] = Lane.PAYLOAD

    id: MessageId
    topic: str
    data: bytes
    order: OrderHeader | None
    attributes: Attributes
    signature: bytes
    key: bytes
    hops: int
    rest: Infos

    @classmethod
    def of(cls, p: Publication, hops: int, rest: Sequence[PeerInfo]) -> Delegate:
        return cls(p.id, p.topic, p.data, p.order, p.attributes, p.signature, p.key, hops, tuple(rest))

    def publication(self) -> Publication:
        return Publication(self.id, self.topic, self.data, self.order, self.attributes, self.signature, self.key)


class Got(Message, frozen=True, tag=7):
    id: MessageId


class Done(Message, frozen=True, tag=8):
    id: MessageId


@dataclass(frozen=True)
class KadPubSubConfig:
    """All are guesses; times in microseconds."""

    refresh_every: int = 60 * SECOND  # a registration outlives two that were lost
    expiry: int = 180 * SECOND
    lease: int = 60 * SECOND
    asks: int = 3  # registrars that are asked for subscribers: one that is new there may not know all
    slow: int = SECOND
    patience: int = 10 * SECOND
    held_bytes: int = 16 << 20

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            least, unit = (1, "") if name in ("asks", "held_bytes") else (MS, " microseconds")
            if getattr(self, name) < least:
                raise UsageError(f"kadpubsub: {name} is {getattr(self, name)}; it must be at least {least}{unit}")
        if self.expiry < self.refresh_every:
            raise UsageError(f"kadpubsub: expiry is {self.expiry}; it must be at least refresh_every, {self.refresh_every}")


DEFAULTS = KadPubSubConfig()


class Registry:
    """What a registrar keeps of a topic."""

    __slots__ = ("leases", "subscribers")

    def __init__(self) -> None:
        self.subscribers: dict[Peer, tuple[int, PeerInfo]] = {}  # until when
        self.leases: dict[Peer, int] = {}


class Members:
    """What a publisher knows of a topic: its subscribers, until when it hears of changes, and what waits for the first answer."""

    __slots__ = ("infos", "timer", "until", "waiting")

    def __init__(self) -> None:
        self.timer: Timer | None = None
        self.infos: dict[Peer, PeerInfo] = {}
        self.until = 0
        self.waiting: list[Publication] = []


class Part:
    """What one delegate was given; `again` once it was sent a second time."""

    __slots__ = ("again", "got", "rest", "timer")

    def __init__(self, rest: list[PeerInfo], timer: Timer) -> None:
        self.again = False
        self.rest = rest
        self.timer = timer
        self.got = False


class Task:
    """A message on its way from here: `parts` by delegate, and to whom DONE is owed when there are none left."""

    __slots__ = ("hops", "mine", "owed", "parts", "publication")

    def __init__(self, publication: Publication, hops: int, mine: bool) -> None:
        self.mine = mine
        self.publication = publication
        self.hops = hops
        self.owed: dict[Peer, None] = {}
        self.parts: dict[Peer, Part] = {}

    @property
    def taken(self) -> bool:
        """Every delegate has it, as far as they said."""
        return all(part.got for part in self.parts.values())


class KadPubSub(Router):
    """`entrusted` are lists that came with messages which validation has not judged yet."""

    protocols = ("/weft/kadpubsub/1.0.0",)

    def __init__(
        self, env: Env, overlay: Overlay, app: App, config: KadPubSubConfig = DEFAULTS, role: Role = Role.PEER
    ) -> None:
        super().__init__(env, overlay, app, role)
        self.config = config
        self.seen = Seen()
        self.place = place_of(env.me)
        self.registries: dict[str, Registry] = {}
        self.members: dict[str, Members] = {}
        self.registrars: dict[str, list[Peer]] = {}  # of the topics joined here
        self.refreshes: dict[str, Timer] = {}
        self.entrusted: dict[MessageId, list[tuple[Peer, Delegate]]] = {}
        self.tasks: dict[MessageId, Task] = {}
        self.bytes = 0  # of the messages of tasks
        self.links: dict[Peer, int] = {}
        self.suspects: dict[Peer, None] = {}  # did not answer last time; chosen last, and given nothing to hand on
        self.sweeper: Timer | None = None

    def start(self) -> None:
        self.sweeper = self.env.after(self.config.expiry, self._sweep)

    def stop(self) -> None:
        timers = [*self.refreshes.values(), *([self.sweeper] if self.sweeper else ())]
        timers += [part.timer for task in self.tasks.values() for part in task.parts.values()]
        timers += [known.timer for known in self.members.values() if known.timer is not None]
        for timer in timers:
            timer.cancel()
        for topic, registrars in self.registrars.items():
            self.env.send_all(tuple(registrars), Unregister(topic))

    # Subscribing.

    def _join(self, interest: Interest) -> None:
        if not isinstance(interest, str):
            del self.interests[interest]
            self._sort_out_filters()
            raise UsageError("kadpubsub finds subscribers by topic; a filter needs a stack that reaches all, as hyparview/flood")
        self._register(interest, first=True)

    def _leave(self, interest: Interest) -> None:
        assert isinstance(interest, str)
        if (timer := self.refreshes.pop(interest, None)) is not None:
            timer.cancel()
        self.env.send_all(tuple(self.registrars.pop(interest, ())), Unregister(interest))
        self._unregistered(interest, self.env.me)

    def _register(self, topic: str, first: bool = False) -> None:
        if topic in self.interests:
            self.overlay.lookup(topic_key(topic), lambda nearest: self._register_at(topic, nearest, first))

    def _register_at(self, topic: str, nearest: Sequence[PeerInfo], first: bool) -> None:
        if topic not in self.interests:
            return
        me = self.env.info(self.env.me)
        if self._is_near(topic, nearest):
            self._registered(topic, me)
        registration = Registration(self, topic, len(nearest), first)
        for info in nearest:
            self._learn(info)
            self.env.request(info.peer, Register(topic, me), self.config.patience, registration.yes, registration.no)
        registration.settle()
        pause = self.config.refresh_every if nearest else self.config.slow
        self.refreshes[topic] = self.env.after(pause, self._register, topic, first and not nearest)

    def _is_near(self, topic: str, nearest: Sequence[PeerInfo]) -> bool:
        """Whether this node is one of the topic's registrars itself."""
        place = place_of_topic(topic)
        return not nearest or self.place ^ place < place_of(nearest[-1].peer) ^ place

    @answers(Register, Registered)
    def register(self, sender: Peer, msg: Register, reply: Reply) -> None:
        self._check((msg.me,))
        if msg.me.peer != sender:
            raise PeerError("a peer registers another")
        self._learn(msg.me)
        reply(Registered(self._registered(msg.topic, msg.me)))

    def _registered(self, topic: str, info: PeerInfo) -> bool:
        registry = self.registries.get(topic)
        if registry is None:
            if len(self.registries) >= TOPICS:
                return False
            registry = self.registries[topic] = Registry()
        fresh = info.peer not in registry.subscribers
        if fresh and len(registry.subscribers) >= SUBSCRIBERS:
            return False
        registry.subscribers[info.peer] = (self.env.now() + self.config.expiry, info)
        if fresh:
            self._tell_changes(topic, registry, Update(topic, info, True))
        return True

    @upon(Unregister)
    def unregister(self, sender: Peer, msg: Unregister) -> None:
        self._unregistered(msg.topic, sender)

    def _unregistered(self, topic: str, peer: Peer) -> None:
        registry = self.registries.get(topic)
        if registry is not None and registry.subscribers.pop(peer, None) is not None:
            self._tell_changes(topic, registry, Update(topic, PeerInfo(peer), False))

    def _tell_changes(self, topic: str, registry: Registry, update: Update) -> None:
        now = self.env.now()
        registry.leases = {peer: until for peer, until in registry.leases.items() if until > now}
        self.env.send_all(tuple(registry.leases), update)

    def _sweep(self) -> None:
        now = self.env.now()
        self.sweeper = self.env.after(self.config.expiry, self._sweep)
        for topic, registry in list(self.registries.items()):
            registry.subscribers = {peer: entry for peer, entry in registry.subscribers.items() if entry[0] > now}
            if not registry.subscribers and not any(until > now for until in registry.leases.values()):
                del self.registries[topic]
        self.members = {topic: known for topic, known in self.members.items() if known.until > now or known.waiting}

    # Who subscribes.

    @answers(Ask, Subscribers)
    def ask(self, sender: Peer, msg: Ask, reply: Reply) -> None:
        now, registry = self.env.now(), self.registries.get(msg.topic)
        if registry is None and msg.lease and len(self.registries) < TOPICS:
            registry = self.registries[msg.topic] = Registry()
        leased = 0
        if registry is not None and msg.lease and (sender in registry.leases or len(registry.leases) < LEASES):
            leased = self.config.lease
            registry.leases[sender] = now + leased
        known = registry.subscribers if registry is not None else {}
        reply(Subscribers(msg.topic, tuple(info for until, info in known.values() if until > now), leased))

    @upon(Update)
    def update(self, sender: Peer, msg: Update) -> None:
        self._check((msg.subscriber,))
        known = self.members.get(msg.topic)
        if known is not None and known.until > self.env.now():
            if msg.joined and len(known.infos) < SUBSCRIBERS:
                known.infos[msg.subscriber.peer] = msg.subscriber
            elif not msg.joined:
                known.infos.pop(msg.subscriber.peer, None)

    def _with_members(self, publication: Publication) -> None:
        """Spread it once the subscribers are known; if they are, at once."""
        topic, now = publication.topic, self.env.now()
        known = self.members.get(topic)
        if known is None:
            while len(self.members) >= RECENT:
                del self.members[next(iter(self.members))]
            known = self.members[topic] = Members()
        if known.until > now:
            self._begin(publication, known.infos.values())
            return
        known.waiting.append(publication)
        if len(known.waiting) == 1:
            self._look_for_registrars(topic, known, LOOKS)

    def _look_for_registrars(self, topic: str, known: Members, looks: int) -> None:
        self.overlay.lookup(topic_key(topic), lambda nearest: self._ask_registrars(topic, known, looks - 1, nearest))

    def _ask_registrars(self, topic: str, known: Members, looks: int, nearest: Sequence[PeerInfo]) -> None:
        if not nearest and looks:
            known.timer = self.env.after(self.config.slow, self._look_for_registrars, topic, known, looks)
            return
        for info in nearest:
            self._learn(info)
        inquiry = Inquiry(self, topic, known, [info.peer for info in nearest])
        if self._is_near(topic, nearest) and (registry := self.registries.get(topic)) is not None:
            inquiry.found |= {peer: info for peer, (_, info) in registry.subscribers.items()}
        inquiry.go_on()

    def _answered(self, known: Members, found: dict[Peer, PeerInfo], leased: int) -> None:
        known.infos = found
        known.until = self.env.now() + leased
        waiting, known.waiting = known.waiting, []
        for publication in waiting:
            self._begin(publication, found.values())

    # The tree.

    def unplaced(self) -> int:
        waiting = sum(weight(publication) for known in self.members.values() for publication in known.waiting)
        return waiting + sum(weight(task.publication) for task in self.tasks.values() if task.mine and not task.taken)

    def _spread(self, publication: Publication) -> None:
        self.seen.note(publication.id, self.env.now())
        self._with_members(publication)

    def _begin(self, publication: Publication, subscribers: Iterable[PeerInfo]) -> None:
        self._hand_on(self._task(publication, 0), subscribers)

    @upon(Delegate)
    def delegate(self, sender: Peer, m: Delegate) -> None:
        self._check(m.rest)
        if m.hops < 0:
            raise PeerError(f"a message of {m.hops} hops")
        if m.rest:
            self.env.send(sender, Got(m.id))
        if m.id in self.seen or not self.seen.note(m.id, self.env.now()):
            self._again(sender, m)
        else:
            self._entrust(sender, m)
            self._received(sender, m.publication(), m.hops + 1)

    def _again(self, sender: Peer, m: Delegate) -> None:
        """The list may be another. The message is the one that was accepted here: a second one may be forged."""
        if self.tracing:
            self.trace(DUPLICATE, m.topic, m.id, sender)
        task = self.tasks.get(m.id)
        if task is not None:
            task.owed[sender] = None
            self._hand_on(task, m.rest)
        elif m.id in self.entrusted:
            self._entrust(sender, m)
        elif not m.rest:
            self.env.send(sender, Done(m.id))

    def _entrust(self, sender: Peer, m: Delegate) -> None:
        if m.id in self.entrusted or len(self.entrusted) < TASKS:
            lists = self.entrusted.setdefault(m.id, [])
            if len(lists) < LISTS:
                lists.append((sender, m))

    def _forward(self, publication: Publication, sender: Peer) -> None:
        lists = self.entrusted.pop(publication.id, [])
        task = self._task(publication, min((m.hops for _, m in lists), default=0) + 1)
        task.owed |= dict.fromkeys(peer for peer, _ in lists)
        self._hand_on(task, [info for _, m in lists for info in m.rest])

    def _forged(self, publication: Publication) -> None:
        self.seen.discard(publication.id)

    def _refused(self, publication: Publication) -> None:
        self.entrusted.pop(publication.id, None)

    def _task(self, publication: Publication, hops: int) -> Task:
        while self.tasks and (len(self.tasks) >= TASKS or self.bytes > self.config.held_bytes):
            self._forget(next(iter(self.tasks.values())))
        self.bytes += weight(publication)
        task = self.tasks[publication.id] = Task(publication, hops, publication.id.source == self.env.me)
        return task

    def _hand_on(self, task: Task, subscribers: Iterable[PeerInfo]) -> None:
        """Sort into buckets, and give each to one of it; those that did not answer lately get it for themselves alone."""
        buckets: dict[int, list[PeerInfo]] = {}
        for info in dict.fromkeys(subscribers):
            if info.peer == self.env.me or info.peer in task.parts:
                continue
            if info.peer in self.suspects:
                self._give(task, info, [])
            else:
                buckets.setdefault(BITS - (place_of(info.peer) ^ self.place).bit_length(), []).append(info)
        for bucket in buckets.values():
            self._give_bucket(task, bucket)
        self._finish(task)

    def _give_bucket(self, task: Task, bucket: list[PeerInfo]) -> None:
        linked = [info for info in bucket if info.peer in self.links]
        chosen = self.env.rng.choice(linked or bucket)
        self._give(task, chosen, [info for info in bucket if info.peer != chosen.peer])

    def _give(self, task: Task, info: PeerInfo, rest: list[PeerInfo]) -> None:
        self._learn(info)
        timer = self.env.after(self.config.slow if rest else 3 * self.config.slow, self._silent, task, info.peer)
        task.parts[info.peer] = Part(rest, timer)
        self.env.send(info.peer, Delegate.of(task.publication, task.hops, rest))

    @upon(Got)
    def got(self, sender: Peer, msg: Got) -> None:
        task = self.tasks.get(msg.id)
        part = task.parts.get(sender) if task is not None else None
        self.suspects.pop(sender, None)
        if task is not None and part is not None and not part.got:
            part.got = True
            part.timer.cancel()
            part.timer = self.env.after(3 * self.config.patience, self._silent, task, sender)

    @upon(Done)
    def done(self, sender: Peer, msg: Done) -> None:
        task = self.tasks.get(msg.id)
        self.suspects.pop(sender, None)
        if task is not None and (part := task.parts.pop(sender, None)) is not None:
            part.timer.cancel()
            self._finish(task)

    def _silent(self, task: Task, peer: Peer) -> None:
        """Its rest goes to another. If it still does not say that it has the message, that is sent once more."""
        part = task.parts.get(peer)
        if part is None or self.tasks.get(task.publication.id) is not task:
            return
        rest, part.rest = part.rest, []
        self._suspect(peer)
        if part.got or part.again:
            del task.parts[peer]
        else:
            part.again = not rest
            part.timer = self.env.after(self.config.patience if part.again else 3 * self.config.slow, self._silent, task, peer)
            if part.again:
                self.env.send(peer, Delegate.of(task.publication, task.hops, []))
        self._hand_on(task, rest)

    def _failed(self, peer: Peer) -> None:
        for task in [task for task in self.tasks.values() if peer in task.parts]:
            part = task.parts.pop(peer)
            part.timer.cancel()
            self._suspect(peer)
            self._hand_on(task, part.rest)

    def _suspect(self, peer: Peer) -> None:
        if len(self.suspects) >= SUSPECTS:
            del self.suspects[next(iter(self.suspects))]
        self.suspects[peer] = None

    def _finish(self, task: Task) -> None:
        if not task.parts and self.tasks.get(task.publication.id) is task:
            self._forget(task)
            self.env.send_all(tuple(task.owed), Done(task.publication.id))

    def _forget(self, task: Task) -> None:
        del self.tasks[task.publication.id]
        self.bytes -= weight(task.publication)
        for part in task.parts.values():
            part.timer.cancel()

    # Links.

    def link_up(self, peer: Peer, link: Link) -> None:
        self.links[peer] = link.incarnation
        self.suspects.pop(peer, None)

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        if incarnation == 0 or self.links.get(peer) == incarnation:
            self.links.pop(peer, None)
            self._failed(peer)

    def dropped(self, peer: Peer, msg: Message) -> None:
        if isinstance(msg, Delegate):
            self._failed(peer)

    # The border.

    def _check(self, infos: Sequence[PeerInfo]) -> None:
        check_infos(self.env.me, infos)

    def _learn(self, info: PeerInfo) -> None:
        if info.addresses or info.record is not None:
            self.env.learn(info)


class Registration:
    """Is in force when all that were asked have answered or failed, if any has it."""

    def __init__(self, router: KadPubSub, topic: str, left: int, first: bool) -> None:
        self._router = router
        self._topic = topic
        self._left = left + 1
        self._first = first
        self._taken: list[Peer] = []

    def yes(self, peer: Peer, msg: Message) -> None:
        if isinstance(msg, Registered) and msg.accepted:
            self._taken.append(peer)
        self.settle()

    def no(self, peer: Peer, reason: str) -> None:
        self.settle()

    def settle(self) -> None:
        self._left -= 1
        router, topic = self._router, self._topic
        if self._left or topic not in router.interests:
            return
        router.registrars[topic] = self._taken
        if self._first and (self._taken or topic in router.registries):
            router._in_force(topic)


class Inquiry:
    """Asks registrars, nearest first and some at a time, until enough have told whom they know."""

    def __init__(self, router: KadPubSub, topic: str, known: Members, registrars: list[Peer]) -> None:
        self.found: dict[Peer, PeerInfo] = {}
        self._router = router
        self._topic = topic
        self._known = known
        self._left = registrars
        self._open = 0
        self._heard = 0
        self._leased = router.config.lease

    def go_on(self) -> None:
        config = self._router.config
        while self._left and self._open + self._heard < config.asks:
            self._open += 1
            self._router.env.request(self._left.pop(0), Ask(self._topic, True), 3 * config.slow, self._yes, self._no)
        if not self._open:
            self._router._answered(self._known, self.found, self._leased if self._heard else 0)

    def _yes(self, peer: Peer, msg: Message) -> None:
        self._open -= 1
        try:
            if isinstance(msg, Subscribers) and msg.topic == self._topic:
                self._router._check(msg.subscribers)
                self._heard += 1
                self._leased = min(self._leased, msg.leased)
                self.found |= {info.peer: info for info in msg.subscribers}
        finally:
            self.go_on()  # whatever one of them says, the others are asked

    def _no(self, peer: Peer, reason: str) -> None:
        self._open -= 1
        self.go_on()


def place_of_topic(topic: str) -> int:
    return place_of_key(topic_key(topic))
