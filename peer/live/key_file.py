"""The file of a node's private key: read, or made on first use.

Below it asks for a file system that has hard links. Above it promises: a key file is never overwritten, and it has its name
only once it is whole and its mode is 0600. Bounds: a key file has KEY_LIMIT bytes at most.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from libweft.peer.errors import UsageError
from libweft.peer.libp2p.ids import KEY_LIMIT, Identity

_REMEDY = "put back a copy of it, or remove it to start with a new peer id"


def load_identity(path: Path) -> Identity:
    """Return the identity in the file, which is made on first use; UsageError says what to do where it cannot be."""
    path = Path(path)
    try:
        data = _read_key(path) or _make_key(path, Identity.new().encode())
    except OSError as error:
        raise UsageError(f"the key file {path} cannot be used: {error.strerror or error}") from None
    try:
        return Identity.decode(data)
    except UsageError as error:
        raise UsageError(f"the key file {path} is damaged: {error}; {_REMEDY}") from None


def _read_key(path: Path) -> bytes | None:
    """Return the content of the key file, None if there is no file of that name."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"the key file {path} is no file; name one, or a place where it can be made")
    if os.name == "posix" and found.st_mode & 0o077:
        raise UsageError(f"others may read or change the key file {path}; make it yours alone: chmod 600 {path}")
    if not 0 < found.st_size <= KEY_LIMIT:
        raise UsageError(f"the key file {path} of {found.st_size} bytes holds no key; {_REMEDY}")
    return path.read_bytes()


def _make_key(path: Path, data: bytes) -> bytes:
    """Make the key file. Return its content: `data`, or the key of another process that was first."""
    if not path.parent.is_dir():
        raise UsageError(f"the key file {path} cannot be made: there is no directory {path.parent}; make it first")
    draft = path.with_name(f".weft-key-{secrets.token_hex(8)}")
    try:
        _write(draft, data)
        os.link(draft, path)  # unlike a rename it fails where the name is taken
    except FileExistsError:
        theirs = _read_key(path)
        if theirs is None:
            raise UsageError(f"the key file {path} is a link to nowhere; remove it, or make what it points to") from None
        return theirs
    finally:
        draft.unlink(missing_ok=True)
    return data


def _write(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
