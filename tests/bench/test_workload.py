"""Who subscribes, who publishes when, and who comes and goes: counted in the rows of small runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import mean
from typing import Any, NamedTuple

import pytest

from libweft.bench.runs import reading
from libweft.bench.runs.attacks import Silent
from libweft.bench.runs.replay import command
from libweft.bench.runs.run import build
from libweft.bench.runs.scenario import Churn, Scenario
from libweft.bench.runs.scenario import Workload as Work
from libweft.bench.runs.sybils import Siege
from libweft.bench.runs.workload import Workload
from libweft.overlays.static import Static
from libweft.peer.errors import UsageError
from libweft.peer.machine import SECOND, Lane, MessageId, Peer
from libweft.peer.sim import faults
from libweft.peer.sim.latency import Constant
from libweft.peer.sim.simulator import Simulator
from libweft.peer.trace.kinds import DELIVER, JOINED, LEAVE, LINK_DOWN, NODE_DOWN, NODE_UP, PUBLISH
from libweft.peer.trace.tracer import Tracer
from libweft.pubsub import stacks
from libweft.pubsub.router import Router
from tests.conftest import note_replay


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

    def of(self, *kinds: str) -> list[Row]:
        return [row for row in self if row.kind in kinds]


class Played(NamedTuple):
    rows: Rows
    workload: Workload
    sim: Simulator
    hash: str | None

    def published(self) -> list[Row]:
        return self.rows.of(PUBLISH)


def play(until: float = 0.0, **keys: Any) -> Played:
    """Run a scenario on a ring, until a second after its last publication at least."""
    keys = {"nodes": 20, "overlay": {"graph": "ring"}, "latency": Constant(ms=5.0), "warmup": 1.0, **keys}
    scenario = Scenario(**keys)
    reading.validate(scenario)
    note_replay(command(scenario))
    rows = Rows()
    tracer = Tracer(observer=rows)
    sim = build(scenario, tracer)
    workload = Workload(scenario, stacks.find(scenario.stack, scenario.overlay, scenario.router), sim)
    workload.start(workload.stack.introduce(scenario.nodes, sim.stream("overlay"), at_once=not scenario.join_every))
    sim.inject(faults.settle(scenario.faults, range(scenario.nodes), sim.stream("faults")))
    last = workload.schedule()
    sim.run(max(round(until * SECOND), last + SECOND))
    return Played(rows, workload, sim, tracer.hash)


def within(count: float, expected: float, deviations: float = 4.0, variance: float | None = None) -> bool:
    """As near as chance allows, for a count whose variance is its mean unless told otherwise."""
    return abs(count - expected) <= deviations * math.sqrt(expected if variance is None else variance)


def test_nodes_come_up_one_after_the_other_and_each_subscribes_when_it_comes() -> None:
    played = play(join_every=0.25, warmup=5.0, workload=Work(messages=1))
    moments = {number: number * SECOND // 4 for number in range(20)}
    assert {row.node: row.t for row in played.rows.of(NODE_UP)} == moments
    assert {row.node: row.t for row in played.rows.of(JOINED)} == moments
    assert len(played.rows.of(DELIVER)) == 20, "a ring that grew is a ring"


# Subscribers and publishers.


@pytest.mark.parametrize(("subscribers", "count"), [(0, 0), (0.0, 0), (1, 1), (7, 7), (0.01, 1), (0.25, 5), (1.0, 20), (20, 20)])
def test_as_many_nodes_subscribe_as_were_asked_for(subscribers: int | float, count: int) -> None:
    played = play(workload=Work(subscribers=subscribers, messages=0))
    assert len({row.node for row in played.rows.of(JOINED)}) == len(played.rows.of(JOINED)) == count


@pytest.mark.parametrize(("publishers", "count"), [(1, 1), (3, 3), (0.25, 5), (1.0, 20)])
def test_only_as_many_nodes_publish_as_were_asked_for(publishers: int | float, count: int) -> None:
    played = play(workload=Work(publishers=publishers, messages=200, rate=1_000.0, subscribers=0))
    assert len({row.node for row in played.published()}) == count


def test_publishers_take_turns_by_chance_alone() -> None:
    counts = Counter(row.node for row in play(workload=Work(publishers=4, messages=400, rate=1_000.0)).published())
    assert all(within(count, 100, variance=75) for count in counts.values())


@pytest.mark.parametrize("interests", [1, 3, 5])
def test_each_subscriber_has_so_many_different_topics(interests: int) -> None:
    joined = play(workload=Work(topics=5, interests=interests, messages=0, popularity="zipf")).rows.of(JOINED)
    assert len({(row.node, row.topic) for row in joined}) == len(joined) == 20 * interests


def test_who_publishes_and_subscribes_publishes_on_its_own_topics() -> None:
    played = play(workload=Work(topics=10, interests=2, messages=100, rate=1_000.0))
    for row in played.published():
        assert isinstance(row.node, int)
        assert row.topic in played.workload.interests[row.node]


def test_all_messages_are_published_once_each() -> None:
    played = play(workload=Work(messages=37))
    assert len({row.msg for row in played.published()}) == len(played.published()) == played.workload.published == 37


@pytest.mark.parametrize("size", [0, 100, 5_000])
def test_a_message_is_as_long_as_was_asked_for(size: int) -> None:
    assert len(play(workload=Work(messages=0, size=size)).workload.payload()) == size


@pytest.mark.parametrize("name", ["go", "sha256", "ethereum_altair"])
def test_where_ids_are_of_the_content_every_message_is_one_too(name: str) -> None:
    played = play(stack="static/gossipsub", router={"message_id": name}, workload=Work(messages=37))
    assert len(played.published()) == played.workload.published == 37


# The popularity of topics.


def topic_shares(**work: Any) -> tuple[Counter[str], int]:
    """How many subscriptions each topic has, of how many."""
    joined = play(nodes=2_000, workload=Work(messages=0, **work)).rows.of(JOINED)
    return Counter(str(row.topic) for row in joined), len(joined)


@pytest.mark.parametrize(
    ("work", "weight"),
    [
        ({"popularity": "uniform"}, lambda rank: 1.0),
        ({"popularity": "zipf", "exponent": 1.0}, lambda rank: 1 / rank),
        ({"popularity": "zipf", "exponent": 2.0}, lambda rank: rank**-2.0),
        ({"popularity": "zipf", "exponent": 0.0}, lambda rank: 1.0),
        ({"popularity": "exponential", "exponent": 0.5}, lambda rank: math.exp(-rank / 2)),
    ],
)
def test_topics_are_as_popular_as_their_law_says(work: dict[str, Any], weight: Any) -> None:
    counts, total = topic_shares(topics=8, **work)
    weights = [weight(rank) for rank in range(1, 9)]
    expected = [total * w / sum(weights) for w in weights]
    statistic = sum((counts[f"t{i}"] - e) ** 2 / e for i, e in enumerate(expected))
    assert statistic < 24.3  # chi-square with 7 degrees of freedom is above it once in a thousand


def test_who_subscribes_to_nothing_publishes_by_popularity() -> None:
    played = play(workload=Work(topics=3, popularity="zipf", exponent=2.0, subscribers=0, messages=2_000, rate=10_000.0))
    counts = Counter(row.topic for row in played.published())
    weights = [1.0, 1 / 4, 1 / 9]
    expected = [2_000 * w / sum(weights) for w in weights]
    assert sum((counts[f"t{i}"] - e) ** 2 / e for i, e in enumerate(expected)) < 13.8  # 2 degrees of freedom, one in a thousand


# When messages are published.


def gaps(rows: Sequence[Row]) -> list[int]:
    return [after.t - before.t for before, after in pairwise(rows)]


def test_regular_arrivals_come_from_the_warmup_on_at_equal_distances() -> None:
    published = play(warmup=2.5, workload=Work(messages=21, rate=8.0)).published()
    assert [row.t for row in published] == [2_500_000 + n * 125_000 for n in range(21)]


def test_regular_arrivals_do_not_drift() -> None:
    """A third of a second is no whole number of microseconds."""
    published = play(workload=Work(messages=31, rate=3.0, subscribers=0)).published()
    assert published[-1].t - published[0].t == 10 * SECOND


def test_phased_publishers_publish_at_equal_intervals_each_from_a_moment_of_its_own() -> None:
    published = play(workload=Work(messages=38, rate=20.0, arrivals="phased", publishers=0.5), nodes=20).published()
    assert len(published) == 38 and [row.t for row in published] == sorted(row.t for row in published)
    of_one = {node: [row.t for row in published if row.node == node] for node in {row.node for row in published}}
    assert len(of_one) == 10
    assert {after - before for several in of_one.values() for before, after in pairwise(several)} <= {499_999, 500_000, 500_001}
    assert len({several[0] for several in of_one.values()}) == 10
    assert all(SECOND <= several[0] <= 1.5 * SECOND for several in of_one.values())


def test_who_subscribes_to_all_topics_publishes_by_their_popularity() -> None:
    work = Work(topics=4, interests=4, popularity="zipf", exponent=2.0, messages=300, rate=1_000.0)
    counts = Counter(row.topic for row in play(workload=work, nodes=4).published())
    assert counts["t0"] > 2 * counts["t1"] > 0


def test_poisson_arrivals_have_the_rate_and_the_spread_of_poisson() -> None:
    published = play(workload=Work(messages=2_000, rate=50.0, arrivals="poisson", subscribers=0), nodes=4).published()
    found = gaps(published)
    assert published[0].t == SECOND
    assert mean(found) == pytest.approx(20_000, rel=4 / math.sqrt(2_000))
    assert mean(gap > 20_000 for gap in found) == pytest.approx(math.exp(-1), abs=0.05)
    assert mean((gap / 20_000 - 1) ** 2 for gap in found) == pytest.approx(1.0, abs=0.25)


def test_schedule_answers_with_the_moment_of_the_last_publication() -> None:
    played = play(workload=Work(messages=9, arrivals="poisson"))
    assert played.sim.now == played.published()[-1].t + SECOND


# Publishers that are down.


def test_a_message_whose_publisher_is_down_comes_from_one_that_is_up() -> None:
    crash = faults.Crash(at=0.5, nodes=tuple(range(19)))
    played = play(workload=Work(messages=30), faults=(crash,))
    assert [row.node for row in played.published()] == [19] * 30


def test_a_message_is_not_published_where_every_publisher_is_down() -> None:
    crash = faults.Crash(at=0.5, nodes=tuple(range(20)))
    played = play(workload=Work(messages=30), faults=(crash,))
    assert played.published() == []
    assert played.workload.published == 0


def test_who_is_no_publisher_does_not_step_in() -> None:
    publisher = play(workload=Work(publishers=1, messages=1)).published()[0].node
    assert isinstance(publisher, int)
    crash = faults.Crash(at=0.5, nodes=(publisher,))
    assert play(workload=Work(publishers=1, messages=10), faults=(crash,)).published() == []


def test_a_restarted_node_subscribes_and_publishes_again() -> None:
    restart = faults.Restart(at=1.2, nodes=tuple(range(20)), down=0.2)
    played = play(workload=Work(messages=10, rate=10.0), faults=(restart,))
    joined = Counter(row.node for row in played.rows.of(JOINED))
    assert set(joined.values()) == {2}
    before = [row for row in played.published() if row.t < 1_200_000]
    after = [row for row in played.published() if row.t > 1_400_000]
    assert len(before) == 2
    assert len(after) == 5
    assert {row.msg for row in before}.isdisjoint({row.msg for row in after})


# Churn.


def populations(rows: Iterable[Row]) -> dict[int, int]:
    """How many nodes are up after all rows of each moment."""
    up, found = 0, {}
    for row in rows:
        up += {NODE_UP: 1, NODE_DOWN: -1}.get(row.kind, 0)
        found[row.t] = up
    return found


def churned(until: float, churn: Churn, **keys: Any) -> Played:
    quiet = {"workload": Work(messages=0), "nodes": 50, "overlay": {"graph": "ring", "degree": 2}}
    return play(until, **{**quiet, **keys, "churn": churn})


def test_without_churn_nobody_leaves() -> None:
    assert churned(60.0, Churn()).rows.of(NODE_DOWN) == []


def test_departures_come_at_the_rate_that_the_mean_session_gives() -> None:
    """With replacement 50 nodes are up at every moment, and each leaves once in 20 s on average."""
    played = churned(100.0, Churn(session=20.0))
    assert within(len(played.rows.of(NODE_DOWN)), 50 * 100 / 20)


def test_the_lengths_of_sessions_are_exponential() -> None:
    """Without replacement the share that is still up falls as exp(-t / mean)."""
    played = churned(60.0, Churn(session=20.0, replace=False), nodes=400)
    ends = sorted(row.t / SECOND for row in played.rows.of(NODE_DOWN))
    for t in (5, 20, 40):
        left = math.exp(-t / 20)
        assert within(sum(end > t for end in ends) + 400 - len(ends), 400 * left, variance=400 * left * (1 - left))


def test_replacement_keeps_the_population_at_every_moment() -> None:
    played = churned(60.0, Churn(session=10.0))
    assert len(played.rows.of(NODE_DOWN)) > 100
    assert set(populations(played.rows).values()) == {50}


def test_without_replacement_nobody_new_comes() -> None:
    played = churned(30.0, Churn(session=10.0, replace=False))
    assert len(played.rows.of(NODE_UP)) == 50


def test_a_newcomer_has_a_number_of_its_own_and_is_introduced_to_nodes_that_are_up() -> None:
    played = churned(30.0, Churn(session=20.0), overlay={"graph": "ring", "degree": 3})
    appeared = [row.node for row in played.rows.of(NODE_UP)]
    assert appeared == list(range(len(appeared)))
    up: set[Peer] = set()
    for row in played.rows.of(NODE_UP, NODE_DOWN):
        if row.kind == NODE_DOWN:
            up.remove(row.node)
            continue
        if isinstance(row.node, int) and row.node >= 50:
            overlay = played.sim.nodes[row.node].machines[0]
            assert isinstance(overlay, Static)
            assert len(overlay.contacts) == 3
            assert up.issuperset(overlay.contacts)
        up.add(row.node)


def test_a_newcomer_takes_over_the_part_of_the_one_that_left() -> None:
    churn = Churn(session=5.0)
    played = churned(30.0, churn, workload=Work(subscribers=10, publishers=5, messages=200, rate=10.0))
    up = {node.id for node in played.sim.nodes.values() if node.up}
    assert len(up & played.workload.interests.keys()) == 10
    assert len(up & set(played.workload.publishers)) == 5
    assert len(played.published()) == 200
    assert any(row.node in range(50, 10_000) for row in played.published())


@pytest.mark.parametrize(("graceful", "reason"), [(False, "churn"), (True, "left")])
def test_nodes_crash_or_say_goodbye_as_asked(graceful: bool, reason: str) -> None:
    played = churned(20.0, Churn(session=10.0, graceful=graceful))
    assert {row.reason for row in played.rows.of(NODE_DOWN)} == {reason}


def test_a_goodbye_shows_at_once_and_a_crash_after_the_detection_delay() -> None:
    found = {}
    for graceful in (False, True):
        churn = Churn(correlated=0.02, every=2.0, stop=2.0, replace=False, graceful=graceful)
        rows = churned(20.0, churn).rows
        (gone,) = rows.of(NODE_DOWN)
        lost = [row for row in rows.of(LINK_DOWN) if row.peer == gone.node]
        found[graceful] = {(row.t - gone.t, row.reason) for row in lost}
    assert found == {False: {(5 * SECOND, "timeout")}, True: {(5_000, "closed")}}


def test_a_share_of_the_nodes_leaves_together() -> None:
    played = churned(35.0, Churn(correlated=0.2, every=10.0, replace=False))
    together = Counter(row.t / SECOND for row in played.rows.of(NODE_DOWN))
    assert together == {10.0: 10, 20.0: 8, 30.0: 6}  # a fifth of 50, of 40 and of 32


def test_correlated_departures_are_replaced_too() -> None:
    played = churned(35.0, Churn(correlated=0.2, every=10.0))
    assert Counter(row.t / SECOND for row in played.rows.of(NODE_DOWN)) == {10.0: 10, 20.0: 10, 30.0: 10}
    assert set(populations(played.rows).values()) == {50}


def test_hostile_nodes_neither_leave_nor_are_replaced_by_honest_ones() -> None:
    scenario = Scenario(stack="static/gossipsub", nodes=20, churn=Churn(correlated=0.5, every=1.0), workload=Work(messages=0))
    sim = build(scenario, None)
    workload = Workload(scenario, stacks.find(scenario.stack, {}, {}), sim)
    workload.start(workload.stack.introduce(20, sim.stream("overlay")))
    Siege(sim, (Silent(nodes=40),), 20, workload.topics)
    workload.schedule()
    sim.run(10 * SECOND)
    honest = [number for number in sim.live if isinstance(sim.nodes[number].machines[-1], Router)]
    assert (len(honest), len(sim.live)) == (20, 60) and set(range(20, 60)) <= set(sim.live)


def test_churn_begins_at_its_start_and_ends_at_its_stop() -> None:
    played = churned(60.0, Churn(session=5.0, correlated=0.1, every=1.0, start=20.0, stop=30.0))
    moments = [row.t / SECOND for row in played.rows.of(NODE_DOWN)]
    assert len(moments) > 50
    assert min(moments) >= 20
    assert max(moments) <= 30
    assert max(moments) > 29


def test_correlated_departures_begin_one_period_after_the_start() -> None:
    played = churned(30.0, Churn(correlated=0.1, every=4.0, start=10.0))
    assert sorted({row.t / SECOND for row in played.rows.of(NODE_DOWN)}) == [14.0, 18.0, 22.0, 26.0, 30.0]


def test_subscriptions_end_and_begin_again_at_the_rate_of_their_mean() -> None:
    played = churned(100.0, Churn(subscriptions=10.0))
    changes = played.rows.of(JOINED, LEAVE)
    assert played.rows.of(NODE_DOWN) == []
    assert within(len(changes) - 50, 50 * 100 / 10)
    for node in range(50):
        own = [row.kind for row in changes if row.node == node]
        assert own == [JOINED if place % 2 == 0 else LEAVE for place in range(len(own))]


def test_only_subscribers_change_their_subscriptions_and_only_among_their_own_topics() -> None:
    played = churned(50.0, Churn(subscriptions=5.0), workload=Work(topics=6, interests=2, subscribers=10, messages=0))
    changes = played.rows.of(JOINED, LEAVE)
    assert len({row.node for row in changes}) == 10
    for row in changes:
        assert isinstance(row.node, int)
        assert row.topic in played.workload.interests[row.node]


def test_subscriptions_change_only_between_start_and_stop() -> None:
    left = [row.t / SECOND for row in churned(60.0, Churn(subscriptions=2.0, start=20.0, stop=30.0)).rows.of(LEAVE)]
    assert len(left) > 20
    assert max(left) <= 30
    assert min(left) >= 20


def test_subscribers_and_others_change_places_at_the_rate_of_the_mean() -> None:
    work = Work(subscribers=20, publishers=20, messages=100, rate=2.0)
    played = churned(100.0, Churn(swaps=1.0, stop=80.0), workload=work)
    left = played.rows.of(LEAVE)
    assert within(len(left), 80)
    assert [row.t for row in left] == [row.t for row in played.rows.of(JOINED)][20:]
    subscribed: set[object] = set()
    for row in played.rows:
        if row.kind == JOINED:
            subscribed.add(row.node)
        elif row.kind == LEAVE:
            subscribed.remove(row.node)
        elif row.kind == PUBLISH:
            assert row.node in subscribed
    assert subscribed == set(played.workload.interests)
    assert len(subscribed) == 20


def test_where_all_subscribe_nobody_changes_places() -> None:
    assert churned(30.0, Churn(swaps=1.0)).rows.of(LEAVE) == []


def test_newcomers_change_their_subscriptions_too() -> None:
    played = churned(60.0, Churn(session=10.0, subscriptions=2.0))
    assert any(row.node in range(50, 10_000) for row in played.rows.of(LEAVE))


# Determinism.


EVENTFUL: dict[str, Any] = {
    "workload": Work(topics=4, popularity="zipf", interests=2, subscribers=0.7, publishers=0.5, messages=20, arrivals="poisson"),
    "churn": Churn(session=10.0, correlated=0.1, every=3.0, subscriptions=5.0),
}


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    first, again, other = (churned(20.0, **EVENTFUL, seed=seed) for seed in (1, 1, 2))
    assert list(first.rows) == list(again.rows)
    assert first.hash == again.hash != other.hash


def test_churn_does_not_shift_who_subscribes_to_what_and_who_publishes_when() -> None:
    work = EVENTFUL["workload"]
    calm, stormy = churned(0.0, Churn(), workload=work), churned(0.0, Churn(session=1_000.0), workload=work)
    started = [[(row.node, row.topic) for row in played.rows.of(JOINED) if row.t == 0] for played in (calm, stormy)]
    assert started[0] == started[1]
    assert [row.t for row in calm.published()] == [row.t for row in stormy.published()]


def test_nodes_may_be_named_that_subscribe_and_publish() -> None:
    played = play(workload=Work(messages=6, subscribing=(3, 5, 8), publishing=(2, 5)))
    assert {row.node for row in played.rows.of(JOINED)} == {3, 5, 8}
    assert {row.node for row in played.published()} <= {2, 5}


@pytest.mark.parametrize(("name", "work"), [("subscribing", Work(subscribing=(20,))), ("publishing", Work(publishing=(20,)))])
def test_a_node_that_is_not_there_cannot_be_named(name: str, work: Work) -> None:
    with pytest.raises(UsageError, match=rf"workload\.{name} names node 20; nodes are numbered from 0 to 19"):
        play(workload=work)


def test_publishers_speak_once_each_at_moments_of_their_own() -> None:
    played = play(workload=Work(messages=10, rate=5.0, publishers=10, arrivals="phased"))
    said = played.published()
    assert len({row.node for row in said}) == len(said) == 10
    assert all(SECOND <= row.t <= 3 * SECOND for row in said)
    gaps = {later.t - earlier.t for earlier, later in pairwise(said)}
    assert len(gaps) == 9


def test_up_to_a_share_of_the_subscriptions_change_together() -> None:
    played = churned(100.0, Churn(changing=0.1, every=1.0, start=10.0, stop=90.0))
    changes = Counter(row.t for row in played.rows.of(LEAVE, JOINED) if row.t)
    assert set(changes) <= {number * SECOND for number in range(11, 91)}
    assert max(changes.values()) == 5
    assert within(sum(changes.values()), 80 * 2.5, variance=80 * 3.0)
    assert played.rows.of(NODE_DOWN) == []
