"""HyParView by hand, one machine on a FakeEnv or a few on a FakeWire: the paper's rules, and the mistakes others made with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from libweft.overlays.hyparview.config import LIST_LIMIT, HyParViewConfig
from libweft.overlays.hyparview.machine import ASKS, HyParView
from libweft.overlays.hyparview.messages import (
    MADE_ROOM,
    Disconnect,
    ForwardJoin,
    Join,
    KeepAlive,
    Neighbor,
    NeighborReply,
    Shuffle,
    ShuffleReply,
)
from libweft.peer.codec import msgpack
from libweft.peer.dispatch import receive
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.fake.env import FakeEnv
from libweft.peer.fake.wire import FakeWire
from libweft.peer.machine import SECOND, Build, Link, Message, Peer, PeerInfo
from libweft.peer.trace.kinds import NEIGHBOR_DOWN, NEIGHBOR_UP

CONFIG = HyParViewConfig()
SIZE = CONFIG.active_size
AGES = 10**9 * SECOND
STILL = replace(CONFIG, shuffle_every=AGES, keepalive_every=AGES, probe_every=AGES)  # nothing happens by itself


class Witness:
    def __init__(self) -> None:
        self.heard: list[tuple[str, Peer] | tuple[str, Peer, str]] = []

    def neighbor_up(self, peer: Peer) -> None:
        self.heard.append(("up", peer))

    def neighbor_down(self, peer: Peer, reason: str) -> None:
        self.heard.append(("down", peer, reason))


class Bench:
    """One machine with the id 0 and its Env; `incarnation` counts links."""

    def __init__(self, *contacts: Peer, config: HyParViewConfig = STILL, seed: int = 0, started: bool = True) -> None:
        self.env = FakeEnv(me=0, seed=seed)
        self.machine = HyParView(self.env, contacts, config)
        self.witness = Witness()
        self.machine.watchers.append(self.witness)
        self.incarnation = 0
        if started:
            self.machine.start()

    def up(self, peer: Peer, outbound: bool = False) -> int:
        self.incarnation += 1
        self.machine.link_up(peer, Link(self.incarnation, outbound, HyParView.protocols[0]))
        return self.incarnation

    def down(self, peer: Peer, incarnation: int = 0, reason: str = "timeout") -> None:
        """As a driver does it: the hold goes with the link."""
        self.env.holds.pop(peer, None)
        self.machine.link_down(peer, incarnation, reason)

    def hear(self, peer: Peer, msg: Message) -> list[tuple[Peer, Message]]:
        """What is sent because of the message."""
        self.env.take()
        receive(self.machine, peer, msg)
        return self.env.take()

    def befriend(self, *peers: Peer) -> None:
        for peer in peers:
            self.up(peer)
            self.hear(peer, Neighbor(PeerInfo(peer), 1, True))

    def know(self, *peers: Peer) -> None:
        """Into the passive view, without a word."""
        for peer in peers:
            self.machine.passive[peer] = None

    def yes(self, peer: Peer) -> list[tuple[Peer, Message]]:
        return self.hear(peer, NeighborReply(self.machine.asks[peer].attempt, True))

    def no(self, peer: Peer) -> list[tuple[Peer, Message]]:
        return self.hear(peer, NeighborReply(self.machine.asks[peer].attempt, False))

    @property
    def neighbors(self) -> list[Peer]:
        return list(self.machine.neighbors)


def of(kind: type[Message], sent: Sequence[tuple[Peer, Message]]) -> list[Any]:
    """To whom messages of the kind went."""
    return [peer for peer, msg in sent if isinstance(msg, kind)]


def full(**options: Any) -> Bench:
    bench = Bench(**options)
    bench.befriend(*range(1, SIZE + 1))
    bench.env.take()
    return bench


# Joining.


def test_a_newcomer_joins_one_contact_and_is_nobody_s_neighbour_before_the_answer() -> None:
    bench = Bench(7)
    assert bench.env.take() == [(7, Join(PeerInfo(0), 1))]
    assert list(bench.env.holds) == [7]
    bench.up(7)
    assert bench.neighbors == []
    bench.yes(7)
    assert bench.neighbors == [7]
    assert bench.witness.heard == [("up", 7)]
    assert [(row.kind, row.peer) for row in bench.env.traced] == [("neighbor_up", 7)]


def test_a_contact_that_cannot_be_reached_is_followed_by_the_next() -> None:
    bench = Bench(7, 8)
    first = of(Join, bench.env.take())[0]
    bench.down(first)
    assert of(Join, bench.env.take()) == [15 - first]


def test_a_node_without_contacts_waits_and_itself_is_no_contact() -> None:
    for bench in (Bench(), Bench(0)):
        assert bench.env.take() == []
        assert bench.machine.contacts == ()


def test_the_contact_forwards_a_join_to_every_other_neighbour() -> None:
    """hashicorp/hyparview #1, partisan PR 18."""
    bench = Bench()
    bench.befriend(1, 2, 3)
    sent = bench.hear(9, Join(PeerInfo(9), 4))
    assert sent == [(9, NeighborReply(4, True)), *((peer, ForwardJoin(PeerInfo(9), CONFIG.arwl)) for peer in (1, 2, 3))]
    assert bench.neighbors == [1, 2, 3, 9]
    assert 9 in bench.env.holds


