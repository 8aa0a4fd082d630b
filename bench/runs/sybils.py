"""The hostile nodes of a scenario's attacks.

Each dials `degree` honest ones, `targets` or any, subscribes to all topics and grafts itself into their meshes; a PRUNE makes it
come again when the back-off is over. That alone is a sybil that never forwards; the other kinds do more. They are no routers and
write no trace but what they send, so that the figures are those of honest nodes.
Bounds: `nodes`, and `degree` links a hostile node; KEPT messages that one replays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from libweft.bench.runs.attacks import (
    INVALID,
    AnyAttack,
    Attack,
    GraftSpam,
    IHaveFlood,
    InvalidSpam,
    IWantFlood,
    Poison,
    Replay,
    Silent,
)
from libweft.peer.machine import MS, SECOND, Codec, Env, Link, Machine, MessageId, Peer, PeerInfo, upon
from libweft.peer.sim.simulator import Simulator
from libweft.pubsub.gossipsub.messages import Extensions, Graft, IDontWant, IHave, IWant, Prune, Pruned, Test
from libweft.pubsub.gossipsub.router import LEVELS
from libweft.pubsub.gossipsub.wire import mesh_rpc
from libweft.pubsub.message import Publication
from libweft.pubsub.rpc import Subscriptions
from libweft.pubsub.seen import Seen

REGRAFT = 15 * SECOND  # as in the evaluation: a random part of it after the back-off
REDIAL = 5 * SECOND
TICK = SECOND
KEPT = 1_000


class Part(NamedTuple):
    """What one of them is given beside its attack."""

    targets: Sequence[Peer]
    topics: tuple[str, ...]
    comrades: Sequence[Peer]


class Sybil(Machine):
    """A hostile node. `mesh` are the peers in whose mesh it is, as far as it knows."""

    protocols = tuple(LEVELS)

    def __init__(self, env: Env, attack: Attack, part: Part) -> None:
        super().__init__(env)
        self.attack = attack
        self.targets, self.topics, self.comrades = part
        self.began = env.now()
        self.peers: dict[Peer, None] = {}
        self.mesh: dict[tuple[str, Peer], None] = {}
        self.seen = Seen()

    def codec(self) -> Codec:
        return mesh_rpc(numbered=True)

    def start(self) -> None:
        for peer in self.targets:
            self.env.connect(peer)
        self.env.after(1 + self.env.rng.randrange(TICK), self._tick)

    def _tick(self) -> None:
        self.env.after(TICK, self._tick)
        for peer in tuple(self.peers):
            self.assault(peer)

    def assault(self, peer: Peer) -> None:
        """Each second, to each peer."""

    def link_up(self, peer: Peer, link: Link) -> None:
        self.peers[peer] = None
        self.env.send(peer, Subscriptions(tuple((True, topic) for topic in self.topics)))
        self._graft(peer, self.topics)

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        self.peers.pop(peer, None)
        for topic in self.topics:
            self.mesh.pop((topic, peer), None)
        if peer in self.targets:
            self.env.after(REDIAL, self.env.connect, peer)

    def _graft(self, peer: Peer, topics: tuple[str, ...]) -> None:
        if peer in self.peers:
            self.mesh.update(((topic, peer), None) for topic in topics)
            self.env.send(peer, Graft(topics))

    @upon(Graft)
    def grafted(self, sender: Peer, m: Graft) -> None:
        self.mesh.update(((topic, sender), None) for topic in m.topics)

    @upon(Prune)
    def pruned(self, sender: Peer, m: Prune) -> None:
        for pruned in m.topics:
            self.mesh.pop((pruned.topic, sender), None)
            again = pruned.backoff * SECOND + self.env.rng.randrange(REGRAFT)
            self.env.after(again, self._graft, sender, (pruned.topic,))

    @upon(Publication)
    def publication(self, sender: Peer, m: Publication) -> None:
        if self.seen.note(m.id, self.env.now()):
            self.heard(sender, m)

    def heard(self, sender: Peer, m: Publication) -> None: ...

    def forward(self, sender: Peer, m: Publication) -> None:
        peers = tuple(peer for topic, peer in self.mesh if topic == m.topic and peer != m.id.source)
        self.env.send_all(peers, m, sender)

    @upon(Subscriptions)
    def subscriptions(self, sender: Peer, m: Subscriptions) -> None: ...
    @upon(IHave)
    def ihave(self, sender: Peer, m: IHave) -> None: ...
    @upon(IWant)
    def iwant(self, sender: Peer, m: IWant) -> None: ...
    @upon(IDontWant)
    def idontwant(self, sender: Peer, m: IDontWant) -> None: ...
    @upon(Extensions)
    def extensions(self, sender: Peer, m: Extensions) -> None: ...
    @upon(Test)
    def test(self, sender: Peer, m: Test) -> None: ...


class SilentSybil(Sybil):
    attack: Silent

    def heard(self, sender: Peer, m: Publication) -> None:
        behaves = self.env.now() < self.began + self.attack.turn * SECOND
        if behaves or (m.id.source not in self.attack.censors and self.env.rng.random() < self.attack.forwards):
            self.forward(sender, m)


class GraftSpammer(Sybil):
    def assault(self, peer: Peer) -> None:
        self.env.send(peer, Graft(self.topics))


class Announcer(Sybil):
    attack: IHaveFlood

    def assault(self, peer: Peer) -> None:
        for _ in range(self.attack.announcements):
            ids = tuple(self.env.rng.randbytes(16) for _ in range(self.attack.ids))
            self.env.send(peer, IHave(((self.topics[0], ids),)))


class Spammer(Sybil):
    attack: InvalidSpam
    number = 0

    def assault(self, peer: Peer) -> None:
        for _ in range(self.attack.rate):
            self.number += 1
            self.env.send(peer, Publication(MessageId(self.env.me, 1, self.number), self.topics[0], INVALID))


class Replayer(Sybil):
    attack: Replay

    def __init__(self, env: Env, attack: Attack, part: Part) -> None:
        super().__init__(env, attack, part)
        self.kept: deque[tuple[int, Publication]] = deque(maxlen=KEPT)

    def heard(self, sender: Peer, m: Publication) -> None:
        self.forward(sender, m)
        self.kept.append((self.env.now(), m))

    def _tick(self) -> None:
        super()._tick()
        while self.kept and self.kept[0][0] + self.attack.after * SECOND <= self.env.now():
            self.env.send_all(tuple(self.peers), self.kept.popleft()[1])


class Asker(Sybil):
    attack: IWantFlood

    def heard(self, sender: Peer, m: Publication) -> None:
        self.forward(sender, m)

    @upon(IHave)
    def ihave(self, sender: Peer, m: IHave) -> None:
        ids = tuple(key for _, keys in m.topics for key in keys)
        for _ in range(self.attack.times):
            self.env.send(sender, IWant(ids))


class Poisoner(Sybil):
    attack: Poison

    def assault(self, peer: Peer) -> None:
        """Comrades, as if they were peers of the topic like others."""
        some = self.env.rng.sample(self.comrades, min(len(self.comrades), self.attack.introduced))
        infos = tuple(map(PeerInfo, some))
        if self.mesh:
            self.env.send(peer, Prune(tuple(Pruned(topic, infos, 60) for topic in self.topics)))
            self.env.after(500 * MS, self._graft, peer, self.topics)


KINDS: dict[type[Attack], type[Sybil]] = {
    Silent: SilentSybil,
    GraftSpam: GraftSpammer,
    IHaveFlood: Announcer,
    InvalidSpam: Spammer,
    Replay: Replayer,
    IWantFlood: Asker,
    Poison: Poisoner,
}


class Siege:
    """Brings the hostile nodes of a scenario up, each at its time; they have the numbers after those of honest nodes."""

    def __init__(self, sim: Simulator, attacks: Sequence[AnyAttack], honest: int, topics: Sequence[str]) -> None:
        self.sim = sim
        self.honest = range(honest)
        self.topics = tuple(topics)
        self.rng = sim.stream("attacks")
        for attack in attacks:
            sim.at(round(attack.at * SECOND), self._begin, attack)

    def _begin(self, attack: AnyAttack) -> None:
        first = len(self.sim.nodes)
        comrades = range(first, first + attack.nodes)
        for number in comrades:
            able = attack.targets or [peer for peer in self.honest if peer in self.sim.live]
            targets = self.rng.sample(able, min(attack.degree, len(able)))
            host = number % attack.hosts if attack.hosts else number
            self.sim.addresses[number] = f"/ip4/10.{host >> 16 & 255}.{host >> 8 & 255}.{host & 255}/tcp/1"
            self.sim.add(partial(_build, attack, Part(targets, self.topics, comrades)))


def _build(attack: Attack, part: Part, env: Callable[[], Env]) -> Sequence[Machine]:
    return [KINDS[type(attack)](env(), attack, part)]
