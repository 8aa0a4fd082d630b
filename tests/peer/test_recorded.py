"""What js-, py- and go-libp2p once said to weft, read again layer by layer without a socket, as recorded and in every cut.

`X-listens` is a conversation that weft began, `X-dials` one that the other side began; see `tests.peer.recorded.replay`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache, partialmethod
from itertools import chain, repeat
from typing import cast
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libweft.peer.errors import PeerError
from libweft.peer.libp2p.frame import Frames, frame
from libweft.peer.libp2p.ids import parse_peer, peer_text
from libweft.peer.libp2p.multistream import HEADER, Answerer, Proposer
from libweft.peer.libp2p.noise import Handshake
from libweft.peer.libp2p.pb import parse
from libweft.peer.libp2p.pb.identify_pb2 import Identify
from libweft.peer.libp2p.records import read_record, sign_record
from libweft.peer.libp2p.yamux import GoneAway, Opened, Pong, Reset, Yamux
from libweft.peer.live import identify
from libweft.peer.live.identify import ID, Identified
from libweft.peer.live.ping import PING, SIZE
from libweft.peer.live.transport import NOISE, YAMUX, Wire, secured
from libweft.pubsub.flood import PROTOCOL
from libweft.pubsub.message import Publication
from libweft.pubsub.rpc import RpcCodec, Subscriptions
from libweft.pubsub.signing import Signing
from tests.peer.recorded.replay import Chunk, Recording, Replay, Talk, cut, flipped, load, names

NAMES = [f"{language}-{role}" for language in ("go", "js", "py") for role in ("dials", "listens")]
FLIPS = 24
"""Positions in each recording at which a test turns a bit; each walks the whole recording."""

recorded = pytest.mark.parametrize("name", NAMES)
load_once = cache(load)


@cache
def replayed(name: str) -> Replay:
    recording = load_once(name)
    return Replay(recording).run(recording.chunks)


def theirs(recording: Recording) -> bytes:
    return b"".join(chunk.data for chunk in recording.chunks if not chunk.ours)


def ours(recording: Recording) -> bytes:
    return b"".join(chunk.data for chunk in recording.chunks if chunk.ours)


def talk(name: str, protocol: str, *, opened_here: bool) -> Talk:
    """The first stream of the protocol; a later one is there where a program asked twice."""
    talks = replayed(name).talks.values()
    return next(talk for talk in talks if talk.protocol == protocol and talk.opened_here == opened_here)


def line(text: str) -> bytes:
    return frame(text.encode() + b"\n")


def check(name: str, replay: Replay) -> None:
    """All that was agreed then is agreed now, and weft says the same to the byte, wherever it is free to say only one thing."""
    for then, now in replay.pairs:
        assert now == then
    assert replay.handshake is not None and peer_text(replay.handshake.peer) == load_once(name).peer
    assert said_on(replay) == said_on(replayed(name))


def said_on(replay: Replay) -> dict[int, tuple[str | None, bytes, bytes, bool]]:
    return {number: (talk.protocol, talk.heard, talk.said, talk.ended) for number, talk in replay.talks.items()}


def test_there_is_a_recording_of_each_side_of_each_library() -> None:
    assert names() == NAMES
    assert all(load_once(name).outbound == name.endswith("listens") for name in NAMES)


# The whole, in every cut.


@recorded
def test_as_recorded(name: str) -> None:
    check(name, replayed(name))


@recorded
def test_byte_by_byte(name: str) -> None:
    recording = load_once(name)
    check(name, Replay(recording).run(cut(recording.chunks, repeat(1))))


@recorded
def test_all_that_they_said_before_weft_spoke_again_at_once(name: str) -> None:
    recording = load_once(name)
    check(name, Replay(recording).run(cut(recording.chunks, repeat(1 << 20))))


@settings(max_examples=60)
@given(st.sampled_from(NAMES), st.lists(st.integers(1, 200), min_size=1, max_size=20))
def test_in_any_cut(name: str, sizes: list[int]) -> None:
    recording = load_once(name)
    check(name, Replay(recording).run(cut(recording.chunks, chain.from_iterable(repeat(sizes)))))


# Layer by layer.


@recorded
def test_multistream_agrees_on_noise(name: str) -> None:
    recording, agreed = load_once(name), line(HEADER) + line(NOISE)
    side = Proposer((NOISE,)) if recording.outbound else Answerer(NOISE.__eq__)
    said = side.take()
    for at in range(len(agreed)):
        assert side.chosen is None
        side.feed(theirs(recording)[at : at + 1])
        said += side.take()
    assert side.chosen == NOISE and not side.rest
    assert said == ours(recording)[: len(said)] == agreed


@recorded
def test_noise_says_the_same_and_knows_the_peer(name: str) -> None:
    """Message by message: with the keys of then, what weft sends is what it sent, signature and all."""
    recording, agreed = load_once(name), len(line(HEADER) + line(NOISE))
    handshake = Handshake(
        recording.identity,
        initiator=recording.outbound,
        expected=parse_peer(recording.peer),
        muxers=(YAMUX,),
        static=recording.static,
        ephemeral=recording.ephemeral,
    )
    said = handshake.take()
    incoming = messages(theirs(recording)[agreed:])
    while not handshake.done:
        handshake.feed(next(incoming))
        said += handshake.take()
    assert ours(recording)[agreed:].startswith(said)
    assert len(list(messages(said))) == 1 + recording.outbound
    assert handshake.remote.peer == parse_peer(recording.peer)
    plain = handshake.channel().feed(b"".join(incoming))
    assert plain == replayed(name).plain


def messages(data: bytes) -> Iterator[bytes]:
    """Of Noise, each with its length."""
    at = 0
    while at < len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        yield data[at:end]
        at = end


@recorded
def test_who_expects_another_peer_sees_through_it(name: str) -> None:
    recording, agreed = load_once(name), len(line(HEADER) + line(NOISE))
    handshake = Handshake(
        recording.identity,
        initiator=recording.outbound,
        expected=recording.identity.peer,
        muxers=(YAMUX,),
        static=recording.static,
        ephemeral=recording.ephemeral,
    )
    with pytest.raises(PeerError, match="as expected"):
        handshake.feed(theirs(recording)[agreed:])
    assert not handshake.done


@recorded
def test_another_ephemeral_key_reads_nothing(name: str) -> None:
    recording, agreed = load_once(name), len(line(HEADER) + line(NOISE))
    handshake = Handshake(recording.identity, initiator=recording.outbound, muxers=(YAMUX,), static=recording.static)
    with pytest.raises(PeerError, match="does not decrypt"):
        handshake.feed(theirs(recording)[agreed:])


@recorded
def test_the_muxer_is_agreed_in_the_handshake_or_after_it(name: str) -> None:
    """py-libp2p names no muxers in its handshake."""
    handshake = replayed(name).handshake
    assert handshake is not None and handshake.muxer == (None if name.startswith("py") else YAMUX)
    assert replayed(name).plain.startswith(line(HEADER) + line(YAMUX)) == name.startswith("py")


class Script:
    """A wire that says what was recorded."""

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self._chunks = [chunk.data for chunk in chunks if not chunk.ours]
        self.sent = b""

    async def receive(self) -> bytes:
        return self._chunks.pop(0) if self._chunks else b""

    async def send(self, data: bytes) -> None:
        self.sent += data

    @property
    def rest(self) -> bytes:
        return b"".join(self._chunks)


@recorded
@pytest.mark.parametrize("size", [1, 7, 1 << 16])
async def test_the_way_from_tcp_to_the_muxer(name: str, size: int) -> None:
    """As the host goes it; what came beyond the handshake is not lost."""
    recording = load_once(name)
    script = Script(cut(recording.chunks, repeat(size)))
    fixed = partialmethod(Handshake.__init__, static=recording.static, ephemeral=recording.ephemeral)
    with patch.object(Handshake, "__init__", fixed):
        expected = parse_peer(recording.peer) if recording.outbound else None
        done = await secured(cast(Wire, script), recording.identity, outbound=recording.outbound, expected=expected, psk=None)
    assert peer_text(done.peer) == recording.peer and done.key.peer == done.peer
    assert ours(recording).startswith(script.sent)
    plain = replayed(name).plain
    agreed = line(HEADER) + line(YAMUX) if name.startswith("py") else b""
    assert agreed + done.early + done.channel.feed(script.rest) == plain


@recorded
def test_yamux_reads_the_same_in_one_piece_and_byte_by_byte(name: str) -> None:
    """All streams of weft's are open from the beginning here, since it does not speak in between."""
    plain = replayed(name).plain.removeprefix(line(HEADER) + line(YAMUX))
    whole, single = (fed(name, pieces) for pieces in ([plain], [plain[at : at + 1] for at in range(len(plain))]))
    assert whole == single
    opened = [event.stream for event in whole if isinstance(event, Opened)]
    assert opened == [number for number, talk in replayed(name).talks.items() if not talk.opened_here]


