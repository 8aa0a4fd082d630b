"""The API that applications see, over any stack.

    async with PubSub.open(bootstrap=[...]) as node:
        async with node.subscribe("chat") as messages:
            await node.publish("chat", b"hello")
            async for message in messages:
                print(message.source, message.data)

A node is a host, a stack of the registry on it, and this: subscriptions with a buffer each, validators a topic, and
publishing with back-pressure. Messages are signed, and what is not goes no further. Several subscriptions of a topic each
get every message; the node's own come back too. Bootstrap peers are what the overlay begins with.

Below it asks for `libweft.peer.live.host` and `libweft.peer.live.driver`. Promises: leaving a block leaves no task behind, and
what was published is sent to the neighbours of that moment before the node closes. Bounds: those of subscriptions and validators,
and `backlog` bytes published ahead of the network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import trio

from libweft.overlays.description import Options
from libweft.peer.errors import UsageError, alone
from libweft.peer.libp2p.address import Address
from libweft.peer.libp2p.ids import Identity, peer_text
from libweft.peer.live.collect.buffer import Buffer
from libweft.peer.live.collect.sender import Sender
from libweft.peer.live.driver import Driver, run_stack
from libweft.peer.live.host import Host, HostConfig, open_host
from libweft.peer.live.key_file import load_identity
from libweft.peer.machine import Peer
from libweft.peer.trace.tracer import Tracer
from libweft.pubsub import stacks
from libweft.pubsub.interests import Interest
from libweft.pubsub.live.defaults import LISTEN, STACK
from libweft.pubsub.live.isolation import warn
from libweft.pubsub.live.subscription import Full, Subscription, message
from libweft.pubsub.live.validate import CONCURRENCY, Answer, Judge, Validator
from libweft.pubsub.message import Publication, Verdict
from libweft.pubsub.ordering.causal import Causal, CausalConfig
from libweft.pubsub.ordering.fifo import FifoConfig
from libweft.pubsub.router import LARGEST, TOPIC, Router
from libweft.pubsub.signing import Signing

PATIENCE_S = 0.05
SPEAKS_S = 1.0  # a neighbour may name the protocol later, and no machine below the router hears of that
FLUSH_S = 10.0  # at the end, for messages of which it is not known yet where they go
ROTATE_S = 3.0  # a part of the trace at least so often, as far as anything happens
TURN = 8  # messages published before other tasks have their turn: they travel together, which halves what a burst costs

COUNTS = ("published", "delivered", "dropped", "rejected", "ignored", "validator_busy", "validator_failed")

Ordered: TypeAlias = Literal["none", "fifo", "causal"]


@dataclass(frozen=True)
class PubSubConfig:
    """What is seldom changed; `overlay` and `router` are the stack's own options."""

    trace: Path | None = None
    collector: str | None = None  # the address of a `weft collect`, with its /p2p/ID
    state: Path | None = None  # what machines keep over a restart
    signed: bool = True  # False where everybody is trusted: then nothing is signed or checked
    size: int = 1 << 16  # bytes of a message's data; some peers of other libraries take no more
    backlog: int = 1 << 18
    overlay: Options = field(default_factory=dict)
    router: Options = field(default_factory=dict)
    fifo: FifoConfig = field(default_factory=FifoConfig)  # of the subscriptions with that order, as is the next
    causal: CausalConfig = field(default_factory=CausalConfig)
    host: HostConfig = field(default_factory=HostConfig)

    def __post_init__(self) -> None:
        if not isinstance(self.size, int) or not 0 < self.size <= LARGEST:
            raise UsageError(f"size is {self.size!r}; 1 to {LARGEST} bytes")
        if not isinstance(self.backlog, int) or self.backlog < 1:
            raise UsageError(f"backlog is {self.backlog!r}; with less than 1 byte nothing could ever be published")
        if self.collector is not None and not isinstance(self.collector, str):
            raise UsageError(f"collector is {self.collector!r:.80}; it must be an address as a text")
        for name, options in (("overlay", self.overlay), ("router", self.router)):
            if not isinstance(options, dict):
                raise UsageError(f"{name} is {options!r:.80}; it must be a dict of options, {{}} for none")
        for name, kind in (("fifo", FifoConfig), ("causal", CausalConfig), ("host", HostConfig)):
            if not isinstance(value := getattr(self, name), kind):
                raise UsageError(f"{name} is {value!r:.80}; it must be a {kind.__name__}")


