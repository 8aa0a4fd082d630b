"""X-BOT by hand, one machine on a FakeEnv: what each of the four does in an exchange, how costs are measured, what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from libweft.overlays.hyparview.messages import (
    FULL,
    LATE,
    MADE_ROOM,
    STRANGER,
    Disconnect,
    ForwardJoin,
    Join,
    Neighbor,
    NeighborReply,
)
from libweft.overlays.xbot import NEARER, WINDOW, Optimization, Probe, ProbeReply, Replace, ReplaceReply, Switch, XBot, XBotConfig
from libweft.peer.codec import msgpack
from libweft.peer.dispatch import receive
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.fake.env import FakeEnv, FakeTimer
from libweft.peer.machine import MS, SECOND, Lane, Link, Message, Peer, PeerInfo

AGES = 10**9 * SECOND
CONFIG = XBotConfig()
SIZE = CONFIG.active_size
ONCE = replace(CONFIG, shuffle_every=AGES, keepalive_every=AGES, probe_every=AGES, samples=1)  # a cost is one round trip
Sent = list[tuple[Peer, Message]]


class Bench:
    """One machine with the id 0; `incarnation` counts links."""

    def __init__(self, config: XBotConfig = ONCE, seed: int = 0) -> None:
        self.env = FakeEnv(me=0, seed=seed)
        self.machine = XBot(self.env, (), config)
        self.incarnation = 0
        self.machine.start()

    def up(self, peer: Peer) -> None:
        self.incarnation += 1
        self.machine.link_up(peer, Link(self.incarnation, True, XBot.protocols[0]))

    def down(self, peer: Peer, reason: str = "timeout") -> Sent:
        self.env.take()
        self.env.holds.pop(peer, None)
        self.machine.link_down(peer, self.machine.links.get(peer, 0), reason)
        return self.env.take()

    def hear(self, peer: Peer, msg: Message) -> Sent:
        """What is sent because of the message."""
        self.env.take()
        receive(self.machine, peer, msg)
        return self.env.take()

    def answer(self, peer: Peer, *ms: int) -> Sent:
        """What is sent when the peer's probes have come back, each after so long."""
        sent: Sent = []
        for each in ms:
            nonce = self.machine.probing[peer].nonce
            assert nonce is not None
            self.env.advance(each * MS)
            sent = self.hear(peer, ProbeReply(nonce))
        return sent

    def befriend(self, **ms: int) -> None:
        """Neighbours by name, `_1` for 1, each at its distance."""
        for name, distance in ms.items():
            peer = int(name[1:])
            self.up(peer)
            self.hear(peer, Neighbor(PeerInfo(peer), 1, True))
            self.answer(peer, distance)

    def know(self, *peers: Peer) -> None:
        for peer in peers:
            self.machine.passive[peer] = None

    def cycle(self) -> Sent:
        """To the moment at which the next one begins."""
        timer = self.machine.timers["bias"]
        assert isinstance(timer, FakeTimer)
        self.env.take()
        self.env.advance(timer.due - self.env.now())
        return self.env.take()

    def reply(self, peer: Peer, accepted: bool) -> Sent:
        return self.hear(peer, NeighborReply(self.machine.asks[peer].attempt, accepted))

    @property
    def neighbors(self) -> list[Peer]:
        return list(self.machine.neighbors)


def of(kind: type[Message], sent: Sequence[tuple[Peer, Message]]) -> list[Any]:
    """To whom messages of the kind went."""
    return [peer for peer, msg in sent if isinstance(msg, kind)]


def calm(sent: Sent) -> Sent:
    """Without probes."""
    return [(peer, msg) for peer, msg in sent if not isinstance(msg, Probe)]


def full(config: XBotConfig = ONCE) -> Bench:
    """Neighbours 1 to 5, at 10 to 50 ms: 5 is left unbiased, 4 is the worst of the others."""
    bench = Bench(config)
    bench.befriend(_1=10, _2=20, _3=30, _4=40, _5=50)
    bench.env.take()
    return bench


# Costs.


def test_a_new_neighbour_is_probed_and_all_are_again_in_each_cycle() -> None:
    bench = Bench()
    bench.up(1)
    assert of(Probe, bench.hear(1, Neighbor(PeerInfo(1), 1, True))) == [1]
    bench.answer(1, 10)
    bench.befriend(_2=20)
    assert [of(Probe, bench.cycle()) for _ in range(2)] == [[1, 2], [1, 2]]


