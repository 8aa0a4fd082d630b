"""Meshes: who is grafted and pruned, when, and what is said of it; back-offs; fanouts that become meshes; direct peers.

Limits of peers are small here, so that few are needed: a mesh has 3 peers, is mended below 2 and cut at 4.
"""

from __future__ import annotations

from typing import Any

import pytest

from libweft.peer.errors import UsageError
from libweft.peer.machine import SECOND, PeerInfo
from libweft.peer.trace.kinds import GRAFT, PRUNE
from libweft.pubsub.gossipsub.config import GossipSubConfig
from libweft.pubsub.gossipsub.mesh import FANOUTS
from libweft.pubsub.gossipsub.messages import Graft, Prune, Pruned
from libweft.pubsub.rpc import Subscriptions
from tests.pubsub.gossipsub.world import FLOODSUB, V10, V11, V12, V13, Node, message, pruned

SMALL: dict[str, Any] = {"d": 3, "d_lo": 2, "d_hi": 4, "d_score": 1, "d_out": 1}
MINUTE = 60 * SECOND


def small(*topics: str, **config: Any) -> Node:
    return Node(*topics, **{**SMALL, **config})


# Parameters.


@pytest.mark.parametrize(
    "wrong",
    [
        {"d": 4},
        {"d": 13},
        {"d_lo": 7},
        {"d_hi": 5},
        {"d_score": 13},
        {"d_out": 5},
        {"d_out": 4},
        {"d": 0},
        {"history_gossip": 6},
        {"px_peers": 17},
        {"gossip_factor": 1.5},
        {"gossip_factor": float("nan")},
        {"heartbeat": 0},
        {"heartbeat": 999},
        {"history": 10_000_000, "seen_ttl": 1 << 62},
        {"unsubscribe_backoff": 0},
        {"backoff_most": SECOND},
        {"seen_ttl": 5 * SECOND},
        {"message_id": "python"},
        {"d": -1},
    ],
    ids=str,
)
def test_parameters_that_do_not_fit_each_other_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        GossipSubConfig(**wrong)


def test_a_node_that_only_introduces_others_has_no_mesh() -> None:
    node = Node("t", d=0, d_lo=0, d_hi=0, d_out=0)
    node.up(*range(1, 9))
    node.beat(2)
    assert node.mesh() == [] and node.said(Graft) == []
    node.grafts(1)
    [refused] = pruned(node, 1)
    assert refused.backoff == 60 and {info.peer for info in refused.peers} == set(range(2, 9))


def test_parameters_that_are_given_reach_the_mesh() -> None:
    node = small()
    node.up(*range(1, 12))
    node.router.join("t")
    assert len(node.mesh()) == 3


# Growing.


def test_a_heartbeat_grows_a_mesh_that_is_too_small_to_d() -> None:
    node = Node("t")
    node.up(*range(1, 5))
    node.prunes(1, 2, backoff=1)
    node.up(*range(11, 31), topics=())
    for peer in range(11, 31):
        node.router.subscribed(peer, "t")
    node.beat()
    assert len(node.mesh()) == 6 and {3, 4} < set(node.mesh())
    assert node.told(Graft) == sorted(set(node.mesh()) - {3, 4})


def test_a_mesh_that_is_large_enough_is_left_alone() -> None:
    node = small("t", d_out=0)
    node.up(*range(1, 10))
    node.beat(5)
    assert node.mesh() == [1, 2] and node.said(Graft) == []


def test_who_is_grafted_is_chance() -> None:
    chosen = set()
    for seed in range(5):
        node = small()
        node.env.rng.seed(seed)
        node.up(*range(1, 30))
        node.router.join("t")
        chosen |= set(node.mesh())
    assert len(chosen) > 8


def test_who_subscribes_is_grafted_at_once_while_the_mesh_lacks_peers() -> None:
    node = small("t")
    node.up(1, 2, 3, topics=())
    for peer in (1, 2, 3):
        node.hear(peer, Subscriptions(((True, "t"),)))
    assert node.mesh() == [1, 2] and node.env.take() == [(1, Graft(("t",))), (2, Graft(("t",)))]


