"""Validators: what an application says of a message before it is passed on or delivered.

A judge is a function of a message as subscribers get it, plain or async. True accepts, False rejects; a Verdict says it
plainly. One that raises rejects, with a log line. Async judges run as tasks, `concurrency` a topic at most; beyond that a
message is ignored and counted, so that a slow judge stops neither the node nor the other topics.
Bounds: that concurrency; the router bounds all messages that wait for a verdict.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from inspect import isawaitable
from typing import TypeAlias

import trio

from libweft.peer.errors import UsageError
from libweft.pubsub.live.subscription import Message
from libweft.pubsub.message import Verdict

log = logging.getLogger("libweft.pubsub")

CONCURRENCY = 64

Answer: TypeAlias = Callable[[Verdict], None]
Judge: TypeAlias = Callable[[Message], Verdict | bool | Awaitable[Verdict | bool]]


class Validator:
    """The judge of one topic."""

    def __init__(self, judge: Judge, concurrency: int, nursery: trio.Nursery, counts: Counter[str]) -> None:
        if not callable(judge):
            raise UsageError(f"a judge is a function of a message, not {judge!r:.80}")
        if not isinstance(concurrency, int) or concurrency < 1:
            raise UsageError(f"a concurrency of {concurrency!r} would let nothing pass; 1 at least")
        self._judge = judge
        self._room = concurrency
        self._nursery = nursery
        self._counts = counts

    def ask(self, message: Message, answer: Answer) -> None:
        """`answer` is called once, now or later."""
        try:
            found = self._judge(message)
        except Exception as error:  # noqa: BLE001 - the judge is the program's; its failure is logged
            answer(self._failed(message, error))
            return
        if not isawaitable(found):
            answer(self._verdict(message, found))
        elif self._room:
            self._room -= 1
            self._nursery.start_soon(self._await, found, message, answer)
        else:
            self._counts["validator_busy"] += 1
            if isinstance(found, Coroutine):
                found.close()
            answer(Verdict.IGNORE)

    async def _await(self, found: Awaitable[Verdict | bool], message: Message, answer: Answer) -> None:
        try:
            verdict = self._verdict(message, await found)
        except Exception as error:  # noqa: BLE001 - as above
            verdict = self._failed(message, error)
        finally:
            self._room += 1
        answer(verdict)

    def _failed(self, message: Message, error: Exception) -> Verdict:
        log.warning("the validator of %s failed, so a message is rejected: %r", message.topic, error)
        self._counts["validator_failed"] += 1
        return Verdict.REJECT

    def _verdict(self, message: Message, found: Verdict | bool) -> Verdict:
        if isinstance(found, Verdict):
            return found
        if not isinstance(found, bool):
            return self._failed(message, TypeError(f"a judge says a Verdict, True or False, and not {found!r}"))
        return Verdict.ACCEPT if found else Verdict.REJECT
