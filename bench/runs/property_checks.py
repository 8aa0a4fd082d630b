"""What a trace says of order and reliability: the properties of the papers, each a function that lists what breaks it.

Definitions are those of the thesis on LoCaPS (2.2 and 4.1: FIFO, causal and total order, gapless delivery, causal
completeness), of VCube-PB (section 4: validity, integrity, agreement) and of VCube-PS (3.2.1: causal order). All hold a topic
at a time.

Happened-before is read from what nodes did, never from what messages declare: a message comes after everything that its
publisher had published or delivered on that topic in the same life. A life of a node ends with `node_down`. A
subscription's history is what is delivered from `joined`, or else from the first delivery, to `leave` or `node_down`.

    history = Recorder()                        # an observer of the tracer, or `read(folder)`
    run(scenario, observer=history)
    assert causal(tell(history.events)) == []

Cost: a set of messages is one int, a bit a message, so a publish or a delivery costs a few operations on as many bits as
the topic has messages. Events are taken in the order of the rows. Bounds: all of it is in memory.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from libweft.peer.machine import Lane, MessageId, Peer
from libweft.peer.trace.files import read_rows
from libweft.peer.trace.kinds import DELIVER, JOINED, LEAVE, NODE_DOWN, PUBLISH

KINDS = (PUBLISH, DELIVER, JOINED, LEAVE, NODE_DOWN)

Name: TypeAlias = Hashable
"""A message id, or the number that stands for it in a trace folder."""


class Event(NamedTuple):
    node: Peer
    kind: str
    topic: str | None = None
    msg: Name = None


class Violation(NamedTuple):
    """At this node this message came, or did not, in spite of `after`: what it should have come after."""

    node: Peer
    message: Name
    after: Name = None


class Recorder:
    """An observer for `libweft.peer.trace.tracer.Tracer` that keeps what the checks need."""

    def __init__(self) -> None:
        self.events: list[Event] = []

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
        if kind in KINDS:
            self.events.append(Event(node, kind, topic, msg))


def read(folder: Path) -> list[Event]:
    """Of a run's folder; messages and nodes are the numbers that stand for them there."""
    table = read_rows(folder).select(["node", "kind", "topic", "msg"])
    rows: Iterator[dict[str, Any]] = (row for batch in table.to_batches() for row in batch.to_pylist())
    return [Event(row["node"], row["kind"], row["topic"], row["msg"]) for row in rows if row["kind"] in KINDS]


class Subscription:
    """What one subscriber delivered from its joining to its leaving: `places` are numbers of messages, in order, once each."""

    __slots__ = ("began", "delivered", "ended", "node", "places", "times")

    def __init__(self, node: Peer, began: int) -> None:
        self.node = node
        self.began = began
        self.ended: int | None = None
        self.places: list[int] = []
        self.times: list[int] = []
        self.delivered = 0  # the same as a set


