"""Live peers whose collector is killed and started again, and what Spark makes of the folder."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio
from pyspark.sql import SparkSession

from libweft.bench.spark.analysis import figures
from libweft.bench.spark.traces import look_over
from libweft.peer.libp2p.ids import Identity
from libweft.peer.live.collect.clock import Offset
from libweft.peer.live.collect.folder import Entry, Folder
from libweft.peer.live.collect.peer_account import Standing
from libweft.peer.trace.files import read_rows
from libweft.peer.trace.kinds import JOINED, Row
from libweft.pubsub.live.api import PubSub, PubSubConfig
from libweft.pubsub.live.subscription import Subscription
from tests.peer.test_host import FOUR
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 480


@asynccontextmanager
async def collector(folder: Path, key: Path, listen: str = FOUR) -> AsyncIterator[tuple[trio.Process, str]]:
    """A process of its own, and its address; it is killed at the end if it still runs."""
    command = [sys.executable, "-m", "libweft", "collect", str(folder), "--json", "--listen", listen, "--key", str(key)]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        said = b""
        while not said.endswith(b"\n"):
            said += await process.stdout.receive_some() or b"it said no more\n"
        yield process, json.loads(said)["addresses"][0]
    finally:
        if process.returncode is None:
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def talk(nodes: list[tuple[PubSub, Subscription]], messages: int) -> None:
    """Each node publishes, and everybody hears all of it."""
    for number in range(messages):
        for node, _ in nodes:
            await node.publish("news", str(number).encode())
    for _, heard in nodes:
        for _ in range(messages * len(nodes)):
            await anext(heard)


async def until_written(nodes: list[tuple[PubSub, Subscription]]) -> None:
    for node, _ in nodes:
        await until(lambda node=node: not node.stats()["traces_waiting"])  # type: ignore[misc]


def test_the_analysis_tells_how_exact_clocks_are_and_what_is_missing(tmp_path: Path) -> None:
    folder, peer = Folder(tmp_path), Identity.from_seed(bytes(32)).peer
    row: Row = (1, peer, JOINED, "news", None, None, None, None, None, None, None, ())
    folder.write(5, [Entry(peer, [row], Standing(1, 1, 10, lost=7, refused=4, t=1), Offset(-9, 2_500))])
    folder.release()
    clocks, missing = [warning for warning in look_over(0, "run", tmp_path).warnings if "did not finish" not in warning]
    assert "1 nodes were set right to 2.5 ms" in clocks and "7 did not fit" in missing and "4 were beyond" in missing


@pytest.mark.live(deadline=600)
async def test_a_collector_that_was_killed_costs_nothing(tmp_path: Path, spark: SparkSession) -> None:
    folder, key = tmp_path / "run", tmp_path / "key"
    with trio.fail_after(DEADLINE_S):
        async with AsyncExitStack() as stack, AsyncExitStack() as first:
            _, address = await first.enter_async_context(collector(folder, key))
            nodes: list[tuple[PubSub, Subscription]] = []
            for _ in range(3):
                bootstrap, config = [one for node, _ in nodes for one in node.addresses], PubSubConfig(collector=address)
                node = await stack.enter_async_context(PubSub.open(listen=[FOUR], bootstrap=bootstrap, config=config))
                nodes.append((node, await stack.enter_async_context(node.subscribe("news"))))
            for node, _ in nodes:
                await node.neighbors_up(2)
            await talk(nodes, 5)
            await until_written(nodes)
            before = read_rows(folder).num_rows
            await first.aclose()  # kills it
            await talk(nodes, 5)
            assert all(node.stats()["traces_waiting"] for node, _ in nodes)
            async with collector(folder, key, address.partition("/p2p/")[0]) as (process, _):
                await talk(nodes, 5)
                await until_written(nodes)
                process.send_signal(signal.SIGINT)
                assert await process.wait() == 0
            assert all(node.stats()["traces_lost"] == 0 for node, _ in nodes)
    assert read_rows(folder).num_rows > before
    about = look_over(0, "run", folder)
    assert any("clocks of 3 nodes" in warning for warning in about.warnings)
    assert not any("one live node" in warning or "clocks jump" in warning for warning in about.warnings)
    [run] = await trio.to_thread.run_sync(figures, spark, [folder])
    assert (run["messages"], run["deliveries"], run["reliability"], run["reliability_min"]) == (45, 90, 1.0, 1.0)
