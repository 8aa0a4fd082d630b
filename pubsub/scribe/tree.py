"""The tree of one topic as one node sees it, and the messages that are kept for those who come again.

`last` is the number up to which messages were taken from the parent, in this reign; `passed` that up to which they were handed
on, which is behind where verdicts take time. What is judged later than its successor holds that back, so the order stays.
Bounds: CHILDREN of all topics; `keep` messages of a topic, and `room` bytes of all; of what waits for a verdict the router's.
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from libweft.peer.machine import MessageId, Peer
from libweft.pubsub.message import Publication, weight
from libweft.pubsub.scribe.messages import Down, Skip

CHILDREN = 1 << 16
TOPICS = 4_096

Handed: TypeAlias = Down | Skip


class Child:
    """Where it was when it came, and until when it is one; `waits` until this node has a way to the root itself."""

    __slots__ = ("number", "reign", "served", "until", "waits")

    def __init__(self) -> None:
        self.reign: MessageId | None = None
        self.number = 0
        self.until = 0
        self.served = -1  # when it was told where to go on from
        self.waits = True


class Item:
    """A message that has its turn in a tree; `accepted` is None until it is judged.

    `handed` is how it came from the parent. At the root it has no number before it is judged; `source` is to be told then, by its
    number there.
    """

    __slots__ = ("accepted", "deliver", "handed", "hops", "publication", "source", "tree")

    def __init__(self, tree: Tree, publication: Publication, hops: int, handed: Handed | None = None) -> None:
        self.tree = tree
        self.publication = publication
        self.hops = hops
        self.handed = handed
        self.accepted: bool | None = None
        self.deliver = False
        self.source: tuple[int, int] | None = None  # its life, and its number of this message


class Tree:
    """`parent` is None at the root, and where no way is known yet, when `is_root` is false."""

    __slots__ = (
        "asked", "attached", "beat", "bequest", "children", "handing", "heard", "in_force", "is_root", "last", "opener", "order",
        "parent", "passed", "queue", "refreshed", "reign", "root", "since", "topic", "wanted",
    )  # fmt: skip

    def __init__(self, topic: str, now: int, opener: Peer | None = None) -> None:
        self.topic = topic
        self.opener = opener  # who had this node begin it, if not its own interest
        self.parent: Peer | None = None
        self.root: Peer | None = None  # to whom a link is held too
        self.is_root = False
        self.attached = False
        self.in_force = False
        self.reign: MessageId | None = None
        self.wanted: tuple[MessageId | None, int] = (None, 0)  # where a child says that it stands, while nothing is known here
        self.last = 0
        self.passed = 0
        self.children: dict[Peer, Child] = {}
        self.order: tuple[Peer, ...] = ()
        self.queue: deque[Item] = deque()
        self.handing = False  # on what is in it
        self.bequest: list[Down] = []  # of this node's own reigns, which are over
        self.since = now
        self.heard = now  # of the parent
        self.asked = now
        self.refreshed = now
        self.beat = now

    def begin(self, reign: MessageId, number: int) -> None:
        self.reign, self.last, self.passed = reign, number, number

    def advance_children(self) -> None:
        """Before another reign begins: they have what they were sent, or have asked."""
        for child in self.children.values():
            if child.reign == self.reign and not child.waits:
                child.number = max(child.number, self.passed)


class Kept:
    """The last messages of each topic as they came, in the order of their handing on.

    All children of a parent have the same one from it, so that what is kept costs little where they share their memory. Where
    bytes are short the quietest topic gives first.
    """

    def __init__(self, keep: int, room: int) -> None:
        self.topics: dict[str, deque[Handed]] = {}  # the one with the latest message last
        self.bytes = 0
        self._keep = keep
        self._room = room

    def add(self, handed: Handed) -> None:
        topic = handed.topic
        several = self.topics.pop(topic, None) or deque()
        self.topics[topic] = several
        several.append(handed)
        self.bytes += _size(handed)
        if len(several) > self._keep:
            self.bytes -= _size(several.popleft())
        if self.bytes > self._room:
            self._shrink()

    def _shrink(self) -> None:
        while self.bytes > self._room:
            quietest = next(iter(self.topics))
            self.bytes -= _size(self.topics[quietest].popleft())
            if not self.topics[quietest]:
                del self.topics[quietest]

    def of(self, topic: str, reign: MessageId, above: int) -> list[Handed]:
        return [handed for handed in self.topics.get(topic, ()) if handed.reign == reign and handed.number > above]

    def forget(self, topic: str) -> None:
        self.bytes -= sum(map(_size, self.topics.pop(topic, ())))


def _size(handed: Handed) -> int:
    return weight(handed) if isinstance(handed, Down) else 64