class Story:
    """A topic: messages in the order of their publishing, with the set of those that happened before each, and histories.

    A time is the number of an event. `again` and `unpublished` are deliveries that no history has.
    """

    def __init__(self) -> None:
        self.names: list[Name] = []
        self.number: dict[Name, int] = {}
        self.publishers: list[tuple[Peer, int]] = []  # and its life
        self.published: list[int] = []
        self.past: list[int] = []
        self.subscriptions: list[Subscription] = []
        self.lives: dict[Peer, int] = {}  # how often each node has died
        self.again: list[tuple[Peer, Name]] = []
        self.unpublished: list[tuple[Peer, Name]] = []
        self._current: dict[Peer, Subscription] = {}
        self._known: dict[Peer, int] = {}  # what each node has published or delivered, and all before it, in this life
        self._delivered: dict[Peer, int] = {}

    def publish(self, t: int, node: Peer, life: int, msg: Name) -> None:
        if msg not in self.number:
            self.number[msg] = number = len(self.names)
            self.names.append(msg)
            self.publishers.append((node, life))
            self.published.append(t)
            self.past.append(self._known.get(node, 0))
            self._known[node] = self.past[number] | 1 << number

    def deliver(self, t: int, node: Peer, msg: Name) -> None:
        number = self.number.get(msg)
        if number is None:
            self.unpublished.append((node, msg))
        elif self._delivered.get(node, 0) >> number & 1:
            self.again.append((node, msg))
        else:
            history = self._current.get(node) or self.join(t, node)
            history.places.append(number)
            history.times.append(t)
            history.delivered |= 1 << number
            self._delivered[node] = self._delivered.get(node, 0) | 1 << number
            self._known[node] = self._known.get(node, 0) | self.past[number] | 1 << number

    def join(self, t: int, node: Peer) -> Subscription:
        if node not in self._current:
            self._current[node] = Subscription(node, t)
            self.subscriptions.append(self._current[node])
        return self._current[node]

    def leave(self, t: int, node: Peer) -> None:
        if node in self._current:
            self._current.pop(node).ended = t

    def die(self, t: int, node: Peer) -> None:
        self.leave(t, node)
        self.lives[node] = self.lives.get(node, 0) + 1
        self._known.pop(node, None)
        self._delivered.pop(node, None)

    def violation(self, history: Subscription, number: int, after: int) -> Violation:
        return Violation(history.node, self.names[number], self.names[after])


def tell(events: Iterable[Event]) -> list[Story]:
    """The story of each topic, in the order of their first events."""
    stories: dict[str | None, Story] = {}
    lives: dict[Peer, int] = {}
    for t, (node, kind, topic, msg) in enumerate(events):
        if kind == NODE_DOWN:
            lives[node] = lives.get(node, 0) + 1
            for story in stories.values():
                story.die(t, node)
            continue
        found = stories.get(topic)
        if found is None:
            found = stories[topic] = Story()
            found.lives |= lives
        if kind == PUBLISH:
            found.publish(t, node, lives.get(node, 0), msg)
        elif kind == DELIVER:
            found.deliver(t, node, msg)
        elif kind == JOINED:
            found.join(t, node)
        elif kind == LEAVE:
            found.leave(t, node)
    return list(stories.values())


def fifo(stories: Iterable[Story]) -> list[Violation]:
    """Any two events of a subscription that have one publisher appear in the order in which they were published.

    One violation for each delivery that comes after a later one: `after` is it, `message` the latest one it comes after.
    """
    found = []
    for story in stories:
        for history in story.subscriptions:
            latest: dict[tuple[Peer, int], int] = {}
            for number in history.places:
                before = latest.setdefault(story.publishers[number], number)
                if before > number:
                    found.append(story.violation(history, before, number))
                latest[story.publishers[number]] = max(before, number)
    return found


def causal(stories: Iterable[Story]) -> list[Violation]:
    """The order of any two events of a subscription respects happened-before: nobody delivers m after m' if m -> m'.

    One violation for each such pair; that m is never delivered breaks nothing here.
    """
    return [
        story.violation(history, early, number)
        for story in stories
        for history in story.subscriptions
        for early, number in _overtaken(story, history)
    ]


def _overtaken(story: Story, history: Subscription) -> Iterator[tuple[int, int]]:
    """Pairs of deliveries, the first of which happened after the second."""
    awaited = 0  # by what has been delivered
    for at, number in enumerate(history.places):
        if awaited >> number & 1:
            yield from ((early, number) for early in history.places[:at] if story.past[early] >> number & 1)
        awaited |= story.past[number]


def total(stories: Iterable[Story]) -> list[Violation]:
    """Two subscriptions that both have x and y have them in the same order.

    One violation for each two neighbours, among those that both have, that the second subscription has the other way about;
    where there is any disagreement there are such neighbours.
    """
    return [
        story.violation(other, after, before)
        for story in stories
        for one, other in combinations(story.subscriptions, 2)
        for before, after in _swapped(one, other)
    ]


