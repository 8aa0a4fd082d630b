"""What was encoded and decoded last, so that the copies of a message are not worked on one by one.

Two generations: the older goes as a whole when the younger is full.
Bounds: ENTRIES and BYTES in each generation.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

ENTRIES = 256
BYTES = 1 << 20

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    __slots__ = ("_old", "_room", "_young")

    def __init__(self) -> None:
        self._young: dict[Key, Value] = {}
        self._old: dict[Key, Value] = {}
        self._room = BYTES

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: Key) -> Value | None:
        found = self._young.get(key)
        return found if found is not None else self._old.get(key)

    def put(self, key: Key, value: Value, size: int) -> None:
        """What is larger than a generation is not kept."""
        if size > BYTES:
            return
        if size > self._room or len(self._young) >= ENTRIES:
            self._old, self._young, self._room = self._young, {}, BYTES
        self._young[key] = value
        self._room -= size
