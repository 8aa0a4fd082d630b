"""Who is to blame: every error that weft raises on purpose says whether the local program or a peer is at fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class WeftError(Exception):
    """Root of all errors raised on purpose; its text says what to do."""


class UsageError(WeftError):
    """The local program asked for something impossible; raised at once, at the call."""


class PeerError(WeftError):
    """A peer broke the protocol. Caught in one place by whoever drives the machine; it costs one link, never the process."""


class Refused(WeftError):
    """A request gets no answer, and nobody is to blame. What answers it raises this; the asker's `on_fail` is called at once."""


def one_line(error: BaseException) -> str:
    """What an error says, as the text of another; one that was not raised on purpose is named by its type too."""
    first = str(error).strip().partition("\n")[0].strip()
    if isinstance(error, WeftError) and first:
        return first
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


@contextmanager
def alone() -> Iterator[None]:
    """Let an error that nurseries wrapped into groups, alone in each, come out as itself."""
    try:
        yield
    except BaseExceptionGroup as group:
        only: BaseException = group
        while isinstance(only, BaseExceptionGroup) and len(only.exceptions) == 1:
            only = only.exceptions[0]
        if isinstance(only, BaseExceptionGroup):
            raise
        raise only from only.__cause__
