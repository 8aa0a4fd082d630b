"""The host: listens, dials, and keeps one authenticated link a peer; above it stands a driver, or your own protocol.

    async with open_host(Identity.new(), listen=["/ip4/127.0.0.1/tcp/0"]) as host:
        host.handle("/echo/1.0.0", echo)                 # async def echo(stream)
        link = await host.connect("/ip4/.../tcp/.../p2p/12D3...")
        stream = await host.open_stream(link.peer, ["/echo/1.0.0"])

A link is told of, to `watchers`, when it has been identified; a second one to the same peer settles with the first:
two that were dialled from both ends at once keep the one that the lower peer id dialled, else the newer wins, since
only a peer that lost the older dials again. One task sweeps all links each second (keep-alive, time limits), one
flushes all that have something to send.

Asks below: `libweft.peer.live.transport`, `libweft.peer.live.link`. Promises above: whatever a peer does costs its own link at
most, and every call can be cancelled without leaving a task, a socket or a stream behind.
Bounds, all in HostConfig: links in all and of one IP address, handshakes under way, addresses remembered.
"""

from __future__ import annotations

import ipaddress
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from time import time_ns
from typing import Protocol, TypeAlias, TypeVar

import trio

from libweft.peer.errors import PeerError, UsageError, WeftError, alone
from libweft.peer.libp2p.address import Address
from libweft.peer.libp2p.frame import Frames
from libweft.peer.libp2p.ids import Identity, parse_peer, peer_text
from libweft.peer.libp2p.pnet import cipher
from libweft.peer.libp2p.records import sign_record
from libweft.peer.libp2p.yamux import Yamux, YamuxLimits
from libweft.peer.live import identify, ping
from libweft.peer.live.link import LiveLink, Stream, StreamError
from libweft.peer.live.transport import DialError, Listener, Wire, dial, listening, secured

log = logging.getLogger("libweft.peer")

AGENT = "weft/0.1.0"
ADDRESSES = 16  # of one peer
SWEEP_S = 1.0
IDENTIFIES = 3  # a guess: how often a peer that is late is asked again what it speaks
TURN = 64  # links flushed before other tasks have their turn

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Handler: TypeAlias = Callable[[Stream], Awaitable[None]]
_T = TypeVar("_T")


@dataclass(frozen=True)
class HostConfig:
    """Times in seconds. Where a source is named, the value is its default."""

    dial_s: float = 15.0  # go-libp2p
    handshake_s: float = 15.0  # go-libp2p's accept
    negotiation_s: float = 10.0  # go-libp2p's stream negotiation
    identify_s: float = 5.0  # go-libp2p
    keep_alive_s: float = 30.0  # go-yamux
    answer_s: float = 20.0
    stalled_s: float = 30.0  # go-libp2p-pubsub's write deadline
    close_s: float = 5.0
    idle_s: float = 600.0
    low_water: int = 800
    high_water: int = 1_000
    grace_s: float = 20.0  # go-libp2p's connection manager
    links: int = 2_048
    links_an_ip: int = 256
    handshakes: int = 256
    remembered: int = 10_000
    agent: str = AGENT
    psk: bytes | None = None
    allow: Collection[bytes] | None = None  # peers; None lets all in
    deny: Collection[bytes] = ()
    deny_networks: Sequence[Network] = ()
    yamux: YamuxLimits = field(default_factory=YamuxLimits)

    def __post_init__(self) -> None:
        if not 0 < self.low_water <= self.high_water <= self.links:
            raise UsageError("a host needs 0 < low_water <= high_water <= links")
        for name, value in vars(self).items():
            if name.endswith("_s") and name != "grace_s" and not value > 0:
                raise UsageError(f"{name} is {value}; it must be above 0")
        if self.psk is not None and (not isinstance(self.psk, bytes) or len(self.psk) != 32):
            raise UsageError("psk is the 32 bytes of a private network's key, as libweft.peer.libp2p.pnet.read_key gives them")
        if self.psk is not None:
            cipher()  # a host that cannot veil its links would open, and then refuse every one of them
        for peers in (self.allow or (), self.deny):
            if isinstance(peers, (str, bytes)) or not all(isinstance(peer, bytes) for peer in peers):
                raise UsageError("allow and deny are several peer ids as bytes, as libweft.peer.libp2p.ids.parse_peer gives them")


