"""Messages for wrong keys and values of a scenario: the key, the value that was given, and what is allowed.

msgspec finds the mistake; `explain` looks at the same place of the data again and writes the message in the words of a
scenario file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import inspect as mi

from libweft.bench.runs.scenario import Option, Scenario, Section
from libweft.bench.runs.toml_values import inline


class WrongSetting(Exception):
    """A wrong key and the reason as `text`; whoever catches it adds the name of the file or flag."""

    def __init__(self, key: str, text: str) -> None:
        self.key = key
        self.text = text


def explain(message: str, data: dict[str, Any]) -> WrongSetting:
    """Return the mistake that msgspec's `message` is about: the key, its value in `data`, and the values that are allowed."""
    place = re.search(r" - at (?:`key` in )?`\$(\S*)`$", message)
    text = message[: place.start()] if place else message
    kind: mi.Type = mi.type_info(Scenario)
    value: Any = data
    key = ""
    for name, index in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", place.group(1) if place else ""):
        if isinstance(value, dict) and index:
            name = _spoiled(value)
        kind = _inner(kind, value, name)
        value = value[name] if isinstance(value, dict) else value[int(index)]
        key += f"[{index}]" if index.isdigit() else f".{name}" if key else name
    return _wrong_at(key, kind, value, text)


def blame(wrong: WrongSetting, flags: Mapping[str, str]) -> str | None:
    """Return the flag whose key is nearest to the wrong one; a contradiction may also name the key in its text."""
    keys = sorted(flags, key=len, reverse=True)
    inside = [key for key in keys if wrong.key == key or wrong.key.startswith((f"{key}.", f"{key}["))]
    around = [key for key in keys if key.startswith((f"{wrong.key}.", f"{wrong.key}["))]
    told = [key for key in keys if re.search(rf"(?<![\w.]){re.escape(key)}\b", wrong.text)]
    beside = [key for key in keys if "." in key and key.rpartition(".")[0] == wrong.key.rpartition(".")[0]]
    found = inside or around or told or beside
    return flags[found[0]] if found else None


def _spoiled(options: dict[str, Any]) -> str:
    """Return the option with a wrong value, because msgspec does not say which key of a dict has it."""
    for name, value in options.items():
        try:
            msgspec.convert(value, Option)
        except msgspec.ValidationError:
            return name
    return next(iter(options))


def _inner(kind: mi.Type, value: Any, name: str) -> mi.Type:
    if isinstance(kind, mi.VarTupleType):
        return kind.item_type
    if isinstance(kind, mi.DictType):
        return kind.value_type
    if isinstance(kind, mi.UnionType) and name == "kind":
        return mi.LiteralType(values=_tags(kind))
    fields = {field.name: field.type for field in _struct(kind, value).fields}
    return fields[name]


def _struct(kind: mi.Type, value: Any) -> mi.StructType:
    members = kind.types if isinstance(kind, mi.UnionType) else (kind,)
    structs = [member for member in members if isinstance(member, mi.StructType)]
    return next(struct for struct in structs if struct.tag is None or struct.tag == value.get("kind"))


def _tags(kind: mi.UnionType) -> tuple[str, ...]:
    return tuple(str(member.tag) for member in kind.types if isinstance(member, mi.StructType))


def _wrong_at(key: str, kind: mi.Type, value: Any, text: str) -> WrongSetting:
    if isinstance(kind, mi.DictType) and isinstance(value, dict):
        bad = next(name for name in value if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name))
        return WrongSetting(key, f"{key} has the key {shown(bad)}; names of options are letters, digits, _ and -")
    tagged = isinstance(kind, mi.UnionType) and _tags(kind)
    if isinstance(value, dict) and tagged and "kind" not in value:
        return WrongSetting(key, f"{key} has no kind; it must be one of {', '.join(tagged)}")
    if isinstance(value, dict) and (tagged or isinstance(kind, mi.StructType)):
        return _wrong_table(key, _struct(kind, value), value, text)
    if isinstance(kind, mi.LiteralType):
        return WrongSetting(key, f"{key} is {shown(value)}; {choices(value, kind.values)}")
    return WrongSetting(key, f"{key} is {shown(value)}; it must be {_allowed(kind)}")


