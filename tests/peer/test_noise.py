"""Noise: the public test vectors, another implementation as oracle, and every way to break in that fits a test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import cycle, repeat
from typing import Any, NamedTuple

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from hypothesis import given
from hypothesis import strategies as st
from noise.connection import Keypair, NoiseConnection  # type: ignore[import-untyped]

from libweft.peer.errors import PeerError, UsageError
from libweft.peer.libp2p.ids import Identity
from libweft.peer.libp2p.noise import (
    HANDSHAKE_LIMIT,
    LAST_NONCE,
    PLAINTEXT_LIMIT,
    PROTOCOL,
    SIGNED_PREFIX,
    XX,
    Channel,
    Handshake,
)
from libweft.peer.libp2p.pb.noise_pb2 import NoiseExtensions, NoiseHandshakePayload

ALICE, BOB, MALLORY = (Identity.from_seed(bytes([n]) * 32) for n in (1, 2, 3))
A_STATIC, A_EPHEMERAL, B_STATIC, B_EPHEMERAL = (bytes([n]) * 32 for n in (11, 12, 13, 14))
YAMUX, MPLEX, QMUX = "/yamux/1.0.0", "/mplex/6.7.0", "/qmux/0.1.0"


def alice(expected: bytes | None = None, muxers: Sequence[str] = ()) -> Handshake:
    return Handshake(ALICE, initiator=True, expected=expected, muxers=muxers, static=A_STATIC, ephemeral=A_EPHEMERAL)


def bob(expected: bytes | None = None, muxers: Sequence[str] = ()) -> Handshake:
    return Handshake(BOB, initiator=False, expected=expected, muxers=muxers, static=B_STATIC, ephemeral=B_EPHEMERAL)


def shake(initiator: Handshake, responder: Handshake, sizes: Iterable[int] = repeat(65_537)) -> None:
    """All bytes of both sides, in pieces of these sizes, until neither has anything to say."""
    wires: dict[Handshake, bytes] = {responder: initiator.take(), initiator: b""}
    counts = iter(sizes)
    while any(wires.values()):
        for side, other in ((responder, initiator), (initiator, responder)):
            count = next(counts)
            piece, wires[side] = wires[side][:count], wires[side][count:]
            if piece:
                side.feed(piece)
                wires[other] += side.take()


def channels() -> tuple[Channel, Channel]:
    initiator, responder = alice(), bob()
    shake(initiator, responder)
    return initiator.channel(), responder.channel()


def private(key: bytes) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(key)


def bare(initiator: bool, prologue: bytes = b"") -> XX:
    """The pattern without libp2p's payload: what a forger would use."""
    static, ephemeral = (A_STATIC, A_EPHEMERAL) if initiator else (B_STATIC, B_EPHEMERAL)
    return XX(initiator=initiator, static=private(static), ephemeral=private(ephemeral), prologue=prologue)


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(2, "big") + message


def payload(identity: Identity, static: bytes, *muxers: str, prefix: bytes = SIGNED_PREFIX, key: bytes | None = None) -> bytes:
    wire = NoiseHandshakePayload(
        identity_key=identity.public.encode() if key is None else key, identity_sig=identity.sign(prefix + static)
    )
    if muxers:
        wire.extensions.CopyFrom(NoiseExtensions(stream_muxers=muxers))
    return wire.SerializeToString()


def answered(initiator: Handshake, content: Callable[[bytes], bytes]) -> None:
    """The initiator gets a second message with a payload made from its sender's static key."""
    responder = bare(False)
    responder.read(initiator.take()[2:])
    initiator.feed(framed(responder.write(content(responder.static_public))))


def dialled(responder: Handshake, content: Callable[[bytes], bytes]) -> None:
    """The responder gets a third message with a payload made from its sender's static key."""
    initiator = bare(True)
    responder.feed(framed(initiator.write(b"")))
    initiator.read(responder.take()[2:])
    responder.feed(framed(initiator.write(content(initiator.static_public))))


# Public test vectors


class Vector(NamedTuple):
    prologue: str
    initiator: tuple[str, str]
    responder: tuple[str, str]
    handshake: list[tuple[str, str]]
    transport: list[tuple[bool, str, str]]
    """Whether the initiator sends it, the plaintext, the ciphertext."""


