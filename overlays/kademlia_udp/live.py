"""A live node of a network of the PyPI package `kademlia`, for applications.

    async with KademliaNode.open(port=5678, bootstrap=[("dht.example.org", 5678)]) as node:
        await node.set("colour", "blue")
        assert await node.get("colour") == "blue"

The machine is `libweft.overlays.kademlia_udp.machine`, its socket `libweft.peer.live.datagram`. A call that is cancelled goes on
unheard.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

from libweft.overlays.kademlia_udp.config import DEFAULTS, KademliaUdpConfig
from libweft.overlays.kademlia_udp.machine import KademliaUdp
from libweft.overlays.kademlia_udp.wire import Value
from libweft.peer.datagram import Address, NoAnswer
from libweft.peer.errors import UsageError
from libweft.peer.live.datagram import Datagrams, open_datagram, resolve

DEADLINE = 60.0
"""Seconds; a lookup whose every request is lost twice takes about as long."""


class KademliaNode:
    """Made by `open`. `counts` says what was dropped: `garbage` above all."""

    def __init__(self, endpoint: Datagrams[KademliaUdp], deadline: float) -> None:
        self.machine = endpoint.machine
        self.address: Address = endpoint.me
        self.counts: Mapping[str, int] = endpoint.counts
        self._call = partial(endpoint.call, within=deadline)

    @staticmethod
    @asynccontextmanager
    async def open(
        *,
        host: str = "0.0.0.0",
        port: int = 0,
        bootstrap: Sequence[Address] = (),
        deadline: float = DEADLINE,
        config: KademliaUdpConfig = DEFAULTS,
    ) -> AsyncIterator[KademliaNode]:
        """Joins the network of the bootstrap nodes, NoAnswer if none of them answers; without any, others may join this one."""
        _check(host, bootstrap, deadline, config)
        contacts = await resolve(bootstrap, like=host)
        async with open_datagram(lambda env: KademliaUdp(env, contacts, config), host=host, port=port) as endpoint:
            node = KademliaNode(endpoint, deadline)
            if contacts and not await endpoint.call(node.machine.join, deadline):
                places = ", ".join(f"{where}:{number}" for where, number in bootstrap)
                raise NoAnswer(f"nobody answered at {places}; is a node running there, and does UDP get through?")
            yield node

    async def set(self, key: str | bytes, value: Value) -> int:
        """How many other nodes took it, NoAnswer if none did; UsageError for a value that the network does not take."""
        taken: int = await self._call(partial(self.machine.set, key, value))
        if not taken:
            raise NoAnswer(f"no node took the value: {len(self.machine.table)} are known; has the network lost this one?")
        return taken

    async def get(self, key: str | bytes) -> Value | None:
        """None where no node has it."""
        value: Value | None = await self._call(partial(self.machine.get, key))
        return value

    async def stun(self, address: Address) -> Address:
        """How the node there sees this one's address: behind a NAT that is another one than its own."""
        [place] = await resolve([address], like=self.address[0])
        seen: Address | None = await self._call(partial(self.machine.stun, place))
        if seen is None:
            raise NoAnswer(f"nobody answered at {address[0]}:{address[1]}")
        return seen


def _check(host: object, bootstrap: object, deadline: object, config: object) -> None:
    """The places of a bootstrap and the port are checked where they are used."""
    if not isinstance(host, str):
        raise UsageError(f"host is {host!r:.80}; it must be an IP address as a text, such as 0.0.0.0")
    if not isinstance(bootstrap, Sequence) or isinstance(bootstrap, str | bytes):
        raise UsageError(f"bootstrap is {bootstrap!r:.80}; it must be a list of places, such as [('192.0.2.1', 5678)]")
    if not isinstance(deadline, int | float) or isinstance(deadline, bool) or not deadline > 0:
        raise UsageError(f"deadline is {deadline!r:.80}; it must be seconds, above 0")
    if not isinstance(config, KademliaUdpConfig):
        raise UsageError(f"config is {config!r:.80}; it must be a KademliaUdpConfig")
