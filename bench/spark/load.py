"""What nodes have to carry: copies and bytes sent, what they received, and what waits in their queues.

`load` is one pass over all rows; `traffic` sums it up a run, so control and payload cost no pass of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from libweft.bench.spark.facts import PAYLOAD
from libweft.peer.trace.kinds import DELIVER, DROP, DUPLICATE, QUEUE, RECEIVE, SEND

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WHAT = ("payload", "control", "bytes", "receptions", "duplicates", "deliveries", "dropped")


def load(rows: DataFrame) -> DataFrame:
    """run, node and WHAT: a row for each node that has any row in the trace.

    payload and control: copies sent, on the payload lane and on all others; bytes: copies times the encoded length;
    receptions: first copies; duplicates: later ones; deliveries; dropped: copies refused before they left.
    """
    kind, copies = F.col("kind"), F.coalesce("copies", F.lit(1)).cast("long")
    on_payload = F.coalesce(F.col("lane") == PAYLOAD, F.lit(False))
    sent = kind == SEND
    return rows.groupBy("run", "node").agg(
        _sum(sent & on_payload, copies).alias("payload"),
        _sum(sent & ~on_payload, copies).alias("control"),
        _sum(sent, copies * F.coalesce("bytes", F.lit(0))).alias("bytes"),
        F.count_if(kind == RECEIVE).alias("receptions"),
        F.count_if(kind == DUPLICATE).alias("duplicates"),
        F.count_if(kind == DELIVER).alias("deliveries"),
        _sum(kind == DROP, copies).alias("dropped"),
    )


def traffic(load: DataFrame) -> DataFrame:
    """run, control_messages, bytes: copies of messages that are not payload, and the bytes of all copies sent."""
    return load.groupBy("run").agg(F.sum("control").alias("control_messages"), F.sum("bytes").alias("bytes"))


def queues(rows: DataFrame) -> DataFrame:
    """run, value: how many messages waited, over all samples of a queue."""
    return rows.where(F.col("kind") == QUEUE).select("run", F.coalesce("copies", F.lit(1)).cast("long").alias("value"))


def _sum(where: Column, value: Column) -> Column:
    return F.sum(F.when(where, value).otherwise(F.lit(0)))