VECTORS = {
    # github.com/haskell-cryptography/cacophony, vectors/cacophony.txt
    "cacophony": Vector(
        prologue="4a6f686e2047616c74",
        initiator=(
            "e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1",
            "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a",
        ),
        responder=(
            "4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893",
            "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b",
        ),
        handshake=[
            (
                "4c756477696720766f6e204d69736573",
                "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c79444c756477696720766f6e204d69736573",
            ),
            (
                "4d757272617920526f746862617264",
                "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f14480884381cbad1f276e038c48378ffce2b65285"
                "e08d6b68aaa3629a5a8639392490e5b9bd5269c2f1e4f488ed8831161f19b7815528f8982ffe09be9b5c412f8a0db50f"
                "8814c7194e83f23dbd8d162c9326ad",
            ),
            (
                "462e20412e20486179656b",
                "c7195ffacac1307ff99046f219750fc47693e23c3cb08b89c2af808b444850a80ae475b9df0f169ae80a89be0865b57f"
                "58c9fea0d4ec82a286427402f113e4b6ae769a1d95941d49b25030",
            ),
        ],
        transport=[
            (False, "4361726c204d656e676572", "96763ed773f8e47bb3712f0e29b3060ffc956ffc146cee53d5e1df"),
            (True, "4a65616e2d426170746973746520536179", "3e40f15f6f3a46ae446b253bf8b1d9ffb6ed9b174d272328ff91a7e2e5c79c07f5"),
            (
                False,
                "457567656e2042f6686d20766f6e2042617765726b",
                "eb3f3515110702e047a6c9da4478b6ead94873c11c0f2d710ddb3f09fce024b3a58502ae3f",
            ),
        ],
    ),
    # github.com/flynn/noise, vectors.txt: without a prologue, as libp2p has it
    "flynn": Vector(
        prologue="",
        initiator=(
            "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
            "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f",
        ),
        responder=(
            "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20",
            "4142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f60",
        ),
        handshake=[
            ("", "358072d6365880d1aeea329adf9121383851ed21a28e3b75e965d0d2cd166254"),
            (
                "",
                "64b101b1d0be5a8704bd078f9895001fc03e8e9f9522f188dd128d9846d484663414af878d3e46a2f58911a816d6e834"
                "6d4ea17a6f2a0bb4ef4ed56c133cff4560a34e36ea82109f26cf2e5a5caf992b608d55c747f615e5a3425a7a19eefb8f",
            ),
            (
                "",
                "87f864c11ba449f46a0a4f4e2eacbb7b0457784f4fca1937f572c93603e9c4d97e5ea11b16f3968710b23a3be3202dc1"
                "b5e1ce3c963347491e74f5c0768a9b42",
            ),
        ],
        transport=[
            (True, "79656c6c6f777375626d6172696e65", "a52ef02ba60e12696d1d6b9ef4245c88fca757b6134ad6e76b56e310a6adf6"),
            (False, "7375626d6172696e6579656c6c6f77", "2445aa438ebd649281c636cc7269ca82f1d9023d72520943aeabf909cdf521"),
        ],
    ),
}


@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS.keys())
def test_the_public_vectors_byte_for_byte(vector: Vector) -> None:
    (i_static, i_ephemeral), (r_static, r_ephemeral) = (map(bytes.fromhex, keys) for keys in (vector.initiator, vector.responder))
    prologue = bytes.fromhex(vector.prologue)
    initiator = XX(initiator=True, static=private(i_static), ephemeral=private(i_ephemeral), prologue=prologue)
    responder = XX(initiator=False, static=private(r_static), ephemeral=private(r_ephemeral), prologue=prologue)
    writer, reader = initiator, responder
    for plain, message in vector.handshake:
        assert writer.write(bytes.fromhex(plain)).hex() == message
        assert reader.read(bytes.fromhex(message)).hex() == plain
        writer, reader = reader, writer
    assert initiator.remote_static == responder.static_public
    assert responder.remote_static == initiator.static_public
    ours, theirs = Channel(*initiator.split()), Channel(*responder.split())
    for from_initiator, plain, sealed in vector.transport:
        sender, receiver = (ours, theirs) if from_initiator else (theirs, ours)
        assert sender.seal(bytes.fromhex(plain)) == framed(bytes.fromhex(sealed))
        assert receiver.feed(framed(bytes.fromhex(sealed))).hex() == plain


