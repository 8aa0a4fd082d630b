"""Peers that mean harm, against a real host on loopback sockets: what they do costs their own link, and nothing stays.

Each test stands in `besieged`, which at its end lets a good peer ping the host, and waits until every table of the host is as
empty as before. Time is trio's mock clock, as in `tests.peer.live_world`: it jumps when nothing happens, so that time
limits cost no time.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from ipaddress import ip_network
from socket import SHUT_WR
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from libweft.peer.codec import msgpack
from libweft.peer.errors import PeerError
from libweft.peer.libp2p.frame import frame, uvarint
from libweft.peer.libp2p.multistream import LINE_LIMIT
from libweft.peer.libp2p.yamux import DATA, HEADER, INITIAL, SYN, WINDOW, YamuxLimits
from libweft.peer.live.driver import Driver, MachineError, run_stack
from libweft.peer.live.host import Host, HostConfig, open_host
from libweft.peer.live.identify import ID, PUSH
from libweft.peer.live.link import PENDING, LiveLink, Stream
from libweft.peer.live.outbox import LIMIT
from libweft.peer.live.ping import PING
from libweft.peer.live.transport import YAMUX
from libweft.peer.machine import SECOND, Build, Env, Machine, Message, Peer, PeerInfo, upon
from tests import waiting
from tests.peer.hostile import LAYERS, Forged, Hostile, HungUp, Layer, Trap, call, trap
from tests.peer.live_world import ANYWHERE, JUMP_S, identity
from tests.peer.small_machines import Answer, Keeper, Note, Oracle, Question, keepers, oracle

pytestmark = pytest.mark.live

DEADLINE_S = 600.0
"""Of the mock clock: it passes only while nothing happens."""
KEEPER = "/test/keeper/0"
HOST, GOOD, BAD, WORSE = range(4)
QUICK = HostConfig(handshake_s=5.0, identify_s=2.0, negotiation_s=4.0, close_s=1.0)
JUNK = bytes(range(256)) * 4
CALLERS: list[Hostile] = []
"""Hung up at the end of the siege, if not before."""


@pytest.fixture
def clock(autojump_clock: MockClock) -> MockClock:
    autojump_clock.autojump_threshold = JUMP_S
    return autojump_clock


@asynccontextmanager
async def besieged(config: HostConfig = QUICK) -> AsyncIterator[Host]:
    with trio.fail_after(DEADLINE_S):
        async with open_host(identity(HOST), listen=[ANYWHERE], config=config) as host:
            tasks = len(host._nursery.child_tasks)
            try:
                yield host
                await wait_all_tasks_blocked()
            finally:
                hang_up()
            await settled(host, tasks)
            await pinged(host)
            await settled(host, tasks)


def hang_up() -> None:
    while CALLERS:
        CALLERS.pop().close()


async def pinged(host: Host) -> None:
    async with open_host(identity(GOOD)) as good:
        assert await good.ping(host.addresses[0]) >= 0


async def settled(host: Host, tasks: int) -> None:
    def left() -> list[Any]:
        extra = len(host._nursery.child_tasks) - tasks
        return [*host.links, *host._ips, *host._dials, *([host._handshakes] if host._handshakes else []), *range(extra)]

    await until(lambda: not left(), left)


until = partial(waiting.until, poll_s=0.2)


async def attack(host: Host, layer: Layer = "raw", who: int = BAD, muxers: Sequence[str] = (YAMUX,)) -> Hostile:
    hostile = await call(host.addresses[0], identity(who), muxers=() if layer == "muxer" else muxers)
    CALLERS.append(hostile)
    await hostile.reach(layer)
    return hostile


@asynccontextmanager
async def behaving(*hostiles: Hostile, protocols: Sequence[str] = (), silent: Sequence[str] = ()) -> AsyncIterator[None]:
    """Meanwhile they answer as good peers do."""
    async with trio.open_nursery() as nursery:
        for hostile in hostiles:
            nursery.start_soon(partial(hostile.behave, protocols, silent=silent))
        yield
        nursery.cancel_scope.cancel()


async def linked(host: Host, who: int = BAD) -> LiveLink:
    """The host's end of the link, once there is one."""
    await until(lambda: identity(who).peer in host.links)
    return host.links[identity(who).peer]


# Garbage.


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("junk", [JUNK, b"\xff" * 70_000, b"\x00" * 70_000, b"GET / HTTP/1.1\r\n\r\n" * 10])
async def test_garbage_at_any_layer_costs_the_link(clock: MockClock, layer: Layer, junk: bytes) -> None:
    async with besieged() as host:
        hostile = await attack(host, layer)
        with suppress(OSError):  # the host may hang up before it has all
            await hostile.say(layer, junk)
        await hostile.hung_up()


