"""The facts of some traces, each computed once and kept: what all figures and tables are taken from.

The loud kinds (send, receive, duplicate, deliver, drop) are most rows of a trace and are read three times, for `pairs`,
`load` and the copies of a message. All other rows are kept. What is small is cut off from how it was made
(a local checkpoint), because Spark plans a query over the whole of its past, and on a small trace planning is the cost.
Distributions of everything, by run and by topic, hop and time, are one query, and so are the means.

Who wants to follow gives a `step`, which is called after each one with its name and the frame it made; `pairs` is not
yet computed then.

Bounds: Spark holds what is kept in memory and spills it to disk; nothing of it reaches the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bench.spark import delivery, facts, latency, load
from bench.spark.spread import group_of, histogram, spread, told_apart
from bench.spark.traces import Traces
from peer.trace import DELIVER, DROP, DUPLICATE, RECEIVE, SEND

if TYPE_CHECKING:
    from pyspark.sql import Column

Step: TypeAlias = Callable[[str, DataFrame], None]

LOUD = (SEND, RECEIVE, DUPLICATE, DELIVER, DROP)
QUIET = ("run", "t", "node", "kind", "topic", "msg", "peer", "copies", "dependencies")
PART = 1_000_000  # rows of a trace whose pairs are one task's

# What a group is of, as a number, those of pairs first. `key` is the topic, the hop or the beginning of the stretch of
# time, and 0 for what is of the whole run.
DELIVERY, RECEPTION, HELD_BACK, TOPIC, HOP, STRETCH, BARRIER, SUBSCRIPTION, WAITING, LOAD = range(10)
NAMES = ("delivery", "reception", "held back", "topic", "hop", "stretch", "barrier", "subscription", "waiting", *load.WHAT)
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


def _unheeded(name: str, frame: DataFrame) -> None:
    """For who does not follow."""


@contextmanager
def gathered(traces: Traces, step: Step = _unheeded) -> Iterator[Facts]:
    """The two large frames are given back at the end; Spark forgets the small ones when nobody holds them."""
    quiet = _quiet_rows(traces.rows).persist()
    topics = facts.topics(quiet).localCheckpoint()
    step("quiet", quiet)
    publishes = facts.handy(facts.publishes(quiet, traces.messages, traces.runs, topics))
    step("publishes", publishes)
    stays = facts.handy(facts.stays(quiet, topics))
    step("stays", stays)
    parts = 1 + sum(run.manifest.get("rows", 0) for run in traces.about) // PART
    pairs = facts.pairs(traces.rows, publishes, stays, parts).persist()
    step("pairs", pairs)
    expected, copies = facts.expected(publishes, stays), facts.copies(traces.rows, publishes)
    per_message = facts.per_message(publishes, pairs, expected, copies).localCheckpoint()
    step("per_message", per_message)
    carried = load.load(traces.rows)
    if unsized := [run.number for run in traces.about if not run.sized]:
        carried = carried.withColumn("bytes", F.when(~F.col("run").isin(unsized), F.col("bytes")))
    carried = carried.localCheckpoint()
    step("load", carried)
    try:
        yield Facts(traces, quiet, topics, publishes, stays, pairs, carried, per_message)
    finally:
        pairs.unpersist()
        quiet.unpersist()
        for frame in traces.held:
            frame.unpersist()


def _quiet_rows(rows: DataFrame) -> DataFrame:
    """All that are not loud, with the columns that anything asks of them."""
    return rows.select(*QUIET).where(~F.col("kind").isin(*LOUD))


def figure_groups(known: Facts) -> Groups:
    """Only what the figures of a run are taken from."""
    nothing = known.traces.runs.select("run", "run", "run", "run").where("false")
    times = {what: value for what, value in _of_run().items() if what != HELD_BACK}
    return Groups(_kept(_means(known.per_message, {})), _kept(told_apart(spread([_grouped(known.pairs, times)]))), nothing)


def groups(known: Facts, step: Step = _unheeded) -> Groups:
    """Everything that is shown."""
    stretches = delivery.stretches(known.publishes).localCheckpoint()
    keys = {TOPIC: F.col("topic"), STRETCH: F.col("stretch")}
    means = _kept(_begun(_means(delivery.placed(known.per_message, stretches), keys), stretches))
    step("means", means)
    keyed = {what: (key, latency.delivery()) for what, key in (keys | {HOP: F.col("hops")}).items()}
    of_pairs = _grouped(delivery.placed(known.pairs, stretches), _of_run() | keyed)
    of_nodes = _grouped(known.load, {LOAD + place: (F.lit(0), F.col(what)) for place, what in enumerate(load.WHAT)})
    spreads = _kept(_begun(told_apart(spread([of_pairs, of_nodes.unionAll(_of_quiet(known))])), stretches))
    step("spreads", spreads)
    bins = _kept(told_apart(histogram([_grouped(known.pairs, _of_run()), of_nodes], spreads)))
    step("bins", bins)
    return Groups(means, spreads, bins)


def _kept(frame: DataFrame) -> DataFrame:
    """In one piece, since it is small: then to sort it, or to join it with another, moves nothing."""
    return frame.coalesce(1).localCheckpoint()


def _means(per_message: DataFrame, keys: Mapping[int, Column]) -> DataFrame:
    """Of whole runs, and by these keys."""
    wanted = {DELIVERY: F.lit(0), **keys}
    marks = [F.struct(F.lit(what).alias("what"), key.cast("long").alias("key")) for what, key in wanted.items()]
    marked = per_message.withColumn("mark", F.explode(F.array(*marks))).select("*", "mark.*")
    return delivery.summary(marked, BY)


def _begun(frame: DataFrame, stretches: DataFrame) -> DataFrame:
    """With the beginning of a stretch in the place of its number."""
    begin = F.when(F.col("what") == STRETCH, F.col("first") + F.col("key") * F.col("width")).otherwise(F.col("key"))
    return frame.join(F.broadcast(stretches), "run", "left").withColumn("key", begin).drop("first", "width")


def _of_run() -> dict[int, tuple[Column, Column]]:
    """Keys and values of pairs, over a whole run."""
    times = {DELIVERY: latency.delivery(), RECEPTION: latency.reception(), HELD_BACK: latency.held_back()}
    return {what: (F.lit(0), value) for what, value in times.items()}


def _of_quiet(known: Facts) -> DataFrame:
    frames = {
        BARRIER: known.publishes.select("run", latency.barrier().alias("value")),
        SUBSCRIPTION: latency.subscription(known.quiet),
        WAITING: load.queues(known.quiet),
    }
    return reduce(DataFrame.unionAll, (_grouped(frame, {what: (F.lit(0), F.col("value"))}) for what, frame in frames.items()))


def _grouped(frame: DataFrame, of: Mapping[int, tuple[Column, Column]]) -> DataFrame:
    """group, value: a row of each kind for each row of the frame, the value null where the key is.

    It takes one pass, where a union would take one a kind; and Spark need not look whether a group is null.
    """
    marked = frame.withColumn("what", F.explode(F.array(*map(F.lit, of))))
    groups = {what: group_of(what, F.coalesce(key, F.lit(0))) for what, (key, _) in of.items()}
    values = {what: F.when(key.isNotNull(), value.cast("long")) for what, (key, value) in of.items()}
    return marked.select(_by_what(groups).alias("group"), _by_what(values).alias("value"))


def _by_what(columns: Mapping[int, Column]) -> Column:
    *others, last = columns.items()
    return reduce(lambda other, item: F.when(F.col("what") == item[0], item[1]).otherwise(other), others, last[1])
