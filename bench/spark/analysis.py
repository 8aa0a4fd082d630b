"""From trace folders to figures and tables: what `weft analyze`, the demo, the reproductions and the report all show.

    figures(spark, folders)   one entry a run, with the keys of `weft sim --json`: what a reproduction needs, and where it
                              asks for them, those of each message, of the overlay at the end and of what was held back
    analyze(spark, folders)   the same, with all tables and warnings: what a person reads

Bounds: the driver gets aggregates only, at most `SHOWN` rows a table; `parquet` has them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from libweft.bench.progress import Progress
from libweft.bench.spark import band, latency, message_measures, overlay, picture
from libweft.bench.spark import single_root as trees
from libweft.bench.spark.gather import Facts, figure_groups, gathered, groups
from libweft.bench.spark.run_figures import about, message_figures, run_figures, warnings
from libweft.bench.spark.session import cause
from libweft.bench.spark.sources import load_runs
from libweft.bench.spark.tables import TABLES, Table
from libweft.peer.errors import UsageError, WeftError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


SHOWN = 10_000


def figures(
    spark: SparkSession,
    directories: Sequence[Path],
    *,
    messages: bool = False,
    graph: bool = False,
    held: bool = False,
    subscribed: bool = False,
    single_root: bool = False,
    batches: bool = False,
    nodes: bool = False,
    queues: bool = False,
    false_positives: bool = False,
    alone: bool = False,
) -> list[dict[str, Any]]:
    """The figures of each run, in the order of the folders.

    With `messages` an entry has `per_message`, in order of publication; with `graph` it has `overlay`, of the last instant; with
    `held` it has `held`, of the times from reception to delivery, None where nothing was delivered; with `subscribed` it has
    `subscribed`, the latency of those who had joined when a message was published, None where there are none; with `single_root`,
    `batches`, `nodes` and `queues` what `libweft.bench.spark.single_root` makes of the run, of parts of it, and of each
    node (`per_node`, `queues`).

    `alone` leaves out whatever is not asked for by name, which is most of the cost; `false_positives` can be.
    """
    with spark_errors(), gathered(load_runs(spark, directories)) as known:
        found = [about(run) for run in known.traces.about] if alone else run_figures(known, figure_groups(known))
        if messages:
            _add_messages(found, known)
        if graph:
            _add(found, "overlay", overlay.quality(known.quiet, count=1))
        if held:
            _add(found, "held", latency.holding(known.pairs))
        if subscribed:
            _add(found, "subscribed", latency.subscribed(known.pairs, known.stays))
        if single_root or batches or nodes or queues or (alone and false_positives):
            reached = trees.messages(known)
            if single_root:
                _add(found, "single_root", trees.summary(known, reached))
            if batches:
                _add_batches(found, reached)
            if nodes:
                _add_lists(found, "per_node", trees.nodes(known, reached).orderBy("run", "node"))
            if queues:
                _add_lists(found, "queues", trees.queues(known, reached).orderBy("run", "node"))
            if alone and false_positives:
                _add_false_positives(found, reached)
        return found


def _add(found: Sequence[dict[str, Any]], name: str, frame: DataFrame) -> None:
    """One row a run at most; None where a run has none."""
    for entry in found:
        entry[name] = None
    for row in frame.collect():
        found[row.run][name] = row.asDict()


def _add_lists(found: Sequence[dict[str, Any]], name: str, frame: DataFrame) -> None:
    for entry in found:
        entry[name] = []
    for row in frame.collect():
        found[row.run][name].append(row.asDict())


def _add_messages(found: Sequence[dict[str, Any]], known: Facts) -> None:
    for entry in found:
        entry["per_message"] = []
    for row in message_figures(known, SHOWN * len(found)):
        found[row.pop("run")]["per_message"].append(row)


def _add_batches(found: Sequence[dict[str, Any]], reached: DataFrame) -> None:
    _add_lists(found, "batches", trees.batches(reached).orderBy("run", "batch"))
    for entry in found:
        entry["batches"] = [part["mean_ms"] for part in entry["batches"]]


def _add_false_positives(found: Sequence[dict[str, Any]], reached: DataFrame) -> None:
    for entry in found:
        entry["false_positives"] = None
    for row in message_measures.false_positives(reached).collect():
        found[row.run]["false_positives"] = row.false_positives


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
    `libweft.bench.spark.picture` takes of one message of each run, and the bands of distributions; `parquet` is a new folder
    for every table in full.
    """
    tell = progress or (lambda share, word: None)
    tell(0.0, "looking over the traces")
    if parquet is not None:
        _claim(parquet)
    with spark_errors(), gathered(load_runs(spark, directories)) as known:
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
def spark_errors() -> Iterator[None]:
    """Turn what Spark raises into a WeftError of one line."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise WeftError(f"Spark could not analyse the traces: {cause(str(error))}") from error
