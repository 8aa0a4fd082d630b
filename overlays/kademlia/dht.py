"""Kademlia: a table of contacts that lookups keep true, and values and providers kept by the nodes nearest to their keys.

P. Maymounkov, D. Mazières, IPTPS 2002, on the wire of libp2p's kad-dht. What these leave open is settled here as follows:
- Only a peer that was reached, and serves, gets into the table: whom others name is asked first.
- Who joins looks its own place up, then fills the buckets in which it knows few. Those it asks learn of it on the way.
- The nodes nearest to a place must know each other without a gap, for a lookup ends with what they know. So now and then each
  asks a few of its own nearest for its own place, and whoever is new to it there; and it checks a near one whose link fell.
- Who holds a value stores it with the nearest again when nobody did for `republish_every`; the first to do so spares the rest.
  With it goes how much of its life is left (`ttl`, as rust-libp2p has it), or it would never end.
- A value is taken from many and chosen by its validator; who told an older one is told the better.

Below it asks for: `Env.request`, and links that are told. Above it promises: lookups, values, providers and a sample; those in
`joined` are called each time that a join has ended.
Bounds: the table's, the records'; QUERIES that others asked for at a time, the rest wait; CHORES of its own beside them, where
what waits is a key of each; CHECKS of contacts; timers: three, and two a question.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec

from overlays.claims import learn
from overlays.kademlia.messages import PROTOCOL, AddProvider, FindNode, GetProviders, GetValue, Ping, PutValue, Record
from overlays.kademlia.query import Query
from overlays.kademlia.records import VALIDATORS, RecordLimits, Records, Validator, validator_of
from overlays.kademlia.space import PREFIX, key_in_bucket, name_of, named, place_of, place_of_key, topic_key
from overlays.kademlia.table import Table
from overlays.kademlia.turns import Turns
from overlays.kademlia.wire import KEY_LIMIT, kad
from peer.errors import PeerError, Refused, UsageError
from peer.machine import MS, SECOND, Codec, Env, Link, Machine, Message, Peer, PeerInfo, Reply, Timer, answers, upon

QUERIES = 32
CHORES = 16  # a guess: as many values as may be kept are stored again well within `republish_every`
CHECKS = 16
HOUR = 3_600 * SECOND
TOLD = 64  # providers in an answer
LONGEST = 2**32 - 1  # seconds, in a record
LATELY = 60 * SECOND  # who was heard from since needs no check; a guess

Infos = Sequence[PeerInfo]
Key = TypeVar("Key")


@dataclass(frozen=True)
class KademliaConfig:
    """Times in microseconds."""

    k: int = 20  # the paper's, and libp2p's
    alpha: int = 10  # libp2p's; the paper's is 3
    paths: int = 1  # S/Kademlia's; more of them make a lookup dearer and harder to mislead
    spares: int = 8  # a guess: a bucket's worth is rarely lost at once
    patience: int = 5 * SECOND  # a guess: libp2p's 10 s are for a world-wide network
    slow: int = SECOND  # a guess: after it the next is asked too
    near_every: int = 10 * SECOND  # a guess: a gap among the nearest is closed within a minute
    near_asks: int = 3  # a guess
    few: int = 5  # a guess: a bucket with fewer is filled by a lookup
    refresh_every: int = 600 * SECOND  # libp2p's
    republish_every: int = 600 * SECOND  # a guess: libp2p's 22 h are for nodes that stay for days
    value_ttl: int = 48 * HOUR  # libp2p's, of providers
    provider_ttl: int = 48 * HOUR  # libp2p's
    quorum: int = 5  # a guess: as many equal values end a search before its time
    first_retry: int = SECOND  # a guess, as in `overlays.static`
    last_retry: int = 60 * SECOND  # a guess, as in `overlays.static`
    server: bool = True  # a client asks, and is in nobody's table
    protocol: str = PROTOCOL  # networks apart have names apart

    def __post_init__(self) -> None:
        least = {"k": 1, "alpha": 1, "paths": 1, "quorum": 1, "spares": 0, "few": 0, "near_asks": 0}
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if isinstance(value, int) and not isinstance(value, bool) and value < least.get(name, MS):
                unit = " microseconds" if name not in least else ""
                raise UsageError(f"kademlia: {name} is {value}; it must be at least {least.get(name, MS)}{unit}")
        if self.last_retry < self.first_retry:
            raise UsageError(f"kademlia: last_retry is {self.last_retry}; it must be at least first_retry, {self.first_retry}")
        if self.k > TOLD:
            raise UsageError(f"kademlia: k is {self.k}; it must be at most {TOLD}")
        if re.fullmatch("/[!-~]{1,128}", self.protocol) is None or self.protocol.startswith("/weft/"):
            wanted = "/ and 1 to 128 letters without a space, and not begin with /weft/, whose protocols are others"
            raise UsageError(f"kademlia: protocol is {self.protocol!r}; it must be {wanted}")


DEFAULTS = KademliaConfig()


class Kademlia(Machine):
    """`mine` and `provided` are stored again until they are withdrawn or their time is over."""

    def __init__(
        self,
        env: Env,
        contacts: Sequence[Peer],
        config: KademliaConfig = DEFAULTS,
        validators: Mapping[str, Validator] = VALIDATORS,
        limits: RecordLimits | None = None,
    ) -> None:
        super().__init__(env)
        self.config = config
        self.protocols = (config.protocol,)
        self.serves = config.server
        self.validators = validators
        self.contacts = tuple(peer for peer in dict.fromkeys(contacts) if peer != env.me)
        self.name = name_of(env.me)
        self.table = Table(env.me, config.k, config.spares)
        self.records = Records(self.table.mine, limits or RecordLimits())
        self.links: dict[Peer, tuple[int, int]] = {}  # the incarnation of each that is up, and since when
        self.asking: dict[Peer, None] = {}  # checks under way
        self.checked: dict[int, int] = {}  # when each bucket's oldest was checked last
        self.refreshed: dict[int, int] = {}  # when a lookup went into each bucket last
        self.asked = Turns(QUERIES)
        self.upkeep = Turns(CHORES, self._next_chore)
        self.thin: dict[int, None] = {}  # buckets to be looked into
        self.due: dict[bytes, None] = {}  # keys whose value is to be stored again
        self.untold: dict[bytes, None] = {}  # keys that this node provides, to be told again
        self.mine: dict[bytes, tuple[bytes, int]] = {}  # value, and until when
        self.provided: dict[bytes, None] = {}
        self.joined: list[Callable[[], None]] = []
        self.joining = False
        self.has_joined = False
        self.pause = config.first_retry
        self.timers: dict[str, Timer] = {}
        self.stopped = False

    def codec(self) -> Codec:
        return kad(numbered=isinstance(self.env.me, int))

    def start(self) -> None:
        periods = {self._near: self.config.near_every, self._refresh: self.config.refresh_every}
        periods[self._republish] = self.config.republish_every
        for action, period in periods.items():
            self._each(action, period, 1 + self.env.rng.randrange(period))
        if self.contacts or len(self.table):
            self._join()

    def stop(self) -> None:
        self.stopped = True
        self.asked.stop()
        self.upkeep.stop()
        for timer in self.timers.values():
            timer.cancel()

    def snapshot(self) -> bytes | None:
        known = tuple(self.env.info(peer) for peer in self.table)
        return msgspec.msgpack.encode(known) if known else None

    def restore(self, state: bytes) -> None:
        known = msgspec.msgpack.decode(state, type=tuple[PeerInfo, ...])
        for info in known:
            learn(self.env, info)
        self.contacts = tuple(dict.fromkeys((*self.contacts, *(info.peer for info in known))))

    def _each(self, action: Callable[[], None], period: int, delay: int) -> None:
        def again() -> None:
            self._each(action, period, period)
            action()

        self.timers[action.__name__] = self.env.after(delay, again)

    # Joining.

    def _join(self) -> None:
        """One at a time, or each failure would begin one more row of retries."""
        if self.joining:
            return
        self.joining = True
        if "retry" in self.timers:
            self.timers.pop("retry").cancel()
        start = dict.fromkeys((*self.contacts, *self.table.nearest(self.table.mine, self.config.k)))
        self.upkeep.run(Query(self, self.name, FindNode(self.name), self._has_looked, tuple(start)))

    def _has_looked(self, query: Query) -> None:
        self.joining = False
        if not query.lookup.answered:
            self.timers["retry"] = self.env.after(self.pause, self._join)
            self.pause = min(2 * self.pause, self.config.last_retry)
            return
        self.has_joined = True
        self.pause = self.config.first_retry
        few = [n for n in range(self._outer()) if len(self.table.buckets.get(n, ())) < self.config.few]
        self.thin |= dict.fromkeys(few)
        self.upkeep.go_on()
        for heard in list(self.joined):
            heard()

    # Asking: what the layers above call.

    def lookup(self, key: bytes, done: Callable[[Infos], None], paths: int | None = None) -> None:
        """The k nearest to a key that answered, this node not among them; nearest first."""
        self._check_key(key)
        self.asked.run(Query(self, key, FindNode(key), lambda query: done(query.nearest), paths=paths))

    def put(self, key: bytes, value: bytes, ttl: int, done: Callable[[int], None]) -> None:
        """Store with the k nearest, and again until `ttl` is over; `done` hears how many took it."""
        self._check_key(key)
        self.records.check(value)
        if ttl < SECOND:
            raise UsageError(f"a value that is to last {ttl} microseconds; a second at least")
        if not validator_of(self.validators, key).valid(key, value):
            raise UsageError(f"the validator of {key[:40]!r} refuses this value")
        until = self.env.now() + ttl
        self.mine[key] = (value, until)
        self.asked.run(self._storing(key, value, until, done))

    def _storing(self, key: bytes, value: bytes, until: int, done: Callable[[int], None]) -> Query:
        return Query(self, key, FindNode(key), lambda query: self._place(key, value, until, query.lookup.nearest, done))

    def _place(self, key: bytes, value: bytes, until: int, nearest: Sequence[Peer], done: Callable[[int], None]) -> None:
        place, record = place_of_key(key), self._record(key, value, until)
        if self._is_near(place, nearest):
            self._keep(record)
        told = Told(record, len(nearest), done)
        for peer in nearest:
            self.ask(peer, PutValue(key, record), told.yes, told.no)
        if not nearest:
            done(0)

    def get(self, key: bytes, done: Callable[[bytes | None], None], paths: int | None = None) -> None:
        """The best of all valid values found, or None."""
        self._check_key(key)
        found: dict[Peer, Record] = {}
        own = self.records.stored(key, self.env.now())
        if own is not None:
            found[self.env.me] = self._record(key, own.value, own.expires)
        query = Query(self, key, GetValue(key), lambda query: self._found(query, found, done), paths=paths)
        query.take = partial(self._take_value, found)
        self.asked.run(query)

    def _take_value(self, found: dict[Peer, Record], query: Query, peer: Peer, msg: Message) -> None:
        assert isinstance(msg, GetValue)
        record = msg.record
        if record is not None and record.key == query.key and self._acceptable(query.key, record.value):
            found[peer] = record
            if sum(other.value == record.value for other in found.values()) >= self.config.quorum:
                query.lookup.stopped = True

    def _found(self, query: Query, found: dict[Peer, Record], done: Callable[[bytes | None], None]) -> None:
        key = query.key
        if not found:
            done(None)
            return
        best = validator_of(self.validators, key).best(key, [record.value for record in found.values()])
        record = max((record for record in found.values() if record.value == best), key=lambda record: record.ttl)
        wrong = [peer for peer, other in found.items() if other.value != best and peer != self.env.me]
        lacking = [peer for peer in query.lookup.nearest if peer not in found][:1]  # the paper's caching
        if found.get(self.env.me, record).value != best:
            self._keep(record)
        for peer in (*wrong, *lacking):
            self.ask(peer, PutValue(key, record), _nothing, _nothing)
        done(best)

    def provide(self, key: bytes, done: Callable[[int], None] | None = None) -> None:
        """Be told of as a provider of the key, and again each `republish_every`, until `withdraw`.

        `done` hears to how many it was told; nobody says whether it was taken.
        """
        self._check_key(key)
        self.provided[key] = None
        self.asked.run(self._telling(key, done))

    def _telling(self, key: bytes, done: Callable[[int], None] | None = None) -> Query:
        return Query(self, key, FindNode(key), lambda query: self._tell(key, query.lookup.nearest, done))

    def withdraw(self, key: bytes) -> None:
        """Those who were told forget by themselves."""
        self.provided.pop(key, None)

    def _tell(self, key: bytes, nearest: Sequence[Peer], done: Callable[[int], None] | None) -> None:
        if key in self.provided:
            me = self.env.info(self.env.me)
            for peer in nearest:
                self.env.send(peer, AddProvider(key, (me,)))
            if self._is_near(place_of_key(key), nearest):
                self.records.provide(key, me, self.env.now() + self.config.provider_ttl)
        if done is not None:
            done(len(nearest))

    def find_providers(self, key: bytes, n: int, done: Callable[[Infos], None], paths: int | None = None) -> None:
        self._check_key(key)
        found = {info.peer: info for info in self.records.providers_of(key, self.env.now())[:n]}
        query = Query(self, key, GetProviders(key), lambda query: done(list(found.values())[:n]), paths=paths)
        query.take = partial(self._take_providers, found, n)
        self.asked.run(query)

    def _take_providers(self, found: dict[Peer, PeerInfo], n: int, query: Query, peer: Peer, msg: Message) -> None:
        assert isinstance(msg, GetProviders)
        for info in msg.providers[:TOLD]:
            if info.peer not in found and len(found) < n:
                found[info.peer] = info
                learn(self.env, info)
        if len(found) >= n:
            query.lookup.stopped = True

    def announce(self, topic: str) -> None:
        self.provide(topic_key(topic))

    def unannounce(self, topic: str) -> None:
        self.withdraw(topic_key(topic))

    def find(self, topic: str, n: int, done: Callable[[Infos], None]) -> None:
        self.find_providers(topic_key(topic), n, done)

    def sample(self, k: int) -> list[Peer]:
        known = list(self.table)
        return self.env.rng.sample(known, min(k, len(known)))

    # Answering.

    @answers(FindNode)
    def find_node(self, sender: Peer, msg: FindNode, reply: Reply) -> None:
        """Who is looked for is named even if it is in no table, as clients are, or nobody could find these."""
        self._heard_from(sender)
        closer, peer = self._closer(msg.key, sender), named(msg.key, self.env.me)
        if peer is not None and peer not in (sender, self.env.me) and peer not in self.table:
            itself = self.env.info(peer)
            closer = (itself, *closer) if itself.addresses else closer
        reply(FindNode(msg.key, closer))

    @answers(GetValue)
    def get_value(self, sender: Peer, msg: GetValue, reply: Reply) -> None:
        self._heard_from(sender)
        held = self.records.stored(msg.key, self.env.now())
        record = self._record(msg.key, held.value, held.expires) if held is not None else None
        reply(GetValue(msg.key, record, self._closer(msg.key, sender)))

    @answers(PutValue)
    def put_value(self, sender: Peer, msg: PutValue, reply: Reply) -> None:
        """A value that is not valid is its sender's fault; one that is no better than what is held is taken as said.

        An echo says that it is kept, so where there is no room for it there is none.
        """
        self._heard_from(sender)
        key, value = msg.key, msg.record.value
        if not key or msg.record.key != key or not self._acceptable(key, value):
            raise PeerError(f"a value that does not fit its key {key[:40]!r}")
        held = self.records.stored(key, self.env.now())
        better = held is None or validator_of(self.validators, key).best(key, [value, held.value]) == value
        if better and not self._keep(msg.record):
            raise Refused("no room for the value")
        reply(msg)

    @answers(GetProviders)
    def get_providers(self, sender: Peer, msg: GetProviders, reply: Reply) -> None:
        self._heard_from(sender)
        providers = tuple(self.records.providers_of(msg.key, self.env.now())[:TOLD])
        reply(GetProviders(msg.key, providers, self._closer(msg.key, sender)))

    @answers(Ping)
    def ping(self, sender: Peer, msg: Ping, reply: Reply) -> None:
        reply(msg)

    @upon(AddProvider)
    def add_provider(self, sender: Peer, msg: AddProvider) -> None:
        """Nobody speaks for another."""
        self._heard_from(sender)
        for info in msg.providers:
            if info.peer == sender:
                learn(self.env, info)
                self.records.provide(msg.key, info, self.env.now() + self.config.provider_ttl)

    def _closer(self, key: bytes, sender: Peer) -> tuple[PeerInfo, ...]:
        info = self.env.info
        return tuple([info(peer) for peer in self.table.nearest(place_of_key(key), self.config.k, sender)])

    def _acceptable(self, key: bytes, value: bytes) -> bool:
        return len(value) <= self.records.limits.value and validator_of(self.validators, key).valid(key, value)

    def _is_near(self, place: int, nearest: Sequence[Peer]) -> bool:
        """Whether this node is one of the k nearest itself."""
        if not self.serves or len(nearest) < self.config.k:
            return self.serves
        return self.table.mine ^ place < self._distance(nearest[-1], place)

    def _record(self, key: bytes, value: bytes, until: int) -> Record:
        return Record(key, value, ttl=min(LONGEST, max(1, (until - self.env.now()) // SECOND)))

    def _keep(self, record: Record) -> bool:
        """Whether there was room. For as long as its author wants at most: who stores it again tells how much of that is left."""
        now, life = self.env.now(), self.config.value_ttl
        expires = now + (min(life, record.ttl * SECOND) if record.ttl else life)
        return self.records.put(record.key, record.value, now, expires)

    # The table.

    def link_up(self, peer: Peer, link: Link) -> None:
        self.links[peer] = link.incarnation, self.env.now()
        self._see(peer)

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        """One whose links never last is not checked for each of them, or the two would dial without end."""
        if incarnation == 0:
            self.table.drop(peer)
            return
        latest, since = self.links.get(peer, (0, 0))
        if latest == incarnation:
            del self.links[peer]
            lasted = self.env.now() - since >= self.config.near_every
            if lasted and peer in self.table.nearest(self.table.mine, self.config.k):
                self._check(peer)

    def _heard_from(self, sender: Peer) -> None:
        if sender in self.links:
            self._see(sender)

    def _see(self, peer: Peer) -> None:
        oldest = self.table.see(peer)
        if oldest is None:
            return
        bucket, now = self.table.bucket_of_peer(oldest), self.env.now()
        if oldest in self.links:
            self.table.see(oldest)
        elif now - self.checked.get(bucket, -LATELY) >= LATELY:
            self.checked[bucket] = now
            self._check(oldest)

    def _check(self, peer: Peer) -> None:
        """Whether it is there; its answer may name some that are new."""
        if peer not in self.asking and len(self.asking) < CHECKS and not self.stopped:
            self.asking[peer] = None
            self.ask(peer, FindNode(self.name), self._checked, self._unchecked)

    def _checked(self, peer: Peer, msg: Message) -> None:
        self.asking.pop(peer, None)
        if not isinstance(msg, FindNode):
            self.table.drop(peer)  # or its link, which this costs it, would be made again for the next check
            raise PeerError(f"{type(msg).__name__} in answer to FindNode")
        self._see(peer)
        far = self._distance_of_kth()
        for info in msg.closer[: self.config.k]:
            if info.peer not in self.table and info.peer != self.env.me and self._distance(info.peer, self.table.mine) < far:
                learn(self.env, info)
                self._check(info.peer)

    def _unchecked(self, peer: Peer, reason: str) -> None:
        self.asking.pop(peer, None)
        self.table.drop(peer)

    def _distance_of_kth(self) -> int:
        """How near a stranger must be to be one of the nearest."""
        nearest = self.table.nearest(self.table.mine, self.config.k)
        return self._distance(nearest[-1], self.table.mine) if len(nearest) == self.config.k else 1 << 256

    def _distance(self, peer: Peer, place: int) -> int:
        return place_of(peer) ^ place

    # What happens by itself.

    def _near(self) -> None:
        nearest = self.table.nearest(self.table.mine, self.config.k)
        for peer in self.env.rng.sample(nearest, min(self.config.near_asks, len(nearest))):
            self._check(peer)
        if not nearest and self.has_joined:
            self._join()

    def _refresh(self) -> None:
        """The buckets that no lookup went into lately, and the own place; the first node of all never joins otherwise."""
        if self.has_joined or len(self.table):
            self._join()
            since = self.env.now() - self.config.refresh_every
            self.thin |= dict.fromkeys(n for n in range(self._outer()) if self.refreshed.get(n, -1) <= since)
            self.upkeep.go_on()

    def _outer(self) -> int:
        """Buckets that are beyond the k nearest; the others are filled by looking the own place up."""
        nearest = self.table.nearest(self.table.mine, self.config.k)
        return min(PREFIX, self.table.bucket_of_peer(nearest[-1])) if len(nearest) == self.config.k else 0

    def _republish(self) -> None:
        """What is left from last time is done with the rest: each key is in there once."""
        now = self.env.now()
        self.records.sweep(now)
        self.mine = {key: (value, until) for key, (value, until) in self.mine.items() if until > now}
        self.due |= dict.fromkeys(key for key in self.records.values if self._to_store(key) is not None)
        self.due |= dict.fromkeys(self.mine)
        self.untold |= self.provided
        self.upkeep.go_on()

    def _next_chore(self) -> Query | None:
        """What a lookup is to be made for now; as thousands may be due, none is made before its turn."""
        if self.thin:
            key = key_in_bucket(self.table.mine, _first(self.thin), self.env.rng)
            return Query(self, key, FindNode(key), _nothing)
        while self.due:
            if (found := self._to_store(key := _first(self.due))) is not None:
                return self._storing(key, *found, _nothing)
        while self.untold:
            if (key := _first(self.untold)) in self.provided:
                return self._telling(key)
        return None

    def _to_store(self, key: bytes) -> tuple[bytes, int] | None:
        """The value and until when, where it is the own one or nobody has stored it here lately."""
        now = self.env.now()
        if key in self.mine:
            return self.mine[key] if self.mine[key][1] > now else None
        held = self.records.stored(key, now)
        if held is None or held.refreshed > now - self.config.republish_every:
            return None
        return held.value, held.expires

    # Asking peers.

    def goes_to(self, place: int) -> None:
        """A lookup begins."""
        self.refreshed[self.table.bucket_of(place)] = self.env.now()

    def ask(self, peer: Peer, msg: Message, heard: Callable[[Peer, Message], None], failed: Callable[[Peer, str], None]) -> None:
        self.env.request(peer, msg, self.config.patience, heard, partial(self._ask_again, msg, heard, failed))

    def _ask_again(
        self, msg: Message, heard: Callable[[Peer, Message], None], failed: Callable[[Peer, str], None], peer: Peer, reason: str
    ) -> None:
        """The link may have been idle and closing, or the second of two; only who takes too long is not asked once more."""
        if reason == "timeout" or self.stopped:
            failed(peer, reason)
        else:
            self.env.request(peer, msg, self.config.patience, heard, failed)

    def _check_key(self, key: bytes) -> None:
        if not 0 < len(key) <= KEY_LIMIT:
            raise UsageError(f"a key of {len(key)} bytes; it must have 1 to {KEY_LIMIT}")


class Told:
    """Counts who took a value, and says so when all have answered. An echo of another value says that it was not taken."""

    __slots__ = ("_done", "_left", "_record", "_taken")

    def __init__(self, record: Record, left: int, done: Callable[[int], None]) -> None:
        self._record = record
        self._left = left
        self._taken = 0
        self._done = done

    def yes(self, peer: Peer, msg: Message) -> None:
        if not isinstance(msg, PutValue):
            self._settled()
            raise PeerError(f"{type(msg).__name__} in answer to PutValue")
        self._taken += (msg.record.key, msg.record.value) == (self._record.key, self._record.value)
        self._settled()

    def no(self, peer: Peer, reason: str) -> None:
        self._settled()

    def _settled(self) -> None:
        self._left -= 1
        if not self._left:
            self._done(self._taken)


def _nothing(*_: object) -> None: ...


def _first(waiting: dict[Key, None]) -> Key:
    """Taken out."""
    first = next(iter(waiting))
    del waiting[first]
    return first
