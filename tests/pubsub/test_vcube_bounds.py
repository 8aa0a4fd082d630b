"""What one peer or a busy application can do to the tables of VCube-PS and VCube-PB."""

from __future__ import annotations

import pytest

from overlays.vcube.machine import VCube
from overlays.vcube.roll import Founders
from peer.dispatch import receive
from peer.fake import FakeEnv
from peer.machine import Message
from pubsub.message import Interest
from pubsub.vcube_pb.router import VCubePB
from pubsub.vcube_ps import trees, views
from pubsub.vcube_ps.messages import Ack, Sub, Told
from pubsub.vcube_ps.router import VCubePS
from pubsub.vcube_ps.trees import Trees
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
def test_one_peer_leaves_room_for_the_standings_of_others(
    monkeypatch: pytest.MonkeyPatch, kind: type[VCubePS | VCubePB]
) -> None:
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
