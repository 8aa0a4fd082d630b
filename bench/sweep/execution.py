"""Many simulations: what is not known yet is run, all at once as far as the pool goes, and summed up over the seeds.

A run is one call of `simulated` in a worker of the pool: Spark's on the command line (`libweft.bench.spark.tasks`). Its measures
are those of the in-process counters, whose definitions are Spark's (`tests/bench/spark/test_agreement.py` holds them together),
so that no trace need be written. They come back to this process, which keeps each when it comes, in a file named by the hash of
scenario and code (`libweft.bench.sweep.run_cache`): an end at any moment loses the runs that were under way, and a sweep that is
repeated, or has got more seeds, runs the rest alone. A run that fails costs no other and is not kept.

It promises above: results that depend on the plan and the code, not on the number of workers or the order they finish in;
`cpu_s` and `pool` alone are of the machine. An interval is Student's, for 95 %, of the mean over the seeds.
Bounds: those of the plan; the measures of all runs are in memory.
"""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryFile
from time import monotonic, process_time
from typing import Any, TypeAlias

from libweft.bench.progress import Progress
from libweft.bench.runs.replay import command
from libweft.bench.runs.scenario import Scenario
from libweft.bench.runs.toml_values import inline
from libweft.bench.spark.tasks import Pool
from libweft.bench.sweep.confidence import half_width
from libweft.bench.sweep.plan import Plan, Point, Run
from libweft.bench.sweep.run_cache import RunCache, key_of
from libweft.peer.errors import UsageError, WeftError, one_line

Row: TypeAlias = dict[str, Any]

CONFIDENCE = 0.95
NO_MEASURES = ("stack", "nodes", "seed", "window_s", "trace", "peak_rss_mb", "events_per_cpu_s", "task_cpu_s")
"""What a run tells that the scenario says already, or that in a worker is of other runs too, or of its start."""


