"""Spark's measures of order against the checker of histories, on random traces where both mean the same.

All nodes are joined from the start to the end, each message is published once, no two rows have one time, and publishes
declare all that happened before them. Then they agree so:
- fifo_violated counts deliveries after a later one of their stream: those that the checker says came late.
- causal_violated counts pairs of a delivery and a predecessor not delivered by then. Where nothing is lost, these are the
  checker's pairs out of order; publishers are left out, whose own message is there from the start.
- gapless_violated counts deliveries without the one before in the stream. Where streams keep their order and everybody has
  the first, these are the deliveries behind a gap.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from libweft.bench.runs.property_checks import Event, causal, fifo, gapless, tell
from libweft.bench.spark import facts, order
from libweft.peer.machine import MessageId
from libweft.peer.trace.kinds import DELIVER, JOINED, PUBLISH
from libweft.peer.trace.tables import message_key
from tests.bench.spark.oracle import Origin, Row
from tests.bench.spark.random_traces import Case, side_by_side

RUNS = 40
HEEDED = (JOINED, PUBLISH, DELIVER)


def conversation(seed: int, lossy: bool) -> Case:
    """Some nodes talk; copies come in any order, or, where some are lost, in the order of their source."""
    random = Random(seed)
    nodes, t = random.randint(2, 4), 0
    rows = [Row(0, node, JOINED, "a") for node in range(nodes)]
    ids: dict[int, MessageId] = {}
    known: list[set[int]] = [set() for _ in range(nodes)]
    way: list[tuple[int, int, set[int]]] = []
    left, sent = random.randint(3, 8), [0] * nodes
    while left or way:
        t += 1
        if left and (not way or random.random() < 0.5):
            node = random.randrange(nodes)
            left, sent[node] = left - 1, sent[node] + 1
            id = MessageId(node, 1, sent[node])
            msg = message_key(id)
            ids[msg] = id
            rows.append(Row(t, node, PUBLISH, "a", msg, hops=0, dependencies=tuple(sorted(known[node]))))
            before = {msg, *known[node]}
            known[node] = set(before)
            lost = {n for n in range(nodes) if lossy and sent[node] > 1 and random.random() < 0.3}
            way += [(other, msg, before) for other in range(nodes) if other != node and other not in lost]
            continue
        place = random.randrange(len(way))
        node, msg, before = way[place]
        if lossy:  # the first on its way to that node of that source
            source = ids[msg].source
            place = next(n for n, (other, m, _) in enumerate(way) if other == node and ids[m].source == source)
        node, msg, before = way.pop(place)
        known[node] |= before
        rows.append(Row(t, node, DELIVER, "a", msg, hops=1))
    side = tuple((msg, Origin(int(id.source), id.epoch, id.sequence)) for msg, id in ids.items())
    return Case(tuple(rows), side, 100, (), ids, seed)


def checked(case: Case, lossy: bool) -> dict[str, int]:
    stories = tell([Event(row.node, row.kind, row.topic, row.msg) for row in case.rows if row.kind in HEEDED])
    found = {"fifo_violated": len({(v.node, v.after) for v in fifo(stories)})}
    if lossy:
        return found | {"gapless_violated": len({(v.node, v.message) for v in gapless(stories)})}
    return found | {"causal_violated": len(causal(stories))}


@given(st.integers(0, 1 << 32), st.booleans())
def test_the_oracle_that_spark_is_held_against_agrees_with_the_checker(seed: int, lossy: bool) -> None:
    case = conversation(seed, lossy)
    verdicts = {f"{name}_violated": verdict.violated for name, verdict in case.oracle().order().items()}
    wanted = checked(case, lossy)
    assert {name: verdicts[name] for name in wanted} == wanted, case.told()


@pytest.mark.slow
def test_spark_and_the_checker_agree_on_order(spark: SparkSession, tmp_path: Path) -> None:
    runs = [(conversation(seed, lossy), lossy) for seed in range(RUNS) for lossy in (False, True)]
    found = of_spark(spark, [case for case, _ in runs], tmp_path)
    totals: dict[str, int] = {}
    for number, (case, lossy) in enumerate(runs):
        wanted = checked(case, lossy)
        assert {name: found[number][name] for name in wanted} == wanted, case.told()
        totals = {name: totals.get(name, 0) + wanted.get(name, 0) for name in {*totals, *wanted}}
    assert min(totals.values()) > 10, "there must be something to agree on"


def of_spark(spark: SparkSession, cases: list[Case], folder: Path) -> list[dict[str, Any]]:
    """The measures of order alone, of all cases together: the rest of an analysis costs more."""
    traces = side_by_side(spark, cases, folder)
    topics = facts.topics(traces.rows)
    publishes = facts.handy(facts.publishes(traces.rows, traces.messages, traces.runs, topics))
    stays = facts.handy(facts.stays(traces.rows, topics))
    pairs = facts.pairs(traces.rows, publishes, stays, 1)
    streams = order.fifo_and_gapless(pairs, publishes, stays)
    rows = streams.join(order.causal(pairs, publishes, stays), "run", "left").fillna(0).orderBy("run").collect()
    assert [row["run"] for row in rows] == [*range(len(cases))]
    return [row.asDict() for row in rows]
