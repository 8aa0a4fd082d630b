"""Distributions: mean, percentiles and histograms of any value, by any keys.

One percentile definition everywhere: the smallest value with at least that share at or below it. Spark's own exact
percentile keeps every value of a group in one task's memory, and its approximate one is off at the tail; so the rank is
found in two passes, first among buckets of 1,024, then among the values of the one bucket that holds it. Ranks are whole
numbers: as floats, 0.07 * 100 is more than 7.

Bounds: a row a bucket and key; no task holds the values of a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

PERCENTILES = (50, 90, 99)
BUCKET = 10  # bits of a value not told apart in the first pass
BINS = 40


def spread(values: DataFrame, by: Sequence[str]) -> DataFrame:
    """by, count, mean, p50, p90, p99, max of the column `value`, whole numbers; nulls are left out."""
    values = values.where(F.col("value").isNotNull()).select(*by, "value", F.shiftright("value", BUCKET).alias("bucket"))
    sums = (F.count("*").alias("n"), F.sum("value").alias("sum"), F.max("value").alias("max"))
    coarse = values.groupBy(*by, "bucket").agg(*sums).localCheckpoint()  # else a pass for each of its three uses
    totals = coarse.groupBy(*by).agg(
        F.sum("n").alias("count"), (F.sum("sum") / F.sum("n")).alias("mean"), F.max("max").alias("max")
    )
    ranks = _ranks(coarse, by).localCheckpoint()
    fine = values.join(F.broadcast(ranks.select(*by, "bucket").distinct()), [*by, "bucket"])
    exact = _exact(fine.groupBy(*by, "bucket", "value").agg(F.count("*").alias("n")), ranks, by)
    names = [f"p{share}" for share in PERCENTILES]
    return totals.join(exact, list(by)).select(*by, "count", "mean", *names, "max")


def _ranks(coarse: DataFrame, by: Sequence[str]) -> DataFrame:
    """by, bucket, share, rank: in which bucket each percentile lies, and at which place in it, from 1."""
    key = Window.partitionBy(*by)
    running = coarse.select(*by, "bucket", "n", _upto(key.orderBy("bucket")).alias("upto"), F.sum("n").over(key).alias("total"))
    shares = F.explode(F.array(*(F.lit(share) for share in PERCENTILES)))
    ranked = running.withColumn("share", shares).withColumn("rank", F.expr("(total * share + 99) div 100"))
    before = F.col("upto") - F.col("n")
    inside = ranked.where((before < F.col("rank")) & (F.col("rank") <= F.col("upto")))
    return inside.select(*by, "bucket", "share", (F.col("rank") - before).alias("rank"))


def _exact(counts: DataFrame, ranks: DataFrame, by: Sequence[str]) -> DataFrame:
    key = Window.partitionBy(*by, "bucket").orderBy("value")
    running = counts.select(*by, "bucket", "value", "n", _upto(key).alias("upto"))
    found = running.join(F.broadcast(ranks), [*by, "bucket"])
    found = found.where((F.col("upto") - F.col("n") < F.col("rank")) & (F.col("rank") <= F.col("upto")))
    columns = (F.max(F.when(F.col("share") == share, F.col("value"))).alias(f"p{share}") for share in PERCENTILES)
    return found.groupBy(*by).agg(*columns)


def _upto(window: WindowSpec) -> Column:
    return F.sum("n").over(window.rowsBetween(Window.unboundedPreceding, Window.currentRow))


def histogram(values: DataFrame, by: Sequence[str], bins: int = BINS) -> DataFrame:
    """by, low, high, count: equal bins from zero to the largest `value` of each key; empty ones are left out.

    A bin holds low <= value < high; they are whole numbers wide, so there may be fewer than `bins`.
    """
    values = values.where(F.col("value").isNotNull()).select(*by, "value")
    width = F.expr(f"max(value) div {bins} + 1").alias("width")
    placed = values.join(F.broadcast(values.groupBy(*by).agg(width)), list(by)).withColumn("bin", F.expr("value div width"))
    counts = placed.groupBy(*by, "bin").agg(F.count("*").alias("count"), F.min("width").alias("width"))
    low, high = F.col("bin") * F.col("width"), (F.col("bin") + 1) * F.col("width")
    return counts.select(*by, low.alias("low"), high.alias("high"), "count")
