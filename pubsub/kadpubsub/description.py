"""KadPubSub as the registry knows it."""

from __future__ import annotations

from libweft.overlays.fault_groups import DELAYS
from libweft.overlays.powers import Lookups
from libweft.pubsub.description import TOPICS, RouterDescription
from libweft.pubsub.kadpubsub.config import KadPubSubConfig
from libweft.pubsub.kadpubsub.router import KadPubSub
from libweft.pubsub.promises import INTEGRITY, ONCE, Promise, Property

LOSSES = "A lost copy is sent again, but when many are lost in a row some subscribers are passed over."

DESCRIPTION = RouterDescription(
    name="kadpubsub",
    paper="one of the systems of Duarte, Almeida and Fona: A Study on Publish-Subscribe Systems over Overlay Networks, 2022",
    use="for many topics with few subscribers each: nobody else carries a message",
    partner="kademlia",
    machine=KadPubSub,
    config=KadPubSubConfig,
    protocols=KadPubSub.protocols,
    needs=(Lookups,),
    interests=TOPICS,
    promises=(
        INTEGRITY,
        ONCE,
        Promise(Property.REACH, DELAYS, 30.0, LOSSES),
    ),
)
