"""Overlay quality over time: what graph the neighbours formed, at a few instants of each run.

Views (`edges`) are directed and may name a peer that is dead already; the graph that messages can travel (`links`) is
undirected and between live nodes only. Degrees and symmetry are of views, clustering, paths and components of links.
All runs and instants go through each job together, numbered as one graph of many parts. Loops are joins whose lineage
is cut each round and which end by a count of what is new; a round costs a fraction of a second, however small the graph.

Asks for: rows with run, t, node, kind and peer.
Bounds: distances are from SOURCES nodes of a graph. One with more than PLAIN levels is searched along shortcuts, so that
a ring of 1,000 takes 32 rounds and not 500; one that needs more than ROUNDS has no figure. Components take about
log2(nodes) rounds, most often one. Clustering looks at pairs of links, (n - 2) (n - 1) n / 6 in a full graph of n nodes:
1.3 million for 200, 166 million for 1,000; a graph with more than WEDGES has no figure.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from libweft.peer.errors import UsageError
from libweft.peer.machine import SECOND
from libweft.peer.trace.kinds import NEIGHBOR_DOWN, NEIGHBOR_UP, NODE_DOWN, NODE_UP

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

GRAPH = ["run", "moment"]
SOURCES = 16
PLAIN, ROUNDS = 16, 200
SHORTCUTS = 128  # ways of two shortcuts that a doubling may look at, a node on average
WEDGES = 2_000_000  # about two seconds a graph
FIGURES = (
    *("nodes", "edges", "degree_mean", "degree_min", "degree_max", "degree_full", "symmetry", "clustering"),
    *("path_mean", "path_max", "components", "largest_share"),
)


def quality(rows: DataFrame, count: int = 5) -> DataFrame:
    """run, time_s and FIGURES at `count` instants of each run, in order; a figure is null where there is nothing to take
    it of. `nodes` are the live ones, `edges` the entries of their views. A run without neighbour rows has none here."""
    few, _ = _cut(_telling(rows))
    instants, _ = _cut(moments(few, count))
    live = members(_lives(few, instants))
    views, _ = _cut(_views(few, instants, live), "true", few)
    graph, _ = _cut(links(live, views))
    far = distances(live, graph)
    measures = [degrees(live, views), symmetry(views), clustering(live, graph), paths(live, far), components(live, graph, far)]
    table = reduce(_beside, measures, instants).groupBy(*GRAPH)
    figures = table.agg((F.max("t") / SECOND).alias("time_s"), *(F.max(name).alias(name) for name in FIGURES))
    shown = figures.fillna(0, ["nodes", "edges", "components"]).orderBy(*GRAPH).select("run", "time_s", *FIGURES)
    return _cut(shown, "true", instants, views, live, graph, far, *measures)[0]


def moments(rows: DataFrame, count: int = 5) -> DataFrame:
    """run, moment (0 to count - 1), t: instants spread evenly from the first neighbour row of a run to its last row of
    any kind. The last instant is the end; one instant alone is the end too."""
    if count < 1:
        raise UsageError(f"{count} instants: at least one is needed")
    begin = F.min(F.when(F.col("kind").isin(NEIGHBOR_UP, NEIGHBOR_DOWN), F.col("t")))
    spans = rows.groupBy("run").agg(begin.alias("begin"), F.max("t").alias("end")).where("begin IS NOT NULL")
    each = spans.select("*", F.explode(F.lit(list(range(count)))).alias("moment"))
    return each.selectExpr("run", "moment", f"end - (end - begin) * ({count - 1} - moment) div {max(1, count - 1)} AS t")


def nodes(rows: DataFrame, moments: DataFrame) -> DataFrame:
    """run, moment, node: who is live, neighbours or not.

    A node is live when the last of its node_up and node_down rows at or before the instant is an up. Where they are of
    one time, as in a restart that takes none, their numbers decide: they come in turn, so there are more ups than downs
    if an up came last. A node that has other rows and no such ones, as in a trace of few kinds, is live from the first."""
    return _lives(rows, moments).drop("fell")


def edges(rows: DataFrame, moments: DataFrame) -> DataFrame:
    """run, moment, node, peer: the views of the live nodes, directed; `peer` may be dead, as long as the node thinks not.

    An entry is there when, after the node's last node_down, the last of the pair's neighbor_up and neighbor_down rows at
    or before the instant is an up. Where they are of one time, as when a link is replaced, their numbers decide as above.
    An up at the time of a node_down is void. No node is its own neighbour."""
    return _views(rows, moments, _lives(rows, moments))


def members(nodes: DataFrame) -> DataFrame:
    """The live nodes of all graphs with an `id`, numbered as those of one; computed here and now, because the numbers
    hang on how Spark lays out the rows."""
    return _cut(nodes.withColumn("id", F.monotonically_increasing_id()))[0]


def links(members: DataFrame, edges: DataFrame) -> DataFrame:
    """id, to: pairs of live nodes of which one at least has the other in its view; each pair twice, once a direction."""
    ends = members.select(*GRAPH, F.col("node").alias("peer"), F.col("id").alias("to"))
    between = edges.join(members, [*GRAPH, "node"]).join(ends, [*GRAPH, "peer"])
    return between.select(F.explode(F.expr("array(struct(id, to), struct(to AS id, id AS to))"))).select("col.*").distinct()


def degrees(nodes: DataFrame, edges: DataFrame) -> DataFrame:
    """run, moment, nodes, edges, degree_mean, degree_min, degree_max: the size of a live node's view, dead peers counted.

    degree_full is the share of the nodes whose view is as large as the largest."""
    entries = nodes.select(*GRAPH, "node", F.lit(0).alias("entry")).union(edges.select(*GRAPH, "node", F.lit(1)))
    sizes = entries.groupBy(*GRAPH, "node").agg(F.sum("entry").alias("size"))
    counts = sizes.groupBy(*GRAPH, "size").agg(F.count("*").alias("alike")).groupBy(*GRAPH)
    count, total = F.sum("alike"), F.sum(F.col("alike") * F.col("size"))
    full = F.max_by("alike", "size") / count
    return counts.agg(
        *(count.alias("nodes"), total.alias("edges"), (total / count).alias("degree_mean")),
        *(F.min("size").alias("degree_min"), F.max("size").alias("degree_max"), full.alias("degree_full")),
    )


def symmetry(edges: DataFrame) -> DataFrame:
    """run, moment, symmetry: the share of entries whose peer has the node in its view too. A dead peer has no view."""
    both = edges.select(*GRAPH, "node", "peer", F.lit(1).alias("there"), F.lit(0).alias("back"))
    both = both.union(edges.select(*GRAPH, "peer", "node", F.lit(0), F.lit(1)))
    pairs = both.groupBy(*GRAPH, "node", "peer").agg(F.max("there").alias("there"), F.max("back").alias("back"))
    return pairs.where("there = 1").groupBy(*GRAPH).agg(F.avg("back").alias("symmetry"))


def clustering(members: DataFrame, links: DataFrame) -> DataFrame:
    """run, moment, clustering: the mean over live nodes of the share of a node's pairs of linked nodes that are linked to
    each other; 0 for a node with fewer than two. No row above WEDGES."""
    outward, _ = _cut(_outward(links))
    fans = outward.groupBy("id").agg(F.count("*").alias("fan"))
    wedges = fans.join(members, "id").groupBy(*GRAPH).agg(F.sum(F.expr("fan * (fan - 1) div 2")).alias("wedges"))
    small, _ = _cut(members.join(F.broadcast(wedges.where(F.col("wedges") > WEDGES)), GRAPH, "left_anti").select(*GRAPH, "id"))
    shares = _triangles(outward.join(small, "id", "left_semi"), links).groupBy("id").agg(F.sum("share").alias("share"))
    means = small.join(shares, "id", "left").groupBy(*GRAPH).agg(F.avg(F.coalesce("share", F.lit(0.0))).alias("mean"))
    rounded = means.selectExpr(*GRAPH, "round(mean, 12) AS clustering")  # thirds do not add up, nor alike in another order
    return _cut(rounded, "true", outward, small)[0]


def _outward(links: DataFrame) -> DataFrame:
    """Each link once, from the end of fewer links to the other, so that no node has many; and for both ends what one
    triangle adds to its share."""
    ends = links.groupBy("id").agg(F.count("*").alias("degree")).where("degree > 1")  # with one link, no triangle
    other = ends.select(F.col("id").alias("to"), F.col("degree").alias("to_degree"))
    ranked = links.join(ends, "id").join(other, "to").where("struct(degree, id) < struct(to_degree, to)")
    return ranked.selectExpr("id", "to", "2 / (degree * (degree - 1)) AS adds", "2 / (to_degree * (to_degree - 1)) AS to_adds")


def _triangles(outward: DataFrame, links: DataFrame) -> DataFrame:
    """id, share: each triangle once, at one corner, with what it adds to the shares of all three."""
    other = outward.select("id", F.col("to").alias("third"), F.col("to_adds").alias("third_adds"))
    wedges = outward.join(other, "id").where("to < third")
    closing = links.select(F.col("id").alias("third"), "to")
    return wedges.join(closing, ["to", "third"], "left_semi").selectExpr("id", "adds + to_adds + third_adds AS share")


def distances(members: DataFrame, links: DataFrame) -> DataFrame:
    """source, id, distance: breadth-first, in links, from SOURCES live nodes of each graph, or all where they are fewer.

    The sources are the first by a hash of the node: they stay the same from one instant to the next while they live. One
    that is not done after ROUNDS has no rows."""
    ways = links.withColumn("step", F.lit(1))
    front, new = _cut(_sources(members))
    before, rounds = front, [front]
    while new and len(rounds) <= ROUNDS:
        if len(rounds) == PLAIN:  # from here on a round spans several levels, and a way back may end in any of these
            ways, front = _shortcuts(members, links, front), reduce(_beside, rounds)
        (front, new), before = _cut(_further(front, before, ways)), front
        rounds.append(front)
    reached = reduce(_beside, rounds)
    done = reached.join(front, "source", "left_anti") if new else reached
    return _cut(done, "true", ways, *rounds)[0]


def _sources(members: DataFrame) -> DataFrame:
    order = Window.partitionBy(*GRAPH).orderBy(F.xxhash64(F.col("node").cast("long")), "node")
    first = members.withColumn("rank", F.row_number().over(order)).where(F.col("rank") <= SOURCES)
    return first.select(F.col("id").alias("source"), "id", F.lit(0).alias("distance"))


def _further(front: DataFrame, before: DataFrame, ways: DataFrame) -> DataFrame:
    """What is one way further than the front. No way is longer than a front is deep, so a way back ends in this front or
    in the one before."""
    onward = front.join(ways, "id").selectExpr("source", "to AS id", "distance + step AS distance", "false AS known")
    known = front.union(before).withColumn("known", F.lit(True))
    nearest = onward.union(known).groupBy("source", "id").agg(F.min("distance").alias("distance"), F.max("known").alias("known"))
    return nearest.where("NOT known").drop("known")


def _shortcuts(members: DataFrame, links: DataFrame, front: DataFrame) -> DataFrame:
    """run, moment, id, to, step: all pairs up to some distance, doubled while that is cheap, of the graphs with a front.
    It is cheap where it helps, for a graph of many levels has few nodes in most of them."""
    searched = members.join(front, "id", "left_semi")
    ways = members.join(searched, GRAPH, "left_semi").join(links, "id").select(*GRAPH, "id", "to", F.lit(1).alias("step"))
    reach = new = 1
    while new:
        ways, new = _cut(_doubled(ways, reach), f"step > {reach}", ways)
        reach *= 2
    return ways


def _doubled(ways: DataFrame, reach: int) -> DataFrame:
    """All pairs up to twice the distance. A graph for which that is not cheap stays as it is, and for good, since it has
    no pairs at a later `reach`."""
    cost = F.count_if(F.col("step") == reach) * F.count("*")
    costs = ways.groupBy(*GRAPH, "id").agg(cost.alias("cost")).groupBy(*GRAPH).agg(F.avg("cost").alias("cost"))
    cheap = F.broadcast(costs.where(F.col("cost") <= SHORTCUTS))
    first = ways.where(F.col("step") == reach).join(cheap, GRAPH, "left_semi")
    second = ways.select(F.col("id").alias("to"), F.col("to").alias("end"), F.col("step") + reach)
    longer = first.drop("step").join(second, "to").where("id != end").drop("to")  # now `end` stands where `to` did
    return ways.union(longer).groupBy(*GRAPH, "id", "to").agg(F.min("step").alias("step"))


def paths(members: DataFrame, distances: DataFrame) -> DataFrame:
    """run, moment, path_mean, path_max: over the pairs of a source and another node that it reaches."""
    others = distances.where("distance > 0").select(F.col("source").alias("id"), "distance")
    pairs = others.join(members, "id").groupBy(*GRAPH)
    return pairs.agg(F.avg("distance").alias("path_mean"), F.max("distance").alias("path_max"))


def components(members: DataFrame, links: DataFrame, distances: DataFrame) -> DataFrame:
    """run, moment, components, largest_share: how many sets of live nodes there are with no link between them, and the
    share of the live nodes in the largest. A node without links is a set of its own.

    Every node has a label, the id of a node in its set. What sources reach begins with the lowest one's, and most often
    that is all; the rest is settled round by round."""
    known = distances.groupBy("id").agg(F.min("source").alias("label"))
    labels, changed = _cut(members.join(known, "id", "left").select("id", F.coalesce("label", "id").alias("label")))
    while changed:
        labels, changed = _cut(_relabelled(labels, links), "label != old", labels)
    sizes = members.join(labels, "id").groupBy(*GRAPH, "label").agg(F.count("*").alias("size")).groupBy(*GRAPH)
    counts = sizes.agg(F.count("*").alias("components"), (F.max("size") / F.sum("size")).alias("largest_share"))
    return _cut(counts, "true", labels)[0]


def _relabelled(labels: DataFrame, links: DataFrame) -> DataFrame:
    """id, old, label. A node hands a lower label to those it is linked to, and to the nodes that these are labelled with,
    and takes the label of its label: so labels halve their way to the lowest one, whatever the set looks like."""
    here = labels.select("id", F.col("label").alias("old"))
    there = labels.select(F.col("id").alias("to"), "label")
    heard = links.join(here, "id").join(there, "to").where("label < old")
    heard = heard.select(F.explode(F.array("id", "old")).alias("id"), F.lit(None).alias("old"), "label")
    own = here.join(labels.select(F.col("id").alias("old"), "label"), "old").select("id", "old", "label")
    return own.union(heard).groupBy("id").agg(F.max("old").alias("old"), F.min("label").alias("label"))


def _telling(rows: DataFrame) -> DataFrame:
    """The few rows that decide: those of neighbours and lives, and for each node the times of its first and last row."""
    kinds = rows.where(F.col("kind").isin(NEIGHBOR_UP, NEIGHBOR_DOWN, NODE_UP, NODE_DOWN))
    ends = rows.groupBy("run", "node").agg(F.array(F.min("t"), F.max("t")).alias("ends"))
    other = ends.select("run", F.explode("ends").alias("t"), "node", F.lit("other").alias("kind"))
    return _beside(kinds.select("run", "t", "node", "kind", "peer"), other)


def _lives(rows: DataFrame, moments: DataFrame) -> DataFrame:
    """run, moment, node, fell: the live nodes, and when they last went down, null where they never did."""
    signs = _until(rows.select("run", "t", "node", _sign(NODE_UP, NODE_DOWN)), moments)
    return _standing(signs, *GRAPH, "node").select(*GRAPH, "node", F.col("fall").alias("fell"))


def _views(rows: DataFrame, moments: DataFrame, lives: DataFrame) -> DataFrame:
    changes = rows.where(F.col("kind").isin(NEIGHBOR_UP, NEIGHBOR_DOWN) & (F.col("node") != F.col("peer")))
    signs = _until(changes.select("run", "t", "node", "peer", _sign(NEIGHBOR_UP, NEIGHBOR_DOWN)), moments)
    lasting = signs.join(lives, [*GRAPH, "node"]).where("fell IS NULL OR t > fell")
    return _standing(lasting, *GRAPH, "node", "peer").select(*GRAPH, "node", "peer")


def _standing(signs: DataFrame, *what: str) -> DataFrame:
    """What came up and did not fall since."""
    rise, fall = (F.max(F.when(F.col("sign") == sign, F.col("t"))) for sign in (1, -1))
    last = signs.groupBy(*what).agg(rise.alias("rise"), fall.alias("fall"), F.sum("sign").alias("sum"))
    return last.where("fall IS NULL OR rise > fall OR rise = fall AND sum > 0")


def _sign(up: str, down: str) -> Column:
    return F.when(F.col("kind") == up, 1).when(F.col("kind") == down, -1).otherwise(0).alias("sign")


def _until(rows: DataFrame, moments: DataFrame) -> DataFrame:
    """Each row once for each instant at or after it."""
    instants = F.broadcast(moments.select(*GRAPH, F.col("t").alias("instant")))
    return rows.join(instants, "run").where("t <= instant").drop("instant")


def _beside(left: DataFrame, right: DataFrame) -> DataFrame:
    return left.unionByName(right, allowMissingColumns=True)


def _cut(frame: DataFrame, counted: str = "true", *spent: DataFrame) -> tuple[DataFrame, int]:
    """The rows without their history, which each later round would plan again; and how many of them are `counted`. What
    is `spent` was needed for them and is not needed any more.

    Persisted on top, because Spark believes of a checkpoint what it had estimated before: for every join the product of
    two sizes, after some rounds a number of thousands of digits, and never a broadcast."""
    frame = frame.localCheckpoint(eager=False).persist()
    count = frame.where(counted).count()
    for old in spent:
        old.unpersist()
    return frame, count
