"""Plumtree on random networks where links are cut and heal and nodes crash: all who can have a message have it, once.

Trees are judged by what goes over them, told by the rows; only a machine's own bounds are looked up in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from libweft.overlays.graphs import Edges, distances
from libweft.overlays.static import Static
from libweft.peer.dispatch import receive
from libweft.peer.fake.env import FakeEnv
from libweft.peer.fake.wire import FakeWire, WireNode
from libweft.peer.machine import SECOND, Build, Env, Machine, MessageId, Peer
from libweft.peer.trace.kinds import DUPLICATE, RECEIVE
from libweft.pubsub.message import Publication, weight
from libweft.pubsub.plumtree import KNOWN, PROTOCOL, Gossip, Graft, Heard, IHave, Plumtree, PlumtreeConfig, Prune, Summary
from tests.pubsub.apps import Inbox

QUIET = 40 * SECOND  # the longest delay of a redial after LONGEST, and the repair after it
LONGEST = 2 * SECOND  # between two happenings; a dozen of them, and the quiet, are less than payloads are held here
HELD = 110 * SECOND


class Breakable(FakeWire):
    """A cut lasts until it is healed: nobody can dial over it."""

    def __init__(self, codec: bool) -> None:
        super().__init__(codec=codec)
        self.broken: set[frozenset[int]] = set()

    def _dial(self, node: WireNode, peer: Peer) -> None:
        if frozenset((node.me, peer)) in self.broken:
            for env in node.dials.pop(peer, {}):
                self._failed(env, peer, "cut")
        else:
            super()._dial(node, peer)


class World:
    def __init__(self, nodes: int, edges: Edges, config: PlumtreeConfig, codec: bool = False) -> None:
        self.wire = Breakable(codec)
        self.edges = edges
        self.apps = [Inbox() for _ in range(nodes)]
        self.routers: list[Plumtree] = []
        self.published: dict[MessageId, int] = {}
        for node in range(nodes):
            self.wire.add(self._build([b for a, b in edges if a == node], self.apps[node], config))
        self.wire.run(SECOND)
        for router in self.routers:
            router.join("t")

    def _build(self, contacts: Sequence[Peer], app: Inbox, config: PlumtreeConfig) -> Build:
        def machines(env: Callable[[], Env]) -> Sequence[Machine]:
            overlay = Static(env(), contacts, (PROTOCOL,))
            router = Plumtree(env(), overlay, app, config)
            self.routers.append(router)
            return [overlay, router]

        return machines

    def publish(self, place: int) -> bool:
        """Somebody does, if anybody is there; answers whether the message shapes the tree."""
        live = self.live()
        if not live:
            return False
        publisher = live[place % len(live)]
        id = self.publish_from(publisher)
        sent = self.wire.nodes[publisher].envs[1].sent
        return any(isinstance(m, Gossip) and m.id == id and m.shapes for _, m in sent)

    def publish_from(self, publisher: int) -> MessageId:
        publication = self.routers[publisher].compose("t", b"")
        self.published[publication.id] = publisher
        self.routers[publisher].publish(publication)
        return publication.id

    def cut(self, place: int) -> None:
        a, b = self.edges[place % len(self.edges)]
        self.wire.broken.add(frozenset((a, b)))
        self.wire.cut(a, b)

    def heal(self, place: int) -> None:
        a, b = self.edges[place % len(self.edges)]
        self.wire.broken.discard(frozenset((a, b)))

    def crash(self, place: int) -> None:
        self.wire.crash(place % len(self.routers))

    def rest(self, place: int) -> None:
        self.wire.run(place * LONGEST // 1_000)

    def steps(self, place: int) -> None:
        """Only some of what is under way arrives."""
        for _ in range(place):
            self.wire.step()

    def live(self) -> list[int]:
        return [node.me for node in self.wire.nodes if node.alive]

    def parts(self) -> list[list[int]]:
        """The live nodes, by what is connected."""
        live, parts = self.live(), []
        left = [(a, b) for a, b in self.edges if a in live and b in live]
        while live:
            part = sorted(distances(len(self.routers), left, live[0]))
            live = [node for node in live if node not in part]
            parts.append(part)
        return parts

    def check_deliveries(self) -> None:
        for part in self.parts():
            for id, publisher in self.published.items():
                counts = {node: sum(p.id == id for p in self.apps[node].delivered) for node in part}
                wanted = publisher in part or any(counts.values())
                assert counts == dict.fromkeys(part, int(wanted)), (id, publisher)

    def check_tree(self, source: int, per_source: bool) -> None:
        """A message comes to all that it could reach at once, without a wait, and to nobody twice; from every end of the tree."""
        (part,) = [part for part in self.parts() if source in part]
        for publisher in [source] if per_source else part:
            id = self.publish_from(publisher)
            self.wire.run()
            rows = [(node, row.kind) for node in part for row in self.wire.nodes[node].envs[1].traced if row.msg == id]
            assert sorted(node for node, kind in rows if kind == RECEIVE) == [node for node in part if node != publisher]
            assert not [node for node, kind in rows if kind == DUPLICATE]

    def check_bounds(self) -> None:
        for router in self.routers:
            check_bounds(router)

    def check_rest(self) -> None:
        """Nothing is waited for, and nobody holds what belongs to a neighbour that is gone."""
        for node in self.live():
            router = self.routers[node]
            assert not router.awaited and not router.asked and not router.opened and not router.lazy_queue
            assert not router.owed and not router.unsent and not router.pending_gossip
            neighbors = sorted(router.overlay.neighbors)
            for tree in (router.tree, *router.trees.values()):
                assert sorted((*tree.eager, *tree.lazy)) == neighbors


def check_bounds(router: Plumtree) -> None:
    config, held, missing = router.config, router.held, [*router.awaited.values(), *router.asked.values()]
    assert len(held.messages) == len(held.order) <= config.held_messages
    assert held.bytes == sum(weight(kept.m) for kept in held.messages.values()) <= config.held_bytes
    assert len(missing) <= config.missing
    assert len({*router.awaited, *router.asked}) == len(missing)
    assert sum(router.opened.values()) == len(missing)
    assert all(0 < opened <= config.missing_each for opened in router.opened.values())
    assert len(router.trees) <= config.trees
    assert router.timer is not None or not missing
    assert all(len(kept.known) <= KNOWN for kept in held.order)
    assert router.confirmed.keys() == router.neighbors.keys()
    assert router.summary_timer is not None or all(confirmed == held.end for confirmed in router.confirmed.values())
    for tree in (router.tree, *router.trees.values()):
        assert len({*tree.eager, *tree.lazy}) == len(tree.eager) + len(tree.lazy)
        assert {*tree.eager, *tree.lazy} == {*router.neighbors}
    for waits in (router.awaited, router.asked):
        ends = [one.due for one in waits.values()]
        assert ends == sorted(ends)


@st.composite
def connected(draw: st.DrawFn) -> tuple[int, Edges]:
    """A tree, and some links more."""
    nodes = draw(st.integers(2, 12))
    edges = {(draw(st.integers(0, node - 1)), node) for node in range(1, nodes)}
    pairs = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1))
    edges |= {(min(pair), max(pair)) for pair in draw(st.lists(pairs, max_size=2 * nodes)) if pair[0] != pair[1]}
    return nodes, sorted(edges)


configs = st.builds(
    PlumtreeConfig,
    threshold=st.sampled_from([0, 1, 3, 7]),
    settle=st.sampled_from([0, SECOND]),
    batch=st.sampled_from([0, 5_000, SECOND]),
    per_source=st.booleans(),
    held_age=st.just(HELD),
)
happenings = st.lists(
    st.tuples(st.sampled_from(["publish", "publish", "publish", "cut", "heal", "rest", "steps", "crash"]), st.integers(0, 1_000)),
    max_size=12,
)


@given(graph=connected(), config=configs, happens=happenings, codec=st.booleans(), seed=st.integers(0, 999))
@example((2, [(0, 1)]), PlumtreeConfig(held_age=HELD), [("cut", 0), ("publish", 0), ("rest", 999)], True, 0)
@settings(max_examples=150)
def test_after_quiet_all_that_are_connected_have_every_message_once_and_the_eager_links_are_a_tree(
    graph: tuple[int, Edges], config: PlumtreeConfig, happens: list[tuple[str, int]], codec: bool, seed: int
) -> None:
    world = World(*graph, config, codec)
    for what, place in happens:
        getattr(world, what)(place)
        world.check_bounds()
    world.wire.broken.clear()
    world.wire.run(QUIET)
    world.check_deliveries()
    world.check_rest()
    assert all(world.routers[node].summary_timer is None for node in world.live()), "somebody has not confirmed what it has"
    for _ in range(20 if world.live() else 0):
        shapes = world.publish(Random(seed).randrange(1_000))
        world.wire.run(5 * SECOND)
        if shapes:
            break
    world.check_deliveries()
    world.check_rest()
    world.check_bounds()
    if world.live():
        world.check_tree(list(world.published.values())[-1], config.per_source)
    assert world.wire.errors == []


@given(graph=connected(), seed=st.integers(0, 999))
@settings(max_examples=50)
def test_one_message_makes_a_tree_and_the_next_goes_by_it_without_a_second_copy(graph: tuple[int, Edges], seed: int) -> None:
    world, rng = World(*graph, PlumtreeConfig()), Random(seed)
    first, second = rng.randrange(graph[0]), rng.randrange(graph[0])
    world.publish(first)
    world.wire.run(SECOND)
    for node in world.wire.nodes:
        node.envs[1].take(), node.envs[1].take_traced()
    world.publish(second)
    world.wire.run(10 * SECOND)
    sent = [m for node in world.wire.nodes for _, m in node.envs[1].sent]
    assert sum(isinstance(m, Gossip) for m in sent) == graph[0] - 1
    assert not [m for m in sent if isinstance(m, Prune)]
    world.check_deliveries()
    world.check_tree(second, False)


# One machine among peers that say anything.

ids = st.builds(MessageId, st.integers(5, 8), st.just(1), st.integers(0, 30))
rounds = st.integers(0, 20)
publications = st.builds(Publication, ids, st.just("t"), st.integers(0, 500).map(bytes))
anything = st.one_of(
    st.builds(Gossip.of, publications, rounds, st.booleans(), st.integers(0, 120 * SECOND)),
    st.builds(IHave, st.lists(st.tuples(ids, rounds), max_size=20).map(tuple)),
    st.builds(Summary, st.integers(0, 40), st.lists(st.tuples(ids, st.integers(0, SECOND)), max_size=20).map(tuple)),
    st.builds(Graft, st.lists(ids, max_size=20).map(tuple), st.booleans()),
    st.builds(Prune, ids),
    st.builds(Heard, st.integers(0, 40)),
)
small = st.builds(
    PlumtreeConfig,
    held_messages=st.just(5),
    held_bytes=st.just(1_500),
    missing=st.just(12),
    missing_each=st.just(5),
    trees=st.just(2),
    per_source=st.booleans(),
    threshold=st.sampled_from([0, 1]),
    batch=st.sampled_from([0, 5_000]),
)
acts = st.one_of(
    st.tuples(st.just("receive"), st.integers(0, 6), anything),
    st.tuples(st.just("advance"), st.integers(0, SECOND), st.none()),
    st.tuples(st.just("up"), st.integers(1, 4), st.none()),
    st.tuples(st.just("down"), st.integers(1, 4), st.none()),
    st.tuples(st.just("drop"), st.integers(1, 4), anything),
    st.tuples(st.just("drain"), st.integers(1, 4), st.none()),
)


@given(config=small, acts=st.lists(acts, max_size=60))
@settings(max_examples=200)
def test_caches_stay_within_bounds_whatever_peers_say(config: PlumtreeConfig, acts: list[tuple[str, int, Any]]) -> None:
    env, app = FakeEnv(me=0), Inbox()
    overlay = Static(FakeEnv(me=0), (), (PROTOCOL,))
    router = Plumtree(env, overlay, app, config)
    router.join("t")
    for what, value, msg in acts:
        match what:
            case "receive":
                receive(router, value, msg)
            case "advance":
                env.advance(value)
            case "up":
                overlay._up(value)
            case "down":
                overlay._down(value, "down")
            case "drop":
                router.dropped(value, msg)
            case "drain":
                router.drained(value)
        check_bounds(router)
        assert all(len(waiting) <= config.held_messages for queue in (router.owed, router.unsent) for waiting in queue.values())
    delivered = [p.id for p in app.delivered]
    assert len(delivered) == len(set(delivered))
    env.advance(10 * SECOND)
    assert not router.awaited and not router.asked and not router.opened
    env.advance(config.held_age + config.summary_every)
    assert env.clock.waiting == 0
