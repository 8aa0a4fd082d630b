"""Runs that nodes of go-libp2p-pubsub traced: a Spark data source for their files, and what they lack filled in.

    spark.dataSource.register(PubsubTraces)
    spark.read.format("go-libp2p-pubsub").load("node-1.json")     one file, or a list: rows to be, and a report of each

Files are read where Spark's tasks run, some a task. Of each message its rows then come together in one place, where the
first copy that a node got becomes its `receive`, and hops are counted along deliveries, from the publisher on. The
mapping is told in `docs/architecture.md`, "Traces of go-libp2p-pubsub".

Below it asks for paths that the driver and the workers see alike, and weft installed on both. Bounds: a task takes files
of PACK bytes, or one; it holds the rows of one message at a time, and BATCH rows on their way out.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from libweft.bench.spark.libp2p_events import ARRIVAL, JUMP, NANOS, Report, Row, read_rows
from libweft.bench.spark.traces import MESSAGES, ROWS, Run, Traces, numbers
from libweft.peer.errors import UsageError
from libweft.peer.trace.kinds import (
    DELIVER,
    DROP,
    JOIN,
    JOINED,
    KINDS,
    LINK_DOWN,
    LINK_UP,
    NEIGHBOR_UP,
    PUBLISH,
    QUEUE,
    RECEIVE,
    REJECT,
    ROLE,
    SCHEMA,
    SEND,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SOURCE = "go-libp2p-pubsub"
REPORT = "report"
BATCH = 16_384
PACK = 16 << 20
NAMED = 5  # files with a warning of their own

TOLD = (
    "file int, t long, ns long, node long, kind string, topic string, msg long, peer long, lane string, reason string, "
    "source long, epoch long, sequence long"
)
OF_MESSAGE = (PUBLISH, ARRIVAL, DELIVER, REJECT)
"""Kinds whose rows are looked at together, in the order in which they come at one time."""
NEVER_TOLD = (JOIN, LINK_UP, LINK_DOWN, QUEUE, ROLE)
SEEN = (PUBLISH, RECEIVE, DELIVER, SEND, JOINED, NEIGHBOR_UP)
"""Kinds of which every whole trace has rows: where there are none, they were not traced."""

Values: TypeAlias = Sequence[Any]


class Recording(NamedTuple):
    """The files of one run; of one node each, or of several."""

    name: str
    path: Path
    files: tuple[Path, ...]


@dataclass
class Files(InputPartition):
    """Numbers and paths."""

    files: tuple[tuple[int, str], ...]


class PubsubTraces(DataSource):
    """Columns TOLD: the rows of `libp2p_events`, with the number of their file; the last one of each is its report."""

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> str:
        return TOLD

    def reader(self, schema: StructType) -> DataSourceReader:
        path = self.options.get("path")
        return _Reader([path] if path is not None else json.loads(self.options.get("paths", "[]")))


class _Reader(DataSourceReader):
    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def partitions(self) -> Sequence[Files]:
        packs: list[list[tuple[int, str]]] = []
        room = 0
        for number, path in enumerate(self._paths):
            size = Path(path).stat().st_size
            if not packs or size > room:
                packs.append([])
                room = PACK
            packs[-1].append((number, path))
            room -= size
        return [Files(tuple(pack)) for pack in packs]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Files)
        return _batches((values for file in partition.files for values in _told(*file)), arrow(TOLD))


def load(spark: SparkSession, recordings: Sequence[Recording], first: int = 0) -> Traces:
    """These runs, numbered from `first` on; what is kept of them is given back with the traces' `held`."""
    spark.dataSource.register(PubsubTraces)
    files = [(number, file) for number, recording in enumerate(recordings, first) for file in recording.files]
    read = spark.read.format(SOURCE).load([str(file.resolve()) for _, file in files])
    runs = F.array(*(F.lit(number) for number, _ in files))
    told = read.withColumn("run", F.element_at(runs, F.col("file") + 1).cast("int")).persist()
    reports: dict[int, list[tuple[Path, Report]]] = {number: [] for number in range(first, first + len(recordings))}
    for line in told.where(F.col("kind") == REPORT).orderBy("file").collect():
        number, file = files[line.file]
        reports[number].append((file, msgspec.json.decode(line.reason, type=Report)))
    for number, recording in enumerate(recordings, first):
        _check(recording, reports[number])
    rows = _rows(told).persist()
    sums = _sums(rows)
    messages = told.where(F.col("source").isNotNull()).select("run", *(name for name, _ in _columns(MESSAGES))).persist()
    messages.count()
    told.unpersist()
    about = tuple(_run(number, named, reports[number], sums[number]) for number, named in enumerate(recordings, first))
    windows = numbers(spark, ("run", "window"), [(run.number, run.window) for run in about])
    return Traces(about, windows, rows, messages, (rows, messages))


