"""What a machine keeps over a restart: a small dictionary of bytes, written whole at each change.

One file a machine, replaced by a rename, so that a crash leaves the old state or the new one and never half of it.
Bounds: LIMIT bytes in all; it is meant for an epoch, an index or some known peers, not for messages.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping
from pathlib import Path

import msgspec

from libweft.peer.errors import UsageError, WeftError

LIMIT = 1 << 20


class FileStore(MutableMapping[str, bytes]):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._items = _read(path)

    def __getitem__(self, key: str) -> bytes:
        return self._items[key]

    def __setitem__(self, key: str, value: bytes) -> None:
        if not isinstance(key, str) or not isinstance(value, bytes):
            raise UsageError(f"a store keeps bytes under a text, not {type(value).__name__} under {key!r}")
        self._write({**self._items, key: value})

    def __delitem__(self, key: str) -> None:
        self._write({name: value for name, value in self._items.items() if name != key})

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def _write(self, items: dict[str, bytes]) -> None:
        data = msgspec.msgpack.encode(items)
        if len(data) > LIMIT:
            raise UsageError(f"a store of {len(data)} bytes is over its limit of {LIMIT}: keep only what a restart needs")
        draft = self._path.with_name(f".{self._path.name}.tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path)
        except OSError as error:
            raise WeftError(f"cannot keep state in {self._path}: {error.strerror}") from error
        self._items = items


def _read(path: Path) -> dict[str, bytes]:
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=dict[str, bytes])
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"cannot read the state in {path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} holds no state of weft ({error}); move it away to begin anew") from error