def sweep(
    plan: Plan, pool: Pool, kept: RunCache, *, traces: Path | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Points, runs and failures, ready for JSON; `pool` is opened only if there is something to run.

    `traces` is a folder that gets the trace of each run, under the name of its hash.
    """
    tell = progress or (lambda share, word: None)
    runs = {key_of("sweep", run.scenario): run for run in plan.runs}
    missing = {key: run for key, run in runs.items() if not _is_done(key, kept, traces)}
    errors: dict[str, str] = {}
    used = _Used()
    if missing:
        tell(1 - len(missing) / len(runs), "starting the workers")
        with pool() as executor:
            used.opened()
            for left, (key, outcome) in enumerate(_simulated(executor, missing, traces), 1 - len(missing)):
                used.answered(0.0 if isinstance(outcome, str) else outcome["task_cpu_s"])
                if isinstance(outcome, str):
                    errors[key] = outcome
                else:
                    kept.put(key, outcome)
                failed = f", {len(errors)} failed" if errors else ""
                tell(1 + left / len(runs), f"{len(runs) + left} of {len(runs)} runs{failed}")
    fine = {key: run for key, run in runs.items() if key not in errors}
    rows = {key: _row(run, found, traces and traces / key) for key, run in fine.items() if (found := kept.get(key))}
    return {
        "points": _summaries(plan.points, runs, rows),
        "failures": [_failure(runs[key], errors[key]) for key in runs if key in errors],
        "seeds": list(plan.seeds),
        "simulated": len(missing) - len(errors),
        "known_before": len(runs) - len(missing),
        "pool": used.told() if missing else None,
        "runs": list(rows.values()),
    }


def simulated(scenario: Scenario, key: str, trace: Path | None) -> Row:
    """Runs in a worker. A trace appears under its name when it is whole."""
    if key_of("sweep", scenario) != key:
        raise WeftError("the worker has other code or another Python than who asked it; install the same there")
    from libweft.bench.runs.run import run

    began = process_time()
    if trace is None:
        result = run(scenario)
    else:
        half = trace.with_name(f"{trace.name}.part")
        for old in (half, trace):
            shutil.rmtree(old, ignore_errors=True)
        result = run(scenario, trace=half) | {"trace": str(trace)}
        half.rename(trace)
    return result | {"task_cpu_s": process_time() - began}


def prepare(*files: Path | None, traces: Path | None = None) -> None:
    """Before hours of runs, not after them: the folders that will be written to are there, and take files."""
    for file in filter(None, files):
        if file.is_dir():
            raise UsageError(f"{file} is a folder; name a file")
        _made(file.parent)
    if traces is not None:
        _made(traces)


def _made(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"cannot write into {folder}: {error.strerror}; name a folder that you can write to") from error


def write_csv(path: Path, runs: Sequence[Row]) -> None:
    """All measures, a line a run."""
    half = path.with_name(f"{path.name}.part")
    with half.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, _columns(runs))
        writer.writeheader()
        writer.writerows(runs)
    half.replace(path)


def write_parquet(path: Path, runs: Sequence[Row]) -> None:
    """All measures, a row a run; a column whose values are of several types is text, since 1 and 1.0 may differ."""
    import pyarrow
    from pyarrow import parquet

    columns = {name: [run.get(name) for run in runs] for name in _columns(runs)}
    half = path.with_name(f"{path.name}.part")
    parquet.write_table(pyarrow.table({name: _of_one_type(values) for name, values in columns.items()}), half)
    half.replace(path)


class _Used:
    """The times of a pool: until it was open, from then to the last answer, and the CPU seconds of its runs in between."""

    def __init__(self) -> None:
        self._asked = self._opened = self._last = monotonic()
        self._cpu_s = 0.0

    def opened(self) -> None:
        self._opened = self._last = monotonic()

    def answered(self, cpu_s: float) -> None:
        self._last = monotonic()
        self._cpu_s += cpu_s

    def told(self) -> dict[str, float | None]:
        """`concurrency` is the mean number of runs that had a core."""
        wall_s = self._last - self._opened
        mean = self._cpu_s / wall_s if wall_s else None
        return {"start_s": self._opened - self._asked, "wall_s": wall_s, "cpu_s": self._cpu_s, "concurrency": mean}


def _is_done(key: str, kept: RunCache, traces: Path | None) -> bool:
    return kept.get(key) is not None and (traces is None or (traces / key).is_dir())


def _simulated(executor: Executor, runs: Mapping[str, Run], traces: Path | None) -> Iterator[tuple[str, Row | str]]:
    """The measures of each run, or what its failure says, as they come."""
    futures = {executor.submit(simulated, run.scenario, key, traces and traces / key): key for key, run in runs.items()}
    try:
        for future in as_completed(futures):
            try:
                yield futures[future], future.result()
            except Exception as error:  # noqa: BLE001 - simulator, protocols, system and Spark each have their own
                yield futures[future], one_line(error)
    finally:
        for future in futures:
            future.cancel()


def _row(run: Run, result: Mapping[str, Any], trace: Path | None) -> Row:
    settings = {name: _scalar(value) for name, value in run.point.settings.items()}
    return {**settings, "seed": run.scenario.seed, **_measures(result), **({"trace": str(trace)} if trace else {})}


def _measures(result: Mapping[str, Any]) -> Row:
    """Each by a name of its own: `latency_ms_p50`."""
    flat: Row = {}
    for name, value in result.items():
        if name not in NO_MEASURES:
            flat |= {f"{name}_{part}": item for part, item in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def _summaries(points: Sequence[Point], runs: Mapping[str, Run], rows: Mapping[str, Row]) -> list[dict[str, Any]]:
    of_point: dict[int, list[Row | None]] = {id(point): [] for point in points}
    for key, run in runs.items():
        of_point[id(run.point)].append(rows.get(key))
    return [_summary(point, of_point[id(point)]) for point in points]


def _summary(point: Point, rows: Sequence[Row | None]) -> dict[str, Any]:
    there = [row for row in rows if row is not None]
    columns = [name for name in _columns(there) if name != "seed" and name not in point.settings]
    measures = {name: _spread([row[name] for row in there if _is_number(row.get(name))]) for name in columns}
    return {
        "point": point.name,
        "settings": point.settings,
        "runs": len(there),
        "failed": len(rows) - len(there),
        "measures": {name: spread for name, spread in measures.items() if spread},
    }


def _spread(values: Sequence[float]) -> dict[str, float | int | None]:
    if not values:
        return {}
    mean = fmean(values)
    half = half_width(values, CONFIDENCE)
    low, high = (None, None) if half is None else (mean - half, mean + half)
    return {"mean": mean, "low": low, "high": high, "runs": len(values)}


def _failure(run: Run, error: str) -> dict[str, Any]:
    return {"point": run.point.name, "seed": run.scenario.seed, "error": error, "replay": command(run.scenario)}


def _columns(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _scalar(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) else inline(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else inline(value)


def _of_one_type(values: list[Any]) -> list[Any]:
    types = {type(value) for value in values if value is not None}
    return values if len(types) <= 1 else [None if value is None else _text(value) for value in values]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