class Desk:
    """What stands above the router (its App): hands publications to subscriptions, and asks validators."""

    validates = True

    def __init__(self) -> None:
        self.counts = Counter(dict.fromkeys(COUNTS, 0))
        self.subscriptions: dict[str, list[Subscription]] = {}
        self.validators: dict[str, Validator] = {}
        self.in_force: dict[str, trio.Event] = {}
        self.changed = trio.Event()

    def validate(self, sender: Peer, publication: Publication, answer: Answer) -> None:
        validator = self.validators.get(publication.topic)
        if validator is None:
            self._accept(publication.topic, answer)
        else:
            validator.ask(message(publication), partial(self._judged, publication.topic, answer))

    def deliver(self, publication: Publication) -> None:
        several = self.subscriptions.get(publication.topic)
        if several:
            found = message(publication)
            self.counts["delivered"] += 1
            for subscription in several:
                self.counts["dropped"] += not subscription.put(found)

    def joined(self, interest: Interest) -> None:
        if isinstance(interest, str):
            self.in_force.setdefault(interest, trio.Event()).set()

    def neighbor_up(self, peer: Peer) -> None:
        self.notify()

    def neighbor_down(self, peer: Peer, reason: str) -> None:
        self.notify()

    def notify(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    def _judged(self, topic: str, answer: Answer, verdict: Verdict) -> None:
        if verdict is Verdict.ACCEPT:
            self._accept(topic, answer)
        else:
            self.counts["rejected" if verdict is Verdict.REJECT else "ignored"] += 1
            answer(verdict)

    def _accept(self, topic: str, answer: Answer) -> None:
        """A subscription that waits makes the verdict wait, and with it the message."""
        for subscription in self.subscriptions.get(topic, ()):
            if subscription.blocks:
                subscription.when_there_is_room(partial(self._accept, topic, answer))
                return
        answer(Verdict.ACCEPT)


class PubSub:
    """A node; made by `open`. `stack` is the full name of its stack."""

    def __init__(self, stack: str, host: Host, driver: Driver, desk: Desk, nursery: trio.Nursery, config: PubSubConfig) -> None:
        order = driver.machines[-1]
        assert isinstance(order, Causal)
        self.stack = stack
        self.host = host
        self.driver = driver
        self.config = config
        self.router: Router = order.router
        self._order = order
        self.sender: Sender | None = None  # of traces, where there is a collector
        self.closed = False
        self._published = 0
        self._desk = desk
        self._nursery = nursery
        self.router.overlay.watchers.append(desk)
        self.router.size = config.size

    @staticmethod
    @asynccontextmanager
    async def open(
        stack: str = STACK,
        *,
        bootstrap: Sequence[str] = (),
        listen: Sequence[str] = LISTEN,
        key: Path | None = None,
        config: PubSubConfig | None = None,
    ) -> AsyncIterator[PubSub]:
        """Everything is checked before anything is opened; at the end links close after what was sent.

        `stack` is `overlay/router`, or the name of one of them, which stands for its usual stack.
        `key` is a file, made on first use; without it the node is somebody else at each start.
        """
        config = PubSubConfig() if config is None else config
        if not isinstance(config, PubSubConfig):
            raise UsageError(f"config is {config!r:.80}; it must be a PubSubConfig")
        for name, several in (("bootstrap", bootstrap), ("listen", listen)):
            if isinstance(several, str):
                raise UsageError(f"{name} is several addresses, such as [{several!r}], and not one text")
            if not isinstance(several, Iterable) or not all(isinstance(text, str) for text in several):
                raise UsageError(f"{name} is a list of addresses as texts, not {several!r:.80}")
        kind = stacks.find(stack, config.overlay, config.router, live=True)
        contacts = [_contact(text) for text in bootstrap]
        collector = None if config.collector is None else _contact(config.collector, "collector")[1]
        buffer = None if collector is None else Buffer()
        identity = load_identity(Path(key)) if key is not None else Identity.new()
        signing = Signing(identity) if config.signed else None
        desk = Desk()
        order = partial(Causal, config=config.causal, fifo=config.fifo)
        build = kind.node([peer for peer, _ in contacts], desk, signing, order)
        with alone(), _tracing(config.trace, kind.name, buffer) as tracer:
            async with open_host(identity, listen=listen, config=config.host) as host, trio.open_nursery() as nursery:
                for peer, address in contacts:
                    host.learn(peer, [address])
                async with run_stack(host, build, tracer=tracer, folder=Path(config.state) if config.state else None) as driver:
                    node = PubSub(kind.name, host, driver, desk, nursery, config)
                    nursery.start_soon(warn, node, tuple(bootstrap), kind.name)
                    if config.trace is not None and tracer is not None:
                        nursery.start_soon(_rotate, tracer)
                    if collector is not None and buffer is not None:
                        node.sender = Sender(host, collector, buffer, driver.epoch, driver.wall)
                        nursery.start_soon(node.sender.run)
                    try:
                        yield node
                        with trio.move_on_after(FLUSH_S):
                            while node.router.unplaced():
                                await trio.sleep(PATIENCE_S)
                    finally:
                        node._close()
                if node.sender is not None:
                    await node.sender.flushed()
                nursery.cancel_scope.cancel()

    @property
    def peer(self) -> str:
        return peer_text(self.host.peer)

    @property
    def addresses(self) -> list[str]:
        """Where others reach this node: what they give as `bootstrap`."""
        return [str(address) for address in self.host.addresses]

    @property
    def neighbors(self) -> list[str]:
        return [peer_text(peer) for peer in self.router.overlay.neighbors if isinstance(peer, bytes)]

    @asynccontextmanager
    async def subscribe(
        self, topic: str, *, order: Ordered = "none", buffer: int = 256, when_full: Full = "drop oldest"
    ) -> AsyncIterator[Subscription]:
        """Begins when the subscription is in force, and ends with the block; UsageError if the node closes before.

        `when_full`: see `libweft.pubsub.live.subscription`. With `fifo` the messages of each source come in the order of their
        publishing; with `causal` a message also comes after all that its source had heard there, so that no answer comes
        before its question. The order is made at the source, if it has subscribed with it too. It is the topic's, so other
        subscriptions to it on this node have it too, and wait with it; a topic has one order at a time. What does not come is
        given up after a while, and counted: see `stats` and `libweft.pubsub.ordering`.
        """
        self._check(topic)
        if order not in get_args(Ordered):
            raise UsageError(f"order is {order!r:.80}; choose none, fifo or causal")
        subscription = Subscription(topic, buffer, when_full)
        if order != "none":
            self._order.open(topic, order)
        self._desk.subscriptions.setdefault(topic, []).append(subscription)
        try:
            in_force = self._desk.in_force.setdefault(topic, trio.Event())
            self.router.join(topic)
            await in_force.wait()
            self._check_open()
            yield subscription
        finally:
            self._unsubscribe(subscription)
            if order != "none":
                self._order.close(topic)

    async def publish(self, topic: str, data: bytes) -> str:
        """Gives the message's id. Waits while too much has not left yet, and for own subscriptions that wait.

        A neighbour that takes nothing holds it up until the host gives that link up: see `HostConfig`. Who has no neighbour
        yet may speak to nobody: see `neighbors_up`. It gives way to other tasks at the first call and each TURN-th after.
        """
        self._check(topic)
        if not isinstance(data, bytes):
            raise UsageError(f"data is bytes, not {type(data).__name__}; a text is sent as text.encode()")
        if len(data) > self.config.size:
            raise UsageError(f"{len(data)} bytes are over the limit of {self.config.size} a message")
        if self._published % TURN == 0:
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        self._published += 1
        for subscription in list(self._desk.subscriptions.get(topic, ())):
            await subscription.room()
        await self.flushed(self.config.backlog)
        self._check_open()
        self._desk.counts["published"] += 1
        return message(self._order.publish(topic, data)).id

    def validate(self, topic: str, judge: Judge, *, concurrency: int = CONCURRENCY) -> None:
        """Ask `judge` before a message of somebody else is passed on or delivered; see `libweft.pubsub.live.validate`."""
        self._check(topic)
        self._desk.validators[topic] = Validator(judge, concurrency, self._nursery, self._desk.counts)

    async def neighbors_up(self, count: int = 1) -> None:
        """Wait until there are so many neighbours that speak the router's protocol: others may share the overlay alone."""
        if not isinstance(count, int) or count < 1:
            raise UsageError(f"neighbors_up({count!r}): a number of neighbours, 1 at least")
        self._check_open()
        while len(self.router.overlay.neighbors.keys() & self.driver.speakers(self.router)) < count:
            with trio.move_on_after(SPEAKS_S):
                await self._desk.changed.wait()
            self._check_open()

    async def flushed(self, below: int = 1) -> None:
        """Wait until less than so many bytes wait to leave to any neighbour, or to be told where to go."""
        while not self.closed and max(self._unsent(), self.router.unplaced()) >= below:
            await trio.sleep(PATIENCE_S)

    def _unsent(self) -> int:
        return max(map(self.router.env.backlog, self.router.reached), default=0)

    def stats(self) -> dict[str, int]:
        """What there is now, and what has happened since the node was opened.

        `held` waits in subscriptions to be read, `held_back` in an order for what comes before it.
        """
        held = sum(len(each) for several in self._desk.subscriptions.values() for each in several)
        now = {"neighbors": len(self.router.overlay.neighbors), "links": len(self.host.links), "held": held}
        orders = (self._order, self._order.fifo)
        lost = {"late": sum(order.late for order in orders), "given_up": sum(order.given_up for order in orders)}
        lost["before"] = self._order.before
        now["held_back"] = sum(order.held for order in orders)
        buffer = None if self.sender is None else self.sender.buffer
        traces = {} if buffer is None else {"traces_waiting": len(buffer), "traces_lost": buffer.dropped}
        return {**now, "pending": self.router.pending, "refused": self.router.refused, **lost, **traces, **self._desk.counts}

    def _close(self) -> None:
        """Whoever waits for something of this node is told that it is over."""
        self.closed = True
        self._desk.notify()
        for in_force in self._desk.in_force.values():
            in_force.set()
        for subscription in [each for several in self._desk.subscriptions.values() for each in several]:
            subscription.close()

    def _check_open(self) -> None:
        if self.closed:
            raise UsageError("this node is closed: its block has ended")

    def _check(self, topic: str) -> None:
        self._check_open()
        check_topic(topic)

    def _unsubscribe(self, subscription: Subscription) -> None:
        several = self._desk.subscriptions[subscription.topic]
        several.remove(subscription)
        subscription.close()
        if not several:
            del self._desk.subscriptions[subscription.topic]
            self._desk.in_force.pop(subscription.topic, None)
            self.router.leave(subscription.topic)


async def _rotate(tracer: Tracer) -> None:
    """So that whoever reads along sees what happened a moment ago."""
    while True:
        await trio.sleep(ROTATE_S)
        tracer.flush()


@contextmanager
def _tracing(folder: Path | None, stack: str, buffer: Buffer | None) -> Iterator[Tracer | None]:
    if folder is None:
        yield None if buffer is None else Tracer(level="none", observer=buffer)
        return
    tracer = Tracer(Path(folder), manifest={"stack": stack, "live": True, "clock": "wall"}, observer=buffer)
    try:
        yield tracer
    except BaseException as error:
        tracer.abort(str(error) or type(error).__name__)
        raise
    tracer.close()


def _contact(text: str, whose: str = "bootstrap") -> tuple[bytes, Address]:
    address = Address.parse(text)
    if address.peer is None:
        raise UsageError(f"the {whose} address {text} does not say whom to expect there; it must end in /p2p/PEER-ID")
    return address.peer, address


def check_topic(topic: str) -> None:
    """Raise a UsageError unless `topic` can name a topic."""
    if not isinstance(topic, str) or not topic or len(topic) > TOPIC:
        raise UsageError(f"a topic is a text of 1 to {TOPIC} letters, not {topic!r:.80}")
    try:
        topic.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the topic {topic!a:.80} is no text in UTF-8") from None
