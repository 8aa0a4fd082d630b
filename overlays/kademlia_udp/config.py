"""The options of a node in a network of the PyPI package `kademlia`, each with its source."""

from __future__ import annotations

from dataclasses import dataclass

from libweft.overlays.kademlia_udp.wire import ID_SIZE
from libweft.peer.datagram import CONTENT_LIMIT
from libweft.peer.errors import UsageError
from libweft.peer.machine import SECOND

HOUR = 3_600 * SECOND
TRIES = 10  # a guess


@dataclass(frozen=True)
class KademliaUdpConfig:
    """Times are in microseconds. `k` must be the network's: longer answers are refused."""

    id: bytes | None = None  # by chance at each start; who keeps it keeps its place
    k: int = 20  # the package's ksize, and the paper's
    alpha: int = 3  # the package's, and the paper's
    patience: int = 2 * SECOND  # a guess: a slow round trip; the package waits 5 s
    tries: int = 2  # a guess: one lost datagram should cost no contact; the package has one
    tick_every: int = 60 * SECOND  # a guess
    refresh_every: int = HOUR  # section 2.3, and the package's
    republish_every: int = HOUR  # section 2.5, and the package's
    values: int = 10_000  # a guess, as are the next two: some tens of megabytes at most
    value_bytes: int = 1 << 24
    value_size: int = CONTENT_LIMIT
    life: int = 168 * HOUR  # the package's ttl

    def __post_init__(self) -> None:
        if self.id is not None and (not isinstance(self.id, bytes) or len(self.id) != ID_SIZE):
            raise UsageError(f"kademlia: the id is {self.id!r:.80}; it must be {ID_SIZE} bytes, as a SHA-1 digest is")
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if name != "id" and (type(value) is not int or value < 1):
                raise UsageError(f"kademlia: {name} is {value!r:.80}; it must be a whole number of at least 1")
        if self.k > 64:
            raise UsageError(f"kademlia: k is {self.k}; an answer has room for 1 to 64 nodes")
        if self.tries > TRIES:
            raise UsageError(f"kademlia: tries is {self.tries}; whoever has not answered {TRIES} times will not, so 1 to {TRIES}")


DEFAULTS = KademliaUdpConfig()
