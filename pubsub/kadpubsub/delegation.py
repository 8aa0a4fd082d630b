"""The tree: each who carries a message cuts the subscribers still to be reached into parts, and gives each part to one of it.

They are sorted into buckets of the XOR space, as seen from here; one of each bucket gets the message and the rest of its
bucket (DELEGATE), and does the same with it. So only subscribers carry it, each once, in about log2(n) steps. A bucket whose
list is too long for one message is cut into several.
A delegate says at once that it has it (GOT), and when all of its part is done (DONE). Both may be lost, as may the message:
- Who has not said GOT gets it again after half of `slow`. After `slow` it is passed over: another of the bucket gets the rest,
  and it gets the message for itself alone, ever more seldom, SENDS times in all.
- Who has said GOT and takes long is asked whether it is still at it (STILL), and passed over when it does not answer, or is lost.
- Who cannot hand on gives the list back (BACK): it has too much to do, refuses the message, or does not subscribe any more.
Copies that meet by that are known by their ids, and whoever is in two lists of a message is given it once.

Bounds: TASKS under way, SUBSCRIBERS in the lists of one, `held_bytes` of messages and lists for them and for what is not judged
yet, one timer a delegate; SUSPECTS, RETURNED. Where there is no room, lists of others go back; for a message of this node's own
the oldest of others gives way, or else its own oldest, which is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from libweft.overlays.claims import learn
from libweft.overlays.kademlia.space import BITS, place_of
from libweft.peer.machine import Env, MessageId, Peer, PeerInfo, Timer
from libweft.pubsub.kadpubsub.config import KadPubSubConfig
from libweft.pubsub.kadpubsub.messages import SUBSCRIBERS, Back, Delegate, Done, Still, lists
from libweft.pubsub.kadpubsub.unjudged import Held, load
from libweft.pubsub.message import Publication, weight

TASKS = 1_024
SENDS = 5  # of a message to one that does not answer
STILLS = 3  # questions to one that does not answer
SUSPECTS = 1_024
RETURNED = 1_024  # lists given back that are remembered, should BACK be lost
SHARED = 64  # bytes of a subscriber in a task of this node's own: what is known of it is kept once for all tasks
UNASKED = 3  # times `slow`, before one that has it is asked: one of its delegates may be passed over, and another do its part
AT_IT = 3  # times `patience`, for which one may be at it: a chain of delegates that are passed over, one after the other


class Part:
    """What one delegate was given; `sends` counts the messages, or once it `got` that, the questions, that it did not answer."""

    __slots__ = ("got", "rest", "sends", "timer", "until")

    def __init__(self, rest: list[PeerInfo], timer: Timer) -> None:
        self.rest = rest
        self.timer = timer
        self.sends = 1
        self.got = False
        self.until = 0


class Task:
    """A message on its way from here: `parts` by delegate, and to whom DONE is owed when there are none left.

    `entrusted` are all that this node was to reach: a list that comes a second time, since GOT was lost, brings nothing new.
    """

    __slots__ = ("bytes", "entrusted", "hops", "mine", "owed", "parts", "publication")

    def __init__(self, publication: Publication, hops: int, mine: bool, entrusted: dict[Peer, PeerInfo]) -> None:
        self.mine = mine
        self.publication = publication
        self.hops = hops
        self.owed: dict[Peer, None] = {}
        self.parts: dict[Peer, Part] = {}
        self.entrusted = entrusted
        self.bytes = weight(publication) + (SHARED * len(entrusted) if mine else load(entrusted.values()))

    @property
    def taken(self) -> bool:
        """Every delegate has it, as far as they said."""
        return all(part.got for part in self.parts.values())


class Tree:
    """All messages on their way from here. `suspects` did not answer last time: they are given nothing to hand on.

    `lost` hears of messages of this node that it forgot before all delegates were done.
    """

    def __init__(self, env: Env, config: KadPubSubConfig, held: Held, lost: Callable[[Publication], None]) -> None:
        self._env = env
        self._config = config
        self._held = held
        self._lost = lost
        self._place = place_of(env.me)
        self.tasks: dict[MessageId, Task] = {}
        self.returned: dict[tuple[Peer, MessageId], None] = {}
        self.links: dict[Peer, int] = {}
        self.suspects: dict[Peer, None] = {}

    def stop(self) -> None:
        for task in self.tasks.values():
            for part in task.parts.values():
                part.timer.cancel()

    def untaken(self) -> int:
        """Bytes of this node's own messages that some delegate has not taken yet."""
        return sum(weight(task.publication) for task in self.tasks.values() if task.mine and not task.taken)

    def begin(self, publication: Publication, hops: int, owed: Iterable[Peer], subscribers: Iterable[PeerInfo]) -> None:
        mine = publication.id.source == self._env.me
        task = Task(publication, hops, mine, {info.peer: info for info in subscribers})
        if mine:
            self._make_room(task.bytes)
        elif task.entrusted and not self._has_room(task.bytes):
            self.give_back(owed, publication.id)
            return
        self._held.bytes += task.bytes
        self.tasks[publication.id] = task
        task.owed |= dict.fromkeys(owed)
        self._hand_on(task, task.entrusted.values())

    def add(self, task: Task, sender: Peer, subscribers: Iterable[PeerInfo]) -> None:
        """One more list for a message that is on its way already."""
        fresh = {info.peer: info for info in subscribers if info.peer not in task.entrusted}
        size = load(fresh.values())
        if fresh and (len(task.entrusted) + len(fresh) > SUBSCRIBERS or not self._held.fits(size)):
            self.give_back((sender,), task.publication.id)
            return
        task.owed[sender] = None
        task.entrusted |= fresh
        task.bytes += size
        self._held.bytes += size
        self._hand_on(task, fresh.values())

    def give_back(self, owed: Iterable[Peer], key: MessageId) -> None:
        """Remembered for a while: who does not hear it must not be told DONE when it asks."""
        for peer in owed:
            if len(self.returned) >= RETURNED:
                del self.returned[next(iter(self.returned))]
            self.returned[peer, key] = None
            self._env.send(peer, Back(key))

    def _has_room(self, size: int) -> bool:
        return len(self.tasks) < TASKS and self._held.fits(size)

    def _make_room(self, size: int) -> None:
        while self.tasks and not self._has_room(size):
            others = (task for task in self.tasks.values() if not task.mine)
            oldest = next(others, None) or next(iter(self.tasks.values()))
            self._forget(oldest)
            self.give_back(oldest.owed, oldest.publication.id)
            if oldest.mine:
                self._lost(oldest.publication)

    # What delegates say.

    def got(self, peer: Peer, key: MessageId) -> None:
        """One that has nothing to hand on is done with that."""
        self.suspects.pop(peer, None)
        task, part = self._part(peer, key)
        if task is None or part is None:
            return
        if not part.rest:
            self.done(peer, key)
            return
        if not part.got:
            part.got = True
            part.until = self._env.now() + AT_IT * self._config.patience
        part.sends = 0
        self._wait(task, peer, part, max(0, min(UNASKED * self._config.slow, part.until - self._env.now())))

    def done(self, peer: Peer, key: MessageId) -> None:
        self.suspects.pop(peer, None)
        task, part = self._part(peer, key)
        if task is not None and part is not None:
            self._drop(task, peer)
            self._finish(task)

    def back(self, peer: Peer, key: MessageId) -> None:
        task, part = self._part(peer, key)
        if task is not None and part is not None:
            self._drop(task, peer)
            self._hand_on(task, part.rest)

    def _part(self, peer: Peer, key: MessageId) -> tuple[Task | None, Part | None]:
        task = self.tasks.get(key)
        return task, task.parts.get(peer) if task is not None else None

    # Links.

    def link_up(self, peer: Peer, incarnation: int) -> None:
        self.links[peer] = incarnation
        self.suspects.pop(peer, None)

    def link_down(self, peer: Peer, incarnation: int) -> None:
        """Who cannot be dialled is given up; what was on a link that broke may be lost, and is sent by the next."""
        if incarnation == 0:
            self.failed(peer)
        elif self.links.get(peer) == incarnation:
            del self.links[peer]
            for task in self._tasks_of(peer):
                part = task.parts[peer]
                if part.got or part.sends >= SENDS:
                    self._pass_over(task, peer)
                else:
                    self._send_alone(task, peer, part)

    def failed(self, peer: Peer) -> None:
        self.links.pop(peer, None)
        for task in self._tasks_of(peer):
            self._pass_over(task, peer)

    def _tasks_of(self, peer: Peer) -> list[Task]:
        return [task for task in self.tasks.values() if peer in task.parts]

    # Handing on.

    def _hand_on(self, task: Task, subscribers: Iterable[PeerInfo]) -> None:
        """Sort into buckets, and give each to one of it; those that did not answer lately get it for themselves alone."""
        buckets: dict[int, list[PeerInfo]] = {}
        for info in subscribers:
            if info.peer == self._env.me or info.peer in task.parts:
                continue
            if info.peer in self.suspects:
                self._give(task, info, [])
            else:
                buckets.setdefault(BITS - (place_of(info.peer) ^ self._place).bit_length(), []).append(info)
        for bucket in buckets.values():
            for part in lists(bucket):
                self._give_part(task, part)
        self._finish(task)

    def _give_part(self, task: Task, part: list[PeerInfo]) -> None:
        linked = [info for info in part if info.peer in self.links]
        chosen = self._env.rng.choice(linked or part)
        self._give(task, chosen, [info for info in part if info.peer != chosen.peer])

    def _give(self, task: Task, info: PeerInfo, rest: list[PeerInfo]) -> None:
        learn(self._env, info)
        timer = self._env.after(self._config.slow // 2, self._silent, task, info.peer)
        task.parts[info.peer] = Part(rest, timer)
        self._env.send(info.peer, Delegate.of(task.publication, task.hops, rest))

    def _silent(self, task: Task, peer: Peer) -> None:
        """The time is over in which an answer should have come."""
        part = task.parts[peer]
        if part.got:
            self._ask_whether_still(task, peer, part)
        elif part.sends == 1:
            part.sends = 2
            self._wait(task, peer, part, self._config.slow // 2)
            self._send_again(task, peer, part)
        elif part.sends < SENDS:
            self._send_alone(task, peer, part)
        else:
            self._pass_over(task, peer)

    def _ask_whether_still(self, task: Task, peer: Peer, part: Part) -> None:
        if part.sends == STILLS or self._env.now() >= part.until:
            self._pass_over(task, peer)
        else:
            part.sends += 1
            self._wait(task, peer, part, self._config.slow)
            self._env.send(peer, Still(task.publication.id))

    def _send_alone(self, task: Task, peer: Peer, part: Part) -> None:
        """It may be gone, so another gets what it was to hand on; or all was lost that it was sent."""
        rest, part.rest = part.rest, []
        self._suspect(peer)
        part.sends += 1
        self._wait(task, peer, part, self._config.slow << max(0, part.sends - 3))
        self._send_again(task, peer, part)
        self._hand_on(task, rest)

    def _send_again(self, task: Task, peer: Peer, part: Part) -> None:
        """Unless the first one has not even left yet: it waits for a dial, or behind others."""
        if not self._env.backlog(peer):
            self._env.send(peer, Delegate.of(task.publication, task.hops, part.rest))

    def _wait(self, task: Task, peer: Peer, part: Part, delay: int) -> None:
        part.timer.cancel()
        part.timer = self._env.after(delay, self._silent, task, peer)

    def _pass_over(self, task: Task, peer: Peer) -> None:
        part = self._drop(task, peer)
        self._suspect(peer)
        self._hand_on(task, part.rest)

    def _drop(self, task: Task, peer: Peer) -> Part:
        part = task.parts.pop(peer)
        part.timer.cancel()
        return part

    def _suspect(self, peer: Peer) -> None:
        if len(self.suspects) >= SUSPECTS:
            del self.suspects[next(iter(self.suspects))]
        self.suspects[peer] = None

    def _finish(self, task: Task) -> None:
        if not task.parts and self.tasks.get(task.publication.id) is task:
            self._forget(task)
            self._env.send_all(tuple(task.owed), Done(task.publication.id))

    def _forget(self, task: Task) -> None:
        del self.tasks[task.publication.id]
        self._held.bytes -= task.bytes
        for part in task.parts.values():
            part.timer.cancel()
