"""A libp2p peer that misbehaves on purpose: the project's own layers, stacked by hand on a plain trio socket.

A test lets it `reach` a layer as a good peer would, and then says there what it likes. Nothing happens by itself: it reads
only when told to, so that a peer which stops reading is one that is left alone. `behave` reads on and answers decently.

    raw        bytes on the TCP connection, before anything was agreed
    noise      bytes of the handshake, after /noise was agreed by multistream
    sealed     bytes after the handshake, which should be Noise messages
    muxer      inside Noise, where multistream is to agree on yamux (only with `muxers=()`)
    yamux      inside Noise, frames of yamux
    stream     on a stream of yamux, where multistream is to agree on a protocol
"""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Literal, TypeAlias, cast, get_args

import trio

from libweft.peer.libp2p.address import Address
from libweft.peer.libp2p.frame import frame
from libweft.peer.libp2p.ids import Identity, PublicKey
from libweft.peer.libp2p.multistream import Answerer, Proposer
from libweft.peer.libp2p.noise import Channel, Handshake
from libweft.peer.libp2p.pb.identify_pb2 import Identify
from libweft.peer.libp2p.yamux import Data, Finished, Opened, Reset, Yamux
from libweft.peer.live.identify import ID
from libweft.peer.live.ping import PING
from libweft.peer.live.transport import CHUNK, NOISE, YAMUX

Layer: TypeAlias = Literal["raw", "noise", "sealed", "muxer", "yamux", "stream"]
LAYERS: tuple[Layer, ...] = get_args(Layer)

Side: TypeAlias = Proposer | Answerer | Handshake


class HungUp(Exception):
    """The host closed the connection while something was still to be agreed."""


class Forged:
    """Claims one key and signs with another."""

    def __init__(self, claimed: PublicKey, signer: Identity) -> None:
        self.public = claimed
        self.sign = signer.sign


