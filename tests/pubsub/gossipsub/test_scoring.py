"""Scores through the router: what peers do moves each part of them, and each threshold takes something away.

The parts by themselves are in `test_score`. Here the application's score (P5) sets a peer's standing where a threshold is meant.
"""

from __future__ import annotations

import tomllib
from textwrap import dedent
from typing import Any

import pytest
from msgspec.structs import replace

from libweft.peer.errors import UsageError
from libweft.peer.machine import SECOND, MessageId, Peer, PeerInfo
from libweft.peer.trace.kinds import REJECT, ROLE
from libweft.pubsub.gossipsub import presets
from libweft.pubsub.gossipsub.deliveries import DROPPED
from libweft.pubsub.gossipsub.messages import Extensions, Graft, IDontWant, IHave, IWant, Prune, Pruned
from libweft.pubsub.gossipsub.score_config import TopicScore
from libweft.pubsub.message import Publication, Verdict
from libweft.pubsub.router import Router
from libweft.pubsub.rpc import Subscriptions
from libweft.pubsub.signing import Signing
from tests.peer.live_world import identity
from tests.pubsub.gossipsub.world import FLOODSUB, Node, message, pruned

SMALL: dict[str, Any] = {"d": 2, "d_lo": 2, "d_hi": 4, "d_score": 1, "d_out": 0}
GOSSIP, PUBLISH, GRAYLIST, ACCEPT_PX = -10.0, -50.0, -80.0, 10.0
BELOW = 0.5


def part(node: Node, peer: Peer, name: str) -> float:
    return node.score.explain(peer)[name]


# Below 0.


def test_a_negative_score_ends_a_place_in_the_mesh_without_introductions() -> None:
    node = Node("t", **SMALL)
    node.up(1, 2, 3)
    node.rate(p1=-0.1)
    node.beat()
    assert node.mesh() == [2, 3] and pruned(node, 1) == [Pruned("t", (), 60)]


def test_a_negative_score_is_not_grafted_by_heartbeat_or_join() -> None:
    node = Node("t", **SMALL)
    node.rate(p1=-0.1)
    node.up(1, topics=("t", "u"))
    node.router.join("u")
    node.beat(2)
    assert node.mesh("t") == node.mesh("u") == []


def test_a_graft_with_a_negative_score_is_refused_without_introductions() -> None:
    node = Node("t", **SMALL)
    node.up(2, 3)
    node.rate(p1=-0.1)
    node.up(1)
    node.grafts(1)
    assert node.mesh() == [2, 3] and pruned(node, 1) == [Pruned("t", (), 60)] and node.backoff(1) == 60 * SECOND


def test_a_negative_score_is_introduced_to_nobody() -> None:
    node = Node("t", **SMALL)
    node.up(*range(1, 7))
    node.rate(p3=-0.1, p4=-0.1)
    node.router.leave("t")
    assert {info.peer for info in pruned(node, 1)[0].peers} == {2, 5, 6}


# The gossip threshold.


def test_below_the_gossip_threshold_nothing_is_announced_to_a_peer() -> None:
    node = Node("t", **SMALL)
    node.up(1, 2, 3, 4)
    node.rate(p3=GOSSIP, p4=GOSSIP - BELOW)
    node.hear(1, message())
    node.beat()
    assert node.told(IHave) == [3]


def test_below_the_gossip_threshold_announcements_are_passed_over() -> None:
    node = Node("t", **SMALL)
    node.up(1, 2, 3, 4)
    node.rate(p3=GOSSIP, p4=GOSSIP - BELOW)
    for peer in (3, 4):
        node.hear(peer, IHave((("t", (b"%d" % peer,)),)))
    assert node.told(IWant) == [3]


def test_below_the_gossip_threshold_requests_get_no_answer() -> None:
    node = Node("t", **SMALL)
    node.up(1, 2, 3, 4)
    node.rate(p3=GOSSIP, p4=GOSSIP - BELOW)
    node.hear(1, message())
    node.forget()
    for peer in (3, 4):
        node.hear(peer, IWant((node.key(message()),)))
    assert node.told(Publication) == [3]


