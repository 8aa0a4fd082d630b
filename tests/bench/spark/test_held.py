"""What Spark tells of causal order for the figures: how long deliveries were held back, and what each message depends on."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Scenario, Workload
from libweft.bench.spark import latency
from libweft.bench.spark.analysis import figures
from libweft.peer.machine import Lane, MessageId, Peer
from libweft.peer.sim.faults import Reorder
from libweft.peer.trace.tables import message_key


class Heard:
    """An observer that keeps what is asked of Spark."""

    def __init__(self) -> None:
        self.received: dict[tuple[MessageId | None, Peer], int] = {}
        self.held: list[int] = []
        self.dependencies: dict[int, list[int]] = {}

    def observe(
        self,
        t: int,
        node: Peer,
        kind: str,
        topic: str | None,
        msg: MessageId | None,
        peer: Peer | None,
        hops: int | None,
        copies: int | None,
        size: int | None,
        lane: Lane | None,
        reason: str | None,
        dependencies: tuple[MessageId, ...],
    ) -> None:
        if kind == "publish" and msg is not None:
            self.dependencies[message_key(msg)] = [message_key(id) for id in dependencies]
        elif kind == "receive":
            self.received[msg, node] = t
        elif kind == "deliver" and (msg, node) in self.received:
            self.held.append(t - self.received[msg, node])


def test_shares_and_times_of_what_is_held_back(spark: SparkSession) -> None:
    pairs = spark.sql(
        "SELECT * FROM VALUES (1, 0L, 0L), (1, 5L, 5L), (1, 100L, 9099L), (1, 7L, 21007L), (1, 3L, null), (2, 1L, 1L)"
        " AS t(run, received, delivered)"
    )
    one, two = sorted(latency.holding(pairs).collect())
    assert tuple(one) == (1, 0.5, 0.75, (8_999 + 21_000) / 4_000, 21.0)
    assert tuple(two) == (2, 1.0, 1.0, 0.0, 0.0)


def test_the_latency_of_those_who_had_joined_when_it_was_published(spark: SparkSession) -> None:
    pairs = spark.sql(
        "SELECT * FROM VALUES (1, 7, 1, 100L, 2000L), (1, 7, 2, 100L, 4000L), (1, 7, 3, 100L, 9000L), (1, 7, 4, 100L, 8000L),"
        " (1, 7, 5, 100L, null), (2, 8, 1, 100L, 1000L) AS t(run, topic, node, t, delivered)"
    )
    stays = spark.sql(
        "SELECT * FROM VALUES (1, 7, 1, 100L, 9999L), (1, 7, 2, 0L, 4101L), (1, 7, 3, 101L, 99999L), (1, 7, 4, 0L, 8100L),"
        " (1, 7, 5, 0L, 99999L) AS t(run, topic, node, since, until)"
    )
    (one,) = latency.subscribed(pairs, stays).collect()
    assert tuple(one) == (1, 3.0), "who came after it does not count, nor who had left; who joined at that moment does"


@pytest.mark.slow
def test_spark_and_an_observer_agree(spark: SparkSession, tmp_path: Path) -> None:
    work = Workload(messages=2, rate=2.0, answers=1, turns=2, answer_ms=500, order="causal")
    heard = Heard()
    run(Scenario(nodes=12, workload=work, faults=(Reorder(at=0, p=0.5, ms=500.0),)), trace=tmp_path / "run", observer=heard)
    (found,) = figures(spark, [tmp_path / "run"], messages=True, held=True)
    shares = [sum(held < below for held in heard.held) / len(heard.held) for below in (1, 10_000)]
    assert shares[0] < 1
    assert (found["held"]["at_once"], found["held"]["below_10_ms"]) == pytest.approx(shares)
    assert found["held"]["max_ms"] == max(heard.held) / 1_000
    assert {message["msg"]: message["dependencies"] for message in found["per_message"]} == heard.dependencies
