"""SRPT-S and SRPT-B, with a single root per topic, as the registry knows them."""

from __future__ import annotations

from libweft.overlays.fault_groups import DELAYS
from libweft.overlays.powers import Distances, KeyRouting
from libweft.overlays.vcube.places import Places
from libweft.pubsub.description import TOPICS, RouterDescription
from libweft.pubsub.promises import INTEGRITY, ONCE, Promise, Property
from libweft.pubsub.scribe.config import BrokerConfig, ScribeConfig
from libweft.pubsub.scribe.router import SrptB, SrptS

PROMISES = (
    INTEGRITY,
    ONCE,
    Promise(Property.REACH, DELAYS, 30.0, "A root that crashes loses what it had not passed on."),
)


SRPT_S = RouterDescription(
    name="srpt-s",
    paper="Castro, Druschel, Kermarrec and Rowstron: Scribe, IEEE JSAC 2002; the rival SRPT-S of VCube-PS",
    use="for comparison: one tree per topic, joined towards the topic's root",
    partner="vcube",
    machine=SrptS,
    config=ScribeConfig,
    protocols=SrptS.protocols,
    needs=(KeyRouting, (Distances, Places)),
    interests=TOPICS,
    promises=PROMISES,
)

SRPT_B = RouterDescription(
    name="srpt-b",
    paper="the rival SRPT-B of de Araujo et al.: VCube-PS, JPDC 2018",
    use="for comparison: one tree of brokers per topic, on which subscribers hang",
    partner="vcube",
    machine=SrptB,
    config=BrokerConfig,
    protocols=SrptB.protocols,
    needs=(KeyRouting, Places),
    interests=TOPICS,
    promises=PROMISES,
)