def test_a_candidate_is_probed_when_its_link_is_up_and_the_dial_does_not_count() -> None:
    bench = full()
    bench.know(8)
    assert 8 not in of(Probe, bench.cycle())
    assert 8 in bench.env.holds
    bench.env.advance(5 * SECOND)
    bench.up(8)
    assert of(Probe, bench.env.take()) == [8]
    assert of(Optimization, bench.answer(8, 25)) == [8]


def test_a_stranger_s_cost_is_the_least_of_several_round_trips() -> None:
    bench = full(replace(ONCE, samples=1))
    bench.machine.config = replace(ONCE, samples=3)
    bench.know(8)
    bench.up(8)
    bench.cycle()
    assert of(Optimization, bench.answer(8, 900, 25)) == []
    assert of(Optimization, bench.answer(8, 70)) == [8]


def test_a_neighbour_that_was_measured_is_probed_once_a_cycle() -> None:
    bench = full()
    bench.machine.config = replace(ONCE, samples=3)
    bench.cycle()
    assert of(Probe, bench.answer(4, 40)) == []


def test_a_late_fall_of_an_older_link_ends_no_probe() -> None:
    bench = full()
    bench.know(8)
    bench.up(8)
    bench.cycle()
    old = bench.machine.links[8]
    bench.up(8)
    bench.machine.link_down(8, old, "replaced")
    assert of(Optimization, bench.answer(8, 5)) == [8]


def test_a_neighbour_s_cost_is_the_least_of_its_last_round_trips() -> None:
    bench = full()
    for _ in range(WINDOW - 1):
        bench.cycle()
        bench.answer(4, 90)
    assert bench.machine._cost(4) == 40 * MS
    bench.cycle()
    bench.answer(4, 80)
    assert bench.machine._cost(4) == 80 * MS


def test_a_probe_is_answered_with_its_nonce_whoever_sent_it() -> None:
    bench = full()
    assert bench.hear(1, Probe(77)) == [(1, ProbeReply(77))]
    assert bench.hear(9, Probe(78)) == [(9, ProbeReply(78))]


def test_a_probe_overtakes_payloads_and_is_worth_no_link() -> None:
    for kind in (Probe, ProbeReply):
        assert kind.lane is Lane.URGENT
        assert kind.droppable


def test_an_answer_with_another_nonce_or_without_a_probe_counts_for_nothing() -> None:
    bench = full()
    bench.know(8)
    bench.up(8)
    bench.cycle()
    nonce = bench.machine.probing[8].nonce
    assert nonce is not None
    for peer, wrong in ((8, nonce + 1), (8, 0), (9, nonce), (1, nonce)):
        assert bench.hear(peer, ProbeReply(wrong)) == []
    assert bench.machine.probing[8].left == 1
    bench.answer(8, 45)
    assert bench.hear(8, ProbeReply(nonce)) == []


def test_nonces_cannot_be_foreseen() -> None:
    bench = full()
    seen = {msg.nonce for _ in range(20) for _, msg in bench.cycle() if isinstance(msg, Probe)}
    assert len(seen) == 20 * SIZE
    assert max(seen) > 1 << 50


def test_the_cost_of_one_that_is_no_neighbour_any_more_is_forgotten() -> None:
    bench = full()
    bench.hear(4, Disconnect(True, MADE_ROOM))
    assert list(bench.machine.costs) == [1, 2, 3, 5]


# The initiator.


def wanting(config: XBotConfig = ONCE) -> Bench:
    """A full view whose node has asked 8, which is at 5 ms, in place of 4."""
    bench = full(config)
    bench.know(8)
    bench.cycle()
    bench.up(8)
    assert of(Optimization, bench.answer(8, 5)) == [8]
    return bench


def test_the_costliest_is_left_alone_and_the_next_one_is_to_be_replaced_by_a_nearer_candidate() -> None:
    bench = full()
    bench.know(8)
    bench.up(8)
    bench.cycle()
    assert bench.answer(8, 35) == [(8, Optimization(PeerInfo(0), 1, PeerInfo(4)))]
    assert bench.neighbors == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("unbiased", "old"), [(0, 5), (1, 4), (3, 2)])
def test_as_many_as_are_unbiased_are_left_alone(unbiased: int, old: Peer) -> None:
    bench = wanting(replace(ONCE, unbiased=unbiased))
    assert bench.machine.swap is not None
    assert bench.machine.swap.gives == old