def test_below_the_gossip_threshold_messages_are_still_heard() -> None:
    node = Node("t", **SMALL)
    node.up(1, 2, 4)
    node.rate(p4=GOSSIP - BELOW)
    node.hear(4, message())
    assert node.app.delivered == [message()]


# The publish threshold.


def test_below_the_publish_threshold_flood_publishing_leaves_a_peer_out() -> None:
    node = Node("t", **SMALL)
    node.up(1, 2, 3, 4)
    node.rate(p3=PUBLISH, p4=PUBLISH - BELOW)
    node.publish()
    assert node.told(Publication) == [1, 2, 3]


def test_below_the_publish_threshold_a_peer_is_in_no_fanout() -> None:
    node = Node(flood_publish=False, **SMALL)
    node.up(3, 4)
    node.rate(p3=PUBLISH, p4=PUBLISH - BELOW)
    node.publish()
    assert node.fanout() == node.told(Publication) == [3]
    node.rate(p3=PUBLISH - BELOW)
    node.beat()
    assert node.fanout() == [4]


def test_below_the_publish_threshold_a_floodsub_peer_gets_nothing() -> None:
    node = Node("t", flood_publish=False, **SMALL)
    node.up(1, 2)
    node.up(3, 4, protocol=FLOODSUB)
    node.rate(p3=PUBLISH, p4=PUBLISH - BELOW)
    node.publish()
    node.hear(1, message())
    assert node.told(Publication) == [1, 2, 2, 3, 3]


# The graylist threshold.


def test_below_the_graylist_threshold_nothing_but_subscriptions_is_heard() -> None:
    node = Node("t", **SMALL)
    node.up(1, 2)
    node.up(3, topics=())
    node.rate(p3=GRAYLIST - BELOW)
    node.hear(3, message(), IHave((("t", (b"1",)),)), IWant((b"2",)), IDontWant((b"3",)), Graft(("t",)))
    node.hear(1, message(2))
    node.hear(3, Prune((Pruned("t", (PeerInfo(8),), 60),)))
    assert node.app.delivered == [message(2)] and node.env.take() == [(2, message(2))]
    assert node.router.gossip.unwanted == {} and len(node.router.meshes.backoff) == 0
    node.hear(3, Subscriptions(((True, "t"),)))
    assert 3 in node.router.subscribers["t"]


def test_at_the_graylist_threshold_a_peer_is_heard() -> None:
    node = Node("t", **SMALL)
    node.up(3)
    node.rate(p3=GRAYLIST)
    node.hear(3, message())
    assert node.app.delivered == [message()]


def test_the_trace_tells_once_whom_a_node_graylists_and_whom_no_more() -> None:
    node = Node("t", **SMALL)
    node.up(1, 2, 3)
    node.rate(p2=GRAYLIST - BELOW, p3=GRAYLIST - BELOW)
    assert roles(node) == []
    node.hear(2, message())
    node.hear(3, message())
    node.hear(3, message(2))
    assert roles(node) == [(2, "graylisted, score -80.5"), (3, "graylisted, score -80.5")]
    node.down(3)
    assert roles(node) == []
    node.rate(p2=0.0)
    assert roles(node) == [(2, "graylisted no more")]
    assert roles(node) == []


def roles(node: Node) -> list[tuple[Peer | None, str | None]]:
    node.beat()
    return [(row.peer, row.reason) for row in node.env.take_traced() if row.kind == ROLE]


def test_messages_and_gossip_of_a_bad_peer_reach_nobody() -> None:
    node = Node("t", **SMALL)
    node.up(1, 2, 3)
    node.rate(p3=-1_000)
    node.hear(3, message(), IHave((("t", (b"1",)),)))
    node.beat(3)
    assert node.app.delivered == [] and node.said(Publication) == [] and node.said(IHave) == []


# The threshold for introductions.