def _told(number: int, path: str) -> Iterator[Values]:
    report = Report(number)
    for row in read_rows(Path(path), report):
        yield number, row.ns // NANOS, *row
    yield number, 0, *Row(0, 0, REPORT, reason=msgspec.json.encode(report).decode())


def _rows(told: DataFrame) -> DataFrame:
    """run and ROWS."""
    kind = F.col("kind")
    together = told.where(kind.isin(*OF_MESSAGE)).select(*Told._fields).repartition("run", "msg")
    copies = {"copies": F.when(kind.isin(SEND, DROP), 1)}
    columns = {name: copies.get(name, F.col(name) if name in told.columns else F.lit(None)) for name, _ in _columns(ROWS)}
    others = told.where(~kind.isin(*OF_MESSAGE, REPORT)).select(
        "run", *(columns[name].cast(type_).alias(name) for name, type_ in _columns(ROWS))
    )
    return others.unionAll(together.sortWithinPartitions("run", "msg").mapInArrow(_completed, f"run int, {ROWS}"))


class Told(NamedTuple):
    """A row of OF_MESSAGE, as it is told."""

    run: int
    msg: int
    t: int
    ns: int
    node: int
    kind: str
    topic: str | None
    peer: int | None
    reason: str | None


def _completed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    told = (Told(*values) for batch in batches for values in zip(*(c.to_pylist() for c in batch.columns), strict=True))
    of_messages = groupby(told, key=lambda row: (row.run, row.msg))
    return _batches((row for _, rows in of_messages for row in completed(list(rows))), arrow(f"run int, {ROWS}"))


def completed(told: list[Told]) -> Iterator[Values]:
    """The rows of one message: the first copy at each node is its reception, others are told of as duplicates already.

    The copy that a node delivers and passes on need not be the first: that one may be refused, or lose the race through
    validation. So hops follow deliveries, and first copies at nodes that deliver nothing.
    """
    told.sort(key=lambda row: (row.ns, OF_MESSAGE.index(row.kind)))
    first: dict[int, Told | None] = {}
    senders: dict[int, int | None] = {}
    for row in told:
        own = row.kind == PUBLISH or row.peer == row.node
        first.setdefault(row.node, None if own else row)
        if row.kind == DELIVER and not own:
            senders.setdefault(row.node, row.peer)
    copies = {node: row.peer if row is not None else None for node, row in first.items()}
    hops = hops_of([row.node for row in told if row.kind == PUBLISH], copies | senders)
    for row in told:
        if first[row.node] is row:
            before = hops.get(row.peer) if row.peer is not None else None
            yield _made(row, RECEIVE, row.peer, None if before is None else before + 1)
        if row.kind != ARRIVAL:
            yield _made(row, row.kind, row.peer if row.kind == REJECT else None, hops[row.node], row.reason)


def hops_of(publishers: Iterable[int], senders: Mapping[int, int | None]) -> dict[int, int | None]:
    """The links that a copy travelled to each node from its sender; None where they do not lead back to a publisher."""
    found: dict[int, int | None] = dict.fromkeys(publishers, 0)
    for node in senders:
        way: dict[int, None] = {}
        at: int | None = node
        while at is not None and at in senders and at not in found and at not in way:  # bad clocks can make a circle
            way[at] = None
            at = senders.get(at)
        hops = found.get(at) if at is not None else None
        for step in reversed(way):
            hops = found[step] = None if hops is None else hops + 1
    return found


