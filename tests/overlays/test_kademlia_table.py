"""The space and the routing table of Kademlia: nearest-k against brute force, and the rules by which contacts come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libweft.overlays.kademlia import table as tables
from libweft.overlays.kademlia.space import BITS, NUMBER, PREFIX, key_in_bucket, name_of, place_of, place_of_key, topic_key
from libweft.overlays.kademlia.table import Table
from libweft.peer.machine import Peer

MANY = 10_000


@contextmanager
def chosen_places() -> Iterator[None]:
    """Each number is its own place: hashes leave the deep buckets empty."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "place_of", lambda peer: peer)
        yield


def brute(peers: Sequence[Peer], place: int, count: int, where: Callable[[Peer], int] = place_of) -> list[Peer]:
    return sorted(peers, key=lambda peer: where(peer) ^ place)[:count]


def peers_in(table: Table, bucket: int, count: int) -> list[Peer]:
    """The first so many numbers whose places are in a bucket."""
    found: list[Peer] = []
    number = 1
    while len(found) < count:
        if table.bucket_of_peer(number) == bucket:
            found.append(number)
        number += 1
    return found


def filled(peers: Sequence[Peer], k: int = 20, spares: int = 0, me: Peer = 0) -> Table:
    table = Table(me, k, spares)
    for peer in peers:
        table.see(peer)
    return table


def crowded(k: int, spares: int) -> Table:
    """So many are nearer that nobody in the farthest bucket is among the k nearest of all."""
    table = Table(0, k, spares)
    for peer in peers_in(table, 1, k):
        table.see(peer)
    return table


# The space.


def test_a_place_is_the_sha_256_of_the_peer_s_bytes_or_of_the_key() -> None:
    assert place_of(b"peer") == place_of_key(b"peer") == int.from_bytes(sha256(b"peer").digest())
    assert place_of(7) == place_of_key((7).to_bytes(NUMBER))
    assert name_of(b"peer") == b"peer" and name_of(7) == bytes(NUMBER - 1) + b"\7"


def test_the_key_of_a_topic_is_the_one_of_go_libp2p_pubsub() -> None:
    assert topic_key("news") == b"\x12\x20" + sha256(b"floodsub:news").digest()


@given(st.integers(0, (1 << BITS) - 1), st.integers(0, PREFIX - 1), st.integers(0, 1 << 32))
@settings(max_examples=150)
def test_a_key_chosen_for_a_bucket_has_its_place_there(mine: int, bucket: int, seed: int) -> None:
    key = key_in_bucket(mine, bucket, Random(seed))
    assert BITS - (place_of_key(key) ^ mine).bit_length() == bucket


def test_keys_chosen_for_a_bucket_are_spread_over_it() -> None:
    keys = {key_in_bucket(place_of(0), 0, Random(seed)) for seed in range(200)}
    assert len(keys) > 150
    assert len({key_in_bucket(place_of(0), PREFIX - 1, Random(seed)) for seed in range(20)}) == 1


# Nearest.


@pytest.mark.parametrize("k", [1, 3, 20])
def test_the_nearest_are_exact_for_every_place_in_a_table_of_many(k: int) -> None:
    table, rng = filled(range(1, 2_000), k), Random(k)
    there = list(table)
    places = [table.mine, *(table.mine ^ 1 << bit for bit in range(BITS)), *(rng.getrandbits(BITS) for _ in range(300))]
    for place in (*places, *map(place_of, there)):
        for count in (1, k, 2 * k):
            assert table.nearest(place, count) == brute(there, place, count)


@st.composite
def tables_of_chosen_places(draw: st.DrawFn) -> tuple[Table, list[Peer]]:
    """Contacts share any number of bits with the own place, most of them many."""
    mine = draw(st.integers(0, (1 << BITS) - 1))
    far = st.builds(lambda bit, low: mine ^ 1 << bit ^ low & (1 << bit) - 1, st.integers(0, BITS - 1), st.integers(0, 1 << 12))
    near = st.integers(1, 40).map(lambda low: mine ^ low)
    peers = draw(st.lists(far | near | st.integers(0, (1 << BITS) - 1), max_size=60, unique=True))
    return filled(peers, draw(st.integers(1, 8)), 0, mine), peers


