"""The router contract: a machine that spreads publications over an overlay and hands each up once.

The way of a message: first copy -> signature -> validation, which may answer later -> accepted: forwarded, then
delivered where the node has the interest. A publisher that subscribes gets its own message, once.
`join(interest)` ends in `joined(interest)` on the app: from then on the subscription is in force.

Above: an `App` (the pub/sub API, an order, or a workload). Below: an `Overlay`'s neighbours and an Env.
Bounds: `pending` validations, beyond which a message is rejected for that reason; `size` and the three below it for a message;
each router bounds its own caches.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from msgspec.msgpack import encode

from libweft.overlays.overlay import Overlay
from libweft.peer.errors import UsageError
from libweft.peer.machine import EPOCH_BITS, Env, Machine, MessageId, Peer
from libweft.peer.trace.kinds import DELIVER, JOIN, JOINED, LEAVE, PUBLISH, RECEIVE, REJECT
from libweft.pubsub.interests import Attributes, Filter, Interest
from libweft.pubsub.message import OrderHeader, Publication, Verdict
from libweft.pubsub.signing import Signing

EPOCH_ROOM = (1 << EPOCH_BITS) - 1
LARGEST = 900_000  # bytes of data; with the next three it stays below a frame's 1 MiB
TOPIC = 1_024
KEYS = 4_096
HEADERS = 1 << 16


class Role(Enum):
    PEER = "peer"
    BROKER = "broker"
    CLIENT = "client"


class App(Protocol):
    """What stands above a router. With `validates` false, every message is accepted and `validate` is not called."""

    @property
    def validates(self) -> bool: ...

    def validate(self, sender: Peer, publication: Publication, answer: Callable[[Verdict], None]) -> None: ...
    def deliver(self, publication: Publication) -> None: ...
    def joined(self, interest: Interest) -> None: ...


class Router(Machine):
    __slots__ = ("app", "filters", "interests", "ordered", "overlay", "pending", "refused", "role", "sequence", "signing", "size")

    pending_limit = 1_024  # a guess: a second of a slow validator at a thousand messages a second
    pending_topic = 256  # of them, of one topic: a guess
    QUEUE_FULL = "validation queue full"
    repair = 0  # microseconds within which it brings by itself what a crash has held up; an order waits so much longer

    def __init__(self, env: Env, overlay: Overlay, app: App, role: Role = Role.PEER) -> None:
        super().__init__(env)
        self.overlay = overlay
        self.app = app
        self.role = role
        self.interests: dict[Interest, None] = {}
        self.filters: tuple[Filter, ...] = ()
        self.ordered = False  # an order stands above, and says itself when a message is delivered
        self.pending = 0
        self.waiting: dict[str, int] = {}  # of these, by topic
        self.refused = 0  # messages lost because so many wait for a verdict
        self.sequence = 0
        self.size = LARGEST
        self.signing: Signing | None = None  # with one, whatever is published is signed, and whatever is not is rejected
        overlay.watchers.append(self)

    def join(self, interest: Interest) -> None:
        """Subscribe; a router whose subscriptions take time calls `_in_force` later."""
        if interest not in self.interests:
            self.interests[interest] = None
            self._sort_out_filters()
            self.trace(JOIN, topic=_name(interest))
            self._join(interest)

    def leave(self, interest: Interest) -> None:
        if interest in self.interests:
            del self.interests[interest]
            self._sort_out_filters()
            self.trace(LEAVE, topic=_name(interest))
            self._leave(interest)

    def publish(self, publication: Publication) -> None:
        """Spread a message of this node; it was made by `compose`."""
        dependencies = publication.order.dependencies if publication.order else ()
        self.trace(PUBLISH, publication.topic, publication.id, None, 0, None, dependencies)
        self._spread(publication)
        if publication.topic in self.interests or (self.filters and self._matches(publication)):
            self._deliver(publication)

    def compose(self, topic: str, data: bytes, order: OrderHeader | None = None, attributes: Attributes = ()) -> Publication:
        publication = Publication(self._next_id(), topic, data, order, attributes)
        return self.signing.sign(publication) if self.signing is not None else publication

    def _next_id(self) -> MessageId:
        self.sequence += 1
        return MessageId(self.env.me, self.env.epoch + (self.sequence >> EPOCH_BITS), self.sequence & EPOCH_ROOM)

    @property
    def reached(self) -> tuple[Peer, ...]:
        """To whom it sends."""
        return self.overlay.everyone

    def unplaced(self) -> int:
        """Bytes published here that wait until it is known where they go, and for no link."""
        return 0

    def brought(self, sender: Peer, publication: Publication) -> None:
        """A copy that an order had asked a peer for, by a protocol of its own: taken as any copy of the router's."""
        self.handlers[Publication](self, sender, publication)

    def advertise(self, interest: Interest) -> None:
        """Register as a publisher; only routers with open groups or advertisements need it."""

    def withdraw(self, interest: Interest) -> None: ...
    def neighbor_up(self, peer: Peer) -> None: ...
    def neighbor_down(self, peer: Peer, reason: str) -> None: ...

    def _join(self, interest: Interest) -> None:
        self._in_force(interest)

    def _leave(self, interest: Interest) -> None: ...
    def _genuine(self, sender: Peer, publication: Publication) -> None:
        """The first copy is its author's; validation comes next."""

    def _spread(self, publication: Publication) -> None: ...
    def _forward(self, publication: Publication, sender: Peer) -> None:
        """Called once for each message that validation accepted, before it is delivered."""

    def _refused(self, publication: Publication) -> None:
        """The message goes no further, for whatever reason."""

    def _forged(self, publication: Publication) -> None:
        """The copy is not its author's: its id must be forgotten, or whoever guesses an id keeps the true message out."""

    def _sort_out_filters(self) -> None:
        self.filters = tuple(interest for interest in self.interests if isinstance(interest, Filter))

    def _matches(self, publication: Publication) -> bool:
        return any(interest.matches(publication.attributes) for interest in self.filters)

    def _in_force(self, interest: Interest) -> None:
        self.trace(JOINED, topic=_name(interest))
        self.app.joined(interest)

    def _received(self, sender: Peer, publication: Publication, hops: int | None = None) -> None:
        """The first copy has come; the router has noted its id already."""
        self.trace(RECEIVE, publication.topic, publication.id, sender, hops)
        problem = self._problem(publication)
        reason = "too large" if too_large(publication, self.size) else problem
        if reason is not None:
            self._refuse(sender, publication, hops, reason)
            if problem is not None:
                self._forged(publication)
        else:
            self._genuine(sender, publication)
            if self.app.validates:
                self._validate(sender, publication, hops)
            else:
                self._accepted(sender, publication, hops)

    def _problem(self, publication: Publication) -> str | None:
        """Why it is not its author's."""
        return self.signing.problem(publication) if self.signing is not None else None

    def _validate(self, sender: Peer, publication: Publication, hops: int | None) -> None:
        if self._overrun(waiting := self.waiting.get(publication.topic, 0)):
            self.refused += 1
            self._refuse(sender, publication, hops, self.QUEUE_FULL)
        else:
            self.pending += 1
            self.waiting[publication.topic] = waiting + 1
            self.app.validate(sender, publication, Judgement(self, sender, publication, hops))

    def _overrun(self, waiting: int) -> bool:
        """A topic where nothing waits is never refused: it may need no time at all."""
        return waiting >= self.pending_topic or (waiting > 0 and self.pending >= self.pending_limit)

    def judged(self, sender: Peer, publication: Publication, hops: int | None, verdict: Verdict) -> None:
        self.pending -= 1
        self.waiting[publication.topic] -= 1
        if not self.waiting[publication.topic]:
            del self.waiting[publication.topic]
        if verdict is Verdict.ACCEPT:
            self._accepted(sender, publication, hops)
        else:
            self._refuse(sender, publication, hops, verdict.value)

    def _refuse(self, sender: Peer, publication: Publication, hops: int | None, reason: str) -> None:
        self.trace(REJECT, publication.topic, publication.id, sender, hops, reason)
        self._refused(publication)

    def _accepted(self, sender: Peer, publication: Publication, hops: int | None) -> None:
        self._forward(publication, sender)
        if publication.topic in self.interests or (self.filters and self._matches(publication)):
            self._deliver(publication, hops)

    def _deliver(self, publication: Publication, hops: int | None = 0) -> None:
        if not self.ordered:
            self.trace(DELIVER, publication.topic, publication.id, None, hops)
        self.app.deliver(publication)


class Judgement:
    """What a validator calls with its verdict, once, now or later."""

    __slots__ = ("_case",)

    def __init__(self, router: Router, sender: Peer, publication: Publication, hops: int | None) -> None:
        self._case: tuple[Router, Peer, Publication, int | None] | None = (router, sender, publication, hops)

    def __call__(self, verdict: Verdict) -> None:
        if self._case is None:
            raise UsageError("a validator answered twice for one message")
        router, sender, publication, hops = self._case
        self._case = None
        router.judged(sender, publication, hops, verdict)


def too_large(publication: Publication, size: int) -> bool:
    """Over what fits a frame with room to spare, so that what one node takes another never has to refuse."""
    if len(publication.data) > size or len(publication.topic) > TOPIC or len(publication.signature) + len(publication.key) > KEYS:
        return True
    extra = publication.order is not None or publication.attributes
    return bool(extra) and len(encode((publication.order, publication.attributes))) > HEADERS


def _name(interest: Interest) -> str:
    return interest if isinstance(interest, str) else repr(interest)
