"""Trees and their acknowledgements: `acks` of the paper, with what it needs where nodes crash.

A node that has a message sends it to the first member of each cluster that it serves, and acknowledges to whom it came from when
all of these have. Members are the topic's subscribers, or all nodes for a SUB. The paper has no faults; here
- the part of a child that is down goes to the next member of its cluster; a parent that is down gets its ACK all the same, for
  if it was suspected wrongly, it waits;
- what was on a link that broke is sent again, and so is, after `patience`, what a child has not acknowledged;
- a copy of a message that is known is acknowledged at once or with the first; where it asks for clusters that the first did not,
  these are served too.

Bounds: TASKS under way, of which the oldest of others goes, acknowledged as it is; PLACES standings gathered for each; KNOWN ids,
the oldest of which go; one timer; those of `cluster_heads`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter

from libweft.overlays.vcube.cube import PLACES, cluster
from libweft.overlays.vcube.places import Places
from libweft.peer.machine import Env, MessageId, Peer, Timer
from libweft.pubsub.vcube_ps.cluster_heads import Heads
from libweft.pubsub.vcube_ps.config import VCubePSConfig
from libweft.pubsub.vcube_ps.messages import Ack, Change, Pub, Standing, Sub, fitting
from libweft.pubsub.vcube_ps.views import Views

TASKS = 4_096
KNOWN = 1 << 16

CLUSTER = attrgetter("cluster")


class Wait:
    """For the acknowledgement of one child."""

    __slots__ = ("cluster", "sends", "until")

    def __init__(self, s: int, until: int) -> None:
        self.cluster = s
        self.sends = 1
        self.until = until


class Task:
    """One message on its way from here; `parents` are owed an ACK, each for the clusters up to its height.

    So what is owed for some clusters waits only for what is owed for lower ones, and no two nodes ever wait for each other, even
    where both were asked by several. `gathered` is what the ACKs say.
    """

    __slots__ = ("gathered", "height", "message", "mine", "parents", "passed", "waiting")

    def __init__(self, message: Pub | Change, parents: dict[Peer, int], height: int, mine: bool) -> None:
        self.message = message
        self.parents = parents
        self.height = height  # clusters up to this one are served
        self.mine = mine
        self.waiting: dict[Peer, Wait] = {}
        self.passed = 0  # places of those that were passed over
        self.gathered: dict[Peer, Standing] = {}


class Broadcasts:
    """`finished` hears of each message of this node's own that all have acknowledged, or that nobody will any more."""

    def __init__(
        self, env: Env, overlay: Places, views: Views, config: VCubePSConfig, finished: Callable[[str, MessageId], None]
    ) -> None:
        self.tasks: dict[MessageId, Task] = {}
        self.heads = Heads(overlay)
        self.known: dict[MessageId, int] = {}  # up to which cluster this node has served it
        self._env = env
        self._overlay = overlay
        self._views = views
        self._config = config
        self._finished = finished
        self._timer: Timer | None = None

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def note(self, key: MessageId) -> None:
        if len(self.known) >= KNOWN:
            del self.known[next(iter(self.known))]
        self.known[key] = 0

    def begin(
        self, message: Pub | Change, parents: dict[Peer, int], height: int, mine: bool, said: Iterable[Standing] = ()
    ) -> None:
        """Serve the clusters up to `height` that were not served yet; `said` is what this node itself says with its ACK."""
        if len(self.tasks) >= TASKS:
            others = (task for task in self.tasks.values() if not task.mine)
            self._end(next(others, None) or next(iter(self.tasks.values())))
        task = self.tasks[message.id] = Task(message, parents, self.known.get(message.id, 0), mine)
        for standing in said:
            task.gathered[standing.peer] = standing
        self._serve(task, height)

    def hand_on(self, message: Pub | Change, parents: dict[Peer, int], height: int, said: tuple[Standing, ...]) -> None:
        """A copy that others sent: served below, then acknowledged to them; where there is nothing to serve, at once."""
        if height <= self.known.get(message.id, 0):
            self._env.send_all(tuple(parents), Ack(message.id, said))
        else:
            self.begin(message.onward() if isinstance(message, Pub) else message, parents, height, False, said)

    def would_hand_on(self, message: Pub) -> bool:
        """Whether this very copy would go on, and not the one that came first."""
        return message.id not in self.tasks and message.height > self.known.get(message.id, 0)

    def again(self, sender: Peer, message: Pub | Change) -> None:
        """A copy of one that is known."""
        task = self.tasks.get(message.id)
        if task is not None:
            task.parents[sender] = max(message.height, task.parents.get(sender, 0))
            self._serve(task, message.height)
        else:
            self.hand_on(message, {sender: message.height}, message.height, self._recalls(message))

    def acked(self, sender: Peer, msg: Ack) -> None:
        task = self.tasks.get(msg.id)
        if task is None or task.waiting.pop(sender, None) is None:
            return
        for standing in msg.view:
            if standing.peer != self._env.me:
                self._views.note(task.message.topic, standing)
                if len(task.gathered) < PLACES:
                    task.gathered[standing.peer] = standing
        self._settle(task)

    def waits_for(self, peer: Peer) -> bool:
        return any(peer in task.waiting for task in self.tasks.values())

    def down(self, peer: Peer) -> None:
        """A member is gone: somebody else of its cluster gets what it was to hand on."""
        for task in list(self.tasks.values()):
            if peer in task.waiting:
                self._pass_over(task, peer)

    def broken(self, peer: Peer) -> None:
        """A link is: what was on it may be lost."""
        for task in self.tasks.values():
            if (wait := task.waiting.get(peer)) is not None:
                self._env.send(peer, task.message.to(wait.cluster - 1))

    def says(self, message: Pub | Change) -> tuple[Standing, ...]:
        """What this node says of itself."""
        own = self._views.of(message.topic, self._env.me) if isinstance(message, Sub) else None
        return (own,) if own is not None and own.subscribed else ()

    def _recalls(self, message: Pub | Change) -> tuple[Standing, ...]:
        """What it says to who asks again: an ACK with what was gathered may be lost with its link, or with who had it."""
        view = self._views.topics.get(message.topic, {}) if isinstance(message, Sub) else {}
        return fitting([standing for standing in view.values() if standing.subscribed and standing.peer != message.id.source])

    def _members(self, message: Pub | Change) -> int:
        return self._overlay.roll.up if isinstance(message, Sub) else self._views.subscribers(message.topic)

    def _others(self, message: Pub | Change) -> int:
        """The source has it."""
        source = self._overlay.roll.where.get(message.id.source)
        return self._members(message) & ~(1 << source) if source is not None else self._members(message)

    def _serve(self, task: Task, height: int) -> None:
        begun, message = task.height, task.message
        task.height = max(height, begun)
        self.known[message.id] = task.height
        heads = self.heads.of(message.topic, type(message), self._members(message))
        for s, peer in enumerate(heads[begun:height], begun + 1):
            if peer == message.id.source:
                self._send(task, s, self._others(message))
            elif peer is not None and peer not in task.waiting:
                self._hand(task, peer, s)
        self._settle(task)

    def _send(self, task: Task, s: int, members: int) -> None:
        peer = self.heads.first(s, members)
        if peer is not None and peer not in task.waiting:
            self._hand(task, peer, s)

    def _hand(self, task: Task, peer: Peer, s: int) -> None:
        task.waiting[peer] = Wait(s, self._env.now() + self._config.patience)
        self._env.send(peer, task.message.to(s - 1))
        if self._timer is None:
            self._timer = self._env.after(self._config.patience, self._look)

    def _pass_over(self, task: Task, peer: Peer) -> None:
        s, me, child = task.waiting.pop(peer).cluster, self._overlay.index, self._overlay.roll.of(peer)
        if child is not None:
            task.passed |= 1 << child.index
            s = cluster(me, child.index) if me is not None and child.index != me else s
        self._send(task, s, self._others(task.message) & ~task.passed)
        self._settle(task)

    def _settle(self, task: Task) -> None:
        if not task.waiting:
            self._end(task)
            return
        if task.parents and min(task.parents.values()) < (lowest := min(map(CLUSTER, task.waiting.values()))):
            due = tuple(parent for parent, height in task.parents.items() if height < lowest)
            for parent in due:
                del task.parents[parent]
            self._pay(task, due)

    def _pay(self, task: Task, parents: tuple[Peer, ...]) -> None:
        self._env.send_all(parents, Ack(task.message.id, fitting(task.gathered.values()) if task.gathered else ()))

    def _end(self, task: Task) -> None:
        if self.tasks.pop(task.message.id, None) is None:
            return
        if task.parents:
            self._pay(task, tuple(task.parents))
        if task.mine:
            self._finished(task.message.topic, task.message.id)

    def _look(self) -> None:
        """Whoever has not acknowledged for long gets it again, and is passed over at last; the overlay looks whether it is up."""
        now, patience = self._env.now(), self._config.patience
        for task in list(self.tasks.values()):
            for peer, wait in list(task.waiting.items()):
                if wait.until > now or task.waiting.get(peer) is not wait:
                    continue
                self._overlay.suspect(peer)
                if wait.sends >= self._config.sends:
                    self._pass_over(task, peer)
                else:
                    wait.until = now + (patience << wait.sends)
                    wait.sends += 1
                    if not self._env.backlog(peer):
                        self._env.send(peer, task.message.to(wait.cluster - 1))
        self._timer = self._env.after(patience, self._look) if self.tasks else None
