"""What is not listened to: topics a node has no use for, and peers that are shut out.

A subscription filter says of which topics peers' subscriptions are remembered, and how many changes one RPC may bring, so that
nobody fills a node's tables with topics that it will never carry. A blacklist holds peers, for good or for a time.
Bounds: `limit` changes in one RPC; `limit` peers on a blacklist, the oldest forgotten first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from libweft.peer.errors import PeerError, UsageError
from libweft.peer.machine import Peer

CHANGES = 5_000  # js-libp2p; in Rust it is 100, less than a node of Ethereum may have
LISTED = 1 << 16  # a guess


class SubscriptionFilter:
    """`allows` is for the node's own subscriptions too: it joins no topic of which it would hear nothing."""

    def __init__(self, allows: Callable[[str], bool], limit: int = CHANGES) -> None:
        if limit < 1:
            raise UsageError(f"limit is {limit}; it must be 1 at least")
        self.allows = allows
        self.limit = limit

    def filter(self, changes: Sequence[tuple[bool, str]]) -> Sequence[tuple[bool, str]]:
        """Those of allowed topics, each topic once; a subscription and its end in one RPC cancel out."""
        if len(changes) > self.limit:
            raise PeerError(f"{len(changes)} subscriptions in one RPC, more than {self.limit}")
        accepted: dict[str, bool] = {}
        for joins, topic in changes:
            if topic not in accepted:
                if self.allows(topic):
                    accepted[topic] = joins
            elif accepted[topic] != joins:
                del accepted[topic]
        return [(joins, topic) for topic, joins in accepted.items()]


def any_topic(limit: int = CHANGES) -> SubscriptionFilter:
    return SubscriptionFilter(lambda topic: True, limit)


def allow_list(topics: Iterable[str], limit: int = CHANGES) -> SubscriptionFilter:
    return SubscriptionFilter(frozenset(topics).__contains__, limit)


def matching(pattern: str, limit: int = CHANGES) -> SubscriptionFilter:
    """Topics in which the expression is found, anywhere unless it says where. Peers choose the topics: keep it simple."""
    try:
        found = re.compile(pattern).search
    except re.error as error:
        raise UsageError(f"{pattern!r} is no regular expression: {error}") from None
    return SubscriptionFilter(lambda topic: found(topic) is not None, limit)


class Blacklist:
    """With a `ttl` a peer is shut out for that long since it was last added, otherwise until it is removed."""

    def __init__(self, ttl: int | None = None, limit: int = LISTED) -> None:
        if (ttl is not None and ttl < 1) or limit < 1:
            raise UsageError(f"ttl and limit are {ttl} and {limit}; each must be 1 at least")
        self.ttl = ttl
        self.limit = limit
        self._added: dict[Peer, int] = {}

    def __len__(self) -> int:
        return len(self._added)

    def add(self, peer: Peer, now: int) -> None:
        self._added.pop(peer, None)
        self._expire(now)
        if len(self._added) >= self.limit:
            del self._added[next(iter(self._added))]
        self._added[peer] = now

    def remove(self, peer: Peer) -> None:
        self._added.pop(peer, None)

    def has(self, peer: Peer, now: int) -> bool:
        added = self._added.get(peer)
        return added is not None and (self.ttl is None or now < added + self.ttl)

    def _expire(self, now: int) -> None:
        while self.ttl is not None and self._added:
            oldest = next(iter(self._added))
            if now < self._added[oldest] + self.ttl:
                break
            del self._added[oldest]
