"""The workload of a run: the topics that each node subscribes to, and the moments at which nodes publish.

`libweft.bench.runs.churn` changes both while the run goes on. All draws come from a stream of the scenario's seed. If the
publisher of a message is down, the next publisher that is up publishes it; if all are down, nobody does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from math import exp
from random import Random

from libweft.bench.runs.app import Listener, join, publish
from libweft.bench.runs.churn import Turnover
from libweft.bench.runs.discussion import Discussion
from libweft.bench.runs.scenario import Scenario, head_count
from libweft.overlays.description import Contacts
from libweft.peer.machine import SECOND
from libweft.peer.sim.simulator import SimNode, Simulator
from libweft.pubsub.ordering.causal import Causal
from libweft.pubsub.ordering.fifo import Fifo
from libweft.pubsub.stacks import Stack

ORDERS: dict[str, type[Fifo | Causal] | None] = {"none": None, "fifo": Fifo, "causal": Causal}
PATIENCE = 100  # draws for each topic of a subscriber, before the most popular of the rest are taken


class Workload:
    """The subscribers and publishers of one run."""

    def __init__(self, scenario: Scenario, stack: Stack, sim: Simulator) -> None:
        self.scenario = scenario
        self.stack = stack
        self.sim = sim
        self.app = Listener()
        self.app.validates = bool(scenario.attacks)
        self.topics = [f"t{i}" for i in range(scenario.workload.topics)]
        self.popularity = list(accumulate(_weights(scenario)))
        self.rng = sim.stream("workload")
        self.turnover = Turnover(scenario, stack, sim, self)
        self.interests: dict[int, list[str]] = {}
        self.publishers: list[int] = []
        self.published = 0
        self.discussion = Discussion(scenario.workload, sim, self._say) if scenario.workload.answers else None

    def start(self, introduced: Sequence[Contacts]) -> None:
        """Bring up all nodes, each with its contacts: at time 0, or one after the other."""
        self._cast(len(introduced))
        gap = self.scenario.join_every * SECOND
        for number, contacts in enumerate(introduced):
            if gap:
                self.sim.at(round(number * gap), self.bring_up, contacts)
            else:
                self.bring_up(contacts)

    def bring_up(self, contacts: Contacts) -> None:
        """Start the next node; it subscribes to its topics at once."""
        order = ORDERS[self.scenario.workload.order]
        app = self.app if self.discussion is None else self.discussion.member(len(self.sim.nodes))
        self.sim.add(self.stack.node(contacts, app, order=order), self._started)

    def schedule(self) -> int:
        """Put publications and churn on the calendar, and return the moment of the last publication."""
        last = round(self.scenario.warmup * SECOND)
        if self.discussion is not None:
            self.turnover.schedule()
            return self.discussion.schedule(last, self.interests) + round(self.scenario.window * SECOND)  # for the answers
        phased = self.scenario.workload.arrivals == "phased"
        for t, place in self._phases(last) if phased else self._draws(last):
            self.sim.at(t, self._publish, place)
            last = t
        self.turnover.schedule()
        return last

    def _cast(self, nodes: int) -> None:
        work = self.scenario.workload
        order = self.rng.sample(range(nodes), nodes)
        for number in work.subscribing or order[: head_count(work.subscribers, nodes)]:
            self.interests[number] = self.draw_topics(self.rng)
        self.publishers = list(work.publishing) or order[: head_count(work.publishers, nodes)]

    def draw_topics(self, rng: Random) -> list[str]:
        """Draw the different topics of one subscriber, by their popularity."""
        work = self.scenario.workload
        chosen: dict[str, None] = {}
        if work.interests >= len(self.topics):
            return list(self.topics)
        for _ in range(PATIENCE * work.interests):
            if len(chosen) == work.interests:
                return list(chosen)
            chosen[rng.choices(self.topics, cum_weights=self.popularity)[0]] = None
        others = (topic for topic in self.topics if topic not in chosen)  # so steep that only the most popular are ever drawn
        return [*chosen, *islice(others, work.interests - len(chosen))]

    def _draws(self, first: int) -> Iterator[tuple[int, int]]:
        """Yield the moments of publication, each with the index of a publisher drawn at random."""
        return ((t, self.rng.randrange(len(self.publishers))) for t in self._moments(first))

    def _phases(self, first: int) -> Sequence[tuple[int, int]]:
        work, several = self.scenario.workload, len(self.publishers)
        if not work.messages:
            return []
        period = several * SECOND / work.rate
        phases = [self.rng.random() * period for _ in range(several)]
        rounds = -(-work.messages // several)
        moments = [(round(first + phase + turn * period), place) for turn in range(rounds) for place, phase in enumerate(phases)]
        return sorted(moments)[: work.messages]

    def _moments(self, first: int) -> Iterator[int]:
        work = self.scenario.workload
        t = float(first)
        for index in range(work.messages):
            yield round(t)
            if work.arrivals == "poisson":
                t += self.rng.expovariate(work.rate) * SECOND
            else:
                t = first + (index + 1) * SECOND / work.rate

    def _started(self, node: SimNode) -> None:
        for topic in self.interests.get(node.id, ()):
            join(node, topic)
        self.turnover.watch(node)

    def _publish(self, place: int) -> None:
        for step in range(len(self.publishers)):
            node = self.sim.nodes[self.publishers[(place + step) % len(self.publishers)]]
            if node.up:
                publish(node, self._topic_for(node), self.payload())
                self.published += 1
                return

    def _say(self, number: int, topic: str) -> None:
        if (node := self.sim.nodes[number]).up:
            publish(node, topic, self.payload())
            self.published += 1

    def payload(self) -> bytes:
        """Return other bytes each time, because equal bytes are one message if the id comes from the content."""
        size = self.scenario.workload.size
        return self.published.to_bytes(8, "little")[:size].ljust(size, b"\0")

    def _topic_for(self, node: SimNode) -> str:
        """Draw one of the publisher's own topics; a publisher that subscribes to none, or to all, draws by popularity."""
        own = self.interests.get(node.id)
        if own and (len(own) < len(self.topics) or self.scenario.workload.popularity == "uniform"):
            return own[self.rng.randrange(len(own))] if len(own) > 1 else own[0]
        return self.rng.choices(self.topics, cum_weights=self.popularity)[0]


def _weights(scenario: Scenario) -> Sequence[float]:
    work = scenario.workload
    ranks = range(1, work.topics + 1)
    if work.popularity == "zipf":
        return [rank**-work.exponent for rank in ranks]
    if work.popularity == "exponential":
        return [exp(-work.exponent * (rank - 1)) for rank in ranks]
    return [1.0 for _ in ranks]