def fed(name: str, pieces: list[bytes]) -> list[object]:
    """Without the data, which comes in other pieces; with streams of weft's own for theirs to answer."""
    yamux = Yamux(initiator=load_once(name).outbound)
    for talk in replayed(name).talks.values():
        if talk.opened_here:
            yamux.open()
    yamux.take()
    events: list[object] = []
    for piece in pieces:
        events += [event for event in yamux.feed(piece) if isinstance(event, Opened | Reset | Pong | GoneAway)]
    return events


@recorded
def test_every_stream_is_negotiated(name: str) -> None:
    """What weft said on a stream begins with its side of the negotiation; the rest is the protocol's own."""
    talks = replayed(name).talks.values()
    assert all(talk.sent.startswith(talk.negotiated) for talk in talks)
    for protocol in (ID, PING, PROTOCOL):
        for opened_here in (True, False):
            assert talk(name, protocol, opened_here=opened_here).negotiated == line(HEADER) + line(protocol)


# The protocols.


def answer(name: str) -> tuple[list[bytes], Identified]:
    cuts = Frames(identify.MESSAGE_LIMIT)
    frames = cuts.feed(talk(name, ID, opened_here=True).heard)
    cuts.finish()
    return frames, identify.read(frames, parse_peer(load_once(name).peer))


