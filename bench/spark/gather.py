"""The facts of some traces, each computed once and kept: what all figures and tables are taken from.

The loud kinds (send, receive, duplicate, deliver, drop) are most rows of a trace and are read three times, for `pairs`,
`load` and the copies of a message. All other rows are kept. What is small is cut off from how it was made
(a local checkpoint), because Spark plans a query over the whole of its past, and on a small trace planning is the cost.
Distributions of everything, by run and by topic, hop and time, are one query, and so are the means.

Bounds: Spark holds what is kept in memory and spills it to disk; nothing of it reaches the driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from bench.spark import delivery, facts, latency, load
from bench.spark.spread import histogram, spread
from bench.spark.traces import Traces
from peer.trace import DELIVER, DROP, DUPLICATE, RECEIVE, SEND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOUD = (SEND, RECEIVE, DUPLICATE, DELIVER, DROP)
QUIET = ("run", "t", "node", "kind", "topic", "msg", "peer", "copies", "dependencies")
BROADCAST = 1_000_000  # rows of a table that each task may hold: some 50 MB

# What a group is of, as a number, since a word in each value would cost more than the value. `key` is the topic, the hop
# or the beginning of the stretch of time, and 0 for what is of the whole run.
DELIVERY, RECEPTION, HELD_BACK, BARRIER, SUBSCRIPTION, WAITING, TOPIC, HOP, STRETCH, LOAD = range(10)
NAMES = ("delivery", "reception", "held back", "barrier", "subscription", "waiting", "topic", "hop", "stretch", *load.WHAT)
BY = ("run", "what", "key")


class Facts(NamedTuple):
    """The frames of `bench.spark.facts`; `quiet` are the rows that are not loud."""

    traces: Traces
    quiet: DataFrame
    topics: DataFrame
    publishes: DataFrame
    stays: DataFrame
    pairs: DataFrame
    load: DataFrame
    per_message: DataFrame


class Groups(NamedTuple):
    """What is shown, by run, what and key."""

    means: DataFrame
    spreads: DataFrame
    bins: DataFrame


@contextmanager
def gathered(traces: Traces) -> Iterator[Facts]:
    """The two large frames are given back at the end; Spark forgets the small ones when nobody holds them."""
    quiet = quiet_rows(traces.rows).persist()
    topics = facts.topics(quiet).localCheckpoint()
    publishes = facts.publishes(quiet, traces.messages, traces.runs, topics).localCheckpoint()
    stays = facts.stays(quiet, topics).localCheckpoint()
    sent, joined = _handy(publishes), _handy(stays)
    pairs = facts.pairs(traces.rows, sent, joined).persist()
    expected, copies = facts.expected(publishes, joined), facts.copies(traces.rows, sent)
    per_message = facts.per_message(publishes, pairs, expected, copies).localCheckpoint()
    try:
        yield Facts(traces, quiet, topics, sent, joined, pairs, load.load(traces.rows).localCheckpoint(), per_message)
    finally:
        pairs.unpersist()
        quiet.unpersist()


def quiet_rows(rows: DataFrame) -> DataFrame:
    """All that are not loud, with the columns that anything asks of them."""
    return rows.select(*QUIET).where(~F.col("kind").isin(*LOUD))


def figure_groups(known: Facts) -> Groups:
    """Only what the figures of a run are taken from."""
    nothing = known.traces.runs.select("run", "run", "run", "run").where("false")
    return Groups(_means(known, whole_run=True), spread(_times(known), BY).localCheckpoint(), nothing)


def groups(known: Facts) -> Groups:
    """Everything that is shown."""
    values = _values(known)
    binned = values.where(F.col("what").isin(DELIVERY, RECEPTION, HELD_BACK) | (F.col("what") >= LOAD))
    return Groups(
        _means(known, whole_run=False), spread(values, BY).localCheckpoint(), histogram(binned, BY).localCheckpoint()
    )


def _handy(frame: DataFrame) -> DataFrame:
    """To be sent to every task of a join where it is small enough; Spark's own guess of its size is far too high."""
    return F.broadcast(frame) if frame.count() <= BROADCAST else frame


def _means(known: Facts, *, whole_run: bool) -> DataFrame:
    marks = [F.struct(F.lit(DELIVERY).alias("what"), F.lit(0).cast("long").alias("key"))]
    messages = known.per_message
    if not whole_run:
        messages = delivery.placed(messages, delivery.stretches(known.publishes))
        marks.append(F.struct(F.lit(TOPIC).alias("what"), F.col("topic").cast("long").alias("key")))
        marks.append(F.struct(F.lit(STRETCH).alias("what"), F.col("stretch").alias("key")))
    marked = messages.withColumn("mark", F.explode(F.array(*marks))).select("*", "mark.*")
    return delivery.summary(marked, BY).localCheckpoint()


def _times(known: Facts) -> DataFrame:
    """The two latencies that every run is told by."""
    return _marked({DELIVERY: latency.delivery(known.pairs), RECEPTION: latency.reception(known.pairs)})


def _values(known: Facts) -> DataFrame:
    """run, what, key, value: everything that a distribution is shown of."""
    of_run = {
        HELD_BACK: latency.held_back(known.pairs),
        BARRIER: latency.barriers(known.publishes),
        SUBSCRIPTION: latency.subscription(known.quiet),
        WAITING: load.queues(known.quiet),
    }
    of_node = {LOAD + place: known.load.select("run", F.col(what).alias("value")) for place, what in enumerate(load.WHAT)}
    placed = delivery.placed(known.pairs, delivery.stretches(known.publishes))
    grouped = {
        TOPIC: latency.delivery(known.pairs, ("run", "topic")),
        HOP: latency.delivery(known.pairs.where(F.col("hops").isNotNull()), ("run", "hops")),
        STRETCH: latency.delivery(placed, ("run", "stretch")),
    }
    return _times(known).unionAll(_marked(of_run | of_node | grouped))


def _marked(frames: dict[int, DataFrame]) -> DataFrame:
    """With the columns of BY before the value; the key is whatever stands between run and value."""

    def marked(what: int, frame: DataFrame) -> DataFrame:
        key = [name for name in frame.columns if name not in ("run", "value")]
        of = F.col(key[0]).cast("long") if key else F.lit(0).cast("long")
        return frame.select("run", F.lit(what).alias("what"), of.alias("key"), F.col("value").cast("long").alias("value"))

    return reduce(lambda left, right: left.unionAll(right), (marked(*item) for item in frames.items()))
