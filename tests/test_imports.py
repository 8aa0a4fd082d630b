"""The import rules: downwards only between the packages, and no IO, clock or chance in a machine."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import libweft

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("peer", "overlays", "pubsub", "bench", "examples")  # each may import itself and those before it
WORLD = frozenset(
    {"asyncio", "concurrent", "datetime", "logging", "multiprocessing", "os", "random", "secrets", "select", "selectors"}
    | {"socket", "ssl", "subprocess", "threading", "time", "trio", "uuid"}
)
WORLDS = ("peer/live", "peer/sim", "peer/fake", "peer/trace", "pubsub/live")  # folders in which there are no machines
ALLOWED = frozenset({("peer/machine.py", "random.Random")})  # for the type alone: the Env brings the object
HEAVY = ("matplotlib", "pyarrow", "pyspark", "rich")


def imported(path: str, source: str) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of each import, wherever in the file it stands."""
    package = ["libweft", *path.split("/")[:-1]]
    for node in ast.walk(ast.parse(source, path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = [*above, *([node.module] if node.module else [])]
            yield from ((node.lineno, ".".join([*module, alias.name])) for alias in node.names)


def is_machine(path: str) -> bool:
    """Machines stand apart from IO by folder; only a module named `live` may open a socket for the machine beside it."""
    return path.split("/")[0] not in ("bench", "examples") and not is_world(path)


def is_world(path: str) -> bool:
    folders = path.removesuffix(".py").split("/")
    return folders[-1] == "live" or "/".join(folders[:2]) in WORLDS


def complaints(path: str, source: str) -> list[str]:
    layer = path.split("/")[0]
    above = {*LAYERS[LAYERS.index(layer) + 1 :], "tests"}
    found = []
    for line, full in imported(path, source):
        name = full.removeprefix("libweft.")
        top = name.split(".")[0]
        if top in LAYERS and name == full and not full.startswith("tests."):
            found.append(f"{path}:{line}: imports {full}; its name is libweft.{full}")
        elif top in above:
            found.append(f"{path}:{line}: {layer} imports {full}, which is above it")
        elif is_machine(path) and top in WORLD and (path, full) not in ALLOWED:
            found.append(f"{path}:{line}: a machine imports {full}; time, chance and IO come from its Env")
        elif is_machine(path) and top in LAYERS and "live" in name.split("."):
            found.append(f"{path}:{line}: a machine imports {full}, which does IO")
    return found


def sources(*packages: str) -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for package in packages for path in (ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("path", sources(*LAYERS))
def test_imports_go_downwards_and_machines_touch_no_world(path: str) -> None:
    assert complaints(path, (ROOT / path).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("peer/sim/simulator.py", "import libweft.overlays"),
        ("peer/sim/simulator.py", "from libweft.bench.runs.run import run"),
        ("peer/sim/simulator.py", "from tests.conftest import note_replay"),
        ("peer/sim/simulator.py", "import peer.machine"),
        ("pubsub/flood.py", "from pubsub.router import Router"),
        ("pubsub/live/api.py", "from libweft.examples.chat import app"),
        ("pubsub/flood.py", "from libweft.pubsub.live.api import PubSub"),
        ("overlays/static.py", "from libweft.peer.live import host"),
        ("peer/libp2p/noise.py", "import secrets"),
        ("overlays/static.py", "import libweft.peer.machine, libweft.pubsub.router"),
        ("overlays/kademlia/table.py", "from libweft.pubsub import stacks"),
        ("overlays/static.py", "from ..pubsub import stacks"),
        ("pubsub/live/cli.py", "def run() -> None:\n    from libweft.bench import cli"),
        ("overlays/static.py", "from random import Random"),
        ("overlays/kademlia/table.py", "import time"),
        ("pubsub/flood.py", "import os.path"),
        ("pubsub/flood.py", "import trio as runtime"),
        ("pubsub/flood.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import asyncio"),
        ("pubsub/gossipsub/mesh.py", "try:\n    from logging import getLogger\nexcept ImportError:\n    pass"),
        ("pubsub/flood.py", "import socket, threading"),
        ("peer/machine.py", "import random"),
        ("peer/machine.py", "from random import random"),
        ("peer/machine.py", "from random import Random, choice"),
        ("peer/codec.py", "from random import Random"),
    ],
)
def test_the_checker_complains_about(path: str, source: str) -> None:
    assert complaints(path, source)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("bench/cli/sim.py", "import os, time, libweft.peer.sim.simulator, libweft.overlays, libweft.pubsub.stacks"),
        ("pubsub/live/api.py", "import trio\nfrom libweft.overlays import static"),
        ("pubsub/flood.py", "from libweft.peer.machine import Env\nfrom .router import Router\nimport msgspec"),
        ("pubsub/gossipsub/mesh.py", "from ..router import Router\nfrom . import score"),
        ("peer/machine.py", "from random import Random"),
        ("peer/sim/simulator.py", "import random, time"),
        ("overlays/static.py", "from timeit import timeit"),
        ("overlays/kademlia_udp/live.py", "import trio\nfrom libweft.peer.live.datagram import open_datagram"),
    ],
)
def test_the_checker_lets_pass(path: str, source: str) -> None:
    assert complaints(path, source) == []


def test_the_library_imports_nothing_heavy() -> None:
    """Every module of it, not the packages alone: a machine must load where no extra is installed."""
    modules = ["libweft." + path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in sources(*LAYERS[:3])]
    program = f"""
import importlib, sys
for module in {["libweft", *modules]!r}:
    importlib.import_module(module)
print(*sorted(set({HEAVY!r}) & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


@pytest.mark.parametrize("layer", LAYERS)
def test_a_folder_imported_by_its_bare_name_says_its_full_one(layer: str) -> None:
    """Else every module could be loaded twice, with two of each class."""
    done = subprocess.run([sys.executable, "-c", f"import {layer}"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert f"ImportError: import libweft.{layer}, not {layer}" in done.stderr


def test_importing_libweft_loads_none_of_its_layers() -> None:
    program = "import sys, libweft; print(*(name for name in sys.modules if name.startswith(('libweft.', 'trio'))))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == []


def test_the_front_door_has_every_name_it_promises() -> None:
    assert all(getattr(libweft, name) is not None for name in libweft.__all__)
    assert set(libweft.__all__) <= set(dir(libweft))
    with pytest.raises(AttributeError, match="it exports HostConfig, Identity"):
        libweft.Pubsub  # noqa: B018