def test_every_later_hop_forwards_a_join_to_one_peer_which_is_not_the_sender() -> None:
    for seed in range(20):
        bench = full(seed=seed)
        [(peer, msg)] = bench.hear(2, ForwardJoin(PeerInfo(9), CONFIG.arwl))
        assert peer in {1, 3, 4, 5}
        assert msg == ForwardJoin(PeerInfo(9), CONFIG.arwl - 1)
        assert 9 not in bench.machine.passive


def test_a_walk_leaves_the_newcomer_in_the_passive_view_at_prwl_steps_from_its_end() -> None:
    bench = full()
    bench.hear(2, ForwardJoin(PeerInfo(9), CONFIG.prwl))
    assert list(bench.machine.passive) == [9]


@pytest.mark.parametrize(("friends", "ttl"), [((1, 2, 3), 0), ((1,), 6)])
def test_a_walk_ends_after_its_last_step_or_where_it_cannot_go_on_and_there_the_newcomer_is_asked(
    friends: tuple[Peer, ...], ttl: int
) -> None:
    """iroh-gossip PR 50, 56: who was not reached yet is in no view."""
    bench = Bench()
    bench.befriend(*friends)
    sent = bench.hear(1, ForwardJoin(PeerInfo(9), ttl))
    assert sent == [(9, Neighbor(PeerInfo(0), 1, False))]
    assert bench.neighbors == list(friends)
    bench.yes(9)
    assert bench.neighbors == [*friends, 9]


def test_the_end_of_a_walk_makes_room_for_the_newcomer_only_after_its_yes() -> None:
    bench = full()
    bench.hear(1, ForwardJoin(PeerInfo(9), 0))
    assert bench.neighbors == [1, 2, 3, 4, 5]
    sent = bench.yes(9)
    assert len(bench.neighbors) == SIZE
    assert 9 in bench.neighbors
    assert len(of(Disconnect, sent)) == 1
    again = full()
    again.hear(1, ForwardJoin(PeerInfo(9), 0))
    assert again.no(9) == []
    assert again.neighbors == [1, 2, 3, 4, 5]
    assert 9 not in again.env.holds


def test_a_walk_that_comes_back_to_the_newcomer_or_to_its_neighbour_goes_on() -> None:
    for new in (0, 5):
        bench = full()
        [(peer, msg)] = bench.hear(2, ForwardJoin(PeerInfo(new), 4))
        assert (peer in {1, 3, 4}, msg) == (True, ForwardJoin(PeerInfo(new), 3)) or new == 0
        assert bench.hear(2, ForwardJoin(PeerInfo(new), 0)) == []
        assert 0 not in bench.machine.passive


def test_a_contact_with_a_full_view_turns_out_one_neighbour_for_a_newcomer() -> None:
    bench = full()
    sent = bench.hear(9, Join(PeerInfo(9), 1))
    [victim] = of(Disconnect, sent)
    assert len(bench.neighbors) == SIZE
    assert 9 in bench.neighbors
    assert victim not in bench.neighbors
    assert victim not in of(ForwardJoin, sent)
    assert bench.witness.heard[-2:] == [("down", victim, MADE_ROOM), ("up", 9)]


# The active view.


def test_a_high_priority_is_always_accepted_and_a_low_one_only_with_a_free_slot() -> None:
    bench = Bench()
    bench.befriend(1, 2, 3, 4)
    assert bench.hear(5, Neighbor(PeerInfo(5), 7, False)) == [(5, NeighborReply(7, True))]
    assert bench.hear(6, Neighbor(PeerInfo(6), 8, False)) == [(6, NeighborReply(8, False))]
    assert 6 not in bench.neighbors
    sent = bench.hear(7, Neighbor(PeerInfo(7), 9, True))
    assert (7, NeighborReply(9, True)) in sent
    assert len(bench.neighbors) == SIZE


def test_a_lost_neighbour_is_replaced_from_the_passive_view_with_low_priority() -> None:
    bench = full()
    bench.know(8)
    bench.down(2, bench.machine.links[2])
    assert bench.env.take() == [(8, Neighbor(PeerInfo(0), 1, False))]
    bench.up(8)
    bench.yes(8)
    assert bench.neighbors == [1, 3, 4, 5, 8]
    assert 8 not in bench.machine.passive


def test_an_empty_view_asks_one_with_high_priority_and_the_others_with_low() -> None:
    bench = Bench()
    bench.befriend(1)
    bench.know(11, 12, 13)
    bench.down(1, 1)
    asked = [msg.high for _, msg in bench.env.take() if isinstance(msg, Neighbor)]
    assert asked == [True, False, False]


@pytest.mark.parametrize(("left", "high"), [(2, True), (3, False)])
def test_less_than_half_a_view_asks_with_high_priority_after_a_dead_one_but_joins_no_contact_again(left: int, high: bool) -> None:
    bench = Bench(12, started=False)
    bench.befriend(*range(1, left + 2))
    bench.know(11)
    bench.down(1, 1)
    bench.know(12)
    assert bench.env.take() == [(11, Neighbor(PeerInfo(0), 1, False))]
    bench.down(11)
    assert bench.env.take() == [(12, Neighbor(PeerInfo(0), 2, high))]


def test_a_full_view_goes_on_asking_while_more_were_dead_than_alive() -> None:
    bench = full()
    bench.know(*range(11, 21))
    bench.down(2, 2)
    for _ in range(3):
        [dead] = bench.machine.asks
        bench.down(dead)
    answers = []
    while bench.machine.asks:
        [peer] = bench.machine.asks
        bench.up(peer)
        bench.yes(peer)
        answers.append(peer)
    assert len(answers) == 3
    assert [peer for peer in answers if peer in bench.neighbors] == answers[:1]
    assert all(peer in bench.machine.passive for peer in answers[1:])


