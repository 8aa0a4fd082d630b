"""Overlay quality against a slow oracle in plain Python: sets, replayed row by row, and one search a node.

A call of Spark costs seconds, however small the graph. So all graphs, drawn and by hand, are runs of one table, measured
once; the rows are shuffled before, because only their times may count.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest
from pyspark.sql import DataFrame, SparkSession

from libweft.bench.spark import overlay
from libweft.peer.errors import UsageError

SCHEMA = "run int, t long, node long, kind string, peer long"
COLUMNS = (
    *("run", "time_s", "nodes", "edges", "degree_mean", "degree_min", "degree_max", "degree_full"),
    *("symmetry", "clustering", "path_mean", "path_max", "components", "largest_share"),
)
COUNT = 4
EVERY = 40  # sources, where no drawn run has more nodes

Row = tuple[int, str, int, int | None]  # t, kind, node, peer
Graph = dict[int, set[int]]


# What happened, as rows.


class Story:
    """Rows as a run writes them: node rows and neighbour rows come in turn, whatever the time."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.t = 0
        self.live: set[int] = set()
        self.views: dict[int, set[int]] = {}

    def up(self, *nodes: int) -> Story:
        for node in nodes:
            self._write("node_up", node)
            self.live.add(node)
            self.views[node] = set()
        return self

    def down(self, *nodes: int) -> Story:
        for node in nodes:
            self._write("node_down", node)
            self.live.discard(node)
        return self

    def joins(self, node: int) -> Story:
        """A node that is there without a word about it."""
        self._write("joined", node)
        self.live.add(node)
        self.views.setdefault(node, set())
        return self

    def sees(self, node: int, *peers: int) -> Story:
        for peer in peers:
            self._write("neighbor_up", node, peer)
            self.views[node].add(peer)
        return self

    def loses(self, node: int, *peers: int) -> Story:
        for peer in peers:
            self._write("neighbor_down", node, peer)
            self.views[node].discard(peer)
        return self

    def link(self, *pairs: tuple[int, int]) -> Story:
        """The first at once, the others later: the large graphs are there at the last instant only."""
        for number, (one, other) in enumerate(pairs):
            self.at(self.t + 10 * (number == 1)).sees(one, other).sees(other, one)
        return self

    def at(self, t: int) -> Story:
        self.t = t
        return self

    def end(self, t: int) -> Story:
        self.at(t)._write("receive", min(self.live))
        return self

    def _write(self, kind: str, node: int, peer: int | None = None) -> None:
        self.rows.append((self.t, kind, node, peer))


def drawn(seed: int) -> Story:
    """Anything that a run may do, many things at one instant."""
    rng = random.Random(seed)
    names = rng.sample(range(1, 2**62), rng.randint(1, 14))
    eager = rng.choice((0.3, 0.6, 0.9))
    story = Story()
    for node in names[: rng.randint(1, len(names))]:
        rng.choice((story.up, story.up, story.joins))(node)
    for _ in range(rng.randint(0, 150)):
        if rng.random() < 0.5:
            story.at(story.t + rng.randint(1, 50))
        _step(rng, story, names, eager)
    return story


def _step(rng: random.Random, story: Story, names: list[int], eager: float) -> None:
    node = rng.choice(names)
    fresh = all(row[0] < story.t for row in story.rows if row[1] == "node_down" and row[2] == node)
    if node not in story.live:
        story.up(node)
    elif rng.random() < 0.05 and any(row[1:3] == ("node_up", node) for row in story.rows):
        story.down(node)
        if rng.random() < 0.3:
            story.up(node)  # a restart that takes no time
    elif fresh and len(names) > 1:
        peer = rng.choice([name for name in names if name != node])
        if peer not in story.views[node]:
            story.sees(node, peer)
            if rng.random() < 0.1:
                story.loses(node, peer)
        elif rng.random() > eager:
            story.loses(node, peer)
            if rng.random() < 0.4:
                story.sees(node, peer)  # a link that is replaced


def long(seed: int) -> Story:
    """Few links over many nodes: chains, trees with long branches, hubs on a chain, and what is not linked at all."""
    rng = random.Random(seed)
    names = rng.sample(range(10**6), rng.randint(25, EVERY))
    story = Story().up(*names)
    hub = rng.random() < 0.5
    for place in range(1, len(names)):
        back = place if hub and place > 25 else rng.choice((1, 1, 1, 2, 3))
        if rng.random() < 0.97:
            story.link((names[place], names[max(0, place - back)]))
    for _ in range(rng.choice((0, 0, 3))):
        story.sees(*rng.sample(names, 2))
    return story


