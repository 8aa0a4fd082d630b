"""A publisher's side: it asks some registrars who subscribes.

It is told of changes for a while, so that the next message needs no question.

Bounds: RECENT topics, SUBSCRIBERS of one; what waits for an answer is the publisher's own, and counted (`waiting`). While some
wait for each of these topics, a message of a further one is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from libweft.overlays.claims import check_infos, learn
from libweft.overlays.kademlia.space import topic_key
from libweft.peer.machine import Env, Message, Peer, PeerInfo, Timer
from libweft.pubsub.kadpubsub.config import LOOKS, KadPubSubConfig
from libweft.pubsub.kadpubsub.messages import SUBSCRIBERS, Ask, Nearest, Subscribers, Update
from libweft.pubsub.kadpubsub.registration import Registrations
from libweft.pubsub.kadpubsub.registry import is_registrar
from libweft.pubsub.message import Publication, weight

RECENT = 256


class Members:
    """What is known of a topic: its subscribers, until when `tellers` tell of changes, and what waits for the first answer."""

    __slots__ = ("infos", "tellers", "timer", "until", "waiting")

    def __init__(self) -> None:
        self.timer: Timer | None = None
        self.infos: dict[Peer, PeerInfo] = {}
        self.tellers: set[Peer] = set()
        self.until = 0
        self.waiting: list[Publication] = []

    def add(self, infos: Iterable[PeerInfo]) -> None:
        """Those that there is room for: what registrars know may be more when it is put together."""
        for info in infos:
            if info.peer in self.infos or len(self.infos) < SUBSCRIBERS:
                self.infos[info.peer] = info


class Audience:
    """Topics that were published to lately; `begin` gets each message with its subscribers as soon as they are known.

    `lost` gets those that there is no room for.
    """

    def __init__(
        self,
        env: Env,
        config: KadPubSubConfig,
        registrations: Registrations,
        begin: Callable[[Publication, Iterable[PeerInfo]], None],
        lost: Callable[[Publication], None],
    ) -> None:
        self.env = env
        self.config = config
        self.topics: dict[str, Members] = {}
        self._registrations = registrations
        self._begin = begin
        self._lost = lost

    def stop(self) -> None:
        for known in self.topics.values():
            if known.timer is not None:
                known.timer.cancel()

    def waiting(self) -> int:
        """Bytes of messages whose subscribers are not known yet."""
        return sum(weight(publication) for known in self.topics.values() for publication in known.waiting)

    def sweep(self) -> None:
        now = self.env.now()
        self.topics = {topic: known for topic, known in self.topics.items() if known.until > now or known.waiting}

    def reach(self, publication: Publication) -> None:
        topic, now = publication.topic, self.env.now()
        known = self.topics.get(topic) or self._members(topic)
        if known is None:
            self._lost(publication)
            return
        if known.until > now:
            self._begin(publication, known.infos.values())
            return
        known.waiting.append(publication)
        if len(known.waiting) == 1:
            self._inquire(topic, known)

    def _members(self, topic: str) -> Members | None:
        """In the place of the oldest for which nothing waits, if all are taken."""
        if len(self.topics) >= RECENT:
            idle = next((other for other, known in self.topics.items() if not known.waiting), None)
            if idle is None:
                return None
            del self.topics[idle]
        self.topics[topic] = Members()
        return self.topics[topic]

    def update(self, sender: Peer, msg: Update) -> None:
        """Also while others are still asked: who has answered will not tell it a second time."""
        known = self.topics.get(msg.topic)
        if known is not None and sender in known.tellers and (known.until > self.env.now() or known.waiting):
            if msg.joined:
                known.add((msg.subscriber,))
            else:
                known.infos.pop(msg.subscriber.peer, None)

    def nearer(self, sender: Peer, msg: Nearest) -> None:
        """Of those that it would ask now, one has told nothing: the next message asks anew."""
        known = self.topics.get(msg.topic)
        if known is not None and sender in known.tellers:
            asked = [info.peer for info in msg.nearest if info.peer != self.env.me][: self.config.asks]
            if not known.tellers.issuperset(asked):
                known.until = 0

    def _inquire(self, topic: str, known: Members) -> None:
        """Who subscribes itself knows the registrars, and needs no lookup unless too few of them are left."""
        known.infos, known.tellers = {}, set()
        nearest = self._registrations.nearest(topic)
        if not nearest:
            self._look(topic, known, LOOKS)
            return

        def over(heard: int, leased: int) -> None:
            if heard < min(self.config.asks, len(nearest)):
                self._look(topic, known, LOOKS)
            else:
                self._answered(known, leased)

        self._ask(topic, known, nearest, over)

    def _look(self, topic: str, known: Members, looks: int) -> None:
        self._registrations.overlay.lookup(topic_key(topic), lambda nearest: self._found(topic, known, looks - 1, nearest))

    def _found(self, topic: str, known: Members, looks: int, nearest: Sequence[PeerInfo]) -> None:
        if not nearest and looks:
            known.timer = self.env.after(self.config.slow, self._look, topic, known, looks)
            return
        for info in nearest:
            learn(self.env, info)
        self._ask(topic, known, nearest, lambda heard, leased: self._answered(known, leased))

    def _ask(self, topic: str, known: Members, nearest: Sequence[PeerInfo], over: Callable[[int, int], None]) -> None:
        if is_registrar(self.env.me, topic, nearest):
            known.add(self._registrations.registries.subscribers(topic))
        Inquiry(self.env, self.config, topic, known, [info.peer for info in nearest], over).go_on()

    def _answered(self, known: Members, leased: int) -> None:
        known.until = self.env.now() + leased
        waiting, known.waiting = known.waiting, []
        for publication in waiting:
            self._begin(publication, known.infos.values())


class Inquiry:
    """Asks registrars, nearest first and some at a time, until enough have told whom they know.

    One whose list is long is asked for the rest of it, for `patience` at most: none holds up a message for ever.
    Who does not answer at once is asked again after all others, for question or answer may be lost; mostly it is not needed then.
    `over` hears how many told, and for how long all of them will tell of changes.
    """

    def __init__(
        self,
        env: Env,
        config: KadPubSubConfig,
        topic: str,
        known: Members,
        registrars: Sequence[Peer],
        over: Callable[[int, int], None],
    ) -> None:
        self._env = env
        self._config = config
        self._topic = topic
        self._known = known
        self._over = over
        self._left = list(registrars)
        self._again = dict.fromkeys(registrars)
        self._after: dict[Peer, Peer] = {}  # how far each has told
        self._ends = env.now() + config.patience
        self._heard = 0
        self._open = 0
        self._leased = config.lease

    def go_on(self) -> None:
        while self._left and self._open + self._heard < self._config.asks:
            self._open += 1
            self._ask(self._left.pop(0))
        if not self._open:
            self._over(self._heard, self._leased if self._heard else 0)

    def _ask(self, peer: Peer) -> None:
        self._env.request(peer, Ask(self._topic, self._after.get(peer)), self._config.slow, self._yes, self._no)

    def _yes(self, peer: Peer, msg: Message) -> None:
        more = False
        try:
            if isinstance(msg, Subscribers) and msg.topic == self._topic:
                check_infos(self._env.me, msg.subscribers)
                more = self._takes(peer, msg)
        finally:  # whatever one of them says, the others are asked
            if more:
                self._ask(peer)
            else:
                self._open -= 1
                self.go_on()

    def _takes(self, peer: Peer, msg: Subscribers) -> bool:
        """Whether the rest of its list is to be asked for. Of a list that was not heard to its end no change is waited for."""
        self._known.add(msg.subscribers)
        if msg.leased:
            self._known.tellers.add(peer)
        wanted = msg.more and len(self._known.infos) < SUBSCRIBERS
        more = wanted and self._goes_on(peer, msg.subscribers)
        self._leased = min(self._leased, msg.leased) if more == wanted else 0
        if not more:
            self._heard += 1
        return more

    def _goes_on(self, peer: Peer, infos: Sequence[PeerInfo]) -> bool:
        if not infos or self._env.now() >= self._ends:
            return False
        last, before = infos[-1].peer, self._after.get(peer)
        self._after[peer] = last
        return before is None or last > before  # type: ignore[operator]

    def _no(self, peer: Peer, reason: str) -> None:
        self._open -= 1
        if peer in self._again:
            del self._again[peer]
            self._left.append(peer)
        self.go_on()
