"""Figures and tables of papers, measured again: the paper's value, ours, how far apart they may be, and a picture.

Each figure is one module here and one line of `FIGURES`, under an id `system.what`. The table alone is enough to list
them: a module is imported when its figure is reproduced. `bench.papers.figure` says what a module holds and how it
measures; `bench.papers.picture` draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import NamedTuple

from peer.errors import UsageError


class Listed(NamedTuple):
    """`source` is the paper, and which figure or table of it; or the theory, where no paper measured it."""

    id: str
    module: str
    title: str
    source: str


FIGURES: dict[str, Listed] = {
    figure.id: figure
    for figure in (
        Listed(
            "flood.percolation",
            "bench.papers.flood_percolation",
            "The first flood after a mass crash, on a random 5-regular graph",
            "theory: site percolation (Callaway, Newman, Strogatz and Watts, Phys. Rev. Lett. 85, 2000), which the first"
            " message after failures in Epidemic Broadcast Trees (Leitao, Pereira and Rodrigues, SRDS 2007) follows",
        ),
    )
}


def list_figures() -> list[Listed]:
    return list(FIGURES.values())


def find(ids: Sequence[str]) -> list[Listed]:
    """Each of them once, in that order."""
    for name in ids:
        if name not in FIGURES:
            near = get_close_matches(name, FIGURES, n=1, cutoff=0.0)
            raise UsageError(f'no figure is called {name!r}; did you mean "{near[0]}"? there are: {", ".join(FIGURES)}')
    return [FIGURES[name] for name in dict.fromkeys(ids)]
