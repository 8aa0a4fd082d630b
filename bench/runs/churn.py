"""Churn of a run: nodes that leave and are replaced, and subscriptions that end, begin and change hands.

All draws come from one stream of the scenario's seed, so their order decides the run. `scenario.churn` holds the rates. The
churn changes who subscribes and publishes in a `Crowd`, which the workload is.

Bounds: one entry of the calendar for each session, for each subscription that flips, and for each kind of change in common.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from libweft.bench.runs.app import join, leave, toggle
from libweft.bench.runs.scenario import Scenario
from libweft.overlays.description import Contacts
from libweft.peer.machine import SECOND
from libweft.peer.sim.simulator import SimNode, Simulator
from libweft.pubsub.router import Router
from libweft.pubsub.stacks import Stack


class Crowd(Protocol):
    """The subscribers and publishers of a run, by the numbers of their nodes."""

    interests: dict[int, list[str]]
    publishers: list[int]

    def draw_topics(self, rng: Random) -> list[str]:
        """Draw the topics of a new subscriber."""

    def bring_up(self, contacts: Contacts) -> None:
        """Start the node with the next number."""


class Turnover:
    """The nodes and subscriptions of one run that come and go."""

    def __init__(self, scenario: Scenario, stack: Stack, sim: Simulator, crowd: Crowd) -> None:
        self.churn = scenario.churn
        self.nodes = scenario.nodes
        self.stack = stack
        self.sim = sim
        self.crowd = crowd
        self.rng = sim.stream("churn")

    def schedule(self) -> None:
        """Put the first departures and changes on the calendar."""
        churn, began = self.churn, round(self.churn.start * SECOND)
        if churn.session:
            for number in range(self.nodes):
                self.sim.at(began, self._begin_session, number)
        if churn.swaps:
            self.sim.at(began, self._later, churn.swaps, self._swap)
        if churn.correlated:
            self.sim.at(began + round(churn.every * SECOND), self._leave_together)
        if churn.changing:
            self.sim.at(began + round(churn.every * SECOND), self._change_together)

    def watch(self, node: SimNode) -> None:
        """Let each subscription of a node that has come up end and begin again, if the scenario says so."""
        if self.churn.subscriptions:
            for topic in self.crowd.interests.get(node.id, ()):
                self.sim.at(round(self.churn.start * SECOND), self._later, self.churn.subscriptions, self._flip, node, topic)

    def _begin_session(self, number: int) -> None:
        self._later(self.churn.session, self._depart, number)

    def _later(self, mean: float, action: Callable[..., None], *args: object) -> None:
        self.sim.at(self.sim.now + round(self.rng.expovariate(1 / mean) * SECOND), action, *args)

    def _over(self) -> bool:
        stop = self.churn.stop
        return stop is not None and self.sim.now > stop * SECOND

    def _depart(self, number: int) -> None:
        if self._over() or not self.sim.nodes[number].up:
            return
        if self.churn.graceful:
            self.sim.leave(number)
        else:
            self.sim.crash(number, "churn")
        if self.churn.replace:
            self.sim.at(self.sim.now, self._replace, number)  # after all that leave at this moment

    def _replace(self, gone: int) -> None:
        """Bring up a new node for one that has left; it subscribes and publishes in the place of the other."""
        live = self._honest()
        number = len(self.sim.nodes)
        if gone in self.crowd.interests:
            self.crowd.interests[number] = self.crowd.draw_topics(self.rng)
        if gone in self.crowd.publishers:
            self.crowd.publishers[self.crowd.publishers.index(gone)] = number
        self.crowd.bring_up(self.stack.admit(live, self.rng))
        if self.churn.session:
            self._begin_session(number)

    def _leave_together(self) -> None:
        if self._over():
            return
        live = self._honest()
        for number in sorted(self.rng.sample(live, round(self.churn.correlated * len(live)))):
            self._depart(number)
        self.sim.at(self.sim.now + round(self.churn.every * SECOND), self._leave_together)

    def _flip(self, node: SimNode, topic: str) -> None:
        if self._over() or not node.up:
            return
        toggle(node, topic)
        self._later(self.churn.subscriptions, self._flip, node, topic)

    def _swap(self) -> None:
        """Hand the subscriptions of one node to another that has none, so that the number of subscribers stays the same.

        If all nodes subscribe, or none, nothing changes.
        """
        if self._over():
            return
        live = self._honest()
        taken = [number for number in live if number in self.crowd.interests]
        free = [number for number in live if number not in self.crowd.interests]
        if taken and free:
            self._hand_over(self.rng.choice(taken), self.rng.choice(free))
        self._later(self.churn.swaps, self._swap)

    def _hand_over(self, old: int, new: int) -> None:
        self.crowd.interests[new] = self.crowd.interests.pop(old)
        if old in self.crowd.publishers:
            self.crowd.publishers[self.crowd.publishers.index(old)] = new
        for topic in self.crowd.interests[new]:
            leave(self.sim.nodes[old], topic)
            join(self.sim.nodes[new], topic)

    def _change_together(self) -> None:
        if self._over():
            return
        live = self._honest()
        most = round(self.churn.changing * len(live))
        for number in sorted(self.rng.sample(live, self.rng.randint(0, most))):
            for topic in self.crowd.interests.get(number, ()):
                toggle(self.sim.nodes[number], topic)
        self.sim.at(self.sim.now + round(self.churn.every * SECOND), self._change_together)

    def _honest(self) -> list[int]:
        """Return the nodes that are up, without the hostile nodes of an attack: they have no router, and are not replaced."""
        return [number for number in self.sim.live if any(isinstance(each, Router) for each in self.sim.nodes[number].machines)]
