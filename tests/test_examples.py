"""Every example is a program that runs, and prints what is said here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PRINTS = {
    "embed_asyncio.py": "ping 0, ping 1, ping 2\n",
    "embed_sync.py": "ping 0, ping 1, ping 2\n",
    "questions.py": """as it comes:
  2: it is on your roof
  0: the black one
  0: who has seen my cat?
  1: which one?
in causal order:
  0: who has seen my cat?
  1: which one?
  0: the black one
  2: it is on your roof
""",
}


LIVE = {"embed_asyncio.py", "embed_sync.py"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.live if name in LIVE else ()) for name in PRINTS])
def test_the_example_prints(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / name)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, PRINTS[name], "")


def test_every_example_is_run() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == {*PRINTS, "__init__.py"}
