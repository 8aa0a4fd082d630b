"""The hypercube function: the paper's table and trees exactly, and what holds for any number of nodes and any subscribers."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libweft.overlays.vcube.cube import assigned, c, children, cluster, dimension, first, nearest, parent, places, to_set

TABLE = """
1 | 1       | 0       | 3       | 2       | 5       | 4       | 7       | 6
2 | 2 3     | 3 2     | 0 1     | 1 0     | 6 7     | 7 6     | 4 5     | 5 4
3 | 4 5 6 7 | 5 4 7 6 | 6 7 4 5 | 7 6 5 4 | 0 1 2 3 | 1 0 3 2 | 2 3 0 1 | 3 2 1 0
"""  # VCube-PS, Figure 1


def recursive(i: int, s: int) -> list[int]:
    """c(i,s) as the paper defines it, in section 2."""
    neighbor = i ^ 1 << (s - 1)
    return [neighbor, *(j for k in range(1, s) for j in recursive(neighbor, k))]


def tree(root: int, members: int) -> dict[int, list[int]]:
    """Who sends to whom: each receiver serves the clusters below the one that it was reached in."""
    sent: dict[int, list[int]] = {}
    waiting = [(root, dimension(members))]
    while waiting:
        node, height = waiting.pop()
        assert node not in sent, f"{node} is reached twice"
        sent[node] = children(node, height, members)
        waiting += [(child, cluster(node, child) - 1) for child in sent[node]]
    return sent


def depth(sent: dict[int, list[int]], root: int) -> int:
    return 1 + max(depth(sent, child) for child in sent[root]) if sent[root] else 0


def test_the_table_of_the_paper_for_eight_nodes() -> None:
    for line in TABLE.strip().splitlines():
        s, *columns = line.split("|")
        assert [c(i, int(s)) for i in range(8)] == [[int(word) for word in column.split()] for column in columns]


@pytest.mark.parametrize("i", [0, 1, 5, 22, 63])
def test_the_order_of_xor_distance_is_the_recursion_of_the_paper(i: int) -> None:
    assert all(c(i, s) == recursive(i, s) for s in range(1, 7))


def test_the_clusters_of_the_paper_s_examples() -> None:
    assert [cluster(0, j) for j in range(8)] == [0, 1, 2, 2, 3, 3, 3, 3]


def test_the_children_of_the_paper_s_examples() -> None:
    everybody, some = to_set(range(8)), to_set([0, 3, 4])
    assert children(0, 3, everybody) == [1, 2, 4]
    assert children(0, 2, everybody) == [1, 2]
    assert children(4, 2, everybody) == [5, 6]
    assert children(0, 3, some) == [3, 4]
    assert children(4, 2, some) == []


def test_the_left_tree_of_figure_3() -> None:
    assert tree(0, to_set(range(8))) == {0: [1, 2, 4], 1: [], 2: [3], 3: [], 4: [5, 6], 5: [], 6: [7], 7: []}


def test_the_right_tree_of_figure_3() -> None:
    assert tree(2, to_set([0, 2, 3, 5, 7])) == {2: [3, 0, 7], 3: [], 0: [], 7: [5], 5: []}


@given(st.integers(1, 1_000), st.integers(0, 1 << 30))
@settings(max_examples=60, deadline=None)
def test_each_subscriber_is_reached_once_by_subscribers_alone_in_log_n_steps(nodes: int, seed: int) -> None:
    rng = Random(seed)
    subscribers = rng.sample(range(nodes), rng.randint(1, nodes))
    root, bound = rng.choice(subscribers), (nodes - 1).bit_length()
    sent = tree(root, to_set(subscribers))
    assert sorted(sent) == sorted(subscribers)
    assert depth(sent, root) <= bound
    assert max(map(len, sent.values())) <= bound


@given(st.integers(0, 255), st.integers(1, 8), st.integers(0, (1 << 256) - 1))
def test_the_first_of_a_cluster_is_the_first_member_in_its_order(i: int, s: int, members: int) -> None:
    assert first(i, s, members) == next((j for j in c(i, s) if members >> j & 1), None)


@given(st.integers(0, 63), st.integers(1, 6), st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 64) - 1))
def test_i_tests_those_that_find_it_first_in_their_cluster(i: int, s: int, known: int, up: int) -> None:
    known, up = known | up | 1 << i, up | 1 << i
    assert assigned(i, s, known, up) == sorted(j for j in c(i, s) if known >> j & 1 and first(j, s, up) == i)


@given(st.sets(st.integers(0, 1_000)))
def test_a_set_of_places_gives_them_back_in_order(several: set[int]) -> None:
    assert list(places(to_set(several))) == sorted(several)


@pytest.mark.parametrize(
    ("nodes", "clusters"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (1_000, 10), (1_024, 10)]
)
def test_there_are_as_many_clusters_as_the_logarithm(nodes: int, clusters: int) -> None:
    assert dimension(to_set(range(nodes))) == clusters


# The way to a root.


def test_where_no_place_is_empty_the_way_from_a_root_is_that_of_the_highest_differing_bit_first() -> None:
    everybody = to_set(range(16))
    assert [parent(i, 0, everybody) for i in (0b1011, 0b1010, 0b1000)] == [0b1010, 0b1000, 0]
    assert parent(0b0110, 0b1001, everybody) == 0b0111


@given(st.sets(st.integers(0, 63), min_size=2), st.integers(0, 1 << 30))
def test_the_nearest_is_the_one_at_the_least_distance_for_any_place(several: set[int], seed: int) -> None:
    place = Random(seed).randrange(1 << 14)
    assert nearest(place, to_set(several)) == min(several, key=lambda member: member ^ place)
    assert nearest(place, 0) is None


@given(st.sets(st.integers(0, 63), min_size=2), st.integers(0, 1 << 30))
def test_every_way_goes_up_the_tree_that_the_root_spans(several: set[int], seed: int) -> None:
    members = to_set(several)
    root = Random(seed).choice(sorted(several))
    below = tree(root, members)
    assert all(i in below[parent(i, root, members)] for i in several if i != root)
