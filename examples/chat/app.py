"""A chat is a node and its rooms: one task a room hears its topic, one announces us there, one asks for its history.

    async with open_chat(ChatConfig(name="ada")) as chat:
        with chat.feed() as feed:
            await chat.say("lobby", "hello")
            async for event in feed:
                ...

A newcomer subscribes first and then asks up to ANSWERS neighbours for the recent lines, so that nothing falls between the
two; one that gave nothing is asked again when it is heard there. An announcement is due after a period, and sooner where a
neighbour or a member is new, so that newcomers soon know who is here.

Asks below: `libweft.pubsub.live.api` and streams of `libweft.peer.live.host`. Promises above: at the end all rooms have been told
farewell. Bounds: those of `wire` and `room`; ROOMS rooms, FEED events a feed, beyond which they are counted as missed, SERVED
histories sent at a time.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import uniform
from time import time_ns

import msgspec
import trio

from libweft.examples.chat import wire
from libweft.examples.chat.room import CROWD, Came, Event, Room, Said
from libweft.examples.chat.wire import Bye, Here, Milliseconds, Say
from libweft.peer.errors import PeerError, UsageError, WeftError, alone
from libweft.peer.libp2p.frame import Frames
from libweft.peer.live.link import Stream
from libweft.pubsub.live.api import PubSub
from libweft.pubsub.live.defaults import LISTEN, STACK
from libweft.pubsub.live.subscription import Message, Subscription
from libweft.pubsub.signing import Signing

log = logging.getLogger("libweft.chat")

ROOMS = 32
FEED = 1_000
SERVED = 8
ANSWERS = 3
TICK_S = 0.25
GAP_MS = 1_000  # between two announcements in a room
HISTORY_S = 10.0
FAREWELL_S = 2.0
FRIEND = "bob"


class Changed(msgspec.Struct, frozen=True):
    """Our name, our rooms or our neighbours are others now."""


class Refused(msgspec.Struct, frozen=True):
    """A neighbour's history of a room was not true; what came before the fault stands."""

    room: str
    peer: str
    reason: str


class Missed(msgspec.Struct, frozen=True):
    """So many events came faster than this feed was read."""

    count: int


AnyEvent = Event | Changed | Refused | Missed


@dataclass(frozen=True)
class ChatConfig:
    name: str
    join: Sequence[str] = ()
    rooms: Sequence[str] = ("lobby",)
    listen: Sequence[str] = LISTEN
    key: Path | None = None
    stack: str = STACK


class Feed:
    """Events for one reader, as an async iterator."""

    def __init__(self) -> None:
        self._put, self._take = trio.open_memory_channel[AnyEvent](FEED)
        self._missed = 0
        self._given = self._taken = self._done = 0
        self._returned = trio.lowlevel.ParkingLot()

    def put(self, event: AnyEvent) -> None:
        try:
            if self._missed:
                self._put.send_nowait(Missed(self._missed))
                self._given += 1
                self._missed = 0
            self._put.send_nowait(event)
            self._given += 1
        except trio.WouldBlock:
            self._missed += 1

    def __aiter__(self) -> Feed:
        return self

    async def __anext__(self) -> AnyEvent:
        self._done = self._taken  # who comes for the next has done with the last
        self._returned.unpark_all()
        event = await self._take.receive()
        self._taken += 1
        return event

    async def caught_up(self) -> None:
        """Wait until the reader has done with all that is in here now."""
        last = self._given
        while self._done < last:
            await self._returned.park()


