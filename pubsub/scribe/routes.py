"""Who is whose parent in the tree of a topic, computed from what the overlay knows.

- `ByKey`: the next hop to the key of the topic, over any overlay that routes by keys. The root is known when it has answered.
- `ByPlace`: the same over `vcube`, where every member knows who the root is; the place may be given
  instead of hashed, or be the number at the end of the topic's name.
- `ByBroker`: only the brokers of `vcube` make the tree. The places come in groups of `group`, and of each group the member that
  is up nearest to its first place is the broker, so whoever is up has one; the others hang on it.
Bounds: of one version of the roll, the set of brokers and the ways of KNOWN topics.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol, TypeAlias

from libweft.overlays.overlay import Overlay
from libweft.overlays.powers import Distances, KeyRouting, power_of
from libweft.overlays.vcube.cube import PLACES, nearest, place_of
from libweft.overlays.vcube.places import Places
from libweft.peer.machine import Peer
from libweft.pubsub.scribe.config import BY_NUMBER, BrokerConfig, ScribeConfig

KNOWN = 4_096
ENDING = re.compile(r"[0-9]{1,9}$")

Rank: TypeAlias = tuple[int, int]


class Way(NamedTuple):
    parent: Peer | None  # None: this node is the root
    root: Peer | None  # None: it is not known, and what is for it goes by parents


class Routes(Protocol):
    def way(self, topic: str) -> Way: ...
    def may_answer(self, topic: str, peer: Peer, asked: Peer) -> bool:
        """Whether a peer may be the root to whom a message has come that was sent to the one asked."""

    def rank(self, child: Peer) -> Rank:
        """Children are served in this order."""


class ByKey:
    def __init__(self, overlay: Overlay) -> None:
        self._keys = power_of(overlay, KeyRouting)
        self._distances = power_of(overlay, Distances)

    def way(self, topic: str) -> Way:
        return Way(self._keys.next_hop(topic.encode()), None)

    def may_answer(self, topic: str, peer: Peer, asked: Peer) -> bool:
        """Each step is nearer to the key."""
        return peer == asked or self._distances.nearer(topic.encode(), peer, asked)

    def rank(self, child: Peer) -> Rank:
        return 0, 0


class ByPlace:
    """Children by distance, so that the largest part of the tree is served last, as in VCube-PS."""

    def __init__(self, cube: Places, config: ScribeConfig) -> None:
        self.cube = cube
        self._place = config.root
        self._ways: dict[str, Way] = {}
        self._version = -1  # of the roll
        self._index: int | None = None  # this node's place

    def way(self, topic: str) -> Way:
        """Parents are asked for again and again, and hardly ever change."""
        cube = self.cube
        if cube.version != self._version or cube.index != self._index:
            self._ways, self._version, self._index = {}, cube.version, cube.index
        return self._ways.get(topic) or self._find(topic)

    def _find(self, topic: str) -> Way:
        if len(self._ways) >= KNOWN:
            self._ways.clear()
        way = self._ways[topic] = Way(self._hop(topic), self._end(topic))
        return way

    def may_answer(self, topic: str, peer: Peer, asked: Peer) -> bool:
        return peer in (asked, self.way(topic).root)

    def _hop(self, topic: str) -> Peer | None:
        return self.cube.hop_to(self.place(topic), self.members())

    def _end(self, topic: str) -> Peer | None:
        found = nearest(self.place(topic), self.members())
        return self.cube.roll.peer(found) if found is not None else None

    def rank(self, child: Peer) -> Rank:
        return 0, self._distance(child)

    def place(self, topic: str) -> int:
        if self._place >= 0:
            return self._place
        number = ENDING.search(topic) if self._place == BY_NUMBER else None
        return int(number[0]) % PLACES if number is not None else place_of(topic.encode())

    def members(self) -> int:
        return self.cube.roll.up

    def _distance(self, child: Peer) -> int:
        where, index = self.cube.roll.where.get(child), self.cube.index
        return where ^ index if where is not None and index is not None else 0


class ByBroker(ByPlace):
    def __init__(self, cube: Places, config: BrokerConfig) -> None:
        super().__init__(cube, config)
        self._group = config.group
        self._brokers = (-1, 0)  # the version of the roll, and the set

    def _hop(self, topic: str) -> Peer | None:
        index = self.cube.index
        if index is None or self.members() >> index & 1:
            return super()._hop(topic)
        broker = self._broker(index)
        return self.cube.roll.peer(broker) if broker is not None else None

    def rank(self, child: Peer) -> Rank:
        """The tree first: whoever hangs on this broker has nobody below."""
        where = self.cube.roll.where.get(child, 0)
        return int(not self.members() >> where & 1), self._distance(child)

    def members(self) -> int:
        version, brokers = self._brokers
        if version != self.cube.version:
            brokers, left = 0, self.cube.roll.up
            while left:
                start = (left.bit_length() - 1) // self._group * self._group
                broker = self._broker(start)
                assert broker is not None, "somebody of the group is up"
                brokers |= 1 << broker
                left &= (1 << start) - 1
            self._brokers = (self.cube.version, brokers)
        return brokers

    def _broker(self, place: int) -> int | None:
        start = place // self._group * self._group
        group = self.cube.roll.up & ((1 << self._group) - 1) << start
        return nearest(start, group)
