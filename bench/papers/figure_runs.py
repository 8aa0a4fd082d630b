"""The runs of a figure, made by its `Lab`: each scenario is simulated, and Spark analyses its trace.

The lab deletes each trace after its analysis and keeps the measures; the in-process counters are never asked. A run is made in
this process, where it reports its progress; or, where several are to be under way at a time, as a task of Spark, as in a sweep.

It asks of below: `libweft.bench.runs.run.run` for traces and `libweft.bench.spark.analysis.figures` for their measures.
It promises above: the measures of the runs in order; a failed run is named by the command that replays it.
Bounds: on disk are the traces of `MOST_RUNS` runs at once, and no run begins while they have `MOST_ROWS` rows. An interrupted
call that keeps its runs loses those of the last `MOST_SECONDS`.
"""

from __future__ import annotations

import json
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from libweft.bench.papers.figure import Measures, ReproduceError
from libweft.bench.progress import Progress
from libweft.bench.runs.replay import command
from libweft.bench.runs.scenario import Scenario
from libweft.bench.spark.tasks import Pool
from libweft.bench.sweep.run_cache import RunCache, key_of
from libweft.peer.errors import WeftError, one_line
from libweft.peer.sim.simulator import stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Simulate: TypeAlias = Callable[..., object]
Analyse: TypeAlias = Callable[..., list[Measures]]
Begin: TypeAlias = "Callable[[int, Scenario, Path], Future[None]]"

MOST_RUNS = 100  # a call of Spark costs some seconds however little it reads
MOST_ROWS = 8_000_000
MOST_SECONDS = 300.0


class Lab:
    """Makes and measures the runs of a figure; it knows whether to be quick, and how many runs a point has."""

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
