"""An iterative lookup: from contact to contact ever nearer to a place, until the k nearest have all answered.

IPTPS 2002, section 2.3; and, with more than one path, I. Baumgart, S. Mies: "S/Kademlia", ICPADS 2007, section 4.4: those known
at the start are dealt out to the paths, and whoever one path has found is asked by that path alone. So a hostile node
misleads one path at most, and the nearest of all paths together are the answer. There each path also asks all that it began
with: otherwise the first liar fills the k nearest with its like, and nobody else is asked.

It is a table without IO: whoever runs it asks those that `next` names, and tells what became of it.
`alpha` questions are open at a time, at least one a path; one that takes long is told by `lags` and counts no more, so that
a few dead peers do not hold up the rest.
Bounds: k peers are taken of an answer, and WIDTH times k candidates are kept a path.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence

from libweft.overlays.kademlia.space import place_of
from libweft.peer.machine import Peer

WIDTH = 8


class Path:
    """`ranked`: candidates that did not fail, nearest first; `open` are asked and have not answered; `due` must be asked yet."""

    __slots__ = ("due", "lagging", "open", "ranked")

    def __init__(self) -> None:
        self.due: dict[Peer, None] = {}
        self.ranked: list[tuple[int, Peer]] = []
        self.open: dict[Peer, None] = {}
        self.lagging: dict[Peer, None] = {}


class Lookup:
    __slots__ = ("_per_path", "_place", "answered", "asked", "hops", "k", "owner", "paths", "stopped")

    def __init__(self, me: Peer, place: int, start: Sequence[Peer], k: int, alpha: int, paths: int) -> None:
        self._place = place
        self.k = k
        self.paths = [Path() for _ in range(max(1, min(paths, len(start))))]
        self._per_path = max(1, alpha // len(self.paths))
        self.owner: dict[Peer, Path | None] = {me: None}  # all that were ever found
        self.hops: dict[Peer, int] = {}  # questions from here to the peer's name
        self.asked: dict[Peer, None] = {}
        self.answered: dict[Peer, None] = {}
        self.stopped = False
        for number, peer in enumerate(start):
            path = self.paths[number % len(self.paths)]
            self._add(path, peer, 0)
            if len(self.paths) > 1 and self.owner.get(peer) is path:
                path.due[peer] = None

    def next(self) -> list[Peer]:
        """Whom to ask now; nobody when enough is under way."""
        return [] if self.stopped else [peer for path in self.paths for peer in self._next_of(path)]

    def _next_of(self, path: Path) -> list[Peer]:
        chosen = []
        for peer in [*path.due, *(peer for _, peer in path.ranked[: self.k])]:
            if len(path.open) - len(path.lagging) >= self._per_path:
                break
            if peer not in self.asked:
                self.asked[peer] = None
                path.open[peer] = None
                path.due.pop(peer, None)
                chosen.append(peer)
        return chosen

    def heard(self, peer: Peer, closer: Iterable[Peer]) -> None:
        path = self._close(peer)
        if path is not None:
            self.answered[peer] = None
            near = sorted((place_of(other) ^ self._place, other) for other in closer if other not in self.owner)
            for _, other in near[: self.k]:
                self._add(path, other, self.hops[peer] + 1)

    def failed(self, peer: Peer) -> None:
        path = self._close(peer)
        if path is not None:
            path.ranked.remove((place_of(peer) ^ self._place, peer))

    def lags(self, peer: Peer) -> None:
        path = self.owner.get(peer)
        if path is not None and peer in path.open:
            path.lagging[peer] = None

    @property
    def done(self) -> bool:
        """The k nearest of each path have answered, or it was stopped."""
        return self.stopped or not any(
            path.due or any(peer not in self.answered for _, peer in path.ranked[: self.k]) for path in self.paths
        )

    @property
    def nearest(self) -> list[Peer]:
        """Of those that answered, nearest first."""
        found = sorted((place_of(peer) ^ self._place, peer) for peer in self.answered)
        return [peer for _, peer in found[: self.k]]

    def _add(self, path: Path, peer: Peer, hops: int) -> None:
        if peer not in self.owner:
            self.owner[peer] = path
            self.hops[peer] = hops
            insort(path.ranked, (place_of(peer) ^ self._place, peer))
            if len(path.ranked) > WIDTH * self.k:
                self._narrow(path)

    def _narrow(self, path: Path) -> None:
        """The farthest that was not asked goes, and is forgotten."""
        for at in range(len(path.ranked) - 1, -1, -1):
            peer = path.ranked[at][1]
            if peer not in self.asked:
                del path.ranked[at], self.owner[peer], self.hops[peer]
                path.due.pop(peer, None)
                return

    def _close(self, peer: Peer) -> Path | None:
        path = self.owner.get(peer)
        if path is None or peer not in path.open:
            return None
        del path.open[peer]
        path.lagging.pop(peer, None)
        return path
