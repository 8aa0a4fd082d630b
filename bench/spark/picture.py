"""One message of each run to be looked at: the overlay when it was published, and every copy of it that the trace tells of.

The message is the one with the median time to its last delivery: neither a lucky one nor the worst. Of it are taken:

    first, again   rows `receive` and `duplicate`: who got a copy, from whom, when, and when it had left (`sent`, from the
                   sender's last payload `send` row before it; null where the trace has none)
    graft, prune   rows of that kind that name the message
    lazy           sends in the lane `lazy` that tell their receiver, from the publish to the last copy. They name no message, so
                   some may be about another one; sends to several peers tell their receivers at level `full` alone
    links          who was whose neighbour at the publish, each pair once

Asks for: the facts of `libweft.bench.spark.gather`.
Bounds: RUNS runs; EVENTS of all of them, and MOST of one; LINKS links and NODES nodes of one. Of more, the earliest first copies
are taken and then, by a hash, a sample of the other events and of links; `told` counts all there were. Nothing else reaches
the driver.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from libweft.bench.spark import overlay
from libweft.bench.spark.gather import Facts
from libweft.bench.spark.traces import numbers
from libweft.peer.trace.kinds import DUPLICATE, GRAFT, NEIGHBOR_UP, PRUNE, PUBLISH, RECEIVE, SEND

if TYPE_CHECKING:
    from pyspark.sql import Column

RUNS = 12
EVENTS, MOST = 80_000, 20_000
LINKS, NODES = 6_000, 20_000

FIRST, AGAIN, LAZY = "first", "again", "lazy"
NAMES = {RECEIVE: FIRST, DUPLICATE: AGAIN, GRAFT: GRAFT, PRUNE: PRUNE, SEND: LAZY}


def pictures(known: Facts) -> list[dict[str, Any]]:
    """An entry for each of the first RUNS runs that has a message and the rows for it, ready for JSON."""
    able = [run.number for run in known.traces.about if run.wrote(PUBLISH, RECEIVE)][:RUNS]
    messages = chosen(known, able).collect()
    if not messages:
        return []
    spark = known.traces.runs.sparkSession
    columns = ("run", "msg", "t", "publisher")
    picked = numbers(spark, columns, [[row[name] for name in columns] for row in messages])
    found = {row.run: _entry(known, row) for row in messages}
    most = min(MOST, EVENTS // len(found))
    every = events(known.traces.rows, picked).localCheckpoint()
    for row in every.groupBy("run", "what").agg(F.count("*").alias("n")).collect():
        found[row.run]["told"][row.what] = row.n
    for row in sampled(every, most).orderBy("run", "t", "what", "node", "peer").collect():
        found[row.run]["events"].append([row.what, row.t, row.sent, row.peer, row.node])
    _add_overlay(known, picked, found)
    return list(found.values())


def chosen(known: Facts, able: list[int]) -> DataFrame:
    """run, msg, name (of the topic), t, publisher, last: of each run the message with the median time to its last delivery."""
    messages = known.per_message.where(F.col("run").isin(able))
    rank = F.row_number().over(Window.partitionBy("run").orderBy(F.col("last").isNull(), "last", "msg"))
    count = F.count("last").over(Window.partitionBy("run"))
    ranked = messages.withColumn("rank", rank).withColumn("count", count)
    middle = ranked.where(F.col("rank") == F.greatest(F.lit(1), F.ceil(F.col("count") / 2)))
    topics = known.topics.select("topic", "name")
    return middle.join(topics, "topic").select("run", "msg", "name", "t", "publisher", "last").orderBy("run")


def events(rows: DataFrame, picked: DataFrame) -> DataFrame:
    """run, what, t, sent, peer, node: in microseconds after the publish, from `peer` to `node`."""
    message = picked.select("run", F.col("msg").alias("picked"), F.col("t").alias("published"), "publisher")
    since = rows.join(F.broadcast(message), "run").where(F.col("t") >= F.col("published"))
    at = (F.col("t") - F.col("published")).alias("t")
    own = since.where(F.col("msg") == F.col("picked")).select("run", "node", "peer", "kind", "lane", "publisher", at)
    own = own.where(F.col("kind").isin(RECEIVE, DUPLICATE, GRAFT, PRUNE, SEND)).localCheckpoint()
    copies = _departed(_copies(own), own.where((F.col("kind") == SEND) & (F.col("lane") == "payload")))
    asked = own.where(F.col("kind").isin(GRAFT, PRUNE) & F.col("peer").isNotNull())  # by node, to peer
    ends = F.broadcast(own.where(F.col("kind").isin(RECEIVE, DUPLICATE)).groupBy("run").agg(F.max("t").alias("end")))
    unnamed = since.where((F.col("kind") == SEND) & (F.col("lane") == "lazy") & F.col("msg").isNull() & F.col("peer").isNotNull())
    lazy = unnamed.select("run", "node", "peer", "kind", at).join(ends, "run").where(F.col("t") <= F.col("end"))
    outward = [_outward(frame) for frame in (asked, lazy)]
    return reduce(DataFrame.unionByName, [copies, *outward])


def sampled(events: DataFrame, most: int) -> DataFrame:
    """Of each run the earliest first copies and then a sample of the others, `most` in all."""
    first = F.col("what") == FIRST
    drawn = F.xxhash64("what", "t", "peer", "node")
    order = Window.partitionBy("run").orderBy(~first, F.when(first, F.col("t")).otherwise(drawn), "node", "peer")
    return events.withColumn("place", F.row_number().over(order)).where(F.col("place") <= most).drop("place")


def _copies(own: DataFrame) -> DataFrame:
    """A node's first `receive` row alone, and not the publisher's: a restarted node may receive a message again."""
    came = own.where(F.col("kind").isin(RECEIVE, DUPLICATE) & F.col("peer").isNotNull())
    turn = F.row_number().over(Window.partitionBy("run", "node", "kind").orderBy("t", "peer"))
    spare = (F.col("kind") == DUPLICATE) | (turn > 1) | (F.col("node") == F.col("publisher"))
    return came.withColumn("what", F.when(spare, F.lit(AGAIN)).otherwise(F.lit(FIRST))).select("run", "what", "t", "peer", "node")


def _departed(copies: DataFrame, sends: DataFrame) -> DataFrame:
    """With `sent`: the sender's last send call before the copy came, to this peer or to several."""
    left = sends.select("run", F.col("node").alias("peer"), F.col("peer").alias("to"), F.col("t").alias("sent"))
    fits = (F.col("to").isNull() | (F.col("to") == F.col("node"))) & (F.col("sent") <= F.col("t"))
    both = copies.withColumn("copy", F.monotonically_increasing_id()).localCheckpoint()
    found = both.join(left, ["run", "peer"]).where(fits).groupBy("copy").agg(F.max("sent").alias("sent"))
    return both.join(found, "copy", "left").select("run", "what", "t", "sent", "peer", "node")


