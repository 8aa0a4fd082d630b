"""Random networks, workloads and faults: what never happens whatever goes wrong, and what comes back once all is well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from libweft.bench.runs import reading
from libweft.bench.runs.app import router_of
from libweft.bench.runs.replay import command
from libweft.bench.runs.run import build
from libweft.bench.runs.scenario import Churn, Network, Scenario
from libweft.bench.runs.scenario import Workload as Work
from libweft.bench.runs.workload import Workload
from libweft.overlays import graphs
from libweft.peer.machine import SECOND, Lane, MessageId, Peer
from libweft.peer.sim import faults
from libweft.peer.sim.faults import AnyFault
from libweft.peer.sim.latency import Uniform
from libweft.peer.sim.simulator import Simulator
from libweft.peer.trace.kinds import DELIVER, DUPLICATE, JOINED, LEAVE, NODE_DOWN, NODE_UP, PUBLISH, RECEIVE, SEND
from libweft.peer.trace.tracer import Tracer
from libweft.pubsub import stacks
from tests.conftest import note_replay

LAST_FAULT = 16.0  # seconds: every fault that ends has ended by then
QUIET = 400.0  # longer than a skewed timer of the slowest retry, and a dial after it


class Row(NamedTuple):
    t: int
    node: Peer
    kind: str
    topic: str | None
    msg: MessageId | None
    peer: Peer | None
    hops: int | None
    copies: int | None
    size: int | None
    lane: Lane | None
    reason: str | None
    dependencies: tuple[MessageId, ...]


class Rows(list[Row]):
    def observe(self, *row: Any, **_: Any) -> None:
        self.append(Row(*row))


# What may go wrong.


def some_nodes(nodes: int, least: int = 0) -> st.SearchStrategy[tuple[int, ...]]:
    chosen = st.lists(st.integers(0, nodes - 1), min_size=least, max_size=nodes // 2, unique=True)
    return chosen.map(lambda numbers: tuple(sorted(numbers)))


def fault_of(nodes: int, codec: bool) -> st.SearchStrategy[AnyFault]:
    """Any fault; what lasts has a length, so that all but crashes is over by LAST_FAULT."""
    when = {"at": st.integers(0, 100).map(lambda tenths: tenths / 10)}
    spell = {**when, "duration": st.integers(1, 50).map(lambda tenths: tenths / 10)}
    ends = st.just(()) | some_nodes(nodes)  # nobody named is everybody
    link = {**spell, "sources": ends, "targets": ends}
    chance = {**link, "p": st.sampled_from([0.05, 0.5, 1.0])}
    victims = {**spell, "nodes": some_nodes(nodes, 1)}
    kinds: list[st.SearchStrategy[AnyFault]] = [
        st.builds(faults.Loss, **chance),
        st.builds(faults.BurstLoss, **chance),
        st.builds(faults.Duplicate, **chance),
        st.builds(faults.Reorder, **chance, ms=st.sampled_from([10.0, 500.0])),
        st.builds(faults.DelaySpike, **link, ms=st.sampled_from([10.0, 2_000.0])),
        st.builds(faults.Cut, **link),
        st.builds(faults.Partition, **spell, how=st.sampled_from(["halves", "isolate"])),
        st.builds(faults.Reset, **when, share=st.sampled_from([0.1, 0.5, 1.0])),
        st.builds(faults.Crash, **when, nodes=some_nodes(nodes, 1)),
        st.builds(faults.MassCrash, **when, share=st.sampled_from([0.1, 0.3])),
        st.builds(faults.Restart, **when, nodes=some_nodes(nodes, 1), down=st.sampled_from([0.0, 0.3, 3.0]), state=st.booleans()),
        st.builds(faults.SlowNode, **victims, factor=st.sampled_from([2.0, 20.0])),
        st.builds(faults.Nat, **victims),
        st.builds(faults.Skew, **victims, factor=st.sampled_from([0.5, 3.0])),
    ]
    if codec:
        kinds += [st.builds(faults.Truncate, **chance), st.builds(faults.Corrupt, **chance)]
    return st.one_of(kinds)


@st.composite
def scenes(draw: st.DrawFn) -> Scenario:
    nodes, codec = draw(st.integers(5, 30)), draw(st.booleans())
    degree = draw(st.sampled_from([degree for degree in (2, 3, 4, 5) if degree < nodes and nodes * degree % 2 == 0]))
    graph = draw(st.sampled_from(["regular", "ring"] if nodes > 7 else ["regular", "ring", "full"]))
    bandwidth = draw(st.sampled_from([0.0, 0.0, 50_000.0]))
    return Scenario(
        nodes=nodes,
        seed=draw(st.integers(0, 1_000)),
        warmup=draw(st.sampled_from([0.0, 1.0])),
        overlay={"graph": graph, "degree": degree},
        latency=Uniform(low=10.0, high=100.0, draw=draw(st.sampled_from(["copy", "send"]))),
        network=Network(codec=codec, detection=draw(st.sampled_from([0.5, 5.0])), bandwidth=bandwidth),
        workload=Work(
            topics=draw(st.integers(1, 3)),
            subscribers=draw(st.sampled_from([0.5, 1.0])),
            publishers=draw(st.sampled_from([1, 1.0])),
            messages=draw(st.integers(5, 25)),
            rate=2.0,
        ),
        churn=Churn(subscriptions=draw(st.sampled_from([0.0, 0.0, 3.0]))),
        faults=tuple(draw(st.lists(fault_of(nodes, codec), min_size=1, max_size=8))),
    )


class Played(NamedTuple):
    rows: Rows
    sim: Simulator
    workload: Workload
    plan: Sequence[AnyFault]
    tracer: Tracer


def play(scenario: Scenario) -> Played:
    reading.validate(scenario)
    note_replay(command(scenario))
    rows = Rows()
    tracer = Tracer(observer=rows)
    sim = build(scenario, tracer)
    workload = Workload(scenario, stacks.find(scenario.stack, scenario.overlay, scenario.router), sim)
    plan = faults.settle(scenario.faults, range(scenario.nodes), sim.stream("faults"))
    workload.start(workload.stack.introduce(scenario.nodes, sim.stream("overlay")))
    sim.inject(plan)
    last = workload.schedule()
    sim.run(max(round(LAST_FAULT * SECOND), last + 10 * SECOND))
    return Played(rows, sim, workload, plan, tracer)


# What never happens.


def deliveries_are_right(rows: Rows) -> None:
    """Only to who is joined, only what was published, and once in each life of a node."""
    published: dict[MessageId, str | None] = {}
    joined: set[tuple[Peer, str | None]] = set()
    lives: Counter[Peer] = Counter()
    delivered: set[tuple[Peer, int, MessageId | None]] = set()
    for row in rows:
        match row.kind:
            case "node_up":
                lives[row.node] += 1
            case "node_down":
                joined = {(node, topic) for node, topic in joined if node != row.node}
            case "joined":
                joined.add((row.node, row.topic))
            case "leave":
                joined.discard((row.node, row.topic))
            case "publish":
                assert row.msg is not None and row.msg not in published
                assert row.msg.source == row.node
                published[row.msg] = row.topic
            case "deliver":
                assert row.msg in published, "delivered, and never published"
                assert published[row.msg] == row.topic
                assert (row.node, row.topic) in joined, "delivered, and not subscribed"
                assert (row.node, lives[row.node], row.msg) not in delivered, "delivered twice"
                delivered.add((row.node, lives[row.node], row.msg))


def time_only_goes_forward(rows: Rows) -> None:
    assert all(before.t <= after.t for before, after in pairwise(rows))


def only_live_nodes_do_anything(rows: Rows) -> None:
    up: set[Peer] = set()
    for row in rows:
        if row.kind == NODE_UP:
            assert row.node not in up
            up.add(row.node)
        elif row.kind != "drop":
            assert row.node in up, f"{row.kind} of a node that is down"
        if row.kind == NODE_DOWN:
            up.remove(row.node)


def what_is_received_was_sent(rows: Rows, duplicators: int) -> None:
    """By that peer, before, and in no more copies than left it, but for those that a fault doubled."""
    sent: Counter[MessageId | None] = Counter()
    senders: set[tuple[Peer | None, MessageId | None]] = set()
    received: Counter[MessageId | None] = Counter()
    for row in rows:
        if row.kind == SEND:
            assert row.lane is Lane.PAYLOAD and row.copies is not None and row.copies > 0
            sent[row.msg] += row.copies
            senders.add((row.node, row.msg))
        elif row.kind in (RECEIVE, DUPLICATE):
            assert (row.peer, row.msg) in senders, "received from somebody who did not send it"
            assert row.peer != row.node
            received[row.msg] += 1
            assert received[row.msg] <= sent[row.msg] * 2**duplicators


def a_message_costs_each_life_one_send(rows: Rows) -> None:
    """So what a publish sets off is bounded by the lives of nodes times their neighbours."""
    lives: Counter[Peer] = Counter()
    neighbors: Counter[Peer] = Counter()
    sends: set[tuple[Peer, int, MessageId | None]] = set()
    for row in rows:
        match row.kind:
            case "node_up":
                lives[row.node] += 1
                neighbors[row.node] = 0
            case "neighbor_up":
                neighbors[row.node] += 1
            case "neighbor_down":
                neighbors[row.node] -= 1
            case "send":
                assert (row.node, lives[row.node], row.msg) not in sends
                sends.add((row.node, lives[row.node], row.msg))
                assert row.copies is not None and row.copies <= neighbors[row.node]


def events_are_bounded(played: Played) -> None:
    """Copies handed over, link upcalls (two machines a node hear each row) and the overlay's retries, which are timers.

    A retry follows a link that went down or a dial that failed, and dials fail at most once in each second for a contact.
    """
    rows, sim = played.rows, played.sim
    copies = sum(row.copies or 0 for row in rows if row.kind == SEND)
    links = sum(row.kind in ("link_up", "link_down") for row in rows)
    contacts = played.workload.stack.introduce(len(sim.nodes), sim.stream("overlay"))
    dials = sim.now // SECOND * sum(len(peers) for peers in contacts)
    doubled = 2 ** sum(isinstance(fault, faults.Duplicate) for fault in played.plan)
    assert sim.events <= copies * doubled + 4 * links + 4 * dials + 100


TWICE_TRUNCATED = Scenario(
    nodes=5,
    overlay={"graph": "full"},
    network=Network(codec=True),
    workload=Work(messages=20, rate=10.0),
    faults=(faults.Truncate(at=0.5, p=1.0), faults.Truncate(at=0.5, p=0.9)),
)


@given(scenario=scenes())
@example(scenario=TWICE_TRUNCATED)  # the first may leave nothing for the second
@settings(max_examples=220)
def test_whatever_goes_wrong_deliveries_are_right_and_the_run_is_the_same_again(scenario: Scenario) -> None:
    played = play(scenario)
    rows = played.rows
    time_only_goes_forward(rows)
    only_live_nodes_do_anything(rows)
    events_are_bounded(played)
    # a frame with one byte changed may be a whole message of other content, since nothing signs it here
    if not played.sim.network.counts["corrupted"]:
        deliveries_are_right(rows)
        what_is_received_was_sent(rows, sum(isinstance(fault, faults.Duplicate) for fault in played.plan))
        a_message_costs_each_life_one_send(rows)
    for kind in (*played.sim.network.counts, *(type(fault).__name__ for fault in scenario.faults)):
        event(kind)
    assert play(scenario).tracer.hash == played.tracer.hash


# What comes back.


def edges_among_survivors(scenario: Scenario, sim: Simulator) -> list[tuple[int, int]]:
    degree = int(scenario.overlay["degree"])
    edges = graphs.draw(str(scenario.overlay["graph"]), scenario.nodes, degree, sim.stream("overlay"))
    return [(a, b) for a, b in edges if sim.nodes[a].up and sim.nodes[b].up]


def standing(rows: Rows, up: str, down: str) -> dict[Peer, set[Peer | None]]:
    """With whom each node's latest life is linked, or neighbours, by its rows."""
    found: dict[Peer, set[Peer | None]] = {}
    for row in rows:
        if row.kind == NODE_UP:
            found[row.node] = set()
        elif row.kind == up:
            found[row.node].add(row.peer)
        elif row.kind == down:
            found[row.node].discard(row.peer)  # of a dial that failed too
    return found


