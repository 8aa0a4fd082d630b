"""Pictures of reproduced figures: PNG by matplotlib, drawn in memory, so no display and no global state is needed.

The paper's side is a black dashed line, ours are blue circles with whiskers for the interval: told apart by shape as
well as by colour, and the colours are two of Okabe and Ito's, which colour-blind readers tell apart too. The same rows
give the same picture.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from libweft.bench.papers.figure import CONFIDENCE, Row
from libweft.peer.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INSTALL = "pictures need matplotlib: pip install 'libweft[spark]'"
BLACK, BLUE = "#000000", "#0072B2"


def require() -> None:
    """Raises a UsageError where nothing could be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UsageError(INSTALL) from error


def save(path: Path, title: str, caption: str, draw: Callable[[Axes], None]) -> None:
    """A picture of one pair of axes."""
    require()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    draw(axes)
    axes.set_title(title)
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend()
    figure.supxlabel(fill(caption, 110), fontsize=7)
    figure.savefig(path, dpi=150, metadata={"Software": None})  # the version of matplotlib is no part of a result


def paper(axes: Axes, places: Sequence[float], values: Sequence[float | None], label: str = "paper") -> None:
    axes.plot(places, [math.nan if value is None else value for value in values], color=BLACK, linestyle="--", label=label)


def ours(axes: Axes, places: Sequence[float], rows: Sequence[Row]) -> None:
    """Each row at its place on the x axis, with its interval where it has one."""
    lows = [row.ours - row.low if row.low is not None else 0.0 for row in rows]
    highs = [row.high - row.ours if row.high is not None else 0.0 for row in rows]
    label = f"ours, {CONFIDENCE:.0%} interval" if any(lows) or any(highs) else "ours"
    if label in axes.get_legend_handles_labels()[1]:  # further rows of the same figure
        label = "_"
    axes.errorbar(places, [row.ours for row in rows], yerr=(lows, highs), fmt="o", color=BLUE, capsize=5, label=label)
