"""Trace folders as DataFrames: some runs side by side, each with a number in the column `run`.

A folder is looked over before Spark reads it, because a query over half a trace answers as readily as over a whole one:
the manifest and its schema version, the footer of every part, their numbers and their rows, and each node's clock. What
makes figures meaningless is an error; what makes them partial or doubtful is a warning that goes with them.

Below it asks for the layout of `libweft.peer.trace`, on paths that the driver and the workers see alike. Bounds: one part's
times and nodes in memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from libweft.peer.errors import UsageError
from libweft.peer.machine import SECOND
from libweft.peer.trace.kinds import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

PLACE = "^[a-z]+:/*(.*)/"  # the folder of a file: Spark writes one slash after the scheme, or three
INT = 1 << 31
FEW = 4  # folders that are worth a scan of their own
WINDOW_S = 10.0  # of a trace that names none: the default of a scenario

ROWS = (
    "t long, node long, kind string, topic string, msg long, peer long, hops int, copies int, bytes long, lane string, "
    "reason string, dependencies array<long>"
)
MESSAGES = "msg long, source long, epoch long, sequence long"
_TYPES = {"long": "int64", "int": "int32", "string": "string", "array<long>": "list<int64>"}


class Struck(msgspec.Struct, frozen=True):
    at: float = 0.0


class Planned(msgspec.Struct, frozen=True):
    window: float = WINDOW_S
    faults: tuple[Struck, ...] = ()


class Manifest(msgspec.Struct, frozen=True):
    """What is read of a manifest, to see that it is one."""

    schema: Any
    rows: int = 0
    parts: int = 0
    named: int = 0
    kinds: tuple[str, ...] = ()
    scenario: Planned = Planned()


class ClockError(msgspec.Struct, frozen=True):
    error_us: int


class Missing(msgspec.Struct, frozen=True):
    lost: int
    refused: int


class Collected(msgspec.Struct, frozen=True):
    """What the manifest of a collected folder tells of each peer."""

    clock_offsets: dict[str, ClockError] = {}
    lost: dict[str, Missing] = {}


class Run(NamedTuple):
    """What is known of a run without reading its rows."""

    number: int
    name: str
    path: Path | None
    manifest: dict[str, Any]
    warnings: tuple[str, ...] = ()
    sized: bool = True
    """Whether rows tell the bytes of what was sent."""

    @property
    def window(self) -> int:
        return round(float(self.manifest.get("scenario", {}).get("window", WINDOW_S)) * SECOND)

    def wrote(self, *kinds: str) -> bool:
        """Whether the trace has these kinds of rows, if they happened."""
        return set(kinds) <= set(self.manifest.get("kinds", kinds))


class Traces(NamedTuple):
    """Runs side by side. `runs` has run and window; `rows` and `messages` are the trace's own columns after `run`.

    What is `held` is kept by Spark for them, and is to be given back.
    """

    about: tuple[Run, ...]
    runs: DataFrame
    rows: DataFrame
    messages: DataFrame
    held: tuple[DataFrame, ...] = ()


def load_traces(spark: SparkSession, directories: Sequence[Path]) -> Traces:
    """The runs in these folders; a folder without a trace of its own stands for the runs in it."""
    folders = folders_of(directories)
    names = _names(folders)
    about = tuple(look_over(number, names[number], folder) for number, folder in enumerate(folders))
    windows = [(run.number, run.window) for run in about]
    return Traces(
        about,
        numbers(spark, ("run", "window"), windows),
        _narrow(_read(spark, folders, "rows-*.parquet", ROWS), folders),
        _read(spark, folders, "messages-*.parquet", MESSAGES),
    )


def numbers(spark: SparkSession, columns: Sequence[str], rows: Sequence[Sequence[int]]) -> DataFrame:
    """A small table of whole numbers, `run` an int and the others longs, as part of the plan: no Python worker is started."""
    inline = ", ".join(f"({', '.join(f'{value}L' for value in row)})" for row in rows)
    source = f"VALUES {inline}" if rows else f"SELECT {', '.join('0L' for _ in columns)} WHERE false"
    return spark.sql(f"SELECT * FROM ({source}) AS t({', '.join(columns)})").withColumn("run", F.col("run").cast("int"))


def look_over(number: int, name: str, folder: Path) -> Run:
    """Read the manifest, the footers and the clocks; raises UsageError on a trace that cannot be trusted."""
    manifest = _manifest(folder)
    parts = _parts(folder, "rows")
    _check_numbers(folder, parts, manifest)
    rows = _check_footers(folder, parts, ROWS)
    named = _check_footers(folder, _parts(folder, "messages"), MESSAGES)
    for key, what, there in (("rows", "rows", rows), ("named", "messages", named)):
        if manifest.get(key, there) != there:
            raise UsageError(f"{folder} is not whole: its manifest tells of {manifest[key]:,} {what}, its files hold {there:,}")
    warnings = (*_unfinished(manifest), *_alone(manifest), *_collected(manifest), *_clock_warnings(parts))
    return Run(number, name, folder, {**manifest, "rows": rows}, warnings)


def folders_of(directories: Sequence[Path]) -> list[Path]:
    """The folders of the traces that these stand for; one that is named twice is one."""
    found = [folder for directory in directories for folder in _folders(directory)]
    return list({folder.resolve(): folder for folder in found}.values())


def _folders(directory: Path) -> list[Path]:
    if not directory.is_dir():
        why = "it is a file" if directory.exists() else "there is no such file or folder"
        raise UsageError(f"no trace in {directory}: {why}")
    if (directory / "manifest.json").exists() or any(directory.glob("rows-*.parquet")):
        return [directory]
    inner = sorted(path.parent for path in directory.glob("*/manifest.json"))
    if not inner:
        raise UsageError(f"no trace in {directory}: neither it nor a folder in it has a manifest.json, or files *.json or *.pb")
    return inner


def _names(folders: Sequence[Path]) -> list[str]:
    """The last part of the path, or more of it where that is not enough to tell them apart."""
    short = [folder.resolve().name for folder in folders]
    return [name if short.count(name) == 1 else str(folder) for name, folder in zip(short, folders, strict=True)]


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        version = manifest["schema"]
        msgspec.convert(manifest, Manifest)
        _told(manifest)
    except FileNotFoundError as error:
        raise UsageError(f"{folder} has no manifest.json, so nothing tells what its rows mean") from error
    except (ValueError, KeyError, TypeError) as error:  # msgspec's are ValueErrors
        raise UsageError(f"{folder / 'manifest.json'} is not the manifest of a trace: {error}") from error
    if version != SCHEMA:
        raise UsageError(f"{folder} has trace schema {version}, this weft reads {SCHEMA}; use the weft that wrote it")
    return dict(manifest)


def _told(manifest: dict[str, Any]) -> Collected:
    return msgspec.convert(manifest if manifest.get("collected") else {}, Collected)


def _parts(folder: Path, name: str) -> list[Path]:
    return sorted(folder.glob(f"{name}-*.parquet"))


def _check_numbers(folder: Path, parts: Sequence[Path], manifest: dict[str, Any]) -> None:
    there = {int(found[1]) for part in parts if (found := re.search(r"-(\d+)\.parquet$", part.name))}
    wanted = manifest.get("parts", max(there, default=-1) + 1)
    missing = sorted(set(range(wanted)) - there)
    if missing:
        raise UsageError(f"{folder} is not whole: rows-{missing[0]:05}.parquet is missing ({len(missing)} of {wanted} parts)")
    if not parts:
        raise UsageError(f"no trace in {folder}: it holds no rows-*.parquet" + _hint(manifest))


def _check_footers(folder: Path, parts: Sequence[Path], ddl: str) -> int:
    wanted = {name: _TYPES[type_] for name, type_ in _columns(ddl)}
    rows = 0
    for part in parts:
        try:
            footer = pq.ParquetFile(part)
        except (OSError, pa.ArrowException) as error:
            raise UsageError(f"{part} is not a whole Parquet file ({first_line(error)}); copy it again, or run again") from error
        with footer:
            found = {field.name: _type_name(field.type) for field in footer.schema_arrow}
            if found != wanted:
                raise UsageError(f"{part} has not the columns of schema {SCHEMA}: {_differences(found, wanted)}")
            rows += footer.metadata.num_rows
    return rows


def _columns(ddl: str) -> list[list[str]]:
    return [column.split() for column in ddl.split(", ")]


def _type_name(type_: pa.DataType) -> str:
    if pa.types.is_dictionary(type_):
        return _type_name(type_.value_type)
    return f"list<{_type_name(type_.value_type)}>" if pa.types.is_list(type_) else str(type_)


def _differences(found: dict[str, str], wanted: dict[str, str]) -> str:
    lacks = [name for name in wanted if name not in found]
    strange = [name for name in found if name not in wanted]
    other = [f"{name} is {found[name]}, not {wanted[name]}" for name in wanted if name in found and found[name] != wanted[name]]
    words = ([f"lacks {', '.join(lacks)}"] if lacks else []) + ([f"has also {', '.join(strange)}"] if strange else []) + other
    return "; ".join(words) or "their order differs"


def _unfinished(manifest: dict[str, Any]) -> Iterable[str]:
    status = manifest.get("status", "unknown")
    if status != "complete":
        why = f": {manifest['reason']}" if manifest.get("reason") else ""
        yield f"the run did not finish (status {status}{why}); the figures cover what was written"


def _alone(manifest: dict[str, Any]) -> Iterable[str]:
    if manifest.get("live") and not manifest.get("collected"):
        yield "this is the trace of one live node: what others published or received is not in it, and does not count"


def _collected(manifest: dict[str, Any]) -> Iterable[str]:
    """How exact the times of several hosts are, and what is not there."""
    told = _told(manifest)
    if told.clock_offsets:
        peer, worst = max(told.clock_offsets.items(), key=lambda item: item[1].error_us)
        yield (
            f"the clocks of {len(told.clock_offsets)} nodes were set right to {worst.error_us / 1_000:.3g} ms at worst ({peer}): "
            "latencies are no more exact than that"
        )
    if told.lost:
        lost, refused = (sum(getattr(one, name) for one in told.lost.values()) for name in ("lost", "refused"))
        yield (
            f"rows of {len(told.lost)} nodes are missing: {lost:,} did not fit into their buffers, {refused:,} were beyond their "
            "quota; reliability and deliveries may look lower than they were"
        )


def _clock_warnings(parts: Sequence[Path]) -> Iterable[str]:
    """A writer emits rows in order of time, so a step back is a clock that was set; one warning names the worst node."""
    steps = _steps_back(parts)
    if steps:
        node, step = max(steps.items(), key=lambda item: item[1])
        yield (
            f"clocks jump back on {len(steps)} of the nodes, by {step / SECOND:.6g} s on node {node}: "
            "times before and after cannot be compared, and latencies and reliability may be wrong"
        )


def _steps_back(parts: Sequence[Path]) -> dict[int, int]:
    """Nodes whose rows, as they were written, go back in time, with the largest step; bounded by the nodes seen."""
    worst: dict[int, int] = {}
    if not _in_order(parts):
        last: dict[int, int] = {}
        for t, node in map(_clock_columns, parts):
            _follow(t, node, last, worst)
    return worst


def _in_order(parts: Sequence[Path]) -> bool:
    """Whether time never goes back over all nodes: true of every sound run, and cheap to see."""
    end = None
    for t, _ in map(_clock_columns, parts):
        if len(t) and ((end is not None and t[0] < end) or (t[1:] < t[:-1]).any()):
            return False
        end = t[-1] if len(t) else end
    return True


def _clock_columns(part: Path) -> tuple[Any, Any]:
    table = pq.read_table(part, columns=["t", "node"], use_threads=False)
    return table["t"].to_numpy(), table["node"].to_numpy()


def _follow(t: Any, node: Any, last: dict[int, int], worst: dict[int, int]) -> None:
    if not len(t):
        return
    order = np.argsort(node, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(node[order]) != 0])
    for places in np.split(order, starts[1:]):
        who, times = int(node[places[0]]), t[places]
        steps = -np.diff(times, prepend=last.get(who, times[0]))
        if steps.max() > 0:
            worst[who] = max(worst.get(who, 0), int(steps.max()))
        last[who] = int(times[-1])


def _read(spark: SparkSession, folders: Sequence[Path], pattern: str, ddl: str) -> DataFrame:
    """All folders, with the number of each in `run`.

    A few are scans of their own, whose number is a constant to Spark and costs nothing. With many, planning them would
    cost more than reading: they are one scan, and a file tells by its name which run it is of. That costs more than to read a
    row; but where the folders are `run=0` and on, side by side, Spark takes them for partitions, and it is a constant again.
    """

    def scan(*which: Path) -> DataFrame:
        return reader(ddl).parquet(*map(location, which))

    def reader(columns: str) -> DataFrameReader:
        return spark.read.schema(columns).option("pathGlobFilter", pattern)

    parent, *places = (folders[0].resolve().parent, *(folder.resolve() for folder in folders))
    if places == [parent / f"run={number}" for number in range(len(places))]:
        scanned = reader(f"{ddl}, run int").option("basePath", f"file:{parent}").parquet(*map(location, places))
        return scanned.select("run", *(name for name, _ in _columns(ddl)))
    if len(folders) > FEW:
        return _numbered(scan(*folders), [scan(folder) for folder in folders])
    frames = [scan(folder).select(F.lit(number).cast("int").alias("run"), "*") for number, folder in enumerate(folders)]
    return reduce(lambda left, right: left.unionAll(right), frames)


def _numbered(frame: DataFrame, parts: Sequence[DataFrame]) -> DataFrame:
    """Add `run`, by the folder that a row's file lies in; `parts` are the same scans one by one, asked for their files."""
    firsts = [(number, file) for number, part in enumerate(parts) for file in part.inputFiles()[:1]]
    places = [(found[1], number) for number, file in firsts if (found := re.match(PLACE, file))]
    if not places:
        return frame.select(F.lit(0).cast("int").alias("run"), "*")
    inline = F.array(*(F.struct(F.lit(place).alias("place"), F.lit(number).alias("run")) for place, number in places))
    runs = frame.sparkSession.range(1).select(F.inline(inline))
    located = frame.withColumn("place", F.regexp_extract("_metadata.file_path", PLACE, 1))
    lost = F.raise_error(F.concat(F.lit("of which run is "), "place")).cast("int")
    return located.join(F.broadcast(runs), "place", "left").select(F.coalesce("run", lost).alias("run"), *frame.columns)


def _narrow(rows: DataFrame, folders: Sequence[Path]) -> DataFrame:
    """With nodes as ints where the footers tell that all are: to Spark a key of two ints is one long, and quicker."""
    parts = (part for folder in folders for part in _parts(folder, "rows"))
    if not all(_fits(pq.read_metadata(part), name) for part in parts for name in ("node", "peer")):
        return rows
    return rows.withColumns({name: F.col(name).cast("int") for name in ("node", "peer")})


def _fits(footer: pq.FileMetaData, name: str) -> bool:
    place = footer.schema.names.index(name)
    told = (footer.row_group(number).column(place).statistics for number in range(footer.num_row_groups))
    return all(found and (not found.num_values or (found.min >= -INT and found.max < INT)) for found in told)


def location(folder: Path) -> str:
    """On the file system whatever Hadoop's default is, with what a glob would take for its own escaped."""
    return "file:" + re.sub(r"([\[\]{}*?\\])", r"\\\1", str(folder.resolve()))


def _hint(manifest: dict[str, Any]) -> str:
    return f"; the run {manifest['status']}" if manifest.get("status") in ("running", "failed") else ""


def first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
