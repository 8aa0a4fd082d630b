"""Kademlia as the registry knows it: the DHT, and above it the links that routers use."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from libweft.overlays.description import Below, Contacts, OverlayDescription
from libweft.overlays.fault_groups import CRASHES, TRANSIENT
from libweft.overlays.kademlia.config import NeighborsConfig
from libweft.overlays.kademlia.messages import PROTOCOL
from libweft.overlays.kademlia.neighbors import KademliaNeighbors
from libweft.overlays.kademlia.put_and_get import Kademlia
from libweft.peer.errors import UsageError
from libweft.peer.machine import Env, Rng


def _check(config: NeighborsConfig, nodes: int) -> None:
    if not config.server:
        raise UsageError("overlay.server is false; all nodes of a scenario have the same options, and clients alone cannot talk")


def _introduce(config: NeighborsConfig, nodes: int, rng: Rng, at_once: bool) -> Sequence[Contacts]:
    """Nodes that begin at once know one, and another that most do not know: no node can be all the others' only way in."""
    if not at_once:
        return [tuple(rng.sample(range(number), min(2, number))) for number in range(nodes)]
    return [(), *((0, rng.randrange(number)) for number in range(1, nodes))]


def _build(env: Callable[[], Env], contacts: Contacts, config: NeighborsConfig, protocols: Sequence[str]) -> Below:
    kademlia = Kademlia(env(), contacts, config)
    return [kademlia, KademliaNeighbors(env(), kademlia, config.links, protocols)]


DESCRIPTION = OverlayDescription(
    name="kademlia",
    paper="Maymounkov and Mazieres: Kademlia, IPTPS 2002; libp2p's kad-dht",
    use="for large networks in which peers, values or the subscribers of a topic are found by a key, also with libp2p peers",
    partner="kadpubsub",
    machine=KademliaNeighbors,
    config=NeighborsConfig,
    build=_build,
    survives=TRANSIENT | CRASHES,
    protocols=(PROTOCOL, *KademliaNeighbors.protocols),
    introduce=_introduce,
    check=_check,
)
