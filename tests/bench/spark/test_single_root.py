"""What is measured of trees with one root: on a trace whose every time is known, and on runs, whose figures need few rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from libweft.bench.papers import (
    vcube_ps_churn,
    vcube_ps_fig5,
    vcube_ps_fig7,
    vcube_ps_fig8a,
    vcube_ps_fig8b,
    vcube_ps_fig9,
    vcube_ps_table1,
)
from libweft.bench.papers.figure import Figure
from libweft.bench.papers.vcube_ps_setting import FREE
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Scenario
from libweft.bench.spark.analysis import figures
from libweft.peer.machine import Lane, MessageId
from libweft.peer.trace.files import read_rows
from libweft.peer.trace.kinds import DELIVER, DUPLICATE, JOINED, LEAVE, PUBLISH, QUEUE, RECEIVE, SEND
from libweft.peer.trace.tracer import Tracer

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


CHURN = {
    system: vcube_ps_churn.scenario(vcube_ps_churn.Point(system, 30, 0.05, 10.0), seed=3)
    for system in (vcube_ps_churn.VCUBE_PS, vcube_ps_churn.SRPT)
}
AT_ONCE = vcube_ps_fig5.scenario(vcube_ps_fig5.Point(vcube_ps_fig5.SRPT, FREE, 32, 1.0, 100.0), seed=3)
TOPICS = vcube_ps_fig7.scenario(vcube_ps_fig7.Point(vcube_ps_fig7.SRPT, "zipf", 5, 16, 4), seed=3)
BROKERS = vcube_ps_fig9.scenario(vcube_ps_fig9.Point(4, 4, 32, 8), seed=3)
FIGURES: dict[str, tuple[Figure, Sequence[Scenario]]] = {
    "fig5": (vcube_ps_fig5.FIGURE, [AT_ONCE]),
    "fig7": (vcube_ps_fig7.FIGURE, [TOPICS]),
    "fig8a": (vcube_ps_fig8a.FIGURE, [*CHURN.values()]),
    "fig8b": (vcube_ps_fig8b.FIGURE, [*CHURN.values()]),
    "fig9": (vcube_ps_fig9.FIGURE, [BROKERS]),
    "table1": (vcube_ps_table1.FIGURE, [AT_ONCE]),
}
ABOUT = ("run", "name", "trace", "rows", "command", "copies")  # copies are not told by few rows


@pytest.mark.parametrize("name", FIGURES)
def test_the_rows_that_a_figure_writes_are_all_that_it_needs(spark: SparkSession, tmp_path: Path, name: str) -> None:
    figure, scenarios = FIGURES[name]
    folders = []
    for number, scenario in enumerate(scenarios):
        few = replace(scenario, trace=replace(scenario.trace, kinds=figure.kinds))
        for word, each in (("all", scenario), ("few", few)):
            folders.append(tmp_path / f"{word}-{number}")
            run(each, trace=folders[-1], counters=False, hashed=False)
    found = figures(spark, folders, **dict.fromkeys(figure.wants, True))
    for whole, less in zip(found[::2], found[1::2], strict=True):
        assert whole["rows"] > less["rows"]
        assert without(whole, *ABOUT) == without(less, *ABOUT)


@pytest.mark.parametrize("system", CHURN)
def test_what_is_asked_for_alone_agrees_with_the_figures_of_the_run(spark: SparkSession, tmp_path: Path, system: str) -> None:
    """Where subscribers come and go; the times of the root and of the publishers are told by the rows themselves."""
    run(CHURN[system], trace=tmp_path / "run")
    (whole,) = figures(spark, [tmp_path / "run"])
    (found,) = figures(spark, [tmp_path / "run"], single_root=True, nodes=True, false_positives=True, alone=True)
    assert 0 < found["false_positives"] == whole["false_positives"]
    times, roots, echoes = by_hand(tmp_path / "run")
    assert (system == vcube_ps_churn.SRPT) == bool(echoes) == bool(roots)
    assert sum(times) / len(times) / MS == pytest.approx(whole["reception_ms"]["mean"])
    counted = (sum(times) - sum(roots) + sum(echoes)) / (len(times) - len(roots) + len(echoes))
    assert found["single_root"]["mean_ms"] == pytest.approx(counted / MS)
    assert "reliability" not in found


def without(found: Any, *names: str) -> Any:
    if isinstance(found, list):
        return [without(each, *names) for each in found]
    return {key: without(each, *names) for key, each in found.items() if key not in names} if isinstance(found, dict) else found


def by_hand(folder: Path) -> tuple[list[int], list[int], list[int]]:
    """Times to subscribers but the publisher, those of them who delivered after one hop, and those of copies that came back."""
    rows: list[dict[str, Any]] = read_rows(folder).select(["t", "node", "kind", "msg", "hops"]).to_pylist()
    sent = {row["msg"]: row for row in rows if row["kind"] == PUBLISH}
    near = {(row["msg"], row["node"]) for row in rows if row["kind"] == DELIVER and row["hops"] == 1}
    joined: set[int] = set()
    times: dict[tuple[int, int], int] = {}
    echoes: dict[int, int] = {}
    for row in rows:
        node, msg, kind = row["node"], row["msg"], row["kind"]
        if kind in (JOINED, LEAVE):
            (joined.add if kind == JOINED else joined.discard)(node)
        elif kind == RECEIVE and node in joined and node != sent[msg]["node"]:
            times[msg, node] = row["t"] - sent[msg]["t"]
        elif kind == DUPLICATE and node == sent[msg]["node"]:
            echoes.setdefault(msg, row["t"] - sent[msg]["t"])
    roots = [times[pair] for pair in times.keys() & near if pair[0] in echoes]
    return [*times.values()], roots, [*echoes.values()]
