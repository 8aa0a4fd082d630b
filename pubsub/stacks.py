"""The registry of stacks: `overlay/router` by name, with options, for the API, the command line and the benches alike.

A new protocol is one line here. Options are the fields of configs; an option's default gives its type, the comment behind it its
meaning (`libweft.pubsub.options`), and what is allowed beyond that, its `check` says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import cache, lru_cache, partial
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

from libweft.overlays import graphs
from libweft.overlays.hyparview import HyParView, HyParViewConfig
from libweft.overlays.kademlia.config import KademliaConfig
from libweft.overlays.kademlia.dht import Kademlia
from libweft.overlays.kademlia.neighbors import KademliaNeighbors
from libweft.overlays.overlay import Overlay
from libweft.overlays.static import Static
from libweft.overlays.vcube.config import VCubeConfig
from libweft.overlays.vcube.machine import VCube
from libweft.overlays.vcube.members import Census, Founders
from libweft.overlays.xbot import XBot, XBotConfig
from libweft.peer.errors import UsageError
from libweft.peer.machine import Build, Env, Machine, Peer, Rng
from libweft.pubsub.flood import Flood
from libweft.pubsub.gossipsub.config import GossipSubConfig
from libweft.pubsub.gossipsub.router import GossipSub
from libweft.pubsub.kadpubsub.config import KadPubSubConfig
from libweft.pubsub.kadpubsub.router import KadPubSub
from libweft.pubsub.ordering.order import Order
from libweft.pubsub.plumtree import Plumtree, PlumtreeConfig
from libweft.pubsub.router import App, Router
from libweft.pubsub.scribe.config import BrokerConfig, ScribeConfig
from libweft.pubsub.scribe.router import SrptB, SrptS
from libweft.pubsub.signing import Signing
from libweft.pubsub.vcube_pb.config import VCubePBConfig
from libweft.pubsub.vcube_pb.router import VCubePB
from libweft.pubsub.vcube_ps.config import VCubePSConfig
from libweft.pubsub.vcube_ps.router import VCubePS

Option: TypeAlias = bool | int | float | str
Options: TypeAlias = dict[str, Option]
Contacts: TypeAlias = Sequence[Peer]
Below: TypeAlias = Sequence[Machine]
"""What is under a router: machines from the lowest up, the last of them the overlay."""
Made = TypeVar("Made")
MakeOrder: TypeAlias = Callable[[Env, Router, App], Order]


class Config(Protocol):
    """A dataclass of which every field has a default."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __init__(self) -> None: ...


@dataclass(frozen=True)
class StaticConfig:
    graph: str = "regular"  # who knows whom: regular, ring, full, er, or the name of a file
    degree: int = 5  # links of a node, in the graphs that have a number of them
    dial_after: int = 0  # microseconds from its start until a node dials


@dataclass(frozen=True)
class LinksConfig:
    links: int = 5  # neighbours that a node holds links to


@dataclass(frozen=True)
class StartConfig:
    start: str = "join"  # how nodes find each other: join, one after the other; order, all know all at first; oracle, at any time


@dataclass(frozen=True)
class FloodConfig:
    announce: bool = False  # neighbours are told which topics this node has, and send it those alone


@dataclass(frozen=True)
class OverlayKind:
    """`introduce` gives each node of a simulation its contacts, `admit` those of one that joins later.

    Where nodes come in their order and not all `at_once`, each is introduced to earlier ones only.
    `under` are the routers that can do with its neighbours; none means all.
    """

    configs: Sequence[type[Config]]
    check: Callable[[Options, int], None]
    introduce: Callable[[Options, int, Rng, bool], Sequence[Contacts]]
    admit: Callable[[Options, Sequence[int], Rng], Contacts]
    build: Callable[[Callable[[], Env], Contacts, Options, Sequence[str]], Below]
    under: Sequence[str] = ()

    @property
    def defaults(self) -> Options:
        return _defaults(tuple(self.configs))


@dataclass(frozen=True)
class RouterKind:
    """`live` are the defaults that differ on a real network, where peers of other libraries may be.

    `over` are the overlays that have what it needs; none means all. `config` is made of the options, and refuses wrong ones.
    """

    configs: Sequence[type[Config]]
    live: Options
    protocols: Sequence[str]
    build: Callable[[Env, Overlay, App, Options], Router]
    over: Sequence[str] = ()
    config: Callable[..., object] | None = None

    @property
    def defaults(self) -> Options:
        return _defaults(tuple(self.configs))


