"""What peers are scored by: the parameters of GossipSub v1.1's score function, its thresholds, and three ready sets.

The names are the specification's parts: P1 time in mesh, P2 first deliveries, P3 mesh deliveries (a deficit, squared), P3b
mesh failures, P4 invalid messages, all of a topic; P5 the application's own score, P6 peers that share an address, P7
misbehaviour. A weight of 0 turns a part off, and its other fields may then be 0 too; each has a range otherwise, as in
go-libp2p-pubsub, and what lies outside raises UsageError at once. Times are in microseconds.

`DEFAULT` is for an application whose rate of messages nobody knows. `ETHEREUM` has the values of a client of its consensus
layer for the topic of blocks, `FILECOIN` those that GossipSub v1.1 was evaluated with (Vyzovitis et al., 2020).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from ipaddress import ip_network
from math import isfinite

from libweft.peer.errors import UsageError
from libweft.peer.machine import MS, SECOND

MINUTE, HOUR = 60 * SECOND, 3_600 * SECOND
TO_ZERO = 0.01  # go-libp2p-pubsub; in Rust and JavaScript it is 0.1


def decay(duration: int, interval: int = SECOND, to_zero: float = TO_ZERO) -> float:
    """The factor a tick by which a counter of 1 comes down to `to_zero` in that time; whole ticks, as in Go."""
    if not 0 < interval <= duration:
        raise UsageError(f"a decay over {duration} us has no tick of {interval} us; interval must be 1 to {duration}")
    if not 0 < to_zero < 1:
        raise UsageError(f"to_zero is {to_zero}; it must be above 0 and below 1")
    return float(to_zero ** (1 / (duration // interval)))


@dataclass(frozen=True)
class TopicScore:
    """Of one topic. The defaults fit each other and the default thresholds; where no source is named, they are guesses."""

    topic_weight: float = 1.0
    time_in_mesh_weight: float = 0.01  # at most 3: staying is no merit that pays for a fault
    time_in_mesh_quantum: int = SECOND  # as in the evaluation
    time_in_mesh_cap: float = 300.0
    first_deliveries_weight: float = 0.5  # at most 10: on a busy topic all are at the cap, and none is better for it
    first_deliveries_decay: float = decay(10 * MINUTE)
    first_deliveries_cap: float = 20.0
    # P3 and P3b are off: they need the topic's rate, and Ethereum's clients turned them off since they hit honest nodes
    mesh_deliveries_weight: float = 0.0
    mesh_deliveries_decay: float = 0.0
    mesh_deliveries_cap: float = 0.0
    mesh_deliveries_threshold: float = 0.0
    mesh_deliveries_window: int = 10 * MS  # Rust and JavaScript
    mesh_deliveries_activation: int = MINUTE  # the evaluation
    mesh_failure_weight: float = 0.0
    mesh_failure_decay: float = 0.0
    invalid_weight: float = -10.0  # squared: -10, -40, -90; the best peer is below 0 at the second, graylisted at the fourth
    invalid_decay: float = decay(HOUR)

    def __post_init__(self) -> None:
        _check_finite(self)
        _check(self, "topic_weight", self.topic_weight >= 0, "0 or more")
        on = _check_weight(self, "time_in_mesh_weight", 1)
        _check_positive(self, "time_in_mesh_quantum", on)
        _check_positive(self, "time_in_mesh_cap", on)
        on = _check_weight(self, "first_deliveries_weight", 1)
        _check_decay(self, "first_deliveries_decay", on)
        _check_positive(self, "first_deliveries_cap", on)
        on = _check_weight(self, "mesh_deliveries_weight", -1)
        _check_decay(self, "mesh_deliveries_decay", on)
        _check_positive(self, "mesh_deliveries_cap", on)
        _check_positive(self, "mesh_deliveries_threshold", on)
        _check(self, "mesh_deliveries_window", self.mesh_deliveries_window >= 0, "0 or more")
        least = SECOND if on else 0
        _check(self, "mesh_deliveries_activation", self.mesh_deliveries_activation >= least, f"{least} or more")
        _check_decay(self, "mesh_failure_decay", _check_weight(self, "mesh_failure_weight", -1))
        _check_decay(self, "invalid_decay", _check_weight(self, "invalid_weight", -1))


@dataclass(frozen=True)
class PeerScore:
    """Of a peer as a whole. `colocation_free` are networks, such as 10.0.0.0/8, whose addresses many may share."""

    topic_score_cap: float = 20.0  # a guess: many topics do not pay for faults that are of no topic; 0 is none
    app_weight: float = 1.0
    colocation_weight: float = -5.0  # Rust and JavaScript; 15 peers on one address are all graylisted
    colocation_threshold: int = 10  # Rust and JavaScript
    colocation_free: tuple[str, ...] = ()
    behaviour_weight: float = -10.0  # Rust and JavaScript
    behaviour_threshold: float = 2.0  # a guess: a slow link may break two promises in a while; the fifth graylists
    behaviour_decay: float = decay(5 * MINUTE)  # a guess: one broken promise a minute stays below the threshold
    decay_interval: int = SECOND
    decay_to_zero: float = TO_ZERO
    retain: int = HOUR  # Rust and JavaScript

    def __post_init__(self) -> None:
        _check_finite(self)
        _check(self, "topic_score_cap", self.topic_score_cap >= 0, "0 or more")
        on = _check_weight(self, "colocation_weight", -1)
        least = 1 if on else 0
        _check(self, "colocation_threshold", self.colocation_threshold >= least, f"{least} or more")
        for network in self.colocation_free:
            try:
                ip_network(network, strict=False)
            except ValueError:
                raise UsageError(f"colocation_free has {network!r}; it must be of networks such as 10.0.0.0/8") from None
        on = _check_weight(self, "behaviour_weight", -1)
        _check(self, "behaviour_threshold", self.behaviour_threshold >= 0, "0 or more")
        _check_decay(self, "behaviour_decay", on)
        _check(self, "decay_interval", self.decay_interval >= SECOND, f"{SECOND} or more")
        _check(self, "decay_to_zero", 0 < self.decay_to_zero < 1, "above 0 and below 1")
        _check(self, "retain", self.retain >= 0, "0 or more")


@dataclass(frozen=True)
class Thresholds:
    """What a peer loses when its score falls below each; below 0 it is not in any mesh."""

    gossip: float = -10.0  # Rust and JavaScript, and the next two; at the defaults the second invalid message of a newcomer
    publish: float = -50.0
    graylist: float = -80.0  # the third
    accept_px: float = 10.0  # Rust and JavaScript; only who delivers well, or whom the application trusts, comes there
    opportunistic_graft: float = 1.0  # a guess: a mesh that stands for 100 s is above it even where nobody publishes

    def __post_init__(self) -> None:
        _check_finite(self)
        _check(self, "gossip", self.gossip <= 0, "0 or less")
        _check(self, "publish", self.publish <= self.gossip, f"at most gossip, {self.gossip}")
        _check(self, "graylist", self.graylist <= self.publish, f"at most publish, {self.publish}")
        _check(self, "accept_px", self.accept_px >= 0, "0 or more")
        _check(self, "opportunistic_graft", self.opportunistic_graft >= 0, "0 or more")


@dataclass(frozen=True)
class ScoreConfig:
    """`topic` is for every topic that `topics` does not name; where it is None, those do not count."""

    peer: PeerScore = field(default_factory=PeerScore)
    topic: TopicScore | None = field(default_factory=TopicScore)
    thresholds: Thresholds = field(default_factory=Thresholds)
    topics: Mapping[str, TopicScore] = field(default_factory=dict)


def _check(config: object, name: str, holds: bool, allowed: str) -> None:
    if not holds:
        raise UsageError(f"{name} is {getattr(config, name)}; it must be {allowed}")


def _check_finite(config: TopicScore | PeerScore | Thresholds) -> None:
    for each in fields(config):
        value = getattr(config, each.name)
        _check(config, each.name, not isinstance(value, float) or isfinite(value), "a finite number")


def _check_weight(config: object, name: str, sign: int) -> bool:
    """Whether that part counts."""
    weight = getattr(config, name)
    _check(config, name, weight * sign >= 0, "0 or more" if sign > 0 else "0 or less")
    return bool(weight)


def _check_positive(config: object, name: str, on: bool) -> None:
    value = getattr(config, name)
    _check(config, name, value > 0 or (value == 0 and not on), "above 0" if on else "0 or more")


def _check_decay(config: object, name: str, on: bool) -> None:
    """A factor of 1 or more would keep a counter for ever; 0 is for a part that is off."""
    value = getattr(config, name)
    _check(config, name, 0 < value < 1 or (value == 0 and not on), "above 0 and below 1")


DEFAULT = ScoreConfig()

SLOT = 12 * SECOND
EPOCH = 32 * SLOT
ETHEREUM = ScoreConfig(
    peer=PeerScore(
        topic_score_cap=32.72,
        app_weight=1.0,
        colocation_weight=-35.11,
        colocation_threshold=10,
        behaviour_weight=-15.92,
        behaviour_threshold=6.0,
        behaviour_decay=decay(10 * EPOCH, SLOT),
        decay_interval=SLOT,
        decay_to_zero=0.01,
        retain=100 * EPOCH,
    ),
    topic=TopicScore(
        topic_weight=0.8,
        time_in_mesh_weight=10 / 300,
        time_in_mesh_quantum=SLOT,
        time_in_mesh_cap=300.0,
        first_deliveries_weight=1.0,
        first_deliveries_decay=decay(20 * EPOCH, SLOT),
        first_deliveries_cap=23.0,
        mesh_deliveries_weight=0.0,  # off in production; the fields below are those it was meant to have
        mesh_deliveries_decay=decay(5 * EPOCH, SLOT),
        mesh_deliveries_cap=160.0,
        mesh_deliveries_threshold=16.0,
        mesh_deliveries_window=2 * SECOND,
        mesh_deliveries_activation=4 * EPOCH,
        mesh_failure_weight=0.0,
        mesh_failure_decay=decay(5 * EPOCH, SLOT),
        invalid_weight=-140.4475,
        invalid_decay=decay(50 * EPOCH, SLOT),
    ),
    thresholds=Thresholds(-4_000.0, -8_000.0, -16_000.0, 100.0, 5.0),
)

FILECOIN = ScoreConfig(
    peer=PeerScore(
        topic_score_cap=0.0,
        app_weight=0.0,
        colocation_weight=0.0,
        colocation_threshold=1,
        behaviour_weight=0.0,  # the evaluation is older than P7
        behaviour_threshold=0.0,
        behaviour_decay=0.0,
        decay_interval=SECOND,
        decay_to_zero=0.01,
        retain=30 * SECOND,
    ),
    topic=TopicScore(
        topic_weight=0.25,
        time_in_mesh_weight=0.0027,
        time_in_mesh_quantum=SECOND,
        time_in_mesh_cap=3_600.0,
        first_deliveries_weight=0.664,
        first_deliveries_decay=0.9916,
        first_deliveries_cap=1_500.0,
        mesh_deliveries_weight=-0.25,
        mesh_deliveries_decay=0.997,
        mesh_deliveries_cap=400.0,
        mesh_deliveries_threshold=10.0,
        mesh_deliveries_window=5 * MS,
        mesh_deliveries_activation=MINUTE,
        mesh_failure_weight=-0.25,
        mesh_failure_decay=0.997,
        invalid_weight=-99.0,
        invalid_decay=0.9994,
    ),
    thresholds=Thresholds(-4_000.0, -5_000.0, -10_000.0, 0.0, 0.0),
)
