"""The facts that measures are taken from: who was joined when, what was published, and what became of it at each node.

Definitions are those of `docs/architecture.md`; `libweft.bench.runs.counters` counts the same while a run goes on. Rows are
compared by time only, never by their order, so nothing here depends on how Spark cuts a file.

    rows -> stays        who was joined to what, from when until when
    rows -> publishes    one row a message
    rows -> pairs        one row a message and node that received or delivered it: the large one, made in one pass
    pairs -> per_message one row a message again, with all that its figures need
    rows -> arrivals     one row a copy that came: nothing is grouped or moved, so it costs a tenth of `pairs`

Topics and messages are carried as small numbers (`topic`, named in `topics`, and `number`, of `publishes`) that no two
runs share: a string in every pair would cost more than the rest of it, and a key of one int or two is the quickest there
is. Bounds: `publishes`, `stays` and `per_message` grow with messages and subscriptions, `pairs` with receptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from libweft.bench.spark.percentiles import MOST
from libweft.peer.trace.kinds import DELIVER, DROP, DUPLICATE, JOINED, LEAVE, NODE_DOWN, PUBLISH, RECEIVE, SEND

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

BROADCAST = 1_000_000  # rows of a table that each task may hold: some 50 MB
NEVER = 1 << 62
PAYLOAD = "payload"
HOPS = 1 << 16  # of one delivery; the last one stands for unknown
RECEIVED = -1  # in the place of the hops of a delivery
SANE = 1 << 46  # microseconds, two years: a latency above it is no latency but a clock


def topics(rows: DataFrame) -> DataFrame:
    """run, name, topic: numbers, of which no two runs share one, for what anybody published to, joined or left.

    The null topic has a number too.
    """
    names = rows.where(F.col("kind").isin(PUBLISH, JOINED, LEAVE)).select("run", F.col("topic").alias("name")).distinct()
    number = F.row_number().over(Window.orderBy("run", "name"))
    many = F.raise_error(F.lit(f"more than {MOST:,} topics")).cast("int")
    return names.select("run", "name", F.when(number < MOST, number).otherwise(many).alias("topic"))


def publishes(rows: DataFrame, messages: DataFrame, runs: DataFrame, topics: DataFrame) -> DataFrame:
    """One row a message: run, msg, number, publisher, topic, t, deadline, source, epoch, sequence, dependencies.

    The first `publish` row of a message counts, by time and then by node; its window ends at `deadline`. No two messages
    of all runs share a `number`.
    """
    rows = rows.where(F.col("kind") == PUBLISH).withColumnRenamed("topic", "name")
    row = F.min(F.struct("t", "node", "name", "dependencies")).alias("row")
    first = rows.groupBy("run", "msg").agg(row).select("run", "msg", "row.*")
    known = messages.dropDuplicates(["run", "msg"]).select("run", "msg", "source", "epoch", "sequence")
    topics = topics.withColumnsRenamed({"run": "of", "name": "called"})
    coded = first.join(F.broadcast(topics), (F.col("run") == F.col("of")) & F.col("name").eqNullSafe(F.col("called")))
    windowed = coded.join(F.broadcast(runs), "run").join(known, ["run", "msg"], "left")
    return windowed.select(
        *("run", "msg", F.row_number().over(Window.orderBy("run", "msg")).alias("number"), F.col("node").alias("publisher")),
        *("topic", "t", (F.col("t") + F.col("window")).alias("deadline")),
        *("source", "epoch", "sequence", "dependencies"),
    )


def stays(rows: DataFrame, topics: DataFrame) -> DataFrame:
    """run, topic, node, since, until: joined from `since` on, and no more at `until`, which is NEVER while it lasts.

    A `joined` row begins one; the next `leave` of the topic or `node_down` of the node ends it, and one at the same time
    voids it, whichever row came first. Two `joined` rows with no end between them are one stay.
    """
    rows = rows.where(F.col("kind").isin(JOINED, LEAVE, NODE_DOWN)).withColumnRenamed("topic", "name")
    rows = rows.select("run", "node", "kind", "name", "t")
    topics = topics.withColumnsRenamed({"run": "of", "name": "called"})
    named = (F.col("run") == F.col("of")) & F.col("name").eqNullSafe(F.col("called"))
    coded = rows.join(F.broadcast(topics), named & (F.col("kind") != NODE_DOWN), "left")
    of_topic = Window.partitionBy("run", "node", "topic")
    ends = [
        next_row(F.col("kind") == LEAVE, of_topic),
        next_row(F.col("kind") == NODE_DOWN, Window.partitionBy("run", "node")),
    ]
    ended = coded.withColumn("until", F.least(*(F.coalesce(end, F.lit(NEVER)) for end in ends)))
    began = ended.where((F.col("kind") == JOINED) & (F.col("t") < F.col("until")))
    merged = began.groupBy("run", "topic", "node", "until").agg(F.min("t").alias("since"))
    return merged.select("run", "topic", "node", "since", "until")


def next_row(what: Column, window: WindowSpec) -> Column:
    """The time of the first such row at this time or later; backwards, since Spark keeps a running minimum only forwards."""
    later = window.orderBy(F.col("t").desc()).rangeBetween(Window.unboundedPreceding, Window.currentRow)
    return F.min(F.when(what, F.col("t"))).over(later)


def pairs(rows: DataFrame, publishes: DataFrame, stays: DataFrame, parts: int) -> DataFrame:
    """One row a message and node: run, number, node, topic, t, received, delivered, hops, member, in_time, early.

    `received` and `delivered` are microseconds after the publish at `t`, by the first such row at or after it, null where
    there is none. `hops` are those of that delivery (of several at one time the fewest). `member`: joined when it
    received. `in_time`: joined from the publish to the end of its window, and delivered within it. The publisher's own
    rows are left out; `early` counts rows before the publish, which a sound clock does not write.

    All rows of a node are in one of the `parts`, so that nothing which asks for what else a node did moves them again.
    """
    hops = F.least(F.coalesce("hops", F.lit(HOPS - 1)), F.lit(HOPS - 1))
    code = F.when(F.col("kind") == DELIVER, hops).otherwise(F.lit(RECEIVED)).alias("code")
    events = rows.where(F.col("kind").isin(RECEIVE, DELIVER)).select("run", "msg", "node", "t", code)
    sent = publishes.select("run", "msg", "number", "publisher", "topic", F.col("t").alias("published"), "deadline")
    known = events.repartition(parts, "node").join(sent, ["run", "msg"]).where(F.col("node") != F.col("publisher"))
    return _judged(_first_rows(known.withColumn("after", F.col("t") - F.col("published"))), stays)


def _first_rows(known: DataFrame) -> DataFrame:
    """By message and node; time and hops of a delivery are one number, so that the smallest of it is the first's hops."""
    sound, received = F.col("after").between(0, SANE), F.col("code") == RECEIVED
    grouped = known.groupBy("run", "number", "node").agg(
        F.min("topic").alias("topic"),
        F.min("published").alias("t"),
        F.min("deadline").alias("deadline"),
        F.min(F.when(sound & received, F.col("after"))).alias("received"),
        F.min(F.when(sound & ~received, F.col("after") * HOPS + F.col("code"))).alias("packed"),
        F.count_if(~sound).alias("early"),
    )
    hops = F.col("packed").bitwiseAND(HOPS - 1).cast("int")
    return grouped.withColumns({"delivered": F.shiftright("packed", 16), "hops": F.when(hops < HOPS - 1, hops)}).drop("packed")


