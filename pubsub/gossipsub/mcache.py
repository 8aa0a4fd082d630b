"""The message cache: what was validated lately, to be announced and to be sent to who asks (gossipsub-v1.0, "Message Cache").

Messages stand in windows, one a heartbeat, newest first: those of the newest `gossip` are announced, all `history` are sent
to who asks. The gap is for a peer that asks late. How often a message went to a peer is counted, so that the router can end it.
Bounds: `history` windows, `messages`, and `size` bytes as `libweft.pubsub.message.weight` counts them; beyond, the oldest go
first.
"""

from __future__ import annotations

from collections import deque

from libweft.peer.errors import UsageError
from libweft.peer.machine import Peer
from libweft.pubsub.message import Publication, weight

HISTORY, GOSSIP = 5, 3  # gossipsub-v1.0
MESSAGES = 16_384  # a guess: five heartbeats of some thousand messages a second
SIZE = 64 << 20  # a guess

Window = dict[str, dict[bytes, None]]
"""Ids by topic."""


class Cached:
    __slots__ = ("publication", "sent", "weight", "window")

    def __init__(self, publication: Publication, weight: int, window: Window) -> None:
        self.publication = publication
        self.weight = weight
        self.window = window
        self.sent: dict[Peer, int] | None = None  # few messages are ever asked for


class MessageCache:
    def __init__(self, history: int = HISTORY, gossip: int = GOSSIP, messages: int = MESSAGES, size: int = SIZE) -> None:
        if history < 1 or not 0 <= gossip <= history:
            raise UsageError(f"gossip is {gossip} and history {history}; gossip must be 0 to history, and history 1 at least")
        if messages < 1 or size < 1:
            raise UsageError(f"messages and size are {messages} and {size}; each must be 1 at least")
        self.gossip_windows = gossip
        self.messages = messages
        self.size = size
        self.held_bytes = 0
        self._windows: deque[Window] = deque({} for _ in range(history))
        self._cached: dict[bytes, Cached] = {}  # oldest first, as the windows are

    def __len__(self) -> int:
        return len(self._cached)

    def put(self, key: bytes, publication: Publication) -> None:
        """One that is there already stays where it is; one too big for the cache alone is not taken."""
        size = weight(publication)
        if key in self._cached or size > self.size:
            return
        while len(self._cached) >= self.messages or self.held_bytes + size > self.size:
            self._drop(next(iter(self._cached)))
        window = self._windows[0]
        window.setdefault(publication.topic, {})[key] = None
        self._cached[key] = Cached(publication, size, window)
        self.held_bytes += size

    def get(self, key: bytes) -> Publication | None:
        cached = self._cached.get(key)
        return None if cached is None else cached.publication

    def for_peer(self, key: bytes, peer: Peer) -> tuple[Publication, int] | None:
        """The message, and how often that peer has asked for it, this time included."""
        cached = self._cached.get(key)
        if cached is None:
            return None
        if cached.sent is None:
            cached.sent = {}
        count = cached.sent[peer] = cached.sent.get(peer, 0) + 1
        return cached.publication, count

    def gossip(self, topic: str) -> list[bytes]:
        """What to announce, newest window first."""
        recent = [self._windows[number].get(topic, ()) for number in range(self.gossip_windows)]
        return [key for window in recent for key in window]

    def shift(self) -> None:
        """A heartbeat: the oldest window goes, and an empty one is the newest."""
        for keys in tuple(self._windows[-1].values()):
            for key in tuple(keys):
                self._drop(key)
        self._windows.rotate(1)

    def _drop(self, key: bytes) -> None:
        cached = self._cached.pop(key)
        self.held_bytes -= cached.weight
        topic = cached.publication.topic
        del cached.window[topic][key]
        if not cached.window[topic]:
            del cached.window[topic]
