"""Read and write single values of TOML, as they stand in a flag of the command line."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping


def value_of(text: str) -> object:
    """Return the value that `text` is in TOML; text that is not TOML is a string and stays as it is."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (RecursionError, ValueError):
        return text
    value = parsed.get("value")
    return value if len(parsed) == 1 and isinstance(value, bool | int | float | str | list | dict) else text


def inline(value: object) -> str:
    """Return the value as TOML writes it, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ", ".join(assignments(value)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    if isinstance(value, str):
        # A JSON string is a TOML string, but for the pairs of surrogates that ensure_ascii would make; and a command is one line.
        plain = json.dumps(value, ensure_ascii=False)
        return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in plain)
    return repr(value)


def assignments(table: Mapping[str, object]) -> list[str]:
    """Return the lines that set the keys of `table`."""
    return [f"{key} = {inline(value)}" for key, value in table.items()]
