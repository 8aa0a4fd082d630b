"""How long things took, in microseconds: delivery, reception, the wait for a causal barrier, a subscription.

Each function gives the values as rows (by, value); `bench.spark.spread` turns them into means, percentiles and
histograms, by run, or by topic, hop or stretch of time beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from peer.trace import JOIN, JOINED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def delivery(pairs: DataFrame, by: Sequence[str] = ("run",)) -> DataFrame:
    """From the publish call to the delivery, over all (message, subscriber) pairs; also those after the window."""
    return pairs.where(F.col("delivered").isNotNull()).select(*by, F.col("delivered").alias("value"))


def reception(pairs: DataFrame, by: Sequence[str] = ("run",)) -> DataFrame:
    """From the publish call to the first copy, over receptions by nodes that were joined at that time."""
    return pairs.where(F.col("received").isNotNull() & F.col("member")).select(*by, F.col("received").alias("value"))


def held_back(pairs: DataFrame, by: Sequence[str] = ("run",)) -> DataFrame:
    """From the first copy to the delivery: validation, and the wait of a causal barrier for what must come before."""
    wait = (F.col("delivered") - F.col("received")).alias("value")
    return pairs.where(F.col("delivered") >= F.col("received")).select(*by, wait)


def barriers(publishes: DataFrame, by: Sequence[str] = ("run",)) -> DataFrame:
    """Size of the causal barrier that a message carries: its direct dependencies."""
    return publishes.select(*by, F.size(F.coalesce("dependencies", F.array().cast("array<long>"))).cast("long").alias("value"))


def subscription(rows: DataFrame) -> DataFrame:
    """From the call of join to the subscription being in force; of several `joined` rows after one `join` the first."""
    rows = rows.where(F.col("kind").isin(JOIN, JOINED)).select("run", "node", "topic", "kind", "t")
    so_far = Window.partitionBy("run", "node", "topic").orderBy("t").rangeBetween(Window.unboundedPreceding, Window.currentRow)
    called = F.max(F.when(F.col("kind") == JOIN, F.col("t"))).over(so_far)
    pairs = rows.withColumn("called", called).where((F.col("kind") == JOINED) & F.col("called").isNotNull())
    first = pairs.groupBy("run", "node", "topic", "called").agg(F.min("t").alias("t"))
    return first.select("run", (F.col("t") - F.col("called")).alias("value"))
