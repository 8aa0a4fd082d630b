"""A subscriber's side: it registers at the k nodes nearest to its topic.

A subscription is in force when all of them have answered or failed, and one has it. It registers again each `refresh_every`,
wherever the nearest are by then; without that it is forgotten. When none of them takes it, the trace says so once, and it is
tried again, first after `slow` and then after twice as long each time. One that finds nobody, LOOKS times, is its own registrar.
When a registrar tells who is nearest by now (`vicinity`), it registers there at once.
Bounds: one timer, and one request a registrar, for each topic joined here; MOST registrars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from libweft.overlays.claims import learn, told
from libweft.overlays.kademlia.space import place_of, place_of_key, topic_key
from libweft.overlays.powers import Lookups
from libweft.peer.machine import Env, Message, Peer, PeerInfo, Timer
from libweft.peer.trace.kinds import REJECT
from libweft.pubsub.kadpubsub.config import LOOKS, KadPubSubConfig
from libweft.pubsub.kadpubsub.messages import Nearest, Register, Registered, Unregister
from libweft.pubsub.kadpubsub.registry import Registries, is_registrar

MOST = 256  # are asked from one refresh to the next: k, and those who come near, were the network to grow a thousandfold
ASKS = 3  # of one registrar, each with twice the patience of the one before
DOUBLINGS = 16  # of the delay after which it is tried again; `refresh_every` is the longest


class Registrations:
    """The topics that are joined here; `in_force` is called once for each."""

    def __init__(
        self, env: Env, config: KadPubSubConfig, overlay: Lookups, registries: Registries, in_force: Callable[[str], None]
    ) -> None:
        self.env = env
        self.config = config
        self.overlay = overlay
        self.registries = registries
        self.in_force = in_force
        self.topics: dict[str, Registration] = {}

    def join(self, topic: str) -> None:
        registration = self.topics[topic] = Registration(self, topic)
        registration.look()

    def leave(self, topic: str) -> None:
        self.topics.pop(topic).end()
        self.registries.remove(topic, self.env.me)

    def nearest(self, topic: str) -> Sequence[PeerInfo]:
        """The nodes nearest to a topic that is joined here, as of its last lookup."""
        registration = self.topics.get(topic)
        return registration.nearest if registration is not None else ()

    def nearer(self, sender: Peer, msg: Nearest) -> None:
        registration = self.topics.get(msg.topic)
        if registration is not None:
            registration.hear(sender, msg.nearest)

    def stop(self) -> None:
        for registration in self.topics.values():
            registration.end()


class Registration:
    """Of one topic, from its join to its leave; `registrars` are those that took it."""

    def __init__(self, all_: Registrations, topic: str) -> None:
        self._all = all_
        self._topic = topic
        self._timer: Timer | None = None
        self._looks = 0
        self._round: Round | None = None
        self._size = 0  # of `nearest`
        self._untaken = 0  # times in a row that none took it
        self._in_force = False
        self._near = False
        self.ended = False
        self.nearest: Sequence[PeerInfo] = ()
        self.registrars: list[Peer] = []

    def look(self) -> None:
        self._looks += 1
        self._all.overlay.lookup(topic_key(self._topic), self._found)

    def end(self) -> None:
        self.ended = True
        if self._timer is not None:
            self._timer.cancel()
        self._all.env.send_all(tuple(self.registrars), Unregister(self._topic))

    def hear(self, sender: Peer, named: Sequence[PeerInfo]) -> None:
        """A registrar names those that it knows nearest: register where it was not yet, too.

        It is believed as an answer to a lookup is: who is named counts as near when it has answered.
        """
        if self._round is not None and sender in self._round.asked:
            self._size = max(self._size, len(named))
            self._round.ask(self._nearest_with(info for info in named if info.peer != self._all.env.me))

    def _nearest_with(self, infos: Iterable[PeerInfo]) -> list[PeerInfo]:
        place = place_of_key(topic_key(self._topic))
        found = {info.peer: info for info in (*infos, *self.nearest)}
        return sorted(found.values(), key=lambda info: place_of(info.peer) ^ place)[: self._size]

    def settle(self, taken: Sequence[PeerInfo]) -> None:
        """All have answered or failed."""
        self.registrars = [info.peer for info in taken]
        self.nearest = self._nearest_with(taken)
        if taken or self._near:
            self._untaken = 0
            self._comes_into_force()
        else:
            self._try_again()

    def _try_again(self) -> None:
        if not self._untaken:
            self._all.env.trace(REJECT, self._topic, reason="no registrar takes the subscription")
        config = self._all.config
        delay = min(config.slow << min(self._untaken, DOUBLINGS), config.refresh_every)
        self._untaken += 1
        self._wait(delay)

    def _wait(self, delay: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._all.env.after(delay, self.look)

    def _found(self, nearest: Sequence[PeerInfo]) -> None:
        if self.ended:
            return
        self.nearest, self._size = nearest, len(nearest)
        env, config = self._all.env, self._all.config
        me = told(env, env.me)
        self._near = is_registrar(env.me, self._topic, nearest) and self._all.registries.add(self._topic, me)
        self._wait(config.refresh_every if nearest else config.slow)
        if nearest:
            self._round = Round(self, env, config, Register(self._topic, me))
            self._round.ask(nearest)
        elif self._looks >= LOOKS:
            self._comes_into_force()  # nobody else is there, as far as can be known

    def _comes_into_force(self) -> None:
        if not self._in_force:
            self._in_force = True
            self._all.in_force(self._topic)


class Round:
    """One time that all are asked, and after that those who come near.

    Who does not answer is asked again and given longer: question or answer may be lost.
    """

    def __init__(self, registration: Registration, env: Env, config: KadPubSubConfig, question: Register) -> None:
        self._registration = registration
        self._env = env
        self._slow = config.slow
        self._question = question
        self.asked: dict[Peer, PeerInfo] = {}
        self._left: dict[Peer, int] = {}  # how often each was asked
        self._taken: list[PeerInfo] = []

    def ask(self, infos: Sequence[PeerInfo]) -> None:
        for info in infos:
            if info.peer not in self.asked and len(self.asked) < MOST:
                self.asked[info.peer] = info
                self._left[info.peer] = 0
                learn(self._env, info)
                self._ask(info.peer)

    def _ask(self, peer: Peer) -> None:
        self._env.request(peer, self._question, self._slow << self._left[peer], self._yes, self._no)
        self._left[peer] += 1

    def _yes(self, peer: Peer, msg: Message) -> None:
        if self._registration.ended:
            self._env.send(peer, Unregister(self._question.topic))
            return
        if isinstance(msg, Registered) and msg.accepted:
            self._taken.append(self.asked[peer])
        self._settled(peer)

    def _no(self, peer: Peer, reason: str) -> None:
        if self._registration.ended:
            return
        if self._left[peer] < ASKS:
            self._ask(peer)
        else:
            self._settled(peer)

    def _settled(self, peer: Peer) -> None:
        del self._left[peer]
        if not self._left:
            self._registration.settle(self._taken)