def test_who_subscribes_to_a_topic_that_is_not_joined_here_is_not_grafted() -> None:
    node = small("other")
    node.up(1, topics=())
    node.hear(1, Subscriptions(((True, "t"),)))
    assert node.env.take() == []


def test_who_subscribes_within_its_back_off_is_not_grafted() -> None:
    node = small("t")
    node.up(1)
    node.prunes(1)
    node.hear(1, Subscriptions(((False, "t"),)), Subscriptions(((True, "t"),)))
    assert node.mesh() == []


def test_who_subscribes_with_a_negative_score_is_not_grafted_and_neither_is_its_graft_taken() -> None:
    node = small("t")
    node.rate(p1=-1)
    node.up(1, topics=())
    node.hear(1, Subscriptions(((True, "t"),)), Graft(("t",)))
    assert node.mesh() == [] and pruned(node, 1) == [Pruned("t", (), 60)]


@pytest.mark.parametrize("version", [V10, V11, V12, V13])
def test_every_version_but_floodsub_can_be_in_a_mesh(version: str) -> None:
    node = small("t")
    node.up(1, protocol=version)
    node.up(2, protocol=FLOODSUB)
    node.beat()
    assert node.mesh() == [1]


def test_one_message_grafts_several_topics() -> None:
    node = small("a", "b", "c")
    node.up(1, topics="abc")
    node.prunes(1, topic="a", backoff=1)
    node.hear(1, Prune((Pruned("b", (), 1), Pruned("c", (), 1))))
    node.wait(2 * SECOND)
    node.forget()
    node.hear(1, Graft(("a", "b", "c")))
    assert [node.mesh(topic) for topic in "abc"] == [[1], [1], [1]] and node.env.take() == []


def test_what_a_heartbeat_changes_goes_out_in_one_message_a_peer() -> None:
    node = small(*(f"topic {number}" for number in range(35)))
    node.up(1, topics=())
    for number in range(35):
        node.router.subscribed(1, f"topic {number}")
    node.beat()
    [grafts] = node.said(Graft, 1)
    assert len(grafts.topics) == 35


# GRAFT.


def test_a_graft_of_a_joined_topic_is_taken_without_a_word() -> None:
    node = small("t")
    node.up(1, 2, 3)
    node.grafts(3)
    assert node.mesh() == [1, 2, 3] and node.env.take() == []
    assert [(row.kind, row.topic, row.peer) for row in node.env.traced] == [(GRAFT, "t", 3)]
    assert 3 in node.env.holds


def test_a_graft_of_a_topic_that_is_not_joined_gets_no_answer() -> None:
    node = small("other")
    node.up(1)
    node.grafts(1)
    assert node.env.take() == [] and "t" not in node.router.meshes.topics and len(node.router.meshes.backoff) == 0


def test_a_graft_says_that_its_sender_subscribes() -> None:
    node = small("t")
    node.up(1, topics=())
    node.grafts(1)
    assert node.mesh() == [1] and list(node.router.subscribers["t"]) == [1]


def test_a_graft_from_one_who_is_in_the_mesh_changes_nothing() -> None:
    node = small("t")
    node.up(1)
    node.grafts(1, 1)
    assert node.mesh() == [1] and node.env.take() == [] and node.env.take_traced() == []


def test_a_full_mesh_refuses_a_graft_with_introductions_and_takes_one_that_was_dialled_from_here() -> None:
    node = small("t")
    node.up(1, 2, 3, 4, 5)
    node.grafts(3, 4)
    node.grafts(5)
    [refused] = pruned(node, 5)
    assert node.mesh() == [1, 2, 3, 4] and refused.backoff == 60 and len(refused.peers) == 4
    assert node.backoff(5) == MINUTE
    node.up(6, outbound=True)
    node.grafts(6)
    assert node.mesh() == [1, 2, 3, 4, 6]