@given(scenario=scenes())
@settings(max_examples=150)
def test_after_the_faults_every_link_of_the_survivors_is_back_and_a_fresh_message_gets_everywhere(scenario: Scenario) -> None:
    played = play(scenario)
    sim = played.sim
    sim.run(sim.now + round(QUIET * SECOND))
    edges, survivors = edges_among_survivors(scenario, sim), [node for node in sim.nodes.values() if node.up]
    neighbors, links = (standing(played.rows, f"{what}_up", f"{what}_down") for what in ("neighbor", "link"))
    for node in survivors:
        near = {b if a == node.id else a for a, b in edges if node.id in (a, b)}
        assert neighbors[node.id] == near == links[node.id]
    if not survivors:
        return
    for node in survivors:
        router_of(node).join("fresh")
    publisher = router_of(survivors[scenario.seed % len(survivors)])
    fresh = publisher.compose("fresh", b"")
    publisher.publish(fresh)
    sim.run(sim.now + 60 * SECOND)
    reached = sorted(row.node for row in played.rows if row.kind == DELIVER and row.msg == fresh.id and isinstance(row.node, int))
    assert reached == sorted(graphs.distances(scenario.nodes, edges, survivors[scenario.seed % len(survivors)].id))
    event("all survivors" if len(reached) == len(survivors) else "the survivors' graph fell apart")


def test_the_checks_above_see_what_they_look_for() -> None:
    """Each kind of row that they count is in the trace of a plain run."""
    rows = play(Scenario(nodes=10, workload=Work(messages=2), churn=Churn(subscriptions=1.0))).rows
    assert {row.kind for row in rows} >= {NODE_UP, JOINED, LEAVE, PUBLISH, SEND, RECEIVE, DUPLICATE, DELIVER}
