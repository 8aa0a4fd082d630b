"""A live node and the commands around it: `weft node`, `ping`, `pub` and `sub`, as a user starts them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import pyarrow.parquet
import pytest
import trio

from libweft.__main__ import main
from libweft.peer.errors import UsageError
from libweft.peer.libp2p.ids import Identity, peer_text
from libweft.peer.live.host import open_host
from libweft.peer.trace.kinds import DELIVER, JOINED, PUBLISH, RECEIVE, REJECT
from libweft.pubsub.live import isolation as alone
from libweft.pubsub.live.api import PubSub, PubSubConfig
from libweft.pubsub.live.subscription import Message
from libweft.pubsub.signing import Signing
from tests import waiting
from tests.waiting import until

pytestmark = pytest.mark.live

HERE = ("/ip4/127.0.0.1/tcp/0",)
DEADLINE_S = 240
ROOT = Path(__file__).parent.parent.parent
SOMEBODY = peer_text(Identity.from_seed(bytes(32)).peer)


def near(node: PubSub, trace: Path | None = None) -> AbstractAsyncContextManager[PubSub]:
    return PubSub.open("static/flood", bootstrap=node.addresses, listen=(), config=PubSubConfig(trace=trace))


def listening(trace: Path | None = None) -> AbstractAsyncContextManager[PubSub]:
    return PubSub.open("static/flood", listen=HERE, config=PubSubConfig(trace=trace))


async def take(messages: AsyncIterator[Message], count: int) -> list[Message]:
    return [await anext(messages) for _ in range(count)]


# Nodes in one process.


async def test_a_message_goes_through_a_node_that_has_not_joined_and_comes_once() -> None:
    with trio.fail_after(DEADLINE_S):
        async with listening() as middle, near(middle) as a, near(middle) as b, a.subscribe("news", buffer=100) as messages:
            await middle.neighbors_up(2)
            await b.neighbors_up()
            sent = [await b.publish("news", b"%d" % number) for number in range(50)]
            heard = await take(messages, 50)
            assert len(messages) == 0
    assert [message.id for message in heard] == sent
    assert {message.source for message in heard} == {b.peer}
    assert all(message.publication.signature for message in heard)


async def test_who_subscribes_gets_its_own_message_and_each_subscription_every_one() -> None:
    async with PubSub.open(listen=()) as lonely, lonely.subscribe("news") as one:
        async with lonely.subscribe("news") as two:
            await lonely.publish("news", b"both")
            assert [(await anext(each)).data for each in (one, two)] == [b"both", b"both"]
        await lonely.publish("news", b"one")
        assert (await anext(one)).data == b"one" and len(two) == 0
        await lonely.publish("olds", b"nobody")
        assert len(one) == 0


async def test_what_was_published_last_arrives_although_the_node_closes_at_once() -> None:
    with trio.fail_after(DEADLINE_S):
        async with listening() as hearer, hearer.subscribe("news", buffer=200) as messages:
            async with near(hearer) as node:
                await node.neighbors_up()
                for number in range(200):
                    await node.publish("news", bytes(1_000) + b"%d" % number)
            assert len(await take(messages, 200)) == 200


@pytest.mark.parametrize(
    ("stack", "listen"),
    [("vcube/vcube-ps", HERE), ("vcube/vcube-ps", ()), ("vcube/vcube-pb", ()), ("vcube/srpt-s", ()), ("vcube/srpt-b", HERE)],
)
async def test_who_comes_publishes_and_goes_is_heard_by_all(stack: str, listen: tuple[str, ...]) -> None:
    """Subscribers that it never met: it has to find out about them, and to reach them, before it goes."""
    with trio.fail_after(DEADLINE_S):
        async with PubSub.open(stack, listen=HERE) as first, AsyncExitStack() as stay:
            hearing = []
            for _ in range(4):
                node = await stay.enter_async_context(PubSub.open(stack, listen=HERE, bootstrap=first.addresses))
                hearing.append(await stay.enter_async_context(node.subscribe("news")))
            for number in range(2):
                async with PubSub.open(stack, listen=listen, bootstrap=first.addresses) as node:
                    await node.neighbors_up()
                    await node.publish("news", b"%d" % number)
            for messages in hearing:
                assert sorted(message.data for message in await take(messages, 2)) == [b"0", b"1"]


async def test_gossipsub_loses_nothing_that_is_published_before_a_neighbours_first_words() -> None:
    heard = []
    with trio.fail_after(DEADLINE_S):
        for number in range(20):
            async with PubSub.open("static/gossipsub", listen=HERE) as a, a.subscribe("news") as messages:
                async with PubSub.open("static/gossipsub", listen=(), bootstrap=a.addresses) as b:
                    await b.neighbors_up()
                    await b.publish("news", b"%d" % number)
                with trio.move_on_after(waiting.DEADLINE_S):
                    heard += await take(messages, 1)
    assert [message.data for message in heard] == [b"%d" % number for number in range(20)]


async def test_a_message_that_its_author_did_not_sign_is_rejected_and_the_link_stays(tmp_path: Path) -> None:
    with trio.fail_after(DEADLINE_S):
        async with listening(tmp_path / "trace") as hearer, near(hearer) as liar, hearer.subscribe("news") as messages:
            await liar.neighbors_up()
            liar.router.signing = None
            await liar.publish("news", b"unsigned")
            liar.router.signing = Signing(Identity.new())
            await liar.publish("news", b"forged")
            liar.router.signing = Signing(liar.host.identity)
            await liar.publish("news", b"true")
            assert (await anext(messages)).data == b"true" and len(messages) == 0
    rows = _rows(tmp_path / "trace")
    assert [row["reason"] for row in rows if row["kind"] == REJECT] == ["no signature", "a false signature"]


def _rows(trace: Path) -> list[dict]:
    tables = [pyarrow.parquet.read_table(path) for path in sorted(trace.glob("rows-*.parquet"))]
    return [row for table in tables for row in table.to_pylist()]


async def test_a_live_trace_has_the_rows_of_a_simulated_one(tmp_path: Path) -> None:
    with trio.fail_after(DEADLINE_S):
        async with listening(tmp_path / "a") as a, near(a, tmp_path / "b") as b, a.subscribe("news") as messages:
            await b.neighbors_up()
            await b.publish("news", b"hello")
            await anext(messages)
    kinds_a, kinds_b = ([row["kind"] for row in _rows(tmp_path / name)] for name in "ab")
    assert {JOINED, RECEIVE, DELIVER} <= set(kinds_a) and PUBLISH in kinds_b
    (received,) = (row for row in _rows(tmp_path / "a") if row["kind"] == RECEIVE)
    (published,) = (row for row in _rows(tmp_path / "b") if row["kind"] == PUBLISH)
    assert received["msg"] == published["msg"] and published["t"] <= received["t"]
    assert json.loads((tmp_path / "a" / "manifest.json").read_text())["status"] == "complete"


async def test_a_lost_bootstrap_peer_is_dialled_again() -> None:
    with trio.fail_after(DEADLINE_S), socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))  # so that nobody else gets the port while it is not listened on
        place = f"/ip4/127.0.0.1/tcp/{bound.getsockname()[1]}"
        async with PubSub.open("static/flood", listen=(place,)) as first, near(first) as node:
            await node.neighbors_up()
            await first.host.close()
            await until(lambda: not node.neighbors)
            async with open_host(first.host.identity, listen=[place]) as again:
                # that has no router: each link to it soon falls
                await until(lambda: again.counts["links_up"] > 0)


# Bad input.


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (["node", "--stack", "static/none"], "no stack is called"),
        (["node", "--listen", "127.0.0.1:4001"], "listen|address"),
        (["node", "--listen", "/ip4/192.0.2.1/tcp/0"], "cannot listen"),
        (["node", "--listen", "/dns4/localhost/tcp/0"], "cannot listen"),
        (["node", "--bootstrap", "/ip4/127.0.0.1/tcp/1"], "/p2p/"),
        (["node", "--deny", "somebody"], "no peer id"),
        (["node", "--log", "loud"], "--log"),
        (["node", "--psk", "nowhere.key"], "nowhere.key"),
        (["node", "--metrics", "x"], "--metrics"),
        (["ping", "somewhere"], "peer id"),
        (["ping", "/ip4/127.0.0.1/tcp/1"], "/p2p/"),
        (["ping", f"/ip4/127.0.0.1/tcp/1/p2p/{SOMEBODY}", "--count", "0"], "--count"),
        (["pub", "t"], "--bootstrap"),
        (["sub"], "TOPIC"),
        (["sub", "a", "b", "--stdin"], "one"),
        (["sub", "a", "--order", "total"], "--order total: none, fifo or causal"),
    ],
)
def test_what_is_asked_wrongly_is_told_in_one_line(argv: Sequence[str], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and re.search(word, err)


def test_a_peer_that_is_not_there_is_told_with_exit_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ping", f"/ip4/127.0.0.1/tcp/1/p2p/{SOMEBODY}"]) == 1
    assert "refused" in capsys.readouterr().err
    assert main(["pub", "t", "--bootstrap", f"/ip4/127.0.0.1/tcp/1/p2p/{SOMEBODY}", "--wait", "0.1"]) == 1
    assert "no neighbour" in capsys.readouterr().err


async def test_a_damaged_key_opens_nothing(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"nonsense")
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(UsageError):
        async with PubSub.open(key=tmp_path / "key"):
            pass


# Nobody who hears.


PAIRS = [("hyparview/plumtree", "hyparview/flood"), ("kademlia/kadpubsub", "kademlia/flood"), ("vcube/srpt-s", "vcube/srpt-b")]


@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
async def test_a_neighbour_that_has_another_router_is_nobody_to_publish_to(theirs: str, ours: str) -> None:
    with trio.fail_after(DEADLINE_S):
        async with PubSub.open(theirs, listen=HERE) as other, PubSub.open(ours, bootstrap=other.addresses, listen=HERE) as node:
            await until(lambda: bool(node.neighbors))
            assert await alone.nobody(node, 0.3)
            assert f"is up: does it run {ours}" in await alone.why(node, other.addresses, ours)
            async with PubSub.open(ours, bootstrap=node.addresses, listen=HERE):
                await node.neighbors_up()


@pytest.mark.parametrize("somebody", [False, True])
async def test_who_hears_nobody_at_its_bootstrap_peer_is_warned_once_and_goes_on(
    somebody: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody is a client of a network where all are."""
    monkeypatch.setattr(alone, "WARN_S", 0.3)
    config, stack = PubSubConfig(overlay={"server": False}), "kademlia/flood"
    with trio.fail_after(DEADLINE_S):
        async with PubSub.open(stack, listen=HERE, config=config) as other:
            place = other.addresses if somebody else [f"/ip4/127.0.0.1/tcp/1/p2p/{SOMEBODY}"]
            async with PubSub.open(stack, bootstrap=place, listen=(), config=config) as node, node.subscribe("news") as messages:
                await until(lambda: "no neighbour in 0.3 s" in caplog.text)
                await node.publish("news", b"still here")
                assert (await anext(messages)).data == b"still here"
                await trio.sleep(0.5)
    assert caplog.text.count("no neighbour") == 1
    assert ("is it a server" if somebody else "refused") in caplog.text
    assert caplog.text.count(place[0]) == 1