def test_a_graft_of_a_floodsub_peer_is_passed_over() -> None:
    node = small("t")
    node.up(1, protocol=FLOODSUB)
    node.grafts(1)
    assert node.mesh() == [] and node.env.take() == []


def test_a_graft_of_one_who_has_no_room_left_for_topics_is_refused() -> None:
    node = small("t", subscriptions=2)
    node.up(1, topics=("a", "b", "t"))
    node.up(2)
    assert node.mesh() == [2]
    node.grafts(1)
    assert node.mesh() == [2] and pruned(node, 1) == [Pruned("t", (), 60)]


# PRUNE and back-offs.


def test_a_prune_takes_its_sender_out_for_as_long_as_it_says() -> None:
    node = small("t")
    node.up(1)
    node.forget()
    node.prunes(1, backoff=7)
    assert node.mesh() == [] and node.backoff(1) == 7 * SECOND and node.env.take() == []
    assert [(row.kind, row.peer) for row in node.env.traced] == [(PRUNE, 1)]


def test_a_prune_that_names_no_time_has_the_usual_one() -> None:
    node = small("t", prune_backoff=40 * SECOND)
    node.up(1)
    node.prunes(1)
    assert node.backoff(1) == 40 * SECOND


def test_a_back_off_that_a_peer_asks_for_is_bounded_and_never_shortened() -> None:
    node = small("t")
    node.up(1)
    node.prunes(1, backoff=2**63)
    assert node.backoff(1) == 3_600 * SECOND
    node.prunes(1, backoff=1)
    assert node.backoff(1) == 3_600 * SECOND


def test_a_prune_of_a_topic_that_is_not_joined_is_passed_over() -> None:
    node = small("other")
    node.up(1)
    node.prunes(1, px=[PeerInfo(8)])
    assert len(node.router.meshes.backoff) == 0 and node.env.holds == {}


def test_nobody_is_grafted_within_its_back_off_and_everybody_after_it() -> None:
    node = small("t")
    node.up(1)
    node.prunes(1, backoff=5)
    node.forget()
    node.beat(6)
    assert node.mesh() == [] and node.said(Graft) == []
    node.beat(15)
    assert node.mesh() == [1] and node.told(Graft) == [1]


def test_a_back_off_that_ended_less_than_the_slack_ago_still_counts_here() -> None:
    node = small("t")
    node.up(1)
    node.prunes(1, backoff=14)
    node.forget()
    node.beat(15)
    assert node.backoff(1) <= 0 and node.said(Graft) == []
    node.beat(15)
    assert node.told(Graft) == [1]


def test_a_graft_within_the_back_off_is_refused_and_blamed_once() -> None:
    node = small("t")
    node.up(1)
    node.prunes(1)
    node.wait(11 * SECOND)
    node.forget()
    node.grafts(1)
    assert node.mesh() == [] and pruned(node, 1) == [Pruned("t", (), 60)]
    assert node.backoff(1) == MINUTE
    assert node.score._peers[1].behaviour == 1


def test_a_graft_right_after_the_prune_is_blamed_twice() -> None:
    node = small("t")
    node.up(1)
    node.prunes(1)
    node.wait(9 * SECOND)
    node.grafts(1)
    assert node.score._peers[1].behaviour == 2


def test_who_grafts_on_and_on_within_its_back_off_is_shunned_in_the_end() -> None:
    node = small("t")
    node.up(1)
    node.prunes(1)
    said = []
    for _ in range(4):
        node.wait(SECOND)
        node.forget()
        node.grafts(1)
        said.append(len(pruned(node, 1)))
    assert said == [1, 1, 1, 0] and node.mesh() == []
    assert node.value(1) < node.router.standing.thresholds.graylist


