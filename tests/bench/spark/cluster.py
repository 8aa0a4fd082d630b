"""A Spark of several processes on loopback, out of the installed package: a master, workers, and a Spark Connect server.

    with standalone(folder, workers=2) as cluster:
        cluster.master                    spark://127.0.0.1:PORT
        with cluster.connect() as remote:     sc://127.0.0.1:PORT, whose own work is done by the workers

Ports are free ones. A process counts as started when it says so in its log, and not after so many seconds. When the block fails,
the ends of all logs are printed; however it ends, all processes are gone after it, the executors of the workers too.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Condition, Thread

import pyspark

from libweft.bench.spark.session import QUICKLY, find_java, shim

ROOT = Path(__file__).parents[3]
SPARK = Path(pyspark.__file__).parent
START_S = 300.0  # of one process on a machine that has other things to do
LAST_LINES = 60
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


class Daemon:
    """A process, and what it has logged so far."""

    def __init__(self, name: str, words: Sequence[str], environment: dict[str, str]) -> None:
        self.name = name
        self.lines: list[str] = []
        self._news = Condition()
        self._over = False
        self._process = subprocess.Popen(
            words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def says(self, pattern: str) -> str:
        """Waits until a line has the pattern, and answers its first group."""
        with self._news:
            self._news.wait_for(lambda: self._over or self._found(pattern), START_S)
            found = self._found(pattern)
        if found is None:
            raise AssertionError(f"the {self.name} {'ended' if self._over else 'was silent'} before it said {pattern!r}")
        return found[1]

    def stop(self) -> None:
        """Its group, in which are the processes that it started."""
        for end in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, end)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(30)
        self._reader.join()  # the pipe ends with the last process that has it

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                with self._news:
                    self.lines.append(line)
                    self._news.notify_all()
        with self._news:
            self._over = True
            self._news.notify_all()

    def _found(self, pattern: str) -> re.Match[str] | None:
        return next((found for line in self.lines if (found := re.search(pattern, line))), None)


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.master = ""
        self.daemons: list[Daemon] = []
        home = folder / "java"
        home.mkdir()
        shim(home, find_java(), Path("/dev/stderr"))
        self.environment = {
            **os.environ,
            "JAVA_HOME": str(home),
            "SPARK_HOME": str(SPARK),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }

    def start(self, name: str, *words: str, memory: str = "256m") -> Daemon:
        program, *rest = words
        daemon = Daemon(name, [str(SPARK / "bin" / program), *rest], {**self.environment, "SPARK_DAEMON_MEMORY": memory})
        self.daemons.append(daemon)
        return daemon

    @contextmanager
    def connect(self) -> Iterator[str]:
        """A Spark Connect server that has its tasks done by the cluster."""
        settings = {
            "spark.master": self.master,
            "spark.executor.memory": "512m",
            "spark.driver.extraJavaOptions": QUICKLY,
            "spark.executor.extraJavaOptions": QUICKLY,
            "spark.ui.enabled": "false",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
        }
        words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        server = self.start("Connect server", "spark-submit", "--class", CONNECT, *words, "spark-internal", memory="1g")
        try:
            yield "sc://127.0.0.1:" + server.says(r"Spark Connect server started at: .*:(\d+)$")
        except BaseException:
            self.tell()
            raise
        finally:
            self.daemons.remove(server)
            server.stop()  # the next test needs the workers, which are its own as long as it runs

    def tell(self) -> None:
        """Prints the ends of all logs."""
        for daemon in self.daemons:
            print(f"--- the {daemon.name} ---", *daemon.lines[-LAST_LINES:], sep="\n")
        for path in sorted((self.folder / "work").glob("*/*/stderr")):
            print(f"--- executor {path.parent} ---", *path.read_text(errors="replace").splitlines()[-LAST_LINES:], sep="\n")


@contextmanager
def standalone(folder: Path, workers: int) -> Iterator[Cluster]:
    cluster = Cluster(folder)
    try:
        master = cluster.start("master", "spark-class", MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        cluster.master = master.says(r"Starting Spark master at (\S+)")
        words = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "512m"]
        words += ["--work-dir", str(folder / "work"), cluster.master]
        started = [cluster.start(f"worker {number}", "spark-class", WORKER, *words) for number in range(workers)]
        for worker in started:
            worker.says(r"Successfully registered with (master)")
        yield cluster
    except BaseException:
        cluster.tell()
        raise
    finally:
        for daemon in reversed(cluster.daemons):
            daemon.stop()
