"""The calendar, held against a heap of (time, sequence): exact order, whatever is added while it is being read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush

from hypothesis import given
from hypothesis import strategies as st

from libweft.peer.sim.calendar import SHIFT, Calendar, Entry

WIDTH = 1 << SHIFT
ENOUGH = 200  # entries a run, where each may bring others

delays = st.one_of(
    st.just(0),
    st.integers(0, 3),  # the open bucket, mostly, and often the very time of another
    st.integers(0, 3 * WIDTH),
    st.sampled_from([WIDTH - 1, WIDTH, WIDTH + 1]),
    st.integers(0, 10**12),
)
offspring = st.lists(st.lists(delays, max_size=3), min_size=1, max_size=8)
"""What the entry with the number i brings when it is handled: the delays at i modulo the length."""

Handled = list[tuple[int, int]]


def add(calendar: Calendar, entry: Entry) -> None:
    calendar.add(entry)


def add_as_senders_do(calendar: Calendar, entry: Entry) -> None:
    """Straight into the bucket where there is one, past `add`."""
    bucket = calendar.buckets.get(entry[0] >> SHIFT)
    if bucket is not None:
        bucket.append(entry)
    else:
        calendar.add(entry)


def read(calendar: Calendar, until: int, handle: Callable[[Entry], None]) -> None:
    """As the simulator does: all that is due up to `until`, the rest put back."""
    while (bucket := calendar.open(until)) is not None:
        rest: list[Entry] = []
        for entry in bucket:
            if rest or entry[0] > until:
                rest.append(entry)
            else:
                handle(entry)
        calendar.put_back(rest)
        if rest:
            return


def by_calendar(
    first: Sequence[int], brings: list[list[int]], stops: Iterable[int], put: Callable[[Calendar, Entry], None] = add
) -> Handled:
    calendar, handled, number = Calendar(), Handled(), len(first)

    def handle(entry: Entry) -> None:
        nonlocal number
        handled.append((entry[0], entry[1]))
        for delay in brings[entry[1] % len(brings)]:
            if number < ENOUGH:
                put(calendar, (entry[0] + delay, number))
                number += 1

    for place, time in enumerate(first):
        put(calendar, (time, place))
    for stop in stops:
        read(calendar, stop, handle)
    return handled


def by_heap(first: Sequence[int], brings: list[list[int]], until: int) -> Handled:
    heap, handled, number = [(time, place) for place, time in enumerate(first)], Handled(), len(first)
    heapify(heap)
    while heap and heap[0][0] <= until:
        handled.append(heappop(heap))
        time, place = handled[-1]
        for delay in brings[place % len(brings)]:
            if number < ENOUGH:
                heappush(heap, (time + delay, number))
                number += 1
    return handled


END = 10**15


@given(st.lists(delays, max_size=40), offspring)
def test_entries_come_in_order_of_time_and_then_of_insertion(first: list[int], brings: list[list[int]]) -> None:
    assert by_calendar(first, brings, [END]) == by_heap(first, brings, END)


@given(st.lists(delays, max_size=40), offspring)
def test_appending_to_a_bucket_directly_keeps_the_order(first: list[int], brings: list[list[int]]) -> None:
    assert by_calendar(first, brings, [END], add_as_senders_do) == by_heap(first, brings, END)


@given(st.lists(delays, max_size=40), offspring, st.lists(st.integers(0, 4 * WIDTH), max_size=8))
def test_reading_in_slices_with_the_rest_put_back_equals_reading_at_once(
    first: list[int], brings: list[list[int]], stops: list[int]
) -> None:
    assert by_calendar(first, brings, [*sorted(stops), END]) == by_heap(first, brings, END)


@given(st.lists(st.integers(0, 3 * WIDTH), max_size=40), offspring, st.integers(0, 3 * WIDTH))
def test_nothing_beyond_the_last_moment_is_handled(first: list[int], brings: list[list[int]], until: int) -> None:
    assert by_calendar(first, brings, [until]) == by_heap(first, brings, until)


@given(st.lists(st.lists(delays, max_size=6), max_size=6))
def test_what_is_added_between_slices_comes_after_what_was_there_at_the_same_time(rounds: list[list[int]]) -> None:
    calendar, heap, number, now = Calendar(), list[tuple[int, int]](), 0, 0
    handled, expected = Handled(), Handled()
    for added in rounds:
        for delay in added:
            calendar.add((now + delay, number))
            heappush(heap, (now + delay, number))
            number += 1
        now += WIDTH // 3
        read(calendar, now, lambda entry: handled.append((entry[0], entry[1])))
        while heap and heap[0][0] <= now:
            expected.append(heappop(heap))
    assert handled == expected


def test_entries_of_one_time_are_never_compared() -> None:
    calendar, seen = Calendar(), list[object]()
    things = [object() for _ in range(3)]
    calendar.add((5, things[0]))
    calendar.add((5, things[1]))

    def handle(entry: Entry) -> None:
        seen.append(entry[1])
        if len(seen) == 1:
            calendar.add((5, things[2]))

    read(calendar, 5, handle)
    assert seen == things


def test_an_entry_added_to_the_open_bucket_waits_behind_those_of_its_time() -> None:
    calendar, seen = Calendar(), list[str]()
    calendar.add((10, "first"))
    calendar.add((20, "second"))
    calendar.add((20, "third"))

    def handle(entry: Entry) -> None:
        seen.append(entry[1])
        if entry[1] == "first":
            calendar.add((20, "fourth"))
            calendar.add((10, "at once"))

    read(calendar, WIDTH, handle)
    assert seen == ["first", "at once", "second", "third", "fourth"]


def test_a_bucket_that_begins_after_the_last_moment_stays_shut() -> None:
    calendar = Calendar()
    calendar.add((2 * WIDTH, "later"))
    assert calendar.open(2 * WIDTH - 1) is None
    assert calendar.open(2 * WIDTH) == [(2 * WIDTH, "later")]


def test_what_is_put_back_is_opened_again() -> None:
    calendar = Calendar()
    calendar.add((3, "a"))
    calendar.add((1, "b"))
    assert calendar.open(WIDTH) == [(1, "b"), (3, "a")]
    calendar.put_back([(3, "a")])
    calendar.add((2, "c"))
    assert calendar.open(WIDTH) == [(2, "c"), (3, "a")]
    calendar.put_back([])
    assert calendar.open(WIDTH) is None


def test_an_empty_calendar_has_nothing_to_open() -> None:
    assert Calendar().open(END) is None


@given(st.lists(delays, max_size=40), st.lists(st.integers(0, 39), max_size=20), st.lists(st.integers(0, 39), max_size=20))
def test_what_is_taken_back_never_comes_and_the_rest_does(times: list[int], before: list[int], during: list[int]) -> None:
    """Some is taken back before anything is handled, the rest one by one, each time that something is."""
    calendar, handled = Calendar(), Handled()
    entries = [(time, place) for place, time in enumerate(times)]
    for entry in entries:
        calendar.add(entry)
    gone = {place for place in before if place < len(entries)}
    assert all(calendar.remove(entries[place]) for place in gone)
    left = iter(during)

    def handle(entry: Entry) -> None:
        handled.append((entry[0], entry[1]))
        place = next(left, len(entries))
        if place < len(entries) and entries[place][0] > entry[0]:
            assert calendar.remove(entries[place]) is (place not in gone)
            gone.add(place)

    read(calendar, END, handle)
    assert handled == sorted(entry for entry in entries if entry[1] not in gone)