def test_a_graft_after_the_back_off_is_welcome_though_nothing_was_swept_yet() -> None:
    node = small("t")
    node.up(1)
    node.prunes(1, backoff=5)
    node.wait(5 * SECOND)
    node.forget()
    node.grafts(1)
    assert node.mesh() == [1] and node.env.take() == []


def test_whoever_a_heartbeat_prunes_has_a_back_off_here_too() -> None:
    node = small("t", prune_backoff=33 * SECOND)
    node.up(1)
    node.rate(p1=-1)
    node.beat()
    assert pruned(node, 1) == [Pruned("t", (), 33)] and node.backoff(1) == 33 * SECOND
    node.rate()
    node.beat(5)
    assert node.mesh() == []


def test_version_10_is_told_neither_back_off_nor_peers() -> None:
    node = small("t")
    node.up(1, 2)
    node.up(3, protocol=V10)
    node.grafts(3)
    node.forget()
    node.router.leave("t")
    assert pruned(node, 3) == [Pruned("t", (), 0)]
    assert [(each.backoff, len(each.peers)) for each in pruned(node, 1)] == [(10, 2)]


# Cutting.


def test_a_mesh_that_is_too_large_is_cut_to_d() -> None:
    node = small("t")
    node.up(*range(1, 9), outbound=True)
    node.grafts(*range(1, 9))
    node.beat()
    assert len(node.mesh()) == 3
    gone = [peer for peer in range(1, 9) if peer not in node.mesh()]
    assert node.told(Prune) == gone and all(node.backoff(peer) == MINUTE for peer in gone)
    assert all(pruned(node, peer)[0].peers for peer in gone)


def test_a_full_mesh_is_cut_so_that_there_is_room_for_others() -> None:
    node = small("t")
    node.up(*range(1, 6))
    node.grafts(3)
    node.beat()
    assert node.mesh() == [1, 2, 3]
    node.grafts(4)
    node.beat()
    assert len(node.mesh()) == 3
    node.grafts(5)
    assert 5 in node.mesh()


def test_a_mesh_of_more_than_d_is_not_cut_before_it_is_full() -> None:
    node = small("t", d_hi=6)
    node.up(*range(1, 6))
    node.grafts(*range(1, 6))
    node.beat(3)
    assert node.mesh() == [1, 2, 3, 4, 5]


def test_the_best_stay_when_a_mesh_is_cut() -> None:
    node = small("t", d_score=2, d_out=0)
    node.rate(p3=5, p6=7, p1=1)
    node.up(*range(1, 9), outbound=True)
    node.grafts(*range(1, 9))
    node.beat()
    assert {3, 6} < set(node.mesh())


def test_beside_the_best_it_is_chance_who_stays() -> None:
    kept = set()
    for seed in range(6):
        node = small("t", d_score=1, d_out=0)
        node.env.rng.seed(seed)
        node.rate(p1=5, p2=4)
        node.up(*range(1, 20), outbound=True)
        node.grafts(*range(1, 20))
        node.beat()
        kept |= set(node.mesh())
    assert len(kept) > 5


@pytest.mark.parametrize("d_score", [1, 3, 4])
def test_links_dialled_from_here_stay_when_a_mesh_is_cut(d_score: int) -> None:
    node = Node("t", d=4, d_lo=3, d_hi=6, d_score=d_score, d_out=2)
    node.rate(**{f"p{peer}": 5 for peer in range(1, 7)})
    node.up(*range(1, 7))
    node.grafts(*range(1, 7))
    node.up(7, 8, outbound=True)
    node.grafts(7, 8)
    assert len(node.mesh()) == 8
    node.beat()
    assert len(node.mesh()) == 4 and {7, 8} < set(node.mesh())


def test_where_the_best_must_make_room_those_dialled_from_here_do_not() -> None:
    node = Node("t", d=4, d_lo=3, d_hi=6, d_score=4, d_out=2)
    node.rate(p1=5, p2=5, p3=5, p7=4)
    node.up(*range(1, 7))
    node.grafts(*range(1, 7))
    node.up(7, 8, outbound=True)
    node.grafts(7, 8)
    node.beat()
    assert len(node.mesh()) == 4 and {7, 8} < set(node.mesh()) < {1, 2, 3, 7, 8}


