"""The plan of a sweep: every combination of what a TOML file lists, checked before anything runs.

    seeds = 5                       how many, counted on from the seed of the base, or a list of them; 1 if left out
    [base]                          a scenario, with the keys of a scenario file
    [grid]                          keys of a scenario, each with a list of values
    workload.rate = [1.0, 10.0]
    [[variants]]                    keys that change together, under a name; they are one axis
    name = "plumtree"
    stack = "hyparview/plumtree"
    [[variants.faults]]             a further axis of such variants, which is called "faults"

A point is one value of each axis over the base, and a run is a point with a seed. Shorter keys are set before longer ones
(`latency` before `latency.draw`), so that the order in a file changes the order of the points and nothing else.

It promises above: every scenario is valid, and no two points are the same.
Bounds: `MOST_RUNS` runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from copy import deepcopy
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeGuard

from msgspec.structs import fields, replace

from libweft.bench.runs import reading
from libweft.bench.runs.replay import to_toml
from libweft.bench.runs.scenario import Scenario
from libweft.bench.runs.toml_values import inline
from libweft.peer.errors import UsageError

MOST_RUNS = 10_000
TABLES = ("seeds", "base", "grid", "variants")
AXES = tuple(field.name for field in fields(Scenario) if field.name not in ("seed", "trace"))
"""What an axis of variants may be called: no column of the results has such a name."""

Table: TypeAlias = Mapping[str, Any]


class Point(NamedTuple):
    """`settings` has the value of each axis as it is shown: the name of a variant, or the value in the grid."""

    settings: dict[str, Any]
    scenario: Scenario

    @property
    def name(self) -> str:
        return _named(self.settings)


class Run(NamedTuple):
    point: Point
    scenario: Scenario


class Plan(NamedTuple):
    points: tuple[Point, ...]
    seeds: tuple[int, ...]

    @property
    def runs(self) -> list[Run]:
        """Each point with the first seed, then each with the next: what is done is a sample of what is to come."""
        return [Run(point, replace(point.scenario, seed=seed)) for seed in self.seeds for point in self.points]


class _Choice(NamedTuple):
    """One value of an axis; `source` is the place in the file that an error names."""

    label: Any
    keys: dict[str, Any]
    source: str


def load(path: Path, seeds: int | None = None) -> Plan:
    """The plan of a file; `seeds`, if there are any, stand in the place of the file's."""
    data = reading.read(path, "sweep")
    return plan_of(data if seeds is None else {**data, "seeds": seeds}, str(path))


def plan_of(data: Table, where: str) -> Plan:
    """The plan that the tables of a file make; `where` they stand is what an error names."""
    for key in data:
        if key not in TABLES:
            raise UsageError(f"{where}: {key} is no key of a sweep; {_hint(key)}")
    base = reading.of_table(_table(data, "base", where), f"{where}: base")
    named, grid = _variant_axes(data.get("variants", []), where), _grid_axes(_table(data, "grid", where), where)
    axes = named | grid
    if both := next((name for name in named if name in grid), None):
        raise UsageError(f"{where}: grid.{both} and variants.{both} are one axis; leave one of them out")
    _refuse_clashes(axes, where)
    seeds = _seeds(data.get("seeds", 1), base.seed, where)
    runs = math.prod(map(len, axes.values())) * len(seeds)
    if runs > MOST_RUNS:
        sizes = " x ".join(f"{len(choices)} {name}" for name, choices in {**axes, "seeds": seeds}.items())
        raise UsageError(f"{where}: {runs:,} runs ({sizes}) are too many; a sweep has {MOST_RUNS:,} at most")
    points = tuple(_point(base, dict(zip(axes, choices, strict=True)), where) for choices in product(*axes.values()))
    _refuse_twins(points, where)
    return Plan(points, seeds)


def _point(base: Scenario, choices: Mapping[str, _Choice], where: str) -> Point:
    settings = {name: choice.label for name, choice in choices.items()}
    sources = {key: choice.source for choice in choices.values() for key in choice.keys}
    # A copy, for a longer key is set inside of a table that other points have too.
    pairs = [(key, deepcopy(value)) for choice in choices.values() for key, value in choice.keys.items()]
    try:
        return Point(settings, reading.merge(base, sorted(pairs, key=_turn), sources, where))
    except UsageError as error:
        raise UsageError(f"{error} (at the point {_named(settings)})") from None


