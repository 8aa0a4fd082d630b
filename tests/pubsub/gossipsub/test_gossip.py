"""Gossip: what is announced to whom, what is asked for and sent, what is refused, and where each of them ends."""

from __future__ import annotations

from typing import Any

import pytest

from libweft.peer.libp2p.pb import rpc_pb2
from libweft.peer.machine import SECOND, Lane, MessageId, PeerInfo
from libweft.pubsub.gossipsub import gossip
from libweft.pubsub.gossipsub.messages import Graft, IDontWant, IHave, IWant
from libweft.pubsub.gossipsub.wire import MeshCodec
from libweft.pubsub.message import Publication, Verdict
from libweft.pubsub.rpc import Subscriptions
from tests.pubsub.gossipsub.world import FLOODSUB, V10, V11, V12, V13, Node, message

LARGE = bytes(1_024)


def outsiders(*peers: int, **config: Any) -> Node:
    """Peers 1 and 2 are in the mesh, the others subscribe and are not."""
    node = Node("t", **{"d": 2, "d_lo": 2, "d_hi": 4, "d_score": 1, "d_out": 0, **config})
    node.up(1, 2, *peers)
    assert node.mesh() == [1, 2]
    return node


def ids(announced: list[IHave], topic: str = "t") -> list[bytes]:
    return sorted(key for each in announced for name, keys in each.topics if name == topic for key in keys)


# Announcing.


def test_what_came_is_announced_to_subscribers_outside_the_mesh() -> None:
    node = outsiders(3, 4)
    node.up(5, topics=("other",))
    node.hear(1, message())
    node.forget()
    node.beat()
    assert sorted(node.env.take()) == [(peer, IHave((("t", (node.key(message()),)),))) for peer in (3, 4)]
    node.hear(1, message(2))
    node.forget()
    node.beat()
    assert node.told(IHave) == [3, 4] and ids(node.said(IHave, 3)) == sorted(map(node.key, [message(1), message(2)]))


def test_a_message_is_announced_for_three_heartbeats() -> None:
    node = outsiders(3)
    node.hear(1, message())
    announced = []
    for _ in range(5):
        node.forget()
        node.beat()
        announced.append(len(node.said(IHave)))
    assert announced == [1, 1, 1, 0, 0]


def test_at_least_d_lazy_peers_are_told() -> None:
    node = outsiders(*range(3, 20), d_lazy=6)
    node.hear(1, message())
    node.beat()
    assert len(node.told(IHave)) == len(set(node.told(IHave))) == 6


def test_of_many_peers_a_share_is_told() -> None:
    node = outsiders(*range(3, 43), d_lazy=2, gossip_factor=0.25)
    node.hear(1, message())
    node.beat()
    assert len(node.told(IHave)) == 10


def test_where_there_are_fewer_all_are_told() -> None:
    node = outsiders(3, 4, 5)
    node.hear(1, message())
    node.beat()
    assert node.told(IHave) == [3, 4, 5]


def test_an_announcement_has_only_so_many_ids_in_another_order_for_each_peer() -> None:
    node = outsiders(3, 4, 5, ihave_ids=20)
    for number in range(60):
        node.hear(1, message(number))
    node.forget()
    node.beat()
    told = [node.said(IHave, peer)[0].topics[0][1] for peer in (3, 4, 5)]
    assert [len(keys) for keys in told] == [20, 20, 20] and len(set(told)) == 3


def test_topics_travel_in_one_announcement_a_peer() -> None:
    node = Node("a", "b", d=0, d_lo=0, d_hi=0, d_out=0)
    node.up(1, topics=("a", "b"))
    node.up(9, topics=())
    node.hear(9, message(1, "a"), message(2, "b"))
    node.beat()
    [announced] = node.said(IHave, 1)
    assert sorted(topic for topic, _ in announced.topics) == ["a", "b"]


def test_direct_peers_and_floodsub_peers_hear_no_announcements() -> None:
    node = outsiders()
    node.router.contacts.add_direct(PeerInfo(3))
    node.up(3)
    node.up(4, protocol=FLOODSUB)
    node.up(5)
    node.hear(1, message())
    node.beat()
    assert node.told(IHave) == [5]


def test_only_what_was_accepted_is_announced_and_sent_to_who_asks() -> None:
    node = outsiders(3, validates=True)
    for number in (1, 2, 3):
        node.hear(1, message(number))
    node.app.cases[1][2](Verdict.REJECT)
    node.app.cases[2][2](Verdict.IGNORE)
    node.forget()
    node.beat()
    node.hear(3, IWant(tuple(node.key(message(number)) for number in (1, 2, 3))))
    assert node.said(IHave) == [] and node.said(Publication) == []
    node.app.cases[0][2](Verdict.ACCEPT)
    node.beat()
    assert ids(node.said(IHave)) == [node.key(message(1))]


