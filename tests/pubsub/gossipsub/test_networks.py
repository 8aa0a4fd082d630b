"""Networks of GossipSub: each message comes once to each subscriber, over any graph, beside floodsub nodes, amid churn.

The same nodes on a fake wire, in the simulator and on loopback.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from random import Random
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from libweft.overlays.description import Options
from libweft.overlays.graphs import Edges, draw
from libweft.overlays.static import Static
from libweft.peer.errors import UsageError
from libweft.peer.fake.wire import FakeWire
from libweft.peer.live.driver import Driver
from libweft.peer.live.host import Host
from libweft.peer.live.transport import Listener
from libweft.peer.machine import SECOND, Build, Env, Machine, Peer
from libweft.peer.sim.latency import Uniform
from libweft.peer.sim.simulator import Simulator
from libweft.pubsub import stacks
from libweft.pubsub.flood import Flood, FloodConfig
from libweft.pubsub.gossipsub.config import GossipSubConfig
from libweft.pubsub.gossipsub.filters import allow_list
from libweft.pubsub.gossipsub.messages import IWant
from libweft.pubsub.gossipsub.router import GossipSub
from libweft.pubsub.live.api import PubSub, PubSubConfig
from libweft.pubsub.message import Publication
from libweft.pubsub.router import Router
from libweft.pubsub.signing import Signing
from tests.peer.live_world import ANYWHERE, JUMP_S, LiveWorld, identity
from tests.pubsub.apps import Inbox

AMPLE = 10 * SECOND
QUIET: dict[str, Any] = {"flood_publish": False}
"""Without flooding, what arrives came by the meshes."""


class Net:
    """Nodes on a fake wire, each linked as the edges say; those of `floods` speak floodsub alone."""

    def __init__(self, nodes: int, edges: Edges, codec: bool = False, floods: Sequence[int] = (), **config: Any) -> None:
        self.wire = FakeWire(codec=codec)
        self.config = GossipSubConfig(**config)
        self.edges = edges
        self.floods = floods
        self.apps: list[Inbox] = []
        self.sent = 0
        for _ in range(nodes):
            self.add()
        self.wire.run(SECOND)

    def add(self, kind: type[GossipSub] = GossipSub) -> int:
        node = len(self.apps)
        self.apps.append(Inbox())
        contacts = [b for a, b in self.edges if a == node]
        return self.wire.add(partial(self._build, contacts, self.apps[node], node in self.floods, kind))

    def _build(
        self, contacts: Sequence[Peer], app: Inbox, floods: bool, kind: type[GossipSub], env: Callable[[], Env]
    ) -> Sequence[Machine]:
        overlay = Static(env(), contacts, GossipSub.protocols)
        router = Flood(env(), overlay, app, FloodConfig(announce=True)) if floods else kind(env(), overlay, app, self.config)
        return [overlay, router]

    def router(self, node: int) -> Router:
        router = self.wire.nodes[node].machines[-1]
        assert isinstance(router, Router)
        return router

    def gossip(self, node: int) -> GossipSub:
        router = self.router(node)
        assert isinstance(router, GossipSub)
        return router

    def join(self, *nodes: int, topic: str = "t") -> None:
        for node in nodes or range(len(self.apps)):
            self.router(node).join(topic)
        self.run()

    def run(self, us: int = AMPLE) -> None:
        self.wire.run(us)
        assert self.wire.errors == []

    def publish(self, node: int, data: bytes = b"", topic: str = "t") -> Publication:
        self.sent += 1
        router = self.router(node)
        publication = router.compose(topic, data or b"%d" % self.sent)
        router.publish(publication)
        return publication

    def mesh(self, node: int, topic: str = "t") -> list[Peer]:
        return sorted(self.gossip(node).meshes.topics[topic].peers)

    def got(self, node: int) -> list[bytes]:
        """Sorted, and not a set, so that a second delivery shows."""
        return sorted(publication.data for publication in self.apps[node].delivered)

    def all_get(self, messages: int, publishers: Sequence[int] = (), among: Sequence[int] = ()) -> None:
        """Publish, wait, and see that each message came once to each of them."""
        rng = Random(5)
        for app in self.apps:
            app.delivered.clear()
        sent = [self.publish(rng.choice(publishers or range(len(self.apps)))).data for _ in range(messages)]
        self.run()
        for node in among or range(len(self.apps)):
            assert self.got(node) == sorted(sent), node


def line(nodes: int) -> Edges:
    return [(node, node + 1) for node in range(nodes - 1)]


# Graphs.


@pytest.mark.parametrize("codec", [False, True])
def test_a_sparse_network_gets_every_message(codec: bool) -> None:
    net = Net(20, draw("regular", 20, 3, Random(1)), codec, **QUIET)
    net.join()
    net.all_get(20)


def test_a_dense_network_gets_every_message_over_meshes_of_their_size() -> None:
    net = Net(20, draw("regular", 20, 15, Random(1)), **QUIET)
    net.join()
    net.all_get(20)
    net.run(80 * SECOND)  # until all back-offs are over
    assert all(5 <= len(net.mesh(node)) < 12 for node in range(20))
    assert all(node in net.mesh(int(peer)) for node in range(20) for peer in net.mesh(node))


def test_the_far_end_of_a_line_gets_every_message() -> None:
    net = Net(6, line(6), **QUIET)
    net.join()
    net.all_get(5, publishers=[0])


def test_a_tree_gets_messages_from_its_root_and_its_leaves() -> None:
    net = Net(10, [((node - 1) // 2, node) for node in range(1, 10)], **QUIET)
    net.join()
    net.all_get(6, publishers=[0, 4, 9])


def test_two_nodes_talk_both_ways() -> None:
    net = Net(2, [(0, 1)], **QUIET)
    net.join()
    net.all_get(2, publishers=[0])
    net.all_get(2, publishers=[1])


def test_nothing_goes_through_a_node_that_does_not_subscribe() -> None:
    net = Net(3, line(3))
    net.join(0, 2)
    net.publish(0)
    net.run()
    assert [len(net.got(node)) for node in range(3)] == [1, 0, 0]


def test_flood_publishing_reaches_all_neighbours_at_once() -> None:
    net = Net(15, [(0, node) for node in range(1, 15)], d=3, d_lo=2, d_hi=4, d_score=1, d_out=1)
    net.join()
    net.publish(0)
    net.run(0)
    assert [len(net.got(node)) for node in range(15)] == [1] * 15
    assert len(net.mesh(0)) <= 4


@pytest.mark.parametrize("codec", [False, True])
def test_floodsub_nodes_and_gossipsub_nodes_reach_each_other(codec: bool) -> None:
    net = Net(16, draw("regular", 16, 4, Random(2)), codec, floods=range(0, 16, 4), **QUIET)
    net.join()
    net.all_get(12)


def test_many_topics_form_their_meshes_at_once() -> None:
    topics = [f"topic {number}" for number in range(35)]
    net = Net(8, draw("full", 8, 7, Random(1)), codec=True, **QUIET)
    for topic in topics:
        for node in range(8):
            net.router(node).join(topic)
    net.run()
    for topic in topics:
        net.publish(3, topic=topic)
    net.run()
    assert [len(net.got(node)) for node in range(8)] == [35] * 8
    assert all(len(net.mesh(node, topic)) >= 5 for node in range(8) for topic in topics)


# Gossip.


def apart(codec: bool = False, **config: Any) -> Net:
    """0 and 1 are linked and in no mesh of each other: both have a back-off."""
    net = Net(2, [(0, 1)], codec, **QUIET, **config)
    for node in (0, 1):
        net.gossip(node).meshes.backoff.add("t", 1 - node, 1_000 * SECOND)
    net.join()
    assert net.mesh(0) == net.mesh(1) == []
    return net


def test_who_is_in_no_mesh_gets_messages_by_gossip() -> None:
    net = apart()
    net.publish(0)
    net.run(0)
    assert net.got(1) == []
    net.run(2 * SECOND)
    assert net.got(0) == net.got(1) != []


def test_large_messages_that_are_asked_for_are_cut_in_frames_and_all_arrive() -> None:
    net = apart(codec=True)
    sent = sorted(net.publish(0, b"%02d" % number + bytes(60_000)).data for number in range(20))
    net.run(4 * SECOND)
    assert net.got(1) == sent


def test_what_comes_by_the_mesh_is_not_asked_for() -> None:
    net = Net(8, draw("full", 8, 7, Random(1)), d=3, d_lo=2, d_hi=4, d_score=2, d_out=1, **QUIET)
    net.join()
    net.all_get(10)
    asked = [msg for node in range(8) for _, msg in net.wire.nodes[node].envs[1].sent if isinstance(msg, IWant)]
    assert asked == []


# Coming and going.


def test_late_subscribers_are_grafted_and_get_what_comes_after() -> None:
    net = Net(12, draw("regular", 12, 5, Random(3)), **QUIET)
    net.join(*range(6))
    net.publish(0)
    net.run()
    net.join(*range(6, 12))
    assert all(net.mesh(node) for node in range(6, 12))
    net.all_get(6)


def test_a_network_mends_itself_when_nodes_crash_and_links_break() -> None:
    edges = draw("regular", 20, 8, Random(4))
    net = Net(20, edges, **QUIET)
    net.join()
    for node in (3, 7, 11):
        net.wire.crash(node)
    for a, b in edges[::7]:
        net.wire.cut(a, b)
    net.run(5 * SECOND)
    left = [node for node in range(20) if node not in (3, 7, 11)]
    net.all_get(10, publishers=left, among=left)
    assert all(not {3, 7, 11} & set(net.gossip(node).parties) for node in left)


def test_messages_flow_again_after_a_link_was_cut() -> None:
    net = Net(2, [(0, 1)], **QUIET)
    net.join()
    net.wire.cut(0, 1)
    net.publish(0, b"lost")
    net.run(0)
    assert net.got(1) == []
    net.run()
    net.all_get(3)


def test_subscribers_that_leave_and_return_keep_a_fanout_alive() -> None:
    net = Net(6, [(0, node) for node in range(1, 6)], unsubscribe_backoff=SECOND, **QUIET)
    net.join(*range(1, 6))
    net.publish(0, b"1")
    net.run(0)
    for node in range(1, 6):
        net.router(node).leave("t")
    net.run()
    net.publish(0, b"nobody hears")
    net.run(20 * SECOND)
    net.join(*range(1, 6))
    net.publish(0, b"2")
    net.run(0)
    assert [net.got(node) for node in range(6)] == [[], *[[b"1", b"2"]] * 5]


def test_a_publisher_that_joins_later_hears_and_is_heard() -> None:
    net = Net(6, draw("full", 6, 5, Random(1)), **QUIET)
    net.join(*range(1, 6))
    net.publish(0)
    net.run()
    assert [len(net.got(node)) for node in range(6)] == [0, 1, 1, 1, 1, 1]
    net.join(0)
    net.all_get(4)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=8)
def test_whoever_stays_gets_everything_while_others_come_and_go(seed: int) -> None:
    """In a full graph those who stay are always linked; what a mesh loses by a change, gossip brings."""
    rng = Random(seed)
    net = Net(8, draw("full", 8, 7, rng), d=3, d_lo=2, d_hi=4, d_score=2, d_out=1, **QUIET)
    net.join()
    sent = []
    for _ in range(10):
        other = rng.randrange(4, 8)
        router = net.router(other)
        rng.choice([router.join, router.leave])("t")
        if rng.random() < 0.3:
            net.wire.cut(other, rng.randrange(4))
        sent.append(net.publish(rng.randrange(4)).data)
        net.run(rng.randrange(3 * SECOND))
    net.run()
    assert [net.got(node) for node in range(4)] == [sorted(sent)] * 4


# Introductions.


def test_the_leaves_of_a_star_find_each_other_by_introductions() -> None:
    small: dict[str, Any] = {"d": 3, "d_lo": 2, "d_hi": 4, "d_score": 1, "d_out": 1}
    net = Net(12, [(node, 0) for node in range(1, 12)], score_with="accept_px=0", **small, **QUIET)
    net.join()
    net.run(20 * SECOND)
    assert len(net.mesh(0)) <= 4
    found = [node for node in range(1, 12) if set(net.gossip(node).parties) > {0}]
    assert len(found) >= 7
    net.all_get(8)


def honest_neighbours(every: int) -> list[int]:
    """Of each honest node, how many of its mesh are honest, after a minute among squatters who bring nothing."""

    class Squatter(GossipSub):
        def _forward(self, publication: Publication, sender: Peer) -> None: ...

    honest, squatters = 8, 24
    edges = draw("full", honest, honest - 1, Random(1))
    edges += [(node, other) for node in range(honest, honest + squatters) for other in range(honest)]
    options: dict[str, Any] = {"opportunistic_every": every, "prune_backoff": 5 * SECOND, "px": False}
    net = Net(0, edges, score_with="opportunistic_graft=5", **options)
    for node in range(honest + squatters):
        net.add(GossipSub if node < honest else Squatter)
    net.wire.run(SECOND)
    net.join(*range(honest, honest + squatters))
    net.join(*range(honest))
    for _ in range(60):
        for node in range(honest):
            net.publish(node)
        net.wire.run(SECOND)
    return [len([peer for peer in net.mesh(node) if int(peer) < honest]) for node in range(honest)]


def test_honest_peers_find_each_other_among_squatters_by_opportunistic_grafting() -> None:
    assert min(honest_neighbours(every=5)) >= 4 > min(honest_neighbours(every=1_000))


# The same stack in every world.


class Plan:
    """A full network of some nodes, who subscribes to what, and who publishes what; each publication has data of its own."""

    def __init__(self, nodes: int, seed: int) -> None:
        rng = Random(seed)
        self.contacts = [tuple(range(node)) for node in range(nodes)]
        self.interests = [rng.sample("abc", rng.randrange(3)) for _ in range(nodes)]
        self.publications = [(rng.randrange(nodes), rng.choice("abc"), b"%d" % number) for number in range(6)]
        self.apps = [Inbox() for _ in range(nodes)]

    def builds(self) -> list[Build]:
        stack = stacks.find("static/gossipsub", {}, {})
        return [stack.node(contacts, app) for contacts, app in zip(self.contacts, self.apps, strict=True)]

    def live_builds(self) -> list[Build]:
        stack = stacks.find("static/gossipsub", {}, {}, live=True)
        return [
            stack.node([identity(peer).peer for peer in contacts], app, Signing(identity(node)))
            for node, (contacts, app) in enumerate(zip(self.contacts, self.apps, strict=True))
        ]

    def join(self, machines: Callable[[int], Sequence[Machine]]) -> None:
        for node, topics in enumerate(self.interests):
            for topic in topics:
                self.router(machines, node).join(topic)

    def publish(self, machines: Callable[[int], Sequence[Machine]]) -> None:
        for node, topic, data in self.publications:
            router = self.router(machines, node)
            router.publish(router.compose(topic, data))

    def router(self, machines: Callable[[int], Sequence[Machine]], node: int) -> Router:
        router = machines(node)[-1]
        assert isinstance(router, Router)
        return router

    def delivered(self) -> list[tuple[int, str, bytes]]:
        return sorted((node, p.topic, p.data) for node, app in enumerate(self.apps) for p in app.delivered)

    def expected(self) -> list[tuple[int, str, bytes]]:
        hears = enumerate(self.interests)
        return sorted((node, t, data) for node, topics in hears for _, t, data in self.publications if t in topics)


def on_a_fake_wire(plan: Plan, codec: bool) -> list[tuple[int, str, bytes]]:
    wire = FakeWire(codec=codec)
    for build in plan.builds():
        wire.add(build)
    wire.run(AMPLE)
    plan.join(lambda node: wire.nodes[node].machines)
    wire.run(AMPLE)
    plan.publish(lambda node: wire.nodes[node].machines)
    wire.run(AMPLE)
    assert wire.errors == []
    return plan.delivered()


def in_the_simulator(plan: Plan, codec: bool) -> list[tuple[int, str, bytes]]:
    sim = Simulator(3, Uniform(low=1.0, high=200.0), codec=codec)
    for build in plan.builds():
        sim.add(build)
    sim.run(AMPLE)
    plan.join(lambda node: sim.nodes[node].machines)
    sim.run(2 * AMPLE)
    plan.publish(lambda node: sim.nodes[node].machines)
    sim.run(3 * AMPLE)
    return plan.delivered()


def live(plan: Plan) -> list[tuple[int, str, bytes]]:
    async def play() -> None:
        async with trio.open_nursery() as nursery:
            world = LiveWorld(nursery)
            for build in plan.live_builds():
                world.add(build)
            await world.run(3 * SECOND)
            plan.join(lambda node: world.machines(world.peer(node)))
            await world.run(3 * SECOND)
            plan.publish(lambda node: world.machines(world.peer(node)))
            await world.run(5 * SECOND)
            world.close()
            nursery.cancel_scope.cancel()

    trio.run(play, clock=MockClock(autojump_threshold=JUMP_S))
    return plan.delivered()


WORLDS: dict[str, Callable[[Plan], list[tuple[int, str, bytes]]]] = {
    "a fake wire": partial(on_a_fake_wire, codec=False),
    "a fake wire with the codec": partial(on_a_fake_wire, codec=True),
    "the simulator": partial(in_the_simulator, codec=False),
    "the simulator with the codec": partial(in_the_simulator, codec=True),
}


@given(nodes=st.integers(2, 8), seed=st.integers(0, 1_000))
@settings(max_examples=8)
def test_every_virtual_world_makes_the_same_deliveries(nodes: int, seed: int) -> None:
    found = {name: play(Plan(nodes, seed)) for name, play in WORLDS.items()}
    assert found == dict.fromkeys(WORLDS, Plan(nodes, seed).expected())


@pytest.mark.live
@pytest.mark.parametrize(("nodes", "seed"), [(2, 6), (6, 4)])
def test_on_loopback_the_deliveries_are_the_same(nodes: int, seed: int) -> None:
    assert Plan(nodes, seed).expected() != []
    assert live(Plan(nodes, seed)) == Plan(nodes, seed).expected()


class Star(LiveWorld):
    """All hosts know the address of the first and no other."""

    def add_leaf(self, build: Build) -> None:
        number = len(self.drivers)
        host = Host(identity(number), self._config, self._nursery)
        host.start([Listener(ANYWHERE)])
        if number:
            host.learn(identity(0).peer, self.drivers[identity(0).peer].host.addresses)
        self.drivers[host.peer] = Driver(host, self._nursery, None, None)
        self.drivers[host.peer].start(build(self.drivers[host.peer].env))


@pytest.mark.live
def test_the_leaves_of_a_star_dial_each_other_by_signed_records() -> None:
    """A leaf knows another's address only by its own signed record, which the centre passed on."""
    options: Options = {"d": 2, "d_lo": 1, "d_hi": 2, "d_score": 1, "d_out": 0, "score_with": "accept_px=0"}
    apps = [Inbox() for _ in range(6)]
    links: list[int] = []

    async def play() -> None:
        async with trio.open_nursery() as nursery:
            world = Star(nursery)
            stack = stacks.find("static/gossipsub", {}, options, live=True)
            for node, app in enumerate(apps):
                world.add_leaf(stack.node([identity(0).peer] if node else [], app, Signing(identity(node))))
            await world.run(3 * SECOND)
            for node in range(6):
                router = world.machines(world.peer(node))[-1]
                assert isinstance(router, Router)
                router.join("t")
            await world.run(10 * SECOND)
            routers = [world.machines(world.peer(node))[-1] for node in range(6)]
            links.extend(len(router.parties) for router in routers if isinstance(router, GossipSub))
            assert isinstance(routers[5], GossipSub)
            routers[5].publish(routers[5].compose("t", b"data"))
            await world.run(3 * SECOND)
            world.close()
            nursery.cancel_scope.cancel()

    trio.run(play, clock=MockClock(autojump_threshold=JUMP_S))
    assert max(links[1:]) > 1
    assert [len(app.delivered) for app in apps] == [1] * 6


