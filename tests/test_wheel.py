"""The wheel and the sdist as users get them: built, and installed without extras in an empty environment, away from the tree.

Beside them stand the package PyPubSub, whose import name is `pubsub`, and a user's own `peer.py`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.live]

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("peer", "overlays", "pubsub", "bench", "examples")
SMALL = ("sim", "--nodes", "50", "--messages", "3")
BUILD = "from hatchling.build import build_{kind}; build_{kind}({folder!r})"


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run([*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, timeout=600)


def built(kind: str, tree: Path, folder: Path) -> Path:
    done = run(sys.executable, "-c", BUILD.format(kind=kind, folder=str(folder)), cwd=tree)
    assert done.returncode == 0, done.stderr
    (path,) = (path for path in folder.iterdir() if path.name.startswith("libweft-"))
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def bin_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("empty environment")  # with a space, as in many home folders
    venv.create(folder / "venv", with_pip=True)
    scripts = folder / "venv" / "bin"
    package = request.getfixturevalue(request.param)
    done = run(scripts / "python", "-m", "pip", "install", "--quiet", package, "PyPubSub", cwd=folder)
    assert done.returncode == 0, done.stderr
    return scripts


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A user's folder, with a module named like one of ours."""
    (tmp_path / "peer.py").write_text("raise SystemExit('this is not ours')")
    return tmp_path


def test_wheel_holds_every_source_under_one_name_and_nothing_else(wheel: Path) -> None:
    files = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file())
    expected = {f"libweft/{path.relative_to(ROOT).as_posix()}" for path in files if "__pycache__" not in path.parts}
    expected |= {"libweft/__init__.py", "libweft/__main__.py", "libweft/py.typed"}
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == expected


def test_a_wheel_made_of_the_sdist_is_the_wheel_made_of_the_tree(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as packed:
        packed.extractall(tmp_path / "tree", filter="data")
    (tree,) = (tmp_path / "tree").iterdir()
    (tmp_path / "again").mkdir()
    assert built("wheel", tree, tmp_path / "again").read_bytes() == wheel.read_bytes()


def test_make_setup_can_link_the_folders_of_an_unpacked_sdist(sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as packed:
        packed.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    (line,) = (line for line in (tree / "Makefile").read_text().splitlines() if "ln -s" in line)
    line = line.strip().removeprefix("@").replace("$(FOLDERS)", " ".join(FOLDERS)).replace("$$", "$")
    assert run("sh", "-ec", line, cwd=tree).returncode == 0
    done = run(sys.executable, "-c", "import libweft.pubsub; print(libweft.__file__)", cwd=tree / "src")
    assert done.stdout.strip() == str(tree / "src" / "libweft" / "__init__.py"), done.stderr


def test_libweft_and_pypubsub_share_an_environment(bin_folder: Path, place: Path) -> None:
    program = "import libweft.pubsub.stacks, pubsub.pub\nfor p in (libweft, pubsub): print(p.__file__)"
    done = run(bin_folder / "python", "-c", program, cwd=place)
    assert done.returncode == 0, done.stderr
    assert [Path(line).is_relative_to(bin_folder.parent) for line in done.stdout.splitlines()] == [True, True]


@pytest.mark.parametrize("name", ["pyarrow", "pyspark", "rich", "matplotlib"])
def test_plain_install_brings_no_extra(name: str, bin_folder: Path, place: Path) -> None:
    done = run(bin_folder / "python", "-c", f"import {name}", cwd=place)
    assert f"No module named '{name}'" in done.stderr


def test_the_first_program_of_the_readme_runs(bin_folder: Path, place: Path) -> None:
    text = (ROOT / "README.md").read_text()
    first = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    (place / "first.py").write_text(first)
    done = run(bin_folder / "python", "first.py", cwd=place)
    assert done.returncode == 0, done.stderr
    assert f"`{done.stdout.strip()}`" in text


def test_the_chat_starts_and_prints_an_invitation(bin_folder: Path, place: Path) -> None:
    chat = (bin_folder / "python", "-m", "libweft.examples.chat", "--name", "ada", "--listen", "/ip4/127.0.0.1/tcp/0")
    done = subprocess.run([*map(str, chat)], cwd=place, input="/quit\n", capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "a friend types: python -m libweft.examples.chat --name" in done.stdout


def test_a_live_node_works_without_extras(bin_folder: Path, place: Path) -> None:
    command = (bin_folder / "weft", "node", "--json", "--listen", "/ip4/127.0.0.1/tcp/0")
    with subprocess.Popen([*map(str, command)], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as node:
        assert node.stdout is not None
        (address,) = json.loads(node.stdout.readline())["addresses"]
        done = run(bin_folder / "weft", "ping", address, "--count", "1", cwd=place)
        node.terminate()
        _, complaints = node.communicate(timeout=60)
    assert (done.returncode, node.returncode, complaints) == (0, 0, ""), done.stderr


def test_help_exits_0(bin_folder: Path, place: Path) -> None:
    for command in ([bin_folder / "weft"], [bin_folder / "python", "-P", "-m", "libweft"]):
        done = run(*command, "--help", cwd=place)
        assert done.returncode == 0, done.stderr
        assert "sim" in done.stdout


def test_bad_usage_exits_2(bin_folder: Path, place: Path) -> None:
    done = run(bin_folder / "weft", "sim", "--nodes", "-1", cwd=place)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr


def test_sim_works_without_extras(bin_folder: Path, place: Path) -> None:
    done = run(bin_folder / "weft", *SMALL, "--json", cwd=place)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["reliability"] == 1.0
    plain = run(bin_folder / "weft", *SMALL, cwd=place)
    assert plain.returncode == 0, plain.stderr
    assert "reliability" in plain.stdout


def test_trace_without_pyarrow_names_the_extra(bin_folder: Path, place: Path) -> None:
    done = run(bin_folder / "weft", *SMALL, "--trace", place / "traces", cwd=place)
    assert done.returncode in (1, 2)
    (line,) = done.stderr.splitlines()
    assert "pip install 'libweft[trace]'" in line
    assert not (place / "traces").exists()