def _turn(pair: tuple[str, object]) -> tuple[int, bool, str]:
    """A longer key is part of a shorter one, and another kind of latency voids the parameters that were there."""
    key = pair[0]
    return key.count("."), not key.endswith(".kind"), key


def _grid_axes(grid: Table, where: str) -> dict[str, list[_Choice]]:
    axes: dict[str, list[_Choice]] = {}
    for key, values in _leaves(grid):
        source = f"{where}: grid.{key}"
        if not isinstance(values, list) or not values:
            given = "is an empty list" if values == [] else "is not a list"
            raise UsageError(f"{source} {given}; give the values to try, such as [1, 2]")
        if key in axes:
            raise UsageError(f"{source} is there twice; leave one out")
        axes[key] = [_Choice(value, {key: value}, source) for value in values]
    return axes


def _variant_axes(given: object, where: str) -> dict[str, list[_Choice]]:
    axes = given if isinstance(given, dict) else {"variant": given} if given != [] else {}
    for name in axes:
        if name not in AXES and axes is given:
            raise UsageError(f"{where}: variants.{name} is no name of an axis; allowed: {', '.join(AXES)}")
    return {name: _variants(name, tables, where) for name, tables in axes.items()}


def _variants(axis: str, tables: object, where: str) -> list[_Choice]:
    title = "variants" if axis == "variant" else f"variants.{axis}"
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise UsageError(f"{where}: {title} must be tables, each written below a line [[{title}]]")
    choices: list[_Choice] = []
    for number, table in enumerate(tables, 1):
        name = table.get("name")
        if not isinstance(name, str) or not name:
            raise UsageError(f"{where}: {title}, number {number}, has no name; write name = and a text")
        if any(choice.label == name for choice in choices):
            raise UsageError(f"{where}: {title} has {inline(name)} twice; names must differ")
        keys = dict(_leaves({key: value for key, value in table.items() if key != "name"}))
        choices.append(_Choice(name, keys, f"{where}: {title} {inline(name)}"))
    return choices


def _leaves(table: Table, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys with their values. A table that is empty or has a kind is a value: it stands for all that is in it."""
    for name, value in table.items():
        if isinstance(value, dict) and value and not isinstance(value.get("kind"), str):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _refuse_clashes(axes: Mapping[str, list[_Choice]], where: str) -> None:
    """A key of two axes would have the value of one of them."""
    owners: dict[str, str] = {}
    for name, choices in axes.items():
        for key in {key: None for choice in choices for key in choice.keys}:
            if key == "seed":
                raise UsageError(f"{choices[0].source} sets the seed; seeds = at the top of the file does that")
            if owners.setdefault(key, name) != name:
                raise UsageError(f"{where}: both {owners[key]} and {name} set {key}; leave it to one of them")


def _refuse_twins(points: tuple[Point, ...], where: str) -> None:
    known: dict[str, Point] = {}
    for point in points:
        other = known.setdefault(to_toml(point.scenario), point)
        if other is not point:
            raise UsageError(f"{where}: the points {other.name} and {point.name} are the same scenario; leave one out")


def _seeds(given: object, first: int, where: str) -> tuple[int, ...]:
    highest = 2**63 - 1
    if _whole(given) and 1 <= given <= MOST_RUNS and first + given - 1 <= highest:
        return tuple(range(first, first + given))
    if isinstance(given, list) and given and all(_whole(seed) and 0 <= seed <= highest for seed in given):
        if len(set(given)) != len(given):
            raise UsageError(f"{where}: seeds has one of them twice; leave it out")
        return tuple(given)
    raise UsageError(f"{where}: seeds must be how many, from 1 to {MOST_RUNS:,}, or a list of whole numbers from 0 on")


def _whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _table(data: Table, name: str, where: str) -> dict[str, Any]:
    table = data.get(name, {})
    if not isinstance(table, dict):
        raise UsageError(f"{where}: {name} must be a table, written below a line [{name}]")
    return table


def _hint(key: str) -> str:
    if key in {field.name for field in fields(Scenario)}:
        return f"it is one of a scenario, so write it below [base], or below [grid] with a list of values: {key} = [...]"
    near = get_close_matches(key, TABLES, n=1)
    return f'did you mean "{near[0]}"? ' * bool(near) + f"allowed: {', '.join(TABLES)}"


def _named(settings: Mapping[str, Any]) -> str:
    told = (f"{name}={value if isinstance(value, str) else inline(value)}" for name, value in settings.items())
    return ", ".join(told) or "base"
