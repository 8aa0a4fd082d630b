"""Make a scenario from a TOML file, from the flags of a command, or from both.

The text of a user is checked here, once. Each wrong key or value is a UsageError of one line that names the file or flag,
the key, what was given and what is allowed.

Bounds: a scenario file is 16 MB at most.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from libweft.bench.runs.contradictions import contradictions
from libweft.bench.runs.scenario import Scenario, to_dict
from libweft.bench.runs.setting_errors import WrongSetting, blame, explain, one_line, shown
from libweft.bench.runs.toml_values import value_of
from libweft.peer.errors import UsageError

LARGEST_FILE = 16_000_000


def load(path: Path) -> Scenario:
    """Return the scenario of a TOML file."""
    return of_table(read(path), str(path))


def of_table(data: dict[str, Any], where: str) -> Scenario:
    """Return the scenario that a table of TOML holds. An error names `where`, the place of the table."""
    try:
        return _build(data)
    except WrongSetting as wrong:
        raise UsageError(f"{where}: {wrong.text}") from None


def read(path: Path, what: str = "scenario") -> dict[str, Any]:
    """Return the tables of a TOML file. An error calls the file a `what`."""
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_FILE + 1)
        if len(raw) > LARGEST_FILE:
            raise UsageError(f"{path}: a {what} file is {LARGEST_FILE} bytes at most")
        return tomllib.loads(raw.decode())
    except OSError as error:
        raise UsageError(f"{path}: the {what} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: the {what} is not text in UTF-8; it must be a TOML file") from None
    except RecursionError:
        raise UsageError(f"{path}: the {what} is nested too deeply") from None
    except ValueError as error:
        raise UsageError(f"{path}: the {what} is not valid TOML: {one_line(str(error))}") from None


def merge(
    base: Scenario | None,
    pairs: Sequence[tuple[str, object]],
    names: Mapping[str, str] | None = None,
    where: str = "the command line",
) -> Scenario:
    """Return `base` with keys such as `workload.size` set to new values, in the order of `pairs`.

    An error names the flag that the key came from, which `names` holds, or `where` if no single key is to blame.
    """
    data = to_dict(base or Scenario())
    flags = {key: f"--set {key}" for key, _ in pairs} | dict(names or {})
    try:
        for key, value in pairs:
            _put(data, key, value)
        return _build(data)
    except WrongSetting as wrong:
        raise UsageError(f"{blame(wrong, flags) or where}: {wrong.text}") from None


def validate(scenario: Scenario) -> None:
    """Check a scenario that a program built as one from a file is checked, with its stack and the options of the stack."""
    try:
        _build(to_dict(scenario))
    except WrongSetting as wrong:
        raise UsageError(f"the scenario: {wrong.text}") from None


def assignment(text: str) -> tuple[str, object]:
    """Return key and value of a flag `KEY=VALUE`. A value that is not TOML is a plain string."""
    key, equals, value = text.partition("=")
    if not equals or not all(key.strip().split(".")):
        raise UsageError(f"--set {shown(text)} is not KEY=VALUE; write for example --set workload.size=200")
    return key.strip(), value_of(value)


def _build(data: dict[str, Any]) -> Scenario:
    latency = data.get("latency")
    if isinstance(latency, dict) and "rows" in latency:
        raise WrongSetting("latency.rows", "latency.rows is no key; the rows are read from latency.file")
    try:
        scenario = msgspec.convert(data, Scenario)
    except msgspec.ValidationError as error:
        raise explain(str(error), data) from None
    for key, text in contradictions(scenario):
        raise WrongSetting(key, f"{key} {text}")
    return _with_stack(scenario)


def _with_stack(scenario: Scenario) -> Scenario:
    """Return the scenario with the full name of its stack, after a check of the stack and its options."""
    # Late, because it imports every protocol, and a caller that only builds the parser of flags needs none.
    from libweft.pubsub import stacks

    try:
        stacks.check(scenario.stack, scenario.overlay, scenario.router, scenario.nodes)
        full = stacks.full_name(scenario.stack)
    except UsageError as error:
        text = one_line(str(error))
        named = re.search(r"\b(?:overlay|router)\.[\w-]+", text)
        raise WrongSetting(named.group() if named else "stack", text) from None
    return msgspec.structs.replace(scenario, stack=full)


def _put(data: dict[str, Any], key: str, value: object) -> None:
    *tables, last = key.split(".")
    for table in tables:
        data = data.setdefault(table, {})
        if not isinstance(data, dict):
            raise WrongSetting(key, f"{key} is no key; {table} is not a table, so give it a value whole")
    if key == "latency.kind" and data.get("kind") != value:
        # The parameters of one model mean nothing to another.
        data.clear()
    data[last] = value