@recorded
def test_identify_tells_what_it_told(name: str) -> None:
    recording, (_, said) = load_once(name), answer(name)
    assert said.agent == recording.agent
    assert said.protocols == recording.protocols
    assert {ID, PING, PROTOCOL} <= set(recording.protocols)
    assert said.addresses is not None and all(address.host == "127.0.0.1" for address in said.addresses)
    assert said.observed is not None and said.observed.transport == "tcp"
    assert said.record is not None
    record = read_record(said.record)
    assert peer_text(record.peer) == recording.peer
    assert {address.without_peer() for address in record.addresses} == {address.without_peer() for address in said.addresses}


@recorded
def test_identify_says_what_it_said(name: str) -> None:
    recording, said = load_once(name), talk(name, ID, opened_here=False).said
    [data] = Frames(identify.MESSAGE_LIMIT).feed(said)
    told = identify.read([data], recording.identity.peer)
    assert told.addresses and told.observed and told.agent and told.record
    record = sign_record(recording.identity, told.addresses, read_record(told.record).sequence)
    key = recording.identity.public.encode()
    assert identify.describe(key, told.addresses, recording.speaks, told.agent, told.observed, record) == said
    assert parse(Identify, data).publicKey == key


@recorded
def test_pings_come_back(name: str) -> None:
    mine, other = (talk(name, PING, opened_here=here) for here in (True, False))
    assert mine.heard == mine.said and len(mine.said) == SIZE
    assert len(other.said) >= SIZE and other.heard.startswith(other.said)  # go goes on pinging until the link is closed


def parts(name: str, *, said: bool) -> list[Subscriptions | Publication]:
    stream = talk(name, PROTOCOL, opened_here=said)
    codec, frames = RpcCodec(), Frames(1 << 20).feed(stream.said if said else stream.heard)
    return [part for data in frames for part in codec.unpack(data) if isinstance(part, Subscriptions | Publication)]


@recorded
def test_their_subscription_and_messages(name: str) -> None:
    recording, heard = load_once(name), parts(name, said=False)
    changes = [change for part in heard if isinstance(part, Subscriptions) for change in part.changes]
    assert (True, recording.topic) in changes
    publications = [part for part in heard if isinstance(part, Publication)]
    assert tuple(part.data.decode() for part in publications) == recording.theirs
    signing = Signing(recording.identity)
    for part in publications:
        assert signing.problem(part) is None
        assert part.id.source == parse_peer(recording.peer) and part.topic == recording.topic
        [packed] = RpcCodec().pack((part,))
        assert RpcCodec().unpack(packed) == [part]  # so that the next one can check it too


@recorded
def test_our_subscription_and_messages(name: str) -> None:
    """Signed again they are the same, and packed again too."""
    recording, said = load_once(name), parts(name, said=True)
    signing = Signing(recording.identity)
    publications = [part for part in said if isinstance(part, Publication)]
    assert tuple(part.data.decode() for part in publications) == recording.ours
    assert [signing.sign(part) for part in publications] == publications
    assert said[0] == Subscriptions(((True, recording.topic),))
    frames = Frames(1 << 20).feed(talk(name, PROTOCOL, opened_here=True).said)
    assert b"".join(RpcCodec().pack(RpcCodec().unpack(data))[0] for data in frames) == b"".join(frames)


# Broken by one bit.


