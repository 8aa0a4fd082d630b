"""The score of each peer, by what it did: GossipSub v1.1's score function (libp2p/specs, gossipsub-v1.1, "Peer Scoring").

score = min(cap, sum over topics of weight * (P1 + P2 + P3 + P3b + P4)) + P5 + P6 + P7, each part with a weight of its own;
`libweft.pubsub.gossipsub.score_config` names them. The router tells what happens, and calls `refresh` each `decay_interval`.
- A message goes by `validating`, then one of `delivered`, `rejected`, `ignored` and `throttled`; further copies by `duplicate`.
  A copy that came before the verdict, or within the window after it, counts as a mesh delivery, once a peer.
- PRUNE ends the P3 of a peer, as in Rust and JavaScript; in Go the deficit of a pruned peer would go on growing.
- A peer that leaves with a score above 0 is forgotten. Any other is retained: without its P2, and without decay, so that
  leaving and coming again neither gains nor heals anything. One without a fault of its own is retained for FAULTLESS only: all
  that is left of it is that it counts at its address, and Go's hour of that would shut out who restarts often.
A peer is unknown before `join`, and scores 0.

Bounds: TOPICS that peers may name at will (invalid messages come of any topic) have counters of their own at a peer, further
ones share one set; others are topics of this node. RETAINED peers that left: when there are more, the one with the mildest
score goes, of equals the oldest. So whoever wants a bad score washed must bring that many peers that behaved still worse,
and any one of them, as it was new, would have served better. Records as in `libweft.pubsub.gossipsub.deliveries`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from libweft.peer.errors import UsageError
from libweft.peer.machine import SECOND, Peer
from libweft.pubsub.gossipsub.colocation import Colocation
from libweft.pubsub.gossipsub.counters import Counters, Stats
from libweft.pubsub.gossipsub.deliveries import DROPPED, INVALID, PENDING, Deliveries, Record
from libweft.pubsub.gossipsub.score_config import ScoreConfig, TopicScore

TOPICS = 256
RETAINED = 4_096
FAULTLESS = 60 * SECOND  # a guess: some restarts of an honest node without a key, or a NAT's users, must not shut an address out
REST = "\0rest"
"""Where the invalid messages of all further topics are counted."""

PARTS = ("P1", "P2", "P3", "P3b", "P4")


class Score:
    """`app` gives P5, and is asked each time a score is: it must be quick."""

    def __init__(self, config: ScoreConfig, app: Callable[[Peer], float] | None = None) -> None:
        self.config = config
        self.app = app
        self._topics = dict(config.topics)
        self._peers: dict[Peer, Stats] = {}
        self._retained: dict[Peer, Stats] = {}  # those of `_peers` that left, oldest first
        self._deliveries = Deliveries()
        self._colocation = Colocation(config.peer.colocation_free)

    def value(self, peer: Peer) -> float:
        stats = self._peers.get(peer)
        return 0.0 if stats is None else self._own(stats) + self._app_part(peer) + self._colocation_part(peer)

    def is_below(self, peer: Peer, threshold: float) -> bool:
        """Asked with every copy. A score that was high enough and can only have risen since is not computed anew."""
        stats = self._peers.get(peer)
        if stats is None:
            return threshold > 0
        others = self._app_part(peer) + self._colocation_part(peer)
        if stats.risen and stats.own is not None and stats.own + others >= threshold:
            return False
        return self._own(stats) + others < threshold

    def explain(self, peer: Peer) -> dict[str, float]:
        """The parts of a score, weighted; `cap` is what the cap on topics takes away. Their sum is the score."""
        parts = dict.fromkeys((*PARTS, "cap", "P5", "P6", "P7"), 0.0)
        stats = self._peers.get(peer)
        if stats is None:
            return parts
        for counters in stats.topics.values():
            for name, part in zip(PARTS, counters.parts(), strict=True):
                parts[name] += part
        total = sum(parts.values())
        parts |= {"cap": self._capped(total) - total, "P5": self._app_part(peer)}
        return parts | {"P6": self._colocation_part(peer), "P7": self._behaviour_part(stats)}

    # Links and meshes.

    def join(self, peer: Peer, ip: str | None) -> None:
        """A link is up, from that address; what is retained of the peer counts again."""
        stats = self._peers.get(peer)
        if stats is None:
            stats = self._peers[peer] = Stats()
        stats.connected = True
        self._retained.pop(peer, None)
        self._colocation.add(peer, ip)

    def left(self, peer: Peer, now: int) -> None:
        stats = self._peers.get(peer)
        if stats is None or not stats.connected:
            return
        if self.value(peer) > 0:
            self._forget(peer)
            return
        for counters in stats.topics.values():
            counters.leave_mesh(now)
            counters.first = 0.0
        stats.connected, stats.own = False, None
        retain = self.config.peer.retain
        stats.expires = now + (retain if self._own(stats) < 0 else min(retain, FAULTLESS))
        self._retained[peer] = stats
        if len(self._retained) > RETAINED:
            self._forget(max(self._retained, key=lambda other: self._own(self._retained[other])))

    def graft(self, peer: Peer, topic: str, now: int) -> None:
        if (counters := self._changing(peer, topic)) is not None:
            counters.enter_mesh(now)

    def prune(self, peer: Peer, topic: str, now: int) -> None:
        if (counters := self._changing(peer, topic)) is not None:
            counters.leave_mesh(now)

    # Messages.

    def validating(self, peer: Peer, key: bytes, topic: str, now: int) -> None:
        """The first copy goes to validation. Nothing is remembered of a topic that does not count."""
        deliveries = self._deliveries
        if now >= deliveries.until:
            deliveries.expire(now)
        if deliveries.find(key) is None and self._score_of(topic) is not None:
            deliveries.open(key, peer)

    def delivered(self, peer: Peer, key: bytes, topic: str, now: int) -> None:
        """It was valid. One's own messages come here too, without `validating`: mesh peers that echo them do deliver."""
        record = self._deliveries.find(key)
        if record is None:
            if self._score_of(topic) is None:
                return
            record = self._deliveries.open(key, peer)
        elif record.state != PENDING:
            return
        record.state = now
        if (counters := self._rising(peer, topic)) is not None:
            counters.first_delivery()
        for other in record.peers or ():
            if other != peer and (counters := self._rising(other, topic)) is not None:
                counters.mesh_delivery()

    def duplicate(self, peer: Peer, key: bytes, topic: str, now: int) -> None:
        record = self._deliveries.find(key)
        if record is None or record.state == DROPPED:
            return
        if record.state == PENDING:
            record.again(peer)
        elif record.state == INVALID:
            self.invalid(peer, topic)
        else:
            self._late(peer, record, topic, now)

    def rejected(self, peer: Peer, key: bytes, topic: str) -> None:
        """Its sender is to blame, and whoever brought it before the verdict; later copies will be too."""
        record = self._deliveries.find(key)
        if record is None and self._score_of(topic) is not None:
            record = self._deliveries.open(key, peer)
        self.invalid(peer, topic)
        if record is not None and record.state == PENDING:
            for other in record.peers or ():
                self.invalid(other, topic)
            record.state, record.peers = INVALID, None

    def ignored(self, key: bytes) -> None:
        """Nobody is to blame for it, and nobody has earned anything."""
        record = self._deliveries.find(key)
        if record is not None and record.state == PENDING:
            record.state, record.peers = DROPPED, None

    throttled = ignored

    def invalid(self, peer: Peer, topic: str) -> None:
        """Bad at first sight, so that there is no record: its signature, or this node itself as its author."""
        stats = self._peers.get(peer)
        if stats is not None and topic not in stats.topics and len(stats.topics) >= TOPICS and topic not in self._topics:
            topic = REST
        if (counters := self._changing(peer, topic)) is not None:
            counters.invalid += 1

    def penalize(self, peer: Peer, count: int) -> None:
        """P7: a GRAFT before its time, a promise that was broken."""
        if (stats := self._peers.get(peer)) is not None:
            stats.behaviour += count
            stats.own = None

    def _late(self, peer: Peer, record: Record, topic: str, now: int) -> None:
        """A copy of a message that is known to be valid: the commonest case, which mostly changes nothing."""
        stats = self._peers.get(peer)
        counters = None if stats is None else stats.topics.get(topic)
        if stats is None or counters is None or not counters.watches or not counters.in_mesh:
            return
        if now - record.state <= counters.score.mesh_deliveries_window and record.again(peer):
            counters.mesh_delivery()
            stats.risen = True

    # The tick, and changes at run time.

    def refresh(self, now: int) -> None:
        config = self.config.peer
        self._deliveries.expire(now)
        for peer in [peer for peer, stats in self._retained.items() if stats.expires <= now]:
            self._forget(peer)
        for stats in self._peers.values():
            if stats.connected and (stats.topics or stats.behaviour):
                stats.tick(now, config.behaviour_decay, config.decay_to_zero)

    def set_topic(self, topic: str, score: TopicScore) -> None:
        """From now on; counters above lower caps are clipped."""
        self._topics[topic] = score
        for stats in self._peers.values():
            if (counters := stats.topics.get(topic)) is not None:
                counters.change(score)
                stats.own = None

    def _forget(self, peer: Peer) -> None:
        del self._peers[peer]
        self._retained.pop(peer, None)
        self._colocation.remove(peer)

    def _score_of(self, topic: str) -> TopicScore | None:
        return self._topics.get(topic, self.config.topic)

    def _changing(self, peer: Peer, topic: str) -> Counters | None:
        """Counters that are about to change; None for a stranger, and for a topic that does not count."""
        stats = self._peers.get(peer)
        if stats is None or (counters := self._counters(stats, topic)) is None:
            return None
        stats.own = None
        return counters

    def _rising(self, peer: Peer, topic: str) -> Counters | None:
        """The same, of a change that can only be for the better."""
        stats = self._peers.get(peer)
        if stats is None or (counters := self._counters(stats, topic)) is None:
            return None
        stats.risen = True
        return counters

    def _counters(self, stats: Stats, topic: str) -> Counters | None:
        counters = stats.topics.get(topic)
        if counters is None and (score := self._score_of(topic)) is not None:
            counters = stats.topics[topic] = Counters(score)
        return counters

    # The parts.

    def _own(self, stats: Stats) -> float:
        if stats.own is None or stats.risen:
            stats.risen = False
            total = sum(sum(counters.parts()) for counters in stats.topics.values())
            stats.own = self._capped(total) + self._behaviour_part(stats)
        return stats.own

    def _capped(self, total: float) -> float:
        cap = self.config.peer.topic_score_cap
        return min(total, cap) if cap else total

    def _behaviour_part(self, stats: Stats) -> float:
        return self.config.peer.behaviour_weight * max(0.0, stats.behaviour - self.config.peer.behaviour_threshold) ** 2

    def _app_part(self, peer: Peer) -> float:
        if self.app is None:
            return 0.0
        part = self.config.peer.app_weight * self.app(peer)
        if not isfinite(part):
            raise UsageError(f"the application's score of {peer!r} gives {part}; it must be a finite number")
        return part

    def _colocation_part(self, peer: Peer) -> float:
        config = self.config.peer
        if not config.colocation_weight:
            return 0.0
        return config.colocation_weight * self._colocation.surplus(peer, config.colocation_threshold)
