"""The plan of a swarm, and what is counted of it: the same for live peers and for their twins in the simulator.

A plan is drawn from a seed before anything runs: who sends and when, who is killed, who joins through whom. Peers are numbered;
those that join come after the first ones, in order of their joining. Victims are drawn among all, so senders may be among them.
A death takes all peers of one process, several at the first draw and one at each of the others.

A message's payload begins with its run, sender, number and time, so a `Tally` at each peer can tell which came, how often and
how late. `judge` says what is due: each message of the senders named, once, at each of the peers named, the sender itself among
them. A copy too many counts wherever it was heard.
Bounds: a tally holds the numbers of one run, and the first DOUBLED of those that came again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from random import Random
from struct import Struct
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from libweft.overlays import graphs
from libweft.peer.errors import UsageError
from libweft.peer.sim.simulator import stream

TOPIC = "swarm"
CHANGING = 0.1, 0.8  # of the time, when peers are killed and join: there are messages before and after
TOGETHER = 0.4  # of the victims, in one process that dies as a whole
CONTACTS = 3  # that a peer joins through
HEAD = Struct("!HHIQ")  # run, sender, number, microseconds
TENTH = 100  # microseconds: latencies are counted in tenths of a millisecond
DOUBLED = 100
SETTLE_S = 60.0  # after the last message, in both worlds: several times what a message needs to be missed and asked for
LEAST = 3  # neighbours of each peer before messages begin
RANGES = {
    "peers": (3, 1_000),
    "senders": (1, 1_000),
    "rate": (0, 100_000),
    "seconds": (0, 86_400),
    "size": (HEAD.size, 1 << 16),  # what `PubSub` takes by default
    "processes": (1, 100),
    "step": (0, 3_600),
}
DELIVERIES = 10_000_000  # in all: each is held in memory, once a world

Value = TypeVar("Value", int, float)
Spans: TypeAlias = list[tuple[int, int]]
"""Numbers in order, as first and last of each unbroken row."""
Heard: TypeAlias = dict[int, Spans]
Pair: TypeAlias = tuple[int, int, int]
"""Sender and number of a message, and who delivered it."""


@dataclass(frozen=True)
class SwarmConfig:
    """`rate` is of each sender, a second; `step` the seconds of a step when the highest rate is sought, 0 to leave that out."""

    peers: int = 50
    senders: int = 10
    rate: float = 4.0
    seconds: float = 60.0
    size: int = 256
    killed: int = 10
    joining: int = 10
    processes: int = 5
    seed: int = 1
    step: float = 5.0

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            _check(name, getattr(self, name))
        if self.senders > self.peers:
            raise UsageError(f"--senders is {self.senders}, more than the {self.peers} peers")
        if self.killed > self.peers - 2:
            raise UsageError(f"--killed is {self.killed}; fewer than two of the {self.peers} peers would be left")
        if self.peers + self.joining > 1_000:
            raise UsageError(f"--peers and --joining are {self.peers + self.joining} together; it must be at most 1000")
        messages = round(self.rate * self.seconds)
        if messages < 1:
            raise UsageError("--rate and --seconds together make less than one message")
        if messages * self.senders * (self.peers + self.joining) > DELIVERIES:
            raise UsageError(f"--rate, --seconds and --senders together make more than {DELIVERIES} deliveries")


def _check(name: str, value: float) -> None:
    least, most = RANGES.get(name, (0, None))
    if not value >= least:  # nor is nan
        raise UsageError(f"--{name} is {value}; it must be at least {least}")
    if most is not None and value > most:
        raise UsageError(f"--{name} is {value}; it must be at most {most}")


QUICK = SwarmConfig(peers=20, senders=5, seconds=10.0, killed=4, joining=4, processes=3, step=0.0)


class Death(NamedTuple):
    at: float
    peers: tuple[int, ...]


class Arrival(NamedTuple):
    at: float
    peer: int
    contacts: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """`senders` has the seconds after which each begins; it sends `messages`, one each `1 / rate` seconds."""

    config: SwarmConfig
    senders: dict[int, float]
    deaths: tuple[Death, ...]
    arrivals: tuple[Arrival, ...]

    @property
    def messages(self) -> int:
        return round(self.config.rate * self.config.seconds)

    @cached_property
    def killed(self) -> tuple[int, ...]:
        return tuple(sorted(peer for death in self.deaths for peer in death.peers))

    @cached_property
    def throughout(self) -> tuple[int, ...]:
        """The peers that are up from the first message to the last."""
        return tuple(peer for peer in range(self.config.peers) if peer not in self.killed)

    @property
    def surviving(self) -> tuple[int, ...]:
        """The senders that are."""
        return tuple(sender for sender in self.senders if sender not in self.killed)

    @property
    def last(self) -> tuple[int, ...]:
        """The peers that are up in the end."""
        return (*self.throughout, *(arrival.peer for arrival in self.arrivals))

    def due(self) -> dict[int, int]:
        return dict.fromkeys(self.surviving, self.messages)

    def homes(self) -> list[tuple[int, ...]]:
        """The peers of each process: first those that live on, then one process for each death."""
        shared = self.config.processes
        return [*(self.throughout[first::shared] for first in range(shared)), *(death.peers for death in self.deaths)]


def draw(config: SwarmConfig) -> Plan:
    rng = stream(config.seed, "swarm")
    senders = sorted(rng.sample(range(config.peers), config.senders))
    phases = {sender: rng.random() / config.rate for sender in senders}
    deaths = _deaths(config, rng)
    return Plan(config, phases, deaths, _arrivals(config, deaths, rng))


def _deaths(config: SwarmConfig, rng: Random) -> tuple[Death, ...]:
    victims = rng.sample(range(config.peers), config.killed)
    several = max(1, round(TOGETHER * config.killed))
    groups = [victims[:several], *([victim] for victim in victims[several:])] if victims else []
    return tuple(sorted(Death(_moment(config, rng), tuple(group)) for group in groups))


def _arrivals(config: SwarmConfig, deaths: Sequence[Death], rng: Random) -> tuple[Arrival, ...]:
    found = []
    for place, at in enumerate(sorted(_moment(config, rng) for _ in range(config.joining))):
        dead = {peer for death in deaths if death.at <= at for peer in death.peers}
        up = [peer for peer in range(config.peers) if peer not in dead]
        found.append(Arrival(at, config.peers + place, tuple(rng.sample(up, min(CONTACTS, len(up))))))
    return tuple(found)


def _moment(config: SwarmConfig, rng: Random) -> float:
    return round(config.seconds * rng.uniform(*CHANGING), 3)


def united(neighbors: Mapping[int, Sequence[int]]) -> bool:
    """Whether each peer has enough neighbours, and all reach each other by those that both ends have."""
    both = {peer: [other for other in several if peer in neighbors.get(other, ())] for peer, several in neighbors.items()}
    edges = [(peer, other) for peer, several in both.items() for other in several]
    enough = all(len(several) >= min(LEAST, len(both) - 1) for several in both.values())
    return enough and len(graphs.distances(max(both) + 1, edges, min(both))) == len(both)


# What is counted.


class Told(msgspec.Struct):
    """What one peer delivered in a run: the numbers of each sender, and messages (sender, number) that came again.

    `late` counts its deliveries by latency, in tenths of a millisecond; those of its own messages are left out.
    """

    heard: Heard
    doubled: list[tuple[int, int]]
    late: dict[int, int]


class Tally:
    """Of one peer; what was sent in another run counts no more."""

    def __init__(self, peer: int) -> None:
        self.peer = peer
        self.begin(0)

    def begin(self, run: int) -> None:
        self.run = run
        self.numbers: dict[int, set[int]] = {}
        self.doubled: list[tuple[int, int]] = []
        self.late: Counter[int] = Counter()

    def note(self, data: bytes, now: int) -> None:
        run, sender, number, sent = HEAD.unpack_from(data)
        if run != self.run:
            return
        known = self.numbers.setdefault(sender, set())
        if number not in known:
            known.add(number)
            if sender != self.peer:
                self.late[(now - sent) // TENTH] += 1
        elif len(self.doubled) < DOUBLED:
            self.doubled.append((sender, number))

    def count(self, senders: Iterable[int]) -> int:
        return sum(len(self.numbers.get(sender, ())) for sender in senders)

    def told(self) -> Told:
        return Told({sender: spans(known) for sender, known in sorted(self.numbers.items())}, self.doubled, self.late)


def payload(run: int, sender: int, number: int, now: int, size: int) -> bytes:
    return HEAD.pack(run, sender, number, now).ljust(size, b"\0")


def spans(numbers: Iterable[int]) -> Spans:
    known = sorted(numbers)
    breaks = [(a, b) for a, b in pairwise(known) if b != a + 1]
    return list(zip([*known[:1], *(b for _, b in breaks)], [*(a for a, _ in breaks), *known[-1:]], strict=True))


class Judgement(msgspec.Struct):
    """`missing` has for each peer and sender the numbers that did not come, `doubled` what each peer delivered again."""

    expected: int
    delivered: int
    missing: dict[int, Heard]
    doubled: dict[int, list[tuple[int, int]]]

    @property
    def lost(self) -> int:
        return self.expected - self.delivered

    @property
    def again(self) -> int:
        return sum(map(len, self.doubled.values()))

    @property
    def faultless(self) -> bool:
        return not self.missing and not self.doubled


def judge(due: Mapping[int, int], peers: Sequence[int], told: Mapping[int, Told]) -> Judgement:
    """`due` is how many messages each sender sent, numbered from 0."""
    nothing = Told({}, [], {})
    missing: dict[int, Heard] = {}
    for peer in peers:
        heard = told.get(peer, nothing).heard
        gaps = {sender: spans(set(range(count)) - _numbers(heard.get(sender, []))) for sender, count in due.items()}
        if short := {sender: found for sender, found in gaps.items() if found}:
            missing[peer] = short
    expected = len(peers) * sum(due.values())
    lost = sum(last + 1 - first for short in missing.values() for found in short.values() for first, last in found)
    return Judgement(expected, expected - lost, missing, {peer: each.doubled for peer, each in told.items() if each.doubled})


def pairs(due: Mapping[int, int], peers: Sequence[int], told: Mapping[int, Told]) -> set[Pair]:
    """What was delivered to those peers of what those senders sent."""
    return {
        (sender, number, peer)
        for peer in peers
        if peer in told
        for sender in due
        for number in _numbers(told[peer].heard.get(sender, []))
    }


def _numbers(found: Spans) -> set[int]:
    return {number for first, last in found for number in range(first, last + 1)}


def percentile(counts: Mapping[Value, int], share: float) -> Value:
    """The smallest value with at least that share at or below it, by how often each came; there must be one."""
    left = share * sum(counts.values())
    for value in sorted(counts):
        left -= counts[value]
        if left <= 1e-9:
            return value
    return max(counts)
