"""The page an operator's Prometheus reads: its format, its figures, and a server that no request can hurt."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from pytest_trio import trio_fixture  # type: ignore[import-untyped]
from trio.testing import MockClock

from libweft.peer.errors import UsageError
from libweft.peer.libp2p.ids import Identity, peer_text
from libweft.peer.live.host import HostConfig, open_host
from libweft.peer.live.metrics import CONNECTIONS, COUNTS, REQUEST, TIME_S, Family, _lines, render, serve_metrics
from libweft.peer.machine import SECOND, Env, Machine, Message, Peer, upon
from tests.peer.live_world import JUMP_S, LiveWorld
from tests.waiting import until

HERE = ["/ip4/127.0.0.1/tcp/0"]
DEADLINE_S = 60
GET = b"GET /metrics HTTP/1.1\r\nHost: me\r\n\r\n"

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\n"])*)"'
NUMBER = r"[+-]?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|Inf|NaN)"
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)?\}})? ({NUMBER})")


@dataclass
class Read:
    kind: str
    help: str
    samples: dict[tuple[tuple[str, str], ...], float] = field(default_factory=dict)


def unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"n": "\n"}.get(match[1], match[1]), text)


def parsed(text: str) -> dict[str, Read]:
    """Exposition format 0.0.4 at its strictest: HELP, TYPE, samples; every family once, no two samples alike."""
    assert text.endswith("\n") and "\r" not in text
    families: dict[str, Read] = {}
    lines = text.removesuffix("\n").split("\n")
    while lines:
        told = re.fullmatch(rf"# HELP ({NAME}) ((?:[^\\]|\\[\\n])*)", lines.pop(0))
        assert told is not None
        typed = re.fullmatch(rf"# TYPE {told[1]} (counter|gauge)", lines.pop(0))
        assert typed is not None and told[1] not in families
        family = families[told[1]] = Read(typed[1], unescaped(told[2]))
        assert (typed[1] == "counter") == told[1].endswith("_total")
        while lines and not lines[0].startswith("#"):
            sample = SAMPLE.fullmatch(lines.pop(0))
            assert sample is not None and sample[1] == told[1]
            labels = tuple((name, unescaped(value)) for name, value in re.findall(LABEL, sample[2] or ""))
            assert labels not in family.samples and len(dict(labels)) == len(labels)
            family.samples[labels] = float(sample[SAMPLE.groups])
        assert family.samples
    return families


def figures(text: str) -> dict[str, float]:
    """Those without labels."""
    return {name: family.samples[()] for name, family in parsed(text).items() if () in family.samples}


# The text.


@pytest.mark.live
async def test_a_lone_host_has_every_figure_of_a_host() -> None:
    async with open_host(Identity.new(), listen=HERE) as host:
        families = parsed(render(host))
        assert all(name.startswith("weft_") for name in families)
        now = figures(render(host))
    assert families["weft_links_by_direction"].samples == {
        (("direction", "inbound"),): 0,
        (("direction", "outbound"),): 0,
    }
    zero = {"weft_links", "weft_streams", "weft_handshakes", "weft_dials", "weft_unsent_bytes", "weft_known_peers"}
    assert {name for name, value in now.items() if value == 0} == zero | {f"weft_{key}_total" for key in COUNTS}
    assert 0 < now["weft_uptime_seconds"] < now["weft_start_time_seconds"]
    assert families["weft_host_info"].samples == {(("peer", peer_text(host.peer)), ("agent", host.config.agent)): 1}


@pytest.mark.live
async def test_links_streams_and_counts_of_two_hosts() -> None:
    asked, asking = Identity.new(), Identity.new()
    gate = trio.Event()

    async def wait(stream: object) -> None:
        await gate.wait()

    with trio.fail_after(DEADLINE_S):
        async with open_host(asked, listen=HERE) as server, open_host(asking) as client:
            server.handle("/test/wait", wait)
            stream = await client.open_stream(server.addresses[0], ["/test/wait"])
            await until(lambda: server.links and all(link.told for host in (server, client) for link in host.links.values()))
            here, there = parsed(render(client)), parsed(render(server))
            assert here["weft_links_by_direction"].samples[("direction", "outbound"),] == 1
            assert there["weft_links_by_direction"].samples[("direction", "inbound"),] == 1
            one, other = figures(render(client)), figures(render(server))
            assert one["weft_links"] == other["weft_links"] == 1
            assert one["weft_streams"] >= 1 and other["weft_streams"] >= 1
            assert one["weft_known_peers"] == 1
            assert (one["weft_dials_total"], other["weft_accepted_total"]) == (1, 1)
            assert one["weft_links_up_total"] == other["weft_links_up_total"] == 1
            gate.set()
            await stream.aclose()
    assert figures(render(client))["weft_links_down_total"] == 1


class Text(Message, frozen=True, tag=1):
    data: bytes


class Sender(Machine):
    protocols = ("/test/sender",)

    @upon(Text)
    def on_text(self, sender: Peer, msg: Text) -> None: ...


def senders(env: Callable[[], Env]) -> list[Machine]:
    return [Sender(env())]


@trio_fixture
async def world(autojump_clock: MockClock) -> AsyncIterator[LiveWorld]:
    """Of use only beside `autojump_clock`: a test runs on a clock that it names itself."""
    autojump_clock.autojump_threshold = JUMP_S
    async with trio.open_nursery() as nursery:
        world = LiveWorld(nursery)
        yield world
        world.close()
        nursery.cancel_scope.cancel()


@pytest.mark.live
async def test_a_stack_shows_what_waits_in_it(autojump_clock: MockClock, world: LiveWorld) -> None:
    one, two = world.add(senders), world.add(senders)
    driver = world.drivers[one]
    env = driver.envs[0]

    def now() -> dict[str, float]:
        return figures(render(driver.host, driver))

    kept, dropped = env.after(60 * SECOND, print), env.after(60 * SECOND, print)
    dropped.cancel()
    env.send(two, Text(bytes(1_000)))
    env.request(two, Text(b""), 5 * SECOND, lambda peer, msg: None, lambda peer, why: None)
    before = now()
    assert before["weft_parked_bytes"] > 1_000 and before["weft_outbox_bytes"] == 0
    assert (before["weft_timers"], before["weft_requests"], before["weft_machines"]) == (1, 1, 1)
    await world.run(10 * SECOND)
    (link,) = driver.host.links.values()
    link.source = None  # nothing leaves any more
    env.send(two, Text(bytes(2_000)))
    after = now()
    assert after["weft_parked_bytes"] == 0 and after["weft_outbox_bytes"] > 2_000
    assert after["weft_requests"] == 0 and after["weft_stack_running"] == 1
    kept.cancel()
    assert now()["weft_timers"] == 0
    world.crash(one)
    assert now()["weft_stack_running"] == 0


async def test_an_agent_and_a_count_may_hold_anything() -> None:
    agent = 'a "quoted" \\n back\\slash\nand {a line}, ünïcode'
    async with open_host(Identity.new(), config=HostConfig(agent=agent)) as host:
        host.counts["strange key\n"] += 3
        families = parsed(render(host))
    ((labels, _),) = families["weft_host_info"].samples.items()
    assert dict(labels)["agent"] == agent
    assert families["weft_strange_key__total"].samples == {(): 3}
    assert families["weft_strange_key__total"].help == "The host's count of strange key\n."


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r")), st.floats() | st.integers())
def test_help_labels_and_values_survive_the_format(text: str, value: float) -> None:
    families = parsed("".join(line + "\n" for line in _lines(Family("x", "gauge", text, (({"a": text, "b": text}, value),)))))
    ((labels, read),) = families["x"].samples.items()
    assert families["x"].help == text and labels == (("a", text), ("b", text))
    assert read == float(value) or value != value


# The server.


@trio_fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr("libweft.peer.live.metrics.TIME_S", float(DEADLINE_S))  # on a busy machine seconds are little
    async with open_host(Identity.new()) as host, trio.open_nursery() as nursery:
        yield await nursery.start(serve_metrics, host, None)
        nursery.cancel_scope.cancel()


async def ask(port: int, request: bytes, *, end: bool = False) -> tuple[int, dict[str, str], bytes]:
    """Status, fields and body, read to the end of the connection."""
    with trio.fail_after(DEADLINE_S):
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(request)
            if end:
                await stream.send_eof()
            answer = b"".join([data async for data in stream])
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    fields = dict(line.split(": ", 1) for line in rest)
    status = re.fullmatch(r"HTTP/1\.1 (\d{3}) [A-Za-z ]+", first)
    assert status is not None
    assert fields["Connection"] == "close" and int(fields["Content-Length"]) == len(body)
    return int(status[1]), fields, body


@pytest.mark.live
async def test_get_metrics_is_answered_with_the_text(port: int) -> None:
    status, fields, body = await ask(port, GET)
    assert (status, fields["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert parsed(body.decode())["weft_links"].samples == {(): 0}


@pytest.mark.live
@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"GET /metrics?name[]=up HTTP/1.1\r\nHost: me\r\nAccept: */*\r\n\r\n", 200),
        (b"GET /metrics HTTP/1.0\r\n\r\n", 200),
        (b"GET /metrics HTTP/1.1\nHost: me\n\n", 200),
        (GET + b"and a body", 200),
        (b"GET / HTTP/1.1\r\nHost: me\r\n\r\n", 404),
        (b"GET /metrics/ HTTP/1.1\r\nHost: me\r\n\r\n", 404),
        (b"POST /elsewhere HTTP/1.1\r\nHost: me\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nHost: me\r\nContent-Length: 2\r\n\r\nhi", 405),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET /metrics HTTP/2.0\r\nHost: me\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\nHost: me\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: me\r\nno field\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: me\r\nA: b\r\n folded\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost : me\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: me\r\nA: \x00\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"/multistream/1.0.0\n\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: " + bytes([255]) * REQUEST, 400),
        (b"GET /metrics HTTP/1.1\r\nHost: me\r\nA: " + b"a" * (1 << 20) + b"\r\n\r\n", 400),
    ],
)
async def test_a_request_gets_its_status(port: int, request_text: bytes, status: int) -> None:
    answered, fields, _ = await ask(port, request_text)
    assert answered == status
    assert fields.get("Allow") == ("GET" if status == 405 else None)
    assert (await ask(port, GET))[0] == 200


@pytest.mark.live
async def test_a_request_that_breaks_off_is_nonsense(port: int) -> None:
    assert (await ask(port, GET[:-2], end=True))[0] == 400


@pytest.mark.live
async def test_a_request_may_come_byte_by_byte(port: int) -> None:
    with trio.fail_after(DEADLINE_S):
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            for byte in GET:
                await stream.send_all(bytes([byte]))
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.live
async def test_who_only_connects_or_resets_costs_nothing(port: int) -> None:
    for request in (b"", GET[:10], GET):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # a reset, not an end
        await stream.send_all(request)
        await stream.aclose()
    assert (await ask(port, GET))[0] == 200


@pytest.mark.live
async def test_the_silent_are_cut_off_and_the_others_wait_for_room(autojump_clock: MockClock) -> None:
    autojump_clock.autojump_threshold = JUMP_S
    async with open_host(Identity.new()) as host, trio.open_nursery() as nursery:
        port = await nursery.start(serve_metrics, host, None)
        began = trio.current_time()
        silent = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(CONNECTIONS)]
        await trio.testing.wait_all_tasks_blocked(JUMP_S)
        assert (await ask(port, GET))[0] == 200
        assert TIME_S <= trio.current_time() - began < 2 * TIME_S
        for stream in silent:
            assert await stream.receive_some() == b""
            await stream.aclose()
        nursery.cancel_scope.cancel()


@pytest.mark.live
async def test_who_does_not_read_is_cut_off_too(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    autojump_clock.autojump_threshold = JUMP_S
    monkeypatch.setattr("libweft.peer.live.metrics.render", lambda host, driver: "x" * (1 << 26))
    async with open_host(Identity.new()) as host, trio.open_nursery() as nursery:
        port = await nursery.start(serve_metrics, host, None)
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(GET)
            await trio.sleep(TIME_S + 1)
            with pytest.raises(trio.BrokenResourceError):
                for _ in range(100):
                    await stream.send_all(b"still here")
                    await trio.sleep(1)
        nursery.cancel_scope.cancel()


@pytest.mark.live
@pytest.mark.parametrize(
    ("address", "port"), [("localhost", 0), ("", 0), ("127.0.0.1", 70_000), ("127.0.0.1", -1), ("192.0.2.1", 0)]
)
async def test_a_place_that_cannot_be_is_refused(address: str, port: int) -> None:
    async with open_host(Identity.new()) as host:
        with trio.fail_after(DEADLINE_S), pytest.raises(UsageError, match="served at"):
            await serve_metrics(host, None, address, port)


@pytest.mark.live
async def test_the_figures_of_a_stack_are_served(autojump_clock: MockClock, world: LiveWorld) -> None:
    driver = world.drivers[world.add(senders)]
    async with trio.open_nursery() as nursery:
        port = await nursery.start(serve_metrics, driver.host, driver)
        _, _, body = await ask(port, GET)
        assert parsed(body.decode())["weft_machines"].samples == {(): 1}
        nursery.cancel_scope.cancel()
