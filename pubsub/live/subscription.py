"""Subscriptions: a buffer between the network and an application that may be slower.

What happens when it is full has a name: `wait` holds the next message's verdict back until there is room, so that it is
neither delivered nor passed on meanwhile; links are not slowed down, so when more wait than the router lets, later ones are
lost, and counted as `refused`. `drop oldest` and `drop newest` lose one, and count it.
Bounds: `buffer` messages, and with `wait` what was accepted before it was full; the texts of AUTHORS peer ids.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias, get_args

import trio

from libweft.peer.errors import UsageError
from libweft.peer.libp2p.ids import peer_text
from libweft.peer.machine import Peer
from libweft.pubsub.message import Publication
from libweft.pubsub.rpc import sequence_number

TURN = 64  # messages taken before other tasks have their turn
AUTHORS = 1_024

Full: TypeAlias = Literal["wait", "drop oldest", "drop newest"]


class Message(NamedTuple):
    """What an application gets; `source` and `id` are text."""

    topic: str
    data: bytes
    source: str
    id: str
    publication: Publication


def message(publication: Publication) -> Message:
    author = _author(publication.id.source)
    key = f"{author}-{sequence_number(publication.id).hex()}"
    return Message(publication.topic, publication.data, author, key, publication)


@lru_cache(AUTHORS)
def _author(source: Peer) -> str:
    """Kept, since base58 costs more than handing a message over."""
    return peer_text(source) if isinstance(source, bytes) else str(source)


class Subscription:
    """Messages of one topic, as an async iterator that ends with the subscription."""

    def __init__(self, topic: str, buffer: int, when_full: Full) -> None:
        if not isinstance(buffer, int) or buffer < 1:
            raise UsageError(f"a buffer of {buffer!r} messages holds none; 1 at least")
        if when_full not in get_args(Full):
            raise UsageError(f"when_full is {when_full!r}; choose among {', '.join(get_args(Full))}")
        self.topic = topic
        self.dropped = 0
        self._taken = 0
        self._limit = buffer
        self._when_full = when_full
        self._buffer: deque[Message] = deque()
        self._open = True
        self._changed: trio.Event | None = None  # while somebody waits for it
        self._waiting: deque[Callable[[], None]] = deque()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Message:
        self._taken += 1
        if self._taken % TURN == 0 or not (self._buffer or self._open):
            await trio.lowlevel.checkpoint()  # at each message it would be slower than a busy link, and lose what comes
        elif self._buffer:  # else the wait below is a checkpoint
            await trio.lowlevel.checkpoint_if_cancelled()
        while not self._buffer:
            if not self._open:
                raise StopAsyncIteration
            await self._until_changed()
        found = self._buffer.popleft()
        self._stir()
        return found

    def __len__(self) -> int:
        return len(self._buffer)

    @property
    def blocks(self) -> bool:
        """Whether the next message must wait."""
        return self._open and self._when_full == "wait" and len(self._buffer) >= self._limit

    def when_there_is_room(self, action: Callable[[], None]) -> None:
        """Call it when `blocks` no longer holds; in order."""
        self._waiting.append(action)

    async def room(self) -> None:
        while self.blocks:
            await self._until_changed()

    def put(self, found: Message) -> bool:
        """False when a message was lost by it."""
        full = len(self._buffer) >= self._limit and self._when_full != "wait"
        if full:
            self.dropped += 1
            if self._when_full == "drop oldest":
                self._buffer.popleft()
        if not full or self._when_full == "drop oldest":
            self._buffer.append(found)
        self._stir()
        return not full

    def close(self) -> None:
        self._open = False
        self._stir()

    async def _until_changed(self) -> None:
        if self._changed is None:
            self._changed = trio.Event()
        await self._changed.wait()

    def _stir(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None
        while self._waiting and not self.blocks:
            self._waiting.popleft()()