@pytest.mark.parametrize(("score", "dialled"), [(ACCEPT_PX, True), (ACCEPT_PX - BELOW, False), (-1.0, False)])
def test_introductions_are_taken_from_a_good_peer(score: float, dialled: bool) -> None:
    node = Node("t", **SMALL)
    node.up(1)
    node.rate(p1=score)
    node.prunes(1, px=[PeerInfo(8)])
    assert (8 in node.env.holds) is dialled


# Each part through the router.


def test_p1_counts_the_time_in_the_mesh() -> None:
    node = Node("t", **SMALL)
    node.up(1, 2, 3)
    node.wait(100 * SECOND)
    assert part(node, 1, "P1") == pytest.approx(1, abs=0.02) and part(node, 3, "P1") == 0
    node.prunes(1)
    assert part(node, 1, "P1") == 0


def test_p2_counts_first_deliveries() -> None:
    node = Node("t", **SMALL)
    node.up(1, 2)
    node.hear(1, message())
    node.hear(2, message())
    assert (part(node, 1, "P2"), part(node, 2, "P2")) == (0.5, 0)


P3 = "mesh_deliveries_decay=0.9, mesh_deliveries_cap=10, mesh_deliveries_threshold=4, mesh_deliveries_activation=5000000"
P3_ON = f"{P3}, mesh_deliveries_weight=-1"
P3B_ON = f"{P3_ON}, mesh_failure_weight=-1, mesh_failure_decay=0.9"


def test_p3_counts_what_a_peer_of_the_mesh_does_not_bring() -> None:
    node = Node("t", score_with=P3_ON, **SMALL)
    node.up(1, 2)
    node.wait(4 * SECOND)
    assert part(node, 2, "P3") == 0
    for number in range(10):
        node.hear(1, message(number))
    node.wait(2 * SECOND)
    assert (part(node, 1, "P3"), part(node, 2, "P3")) == (0, -16)


def test_p3_counts_copies_that_come_while_the_message_is_judged_or_right_after() -> None:
    node = Node("t", score_with=P3_ON, validates=True, **SMALL)
    node.up(1, 2, 3)
    node.grafts(3)
    node.hear(1, message())
    node.hear(2, message())
    node.app.cases[0][2](Verdict.ACCEPT)
    node.wait(20_000)
    node.hear(3, message())
    assert [node.score._peers[peer].topics["t"].mesh for peer in (1, 2, 3)] == [1, 1, 0]


def test_p3_counts_copies_of_ones_own_messages_that_come_back_at_once() -> None:
    node = Node("t", score_with=P3_ON, **SMALL)
    node.up(1, 2)
    mine = node.publish()
    node.hear(1, mine)
    node.wait(20_000)
    node.hear(2, mine)
    assert [node.score._peers[1].topics["t"].mesh, node.score._peers[2].topics["t"].mesh] == [1, 0]


def test_p3b_counts_the_deficit_of_one_who_was_pruned() -> None:
    node = Node("t", score_with=P3B_ON, **SMALL)
    node.rate(p1=100, p2=100)
    node.up(1, 2)
    node.wait(7 * SECOND)
    node.prunes(1)
    assert (part(node, 1, "P3"), part(node, 1, "P3b")) == (0, -16)
    assert (part(node, 2, "P3"), part(node, 2, "P3b")) == (-16, 0)


def test_p4_counts_rejected_messages_squared() -> None:
    node = Node("t", validates=True, **SMALL)
    node.up(1, 2)
    for number in range(3):
        node.hear(1, message(number))
        node.app.cases[-1][2](Verdict.REJECT)
    assert (part(node, 1, "P4"), part(node, 2, "P4")) == (-90, 0)


def test_p4_blames_all_who_brought_a_rejected_message_before_the_verdict_and_after_it() -> None:
    node = Node("t", validates=True, **SMALL)
    node.up(1, 2, 3)
    node.hear(1, message())
    node.hear(2, message())
    node.app.cases[0][2](Verdict.REJECT)
    node.hear(3, message())
    assert [part(node, peer, "P4") for peer in (1, 2, 3)] == [-10, -10, -10]


