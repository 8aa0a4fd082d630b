"""A reproduced figure: its description, and its rows, which are judged here for all figures alike.

A figure's module holds `FIGURE`, a `Figure`: which kinds of trace rows it needs, how many runs, how its rows come from
measurements (`libweft.bench.papers.figure_runs`) and how they are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from libweft.bench.sweep.confidence import half_width
from libweft.peer.errors import WeftError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from libweft.bench.papers.figure_runs import Lab

Measures: TypeAlias = dict[str, Any]
"""The figures of one run, by the names and definitions of `docs/architecture.md`."""

Judged: TypeAlias = Literal["near", "least", "most", "no"]

CONFIDENCE = 0.99


class ReproduceError(WeftError):
    """A run of a figure could not be simulated or analysed; says which, and how to replay it."""


class Row(NamedTuple):
    """One value of a figure. `low` and `high` bound ours with a confidence of 99 %, None where there is only one run.

    `judged`: ours must be near the paper's value, at least that or at most that, each but for the tolerance; or it is shown
    and not judged, because the paper's value is of another system, is known to need what ours is not, or is not there.
    Where the authors' own program was run in the same setting, its value stands in the place of the paper's for that. `costs`
    names what a copy costs in the simulation, where a figure has more than one such model.
    """

    name: str
    paper: float | None
    ours: float
    low: float | None
    high: float | None
    tolerance: float
    judged: Judged = "near"
    program: float | None = None
    costs: str | None = None

    @property
    def ok(self) -> bool | None:
        """|ours - aim| <= tolerance, or that on one side, and nothing else: the interval is shown, not judged.

        So a figure sets its tolerance before it measures, from what the paper leaves open and from the noise that so many
        runs must have; a measurement cannot widen it by being noisy.
        """
        aim = self.paper if self.program is None else self.program
        if aim is None or self.judged == "no":
            return None
        below, above = aim - self.ours <= self.tolerance, self.ours - aim <= self.tolerance
        return {"near": below and above, "least": below, "most": above}[self.judged]

    def to_dict(self) -> dict[str, Any]:
        order = ("name", "costs", "paper", "program", "ours", "low", "high", "tolerance", "judged")
        return {**{name: getattr(self, name) for name in order}, "ok": self.ok}


def measured(
    name: str,
    paper: float | None,
    values: Sequence[float],
    tolerance: float,
    judged: Judged = "near",
    *,
    program: float | None = None,
    costs: str | None = None,
) -> Row:
    """The row of a mean over runs, with Student's interval around it."""
    if not values:
        raise ReproduceError(f"{name}: no run gave a value; ask for more with --runs")
    half = half_width(values, CONFIDENCE)
    ours = fmean(values)
    low, high = (None, None) if half is None else (ours - half, ours + half)
    return Row(name, paper, ours, low, high, tolerance, judged, program, costs)


def number(measures: Measures, *path: str) -> float:
    """A measure that must be there: `number(measures, "latency_ms", "p50")`."""
    value: Any = measures
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if value is None:
        raise ReproduceError(f"{' '.join(path)} could not be measured; replay: {measures.get('command')}")
    return float(value)


class Figure(NamedTuple):
    """`draw` puts onto axes what `rows` came to; `runs` is how many runs a point has, `quick_runs` how many with --quick.

    `wants` are the figures that an analysis leaves out unless it is asked ("messages", "graph"), by the names that
    `libweft.bench.spark.analysis.figures` has for them; with "alone" among them it leaves out all others.
    """

    kinds: tuple[str, ...]
    runs: int
    quick_runs: int
    rows: Callable[[Lab], list[Row]]
    draw: Callable[[Axes, Sequence[Row]], None]
    wants: tuple[str, ...] = ()
