"""How long things took, in microseconds: delivery, reception, the wait for a causal barrier, a subscription.

Of a pair, a column each, null where a pair does not count; `libweft.bench.spark.percentiles` turns the values into means,
percentiles and histograms, by run, or by topic, hop or stretch of time beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from libweft.bench.spark.facts import joined_from
from libweft.peer.machine import MS
from libweft.peer.trace.kinds import JOIN, JOINED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def delivery() -> Column:
    """From the publish call to the delivery, over all (message, subscriber) pairs; also those after the window."""
    return F.col("delivered")


def reception() -> Column:
    """From the publish call to the first copy, over receptions by nodes that were joined at that time."""
    return F.when(F.col("member"), F.col("received"))


def held_back() -> Column:
    """From the first copy to the delivery: validation, and the wait of a causal barrier for what must come before."""
    return F.when(F.col("delivered") >= F.col("received"), F.col("delivered") - F.col("received"))


def holding(pairs: DataFrame) -> DataFrame:
    """run, at_once, below_10_ms, mean_ms, max_ms: the shares of deliveries that waited not at all, and shortly; and how long."""
    held = pairs.select("run", held_back().alias("held")).where(F.col("held").isNotNull())
    return held.groupBy("run").agg(
        F.mean((F.col("held") == 0).cast("int")).alias("at_once"),
        F.mean((F.col("held") < 10 * MS).cast("int")).alias("below_10_ms"),
        (F.mean("held") / MS).alias("mean_ms"),
        (F.max("held") / MS).alias("max_ms"),
    )


def subscribed(pairs: DataFrame, stays: DataFrame) -> DataFrame:
    """run, mean_ms: delivery to those who had joined when it was published and were still when it was delivered.

    An order fetches for a newcomer what was published a moment before it joined; that took as long as the newcomer was late.
    """
    delivered = pairs.where(F.col("delivered").isNotNull())
    judged = joined_from(delivered, stays, F.col("t"), F.col("t") + F.col("delivered"), "throughout")
    return judged.where("throughout").groupBy("run").agg((F.mean("delivered") / MS).alias("mean_ms"))


def barrier() -> Column:
    """Of a publish: the size of the causal barrier that a message carries, its direct dependencies."""
    return F.coalesce(F.size("dependencies"), F.lit(0))


def subscription(rows: DataFrame) -> DataFrame:
    """run, value: from the call of join to the subscription being in force; of several `joined` after one `join` the first."""
    rows = rows.where(F.col("kind").isin(JOIN, JOINED)).select("run", "node", "topic", "kind", "t")
    so_far = Window.partitionBy("run", "node", "topic").orderBy("t").rangeBetween(Window.unboundedPreceding, Window.currentRow)
    called = F.max(F.when(F.col("kind") == JOIN, F.col("t"))).over(so_far)
    pairs = rows.withColumn("called", called).where((F.col("kind") == JOINED) & F.col("called").isNotNull())
    first = pairs.groupBy("run", "node", "topic", "called").agg(F.min("t").alias("t"))
    return first.select("run", (F.col("t") - F.col("called")).alias("value"))
