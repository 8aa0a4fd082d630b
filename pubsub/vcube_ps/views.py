"""Who subscribes to which topic, as far as this node knows: `view` of the paper, and the set of places that follows from it.

The newest standing of a peer wins (UPDATE of the paper). Non-subscribers keep views too, since here they may publish; what they
do not hear of an unsubscription, the one who left tells them by its first ACK.
Bounds: STANDINGS in all; one more is not taken in, nor of a peer that has as many as are left. What is known of a peer goes when
the overlay forgets it; of those whom it has not heard of STRANGERS are kept, in shares: anybody can name them.
"""

from __future__ import annotations

from libweft.overlays.vcube.places import Places
from libweft.peer.machine import Peer
from libweft.pubsub.fair_shares import Shares
from libweft.pubsub.vcube_ps.messages import Standing

STANDINGS = 1 << 18
STRANGERS = 4_096


class Views:
    def __init__(self, overlay: Places) -> None:
        self.topics: dict[str, dict[Peer, Standing]] = {}
        self.size = 0
        self.shares = Shares()
        self._overlay = overlay
        self._strangers: dict[tuple[Peer, str], None] = {}  # in the order in which they were named
        self._named = Shares()  # of these, by peer
        self._sets: dict[str, tuple[int, int]] = {}  # the overlay's version, and the set of places
        self._told: dict[str, tuple[int, int]] = {}  # under an oracle: the places that were heard of since, and who subscribes

    def note(self, topic: str, standing: Standing) -> bool:
        view = self.topics.get(topic)
        before = view.get(standing.peer) if view is not None else None
        if before is None:
            if not self._admit(standing.peer):
                return False
            self.size += 1
            self.shares.take(standing.peer)
        elif not standing.newer(before):
            return False
        if view is None:
            view = self.topics[topic] = {}
        view[standing.peer] = standing
        self._renew(topic, standing)
        if before is None and standing.peer != self._overlay.env.me and standing.peer not in self._overlay.roll.where:
            self._limit_strangers(topic, standing.peer)
        return True

    def _limit_strangers(self, topic: str, peer: Peer) -> None:
        """One that has a place by now is only no stranger any more."""
        oldest = self._named.gives_way(peer, STRANGERS - len(self._strangers), self._strangers)
        if oldest is not None:
            self._unmark(*oldest)
            if oldest[0] not in self._overlay.roll.where:
                self._drop(*oldest)
        self._strangers[peer, topic] = None
        self._named.take(peer)

    def _unmark(self, peer: Peer, topic: str) -> None:
        if self._strangers.pop((peer, topic), 0) is None:
            self._named.give_back(peer)

    def _admit(self, peer: Peer) -> bool:
        """This node's own share is as large as its application wants."""
        return peer == self._overlay.env.me or self.shares.admit(peer, STANDINGS - self.size)

    def of(self, topic: str, peer: Peer) -> Standing | None:
        view = self.topics.get(topic)
        return view.get(peer) if view is not None else None

    def subscribers(self, topic: str) -> int:
        """The places of the subscribers that are up."""
        if self._overlay.census is not None:
            told, subscribed = self._told.get(topic, (0, 0))
            return self._overlay.census.subscribers.get(topic, 0) & ~told | subscribed
        if (view := self.topics.get(topic)) is None:
            return 0
        version, places = self._sets.get(topic, (-1, 0))
        if version != self._overlay.version:
            where = self._overlay.roll.where
            places = 0
            for standing in view.values():
                if standing.subscribed and (index := where.get(standing.peer)) is not None:
                    places |= 1 << index
            places &= self._overlay.roll.up
            self._sets[topic] = (self._overlay.version, places)
        return places

    def forget(self, peer: Peer) -> None:
        for topic in list(self.topics):
            self._drop(peer, topic)

    def _drop(self, peer: Peer, topic: str) -> None:
        self._unmark(peer, topic)
        view = self.topics.get(topic, {})
        if view.pop(peer, None) is not None:
            self.size -= 1
            self.shares.give_back(peer)
            self._sets.pop(topic, None)
            if not view:
                del self.topics[topic]

    def _renew(self, topic: str, standing: Standing) -> None:
        """One bit, where the rest still holds: a rush of subscriptions would count all of them again for each."""
        if self._overlay.census is not None:
            bit = 1 << self._overlay.roll.where[standing.peer]
            told, subscribed = self._told.get(topic, (0, 0))
            self._told[topic] = (told | bit, subscribed | bit if standing.subscribed else subscribed & ~bit)
            return
        version, places = self._sets.get(topic, (-1, 0))
        if version != self._overlay.version:
            return
        index = self._overlay.roll.where.get(standing.peer)
        if index is not None:
            bit = 1 << index & self._overlay.roll.up
            self._sets[topic] = (version, places | bit if standing.subscribed else places & ~bit)
