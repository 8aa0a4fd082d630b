"""What a peer is worth here: its score, the gater's odds and its open promises, behind one face.

Without scoring everybody stands at 0 and nothing has consequences, as in version 1.0 and in the plain mesh of studies.
A `role` row tells of a peer that says something below the graylist threshold, and when it has come back above it.
Bounds: those of `score`, `gater` and `promises`; of the graylist, peers whose link is up.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

from libweft.peer.machine import Env, Link, Peer
from libweft.peer.trace.kinds import ROLE
from libweft.pubsub.gossipsub.config import GossipSubConfig
from libweft.pubsub.gossipsub.gater import Gater, GaterConfig
from libweft.pubsub.gossipsub.promises import Promises
from libweft.pubsub.gossipsub.score import Score
from libweft.pubsub.gossipsub.score_config import ScoreConfig, Thresholds

NO_THRESHOLDS = Thresholds(gossip=0, publish=0, graylist=0, accept_px=0, opportunistic_graft=0)


class Standing:
    def __init__(self, env: Env, config: GossipSubConfig, score: ScoreConfig | None) -> None:
        self.env = env
        self.score = Score(score) if score is not None else None
        self.gater = Gater(GaterConfig(), env.rng) if config.gater else None
        self.promises = Promises(config.followup)
        self.thresholds = score.thresholds if score is not None else NO_THRESHOLDS
        self.interval = score.peer.decay_interval if score is not None else config.heartbeat
        self.graylisted: dict[Peer, None] = {}  # those that a row has told of
        self.direct: dict[Peer, None] = {}  # the router's: they are above all thresholds

    def value(self, peer: Peer) -> float:
        return self.score.value(peer) if self.score is not None else 0.0

    def may_have(self, peer: Peer) -> bool:
        """Whether what is published goes to it, in a mesh or not."""
        return peer in self.direct or self.score is None or not self.score.is_below(peer, self.thresholds.publish)

    def may_hear(self, peer: Peer) -> bool:
        """Whether there is gossip with it, from either side."""
        return self.score is None or not self.score.is_below(peer, self.thresholds.gossip)

    def is_shunned(self, peer: Peer) -> bool:
        """Whatever it says is passed over, which who watches this node is told: of one peer once a heartbeat at most."""
        if self.score is None or not self.score.is_below(peer, self.thresholds.graylist) or peer in self.direct:
            return False
        if peer not in self.graylisted:
            self.graylisted[peer] = None
            self.env.trace(ROLE, peer=peer, reason=f"graylisted, score {self.value(peer):.1f}")
        return True

    def may_bring(self, peer: Peer, now: int) -> bool:
        """Whether its messages are looked at; while validation cannot keep up, the gater draws lots."""
        if self.gater is None or peer in self.direct or self.gater.accepts(peer, now):
            return True
        self.promises.void(peer)
        return False

    def penalize(self, peer: Peer, count: int) -> None:
        if self.score is not None:
            self.score.penalize(peer, count)

    def refresh(self) -> None:
        """The decay tick."""
        if self.score is not None:
            self.score.refresh(self.env.now())
        if self.gater is not None:
            self.gater.refresh(self.env.now())

    def heartbeat(self) -> None:
        for peer, count in self.promises.broken(self.env.now()).items():
            self.penalize(peer, count)
        for peer in [peer for peer in self.graylisted if not self.is_shunned(peer)]:
            del self.graylisted[peer]
            self.env.trace(ROLE, peer=peer, reason="graylisted no more")

    # Links and meshes.

    def up(self, peer: Peer, link: Link) -> None:
        ip = ip_of(link.address)
        if self.score is not None:
            self.score.join(peer, ip)
        if self.gater is not None:
            self.gater.join(peer, ip)

    def down(self, peer: Peer) -> None:
        self.promises.left(peer)
        self.graylisted.pop(peer, None)
        if self.score is not None:
            self.score.left(peer, self.env.now())
        if self.gater is not None:
            self.gater.left(peer, self.env.now())

    def graft(self, peer: Peer, topic: str) -> None:
        if self.score is not None:
            self.score.graft(peer, topic, self.env.now())

    def prune(self, peer: Peer, topic: str) -> None:
        if self.score is not None:
            self.score.prune(peer, topic, self.env.now())

    # Messages.

    def promised(self, peer: Peer, keys: Sequence[bytes]) -> None:
        self.promises.promise(peer, keys, self.env.now(), self.env.rng)

    def validating(self, peer: Peer, key: bytes, topic: str) -> None:
        self.promises.kept(key)
        if self.score is not None:
            self.score.validating(peer, key, topic, self.env.now())
        if self.gater is not None:
            self.gater.validated()

    def delivered(self, peer: Peer, key: bytes, topic: str) -> None:
        if self.score is not None:
            self.score.delivered(peer, key, topic, self.env.now())
        if self.gater is not None:
            self.gater.delivered(peer)

    def duplicate(self, peer: Peer, key: bytes, topic: str, now: int) -> None:
        if self.score is not None:
            self.score.duplicate(peer, key, topic, now)
        if self.gater is not None:
            self.gater.duplicate(peer)

    def rejected(self, peer: Peer, key: bytes, topic: str) -> None:
        if self.score is not None:
            self.score.rejected(peer, key, topic)
        if self.gater is not None:
            self.gater.rejected(peer)

    def ignored(self, peer: Peer, key: bytes) -> None:
        if self.score is not None:
            self.score.ignored(key)
        if self.gater is not None:
            self.gater.ignored(peer)

    def throttled(self, key: bytes) -> None:
        if self.score is not None:
            self.score.throttled(key)
        if self.gater is not None:
            self.gater.throttled(self.env.now())

    def invalid(self, peer: Peer, topic: str) -> None:
        if self.score is not None:
            self.score.invalid(peer, topic)
        if self.gater is not None:
            self.gater.rejected(peer)


def ip_of(address: str) -> str:
    """Of a multiaddr; empty where it names none."""
    parts = address.split("/")
    if len(parts) > 2 and parts[1] in ("ip4", "ip6"):
        try:
            return str(ip_address(parts[2]))
        except ValueError:
            return ""
    return ""
