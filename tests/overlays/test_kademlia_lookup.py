"""The iterative lookup alone: whom it asks next, when it ends, and how far a liar leads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libweft.overlays.kademlia import lookup as lookups
from libweft.overlays.kademlia.lookup import WIDTH, Lookup
from libweft.peer.machine import Peer

ME = 1_000_000


@pytest.fixture(autouse=True, scope="module")
def chosen_places() -> Iterator[None]:
    """Each number is its own place, and the place looked up is 0: a peer's number is its distance."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookups, "place_of", lambda peer: peer)
        yield


def look(start: Sequence[Peer], k: int = 3, alpha: int = 3, paths: int = 1) -> Lookup:
    return Lookup(ME, 0, start, k, alpha, paths)


def run(lookup: Lookup, world: Mapping[Peer, Sequence[Peer]], rng: Random | None = None) -> list[Peer]:
    """Whoever is in the world answers, in order or by chance, and the others fail; all that were asked, in order."""
    asked: list[Peer] = []
    open_: list[Peer] = []
    while True:
        fresh = lookup.next()
        asked += fresh
        open_ += fresh
        if not open_:
            return asked
        peer = open_.pop(rng.randrange(len(open_)) if rng else 0)
        if peer in world:
            lookup.heard(peer, world[peer])
        else:
            lookup.failed(peer)


# Whom it asks.


def test_it_asks_the_nearest_first_and_alpha_at_a_time() -> None:
    lookup = look([9, 4, 7, 2, 8], k=5, alpha=3)
    assert lookup.next() == [2, 4, 7]
    assert lookup.next() == []
    lookup.heard(4, [])
    assert lookup.next() == [8]


def test_whoever_is_named_nearer_is_asked_before_those_known_first() -> None:
    lookup = look([50, 60, 70], k=3, alpha=1)
    assert lookup.next() == [50]
    lookup.heard(50, [30, 40, 10])
    assert [lookup.next(), lookup.hops[10], lookup.hops[50]] == [[10], 1, 0]
    lookup.heard(10, [5])
    assert [lookup.next(), lookup.hops[5]] == [[5], 2]


def test_one_that_lags_counts_no_more_but_its_answer_does() -> None:
    lookup = look([1, 2, 3], k=3, alpha=1)
    assert lookup.next() == [1]
    lookup.lags(1)
    assert lookup.next() == [2]
    assert lookup.next() == []
    lookup.heard(1, [])
    assert lookup.next() == []  # the second is still open
    lookup.heard(2, [])
    assert lookup.next() == [3]
    lookup.heard(3, [])
    assert lookup.done and lookup.nearest == [1, 2, 3]


def test_who_has_answered_or_was_never_asked_cannot_lag() -> None:
    lookup = look([1, 2], k=2, alpha=1)
    lookup.next()
    lookup.heard(1, [])
    for peer in (1, 2, 77):
        lookup.lags(peer)
    assert lookup.next() == [2] and lookup.next() == []


def test_the_failed_give_way_to_the_next_and_are_not_asked_again() -> None:
    lookup = look([1, 2, 3, 4], k=2, alpha=2)
    assert lookup.next() == [1, 2]
    lookup.failed(1)
    assert lookup.next() == [3]
    lookup.heard(2, [1])
    lookup.heard(3, [1])
    assert lookup.next() == [] and lookup.done and lookup.nearest == [2, 3]


def test_an_answer_that_was_not_asked_for_or_comes_twice_is_not_heard() -> None:
    lookup = look([5, 6], k=2, alpha=1)
    lookup.next()
    lookup.heard(6, [1])
    lookup.heard(99, [1])
    lookup.heard(ME, [1])
    lookup.failed(6)
    assert list(lookup.answered) == []
    lookup.heard(5, [3])
    lookup.heard(5, [1])
    assert lookup.next() == [3] and 1 not in lookup.owner


def test_it_never_asks_its_own_node() -> None:
    lookup = look([ME, 5], k=3)
    assert run(lookup, {5: [ME, 4], 4: [ME]}) == [5, 4]


# When it ends.


def test_it_ends_only_when_the_k_nearest_that_it_knows_have_answered() -> None:
    lookup = look([10, 20, 30, 40], k=2, alpha=1)
    for peer, closer in ((10, [11]), (11, [9])):
        assert lookup.next() == [peer] and not lookup.done
        lookup.heard(peer, closer)
    assert not lookup.done and lookup.next() == [9]
    lookup.heard(9, [])
    assert lookup.done and lookup.next() == []
    assert lookup.nearest == [9, 10]


