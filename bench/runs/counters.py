"""Counters: the figures of a run, counted as its rows are emitted, by the definitions that hold in every report.

An `Observer` of `libweft.peer.trace`. Rows come in order of time; two rows are compared by time only, never by their order, so
that a query over the stored rows must come to the same figures. What the definitions leave open is settled so:
- A node is joined to a topic from t1 to t2 when it has a `joined` row at j <= t1 and no `leave` of that topic and no
  `node_down` in j..t2, both ends included. expected(m) is who was joined from the publish to the end of its window,
  the publisher left out; a delivery at the very end of the window is within it.
- A node that forgot a message in a restart, and receives or delivers it again, counts once, by its first row.
- A reception is by a subscriber when the node is joined at that time; the others are the false positives. Latency to
  receive is over receptions by subscribers. The publisher's own receptions count nowhere.
- Rows of a message before its `publish`, and of one never published here, are left out, but for bytes and control.

Below it asks for: rows in order of time, and a run that goes on for a window after its last publish.
Bounds: who received and delivered a message is one byte a node until its window ends, then packed (a late row unpacks
it); a few numbers a message; eight bytes a delivery and a reception for exact percentiles.
"""

from __future__ import annotations

import math
import zlib
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from libweft.peer.machine import Lane, MessageId, Peer
from libweft.peer.trace.kinds import DELIVER, DROP, JOINED, LEAVE, NODE_DOWN, PUBLISH, RECEIVE, SEND

NEVER = 1 << 62
PERCENTILES = (50, 90, 99)
BUCKETS = 16  # bits of a value told apart in one pass of `percentile`
RECEIVED, DELIVERED = 1, 2


