"""The contract: a protocol is a machine without IO that sees the world only through an `Env`.

A machine takes messages, timers and links going up and down, and answers by calls on its Env. The same object runs in
the simulator (`libweft.peer.sim.simulator`) and on a fake wire in a unit test (`libweft.peer.fake`); a driver on sockets needs no
more of it. It imports no clock, no chance and no IO: time and chance come from the Env, so that the same seed gives the same run.

Below it asks for: links that are reliable and in order (as TCP's are) until they go down, which is told.
Above it promises: what its own class says; `libweft.overlays.overlay` and `libweft.pubsub.router` are the two kinds of upper
contract. Order inside a handler: own state first, then send, then notify upwards. `Env.send` never re-enters the caller.

Bounds: the queue of messages that wait for a dial, and each link's outbox, are the driver's; `libweft.peer.overload` decides for
all drivers what happens when they are full.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from enum import IntEnum
from random import Random
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

import msgspec

from libweft.peer.errors import UsageError

Peer: TypeAlias = int | bytes
"""Opaque, hashable and ordered among its own kind: an int in the simulator, the peer id's bytes live."""

Rng: TypeAlias = Random

MS = 1_000
SECOND = 1_000_000
"""Time is counted in whole microseconds everywhere."""

EPOCH_BITS = 24
"""A live epoch is nanoseconds less these bits; epoch and sequence together are the eight bytes that libp2p counts by."""


class Lane(IntEnum):
    """What leaves first when a link is slow; lazy traffic may be dropped."""

    URGENT = 0
    CONTROL = 1
    PAYLOAD = 2
    LAZY = 3


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What travels between two machines of one protocol; only scalars, bytes, tuples and Structs inside.

    A subclass sets `tag` to its number on the wire, and its lane. A message on the payload lane has the fields `id`
    and `topic`, by which traces know it. One that goes `alone` has a stream of its own, which ends after it: some protocols
    of others want it so. It may overtake what was sent before it.
    """

    lane: ClassVar[Lane] = Lane.CONTROL
    droppable: ClassVar[bool] = False
    alone: ClassVar[bool] = False


class MessageId(msgspec.Struct, frozen=True, array_like=True, gc=False, cache_hash=True, order=True):
    """The epoch changes at each start of the source, so a restart without state never repeats an id.

    A sequence stays below 2 ** EPOCH_BITS: what comes after it has the next epoch.
    """

    source: Peer
    epoch: int
    sequence: int


class PeerInfo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What introduces one peer to another; every message that names a stranger carries it."""

    peer: Peer
    addresses: tuple[str, ...] = ()
    record: bytes | None = None


class Link(msgspec.Struct, frozen=True, gc=False):
    """A link as a machine sees it; a later link to the same peer has a higher incarnation."""

    incarnation: int
    outbound: bool
    protocol: str
    address: str = ""


class Timer(Protocol):
    def cancel(self) -> None:
        """Forget the action; a timer that has fired or was cancelled ignores it."""


class Env(Protocol):
    """All that a machine may ask of the world; each machine of a stack has one of its own, bound to its protocol.

    `trace` writes one row of `libweft.peer.trace`; time and node are filled in. Where `tracing` is false nobody reads them, and a
    machine may save itself the call. `epoch` differs at each start of the node.
    `store` is small, durable and the machine's own: it outlives a crash, unless the crash lost the disk.
    """

    @property
    def me(self) -> Peer: ...
    @property
    def rng(self) -> Rng: ...
    @property
    def epoch(self) -> int: ...
    @property
    def tracing(self) -> bool: ...
    @property
    def store(self) -> MutableMapping[str, bytes]: ...

    def now(self) -> int: ...
    def after(self, delay: int, action: Callable[..., None], *args: Any) -> Timer: ...

    def send(self, peer: Peer, msg: Message) -> None:
        """Never blocks or re-enters; without a link it dials, and the message waits in a bounded queue.

        What never left, for want of room, of a link or of a common protocol, comes back by `dropped`. The one thing that
        raises is a message over the frame limit, a mistake of the program itself.
        """

    def send_all(self, peers: tuple[Peer, ...], msg: Message, but: Peer | None = None) -> None:
        """The same message to each peer but one, in that order: encoded once, and one entry in the simulator where it may be.

        A tuple, since the same one comes again and again: a driver may keep what it found out about it.
        """

    def request(
        self, peer: Peer, msg: Message, timeout: int, on_reply: Callable[[Peer, Any], None], on_fail: Callable[[Peer, str], None]
    ) -> None:
        """Exactly one of the two is called, once, with the reply or with the reason why there is none."""

    def connect(self, peer: Peer) -> None:
        """Take a hold on the link, dialling if there is none; ends in `link_up`, or `link_down` with incarnation 0.

        Where the link is up already and was told, nothing more is. Whoever accepted a link holds it only after `connect`.
        """

    def disconnect(self, peer: Peer) -> None:
        """Release this machine's hold; the link closes, after what was sent, when this node has no hold left on it.

        Without a hold it does nothing. A hold taken after it is a new one, which the old link's `link_down` does not touch.
        """

    def backlog(self, peer: Peer) -> int:
        """Bytes accepted for the peer that have not left yet; once some had to wait, `drained` tells when there are none."""

    def learn(self, info: PeerInfo) -> None: ...
    def info(self, peer: Peer) -> PeerInfo: ...

    def trace(
        self,
        kind: str,
        topic: str | None = None,
        msg: MessageId | None = None,
        peer: Peer | None = None,
        hops: int | None = None,
        reason: str | None = None,
        dependencies: tuple[MessageId, ...] = (),
    ) -> None: ...