# Another implementation as oracle


def oracle(*, initiator: bool) -> Any:
    connection = NoiseConnection.from_name(PROTOCOL)
    if initiator:
        connection.set_as_initiator()
    else:
        connection.set_as_responder()
    static, ephemeral = (A_STATIC, A_EPHEMERAL) if initiator else (B_STATIC, B_EPHEMERAL)
    connection.set_keypair_from_private_bytes(Keypair.STATIC, static)
    connection.set_keypair_from_private_bytes(Keypair.EPHEMERAL, ephemeral)
    with pytest.warns(UserWarning, match="ephemeral keypairs is already set"):  # so it must be, for the bytes to be the same
        connection.start_handshake()
    return connection


def public(key: bytes) -> bytes:
    return private(key).public_key().public_bytes_raw()


def talk(ours: Channel, connection: Any) -> None:
    for data in (b"x", b"", b"y" * 1_000, b"z" * PLAINTEXT_LIMIT):
        sealed = framed(bytes(connection.encrypt(data)))
        assert ours.feed(sealed) == data
        if data:  # what is empty we never send
            assert bytes(connection.decrypt(ours.seal(data)[2:])) == data


def test_as_initiator_every_byte_is_the_oracles() -> None:
    ours, theirs, twin = alice(muxers=[YAMUX]), oracle(initiator=False), oracle(initiator=True)
    first = ours.take()
    assert first == framed(bytes(twin.write_message()))
    assert bytes(theirs.read_message(first[2:])) == b""
    second = bytes(theirs.write_message(payload(BOB, public(B_STATIC), YAMUX)))
    twin.read_message(second)
    ours.feed(framed(second))
    assert ours.done
    assert ours.peer == BOB.peer
    third = ours.take()
    mine = payload(ALICE, public(A_STATIC), YAMUX)
    assert third == framed(bytes(twin.write_message(mine)))
    assert bytes(theirs.read_message(third[2:])) == mine
    assert theirs.handshake_finished
    talk(ours.channel(), theirs)


def test_as_responder_every_byte_is_the_oracles() -> None:
    ours, theirs, twin = bob(muxers=[YAMUX]), oracle(initiator=True), oracle(initiator=False)
    first = bytes(theirs.write_message())
    twin.read_message(first)
    ours.feed(framed(first))
    second = ours.take()
    mine = payload(BOB, public(B_STATIC), YAMUX)
    assert second == framed(bytes(twin.write_message(mine)))
    assert bytes(theirs.read_message(second[2:])) == mine
    ours.feed(framed(bytes(theirs.write_message(payload(ALICE, public(A_STATIC), YAMUX)))))
    assert ours.done
    assert ours.peer == ALICE.peer
    talk(ours.channel(), theirs)


# Whole exchanges of two of ours


@given(st.lists(st.integers(1, 80), min_size=1, max_size=30))
def test_both_sides_know_each_other_however_the_bytes_are_cut(sizes: list[int]) -> None:
    initiator, responder = alice(expected=BOB.peer), bob()
    shake(initiator, responder, cycle(sizes))
    assert initiator.done
    assert responder.done
    assert (initiator.remote, initiator.peer) == (BOB.public, BOB.peer)
    assert (responder.remote, responder.peer) == (ALICE.public, ALICE.peer)
    assert responder.channel().feed(initiator.channel().seal(b"there")) == b"there"
    assert initiator.channel().feed(responder.channel().seal(b"and back")) == b"and back"


def test_one_byte_at_a_time_is_enough() -> None:
    initiator, responder = alice(), bob()
    shake(initiator, responder, repeat(1))
    assert initiator.done
    assert responder.done


def test_keys_are_new_for_each_handshake_unless_they_are_given() -> None:
    messages = [Handshake(ALICE, initiator=True).take() for _ in range(2)]
    assert messages[0] != messages[1]
    initiator, responder = Handshake(ALICE, initiator=True), Handshake(BOB, initiator=False)
    shake(initiator, responder)
    assert responder.channel().feed(initiator.channel().seal(b"x")) == b"x"


