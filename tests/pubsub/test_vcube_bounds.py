"""What one peer or a busy application can do to the tables of VCube-PS and VCube-PB."""

from __future__ import annotations

import pytest

from libweft.overlays.claims import ID
from libweft.overlays.vcube.cube import PLACES
from libweft.overlays.vcube.machine import VCube
from libweft.overlays.vcube.members import Founders
from libweft.overlays.vcube.messages import Admitted, Member
from libweft.peer.codec import msgpack
from libweft.peer.dispatch import receive
from libweft.peer.fake.env import FakeEnv
from libweft.peer.machine import Message, MessageId, PeerInfo
from libweft.pubsub.claims import NUMBER
from libweft.pubsub.interests import Interest
from libweft.pubsub.router import TOPIC
from libweft.pubsub.vcube_pb.router import VCubePB
from libweft.pubsub.vcube_ps import trees, views
from libweft.pubsub.vcube_ps.messages import TOPICS, Ack, Standing, Sub, Told, Uns, fitting
from libweft.pubsub.vcube_ps.router import VCubePS
from libweft.pubsub.vcube_ps.trees import Trees
from tests.pubsub.apps import Inbox

KINDS = (VCubePS, VCubePB)


class Curious(Inbox):
    """Subscribes to the next topic as soon as it is in one."""

    def __init__(self, topics: str) -> None:
        super().__init__()
        self.topics = list(topics)
        self.router: Trees

    def joined(self, interest: Interest) -> None:
        super().joined(interest)
        if self.topics:
            self.router.join(self.topics.pop(0))


def node(kind: type[VCubePS | VCubePB], nodes: int, app: Inbox) -> tuple[FakeEnv, Trees]:
    env, cube = FakeEnv(me=0), VCube(FakeEnv(me=0), Founders(nodes))
    router = kind(env, cube, app)
    cube.start()
    router.start()
    return env, router


def acknowledge(env: FakeEnv, router: Trees) -> None:
    while sent := env.take():
        for peer, msg in sent:
            assert isinstance(msg, Sub)
            receive(router, peer, Ack(msg.id, ()))


@pytest.mark.parametrize("kind", KINDS)
def test_who_subscribes_again_when_it_is_in_force_may_fill_the_channels(
    monkeypatch: pytest.MonkeyPatch, kind: type[VCubePS | VCubePB]
) -> None:
    monkeypatch.setattr(trees, "CHANNELS", 1)
    app = Curious("bcd")
    env, app.router = node(kind, 4, app)
    app.router.join("a")
    acknowledge(env, app.router)
    assert app.in_force == ["a", "b", "c", "d"] and len(app.router.channels) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_who_is_alone_is_in_force_in_every_topic_that_it_subscribes_to_one_after_the_other(
    kind: type[VCubePS | VCubePB],
) -> None:
    app = Curious("bcd")
    _, app.router = node(kind, 1, app)
    app.router.join("a")
    assert app.in_force == ["a", "b", "c", "d"]


@pytest.mark.parametrize("kind", KINDS)
def test_one_peer_leaves_room_for_the_standings_of_others(monkeypatch: pytest.MonkeyPatch, kind: type[VCubePS | VCubePB]) -> None:
    monkeypatch.setattr(views, "STANDINGS", 8)
    _, router = node(kind, 4, Inbox())
    said: list[Message] = [Told(((f"many{number}", 1, 1),)) for number in range(20)]
    for msg in said:
        receive(router, 1, msg)
    assert router.views.size == 4
    receive(router, 2, Told((("t", 1, 1),)))
    assert router.views.subscribers("t") == 1 << 2
    router.member_gone(1)
    receive(router, 1, Told((("t", 1, 1),)))
    assert router.views.size == 2 and router.views.subscribers("t") == 1 << 1 | 1 << 2


# What others say of others.


def hand_on(env: FakeEnv, router: Trees, sequence: int) -> tuple[Sub, list[int]]:
    """Node 4's subscription comes here, and goes on to these."""
    msg = Sub(MessageId(4, 1, sequence), "t", 2, Member(4, PeerInfo(4), 0))
    receive(router, 4, msg)
    return msg, [peer for peer, sent in env.take() if isinstance(sent, Sub) and isinstance(peer, int)]


@pytest.mark.parametrize("kind", KINDS)
def test_invented_subscribers_leave_room_for_true_ones(kind: type[VCubePS | VCubePB]) -> None:
    env, router = node(kind, 8, Inbox())
    for turn in range(1, 4):
        msg, (liar, honest) = hand_on(env, router, turn)
        receive(router, liar, Ack(msg.id, tuple(Standing(turn * PLACES + number, True, 1, 1) for number in range(PLACES))))
        receive(router, honest, Ack(msg.id, (Standing(honest, True, 1, 1), Standing(5, True, 1, turn))))
        ((_, ack),) = env.take()
        assert isinstance(ack, Ack) and len(ack.view) <= PLACES
    assert router.views.size == views.STRANGERS + 3
    assert router.views.subscribers("t") == 1 << 4 | 1 << 5 | 1 << honest


