"""One router of SRPT at a table: what it says, when it hears what. The root of every topic is at place 0 of a cube."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from libweft.overlays.vcube.machine import VCube
from libweft.overlays.vcube.members import Founders
from libweft.overlays.vcube.messages import Member, News
from libweft.peer.dispatch import receive
from libweft.peer.fake.env import FakeEnv
from libweft.peer.machine import Message, MessageId, Peer, PeerInfo
from libweft.pubsub.message import Publication, Verdict
from libweft.pubsub.scribe.config import ScribeConfig
from libweft.pubsub.scribe.messages import Attached, Bequest, Down, Join, Publish
from libweft.pubsub.scribe.router import SETTLED, Srpt, SrptS
from tests.pubsub.apps import Inbox

AT_0 = ScribeConfig(root=0)
REIGN = MessageId(0, 1, 9)


class Judge(Inbox):
    """Holds every verdict back until the test speaks it."""

    validates = True

    def __init__(self) -> None:
        super().__init__()
        self.cases: list[Callable[[Verdict], None]] = []

    def validate(self, sender: Peer, publication: Publication, answer: Callable[[Verdict], None]) -> None:
        self.cases.append(answer)


class Desk:
    """One router at a place of a cube whose members know each other; the root of every topic is at place 0."""

    def __init__(
        self, me: int = 0, nodes: int = 8, config: ScribeConfig = AT_0, app: Inbox | None = None, kind: type[Srpt] = SrptS
    ) -> None:
        self.app = app or Inbox()
        self.env = FakeEnv(me=me)
        self.cube = VCube(FakeEnv(me=me), Founders(nodes))
        self.router = kind(self.env, self.cube, self.app, config)  # type: ignore[call-arg]
        self.cube.start()
        self.router.start()

    def attached(self, *children: int, number: int = 0) -> Desk:
        """It has joined, has these children, and its parent has answered, if it has one."""
        self.router.join("t")
        parent = self.tree.parent
        if parent is not None:
            self.hears(parent, Attached("t", REIGN, number))
        for child in children:
            self.hears(child, Join("t", None, 0))
        self.env.take()
        self.env.take_traced()
        return self

    @property
    def tree(self) -> Any:
        return self.router.trees["t"]

    def publish(self, data: bytes = b"data", topic: str = "t") -> Publication:
        publication = self.router.compose(topic, data)
        self.router.publish(publication)
        return publication

    def sent(self) -> list[tuple[Peer, Any]]:
        return self.env.take()

    def hears(self, sender: Peer, msg: Message) -> None:
        receive(self.router, sender, msg)

    def loses(self, *peers: int) -> None:
        for peer in peers:
            receive(self.cube, 1, News((Member(peer, PeerInfo(peer), 1),), 0))
        self.env.advance(SETTLED)


def down(number: int = 1, reign: MessageId = REIGN, source: Peer = 7, sequence: int | None = None, hops: int = 2) -> Down:
    key = MessageId(source, 1, number if sequence is None else sequence)
    return Down(key, "t", b"%d" % number, None, (), b"", b"", hops, number, reign)


def publish(number: int = 1, base: int = 1, source: int = 5, life: int = 1, hops: int = 1) -> Publish:
    key = MessageId(source, life, number)
    return Publish(key, "t", b"%d" % number, None, (), b"", b"", hops, number, base, life, PeerInfo(source))


def kinds(sent: Sequence[tuple[Peer, Message]]) -> list[tuple[Peer, type[Message]]]:
    return [(peer, type(msg)) for peer, msg in sent]


def delivered(desk: Desk) -> list[bytes]:
    return [publication.data for publication in desk.app.delivered]


def bequest(number: int = 1, source: int = 5) -> Bequest:
    return Bequest(MessageId(source, 1, number), "t", b"%d" % number, None, (), b"", b"", 2, number)


def replace_config(config: ScribeConfig, **more: Any) -> ScribeConfig:
    return type(config)(**{**config.__dict__, **more})