@pytest.mark.parametrize(("ms", "asked"), [(35, [8]), (37, []), (45, [])])
def test_a_candidate_must_be_nearer_by_a_margin(ms: int, asked: list[Peer]) -> None:
    bench = full()
    bench.know(8)
    bench.up(8)
    bench.cycle()
    assert of(Optimization, bench.answer(8, ms)) == asked
    assert (8 in bench.env.holds) == bool(asked)
    assert 8 in bench.machine.passive


def test_a_cycle_looks_at_as_many_candidates_as_the_scan_is_long() -> None:
    for psl in (1, 2, 4):
        bench = full(replace(ONCE, psl=psl))
        bench.know(*range(11, 30))
        bench.cycle()
        assert len({*bench.env.holds} - {1, 2, 3, 4, 5}) == psl


def test_a_view_with_a_free_slot_looks_at_no_candidate() -> None:
    bench = Bench()
    bench.befriend(_1=10, _2=20, _3=30, _4=40)
    bench.know(8)
    bench.machine.tried[8] = None  # it was asked, and refused
    bench.cycle()
    assert 8 not in bench.env.holds


def test_a_candidate_that_answers_when_a_slot_is_free_is_left_to_the_refilling() -> None:
    bench = full()
    bench.know(8)
    bench.up(8)
    bench.cycle()
    bench.machine.passive.clear()
    bench.down(2)
    assert of(Optimization, bench.answer(8, 5)) == []


def test_a_candidate_that_is_asked_for_another_reason_meanwhile_is_not_asked_twice() -> None:
    bench = full()
    bench.know(8)
    bench.up(8)
    bench.cycle()
    assert of(Neighbor, bench.hear(1, ForwardJoin(PeerInfo(8), 0))) == [8]
    assert of(Optimization, bench.answer(8, 5)) == []
    assert bench.machine.swap is None


def test_those_that_refused_in_a_refilling_are_asked_again_in_the_next() -> None:
    bench = full()
    bench.know(8)
    bench.machine.tried[8] = None
    bench.cycle()
    assert of(Neighbor, bench.hear(2, Disconnect(True, MADE_ROOM))) == [8]


def test_the_first_candidate_to_answer_is_taken_and_another_one_is_left_alone() -> None:
    bench = full()
    bench.know(8, 9)
    bench.up(8)
    bench.up(9)
    bench.cycle()
    assert of(Optimization, bench.answer(9, 5)) == [9]
    assert of(Optimization, bench.answer(8, 1)) == []
    assert 8 not in bench.env.holds


def test_a_candidate_that_does_not_answer_until_the_next_cycle_is_given_up() -> None:
    bench = full()
    bench.know(8)
    bench.cycle()
    assert 8 in bench.env.holds
    bench.machine.passive.clear()
    bench.cycle()
    assert 8 not in bench.env.holds
    bench.up(8)
    assert of(Probe, bench.env.take()) == []


def test_a_candidate_that_cannot_be_reached_leaves_the_passive_view() -> None:
    bench = full()
    bench.know(8)
    bench.cycle()
    bench.down(8, "refused")
    assert list(bench.machine.passive) == []
    assert 8 not in bench.machine.probing


def test_the_candidate_s_yes_brings_it_in_the_place_of_the_old_one() -> None:
    bench = wanting()
    sent = bench.reply(8, True)
    assert calm(sent) == [(4, Disconnect(True, NEARER))]
    assert bench.neighbors == [1, 2, 3, 5, 8]
    assert list(bench.machine.passive) == [4]
    assert {*bench.env.holds} == {1, 2, 3, 5, 8}
    assert bench.machine.swap is None
    assert bench.machine._cost(8) == 5 * MS  # as it was measured before


def test_the_slot_of_an_old_one_that_has_parted_is_kept_for_the_candidate() -> None:
    """The paper's DISCONNECTWAIT."""
    bench = wanting()
    bench.know(11, 12, 13)
    assert bench.hear(4, Disconnect(True, NEARER)) == []
    assert bench.hear(9, Neighbor(PeerInfo(9), 3, False)) == [(9, NeighborReply(3, False))]
    assert bench.neighbors == [1, 2, 3, 5]
    assert calm(bench.reply(8, True)) == []
    assert bench.neighbors == [1, 2, 3, 5, 8]


