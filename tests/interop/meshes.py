"""Subscribed GossipSub nodes, of weft and of other libraries, with one face; both count what they say of control.

They count alike: of GRAFT and PRUNE the topics, of IHAVE, IWANT and IDONTWANT the ids that went to a peer and came from it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import combinations
from typing import Any, Protocol, TypeAlias

import trio

from libweft.overlays.description import Options
from libweft.peer.libp2p.ids import parse_peer, peer_text
from libweft.peer.machine import Env, Message, Peer
from libweft.pubsub.gossipsub.messages import Graft, IDontWant, IHave, IWant, Prune
from libweft.pubsub.gossipsub.router import GossipSub
from libweft.pubsub.live.api import PubSub, PubSubConfig
from libweft.pubsub.live.subscription import Subscription
from libweft.pubsub.message import Publication
from tests.interop.foreign import Foreign, foreign
from tests.interop.test_weft import HERE
from tests.waiting import until_answer

TOPIC = "weft/interop"
KINDS = {Graft: "graft", Prune: "prune", IHave: "ihave", IWant: "iwant", IDontWant: "idontwant", Publication: "publication"}
CONTROL = ("graft", "prune", "ihave", "iwant", "idontwant")

Counts: TypeAlias = dict[Peer, Counter[str]]


def amount(msg: Message) -> int:
    if isinstance(msg, Graft | Prune):
        return len(msg.topics)
    if isinstance(msg, IHave):
        return sum(len(ids) for _, ids in msg.topics)
    return len(msg.ids) if isinstance(msg, IWant | IDontWant) else 1


def count(counts: Counter[str], msg: Message) -> None:
    if type(msg) in KINDS:
        counts[KINDS[type(msg)]] += amount(msg)


class CountedGossipSub(GossipSub):
    def __init__(self, env: Env, *args: Any) -> None:
        super().__init__(env, *args)
        self.sent: Counts = defaultdict(Counter)
        self.received: Counts = defaultdict(Counter)
        self._send_one, self._send_several = env.send, env.send_all
        vars(env).update(send=self._sends, send_all=self._sends_all)  # the driver wants its own Env in a machine

    def _sends(self, peer: Peer, msg: Message) -> None:
        count(self.sent[peer], msg)
        self._send_one(peer, msg)

    def _sends_all(self, peers: tuple[Peer, ...], msg: Message, but: Peer | None = None) -> None:
        for peer in peers:
            if peer != but:
                count(self.sent[peer], msg)
        self._send_several(peers, msg, but)

    def graft(self, sender: Peer, m: Graft) -> None:
        count(self.received[sender], m)
        super().graft(sender, m)

    def prune(self, sender: Peer, m: Prune) -> None:
        count(self.received[sender], m)
        super().prune(sender, m)

    def ihave(self, sender: Peer, m: IHave) -> None:
        count(self.received[sender], m)
        super().ihave(sender, m)

    def iwant(self, sender: Peer, m: IWant) -> None:
        count(self.received[sender], m)
        super().iwant(sender, m)

    def idontwant(self, sender: Peer, m: IDontWant) -> None:
        count(self.received[sender], m)
        super().idontwant(sender, m)


class Node(Protocol):
    """A subscribed node, of weft or of another library; `heard` is what others have said: author and text."""

    @property
    def peer(self) -> str: ...
    @property
    def address(self) -> str: ...

    async def dial(self, other: Node) -> None: ...
    async def publish(self, texts: Sequence[str]) -> None: ...
    async def heard(self) -> list[tuple[str, str]]: ...
    async def leave(self) -> None: ...
    async def mesh(self) -> set[str]: ...
    async def control(self, peer: str) -> tuple[Counter[str], Counter[str]]:
        """What went to that peer, and what came from it."""

    def complaint(self) -> str: ...


class Weft:
    def __init__(self, node: PubSub, subscribed: AsyncExitStack, messages: Subscription) -> None:
        self.node = node
        self.peer = peer_text(node.host.peer)
        self.address = str(node.host.addresses[0])
        self._subscribed = subscribed
        self._messages = messages
        self._heard: list[tuple[str, str]] = []

    @property
    def router(self) -> CountedGossipSub:
        assert isinstance(self.node.router, CountedGossipSub)
        return self.node.router

    async def dial(self, other: Node) -> None:
        await self.node.host.connect(other.address)

    async def publish(self, texts: Sequence[str]) -> None:
        for text in texts:
            await self.node.publish(TOPIC, text.encode())

    async def heard(self) -> list[tuple[str, str]]:
        for _ in range(len(self._messages)):
            message = await anext(self._messages)
            if message.source != self.peer:
                self._heard.append((message.source, message.data.decode()))
        return self._heard

    async def leave(self) -> None:
        await self._subscribed.aclose()

    async def mesh(self) -> set[str]:
        mesh = self.router.meshes.topics.get(TOPIC)
        return set(map(_text, mesh.everyone)) if mesh is not None else set()

    async def control(self, peer: str) -> tuple[Counter[str], Counter[str]]:
        name = parse_peer(peer)
        return self.router.sent[name], self.router.received[name]

    def complaint(self) -> str:
        told = [f"weft: {self.peer} {self.node.stats()}"]
        return "\n".join(told + self._counts() if isinstance(self.node.router, CountedGossipSub) else told)

    def _counts(self) -> list[str]:
        counts = {"sent to": self.router.sent, "received from": self.router.received}
        told = [f"{way} {_text(peer)}: {dict(kinds)}" for way, peers in counts.items() for peer, kinds in peers.items()]
        levels = {_text(peer): party.level for peer, party in self.router.parties.items()}
        return [f"peers: {levels}", *told]


def _text(peer: Peer) -> str:
    assert isinstance(peer, bytes)
    return peer_text(peer)


class Other:
    def __init__(self, node: Foreign) -> None:
        self.node = node
        self.peer = node.peer
        self.address = node.addrs[0]

    async def dial(self, other: Node) -> None:
        await self.node.ask("dial", addr=other.address)

    async def publish(self, texts: Sequence[str]) -> None:
        await self.node.ask("publish", topic=TOPIC, data=texts)

    async def heard(self) -> list[tuple[str, str]]:
        return [(message["from"], message["data"]) for message in self.node.messages]

    async def leave(self) -> None:
        await self.node.ask("unsubscribe", topic=TOPIC)

    async def mesh(self) -> set[str]:
        return set((await self.node.ask("mesh", topic=TOPIC))["peers"])

    async def control(self, peer: str) -> tuple[Counter[str], Counter[str]]:
        told = await self.node.ask("control", peer=peer)
        return Counter(told["sent"]), Counter(told["received"])

    def complaint(self) -> str:
        return self.node._complaint(f"{self.peer} has heard {len(self.node.messages)} messages")


@asynccontextmanager
async def weft(stack: str = "static/gossipsub", options: Options | None = None) -> AsyncIterator[Weft]:
    config = PubSubConfig(router=options or {})
    async with PubSub.open(stack, listen=HERE, config=config) as node, AsyncExitStack() as subscribed:
        messages = await subscribed.enter_async_context(node.subscribe(TOPIC, buffer=10_000))
        yield Weft(node, subscribed, messages)


@asynccontextmanager
async def other(language: str, *arguments: str) -> AsyncIterator[Other]:
    async with foreign(language, *arguments) as node:
        await node.ask("subscribe", topic=TOPIC)
        yield Other(node)


def says(node: Node, count: int, size: int = 0) -> list[str]:
    return [f"{node.peer} says {number} ".ljust(size, ".") for number in range(count)]


async def has(node: Node, message: tuple[str, str]) -> bool:
    return message in await node.heard()


class Network:
    """Nodes of any kind; when one is waited for in vain, all of them tell what they know."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes

    async def until(self, true: Callable[[], Awaitable[bool]], what: str) -> None:
        await until_answer(true, lambda: "\n".join([what, *(node.complaint() for node in self.nodes)]), poll_s=0.05)

    async def dial_all(self) -> None:
        """Each dials those before it; all come into one mesh."""
        for earlier, later in combinations(self.nodes, 2):
            await later.dial(earlier)
        await self.meshed(*combinations(self.nodes, 2))

    async def meshed(self, *pairs: tuple[Node, Node]) -> None:
        async def true() -> bool:
            return all([b.peer in await a.mesh() and a.peer in await b.mesh() for a, b in pairs])

        await self.until(true, "mesh")

    async def pruned(self, middle: Node, *ends: Node) -> None:
        """The one in the middle, which has no mesh, has told the others so."""

        async def true() -> bool:
            told = [(await end.control(middle.peer))[1]["prune"] > 0 for end in ends]
            return all(told) and not any([await node.mesh() for node in (middle, *ends)])

        await self.until(true, "PRUNE")

    async def hears(self, node: Node, said: Sequence[tuple[Node, Sequence[str]]]) -> None:
        """All of it once, and nothing else."""
        wanted = sorted((author.peer, text) for author, texts in said for text in texts)

        async def true() -> bool:
            return len(await node.heard()) >= len(wanted)

        await self.until(true, f"{len(wanted)} messages at {node.peer}")
        assert sorted(await node.heard()) == wanted

    async def all_hear_all(self, count: int, size: int = 0) -> None:
        """All publish at the same time."""
        said = [(node, says(node, count, size)) for node in self.nodes]
        async with trio.open_nursery() as nursery:
            for node, texts in said:
                nursery.start_soon(node.publish, texts)
        for node in self.nodes:
            await self.hears(node, [(author, texts) for author, texts in said if author is not node])

    async def agreed(self, one: Node, two: Node) -> tuple[Counter[str], Counter[str]]:
        """What the first has sent and received, as soon as the second tells the same."""

        async def true() -> bool:
            ours, theirs = await one.control(two.peer), await two.control(one.peer)
            return all(a[kind] == b[kind] for a, b in zip(ours, reversed(theirs), strict=True) for kind in CONTROL)

        await self.until(true, "agreement on what was said")
        sent, received = await one.control(two.peer)
        return sent.copy(), received.copy()