def _wrong_table(key: str, struct: mi.StructType, value: dict[str, Any], text: str) -> WrongSetting:
    prefix = f"{key}." if key else ""
    names = tuple(field.name for field in struct.fields if field.name != "rows")
    names = ("kind", *names) if struct.tag is not None else names
    for name in value:
        if name not in names:
            wrong = f"{prefix}{name}" if re.fullmatch(r"[\w-]{1,64}", name) else f"{prefix}{shown(name)}"
            return WrongSetting(wrong, f"{wrong} is no key; {choices(name, names, _elsewhere(name))}")
    for field in struct.fields:
        if field.required and field.name not in value:
            return WrongSetting(f"{prefix}{field.name}", f"{prefix}{field.name} is missing; it must be {_allowed(field.type)}")
    first = text.partition(" ")[0]
    joined = f"{prefix}{text}" if first in names else f"{key}: {text}"
    return WrongSetting(f"{prefix}{first}" if first in names else key, one_line(joined))


def _elsewhere(name: str) -> list[str]:
    """Return the keys called `name` in other tables: `rate` for `workload.rate` is the commonest slip."""
    sections = [field for field in msgspec.structs.fields(Scenario) if isinstance(field.default, Section)]
    return [f"{section.name}.{name}" for section in sections if name in section.default.__struct_fields__]


def choices(given: object, allowed: Sequence[object], elsewhere: Sequence[str] = ()) -> str:
    """Return a text that lists the allowed names, and first the name that `given` was probably meant to be."""
    names = [str(name) for name in allowed]
    near = elsewhere or get_close_matches(str(given), names, n=1)
    hint = f'did you mean "{near[0]}"? ' if near else ""
    return f"{hint}allowed: {', '.join(names)}"


def _allowed(kind: mi.Type) -> str:
    if isinstance(kind, mi.IntType):
        return f"a whole number{_range(kind)}"
    if isinstance(kind, mi.FloatType):
        return f"a number{_range(kind)}"
    if isinstance(kind, mi.UnionType):
        return _allowed_of_union(kind)
    if isinstance(kind, mi.VarTupleType):
        return f"a list, each item {_allowed(kind.item_type)}"
    if isinstance(kind, mi.LiteralType):
        return f"one of {', '.join(map(str, kind.values))}"
    return "true or false" if isinstance(kind, mi.BoolType) else "a string" if isinstance(kind, mi.StrType) else "a table"


def _allowed_of_union(kind: mi.UnionType) -> str:
    if tags := _tags(kind):
        return f"a table with a kind: {', '.join(tags)}"
    members = [member for member in kind.types if not isinstance(member, mi.NoneType)]
    if any(isinstance(member, mi.BoolType) for member in members):  # an option of a layer, whose type its stack knows
        return "true, false, a finite number or a string"
    return ", or ".join(map(_allowed, members))


def _range(kind: mi.IntType | mi.FloatType) -> str:
    if kind.le is None:
        return ""
    if kind.gt is not None:
        return f" above {_plain(kind.gt)}, up to {_plain(kind.le)}"
    return f" from {_plain(kind.ge or 0)} to {_plain(kind.le)}"


def _plain(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:.12g}"


def shown(value: object) -> str:
    """Return the value as a message shows it: short, and never a whole table or list."""
    if isinstance(value, dict | list | tuple):
        return "a table" if isinstance(value, dict) else "a list"
    text = inline(value) if isinstance(value, bool | int | float | str) else str(value)
    return text if len(text) <= 60 else f"{text[:56]}..."


def one_line(text: str) -> str:
    """Return the text with each run of white space as one space."""
    return " ".join(text.split())