@cache
def _defaults(configs: Sequence[type[Config]]) -> Options:
    return {name: value for config in configs for name, value in asdict(config()).items()}


@dataclass(frozen=True)
class Stack:
    """A stack with its options filled in, ready to build nodes."""

    name: str
    overlay: OverlayKind
    overlay_options: Options
    router: RouterKind
    router_options: Options

    def introduce(self, nodes: int, rng: Rng, at_once: bool = True) -> Sequence[Contacts]:
        return self.overlay.introduce(self.overlay_options, nodes, rng, at_once)

    def admit(self, live: Sequence[int], rng: Rng) -> Contacts:
        return self.overlay.admit(self.overlay_options, live, rng)

    def node(self, contacts: Contacts, app: App, signing: Signing | None = None, order: MakeOrder | None = None) -> Build:
        """How one node is built: its overlay, then its router, then the order above it, if there is one."""
        return partial(self._build, contacts, app, signing, order)

    def _build(
        self,
        contacts: Contacts,
        app: App,
        signing: Signing | None,
        order: MakeOrder | None,
        env: Callable[[], Env],
    ) -> Sequence[Machine]:
        *beneath, overlay = self.overlay.build(env, contacts, self.overlay_options, self.router.protocols)
        assert isinstance(overlay, Overlay)
        router = self.router.build(env(), overlay, app, self.router_options)
        router.signing = signing
        above = [router] if order is None else [router, order(env(), router, app)]
        return _apart([*beneath, overlay, *above])


def _apart(machines: Sequence[Machine]) -> Sequence[Machine]:
    """What a peer sends goes to one machine, the one whose protocol it is."""
    whose: dict[str, Machine] = {}
    for machine in machines:
        for protocol in machine.protocols:
            if whose.setdefault(protocol, machine) is not machine:
                both = f"{type(whose[protocol]).__name__} and {type(machine).__name__}"
                raise UsageError(f"{both} of one stack have the same protocol, {protocol}")
    return machines


