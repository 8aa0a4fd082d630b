"""What a live node does with its trace: parts while it runs, and a collector that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from libweft.peer.errors import UsageError
from libweft.peer.libp2p.ids import Identity, peer_text
from libweft.peer.trace.files import read_rows
from libweft.peer.trace.kinds import PUBLISH
from libweft.pubsub.live import api
from libweft.pubsub.live.api import PubSub, PubSubConfig
from tests.peer.test_host import DEADLINE_S, FOUR
from tests.waiting import until

pytestmark = pytest.mark.live

NOWHERE = f"/ip4/127.0.0.1/tcp/1/p2p/{peer_text(Identity.from_seed(bytes(32)).peer)}"


async def publish_on(node: PubSub) -> None:
    while True:
        await node.publish("news", b"all the same")
        await trio.sleep(0.02)


async def test_a_collector_that_is_not_there_costs_no_message() -> None:
    with trio.fail_after(DEADLINE_S):
        async with PubSub.open("static/flood", listen=[FOUR], config=PubSubConfig(collector=NOWHERE)) as node:
            async with PubSub.open("static/flood", bootstrap=node.addresses, listen=[]) as other, trio.open_nursery() as nursery:
                async with other.subscribe("news") as messages:
                    nursery.start_soon(publish_on, node)
                    assert (await anext(messages)).data == b"all the same"
                nursery.cancel_scope.cancel()
            await until(lambda: node.sender is not None and node.sender.away)
            stats = node.stats()
            assert stats["traces_waiting"] > 0 == stats["traces_lost"]


async def test_a_part_is_written_while_the_node_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "ROTATE_S", 0.01)
    with trio.fail_after(DEADLINE_S):
        async with PubSub.open("static/flood", listen=[FOUR], config=PubSubConfig(trace=tmp_path / "run")) as node:
            await until(lambda: bool(list(tmp_path.glob("run/rows-*.parquet"))))
            await node.publish("news", b"to nobody")
            await until(lambda: PUBLISH in read_rows(tmp_path / "run")["kind"].to_pylist())


@pytest.mark.parametrize("collector", ["/ip4/127.0.0.1/tcp/1", "nonsense", 5])
async def test_a_collector_that_cannot_be_one_is_refused_at_once(collector: str) -> None:
    with pytest.raises(UsageError):
        async with PubSub.open("static/flood", listen=[], config=PubSubConfig(collector=collector)):
            pass