async def test_who_is_the_first_or_has_a_neighbour_or_ends_before_is_not_warned(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(alone, "WARN_S", 2 * DEADLINE_S)  # not by the nodes themselves: a join may be slow
    nowhere = [f"/ip4/127.0.0.1/tcp/1/p2p/{SOMEBODY}"]
    with trio.fail_after(DEADLINE_S):
        async with listening() as first, near(first) as second:
            await second.neighbors_up()
            async with PubSub.open("static/flood", bootstrap=nowhere, listen=()) as closed:
                pass
            monkeypatch.setattr(alone, "WARN_S", 0.3)
            for node, bootstrap in ((first, ()), (second, nowhere), (closed, nowhere)):
                await alone.warn(node, bootstrap, "static/flood")
    assert "no neighbour" not in caplog.text


# The commands as processes.


@asynccontextmanager
async def weft(*argv: str, stdin: int = subprocess.DEVNULL) -> AsyncIterator[trio.Process]:
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "libweft", *argv],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    except BaseException:
        process.kill()
        with trio.CancelScope(shield=True):
            print(f"weft {' '.join(argv)} had more to say:", await rest(process.stdout), await rest(process.stderr), sep="\n")
        raise
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    await pipe.aclose()


async def line(pipe: trio.abc.ReceiveStream | None) -> str:
    assert pipe is not None
    text = b""
    while not text.endswith(b"\n"):
        data = await pipe.receive_some(1)
        assert data, f"ended after {text!r}"
        text += data
    return text.decode().strip()


