"""A discussion: some ask a question each, and everybody who hears enough of it says something too (VCube-PS, section 4.3).

`workload.messages` questions go round the topics, each by another of a topic's subscribers, at moments drawn in whole
milliseconds from the first messages / rate seconds. Each time that a subscriber has delivered `workload.answers` messages of
others on a topic it answers there, after a wait drawn below `workload.answer_ms`. Who is still to ask answers the first that it
hears, and does not ask any more. Nobody says more than `workload.turns` things on a topic, a question included.

All draws come from one stream of the seed. Bounds: a count for each subscription.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice

from libweft.bench.runs.scenario import Workload
from libweft.peer.errors import UsageError
from libweft.peer.machine import MS, Peer
from libweft.peer.sim.simulator import Simulator
from libweft.pubsub.interests import Interest
from libweft.pubsub.message import Publication, Verdict

Say = Callable[[int, str], None]


class Member:
    """The app of one node: tells the discussion what it hears."""

    validates = False

    def __init__(self, number: int, hear: Callable[[int, Publication], None]) -> None:
        self.number = number
        self._hear = hear

    def validate(self, sender: Peer, publication: Publication, answer: Callable[[Verdict], None]) -> None:
        answer(Verdict.ACCEPT)

    def deliver(self, publication: Publication) -> None:
        self._hear(self.number, publication)

    def joined(self, interest: Interest) -> None: ...


class Discussion:
    """`say(node, topic)` publishes something there, if the node is up."""

    def __init__(self, work: Workload, sim: Simulator, say: Say) -> None:
        self._work = work
        self._sim = sim
        self._say = say
        self._rng = sim.stream("discussion")
        self._heard: Counter[tuple[int, str]] = Counter()
        self._said: Counter[tuple[int, str]] = Counter()  # and what is about to be said
        self._to_ask: set[tuple[int, str]] = set()

    def member(self, number: int) -> Member:
        return Member(number, self._hears)

    def schedule(self, first: int, interests: Mapping[int, Sequence[str]]) -> int:
        """Put the questions on the calendar; answers the moment by which the last is asked."""
        last = round(self._work.messages / self._work.rate * 1_000)
        for place in self._askers(interests):
            self._to_ask.add(place)
            self._sim.at(first + self._rng.randrange(last + 1) * MS, self._asks, place)
        return first + last * MS

    def _askers(self, interests: Mapping[int, Sequence[str]]) -> list[tuple[int, str]]:
        by_topic: dict[str, list[tuple[int, str]]] = {}
        for number, topics in interests.items():
            for topic in topics:
                by_topic.setdefault(topic, []).append((number, topic))
        shuffled = [iter(self._rng.sample(places, len(places))) for _, places in sorted(by_topic.items())]
        rounds = islice(cycle(shuffled), self._work.messages) if shuffled else ()
        found = [next(places, None) for places in rounds]
        asking = [place for place in found if place is not None]
        if len(asking) < self._work.messages:
            raise UsageError(f"workload.messages is {self._work.messages}; a topic has too few subscribers to ask so many")
        return asking

    def _asks(self, place: tuple[int, str]) -> None:
        if place in self._to_ask:
            self._takes_turn(place)
            self._say(*place)

    def _hears(self, number: int, publication: Publication) -> None:
        place = number, publication.topic
        if publication.id.source == number or self._said[place] >= self._work.turns:
            return
        self._heard[place] += 1
        if place in self._to_ask or self._heard[place] >= self._work.answers:
            self._takes_turn(place)
            wait = self._rng.randrange(self._work.answer_ms) * MS if self._work.answer_ms else 0
            self._sim.at(self._sim.now + wait, self._say, *place)

    def _takes_turn(self, place: tuple[int, str]) -> None:
        self._to_ask.discard(place)
        self._heard[place] = 0
        self._said[place] += 1
