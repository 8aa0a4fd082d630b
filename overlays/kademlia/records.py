"""What a node keeps for others: values under keys, and who provides a key; all of it soft, and bounded.

Values pass a validator, chosen by the namespace of the key (`/NAMESPACE/...`), as in libp2p; `Anything` is for the rest.
Whoever has no room left keeps what is nearest to its own place: that is what it is asked for.
Nor can one peer fill the keys with itself: for what it provides beyond its share its own oldest give way. Many ids of one
hand still can.
Bounds: `values` and `bytes` in all, `value` bytes each; `keys` with providers, `providers` each, `provided` by one peer; all end
by their time.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from libweft.overlays.kademlia.space import place_of_key
from libweft.peer.machine import Peer, PeerInfo


class Validator(Protocol):
    def valid(self, key: bytes, value: bytes) -> bool: ...
    def best(self, key: bytes, values: Sequence[bytes]) -> bytes:
        """Of values that are valid, at least one."""


class Anything:
    """Every value may stand under every key; the one that most have told is the best."""

    def valid(self, key: bytes, value: bytes) -> bool:
        return True

    def best(self, key: bytes, values: Sequence[bytes]) -> bytes:
        return max(dict.fromkeys(values), key=values.count)


class ContentHash:
    """A key is `/NAMESPACE/` and the SHA-256 of its value, so nobody can tell a false one."""

    def valid(self, key: bytes, value: bytes) -> bool:
        return key.split(b"/", 2)[-1] == sha256(value).digest()

    def best(self, key: bytes, values: Sequence[bytes]) -> bytes:
        return values[0]


VALIDATORS: Mapping[str, Validator] = {"sha256": ContentHash()}
ANYTHING = Anything()


def validator_of(validators: Mapping[str, Validator], key: bytes) -> Validator:
    if not key.startswith(b"/"):
        return ANYTHING
    return validators.get(key.split(b"/", 2)[1].decode(errors="replace"), ANYTHING)


@dataclass(frozen=True)
class RecordLimits:
    values: int = 16_384  # a guess
    bytes: int = 64 << 20  # a guess
    value: int = 1 << 16  # a guess: what others take, too
    keys: int = 16_384  # a guess
    providers: int = 256  # a guess: more of one key than any answer carries
    provided: int = 1_024  # a guess: it takes sixteen peers to fill all keys


class Stored:
    __slots__ = ("distance", "expires", "refreshed", "value")

    def __init__(self, value: bytes, expires: int, refreshed: int, distance: int) -> None:
        self.value = value
        self.expires = expires
        self.refreshed = refreshed  # when anybody stored it here last
        self.distance = distance  # of its key from the own place


class Records:
    """`held`: bytes of all values."""

    __slots__ = ("_by_distance", "_mine", "_provided", "held", "limits", "providers", "values")

    def __init__(self, mine: int, limits: RecordLimits) -> None:
        self._mine = mine
        self.limits = limits
        self.held = 0
        self.values: dict[bytes, Stored] = {}
        self._by_distance: list[tuple[int, bytes]] = []  # the keys of all values, nearest first
        self.providers: dict[bytes, dict[Peer, tuple[int, PeerInfo]]] = {}
        self._provided: dict[Peer, dict[bytes, None]] = {}  # the same by peer, the key told of last at the end

    def put(self, key: bytes, value: bytes, now: int, expires: int) -> bool:
        """Whether there was room; values farther from the own place give way."""
        if len(value) > self.limits.value:
            return False
        stored = Stored(value, expires, now, place_of_key(key) ^ self._mine)
        farther = self._give_way(key, stored)
        if farther is None:
            return False
        for gone in (key, *farther):
            self._remove(gone)
        self.values[key] = stored
        self.held += len(value)
        insort(self._by_distance, (stored.distance, key))
        return True

    def _give_way(self, key: bytes, stored: Stored) -> list[bytes] | None:
        """Those without which it fits, the farthest first; None where they would not make room enough."""
        old = self.values.get(key)
        count = len(self.values) - (old is not None) + 1
        held = self.held - (len(old.value) if old is not None else 0) + len(stored.value)
        gone: list[bytes] = []
        for distance, name in reversed(self._by_distance):
            if (count <= self.limits.values and held <= self.limits.bytes) or distance <= stored.distance:
                break
            gone.append(name)
            count -= 1
            held -= len(self.values[name].value)
        return gone if count <= self.limits.values and held <= self.limits.bytes else None

    def stored(self, key: bytes, now: int) -> Stored | None:
        stored = self.values.get(key)
        return stored if stored is not None and stored.expires > now else None

    def provide(self, key: bytes, info: PeerInfo, expires: int) -> bool:
        """A key beyond the limit, or a provider beyond its own, is not taken: those there have the older right."""
        peer, known = info.peer, self.providers.get(key, {})
        own = self._provided.get(peer, {})
        gone = key if key in own else next(iter(own)) if len(own) >= self.limits.provided else None
        if key not in own and len(known) >= self.limits.providers:
            return False
        frees = gone is not None and len(self.providers[gone]) == 1
        if not known and len(self.providers) - frees >= self.limits.keys:
            return False
        if gone is not None:
            self._withdraw(gone, peer)
        self.providers.setdefault(key, {})[peer] = (expires, info)
        self._provided.setdefault(peer, {})[key] = None
        return True

    def unprovide(self, key: bytes, peer: Peer) -> None:
        if key in self._provided.get(peer, ()):
            self._withdraw(key, peer)

    def _withdraw(self, key: bytes, peer: Peer) -> None:
        known, own = self.providers[key], self._provided[peer]
        del known[peer], own[key]
        if not known:
            del self.providers[key]
        if not own:
            del self._provided[peer]

    def providers_of(self, key: bytes, now: int) -> list[PeerInfo]:
        """Those heard from last come first."""
        known = self.providers.get(key, {})
        return [info for expires, info in reversed(known.values()) if expires > now]

    def sweep(self, now: int) -> None:
        for key in [key for key, stored in self.values.items() if stored.expires <= now]:
            self._remove(key)
        over = [(key, peer) for key, known in self.providers.items() for peer, (expires, _) in known.items() if expires <= now]
        for key, peer in over:
            self._withdraw(key, peer)

    def _remove(self, key: bytes) -> None:
        stored = self.values.pop(key, None)
        if stored is not None:
            self.held -= len(stored.value)
            del self._by_distance[bisect_left(self._by_distance, (stored.distance, key))]
