"""One flush of a link: all that can leave leaves, in as few rounds as that takes. The wire is a fake that takes everything."""

from __future__ import annotations

from typing import Any, ClassVar

from libweft.peer.codec import msgpack
from libweft.peer.libp2p.address import Address
from libweft.peer.libp2p.yamux import HEADER, INITIAL, WINDOW, Yamux
from libweft.peer.live.link import PENDING, LiveLink, Stream
from libweft.peer.live.outbox import Outbox, Outlet, Parcel
from libweft.peer.live.transport import Secured
from libweft.peer.machine import Lane, Message


class Wire:
    remote = Address.parse("/ip4/127.0.0.1/tcp/1")
    finished = False

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send_now(self, data: memoryview) -> int:
        self.sent.append(bytes(data))
        return len(data)

    def veiled(self, data: bytes) -> bytes:
        return data

    def finish(self) -> None:
        self.finished = True

    def close(self) -> None: ...


class Plain:
    def seal(self, data: bytes) -> bytes:
        return data


class Owner:
    def stir(self, link: LiveLink) -> None: ...


def new_link() -> tuple[LiveLink, Wire]:
    wire: Any = Wire()
    owner: Any = Owner()
    channel: Any = Plain()
    key: Any = None
    secured = Secured(b"peer", key, channel, b"")
    return LiveLink(owner, wire, secured, Yamux(initiator=True), outbound=True, incarnation=1), wire


class Source:
    """Puts these into a stream, one a call; true while it has more."""

    def __init__(self, stream: Stream, *parts: bytes) -> None:
        self.stream = stream
        self.parts = list(parts)
        self.calls = 0

    def __call__(self) -> bool:
        self.calls += 1
        if self.parts:
            self.stream.write(self.parts.pop(0))
        return bool(self.parts)


async def test_a_flush_asks_the_source_after_what_streams_had_put_in_themselves() -> None:
    link, wire = new_link()
    stream = link.open(("/x",))
    stream.write(bytes(PENDING))
    link.source = Source(stream, b"late")
    link.flush()
    assert b"late" in b"".join(wire.sent)


async def test_a_flush_goes_on_while_the_source_has_more() -> None:
    link, wire = new_link()
    link.source = Source(link.open(("/x",)), b"first", b"second", b"third")
    link.flush()
    assert b"third" in b"".join(wire.sent)


async def test_a_flush_asks_a_source_that_has_no_more_once() -> None:
    link, wire = new_link()
    link.source = source = Source(link.open(("/x",)), b"all")
    link.flush()
    assert (source.calls, len(wire.sent)) == (1, 1)


async def test_the_flush_that_writes_the_last_bytes_of_a_link_says_goodbye_too() -> None:
    link, wire = new_link()
    link.open(("/x",)).write(b"last")
    link.finish("done")
    link.flush()
    assert b"last" in wire.sent[0]
    assert wire.finished


class Load(Message, frozen=True, tag=1):
    lane: ClassVar[Lane] = Lane.URGENT  # the first lane, on which the rest of any message leaves too

    data: bytes


def new_outlet(link: LiveLink, protocol: str) -> Outlet:
    return Outlet(link, protocol, msgpack((Load,)), lambda reason: None)


async def test_the_rest_of_a_message_waits_when_another_machine_fills_the_link() -> None:
    link, _ = new_link()
    outbox = Outbox(link, lambda outlet: None)
    other, cut = new_outlet(link, "/other"), new_outlet(link, "/cut")
    outbox.outlets += [cut]
    cut.put(Parcel(Load(bytes(INITIAL)), msgpack((Load,))))
    assert outbox.fill() is True  # the window takes all but the last bytes
    link.yamux.take()
    outbox.outlets.insert(0, other)
    assert cut.stream is not None
    link.yamux.feed(HEADER.pack(WINDOW, cut.stream.id, INITIAL))
    other.put(Parcel(Load(bytes(PENDING)), msgpack((Load,))))
    assert outbox.fill() is True
    link.yamux.take()
    assert outbox.fill() is False
    assert cut.waiting == other.waiting == 0
