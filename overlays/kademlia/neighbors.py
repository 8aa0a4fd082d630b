"""Neighbours over Kademlia: links to contacts from all parts of the space, agreed by both ends, for routers that spread by links.

Kademlia has contacts and no neighbours, and its links come and go with its questions. So each node holds a link to one contact
of each of its farthest buckets and to some of its nearest, `links` in all, and tells them (TAKE); whoever is full says
no (LEAVE). A peer that lacks this protocol but speaks the router's is a neighbour while its link is up, as with other
libraries all connected peers are.

Below it asks for: Kademlia, the machine beneath it in the stack. Above it promises: what an overlay does that has lookups.
Bounds: `links` held here, `links` and as many again held by others; one timer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from libweft.overlays.kademlia.put_and_get import Kademlia
from libweft.overlays.kademlia.space import place_of, place_of_key
from libweft.overlays.overlay import Overlay
from libweft.overlays.powers import Connected, Directory, Distances, KeyRouting, Lookups, Sampling, Storage
from libweft.peer.errors import UsageError
from libweft.peer.machine import SECOND, Env, Link, Message, Peer, PeerInfo, Timer, upon

PROTOCOL = "/weft/neighbors/1.0.0"
CHOOSE = 10 * SECOND  # a guess: between two looks for neighbours that are missing
NEAREST = 2  # of the links; the others go to the farthest buckets

FULL = "full"
LEFT = "left"


class Take(Message, frozen=True, tag=1):
    """The sender holds the link, and is a neighbour if the receiver agrees."""


class Leave(Message, frozen=True, tag=2):
    reason: str


class KademliaNeighbors(Overlay):
    """`held` are those chosen here, up or being dialled; `takers` those who chose this node."""

    protocols = (PROTOCOL,)
    powers = (Connected, Sampling, KeyRouting, Distances, Lookups, Directory, Storage)

    def __init__(self, env: Env, kademlia: Kademlia, links: int, watches: Sequence[str]) -> None:
        super().__init__(env)
        if links < 1:
            raise UsageError(f"overlay.links is {links}; it must be at least 1")
        self.kademlia = kademlia
        self.links = links
        self.watches = tuple(watches)
        self.held: dict[Peer, None] = {}
        self.takers: dict[Peer, None] = {}
        self.linked: dict[Peer, int] = {}  # has a link, for whatever reason; its incarnation
        self.refused: dict[Peer, None] = {}  # not asked again before the next look
        self.timer: Timer | None = None
        kademlia.joined.append(self._choose)
        kademlia.joined.append(self._reroute)

    def start(self) -> None:
        self.timer = self.env.after(1 + self.env.rng.randrange(CHOOSE), self._tick)

    def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.env.send_all(tuple(peer for peer in (*self.held, *self.takers) if peer in self.linked), Leave(LEFT))

    def _tick(self) -> None:
        self.timer = self.env.after(CHOOSE, self._tick)
        self.refused.clear()
        self._choose()

    def _choose(self) -> None:
        for peer in self._candidates()[: max(0, self.links - len(self.held))]:
            self.held[peer] = None
            self.env.connect(peer)
            if peer in self.linked:
                self._agree(peer)

    def _agree(self, peer: Peer) -> None:
        self.env.send(peer, Take())
        self._up(peer)

    def _candidates(self) -> list[Peer]:
        """The nearest, then a random one of each bucket from the farthest on, then a second of each, and so on."""
        table = self.kademlia.table
        buckets = [list(table.buckets[number]) for number in sorted(table.buckets)]
        for bucket in buckets:
            self.env.rng.shuffle(bucket)
        dealt = [bucket[turn] for turn in range(table.k) for bucket in buckets if turn < len(bucket)]
        order = dict.fromkeys((*table.nearest(table.mine, NEAREST), *dealt))
        return [peer for peer in order if not any(peer in known for known in (self.held, self.takers, self.refused))]

    def link_up(self, peer: Peer, link: Link) -> None:
        self.linked[peer] = link.incarnation
        if link.protocol != PROTOCOL:
            self._up(peer)
        elif peer in self.held:
            self._agree(peer)

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        if incarnation and self.linked.get(peer) != incarnation:
            return  # there is a later link
        was = peer in self.held
        self.held.pop(peer, None)
        self.takers.pop(peer, None)
        self.linked.pop(peer, None)
        if was:
            self.refused[peer] = None
        self._down(peer, reason)
        if was and incarnation:
            self._choose()

    @upon(Take)
    def take(self, sender: Peer, msg: Take) -> None:
        """Whoever is held here is a neighbour already, and needs no room."""
        if sender not in self.held and sender not in self.takers:
            if len(self.takers) >= 2 * self.links:
                self.env.send(sender, Leave(FULL))
                return
            self.takers[sender] = None
            self.env.connect(sender)
        self._up(sender)

    @upon(Leave)
    def leave(self, sender: Peer, msg: Leave) -> None:
        was = sender in self.held
        if not was and sender not in self.takers:
            return
        self.held.pop(sender, None)
        self.takers.pop(sender, None)
        self.refused[sender] = None
        self.env.disconnect(sender)
        self._down(sender, f"left: {msg.reason[:64]}")
        if was:
            self._choose()

    # The powers of Kademlia.

    def sample(self, k: int) -> list[Peer]:
        return self.kademlia.sample(k)

    @property
    def can_route(self) -> bool:
        return self.kademlia.has_joined or bool(len(self.kademlia.table)) or not self.kademlia.contacts

    def next_hop(self, key: bytes) -> Peer | None:
        """The nearest contact, where it is nearer than this node; each step is nearer, so no way goes round."""
        place, table = place_of_key(key), self.kademlia.table
        known = table.nearest(place, 1)
        if not known or (self.kademlia.serves and table.mine ^ place < place_of(known[0]) ^ place):
            return None
        return known[0]

    def nearer(self, key: bytes, peer: Peer, other: Peer) -> bool:
        place = place_of_key(key)
        return place_of(peer) ^ place < place_of(other) ^ place

    def suspect(self, peer: Peer) -> None:
        self.kademlia.suspect(peer)

    def lookup(self, key: bytes, done: Callable[[Sequence[PeerInfo]], None]) -> None:
        self.kademlia.lookup(key, done)

    def known(self, key: bytes) -> Sequence[Peer]:
        return self.kademlia.known(key)

    def announce(self, topic: str) -> None:
        self.kademlia.announce(topic)

    def unannounce(self, topic: str) -> None:
        self.kademlia.unannounce(topic)

    def find(self, topic: str, n: int, done: Callable[[Sequence[PeerInfo]], None]) -> None:
        self.kademlia.find(topic, n, done)

    def put(self, key: bytes, value: bytes, ttl: int, done: Callable[[int], None]) -> None:
        self.kademlia.put(key, value, ttl, done)

    def get(self, key: bytes, done: Callable[[bytes | None], None]) -> None:
        self.kademlia.get(key, done)
