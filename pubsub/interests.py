"""Interests: a topic, or a filter over the attributes of a publication."""

from __future__ import annotations

from collections.abc import Callable
from operator import eq, ge, gt, le, lt
from typing import Any, Literal, TypeAlias

import msgspec

Value: TypeAlias = int | float | str
Attributes: TypeAlias = tuple[tuple[str, Value], ...]


class Filter(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A content filter: all its constraints (attribute, relation, value) hold."""

    constraints: tuple[tuple[str, Literal["=", "<", "<=", ">", ">="], Value], ...]

    def matches(self, attributes: Attributes) -> bool:
        held = dict(attributes)
        return all(name in held and _holds(held[name], relation, value) for name, relation, value in self.constraints)


Interest: TypeAlias = str | Filter

RELATIONS: dict[str, Callable[[Any, Any], Any]] = {"=": eq, "<": lt, "<=": le, ">": gt, ">=": ge}


def _holds(held: Value, relation: str, value: Value) -> bool:
    if isinstance(held, str) != isinstance(value, str):
        return False
    return bool(RELATIONS[relation](held, value))
