"""VCube-PB: each rule of its algorithms by hand, what it adds for a detector that may be wrong, and whole networks."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Churn, Scenario, Workload
from libweft.overlays.static import Static
from libweft.overlays.vcube.cube import DIMENSION
from libweft.overlays.vcube.machine import VCube
from libweft.overlays.vcube.members import Census, Founders
from libweft.overlays.vcube.messages import Member, News
from libweft.peer.codec import msgpack
from libweft.peer.dispatch import ask, receive
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.fake.env import FakeEnv
from libweft.peer.fake.wire import FakeWire
from libweft.peer.machine import SECOND, Machine, Message, MessageId, Peer, PeerInfo
from libweft.peer.sim.faults import MassCrash, Restart
from libweft.peer.sim.latency import Uniform
from libweft.peer.sim.simulator import Simulator
from libweft.peer.trace.kinds import DELIVER, JOINED
from libweft.pubsub import stacks
from libweft.pubsub.claims import NUMBER
from libweft.pubsub.interests import Filter
from libweft.pubsub.message import Publication, Verdict
from libweft.pubsub.router import Router
from libweft.pubsub.vcube_pb.config import VCubePBConfig
from libweft.pubsub.vcube_pb.message_cache import Kept
from libweft.pubsub.vcube_pb.messages import AskMissing, AskSince, Decline, Missing, Position, Since, Unreg
from libweft.pubsub.vcube_pb.recovery import AGAIN, ASKS
from libweft.pubsub.vcube_pb.router import VCubePB
from libweft.pubsub.vcube_pb.streams import UNKNOWN, Streams
from libweft.pubsub.vcube_ps import trees
from libweft.pubsub.vcube_ps.config import WINDOW
from libweft.pubsub.vcube_ps.messages import Ack, Pub, Reg, Standing, Sub, Told, Uns
from libweft.pubsub.vcube_ps.streams import STREAMS, Item
from libweft.pubsub.vcube_ps.trees import SETTLED, STIRRED
from tests.pubsub.apps import Inbox, Seal, sealed

STACK = "vcube/vcube-pb"
HERE = ("/ip4/127.0.0.1/tcp/0",)
KEY = (2, "t", 1)
LONG = 1_000 * SECOND
CODEC = msgpack(VCubePB.kinds)


class Desk:
    """One router at a place of a cube whose members know each other."""

    def __init__(self, me: int = 0, nodes: int = 8, config: VCubePBConfig | None = None, oracle: bool = False) -> None:
        self.app = Inbox()
        self.below, self.env = FakeEnv(me=me), FakeEnv(me=me)
        self.cube = VCube(self.below, (Census if oracle else Founders)(nodes))
        self.router = VCubePB(self.env, self.cube, self.app, config or VCubePBConfig())
        self.cube.start()
        self.router.start()

    def subscribed(self, *peers: int, topic: str = "t") -> Desk:
        """These are, this node too if it is one of them, and all of it is acknowledged."""
        for peer in peers:
            if peer == self.env.me:
                self.router.join(topic)
                self.acknowledge()
            else:
                self.router.views.note(topic, Standing(peer, True, 1, 1))
        self.env.take()
        self.env.take_traced()
        return self

    def registered(self, topic: str = "t") -> Desk:
        self.router.advertise(topic)
        self.acknowledge()
        return self

    def acknowledge(self) -> None:
        for child, msg in self.env.take():
            receive(self.router, child, Ack(msg.id, ()))  # type: ignore[attr-defined]

    def publish(self, data: bytes = b"data", topic: str = "t") -> Publication:
        publication = self.router.compose(topic, data)
        self.router.publish(publication)
        return publication

    def sent(self) -> list[tuple[Peer, Any]]:
        return self.env.take()

    def hears(self, sender: Peer, msg: Message) -> None:
        receive(self.router, sender, msg)

    def is_down(self, *peers: int) -> None:
        receive(self.cube, 1, News(tuple(Member(peer, PeerInfo(peer), 1) for peer in peers), 0))

    def is_up(self, peer: int, counter: int = 2) -> None:
        receive(self.cube, 1, News((Member(peer, PeerInfo(peer), counter),), 0))

    @property
    def delivered(self) -> list[bytes]:
        return [publication.data for publication in self.app.delivered]


def pub(
    number: int = 1, source: Peer = 2, base: int | None = None, height: int = 0, epoch: int = 1, elder: int | None = None
) -> Pub:
    key = MessageId(source, epoch, number)
    return Pub(key, "t", b"%d" % number, None, (), b"", b"", number, number if base is None else base, 1, height, elder)


def reg(source: int = 2, sequence: int = 1, height: int = 0) -> Reg:
    return Reg(MessageId(source, 1, sequence), "t", height, Member(source, PeerInfo(source), 0))


# Subscribers and publishers.


def test_where_members_come_and_go_both_are_made_known_once_more_and_what_was_missed_is_asked_for() -> None:
    """Who hands a SUB on may not know of a member whom its source knows."""
    desk = Desk(0).subscribed(0, 2).registered()
    desk.env.advance(2 * STIRRED)
    assert desk.sent() == [], "nobody came or went"
    desk = Desk(0)
    desk.is_up(9, 0)
    desk.subscribed(0, 2).registered()
    desk.env.advance(2 * STIRRED)
    again = [msg for _, msg in desk.sent() if isinstance(msg, Sub)]
    assert {type(msg) for msg in again} == {Sub, Reg}
    for child in (1, 2, 4, 9):
        for key in {msg.id for msg in again}:
            desk.hears(child, Ack(key, ()))
    assert {type(request.msg) for request in desk.env.take_requests()} == {AskSince}
    desk.env.advance(2 * STIRRED)
    assert desk.sent() == [], "once is enough"


def test_a_publisher_need_not_subscribe_and_registers_by_itself_before_it_publishes() -> None:
    desk = Desk(0).subscribed(3)
    published = desk.publish()
    sent = desk.sent()
    assert [(peer, type(msg)) for peer, msg in sent] == [(1, Reg), (2, Reg), (4, Reg)]
    for peer, msg in sent:
        assert desk.router.unplaced() > 0
        desk.hears(peer, Ack(msg.id, (Standing(5, True, 1, 1),) if peer == 4 else ()))
    assert [(peer, msg.id) for peer, msg in desk.sent()] == [(3, published.id), (5, published.id)]
    assert desk.app.delivered == []


def test_more_subscriptions_than_channels_are_all_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "CHANNELS", 8)
    desk = Desk(0)
    for number in range(9):
        desk.router.join(f"t{number}")
    desk.acknowledge()
    assert len(desk.app.in_force) == 9


def test_registering_twice_says_it_once_and_withdrawing_tells_those_who_take_part() -> None:
    desk = Desk(0).subscribed(3).registered()
    desk.router.advertise("t")
    desk.hears(6, reg(source=6))
    assert [type(msg) for _, msg in desk.sent()] == [Ack]
    desk.router.withdraw("t")
    assert [(peer, type(msg)) for peer, msg in desk.sent()] == [(3, Unreg), (6, Unreg)]
    desk.router.withdraw("t")
    assert desk.sent() == []


def test_an_unsubscription_goes_to_subscribers_and_publishers() -> None:
    desk = Desk(0).subscribed(0, 3)
    desk.hears(6, reg(source=6))
    desk.sent()
    desk.router.leave("t")
    assert [(peer, type(msg)) for peer, msg in desk.sent()] == [(3, Uns), (6, Uns)]


def test_a_publisher_that_registers_is_told_who_subscribes() -> None:
    desk = Desk(3).subscribed(3)
    desk.hears(2, reg())
    own = desk.router.views.of("t", 3)
    assert own is not None
    assert desk.sent() == [(2, Ack(reg().id, (own,)))]
    assert desk.router.editors.subscribers("t") == 1 << 2 and not desk.router.views.subscribers("t") >> 2 & 1


def test_who_asks_again_is_told_again_for_the_one_who_had_it_may_be_dead() -> None:
    desk = Desk(3).subscribed(3)
    own = desk.router.views.of("t", 3)
    sub = Sub(MessageId(2, 1, 1), "t", 0, Member(2, PeerInfo(2), 0))
    desk.hears(2, sub)
    desk.hears(1, sub)
    assert desk.sent() == [(2, Ack(sub.id, (own,))), (1, Ack(sub.id, (own,)))]  # type: ignore[arg-type]


def test_what_comes_before_a_subscription_is_in_force_waits_for_it() -> None:
    """It could be handed on to those only of whom this node has heard so far."""
    desk = Desk(4)
    desk.router.join("t")
    asked = desk.sent()
    desk.hears(0, pub(source=0, height=2))
    own = desk.publish(b"own")
    assert desk.sent() == [] and desk.delivered == []
    for peer, msg in asked:
        desk.hears(peer, Ack(msg.id, (Standing(6, True, 1, 1),)))
    assert desk.delivered == [b"own", b"1"]
    assert sorted((peer, msg.id) for peer, msg in desk.sent()) == sorted([(6, pub(source=0).id), (6, own.id)])
    assert [row.kind for row in desk.env.traced].index(JOINED) < [row.kind for row in desk.env.traced].index(DELIVER)


def test_a_subscription_given_up_before_it_is_in_force_hands_nothing_on() -> None:
    desk = Desk(4)
    desk.router.join("t")
    desk.router.views.note("t", Standing(6, True, 1, 1))
    desk.sent()
    desk.hears(0, pub(source=0, height=2))
    desk.router.leave("t")
    assert (0, Decline(pub(source=0).id, Standing(4, False, 1, 0))) in desk.sent()
    assert desk.delivered == [] and desk.router.arrivals == {}


def test_what_waits_for_a_subscription_is_bounded() -> None:
    desk = Desk(4, config=VCubePBConfig(held_bytes=1_000))
    desk.router.join("t")
    for number in range(1, 100):
        desk.hears(2, pub(number))
    waiting = desk.router.waits["t"]
    assert 0 < waiting.bytes <= 1_000 and len(desk.router.arrivals) == len(waiting.came)


def test_who_was_never_told_who_subscribes_declines_and_the_next_of_its_cluster_is_asked() -> None:
    desk = Desk(4)
    desk.hears(0, pub(source=0, height=2))
    ((peer, msg),) = desk.sent()
    assert (peer, msg) == (0, Decline(pub(source=0).id, Standing(4, False, 1, 0)))
    root = Desk(0).subscribed(0, 4, 5)
    published = root.publish()
    root.sent()
    root.hears(4, Decline(published.id, Standing(4, False, 2, 0)))
    assert [(peer, msg.id) for peer, msg in root.sent()] == [(5, published.id)]
    assert not root.router.views.subscribers("t") >> 4 & 1


# Crashes.


def test_a_source_that_is_down_is_taken_over_by_who_has_its_message() -> None:
    desk = Desk(3).subscribed(0, 3, 5)
    desk.hears(2, pub(height=0))
    desk.sent()
    desk.is_down(2)
    assert [(peer, msg.height, msg.hops) for peer, msg in desk.sent()] == [(0, 1, 2), (5, 2, 2)]


def test_what_all_have_acknowledged_is_not_sent_again() -> None:
    desk = Desk(3).subscribed(0, 3)
    desk.hears(2, pub(1))
    desk.hears(2, pub(2, base=2))
    desk.sent()
    desk.is_down(2)
    assert [msg.number for _, msg in desk.sent()] == [2]


def test_what_comes_of_a_source_that_is_down_is_taken_over_at_once() -> None:
    desk = Desk(3).subscribed(0, 3, 5)
    desk.is_down(2)
    desk.hears(5, pub(height=0))
    assert [(peer, type(msg)) for peer, msg in desk.sent()][:2] == [(0, Pub), (5, Pub)]


def test_a_cluster_that_was_served_is_not_served_again() -> None:
    desk = Desk(4).subscribed(0, 4, 5, 6)
    desk.hears(2, pub(height=2))
    assert [peer for peer, _ in desk.sent()] == [5, 6]
    desk.is_down(2)
    assert [(peer, msg.height) for peer, msg in desk.sent()] == [(0, 2)]


def test_what_a_dead_child_was_to_hand_on_goes_to_the_next_of_its_cluster() -> None:
    desk = Desk(0).subscribed(0, 4, 5, 6)
    desk.publish()
    desk.sent()
    desk.is_down(4)
    assert [(peer, msg.height) for peer, msg in desk.sent()] == [(5, 2)]


# The order of one source.


def arrived(streams: Streams, number: int, whole: bool = True) -> list[int]:
    return [int(item.publication.data) for item in streams.arrived(KEY, number, Item(pub(number).publication(), 1), whole)]


def test_the_first_of_a_source_needs_no_other_if_it_is_its_first_or_older_ones_are_from_before() -> None:
    desk = Desk(3).subscribed(2, 3)
    desk.env.advance(SECOND)
    desk.hears(2, pub(7, elder=None))
    desk.hears(5, pub(9, source=5, elder=2 * SECOND))
    assert desk.delivered == [b"7", b"9"] and desk.env.take_requests() == []


def test_the_first_that_comes_and_is_not_the_first_of_its_source_waits_for_what_is_missing() -> None:
    desk = Desk(3).subscribed(2, 3)
    desk.env.advance(5 * SECOND)
    desk.hears(2, pub(7, elder=SECOND))
    ((request),) = desk.env.take_requests()
    assert (request.peer, request.msg) == (2, AskMissing("t", Position(2, 1, 0), 7, 5 * SECOND))
    request.reply(Missing((6,)))
    assert desk.delivered == []
    desk.hears(2, pub(6, elder=SECOND))
    assert desk.delivered == [b"6", b"7"]


def test_a_source_that_has_nothing_older_says_so() -> None:
    desk = Desk(3).subscribed(2, 3)
    desk.env.advance(5 * SECOND)
    desk.hears(2, pub(7, elder=SECOND))
    desk.env.take_requests()[0].reply(Missing(()))
    assert desk.delivered == [b"7"]


def test_a_source_that_does_not_answer_has_not_said_that_there_is_nothing_older() -> None:
    desk = Desk(3).subscribed(2, 3)
    desk.env.advance(5 * SECOND)
    desk.hears(2, pub(7, elder=SECOND))
    desk.env.take_requests()[0].fail("timeout")
    assert desk.delivered == []
    desk.hears(0, pub(6, elder=SECOND))
    for _ in range(ASKS):
        desk.env.advance(AGAIN)
        for request in desk.env.take_requests():
            request.fail("timeout")
    assert desk.delivered == [b"6", b"7"]


def test_a_gap_is_asked_for_in_turn_and_given_up_only_when_nobody_has_it() -> None:
    desk = Desk(3).subscribed(0, 2, 3)
    desk.hears(2, pub(1))
    desk.hears(2, pub(3, base=3, elder=1))
    asked = []
    for _ in range(ASKS):
        ((request),) = desk.env.take_requests()
        asked.append(request.peer)
        assert desk.delivered == [b"1"]
        request.reply(Missing(()))
        desk.env.advance(AGAIN)
    assert asked[0] == 2 and set(asked) == {0, 2}
    assert desk.delivered == [b"1", b"3"] and desk.router.recovery.streams.skipped == 1
    desk.hears(2, pub(2))
    assert desk.delivered == [b"1", b"3"], "too late"


def test_a_stream_with_many_gaps_is_asked_for_once_a_second_and_each_gap_as_often_as_a_single_one() -> None:
    desk = Desk(3).subscribed(0, 2, 3)
    desk.hears(2, pub(1))
    for turn in range(2 * ASKS):
        for number in range(3 + 8 * turn, 11 + 8 * turn, 2):
            desk.hears(2, pub(number, base=0, elder=1))
        (request,) = desk.env.take_requests()
        assert request.msg.position.next == (2 if turn < ASKS else 4)  # type: ignore[attr-defined]
        request.reply(Missing(()))
        desk.env.advance(AGAIN)
    assert desk.delivered == [b"1", b"3", b"5"]


def test_what_comes_while_a_gap_is_asked_for_gives_the_next_gap_all_its_asks() -> None:
    desk = Desk(3).subscribed(0, 2, 3)
    for number in (1, 3, 5):
        desk.hears(2, pub(number, base=0, elder=1 if number > 1 else None))
    for _ in range(ASKS - 1):
        desk.env.take_requests()[0].reply(Missing(()))
        desk.env.advance(AGAIN)
    desk.hears(0, pub(2, elder=1))
    for _ in range(ASKS):
        assert desk.delivered == [b"1", b"2", b"3"]
        for request in desk.env.take_requests():
            request.reply(Missing(()))
        desk.env.advance(AGAIN)
    desk.hears(0, pub(4, elder=1))
    assert desk.delivered == [b"1", b"2", b"3", b"4", b"5"]


def test_a_message_that_the_application_refused_is_not_kept_for_others() -> None:
    desk = Desk(0).subscribed(0, 1, 2)
    desk.app.validates = True
    desk.app.validate = lambda sender, publication, answer: answer(Verdict.REJECT)  # type: ignore[method-assign]
    for sender in (2, 1, 2):
        desk.hears(sender, pub(1))
    desk.sent()
    ask(desk.router, 1, AskSince("t", 1, 5, LONG, ()), lambda msg: None)
    assert [msg for _, msg in desk.sent() if isinstance(msg, Pub)] == []


def refusing(desk: Desk, data: bytes) -> Desk:
    desk.app.validates = True
    desk.app.validate = lambda sender, publication, answer: answer(  # type: ignore[method-assign]
        Verdict.REJECT if publication.data == data else Verdict.ACCEPT
    )
    return desk


def test_a_copy_that_an_order_asked_for_and_the_application_refused_is_neither_kept_nor_handed_on() -> None:
    desk = refusing(Desk(0).subscribed(0, 1, 2, 3), b"1")
    desk.router.brought(5, pub(1).publication())
    desk.hears(2, pub(1, height=2))
    assert [msg for _, msg in desk.sent() if isinstance(msg, Pub)] == [] and len(desk.router.recovery.kept) == 0


def test_one_that_was_refused_before_the_subscription_was_in_force_holds_nothing_up() -> None:
    desk = refusing(Desk(3).subscribed(2), b"2")
    desk.router.join("t")
    said = desk.sent()
    desk.hears(2, pub(1))
    desk.hears(2, pub(2, elder=1))
    for child, msg in said:
        desk.hears(child, Ack(msg.id, ()))
    desk.hears(2, pub(3, elder=1))
    (request,) = desk.env.take_requests()
    request.reply(Missing((2,)))
    desk.hears(2, pub(2, elder=1))
    assert desk.delivered == [b"1", b"3"]


def test_a_source_with_many_lives_costs_no_other_what_waits_of_it() -> None:
    desk = Desk(3).subscribed(2, 3, 4)
    desk.hears(2, pub(1))
    desk.hears(2, pub(3, elder=1))
    for epoch in range(1, STREAMS + 2):
        desk.hears(4, pub(1, source=4, epoch=epoch))
    desk.hears(2, pub(2, elder=1))
    streams = desk.router.recovery.streams
    assert [p.data for p in desk.app.delivered if p.id.source == 2] == [b"1", b"2", b"3"]
    assert streams.shares == {2: 1, 4: STREAMS // 2} and len(streams.streams) == STREAMS // 2 + 1


def test_what_was_promised_and_does_not_come_is_asked_for_again() -> None:
    desk = Desk(3).subscribed(2, 3)
    desk.hears(2, pub(1))
    desk.hears(2, pub(3, elder=1))
    desk.env.take_requests()[0].reply(Missing((2,)))
    desk.env.advance(AGAIN)
    assert len(desk.env.take_requests()) == 1
    desk.hears(2, pub(2))
    assert desk.delivered == [b"1", b"2", b"3"]


def test_who_is_asked_sends_what_came_since_and_says_what_it_is() -> None:
    desk = Desk(0).subscribed(0, 3).registered()
    desk.publish(b"old")
    desk.env.advance(10 * SECOND)
    new = desk.publish(b"new")
    (_, old_message), *_, (_, message) = desk.sent()
    said: list[Message] = []
    ask(desk.router, 3, AskMissing("t", Position(0, new.id.epoch, 0), message.number + 1, 5 * SECOND), said.append)
    assert said == [Missing((message.number,))]
    assert [(peer, msg.number, msg.height) for peer, msg in desk.sent()] == [(3, message.number, 0)]
    ask(desk.router, 3, AskMissing("t", Position(0, new.id.epoch, 0), message.number, LONG), said.append)
    assert said[1:] == [Missing((old_message.number,))]


@given(st.lists(st.integers(0, 40), unique=True, min_size=1, max_size=40), st.integers(0, 1 << 30), st.booleans())
def test_any_order_of_arrival_is_handed_up_in_order_and_once(numbers: list[int], seed: int, whole: bool) -> None:
    rng, asked = Random(seed), list[Any]()
    streams = Streams(1 << 20, asked.append)
    out: list[int] = []
    order = rng.sample(numbers, len(numbers))
    for number in [*order, *rng.sample(numbers, len(numbers) // 2)]:
        out += arrived(streams, number, whole)
    while streams.gap(KEY) is not None:
        out += [int(item.publication.data) for item in streams.give_up(KEY)]
    kept = [number for number in numbers if not whole or number >= order[0]]
    assert out == sorted(kept)
    assert streams.bytes == 0


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 10)), max_size=60), st.integers(1, 12))
def test_what_is_kept_stays_in_its_bounds_and_is_found_again(steps: list[tuple[int, int, int]], count: int) -> None:
    kept, now, there = Kept(count, 1 << 12, 50), 0, dict[tuple[int, int], int]()
    for source, number, wait in steps:
        now += wait
        kept.add(pub(number, source=source, base=0), now)
        there.setdefault((source, number), now)
        assert len(kept) <= count and kept.bytes <= 1 << 12
    found = {(m.id.source, m.number) for m in kept.since("t", 0)}
    assert found <= there.keys() and len(found) == len(kept)
    for source in range(3):
        mine = [m.number for m in kept.between((source, "t", 1), 0, 31, 0)]
        assert mine == sorted(number for other, number in found if other == source)
        assert [m.number for m in kept.unacknowledged(source)] == [m.number for m in kept.since("t", 0) if m.id.source == source]


def test_what_waits_in_a_stream_is_bounded() -> None:
    streams = Streams(1 << 20, lambda key: None)
    for number in range(2, 3 * WINDOW):
        arrived(streams, number, whole=False)
        assert len(streams.streams[KEY].held) <= WINDOW
    assert streams.streams[KEY].next > UNKNOWN


# A detector that is wrong.


def test_who_hears_that_it_was_taken_for_down_subscribes_again_and_asks_others_what_it_missed() -> None:
    desk = Desk(3).subscribed(0, 1, 2, 3, 5).registered("u")
    desk.hears(2, pub(4))
    desk.sent()
    desk.is_down(3)
    desk.env.advance(SETTLED)
    changes = [msg for peer, msg in desk.sent() if peer == 2]
    assert [type(msg) for msg in changes] == [Sub, Reg]
    assert desk.app.in_force == ["t"]
    for peer in (2, 1, 7):
        for change in changes:
            desk.hears(peer, Ack(change.id, ()))
    requests = desk.env.take_requests()
    assert len(requests) == 3 and {request.peer for request in requests} <= {0, 1, 2, 5}
    own = desk.router.views.of("t", 3)
    assert own is not None
    assert requests[0].msg == AskSince("t", own.epoch, own.sequence, SETTLED, (Position(2, 1, 5),))
    assert desk.app.in_force == ["t"], "it was, all the time"


def test_a_member_that_is_back_is_asked_for_what_came_to_it() -> None:
    desk = Desk(3).subscribed(3, 5)
    desk.is_down(5)
    desk.env.take_requests()
    desk.is_up(5)
    assert [(request.peer, type(request.msg)) for request in desk.env.take_requests()] == [(5, AskSince)]


def test_one_who_always_has_more_is_asked_once_at_a_time_however_often_it_comes_back() -> None:
    desk = Desk(3).subscribed(3, 5)
    desk.env.take_requests()
    for counter in range(1, 5):
        receive(desk.cube, 1, News((Member(5, PeerInfo(5), counter),), 0))
    requests = desk.env.take_requests()
    assert len(requests) == 2
    for request in requests:
        request.reply(Since(True))
    desk.env.advance(AGAIN)
    assert [(request.peer, type(request.msg)) for request in desk.env.take_requests()] == [(5, AskSince)]


def test_a_forged_copy_has_no_number_of_its_source_s_and_is_not_kept() -> None:
    desk = Desk(3).subscribed(2, 3)
    desk.router.signing = Seal()  # type: ignore[assignment]
    true = sealed(pub(1))
    false = replace(true, data=b"lies", signature=b"false")
    desk.hears(6, false)
    desk.router.brought(5, true.publication())
    desk.hears(6, false)
    assert len(desk.router.recovery.kept) == 0
    desk.hears(2, true)
    assert desk.delivered == [b"1"] and len(desk.router.recovery.kept) == 1


def test_who_is_asked_what_it_has_sends_what_the_other_lacks_and_knows_it_for_a_subscriber() -> None:
    desk = Desk(3).subscribed(2, 3)
    for number in (4, 5, 6):
        desk.hears(2, pub(number))
    desk.hears(1, pub(1, source=1))
    desk.sent()
    said: list[Message] = []
    ask(desk.router, 6, AskSince("t", 1, 1, LONG, (Position(2, 1, 6),)), said.append)
    assert said == [Since(False)]
    assert [(peer, msg.id.source, msg.number) for peer, msg in desk.sent()] == [(6, 2, 6), (6, 1, 1)]
    assert desk.router.views.subscribers("t") >> 6 & 1


def test_a_copy_that_an_order_asked_for_is_delivered_once_and_fills_the_gap_of_its_number() -> None:
    desk = Desk(3).subscribed(2, 3)
    desk.hears(2, pub(1))
    desk.router.brought(5, pub(2).publication())
    desk.router.brought(5, pub(2).publication())
    assert desk.delivered == [b"1", b"2"]
    desk.hears(2, pub(3, elder=1))
    assert desk.delivered == [b"1", b"2"]
    desk.hears(2, pub(2, elder=1))
    assert desk.delivered == [b"1", b"2", b"3"]


# The fixed root.


def test_with_a_fixed_root_the_publisher_sends_to_it_and_it_serves_all() -> None:
    fixed = VCubePBConfig(fixed_root=True)
    desk = Desk(6, config=fixed, oracle=True)
    census = desk.cube.census
    assert census is not None
    desk.router.join("t")
    census.subscribers["t"] |= 0b1111_0111
    published = desk.publish()
    ((peer, msg),) = desk.sent()
    assert (peer, msg.height) == (0, DIMENSION)
    root = Desk(0, config=fixed, oracle=True)
    assert root.cube.census is not None
    root.cube.census.subscribers["t"] = 0b1111_0111
    root.hears(6, msg)
    assert [(peer, msg.height) for peer, msg in root.sent()] == [(1, 0), (2, 1), (4, 2)]
    desk.hears(4, msg.to(1))
    assert [(peer, msg.id) for peer, msg in desk.sent()] == [(7, published.id)]


# The border.


def test_a_filter_and_another_overlay_are_refused() -> None:
    with pytest.raises(UsageError, match="by topic"):
        Desk().router.join(Filter(()))
    with pytest.raises(UsageError, match="by topic"):
        Desk().router.advertise(Filter(()))
    with pytest.raises(UsageError, match="Static has no places"):
        VCubePB(FakeEnv(), Static(FakeEnv(), (), ()), Inbox())


@pytest.mark.parametrize(
    "msg",
    [
        pub(source=b"bytes"),
        pub(1, base=2),
        pub(1, elder=-1),
        pub(height=DIMENSION + 1),
        replace(reg(), member=Member(3, PeerInfo(3), 0)),
        Unreg(MessageId(2, 1, -1), "t", 0),
        Decline(MessageId(0, 1, 1), Standing(5, False, 1, 1)),
        Decline(MessageId(0, 1, 1), Standing(2, True, 1, 1)),
    ],
)
def test_what_no_member_says_is_its_sender_s_fault(msg: Message) -> None:
    with pytest.raises(PeerError):
        Desk(3).subscribed(3).hears(2, msg)


@pytest.mark.parametrize(
    "msg",
    [
        AskMissing("t", Position(b"bytes", 1, 1), 2, 0),
        AskMissing("t", Position(2, 1, -1), 2, 0),
        AskMissing("t", Position(2, 1, 1), NUMBER + 1, 0),
        AskSince("t", -1, 0, 0, ()),
        AskSince("t", 1, 0, 0, (Position(2, -1, 0),)),
    ],
)
def test_what_no_member_asks_is_its_sender_s_fault(msg: Message) -> None:
    with pytest.raises(PeerError):
        ask(Desk(3).subscribed(3).router, 2, msg, lambda reply: None)


NUMBERS = st.integers(0, NUMBER)
PEERS = st.binary(min_size=1, max_size=40)
IDS = st.builds(MessageId, PEERS, NUMBERS, NUMBERS)
TOPICS = st.text(max_size=20)
STANDINGS = st.builds(Standing, PEERS, st.booleans(), NUMBERS, NUMBERS)
POSITIONS = st.builds(Position, PEERS, NUMBERS, NUMBERS)
HEIGHTS = st.integers(0, DIMENSION)
MEMBERS = st.builds(Member, st.integers(0, 99), st.builds(PeerInfo, PEERS), NUMBERS)
SAID = st.one_of(
    st.builds(
        Pub, IDS, TOPICS, st.binary(max_size=50), st.none(), st.just(()), st.binary(max_size=9), st.binary(max_size=9),
        NUMBERS, NUMBERS, st.integers(0, 99), HEIGHTS, st.none() | NUMBERS,
    ),
    st.builds(Reg, IDS, TOPICS, HEIGHTS, MEMBERS),
    st.builds(Sub, IDS, TOPICS, HEIGHTS, MEMBERS),
    st.builds(Uns, IDS, TOPICS, HEIGHTS),
    st.builds(Unreg, IDS, TOPICS, HEIGHTS),
    st.builds(Ack, IDS, st.lists(STANDINGS, max_size=5).map(tuple)),
    st.builds(Told, st.lists(st.tuples(TOPICS, NUMBERS, NUMBERS), max_size=5).map(tuple)),
    st.builds(Decline, IDS, STANDINGS),
    st.builds(AskMissing, TOPICS, POSITIONS, NUMBERS, NUMBERS),
    st.builds(Missing, st.lists(NUMBERS, max_size=9).map(tuple)),
    st.builds(AskSince, TOPICS, NUMBERS, NUMBERS, NUMBERS, st.lists(POSITIONS, max_size=5).map(tuple)),
    st.builds(Since, st.booleans()),
)  # fmt: skip


@given(SAID)
def test_every_message_passes_the_codec(msg: Message) -> None:
    assert list(CODEC.unpack(CODEC.pack([msg])[0])) == [msg]


@given(st.binary(max_size=200))
def test_what_is_no_message_is_its_sender_s_fault(frame: bytes) -> None:
    try:
        CODEC.unpack(frame)
    except PeerError:
        return


def test_options_out_of_bounds_are_refused() -> None:
    for name, value in (("window", 0), ("window", WINDOW + 1), ("kept", 0)):
        with pytest.raises(UsageError, match=rf"router\.{name} is {value}; it must be at"):
            stacks.check(STACK, {}, {name: value}, 10)


# Whole networks.


def router_of(machines: Sequence[Machine]) -> Router:
    router = machines[-1]
    assert isinstance(router, Router)
    return router


@given(st.integers(1, 20), st.integers(0, 1 << 30), st.sampled_from([1, 3, 16]))
@settings(max_examples=10, deadline=None)
def test_each_subscriber_has_each_message_once_and_those_of_a_source_in_order(nodes: int, seed: int, window: int) -> None:
    rng, apps = Random(seed), [Inbox() for _ in range(nodes)]
    stack = stacks.find(STACK, {"start": "order", "round_every": 10 * SECOND}, {"window": window})
    sim = Simulator(seed, Uniform(low=1.0, high=200.0))
    for contacts, app in zip(stack.introduce(nodes, rng), apps, strict=True):
        sim.add(stack.node(contacts, app))
    subscribers = sorted(rng.sample(range(nodes), rng.randint(1, nodes)))
    for node in subscribers:
        router_of(sim.nodes[node].machines).join("t")
    sim.run(20 * SECOND)
    said: dict[int, list[bytes]] = {node: [] for node in range(nodes)}
    for turn in range(20):
        node = rng.randrange(nodes)
        router = router_of(sim.nodes[node].machines)
        router.publish(router.compose("t", b"%d" % turn))
        said[node].append(b"%d" % turn)
    sim.run(100 * SECOND)
    for node, app in enumerate(apps):
        heard = {source: [p.data for p in app.delivered if p.id.source == source] for source in range(nodes)}
        assert heard == (said if node in subscribers else {source: [] for source in range(nodes)})


def test_nodes_that_join_on_a_wire_with_the_codec_hear_each_other() -> None:
    wire, apps = FakeWire(codec=True), [Inbox() for _ in range(7)]
    stack = stacks.find(STACK, {}, {})
    for number, app in enumerate(apps):
        wire.add(stack.node((0,) if number else (), app))
        wire.run()
        router_of(wire.nodes[-1].machines).join("t")
    wire.run(SECOND)
    for node in wire.nodes:
        router = router_of(node.machines)
        router.publish(router.compose("t", b"%d" % node.me))
    wire.run(SECOND)
    assert wire.errors == []
    assert all(sorted(p.data for p in app.delivered) == [b"%d" % number for number in range(7)] for app in apps)


def scenario(**more: Any) -> Scenario:
    return replace(Scenario(stack=STACK, nodes=50, workload=Workload(messages=40)), **more)


@pytest.mark.parametrize("start", ["join", "order", "oracle"])
@pytest.mark.parametrize("share", [1.0, 0.25])
def test_a_quiet_network_sends_one_copy_a_subscriber_and_none_to_others(start: str, share: float) -> None:
    work = Workload(messages=20, subscribers=share, publishers=share)
    result = run(scenario(overlay={"start": start}, workload=work))
    assert (result["reliability_min"], result["rmr"], result["false_positives"]) == (1.0, 0.0, 0.0)
    assert result["payload_per_delivery"] == 1.0
    assert result["ldh_max"] <= 6


def test_survivors_of_a_mass_crash_have_every_message_of_survivors() -> None:
    crash = MassCrash(at=7.0, share=0.3)
    result = run(scenario(faults=(crash,), window=60.0, overlay={"start": "order"}))
    assert result["messages"] == 40 and result["reliability_min"] == 1.0


def test_nodes_that_start_again_at_once_hold_nothing_up() -> None:
    """The others have not noticed, and hand them messages as before; but they know of no subscriber."""
    again = Restart(at=7.0, nodes=(3, 7, 11), down=0.2, state=False)
    result = run(scenario(nodes=16, faults=(again,), window=60.0, overlay={"start": "order"}))
    assert result["reliability_min"] == 1.0


def test_subscriptions_that_come_and_go_lose_nothing() -> None:
    result = run(scenario(churn=Churn(subscriptions=10.0), overlay={"start": "order"}, nodes=30))
    assert result["reliability_min"] == 1.0