async def rest(pipe: trio.abc.ReceiveStream | None) -> str:
    assert pipe is not None
    return b"".join([data async for data in pipe]).decode()


async def test_a_node_a_subscriber_and_a_publisher_from_the_shell(tmp_path: Path) -> None:
    with trio.fail_after(DEADLINE_S):
        async with weft("node", "--listen", HERE[0], "--key", str(tmp_path / "key")) as node:
            address = await line(node.stdout)
            there = ("--bootstrap", address, "--listen", HERE[0])
            assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
            async with weft("ping", address, "--json") as ping:
                assert json.loads(await line(ping.stdout))["min"] > 0
                assert await ping.wait() == 0
            async with weft("sub", "news", "--json", "--count", "3", *there) as sub:
                await line(sub.stderr)
                async with weft("pub", "news", "--json", *there, stdin=subprocess.PIPE) as pub:
                    assert pub.stdin is not None
                    # the subscriber may come later than the publisher, so it is told again until it has heard enough
                    said: list[str] = []
                    while sub.returncode is None:
                        said.append(f"line {len(said)}")
                        await pub.stdin.send_all(said[-1].encode() + b"\n")
                        with trio.move_on_after(0.2):
                            await sub.wait()
                    await pub.stdin.aclose()
                    assert json.loads(await line(pub.stdout)) == {"topic": "news", "published": len(said)}
                    assert await pub.wait() == 0
                heard = [json.loads(text) for text in (await rest(sub.stdout)).splitlines()]
                assert len(heard) == 3 and {message["topic"] for message in heard} == {"news"}
                # in any order: there are two ways from the publisher
                assert len({message["data"] for message in heard} & set(said)) == 3
                assert len({message["id"] for message in heard}) == 3
            node.send_signal(signal.SIGTERM)
            assert await node.wait() == 0
            assert await rest(node.stderr) == ""


