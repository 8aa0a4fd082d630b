"""Distributions: mean, percentiles and histograms of the values of groups.

One percentile definition everywhere: the smallest value with at least that share at or below it. Spark's own exact
percentile keeps every value of a group in one task's memory, and its approximate one is off at the tail; so the rank is
found in two passes, first among cells, then among the values of the one cell that holds it. Ranks are whole numbers: as
floats, 0.07 * 100 is more than 7.

A cell is 4,096 values and one long, since Spark finds a long far quicker than several columns: its place in the group
in the lowest 20 bits, then 20 of the run, 3 of what, 20 of the key, and the last bit of what. In that order Spark's
quick table for partial sums, which looks at 17 bits of the two halves xored, tells apart 256 places for 64 keys of 8
kinds; what it cannot tell apart only takes longer.

Bounds: a row a cell; no task holds the values of a group. A million runs, and as many keys of a kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, WindowSpec

PERCENTILES = (50, 90, 99)
BINS = 40

BITS = 20
MOST = 1 << BITS  # runs, keys of a kind, and cells of a group
ROUGH = 12  # bits of a value that are not told apart in the first pass


def group_of(what: int, key: Column) -> Column:
    """The number of a group, from `run`, a kind below 16 and a key below MOST."""
    kind = ((what & 7) << 2 * BITS) - ((what >> 3) << 63)
    return F.shiftleft(F.col("run").cast("long"), BITS).bitwiseOR(F.lit(kind)).bitwiseOR(F.shiftleft(key.cast("long"), 43))


def told_apart(frame: DataFrame) -> DataFrame:
    """With run, what and key beside `group`."""
    group = F.col("group")
    names = {
        "run": F.shiftright(group, BITS).bitwiseAND(MOST - 1).cast("int"),
        "what": F.shiftright(group, 2 * BITS).bitwiseAND(7).bitwiseOR(F.shiftrightunsigned(group, 60).bitwiseAND(8)).cast("int"),
        "key": F.shiftright(group, 43).bitwiseAND(MOST - 1),
    }
    return frame.select(*(column.alias(name) for name, column in names.items()), "*")


def spread(frames: Sequence[DataFrame]) -> DataFrame:
    """group, count, mean, p50, p90, p99, max of `value` over frames that share no group; nulls are left out."""
    celled = [_told(frame).select(F.col("group").bitwiseOR(_place()).alias("cell"), "value") for frame in frames]
    sums = (F.count("*").alias("n"), F.sum("value").alias("sum"), F.max("value").alias("max"))
    cells = _union([frame.groupBy("cell").agg(*sums) for frame in celled])
    coarse = cells.withColumn("group", F.col("cell").bitwiseAND(-MOST)).coalesce(1).localCheckpoint()  # else a pass a use
    ranks = _ranks(coarse).localCheckpoint()
    holding = F.broadcast(ranks.select("cell").distinct())
    fine = _union([frame.join(holding, "cell").groupBy("cell", "value").agg(F.count("*").alias("n")) for frame in celled])
    mean = F.sum("sum") / F.sum("n")
    totals = coarse.groupBy("group").agg(F.sum("n").alias("count"), mean.alias("mean"), F.max("max").alias("max"))
    names = [f"p{share}" for share in PERCENTILES]
    return totals.join(F.broadcast(_exact(fine, ranks)), "group").select("group", "count", "mean", *names, "max")


def histogram(frames: Sequence[DataFrame], spreads: DataFrame, bins: int = BINS) -> DataFrame:
    """group, low, high, count: equal bins from zero to the largest `value` of each group, which its spread tells.

    Values are not below zero, and bins that would be empty are left out.
    A bin holds low <= value < high; they are whole numbers wide, so there may be fewer than `bins`.
    """
    widths = spreads.select("group", width(bins))
    placed = [_told(frame).join(F.broadcast(widths), "group") for frame in frames]
    cell = F.col("group").bitwiseOR(F.expr("value div width")).alias("cell")
    counts = _union([frame.select(cell).groupBy("cell").agg(F.count("*").alias("count")) for frame in placed])
    told = counts.select(F.col("cell").bitwiseAND(-MOST).alias("group"), F.col("cell").bitwiseAND(MOST - 1).alias("bin"), "count")
    low, high = F.col("bin") * F.col("width"), (F.col("bin") + 1) * F.col("width")
    return told.join(F.broadcast(widths), "group").select("group", low.alias("low"), high.alias("high"), "count")


def width(bins: int = BINS) -> Column:
    """Of the bins of a group, from the `max` of its spread."""
    return F.expr(f"max div {bins} + 1").alias("width")


def _told(frame: DataFrame) -> DataFrame:
    return frame.where(F.col("value").isNotNull())


def _place() -> Column:
    """Grows with the value; those below zero share the first, and the largest the last."""
    return F.least(F.shiftright(F.greatest(F.col("value"), F.lit(0)), ROUGH), F.lit(MOST - 1))


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionAll, frames)


def _ranks(coarse: DataFrame) -> DataFrame:
    """group, cell, share, rank: in which cell each percentile lies, and at which place in it, from 1."""
    group = Window.partitionBy("group")
    total = F.sum("n").over(group).alias("total")
    running = coarse.select("group", "cell", "n", _upto(group.orderBy("cell")).alias("upto"), total)
    shares = F.explode(F.array(*(F.lit(share) for share in PERCENTILES)))
    ranked = running.withColumn("share", shares).withColumn("rank", F.expr("(total * share + 99) div 100"))
    before = F.col("upto") - F.col("n")
    inside = ranked.where((before < F.col("rank")) & (F.col("rank") <= F.col("upto")))
    return inside.select("group", "cell", "share", (F.col("rank") - before).alias("rank"))


def _exact(fine: DataFrame, ranks: DataFrame) -> DataFrame:
    running = fine.select("cell", "value", "n", _upto(Window.partitionBy("cell").orderBy("value")).alias("upto"))
    found = running.join(F.broadcast(ranks), "cell")
    found = found.where((F.col("upto") - F.col("n") < F.col("rank")) & (F.col("rank") <= F.col("upto")))
    columns = (F.max(F.when(F.col("share") == share, F.col("value"))).alias(f"p{share}") for share in PERCENTILES)
    return found.groupBy("group").agg(*columns)


def _upto(window: WindowSpec) -> Column:
    return F.sum("n").over(window.rowsBetween(Window.unboundedPreceding, Window.currentRow))