def test_what_is_published_to_a_fanout_is_announced_outside_it() -> None:
    node = Node(d=1, d_lo=1, d_hi=2, d_score=1, d_out=0, flood_publish=False)
    node.up(1, 2, 3)
    mine = node.publish()
    [inside] = node.fanout()
    node.beat()
    assert node.told(IHave) == sorted({1, 2, 3} - {inside}) and ids(node.said(IHave, 1 if inside != 1 else 2)) == [node.key(mine)]


def test_announcements_leave_last_and_may_be_lost() -> None:
    assert (IHave.lane, IWant.lane, IDontWant.lane) == (Lane.LAZY, Lane.CONTROL, Lane.URGENT) and IDontWant.droppable


def test_what_is_said_at_one_time_travels_in_one_frame() -> None:
    """Gossip and control ride on messages: the codec packs what is queued for a peer."""
    queued = [message(), IHave((("other", (b"1",)),)), Graft(("t",)), Subscriptions(((True, "t"),))]
    [frame] = MeshCodec(numbered=True).pack(queued)
    rpc = rpc_pb2.RPC.FromString(frame)
    assert (len(rpc.publish), len(rpc.control.ihave), len(rpc.control.graft), len(rpc.subscriptions)) == (1, 1, 1, 1)


# Being told.


def test_what_is_new_is_asked_for() -> None:
    node = outsiders(3)
    node.hear(3, IHave((("t", (b"1", b"2")),)))
    [asked] = node.said(IWant, 3)
    assert sorted(asked.ids) == [b"1", b"2"]


def test_what_is_known_is_not_asked_for_whether_it_was_judged_or_not() -> None:
    node = outsiders(3, validates=True)
    node.hear(1, message(1), message(2))
    node.app.cases[0][2](Verdict.ACCEPT)
    node.forget()
    node.hear(3, IHave((("t", (node.key(message(1)), node.key(message(2)))),)))
    assert node.env.take() == []


def test_nothing_is_asked_for_of_topics_that_are_not_joined() -> None:
    node = outsiders(3)
    node.hear(3, IHave((("other", (b"1",)),)))
    assert node.env.take() == []


def test_an_id_that_stands_there_twice_is_asked_for_once() -> None:
    node = Node("t", "u")
    node.up(3, topics=("t", "u"))
    node.hear(3, IHave((("t", (b"1", b"1")), ("u", (b"1",)))))
    assert node.said(IWant) == [IWant((b"1",))]


def test_ten_announcements_of_a_peer_are_heard_in_a_heartbeat() -> None:
    node = outsiders(3, 4)
    for number in range(15):
        node.hear(3, IHave((("t", (b"%d" % number,)),)))
    assert len(node.said(IWant, 3)) == 10
    node.hear(4, IHave((("t", (b"x",)),)))
    assert len(node.said(IWant, 4)) == 1
    node.beat()
    node.forget()
    node.hear(3, IHave((("t", (b"14",)),)))
    assert node.said(IWant, 3) == [IWant((b"14",))]


def test_only_so_many_ids_are_asked_of_a_peer_in_a_heartbeat() -> None:
    node = outsiders(3, ihave_ids=100)
    for part in (range(80), range(80, 160), range(160, 240)):
        node.hear(3, IHave((("t", tuple(b"%d" % number for number in part)),)))
    assert [len(asked.ids) for asked in node.said(IWant, 3)] == [80, 20]
    node.beat()
    node.forget()
    node.hear(3, IHave((("t", (b"more",)),)))
    assert node.said(IWant, 3) == [IWant((b"more",))]


def test_of_one_announcement_only_so_many_ids_are_read() -> None:
    node = outsiders(3, ihave_ids=10)
    node.hear(3, IHave((("t", tuple(b"%d" % number for number in range(500))),)))
    [asked] = node.said(IWant, 3)
    assert set(asked.ids) == {b"%d" % number for number in range(10)}


# Promises.


def test_an_announcement_that_is_not_kept_counts_against_its_sender() -> None:
    node = outsiders(3)
    node.hear(3, IHave((("t", (b"1", b"2", b"3")),)))
    node.wait(3 * SECOND)
    assert node.score._peers[3].behaviour == 0
    node.beat(2)
    assert node.score._peers[3].behaviour == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("source", [3, 1])
def test_a_promise_is_kept_whoever_brings_the_message(source: int) -> None:
    node = outsiders(3)
    node.hear(3, IHave((("t", (node.key(message()),)),)))
    node.hear(source, message())
    node.wait(6 * SECOND)
    assert node.score._peers[3].behaviour == 0


