"""The oracle: every figure that is not of a graph, by its definition read aloud, over all rows of one run at once.

Written from docs/architecture.md ("Traces" and "Figures") and from nothing else, so that an agreement with the
counters or with Spark says something. Every question is put to all rows; nothing is sorted to save time or kept for
later but the first rows of each message. Two rows are compared by time only. What that leaves open is settled so:
- of several `publish` rows of a message the earliest counts, and among those of one time that of the smallest node;
- the hops of a delivery are those of its first row; among rows of one time the smallest, and unknown is the largest.

It asks for rows as the trace holds them, in any order. Times are microseconds, but where a name ends in `_ms`.
Bounds: it takes the square of the rows and worse, so traces of a hundred rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from libweft.peer.trace.kinds import DELIVER, DROP, DUPLICATE, JOIN, JOINED, LEAVE, NODE_DOWN, PUBLISH, QUEUE, RECEIVE, SEND

PAYLOAD = "payload"
SHARES = (50, 90, 99)
RECOVERED = Fraction(99, 100)
NEVER = 1 << 62


class Row(NamedTuple):
    """One row of a trace, by the names of its columns."""

    t: int
    node: int
    kind: str
    topic: str | None = None
    msg: int | None = None
    peer: int | None = None
    hops: int | None = None
    copies: int | None = None
    bytes: int | None = None
    lane: str | None = None
    reason: str | None = None
    dependencies: tuple[int, ...] | None = None


class Origin(NamedTuple):
    """What the side table says of a message."""

    source: int
    epoch: int
    sequence: int


class Verdict(NamedTuple):
    """Of how many deliveries, or pairs, an order was asked, and how many broke it."""

    checked: int
    violated: int


Stream = tuple[str | None, int, int]
Numbers = Mapping[str, Any]


class Oracle:
    """Of one run. A message is its `publish` row; its first rows are those of others than its publisher, from then on."""

    def __init__(self, rows: Iterable[Row], origins: Mapping[int, Origin], window: int) -> None:
        self.rows = list(rows)
        self.origins = origins
        self.window = window
        self.messages = [self._first_publish(msg) for msg in sorted({r.msg for r in self._of(PUBLISH) if r.msg is not None})]
        self.deliveries = {p: self._firsts(DELIVER, p) for p in self.messages}
        self.receptions = {p: self._firsts(RECEIVE, p) for p in self.messages}

    def figures(self) -> dict[str, Any]:
        """Of the whole run: those over messages, and traffic, which knows no message."""
        found = self.means(self.messages)
        control, sent = self._traffic()
        return found | {
            "control_messages": control,
            "control_per_delivery": ratio(control, found["deliveries"]),
            "bytes": sent,
            "bytes_per_delivery": ratio(sent, found["deliveries"]),
        }

    def means(self, messages: Collection[Row]) -> dict[str, Any]:
        """The figures over some messages."""
        each = self.over_messages(messages)
        receptions, members = sum(len(self.receptions[p]) for p in messages), self.reception_latencies(messages)
        return {
            **{name: mean(values) for name, values in each.items()},
            "messages": len(messages),
            "deliveries": sum(len(self.deliveries[p]) for p in messages),
            "reliability_min": min(each["reliability"], default=None),
            "payload_messages": sum(self.copies(p) for p in messages),
            "false_positives": ratio(receptions - len(members), receptions),
            "ldh_max": max(each["ldh_mean"], default=None),
            "latency_ms": milliseconds(spread(self.latencies(messages))),
            "reception_ms": milliseconds(spread(members)),
        }

    def over_messages(self, messages: Collection[Row]) -> dict[str, list[Fraction]]:
        """What figures are means of: one value of each message that has one."""
        return {
            "reliability": [share for p in messages if (share := self.reliability(p)) is not None],
            "rmr": [Fraction(self.copies(p), n) - 1 for p in messages if (n := len(self.receptions[p]))],
            "payload_per_delivery": [Fraction(self.copies(p), n) for p in messages if (n := len(self.deliveries[p]))],
            "ldh_mean": [Fraction(hop) for p in messages if (hop := self.last_hop(p)) is not None],
            "last_ms": [Fraction(max(self.latencies([p])), 1_000) for p in messages if self.deliveries[p]],
        }

    def by_topic(self) -> dict[str | None, dict[str, Any]]:
        topics = {p.topic for p in self.messages}
        return {topic: self.means([p for p in self.messages if p.topic == topic]) for topic in topics}

    def over_time(self, width: int) -> dict[int, dict[str, Any]]:
        """By the window in which a message was published; the first begins with the first publish."""
        start = min((p.t for p in self.messages), default=0)
        place = {p: (p.t - start) // width for p in self.messages}
        return {bucket: self.means([p for p in self.messages if place[p] == bucket]) for bucket in set(place.values())}

    def by_hop(self) -> dict[int, dict[str, Any]]:
        """The latency of the deliveries at each number of hops; those of unknown hops are left out."""
        firsts = self._delivered()
        known = {r.hops for _, r in firsts if r.hops is not None}
        return {hops: counted_ms([r.t - p.t for p, r in firsts if r.hops == hops]) for hops in known}

    def load(self) -> dict[str, list[int]]:
        """Each sort of load of every node that has a row; one without that load has nought."""
        nodes = sorted({r.node for r in self.rows})
        return {
            "payload": [sum(sent(r) for r in self._by(n, SEND) if r.lane == PAYLOAD) for n in nodes],
            "control": [sum(sent(r) for r in self._by(n, SEND) if r.lane != PAYLOAD) for n in nodes],
            "bytes": [sum(sent(r) * (r.bytes or 0) for r in self._by(n, SEND)) for n in nodes],
            "receptions": [len(self._by(n, RECEIVE)) for n in nodes],
            "duplicates": [len(self._by(n, DUPLICATE)) for n in nodes],
            "deliveries": [len(self._by(n, DELIVER)) for n in nodes],
            "dropped": [sum(sent(r) for r in self._by(n, DROP)) for n in nodes],
        }

    def waiting(self) -> list[int]:
        """How many waited, of each row that says so."""
        return [r.copies for r in self._of(QUEUE) if r.copies is not None]

    def barriers(self) -> list[int]:
        """How many messages each message names as those to come before it."""
        return [len(p.dependencies or ()) for p in self.messages]

    def held_back(self) -> list[int]:
        """From the first copy to the delivery, of each message and node that has both, in this order."""
        pairs = [(self.receptions[p].get(n), r) for p in self.messages for n, r in self.deliveries[p].items()]
        return [r.t - before.t for before, r in pairs if before is not None and r.t >= before.t]

    def order(self) -> dict[str, Verdict]:
        return {"fifo": self._fifo(), "gapless": self._gapless(), "causal": self._causal()}

    def subscriptions(self) -> list[int]:
        """From `join` to the first `joined` that has no later `join` before it."""
        firsts: dict[tuple[int, str | None, int], int] = {}
        for r in self._of(JOINED):
            joins = [j.t for j in self._by(r.node, JOIN) if j.topic == r.topic and j.t <= r.t]
            if joins:
                key = (r.node, r.topic, max(joins))
                firsts[key] = min(r.t, firsts.get(key, NEVER))
        return [t - join for (_, _, join), t in firsts.items()]

    def recovery(self, faults: Collection[int]) -> dict[int, dict[str, Any]]:
        """For each fault, of the messages until the next: how many, the worst, and when the first of only whole ones came."""
        found = {}
        for fault in faults:
            following = min((f for f in faults if f > fault), default=NEVER)
            then = [(p.t, s) for p in self.messages if fault <= p.t < following and (s := self.reliability(p)) is not None]
            lowest = min((share for _, share in then), default=None)
            found[fault] = {"messages": len(then), "lowest": lowest, "recovered": _recovered(fault, then)}
        return found

    def reliability(self, p: Row) -> Fraction | None:
        end = p.t + self.window
        expected = [n for n in {r.node for r in self.rows} if n != p.node and self.joined(n, p.topic, p.t, end)]
        arrived = [n for n in expected if n in self.deliveries[p] and self.deliveries[p][n].t <= end]
        return Fraction(len(arrived), len(expected)) if expected else None

    def joined(self, node: int, topic: str | None, start: int, end: int) -> bool:
        """Whether one stay covers both ends. A stay begins with `joined` and is over at the first end, if only at once."""
        joins = [r.t for r in self._by(node, JOINED) if r.topic == topic]
        ends = [r.t for r in self._by(node, NODE_DOWN)] + [r.t for r in self._by(node, LEAVE) if r.topic == topic]
        stays = [(since, min((e for e in ends if e >= since), default=NEVER)) for since in joins]
        return any(since <= start and end < until for since, until in stays if since < until)

    def copies(self, p: Row) -> int:
        """Put on a link: sent without those dropped before they left."""
        rows = [r for r in self.rows if r.msg == p.msg and r.lane == PAYLOAD and r.t >= p.t]
        return sum(sent(r) for r in rows if r.kind == SEND) - sum(sent(r) for r in rows if r.kind == DROP)

    def last_hop(self, p: Row) -> int | None:
        return max((r.hops for r in self.deliveries[p].values() if r.hops is not None), default=None)

    def latencies(self, messages: Iterable[Row]) -> list[int]:
        return [r.t - p.t for p in messages for r in self.deliveries[p].values()]

    def reception_latencies(self, messages: Iterable[Row]) -> list[int]:
        """Those of subscribers."""
        firsts = [(p, r) for p in messages for r in self.receptions[p].values()]
        return [r.t - p.t for p, r in firsts if self.joined(r.node, p.topic, r.t, r.t)]

    def _of(self, kind: str) -> list[Row]:
        return [r for r in self.rows if r.kind == kind]

    def _by(self, node: int, kind: str) -> list[Row]:
        return [r for r in self.rows if r.node == node and r.kind == kind]

    def _first_publish(self, msg: int) -> Row:
        return min((r for r in self._of(PUBLISH) if r.msg == msg), key=lambda r: (r.t, r.node))

    def _firsts(self, kind: str, p: Row) -> dict[int, Row]:
        """The first row of each other node; a row before the publish is none."""
        rows = [r for r in self._of(kind) if r.msg == p.msg and r.node != p.node and r.t >= p.t]
        return {n: min((r for r in rows if r.node == n), key=_earliest) for n in {r.node for r in rows}}

    def _traffic(self) -> tuple[int, int]:
        """Control copies and bytes, of all send calls, whatever became of them."""
        sends = self._of(SEND)
        return sum(sent(r) for r in sends if r.lane != PAYLOAD), sum(sent(r) * (r.bytes or 0) for r in sends)

    def _delivered(self) -> list[tuple[Row, Row]]:
        return [(p, r) for p in self.messages for r in self.deliveries[p].values()]

    def _stream(self, p: Row) -> Stream:
        origin = self.origins[p.msg or 0]
        return p.topic, origin.source, origin.epoch

    def _before(self, p: Row) -> list[Row]:
        """The messages of the same stream with smaller sequences, in their order."""
        same = [q for q in self.messages if self._stream(q) == self._stream(p)]
        return sorted((q for q in same if self._sequence(q) < self._sequence(p)), key=self._sequence)

    def _sequence(self, p: Row) -> int:
        return self.origins[p.msg or 0].sequence

    def _fifo(self) -> Verdict:
        """Broken by a delivery after that of a later message of its stream."""
        firsts = self._delivered()
        broken = [(p, r) for p, r in firsts for q, s in firsts if s.node == r.node and s.t < r.t and p in self._before(q)]
        return Verdict(len(firsts), len(set(broken)))

    def _gapless(self) -> Verdict:
        """Broken by a delivery without that of the message before it in its stream, which the node was there for."""
        pairs = [(self._before(p)[-1], r) for p, r in self._delivered() if self._before(p)]
        return self._judge(pairs)

    def _causal(self) -> Verdict:
        """Broken by a delivery without that of a message it depends on, which the node was there for."""
        known = {p.msg: p for p in self.messages}
        pairs = [(known[d], r) for p, r in self._delivered() for d in set(p.dependencies or ()) if d in known]
        return self._judge(pairs)

    def _judge(self, pairs: list[tuple[Row, Row]]) -> Verdict:
        """Each message that should have come before a delivery, and that delivery."""
        checked = [(q, r) for q, r in pairs if r.node != q.node and self.joined(r.node, q.topic, min(q.t, r.t), max(q.t, r.t))]
        return Verdict(len(checked), sum(1 for q, r in checked if not self._had(r.node, q, r.t)))

    def _had(self, node: int, p: Row, t: int) -> bool:
        return node in self.deliveries[p] and self.deliveries[p][node].t <= t


def sent(r: Row) -> int:
    """A row without a number of copies is one copy."""
    return 1 if r.copies is None else r.copies


def spread(values: Sequence[int]) -> dict[str, Any]:
    """Mean, percentiles and largest; a percentile is the smallest value with that share at or below it."""
    found = {"mean": mean(values), **{f"p{share}": percentile(values, share) for share in SHARES}}
    return {**found, "max": max(values, default=None)}


def percentile(values: Sequence[int], share: int) -> int | None:
    at = Counter(values)
    enough = [v for v in at if 100 * sum(at[x] for x in at if x <= v) >= share * len(values)]
    return min(enough, default=None)


def milliseconds(numbers: Numbers) -> dict[str, Any]:
    return {name: None if value is None else Fraction(value) / 1_000 for name, value in numbers.items()}


def counted(values: Sequence[int]) -> dict[str, Any]:
    return {"count": len(values), **spread(values)}


def counted_ms(values: Sequence[int]) -> dict[str, Any]:
    return {"count": len(values), **milliseconds(spread(values))}


def mean(values: Sequence[int | Fraction]) -> Fraction | None:
    """Exact: a sum of fractions has no order."""
    return sum((Fraction(v) for v in values), Fraction()) / len(values) if values else None


def ratio(above: int, below: int) -> Fraction | None:
    return Fraction(above, below) if below else None


def _earliest(r: Row) -> tuple[int, bool, int]:
    return r.t, r.hops is None, r.hops or 0


def _recovered(fault: int, shares: Sequence[tuple[int, Fraction]]) -> int | None:
    """Messages published at one time are whole together or not."""
    whole = [t for t, _ in shares if all(share >= RECOVERED for later, share in shares if later >= t)]
    return min(whole) - fault if whole else None
