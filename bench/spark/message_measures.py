"""What became of messages: reliability, redundancy, hops and false positives, as means over messages.

Each function takes `per_message` of `libweft.bench.spark.facts` and the keys to group by: `("run",)` for a whole run, a topic or
a stretch of time beside it for a table. `summary` takes them all in one pass. `interval` gives 95 % confidence limits of
a mean over messages, by the normal law; the messages of one run share its overlay and its faults, so between runs with
other seeds figures may differ by more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from libweft.peer.machine import SECOND

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NORMAL_95 = 1.959964
STRETCHES = 60  # the most rows a run has in a table over time


def reliability(per_message: DataFrame, by: Sequence[str] = ("run",)) -> DataFrame:
    """Mean and smallest share of the expected subscribers that delivered a message within its window.

    Expected are the others that had joined before the publish and stayed up and joined for the window after it. A message
    with nobody expected is left out.
    """
    return per_message.groupBy(*by).agg(*_reliability())


def redundancy(per_message: DataFrame, by: Sequence[str] = ("run",)) -> DataFrame:
    """Mean RMR = m / (n - 1) - 1 and mean payload_per_delivery = m / deliveries.

    m = payload copies put on a link, n = nodes that received it plus the publisher, relays included. Messages that nobody
    else received, or delivered, are left out.
    """
    return per_message.groupBy(*by).agg(*_redundancy())


def last_delivery(per_message: DataFrame, by: Sequence[str] = ("run",)) -> DataFrame:
    """Mean and largest last delivery hop, and the mean time to the last subscriber."""
    return per_message.groupBy(*by).agg(*_last_delivery())


def false_positives(per_message: DataFrame, by: Sequence[str] = ("run",)) -> DataFrame:
    """Share of first receptions that were by nodes not joined to the topic at that time."""
    return per_message.groupBy(*by).agg(*_false_positives())


def summary(per_message: DataFrame, by: Sequence[str] = ("run",)) -> DataFrame:
    """All of the above, with the number of messages, deliveries, payload copies and rows before their publish, in one pass."""
    counts = (
        F.count("*").alias("messages"),
        F.sum("deliveries").alias("deliveries"),
        F.sum("copies").alias("payload_messages"),
        F.sum("early").alias("early"),
    )
    return per_message.groupBy(*by).agg(*counts, *_reliability(), *_redundancy(), *_false_positives(), *_last_delivery())


def stretches(publishes: DataFrame) -> DataFrame:
    """run, first, width: time cut into stretches of whole seconds from the run's first publish, sixty of them at most."""
    spans = publishes.groupBy("run").agg(F.min("t").alias("first"), F.max("t").alias("end"))
    return spans.select("run", "first", F.expr(f"((end - first) div ({STRETCHES} * {SECOND}) + 1) * {SECOND}").alias("width"))


def placed(published: DataFrame, stretches: DataFrame) -> DataFrame:
    """Adds `stretch`, the number of that stretch, from 0, in which a message was published at `t`."""
    cut = published.join(F.broadcast(stretches), "run")
    return cut.withColumn("stretch", F.expr("(t - first) div width")).drop("first", "width")


def share_in_time() -> Column:
    """Of one message; null with nobody expected."""
    return _ratio("in_time", "expected")


def redundancy_of_one() -> Column:
    """RMR of one message; null where nobody else received it."""
    return _ratio("copies", "receptions") - 1


def _reliability() -> list[Column]:
    share = share_in_time()
    return [F.mean(share).alias("reliability"), F.min(share).alias("reliability_min"), *interval("reliability", share)]


def _redundancy() -> list[Column]:
    rmr, payload = redundancy_of_one(), _ratio("copies", "deliveries")
    means = [F.mean(rmr).alias("rmr"), F.mean(payload).alias("payload_per_delivery")]
    return [*means, *interval("rmr", rmr), *interval("payload_per_delivery", payload)]


def _last_delivery() -> list[Column]:
    hop, last_ms = F.col("last_hop"), F.col("last") / 1_000
    means = [F.mean(hop).alias("ldh_mean"), F.max(hop).alias("ldh_max"), F.mean(last_ms).alias("last_ms")]
    return [*means, *interval("ldh_mean", hop), *interval("last_ms", last_ms)]


def _ratio(above: str, below: str) -> Column:
    return F.col(above) / F.nullif(F.col(below), F.lit(0))


def _false_positives() -> list[Column]:
    return [(F.sum("strangers") / F.nullif(F.sum("receptions"), F.lit(0))).alias("false_positives")]


def interval(name: str, value: Column) -> list[Column]:
    """name_low and name_high: 95 % limits of the mean; null for fewer than two values."""
    half = NORMAL_95 * F.stddev_samp(value) / F.sqrt(F.count(value))
    return [(F.mean(value) - half).alias(f"{name}_low"), (F.mean(value) + half).alias(f"{name}_high")]