def test_p4_does_not_count_accepted_or_ignored_messages() -> None:
    node = Node("t", validates=True, **SMALL)
    node.up(1, 2)
    for number, verdict in enumerate((Verdict.ACCEPT, Verdict.IGNORE)):
        node.hear(1, message(number))
        node.hear(2, message(number))
        node.app.cases[-1][2](verdict)
    node.hear(2, message(1))
    assert (part(node, 1, "P4"), part(node, 2, "P4")) == (0, 0)
    records = [node.score._deliveries.find(node.key(message(number))) for number in (0, 1)]
    assert [record.state for record in records if record is not None] == [node.env.now(), DROPPED]


def test_p4_decays() -> None:
    node = Node("t", validates=True, **SMALL)
    node.up(1)
    node.hear(1, message())
    node.app.cases[-1][2](Verdict.REJECT)
    node.wait(600 * SECOND)
    assert -10 < part(node, 1, "P4") < -1


def test_p4_counts_messages_that_claim_to_be_ours_and_are_not() -> None:
    node = Node("t", **SMALL)
    node.up(1)
    mine = node.publish()
    node.hear(1, mine)
    assert part(node, 1, "P4") == 0
    node.hear(1, Publication(MessageId(0, 1, 77), "t", b"not mine"))
    assert part(node, 1, "P4") == -10 and node.app.delivered == [mine]


def test_p4_does_not_count_what_was_ours_before_a_restart() -> None:
    node = Node("t", **SMALL)
    node.env.epoch = 2
    node.up(1)
    before = Publication(MessageId(0, 1, 77), "t", b"mine")
    node.hear(1, before, before)
    assert node.value(1) == 0 and node.app.delivered == [] and node.router.seen.has(node.key(before))
    node.hear(1, Publication(MessageId(0, 2, 77), "t", b"not mine"))
    assert part(node, 1, "P4") == -10


def test_p4_does_not_count_what_our_key_signed_elsewhere_and_counts_what_it_did_not() -> None:
    """Two nodes with one key are a mistake, but not that of their neighbours."""
    me = identity(0)
    node = Node("t", me=me.peer, **SMALL)
    node.router.signing = Signing(me)
    node.up(1)
    elsewhere = Publication(MessageId(me.peer, 9, 1), "t", b"data")
    node.hear(1, Signing(me).sign(elsewhere))
    assert node.value(1) == 0 and node.app.delivered == []
    node.hear(1, replace(Signing(me).sign(elsewhere), id=MessageId(me.peer, 9, 2)))
    assert part(node, 1, "P4") == -10


def test_throttled_messages_are_nobodys_fault() -> None:
    node = Node("t", validates=True, gater=False, **SMALL)
    node.up(1)
    for number in range(Router.pending_topic + 5):
        node.hear(1, message(number))
    assert node.value(1) == 0
    assert [row.reason for row in node.env.traced if row.kind == REJECT] == [Router.QUEUE_FULL] * 5
    record = node.score._deliveries.find(node.key(message(Router.pending_topic)))
    assert record is not None and record.state == DROPPED


def test_p5_is_what_the_application_thinks_of_a_peer() -> None:
    node = Node("t", score_with="app_weight=2", **SMALL)
    node.up(1, 2)
    node.rate(p1=3)
    assert (node.value(1), node.value(2)) == (6, 0)
    node.rate(p1=-3)
    node.beat()
    assert node.mesh() == [2]


def test_p6_counts_peers_on_one_address() -> None:
    node = Node("t", score_with="colocation_threshold=2", **SMALL)
    node.up(1, 2, 3, 4, address="/ip4/1.2.3.4/tcp/4001")
    node.up(5, address="/ip4/1.2.3.5/tcp/4001")
    node.up(6, 7, 8, address="/dns4/example.org/tcp/1")
    assert [node.value(peer) for peer in (1, 4, 5, 6)] == [-20, -20, 0, 0]


