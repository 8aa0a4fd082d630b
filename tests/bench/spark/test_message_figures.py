"""The figures of single messages: what was held back, counted again from the rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

from libweft.bench.papers.vcube_pb_setting import Point, scenario
from libweft.bench.runs.run import run
from libweft.bench.spark.analysis import figures
from libweft.peer.machine import MessageId, Peer
from libweft.peer.trace.kinds import DELIVER, PUBLISH, RECEIVE


class Held:
    """To how many each message was not delivered when it came."""

    def __init__(self) -> None:
        self.count: Counter[MessageId] = Counter()
        self.published: list[tuple[int, MessageId]] = []
        self._came: dict[tuple[Peer, MessageId], int] = {}

    def observe(self, t: int, node: Peer, kind: str, topic: str | None, msg: MessageId | None, *rest: object) -> None:
        if msg is None:
            return
        if kind == PUBLISH:
            self.published.append((t, msg))
        elif kind == RECEIVE:
            self._came[node, msg] = t
        elif kind == DELIVER and t > self._came.get((node, msg), t):
            self.count[msg] += 1


def test_a_message_says_to_how_many_it_was_not_delivered_when_it_came(spark: SparkSession, tmp_path: Path) -> None:
    held = Held()
    run(scenario(Point(32, 0.5, False), seed=3), trace=tmp_path / "run", observer=held)
    (found,) = figures(spark, [tmp_path / "run"], messages=True)
    assert [message["held"] for message in found["per_message"]] == [held.count[msg] for _, msg in sorted(held.published)]
    assert held.count.total() > 0
