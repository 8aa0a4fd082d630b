"""SRPT: each rule of the trees by hand, parents and roots that go and come, and whole networks in every world."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from libweft.bench.runs.property_checks import Recorder, fifo, integrity, tell
from libweft.bench.runs.replay import command
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Churn, Scenario, Workload
from libweft.overlays.description import Options
from libweft.overlays.overlay import Overlay
from libweft.overlays.static import Static
from libweft.overlays.vcube.cube import PLACES
from libweft.overlays.vcube.machine import VCube
from libweft.overlays.vcube.members import Founders
from libweft.overlays.vcube.messages import Member, News
from libweft.peer.codec import msgpack
from libweft.peer.dispatch import receive
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.fake.env import FakeEnv
from libweft.peer.fake.wire import FakeWire
from libweft.peer.machine import SECOND, Link, Machine, Message, MessageId, PeerInfo
from libweft.peer.sim.faults import AnyFault, Crash, Duplicate, Loss, MassCrash, Partition, Reorder, Restart
from libweft.peer.sim.latency import Uniform
from libweft.peer.sim.simulator import Simulator
from libweft.peer.trace.kinds import DUPLICATE, REJECT
from libweft.pubsub import stacks
from libweft.pubsub.claims import NUMBER
from libweft.pubsub.interests import Filter
from libweft.pubsub.message import OrderHeader, Publication, Verdict
from libweft.pubsub.router import Router
from libweft.pubsub.scribe import router as scribe
from libweft.pubsub.scribe.channels import SOURCES, WINDOW, Inlets, Outlet
from libweft.pubsub.scribe.config import BY_NUMBER, BrokerConfig, ScribeConfig
from libweft.pubsub.scribe.messages import HOPS, Attached, Beat, Bequest, Down, Got, Join, Leave, Publish, Skip, Taken
from libweft.pubsub.scribe.router import FOUND, LOOK, SETTLED, SrptB, SrptS
from libweft.pubsub.scribe.routes import ByBroker
from libweft.pubsub.scribe.tree import Kept
from tests.conftest import note_replay
from tests.pubsub.apps import Inbox, Seal
from tests.pubsub.scribe_desk import (
    AT_0,
    REIGN,
    Desk,
    Judge,
    bequest,
    delivered,
    down,
    kinds,
    publish,
    replace_config,
)

STACKS = ("vcube/srpt-s", "vcube/srpt-b", "kademlia/srpt-s")
HERE = ("/ip4/127.0.0.1/tcp/0",)


# Joining.


def test_a_subscriber_joins_its_parent_and_is_in_force_when_that_has_a_way_to_the_root() -> None:
    desk = Desk(7)
    desk.router.join("t")
    assert desk.sent() == [(6, Join("t", None, 0))]
    assert desk.app.in_force == []
    desk.hears(6, Attached("t", REIGN, 3))
    assert desk.app.in_force == ["t"]
    desk.hears(6, Attached("t", REIGN, 3))
    assert desk.app.in_force == ["t"]


def test_the_root_is_in_force_at_once() -> None:
    desk = Desk(0)
    desk.router.join("t")
    assert desk.app.in_force == ["t"] and desk.sent() == []


def test_a_node_on_the_way_becomes_a_forwarder_and_answers_when_it_has_a_way_itself() -> None:
    desk = Desk(6)
    desk.hears(7, Join("t", None, 0))
    assert desk.sent() == [(4, Join("t", None, 0))]
    desk.hears(4, Attached("t", REIGN, 5))
    assert desk.sent() == [(7, Attached("t", REIGN, 5))]
    assert desk.app.in_force == []
    desk.hears(5, Join("t", None, 0))
    assert desk.sent() == [(5, Attached("t", REIGN, 5))]


def test_who_has_no_place_yet_waits_and_joins_when_it_has() -> None:
    env = FakeEnv(me=9)
    cube = VCube(FakeEnv(me=9), (0,))
    router = SrptS(env, cube, Inbox(), AT_0)
    router.join("t")
    router.publish(router.compose("t", b"early"))
    assert env.take() == []
    cube.roll.put(Member(0, PeerInfo(0), 0))
    cube.index, cube.ready = 1, True
    cube.roll.put(Member(1, PeerInfo(9), 0))
    env.advance(LOOK)
    assert kinds(env.take()) == [(0, Join), (0, Publish)]


def test_the_last_that_leaves_takes_its_forwarder_along() -> None:
    desk = Desk(6)
    desk.hears(7, Join("t", None, 0))
    desk.hears(4, Attached("t", REIGN, 0))
    assert list(desk.env.holds) == [4]
    desk.sent()
    desk.hears(7, Leave("t"))
    assert desk.sent() == [(4, Leave("t"))]
    assert desk.router.trees == {} and list(desk.env.holds) == []


def test_who_leaves_and_has_children_stays_a_forwarder() -> None:
    desk = Desk(6).attached(7)
    desk.router.leave("t")
    assert desk.sent() == []
    desk.hears(4, down())
    assert kinds(desk.sent()) == [(7, Down)] and delivered(desk) == []


def test_a_node_that_stops_leaves() -> None:
    desk = Desk(6).attached()
    desk.router.stop()
    assert desk.sent() == [(4, Leave("t"))]


# Publishing.


def test_a_publisher_sends_to_the_root_directly_and_delivers_at_once() -> None:
    desk = Desk(7).attached()
    published = desk.publish()
    ((peer, msg),) = desk.sent()
    assert (peer, msg.id, msg.hops, msg.source) == (0, published.id, 1, PeerInfo(7))
    assert delivered(desk) == [b"data"]


def test_its_own_message_comes_back_through_the_tree_and_is_handed_on() -> None:
    desk = Desk(6).attached(7)
    published = desk.publish()
    desk.sent()
    desk.hears(4, down(source=6, sequence=published.id.sequence))
    assert kinds(desk.sent()) == [(7, Down)]
    assert delivered(desk) == [b"data"]
    assert [row.kind for row in desk.env.take_traced()][-1:] == [DUPLICATE]


def test_the_root_numbers_answers_and_serves_the_nearest_child_first() -> None:
    desk = Desk(0).attached(4, 1, 2)
    desk.hears(5, publish())
    sent = desk.sent()
    assert kinds(sent) == [(5, Taken), (1, Down), (2, Down), (4, Down)]
    assert sent[0][1] == Taken("t", 1, 2, PeerInfo(0))
    assert {(msg.number, msg.hops, msg.reign) for _, msg in sent[1:]} == {(1, 2, desk.tree.reign)}
    assert delivered(desk) == [b"1"]


def test_the_root_s_own_message_takes_no_step_to_the_root() -> None:
    desk = Desk(0).attached(1)
    desk.publish()
    ((peer, msg),) = desk.sent()
    assert (peer, msg.hops, msg.number) == (1, 1, 1)
    desk.env.advance(FOUND)
    assert desk.router.unplaced() == 0


def test_what_waited_for_a_way_is_numbered_in_its_order_by_a_root_of_its_own() -> None:
    """Each is answered for at once, whereupon the next one leaves."""
    desk = Desk(0).attached(1)
    desk.cube.ready = False
    for data in (b"a", b"b", b"c"):
        desk.publish(data)
    assert desk.sent() == []
    desk.cube.ready = True
    desk.publish(b"d")
    assert [(peer, m.number, m.data) for peer, m in desk.sent()] == [(1, 1, b"a"), (1, 2, b"b"), (1, 3, b"c"), (1, 4, b"d")]


def test_a_new_root_that_publishes_waits_for_those_who_find_it() -> None:
    """Else who comes, publishes and goes would take its message along."""
    desk = Desk(0)
    publication = desk.publish()
    assert desk.router.unplaced() > 0
    for child in (3, 4):
        desk.hears(child, Join("t", REIGN, 5))
        assert [(to, msg.id) for to, msg in desk.sent() if isinstance(msg, Down)] == [(child, publication.id)]
        assert desk.router.unplaced() > 0
    desk.env.advance(FOUND)
    assert desk.router.unplaced() == 0


def test_a_new_root_takes_no_more_than_it_keeps_until_somebody_has_found_it() -> None:
    desk = Desk(0, config=replace_config(AT_0, keep=4))
    own = [desk.publish(b"%d" % number) for number in range(3)]
    for number in (1, 2, 3):
        desk.hears(5, publish(number))
    own += [desk.publish(b"%d" % number) for number in range(3, 6)]
    assert [msg.number for _, msg in desk.sent() if isinstance(msg, Taken)] == [2]
    desk.hears(3, Join("t", REIGN, 5))
    heard = [msg for _, msg in desk.sent() if isinstance(msg, Down)]
    assert [msg.id for msg in heard if msg.id.source == 0] == [publication.id for publication in own]
    assert [msg.number for msg in heard] == list(range(1, 8))
    desk.hears(5, publish(2))
    assert [msg.data for _, msg in desk.sent() if isinstance(msg, Down)] == [b"2"]


def test_a_new_root_that_nobody_finds_takes_the_rest_after_a_while() -> None:
    desk = Desk(0, config=replace_config(AT_0, keep=4)).attached()
    for number in range(6):
        desk.publish(b"%d" % number)
    assert desk.router.unplaced() > 0
    desk.env.advance(FOUND + desk.router.config.patience + LOOK)
    assert desk.router.unplaced() == 0 and desk.tree.passed == 6
    assert delivered(desk) == [b"%d" % number for number in range(6)]


def test_whoever_is_not_the_root_sends_a_publication_on_but_not_for_ever() -> None:
    desk = Desk(6)
    desk.hears(5, publish())
    ((peer, msg),) = desk.sent()
    assert (peer, msg.hops) == (0, 2)
    desk.hears(5, publish(hops=HOPS + 1))
    assert desk.sent() == []


def test_the_root_takes_what_a_source_publishes_in_order_and_once() -> None:
    desk = Desk(0).attached()
    for number in (1, 3, 2, 2, 3):
        desk.hears(5, publish(number))
    assert delivered(desk) == [b"1", b"2", b"3"]
    assert [msg.number for _, msg in desk.sent()] == [2, 2, 3, 3, 4]


@pytest.mark.parametrize("lie", [publish(1), publish(1, life=9), publish(50, base=50)])
def test_whoever_publishes_in_another_s_name_takes_none_of_its_numbers(lie: Publish) -> None:
    desk = Desk(0).attached()
    desk.router.signing = Seal()  # type: ignore[assignment]
    desk.hears(6, lie)
    assert desk.sent() == []
    for number in (1, 2):
        desk.hears(5, replace(publish(number), signature=b"true"))
    assert delivered(desk) == [b"1", b"2"]


def test_a_new_root_begins_where_the_source_says_that_it_has_no_answer_yet() -> None:
    desk = Desk(0).attached()
    desk.hears(5, publish(8, base=7))
    assert delivered(desk) == []
    desk.hears(5, publish(7, base=7))
    desk.hears(5, publish(8, base=7))
    assert delivered(desk) == [b"7", b"8"]
    desk.hears(5, publish(1, base=1, life=2))  # it began anew
    assert delivered(desk) == [b"7", b"8", b"1"]


def test_what_was_not_answered_is_sent_again_to_the_root_of_that_time() -> None:
    desk = Desk(7)
    one, two = desk.publish(b"1"), desk.publish(b"2")
    desk.sent()
    desk.loses(0)
    desk.env.advance(desk.router.config.patience + LOOK)
    sent = [(peer, msg.id) for peer, msg in desk.sent() if isinstance(msg, Publish)]
    assert sent == [(1, one.id), (1, two.id)]
    assert desk.router.unplaced() > 0
    desk.hears(1, Taken("t", 1, 3, PeerInfo(1)))
    assert desk.router.unplaced() == 0
    desk.env.advance(10 * desk.router.config.patience)
    assert desk.sent() == []


def test_answers_for_another_life_or_topic_say_nothing() -> None:
    desk = Desk(7)
    desk.publish()
    desk.hears(0, Taken("t", 5, 9, PeerInfo(0)))
    desk.hears(0, Taken("u", 1, 9, PeerInfo(0)))
    assert desk.router.unplaced() > 0


def test_beyond_the_bytes_that_may_wait_a_message_is_refused() -> None:
    desk = Desk(7, config=replace_config(AT_0, held_bytes=1_000))
    for _ in range(5):
        desk.publish(bytes(400))
    assert desk.router.refused == 3
    assert [row.kind for row in desk.env.take_traced() if row.reason] == [REJECT] * 3


def test_a_window_of_messages_is_on_its_way_and_the_rest_waits() -> None:
    outlet = Outlet(1)
    for number in range(WINDOW + 5):
        outlet.add(Publication(MessageId(1, 1, number), "t", b""))
    assert len(list(outlet.due(1, PeerInfo(1)))) == WINDOW
    assert outlet.taken(4) and not outlet.taken(4)
    assert [(m.number, m.base) for m in outlet.due(1, PeerInfo(1))] == [(number, 4) for number in range(WINDOW + 1, WINDOW + 4)]


def test_sources_that_a_root_remembers_are_bounded() -> None:
    inlets = Inlets()
    for source in range(SOURCES + 10):
        inlets.find(publish(source=source))
    assert len(inlets.sources) == SOURCES and inlets.of(0, "t") is None


# Down the tree.


def test_messages_are_taken_from_the_parent_alone_and_another_hears_that_it_is_none() -> None:
    desk = Desk(6).attached(7)
    desk.hears(2, down())
    assert desk.sent() == [(2, Leave("t"))]
    assert delivered(desk) == []
    desk.hears(4, down())
    assert kinds(desk.sent()) == [(7, Down)]
    assert delivered(desk) == [b"1"]


def test_a_second_copy_is_dropped() -> None:
    desk = Desk(6).attached(7)
    desk.hears(4, down())
    desk.sent()
    desk.hears(4, down())
    assert desk.sent() == [] and delivered(desk) == [b"1"]
    assert [row.kind for row in desk.env.take_traced()].count(DUPLICATE) == 1


def test_a_hole_is_not_passed_over_but_asked_for_once_in_a_while() -> None:
    desk = Desk(6).attached(7)
    desk.hears(4, down(1))
    desk.sent()
    desk.env.advance(desk.router.config.patience)
    desk.sent()
    desk.hears(4, down(3))
    desk.hears(4, down(4))
    assert desk.sent() == [(4, Join("t", REIGN, 1))]
    assert delivered(desk) == [b"1"]


def test_a_parent_sends_what_a_child_lacks_and_goes_on() -> None:
    desk = Desk(0).attached()
    for number in (1, 2, 3):
        desk.hears(5, publish(number))
    desk.sent()
    reign = desk.tree.reign
    desk.hears(1, Join("t", reign, 1))
    assert desk.sent()[0] == (1, Attached("t", reign, 1))
    desk.hears(2, Join("t", None, 0))
    assert desk.sent() == [(2, Attached("t", reign, 3))]  # who comes for the first time has no past


def test_what_a_child_is_sent_late_is_as_it_was_sent_to_the_others() -> None:
    desk = Desk(6).attached(7)
    desk.hears(4, down(1, hops=2))
    ((_, prompt),) = desk.sent()
    desk.hears(5, Join("t", REIGN, 0))
    assert desk.sent() == [(5, Attached("t", REIGN, 0)), (5, prompt)] and prompt.hops == 3


def test_what_is_not_kept_any_more_is_lost_and_said_so() -> None:
    desk = Desk(0, config=replace_config(AT_0, keep=2)).attached()
    desk.env.advance(FOUND)
    for number in (1, 2, 3, 4):
        desk.hears(5, publish(number))
    desk.sent()
    desk.hears(1, Join("t", desk.tree.reign, 1))
    sent = desk.sent()
    assert sent[0] == (1, Attached("t", desk.tree.reign, 2))
    assert [msg.number for _, msg in sent[1:]] == [3, 4]
    child = Desk(1).attached()
    child.hears(0, Attached("t", REIGN, 2))
    child.hears(0, down(3))
    assert delivered(child) == [b"3"]


def test_one_that_asks_again_and_again_does_not_get_all_each_time() -> None:
    desk = Desk(0).attached()
    for number in (1, 2, 3):
        desk.hears(5, publish(number))
    desk.sent()
    for _ in range(3):
        desk.hears(1, Join("t", desk.tree.reign, 0))
    assert kinds(desk.sent()) == [(1, Attached), (1, Down), (1, Down), (1, Down), (1, Attached), (1, Attached)]


def test_what_is_kept_is_bounded_by_number_and_bytes_and_the_quietest_topic_gives_first() -> None:
    kept = Kept(3, 1_000)
    for number in range(1, 6):
        kept.add(down(number))
    assert [handed.number for handed in kept.of("t", REIGN, 0)] == [3, 4, 5]
    for number in range(1, 4):
        kept.add(replace(down(number), topic="u", data=bytes(250)))
    assert kept.bytes <= 1_000 and kept.of("t", REIGN, 0) == []
    assert [handed.number for handed in kept.of("u", REIGN, 0)] == [1, 2, 3]
    kept.forget("u")
    assert kept.bytes == 0


# Validation.


def test_a_message_is_handed_on_when_it_was_accepted_and_in_its_turn() -> None:
    judge = Judge()
    desk = Desk(6, app=judge).attached(7)
    desk.hears(4, down(1))
    desk.hears(4, down(2))
    judge.cases[1](Verdict.ACCEPT)
    assert desk.sent() == [] and delivered(desk) == []
    judge.cases[0](Verdict.ACCEPT)
    assert [(peer, msg.number) for peer, msg in desk.sent()] == [(7, 1), (7, 2)]
    assert delivered(desk) == [b"1", b"2"]


def test_one_that_is_refused_leaves_its_number_and_nothing_else() -> None:
    judge = Judge()
    desk = Desk(6, app=judge).attached(7)
    desk.hears(4, down(1))
    judge.cases[0](Verdict.REJECT)
    assert desk.sent() == [(7, Skip("t", REIGN, 1))]
    child = Desk(7).attached()
    child.hears(6, Skip("t", REIGN, 1))
    child.hears(6, down(2))
    assert delivered(child) == [b"2"]


def test_one_that_the_root_refuses_has_no_number_and_is_answered_for() -> None:
    judge = Judge()
    desk = Desk(0, app=judge).attached(1)
    desk.hears(5, publish(1))
    desk.hears(5, publish(2))
    judge.cases[0](Verdict.REJECT)
    judge.cases[1](Verdict.ACCEPT)
    sent = desk.sent()
    assert kinds(sent) == [(5, Taken), (5, Taken), (1, Down)]
    assert sent[-1][1].number == 1 and sent[-1][1].data == b"2"


def test_one_that_was_refused_is_not_handed_on_in_another_reign() -> None:
    judge = Judge()
    desk = Desk(6, app=judge).attached(7)
    desk.hears(4, down(1))
    judge.cases[0](Verdict.REJECT)
    again = MessageId(0, 1, 10)
    desk.hears(4, Attached("t", again, 0))
    desk.sent()
    desk.hears(4, down(1, reign=again))
    assert desk.sent() == [(7, Skip("t", again, 1))]


def test_what_waits_for_a_verdict_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scribe, "WAITING", 4)
    desk = Desk(6, app=Judge()).attached()
    for number in range(1, 9):
        desk.hears(4, down(number))
    assert len(desk.tree.queue) == 4 and desk.tree.last == 4


# Parents and roots that go and come.


def test_a_child_goes_to_another_parent_when_its_own_is_down_and_says_what_it_has() -> None:
    desk = Desk(7).attached()
    desk.hears(6, down(1))
    desk.loses(6)
    assert desk.sent() == [(6, Leave("t")), (4, Join("t", REIGN, 1))]
    assert list(desk.env.holds) == [4]


def test_a_forwarder_that_is_new_asks_for_what_its_child_lacks() -> None:
    desk = Desk(6)
    desk.hears(7, Join("t", REIGN, 4))
    assert desk.sent() == [(4, Join("t", REIGN, 4))]
    desk.hears(4, Attached("t", REIGN, 4))
    desk.hears(4, down(5))
    assert kinds(desk.sent()) == [(7, Attached), (7, Down)]


def test_a_link_that_fell_costs_a_child_and_has_a_parent_asked_again() -> None:
    desk = Desk(6).attached(7)
    desk.router.link_up(4, Link(1, True, ""))
    desk.router.link_up(7, Link(2, False, ""))
    desk.router.link_down(7, 1, "an older link")
    assert desk.tree.order == (7,)
    desk.router.link_down(7, 2, "reset")
    assert desk.tree.order == ()
    desk.router.link_down(4, 1, "reset")
    desk.env.advance(LOOK)
    assert desk.sent() == [(4, Join("t", REIGN, 0))]


def test_a_beat_goes_down_and_shows_what_is_missing() -> None:
    desk = Desk(6).attached(7)
    desk.hears(4, Beat("t", REIGN, 0))
    assert desk.sent() == [(7, Beat("t", REIGN, 0))]
    desk.env.advance(desk.router.config.patience)
    desk.sent()
    desk.hears(4, Beat("t", REIGN, 2))
    assert desk.sent() == [(4, Join("t", REIGN, 0))]


def test_the_root_beats() -> None:
    desk = Desk(0).attached(1)
    desk.env.advance(desk.router.config.beat_every + LOOK)
    assert desk.sent() == [(1, Beat("t", desk.tree.reign, 0))]


def test_without_beats_a_parent_is_suspected_and_asked_again() -> None:
    desk = Desk(6).attached()
    desk.env.advance(desk.router.config.beats * desk.router.config.beat_every + 2 * LOOK)
    assert (4, Join("t", REIGN, 0)) in desk.sent()
    assert not desk.tree.attached


def test_a_child_that_says_nothing_for_long_is_none() -> None:
    desk = Desk(0).attached(1)
    desk.env.advance(2 * desk.router.config.refresh_every)
    desk.hears(2, Join("t", None, 0))
    desk.env.advance(2 * desk.router.config.refresh_every)
    assert desk.tree.order == (2,)
    assert desk.router.children == 1


def test_a_child_refreshes_its_join() -> None:
    desk = Desk(6).attached()
    for _ in range(8):
        desk.env.advance(desk.router.config.beat_every)
        desk.hears(4, Beat("t", REIGN, 0))
    assert (4, Join("t", REIGN, 0)) in desk.sent()


def test_the_next_root_begins_a_reign_and_tells_its_children() -> None:
    desk = Desk(1).attached(3)
    desk.hears(0, down(1))
    desk.hears(0, down(2))
    desk.sent()
    desk.loses(0)
    assert desk.tree.is_root and desk.tree.reign != REIGN
    assert desk.sent() == [(0, Leave("t")), (3, Attached("t", desk.tree.reign, 0))]


def test_whoever_changes_its_parent_with_the_root_has_the_rest_of_the_reign_before() -> None:
    desk = Desk(1).attached()
    for number in (1, 2, 3):
        desk.hears(0, down(number))
    desk.loses(0)
    desk.sent()
    desk.hears(3, Join("t", REIGN, 2))
    sent = desk.sent()
    assert [(peer, msg.reign, msg.number) for peer, msg in sent] == [(3, REIGN, 3), (3, desk.tree.reign, 0)]


def test_a_root_that_gives_way_bequeaths_the_last_of_its_reign_when_it_has_a_way_to_the_next() -> None:
    desk = Desk(1, nodes=4)
    desk.loses(0)
    desk.attached()
    desk.hears(3, publish(1, source=3))
    desk.hears(3, publish(2, source=3))
    old = desk.tree.reign
    desk.sent()
    receive(desk.cube, 2, News((Member(0, PeerInfo(0), 2),), 0))
    desk.env.advance(SETTLED)
    assert desk.sent() == [(0, Join("t", old, 2))]
    desk.hears(0, Attached("t", REIGN, 0))
    assert [(peer, type(msg), msg.number, msg.hops) for peer, msg in desk.sent()] == [(0, Bequest, 1, 2), (0, Bequest, 2, 2)]


def test_a_forged_bequest_stands_in_no_other_s_way() -> None:
    desk = Desk(0).attached()
    desk.router.signing = Seal()  # type: ignore[assignment]
    desk.hears(1, bequest(9))
    desk.hears(1, replace(bequest(1), signature=b"true"))
    assert delivered(desk) == [b"1"]


def test_what_is_bequeathed_is_handed_on_unless_a_later_one_of_its_source_was() -> None:
    desk = Desk(0).attached(1)
    desk.hears(1, bequest(1))
    desk.hears(5, publish(3, base=3))
    desk.hears(1, bequest(2))
    assert delivered(desk) == [b"1", b"3"]
    away = Desk(6)
    away.hears(7, bequest())
    assert kinds(away.sent()) == [(4, Bequest)]


def test_a_subscriber_may_hold_a_link_to_the_root() -> None:
    desk = Desk(7, config=replace_config(AT_0, root_link=True)).attached()
    assert list(desk.env.holds) == [6, 0]
    desk.loses(0)
    assert list(desk.env.holds) == [5, 1]
    desk.router.leave("t")
    assert list(desk.env.holds) == []


def test_a_copy_is_acknowledged_to_the_parent_where_that_is_asked_for() -> None:
    desk = Desk(6, config=replace_config(AT_0, acks=True)).attached(7)
    desk.hears(4, down(1))
    assert kinds(desk.sent()) == [(7, Down), (4, Got)]
    desk.env.advance(desk.router.config.refresh_every)
    desk.hears(7, Got("t", REIGN, 1))
    desk.env.advance(2 * desk.router.config.refresh_every + LOOK)
    assert desk.tree.order == (7,)


# Brokers.


def broker_desk(me: int, nodes: int = 16, group: int = 4) -> Desk:
    return Desk(me, nodes, BrokerConfig(root=0, group=group), kind=SrptB)


def test_a_subscriber_hangs_on_the_broker_of_its_group_and_brokers_make_the_tree() -> None:
    client = broker_desk(14)
    client.router.join("t")
    assert client.sent() == [(12, Join("t", None, 0))]
    broker = broker_desk(12)
    broker.hears(14, Join("t", None, 0))
    assert broker.sent() == [(8, Join("t", None, 0))]


def test_a_broker_serves_the_tree_before_its_own_subscribers() -> None:
    desk = broker_desk(0).attached(1, 3, 4, 8)
    assert desk.tree.order == (4, 8, 1, 3)


def test_where_a_broker_is_down_the_next_of_its_group_is_it() -> None:
    desk = broker_desk(14)
    desk.router.join("t")
    desk.sent()
    desk.loses(12)
    assert kinds(desk.sent()) == [(12, Leave), (13, Join)]
    heir = broker_desk(13)
    heir.loses(12)
    heir.hears(14, Join("t", None, 0))
    assert kinds(heir.sent()) == [(8, Join)]


@given(st.integers(1, 70), st.sampled_from([1, 2, 8, 32]), st.integers(0, 1 << 30))
@settings(max_examples=40)
def test_from_anybody_parents_lead_to_one_root_through_brokers_alone(nodes: int, group: int, seed: int) -> None:
    rng = Random(seed)
    down_ones = rng.sample(range(nodes), rng.randrange(nodes))
    routes = {}
    for me in range(nodes):
        cube = VCube(FakeEnv(me=me), Founders(nodes))
        for gone in down_ones:
            cube.roll.put(Member(gone, PeerInfo(gone), 1))
        cube.version += 1
        if me not in down_ones:
            routes[me] = ByBroker(cube, BrokerConfig(group=group))
    ends = set()
    for me in routes:
        way = [me]
        while (hop := routes[way[-1]].way("topic").parent) is not None:
            assert isinstance(hop, int)
            way.append(hop)
        ends.add(way[-1])
        assert all(routes[me].members() >> broker & 1 for broker in way[1:])
        assert len(way) <= 2 + (nodes - 1).bit_length()
    assert len(ends) == 1


# The border.


def test_a_filter_and_an_overlay_without_places_are_refused() -> None:
    with pytest.raises(UsageError, match="tree is of a topic"):
        Desk().router.join(Filter(()))
    static: Overlay = Static(FakeEnv(), (), ())
    with pytest.raises(UsageError, match="only the overlay vcube has places"):
        SrptS(FakeEnv(), static, Inbox(), AT_0)
    with pytest.raises(UsageError, match="Static has no places"):
        SrptB(FakeEnv(), static, Inbox())


@pytest.mark.parametrize(
    "msg",
    [
        Join("t" * 2_000, None, 0),
        Join("t", MessageId(b"bytes", 1, 1), 0),
        Join("t", REIGN, -1),
        Leave("t" * 2_000),
        Attached("t", MessageId(0, -1, 1), 0),
        Beat("t", REIGN, NUMBER + 1),
        Skip("t", MessageId(0, 1, -1), 0),
        replace(publish(), source=PeerInfo(4)),
        publish(number=1, base=2),
        replace(publish(), life=-1),
        replace(publish(), life=2),
        replace(publish(), hops=-1),
        replace(down(), id=MessageId(b"bytes", 1, 1)),
        replace(down(), topic="t" * 2_000),
        replace(down(), hops=-1),
        replace(down(), order=OrderHeader(1, -1)),
        down(number=NUMBER + 1),
        down(reign=MessageId(b"bytes", 1, 1)),
        Got("t", MessageId(b"bytes", 1, 1), 1),
        replace(bequest(), number=-1),
        Taken("t", 1, 1, PeerInfo(b"bytes")),
    ],
)
def test_what_no_member_says_is_its_sender_s_fault(msg: Message) -> None:
    desk = Desk(0).attached()
    desk.publish()
    with pytest.raises(PeerError):
        desk.hears(5, msg)


def test_every_message_passes_the_codec() -> None:
    reign, source = MessageId(b"root", 1, 2), PeerInfo(b"peer")
    joins = [Join("t", reign, 3), Join("t", None, 0), Leave("t")]
    said: list[Message] = [
        *joins,
        Attached("t", reign, 4),
        Beat("t", reign, 5),
        Skip("t", reign, 6),
        Got("t", reign, 7),
        replace(publish(), id=MessageId(b"peer", 1, 1), source=source),
        replace(down(), id=MessageId(b"peer", 1, 1), reign=reign),
        replace(bequest(), id=MessageId(b"peer", 1, 1)),
        Taken("t", 1, 2, source),
    ]
    for kind in (SrptS, SrptB):
        codec = msgpack(kind.kinds)
        for msg in said:
            assert list(codec.unpack(codec.pack([msg])[0])) == [msg]


def test_children_and_topics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scribe, "CHILDREN", 3)
    monkeypatch.setattr(scribe, "TOPICS", 2)
    desk = Desk(0)
    for topic, one, other in (("a", 1, 2), ("b", 2, 1), ("c", 3, 4)):
        desk.hears(one, Join(topic, None, 0))
        desk.hears(other, Join(topic, None, 0))
    assert {topic: tree.order for topic, tree in desk.router.trees.items()} == {"a": (1, 2), "b": (2,)}
    desk.hears(5, replace(publish(), topic="c"))
    assert list(desk.router.trees) == ["a", "b"] and isinstance(desk.sent()[-1][1], Taken)


messages = st.one_of(
    st.builds(Join, st.sampled_from("tu"), st.sampled_from([None, REIGN, MessageId(1, 1, 1)]), st.integers(0, 5)),
    st.builds(Leave, st.sampled_from("tu")),
    st.builds(Attached, st.sampled_from("tu"), st.sampled_from([REIGN, MessageId(1, 1, 1)]), st.integers(0, 5)),
    st.builds(Beat, st.sampled_from("tu"), st.sampled_from([REIGN, MessageId(1, 1, 1)]), st.integers(0, 5)),
    st.builds(Skip, st.sampled_from("tu"), st.sampled_from([REIGN, MessageId(1, 1, 1)]), st.integers(0, 5)),
    st.builds(down, st.integers(1, 5), st.sampled_from([REIGN, MessageId(1, 1, 1)]), st.integers(1, 7), st.integers(1, 9)),
    st.builds(publish, st.integers(1, 5), st.just(1), st.integers(1, 7), st.integers(1, 2), st.integers(1, 3)),
    st.builds(bequest, st.integers(1, 5), st.integers(1, 7)),
    st.builds(Taken, st.sampled_from("tu"), st.integers(0, 2), st.integers(0, 9), st.builds(PeerInfo, st.integers(1, 7))),
)


@given(st.sampled_from([0, 6]), st.lists(st.tuples(st.integers(1, 7), messages), max_size=40))
def test_whatever_peers_say_nothing_is_delivered_twice_and_the_books_are_right(me: int, said: list[tuple[int, Message]]) -> None:
    desk = Desk(me).attached()
    for sender, msg in said:
        desk.hears(sender, msg)
        desk.env.advance(100_000)
    ids = [publication.id for publication in desk.app.delivered]
    assert len(ids) == len(set(ids))
    trees = desk.router.trees.values()
    assert desk.router.children == sum(len(tree.children) for tree in trees)
    assert all(set(tree.order) == set(tree.children) and tree.passed <= tree.last for tree in trees)
    assert desk.router.unjudged == {}


def test_options_out_of_bounds_are_refused() -> None:
    for name, value in (("beats", 0), ("keep", 0), ("patience", 10), ("root", -3)):
        with pytest.raises(UsageError, match=rf"router\.{name} is {value}; it must be at least"):
            stacks.check("vcube/srpt-s", {}, {name: value}, 10)
    with pytest.raises(UsageError, match=r"router\.group is 12; it must be a power of two"):
        stacks.check("vcube/srpt-b", {}, {"group": 12}, 10)
    with pytest.raises(UsageError, match=r"router\.root is 16384; it must be below"):
        stacks.check("vcube/srpt-s", {}, {"root": 1 << 14}, 10)


def test_the_root_of_a_topic_may_be_at_the_number_that_ends_its_name() -> None:
    routes = Desk(me=5, config=ScribeConfig(root=BY_NUMBER)).router.routes
    assert [routes.way(topic).root for topic in ("t3", "room 12/6", "7", f"t{PLACES + 2}")] == [3, 6, 7, 2]
    assert routes.way("t3x").root == Desk(me=5, config=ScribeConfig()).router.routes.way("t3x").root


# Whole networks.


def router_of(machines: Sequence[Machine]) -> Router:
    router = machines[-1]
    assert isinstance(router, Router)
    return router


@given(st.integers(1, 24), st.integers(0, 1 << 30), st.sampled_from(["vcube/srpt-s", "vcube/srpt-b"]))
@settings(max_examples=15, deadline=None)
def test_each_subscriber_has_each_message_once_and_those_of_a_source_in_order(nodes: int, seed: int, name: str) -> None:
    rng, apps = Random(seed), [Inbox() for _ in range(nodes)]
    stack = stacks.find(name, {"start": "order", "round_every": 10 * SECOND}, {})
    sim = Simulator(seed, Uniform(low=1.0, high=200.0))
    for contacts, app in zip(stack.introduce(nodes, rng), apps, strict=True):
        sim.add(stack.node(contacts, app))
    subscribers = sorted(rng.sample(range(nodes), rng.randint(1, nodes)))
    for node in subscribers:
        router_of(sim.nodes[node].machines).join("t")
    sim.run(20 * SECOND)
    said: dict[int, list[bytes]] = {node: [] for node in range(nodes)}
    for turn in range(20):
        node = rng.randrange(nodes)
        router = router_of(sim.nodes[node].machines)
        router.publish(router.compose("t", b"%d" % turn))
        said[node].append(b"%d" % turn)
    sim.run(60 * SECOND)
    for node, app in enumerate(apps):
        assert len(app.in_force) == (node in subscribers)
        heard = {source: [p.data for p in app.delivered if p.id.source == source] for source in range(nodes)}
        assert heard == (said if node in subscribers else {source: [] for source in range(nodes)})


@pytest.mark.parametrize("name", ["vcube/srpt-s", "vcube/srpt-b"])
def test_nodes_that_join_on_a_wire_with_the_codec_hear_each_other(name: str) -> None:
    wire, apps = FakeWire(codec=True), [Inbox() for _ in range(7)]
    stack = stacks.find(name, {}, {})
    for number, app in enumerate(apps):
        wire.add(stack.node((0,) if number else (), app))
        wire.run()
        router_of(wire.nodes[-1].machines).join("t")
    wire.run(10 * SECOND)
    for node in wire.nodes:
        router = router_of(node.machines)
        router.publish(router.compose("t", b"%d" % node.me))
    wire.run(10 * SECOND)
    assert wire.errors == []
    assert all(sorted(p.data for p in app.delivered) == [b"%d" % number for number in range(7)] for app in apps)


def scenario(stack: str, **more: Any) -> Scenario:
    overlay: Options = {"start": "order"} if stack.startswith("vcube") else {}
    told = replace(Scenario(stack=stack, nodes=50, overlay=overlay, workload=Workload(messages=40)), **more)
    note_replay(command(told))
    return told


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("share", [1.0, 0.25])
def test_in_a_calm_network_all_is_heard_by_one_copy_a_member_of_the_tree_and_one_to_the_root(stack: str, share: float) -> None:
    result = run(scenario(stack, workload=Workload(messages=20, subscribers=share, publishers=share)))
    assert result["reliability_min"] == 1.0
    assert result["rmr"] < 0.1  # the step to the root, and the publisher's own copy
    assert result["ldh_max"] <= 7
    assert (result["false_positives"] == 0.0) == (share == 1.0 or stack == "kademlia/srpt-s")


@pytest.mark.parametrize("stack", STACKS)
def test_the_same_seed_gives_the_same_run(stack: str) -> None:
    churning = scenario(stack, nodes=20, churn=Churn(session=30.0))
    assert run(churning)["trace_hash"] == run(churning)["trace_hash"]


@pytest.mark.parametrize("stack", STACKS)
def test_survivors_of_a_mass_crash_have_every_message_of_survivors(stack: str) -> None:
    result = run(scenario(stack, faults=(MassCrash(at=7.0, share=0.3),), window=40.0))
    assert result["reliability"] > 0.97
    assert result["messages"] == 40


@pytest.mark.parametrize("stack", STACKS)
def test_subscriptions_that_come_and_go_lose_nothing(stack: str) -> None:
    result = run(scenario(stack, churn=Churn(subscriptions=10.0), nodes=30))
    assert result["reliability_min"] == 1.0


SAME_ROOT: dict[str, tuple[AnyFault, ...]] = {
    "loss": (Loss(at=5.0, duration=5.0, p=0.1), Duplicate(at=5.0, duration=5.0, p=0.1)),
    "reordered": (Reorder(at=5.0, duration=5.0, p=0.3, ms=500.0),),
    "crash": (Crash(at=7.0, nodes=(1, 2, 5, 9)),),
}
OTHER_ROOT: dict[str, tuple[AnyFault, ...]] = {
    "the root": (Crash(at=7.0, nodes=(0,)),),
    "restart": (Restart(at=6.0, nodes=(0, 3, 5), down=3.0), Restart(at=8.0, nodes=(1, 9), down=0.0)),
    "apart": (Partition(at=6.0, duration=20.0, how="halves"),),
}


def judged(stack: str, faults: tuple[AnyFault, ...], order: Literal["none", "fifo"]) -> float:
    """Nothing comes twice, or out of the order of its source; the share that came."""
    work = Workload(messages=40, order=order)
    router: Options = {"root": 0} if stack.startswith("vcube") else {}
    told = scenario(stack, nodes=20, faults=faults, window=60.0, router=router, workload=work)
    recorder = Recorder()
    run(told, observer=recorder, hashed=False)
    stories = tell(recorder.events)
    assert (integrity(stories), fifo(stories)) == ([], [])
    return float(run(told)["reliability"])


@pytest.mark.parametrize("stack", ["vcube/srpt-s", "vcube/srpt-b"])
@pytest.mark.parametrize("what", SAME_ROOT)
def test_while_the_root_is_the_same_all_comes_once_and_in_the_order_of_its_source(stack: str, what: str) -> None:
    assert judged(stack, SAME_ROOT[what], "none") > 0.99


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("what", OTHER_ROOT)
def test_where_the_root_changes_an_order_above_has_it_all(stack: str, what: str) -> None:
    """But for what a root had answered for when it crashed; of two that do so one after the other more is lost."""
    assert judged(stack, OTHER_ROOT[what], "fifo") > (0.9 if what == "restart" else 0.97)
