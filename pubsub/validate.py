"""Validators: what an application says of a message before it is passed on or delivered.

A judge is a function of the message, plain or async. True accepts, False rejects; a Verdict says it plainly. One that raises
rejects, with a log line. Async judges run as tasks, `concurrency` a topic at most; beyond that a message is ignored and
counted, so that a slow judge stops neither the node nor the other topics.
Bounds: that concurrency; the router bounds all messages that wait for a verdict.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from inspect import isawaitable
from typing import TypeAlias

import trio

from peer.errors import UsageError
from pubsub.message import Publication, Verdict

log = logging.getLogger("weft.pubsub")

CONCURRENCY = 64

Answer: TypeAlias = Callable[[Verdict], None]
Judge: TypeAlias = Callable[[Publication], Verdict | bool | Awaitable[Verdict | bool]]


class Validator:
    """The judge of one topic."""

    def __init__(self, judge: Judge, concurrency: int, nursery: trio.Nursery, counts: Counter[str]) -> None:
        if concurrency < 1:
            raise UsageError(f"a concurrency of {concurrency} would let nothing pass; 1 at least")
        self._judge = judge
        self._room = concurrency
        self._nursery = nursery
        self._counts = counts

    def ask(self, publication: Publication, answer: Answer) -> None:
        """`answer` is called once, now or later."""
        try:
            found = self._judge(publication)
        except Exception as error:
            answer(self._failed(publication, error))
            return
        if not isawaitable(found):
            answer(self._verdict(publication, found))
        elif self._room:
            self._room -= 1
            self._nursery.start_soon(self._await, found, publication, answer)
        else:
            self._counts["validator_busy"] += 1
            if isinstance(found, Coroutine):
                found.close()
            answer(Verdict.IGNORE)

    async def _await(self, found: Awaitable[Verdict | bool], publication: Publication, answer: Answer) -> None:
        try:
            verdict = self._verdict(publication, await found)
        except Exception as error:
            verdict = self._failed(publication, error)
        finally:
            self._room += 1
        answer(verdict)

    def _failed(self, publication: Publication, error: Exception) -> Verdict:
        log.warning("the validator of %s failed, so a message is rejected: %r", publication.topic, error)
        self._counts["validator_failed"] += 1
        return Verdict.REJECT

    def _verdict(self, publication: Publication, found: Verdict | bool) -> Verdict:
        if isinstance(found, Verdict):
            return found
        if not isinstance(found, bool):
            return self._failed(publication, TypeError(f"a judge says a Verdict, True or False, and not {found!r}"))
        return Verdict.ACCEPT if found else Verdict.REJECT
