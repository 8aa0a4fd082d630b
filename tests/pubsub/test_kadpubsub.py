"""KadPubSub by hand: who is registered where, who is asked, how the tree is cut, and what happens to those who do not answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libweft.overlays import claims
from libweft.overlays.kademlia.space import BITS, place_of, place_of_key, topic_key
from libweft.overlays.overlay import Overlay
from libweft.overlays.powers import Lookups
from libweft.peer.codec import msgpack
from libweft.peer.dispatch import ask, receive
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.fake.env import FakeEnv, FakeRequest
from libweft.peer.fake.wire import FakeWire
from libweft.peer.machine import SECOND, Build, Env, Link, Message, MessageId, Peer, PeerInfo
from libweft.peer.trace.kinds import REJECT
from libweft.pubsub.interests import Filter
from libweft.pubsub.kadpubsub import registration, registry, vicinity
from libweft.pubsub.kadpubsub.config import LOOKS, KadPubSubConfig
from libweft.pubsub.kadpubsub.delegation import STILLS, TASKS
from libweft.pubsub.kadpubsub.inquiry import RECENT, Members
from libweft.pubsub.kadpubsub.messages import (
    HOPS,
    LIST,
    LONGEST,
    SUBSCRIBERS,
    Ask,
    Back,
    Delegate,
    Done,
    Got,
    Nearest,
    Register,
    Registered,
    Still,
    Subscribers,
    Unregister,
    Update,
    length,
    lists,
)
from libweft.pubsub.kadpubsub.registration import ASKS
from libweft.pubsub.kadpubsub.registry import LEASES
from libweft.pubsub.kadpubsub.router import KadPubSub
from libweft.pubsub.kadpubsub.unjudged import LISTS, Held, Unjudged
from libweft.pubsub.message import OrderHeader, Publication, Verdict
from libweft.pubsub.router import LARGEST, too_large
from tests.pubsub.apps import Inbox

CONFIG = KadPubSubConfig()
TOPIC = "news"


class Directory(Overlay):
    """Knows all peers there are, at once."""

    powers = (Lookups,)

    def __init__(self, env: Env, peers: Sequence[Peer], k: int = 4) -> None:
        super().__init__(env)
        self.peers = list(peers)
        self.k = k
        self.asked: list[bytes] = []

    def lookup(self, key: bytes, done: Callable[[Sequence[PeerInfo]], None]) -> None:
        self.asked.append(key)
        done([PeerInfo(peer) for peer in self.known(key)])

    def known(self, key: bytes) -> Sequence[Peer]:
        near = sorted((peer for peer in self.peers if peer != self.env.me), key=lambda peer: place_of(peer) ^ place_of_key(key))
        return near[: self.k]


class Bench:
    """One router with the id 0 and its Env, above a directory."""

    def __init__(self, *peers: Peer, config: KadPubSubConfig = CONFIG, seed: int = 0) -> None:
        self.env = FakeEnv(me=0, seed=seed)
        self.directory = Directory(FakeEnv(me=0), peers)
        self.app = Inbox()
        self.router = KadPubSub(self.env, self.directory, self.app, config)
        self.router.start()

    def hear(self, peer: Peer, msg: Message) -> list[tuple[Peer, Message]]:
        self.env.take()
        receive(self.router, peer, msg)
        return self.env.take()

    def asked(self, peer: Peer, msg: Message) -> Any:
        replies: list[Message] = []
        ask(self.router, peer, msg, replies.append)
        (reply,) = replies
        return reply

    def know(self, *subscribers: Peer) -> None:
        """As if registrars had just told."""
        members = self.router.audience.topics[TOPIC] = Members()
        members.infos = {peer: PeerInfo(peer) for peer in subscribers}
        members.until = self.env.now() + CONFIG.lease

    def publish(self) -> MessageId:
        publication = self.router.compose(TOPIC, b"hello")
        self.router.publish(publication)
        return publication.id

    def given(self) -> dict[Peer, tuple[Peer, ...]]:
        """To whom the message went, and with which rest."""
        return {peer: tuple(info.peer for info in m.rest) for peer, m in self.env.take() if isinstance(m, Delegate)}


def subscriber(config: KadPubSubConfig = CONFIG) -> Bench:
    """One that has the topic, as if it had registered long ago."""
    bench = Bench(config=config)
    bench.router.interests[TOPIC] = None
    return bench


def bucket(peer: Peer, seen_from: Peer = 0) -> int:
    return BITS - (place_of(peer) ^ place_of(seen_from)).bit_length()


def in_one_bucket(count: int) -> Sequence[Peer]:
    return [peer for peer in range(1, 200) if bucket(peer) == 0][:count]


def letter(source: Peer = 9, rest: Sequence[Peer] = (), sequence: int = 1, data: bytes = b"x", hops: int = 0) -> Delegate:
    publication = Publication(MessageId(source, 1, sequence), TOPIC, data)
    return Delegate.of(publication, hops, [PeerInfo(peer) for peer in rest])


# Registering.


def test_a_subscriber_registers_at_the_nearest_nodes_and_is_in_force_when_all_have_answered() -> None:
    bench = Bench(*range(1, 50))
    bench.router.join(TOPIC)
    requests = bench.env.take_requests()
    place = place_of_key(topic_key(TOPIC))
    assert [request.peer for request in requests] == sorted(range(1, 50), key=lambda peer: place_of(peer) ^ place)[:4]
    assert all(request.msg == Register(TOPIC, PeerInfo(0)) for request in requests)
    for request in requests[:2]:
        request.reply(Registered(True))
    requests[3].reply(Registered(False))
    requests[2].fail("no link")
    for _ in range(ASKS - 1):
        assert bench.app.in_force == []
        (again,) = bench.env.take_requests()
        assert again.peer == requests[2].peer
        again.fail("timeout")
    assert bench.app.in_force == [TOPIC]
    assert bench.router.registrations.topics[TOPIC].registrars == [requests[0].peer, requests[1].peer]


def test_it_registers_again_wherever_the_nearest_are_by_then() -> None:
    bench = Bench(*range(1, 50))
    bench.router.join(TOPIC)
    first = [request.peer for request in answered(bench)]
    bench.directory.peers = [peer for peer in bench.directory.peers if peer not in first]
    bench.env.advance(CONFIG.refresh_every)
    second = [request.peer for request in answered(bench)]
    assert len(second) == 4 and not set(first) & set(second)
    assert bench.app.in_force == [TOPIC]


def answered(bench: Bench) -> list[FakeRequest]:
    requests = bench.env.take_requests()
    for request in requests:
        request.reply(Registered(True))
    return requests


def test_a_registrar_whose_answer_is_lost_is_asked_again_and_given_longer_each_time() -> None:
    bench = Bench(1)
    bench.router.join(TOPIC)
    timeouts = []
    for _ in range(ASKS):
        (request,) = bench.env.take_requests()
        timeouts.append(request.timeout)
        bench.env.advance(request.timeout)
    assert timeouts == [CONFIG.slow, 2 * CONFIG.slow, 4 * CONFIG.slow]
    assert bench.env.take_requests() == []


def test_a_subscription_that_no_registrar_takes_is_tried_ever_more_seldom() -> None:
    """And the trace says so once, until one has taken it."""
    bench = Bench(*range(1, 50))
    bench.router.join(TOPIC)
    for delay in (1, 2, 4, 8, 16, 32, 60, 60):
        for request in bench.env.take_requests():
            request.reply(Registered(False))
        bench.env.advance(min(delay * CONFIG.slow, CONFIG.refresh_every) - 1)
        assert bench.env.take_requests() == [] and bench.app.in_force == []
        bench.env.advance(1)
    assert [row.topic for row in bench.env.take_traced() if row.kind == REJECT] == [TOPIC]
    answered(bench)
    assert bench.app.in_force == [TOPIC]
    bench.env.advance(CONFIG.refresh_every - 1)
    assert bench.env.take_requests() == []
    bench.env.advance(1)
    for request in bench.env.take_requests():
        request.reply(Registered(False))
    assert [row.topic for row in bench.env.take_traced() if row.kind == REJECT] == [TOPIC]
    bench.env.advance(CONFIG.slow)
    assert len(answered(bench)) == 4


def test_a_node_that_knows_nobody_yet_is_not_subscribed_before_others_know_of_it() -> None:
    """Nobody would send it anything; the second look finds one that it has just met."""
    bench = Bench()
    bench.router.join(TOPIC)
    bench.directory.peers = [1]
    assert bench.app.in_force == []
    bench.env.advance(CONFIG.slow)
    assert [request.peer for request in answered(bench)] == [1]
    assert bench.app.in_force == [TOPIC]


def test_a_node_that_finds_nobody_is_its_own_registrar_and_goes_on_looking() -> None:
    bench = Bench()
    bench.router.join(TOPIC)
    bench.env.advance((LOOKS - 2) * CONFIG.slow)
    assert bench.app.in_force == []
    bench.env.advance(3 * CONFIG.slow)
    assert bench.app.in_force == [TOPIC] and subscribers(bench) == [0]
    bench.directory.peers = [1]
    bench.env.advance(CONFIG.slow)
    assert [request.peer for request in answered(bench)] == [1]
    assert bench.app.in_force == [TOPIC]


def test_who_leaves_before_all_have_answered_takes_back_what_they_take_later() -> None:
    bench = Bench(1, 2)
    bench.router.join(TOPIC)
    late, silent = bench.env.take_requests()
    bench.router.leave(TOPIC)
    late.reply(Registered(True))
    silent.fail("timeout")
    assert bench.env.take() == [(late.peer, Unregister(TOPIC))]
    assert bench.env.take_requests() == [] and bench.app.in_force == []


def test_who_leaves_tells_its_registrars_and_registers_no_more() -> None:
    bench = Bench(1, 2)
    bench.router.join(TOPIC)
    answered(bench)
    bench.router.leave(TOPIC)
    assert sorted(bench.env.take()) == [(1, Unregister(TOPIC)), (2, Unregister(TOPIC))]
    bench.env.advance(10 * CONFIG.refresh_every)
    assert bench.env.take_requests() == []


def test_a_registration_ends_by_itself_unless_it_is_renewed() -> None:
    bench = Bench()
    assert bench.asked(5, Register(TOPIC, PeerInfo(5))).accepted
    bench.env.advance(CONFIG.expiry - 1)
    assert subscribers(bench) == [5]
    bench.asked(5, Register(TOPIC, PeerInfo(5)))
    bench.env.advance(2)
    assert subscribers(bench) == [5]
    bench.env.advance(CONFIG.expiry)
    assert subscribers(bench) == []


def subscribers(bench: Bench) -> list[Peer]:
    return [info.peer for info in bench.asked(99, Ask(TOPIC)).subscribers]


def test_nobody_registers_another() -> None:
    with pytest.raises(PeerError, match="another"):
        Bench().asked(5, Register(TOPIC, PeerInfo(6)))


def test_a_filter_is_refused_and_leaves_nothing_behind() -> None:
    bench = Bench(1)
    with pytest.raises(UsageError, match="hyparview/flood"):
        bench.router.join(Filter((("price", ">", 5),)))
    assert not bench.router.interests and not bench.router.filters


# In a network that grows.


def by_distance(count: int) -> list[Peer]:
    """Peers from 0 on, nearest to the topic first."""
    place = place_of_key(topic_key(TOPIC))
    return sorted(range(count), key=lambda peer: place_of(peer) ^ place)


def registrar(*farther: Peer) -> Bench:
    """One that is nearest to the topic and has a subscriber, 1000, and a publisher with a lease, 2000."""
    bench = Bench(*farther)
    bench.asked(1000, Register(TOPIC, PeerInfo(1000)))
    bench.asked(2000, Ask(TOPIC))
    bench.env.take()
    return bench


NEARER = by_distance(200)[: by_distance(200).index(0)]
FARTHER = by_distance(200)[by_distance(200).index(0) + 1 :]


def test_a_registrar_tells_subscribers_and_those_with_a_lease_when_somebody_is_new_among_the_nearest() -> None:
    bench = registrar(*FARTHER[1:4])
    bench.env.advance(CONFIG.watch_every)
    assert bench.env.take() == []
    bench.directory.peers = FARTHER[:4]
    bench.env.advance(CONFIG.watch_every)
    told = Nearest(TOPIC, tuple(map(PeerInfo, (0, *FARTHER[:4]))))
    assert bench.env.take() == [(1000, told), (2000, told)]
    bench.env.advance(10 * CONFIG.watch_every)
    assert bench.env.take() == []


def test_a_registrar_tells_no_more_of_the_nearest_than_a_frame_takes_and_others_do() -> None:
    bench = registrar(*FARTHER[1:70])
    for peer in FARTHER[:70]:
        bench.env.learn(PeerInfo(peer, ("x" * claims.TEXT, "x" * 6_000) * 20, bytes(8_192)))
    bench.directory.peers = FARTHER[:70]
    bench.env.advance(CONFIG.watch_every)
    (_, msg), _ = bench.env.take()
    assert isinstance(msg, Nearest)
    msgpack(KadPubSub.kinds).pack([msg])
    assert msg.nearest[1] == PeerInfo(FARTHER[0], ("x" * claims.TEXT,) * claims.ADDRESSES)
    claims.check_infos(0, msg.nearest)


def test_a_registrar_tells_of_many_who_come_at_once_and_then_leaves_it_to_these() -> None:
    bench = registrar(*FARTHER[:4])
    bench.directory.peers = [*NEARER[1:5], *FARTHER[:4]]
    bench.env.advance(CONFIG.watch_every)
    assert [peer for peer, _ in bench.env.take()] == [1000, 2000]
    bench.directory.peers = [*NEARER[:5], *FARTHER[:4]]
    bench.env.advance(CONFIG.watch_every)
    assert bench.env.take() == []


def test_a_registrar_leaves_it_to_nearer_ones_until_these_are_gone() -> None:
    bench = registrar(*NEARER[: CONFIG.asks], FARTHER[1])
    bench.directory.peers = [*NEARER[: CONFIG.asks], FARTHER[0]]
    bench.env.advance(CONFIG.watch_every)
    assert bench.env.take() == []
    bench.directory.peers = [*NEARER[: CONFIG.asks - 1], *FARTHER[:2]]
    bench.env.advance(CONFIG.watch_every)
    assert [peer for peer, _ in bench.env.take()] == [1000, 2000]


def test_a_registrar_tells_some_at_a_time_and_all_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vicinity, "TOLD", 10)
    monkeypatch.setattr(vicinity, "LOOKED", 2)
    bench, topics = Bench(FARTHER[0]), [f"{number}" for number in range(4)]
    for topic, peer in ((topic, peer) for topic in topics for peer in range(1000, 1008)):
        bench.asked(peer, Register(topic, PeerInfo(peer)))
    bench.directory.peers = FARTHER[:2]
    told: Counter[tuple[Peer, str]] = Counter()
    for _ in range(6):
        bench.env.advance(CONFIG.watch_every)
        heard = [(peer, msg.topic) for peer, msg in bench.env.take() if isinstance(msg, Nearest)]
        assert len(heard) <= 10
        told.update(heard)
    assert told == Counter((peer, topic) for topic in topics for peer in range(1000, 1008))


def test_a_registrar_without_topics_watches_nothing() -> None:
    bench = registrar(FARTHER[0])
    bench.hear(1000, Unregister(TOPIC))
    bench.env.advance(CONFIG.expiry + CONFIG.watch_every)
    assert bench.router.vicinity.views == {}
    bench.directory.peers = FARTHER[:2]
    bench.env.advance(CONFIG.watch_every)
    assert bench.env.take() == []


def test_a_subscriber_registers_at_once_at_those_that_a_registrar_names() -> None:
    bench, near = Bench(), [peer for peer in by_distance(50) if peer]
    bench.directory.peers = near[2:8]
    bench.router.join(TOPIC)
    assert [request.peer for request in answered(bench)] == near[2:6]
    bench.hear(near[2], Nearest(TOPIC, tuple(map(PeerInfo, (near[0], near[1], 0, near[2])))))
    assert [request.peer for request in answered(bench)] == near[:2]
    assert sorted(bench.router.registrations.topics[TOPIC].registrars) == sorted(near[:6])
    bench.publish()
    assert [request.peer for request in bench.env.take_requests()] == near[:3]
    bench.hear(near[1], Nearest(TOPIC, tuple(map(PeerInfo, near[:3]))))
    assert bench.env.take_requests() == []


def test_a_subscriber_of_a_small_network_registers_at_all_who_come() -> None:
    """Nearer or not: the list is as long as k allows, and its own was shorter."""
    bench, near = Bench(), [peer for peer in by_distance(50) if peer]
    bench.directory.peers = near[:1]
    bench.router.join(TOPIC)
    answered(bench)
    bench.hear(near[0], Nearest(TOPIC, tuple(map(PeerInfo, (*near[:3], 0)))))
    assert [request.peer for request in answered(bench)] == near[1:3]


def test_one_who_is_named_counts_as_near_only_when_it_has_taken_the_registration() -> None:
    bench, near = Bench(), [peer for peer in by_distance(50) if peer]
    bench.directory.peers = near[3:7]
    bench.router.join(TOPIC)
    answered(bench)
    bench.hear(near[3], Nearest(TOPIC, tuple(map(PeerInfo, near[:3]))))
    for _ in range(ASKS):
        for request in bench.env.take_requests():
            request.fail("no link")
    bench.publish()
    assert [request.peer for request in bench.env.take_requests()] == near[3:6]


def test_a_stranger_moves_no_subscriber_and_a_registrar_no_more_than_there_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "MOST", 10)
    bench, near = Bench(), [peer for peer in by_distance(50) if peer]
    bench.directory.peers = near[40:44]
    bench.router.join(TOPIC)
    answered(bench)
    bench.hear(666, Nearest(TOPIC, tuple(map(PeerInfo, near[:4]))))
    assert bench.env.take_requests() == []
    for start in range(36, 0, -4):
        bench.hear(near[40], Nearest(TOPIC, tuple(map(PeerInfo, near[start : start + 4]))))
    assert len(answered(bench)) == 6
    with pytest.raises(PeerError):
        bench.hear(near[40], Nearest(TOPIC, (PeerInfo(b"no number"),)))
    bench.router.leave(TOPIC)
    assert bench.hear(near[40], Nearest(TOPIC, tuple(map(PeerInfo, near[:4])))) == []


def test_a_publisher_asks_anew_when_one_is_near_that_has_told_it_nothing() -> None:
    bench = Bench(1)
    bench.publish()
    (request,) = bench.env.take_requests()
    request.reply(Subscribers(TOPIC, (PeerInfo(60),), CONFIG.lease))
    bench.hear(1, Nearest(TOPIC, (PeerInfo(1), PeerInfo(0))))
    bench.hear(666, Nearest(TOPIC, (PeerInfo(2), PeerInfo(1))))
    bench.publish()
    assert bench.env.take_requests() == []
    bench.directory.peers = [1, 2]
    bench.hear(1, Nearest(TOPIC, (PeerInfo(2), PeerInfo(1))))
    bench.publish()
    assert sorted(request.peer for request in bench.env.take_requests()) == [1, 2]


# Who subscribes.


def test_a_publisher_asks_three_registrars_and_another_for_each_that_fails() -> None:
    bench = Bench(*range(1, 50))
    bench.publish()
    requests = bench.env.take_requests()
    assert len(requests) == CONFIG.asks
    requests[0].fail("no link")
    (other,) = bench.env.take_requests()
    for request, known in zip((*requests[1:], other), ([60, 61], [61], [62]), strict=True):
        assert bench.given() == {}
        request.reply(Subscribers(TOPIC, tuple(map(PeerInfo, known)), CONFIG.lease))
    reached = bench.given()
    assert sorted([*reached, *(peer for rest in reached.values() for peer in rest)]) == [60, 61, 62]


def test_a_registrar_that_does_not_answer_is_asked_a_second_time_after_all_others() -> None:
    bench = Bench(1, 2)
    bench.publish()
    silent, other = bench.env.take_requests()
    other.reply(Subscribers(TOPIC, (PeerInfo(60),), CONFIG.lease))
    bench.env.advance(CONFIG.slow)
    (again,) = bench.env.take_requests()
    assert again.peer == silent.peer and bench.given() == {}
    bench.env.advance(CONFIG.slow)
    assert bench.env.take_requests() == [] and bench.given() == {60: ()}


def test_a_publisher_that_subscribes_asks_its_own_registrars_without_a_lookup() -> None:
    bench = Bench(*range(1, 50))
    bench.router.join(TOPIC)
    own = [request.peer for request in answered(bench)]
    bench.publish()
    asked = bench.env.take_requests()
    assert [request.peer for request in asked] == own[: CONFIG.asks] and len(bench.directory.asked) == 1
    for request in asked:
        request.reply(Subscribers(TOPIC, (PeerInfo(60),), CONFIG.lease))
    assert bench.given() == {60: ()} and len(bench.directory.asked) == 1


def test_it_looks_for_others_when_too_few_of_its_own_registrars_are_left() -> None:
    bench = Bench(*range(1, 50))
    bench.router.join(TOPIC)
    answered(bench)
    bench.publish()
    alive, *dead = bench.env.take_requests()
    alive.reply(Subscribers(TOPIC, (PeerInfo(60),), CONFIG.lease))
    bench.directory.peers = [70, 71, 72]
    while len(bench.directory.asked) == 1:
        assert bench.given() == {}
        dead.pop().fail("no link")
        dead += bench.env.take_requests()
    assert sorted(request.peer for request in dead) == [70, 71, 72]


def test_one_that_comes_while_registrars_are_still_asked_is_not_forgotten() -> None:
    """The first had answered when it came, and tells it once."""
    bench = Bench(1, 2)
    bench.publish()
    first, second = bench.env.take_requests()
    first.reply(Subscribers(TOPIC, (), CONFIG.lease))
    bench.hear(first.peer, Update(TOPIC, PeerInfo(60), True))
    second.reply(Subscribers(TOPIC, (), CONFIG.lease))
    assert bench.given() == {60: ()}


def test_while_it_hears_of_changes_a_publisher_asks_no_more() -> None:
    bench = Bench(1)
    bench.publish()
    (request,) = bench.env.take_requests()
    request.reply(Subscribers(TOPIC, (PeerInfo(60),), CONFIG.lease))
    bench.given()
    bench.hear(1, Update(TOPIC, PeerInfo(61), True))
    bench.hear(1, Update(TOPIC, PeerInfo(60), False))
    bench.publish()
    assert bench.given() == {61: ()}
    bench.env.advance(CONFIG.lease)
    bench.publish()
    assert [request.peer for request in bench.env.take_requests()] == [1]


def test_a_registrar_tells_those_with_a_lease_who_came_and_went() -> None:
    bench = Bench()
    bench.asked(4, Register(TOPIC, PeerInfo(4)))
    assert bench.asked(7, Ask(TOPIC)).leased == CONFIG.lease
    bench.asked(5, Register(TOPIC, PeerInfo(5)))
    bench.asked(5, Register(TOPIC, PeerInfo(5)))
    assert bench.env.take() == [(7, Update(TOPIC, PeerInfo(5), True))]
    assert bench.hear(5, Unregister(TOPIC)) == [(7, Update(TOPIC, PeerInfo(5), False))]
    bench.env.advance(CONFIG.lease)
    bench.asked(6, Register(TOPIC, PeerInfo(6)))
    assert bench.env.take() == []


def test_changes_are_taken_only_from_registrars_that_gave_a_lease() -> None:
    bench = Bench(1, 2, 3)
    bench.publish()
    lessor, other, silent = bench.env.take_requests()
    lessor.reply(Subscribers(TOPIC, (PeerInfo(60), PeerInfo(61)), CONFIG.lease))
    other.reply(Subscribers(TOPIC, (), 0))
    for peer in (666, other.peer, silent.peer):
        bench.hear(peer, Update(TOPIC, PeerInfo(60), False))
        bench.hear(peer, Update(TOPIC, PeerInfo(62), True))
    assert sorted(bench.router.audience.topics[TOPIC].infos) == [60, 61]
    bench.hear(lessor.peer, Update(TOPIC, PeerInfo(60), False))
    assert sorted(bench.router.audience.topics[TOPIC].infos) == [61]


def test_a_question_makes_a_registrar_keep_nothing() -> None:
    bench = Bench()
    assert bench.asked(7, Ask(TOPIC)) == Subscribers(TOPIC, (), 0)
    assert bench.router.registries.topics == {}
    bench.asked(5, Register(TOPIC, PeerInfo(5)))
    bench.hear(5, Unregister(TOPIC))
    assert bench.router.registries.topics == {}


def test_one_peer_does_not_close_a_registrar_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "TOPICS", 40)
    monkeypatch.setattr(registry, "SHARE", 5)
    bench = Bench()
    assert sum(bench.asked(666, Register(f"{number}", PeerInfo(666))).accepted for number in range(100)) == 20
    assert bench.asked(5, Register(TOPIC, PeerInfo(5))).accepted
    assert bench.asked(666, Register(TOPIC, PeerInfo(666))).accepted  # it takes no room that others want
    for number in range(100):
        bench.asked(7, Register(f"of 7, {number}", PeerInfo(7)))
        bench.asked(8, Ask(f"of 7, {number}"))
        bench.hear(7, Unregister(f"of 7, {number}"))
    assert len(bench.router.registries.topics) <= 21 + 5 + 5


def test_a_lease_that_has_ended_keeps_nobody_out() -> None:
    bench = Bench()
    bench.asked(5, Register(TOPIC, PeerInfo(5)))
    for asker in range(100, 100 + LEASES):
        assert bench.asked(asker, Ask(TOPIC)).leased
    assert bench.asked(99, Ask(TOPIC)).leased == 0
    bench.env.advance(CONFIG.lease)
    assert bench.asked(99, Ask(TOPIC)).leased == CONFIG.lease
    assert list(bench.router.registries.topics[TOPIC].leases) == [99]


def test_a_registration_that_has_ended_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SUBSCRIBERS", 2)
    bench = Bench()
    bench.env.advance(CONFIG.expiry // 2)  # between two sweeps
    assert [bench.asked(peer, Register(TOPIC, PeerInfo(peer))).accepted for peer in (1, 2, 3)] == [True, True, False]
    bench.env.advance(CONFIG.expiry)
    assert bench.asked(3, Register(TOPIC, PeerInfo(3))).accepted


def test_messages_of_more_topics_than_there_is_room_for_are_refused_and_told_of() -> None:
    bench = Bench(1)
    first, *others = [bench.router.compose(f"{number}", b"x") for number in range(RECENT + 2)]
    bench.router.publish(first)
    (request,) = bench.env.take_requests()
    request.reply(Subscribers(first.topic, (), CONFIG.lease))
    for publication in others:
        bench.router.publish(publication)
    assert first.topic not in bench.router.audience.topics and len(bench.router.audience.topics) == RECENT
    assert sum(len(known.waiting) for known in bench.router.audience.topics.values()) == RECENT
    assert bench.router.refused == 1
    assert [row.msg for row in bench.env.take_traced() if row.kind == REJECT] == [others[-1].id]


def test_no_timer_of_a_topic_for_which_something_waits_outlives_the_stop() -> None:
    bench = Bench()
    for number in range(RECENT + 10):
        bench.router.publish(bench.router.compose(f"{number}", b"x"))
    bench.router.stop()
    assert bench.env.clock.waiting == 0


def test_messages_that_wait_for_the_first_answer_are_all_sent_then() -> None:
    bench = Bench(1)
    ids = [bench.publish() for _ in range(3)]
    (request,) = bench.env.take_requests()
    request.reply(Subscribers(TOPIC, (PeerInfo(60),), CONFIG.lease))
    assert [m.id for _, m in bench.env.take() if isinstance(m, Delegate)] == ids


def fat(peer: Peer) -> PeerInfo:
    """The longest claim that is let in."""
    return PeerInfo(peer, ("\N{SNOWMAN}" * (claims.TEXT // 3),) * claims.ADDRESSES, bytes(claims.RECORD))


def test_a_list_that_is_too_long_for_a_frame_is_told_in_several_answers() -> None:
    bench, codec = Bench(), msgpack(KadPubSub.kinds)
    for peer in range(1, 201):
        assert bench.asked(peer, Register(TOPIC, fat(peer))).accepted
    told: list[Peer] = []
    more = True
    while more:
        answer = bench.asked(999, Ask(TOPIC, told[-1] if told else None))
        assert len(codec.pack([answer])[0]) < 2 * LIST and answer.leased == CONFIG.lease
        told += [info.peer for info in answer.subscribers]
        more = answer.more
        bench.hear(told[0], Unregister(TOPIC))  # shifts nothing
    assert told == list(range(1, 201))


def test_a_publisher_asks_on_until_it_has_the_whole_list() -> None:
    bench = Bench(1)
    bench.publish()
    for first, more in ((60, True), (62, True), (64, False)):
        assert bench.given() == {}
        (request,) = bench.env.take_requests()
        assert request.msg == Ask(TOPIC, first - 1 if first > 60 else None)
        request.reply(Subscribers(TOPIC, (PeerInfo(first), PeerInfo(first + 1)), CONFIG.lease, more))
    given = bench.given()
    assert sorted([*given, *(peer for rest in given.values() for peer in rest)]) == list(range(60, 66))
    bench.publish()
    assert bench.env.take_requests() == []


def test_a_registrar_that_always_has_more_to_tell_holds_up_no_message() -> None:
    bench = Bench(1)
    bench.publish()
    for turn in range(2 * CONFIG.patience // CONFIG.slow):
        assert bench.given() == {}
        bench.env.advance(CONFIG.slow // 2)
        (request,) = bench.env.take_requests()
        request.reply(Subscribers(TOPIC, (PeerInfo(60 + turn),), CONFIG.lease, True))
    assert bench.given() and bench.env.take_requests() == []
    bench.publish()
    assert bench.env.take_requests()  # the list was not heard to its end


def test_one_that_tells_the_same_again_and_again_is_not_asked_on() -> None:
    bench = Bench(1)
    bench.publish()
    for _ in range(2):
        (request,) = bench.env.take_requests()
        request.reply(Subscribers(TOPIC, (PeerInfo(60),), CONFIG.lease, True))
    assert bench.given() == {60: ()} and bench.env.take_requests() == []


def test_the_lists_of_several_registrars_are_bounded_when_they_are_put_together() -> None:
    bench, codec = Bench(1, 2, 3), msgpack(KadPubSub.kinds)
    bench.publish()
    for number, request in enumerate(bench.env.take_requests(), 1):
        infos = tuple(PeerInfo(number * 100_000 + other) for other in range(SUBSCRIBERS))
        request.reply(Subscribers(TOPIC, infos, CONFIG.lease))
    assert len(bench.router.audience.topics[TOPIC].infos) == SUBSCRIBERS
    for _, m in bench.env.take():
        assert codec.unpack(codec.pack([m])[0]) == (m,)


# The tree.


def test_the_largest_message_reaches_the_most_subscribers_in_frames_that_are_let_in() -> None:
    bench, codec = Bench(), msgpack(KadPubSub.kinds)
    usual = [PeerInfo(peer, ("/ip4/203.0.113.7/tcp/4001",) * 3) for peer in range(65, SUBSCRIBERS + 1)]
    everyone = [*map(fat, range(1, 65)), *usual]
    order = OrderHeader(1, 1, (MessageId(1, 1, 1),) * 16_000)
    header = bench.router.compose("\N{SNOWMAN}" * 1_024, bytes(LARGEST), order)
    publication = msgspec.structs.replace(header, signature=bytes(2_048), key=bytes(2_048))
    assert not too_large(publication, LARGEST)
    bench.router.tree.begin(publication, 0, (), everyone)
    parts = {peer: m for peer, m in bench.env.take() if isinstance(m, Delegate)}
    assert sorted([*parts, *(info.peer for m in parts.values() for info in m.rest)]) == list(range(1, SUBSCRIBERS + 1))
    for m in parts.values():
        assert len(codec.pack([m])[0]) <= codec.limit


def test_a_list_is_cut_by_its_bytes_and_no_shorter_than_need_be() -> None:
    infos = [*map(fat, range(10)), *map(PeerInfo, range(10, 5_000))]
    cut = list(lists(infos))
    assert [info for part in cut for info in part] == infos
    assert all(len(msgspec.msgpack.encode(part)) <= LIST for part in cut)
    assert all(sum(map(length, [*part, after[0]])) > LIST for part, after in pairwise(cut))


def test_each_bucket_goes_to_one_of_it_with_the_rest() -> None:
    bench = Bench()
    bench.know(*range(1, 65))
    bench.publish()
    given = bench.given()
    assert len({bucket(peer) for peer in given}) == len(given)
    for peer, rest in given.items():
        assert {bucket(other) for other in rest} <= {bucket(peer)}
    assert sorted([*given, *(peer for rest in given.values() for peer in rest)]) == list(range(1, 65))


def test_a_delegate_says_that_it_has_it_hands_on_and_says_when_all_is_done() -> None:
    bench = Bench()
    bench.router.join(TOPIC)
    sent = bench.hear(9, letter(rest=[1, 2], hops=2))
    assert (9, Got(letter().id)) in sent
    parts = {peer: m for peer, m in sent if isinstance(m, Delegate)}
    assert all(m.hops == 3 for m in parts.values())
    assert [publication.data for publication in bench.app.delivered] == [b"x"]
    told = [bench.hear(peer, Done(letter().id)) for peer in parts]
    assert told[-1] == [(9, Done(letter().id))] and not any(told[:-1])
    assert not bench.router.tree.tasks and bench.router.held.bytes == 0


def test_a_leaf_says_only_that_it_is_done() -> None:
    bench = subscriber()
    assert bench.hear(9, letter()) == [(9, Done(letter().id))]


def test_one_that_does_not_say_got_gets_it_again_with_its_rest_before_it_is_passed_over() -> None:
    bench = Bench()
    bench.know(*in_one_bucket(4))
    key = bench.publish()
    first = bench.given()
    bench.env.advance(CONFIG.slow // 2)
    assert bench.given() == first
    (delegate,) = first
    bench.hear(delegate, Got(key))
    bench.env.advance(2 * CONFIG.slow)
    assert bench.given() == {}


def test_nothing_is_sent_again_that_has_not_left_yet() -> None:
    bench = Bench()
    bench.know(5)
    bench.publish()
    bench.given()
    bench.env.backlogs[5] = 100
    bench.env.advance(CONFIG.slow)
    assert bench.given() == {}


def test_one_that_does_not_say_got_in_time_is_passed_over_and_may_still_have_it() -> None:
    first, *others = in_one_bucket(4)
    bench = Bench()
    bench.know(first, *others)
    key = bench.publish()
    ((silent, rest),) = bench.given().items()
    bench.env.advance(CONFIG.slow // 2)
    bench.given()
    bench.env.advance(CONFIG.slow // 2)
    given = bench.given()
    assert given.pop(silent) == ()
    ((second, left),) = given.items()
    assert second in rest and sorted((second, *left)) == sorted(rest)
    bench.hear(second, Done(key))
    assert bench.router.tree.tasks
    bench.hear(silent, Got(key))
    assert not bench.router.tree.tasks


def test_one_that_got_it_and_takes_long_is_asked_whether_it_is_still_at_it() -> None:
    bench = Bench()
    bench.know(*in_one_bucket(4))
    key = bench.publish()
    ((delegate, _),) = bench.given().items()
    bench.hear(delegate, Got(key))
    for _ in range(3):
        bench.env.advance(3 * CONFIG.slow)
        assert bench.env.take() == [(delegate, Still(key))]
        bench.hear(delegate, Got(key))
    bench.env.advance(3 * CONFIG.slow)
    bench.hear(delegate, Done(key))
    assert not bench.router.tree.tasks


def test_one_that_got_it_and_answers_no_more_is_passed_over_soon() -> None:
    bench = Bench()
    bench.know(*in_one_bucket(4))
    key = bench.publish()
    ((delegate, rest),) = bench.given().items()
    bench.hear(delegate, Got(key))
    bench.env.advance((3 + STILLS) * CONFIG.slow - 1)
    assert bench.env.take() == [(delegate, Still(key))] * STILLS
    bench.env.advance(1)
    ((second, left),) = bench.given().items()
    assert sorted((second, *left)) == sorted(rest)


def test_one_that_says_for_ever_that_it_is_at_it_is_passed_over_in_the_end() -> None:
    bench = Bench()
    bench.know(*in_one_bucket(4))
    key = bench.publish()
    ((delegate, rest),) = bench.given().items()
    for _ in range(3 * CONFIG.patience // CONFIG.slow):
        bench.hear(delegate, Got(key))
        assert bench.given() == {}
        bench.env.advance(CONFIG.slow)
    ((second, left),) = bench.given().items()
    assert sorted((second, *left)) == sorted(rest)


def test_who_is_asked_whether_it_is_still_at_it_says_so_or_that_it_is_done() -> None:
    bench = subscriber()
    bench.hear(9, letter(rest=[1]))
    assert bench.hear(9, Still(letter().id)) == [(9, Got(letter().id))]
    bench.hear(1, Done(letter().id))
    assert bench.hear(9, Still(letter().id)) == [(9, Done(letter().id))]


def test_a_list_that_comes_twice_is_handed_on_once() -> None:
    """Its GOT was lost; those of it who are done already get nothing again."""
    bench = subscriber()
    given = {peer for peer, m in bench.hear(9, letter(rest=range(1, 20))) if isinstance(m, Delegate)}
    bench.hear(min(given), Done(letter().id))
    assert bench.hear(9, letter(rest=range(1, 20))) == [(9, Got(letter().id))]


def test_a_list_that_comes_when_all_is_done_goes_back_and_then_to_another() -> None:
    bench = subscriber()
    bench.hear(9, letter())
    assert Back(letter().id) in [m for _, m in bench.hear(8, letter(rest=[1]))]
    bench.know(*in_one_bucket(4))
    key = bench.publish()
    ((delegate, rest),) = bench.given().items()
    bench.hear(delegate, Got(key))
    ((second, m),) = bench.hear(delegate, Back(key))
    assert isinstance(m, Delegate) and sorted((second, *(info.peer for info in m.rest))) == sorted(rest)
    assert delegate not in bench.router.tree.suspects


def test_what_was_on_a_link_that_broke_is_sent_by_the_next() -> None:
    bench = Bench()
    bench.router.link_up(5, Link(1, True, KadPubSub.protocols[0]))
    bench.know(5)
    key = bench.publish()
    bench.given()
    bench.router.link_down(5, 1, "reset")
    assert bench.given() == {5: ()}
    bench.router.link_down(5, 0, "refused")
    assert bench.given() == {} and key not in bench.router.tree.tasks


def test_the_part_of_one_that_is_lost_before_it_is_done_goes_to_another() -> None:
    bench = Bench()
    bench.know(*in_one_bucket(4))
    key = bench.publish()
    ((delegate, rest),) = bench.given().items()
    bench.router.link_up(delegate, Link(1, True, KadPubSub.protocols[0]))
    bench.hear(delegate, Got(key))
    bench.env.advance(CONFIG.slow)
    assert bench.given() == {}
    bench.router.link_down(delegate, 1, "timeout")
    ((second, left),) = bench.given().items()
    assert sorted((second, *left)) == sorted(rest)


def test_one_that_cannot_be_dialled_is_given_nothing_to_hand_on_until_it_is_there_again() -> None:
    first, second, *_ = in_one_bucket(2)
    bench = Bench()
    bench.know(first, second)
    bench.publish()
    ((dead, rest),) = bench.given().items()
    bench.router.link_down(dead, 0, "refused")
    (alive,) = rest
    assert bench.given() == {alive: ()}
    bench.publish()
    assert bench.given() == {dead: (), alive: ()}
    bench.router.link_up(dead, Link(1, False, KadPubSub.protocols[0]))
    bench.publish()
    assert len(bench.given()) == 1


def test_a_second_copy_brings_its_list_but_not_its_payload() -> None:
    """Its id is known, so its signature was never looked at."""
    bench = subscriber()
    bench.hear(9, letter(rest=[1]))
    sent = bench.hear(8, letter(rest=[2], data=b"forged"))
    assert [(peer, m.data) for peer, m in sent if isinstance(m, Delegate)] == [(2, b"x")]
    bench.hear(1, Done(letter().id))
    assert sorted(bench.hear(2, Done(letter().id))) == [(8, Done(letter().id)), (9, Done(letter().id))]


def test_a_node_that_does_not_subscribe_gives_the_list_back_and_carries_nothing() -> None:
    """Whoever named it may be wrong, or it has just left; what it had begun before it ends."""
    bench = Bench()
    key = letter().id
    assert bench.hear(9, letter(rest=[1])) == [(9, Back(key))]
    assert bench.hear(9, Still(key)) == [(9, Back(key))]
    assert bench.hear(9, letter()) == [(9, Done(key))]
    assert bench.app.delivered == []
    bench.router.join(TOPIC)
    assert [peer for peer, m in bench.hear(9, letter(rest=[1])) if isinstance(m, Delegate)] == [1]
    bench.router.leave(TOPIC)
    assert bench.hear(9, Still(key)) == [(9, Got(key))]
    assert bench.hear(1, Done(key)) == [(9, Done(key))]


@settings(max_examples=50, deadline=None)
@given(st.sets(st.integers(1, 5_000), min_size=1, max_size=120), st.integers(0, 99))
def test_every_subscriber_gets_it_once_in_few_steps_and_nobody_else(subscribers: set[int], seed: int) -> None:
    """One step of the tree after the other, each by a router of its own."""
    copies: Counter[Peer] = Counter()
    open_parts: list[tuple[Peer, Delegate]] = []
    bench = Bench(seed=seed)
    bench.know(*sorted(subscribers))
    bench.publish()
    open_parts += [(peer, m) for peer, m in bench.env.take() if isinstance(m, Delegate)]
    while open_parts:
        peer, m = open_parts.pop()
        copies[peer] += 1
        assert m.hops < 25
        env = FakeEnv(me=peer, seed=seed)
        router = KadPubSub(env, Directory(FakeEnv(me=peer), ()), Inbox())
        router.interests[TOPIC] = None
        receive(router, 0, m)
        open_parts += [(to, part) for to, part in env.take() if isinstance(part, Delegate)]
    assert copies == Counter(subscribers)


def stack(peers: Sequence[Peer], app: Inbox) -> Build:
    def build(env: Callable[[], Env]) -> Sequence[Any]:
        directory = Directory(env(), peers)
        return [directory, KadPubSub(env(), directory, app)]

    return build


@pytest.mark.parametrize("codec", [False, True])
def test_thirty_nodes_on_a_wire_have_all_messages_once_though_a_third_of_them_crash(codec: bool) -> None:
    wire, apps = FakeWire(codec=codec), [Inbox() for _ in range(30)]
    for app in apps:
        wire.add(stack(range(30), app))
    routers = [node.machines[1] for node in wire.nodes]
    for router in routers[::2]:
        assert isinstance(router, KadPubSub)
        router.join(TOPIC)
    wire.run(10 * SECOND)
    assert all(app.in_force == [TOPIC] for app in apps[::2])
    for crashed in range(0, 30, 3):
        wire.crash(crashed)
    publisher = routers[1]
    assert isinstance(publisher, KadPubSub)
    sent = [publisher.compose(TOPIC, b"%d" % number) for number in range(5)]
    for publication in sent:
        publisher.publish(publication)
    wire.run(60 * SECOND)
    for number in range(0, 30, 2):
        if number % 3:
            assert sorted(found.id for found in apps[number].delivered) == sorted(publication.id for publication in sent)
    assert not any(app.delivered for app in apps[1::2]) and wire.errors == []


def test_a_silent_leaf_is_sent_it_ever_more_seldom_and_then_given_up() -> None:
    bench = Bench()
    bench.know(5)
    bench.publish()
    times = []
    for tick in range(40):
        times += [tick / 2] * len([m for _, m in bench.env.take() if isinstance(m, Delegate)])
        bench.env.advance(CONFIG.slow // 2)
    assert times == [0, 0.5, 1, 2, 4] and not bench.router.tree.tasks


def test_what_is_published_waits_where_it_can_be_counted_until_delegates_have_it() -> None:
    bench = Bench(1)
    assert bench.router.unplaced() == 0
    key = bench.publish()
    assert bench.router.unplaced() > 0
    (request,) = bench.env.take_requests()
    request.reply(Subscribers(TOPIC, (PeerInfo(60),), CONFIG.lease))
    assert bench.router.unplaced() > 0
    bench.hear(60, Done(key))
    assert bench.router.unplaced() == 0


def test_a_registrar_that_answers_nonsense_does_not_hold_up_the_others() -> None:
    bench = Bench(1, 2)
    bench.publish()
    liar, other = bench.env.take_requests()
    with pytest.raises(PeerError):
        liar.reply(Subscribers(TOPIC, (PeerInfo(b"bytes"),), CONFIG.lease))
    other.reply(Subscribers(TOPIC, (PeerInfo(60),), CONFIG.lease))
    assert bench.given() == {60: ()}


def test_who_knows_nobody_yet_looks_some_times_before_it_speaks_to_itself_alone() -> None:
    bench = Bench()
    bench.publish()
    bench.env.advance(CONFIG.slow)
    bench.directory.peers = [1]
    bench.env.advance(CONFIG.slow)
    (request,) = bench.env.take_requests()
    request.reply(Subscribers(TOPIC, (PeerInfo(60),), CONFIG.lease))
    assert bench.given() == {60: ()}
    alone = Bench()
    alone.publish()
    alone.env.advance(LOOKS * CONFIG.slow)
    assert alone.router.unplaced() == 0 and len(alone.directory.asked) == LOOKS


class Judge(Inbox):
    """Keeps its verdicts back."""

    validates = True

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Callable[[Verdict], None]] = []

    def validate(self, sender: Peer, publication: Publication, answer: Callable[[Verdict], None]) -> None:
        self.answers.append(answer)


@pytest.mark.parametrize(("verdict", "said"), [(Verdict.ACCEPT, Delegate), (Verdict.IGNORE, Back), (Verdict.REJECT, Back)])
def test_a_list_waits_for_the_verdict_and_goes_back_with_a_refusal(verdict: Verdict, said: type[Message]) -> None:
    bench = subscriber()
    bench.router.app = judge = Judge()
    bench.hear(9, letter(rest=[1]))
    assert letter().id in bench.router.unjudged
    judge.answers[0](verdict)
    assert [type(m) for _, m in bench.env.take()] == [said]
    assert bench.router.unjudged.lists == {} and (bench.router.held.bytes > 0) == (verdict is Verdict.ACCEPT)


def test_a_leaf_whose_verdict_takes_time_says_that_it_has_it() -> None:
    bench = subscriber()
    bench.router.app = judge = Judge()
    assert bench.hear(9, letter()) == [(9, Got(letter().id))]
    assert bench.hear(9, letter()) == [(9, Got(letter().id))]
    judge.answers[0](Verdict.REJECT)
    assert bench.env.take() == [(9, Done(letter().id))]


# Bounds.


def test_what_others_can_make_a_registrar_keep_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "TOPICS", 10)
    monkeypatch.setattr(registry, "SUBSCRIBERS", 20)
    bench = Bench()
    taken = [bench.asked(peer, Register(f"{topic}", PeerInfo(peer))).accepted for topic in range(15) for peer in range(1, 31)]
    assert sum(taken) == 10 * 20
    leases = [bench.asked(peer, Ask("0")).leased for peer in range(1_000, 1_000 + 2 * LEASES)]
    assert leases == [CONFIG.lease] * LEASES + [0] * LEASES
    bench.env.advance(3 * CONFIG.expiry)
    assert bench.router.registries.topics == {}


def test_messages_on_their_way_are_bounded_in_number_and_bytes() -> None:
    bench = subscriber(config=replace(CONFIG, held_bytes=100_000))
    for number in range(TASKS + 100):
        bench.hear(9, letter(rest=[1], sequence=number))
    assert 0 < len(bench.router.tree.tasks) <= TASKS
    for number in range(100):
        bench.hear(9, letter(rest=[1], sequence=5_000 + number, data=bytes(10_000)))
    assert bench.router.held.bytes <= 100_000
    waiting = bench.env.clock.waiting
    assert waiting <= len(bench.router.tree.tasks) + 2


def test_one_with_too_much_to_do_gives_lists_back_and_never_says_that_it_is_done_with_them() -> None:
    bench = subscriber()
    for number in range(TASKS):
        bench.hear(9, letter(rest=[1, 2], sequence=number))
    key = letter(sequence=TASKS).id
    assert bench.hear(9, letter(rest=[1, 2], sequence=TASKS)) == [(9, Got(key)), (9, Back(key))]
    assert bench.app.delivered[-1].id == key
    assert bench.hear(9, Still(key)) == [(9, Back(key))]
    assert bench.hear(9, Still(letter(sequence=0).id)) == [(9, Got(letter(sequence=0).id))]
    assert bench.hear(9, letter(sequence=TASKS + 1)) == [(9, Done(letter(sequence=TASKS + 1).id))]


def test_for_a_message_of_its_own_the_oldest_of_others_gives_way_and_goes_back() -> None:
    bench = subscriber()
    bench.know(5)
    own = bench.publish()
    for number in range(TASKS - 1):
        bench.hear(9, letter(rest=[1], sequence=number))
    bench.env.take()
    oldest, second = letter(sequence=0).id, bench.publish()
    assert (9, Back(oldest)) in bench.env.take() and {own, second} <= set(bench.router.tree.tasks)
    assert bench.hear(9, Still(oldest)) == [(9, Back(oldest))]
    assert bench.router.refused == 0


def test_a_message_of_its_own_that_is_forgotten_for_newer_ones_is_counted_and_told() -> None:
    bench = Bench()
    bench.know(5)
    first, *_ = [bench.publish() for _ in range(TASKS + 1)]
    assert first not in bench.router.tree.tasks and len(bench.router.tree.tasks) == TASKS
    assert bench.router.refused == 1
    assert [row.msg for row in bench.env.take_traced() if row.kind == REJECT] == [first]


def test_lists_count_towards_the_bytes_that_are_held() -> None:
    bench = subscriber(replace(CONFIG, held_bytes=1 << 20))
    heavy = [fat(peer) for peer in range(1, 41)]
    for number in range(20):
        bench.hear(9, msgspec.structs.replace(letter(sequence=number), rest=tuple(heavy)))
    assert 0 < len(bench.router.tree.tasks) < 5 and bench.router.held.bytes <= 1 << 20
    key = next(iter(bench.router.tree.tasks))
    for sender in range(20, 40):
        more = tuple(fat(sender * 1_000 + peer) for peer in range(40))
        bench.hear(sender, msgspec.structs.replace(letter(sequence=key.sequence), rest=more))
    assert bench.router.held.bytes <= 1 << 20


def test_lists_that_wait_for_a_verdict_are_bounded_in_bytes_and_number() -> None:
    held = Held(1 << 20)
    unjudged = Unjudged(held)
    heavy = tuple(map(fat, range(1, 41)))
    taken = [unjudged.add(9, msgspec.structs.replace(letter(sequence=number), rest=heavy)) for number in range(20)]
    assert 0 < sum(taken) < 8 and held.bytes <= 1 << 20
    for key in list(unjudged.lists):
        unjudged.pop(key)
    assert held.bytes == 0
    held.limit = CONFIG.held_bytes
    assert unjudged.add(9, letter(rest=range(SUBSCRIBERS))) and not unjudged.add(8, letter(rest=[1]))


def test_the_lists_of_one_message_are_bounded() -> None:
    bench = subscriber()
    bench.hear(9, letter(rest=range(1, SUBSCRIBERS)))
    assert Back(letter().id) in [m for _, m in bench.hear(8, letter(rest=[10_000, 10_001]))]
    bench.router.app = Judge()
    for sender in range(20, 20 + LISTS):
        assert bench.hear(sender, letter(rest=[1], sequence=2)) == [(sender, Got(letter(sequence=2).id))]
    assert bench.hear(50, letter(rest=[2], sequence=2))[-1] == (50, Back(letter(sequence=2).id))


def test_lists_that_no_honest_peer_sends_are_refused() -> None:
    bench = Bench()
    with pytest.raises(PeerError):
        bench.hear(9, Delegate.of(Publication(MessageId(9, 1, 1), TOPIC, b""), 0, [PeerInfo(b"bytes")]))
    codec = msgpack(KadPubSub.kinds)
    too_many = Subscribers(TOPIC, tuple(map(PeerInfo, range(SUBSCRIBERS + 1))), 0)
    with pytest.raises(PeerError):
        codec.unpack(codec.pack([too_many])[0])


@pytest.mark.parametrize("hops", [-1, HOPS + 1, (1 << 64) - 1])
def test_more_hops_than_any_path_has_are_refused_at_the_border(hops: int) -> None:
    codec = msgpack(KadPubSub.kinds)
    with pytest.raises(PeerError):
        codec.unpack(msgspec.msgpack.encode(msgspec.structs.replace(letter(), hops=hops)))


def test_what_came_over_the_longest_path_is_handed_on_in_a_form_that_others_take() -> None:
    bench, codec = subscriber(), msgpack(KadPubSub.kinds)
    ((_, m),) = [(peer, m) for peer, m in bench.hear(9, letter(rest=[1], hops=HOPS)) if isinstance(m, Delegate)]
    assert codec.unpack(codec.pack([m])[0]) == (m,)


@pytest.mark.parametrize("leased", [-1, LONGEST + 1])
def test_a_lease_that_never_ends_or_lies_in_the_past_is_refused(leased: int) -> None:
    codec = msgpack(KadPubSub.kinds)
    with pytest.raises(PeerError):
        codec.unpack(codec.pack([Subscribers(TOPIC, (), leased)])[0])


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": MessageId(9, 1 << 63, 1)},
        {"id": MessageId(9, 1, -1)},
        {"id": MessageId(b"bytes", 1, 1)},
        {"order": OrderHeader(1, (1 << 64) - 1)},
    ],
)
def test_ids_that_no_node_gives_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PeerError):
        Bench().hear(9, msgspec.structs.replace(letter(rest=[1]), **wrong))


def test_no_timer_is_left_after_the_stop() -> None:
    bench = Bench(1, 2)
    bench.router.join(TOPIC)
    answered(bench)
    bench.know(5, 6, 7)
    bench.publish()
    bench.router.stop()
    assert bench.env.clock.waiting == 0


@pytest.mark.parametrize("wrong", [{"refresh_every": 0}, {"asks": 0}, {"expiry": 1}, {"patience": -1}])
def test_a_config_that_makes_no_sense_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="kadpubsub"):
        KadPubSubConfig(**wrong)