def test_it_does_not_wait_for_one_that_is_no_longer_among_the_k_nearest() -> None:
    lookup = look([10, 20], k=2, alpha=2)
    assert lookup.next() == [10, 20]
    lookup.heard(10, [1, 2])
    lookup.lags(20)
    assert lookup.next() == [1, 2]
    lookup.heard(1, [])
    lookup.heard(2, [])
    assert lookup.done and lookup.nearest == [1, 2]


def test_it_does_not_end_while_one_of_the_k_nearest_lags() -> None:
    lookup = look([1, 2], k=2, alpha=2)
    lookup.next()
    lookup.lags(1)
    lookup.heard(2, [])
    assert not lookup.done
    lookup.failed(1)
    assert lookup.done and lookup.nearest == [2]


def test_without_anybody_to_ask_it_is_over_at_once() -> None:
    lookup = look([])
    assert lookup.done and lookup.next() == [] and lookup.nearest == []


def test_a_stopped_one_is_over_and_asks_nobody() -> None:
    lookup = look([1, 2, 3], alpha=1)
    lookup.next()
    lookup.stopped = True
    assert lookup.done and lookup.next() == []


# Paths.


def test_those_known_at_the_start_are_dealt_out_to_the_paths() -> None:
    lookup = look([1, 2, 3, 4, 5], alpha=6, paths=2)
    assert [[peer for _, peer in path.ranked] for path in lookup.paths] == [[1, 3, 5], [2, 4]]
    assert lookup.next() == [1, 3, 5, 2, 4]


@pytest.mark.parametrize(("alpha", "paths", "open_"), [(10, 3, 9), (3, 3, 3), (1, 3, 3), (10, 1, 10), (10, 99, 20)])
def test_alpha_is_shared_by_the_paths_and_each_has_one_question_at_least(alpha: int, paths: int, open_: int) -> None:
    lookup = look(range(1, 21), k=20, alpha=alpha, paths=paths)
    assert len(lookup.next()) == open_


def test_no_peer_is_asked_by_two_paths() -> None:
    everybody = list(range(1, 40))
    lookup = look([31, 32, 33], k=5, alpha=3, paths=3)
    asked = run(lookup, dict.fromkeys(everybody, everybody))
    assert len(asked) == len(set(asked))
    owned = [{peer for _, peer in path.ranked} for path in lookup.paths]
    assert not any(one & other for one in owned for other in owned if one is not other)
    assert lookup.nearest == [1, 2, 3, 4, 5]


def test_a_lying_path_misleads_one_path_only() -> None:
    """The liar names its friends, that are nearer than anybody true, and they name each other."""
    honest = list(range(100, 140))
    friends = list(range(1, 30))
    world: dict[Peer, Sequence[Peer]] = {**dict.fromkeys(honest, honest), **dict.fromkeys([*friends, 200], friends)}
    one = look([200], k=5, alpha=3, paths=1)
    run(one, world)
    assert not set(honest) & set(one.answered)
    two = look([200, 130], k=5, alpha=4, paths=2)
    run(two, world)
    assert set(honest[:5]) <= set(two.answered)
    assert {two.owner[peer] for peer in friends if peer in two.answered} == {two.paths[0]}


def test_friends_of_a_liar_that_are_not_there_hide_no_true_one() -> None:
    honest = list(range(100, 140))
    world: dict[Peer, Sequence[Peer]] = {**dict.fromkeys(honest, honest), 139: list(range(1, 30))}
    lookup = look([139, 130], k=5, alpha=4, paths=2)
    run(lookup, world)
    assert lookup.nearest == honest[:5]


def test_each_path_asks_all_that_it_began_with_whatever_nearer_ones_are_named() -> None:
    lookup = look([100, 101, 102, 103], k=1, alpha=2, paths=2)
    asked = run(lookup, {**dict.fromkeys(range(1, 9), range(1, 9)), 100: [1], 101: [2], 102: [3], 103: [4]})
    assert {100, 101, 102, 103} <= set(asked)
    alone = look([100, 101, 102], k=1, alpha=1)
    assert run(alone, {100: [1], 1: []}) == [100, 1]


def test_a_start_with_the_own_node_a_repetition_or_too_many_still_ends_on_all_paths() -> None:
    world: dict[Peer, Sequence[Peer]] = dict.fromkeys(range(100, 200), range(100, 105))
    for start in ([ME, 100, 101], [100, 100, 101], range(100, 200)):
        lookup = look(start, k=2, alpha=2, paths=2)
        asked = run(lookup, world)
        assert lookup.done and ME not in asked and set(asked) <= set(lookup.answered)
        assert not any(path.open or path.due for path in lookup.paths)


