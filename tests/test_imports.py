"""The import rules: downwards only between the packages, and no IO, clock or chance in a machine."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("peer", "overlays", "pubsub", "bench")  # each may import itself and those before it
OUTSIDE = frozenset({"tests", "examples"})
WORLD = frozenset(
    {"asyncio", "concurrent", "datetime", "logging", "multiprocessing", "os", "random", "secrets", "select", "selectors"}
    | {"socket", "ssl", "subprocess", "threading", "time", "trio", "uuid"}
)
MACHINES_IN_PEER = frozenset({"peer/machine.py", "peer/codec.py", "peer/dispatch.py"})
NO_MACHINES = frozenset(
    {"pubsub/alone.py", "pubsub/api.py", "pubsub/cli.py", "pubsub/shell.py", "pubsub/subscription.py", "pubsub/validate.py"}
)
ALLOWED = frozenset({("peer/machine.py", "random.Random")})  # for the type alone: the Env brings the object
HEAVY = ("matplotlib", "pyarrow", "pyspark", "rich")


def imported(path: str, source: str) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of each import, wherever in the file it stands."""
    package = path.split("/")[:-1]
    for node in ast.walk(ast.parse(source, path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = [*above, *([node.module] if node.module else [])]
            yield from ((node.lineno, ".".join([*module, alias.name])) for alias in node.names)


def is_machine(path: str) -> bool:
    return path in MACHINES_IN_PEER or (path.startswith(("overlays/", "pubsub/")) and path not in NO_MACHINES)


def complaints(path: str, source: str) -> list[str]:
    layer = path.split("/")[0]
    above = {*LAYERS[LAYERS.index(layer) + 1 :], *OUTSIDE}
    found = []
    for line, name in imported(path, source):
        top = name.split(".")[0]
        if top in above:
            found.append(f"{path}:{line}: {layer} imports {name}, which is above it")
        elif is_machine(path) and top in WORLD and (path, name) not in ALLOWED:
            found.append(f"{path}:{line}: a machine imports {name}; time, chance and IO come from its Env")
    return found


def sources(*packages: str) -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for package in packages for path in (ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("path", sources(*LAYERS))
def test_imports_go_downwards_and_machines_touch_no_world(path: str) -> None:
    assert complaints(path, (ROOT / path).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("peer/sim.py", "import overlays"),
        ("peer/sim.py", "from bench.run import run"),
        ("peer/sim.py", "from tests.conftest import note_replay"),
        ("overlays/static.py", "import peer.machine, pubsub.router"),
        ("overlays/kademlia/table.py", "from pubsub import stacks"),
        ("overlays/static.py", "from ..pubsub import stacks"),
        ("pubsub/cli.py", "def run() -> None:\n    from bench import cli"),
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
        ("bench/cli.py", "import os, time, peer.sim, overlays, pubsub.stacks"),
        ("pubsub/api.py", "import trio\nfrom overlays import static"),
        ("pubsub/flood.py", "from peer.machine import Env\nfrom .router import Router\nimport msgspec"),
        ("pubsub/gossipsub/mesh.py", "from ..router import Router\nfrom . import score"),
        ("peer/machine.py", "from random import Random"),
        ("peer/sim.py", "import random, time"),
        ("overlays/static.py", "from timeit import timeit"),
    ],
)
def test_the_checker_lets_pass(path: str, source: str) -> None:
    assert complaints(path, source) == []


def test_the_library_imports_nothing_heavy() -> None:
    """Every module of it, not the packages alone: a machine must load where no extra is installed."""
    modules = [path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in sources(*LAYERS[:3])]
    program = f"""
import importlib, sys
for module in {[module for module in modules if module != "pubsub.cli"]!r}:
    importlib.import_module(module)
print(*sorted(set({HEAVY!r}) & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
