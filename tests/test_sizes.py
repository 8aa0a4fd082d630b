"""The limits of size in the packages that readers learn from: 500 lines a file, 50 lines a function."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("bench", "overlays", "peer/trace", "peer/fake")  # none of them holds generated files
FILE, EXCUSED_FILE, FUNCTION = 500, 600, 50


def complaints(path: str, source: str) -> list[str]:
    """List what is too long in a file, with its length in lines."""
    tree = ast.parse(source, path)
    lines = len(source.splitlines())
    found = [f"{path} has {lines} lines; {most} are allowed"] if lines > (most := _most_lines(tree)) else []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION:
                found.append(f"{path}:{node.lineno}: {node.name} has {length} lines; {FUNCTION} are allowed")
    return found


def _most_lines(tree: ast.Module) -> int:
    """Return the limit of a file, which is higher if its docstring says in a line "Length: ..." why it must be longer."""
    said = (ast.get_docstring(tree) or "").splitlines()
    return EXCUSED_FILE if any(line.startswith("Length:") for line in said) else FILE


def sources() -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("path", sources())
def test_no_file_and_no_function_is_too_long(path: str) -> None:
    assert complaints(path, (ROOT / path).read_text(encoding="utf-8")) == []


def test_every_package_has_files() -> None:
    assert all(any(path.startswith(f"{package}/") for path in sources()) for package in PACKAGES)


REASON = '"""A table.\n\nLength: the table is one literal.\n"""\n'


def function(lines: int, indent: str = "", word: str = "def") -> str:
    return f"{indent}{word} f():\n" + f"{indent}    pass\n" * (lines - 1)


@pytest.mark.parametrize(
    "source",
    [
        "x = 1\n" * 500,
        REASON + "x = 1\n" * 596,
        function(50),
        "class A:\n" + function(50, "    ", "async def"),
    ],
)
def test_the_limits_themselves_are_allowed(source: str) -> None:
    assert complaints("a.py", source) == []


@pytest.mark.parametrize(
    "source",
    [
        "x = 1\n" * 501,
        "# Length: no docstring\n" + "x = 1\n" * 500,
        REASON + "x = 1\n" * 597,
        function(51),
        "class A:\n" + function(51, "    ", "async def"),
    ],
)
def test_one_line_more_is_not(source: str) -> None:
    assert len(complaints("a.py", source)) == 1
