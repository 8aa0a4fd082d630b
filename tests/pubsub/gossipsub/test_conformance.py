"""`docs/gossipsub-conformance.md` says the truth: the tests that it names exist, and none has to serve for too much."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[2]
TEXT = (TESTS.parent / "docs" / "gossipsub-conformance.md").read_text()
HEAD = "| behaviour | test |"
ROWS_OF_ONE = 3


def rows() -> list[list[str]]:
    """Of each row in a table of behaviours, the tests that it names."""
    tables = re.findall(rf"^{re.escape(HEAD)}\n\|[-| ]+\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    return [re.findall(r"`([\w/.]+::\w+)`", row) for table in tables for row in table.splitlines()]


@cache
def defined(path: Path) -> frozenset[str]:
    return frozenset(re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)) if path.is_file() else frozenset()


def test_every_behaviour_has_a_test_that_exists() -> None:
    assert len(rows()) > 250
    assert [row for row in rows() if not row] == []
    named = {name.partition("::")[::2] for row in rows() for name in row}
    assert sorted("::".join((path, test)) for path, test in named if test not in defined(TESTS / path)) == []


def test_no_test_serves_more_than_three_behaviours() -> None:
    counts = Counter(name for row in rows() for name in set(row))
    assert {name: count for name, count in counts.items() if count > ROWS_OF_ONE} == {}


def test_whatever_is_left_out_has_a_reason() -> None:
    left_out = re.findall(r"^\| not here \| why \|\n\|[-| ]+\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    reasons = [row.strip("| ").split(" | ")[-1] for table in left_out for row in table.splitlines()]
    assert len(reasons) > 20 and all(reason.endswith(".") for reason in reasons)