def test_what_comes_with_the_last_message_is_in_the_channel() -> None:
    ours, _ = channels()
    sealed = ours.seal(b"first") + ours.seal(b"second")
    for cut in range(len(sealed) + 1):
        responder = bob()
        for number, message in enumerate(transcript()):
            if number != 1:
                responder.feed(message + sealed[: cut if number else 0])
        channel = responder.channel()
        assert channel.feed(b"") + channel.feed(sealed[cut:]) == b"firstsecond"


def test_there_is_no_channel_before_the_end_and_only_one_after() -> None:
    initiator, responder = alice(), bob()
    for side in (initiator, responder):
        assert not side.done
        with pytest.raises(UsageError, match="not done"):
            side.channel()
    shake(initiator, responder)
    for side in (initiator, responder):
        assert side.channel() is side.channel()
        with pytest.raises(UsageError, match="for its channel"):
            side.feed(b"x")


# Early muxer negotiation


@pytest.mark.parametrize(
    ("mine", "theirs", "muxer"),
    [
        ([YAMUX], [YAMUX], YAMUX),
        ([YAMUX, MPLEX], [MPLEX, YAMUX], YAMUX),  # the initiator's preference decides
        ([MPLEX, YAMUX], [YAMUX, MPLEX], MPLEX),
        ([QMUX, YAMUX], [YAMUX, MPLEX], YAMUX),
        ([YAMUX], [], None),
        ([], [YAMUX], None),
        ([], [], None),
    ],
)
def test_the_muxer_is_the_first_of_the_initiators_that_both_have(mine: list[str], theirs: list[str], muxer: str | None) -> None:
    initiator, responder = alice(muxers=mine), bob(muxers=theirs)
    shake(initiator, responder)
    assert initiator.done
    assert responder.done
    assert initiator.muxer == responder.muxer == muxer


def test_an_initiator_without_a_common_muxer_gives_up_before_it_says_who_it_is() -> None:
    initiator, responder = alice(muxers=[YAMUX]), bob(muxers=[MPLEX, QMUX])
    with pytest.raises(PeerError, match="no common muxer"):
        shake(initiator, responder)
    assert initiator.take() == b""
    assert not initiator.done
    assert not responder.done


def test_a_responder_without_a_common_muxer_gives_up_too() -> None:
    responder = bob(muxers=[YAMUX])
    with pytest.raises(PeerError, match="no common muxer"):
        dialled(responder, lambda static: payload(ALICE, static, MPLEX))
    assert not responder.done


# Who is at the other end


def test_a_peer_other_than_expected_is_refused_before_we_say_who_we_are() -> None:
    initiator, responder = alice(expected=MALLORY.peer), bob()
    with pytest.raises(PeerError, match=r"not 12D3KooW.* as expected"):
        shake(initiator, responder)
    assert initiator.take() == b""
    assert not initiator.done


def test_a_responder_may_expect_somebody_too() -> None:
    with pytest.raises(PeerError, match="as expected"):
        shake(alice(), bob(expected=MALLORY.peer))
    initiator, responder = alice(), bob(expected=ALICE.peer)
    shake(initiator, responder)
    assert responder.done


FORGERIES: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda static: b"",
    "no protobuf": lambda static: b"\xff" * 50,
    "cut off": lambda static: payload(MALLORY, static)[:-1],
    "no key": lambda static: payload(MALLORY, static, key=b""),
    "no signature": lambda static: NoiseHandshakePayload(identity_key=MALLORY.public.encode()).SerializeToString(),
    "another's key": lambda static: payload(MALLORY, static, key=BOB.public.encode()),
    "a key of no kind": lambda static: payload(MALLORY, static, key=b"\x08\x09\x12\x20" + MALLORY.public.data),
    "a short key": lambda static: payload(MALLORY, static, key=b"\x08\x01\x12\x1f" + MALLORY.public.data[:31]),
    "a signature for another static key": lambda static: payload(MALLORY, public(b"\x55" * 32)),
    "a signature for another use": lambda static: payload(MALLORY, static, prefix=b"libp2p-pubsub:"),
    "a signature without its prefix": lambda static: payload(MALLORY, static, prefix=b""),
    "muxers that are no text": lambda static: payload(MALLORY, static) + b"\x22\x04\x12\x02\xff\xfe",
}


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES.keys())
def test_a_forged_payload_is_a_peer_error(forgery: Callable[[bytes], bytes]) -> None:
    initiator, responder = alice(), bob()
    with pytest.raises(PeerError):
        answered(initiator, forgery)
    with pytest.raises(PeerError):
        dialled(responder, forgery)
    for side in (initiator, responder):
        assert not side.done
        assert side.take() == b""
        assert not hasattr(side, "peer")


