"""The facts of some traces, each computed once, when somebody asks for it, and kept: what all figures and tables are taken from.

The loud kinds (send, receive, duplicate, deliver, drop, queue) are most rows of a trace and are read again by who needs them:
`pairs`, `arrivals`, `load`, the copies of a message, the lengths of queues. All other rows are kept. What is small is cut off
from how it was made (a local checkpoint), because Spark plans a query over the whole of its past, and on a small trace planning
is the cost.
Distributions of everything, by run and by topic, hop and time, are one query, and so are the means.

Who wants to follow gives a `step`, which is called after each one with its name and the frame it made; `pairs` is not
yet computed then.

Bounds: Spark holds what is kept in memory and spills it to disk; nothing of it reaches the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, reduce
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from libweft.bench.spark import facts, latency, load, message_measures
from libweft.bench.spark.percentiles import group_of, histogram, spread, told_apart
from libweft.bench.spark.traces import Traces
from libweft.peer.trace.kinds import DELIVER, DROP, DUPLICATE, QUEUE, RECEIVE, SEND

if TYPE_CHECKING:
    from pyspark.sql import Column

Step: TypeAlias = Callable[[str, DataFrame], None]

LOUD = (SEND, RECEIVE, DUPLICATE, DELIVER, DROP, QUEUE)
QUIET = ("run", "t", "node", "kind", "topic", "msg", "peer", "dependencies")
PART = 1_000_000  # rows of a trace whose pairs are one task's

# What a group is of, as a number, those of pairs first. `key` is the topic, the hop or the beginning of the stretch of
# time, and 0 for what is of the whole run.
DELIVERY, RECEPTION, HELD_BACK, TOPIC, HOP, STRETCH, BARRIER, SUBSCRIPTION, WAITING, LOAD = range(10)
NAMES = ("delivery", "reception", "held back", "topic", "hop", "stretch", "barrier", "subscription", "waiting", *load.WHAT)
BY = ("run", "what", "key")


class Facts:
    """The frames of `libweft.bench.spark.facts`, each made when it is first asked for; `quiet` are the rows that are not loud."""

    def __init__(self, traces: Traces, step: Step) -> None:
        self.traces = traces
        self._step = step
        self._kept: list[DataFrame] = list(traces.held)

    @cached_property
    def quiet(self) -> DataFrame:
        return self._held(_quiet_rows(self.traces.rows))

    @cached_property
    def topics(self) -> DataFrame:
        topics = facts.topics(self.quiet).localCheckpoint()
        self._step("quiet", self.quiet)
        return topics

    @cached_property
    def publishes(self) -> DataFrame:
        found = facts.publishes(self.quiet, self.traces.messages, self.traces.runs, self.topics)
        return self._made("publishes", facts.handy(found))

    @cached_property
    def stays(self) -> DataFrame:
        return self._made("stays", facts.handy(facts.stays(self.quiet, self.topics)))

    @cached_property
    def arrivals(self) -> DataFrame:
        """The one that is not kept: to read it again costs less."""
        return facts.arrivals(self.traces.rows, self.publishes, self.stays)

    @cached_property
    def pairs(self) -> DataFrame:
        parts = 1 + sum(run.manifest.get("rows", 0) for run in self.traces.about) // PART
        return self._made("pairs", self._held(facts.pairs(self.traces.rows, self.publishes, self.stays, parts)))

    @cached_property
    def per_message(self) -> DataFrame:
        expected, copies = facts.expected(self.publishes, self.stays), facts.copies(self.traces.rows, self.publishes)
        found = facts.per_message(self.publishes, self.pairs, expected, copies)
        return self._made("per_message", found.localCheckpoint())

    @cached_property
    def load(self) -> DataFrame:
        carried = load.load(self.traces.rows)
        if unsized := [run.number for run in self.traces.about if not run.sized]:
            carried = carried.withColumn("bytes", F.when(~F.col("run").isin(unsized), F.col("bytes")))
        return self._made("load", carried.localCheckpoint())

    def _made(self, name: str, frame: DataFrame) -> DataFrame:
        self._step(name, frame)
        return frame

    def _held(self, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.persist())
        return frame

    def give_back(self) -> None:
        """The large frames; Spark forgets the small ones when nobody holds them."""
        for frame in self._kept:
            frame.unpersist()


class Groups(NamedTuple):
    """What is shown, by run, what and key."""

    means: DataFrame
    spreads: DataFrame
    bins: DataFrame


def _unheeded(name: str, frame: DataFrame) -> None:
    """For who does not follow."""


@contextmanager
def gathered(traces: Traces, step: Step = _unheeded) -> Iterator[Facts]:
    known = Facts(traces, step)
    try:
        yield known
    finally:
        known.give_back()


def _quiet_rows(rows: DataFrame) -> DataFrame:
    """All that are not loud, with the columns that anything asks of them."""
    return rows.select(*QUIET).where(~F.col("kind").isin(*LOUD))


def figure_groups(known: Facts) -> Groups:
    """Only what the figures of a run are taken from."""
    nothing = known.traces.runs.select("run", "run", "run", "run").where("false")
    times = {what: value for what, value in _of_run().items() if what != HELD_BACK}
    return Groups(_kept(_means(known.per_message, {})), _kept(told_apart(spread([_grouped(known.pairs, times)]))), nothing)


def groups(known: Facts, step: Step = _unheeded) -> Groups:
    """Everything that is shown."""
    per_message, carried = known.per_message, known.load  # first: who follows the steps wants each by itself
    stretches = message_measures.stretches(known.publishes).localCheckpoint()
    keys = {TOPIC: F.col("topic"), STRETCH: F.col("stretch")}
    means = _kept(_begun(_means(message_measures.placed(per_message, stretches), keys), stretches))
    step("means", means)
    keyed = {what: (key, latency.delivery()) for what, key in (keys | {HOP: F.col("hops")}).items()}
    of_pairs = _grouped(message_measures.placed(known.pairs, stretches), _of_run() | keyed)
    of_nodes = _grouped(carried, {LOAD + place: (F.lit(0), F.col(what)) for place, what in enumerate(load.WHAT)})
    spreads = _kept(_begun(told_apart(spread([of_pairs, of_nodes.unionAll(_of_quiet(known))])), stretches))
    step("spreads", spreads)
    bins = _kept(told_apart(histogram([_grouped(known.pairs, _of_run()), of_nodes], spreads)))
    step("bins", bins)
    return Groups(means, spreads, bins)


def _kept(frame: DataFrame) -> DataFrame:
    """In one piece, since it is small: then to sort it, or to join it with another, moves nothing."""
    return frame.coalesce(1).localCheckpoint()


def _means(per_message: DataFrame, keys: Mapping[int, Column]) -> DataFrame:
    """Of whole runs, and by these keys."""
    wanted = {DELIVERY: F.lit(0), **keys}
    marks = [F.struct(F.lit(what).alias("what"), key.cast("long").alias("key")) for what, key in wanted.items()]
    marked = per_message.withColumn("mark", F.explode(F.array(*marks))).select("*", "mark.*")
    return message_measures.summary(marked, BY)


def _begun(frame: DataFrame, stretches: DataFrame) -> DataFrame:
    """With the beginning of a stretch in the place of its number."""
    begin = F.when(F.col("what") == STRETCH, F.col("first") + F.col("key") * F.col("width")).otherwise(F.col("key"))
    return frame.join(F.broadcast(stretches), "run", "left").withColumn("key", begin).drop("first", "width")


def _of_run() -> dict[int, tuple[Column, Column]]:
    """Keys and values of pairs, over a whole run."""
    times = {DELIVERY: latency.delivery(), RECEPTION: latency.reception(), HELD_BACK: latency.held_back()}
    return {what: (F.lit(0), value) for what, value in times.items()}


def _of_quiet(known: Facts) -> DataFrame:
    frames = {
        BARRIER: known.publishes.select("run", latency.barrier().alias("value")),
        SUBSCRIPTION: latency.subscription(known.quiet),
        WAITING: load.queues(known.traces.rows),
    }
    return reduce(DataFrame.unionAll, (_grouped(frame, {what: (F.lit(0), F.col("value"))}) for what, frame in frames.items()))


def _grouped(frame: DataFrame, of: Mapping[int, tuple[Column, Column]]) -> DataFrame:
    """group, value: a row of each kind for each row of the frame, the value null where the key is.

    It takes one pass, where a union would take one a kind; and Spark need not look whether a group is null.
    """
    marked = frame.withColumn("what", F.explode(F.array(*map(F.lit, of))))
    groups = {what: group_of(what, F.coalesce(key, F.lit(0))) for what, (key, _) in of.items()}
    values = {what: F.when(key.isNotNull(), value.cast("long")) for what, (key, value) in of.items()}
    return marked.select(_by_what(groups).alias("group"), _by_what(values).alias("value"))


def _by_what(columns: Mapping[int, Column]) -> Column:
    *others, last = columns.items()
    return reduce(lambda other, item: F.when(F.col("what") == item[0], item[1]).otherwise(other), others, last[1])
