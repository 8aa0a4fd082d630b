"""A scenario: all that decides a simulated run, as one frozen config.

Two equal scenarios give the same run to the byte. Times are seconds, sizes are bytes, latencies are milliseconds.
`libweft.bench.runs.reading` makes a scenario from TOML and flags, and `libweft.bench.runs.replay` writes it as both again.

Bounds: every number has an upper limit, so that a slip of the finger is refused and does not eat the machine.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from libweft.bench.runs.attacks import AnyAttack
from libweft.peer.sim.faults import AnyFault
from libweft.peer.sim.latency import Latency, Uniform

YEAR = 31_536_000.0
MOST_NODES = 1_000_000

Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=YEAR)]
Period: TypeAlias = Annotated[float, Meta(gt=0, le=YEAR)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
ShareOrCount: TypeAlias = Annotated[int, Meta(ge=0, le=MOST_NODES)] | Annotated[float, Meta(ge=0, le=1)]
"""A whole number counts nodes, a number with a point is a share of them: 1 is one node, 1.0 is all; `head_count` reads it."""

Node: TypeAlias = Annotated[int, Meta(ge=0, lt=MOST_NODES)]
Option: TypeAlias = bool | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | Annotated[float, Meta(ge=-1e308, le=1e308)] | str
Options: TypeAlias = dict[Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")], Option]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of a scenario file."""


class Workload(Section, frozen=True, kw_only=True):
    """Subscriptions and publications; `exponent` is Zipf's s, or the rate of the exponential.

    With `answers` the messages are questions, and a subscriber answers after every `answers` deliveries:
    `libweft.bench.runs.discussion`. `phased`: each publisher publishes at equal intervals from a moment that is drawn for it,
    and all publishers together at `rate`. `subscribing` and `publishing` name the nodes instead of drawing them.
    """

    topics: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    popularity: Literal["uniform", "zipf", "exponential"] = "uniform"
    exponent: Annotated[float, Meta(ge=0, le=100)] = 1.0
    subscribers: ShareOrCount = 1.0
    subscribing: tuple[Node, ...] = ()
    interests: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    publishers: ShareOrCount = 1.0
    publishing: tuple[Node, ...] = ()
    messages: Annotated[int, Meta(ge=0, le=10_000_000)] = 10
    rate: Annotated[float, Meta(gt=0, le=1_000_000)] = 10.0
    arrivals: Literal["regular", "poisson", "phased"] = "regular"
    order: Literal["none", "fifo", "causal"] = "none"
    size: Annotated[int, Meta(ge=0, le=900_000)] = 100
    answers: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    answer_ms: Annotated[int, Meta(ge=0, le=1_000_000)] = 100
    turns: Annotated[int, Meta(ge=1, le=1_000_000)] = 1


class Network(Section, frozen=True, kw_only=True):
    """Limits of nodes and links: `bandwidth` of a node in bytes per second, 0 for no limit; `queue` of a link in bytes."""

    codec: bool = False
    bandwidth: Annotated[float, Meta(ge=0, le=1e12)] = 0.0
    queue: Annotated[int, Meta(ge=1, le=2**40)] = 1 << 20
    detection: Seconds = 5.0
    dial_timeout: Period = 5.0
    idle: Period = 60.0


class Churn(Section, frozen=True, kw_only=True):
    """Nodes and subscriptions that come and go; `session`, `subscriptions` and `swaps` are means of exponential draws.

    Each `every`, the share `correlated` of the nodes leaves at once, and up to the share `changing` subscribes or unsubscribes.
    """

    session: Seconds = 0.0
    replace: bool = True
    graceful: bool = False
    correlated: Share = 0.0
    every: Period = 10.0
    subscriptions: Seconds = 0.0
    swaps: Seconds = 0.0
    changing: Share = 0.0
    start: Seconds = 0.0
    stop: Seconds | None = None


class TraceSettings(Section, frozen=True, kw_only=True):
    """The rows that the trace records; no `kinds` means all of them."""

    level: Literal["none", "default", "full"] = "default"
    kinds: tuple[str, ...] = ()


class Scenario(Section, frozen=True, kw_only=True):
    """All settings of a run.

    One node comes up each `join_every`, or with 0 all come up at time 0. The first message is published after the `warmup`.
    """

    stack: str = "static/flood"
    nodes: Annotated[int, Meta(ge=1, le=MOST_NODES)] = 100
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 1
    duration: Seconds | None = None
    join_every: Seconds = 0.0
    warmup: Seconds = 5.0
    window: Period = 10.0
    overlay: Options = {}
    router: Options = {}
    latency: Latency = Uniform(low=10.0, high=100.0)
    network: Network = Network()
    workload: Workload = Workload()
    churn: Churn = Churn()
    faults: tuple[AnyFault, ...] = ()
    attacks: tuple[AnyAttack, ...] = ()
    trace: TraceSettings = TraceSettings()


def head_count(share: int | float, nodes: int) -> int:
    """Return the number of nodes that a ShareOrCount stands for; a share above 0 is at least one node."""
    if isinstance(share, int):
        return min(share, nodes)
    return max(1, round(share * nodes)) if share > 0 else 0


def to_dict(scenario: Scenario) -> dict[str, Any]:
    """Return plain values with the keys of a scenario file. A key without a value is left out, as in TOML."""
    data: dict[str, Any] = _without_none(msgspec.to_builtins(scenario))
    data["latency"].pop("rows", None)
    return data


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list | tuple) else value
