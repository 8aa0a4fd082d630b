"""Private networks: the published numbers of XSalsa20, two veils on a wire, and the ways to write a swarm key."""

from __future__ import annotations

import base64
import sys
from contextlib import suppress
from secrets import token_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libweft.peer.errors import PeerError, UsageError
from libweft.peer.libp2p.multistream import Answerer, Proposer
from libweft.peer.libp2p.pnet import NONCE_SIZE, Veil, _hsalsa20, read_key
from libweft.peer.live.host import HostConfig

KEY = bytes(range(32))
OTHER = bytes(32)
HEADER = "/key/swarm/psk/1.0.0/\n"

# D. J. Bernstein, "Cryptography in NaCl", sections 5 to 8: keys, nonce and the beginning of the stream
SHARED = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
FIRST_KEY = bytes.fromhex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389")
SECOND_KEY = bytes.fromhex("dc908dda0b9344a953629b733820778880f3ceb421bb61b91cbd4c3e66256ce4")
NONCE = bytes.fromhex("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37")
STREAM = bytes.fromhex(
    "eea6a7251c1e72916d11c2cb214d3c252539121d8e234e652d651fa4c8cff880309e645a74e9e0a60d8243acd9177ab5"
    "1a1beb8d5a2f5d700c093c5e5585579625337bd3ab619d615760d8c5b224a85b1d0efe0eb8a7ee163abb0376529fcc09"
    "bab506c618e13ce777d82c3ae9d1a6f972d4160287cbfe60bf2130fc0a6ff6049d0a5c8a82f429231f0080"
)


def veil_of(key: bytes) -> Veil:
    return Veil(key, token_bytes(NONCE_SIZE))


def pair() -> tuple[Veil, Veil]:
    """Two veils of one network that know each other's nonce."""
    ours, theirs = veil_of(KEY), veil_of(KEY)
    assert theirs.feed(ours.take()) == ours.feed(theirs.take()) == b""
    return ours, theirs


def test_hsalsa20_makes_the_published_keys() -> None:
    assert _hsalsa20(SHARED, bytes(16)) == FIRST_KEY
    assert _hsalsa20(FIRST_KEY, NONCE[:16]) == SECOND_KEY


def test_a_veil_is_the_published_stream_of_xsalsa20() -> None:
    veil = veil_of(FIRST_KEY)
    assert veil.feed(NONCE + bytes(len(STREAM))) == STREAM


def test_the_stream_goes_on_from_piece_to_piece() -> None:
    veil = veil_of(FIRST_KEY)
    pieces = [NONCE[:10], NONCE[10:] + bytes(1), b"", bytes(69), bytes(len(STREAM) - 70)]
    assert b"".join(map(veil.feed, pieces)) == STREAM


def test_the_nonce_is_given_once_and_is_new_for_each_connection() -> None:
    veils = [veil_of(KEY) for _ in range(2)]
    nonces = [veil.take() for veil in veils]
    assert nonces[0] != nonces[1]
    assert all(len(nonce) == NONCE_SIZE for nonce in nonces)
    assert all(veil.take() == b"" for veil in veils)


def test_sealing_before_the_nonce_is_taken_is_a_local_mistake() -> None:
    with pytest.raises(UsageError, match="take"):
        veil_of(KEY).seal(b"x")


@given(st.lists(st.binary(max_size=200), max_size=6), st.lists(st.integers(1, 100), min_size=1, max_size=9))
def test_both_directions_carry_the_same_bytes_however_they_are_cut(chunks: list[bytes], sizes: list[int]) -> None:
    ours, theirs = veil_of(KEY), veil_of(KEY)
    for sender, receiver in ((ours, theirs), (theirs, ours)):
        wire = sender.take() + b"".join(map(sender.seal, chunks))
        opened, at = b"", 0
        while at < len(wire):
            size = sizes[at % len(sizes)]
            opened += receiver.feed(wire[at : at + size])
            at += size
        assert opened == b"".join(chunks)


def test_one_byte_at_a_time_and_views_do_as_well() -> None:
    ours, theirs = veil_of(KEY), veil_of(KEY)
    wire = ours.take() + ours.seal(memoryview(b"hello")) + ours.seal(b"") + ours.seal(b" you")
    assert b"".join(theirs.feed(bytes([byte])) for byte in wire) == b"hello you"