class Counters:
    """`observe` each row, `finish` at the end of the run, then read `figures`."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.control_messages = 0
        self.bytes = 0
        self._published: dict[MessageId, _Published] = {}
        self._members = _Members()
        self._open: deque[_Published] = deque()
        self._fresh: list[tuple[int, _Published, int]] = []  # receptions at one time, judged when it has passed
        self._due = NEVER
        self._index: dict[Peer, int] = {}
        self._receptions = self._strangers = 0
        self._latencies = array("q")
        self._reception_latencies = array("q")
        self._handlers: dict[str, Callable[..., None]] = {
            PUBLISH: self._publish,
            SEND: self._send,
            DROP: self._drop,
            RECEIVE: self._receive,
            DELIVER: self._deliver,
            JOINED: self._joined,
            LEAVE: self._leave,
            NODE_DOWN: self._node_down,
        }

    def observe(
        self,
        t: int,
        node: Peer,
        kind: str,
        topic: str | None,
        msg: MessageId | None,
        peer: Peer | None,
        hops: int | None,
        copies: int | None,
        size: int | None,
        lane: Lane | None,
        reason: str | None,
        dependencies: tuple[MessageId, ...],
    ) -> None:
        if t > self._due:
            self._pass(t)
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(t, node, topic, msg, hops, 1 if copies is None else copies, size, lane)

    def finish(self, now: int) -> None:
        """The run went on until `now` and no row follows; every message is judged, also one whose window was cut short."""
        last = self._open[-1].deadline if self._open else now
        self._pass(max(now, last) + 1)

    def figures(self) -> dict[str, Any]:
        """All figures by name; None where there is nothing to take a mean of."""
        all_ = list(self._published.values())
        shares = [m.delivered_in_time / m.expected for m in all_ if m.expected]
        last_hops = [m.last_hop for m in all_ if m.last_hop is not None]
        return {
            "messages": len(all_),
            "deliveries": len(self._latencies),
            "reliability": _mean(shares),
            "reliability_min": min(shares, default=None),
            "rmr": _mean([m.copies / m.receptions - 1 for m in all_ if m.receptions]),
            "payload_per_delivery": _mean([m.copies / m.deliveries for m in all_ if m.deliveries]),
            "false_positives": self._strangers / self._receptions if self._receptions else None,
            "ldh_mean": _mean(last_hops),
            "ldh_max": max(last_hops, default=None),
            "latency_ms": _spread(self._latencies),
            "reception_ms": _spread(self._reception_latencies),
            "last_ms": _mean([m.last / 1_000 for m in all_ if m.deliveries]),
            "control_messages": self.control_messages,
            "bytes": self.bytes,
        }

    def _pass(self, t: int) -> None:
        """All rows before `t` are known: judge what waited for that."""
        for now, message, index in self._fresh:
            self._receptions += 1
            if self._members.joined(message.topic, index):
                self._reception_latencies.append(now - message.t)
            else:
                self._strangers += 1
        self._fresh.clear()
        while self._open and self._open[0].deadline < t:
            message = self._open.popleft()
            message.judge(self._members.of(message.topic))
        self._due = self._open[0].deadline if self._open else NEVER

    def _publish(self, t: int, node: Peer, topic: str | None, msg: MessageId, *_: object) -> None:
        if msg not in self._published:
            message = self._published[msg] = _Published(self._number(node), topic, t, t + self.window)
            self._open.append(message)
            self._due = min(self._due, message.deadline)

    def _send(
        self,
        t: int,
        node: Peer,
        topic: str | None,
        msg: MessageId,
        hops: int | None,
        copies: int,
        size: int | None,
        lane: Lane | None,
    ) -> None:
        self.bytes += copies * (size or 0)
        if lane is not Lane.PAYLOAD:
            self.control_messages += copies
        elif (message := self._published.get(msg)) is not None:
            message.copies += copies

    def _drop(
        self,
        t: int,
        node: Peer,
        topic: str | None,
        msg: MessageId,
        hops: int | None,
        copies: int,
        size: int | None,
        lane: Lane | None,
    ) -> None:
        if lane is Lane.PAYLOAD and (message := self._published.get(msg)) is not None:
            message.copies -= copies

    def _receive(self, t: int, node: Peer, topic: str | None, msg: MessageId, *_: object) -> None:
        message = self._published.get(msg)
        index = self._number(node)
        if message is not None and index != message.publisher and message.mark(index, RECEIVED):
            message.receptions += 1
            self._fresh.append((t, message, index))
            self._due = t

    def _deliver(self, t: int, node: Peer, topic: str | None, msg: MessageId, hops: int | None, *_: object) -> None:
        message = self._published.get(msg)
        index = self._number(node)
        if message is not None and index != message.publisher and message.mark(index, DELIVERED):
            latency = t - message.t
            self._latencies.append(latency)
            message.deliveries += 1
            message.last = latency
            if hops is not None and (message.last_hop is None or hops > message.last_hop):
                message.last_hop = hops

    def _joined(self, t: int, node: Peer, topic: str | None, *_: object) -> None:
        self._members.start(t, topic, self._number(node))

    def _leave(self, t: int, node: Peer, topic: str | None, *_: object) -> None:
        self._members.end(t, topic, self._number(node))

    def _node_down(self, t: int, node: Peer, *_: object) -> None:
        self._members.end_all(t, self._number(node))

    def _number(self, node: Peer) -> int:
        """Nodes are counted as they appear, so that tables have no holes whatever a peer's id is."""
        return self._index.setdefault(node, len(self._index))


