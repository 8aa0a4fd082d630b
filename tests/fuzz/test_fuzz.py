"""Every decoder against real bytes that were changed a little, against any bytes, and against what once broke it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.run import CASES
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS, check

EXAMPLES = 60
ROOT = Path(__file__).parent.parent.parent
KEPT = sorted(CASES.glob("*/*.bin"))

numbers = st.integers(0, 1 << 16)
edits = st.one_of(
    st.tuples(st.just("flip"), numbers, st.integers(0, 7)),
    st.tuples(st.just("put"), numbers, st.sampled_from([b"\x00", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff", b"/", b"\n"])),
    st.tuples(st.just("insert"), numbers, st.binary(min_size=1, max_size=16)),
    st.tuples(st.just("remove"), numbers, st.integers(1, 40)),
    st.tuples(st.just("repeat"), numbers, st.integers(1, 40)),
    st.tuples(st.just("end"), numbers, st.just(0)),
)


def changed(data: bytes, kind: str, position: int, how: int | bytes) -> bytes:
    at = position % (len(data) + 1)
    match kind, how:
        case "flip", int(bit):
            return data[:at] + bytes(byte ^ 1 << bit for byte in data[at : at + 1]) + data[at + 1 :]
        case "put", bytes(part):
            return data[:at] + part + data[at + len(part) :]
        case "insert", bytes(part):
            return data[:at] + part + data[at:]
        case "remove", int(size):
            return data[:at] + data[at + size :]
        case "repeat", int(size):
            return data[: at + size] + data[at:]
        case _:
            return data[:at]


@st.composite
def inputs(draw: st.DrawFn, name: str) -> bytes:
    """Mostly real ones, or two joined, with a few edits."""
    data = draw(st.one_of(st.sampled_from(seeds(name)), st.binary(max_size=300)))
    if draw(st.integers(0, 4)) == 0:
        data += draw(st.sampled_from(seeds(name)))
    for kind, position, how in draw(st.lists(edits, max_size=4)):
        data = changed(data, kind, position, how)
    return data


@pytest.mark.parametrize("name", TARGETS)
def test_real_bytes(name: str) -> None:
    assert seeds(name)
    for data in seeds(name):
        check(name, data)


@pytest.mark.parametrize("name", TARGETS)
def test_changed_bytes(name: str) -> None:
    @settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
    @given(inputs(name))
    def run(data: bytes) -> None:
        check(name, data)

    run()


@pytest.mark.parametrize("path", KEPT, ids=[f"{path.parent.name}/{path.stem}" for path in KEPT])
def test_what_once_broke_a_decoder(path: Path) -> None:
    check(path.parent.name, path.read_bytes())


@pytest.mark.slow
def test_a_few_seconds_guided_by_coverage() -> None:
    pytest.importorskip("atheris", reason="atheris has no wheel for this Python")
    done = subprocess.run([sys.executable, "-m", "tests.fuzz.run", "--seconds", "3"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
