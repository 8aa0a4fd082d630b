"""The common part of all reproduced figures: rows that are judged in one place, a lab that measures, and `reproduce`.

A figure's module holds `FIGURE`, a `Figure`: which kinds of trace rows it needs, how many runs, how its rows come from
measurements and how they are drawn. The lab runs each scenario in the simulator, has Spark analyse the trace, deletes
the trace and keeps the measures; the in-process counters are never asked. One Spark session serves all figures. A run is made
here, where it tells how far it is; or, where several are to be under way at a time, as a task of that Spark, as in a sweep.

It asks of below: `libweft.bench.runs.run.run` for traces and `libweft.bench.spark.analysis.figures` for their measures.
It promises above: one object a figure, ready for JSON; a figure that fails has an `error` and costs no other; a failed
run is named by the command that replays it.
Bounds: on disk are the traces of `MOST_RUNS` runs at once, and no run begins while they have `MOST_ROWS` rows; in memory the
measures of one call of `reproduce`. An interrupted call that keeps its runs loses those of the last `MOST_SECONDS`.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from libweft.bench.papers import Listed, find
from libweft.bench.progress import Progress
from libweft.bench.runs.replay import command
from libweft.bench.runs.scenario import Scenario
from libweft.bench.spark.tasks import Pool, SparkExecutor, is_embedded
from libweft.bench.sweep.confidence import half_width
from libweft.bench.sweep.run_cache import RunCache, key_of
from libweft.peer.errors import UsageError, WeftError, one_line
from libweft.peer.sim.simulator import stream

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pyspark.sql import SparkSession

Measures: TypeAlias = dict[str, Any]
"""The figures of one run, by the names and definitions of `docs/architecture.md`."""

Simulate: TypeAlias = Callable[..., object]
Analyse: TypeAlias = Callable[..., list[Measures]]
Begin: TypeAlias = "Callable[[int, Scenario, Path], Future[None]]"
Judged: TypeAlias = Literal["near", "least", "most", "no"]

CONFIDENCE = 0.99
MOST_RUNS = 100  # a call of Spark costs some seconds however little it reads
MOST_ROWS = 8_000_000
MOST_SECONDS = 300.0

log = logging.getLogger(__name__)


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


class Lab:
    """What a figure measures with, and how much of it: whether to be quick, and how many runs a point has."""

    def __init__(
        self,
        spark: SparkSession,
        kinds: Sequence[str],
        wants: Sequence[str] = (),
        *,
        quick: bool = False,
        seed: int = 1,
        runs: int = 1,
        progress: Progress | None = None,
        simulate: Simulate | None = None,
        analyse: Analyse | None = None,
        kept: RunCache | None = None,
        pool: Pool | None = None,
        jobs: int = 1,
    ) -> None:
        self.quick = quick
        self.seed = seed
        self.runs = runs
        self._pool = pool
        self._jobs = jobs
        self._spark = spark
        self._kinds = tuple(kinds)
        self._wants = dict.fromkeys(wants, True)
        self._kept = kept or RunCache()
        self._progress = progress
        self._simulate = simulate or _simulator()
        self._analyse = analyse or _analysis()

    @property
    def seeds(self) -> list[int]:
        """One a run; another `seed` gives all others, where counting on from it would repeat most runs."""
        return stream(self.seed, "reproduce").sample(range(1 << 31), self.runs)

    def measure(self, scenarios: Sequence[Scenario]) -> list[Measures]:
        """The measures of each, in that order. A figure asks once for all of its runs, so that progress is told right.

        A run that is kept, with the same kinds and wants, is not made again: of another figure of the same call, or of one
        before it.
        """
        restricted = {self._key(each): each for each in map(self._restricted, scenarios)}
        found = {key: measures for key in restricted if (measures := self._kept.get(key)) is not None}
        missing = {key: each for key, each in restricted.items() if key not in found}
        for key, measures in zip(missing, self._measured(list(missing.values())), strict=True):
            self._kept.put(key, measures)
            found[key] = measures
        return [found[self._key(self._restricted(each))] for each in scenarios]

    def _key(self, restricted: Scenario) -> str:
        return key_of(restricted, self._wants)

    def _measured(self, scenarios: Sequence[Scenario]) -> Iterator[Measures]:
        done = 0
        with TemporaryDirectory(prefix="weft-reproduce-") as folder, self._runner(len(scenarios)) as begin:
            while done < len(scenarios):
                batch = self._batch(scenarios, done, Path(folder), begin)
                first, done = done + 1, done + len(batch)
                self._tell(done / len(scenarios), f"analysing runs {first} to {done} of {len(scenarios)}")
                found = self._measures(batch)
                for trace in batch:
                    shutil.rmtree(trace)
                yield from found

    def _batch(self, scenarios: Sequence[Scenario], first: int, folder: Path, begin: Begin) -> dict[Path, Scenario]:
        """Simulate from `first` on, in that order, until there is enough for one call of Spark."""
        batch: dict[Path, Scenario] = {}
        under_way: dict[Future[None], Path] = {}
        rows, start = 0, monotonic()
        waiting = deque(range(first, min(first + MOST_RUNS, len(scenarios))))
        while waiting or under_way:
            if waiting and len(under_way) < self._jobs:
                place = waiting.popleft()
                trace = folder / f"run={place - first}"  # by this name Spark reads them quickest
                batch[trace] = scenarios[place]
                under_way[begin(place, batch[trace], trace)] = trace
                continue
            for over in wait(under_way, return_when=FIRST_COMPLETED).done:
                trace = under_way.pop(over)
                with _blaming(batch[trace], "the run failed"):
                    over.result()
                    rows += _rows(trace)
            if self._pool is not None:
                done = first + len(batch) - len(under_way)
                self._tell(done / len(scenarios), f"{done} of {len(scenarios)} runs")
            if rows >= MOST_ROWS or monotonic() - start >= MOST_SECONDS:
                waiting.clear()
        return batch

    @contextmanager
    def _runner(self, runs: int) -> Iterator[Begin]:
        """How a run is begun: in this process, where it is over at once, or in the pool, where none goes on after an error."""
        if self._pool is None:
            yield partial(self._run_here, runs)
            return
        with self._pool() as pool:
            yield lambda place, scenario, trace: pool.submit(run_elsewhere, scenario, trace)

    def _run_here(self, runs: int, place: int, scenario: Scenario, trace: Path) -> Future[None]:
        future: Future[None] = Future()
        try:
            tell = self._progress_of(place, runs)
            self._simulate(scenario, trace=trace, counters=False, hashed=False, progress=tell)
            future.set_result(None)
        except Exception as error:  # noqa: BLE001 - the future hands it to the caller, as that of a pool does
            future.set_exception(error)
        return future

    def _restricted(self, scenario: Scenario) -> Scenario:
        return replace(scenario, trace=replace(scenario.trace, kinds=self._kinds))

    def _measures(self, batch: dict[Path, Scenario]) -> list[Measures]:
        more = f" (or one of {len(batch) - 1} analysed with it)" if len(batch) > 1 else ""
        with _blaming(next(iter(batch.values())), f"the analysis of this run{more} failed"):
            found = self._analyse(self._spark, list(batch), **self._wants)
            if len(found) != len(batch):
                raise WeftError(f"{len(batch)} runs went in and {len(found)} came out")
        return sorted(found, key=lambda measures: int(measures["run"]))

    def _progress_of(self, place: int, runs: int) -> Progress | None:
        if self._progress is None:
            return None
        return lambda share, word: self._tell((place + share) / runs, f"run {place + 1} of {runs}: {word}")

    def _tell(self, share: float, word: str) -> None:
        if self._progress is not None:
            self._progress(share, word)


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


@contextmanager
def _blaming(scenario: Scenario, what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # Spark, Arrow, the system and the simulator each have their own
        raise ReproduceError(f"{what}: {one_line(error)}; replay: {command(scenario)}") from error


def run_elsewhere(scenario: Scenario, trace: Path) -> None:
    """In a worker of the pool, which hands back what it says when it fails."""
    _simulator()(scenario, trace=trace, counters=False, hashed=False)


def _rows(trace: Path) -> int:
    try:
        return int(json.loads((trace / "manifest.json").read_text(encoding="utf-8"))["rows"])
    except FileNotFoundError:
        raise WeftError(f"its trace is not in {trace.parent}: on a cluster TMPDIR must name a folder that all share") from None


def _simulator() -> Simulate:
    from libweft.bench.runs.run import run

    return run


def _analysis() -> Analyse:
    from libweft.bench.spark.analysis import figures

    return figures
