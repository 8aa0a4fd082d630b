"""What the nodes of a simulation do: who subscribes to what, who publishes when, who comes and goes.

All draws come from named streams of the scenario's seed. A message whose publisher is down goes to the next publisher
that is up; where none is, it is not published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice
from math import exp
from random import Random

from libweft.bench.runs.attacks import INVALID
from libweft.bench.runs.discussion import Discussion
from libweft.bench.runs.scenario import Scenario, head_count
from libweft.overlays.description import Contacts
from libweft.peer.machine import SECOND, Peer
from libweft.peer.sim.simulator import SimNode, Simulator
from libweft.pubsub.message import Interest, Publication, Verdict
from libweft.pubsub.ordering.causal import Causal
from libweft.pubsub.ordering.fifo import Fifo
from libweft.pubsub.ordering.order import Order
from libweft.pubsub.router import Router
from libweft.pubsub.stacks import Stack

ORDERS: dict[str, type[Fifo | Causal] | None] = {"none": None, "fifo": Fifo, "causal": Causal}
PATIENCE = 100  # draws for each topic of a subscriber, before the most popular of the rest are taken


class Listener:
    """An app that keeps nothing; the trace has it all. Among attackers it looks at what it gets."""

    validates = False

    def validate(self, sender: Peer, publication: Publication, answer: Callable[[Verdict], None]) -> None:
        answer(Verdict.REJECT if publication.data == INVALID else Verdict.ACCEPT)

    def deliver(self, publication: Publication) -> None: ...
    def joined(self, interest: Interest) -> None: ...


class Workload:
    def __init__(self, scenario: Scenario, stack: Stack, sim: Simulator) -> None:
        self.scenario = scenario
        self.stack = stack
        self.sim = sim
        self.app = Listener()
        self.app.validates = bool(scenario.attacks)
        self.topics = [f"t{i}" for i in range(scenario.workload.topics)]
        self.popularity = list(accumulate(_weights(scenario)))
        self.rng = sim.stream("workload")
        self.churn_rng = sim.stream("churn")
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
                self.sim.at(round(number * gap), self._bring_up, contacts)
            else:
                self._bring_up(contacts)

    def _bring_up(self, contacts: Contacts) -> None:
        order = ORDERS[self.scenario.workload.order]
        app = self.app if self.discussion is None else self.discussion.member(len(self.sim.nodes))
        self.sim.add(self.stack.node(contacts, app, order=order), self._started)

    def schedule(self) -> int:
        """Put publications and churn on the calendar; answers the moment of the last publication."""
        last = round(self.scenario.warmup * SECOND)
        if self.discussion is not None:
            self._schedule_churn()
            return self.discussion.schedule(last, self.interests) + round(self.scenario.window * SECOND)  # for the answers
        phased = self.scenario.workload.arrivals == "phased"
        for t, place in self._phases(last) if phased else self._draws(last):
            self.sim.at(t, self._publish, place)
            last = t
        self._schedule_churn()
        return last

    def _cast(self, nodes: int) -> None:
        work = self.scenario.workload
        order = self.rng.sample(range(nodes), nodes)
        for number in work.subscribing or order[: head_count(work.subscribers, nodes)]:
            self.interests[number] = self._draw_topics(self.rng)
        self.publishers = list(work.publishing) or order[: head_count(work.publishers, nodes)]

    def _draw_topics(self, rng: Random) -> list[str]:
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
        """When, and which of the publishers: any, each time."""
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
            _join(node, topic)
        churn = self.scenario.churn
        if churn.subscriptions:
            for topic in self.interests.get(node.id, ()):
                self.sim.at(round(churn.start * SECOND), self._later, churn.subscriptions, self._flip, node, topic)

    def _publish(self, place: int) -> None:
        for step in range(len(self.publishers)):
            node = self.sim.nodes[self.publishers[(place + step) % len(self.publishers)]]
            if node.up:
                _publish(node, self._topic_for(node), self.payload())
                self.published += 1
                return

    def _say(self, number: int, topic: str) -> None:
        if (node := self.sim.nodes[number]).up:
            _publish(node, topic, self.payload())
            self.published += 1

    def payload(self) -> bytes:
        """Another one each time: where ids are of the content, the same would be one message."""
        size = self.scenario.workload.size
        return self.published.to_bytes(8, "little")[:size].ljust(size, b"\0")

    def _topic_for(self, node: SimNode) -> str:
        """One of the publisher's own topics; a publisher that subscribes to none, or to all, draws by popularity."""
        own = self.interests.get(node.id)
        if own and (len(own) < len(self.topics) or self.scenario.workload.popularity == "uniform"):
            return own[self.rng.randrange(len(own))] if len(own) > 1 else own[0]
        return self.rng.choices(self.topics, cum_weights=self.popularity)[0]

    # Churn.

    def _schedule_churn(self) -> None:
        churn, began = self.scenario.churn, round(self.scenario.churn.start * SECOND)
        if churn.session:
            for number in range(self.scenario.nodes):
                self.sim.at(began, self._begin_session, number)
        if churn.swaps:
            self.sim.at(began, self._later, churn.swaps, self._swap)
        if churn.correlated:
            self.sim.at(began + round(churn.every * SECOND), self._leave_together)
        if churn.changing:
            self.sim.at(began + round(churn.every * SECOND), self._change_together)

    def _begin_session(self, number: int) -> None:
        self._later(self.scenario.churn.session, self._depart, number)

    def _later(self, mean: float, action: Callable[..., None], *args: object) -> None:
        self.sim.at(self.sim.now + round(self.churn_rng.expovariate(1 / mean) * SECOND), action, *args)

    def _over(self) -> bool:
        stop = self.scenario.churn.stop
        return stop is not None and self.sim.now > stop * SECOND

    def _depart(self, number: int) -> None:
        if self._over() or not self.sim.nodes[number].up:
            return
        if self.scenario.churn.graceful:
            self.sim.leave(number)
        else:
            self.sim.crash(number, "churn")
        if self.scenario.churn.replace:
            self.sim.at(self.sim.now, self._replace, number)  # after all that leave at this moment

    def _replace(self, gone: int) -> None:
        """Somebody new comes for each that leaves, and takes over its part."""
        live = self._honest()
        number = len(self.sim.nodes)
        if gone in self.interests:
            self.interests[number] = self._draw_topics(self.churn_rng)
        if gone in self.publishers:
            self.publishers[self.publishers.index(gone)] = number
        self._bring_up(self.stack.admit(live, self.churn_rng))
        if self.scenario.churn.session:
            self._begin_session(number)

    def _leave_together(self) -> None:
        if self._over():
            return
        live = self._honest()
        for number in sorted(self.churn_rng.sample(live, round(self.scenario.churn.correlated * len(live)))):
            self._depart(number)
        self.sim.at(self.sim.now + round(self.scenario.churn.every * SECOND), self._leave_together)

    def _swap(self) -> None:
        """There are always as many subscribers; where all nodes are, or none, nothing changes."""
        if self._over():
            return
        live = self._honest()
        taken = [number for number in live if number in self.interests]
        free = [number for number in live if number not in self.interests]
        if taken and free:
            self._hand_over(self.churn_rng.choice(taken), self.churn_rng.choice(free))
        self._later(self.scenario.churn.swaps, self._swap)

    def _hand_over(self, old: int, new: int) -> None:
        self.interests[new] = self.interests.pop(old)
        if old in self.publishers:
            self.publishers[self.publishers.index(old)] = new
        for topic in self.interests[new]:
            _leave(self.sim.nodes[old], topic)
            _join(self.sim.nodes[new], topic)

    def _change_together(self) -> None:
        if self._over():
            return
        live = self._honest()
        most = round(self.scenario.churn.changing * len(live))
        for number in sorted(self.churn_rng.sample(live, self.churn_rng.randint(0, most))):
            for topic in self.interests.get(number, ()):
                _turn(self.sim.nodes[number], topic)
        self.sim.at(self.sim.now + round(self.scenario.churn.every * SECOND), self._change_together)

    def _honest(self) -> list[int]:
        """Who is up, without the hostile nodes of an attack: they are no routers, and nobody comes for one of them."""
        return [number for number in self.sim.live if any(isinstance(each, Router) for each in self.sim.nodes[number].machines)]

    def _flip(self, node: SimNode, topic: str) -> None:
        if self._over() or not node.up:
            return
        _turn(node, topic)
        self._later(self.scenario.churn.subscriptions, self._flip, node, topic)


