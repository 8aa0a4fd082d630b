"""VCube-PS: each rule of its two algorithms by hand, what it does where nodes crash, and whole networks in every world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from libweft.bench.runs.run import build, run
from libweft.bench.runs.scenario import Churn, Scenario, Workload
from libweft.bench.runs.workload import Workload as Crowds
from libweft.overlays.static import Static
from libweft.overlays.vcube.cube import DIMENSION
from libweft.overlays.vcube.machine import VCube
from libweft.overlays.vcube.members import Census, Founders
from libweft.overlays.vcube.messages import Admitted, Member, News, Report
from libweft.peer.codec import msgpack
from libweft.peer.dispatch import ask, receive
from libweft.peer.errors import PeerError, Refused, UsageError
from libweft.peer.fake.env import FakeEnv
from libweft.peer.fake.wire import FakeWire
from libweft.peer.machine import SECOND, Machine, Message, MessageId, Peer, PeerInfo
from libweft.peer.sim.faults import MassCrash
from libweft.peer.sim.latency import Uniform
from libweft.peer.sim.simulator import Simulator
from libweft.peer.trace.kinds import DUPLICATE, REJECT
from libweft.pubsub import stacks
from libweft.pubsub.claims import NUMBER
from libweft.pubsub.interests import Filter
from libweft.pubsub.message import Publication, Verdict
from libweft.pubsub.router import Router
from libweft.pubsub.vcube_ps import streams
from libweft.pubsub.vcube_ps.config import WINDOW, VCubePSConfig
from libweft.pubsub.vcube_ps.messages import Ack, AskFloor, Floor, Pub, Reg, Standing, Sub, Told, Uns
from libweft.pubsub.vcube_ps.router import FLOORS, VCubePS
from libweft.pubsub.vcube_ps.streams import Item, Streams
from libweft.pubsub.vcube_ps.trees import RESTLESS, SETTLED, STIRRED
from tests.pubsub.apps import Inbox, Seal, sealed

GATE = VCubePSConfig(window=1)
STACK = "vcube/vcube-ps"
HERE = ("/ip4/127.0.0.1/tcp/0",)


class Judge(Inbox):
    """Holds every verdict back until the test speaks it."""

    validates = True

    def __init__(self) -> None:
        super().__init__()
        self.cases: list[Callable[[Verdict], None]] = []

    def validate(self, sender: Peer, publication: Publication, answer: Callable[[Verdict], None]) -> None:
        self.cases.append(answer)


class Desk:
    """One router at a place of a cube whose members know each other."""

    def __init__(
        self, me: int = 0, nodes: int = 8, config: VCubePSConfig | None = None, app: Inbox | None = None, oracle: bool = False
    ) -> None:
        self.app = app or Inbox()
        self.below, self.env = FakeEnv(me=me), FakeEnv(me=me)
        self.cube = VCube(self.below, (Census if oracle else Founders)(nodes))
        self.router = VCubePS(self.env, self.cube, self.app, config or VCubePSConfig())
        self.cube.start()
        self.router.start()

    def subscribed(self, *peers: int, topic: str = "t") -> Desk:
        """These are, this node too if it is one of them, and all of it is acknowledged."""
        for peer in peers:
            if peer == self.env.me:
                self.router.join(topic)
                for child, msg in self.env.take():
                    receive(self.router, child, Ack(msg.id, ()))  # type: ignore[attr-defined]
            else:
                self.router.views.note(topic, Standing(peer, True, 1, 1))
        self.env.take()
        self.env.take_traced()
        return self

    def publish(self, data: bytes = b"data", topic: str = "t") -> Publication:
        publication = self.router.compose(topic, data)
        self.router.publish(publication)
        return publication

    def sent(self) -> list[tuple[Peer, Any]]:
        return self.env.take()

    def hears(self, sender: Peer, msg: Message) -> None:
        receive(self.router, sender, msg)


def pub(sequence: int = 1, source: Peer = 2, number: int = 1, base: int | None = None, height: int = 0, epoch: int = 1) -> Pub:
    key = MessageId(source, epoch, sequence)
    return Pub(key, "t", b"%d" % number, None, (), b"", b"", number, number if base is None else base, 1, height)


def sub(source: int = 2, sequence: int = 1, height: int = 0) -> Sub:
    return Sub(MessageId(source, 1, sequence), "t", height, Member(source, PeerInfo(source), 0))


# The trees.


def test_a_publication_goes_to_the_first_subscriber_of_each_cluster() -> None:
    """Node 2 of the paper's Figure 3, on the right."""
    desk = Desk(2).subscribed(0, 2, 3, 5, 7)
    desk.publish()
    assert [(peer, msg.height) for peer, msg in desk.sent()] == [(3, 0), (0, 1), (7, 2)]