HEADER_LINE = frame(b"/multistream/1.0.0\n")


@pytest.mark.parametrize("layer", ["raw", "muxer", "stream"])
@pytest.mark.parametrize(
    "lines",
    [
        HEADER_LINE + JUNK,
        HEADER_LINE + frame(b"no newline"),
        HEADER_LINE + frame(b"\xff\xfe\n"),
        HEADER_LINE * 40,
        HEADER_LINE + frame(b"/nobody/speaks/this\n") * 40,
        HEADER_LINE + frame(b"ls\n") * 40,
        HEADER_LINE + frame(b"") * 40,
    ],
)
async def test_garbage_after_the_header_of_multistream_costs_the_link(clock: MockClock, layer: Layer, lines: bytes) -> None:
    async with besieged() as host:
        hostile = await attack(host, layer)
        await hostile.say(layer, lines)
        await hostile.hung_up()


async def test_garbage_as_the_last_message_of_the_handshake_costs_the_connection(clock: MockClock) -> None:
    async with besieged() as host:
        hostile = await attack(host, "noise")
        await hostile.send(b"\x00\x20" + bytes(range(32)))
        assert await hostile.receive()
        await hostile.send(b"\x00\x80" + JUNK[:128])
        await hostile.hung_up()
        assert host.counts["handshakes_failed"] == 1


@pytest.mark.parametrize(
    "frames",
    [
        HEADER.pack(1 << 24, 0, 0),  # another version
        HEADER.pack(7 << 16, 0, 0),  # another type
        HEADER.pack(DATA, 77, 5),  # data for a stream that never was
        HEADER.pack(WINDOW | SYN, 2, 0),  # a stream that is not theirs to open
        HEADER.pack(WINDOW | SYN, 0, 0),
        HEADER.pack(WINDOW | SYN, 1, 0) * 2,
        HEADER.pack(WINDOW | SYN, 1, 2**32 - 1),  # a window that is too wide
    ],
)
async def test_frames_that_break_yamux_cost_the_link(clock: MockClock, frames: bytes) -> None:
    async with besieged() as host:
        hostile = await attack(host, "yamux")
        await hostile.say("yamux", frames)
        await hostile.hung_up()


# Lengths that are claimed.


@pytest.mark.parametrize(
    ("layer", "claim"),
    [
        ("raw", uvarint(LINE_LIMIT + 1)),
        ("raw", uvarint(2**60)),
        ("raw", b"\xff" * 10),
        ("noise", b"\xff\xff"),
        ("noise", b"\x00\x21"),
        ("muxer", uvarint(LINE_LIMIT + 1)),
        ("yamux", HEADER.pack(DATA | SYN, 1, 2**32 - 1)),
        ("yamux", HEADER.pack(DATA | SYN, 1, INITIAL + 1)),
        ("stream", uvarint(LINE_LIMIT + 1)),
    ],
)
async def test_a_length_over_the_limit_costs_the_link_before_its_bytes_come(clock: MockClock, layer: Layer, claim: bytes) -> None:
    async with besieged(replace(QUICK, handshake_s=300.0, negotiation_s=300.0)) as host:
        hostile = await attack(host, layer)
        began = trio.current_time()
        await hostile.say(layer, claim)
        await hostile.hung_up()
        assert trio.current_time() - began < 100


async def test_a_long_noise_message_that_never_ends_is_held_once_and_goes_with_its_link(clock: MockClock) -> None:
    async with besieged(replace(QUICK, keep_alive_s=5.0, answer_s=5.0)) as host:
        hostile = await attack(host, "sealed")
        link = await linked(host)
        await hostile.send(b"\xff\xff" + bytes(65_534))
        await until(lambda: len(link.channel._held) == 65_536)
        assert link.yamux.held == 0
        await hostile.hung_up()
        assert link.reason == "the peer does not answer"


async def test_a_machines_frame_over_its_limit_costs_the_link_before_its_bytes_come(clock: MockClock) -> None:
    async with stacked(keepers({})) as (host, _):
        hostile = await attack(host, "yamux")
        async with behaving(hostile, protocols=[KEEPER]):
            link = await told(host)
            await hostile.ask_for(KEEPER, uvarint(1 << 40))
            await link.over.wait()
            assert "over the limit" in str(link.reason)


# Machines.


