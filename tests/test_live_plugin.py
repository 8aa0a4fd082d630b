"""The rules of live tests: who needs the marker, what a deadline shows, and what is run once more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live_plugin import DEADLINE_S, SLOW_DEADLINE_S, deadline_of
from tests.waiting import until

ROOT = Path(__file__).parent.parent
CONFIG = """
[tool.pytest.ini_options]
addopts = ["--strict-markers", "-p", "no:hypothesispytest", "-p", "tests.live_plugin"]
trio_mode = true
filterwarnings = ["error"]
markers = ["live(deadline): for tests.live_plugin", "slow: for tests.live_plugin"]
"""
HEAD = """
import pathlib, socket, time
import pytest, trio

def runs(name):
    path = pathlib.Path(name)
    path.write_text(path.read_text() + "x" if path.exists() else "x")
    return len(path.read_text())
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").write_text(CONFIG)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
    return tmp_path


def play(project: Path, text: str, *command: str) -> tuple[int, str]:
    """Run a file of tests in a project of its own. Return the exit code and the output."""
    (project / "test_it.py").write_text(HEAD + text)
    command = (sys.executable, "-m", *(command or ("tests.run_live",)), "-q")
    done = subprocess.run(command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


FAILS_ONCE = """
@pytest.mark.live
def test_moody():
    print("printed in run", runs("moody"))
    assert runs("moody") > 2, "the first reason"
"""
FAILS_TWICE = """
@pytest.mark.live
def test_broken():
    assert runs("broken") < 0, "the reason"
"""
DETERMINISTIC = """
def test_plain():
    assert runs("plain") > 1, "a plain reason"
"""


def test_a_live_test_that_fails_once_is_called_flaky_and_the_run_passes(project: Path) -> None:
    code, out = play(project, FAILS_ONCE, "tests.run_live", "-n", "1")
    assert code == 0, out
    flaky = out.partition("flaky: test_it.py::test_moody")[2]
    assert "the first reason" in flaky and "printed in run 1" in flaky


def test_a_live_test_that_fails_twice_fails_the_run(project: Path) -> None:
    code, out = play(project, FAILS_ONCE + FAILS_TWICE)
    assert code == 1 and "flaky:" not in out
    assert (project / "broken").read_text() == "xx"


def test_a_test_without_the_marker_is_never_run_twice(project: Path) -> None:
    code, out = play(project, DETERMINISTIC + FAILS_ONCE)
    assert code == 1 and "once more" not in out
    assert (project / "plain").read_text() == "x"


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_file_that_cannot_be_read_fails_the_run(project: Path, options: tuple[str, ...]) -> None:
    (project / "test_bad.py").write_text("1 / 0")
    code, out = play(project, FAILS_ONCE, "tests.run_live", *options)
    assert code != 0 and "flaky:" not in out


ENDS = """
import os

@pytest.mark.live
def test_that_takes_all_with_it():
    os._exit(1)
"""
SKIPS = """
@pytest.mark.live
def test_that_skips_the_second_time():
    if runs("skips") == 2:
        pytest.skip("there is nothing to test")
    assert False, "the first reason"
"""


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_run_that_ends_in_its_middle_is_not_saved_by_tests_that_pass_later(project: Path, options: tuple[str, ...]) -> None:
    code, out = play(project, FAILS_ONCE + ENDS, "tests.run_live", *options)
    assert code == 1 and "flaky:" not in out


def test_a_test_that_is_skipped_the_second_time_has_not_passed(project: Path) -> None:
    code, out = play(project, SKIPS)
    assert code == 1 and "flaky:" not in out and "not run again: test_it.py::test_that_skips_the_second_time" in out


HANGS = """
async def waits_for_nobody():
    await trio.sleep_forever()

@pytest.mark.live(deadline=1)
async def test_hangs():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waits_for_nobody, name="a task that waits")

@pytest.mark.live(deadline=1)
def test_sleeps():
    time.sleep(600)

@pytest.mark.live(deadline=1)
async def test_turns():
    while True:
        pass

@pytest.fixture
def never():
    time.sleep(600)

@pytest.mark.live(deadline=1)
def test_never_starts(never):
    pass

@pytest.mark.live
def test_in_time():
    pass
"""


def test_a_deadline_ends_a_test_and_shows_the_stacks_of_its_tasks_and_threads(project: Path) -> None:
    (project / "conftest.py").write_text("from tests import live_plugin\nlive_plugin.GRACE_S = 2.0")
    code, out = play(project, HANGS, "pytest")
    assert code == 1 and "3 failed, 1 passed, 1 error" in out, out
    assert out.count("was not done in 1 s") >= 4
    assert "task a task that waits" in out and "in waits_for_nobody" in out
    assert "in test_sleeps" in out and "in test_turns" in out and "in never" in out


@pytest.mark.parametrize(
    ("marks", "seconds"),
    [
        ([], None),
        ([pytest.mark.slow], None),
        ([pytest.mark.live], DEADLINE_S),
        ([pytest.mark.live, pytest.mark.slow], SLOW_DEADLINE_S),
        ([pytest.mark.live(deadline=7), pytest.mark.slow], 7),
    ],
)
def test_the_deadline_is_that_of_the_marker_or_longer_for_a_slow_test(
    marks: list[pytest.MarkDecorator], seconds: float | None, request: pytest.FixtureRequest
) -> None:
    item = pytest.Function.from_parent(request.node.parent, name="test", callobj=lambda: None)
    for mark in marks:
        item.add_marker(mark)
    assert deadline_of(item) == seconds


SOCKETS = """
import asyncio

def test_connects():
    with socket.socket() as sock:
        sock.connect(("127.0.0.1", 1))

async def test_listens():
    await trio.open_tcp_listeners(0, host="127.0.0.1")

def test_swallows():
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        try:
            sock.bind(("127.0.0.1", 0))
        except Exception:
            pass

@pytest.mark.live
async def test_may():
    for listener in await trio.open_tcp_listeners(0, host="127.0.0.1"):
        await listener.aclose()

def test_needs_none():
    asyncio.run(asyncio.sleep(0))
    trio.run(trio.sleep, 0)
    one, two = socket.socketpair()
    one.close()
    two.close()
"""


def test_a_test_without_the_marker_may_not_use_sockets(project: Path) -> None:
    code, out = play(project, SOCKETS, "pytest")
    assert code == 1 and "3 failed, 2 passed" in out, out
    assert out.count("mark the test with pytest.mark.live") >= 3


async def test_a_wait_in_vain_says_what_was_waited_for(autojump_clock: object) -> None:
    with pytest.raises(AssertionError, match=r"waited 60 s in vain for .*test_live_plugin.py:\d+: await until\(lambda: 1 > 2\)"):
        await until(lambda: 1 > 2)
    with pytest.raises(AssertionError, match="in vain for a miracle"):
        await until(lambda: False, "a miracle")