def test_p7_counts_misbehaviour_above_its_threshold() -> None:
    node = Node("t", **SMALL)
    node.up(1)
    node.prunes(1)
    node.grafts(1)
    assert part(node, 1, "P7") == 0
    node.grafts(1)
    assert part(node, 1, "P7") == -10 * (4 - 2) ** 2


def test_extensions_said_again_count_ten_times() -> None:
    node = Node("t", **SMALL)
    node.up(1, topics=())
    node.hear(1, Extensions())
    assert node.value(1) == 0
    node.hear(1, Extensions())
    assert part(node, 1, "P7") == -10 * (10 - 2) ** 2


# Parameters by name.


def test_what_is_different_in_a_score_is_judged_as_a_whole() -> None:
    """One after the other, either of the first two would not fit the other's default."""
    node = Node(score_with="gossip=-100, publish = -200,graylist=-300, invalid_weight=-99")
    assert (node.score.config.thresholds.gossip, node.score.config.thresholds.graylist) == (-100, -300)
    assert node.score.config.topic is not None and node.score.config.topic.invalid_weight == -99


def test_the_example_of_a_score_is_one() -> None:
    config = tomllib.loads(dedent((presets.__doc__ or "").partition("\n\n")[2]))
    node = Node(**config)
    assert node.score.config.thresholds.graylist == -20_000


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"score_with": "gosip=-1"}, "did you mean gossip"),
        ({"score_with": "gossip=much"}, "must be a number"),
        ({"score_with": "retain=1.5"}, "must be a whole number"),
        ({"score_with": "gossip"}, "must be a number"),
        ({"score_with": "gossip=-60"}, "score_with is 'gossip=-60', but publish is -50"),
        ({"score_with": "colocation_free=1"}, "no number of a score .did you mean colocation_weight"),
        ({"score": "off", "score_with": "gossip=-1"}, "score is off"),
        ({"score": "bitcoin"}, "choose one of"),
    ],
    ids=str,
)
def test_a_score_that_is_none_is_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Node(**wrong)


# Verdicts, parameters at run time, and no scores at all.


def test_an_ignored_message_leaves_the_score_alone_and_a_rejected_one_does_not() -> None:
    node = Node("t", validates=True, **SMALL)
    node.up(1)
    values = []
    for number, verdict in enumerate((Verdict.IGNORE, Verdict.REJECT)):
        node.hear(1, message(number))
        node.app.cases[-1][2](verdict)
        values.append(node.value(1))
    assert values == [0, -10]


def test_invalid_messages_drive_a_peer_out_of_the_mesh_and_in_the_end_unheard() -> None:
    node = Node("t", validates=True, **SMALL)
    node.up(1, 2)
    for number in range(5):
        node.hear(1, message(number))
        if len(node.app.cases) > number:
            node.app.cases[-1][2](Verdict.REJECT)
    assert len(node.app.cases) == 3
    node.beat()
    assert node.mesh() == [2] and len(pruned(node, 1)) == 1


def test_the_parts_of_a_score_can_be_looked_at() -> None:
    node = Node("t", **SMALL)
    node.up(1)
    node.hear(1, message())
    node.rate(p1=3)
    assert node.score.explain(1) == {**dict.fromkeys(("P1", "P3", "P3b", "P4", "cap", "P6", "P7"), 0), "P2": 0.5, "P5": 3}
    assert sum(node.score.explain(1).values()) == node.value(1)


def test_the_parameters_of_a_topic_can_be_changed_at_run_time() -> None:
    node = Node("t", **SMALL)
    node.up(1)
    node.hear(1, message())
    node.score.set_topic("t", TopicScore(first_deliveries_weight=7.0))
    assert node.value(1) == 7


def test_a_bad_score_is_there_again_when_its_peer_comes_back() -> None:
    node = Node("t", validates=True, **SMALL)
    node.up(1)
    node.hear(1, message())
    node.app.cases[-1][2](Verdict.REJECT)
    node.down(1)
    node.up(1)
    assert node.value(1) == -10 and node.mesh() == []


