"""Three small machines that use each power of the contract once: holds, requests, and late validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from libweft.overlays.overlay import Overlay
from libweft.peer.errors import PeerError, Refused
from libweft.peer.machine import MS, SECOND, Build, Env, Link, Machine, Message, MessageId, Peer, Reply, answers, upon
from libweft.peer.trace.kinds import DUPLICATE
from libweft.pubsub.interests import Interest
from libweft.pubsub.message import Publication, Verdict
from libweft.pubsub.router import Router


class Note(Message, frozen=True, tag=1):
    text: str


class Keeper(Machine):
    """Keeps a hold on up to k of its candidates, in their order, and swaps the oldest for the next one on a timer.

    A candidate whose link went down is given up.
    """

    def __init__(self, env: Env, protocol: str, candidates: Sequence[Peer] = (), k: int = 1, every: int = 0) -> None:
        super().__init__(env)
        self.protocols = (protocol,)
        self.queue = list(candidates)
        self.k = k
        self.every = every
        self.held: dict[Peer, None] = {}
        self.up: dict[Peer, Link] = {}
        self.downs: list[tuple[Peer, int]] = []
        self.notes: list[tuple[Peer, str]] = []
        self.lost: list[tuple[Peer, Message]] = []

    def start(self) -> None:
        self._fill()
        if self.every:
            self.env.after(self.every, self._swap_due)

    def link_up(self, peer: Peer, link: Link) -> None:
        self.up[peer] = link
        if link.outbound and peer in self.held:
            self.env.send(peer, Note("hello"))

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        self.up.pop(peer, None)
        self.downs.append((peer, incarnation))
        if peer in self.held:
            del self.held[peer]
            self._fill()

    def dropped(self, peer: Peer, msg: Message) -> None:
        self.lost.append((peer, msg))

    @upon(Note)
    def on_note(self, sender: Peer, msg: Note) -> None:
        if msg.text == "poison":
            raise PeerError("poison")
        self.notes.append((sender, msg.text))

    def _fill(self) -> None:
        while self.queue and len(self.held) < self.k:
            peer = self.queue.pop(0)
            self.held[peer] = None
            self.env.connect(peer)

    def _swap_due(self) -> None:
        oldest = next(iter(self.held))
        del self.held[oldest]
        self.env.send(oldest, Note("bye"))
        self.env.disconnect(oldest)
        self._fill()
        self.queue.append(oldest)
        self.env.after(self.every, self._swap_due)


class Question(Message, frozen=True, tag=1):
    number: int


class Answer(Message, frozen=True, tag=2):
    number: int


class Refusal(Message, frozen=True, tag=3):
    reason: str


class Oracle(Machine):
    """Asks and answers: doubles an even number at once and an odd one late, is silent at 0, says no to negative ones.

    For one between 900 and 1,000 it gives no answer, for a greater one the asker is to blame.
    """

    protocols = ("/test/oracle",)
    LATE = 500 * MS

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.heard: list[tuple[Peer, Message]] = []
        self.failed: list[tuple[Peer, str]] = []
        self.downs: list[Peer] = []

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        self.downs.append(peer)

    def ask(self, peer: Peer, number: int, timeout: int = SECOND) -> None:
        self.env.request(peer, Question(number), timeout, self._on_reply, self._on_fail)

    @answers(Question, Answer, Refusal)
    def on_question(self, sender: Peer, msg: Question, reply: Reply) -> None:
        if msg.number > 1_000:
            raise PeerError("nobody asks for so much")
        if msg.number > 900:
            raise Refused("so much is not there")
        if msg.number < 0:
            reply(Refusal("negative"))
        elif msg.number % 2:
            self.env.after(self.LATE, reply, Answer(2 * msg.number))
        elif msg.number:
            reply(Answer(2 * msg.number))

    def _on_reply(self, peer: Peer, msg: Message) -> None:
        self.heard.append((peer, msg))

    def _on_fail(self, peer: Peer, reason: str) -> None:
        self.failed.append((peer, reason))


class Links(Overlay):
    """Holds links to the given peers, and takes every link for a neighbour."""

    protocols = ("/test/links",)

    def __init__(self, env: Env, peers: Sequence[Peer] = ()) -> None:
        super().__init__(env)
        self.peers = peers

    def start(self) -> None:
        for peer in self.peers:
            self.env.connect(peer)

    def link_up(self, peer: Peer, link: Link) -> None:
        self._up(peer)

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        self._down(peer, reason)


class Flood(Router):
    """Sends what is new to all neighbours but the one it came from."""

    protocols = ("/test/flood",)

    def __init__(self, env: Env, overlay: Overlay, app: LateApp) -> None:
        super().__init__(env, overlay, app)
        self.seen: dict[MessageId, None] = {}

    @upon(Publication)
    def on_publication(self, sender: Peer, msg: Publication) -> None:
        if msg.id in self.seen:
            self.trace(DUPLICATE, msg.topic, msg.id, sender)
        else:
            self.seen[msg.id] = None
            self._received(sender, msg)

    def _spread(self, publication: Publication) -> None:
        self.seen[publication.id] = None
        self.env.send_all(self.overlay.everyone, publication)

    def _forward(self, publication: Publication, sender: Peer) -> None:
        self.env.send_all(self.overlay.everyone, publication, sender)


class LateApp:
    """Judges each message only after `delay`: data that says "bad" is rejected, "dull" is ignored."""

    validates = True

    def __init__(self, env: Env, delay: int) -> None:
        self.env = env
        self.delay = delay
        self.asked: list[bytes] = []
        self.delivered: list[tuple[int, bytes]] = []
        self.interests: list[Interest] = []

    def validate(self, sender: Peer, publication: Publication, answer: Callable[[Verdict], None]) -> None:
        self.asked.append(publication.data)
        verdicts = {b"bad": Verdict.REJECT, b"dull": Verdict.IGNORE}
        self.env.after(self.delay, answer, verdicts.get(publication.data, Verdict.ACCEPT))

    def deliver(self, publication: Publication) -> None:
        self.delivered.append((self.env.now(), publication.data))

    def joined(self, interest: Interest) -> None:
        self.interests.append(interest)


def keepers(*options: dict) -> Build:
    """A node with one keeper for each; their protocols are told apart by their places."""
    return lambda env: [Keeper(env(), f"/test/keeper/{place}", **each) for place, each in enumerate(options)]


def oracle(env: Callable[[], Env]) -> list[Machine]:
    return [Oracle(env())]


def late_flood(peers: Sequence[Peer] = (), delay: int = SECOND) -> Build:
    def build(env: Callable[[], Env]) -> list[Machine]:
        links, above = Links(env(), peers), env()
        return [links, Flood(above, links, LateApp(above, delay))]

    return build