def test_one_that_knew_only_dead_peers_learns_who_asks_it_and_asks_back() -> None:
    bench = Bench()
    bench.up(7)
    bench.hear(7, Neighbor(PeerInfo(7), 1, False))
    bench.hear(7, Disconnect(True, "the last slot was taken"))
    bench.env.advance(CONFIG.last_retry)
    assert [(peer, msg.high) for peer, msg in bench.env.take() if isinstance(msg, Neighbor)] == [(7, True)]


def test_an_isolated_node_asks_those_that_left_its_passive_view_after_its_contacts() -> None:
    bench = Bench(99, config=replace(STILL, passive_size=2, faded=2), started=False)
    bench.befriend(1)
    for number in range(11, 17):
        bench.hear(1, ShuffleReply(0, (PeerInfo(number),)))
    known = list(bench.machine.passive)
    faded = list(bench.machine.faded)
    assert len(faded) == 2
    assert not set(faded) & set(known)
    bench.down(1, 1)
    asked: list[Peer] = []
    while bench.machine.asks:
        peer = next(iter(bench.machine.asks))
        asked.append(peer)
        bench.down(peer)
    assert sorted(asked[:2]) == known
    assert asked[2] == 99
    assert sorted(asked[3:]) == sorted(faded)


def test_one_that_cannot_be_reached_leaves_the_passive_view_and_another_is_tried() -> None:
    bench = full()
    bench.know(8, 9)
    bench.down(2, 2)
    [first] = of(Neighbor, bench.env.take())
    bench.down(first)
    assert list(bench.machine.passive) == [17 - first]
    assert of(Neighbor, bench.env.take()) == [17 - first]


def test_one_that_refuses_stays_in_the_passive_view_and_another_is_tried() -> None:
    bench = full()
    bench.know(8, 9)
    bench.down(2, 2)
    [first] = of(Neighbor, bench.env.take())
    bench.up(first)
    assert of(Neighbor, bench.no(first)) == [17 - first]
    assert first in bench.machine.passive
    assert first not in bench.env.holds


def test_after_a_few_refusals_in_a_row_a_node_with_neighbours_pauses() -> None:
    bench = full()
    bench.know(*range(11, 11 + 2 * CONFIG.refusals))
    bench.down(2, 2)
    for _ in range(CONFIG.refusals):
        [peer] = bench.machine.asks
        bench.no(peer)
    assert bench.machine.asks == {}
    bench.env.advance(CONFIG.first_retry)
    assert len(bench.machine.asks) == 1


def test_one_that_does_not_answer_in_time_is_given_up_and_its_late_yes_is_answered_by_disconnect() -> None:
    bench = full()
    bench.know(8)
    bench.down(2, 2)
    bench.up(8)
    bench.env.advance(CONFIG.patience)
    assert 8 not in bench.env.holds
    assert 8 not in bench.machine.passive
    assert bench.hear(8, NeighborReply(1, True)) == [(8, Disconnect(True, "the answer came too late"))]
    assert 8 not in bench.neighbors


def test_two_that_ask_each_other_at_once_become_neighbours_once() -> None:
    bench = full()
    bench.know(8)
    bench.down(2, 2)
    bench.up(8)
    assert bench.hear(8, Neighbor(PeerInfo(8), 3, False)) == [(8, NeighborReply(3, True))]
    assert bench.hear(8, NeighborReply(1, True)) == []
    assert bench.witness.heard.count(("up", 8)) == 1
    assert 8 in bench.neighbors


def test_a_yes_that_comes_after_the_last_slot_was_taken_is_answered_by_disconnect() -> None:
    bench = full()
    bench.know(8)
    bench.down(2, 2)
    bench.befriend(6)
    assert bench.yes(8) == [(8, Disconnect(True, "the last slot was taken"))]
    assert 8 in bench.machine.passive
    assert 8 not in bench.env.holds


def test_an_answer_to_an_older_attempt_settles_nothing() -> None:
    bench = Bench(7)
    bench.env.advance(CONFIG.patience + 2 * SECOND)  # the second attempt is under way
    assert bench.machine.asks[7].attempt == 2
    assert bench.hear(7, NeighborReply(1, True)) == []
    assert bench.hear(7, Disconnect(True, MADE_ROOM)) == []
    assert bench.hear(7, KeepAlive()) == []
    assert bench.neighbors == []
    bench.yes(7)
    assert bench.neighbors == [7]


def test_a_late_fall_of_an_older_link_changes_nothing() -> None:
    """partisan PR 16, iroh PR 22: a peer that was added again is not removed by the close of its old link."""
    bench = Bench()
    bench.befriend(1)
    old = bench.machine.links[1]
    new = bench.up(1)
    bench.machine.link_down(1, old, "closed")
    assert bench.neighbors == [1]
    bench.down(1, new)
    assert bench.neighbors == []


def test_a_dial_that_failed_is_no_fall_of_a_link_that_is_up() -> None:
    bench = Bench()
    bench.befriend(1)
    bench.machine.link_down(1, 0, "refused")
    assert bench.neighbors == [1]


