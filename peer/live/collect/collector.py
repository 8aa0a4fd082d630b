"""The collecting side: takes the batches of many peers, and writes all that came as one part, every few seconds.

    async with open_host(identity, listen=[...]) as host, collecting(host, Path("run")) as collector:
        await trio.sleep_forever()

Asks below: `libweft.peer.live.host`, on which other protocols may run too. Promises above: a batch is acknowledged when it is on
disk, whatever a peer does costs its own link at most, and a folder that cannot be written ends the block with a TraceError.

Bounds, in CollectConfig: peers in all, counted over all starts, each with a quota of bytes; bytes of a peer and of all that
wait to be written, beyond which streams are not read. A peer that sends has one frame more here. The files of a part
have some kilobytes of their own, of which there is one every `write_s` at most while anybody sends little.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import time_ns

import trio

from libweft.peer.errors import PeerError, UsageError, alone
from libweft.peer.libp2p.ids import peer_text
from libweft.peer.live.collect.folder import Entry, Folder
from libweft.peer.live.collect.messages import FROM_COLLECTOR, FROM_PEER, PROTOCOL, Ask, Batch, Hello, Taken, Told
from libweft.peer.live.collect.peer_account import Account
from libweft.peer.live.collect.stream import FrameStream
from libweft.peer.live.host import Host
from libweft.peer.live.link import Stream
from libweft.peer.machine import SECOND, Message

log = logging.getLogger("libweft.collect")


@dataclass(frozen=True)
class CollectConfig:
    """Times in seconds, sizes in bytes as they come over the wire."""

    write_s: float = 2.0  # weft analyze --follow promises figures of the last ten
    ask_s: float = 2.0  # at 200 ppm a clock is off by 0.4 ms then
    burst: int = 8  # round trips before the first batch
    answer_s: float = 20.0
    peers: int = 1_024
    quota: int = 1 << 30
    waiting: int = 8 << 20  # some 200 MB of rows at worst
    waiting_a_peer: int = 1 << 20

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise UsageError(f"{name} is {value}; it must be above 0")


class Collector:
    """Made by `collecting`. `accounts` tells of each peer that ever sent something."""

    def __init__(self, folder: Folder, config: CollectConfig) -> None:
        self.config = config
        self.accounts = {peer: Account(peer, config.quota, standing) for peer, standing in folder.standings.items()}
        self._folder = folder
        self._sessions: dict[bytes, trio.CancelScope] = {}
        self._clock = trio.lowlevel.current_clock()
        self._start = time_ns() // 1_000 - round(self._clock.current_time() * SECOND)
        self._hurry = trio.Event()
        self._written = trio.Event()

    def now(self) -> int:
        """The time of the run: microseconds since 1970, that never go back while this collector lives."""
        return self._start + round(self._clock.current_time() * SECOND)

    async def serve(self, stream: Stream) -> None:
        """One peer, until its stream ends or it comes with another."""
        peer = stream.link.peer
        if peer not in self.accounts and len(self.accounts) >= self.config.peers:
            log.warning("refused %s: there are %d peers already", peer_text(peer), len(self.accounts))
            stream.reset("this collector has as many peers as it may")
            return
        if (before := self._sessions.get(peer)) is not None:
            before.cancel()
        account = self.accounts.setdefault(peer, Account(peer, self.config.quota))
        async with trio.open_nursery() as nursery:
            self._sessions[peer] = nursery.cancel_scope
            session = _Session(self, account, FrameStream(stream, FROM_COLLECTOR, FROM_PEER), nursery)
            try:
                await session.run()
            finally:
                self._left(peer, nursery.cancel_scope)
        if session.fault is not None:
            raise session.fault

    def _left(self, peer: bytes, scope: trio.CancelScope) -> None:
        """Whoever sent nothing is forgotten, so that it takes no place from others."""
        scope.cancel()
        if self._sessions.get(peer) is scope:
            del self._sessions[peer]
            if not self.accounts[peer].standing.bytes:
                del self.accounts[peer]

    def close(self) -> None:
        for session in self._sessions.values():
            session.cancel()

    async def room(self, account: Account) -> None:
        """Wait until the peer may have another batch here."""
        while account.waiting >= self.config.waiting_a_peer or self.waiting >= self.config.waiting:
            self._hurry.set()
            await self._written.wait()

    @property
    def waiting(self) -> int:
        return sum(account.waiting for account in self.accounts.values())

    async def part_written(self) -> None:
        await self._written.wait()

    async def write_on(self) -> None:
        while True:
            with trio.move_on_after(self.config.write_s):
                await self._hurry.wait()
            self._hurry = trio.Event()
            await self.write()

    async def write(self) -> None:
        """In a thread, so that clocks are asked and links answered meanwhile."""
        now = self.now()
        accounts = list(self.accounts.values())
        entries = [Entry(account.peer, *account.handed_over(), account.clock.now(now)) for account in accounts]
        if full := [entry for entry in entries if entry.rows]:
            await trio.to_thread.run_sync(self._folder.write, now, full)
        for account, entry in zip(accounts, entries, strict=True):
            account.written = entry.standing
        self._written.set()
        self._written = trio.Event()


class _Session:
    """One stream of one peer. Its tasks raise nothing, since a group of errors would be more than its stream's."""

    def __init__(self, collector: Collector, account: Account, stream: FrameStream, nursery: trio.Nursery) -> None:
        self._collector = collector
        self._account = account
        self._stream = stream
        self._nursery = nursery
        self.fault: PeerError | None = None
        self._asked: tuple[int, int] | None = None
        self._answered = trio.Event()
        self._greeted = False
        self._ready = False

    async def run(self) -> None:
        self._nursery.start_soon(self._await_greeting)
        try:
            await self._listen()
        except PeerError as error:
            self.fault = error
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            log.info("%s went away: %s", peer_text(self._account.peer), error)

    async def _listen(self) -> None:
        """A frame is read only when there is room for its rows."""
        while (found := await self._stream.next()) is not None:
            message, size = found
            if isinstance(message, Hello) and not self._greeted:
                self._greeted = True
                self._nursery.start_soon(self._ask_on, self._account.greet(message.epoch))
            elif isinstance(message, Told):
                self._hear(message)
            elif isinstance(message, Batch) and self._ready:
                self._account.take(message, size, self._collector.now())
            else:
                raise PeerError(f"a {type(message).__name__} out of turn")
            await self._collector.room(self._account)

    async def _await_greeting(self) -> None:
        await trio.sleep(self._collector.config.answer_s)
        if not self._greeted:
            await self._give_up("it does not greet")

    async def _give_up(self, reason: str) -> None:
        self.fault = PeerError(reason)
        self._nursery.cancel_scope.cancel()
        await trio.lowlevel.checkpoint()

    async def _ask_on(self, written: int) -> None:
        for number in range(self._collector.config.burst):
            await self._ask(number)
        self._ready = True
        who = peer_text(self._account.peer)
        if (clock := self._account.clock.now(self._collector.now())) is not None:
            log.info("%s: its clock is off by %.3f ms +- %.3f", who, clock.offset / 1_000, clock.error / 1_000)
        self._nursery.start_soon(self._tell_on, written)
        for number in count(self._collector.config.burst):
            await trio.sleep(self._collector.config.ask_s)
            await self._ask(number)

    async def _ask(self, number: int) -> None:
        self._answered = trio.Event()
        self._asked = (number, self._collector.now())
        await self._say(Ask(number))
        with trio.move_on_after(self._collector.config.answer_s):
            await self._answered.wait()
            return
        await self._give_up("it does not tell its time")

    def _hear(self, told: Told) -> None:
        if self._asked is None or told.number != self._asked[0]:
            raise PeerError("an answer to what was not asked")
        self._account.clock.heard(self._asked[1], told.t, self._collector.now())
        self._asked = None
        self._answered.set()

    async def _tell_on(self, said: int) -> None:
        """At first what was written before, so that the peer begins behind it."""
        await self._say(Taken(said))
        account = self._account
        while True:
            await self._collector.part_written()
            if account.written.epoch == account.standing.epoch and account.written.number > said:
                said = account.written.number
                await self._say(Taken(said))

    async def _say(self, message: Message) -> None:
        """A stream that is broken is told of by who reads it."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._stream.send(message)


@asynccontextmanager
async def collecting(host: Host, directory: Path, config: CollectConfig | None = None) -> AsyncIterator[Collector]:
    """Collect until the block ends; then what is here is written, and the folder is complete until somebody goes on."""
    folder = Folder(directory)
    collector = Collector(folder, config or CollectConfig())
    try:
        with alone():
            async with trio.open_nursery() as nursery:
                host.handle(PROTOCOL, collector.serve)
                nursery.start_soon(collector.write_on)
                try:
                    yield collector
                finally:
                    host.unhandle(PROTOCOL)
                    collector.close()
                    nursery.cancel_scope.cancel()
        await collector.write()
        folder.complete()
    finally:
        folder.release()
