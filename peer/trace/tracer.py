"""The tracer: takes the rows of a run in order of emission.

It fills in hops where the wire carries none, shows each row to an observer (the in-process counters), hashes it, and writes it
to Parquet when it was given a folder. The hash covers the rows of the default level, whatever is written: a send call is one row
with its number of copies; at level `full` the files have a row per copy in its place.

It promises memory that does not grow with the run. Bounds: CHUNK rows before they are hashed, and those of the modules beside.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from libweft.peer.errors import UsageError
from libweft.peer.machine import Lane, MessageId, Peer
from libweft.peer.trace.files import BATCH, Files
from libweft.peer.trace.hops import HOPS_BYTES, Hops
from libweft.peer.trace.kinds import DELIVER, KINDS, PUBLISH, RECEIVE, SEND, Level, Observer, Row, TraceError
from libweft.peer.trace.tables import encode

CHUNK = 4_096  # rows are still in the processor's cache when they are hashed
_CARRIES_HOPS = frozenset((PUBLISH, RECEIVE, DELIVER))


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
        """With `hashed` false, rows of kinds that nobody asked for cost next to nothing."""
        _check(directory, level, kinds, batch)
        self.level = level
        self._observe = observer.observe if observer is not None else None
        self._recording = level != "none"
        self._hashing = hashed and self._recording
        self._heeded = None if hashed or observer is not None or kinds is None else frozenset(kinds) | {PUBLISH}
        self.needless = frozenset(KINDS) - (self._heeded or frozenset(KINDS)) - {RECEIVE}  # rows that tell nobody anything
        self._digest = blake2b(digest_size=16)
        self._rows: list[Row] = []
        self._hops = Hops(HOPS_BYTES)
        self._full = level == "full"
        self._files = Files(directory, level, kinds, manifest or {}, batch) if directory is not None else None

    def heeds(self, kind: str) -> bool:
        """Return whether anybody looks at rows of that kind. If not, a caller can spare itself the making of a costly row."""
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
                self._digest.update(memoryview(encode(rows))[_header(len(rows)) :])
            if self._files is not None and not self._full:
                self._files.take(rows)


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


def _header(length: int) -> int:
    """Bytes before the first item of a MessagePack array: left out, so that the hash does not see where chunks end."""
    return 1 if length < 16 else 3 if length < 65_536 else 5
