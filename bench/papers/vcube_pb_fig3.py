"""vcube-pb.fig3: hops until subscribers have the message, one publisher, against the number of nodes.

SBRC 2017, section 6: one publisher and five sets of subscribers: all; its neighbours; the first of each level of its tree; a
random quarter and half. The paper's figure is known by its text alone: all grow with the logarithm of N but the neighbours',
which is constant, and random sets are below all. Here a hop takes a millisecond and nothing else takes time, so times are hops.
In the paper's column is the hypercube's own arithmetic, which is to be met exactly: with all, the last hop is log2 N and the
mean log2(N) / 2 * N / (N - 1); a neighbour is one hop away; the first of each level, counted from the largest subtree on, form a
chain of log2 N. Random sets have that of all as their bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from libweft.bench.papers.figure import Figure, Row, measured, number
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.runs.scenario import Scenario, Workload
from libweft.peer.sim.latency import VCubePB
from libweft.peer.trace.kinds import DELIVER, JOINED, LEAVE, NODE_DOWN, PUBLISH

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DIMENSIONS = (3, 5, 7, 9, 11)
QUICK_DIMENSIONS = (3, 5, 7)


class Case(NamedTuple):
    """`last` and `mean` by the number of dimensions, where arithmetic says them; else they are below those of all."""

    name: str
    subscribing: Callable[[int], tuple[int, ...]]
    share: float
    last: Callable[[int], float] | None
    mean: Callable[[int], float] | None


def nobody(d: int) -> tuple[int, ...]:
    return ()


def neighbours(d: int) -> tuple[int, ...]:
    return tuple(1 << s for s in range(d))


def levels(d: int) -> tuple[int, ...]:
    return tuple((1 << d) - (1 << (d - level)) for level in range(1, d + 1))


ALL = Case("all subscribe", nobody, 1.0, float, lambda d: d / 2 * 2**d / (2**d - 1))
CASES = (
    ALL,
    Case("its neighbours subscribe", neighbours, 1.0, lambda d: 1.0, lambda d: 1.0),
    Case("the first of each level subscribe", levels, 1.0, float, lambda d: (d + 1) / 2),
    Case("25% subscribe", nobody, 0.25, None, None),
    Case("50% subscribe", nobody, 0.5, None, None),
)


def rows(lab: Lab) -> list[Row]:
    dimensions = QUICK_DIMENSIONS if lab.quick else DIMENSIONS
    asked = [(case, d, seed) for case in CASES for d in dimensions for seed in lab.seeds[: None if case.last is None else 1]]
    found = lab.measure([scenario(*each) for each in asked])
    told = []
    for case in CASES:
        for d in dimensions:
            runs = [measures for (other, e, _), measures in zip(asked, found, strict=True) if other is case and e == d]
            means, lasts = ([number(m, *path) for m in runs] for path in (("latency_ms", "mean"), ("last_ms",)))
            told += [_row("last", case.last, ALL.last, case, d, lasts), _row("mean", case.mean, ALL.mean, case, d, means)]
    return told


def _row(
    what: str,
    exact: Callable[[int], float] | None,
    bound: Callable[[int], float] | None,
    case: Case,
    d: int,
    values: Sequence[float],
) -> Row:
    known = exact or bound
    assert known is not None
    return measured(_name(what, case, d), known(d), values, 1e-6, "near" if exact is not None else "most")


def _name(what: str, case: Case, d: int) -> str:
    return f"{what} hop, {case.name}, {1 << d} nodes"


def scenario(case: Case, d: int, seed: int) -> Scenario:
    return Scenario(
        stack="vcube/vcube-pb",
        nodes=1 << d,
        seed=seed,
        warmup=2.0,
        window=1.0,
        latency=VCubePB(low=1.0, high=1.0, unit=0.0, linked=True),
        overlay={"start": "oracle"},
        workload=Workload(messages=1, publishing=(0,), subscribing=case.subscribing(d), subscribers=case.share),
    )


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    from libweft.bench.papers import picture

    named = {row.name: row for row in rows}
    for case in CASES:
        shown = [d for d in DIMENSIONS if _name("mean", case, d) in named]
        nodes = [float(1 << d) for d in shown]
        ours = [named[_name("mean", case, d)] for d in shown]
        if case.mean is not None:
            picture.paper(axes, nodes, [case.mean(d) for d in shown], case.name)
        picture.ours(axes, nodes, ours)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("nodes")
    axes.set_ylabel("hops to a subscriber, mean")


FIGURE = Figure(kinds=(PUBLISH, DELIVER, JOINED, LEAVE, NODE_DOWN), runs=40, quick_runs=5, rows=rows, draw=draw)
