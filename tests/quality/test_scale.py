"""Large networks, by the command itself: the same bytes in every process, and a bound on memory."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import note_replay

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


def weft(line: str, hash_seed: str = "0") -> dict[str, Any]:
    """The figures that a fresh process prints as its last line."""
    note_replay(f"PYTHONHASHSEED={hash_seed} weft {line}")
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    words = [sys.executable, "-m", "libweft", *shlex.split(line)]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def test_10_000_nodes_get_every_message_and_leave_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    flood = "sim --stack static/flood --nodes 10000 --degree 8 --messages 20 --seed 1 --json --trace"
    folders = [tmp_path / "a", tmp_path / "b"]
    first, again = (weft(f"{flood} {folder}", seed) for folder, seed in zip(folders, ("1", "4321"), strict=True))
    assert first["reliability"] == again["reliability"] == 1.0
    assert first["deliveries"] == 20 * 9_999
    assert first["trace_hash"] == again["trace_hash"] is not None
    names = sorted(path.name for path in folders[0].iterdir())
    assert names == sorted(path.name for path in folders[1].iterdir())
    parquet = [name for name in names if name.endswith(".parquet")]
    assert len(parquet) > 1
    assert [name for name in parquet if (folders[0] / name).read_bytes() != (folders[1] / name).read_bytes()] == []


def test_100_000_nodes_run_to_the_end_in_under_a_gigabyte() -> None:
    figures = weft("sim --stack static/flood --nodes 100000 --degree 8 --messages 2 --trace-level none --json")
    print(f"{figures['peak_rss_mb']:.0f} MB, {figures['events']} events in {figures['cpu_s']:.1f} s")
    assert figures["reliability"] == 1.0
    assert figures["deliveries"] == 2 * 99_999
    assert figures["trace_hash"] is None
    assert figures["peak_rss_mb"] < 1_024
