"""`weft bench spark`: what the analysis costs, beside DuckDB doing the same on the same files.

Machines are shared and noisy, so every figure is CPU time, of all threads of the Java process and of this one; the two
engines take turns, and medians and their ratio are what counts. Java compiles while it runs: its first repetition is
told apart, and both engines repeat once more than asked. Nothing else is warm: each repetition opens the files and
builds every frame anew. Each size has a session of its own, so that memory and compiling are that size's.

Counted is every measure that needs no graph, step by step; not counted are making the trace, looking it over, and
starting Java. Both engines must come to the same figures and tables, or there is nothing to compare.

It asks for Linux, whose /proc tells what another process used. Bounds: aggregates in this process, and what DuckDB holds.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark import SparkContext

from libweft.bench.progress import Progress
from libweft.bench.spark import analysis, duck, order, tables
from libweft.bench.spark.gather import gathered, groups
from libweft.bench.spark.generate import Generator
from libweft.bench.spark.run_figures import run_figures
from libweft.bench.spark.session import spark_session
from libweft.bench.spark.traces import Traces, load_traces
from libweft.peer.errors import UsageError, WeftError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import DataFrame, SparkSession

Spent: TypeAlias = dict[str, float]
Answer: TypeAlias = dict[str, Any]

MEGABYTE = 1 << 20
MILLION = 1_000_000
FAULTS = (2.0, 5.0, 8.0)  # seconds: a generated trace knows of none, and recovery must have something to find
APART = ("order", "recovery", "overlay")  # tables that are a step of their own, or need a graph


def bench_spark(
    events: Sequence[int],
    *,
    repetitions: int = 3,
    memory: str | None = None,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """For each number of events what both engines spent; JSON-able. In `folder` traces are kept, and found again.

    Raises WeftError where their figures differ.
    """
    _check(events, repetitions)
    tell = progress or (lambda share, word: None)
    sizes: list[dict[str, Any]] = []
    with _place(folder) as place:
        for number, size in enumerate(events):
            scale = _scaled(tell, sum(events[:number]) / sum(events), size / sum(events), f"{size:,} events: ")
            sizes.append(_size(_trace(place, size, scale), repetitions, memory, scale))
    about = {"cores": os.cpu_count(), "repetitions": repetitions, "memory": memory}
    engines = {name: version(package) for name, package in (("spark", "pyspark"), ("duckdb", "duckdb"))}
    return {**about, "versions": engines, "sizes": sizes, "linearity": _linearity(sizes)}


def rows(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a size and step, then its total, then the total of a million events."""
    return [
        {"events": size["rows"], "step": step.replace("_", " "), **spent}
        for size in result["sizes"]
        for step, spent in (*size["steps"].items(), ("total", size["total"]), ("total a million", size["per_million"]))
    ]


def differences(spark: Answer, duckdb: Answer) -> Iterator[str]:
    """Where two answers disagree: counts must be equal, means to nine places. Both have `runs` and `tables`."""
    for ours, theirs in zip(spark["runs"], duckdb["runs"], strict=True):
        yield from (f"{name}: {ours[name]} and {theirs[name]}" for name in theirs if not _same(ours[name], theirs[name]))
    for name, table in duckdb["tables"].items():
        ours, theirs = spark["tables"][name], table
        if ours["columns"] != theirs["columns"] or not _same(_ordered(ours["rows"]), _ordered(theirs["rows"])):
            yield f"the table {name}: {_ordered(ours['rows'])} and {_ordered(theirs['rows'])}"


def _check(events: Sequence[int], repetitions: int) -> None:
    if find_spec("duckdb") is None:
        raise UsageError(duck.INSTALL)
    if not Path("/proc/self/stat").exists():
        raise UsageError("the CPU time of another process is read from /proc, which only Linux has")
    if not events or min(events) < 1 or repetitions < 1:
        raise UsageError("at least one number of events and one repetition, all above 0")


