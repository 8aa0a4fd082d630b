"""Identify: what a peer says of itself, `/ipfs/id/1.0.0`, and again when it changes, `/ipfs/id/push/1.0.0`.

The answer is one or several length-prefixed protobuf messages, to be merged, then the end of the stream. In a push a
field that is missing is unchanged. The key and the peer id are known from the handshake, so those in the answer are not
believed; addresses are hearsay unless a signed record has them.
Bounds: MESSAGES messages of MESSAGE_LIMIT bytes, of which LISTED addresses and protocols are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from libweft.peer.errors import PeerError
from libweft.peer.libp2p.address import Address
from libweft.peer.libp2p.frame import frame
from libweft.peer.libp2p.pb import parse
from libweft.peer.libp2p.pb.identify_pb2 import Identify
from libweft.peer.libp2p.records import read_record

ID = "/ipfs/id/1.0.0"
PUSH = "/ipfs/id/push/1.0.0"
VERSION = "ipfs/0.1.0"
MESSAGES = 10  # as many, and as long, as go-libp2p reads
MESSAGE_LIMIT = 8 << 10
LISTED = 256


class Identified(NamedTuple):
    """What the other side said; None where it said nothing."""

    addresses: tuple[Address, ...] | None
    protocols: tuple[str, ...] | None
    agent: str | None
    observed: Address | None
    record: bytes | None


def describe(
    key: bytes, addresses: Sequence[Address], protocols: Sequence[str], agent: str, observed: Address, record: bytes
) -> bytes:
    """The framed answer, in one message: some peers read no second one."""
    said = Identify(
        publicKey=key,
        listenAddrs=[address.encode() for address in addresses],
        protocols=protocols,
        observedAddr=observed.encode(),
        protocolVersion=VERSION,
        agentVersion=agent,
        signedPeerRecord=record,
    )
    return frame(said.SerializeToString())


def read(frames: Sequence[bytes], peer: bytes) -> Identified:
    """Merge the messages of one answer; PeerError for what is no answer."""
    if len(frames) > MESSAGES:
        raise PeerError(f"identify in more than {MESSAGES} messages")
    said = Identify()
    for data in frames:
        said.MergeFrom(parse(Identify, data))
    record = said.signedPeerRecord or None
    return Identified(
        addresses=_addresses(said.listenAddrs) or None,
        protocols=tuple(said.protocols[:LISTED]) or None,
        agent=said.agentVersion or None,
        observed=next(iter(_addresses([said.observedAddr])), None) if said.observedAddr else None,
        record=record if record is not None and _own(record, peer) else None,
    )


def _own(record: bytes, peer: bytes) -> bool:
    """Some peers sign theirs in an older way: then it is worth nothing, and no reason to part."""
    try:
        return read_record(record).peer == peer
    except PeerError:
        return False


def _addresses(encoded: Sequence[bytes]) -> tuple[Address, ...]:
    """Those that can be read: a peer may have addresses of transports that nobody here knows."""
    found = []
    for data in encoded[:LISTED]:
        try:
            found.append(Address.decode(data))
        except PeerError:
            continue
    return tuple(found)
