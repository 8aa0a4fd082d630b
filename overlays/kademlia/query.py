"""One lookup under way: asks those that `Lookup` names, hears their answers, and says when it is over.

Bounds: the lookup's; one request and one timer a question that is open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from libweft.overlays.claims import learn
from libweft.overlays.kademlia.lookup import Lookup
from libweft.overlays.kademlia.messages import FindNode, GetProviders, GetValue
from libweft.overlays.kademlia.space import place_of_key
from libweft.peer.errors import PeerError
from libweft.peer.machine import Message, Peer, PeerInfo, Timer

if TYPE_CHECKING:
    from libweft.overlays.kademlia.lookup_queue import Turns
    from libweft.overlays.kademlia.routing import Routing

Question: TypeAlias = FindNode | GetValue | GetProviders
Take: TypeAlias = "Callable[[Query, Peer, Message], None]"


class Query:
    """`take` sees each answer; it may stop the lookup. `start` are asked first, by default the nearest that are known.

    Where the node stops before the end, `given_up` is called in its place.
    """

    __slots__ = (
        *("_done", "_paths", "_question", "_routing", "_start", "_timers", "_turns"),
        *("given_up", "key", "lookup", "place", "take"),
    )

    def __init__(
        self,
        routing: Routing,
        key: bytes,
        question: Question,
        done: Callable[[Query], None],
        start: Sequence[Peer] | None = None,
        paths: int | None = None,
    ) -> None:
        self._routing = routing
        self._question = question
        self._done = done
        self._start = start
        self._paths = paths or routing.config.paths
        self._timers: dict[Peer, Timer] = {}
        self.key = key
        self.place = place_of_key(key)
        self.take: Take | None = None
        self.given_up: Callable[[], None] = nothing

    def begin(self, turns: Turns) -> None:
        routing, config = self._routing, self._routing.config
        routing.goes_to(self.place)
        self._turns = turns
        start = self._start if self._start is not None else routing.table.nearest(self.place, config.k)
        self.lookup = Lookup(routing.env.me, self.place, start, config.k, config.alpha, self._paths)
        self._step()

    def abandon(self) -> None:
        self.lookup.stopped = True
        for timer in self._timers.values():
            timer.cancel()

    @property
    def nearest(self) -> list[PeerInfo]:
        return [self._routing.env.info(peer) for peer in self.lookup.nearest]

    def _step(self) -> None:
        env, config = self._routing.env, self._routing.config
        for peer in self.lookup.next():
            self._timers[peer] = env.after(config.slow, self._lags, peer)
            self._routing.ask(peer, self._question, self._heard, self._failed)
        if self.lookup.done and self in self._turns.running:
            self.abandon()
            self._turns.over(self)
            self._done(self)

    def _heard(self, peer: Peer, msg: Message) -> None:
        if type(msg) is not type(self._question) or msg.key not in (self.key, b""):  # js and go leave it out of FIND_NODE's
            self._failed(peer, "timeout")
            raise PeerError(f"{type(msg).__name__} in answer to {type(self._question).__name__}")
        self._settle(peer)
        if self.lookup.stopped:
            return
        assert isinstance(msg, FindNode | GetValue | GetProviders)
        closer = msg.closer[: self._routing.config.k]
        for info in closer:
            learn(self._routing.env, info)
        self.lookup.heard(peer, [info.peer for info in closer])
        self._routing.heard_from(peer)
        if self.take is not None:
            self.take(self, peer, msg)
        self._step()

    def _failed(self, peer: Peer, reason: str) -> None:
        self._settle(peer)
        self._routing.table.drop(peer)
        if not self.lookup.stopped:
            self.lookup.failed(peer)
            self._step()

    def _lags(self, peer: Peer) -> None:
        del self._timers[peer]
        self.lookup.lags(peer)
        self._step()

    def _settle(self, peer: Peer) -> None:
        timer = self._timers.pop(peer, None)
        if timer is not None:
            timer.cancel()


def nothing(*_: object) -> None:
    """Hears an end that nobody waits for."""
