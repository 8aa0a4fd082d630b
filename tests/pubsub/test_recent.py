"""The cache of encodings and readings: two generations, bounded by number and by bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from libweft.pubsub.encoding_cache import BYTES, ENTRIES, Recent


@given(st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, BYTES + 1)), max_size=1_500))
def test_it_gives_what_was_put_or_nothing_and_stays_in_its_bounds(puts: list[tuple[int, int]]) -> None:
    recent: Recent[int, tuple[int, int]] = Recent()
    last: dict[int, tuple[int, int]] = {}
    for number, (key, size) in enumerate(puts):
        if recent.get(key) is None:
            last[key] = (number, size)
            recent.put(key, last[key], size)
    held = [found for key in last if (found := recent.get(key)) is not None]
    assert all(recent.get(key) in (None, entry) for key, entry in last.items())
    assert len(recent) <= 2 * ENTRIES and sum(size for _, size in held) <= 2 * BYTES


def test_what_was_put_lately_is_there_and_what_was_put_long_ago_is_not() -> None:
    recent: Recent[int, str] = Recent()
    for number in range(3 * ENTRIES):
        recent.put(number, str(number), 1)
    assert all(recent.get(number) == str(number) for number in range(2 * ENTRIES, 3 * ENTRIES))
    assert recent.get(0) is None


def test_what_is_larger_than_all_the_room_is_not_kept() -> None:
    recent: Recent[str, str] = Recent()
    recent.put("small", "small", 1)
    recent.put("large", "large", BYTES + 1)
    assert recent.get("large") is None and recent.get("small") == "small"