@contextmanager
def _place(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
    else:
        with TemporaryDirectory(prefix="weft-bench-") as place:
            yield Path(place)


def _trace(place: Path, events: int, tell: Progress) -> Path:
    """It gets its name when it is whole, so what is found under the name is."""
    tell(0.0, "making the trace")
    trace = place / f"events-{events}"
    if not trace.exists():
        with TemporaryDirectory(dir=place, prefix=".weft-") as draft:
            Generator().write(Path(draft) / "trace", events)
            (Path(draft) / "trace").rename(trace)
    return trace


def _size(trace: Path, repetitions: int, memory: str | None, tell: Progress) -> dict[str, Any]:
    tell(0.1, "starting Spark")
    with spark_session("local[*]", memory=memory) as spark:
        java = str(SparkContext._gateway.proc.pid)  # type: ignore[union-attr]  # noqa: SLF001 - pyspark has no public way to its Java
        for process in (java, "self"):
            _forget_peak(process)
        turns = [_turn(spark, java, trace, _scaled(tell, *place)) for place in _places(repetitions + 1)]
        peaks = {"spark_peak_mb": _peak_mb(java), "duckdb_peak_mb": _peak_mb("self")}
    count = json.loads((trace / "manifest.json").read_text())["rows"]
    whole = [({"": sum(spark_spent.values())}, {"": sum(duck_spent.values())}) for spark_spent, duck_spent in turns]
    total = _medians(whole)[""]
    size = sum(path.stat().st_size for path in trace.glob("*.parquet")) / MEGABYTE
    per_million = {name: value if name == "ratio" else value / count * MILLION for name, value in total.items()}
    return {"rows": count, "mb": size, "steps": _medians(turns), "total": total, "per_million": per_million, **peaks}


def _places(repetitions: int) -> list[tuple[float, float, str]]:
    """Begin, length and name of each repetition on the way from where Spark has started."""
    each = 0.8 / repetitions
    return [(0.2 + number * each, each, f"repetition {number}, " if number else "warm-up, ") for number in range(repetitions)]


def _scaled(tell: Progress, begin: float, length: float, before: str) -> Progress:
    return lambda share, word: tell(begin + length * share, before + word)


def _turn(spark: SparkSession, java: str, trace: Path, tell: Progress) -> tuple[Spent, Spent]:
    """One repetition of both: CPU seconds by step."""
    traces = _struck(load_traces(spark, [trace]))
    tell(0.0, "Spark")
    watch = Stopwatch(lambda: _cpu_s(java) + time.process_time())
    with analysis.spark_errors():
        ours = _spark_answer(traces, watch)
    tell(0.8, "DuckDB")
    with duck.connect(traces.about) as connection:
        duck_watch = Stopwatch(time.process_time)
        theirs = _duck_answer(connection, duck_watch)
    if found := next(differences(ours, theirs), None):
        raise WeftError(f"Spark and DuckDB disagree on {trace}, so one of them is wrong: {found[:500]}")
    return watch.spent, duck_watch.spent


def _struck(traces: Traces) -> Traces:
    """As if faults had struck."""
    (run,) = traces.about
    scenario = {**run.manifest["scenario"], "faults": [{"at": at} for at in FAULTS]}
    return traces._replace(about=(run._replace(manifest={**run.manifest, "scenario": scenario}),))


class Stopwatch:
    """What each step spent since the one before."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.spent: Spent = {}
        self._clock = clock
        self._last = clock()

    def __call__(self, step: str) -> None:
        now = self._clock()
        self.spent[step], self._last = now - self._last, now


def _spark_answer(traces: Traces, watch: Stopwatch) -> Answer:
    """What `analyze` does, but that each step is over before the next one begins."""

    def step(name: str, frame: DataFrame) -> None:
        if name == "pairs":
            frame.count()
        watch(name)

    with gathered(traces, step) as known:
        shown = groups(known, step)
        streams = order.fifo_and_gapless(known.pairs, known.publishes, known.stays).localCheckpoint()
        watch("fifo")
        causes = order.causal(known.pairs, known.publishes, known.stays).localCheckpoint()
        watch("causal")
        recovery = _collected(tables.recovered(known, shown))
        watch("recovery")
        runs = run_figures(known, shown)
        found = {table.name: _collected(table.make(known, shown)) for table in tables.TABLES if table.name not in APART}
        both = _collected(streams.join(causes, "run", "left").fillna(0))
        watch("tables")
    return {"runs": runs, "tables": {**found, "order": both, "recovery": recovery}}


def _duck_answer(connection: DuckDBPyConnection, watch: Stopwatch) -> Answer:
    for step in duck.measure(connection):
        watch(step)
    found = duck.answer(connection)
    watch("tables")
    return found


def _collected(frame: DataFrame) -> Answer:
    return {"columns": frame.columns, "rows": [list(row) for row in frame.collect()]}


def _medians(turns: Sequence[tuple[Spent, Spent]]) -> dict[str, Spent]:
    """By step; the first turn only tells what Spark takes before it is warm."""
    found = {}
    for step, first in turns[0][0].items():
        spark, duckdb = (median(spent[step] for spent in engine) for engine in zip(*turns[1:], strict=True))
        found[step] = {"spark_first_s": first, "spark_s": spark, "duckdb_s": duckdb, "ratio": spark / duckdb}
    return found


def _linearity(sizes: Sequence[Mapping[str, Any]]) -> float | None:
    """What an event costs Spark at the largest size, by what it costs at the smallest; one size tells nothing."""
    ends = [at(sizes, key=lambda size: size["rows"])["per_million"]["spark_s"] for at in (max, min)]
    return ends[0] / ends[1] if len(sizes) > 1 else None


def _ordered(rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """Keys come first in a row, and differ."""
    return sorted(rows, key=lambda row: [str(cell) for cell in row])


def _same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(_same(ours[name], theirs[name]) for name in ours)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(_same, ours, theirs))
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-9)
    return bool(ours == theirs)


def _cpu_s(process: str) -> float:
    """User and system time of all its threads, those that are over too."""
    words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _peak_mb(process: str) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1_024


def _forget_peak(process: str) -> None:
    with suppress(OSError):  # then the peak is that of the whole run so far
        Path(f"/proc/{process}/clear_refs").write_text("5")
