"""A cache of the measures of finished runs, so that a sweep or a figure that was interrupted goes on where it stopped.

A run is a function of its scenario and of the code. The name of its file is the hash of both, so a change of either makes the
run anew. The modules of figures are left out of the hash, because all that they ask for is in the scenario.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import msgspec

import libweft
from libweft.peer.errors import UsageError

ROOT = Path(libweft.__file__).parent
PACKAGES = ("peer", "overlays", "pubsub", "bench")
MAKE_RUNS = ("figure.py", "figure_runs.py")  # of the folder of figures

log = logging.getLogger(__name__)


class RunCache:
    """The measures of runs by key: in memory, and in `folder` too if there is one. Several processes may share a folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._known: dict[str, dict[str, Any]] = {}
        if folder is not None:
            _prepare(folder)

    def get(self, key: str) -> dict[str, Any] | None:
        if key not in self._known and self._folder is not None:
            found = _read(self._folder / f"{key}.json")
            if found is not None:
                self._known[key] = found
        return self._known.get(key)

    def put(self, key: str, measures: dict[str, Any]) -> None:
        self._known[key] = measures
        if self._folder is None:
            return
        half = self._folder / f"{key}.{os.getpid()}"
        try:
            half.write_text(json.dumps(measures), encoding="utf-8")
            half.replace(self._folder / f"{key}.json")
        except OSError as error:
            log.warning("%s cannot be written, so its run is not kept: %s", half, error)


def _prepare(folder: Path) -> None:
    """Make the folder and try to write to it: before hours of runs, not after them."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the folder {folder} for the runs cannot be made: {error.strerror}") from error
    try:
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"nothing can be written to the folder {folder} for the runs: {error.strerror}") from error


def key_of(*what: object) -> str:
    """Return a key that is the same for the same scenario and settings, under the same code and Python."""
    return sha256(_code() + msgspec.json.encode(what)).hexdigest()[:32]


@cache
def _code() -> bytes:
    digest = sha256(sys.version.encode())
    papers = ROOT / "bench" / "papers"
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if papers not in path.parents or path.name in MAKE_RUNS:
                digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.digest()


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or not found:
            raise ValueError("it holds no measures")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.warning("%s cannot be read, so its run is made again: %s", path, error)
        return None
    return found
