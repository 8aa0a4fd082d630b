"""Promises: the properties that a router keeps, and the kinds of faults that each of them withstands.

A node is correct as long as it stays up; a subscriber counts from the moment at which its subscription is in force. A stack keeps
a promise of its router only under faults that its overlay survives too: see `Stack.promises` in `libweft.pubsub.stacks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from libweft.overlays.fault_groups import HONEST


class Property(Enum):
    """A property of deliveries; its value is its name, and `meaning` says what it is."""

    INTEGRITY = "integrity"
    ONCE = "once"
    FIFO = "fifo"
    AGREEMENT = "agreement"
    REACH = "reach"

    @property
    def meaning(self) -> str:
        return MEANINGS[self]


MEANINGS = {
    Property.INTEGRITY: "a node delivers only messages that were published, and as their source published them",
    Property.ONCE: "a node delivers a message at most once between two of its starts",
    Property.FIFO: "a node delivers the messages of one source on one topic in the order in which they were published",
    Property.AGREEMENT: "if one correct subscriber delivers a message, every correct subscriber delivers it",
    Property.REACH: "every correct subscriber delivers each message of a correct publisher",
}


@dataclass(frozen=True)
class Promise:
    """One property, the kinds of faults under which it holds, and the time within which it does after the last fault healed.

    `within_s` counts from the publishing or the end of the last fault, whichever is later. It holds while no copy travels for
    longer than a second, because slower nodes are taken for crashed ones. `limit` says in a sentence where the promise ends.
    """

    property: Property
    withstands: frozenset[str]
    within_s: float = 0.0
    limit: str = ""


INTEGRITY = Promise(Property.INTEGRITY, HONEST, limit="Live, signatures extend it to changed bytes and to hostile peers.")
ONCE = Promise(
    Property.ONCE,
    HONEST,
    limit="It ends when the id of a message is forgotten: two minutes after it came, or when 32,768 newer ids have come.",
)