class Presence:
    """Our own part in one room."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.scope = trio.CancelScope()
        self.entered = trio.Event()
        self.over = trio.Event()
        self.due: Milliseconds = 0
        self.announced: Milliseconds = 0
        self.asked: dict[str, int | None] = {}  # neighbours, and how many lines they gave; None: no true answer

    def hurry(self, now: Milliseconds) -> None:
        """Announce soon, but not all at once with the others."""
        spread = 500 + 1_000 * len(self.room.members) / CROWD
        self.due = min(self.due, max(self.announced + GAP_MS, now + int(uniform(0, spread))))


class Chat:
    """Made by `open_chat`. `rooms` in the order in which they were entered."""

    def __init__(self, node: PubSub, name: str, nursery: trio.Nursery) -> None:
        self.node = node
        self.name = name
        self._nursery = nursery
        self._here: dict[str, Presence] = {}
        self._feeds: list[Feed] = []
        self._neighbors: tuple[str, ...] = ()
        self._signing = Signing(node.host.identity)
        self._serving = trio.CapacityLimiter(SERVED)

    @property
    def rooms(self) -> dict[str, Room]:
        return {name: presence.room for name, presence in self._here.items()}

    @property
    def neighbors(self) -> tuple[str, ...]:
        return self._neighbors

    @property
    def invitation(self) -> str | None:
        """The command with which a friend joins, if this node has an address. One that other machines can reach is preferred."""
        addresses = sorted(self.node.addresses, key=lambda address: "/127.0.0.1/" in address or "/ip6/::1/" in address)
        if not addresses:
            return None
        rooms = "".join(f" --room {name}" for name in self._here) if list(self._here) != ["lobby"] else ""
        return f"python -m libweft.examples.chat --name {FRIEND} --join {addresses[0]}{rooms}"

    @contextmanager
    def feed(self) -> Iterator[Feed]:
        """What happens from now on."""
        feed = Feed()
        self._feeds.append(feed)
        try:
            yield feed
        finally:
            self._feeds.remove(feed)

    async def enter(self, room: str) -> str:
        """Ends when we hear what is said there; gives the room's name."""
        room = wire.check_name(room, "room")
        presence = self._here.get(room)
        if presence is None:
            if len(self._here) >= ROOMS:
                raise UsageError(f"{ROOMS} rooms are enough; leave one first")
            presence = self._here[room] = Presence(Room(room))
            self._nursery.start_soon(self._stay, presence)
        await presence.entered.wait()
        return room

    async def leave(self, room: str) -> None:
        """Ends when the feeds have all that was heard there."""
        presence = self._presence(room)
        await self._publish(room, Bye(sent=now()))
        presence.scope.cancel()
        await presence.over.wait()

    async def say(self, room: str, text: str) -> None:
        self._presence(room)
        text = text.strip()
        if not 0 < len(text) <= wire.TEXT:
            raise UsageError(f"a line has 1 to {wire.TEXT} characters, not {len(text)}")
        await self._publish(room, Say(sent=now(), name=self.name, text=text))

    async def rename(self, name: str) -> None:
        self.name = wire.check_name(name)
        self._tell([Changed()])
        for presence in list(self._here.values()):
            await self._announce(presence)

    async def run(self) -> None:
        """Look after neighbours until cancelled."""
        while True:
            neighbors = tuple(self.node.neighbors)
            if neighbors != self._neighbors:
                news = set(neighbors) - set(self._neighbors)
                self._neighbors = neighbors
                self._tell([Changed()])
                for presence in self._here.values() if news else ():
                    presence.hurry(now())
            await trio.sleep(TICK_S)

    async def farewell(self) -> None:
        with trio.move_on_after(FAREWELL_S):
            for room in list(self._here):
                await self._publish(room, Bye(sent=now()))

    async def serve_history(self, stream: Stream) -> None:
        """Answer a peer that asks; one that breaks the protocol loses its link."""
        with trio.move_on_after(HISTORY_S):
            ask = wire.read_ask(await _first_frame(stream))
            async with self._serving:
                presence = self._here.get(ask.room)
                publications = presence.room.publications() if presence is not None else []
                await stream.send_all(wire.encode_history(publications, ask.count))

    async def _stay(self, presence: Presence) -> None:
        topic = wire.topic_of(presence.room.name)
        self.node.validate(topic, lambda message: wire.is_message(message.publication))
        try:
            with presence.scope:
                async with self.node.subscribe(topic) as messages, trio.open_nursery() as nursery:
                    nursery.start_soon(self._pulse, presence)
                    nursery.start_soon(self._catch_up, presence)
                    self._tell([Changed()])
                    presence.entered.set()
                    await self._hear(presence, messages)
        finally:
            del self._here[presence.room.name]
            presence.entered.set()
            presence.over.set()
            self._tell([Changed()])

    async def _hear(self, presence: Presence, messages: Subscription) -> None:
        """Until cancelled; what has come by then is heard all the same, such as one's own words before a farewell."""
        try:
            async for message in messages:
                self._heard(presence, message)
        finally:
            messages.close()
            with trio.CancelScope(shield=True):  # never waits, since nothing more comes
                async for message in messages:
                    self._heard(presence, message)

    def _heard(self, presence: Presence, message: Message) -> None:
        if presence.asked.get(message.source) == 0:  # then it was not yet here, or had no answer of its own neighbours
            del presence.asked[message.source]
        events = presence.room.heard(message.publication, now())
        if any(isinstance(event, Came) and event.peer != self.node.peer for event in events):
            presence.hurry(now())
        self._tell(events)

    async def _pulse(self, presence: Presence) -> None:
        while True:
            if now() >= presence.due:
                await self._announce(presence)
            self._tell(presence.room.tick(now()))
            await trio.sleep(TICK_S)

    async def _announce(self, presence: Presence) -> None:
        period = presence.room.period
        presence.announced = now()
        presence.due = presence.announced + int(1_000 * uniform(0.8, 1) * period)
        await self._publish(presence.room.name, Here(sent=now(), name=self.name, every=period))

    async def _catch_up(self, presence: Presence) -> None:
        while True:
            asked = presence.asked = {peer: presence.asked[peer] for peer in self._neighbors if peer in presence.asked}
            for peer in self._neighbors:
                if peer not in asked and sum(bool(lines) for lines in asked.values()) < ANSWERS:
                    asked[peer] = None
                    asked[peer] = await self._recall(presence.room, peer)
            await trio.sleep(TICK_S)

    async def _recall(self, room: Room, peer: str) -> int | None:
        """Take what the neighbour remembers of the room, and count it; None where it gave no true answer."""
        history = wire.History(room.name, self._signing)
        found: list[Said] = []
        lines = None
        try:
            with trio.move_on_after(HISTORY_S):
                async with await self.node.host.open_stream(peer, [wire.HISTORY]) as stream:
                    await stream.send_all(wire.encode_ask(room.name))
                    await stream.send_eof()
                    while data := await stream.receive_some():
                        for publication in history.feed(data):
                            found += room.recalled(publication, now())
                    lines = history.finish()
        except PeerError as error:
            log.info("%s gave a bad history of %s: %s", peer, room.name, error)
            self._tell([Refused(room.name, peer, str(error))])
        except (WeftError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            log.debug("%s gave no history of %s: %s", peer, room.name, error)
        found.sort(key=lambda said: said.line)
        self._tell(found)
        return lines

    async def _publish(self, room: str, message: wire.AnyMessage) -> None:
        await self.node.publish(wire.topic_of(room), wire.encode(message))

    def _presence(self, room: str) -> Presence:
        if room not in self._here:
            raise UsageError(f"you are not in {room}; you are in: {', '.join(self._here) or 'no room'}")
        return self._here[room]

    def _tell(self, events: Sequence[AnyEvent]) -> None:
        for feed in self._feeds:
            for event in events:
                feed.put(event)


@asynccontextmanager
async def open_chat(config: ChatConfig) -> AsyncIterator[Chat]:
    name = wire.check_name(config.name)
    opened = PubSub.open(config.stack, bootstrap=config.join, listen=config.listen, key=config.key)
    with alone():
        async with opened as node, trio.open_nursery() as nursery:
            chat = Chat(node, name, nursery)
            node.host.handle(wire.HISTORY, chat.serve_history)
            nursery.start_soon(chat.run)
            for room in config.rooms:
                await chat.enter(room)
            yield chat
            await chat.farewell()
            nursery.cancel_scope.cancel()


def now() -> Milliseconds:
    return time_ns() // 1_000_000


async def _first_frame(stream: Stream) -> bytes:
    cut = Frames(wire.REQUEST)
    while data := await stream.receive_some():
        if frames := cut.feed(data):
            return frames[0]
    raise PeerError("a history stream without a request")
