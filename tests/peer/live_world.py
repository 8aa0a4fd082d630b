"""Stacks on real hosts and loopback sockets, in one process: what `libweft.peer.live.driver` promises, next to the other worlds.

Time is trio's mock clock, which jumps when nothing has happened for JUMP_S of real time: both ends of every socket are in
this process, so by then whatever was sent has arrived. Peers are numbered, and every host knows all addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import trio

from libweft.peer.libp2p.address import Address
from libweft.peer.libp2p.ids import Identity
from libweft.peer.live.driver import Driver
from libweft.peer.live.host import Host, HostConfig
from libweft.peer.live.transport import Listener
from libweft.peer.machine import SECOND, Build, Machine, Peer
from libweft.peer.trace.tracer import Tracer

JUMP_S = 0.01
ANYWHERE = Address.parse("/ip4/127.0.0.1/tcp/0")


@cache
def identity(number: int) -> Identity:
    return Identity.from_seed(number.to_bytes(32))


class LiveWorld:
    """`add` and `crash` as in the simulator; `close` at the end."""

    def __init__(self, nursery: trio.Nursery, config: HostConfig | None = None) -> None:
        self.drivers: dict[Peer, Driver] = {}
        self._nursery = nursery
        self._config = config or HostConfig()

    def peer(self, number: int) -> bytes:
        return identity(number).peer

    def add(self, build: Build, tracer: Tracer | None = None) -> bytes:
        host = Host(identity(len(self.drivers)), self._config, self._nursery)
        host.start([Listener(ANYWHERE)])
        driver = Driver(host, self._nursery, tracer, None)
        for other in self.drivers.values():
            other.host.learn(host.peer, host.addresses)
            host.learn(other.host.peer, other.host.addresses)
        self.drivers[host.peer] = driver
        driver.start(build(driver.env))
        return host.peer

    def machines(self, peer: Peer) -> Sequence[Machine]:
        return self.drivers[peer].machines

    def crash(self, peer: Peer) -> None:
        """Its sockets close, and none of its machines is called any more."""
        driver = self.drivers[peer]
        driver.stopped = True
        driver.host.halt("crash")

    async def run(self, us: int) -> None:
        await trio.sleep(us / SECOND)

    def close(self) -> None:
        for driver in self.drivers.values():
            driver.host.halt("over")
            assert driver.crash is None
