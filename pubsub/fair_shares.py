"""Room that peers share: whoever has as much as is left for all others gets no more.

So one peer alone has half of a table at most, two have two thirds, and there is always room for one that has nothing yet. What
is counted, and how much is left, its owner knows.
Bounds: an entry for each peer that has something.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from libweft.peer.machine import Peer

EntryT = TypeVar("EntryT", bound=tuple[Any, ...])


class Shares(dict[Peer, int]):
    """How much each peer has."""

    def admit(self, peer: Peer, left: int) -> bool:
        return self.get(peer, 0) < left

    def gives_way(self, peer: Peer, left: int, entries: Iterable[EntryT]) -> EntryT | None:
        """Which entry goes for a new one of the peer's: its own oldest, if it has its share, or the oldest where nothing is left.

        They come oldest first, and begin with whose they are.
        """
        if peer in self and not self.admit(peer, left):
            return next(entry for entry in entries if entry[0] == peer)
        return next(iter(entries)) if left <= 0 else None

    def take(self, peer: Peer) -> None:
        self[peer] = self.get(peer, 0) + 1

    def give_back(self, peer: Peer) -> None:
        self[peer] -= 1
        if not self[peer]:
            del self[peer]