class Watcher(Protocol):
    """Called from the host's tasks; must not block or raise."""

    def link_up(self, link: LiveLink) -> None: ...
    def link_down(self, link: LiveLink, reason: str) -> None: ...
    def protocols_changed(self, link: LiveLink, before: tuple[str, ...]) -> None: ...


class Known:
    """What is remembered of a peer: addresses, newest first, and its signed record."""

    __slots__ = ("addresses", "record")

    def __init__(self) -> None:
        self.addresses: tuple[Address, ...] = ()
        self.record: bytes | None = None


class _Dial:
    """A dial under way, shared by all who wait for it; it is given up when nobody does."""

    __slots__ = ("done", "error", "link", "scope", "waiters")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.scope = trio.CancelScope()
        self.waiters = 0
        self.link: LiveLink | None = None
        self.error: WeftError | None = None


class Host:
    """Made by `open_host`. `links` has one entry a peer; `counts` what an operator watches."""

    def __init__(self, identity: Identity, config: HostConfig, nursery: trio.Nursery) -> None:
        self.identity = identity
        self.peer = identity.peer
        self.config = config
        self.links: dict[bytes, LiveLink] = {}
        self.watchers: list[Watcher] = []
        self.known: OrderedDict[bytes, Known] = OrderedDict()
        self.counts: Counter[str] = Counter()
        self.closed = False
        self._nursery = nursery
        self._listeners: list[Listener] = []
        self._handlers: dict[str, Callable[[Stream], None]] = {}
        self._protected: Counter[bytes] = Counter()
        self._dials: dict[bytes, _Dial] = {}
        self._handshakes = 0
        self._ips: Counter[str] = Counter()
        self._incarnation = 0
        self._stirred: dict[LiveLink, None] = {}
        self._woken = trio.Event()
        self.handle(identify.ID, self._answer_identify)
        self.handle(identify.PUSH, self._take_push)
        self.handle(ping.PING, ping.answer)

    def start(self, listeners: list[Listener]) -> None:
        """Begin to listen, to write and to sweep, in the nursery it was made with."""
        self._listeners = listeners
        self._nursery.start_soon(self._flush)
        self._nursery.start_soon(self._sweep)
        for listener in listeners:
            self._nursery.start_soon(self._listen, listener)

    def halt(self, reason: str) -> None:
        """Close everything at once; what was not sent is lost."""
        self.closed = True
        for listener in self._listeners:
            listener.close()
        for link in list(self.links.values()):
            link.close(reason)

    async def close(self) -> None:
        """Take nothing new, close every link after what was sent, as far as that goes in `close_s`, then halt."""
        self.closed = True
        for listener in self._listeners:
            listener.close()
        for link in list(self.links.values()):
            link.finish("the host closes")
        with trio.move_on_after(self.config.close_s):
            while self.links:
                await next(iter(self.links.values())).over.wait()
                await trio.lowlevel.checkpoint()
        self.halt("the host closes")

    @property
    def addresses(self) -> list[Address]:
        """Where others reach this host, with its peer id."""
        return [address.with_peer(self.peer) for listener in self._listeners for address in listener.addresses()]

    @property
    def protocols(self) -> tuple[str, ...]:
        return tuple(self._handlers)

    @property
    def handshakes(self) -> int:
        return self._handshakes

    @property
    def dialling(self) -> int:
        return len(self._dials)

    def handle(self, protocol: str, handler: Handler) -> None:
        """Run `handler(stream)` in a task for each stream that a peer opens for the protocol; it is closed at the end."""
        self.push(protocol, partial(self._spawn, handler))

    def push(self, protocol: str, accept: Callable[[Stream], None]) -> None:
        """Call `accept(stream)` for each stream; it sets `on_data` and `on_end` instead of running a task."""
        if not isinstance(protocol, str) or not protocol.isascii() or not protocol.startswith("/") or len(protocol) > 256:
            raise UsageError(f"{protocol!r} is no name of a protocol; such as /chat/1.0.0, in ASCII and 256 letters at most")
        if protocol in self._handlers:
            raise UsageError(f"{protocol} has a handler already")
        self._handlers[protocol] = accept
        self._push_identify()

    def unhandle(self, protocol: str) -> None:
        self._handlers.pop(protocol, None)
        self._push_identify()

    def learn(self, peer: bytes, addresses: Sequence[Address], record: bytes | None = None, *, hearsay: bool = False) -> None:
        """Remember where a peer may be reached. What was only heard comes behind what was given by hand or has worked.

        The peers heard of longest ago are forgotten first, but not those that somebody holds.
        """
        known = self.known.pop(peer, None) or Known()
        plain = [address.without_peer() for address in addresses]
        known.addresses = tuple(dict.fromkeys([*known.addresses, *plain] if hearsay else [*plain, *known.addresses]))[:ADDRESSES]
        known.record = record or known.record
        self.known[peer] = known
        if len(self.known) > self.config.remembered:
            oldest = next((other for other in self.known if other not in self._protected), peer)
            del self.known[oldest]

    def protect(self, peer: bytes) -> None:
        """The link to it is not closed for want of room or for being idle, until as many calls of `unprotect`."""
        self._protected[peer] += 1

    def unprotect(self, peer: bytes) -> None:
        self._protected[peer] -= 1
        if not self._protected[peer]:
            del self._protected[peer]

    async def connect(self, target: bytes | str | Address) -> LiveLink:
        """The link to a peer id, or to the peer at an address; there may be one already.

        DialError when it cannot be reached, PeerError when it breaks the handshake or is somebody else.
        """
        self._check_open()
        peer, addresses = self._where(target)
        if peer == self.peer:
            raise UsageError("a host cannot dial itself: this is its own peer id, or another node uses its key")
        if (link := self.links.get(peer)) is not None:
            await (link.ready if link.finishing is None else link.over).wait()
            if link.reason is None:
                return link
        return await self._dialled(peer, addresses)

    async def open_stream(self, peer: bytes | str | Address, protocols: Sequence[str]) -> Stream:
        """A stream for the first of the protocols that the peer speaks; the caller closes it."""
        link = await self.connect(peer)
        stream = link.open(protocols)
        try:
            with trio.fail_after(self.config.negotiation_s):
                await stream.agreed()
        except trio.TooSlowError:
            raise StreamError("the peer did not agree on a protocol in time") from None
        finally:
            if stream.protocol is None:
                stream.reset("given up")
        return stream

    async def ping(self, peer: bytes | str | Address) -> float:
        """Seconds there and back."""
        stream = await self.open_stream(peer, [ping.PING])
        async with stream:
            try:
                with trio.fail_after(self.config.answer_s):
                    return await ping.ping(stream)
            except trio.TooSlowError:
                raise StreamError(f"no answer to a ping in {self.config.answer_s:g} s") from None

    # What links ask of their owner.

    def _check_open(self) -> None:
        if self.closed:
            raise UsageError("this host is closed")

    def stir(self, link: LiveLink) -> None:
        self._stirred[link] = None
        self._woken.set()

    def supports(self, protocol: str) -> bool:
        return protocol in self._handlers

    def accept(self, stream: Stream) -> None:
        assert stream.protocol is not None
        self._handlers[stream.protocol](stream)

    def wait_writable(self, link: LiveLink) -> None:
        self._nursery.start_soon(link.drain)

    # Dialling.

    def _where(self, target: bytes | str | Address) -> tuple[bytes, list[Address]]:
        if isinstance(target, str):
            target = Address.parse(target) if target.startswith("/") else parse_peer(target)
        if isinstance(target, Address):
            if target.peer is None:
                raise UsageError(f"{target} does not say whom to expect there; it must end in /p2p/PEER-ID")
            return target.peer, [target]
        if not isinstance(target, bytes):
            raise UsageError(f"{target!r} is neither a peer id nor an address")
        known = self.known.get(target)
        return target, list(known.addresses) if known else []

    async def _dialled(self, peer: bytes, addresses: Sequence[Address]) -> LiveLink:
        dial = self._dials.get(peer)
        joined = dial is not None
        if dial is None:
            dial = self._dials[peer] = _Dial()
            self._nursery.start_soon(self._dial, peer, addresses, dial)
        dial.waiters += 1
        try:
            await dial.done.wait()
        finally:
            dial.waiters -= 1
            if not dial.waiters:
                dial.scope.cancel()
                if self._dials.get(peer) is dial:  # who comes next begins a new one
                    del self._dials[peer]
        if dial.link is None and joined:  # that was a dial of somebody else, perhaps to other addresses
            return await self._dialled(peer, addresses)
        if dial.link is None:
            raise dial.error or DialError("the dial was given up")
        return dial.link

    async def _dial(self, peer: bytes, addresses: Sequence[Address], attempt: _Dial) -> None:
        self.counts["dials"] += 1
        try:
            with attempt.scope:
                attempt.link = await self._reached(peer, addresses)
        except WeftError as error:
            self.counts["dials_failed"] += 1
            attempt.error = error
        finally:
            if self._dials.get(peer) is attempt:
                del self._dials[peer]
            attempt.done.set()

    async def _reached(self, peer: bytes, addresses: Sequence[Address]) -> LiveLink:
        if not self._welcome(peer):
            raise UsageError(f"{peer_text(peer)} is on this host's deny list, or not on its allow list")
        if not addresses:
            raise DialError(f"no address of {peer_text(peer)} is known")
        if len(self.links) + self._handshakes >= self.config.links:
            raise DialError(f"this host has {len(self.links)} links, as many as it may")
        link = await self._first_that_answers(peer, list(addresses))
        await link.ready.wait()
        if link.reason is None:
            return link
        kept = self.links.get(peer)  # the other of two simultaneous dials
        if kept is None:
            raise DialError(f"the link was closed at once: {link.reason}")
        await kept.ready.wait()
        if kept.reason is not None:
            raise DialError(f"the link was closed at once: {kept.reason}")
        return kept

    async def _first_that_answers(self, peer: bytes, addresses: list[Address]) -> LiveLink:
        """At some of its addresses there may be somebody else by now; then the others are tried."""
        while True:
            wire, address = await self._in_time(self.config.dial_s, "connecting", dial, addresses)
            self._enter(wire)
            try:
                link = await self._establish(wire, outbound=True, expected=peer)
            except WeftError:
                addresses.remove(address)
                if not addresses:
                    raise
            else:
                self.learn(peer, [address])
                return link

    async def _establish(self, wire: Wire, *, outbound: bool, expected: bytes | None) -> LiveLink:
        """From a wire to a running link. Until it runs, the wire is closed whatever happens."""
        config = self.config
        try:
            done = await self._in_time(
                *(config.handshake_s, "the handshake", partial(secured, outbound=outbound, expected=expected, psk=config.psk)),
                *(wire, self.identity),
            )
            if not self._welcome(done.peer):
                raise PeerError(f"{peer_text(done.peer)} is not welcome here")
            if done.peer == self.peer:
                raise PeerError("a peer that uses this host's own identity")
        except BaseException:
            wire.close()
            self._leave(wire.remote.host)
            raise
        finally:
            self._handshakes -= 1
        self._incarnation += 1
        muxer = Yamux(initiator=outbound, limits=config.yamux)
        link = LiveLink(self, wire, done, muxer, outbound=outbound, incarnation=self._incarnation)
        if self._settle(link):
            self._nursery.start_soon(self._run, link, done.early)
            self._nursery.start_soon(self._introduce, link)
            self._trim()
        if self.closed:
            link.finish("the host closes")
        return link

    def _enter(self, wire: Wire) -> None:
        """It counts from here on, before its task has begun: `_establish` ends the handshake, `_leave` the rest."""
        self._handshakes += 1
        self._ips[wire.remote.host] += 1

    def _leave(self, host: str) -> None:
        self._ips[host] -= 1
        if not self._ips[host]:
            del self._ips[host]

    async def _in_time(self, limit: float, what: str, action: Callable[..., Awaitable[_T]], *args: object) -> _T:
        try:
            with trio.fail_after(limit):
                return await action(*args)
        except trio.TooSlowError:
            raise DialError(f"{what} took more than {limit:g} s") from None

    def _welcome(self, peer: bytes) -> bool:
        return peer not in self.config.deny and (self.config.allow is None or peer in self.config.allow)

    def _settle(self, new: LiveLink) -> bool:
        """One link a peer: true when the new one is it."""
        old = self.links.get(new.peer)
        if old is not None:  # it may be closed already, and its task not have seen that
            crossed = old.outbound != new.outbound and new.born - old.born < self.config.handshake_s
            lower_dialled = new.outbound == (self.peer < new.peer)
            if crossed and not lower_dialled and old.finishing is None and old.reason is None:
                new.close("another link to the peer is kept")
                self._leave(new.address.host)
                return False
            if old.reason is None and not old.outbound and not new.outbound:
                log.warning("%s dialled a second time: it lost the first link, or another node uses its key", peer_text(new.peer))
            self._drop(old, old.reason or "another link to the peer is kept")
        self.links[new.peer] = new
        return True

    def _drop(self, link: LiveLink, reason: str) -> None:
        """It is no longer the link to its peer; watchers hear that before they hear of the next."""
        if self.links.get(link.peer) is link:
            del self.links[link.peer]
            self._leave(link.address.host)
            if link.told:
                link.told = False
                self._tell_down(link, reason)
        link.close(reason)

    # The life of a link.

    async def _run(self, link: LiveLink, early: bytes) -> None:
        reason = await link.run(early)
        self._drop(link, reason)

    async def _introduce(self, link: LiveLink) -> None:
        """Hear what the peer speaks, then tell of the link; a peer without identify has no protocols.

        One that is late is asked again: a host that stood still for a while would else have no protocols for as long as the link.
        """
        answered = await self._hear_out(link)
        if self.links.get(link.peer) is link and link.reason is None:
            link.told = True
            self.counts["links_up"] += 1
            log.info("link up: %s at %s", peer_text(link.peer), link.address, extra={"peer": peer_text(link.peer)})
            for watcher in self.watchers:
                watcher.link_up(link)
            if link.described and link.described != self.protocols and identify.PUSH in link.protocols:
                self._nursery.start_soon(self._push_to, link)  # what changed since this peer asked
        link.ready.set()
        for _ in range(IDENTIFIES):
            if answered or link.reason is not None:
                return
            answered = await self._hear_out(link)

    async def _hear_out(self, link: LiveLink) -> bool:
        """Whether there was an answer in time; that there will be none is one too."""
        with trio.move_on_after(self.config.identify_s) as patience:
            try:
                await self._ask_identify(link)
            except (PeerError, StreamError, trio.BrokenResourceError) as error:
                log.info("no identify from %s: %s", peer_text(link.peer), error)
        return not patience.cancelled_caught

    def _tell_down(self, link: LiveLink, reason: str) -> None:
        self.counts["links_down"] += 1
        log.info("link down: %s: %s", peer_text(link.peer), reason, extra={"peer": peer_text(link.peer), "reason": reason})
        for watcher in self.watchers:
            watcher.link_down(link, reason)

    async def _ask_identify(self, link: LiveLink) -> None:
        stream = link.open([identify.ID])
        async with stream:
            await stream.agreed()
            stream.finish()
            self._identified(link, identify.read(await _frames(stream), link.peer))

    def _identified(self, link: LiveLink, said: identify.Identified) -> None:
        near = link.address.is_loopback
        elsewhere = [address for address in said.addresses or () if near or not address.is_loopback]
        self.learn(link.peer, elsewhere, said.record, hearsay=True)
        if said.protocols is not None and said.protocols != link.protocols:
            before, link.protocols = link.protocols, said.protocols
            if link.told:
                for watcher in self.watchers:
                    watcher.protocols_changed(link, before)

    async def _answer_identify(self, stream: Stream) -> None:
        await stream.send_all(self._description(stream.link))

    async def _take_push(self, stream: Stream) -> None:
        with trio.move_on_after(self.config.identify_s):
            self._identified(stream.link, identify.read(await _frames(stream), stream.link.peer))

    def _push_identify(self) -> None:
        for link in self.links.values():
            if link.told and identify.PUSH in link.protocols:
                self._nursery.start_soon(self._push_to, link)

    async def _push_to(self, link: LiveLink) -> None:
        with trio.move_on_after(self.config.identify_s):
            try:
                async with link.open([identify.PUSH]) as stream:
                    await stream.send_all(self._description(link))
            except (StreamError, trio.BrokenResourceError) as error:
                log.debug("identify push to %s: %s", peer_text(link.peer), error)

    def _description(self, link: LiveLink) -> bytes:
        link.described = self.protocols
        addresses = [address.without_peer() for address in self.addresses]
        record = sign_record(self.identity, addresses, time_ns())
        return identify.describe(
            self.identity.public.encode(), addresses, self.protocols, self.config.agent, link.address, record
        )

    def _spawn(self, handler: Handler, stream: Stream) -> None:
        self._nursery.start_soon(self._handled, handler, stream)

    async def _handled(self, handler: Handler, stream: Stream) -> None:
        """A peer's fault costs its link. Whatever else a handler raises costs the stream: a peer chooses what it is fed."""
        try:
            await handler(stream)
            await stream.aclose()
        except PeerError as error:
            stream.link.close(str(error))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            stream.reset()
        except Exception:
            log.exception("the handler of %s failed", stream.protocol)
            stream.reset()

    # Tasks of the host itself.

    async def _listen(self, listener: Listener) -> None:
        with suppress(trio.ClosedResourceError):
            while True:
                wire = await listener.accept()
                if self._has_room(wire):
                    self._enter(wire)
                    self._nursery.start_soon(self._accepted, wire)
                else:
                    self.counts["refused"] += 1
                    wire.close()

    def _has_room(self, wire: Wire) -> bool:
        config, host = self.config, wire.remote.host
        denied = any(ipaddress.ip_address(host.partition("%")[0]) in network for network in config.deny_networks)
        return not (
            denied
            or self._handshakes >= config.handshakes
            or self._ips[host] >= config.links_an_ip
            or len(self.links) + self._handshakes >= config.links
        )

    async def _accepted(self, wire: Wire) -> None:
        try:
            await self._establish(wire, outbound=False, expected=None)
            self.counts["accepted"] += 1
        except WeftError as error:
            self.counts["handshakes_failed"] += 1
            log.info("refused %s: %s", wire.remote, error, extra={"address": str(wire.remote)})

    async def _flush(self) -> None:
        while True:
            await self._woken.wait()
            self._woken = trio.Event()
            stirred, self._stirred = self._stirred, {}
            for number, link in enumerate(stirred, 1):
                link.flush()
                if number % TURN == 0:
                    await trio.lowlevel.checkpoint()

    async def _sweep(self) -> None:
        while True:
            await trio.sleep(SWEEP_S)
            now = trio.current_time()
            for link in list(self.links.values()):
                link.sweep(now, self.config.negotiation_s)
                if reason := self._overdue(link, now):
                    link.close(reason)

    def _overdue(self, link: LiveLink, now: float) -> str | None:
        """Why the link must go, if it must; else see to it that it is alive."""
        config = self.config
        if link.blocked and now - link.moved > config.stalled_s:
            return "the peer stopped reading"
        if link.finishing is not None and now - link.finishing > config.close_s:
            return "closed, though the peer did not close in time"
        if link.pinged is not None and now - link.pinged > config.answer_s:
            return "the peer does not answer"
        if link.streams or link.peer in self._protected:
            link.busy = now
        elif now - link.busy > config.idle_s:
            link.finish("idle")
        if link.pinged is None and now - link.heard > config.keep_alive_s:
            link.pinged = now
            link.yamux.ping(int(now) & 0xFFFFFFFF)
            link.stir()
        return None

    def _trim(self) -> None:
        """Above the high mark, close what nobody needs, the longest silent first, down to the low one."""
        if len(self.links) <= self.config.high_water:
            return
        now = trio.current_time()
        old = [link for link in self.links.values() if now - link.born > self.config.grace_s]
        spare = [link for link in old if link.peer not in self._protected]
        spare.sort(key=lambda link: link.heard)
        for link in spare[: len(self.links) - self.config.low_water]:
            link.finish("trimmed: too many links")


@asynccontextmanager
async def open_host(
    identity: Identity, *, listen: Sequence[str | Address] = (), config: HostConfig | None = None
) -> AsyncIterator[Host]:
    """A running host; at the end its links are closed after what was sent, and every socket is gone."""
    if isinstance(listen, (str, Address)):
        raise UsageError(f"listen is several addresses, such as [{str(listen)!r}], and not one")
    places = [Address.parse(place) if isinstance(place, str) else place for place in listen]
    with alone(), listening(places) as listeners:
        async with trio.open_nursery() as nursery:
            host = Host(identity, config or HostConfig(), nursery)
            host.start(listeners)
            try:
                yield host
                await host.close()
            finally:
                host.halt("the host closes")
                nursery.cancel_scope.cancel()


async def _frames(stream: Stream) -> list[bytes]:
    """All messages up to the end of an identify stream."""
    cut = Frames(identify.MESSAGE_LIMIT)
    frames: list[bytes] = []
    while data := await stream.receive_some():
        frames += cut.feed(data)
        if len(frames) > identify.MESSAGES:
            raise PeerError("identify does not end")
    cut.finish()
    return frames