@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_promise_is_kept_when_the_message_goes_to_validation_whatever_becomes_of_it(verdict: Verdict) -> None:
    node = outsiders(3, validates=True)
    node.hear(3, IHave((("t", (node.key(message()),)),)))
    node.hear(3, message())
    node.app.cases[0][2](verdict)
    node.wait(6 * SECOND)
    assert node.score._peers[3].behaviour == 0


def test_a_promise_is_kept_by_a_message_whose_author_is_blacklisted() -> None:
    node = outsiders(3)
    node.router.blacklist.add(99, node.env.now())
    node.hear(3, IHave((("t", (node.key(message()),)),)))
    node.hear(3, message())
    node.wait(6 * SECOND)
    assert node.score._peers[3].behaviour == 0


def test_who_lies_in_many_announcements_falls_below_the_thresholds() -> None:
    node = outsiders(3)
    for number in range(10):
        node.hear(3, IHave((("t", (b"%d" % number,)),)))
    assert node.value(3) == 0
    node.wait(5 * SECOND)
    assert node.value(3) < node.router.standing.thresholds.graylist
    node.forget()
    node.hear(3, IHave((("t", (b"x",)),)))
    assert node.env.take() == []


# Being asked.


def test_what_is_in_the_cache_is_sent_to_who_asks() -> None:
    node = outsiders(3)
    node.hear(1, message())
    node.forget()
    node.hear(3, IWant((node.key(message()),)))
    assert node.env.take() == [(3, message())]


@pytest.mark.parametrize(("beats", "there"), [(0, True), (3, True), (4, True), (5, False)])
def test_a_message_can_be_asked_for_in_all_windows_of_the_history(beats: int, there: bool) -> None:
    node = outsiders(3)
    node.hear(1, message())
    node.beat(beats)
    node.forget()
    node.hear(3, IWant((node.key(message()),)))
    assert node.said(Publication) == [message()] * there


def test_what_is_not_in_the_cache_gets_no_answer() -> None:
    node = outsiders(3)
    node.hear(3, IWant((b"unknown",)))
    assert node.env.take() == []


def test_a_message_is_sent_again_three_times_to_one_peer_and_no_more() -> None:
    node = outsiders(3, 4)
    mine = node.publish()
    for _ in range(4):
        node.hear(3, IWant((node.key(mine),) * 3))
        node.hear(3, IWant((node.key(mine),)))
    assert len(node.said(Publication, 3)) == 1 + 3
    node.hear(4, IWant((node.key(mine),)))
    assert len(node.said(Publication, 4)) == 2


def test_ten_requests_of_a_peer_are_heard_in_a_heartbeat() -> None:
    node = outsiders(3, 4)
    for number in range(12):
        node.hear(1, message(number))
    node.forget()
    for number in range(12):
        node.hear(3, IWant((node.key(message(number)),)))
    assert len(node.said(Publication, 3)) == 10
    node.beat()
    node.hear(3, IWant((node.key(message(11)),)))
    assert len(node.said(Publication, 3)) == 11


def test_a_peer_that_asks_faster_than_it_reads_gets_no_more_until_it_has_read() -> None:
    node = outsiders(3)
    for number in range(5):
        node.hear(1, message(number))
    node.forget()
    wanted = IWant(tuple(node.key(message(number)) for number in range(5)))
    node.env.backlogs[3] = gossip.BACKLOG + 1
    node.hear(3, wanted)
    assert len(node.said(Publication, 3)) == 1
    node.env.backlogs[3] = 0
    node.hear(3, wanted)
    assert len(node.said(Publication, 3)) == 6


def test_of_one_request_only_so_many_ids_are_read() -> None:
    node = outsiders(3, ihave_ids=4)
    for number in range(6):
        node.hear(1, message(number))
    node.forget()
    node.hear(3, IWant(tuple(node.key(message(number)) for number in range(6))))
    assert len(node.said(Publication)) == 4


# Refusing.


def large(sequence: int = 1, size: int = len(LARGE)) -> Publication:
    return message(sequence, data=bytes(size))


def test_a_large_message_is_refused_to_the_mesh_before_it_is_judged() -> None:
    node = outsiders(3, validates=True)
    node.hear(1, large())
    assert node.env.take() == [(2, IDontWant((node.key(large()),)))]


def test_it_is_refused_to_nobody_outside_the_mesh_and_not_to_its_sender() -> None:
    node = outsiders(3, 4)
    node.hear(3, large())
    assert node.told(IDontWant) == [1, 2]
    node.forget()
    node.hear(1, large(2))
    assert node.told(IDontWant) == [2]


def test_it_is_not_refused_to_its_author() -> None:
    node = outsiders(3)
    node.hear(3, message(source=1, data=LARGE))
    assert node.told(IDontWant) == [2]


