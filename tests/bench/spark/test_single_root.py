"""What is measured of trees with one root, on a trace whose every time is known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.spark.analysis import figures
from peer.machine import Lane, MessageId
from peer.trace import DELIVER, DUPLICATE, JOINED, PUBLISH, QUEUE, RECEIVE, SEND, Tracer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MS = 1_000
FIRST, SECOND_ONE = MessageId(3, 0, 1), MessageId(0, 0, 1)


def write(folder: Path) -> Path:
    """Node 3 publishes to the root 0, which sends to 1 and 2, and 2, who only forwards, to 3; then the root publishes itself."""
    tracer = Tracer(folder, manifest={"scenario": {"nodes": 4, "window": 10.0}, "stack": "x", "seed": 1})

    def emit(
        t: int, node: int, kind: str, msg: MessageId | None, peer: int | None = None, hops: int | None = None, copies: int = 0
    ) -> None:
        lane = Lane.PAYLOAD if kind in (SEND, QUEUE) else None
        tracer.emit(t * MS, node, kind, "t", msg, peer, hops, copies or None, None, lane)

    for node in (0, 1, 3):
        emit(0, node, JOINED, None)
    emit(10, 3, PUBLISH, FIRST)
    emit(10, 3, QUEUE, FIRST, copies=1)
    emit(10, 3, SEND, FIRST, copies=1)
    emit(110, 0, RECEIVE, FIRST, 3, 1)
    emit(110, 0, DELIVER, FIRST, hops=1)
    emit(110, 0, QUEUE, FIRST, copies=1)
    emit(110, 0, QUEUE, FIRST, copies=4)
    emit(110, 0, SEND, FIRST, copies=2)
    emit(210, 1, RECEIVE, FIRST, 0, 2)
    emit(210, 1, DELIVER, FIRST, hops=2)
    emit(211, 2, RECEIVE, FIRST, 0, 2)
    emit(211, 2, QUEUE, FIRST, copies=1)
    emit(211, 2, SEND, FIRST, copies=1)
    emit(311, 3, DUPLICATE, FIRST, 2)
    emit(1_000, 0, PUBLISH, SECOND_ONE)
    emit(1_000, 0, QUEUE, SECOND_ONE, copies=1)
    emit(1_000, 0, SEND, SECOND_ONE, copies=1)
    emit(1_100, 1, RECEIVE, SECOND_ONE, 0, 1)
    emit(1_100, 1, DELIVER, SECOND_ONE, hops=1)
    tracer.close()
    return folder


def test_the_publisher_s_own_copy_counts_and_the_root_s_does_not(spark: SparkSession, tmp_path: Path) -> None:
    (found,) = figures(spark, [write(tmp_path / "run")], single_root=True, nodes=True, queues=True, batches=True)
    assert found["batches"] == [pytest.approx((200 + 301) / 2), pytest.approx(100)]
    assert found["single_root"]["mean_ms"] == pytest.approx((200 + 301 + 100) / 3)
    assert found["single_root"]["last_ms"] == pytest.approx((301 + 100) / 2)
    assert found["single_root"]["copies"] == pytest.approx((3 + 1) / 2)  # the step to the root is none
    assert {each["node"]: each["mean_ms"] for each in found["per_node"]} == {1: 150.0, 3: 301.0}
    assert {each["node"]: each["queue"] for each in found["queues"]} == {0: 2.0, 2: 1.0}
