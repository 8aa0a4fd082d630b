"""Room that peers share: whoever has as much as is left for all others gets no more.

So one peer alone has half of a table at most, two have two thirds, and there is always room for one that has nothing yet. What
is counted, and how much is left, its owner knows.
Bounds: an entry for each peer that has something.
"""

from __future__ import annotations

from peer.machine import Peer


class Shares(dict[Peer, int]):
    """How much each peer has."""

    def admit(self, peer: Peer, left: int) -> bool:
        return self.get(peer, 0) < left

    def take(self, peer: Peer) -> None:
        self[peer] = self.get(peer, 0) + 1

    def give_back(self, peer: Peer) -> None:
        self[peer] -= 1
        if not self[peer]:
            del self[peer]
