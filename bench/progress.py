"""The type of a function that long work calls to report its progress; `libweft.bench.cli.show` has one that draws a bar."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[float, str], None]
"""Called with the share of the work that is done, from 0 to 1, and a text that names what is done now."""
