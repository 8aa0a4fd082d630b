"""The description of an overlay: all that the registry, the commands and the documentation need to know of it, as data.

Each overlay's module or package exports one, named DESCRIPTION. A config is a frozen dataclass whose every field has a default;
the default gives an option its type, and the comment behind the field gives its meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

from libweft.overlays.overlay import Overlay
from libweft.peer.machine import Env, Machine, Peer, Rng

Option: TypeAlias = bool | int | float | str
Options: TypeAlias = dict[str, Option]
Contacts: TypeAlias = Sequence[Peer]
Below: TypeAlias = Sequence[Machine]
"""The machines under a router from the lowest up; the last of them is the overlay."""


class Config(Protocol):
    """A dataclass of which every field has a default."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __init__(self) -> None: ...


C = TypeVar("C", bound=Config)


def join_through_one(config: Config, nodes: int, rng: Rng, at_once: bool) -> Sequence[Contacts]:
    """Introduce nodes that begin at once to one of them, since through several they would be islands at first.

    Nodes that come one after the other are each introduced to one that came before.
    """
    return [(), *((0 if at_once else rng.randrange(number),) for number in range(1, nodes))]


def join_through_two(config: Config, live: Sequence[int], rng: Rng) -> Contacts:
    """Introduce a node that comes later to two of those that are up."""
    return tuple(rng.sample(live, min(2, len(live))))


def any_size(config: Config, nodes: int) -> None:
    """Accept every number of nodes."""


@dataclass(frozen=True)
class OverlayDescription(Generic[C]):
    """One overlay. `machine` is the class on which a router stands; its `powers` decide which routers may.

    `introduce` gives each node of a simulation its contacts, `admit` those of a node that joins later, and `check` refuses a
    scenario that the overlay cannot serve. `build` makes its machines, and gets the protocols that the router above speaks.
    """

    name: str
    paper: str
    use: str  # one line that tells people when to choose it
    partner: str  # the router that it usually carries
    machine: type[Overlay]
    config: type[C]
    build: Callable[[Callable[[], Env], Contacts, C, Sequence[str]], Below]
    survives: frozenset[str]  # kinds of faults after which the correct nodes find each other again
    protocols: tuple[str, ...] = ()
    introduce: Callable[[C, int, Rng, bool], Sequence[Contacts]] = join_through_one
    admit: Callable[[C, Sequence[int], Rng], Contacts] = join_through_two
    check: Callable[[C, int], None] = any_size

    @property
    def defaults(self) -> Options:
        return asdict(self.config())
