"""Makes a trace of any size, for measuring the analysis itself: no protocol ran, but rows have the shape of a real run's.

A thousand nodes with ten topics each of fifty; a message reaches the subscribers of its topic and some relays. Per
receiver one send call of four copies, one reception, and duplicates; per subscriber one delivery, now and then after a
wait for a dependency, now and then never. Some nodes restart, leave and join again, forget what they had and get it
twice, so that no measure finds its short cut. Everything comes from one seed.

Bounds: one part of rows in memory, whatever `events` says.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from libweft.peer.machine import SECOND, MessageId
from libweft.peer.trace.kinds import KINDS, SCHEMA
from libweft.peer.trace.tables import message_key

NODES = 1_000
TOPICS = 50
INTERESTS = 10
LANES = ("control", "payload")
MESSAGES_A_PART = 128
SPAN = 10 * SECOND  # in which the messages of one part are published
GAP = 5 * SECOND  # longer than any latency, so that parts do not overlap and rows are in order of time
WINDOW = 10 * SECOND

Ints = npt.NDArray[np.int64]
_CODE = {kind: code for code, kind in enumerate(KINDS)}
_COLUMNS = ("t", "node", "kind", "topic", "msg", "peer", "hops", "copies", "bytes", "lane")
NONE = np.int64(-1)


class Generator:
    """`write` a folder of about so many rows."""

    def __init__(self, seed: int = 1) -> None:
        self._rng = np.random.default_rng(seed)
        self._seed = seed
        self._interests = np.stack([self._rng.choice(TOPICS, INTERESTS, replace=False) for _ in range(NODES)])
        self._members = [np.flatnonzero((self._interests == topic).any(axis=1)) for topic in range(TOPICS)]
        self._sequences = np.zeros(NODES, dtype=np.int64)
        self._recent: list[list[int]] = [[] for _ in range(TOPICS)]

    def write(self, directory: Path, events: int) -> int:
        """Answers how many rows were written: whole messages, so a few more than asked."""
        directory.mkdir(parents=True)
        written = part = 0
        start = SECOND
        while written < events:
            pieces, ids, dependencies = self._messages(start)
            if part == 0:
                pieces += self._opening()
            else:
                pieces += self._restarts(start)
            rows = _merge(pieces)
            _write(directory, "messages", part, pa.table(ids))
            _write(directory, "rows", part, _table(rows, dependencies))
            written += len(rows["t"])
            part += 1
            start += SPAN + GAP
        (directory / "manifest.json").write_text(json.dumps(self._manifest(written, part), indent=2) + "\n")
        return written

    def _opening(self) -> list[dict[str, Any]]:
        """Everyone comes up, joins its topics, and has five neighbours."""
        nodes = np.arange(NODES)
        topics = self._interests.ravel()
        joiners = np.repeat(nodes, INTERESTS)
        ends = np.concatenate([self._rng.permutation(NODES) for _ in range(5)])
        links = np.tile(nodes, 5)
        moment = self._rng.integers(1_000, SECOND // 2, len(joiners))
        return [
            _piece("node_up", t=np.zeros(NODES, np.int64), node=nodes),
            _piece("neighbor_up", t=np.full(len(links), 500), node=links, peer=ends),
            _piece("join", t=moment, node=joiners, topic=topics),
            _piece("joined", t=moment + self._rng.integers(100, 90_000, len(joiners)), node=joiners, topic=topics),
        ]

    def _restarts(self, start: int) -> list[dict[str, Any]]:
        """In the quiet between two parts some nodes go down and come back."""
        nodes = self._rng.choice(NODES, 5, replace=False)
        joiners, topics = np.repeat(nodes, INTERESTS), self._interests[nodes].ravel()
        down, up = start - GAP + SECOND * 3, start - SECOND
        return [
            _piece("node_down", t=np.full(len(nodes), down), node=nodes),
            _piece("node_up", t=np.full(len(nodes), up), node=nodes),
            _piece("join", t=np.full(len(joiners), up), node=joiners, topic=topics),
            _piece("joined", t=np.full(len(joiners), up + 50_000), node=joiners, topic=topics),
        ]

    def _messages(self, start: int) -> tuple[list[dict[str, Any]], dict[str, Ints], dict[int, list[int]]]:
        rng = self._rng
        topics = rng.integers(0, TOPICS, MESSAGES_A_PART)
        times = np.sort(rng.integers(start, start + SPAN, MESSAGES_A_PART))
        sources = np.array([rng.choice(self._members[topic]) for topic in topics])
        sequences = np.empty(MESSAGES_A_PART, np.int64)
        for number, source in enumerate(sources):
            sequences[number] = self._sequences[source]
            self._sequences[source] += 1
        pairs = zip(sources, sequences, strict=True)
        keys = np.array([message_key(MessageId(int(source), 1, int(sequence))) for source, sequence in pairs])
        dependencies: dict[int, list[int]] = {}
        for topic, key in zip(topics, keys, strict=True):
            recent = self._recent[topic]
            dependencies[int(key)] = recent[-int(rng.integers(0, 4)) :] if recent else []
            recent.append(int(key))
            del recent[:-8]
        ids = {"msg": keys, "source": sources, "epoch": np.ones(MESSAGES_A_PART, np.int64), "sequence": sequences}
        published = _piece("publish", t=times, node=sources, topic=topics, msg=keys, hops=np.zeros(MESSAGES_A_PART, np.int64))
        pieces = [published, self._queues(start)]
        for topic, source, time, key in zip(topics, sources, times, keys, strict=True):
            pieces += self._spread(int(topic), int(source), int(time), int(key))
        return pieces, ids, dependencies

    def _spread(self, topic: int, source: int, time: int, key: int) -> list[dict[str, Any]]:
        rng = self._rng
        members = self._members[topic]
        relays = rng.choice(NODES, len(members) // 10, replace=False)
        receivers = np.setdiff1d(np.concatenate([members, relays]), [source])
        hops = rng.integers(1, 8, len(receivers))
        arrival = time + hops * 20_000 + rng.integers(0, 100_000, len(receivers))
        subscribed = np.isin(receivers, members, assume_unique=True)
        waits = np.where(rng.random(len(receivers)) < 0.05, rng.integers(0, 2 * SECOND, len(receivers)), 0)
        delivered = subscribed & (rng.random(len(receivers)) > 0.01)
        again = rng.random(len(receivers)) < 0.001  # forgot it in a restart
        twice = np.repeat(np.arange(len(receivers)), rng.integers(0, 4, len(receivers)))
        same = {"topic": topic, "msg": key}
        senders = np.append(receivers, source)
        sent = np.append(arrival, time)
        return [
            _piece("receive", t=arrival, node=receivers, peer=rng.integers(0, NODES, len(receivers)), hops=hops, **same),
            _piece("receive", t=arrival[again] + SECOND, node=receivers[again], hops=hops[again], **same),
            _piece("send", t=sent, node=senders, copies=4, bytes=180, lane=1, **same),
            _piece("send", t=sent[::5], node=senders[::5], copies=1, bytes=24, lane=0),
            _piece("duplicate", t=arrival[twice] + 15_000, node=receivers[twice], **same),
            _piece("deliver", t=(arrival + waits)[delivered], node=receivers[delivered], hops=hops[delivered], **same),
        ]

    def _queues(self, start: int) -> dict[str, Any]:
        nodes = np.arange(0, NODES, 4)
        size = self._rng.geometric(0.2, len(nodes))
        return _piece("queue", t=np.full(len(nodes), start), node=nodes, copies=size, bytes=size * 180)

    def _manifest(self, rows: int, parts: int) -> dict[str, object]:
        scenario = {"stack": "generated", "nodes": NODES, "seed": self._seed, "window": WINDOW / SECOND, "faults": []}
        about = {"scenario": scenario, "stack": "generated", "seed": self._seed, "schema": SCHEMA, "level": "default"}
        return {**about, "kinds": list(KINDS), "status": "complete", "clock_offsets": {}, "rows": rows, "parts": parts}


def _piece(kind: str, **columns: Any) -> dict[str, Any]:
    """Some rows of one kind; what is left out is null, what is one number is the same in all."""
    size = len(columns["t"])
    full = {name: np.broadcast_to(np.asarray(columns.get(name, NONE), np.int64), size) for name in _COLUMNS}
    full["kind"] = np.broadcast_to(np.int64(_CODE[kind]), size)
    return full


def _merge(pieces: list[dict[str, Any]]) -> dict[str, Ints]:
    merged = {name: np.concatenate([piece[name] for piece in pieces]) for name in _COLUMNS}
    order = np.argsort(merged["t"], kind="stable")
    return {name: column[order] for name, column in merged.items()}


def _table(rows: dict[str, Ints], dependencies: dict[int, list[int]]) -> pa.Table:
    size = len(rows["t"])
    publish = rows["kind"] == _CODE["publish"]
    lists: list[list[int] | None] = [None] * size
    for place in np.flatnonzero(publish):
        lists[place] = dependencies[int(rows["msg"][place])]
    return pa.table(
        {
            "t": rows["t"],
            "node": rows["node"],
            "kind": _words(rows["kind"], KINDS),
            "topic": _words(rows["topic"], [f"topic-{number}" for number in range(TOPICS)]),
            "msg": _numbers(rows["msg"], pa.int64()),
            "peer": _numbers(rows["peer"], pa.int64()),
            "hops": _numbers(rows["hops"], pa.int32()),
            "copies": _numbers(rows["copies"], pa.int32()),
            "bytes": _numbers(rows["bytes"], pa.int64()),
            "lane": _words(rows["lane"], LANES),
            "reason": pa.nulls(size, pa.string()),
            "dependencies": pa.array(lists, pa.list_(pa.int64())),
        }
    )


def _numbers(column: Ints, type_: pa.DataType) -> pa.Array:
    return pa.array(column, pa.int64(), mask=column == NONE).cast(type_)


def _words(codes: Ints, words: Any) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32(), mask=codes == NONE), pa.array(words))


def _write(directory: Path, name: str, part: int, table: pa.Table) -> None:
    pq.write_table(table, directory / f"{name}-{part:05}.parquet", compression="zstd")
