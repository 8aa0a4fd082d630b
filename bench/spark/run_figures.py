"""The figures of a run, with the keys of `weft sim --json`, and what must be said beside them.

A figure is null where there is nothing to take a mean of, and where the trace lacks the kinds of rows it needs; the
second is said in a warning, since a count over rows that were never written would be a wrong number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import functions as F

from libweft.bench.spark import load, message_measures
from libweft.bench.spark.gather import DELIVERY, RECEPTION, Facts, Groups
from libweft.bench.spark.traces import Run
from libweft.peer.errors import WeftError
from libweft.peer.machine import SECOND
from libweft.peer.trace.kinds import DELIVER, DROP, DUPLICATE, JOINED, LEAVE, NODE_DOWN, PUBLISH, RECEIVE, SEND

MEMBERSHIP = (JOINED, LEAVE, NODE_DOWN)

NEEDS: dict[str, tuple[str, ...]] = {
    "messages": (PUBLISH,),
    "deliveries": (PUBLISH, DELIVER),
    "reliability": (PUBLISH, DELIVER, *MEMBERSHIP),
    "reliability_min": (PUBLISH, DELIVER, *MEMBERSHIP),
    "rmr": (PUBLISH, SEND, DROP, RECEIVE),
    "payload_per_delivery": (PUBLISH, SEND, DROP, DELIVER),
    "false_positives": (PUBLISH, RECEIVE, *MEMBERSHIP),
    "ldh_mean": (PUBLISH, DELIVER),
    "ldh_max": (PUBLISH, DELIVER),
    "latency_ms": (PUBLISH, DELIVER),
    "reception_ms": (PUBLISH, RECEIVE, *MEMBERSHIP),
    "last_ms": (PUBLISH, DELIVER),
    "control_messages": (SEND,),
    "payload_messages": (PUBLISH, SEND, DROP),
    "control_per_delivery": (PUBLISH, SEND, DELIVER),
    "bytes": (SEND,),
    "bytes_per_delivery": (PUBLISH, SEND, DELIVER),
}
SIZES = ("bytes", "bytes_per_delivery")
INTERVALS = ("reliability", "rmr", "payload_per_delivery", "ldh_mean", "last_ms")
TIMES = ("mean", "p50", "p90", "p99", "max")


def run_figures(known: Facts, groups: Groups) -> list[dict[str, Any]]:
    """One entry a run."""
    found: dict[int, dict[str, Any]] = {run.number: {} for run in known.traces.about}
    for frame in (groups.means.where(F.col("what") == DELIVERY), load.traffic(known.load)):
        for row in frame.collect():
            found[row.run] |= row.asDict()
    for row in groups.spreads.where(F.col("what").isin(DELIVERY, RECEPTION)).collect():
        key = "latency_ms" if row.what == DELIVERY else "reception_ms"
        found[row.run][key] = {name: row[name] / 1_000 for name in TIMES}
    return [_entry(run, found[run.number]) for run in known.traces.about]


def message_figures(known: Facts, most: int) -> list[dict[str, Any]]:
    """One entry a message, by run and time of publication: run, t, publisher, deliveries, reliability, rmr, ldh; duplicates, the
    further copies that came to somebody, by each first one: RMR without copies to those who are down; held, to how many it was
    not delivered when it came; and its id with those of its direct dependencies."""
    loud = known.traces.rows.where(F.col("kind") == DUPLICATE)
    again = loud.groupBy("run", "msg").agg(F.count("*").alias("again"))
    late = known.pairs.where(F.col("delivered") > F.col("received")).groupBy("number").agg(F.count("*").alias("held"))
    dependencies = F.coalesce("dependencies", F.array().cast("array<long>")).alias("dependencies")
    named = known.publishes.select("run", "msg", "number", dependencies).join(late, "number", "left")
    chosen = (
        known.per_message.join(again, ["run", "msg"], "left")
        .join(named, ["run", "msg"])
        .select(
            *("run", "t", "publisher", "deliveries", "msg", "dependencies"),
            message_measures.share_in_time().alias("reliability"),
            message_measures.redundancy_of_one().alias("rmr"),
            (F.coalesce("again", F.lit(0)) / F.nullif("receptions", F.lit(0))).alias("duplicates"),
            F.col("last_hop").alias("ldh"),
            F.coalesce("held", F.lit(0)).alias("held"),
        )
    )
    rows = chosen.orderBy("run", "t", "publisher").limit(most + 1).collect()
    if len(rows) > most:
        raise WeftError(f"more than {most:,} messages; their figures are not shown one by one")
    return [row.asDict() for row in rows]


def _entry(run: Run, found: Mapping[str, Any]) -> dict[str, Any]:
    nothing = {"messages": 0, "deliveries": 0, "control_messages": 0, "payload_messages": 0, "bytes": 0}
    empty = {"latency_ms": dict.fromkeys(TIMES), "reception_ms": dict.fromkeys(TIMES)}
    counted = nothing | empty | {name: value for name, value in found.items() if value is not None}
    for name in ("control", "bytes"):
        above = counted["control_messages" if name == "control" else "bytes"]
        counted[f"{name}_per_delivery"] = above / counted["deliveries"] if counted["deliveries"] else None
    untold = () if run.sized else SIZES
    lacking = {name: empty.get(name) for name, kinds in NEEDS.items() if name in untold or not run.wrote(*kinds)}
    return {
        **about(run),
        **{name: lacking[name] if name in lacking else counted.get(name) for name in NEEDS},
        "ci95": {name: _interval(name, counted, lacking) for name in INTERVALS},
    }


def about(run: Run) -> dict[str, Any]:
    """What is known of it without reading its rows."""
    scenario = run.manifest.get("scenario", {})
    return {
        **{"run": run.number, "name": run.name, "trace": str(run.path) if run.path is not None else None},
        **{name: run.manifest.get(name) for name in ("status", "command", "rows", "stack")},
        **{"nodes": scenario.get("nodes"), "seed": run.manifest.get("seed")},
        **{"window_s": run.window / SECOND, "trace_hash": run.manifest.get("trace_hash")},
    }


def _interval(name: str, counted: Mapping[str, Any], lacking: Mapping[str, Any]) -> list[float] | None:
    if name in lacking or counted.get(f"{name}_low") is None:
        return None
    return [counted[f"{name}_low"], counted[f"{name}_high"]]


def warnings(known: Facts, groups: Groups) -> Iterator[str]:
    """What a reader must know before believing the figures, each with the run's name."""
    early = groups.means.where((F.col("what") == DELIVERY) & (F.col("early") > 0)).select("run", "early")
    counts = {row.run: row.early for row in early.collect()}
    for run in known.traces.about:
        yield from (f"{run.name}: {words}" for words in (*run.warnings, *_lacking(run)))
        if run.number in counts:
            yield (
                f"{run.name}: {counts[run.number]:,} receptions or deliveries come before their message was published, "
                "so clocks disagree; they are left out, and latencies and reliability are doubtful"
            )


def _lacking(run: Run) -> Iterator[str]:
    lacking = [name for name, kinds in NEEDS.items() if not run.wrote(*kinds)]
    if lacking:
        missing = dict.fromkeys(kind for name in lacking for kind in NEEDS[name] if not run.wrote(kind))
        yield f"the trace has no rows of kind {', '.join(missing)}, so it tells nothing of {', '.join(lacking)}"
    if not run.sized:
        yield f"the trace does not tell how long messages are, so it tells nothing of {', '.join(SIZES)}"