def test_a_good_score_is_gone_when_its_peer_comes_back() -> None:
    node = Node("t", **SMALL)
    node.up(1)
    node.hear(1, message())
    assert node.value(1) == 0.5
    node.down(1)
    node.up(1)
    assert node.value(1) == 0


def test_without_scores_everybody_stands_at_zero_and_is_heard() -> None:
    node = Node("t", score="off", validates=True, **SMALL)
    node.up(1, 2)
    for number in range(20):
        node.hear(1, message(number))
        node.app.cases[-1][2](Verdict.REJECT)
    node.prunes(1)
    node.grafts(1, 1, 1)
    node.hear(1, Extensions(), IHave((("t", (b"1",)),)))
    node.wait(10 * SECOND)
    assert node.value(1) == 0
    node.forget()
    node.hear(1, message(99))
    assert node.app.cases[-1][1] == message(99)
    node.prunes(2, px=[PeerInfo(8)])
    assert 8 in node.env.holds


# The gater.


def overloaded(**config: Any) -> Node:
    """Peer 1 sent much that was rejected, and validation does not keep up."""
    node = Node("t", validates=True, score="off", **{**SMALL, **config})
    node.up(1, 2)
    for number in range(50):
        node.hear(1, message(number))
        node.app.cases[-1][2](Verdict.REJECT)
    for number in range(1_000, 1_000 + 2 * Router.pending_topic):
        node.hear(2, message(number))
    node.app.cases.clear()
    node.router.waiting.clear()
    node.router.pending = 0
    return node


def test_what_becomes_of_messages_is_counted_for_the_gater() -> None:
    node = Node("t", validates=True, **SMALL)
    node.up(1, 2)
    for number, verdict in enumerate([Verdict.ACCEPT, Verdict.IGNORE, Verdict.IGNORE, Verdict.REJECT]):
        node.hear(1, message(number))
        node.hear(2, message(number))
        node.app.cases[-1][2](verdict)
    gater = node.router.standing.gater
    assert gater is not None
    source, other = gater._peers[1], gater._peers[2]
    assert (source.delivered, source.ignored, source.rejected, source.duplicate) == (1, 2, 1, 0)
    assert (other.delivered, other.ignored, other.rejected, other.duplicate) == (0, 0, 0, 4)
    assert (gater._validated, gater._throttled) == (4, 0)
    node.hear(1, Publication(MessageId(0, 1, 77), "t", b"not mine"))
    assert source.rejected == 2
    node.wait(2 * SECOND)
    assert 3 < gater._validated < 4 and 1 < source.rejected < 2
    node.down(1)
    assert source.peers == 0


def test_under_overload_a_peer_that_sent_waste_is_mostly_not_looked_at() -> None:
    node = overloaded()
    for number in range(2_000, 2_100):
        node.hear(1, message(number))
    assert len(node.app.cases) < 10
    for number in range(3_000, 3_100):
        node.hear(2, message(number))
    assert len(node.app.cases) >= 100


def test_under_overload_control_is_read_all_the_same() -> None:
    node = overloaded()
    node.forget()
    node.prunes(1, backoff=9)
    node.hear(1, IHave((("t", (b"1",)),)))
    assert node.mesh() == [2] and node.told(IWant) == [1]


def test_who_was_not_looked_at_owes_nothing() -> None:
    node = overloaded()
    node.hear(1, IHave((("t", (node.key(message(5_000)),)),)))
    while len(node.router.standing.promises):
        node.hear(1, message(5_001))
    assert not node.router.seen.has(node.key(message(5_000)))


def test_without_the_gater_and_for_direct_peers_all_are_looked_at() -> None:
    for node in (overloaded(gater=False), overloaded()):
        node.router.contacts.add_direct(PeerInfo(1))
        for number in range(2_000, 2_100):
            node.hear(1, message(number))
        assert len(node.app.cases) == 100
