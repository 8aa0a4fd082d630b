"""From trace folders to figures and tables: what `weft analyze`, the demo, the reproductions and the report all show.

    figures(spark, folders)   one entry a run, with the keys of `weft sim --json`: what a reproduction needs, and where it
                              asks for them, those of each message, of the overlay at the end and of what was held back
    analyze(spark, folders)   the same, with all tables and warnings: what a person reads

Bounds: the driver gets aggregates only, at most `SHOWN` rows a table; `parquet` has them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from bench.spark import band, latency, overlay, picture
from bench.spark import single_root as trees
from bench.spark.figures import message_figures, run_figures, warnings
from bench.spark.gather import Facts, figure_groups, gathered, groups
from bench.spark.session import cause
from bench.spark.sources import load_runs
from bench.spark.tables import TABLES, Table
from peer.errors import UsageError, WeftError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Progress: TypeAlias = Callable[[float, str], None]

SHOWN = 10_000


def figures(
    spark: SparkSession,
    directories: Sequence[Path],
    *,
    messages: bool = False,
    graph: bool = False,
    held: bool = False,
    single_root: bool = False,
    nodes: bool = False,
    batches: bool = False,
) -> list[dict[str, Any]]:
    """The figures of each run, in the order of the folders.

    With `messages` an entry has `per_message`, in order of publication; with `graph` it has `overlay`, of the last instant; with
    `held` it has `held`, of the times from reception to delivery, None where nothing was delivered; with
    `single_root`, `nodes` and `batches` what `bench.spark.single_root` makes of the run, of each node, of parts of the run.
    """
    with _told(), gathered(load_runs(spark, directories)) as known:
        found = run_figures(known, figure_groups(known))
        by_number = {entry["run"]: entry for entry in found}
        if messages:
            for entry in found:
                entry["per_message"] = []
            for row in message_figures(known, SHOWN * len(found)):
                by_number[row.pop("run")]["per_message"].append(row)
        if graph:
            for frame_row in overlay.quality(known.quiet, count=1).collect():
                by_number[frame_row.run]["overlay"] = frame_row.asDict()
        if held:
            for entry in found:
                entry["held"] = None
            for frame_row in latency.holding(known.pairs).collect():
                by_number[frame_row.run]["held"] = frame_row.asDict()
        if single_root:
            for frame_row in trees.summary(known).collect():
                by_number[frame_row.run]["single_root"] = frame_row.asDict()
        if batches:
            for entry in found:
                entry["batches"] = []
            for frame_row in trees.batches(known).orderBy("run", "batch").collect():
                by_number[frame_row.run]["batches"].append(frame_row.mean_ms)
        if nodes:
            for entry in found:
                entry["per_node"] = []
            for frame_row in trees.nodes(known).orderBy("run", "node").collect():
                by_number[frame_row.run]["per_node"].append(frame_row.asDict())
        return found


def analyze(
    spark: SparkSession,
    directories: Sequence[Path],
    *,
    graph: bool = True,
    pictures: bool = False,
    parquet: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Runs, tables and warnings as one JSON-able object.

    `graph` computes the overlay's quality too, which takes longest; `pictures` adds what is only drawn: what
    `bench.spark.picture` takes of one message of each run, and the bands of distributions; `parquet` is a new folder
    for every table in full.
    """
    tell = progress or (lambda share, word: None)
    tell(0.0, "looking over the traces")
    if parquet is not None:
        _claim(parquet)
    with _told(), gathered(load_runs(spark, directories)) as known:
        tell(0.05, "reading the traces")
        shown = groups(known)
        runs = run_figures(known, shown)
        wanted = [table for table in TABLES if graph or table.name != "overlay"]
        tables = {}
        for number, table in enumerate(wanted):
            tell(0.3 + 0.6 * number / len(wanted), table.title.lower())
            frame = _without_lacking(table, known, table.make(known, shown))
            tables[table.name] = _shown(table, frame)
            if parquet is not None:
                frame.write.parquet(str(parquet / table.name))
        if parquet is not None:
            _write_facts(known, parquet)
        said = [*warnings(known, shown)]
        tell(0.9, "pictures")
        drawn = {"pictures": picture.pictures(known), "bands": band.bands(known.pairs, shown.spreads)} if pictures else {}
    return {"runs": runs, "tables": tables, "warnings": said, **drawn}


def _without_lacking(table: Table, known: Facts, frame: DataFrame) -> DataFrame:
    """Leave out the runs whose traces lack the kinds that this table needs."""
    able = [run.number for run in known.traces.about if run.wrote(*table.needs)]
    return frame if len(able) == len(known.traces.about) else frame.where(frame.run.isin(able))


def _shown(table: Table, frame: DataFrame) -> dict[str, Any]:
    rows = [list(row) for row in frame.limit(SHOWN).collect()]
    return {"title": table.title, "about": table.about, "columns": frame.columns, "rows": rows}


def _write_facts(known: Facts, parquet: Path) -> None:
    """What tables are taken from: one row a message, and one a node."""
    named = known.per_message.withColumnRenamed("topic", "number").join(
        known.topics.withColumnsRenamed({"topic": "number", "name": "topic"}).drop("run"), "number"
    )
    named.drop("number").write.parquet(str(parquet / "messages"))
    known.load.write.parquet(str(parquet / "nodes"))


def _claim(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = any(folder.iterdir())
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {error.strerror}") from error
    if taken:
        raise UsageError(f"the folder {folder} is not empty; name a new one, since nothing is overwritten")


@contextmanager
def _told() -> Iterator[None]:
    """What Spark raises, as one line of ours."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise WeftError(f"Spark could not analyse the traces: {cause(str(error))}") from error
