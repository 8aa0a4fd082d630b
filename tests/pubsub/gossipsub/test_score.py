"""The score of a peer: each part by itself, those who left, and what is bounded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import nan
from typing import Any

import pytest

from libweft.peer.errors import UsageError
from libweft.peer.machine import MS, SECOND
from libweft.pubsub.gossipsub import deliveries
from libweft.pubsub.gossipsub import score as score_module
from libweft.pubsub.gossipsub.score import Score
from libweft.pubsub.gossipsub.score_config import FILECOIN, PeerScore, ScoreConfig, Thresholds, TopicScore

QUIET = TopicScore(
    time_in_mesh_weight=0.0,
    first_deliveries_weight=0.0,
    invalid_weight=0.0,
)
"""Each test turns on what it is about."""
PEER = PeerScore(topic_score_cap=0.0, behaviour_threshold=0.0, behaviour_decay=0.5, retain=10 * SECOND)
WATCHED = replace(
    QUIET,
    mesh_deliveries_weight=-1.0,
    mesh_deliveries_decay=0.5,
    mesh_deliveries_cap=100.0,
    mesh_deliveries_threshold=20.0,
    mesh_deliveries_window=10 * MS,
    mesh_deliveries_activation=SECOND,
)
FIRST = replace(QUIET, first_deliveries_weight=1.0, first_deliveries_decay=0.9, first_deliveries_cap=50.0)
INVALID = replace(QUIET, invalid_weight=-1.0, invalid_decay=0.9)

A, B, C = 1, 2, 3


def scored(topic: TopicScore | None, peer: PeerScore = PEER, peers: Sequence[int] = (A, B, C), app: Any = None) -> Score:
    score = Score(ScoreConfig(peer, topic, Thresholds()), app)
    for each in peers:
        score.join(each, None)
    return score


def deliver(score: Score, peer: int, count: int, now: int = 0, start: int = 0) -> None:
    for number in range(start, start + count):
        score.validating(peer, b"%d" % number, "t", now)
        score.delivered(peer, b"%d" % number, "t", now)


# Thresholds.

ALL = replace(WATCHED, time_in_mesh_weight=1.0, first_deliveries_weight=1.0, mesh_failure_weight=-1.0, mesh_failure_decay=0.5)
ALL = replace(ALL, first_deliveries_decay=0.9, first_deliveries_cap=50.0, invalid_weight=-1.0, invalid_decay=0.9)
FALLS: dict[str, Callable[[Score], None]] = {
    "decay": lambda score: score.refresh(3 * SECOND),
    "an invalid message": lambda score: score.invalid(A, "t"),
    "a rejected one": lambda score: score.rejected(A, b"new", "t"),
    "misbehaviour": lambda score: score.penalize(A, 1),
    "a prune": lambda score: score.prune(A, "t", 2 * SECOND),
    "a second graft": lambda score: score.graft(A, "t", 2 * SECOND),
    "parameters": lambda score: score.set_topic("t", replace(ALL, topic_weight=0.5)),
    "neighbours": lambda score: crowd(score),
}


def crowd(score: Score) -> None:
    for peer in range(A, 20):
        score.join(peer, "1.2.3.4")


@pytest.mark.parametrize("fall", FALLS.values(), ids=FALLS)
def test_a_score_that_rose_is_below_a_threshold_as_soon_as_it_falls(fall: Callable[[Score], None]) -> None:
    """Though the last answer was that it is above, and no score was asked for since."""

    def risen() -> Score:
        score = scored(ALL)
        score.graft(A, "t", 0)
        score.refresh(SECOND)
        deliver(score, A, 30, SECOND)
        return score

    plain, asked = risen(), risen()
    high = plain.value(A)
    fall(plain)
    threshold = (high + plain.value(A)) / 2
    assert plain.value(A) < threshold < high
    assert not asked.is_below(A, threshold)
    fall(asked)
    assert asked.is_below(A, threshold)


# P1, P2.


def test_time_in_mesh_counts_whole_quanta_while_in_the_mesh() -> None:
    score = scored(replace(QUIET, topic_weight=0.5, time_in_mesh_weight=1.0, time_in_mesh_quantum=MS, time_in_mesh_cap=3_600.0))
    score.graft(A, "t", 0)
    assert score.value(A) == 0
    score.refresh(200 * MS + 999)
    assert score.value(A) == 0.5 * 200
    assert score.value(B) == 0
    score.prune(A, "t", 200 * MS)
    assert score.value(A) == 0


def test_time_in_mesh_is_capped() -> None:
    score = scored(replace(QUIET, time_in_mesh_weight=1.0, time_in_mesh_quantum=MS, time_in_mesh_cap=10.0))
    score.graft(A, "t", 0)
    score.refresh(40 * MS)
    assert score.value(A) == 10


def test_a_graft_begins_the_time_in_mesh_anew() -> None:
    score = scored(replace(QUIET, time_in_mesh_weight=1.0, time_in_mesh_quantum=MS, time_in_mesh_cap=100.0))
    score.graft(A, "t", 0)
    score.refresh(40 * MS)
    score.prune(A, "t", 40 * MS)
    score.graft(A, "t", 50 * MS)
    assert score.value(A) == 0
    score.refresh(60 * MS)
    assert score.value(A) == 10


def test_first_deliveries_count_one_each() -> None:
    score = scored(replace(FIRST, first_deliveries_cap=2_000.0))
    deliver(score, A, 100)
    assert score.value(A) == 100
    assert score.value(B) == 0


def test_first_deliveries_are_capped() -> None:
    score = scored(FIRST)
    deliver(score, A, 100)
    assert score.value(A) == 50


def test_first_deliveries_decay_at_each_tick_and_end_at_zero() -> None:
    score = scored(FIRST)
    deliver(score, A, 40)
    score.refresh(SECOND)
    assert score.value(A) == pytest.approx(40 * 0.9)
    score.refresh(2 * SECOND)
    assert score.value(A) == pytest.approx(40 * 0.9 * 0.9)
    for tick in range(3, 100):
        score.refresh(tick * SECOND)
    assert score.value(A) == 0


def test_a_counter_is_zero_once_it_is_below_the_least_and_not_at_it() -> None:
    score = scored(replace(FIRST, first_deliveries_decay=0.5), replace(PEER, decay_to_zero=0.5))
    deliver(score, A, 1)
    score.refresh(SECOND)
    assert score.value(A) == 0.5
    score.refresh(2 * SECOND)
    assert score.value(A) == 0


def test_a_second_delivery_of_one_message_is_no_first() -> None:
    score = scored(FIRST)
    deliver(score, A, 1)
    deliver(score, B, 1)
    score.duplicate(B, b"0", "t", 0)
    assert (score.value(A), score.value(B)) == (1, 0)


# P3, P3b.


def test_the_first_the_near_first_and_the_late_peer_by_the_window() -> None:
    """A brings all first, B during validation, C after the window; the deficit is squared."""
    score = scored(WATCHED)
    for peer in (A, B, C):
        score.graft(peer, "t", 0)
    score.refresh(2 * SECOND)
    for number in range(15):
        key = b"%d" % number
        score.validating(A, key, "t", 2 * SECOND)
        score.duplicate(B, key, "t", 2 * SECOND)
        score.delivered(A, key, "t", 3 * SECOND)
        score.duplicate(C, key, "t", 3 * SECOND + 10 * MS + 1)
    assert (score.value(A), score.value(B), score.value(C)) == (-25, -25, -400)


def test_a_copy_within_the_window_after_validation_is_a_mesh_delivery_once_a_peer() -> None:
    score = scored(WATCHED)
    score.graft(A, "t", 0)
    score.refresh(2 * SECOND)
    deliver(score, B, 1, 2 * SECOND)
    assert score.value(A) == -(20**2)
    for _ in range(3):
        score.duplicate(A, b"0", "t", 2 * SECOND + 10 * MS)
    assert score.value(A) == -(19**2)


def test_the_first_peer_earns_nothing_more_by_sending_again() -> None:
    score = scored(WATCHED)
    score.graft(A, "t", 0)
    score.refresh(2 * SECOND)
    score.validating(A, b"k", "t", 2 * SECOND)
    score.duplicate(A, b"k", "t", 2 * SECOND)
    score.delivered(A, b"k", "t", 2 * SECOND)
    score.duplicate(A, b"k", "t", 2 * SECOND)
    assert score.value(A) == -(19**2)


def test_copies_from_outside_the_mesh_are_no_mesh_deliveries() -> None:
    score = scored(WATCHED)
    score.validating(B, b"k", "t", 0)
    score.duplicate(A, b"k", "t", 0)
    score.delivered(B, b"k", "t", 0)
    score.graft(A, "t", 0)
    score.refresh(2 * SECOND)
    assert score.value(A) == -(20**2)


def test_there_is_no_deficit_before_the_activation() -> None:
    score = scored(WATCHED)
    score.graft(A, "t", 0)
    score.refresh(SECOND)
    assert score.value(A) == 0
    score.refresh(SECOND + 1)
    assert score.value(A) == -400


def test_no_deficit_above_the_threshold_and_the_counter_is_capped() -> None:
    score = scored(replace(WATCHED, mesh_deliveries_cap=24.0))
    score.graft(A, "t", 0)
    deliver(score, A, 100)
    score.refresh(2 * SECOND)
    assert score.value(A) == -((20 - 12) ** 2)
    deliver(score, A, 8, 2 * SECOND, start=200)
    assert score.value(A) == 0


def test_the_deficit_grows_as_the_counter_decays() -> None:
    score = scored(WATCHED)
    score.graft(A, "t", 0)
    deliver(score, A, 40)
    found = []
    for tick in range(1, 5):
        score.refresh(tick * 2 * SECOND)
        found.append(score.value(A))
    assert found == [0, -100, -225, pytest.approx(-((20 - 2.5) ** 2))]


def test_echoes_of_the_nodes_own_message_are_mesh_deliveries() -> None:
    score = scored(WATCHED)
    score.graft(A, "t", 0)
    score.refresh(2 * SECOND)
    score.delivered(99, b"own", "t", 2 * SECOND)
    score.duplicate(A, b"own", "t", 2 * SECOND)
    assert score.value(A) == -(19**2)


FAILING = replace(WATCHED, mesh_deliveries_weight=0.0, mesh_failure_weight=-1.0, mesh_failure_decay=0.5)


def test_a_deficit_at_the_prune_becomes_a_failure_that_stays_when_grafted_again() -> None:
    score = scored(FAILING)
    for peer in (A, B):
        score.graft(peer, "t", 0)
    deliver(score, A, 40)
    score.refresh(2 * SECOND)
    assert (score.value(A), score.value(B)) == (0, 0)
    for peer in (A, B):
        score.prune(peer, "t", 2 * SECOND)
    assert (score.value(A), score.value(B)) == (0, -400)
    score.graft(B, "t", 2 * SECOND)
    assert score.value(B) == -400
    score.refresh(3 * SECOND)
    assert score.value(B) == -200


def test_no_failure_for_a_prune_before_the_activation() -> None:
    score = scored(FAILING)
    score.graft(A, "t", 0)
    score.prune(A, "t", SECOND)
    assert score.value(A) == 0


def test_a_peer_that_is_no_longer_in_the_mesh_has_no_deficit() -> None:
    score = scored(WATCHED)
    score.graft(A, "t", 0)
    score.refresh(2 * SECOND)
    assert score.value(A) == -400
    score.prune(A, "t", 2 * SECOND)
    score.refresh(3 * SECOND)
    assert score.value(A) == 0


# P4 and verdicts.


def test_invalid_messages_count_squared() -> None:
    score = scored(INVALID)
    for number in range(10):
        score.validating(A, b"%d" % number, "t", 0)
        score.rejected(A, b"%d" % number, "t")
    assert score.value(A) == -100


def test_invalid_messages_decay() -> None:
    score = scored(INVALID)
    for _ in range(10):
        score.invalid(A, "t")
    score.refresh(SECOND)
    assert score.value(A) == pytest.approx(-((10 * 0.9) ** 2))


def test_what_is_bad_at_first_sight_counts_without_a_record() -> None:
    score = scored(INVALID)
    score.invalid(A, "t")
    assert score.value(A) == -1
    score.duplicate(B, b"k", "t", 0)
    assert score.value(B) == 0


@pytest.mark.parametrize("verdict", ["ignored", "throttled"])
def test_ignored_and_throttled_messages_blame_nobody_before_or_after(verdict: str) -> None:
    score = scored(replace(INVALID, first_deliveries_weight=1.0))
    score.validating(A, b"k", "t", 0)
    score.duplicate(B, b"k", "t", 0)
    getattr(score, verdict)(b"k")
    score.duplicate(C, b"k", "t", 0)
    score.delivered(A, b"k", "t", 0)
    assert [score.value(peer) for peer in (A, B, C)] == [0, 0, 0]


def test_a_reject_blames_all_who_brought_it_before_the_verdict() -> None:
    score = scored(INVALID)
    score.validating(A, b"k", "t", 0)
    score.duplicate(B, b"k", "t", 0)
    assert (score.value(A), score.value(B)) == (0, 0)
    score.rejected(A, b"k", "t")
    assert [score.value(peer) for peer in (A, B, C)] == [-1, -1, 0]


def test_each_copy_after_a_reject_is_one_more_invalid_message() -> None:
    score = scored(INVALID)
    score.validating(A, b"k", "t", 0)
    score.rejected(A, b"k", "t")
    score.duplicate(B, b"k", "t", 0)
    score.duplicate(C, b"k", "t", 0)
    score.duplicate(C, b"k", "t", 0)
    assert [score.value(peer) for peer in (A, B, C)] == [-1, -1, -4]


def test_a_reject_without_a_record_blames_the_sender_and_later_copies() -> None:
    score = scored(INVALID)
    score.rejected(A, b"k", "t")
    score.duplicate(B, b"k", "t", 0)
    assert (score.value(A), score.value(B)) == (-1, -1)


# P5, P6, P7.


def test_the_applications_score_counts_by_its_weight() -> None:
    given_: dict[Any, float] = {A: -10.0}
    score = scored(QUIET, replace(PEER, app_weight=0.5), app=lambda peer: given_.get(peer, 0.0))
    assert (score.value(A), score.value(B)) == (-5, 0)
    given_[A] = 100.0
    assert score.value(A) == 50
    assert score.value(99) == 0


def test_an_applications_score_that_is_no_number_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="finite"):
        scored(QUIET, app=lambda peer: nan).value(A)


SHARED = replace(PEER, colocation_weight=-1.0, colocation_threshold=1)


def together(addresses: dict[int, str | None], peer: PeerScore = SHARED) -> Score:
    score = scored(QUIET, peer, ())
    for each, address in addresses.items():
        score.join(each, address)
    return score


def test_peers_beyond_the_threshold_on_one_address_count_squared() -> None:
    score = together({A: "1.2.3.4", B: "2.3.4.5", C: "2.3.4.5", 4: "2.3.4.5"})
    assert [score.value(peer) for peer in (A, B, C, 4)] == [0, -4, -4, -4]


def test_addresses_in_free_networks_do_not_count() -> None:
    score = together({B: "2.3.4.5", C: "2.3.4.5", 4: "2.3.5.5", 5: "2.3.5.5"}, replace(SHARED, colocation_free=("2.3.4.0/24",)))
    assert [score.value(peer) for peer in (B, C, 4, 5)] == [0, 0, -1, -1]


@pytest.mark.parametrize("address", [None, "", "127.0.0.1", "::1", "127.8.8.8", "unknown", "::ffff:127.0.0.1"])
def test_loopback_and_unknown_addresses_do_not_count(address: str | None) -> None:
    score = together({A: address, B: address})
    assert score.value(A) == 0


def test_an_ipv6_address_counts_by_itself_and_by_its_64() -> None:
    score = together({A: "2001:db8::1", B: "2001:db8::1", C: "2001:db8::2", 4: "2001:db8:0:1::1"})
    assert [score.value(peer) for peer in (A, B, C, 4)] == [-1 - 4, -1 - 4, -4, 0]


def test_an_ipv4_address_written_as_ipv6_is_the_same_address() -> None:
    score = together({A: "1.2.3.4", B: "::ffff:1.2.3.4"})
    assert score.value(A) == -1


def test_a_peer_that_comes_from_elsewhere_is_counted_there_alone() -> None:
    score = together({A: "1.2.3.4", B: "1.2.3.4"})
    score.join(B, "5.6.7.8")
    assert (score.value(A), score.value(B)) == (0, 0)


def test_misbehaviour_counts_squared_above_its_threshold_and_decays() -> None:
    score = scored(QUIET, replace(PEER, behaviour_weight=-1.0, behaviour_threshold=1.0, behaviour_decay=0.5))
    score.penalize(A, 1)
    assert score.value(A) == 0
    score.penalize(A, 4)
    assert score.value(A) == -16
    score.refresh(SECOND)
    assert score.value(A) == -(1.5**2)


def test_a_penalty_for_an_unknown_peer_does_nothing() -> None:
    score = scored(QUIET, peers=())
    score.penalize(A, 4)
    assert score.value(A) == 0
    score.join(A, None)
    assert score.value(A) == 0


# The whole.


def test_an_unknown_peer_scores_zero_whatever_it_sends() -> None:
    score = scored(FILECOIN.topic, peers=())
    score.graft(A, "t", 0)
    deliver(score, A, 3)
    score.invalid(A, "t")
    assert score.value(A) == 0
    assert set(score.explain(A).values()) == {0.0}


def test_the_cap_clips_the_sum_of_topics_and_not_the_faults() -> None:
    score = scored(replace(FIRST, invalid_weight=-1.0, invalid_decay=0.5), replace(PEER, topic_score_cap=10.0))
    deliver(score, A, 30)
    assert score.value(A) == 10
    score.penalize(A, 1)
    assert score.value(A) == 0
    for _ in range(6):
        score.invalid(A, "t")
    assert score.value(A) == -6 - 10


def test_topics_that_are_not_named_do_not_count_where_there_is_no_default() -> None:
    score = Score(ScoreConfig(PEER, None, Thresholds(), {"t": INVALID}))
    score.join(A, None)
    score.validating(A, b"k", "other", 0)
    score.rejected(A, b"k", "other")
    score.invalid(A, "other")
    score.delivered(A, b"m", "other", 0)
    assert score.value(A) == 0
    assert len(score._deliveries) == 0
    score.invalid(A, "t")
    assert score.value(A) == -1


def test_lower_caps_clip_counters_when_the_topic_changes() -> None:
    score = scored(replace(FIRST, first_deliveries_cap=2_000.0))
    deliver(score, A, 100)
    assert score.value(A) == 100
    score.set_topic("t", FIRST)
    assert score.value(A) == 50
    score.set_topic("t", replace(FIRST, first_deliveries_cap=2_000.0))
    assert score.value(A) == 50


def test_a_lower_cap_of_mesh_deliveries_clips_their_counter_too() -> None:
    score = scored(WATCHED)
    score.graft(A, "t", 0)
    deliver(score, A, 80)
    score.refresh(2 * SECOND)
    assert score.value(A) == 0
    score.set_topic("t", replace(WATCHED, mesh_deliveries_cap=10.0))
    assert score.value(A) == -100


def test_a_change_to_a_topic_whose_mesh_deliveries_count_leaves_deficits_as_they_are() -> None:
    score = scored(WATCHED)
    score.graft(A, "t", 0)
    score.refresh(2 * SECOND)
    score.set_topic("t", replace(WATCHED, mesh_deliveries_weight=-2.0))
    assert score.value(A) == -800


def test_a_new_weight_of_a_topic_counts_at_once() -> None:
    score = scored(INVALID)
    for _ in range(10):
        score.invalid(A, "t")
    assert score.value(A) == -100
    score.set_topic("t", replace(INVALID, invalid_weight=-10.0))
    assert score.value(A) == -1_000
    score.invalid(B, "t")
    assert score.value(B) == -10


def test_mesh_deliveries_turned_on_at_run_time_leave_everyone_the_activation() -> None:
    score = scored(QUIET)
    score.graft(A, "t", 0)
    score.refresh(60 * SECOND)
    score.set_topic("t", WATCHED)
    score.refresh(61 * SECOND)
    score.refresh(62 * SECOND)
    assert score.value(A) == 0
    score.refresh(63 * SECOND)
    assert score.value(A) == -400


# Those who left.


def test_a_bad_score_is_retained_for_its_time_and_then_forgotten() -> None:
    score = scored(INVALID)
    for _ in range(10):
        score.invalid(A, "t")
    score.left(A, SECOND)
    for second in range(2, 11):
        score.refresh(second * SECOND)
        assert score.value(A) == -100, "nothing heals while a peer is away"
    score.refresh(11 * SECOND)
    assert score.value(A) == 0
    assert A not in score._peers


def test_a_peer_with_a_bad_score_has_it_again_when_it_comes_back() -> None:
    score = scored(INVALID)
    score.invalid(A, "t")
    score.left(A, 0)
    score.join(A, None)
    score.refresh(30 * SECOND)
    assert score.value(A) == pytest.approx(-0.81)


def test_a_good_score_is_forgotten_at_once() -> None:
    score = scored(FIRST)
    deliver(score, A, 10)
    score.left(A, 0)
    assert score.value(A) == 0
    score.join(A, None)
    assert score.value(A) == 0


def test_first_deliveries_of_a_retained_peer_are_lost_and_its_deficit_is_a_failure() -> None:
    topic = replace(FAILING, first_deliveries_weight=1.0, invalid_weight=-1.0, mesh_deliveries_threshold=4.0)
    score = scored(replace(topic, first_deliveries_cap=3.0))
    score.graft(A, "t", 0)
    deliver(score, A, 2)
    for _ in range(2):
        score.invalid(A, "t")
    score.left(A, 2 * SECOND)
    assert score.value(A) == -4 - (4 - 2) ** 2


def test_retained_peers_still_share_their_address() -> None:
    """Else one machine could come with a fresh name a minute, and never be two."""
    score = together({A: "1.2.3.4", B: "1.2.3.4"})
    score.left(B, 0)
    assert score.value(A) == -1
    score.refresh(10 * SECOND)
    assert score.value(A) == 0
    assert len(score._colocation) == 1


def test_who_left_without_a_fault_shares_its_address_for_a_minute_and_who_had_one_as_long_as_it_is_retained() -> None:
    hour = replace(SHARED, retain=3_600 * SECOND)
    for fault, gone in ((0, score_module.FAULTLESS), (1, 3_600 * SECOND)):
        score = scored(INVALID, hour, ())
        score.join(A, "1.2.3.4")
        score.join(B, "1.2.3.4")
        for _ in range(fault):
            score.invalid(B, "t")
        score.left(B, 0)
        score.refresh(gone - 1)
        assert score.value(A) == -1
        score.refresh(gone)
        assert score.value(A) == 0


def test_of_too_many_retained_peers_the_mildest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_module, "RETAINED", 3)
    score = scored(INVALID, peers=range(20))
    for peer, count in enumerate([3, 1, 2]):
        for _ in range(count):
            score.invalid(peer, "t")
        score.left(peer, 0)
    for peer in range(3, 10):
        score.left(peer, 1)
    assert [score.value(peer) for peer in range(3)] == [-9, -1, -4], "those without a fault wash nobody"
    for _ in range(2):
        score.invalid(10, "t")
    score.left(10, 2)
    assert [score.value(peer) for peer in (0, 1, 2, 10)] == [-9, 0, -4, -4]


# Bounds.


def test_records_are_bounded_by_number_and_by_age() -> None:
    kept = deliveries.Deliveries(limit=8, ttl=10)
    kept.expire(1_000)
    for number in range(100):
        kept.open(b"%d" % number, A)
        assert len(kept) <= 8
    assert kept.find(b"99") and not kept.find(b"0")
    for now in (1_001, 1_009, 1_010, 1_019):
        kept.expire(now)
        assert kept.find(b"99")
    kept.expire(1_020)
    assert len(kept) == 0


@pytest.mark.parametrize("told", ["validating", "refresh"])
def test_old_records_go_as_messages_come_and_at_the_tick(told: str) -> None:
    score = scored(INVALID)
    score.validating(A, b"k", "t", 1_000)
    for now in (deliveries.TTL + 1_000, 2 * deliveries.TTL + 1_000):
        assert score._deliveries.find(b"k")
        if told == "refresh":
            score.refresh(now)
        else:
            score.validating(A, b"%d" % now, "t", now)
    assert not score._deliveries.find(b"k")


def test_where_mesh_deliveries_do_not_count_late_copies_take_no_room() -> None:
    score = scored(FIRST)
    score.graft(B, "t", 0)
    deliver(score, A, 1)
    score.duplicate(B, b"0", "t", 0)
    record = score._deliveries.find(b"0")
    assert record is not None and record.peers is None


def test_a_record_remembers_so_many_peers_and_no_more() -> None:
    score = scored(INVALID, peers=range(300))
    score.validating(0, b"k", "t", 0)
    for peer in range(1, 300):
        score.duplicate(peer, b"k", "t", 0)
    score.rejected(0, b"k", "t")
    assert sum(score.value(peer) < 0 for peer in range(300)) == 1 + deliveries.PEERS


def test_invalid_messages_of_ever_new_topics_take_no_more_room_and_still_count() -> None:
    score = scored(INVALID)
    for number in range(score_module.TOPICS + 10):
        score.invalid(A, f"topic {number}")
    assert len(score._peers[A].topics) == score_module.TOPICS + 1
    assert score.value(A) == -score_module.TOPICS - 10**2


def test_nothing_is_kept_of_a_topic_when_all_has_decayed() -> None:
    score = scored(replace(INVALID, invalid_decay=0.5))
    score.invalid(A, "t")
    for tick in range(10):
        score.refresh(tick * SECOND)
    assert score._peers[A].topics == {}
