"""The gater: under overload, whose messages are looked at is drawn by lot, and who sent waste has fewer chances.

As the peer gater of go-libp2p-pubsub, a random early drop. While validation keeps up it lets all pass: when nothing was
throttled for `quiet`, or throttled messages are few beside those that were validated. Otherwise messages of a peer are taken
with the odds (1 + delivered) / (1 + delivered + duplicate, ignored and rejected by their weights); its control is read all the
same. What is counted is counted for an address, IPv6 by its /64, so that many names on one machine share it. A peer whose
address is unknown, or loopback, stands for itself.
Bounds: `sources` addresses nobody is left of, the oldest forgotten first, each for `retain`; the others have a peer each.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from libweft.peer.errors import UsageError
from libweft.peer.machine import SECOND, Peer, Rng
from libweft.pubsub.gossipsub.colocation import address_keys
from libweft.pubsub.gossipsub.counters import decayed
from libweft.pubsub.gossipsub.score_config import HOUR, MINUTE, TO_ZERO, decay


@dataclass(frozen=True)
class GaterConfig:
    """Times in microseconds. All defaults but `sources` are those of go-libp2p-pubsub."""

    threshold: float = 0.33  # throttled to validated messages
    quiet: int = MINUTE
    global_decay: float = decay(2 * MINUTE)
    source_decay: float = decay(HOUR)
    decay_interval: int = SECOND
    decay_to_zero: float = TO_ZERO
    retain: int = 6 * HOUR
    duplicate_weight: float = 0.125
    ignore_weight: float = 1.0
    reject_weight: float = 16.0
    sources: int = 4_096  # a guess

    def __post_init__(self) -> None:
        between = {name: 0 < getattr(self, name) < 1 for name in ("global_decay", "source_decay", "decay_to_zero")}
        least = {"quiet": SECOND, "decay_interval": SECOND, "retain": 0, "ignore_weight": 1, "reject_weight": 1, "sources": 1}
        above = {name: 0 < getattr(self, name) < float("inf") for name in ("threshold", "duplicate_weight")}
        for name, holds in between.items():
            if not holds:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be above 0 and below 1")
        for name, holds in above.items():
            if not holds:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be above 0")
        for name, bound in least.items():
            if not bound <= getattr(self, name) < float("inf"):
                raise UsageError(f"{name} is {getattr(self, name)}; it must be {bound} at least")


class Source:
    """What came from one address, and how many peers are there now."""

    __slots__ = ("delivered", "duplicate", "expires", "ignored", "peers", "rejected")

    def __init__(self) -> None:
        self.peers = 0
        self.expires = 0
        self.delivered = 0.0
        self.duplicate = 0.0
        self.ignored = 0.0
        self.rejected = 0.0

    def tick(self, factor: float, to_zero: float) -> None:
        self.delivered = decayed(self.delivered, factor, to_zero)
        self.duplicate = decayed(self.duplicate, factor, to_zero)
        self.ignored = decayed(self.ignored, factor, to_zero)
        self.rejected = decayed(self.rejected, factor, to_zero)


class Gater:
    """Counts of peers that did not join are dropped."""

    def __init__(self, config: GaterConfig, rng: Rng) -> None:
        self.config = config
        self._rng = rng
        self._validated = 0.0
        self._throttled = 0.0
        self._throttled_at: int | None = None
        self._keys: dict[Peer, str | Peer] = {}
        self._peers: dict[Peer, Source] = {}
        self._sources: dict[str | Peer, Source] = {}
        self._left: dict[str | Peer, Source] = {}  # those of `_sources` that nobody is left of, oldest first

    def join(self, peer: Peer, ip: str | None) -> None:
        if peer in self._keys:
            return
        keys = address_keys(ip)
        key: str | Peer = keys[-1] if keys else peer
        source = self._sources.setdefault(key, Source())
        source.peers += 1
        self._left.pop(key, None)
        self._keys[peer], self._peers[peer] = key, source

    def left(self, peer: Peer, now: int) -> None:
        key, source = self._keys.pop(peer, None), self._peers.pop(peer, None)
        if key is None or source is None:
            return
        source.peers -= 1
        if not source.peers:
            source.expires = now + self.config.retain
            self._left[key] = source
            if len(self._left) > self.config.sources:
                self._forget(next(iter(self._left)))

    def validated(self) -> None:
        """A message goes to validation."""
        self._validated += 1

    def throttled(self, now: int) -> None:
        """One found no room there."""
        self._throttled += 1
        self._throttled_at = now

    def delivered(self, peer: Peer) -> None:
        if (source := self._peers.get(peer)) is not None:
            source.delivered += 1

    def duplicate(self, peer: Peer) -> None:
        if (source := self._peers.get(peer)) is not None:
            source.duplicate += 1

    def ignored(self, peer: Peer) -> None:
        if (source := self._peers.get(peer)) is not None:
            source.ignored += 1

    def rejected(self, peer: Peer) -> None:
        if (source := self._peers.get(peer)) is not None:
            source.rejected += 1

    def accepts(self, peer: Peer, now: int) -> bool:
        """Whether messages of that peer are looked at now; chance is asked only where the odds are below one."""
        if not self._throttled or not self._overloaded(now) or (source := self._peers.get(peer)) is None:
            return True
        config = self.config
        total = source.delivered + config.duplicate_weight * source.duplicate
        total += config.ignore_weight * source.ignored + config.reject_weight * source.rejected
        return total == 0 or self._rng.random() < (1 + source.delivered) / (1 + total)

    def refresh(self, now: int) -> None:
        """The tick: all counts decay, and of sources that nobody is left of, those whose time has come are forgotten."""
        config = self.config
        self._validated = decayed(self._validated, config.global_decay, config.decay_to_zero)
        self._throttled = decayed(self._throttled, config.global_decay, config.decay_to_zero)
        for key, _ in list(takewhile(lambda held: held[1].expires <= now, self._left.items())):
            self._forget(key)
        for source in self._sources.values():
            if source.peers and (source.delivered or source.duplicate or source.ignored or source.rejected):
                source.tick(config.source_decay, config.decay_to_zero)

    def _overloaded(self, now: int) -> bool:
        if self._throttled_at is None or now - self._throttled_at > self.config.quiet:
            return False
        return self._throttled >= self.config.threshold * self._validated

    def _forget(self, key: str | Peer) -> None:
        del self._sources[key], self._left[key]