def _judged(first: DataFrame, stays: DataFrame) -> DataFrame:
    at, deadline = F.col("t") + F.col("received"), F.col("deadline")
    judged = joined_from(joined_from(first, stays, at, at, "member"), stays, F.col("t"), deadline, "lasting")
    in_time = F.col("lasting") & F.coalesce(F.col("t") + F.col("delivered") <= deadline, F.lit(False))
    return judged.withColumn("in_time", in_time).drop("deadline", "lasting")


def arrivals(rows: DataFrame, publishes: DataFrame, stays: DataFrame) -> DataFrame:
    """run, number, node, publisher, first, after, hops, member: a row for each copy of a message that came to a node.

    `first` tells a `receive` row from a `duplicate`; `after` is microseconds after the publish, and `member` whether the node was
    joined when it came. Where `pairs` looks for the first row of a node and message, here all count: what writes a trace
    writes `receive` for the first copy alone, so they are the same where no node is restarted and no clock is wrong.
    """
    events = rows.where(F.col("kind").isin(RECEIVE, DUPLICATE)).select(
        "run", "msg", "node", (F.col("kind") == RECEIVE).alias("first"), F.col("t").alias("at"), "hops"
    )
    known = events.join(publishes.select("run", "msg", "number", "publisher", "topic", "t"), ["run", "msg"])
    judged = joined_from(known, stays, F.col("at"), F.col("at"), "member")
    after = (F.col("at") - F.col("t")).alias("after")
    return judged.select("run", "number", "node", "publisher", "first", after, "hops", "member")


