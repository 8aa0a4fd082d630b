"""How sure a distribution is: the 95 % interval of the share that came within each bin's end.

The deliveries of one message share much of their way, so it is messages that are drawn at random, and not deliveries: the
share is a ratio of two sums over messages, C within the end and n in all, and its variance is that of such a ratio,
M / (M - 1) * sum((C - share * n)^2) / sum(n)^2 over M messages. These sums grow from bin to bin by what a message adds there,
so that it needs no rows but for the bins that it has something in; they are whole numbers, and the same in any order.

Bounds: a row a message and bin in Spark, a row a bin in the driver.
"""

from __future__ import annotations

from itertools import groupby
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F

from libweft.bench.spark import latency
from libweft.bench.spark.gather import DELIVERY, RECEPTION
from libweft.bench.spark.message_measures import NORMAL_95
from libweft.bench.spark.percentiles import width
from libweft.peer.machine import MS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame, Row

WHAT = {"delivery": (DELIVERY, latency.delivery), "reception": (RECEPTION, latency.reception)}


class End(NamedTuple):
    """Of a bin; `low` and `high` are shares."""

    run: int
    what: str
    at_ms: float
    low: float
    high: float


def bands(pairs: DataFrame, spreads: DataFrame) -> list[End]:
    """Of each run that has two messages; by run and size. The bins are those of `spread.histogram`."""
    found: list[End] = []
    for what, (number, value) in WHAT.items():
        widths = spreads.where(F.col("what") == number).select("run", width())
        rows = steps(pairs, value(), widths).orderBy("run", "bin").collect()
        for run, several in groupby(rows, key=lambda row: int(row.run)):
            found += _ends(run, what, list(several))
    return found


def steps(pairs: DataFrame, value: Column, widths: DataFrame) -> DataFrame:
    """run, bin, width, and what C, C^2, C*n and M grow by in that bin, each summed over messages."""
    told = pairs.select("run", "number", value.alias("value")).where(F.col("value").isNotNull())
    placed = told.join(F.broadcast(widths), "run")
    counted = placed.groupBy("run", "number", "width", F.expr("value div width").alias("bin")).agg(F.count("*").alias("n"))
    message = Window.partitionBy("number")
    so_far = F.sum("n").over(message.orderBy("bin").rowsBetween(Window.unboundedPreceding, Window.currentRow))
    grown = counted.withColumn("upto", so_far).withColumn("total", F.sum("n").over(message))
    before = F.col("upto") - F.col("n")
    return grown.groupBy("run", "width", "bin").agg(
        F.sum("n").alias("within"),
        F.sum(F.col("upto") * F.col("upto") - before * before).alias("square"),
        F.sum(F.col("n") * F.col("total")).alias("product"),
        F.count_if(before == 0).alias("messages"),
    )


def _ends(run: int, what: str, rows: list[Row]) -> Iterable[End]:
    count, squares, messages = (sum(row[name] for row in rows) for name in ("within", "square", "messages"))
    if messages < 2:
        return
    within = square = product = 0
    for row in rows:
        within, square, product = within + row.within, square + row.square, product + row.product
        share = within / count
        rest = max(0.0, square - 2 * share * product + share * share * squares)
        half = NORMAL_95 * sqrt(messages / (messages - 1) * rest) / count
        yield End(run, what, (row.bin + 1) * row.width / MS, max(0.0, share - half), min(1.0, share + half))
