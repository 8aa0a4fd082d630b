"""multistream-select: two ends agree on a protocol, whatever the cuts, and nonsense is a PeerError."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libweft.peer.errors import PeerError, UsageError
from libweft.peer.libp2p.frame import frame
from libweft.peer.libp2p.multistream import ATTEMPTS, LINE_LIMIT, Answerer, Proposer

HEADER = b"\x13/multistream/1.0.0\n"
NA = b"\x03na\n"
NOISE = b"\x07/noise\n"

names = st.sampled_from(["/noise", "/tls/1.0.0", "/yamux/1.0.0", "/weft/é"])
protocols = st.lists(names, min_size=1, max_size=4, unique=True)


def line(text: str) -> bytes:
    return frame(text.encode() + b"\n")


def exchange(proposer: Proposer, answerer: Answerer, size: Callable[[], int], after: bytes = b"") -> None:
    """All bytes of both sides, in pieces; the proposer sends `after` behind its first lines, as a lazy one does."""
    to_answerer, to_proposer = proposer.take() + after, b""
    while to_answerer or to_proposer:
        if to_answerer and answerer.chosen is None:
            count = size()
            answerer.feed(to_answerer[:count])
            to_answerer = to_answerer[count:]
            to_proposer += answerer.take()
        elif to_answerer:
            answerer.rest += to_answerer
            to_answerer = b""
        if to_proposer:
            count = size()
            proposer.feed(to_proposer[:count])
            to_proposer = to_proposer[count:]
            to_answerer += proposer.take()


def agree(mine: list[str], theirs: list[str], size: Callable[[], int], after: bytes = b"") -> tuple[Proposer, Answerer]:
    proposer, answerer = Proposer(mine), Answerer(theirs.__contains__)
    exchange(proposer, answerer, size, after)
    return proposer, answerer


def test_the_bytes_of_an_agreement_at_once() -> None:
    proposer, answerer = Proposer(["/noise"]), Answerer({"/noise"}.__contains__)
    assert proposer.take() == HEADER + NOISE
    assert proposer.take() == b""
    assert answerer.take() == b""
    answerer.feed(HEADER + NOISE)
    assert answerer.take() == HEADER + NOISE
    proposer.feed(HEADER + NOISE)
    assert proposer.chosen == answerer.chosen == "/noise"
    assert proposer.rest == answerer.rest == b""
    assert proposer.take() == b""


def test_the_bytes_of_a_second_proposal() -> None:
    proposer, answerer = Proposer(["/tls/1.0.0", "/noise"]), Answerer({"/noise"}.__contains__)
    answerer.feed(proposer.take())
    assert answerer.chosen is None
    proposer.feed(answerer.take())
    assert proposer.chosen is None
    assert proposer.take() == NOISE
    answerer.feed(NOISE)
    assert answerer.take() == NOISE
    proposer.feed(NOISE)
    assert proposer.chosen == answerer.chosen == "/noise"


@given(protocols, protocols, st.data())
def test_both_choose_the_first_that_both_speak_however_the_bytes_are_cut(
    mine: list[str], theirs: list[str], data: st.DataObject
) -> None:
    common = [name for name in mine if name in theirs]
    if not common:
        with pytest.raises(PeerError, match="speaks none of"):
            agree(mine, theirs, lambda: data.draw(st.integers(1, 30)))
        return
    proposer, answerer = agree(mine, theirs, lambda: data.draw(st.integers(1, 30)))
    assert proposer.chosen == answerer.chosen == common[0]
    assert proposer.rest == answerer.rest == b""


def test_one_byte_at_a_time_agrees_too() -> None:
    proposer, answerer = agree(["/a", "/b", "/noise"], ["/noise"], lambda: 1)
    assert proposer.chosen == answerer.chosen == "/noise"


@given(st.binary(max_size=99), st.integers(1, 200))
def test_what_a_lazy_proposer_sends_behind_its_proposal_is_the_rest(after: bytes, count: int) -> None:
    proposer, answerer = agree(["/noise"], ["/noise"], lambda: count, after)
    assert answerer.rest == after
    assert proposer.chosen == answerer.chosen == "/noise"


def test_what_comes_behind_the_echo_is_the_rest_though_it_looks_like_lines() -> None:
    proposer = Proposer(["/noise"])
    proposer.feed(HEADER + NOISE + NA + b"\xff" * 20)
    assert proposer.rest == NA + b"\xff" * 20


def test_bytes_after_the_agreement_are_not_for_the_negotiation() -> None:
    proposer = Proposer(["/noise"])
    proposer.feed(HEADER + NOISE)
    with pytest.raises(UsageError, match="/noise is agreed on"):
        proposer.feed(b"x")


def test_na_to_the_last_proposal_is_a_peer_error() -> None:
    proposer = Proposer(["/a", "/b"])
    proposer.feed(HEADER + NA)
    with pytest.raises(PeerError, match="speaks none of /a, /b"):
        proposer.feed(NA)


@pytest.mark.parametrize("answer", ["/b", "/a/1", "", "ls", "/multistream/1.0.0", "NA", "/a "])
def test_an_answer_that_is_neither_echo_nor_na_is_a_peer_error(answer: str) -> None:
    proposer = Proposer(["/a", "/b"])
    with pytest.raises(PeerError, match="in answer to /a"):
        proposer.feed(HEADER + line(answer))


@pytest.mark.parametrize("greeting", ["/multistream/2.0.0", "/noise", "na", "", "GET / HTTP/1.1\r"])
def test_another_header_is_a_peer_error_and_is_not_answered(greeting: str) -> None:
    with pytest.raises(PeerError, match="was due"):
        Proposer(["/noise"]).feed(line(greeting))
    answerer = Answerer({"/noise"}.__contains__)
    with pytest.raises(PeerError, match="was due"):
        answerer.feed(line(greeting))
    assert answerer.take() == b""


@pytest.mark.parametrize("obsolete", ["ls", "na"])
def test_ls_and_na_are_no_protocols_even_where_all_are_welcome(obsolete: str) -> None:
    answerer = Answerer(lambda _: True)
    answerer.feed(HEADER + line(obsolete))
    assert answerer.take() == HEADER + NA
    assert answerer.chosen is None
    answerer.feed(NOISE)
    assert answerer.chosen == "/noise"


def test_proposals_without_end_are_a_peer_error() -> None:
    answerer = Answerer({"/noise"}.__contains__)
    answerer.feed(HEADER + line("/other") * ATTEMPTS)
    assert answerer.take() == HEADER + NA * ATTEMPTS
    with pytest.raises(PeerError, match="more than 16 proposals"):
        answerer.feed(NOISE)


def test_the_last_allowed_proposal_may_be_the_one() -> None:
    answerer = Answerer({"/noise"}.__contains__)
    answerer.feed(HEADER + line("/other") * (ATTEMPTS - 1) + NOISE)
    assert answerer.chosen == "/noise"


def test_a_line_of_exactly_the_limit_passes_and_one_byte_more_does_not() -> None:
    longest = "/" + "x" * (LINE_LIMIT - 2)
    proposer, answerer = agree([longest], [longest], lambda: 100)
    assert proposer.chosen == answerer.chosen == longest
    with pytest.raises(PeerError, match="1025 bytes is over the limit of 1024"):
        Answerer({longest}.__contains__).feed(HEADER + line(longest + "x"))


@pytest.mark.parametrize("claim", [b"\x81\x08", b"\xff\xff\xff\xff\x0f", b"\xff" * 8 + b"\x7f", b"\xff" * 9])
def test_a_huge_length_is_refused_before_the_line_has_come(claim: bytes) -> None:
    for before in (b"", HEADER):
        with pytest.raises(PeerError):
            Answerer(lambda _: True).feed(before + claim)


@pytest.mark.parametrize("bad", [b"\x00", b"\x01x", b"\x06/noise", b"\x03\xff\xfe\n", b"\x83\x00na\n"])
def test_a_line_without_newline_or_utf8_or_with_a_padded_length_is_a_peer_error(bad: bytes) -> None:
    with pytest.raises(PeerError):
        Answerer(lambda _: True).feed(HEADER + bad)
    with pytest.raises(PeerError):
        Proposer(["/noise"]).feed(HEADER + bad)


def test_truncation_chooses_nothing() -> None:
    whole = HEADER + NOISE
    for length in range(len(whole)):
        proposer, answerer = Proposer(["/noise"]), Answerer(lambda _: True)
        proposer.feed(whole[:length])
        answerer.feed(whole[:length])
        assert proposer.chosen is None
        assert answerer.chosen is None
        assert proposer.rest == answerer.rest == b""


@pytest.mark.parametrize("bad", [[], [""], ["/a\nb"], ["ls"], ["na"], ["/fine", "/" + "x" * 1023], ["/" + "é" * 512]])
def test_what_cannot_be_proposed_is_a_local_mistake(bad: list[str]) -> None:
    with pytest.raises(UsageError):
        Proposer(bad)


@given(st.lists(st.binary(max_size=30) | st.sampled_from([HEADER, NOISE, NA, line("ls"), line("/x")]), max_size=9))
def test_random_bytes_never_crash(pieces: list[bytes]) -> None:
    for side in (Proposer(["/noise", "/x"]), Answerer({"/noise"}.__contains__)):
        with suppress(PeerError):
            for piece in pieces:
                if side.chosen is not None:
                    assert side.chosen in ("/noise", "/x")
                    break
                side.feed(piece)
        assert len(side.take()) < 300
