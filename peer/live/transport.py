"""TCP on trio: a `Wire` of bytes, made by dialling or by listening, and `secured` into a channel and a muxer.

A wire is a plain non-blocking socket: reading waits for trio, writing takes what the kernel takes at once. So a host can
write to a thousand links from one task, in one system call each, where a trio stream would need a task a link.

    Wire -> [pnet] -> multistream /noise -> Noise XX -> yamux (agreed inside Noise, or by multistream)

Dialling several addresses of one peer is staggered, each a little after the one before, and the first that
connects wins. Whatever the other side does wrong here is a PeerError; what the network does is a `DialError`.
Bounds: a read takes CHUNK bytes; the handshake's buffers are those of its layers. Time limits are the caller's.
"""

from __future__ import annotations

import errno
import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple, Protocol

import trio

from libweft.peer.errors import PeerError, UsageError, WeftError
from libweft.peer.libp2p.address import Address
from libweft.peer.libp2p.ids import Identity, PublicKey
from libweft.peer.libp2p.multistream import Answerer, Proposer
from libweft.peer.libp2p.noise import Channel, Handshake
from libweft.peer.libp2p.pnet import NONCE_SIZE, Veil

NOISE = "/noise"
YAMUX = "/yamux/1.0.0"
CHUNK = 1 << 16
STAGGER_S = 0.25  # RFC 8305, section 8: the delay between two attempts
BACKLOG = 1_024
RESOLVABLE = {"ip4": socket.AF_INET, "ip6": socket.AF_INET6, "dns4": socket.AF_INET, "dns6": socket.AF_INET6}


class DialError(WeftError):
    """Nobody could be reached at any address; nobody is to blame."""


class Wire:
    """One TCP connection, in a veil where the network is a private one."""

    __slots__ = ("_closed", "_veil", "finished", "remote", "sock")

    def __init__(self, sock: socket.socket) -> None:
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.remote = _name(sock.getpeername())
        except BaseException:  # the other side has reset it by now
            sock.close()
            raise
        self.sock = sock
        self._veil: Veil | None = None
        self._closed = False
        self.finished = False

    async def receive(self) -> bytes:
        """Some bytes, or none at the end; a connection that broke ends too."""
        waited = False
        while True:
            try:
                data = self.sock.recv(CHUNK)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self.sock)
                waited = True
                continue
            except OSError:
                if self._closed:
                    raise trio.ClosedResourceError("this end closed the connection") from None
                data = b""
            if not waited:  # a wait is a checkpoint too
                await trio.lowlevel.checkpoint()
            waited = False
            if not data or self._veil is None:
                return data
            if data := self._veil.feed(data):
                return data

    def send_now(self, data: bytes | memoryview) -> int:
        """How many bytes the kernel took, 0 when it would block; a broken connection raises ConnectionError."""
        try:
            return self.sock.send(data)
        except BlockingIOError:
            return 0

    async def send(self, data: bytes) -> None:
        """All of it. With a veil it must be used alone: `send_now` takes bytes that are veiled already."""
        rest = memoryview(self.veiled(data))
        try:
            while rest:
                if not (sent := self.send_now(rest)):
                    await self.writable()
                rest = rest[sent:]
        except OSError:
            raise PeerError("the connection broke during the handshake") from None
        await trio.lowlevel.checkpoint()

    def veiled(self, data: bytes) -> bytes:
        return self._veil.seal(data) if self._veil is not None else data

    async def veil(self, psk: bytes) -> None:
        """Both sides exchange a nonce; from then on nothing is readable without the network's key."""
        veil = Veil(psk, secrets.token_bytes(NONCE_SIZE))
        await self.send(veil.take())
        self._veil = veil

    async def writable(self) -> None:
        await trio.lowlevel.wait_writable(self.sock)

    def finish(self) -> None:
        """This side sends no more. Closing at once instead would make the kernel discard what is still on its way."""
        self.finished = True
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            trio.lowlevel.notify_closing(self.sock)
            self.sock.close()


class Secured(NamedTuple):
    """What a handshake came to. `early` was read already, beyond it."""

    peer: bytes
    key: PublicKey
    channel: Channel
    early: bytes


async def secured(wire: Wire, identity: Identity, *, outbound: bool, expected: bytes | None, psk: bytes | None) -> Secured:
    """Run every step between TCP and the muxer; the caller sets the time limit and closes the wire when this raises."""
    if psk is not None:
        await wire.veil(psk)
    rest = await _agree(wire, NOISE, outbound, b"")
    handshake = Handshake(identity, initiator=outbound, expected=expected, muxers=(YAMUX,))
    await _drive(wire, handshake, rest)
    channel = handshake.channel()
    early = channel.feed(b"")
    if handshake.muxer is None:
        early = await _agree(_Sealed(wire, channel), YAMUX, outbound, early)
    return Secured(handshake.peer, handshake.remote, channel, early)


class _Way(Protocol):
    async def send(self, data: bytes) -> None: ...
    async def receive(self) -> bytes: ...


class _Sealed:
    def __init__(self, wire: Wire, channel: Channel) -> None:
        self._wire = wire
        self._channel = channel

    async def send(self, data: bytes) -> None:
        await self._wire.send(self._channel.seal(data))

    async def receive(self) -> bytes:
        while data := await self._wire.receive():
            if plain := self._channel.feed(data):
                return plain
        return b""