@recorded
@given(data=st.data())
@settings(max_examples=FLIPS)
def test_a_bit_turned_on_the_wire_lets_nothing_false_through(name: str, data: st.DataObject) -> None:
    """Only what was there before the bit is read; before Noise it may be that the two agree all the same, and on the same."""
    recording = load_once(name)
    position = data.draw(st.integers(0, len(theirs(recording)) - 1))
    replay = damaged(recording, position, data.draw(st.integers(0, 7)))
    check_damaged(name, replay, position)


@recorded
def test_a_bit_turned_anywhere_in_the_handshake(name: str) -> None:
    recording = load_once(name)
    agreed = len(line(HEADER) + line(NOISE))
    shaken = agreed + sum(len(message) for message in handshake_messages(recording))
    for position in range(0, shaken, 3):
        check_damaged(name, damaged(recording, position, position % 8), position)


def handshake_messages(recording: Recording) -> list[bytes]:
    count = 1 if recording.outbound else 2
    agreed = len(line(HEADER) + line(NOISE))
    return [message for _, message in zip(range(count), messages(theirs(recording)[agreed:]), strict=False)]


def damaged(recording: Recording, position: int, bit: int) -> Replay:
    """As far as it goes."""
    replay = Replay(recording)
    with suppress(PeerError):
        replay.run(flipped(recording.chunks, position, bit))
    return replay


def check_damaged(name: str, replay: Replay, position: int) -> None:
    recording, true = load_once(name), replayed(name).plain
    shaken = len(line(HEADER) + line(NOISE)) + sum(len(message) for message in handshake_messages(recording))
    assert true.startswith(replay.plain) and len(replay.plain) < len(true)
    if position < shaken:
        assert replay.channel is None and not replay.plain
    whole = replayed(name).talks
    assert all(whole[number].heard.startswith(talk.heard) for number, talk in replay.talks.items())


@recorded
def test_a_channel_that_got_a_damaged_message_takes_not_even_the_true_one(name: str) -> None:
    recording = load_once(name)
    replay = Replay(recording)
    first, *rest = chunks_of_messages(recording)
    replay.run(first)
    assert replay.channel is not None
    due = rest[0][0].data
    for data in (due[:-1] + bytes([due[-1] ^ 1]), due, rest[1][0].data):
        with pytest.raises(PeerError):
            replay.channel.feed(data)


def chunks_of_messages(recording: Recording) -> list[list[Chunk]]:
    """The handshake with all that was said in it, then the sealed messages of the other side one by one."""
    begun, agreed = [Chunk(False, line(HEADER) + line(NOISE))], len(line(HEADER) + line(NOISE))
    incoming = [Chunk(False, message) for message in messages(theirs(recording)[agreed:])]
    count = len(handshake_messages(recording))
    return [begun + incoming[:count], *([chunk] for chunk in incoming[count:])]


@recorded
@given(data=st.data())
@settings(max_examples=FLIPS)
def test_a_bit_turned_inside_the_channel_is_a_peer_error_or_is_read_as_what_it_is(name: str, data: st.DataObject) -> None:
    """Here nothing else guards the bytes: whatever they mean now, no other exception comes of it."""
    plain = bytearray(replayed(name).plain.removeprefix(line(HEADER) + line(YAMUX)))
    position = data.draw(st.integers(0, len(plain) - 1))
    plain[position] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(PeerError):
        fed(name, [bytes(plain)])


@recorded
@given(data=st.data())
@settings(max_examples=4 * FLIPS)
def test_a_bit_turned_in_a_message_is_never_a_message_of_its_author(name: str, data: st.DataObject) -> None:
    """Where it is in what is not signed, the message is the same all the same."""
    recording, stream = load_once(name), talk(name, PROTOCOL, opened_here=False)
    raw = bytearray(stream.heard)
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    true = {(part.id, part.topic, part.data) for part in parts(name, said=False) if isinstance(part, Publication)}
    signing = Signing(recording.identity)
    with suppress(PeerError):
        for whole in Frames(1 << 20).feed(bytes(raw)):
            for part in RpcCodec().unpack(whole):
                if isinstance(part, Publication) and signing.problem(part) is None:
                    assert (part.id, part.topic, part.data) in true


@recorded
@given(data=st.data())
@settings(max_examples=2 * FLIPS)
def test_a_bit_turned_in_identify_forges_no_record(name: str, data: st.DataObject) -> None:
    frames, said = answer(name)
    whole = bytearray(b"".join(map(frame, frames)))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        told = identify.read(Frames(identify.MESSAGE_LIMIT).feed(bytes(whole)), parse_peer(load_once(name).peer))
    except PeerError:
        return
    assert told.record is None or read_record(told.record) == read_record(said.record or b"")
