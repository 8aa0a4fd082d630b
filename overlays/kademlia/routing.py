"""Kademlia's routing: a table of contacts that lookups keep true.

P. Maymounkov, D. Mazières, IPTPS 2002, on the wire of libp2p's kad-dht. What these leave open is settled here as follows:
- Only a peer that was reached, and serves, gets into the table: whom others name is asked first.
- Who joins looks its own place up, then fills the buckets in which it knows few. Those it asks learn of it on the way.
- The nodes nearest to a place must know each other without a gap, for a lookup ends with what they know. So now and then each
  asks a few of its own nearest for its own place, and whoever is new to it there; and it checks a near one whose link fell.

Below it asks for: `Env.request`, and links that are told. Above it promises: lookups and a sample; those in `joined` are called
each time that a join has ended.
Bounds: the table's; QUERIES that others asked for at a time, the rest wait; CHORES of its own beside them, where what waits is a
number of each bucket; CHECKS of contacts; timers: one a period, and two a question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from libweft.overlays.claims import learn
from libweft.overlays.kademlia.arguments import check_done, check_key
from libweft.overlays.kademlia.config import KademliaConfig
from libweft.overlays.kademlia.lookup_queue import Turns, first_of
from libweft.overlays.kademlia.messages import FindNode, Ping
from libweft.overlays.kademlia.query import Query, nothing
from libweft.overlays.kademlia.space import PREFIX, key_in_bucket, name_of, named, place_of, place_of_key
from libweft.overlays.kademlia.table import Table
from libweft.overlays.kademlia.wire import kad
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.machine import SECOND, Codec, Env, Link, Machine, Message, Peer, PeerInfo, Reply, Timer, answers

QUERIES = 32
CHORES = 16  # a guess: as many values as may be kept are stored again well within `republish_every`
CHECKS = 16
LATELY = 60 * SECOND  # who was heard from since needs no check; a guess

Infos = Sequence[PeerInfo]


class Routing(Machine):
    """`asked` has the turns of lookups that others want, `upkeep` those of its own."""

    def __init__(self, env: Env, contacts: Sequence[Peer], config: KademliaConfig) -> None:
        super().__init__(env)
        self.config = config
        self.protocols = (config.protocol,)
        self.serves = config.server
        self.contacts = tuple(peer for peer in dict.fromkeys(contacts) if peer != env.me)
        self.name = name_of(env.me)
        self.table = Table(env.me, config.k, config.spares)
        self.links: dict[Peer, tuple[int, int]] = {}  # the incarnation of each that is up, and since when
        self.asking: dict[Peer, None] = {}  # checks under way
        self.checked: dict[int, int] = {}  # when each bucket's oldest was checked last
        self.refreshed: dict[int, int] = {}  # when a lookup went into each bucket last
        self.asked = Turns(QUERIES)
        self.upkeep = Turns(CHORES, self._next_chore)
        self.thin: dict[int, None] = {}  # buckets to be looked into
        self.joined: list[Callable[[], None]] = []
        self.joining = False
        self.has_joined = False
        self.pause = config.first_retry
        self.timers: dict[str, Timer] = {}
        self.stopped = False

    def codec(self) -> Codec:
        return kad(numbered=isinstance(self.env.me, int))

    def start(self) -> None:
        for action, period in self._periods().items():
            self._each(action, period, 1 + self.env.rng.randrange(period))
        if self.contacts or len(self.table):
            self._join()

    def _periods(self) -> dict[Callable[[], None], int]:
        return {self._near: self.config.near_every, self._refresh: self.config.refresh_every}

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

    # What the layers above call.

    def lookup(self, key: bytes, done: Callable[[Infos], None], paths: int | None = None) -> None:
        """The k nearest to a key that answered, this node not among them; nearest first."""
        self._check_up()
        check_key(key)
        check_done(done)
        query = Query(self, key, FindNode(key), lambda query: done(query.nearest), paths=paths)
        self._run(query, partial(done, []))

    def known(self, key: bytes) -> list[Peer]:
        """The k nearest to a key that are in the table."""
        return self.table.nearest(place_of_key(key), self.config.k)

    def _run(self, query: Query, given_up: Callable[[], None]) -> None:
        query.given_up = given_up
        self.asked.run(query)

    def _check_up(self) -> None:
        if self.stopped:
            raise UsageError("this node has stopped, and asks nobody any more")

    def sample(self, k: int) -> list[Peer]:
        known = list(self.table)
        return self.env.rng.sample(known, min(k, len(known)))

    # Answering.

    @answers(FindNode)
    def find_node(self, sender: Peer, msg: FindNode, reply: Reply) -> None:
        """Who is looked for is named even if it is in no table, as clients are, or nobody could find these."""
        self.heard_from(sender)
        closer, peer = self.closer(msg.key, sender), named(msg.key, self.env.me)
        if peer is not None and peer not in (sender, self.env.me) and peer not in self.table:
            itself = self.env.info(peer)
            closer = (itself, *closer) if itself.addresses else closer
        reply(FindNode(msg.key, closer))

    @answers(Ping)
    def ping(self, sender: Peer, msg: Ping, reply: Reply) -> None:
        reply(msg)

    def closer(self, key: bytes, sender: Peer) -> tuple[PeerInfo, ...]:
        info = self.env.info
        return tuple([info(peer) for peer in self.table.nearest(place_of_key(key), self.config.k, sender)])

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

    def heard_from(self, sender: Peer) -> None:
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

    def suspect(self, peer: Peer) -> None:
        if peer in self.table:
            self._check(peer)

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
            if info.peer not in self.table and info.peer != self.env.me and place_of(info.peer) ^ self.table.mine < far:
                learn(self.env, info)
                self._check(info.peer)

    def _unchecked(self, peer: Peer, reason: str) -> None:
        self.asking.pop(peer, None)
        self.table.drop(peer)

    def _distance_of_kth(self) -> int:
        """How near a stranger must be to be one of the nearest."""
        nearest = self.table.nearest(self.table.mine, self.config.k)
        return place_of(nearest[-1]) ^ self.table.mine if len(nearest) == self.config.k else 1 << 256

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

    def _next_chore(self) -> Query | None:
        """What a lookup is to be made for now; as thousands may be due, none is made before its turn."""
        if not self.thin:
            return None
        key = key_in_bucket(self.table.mine, first_of(self.thin), self.env.rng)
        return Query(self, key, FindNode(key), nothing)

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
