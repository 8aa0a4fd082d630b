"""A lookup in a network of the PyPI package `kademlia`: the walk to the nodes nearest to a key, or to a value on the way.

P. Maymounkov, D. Mazières: "Kademlia: a peer-to-peer information system based on the XOR metric", IPTPS 2002, section 2.3.
`alpha` requests are under way until the k nearest that are known have answered; who does not answer is left out. Once a value
has come, those under way are waited for, and nobody else is asked. What an address answers does not depend on the id that it
was told under, so each is asked once: a liar who tells many ids for one address sends it one request.
Bounds: ASKS requests, against nodes that make up ever nearer ones; WIDE times k candidates.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from libweft.overlays.kademlia_udp.wire import Contact, Value, find_node, find_value, read_nodes, read_value
from libweft.peer.datagram import Address

if TYPE_CHECKING:
    from libweft.overlays.kademlia_udp.machine import KademliaUdp

ASKS = 160  # eight times k, as many as a lookup among millions needs
WIDE = 3


class Lookup:
    def __init__(self, machine: KademliaUdp, key: bytes, wants_value: bool, done: Callable[[Lookup], None]) -> None:
        self.machine = machine
        self.key = key
        self.number = int.from_bytes(key, "big")
        self.wants_value = wants_value
        self.content = (find_value if wants_value else find_node)(machine.id, key)
        self.done = done
        self.near: list[tuple[int, Contact]] = []  # candidates that have not failed, nearest first
        self.known: dict[Contact, None] = {}
        self.asked: dict[Address, bool | None] = {}  # whether it has answered; None as long as it may
        self.under_way = 0
        self.values: list[Value] = []
        self.without: Contact | None = None  # the nearest that answered, and had no value
        self._learn(machine.table.nearest(key, machine.config.k))

    def nearest(self) -> list[Contact]:
        """The k nearest that answered, one an address."""
        found: dict[Address, Contact] = {}
        for _, node in self.near:
            if self.asked.get(node.address):
                found.setdefault(node.address, node)
        return list(found.values())[: self.machine.config.k]

    def go(self) -> None:
        while self.under_way < self.machine.config.alpha and (node := self._next()) is not None:
            self._ask(node)
        if not self.under_way:
            self.done(self)

    def _next(self) -> Contact | None:
        if self.values or len(self.asked) >= ASKS:
            return None
        return next((node for _, node in self.near[: self.machine.config.k] if node.address not in self.asked), None)

    def _ask(self, node: Contact) -> None:
        machine = self.machine
        self.asked[node.address] = None
        self.under_way += 1
        read = read_value if self.wants_value else read_nodes
        machine.ask(
            node.address,
            self.content,
            lambda reply: read(reply, machine.config.k, node.address, machine.env.counts),
            partial(self._answered, node),
        )

    def _answered(self, node: Contact, answer: Value | list[Contact] | None) -> None:
        self.under_way -= 1
        self.asked[node.address] = answer is not None
        if answer is None:
            self.near = [entry for entry in self.near if entry[1].address != node.address]
        else:
            self._take(node, answer)
            self.machine.heard(node.id, node.address)
        self.go()

    def _take(self, node: Contact, answer: Value | list[Contact]) -> None:
        if not isinstance(answer, list):
            self.values.append(answer)
            return
        if self.without is None or node.number ^ self.number < self.without.number ^ self.number:
            self.without = node
        self._learn(answer)

    def _learn(self, found: Iterable[Contact]) -> None:
        for node in found:
            failed = self.asked.get(node.address) is False
            if node.id != self.machine.id and node not in self.known and not failed:
                self.known[node] = None
                insort(self.near, (node.number ^ self.number, node))
        del self.near[WIDE * self.machine.config.k :]
