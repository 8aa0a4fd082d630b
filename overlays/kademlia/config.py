"""The options of Kademlia, each with its source."""

from __future__ import annotations

import re
from dataclasses import dataclass

from libweft.overlays.kademlia.messages import PROTOCOL
from libweft.peer.errors import UsageError
from libweft.peer.machine import MS, SECOND

HOUR = 3_600 * SECOND
OTHERS = ("/weft/", "/floodsub/", "/meshsub/", "/ipfs/id/", "/ipfs/ping/")
TOLD = 64  # peers in an answer, k or providers


@dataclass(frozen=True)
class KademliaConfig:
    """Times in microseconds."""

    k: int = 20  # contacts of a bucket, and holders of a record; the paper's, and libp2p's
    alpha: int = 10  # asked at a time in a lookup; libp2p's; the paper's is 3
    paths: int = 1  # disjoint ways of a lookup; S/Kademlia's; more of them make a lookup dearer and harder to mislead
    spares: int = 8  # contacts that wait for room in a bucket; a guess: a bucket's worth is rarely lost at once
    patience: int = 5 * SECOND  # until one that does not answer has failed; a guess: libp2p's 10 s are for a world-wide network
    slow: int = SECOND  # when one that does not answer is not waited for; a guess: after it the next is asked too
    near_every: int = 10 * SECOND  # between two looks who is nearest; a guess: a gap among the nearest is closed within a minute
    near_asks: int = 3  # asked each time; a guess
    few: int = 5  # a guess: a bucket with fewer is filled by a lookup
    refresh_every: int = 600 * SECOND  # between two lookups in a quiet bucket; libp2p's
    republish_every: int = 600 * SECOND  # between two stores of a record; a guess: libp2p's 22 h are for nodes that stay for days
    value_ttl: int = 48 * HOUR  # how long a value is kept; libp2p's, of providers
    provider_ttl: int = 48 * HOUR  # how long a provider is; libp2p's
    quorum: int = 5  # a guess: as many equal values end a search before its time
    first_retry: int = SECOND  # until a contact is dialled again; a guess, as in `libweft.overlays.static`
    last_retry: int = 60 * SECOND  # the most that this grows to; a guess, as in `libweft.overlays.static`
    server: bool = True  # answer others; a client asks, and is in nobody's table
    protocol: str = PROTOCOL  # the protocol id; networks apart have names apart

    def __post_init__(self) -> None:
        least = {"k": 1, "alpha": 1, "paths": 1, "quorum": 1, "spares": 0, "few": 0, "near_asks": 0}
        for name in KademliaConfig.__dataclass_fields__:
            value = getattr(self, name)
            if isinstance(value, int) and not isinstance(value, bool) and value < least.get(name, MS):
                unit = " microseconds" if name not in least else ""
                raise UsageError(f"kademlia: {name} is {value}; it must be at least {least.get(name, MS)}{unit}")
        if self.last_retry < self.first_retry:
            raise UsageError(f"kademlia: last_retry is {self.last_retry}; it must be at least first_retry, {self.first_retry}")
        if self.k > TOLD:
            raise UsageError(f"kademlia: k is {self.k}; it must be at most {TOLD}")
        if re.fullmatch("/[!-~]{1,128}", self.protocol) is None or self.protocol.startswith(OTHERS):
            wanted = f"/ and 1 to 128 letters without a space, and not begin with {', '.join(OTHERS)}, which are other protocols"
            raise UsageError(f"kademlia: protocol is {self.protocol!r}; it must be {wanted}")


@dataclass(frozen=True)
class NeighborsConfig(KademliaConfig):
    links: int = 5  # neighbours that a node holds links to

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.links < 1:
            raise UsageError(f"kademlia: links is {self.links}; it must be at least 1")


DEFAULTS = KademliaConfig()