def ring(size: int) -> Story:
    return Story().up(*range(size)).link(*((node, (node + 1) % size) for node in range(size)))


def islands(count: int, size: int) -> Story:
    """Rings, with names that are spread over all of them."""
    rings = [[place + count * ((7 * number) % size) for number in range(size)] for place in range(count)]
    pairs = [pair for names in rings for pair in zip(names, names[1:] + names[:1], strict=True)]
    return Story().up(*range(count * size)).link(*pairs)


def full(size: int) -> Story:
    story = Story().up(*range(size))
    for node in range(size):
        story.sees(node, *(peer for peer in range(size) if peer != node))
    return story


def star(size: int) -> Story:
    return Story().up(*range(size)).link(*((0, node) for node in range(1, size)))


def by_hand() -> dict[str, Story]:
    crashed = full(5).at(100).down(4).at(200).loses(0, 4).loses(1, 4).end(300)
    unequal = Story().up(1, 2, 3).sees(1, 2, 3).sees(2, 1)
    replaced = Story().up(1, 2).link((1, 2)).at(50).loses(1, 2).sees(1, 2).end(90)
    restarted = Story().up(1, 2).link((1, 2)).at(50).down(1).up(1).end(90)
    returned = Story().up(1, 2).link((1, 2)).at(50).down(1).at(60).up(1).at(70).sees(1, 2).end(90)
    voided = Story().up(1, 2).sees(2, 1).at(50).sees(1, 2).down(1).at(60).up(1).end(90)
    return {
        "ring": ring(500),
        "islands": islands(2, 8),
        "archipelago": islands(40, 9),
        "star": star(40),
        "complete": full(6),
        "crashed": crashed,
        "unequal": unequal,
        "replaced": replaced,
        "restarted": restarted,
        "returned": returned,
        "voided": voided,
        "untold": Story().joins(1).joins(2).joins(3).link((1, 2), (2, 3)).at(100).down(1, 2).at(200).up(2).end(300),
        "all gone": full(3).at(100).down(0, 1, 2),
        "itself": Story().up(1, 2).sees(1, 1, 2),
        "stranger": Story().up(1).sees(1, 9),
        "no neighbours": Story().up(1, 2).end(50),
    }


STORIES: dict[str, Story] = by_hand() | {f"drawn {n}": drawn(n) for n in range(60)} | {f"long {n}": long(n) for n in range(12)}
RUNS = {name: number for number, name in enumerate(STORIES)}


def table(spark: SparkSession, stories: Iterable[Story]) -> DataFrame:
    rows = [(run, t, node, kind, peer) for run, story in enumerate(stories) for t, kind, node, peer in story.rows]
    random.Random(1).shuffle(rows)
    return spark.createDataFrame(rows, SCHEMA)


# The same, thought out slowly.


class State(NamedTuple):
    live: set[int]
    views: Graph


