"""What is seen is remembered long enough, forgotten in time, and never too much of it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from libweft.peer.machine import MessageId
from libweft.pubsub.seen import LIMIT, TTL, Seen

Steps = list[tuple[int, int]]
"""Each is (time since the step before, number of the message)."""

waits = st.sampled_from([0, 0, 0, 1, 2]) | st.integers(0, 50)
steps = st.lists(st.tuples(waits, st.integers(0, 30)), max_size=80)
limits = st.integers(2, 12)
ttls = st.integers(1, 40)


def key(number: int) -> MessageId:
    return MessageId(0, 1, number)


def replay(seen: Seen, taken: Steps, start: int = 0) -> list[tuple[int, int, bool]]:
    """(time, message, was new) of each step."""
    now, found = start, []
    for wait, number in taken:
        now += wait
        found.append((now, number, seen.note(key(number), now)))
    return found


def last_new(found: list[tuple[int, int, bool]], number: int) -> int:
    """Where the message was taken for new last."""
    return max(place for place, (_, n, new) in enumerate(found) if n == number and new)


@given(taken=steps, limit=limits, ttl=ttls, start=st.integers(0, 10**15))
@settings(max_examples=300)
def test_an_id_is_never_forgotten_within_ttl_unless_many_others_came(taken: Steps, limit: int, ttl: int, start: int) -> None:
    """Many: half of the limit, since a generation holds that and the youngest id of one outlives the next."""
    found = replay(Seen(limit, ttl), taken, start)
    for place, (now, number, new) in enumerate(found):
        before = found[:place]
        if not new or not any(n == number for _, n, _ in before):
            continue
        first = last_new(before, number)
        newer = sum(1 for _, _, fresh in before[first + 1 :] if fresh)
        assert now - found[first][0] >= ttl or newer >= limit // 2


@given(taken=steps, ttl=ttls, start=st.integers(0, 10**15))
@settings(max_examples=300)
def test_an_id_is_forgotten_after_twice_the_ttl(taken: Steps, ttl: int, start: int) -> None:
    found = replay(Seen(1_000, ttl), taken, start)
    for place, (now, number, new) in enumerate(found):
        if not new:
            assert now - found[last_new(found[:place], number)][0] <= 2 * ttl


@given(taken=steps, limit=limits, ttl=ttls)
@settings(max_examples=300)
def test_no_more_ids_are_held_than_the_limit(taken: Steps, limit: int, ttl: int) -> None:
    seen, now = Seen(limit, ttl), 0
    for wait, number in taken:
        now += wait
        seen.note(key(number), now)
        assert len(seen) + len(seen.old) <= limit


@given(taken=steps, limit=limits, ttl=ttls)
def test_what_the_set_itself_holds_was_noted(taken: Steps, limit: int, ttl: int) -> None:
    """So `key in seen` may miss an id that is known, but never claims one that is not."""
    seen = Seen(limit, ttl)
    noted = {key(number) for _, number, _ in replay(seen, taken)}
    assert seen <= noted
    assert seen.old <= noted


def test_the_first_note_is_new_and_the_second_is_not() -> None:
    seen = Seen()
    assert seen.note(key(1), 0)
    assert not seen.note(key(1), 1)
    assert key(1) in seen
    assert seen.note(key(2), 1)


def test_a_duplicate_does_not_prolong_the_memory() -> None:
    seen = Seen(1_000, 10)
    assert seen.note(key(1), 0)
    assert not seen.note(key(1), 9)
    assert not any(seen.note(key(1), t) for t in (12, 15, 19))
    assert seen.note(key(1), 31)


def test_all_is_forgotten_after_a_long_silence() -> None:
    seen = Seen()
    seen.note(key(1), 0)
    assert seen.note(key(1), 3 * TTL)


def test_a_clock_that_starts_late_changes_nothing() -> None:
    """Live, time is that of a machine that has been up for weeks."""
    seen, now = Seen(), 10**13
    assert seen.note(key(1), now)
    assert not seen.note(key(1), now + TTL - 1)


def test_the_default_limit_holds_half_of_it_for_the_whole_ttl() -> None:
    seen = Seen()
    for number in range(LIMIT // 2):
        assert seen.note(key(number), number)
    assert not any(seen.note(key(number), TTL - 1) for number in range(LIMIT // 2))