def test_a_disconnect_leaves_before_the_link_is_released() -> None:
    """iroh PR 45: the message was lost because the socket closed first; `Env.disconnect` closes after what was sent."""
    order: list[str] = []

    class Ordered(FakeEnv):
        def send(self, peer: Peer, msg: Message) -> None:
            order.append(type(msg).__name__)
            super().send(peer, msg)

        def disconnect(self, peer: Peer) -> None:
            order.append("release")
            super().disconnect(peer)

    env = Ordered(me=0)
    machine = HyParView(env, (), replace(STILL, active_size=1))
    for peer in (1, 2):
        receive(machine, peer, Neighbor(PeerInfo(peer), 1, True))
    assert order == ["NeighborReply", "ShuffleReply", "Disconnect", "release", "NeighborReply"]
    assert list(env.holds) == [2]


def test_one_that_was_turned_out_alive_stays_in_the_passive_view_when_its_link_closes() -> None:
    """iroh PR 45, 53."""
    bench = full()
    [victim] = of(Disconnect, bench.hear(9, Neighbor(PeerInfo(9), 1, True)))
    bench.down(victim, bench.machine.links[victim], "closed")
    assert victim in bench.machine.passive


def test_one_that_turned_us_out_stays_in_the_passive_view_when_its_link_closes_but_one_that_left_does_not() -> None:
    bench = full()
    bench.know(3)
    bench.hear(2, Disconnect(True, MADE_ROOM))
    bench.hear(3, Disconnect(False, "left"))
    for peer in (2, 3):
        bench.down(peer, bench.machine.links[peer], "closed")
    assert list(bench.machine.passive) == [2]
    assert bench.witness.heard[-2:] == [("down", 2, f"disconnected: {MADE_ROOM}"), ("down", 3, "left")]


def test_who_turned_us_out_and_whom_we_turned_out_are_not_asked_in_the_next_refill() -> None:
    """partisan PR 76."""
    bench = full()
    assert of(Neighbor, bench.hear(2, Disconnect(True, MADE_ROOM))) == []
    bench.env.advance(CONFIG.first_retry)
    assert of(Neighbor, bench.env.take()) == [2]
    other = full()
    [victim] = of(Disconnect, other.hear(9, Neighbor(PeerInfo(9), 1, True)))
    assert of(Neighbor, other.hear(9, Disconnect(True, MADE_ROOM))) == []
    assert victim in other.machine.passive


def test_a_slot_that_a_disconnect_leaves_is_refilled_at_once() -> None:
    """hashicorp PR 4."""
    bench = full()
    bench.know(8)
    assert bench.hear(2, Disconnect(True, MADE_ROOM)) == [(8, Neighbor(PeerInfo(0), 1, False))]


def test_by_the_paper_s_rule_it_is_refilled_in_the_next_cycle_but_that_of_a_dead_peer_at_once() -> None:
    bench = full(config=replace(STILL, refill_at_once=False, shuffle_every=SECOND))
    bench.know(8, 9)
    assert bench.hear(2, Disconnect(True, MADE_ROOM)) == []
    bench.env.advance(SECOND)
    assert len(of(Neighbor, bench.env.take())) == 1
    other = full(config=replace(STILL, refill_at_once=False))
    other.know(8)
    other.down(2, other.machine.links[2])
    assert of(Neighbor, other.env.take()) == [8]


def test_with_probes_off_no_known_peer_is_asked_while_the_view_is_full() -> None:
    bench = full(config=replace(STILL, probe_every=0))
    bench.know(8, 9)
    bench.env.advance(3_600 * SECOND)
    assert of(Neighbor, bench.env.take()) == []


def test_an_isolated_node_joins_again_when_its_passive_view_is_empty() -> None:
    bench = Bench(7, started=False)
    bench.befriend(1)
    assert of(Join, bench.hear(1, Disconnect(False, "left"))) == [7]


@pytest.mark.parametrize(
    "msg", [KeepAlive(), Shuffle(PeerInfo(8), 1, (), 3), ForwardJoin(PeerInfo(8), 3)], ids=lambda msg: type(msg).__name__
)
def test_what_only_a_neighbour_sends_is_answered_by_disconnect_when_it_is_none(msg: Message) -> None:
    """hashicorp's known bug: one-sided links that stay; partisan 255: what was sent while the view changed."""
    bench = full()
    assert bench.hear(9, msg) == [(9, Disconnect(True, "not a neighbour"))]
    assert bench.hear(2, KeepAlive()) == []


def test_neighbours_are_told_now_and_then_that_they_are() -> None:
    bench = Bench(config=replace(STILL, keepalive_every=20 * SECOND))
    bench.befriend(1, 2)
    bench.env.take()
    bench.env.advance(20 * SECOND)
    assert bench.env.take() == [(1, KeepAlive()), (2, KeepAlive())]
    bench.env.advance(20 * SECOND)
    assert len(bench.env.take()) == 2


