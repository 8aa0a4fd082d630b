"""What a peer of another library and weft once said to each other, and weft's side of it said again without a socket.

`tests/interop/record.py` makes the recordings. The keys in them were made for that and are of no use to anybody: with the same
Noise keys the other side's bytes decrypt again, and whatever weft said can be compared with what it says today.

`Replay` stands where `libweft.peer.live.transport` and `libweft.peer.live.link` stand in a live host: bytes of the other side go
in by `feed`, in any cut; `spoke` hears what weft said next, and has the layers say it again. `pairs` then holds both, recorded
and said again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec

from libweft.peer.errors import PeerError
from libweft.peer.libp2p.ids import Identity, parse_peer
from libweft.peer.libp2p.multistream import Answerer, Proposer
from libweft.peer.libp2p.noise import Channel, Handshake
from libweft.peer.libp2p.yamux import AWAY, DATA, FIN, HEADER, PING, RST, SIZE, SYN, Data, Finished, Opened, Yamux
from libweft.peer.live.transport import NOISE, YAMUX

HERE = Path(__file__).parent


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """One read or one write of weft's."""

    ours: bool
    data: bytes


class Recording(msgspec.Struct, frozen=True):
    outbound: bool
    """Whether weft dialled."""
    seed: bytes
    static: bytes
    ephemeral: bytes
    speaks: tuple[str, ...]
    """What weft has handlers for; the rest is what the other side said in the live run."""
    peer: str
    protocols: tuple[str, ...]
    agent: str
    topic: str
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    chunks: tuple[Chunk, ...]

    @property
    def identity(self) -> Identity:
        return Identity.from_seed(self.seed)

    def save(self, name: str) -> Path:
        path = HERE / f"{name}.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")
        return path


def names() -> list[str]:
    return sorted(path.stem for path in HERE.glob("*.json"))


def load(name: str) -> Recording:
    return msgspec.json.decode((HERE / f"{name}.json").read_bytes(), type=Recording)


def cut(chunks: Sequence[Chunk], sizes: Iterator[int]) -> Iterator[Chunk]:
    """The other side's bytes in pieces of these sizes; none goes past what weft said in between."""
    for ours, run in groupby(chunks, lambda chunk: chunk.ours):
        if ours:
            yield from run
            continue
        data, at = b"".join(chunk.data for chunk in run), 0
        while at < len(data):
            size = next(sizes)
            yield Chunk(False, data[at : at + size])
            at += size


def flipped(chunks: Sequence[Chunk], position: int, bit: int) -> list[Chunk]:
    """One bit of the other side's bytes turned; the position counts those alone."""
    out = []
    for chunk in chunks:
        if not chunk.ours:
            if 0 <= position < len(chunk.data):
                data = bytearray(chunk.data)
                data[position] ^= 1 << bit
                chunk = Chunk(False, bytes(data))
            position -= len(chunk.data)
        out.append(chunk)
    return out


class Frame(NamedTuple):
    """Of Yamux: its header, and the bytes after it."""

    head: int
    stream: int
    length: int
    body: bytes


def frames(plain: bytes) -> Iterator[Frame]:
    """Weft's own, which are always whole."""
    at = 0
    while at < len(plain):
        head, stream, length = HEADER.unpack_from(plain, at)
        at += SIZE
        body = plain[at : at + length] if head & ~0xFFFF == DATA else b""
        at += len(body)
        yield Frame(head, stream, length, body)


def by_stream(plain: bytes) -> dict[int, list[Frame]]:
    """Where an answer to a ping stands among other frames depends on when the link was flushed."""
    found: dict[int, list[Frame]] = {}
    for frame in frames(plain):
        found.setdefault(frame.stream, []).append(frame)
    return found


class Talk:
    """One stream: what is negotiated on it, then what is `heard` and `said`."""

    def __init__(self, side: Proposer | Answerer) -> None:
        self.opened_here = isinstance(side, Proposer)
        self.negotiated = side.take()
        self.heard = b""
        self.sent = b""
        self.ended = False
        self._side = side

    @property
    def protocol(self) -> str | None:
        return self._side.chosen

    @property
    def said(self) -> bytes:
        return self.sent[len(self.negotiated) :]

    def feed(self, data: bytes) -> None:
        if self._side.chosen is not None:
            self.heard += data
            return
        self._side.feed(data)
        self.negotiated += self._side.take()
        self.heard += self._side.rest


