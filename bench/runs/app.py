"""The app of a simulated node: its calls to join, leave and publish, and a listener that keeps nothing."""

from __future__ import annotations

from collections.abc import Callable

from libweft.bench.runs.attacks import INVALID
from libweft.peer.machine import Peer
from libweft.peer.sim.simulator import SimNode
from libweft.pubsub.interests import Interest
from libweft.pubsub.message import Publication, Verdict
from libweft.pubsub.ordering.causal import Causal
from libweft.pubsub.ordering.fifo import Fifo
from libweft.pubsub.ordering.order import Order
from libweft.pubsub.router import Router


class Listener:
    """An app that keeps nothing, because the trace has every delivery. Under attack it rejects invalid messages."""

    validates = False

    def validate(self, sender: Peer, publication: Publication, answer: Callable[[Verdict], None]) -> None:
        answer(Verdict.REJECT if publication.data == INVALID else Verdict.ACCEPT)

    def deliver(self, publication: Publication) -> None: ...
    def joined(self, interest: Interest) -> None: ...


def router_of(node: SimNode) -> Router:
    """Return the router of the node, from below its order if it has one."""
    top = node.machines[-1]
    router = top.router if isinstance(top, Order) else top
    assert isinstance(router, Router)
    return router


def order_of(node: SimNode) -> Fifo | Causal | None:
    """Return the order above the router of the node, if there is one."""
    top = node.machines[-1]
    return top if isinstance(top, Fifo | Causal) else None


def join(node: SimNode, topic: str) -> None:
    """Subscribe the node to the topic."""
    if (order := order_of(node)) is not None:
        order.open(topic)
    router_of(node).join(topic)


def leave(node: SimNode, topic: str) -> None:
    """Unsubscribe the node from the topic."""
    router_of(node).leave(topic)
    if (order := order_of(node)) is not None:
        order.close(topic)


def toggle(node: SimNode, topic: str) -> None:
    """Subscribe the node to the topic, or unsubscribe it if it is subscribed."""
    if topic in router_of(node).interests:
        leave(node, topic)
    else:
        join(node, topic)


def publish(node: SimNode, topic: str, data: bytes) -> None:
    """Publish `data` on the topic.

    A publisher that does not subscribe opens the topic with its order too, because the order numbers what it publishes.
    """
    order, router = order_of(node), router_of(node)
    if order is None:
        router.publish(router.compose(topic, data))
        return
    if topic not in router.interests and not order.is_open(topic):
        order.open(topic)
    order.publish(topic, data)