def test_the_same_forger_with_an_honest_payload_gets_in_as_itself() -> None:
    initiator, responder = alice(), bob()
    answered(initiator, lambda static: payload(MALLORY, static))
    dialled(responder, lambda static: payload(MALLORY, static))
    assert initiator.peer == responder.peer == MALLORY.peer


def test_fields_of_later_versions_are_no_fault() -> None:
    initiator = alice(muxers=[YAMUX])
    later = b"\x22\x04\x0a\x02\xff\xfe" + b"\x1a\x03old" + b"\xfa\x07\x02hi"  # certificate hashes, early data, an unknown field
    answered(initiator, lambda static: payload(BOB, static) + later)
    assert initiator.done
    assert initiator.muxer is None


@given(st.binary(max_size=200))
def test_a_random_payload_is_a_peer_error(content: bytes) -> None:
    with pytest.raises(PeerError):
        answered(alice(), lambda static: content)


@given(st.data())
def test_a_payload_with_a_flipped_byte_is_a_peer_error_or_the_same_peer(data: st.DataObject) -> None:
    def changed(static: bytes) -> bytes:
        content = payload(BOB, static, YAMUX)
        return flipped(data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(1, 255)), content)

    initiator = alice()
    with suppress(PeerError):
        answered(initiator, changed)
        assert initiator.peer == BOB.peer


# Somebody between the two


def transcript() -> list[bytes]:
    initiator, responder = alice(), bob()
    first = initiator.take()
    responder.feed(first)
    second = responder.take()
    initiator.feed(second)
    return [first, second, initiator.take()]


def tampered(number: int, change: Callable[[bytes], bytes]) -> tuple[Handshake, Handshake]:
    """Both sides after an exchange in which one message was changed on its way; PeerError where one noticed."""
    initiator, responder = alice(), bob()
    sides = [responder, initiator, responder]
    message = initiator.take()
    for place, side in enumerate(sides):
        side.feed(change(message) if place == number else message)
        message = side.take()
    return initiator, responder


def flipped(place: int, bit: int, message: bytes) -> bytes:
    changed = bytearray(message)
    changed[place] ^= bit
    return bytes(changed)


def cut_off(length: int, message: bytes) -> bytes:
    return message[:length]


@pytest.mark.parametrize("bit", [0x01, 0x80])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_no_byte_of_the_handshake_can_be_changed(number: int, bit: int) -> None:
    for place in range(len(transcript()[number])):
        flip = partial(flipped, place, bit)
        if place < 2:
            # a length that grew may leave the receiver waiting for the rest; it must not be done
            with suppress(PeerError):
                initiator, responder = tampered(number, flip)
                assert not responder.done
                assert number == 2 or not initiator.done
        else:
            with pytest.raises(PeerError):
                tampered(number, flip)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_handshake_that_is_cut_off_is_never_done(number: int) -> None:
    for length in range(len(transcript()[number])):
        initiator, responder = tampered(number, partial(cut_off, length))
        assert not responder.done
        assert number == 2 or not initiator.done


def test_a_replayed_initiator_is_refused() -> None:
    """The responder's keys are new, so that the third message of another handshake does not decrypt."""
    first, _, third = transcript()
    responder = Handshake(BOB, initiator=False, static=B_STATIC)
    responder.feed(first)
    with pytest.raises(PeerError, match="does not decrypt"):
        responder.feed(third)


def test_a_replayed_responder_is_refused() -> None:
    _, second, _ = transcript()
    initiator = Handshake(ALICE, initiator=True, static=A_STATIC)
    with pytest.raises(PeerError, match="does not decrypt"):
        initiator.feed(second)


