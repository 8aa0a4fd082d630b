"""What a command line names as traces: folders that weft wrote, and files of go-libp2p-pubsub's tracers, singly or in folders.

Files that are named are one run together, and so are those of a folder; a folder of such folders stands for the runs in
it. A folder is weft's where it or one in it has a manifest. Runs of weft are numbered first.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from libweft.bench.spark import libp2p
from libweft.bench.spark.libp2p import Recording
from libweft.bench.spark.traces import Traces, folders_of, load_traces
from libweft.peer.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUFFIXES = tuple(f"{name}{gzip}" for name in (".json", ".jsonl", ".ndjson", ".pb") for gzip in ("", ".gz"))


class Sources(NamedTuple):
    folders: list[Path]
    recordings: list[Recording]

    @property
    def size(self) -> int:
        """Bytes of all rows and events, as they are stored."""
        parts = [part for folder in self.folders for part in folder.glob("rows-*.parquet")]
        return sum(path.stat().st_size for path in (*parts, *(file for run in self.recordings for file in run.files)))


def sources_of(paths: Sequence[Path]) -> Sources:
    """Raises a UsageError where one of them is no trace."""
    loose = list({path.resolve(): path for path in paths if path.is_file()}.values())
    for path in loose:
        if path.suffix == ".parquet" or path.name == "manifest.json":
            raise UsageError(f"{path} is a part of a trace of weft; name its folder, {path.parent}")
    recordings = {folder.resolve(): found for path in paths for folder, found in _recordings(path)}
    named = [Recording(_name(loose), loose[0].parent if len(loose) > 1 else loose[0], tuple(loose))] if loose else []
    others = [path for path in paths if not path.is_file() and not _recordings(path)]
    return Sources(folders_of(others), [*named, *recordings.values()])


def load_runs(spark: SparkSession, paths: Sequence[Path]) -> Traces:
    folders, recordings = sources_of(paths)
    if not recordings:
        return load_traces(spark, folders)
    foreign = libp2p.load(spark, recordings, len(folders))
    return _beside(load_traces(spark, folders), foreign) if folders else foreign


def _beside(left: Traces, right: Traces) -> Traces:
    return Traces(
        left.about + right.about,
        left.runs.unionAll(right.runs),
        left.rows.unionAll(right.rows),
        left.messages.unionAll(right.messages),
        left.held + right.held,
    )


def _name(files: Sequence[Path]) -> str:
    folder = files[0].resolve().parent
    alike = all(file.resolve().parent == folder for file in files)
    return files[0].name if len(files) == 1 else folder.name if alike else f"{len(files)} files"


def _recordings(path: Path) -> list[tuple[Path, Recording]]:
    weft = ("manifest.json", "rows-*.parquet", "*/manifest.json")
    if not path.is_dir() or any(found for pattern in weft for found in path.glob(pattern)):
        return []
    folders = [path] if _files(path) else sorted(inner for inner in path.iterdir() if inner.is_dir())
    return [(folder, Recording(folder.resolve().name, folder, files)) for folder in folders if (files := _files(folder))]


def _files(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(path for path in folder.iterdir() if path.name.lower().endswith(SUFFIXES) and path.is_file()))
