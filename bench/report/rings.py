"""Where the nodes of a picture stand: the publisher in the middle, the others on rings, by the hops that the message took.

A node stands in the sector of who sent it its first copy, and a sector is as wide as it has ends: the tree of first copies is
drawn without crossings, whatever its size, by one pass and no chance. A node that got no copy stands one ring beyond a neighbour,
as if that had sent one; one without links to any other stands on the outermost ring. Half of a ring's radius is by its number and
half by how many nodes are within it, so that full rings get room.

Promises places inside a square of SIZE, the same for the same picture.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import accumulate
from math import cos, pi, sin, sqrt
from typing import NamedTuple

from libweft.bench.report.picture import FIRST, Picture

SIZE = 1_000
MARGIN = 16


class Rings(NamedTuple):
    places: list[tuple[int, int]]
    """Of each node."""
    depths: list[int]
    radii: list[float]
    """Of each ring; the first is the middle."""


def rings(picture: Picture) -> Rings:
    children, depths = _tree(picture)
    radii = _radii(depths)
    angles = _angles(picture.publisher, children, len(depths))
    middle = SIZE / 2
    places = [
        (round(middle + radii[depth] * sin(angle)), round(middle - radii[depth] * cos(angle)))
        for depth, angle in zip(depths, angles, strict=True)
    ]
    return Rings(places, depths, radii)


def _tree(picture: Picture) -> tuple[list[list[int]], list[int]]:
    """Who stands beyond whom, and on which ring. Events come by time, so whoever sends a copy has been placed before, but for
    clocks that disagree; what such a one sends hangs on the publisher."""
    count = len(picture.nodes)
    children: list[list[int]] = [[] for _ in range(count)]
    depths = [-1] * count
    depths[picture.publisher] = 0

    def hang(node: int, parent: int) -> None:
        depths[node] = depths[parent] + 1
        children[parent].append(node)

    for event in picture.events:
        if event.what == FIRST and depths[event.target] < 0:
            hang(event.target, event.source if depths[event.source] >= 0 else picture.publisher)
    near: list[list[int]] = [[] for _ in range(count)]
    for a, b in picture.links:
        near[a].append(b)
        near[b].append(a)
    waiting = deque(node for node in range(count) if depths[node] >= 0)
    while waiting:
        node = waiting.popleft()
        for other in near[node]:
            if depths[other] < 0:
                hang(other, node)
                waiting.append(other)
    outermost = max([1, *depths])
    for node in (node for node in range(count) if depths[node] < 0):
        hang(node, picture.publisher)
        depths[node] = outermost
    return children, depths


def _angles(root: int, children: list[list[int]], count: int) -> list[float]:
    """Each node in the middle of its sector; sectors of children share that of their parent by their ends."""
    order = [root]
    for node in order:  # grows while it is walked
        order += children[node]
    ends = [0] * count
    for node in reversed(order):
        ends[node] = sum(ends[child] for child in children[node]) or 1
    angles, begins, share = [0.0] * count, [0.0] * count, 2 * pi / ends[root]
    for node in order:
        angles[node] = begins[node] + share * ends[node] / 2
        begin = begins[node]
        for child in children[node]:
            begins[child] = begin
            begin += share * ends[child]
    return angles


def _radii(depths: list[int]) -> list[float]:
    deepest, others = max([1, *depths]), max(1, len(depths) - 1)
    on, full = Counter(depths), SIZE / 2 - MARGIN
    within = accumulate(on[depth] for depth in range(1, deepest + 1))
    return [0.0, *(full * (depth / deepest + sqrt(inner / others)) / 2 for depth, inner in enumerate(within, 1))]