# Bounds.


def test_of_an_answer_the_k_nearest_are_taken() -> None:
    lookup = look([500], k=3, alpha=1)
    lookup.next()
    lookup.heard(500, range(100, 0, -1))
    assert [peer for _, peer in lookup.paths[0].ranked] == [1, 2, 3, 500]


def test_those_of_an_answer_that_are_known_already_take_no_place_from_the_new_ones() -> None:
    lookup = look([1, 2, 3], k=2, alpha=1)
    lookup.next()
    lookup.heard(1, [2, 3, 10, 11, 12])
    assert [peer for _, peer in lookup.paths[0].ranked] == [1, 2, 3, 10, 11]


def test_a_path_keeps_width_times_k_candidates_and_forgets_the_farthest_not_asked() -> None:
    lookup = look(range(1_000, 1_000 + 3 * WIDTH), k=2, alpha=1)
    kept = [peer for _, peer in lookup.paths[0].ranked]
    assert kept == list(range(1_000, 1_000 + WIDTH * 2))
    assert set(lookup.owner) == {ME, *kept} and set(lookup.hops) == set(kept)
    lookup.next()
    lookup.heard(1_000, [1])
    assert [peer for _, peer in lookup.paths[0].ranked] == [1, *kept[:-1]]


@given(seed=st.integers(0, 1 << 16), k=st.integers(1, 4), alpha=st.integers(1, 5), paths=st.integers(1, 4))
@settings(max_examples=60)
def test_liars_that_name_ever_new_strangers_are_asked_for_a_bounded_time(seed: int, k: int, alpha: int, paths: int) -> None:
    rng = Random(seed)
    lookup = look([rng.getrandbits(200) for _ in range(8)], k, alpha, paths)
    open_: list[Peer] = []
    for step in range(10_000):
        open_ += lookup.next()
        if not open_:
            break
        peer = open_.pop(rng.randrange(len(open_)))
        near = 1 << max(1, 200 - step)  # each answer is nearer than the one before
        lookup.heard(peer, [rng.randrange(near) for _ in range(50)])
        assert all(len(path.ranked) <= WIDTH * k for path in lookup.paths)
        assert len(lookup.owner) == len(lookup.hops) + 1 <= len(lookup.paths) * WIDTH * k + 1
    assert lookup.done


# Random worlds.


@given(st.data())
@settings(max_examples=200)
def test_where_everybody_knows_all_the_result_is_exact(data: st.DataObject) -> None:
    peers = data.draw(st.lists(st.integers(1, 500), min_size=1, max_size=40, unique=True))
    k, alpha, paths = (data.draw(st.integers(1, top), label=label) for label, top in (("k", 8), ("alpha", 5), ("paths", 4)))
    start = data.draw(st.lists(st.sampled_from(peers), min_size=1, max_size=8, unique=True))
    answers: dict[Any, list[int]] = {peer: [other for other in sorted(peers) if other != peer][:k] for peer in peers}
    lookup = look(start, k, alpha, paths)
    asked = run(lookup, answers, Random(data.draw(st.integers(0, 99))))
    assert lookup.done and lookup.nearest == sorted(peers)[:k]
    assert len(asked) == len(set(asked))


@given(st.data())
@settings(max_examples=200)
def test_with_dead_ones_and_laggards_the_nearest_living_are_found(data: st.DataObject) -> None:
    """The tables of the living are true; only the one that looks knows dead ones."""
    peers = data.draw(st.lists(st.integers(1, 500), min_size=2, max_size=30, unique=True))
    dead = set(data.draw(st.lists(st.sampled_from(peers), max_size=len(peers) - 1)))
    living = sorted(set(peers) - dead)
    k, rng = data.draw(st.integers(1, 6)), Random(data.draw(st.integers(0, 99)))
    start = [*sorted(dead), rng.choice(living)]
    lookup = look(start, k, data.draw(st.integers(1, 4)))
    open_: list[Peer] = []
    while True:
        open_ += lookup.next()
        if not open_:
            break
        peer = open_.pop(rng.randrange(len(open_)))
        if peer in dead and rng.random() < 0.5 and not lookup.done:
            lookup.lags(peer)
            open_ += lookup.next()
        if peer in dead:
            lookup.failed(peer)
        else:
            lookup.heard(peer, living[:k])
    assert lookup.done and lookup.nearest == living[:k]