@asynccontextmanager
async def stacked(build: Build, config: HostConfig = QUICK) -> AsyncIterator[tuple[Host, Driver]]:
    """As `besieged`, with machines above the host; what the driver holds for links must be gone too."""
    async with besieged(config) as host, run_stack(host, build) as driver:
        yield host, driver
        await wait_all_tasks_blocked()
        hang_up()
        await until(lambda: not any([driver._links, driver._told, driver._early, driver._dials]))
        assert [env.outlets or env.holds for env in driver.envs] == [{}] * len(driver.envs)
        assert driver._requests == 0 and driver.crash is None


async def told(host: Host, who: int = BAD) -> LiveLink:
    link = await linked(host, who)
    await link.ready.wait()
    assert link.told
    return link


def note(text: str) -> bytes:
    return b"".join(map(frame, msgpack(Keeper.kinds).pack((Note(text),))))


@pytest.mark.parametrize(
    "junk", [frame(JUNK), frame(b"\x92\x02\xa1x"), frame(b"\x92\x01\xa1\xff"), frame(b"\x91" * 5_000), b"\xff" * 10]
)
async def test_a_frame_that_is_no_message_costs_the_link(clock: MockClock, junk: bytes) -> None:
    async with stacked(keepers({})) as (host, driver):
        hostile = await attack(host, "yamux")
        async with behaving(hostile, protocols=[KEEPER]):
            link = await told(host)
            await hostile.ask_for(KEEPER, note("first") + junk)
            await link.over.wait()
            keeper = driver.machines[0]
            assert isinstance(keeper, Keeper)
            assert [peer for peer, _ in keeper.downs] == [identity(BAD).peer]


async def test_garbage_for_a_machine_that_comes_before_the_link_was_told_costs_the_link_alone(clock: MockClock) -> None:
    async with stacked(keepers({})) as (host, _):
        hostile = await attack(host, "yamux")
        await hostile.ask_for(KEEPER, frame(JUNK))
        link = await linked(host)
        await until(lambda: any(stream.protocol == KEEPER for stream in link.streams.values()))
        async with behaving(hostile, protocols=[KEEPER]):
            await link.over.wait()


async def test_nothing_is_kept_of_a_machines_stream_whose_link_goes_before_it_was_told(clock: MockClock) -> None:
    async with stacked(keepers({})) as (host, driver):
        hostile = await attack(host, "yamux")
        await hostile.ask_for(KEEPER, note("early"))
        await until(lambda: bool(driver._early))
        hostile.close()


async def test_unread_bytes_of_a_stream_that_was_closed_here_do_not_keep_it_in_the_muxer(clock: MockClock) -> None:
    async with besieged() as host:
        hostile = await attack(host, "yamux")
        async with behaving(hostile):
            link = await told(host)
            asked = set()
            for _ in range(20):
                stream = await hostile.ask_for(ID, b"nobody reads this")
                hostile.mux.finish(stream)
                asked.add(stream)
            await hostile.flush()
            await until(lambda: asked <= hostile.ended)
            await until(lambda: not link.streams)
            assert all(hostile.said[stream] for stream in asked)
            assert (link.yamux.streams, link.yamux.held, link.reason) == (0, 0, None)


async def test_a_burst_of_connections_gets_no_more_handshakes_than_the_limit(clock: MockClock) -> None:
    async with besieged(replace(QUICK, handshakes=4)) as host:
        async with trio.open_nursery() as nursery:
            for _ in range(32):
                nursery.start_soon(attack, host)
        await until(lambda: host._handshakes > 0)
        await wait_all_tasks_blocked()
        assert host._handshakes <= 4


async def test_a_connection_reset_before_it_was_accepted_leaves_no_socket(clock: MockClock) -> None:
    async with besieged() as host:
        for _ in range(20):
            (await call(host.addresses[0], identity(BAD))).reset()
        await wait_all_tasks_blocked()
        gc.collect()  # a socket that was not closed is told of here, and the warning is an error


async def test_the_limit_of_an_ip_address_holds_for_connections_that_come_at_once(clock: MockClock) -> None:
    async with besieged(replace(QUICK, links_an_ip=2)) as host:
        async with trio.open_nursery() as nursery:
            for who in range(BAD, BAD + 8):
                nursery.start_soon(rudely, host, who)
        assert len(host.links) <= 2


async def rudely(host: Host, who: int) -> None:
    with suppress(HungUp, OSError):
        await attack(host, "yamux", who)


async def test_a_crash_of_a_machine_ends_run_stack_with_its_own_error(clock: MockClock) -> None:
    def build(env: Callable[[], Env]) -> list[Machine]:
        return [Careless(env())]

    async with besieged() as host:
        with pytest.raises(MachineError):
            async with run_stack(host, build):
                await trio.sleep_forever()


