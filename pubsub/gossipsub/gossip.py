"""Gossip: IHAVE and IWANT fetch what the mesh did not bring, IDONTWANT stops what it need not bring.

In each heartbeat the ids of the last windows go to `d_lazy` peers of the topic outside the mesh, or to a `gossip_factor` of them
where that is more. Whoever lacks one asks for it, and remembers one of the ids it asked for: an announcement that is not kept
counts against its sender. A large message is refused to the mesh as soon as it is here.

Bounds: of one peer and heartbeat `ihave_most`, `iwant_most` and `idontwant_most` messages, `ihave_ids` ids asked for; a message
is sent `retransmissions` times to one peer; what waits to leave to a peer that asks, BACKLOG bytes; UNWANTED ids a peer, and
REFUSED of all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from libweft.peer.machine import Peer
from libweft.pubsub.gossipsub.ids import short
from libweft.pubsub.gossipsub.mcache import MessageCache
from libweft.pubsub.gossipsub.messages import IDontWant, IHave, IWant
from libweft.pubsub.message import Publication

if TYPE_CHECKING:
    from libweft.pubsub.gossipsub.router import GossipSub

BACKLOG = 1 << 19  # half of what a link holds before it is given up as too slow
UNWANTED = 10_000  # as in Rust
REFUSED = 1 << 17  # a guess: those who come and go leave theirs behind for some heartbeats


class Gossip:
    def __init__(self, router: GossipSub) -> None:
        self.router = router
        self.config = router.config
        self.cache = MessageCache(self.config.history, self.config.history_gossip)
        self.unwanted: dict[bytes, dict[Peer, int]] = {}  # by id, who does not want it, and the heartbeat when that ends
        self._ends: deque[tuple[int, bytes, Peer]] = deque()

    # The heartbeat.

    def emit(self) -> None:
        """Announce what is in the cache; one message a peer, whatever the number of topics, and mostly the same one."""
        told: dict[Peer, list[tuple[str, tuple[bytes, ...]]]] = {}
        meshes = self.router.meshes
        for topics in (meshes.topics, meshes.fanouts):
            for topic, mesh in topics.items():
                ids = tuple(self.cache.gossip(topic))
                for peer in self._listeners(topic, mesh.peers) if ids else ():
                    told.setdefault(peer, []).append((topic, self._some(ids)))
        alike: dict[tuple[tuple[str, tuple[bytes, ...]], ...], list[Peer]] = {}
        for peer, entries in told.items():
            alike.setdefault(tuple(entries), []).append(peer)
        for said, peers in alike.items():
            self.router.env.send_all(tuple(peers), IHave(said))

    def _listeners(self, topic: str, mesh: dict[Peer, None]) -> list[Peer]:
        router, direct, hears = self.router, self.router.contacts.direct, self.router.standing.may_hear
        able = [peer for peer in router.meshing(topic) if peer not in mesh and peer not in direct and hears(peer)]
        count = max(self.config.d_lazy, int(self.config.gossip_factor * len(able)))
        return router.env.rng.sample(able, min(count, len(able)))

    def _some(self, ids: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Where there are too many, other ones for each."""
        most = self.config.ihave_ids
        return ids if len(ids) <= most else tuple(self.router.env.rng.sample(ids, most))

    def shift(self, tick: int) -> None:
        self.cache.shift()
        for party in self.router.parties.values():
            party.ihaves = party.asked = party.iwants = party.idontwants = 0
        while self._ends and self._ends[0][0] <= tick:
            self._forget(*self._ends.popleft())

    # What peers say.

    def ihave(self, sender: Peer, msg: IHave) -> None:
        router, party = self.router, self.router.parties[sender]
        if not router.standing.may_hear(sender):
            return
        party.ihaves += 1
        room = self.config.ihave_ids - party.asked
        if party.ihaves > self.config.ihave_most or room <= 0:
            return
        entries = [ids[: self.config.ihave_ids] for topic, ids in msg.topics if topic in router.meshes.topics]
        wanted = list(dict.fromkeys(key for ids in entries for key in ids if not router.seen.has(key)))
        if wanted:
            asked = router.env.rng.sample(wanted, min(len(wanted), room))
            party.asked += len(asked)
            router.standing.promised(sender, asked)
            router.env.send(sender, IWant(tuple(asked)))

    def iwant(self, sender: Peer, msg: IWant) -> None:
        router, party = self.router, self.router.parties[sender]
        if not router.standing.may_hear(sender):
            return
        party.iwants += 1
        if party.iwants > self.config.iwant_most:
            return
        for key in dict.fromkeys(msg.ids[: self.config.ihave_ids]):
            if sender in self.unwanted.get(short(key), ()):
                continue
            found = self.cache.for_peer(key, sender)
            if found is not None and found[1] <= self.config.retransmissions and router.admits(sender, found[0].topic):
                router.env.send(sender, found[0])
                if router.env.backlog(sender) > BACKLOG:
                    break

    def idontwant(self, sender: Peer, msg: IDontWant) -> None:
        party = self.router.parties[sender]
        party.idontwants += 1
        if party.idontwants > self.config.idontwant_most:
            return
        end = self.router.tick + self.config.idontwant_ttl
        for key in map(short, msg.ids[: self.config.idontwant_ids]):
            peers = self.unwanted.setdefault(key, {})
            if sender not in peers and party.unwanted < UNWANTED and len(self._ends) < REFUSED:
                party.unwanted += 1
                peers[sender] = end
                self._ends.append((end, key, sender))
            if not peers:
                del self.unwanted[key]

    def refuses(self, publication: Publication, key: bytes, sender: Peer | None) -> None:
        """Spare the mesh from sending what is here already; its author would not send it anyway."""
        if not self.config.idontwant_size or len(publication.data) < self.config.idontwant_size:
            return
        mesh = self.router.meshes.topics.get(publication.topic)
        apart = (sender, publication.id.source)
        able = [peer for peer in mesh.everyone if peer not in apart and self.router.knows_idontwant(peer)] if mesh else []
        if able:
            self.router.env.send_all(tuple(able), IDontWant((key,)))

    def wanting(self, peers: tuple[Peer, ...], key: bytes) -> tuple[Peer, ...]:
        """Those of them who did not refuse it."""
        against: Sequence[Peer] | dict[Peer, int] = self.unwanted.get(short(key), ())
        return tuple(peer for peer in peers if peer not in against) if against else peers

    def _forget(self, end: int, key: bytes, peer: Peer) -> None:
        peers = self.unwanted.get(key, {})
        if peers.get(peer) == end:
            del peers[peer]
            if not peers:
                del self.unwanted[key]
            if (party := self.router.parties.get(peer)) is not None:
                party.unwanted = max(0, party.unwanted - 1)  # its link may be a new one