# Links dialled from here.


def test_a_mesh_that_is_large_enough_still_takes_links_dialled_from_here() -> None:
    node = small("t")
    node.up(1, 2, 3)
    node.grafts(3)
    node.up(4, topics=(), outbound=True)
    node.router.subscribed(4, "t")
    node.beat()
    assert node.mesh() == [1, 2, 3, 4] and node.told(Graft) == [4]


def test_a_mesh_with_enough_links_dialled_from_here_takes_no_more() -> None:
    node = small("t")
    node.up(1, outbound=True)
    node.up(2)
    node.up(3, 4, outbound=True)
    node.beat()
    assert node.mesh() == [1, 2]


# Opportunistic grafting.


def test_a_poor_mesh_takes_two_that_are_better_than_its_median() -> None:
    node = small("t", opportunistic_every=3, d_out=0)
    node.up(*range(1, 9))
    node.rate(p3=0.5, p4=0.5, p5=0.5, p6=-0.5, p7=0.0)
    node.beat(2)
    assert node.mesh() == [1, 2]
    node.beat()
    assert len(node.mesh()) == 4 and set(node.mesh()) <= {1, 2, 3, 4, 5} and len(node.said(Graft)) == 2


def test_a_mesh_whose_median_is_good_takes_nobody_though_others_are_better() -> None:
    node = small("t", opportunistic_every=3, d_out=0)
    node.up(*range(1, 9))
    node.rate(p1=0, p2=1, p3=9)
    node.beat(3)
    assert node.mesh() == [1, 2]


def test_a_mesh_of_one_has_no_median() -> None:
    node = small("t", opportunistic_every=1, d_lo=1, d_out=0)
    node.up(1, 2)
    node.rate(p2=9)
    node.beat(3)
    assert node.mesh() == [1]


# Joining and leaving.


def test_joining_tells_everybody_and_then_grafts_d_subscribers() -> None:
    node = small()
    node.up(*range(1, 6))
    node.up(6, topics=("other",))
    node.up(7, protocol=FLOODSUB)
    node.router.join("t")
    assert node.env.sent[:7] == [(peer, Subscriptions(((True, "t"),))) for peer in range(1, 8)]
    assert len(node.mesh()) == 3 and set(node.mesh()) <= set(range(1, 6)) and node.told(Graft) == node.mesh()
    assert node.app.in_force == ["t"]


def test_joining_takes_the_fanout_first_and_ends_it() -> None:
    node = small(flood_publish=False)
    node.up(1, 2)
    node.publish()
    node.up(*range(3, 12))
    node.router.join("t")
    assert len(node.mesh()) == 3 and {1, 2} < set(node.mesh())
    assert node.router.meshes.fanouts == {} and node.told(Graft) == node.mesh()


def test_joining_leaves_out_those_of_the_fanout_that_may_not_be_grafted() -> None:
    node = small(flood_publish=False)
    node.up(1, 2, 3)
    node.publish()
    node.router.meshes.backoff.add("t", 1, node.env.now() + SECOND)
    node.rate(p2=-1)
    node.router.join("t")
    assert node.mesh() == [3]


def test_joining_grafts_nobody_who_has_a_back_off() -> None:
    node = small("t")
    node.up(1)
    node.router.leave("t")
    node.forget()
    node.router.join("t")
    assert node.mesh() == [] and node.said(Graft) == []


def test_leaving_tells_everybody_prunes_the_mesh_and_has_the_short_back_off() -> None:
    node = small("t")
    node.up(1, 2, 3)
    node.up(4, topics=())
    node.router.leave("t")
    assert node.env.sent[:4] == [(peer, Subscriptions(((False, "t"),))) for peer in (1, 2, 3, 4)]
    assert node.told(Prune) == [1, 2] and pruned(node, 1)[0].backoff == 10
    assert node.backoff(1) == 10 * SECOND and "t" not in node.router.meshes.topics


