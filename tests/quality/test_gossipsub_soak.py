"""GossipSub's memory in an hour among hostile peers: every table of a router is found, counted, and held against its bound.

One node is watched. It subscribes and unsubscribes, publishes to topics it has not joined, and validates slowly, among honest
nodes and hostile ones that come under new names every few seconds. The tables are not listed by hand: `tables` walks from the
router through all objects of its package, and a table that BOUNDS does not name fails the test. At the end all peers are
gone, and when the longest time to live is over nothing is left. What an application's own functions hold on to, and the codec,
which is the driver's, are no tables of the router.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from libweft.bench.runs.attacks import INVALID, Attack
from libweft.bench.runs.sybils import Part, Sybil
from libweft.peer.machine import MS, SECOND, Env, Link, MessageId, Peer, PeerInfo
from libweft.peer.sim.latency import Uniform
from libweft.peer.sim.simulator import SimNode, Simulator, stream
from libweft.pubsub import seen, stacks
from libweft.pubsub.gossipsub import (
    backoff,
    contacts,
    deliveries,
    filters,
    gossip,
    mcache,
    mesh,
    promises,
    score,
)
from libweft.pubsub.gossipsub import (
    recent_publishes as fresh,
)
from libweft.pubsub.gossipsub.config import GossipSubConfig
from libweft.pubsub.gossipsub.gater import GaterConfig
from libweft.pubsub.gossipsub.ids import go
from libweft.pubsub.gossipsub.messages import Extensions, Graft, IDontWant, IHave, IWant, Prune, Pruned
from libweft.pubsub.gossipsub.router import GossipSub
from libweft.pubsub.interests import Interest
from libweft.pubsub.message import Publication, Verdict
from libweft.pubsub.router import Router
from libweft.pubsub.rpc import Subscriptions
from tests.conftest import note_replay

pytestmark = pytest.mark.slow

SEED = 1
MINUTE, HOUR = 60 * SECOND, 3_600 * SECOND
HONEST = 5
ALIVE = 8  # hostile nodes at a time
COMES = 625 * MS  # one hostile node comes, and the oldest goes: 5,760 names in the hour, more than scores are retained
LONG = 3  # others stay for ten minutes
PEERS = 32  # links at a time: those, and who crashed and is not missed yet
TOPICS, IDS = 12_000, 100_000
OFTEN = ("t", "u")  # topics that the hostile know of; the watched node has some of the others too, each for half a minute
HAS = 4
FANOUT = 20  # topics that it publishes to each second without joining them, for a minute: more than there is room for
BURST = 400  # messages at once, more than may wait for a verdict
HOARD = 4_000  # topics in one message; two of them are more than one peer may have
LAST = 6 * HOUR  # what the gater knows of an address is kept the longest

STACK = stacks.find("static/gossipsub", {"graph": "full"}, {"flood_publish": False, "score_with": "accept_px=0"})
CONFIG = GossipSubConfig(flood_publish=False, score_with="accept_px=0")
OWN = len(OFTEN) + HAS  # topics
NAMED = PEERS + score.RETAINED  # peers whose score is known

BOUNDS = {
    "GossipSub.interests": OWN,
    "GossipSub.filters": 0,
    "GossipSub.waiting": OWN,
    "GossipSub.parties": PEERS,
    "GossipSub.subscribers": PEERS * CONFIG.subscriptions,
    "GossipSub.subscribers[]": PEERS,
    "GossipSub.seen": seen.LIMIT // 2,
    "Seen.old": seen.LIMIT // 2,
    "GossipSub.ids": 0,
    "GossipSub.timers": 2,
    "Party.topics": CONFIG.subscriptions,
    "Meshes.topics": OWN,
    "Meshes.fanouts": mesh.FANOUTS,
    "Meshes.grafted": 0,
    "Meshes.pruned": 0,
    "Mesh.peers": CONFIG.d_hi + HONEST,  # those who were dialled from here may be more
    "Mesh.everyone": CONFIG.d_hi + HONEST,
    "Backoff._until": backoff.LIMIT,
    "Fresh._order": fresh.LIMIT,
    "Fresh._order[]": 3,
    "Fresh._topics": fresh.LIMIT,
    "Fresh._topics[]": fresh.LIMIT,
    "Gossip.unwanted": gossip.REFUSED,
    "Gossip.unwanted[]": PEERS,
    "Gossip._ends": gossip.REFUSED,
    "Gossip._ends[]": 3,
    "MessageCache._windows": CONFIG.history,
    "MessageCache._windows[]": OWN + mesh.FANOUTS,
    "MessageCache._windows[][]": mcache.MESSAGES,
    "MessageCache._cached": mcache.MESSAGES,
    "Cached.window": OWN + mesh.FANOUTS,
    "Cached.sent": PEERS,
    "Standing.direct": contacts.DIRECT,
    "Standing.graylisted": PEERS,
    "Score._topics": 0,
    "Score._peers": NAMED,
    "Score._retained": score.RETAINED,
    "Stats.topics": score.TOPICS + OWN + 1,
    "ScoreConfig.topics": 0,
    "PeerScore.colocation_free": 0,
    "Deliveries.young": deliveries.RECORDS // 2,
    "Deliveries.old": deliveries.RECORDS // 2,
    "Record.peers": deliveries.PEERS,
    "Colocation._free": 0,
    "Colocation._keys": NAMED,
    "Colocation._keys[]": 2,
    "Colocation._counts": 2 * NAMED,
    "Gater._keys": PEERS,
    "Gater._peers": PEERS,
    "Gater._sources": PEERS + GaterConfig().sources,
    "Gater._left": GaterConfig().sources,
    "Promises._due": promises.LIMIT,
    "Promises._peers": promises.LIMIT,
    "Promises._peers[]": PEERS,
    "Promises._keys": PEERS,
    "Promises._keys[]": promises.EACH,
    "Contacts.direct": contacts.DIRECT,
    "Contacts.held": PEERS + contacts.DIALS,
    "Contacts.dialled": contacts.DIALS,
    "Blacklist._added": filters.LISTED,
}
LEFT = {"GossipSub.timers": 2, "MessageCache._windows": CONFIG.history, "GossipSub.seen": 1}
LEFT |= {"Fresh._order": 1, "Fresh._order[]": 3, "Fresh._topics": 1, "Fresh._topics[]": 1}  # the next one would end it


def tables(router: Router) -> dict[str, int]:
    """The size of each, the largest where there are several of a name: `Class.attribute`, with [] for what it holds."""
    found: dict[str, int] = {}
    known: set[int] = set()
    left: deque[tuple[str, Any]] = deque([("", router)])  # the shortest way to a table names it
    while left:
        name, value = left.popleft()
        kind: Any = type(value)
        if _is_table(kind):
            found[name] = max(found.get(name, 0), len(value))
        if id(value) in known:
            continue
        known.add(id(value))
        if _is_table(kind):
            inside = value.values() if isinstance(value, Mapping) else value
            left.extend((f"{name}[]", each) for each in inside if _matters(each))
        if _is_own(kind):
            left.extend((f"{kind.__name__}.{key}", each) for key, each in _attributes(value) if _matters(each))
    return found


def _matters(value: object) -> bool:
    kind: Any = type(value)
    return _is_own(kind) or _is_table(kind)


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    kind: Any = type(value)
    yield from getattr(value, "__dict__", {}).items()
    yield from ((name, getattr(value, name)) for name in _slots(kind) if hasattr(value, name))


@cache
def _slots(kind: type) -> tuple[str, ...]:
    return tuple(name for each in kind.__mro__ for name in each.__dict__.get("__slots__", ()) if name != "__dict__")


@cache
def _is_own(kind: type) -> bool:
    return kind.__module__.startswith(("libweft.pubsub.gossipsub", "libweft.pubsub.seen"))


@cache
def _is_table(kind: type) -> bool:
    return issubclass(kind, Collection) and not issubclass(kind, str | bytes)


# What peers of all kinds do.


class World:
    """Names of topics, one after the other, and ids that were never used; both are counted."""

    def __init__(self) -> None:
        self.topics = 0
        self.ids = 0

    def topic(self) -> str:
        self.topics += 1
        return f"churn{self.topics % TOPICS}"

    def fresh(self, number: int) -> tuple[bytes, ...]:
        self.ids += number
        return tuple(value.to_bytes(16) for value in range(self.ids - number, self.ids))


class Hostile(Sybil):
    """Subscribes to new topics all the time and grafts itself everywhere; its number says what it does beside that."""

    number = 0

    def __init__(self, env: Env, part: Part, world: World) -> None:
        super().__init__(env, Attack(), part)
        self.world = world
        self.lately: deque[bytes] = deque(maxlen=50)

    def heard(self, sender: Peer, m: Publication) -> None:
        self.lately.append(go(m))

    def assault(self, peer: Peer) -> None:
        topics = (self.world.topic(), self.world.topic())
        self.env.send(peer, Subscriptions(tuple((True, topic) for topic in topics)))
        self.env.send(peer, Graft((*topics, *self.topics)))
        self.env.send(peer, Subscriptions(((False, topics[0]),)))
        assert isinstance(self.env.me, int)
        (self._talk, self._announce, self._refuse, self._prune, self._spam)[self.env.me % 5](peer)

    def _talk(self, peer: Peer) -> None:
        for topic in (*self.topics, self.world.topic()):
            self.env.send(peer, self._message(topic))

    def _announce(self, peer: Peer) -> None:
        topics = (*self.topics, self.world.topic())
        self.env.send(peer, IHave(tuple((topic, self.world.fresh(5)) for topic in topics)))
        self.env.send(peer, IWant((*self.world.fresh(10), *self.lately)))

    def _refuse(self, peer: Peer) -> None:
        self.env.send(peer, IDontWant((*self.world.fresh(30), *self.lately)))
        self.env.send(peer, IWant(tuple(self.lately)))

    def _prune(self, peer: Peer) -> None:
        introduced = tuple(PeerInfo(1_000_000 + self.world.ids + each) for each in range(16))
        topics = (*self.topics, self.world.topic())
        self.env.send(peer, Prune(tuple(Pruned(topic, introduced, 1 << 40) for topic in topics)))
        self.env.send(peer, Extensions(test=True))

    def _spam(self, peer: Peer) -> None:
        for _ in range(BURST if self.env.rng.random() < 0.05 else 1):
            self.env.send(peer, self._message(self.topics[0], INVALID))

    def _message(self, topic: str, data: bytes = b"") -> Publication:
        self.number += 1
        self.world.ids += 1
        return Publication(MessageId(self.env.me, 1, self.number), topic, data)


class Hoarder(Hostile):
    def link_up(self, peer: Peer, link: Link) -> None:
        super().link_up(peer, link)
        for _ in range(2):
            self.env.send(peer, Subscriptions(tuple((True, self.world.topic()) for _ in range(HOARD))))


class Slow:
    """An app whose verdicts take a tenth of a second."""

    validates = True

    def __init__(self, sim: Simulator) -> None:
        self.sim = sim

    def validate(self, sender: Peer, publication: Publication, answer: Callable[[Verdict], None]) -> None:
        verdict = Verdict.REJECT if publication.data == INVALID else Verdict.ACCEPT
        self.sim.at(self.sim.now + 100 * MS, answer, verdict)

    def deliver(self, publication: Publication) -> None: ...
    def joined(self, interest: Interest) -> None: ...


class Soak:
    """The watched node is number 0."""

    def __init__(self) -> None:
        self.sim = Simulator(SEED, Uniform())
        self.rng = self.sim.stream("soak")
        self.world = World()
        self.short: deque[int] = deque()
        self.long: deque[int] = deque()
        self.own: deque[str] = deque()
        self.largest: dict[str, int] = {}
        self.until = 0
        app = Slow(self.sim)
        for introduced in STACK.introduce(HONEST, stream(SEED, "overlay")):
            self.sim.add(STACK.node(introduced, app), _subscribes)
        router = self.sim.nodes[0].machines[-1]
        assert isinstance(router, GossipSub)
        self.router = router

    def run(self, minutes: int = 60) -> None:
        """A look at all tables each minute."""
        self.until = minutes * MINUTE
        self._each(COMES, self._come)
        self._each(10 * MINUTE // LONG, self._stay)
        self._each(5 * SECOND, self._churn)
        self._each(SECOND, self._say)
        for minute in range(1, minutes + 1):
            self.sim.run(minute * MINUTE)
            self.look()

    def _each(self, gap: int, action: Callable[[], None]) -> None:
        if self.sim.now < self.until:
            action()
            self.sim.at(self.sim.now + gap, self._each, gap, action)

    def look(self) -> dict[str, int]:
        found = tables(self.router)
        for name, size in found.items():
            assert name in BOUNDS, f"the table {name} has no bound"
            assert size <= BOUNDS[name], f"{name} has {size} entries at {self.sim.now / SECOND} s, more than {BOUNDS[name]}"
            self.largest[name] = max(size, self.largest.get(name, 0))
        return found

    def _come(self) -> None:
        self.short.append(self._add(Hostile))
        if len(self.short) > ALIVE:
            self._go(self.short.popleft())

    def _stay(self) -> None:
        self.long.append(self._add(Hoarder))
        if len(self.long) > LONG:
            number = self.long.popleft()
            self.router.shut_out(number)
            self._go(number)

    def _add(self, kind: type[Hostile]) -> int:
        """It dials the watched node and another; four names share an address."""
        number = len(self.sim.nodes)
        host = number // 4
        self.sim.addresses[number] = f"/ip4/10.0.{host >> 8}.{host & 255}/tcp/1"
        part = Part((0, 1 + self.rng.randrange(HONEST - 1)), OFTEN, ())
        return self.sim.add(lambda env: [kind(env(), part, self.world)])

    def _go(self, number: int) -> None:
        if number % 2:
            self.sim.crash(number)
        else:
            self.sim.leave(number)

    def _churn(self) -> None:
        self.own.append(self.world.topic())
        self.router.join(self.own[-1])
        if len(self.own) > HAS:
            self.router.leave(self.own.popleft())

    def _say(self) -> None:
        strange = FANOUT if self.sim.now // MINUTE % 10 == 5 else 1
        for topic in (*OFTEN, *self.own, *(self.world.topic() for _ in range(strange))):
            self.router.publish(self.router.compose(topic, b""))
            self.world.ids += 1

    def end(self) -> None:
        """Everybody else goes, nothing is subscribed to any more, and the longest time to live passes."""
        for topic in (*OFTEN, *self.own):
            self.router.leave(topic)
        for number in [number for number in self.sim.live if number]:
            self._go(number)
        self.sim.run(self.sim.now + LAST + MINUTE)
        self.router.publish(self.router.compose("t", b""))  # ids are forgotten when the next one comes
        for number in range(HONEST, len(self.sim.nodes)):
            self.router.blacklist.remove(number)  # the application's own
        self.sim.run(self.sim.now + 10 * MINUTE)


def _subscribes(node: SimNode) -> None:
    router = node.machines[-1]
    assert isinstance(router, GossipSub)
    for topic in OFTEN:
        router.join(topic)


def test_every_table_is_bounded_in_an_hour_of_hostile_peers_and_empty_when_they_are_gone() -> None:
    note_replay("python -m pytest -m slow tests/quality/test_gossipsub_soak.py")
    soak = Soak()
    soak.run()
    assert soak.world.topics >= TOPICS and soak.world.ids >= IDS
    assert soak.largest.keys() == BOUNDS.keys(), "a table that is not there any more has a bound"
    soak.end()
    left = {name: size for name, size in soak.look().items() if size}
    assert left == LEFT


def test_a_table_that_nobody_named_is_found_wherever_it_is() -> None:
    soak = Soak()
    soak.sim.run(10 * SECOND)
    for owner in (soak.router, soak.router.meshes, soak.router.meshes.backoff, soak.router.standing.score):
        vars(owner)["extra"] = [{1, 2}, {3}]
        found = tables(soak.router)
        assert found[f"{type(owner).__name__}.extra"] == 2 and found[f"{type(owner).__name__}.extra[]"] == 2
        with pytest.raises(AssertionError, match="has no bound"):
            soak.look()
        del vars(owner)["extra"]
    soak.look()
