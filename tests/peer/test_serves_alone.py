"""Machines that do not serve, and messages that go alone, in every world that can run a machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, ClassVar, Protocol

import pytest
import trio
from pytest_trio import trio_fixture  # type: ignore[import-untyped]
from trio.testing import MockClock

from libweft.peer.errors import PeerError, Refused
from libweft.peer.fake.wire import FakeWire
from libweft.peer.libp2p.frame import uvarint
from libweft.peer.live.driver import ALONE_S, REQUESTS
from libweft.peer.live.link import Stream
from libweft.peer.live.outbox import LIMIT
from libweft.peer.machine import SECOND, Build, Env, Link, Machine, Message, Peer, Reply, answers, upon
from libweft.peer.sim.latency import Constant
from libweft.peer.sim.simulator import Simulator
from tests.peer.live_world import JUMP_S, LiveWorld

AMPLE = 30 * SECOND
NOBODY = 77
LIVE = pytest.param("live", marks=pytest.mark.live)
WORLDS = ["fake", "fake+codec", LIVE, "sim", "sim+codec"]


class Letter(Message, frozen=True, tag=1):
    alone: ClassVar[bool] = True

    text: bytes


class Chat(Message, frozen=True, tag=2):
    text: bytes


class Ask(Message, frozen=True, tag=3):
    number: int


class Post(Machine):
    """Takes letters and chat, answers numbers with their doubles if they are not negative; a bad letter is its sender's fault."""

    protocols = ("/test/post",)

    def __init__(self, env: Env, serves: bool = True) -> None:
        super().__init__(env)
        self.serves = serves
        self.up: dict[Peer, Link] = {}
        self.downs: list[tuple[Peer, int]] = []
        self.heard: list[tuple[Peer, bytes]] = []
        self.lost: list[tuple[Peer, Message]] = []
        self.answered: list[int] = []
        self.failed: list[str] = []

    def link_up(self, peer: Peer, link: Link) -> None:
        self.up[peer] = link

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        self.up.pop(peer, None)
        self.downs.append((peer, incarnation))

    def dropped(self, peer: Peer, msg: Message) -> None:
        self.lost.append((peer, msg))

    def ask(self, peer: Peer, number: int) -> None:
        self.env.request(peer, Ask(number), 5 * SECOND, self._hear, lambda _, reason: self.failed.append(reason))

    def _hear(self, peer: Peer, msg: Ask) -> None:
        self.answered.append(msg.number)

    @upon(Letter)
    def on_letter(self, sender: Peer, msg: Letter) -> None:
        if msg.text == b"poison":
            raise PeerError("poison")
        self.heard.append((sender, msg.text))

    @upon(Chat)
    def on_chat(self, sender: Peer, msg: Chat) -> None:
        self.heard.append((sender, msg.text))

    @answers(Ask)
    def on_ask(self, sender: Peer, msg: Ask, reply: Reply) -> None:
        if msg.number < 0:
            raise Refused("it would be less")
        reply(Ask(2 * msg.number))


class Watcher(Machine):
    """Another machine of a stack, that watches the links of the first."""

    protocols = ("/test/watcher",)
    watches = Post.protocols

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.up: dict[Peer, Link] = {}

    def link_up(self, peer: Peer, link: Link) -> None:
        self.up[peer] = link


def server(env: Callable[[], Env]) -> list[Machine]:
    return [Post(env())]


def client(env: Callable[[], Env]) -> list[Machine]:
    return [Post(env(), serves=False)]


class World(Protocol):
    def peer(self, number: int) -> Any: ...
    def add(self, build: Build) -> Any: ...
    def machines(self, peer: Any) -> Sequence[Machine]: ...
    def crash(self, peer: Any) -> None: ...
    async def run(self, us: int) -> None: ...


class Faked:
    def __init__(self, codec: bool) -> None:
        self.wire = FakeWire(codec=codec)
        self.add, self.crash = self.wire.add, self.wire.crash

    def peer(self, number: int) -> int:
        return number

    def machines(self, node: int) -> Sequence[Machine]:
        return self.wire.nodes[node].machines

    async def run(self, us: int) -> None:
        self.wire.run(us)


class Simulated:
    def __init__(self, codec: bool) -> None:
        self.sim = Simulator(seed=1, latency=Constant(ms=5.0), codec=codec)
        self.add, self.crash = self.sim.add, self.sim.crash

    def peer(self, number: int) -> int:
        return number

    def machines(self, node: int) -> Sequence[Machine]:
        return self.sim.nodes[node].machines

    async def run(self, us: int) -> None:
        self.sim.run(self.sim.now + us)