def test_a_join_meanwhile_takes_another_slot_than_the_one_that_is_kept() -> None:
    bench = wanting()
    bench.hear(4, Disconnect(True, NEARER))
    bench.hear(9, Join(PeerInfo(9), 3))
    assert len(bench.neighbors) == SIZE - 1
    bench.reply(8, True)
    assert len(bench.neighbors) == SIZE
    assert {8, 9} <= {*bench.neighbors}


def test_a_node_without_any_neighbour_keeps_no_slot() -> None:
    bench = Bench(replace(ONCE, active_size=1, unbiased=0))
    bench.befriend(_1=40)
    bench.know(8)
    bench.up(8)
    bench.cycle()
    assert of(Optimization, bench.answer(8, 5)) == [8]
    bench.hear(1, Disconnect(True, NEARER))
    assert bench.hear(9, Neighbor(PeerInfo(9), 3, False))[0] == (9, NeighborReply(3, True))
    assert bench.reply(8, True) == [(8, Disconnect(True, FULL))]
    assert bench.neighbors == [9]
    assert 8 not in bench.machine.costs


def test_who_has_lost_all_neighbours_in_an_exchange_asks_one_with_high_priority() -> None:
    bench = wanting()
    for peer in (1, 2, 3, 4):
        bench.down(peer)
    bench.know(11)
    assert [msg.high for _, msg in bench.down(5) if isinstance(msg, Neighbor)] == [True]


def test_while_an_exchange_goes_on_any_other_free_slot_is_refilled() -> None:
    bench = wanting()
    bench.know(11)
    assert of(Neighbor, bench.down(2)) == [11]


def test_the_candidate_s_no_leaves_all_as_it_was() -> None:
    bench = wanting()
    assert bench.reply(8, False) == []
    assert bench.neighbors == [1, 2, 3, 4, 5]
    assert list(bench.machine.passive) == [8]
    assert 8 not in bench.env.holds
    assert 8 not in bench.machine.tried
    assert bench.machine.swap is None


def test_a_no_after_the_old_one_has_parted_refills_the_slot() -> None:
    bench = wanting()
    bench.know(11)
    bench.hear(4, Disconnect(True, NEARER))
    bench.machine.passive.pop(8)
    assert of(Neighbor, bench.reply(8, False)) == [11]


def test_an_exchange_that_nobody_answers_is_given_up_and_a_late_yes_is_answered_by_disconnect() -> None:
    bench = wanting()
    bench.env.advance(4 * CONFIG.patience - 1)
    assert bench.machine.swap is not None
    bench.env.advance(1)
    assert bench.machine.swap is None
    assert bench.neighbors == [1, 2, 3, 4, 5]
    assert 8 not in bench.env.holds
    assert bench.hear(8, NeighborReply(1, True)) == [(8, Disconnect(True, LATE))]


def test_an_exchange_ends_with_the_candidate_s_link_or_when_its_message_never_left() -> None:
    for end in ("link", "message"):
        bench = wanting()
        if end == "link":
            bench.down(8)
        else:
            bench.machine.dropped(8, Optimization(PeerInfo(0), 0, PeerInfo(4)))
            assert bench.machine.swap is not None
            bench.machine.dropped(8, Optimization(PeerInfo(0), 1, PeerInfo(4)))
        assert bench.machine.swap is None
        assert bench.machine.asks == {}
        assert bench.neighbors == [1, 2, 3, 4, 5]


def test_one_exchange_is_begun_at_a_time() -> None:
    bench = wanting(replace(ONCE, patience=AGES))
    bench.know(11, 12, 13)
    assert {*bench.env.holds} == {1, 2, 3, 4, 5, 8}
    bench.cycle()
    assert {*bench.env.holds} == {1, 2, 3, 4, 5, 8}


def test_two_that_choose_each_other_become_neighbours_and_each_gives_up_its_old_one() -> None:
    bench = wanting()
    sent = bench.hear(8, Optimization(PeerInfo(8), 5, PeerInfo(9)))
    assert calm(sent) == [(4, Disconnect(True, NEARER)), (8, NeighborReply(5, True))]
    assert bench.neighbors == [1, 2, 3, 5, 8]
    assert bench.hear(8, NeighborReply(1, True)) == []
    assert bench.neighbors == [1, 2, 3, 5, 8]


def test_who_is_chosen_by_one_that_it_is_asking_accepts_at_once() -> None:
    bench = full()
    bench.hear(1, ForwardJoin(PeerInfo(9), 0))
    sent = bench.hear(9, OFFER)
    assert (9, NeighborReply(7, True)) in sent
    assert of(Replace, sent) == []
    assert 9 in bench.neighbors


