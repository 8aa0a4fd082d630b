"""VCube-PS as the registry knows it."""

from __future__ import annotations

from libweft.overlays.fault_groups import DELAYS, HONEST
from libweft.overlays.vcube.places import Places
from libweft.pubsub.description import TOPICS, RouterDescription
from libweft.pubsub.promises import INTEGRITY, ONCE, Promise, Property
from libweft.pubsub.vcube_ps.config import VCubePSConfig
from libweft.pubsub.vcube_ps.router import VCubePS

DESCRIPTION = RouterDescription(
    name="vcube-ps",
    paper="de Araujo, Arantes, Duarte, Rodrigues and Sens: VCube-PS, JPDC 2018",
    use="for groups in which all publish: one copy per subscriber, in log2 N steps, in the order of each source",
    partner="vcube",
    machine=VCubePS,
    config=VCubePSConfig,
    protocols=VCubePS.protocols,
    needs=(Places,),
    interests=TOPICS,
    promises=(INTEGRITY, ONCE, Promise(Property.FIFO, HONEST), Promise(Property.REACH, DELAYS, 10.0)),
)