def test_who_is_reached_in_cluster_s_serves_the_clusters_below() -> None:
    desk = Desk(7).subscribed(0, 2, 3, 5, 7)
    desk.hears(2, pub(height=2))
    ((peer, msg),) = desk.sent()
    assert (peer, msg.height, msg.hops) == (5, 1, 2)
    assert [p.data for p in desk.app.delivered] == [b"1"]


def test_a_subscription_goes_to_all_and_says_where_its_source_is() -> None:
    desk = Desk(0).subscribed(3)
    desk.router.join("t")
    sent = desk.sent()
    assert [(peer, msg.height) for peer, msg in sent] == [(1, 0), (2, 1), (4, 2)]
    assert all(isinstance(msg, Sub) and msg.member == Member(0, PeerInfo(0), 0) for _, msg in sent)


def test_an_unsubscription_goes_to_the_subscribers_alone() -> None:
    desk = Desk(0).subscribed(0, 3, 5)
    desk.router.leave("t")
    assert [(peer, type(msg)) for peer, msg in desk.sent()] == [(3, Uns), (5, Uns)]


def test_who_does_not_subscribe_may_publish() -> None:
    desk = Desk(0).subscribed(3, 5)
    desk.publish()
    assert [peer for peer, _ in desk.sent()] == [3, 5]
    assert desk.app.delivered == []


# Acknowledgements.


def test_a_leaf_acknowledges_at_once() -> None:
    desk = Desk(3).subscribed(2, 3)
    desk.hears(2, pub())
    own = desk.router.views.of("t", 3)
    assert own is not None
    assert desk.sent() == [(2, Ack(pub().id, (own,)))]
    desk.hears(2, pub(2, number=2))
    assert desk.sent() == [(2, Ack(pub(2).id, ()))]  # by now the source knows this subscriber


def test_others_acknowledge_when_all_below_have_and_hand_on_what_these_said() -> None:
    desk = Desk(4).subscribed(0, 4, 5, 6)
    desk.hears(0, pub(source=0, height=2))
    assert [peer for peer, _ in desk.sent()] == [5, 6]
    desk.hears(5, Ack(pub(source=0).id, (Standing(5, False, 1, 9),)))
    assert desk.sent() == []
    desk.hears(6, Ack(pub(source=0).id, ()))
    ((peer, ack),) = desk.sent()
    assert peer == 0 and {s.peer: s.subscribed for s in ack.view} == {4: True, 5: False}
    assert desk.router.views.subscribers("t") == 1 << 0 | 1 << 4 | 1 << 6


def test_a_subscription_is_in_force_when_all_have_acknowledged_it_and_tells_who_subscribes() -> None:
    desk = Desk(0)
    desk.router.join("t")
    (one, msg), (two, _), (four, _) = desk.sent()
    desk.hears(one, Ack(msg.id, ()))
    desk.hears(two, Ack(msg.id, (Standing(3, True, 1, 1),)))
    assert desk.app.in_force == []
    desk.hears(four, Ack(msg.id, (Standing(5, True, 1, 1), Standing(6, True, 1, 1))))
    assert desk.app.in_force == ["t"]
    assert desk.router.views.subscribers("t") == 1 << 0 | 1 << 3 | 1 << 5 | 1 << 6


def test_a_subscriber_answers_a_subscription_with_its_own() -> None:
    desk = Desk(3).subscribed(3)
    desk.hears(2, sub())
    own = desk.router.views.of("t", 3)
    assert desk.sent() == [(2, Ack(sub().id, (own,)))]  # type: ignore[arg-type]
    assert desk.router.views.subscribers("t") == 1 << 2 | 1 << 3


def test_the_newest_standing_of_a_peer_wins() -> None:
    desk = Desk(3).subscribed(3)
    desk.hears(2, sub(sequence=4))
    desk.hears(2, Uns(MessageId(2, 1, 3), "t", 0))
    assert desk.router.views.subscribers("t") >> 2 & 1
    desk.hears(2, Uns(MessageId(2, 1, 5), "t", 0))
    assert not desk.router.views.subscribers("t") >> 2 & 1


def test_who_has_left_forwards_what_still_comes_and_says_that_it_left() -> None:
    desk = Desk(4).subscribed(0, 4, 5)
    desk.router.leave("t")
    desk.env.take()
    desk.hears(0, pub(source=0, height=2))
    ((peer, msg),) = desk.sent()
    assert (peer, type(msg)) == (5, Pub)
    desk.hears(5, Ack(msg.id, ()))
    ((_, ack),) = desk.sent()
    assert [(s.peer, s.subscribed) for s in ack.view] == [(4, False)]
    assert desk.app.delivered == []


# The gate and the window.