# The candidate.


INITIATOR = PeerInfo(9, ("/ip4/127.0.0.1/tcp/9",))
OFFER = Optimization(INITIATOR, 7, PeerInfo(20))


def offered() -> Bench:
    """9 wants this node in place of 20; its worst neighbour, 4, was asked to part."""
    bench = full()
    bench.up(9)
    assert bench.hear(9, OFFER) == [(4, Replace(1, 9, PeerInfo(20)))]
    assert bench.env.infos[9] == INITIATOR
    return bench


def test_a_candidate_with_a_free_slot_takes_the_initiator_in_at_once() -> None:
    bench = Bench()
    bench.befriend(_1=10, _2=20, _3=30, _4=40)
    assert calm(bench.hear(9, OFFER)) == [(9, NeighborReply(7, True))]
    assert bench.neighbors == [1, 2, 3, 4, 9]


def test_a_full_candidate_asks_its_worst_biased_neighbour_to_part_and_waits() -> None:
    bench = offered()
    assert bench.neighbors == [1, 2, 3, 4, 5]


def test_the_old_one_itself_is_not_asked_to_part_but_the_next() -> None:
    bench = full()
    assert bench.hear(9, Optimization(PeerInfo(9), 7, PeerInfo(4))) == [(3, Replace(1, 9, PeerInfo(4)))]


def test_the_disconnected_one_s_yes_brings_the_initiator_in_its_place_without_another_word_to_it() -> None:
    bench = offered()
    sent = bench.hear(4, ReplaceReply(1, True))
    assert calm(sent) == [(9, NeighborReply(7, True))]
    assert bench.neighbors == [1, 2, 3, 5, 9]
    assert list(bench.machine.passive) == [4]
    assert {*bench.env.holds} == {1, 2, 3, 5, 9}


def test_its_no_is_passed_on_to_the_initiator() -> None:
    bench = offered()
    assert bench.hear(4, ReplaceReply(1, False)) == [(9, NeighborReply(7, False))]
    assert bench.neighbors == [1, 2, 3, 4, 5]
    assert bench.machine.swap is None


def test_a_candidate_that_gets_no_answer_refuses_and_takes_a_late_yes_for_a_disconnect() -> None:
    bench = offered()
    bench.env.advance(3 * CONFIG.patience)
    assert calm(bench.env.take()) == [(9, NeighborReply(7, False))]
    bench.know(11)
    assert of(Neighbor, bench.hear(4, ReplaceReply(1, True))) == [11]
    assert bench.neighbors == [1, 2, 3, 5]


def test_the_patience_of_an_exchange_that_is_over_ends_no_later_one() -> None:
    bench = offered()
    bench.env.advance(2 * CONFIG.patience)
    bench.hear(4, ReplaceReply(1, False))
    assert of(Replace, bench.hear(9, OFFER)) == [4]
    bench.env.advance(2 * CONFIG.patience)
    assert bench.machine.swap is not None


@pytest.mark.parametrize("lost", [4, 9])
def test_a_candidate_that_loses_either_of_the_two_gives_the_exchange_up(lost: Peer) -> None:
    bench = offered()
    sent = bench.down(lost)
    assert bench.machine.swap is None
    assert of(NeighborReply, sent) == ([9] if lost == 4 else [])
    assert bench.hear(4, ReplaceReply(1, False)) == []


def test_a_candidate_that_is_in_an_exchange_refuses_another() -> None:
    bench = offered()
    assert bench.hear(10, Optimization(PeerInfo(10), 3, PeerInfo(21))) == [(10, NeighborReply(3, False))]
    busy = wanting()
    assert busy.hear(9, OFFER) == [(9, NeighborReply(7, False))]


@pytest.mark.parametrize("old", [0, 9])
def test_an_old_one_that_cannot_be_is_refused(old: Peer) -> None:
    bench = full()
    assert bench.hear(9, Optimization(PeerInfo(9), 7, PeerInfo(old))) == [(9, NeighborReply(7, False))]


def test_a_candidate_that_has_measured_nobody_refuses() -> None:
    bench = Bench()
    for peer in range(1, SIZE + 1):
        bench.up(peer)
        bench.hear(peer, Neighbor(PeerInfo(peer), 1, True))
    assert calm(bench.hear(9, OFFER)) == [(9, NeighborReply(7, False))]


