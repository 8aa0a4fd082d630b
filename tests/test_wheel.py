"""The wheel as a user gets it: built, and installed without extras in an empty environment, away from the source tree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("peer", "overlays", "pubsub", "bench")
SMALL = ("sim", "--nodes", "50", "--messages", "3")


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run([*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    done = run(*pip, "--wheel-dir", folder, ROOT, cwd=folder)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("weft-*.whl")
    return path


@pytest.fixture(scope="module")
def bin_folder(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("empty environment")  # with a space, as in many home folders
    venv.create(folder / "venv", with_pip=True)
    scripts = folder / "venv" / "bin"
    done = run(scripts / "python", "-m", "pip", "install", "--quiet", wheel, cwd=folder)
    assert done.returncode == 0, done.stderr
    return scripts


def test_wheel_holds_every_source_and_nothing_else(wheel: Path) -> None:
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file())
    expected = {path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == expected
    assert {f"{package}/py.typed" for package in PACKAGES} <= held


def test_packages_import_away_from_the_tree(bin_folder: Path, tmp_path: Path) -> None:
    program = "import peer, overlays, pubsub, bench\nfor p in (peer, overlays, pubsub, bench): print(p.__file__)"
    done = run(bin_folder / "python", "-c", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [Path(line).is_relative_to(bin_folder.parent) for line in done.stdout.splitlines()] == [True] * 4


@pytest.mark.parametrize("name", ["pyarrow", "pyspark", "rich", "matplotlib"])
def test_plain_install_brings_no_extra(name: str, bin_folder: Path, tmp_path: Path) -> None:
    done = run(bin_folder / "python", "-c", f"import {name}", cwd=tmp_path)
    assert f"No module named '{name}'" in done.stderr


def test_help_exits_0(bin_folder: Path, tmp_path: Path) -> None:
    done = run(bin_folder / "weft", "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "sim" in done.stdout


def test_bad_usage_exits_2(bin_folder: Path, tmp_path: Path) -> None:
    done = run(bin_folder / "weft", "sim", "--nodes", "-1", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr


def test_sim_works_without_extras(bin_folder: Path, tmp_path: Path) -> None:
    done = run(bin_folder / "weft", *SMALL, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["reliability"] == 1.0
    plain = run(bin_folder / "weft", *SMALL, cwd=tmp_path)
    assert plain.returncode == 0, plain.stderr
    assert "reliability" in plain.stdout


def test_trace_without_pyarrow_names_the_extra(bin_folder: Path, tmp_path: Path) -> None:
    done = run(bin_folder / "weft", *SMALL, "--trace", tmp_path / "traces", cwd=tmp_path)
    assert done.returncode in (1, 2)
    (line,) = done.stderr.splitlines()
    assert "weft[trace]" in line
    assert not (tmp_path / "traces").exists()
