"""The registry of stacks: `overlay/router` by name, with options, for the API, the command line and the benches alike.

It only reads descriptions. A new protocol is one line here, and all else stands in its own DESCRIPTION. A stack is refused when
it is named if its overlay lacks a power that its router needs. A single name stands for its usual stack: `plumtree` is
`hyparview/plumtree`, because each description names its usual partner.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache, partial
from typing import Any, TypeAlias, TypeVar

from libweft.overlays import static, xbot
from libweft.overlays.description import Config, Contacts, Option, Options, OverlayDescription
from libweft.overlays.hyparview.description import DESCRIPTION as HYPARVIEW
from libweft.overlays.kademlia.description import DESCRIPTION as KADEMLIA
from libweft.overlays.overlay import Overlay
from libweft.overlays.powers import has, name_of
from libweft.overlays.vcube.description import DESCRIPTION as VCUBE
from libweft.peer.errors import UsageError
from libweft.peer.machine import Build, Env, Machine, Rng
from libweft.pubsub import flood, plumtree
from libweft.pubsub.description import RouterDescription
from libweft.pubsub.gossipsub.description import DESCRIPTION as GOSSIPSUB
from libweft.pubsub.kadpubsub.description import DESCRIPTION as KADPUBSUB
from libweft.pubsub.ordering.order import Order
from libweft.pubsub.promises import Promise
from libweft.pubsub.router import App, Router
from libweft.pubsub.scribe.description import SRPT_B, SRPT_S
from libweft.pubsub.signing import Signing
from libweft.pubsub.vcube_pb.description import DESCRIPTION as VCUBE_PB
from libweft.pubsub.vcube_ps.description import DESCRIPTION as VCUBE_PS

Made = TypeVar("Made")
MakeOrder: TypeAlias = Callable[[Env, Router, App], Order]

OVERLAYS: dict[str, OverlayDescription[Any]] = {
    each.name: each for each in (static.DESCRIPTION, HYPARVIEW, xbot.DESCRIPTION, KADEMLIA, VCUBE)
}
ROUTERS: dict[str, RouterDescription[Any]] = {
    each.name: each
    for each in (flood.DESCRIPTION, plumtree.DESCRIPTION, GOSSIPSUB, KADPUBSUB, VCUBE_PS, VCUBE_PB, SRPT_S, SRPT_B)
}


@dataclass(frozen=True)
class Stack:
    """A stack with its options filled in, ready to build nodes. `name` is its full name."""

    name: str
    overlay: OverlayDescription[Any]
    overlay_options: Options
    router: RouterDescription[Any]
    router_options: Options

    def introduce(self, nodes: int, rng: Rng, at_once: bool = True) -> Sequence[Contacts]:
        """Return the contacts of each node of a simulation; where not all begin at once, of earlier nodes only."""
        return self.overlay.introduce(self._overlay_config(), nodes, rng, at_once)

    def admit(self, live: Sequence[int], rng: Rng) -> Contacts:
        """Return the contacts of a node that joins those in `live`."""
        return self.overlay.admit(self._overlay_config(), live, rng)

    def check(self, nodes: int) -> None:
        """Raise a UsageError for options that do not go together, or that `nodes` nodes cannot have."""
        self.overlay.check(self._overlay_config(), nodes)
        self._router_config()

    @property
    def promises(self) -> tuple[Promise, ...]:
        """The promises of the router. Those that depend on links hold only under faults that the overlay survives too."""
        return tuple(
            replace(promise, withstands=promise.withstands & self.overlay.survives) if promise.within_s else promise
            for promise in self.router.promises
        )

    def node(self, contacts: Contacts, app: App, signing: Signing | None = None, order: MakeOrder | None = None) -> Build:
        """Return the function that builds one node: its overlay, then its router, then the order above it, if there is one."""
        return partial(self._build, contacts, app, signing, order)

    def _build(
        self, contacts: Contacts, app: App, signing: Signing | None, order: MakeOrder | None, env: Callable[[], Env]
    ) -> Sequence[Machine]:
        *beneath, overlay = self.overlay.build(env, contacts, self._overlay_config(), self.router.protocols)
        assert isinstance(overlay, Overlay)
        router = self.router.machine(env(), overlay, app, self._router_config())
        router.signing = signing
        above = [router] if order is None else [router, order(env(), router, app)]
        return _apart([*beneath, overlay, *above])

    def _overlay_config(self) -> Any:
        return _config("overlay", self.overlay.config, self.overlay_options)

    def _router_config(self) -> Any:
        return _config("router", self.router.config, self.router_options)


def find(name: str, overlay: Options, router: Options, *, live: bool = False) -> Stack:
    """Return the stack of that name; a wrong name or option is a UsageError that lists what there is."""
    below, above = _named(name)
    defaults = above.defaults | above.live if live else above.defaults
    options = _filled("overlay", below.name, below.defaults, overlay), _filled("router", above.name, defaults, router)
    return Stack(f"{below.name}/{above.name}", below, options[0], above, options[1])


def check(name: str, overlay: Options, router: Options, nodes: int) -> None:
    """Raise a UsageError where a scenario of `nodes` nodes cannot have this stack with these options."""
    find(name, overlay, router).check(nodes)


def full_name(name: str) -> str:
    """Return `overlay/router`, also for the name of one of them, which stands for its usual stack."""
    below, above = _named(name)
    return f"{below.name}/{above.name}"


def names() -> list[str]:
    """Return the full names of all stacks, overlay by overlay."""
    pairs = [(below, above) for below in OVERLAYS.values() for above in ROUTERS.values()]
    return [f"{below.name}/{above.name}" for below, above in pairs if not _lacking(below, above)]


def _named(name: str) -> tuple[OverlayDescription[Any], RouterDescription[Any]]:
    if not isinstance(name, str):
        raise UsageError(f"a stack is named OVERLAY/ROUTER, not {name!r:.80}; there are: {', '.join(names())}")
    lower, upper = name.split("/", 1) if "/" in name else _usual(name)
    below, above = OVERLAYS.get(lower), ROUTERS.get(upper)
    if below is None or above is None:
        near = get_close_matches(name, [*names(), *OVERLAYS, *ROUTERS], 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise UsageError(f"no stack is called {name!r}{hint}; there are: {', '.join(names())}")
    if lacking := _lacking(below, above):
        others = [each.name for each in OVERLAYS.values() if not _lacking(each, above)]
        raise UsageError(f"{above.name} needs {lacking}, which {below.name} does not provide; choose one of {', '.join(others)}")
    return below, above


def _usual(name: str) -> tuple[str, str]:
    """Return the overlay and the router for which a single name stands."""
    if name in OVERLAYS:
        return name, OVERLAYS[name].partner
    return ROUTERS[name].partner if name in ROUTERS else "", name


def _lacking(below: OverlayDescription[Any], above: RouterDescription[Any]) -> str:
    return " and ".join(name_of(need) for need in above.needs if not has(below.machine, need))


def _filled(layer: str, name: str, defaults: Options, given: Options) -> Options:
    for key, value in given.items():
        if key not in defaults:
            allowed = ", ".join(defaults) or "none"
            raise UsageError(f"{layer}.{key} is no option of {name}; its options: {allowed}")
        wanted = type(defaults[key])
        if wanted is float and type(value) is int:
            continue
        if type(value) is not wanted:
            raise UsageError(f"{layer}.{key} is {value!r}; it must be of type {wanted.__name__}")
    return {**defaults, **given}


def _config(layer: str, kind: type[Config], options: Options) -> Any:
    """Return the config of these options. Its error names a field after its own name; here that is a key of the layer."""
    try:
        return _shared(kind, tuple(options.items()))
    except UsageError as error:
        said = re.fullmatch(r"(?:[\w-]+: )?((\w+)\b.*)", str(error), re.DOTALL)
        raise UsageError(f"{layer}.{said[1]}" if said is not None and said[2] in options else str(error)) from None


@lru_cache(maxsize=64)
def _shared(kind: Callable[..., Made], options: tuple[tuple[str, Option], ...]) -> Made:
    """One config serves all nodes of a simulation."""
    return kind(**dict(options))


def _apart(machines: Sequence[Machine]) -> Sequence[Machine]:
    """Return the machines if no two of them speak one protocol, because a message goes to the machine of its protocol."""
    whose: dict[str, Machine] = {}
    for machine in machines:
        for protocol in machine.protocols:
            if whose.setdefault(protocol, machine) is not machine:
                both = f"{type(whose[protocol]).__name__} and {type(machine).__name__}"
                raise UsageError(f"{both} of one stack have the same protocol, {protocol}")
    return machines