class Careless(Machine):
    protocols = ("/test/careless",)

    def start(self) -> None:
        self.env.after(SECOND, self._fall)

    def _fall(self) -> None:
        raise RuntimeError("a mistake")


async def test_a_link_that_was_closed_and_is_replaced_before_its_task_has_seen_that_is_told_down(clock: MockClock) -> None:
    async with stacked(keepers({})) as (host, driver):
        first = await attack(host, "yamux")
        async with behaving(first, protocols=[KEEPER]):
            old = await told(host)
        welcome = host._welcome

        def close_first(peer: bytes) -> bool:
            old.close("now")
            return welcome(peer)

        host._welcome = close_first  # type: ignore[method-assign]
        second = await attack(host, "yamux")
        await until(lambda: host.links.get(identity(BAD).peer) not in (None, old))
        host._welcome = welcome  # type: ignore[method-assign]
        async with behaving(second, protocols=[KEEPER]):
            link = await told(host)
        keeper = driver.machines[0]
        assert isinstance(keeper, Keeper)
        assert [incarnation for _, incarnation in keeper.downs] == [old.incarnation]
        assert link is not old and sum(host._ips.values()) == 1


async def test_who_dials_as_another_gives_up_gets_a_dial_of_his_own(clock: MockClock) -> None:
    async with besieged() as host, open_host(identity(GOOD)) as good:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(good.connect, host.addresses[0])
                await until_dialling(good)
                scope.cancel()
        link = await good.connect(host.addresses[0])
        assert link.reason is None


async def until_dialling(host: Host) -> None:
    while not host._dials:
        await trio.lowlevel.checkpoint()


async def test_a_dial_that_crossed_with_a_link_that_fell_at_once_fails_and_the_next_one_is_tried(clock: MockClock) -> None:
    """Both ends dial; the host keeps the other one, which is gone before the peer was identified."""
    who = next(number for number in range(BAD, 99) if identity(number).peer < identity(HOST).peer)
    async with stacked(keepers({})) as (host, driver), trap(identity(who)) as lure, trio.open_nursery() as nursery:
        host.learn(identity(who).peer, [lure.address])
        keeper = driver.machines[0]
        assert isinstance(keeper, Keeper)
        keeper.env.send(identity(who).peer, Note("to be dropped"))
        dialled = await lure.caught()
        CALLERS.append(dialled)
        await dialled.agree_noise()
        crossing = await attack(host, "yamux", who)
        await linked(host, who)
        nursery.start_soon(dialled.shake)
        await trio.sleep(0)
        await until(lambda: not host._handshakes)
        crossing.close()
        await until(lambda: keeper.lost == [(identity(who).peer, Note("to be dropped"))])


class Pointer(Message, frozen=True, tag=1):
    to: PeerInfo


class Pointed(Machine):
    """Learns of others, and writes to them."""

    protocols = ("/test/pointed",)

    @upon(Pointer)
    def on_pointer(self, sender: Peer, msg: Pointer) -> None:
        self.env.learn(msg.to)
        self.env.send(msg.to.peer, Pointer(PeerInfo(self.env.me)))


@pytest.mark.parametrize("peer", [7, b"", b"no multihash"])
async def test_a_message_that_names_a_peer_which_is_none_costs_the_link_alone(clock: MockClock, peer: Peer) -> None:
    def build(env: Callable[[], Env]) -> list[Machine]:
        return [Pointed(env())]

    async with stacked(build) as (host, _):
        hostile = await attack(host, "yamux")
        async with behaving(hostile, protocols=Pointed.protocols):
            await told(host)
            pointer = msgpack(Pointed.kinds).pack((Pointer(PeerInfo(peer)),))
            await hostile.ask_for(Pointed.protocols[0], b"".join(map(frame, pointer)))
            await wait_all_tasks_blocked()


async def test_a_stack_that_ends_holds_no_link_any_more(clock: MockClock) -> None:
    async with besieged() as host, trap(identity(BAD)) as lure:
        host.learn(identity(BAD).peer, [lure.address])
        async with run_stack(host, keepers({"candidates": (identity(BAD).peer,)})):
            dialled = await lure.caught()
            CALLERS.append(dialled)
            await dialled.reach("yamux")
            async with behaving(dialled, protocols=[KEEPER]):
                await told(host)
                assert host._protected
        assert not host._protected


