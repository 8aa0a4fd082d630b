"""GossipSub's parameters, by the names of its specification, and what they allow. Times in microseconds."""

from __future__ import annotations

from dataclasses import dataclass

from libweft.peer.errors import UsageError
from libweft.peer.machine import MS, SECOND
from libweft.pubsub.gossipsub.ids import BY_NAME
from libweft.pubsub.gossipsub.presets import named_score
from libweft.pubsub.seen import TTL

FASTEST = MS  # a heartbeat: whoever means a second and writes 1 would wait for ever
PX_MOST = 16  # peers in one PRUNE; JS reads no more
HISTORY = 3_600  # windows are there before anything is in them


@dataclass(frozen=True)
class GossipSubConfig:
    """The defaults are those of the specification, or of Go's implementation where it says more."""

    d: int = 6  # the mesh has this many peers, where it can choose
    d_lo: int = 5  # with fewer peers a mesh is filled up; Go and Rust; the specification has 4
    d_hi: int = 12  # with more it is cut down
    d_score: int = 4  # of those that stay when a mesh is cut down, so many are the best by score
    d_out: int = 2  # so many links of a mesh were dialled from here
    d_lazy: int = 6  # peers outside the mesh that a heartbeat gossips to, at least
    gossip_factor: float = 0.25  # or this share of them, if that is more
    heartbeat: int = SECOND  # between two looks after meshes and gossip
    heartbeat_first: int = 100 * MS  # until the first
    history: int = 5  # heartbeats that a message can be asked for
    history_gossip: int = 3  # of them, those in which it is announced
    seen_ttl: int = TTL  # how long an id is remembered
    fanout_ttl: int = 60 * SECOND  # how long a mesh is kept for a topic that is only published to
    prune_backoff: int = 60 * SECOND  # until a peer that was pruned may graft again
    unsubscribe_backoff: int = 10 * SECOND  # the same, of one that left the topic
    backoff_most: int = 3_600 * SECOND  # the longest wait that a peer may ask for, as in Rust: none locks another out for longer
    backoff_slack: int = 2  # added to each wait; heartbeats, as in Go
    graft_flood: int = 10 * SECOND  # a graft so soon after a prune is punished twice
    flood_publish: bool = True  # own messages go to all subscribers known, not to the mesh alone
    px: bool = True  # whoever is pruned is told of others
    px_peers: int = PX_MOST  # of so many
    opportunistic_every: int = 60  # between two grafts of better peers into a poor mesh; heartbeats
    opportunistic_peers: int = 2  # grafted then
    direct_every: int = 300  # between two dials of direct peers; heartbeats
    ihave_ids: int = 5_000  # in one IHAVE; as many may be asked of one peer in a heartbeat
    ihave_most: int = 10  # IHAVEs; of one peer in a heartbeat
    iwant_most: int = 10  # IWANTs; the same, as in JS
    retransmissions: int = 3  # times that a peer gets a message that it asks for
    followup: int = 3 * SECOND  # within it what was promised must come
    idontwant_size: int = 1_024  # larger messages are announced by it; bytes, as in Go; 0 never sends one
    idontwant_most: int = 1_000  # IDONTWANTs; of one peer in a heartbeat, as in Go
    idontwant_ids: int = 512  # ids; of one of them, as in JS; Go reads only ten
    idontwant_ttl: int = 3  # how long one is kept; heartbeats, as in Go
    subscriptions: int = 5_000  # topics of one peer: a guess
    spare: int = 12  # links held beyond the meshes, for gossip and as candidates: a guess, as many as a mesh has at most
    discover_every: int = 10  # heartbeats between two searches for peers of a topic that has too few: a guess
    message_id: str = "go"  # what makes two messages the same: go, rust, js, sha256, ethereum, ethereum_altair
    score: str = "default"  # or filecoin, ethereum, off: `presets`
    score_with: str = ""  # what is different, such as "invalid_weight=0, graylist=-500"
    gater: bool = True  # under load, messages of bad peers are dropped unread
    test_extension: bool = False  # speak the extension of libp2p's interop tests

    def __post_init__(self) -> None:
        if self.heartbeat < FASTEST:
            raise UsageError(f"heartbeat is {self.heartbeat}; it must be {FASTEST} microseconds at least, {SECOND} for a second")
        for name in ("history", "ihave_ids", "ihave_most", "iwant_most", "prune_backoff", "unsubscribe_backoff"):
            self._least(name, 1)
        for name in ("opportunistic_every", "direct_every", "discover_every", "followup", "idontwant_ttl", "seen_ttl"):
            self._least(name, 1)
        for name, value in vars(self).items():
            if not isinstance(value, str):
                self._least(name, 0)
        self._check_mesh()
        named_score(self.score, self.score_with)
        if self.message_id not in BY_NAME:
            raise UsageError(f"message_id is {self.message_id!r}; choose one of: {', '.join(BY_NAME)}")
        if self.history > HISTORY:
            raise UsageError(f"history is {self.history}; it must be {HISTORY} heartbeats at most")
        if self.px_peers > PX_MOST:
            raise UsageError(f"px_peers is {self.px_peers}; it must be {PX_MOST} at most, since others read no more")
        if self.history_gossip > self.history:
            raise UsageError(f"history_gossip is {self.history_gossip}; it must be at most history, which is {self.history}")
        if self.gossip_factor > 1:
            raise UsageError(f"gossip_factor is {self.gossip_factor}; it must be from 0 to 1")
        if self.backoff_most < max(self.prune_backoff, self.unsubscribe_backoff):
            raise UsageError(f"backoff_most is {self.backoff_most}; it must be prune_backoff and unsubscribe_backoff at least")
        if self.seen_ttl <= self.history * self.heartbeat:
            raise UsageError(f"seen_ttl is {self.seen_ttl}; it must be longer than history times heartbeat")

    def _check_mesh(self) -> None:
        """A node that only introduces others has no mesh: all four are 0."""
        if self.d == self.d_lo == self.d_hi == self.d_out == 0:
            return
        if not self.d_lo <= self.d <= self.d_hi or self.d < 1:
            raise UsageError(f"d_lo, d, d_hi are {self.d_lo}, {self.d}, {self.d_hi}; none may be less than the one before it")
        if self.d_score > self.d_hi:
            raise UsageError(f"d_score is {self.d_score}; it must be at most d_hi, which is {self.d_hi}")
        if self.d_out and not (self.d_out < self.d_lo and 2 * self.d_out <= self.d):
            raise UsageError(f"d_out is {self.d_out}; it must be below d_lo, {self.d_lo}, and at most half of d, {self.d}")

    def _least(self, name: str, least: int) -> None:
        if not getattr(self, name) >= least:
            raise UsageError(f"{name} is {getattr(self, name)}; it must be {least} at least")
