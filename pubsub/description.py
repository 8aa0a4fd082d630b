"""The description of a router: all that the registry, the commands and the documentation need to know of it, as data.

Each router's module or package exports one, named DESCRIPTION. The package `scribe` exports two, SRPT_S and SRPT_B.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Generic

from libweft.overlays.description import C, Options
from libweft.overlays.overlay import Overlay
from libweft.overlays.powers import Need
from libweft.peer.machine import Env
from libweft.pubsub.interests import Filter
from libweft.pubsub.promises import Promise
from libweft.pubsub.router import App, Router

TOPICS: tuple[type, ...] = (str,)
TOPICS_AND_FILTERS: tuple[type, ...] = (str, Filter)


@dataclass(frozen=True)
class RouterDescription(Generic[C]):
    """One router. `needs` are the powers without which no overlay can carry it; of a tuple of powers one is enough.

    `live` are the defaults that differ on a real network, where peers of other libraries may be.
    """

    name: str
    paper: str
    use: str  # one line that tells people when to choose it
    partner: str  # the overlay that it usually stands on
    machine: Callable[[Env, Overlay, App, Any], Router]
    config: type[C]
    protocols: tuple[str, ...]
    needs: tuple[Need, ...]
    interests: tuple[type, ...]
    promises: tuple[Promise, ...]
    live: Options = field(default_factory=dict)

    @property
    def defaults(self) -> Options:
        return asdict(self.config())
