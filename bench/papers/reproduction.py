"""`weft reproduce`: figures of papers are measured again, one after the other, and drawn.

One Spark session serves all figures. A call returns one object per figure, ready for JSON; a figure that fails has an `error`,
and costs no other. Bounds: in memory are the measures of one call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from libweft.bench.papers import Listed, find
from libweft.bench.papers.figure import Figure
from libweft.bench.papers.figure_runs import MOST_RUNS, Lab
from libweft.bench.progress import Progress
from libweft.bench.spark.tasks import SparkExecutor, is_embedded
from libweft.bench.sweep.run_cache import RunCache
from libweft.peer.errors import UsageError, WeftError, one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


def reproduce(
    ids: Sequence[str],
    *,
    spark: SparkSession,
    quick: bool = False,
    seed: int = 1,
    runs: int | None = None,
    pictures: Path | None = None,
    keep: Path | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Return one object per figure, in the order of `ids`, which are ids and shell patterns of ids.

    `pictures` is a folder that gets a PNG of each figure, named by its id.
    `keep` is a folder that gets the measures of each run, so that a call that was interrupted goes on when it is repeated.
    `jobs` runs are simulated at a time, as tasks of that Spark where they are several; the results are the same. Without it that
    is one on an embedded Spark, and on a cluster as many as it takes. A cluster must see the folder for temporary files (TMPDIR).

    Without `runs` each figure has its own number of them; the object says how many it was, at most: where runs take minutes a
    figure may have fewer.
    """
    if runs is not None and runs < 1:
        raise UsageError(f"--runs is {runs}; it must be 1 at least")
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs is {jobs}; it must be 1 at least")
    jobs = jobs or (1 if is_embedded(spark) else MOST_RUNS)
    if pictures is not None:
        _prepare(pictures)
    listed = find(ids)
    results = []
    kept = RunCache(keep)
    for done, figure in enumerate(listed):
        order = _Order(spark, quick, seed, runs, pictures, _part(progress, figure.id, done, len(listed)), kept, jobs)
        results.append(_reproduced(figure, order))
    return results


class _Order(NamedTuple):
    """The arguments of one call of `reproduce`."""

    spark: SparkSession
    quick: bool
    seed: int
    runs: int | None
    pictures: Path | None
    progress: Progress | None
    kept: RunCache
    jobs: int

    def lab(self, figure: Figure) -> Lab:
        alone = self.jobs == 1 and is_embedded(self.spark)
        return Lab(
            self.spark,
            figure.kinds,
            figure.wants,
            quick=self.quick,
            seed=self.seed,
            runs=self.runs or (figure.quick_runs if self.quick else figure.runs),
            progress=self.progress,
            kept=self.kept,
            pool=None if alone else partial(SparkExecutor, self.spark, self.jobs),
            jobs=self.jobs,
        )


def _reproduced(listed: Listed, order: _Order) -> dict[str, Any]:
    """Return the figure's object. A failure keeps what came before it: rows whose picture cannot be drawn are still rows."""
    entry: dict[str, Any] = {"id": listed.id, "title": listed.title, "paper": listed.paper, "source": listed.source}
    entry |= {"quick": order.quick, "seed": order.seed, "runs": order.runs, "rows": [], "picture": None}
    try:
        figure: Figure = import_module(listed.module).FIGURE
        lab = order.lab(figure)
        entry["runs"] = lab.runs
        rows = figure.rows(lab)
        entry["rows"] = [row.to_dict() for row in rows]
        if order.pictures is not None:
            path = order.pictures / f"{listed.id}.png"
            _draw(path, listed, lab, lambda axes: figure.draw(axes, rows))
            entry["picture"] = str(path)
    except Exception as error:  # whatever it is, it is this figure's alone
        if not isinstance(error, WeftError):
            log.exception("%s failed", listed.id)
        entry["error"] = one_line(error)
    return entry


def _part(progress: Progress | None, name: str, done: int, parts: int) -> Progress | None:
    if progress is None:
        return None
    return lambda share, word: progress((done + share) / parts, f"{name}: {word}")


def _prepare(pictures: Path) -> None:
    """Before hours of runs, not after them."""
    from libweft.bench.papers.picture import require

    require()
    try:
        pictures.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the folder {pictures} for the pictures cannot be made: {error.strerror}") from error


def _draw(path: Path, listed: Listed, lab: Lab, draw: Callable[[Axes], None]) -> None:
    from libweft.bench.papers.picture import save

    runs = "one run" if lab.runs == 1 else f"{lab.runs} runs at most"
    about = f"{runs} a point, seed {lab.seed}{', quick' if lab.quick else ''}"
    save(path, listed.title, f"{listed.origin}; {about}", draw)