@pytest.mark.parametrize("number", [0, 1])
def test_our_own_message_sent_back_is_refused(number: int) -> None:
    initiator, responder = alice(), bob()
    first = initiator.take()
    with pytest.raises(PeerError):
        if number == 0:
            initiator.feed(first)
        else:
            responder.feed(first)
            responder.feed(responder.take())


@pytest.mark.parametrize("point", [bytes(32), b"\x01" + bytes(31), b"\xec" + b"\xff" * 30 + b"\x7f"])
def test_a_key_of_small_order_is_refused(point: bytes) -> None:
    with pytest.raises(PeerError, match="small order"):
        bob().feed(framed(point))
    with pytest.raises(PeerError, match="small order"):
        alice().feed(framed(point + bytes(200)))


@pytest.mark.parametrize("size", [0, 31, 33, 96, 65_535])
def test_a_first_message_of_another_size_is_refused_by_its_length_alone(size: int) -> None:
    with pytest.raises(PeerError, match=f"{size} bytes where 32 to 32 were due"):
        bob().feed(size.to_bytes(2, "big"))


@pytest.mark.parametrize("size", [0, 32, 95, HANDSHAKE_LIMIT + 1, 65_535])
def test_a_second_message_out_of_bounds_is_refused_by_its_length_alone(size: int) -> None:
    with pytest.raises(PeerError, match=f"{size} bytes where 96 to"):
        alice().feed(size.to_bytes(2, "big"))


@pytest.mark.parametrize("size", [0, 32, 63, HANDSHAKE_LIMIT + 1, 65_535])
def test_a_third_message_out_of_bounds_is_refused_by_its_length_alone(size: int) -> None:
    responder = bob()
    responder.feed(alice().take())
    with pytest.raises(PeerError, match=f"{size} bytes where 64 to"):
        responder.feed(size.to_bytes(2, "big"))


def test_a_handshake_that_failed_stays_failed() -> None:
    initiator = alice()
    responder = bob()
    responder.feed(initiator.take())
    second = responder.take()
    with pytest.raises(PeerError):
        initiator.feed(second[:-1] + b"\x00")
    with pytest.raises(PeerError, match="has failed"):
        initiator.feed(second)
    assert not initiator.done
    assert initiator.take() == b""


def test_a_handshake_that_failed_says_nothing_more() -> None:
    responder = bob()
    with pytest.raises(PeerError):
        responder.feed(alice().take() + framed(bytes(100)))
    assert responder.take() == b""


@given(st.lists(st.binary(max_size=300), max_size=5), st.booleans())
def test_random_bytes_never_finish_a_handshake(pieces: list[bytes], initiator: bool) -> None:
    side = alice() if initiator else bob()
    with suppress(PeerError):
        for piece in pieces:
            side.feed(piece)
    assert not side.done


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=64, max_size=300))
def test_random_bytes_of_the_right_length_are_a_peer_error(key: bytes, rest: bytes) -> None:
    with pytest.raises(PeerError):
        alice().feed(framed(key + rest))
    with pytest.raises(PeerError):
        bob().feed(framed(key) + framed(rest))


# The channel


@given(st.lists(st.binary(max_size=300), max_size=6), st.lists(st.integers(1, 200), min_size=1, max_size=20))
def test_what_is_sealed_is_opened_however_it_is_cut(chunks: list[bytes], sizes: list[int]) -> None:
    sender, receiver = Channel(A_STATIC, B_STATIC), Channel(B_STATIC, A_STATIC)
    wire = b"".join(map(sender.seal, chunks))
    opened, at = b"", 0
    while at < len(wire):
        size = sizes[at % len(sizes)]
        opened += receiver.feed(wire[at : at + size])
        at += size
    assert opened == b"".join(chunks)


