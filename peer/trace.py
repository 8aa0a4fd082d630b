"""The trace: what happened in a run, one row an event, the same schema for simulated and live runs.

A `Tracer` takes rows in order of emission. It fills in hops where the wire carries none, shows each row to an observer
(the in-process counters), hashes it, and writes it to Parquet when it was given a folder. The hash covers the rows of
the default level, whatever is written: a send call is one row with its number of copies; at level `full` the files
have a row a copy in its place.

A run's folder holds `rows-00000.parquet` and on, `messages-*.parquet` (msg -> source, epoch, sequence),
`nodes-*.parquet` (node -> peer id, live runs only) and `manifest.json`. Each file is written whole under a temporary
name that starts with a dot and then renamed, so a killed run leaves readable parts and the status `running`.
Rows hold neither wall clock nor paths: the same rows, level, kinds and pyarrow give the same bytes.

Above it promises: memory that does not grow with the run. Bounds, all owned here: `CHUNK` rows before they are hashed,
`batch` rows before they are written, `KEYS` cached ids of each sort, `HOPS_BYTES` of hop tables (oldest message first
out; after that its hops stay unknown).
"""

from __future__ import annotations

import json
import os
import time
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

import msgspec

from libweft.peer.errors import UsageError, WeftError
from libweft.peer.machine import Lane, MessageId, Peer

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = 1

NODE_UP: Final = "node_up"
NODE_DOWN: Final = "node_down"
LINK_UP: Final = "link_up"
LINK_DOWN: Final = "link_down"
NEIGHBOR_UP: Final = "neighbor_up"
NEIGHBOR_DOWN: Final = "neighbor_down"
JOIN: Final = "join"
JOINED: Final = "joined"
LEAVE: Final = "leave"
PUBLISH: Final = "publish"
SEND: Final = "send"
RECEIVE: Final = "receive"
DUPLICATE: Final = "duplicate"
DELIVER: Final = "deliver"
REJECT: Final = "reject"
DROP: Final = "drop"
GRAFT: Final = "graft"
PRUNE: Final = "prune"
QUEUE: Final = "queue"
ROLE: Final = "role"

KINDS: Final = (
    *(NODE_UP, NODE_DOWN, LINK_UP, LINK_DOWN, NEIGHBOR_UP, NEIGHBOR_DOWN, JOIN, JOINED, LEAVE, PUBLISH),
    *(SEND, RECEIVE, DUPLICATE, DELIVER, REJECT, DROP, GRAFT, PRUNE, QUEUE, ROLE),
)

CHUNK = 4_096  # rows are still in the processor's cache when they are hashed
BATCH = 131_072
KEYS = 65_536
HOPS_BYTES = 64 << 20
UNKNOWN = 0xFFFF

_CARRIES_HOPS = frozenset((PUBLISH, RECEIVE, DELIVER))
_LANES = {lane: lane.name.lower() for lane in Lane}
_INSTALL = "traces need pyarrow: pip install 'libweft[trace]'"
_NO_ROWS: tuple[tuple[Any, ...], ...] = ((),) * 12
_encode = msgspec.msgpack.Encoder().encode

Level: TypeAlias = Literal["none", "default", "full"]

Row: TypeAlias = tuple[
    int,
    Peer,
    str,
    str | None,
    MessageId | None,
    Peer | None,
    int | None,
    int | None,
    int | None,
    Lane | None,
    str | None,
    tuple[MessageId, ...],
]
"""t, node, kind, topic, msg, peer, hops, copies, size, lane, reason, dependencies: in the order of `Tracer.emit`."""


class TraceError(WeftError):
    """The trace could not be written; what was written before is whole."""


class Observer(Protocol):
    """Sees every row as it is emitted, hops filled in, whether files are written or not."""

    def observe(
        self,
        t: int,
        node: Peer,
        kind: str,
        topic: str | None,
        msg: MessageId | None,
        peer: Peer | None,
        hops: int | None,
        copies: int | None,
        size: int | None,
        lane: Lane | None,
        reason: str | None,
        dependencies: tuple[MessageId, ...],
    ) -> None: ...


