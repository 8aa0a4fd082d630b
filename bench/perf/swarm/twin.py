"""The twin of a live swarm: the same plan in the simulator, on virtual time.

The same machines with the same options, the same senders, moments and sizes. The network is as loopback is: a few hundred
microseconds a copy, and the death of a process shows at once, since its kernel closes its sockets. Messages go through the real
codec; they are not signed, as nothing is in the simulator. Messages begin when the overlay is in one piece, as they do live.
"""

from __future__ import annotations

from libweft.bench.perf.swarm.plan import SETTLE_S, TOPIC, Plan, Tally, Told, payload, united
from libweft.bench.runs.app import Listener, router_of
from libweft.overlays.description import Contacts
from libweft.peer.errors import WeftError
from libweft.peer.machine import MS, SECOND
from libweft.peer.sim.latency import Uniform
from libweft.peer.sim.simulator import SimNode, Simulator
from libweft.pubsub import stacks
from libweft.pubsub.live.defaults import STACK
from libweft.pubsub.message import Publication

LOOPBACK = Uniform(low=0.1, high=1.0)
UNITED_S = 300


class Ear(Listener):
    """Tallies what one node delivers."""

    def __init__(self, sim: Simulator, peer: int) -> None:
        self.sim = sim
        self.tally = Tally(peer)

    def deliver(self, publication: Publication) -> None:
        self.tally.note(publication.data, self.sim.now)


class Twin:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.sim = Simulator(plan.config.seed, LOOPBACK, codec=True, detection=MS)
        self.stack = stacks.find(STACK, {}, {}, live=True)
        self.ears: list[Ear] = []

    def run(self) -> dict[int, Told]:
        """What each peer delivered that was up at the end."""
        for contacts in self.stack.introduce(self.plan.config.peers, self.sim.stream("overlay")):
            self._add(contacts)
        self._unite()
        began = self.sim.now + SECOND
        self._schedule(began)
        self.sim.run(began + round((self.plan.config.seconds + SETTLE_S) * SECOND))
        return {peer: self.ears[peer].tally.told() for peer in self.plan.last}

    def _add(self, contacts: Contacts) -> None:
        ear = Ear(self.sim, len(self.ears))
        self.ears.append(ear)
        self.sim.add(self.stack.node(contacts, ear), lambda node: router_of(node).join(TOPIC))

    def _unite(self) -> None:
        while not united({number: self._neighbors(node) for number, node in self.sim.nodes.items()}):
            if self.sim.now > UNITED_S * SECOND:
                raise WeftError(f"the simulated overlay is not in one piece after {UNITED_S} s; another --seed may do")
            self.sim.run(self.sim.now + SECOND)

    def _neighbors(self, node: SimNode) -> list[int]:
        return [peer for peer in router_of(node).overlay.neighbors if isinstance(peer, int)]

    def _schedule(self, began: int) -> None:
        plan = self.plan
        for sender, phase in plan.senders.items():
            for number in range(plan.messages):
                self.sim.at(began + round((phase + number / plan.config.rate) * SECOND), self._publish, sender, number)
        for death in plan.deaths:
            for peer in death.peers:
                self.sim.at(began + round(death.at * SECOND), self.sim.crash, peer)
        for arrival in plan.arrivals:
            self.sim.at(began + round(arrival.at * SECOND), self._add, arrival.contacts)

    def _publish(self, sender: int, number: int) -> None:
        node = self.sim.nodes[sender]
        if node.up:
            router = router_of(node)
            router.publish(router.compose(TOPIC, payload(0, sender, number, self.sim.now, self.plan.config.size)))