def _outward(frame: DataFrame) -> DataFrame:
    """What a node sends to its peer, as a row from one to the other; when it came is not told."""
    return frame.select("run", _what(), "t", F.col("t").alias("sent"), F.col("node").alias("peer"), F.col("peer").alias("node"))


def _what() -> Column:
    names = F.create_map(*(F.lit(text) for pair in NAMES.items() for text in pair))
    return names[F.col("kind")].alias("what")


def _add_overlay(known: Facts, picked: DataFrame, found: dict[int, dict[str, Any]]) -> None:
    moments = picked.select("run", F.lit(0).alias("moment"), "t")
    few = known.quiet.join(F.broadcast(picked.select("run")), "run")
    live = overlay.nodes(few, moments).localCheckpoint()
    drawn = F.row_number().over(Window.partitionBy("run").orderBy(F.xxhash64(F.col("node").cast("long")), "node"))
    for row in live.withColumn("place", drawn).where(F.col("place") <= NODES).orderBy("run", "node").collect():
        found[row.run]["nodes"].append(row.node)
    pair = F.least("node", "peer").alias("a"), F.greatest("node", "peer").alias("b")
    alive = live.select("run", F.col("node").alias("peer"))
    links = overlay.edges(few, moments).join(alive, ["run", "peer"]).select("run", *pair).distinct().localCheckpoint()
    for row in links.groupBy("run").agg(F.count("*").alias("n")).collect():
        found[row.run]["told"]["links"] = row.n
    place = F.row_number().over(Window.partitionBy("run").orderBy(F.xxhash64("a", "b"), "a", "b"))
    for row in links.withColumn("place", place).where(F.col("place") <= LINKS).orderBy("run", "a", "b").collect():
        found[row.run]["links"].append([row.a, row.b])


def _entry(known: Facts, row: Any) -> dict[str, Any]:
    run = known.traces.about[row.run]
    return {
        **{"run": row.run, "topic": row.name, "publisher": row.publisher, "at_us": row.t, "last_us": row.last},
        "level": run.manifest.get("level"),
        "lacks": [kind for kind in (DUPLICATE, GRAFT, PRUNE, SEND, NEIGHBOR_UP) if not run.wrote(kind)],
        "told": dict.fromkeys((FIRST, AGAIN, GRAFT, PRUNE, LAZY, "links"), 0),
        **{"nodes": [], "links": [], "events": []},
    }