def test_the_paper_s_gate_lets_one_through_at_a_time() -> None:
    desk = Desk(0, config=GATE).subscribed(0, 1)
    first, second = desk.publish(b"1"), desk.publish(b"2")
    ((_, msg),) = desk.sent()
    assert msg.id == first.id
    assert desk.router.unplaced() > 0
    desk.hears(1, Ack(first.id, ()))
    ((_, msg),) = desk.sent()
    assert (msg.id, msg.number, msg.base) == (second.id, 2, 2)
    assert desk.router.unplaced() > 0  # a link to whom it is sent may not be up yet
    desk.hears(1, Ack(second.id, ()))
    assert desk.router.unplaced() == 0


def test_gates_of_two_topics_are_two() -> None:
    desk = Desk(0, config=GATE).subscribed(1).subscribed(1, topic="u")
    desk.publish()
    desk.publish(topic="u")
    assert [msg.topic for _, msg in desk.sent()] == ["t", "u"]


def test_a_window_lets_several_through_and_says_what_is_acknowledged() -> None:
    desk = Desk(0, config=VCubePSConfig(window=2)).subscribed(0, 1)
    one, two, three = desk.publish(), desk.publish(), desk.publish()
    assert [(msg.id, msg.number - msg.base) for _, msg in desk.sent()] == [(one.id, 0), (two.id, 1)]
    desk.hears(1, Ack(two.id, ()))
    ((_, msg),) = desk.sent()
    assert (msg.id, msg.number - msg.base) == (three.id, 2)


def test_a_subscription_goes_alone_and_publications_wait_for_it() -> None:
    desk = Desk(0, nodes=2)
    desk.router.join("t")
    desk.router.views.note("t", Standing(1, True, 1, 1))
    published = desk.publish()
    ((_, msg),) = desk.sent()
    assert isinstance(msg, Sub)
    desk.hears(1, Ack(msg.id, ()))
    assert [msg.id for _, msg in desk.sent()] == [published.id]


def test_who_has_no_place_yet_waits() -> None:
    below, env = FakeEnv(me=0), FakeEnv(me=0)
    cube = VCube(below, (1,))
    router = VCubePS(env, cube, app := Inbox())
    cube.start()
    router.join("t")
    router.publish(router.compose("t", b"early"))
    assert env.take() == [] and app.in_force == []


def newcomer() -> Desk:
    """At place 1, admitted by the one at place 0; there is one more at place 2."""
    desk = Desk.__new__(Desk)
    desk.app, desk.below, desk.env = Inbox(), FakeEnv(me=1), FakeEnv(me=1)
    desk.cube = VCube(desk.below, (0,))
    desk.router = VCubePS(desk.env, desk.cube, desk.app)
    desk.cube.start()
    members = tuple(Member(place, PeerInfo(place), 0) for place in range(3))
    for answer in (Admitted(members[1]), Report(members[0], members, 1, 3, False)):
        desk.below.take_requests()[0].reply(answer)
    assert desk.cube.ready
    desk.env.take()
    return desk


def test_a_newcomer_that_publishes_asks_first_who_subscribes() -> None:
    desk = newcomer()
    first = desk.publish(b"1")
    asked = desk.sent()
    assert [(peer, type(msg)) for peer, msg in asked] == [(0, Reg), (2, Reg)]
    assert desk.router.unplaced() > 0
    desk.hears(0, Ack(asked[0][1].id, ()))
    assert desk.sent() == []
    desk.hears(2, Ack(asked[0][1].id, (Standing(2, True, 1, 1),)))
    assert [(peer, msg.id) for peer, msg in desk.sent()] == [(2, first.id)]
    desk.hears(2, Ack(first.id, ()))
    second = desk.publish(b"2")
    assert [(peer, msg.id) for peer, msg in desk.sent()] == [(2, second.id)]  # once for all


def test_who_subscribes_asks_by_that_and_who_has_another_place_asks_again() -> None:
    desk = newcomer()
    desk.router.join("t")
    desk.publish()
    assert {type(msg) for _, msg in desk.sent()} == {Sub}
    other = newcomer()
    other.publish()
    for peer, msg in other.sent():
        other.hears(peer, Ack(msg.id, ()))
    other.router.placed()
    other.publish()
    assert {type(msg) for _, msg in other.sent()} == {Reg}


def test_who_registers_is_no_subscriber() -> None:
    desk = Desk(0).subscribed(0)
    desk.hears(2, Reg(MessageId(2, 1, 1), "t", 0, Member(2, PeerInfo(2), 0)))
    ((peer, ack),) = desk.sent()
    assert (peer, [standing.peer for standing in ack.view]) == (2, [0])
    assert desk.router.views.subscribers("t") == 1


