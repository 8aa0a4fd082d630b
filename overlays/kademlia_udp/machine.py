"""A node in a network of the PyPI package `kademlia`: a key-value table that its real servers and weft hold together.

P. Maymounkov, D. Mazières: "Kademlia: a peer-to-peer information system based on the XOR metric", IPTPS 2002; sections below are
that paper's. The calls are those of the package (`libweft.overlays.kademlia_udp.wire`), whose Peer is an address (host, port).
Where this differs from the package, for the sake of safety or of the paper, no server notices:
- Only who answers a ping gets into the table, under the id that it answered. The package believes whoever sends a request, and
  hands all values to an address that may be forged.
- An id stays with the address that had it first, as long as that answers.
- What is not answered is asked once more before its contact is given up.
- A lookup has `alpha` requests under way until its k nearest have answered, without rounds, and asks an address once.
- A newcomer is handed the values that it is near to and this node nearest to, by the distance to the key (section 2.5). The
  package hashes the key once more, so it hands over others.
- `set` says how many took the value. The package is content when there was anybody to ask.

Below it asks for: a `libweft.peer.datagram.DatagramEnv`.
Above it promises: `join`, `set` and `get` end, whatever the network does.
Bounds: those of `storage`, `lookup` and `handover` beside it; WALKS calls at once and WAITING more; PROBES pings at once. It
answers each request with one reply, and with a ping if the sender is new.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from libweft.overlays.kademlia_udp.config import DEFAULTS, KademliaUdpConfig
from libweft.overlays.kademlia_udp.handover import Handovers
from libweft.overlays.kademlia_udp.lookup import Lookup
from libweft.overlays.kademlia_udp.storage import Table, Values
from libweft.overlays.kademlia_udp.wire import (
    ID_SIZE,
    Contact,
    Value,
    contact,
    digest,
    encode,
    nodes,
    ping,
    read_address,
    read_call,
    read_id,
    read_stored,
    store,
    stun,
    usable,
)
from libweft.peer.datagram import Address, Answer, DatagramEnv
from libweft.peer.errors import UsageError
from libweft.peer.machine import Timer

WALKS = 64
WAITING = 1_024
PROBES = 64

Result = TypeVar("Result")


class KademliaUdp:
    """`join`, `set` and `get` end in a call of their last argument."""

    def __init__(self, env: DatagramEnv, bootstrap: Sequence[Address] = (), config: KademliaUdpConfig = DEFAULTS) -> None:
        self.env = env
        self.config = config
        self.bootstrap = tuple(dict.fromkeys(bootstrap))
        self.id = config.id or env.rng.randbytes(ID_SIZE)
        self.number = int.from_bytes(self.id, "big")
        self.table = Table(self.id, config.k)
        self.values = Values(self.id, config.values, config.value_bytes, config.value_size, config.life)
        self.probes: dict[Address, None] = {}
        self.handovers = Handovers(self)
        self.walks = 0
        self.waiting: deque[Callable[[], None]] = deque()
        self.chores: deque[Callable[[], None]] = deque()
        self.ticking: Timer | None = None

    def start(self) -> None:
        self._tick_later()

    def stop(self) -> None:
        if self.ticking is not None:
            self.ticking.cancel()

    def join(self, done: Callable[[int], None]) -> None:
        """Ask the bootstrap nodes who they are, then the network who is near; `done` hears how many contacts there are."""

        def settled(_: list[bytes | None]) -> None:
            self._walk(self.id, False, lambda _: done(len(self.table)))

        self._each(self.bootstrap, self._greet, settled)

    def set(self, key: str | bytes, value: Value, done: Callable[[int], None]) -> None:
        """At the k nodes nearest to the key; `done` hears how many others took it."""
        store(self.id, place := digest(key), value)
        self._begin(partial(self._set, place, value, partial(self._end, done)))

    def get(self, key: str | bytes, done: Callable[[Value | None], None]) -> None:
        """None where nobody has it; of several values the one that most have, and of those the first heard."""
        place = digest(key)
        if (mine := self.values.get(place, self.env.now())) is not None:
            done(mine)
        else:
            self._begin(partial(self._walk, place, True, partial(self._got, partial(self._end, done))))

    def stun(self, address: Address, done: Callable[[Address | None], None]) -> None:
        """How the node there sees this one's address."""
        self.ask(address, stun(), read_address, done)

    # Answering (section 2.3).

    def asked(self, sender: Address, content: bytes, answer: Answer) -> None:
        call = read_call(content)
        if call.name == "stun":
            answer(encode(sender))
            return
        if call.name == "ping":
            answer(encode(self.id))
        elif call.name == "store":
            answer(encode(self.values.put(call.key, call.value, self.env.now())))
        elif call.name == "find_value" and (value := self.values.get(call.key, self.env.now())) is not None:
            answer(encode({"value": value}))
        else:
            answer(nodes(self.table.nearest(call.key, self.config.k, but=call.node)))
        self.heard(call.node, sender)

    # Contacts (sections 2.2 and 2.4).

    def heard(self, node: bytes, address: Address) -> None:
        """Somebody says that it is this node. Before that is believed, it must answer."""
        known = self.table.get(node)
        if known is not None and known.address == address:
            self.table.touch(known)
        elif node != self.id and self.table.has_room(node) and usable(address, address) == address:
            self._probe(address)

    def _probe(self, address: Address) -> None:
        if address not in self.probes and len(self.probes) < PROBES:
            self.probes[address] = None
            self._greet(address, lambda _: self.probes.pop(address))

    def _greet(self, address: Address, done: Callable[[bytes | None], object]) -> None:
        def greeted(node: bytes | None) -> None:
            if node is not None:
                self._welcome(contact(node, address))
            done(node)

        self.ask(address, ping(self.id), read_id, greeted)

    def _welcome(self, new: Contact) -> None:
        """It has answered a ping by its id."""
        known = self.table.get(new.id)
        if new.id == self.id:
            return
        if known is None:
            self.table.remove(new.address)  # or who had the address before would keep the room that this one needs
            if not self.table.has_room(new.id):
                return
            self.handovers.begin(new)
            if (silent := self.table.add(new, self.env.now())) is not None:
                self._probe(silent.address)
        elif known.address == new.address:
            self.table.touch(known)
        else:
            self._probe(known.address)

    # Lookups (section 2.3).

    def _walk(self, key: bytes, wants_value: bool, done: Callable[[Lookup], None]) -> None:
        self.table.looking(key, self.env.now())
        Lookup(self, key, wants_value, done).go()

    def _set(self, key: bytes, value: Value, done: Callable[[int], None]) -> None:
        self._walk(key, False, partial(self._store, key, value, done))

    def _store(self, key: bytes, value: Value, done: Callable[[int], None], found: Lookup) -> None:
        """At the nodes found, and here where this node is as near as they are."""
        nearest, number = found.nearest(), int.from_bytes(key, "big")
        if nearest and (len(nearest) < self.config.k or self.number ^ number < nearest[-1].number ^ number):
            self.values.put(key, value, self.env.now())
        content = store(self.id, key, value)

        def ask(address: Address, heard: Callable[[bool | None], None]) -> None:
            self.ask(address, content, read_stored, heard)

        self._each([node.address for node in nearest], ask, lambda answers: done(answers.count(True)))

    def _got(self, done: Callable[[Value | None], None], found: Lookup) -> None:
        """The nearest node that should have had the value gets it."""
        if not found.values:
            done(None)
            return
        votes = Counter(encode(value) for value in found.values)  # 1, 1.0 and True are equal, but not the same
        [(most, _)] = votes.most_common(1)
        value = next(value for value in found.values if encode(value) == most)
        if found.without is not None:
            self.ask(found.without.address, store(self.id, found.key, value), read_stored, _unanswered)
        done(value)

    def _begin(self, walk: Callable[[], None]) -> None:
        if self.walks < WALKS:
            self.walks += 1
            walk()
        elif len(self.waiting) < WAITING:
            self.waiting.append(walk)
        else:
            raise UsageError(f"{WALKS + WAITING} calls are under way; wait for some of them first")

    def _end(self, done: Callable[[Result], None], result: Result) -> None:
        if self.waiting:
            self.env.after(0, self.waiting.popleft())
        else:
            self.walks -= 1
        done(result)

    # What happens by itself.

    def _tick_later(self) -> None:
        self.ticking = self.env.after(self.config.tick_every, self._tick)

    def _tick(self) -> None:
        self._tick_later()
        now = self.env.now()
        self.values.expire(now)
        if not self.table and self.bootstrap:
            self.join(_unheard)
        elif not self.chores:
            self._ask_the_silent()
            self.chores.extend(partial(self._refresh, index) for index in self.table.stale(now - self.config.refresh_every))
            self.chores.extend(partial(self._republish, key) for key in self.values.untold(now - self.config.republish_every))
            self._next_chore()

    def _ask_the_silent(self) -> None:
        """One contact each time, or one that is dead might stay in a bucket where no lookup leads."""
        buckets = [index for index, bucket in self.table.buckets.items() if bucket.contacts]
        if buckets and (silent := self.table.oldest(self.env.rng.choice(buckets))) is not None:
            self._probe(silent.address)

    def _next_chore(self) -> None:
        """One after the other."""
        if self.chores:
            self.env.after(0, self.chores[0])

    def _chore_done(self, _: object) -> None:
        self.chores.popleft()
        self._next_chore()

    def _refresh(self, index: int) -> None:
        """A lookup of any id in the bucket."""
        number = self.number ^ (1 << index | self.env.rng.getrandbits(index)) if index else self.number ^ 1
        self._walk(number.to_bytes(ID_SIZE, "big"), False, self._chore_done)

    def _republish(self, key: bytes) -> None:
        """What was stored again meanwhile, by another node that did the same, need not be."""
        kept = self.values.kept.get(key)
        if kept is None or kept.told > self.env.now() - self.config.republish_every:
            self._chore_done(None)
        else:
            self.values.telling(key, self.env.now())
            self._set(key, kept.value, self._chore_done)

    # Asking.

    def ask(
        self,
        address: Address,
        content: bytes,
        read: Callable[[bytes], Result],
        done: Callable[[Result | None], None],
        tried: int = 1,
    ) -> None:
        """Ends in one call of `done`: None for no answer, and then the contact is given up."""

        def failed(_: Address, reason: str) -> None:
            if tried < self.config.tries:
                self.ask(address, content, read, done, tried + 1)
            else:
                self.table.remove(address)
                done(None)

        self.env.request(address, content, self.config.patience, lambda _, reply: done(read(reply)), failed)

    def _each(
        self,
        addresses: Sequence[Address],
        ask: Callable[[Address, Callable[[Result | None], None]], None],
        done: Callable[[list[Result | None]], None],
    ) -> None:
        """Ask all at once; `done` hears the answers when there are as many as were asked."""
        answers: list[Result | None] = []

        def heard(answer: Result | None) -> None:
            answers.append(answer)
            if len(answers) == len(addresses):
                done(answers)

        for address in addresses:
            ask(address, heard)
        if not addresses:
            done([])


def _unheard(_: int) -> None: ...
def _unanswered(_: bool | None) -> None: ...