def test_a_stranger_that_has_a_place_by_now_is_none() -> None:
    _, router = node(VCubePS, 4, Inbox())
    router.views.note("t", Standing(7, True, 1, 1))
    router.cube.introduce(Member(7, PeerInfo(7), 0))
    for number in range(views.STRANGERS + 1):
        router.views.note("t", Standing(100 + number, True, 1, 1))
    assert router.views.of("t", 7) is not None and router.views.of("t", 100) is None
    assert router.views.size == 1 + views.STRANGERS


@pytest.mark.parametrize("kind", KINDS)
def test_who_asks_again_gets_no_more_standings_than_a_frame_takes(kind: type[VCubePS | VCubePB]) -> None:
    longest = [Standing(number.to_bytes(ID, "big"), True, NUMBER, NUMBER) for number in range(PLACES)]
    key = MessageId(bytes(ID), NUMBER, NUMBER)
    (frame,) = msgpack(kind.kinds).pack([Ack(key, fitting(longest))])
    assert len(fitting(longest)) > 12_000 and len(frame) > 1_000_000
    common = [Standing(number.to_bytes(38, "big"), True, NUMBER, NUMBER) for number in range(PLACES)]
    assert len(fitting(common)) == PLACES
    msgpack(kind.kinds).pack([Ack(key, fitting(common))])


def test_the_longest_topics_are_told_in_messages_that_a_frame_takes() -> None:
    app = Inbox()
    env, router = node(VCubePS, 1, app)
    topics = [chr(0x1F300 + number) * TOPIC for number in range(TOPICS + 1)]
    for topic in topics:
        router.join(topic)
    router.member_up(1)
    told = [msg for _, msg in env.take() if isinstance(msg, Told)]
    assert [name for msg in told for name, _, _ in msg.topics] == topics
    msgpack(VCubePS.kinds).pack(told)


@pytest.mark.parametrize("kind", KINDS)
def test_who_leaves_topics_that_nobody_knows_leaves_nothing_behind_but_that_it_left(kind: type[VCubePS | VCubePB]) -> None:
    _, router = node(kind, 4, Inbox())
    for number in range(50):
        receive(router, 2, Uns(MessageId(2, 1, number), f"topic {number}", 1))
        receive(router, 2, Uns(MessageId(3, 1, number), f"other {number}", 1))
    router.member_gone(2)
    router.member_gone(3)
    assert (router.views.size, router.views.topics, router.views._sets) == (0, {}, {})
    for number in range(50):
        assert router.views.subscribers(f"unheard of {number}") == 0
    assert router.views._sets == {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_node_that_has_no_place_yet_is_no_stranger_to_itself(
    monkeypatch: pytest.MonkeyPatch, kind: type[VCubePS | VCubePB]
) -> None:
    monkeypatch.setattr(views, "STRANGERS", 8)
    monkeypatch.setattr(views, "STANDINGS", 16)
    app, cube = Inbox(), VCube(FakeEnv(me=0), [9])
    router = kind(FakeEnv(me=0), cube, app)
    for number in range(40):
        router.join(f"own {number}")
        receive(router, 9, Told(((f"other {number}", 1, 1),)))
    cube._found()
    assert app.in_force == [f"own {number}" for number in range(40)]


def test_one_who_names_itself_in_many_topics_leaves_room_for_other_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "STRANGERS", 8)
    _, router = node(VCubePS, 4, Inbox())
    router.views.note("t", Standing(50, True, 1, 1))
    for number in range(40):
        receive(router, 99, Told(((f"topic {number}", 1, 1),)))
    assert router.views.of("t", 50) is not None
    assert [router.views.of(f"topic {number}", 99) is not None for number in range(40)].count(True) == 4
    router.member_gone(99)
    router.member_gone(50)
    assert (router.views.size, dict(router.views._named), router.views._strangers) == (0, {}, {})


@pytest.mark.parametrize("kind", KINDS)
def test_who_had_a_place_that_another_has_now_leaves_no_standing(kind: type[VCubePS | VCubePB]) -> None:
    _, router = node(kind, 4, Inbox())
    for number in range(20):
        member = Member(6, PeerInfo(100 + number), 2 * number)
        receive(router, 1, Sub(MessageId(member.peer, 1, 1), "t", 0, member))
    assert list(router.views.topics["t"]) == [119] and router.views.size == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_place_that_was_given_back_is_no_subscriber_s(kind: type[VCubePS | VCubePB]) -> None:
    below = FakeEnv(me=0)
    cube = VCube(below, [9])
    router = kind(FakeEnv(me=0), cube, Inbox())
    cube.start()
    router.join("t")
    below.take_requests()[0].reply(Admitted(Member(2, PeerInfo(0), 0)))
    assert router.views.subscribers("t") == 1 << 2
    for _ in range(cube.config.tries):
        below.take_requests()[0].fail("timeout")
    assert cube.index is None and router.views.subscribers("t") == 0
