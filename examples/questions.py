"""A discussion group of four, in the simulator: some copies take seconds longer, yet no answer comes before its question.

Everybody replies to what they hear, and the last of them, who is far away, prints what it is told: first without an order, then
with `causal`.
"""

from libweft.peer.machine import SECOND
from libweft.peer.sim.faults import Reorder
from libweft.peer.sim.latency import Constant
from libweft.peer.sim.simulator import Simulator
from libweft.pubsub.ordering.causal import Causal
from libweft.pubsub.stacks import find

REPLIES = {
    (1, "who has seen my cat?"): "which one?",
    (0, "which one?"): "the black one",
    (2, "the black one"): "it is on your roof",
}
FAR = 3


class Member:
    validates = False

    def __init__(self, number):
        self.number = number
        self.order = None
        self.told = []

    def deliver(self, publication):
        text = publication.data.decode()
        self.told.append(f"{publication.id.source}: {text}")
        if (reply := REPLIES.get((self.number, text))) is not None:
            self.order.publish("cats", reply.encode())

    def joined(self, interest):
        pass

    def build(self, env, router, app):
        self.order = Causal(env, router, app)
        return self.order


def conversation(causal):
    sim, stack = Simulator(seed=5, latency=Constant(ms=50)), find("static/flood", {"graph": "full"}, {})
    members = [Member(number) for number in range(4)]
    for member in members:
        contacts = range(member.number)
        sim.add(stack.node(contacts, member, order=member.build))
    sim.run(SECOND)
    for member in members:
        if causal:
            member.order.open("cats")
        member.order.router.join("cats")
    sim.inject([Reorder(at=1, targets=(FAR,), p=0.9, ms=3_000)])  # on links to the far one, most copies are overtaken
    sim.at(2 * SECOND, members[0].order.publish, "cats", b"who has seen my cat?")
    sim.run(20 * SECOND)
    return members[FAR].told


for causal in (False, True):
    print("in causal order:" if causal else "as it comes:")
    print(*(f"  {line}" for line in conversation(causal)), sep="\n")
