"""weft nodes among real servers of the PyPI package `kademlia`, over loopback UDP: what one side sets the other gets."""

from __future__ import annotations

import subprocess
import sys
from ast import literal_eval
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import pytest
import trio

from libweft.overlays.kademlia_udp.config import KademliaUdpConfig
from libweft.overlays.kademlia_udp.live import KademliaNode
from libweft.overlays.kademlia_udp.wire import Value, digest, store
from libweft.peer.datagram import GARBAGE
from tests import waiting

pytest.importorskip("kademlia", reason="the extra kademlia is not installed")

pytestmark = pytest.mark.live(deadline=240)

ROOT = Path(__file__).parent.parent.parent
HERE = "127.0.0.1"
VALUES: tuple[Value, ...] = (0, -(1 << 40), 1.5, True, "naïve", "", b"\x00\xff", b"x" * 8_000)


class Servers:
    """The other process; `ask` sends it a line and awaits its answer."""

    def __init__(self, process: trio.Process, log: IO[bytes]) -> None:
        self.log = log
        self._process = process
        self._turn = trio.Lock()
        self._heard = b""

    async def ask(self, *words: Any) -> Any:
        assert self._process.stdin is not None
        async with self._turn:
            await self._process.stdin.send_all(repr(words).encode() + b"\n")
            return await self.line()

    async def line(self) -> Any:
        assert self._process.stdout is not None
        while b"\n" not in self._heard:
            more = await self._process.stdout.receive_some()
            assert more, "the servers ended"
            self._heard += more
        line, _, self._heard = self._heard.partition(b"\n")
        return literal_eval(line.decode())


@asynccontextmanager
async def servers(count: int, ksize: int = 20) -> AsyncIterator[tuple[Servers, list[int]]]:
    """A failure shows what they logged."""
    command = [sys.executable, "-m", "tests.interop.kademlia_servers", str(count), str(ksize)]
    with TemporaryFile() as log:
        process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=ROOT)
        others = Servers(process, log)
        try:
            yield others, await others.line()
            assert b"Traceback" not in _text(log)
        except BaseException:
            print("the servers' log ends:", _text(log)[-20_000:].decode(errors="replace"), sep="\n")
            raise
        finally:
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()


def _text(log: IO[bytes]) -> bytes:
    log.seek(0)
    return log.read()


@asynccontextmanager
async def wefts(*ports: int, k: int = 20) -> AsyncIterator[list[KademliaNode]]:
    """A node that joins through each port; a failure shows what they know."""
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(KademliaNode.open(host=HERE, bootstrap=[(HERE, port)], config=KademliaUdpConfig(k=k)))
            for port in ports
        ]
        try:
            yield nodes
        except BaseException:
            for node in nodes:
                contacts = [known.address for known in node.machine.table]
                print(f"weft at {node.address}: {dict(node.counts)}, {len(node.machine.values)} values, contacts {contacts}")
            raise


async def until(wanted: Any, ask: Callable[..., Awaitable[Any]], *words: Any) -> None:
    """Ask until the answer is `wanted`."""

    async def true() -> bool:
        answer = await ask(*words)
        return type(answer) is type(wanted) and answer == wanted

    await waiting.until_answer(true, f"{wanted!r} of {words}", poll_s=0.05)


@pytest.mark.parametrize("k", [20, 5])
async def test_ten_real_servers_and_three_weft_nodes_get_what_each_other_set(k: int) -> None:
    """With a k below the number of nodes, most values have to be looked for."""
    async with servers(10, k) as (others, ports), wefts(ports[0], ports[4], ports[9], k=k) as nodes:
        for number, value in enumerate(VALUES):
            assert await others.ask("set", number, f"theirs {number}", value) is True
            assert await nodes[number % 3].set(f"ours {number}", value) >= min(k, 5)
        for number, value in enumerate(VALUES):
            for node in nodes:
                await until(value, node.get, f"theirs {number}")
                await until(value, node.get, f"ours {number}")
            for server in range(10):
                await until(value, others.ask, "get", server, f"ours {number}")
        assert await nodes[0].get("nobody's") is None
        assert await others.ask("get", 3, "nobody's") is None
        assert [node.counts[GARBAGE] for node in nodes] == [0, 0, 0]


async def test_each_side_keeps_values_for_the_other() -> None:
    async with servers(3) as (others, ports), wefts(*ports) as nodes:
        await others.ask("set", 0, "theirs", "kept here")
        await nodes[0].set("ours", b"kept there")

        async def kept() -> list[Value | None]:
            return [node.machine.values.get(digest("theirs"), 0) for node in nodes]

        await until(["kept here"] * 3, kept)
        for server in range(3):
            await until(b"kept there", others.ask, "has", server, "ours")


async def test_a_real_server_that_joins_is_handed_what_it_should_keep() -> None:
    """By weft, which is nearest to the key, and so by the rule of the package, which hashes the key once more."""
    async with servers(1) as (others, ports), wefts(ports[0]) as [node]:
        [server] = node.machine.table

        def is_weft_s(key: str) -> bool:
            places = [int.from_bytes(place) for place in (digest(key), digest(digest(key)))]
            return all(node.machine.number ^ place < server.number ^ place for place in places)

        key = next(key for key in map(str, range(1_000)) if is_weft_s(key))
        await node.set(key, 7)
        await others.ask("add", *node.address)
        await until(7, others.ask, "has", 1, key)


async def test_what_is_no_request_is_dropped_and_counted_while_both_sides_go_on() -> None:
    async with servers(2) as (others, ports), wefts(ports[0]) as [node]:
        request = b"\x00" + bytes(20)
        junk = [b"", b"\x00", b"\x02" + bytes(40), request + b"\xc1", bytes(9_000), request + store(b"", b"", 1)]
        with trio.socket.socket(type=trio.socket.SOCK_DGRAM) as sock:
            for data in junk:
                await sock.sendto(data, node.address)
        await waiting.until(lambda: node.counts[GARBAGE] >= len(junk))
        await others.ask("set", 1, "still", "there")
        await until("there", node.get, "still")
        assert node.counts[GARBAGE] == len(junk)


async def test_each_side_tells_the_other_its_address() -> None:
    async with servers(1) as (_, ports), wefts(ports[0]) as [node]:
        assert await node.stun((HERE, ports[0])) == node.address
