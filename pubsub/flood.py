"""Flood: every message goes to every neighbour but the one it came from, once.

The plainest router, and the yardstick for the others: it reaches whatever is connected, and costs a copy a link.
Subscriptions filter what is delivered, not what is forwarded.
On the wire it is `/floodsub/1.0.0`. Other implementations of that send only what a peer has told them it subscribes to;
with `announce` a node tells, on each new link and whenever it changes, and without it saves the messages.
Below it needs neighbours; above it promises each message once while its id is remembered.
Bounds: the ids in `libweft.pubsub.seen`.
"""

from __future__ import annotations

from dataclasses import dataclass

from libweft.overlays.fault_groups import DELAYS
from libweft.overlays.overlay import Overlay
from libweft.overlays.powers import Connected
from libweft.peer.machine import Codec, Env, Peer, upon
from libweft.peer.trace.kinds import DUPLICATE
from libweft.pubsub.description import TOPICS_AND_FILTERS, RouterDescription
from libweft.pubsub.interests import Interest
from libweft.pubsub.message import Publication
from libweft.pubsub.promises import INTEGRITY, ONCE, Promise, Property
from libweft.pubsub.router import App, Router
from libweft.pubsub.rpc import Subscriptions, rpc
from libweft.pubsub.seen import Seen

PROTOCOL = "/floodsub/1.0.0"
TOLD = 256  # topics in one message: some peers read no more than 16 KiB of subscriptions at a time


@dataclass(frozen=True)
class FloodConfig:
    announce: bool = False  # neighbours are told which topics this node has, and send it those alone


DEFAULTS = FloodConfig()


class Flood(Router):
    __slots__ = ("announce", "seen")

    protocols = (PROTOCOL,)

    def __init__(self, env: Env, overlay: Overlay, app: App, config: FloodConfig = DEFAULTS) -> None:
        super().__init__(env, overlay, app)
        self.announce = config.announce
        self.seen = Seen()

    def codec(self) -> Codec:
        return rpc(numbered=isinstance(self.env.me, int))

    def neighbor_up(self, peer: Peer) -> None:
        topics = [interest for interest in self.interests if isinstance(interest, str)]
        for begin in range(0, len(topics) if self.announce else 0, TOLD):
            self.env.send(peer, Subscriptions(tuple((True, topic) for topic in topics[begin : begin + TOLD])))

    def _join(self, interest: Interest) -> None:
        self._tell(True, interest)
        super()._join(interest)

    def _leave(self, interest: Interest) -> None:
        self._tell(False, interest)

    def _tell(self, joined: bool, interest: Interest) -> None:
        if self.announce and isinstance(interest, str):
            self.env.send_all(self.overlay.everyone, Subscriptions(((joined, interest),)))

    @upon(Subscriptions)
    def _subscriptions(self, sender: Peer, m: Subscriptions) -> None:
        """A neighbour gets everything, whatever it subscribes to: it may be the way to others."""

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

    def _forged(self, publication: Publication) -> None:
        self.seen.discard(publication.id)


DESCRIPTION = RouterDescription(
    name="flood",
    paper="libp2p's floodsub 1.0",
    use="for small networks and as a yardstick: a copy on every link reaches whatever is connected",
    partner="static",
    machine=Flood,
    config=FloodConfig,
    protocols=Flood.protocols,
    needs=(Connected,),
    interests=TOPICS_AND_FILTERS,
    promises=(INTEGRITY, ONCE, Promise(Property.REACH, DELAYS, 10.0)),
    live={"announce": True},
)