@pytest.mark.parametrize(("version", "told"), [(V13, [2]), (V12, [2]), (V11, []), (V10, [])])
def test_it_is_refused_to_versions_that_know_refusals(version: str, told: list[int]) -> None:
    node = Node("t", d_out=0)
    node.up(1)
    node.up(2, protocol=version)
    node.hear(1, large())
    assert node.told(IDontWant) == told


def test_a_small_message_is_refused_to_nobody() -> None:
    node = outsiders()
    node.hear(1, large(size=1_023))
    assert node.said(IDontWant) == []
    quiet = outsiders(idontwant_size=0)
    quiet.hear(1, large())
    assert quiet.said(IDontWant) == []


def test_a_second_copy_refuses_nothing_more() -> None:
    node = outsiders()
    node.hear(1, large())
    node.forget()
    node.hear(2, large())
    assert node.env.take() == []


def test_an_own_message_is_refused_before_it_is_sent() -> None:
    node = outsiders()
    mine = node.publish(data=LARGE)
    assert node.env.take() == [*((peer, IDontWant((node.key(mine),))) for peer in (1, 2)), (1, mine), (2, mine)]


def test_what_a_peer_refused_is_not_forwarded_to_it() -> None:
    node = outsiders(3)
    node.hear(2, IDontWant((node.key(message()),)))
    node.hear(3, message())
    assert node.told(Publication) == [1]


def test_what_a_peer_refused_is_not_sent_though_it_asks() -> None:
    node = outsiders(3)
    node.hear(1, message())
    node.forget()
    node.hear(3, IDontWant((node.key(message()),)), IWant((node.key(message()),)))
    assert node.env.take() == []


def test_a_refusal_is_forgotten_after_three_heartbeats() -> None:
    node = outsiders(3)
    node.hear(2, IDontWant((node.key(message()),)))
    node.beat(2)
    assert len(node.router.gossip.unwanted) == 1
    node.beat()
    assert node.router.gossip.unwanted == {} and node.router.parties[2].unwanted == 0
    node.hear(3, message())
    assert node.told(Publication) == [1, 2]


def test_so_many_refusals_of_a_peer_are_heard_in_a_heartbeat() -> None:
    node = outsiders(idontwant_most=3)
    for number in range(5):
        node.hear(2, IDontWant((b"%d" % number,)))
    assert len(node.router.gossip.unwanted) == 3
    node.beat()
    node.hear(2, IDontWant((b"more",)))
    assert b"more" in node.router.gossip.unwanted


def test_of_one_refusal_only_so_many_ids_are_read() -> None:
    node = outsiders(idontwant_ids=10)
    node.hear(2, IDontWant(tuple(b"%d" % number for number in range(50))))
    assert len(node.router.gossip.unwanted) == 10


def test_an_empty_refusal_leaves_nothing() -> None:
    node = outsiders()
    node.hear(2, IDontWant(()))
    assert node.router.gossip.unwanted == {} and len(node.router.gossip._ends) == 0


def test_refusals_of_one_peer_and_of_all_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gossip, "UNWANTED", 5)
    monkeypatch.setattr(gossip, "REFUSED", 8)
    node = outsiders()
    for peer in (1, 2):
        node.hear(peer, IDontWant(tuple(b"%d/%d" % (peer, number) for number in range(7))))
    assert [node.router.parties[peer].unwanted for peer in (1, 2)] == [5, 3]
    assert len(node.router.gossip.unwanted) == 8
    node.beat(3)
    assert node.router.gossip.unwanted == {}


def test_a_long_id_is_remembered_by_its_hash() -> None:
    node = outsiders()
    node.hear(2, IDontWant((bytes(10_000),)))
    assert [len(key) for key in node.router.gossip.unwanted] == [32]
    assert node.router.gossip.wanting((1, 2), bytes(10_000)) == (1,)


def test_refusals_of_a_peer_that_left_go_in_their_time_and_count_nothing_for_its_next_link() -> None:
    node = outsiders()
    node.hear(2, IDontWant((b"1", b"2")))
    node.down(2)
    node.up(2)
    node.hear(2, IDontWant((b"3",)))
    node.beat(3)
    assert node.router.gossip.unwanted == {} and node.router.parties[2].unwanted == 0


def test_ids_of_content_are_what_is_announced_and_asked_for() -> None:
    node = outsiders(3, message_id="sha256")
    node.hear(1, message(1))
    node.hear(1, Publication(MessageId(98, 1, 7), "t", b"data"))
    assert len(node.app.delivered) == 1
    node.forget()
    node.beat()
    assert [len(key) for key in ids(node.said(IHave))] == [32]
