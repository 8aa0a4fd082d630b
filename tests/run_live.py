"""Run live tests, and those that fail once more: `python -m tests.run_live [pytest's arguments]`.

A live test depends on the load of the machine and on programs of others, so its first failure may have no reason in weft. When
the run is over, the live tests that failed run again, one after the other in a new process without xdist. If all of them
pass, the run passes too, and a line `flaky: NAME` with the whole first failure is printed for each. Otherwise the run fails.
A test without the marker `live` never runs twice: its failure fails the run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PYTEST = [sys.executable, "-m", "pytest"]
TESTS_FAILED = 1  # pytest's exit code; the others are not about a test


def main(arguments: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "failures")
        code = subprocess.run([*PYTEST, *arguments, "--failures", str(path)]).returncode
        failures = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    if code != TESTS_FAILED or not failures or not all(failure["live"] for failure in failures):
        return code
    return run_again(failures)


def run_again(failures: Sequence[dict[str, Any]]) -> int:
    """Run the tests of `failures` once more, up to the first that fails again, and report the flaky ones if all pass."""
    names = list(dict.fromkeys(failure["test"] for failure in failures))
    print(f"once more, alone, the live tests that failed: {len(names)}", flush=True)
    code = subprocess.run([*PYTEST, "-q", "-x", "-p", "no:xdist", "-m", "live", *names]).returncode
    if code == 0:
        for failure in failures:
            print(f"flaky: {failure['test']}, which failed at first in its {failure['when']}:\n{failure['text']}\n", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
