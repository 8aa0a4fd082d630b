"""Small traces drawn at random, as odd as a trace may be: what the measures of a run are compared on.

`draw(random)` makes one. `drawn(seed)` is the same trace for the same seed; `cases()` is a hypothesis strategy, which
decides every draw itself and so shrinks the trace. Times come from a few values, so that ties and borders of windows
abound. There are stays that end at once, restarts after which a node receives and delivers again, relays, deliveries
to nobody's subscriber, rows before a message's publish, messages that nobody published here, everything twice, ids of
63 bits that differ in the last one alone, topics without a name, and nulls wherever a column may hold one.

`side_by_side` makes one `Traces` of many, as if they had been read from folders.

It promises rows in order of time, those of one time in no order; two `publish` rows of one message, time and node are
equal; the side table lists a message as often as it was published, and now and then one that was not.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from libweft.bench.spark.traces import MESSAGES, ROWS, Run, Traces
from libweft.peer.machine import SECOND, Lane, MessageId
from libweft.peer.trace.kinds import (
    DELIVER,
    DROP,
    DUPLICATE,
    JOIN,
    JOINED,
    KINDS,
    LEAVE,
    NODE_DOWN,
    NODE_UP,
    PUBLISH,
    QUEUE,
    RECEIVE,
    SEND,
)
from libweft.peer.trace.tables import message_key
from tests.bench.spark.oracle import Oracle, Origin, Row

NODES = (0, 1, 2, (1 << 62) + 1, (1 << 62) + 2, (1 << 63) - 1)  # the large ones are one number as doubles
TOPICS = (None, "a", "b")
LANES = (None, *(lane.name.lower() for lane in Lane), "payload", "payload")
SPANS = (3, 8, 20)
WINDOWS = (0, 1, 4, 10)
SCALES = (1, 1, 1_000, 1_000_003, 5_000_000)
STARTS = (0, 0, 7, 1 << 41)
PARTS = 3
ARROW = {"long": pa.int64(), "int": pa.int32(), "string": pa.string(), "array<long>": pa.list_(pa.int64())}


class Case(NamedTuple):
    """One run: its rows, the side table as the file lists it, the window, the instants of faults, and all ids."""

    rows: tuple[Row, ...]
    side: tuple[tuple[int, Origin], ...]
    window: int
    faults: tuple[int, ...]
    ids: dict[int, MessageId]
    seed: int | None = None

    def oracle(self) -> Oracle:
        return Oracle(self.rows, dict(self.side), self.window)

    def told(self) -> str:
        """All one needs to see what the measures saw."""
        rows = [", ".join(f"{k}={v!r}" for k, v in r._asdict().items() if v is not None) for r in self.rows]
        lines = [f"seed {self.seed}, window {self.window}, faults {self.faults}", *rows]
        return "\n  ".join([*lines, *(f"{msg} is {origin}" for msg, origin in self.side)])


def cases() -> st.SearchStrategy[Case]:
    return st.randoms(use_true_random=False).map(draw)


def drawn(seed: int) -> Case:
    return draw(Random(seed))._replace(seed=seed)


def draw(random: Random) -> Case:
    story = _Story(random)
    story.memberships()
    for msg in story.ids:
        if random.random() < 0.9:
            story.message(msg)
    story.noise()
    return story.told()


class _Story:
    """What happens in one run, kind by kind; put in order of time at the end."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.nodes = random.sample(NODES, random.choice((1, 2, 3, 3, 4, 4, 5, 5)))
        self.topics = random.sample(TOPICS, random.choice((1, 1, 2, 3)))
        self.span = random.choice(SPANS)
        self.calm = random.random() < 0.3  # then most of it goes well, so that something can recover
        self.ids = self._ids(random.choice((0, 1, 2, 3, 5, 5, 6, 6)))
        self.topic_of = {msg: random.choice(self.topics) for msg in self.ids}
        self.rows: list[Row] = []

    def memberships(self) -> None:
        """Most subscribe early and some again; a few leave or restart."""
        for node in self.nodes:
            for topic in self.topics:
                if self.random.random() < 0.8:
                    t = self.time(before=self.span // 3)
                    self.rows += [Row(t, node, JOIN, topic), Row(self.time(t, t + 1), node, JOINED, topic)]
            for kind in (LEAVE, NODE_DOWN):
                if self.random.random() < (0.05 if self.calm else 0.2):
                    self._away(node, kind)

    def message(self, msg: int) -> None:
        """Most are published by their source, in the order of their sequences, and reach most nodes."""
        random, sequence = self.random, self.ids[msg].sequence
        t = self.time() if random.random() < 0.2 else min(self.span, sequence * self.span // 7)
        publisher = self._source(msg)
        self.rows.append(self._publish(t, publisher, msg))
        if random.random() < 0.1:
            self.rows.append(self._publish(self.time(t), random.choice(self.nodes), msg))
        self.rows.append(self._traffic(t, publisher, SEND, msg))
        for node in self.nodes:
            if random.random() < (0.95 if self.calm else 0.8):
                self._arrival(t, node, msg)

    def noise(self) -> None:
        """Any row by anybody at any time."""
        for _ in range(self.random.randint(0, 3 if self.calm else 12)):
            self.rows.append(self._any(self.random.choice((*KINDS, SEND, DROP, QUEUE, JOINED, JOIN, LEAVE, DELIVER, RECEIVE))))

    def told(self) -> Case:
        """Scaled and moved as a whole, so that a border stays one."""
        self.random.shuffle(self.rows)
        scale, start = self.random.choice(SCALES), self.random.choice(STARTS)
        rows = self._same_publishes(sorted(self.rows, key=lambda r: r.t))
        rows = [r._replace(t=start + r.t * scale) for r in rows]
        faults = sorted({start + self.time() * scale for _ in range(self.random.randint(0, 2))})
        window = self.random.choice(WINDOWS) * scale
        return Case(tuple(rows), self._side(rows), window, tuple(faults), self.ids)

    def time(self, after: int = 0, before: int | None = None) -> int:
        return self.random.randint(after, max(after, self.span if before is None else before))

    def _ids(self, count: int) -> dict[int, MessageId]:
        """Of one or two sources, in one or two lives of each."""
        sources, epochs = self.random.choices(self.nodes, k=2), self.random.choice(((1,), (1,), (1, 9)))
        ids = [MessageId(self.random.choice(sources), self.random.choice(epochs), n) for n in range(1, count + 1)]
        return {message_key(id_): id_ for id_ in ids}

    def _source(self, msg: int) -> int:
        source = self.ids[msg].source
        assert isinstance(source, int)
        return source

    def _away(self, node: int, kind: str) -> None:
        """Gone at once or later, for good or not."""
        t, topic = self.time(), self.random.choice(self.topics)
        self.rows.append(Row(t, node, kind, topic if kind == LEAVE else None))
        if self.random.random() < 0.6:
            t = self.time(t)
            self.rows += [Row(t, node, NODE_UP)] if kind == NODE_DOWN else []
            self.rows += [Row(t, node, JOIN, topic), Row(self.time(t), node, JOINED, topic)]

    def _arrival(self, t: int, node: int, msg: int) -> None:
        """Received, and mostly delivered; sometimes early, sometimes once more."""
        random = self.random
        received = self.time(max(0, t - (random.random() < 0.1)), t + (1 if self.calm else random.choice((0, 1, 3, self.span))))
        self.rows.append(self._heard(received, node, RECEIVE, msg))
        if random.random() < (0.95 if self.calm else 0.8):
            self.rows.append(self._heard(self.time(received, received + random.choice((0, 1, 4))), node, DELIVER, msg))
        if random.random() < 0.3:
            self.rows.append(self._any(random.choice((SEND, DUPLICATE, RECEIVE, DELIVER)), node, msg))

    def _any(self, kind: str, node: int | None = None, msg: int | None = None) -> Row:
        random = self.random
        t, node = self.time(), random.choice(self.nodes) if node is None else node
        if msg is None and self.ids and random.random() < 0.8:
            msg = random.choice(list(self.ids))
        if kind in (SEND, DROP):
            return self._traffic(t, node, kind, msg)
        if kind in (RECEIVE, DELIVER, DUPLICATE):
            return self._heard(t, node, kind, msg)
        if kind == PUBLISH:
            return self._publish(t, node, msg) if msg is not None else Row(t, node, NODE_UP)
        return Row(t, node, kind, random.choice(self.topics), copies=random.randint(0, 9) if kind == QUEUE else None)

    def _publish(self, t: int, node: int, msg: int) -> Row:
        others = [m for m in self.ids if m != msg]
        earlier = [m for m in others if self.ids[m].sequence < self.ids[msg].sequence]
        known = earlier if self.random.random() < 0.9 else others
        dependencies = self.random.sample(known, self.random.randint(0, len(known)))
        return Row(t, node, PUBLISH, self.topic_of[msg], msg, hops=0, dependencies=tuple(dependencies))

    def _heard(self, t: int, node: int, kind: str, msg: int | None) -> Row:
        hops = self.random.choice((None, 0, 1, 2, 3))
        return Row(t, node, kind, None if msg is None else self.topic_of[msg], msg, self.random.choice(NODES), hops)

    def _traffic(self, t: int, node: int, kind: str, msg: int | None) -> Row:
        pick = self.random.choice
        copies, size, lane = pick((None, 0, 1, 3, 5)), pick((None, 1, 10, 1 << 40)), pick(LANES)
        return Row(t, node, kind, pick(self.topics), msg, copies=copies, bytes=size, lane=lane, reason=pick((None, "full")))

    def _same_publishes(self, rows: Sequence[Row]) -> list[Row]:
        seen: dict[tuple[int, int, int | None], Row] = {}
        return [seen.setdefault((r.t, r.node, r.msg), r) if r.kind == PUBLISH else r for r in rows]

    def _side(self, rows: Sequence[Row]) -> tuple[tuple[int, Origin], ...]:
        listed = [r.msg for r in rows if r.kind == PUBLISH and r.msg is not None]
        listed += [msg for msg in self.ids if self.random.random() < 0.1]
        id_ = self.ids.__getitem__
        return tuple((msg, Origin(self._source(msg), id_(msg).epoch, id_(msg).sequence)) for msg in listed)


def side_by_side(spark: SparkSession, runs: Sequence[Case], folder: Path) -> Traces:
    """Their rows in one folder, each run's in several files; a query must not lean on where rows stand."""
    rows = [{"run": number, **r._asdict()} for number, case in enumerate(runs) for r in case.rows]
    side = [{"run": number, "msg": msg, **o._asdict()} for number, case in enumerate(runs) for msg, o in case.side]
    windows = [(number, case.window) for number, case in enumerate(runs)]
    about = tuple(Run(number, str(number), None, _manifest(case)) for number, case in enumerate(runs))
    stored, messages = (
        _stored(spark, values, f"run int, {ddl}", folder / name)
        for values, ddl, name in ((rows, ROWS, "r"), (side, MESSAGES, "m"))
    )
    return Traces(about, spark.createDataFrame(windows, "run int, window long"), stored, messages)


def _stored(spark: SparkSession, values: Sequence[dict[str, Any]], ddl: str, folder: Path) -> DataFrame:
    folder.mkdir()
    schema = pa.schema([(name, ARROW[type_]) for name, type_ in (column.split() for column in ddl.split(", "))])
    for part in range(PARTS):
        pq.write_table(pa.Table.from_pylist(values[part::PARTS], schema), folder / f"{part}.parquet")
    return spark.read.schema(ddl).parquet(str(folder))


def _manifest(case: Case) -> dict[str, Any]:
    faults = [{"kind": "mass_crash", "at": at / SECOND, "share": 0.5} for at in case.faults]
    return {"status": "complete", "rows": len(case.rows), "scenario": {"window": case.window / SECOND, "faults": faults}}
