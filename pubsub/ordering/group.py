"""One topic under causal order: what was delivered of it, what waits for what, and what the next message comes after.

Tables alone, which `libweft.pubsub.ordering.causal` fills and bounds. Names are those of VCube-PS: `last_delvs`, and the barrier.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from itertools import islice
from typing import TypeAlias

from libweft.peer.machine import MessageId, Peer
from libweft.pubsub.fair_shares import Shares
from libweft.pubsub.message import Publication, weight

CUT = 1_024  # sources of which one message tells where a subscription begins

Key: TypeAlias = tuple[Peer, int]
"""A source in one of its lives."""


class Held:
    """A message that waits, and for what."""

    __slots__ = ("came", "publication", "unmet", "weight")

    def __init__(self, publication: Publication, came: int, unmet: dict[MessageId, None]) -> None:
        self.publication = publication
        self.came = came
        self.unmet = unmet
        self.weight = weight(publication)


class Wanted:
    """An id that something waits for and that has not come: since when, and who was asked and has not answered."""

    __slots__ = ("asked", "place", "since", "tries")

    def __init__(self, since: int, place: float) -> None:
        self.since = since
        self.place = place
        self.tries = 0
        self.asked: dict[Peer, None] = {}


class Group:
    """One topic. `barrier` is what the next message from here comes after, `last_delvs` the last of each source and when."""

    def __init__(self) -> None:
        self.opened = 0
        self.sent = 0
        self.barrier: dict[MessageId, None] = {}
        self.last_delvs: OrderedDict[Key, tuple[int, int]] = OrderedDict()
        self.earlier: dict[Key, int] = {}
        self.begin(0)

    def begin(self, now: int) -> None:
        """A subscription need not go on where an earlier one ended; but what is published comes after all of that."""
        self.earlier |= {source: sequence for source, (sequence, _) in self.last_delvs.items()}
        self.since = now
        self.first_rec: int | None = None  # when the first message came
        self.starting_cut: dict[Key, int] = {}
        self.last_delvs.clear()
        self.lives = Shares()  # of each source in last_delvs
        self.given_up: OrderedDict[MessageId, None] = OrderedDict()
        self.held: dict[MessageId, Held] = {}
        self.held_bytes = 0
        self.each: Counter[Peer] = Counter()
        self.waiting: dict[Key, dict[MessageId, list[Held]]] = {}
        self.wanted: dict[MessageId, Wanted] = {}

    @property
    def blank(self) -> bool:
        """Nothing was said or heard."""
        return not (self.sent or self.barrier or self.earlier)

    def knows(self, source: Key) -> bool:
        return source in self.last_delvs

    def note(self, id: MessageId, now: int, room: int) -> None:
        """It is delivered. The longest quiet gives way: of its own lives, if they have their share of the room."""
        source = id.source, id.epoch
        if not self.knows(source):
            left = room - len(self.last_delvs) - len(self.earlier)
            if id.source in self.lives and not self.lives.admit(id.source, left):
                self._forget(next(each for each in self.last_delvs if each[0] == id.source))
            elif left <= 0 and self.earlier:
                del self.earlier[next(iter(self.earlier))]
            elif left <= 0:
                self._forget(next(iter(self.last_delvs)))
            self.lives.take(id.source)
        self.last_delvs[source] = id.sequence, now
        self.last_delvs.move_to_end(source)

    def _forget(self, source: Key) -> None:
        del self.last_delvs[source]
        self.lives.give_back(source[0])

    def over(self, id: MessageId) -> bool:
        """Delivered, given up, of a source that has gone on without it, or from before the subscription."""
        source, sequence = (id.source, id.epoch), id.sequence
        if (last := self.last_delvs.get(source)) is not None and sequence <= last[0]:
            return True
        return sequence <= max(self.starting_cut.get(source, -1), self.earlier.get(source, -1)) or id in self.given_up

    def came_before(self, id: MessageId, start: int, horizon: int) -> bool:
        """What is not kept any longer came before, if its source has said nothing since, or all that came since is kept."""
        sequence, when = self.last_delvs.get((id.source, id.epoch), (-1, 0))
        return id.sequence <= sequence and min(when, horizon) < start

    def cut(self, start: int, since: dict[Key, int], whole: bool) -> tuple[MessageId, ...]:
        """Where each source stood at that time; `since` has the first of each from then on, if nothing of it is forgotten."""
        found = {source: max(sequence, self.earlier.get(source, -1)) for source, sequence in self.starting_cut.items()}
        found |= {source: sequence for source, sequence in self.earlier.items() if source not in found}
        for source, (sequence, when) in self.last_delvs.items():
            if when < start:
                found[source] = sequence
            elif whole and source in since:
                found[source] = max(since[source] - 1, found.get(source, -1))
        told = ((source, sequence) for source, sequence in reversed(found.items()) if sequence >= 0)
        return tuple(MessageId(*source, sequence) for source, sequence in islice(told, CUT))

    def add(self, held: Held) -> None:
        id = held.publication.id
        self.held[id] = held
        self.held_bytes += held.weight
        self.each[id.source] += 1
        for unmet in held.unmet:
            self.wait(held, unmet)

    def wait(self, held: Held, id: MessageId) -> None:
        held.unmet[id] = None
        self.waiting.setdefault((id.source, id.epoch), {}).setdefault(id, []).append(held)

    def bequeath(self, id: MessageId, most: int) -> None:
        """This is held and will not be delivered: who waits for it waits for what it waits for, for at most so many."""
        inherited = self.held[id].unmet
        for held in self.waiting[id.source, id.epoch][id]:
            for unmet in inherited:
                if len(held.unmet) < most and unmet not in held.unmet and unmet != held.publication.id:
                    self.wait(held, unmet)

    def inherit(self, waiting: Iterable[Held], id: MessageId) -> None:
        """Whoever waits for this waits for the last before it of its source that is held or waited for, too."""
        source = id.source, id.epoch
        known = [*self.waiting[source], *(held for held in self.held if (held.source, held.epoch) == source)]
        earlier = max((other for other in known if other.sequence < id.sequence and not self.over(other)), default=None)
        for held in waiting if earlier is not None else ():
            if earlier is not None and earlier not in held.unmet and earlier != held.publication.id:
                self.wait(held, earlier)

    def remove(self, held: Held) -> None:
        """It is held no longer, and waits for nothing."""
        for unmet in held.unmet:
            several = self.waiting[unmet.source, unmet.epoch]
            several[unmet].remove(held)
            if not several[unmet]:
                del several[unmet]
                self.wanted.pop(unmet, None)
            if not several:
                del self.waiting[unmet.source, unmet.epoch]
        id = held.publication.id
        del self.held[id]
        self.held_bytes -= held.weight
        self.each[id.source] -= 1
        if not self.each[id.source]:
            del self.each[id.source]

    def met(self, ids: Iterable[MessageId]) -> list[Held]:
        """These are waited for no longer; answers what waits for nothing any more."""
        free = []
        for id in ids:
            self.wanted.pop(id, None)
            several = self.waiting[id.source, id.epoch]
            for held in several.pop(id):
                del held.unmet[id]
                if not held.unmet:
                    free.append(held)
            if not several:
                del self.waiting[id.source, id.epoch]
        return free

    def waited(self, id: MessageId) -> list[MessageId]:
        """Of the ids that are waited for, those that are over when this one is: its own, and earlier ones of its source."""
        return [other for other in self.waiting.get((id.source, id.epoch), ()) if other.sequence <= id.sequence]