def test_who_asks_again_hears_all_that_was_gathered() -> None:
    """The first ACK may be lost with its link."""
    desk = Desk(0)
    asks = Reg(MessageId(2, 1, 1), "t", 1, Member(2, PeerInfo(2), 0))
    desk.hears(2, asks)
    ((child, _),) = desk.sent()
    desk.hears(child, Ack(asks.id, (Standing(child, True, 1, 1),)))
    (first,) = desk.sent()
    desk.hears(2, asks)
    assert desk.sent() == [first] == [(2, Ack(asks.id, (Standing(1, True, 1, 1),)))]


def test_many_that_end_at_once_are_no_deep_stack() -> None:
    desk = Desk(0, nodes=1, config=GATE)
    for _ in range(3_000):
        desk.publish()
    assert desk.router.unplaced() == 0


def test_beyond_the_bytes_that_may_wait_a_message_is_refused() -> None:
    desk = Desk(0, config=VCubePSConfig(window=1, held_bytes=1_000)).subscribed(1)
    for _ in range(5):
        desk.publish(bytes(400))
    assert desk.router.refused == 2
    assert [row.kind for row in desk.env.traced if row.reason] == [REJECT] * 2


# Per-source FIFO reception.


def test_one_that_overtook_another_waits_for_it() -> None:
    desk = Desk(3).subscribed(2, 3)
    desk.hears(2, pub(1, number=1))
    desk.hears(2, pub(3, number=3, base=2))
    assert [p.data for p in desk.app.delivered] == [b"1"]
    ((request),) = desk.env.take_requests()
    assert (request.peer, request.msg) == (2, AskFloor("t", 3))
    desk.hears(1, pub(2, number=2, base=1))
    assert [p.data for p in desk.app.delivered] == [b"1", b"2", b"3"]
    assert sum(isinstance(msg, Ack) for _, msg in desk.sent()) == 3  # it is forwarded and acknowledged all the same


def test_what_is_acknowledged_and_did_not_come_was_for_others() -> None:
    desk = Desk(3).subscribed(2, 3)
    desk.hears(2, pub(5, number=5, base=3))
    assert desk.app.delivered == []
    desk.env.take_requests()[0].reply(Floor(5))
    assert [p.data for p in desk.app.delivered] == [b"5"]
    desk.hears(2, pub(8, number=8, base=7))
    desk.hears(2, pub(9, number=9, base=8))
    assert [p.data for p in desk.app.delivered] == [b"5", b"8", b"9"]


def test_a_source_that_is_gone_holds_nothing_up() -> None:
    desk = Desk(3).subscribed(2, 3)
    desk.hears(2, pub(5, number=5, base=3))
    receive(desk.cube, 1, News((Member(2, PeerInfo(2), 1),), 0))
    desk.env.take_requests()[0].fail("timeout")
    assert [p.data for p in desk.app.delivered] == [b"5"]


def test_the_source_says_when_all_before_are_acknowledged() -> None:
    desk = Desk(0).subscribed(1)
    one, two = desk.publish(), desk.publish()
    (_, msg), (_, later) = desk.sent()
    said: list[Message] = []
    ask(desk.router, 1, AskFloor("t", later.number), said.append)
    assert said == []
    desk.hears(1, Ack(two.id, ()))
    assert said == []
    desk.hears(1, Ack(one.id, ()))
    assert said == [Floor(later.number + 1)]
    ask(desk.router, 1, AskFloor("t", msg.number), said.append)
    ask(desk.router, 1, AskFloor("unheard of", 7), said.append)
    assert said[1:] == [Floor(later.number + 1), Floor(7)]


@given(st.lists(st.integers(1, 40), unique=True, max_size=40), st.integers(0, 1 << 30))
def test_any_order_of_arrival_is_handed_up_in_order(numbers: list[int], seed: int) -> None:
    rng, asked = Random(seed), [0]
    streams = Streams(1 << 20, lambda key, number: asked.__setitem__(0, number))
    out: list[int] = []

    def up(items: Sequence[Item]) -> None:
        out.extend(int(item.publication.data) for item in items)

    for number in rng.sample(numbers, len(numbers)):
        up(streams.arrived((2, "t"), 1, number, 1, Item(pub(number, number=number).publication(), 1)))
    up(streams.answered((2, "t"), 41))
    assert out == sorted(numbers)
    assert streams.bytes == 0


def test_a_copy_that_an_order_asked_for_is_delivered_once_and_fills_the_gap_of_its_number() -> None:
    desk = Desk(3).subscribed(2, 3)
    desk.hears(2, pub(1, number=1))
    desk.router.brought(5, pub(2, number=2).publication())
    desk.router.brought(5, pub(2, number=2).publication())
    assert [p.data for p in desk.app.delivered] == [b"1", b"2"]
    desk.hears(2, pub(3, number=3, base=2))
    assert [p.data for p in desk.app.delivered] == [b"1", b"2"]
    desk.sent()
    desk.hears(2, pub(2, number=2, base=1))
    assert [p.data for p in desk.app.delivered] == [b"1", b"2", b"3"]
    assert [(peer, type(msg)) for peer, msg in desk.sent()] == [(2, Ack)]