class Replay:
    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.handshake: Handshake | None = None
        self.channel: Channel | None = None
        self.yamux: Yamux | None = None
        self.plain = b""  # what the channel let through
        self.talks: dict[int, Talk] = {}
        self.pairs: list[tuple[object, object]] = []
        self._said = b""  # before there was a channel, and not yet compared
        self._lines = b""  # of multistream in the channel, for the muxer
        self._side: Proposer | Answerer | None = None
        self._mirror: Channel | None = None
        self._negotiate(NOISE)

    def run(self, chunks: Iterable[Chunk]) -> Replay:
        for chunk in chunks:
            if chunk.ours:
                self.spoke(chunk.data)
            else:
                self.feed(chunk.data)
        return self

    # The other side.

    def feed(self, data: bytes) -> None:
        if self.channel is not None:
            self._feed_plain(self.channel.feed(data))
        elif self.handshake is not None:
            self.handshake.feed(data)
            self._say(self.handshake.take())
            if self.handshake.done:
                self._secured(self.handshake)
        elif rest := self._agreed(data):
            self.feed(rest)

    def _feed_plain(self, data: bytes) -> None:
        self.plain += data
        if self.yamux is None and data:
            data = self._agreed(data)
        if self.yamux is None or not data:
            return
        for event in self.yamux.feed(data):
            if isinstance(event, Opened):
                self.talks[event.stream] = Talk(Answerer(self.recording.speaks.__contains__))
            elif isinstance(event, Data):
                self.talks[event.stream].feed(event.data)
                self.yamux.consumed(event.stream, len(event.data))
            elif isinstance(event, Finished):
                self.talks[event.stream].ended = True

    def _agreed(self, data: bytes) -> bytes:
        """One step of a negotiation of the connection; gives back what was beyond it."""
        assert self._side is not None
        self._side.feed(data)
        self._say(self._side.take())
        if self._side.chosen is None:
            return b""
        rest = self._side.rest
        if self.channel is None:
            self._shake()
        else:
            self._mux()
        return rest

    def _negotiate(self, protocol: str) -> None:
        self._side = Proposer((protocol,)) if self.recording.outbound else Answerer(protocol.__eq__)
        self._say(self._side.take())

    def _shake(self) -> None:
        recording = self.recording
        self.handshake = Handshake(
            recording.identity,
            initiator=recording.outbound,
            expected=parse_peer(recording.peer) if recording.outbound else None,
            muxers=(YAMUX,),
            static=recording.static,
            ephemeral=recording.ephemeral,
        )
        self._say(self.handshake.take())

    def _secured(self, handshake: Handshake) -> None:
        self.channel = handshake.channel()
        sending, receiving = handshake._xx.split()
        self._mirror = Channel(receiving, sending)
        if handshake.muxer is None:
            self._negotiate(YAMUX)
        else:
            self._mux()
        self._feed_plain(self.channel.feed(b""))

    def _mux(self) -> None:
        self.yamux = Yamux(initiator=self.recording.outbound)

    def _say(self, data: bytes) -> None:
        if self.channel is None:
            self._said += data
        else:
            self._lines += data

    # This side.

    def spoke(self, data: bytes) -> None:
        if self._said or self.channel is None or self._mirror is None:
            self.pairs.append((data, self._said[: len(data)]))
            self._said = self._said[len(data) :]
            return
        plain = self._mirror.feed(data)
        if self._lines or self.yamux is None:
            self.pairs.append((plain, self._lines[: len(plain)]))
            self._lines = self._lines[len(plain) :]
        else:
            for frame in frames(plain):
                self._again(self.yamux, frame)
            self.pairs.append((by_stream(plain), by_stream(self.yamux.take())))
        self.pairs.append((data, self.channel.seal(plain)))

    def _again(self, yamux: Yamux, frame: Frame) -> None:
        """Have Yamux say the frame; what it says by itself, such as the answer to a ping, is not for us to ask."""
        head, stream, length, body = frame
        kind, flags = head & ~0xFFFF, head & 0xFFFF
        if kind == AWAY:
            yamux.go_away(length)
        elif kind != PING and flags & SYN:
            self.pairs.append((stream, yamux.open()))
            self.talks[stream] = Talk(Proposer([_proposed(body)]))
        if stream not in self.talks:
            return  # of the connection; or bytes of the other side were damaged, and it is not known here
        if flags & RST:
            yamux.reset(stream)
        elif flags & FIN:
            yamux.finish(stream)
        elif kind == DATA:
            yamux.send(stream, body)
            self.talks[stream].sent += body


def _proposed(body: bytes) -> str:
    """The protocol that weft opened a stream for; it says so in the first frame."""
    probe = Answerer(lambda name: True)
    probe.feed(body)
    if probe.chosen is None:
        raise PeerError("a stream that does not begin with a proposal")
    return probe.chosen
