"""Twenty live peers, their collector, and `weft analyze --follow` over what it writes: the collector is killed and comes back.

The peers lose no message by it, and the figures are whole again after it. `WEFT_MINUTES` is how long each half lasts at least;
the test prints how old the figures were and how much memory the processes had: both depend on what else the machine does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import trio

from libweft.pubsub.live.api import PubSub, PubSubConfig
from libweft.pubsub.live.subscription import Subscription

pytestmark = [pytest.mark.slow, pytest.mark.live]

STACK = "hyparview/plumtree"
HERE = "/ip4/127.0.0.1/tcp/0"
PEERS, EVERY_S = 20, 0.25
HALF_S = 60 * float(os.environ.get("WEFT_MINUTES", "0.3"))
DEADLINE_S = 240 + 4 * HALF_S


class Program:
    """A `weft` command that prints JSON, an object a line."""

    def __init__(self, process: trio.Process, errors: Path) -> None:
        self.process = process
        self.said: list[dict[str, Any]] = []
        self._errors = errors

    @classmethod
    @asynccontextmanager
    async def run(cls, errors: Path, *words: object) -> AsyncIterator[Program]:
        with errors.open("ab") as stderr:
            command = [sys.executable, "-m", "libweft", *map(str, words), "--json"]
            process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, stderr=stderr)
        program = cls(process, errors)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(program._read)
                yield program
                nursery.cancel_scope.cancel()
        except BaseException:
            print(f"{words}: {errors.read_text()}", *program.said[-3:], sep="\n")
            raise
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
                assert process.stdout is not None
                await process.stdout.aclose()

    async def _read(self) -> None:
        rest = b""
        assert self.process.stdout is not None
        async for data in self.process.stdout:
            *lines, rest = (rest + data).split(b"\n")
            self.said += map(json.loads, lines)

    def megabytes(self) -> float:
        """Of it and of those that it has started."""
        return sum(map(_resident, _family(self.process.pid))) / 1e6


class Chat:
    """All publish in turn, and all hear all."""

    def __init__(self) -> None:
        self.nodes: list[PubSub] = []
        self.published: set[bytes] = set()
        self.heard: list[set[bytes]] = []
        self.open = True

    async def join(self, opened: AsyncExitStack, nursery: trio.Nursery, collector: str) -> None:
        bootstrap = self.nodes[0].addresses if self.nodes else ()
        config = PubSubConfig(collector=collector)
        node = await opened.enter_async_context(PubSub.open(STACK, bootstrap=bootstrap, listen=[HERE], config=config))
        inbox = await opened.enter_async_context(node.subscribe("t", buffer=1_000))
        self.nodes.append(node)
        self.heard.append(set())
        nursery.start_soon(self._listen, inbox, self.heard[-1])

    async def talk(self) -> None:
        for number, node in enumerate(cycle(self.nodes)):
            if not self.open:
                return
            data = b"%d" % number
            self.published.add(data)
            await node.publish("t", data)
            await trio.sleep(EVERY_S)

    async def _listen(self, inbox: Subscription, heard: set[bytes]) -> None:
        async for message in inbox:
            heard.add(message.data)

    @property
    def all_heard(self) -> bool:
        return all(self.published <= heard for heard in self.heard)


async def test_a_killed_collector_costs_no_message_and_the_figures_come_back(tmp_path: Path) -> None:
    folder, chat = tmp_path / "run", Chat()
    sizes: list[tuple[float, float]] = []

    def collecting(listen: str) -> AbstractAsyncContextManager[Program]:
        return Program.run(tmp_path / "collect", "collect", folder, "--listen", listen, "--key", tmp_path / "key")

    with trio.fail_after(DEADLINE_S):
        async with collecting(HERE) as collector:
            await until(lambda: bool(collector.said), "the collector")
            address = collector.said[0]["addresses"][0]
        listen = address.partition("/p2p/")[0]
        async with (
            Program.run(tmp_path / "follow", "analyze", folder, "--follow") as followed,
            trio.open_nursery() as nursery,
            AsyncExitStack() as opened,
        ):
            for _ in range(PEERS):
                await chat.join(opened, nursery, address)
            await until(lambda: all(len(node.neighbors) for node in chat.nodes), "neighbours")
            nursery.start_soon(chat.talk)
            async with collecting(listen) as collector:
                await until(lambda: is_whole(followed.said), "figures")
                await pass_by(HALF_S, followed, collector, sizes)
            before, lost = len(followed.said), len(chat.published)
            await until(lambda: all(node.sender is not None and node.sender.away for node in chat.nodes), "the end")
            async with collecting(listen) as collector:
                await until(lambda: is_whole(followed.said[before:]) and len(chat.published) > lost + PEERS, "figures again")
                await pass_by(HALF_S, followed, collector, sizes)
                chat.open = False
                await until(lambda: chat.all_heard, "the last message")
                await until(lambda: not any(node.stats()["traces_waiting"] for node in chat.nodes), "the last rows")
            ages = [each["age_s"] for each in followed.said if each.get("age_s") is not None]
            lost_rows = sum(node.stats()["traces_lost"] for node in chat.nodes)
            nursery.cancel_scope.cancel()
    print(f"{len(chat.published)} messages; {len(ages)} tables, {max(ages):.1f} s old at most; {lost_rows} rows lost")
    print("MB of the follower and the collector:", *(f"{one:.0f}+{other:.0f}" for one, other in sizes))
    assert lost_rows == 0


def is_whole(said: Iterable[dict[str, Any]]) -> bool:
    """The last table has messages, and tells that all were delivered."""
    last = [*said][-1:]
    return bool(last) and bool(last[0].get("judged")) and last[0]["reliability"] == 1.0


async def pass_by(seconds: float, followed: Program, collector: Program, sizes: list[tuple[float, float]]) -> None:
    """At least so long; the memory is looked at ten times."""
    for _ in range(10):
        await trio.sleep(seconds / 10)
        sizes.append((followed.megabytes(), collector.megabytes()))


async def until(condition: Callable[[], bool], what: str) -> None:
    """As `waiting.until`, but a Spark that starts may take longer: the deadline is that of the test."""
    print(f"{trio.current_time() % 10_000:7.1f} s: waiting for {what}")
    while not condition():
        await trio.sleep(0.1)


def _family(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(each for child in children for each in _family(int(child)))]


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
