"""`weft bench lookups`: how true Kademlia's answers are, in the simulator: calm, under churn, after it, and among liars.

Nodes join one by one, each through two random ones that are up. A lookup begins at a random node, for a random key, and is held
against the nodes that are up when it ends: `recall` is the share of the true k nearest that it names, `nearest` how often the
very nearest comes first, `exact` how often all is right; `hops` are the questions from the start to the nearest. Under churn so
many nodes a minute crash, each replaced by a new one; a lookup that its node did not live to see is left out. Values are stored
before half of the nodes crash, and asked for after. A liar answers every question with other liars, those nearest to the key,
and keeps nothing; `honest` is how often the nearest honest node is among those found, by one path and by several. Whom a node
joins through is honest: who knows liars alone is lost. Since each lie sorts all liars, their network has MISLED nodes at most,
and says how many it has: `nodes_with_liars`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

from libweft.bench.progress import Progress
from libweft.overlays.kademlia.config import KademliaConfig
from libweft.overlays.kademlia.messages import FindNode, GetProviders, GetValue
from libweft.overlays.kademlia.put_and_get import Kademlia
from libweft.overlays.kademlia.query import Query
from libweft.overlays.kademlia.space import place_of, place_of_key
from libweft.peer.errors import UsageError, WeftError
from libweft.peer.machine import MS, SECOND, Peer, PeerInfo, Reply, answers
from libweft.peer.sim.simulator import Simulator

JOIN_EVERY = 10 * MS
SETTLE = 60 * SECOND
LOOKUP_EVERY = 20 * MS
WAIT = 20 * SECOND
MINUTE = 60 * SECOND
PATHS = 4
MISLED = 2_000
DAY = 86_400 * SECOND


class Liar(Kademlia):
    """All liars know each other."""

    others: Sequence[Peer] = ()

    @answers(FindNode)
    def find_node(self, sender: Peer, msg: FindNode, reply: Reply) -> None:
        reply(FindNode(msg.key, self._liars(msg.key)))

    @answers(GetValue)
    def get_value(self, sender: Peer, msg: GetValue, reply: Reply) -> None:
        reply(GetValue(msg.key, None, self._liars(msg.key)))

    @answers(GetProviders)
    def get_providers(self, sender: Peer, msg: GetProviders, reply: Reply) -> None:
        reply(GetProviders(msg.key, (), self._liars(msg.key)))

    def _liars(self, key: bytes) -> tuple[PeerInfo, ...]:
        place = place_of_key(key)
        return tuple(map(PeerInfo, sorted(self.others, key=lambda peer: place_of(peer) ^ place)[: self.config.k]))


@dataclass(frozen=True)
class Found:
    recall: float
    nearest: bool
    exact: bool
    hops: int
    honest: bool


class Field:
    """A network of Kademlia alone; `liars` are the numbers of those that lie. The first node is honest."""

    def __init__(self, nodes: int, seed: int, config: KademliaConfig | None = None, liars: Sequence[int] = ()) -> None:
        self.sim = Simulator(seed=seed)
        self.rng = self.sim.stream("field")
        self.config = config or KademliaConfig()
        self.liars = dict.fromkeys(liars)
        for number in range(nodes):
            self.sim.at(number * JOIN_EVERY, self.join)
        self.sim.run(nodes * JOIN_EVERY + SETTLE)

    def join(self) -> None:
        live = [number for number in self.sim.live if number not in self.liars]
        contacts = self.rng.sample(live, min(2, len(live)))
        kind = Liar if len(self.sim.nodes) in self.liars else Kademlia
        number = self.sim.add(lambda env: [kind(env(), contacts, self.config)])
        if isinstance(machine := self.sim.nodes[number].machines[0], Liar):
            machine.others = tuple(self.liars)

    def machine(self, number: int) -> Kademlia:
        machine = self.sim.nodes[number].machines[0]
        assert isinstance(machine, Kademlia)
        return machine

    def replace(self, minutes: float, share: float) -> None:
        """From now on, so many of the nodes a minute."""
        pause = MINUTE / (share * len(self.sim.live))
        for number in range(int(minutes * MINUTE / pause)):
            self.sim.at(self.sim.now + int(number * pause), self._swap)

    def _swap(self) -> None:
        self.sim.crash(self.rng.choice(list(self.sim.live)))
        self.join()

    def crash(self, share: float) -> None:
        for number in self.rng.sample(list(self.sim.live), int(share * len(self.sim.live))):
            self.sim.crash(number)

    def lookups(self, count: int, every: int = LOOKUP_EVERY, paths: int = 1) -> list[Found]:
        found: list[Found] = []
        for number in range(count):
            self.sim.at(self.sim.now + number * every, self._look, self.rng.randbytes(32), paths, found)
        self.sim.run(self.sim.now + count * every + WAIT)
        return found

    def someone(self) -> Kademlia:
        """Honest, and joined."""
        while True:
            machine = self.machine(self.rng.choice(list(self.sim.live)))
            if machine.has_joined and not isinstance(machine, Liar):
                return machine

    def _look(self, key: bytes, paths: int, found: list[Found]) -> None:
        machine = self.someone()
        machine.asked.run(Query(machine, key, FindNode(key), partial(self._judge, machine, found), paths=paths))

    def _judge(self, machine: Kademlia, found: list[Found], query: Query) -> None:
        got, place, k = query.lookup.nearest, query.place, self.config.k
        others = sorted((peer for peer in self.sim.live if peer != machine.env.me), key=lambda peer: place_of(peer) ^ place)
        true = others[:k]
        honest = next(peer for peer in others if peer not in self.liars)
        hops = query.lookup.hops[got[0]] + 1 if got else 0
        found.append(Found(len({*got} & {*true}) / k, got[:1] == true[:1], got == true, hops, honest in query.lookup.answered))

    def put(self, keys: Sequence[bytes]) -> list[int]:
        """How many took each value; the value is its key."""
        taken: list[int] = []
        for key in keys:
            self.someone().put(key, key, DAY, taken.append)
        self.sim.run(self.sim.now + WAIT)
        return taken

    def get(self, keys: Sequence[bytes], paths: int = 1) -> float:
        """The share that is found."""
        values: list[tuple[bytes, bytes | None]] = []
        for key in keys:
            self.someone().get(key, lambda value, key=key: values.append((key, value)), paths)  # type: ignore[misc]
        self.sim.run(self.sim.now + WAIT)
        return sum(key == value for key, value in values) / len(keys)


def summary(found: Sequence[Found]) -> dict[str, float]:
    """Lookups whose node crashed before they ended are not among them."""
    if not found:
        raise WeftError("nobody lived to see the end of a lookup; with less churn there are some")
    return {
        "lookups": len(found),
        "recall": fmean(each.recall for each in found),
        "nearest": fmean(each.nearest for each in found),
        "exact": fmean(each.exact for each in found),
        "hops": fmean(each.hops for each in found),
    }


def bench_lookups(nodes: int, count: int, seed: int, churn: float, tell: Progress | None = None) -> dict[str, Any]:
    tell = tell or _silent
    ranges = (("nodes", nodes, 50, 1_000_000), ("lookups", count, 10, 1_000_000), ("churn", churn, 0.001, 1))
    for name, value, least, most in ranges:
        if not least <= value <= most:
            raise UsageError(f"--{name} is {value}; it must be from {least} to {most}")
    tell(0.0, "joins")
    field = Field(nodes, seed)
    tell(0.3, "lookups, calm")
    phases = {"calm": summary(field.lookups(count))}
    tell(0.4, "lookups under churn")
    field.replace(3, churn)
    field.sim.run(field.sim.now + MINUTE)
    phases["churn"] = summary(field.lookups(count, every=max(1, 100 * SECOND // count)))
    field.sim.run(field.sim.now + 2 * MINUTE)
    tell(0.7, "lookups after it")
    phases["after"] = summary(field.lookups(count))
    tell(0.8, "values and a crash")
    keys = [field.rng.randbytes(32) for _ in range(count // 10)]
    field.put(keys)
    field.crash(0.5)
    found = {"nodes": nodes, "seed": seed, "churn": churn, "phases": phases, "values_after_crash": field.get(keys)}
    return found | _liars(nodes, count, seed, tell)


def _liars(nodes: int, count: int, seed: int, tell: Progress) -> dict[str, Any]:
    tell(0.85, "liars")
    nodes = min(nodes, MISLED)
    field = Field(nodes, seed, liars=range(1, nodes, 5))
    honest = {paths: fmean(each.honest for each in field.lookups(count, paths=paths)) for paths in (1, PATHS)}
    return {"nodes_with_liars": nodes, "liars": 0.2, "honest_one_path": honest[1], f"honest_{PATHS}_paths": honest[PATHS]}


def _silent(done: float, what: str) -> None: ...