def instants(rows: list[Row], count: int) -> list[int]:
    begin = min((row[0] for row in rows if row[1].startswith("neighbor")), default=None)
    if begin is None:
        return []
    end = max(row[0] for row in rows)
    return [end - (end - begin) * (count - 1 - number) // (count - 1) for number in range(count)]


def replay(rows: list[Row], until: int) -> State:
    live: set[int] = set()
    views: Graph = {}
    for t, kind, node, peer in rows:
        if t > until:
            break
        if kind == "node_down":
            live.discard(node)
        else:
            live.add(node)
        if kind.startswith("node_"):
            views[node] = set()
        elif kind == "neighbor_up" and peer is not None and peer != node:
            views.setdefault(node, set()).add(peer)
        elif kind == "neighbor_down" and peer is not None:
            views.setdefault(node, set()).discard(peer)
    return State(live, {node: views.get(node, set()) for node in live})


def linked(state: State) -> Graph:
    graph: Graph = {node: set() for node in state.live}
    for node, view in state.views.items():
        for peer in view & state.live:
            graph[node].add(peer)
            graph[peer].add(node)
    return graph


def search(graph: Graph, source: int) -> dict[int, int]:
    found = {source: 0}
    queue = deque([source])
    while queue:
        node = queue.popleft()
        for peer in graph[node]:
            if peer not in found:
                found[peer] = found[node] + 1
                queue.append(peer)
    return found


def sets(graph: Graph) -> list[int]:
    """The sizes of the connected sets."""
    sizes, seen = [], set[int]()
    for node in graph:
        if node not in seen:
            reached = search(graph, node)
            sizes.append(len(reached))
            seen |= reached.keys()
    return sizes


def local(graph: Graph, node: int) -> float:
    around = graph[node]
    if len(around) < 2:
        return 0.0
    closed = sum(len(graph[peer] & around) for peer in around)
    return closed / (len(around) * (len(around) - 1))


def mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return sum(values) / len(values) if values else None


def near(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value is None else pytest.approx(value, rel=1e-9) for name, value in figures.items()}


def expected(state: State) -> dict[str, Any]:
    """Distances from every node: they differ from the measured ones where there are more than EVERY."""
    graph = linked(state)
    entries = [(node, peer) for node, view in state.views.items() for peer in view]
    sizes = [len(view) for view in state.views.values()]
    paths = [hops for source in graph for hops in search(graph, source).values() if hops]
    sizes_of_sets = sets(graph)
    return {
        "nodes": len(state.live),
        "edges": len(entries),
        "degree_mean": mean(sizes),
        "degree_min": min(sizes, default=None),
        "degree_max": max(sizes, default=None),
        "degree_full": mean(size == max(sizes) for size in sizes),
        "symmetry": mean(node in state.views.get(peer, ()) for node, peer in entries),
        "clustering": mean(local(graph, node) for node in graph),
        "path_mean": mean(paths),
        "path_max": max(paths, default=None),
        "components": len(sizes_of_sets),
        "largest_share": max(sizes_of_sets) / len(graph) if graph else None,
    }


# One call for all of them.


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return table(spark, STORIES.values()).persist()


@pytest.fixture(scope="module")
def measured(rows: DataFrame) -> dict[int, list[dict[str, Any]]]:
    """Run -> its rows, in the order in which they came; with distances from every node of a drawn run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlay, "SOURCES", EVERY)
        patch.setattr(overlay, "PLAIN", 4)
        frame = overlay.quality(rows, COUNT)
    assert tuple(frame.columns) == COLUMNS
    found: dict[int, list[dict[str, Any]]] = {}
    for row in frame.collect():
        found.setdefault(row["run"], []).append(row.asDict())
    return found


@pytest.fixture(scope="module")
def last(measured: dict[int, list[dict[str, Any]]]) -> Callable[[str], dict[str, Any]]:
    """The figures of a story at its end."""
    return lambda name: measured[RUNS[name]][-1]


def test_every_figure_of_every_run_is_the_oracles(measured: dict[int, list[dict[str, Any]]]) -> None:
    assert len(measured) > 60
    for name, story in STORIES.items():
        times = instants(story.rows, COUNT)
        states = [replay(story.rows, t) for t in times]
        wanted = [{"run": RUNS[name], "time_s": t / 1e6} | expected(state) for t, state in zip(times, states, strict=True)]
        for one, found in zip_longest(wanted, measured.get(RUNS[name], [])):
            paths = {name: found[name] for name in ("path_mean", "path_max") if one["nodes"] > EVERY}
            assert found == near(one | paths), name


def test_the_drawn_runs_are_not_all_alike(measured: dict[int, list[dict[str, Any]]]) -> None:
    seen = [row for name, run in RUNS.items() if name.startswith(("drawn", "long")) for row in measured.get(run, [])]
    assert {row["nodes"] for row in seen} > {1, 2, 5, 8}
    assert sum(row["symmetry"] not in (None, 0, 1) for row in seen) > 50
    assert sum(bool(row["clustering"]) for row in seen) > 50
    assert sum(row["components"] > 1 for row in seen) > 30
    assert sum((row["path_max"] or 0) > 16 for row in seen) > 5
    assert sum(row["degree_min"] == 0 for row in seen) > 20


def test_a_ring_is_one_set_with_exact_paths(last: Callable[[str], dict[str, Any]]) -> None:
    row = last("ring")
    assert (row["nodes"], row["edges"], row["components"], row["largest_share"]) == (500, 1000, 1, 1.0)
    assert (row["degree_min"], row["degree_max"], row["symmetry"], row["clustering"]) == (2, 2, 1.0, 0.0)
    assert row["path_max"] == 250
    assert row["path_mean"] == pytest.approx((2 * sum(range(1, 250)) + 250) / 499)


def test_two_islands_are_two_sets(last: Callable[[str], dict[str, Any]]) -> None:
    row = last("islands")
    assert (row["components"], row["largest_share"], row["path_max"]) == (2, 0.5, 4)
    assert row["path_mean"] == pytest.approx((2 * (1 + 2 + 3) + 4) / 7)


def test_more_islands_than_sources(last: Callable[[str], dict[str, Any]]) -> None:
    row = last("archipelago")
    assert (row["components"], row["largest_share"]) == (40, 1 / 40)


def test_in_a_star_nobody_is_further_than_two(last: Callable[[str], dict[str, Any]]) -> None:
    row = last("star")
    assert (row["degree_min"], row["degree_max"], row["clustering"], row["path_max"], row["components"]) == (1, 39, 0.0, 2, 1)
    assert row["degree_full"] == 1 / 40
    assert row["path_mean"] == pytest.approx((2 * 39 + 2 * 39 * 38) / (40 * 39))


def test_in_a_complete_graph_all_are_clustered(last: Callable[[str], dict[str, Any]]) -> None:
    row = last("complete")
    assert (row["degree_mean"], row["symmetry"], row["clustering"], row["path_mean"], row["path_max"]) == (5.0, 1.0, 1.0, 1.0, 1)


def test_a_dead_peer_stays_in_views_but_carries_no_path(measured: dict[int, list[dict[str, Any]]]) -> None:
    first, crash, found, _ = measured[RUNS["crashed"]]
    assert (first["nodes"], first["edges"], first["symmetry"]) == (5, 20, 1.0)
    assert (crash["time_s"], crash["nodes"], crash["edges"], crash["degree_max"]) == (100 / 1e6, 4, 16, 4)
    assert (crash["symmetry"], crash["clustering"], crash["components"]) == (12 / 16, 1.0, 1)
    assert (found["edges"], found["degree_min"], found["symmetry"]) == (14, 3, 12 / 14)


def test_one_way_is_enough_for_a_link(last: Callable[[str], dict[str, Any]]) -> None:
    row = last("unequal")
    assert (row["edges"], row["degree_min"], row["components"], row["path_max"]) == (3, 0, 1, 2)
    assert row["symmetry"] == pytest.approx(2 / 3)


def test_a_link_replaced_at_one_instant_stays(last: Callable[[str], dict[str, Any]]) -> None:
    assert (last("replaced")["edges"], last("replaced")["symmetry"]) == (2, 1.0)


def test_a_restart_at_one_instant_empties_the_view_and_leaves_the_node_live(last: Callable[[str], dict[str, Any]]) -> None:
    row = last("restarted")
    assert (row["nodes"], row["edges"], row["symmetry"], row["components"]) == (2, 1, 0.0, 1)


def test_what_a_node_saw_before_it_fell_is_void_and_what_it_sees_after_counts(measured: dict[int, list[dict[str, Any]]]) -> None:
    assert [(row["nodes"], row["edges"]) for row in measured[RUNS["returned"]]] == [(2, 2), (2, 2), (2, 1), (2, 2)]


def test_what_a_node_saw_at_the_time_it_fell_is_void(last: Callable[[str], dict[str, Any]]) -> None:
    assert (last("voided")["nodes"], last("voided")["edges"]) == (2, 1)


def test_a_node_without_a_word_about_it_is_live_until_it_is_said_to_fall(measured: dict[int, list[dict[str, Any]]]) -> None:
    assert [(row["nodes"], row["edges"]) for row in measured[RUNS["untold"]]] == [(3, 2), (1, 1), (2, 1), (2, 1)]


def test_where_all_are_gone_there_is_nothing_to_take_a_figure_of(last: Callable[[str], dict[str, Any]]) -> None:
    row = last("all gone")
    assert (row["nodes"], row["edges"], row["components"]) == (0, 0, 0)
    assert {row[name] for name in COLUMNS[4:11]} | {row["largest_share"]} == {None}


def test_a_node_is_not_its_own_neighbour(last: Callable[[str], dict[str, Any]]) -> None:
    assert (last("itself")["edges"], last("itself")["degree_max"]) == (1, 1)


def test_a_peer_without_rows_is_not_live(last: Callable[[str], dict[str, Any]]) -> None:
    row = last("stranger")
    assert (row["nodes"], row["edges"], row["components"], row["path_mean"]) == (1, 1, 1, None)


def test_a_run_without_neighbours_has_no_rows(measured: dict[int, list[dict[str, Any]]]) -> None:
    assert RUNS["no neighbours"] not in measured


# The parts by themselves, and their bounds.


def test_nodes_and_edges_are_those_of_a_replay(rows: DataFrame) -> None:
    moments = overlay.moments(rows, COUNT).persist()
    times = {(row["run"], row["moment"]): row["t"] for row in moments.collect()}
    wanted = {(run, number): t for name, run in RUNS.items() for number, t in enumerate(instants(STORIES[name].rows, COUNT))}
    assert times == wanted
    states = {key: replay(list(STORIES.values())[key[0]].rows, t) for key, t in wanted.items()}
    assert sorted(map(tuple, overlay.nodes(rows, moments).collect())) == sorted(
        (*k, n) for k, s in states.items() for n in s.live
    )
    entries = sorted((*key, node, peer) for key, state in states.items() for node, view in state.views.items() for peer in view)
    assert sorted(map(tuple, overlay.edges(rows, moments).collect())) == entries


def test_one_instant_is_the_end_and_none_is_refused(rows: DataFrame) -> None:
    ends = {row["run"]: row["t"] for row in overlay.moments(rows, 1).collect()}
    assert ends == {RUNS[name]: max(row[0] for row in s.rows) for name, s in STORIES.items() if instants(s.rows, 2)}
    with pytest.raises(UsageError, match="at least one"):
        overlay.moments(rows, 0)


class Parts(NamedTuple):
    """Of all runs, at the beginning and at the end."""

    members: DataFrame
    links: DataFrame

    def at_end(self, *names: str) -> DataFrame:
        runs = ", ".join(str(RUNS[name]) for name in names)
        return self.members.where(f"moment = 1 AND run IN ({runs})")


@pytest.fixture(scope="module")
def parts(rows: DataFrame) -> Parts:
    moments = overlay.moments(rows, 2).persist()
    members = overlay.members(overlay.nodes(rows, moments))
    return Parts(members, overlay.links(members, overlay.edges(rows, moments)).persist())


def by_run(frame: DataFrame, *columns: str) -> dict[int, tuple[Any, ...]]:
    return {row["run"]: tuple(row[column] for column in columns) for row in frame.collect()}


def test_labels_find_the_sets_without_any_source_in_few_rounds(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = Mock(wraps=overlay._relabelled)
    monkeypatch.setattr(overlay, "_relabelled", rounds)
    names = ["archipelago", *(name for name in STORIES if name.startswith("long"))]
    some = parts.at_end(*names)
    nothing = some.selectExpr("id AS source", "id", "0 AS distance").where("false")
    found = by_run(overlay.components(some, parts.links, nothing), "components", "largest_share")
    sizes = {name: sets(linked(replay(STORIES[name].rows, STORIES[name].t))) for name in names}
    assert found == {RUNS[name]: (len(each), pytest.approx(max(each) / sum(each))) for name, each in sizes.items()}
    assert rounds.call_count < 2 * math.log2(EVERY)


def test_sources_are_few_and_stay_the_same_nodes(parts: Parts) -> None:
    sources = overlay._sources(parts.members).join(parts.members, "id").select("run", "moment", "node").collect()
    found = {key: {row["node"] for row in sources if (row["run"], row["moment"]) == key} for key in {row[:2] for row in sources}}
    for name, story in STORIES.items():
        for moment, t in enumerate(instants(story.rows, 2)):
            live = replay(story.rows, t).live
            assert len(found.get((RUNS[name], moment), ())) == min(len(live), overlay.SOURCES), name
    for name in ("ring", "star", "archipelago"):
        assert found[RUNS[name], 0] == found[RUNS[name], 1]


def test_a_search_that_would_not_end_has_no_figure(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlay, "ROUNDS", 3)
    some = parts.at_end("ring", "complete", "star")
    found = overlay.distances(some, parts.links)
    assert by_run(overlay.paths(some, found), "path_max") == {RUNS["complete"]: (1,), RUNS["star"]: (2,)}


def test_too_many_wedges_have_no_figure(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlay, "WEDGES", 6 * 5 * 4 // 6 - 1)
    found = by_run(overlay.clustering(parts.at_end("crashed", "complete", "star"), parts.links), "clustering")
    assert found == {RUNS["crashed"]: (1.0,), RUNS["star"]: (0.0,)}


def test_nothing_gives_nothing(spark: SparkSession) -> None:
    frame = overlay.quality(table(spark, [Story().up(1)]), COUNT)
    assert tuple(frame.columns) == COLUMNS
    assert frame.collect() == []