def test_the_two_directions_have_streams_of_their_own() -> None:
    ours, theirs = pair()
    assert ours.seal(bytes(64)) != theirs.seal(bytes(64))


def test_what_is_sealed_does_not_show() -> None:
    ours, _ = pair()
    assert b"/multistream" not in ours.seal(b"/multistream/1.0.0")


def test_our_own_nonce_sent_back_is_a_peer_error() -> None:
    veil = veil_of(KEY)
    nonce = veil.take()
    assert veil.feed(nonce[:-1]) == b""
    with pytest.raises(PeerError, match="reflects"):
        veil.feed(nonce[-1:])


def test_a_stranger_with_another_key_gets_no_further_than_the_first_line() -> None:
    ours, stranger = veil_of(KEY), veil_of(OTHER)
    ours.feed(stranger.take())
    answerer = Answerer(lambda _: True)
    with pytest.raises(PeerError):
        # whatever length the noise claims, there are bytes enough to be wrong
        answerer.feed(ours.feed(stranger.seal(Proposer(["/noise"]).take() + bytes(2_000))))
    assert answerer.take() == b""


@pytest.mark.parametrize("key", [b"", KEY[:-1], KEY + b"\x00"])
def test_a_key_of_another_size_is_a_local_mistake(key: bytes) -> None:
    with pytest.raises(UsageError, match="32 bytes"):
        veil_of(key)


def test_without_pycryptodome_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Crypto.Cipher", None)
    with pytest.raises(UsageError, match=r"pip install 'libweft\[pnet\]'"):
        veil_of(KEY)
    with pytest.raises(UsageError, match=r"pip install 'libweft\[pnet\]'"):
        HostConfig(psk=KEY)


@pytest.mark.parametrize(
    "text",
    [
        HEADER + "/base16/\n" + KEY.hex(),
        HEADER + "/base16/\n" + KEY.hex().upper() + "\n",
        HEADER.replace("\n", "\r\n") + "/base16/\r\n" + KEY.hex() + "\r\n",
        HEADER + "/base64/\n" + base64.b64encode(KEY).decode(),
        HEADER + "/base64/\n" + base64.b64encode(KEY).decode() + "\n",
        HEADER + "/bin/\n" + KEY.decode("latin-1"),
    ],
)
def test_a_swarm_key_is_read_in_all_its_forms(text: str) -> None:
    assert read_key(text) == KEY
    assert read_key(text.encode("latin-1")) == KEY


@pytest.mark.parametrize("key", [b"\n" * 32, b"\r\n" * 16, bytes(range(224, 256))])
def test_a_binary_key_may_have_any_bytes(key: bytes) -> None:
    assert read_key(HEADER.encode() + b"/bin/\n" + key) == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        KEY.hex(),
        "/key/swarm/psk/2.0.0/\n/base16/\n" + KEY.hex(),
        HEADER,
        HEADER + KEY.hex(),
        HEADER + "/base58/\n" + KEY.hex(),
        HEADER + "/base16/\n",
        HEADER + "/base16/\n" + KEY.hex()[:-2],
        HEADER + "/base16/\n" + KEY.hex()[:-1],
        HEADER + "/base16/\n" + KEY.hex() + "00",
        HEADER + "/base16/\n" + "zz" * 32,
        HEADER + "/base64/\n" + base64.b64encode(KEY[:-1]).decode(),
        HEADER + "/base64/\n" + "*" + base64.b64encode(KEY).decode(),
        HEADER + "/bin/\n" + "x" * 31,
        HEADER + "/bin/\n" + "x" * 33,
        HEADER + "/base16/\n" + "€" * 64,
        HEADER + "/bin/\n" + "€" * 32,
    ],
)
def test_what_is_no_swarm_key_is_a_local_mistake(text: str) -> None:
    with pytest.raises(UsageError):
        read_key(text)


starts = st.sampled_from([b"", b"/base16/\n", b"/base64/\n", b"/bin/\n"])


@given(st.binary(max_size=99) | st.builds(lambda start, body: HEADER.encode() + start + body, starts, st.binary(max_size=70)))
def test_random_bytes_are_a_key_or_a_local_mistake(data: bytes) -> None:
    with suppress(UsageError):
        assert len(read_key(data)) == 32