@trio_fixture
async def world(request: pytest.FixtureRequest, autojump_clock: MockClock) -> AsyncIterator[World]:
    if request.param != "live":
        codec = request.param.endswith("+codec")
        yield Faked(codec) if request.param.startswith("fake") else Simulated(codec)
        return
    async with trio.open_nursery() as nursery:
        autojump_clock.autojump_threshold = JUMP_S
        live = LiveWorld(nursery)
        yield live
        live.close()
        nursery.cancel_scope.cancel()


everywhere = pytest.mark.parametrize("world", WORLDS, indirect=True)
live_only = pytest.mark.parametrize("world", [LIVE], indirect=True)


def post(world: World, node: Any) -> Post:
    machine = world.machines(node)[0]
    assert isinstance(machine, Post)
    return machine


# Serving.


@everywhere
async def test_a_client_asks_a_server_and_is_answered(world: World, autojump_clock: MockClock) -> None:
    a, b = world.add(client), world.add(server)
    post(world, a).ask(b, 21)
    await world.run(AMPLE)
    assert (post(world, a).answered, post(world, a).failed) == ([42], [])


@everywhere
async def test_a_client_hears_of_the_link_and_the_server_does_not(world: World, autojump_clock: MockClock) -> None:
    a, b = world.add(client), world.add(server)
    post(world, a).env.connect(b)
    await world.run(AMPLE)
    assert list(post(world, a).up) == [b] and post(world, a).up[b].protocol == "/test/post"
    assert post(world, b).up == {} and post(world, b).downs == []
    world.crash(a)
    await world.run(AMPLE)
    assert post(world, b).downs == []


@everywhere
async def test_what_a_client_sends_arrives(world: World, autojump_clock: MockClock) -> None:
    a, b = world.add(client), world.add(server)
    post(world, a).env.send(b, Chat(b"hello"))
    post(world, a).env.send(b, Letter(b"dear"))
    await world.run(AMPLE)
    assert sorted(post(world, b).heard) == [(a, b"dear"), (a, b"hello")]


@everywhere
async def test_two_clients_have_no_protocol_in_common(world: World, autojump_clock: MockClock) -> None:
    a, b = world.add(client), world.add(client)
    post(world, a).env.connect(b)
    await world.run(AMPLE)
    assert post(world, a).downs == [(b, 0)] and post(world, a).up == {} == post(world, b).up


@everywhere
async def test_who_watches_a_protocol_is_not_told_of_a_client_of_it(world: World, autojump_clock: MockClock) -> None:
    a = world.add(client)
    b = world.add(lambda env: [Post(env()), Watcher(env())])
    c = world.add(server)
    for node in (a, c):
        post(world, node).env.connect(b)
    await world.run(AMPLE)
    watcher = world.machines(b)[1]
    assert isinstance(watcher, Watcher) and list(watcher.up) == [c]


@live_only
async def test_a_client_is_not_told_of_as_a_server(world: LiveWorld, autojump_clock: MockClock) -> None:
    a, b = world.add(client), world.add(server)
    post(world, a).env.connect(b)
    await world.run(AMPLE)
    (link,) = world.drivers[b].host.links.values()
    assert "/test/post" not in link.protocols


@everywhere
@pytest.mark.parametrize("asker", [client, server])
async def test_a_client_cannot_be_asked_nor_told(world: World, autojump_clock: MockClock, asker: Build) -> None:
    a, b, c = world.add(client), world.add(asker), world.add(server)
    world.machines(a)[0].env.connect(c)
    post(world, a).ask(c, 1)  # the link of a client to its server carries answers, and nothing else
    await world.run(AMPLE)
    for node in (b, c):
        post(world, node).ask(a, 1)
        post(world, node).env.send(a, Chat(b"hello"))
        post(world, node).env.send(a, Letter(b"dear"))
    await world.run(AMPLE)
    assert post(world, a).answered == [2] and post(world, a).heard == []
    for node in (b, c):
        assert post(world, node).answered == [] and len(post(world, node).failed) == 1
        assert "timeout" not in post(world, node).failed[0]
        assert sorted(post(world, node).lost, key=str) == [(a, Chat(b"hello")), (a, Letter(b"dear"))]


@everywhere
async def test_a_request_of_a_client_that_is_refused_fails_at_once(world: World, autojump_clock: MockClock) -> None:
    a, b = world.add(client), world.add(server)
    post(world, a).ask(b, -1)
    await world.run(AMPLE)
    assert post(world, a).answered == [] and len(post(world, a).failed) == 1 and "timeout" not in post(world, a).failed[0]


# Alone.


@everywhere
async def test_a_message_that_goes_alone_arrives_once_with_a_link_and_without(world: World, autojump_clock: MockClock) -> None:
    a, b = world.add(server), world.add(server)
    post(world, a).env.send(b, Letter(b"first"))
    await world.run(AMPLE)
    assert post(world, b).heard == [(a, b"first")]
    post(world, a).env.send(b, Letter(b"second"))
    await world.run(AMPLE)
    assert post(world, b).heard == [(a, b"first"), (a, b"second")] and post(world, a).lost == []


