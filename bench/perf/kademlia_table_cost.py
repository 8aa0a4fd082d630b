"""`weft bench micro --case kademlia-table`: the cost of a routing table, beside that of the PyPI package `kademlia`.

Each table is offered 10,000 random contacts, k = 20, and then looks up 1,000 places, half of them near to its own. The two take
turns, and CPU time is counted. The places of contacts are computed before: ours are cached, and the package's nodes hold
theirs. `exact` is the share of answers that hold exactly the nearest of all contacts in the table. Without the package, which
the extra `kademlia` installs, its columns are left out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from random import Random
from statistics import median
from typing import Any, Protocol

from libweft.overlays.kademlia.space import BITS, place_of
from libweft.overlays.kademlia.table import Table

K = 20
CONTACTS = 10_000
PLACES = 1_000
ROUNDS = 5
THEIR_BITS = 160


class Kind(Protocol):
    """One library's table: empty, offered a contact, asked; `exact` says whether an answer is."""

    def fresh(self) -> None: ...
    def insert(self, number: int) -> None: ...
    def nearest(self, number: int) -> Any: ...
    def exact(self, number: int, answer: Any) -> bool: ...


class Ours:
    def __init__(self, contacts: int, places: int, rng: Random) -> None:
        self.peers = [rng.randbytes(38) for _ in range(contacts)]
        mine = place_of(b"me")
        for peer in self.peers:
            place_of(peer)
        self.places = [_near(mine, BITS, number, rng) for number in range(places)]

    def fresh(self) -> None:
        self.table = Table(b"me", K, 8)

    def insert(self, number: int) -> None:
        self.table.see(self.peers[number])

    def nearest(self, number: int) -> Any:
        return self.table.nearest(self.places[number], K)

    def exact(self, number: int, answer: Any) -> bool:
        place = self.places[number]
        return bool(answer == sorted(self.table, key=lambda peer: place_of(peer) ^ place)[:K])


class Theirs:
    def __init__(self, contacts: int, places: int, rng: Random) -> None:
        from kademlia.node import Node  # type: ignore[import-untyped]

        self.me = Node(rng.randbytes(THEIR_BITS // 8))
        self.nodes = [Node(rng.randbytes(THEIR_BITS // 8), "192.0.2.1", 1 + number % 60_000) for number in range(contacts)]
        near = [_near(self.me.long_id, THEIR_BITS, number, rng) for number in range(places)]
        self.places = [Node(place.to_bytes(THEIR_BITS // 8)) for place in near]

    def fresh(self) -> None:
        from kademlia.routing import RoutingTable  # type: ignore[import-untyped]

        self.table = RoutingTable(_Silent(), K, self.me)

    def insert(self, number: int) -> None:
        self.table.add_contact(self.nodes[number])

    def nearest(self, number: int) -> Any:
        return self.table.find_neighbors(self.places[number], K)

    def exact(self, number: int, answer: Any) -> bool:
        place = self.places[number]
        kept = [node for bucket in self.table.buckets for node in bucket.get_nodes()]
        return [node.id for node in answer] == [node.id for node in sorted(kept, key=place.distance_to)[:K]]


class _Silent:
    """The package asks its oldest contact whether it is there, by a task; here the answer is one that never comes."""

    def __init__(self) -> None:
        loop = asyncio.new_event_loop()
        self.answer = loop.create_future()
        loop.close()

    def call_ping(self, node: object) -> asyncio.Future[Any]:
        return self.answer


def measure_tables(quick: bool) -> dict[str, Any]:
    contacts, places, rounds = (CONTACTS // 10, PLACES // 10, 1) if quick else (CONTACTS, PLACES, ROUNDS)
    kinds: dict[str, Kind] = {"": Ours(contacts, places, Random(1))}
    if _installed():
        kinds["kademlia_"] = Theirs(contacts, places, Random(1))
    figures: dict[str, list[tuple[float, float, float]]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, kind in kinds.items():
            figures[name].append(_measure(kind, contacts, places))
    found: dict[str, Any] = {"contacts": contacts, "rounds": rounds}
    for name, rows in figures.items():
        inserts, asks, exact = zip(*rows, strict=True)
        found |= {f"{name}insert_us": median(inserts), f"{name}nearest_us": median(asks), f"{name}exact": median(exact)}
    return found


def _measure(kind: Kind, contacts: int, places: int) -> tuple[float, float, float]:
    kind.fresh()
    inserted, _ = _timed(kind.insert, contacts)
    asked, answers = _timed(kind.nearest, places)
    exact = sum(kind.exact(number, answer) for number, answer in enumerate(answers))
    return inserted, asked, exact / places


def _timed(action: Callable[[int], Any], times: int) -> tuple[float, Sequence[Any]]:
    """Microseconds of CPU each, and what came out."""
    began = time.process_time()
    out = [action(number) for number in range(times)]
    return (time.process_time() - began) / times * 1e6, out


def _near(mine: int, bits: int, number: int, rng: Random) -> int:
    """Every other place is near to the own one."""
    return mine ^ rng.getrandbits(bits if number % 2 else bits - 8)


def _installed() -> bool:
    from importlib.util import find_spec

    return find_spec("kademlia") is not None
