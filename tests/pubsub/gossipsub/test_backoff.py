"""Backoff: ends are only ever put off, entries outlive them by the slack, and are bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libweft.peer.errors import UsageError
from libweft.peer.machine import SECOND
from libweft.pubsub.gossipsub.backoff import Backoff


def test_an_entry_is_of_one_topic_and_one_peer() -> None:
    backoff = Backoff()
    backoff.add("t", 1, 60)
    assert backoff.until("t", 1) == 60
    assert backoff.until("t", 2) == backoff.until("u", 1) == 0
    assert [backoff.has("t", 1), backoff.has("t", 2), backoff.has("u", 1)] == [True, False, False]


def test_a_later_end_counts_and_an_earlier_one_does_not() -> None:
    backoff = Backoff()
    for until in (60, 10, 70, 70, 0):
        backoff.add("t", 1, until)
    assert backoff.until("t", 1) == 70


def test_an_entry_is_there_until_the_slack_has_passed_and_a_sweep_came() -> None:
    backoff = Backoff(slack=2 * SECOND)
    backoff.add("t", 1, 60 * SECOND)
    backoff.sweep(62 * SECOND)
    assert backoff.has("t", 1)
    backoff.sweep(62 * SECOND + 1)
    assert not backoff.has("t", 1)
    assert backoff.until("t", 1) == 0


def test_a_sweep_leaves_what_is_still_running() -> None:
    backoff = Backoff(slack=0)
    backoff.add("t", 1, 10)
    backoff.add("t", 2, 20)
    backoff.sweep(15)
    assert (backoff.has("t", 1), backoff.has("t", 2)) == (False, True)


def test_beyond_the_limit_the_oldest_entry_goes() -> None:
    backoff = Backoff(limit=2)
    for peer in (1, 2, 3):
        backoff.add("t", peer, 60)
    assert [backoff.has("t", peer) for peer in (1, 2, 3)] == [False, True, True]


def test_putting_off_an_end_displaces_nobody() -> None:
    backoff = Backoff(limit=2)
    for peer, until in ((1, 60), (2, 60), (2, 70)):
        backoff.add("t", peer, until)
    assert backoff.has("t", 1)
    assert backoff.until("t", 2) == 70


@pytest.mark.parametrize("wrong", [{"slack": -1}, {"limit": 0}])
def test_a_negative_slack_and_an_empty_table_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        Backoff(**wrong)
    assert Backoff(slack=0, limit=1).slack == 0
    assert Backoff().slack == 2 * SECOND


steps = st.lists(st.tuples(st.booleans(), st.sampled_from("tu"), st.integers(0, 3), st.integers(0, 40)), max_size=60)


@given(taken=steps)
def test_after_any_history_an_end_is_the_latest_that_was_added(taken: list[tuple[bool, str, int, int]]) -> None:
    backoff, ends = Backoff(slack=2, limit=5), dict[tuple[str, int], int]()
    for sweeps, topic, peer, time in taken:
        if sweeps:
            backoff.sweep(time)
            ends = {entry: end for entry, end in ends.items() if end + 2 >= time}
        else:
            backoff.add(topic, peer, time)
            ends[topic, peer] = max(time, ends.get((topic, peer), 0))
        assert len(backoff) == min(len(ends), 5)
        ends = {entry: end for entry, end in ends.items() if backoff.has(*entry)}
        assert len(ends) == len(backoff)
        assert all(backoff.until(*entry) == end for entry, end in ends.items())