@given(st.data())
@settings(max_examples=150)
def test_the_nearest_are_exact_in_any_table_for_any_place_count_and_exception(data: st.DataObject) -> None:
    with chosen_places():
        table, peers = data.draw(tables_of_chosen_places())
        there = list(table)
        near = st.integers(0, 64).map(lambda low: table.mine ^ low)
        place = data.draw(st.integers(0, (1 << BITS) - 1) | near | st.sampled_from([table.mine, *peers]))
        count = data.draw(st.integers(0, 2 * len(peers) + 2))
        but = data.draw(st.sampled_from([None, *peers]))
        left = [peer for peer in there if peer != but]
        assert table.nearest(place, count, but) == brute(left, place, count, lambda peer: int(peer))  # type: ignore[arg-type]


def test_an_empty_table_has_no_nearest_and_no_depth() -> None:
    table = Table(0, 20, 8)
    assert (table.nearest(table.mine, 20), len(table), list(table)) == ([], 0, [])


def test_the_one_to_leave_out_costs_no_place_in_the_answer() -> None:
    table = filled(range(1, 9))
    nearest = table.nearest(table.mine, 8)
    for peer in nearest:
        assert table.nearest(table.mine, 7, peer) == [other for other in nearest if other != peer]


# Coming and going.


def test_a_table_never_holds_its_own_node() -> None:
    table = filled([0, 1, 0])
    assert list(table) == [1] and 0 not in table and len(table) == 1


def test_who_is_heard_from_again_is_the_newest_of_its_bucket() -> None:
    table = Table(0, 3, 8)
    a, b, c = peers_in(table, 0, 3)
    for peer in (a, b, c, a):
        assert table.see(peer) is None
    assert list(table.buckets[0]) == [b, c, a] and len(table) == 3


def test_a_full_bucket_takes_nobody_in_and_names_its_oldest() -> None:
    table = crowded(3, 8)
    a, b, c, late = peers_in(table, 0, 4)
    for peer in (a, b, c):
        table.see(peer)
    assert table.see(late) == a
    assert late not in table and list(table.waiting[0]) == [late]
    table.see(a)
    assert table.see(late) == b


def test_the_spare_heard_from_last_takes_the_place_of_one_that_is_dropped() -> None:
    table = crowded(2, 8)
    a, b, c, d, e = peers_in(table, 0, 5)
    for peer in (a, b, c, d, e, c):
        table.see(peer)
    table.drop(a)
    assert list(table.buckets[0]) == [b, c] and list(table.waiting[0]) == [d, e] and len(table) == 4
    table.drop(b)
    assert list(table.buckets[0]) == [c, e] and list(table.waiting[0]) == [d]


def test_spares_are_bounded_and_the_one_heard_from_longest_ago_gives_way() -> None:
    table = crowded(1, 2)
    a, b, c, d = peers_in(table, 0, 4)
    for peer in (a, b, c, d):
        table.see(peer)
    assert list(table.waiting[0]) == [c, d]


def test_without_spares_nobody_waits_and_nobody_must_be_checked() -> None:
    table = crowded(1, 0)
    a, b = peers_in(table, 0, 2)
    table.see(a)
    assert table.see(b) is None and table.waiting == {}
    table.drop(a)
    assert len(table) == 1 and 0 not in table.buckets


def test_a_spare_that_is_dropped_waits_no_more() -> None:
    table = crowded(1, 8)
    a, b, c = peers_in(table, 0, 3)
    for peer in (a, b, c):
        table.see(peer)
    table.drop(c)
    table.drop(a)
    assert list(table.buckets[0]) == [b]


def test_one_of_the_k_nearest_of_all_is_taken_into_a_full_bucket_and_the_farthest_there_waits() -> None:
    table = Table(0, 2, 8)
    a, b, c, d = sorted(peers_in(table, 3, 4), key=lambda peer: place_of(peer) ^ table.mine)
    for peer in (d, b, c):
        assert table.see(peer) is None
    assert list(table.buckets[3]) == [b, c] and list(table.waiting[3]) == [d] and len(table) == 2
    assert table.see(d) == b
    nearer = peers_in(table, 4, 1)[0]
    table.see(nearer)
    assert table.see(a) is None  # with the one that is nearer still it is the second of all
    assert list(table.buckets[3]) == [b, a] and len(table) == 3
    assert table.nearest(table.mine, 2) == [nearer, a]
    table.see(peers_in(table, 4, 2)[1])
    assert table.see(c) == b


