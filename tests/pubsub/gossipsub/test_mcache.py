"""The message cache: windows, what is announced of them, and bounds by number and bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libweft.peer.errors import UsageError
from libweft.peer.machine import MessageId
from libweft.pubsub.gossipsub.mcache import MessageCache
from libweft.pubsub.message import Publication, weight


def message(number: int, topic: str = "t", size: int = 0) -> Publication:
    return Publication(MessageId(0, 1, number), topic, bytes(size))


def key(number: int) -> bytes:
    return b"%d" % number


def fill(cache: MessageCache, first: int, count: int, topic: str = "t") -> None:
    for number in range(first, first + count):
        cache.put(key(number), message(number, topic))


def test_what_was_put_is_found_and_nothing_else() -> None:
    cache = MessageCache()
    fill(cache, 0, 10)
    assert [cache.get(key(number)) for number in range(10)] == [message(number) for number in range(10)]
    assert cache.get(key(10)) is None


def test_the_newest_windows_are_announced_newest_first() -> None:
    """Of five windows of ten messages three are announced, and all are held."""
    cache = MessageCache(history=5, gossip=3)
    for window in range(5):
        if window:
            cache.shift()
        fill(cache, 10 * window, 10)
    assert cache.gossip("t") == [key(10 * window + number) for window in (4, 3, 2) for number in range(10)]
    assert all(cache.get(key(number)) for number in range(50))


def test_a_shift_drops_the_oldest_window_and_only_that() -> None:
    cache = MessageCache(history=5, gossip=3)
    fill(cache, 0, 10)
    for _ in range(4):
        cache.shift()
        assert cache.get(key(0))
    fill(cache, 10, 10)
    cache.shift()
    assert not any(cache.get(key(number)) for number in range(10))
    assert all(cache.get(key(number)) for number in range(10, 20))
    assert len(cache) == 10


def test_announcements_are_of_the_topic_alone() -> None:
    cache = MessageCache()
    fill(cache, 0, 2, "t")
    fill(cache, 2, 2, "u")
    assert cache.gossip("u") == [key(2), key(3)]
    assert cache.gossip("other") == []


def test_nothing_is_announced_of_empty_windows() -> None:
    cache = MessageCache(history=5, gossip=3)
    fill(cache, 0, 2)
    for _ in range(3):
        cache.shift()
    assert cache.gossip("t") == []
    assert cache.get(key(0))


def test_transmissions_are_counted_for_each_peer_by_itself() -> None:
    cache = MessageCache()
    fill(cache, 0, 2)
    assert [cache.for_peer(key(0), 1) for _ in range(3)] == [(message(0), count) for count in (1, 2, 3)]
    assert cache.for_peer(key(0), 2) == (message(0), 1)
    assert cache.for_peer(key(1), 1) == (message(1), 1)
    assert cache.for_peer(key(9), 1) is None


def test_a_message_put_again_stays_where_it_is() -> None:
    cache = MessageCache(history=2, gossip=1)
    cache.put(key(0), message(0))
    cache.for_peer(key(0), 1)
    cache.shift()
    cache.put(key(0), message(0))
    assert cache.gossip("t") == []
    assert cache.for_peer(key(0), 1) == (message(0), 2)
    cache.shift()
    assert cache.get(key(0)) is None
    assert cache.held_bytes == 0


def test_beyond_the_number_of_messages_the_oldest_go() -> None:
    cache = MessageCache(messages=3)
    fill(cache, 0, 2)
    cache.shift()
    fill(cache, 2, 3)
    assert [number for number in range(5) if cache.get(key(number))] == [2, 3, 4]
    assert cache.gossip("t") == [key(2), key(3), key(4)]


def test_beyond_the_bytes_the_oldest_go() -> None:
    cache = MessageCache(size=3 * weight(message(0, size=1_000)))
    for number in range(4):
        cache.put(key(number), message(number, size=1_000))
    assert [number for number in range(4) if cache.get(key(number))] == [1, 2, 3]


def test_a_message_too_big_for_the_cache_displaces_nothing() -> None:
    cache = MessageCache(size=1_000)
    fill(cache, 0, 3)
    cache.put(key(3), message(3, size=1_000))
    assert cache.get(key(3)) is None
    assert len(cache) == 3


@pytest.mark.parametrize("wrong", [{"history": 0, "gossip": 0}, {"gossip": 6}, {"gossip": -1}, {"messages": 0}, {"size": 0}])
def test_more_windows_to_announce_than_there_are_and_empty_bounds_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        MessageCache(**wrong)


def test_the_narrowest_cache_holds_one_message_for_one_heartbeat() -> None:
    cache = MessageCache(history=1, gossip=1, messages=1, size=weight(message(0)))
    fill(cache, 0, 2)
    assert cache.gossip("t") == [key(1)]
    cache.shift()
    assert len(cache) == 0
    assert MessageCache(gossip=0, size=1).gossip("t") == []


steps = st.lists(
    st.tuples(st.sampled_from(["put", "put", "put", "shift"]), st.integers(0, 20), st.sampled_from("tu"), st.integers(0, 300)),
    max_size=60,
)


@given(taken=steps)
@settings(max_examples=300)
def test_after_any_history_the_cache_is_that_of_a_plain_list_within_the_bounds(taken: list[tuple[str, int, str, int]]) -> None:
    cache, heartbeat, model = MessageCache(3, 2, 5, 1_200), 0, list[tuple[int, bytes, Publication]]()
    for what, number, topic, size in taken:
        if what == "shift":
            cache.shift()
            heartbeat += 1
            model = [held for held in model if heartbeat - held[0] < 3]
        elif all(held[1] != key(number) for held in model):
            publication = message(number, topic, size)
            cache.put(key(number), publication)
            model.append((heartbeat, key(number), publication))
            while len(model) > 5 or sum(weight(held[2]) for held in model) > 1_200:
                del model[0]
        assert [(k, cached.publication) for k, cached in cache._cached.items()] == [held[1:] for held in model]
        assert cache.held_bytes == sum(weight(held[2]) for held in model) <= 1_200
        for each in "tu":
            windows = [[k for at, k, p in model if at == heartbeat - back and p.topic == each] for back in (0, 1)]
            assert cache.gossip(each) == windows[0] + windows[1]
        assert sum(len(window) for window in cache._windows) <= len(model)
