"""Each part of GossipSub's score, P1 to P7, against an attack that only this part can stop.

Every test runs one scenario twice, with the same seed: with the part's weight at 0 the harm that its docstring names is plainly
there, with the weight it is not. All other weights are 0 unless the docstring says so, and what else could help is off: flood
publishing, peer exchange, the gater, links that a mesh keeps because they were dialled from here, and, but for P2,
opportunistic grafting has nobody to prefer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

import pytest

from libweft.bench.runs import reading
from libweft.bench.runs.attacks import AnyAttack, GraftSpam, IHaveFlood, InvalidSpam, Silent
from libweft.bench.runs.replay import command
from libweft.bench.runs.run import build
from libweft.bench.runs.scenario import Options, Scenario, Workload
from libweft.bench.runs.sybils import Siege
from libweft.bench.runs.workload import Workload as Nodes
from libweft.peer.machine import MS, SECOND, Lane, MessageId, Peer
from libweft.peer.sim.latency import Uniform
from libweft.peer.sim.simulator import Simulator
from libweft.peer.trace.kinds import DELIVER, PUBLISH, REJECT, SEND
from libweft.peer.trace.tracer import Tracer
from libweft.pubsub import stacks
from libweft.pubsub.gossipsub.router import GossipSub
from libweft.pubsub.gossipsub.score import Score
from tests.conftest import note_replay

pytestmark = pytest.mark.slow

HONEST, DEGREE = 30, 6
LATE = 400 * MS  # a mesh of honest nodes brings a message to all in less than half of that; gossip waits for heartbeats
WEIGHTS = (
    "time_in_mesh_weight",
    "first_deliveries_weight",
    "mesh_deliveries_weight",
    "mesh_failure_weight",
    "invalid_weight",
    "app_weight",
    "colocation_weight",
    "behaviour_weight",
)
ROUTER: Options = {"d": DEGREE, "d_lo": DEGREE, "d_hi": 12, "d_score": DEGREE, "d_out": 0}
ALONE: Options = {"flood_publish": False, "px": False, "gater": False}
DAWN: Options = {"dial_after": 5 * SECOND}
DEFICIT = {
    "mesh_deliveries_decay": 0.9,
    "mesh_deliveries_cap": 20,
    "mesh_deliveries_threshold": 2,
    "mesh_deliveries_window": 500 * MS,
    "mesh_deliveries_activation": 10 * SECOND,
}


@dataclass
class Harm:
    """What was seen after `since`. Each second: the share of mesh places that hostile nodes hold, and the fewest honest peers."""

    since: int
    published: dict[MessageId, int] = field(default_factory=dict)
    in_time: int = 0
    rejected: int = 0
    answers: int = 0
    squatted: list[float] = field(default_factory=list)
    fewest: list[int] = field(default_factory=list)

    def observe(self, t: int, node: Peer, kind: str, topic: str | None, msg: MessageId | None, *row: Any) -> None:
        peer, lane = row[0], row[4]
        if t < self.since:
            return
        if kind == PUBLISH and msg is not None:
            self.published[msg] = t
        elif kind == DELIVER and msg in self.published and msg is not None and msg.source != node:
            self.in_time += t - self.published[msg] <= LATE
        elif kind == REJECT:
            self.rejected += 1
        elif kind == SEND and lane is Lane.CONTROL and int(node) < HONEST and peer is not None and int(peer) >= HONEST:
            self.answers += 1

    def look(self, sim: Simulator) -> None:
        meshes = [[int(peer) < HONEST for peer in router.meshes.topics["t0"].peers] for router in routers(sim)]
        self.squatted.append(1 - mean(honest for mesh in meshes for honest in mesh))
        self.fewest.append(min(map(sum, meshes)))

    @property
    def late(self) -> float:
        """The share of deliveries that were late or never came."""
        return 1 - self.in_time / (len(self.published) * (HONEST - 1))


def routers(sim: Simulator) -> list[GossipSub]:
    found = [sim.nodes[number].machines[-1] for number in range(HONEST)]
    return [router for router in found if isinstance(router, GossipSub)]


def harm(
    attack: AnyAttack,
    *,
    since: float,
    until: float,
    app: Callable[[Peer], float] | None = None,
    overlay: Options | None = None,
    router: Options | None = None,
    score: Mapping[str, float] | None = None,
) -> Harm:
    """Run it, with these weights and other numbers of the score, and see what happens in the last part."""
    text = ", ".join(f"{name}={value}" for name, value in {**dict.fromkeys(WEIGHTS, 0), **(score or {})}.items())
    chosen = Scenario(
        stack="static/gossipsub",
        nodes=HONEST,
        duration=until,
        warmup=2.0,
        overlay={"degree": DEGREE, **(overlay or {})},
        router={**ROUTER, **ALONE, "score_with": text, **(router or {})},
        latency=Uniform(low=22.5, high=27.5),
        workload=Workload(messages=round((until - 4) * 5), rate=5.0),
        attacks=(attack,),
    )
    reading.validate(chosen)
    note_replay(command(chosen))
    seen = Harm(round(since * SECOND))
    sim = build(chosen, Tracer(observer=seen, hashed=False))
    nodes = Nodes(chosen, stacks.find(chosen.stack, chosen.overlay, chosen.router), sim)
    nodes.start(nodes.stack.introduce(HONEST, sim.stream("overlay")))
    for each in routers(sim):
        assert isinstance(each.standing.score, Score)
        each.standing.score.app = app
    Siege(sim, chosen.attacks, HONEST, nodes.topics)
    nodes.schedule()
    for second in range(round(since), round(until)):
        sim.run(second * SECOND)
        seen.look(sim)
    sim.run(round(until * SECOND))
    return seen


def test_p1_time_in_mesh_keeps_those_who_were_there_first() -> None:
    """A crowd grafts itself into meshes that stand, again after each back-off of 10 s; whom a cut displaces is chance.

    Harm: meshes lose their honest peers, and messages come late, by gossip, since the crowd does not forward.
    """
    crowd = Silent(at=30.0, nodes=60, degree=15)
    short: Options = {"prune_backoff": 10 * SECOND}
    harmed = harm(crowd, since=45, until=70, router=short)
    safe = harm(crowd, since=45, until=70, router=short, score={"time_in_mesh_weight": 0.01})
    assert min(harmed.fewest) == 0 and harmed.late > 0.2
    assert min(safe.fewest) == DEGREE and safe.late == 0


def test_p2_first_deliveries_bring_the_useful_into_a_mesh_of_squatters() -> None:
    """Squatters were first and fill the meshes; honest nodes outside of them bring the messages, but only by gossip.

    Harm: late messages. P2 works by opportunistic grafting, each five heartbeats here, and is given 45 s.
    """
    squatters = Silent(at=0.0, nodes=60, degree=15)
    often: Options = {"opportunistic_every": 5}
    harmed = harm(squatters, since=50, until=70, overlay=DAWN, router=often)
    safe = harm(squatters, since=50, until=70, overlay=DAWN, router=often, score={"first_deliveries_weight": 0.5})
    assert harmed.late > 0.9 and max(harmed.fewest) == 0
    assert safe.late == 0 and min(safe.fewest) > 0


def test_p3_a_deficit_of_mesh_deliveries_ends_a_place_in_the_mesh() -> None:
    """Squatters that were first and do not forward. Harm: their places, and late messages.

    With P3 that is over 20 s after the start: a deficit counts 10 s after the GRAFT, and honest nodes dial each other after 5 s.
    """
    squatters = Silent(at=0.0, nodes=20, degree=15)
    harmed = harm(squatters, since=20, until=50, overlay=DAWN)
    safe = harm(squatters, since=20, until=50, overlay=DAWN, score={**DEFICIT, "mesh_deliveries_weight": -1})
    assert harmed.late > 0.8 and min(harmed.squatted) > 0.9
    assert safe.late == 0 and max(safe.squatted) == 0


def test_p3b_a_failure_is_not_forgotten_with_the_place() -> None:
    """They are thrown out for their deficit, for P3 is on in both runs, and come again when the back-off of 10 s is over.

    Harm: they have most places again and again, and messages are late. With P3b only those come back whom a cut had pruned
    before their deficit counted, each once; after a minute they are few.
    """
    squatters = Silent(at=0.0, nodes=40, degree=15)
    short: Options = {"prune_backoff": 10 * SECOND}
    numbers = {**DEFICIT, "mesh_failure_decay": 0.999, "mesh_deliveries_weight": -1}
    harmed = harm(squatters, since=60, until=90, overlay=DAWN, router=short, score=numbers)
    safe = harm(squatters, since=60, until=90, overlay=DAWN, router=short, score={**numbers, "mesh_failure_weight": -1})
    assert harmed.late > 0.1 and min(harmed.squatted) > 0.5
    assert safe.late == 0 and max(safe.squatted) < 0.05


def test_p4_invalid_messages_are_looked_at_no_more() -> None:
    """Harm: invalid messages that honest nodes have to look at. With P4 that is over within 5 s, at the third of a peer."""
    spam = InvalidSpam(at=10.0, nodes=10, degree=15, rate=10)
    harmed = harm(spam, since=15, until=25)
    safe = harm(spam, since=15, until=25, score={"invalid_weight": -10})
    assert harmed.rejected > 0.9 * 10 * 15 * 10 * 10  # nodes, links, messages a second, seconds
    assert safe.rejected == 0 and max(safe.squatted) == 0


def test_p5_the_application_keeps_those_it_does_not_trust_out() -> None:
    """Squatters from the start, whom the application can tell from others. Harm: their places, and late messages."""
    squatters = Silent(at=0.0, nodes=60, degree=15)

    def app(peer: Peer) -> float:
        return 0.0 if int(peer) < HONEST else -1.0

    harmed = harm(squatters, since=20, until=40, app=app)
    safe = harm(squatters, since=20, until=40, app=app, score={"app_weight": 1})
    assert harmed.late > 0.5 and min(harmed.squatted) > 0.5
    assert safe.late == 0 and max(safe.squatted) == 0


def test_p6_many_on_one_address_have_no_place() -> None:
    """Squatters from the start, who share an address. Harm: their places, and late messages."""
    squatters = Silent(at=0.0, nodes=60, degree=15, hosts=1)
    harmed = harm(squatters, since=20, until=40)
    safe = harm(squatters, since=20, until=40, score={"colocation_weight": -5})
    assert harmed.late > 0.5 and min(harmed.squatted) > 0.5
    assert safe.late == 0 and max(safe.squatted) == 0


@pytest.mark.parametrize(
    "attack", [GraftSpam(at=10.0, nodes=60, degree=15), IHaveFlood(at=10.0, nodes=5, degree=15, announcements=10, ids=20)]
)
def test_p7_misbehaviour_is_answered_no_more(attack: AnyAttack) -> None:
    """GRAFT in spite of the back-off, and announcements of what nobody has.

    Harm: PRUNEs in answer, and IWANTs in vain. With P7 that is over within 15 s: back-offs and promises take some.
    """
    harmed = harm(attack, since=25, until=35, score={"behaviour_decay": 0.999})
    safe = harm(attack, since=25, until=35, score={"behaviour_decay": 0.999, "behaviour_weight": -10})
    assert harmed.answers > 5_000
    assert safe.answers == 0
