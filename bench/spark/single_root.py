"""Trees with a single root, measured as the authors of VCube-PS measure them: with the publisher, and without the root.

A publisher sends its message to the root, and subscribes; so it gets a copy back through the tree, which to all other measures is
a duplicate. Here that copy counts like any subscriber's, and the root's reception does not, whether it subscribes or not. The
step to the root is no copy of the tree. Of a message whose publisher got no copy back, the publisher is the root itself.
Bounds: one row a run; of `nodes` one row a node, of `batches` one a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from bench.spark.facts import PAYLOAD
from peer.trace import DUPLICATE, QUEUE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bench.spark.gather import Facts


def echoes(known: Facts) -> DataFrame:
    """run, msg, number, publisher, t, echo: each message whose publisher got it back, and after how many microseconds."""
    again = known.traces.rows.where(F.col("kind") == DUPLICATE)
    again = again.select("run", "msg", F.col("node").alias("publisher"), F.col("t").alias("back"))
    sent = known.publishes.select("run", "msg", "number", "publisher", "t")
    after = F.min(F.col("back") - F.col("t")).alias("echo")
    return sent.join(again, ["run", "msg", "publisher"]).groupBy("run", "msg", "number", "publisher", "t").agg(after)


def times(known: Facts) -> DataFrame:
    """run, number, node, value: microseconds to each subscriber that counts."""
    back = echoes(known)
    others = known.pairs.where(F.col("member") & F.col("received").isNotNull())
    is_root = F.col("echo").isNotNull() & (F.coalesce("hops", F.lit(0)) == 1)
    through = others.join(back.select("number", "echo"), "number", "left").where(~is_root)
    own = back.select("run", "number", F.col("publisher").alias("node"), F.col("echo").alias("value"))
    return through.select("run", "number", "node", F.col("received").alias("value")).unionAll(own)


def summary(known: Facts) -> DataFrame:
    """run, mean_ms, last_ms, copies: over subscribers, over messages, and the copies of the tree alone."""
    by_message = times(known).groupBy("run", "number").agg(
        F.sum("value").alias("sum"), F.count("*").alias("count"), F.max("value").alias("last")
    )
    back = echoes(known).select("run", "msg", "echo")
    named = known.per_message.join(known.publishes.select("run", "msg", "number"), ["run", "msg"])
    tree = named.join(back, ["run", "msg"], "left")
    tree = tree.select("number", (F.col("copies") - F.col("echo").isNotNull().cast("int")).alias("copies"))
    return by_message.join(tree, "number").groupBy("run").agg(
        (F.sum("sum") / F.sum("count") / 1_000).alias("mean_ms"),
        (F.mean("last") / 1_000).alias("last_ms"),
        F.mean("copies").alias("copies"),
    )


def batches(known: Facts, count: int = 20) -> DataFrame:
    """run, batch, mean_ms: the messages of a long run in `count` parts, one after the other; for an interval by batch means."""
    by_message = times(known).groupBy("run", "number").agg(F.sum("value").alias("sum"), F.count("*").alias("count"))
    when = known.publishes.select("number", "t")
    in_turn = F.ntile(count).over(Window.partitionBy("run").orderBy("t", "number"))
    mean = (F.sum("sum") / F.sum("count") / 1_000).alias("mean_ms")
    return by_message.join(when, "number").withColumn("batch", in_turn).groupBy("run", "batch").agg(mean)


def nodes(known: Facts) -> DataFrame:
    """run, node, mean_ms, queue: of each node that has either, the mean time to it, and the mean length of its send queue.

    The queue is that of which a copy of the tree makes part when it comes to it, that copy included.
    """
    back = echoes(known).select("run", F.col("number"), "publisher", F.col("t").alias("sent"))
    named = known.publishes.select("run", "msg", "number")
    rows = known.traces.rows.where((F.col("kind") == QUEUE) & (F.col("lane") == PAYLOAD))
    sampled = rows.select("run", "msg", "node", "t", F.col("copies").alias("waiting")).join(named, ["run", "msg"])
    to_root = [sampled.number == back.number, sampled.node == back.publisher, sampled.t == back.sent]
    tree = sampled.join(back.drop("run"), to_root, "left_anti")
    queued = tree.groupBy("run", "node").agg(F.mean("waiting").alias("queue"))
    timed = times(known).groupBy("run", "node").agg((F.mean("value") / 1_000).alias("mean_ms"))
    return timed.join(queued, ["run", "node"], "full").select("run", "node", "mean_ms", "queue")
