"""Promises: one id of those asked for is remembered, kept by any delivery, and broken after the deadline."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libweft.peer.errors import UsageError
from libweft.peer.machine import SECOND
from libweft.pubsub.gossipsub.promises import FOLLOWUP, Promises

KEYS = [b"%d" % number for number in range(10)]
LATE = FOLLOWUP + 1


def test_a_promise_is_broken_after_its_deadline_and_not_before() -> None:
    promises = Promises()
    promises.promise(1, KEYS, 0, Random(1))
    assert promises.broken(FOLLOWUP) == {}
    assert promises.broken(LATE) == {1: 1}


def test_of_a_long_id_only_its_hash_is_remembered() -> None:
    promises = Promises()
    promises.promise(1, [bytes(1 << 20)], 0, Random(1))
    promises.promise(1, [b"long" * 100], 0, Random(1))
    assert [len(key) for _, key in promises._due] == [32, 32]
    promises.kept(bytes(1 << 20))
    assert promises.broken(LATE) == {1: 1}


def test_broken_promises_are_counted_for_each_peer_and_only_once() -> None:
    promises = Promises()
    for peer, count in ((1, 2), (2, 1)):
        for number in range(count):
            promises.promise(peer, [KEYS[number]], 0, Random(1))
    assert promises.broken(LATE) == {1: 2, 2: 1}
    assert promises.broken(LATE) == {}
    assert len(promises) == 0


def test_one_key_is_drawn_from_all_that_were_asked_for() -> None:
    drawn = set()
    for seed in range(200):
        promises = Promises()
        promises.promise(1, KEYS, 0, Random(seed))
        assert len(promises) == 1
        drawn |= set(promises._peers)
    assert drawn == set(KEYS)


def test_a_message_that_came_ends_its_promise_for_all_peers() -> None:
    promises = Promises()
    for peer in (1, 2, 3):
        promises.promise(peer, KEYS[:1], 0, Random(1))
    promises.promise(3, KEYS[1:2], 0, Random(1))
    promises.kept(KEYS[0])
    promises.kept(b"never asked for")
    assert promises.broken(LATE) == {3: 1}


def test_a_void_peer_owes_nothing_and_others_still_do() -> None:
    promises = Promises()
    for peer in (1, 2):
        for key in KEYS[:2]:
            promises.promise(peer, [key], 0, Random(1))
    promises.void(1)
    assert promises.broken(LATE) == {2: 2}


def test_a_peer_that_left_owes_nothing() -> None:
    promises = Promises()
    promises.promise(1, KEYS, 0, Random(1))
    promises.left(1)
    assert promises.broken(LATE) == {}


def test_a_second_promise_for_the_same_key_does_not_extend_the_first() -> None:
    promises = Promises()
    promises.promise(1, KEYS[:1], 0, Random(1))
    promises.promise(1, KEYS[:1], 2 * SECOND, Random(1))
    assert promises.broken(LATE) == {1: 1}
    assert promises.broken(2 * SECOND + LATE) == {}


def test_nothing_asked_for_is_nothing_promised() -> None:
    promises = Promises()
    promises.promise(1, [], 0, Random(1))
    assert len(promises) == 0


@pytest.mark.parametrize("wrong", [{"followup": 0}, {"limit": 0}, {"each": 0}])
def test_bounds_below_one_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        Promises(**wrong)
    least = Promises(followup=1, limit=1, each=1)
    for key in KEYS:
        least.promise(1, [key], 0, Random(1))
    assert least.broken(2) == {1: 1}


def test_the_deadline_is_three_seconds_away() -> None:
    assert Promises().followup == 3_000_000


steps = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 1, 2]),
        st.sampled_from(["promise", "promise", "promise", "kept", "void", "broken"]),
        st.integers(0, 3),
        st.integers(0, 5),
    ),
    max_size=60,
)


@given(taken=steps)
@settings(max_examples=300)
def test_after_any_history_the_promises_are_those_of_a_plain_list(taken: list[tuple[int, str, int, int]]) -> None:
    """Of one key each, so that nothing is left to chance; and within the bounds."""
    promises, now, model = Promises(followup=3, limit=6, each=2), 0, list[tuple[int, bytes, int]]()
    for wait, what, peer, number in taken:
        now += wait
        key = KEYS[number]
        match what:
            case "promise":
                promises.promise(peer, [key], now, Random(1))
                own = [k for p, k, _ in model if p == peer]
                if key not in own and len(own) < 2 and len(model) < 6:
                    model.append((peer, key, now + 3))
            case "kept":
                promises.kept(key)
                model = [held for held in model if held[1] != key]
            case "void":
                promises.void(peer)
                model = [held for held in model if held[0] != peer]
            case "broken":
                over = [p for p, _, due in model if due < now]
                assert promises.broken(now) == {p: over.count(p) for p in over}
                model = [held for held in model if held[2] >= now]
        assert len(promises) == len(model) <= 6
        assert promises._due == {(p, k): due for p, k, due in model}
        assert {(p, k) for k, peers in promises._peers.items() for p in peers} == set(promises._due)
        assert {(p, k) for p, keys in promises._keys.items() for k in keys} == set(promises._due)
        assert all(promises._peers.values()) and all(promises._keys.values())