# Overlays.


@pytest.mark.parametrize("name", ["static/gossipsub", "hyparview/gossipsub", "kademlia/gossipsub"])
def test_over_every_overlay_each_subscriber_gets_each_message_once(name: str) -> None:
    stack = stacks.find(name, {}, {})
    sim = Simulator(5, Uniform(low=5.0, high=50.0))
    apps = [Inbox() for _ in range(16)]
    for contacts, app in zip(stack.introduce(16, Random(1)), apps, strict=True):
        sim.add(stack.node(contacts, app))
    sim.run(AMPLE)
    routers = [machine for node in range(16) for machine in sim.nodes[node].machines if isinstance(machine, GossipSub)]
    for router in routers:
        router.join("t")
    sim.run(3 * AMPLE)
    for number in range(8):
        routers[number].publish(routers[number].compose("t", b"%d" % number))
    sim.run(5 * AMPLE)
    assert [sorted(p.data for p in app.delivered) for app in apps] == [[b"%d" % number for number in range(8)]] * 16


def test_few_subscribers_among_many_nodes_find_each_other_by_topic() -> None:
    stack = stacks.find("kademlia/gossipsub", {"links": 2}, {"discover_every": 5})
    sim = Simulator(5, Uniform(low=5.0, high=50.0))
    apps = [Inbox() for _ in range(24)]
    for contacts, app in zip(stack.introduce(24, Random(1)), apps, strict=True):
        sim.add(stack.node(contacts, app))
    sim.run(2 * AMPLE)
    few = [2, 9, 14, 20, 23]
    routers = {node: machine for node in few for machine in sim.nodes[node].machines if isinstance(machine, GossipSub)}
    for router in routers.values():
        router.join("rare")
    sim.run(6 * AMPLE)
    assert all(len(router.meshes.topics["rare"].peers) == 4 for router in routers.values())
    routers[9].publish(routers[9].compose("rare", b"data"))
    sim.run(7 * AMPLE)
    assert [node for node, app in enumerate(apps) if app.delivered] == few


