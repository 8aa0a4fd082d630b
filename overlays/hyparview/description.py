"""HyParView as the registry knows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from libweft.overlays.description import Below, Contacts, OverlayDescription
from libweft.overlays.fault_groups import CRASHES, TRANSIENT
from libweft.overlays.hyparview.config import HyParViewConfig
from libweft.overlays.hyparview.machine import HyParView
from libweft.peer.machine import Env


def _build(env: Callable[[], Env], contacts: Contacts, config: HyParViewConfig, protocols: Sequence[str]) -> Below:
    return [HyParView(env(), contacts, config)]


DESCRIPTION = OverlayDescription(
    name="hyparview",
    paper="Leitao, Pereira and Rodrigues: HyParView, DSN 2007",
    use="for most networks: a few neighbours each, joined by itself, and repaired even after mass crashes",
    partner="plumtree",
    machine=HyParView,
    config=HyParViewConfig,
    build=_build,
    survives=TRANSIENT | CRASHES,
    protocols=HyParView.protocols,
)
