"""A trace while it is written: Structured Streaming over its parts, and the figures of the last minute.

    rows-*.parquet -> stream -> merged with what is kept -> kept: the rows of the last `horizon`, and who is joined
                                                             kept -> figures, by the same facts as `weft analyze`

Spark's file source finds the parts, each once. What is kept between two micro-batches is a small table of our own and not a
state store: the reliability of a message asks who was joined throughout its window, and no watermarked join of streams can
tell. It ends as a watermark does: `low` is `horizon` behind the latest row, what is older is forgotten, and what comes later
than that is counted as late and left out. Of memberships the last before `low` is kept, however old.

Below it asks for parts that are whole when they have their name, as `libweft.peer.trace` writes them; one that is not is passed
over. Bounds: the rows of `horizon`, of which sends and duplicates are summed by the second; one row a node and topic it is joined
to; files are remembered for FILES. A row of more than FUTURE ahead of the clock moves nothing.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F

from libweft.bench.spark import facts
from libweft.bench.spark.traces import ROWS, first_line, location
from libweft.peer.errors import UsageError, WeftError
from libweft.peer.machine import SECOND
from libweft.peer.trace.kinds import DELIVER, DUPLICATE, JOINED, LEAVE, NODE_DOWN, PUBLISH, SEND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FOUND_S = 1.0  # between two looks at the folder
LATE_S = 10.0  # what a row may take from its peer to its part
FILES = "10m"
FUTURE_S = 60.0
ASTRAY_S = 1.0  # what two clocks of one collector may disagree by on a busy host
LIVE = 1 << 50  # microseconds: a later time is one since 1970, and goes on by itself

SETTINGS = {  # few rows, again and again: no exchange, no broadcast and no second thoughts about the plan
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.streaming.minBatchesToRetain": "10",
}

MEMBERS = (JOINED, LEAVE, NODE_DOWN)
EVENTS = (PUBLISH, DELIVER)
SUMS = (SEND, DUPLICATE)
KEPT = "t long, node long, kind string, topic string, msg long, count long, bytes long"


class View(NamedTuple):
    """What the table shows, in seconds: the last `window`; messages count for reliability when they are `slack` old."""

    window: float = 60.0
    slack: float = 10.0

    @property
    def horizon(self) -> int:
        return round((self.window + self.slack + LATE_S) * SECOND)


class Follower:
    """Made by `following`. `figures` may be called from any thread, and calls from several wait for each other."""

    def __init__(self, spark: SparkSession, directory: Path, folder: Path, view: View) -> None:
        self.view = view
        self.rows = self.late = 0
        self._spark = spark
        self._directory = directory
        self._folder = folder
        self._end: int | None = None
        self._turn = Lock()
        self._kept: Path | None = None
        self._query: StreamingQuery | None = None
        self._heard = time.monotonic()

    def start(self) -> None:
        options = {"pathGlobFilter": "rows-*.parquet", "recursiveFileLookup": "true", "maxFileAge": FILES}
        options |= {"ignoreCorruptFiles": "true", "ignoreMissingFiles": "true"}
        rows = self._spark.readStream.schema(ROWS).options(**options).parquet(location(self._directory))
        sink = rows.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self._folder / "checkpoint"))
        self._query = sink.trigger(processingTime=f"{FOUND_S} seconds").start()

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()

    def figures(self) -> dict[str, Any]:
        """Of the window that ends with the latest row or, when none has come for a while, LATE_S ago.

        `age_s` is how long ago that is; `quiet_s`, since when no row has come.
        """
        if self._query is not None and (error := self._query.exception()) is not None:
            raise WeftError(f"Spark stopped following {self._directory}: {first_line(error)}")
        with self._turn:
            quiet = time.monotonic() - self._heard
            if self._end is None or self._kept is None:
                return {"rows": 0, "quiet_s": quiet}
            live = self._end > LIVE
            end = max(self._end, _now() - round(LATE_S * SECOND)) if live else self._end
            found = window_figures(self._read(), end, self.view)
        age = (_now() - end) / SECOND if live else None
        return {"rows": self.rows, "late_rows": self.late, "quiet_s": quiet, "age_s": age, **found}

    def _take(self, batch: DataFrame, number: int) -> None:
        with self._turn:
            sound = batch.where(F.col("t") < _now() + round(FUTURE_S * SECOND)).coalesce(1)
            low = -1 if self._end is None else self._end - self.view.horizon
            late = F.count_if((F.col("t") <= low) & F.col("kind").isin(*EVENTS))
            seen = sound.agg(F.max("t").alias("end"), F.count("*").alias("rows"), late.alias("late")).first()
            if seen is None or seen.end is None:
                return
            self._end = seen.end if self._end is None else max(self._end, seen.end)
            known = [reduced(sound)] if self._kept is None else [self._read(), reduced(sound)]
            whole = reduce(lambda old, new: old.unionByName(new), known).coalesce(1)
            merged = compacted(whole, self._end - self.view.horizon).coalesce(1)
            before, self._kept = self._kept, self._folder / f"kept-{number}"
            merged.write.mode("overwrite").parquet(location(self._kept))
            if before is not None and before != self._kept:
                shutil.rmtree(before, ignore_errors=True)
            self.rows += seen.rows
            self.late += seen.late
            self._heard = time.monotonic()

    def _read(self) -> DataFrame:
        assert self._kept is not None
        return self._spark.read.schema(KEPT).parquet(location(self._kept))


@contextmanager
def following(spark: SparkSession, directory: Path, view: View) -> Iterator[Follower]:
    """Follow a folder of parts, or of folders of them, until the block ends."""
    if not directory.is_dir():
        raise UsageError(f"nothing to follow in {directory}: there is no such folder")
    with TemporaryDirectory(prefix="weft-follow-", ignore_cleanup_errors=True) as folder:
        session = spark.newSession()
        for name, value in SETTINGS.items():
            session.conf.set(name, value)
        follower = Follower(session, directory, Path(folder), view)
        follower.start()
        try:
            yield follower
        finally:
            follower.stop()


def reduced(rows: DataFrame) -> DataFrame:
    """Rows of a trace as they are kept: sends and duplicates as sums by the second, of the kinds that no figure needs none."""
    one = F.lit(1).cast("long").alias("count")
    single = rows.where(F.col("kind").isin(*MEMBERS, *EVENTS)).select("t", "node", "kind", "topic", "msg", one, "bytes")
    copies = F.coalesce("copies", F.lit(1)).cast("long")
    nothing = F.lit(None).cast("long")
    summed = (
        rows.where(F.col("kind").isin(*SUMS))
        .groupBy((F.col("t") - F.col("t") % SECOND).alias("t"), "kind")
        .agg(F.sum(copies).alias("count"), F.sum(copies * F.col("bytes")).alias("bytes"))
    )
    named = {"node": nothing, "topic": F.lit(None).cast("string"), "msg": nothing}
    return single.unionByName(summed.withColumns(named).select(*single.columns))


def compacted(kept: DataFrame, low: int) -> DataFrame:
    """What is later than `low`, and for each node and topic that it was joined to then, that it was."""
    kind, t = F.col("kind"), F.col("t")
    old = kept.where((t <= low) & kind.isin(*MEMBERS))
    down = F.max(F.when(kind == NODE_DOWN, t)).over(Window.partitionBy("node"))
    joined, left = (F.max(F.when(kind == what, t)) for what in (JOINED, LEAVE))
    last = (
        old.withColumn("down", down)
        .groupBy("node", "topic")
        .agg(joined.alias("t"), F.coalesce(F.greatest(left, F.max("down")), F.lit(-1)).alias("over"))
    )
    one, nothing = F.lit(1).cast("long"), F.lit(None).cast("long")
    named = {"kind": F.lit(JOINED), "msg": nothing, "count": one, "bytes": nothing}
    standing = last.where(t > F.col("over")).withColumns(named)
    return kept.where(t > low).unionByName(standing.select(*kept.columns))


def window_figures(kept: DataFrame, end: int, view: View) -> dict[str, Any]:
    """Those of (end - window, end]; reliability is of the messages of the window that ended `slack` before.

    One query, all of it in one task: what is kept is small, and each exchange would cost more than the work.
    """
    window, slack = round(view.window * SECOND), round(view.slack * SECOND)
    kept = kept.coalesce(1)
    published = _published(kept)
    first = _first_deliveries(kept, published)
    found = (
        published.agg(F.count_if(F.col("published").between(end - window + 1, end)).alias("messages"))
        .join(_reliability(published, first, _stays(kept), end - slack - window, end - slack, slack), how="cross")
        .join(_latencies(first, end - window, end), how="cross")
        .join(_sums(kept, end - window, end), how="cross")
        .join(_unexplained(kept, published, end - window, end), how="cross")
        .first()
    )
    assert found is not None
    per_s = SECOND / window
    return {
        "messages": found.messages,
        "messages_per_s": found.messages * per_s,
        "judged": found.judged,
        "reliability": found.reliability,
        "reliability_min": found.reliability_min,
        "deliveries": found.deliveries,
        "deliveries_per_s": found.deliveries * per_s,
        "deliveries_unpublished": found.unexplained,
        "duplicates": found.duplicate or 0,
        "latency_ms": {name: None if found[name] is None else found[name] / 1_000 for name in ("p50", "p99")},
        "sent_per_s": (found.send or 0) * per_s,
        "bytes_per_s": (found.bytes or 0) * per_s,
    }


def _published(kept: DataFrame) -> DataFrame:
    """msg, published, publisher, topic: as `facts.publishes` tells."""
    first = kept.where(F.col("kind") == PUBLISH).groupBy("msg").agg(F.min(F.struct("t", "node", "topic")).alias("row"))
    return first.select("msg", F.col("row.t").alias("published"), F.col("row.node").alias("publisher"), "row.topic")


def _first_deliveries(kept: DataFrame, published: DataFrame) -> DataFrame:
    """msg, node, published, delivered: the first of others than the publisher; what clocks put before the publish is at it."""
    events = kept.where(F.col("kind") == DELIVER).select("msg", "node", "t").join(published, "msg")
    sound = F.col("t") >= F.col("published") - round(ASTRAY_S * SECOND)
    delivered = F.greatest(F.min("t"), F.min("published")).alias("delivered")
    of_others = events.where((F.col("node") != F.col("publisher")) & sound)
    return of_others.groupBy("msg", "node").agg(F.min("published").alias("published"), delivered)


def _stays(kept: DataFrame) -> DataFrame:
    """topic, node, since, until: as `facts.stays` tells, by the names of topics."""
    rows = kept.where(F.col("kind").isin(*MEMBERS)).select("node", "kind", "topic", "t")
    ends = [
        facts.next_row(F.col("kind") == LEAVE, Window.partitionBy("node", "topic")),
        facts.next_row(F.col("kind") == NODE_DOWN, Window.partitionBy("node")),
    ]
    ended = rows.withColumn("until", F.least(*(F.coalesce(end, F.lit(facts.NEVER)) for end in ends)))
    began = ended.where((F.col("kind") == JOINED) & (F.col("t") < F.col("until")))
    return began.groupBy("topic", "node", "until").agg(F.min("t").alias("since"))


def _reliability(published: DataFrame, first: DataFrame, stays: DataFrame, begin: int, end: int, slack: int) -> DataFrame:
    """judged, reliability, reliability_min: over the messages of (begin, end] for which anybody was expected."""
    deadline = F.col("published") + slack
    throughout = (F.col("since") <= F.col("published")) & (F.col("until") > deadline) & (F.col("node") != F.col("publisher"))
    due = published.where(F.col("published").between(begin + 1, end)).join(stays, "topic").where(throughout)
    met = due.join(first.select("msg", "node", "delivered"), ["msg", "node"], "left")
    in_time = F.count_if(F.coalesce(F.col("delivered") <= deadline, F.lit(False)))
    shares = met.groupBy("msg").agg((in_time / F.count("*")).alias("share"))
    return shares.agg(F.count("*").alias("judged"), F.avg("share").alias("reliability"), F.min("share").alias("reliability_min"))


def _latencies(first: DataFrame, begin: int, end: int) -> DataFrame:
    """By the one definition of a percentile; `percentile_disc` is exact, and the window bounds what it sorts."""
    recent = first.where(F.col("delivered").between(begin + 1, end))
    latency = recent.select((F.col("delivered") - F.col("published")).alias("latency"))
    disc = "percentile_disc({}) WITHIN GROUP (ORDER BY latency)"
    return latency.agg(
        F.count("*").alias("deliveries"), F.expr(disc.format(0.5)).alias("p50"), F.expr(disc.format(0.99)).alias("p99")
    )


def _unexplained(kept: DataFrame, published: DataFrame, begin: int, end: int) -> DataFrame:
    """How many deliveries are of messages whose publisher sends no trace, or has not yet."""
    events = kept.where((F.col("kind") == DELIVER) & F.col("t").between(begin + 1, end))
    return events.join(published, "msg", "left_anti").agg(F.count("*").alias("unexplained"))


def _sums(kept: DataFrame, begin: int, end: int) -> DataFrame:
    recent = kept.where(F.col("kind").isin(*SUMS) & F.col("t").between(begin + 1, end))
    counts = [F.sum(F.when(F.col("kind") == kind, F.col("count"))).alias(kind) for kind in SUMS]
    return recent.agg(*counts, F.sum(F.when(F.col("kind") == SEND, F.col("bytes"))).alias("bytes"))


def _now() -> int:
    return time.time_ns() // 1_000
