"""The collected folder: one run of many peers, in the layout of `libweft.peer.trace`, that a later start goes on with.

A part of rows has in its footer the standings of the peers whose batches it holds: what was written and what is known to be
written cannot differ, whenever the collector is killed. Beside the tables of a trace there is `clocks-*.parquet` (node, t,
offset, error): what was added to the times of each node's rows in the part of that number, and how far from the truth it may
be, in microseconds. The manifest has the last of these for each peer, and what each has lost.

Bounds: those of the rows that it is given; the ids of `libweft.peer.trace.tables.Keys`.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from libweft.peer.errors import UsageError
from libweft.peer.libp2p.ids import peer_text
from libweft.peer.live.collect.clock import Offset
from libweft.peer.live.collect.peer_account import Standing
from libweft.peer.trace.files import parquet_library, renamed, why
from libweft.peer.trace.kinds import KINDS, SCHEMA, Row, TraceError
from libweft.peer.trace.tables import Keys, message_table, node_table, row_table

STANDINGS = b"weft.standings"


class Entry(NamedTuple):
    """One peer's share of a part."""

    peer: bytes
    rows: Sequence[Row]
    standing: Standing
    offset: Offset | None


class Folder:
    """Held by one collector at a time, until `release`."""

    def __init__(self, directory: Path) -> None:
        parquet_library()
        self.directory = directory
        self.standings: dict[bytes, Standing] = {}
        self._keys = Keys()
        self._parts = self._rows = 0
        self._offsets: dict[str, dict[str, int]] = {}
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(directory)
            self._resume()
            self._write_manifest("running")
        except OSError as error:
            raise UsageError(f"cannot collect into {directory}: {why(error)}") from error

    def write(self, t: int, entries: Sequence[Entry]) -> None:
        """One part, whole or not at all; TraceError when it cannot be written."""
        self.standings |= {entry.peer: entry.standing for entry in entries}
        rows = [row for entry in entries for row in entry.rows]
        clocks = [(entry.peer, entry.offset) for entry in entries if entry.offset is not None]
        self._offsets |= {peer_text(peer): {"offset_us": clock.offset, "error_us": clock.error} for peer, clock in clocks}
        about = json.dumps({entry.peer.hex(): entry.standing for entry in entries})
        tables = {
            "rows": row_table(rows, self._keys).replace_schema_metadata({STANDINGS: about}),
            "messages": message_table(rows, self._keys),
            "clocks": _clock_table(t, clocks, self._keys),
            "nodes": node_table(self._keys),
        }
        try:
            for name in ("nodes", "messages", "clocks", "rows"):  # as in a trace, rows come last
                if name == "rows" or tables[name].num_rows:
                    with renamed(self.directory / f"{name}-{self._parts:05}.parquet") as temporary:
                        parquet_library().write_table(tables[name], temporary, compression="zstd")
            self._parts += 1
            self._rows += len(rows)
            self._write_manifest("running")
        except OSError as error:
            raise TraceError(f"cannot write to {self.directory}: {why(error)}; what was written before is whole") from error

    def complete(self) -> None:
        try:
            self._write_manifest("complete", rows=self._rows, parts=self._parts)
        except OSError as error:
            raise TraceError(f"cannot write to {self.directory}: {why(error)}") from error

    def release(self) -> None:
        os.close(self._lock)

    def _resume(self) -> None:
        there = [path for path in self.directory.iterdir() if not path.name.startswith(".")]
        if not there:
            return
        try:
            manifest = json.loads((self.directory / "manifest.json").read_text(encoding="utf-8"))
            ours = manifest.get("collected") is True and manifest.get("schema") == SCHEMA
            self._offsets = dict(manifest.get("clock_offsets", {}))
        except (OSError, ValueError, AttributeError, TypeError):
            ours = False
        if not ours:
            raise UsageError(f"{self.directory} is neither empty nor a folder of weft collect; name a new one")
        for part in sorted(self.directory.glob("rows-*.parquet")):
            self._recall(part)

    def _recall(self, part: Path) -> None:
        try:
            footer = parquet_library().read_schema(part)
            found = json.loads(footer.metadata[STANDINGS])
            self.standings |= {bytes.fromhex(peer): Standing(*values) for peer, values in found.items()}
            self._rows += parquet_library().read_metadata(part).num_rows
            self._parts = int(re.findall(r"\d+", part.name)[-1]) + 1
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            raise UsageError(f"{part} is no part of a collected trace; collect into a new folder") from error

    def _write_manifest(self, status: str, **final: int) -> None:
        lost: dict[str, Mapping[str, int]] = {
            peer_text(peer): {"lost": standing.lost, "refused": standing.refused}
            for peer, standing in self.standings.items()
            if standing.lost or standing.refused
        }
        manifest: dict[str, Any] = {"live": True, "collected": True, "clock": "collector", "schema": SCHEMA, "level": "default"}
        manifest |= {"kinds": KINDS, "status": status, "clock_offsets": self._offsets, "lost": lost, **final}
        with renamed(self.directory / "manifest.json") as temporary:
            temporary.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _clock_table(t: int, clocks: Iterable[tuple[bytes, Offset]], keys: Keys) -> Any:
    import pyarrow as pa

    rows = [(keys.node(peer), t, clock.offset, clock.error) for peer, clock in clocks]
    columns = zip(*rows, strict=True) if rows else ((),) * 4
    names = ("node", "t", "offset", "error")
    return pa.table({name: pa.array(column, pa.int64()) for name, column in zip(names, columns, strict=True)})


def _locked(directory: Path) -> int:
    """The kernel lets go of it when the process dies, however it does."""
    lock = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise UsageError(f"another collector writes to {directory}") from None
    return lock