async def test_a_request_answered_after_the_asker_has_finished_ends_its_stream(clock: MockClock) -> None:
    async with stacked(oracle) as (host, _):
        hostile = await attack(host, "yamux")
        async with behaving(hostile, protocols=Oracle.protocols):
            link = await told(host)
            question = msgpack(Oracle.kinds).pack((Question(3),))
            stream = await hostile.ask_for(Oracle.protocols[0], b"".join(map(frame, question)))
            hostile.mux.finish(stream)
            await hostile.flush()
            await until(lambda: stream in hostile.ended)
            await until(lambda: not link.streams)
            answer = msgpack(Oracle.kinds).pack((Answer(6),))
            assert hostile.said[stream].endswith(b"".join(map(frame, answer)))


# Slowness.


async def byte_by_byte() -> None:
    """The host has read one byte before the next one is sent."""
    await wait_all_tasks_blocked()


@pytest.mark.parametrize("muxers", [(YAMUX,), ()])
async def test_a_peer_that_says_all_byte_by_byte_is_served_within_the_time(clock: MockClock, muxers: Sequence[str]) -> None:
    async with besieged(replace(QUICK, handshake_s=500.0, negotiation_s=500.0)) as host:
        hostile = await call(host.addresses[0], identity(BAD), muxers=muxers)
        CALLERS.append(hostile)
        hostile.pause = byte_by_byte
        await hostile.reach("yamux")
        link = await linked(host)
        stream = await hostile.ask_for(PING, bytes(32))
        hostile.pause = None
        async with behaving(hostile):
            await until(lambda: hostile.said.get(stream, b"").endswith(bytes(32)))
        assert link.reason is None


@pytest.mark.parametrize("layer", ["raw", "noise", "muxer"])
async def test_a_handshake_byte_by_byte_is_cut_off_when_its_time_is_up(clock: MockClock, layer: Layer) -> None:
    async with besieged() as host:
        hostile = await attack(host, layer)
        hostile.pause = partial(trio.sleep, 1.0)
        began = trio.current_time()
        with pytest.raises((HungUp, OSError)):
            await hostile.reach("yamux")
        assert QUICK.handshake_s <= trio.current_time() - began < QUICK.handshake_s + 5
        assert host.counts["handshakes_failed"] == 1


@pytest.mark.parametrize("layer", ["raw", "noise", "muxer"])
async def test_a_peer_that_falls_silent_in_the_handshake_is_cut_off(clock: MockClock, layer: Layer) -> None:
    async with besieged() as host:
        hostile = await attack(host, layer)
        await until(lambda: host._handshakes == 1)
        await hostile.hung_up()
        assert host._handshakes == 0


async def test_a_stream_on_which_no_protocol_is_agreed_in_time_is_reset_alone(clock: MockClock) -> None:
    async with besieged() as host:
        hostile = await attack(host, "yamux")
        async with behaving(hostile):
            link = await told(host)
            stream = hostile.open()
            await hostile.say_on(stream, HEADER_LINE[:5])
            await until(lambda: stream in hostile.ended)
            await until(lambda: not link.streams)
            assert link.reason is None and link.yamux.streams == 0


async def test_a_peer_that_stops_reading_is_given_up_and_what_waits_for_it_is_bounded(clock: MockClock) -> None:
    async with stacked(keepers({}), replace(QUICK, stalled_s=10.0)) as (host, driver):
        hostile = await attack(host, "yamux")
        async with behaving(hostile, protocols=[KEEPER]):
            link = await told(host)
        env = driver.envs[0]
        most = 0
        for _ in range(200):
            driver.machines[0].env.send(identity(BAD).peer, Note("x" * 60_000))
            await wait_all_tasks_blocked()
            if identity(BAD).peer not in env.outlets:
                break
            most = max(most, env.outlets[identity(BAD).peer].queued)
            assert link.unsent <= 2 * PENDING
        await link.over.wait()
        assert 0 < most <= LIMIT
        assert link.unsent == 0 or link.reason is not None


async def test_a_peer_that_stops_reading_with_little_to_read_is_given_up_when_that_has_stalled(clock: MockClock) -> None:
    async with besieged(replace(QUICK, stalled_s=10.0, answer_s=100.0)) as host:
        hostile = await attack(host, "yamux")
        async with behaving(hostile):
            link = await told(host)
        async with trio.open_nursery() as nursery:
            stream = link.open(["/test/sink"])
            nursery.start_soon(fill, stream)
            await link.over.wait()
        assert link.reason == "the peer stopped reading"


async def fill(stream: Stream) -> None:
    """Until the stream breaks; a window wider than every buffer of the kernel lets the bytes go."""
    stream.link.yamux._streams[stream.id].room = 1 << 30
    with pytest.raises(trio.BrokenResourceError):
        while True:
            await stream.send_all(bytes(1 << 16))
            assert stream.link.unsent <= 3 * PENDING