async def _agree(way: _Way, protocol: str, outbound: bool, early: bytes) -> bytes:
    """One multistream negotiation with one protocol on offer; gives back what was read beyond it."""
    side = Proposer((protocol,)) if outbound else Answerer(lambda name: name == protocol)
    await _drive(way, side, early)
    return side.rest


async def _drive(way: _Way, side: Proposer | Answerer | Handshake, early: bytes) -> None:
    if early:
        side.feed(early)
    while True:
        if out := side.take():
            await way.send(out)
        if side.done if isinstance(side, Handshake) else side.chosen is not None:
            return
        data = await way.receive()
        if not data:
            raise PeerError("the connection was closed during the handshake: is it a private network, or one with another key?")
        side.feed(data)


async def dial(addresses: Sequence[Address]) -> tuple[Wire, Address]:
    """The first that connects; DialError says what each one answered."""
    problems: list[str] = []
    won: list[tuple[Wire, Address]] = []
    try:
        targets = [(address, target) for address in addresses for target in await _resolved(address, problems)]
        async with trio.open_nursery() as nursery:
            for address, target in targets:
                failed = trio.Event()
                nursery.start_soon(_attempt, address, target, won, problems, failed, nursery.cancel_scope)
                with trio.move_on_after(STAGGER_S):
                    await failed.wait()
        if not won:
            raise DialError("; ".join(problems) or "no address that TCP can reach")
        return won.pop(0)
    finally:
        for wire, _ in won:
            wire.close()


async def _attempt(
    address: Address,
    target: _Target,
    won: list[tuple[Wire, Address]],
    problems: list[str],
    failed: trio.Event,
    others: trio.CancelScope,
) -> None:
    try:
        won.append((await _connected(target), address))
        others.cancel()
    except OSError as error:
        problems.append(f"{address}: {_why(error)}")
        failed.set()


class _Target(NamedTuple):
    family: int
    name: tuple[str | int | bytes, ...]


async def _resolved(address: Address, problems: list[str]) -> list[_Target]:
    if address.transport != "tcp":
        problems.append(f"{address}: only tcp can be dialled")
        return []
    family = RESOLVABLE.get(address.parts[0][0], socket.AF_UNSPEC)
    try:
        found = await trio.socket.getaddrinfo(address.host, address.port, family, socket.SOCK_STREAM)
    except OSError as error:
        problems.append(f"{address}: {_why(error)}")
        return []
    return [_Target(family, name) for family, _, _, _, name in found]


async def _connected(target: _Target) -> Wire:
    with trio.socket.socket(target.family, socket.SOCK_STREAM) as sock:
        await sock.connect(target.name)
        return Wire(socket.socket(fileno=sock.detach()))


class Listener:
    """A socket that takes connections; `address` has the port that the system chose."""

    def __init__(self, address: Address) -> None:
        if address.transport != "tcp" or address.parts[0][0] not in ("ip4", "ip6"):
            raise UsageError(f"cannot listen on {address}: use an address such as /ip4/0.0.0.0/tcp/4001 or /ip6/::/tcp/0")
        self._sock = _bound(address)
        self._family = self._sock.family
        self.address = Address.of_tcp(*self._sock.getsockname()[:2])

    async def accept(self) -> Wire:
        while True:
            await trio.lowlevel.checkpoint()  # before, so that a cancellation loses no connection
            try:
                sock, _ = self._sock.accept()
                return Wire(sock)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._sock)
            except OSError as error:
                if self._sock.fileno() < 0:
                    raise trio.ClosedResourceError("this listener is closed") from None
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    continue  # the caller hung up before we looked
                await trio.sleep(0.1)  # no room for another socket: wait until one is closed

    def addresses(self) -> list[Address]:
        """Where others can reach it: a wildcard stands for each address of this machine."""
        if self.address.host not in ("0.0.0.0", "::"):
            return [self.address]
        return [Address.of_tcp(host, self.address.port) for host in _own_hosts(self._family)]

    def close(self) -> None:
        if self._sock.fileno() >= 0:
            trio.lowlevel.notify_closing(self._sock)
            self._sock.close()


@contextmanager
def listening(addresses: Sequence[Address]) -> Iterator[list[Listener]]:
    """All or none of them; closed at the end."""
    listeners: list[Listener] = []
    try:
        listeners.extend(Listener(address) for address in addresses)
        yield listeners
    finally:
        for listener in listeners:
            listener.close()


def _bound(address: Address) -> socket.socket:
    family = socket.AF_INET if address.parts[0][0] == "ip4" else socket.AF_INET6
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((address.host, address.port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise UsageError(f"cannot listen on {address}: {_why(error)}") from error
    return sock


def _own_hosts(family: int) -> list[str]:
    """The loopback address, and the one that a packet to elsewhere would leave by; nothing is sent to find it out."""
    loopback, elsewhere = ("127.0.0.1", "192.0.2.1") if family == socket.AF_INET else ("::1", "2001:db8::1")
    hosts = [loopback]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((elsewhere, 9))
            hosts.append(str(probe.getsockname()[0]))
        except OSError:  # no route: this machine is alone
            pass
    return list(dict.fromkeys(hosts))


def _name(name: tuple[str | int, ...]) -> Address:
    return Address.of_tcp(str(name[0]), int(name[1]))


def _why(error: OSError) -> str:
    """Without the address, which trio puts in front: whoever tells of the error names it already."""
    return (error.strerror or str(error)).rpartition("): ")[2].lower()
