"""Modules of ours in processes of their own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from libweft.bench.perf.child import ROOT, command
from libweft.bench.perf.micro import micro


def test_a_file_of_the_user_s_that_is_named_like_a_module_of_ours_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("libweft", "peer", "pubsub", "random"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('this is not ours')")
    monkeypatch.chdir(tmp_path)
    assert micro(["kademlia-table"], quick=True)["cases"]["kademlia-table"]["exact"] == 1


def test_the_process_runs_the_tree_of_who_started_it_with_the_words_it_was_given(tmp_path: Path) -> None:
    program = "import json, sys, libweft; print(json.dumps([sys.argv[1:], libweft.__file__]))"
    (tmp_path / "told.py").write_text(program)
    words = [*command("told"), "one", "two"]
    done = subprocess.run(words, env={"PYTHONPATH": str(tmp_path)}, cwd="/", capture_output=True, text=True, check=True)
    argv, place = json.loads(done.stdout)
    assert argv == ["one", "two"] and place == f"{ROOT}/libweft/__init__.py"