def _made(row: Told, kind: str, peer: int | None, hops: int | None, reason: str | None = None) -> Values:
    dependencies: list[int] | None = [] if kind == PUBLISH else None
    return row.run, row.t, row.node, kind, row.topic, row.msg, peer, hops, None, None, None, reason, dependencies


def _batches(rows: Iterable[Values], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    rows = iter(rows)
    while some := list(islice(rows, BATCH)):
        columns = zip(*some, strict=True)
        yield pa.record_batch([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)


class Sums(NamedTuple):
    rows: int = 0
    nodes: int = 0
    strangers: int = 0
    kinds: frozenset[str] = frozenset()


def _sums(rows: DataFrame) -> dict[int, Sums]:
    """What is said of each run without looking at a message. Strangers are named by others and have no rows."""
    nodes = rows.select("run", "node").distinct()
    named = rows.where(F.col("peer").isNotNull()).select("run", F.col("peer").alias("node")).distinct()
    unheard = named.join(nodes, ["run", "node"], "left_anti").groupBy("run").agg(F.count("*").alias("strangers"))
    strangers = {row.run: row.strangers for row in unheard.collect()}
    counted = rows.groupBy("run").agg(
        F.count("*").alias("rows"), F.count_distinct("node").alias("nodes"), F.collect_set("kind").alias("kinds")
    )
    sums = {row.run: Sums(row.rows, row.nodes, strangers.get(row.run, 0), frozenset(row.kinds)) for row in counted.collect()}
    return defaultdict(Sums, sums)


def _check(recording: Recording, reports: Sequence[tuple[Path, Report]]) -> None:
    if not any(report.events for _, report in reports):
        why = next((f" ({file.name}: {words})" for file, report in reports for words in _problems(report)), "")
        raise UsageError(f"no trace in {recording.path}: not one event of go-libp2p-pubsub could be read{why}")


def _run(number: int, recording: Recording, reports: Sequence[tuple[Path, Report]], sums: Sums) -> Run:
    whole = not any(report.cut or report.bad for _, report in reports)
    kinds = [kind for kind in KINDS if kind not in NEVER_TOLD and (kind in sums.kinds or kind not in SEEN)]
    manifest = {
        **{"schema": SCHEMA, "stack": SOURCE, "status": "complete" if whole else "damaged"},
        **{"rows": sums.rows, "kinds": kinds, "scenario": {"nodes": sums.nodes}},
    }
    return Run(number, recording.name, recording.path, manifest, (*_warnings(reports, sums),), sized=False)


def _warnings(reports: Sequence[tuple[Path, Report]], sums: Sums) -> Iterator[str]:
    troubled = [(file, words) for file, report in reports if (words := "; ".join(_problems(report)))]
    yield from (f"{file.name}: {words}" for file, words in troubled[:NAMED])
    if len(troubled) > NAMED:
        yield f"{len(troubled) - NAMED} more files could not be read as a whole"
    if sums.strangers:
        yield (
            f"{sums.strangers} peers are named that have no events here: what they published, received or delivered is not "
            "in the figures"
        )
    jump = max(report.jump for _, report in reports)
    if jump >= JUMP:
        yield f"clocks jump back, by {jump / JUMP:.6g} s: latencies and reliability may be wrong"


def _problems(report: Report) -> Iterator[str]:
    if report.bad:
        yield f"{report.bad:,} records could not be read and are left out, the first at {report.first_bad}"
    if report.unknown:
        yield f"{report.unknown:,} events of unknown types ({', '.join(map(str, report.types))}) are left out"
    if report.cut:
        yield report.cut
    if not (report.events or report.bad or report.unknown or report.cut):
        yield "it is empty"


def arrow(ddl: str) -> pa.Schema:
    types = {"int": pa.int32(), "long": pa.int64(), "string": pa.string(), "array<long>": pa.list_(pa.int64())}
    return pa.schema([(name, types[type_]) for name, type_ in _columns(ddl)])


def _columns(ddl: str) -> list[tuple[str, str]]:
    return [(name, type_) for name, type_ in (column.split() for column in ddl.split(", "))]
