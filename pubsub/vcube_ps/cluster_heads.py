"""Who is first in each cluster of this node's place, remembered for each topic until somebody comes or goes.

To whom a message goes is a function of the members, but one that looks at a set of all places for each cluster; and nearly
always the members are those of the message before.
Bounds: HEADS, counting topics for each kind of message; beyond that all are looked up anew.
"""

from __future__ import annotations

from typing import NamedTuple

from libweft.overlays.vcube.cube import cluster, first, heads, places
from libweft.overlays.vcube.places import Places
from libweft.peer.machine import Peer

HEADS = 256


class Known(NamedTuple):
    """As of one set of members, this node's place and one version of the roll, which says who has which place."""

    members: int
    place: int
    version: int
    peers: list[Peer | None]


class Heads:
    def __init__(self, overlay: Places) -> None:
        self._overlay = overlay
        self._known: dict[tuple[str, type], Known] = {}

    def of(self, topic: str, kind: type, members: int) -> list[Peer | None]:
        """From cluster 1 on; None where nobody is. `kind` is the message's: each kind of a topic has members of its own."""
        key, index, version = (topic, kind), self._overlay.index, self._overlay.version
        known = self._known.get(key)
        if known is None and len(self._known) >= HEADS:
            self._known.clear()
        if index is None:
            return []
        if known is None or known.version != version or known.place != index:
            peers = self._looked_up(index, members)
        elif known.members == members:
            return known.peers
        else:
            peers = self._mended(known, index, members)
        self._known[key] = Known(members, index, version, peers)
        return peers

    def first(self, s: int, members: int) -> Peer | None:
        """Of one cluster."""
        index = self._overlay.index
        return self._peer(first(index, s, members)) if index is not None else None

    def _looked_up(self, index: int, members: int) -> list[Peer | None]:
        return [self._peer(place) for place in heads(index, self._overlay.dimension, members)]

    def _mended(self, known: Known, index: int, members: int) -> list[Peer | None]:
        """Anew in the clusters of those that came or went, where these are few."""
        peers, changed = list(known.peers), known.members ^ members
        if changed.bit_count() > len(peers):
            return self._looked_up(index, members)
        for place in places(changed):
            s = cluster(index, place)
            if 0 < s <= len(peers):
                peers[s - 1] = self.first(s, members)
        return peers

    def _peer(self, place: int | None) -> Peer | None:
        peer = self._overlay.roll.peer(place) if place is not None else None
        return peer if peer != self._overlay.env.me else None
