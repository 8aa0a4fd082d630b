"""Promises: whoever announces messages has them, and sends those that are asked for.

Of the ids that one IWANT asks for, one is drawn and remembered with a deadline: to announce what one has not is found out
sooner or later, and no list of all ids is kept. A promise is kept when the message comes from anybody, since it is
then no longer sent by the one who was asked; an older promise of the same peer for the same id keeps its deadline.
Bounds: `limit` promises, `each` of them of one peer, so that a liar leaves room for others; further ones are not remembered,
and of a long id its hash is.
"""

from __future__ import annotations

from collections.abc import Sequence

from libweft.peer.errors import UsageError
from libweft.peer.machine import SECOND, Peer, Rng
from libweft.pubsub.gossipsub.ids import short

FOLLOWUP = 3 * SECOND  # Go, Rust and JavaScript
LIMIT = 8_192  # a guess
EACH = 64  # a guess: ten announcements a heartbeat are answered, for three heartbeats


class Promises:
    """`_due` is in the order of deadlines, since all promises are for the same time."""

    def __init__(self, followup: int = FOLLOWUP, limit: int = LIMIT, each: int = EACH) -> None:
        if followup < 1 or limit < 1 or each < 1:
            raise UsageError(f"followup, limit and each are {followup}, {limit} and {each}; each must be 1 at least")
        self.followup = followup
        self.limit = limit
        self.each = each
        self._due: dict[tuple[Peer, bytes], int] = {}
        self._peers: dict[bytes, dict[Peer, None]] = {}
        self._keys: dict[Peer, dict[bytes, None]] = {}

    def __len__(self) -> int:
        return len(self._due)

    def promise(self, peer: Peer, keys: Sequence[bytes], now: int, rng: Rng) -> None:
        """The peer announced these, and is asked for them now."""
        if not keys:
            return
        key = short(keys[rng.randrange(len(keys))])
        held = self._keys.get(peer, {})
        if key in held or len(held) >= self.each or len(self._due) >= self.limit:
            return
        self._due[peer, key] = now + self.followup
        self._peers.setdefault(key, {})[peer] = None
        self._keys.setdefault(peer, {})[key] = None

    def kept(self, key: bytes) -> None:
        """The message is here, or under validation; called for every message."""
        key = short(key)
        if key in self._peers:
            for peer in tuple(self._peers[key]):
                self._end(peer, key)

    def void(self, peer: Peer) -> None:
        """It owes nothing more: its messages were not looked at, so that it may have kept every promise."""
        for key in tuple(self._keys.get(peer, ())):
            self._end(peer, key)

    left = void
    """A link that is gone brings nothing, and its end is no fault."""

    def broken(self, now: int) -> dict[Peer, int]:
        """How many promises each peer broke since the last call; they are over with that."""
        found: dict[Peer, int] = {}
        while self._due:
            (peer, key), deadline = next(iter(self._due.items()))
            if deadline >= now:
                break
            found[peer] = found.get(peer, 0) + 1
            self._end(peer, key)
        return found

    def _end(self, peer: Peer, key: bytes) -> None:
        del self._due[peer, key], self._peers[key][peer], self._keys[peer][key]
        if not self._peers[key]:
            del self._peers[key]
        if not self._keys[peer]:
            del self._keys[peer]
