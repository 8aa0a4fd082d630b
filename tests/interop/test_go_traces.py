"""Traces that real nodes of go-libp2p-pubsub wrote, analysed: five in a ring, ten messages of each.

In a ring a publisher sends two copies and each of the four others passes one on: m = 6, and RMR = 6 / 4 - 1.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio
from pyspark.sql import SparkSession

from libweft.bench.spark.analysis import figures
from libweft.bench.spark.libp2p_events import ARRIVAL, Report, read_rows
from tests.interop.foreign import DEADLINE, Foreign, foreign, missing
from tests.waiting import until_answer

NODES, EACH = 5, 10
TOPIC = "weft-traces"

pytestmark = [pytest.mark.slow, pytest.mark.live, pytest.mark.skipif(missing("go") is not None, reason=str(missing("go")))]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the folders `json` and `pb`."""
    folder = tmp_path_factory.mktemp("go")
    trio.run(record, folder)
    for form in ("json", "pb"):
        (folder / form).mkdir()
        for path in folder.glob(f"*.{form}"):
            path.rename(folder / form / path.name)
    return folder


async def record(folder: Path) -> None:
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(foreign("go", "--gossipsub", "--trace", str(folder / str(number))))
            for number in range(NODES)
        ]
        for node, following in zip(nodes, nodes[1:] + nodes[:1], strict=True):
            await node.ask("subscribe", topic=TOPIC)
            await node.ask("dial", addr=following.addrs[0])
        for node in nodes:
            await node.ask("peers", topic=TOPIC, count=2)
            await meshed(node)
        for node in nodes:
            await node.ask("publish", topic=TOPIC, data=[f"{node.peer} {number}" for number in range(EACH)])
        for node in nodes:
            await node.wait_messages(EACH * (NODES - 1))
        for node in nodes:
            assert node.process.stdin is not None
            await node.process.stdin.aclose()
            with trio.fail_after(DEADLINE):
                await node.process.wait()


async def meshed(node: Foreign) -> None:
    async def true() -> bool:
        return len((await node.ask("mesh", topic=TOPIC))["peers"]) >= 2

    await until_answer(true, lambda: node._complaint("a mesh of two"), poll_s=0.1)


def test_every_event_is_read_and_both_forms_are_the_same(traced: Path) -> None:
    kinds: set[str] = set()
    for number in range(NODES):
        reports = [Report(0), Report(0)]
        rows = [
            list(read_rows(traced / form / f"{number}.{form}", report))
            for form, report in zip(("json", "pb"), reports, strict=True)
        ]
        lines = (traced / "json" / f"{number}.json").read_text().splitlines()
        assert reports[0] == reports[1] == Report(0, events=len(lines), jump=reports[0].jump)
        assert rows[0] == rows[1]
        kinds |= {row.kind for row in rows[0]}
        assert all(row.source is not None for row in rows[0] if row.kind == "publish")
    assert {"publish", "deliver", "joined", ARRIVAL, "send", "duplicate", "graft", "neighbor_up"} <= kinds


def test_all_is_delivered_at_the_cost_of_a_ring(traced: Path, spark: SparkSession) -> None:
    found, other = figures(spark, [traced / "json", traced / "pb"])
    assert found["nodes"] == NODES
    assert (found["messages"], found["deliveries"]) == (NODES * EACH, NODES * EACH * (NODES - 1))
    assert found["reliability_min"] == 1.0
    assert found["rmr"] == pytest.approx(0.5, abs=0.1)
    assert found["payload_per_delivery"] == pytest.approx(1.5, abs=0.1)
    assert found["false_positives"] == 0.0
    assert 2 <= found["ldh_mean"] <= found["ldh_max"] <= NODES - 1
    assert 0 < found["latency_ms"]["p50"] <= found["latency_ms"]["max"] < 10_000
    same = ("rows", "messages", "deliveries", "reliability", "payload_messages", "control_messages", "ldh_max")
    assert [other[name] for name in same] == [found[name] for name in same]
