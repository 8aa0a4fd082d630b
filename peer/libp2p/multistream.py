"""multistream-select 1.0: the two ends of a stream agree on the protocol that is spoken on it.

Spec: multiformats/multistream-select. A line is a varint length, text and a newline, the newline counted. Both sides send the
header line; the side that opened proposes protocols, one at a time, and the other echoes the one it takes or says `na`.
`Proposer` sends its header with the first proposal, without waiting. `Answerer` speaks only after a good header came,
so that a stranger who speaks something else gets nothing. The old `ls` is answered by `na`.

Below it asks for: bytes in order, cut anyhow. Above it promises: `chosen`, and in `rest` whatever came after the negotiation.
Bounds: a line of 1,024 bytes, as Go has it; `ATTEMPTS` proposals from one peer; one unfinished line is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from libweft.peer.errors import PeerError, UsageError
from libweft.peer.libp2p.frame import frame, read_uvarint

HEADER = "/multistream/1.0.0"
NOT_AVAILABLE = "na"
LIST = "ls"
LINE_LIMIT = 1_024
ATTEMPTS = 16


class _Negotiation:
    """What both sides have in common: lines in, lines out."""

    def __init__(self) -> None:
        self.chosen: str | None = None
        self.rest = b""
        self._held = b""
        self._out = bytearray()
        self._greeted = False

    def take(self) -> bytes:
        """What is to be sent now."""
        out = bytes(self._out)
        self._out.clear()
        return out

    def feed(self, data: bytes) -> None:
        if self.chosen is not None:
            raise UsageError(f"{self.chosen} is agreed on already; these bytes are for it")
        self._held += data
        for line in self._lines():
            if self._greeted:
                self._heard(line)
            else:
                self._greet(line)
            if self.chosen is not None:
                self.rest, self._held = self._held, b""
                return

    def _greet(self, line: str) -> None:
        if line != HEADER:
            raise PeerError(f"{line[:40]!r} where {HEADER} was due")
        self._greeted = True

    def _heard(self, line: str) -> None:
        raise NotImplementedError

    def _send(self, line: str) -> None:
        self._out += _encode(line)

    def _lines(self) -> Iterator[str]:
        while head := read_uvarint(self._held):
            size, start = head
            if size > LINE_LIMIT:
                raise PeerError(f"a line of {size} bytes is over the limit of {LINE_LIMIT}")
            if len(self._held) < start + size:
                return
            line, self._held = self._held[start : start + size], self._held[start + size :]
            yield _decode(line)


class Proposer(_Negotiation):
    """The side that opened: proposes in order of preference until one is taken."""

    def __init__(self, protocols: Sequence[str]) -> None:
        super().__init__()
        if not protocols:
            raise UsageError("name at least one protocol to propose")
        for protocol in protocols:
            _check(protocol)
        self._protocols = tuple(protocols)
        self._proposed = 0
        self._send(HEADER)
        self._send(protocols[0])

    def _heard(self, line: str) -> None:
        if line == self._protocols[self._proposed]:
            self.chosen = line
        elif line == NOT_AVAILABLE:
            self._next()
        else:
            raise PeerError(f"{line[:40]!r} in answer to {self._protocols[self._proposed]}")

    def _next(self) -> None:
        self._proposed += 1
        if self._proposed == len(self._protocols):
            raise PeerError(f"the peer speaks none of {', '.join(self._protocols)}")
        self._send(self._protocols[self._proposed])


class Answerer(_Negotiation):
    """The side that was opened to: takes the first proposal that it supports."""

    def __init__(self, supports: Callable[[str], bool]) -> None:
        super().__init__()
        self._supports = supports
        self._proposals = 0

    def _greet(self, line: str) -> None:
        super()._greet(line)
        self._send(HEADER)

    def _heard(self, line: str) -> None:
        self._proposals += 1
        if self._proposals > ATTEMPTS:
            raise PeerError(f"more than {ATTEMPTS} proposals, none of which is spoken here")
        if line not in (LIST, NOT_AVAILABLE) and self._supports(line):
            self._send(line)
            self.chosen = line
        else:
            self._send(NOT_AVAILABLE)


def _encode(line: str) -> bytes:
    return frame(line.encode() + b"\n")


def _decode(line: bytes) -> str:
    if not line.endswith(b"\n"):
        raise PeerError("a line of multistream without its newline")
    try:
        return line[:-1].decode()
    except UnicodeDecodeError:
        raise PeerError("a line of multistream that is no UTF-8") from None


def _check(protocol: str) -> None:
    if not protocol or "\n" in protocol or len(protocol.encode()) >= LINE_LIMIT or protocol in (LIST, NOT_AVAILABLE):
        raise UsageError(f"{protocol[:40]!r} is no name for a protocol: it needs 1 to {LINE_LIMIT - 1} bytes on one line")
