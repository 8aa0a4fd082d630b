"""Waits of live tests: for a condition, never for a duration."""

from __future__ import annotations

import linecache
from collections.abc import Awaitable, Callable

import trio

DEADLINE_S = 60.0
"""Long enough for a machine that is busy with other things: a condition that takes longer is a failure."""
POLL_S = 0.005
"""Short, because most conditions soon hold. On a mock clock a longer one spares jumps."""

Text = str | Callable[[], object]


async def until(true: Callable[[], object], what: Text = "", poll_s: float = POLL_S) -> None:
    """Return as soon as `true()` holds. After DEADLINE_S fail, and report `what`, or else the source of the condition.

    `what` may be a function: its result is then the state at the deadline, such as the logs of both sides.
    """

    async def holds() -> object:
        return true()

    await until_answer(holds, what or source(true), poll_s)


async def until_answer(true: Callable[[], Awaitable[object]], what: Text, poll_s: float = POLL_S) -> None:
    """As `until`, with a condition that has to ask somebody. The deadline also ends a question that is not answered."""
    with trio.move_on_after(DEADLINE_S):
        while not await true():
            await trio.sleep(poll_s)
        return
    raise AssertionError(f"waited {DEADLINE_S:g} s in vain for {what() if callable(what) else what}")


def source(true: Callable[[], object]) -> str:
    """Return the place of a condition, and its first line."""
    code = getattr(true, "__code__", None)
    if code is None:
        return repr(true)
    return f"{code.co_filename}:{code.co_firstlineno}: {linecache.getline(code.co_filename, code.co_firstlineno).strip()}"
