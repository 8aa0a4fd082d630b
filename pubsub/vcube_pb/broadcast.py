"""Reliable broadcast: the trees of VCube-PS, which any node that has a message can take over from its source.

Section 5.3 of VCube-PB, Algorithms 5.2 and 5.3. CHECKLEAVE's line 33 compares a name that stands nowhere; it must be the child
that is waited for. When a source is down, each node that has a message of it serves all of its own clusters (line 42), but for
those that it has served: a copy that a child has already is acknowledged at once, so it costs log2 N messages a node.
"""

from __future__ import annotations

from collections.abc import Callable

from libweft.overlays.vcube.cube import DIMENSION, places
from libweft.overlays.vcube.places import Places
from libweft.peer.machine import Env, MessageId, Peer
from libweft.pubsub.vcube_pb.config import VCubePBConfig
from libweft.pubsub.vcube_pb.messages import Decline, Unreg
from libweft.pubsub.vcube_ps.broadcast import Broadcasts, Task
from libweft.pubsub.vcube_ps.messages import Change, Pub, Sub, Uns
from libweft.pubsub.vcube_ps.views import Views


class ReliableBroadcasts(Broadcasts):
    """`editors` are those who registered as publishers."""

    def __init__(
        self,
        env: Env,
        overlay: Places,
        views: Views,
        editors: Views,
        config: VCubePBConfig,
        finished: Callable[[str, MessageId], None],
    ) -> None:
        super().__init__(env, overlay, views, config, finished)
        self._editors = editors
        self._fixed = config.fixed_root

    def take_over(self, message: Pub) -> None:
        """Serve all clusters, as its source would."""
        task = self.tasks.get(message.id)
        if task is not None:
            self._serve(task, DIMENSION)
        elif self.known.get(message.id, 0) < DIMENSION:
            self.begin(message, {}, DIMENSION, False)

    def publish(self, message: Pub) -> None:
        """This node's own: by its own tree, or by that of the fixed root."""
        root = next(places(self._overlay.roll.up), None) if self._fixed else None
        if root is None or root == self._overlay.index:
            self.begin(message, {}, DIMENSION, True)
        else:
            task = self.tasks[message.id] = Task(message, {}, 0, True)
            self._hand(task, self._overlay.roll.peer(root), DIMENSION + 1)

    def declined(self, sender: Peer, m: Decline) -> None:
        task = self.tasks.get(m.id)
        if task is not None and sender in task.waiting:
            self._views.note(task.message.topic, m.standing)
            self._pass_over(task, sender)

    def _pass_over(self, task: Task, peer: Peer) -> None:
        if task.waiting[peer].cluster > DIMENSION:  # the fixed root
            del task.waiting[peer]
            self._serve(task, DIMENSION)
        else:
            super()._pass_over(task, peer)

    def _members(self, message: Pub | Change) -> int:
        """Whoever begins is told to all, whoever ends to those who take part; a message goes to the subscribers."""
        if isinstance(message, Sub):
            return self._overlay.roll.up
        members = self._views.subscribers(message.topic)
        return members | self._editors.subscribers(message.topic) if isinstance(message, Uns | Unreg) else members

    def _others(self, message: Pub | Change) -> int:
        """In the fixed root's tree the source has a place of its own, where it hands on what comes back to it."""
        return self._members(message) if self._fixed and isinstance(message, Pub) else super()._others(message)
