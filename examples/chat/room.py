"""What one peer knows of one room: who is here, and what was said lately. No IO, and time is an argument.

Presence is soft state: an announcement holds for PATIENCE times the period it names, and a farewell ends it. Each source's
announcements count forwards only, by the order of their ids, and only near their time, so that nobody can replay them to
keep up the appearance of a peer that is gone. In a crowd each peer announces itself more seldom, CROWD a second in all.

Lines stand in the order of their authors' clocks, as signed, but never later than they came. A line may come twice, live
and in a neighbour's history; its id tells.

A name belongs to nobody, a peer id does: where two peers here use one name, in any case and width of its letters, both
are shown with the end of their peer ids.
Bounds: KEPT lines and KEPT_BYTES of them, MEMBERS members, MARKS sources whose last announcement is remembered.
"""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from collections.abc import Iterator

import msgspec

from libweft.examples.chat.wire import BYTES, COUNT, EVERY, Bye, Here, Milliseconds, Say, read
from libweft.peer.libp2p.ids import peer_text
from libweft.peer.machine import MessageId
from libweft.pubsub.message import Publication

KEPT = 2 * COUNT
KEPT_BYTES = 2 * BYTES
MEMBERS = 256
MARKS = 4 * MEMBERS
PATIENCE = 3.5  # periods: two announcements may be lost
CROWD = 4.0  # announcements a second, of all members together
NEAR = 10 * 60_000  # milliseconds by which clocks may differ
PERIOD = 10
SHORT = 8  # letters of a peer id; they are drawn evenly, unlike the first ones


class Line(msgspec.Struct, frozen=True, order=True):
    """Something said; in the order of `at`."""

    at: Milliseconds
    id: MessageId
    peer: str
    name: str
    text: str
    publication: Publication


class Member(msgspec.Struct):
    name: str
    until: Milliseconds


class Said(msgspec.Struct, frozen=True):
    room: str
    line: Line
    past: bool  # from a neighbour's history


class Came(msgspec.Struct, frozen=True):
    room: str
    peer: str
    name: str


class Went(msgspec.Struct, frozen=True):
    room: str
    peer: str
    name: str
    said_so: bool


class Renamed(msgspec.Struct, frozen=True):
    room: str
    peer: str
    before: str
    name: str


Event = Said | Came | Went | Renamed


class Room:
    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[Line] = []
        self.members: OrderedDict[str, Member] = OrderedDict()  # those heard of longest ago first
        self._marks: OrderedDict[str, MessageId] = OrderedDict()
        self._ids: set[MessageId] = set()
        self._size = 0
        self._users: dict[str, set[str]] | None = None  # peers by name; None when it must be gathered again

    def heard(self, publication: Publication, now: Milliseconds) -> list[Event]:
        """What a message on the topic changes."""
        message = read(publication.data)
        source = publication.id.source
        if message is None or not isinstance(source, bytes):
            return []
        peer = peer_text(source)
        events: list[Event] = []
        timely = abs(message.sent - now) <= NEAR and self._is_news(peer, publication.id)
        if timely and isinstance(message, Bye):
            return self._gone(peer, said_so=True)
        if timely and isinstance(message, Here):
            events += self._present(peer, message.name, now + int(1_000 * PATIENCE * message.every))
        if isinstance(message, Say):
            if timely:
                events += self._present(peer, message.name, now + int(1_000 * PATIENCE * PERIOD))
            events += self._said(publication, message, peer, now, past=False)
        return events

    def recalled(self, publication: Publication, now: Milliseconds) -> list[Said]:
        """A line of a neighbour's history; its signature has been checked."""
        message = read(publication.data)
        source = publication.id.source
        if not isinstance(message, Say) or not isinstance(source, bytes):
            return []
        return self._said(publication, message, peer_text(source), now, past=True)

    def tick(self, now: Milliseconds) -> list[Event]:
        """Who has been silent for too long."""
        silent = [peer for peer, member in self.members.items() if member.until < now]
        return [event for peer in silent for event in self._gone(peer, said_so=False)]

    @property
    def period(self) -> int:
        """Seconds to the next announcement of one's own."""
        return min(max(PERIOD, int(len(self.members) / CROWD)), EVERY[1])

    def publications(self) -> list[Publication]:
        return [line.publication for line in self.lines]

    def shown(self, peer: str, name: str) -> str:
        """The name, with the end of the peer id where somebody else here uses it too."""
        others = self._by_name().get(name.casefold(), set()) - {peer}
        return f"{name}#{short(peer)}" if others else name

    def shared_names(self) -> frozenset[str]:
        return frozenset(name for name, peers in self._by_name().items() if len(peers) > 1)

    def _by_name(self) -> dict[str, set[str]]:
        if self._users is None:
            self._users = {}
            for peer, name in self._known():
                self._users.setdefault(name.casefold(), set()).add(peer)
        return self._users

    def _known(self) -> Iterator[tuple[str, str]]:
        yield from ((peer, member.name) for peer, member in self.members.items())
        yield from ((line.peer, line.name) for line in self.lines)

    def _is_news(self, peer: str, key: MessageId) -> bool:
        mark = self._marks.pop(peer, None)
        news = mark is None or (key.epoch, key.sequence) > (mark.epoch, mark.sequence)
        self._marks[peer] = key if mark is None or news else mark
        if len(self._marks) > MARKS:
            self._marks.popitem(last=False)
        return news

    def _present(self, peer: str, name: str, until: Milliseconds) -> list[Event]:
        before = self.members.pop(peer, None)
        self.members[peer] = Member(name, max(until, before.until if before else 0))
        if before is not None and before.name == name:
            return []
        self._users = None
        if before is not None:
            return [Renamed(self.name, peer, before.name, name)]
        events: list[Event] = [Came(self.name, peer, name)]
        if len(self.members) > MEMBERS:
            events += self._gone(next(iter(self.members)), said_so=False)
        return events

    def _gone(self, peer: str, *, said_so: bool) -> list[Event]:
        member = self.members.pop(peer, None)
        if member is None:
            return []
        self._users = None
        return [Went(self.name, peer, member.name, said_so)]

    def _said(self, publication: Publication, say: Say, peer: str, now: Milliseconds, *, past: bool) -> list[Said]:
        if publication.id in self._ids:
            return []
        line = Line(min(say.sent, now), publication.id, peer, say.name, say.text, publication)
        insort(self.lines, line)
        self._ids.add(line.id)
        self._size += len(publication.data)
        while len(self.lines) > KEPT or self._size > KEPT_BYTES:
            oldest = self.lines.pop(0)
            self._ids.discard(oldest.id)
            self._size -= len(oldest.publication.data)
        self._users = None
        return [Said(self.name, line, past)] if line.id in self._ids else []


def short(peer: str) -> str:
    return peer[-SHORT:]
