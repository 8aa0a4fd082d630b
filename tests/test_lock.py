"""The lock of the set-up: whole, with hashes, free of any host, and no older than the dependencies in pyproject.toml.

A dependency that was added or raised without `make lock` fails here.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "requirements.lock").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PIN = re.compile(r"([\w.-]+)==([\w.+!]+)(?: ; [^#@]+)?")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def entries() -> list[tuple[str, list[str]]]:
    """The requirements with the options of each: an entry goes on as long as its lines end in a backslash."""
    lines = "\n".join(line for line in TEXT.splitlines() if not line.startswith("#"))
    parts = [[part.strip() for part in entry.split("\\\n")] for entry in re.split(r"(?<!\\)\n", lines) if entry]
    return [(first, rest) for first, *rest in parts]


def locked() -> dict[str, list[Version]]:
    """The versions of each package; several where they depend on the Python."""
    found: dict[str, list[Version]] = defaultdict(list)
    for first, _ in entries():
        pin = PIN.fullmatch(first)
        assert pin, f"{first!r} is not pinned"
        found[canonicalize_name(pin[1])].append(Version(pin[2]))
    return found


def named() -> list[Requirement]:
    """The requirements of the project and of the build, without the extras of its own that extras name."""
    project = PROJECT["project"]
    groups = (PROJECT["build-system"]["requires"], project["dependencies"], *project["optional-dependencies"].values())
    found = [Requirement(text) for group in groups for text in group]
    return [requirement for requirement in found if requirement.name != project["name"]]


def test_every_locked_package_has_hashes_and_nothing_else() -> None:
    assert len(entries()) > 50
    for first, rest in entries():
        assert rest, f"{first} has no hash"
        assert [part for part in rest if not HASH.fullmatch(part)] == [], first


def test_the_lock_names_no_host() -> None:
    assert re.findall(r"\S*(?:://|http|@|www\.|\.org|\.com|\.io|--index|--find-links)\S*", TEXT) == []


@pytest.mark.parametrize("requirement", named(), ids=str)
def test_the_lock_has_every_dependency_in_a_version_that_fits(requirement: Requirement) -> None:
    versions = locked().get(canonicalize_name(requirement.name))
    assert versions, f"requirements.lock has no {requirement.name}: run `make lock`"
    assert all(requirement.specifier.contains(version, prereleases=True) for version in versions), "run `make lock`"


def test_make_setup_can_take_uv_from_the_lock() -> None:
    """`make setup` reads the pin of uv from the lock, so pyproject.toml must pin it exactly."""
    (uv,) = (requirement for requirement in named() if requirement.name == "uv")
    assert [specifier.operator for specifier in uv.specifier] == ["=="]