def test_joining_again_waits_for_the_back_off_of_leaving() -> None:
    node = small("t")
    node.up(1)
    node.router.leave("t")
    node.router.join("t")
    node.forget()
    node.beat(10)
    assert node.mesh() == []
    node.beat(20)
    assert node.mesh() == [1]


def test_nothing_is_delivered_of_a_topic_that_was_left() -> None:
    node = small("t")
    node.up(1)
    node.router.leave("t")
    node.forget()
    node.hear(1, message())
    assert node.app.delivered == [] and node.env.take() == []


def test_who_unsubscribes_leaves_the_mesh_and_the_fanout() -> None:
    node = small("t", flood_publish=False)
    node.up(1, topics=("t", "u"))
    node.publish("u")
    assert node.mesh() == [1] and node.fanout("u") == [1]
    node.hear(1, Subscriptions(((False, "t"), (False, "u"))))
    assert node.mesh() == [] and node.fanout("u") == []


# Fanouts.


def test_a_fanout_is_filled_again_when_its_peers_leave() -> None:
    node = small(flood_publish=False)
    node.up(1, 2, 3)
    node.publish()
    assert node.fanout() == [1, 2, 3]
    node.down(1, 2)
    node.up(4, 5)
    node.beat()
    assert node.fanout() == [3, 4, 5]


def test_a_fanout_ends_when_nothing_was_published_for_its_time() -> None:
    node = small(flood_publish=False, fanout_ttl=10 * SECOND)
    node.up(1)
    node.publish()
    node.wait(8 * SECOND)
    node.publish()
    node.wait(8 * SECOND)
    assert node.fanout() == [1]
    node.wait(5 * SECOND)
    assert node.router.meshes.fanouts == {}


def test_fanouts_are_bounded_and_the_longest_unused_goes_first() -> None:
    node = small(flood_publish=False)
    for number in range(FANOUTS):
        node.publish(f"topic {number}")
    node.publish("topic 0")
    node.publish("one more")
    held = node.router.meshes.fanouts
    assert len(held) == FANOUTS and "topic 0" in held and "topic 1" not in held


# Direct peers.


def test_a_direct_peer_that_subscribes_is_not_grafted() -> None:
    node = small("t")
    node.router.contacts.add_direct(PeerInfo(1))
    node.up(1, topics=())
    node.hear(1, Subscriptions(((True, "t"),)))
    assert node.mesh() == [] and node.env.take() == []


def test_a_direct_peer_is_in_no_mesh_by_join_or_heartbeat() -> None:
    node = small("t")
    node.router.contacts.add_direct(PeerInfo(1))
    node.up(1, topics=("t", "u"))
    node.router.join("u")
    node.beat(3)
    assert node.mesh("t") == node.mesh("u") == [] and node.said(Graft) == []


def test_a_direct_peer_is_in_no_fanout_before_or_after_it_is_made_one() -> None:
    node = small(flood_publish=False)
    node.router.contacts.add_direct(PeerInfo(1))
    node.up(1, 2)
    node.publish()
    assert node.fanout() == [2]
    node.router.contacts.add_direct(PeerInfo(2))
    assert node.fanout() == []


def test_a_graft_of_a_direct_peer_is_refused_without_introductions() -> None:
    node = small("t")
    node.router.contacts.add_direct(PeerInfo(1))
    node.up(1, 2)
    node.grafts(1)
    assert node.mesh() == [2] and pruned(node, 1) == [Pruned("t", (), 60)] and node.value(1) == 0


def test_a_peer_is_made_direct_and_plain_again_at_run_time() -> None:
    node = small("t")
    node.up(1)
    assert node.mesh() == [1]
    node.router.contacts.add_direct(PeerInfo(1))
    assert node.mesh() == []
    node.router.contacts.remove_direct(1)
    node.beat()
    assert node.mesh() == [1]