def find(name: str, overlay: Options, router: Options, *, live: bool = False) -> Stack:
    """The stack of that name; a wrong name or option is a UsageError that lists what there is."""
    if not isinstance(name, str):
        raise UsageError(f"a stack is named OVERLAY/ROUTER, not {name!r:.80}; there are: {', '.join(names())}")
    below, _, above = name.partition("/")
    if name not in names():
        near = get_close_matches(name, names(), 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise UsageError(f"no stack is called {name!r}{hint}; there are: {', '.join(names())}")
    lower, upper = OVERLAYS[below], ROUTERS[above]
    defaults = upper.defaults | upper.live if live else upper.defaults
    options = _filled("overlay", below, lower.defaults, overlay), _filled("router", above, defaults, router)
    return Stack(name, lower, options[0], upper, options[1])


def check(name: str, overlay: Options, router: Options, nodes: int) -> None:
    stack = find(name, overlay, router)
    stack.overlay.check(stack.overlay_options, nodes)
    if stack.router.config is not None:
        _config("router", stack.router.config, stack.router_options)


def names() -> list[str]:
    pairs = [(below, above) for below in OVERLAYS for above in ROUTERS]
    return [f"{below}/{above}" for below, above in pairs if _fit(below, OVERLAYS[below].under, above, ROUTERS[above].over)]


def _fit(below: str, under: Sequence[str], above: str, over: Sequence[str]) -> bool:
    return (not over or below in over) and (not under or above in under)


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


def _check_static(options: Options, nodes: int) -> None:
    graphs.check(str(options["graph"]), nodes, int(options["degree"]))
    if int(options["dial_after"]) < 0:
        raise UsageError(f"overlay.dial_after is {options['dial_after']}; it must be 0 or more")


def _introduce_static(options: Options, nodes: int, rng: Rng, at_once: bool) -> Sequence[Contacts]:
    """Each edge is dialled from one end, the later one if there is one; the other takes every peer that speaks its protocol."""
    contacts: list[list[Peer]] = [[] for _ in range(nodes)]
    for a, b in graphs.draw(str(options["graph"]), nodes, int(options["degree"]), rng):
        dialler, dialled = (a, b) if at_once else (b, a)
        contacts[dialler].append(dialled)
    return [tuple(peers) for peers in contacts]


def _admit_static(options: Options, live: Sequence[int], rng: Rng) -> Contacts:
    return tuple(sorted(rng.sample(live, min(int(options["degree"]), len(live)))))


def _build_static(env: Callable[[], Env], contacts: Contacts, options: Options, protocols: Sequence[str]) -> Below:
    return [Static(env(), contacts, protocols, int(options["dial_after"]))]


def _config(layer: str, kind: Callable[..., Made], options: Options) -> Made:
    """A config's error names its field, after its own name; here that is a key of the layer."""
    try:
        shared: Made = _shared(kind, tuple(options.items()))
    except UsageError as error:
        said = re.fullmatch(r"(?:\w+: )?((\w+)\b.*)", str(error), re.DOTALL)
        raise UsageError(f"{layer}.{said[1]}" if said is not None and said[2] in options else str(error)) from None
    return shared


@lru_cache(maxsize=64)
def _shared(kind: Callable[..., object], options: tuple[tuple[str, Option], ...]) -> Any:
    """One for all nodes of a simulation."""
    return kind(**dict(options))


def _check_hyparview(options: Options, nodes: int) -> None:
    _config("overlay", HyParViewConfig, options)


def _introduce_hyparview(options: Options, nodes: int, rng: Rng, at_once: bool) -> Sequence[Contacts]:
    """Those that begin at once all join through one: through several they would be islands at first."""
    return [(), *((0 if at_once else rng.randrange(number),) for number in range(1, nodes))]


def _admit_hyparview(options: Options, live: Sequence[int], rng: Rng) -> Contacts:
    return tuple(rng.sample(live, min(2, len(live))))


def _build_hyparview(env: Callable[[], Env], contacts: Contacts, options: Options, protocols: Sequence[str]) -> Below:
    return [HyParView(env(), contacts, _config("overlay", HyParViewConfig, options))]


def _check_xbot(options: Options, nodes: int) -> None:
    _config("overlay", XBotConfig, options)


def _build_xbot(env: Callable[[], Env], contacts: Contacts, options: Options, protocols: Sequence[str]) -> Below:
    return [XBot(env(), contacts, _config("overlay", XBotConfig, options))]


def _check_kademlia(options: Options, nodes: int) -> None:
    _kademlia_config(options)
    if not options["server"]:
        raise UsageError("overlay.server is false; all nodes of a scenario have the same options, and clients alone cannot talk")
    if int(options["links"]) < 1:
        raise UsageError(f"overlay.links is {options['links']}; it must be at least 1")


def _introduce_kademlia(options: Options, nodes: int, rng: Rng, at_once: bool) -> Sequence[Contacts]:
    """Those that begin at once know one, and another that most do not know: no node can be all the others' only way in."""
    if not at_once:
        return [tuple(rng.sample(range(number), min(2, number))) for number in range(nodes)]
    return [(), *((0, rng.randrange(number)) for number in range(1, nodes))]


def _build_kademlia(env: Callable[[], Env], contacts: Contacts, options: Options, protocols: Sequence[str]) -> Below:
    kademlia = Kademlia(env(), contacts, _kademlia_config(options))
    return [kademlia, KademliaNeighbors(env(), kademlia, int(options["links"]), protocols)]


def _kademlia_config(options: Options) -> KademliaConfig:
    return _config("overlay", KademliaConfig, {name: value for name, value in options.items() if name != "links"})


def _check_vcube(options: Options, nodes: int) -> None:
    _vcube_config(options)
    Founders(nodes)


def _introduce_vcube(options: Options, nodes: int, rng: Rng, at_once: bool) -> Sequence[Contacts]:
    """By order, all know each other's places from the start; an oracle knows them at any time. Else they join."""
    start = options["start"]
    if start == "oracle":
        return [Census(nodes)] * nodes
    if start == "order" and at_once:
        return [Founders(nodes)] * nodes
    return _introduce_hyparview(options, nodes, rng, at_once)


def _build_vcube(env: Callable[[], Env], contacts: Contacts, options: Options, protocols: Sequence[str]) -> Below:
    if options["start"] == "oracle" and not isinstance(contacts, Census):
        raise UsageError("overlay.start is oracle, which is for nodes that are all there from the start of a simulation")
    return [VCube(env(), contacts, _vcube_config(options))]


def _vcube_config(options: Options) -> VCubeConfig:
    if options["start"] not in STARTS:
        raise UsageError(f"overlay.start is {options['start']!r}; choose {', '.join(STARTS)}")
    return _config("overlay", VCubeConfig, {name: value for name, value in options.items() if name != "start"})


def _build_vcube_ps(env: Env, overlay: Overlay, app: App, options: Options) -> Router:
    return VCubePS(env, overlay, app, _config("router", VCubePSConfig, options))


def _build_srpt_s(env: Env, overlay: Overlay, app: App, options: Options) -> Router:
    return SrptS(env, overlay, app, _config("router", ScribeConfig, options))


def _build_srpt_b(env: Env, overlay: Overlay, app: App, options: Options) -> Router:
    return SrptB(env, overlay, app, _config("router", BrokerConfig, options))


def _build_vcube_pb(env: Env, overlay: Overlay, app: App, options: Options) -> Router:
    return VCubePB(env, overlay, app, _config("router", VCubePBConfig, options))


def _build_kadpubsub(env: Env, overlay: Overlay, app: App, options: Options) -> Router:
    return KadPubSub(env, overlay, app, _config("router", KadPubSubConfig, options))


def _build_flood(env: Env, overlay: Overlay, app: App, options: Options) -> Router:
    return Flood(env, overlay, app, announce=bool(options["announce"]))


def _build_gossipsub(env: Env, overlay: Overlay, app: App, options: Options) -> Router:
    return GossipSub(env, overlay, app, _config("router", GossipSubConfig, options))


def _build_plumtree(env: Env, overlay: Overlay, app: App, options: Options) -> Router:
    return Plumtree(env, overlay, app, _config("router", PlumtreeConfig, options))


STARTS = ("join", "order", "oracle")

OVERLAYS = {
    "static": OverlayKind((StaticConfig,), _check_static, _introduce_static, _admit_static, _build_static),
    "hyparview": OverlayKind((HyParViewConfig,), _check_hyparview, _introduce_hyparview, _admit_hyparview, _build_hyparview),
    "xbot": OverlayKind((XBotConfig,), _check_xbot, _introduce_hyparview, _admit_hyparview, _build_xbot),
    "kademlia": OverlayKind(
        (KademliaConfig, LinksConfig), _check_kademlia, _introduce_kademlia, _admit_hyparview, _build_kademlia
    ),
    "vcube": OverlayKind(
        (VCubeConfig, StartConfig),
        _check_vcube,
        _introduce_vcube,
        _admit_hyparview,
        _build_vcube,
        ("vcube-ps", "vcube-pb", "srpt-s", "srpt-b"),
    ),
}

ROUTERS = {
    "flood": RouterKind((FloodConfig,), {"announce": True}, Flood.protocols, _build_flood),
    "plumtree": RouterKind((PlumtreeConfig,), {}, Plumtree.protocols, _build_plumtree, config=PlumtreeConfig),
    "gossipsub": RouterKind((GossipSubConfig,), {}, GossipSub.protocols, _build_gossipsub, config=GossipSubConfig),
    "kadpubsub": RouterKind((KadPubSubConfig,), {}, KadPubSub.protocols, _build_kadpubsub, ("kademlia",), KadPubSubConfig),
    "vcube-ps": RouterKind((VCubePSConfig,), {}, VCubePS.protocols, _build_vcube_ps, ("vcube",), VCubePSConfig),
    "vcube-pb": RouterKind((VCubePBConfig,), {}, VCubePB.protocols, _build_vcube_pb, ("vcube",), VCubePBConfig),
    "srpt-s": RouterKind((ScribeConfig,), {}, SrptS.protocols, _build_srpt_s, ("vcube", "kademlia"), ScribeConfig),
    "srpt-b": RouterKind((BrokerConfig,), {}, SrptB.protocols, _build_srpt_b, ("vcube",), BrokerConfig),
}
