"""Recovery: how long after a fault messages were delivered as they should be, and stayed so.

A fault is an instant: the scenario says when it strikes. `libweft.bench.spark.message_measures` defines a message's reliability.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from libweft.bench.spark.facts import NEVER
from libweft.bench.spark.message_measures import share_in_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ENOUGH = 0.99


def recovery(per_message: DataFrame, faults: DataFrame) -> DataFrame:
    """run, at, messages, lowest, recovered: for each fault (run, at) what became of the messages up to the next one.

    recovered: from the fault to the publish of the first message from which on all had a reliability of ENOUGH or more;
    null when the last of them had less, or there was none. Messages with nobody expected are left out.
    """
    ordered = _until_next(faults)
    judged = per_message.where(F.col("expected") > 0).select(F.col("run").alias("of"), "t", share_in_time().alias("share"))
    meant = [F.col("run") == F.col("of"), F.col("t") >= F.col("at"), F.col("t") < F.col("next")]
    after = ordered.join(judged, meant, "left").drop("of")
    sums = after.groupBy("run", "at").agg(
        F.count("share").alias("messages"),
        F.min("share").alias("lowest"),
        F.coalesce(F.max(F.when(F.col("share") < ENOUGH, F.col("t"))), F.lit(-NEVER)).alias("last_low"),
    )
    well = after.join(sums.select("run", "at", "last_low"), ["run", "at"]).where(F.col("t") > F.col("last_low"))
    found = well.groupBy("run", "at").agg((F.min("t") - F.col("at")).alias("recovered"))
    return sums.drop("last_low").join(found, ["run", "at"], "left")


def _until_next(faults: DataFrame) -> DataFrame:
    """run, at, next: distinct instants, each with the one after it."""
    later = F.lead("at").over(Window.partitionBy("run").orderBy("at"))
    return faults.distinct().select("run", "at", F.coalesce(later, F.lit(NEVER)).alias("next"))
