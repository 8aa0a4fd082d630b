"""A registrar's side: the subscribers of the topics that are near to it, and who is to hear of changes.

A registration ends by itself after `expiry`. Whoever asks has a lease: until it ends, UPDATE tells who came and who left.
Bounds: TOPICS, SUBSCRIBERS of one, LEASES of one.
"""

from __future__ import annotations

from collections.abc import Sequence

from overlays.kademlia.space import place_of, place_of_key, topic_key
from peer.machine import Env, Peer, PeerInfo
from pubsub.kadpubsub.config import KadPubSubConfig
from pubsub.kadpubsub.messages import SUBSCRIBERS, Update, lists

TOPICS = 4_096
LEASES = 64


class Registry:
    """What is kept of one topic; all of it until some moment."""

    __slots__ = ("leases", "subscribers")

    def __init__(self) -> None:
        self.subscribers: dict[Peer, tuple[int, PeerInfo]] = {}
        self.leases: dict[Peer, int] = {}


class Registries:
    def __init__(self, env: Env, config: KadPubSubConfig) -> None:
        self._env = env
        self._config = config
        self.topics: dict[str, Registry] = {}

    def add(self, topic: str, info: PeerInfo) -> bool:
        registry = self._registry(topic)
        if registry is None:
            return False
        fresh = info.peer not in registry.subscribers
        if fresh and len(registry.subscribers) >= SUBSCRIBERS:
            return False
        registry.subscribers[info.peer] = (self._env.now() + self._config.expiry, info)
        if fresh:
            self._tell(registry, Update(topic, info, True))
        return True

    def remove(self, topic: str, peer: Peer) -> None:
        registry = self.topics.get(topic)
        if registry is not None and registry.subscribers.pop(peer, None) is not None:
            self._tell(registry, Update(topic, PeerInfo(peer), False))

    def lease(self, topic: str, asker: Peer) -> int:
        """For how long it will hear of changes, in microseconds."""
        registry = self._registry(topic)
        if registry is None or (asker not in registry.leases and len(registry.leases) >= LEASES):
            return 0
        registry.leases[asker] = self._env.now() + self._config.lease
        return self._config.lease

    def subscribers(self, topic: str) -> list[PeerInfo]:
        registry, now = self.topics.get(topic), self._env.now()
        return [info for until, info in registry.subscribers.values() if until > now] if registry is not None else []

    def page(self, topic: str, after: Peer | None) -> tuple[list[PeerInfo], bool]:
        """As many of them above that id as fit a list, and whether there are more: who comes or goes meanwhile shifts no page."""
        left = [info for info in self.subscribers(topic) if after is None or info.peer > after]  # type: ignore[operator]
        left.sort(key=lambda info: info.peer)
        first = next(lists(left), [])
        return first, len(first) < len(left)

    def sweep(self) -> None:
        now = self._env.now()
        for topic, registry in list(self.topics.items()):
            registry.subscribers = {peer: entry for peer, entry in registry.subscribers.items() if entry[0] > now}
            if not registry.subscribers and not any(until > now for until in registry.leases.values()):
                del self.topics[topic]

    def _registry(self, topic: str) -> Registry | None:
        """A new one, if there is none and room for it."""
        registry = self.topics.get(topic)
        if registry is None and len(self.topics) < TOPICS:
            registry = self.topics[topic] = Registry()
        return registry

    def _tell(self, registry: Registry, update: Update) -> None:
        now = self._env.now()
        registry.leases = {peer: until for peer, until in registry.leases.items() if until > now}
        self._env.send_all(tuple(registry.leases), update)


def is_registrar(me: Peer, topic: str, nearest: Sequence[PeerInfo]) -> bool:
    """Whether a node that found these nearest to a topic is one of them itself."""
    place = place_of_key(topic_key(topic))
    return not nearest or place_of(me) ^ place < place_of(nearest[-1].peer) ^ place