async def test_a_peer_that_opens_no_window_holds_up_its_own_streams_alone(clock: MockClock) -> None:
    async with besieged() as host:
        hostile = await attack(host, "yamux")
        async with behaving(hostile):
            link = await told(host)
            stream = link.open(["/test/sink"])
            await stream.agreed()
        with trio.move_on_after(20):
            await stream.send_all(bytes(2 * INITIAL))
            pytest.fail("more was sent than the window allows")
        assert link.yamux.window(stream.id) == 0 and link.yamux.pending == 0
        await pinged(host)


async def test_a_peer_that_asks_and_never_reads_the_answers_is_dropped(clock: MockClock) -> None:
    async with besieged(replace(QUICK, stalled_s=10.0)) as host:
        hostile = await attack(host, "yamux")
        link = await linked(host)
        asked = HEADER.pack(2 << 16 | SYN, 0, 1) * 5_000
        with trio.move_on_after(DEADLINE_S), pytest.raises(OSError):
            while True:
                await hostile.say("yamux", asked)
        assert "wait for a peer that goes on asking" in str(link.reason)
        assert link.unsent <= 2 * YamuxLimits().control


async def test_a_peer_that_never_answers_a_keep_alive_is_dropped(clock: MockClock) -> None:
    async with besieged(replace(QUICK, keep_alive_s=5.0, answer_s=3.0)) as host:
        hostile = await attack(host, "yamux")
        link = await linked(host)
        await hostile.hung_up()
        assert link.reason == "the peer does not answer"
        assert trio.current_time() - link.born < 5 + 3 + 5


async def test_a_peer_that_answers_keep_alives_is_kept_until_it_is_idle(clock: MockClock) -> None:
    async with besieged(replace(QUICK, keep_alive_s=5.0, answer_s=3.0, idle_s=60.0)) as host:
        hostile = await attack(host, "yamux")
        async with behaving(hostile):
            link = await linked(host)
            await link.over.wait()
        assert link.reason == "idle"
        assert 60 <= trio.current_time() - link.born < 80


async def test_a_peer_that_does_not_identify_itself_is_a_link_without_protocols(clock: MockClock) -> None:
    async with stacked(keepers({})) as (host, driver):
        hostile = await attack(host, "yamux")
        async with behaving(hostile, silent=[ID]):
            link = await told(host)
            assert link.protocols == () and link.reason is None
            keeper = driver.machines[0]
            assert isinstance(keeper, Keeper)
            assert keeper.up == {}


@pytest.mark.parametrize("said", [JUNK, uvarint(1 << 40), frame(b"") * 50, frame(bytes(8 << 10)) * 9, frame(b"\x1a\x02\xff\xfe")])
async def test_an_identify_push_that_is_none_costs_the_link(clock: MockClock, said: bytes) -> None:
    async with besieged() as host:
        hostile = await attack(host, "yamux")
        async with behaving(hostile):
            link = await told(host)
            await hostile.ask_for(PUSH, said)
            hostile.mux.finish(1)
            await hostile.flush()
            await link.over.wait()


# Too much of everything.


async def test_a_hundred_thousand_streams_are_bounded(clock: MockClock) -> None:
    limits = YamuxLimits(streams=100)
    async with besieged(replace(QUICK, yamux=limits)) as host:
        hostile = await attack(host, "yamux")
        link = await linked(host)
        most = 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hostile.hung_up)
            with suppress(OSError):
                for first in range(1, 200_001, 2_000):
                    syns = [HEADER.pack(WINDOW | SYN, number, 0) for number in range(first, first + 2_000, 2)]
                    await hostile.say("yamux", b"".join(syns))
                    most = max(most, len(link.streams))
            nursery.cancel_scope.cancel()
        assert 0 < most <= limits.streams + 1  # and the one that asks for identify
        assert link.yamux._control <= limits.control + 12
        await pinged(host)
        await until(lambda: len(link.streams) == 0)
        assert link.yamux.streams == 0


async def test_more_unread_bytes_than_all_streams_may_have_cost_the_link(clock: MockClock) -> None:
    limits = YamuxLimits(held=4 * INITIAL)
    async with besieged(replace(QUICK, yamux=limits)) as host:
        host.handle("/test/deaf", deaf)
        hostile = await attack(host, "yamux")
        link = await linked(host)
        unread = INITIAL - 1_000
        for number in range(1, 5):
            await hostile.ask_for("/test/deaf", bytes(unread))
            await until(lambda count=number: link.yamux.held == count * unread)  # type: ignore[misc]
        assert INITIAL < link.yamux.held <= limits.held and link.reason is None
        with suppress(OSError):  # the host hangs up before it has all
            await hostile.ask_for("/test/deaf", bytes(unread))
        await link.over.wait()
        assert link.yamux.held <= limits.held


