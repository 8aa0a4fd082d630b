"""The options of a stack with their defaults and meanings, as its configs have them.

An option's meaning is the comment behind its field, and is read from the source, so that there is one place to say it. Asked for:
configs as dataclasses with a field a line. Where there is no source to read, as in a frozen program, meanings are empty.
"""

from __future__ import annotations

import re
from inspect import getsource
from typing import NamedTuple

from libweft.overlays.description import Config, Option
from libweft.pubsub.stacks import find

FIELD = re.compile(r"^    (\w+): [\w |]+ = .*?(?:  # (.*))?$", re.MULTILINE)


class Described(NamedTuple):
    option: str
    default: Option
    meaning: str


def describe(stack: str) -> list[Described]:
    """Those of the overlay, then those of the router; `option` is the key of a scenario."""
    found = find(stack, {}, {})
    layers: tuple[tuple[str, type[Config], dict[str, Option]], ...] = (
        ("overlay", found.overlay.config, found.overlay_options),
        ("router", found.router.config, found.router_options),
    )
    return [
        Described(f"{layer}.{name}", default, meanings.get(name, ""))
        for layer, config, options in layers
        for meanings in [_meanings(config)]
        for name, default in options.items()
    ]


def _meanings(config: type[Config]) -> dict[str, str]:
    """Return the comments behind the fields; a subclass's comment overrides its parent's."""
    kinds = [kind for kind in reversed(config.__mro__) if kind is not object]
    return {name: meaning for kind in kinds for name, meaning in FIELD.findall(_source(kind))}


def _source(kind: type[object]) -> str:
    try:
        return getsource(kind)
    except OSError:
        return ""
