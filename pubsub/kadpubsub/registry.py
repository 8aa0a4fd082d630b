"""A registrar's side: the subscribers of the topics that are near to it, and who is to hear of changes.

A registration ends by itself after `expiry`. Whoever asks has a lease: until it ends, UPDATE tells who came and who left.
Of a topic that nobody subscribes to nothing is kept, and no lease is given.
Bounds: TOPICS, SUBSCRIBERS of one, LEASES of one. When half of TOPICS are taken, no peer keeps more of them than its SHARE, be it
by registrations or by leases: it takes many peers to close a registrar.
"""

from __future__ import annotations

from collections.abc import Sequence

from libweft.overlays.kademlia.space import place_of, place_of_key, topic_key
from libweft.peer.machine import Env, Peer, PeerInfo
from libweft.pubsub.kadpubsub.config import KadPubSubConfig
from libweft.pubsub.kadpubsub.messages import LONGEST, SUBSCRIBERS, Update, lists

TOPICS = 4_096
SHARE = 256
LEASES = 64


class Registry:
    """What is kept of one topic; all of it until some moment."""

    __slots__ = ("leases", "subscribers")

    def __init__(self) -> None:
        self.subscribers: dict[Peer, tuple[int, PeerInfo]] = {}
        self.leases: dict[Peer, int] = {}

    def prune(self, now: int) -> None:
        self.subscribers = {peer: entry for peer, entry in self.subscribers.items() if entry[0] > now}
        self.prune_leases(now)

    def prune_leases(self, now: int) -> None:
        self.leases = {peer: until for peer, until in self.leases.items() if until > now}


class Registries:
    def __init__(self, env: Env, config: KadPubSubConfig) -> None:
        self._env = env
        self._config = config
        self.topics: dict[str, Registry] = {}

    def add(self, topic: str, info: PeerInfo) -> bool:
        registry, now = self._registry(topic, info.peer), self._env.now()
        if registry is None:
            return False
        fresh = info.peer not in registry.subscribers
        if fresh and len(registry.subscribers) >= SUBSCRIBERS:
            registry.prune(now)
            if len(registry.subscribers) >= SUBSCRIBERS:
                return False
        registry.subscribers[info.peer] = (now + self._config.expiry, info)
        if fresh:
            self._tell(registry, Update(topic, info, True))
        return True

    def remove(self, topic: str, peer: Peer) -> None:
        registry = self.topics.get(topic)
        if registry is not None and registry.subscribers.pop(peer, None) is not None:
            self._tell(registry, Update(topic, PeerInfo(peer), False))
            if not registry.subscribers and not registry.leases:
                del self.topics[topic]

    def lease(self, topic: str, asker: Peer) -> int:
        """For how long it will hear of changes, in microseconds."""
        registry, now = self.topics.get(topic), self._env.now()
        if registry is None:
            return 0
        if asker not in registry.leases:
            registry.prune_leases(now)
            if len(registry.leases) >= LEASES or self._has_its_share(asker):
                return 0
        leased = min(self._config.lease, LONGEST)
        registry.leases[asker] = now + leased
        return leased

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
            registry.prune(now)
            if not registry.subscribers and not registry.leases:
                del self.topics[topic]

    def _registry(self, topic: str, peer: Peer) -> Registry | None:
        """A new one, if there is none and room for it."""
        registry = self.topics.get(topic)
        if registry is None and len(self.topics) < TOPICS and not self._has_its_share(peer):
            registry = self.topics[topic] = Registry()
        return registry

    def _has_its_share(self, peer: Peer) -> bool:
        if peer == self._env.me or len(self.topics) < TOPICS // 2:
            return False
        return sum(peer in kept.subscribers or peer in kept.leases for kept in self.topics.values()) >= SHARE

    def _tell(self, registry: Registry, update: Update) -> None:
        registry.prune_leases(self._env.now())
        self._env.send_all(tuple(registry.leases), update)


def is_registrar(me: Peer, topic: str, nearest: Sequence[PeerInfo]) -> bool:
    """Whether a node that found these nearest to a topic is one of them itself."""
    place = place_of_key(topic_key(topic))
    return not nearest or place_of(me) ^ place < place_of(nearest[-1].peer) ^ place