def router_of(node: SimNode) -> Router:
    top = node.machines[-1]
    router = top.router if isinstance(top, Order) else top
    assert isinstance(router, Router)
    return router


def order_of(node: SimNode) -> Fifo | Causal | None:
    top = node.machines[-1]
    return top if isinstance(top, Fifo | Causal) else None


def _join(node: SimNode, topic: str) -> None:
    if (order := order_of(node)) is not None:
        order.open(topic)
    router_of(node).join(topic)


def _leave(node: SimNode, topic: str) -> None:
    router_of(node).leave(topic)
    if (order := order_of(node)) is not None:
        order.close(topic)


def _turn(node: SimNode, topic: str) -> None:
    if topic in router_of(node).interests:
        _leave(node, topic)
    else:
        _join(node, topic)


def _publish(node: SimNode, topic: str, data: bytes) -> None:
    """A publisher that does not subscribe opens the topic with the order too: the order is made where messages are."""
    order, router = order_of(node), router_of(node)
    if order is None:
        router.publish(router.compose(topic, data))
        return
    if topic not in router.interests and not order.is_open(topic):
        order.open(topic)
    order.publish(topic, data)


def _weights(scenario: Scenario) -> Sequence[float]:
    work = scenario.workload
    ranks = range(1, work.topics + 1)
    if work.popularity == "zipf":
        return [rank**-work.exponent for rank in ranks]
    if work.popularity == "exponential":
        return [exp(-work.exponent * (rank - 1)) for rank in ranks]
    return [1.0 for _ in ranks]
