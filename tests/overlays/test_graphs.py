"""Each graph is what its name says, for every size; what cannot be drawn is refused in one line."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from libweft.overlays import graphs
from libweft.overlays.graphs import Edges
from libweft.peer.errors import UsageError
from libweft.pubsub.options import describe


class Impatient(Random):
    """A draw that does not come to an end shows as a failure, and not as a test that hangs."""

    patience = 200_000

    def getrandbits(self, bits: int, /) -> int:
        self.patience -= 1
        assert self.patience > 0, "the graph is still not drawn"
        return super().getrandbits(bits)


def degrees(nodes: int, edges: Edges) -> list[int]:
    ends = Counter(end for edge in edges for end in edge)
    return [ends[node] for node in range(nodes)]


def is_simple(nodes: int, edges: Edges) -> bool:
    return all(0 <= a < b < nodes for a, b in edges) and len(set(edges)) == len(edges)


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int]:
    """Nodes and a degree that a connected regular graph of them can have."""
    nodes = draw(st.integers(2, 60))
    degree = draw(st.integers(1, nodes - 1))
    assume(nodes * degree % 2 == 0 and (degree > 1 or nodes == 2))
    return nodes, degree


@given(size=sizes(), seed=st.integers(0, 2**32))
@settings(max_examples=200)
@example(size=(2, 1), seed=0)
@example(size=(3, 2), seed=0)
@example(size=(4, 3), seed=0)
@example(size=(40, 39), seed=0)
@example(size=(40, 21), seed=0)
@example(size=(40, 20), seed=0)
@example(size=(41, 20), seed=0)
@example(size=(5, 2), seed=52)
@example(size=(6, 3), seed=208)
def test_a_regular_graph_has_the_degree_everywhere_and_is_simple_and_connected(size: tuple[int, int], seed: int) -> None:
    nodes, degree = size
    edges = graphs.draw("regular", nodes, degree, Impatient(seed))
    assert degrees(nodes, edges) == [degree] * nodes
    assert is_simple(nodes, edges)
    assert graphs.connected(nodes, edges)


@pytest.mark.parametrize(("nodes", "degree"), [(4, 2), (5, 2), (6, 2), (6, 3), (7, 2), (7, 4), (8, 3)])
def test_a_tiny_regular_graph_is_drawn_from_every_seed(nodes: int, degree: int) -> None:
    """Few edges leave few ways to mend a loop or a double edge, so here a draw runs into every corner."""
    for seed in range(2_000):
        assert degrees(nodes, graphs.regular(nodes, degree, Impatient(seed))) == [degree] * nodes


@pytest.mark.parametrize(("nodes", "degree", "odd_one"), [(101, 5, 4), (9, 3, 2), (7, 5, 6), (11, 9, 10)])
def test_where_nodes_times_degree_is_odd_one_node_is_an_edge_off(nodes: int, degree: int, odd_one: int) -> None:
    edges = graphs.draw("regular", nodes, degree, Impatient(1))
    assert Counter(degrees(nodes, edges)) == {degree: nodes - 1, odd_one: 1}
    assert is_simple(nodes, edges)
    assert graphs.connected(nodes, edges)


@pytest.mark.parametrize(("nodes", "degree"), [(2_000, 5), (1_000, 8), (999, 4), (300, 299)])
def test_a_large_regular_graph_has_the_degree_everywhere(nodes: int, degree: int) -> None:
    edges = graphs.draw("regular", nodes, degree, Random(1))
    assert set(degrees(nodes, edges)) == {degree}
    assert is_simple(nodes, edges)
    assert graphs.connected(nodes, edges)


@pytest.mark.parametrize("kind", ["regular", "er"])
def test_the_same_stream_gives_the_same_graph(kind: str) -> None:
    first, again, other = (graphs.draw(kind, 100, 8, Random(seed)) for seed in (7, 7, 8))
    assert first == again
    assert first != other


@pytest.mark.parametrize("degree", [3, 12])
def test_every_pair_of_nodes_is_joined_with_the_same_chance(degree: int) -> None:
    """Chi-square over all pairs of 20 nodes, sparse and by its complement."""
    nodes, draws = 20, 1_000
    counts = Counter(edge for seed in range(draws) for edge in graphs.regular(nodes, degree, Random(seed)))
    pairs = [(a, b) for a in range(nodes) for b in range(a + 1, nodes)]
    chance = degree / (nodes - 1)
    # the variance of a count is draws * chance * (1 - chance); a statistic of 190 such terms is 190 give or take about 20
    statistic = sum((counts[pair] - draws * chance) ** 2 for pair in pairs) / (draws * chance * (1 - chance))
    assert 120 < statistic < 270


def test_the_mean_degree_of_an_er_graph_is_the_one_asked_for() -> None:
    edges = graphs.draw("er", 200, 10, Random(1))
    assert len(edges) == 200 * 10 // 2
    assert is_simple(200, edges)
    assert graphs.connected(200, edges)


def test_the_degrees_of_an_er_graph_spread_as_poisson_does() -> None:
    found = degrees(2_000, graphs.erdos_renyi(2_000, 10, Random(1)))
    variance = sum((degree - 10) ** 2 for degree in found) / len(found)
    assert 8.5 < variance < 11.5


def test_an_er_graph_asked_for_all_edges_is_full() -> None:
    assert graphs.draw("er", 6, 5, Random(1)) == graphs.draw("full", 6, 5, Random(1))


@pytest.mark.parametrize(
    ("nodes", "edges"), [(1, []), (2, [(0, 1)]), (3, [(0, 1), (0, 2), (1, 2)]), (5, [(0, 1), (0, 4), (1, 2), (2, 3), (3, 4)])]
)
def test_a_ring_joins_each_node_to_the_next(nodes: int, edges: Edges) -> None:
    assert graphs.draw("ring", nodes, 5, Random(1)) == edges


@pytest.mark.parametrize("nodes", [1, 2, 3, 10])
def test_a_full_graph_joins_all(nodes: int) -> None:
    edges = graphs.draw("full", nodes, 5, Random(1))
    assert len(edges) == nodes * (nodes - 1) // 2
    assert is_simple(nodes, edges)


@pytest.mark.parametrize("kind", ["regular", "ring", "full", "er"])
def test_one_node_alone_has_no_edge(kind: str) -> None:
    assert graphs.draw(kind, 1, 5, Random(1)) == []


def test_a_file_gives_its_edges_once_in_order_and_without_loops(tmp_path: Path) -> None:
    file = tmp_path / "graph"
    file.write_text("# a comment\n\n2 1\n0,1\n1 2 0.5\n  3, 3\n3\t0\n")
    assert graphs.draw(str(file), 4, 5, Random(1)) == [(0, 1), (0, 3), (1, 2)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0 1\n2\n", "line 2: expected two node numbers"),
        ("0 x\n", "line 1: expected two node numbers"),
        ("0.5 1\n", "line 1: expected two node numbers"),
        ("0 1\n\n1 4\n", "line 3: nodes go from 0 to 3"),
        ("-1 1\n", "line 1: nodes go from 0 to 3"),
    ],
)
def test_a_bad_line_of_a_file_is_named(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "graph"
    file.write_text(text)
    with pytest.raises(UsageError) as refused:
        graphs.draw(str(file), 4, 5, Random(1))
    assert str(file) in str(refused.value)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "graph"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read"):
        graphs.draw(str(file), 4, 5, Random(1))


@pytest.mark.parametrize(
    ("kind", "nodes", "degree", "told"),
    [
        ("regular", 10, 10, "overlay.degree is 10; with 10 nodes it must be from 1 to 9"),
        ("regular", 10, 0, "from 1 to 9"),
        ("er", 10, -3, "from 1 to 9"),
        ("regular", 10, 1, "cannot be connected"),
        ("er", 10, 1, "cannot be connected"),
        ("no-such-file", 10, 3, "regular, ring, full, er, or a file of edges"),
    ],
)
def test_an_impossible_graph_is_refused_in_one_line(kind: str, nodes: int, degree: int, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        graphs.draw(kind, nodes, degree, Random(1))
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_every_graph_that_the_option_names_is_accepted() -> None:
    (meaning,) = (found.meaning for found in describe("static/flood") if found.option == "overlay.graph")
    names, file = meaning.removeprefix("who knows whom: ").split(", or ")
    assert file == "the name of a file"
    assert tuple(names.split(", ")) == graphs.NAMED
    for name in graphs.NAMED:
        graphs.check(name, 10, 3)


def test_a_graph_that_is_hardly_ever_connected_is_given_up_in_one_line() -> None:
    with pytest.raises(UsageError, match=r"^no connected er graph of 300 nodes with degree 2 in \d+ tries; raise overlay.degre"):
        graphs.draw("er", 300, 2, Random(1))


def test_an_unconnected_draw_is_redrawn_from_the_same_stream() -> None:
    """Two triangles are a 2-regular graph of 6 nodes too; among many seeds some first draw is one."""
    firsts = {seed: graphs.regular(6, 2, Impatient(seed)) for seed in range(10, 40)}
    seed = next(seed for seed, first in firsts.items() if not graphs.connected(6, first))
    stream = Random(seed)
    first = graphs.regular(6, 2, stream)
    drawn = graphs.draw("regular", 6, 2, Random(seed))
    assert drawn != first
    while not graphs.connected(6, first):
        first = graphs.regular(6, 2, stream)
    assert drawn == first


@given(nodes=st.integers(1, 20), data=st.data())
def test_distances_are_those_that_relaxing_every_edge_finds(nodes: int, data: st.DataObject) -> None:
    node = st.integers(0, nodes - 1)
    edges = data.draw(st.lists(st.tuples(node, node), max_size=30))
    best = {0: 0}
    for _ in range(nodes):
        for a, b in [*edges, *((b, a) for a, b in edges)]:
            if a in best:
                best[b] = min(best.get(b, nodes), best[a] + 1)
    assert graphs.distances(nodes, edges, 0) == best
