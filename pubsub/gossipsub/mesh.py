"""The meshes of the topics that are joined here, the fanouts of those that are only published to, and who is in them.

A mesh is grown to `d` peers when it falls below `d_lo`, cut down to `d` when it has `d_hi`, rid of peers whose score is negative,
and keeps `d_out` links that were dialled from here: who only waits for others' dials can be surrounded. It is cut at `d_hi`, as
in Go and Rust, and not above: a full mesh refuses every GRAFT, and those who filled it would keep all others out. Whoever was
pruned, or pruned us, is left alone until its back-off is over; a GRAFT before that is refused and counts against it.
Changes of a heartbeat go out together, one message a peer.

Bounds: `d_hi` peers a mesh and those dialled from here; fanouts end after `fanout_ttl`, at most FANOUTS; those of `backoff`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from libweft.peer.machine import SECOND, Peer
from libweft.peer.trace.kinds import GRAFT, PRUNE
from libweft.pubsub.gossipsub.backoff import Backoff
from libweft.pubsub.gossipsub.messages import Graft, Prune, Pruned

if TYPE_CHECKING:
    from libweft.pubsub.gossipsub.router import GossipSub

FANOUTS = 1_024  # a guess: topics published to and not joined, in a minute
SWEEP = 15  # heartbeats between two sweeps of old back-offs, as in Go


class Mesh:
    """`everyone` is the same as `peers`, for `Env.send_all`; `used` is when a fanout was last published to."""

    __slots__ = ("everyone", "peers", "searched", "used")

    def __init__(self) -> None:
        self.peers: dict[Peer, None] = {}
        self.everyone: tuple[Peer, ...] = ()
        self.searched = 0  # the heartbeat in which peers for it were last looked for
        self.used = 0

    def add(self, peer: Peer) -> None:
        self.peers[peer] = None
        self.everyone = tuple(self.peers)

    def remove(self, peer: Peer) -> None:
        del self.peers[peer]
        self.everyone = tuple(self.peers)


class Meshes:
    def __init__(self, router: GossipSub) -> None:
        self.router = router
        self.config = router.config
        self.topics: dict[str, Mesh] = {}
        self.fanouts: dict[str, Mesh] = {}  # longest unused first
        self.backoff = Backoff(self.config.backoff_slack * self.config.heartbeat)
        self.grafted: dict[Peer, list[str]] = {}  # what a heartbeat has to tell
        self.pruned: dict[Peer, list[Pruned]] = {}

    # Join and leave.

    def join(self, topic: str) -> None:
        """Those who got its messages from here before it was joined come first."""
        mesh = self.topics[topic] = Mesh()
        fanout = self.fanouts.pop(topic, None)
        known = [peer for peer in fanout.everyone if self._may_graft(topic, peer)] if fanout is not None else []
        for peer in known[: self.config.d]:
            self._add(topic, mesh, peer)
        for peer in self._choose(topic, self.config.d - len(mesh.peers)):
            self._add(topic, mesh, peer)
        self.tell()

    def leave(self, topic: str) -> None:
        for peer in self.topics[topic].everyone:
            self._remove(topic, peer, self.config.unsubscribe_backoff, px=self.config.px)
        del self.topics[topic]
        self.tell()

    # What peers say.

    def graft(self, sender: Peer, topics: Iterable[str]) -> None:
        """A topic that is not joined gets no answer: an answer would tell a stranger what it did not know."""
        for topic in topics:
            mesh = self.topics.get(topic)
            if mesh is not None and sender not in mesh.peers and self.router.is_meshing(sender):
                self._grafted_by(sender, topic, mesh)
        self.tell()

    def _grafted_by(self, sender: Peer, topic: str, mesh: Mesh) -> None:
        router, now = self.router, self.router.env.now()
        if sender in router.contacts.direct:
            self._refuse(topic, sender, px=False)
        elif (until := self.backoff.until(topic, sender)) > now:
            hasty = now < until + self.config.graft_flood - self.config.prune_backoff
            router.standing.penalize(sender, 1 + hasty)
            self._refuse(topic, sender, px=False)
        elif router.standing.value(sender) < 0:
            self._refuse(topic, sender, px=False)
        elif len(mesh.peers) >= self.config.d_hi and not router.parties[sender].outbound:
            self._refuse(topic, sender, px=self.config.px)
        elif router.subscribed(sender, topic):
            self._take(topic, mesh, sender)
        else:
            self._refuse(topic, sender, px=False)

    def prune(self, sender: Peer, topics: Iterable[Pruned]) -> None:
        for pruned in topics:
            mesh = self.topics.get(pruned.topic)
            if mesh is None:
                continue
            if sender in mesh.peers:
                self._let_go(pruned.topic, mesh, sender)
            asked = min(pruned.backoff * SECOND, self.config.backoff_most)
            self.backoff.add(pruned.topic, sender, self.router.env.now() + (asked or self.config.prune_backoff))
            self.router.contacts.introduced(sender, pruned.peers)

    def left(self, peer: Peer) -> None:
        """It is in no mesh from now on."""
        for topic in (*self.topics, *self.fanouts):
            self.unsubscribed(peer, topic)

    def unsubscribed(self, peer: Peer, topic: str) -> None:
        for meshes in (self.topics, self.fanouts):
            mesh = meshes.get(topic)
            if mesh is not None and peer in mesh.peers:
                if meshes is self.topics:
                    self._let_go(topic, mesh, peer)
                else:
                    mesh.remove(peer)

    def subscribes(self, peer: Peer, topic: str) -> None:
        """A mesh that lacks peers takes it at once, as in JS: a heartbeat later is later."""
        mesh = self.topics.get(topic)
        if mesh is not None and len(mesh.peers) < self.config.d_lo and peer not in mesh.peers and self._may_graft(topic, peer):
            self._add(topic, mesh, peer)
            self.tell()

    # The heartbeat.

    def maintain(self, tick: int) -> None:
        if tick % SWEEP == 0:
            self.backoff.sweep(self.router.env.now())
        opportune = tick % self.config.opportunistic_every == 0
        for topic, mesh in self.topics.items():
            self._rid(topic, mesh)
            self._grow(topic, mesh)
            self._cut(topic, mesh)
            self._dial_out(topic, mesh)
            if opportune:
                self._better(topic, mesh)
        self._keep_fanouts()

    def _rid(self, topic: str, mesh: Mesh) -> None:
        for peer in mesh.everyone:
            if self.router.standing.value(peer) < 0:
                self._remove(topic, peer, self.config.prune_backoff, px=False)

    def _grow(self, topic: str, mesh: Mesh) -> None:
        if len(mesh.peers) < self.config.d_lo:
            for peer in self._choose(topic, self.config.d - len(mesh.peers)):
                self._add(topic, mesh, peer)

    def _cut(self, topic: str, mesh: Mesh) -> None:
        """The best by score stay, and enough that were dialled from here; for the others it is chance."""
        if len(mesh.peers) < self.config.d_hi:
            return
        peers = list(mesh.everyone)
        self.router.env.rng.shuffle(peers)
        peers.sort(key=self.router.standing.value, reverse=True)
        count = min(self.config.d_score, self.config.d)
        best, rest = peers[:count], peers[count:]
        self.router.env.rng.shuffle(rest)
        missing = self.config.d_out - sum(map(self._outbound, best))
        dialled = [peer for peer in rest if self._outbound(peer)][: max(0, missing)]
        best.sort(key=self._outbound, reverse=True)  # where both do not fit, the others of them make room
        for peer in [*dialled, *best, *(peer for peer in rest if peer not in dialled)][self.config.d :]:
            self._remove(topic, peer, self.config.prune_backoff, px=self.config.px)

    def _dial_out(self, topic: str, mesh: Mesh) -> None:
        if len(mesh.peers) >= self.config.d_lo:
            missing = self.config.d_out - sum(map(self._outbound, mesh.everyone))
            for peer in self._choose(topic, missing, outbound=True) if missing > 0 else ():
                self._add(topic, mesh, peer)

    def _better(self, topic: str, mesh: Mesh) -> None:
        """Opportunistic grafting: a mesh whose median is poor takes some that are above it."""
        if len(mesh.peers) > 1:
            value = self.router.standing.value
            median = sorted(map(value, mesh.everyone))[len(mesh.peers) // 2]
            if median < self.router.standing.thresholds.opportunistic_graft:
                better = [peer for peer in self._candidates(topic) if value(peer) > median]
                for peer in self._sample(better, self.config.opportunistic_peers):
                    self._add(topic, mesh, peer)

    def tell(self) -> None:
        """Send what has changed."""
        for peer, topics in self.grafted.items():
            self.router.env.send(peer, Graft(tuple(topics)))
        for peer, pruned in self.pruned.items():
            self.router.env.send(peer, Prune(tuple(pruned)))
        self.grafted.clear()
        self.pruned.clear()

    # Fanouts.

    def fanout(self, topic: str) -> Mesh:
        """To whom a message goes of a topic that is not joined here."""
        mesh = self.fanouts.pop(topic, None) or Mesh()
        self.fanouts[topic] = mesh
        mesh.used = self.router.env.now()
        if not mesh.peers:
            self._fill(topic, mesh)
        if len(self.fanouts) > FANOUTS:
            del self.fanouts[next(iter(self.fanouts))]
        return mesh

    def _keep_fanouts(self) -> None:
        now = self.router.env.now()
        for topic, mesh in list(self.fanouts.items()):
            if mesh.used + self.config.fanout_ttl < now:
                del self.fanouts[topic]
                continue
            for peer in mesh.everyone:
                if not self.router.standing.may_have(peer):
                    mesh.remove(peer)
            if len(mesh.peers) < self.config.d:
                self._fill(topic, mesh)

    def _fill(self, topic: str, mesh: Mesh) -> None:
        taken = {**mesh.peers, **self.router.contacts.direct}
        able = [peer for peer in self.router.meshing(topic) if peer not in taken and self.router.standing.may_have(peer)]
        for peer in self._sample(able, self.config.d - len(mesh.peers)):
            mesh.add(peer)

    # Who comes, who goes.

    def _choose(self, topic: str, count: int, *, outbound: bool = False) -> list[Peer]:
        candidates = self._candidates(topic) if count > 0 else []
        return self._sample([peer for peer in candidates if not outbound or self._outbound(peer)], count)

    def _candidates(self, topic: str) -> list[Peer]:
        mesh = self.topics[topic]
        return [peer for peer in self.router.meshing(topic) if peer not in mesh.peers and self._may_graft(topic, peer)]

    def _may_graft(self, topic: str, peer: Peer) -> bool:
        """Whoever has a back-off that was not swept yet may not: its own may end a little later."""
        router = self.router
        return (
            router.is_meshing(peer)
            and peer not in router.contacts.direct
            and not self.backoff.has(topic, peer)
            and router.standing.value(peer) >= 0
        )

    def _sample(self, peers: list[Peer], count: int) -> list[Peer]:
        return self.router.env.rng.sample(peers, min(len(peers), max(0, count)))

    def _outbound(self, peer: Peer) -> bool:
        return self.router.parties[peer].outbound

    def _add(self, topic: str, mesh: Mesh, peer: Peer) -> None:
        self.grafted.setdefault(peer, []).append(topic)
        self._take(topic, mesh, peer)

    def _take(self, topic: str, mesh: Mesh, peer: Peer) -> None:
        mesh.add(peer)
        self.router.standing.graft(peer, topic)
        self.router.contacts.hold(peer)
        self.router.trace(GRAFT, topic, None, peer)

    def _remove(self, topic: str, peer: Peer, backoff: int, *, px: bool) -> None:
        self._let_go(topic, self.topics[topic], peer)
        self._refuse(topic, peer, px=px, backoff=backoff)

    def _let_go(self, topic: str, mesh: Mesh, peer: Peer) -> None:
        mesh.remove(peer)
        self.router.standing.prune(peer, topic)
        self.router.trace(PRUNE, topic, None, peer)

    def _refuse(self, topic: str, peer: Peer, *, px: bool, backoff: int | None = None) -> None:
        """A peer of version 1.0 reads neither introductions nor back-offs."""
        backoff = self.config.prune_backoff if backoff is None else backoff
        self.backoff.add(topic, peer, self.router.env.now() + backoff)
        old = not self.router.knows_backoff(peer)
        peers = self.router.contacts.introduce(peer, topic) if px and not old else ()
        self.pruned.setdefault(peer, []).append(Pruned(topic, peers, 0 if old else -(-backoff // SECOND)))