def test_an_initiator_that_comes_by_itself_meanwhile_takes_the_place_that_was_meant_for_it() -> None:
    bench = offered()
    sent = bench.hear(9, Neighbor(PeerInfo(9), 8, True))
    assert calm(sent) == [(4, Disconnect(True, NEARER)), (9, NeighborReply(8, True))]
    assert bench.neighbors == [1, 2, 3, 5, 9]


def test_an_initiator_that_comes_by_itself_where_there_is_room_costs_nobody() -> None:
    bench = offered()
    bench.down(2)
    assert calm(bench.hear(9, Neighbor(INITIATOR, 8, False)))[-1] == (9, NeighborReply(8, True))
    assert bench.neighbors == [1, 3, 4, 5, 9]


def test_an_initiator_that_is_a_candidate_itself_is_measured_and_its_link_held_until_the_exchange_is_over() -> None:
    bench = full()
    bench.know(9)
    bench.up(9)
    bench.cycle()
    bench.hear(9, OFFER)
    assert bench.answer(9, 5) == []
    assert 9 in bench.env.holds
    bench.hear(4, ReplaceReply(1, False))
    assert 9 not in bench.env.holds


# The disconnected one.


def replaced(ms: int = 15) -> tuple[Bench, Sent]:
    """2, at 20 ms, asks this node to take 20 in its place; what is sent when that one was measured."""
    bench = full()
    assert bench.hear(2, Replace(6, 9, PeerInfo(20, ("/ip4/127.0.0.1/tcp/20",)))) == []
    assert 20 in bench.env.holds
    assert bench.env.infos[20].addresses == ("/ip4/127.0.0.1/tcp/20",)
    bench.up(20)
    return bench, bench.answer(20, ms)


def test_who_is_asked_to_part_measures_the_old_one_and_switches_to_it_if_it_is_nearer() -> None:
    _, sent = replaced(15)
    assert sent == [(20, Switch(PeerInfo(0), 1, 9))]


@pytest.mark.parametrize("ms", [19, 25])
def test_and_refuses_if_it_is_not(ms: int) -> None:
    bench, sent = replaced(ms)
    assert sent == [(2, ReplaceReply(6, False))]
    assert 20 not in bench.env.holds
    assert bench.neighbors == [1, 2, 3, 4, 5]
    assert bench.machine.swap is None


def test_it_has_as_long_for_the_answer_as_for_the_measuring() -> None:
    bench = full()
    bench.hear(2, Replace(6, 9, PeerInfo(20)))
    bench.env.advance(2 * SECOND)
    bench.up(20)
    bench.answer(20, 15)
    bench.env.advance(2 * SECOND)
    assert calm(bench.reply(20, True)) == [(2, ReplaceReply(6, True))]


def test_a_cycle_meanwhile_does_not_end_the_measuring() -> None:
    bench = full(replace(ONCE, patience=AGES))
    bench.hear(2, Replace(6, 9, PeerInfo(20)))
    bench.cycle()
    bench.up(20)
    assert of(Switch, bench.answer(20, 15)) == [20]


def test_an_old_one_that_is_asked_for_another_reason_meanwhile_is_not_asked_twice() -> None:
    bench = full()
    bench.hear(2, Replace(6, 9, PeerInfo(20)))
    bench.know(20)
    assert of(Neighbor, bench.down(3)) == [20]
    bench.up(20)
    assert bench.answer(20, 15) == [(2, ReplaceReply(6, False))]
    assert 20 in bench.machine.asks


def test_the_old_one_s_yes_brings_it_in_the_place_of_the_candidate_which_hears_of_it() -> None:
    bench, _ = replaced()
    assert calm(bench.reply(20, True)) == [(2, ReplaceReply(6, True))]
    assert bench.neighbors == [1, 3, 4, 5, 20]
    assert {*bench.env.holds} == {1, 3, 4, 5, 20}


def test_the_old_one_s_no_is_passed_on_and_the_candidate_stays() -> None:
    bench, _ = replaced()
    assert bench.reply(20, False) == [(2, ReplaceReply(6, False))]
    assert bench.neighbors == [1, 2, 3, 4, 5]
    assert 20 not in bench.env.holds


