"""VCube-PB as the registry knows it."""

from __future__ import annotations

from libweft.overlays.fault_groups import BREAKS, DELAYS, HONEST, LOSSES
from libweft.overlays.vcube.places import Places
from libweft.pubsub.description import TOPICS, RouterDescription
from libweft.pubsub.promises import INTEGRITY, ONCE, Promise, Property
from libweft.pubsub.vcube_pb.config import VCubePBConfig
from libweft.pubsub.vcube_pb.router import VCubePB

KEPT = "A node keeps messages for 120 s, 4,096 of them and 16 MiB at most, and only those can be fetched."

DESCRIPTION = RouterDescription(
    name="vcube-pb",
    paper="de Araujo, Rodrigues, Arantes, Duarte and Sens: VCube-PB, SBRC 2017",
    use="where all must get the same messages, whoever crashes: reliable broadcast in topics",
    partner="vcube",
    machine=VCubePB,
    config=VCubePBConfig,
    protocols=VCubePB.protocols,
    needs=(Places,),
    interests=TOPICS,
    promises=(
        INTEGRITY,
        ONCE,
        Promise(Property.FIFO, HONEST),
        Promise(Property.AGREEMENT, DELAYS | LOSSES | BREAKS | {"crash", "mass_crash"}, 60.0, KEPT),
        Promise(Property.REACH, DELAYS | LOSSES | BREAKS | {"crash", "mass_crash"}, 60.0, KEPT),
    ),
)
