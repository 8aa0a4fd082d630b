"""Which subscriptions are heard, and which peers are not heard at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libweft.peer.errors import PeerError, UsageError
from libweft.pubsub.gossipsub.filters import Blacklist, SubscriptionFilter, allow_list, any_topic, matching


def test_an_allow_list_lets_its_topics_pass_and_no_other() -> None:
    listed = allow_list(["a", "b"])
    assert [listed.allows(topic) for topic in ("a", "b", "c")] == [True, True, False]
    assert listed.filter([(True, "a"), (True, "c"), (False, "b")]) == [(True, "a"), (False, "b")]


def test_an_expression_lets_topics_pass_in_which_it_is_found() -> None:
    found = matching("^test[0-9]")
    assert found.filter([(True, "test1"), (True, "a test1"), (True, "test1/more")]) == [(True, "test1"), (True, "test1/more")]
    assert found.allows("test2") and not found.allows("test")


def test_an_expression_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="no regular expression"):
        matching("[")


def test_more_changes_than_the_limit_are_the_peers_fault() -> None:
    limited = allow_list(["a"], limit=2)
    assert limited.filter([(True, "a"), (True, "b")]) == [(True, "a")]
    with pytest.raises(PeerError, match="more than 2"):
        limited.filter([(True, "b"), (True, "c"), (True, "d")])


def test_a_limit_that_lets_nothing_pass_is_refused() -> None:
    with pytest.raises(UsageError, match="limit"):
        any_topic(limit=0)
    assert any_topic(limit=1).filter([(True, "a")]) == [(True, "a")]


def test_the_same_change_twice_is_one() -> None:
    assert any_topic().filter([(True, "a"), (False, "b"), (True, "a"), (False, "b")]) == [(True, "a"), (False, "b")]


def test_opposite_changes_of_one_topic_cancel_out() -> None:
    assert any_topic().filter([(True, "a"), (True, "b"), (False, "a")]) == [(True, "b")]
    assert any_topic().filter([(True, "a"), (False, "a"), (True, "a")]) == [(True, "a")]


@given(changes=st.lists(st.tuples(st.booleans(), st.sampled_from("abcdef")), max_size=30))
def test_what_passes_is_allowed_each_topic_once_and_was_among_the_changes(changes: list[tuple[bool, str]]) -> None:
    passed = SubscriptionFilter(lambda topic: topic in "abc").filter(changes)
    topics = [topic for _, topic in passed]
    assert len(set(topics)) == len(topics)
    assert set(topics) <= set("abc")
    assert set(passed) <= set(changes)
    for topic in "abc":
        flags = [joins for joins, each in changes if each == topic]
        if len(set(flags)) == 1:
            assert (flags[0], topic) in passed


def test_a_blacklisted_peer_stays_so_until_it_is_removed() -> None:
    black = Blacklist()
    black.add(1, 0)
    assert black.has(1, 1 << 60) and not black.has(2, 0)
    black.remove(1)
    black.remove(2)
    assert not black.has(1, 0)


def test_a_timed_blacklist_forgets_in_its_time() -> None:
    black = Blacklist(ttl=100)
    black.add(1, 1_000)
    assert black.has(1, 1_099)
    assert not black.has(1, 1_100)


def test_a_peer_blacklisted_again_is_so_for_the_whole_time_again() -> None:
    black = Blacklist(ttl=100)
    black.add(1, 0)
    black.add(1, 50)
    assert black.has(1, 149)


def test_what_a_timed_blacklist_forgot_takes_no_room() -> None:
    black = Blacklist(ttl=100)
    for peer in range(10):
        black.add(peer, peer)
    black.add(1, 103)
    assert len(black) == 6 + 1
    assert black.has(4, 103)


def test_beyond_the_limit_the_peer_added_first_is_forgotten() -> None:
    black = Blacklist(limit=2)
    for peer in (1, 2, 1, 3):
        black.add(peer, 0)
    assert [black.has(peer, 0) for peer in (1, 2, 3)] == [True, False, True]


def test_a_peer_blacklisted_again_displaces_nobody() -> None:
    black = Blacklist(limit=2)
    for peer in (1, 2, 2):
        black.add(peer, 0)
    assert black.has(1, 0)


@pytest.mark.parametrize("wrong", [{"ttl": 0}, {"limit": 0}])
def test_a_blacklist_that_could_hold_nobody_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        Blacklist(**wrong)
    least = Blacklist(ttl=1, limit=1)
    least.add(1, 0)
    assert least.has(1, 0)