def test_one_that_waits_keeps_its_place_though_it_comes_again_or_an_order_brings_it() -> None:
    desk = Desk(3).subscribed(2, 3)
    desk.hears(2, pub(1, number=1))
    desk.hears(2, pub(3, number=3, base=2))
    desk.hears(1, pub(3, number=3, base=2))
    desk.router.brought(5, pub(3, number=3).publication())
    desk.hears(2, pub(2, number=2, base=1))
    assert [p.data for p in desk.app.delivered] == [b"1", b"2", b"3"]


def test_what_waits_of_a_source_that_leaves_is_handed_up_and_waits_no_more() -> None:
    desk = Desk(0).subscribed(0, 1, 2)
    desk.hears(2, pub(sequence=1, number=2, base=0))
    assert desk.app.delivered == [] and desk.router.streams.bytes > 0
    desk.hears(2, Uns(MessageId(2, 1, 9), "t", 0))
    assert [p.data for p in desk.app.delivered] == [b"2"] and desk.router.streams.bytes == 0


def test_what_waits_in_a_stream_that_ends_for_another_is_handed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STREAMS", 2)
    held = Streams(1 << 20, lambda key, number: None)
    for source in (1, 2):
        assert held.arrived((source, "t"), 1, 5, 1, Item(pub(source, number=5).publication(), 1)) == []
    out = held.arrived((3, "t"), 1, 1, 1, Item(pub(3, number=1).publication(), 1))
    assert [item.publication.id.sequence for item in out] == [1, 3]
    assert list(held.streams) == [(2, "t"), (3, "t")] and held.shares == {2: 1, 3: 1} and held.bytes > 0
    held.leave("t")
    assert (held.bytes, held.shares) == (0, {})