def test_an_old_one_that_cannot_be_reached_or_does_not_answer_is_a_no() -> None:
    for end in ("dial", "probe", "switch", "link"):
        bench = full()
        bench.hear(2, Replace(6, 9, PeerInfo(20)))
        if end == "dial":
            sent = bench.down(20, "refused")
        else:
            bench.up(20)
            if end != "probe":
                bench.answer(20, 15)
            bench.env.take()
            bench.env.advance(CONFIG.patience if end != "link" else 0)
            sent = bench.env.take() if end != "link" else bench.down(20)
        assert sent == [(2, ReplaceReply(6, False))], end
        assert bench.machine.swap is None
        assert 20 not in bench.env.holds
        assert bench.neighbors == [1, 2, 3, 4, 5]


def test_who_loses_the_candidate_while_it_measures_gives_up_but_after_the_switch_keeps_the_slot() -> None:
    bench = full()
    bench.hear(2, Replace(6, 9, PeerInfo(20)))
    bench.hear(2, Disconnect(True, MADE_ROOM))
    assert bench.machine.swap is None
    assert 20 not in bench.env.holds
    cut = full()
    cut.hear(2, Replace(6, 9, PeerInfo(20)))
    assert cut.down(2) == []
    later, _ = replaced()
    later.know(11)
    assert later.hear(2, Disconnect(True, MADE_ROOM)) == []
    assert calm(later.reply(20, True)) == []
    assert later.neighbors == [1, 3, 4, 5, 20]


@pytest.mark.parametrize(
    "msg",
    [Replace(6, 9, PeerInfo(0)), Replace(6, 9, PeerInfo(3)), Replace(6, 0, PeerInfo(20)), Replace(6, 20, PeerInfo(20))],
    ids=["itself", "a neighbour", "initiated by itself", "initiated by the old one"],
)
def test_what_would_gain_nothing_is_refused_at_once(msg: Replace) -> None:
    bench = full()
    assert bench.hear(2, msg) == [(2, ReplaceReply(6, False))]
    assert bench.machine.swap is None


def test_who_is_in_an_exchange_or_has_not_measured_the_candidate_refuses() -> None:
    assert wanting().hear(2, Replace(6, 9, PeerInfo(20))) == [(2, ReplaceReply(6, False))]
    bench = Bench()
    bench.up(2)
    bench.hear(2, Neighbor(PeerInfo(2), 1, True))
    assert bench.hear(2, Replace(6, 9, PeerInfo(20))) == [(2, ReplaceReply(6, False))]


def test_an_old_one_that_is_a_candidate_under_way_is_not_taken_for_one() -> None:
    bench = full()
    bench.know(20)
    bench.up(20)
    bench.cycle()
    bench.hear(2, Replace(6, 9, PeerInfo(20)))
    assert calm(bench.answer(20, 15)) == [(20, Switch(PeerInfo(0), 1, 9))]


# The old one.


def test_a_switch_gives_the_initiator_up_and_takes_its_sender_in() -> None:
    bench = full()
    bench.up(9)
    sent = bench.hear(9, Switch(PeerInfo(9), 3, 2))
    assert calm(sent) == [(2, Disconnect(True, NEARER)), (9, NeighborReply(3, True))]
    assert bench.neighbors == [1, 3, 4, 5, 9]
    assert list(bench.machine.passive) == [2]
    assert [(row.kind, row.peer, row.reason) for row in bench.env.traced[-2:]] == [
        ("neighbor_down", 2, NEARER),
        ("neighbor_up", 9, None),
    ]


def test_a_switch_from_an_initiator_that_is_no_neighbour_is_worth_no_neighbour() -> None:
    assert full().hear(9, Switch(PeerInfo(9), 3, 20)) == [(9, NeighborReply(3, False))]
    bench = Bench()
    bench.befriend(_1=10)
    assert calm(bench.hear(9, Switch(PeerInfo(9), 3, 20))) == [(9, NeighborReply(3, True))]


def test_an_old_one_that_exchanges_the_same_neighbour_itself_refuses() -> None:
    bench = wanting()
    assert bench.hear(9, Switch(PeerInfo(9), 3, 4)) == [(9, NeighborReply(3, False))]
    assert calm(bench.hear(9, Switch(PeerInfo(9), 3, 2)))[-1] == (9, NeighborReply(3, True))
    assert bench.neighbors == [1, 3, 4, 5, 9]


def test_a_switch_from_a_neighbour_costs_nobody_else() -> None:
    bench = full()
    assert of(Disconnect, bench.hear(3, Switch(PeerInfo(3), 3, 2))) == []
    assert {*bench.neighbors} == {1, 2, 3, 4, 5}


# The border.


