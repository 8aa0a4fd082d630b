"""What a node keeps for others: validators, time, limits, and what stays when there is no more room."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from hypothesis import given, settings
from hypothesis import strategies as st

from libweft.overlays.kademlia.records import (
    ANYTHING,
    VALIDATORS,
    Anything,
    ContentHash,
    RecordLimits,
    Records,
    Stored,
    validator_of,
)
from libweft.overlays.kademlia.space import place_of, place_of_key
from libweft.peer.machine import PeerInfo

MINE = place_of(0)
LATER = 1_000


def records(**limits: int) -> Records:
    return Records(MINE, RecordLimits(**limits))


def value_of(kept: Records, key: bytes, now: int) -> bytes | None:
    stored = kept.stored(key, now)
    return stored.value if stored is not None else None


def by_distance(keys: list[bytes]) -> list[bytes]:
    return sorted(keys, key=lambda key: place_of_key(key) ^ MINE)


KEYS = by_distance([b"key %d" % number for number in range(40)])


# Validators.


def test_the_namespace_of_a_key_chooses_its_validator() -> None:
    own = ContentHash()
    assert validator_of({"mine": own}, b"/mine/key") is own
    for key in (b"/other/key", b"mine/key", b"mine", b"/", b"//mine/", b"/\xff\xfe/key", b"/mine2/key"):
        assert validator_of({"mine": own}, key) is ANYTHING
    assert isinstance(validator_of(VALIDATORS, b"/sha256/" + bytes(32)), ContentHash)


def test_a_content_hash_lets_only_the_value_of_its_key_through() -> None:
    check = ContentHash()
    key = b"/sha256/" + sha256(b"value").digest()
    assert check.valid(key, b"value") and check.best(key, [b"value"]) == b"value"
    assert not check.valid(key, b"other")
    assert not check.valid(key[:-1], b"value") and not check.valid(key + b"x", b"value") and not check.valid(b"", b"")


def test_a_content_hash_may_have_any_byte_in_it() -> None:
    value = next(b"%d" % n for n in range(10_000) if b"/" in sha256(b"%d" % n).digest())
    assert ContentHash().valid(b"/sha256/" + sha256(value).digest(), value)


def test_of_anything_the_value_that_most_told_is_the_best_and_the_first_of_equals() -> None:
    assert Anything().best(b"", [b"a", b"b", b"b"]) == b"b"
    assert Anything().best(b"", [b"b", b"a", b"a", b"b"]) == b"b"
    assert Anything().valid(b"", b"whatever")


# Values.


def test_a_value_is_there_until_its_time_is_over() -> None:
    kept = records()
    assert kept.put(b"key", b"value", 5, LATER)
    assert [value_of(kept, b"key", now) for now in (LATER - 1, LATER)] == [b"value", None] and value_of(kept, b"other", 0) is None
    assert kept.values[b"key"].refreshed == 5
    kept.sweep(LATER - 1)
    assert kept.held == 5
    kept.sweep(LATER)
    assert (kept.values, kept.held) == ({}, 0)


def test_a_later_value_takes_the_place_and_the_bytes_of_the_one_before() -> None:
    kept = records()
    kept.put(b"key", b"long value", 0, LATER)
    kept.put(b"key", b"new", 7, 2 * LATER)
    assert (value_of(kept, b"key", LATER), kept.held, kept.values[b"key"].refreshed) == (b"new", 3, 7)


def test_a_value_over_the_limit_is_not_taken_and_the_one_there_stays() -> None:
    kept = records(value=5)
    assert kept.put(b"key", b"small", 0, LATER)
    assert not kept.put(b"key", b"larger", 0, LATER)
    assert value_of(kept, b"key", 0) == b"small"


def test_when_full_the_values_nearest_to_the_own_place_are_kept() -> None:
    kept = records(values=3)
    for key in (KEYS[5], KEYS[20], KEYS[10]):
        assert kept.put(key, b"value", 0, LATER)
    assert not kept.put(KEYS[30], b"value", 0, LATER)
    assert kept.put(KEYS[1], b"value", 0, LATER)
    assert by_distance(list(kept.values)) == [KEYS[1], KEYS[5], KEYS[10]]


def test_when_full_only_those_that_give_way_are_looked_at() -> None:
    class Seen(dict[bytes, Stored]):
        def __iter__(self) -> Iterator[bytes]:
            raise AssertionError("a walk over all values")

        items = values = __iter__  # type: ignore[assignment]

    kept = records(values=30)
    kept.values = Seen()
    for key in reversed(KEYS):
        assert kept.put(key, b"value", 0, LATER)
    assert [key for key in KEYS if key in kept.values] == KEYS[:30]


def test_when_full_the_farthest_can_still_be_renewed() -> None:
    kept = records(values=2)
    kept.put(KEYS[0], b"a", 0, LATER)
    kept.put(KEYS[9], b"b", 0, LATER)
    assert kept.put(KEYS[9], b"c", 0, LATER)
    assert value_of(kept, KEYS[9], 0) == b"c"


def test_bytes_of_all_values_are_bounded_and_the_farthest_give_way() -> None:
    kept = records(bytes=10, value=10)
    for place in (9, 8, 7):
        assert kept.put(KEYS[place], b"abc", 0, LATER)
    assert kept.put(KEYS[1], b"12345", 0, LATER)
    assert (by_distance(list(kept.values)), kept.held) == ([KEYS[1], KEYS[7]], 8)


def test_a_value_that_finds_no_room_costs_none_of_those_that_are_nearer() -> None:
    kept = records(bytes=10, value=10)
    kept.put(KEYS[0], b"12345678", 0, LATER)
    assert not kept.put(KEYS[5], b"abc", 0, LATER)
    assert (list(kept.values), kept.held) == ([KEYS[0]], 8)


def test_a_value_that_finds_no_room_costs_none_of_the_farther_ones_either_nor_the_one_before_it() -> None:
    kept = records(bytes=10, value=10)
    kept.put(KEYS[9], b"abc", 0, LATER)
    kept.put(KEYS[1], b"1234567", 0, LATER)
    assert not kept.put(KEYS[5], b"12345", 0, LATER)
    assert not kept.put(KEYS[9], b"abcd", 0, LATER)
    assert (value_of(kept, KEYS[9], 0), value_of(kept, KEYS[1], 0), kept.held) == (b"abc", b"1234567", 10)


# Providers.


def test_the_provider_heard_from_last_comes_first_and_each_once() -> None:
    kept = records()
    for peer in (1, 2, 3, 1):
        assert kept.provide(b"key", PeerInfo(peer, (f"/memory/{peer}",)), LATER)
    assert [info.peer for info in kept.providers_of(b"key", 0)] == [1, 3, 2]
    assert kept.providers_of(b"other", 0) == []


def test_a_provider_is_told_of_until_its_time_is_over() -> None:
    kept = records()
    kept.provide(b"key", PeerInfo(1), LATER)
    kept.provide(b"key", PeerInfo(2), 2 * LATER)
    assert [info.peer for info in kept.providers_of(b"key", LATER)] == [2]
    kept.sweep(LATER)
    assert list(kept.providers[b"key"]) == [2]
    kept.sweep(2 * LATER)
    assert kept.providers == {}


def test_providers_of_a_key_are_bounded_and_those_there_have_the_older_right() -> None:
    kept = records(providers=2)
    assert [kept.provide(b"key", PeerInfo(peer), LATER) for peer in (1, 2, 3, 1)] == [True, True, False, True]
    assert [info.peer for info in kept.providers_of(b"key", 0)] == [1, 2]


def test_keys_with_providers_are_bounded_and_room_is_made_only_by_time() -> None:
    kept = records(keys=2)
    assert [kept.provide(key, PeerInfo(1), LATER) for key in (b"a", b"b", b"c", b"a")] == [True, True, False, True]
    kept.sweep(LATER)
    assert kept.provide(b"c", PeerInfo(1), 2 * LATER)


def test_one_peer_that_tells_of_ever_more_keys_keeps_its_newest_and_leaves_room_for_others() -> None:
    kept = records(keys=10, provided=4)
    for key in KEYS[:30]:
        assert kept.provide(key, PeerInfo(1), LATER)
    assert list(kept.providers) == KEYS[26:30]
    assert all(kept.provide(key, PeerInfo(peer), LATER) for peer, key in enumerate(KEYS[30:36], start=2))
    assert len(kept.providers) == 10


def test_a_key_told_of_again_is_not_the_oldest_of_its_peer_and_what_is_over_leaves_room() -> None:
    kept = records(provided=2)
    for key in (b"a", b"b", b"a", b"c"):
        kept.provide(key, PeerInfo(1), LATER)
    assert sorted(kept.providers) == [b"a", b"c"]
    kept.sweep(LATER)
    for key in (b"d", b"e"):
        kept.provide(key, PeerInfo(1), 2 * LATER)
    assert sorted(kept.providers) == [b"d", b"e"]


def test_a_key_for_which_there_is_no_room_costs_its_peer_none_of_those_it_has() -> None:
    kept = records(keys=2, provided=1)
    kept.provide(b"a", PeerInfo(1), LATER)
    kept.provide(b"a", PeerInfo(2), LATER)
    kept.provide(b"b", PeerInfo(3), LATER)
    assert not kept.provide(b"c", PeerInfo(1), LATER)
    assert [info.peer for info in kept.providers_of(b"a", 0)] == [2, 1]
    assert kept.provide(b"c", PeerInfo(3), LATER) and list(kept.providers) == [b"a", b"c"]


# Any use.


ACTIONS = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 39), st.integers(0, 12)),
    st.tuples(st.just("provide"), st.integers(0, 39), st.integers(0, 9)),
    st.tuples(st.just("sweep"), st.integers(0, 300), st.just(0)),
)


@given(st.lists(ACTIONS, max_size=80))
@settings(max_examples=100)
def test_whatever_is_stored_the_limits_hold_and_the_bytes_are_counted_right(actions: list[tuple[str, int, int]]) -> None:
    kept, now = records(values=5, bytes=30, value=10, keys=4, providers=3, provided=2), 0
    for action, number, other in actions:
        match action:
            case "put":
                taken = kept.put(KEYS[number], bytes(other), now, now + LATER)
                assert taken == (KEYS[number] in kept.values and kept.values[KEYS[number]].value == bytes(other))
            case "provide":
                kept.provide(KEYS[number], PeerInfo(other), now + LATER)
            case _:
                now += number
                kept.sweep(now)
        assert kept.held == sum(len(stored.value) for stored in kept.values.values()) <= 30
        assert len(kept.values) <= 5 and len(kept.providers) <= 4
        assert [key for _, key in kept._by_distance] == by_distance(list(kept.values))
        assert all(0 < len(known) <= 3 for known in kept.providers.values())
        told = [(peer, key) for key, known in kept.providers.items() for peer in known]
        assert all(sum(peer == other for other, _ in told) <= 2 for peer in range(10))