def test_a_node_that_is_turned_out_again_and_again_joins_again_with_a_growing_pause() -> None:
    """iroh #152: whoever joins anew at each loss turns out another, who does the same."""
    bench = Bench(7)
    joins = []
    for _ in range(12):
        while 7 not in bench.machine.asks:
            bench.env.advance(SECOND // 4)
        joins.append(bench.env.now())
        bench.up(7)
        bench.yes(7)
        bench.hear(7, Disconnect(True, MADE_ROOM))
        assert 7 not in bench.machine.asks
    pauses = [later - earlier for earlier, later in pairwise(joins)]
    assert pauses == [min(CONFIG.first_retry << n, CONFIG.last_retry) for n in range(11)]


def test_a_node_whose_last_neighbour_failed_joins_again_at_once() -> None:
    bench = Bench(7)
    for _ in range(8):
        bench.env.advance(CONFIG.patience + CONFIG.last_retry)
    bench.befriend(1)
    bench.env.take()
    bench.down(1, bench.machine.links[1])
    assert of(Join, bench.env.take()) == [7]


def test_the_pause_between_two_rounds_doubles_up_to_its_limit_and_never_overflows() -> None:
    """babel-hyparview: a back-off in 16 bits that wrapped round."""
    bench = Bench(7)
    pauses = []
    for _ in range(100):
        bench.down(7)
        before = bench.env.now()
        while 7 not in bench.machine.asks:
            bench.env.advance(SECOND // 4)
        pauses.append(bench.env.now() - before)
    assert pauses == [min(CONFIG.first_retry << n, CONFIG.last_retry) for n in range(100)]


def test_a_peer_that_joins_again_over_a_new_link_is_answered_and_watchers_begin_anew() -> None:
    """iroh #10, PR 43: it was ignored because its old link was still in the view."""
    for again in (Join(PeerInfo(2), 5), Neighbor(PeerInfo(2), 5, False)):
        bench = full()
        old = bench.machine.links[2]
        new = bench.up(2)
        sent = bench.hear(2, again)
        assert sent[0] == (2, NeighborReply(5, True))
        assert of(Disconnect, sent) == []
        assert bench.witness.heard[-2:] == [("down", 2, "joined again"), ("up", 2)]
        bench.machine.link_down(2, old, "replaced")
        assert 2 in bench.neighbors
        bench.down(2, new)
        assert 2 not in bench.neighbors


def test_one_that_is_turned_out_gets_peers_to_turn_to_before_the_disconnect() -> None:
    """iroh PR 59: a newcomer was turned out before it knew anybody."""
    bench = full()
    bench.know(11, 12, 13)
    sent = bench.hear(9, Join(PeerInfo(9), 1))
    [victim] = of(Disconnect, sent)
    told = [msg for peer, msg in sent if peer == victim]
    assert isinstance(told[0], ShuffleReply)
    assert isinstance(told[1], Disconnect)
    assert len(told[0].peers) == CONFIG.ka + CONFIG.kp
    newcomer = Bench(9)
    newcomer.up(9)
    newcomer.yes(9)
    newcomer.hear(9, told[0])
    asked = of(Neighbor, newcomer.hear(9, told[1]))
    assert len(asked) == SIZE


def test_a_full_view_asks_nobody() -> None:
    """lasp #188: constant promotion unsettles the tree above."""
    bench = full()
    bench.know(*range(11, 30))
    bench.hear(2, Disconnect(True, MADE_ROOM))
    bench.yes(next(iter(bench.machine.asks)))
    bench.env.take()
    bench.env.advance(3_600 * SECOND)
    assert bench.env.take() == []
    assert bench.env.clock.waiting <= 4


def test_probes_without_cause_become_rare() -> None:
    """lasp #188, and yet two halves must find each other again: a few soon after the start, then about one an hour."""
    bench = full(config=replace(STILL, probe_every=30 * SECOND))
    moments = []
    for _ in range(4 * 3_600):
        bench.machine.passive[11] = None
        bench.env.advance(SECOND)
        for peer in of(Neighbor, bench.env.take()):
            moments.append(bench.env.now() // SECOND)
            bench.no(peer)
    assert 5 <= len(moments) <= 9
    assert moments[-1] - moments[-2] >= 1_800


def test_a_lost_neighbour_is_probed_until_it_comes_back_or_is_forgotten() -> None:
    """iroh #86, #152: two halves never merged after a long partition."""
    bench = full(config=replace(STILL, probe_every=30 * SECOND, remember=600 * SECOND))
    bench.down(2, 2)
    probes = 0
    for _ in range(1_200):
        bench.env.advance(SECOND)
        if 2 in bench.machine.asks:
            probes += 1
            assert bench.machine.asks[2].high
            bench.down(2)
    assert 15 <= probes <= 20
    assert bench.machine.lost == {}
    bench.down(3, 3)
    while 3 not in bench.machine.asks:
        bench.env.advance(SECOND)
    bench.befriend(6, 7)
    assert len(bench.neighbors) == SIZE
    bench.up(3)
    assert len(of(Disconnect, bench.yes(3))) == 1
    assert 3 in bench.neighbors
    assert bench.machine.lost == {}


def test_a_contact_that_was_not_reached_is_probed_as_long_as_it_takes() -> None:
    bench = Bench(7, config=replace(STILL, probe_every=30 * SECOND))
    bench.down(7)
    bench.befriend(1)
    bench.env.advance(10 * 3_600 * SECOND)
    assert 7 in bench.machine.lost
    bench.env.take()
    bench.env.advance(60 * SECOND)
    assert 7 in of(Neighbor, bench.env.take())


def test_a_neighbour_that_is_too_slow_is_expelled_with_its_link_and_replaced() -> None:
    """Section 5.5, iroh #47: the driver gives up the link, under the one policy of `libweft.peer.machine.admit`."""
    bench = full()
    bench.know(8)
    bench.down(2, 2, "the outbox is full")
    assert bench.witness.heard[-1] == ("down", 2, "the outbox is full")
    assert of(Neighbor, bench.env.take()) == [8]


def test_an_ask_that_never_left_has_failed() -> None:
    bench = full()
    bench.know(8)
    bench.down(2, 2)
    [(peer, msg)] = bench.env.take()
    bench.machine.dropped(peer, msg)
    assert 8 not in bench.machine.asks
    assert 8 not in bench.env.holds


def test_a_link_nobody_wants_any_more_is_released_when_it_comes_up() -> None:
    bench = Bench()
    bench.env.connect(9)
    bench.up(9, outbound=True)
    assert 9 not in bench.env.holds


# The passive view.


def shuffling(*friends: Peer, seed: int = 0) -> Bench:
    bench = Bench(config=replace(STILL, shuffle_every=10 * SECOND), seed=seed)
    bench.befriend(*friends)
    bench.env.take()
    return bench


def test_a_shuffle_carries_the_own_id_ka_active_and_kp_passive_ones_to_one_neighbour() -> None:
    bench = shuffling(1, 2, 3, 4, 5)
    bench.know(*range(11, 30))
    bench.env.advance(10 * SECOND)
    [(target, msg)] = bench.env.take()
    assert isinstance(msg, Shuffle)
    assert (msg.origin, msg.ttl) == (PeerInfo(0), CONFIG.shuffle_ttl)
    peers = [info.peer for info in msg.peers]
    assert len(set(peers)) == len(peers) == CONFIG.ka + CONFIG.kp
    assert len({1, 2, 3, 4, 5} & {*peers}) == CONFIG.ka
    assert target not in peers


def test_a_shuffle_is_passed_on_until_its_walk_ends_and_is_then_answered_with_as_many_passive_peers() -> None:
    bench = full()
    bench.know(*range(11, 30))
    peers = tuple(map(PeerInfo, (31, 32, 33)))
    [(peer, msg)] = bench.hear(2, Shuffle(PeerInfo(9), 6, peers, 3))
    assert peer in {1, 3, 4, 5}
    assert msg == Shuffle(PeerInfo(9), 6, peers, 2)
    assert bench.hear(2, Shuffle(PeerInfo(9), 6, peers, 1)) == []  # no link yet
    assert 9 in bench.env.holds
    bench.up(9)
    [(peer, reply)] = bench.env.take()
    assert isinstance(reply, ShuffleReply)
    assert (peer, reply.number, len(reply.peers)) == (9, 6, 4)
    assert all(11 <= info.peer < 30 for info in reply.peers if isinstance(info.peer, int))
    assert {9, 31, 32, 33} <= {*bench.machine.passive}
    assert 9 not in bench.env.holds  # the link was for the reply alone


def test_a_node_with_one_neighbour_takes_its_shuffle_in() -> None:
    bench = Bench()
    bench.befriend(1)
    bench.hear(1, Shuffle(PeerInfo(9), 1, (), 6))
    assert 9 in bench.machine.passive


def test_a_full_passive_view_first_drops_what_the_other_side_was_given() -> None:
    """partisan #6, iroh PR 57."""
    bench = shuffling(1)
    bench.know(*range(100, 130))
    bench.env.advance(10 * SECOND)
    [(_, msg)] = bench.env.take()
    assert isinstance(msg, Shuffle)
    given = {info.peer for info in msg.peers}
    bench.hear(50, ShuffleReply(msg.number, tuple(map(PeerInfo, (31, 32, 33)))))
    gone = {*range(100, 130)} - {*bench.machine.passive}
    assert len(bench.machine.passive) == CONFIG.passive_size
    assert len(gone) == 3
    assert gone <= given


def test_who_takes_a_shuffle_in_first_drops_what_it_gives_back_for_it() -> None:
    """partisan #6, iroh PR 57, at the other end."""
    bench = Bench()
    bench.befriend(1)
    bench.know(*range(100, 130))
    bench.hear(1, Shuffle(PeerInfo(9), 6, tuple(map(PeerInfo, (31, 32, 33))), 1))
    bench.up(9)
    [(_, reply)] = bench.env.take()
    assert isinstance(reply, ShuffleReply)
    gone = {*range(100, 130)} - {*bench.machine.passive}
    assert len(bench.machine.passive) == CONFIG.passive_size
    assert gone == {info.peer for info in reply.peers}


def test_a_reply_is_merged_once_and_only_if_it_was_asked_for() -> None:
    bench = shuffling(1, 2)
    bench.hear(9, ShuffleReply(1, (PeerInfo(31),)))
    bench.hear(9, ShuffleReply(0, (PeerInfo(32),)))
    assert bench.machine.passive == {}


def test_neither_oneself_nor_a_neighbour_nor_one_twice_gets_into_the_passive_view() -> None:
    """babel-hyparview: the list was changed while it was walked through."""
    bench = shuffling(1, 2)
    bench.env.advance(10 * SECOND)
    peers = tuple(map(PeerInfo, (0, 1, 2, 31, 31, 0, 32, 31)))
    bench.hear(9, ShuffleReply(1, peers))
    bench.hear(1, Shuffle(PeerInfo(31), 1, peers, 1))
    assert list(bench.machine.passive) == [31, 32]


def test_addresses_travel_with_whoever_is_introduced() -> None:
    bench = Bench()
    bench.befriend(1, 2)
    info = PeerInfo(9, ("/ip4/127.0.0.1/tcp/9",))
    bench.hear(1, ForwardJoin(info, 0))
    assert bench.env.infos[9] == info
    bench.yes(9)
    other = PeerInfo(8, ("/ip4/127.0.0.1/tcp/8",))
    sent = bench.hear(8, Join(other, 1))
    assert [msg.new for _, msg in sent if isinstance(msg, ForwardJoin)] == [other] * 3
    third = PeerInfo(7, ("/ip4/127.0.0.1/tcp/7",))
    bench.hear(1, ForwardJoin(third, CONFIG.prwl))
    bench.hear(1, ShuffleReply(0, (PeerInfo(6, ("/ip4/127.0.0.1/tcp/6",)),)))
    assert bench.env.infos[7] == third
    assert bench.env.infos[6].addresses == ("/ip4/127.0.0.1/tcp/6",)
    bench.befriend(5)
    told = [msg for _, msg in bench.hear(4, Join(PeerInfo(4), 1)) if isinstance(msg, ShuffleReply)]
    assert {7: third, 9: info}.items() & {entry.peer: entry for entry in told[0].peers}.items()


def test_a_sample_is_of_both_views() -> None:
    bench = full()
    bench.know(11, 12)
    assert sorted(map(str, bench.machine.sample(50))) == sorted(["1", "2", "3", "4", "5", "11", "12"])
    assert len(set(bench.machine.sample(4))) == 4


# Leaving and coming back.


def test_who_leaves_tells_its_neighbours_and_has_no_timer_left() -> None:
    bench = full(config=CONFIG)
    bench.know(8)
    bench.hear(2, Disconnect(True, MADE_ROOM))
    bench.env.take()
    bench.machine.stop()
    assert bench.env.take() == [(peer, Disconnect(False, "left")) for peer in (1, 3, 4, 5)]
    assert bench.env.clock.waiting == 0
    bench.down(1, 1)
    assert bench.env.take() == []


def test_a_restart_with_state_knows_whom_to_ask() -> None:
    bench = full()
    bench.know(11)
    state = bench.machine.snapshot()
    assert state is not None
    again = Bench(started=False)
    again.machine.restore(state)
    assert list(again.machine.passive) == [1, 2, 3, 4, 5, 11]
    again.machine.start()
    assert of(Neighbor, again.env.take()) != []
    assert Bench().machine.snapshot() is None


# The border.


MANY = tuple(map(PeerInfo, range(100, 101 + LIST_LIMIT)))
LONG = PeerInfo(9, ("/dns/" + "x" * 300,))
CROWD = PeerInfo(9, ("/ip4/127.0.0.1/tcp/1",) * 17)


@pytest.mark.parametrize(
    "msg",
    [
        Join(PeerInfo(8), 1),
        Neighbor(PeerInfo(8), 1, True),
        Join(PeerInfo(0), 1),
        ForwardJoin(PeerInfo(b"bytes"), 1),
        ForwardJoin(PeerInfo(8), -1),
        ForwardJoin(LONG, 1),
        ForwardJoin(CROWD, 1),
        ForwardJoin(PeerInfo(9, (), bytes(5_000)), 1),
        Shuffle(PeerInfo(8), 1, (), -7),
        Shuffle(PeerInfo(8), 1, (*MANY, PeerInfo(1)), 1),
        ShuffleReply(1, (*MANY, PeerInfo(1))),
        ShuffleReply(0, (PeerInfo(b""),)),
    ],
    ids=str,
)
def test_what_no_honest_peer_sends_is_a_peer_error(msg: Message) -> None:
    bench = full()
    with pytest.raises(PeerError):
        bench.hear(2, msg)
    assert bench.neighbors == [1, 2, 3, 4, 5]
    assert bench.env.take() == []


def test_a_live_peer_has_an_id_of_bytes_and_of_bounded_length() -> None:
    env = FakeEnv(me=b"me")
    machine = HyParView(env, (), STILL)
    receive(machine, b"a", Neighbor(PeerInfo(b"a"), 1, True))
    for peer in (7, b"", bytes(65)):
        with pytest.raises(PeerError):
            receive(machine, b"a", ForwardJoin(PeerInfo(peer), 3))


def test_a_walk_with_a_forged_length_is_cut_to_the_own_one() -> None:
    bench = full()
    assert [msg.ttl for _, msg in bench.hear(2, ForwardJoin(PeerInfo(9), 10**9)) if isinstance(msg, ForwardJoin)] == [5]
    assert [msg.ttl for _, msg in bench.hear(2, Shuffle(PeerInfo(9), 1, (), 10**9)) if isinstance(msg, Shuffle)] == [5]


def test_whatever_a_neighbour_introduces_all_tables_are_bounded() -> None:
    bench = full(config=CONFIG)
    for number in range(1_000):
        bench.hear(2, ForwardJoin(PeerInfo(1_000 + number), 0))
        bench.hear(2, Shuffle(PeerInfo(9_000 + number), 1, MANY[:60], 1))
        bench.hear(2, ShuffleReply(0, MANY[:60]))
    machine = bench.machine
    assert len(machine.neighbors) == SIZE
    assert len(machine.asks) == ASKS
    assert len(machine.passive) == CONFIG.passive_size
    assert len(machine.faded) == CONFIG.faded
    assert len(machine.replies) <= 8
    assert len(bench.env.holds) <= SIZE + ASKS + 8
    assert bench.env.clock.waiting <= 4 + ASKS


def test_whoever_comes_and_goes_what_was_tried_and_lost_is_bounded() -> None:
    bench = full()
    for number in range(100, 1_000):
        bench.befriend(number)
        bench.down(number, bench.machine.links[number])
        bench.befriend(number)
        bench.hear(number, Disconnect(True, "x" * 10_000))
    assert len(bench.machine.lost) <= CONFIG.passive_size
    assert len(bench.machine.tried) <= 5 * CONFIG.passive_size
    assert max(len(entry[2]) for entry in bench.witness.heard if len(entry) == 3) < 300


def test_whatever_a_neighbour_tells_of_the_dead_what_was_tried_is_bounded() -> None:
    bench = full()
    bench.hear(2, Disconnect(True, MADE_ROOM))  # a slot is free, and stays so
    for number in range(1_000, 3_000, 4):
        bench.hear(1, Shuffle(PeerInfo(number), 1, tuple(PeerInfo(number + more) for more in (1, 2, 3)), 1))
        for peer in list(bench.machine.asks):
            bench.down(peer)
    assert len(bench.machine.tried) <= 4 * CONFIG.passive_size
    assert bench.machine.doubts == CONFIG.passive_size


def test_every_message_survives_its_codec() -> None:
    codec = msgpack(HyParView.kinds)
    info = PeerInfo(b"id", ("/ip4/127.0.0.1/tcp/1",), b"record")
    messages = [
        Join(info, 1), ForwardJoin(info, 2), Neighbor(info, 3, True), NeighborReply(4, False), Disconnect(True, "why"),
        Shuffle(info, 5, (info, info), 6), ShuffleReply(7, (info,)), KeepAlive(),
    ]  # fmt: skip
    assert {type(msg) for msg in messages} == {*HyParView.kinds}
    for msg in messages:
        [frame] = codec.pack([msg])
        assert list(codec.unpack(frame)) == [msg]


@pytest.mark.parametrize(
    "wrong",
    [
        *({"active_size": 0}, {"passive_size": 0}, {"arwl": 2}, {"ka": 60}, {"patience": 0}, {"last_retry": 1}, {"kp": -1}),
        {"remember": 0},
    ],
)
def test_a_config_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="hyparview"):
        HyParViewConfig(**wrong)


# A few together.


def node(*contacts: Peer, config: HyParViewConfig = CONFIG) -> Build:
    return lambda env: [HyParView(env(), contacts, config)]


def views(wire: FakeWire) -> dict[int, set[Peer]]:
    """Who has whom in its active view, by the rows of those alive."""
    found: dict[int, set[Peer]] = {entry.me: set() for entry in wire.nodes if entry.alive}
    for number, view in found.items():
        for row in wire.nodes[number].envs[0].traced:
            if row.kind == NEIGHBOR_UP and row.peer is not None:
                view.add(row.peer)
            elif row.kind == NEIGHBOR_DOWN and row.peer is not None:
                view.remove(row.peer)
    return found


def overlay(wire: FakeWire, number: int) -> HyParView:
    machine = wire.nodes[number].machines[0]
    assert isinstance(machine, HyParView)
    return machine


def connected(found: dict[int, set[Peer]]) -> bool:
    reached, frontier = set(), [next(iter(found))]
    while frontier:
        number = frontier.pop()
        if number not in reached:
            reached.add(number)
            frontier += [peer for peer in found[number] if isinstance(peer, int)]
    return reached == found.keys()


def test_nine_nodes_with_views_of_three_that_join_one_contact_at_once_make_no_islands() -> None:
    """partisan #75."""
    config = replace(CONFIG, active_size=3)
    for seed in range(10):
        wire = FakeWire(seed=seed)
        for number in range(9):
            wire.add(node(*([0] if number else []), config=config))
        wire.run(300 * SECOND)
        assert connected(views(wire)), seed


def test_an_island_finds_the_others_though_nothing_failed() -> None:
    """partisan #75: four nodes that are one another's only neighbours, as a rush of joins may leave them."""
    config = replace(CONFIG, active_size=3)
    wire = FakeWire()
    for number in range(8):
        wire.add(node(*([number // 4 * 4] if number % 4 else []), config=config))
    wire.run(SECOND)
    assert not connected(views(wire))
    overlay(wire, 6).passive[1] = None
    wire.run(300 * SECOND)
    assert connected(views(wire))


def test_a_one_sided_neighbour_is_gone_within_a_keepalive() -> None:
    """hashicorp's known bug; nothing but the keepalive happens by itself here."""
    config = replace(STILL, keepalive_every=20 * SECOND)
    wire = FakeWire()
    for number in range(3):
        wire.add(node(*([0] if number else []), config=config))
    wire.run(5 * SECOND)
    assert views(wire) == {0: {1, 2}, 1: {0, 2}, 2: {0, 1}}
    overlay(wire, 0)._down(1, "forgotten")
    assert views(wire) == {0: {2}, 1: {0, 2}, 2: {0, 1}}
    wire.run(config.keepalive_every)
    fallen = [(row.peer, row.reason) for row in wire.nodes[1].envs[0].traced if row.kind == NEIGHBOR_DOWN]
    assert fallen == [(0, "disconnected: not a neighbour")]
    wire.run(60 * SECOND)
    assert views(wire) == {0: {1, 2}, 1: {0, 2}, 2: {0, 1}}


def test_the_same_seed_gives_the_same_messages() -> None:
    """babel-hyparview: a generator of its own for each call."""

    def sent() -> list[list[tuple[Peer, Message]]]:
        wire = FakeWire(seed=3)
        for number in range(12):
            wire.add(node(*([0] if number else [])))
        wire.run(60 * SECOND)
        return [entry.envs[0].sent for entry in wire.nodes]

    assert sent() == sent()
