"""Order violations: what was delivered at a node before something that should have come first.

Looked at are first deliveries, the publisher's own left out. A stream is what one source published to one topic in one
life (epoch); a position is the place of a message in it, by sequence. Times are compared strictly: of two deliveries at
the same time neither came before the other. That something is missing counts only where the node was joined to the topic
from the publish of what is missing until the delivery that shows the gap.

Asks for `pairs`, `publishes` and `stays` of `libweft.bench.spark.facts`. Cost: fifo and gapless share one sort of the deliveries,
causal is a join of deliveries with deliveries; pairs lie by node, so neither moves them. Bounds: causal holds the
deliveries of one part of the pairs in memory, which are those of one node at least.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from libweft.bench.spark.facts import handy, joined_from

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def fifo_and_gapless(pairs: DataFrame, publishes: DataFrame, stays: DataFrame) -> DataFrame:
    """run, fifo_checked, fifo_violated, gapless_checked, gapless_violated.

    fifo is violated by a delivery when a later message of the same stream was delivered before it. gapless is violated by
    a delivery when the message before it in the stream was not delivered at that time or earlier.
    """
    placed = _deliveries(pairs).join(handy(_positions(publishes)), "number")
    counted = placed.groupBy("run").agg(F.count("*").alias("fifo_checked"))
    placed = placed.where(F.col("length") > 1)  # a stream of one message has no order, and there may be many such
    back = Window.partitionBy("stream", "node").orderBy(F.col("position").desc())
    seen = placed.select(
        *("run", "node", "topic", "position", "at", "published_before", "publisher_before"),
        F.min("at").over(back.rowsBetween(Window.unboundedPreceding, -1)).alias("first_later"),
        F.lead("position").over(back).alias("position_before"),
        F.lead("at").over(back).alias("at_before"),
    )
    judged = joined_from(seen, stays, F.col("published_before"), F.col("at"), "joined")
    checked = F.col("joined") & (F.col("node") != F.col("publisher_before"))
    whole = (F.col("position_before") == F.col("position") - 1) & (F.col("at_before") <= F.col("at"))
    found = judged.groupBy("run").agg(
        F.count_if(F.col("first_later") < F.col("at")).alias("fifo_violated"),
        F.count_if(checked).alias("gapless_checked"),
        F.count_if(checked & ~F.coalesce(whole, F.lit(False))).alias("gapless_violated"),
    )
    return counted.join(found, "run", "left").fillna(0)


def causal(pairs: DataFrame, publishes: DataFrame, stays: DataFrame) -> DataFrame:
    """run, causal_checked, causal_violated, over deliveries and the direct dependencies of what was delivered.

    Violated when the node had not delivered the dependency at that time or earlier. Direct dependencies are enough: by
    induction they bring all others. Dependencies that the trace has no publish of are left out.
    """
    delivered = _deliveries(pairs)
    due = delivered.drop("topic").join(handy(_needs(publishes)), "number").where(F.col("node") != F.col("publisher"))
    due = joined_from(due, stays, F.col("published"), F.col("at"), "joined").where("joined")
    had = delivered.select(F.col("number").alias("needed"), "node", F.col("at").alias("had_at"))
    met = due.select("run", "needed", "node", "at").join(had.hint("shuffle_hash"), ["needed", "node"], "left")
    violated = F.coalesce(F.col("had_at") > F.col("at"), F.lit(True))
    return met.groupBy("run").agg(F.count("*").alias("causal_checked"), F.count_if(violated).alias("causal_violated"))


def _deliveries(pairs: DataFrame) -> DataFrame:
    at = (F.col("t") + F.col("delivered")).alias("at")
    return pairs.where(F.col("delivered").isNotNull()).select("run", "number", "node", "topic", at)


def _positions(publishes: DataFrame) -> DataFrame:
    """number, stream, its length, position, and of the message before it when and by whom it was published."""
    of_stream = Window.partitionBy("run", "topic", "source", "epoch")
    in_order = of_stream.orderBy("sequence", "msg")
    return publishes.where(F.col("sequence").isNotNull()).select(
        "number",
        F.min("number").over(of_stream).alias("stream"),
        F.count("*").over(of_stream).alias("length"),
        F.row_number().over(in_order).alias("position"),
        F.lag("t").over(in_order).alias("published_before"),
        F.lag("publisher").over(in_order).alias("publisher_before"),
    )


def _needs(publishes: DataFrame) -> DataFrame:
    """number, needed: a row for each direct dependency, with its topic, publisher and time."""
    wants = publishes.select("run", "number", F.explode(F.array_distinct("dependencies")).alias("msg"))
    known = publishes.select("run", "msg", F.col("number").alias("needed"), "topic", "publisher", F.col("t").alias("published"))
    return wants.join(known, ["run", "msg"]).drop("run", "msg")