@pytest.fixture
async def pair() -> AsyncIterator[tuple[PubSub, PubSub]]:
    config = PubSubConfig(router={"heartbeat": 100_000, "heartbeat_first": 0})
    here, name = ("/ip4/127.0.0.1/tcp/0",), "static/gossipsub"
    with trio.fail_after(60):
        async with (
            PubSub.open(name, listen=here, config=config) as a,
            PubSub.open(name, bootstrap=a.addresses, listen=(), config=config) as b,
        ):
            yield a, b


@pytest.mark.live
async def test_applications_talk_over_gossipsub(pair: tuple[PubSub, PubSub]) -> None:
    a, b = pair
    async with a.subscribe("t") as messages, b.subscribe("t") as others:
        router = b.router
        assert isinstance(router, GossipSub)
        while not router.meshes.topics["t"].peers:
            await trio.sleep(0.01)
        await b.publish("t", b"hello")
        found = await anext(messages)
        assert (found.data, found.source, (await anext(others)).data) == (b"hello", b.peer, b"hello")


@pytest.mark.live
async def test_a_topic_that_the_filter_forbids_is_refused_to_the_application(pair: tuple[PubSub, PubSub]) -> None:
    router = pair[0].router
    assert isinstance(router, GossipSub)
    router.filter = allow_list(["t"])
    with pytest.raises(UsageError):
        async with pair[0].subscribe("other"):
            pass
    async with pair[0].subscribe("t"):
        assert list(router.interests) == ["t"]
