"""Whom GossipSub keeps links to: the peers of its meshes, direct peers, and candidates that it was told of or looked for.

The overlay below holds links of its own; those are used too. A link to a peer of a mesh is held from both ends, so that the
overlay's changes do not tear it. For a topic with too few peers others are sought: by topic where the overlay can find
subscribers, else by a sample of it. A PRUNE may introduce peers, by their own signed records: taken from a peer of good score.

Bounds: `spare` links held beyond meshes and direct peers, the longest held let go first; DIALS under way at a time; `px_peers`
taken from one introduction; DIRECT direct peers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from libweft.overlays.claims import check_infos, learn
from libweft.overlays.powers import Directory, Sampling, has, power_of
from libweft.peer.errors import UsageError
from libweft.peer.machine import Peer, PeerInfo

if TYPE_CHECKING:
    from libweft.pubsub.gossipsub.router import GossipSub

DIALS = 8  # as in Go
DIRECT = 256


class Contacts:
    def __init__(self, router: GossipSub) -> None:
        self.router = router
        self.config = router.config
        self.direct: dict[Peer, None] = {}
        self.held: dict[Peer, None] = {}  # longest held first
        self.dialled: dict[Peer, None] = {}  # of these, those whose link is not up yet
        overlay = router.overlay
        self.directory = power_of(overlay, Directory) if has(overlay, Directory) else None
        self.sampling = power_of(overlay, Sampling) if has(overlay, Sampling) else None

    def hold(self, peer: Peer) -> None:
        if peer not in self.held:
            self.held[peer] = None
            self.router.env.connect(peer)

    def release(self, peer: Peer) -> None:
        if peer in self.held:
            del self.held[peer]
            self.router.env.disconnect(peer)

    def up(self, peer: Peer) -> None:
        self.dialled.pop(peer, None)

    def down(self, peer: Peer) -> None:
        self.held.pop(peer, None)
        self.dialled.pop(peer, None)

    # Direct peers: always sent to, never in a mesh.

    def add_direct(self, info: PeerInfo) -> None:
        if info.peer not in self.direct and len(self.direct) >= DIRECT:
            raise UsageError(f"{DIRECT} direct peers are enough")
        self.direct[info.peer] = None
        self.router.env.learn(info)
        self.router.meshes.left(info.peer)
        self.dial_direct()

    def remove_direct(self, peer: Peer) -> None:
        self.direct.pop(peer, None)

    def dial_direct(self) -> None:
        for peer in self.direct:
            if peer not in self.router.parties:
                self.held.pop(peer, None)  # a dial that failed, or one that is under way: both may be asked for again
                self.hold(peer)

    # The heartbeat.

    def maintain(self, tick: int) -> None:
        if tick % self.config.direct_every == 0:
            self.dial_direct()
        for topic, mesh in self.router.meshes.topics.items():
            if len(mesh.peers) < self.config.d_lo and tick >= mesh.searched:
                mesh.searched = tick + self.config.discover_every
                self._search(topic)
        if len(self.held) > self.config.spare:
            self._let_go()

    def _search(self, topic: str) -> None:
        if self.directory is not None:
            self.directory.find(topic, self.config.d_hi, self._found)
        elif self.sampling is not None:
            self._found([PeerInfo(peer) for peer in self.sampling.sample(self.config.d_hi)])

    def _found(self, infos: Sequence[PeerInfo]) -> None:
        for info in infos[: self.config.d_hi]:
            learn(self.router.env, info)
            self._dial(info.peer)

    def _dial(self, peer: Peer) -> None:
        known = peer in self.router.parties or peer in self.held or peer == self.router.env.me
        if not known and len(self.dialled) < DIALS:
            self.dialled[peer] = None
            self.hold(peer)

    def _let_go(self) -> None:
        meshes = self.router.meshes
        used = {peer for topics in (meshes.topics, meshes.fanouts) for mesh in topics.values() for peer in mesh.peers}
        idle = [peer for peer in self.held if peer not in used and peer not in self.direct and peer not in self.dialled]
        for peer in idle[: max(0, len(idle) - self.config.spare)]:
            self.release(peer)

    # Peer exchange.

    def introduce(self, peer: Peer, topic: str) -> tuple[PeerInfo, ...]:
        """Others of the topic, for one that is pruned. Only by their own records, where peers have any."""
        router = self.router
        able = [other for other in router.meshing(topic) if other != peer and router.standing.value(other) >= 0]
        chosen = router.env.rng.sample(able, min(len(able), self.config.px_peers))
        return tuple(PeerInfo(other, (), router.env.info(other).record) for other in chosen)

    def introduced(self, sender: Peer, infos: Sequence[PeerInfo]) -> None:
        router = self.router
        if not infos or not self.config.px or router.standing.value(sender) < router.standing.thresholds.accept_px:
            return
        check_infos(router.env.me, infos)
        for info in router.env.rng.sample(infos, min(len(infos), self.config.px_peers)):
            if info.peer != router.env.me and info.peer not in router.parties:
                learn(router.env, info)
                self._dial(info.peer)
