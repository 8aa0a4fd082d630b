"""GossipSub as the registry knows it."""

from __future__ import annotations

from libweft.overlays.fault_groups import DELAYS
from libweft.overlays.powers import Connected
from libweft.pubsub.description import TOPICS, RouterDescription
from libweft.pubsub.gossipsub.config import GossipSubConfig
from libweft.pubsub.gossipsub.router import GossipSub
from libweft.pubsub.promises import INTEGRITY, ONCE, Promise, Property

DESCRIPTION = RouterDescription(
    name="gossipsub",
    paper="libp2p's gossipsub 1.0 to 1.3; Vyzovitis et al., arXiv 2007.02754, 2020",
    use="to talk with other libp2p libraries, and among peers that are not trusted: each peer has a score",
    partner="static",
    machine=GossipSub,
    config=GossipSubConfig,
    protocols=GossipSub.protocols,
    needs=(Connected,),
    interests=TOPICS,
    promises=(INTEGRITY, ONCE, Promise(Property.REACH, DELAYS, 10.0, "Gossip repairs losses, with high probability only.")),
)
