"""The overlay at one moment: nodes and the links between them, as one drawing a run, on the rings of `rings.py`.

All links are one path and nodes are three, by how many links they have, so that a thousand nodes are a few tens of kilobytes
and there without scripts. Links beyond the bound of the analysis are a sample, and the caption says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import inf

from libweft.bench.report.cards import card, more, nothing
from libweft.bench.report.input import Given
from libweft.bench.report.picture import FIRST, Picture
from libweft.bench.report.rings import SIZE, Rings, rings
from libweft.bench.report.text import escape

SHOWN = 4
DENSE = 1_200  # links from which on each is drawn fainter
LABELS = 8  # rings that have their number written


def meshes(given: Given) -> str:
    """A card a run; the runs beyond SHOWN for who asks."""
    if not given.pictures:
        return ""
    labels = {run.number: run.title for run in given.runs}
    cards = [_mesh(picture, labels.get(picture.run, f"run {picture.run}")) for picture in given.pictures]
    rest = more(f"The overlays of the other runs ({len(cards) - SHOWN})", cards[SHOWN:])
    return f'<div class="cards meshes">{"".join(cards[:SHOWN])}{rest}</div>'


def _mesh(picture: Picture, label: str) -> str:
    if not picture.links:
        return nothing(label, "the trace tells of no neighbours at that moment")
    degrees = Counter(node for link in picture.links for node in link)
    sizes = [degrees[node] for node in range(len(picture.nodes))]
    groups = _groups(sizes)
    about = _about(picture)
    drawn = _drawing(picture, rings(picture), groups, sizes)
    spots = [f'<path class="spot size{size}" d="M7 6h0"/>' for size in range(len(groups))]
    keys = [f'<svg width="14" height="12" aria-hidden="true">{spot}</svg>' for spot in spots]
    legend = "".join(f"<li>{key}{_links(*ends)}</li>" for key, ends in zip(keys, groups, strict=True))
    key = f"mesh-{picture.run}"
    svg = (
        f'<svg class="mesh{" dense" if len(picture.links) > DENSE else ""}" role="img" viewBox="0 0 {SIZE} {SIZE}" '
        f'aria-labelledby="{key}-title {key}-desc"><title id="{key}-title">{escape(f"Overlay: {label}")}</title>'
        f'<desc id="{key}-desc">{escape(about)}</desc>{drawn}</svg><ul class="legend">{legend}</ul>'
    )
    return card(label, about, svg)


def _about(picture: Picture) -> str:
    links, nodes = picture.told.get("links", len(picture.links)), len(picture.nodes)
    sample = f" A sample of {len(picture.links):,} links is drawn." if links > len(picture.links) else ""
    reached = sum(event.what == FIRST for event in picture.events)
    return f"{nodes:,} nodes, {links:,} links, {2 * links / nodes:.1f} a node; {reached:,} nodes got the message.{sample}"


def _groups(degrees: Sequence[int]) -> list[tuple[int, int]]:
    """Ends of up to three ranges of degrees that hold about as many nodes each, none empty."""
    ordered = sorted(degrees)
    lows = sorted({ordered[len(ordered) * third // 3] for third in range(3)})
    parts = [[degree for degree in ordered if low <= degree and not degree >= above] for low, above in pairwise([*lows, inf])]
    return [(int(part[0]), int(part[-1])) for part in parts]


def _links(low: int, high: int) -> str:
    return f"{low} {'link' if low == 1 else 'links'}" if low == high else f"{low}\u2013{high} links"


def _drawing(picture: Picture, found: Rings, groups: Sequence[tuple[int, int]], degrees: Sequence[int]) -> str:
    middle = SIZE // 2
    circles = "".join(f'<circle class="ring" cx="{middle}" cy="{middle}" r="{radius:.0f}"/>' for radius in found.radii[1:])
    every = -(-len(found.radii[1:]) // LABELS) or 1
    names = "".join(
        f'<text class="hop" x="{middle}" y="{middle - radius:.0f}">{hops}</text>'
        for hops, radius in enumerate(found.radii)
        if hops and hops % every == 0
    )
    lines = "".join(f"M{_at(found, a)}L{_at(found, b)}" for a, b in picture.links)
    spots = ""
    for size, (low, high) in enumerate(groups):
        group = (node for node, degree in enumerate(degrees) if low <= degree <= high)
        spots += f'<path class="spot size{size}" d="{_spots(found, group)}"/>'
    x, y = found.places[picture.publisher]
    root = f'<rect class="root" x="{x - 9}" y="{y - 9}" width="18" height="18"><title>publisher</title></rect>'
    return f'{circles}<path class="links" d="{lines}"/>{spots}{root}{names}'


def _spots(found: Rings, nodes: Iterable[int]) -> str:
    return "".join(f"M{_at(found, node)}h0" for node in nodes)


def _at(found: Rings, node: int) -> str:
    return "{} {}".format(*found.places[node])
