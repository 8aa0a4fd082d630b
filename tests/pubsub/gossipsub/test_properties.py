"""Whatever peers say, honest or not, in any order: tables stay within their bounds and agree with each other.

A peer's fault costs its link and nothing else. Bounds are small here, so that short histories reach them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libweft.peer.errors import PeerError
from libweft.peer.machine import SECOND, Message, MessageId, Peer, PeerInfo
from libweft.pubsub.gossipsub import contacts, gossip, mesh
from libweft.pubsub.gossipsub.backoff import Backoff
from libweft.pubsub.gossipsub.mcache import MessageCache
from libweft.pubsub.gossipsub.messages import Extensions, Graft, IDontWant, IHave, IWant, Prune, Pruned, Test
from libweft.pubsub.gossipsub.promises import Promises
from libweft.pubsub.message import Publication, Verdict
from libweft.pubsub.rpc import Subscriptions
from tests.pubsub.gossipsub.world import FLOODSUB, V10, V11, V12, V13, Node

CONFIG: dict[str, Any] = {
    "d": 2,
    "d_lo": 2,
    "d_hi": 3,
    "d_score": 1,
    "d_out": 1,
    "d_lazy": 2,
    "subscriptions": 3,
    "spare": 2,
    "ihave_ids": 4,
    "ihave_most": 2,
    "iwant_most": 3,
    "idontwant_most": 3,
    "idontwant_ids": 4,
    "idontwant_size": 3,
    "px_peers": 2,
    "direct_every": 3,
    "opportunistic_every": 3,
    "prune_backoff": 3 * SECOND,
    "unsubscribe_backoff": 2 * SECOND,
    "fanout_ttl": 3 * SECOND,
    "backoff_most": 60 * SECOND,
    "score_with": "accept_px=0, retain=60000000",
}
UNWANTED, REFUSED, FANOUTS, DIALS, BACKOFFS, PROMISES, CACHED = 4, 8, 2, 2, 6, 5, 6
PEERS = range(1, 8)


@pytest.fixture(autouse=True, scope="module")
def small_bounds() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gossip, "UNWANTED", UNWANTED)
        patch.setattr(gossip, "REFUSED", REFUSED)
        patch.setattr(mesh, "FANOUTS", FANOUTS)
        patch.setattr(contacts, "DIALS", DIALS)
        yield


class Case:
    """A node, and a plain account of which links are up."""

    def __init__(self, *, validates: bool, flood_publish: bool) -> None:
        self.node = Node("t", validates=validates, flood_publish=flood_publish, **CONFIG)
        router = self.router = self.node.router
        router.meshes.backoff = Backoff(2 * SECOND, BACKOFFS)
        router.standing.promises = Promises(3 * SECOND, PROMISES, 3)
        router.gossip.cache = MessageCache(5, 3, CACHED)
        self.linked: set[Peer] = set()
        send = self.node.env.send

        def watched(peer: Peer, msg: Message) -> None:
            assert peer in router.parties, "sent to one who is not there"
            send(peer, msg)

        self.node.env.send = watched  # type: ignore[method-assign]

    def play(self, step: Callable[[Case], None]) -> None:
        step(self)
        self.node.forget()
        self.check()

    def up(self, peer: Peer, protocol: str, outbound: bool) -> None:
        self.faulty(peer, lambda: self.node.up(peer, topics=(), protocol=protocol, outbound=outbound))

    def hear(self, peer: Peer, msg: Message) -> None:
        self.faulty(peer, lambda: self.node.hear(peer, msg))

    def faulty(self, peer: Peer, action: Callable[[], None]) -> None:
        """As a driver does it."""
        try:
            action()
        except PeerError:
            self.down(peer)

    def down(self, peer: Peer) -> None:
        if peer in self.router.parties:
            self.node.down(peer)
        else:
            self.router.link_down(peer, 0, "nobody there")
        self.node.env.holds.pop(peer, None)

    def judge(self, number: int, verdict: Verdict) -> None:
        if self.node.app.cases:
            self.node.app.cases.pop(number % len(self.node.app.cases))[2](verdict)

    def check(self) -> None:
        router, parties = self.router, self.router.parties
        for topic, found in router.meshes.topics.items():
            assert found.everyone == tuple(found.peers) and all(topic in parties[peer].topics for peer in found.peers)
            assert all(parties[peer].level and peer not in router.contacts.direct for peer in found.peers)
            assert len([peer for peer in found.peers if not parties[peer].outbound]) <= 3
        for topic, found in router.meshes.fanouts.items():
            assert all(topic in parties[peer].topics and peer not in router.contacts.direct for peer in found.peers)
        told = {(topic, peer) for topic, peers in router.subscribers.items() for peer in peers}
        assert told == {(topic, peer) for peer, party in parties.items() for topic in party.topics}
        assert all(router.subscribers.values()) and all(len(party.topics) <= 3 for party in parties.values())
        assert router.plain == sum(not party.level for party in parties.values())
        assert all(party.asked <= 4 and 0 <= party.unwanted <= UNWANTED for party in parties.values())
        assert len(router.gossip._ends) <= REFUSED and len(router.meshes.fanouts) <= FANOUTS
        assert len(router.contacts.dialled) <= DIALS and router.contacts.dialled.keys() <= router.contacts.held.keys()
        assert all(router.gossip.unwanted.values()) and sum(map(len, router.gossip.unwanted.values())) <= REFUSED
        assert len(router.meshes.backoff) <= BACKOFFS and len(router.standing.promises) <= PROMISES
        assert len(router.gossip.cache) <= CACHED and not router.meshes.grafted and not router.meshes.pruned
        assert router.pending == len(self.node.app.cases) and router.contacts.held.keys() <= self.node.env.holds.keys()

    def beaten(self) -> None:
        self.node.beat()
        used = {peer for found in self.router.meshes.topics.values() for peer in found.peers}
        used |= {peer for found in self.router.meshes.fanouts.values() for peer in found.peers}
        used |= self.router.contacts.direct.keys() | self.router.contacts.dialled.keys()
        assert len(self.router.contacts.held.keys() - used) <= 2

    def nothing_is_left(self) -> None:
        router = self.router
        for peer in [*router.contacts.direct]:
            router.contacts.remove_direct(peer)
        for peer in {*router.parties, *router.contacts.held}:
            self.down(peer)
        self.node.beat(4)
        for peer in [*router.contacts.held]:
            self.down(peer)
        assert not (router.parties or router.subscribers or router.contacts.held or router.contacts.dialled)
        assert all(not found.peers for found in (*router.meshes.topics.values(), *router.meshes.fanouts.values()))
        assert router.plain == len(router.standing.promises) == len(router.gossip._ends) == 0
        assert router.gossip.unwanted == {}
        assert not any(stats.connected for stats in self.node.score._peers.values())
        self.node.wait(80 * SECOND)
        assert self.node.score._peers == {} and len(router.meshes.backoff) == 0 and len(router.gossip.cache) == 0


# What may happen.

peers = st.sampled_from(PEERS)
topics = st.sampled_from(["t", "u", "v", "w", "x" * 2_000])
publications = st.builds(
    Publication,
    st.builds(MessageId, st.sampled_from([0, 1, 8, 9]), st.just(1), st.integers(0, 5)),
    topics,
    st.sampled_from([b"", b"large enough"]),
)
KEYS = [source.to_bytes(8) + (number + (1 << 24)).to_bytes(8) for source in (0, 8, 9) for number in range(6)]
ids = st.lists(st.sampled_from([*KEYS, b"", b"unknown", bytes(100)]), max_size=8).map(tuple)
infos = st.builds(PeerInfo, st.sampled_from([0, *PEERS, 20, 21, 22, b"bytes"]), st.just(()), st.none() | st.just(b"record"))
prunes = st.builds(Pruned, topics, st.lists(infos, max_size=3).map(tuple), st.sampled_from([0, 1, 60, 2**64 - 1]))
messages = st.one_of(
    publications,
    st.lists(st.tuples(st.booleans(), topics), max_size=6).map(tuple).map(Subscriptions),
    st.lists(st.tuples(topics, ids), max_size=3).map(tuple).map(IHave),
    ids.map(IWant),
    ids.map(IDontWant),
    st.lists(topics, max_size=4).map(tuple).map(Graft),
    st.lists(prunes, max_size=3).map(tuple).map(Prune),
    st.booleans().map(Extensions),
    st.just(Test()),
)

Step = Callable[[Case], None]


def says(peer: Peer, msg: Message) -> Step:
    return lambda case: case.hear(peer, msg)


def subscribes(peer: Peer, protocol: str, outbound: bool) -> Step:
    """An honest newcomer."""

    def step(case: Case) -> None:
        case.up(peer, protocol, outbound)
        case.hear(peer, Subscriptions(((True, "t"), (True, "u"))))

    return step


def published(topic: str, data: bytes) -> Step:
    return lambda case: case.node.router.publish(case.node.router.compose(topic, data))


short_topics = st.sampled_from(["t", "u", "v", "w"])
versions = st.sampled_from([V13, V12, V11, V10, FLOODSUB])
steps: st.SearchStrategy[Step] = st.one_of(
    st.builds(says, peers, messages),
    st.builds(says, peers, messages),
    st.builds(subscribes, peers, versions, st.booleans()),
    st.builds(lambda peer: lambda case: case.down(peer), peers),
    st.builds(lambda peer: lambda case: case.router.shut_out(peer), st.sampled_from([7, 9])),
    st.builds(lambda peer: lambda case: case.router.contacts.add_direct(PeerInfo(peer)), st.sampled_from([5, 6])),
    st.builds(lambda peer: lambda case: case.router.contacts.remove_direct(peer), st.sampled_from([5, 6])),
    st.builds(lambda topic: lambda case: case.router.join(topic), short_topics),
    st.builds(lambda topic: lambda case: case.router.leave(topic), short_topics),
    st.builds(published, short_topics, st.sampled_from([b"", b"large enough"])),
    st.builds(lambda number, verdict: lambda case: case.judge(number, verdict), st.integers(0, 9), st.sampled_from(Verdict)),
    st.just(Case.beaten),
    st.just(Case.beaten),
)


def some(least: int) -> st.SearchStrategy[list[Step]]:
    """Among peers that are there already; hypothesis alone would mostly try histories that are over at once."""
    newcomers = st.lists(st.builds(subscribes, peers, versions, st.booleans()), min_size=3, max_size=7)
    return st.builds(list.__add__, newcomers, st.lists(steps, min_size=least, max_size=2 * least))


@given(some(30), st.booleans(), st.booleans())
@settings(max_examples=200)
def test_tables_keep_their_bounds_and_agree_whatever_peers_say(taken: list[Step], validates: bool, flood_publish: bool) -> None:
    case = Case(validates=validates, flood_publish=flood_publish)
    for step in taken:
        case.play(step)


@given(some(15), st.booleans())
@settings(max_examples=100)
def test_when_all_links_are_gone_nothing_is_left_but_what_is_kept_for_its_time(taken: list[Step], flood_publish: bool) -> None:
    case = Case(validates=True, flood_publish=flood_publish)
    for step in taken:
        case.play(step)
    case.nothing_is_left()


@given(st.lists(st.tuples(peers, publications), max_size=40))
@settings(max_examples=60)
def test_no_message_is_delivered_twice_whoever_sends_it(sent: list[tuple[Peer, Publication]]) -> None:
    node = Node("t", "u", score="off")
    node.up(*PEERS, topics=("t", "u"))
    for peer, publication in sent:
        node.hear(peer, publication)
    delivered = [publication.id for publication in node.app.delivered]
    assert len(delivered) == len(set(delivered))
    carried = {publication.id for _, publication in sent if publication.topic in "tu" and publication.id.source != 0}
    assert set(delivered) == carried