@pytest.mark.parametrize("msg", [Replace(1, 9, PeerInfo(20)), Replace(1, 2, PeerInfo(3))], ids=str)
def test_a_replace_from_one_that_is_no_neighbour_is_answered_by_disconnect(msg: Replace) -> None:
    bench = full()
    assert bench.hear(9, msg) == [(9, Disconnect(True, STRANGER))]
    assert bench.machine.swap is None


def test_answers_that_nobody_waits_for_change_nothing() -> None:
    bench = offered()
    for peer, msg in ((9, ReplaceReply(1, True)), (4, ReplaceReply(2, False)), (3, ReplaceReply(1, False))):
        assert bench.hear(peer, msg) == []
    assert bench.neighbors == [1, 2, 3, 4, 5]
    assert bench.machine.swap is not None
    wants = wanting()
    assert wants.hear(8, NeighborReply(9, True)) == []
    assert wants.hear(8, NeighborReply(9, False)) == []
    assert wants.machine.swap is not None
    assert wants.neighbors == [1, 2, 3, 4, 5]


def test_an_answer_to_something_else_parts_from_its_sender_at_most() -> None:
    bench = offered()
    assert bench.hear(9, NeighborReply(1, True)) == [(9, Disconnect(True, LATE))]
    assert bench.neighbors == [1, 2, 3, 4, 5]
    wants = wanting()
    assert wants.hear(4, ReplaceReply(1, True)) == []
    assert wants.neighbors == [1, 2, 3, 5]
    wants.reply(8, True)
    assert wants.neighbors == [1, 2, 3, 5, 8]


LONG = PeerInfo(20, ("/dns/" + "x" * 300,))


@pytest.mark.parametrize(
    "msg",
    [
        Optimization(PeerInfo(8), 1, PeerInfo(20)),
        Optimization(PeerInfo(2), 1, PeerInfo(b"bytes")),
        Optimization(PeerInfo(2), 1, LONG),
        Replace(1, 9, LONG),
        Replace(1, b"bytes", PeerInfo(20)),
        Switch(PeerInfo(8), 1, 3),
        Switch(PeerInfo(2), 1, b"bytes"),
    ],
    ids=str,
)
def test_what_no_honest_peer_sends_is_a_peer_error(msg: Message) -> None:
    bench = full()
    with pytest.raises(PeerError):
        bench.hear(2, msg)
    assert bench.neighbors == [1, 2, 3, 4, 5]
    assert bench.machine.swap is None


def test_whatever_peers_propose_all_tables_are_bounded() -> None:
    bench = full()
    for number in range(100, 1_100):
        bench.hear(2, Replace(number, 9, PeerInfo(number)))
        bench.hear(number, Optimization(PeerInfo(number), 1, PeerInfo(number + 1)))
        bench.hear(number, ProbeReply(number))
        bench.hear(number, Probe(number))
    machine = bench.machine
    assert len(machine.neighbors) == SIZE
    assert len(machine.probing) == 1
    assert len(bench.env.holds) <= SIZE + 1
    assert bench.env.clock.waiting <= 5


def test_who_leaves_in_an_exchange_has_no_timer_left() -> None:
    for bench in (wanting(), offered(), replaced()[0], full()):
        bench.hear(2, Replace(6, 9, PeerInfo(20)))
        bench.machine.stop()
        assert bench.env.clock.waiting == 0
        assert [calm(bench.down(peer)) for peer in (4, 20, 9, 2, 8)] == [[]] * 5


def test_every_message_survives_its_codec() -> None:
    codec = msgpack(XBot.kinds)
    info = PeerInfo(b"id", ("/ip4/127.0.0.1/tcp/1",), b"record")
    messages = [
        Optimization(info, 1, info), Replace(2, b"i", info), ReplaceReply(3, True), Switch(info, 4, b"i"), Probe(5),
        ProbeReply(6),
    ]  # fmt: skip
    assert len({type(msg).__struct_config__.tag for msg in messages}) == 6
    assert {type(msg) for msg in messages} < {*XBot.kinds}
    for msg in messages:
        [frame] = codec.pack([msg])
        assert list(codec.unpack(frame)) == [msg]


@pytest.mark.parametrize(
    "wrong",
    [
        {"unbiased": 5}, {"unbiased": -1}, {"psl": 0}, {"bias_every": 0}, {"samples": 0}, {"samples": WINDOW + 1},
        {"margin": 1.0}, {"margin": -0.1}, {"active_size": 0},
    ],
)  # fmt: skip
def test_a_config_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        XBotConfig(**wrong)
