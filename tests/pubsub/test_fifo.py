"""FIFO's bounds, on one machine; its rules are in `test_api`."""

from __future__ import annotations

import pytest

from libweft.overlays.overlay import Overlay
from libweft.peer.errors import UsageError
from libweft.peer.fake.env import FakeEnv
from libweft.peer.machine import MessageId
from libweft.pubsub.flood import Flood
from libweft.pubsub.message import OrderHeader, Publication
from libweft.pubsub.ordering import fifo as fifo_module
from libweft.pubsub.ordering.fifo import STREAMS, Fifo
from tests.pubsub.apps import Inbox


def fifo() -> tuple[Fifo, Inbox]:
    env, app = FakeEnv(me=0), Inbox()
    order = Fifo(env, Flood(env, Overlay(env), app), app)
    order.open("t")
    return order, app


def numbered(sequence: int, source: int, epoch: int = 1) -> Publication:
    return Publication(MessageId(source, epoch, sequence), "t", b"", OrderHeader(epoch, sequence))


def test_a_source_with_many_lives_has_a_node_forget_no_other() -> None:
    order, app = fifo()
    order.deliver(numbered(1, source=8))
    for epoch in range(STREAMS + 10):
        order.deliver(numbered(1, source=9, epoch=epoch))
    assert len(order.streams) <= STREAMS // 2 + 1 and (9, STREAMS + 9, "t") in order.streams
    order.deliver(numbered(2, source=8))
    assert app.delivered[-1].id.source == 8
    order.close("t")
    assert not order.streams and not order.shares


def test_a_topic_that_is_not_open_cannot_be_closed_and_stays_so() -> None:
    order, _ = fifo()
    order.close("t")
    with pytest.raises(UsageError, match="'t' is not open with an order on this node"):
        order.close("t")
    assert not order.is_open("t")


def test_who_closes_a_topic_while_room_is_made_in_it_leaves_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fifo_module, "STREAMS", 1)
    order, app = fifo()
    order.deliver(numbered(5, source=1))
    take = app.deliver

    def deliver(publication: Publication) -> None:
        take(publication)
        if order.is_open("t"):
            order.close("t")

    app.deliver = deliver  # type: ignore[method-assign]
    order.deliver(numbered(5, source=2))
    assert [publication.id.source for publication in app.delivered] == [1, 2]
    assert not order.streams and not order.shares and not order.held_bytes