class _Published:
    """What is known of one message; `seen` has a byte a node while its window is open."""

    __slots__ = (
        *("publisher", "topic", "t", "deadline", "copies", "receptions", "deliveries", "expected", "delivered_in_time"),
        *("last_hop", "last", "seen", "packed"),
    )

    def __init__(self, publisher: int, topic: str | None, t: int, deadline: int) -> None:
        self.publisher = publisher
        self.topic = topic
        self.t = t
        self.deadline = deadline
        self.copies = self.receptions = self.deliveries = self.expected = self.delivered_in_time = 0
        self.last = 0
        self.last_hop: int | None = None
        self.seen = bytearray()
        self.packed: bytes | None = None

    def mark(self, index: int, what: int) -> bool:
        """Whether this is the first time."""
        if self.packed is not None:
            return self._mark_late(self.packed, index, what)
        seen = self.seen
        if index >= len(seen):
            seen.extend(bytes(index + 1 - len(seen)))
        if seen[index] & what:
            return False
        seen[index] |= what
        return True

    def judge(self, members: dict[int, int]) -> None:
        """The window has passed: whoever is still a member since the publish was expected."""
        seen, t = self.seen, self.t
        expected = [index for index, since in members.items() if since <= t and index != self.publisher]
        self.expected = len(expected)
        self.delivered_in_time = sum(1 for index in expected if index < len(seen) and seen[index] & DELIVERED)
        self._pack()

    def _mark_late(self, packed: bytes, index: int, what: int) -> bool:
        self.seen, self.packed = bytearray(zlib.decompress(packed)), None
        first = self.mark(index, what)
        self._pack()
        return first

    def _pack(self) -> None:
        self.packed = zlib.compress(self.seen, 1)
        self.seen = bytearray()


class _Members:
    """Who is joined to what, and since when. An end voids every `joined` row of its own time, before it and after it."""

    def __init__(self) -> None:
        self._topics: dict[str | None, dict[int, int]] = {}
        self._of_node: dict[int, dict[str | None, None]] = {}
        self._now = -NEVER
        self._ended: set[tuple[str | None, int]] = set()
        self._downed: set[int] = set()

    def of(self, topic: str | None) -> dict[int, int]:
        return self._topics.get(topic, {})

    def joined(self, topic: str | None, index: int) -> bool:
        return index in self._topics.get(topic, ())

    def start(self, t: int, topic: str | None, index: int) -> None:
        self._at(t)
        if index not in self._downed and (topic, index) not in self._ended:
            self._topics.setdefault(topic, {}).setdefault(index, t)
            self._of_node.setdefault(index, {})[topic] = None

    def end(self, t: int, topic: str | None, index: int) -> None:
        self._at(t)
        self._ended.add((topic, index))
        self._topics.get(topic, {}).pop(index, None)
        self._of_node.get(index, {}).pop(topic, None)

    def end_all(self, t: int, index: int) -> None:
        self._at(t)
        self._downed.add(index)
        for topic in self._of_node.pop(index, {}):
            del self._topics[topic][index]

    def _at(self, t: int) -> None:
        if t != self._now:
            self._now = t
            self._ended.clear()
            self._downed.clear()


def percentile(values: array[int], percent: int) -> int:
    """The smallest value with at least that share at or below it; no copy of the values is made."""
    return _ranked(values, max(1, -(-percent * len(values) // 100)))  # whole numbers: 0.07 * 100 is more than 7


def _ranked(values: array[int], rank: int) -> int:
    """The value at that place, from 1, if they were sorted: each pass counts by buckets and goes on inside one."""
    low, high = min(values), max(values)
    while low < high:
        shift = max(0, (high - low).bit_length() - BUCKETS)
        counts = _histogram(values, low, high, shift)
        bucket = 0
        while rank > counts[bucket]:
            rank -= counts[bucket]
            bucket += 1
        low += bucket << shift
        high = min(high, low + (1 << shift) - 1)
    return low


def _histogram(values: array[int], low: int, high: int, shift: int) -> list[int]:
    counts = [0] * (((high - low) >> shift) + 1)
    for value in values:
        if low <= value <= high:
            counts[(value - low) >> shift] += 1
    return counts


def _spread(values: array[int]) -> dict[str, float | None]:
    """Microseconds in, milliseconds out."""
    if not values:
        return dict.fromkeys(("mean", "p50", "p90", "p99", "max"))
    found = {f"p{share}": percentile(values, share) for share in PERCENTILES} | {"max": max(values)}
    return {"mean": sum(values) / len(values) / 1_000, **{name: value / 1_000 for name, value in found.items()}}


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
