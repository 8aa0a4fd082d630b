"""The tables beside the figures. Each has a definition that is shown with it, and the kinds of rows that it needs.

A table is a function from facts to a DataFrame whose first column is `run`; times are in milliseconds here, for people.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from libweft.bench.spark import order, overlay, recovery
from libweft.bench.spark.gather import (
    BARRIER,
    BY,
    HELD_BACK,
    HOP,
    LOAD,
    NAMES,
    STRETCH,
    SUBSCRIPTION,
    TOPIC,
    WAITING,
    Facts,
    Groups,
)
from libweft.bench.spark.run_figures import MEMBERSHIP, TIMES
from libweft.bench.spark.traces import numbers
from libweft.peer.machine import SECOND
from libweft.peer.trace.kinds import (
    DELIVER,
    DROP,
    DUPLICATE,
    JOIN,
    JOINED,
    NEIGHBOR_DOWN,
    NEIGHBOR_UP,
    NODE_DOWN,
    NODE_UP,
    PUBLISH,
    QUEUE,
    RECEIVE,
    SEND,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MEANS = ("messages", "deliveries", "reliability", "reliability_min", "rmr", "payload_per_delivery", "false_positives", "ldh_mean")


class Table(NamedTuple):
    """A table is made of facts and groups."""

    name: str
    title: str
    about: str
    needs: tuple[str, ...]
    make: Callable[[Facts, Groups], DataFrame]


def by_topic(known: Facts, groups: Groups) -> DataFrame:
    numbers = known.topics.select(F.col("topic").cast("long").alias("key"), F.col("name").alias("topic"))
    named = _means_and_times(groups, TOPIC).join(F.broadcast(numbers), "key")
    return named.select("run", "topic", *MEANS, *TIMES).orderBy("run", "topic")


def over_time(known: Facts, groups: Groups) -> DataFrame:
    found = _means_and_times(groups, STRETCH).withColumn("from_s", F.col("key") / SECOND)
    return found.select("run", "from_s", *MEANS, *TIMES).orderBy("run", "from_s")


def by_hop(known: Facts, groups: Groups) -> DataFrame:
    found = groups.spreads.where(F.col("what") == HOP).withColumn("hops", F.col("key").cast("int"))
    return found.select("run", "hops", "count", *_in(1_000)).orderBy("run", "hops")


def latency_distribution(known: Facts, groups: Groups) -> DataFrame:
    bins = groups.bins.where(F.col("what") < LOAD).orderBy(*BY, "low")
    edges = [(F.col(name) / 1_000).alias(f"{name}_ms") for name in ("low", "high")]
    return bins.select("run", _name().alias("what"), *edges, "count")


def loads(known: Facts, groups: Groups) -> DataFrame:
    return _named(groups.spreads.where(F.col("what") >= LOAD))


def load_distribution(known: Facts, groups: Groups) -> DataFrame:
    bins = groups.bins.where(F.col("what") >= LOAD).orderBy(*BY, "low")
    return bins.select("run", _name().alias("what"), "low", "high", F.col("count").alias("nodes"))


def queues(known: Facts, groups: Groups) -> DataFrame:
    return _named(groups.spreads.where(F.col("what") == WAITING))


def barriers(known: Facts, groups: Groups) -> DataFrame:
    size = _named(groups.spreads.where(F.col("what") == BARRIER))
    wait = _named(groups.spreads.where(F.col("what") == HELD_BACK), 1_000)
    return size.unionAll(wait.withColumn("what", F.lit("held back, ms"))).orderBy("run", "what")


def orders(known: Facts, groups: Groups) -> DataFrame:
    streams = order.fifo_and_gapless(known.pairs, known.publishes, known.stays)
    found = streams.join(order.causal(known.pairs, known.publishes, known.stays), "run", "left")
    return found.fillna(0).orderBy("run")


def subscription(known: Facts, groups: Groups) -> DataFrame:
    return _named(groups.spreads.where(F.col("what") == SUBSCRIPTION), 1_000).withColumn("what", F.lit("subscription, ms"))


def recovered(known: Facts, groups: Groups) -> DataFrame:
    instants = [(run.number, at) for run in known.traces.about for at in _faults(run.manifest)]
    struck = numbers(known.traces.runs.sparkSession, ("run", "at"), instants)
    found = recovery.recovery(known.per_message, struck)
    seconds = [(F.col(name) / SECOND).alias(f"{name}_s") for name in ("at", "recovered")]
    return found.select("run", seconds[0], "messages", "lowest", seconds[1]).orderBy("run", "at_s")


def overlays(known: Facts, groups: Groups) -> DataFrame:
    return overlay.quality(known.quiet).orderBy("run", "time_s")


TABLES = (
    Table(
        "by_topic",
        "By topic",
        "Means over the messages of each topic; latency in milliseconds from the publish call to delivery.",
        (PUBLISH, DELIVER, SEND, DROP, RECEIVE, *MEMBERSHIP),
        by_topic,
    ),
    Table(
        "over_time",
        "Over time",
        "Means over the messages published in each stretch of time, which begins at from_s; latency in milliseconds.",
        (PUBLISH, DELIVER, SEND, DROP, RECEIVE, *MEMBERSHIP),
        over_time,
    ),
    Table(
        "by_hop",
        "Latency by hop",
        "Delivery latency in milliseconds by the hops that the first copy had travelled.",
        (PUBLISH, DELIVER),
        by_hop,
    ),
    Table(
        "latency_distribution",
        "Distribution of latency",
        "How many pairs of message and node fall between low and high: delivery, reception by subscribers, and the time a "
        "message was held back between the two.",
        (PUBLISH, DELIVER, RECEIVE, *MEMBERSHIP),
        latency_distribution,
    ),
    Table(
        "load",
        "Load of a node",
        "Over all nodes with a row in the trace: payload and control copies sent, bytes sent, first receptions, duplicates, "
        "deliveries, and copies dropped before they left.",
        (SEND, DROP, RECEIVE, DUPLICATE, DELIVER),
        loads,
    ),
    Table(
        "load_distribution",
        "Distribution of load",
        "How many nodes carried between low and high.",
        (SEND, DROP, RECEIVE, DUPLICATE, DELIVER),
        load_distribution,
    ),
    Table("queues", "Queues", "Messages waiting in a queue, over all samples.", (QUEUE,), queues),
    Table(
        "barriers",
        "Causal barriers",
        "Direct dependencies that a message carries, and how long a delivery was held back after its first copy had come.",
        (PUBLISH, RECEIVE, DELIVER),
        barriers,
    ),
    Table(
        "order",
        "Order",
        "fifo: deliveries after a later message of the same source and topic. gapless: deliveries without the one before it. "
        "causal: pairs of a delivery and a direct dependency that was not delivered by then. Where a message is missing, only "
        "nodes that were joined all the while count.",
        (PUBLISH, DELIVER, *MEMBERSHIP),
        orders,
    ),
    Table(
        "subscription",
        "Subscription latency",
        "From the call of join to the subscription being in force, in milliseconds.",
        (JOIN, JOINED),
        subscription,
    ),
    Table(
        "recovery",
        "Recovery after a fault",
        f"For each instant at which a fault struck: the lowest reliability of a message published before the next one, and the "
        f"seconds until the first message from which on all reached {recovery.ENOUGH:.0%}; none where they never did.",
        (PUBLISH, DELIVER, *MEMBERSHIP),
        recovered,
    ),
    Table(
        "overlay",
        "Overlay",
        "At some instants: live nodes and the neighbours they have (directed); symmetry is the share of these whose reverse is "
        "there too. Clustering, paths and components are of the graph between live nodes; paths are from sampled nodes.",
        (NEIGHBOR_UP, NEIGHBOR_DOWN, NODE_UP, NODE_DOWN),
        overlays,
    ),
)


def _faults(manifest: dict[str, object]) -> Sequence[int]:
    scenario = manifest.get("scenario")
    faults = scenario.get("faults", ()) if isinstance(scenario, dict) else ()
    return [round(float(fault.get("at", 0.0)) * SECOND) for fault in faults]  # 0 is the default, and not written


def _means_and_times(groups: Groups, what: int) -> DataFrame:
    """One row a key: the means over its messages, and the latency of its deliveries in milliseconds."""
    means, spreads = (frame.where(F.col("what") == what) for frame in (groups.means, groups.spreads))
    return means.select("run", "key", *MEANS).join(spreads.select("run", "key", *_in(1_000)), ["run", "key"], "left")


def _named(spreads: DataFrame, unit: int = 1) -> DataFrame:
    return spreads.orderBy(*BY).select("run", _name().alias("what"), "count", *_in(unit))


def _in(unit: int) -> list[Column]:
    return [(F.col(name) / unit).alias(name) for name in TIMES]


def _name() -> Column:
    return F.element_at(F.array(*(F.lit(name) for name in NAMES)), F.col("what") + 1)
