"""Graphs for the static overlay: random k-regular, ring, full, Erdos-Renyi, or read from a file.

Each is a list of edges (a, b) with a < b, every edge once, without loops; drawn from the stream of chance that is handed
in, so that the same seed gives the same graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from libweft.peer.errors import UsageError
from libweft.peer.machine import Rng

Edges: TypeAlias = list[tuple[int, int]]

TRIES = 200
NAMED = ("regular", "ring", "full", "er")


def draw(kind: str, nodes: int, degree: int, rng: Rng) -> Edges:
    """The graph of that name; anything that is no name is a file of edges. Connected: random ones are redrawn until they are."""
    check(kind, nodes, degree)
    if kind == "ring":
        return sorted({_edge(i, (i + 1) % nodes) for i in range(nodes) if nodes > 1})
    if kind == "full":
        return [(a, b) for a in range(nodes) for b in range(a + 1, nodes)]
    if kind not in NAMED:
        return read(Path(kind), nodes)
    make = regular if kind == "regular" else erdos_renyi
    for _ in range(TRIES):
        edges = make(nodes, degree, rng)
        if connected(nodes, edges):
            return edges
    raise UsageError(f"no connected {kind} graph of {nodes} nodes with degree {degree} in {TRIES} tries; raise overlay.degree")


def check(kind: str, nodes: int, degree: int) -> None:
    if kind in ("ring", "full") or nodes == 1:
        return
    if kind not in NAMED:
        if not Path(kind).is_file():
            raise UsageError(f"overlay.graph is {kind!r}; it must be one of {', '.join(NAMED)}, or a file of edges")
        read(Path(kind), nodes)
        return
    if not 1 <= degree < nodes:
        raise UsageError(f"overlay.degree is {degree}; with {nodes} nodes it must be from 1 to {nodes - 1}")
    if degree == 1 and nodes > 2:
        raise UsageError(f"overlay.degree is 1; {nodes} nodes cannot be connected by it")


def regular(nodes: int, degree: int, rng: Rng) -> Edges:
    """Every node has exactly `degree` edges: stubs paired at random, bad pairs mended by swaps (Steger and Wormald's idea).

    Where nodes times degree is odd there is no such graph: one node has an edge less (or more, in a dense graph).
    """
    if degree * 2 >= nodes:  # so dense that swaps may find no way out: draw what is missing instead
        return _complement(nodes, degree, rng)
    stubs = [node for node in range(nodes) for _ in range(degree)]
    while True:
        rng.shuffle(stubs)
        pairs = [_edge(stubs[i], stubs[i + 1]) for i in range(0, len(stubs) - 1, 2)]
        if (edges := _mended(pairs, rng)) is not None:
            return sorted(edges)


def erdos_renyi(nodes: int, degree: int, rng: Rng) -> Edges:
    """G(n, m) with the mean degree asked for."""
    wanted = min(nodes * degree // 2, nodes * (nodes - 1) // 2)
    edges: dict[tuple[int, int], None] = {}
    while len(edges) < wanted:
        a, b = rng.randrange(nodes), rng.randrange(nodes)
        if a != b:
            edges[_edge(a, b)] = None
    return sorted(edges)


def read(path: Path, nodes: int) -> Edges:
    """Two numbers a line, separated by blanks or a comma; lines that begin with # are left out."""
    edges: dict[tuple[int, int], None] = {}
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the graph {path} cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        words = line.replace(",", " ").split()
        if not words or words[0].startswith("#"):
            continue
        try:
            a, b = int(words[0]), int(words[1])
        except (ValueError, IndexError):
            raise UsageError(f"the graph {path}, line {number}: expected two node numbers") from None
        if not (0 <= a < nodes and 0 <= b < nodes):
            raise UsageError(f"the graph {path}, line {number}: nodes go from 0 to {nodes - 1}; set nodes higher")
        if a != b:
            edges[_edge(a, b)] = None
    return sorted(edges)


def connected(nodes: int, edges: Sequence[tuple[int, int]]) -> bool:
    return len(distances(nodes, edges, 0)) == nodes


def distances(nodes: int, edges: Iterable[tuple[int, int]], source: int) -> dict[int, int]:
    """Breadth-first distance from the source to every node that it reaches."""
    near: list[list[int]] = [[] for _ in range(nodes)]
    for a, b in edges:
        near[a].append(b)
        near[b].append(a)
    found, frontier = {source: 0}, [source]
    while frontier:
        following = []
        for node in frontier:
            for other in near[node]:
                if other not in found:
                    found[other] = found[node] + 1
                    following.append(other)
        frontier = following
    return found


def _edge(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


def _mended(pairs: Edges, rng: Rng) -> Edges | None:
    """Swap the ends of each loop or double edge with a random good pair, until there is none; None if no swap is found."""
    good: dict[tuple[int, int], None] = {}
    bad: list[tuple[int, int]] = []
    for pair in pairs:
        if pair[0] == pair[1] or pair in good:
            bad.append(pair)
        else:
            good[pair] = None
    edges = list(good)
    for _ in range(TRIES * (1 + len(bad)) if edges else 0):
        if not bad:
            break
        a, b = bad[-1]
        place = rng.randrange(len(edges))
        c, d = edges[place] if rng.getrandbits(1) else edges[place][::-1]
        first, second = _edge(a, c), _edge(b, d)
        if a != c and b != d and first != second and first not in good and second not in good:
            bad.pop()
            del good[edges[place]]
            good[first] = good[second] = None
            edges[place] = first
            edges.append(second)
    return edges if not bad else None


def _complement(nodes: int, degree: int, rng: Rng) -> Edges:
    """A dense regular graph is what a sparse one leaves out."""
    missing = set(regular(nodes, nodes - 1 - degree, rng)) if degree < nodes - 1 else set()
    return [(a, b) for a in range(nodes) for b in range(a + 1, nodes) if (a, b) not in missing]