@everywhere
async def test_to_many_it_goes_to_each_once(world: World, autojump_clock: MockClock) -> None:
    nodes = [world.add(server) for _ in range(4)]
    post(world, nodes[0]).env.send_all(tuple(nodes[1:]), Letter(b"all"), nodes[2])
    await world.run(AMPLE)
    assert [post(world, node).heard for node in nodes] == [[], [(nodes[0], b"all")], [], [(nodes[0], b"all")]]


@everywhere
async def test_what_goes_alone_comes_back_by_dropped_when_there_is_nobody(world: World, autojump_clock: MockClock) -> None:
    a = world.add(server)
    post(world, a).env.send(world.peer(NOBODY), Letter(b"lost"))
    await world.run(AMPLE)
    assert post(world, a).lost == [(world.peer(NOBODY), Letter(b"lost"))]


@everywhere
async def test_a_fault_in_what_came_alone_costs_the_link_and_nothing_else(world: World, autojump_clock: MockClock) -> None:
    a, b, c = (world.add(server) for _ in range(3))
    for node in (a, c):
        post(world, node).env.connect(b)
    await world.run(AMPLE)
    post(world, a).env.send(b, Letter(b"poison"))
    await world.run(AMPLE)
    assert list(post(world, b).up) == [c] and post(world, b).heard == []


class Ear:
    """The streams that come for a protocol, and what each brought until it ended."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.data: dict[Stream, bytes] = {}
        self.ends: list[str | None] = []

    def accept(self, stream: Stream) -> None:
        self.streams.append(stream)
        self.data[stream] = b""
        stream.pushed(lambda data: self.data.update({stream: self.data[stream] + data}), self._end(stream))

    def _end(self, stream: Stream) -> Callable[[str | None], None]:
        def end(reason: str | None) -> None:
            self.ends.append(reason)
            stream.finish()

        return end


@live_only
async def test_it_leaves_on_a_stream_of_its_own_that_ends_after_it(world: LiveWorld, autojump_clock: MockClock) -> None:
    a, b = world.add(server), world.add(server)
    ear, host = Ear(), world.drivers[b].host
    host.unhandle("/test/post")
    host.push("/test/post", ear.accept)
    for text in (b"one", b"two"):
        post(world, a).env.send(b, Letter(text))
    await world.run(round(ALONE_S / 2 * SECOND))
    [packed] = [post(world, a).codec().pack([Letter(b"one")])[0]]
    assert sorted(ear.data.values())[0] == uvarint(len(packed)) + packed
    assert len(ear.streams) == 2 and ear.ends == [None, None]
    post(world, a).env.send(b, Chat(b"no"))
    post(world, a).env.send(b, Chat(b"end"))
    await world.run(AMPLE)
    assert len(ear.streams) == 3 and len(ear.ends) == 2
    assert world.drivers[a].requests == 0 and post(world, a).lost == []


@live_only
async def test_it_arrives_beside_what_waits_for_the_link(world: LiveWorld, autojump_clock: MockClock) -> None:
    a, b = world.add(server), world.add(server)
    post(world, a).env.connect(b)
    await world.run(AMPLE)
    for _ in range(3):
        post(world, a).env.send(b, Chat(bytes(LIMIT // 4)))
    post(world, a).env.send(b, Letter(b"small"))
    await world.run(AMPLE)
    assert sorted(text for _, text in post(world, b).heard) == sorted([b"small", *[bytes(LIMIT // 4)] * 3])


@live_only
async def test_those_under_way_are_bounded_and_the_rest_is_told(world: LiveWorld, autojump_clock: MockClock) -> None:
    a, b = world.add(server), world.add(server)
    for number in range(REQUESTS + 5):
        post(world, a).env.send(b, Letter(b"%d" % number))
    assert world.drivers[a].requests == REQUESTS
    await world.run(AMPLE)
    assert len(post(world, a).lost) >= 5 and world.drivers[a].requests == 0
    assert len(post(world, b).heard) + len(post(world, a).lost) == REQUESTS + 5


@live_only
async def test_a_peer_that_never_ends_its_side_holds_it_up_for_a_bounded_time(
    world: LiveWorld, autojump_clock: MockClock
) -> None:
    a, b = world.add(server), world.add(server)
    host, taken = world.drivers[b].host, list[bytes]()
    host.unhandle("/test/post")
    host.push("/test/post", lambda stream: stream.pushed(taken.append, lambda reason: None))
    post(world, a).env.send(b, Letter(b"hello"))
    await world.run(round(ALONE_S * SECOND) + AMPLE)
    assert len(taken) == 1 and world.drivers[a].requests == 0 and post(world, a).lost == []
