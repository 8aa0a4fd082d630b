"""Run live tests, and those that fail once more: `python -m tests.run_live [pytest's arguments]`.

A live test depends on the load of the machine and on programs of others, so its first failure may have no reason in weft. When
the run is over, the live tests that failed run again, one after the other in a new process without xdist. If all of them
pass, the run passes too, and a line `flaky: NAME` with the whole first failure is printed for each. Otherwise the run fails.
A test without the marker `live` never runs twice: its failure fails the run. So does a run that ended in its middle, and a test
that is skipped the second time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TESTS_FAILED = 1  # pytest's exit code; the others are not about a test


def main(arguments: Sequence[str]) -> int:
    code, rows = run(arguments)
    failures = [row for row in rows if row.get("outcome") == "failed"]
    whole = bool(rows) and rows[-1].get("failures") == len(failures)
    if code != TESTS_FAILED or not whole or not all(failure["live"] for failure in failures):
        return code
    return run_again(failures)


def run(arguments: Sequence[str]) -> tuple[int, list[dict[str, Any]]]:
    """Run pytest. Return its exit code, and the rows of `--outcomes` (see `tests.live_plugin`)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "outcomes")
        code = subprocess.run([sys.executable, "-m", "pytest", *arguments, "--outcomes", str(path)]).returncode
        return code, [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run_again(failures: Sequence[dict[str, Any]]) -> int:
    """Run the tests of `failures` once more, up to the first that fails again, and report the flaky ones if all pass."""
    names = list(dict.fromkeys(failure["test"] for failure in failures))
    print(f"once more, alone, the live tests that failed: {len(names)}", flush=True)
    code, rows = run(["-q", "-x", "-p", "no:xdist", "-m", "live", *names])
    passed = {row["test"] for row in rows if row.get("outcome") == "passed"}
    if code == 0 and not passed.issuperset(names):
        print(f"not run again: {', '.join(name for name in names if name not in passed)}", flush=True)
        return TESTS_FAILED
    if code == 0:
        for failure in failures:
            print(f"flaky: {failure['test']}, which failed at first in its {failure['when']}:\n{failure['text']}\n", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
