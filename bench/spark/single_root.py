"""Trees with a single root, measured as the authors of VCube-PS measure them: with the publisher, and without the root.

A publisher sends its message to the root, and subscribes; so it gets a copy back through the tree, which to all other measures is
a duplicate. Here that copy counts like any subscriber's, and the root's reception does not, whether it subscribes or not: it is
the one after a single hop. The step to the root is no copy of the tree. Of a message whose publisher got no copy back, the
publisher is the root itself.

All of it is taken from `messages`, one pass over the copies that came; `nodes` and `queues` take one more each. So a trace need
not have `deliver` rows, and Spark moves none of its rows.
Bounds: one row a message in Spark; one row a run, of `nodes` and `queues` one a node, of `batches` one a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from libweft.bench.spark import facts
from libweft.bench.spark.facts import PAYLOAD, SANE
from libweft.peer.trace.kinds import DROP, QUEUE, SEND

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from libweft.bench.spark.gather import Facts


def messages(known: Facts) -> DataFrame:
    """run, number, msg, publisher, t, receptions, strangers, echo, sum, count, last: one row a message of which a copy came.

    `echo`: after how many microseconds its publisher got it back, null where it did not. `sum`, `count` and `last` are of the
    times to the subscribers that count. Receptions are those of others than the publisher, by whoever was joined or was not.
    """
    near, far = _nearby() & _counts(), ~_nearby() & _counts()
    came = known.arrivals.groupBy("number").agg(
        F.count_if(_received()).alias("receptions"),
        F.count_if(_received() & ~F.col("member")).alias("strangers"),
        F.min(F.when(~F.col("first") & (F.col("node") == F.col("publisher")), F.col("after"))).alias("echo"),
        *_times(near, "near"),
        *_times(far, "far"),
    )
    echo = F.col("echo")
    through = came.select(
        *("number", "receptions", "strangers", "echo"),
        (F.coalesce("far_sum", F.lit(0)) + F.coalesce(echo, "near_sum", F.lit(0))).alias("sum"),
        (F.col("far_count") + F.when(echo.isNull(), F.col("near_count")).otherwise(1)).alias("count"),
        F.greatest("far_last", F.coalesce(echo, "near_last")).alias("last"),
    )
    sent = known.publishes.select("run", "number", "msg", "publisher", "t")
    return sent.join(through, "number").localCheckpoint()


def summary(known: Facts, messages: DataFrame) -> DataFrame:
    """run, mean_ms, last_ms, copies: over subscribers, over messages, and the copies of the tree alone, where they are told."""
    told = [run.number for run in known.traces.about if run.wrote(SEND, DROP)]
    reached = messages.where(F.col("count") > 0)
    copies = F.lit(None).cast("double")
    if told:
        reached = reached.join(facts.copies(known.traces.rows, known.publishes), "number", "left")
        tree = F.coalesce("copies", F.lit(0)) - F.col("echo").isNotNull().cast("int")
        copies = F.mean(F.when(F.col("run").isin(told), tree))
    return reached.groupBy("run").agg(_mean_ms(), (F.mean("last") / 1_000).alias("last_ms"), copies.alias("copies"))


def batches(messages: DataFrame, count: int = 20) -> DataFrame:
    """run, batch, mean_ms: the messages of a long run in `count` parts, one after the other; for an interval by batch means."""
    in_turn = F.ntile(count).over(Window.partitionBy("run").orderBy("t", "number"))
    reached = messages.where(F.col("count") > 0)
    return reached.withColumn("batch", in_turn).groupBy("run", "batch").agg(_mean_ms())


def nodes(known: Facts, messages: DataFrame) -> DataFrame:
    """run, node, mean_ms: the mean time to each node that counts once at least."""
    back = messages.where(F.col("echo").isNotNull())
    others = known.arrivals.where(_counts()).join(F.broadcast(back.select("number", "echo")), "number", "left")
    through = others.where(F.col("echo").isNull() | ~_nearby()).select("run", "node", F.col("after").alias("value"))
    own = back.select("run", F.col("publisher").alias("node"), F.col("echo").alias("value"))
    return through.unionAll(own).groupBy("run", "node").agg((F.mean("value") / 1_000).alias("mean_ms"))


def queues(known: Facts, messages: DataFrame) -> DataFrame:
    """run, node, queue: of each node that sends, the mean length of its send queue when a copy of the tree comes to it, that copy
    included."""
    rows = known.traces.rows.where((F.col("kind") == QUEUE) & (F.col("lane") == PAYLOAD))
    sampled = rows.select("run", "msg", "node", F.col("t").alias("at"), F.col("copies").alias("waiting"))
    back = messages.where(F.col("echo").isNotNull()).select("number", "echo")
    sent = known.publishes.select("run", "msg", "number", "publisher", "t").join(F.broadcast(back), "number", "left")
    to_root = F.col("echo").isNotNull() & (F.col("node") == F.col("publisher")) & (F.col("at") == F.col("t"))
    tree = sampled.join(F.broadcast(sent), ["run", "msg"]).where(~to_root)
    return tree.groupBy("run", "node").agg(F.mean("waiting").alias("queue"))


def _received() -> Column:
    """By another than the publisher; a time before the publish is a clock's fault."""
    return F.col("first") & (F.col("node") != F.col("publisher")) & F.col("after").between(0, SANE)


def _counts() -> Column:
    return _received() & F.col("member")


def _nearby() -> Column:
    """The root, where the publisher is not the root itself."""
    return F.coalesce(F.col("hops") == 1, F.lit(False))


def _times(which: Column, name: str) -> list[Column]:
    after = F.when(which, F.col("after"))
    return [F.sum(after).alias(f"{name}_sum"), F.count(after).alias(f"{name}_count"), F.max(after).alias(f"{name}_last")]


def _mean_ms() -> Column:
    return (F.sum("sum") / F.sum("count") / 1_000).alias("mean_ms")
