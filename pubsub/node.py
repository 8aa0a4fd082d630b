"""A live node: a host, a stack of the registry on it, and what the stack needs of the world, opened and closed together.

    async with open_node(NodeConfig(bootstrap=("/ip4/.../tcp/.../p2p/...",))) as node:
        node.subscribe("news", lambda publication: print(publication.data))
        node.publish("news", b"hello")

Messages are signed, and what is not signed goes no further. Bootstrap peers are the contacts of the overlay.
Below it asks for `peer.host` and `peer.driver`. Bounds: those of host, driver and router.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import trio

from peer.address import Address
from peer.driver import Driver, run_stack
from peer.errors import UsageError
from peer.host import Host, HostConfig, open_host
from peer.ids import Identity
from peer.machine import Peer
from peer.trace import Tracer
from pubsub import stacks
from pubsub.message import Interest, Publication, Verdict
from pubsub.router import Router
from pubsub.signing import Signing

Hear: TypeAlias = Callable[[Publication], None]


@dataclass(frozen=True)
class NodeConfig:
    """`key` is a file, made on first use; without it the node is somebody else at each start."""

    stack: str = "static/flood"
    listen: Sequence[str] = ("/ip4/0.0.0.0/tcp/0",)
    bootstrap: Sequence[str] = ()
    key: Path | None = None
    trace: Path | None = None
    host: HostConfig = field(default_factory=HostConfig)


class Node:
    """Made by `open_node`; also what stands above the router."""

    validates = False
    host: Host
    driver: Driver

    def __init__(self) -> None:
        self._hear: dict[Interest, Hear] = {}
        self._changed = trio.Event()

    @property
    def router(self) -> Router:
        router = self.driver.machines[-1]
        assert isinstance(router, Router)
        return router

    def subscribe(self, topic: str, hear: Hear) -> None:
        """Call `hear` with each publication, the node's own too; it must not block."""
        self._hear[topic] = hear
        self.router.join(topic)

    def unsubscribe(self, topic: str) -> None:
        self.router.leave(topic)
        self._hear.pop(topic, None)

    def publish(self, topic: str, data: bytes) -> Publication:
        publication = self.router.compose(topic, data)
        self.router.publish(publication)
        return publication

    async def neighbors(self, count: int) -> None:
        """Wait until the overlay has so many."""
        while len(self.router.overlay.neighbors) < count:
            await self._changed.wait()

    async def flushed(self, below: int = 1) -> None:
        """Wait until less than so many bytes wait to leave: back-pressure for whoever publishes in a loop."""
        env = self.router.env
        while sum(map(env.backlog, self.router.overlay.everyone)) >= below:
            await trio.sleep(0.01)

    def validate(self, sender: Peer, publication: Publication, answer: Callable[[Verdict], None]) -> None:
        answer(Verdict.ACCEPT)

    def deliver(self, publication: Publication) -> None:
        if hear := self._hear.get(publication.topic):
            hear(publication)

    def joined(self, interest: Interest) -> None: ...

    def neighbor_up(self, peer: Peer) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def neighbor_down(self, peer: Peer, reason: str) -> None: ...


@asynccontextmanager
async def open_node(config: NodeConfig) -> AsyncIterator[Node]:
    """Everything is checked before anything is opened; at the end links close after what was sent."""
    stack = stacks.find(config.stack, {}, {}, live=True)
    contacts = [_contact(text) for text in config.bootstrap]
    identity = Identity.load(config.key) if config.key is not None else Identity.new()
    about = {"stack": config.stack, "live": True, "clock": "wall"}
    tracer = Tracer(config.trace, manifest=about) if config.trace is not None else None
    node = Node()
    try:
        async with open_host(identity, listen=config.listen, config=config.host) as host:
            for peer, address in contacts:
                host.learn(peer, [address])
            build = stack.node([peer for peer, _ in contacts], node, Signing(identity))
            async with run_stack(host, build, tracer=tracer) as driver:
                node.host, node.driver = host, driver
                node.router.overlay.watchers.append(node)
                yield node
    except BaseException as error:
        if tracer is not None:
            tracer.abort(str(error) or type(error).__name__)
        raise
    if tracer is not None:
        tracer.close()


def _contact(text: str) -> tuple[bytes, Address]:
    address = Address.parse(text)
    if address.peer is None:
        raise UsageError(f"the bootstrap address {text} does not say whom to expect there; it must end in /p2p/PEER-ID")
    return address.peer, address
