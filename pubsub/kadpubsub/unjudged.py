"""What a node holds for messages on their way: lists that wait for a verdict, and the bytes of all that waits.

A message is handed on only after validation, so its lists wait for the verdict; each goes back if there is no room for it.
Bounds: MESSAGES that are not judged, LISTS of each with SUBSCRIBERS in all; `held_bytes` together with the tasks of the tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from libweft.peer.machine import MessageId, Peer, PeerInfo
from libweft.pubsub.kadpubsub.messages import SUBSCRIBERS, Delegate

MESSAGES = 1_024
LISTS = 4  # a message comes again when somebody was taken for lost, which is seldom


class Held:
    """Bytes of what waits in lists and tasks, about."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0

    def fits(self, size: int) -> bool:
        """One thing always does, however large."""
        return not self.bytes or self.bytes + size <= self.limit


class Entrusted(NamedTuple):
    """A list that came from one peer; the message that it came with is not kept here."""

    sender: Peer
    hops: int
    rest: Sequence[PeerInfo]


class Unjudged:
    """Lists of messages that validation has not judged yet."""

    def __init__(self, held: Held) -> None:
        self.lists: dict[MessageId, list[Entrusted]] = {}
        self._held = held

    def __contains__(self, key: MessageId) -> bool:
        return key in self.lists

    def add(self, sender: Peer, m: Delegate) -> bool:
        """False when there is no room for it."""
        lists, size = self.lists.get(m.id, []), load(m.rest)
        if len(lists) >= LISTS or (not lists and len(self.lists) >= MESSAGES) or not self._held.fits(size):
            return False
        if sum(len(entrusted.rest) for entrusted in lists) + len(m.rest) > SUBSCRIBERS:
            return False
        self._held.bytes += size
        self.lists[m.id] = [*lists, Entrusted(sender, m.hops, m.rest)]
        return True

    def pop(self, key: MessageId) -> Sequence[Entrusted]:
        lists = self.lists.pop(key, [])
        self._held.bytes -= sum(load(entrusted.rest) for entrusted in lists)
        return lists


def load(infos: Iterable[PeerInfo]) -> int:
    """About the bytes that a list takes in memory, with what the tree keeps of each in it."""
    return 128 + sum(256 + sum(64 + len(text) for text in info.addresses) + len(info.record or b"") for info in infos)
