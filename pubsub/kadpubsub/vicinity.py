"""A registrar's other side: it watches who is nearest to its topics, and tells those concerned when somebody new is.

Who subscribed while the network was small is registered at nodes that are no longer the nearest, and would move with its next
refresh only. Kademlia's paper (section 2.5) hands values on to a node that is new; a registration is its subscriber's own word,
which nobody else can give, so the subscriber hears who is nearest (NEAREST), and registers there itself. A publisher with a lease
hears it too, and asks anew.

So that not all k tell the same, those do that publishers ask: the `asks` nearest of those who were there before and still are.
Bounds: LOOKED topics and TOLD peers each `watch_every`, the rest wait for the next time; what is known of a topic goes with its
registry, and who waits subscribes there or has a lease.
"""

from __future__ import annotations

from itertools import islice

from libweft.overlays.claims import told
from libweft.overlays.kademlia.space import place_of, place_of_key, topic_key
from libweft.overlays.powers import Lookups
from libweft.peer.machine import Env, Peer, Timer
from libweft.pubsub.kadpubsub.config import KadPubSubConfig
from libweft.pubsub.kadpubsub.messages import NEAREST, Nearest
from libweft.pubsub.kadpubsub.registry import Registries, Registry

LOOKED = 256
TOLD = 512  # a guess: all subscribers of the largest topic within 40 s, before they refresh by themselves


class View:
    """Who was nearest at the last look, this node among them, and who has not been told so yet."""

    __slots__ = ("nearest", "untold")

    def __init__(self, nearest: list[Peer]) -> None:
        self.nearest = nearest
        self.untold: dict[Peer, None] = {}


class Vicinity:
    def __init__(self, env: Env, config: KadPubSubConfig, overlay: Lookups, registries: Registries) -> None:
        self._env = env
        self._config = config
        self._overlay = overlay
        self._registries = registries
        self.views: dict[str, View] = {}
        self._due: dict[str, None] = {}  # to be looked at before the others again
        self._timer: Timer | None = None

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def watch(self, topic: str) -> None:
        """From the first registration on: who brings it has just looked for the nearest."""
        if topic not in self.views and topic in self._registries.topics:
            self.views[topic] = View(self._nearest(topic))
        if self._timer is None and self.views:
            self._timer = self._env.after(self._config.watch_every, self._look)

    def _look(self) -> None:
        kept = self._registries.topics
        self.views = {topic: view for topic, view in self.views.items() if topic in kept}
        self._timer = self._env.after(self._config.watch_every, self._look) if self.views else None
        if not self._due:
            self._due = dict.fromkeys(self.views)
        for topic in list(islice(self._due, LOOKED)):
            del self._due[topic]
            if topic in self.views:
                self._compare(topic, self.views[topic], kept[topic])
        self._tell()

    def _compare(self, topic: str, view: View, registry: Registry) -> None:
        before, view.nearest = view.nearest, self._nearest(topic)
        stayed = [peer for peer in view.nearest if peer in before]
        if len(stayed) < len(view.nearest) and self._env.me in stayed[: self._config.asks]:
            view.untold |= dict.fromkeys((*registry.subscribers, *registry.leases))
            view.untold.pop(self._env.me, None)

    def _tell(self) -> None:
        """A topic that had its turn goes behind the others."""
        room = TOLD
        for topic in [topic for topic, view in self.views.items() if view.untold]:
            view = self.views[topic] = self.views.pop(topic)
            untold = tuple(islice(view.untold, room))
            for peer in untold:
                del view.untold[peer]
            self._env.send_all(untold, Nearest(topic, tuple(told(self._env, peer) for peer in view.nearest)))
            room -= len(untold)
            if not room:
                break

    def _nearest(self, topic: str) -> list[Peer]:
        key = topic_key(topic)
        place = place_of_key(key)
        return sorted((*self._overlay.known(key)[: NEAREST - 1], self._env.me), key=lambda peer: place_of(peer) ^ place)