@pytest.mark.parametrize("size", [1, PLAINTEXT_LIMIT, PLAINTEXT_LIMIT + 1, 2 * PLAINTEXT_LIMIT, 200_000])
def test_data_of_any_size_takes_as_few_messages_as_it_can(size: int) -> None:
    ours, theirs = channels()
    data = bytes(range(256)) * (size // 256 + 1)
    sealed = ours.seal(data[:size])
    messages = -(-size // PLAINTEXT_LIMIT)
    assert len(sealed) == size + messages * 18
    assert theirs.feed(sealed) == data[:size]
    assert theirs.feed(ours.seal(memoryview(data)[:size])) == data[:size]


def test_one_byte_at_a_time_opens_a_message_with_its_last_byte() -> None:
    ours, theirs = channels()
    *most, last = ours.seal(b"x" * PLAINTEXT_LIMIT) + ours.seal(b"y")[:-1]
    opened = b"".join(theirs.feed(bytes([byte])) for byte in most)
    assert opened == b"x" * PLAINTEXT_LIMIT
    assert theirs.feed(bytes([last])) == b""


def test_nothing_takes_no_message_and_an_empty_message_is_nothing() -> None:
    ours, theirs = channels()
    assert ours.seal(b"") == b""
    assert ours.seal(memoryview(b"")) == b""
    assert theirs.feed(b"") == b""
    empty = ChaCha20Poly1305(A_STATIC).encrypt(bytes(12), b"", None)
    assert Channel(B_STATIC, A_STATIC).feed(framed(empty)) == b""


def test_no_byte_of_a_message_can_be_changed() -> None:
    sealed = Channel(A_STATIC, B_STATIC).seal(b"hello")
    for place in range(len(sealed)):
        with pytest.raises(PeerError, match="does not decrypt"):
            Channel(B_STATIC, A_STATIC).feed(flipped(place, 0x01, sealed + bytes(300)))


@pytest.mark.parametrize("order", [(0, 0), (1, 0), (0, 2), (2,)])
def test_a_message_that_is_repeated_moved_or_missing_is_a_peer_error(order: tuple[int, ...]) -> None:
    ours, theirs = channels()
    sealed = [ours.seal(bytes([n])) for n in range(3)]
    with pytest.raises(PeerError, match="does not decrypt"):
        for place in order:
            theirs.feed(sealed[place])


def test_what_we_sent_is_not_taken_from_the_other_side() -> None:
    ours, _ = channels()
    with pytest.raises(PeerError, match="does not decrypt"):
        ours.feed(ours.seal(b"echo"))


@pytest.mark.parametrize("size", range(16))
def test_a_message_too_short_for_its_tag_is_a_peer_error(size: int) -> None:
    channel = Channel(A_STATIC, B_STATIC)
    *most, last = framed(bytes(size))
    assert all(channel.feed(bytes([byte])) == b"" for byte in most)
    with pytest.raises(PeerError, match="does not decrypt"):
        channel.feed(bytes([last]))


def test_a_message_that_is_cut_off_gives_nothing() -> None:
    sealed = Channel(A_STATIC, B_STATIC).seal(b"hello")
    for length in range(len(sealed)):
        assert Channel(B_STATIC, A_STATIC).feed(sealed[:length]) == b""


def test_a_channel_that_failed_stays_failed() -> None:
    ours, theirs = channels()
    sealed = ours.seal(b"x")
    with pytest.raises(PeerError, match="does not decrypt"):
        theirs.feed(framed(bytes(20)))
    with pytest.raises(PeerError, match="has failed"):
        theirs.feed(sealed)


@given(st.lists(st.binary(max_size=100), max_size=6))
def test_random_bytes_open_nothing(pieces: list[bytes]) -> None:
    channel = Channel(A_STATIC, B_STATIC)
    with suppress(PeerError):
        for piece in pieces:
            assert channel.feed(piece) == b""


def test_the_last_nonce_is_never_used() -> None:
    ours, theirs = channels()
    ours._sent = theirs._received = LAST_NONCE - 1
    assert theirs.feed(ours.seal(b"last")) == b"last"
    with pytest.raises(UsageError, match="used up"):
        ours.seal(b"one more")
    with pytest.raises(PeerError, match="used up"):
        theirs.feed(framed(bytes(20)))


def test_the_held_part_of_a_message_stays_in_bounds() -> None:
    channel = Channel(A_STATIC, B_STATIC)
    assert channel.feed(b"\xff\xff" + bytes(65_534)) == b""
    assert len(channel._held) == 65_536
    with pytest.raises(PeerError):
        channel.feed(b"\x00")