class Hostile:
    """One end of one connection. `pause`, where set, is awaited after each byte: all is sent one byte at a time then."""

    channel: Channel
    mux: Yamux

    def __init__(
        self,
        sock: trio.socket.SocketType,
        who: Identity | Forged,
        *,
        initiator: bool = True,
        expected: bytes | None = None,
        muxers: Sequence[str] = (YAMUX,),
    ) -> None:
        self.sock = sock
        self.initiator = initiator
        self.muxers = tuple(muxers)
        self.pause: Callable[[], Awaitable[None]] | None = None
        self.sent = bytearray()
        """All that was written to the connection: a recording, to be replayed."""
        self.said: dict[int, bytearray] = {}
        """What the host said on each stream."""
        self.ended: set[int] = set()
        """Streams that the host has finished or reset."""
        self._who = cast(Identity, who)
        self._expected = expected
        self._passed = 0
        self._early = b""
        self._answerers: dict[int, Answerer] = {}

    # Bytes.

    async def send(self, data: bytes) -> None:
        self.sent += data
        pieces = [data] if self.pause is None else [data[at : at + 1] for at in range(len(data))]
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                rest = rest[await self.sock.send(rest) :]
            if self.pause is not None:
                await self.pause()

    async def receive(self) -> bytes:
        """Some bytes; none when the host has hung up, in whatever way."""
        try:
            return await self.sock.recv(CHUNK)
        except ConnectionError:
            return b""

    async def hung_up(self) -> None:
        """Wait until the host closes the connection, and read whatever it says before."""
        while await self.receive():
            pass

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        """RST in place of FIN."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    async def send_sealed(self, plain: bytes) -> None:
        await self.send(self.channel.seal(plain))

    async def receive_sealed(self) -> bytes:
        while data := await self.receive():
            if plain := self.channel.feed(data):
                return plain
        return b""

    # Layers.

    async def reach(self, layer: Layer) -> None:
        """Do what is still to be done below the layer, as it should be done."""
        steps = {"noise": self.agree_noise, "sealed": self.shake, "yamux": self.agree_muxer}
        while self._passed < LAYERS.index(layer):
            self._passed += 1
            if (passed := LAYERS[self._passed]) in steps:
                await steps[passed]()

    async def say(self, layer: Layer, data: bytes) -> None:
        """Send bytes as that layer's."""
        if layer in ("raw", "noise", "sealed"):
            await self.send(data)
        elif layer == "stream":
            await self.say_on(self.open(), data)
        else:
            await self.send_sealed(data)

    async def agree_noise(self) -> None:
        side = self._side(NOISE)
        await self.drive(side, self.send, self.receive)
        self._early = side.rest

    async def shake(self) -> None:
        handshake = Handshake(self._who, initiator=self.initiator, expected=self._expected, muxers=self.muxers)
        await self.drive(handshake, self.send, self.receive)
        self.channel = handshake.channel()
        self._early = self.channel.feed(b"")
        self.muxers = (handshake.muxer,) if handshake.muxer is not None else ()

    async def agree_muxer(self) -> None:
        if not self.muxers:
            side = self._side(YAMUX)
            await self.drive(side, self.send_sealed, self.receive_sealed)
            self._early = side.rest
        self.mux = Yamux(initiator=self.initiator)

    def _side(self, protocol: str) -> Proposer | Answerer:
        return Proposer((protocol,)) if self.initiator else Answerer(lambda name: name == protocol)

    async def drive(self, side: Side, send: Callable[[bytes], Awaitable[None]], receive: Callable[[], Awaitable[bytes]]) -> None:
        if self._early:
            early, self._early = self._early, b""
            side.feed(early)
        while True:
            if out := side.take():
                await send(out)
            if side.done if isinstance(side, Handshake) else side.chosen is not None:
                return
            if not (data := await receive()):
                raise HungUp
            side.feed(data)

    # Streams.

    def open(self) -> int:
        stream = self.mux.open()
        assert stream is not None
        return stream

    async def say_on(self, stream: int, data: bytes) -> None:
        self.mux.send(stream, data)
        await self.flush()

    async def ask_for(self, protocol: str, data: bytes = b"") -> int:
        """Open a stream for a protocol and send at once, without waiting for the host to agree."""
        stream = self.open()
        await self.say_on(stream, Proposer((protocol,)).take() + data)
        return stream

    async def flush(self) -> None:
        if out := self.mux.take():
            await self.send_sealed(out)

    async def behave(self, protocols: Sequence[str] = (), *, silent: Collection[str] = ()) -> None:
        """Read on and answer as a good peer that speaks the protocols does, until the host hangs up.

        On the protocols in `silent` it never says a word.
        """
        plain, self._early = self._early, b""
        while True:
            for event in self.mux.feed(plain):
                if isinstance(event, Opened):
                    self._answerers[event.stream] = Answerer(lambda name: True)
                elif isinstance(event, Data):
                    self.mux.consumed(event.stream, len(event.data))
                    self._heard(event.stream, event.data, protocols, silent)
                elif isinstance(event, Finished):
                    self.ended.add(event.stream)
                    self.mux.finish(event.stream)
                elif isinstance(event, Reset):
                    self.ended.add(event.stream)
            try:
                await self.flush()
            except OSError:
                return
            if not (plain := await self.receive_sealed()):
                self.close()
                return

    def _heard(self, stream: int, data: bytes, protocols: Sequence[str], silent: Collection[str]) -> None:
        side = self._answerers.get(stream)
        if side is None or side.chosen is not None:
            self.said.setdefault(stream, bytearray()).extend(data)
            return
        side.feed(data)
        if side.chosen not in silent:
            self.mux.send(stream, side.take())
        if side.chosen == ID and ID not in silent:
            spoken = Identify(protocols=[ID, PING, *protocols], agentVersion="hostile")
            self.mux.send(stream, frame(spoken.SerializeToString()))
            self.mux.finish(stream)


async def call(address: Address, who: Identity | Forged, *, muxers: Sequence[str] = (YAMUX,)) -> Hostile:
    """Dial a host; only TCP, no more."""
    sock = trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await sock.connect((address.host, address.port))
    except BaseException:
        sock.close()
        raise
    return Hostile(sock, who, expected=address.peer, muxers=muxers)


class Trap:
    """Where a host is lured to: it dials `address`, and `caught` is the other end of that."""

    def __init__(self, sock: trio.socket.SocketType, claimed: bytes, who: Identity | Forged) -> None:
        self._sock = sock
        self._who = who
        host, port = sock.getsockname()
        self.address = Address.of_tcp(host, port).with_peer(claimed)

    async def caught(self) -> Hostile:
        sock, _ = await self._sock.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a delay of the kernel's would let the mock clock jump
        return Hostile(sock, self._who, initiator=False)


@asynccontextmanager
async def trap(who: Identity | Forged, claimed: bytes | None = None) -> AsyncIterator[Trap]:
    """Listen; `claimed` is the peer id in the address, where it is not that of `who`."""
    with trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        await sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield Trap(sock, claimed or who.public.peer, who)
