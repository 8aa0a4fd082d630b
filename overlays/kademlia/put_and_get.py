"""Kademlia: values and providers, kept by the nodes nearest to their keys.

P. Maymounkov, D. Mazières, IPTPS 2002, on the wire of libp2p's kad-dht, over `libweft.overlays.kademlia.routing`. What these
leave open:
- Who holds a value stores it with the nearest again when nobody did for `republish_every`; the first to do so spares the rest.
  With it goes how much of its life is left (`ttl`, as rust-libp2p has it), or it would never end.
- A value is taken from many and chosen by its validator; who told an older one is told the better.

Above it promises: values and providers, beside what the routing does.
Bounds: the routing's, the records'; of what is to be stored again only the keys wait, each once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from libweft.overlays.claims import learn
from libweft.overlays.kademlia.arguments import check_count, check_done, check_key, check_topic, check_ttl, check_value
from libweft.overlays.kademlia.config import DEFAULTS, TOLD, KademliaConfig
from libweft.overlays.kademlia.lookup_queue import first_of
from libweft.overlays.kademlia.messages import AddProvider, FindNode, GetProviders, GetValue, PutValue, Record
from libweft.overlays.kademlia.query import Query, nothing
from libweft.overlays.kademlia.records import VALIDATORS, RecordLimits, Records, Validator, validator_of
from libweft.overlays.kademlia.routing import Infos, Routing
from libweft.overlays.kademlia.space import place_of, place_of_key, topic_key
from libweft.peer.errors import PeerError, Refused, UsageError
from libweft.peer.machine import SECOND, Env, Message, Peer, PeerInfo, Reply, answers, upon

LONGEST = 2**32 - 1  # seconds, in a record


class Kademlia(Routing):
    """`mine` are values stored again until their time is over, `provided` keys told of again until they are withdrawn."""

    def __init__(
        self,
        env: Env,
        contacts: Sequence[Peer],
        config: KademliaConfig = DEFAULTS,
        validators: Mapping[str, Validator] = VALIDATORS,
        limits: RecordLimits | None = None,
    ) -> None:
        super().__init__(env, contacts, config)
        self.validators = validators
        self.records = Records(self.table.mine, limits or RecordLimits())
        self.mine: dict[bytes, tuple[bytes, int]] = {}  # value, and until when
        self.provided: dict[bytes, None] = {}
        self.told: dict[Told, None] = {}  # values that were sent, and not all have answered
        self.due: dict[bytes, None] = {}  # keys whose value is to be stored again
        self.untold: dict[bytes, None] = {}  # keys that this node provides, to be told again

    def _periods(self) -> dict[Callable[[], None], int]:
        return {**super()._periods(), self._republish: self.config.republish_every}

    def stop(self) -> None:
        super().stop()
        for told in list(self.told):
            told.end()

    # Values.

    def put(self, key: bytes, value: bytes, ttl: int, done: Callable[[int], None]) -> None:
        """Store with the k nearest, and again until `ttl` is over; `done` hears how many took it."""
        self._check_up()
        check_key(key)
        check_value(value, self.records.limits.value)
        check_ttl(ttl)
        check_done(done)
        if not validator_of(self.validators, key).valid(key, value):
            raise UsageError(f"the validator of {key[:40]!r} refuses this value")
        until = self.env.now() + ttl
        self.mine[key] = (value, until)
        self._run(self._storing(key, value, until, done), partial(done, 0))

    def _storing(self, key: bytes, value: bytes, until: int, done: Callable[[int], None]) -> Query:
        return Query(self, key, FindNode(key), lambda query: self._place(key, value, until, query.lookup.nearest, done))

    def _place(self, key: bytes, value: bytes, until: int, nearest: Sequence[Peer], done: Callable[[int], None]) -> None:
        place, record = place_of_key(key), self._record(key, value, until)
        if self._is_near(place, nearest):
            self._keep(record)
        if not nearest:
            done(0)
            return
        told = Told(record, len(nearest), done, self.told)
        for peer in nearest:
            self.ask(peer, PutValue(key, record), told.yes, told.no)

    def get(self, key: bytes, done: Callable[[bytes | None], None], paths: int | None = None) -> None:
        """The best of all valid values found, or None."""
        self._check_up()
        check_key(key)
        check_done(done)
        found: dict[Peer, Record] = {}
        own = self.records.stored(key, self.env.now())
        if own is not None:
            found[self.env.me] = self._record(key, own.value, own.expires)
        query = Query(self, key, GetValue(key), lambda query: self._found(query, found, done), paths=paths)
        query.take = partial(self._take_value, found)
        self._run(query, partial(done, None))

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
            self.ask(peer, PutValue(key, record), nothing, nothing)
        done(best)

    @answers(GetValue)
    def get_value(self, sender: Peer, msg: GetValue, reply: Reply) -> None:
        self.heard_from(sender)
        held = self.records.stored(msg.key, self.env.now())
        record = self._record(msg.key, held.value, held.expires) if held is not None else None
        reply(GetValue(msg.key, record, self.closer(msg.key, sender)))

    @answers(PutValue)
    def put_value(self, sender: Peer, msg: PutValue, reply: Reply) -> None:
        """A value that is not valid is its sender's fault; one that is no better than what is held is taken as said.

        An echo says that it is kept, so where there is no room for it there is none.
        """
        self.heard_from(sender)
        key, value = msg.key, msg.record.value
        if not key or msg.record.key != key or not self._acceptable(key, value):
            raise PeerError(f"a value that does not fit its key {key[:40]!r}")
        held = self.records.stored(key, self.env.now())
        better = held is None or validator_of(self.validators, key).best(key, [value, held.value]) == value
        if better and not self._keep(msg.record):
            raise Refused("no room for the value")
        reply(msg)

    def _acceptable(self, key: bytes, value: bytes) -> bool:
        return len(value) <= self.records.limits.value and validator_of(self.validators, key).valid(key, value)

    def _is_near(self, place: int, nearest: Sequence[Peer]) -> bool:
        """Whether this node is one of the k nearest itself."""
        if not self.serves or len(nearest) < self.config.k:
            return self.serves
        return self.table.mine ^ place < place_of(nearest[-1]) ^ place

    def _record(self, key: bytes, value: bytes, until: int) -> Record:
        return Record(key, value, ttl=min(LONGEST, max(1, (until - self.env.now()) // SECOND)))

    def _keep(self, record: Record) -> bool:
        """Whether there was room. For as long as its author wants at most: who stores it again tells how much of that is left."""
        now, life = self.env.now(), self.config.value_ttl
        expires = now + (min(life, record.ttl * SECOND) if record.ttl else life)
        return self.records.put(record.key, record.value, now, expires)

    # Providers.

    def provide(self, key: bytes, done: Callable[[int], None] = nothing) -> None:
        """Be told of as a provider of the key, and again each `republish_every`, until `withdraw`.

        `done` hears to how many it was told; nobody says whether it was taken.
        """
        self._check_up()
        check_key(key)
        check_done(done)
        self.provided[key] = None
        self._run(self._telling(key, done), partial(done, 0))

    def _telling(self, key: bytes, done: Callable[[int], None] = nothing) -> Query:
        return Query(self, key, FindNode(key), lambda query: self._tell(key, query.lookup.nearest, done))

    def withdraw(self, key: bytes) -> None:
        """This node forgets it at once; those who were told do by themselves, within `provider_ttl`."""
        check_key(key)
        self.provided.pop(key, None)
        self.records.unprovide(key, self.env.me)

    def _withdrawn(self, key: bytes, peer: Peer) -> bool:
        """What others still say of this node, itself knows better."""
        return peer == self.env.me and key not in self.provided

    def _tell(self, key: bytes, nearest: Sequence[Peer], done: Callable[[int], None]) -> None:
        if key in self.provided:
            me = self.env.info(self.env.me)
            for peer in nearest:
                self.env.send(peer, AddProvider(key, (me,)))
            if self._is_near(place_of_key(key), nearest):
                self.records.provide(key, me, self.env.now() + self.config.provider_ttl)
        done(len(nearest))

    def find_providers(self, key: bytes, n: int, done: Callable[[Infos], None]) -> None:
        self._check_up()
        check_key(key)
        check_count(n)
        check_done(done)
        found = {info.peer: info for info in self.records.providers_of(key, self.env.now())[:n]}
        query = Query(self, key, GetProviders(key), lambda _: done(self._still(key, found)))
        query.take = partial(self._take_providers, found, n)
        self._run(query, partial(done, []))

    def _still(self, key: bytes, found: dict[Peer, PeerInfo]) -> Infos:
        return [info for peer, info in found.items() if not self._withdrawn(key, peer)]

    def _take_providers(self, found: dict[Peer, PeerInfo], n: int, query: Query, peer: Peer, msg: Message) -> None:
        assert isinstance(msg, GetProviders)
        for info in msg.providers[:TOLD]:
            if info.peer not in found and len(found) < n and not self._withdrawn(query.key, info.peer):
                found[info.peer] = info
                learn(self.env, info)
        if len(found) >= n:
            query.lookup.stopped = True

    def announce(self, topic: str) -> None:
        check_topic(topic)
        self.provide(topic_key(topic))

    def unannounce(self, topic: str) -> None:
        check_topic(topic)
        self.withdraw(topic_key(topic))

    def find(self, topic: str, n: int, done: Callable[[Infos], None]) -> None:
        check_topic(topic)
        self.find_providers(topic_key(topic), n, done)

    @answers(GetProviders)
    def get_providers(self, sender: Peer, msg: GetProviders, reply: Reply) -> None:
        self.heard_from(sender)
        providers = tuple(self.records.providers_of(msg.key, self.env.now())[:TOLD])
        reply(GetProviders(msg.key, providers, self.closer(msg.key, sender)))

    @upon(AddProvider)
    def add_provider(self, sender: Peer, msg: AddProvider) -> None:
        """Nobody speaks for another."""
        self.heard_from(sender)
        for info in msg.providers:
            if info.peer == sender:
                learn(self.env, info)
                self.records.provide(msg.key, info, self.env.now() + self.config.provider_ttl)

    # What happens by itself.

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
        if (query := super()._next_chore()) is not None:
            return query
        while self.due:
            if (found := self._to_store(key := first_of(self.due))) is not None:
                return self._storing(key, *found, nothing)
        while self.untold:
            if (key := first_of(self.untold)) in self.provided:
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


class Told:
    """Counts who took a value, and says so when all have answered. An echo of another value says that it was not taken."""

    __slots__ = ("_among", "_done", "_left", "_record", "_taken")

    def __init__(self, record: Record, left: int, done: Callable[[int], None], among: dict[Told, None]) -> None:
        among[self] = None
        self._among = among
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
            self.end()

    def end(self) -> None:
        """With as many as are known to have taken it by now; once."""
        if self in self._among:
            del self._among[self]
            self._done(self._taken)
