"""Datagrams in the simulator: machines of `libweft.peer.datagram` in the virtual time of a simulator.

Calendar, latency model and named streams of chance are the simulator's; links are not asked for. A copy may be lost, or come a
second time, and copies overtake each other as their draws will have it. Addresses are 10.0.0.0 on, in order of `add`.
Copies handed over and timers fired are events, as the simulator counts them.
Bounds: none of its own; what a machine has under way is bounded by its Endpoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Any, Generic

from libweft.peer.datagram import Address, DatagramEnv, Endpoint, Machine
from libweft.peer.errors import UsageError
from libweft.peer.fake.env import FakeTimer
from libweft.peer.sim.simulator import Simulator

FIRST = int(IPv4Address("10.0.0.0"))
PORT = 5_678


class SimDatagrams(Generic[Machine]):
    """The network. `counts`: sent, lost, duplicated, and nowhere, for those to an address where nobody is."""

    def __init__(self, sim: Simulator, *, loss: float = 0.0, duplicate: float = 0.0) -> None:
        if not (0 <= loss <= 1 and 0 <= duplicate <= 1):
            raise UsageError(f"loss is {loss}, duplicate is {duplicate}; both are shares from 0 to 1")
        self.sim = sim
        self.loss = loss
        self.duplicate = duplicate
        self.nodes: dict[Address, SimEndpoint[Machine]] = {}
        self.counts: Counter[str] = Counter()
        self._dice = sim.stream("datagram")
        self._draws = sim.latency.stream(sim.stream("datagram:latency"))
        self._added = 0

    def add(self, build: Callable[[DatagramEnv], Machine]) -> SimEndpoint[Machine]:
        """Build a machine and start it."""
        node: SimEndpoint[Machine] = SimEndpoint(self, self._added)
        self._added += 1
        node.machine = build(node)
        self.nodes[node.me] = node
        node.machine.start()
        return node

    def crash(self, address: Address) -> None:
        """Without a word; a node that stops in order calls `close` and is no more reached either."""
        self.nodes.pop(address).up = False

    def carry(self, source: SimEndpoint[Machine], address: Address, data: bytes) -> None:
        self.counts["sent"] += 1
        copies = 1
        if self.duplicate and self._dice.random() < self.duplicate:
            self.counts["duplicated"] += 1
            copies = 2
        for _ in range(copies):
            if self.loss and self._dice.random() < self.loss:
                self.counts["lost"] += 1
            else:
                self.sim.at(self.sim.now + self._delay(source, address), self._arrive, source.me, address, data)

    def _delay(self, source: SimEndpoint[Machine], address: Address) -> int:
        if self._draws is not None:
            return next(self._draws)
        target = self.nodes.get(address)
        return self.sim.latency.delay(source.number, target.number if target else 0)

    def _arrive(self, sender: Address, address: Address, data: bytes) -> None:
        if (node := self.nodes.get(address)) is None:
            self.counts["nowhere"] += 1
        else:
            self.sim.events += 1
            node.take(sender, data)


class SimEndpoint(Endpoint[Machine]):
    """One machine; a crash ends it without a call."""

    def __init__(self, network: SimDatagrams[Machine], number: int) -> None:
        super().__init__((str(IPv4Address(FIRST + number)), PORT), network.sim.stream(f"datagram:{number}"))
        self.network = network
        self.number = number
        self.up = True

    def now(self) -> int:
        return self.network.sim.now

    def after(self, delay: int, action: Callable[..., None], *args: Any) -> FakeTimer:
        timer = FakeTimer(self.now() + delay, action, args)
        self.network.sim.at(timer.due, self._fire, timer)
        return timer

    def send(self, address: Address, data: bytes) -> None:
        if self.up:
            self.network.carry(self, address, data)

    def close(self) -> None:
        super().close()
        self.network.nodes.pop(self.me, None)

    def _fire(self, timer: FakeTimer) -> None:
        action = timer.action
        timer.cancel()
        if action is not None and self.up and not self.closed:
            self.network.sim.events += 1
            action(*timer.args)
