"""The order contract, proved by a small FIFO order: a gap holds back what follows until it is filled."""

from __future__ import annotations

from libweft.overlays.overlay import Overlay
from libweft.peer.dispatch import receive
from libweft.peer.fake.env import FakeEnv
from libweft.peer.machine import Env, MessageId, Peer
from libweft.peer.trace.kinds import DELIVER, RECEIVE
from libweft.pubsub.flood import Flood
from libweft.pubsub.message import OrderHeader, Publication
from libweft.pubsub.ordering.order import Order
from libweft.pubsub.router import App, Router
from tests.pubsub.apps import Inbox


class Fifo(Order):
    def __init__(self, env: Env, router: Router, app: App) -> None:
        super().__init__(env, router, app)
        self.sent = 0
        self.next: dict[Peer, int] = {}
        self.early: dict[tuple[Peer, int], Publication] = {}
        self.locked: list[Peer] = []

    def _header(self, topic: str) -> OrderHeader:
        self.sent += 1
        return OrderHeader(self.env.epoch, self.sent)

    def deliver(self, publication: Publication) -> None:
        assert publication.order is not None
        source = publication.id.source
        self.early[source, publication.order.sequence] = publication
        while (turn := self.early.pop((source, self.next.setdefault(source, 1)), None)) is not None:
            self.next[source] += 1
            self._release(turn)

    def neighbor_up(self, peer: Peer) -> None:
        self.locked.append(peer)


def publication(sequence: int) -> Publication:
    return Publication(MessageId(7, 1, sequence), "t", b"%d" % sequence, OrderHeader(1, sequence))


def fifo() -> tuple[FakeEnv, Overlay, Flood, Fifo, Inbox]:
    env, app = FakeEnv(me=1), Inbox()
    overlay = Overlay(env)
    router = Flood(env, overlay, app)
    order = Fifo(env, router, app)
    router.join("t")
    return env, overlay, router, order, app


def test_a_message_waits_for_its_predecessor() -> None:
    _, _, router, _, app = fifo()
    for sequence in (2, 3, 1, 4):
        receive(router, 9, publication(sequence))
    assert [p.data for p in app.delivered] == [b"1", b"2", b"3", b"4"]


def test_the_deliver_row_comes_when_the_order_releases_not_when_the_router_receives() -> None:
    env, _, router, _, _ = fifo()
    receive(router, 9, publication(2))
    kinds = [row.kind for row in env.traced]
    assert RECEIVE in kinds
    assert DELIVER not in kinds
    receive(router, 9, publication(1))
    assert [row.kind for row in env.traced].count(DELIVER) == 2


def test_what_is_published_through_an_order_carries_its_header_and_is_delivered_here_once() -> None:
    _, _, _, order, app = fifo()
    order.publish("t", b"a")
    order.publish("t", b"b")
    assert [p.order.sequence for p in app.delivered if p.order] == [1, 2]
    assert [p.data for p in app.delivered] == [b"a", b"b"]


def test_an_order_can_keep_a_neighbour_from_the_router() -> None:
    _, overlay, router, order, _ = fifo()
    order.hold_links(overlay)
    overlay._up(5)
    assert order.locked == [5]
    assert router not in overlay.watchers
