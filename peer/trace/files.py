"""The folder of a run's trace: Parquet files and a manifest.

It holds `rows-00000.parquet` and on, `messages-*.parquet` (msg -> source, epoch, sequence), `nodes-*.parquet` (node -> peer id,
live runs only) and `manifest.json`. Each file is written whole under a temporary name that starts with a dot and then renamed,
so a killed run leaves readable parts and the status `running`. Rows hold neither wall clock nor paths: the same rows, level,
kinds and pyarrow give the same bytes.

Bounds: `batch` rows before they are written.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from libweft.peer.errors import UsageError
from libweft.peer.trace.kinds import KINDS, PUBLISH, SCHEMA, Level, Row, TraceError
from libweft.peer.trace.tables import Keys, message_table, node_table, row_table

if TYPE_CHECKING:
    import pyarrow as pa

BATCH = 131_072
_INSTALL = "traces need pyarrow: pip install 'libweft[trace]'"


class Files:
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
