"""Which peers share an address: the keys under which a peer is counted, and how many are counted under each.

An IPv4 address is one key. An IPv6 address is two, itself and its /64, since whoever has one has all of the /64. Loopback
addresses, and those of networks that are free, count for nothing; neither does what is no address at all.
Bounds: two keys a peer, forgotten with the last peer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from libweft.peer.machine import Peer

SHARED = 64  # bits of an IPv6 address that a network is given at the least


class Colocation:
    __slots__ = ("_counts", "_free", "_keys")

    def __init__(self, free: Iterable[str] = ()) -> None:
        self._free = tuple(ip_network(text, strict=False) for text in free)
        self._keys: dict[Peer, tuple[str, ...]] = {}
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, peer: Peer, ip: str | None) -> None:
        """From now on it is counted here, and nowhere else."""
        self.remove(peer)
        keys = address_keys(ip, self._free)
        if keys:
            self._keys[peer] = keys
        for key in keys:
            self._counts[key] = self._counts.get(key, 0) + 1

    def remove(self, peer: Peer) -> None:
        for key in self._keys.pop(peer, ()):
            left = self._counts[key] - 1
            if left:
                self._counts[key] = left
            else:
                del self._counts[key]

    def surplus(self, peer: Peer, threshold: int) -> int:
        """P6: the squares of how many peers there are beyond the threshold, over the peer's keys."""
        total = 0
        for key in self._keys.get(peer, ()):
            over = self._counts[key] - threshold
            if over > 0:
                total += over * over
        return total


def address_keys(ip: str | None, free: Sequence[IPv4Network | IPv6Network] = ()) -> tuple[str, ...]:
    if not ip:
        return ()
    try:
        address = ip_address(ip)
    except ValueError:
        return ()
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback or any(address in network for network in free):
        return ()
    if isinstance(address, IPv6Address):
        return str(address), str(IPv6Network((int(address), SHARED), strict=False))
    return (str(address),)
