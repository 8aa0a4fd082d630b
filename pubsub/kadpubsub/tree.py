"""The tree: each who carries a message cuts the subscribers still to be reached into parts, and gives each part to one of it.

They are sorted into buckets of the XOR space, as seen from here; one of each bucket gets the message and the rest of its
bucket (DELEGATE), and does the same with it. So only subscribers carry it, each once, in about log2(n) steps.
A delegate says at once that it has it (GOT), and when all of its part is done (DONE). Who has not said GOT within `slow`, or is
lost before DONE, is passed over: another one of the bucket gets the rest. Copies that meet by that are known by their ids.

Bounds: TASKS under way, `held_bytes` of messages for them, one timer a delegate; SUSPECTS.
"""

from __future__ import annotations

from collections.abc import Iterable

from overlays.kademlia.space import BITS, place_of
from peer.machine import Env, MessageId, Peer, PeerInfo, Timer
from pubsub.kadpubsub.config import KadPubSubConfig
from pubsub.kadpubsub.messages import Delegate, Done, learn
from pubsub.message import Publication, weight

TASKS = 1_024
SUSPECTS = 1_024


class Part:
    """What one delegate was given; `again` once it was sent a second time."""

    __slots__ = ("again", "got", "rest", "timer")

    def __init__(self, rest: list[PeerInfo], timer: Timer) -> None:
        self.again = False
        self.rest = rest
        self.timer = timer
        self.got = False


class Task:
    """A message on its way from here: `parts` by delegate, and to whom DONE is owed when there are none left."""

    __slots__ = ("hops", "mine", "owed", "parts", "publication")

    def __init__(self, publication: Publication, hops: int, mine: bool) -> None:
        self.mine = mine
        self.publication = publication
        self.hops = hops
        self.owed: dict[Peer, None] = {}
        self.parts: dict[Peer, Part] = {}

    @property
    def taken(self) -> bool:
        """Every delegate has it, as far as they said."""
        return all(part.got for part in self.parts.values())


class Tree:
    """All messages on their way from here. `suspects` did not answer last time: they are given nothing to hand on."""

    def __init__(self, env: Env, config: KadPubSubConfig) -> None:
        self._env = env
        self._config = config
        self._place = place_of(env.me)
        self.tasks: dict[MessageId, Task] = {}
        self.bytes = 0  # of the messages of tasks
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
        while self.tasks and (len(self.tasks) >= TASKS or self.bytes > self._config.held_bytes):
            self._forget(next(iter(self.tasks.values())))
        self.bytes += weight(publication)
        task = self.tasks[publication.id] = Task(publication, hops, publication.id.source == self._env.me)
        task.owed |= dict.fromkeys(owed)
        self._hand_on(task, subscribers)

    def add(self, task: Task, sender: Peer, subscribers: Iterable[PeerInfo]) -> None:
        """One more list for a message that is on its way already."""
        task.owed[sender] = None
        self._hand_on(task, subscribers)

    def got(self, peer: Peer, key: MessageId) -> None:
        task = self.tasks.get(key)
        part = task.parts.get(peer) if task is not None else None
        self.suspects.pop(peer, None)
        if task is not None and part is not None and not part.got:
            part.got = True
            part.timer.cancel()
            part.timer = self._env.after(3 * self._config.patience, self._silent, task, peer)

    def done(self, peer: Peer, key: MessageId) -> None:
        task = self.tasks.get(key)
        self.suspects.pop(peer, None)
        if task is not None and (part := task.parts.pop(peer, None)) is not None:
            part.timer.cancel()
            self._finish(task)

    def link_up(self, peer: Peer, incarnation: int) -> None:
        self.links[peer] = incarnation
        self.suspects.pop(peer, None)

    def link_down(self, peer: Peer, incarnation: int) -> None:
        if incarnation == 0 or self.links.get(peer) == incarnation:
            self.links.pop(peer, None)
            self.failed(peer)

    def failed(self, peer: Peer) -> None:
        for task in [task for task in self.tasks.values() if peer in task.parts]:
            part = task.parts.pop(peer)
            part.timer.cancel()
            self._suspect(peer)
            self._hand_on(task, part.rest)

    def _hand_on(self, task: Task, subscribers: Iterable[PeerInfo]) -> None:
        """Sort into buckets, and give each to one of it; those that did not answer lately get it for themselves alone."""
        buckets: dict[int, list[PeerInfo]] = {}
        for info in dict.fromkeys(subscribers):
            if info.peer == self._env.me or info.peer in task.parts:
                continue
            if info.peer in self.suspects:
                self._give(task, info, [])
            else:
                buckets.setdefault(BITS - (place_of(info.peer) ^ self._place).bit_length(), []).append(info)
        for bucket in buckets.values():
            self._give_bucket(task, bucket)
        self._finish(task)

    def _give_bucket(self, task: Task, bucket: list[PeerInfo]) -> None:
        linked = [info for info in bucket if info.peer in self.links]
        chosen = self._env.rng.choice(linked or bucket)
        self._give(task, chosen, [info for info in bucket if info.peer != chosen.peer])

    def _give(self, task: Task, info: PeerInfo, rest: list[PeerInfo]) -> None:
        learn(self._env, info)
        timer = self._env.after(self._config.slow if rest else 3 * self._config.slow, self._silent, task, info.peer)
        task.parts[info.peer] = Part(rest, timer)
        self._env.send(info.peer, Delegate.of(task.publication, task.hops, rest))

    def _silent(self, task: Task, peer: Peer) -> None:
        """Its rest goes to another. If it still does not say that it has the message, that is sent once more."""
        part = task.parts.get(peer)
        if part is None or self.tasks.get(task.publication.id) is not task:
            return
        rest, part.rest = part.rest, []
        self._suspect(peer)
        if part.got or part.again:
            del task.parts[peer]
        else:
            part.again = not rest
            pause = self._config.patience if part.again else 3 * self._config.slow
            part.timer = self._env.after(pause, self._silent, task, peer)
            if part.again:
                self._env.send(peer, Delegate.of(task.publication, task.hops, []))
        self._hand_on(task, rest)

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
        self.bytes -= weight(task.publication)
        for part in task.parts.values():
            part.timer.cancel()
