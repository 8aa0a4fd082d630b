"""A subscriber's side: it registers at the k nodes nearest to its topic.

A subscription is in force when all of them have answered or failed, and one has it. It registers again each `refresh_every`,
wherever the nearest are by then; without that it is forgotten.
Bounds: one timer, and one request a registrar, for each topic joined here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from overlays.kademlia.space import topic_key
from overlays.overlay import Overlay
from peer.machine import Env, Message, Peer, PeerInfo, Timer
from pubsub.kadpubsub.config import KadPubSubConfig
from pubsub.kadpubsub.messages import Register, Registered, Unregister, learn
from pubsub.kadpubsub.registry import Registries, is_registrar


class Registrations:
    """The topics that are joined here; `in_force` is called once for each."""

    def __init__(
        self, env: Env, config: KadPubSubConfig, overlay: Overlay, registries: Registries, in_force: Callable[[str], None]
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

    def stop(self) -> None:
        for registration in self.topics.values():
            registration.end()


class Registration:
    """Of one topic, from its join to its leave; `registrars` are those that took it."""

    def __init__(self, all_: Registrations, topic: str) -> None:
        self._all = all_
        self._topic = topic
        self._timer: Timer | None = None
        self._in_force = False
        self._ended = False
        self.registrars: list[Peer] = []

    def look(self) -> None:
        self._all.overlay.lookup(topic_key(self._topic), self._found)

    def end(self) -> None:
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        self._all.env.send_all(tuple(self.registrars), Unregister(self._topic))

    def settle(self, taken: list[Peer]) -> None:
        """All have answered or failed."""
        if self._ended:
            return
        self.registrars = taken
        if not self._in_force and (taken or self._topic in self._all.registries.topics):
            self._in_force = True
            self._all.in_force(self._topic)

    def _found(self, nearest: Sequence[PeerInfo]) -> None:
        if self._ended:
            return
        env, config = self._all.env, self._all.config
        me = env.info(env.me)
        if is_registrar(env.me, self._topic, nearest):
            self._all.registries.add(self._topic, me)
        turn = Round(self, len(nearest))
        for info in nearest:
            learn(env, info)
            env.request(info.peer, Register(self._topic, me), config.patience, turn.yes, turn.no)
        turn.settled()
        self._timer = env.after(config.refresh_every if nearest else config.slow, self.look)


class Round:
    """One time that all are asked."""

    def __init__(self, registration: Registration, left: int) -> None:
        self._registration = registration
        self._left = left + 1
        self._taken: list[Peer] = []

    def yes(self, peer: Peer, msg: Message) -> None:
        if isinstance(msg, Registered) and msg.accepted:
            self._taken.append(peer)
        self.settled()

    def no(self, peer: Peer, reason: str) -> None:
        self.settled()

    def settled(self) -> None:
        self._left -= 1
        if not self._left:
            self._registration.settle(self._taken)