def test_one_who_asks_for_many_floors_leaves_room_for_others() -> None:
    desk = Desk(0, config=VCubePSConfig(window=4)).subscribed(0, 1, 2)
    for _ in range(2):
        desk.publish()
    last = [msg.number for _, msg in desk.sent() if isinstance(msg, Pub)][-1]
    for _ in range(FLOORS // 2):
        ask(desk.router, 1, AskFloor("t", last), lambda msg: None)
    with pytest.raises(Refused, match="too many ask"):
        ask(desk.router, 1, AskFloor("t", last), lambda msg: None)
    ask(desk.router, 2, AskFloor("t", last), lambda msg: None)
    assert len(desk.router.floors) == FLOORS // 2 + 1


def test_what_waits_in_a_stream_is_bounded() -> None:
    streams = Streams(1 << 20, lambda key, number: None)
    for number in range(2, 3 * WINDOW):
        streams.arrived((2, "t"), 1, number, 1, Item(pub(number).publication(), 1))
        assert len(streams.streams[2, "t"].held) <= WINDOW


def test_a_source_that_begins_anew_begins_a_new_stream() -> None:
    desk = Desk(3).subscribed(2, 3)
    desk.hears(2, pub(7, number=7))
    desk.hears(2, pub(1, number=1, epoch=2))
    desk.hears(2, pub(8, number=8))  # of the life before: it comes too late
    assert [p.data for p in desk.app.delivered] == [b"7", b"1"]


# Validation.


def test_a_message_goes_on_when_it_was_accepted_and_not_before() -> None:
    judge = Judge()
    desk = Desk(4, app=judge).subscribed(0, 4, 5)
    desk.hears(0, pub(source=0, height=2))
    assert desk.sent() == []
    judge.cases[0](Verdict.ACCEPT)
    assert [peer for peer, _ in desk.sent()] == [5]


def test_a_forged_copy_has_no_number_of_its_source_s() -> None:
    desk = Desk(3).subscribed(2, 3)
    desk.router.signing = Seal()  # type: ignore[assignment]
    desk.hears(6, replace(sealed(pub(9, number=9, epoch=2)), signature=b"false"))
    desk.hears(6, replace(sealed(pub(9, number=9)), signature=b"false"))
    true = sealed(pub(1, number=1))
    desk.hears(2, true)
    assert desk.app.delivered == [true.publication()]


def test_a_forged_copy_of_a_message_that_is_known_is_not_handed_on() -> None:
    desk = Desk(0).subscribed(0, 1, 2, 4)
    desk.router.signing = Seal()  # type: ignore[assignment]
    true = sealed(pub(1, source=7))
    desk.hears(7, true)
    desk.sent()
    desk.hears(6, replace(true, height=3, data=b"lies", signature=b"false"))
    assert desk.sent() == []
    desk.hears(6, true.to(3))
    assert {(peer, msg.data) for peer, msg in desk.sent()} == {(1, b"1"), (2, b"1"), (4, b"1")}


def test_a_forged_copy_of_what_an_order_brought_has_no_number_of_its_source_s() -> None:
    desk = Desk(3).subscribed(2, 3)
    desk.router.signing = Seal()  # type: ignore[assignment]
    first, second, third = (sealed(pub(number, number=number, base=1)) for number in (1, 2, 3))
    desk.hears(2, first)
    desk.router.brought(5, second.publication())
    desk.hears(6, replace(second, number=9, base=9, signature=b"false"))
    desk.hears(2, third)
    assert [p.data for p in desk.app.delivered] == [b"1", b"2"]
    desk.hears(2, second)
    assert [p.data for p in desk.app.delivered] == [b"1", b"2", b"3"]


def test_one_that_an_order_asked_for_and_the_application_refused_is_not_handed_on() -> None:
    judge = Judge()
    desk = Desk(4, app=judge).subscribed(0, 4, 5)
    desk.router.brought(0, pub(source=0).publication())
    judge.cases[0](Verdict.REJECT)
    desk.hears(0, pub(source=0, height=2))
    assert [(peer, type(msg)) for peer, msg in desk.sent()] == [(0, Ack)] and judge.delivered == []


def test_one_that_is_refused_goes_no_further_and_holds_no_gate() -> None:
    judge = Judge()
    desk = Desk(4, app=judge).subscribed(0, 4, 5)
    desk.hears(0, pub(source=0, height=2))
    desk.hears(0, pub(2, source=0, number=2, height=2))
    judge.cases[0](Verdict.REJECT)
    judge.cases[1](Verdict.ACCEPT)
    assert [(peer, type(msg)) for peer, msg in desk.sent()] == [(0, Ack), (5, Pub)]
    assert [p.data for p in judge.delivered] == [b"2"]


# Crashes.


def test_what_a_dead_child_was_to_hand_on_goes_to_the_next_of_its_cluster() -> None:
    desk = Desk(0, config=GATE).subscribed(0, 4, 5, 6)
    published = desk.publish()
    assert [(peer, msg.height) for peer, msg in desk.sent()] == [(4, 2)]
    receive(desk.cube, 1, News((Member(4, PeerInfo(4), 1),), 0))
    assert [(peer, msg.height) for peer, msg in desk.sent()] == [(5, 2)]
    desk.hears(5, Ack(published.id, ()))
    desk.publish()
    assert [peer for peer, _ in desk.sent()] == [5]


def test_a_gate_whose_last_child_is_dead_opens() -> None:
    desk = Desk(0, config=GATE).subscribed(0, 4)
    desk.publish()
    desk.publish()
    assert len(desk.sent()) == 1
    receive(desk.cube, 1, News((Member(4, PeerInfo(4), 1),), 0))
    assert desk.router.unplaced() == 0 and desk.router.broadcasts.tasks == {}


def test_a_parent_that_is_suspected_gets_its_ack_for_it_may_wait() -> None:
    desk = Desk(4).subscribed(0, 4, 5)
    desk.hears(0, pub(source=0, height=2))
    ((_, msg),) = desk.sent()
    receive(desk.cube, 1, News((Member(0, PeerInfo(0), 1),), 0))
    desk.env.take()
    desk.hears(5, Ack(msg.id, ()))
    assert [(peer, type(msg)) for peer, msg in desk.sent()] == [(0, Ack)]


def test_a_second_copy_is_acknowledged_and_serves_what_the_first_did_not_ask_for() -> None:
    desk = Desk(5).subscribed(0, 4, 5, 6, 7)
    desk.hears(4, pub(source=0, height=0))
    desk.sent()
    desk.hears(0, pub(source=0, height=2))  # 4 crashed, and its part is this node's
    sent = desk.sent()
    assert [(peer, type(msg)) for peer, msg in sent] == [(4, Pub), (7, Pub)]
    for peer, msg in sent:
        desk.hears(peer, Ack(msg.id, ()))
    assert [(peer, type(msg)) for peer, msg in desk.sent()] == [(0, Ack)]
    desk.hears(0, pub(source=0, height=2))
    assert [(peer, type(msg)) for peer, msg in desk.sent()] == [(0, Ack)]
    assert len(desk.app.delivered) == 1
    assert [row.kind for row in desk.env.traced].count(DUPLICATE) == 2


def test_two_that_have_each_other_below_them_do_not_wait_for_each_other() -> None:
    """Node 5 has 4 as a child for its lowest cluster, and 4 hands on to 5 for its own: neither owes the other more than that."""
    desk = Desk(5).subscribed(0, 4, 5, 6, 7)
    desk.hears(0, pub(source=0, height=2))
    assert [peer for peer, _ in desk.sent()] == [4, 7]
    desk.hears(4, pub(source=0, height=0))
    assert [(peer, type(msg)) for peer, msg in desk.sent()] == [(4, Ack)]
    desk.hears(4, Ack(pub(source=0).id, ()))
    desk.hears(7, Ack(pub(source=0).id, ()))
    assert [(peer, type(msg)) for peer, msg in desk.sent()] == [(0, Ack)]


def test_what_was_on_a_broken_link_is_sent_again() -> None:
    desk = Desk(0).subscribed(0, 4)
    published = desk.publish()
    desk.sent()
    desk.router.link_down(4, 3, "reset")
    assert [(peer, msg.id) for peer, msg in desk.sent()] == [(4, published.id)]


def test_a_child_that_says_nothing_gets_it_again_and_is_passed_over_at_last() -> None:
    config = VCubePSConfig(window=1)
    desk = Desk(0, config=config).subscribed(0, 4, 5)
    desk.publish()
    desk.env.advance(20 * config.patience)
    assert [peer for peer, _ in desk.sent()] == [4] * config.sends + [5] * config.sends
    assert desk.router.broadcasts.tasks == {}
    assert 4 in [request.peer for request in desk.below.requests]  # the overlay was asked to look


def test_a_member_that_comes_later_is_told_what_this_node_subscribes_to() -> None:
    desk = Desk(0).subscribed(0)
    receive(desk.cube, 1, News((Member(9, PeerInfo(9), 0),), 0))
    own = desk.router.views.of("t", 0)
    assert own is not None
    assert desk.sent() == [(9, Told((("t", own.epoch, own.sequence),)))]


def test_a_subscription_is_made_known_once_more_when_members_have_stopped_coming() -> None:
    desk = Desk(0)
    receive(desk.cube, 1, News((Member(9, PeerInfo(9), 0),), 0))
    desk.subscribed(0)
    desk.env.advance(STIRRED - 1)
    assert not any(isinstance(msg, Sub) for _, msg in desk.sent())
    receive(desk.cube, 1, News((Member(10, PeerInfo(10), 0),), 0))
    desk.env.advance(STIRRED)
    assert not any(isinstance(msg, Sub) for _, msg in desk.sent()), "they have not"
    desk.env.advance(STIRRED)
    (again,) = {msg.id for _, msg in desk.sent() if isinstance(msg, Sub)}
    for child in (1, 2, 4, 9, 10):
        desk.hears(child, Ack(again, ()))
    receive(desk.cube, 1, News((Member(11, PeerInfo(11), 0),), 0))
    desk.env.advance(RESTLESS)
    assert not any(isinstance(msg, Sub) and msg.id != again for _, msg in desk.sent()), "once is enough"


def test_in_a_cube_where_nobody_comes_or_goes_a_subscription_is_made_known_once() -> None:
    desk = Desk(0).subscribed(0)
    desk.env.advance(RESTLESS)
    assert not any(isinstance(msg, Sub) for _, msg in desk.sent())


@pytest.mark.slow
@pytest.mark.parametrize("join_every", [0.0, 0.05])
def test_where_all_join_and_subscribe_in_a_rush_all_know_all_subscribers_in_the_end(join_every: float) -> None:
    """Some are in small cubes of their own for half a minute, and several have one place at first."""
    told = Scenario(stack=STACK, nodes=128, join_every=join_every, warmup=90.0, workload=Workload(messages=0))
    stack = stacks.find(STACK, {}, {})
    sim = build(told, None)
    workload = Crowds(told, stack, sim)
    workload.start(stack.introduce(told.nodes, sim.stream("overlay"), at_once=not join_every))
    sim.run(90 * SECOND)
    routers = [machine for node in sim.nodes.values() for machine in node.machines if isinstance(machine, VCubePS)]
    assert {router.views.subscribers("t0").bit_count() for router in routers} == {128}


def test_what_a_member_tells_counts() -> None:
    desk = Desk(0).subscribed(0)
    desk.hears(3, Told((("t", 1, 1),)))
    assert desk.router.views.subscribers("t") == 1 << 0 | 1 << 3


def test_who_the_overlay_forgets_is_forgotten() -> None:
    desk = Desk(0).subscribed(0, 3)
    desk.router.member_gone(3)
    assert desk.router.views.of("t", 3) is None and desk.router.views.size == 1


def test_a_subscriber_holds_links_to_its_children() -> None:
    desk = Desk(0).subscribed(0, 3, 5)
    desk.env.advance(SETTLED)
    assert list(desk.env.holds) == [3, 5]
    desk.router.leave("t")
    desk.router.join("u")
    desk.env.advance(SETTLED)
    assert list(desk.env.holds) == []


def test_an_oracle_knows_subscriptions_at_once_and_sends_none() -> None:
    desk = Desk(0, oracle=True)
    desk.router.join("t")
    assert desk.app.in_force == ["t"] and desk.sent() == []
    assert desk.cube.census is not None
    desk.cube.census.subscribers["t"] |= 1 << 6
    desk.publish()
    assert [peer for peer, _ in desk.sent()] == [6]


# The border.


def test_a_filter_and_another_overlay_are_refused() -> None:
    with pytest.raises(UsageError, match="by topic"):
        Desk().router.join(Filter(()))
    with pytest.raises(UsageError, match="Static has no places"):
        VCubePS(FakeEnv(), Static(FakeEnv(), (), ()), Inbox())


@pytest.mark.parametrize(
    "msg",
    [
        pub(source=b"bytes"),
        pub(number=1, base=2),
        pub(number=NUMBER + 1),
        pub(height=DIMENSION + 1),
        pub(epoch=-1),
        sub(height=DIMENSION + 1),
        replace(sub(), member=Member(3, PeerInfo(3), 0)),
        replace(sub(), member=Member(-3, PeerInfo(2), 0)),
        Uns(MessageId(2, 1, -1), "t", 0),
        Ack(MessageId(0, 1, 1), (Standing(b"bytes", True, 1, 1),)),
        Ack(MessageId(0, 1, 1), (Standing(2, True, -1, 1),)),
        Told((("t", -1, 0),)),
        Told((("t" * 2_000, 1, 0),)),
    ],
)
def test_what_no_member_says_is_its_sender_s_fault(msg: Message) -> None:
    with pytest.raises(PeerError):
        Desk(3).subscribed(3).hears(2, msg)


def test_an_ack_that_nobody_waits_for_is_nothing() -> None:
    desk = Desk(0).subscribed(0, 1)
    published = desk.publish()
    desk.sent()
    desk.hears(7, Ack(published.id, (Standing(7, True, 1, 1),)))
    assert desk.router.broadcasts.tasks and not desk.router.views.subscribers("t") >> 7 & 1


def test_every_message_passes_the_codec() -> None:
    codec = msgpack(VCubePS.kinds)
    standing = Standing(b"peer", True, 1, 2)
    said = [pub(source=b"peer"), Uns(MessageId(b"peer", 1, 2), "t", 3), Ack(MessageId(b"peer", 1, 2), (standing,))]
    more = [Sub(MessageId(b"p", 1, 2), "t", 3, Member(1, PeerInfo(b"p"), 0)), Told((("t", 1, 2),)), AskFloor("t", 1), Floor(2)]
    for msg in [*said, *more]:
        assert list(codec.unpack(codec.pack([msg])[0])) == [msg]


def test_options_out_of_bounds_are_refused() -> None:
    for name, value in (("window", 0), ("window", WINDOW + 1), ("sends", 0)):
        with pytest.raises(UsageError, match=rf"router\.{name} is {value}; it must be at"):
            stacks.check(STACK, {}, {name: value}, 10)
    with pytest.raises(UsageError, match=r"overlay\.start is 'x'; choose join, order, oracle"):
        stacks.check(STACK, {"start": "x"}, {}, 10)
    with pytest.raises(UsageError, match="from the start"):
        stacks.find(STACK, {"start": "oracle"}, {}).node((1,), Inbox())(FakeEnv)
    with pytest.raises(UsageError, match=r"overlay\.start is 'x'"):
        stacks.find(STACK, {"start": "x"}, {}).node((1,), Inbox())(FakeEnv)


# Whole networks.


def router_of(machines: Sequence[Machine]) -> Router:
    router = machines[-1]
    assert isinstance(router, Router)
    return router


@given(st.integers(1, 24), st.integers(0, 1 << 30), st.sampled_from([1, 3, 16]))
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
        assert len(app.in_force) == (node in subscribers)
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


def test_the_same_seed_gives_the_same_run() -> None:
    churning = scenario(nodes=20, churn=Churn(session=30.0))
    assert run(churning)["trace_hash"] == run(churning)["trace_hash"]


@pytest.mark.parametrize("window", [1, 16])
def test_survivors_of_a_mass_crash_have_every_message_of_survivors(window: int) -> None:
    """The crash is in the midst of the messages; no gate is shut for ever by the dead."""
    crash = MassCrash(at=7.0, share=0.3)
    result = run(scenario(router={"window": window}, faults=(crash,), window=40.0, overlay={"start": "order"}))
    assert result["reliability"] > 0.97
    assert result["messages"] == 40


def test_subscriptions_that_come_and_go_lose_nothing() -> None:
    result = run(scenario(churn=Churn(subscriptions=10.0), overlay={"start": "order"}, nodes=30))
    assert result["reliability_min"] == 1.0
