"""A scenario as text that gives the same scenario when it is read again: a shell command, or a TOML file."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from libweft.bench.runs.scenario import Scenario, to_dict
from libweft.bench.runs.toml_values import assignments, inline, value_of


def command(scenario: Scenario) -> str:
    """Return a shell line that replays the scenario: each key that differs from its default, and always stack, nodes and seed."""
    words = ["weft", "sim"]
    for key, value in _differences(scenario):
        words += ["--set", f"{key}={_argument(value)}"]
    return shlex.join(words)


def _differences(scenario: Scenario) -> Iterator[tuple[str, object]]:
    plain = to_dict(Scenario())
    for key, value in to_dict(scenario).items():
        if isinstance(value, dict) and key != "latency":
            yield from ((f"{key}.{name}", item) for name, item in value.items() if plain[key].get(name) != item)
        elif key in ("stack", "nodes", "seed") or plain.get(key) != value:
            yield key, value


def _argument(value: object) -> str:
    return value if isinstance(value, str) and value.isprintable() and value_of(value) == value else inline(value)


def to_toml(scenario: Scenario) -> str:
    """Return a scenario file with every key, defaults included."""
    data = to_dict(scenario)
    lists = {key: data.pop(key) for key in ("faults", "attacks")}
    tables = {key: value for key, value in data.items() if isinstance(value, dict)}
    lines = assignments({key: value for key, value in data.items() if key not in tables})
    for key, table in tables.items():
        if table:
            lines += ["", f"[{key}]", *assignments(table)]
    for key, items in lists.items():
        for item in items:
            lines += ["", f"[[{key}]]", *assignments(item)]
    return "\n".join(lines) + "\n"