def _swapped(one: Subscription, other: Subscription) -> Iterator[tuple[int, int]]:
    both = one.delivered & other.delivered
    if both.bit_count() < 2:
        return
    place = {number: at for at, number in enumerate(other.places)}
    shared = [number for number in one.places if both >> number & 1]
    yield from ((x, y) for x, y in pairwise(shared) if place[x] > place[y])


def gapless(stories: Iterable[Story]) -> list[Violation]:
    """Of each publisher a subscription has all events between the first and the last that it has of it (GFD).

    One violation for each event that is missing: `after` is it, `message` the next of that publisher that is there.
    """
    found = []
    for story in stories:
        streams: dict[tuple[Peer, int], list[int]] = {}
        for number, publisher in enumerate(story.publishers):
            streams.setdefault(publisher, []).append(number)
        for history in story.subscriptions:
            for stream in streams.values():
                found += [story.violation(history, there, gap) for there, gap in _gaps(stream, history.delivered)]
    return found


def _gaps(stream: list[int], delivered: int) -> Iterator[tuple[int, int]]:
    gaps: list[int] = []
    begun = False
    for number in stream:
        if delivered >> number & 1:
            yield from ((number, gap) for gap in gaps)
            gaps, begun = [], True
        elif begun:
            gaps.append(number)


def complete(stories: Iterable[Story]) -> list[Violation]:
    """Causal completeness: no subscription lacks an x, though it has a `before` and an `after`, and before -> x -> after.

    One violation for each x: `after` is it, `message` the first delivery that happened after it.
    """
    found = []
    for story in stories:
        for history in story.subscriptions:
            needed = 0
            for number in history.places:
                needed |= story.past[number]
            for x in _bits(needed & ~history.delivered):
                if story.past[x] & history.delivered:
                    first = next(number for number in history.places if story.past[number] >> x & 1)
                    found.append(story.violation(history, first, x))
    return found


def agreement(stories: Iterable[Story], until: int | None = None) -> list[Violation]:
    """If a correct process delivers m, every correct subscriber of its topic delivers m.

    A node is a correct subscriber from its first delivery on, or from its joining if it delivers nothing, if its subscription
    lasts to the end of the trace; so it owes what was published after that. Messages that were published from the event of number
    `until` on may still be on their way.
    """
    found = []
    for story in stories:
        delivered = 0
        for history in _correct(story):
            delivered |= history.delivered
        found += _lacking(story, delivered, until)
    return found


def validity(stories: Iterable[Story], until: int | None = None) -> list[Violation]:
    """If a correct process publishes m, it delivers m, and so does every correct subscriber, whether it subscribes itself or not.

    The papers say the first of it, and agreement the rest; but where publishers need not subscribe, neither would ask for
    anything. Correct is who lives to the end of the trace; `until` as for agreement.
    """
    found = []
    for story in stories:
        living = sum(1 << n for n, (node, life) in enumerate(story.publishers) if life == story.lives.get(node, 0))
        own = (
            Violation(history.node, story.names[number])
            for history in story.subscriptions
            for number in _bits(living & ~history.delivered)
            if history.ended is None and history.node == story.publishers[number][0]
            if history.began < story.published[number] and (until is None or story.published[number] < until)
        )
        found += list(dict.fromkeys((*own, *_lacking(story, living, until))))
    return found


def _correct(story: Story) -> list[Subscription]:
    return [history for history in story.subscriptions if history.ended is None]


def _lacking(story: Story, owed: int, until: int | None) -> list[Violation]:
    """What correct subscribers lack of those messages, if it was published after their first delivery, or else their joining."""
    found = []
    for history in _correct(story):
        begin = history.times[0] if history.times else history.began
        missing = ((number, story.published[number]) for number in _bits(owed & ~history.delivered))
        lacking = [number for number, t in missing if begin < t and (until is None or t < until)]
        found += [Violation(history.node, story.names[number]) for number in lacking]
    return found


def integrity(stories: Iterable[Story]) -> list[Violation]:
    """A process delivers a message at most once, and only if it was published before."""
    return [Violation(node, msg) for story in stories for node, msg in (*story.unpublished, *story.again)]


def _bits(number: int) -> Iterator[int]:
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest
