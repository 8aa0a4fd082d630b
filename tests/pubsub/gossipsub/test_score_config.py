"""Parameters of the score: what is refused, by which name, and what the ready sets promise."""

from __future__ import annotations

from dataclasses import fields, replace
from math import inf, nan
from typing import Any

import pytest

from libweft.peer.errors import UsageError
from libweft.peer.machine import MS, SECOND
from libweft.pubsub.gossipsub.score import Score
from libweft.pubsub.gossipsub.score_config import (
    DEFAULT,
    EPOCH,
    ETHEREUM,
    FILECOIN,
    SLOT,
    PeerScore,
    Thresholds,
    TopicScore,
    decay,
)

OFF = TopicScore(
    topic_weight=0.0,
    time_in_mesh_weight=0.0,
    time_in_mesh_quantum=0,
    time_in_mesh_cap=0.0,
    first_deliveries_weight=0.0,
    first_deliveries_decay=0.0,
    first_deliveries_cap=0.0,
    mesh_deliveries_window=0,
    mesh_deliveries_activation=0,
    invalid_weight=0.0,
    invalid_decay=0.0,
)
ON = FILECOIN.topic
BEHAVED = PeerScore()


def refuses(config: Any, name: str, value: object) -> None:
    with pytest.raises(UsageError, match=rf"^{name} is .*; it must be "):
        replace(config, **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gossip", 0.1),
        ("publish", -9.0),
        ("graylist", -49.0),
        ("accept_px", -0.1),
        ("opportunistic_graft", -0.1),
    ],
)
def test_a_threshold_of_the_wrong_sign_or_order_is_refused(name: str, value: float) -> None:
    refuses(Thresholds(), name, value)


def test_thresholds_may_be_equal_and_may_be_zero() -> None:
    """As in Go and Rust, though the specification wants them apart."""
    assert Thresholds(0.0, 0.0, 0.0, 0.0, 0.0).graylist == 0
    assert Thresholds(-5.0, -5.0, -5.0).publish == -5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("topic_weight", -1.0),
        ("time_in_mesh_weight", -1.0),
        ("time_in_mesh_quantum", 0),
        ("time_in_mesh_quantum", -1),
        ("time_in_mesh_cap", 0.0),
        ("first_deliveries_weight", -1.0),
        ("first_deliveries_decay", 0.0),
        ("first_deliveries_decay", 1.0),
        ("first_deliveries_cap", 0.0),
        ("mesh_deliveries_weight", 1.0),
        ("mesh_deliveries_decay", 1.0),
        ("mesh_deliveries_decay", -0.1),
        ("mesh_deliveries_cap", 0.0),
        ("mesh_deliveries_threshold", 0.0),
        ("mesh_deliveries_window", -1),
        ("mesh_deliveries_activation", SECOND - 1),
        ("mesh_failure_weight", 1.0),
        ("mesh_failure_decay", 1.0),
        ("mesh_failure_decay", 0.0),
        ("invalid_weight", 1.0),
        ("invalid_decay", 0.0),
        ("invalid_decay", 1.0),
    ],
)
def test_a_topic_parameter_out_of_range_is_refused_by_its_name(name: str, value: float) -> None:
    refuses(ON, name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("topic_score_cap", -1.0),
        ("colocation_weight", 1.0),
        ("colocation_threshold", 0),
        ("behaviour_weight", 1.0),
        ("behaviour_threshold", -1.0),
        ("behaviour_decay", 1.0),
        ("behaviour_decay", 0.0),
        ("decay_interval", SECOND - 1),
        ("decay_to_zero", 0.0),
        ("decay_to_zero", 1.0),
        ("retain", -1),
    ],
)
def test_a_peer_parameter_out_of_range_is_refused_by_its_name(name: str, value: float) -> None:
    refuses(BEHAVED, name, value)


@pytest.mark.parametrize("network", ["10.0.0.0/33", "here", ""])
def test_a_free_network_that_is_none_is_refused(network: str) -> None:
    with pytest.raises(UsageError, match="colocation_free"):
        PeerScore(colocation_free=("10.0.0.0/8", network))


@pytest.mark.parametrize("value", [nan, inf, -inf])
@pytest.mark.parametrize("config", [ON, BEHAVED, Thresholds()])
def test_nan_and_infinities_are_refused_in_every_field(config: Any, value: float) -> None:
    names = [field.name for field in fields(config) if field.type == "float"]
    assert len(names) >= 5
    for name in names:
        refuses(config, name, value)


@pytest.mark.parametrize(
    ("group", "weight"),
    [
        ("time_in_mesh", "time_in_mesh_weight"),
        ("first_deliveries", "first_deliveries_weight"),
        ("mesh_deliveries", "mesh_deliveries_weight"),
        ("mesh_failure", "mesh_failure_weight"),
        ("invalid", "invalid_weight"),
    ],
)
def test_a_part_that_is_off_may_be_zero_throughout_and_one_that_is_on_may_not(group: str, weight: str) -> None:
    """The selective validation of Go: a program that scores by one part alone need not think of the others."""
    assert getattr(OFF, weight) == 0
    changed: dict[str, Any] = {weight: 1.0 if weight.startswith(("time", "first")) else -1.0}
    with pytest.raises(UsageError, match=rf"^{group}_"):
        replace(OFF, **changed)


def test_a_part_that_is_off_must_not_be_out_of_range_all_the_same() -> None:
    """It may be turned on at run time, and its counter must not grow without end until then."""
    refuses(OFF, "invalid_decay", 1.5)
    refuses(OFF, "first_deliveries_cap", -1.0)
    refuses(OFF, "time_in_mesh_quantum", -1)


def test_decay_brings_one_down_to_zero_in_the_time_asked_for() -> None:
    """Figures of Go's own test, and of a client of Ethereum."""
    assert decay(3_600 * SECOND) == pytest.approx(0.9987216039048303)
    assert decay(EPOCH, SLOT) == pytest.approx(0.865964, abs=1e-6)
    assert decay(120 * SECOND) ** 120 == pytest.approx(0.01)


def test_decay_counts_whole_ticks() -> None:
    assert decay(2_900 * MS, SECOND, 0.25) == 0.5


@pytest.mark.parametrize(("duration", "interval", "to_zero"), [(1, 2, 0.1), (0, 0, 0.1), (2, 1, 0.0), (2, 1, 1.0), (2, 1, nan)])
def test_a_decay_without_a_tick_or_an_end_is_refused(duration: int, interval: int, to_zero: float) -> None:
    with pytest.raises(UsageError):
        decay(duration, interval, to_zero)


def test_the_ready_sets_have_the_published_figures() -> None:
    assert FILECOIN.topic is not None and ETHEREUM.topic is not None
    assert (FILECOIN.thresholds.gossip, FILECOIN.topic.invalid_weight, FILECOIN.peer.retain) == (-4_000, -99, 30 * SECOND)
    assert ETHEREUM.peer.behaviour_decay == pytest.approx(0.985712, abs=1e-6)
    assert ETHEREUM.topic.invalid_decay == pytest.approx(0.997126, abs=1e-6)


def best(score: Score) -> float:
    """As well as a peer can stand in one topic."""
    score.join(1, None)
    score.graft(1, "t", 0)
    for number in range(40):
        score.delivered(1, bytes([number]), "t", 0)
    score.refresh(600 * SECOND)
    return score.value(1)


def test_by_default_a_newcomer_is_graylisted_at_the_third_invalid_message_and_the_best_peer_at_the_fourth() -> None:
    score, limits = Score(DEFAULT), DEFAULT.thresholds
    score.join(2, None)
    assert best(score) > limits.accept_px
    seen = []
    for _ in range(4):
        score.invalid(1, "t")
        score.invalid(2, "t")
        seen.append((score.value(1), score.value(2)))
    assert seen[0][0] > 0 > seen[0][1] >= limits.gossip
    assert seen[1][0] < 0 and limits.publish < seen[1][1] < limits.gossip
    assert limits.graylist < seen[2][0] and seen[2][1] < limits.graylist
    assert seen[3][0] < limits.graylist


def test_by_default_two_broken_promises_cost_nothing_and_five_graylist() -> None:
    score = Score(DEFAULT)
    score.join(1, None)
    score.penalize(1, 2)
    assert score.value(1) == 0
    score.penalize(1, 1)
    assert DEFAULT.thresholds.gossip <= score.value(1) < 0
    score.penalize(1, 2)
    assert score.value(1) < DEFAULT.thresholds.graylist


def test_by_default_a_broken_promise_a_minute_costs_nothing() -> None:
    score = Score(DEFAULT)
    score.join(1, None)
    for second in range(1_800):
        if second % 60 == 0:
            score.penalize(1, 1)
        assert score.value(1) == 0
        score.refresh(second * SECOND)


def test_by_default_a_quiet_mesh_is_content_after_two_minutes() -> None:
    score = Score(DEFAULT)
    score.join(1, None)
    score.graft(1, "t", 0)
    score.refresh(120 * SECOND)
    assert score.value(1) > DEFAULT.thresholds.opportunistic_graft