def joined_from(frame: DataFrame, stays: DataFrame, begin: Column, end: Column, name: str) -> DataFrame:
    """Add a column that says whether `node` was joined to `topic` from `begin` to `end`, both included.

    Stays of one node and topic do not overlap, so one at most holds both times, and no row of the frame comes twice.
    Where clocks disagree `begin` may be the later of the two.
    """
    begin, end = F.least(begin, end), F.greatest(begin, end)
    stay = stays.withColumnsRenamed({column: f"stay_{column}" for column in stays.columns})
    same = [F.col(key) == F.col(f"stay_{key}") for key in ("topic", "node")]  # two ints are one long to Spark
    found = frame.join(stay, [*same, F.col("stay_since") <= begin, F.col("stay_until") > end], "left")
    return found.withColumn(name, F.col("stay_since").isNotNull()).drop(*stay.columns)


def expected(publishes: DataFrame, stays: DataFrame) -> DataFrame:
    """number, expected: the others that had joined at the publish and stayed joined and up to the end of its window."""
    throughout = (F.col("since") <= F.col("t")) & (F.col("until") > F.col("deadline")) & (F.col("node") != F.col("publisher"))
    return publishes.join(stays, "topic").where(throughout).groupBy("number").agg(F.count("*").alias("expected"))


def copies(rows: DataFrame, publishes: DataFrame) -> DataFrame:
    """number, copies: payload copies put on a link since the publish, m; what was dropped before it left is taken off."""
    count = F.coalesce("copies", F.lit(1))
    signed = F.when(F.col("kind") == SEND, count).otherwise(-count).alias("copies")
    moved = rows.where(F.col("kind").isin(SEND, DROP) & (F.col("lane") == PAYLOAD)).select("run", "msg", "t", signed)
    since = publishes.select("run", "msg", "number", F.col("t").alias("published"))
    known = moved.join(since, ["run", "msg"]).where(F.col("t") >= F.col("published"))
    return known.groupBy("number").agg(F.sum("copies").alias("copies"))


def per_message(publishes: DataFrame, pairs: DataFrame, expected: DataFrame, copies: DataFrame) -> DataFrame:
    """run, msg, topic, t, publisher, expected, in_time, receptions, strangers, deliveries, copies, early,
    last, last_hop.

    One row a message, also for one that reached nobody. `strangers` are receptions by nodes that were not joined; `last`
    is the latency of its last delivery, `last_hop` the most hops among its deliveries.
    """
    received, delivered = F.col("received").isNotNull(), F.col("delivered").isNotNull()
    reached = pairs.groupBy("number").agg(
        F.count_if(received).alias("receptions"),
        F.count_if(received & ~F.col("member")).alias("strangers"),
        F.count_if(delivered).alias("deliveries"),
        F.count_if("in_time").alias("in_time"),
        F.max("delivered").alias("last"),
        F.max("hops").alias("last_hop"),
        F.sum("early").alias("early"),
    )
    joined = publishes
    for facts in (reached, expected, copies):
        joined = joined.join(facts, "number", "left")
    zeros: dict[str, bool | float | int | str] = dict.fromkeys(
        ("expected", "in_time", "receptions", "strangers", "deliveries", "copies", "early"), 0
    )
    return joined.fillna(zeros).select("run", "msg", "topic", "t", "publisher", *zeros, "last", "last_hop")


def handy(frame: DataFrame) -> DataFrame:
    """Computed, and to be sent to every task of a join where it is small enough; Spark guesses its size far too high."""
    kept = frame.localCheckpoint()
    return F.broadcast(kept) if kept.count() <= BROADCAST else kept
