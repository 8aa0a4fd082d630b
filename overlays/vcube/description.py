"""VCube as the registry knows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from libweft.overlays.description import Below, Contacts, OverlayDescription, join_through_one
from libweft.overlays.fault_groups import CRASHES, TRANSIENT
from libweft.overlays.vcube.config import StartConfig
from libweft.overlays.vcube.machine import VCube
from libweft.overlays.vcube.members import Census, Founders
from libweft.peer.errors import UsageError
from libweft.peer.machine import Env, Rng


def _check(config: StartConfig, nodes: int) -> None:
    Founders(nodes)


def _introduce(config: StartConfig, nodes: int, rng: Rng, at_once: bool) -> Sequence[Contacts]:
    """Give all nodes their places at the start (`order`), at any time (`oracle`), or only contacts to join through (`join`)."""
    if config.start == "oracle":
        return [Census(nodes)] * nodes
    if config.start == "order" and at_once:
        return [Founders(nodes)] * nodes
    return join_through_one(config, nodes, rng, at_once)


def _build(env: Callable[[], Env], contacts: Contacts, config: StartConfig, protocols: Sequence[str]) -> Below:
    if config.start == "oracle" and not isinstance(contacts, Census):
        raise UsageError("overlay.start is oracle, which is for nodes that are all there from the start of a simulation")
    return [VCube(env(), contacts, config)]


DESCRIPTION = OverlayDescription(
    name="vcube",
    paper="Duarte, Bona and Ruoso: VCube, ScalA 2014",
    use="for up to some thousands of nodes that all know each other and detect crashes together",
    partner="vcube-ps",
    machine=VCube,
    config=StartConfig,
    build=_build,
    survives=TRANSIENT | CRASHES,
    protocols=VCube.protocols,
    introduce=_introduce,
    check=_check,
)
