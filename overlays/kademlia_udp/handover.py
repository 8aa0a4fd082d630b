"""Values for a newcomer: those that it is near to and this node nearest to (IPTPS 2002, section 2.5).

This node is nearest to a key if no contact is nearer, and a contact is nearer if the key differs from this node's id in the
highest bit in which the contact does. So one mask, of the buckets that have contacts, sorts the keys out; and of the contacts
only the newcomer's own bucket is looked at one by one, for those of the others are all nearer or all farther than it.
Bounds: HANDOVERS newcomers at a time, others get none: what they lack they get when it is stored again; HANDED values are looked
at for one, those nearest to this node.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from libweft.overlays.kademlia_udp.wire import Contact, read_stored, store
from libweft.peer.datagram import Address

if TYPE_CHECKING:
    from libweft.overlays.kademlia_udp.machine import KademliaUdp

HANDOVERS = 16
HANDED = 1_000  # a guess: a tenth of all that is kept


class Handovers:
    """`under_way`: to how many newcomers."""

    def __init__(self, machine: KademliaUdp) -> None:
        self._machine = machine
        self.under_way = 0

    def begin(self, new: Contact) -> None:
        """It is not in the table yet."""
        if self.under_way < HANDOVERS and (keys := self.due(new)):
            self.under_way += 1
            self._next(new.address, keys, True)

    def due(self, new: Contact) -> list[bytes]:
        """The keys, those nearest to this node last."""
        machine = self._machine
        buckets = {index: bucket.contacts for index, bucket in machine.table.buckets.items() if bucket.contacts}
        mask = sum(1 << index for index in buckets)
        index = (new.number ^ machine.number).bit_length() - 1
        deeper = sum(len(contacts) for other, contacts in buckets.items() if other < index)
        beside = [node.number for node in buckets.get(index, {}).values()]
        own = (place for place in machine.values.by_distance if not place[0] & mask)
        due = []
        for distance, key in islice(own, HANDED):
            number = distance ^ machine.number
            nearer = 0 if distance >> index & 1 else deeper  # else the newcomer is nearer than this node itself
            if nearer + sum(other ^ number < new.number ^ number for other in beside) < machine.config.k:
                due.append(key)
        return due[::-1]

    def _next(self, address: Address, keys: list[bytes], taken: bool | None) -> None:
        """One after the other, until all are handed over or one is not answered."""
        machine = self._machine
        while keys and taken is not None:
            key = keys.pop()
            if (value := machine.values.get(key, machine.env.now())) is not None:
                machine.ask(address, store(machine.id, key, value), read_stored, partial(self._next, address, keys))
                return
        self.under_way -= 1
