"""Rules for all tests: hypothesis is deterministic, there is one Spark session, and live tests obey `tests.live_plugin`.

A simulated run that fails prints the command that replays the run.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["tests.live_plugin"]

hypothesis.settings.register_profile("weft", derandomize=True, deadline=None, print_blob=True, database=None)
hypothesis.settings.load_profile("weft")

REPLAY: deque[str] = deque(maxlen=8)
"""The last runs of the test at hand."""


def pytest_configure() -> None:
    """Whoever starts the tests in the background may have them, and what they start, ignore Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One for all tests of the measures: a process has one at a time, and starting it takes longer than most of them."""
    from libweft.bench.spark.session import spark_session

    with spark_session("local[2]", memory="1g", short=True) as session:
        yield session


def note_replay(line: str) -> None:
    """To be called before a scenario runs, with the one line that runs it again."""
    if line in REPLAY:
        REPLAY.remove(line)
    REPLAY.append(line)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    REPLAY.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and REPLAY:
        # hypothesis ends with its smallest failure; the runs before it are of other examples
        smallest = hypothesis.is_hypothesis_test(getattr(item, "obj", None))
        report.sections.append(("replay", REPLAY[-1] if smallest else "\n".join(REPLAY)))
    return report