Reply: TypeAlias = Callable[[Message], None]
Handlers: TypeAlias = dict[type[Message], Callable[..., None]]
Method = TypeVar("Method", bound=Callable[..., None])


def upon(kind: type[Message]) -> Callable[[Method], Method]:
    """Mark `method(self, sender, msg)` as the handler of one kind of message, as in `upon receive (GOSSIP)`."""

    def mark(method: Method) -> Method:
        if hasattr(method, "upon"):
            raise UsageError(f"{method.__name__} is marked twice; one method handles one kind of message")
        method.upon = kind  # type: ignore[attr-defined]
        return method

    return mark


def answers(kind: type[Message], *replies: type[Message]) -> Callable[[Method], Method]:
    """Mark `method(self, sender, msg, reply)` as what answers a request; `reply` is called once, now or later.

    One that cannot do what it is asked for raises `libweft.peer.errors.Refused`, which costs the asker its answer and nothing
    more.
    """

    def mark(method: Method) -> Method:
        method.answers = kind  # type: ignore[attr-defined]
        method.replies = replies  # type: ignore[attr-defined]
        return method

    return mark


class Machine:
    """Owns its state; handlers, timer actions and the upcalls below are the only ways in.

    `protocols` are its ids on the wire, preferred first. `watches` names protocols of other machines whose links it
    is told of too, though it gets none of their messages; a machine that names neither is told of every link.
    One that does not serve asks others and is asked by nobody: peers do not hear that it speaks its protocols.
    """

    __slots__ = ("__dict__", "__weakref__", "env", "trace", "tracing")

    protocols: tuple[str, ...] = ()
    watches: tuple[str, ...] = ()
    serves: bool = True
    handlers: ClassVar[Handlers] = {}
    answerers: ClassVar[Handlers] = {}
    kinds: ClassVar[tuple[type[Message], ...]] = ()

    def __init_subclass__(cls) -> None:
        own = [method for method in vars(cls).values() if callable(method)]
        taken = {m.upon: m for m in own if hasattr(m, "upon")}
        answered = {m.answers: m for m in own if hasattr(m, "answers")}
        cls.handlers = {**cls._renewed(cls.handlers), **taken}
        cls.answerers = {**cls._renewed(cls.answerers), **answered}
        replies = [kind for m in answered.values() for kind in m.replies]
        cls.kinds = tuple(dict.fromkeys([*cls.kinds, *taken, *answered, *replies]))
        _check_kinds(cls.__name__, cls.kinds)

    @classmethod
    def _renewed(cls, table: Handlers) -> Handlers:
        """A method that a subclass overrides takes its place in the table, marked again or not."""
        return {kind: vars(cls).get(method.__name__, method) for kind, method in table.items()}

    def __init__(self, env: Env) -> None:
        self.env = env
        self.trace = env.trace
        self.tracing = env.tracing

    def codec(self) -> Codec:
        """How its messages look on the wire; typed MessagePack unless a protocol of others says otherwise."""
        from libweft.peer.codec import msgpack

        return msgpack(self.kinds)

    def start(self) -> None: ...
    def stop(self) -> None:
        """A last chance to send; links close after what was sent."""

    def link_up(self, peer: Peer, link: Link) -> None: ...
    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        """The link of that incarnation is gone, and this machine's hold with it; 0 stands for a dial that failed."""

    def drained(self, peer: Peer) -> None: ...
    def dropped(self, peer: Peer, msg: Message) -> None:
        """A message that was accepted never left: the link was full, or could not be made."""

    def snapshot(self) -> bytes | None:
        """What a restart with state gets back in `restore`, before `start`; None when there is nothing to keep."""
        return None

    def restore(self, state: bytes) -> None: ...


def _check_kinds(name: str, kinds: Sequence[type[Message]]) -> None:
    """What the real codec would stumble over is refused when the class is made, in every world."""
    tags = [kind.__struct_config__.tag for kind in kinds]
    if len(kinds) > 1 and (None in tags or len(set(tags)) < len(tags)):
        raise UsageError(f"the messages of {name} need a `tag` each, all different: {', '.join(kind.__name__ for kind in kinds)}")
    for kind in kinds:
        if kind.lane is Lane.PAYLOAD and not {"id", "topic"} <= set(kind.__struct_fields__):
            raise UsageError(f"{kind.__name__} is on the payload lane and needs the fields `id` and `topic`")


class Codec(Protocol):
    """Turns messages into frames and back; `unpack` raises PeerError for whatever does not fit.

    `joins`: several messages may make one frame, so they are packed when they leave and not before.
    """

    limit: int
    joins: bool

    def pack(self, parts: Sequence[Message]) -> list[bytes]: ...
    def unpack(self, frame: bytes) -> Sequence[Message]: ...
    def size(self, msg: Message) -> int: ...


Build: TypeAlias = Callable[[Callable[[], Env]], Sequence[Machine]]
"""Builds one node's stack, lowest machine first; it calls its argument once for each machine, to get that machine's Env."""


def speaks(mine: Sequence[str], theirs: Sequence[str]) -> str | None:
    """The protocol two machines agree on: the first of mine that they have too."""
    return next((protocol for protocol in mine if protocol in theirs), None)
