"""A pytest plugin for live tests: those that use sockets, a browser or a process of another program.

- A test without the marker `live` that binds or connects an internet socket fails. Spark's own sockets to Java are permitted.
- A live test has a deadline in seconds of real time, for each of its set-up, call and teardown: DEADLINE_S, SLOW_DEADLINE_S with
  the marker `slow`, or the marker's argument: `pytest.mark.live(deadline=600)`. A test that misses its deadline fails, and
  reports the stacks of all trio tasks and of all threads.
- `--outcomes FILE` writes what became of each test to FILE, one JSON object per line, for `tests.run_live`. The last line has the
  number of failures, so that a run which ended in its middle is known by its lack.

The deadline is a SIGALRM in the main thread. If trio runs there, the handler asks trio to cancel the main task, because an
exception that is raised inside of trio's scheduler would break it. If the test has not ended GRACE_S later, or if trio does
not run, the handler raises. A main thread that is stuck in foreign code sees no signal: there pytest's `faulthandler_timeout`
ends the run.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import trio

DEADLINE_S = 240.0
SLOW_DEADLINE_S = 900.0
GRACE_S = 20.0
FRAMES = 20  # of each thread that are shown

INTERNET = (socket.AF_INET, socket.AF_INET6)
SPARK = ("py4j", "pyspark")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", metavar="FILE", help="write what became of each test to FILE, one JSON object per line")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        live = "live" in report.keywords
        note({"test": report.nodeid, "outcome": "failed", "live": live, "when": report.when, "text": full_text(report)})
    elif report.passed and report.when == "call":
        note({"test": report.nodeid, "outcome": "passed"})


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        note({"test": report.nodeid, "outcome": "failed", "live": False, "when": "collection", "text": report.longreprtext})


def pytest_sessionfinish(session: pytest.Session) -> None:
    note({"failures": session.testsfailed})


def note(row: dict[str, object]) -> None:
    """Write a row to the file of `--outcomes`, if there is one; with xdist, only the controller does."""
    if (path := Outcomes.path) is not None:
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")


class Outcomes:
    path: Path | None = None


def pytest_configure(config: pytest.Config) -> None:
    if (path := config.getoption("--outcomes")) is not None and not hasattr(config, "workerinput"):
        Outcomes.path = Path(path)


def full_text(report: pytest.TestReport) -> str:
    """Return the failure with all that the test printed and logged."""
    sections = (f"{f' {title} ':-^100}\n{text}" for title, text in report.sections)
    return "\n".join([report.longreprtext, *sections])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if item.get_closest_marker("live") is not None:
        return (yield)
    with no_sockets(item.nodeid):
        return (yield)


@contextmanager
def no_sockets(test: str) -> Iterator[None]:
    """Let every attempt to bind or connect an internet socket fail `test`."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("bind", "connect", "connect_ex"):
            patch.setattr(socket.socket, name, guarded(getattr(socket.socket, name), test))
        yield


def guarded(method: Callable[..., Any], test: str) -> Callable[..., Any]:
    def checked(self: socket.socket, *arguments: Any) -> Any:
        if self.family in INTERNET and not is_spark(sys._getframe(1)):
            pytest.fail(f"{test} uses the socket {arguments}: mark the test with pytest.mark.live, or let it do without sockets")
        return method(self, *arguments)

    return checked


def is_spark(frame: FrameType | None) -> bool:
    """Return whether Spark's client calls: the collector of garbage may let it do so in any test."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] in SPARK:
            return True
        frame = frame.f_back
    return False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    with deadline(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with deadline(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    with deadline(item):
        return (yield)


def deadline_of(item: pytest.Item) -> float | None:
    """Return the deadline of a live test in seconds, None for other tests."""
    marker = item.get_closest_marker("live")
    if marker is None:
        return None
    default = SLOW_DEADLINE_S if item.get_closest_marker("slow") is not None else DEADLINE_S
    return float(marker.kwargs.get("deadline", default))


class Missed(BaseException):
    """The deadline of a live test has passed. No `except Exception` of the code under test catches this."""


@contextmanager
def deadline(item: pytest.Item) -> Iterator[None]:
    seconds = deadline_of(item)
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    stacks = ""

    def strike(number: int, frame: FrameType | None) -> None:
        nonlocal stacks
        first, stacks = not stacks, stacks or all_stacks(frame)
        if not (first and cancel_trio()):
            raise Missed

    before = signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, seconds, GRACE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if stacks:
            pytest.fail(f"{item.nodeid} was not done in {seconds:g} s\n{stacks}", pytrace=False)


def cancel_trio() -> bool:
    """Ask the trio that runs in this thread to cancel its main task. Return False if there is none."""
    try:
        token, root = trio.lowlevel.current_trio_token(), trio.lowlevel.current_root_task()
    except RuntimeError:
        return False
    if root is None or not root.child_nurseries:
        return False
    main = root.child_nurseries[-1]  # the nursery of trio's own tasks comes before the main task's
    token.run_sync_soon(main.cancel_scope.cancel)
    return True


def all_stacks(frame: FrameType | None) -> str:
    """Return the stacks of all trio tasks of this thread, as a tree, and those of all threads."""
    return "\n".join(["stacks of trio's tasks:", *task_stacks(), "stacks of the threads:", *thread_stacks(frame)])


def task_stacks() -> Iterator[str]:
    try:
        root = trio.lowlevel.current_root_task()
    except RuntimeError:
        root = None
    if root is None:
        yield "  trio does not run in the main thread"
        return
    waiting = [(root, 1)]
    while waiting:
        task, depth = waiting.pop()
        indent = "  " * depth
        yield f"{indent}task {task.name}"
        for found, line in task.iter_await_frames():
            if not found.f_globals.get("__name__", "").startswith("trio._core"):
                yield f"{indent}  {found.f_code.co_filename}:{line} in {found.f_code.co_name}"
        waiting += [(child, depth + 1) for nursery in task.child_nurseries for child in nursery.child_tasks]


def thread_stacks(frame: FrameType | None) -> Iterator[str]:
    """Yield the stack of every thread; `frame` is where the signal interrupted the main thread."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, found in sys._current_frames().items():
        yield f"  thread {names.get(ident, ident)}"
        shown = frame if frame is not None and ident == threading.get_ident() else found
        yield from ("  " + line.rstrip() for line in traceback.format_stack(shown)[-FRAMES:])