async def test_lines_for_a_node_with_another_router_are_not_published_and_that_is_told() -> None:
    with trio.fail_after(DEADLINE_S):
        async with weft("node", "--listen", HERE[0], "--stack", "hyparview/plumtree") as node:
            there = ("--bootstrap", await line(node.stdout), "--stack", "hyparview/flood")
            async with weft("pub", "news", *there, "--wait", "2") as pub:
                told = await rest(pub.stderr)
                assert await pub.wait() == 1
    assert "nothing was published" in told and "does it run hyparview/flood" in told


@pytest.mark.parametrize("order", ["fifo", "causal"])
async def test_lines_are_published_and_printed_in_the_order_that_is_asked_for(order: str) -> None:
    with trio.fail_after(DEADLINE_S):
        async with weft("sub", "t", "--stdin", "--order", order, "--count", "2", stdin=subprocess.PIPE) as sub:
            assert sub.stdin is not None
            await sub.stdin.send_all(b"one\ntwo\n")
            assert [await line(sub.stdout), await line(sub.stdout)] == ["one", "two"]
            assert await sub.wait() == 0


async def test_a_chat_of_two_with_standard_input_and_no_control_characters(tmp_path: Path) -> None:
    with trio.fail_after(DEADLINE_S):
        async with weft("sub", "chat", "--stdin", "--listen", HERE[0], stdin=subprocess.PIPE) as one:
            address = await line(one.stderr)
            async with weft("sub", "chat", "--stdin", "--bootstrap", address, stdin=subprocess.PIPE) as two:
                assert one.stdin is not None and two.stdin is not None
                heard = trio.Event()
                lines: list[str] = []

                async def listen() -> None:
                    lines.append(await line(two.stdout))
                    heard.set()

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(listen)
                    while not heard.is_set():
                        await one.stdin.send_all(b"\x1b[2Jhi \xff\n")
                        with trio.move_on_after(0.2):
                            await heard.wait()
                assert lines == ["\\x1b[2Jhi \\xff"]
                for process in (one, two):
                    process.send_signal(signal.SIGINT)
                    assert await process.wait() == 0


@pytest.mark.parametrize("command", [("pub", ""), ("node", "--topic", ""), ("sub", "")], ids=lambda words: words[0])
def test_a_topic_that_cannot_be_one_is_refused_before_a_node_starts(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--listen", HERE[0]]) == 2
    told = capsys.readouterr()
    assert "a topic is a text of 1 to 1024 letters" in told.err and told.out == ""


@pytest.mark.parametrize("after_s", [0.1, 0.15, 0.2, 0.25, 0.3, 0.4])
async def test_a_node_that_is_interrupted_while_it_starts_ends(after_s: float) -> None:
    async with weft("node", "--listen", HERE[0]) as node:
        await trio.sleep(after_s)
        node.send_signal(signal.SIGINT)
        with trio.fail_after(DEADLINE_S):
            await node.wait()  # with any status: on a busy machine, Python may not have come to weft's code yet


@pytest.mark.skipif(os.name != "posix", reason="it sends itself a signal")
def test_an_interrupt_while_modules_load_ends_the_process_in_one_line() -> None:
    program = """
import os, signal
from libweft.pubsub.live.cli import loading
with loading():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        pass
print("still here")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "weft: interrupted\n")