class Tracer:
    """`emit` in order of time; then `close`, or `abort` when the run failed. Without a folder it only hashes and shows."""

    def __init__(
        self,
        directory: Path | None = None,
        *,
        level: Level = "default",
        kinds: Collection[str] | None = None,
        observer: Observer | None = None,
        manifest: Mapping[str, object] | None = None,
        batch: int = BATCH,
        hashed: bool = True,
    ) -> None:
        """Not `hashed`, rows of kinds that nobody asked for cost next to nothing."""
        _check(directory, level, kinds, batch)
        self.level = level
        self._observe = observer.observe if observer is not None else None
        self._recording = level != "none"
        self._hashing = hashed and self._recording
        self._heeded = None if hashed or observer is not None or kinds is None else frozenset(kinds) | {PUBLISH}
        self.needless = frozenset(KINDS) - (self._heeded or frozenset(KINDS)) - {RECEIVE}  # rows that tell nobody anything
        self._digest = blake2b(digest_size=16)
        self._rows: list[Row] = []
        self._hops = _Hops(HOPS_BYTES)
        self._full = level == "full"
        self._files = _Files(directory, level, kinds, manifest or {}, batch) if directory is not None else None

    def heeds(self, kind: str) -> bool:
        """Whether a row of that kind would be looked at: one that costs much to make need not be made else."""
        return self._heeded is None or kind in self._heeded

    def emit(
        self,
        t: int,
        node: Peer,
        kind: str,
        topic: str | None = None,
        msg: MessageId | None = None,
        peer: Peer | None = None,
        hops: int | None = None,
        copies: int | None = None,
        size: int | None = None,
        lane: Lane | None = None,
        reason: str | None = None,
        dependencies: tuple[MessageId, ...] = (),
    ) -> None:
        """One event; `size` is the length of one encoded message, `hops` None where the wire does not carry them."""
        if kind in _CARRIES_HOPS and (hops is None or kind != DELIVER):
            hops = self._hops.fill(kind, node, msg, peer, hops)
        if self._heeded is not None and kind not in self._heeded:
            return
        if self._observe is not None:
            self._observe(t, node, kind, topic, msg, peer, hops, copies, size, lane, reason, dependencies)
        if self._recording:
            row = (t, node, kind, topic, msg, peer, hops, copies, size, lane, reason, dependencies)
            rows = self._rows
            rows.append(row)
            if self._full and self._files is not None and kind != SEND:
                self._files.take((row,))
            if len(rows) >= CHUNK:
                self._drain()

    def copies(
        self,
        t: int,
        node: Peer,
        peers: Sequence[Peer],
        topic: str | None,
        msg: MessageId | None,
        size: int | None,
        lane: Lane | None,
    ) -> None:
        """The copies of one send call, for the files at level `full`; the call itself is emitted as ever, for the hash."""
        if self._full and self._files is not None:
            self._files.take([(t, node, SEND, topic, msg, peer, None, 1, size, lane, None, ()) for peer in peers])

    @property
    def hash(self) -> str | None:
        """Over all rows emitted so far, in order; None at level `none`, and if it was not asked for."""
        if not self._hashing:
            return None
        self._drain()
        return self._digest.hexdigest()

    @property
    def io_cpu_s(self) -> float:
        """Processor seconds spent on files, so that a measurement of the run can leave them out."""
        return self._files.cpu_s if self._files is not None else 0.0

    def flush(self) -> None:
        """Write what there is as a part of its own, for those who read along."""
        if self._files is not None:
            self._drain()
            self._files.flush()

    def close(self, **final: object) -> None:
        """Write what is left, then the manifest with status `complete` and what the caller adds."""
        if self._files is not None:
            self._drain()
            self._files.close({**final, "trace_hash": self.hash})

    def abort(self, reason: str) -> None:
        """Keep what can be kept and say why the run failed; never raises, whatever went wrong before."""
        if self._files is not None:
            with suppress(TraceError):
                self._drain()
            self._files.abort(reason)

    def _drain(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            if self._hashing:
                self._digest.update(memoryview(_encode(rows))[_header(len(rows)) :])
            if self._files is not None and not self._full:
                self._files.take(rows)


class _Hops:
    """For each recent message the hops at which each node got it; only nodes that are ints can index a table."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._width = 64
        self._tables: dict[MessageId, array[int]] = {}

    def fill(self, kind: str, node: Peer, msg: MessageId | None, peer: Peer | None, hops: int | None) -> int | None:
        if msg is None or not isinstance(node, int):
            return hops
        table = self._tables.get(msg)
        if kind == PUBLISH:
            self._note(table if table is not None else self._open(msg), node, 0)
        elif table is None:
            return hops
        elif kind == DELIVER:
            return _at(table, node)
        else:
            if hops is None and isinstance(peer, int):
                before = _at(table, peer)
                hops = None if before is None else before + 1
            if hops is not None and node < len(table) and hops < UNKNOWN:
                table[node] = hops  # the commonest case of a note
            elif hops is not None:
                self._note(table, node, hops)
        return hops

    def _open(self, msg: MessageId) -> array[int]:
        table = self._tables[msg] = array("H")
        self._grow(table, self._width)
        return table

    def _note(self, table: array[int], node: int, hops: int) -> None:
        if node >= len(table):
            self._grow(table, node + 1)
        if node < len(table):
            table[node] = min(hops, UNKNOWN - 1)

    def _grow(self, table: array[int], width: int) -> None:
        """Tables are born as wide as the widest, so that most never grow; a node beyond the limit has no place in one."""
        if 2 * width > self._limit:
            return
        if width > self._width:
            self._width = min(width + width // 4, self._limit // 2)
        more = self._width - len(table)
        table.frombytes(b"\xff\xff" * more)
        self._held += 2 * more
        while self._held > self._limit:
            self._held -= 2 * len(self._tables.pop(next(iter(self._tables))))


def _at(table: array[int], node: int) -> int | None:
    hops = table[node] if 0 <= node < len(table) else UNKNOWN
    return None if hops == UNKNOWN else hops


class _Files:
    """A run's folder. Every `batch` rows make one part of rows and of each side table, all with the same number."""

    def __init__(
        self, directory: Path, level: Level, kinds: Collection[str] | None, manifest: Mapping[str, object], batch: int
    ) -> None:
        parquet_library()
        self.cpu_s = 0.0
        self._directory = directory
        self._wanted = frozenset(KINDS if kinds is None else kinds)
        self._kept = self._wanted | {PUBLISH}  # a publish that is not wanted still names its message in the side table
        self._batch = batch
        self._pending: list[Row] = []
        self._parts = 0
        self._written = 0
        self._named = 0  # messages in the side table
        self._keys = Keys()
        self._open = True
        self._failure: TraceError | None = None
        wanted = [kind for kind in KINDS if kind in self._wanted]
        self._manifest = {**manifest, "schema": SCHEMA, "level": level, "kinds": wanted, "status": "running"}
        _claim(directory)
        try:
            self._write_manifest()
        except OSError as error:
            raise UsageError(f"cannot write to the trace folder {directory}: {why(error)}") from error

    def take(self, rows: Sequence[Row]) -> None:
        if not self._open:
            return
        kept = self._kept
        self._pending.extend([row for row in rows if row[2] in kept])
        while len(self._pending) >= self._batch:
            self._flush()

    def flush(self) -> None:
        if self._open and self._pending:
            self._flush()

    def close(self, final: Mapping[str, object]) -> None:
        if self._failure is not None:
            raise self._failure
        if not self._open:
            return
        if self._pending or not self._parts:
            self._flush()
        self._open = False
        self._manifest |= {**final, **self._counts(), "status": "complete"}
        try:
            self._write_manifest()
        except OSError as error:
            raise self._lost(error) from error

    def abort(self, reason: str) -> None:
        if self._manifest["status"] == "complete":
            return
        with suppress(TraceError):
            if self._open and self._pending:
                self._flush()
        self._open = False
        self._manifest |= {**self._counts(), "status": "failed", "reason": reason}
        with suppress(OSError):
            self._write_manifest()

    def _flush(self) -> None:
        """Side tables first, so that no part of rows names an id that is nowhere explained."""
        began = time.process_time()
        batch, self._pending = self._pending[: self._batch], self._pending[self._batch :]
        rows = [row for row in batch if row[2] in self._wanted]
        tables = {
            "rows": row_table(rows, self._keys),
            "messages": message_table(batch, self._keys),
            "nodes": node_table(self._keys),
        }
        try:
            for name in ("nodes", "messages", "rows"):
                if name == "rows" or tables[name].num_rows:
                    self._write_table(f"{name}-{self._parts:05}.parquet", tables[name])
        except OSError as error:
            raise self._lost(error) from error
        finally:
            self.cpu_s += time.process_time() - began
        self._parts += 1
        self._written += len(rows)
        self._named += tables["messages"].num_rows

    def _counts(self) -> dict[str, int]:
        return {"rows": self._written, "parts": self._parts, "named": self._named}

    def _lost(self, error: OSError) -> TraceError:
        """A trace with a hole is worse than a short one: nothing is written after a part that could not be."""
        self._open = False
        self._pending = []
        self._failure = TraceError(f"cannot write the trace to {self._directory}: {why(error)}; what was written before is whole")
        return self._failure

    def _write_table(self, name: str, table: pa.Table) -> None:
        with renamed(self._directory / name) as temporary:
            parquet_library().write_table(table, temporary, compression="zstd")

    def _write_manifest(self) -> None:
        text = json.dumps(self._manifest, indent=2, default=str) + "\n"
        with renamed(self._directory / "manifest.json") as temporary:
            temporary.write_text(text, encoding="utf-8")


class Keys:
    """Ids as the rows hold them. Both are pure functions, so forgetting is harmless but for a node listed twice."""

    def __init__(self) -> None:
        self.fresh: dict[bytes, int] = {}
        self._nodes: dict[bytes, int] = {}
        self._messages: dict[MessageId, int] = {}

    def node(self, peer: Peer) -> int:
        if isinstance(peer, int):
            return peer
        key = self._nodes.get(peer)
        if key is None:
            if len(self._nodes) >= KEYS:
                self._nodes.clear()
            key = self._nodes[peer] = self.fresh[peer] = node_key(peer)
        return key

    def message(self, msg: MessageId) -> int:
        key = self._messages.get(msg)
        if key is None:
            if len(self._messages) >= KEYS:
                self._messages.clear()
            key = self._messages[msg] = message_key(msg)
        return key


def node_key(peer: Peer) -> int:
    """A node in the rows: an int is itself, a peer id is 63 bits of its hash, which `nodes` maps back."""
    return peer if isinstance(peer, int) else hash63(peer)


def message_key(msg: MessageId) -> int:
    """A message in the rows: 63 bits of the hash of (source, epoch, sequence), which `messages` maps back."""
    return hash63(_encode(msg))


def read_rows(directory: Path) -> pa.Table:
    """All rows of the whole parts in a run's folder, in order of emission."""
    parquet = parquet_library()
    parts = sorted(Path(directory).glob("rows-*.parquet"))
    if not parts:
        raise UsageError(f"no trace in {directory}: it holds no rows-*.parquet")
    import pyarrow

    try:
        return pyarrow.concat_tables([parquet.read_table(part) for part in parts]).unify_dictionaries()
    except (OSError, pyarrow.ArrowException) as error:
        raise UsageError(f"the trace in {directory} cannot be read: {str(error).partition(chr(10))[0]}") from error


def row_table(rows: Sequence[Row], keys: Keys) -> pa.Table:
    import pyarrow as pa

    t, node, kind, topic, msg, peer, hops, copies, size, lane, reason, dependencies = (
        zip(*rows, strict=True) if rows else _NO_ROWS
    )
    columns = {
        "t": pa.array(t, pa.int64()),
        "node": pa.array([keys.node(n) for n in node], pa.int64()),
        "kind": _words(kind),
        "topic": _words(topic),
        "msg": pa.array([None if m is None else keys.message(m) for m in msg], pa.int64()),
        "peer": pa.array([None if p is None else keys.node(p) for p in peer], pa.int64()),
        "hops": pa.array(hops, pa.int32()),
        "copies": pa.array(copies, pa.int32()),
        "bytes": pa.array(size, pa.int64()),
        "lane": _words([None if x is None else _LANES[x] for x in lane]),
        "reason": pa.array(reason, pa.string()),
        "dependencies": pa.array(
            [[keys.message(m) for m in d] if k == PUBLISH else None for k, d in zip(kind, dependencies, strict=True)],
            pa.list_(pa.int64()),
        ),
    }
    return pa.table(columns)


def message_table(rows: Sequence[Row], keys: Keys) -> pa.Table:
    import pyarrow as pa

    published = [row[4] for row in rows if row[2] == PUBLISH and row[4] is not None]
    columns = {
        "msg": [keys.message(m) for m in published],
        "source": [keys.node(m.source) for m in published],
        "epoch": [m.epoch for m in published],
        "sequence": [m.sequence for m in published],
    }
    return pa.table({name: pa.array(column, pa.int64()) for name, column in columns.items()})


def node_table(keys: Keys) -> pa.Table:
    """Those seen since the last part."""
    import pyarrow as pa

    fresh, keys.fresh = keys.fresh, {}
    return pa.table({"node": pa.array(fresh.values(), pa.int64()), "peer": pa.array(fresh.keys(), pa.binary())})


def _words(column: Sequence[str | None]) -> Any:
    import pyarrow as pa

    return pa.array(column, pa.dictionary(pa.int32(), pa.string()))


@contextmanager
def renamed(path: Path) -> Iterator[Path]:
    """Give a temporary name to write to; it becomes `path` when all went well, and is gone when not."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _check(directory: Path | None, level: str, kinds: Collection[str] | None, batch: int) -> None:
    if level not in ("none", "default", "full"):
        raise UsageError(f"no trace level {level!r}; choose none, default or full")
    if level == "none" and directory is not None:
        raise UsageError("trace level none writes no files; choose default or full, or leave the trace folder out")
    strange = sorted(set(kinds or ()) - set(KINDS))
    if strange:
        raise UsageError(f"no trace kind {', '.join(strange)}; choose among {', '.join(KINDS)}")
    if batch < 1:
        raise UsageError(f"a trace batch has at least one row, not {batch}")


def _claim(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        taken = any(directory.iterdir())
    except OSError as error:
        raise UsageError(f"cannot make the trace folder {directory}: {why(error)}") from error
    if taken:
        raise UsageError(f"the trace folder {directory} is not empty; name a new one, since traces are never overwritten")


def parquet_library() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise UsageError(_INSTALL) from error
    return pyarrow.parquet


def why(error: OSError) -> str:
    """One line, also where Arrow wraps the system's words in its own."""
    return os.strerror(error.errno) if error.errno else str(error).partition("\n")[0]


def hash63(data: bytes) -> int:
    """What numbers in rows are made of."""
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big") >> 1


def _header(length: int) -> int:
    """Bytes before the first item of a MessagePack array: left out, so that the hash does not see where chunks end."""
    return 1 if length < 16 else 3 if length < 65_536 else 5
