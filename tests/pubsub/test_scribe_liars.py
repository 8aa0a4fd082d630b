"""SRPT among peers that lie, and with validators that take their time while roots come and go."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from libweft.overlays.kademlia.config import KademliaConfig
from libweft.overlays.kademlia.neighbors import KademliaNeighbors
from libweft.overlays.kademlia.put_and_get import Kademlia
from libweft.overlays.kademlia.space import place_of, place_of_key
from libweft.overlays.vcube.messages import Member, News
from libweft.peer.dispatch import receive
from libweft.peer.fake.env import FakeEnv
from libweft.peer.machine import MessageId, PeerInfo
from libweft.pubsub.message import Verdict
from libweft.pubsub.scribe import router as scribe
from libweft.pubsub.scribe.messages import Attached, Down, Join, Leave, Taken
from libweft.pubsub.scribe.router import LOOK, SETTLED, SrptS
from tests.pubsub.apps import Inbox
from tests.pubsub.scribe_desk import REIGN, Desk, Judge, bequest, delivered, down, kinds, publish


def test_a_child_that_claims_what_was_never_sent_silences_nobody() -> None:
    desk = Desk(6)
    desk.router.join("t")
    desk.hears(7, Join("t", REIGN, 1_000_000))
    desk.hears(4, Attached("t", REIGN, 2))
    desk.hears(5, Join("t", REIGN, 2))
    desk.hears(4, down(3))
    assert delivered(desk) == [b"3"]
    assert (5, Down) in kinds(desk.sent())


def test_a_parent_that_is_behind_says_where_it_is_itself() -> None:
    desk = Desk(0).attached()
    desk.hears(5, publish(1))
    desk.sent()
    desk.hears(1, Join("t", desk.tree.reign, 50))
    assert desk.sent() == [(1, Attached("t", desk.tree.reign, 1))]
    child = Desk(1).attached(number=5)
    child.hears(0, Attached("t", REIGN, 3))
    for number in (4, 5, 6):
        child.hears(0, down(number))
    assert delivered(child) == [b"6"]


def test_an_answer_of_one_that_is_not_the_root_is_not_believed() -> None:
    desk = Desk(7)
    desk.publish()
    desk.hears(3, Taken("t", 1, 9, PeerInfo(3)))
    assert desk.router.unplaced() > 0 and desk.router.roots == {}
    desk.hears(0, Taken("t", 1, 9, PeerInfo(0)))
    assert desk.router.unplaced() == 0


def test_the_root_that_was_asked_may_answer_when_another_is_known_since() -> None:
    desk = Desk(7)
    desk.loses(0)
    desk.publish()
    receive(desk.cube, 2, News((Member(0, PeerInfo(0), 2),), 0))
    desk.env.advance(SETTLED)
    desk.hears(1, Taken("t", 1, 9, PeerInfo(1)))
    assert desk.router.unplaced() == 0


def test_where_roots_are_found_by_keys_only_one_that_is_near_enough_may_answer() -> None:
    place = place_of_key(b"t")
    near, hop, me, far = sorted(range(1, 5), key=lambda peer: place_of(peer) ^ place)
    below, env = FakeEnv(me=me), FakeEnv(me=me)
    kademlia = Kademlia(below, (), KademliaConfig())
    overlay = KademliaNeighbors(FakeEnv(me=me), kademlia, 5, SrptS.protocols)
    router = SrptS(env, overlay, Inbox())
    kademlia.table.see(hop)
    router.publish(router.compose("t", b"data"))
    assert [peer for peer, _ in env.take()] == [hop]
    receive(router, far, Taken("t", 1, 9, PeerInfo(far)))
    assert router.unplaced() > 0
    receive(router, near, Taken("t", 1, 9, PeerInfo(near)))
    assert router.unplaced() == 0 and router.roots == {"t": near}


@pytest.mark.parametrize("means", ["joins", "publishes", "bequeaths"])
def test_one_peer_leaves_room_for_the_trees_of_others(monkeypatch: pytest.MonkeyPatch, means: str) -> None:
    monkeypatch.setattr(scribe, "TOPICS", 8)
    desk = Desk(0)
    for number in range(20):
        topic = f"many{number}"
        lies = {
            "joins": Join(topic, None, 0),
            "publishes": replace(publish(source=1), topic=topic),
            "bequeaths": replace(bequest(), topic=topic),
        }
        desk.hears(1, lies[means])
    assert len(desk.router.trees) == 4
    desk.hears(2, Join("t", None, 0))
    assert desk.tree.order == (2,)


def test_room_that_a_peer_leaves_is_its_own_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scribe, "TOPICS", 8)
    desk = Desk(6)
    for number in range(20):
        desk.hears(7, Join(f"many{number}", None, 0))
        desk.hears(7, Leave(f"many{number}"))
    assert desk.router.trees == {} and desk.router.opened == {}
    desk.hears(7, Join("t", None, 0))
    assert desk.tree.order == (7,)


# Verdicts that come late.


def test_what_waits_for_a_verdict_when_another_becomes_root_is_handed_on_in_the_reign_of_that() -> None:
    judge = Judge()
    desk = Desk(1, nodes=4, app=judge)
    desk.loses(0)
    desk.attached(3)
    desk.hears(2, publish(1, source=2))
    receive(desk.cube, 2, News((Member(0, PeerInfo(0), 2),), 0))
    desk.env.advance(SETTLED)
    desk.hears(0, Attached("t", REIGN, 0))
    desk.env.advance(LOOK)
    desk.sent()
    desk.hears(0, down(1, source=2, sequence=1))
    judge.cases[0](Verdict.ACCEPT)
    desk.env.advance(2 * desk.router.config.patience)
    desk.hears(0, Attached("t", REIGN, 0))
    desk.hears(0, down(1, source=2, sequence=1))
    handed = [msg for peer, msg in desk.sent() if peer == 3 and isinstance(msg, Down)]
    assert [(msg.id, msg.reign) for msg in handed] == [(MessageId(2, 1, 1), REIGN)]
    assert delivered(desk) == [b"1"]


def test_a_second_copy_waits_for_the_verdict_on_the_first() -> None:
    judge = Judge()
    desk = Desk(6, app=judge).attached(7)
    desk.router.brought(3, down(1).publication())
    desk.hears(4, down(1))
    assert desk.sent() == []
    judge.cases[0](Verdict.ACCEPT)
    assert kinds(desk.sent()) == [(7, Down)] and delivered(desk) == [b"1"]
    assert desk.router.unjudged == {}


@pytest.mark.parametrize("verdict", [Verdict.ACCEPT, Verdict.REJECT])
def test_a_reign_begins_when_what_came_in_the_one_before_is_judged(verdict: Verdict) -> None:
    judge = Judge()
    desk = Desk(6, app=judge).attached(7)
    desk.hears(4, down(1))
    again = MessageId(1, 1, 10)
    desk.hears(4, Attached("t", again, 0))
    assert desk.sent() == []
    judge.cases[0](verdict)
    ((_, handed),) = desk.sent()
    assert (handed.reign, handed.number) == (REIGN, 1)
    desk.env.advance(desk.router.config.patience)
    assert (4, Join("t", REIGN, 1)) in desk.sent()
    desk.hears(4, Attached("t", again, 0))
    assert desk.sent() == [(7, Attached("t", again, 0))]


def test_what_waits_for_a_verdict_when_this_node_becomes_root_is_numbered_by_it() -> None:
    judge = Judge()
    desk = Desk(1, app=judge).attached(3)
    desk.hears(0, down(1))
    desk.loses(0)
    desk.sent()
    judge.cases[0](Verdict.ACCEPT)
    ((peer, msg),) = desk.sent()
    assert (peer, msg.reign, msg.number, msg.data) == (3, desk.tree.reign, 1, b"1")
    assert delivered(desk) == [b"1"]