def test_after_any_order_of_arrivals_the_k_nearest_of_all_are_in_the_table() -> None:
    for seed in range(30):
        peers: list[Peer] = list(range(1, 200))
        Random(seed).shuffle(peers)
        table = filled(peers, k=5, spares=seed % 2)
        assert table.nearest(table.mine, 5) == brute(peers, table.mine, 5)


def test_dropping_a_stranger_changes_nothing() -> None:
    table = filled(range(1, 50))
    before = list(table)
    table.drop(MANY)
    table.drop(0)
    assert list(table) == before and len(table) == len(before)


def test_a_flood_of_newcomers_does_not_wash_out_those_that_stay() -> None:
    table = filled(range(1, 200), k=4, spares=2)
    first = {number: list(bucket) for number, bucket in table.buckets.items() if len(bucket) == 4}
    for peer in range(200, 3_000):
        table.see(peer)
    assert first and all(list(table.buckets[number]) == peers for number, peers in first.items())


class Model:
    """The same rules in plain lists."""

    def __init__(self, mine: int, k: int, spares: int) -> None:
        self.mine, self.k, self.spares = mine, k, spares
        self.buckets: dict[int, list[Peer]] = {}
        self.waiting: dict[int, list[Peer]] = {}

    def of(self, peer: Peer) -> tuple[list[Peer], list[Peer]]:
        number = BITS - (place_of(peer) ^ self.mine).bit_length()
        return self.buckets.setdefault(number, []), self.waiting.setdefault(number, [])

    def see(self, peer: Peer) -> Peer | None:
        bucket, waiting = self.of(peer)
        if peer in bucket or len(bucket) < self.k:
            bucket[:] = [other for other in bucket if other != peer] + [peer]
            return None
        others = [other for bucket in self.buckets.values() for other in bucket]
        if peer in brute([*others, peer], self.mine, self.k):
            farthest = brute(bucket, self.mine, self.k)[-1]
            bucket[:] = [other for other in bucket if other != farthest] + [peer]
            waiting[:] = [other for other in waiting if other != peer]
            self._wait(waiting, farthest)
            return None
        self._wait(waiting, peer)
        return bucket[0] if self.spares else None

    def _wait(self, waiting: list[Peer], peer: Peer) -> None:
        waiting[:] = ([other for other in waiting if other != peer] + [peer])[-self.spares :] if self.spares else []

    def drop(self, peer: Peer) -> None:
        bucket, waiting = self.of(peer)
        if peer in waiting:
            waiting.remove(peer)
        if peer in bucket:
            bucket.remove(peer)
            bucket += [waiting.pop()] if waiting else []


STEPS = st.lists(st.tuples(st.sampled_from(["see", "see", "see", "drop"]), st.integers(1, 40)), max_size=120)


@given(steps=STEPS, k=st.integers(1, 4), spares=st.integers(0, 3))
@settings(max_examples=200)
def test_after_any_comings_and_goings_order_size_and_bounds_are_right(steps: list[tuple[str, int]], k: int, spares: int) -> None:
    table, model = Table(0, k, spares), Model(place_of(0), k, spares)
    for action, peer in steps:
        if action == "see":
            assert table.see(peer) == model.see(peer)
        else:
            table.drop(peer)
            model.drop(peer)
        assert {number: list(bucket) for number, bucket in table.buckets.items()} == {n: b for n, b in model.buckets.items() if b}
        waiting = {number: list(each) for number, each in table.waiting.items() if each}
        assert waiting == {number: each for number, each in model.waiting.items() if each}
        assert len(table) == len(list(table)) == sum(map(len, model.buckets.values()))
        assert all(peer in table for peer in table)
        assert all(len(bucket) <= k for bucket in table.buckets.values())
        assert all(len(each) <= spares for each in table.waiting.values())
