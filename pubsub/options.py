"""The options of a stack with their defaults and meanings, as its configs have them.

An option's meaning is the comment behind its field, and is read from the source, so that there is one place to say it. Asked for:
configs as dataclasses with a field a line. Where there is no source to read, as in a frozen program, meanings are empty.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from inspect import getsource
from typing import NamedTuple

from libweft.pubsub.stacks import Config, Option, find

FIELD = re.compile(r"^    (\w+): [\w |]+ = .*?(?:  # (.*))?$", re.MULTILINE)


class Described(NamedTuple):
    option: str
    default: Option
    meaning: str


def describe(stack: str) -> list[Described]:
    """Those of the overlay, then those of the router; `option` is the key of a scenario."""
    found = find(stack, {}, {})
    layers: tuple[tuple[str, Sequence[type[Config]], dict[str, Option]], ...] = (
        ("overlay", found.overlay.configs, found.overlay_options),
        ("router", found.router.configs, found.router_options),
    )
    return [
        Described(f"{layer}.{name}", default, meanings.get(name, ""))
        for layer, configs, options in layers
        for meanings in [_meanings(configs)]
        for name, default in options.items()
    ]


def _meanings(configs: Sequence[type[Config]]) -> dict[str, str]:
    """What a config says itself is said instead of what the one that it extends says."""
    kinds = [kind for config in configs for kind in reversed(config.__mro__) if kind is not object]
    return {name: meaning for kind in kinds for name, meaning in FIELD.findall(_source(kind))}


def _source(kind: type[object]) -> str:
    try:
        return getsource(kind)
    except OSError:
        return ""
