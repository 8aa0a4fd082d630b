"""One GossipSub node on a FakeEnv, with peers that the test makes up; for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from libweft.overlays.overlay import Overlay
from libweft.overlays.powers import Directory
from libweft.peer.dispatch import receive
from libweft.peer.fake.env import FakeEnv
from libweft.peer.machine import Link, Message, MessageId, Peer, PeerInfo
from libweft.pubsub.gossipsub.config import GossipSubConfig
from libweft.pubsub.gossipsub.messages import Graft, Prune, Pruned
from libweft.pubsub.gossipsub.router import GossipSub
from libweft.pubsub.gossipsub.score import Score
from libweft.pubsub.message import Publication
from libweft.pubsub.rpc import Subscriptions
from tests.pubsub.test_flood import Judge

V13, V12, V11, V10, FLOODSUB = "/meshsub/1.3.0", "/meshsub/1.2.0", "/meshsub/1.1.0", "/meshsub/1.0.0", "/floodsub/1.0.0"

Kind = TypeVar("Kind", bound=Message)


class Finder(Overlay):
    """An overlay that finds subscribers when the test says who they are."""

    powers = (Directory,)

    def __init__(self) -> None:
        super().__init__(FakeEnv())
        self.asked: list[tuple[str, int, Callable[[Sequence[PeerInfo]], None]]] = []
        self.announced: list[str] = []

    def find(self, topic: str, n: int, done: Callable[[Sequence[PeerInfo]], None]) -> None:
        self.asked.append((topic, n, done))

    def announce(self, topic: str) -> None:
        self.announced.append(topic)

    def unannounce(self, topic: str) -> None:
        self.announced.remove(topic)


class Node:
    """The node is 0 and has joined `topics`; what it said by then is forgotten, and so is what `up` makes it say."""

    def __init__(
        self, *topics: str, validates: bool = False, overlay: Overlay | None = None, me: Peer = 0, **config: Any
    ) -> None:
        self.env = FakeEnv(me=me)
        self.app = Judge(validates)
        self.router = GossipSub(self.env, overlay or Overlay(FakeEnv(me=me)), self.app, GossipSubConfig(**config))
        self.incarnation = 0
        self.router.start()
        for topic in topics:
            self.router.join(topic)
        self.forget()

    def up(
        self, *peers: Peer, topics: Sequence[str] = ("t",), protocol: str = V13, outbound: bool = False, address: str = ""
    ) -> None:
        """Links of peers that subscribe to the topics."""
        for peer in peers:
            self.incarnation += 1
            self.router.link_up(peer, Link(self.incarnation, outbound, protocol, address))
            if topics:
                self.hear(peer, Subscriptions(tuple((True, topic) for topic in topics)))
        self.forget()

    def down(self, *peers: Peer) -> None:
        for peer in peers:
            self.router.link_down(peer, self.router.parties[peer].incarnation, "gone")

    def hear(self, peer: Peer, *messages: Message) -> None:
        for message in messages:
            receive(self.router, peer, message)

    def beat(self, count: int = 1) -> None:
        until = self.router.tick + count
        while self.router.tick < until:
            self.env.clock.fire(self.env.now() + self.router.config.heartbeat)

    def wait(self, us: int) -> None:
        self.env.advance(us)

    def forget(self) -> None:
        self.env.take(), self.env.take_traced()

    def said(self, kind: type[Kind], peer: Peer | None = None) -> list[Kind]:
        """What was sent of that kind, to anybody or to that peer."""
        return [msg for to, msg in self.env.sent if isinstance(msg, kind) and peer in (None, to)]

    def told(self, kind: type[Message]) -> list[Peer]:
        """To whom such a message went, in order of their names; one who got two stands there twice."""
        return sorted(to for to, msg in self.env.sent if isinstance(msg, kind))

    def publish(self, topic: str = "t", data: bytes = b"data") -> Publication:
        mine = self.router.compose(topic, data)
        self.router.publish(mine)
        return mine

    # What there is.

    def mesh(self, topic: str = "t") -> list[Peer]:
        return sorted(self.router.meshes.topics[topic].peers)

    def fanout(self, topic: str = "t") -> list[Peer]:
        return sorted(self.router.meshes.fanouts[topic].peers)

    def backoff(self, peer: Peer, topic: str = "t") -> int:
        """How much longer it lasts."""
        return self.router.meshes.backoff.until(topic, peer) - self.env.now()

    def key(self, publication: Publication) -> bytes:
        return self.router.key(publication)

    @property
    def score(self) -> Score:
        assert self.router.standing.score is not None
        return self.router.standing.score

    def value(self, peer: Peer) -> float:
        return self.router.standing.value(peer)

    # What peers do.

    def grafts(self, *peers: Peer, topic: str = "t") -> None:
        for peer in peers:
            self.hear(peer, Graft((topic,)))

    def prunes(self, *peers: Peer, topic: str = "t", backoff: int = 0, px: Sequence[PeerInfo] = ()) -> None:
        for peer in peers:
            self.hear(peer, Prune((Pruned(topic, tuple(px), backoff),)))

    def rate(self, **scores: float) -> None:
        """The application's own score of peers, by their numbers: `p7=-5` is of peer 7."""
        self.score.app = lambda peer: scores.get(f"p{peer!r}", 0.0)


def message(sequence: int = 1, topic: str = "t", source: Peer = 99, data: bytes = b"data") -> Publication:
    return Publication(MessageId(source, 1, sequence), topic, data)


def pruned(node: Node, peer: Peer) -> list[Pruned]:
    return [each for prune in node.said(Prune, peer) for each in prune.topics]