async def deaf(stream: Stream) -> None:
    await stream.link.over.wait()


async def test_the_limit_of_handshakes_holds_and_ends_with_them(clock: MockClock) -> None:
    async with besieged(replace(QUICK, handshakes=3)) as host:
        for _ in range(3):
            await attack(host)
        await until(lambda: host._handshakes == 3)
        fourth = await attack(host)
        await fourth.hung_up()
        assert host.counts["refused"] == 1 and host._handshakes == 3


@pytest.mark.parametrize("limit", [{"links_an_ip": 3}, {"links": 3, "low_water": 1, "high_water": 3}])
async def test_the_limits_of_links_hold_and_end_with_them(clock: MockClock, limit: dict) -> None:
    async with besieged(replace(QUICK, **limit)) as host:
        for who in range(BAD, BAD + 3):
            await attack(host, "yamux", who)
            await linked(host, who)
        with pytest.raises((HungUp, OSError)):
            await attack(host, "yamux", BAD + 3)
        assert host.counts["refused"] == 1 and len(host.links) == sum(host._ips.values()) == 3


async def test_a_peer_on_the_deny_list_and_one_that_is_not_on_the_allow_list_get_no_link(clock: MockClock) -> None:
    denied = replace(QUICK, deny={identity(BAD).peer})
    allowed = replace(QUICK, allow={identity(GOOD).peer})
    for config in (denied, allowed):
        async with besieged(config) as host:
            hostile = await attack(host, "yamux")
            await hostile.hung_up()
            assert host.counts["handshakes_failed"] == 1 and not host.links


async def test_a_network_on_the_deny_list_gets_not_even_a_handshake(clock: MockClock) -> None:
    async with open_host(
        identity(HOST), listen=[ANYWHERE], config=replace(QUICK, deny_networks=[ip_network("127.0.0.0/8")])
    ) as host:
        with trio.fail_after(DEADLINE_S), pytest.raises((HungUp, OSError)):
            await attack(host, "noise")
        hang_up()
        assert (host.counts["refused"], host.counts["handshakes_failed"]) == (1, 0)


ATTACKERS = 200
A_HANDSHAKE = 48 << 10
"""What one attacker may cost: a handshake message of 16 KiB, the task that waits for its end, and slack."""


async def test_two_hundred_attackers_in_the_middle_of_a_handshake_cost_little_memory(clock: MockClock) -> None:
    async with besieged(replace(QUICK, handshake_s=100.0)) as host:
        message = b"\x40\x00" + bytes(16_383)  # all but the last byte of the longest there may be
        callers = [await attack(host, "noise") for _ in range(ATTACKERS)]
        for hostile in callers:
            await hostile.send(b"\x00\x20" + bytes(range(32)))
        for hostile in callers:
            assert await hostile.receive()
        gc.collect()
        tracemalloc.start()
        try:
            for hostile in callers:
                await hostile.send(message)
                hostile.sent.clear()
            await wait_all_tasks_blocked()
            assert host._handshakes == ATTACKERS
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] < ATTACKERS * A_HANDSHAKE
        finally:
            tracemalloc.stop()


A_LINK = 96 << 10
"""The same after the handshake: 65,536 bytes of a message that does not end, the objects of a link, and slack."""


async def test_two_hundred_attackers_with_a_link_cost_little_memory_and_all_of_it_comes_back(clock: MockClock) -> None:
    async with besieged(replace(QUICK, keep_alive_s=DEADLINE_S)) as host:
        await pinged(host)
        gc.collect()
        tracemalloc.start()
        try:
            for who in range(BAD, BAD + ATTACKERS):
                hostile = await attack(host, "yamux", who)
                await hostile.send(b"\xff\xff" + bytes(65_534))
                del hostile.channel, hostile.mux
                hostile.sent.clear()
            await until(lambda: len(host.links) == ATTACKERS)
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] < ATTACKERS * A_LINK
            hang_up()
            await until(lambda: not host.links and len(host._nursery.child_tasks) == 3)
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] < ATTACKERS * A_LINK // 16
        finally:
            tracemalloc.stop()


# Lies.


async def test_a_replayed_handshake_is_worth_nothing(clock: MockClock) -> None:
    async with besieged() as host:
        honest = await attack(host, "yamux")
        link = await linked(host)
        recorded = bytes(honest.sent)
        replayer = await attack(host)
        await replayer.send(recorded)
        await replayer.hung_up()
        assert host.counts["handshakes_failed"] == 1
        assert host.links == {identity(BAD).peer: link} and link.reason is None


