"""The contract of an order: a machine with a protocol of its own that holds messages back until their turn has come.

It takes the app's place above a router: what the router hands up ends in `deliver`, which keeps it or calls `_release`.
What the app publishes goes through `publish`, which stamps a header into the envelope. Reception and delivery are then
two events, and the trace's `deliver` row is the order's. It may also stand between overlay and router (`hold_links`), and
keep a neighbour from the router until its own condition is met, as PC-broadcast does with locked links.
Bounds: what a subclass holds back is its own to bound.
"""

from __future__ import annotations

from collections.abc import Callable

from libweft.overlays.overlay import Overlay
from libweft.peer.machine import Env, Machine, Peer
from libweft.peer.trace.kinds import DELIVER
from libweft.pubsub.interests import Interest
from libweft.pubsub.message import OrderHeader, Publication, Verdict
from libweft.pubsub.router import App, Router


class Order(Machine):
    __slots__ = ("app", "router")

    def __init__(self, env: Env, router: Router, app: App) -> None:
        super().__init__(env)
        self.router = router
        self.app = app
        router.app = self
        router.ordered = True

    def publish(self, topic: str, data: bytes) -> Publication:
        publication = self.router.compose(topic, data, self._header(topic))
        self.router.publish(publication)
        return publication

    def deliver(self, publication: Publication) -> None:
        """The router hands this up, once; call `_release` now or when its predecessors have been delivered."""
        self._release(publication)

    @property
    def validates(self) -> bool:
        return self.app.validates

    def validate(self, sender: Peer, publication: Publication, answer: Callable[[Verdict], None]) -> None:
        self.app.validate(sender, publication, answer)

    def joined(self, interest: Interest) -> None:
        self.app.joined(interest)

    def hold_links(self, overlay: Overlay) -> None:
        """From now on the overlay tells this order of neighbours, and the order tells the router."""
        overlay.watchers[overlay.watchers.index(self.router)] = self

    def neighbor_up(self, peer: Peer) -> None:
        self.router.neighbor_up(peer)

    def neighbor_down(self, peer: Peer, reason: str) -> None:
        self.router.neighbor_down(peer, reason)

    def _header(self, topic: str) -> OrderHeader | None:
        """What this order needs to know of a message that is being published."""
        return None

    def _release(self, publication: Publication) -> None:
        self.trace(DELIVER, publication.topic, publication.id)
        self.app.deliver(publication)
