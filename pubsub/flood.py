"""Flood: every message goes to every neighbour but the one it came from, once.

The plainest router, and the yardstick for the others: it reaches whatever is connected, and costs a copy a link.
Subscriptions filter what is delivered, not what is forwarded.
On the wire it is `/floodsub/1.0.0`. Below it needs neighbours; above it promises each message once while its id is remembered.
Bounds: the ids in `pubsub.seen`.
"""

from __future__ import annotations

from overlays.overlay import Overlay
from peer.machine import Env, Peer, upon
from peer.trace import DUPLICATE
from pubsub.message import Publication
from pubsub.router import App, Role, Router
from pubsub.seen import Seen

PROTOCOL = "/floodsub/1.0.0"


class Flood(Router):
    __slots__ = ("seen",)

    protocols = (PROTOCOL,)

    def __init__(self, env: Env, overlay: Overlay, app: App, role: Role = Role.PEER) -> None:
        super().__init__(env, overlay, app, role)
        self.seen = Seen()

    @upon(Publication)
    def _publication(self, sender: Peer, m: Publication) -> None:
        if m.id in self.seen or not self.seen.note(m.id, self.env.now()):
            if self.tracing:
                self.trace(DUPLICATE, m.topic, m.id, sender)
        else:
            self._received(sender, m)

    def _spread(self, publication: Publication) -> None:
        self.seen.note(publication.id, self.env.now())
        self.env.send_all(self.overlay.everyone, publication)

    def _forward(self, publication: Publication, sender: Peer) -> None:
        self.env.send_all(self.overlay.everyone, publication, sender)