async def test_a_key_that_is_not_ones_own_is_refused(clock: MockClock) -> None:
    async with besieged() as host:
        forger = Forged(identity(GOOD).public, identity(BAD))
        hostile = await call(host.addresses[0], forger)
        CALLERS.append(hostile)
        await hostile.reach("yamux")  # it cannot know yet that its last message is refused
        await hostile.hung_up()
        assert host.counts["handshakes_failed"] == 1 and not host.links


async def test_a_forger_and_a_peer_that_is_another_than_dialled_are_found_out(clock: MockClock) -> None:
    async with besieged() as host:
        for who in (Forged(identity(WORSE).public, identity(BAD)), identity(BAD)):
            async with trap(who, claimed=identity(WORSE).peer) as lure, trio.open_nursery() as nursery:
                nursery.start_soon(lured, lure)
                with pytest.raises(PeerError, match=r"not signed|not 12D3"):
                    await host.connect(lure.address)
            assert not host.links and not host._dials


async def lured(lure: Trap) -> None:
    hostile = await lure.caught()
    CALLERS.append(hostile)
    with suppress(HungUp, OSError):
        await hostile.reach("yamux")


async def test_a_peer_with_the_hosts_own_identity_gets_no_link(clock: MockClock) -> None:
    async with besieged() as host:
        hostile = await attack(host, "yamux", HOST)
        await hostile.hung_up()
        assert host.counts["handshakes_failed"] == 1 and not host.links


# Endings.


@pytest.mark.parametrize("how", ["close", "reset", "half"])
@pytest.mark.parametrize("layer", LAYERS)
async def test_a_connection_that_ends_in_any_phase_leaves_nothing(clock: MockClock, layer: Layer, how: str) -> None:
    async with besieged(replace(QUICK, handshake_s=300.0)) as host:
        hostile = await attack(host, layer)
        if layer == "stream":
            await hostile.ask_for(PING, bytes(7))
        began = trio.current_time()
        if how == "half":
            hostile.sock.shutdown(SHUT_WR)
            await hostile.hung_up()
        else:
            getattr(hostile, how)()
        await until(lambda: not host.links and not host._handshakes)
        assert trio.current_time() - began < 100


@pytest.mark.parametrize("said", [b"", HEADER_LINE, HEADER_LINE + frame(PING.encode() + b"\n") + bytes(40)])
@pytest.mark.parametrize("end", ["finish", "reset"])
async def test_a_stream_that_is_finished_or_reset_in_any_phase_costs_no_more_than_itself(
    clock: MockClock, said: bytes, end: str
) -> None:
    async with besieged() as host:
        hostile = await attack(host, "yamux")
        async with behaving(hostile):
            link = await told(host)
            stream = hostile.open()
            await hostile.say_on(stream, said)
            getattr(hostile.mux, end)(stream)
            await hostile.flush()
            await wait_all_tasks_blocked()
            await until(lambda: not link.streams)
            assert link.yamux.streams == 0 and link.yamux.held == 0 and link.reason is None


async def test_two_hosts_that_dial_each_other_at_once_settle_on_one_link(clock: MockClock) -> None:
    async with besieged() as host, open_host(identity(GOOD), listen=[ANYWHERE], config=QUICK) as other:
        found: list[LiveLink] = []

        async def connect(one: Host, two: Host) -> None:
            found.append(await one.connect(two.addresses[0]))

        for _ in range(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(connect, host, other)
                nursery.start_soon(connect, other, host)
            await until(lambda: one_link_between(host, other), lambda: [host.links, other.links])
            here = host.links[other.peer]
            assert await host.ping(other.peer) >= 0 and await other.ping(host.peer) >= 0
            here.close("next")
            await until(lambda: not host.links and not other.links)
        assert len(found) == 20


def one_link_between(host: Host, other: Host) -> bool:
    if len(host.links) != 1 or len(other.links) != 1:
        return False
    here, there = host.links[other.peer], other.links[host.peer]
    return here.outbound != there.outbound and here.reason is None and there.reason is None


async def test_a_link_that_finishes_outlives_what_the_peer_says_until_it_has_read_all(clock: MockClock) -> None:
    async with besieged(replace(QUICK, close_s=20.0)) as host:
        hostile = await attack(host, "yamux")
        async with behaving(hostile):
            link = await told(host)
        link.finish("enough")
        await wait_all_tasks_blocked()
        await hostile.say("yamux", HEADER.pack(2 << 16 | SYN, 0, 1))
        await wait_all_tasks_blocked()
        assert link.reason is None
        hostile.close()
        await link.over.wait()
        assert link.reason == "enough"
