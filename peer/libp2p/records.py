"""Signed envelopes (libp2p RFC 0002), and the peer records in them (RFC 0003): a peer's own word on where it is.

An envelope holds a public key, a type, a payload, and the signature of that key over a domain, the type and the payload,
each with its length before it; the domain is not sent, so that a signature for one purpose never serves another.
A peer record goes under the domain `libp2p-peer-record` and the type `03 01`: the names in the text of RFC 0003 are
not those that peers use.

Above it promises: what `open_envelope` and `read_record` return was signed by that key, and a record is the key's own.
Whether a record is newer than one that is known is for the caller to judge, by its sequence.
Bounds: 8 KiB an envelope, and the first 64 addresses of a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from libweft.peer.errors import PeerError, UsageError
from libweft.peer.libp2p import pb
from libweft.peer.libp2p.address import Address
from libweft.peer.libp2p.frame import frame
from libweft.peer.libp2p.ids import Identity, PublicKey
from libweft.peer.libp2p.pb import records_pb2

ENVELOPE_LIMIT = 8_192
"""As much as Go reads of one message of identify, in which records travel."""
ADDRESS_LIMIT = 64

DOMAIN = "libp2p-peer-record"
PAYLOAD_TYPE = b"\x03\x01"


def seal_envelope(identity: Identity, domain: str, payload_type: bytes, payload: bytes) -> bytes:
    envelope = records_pb2.Envelope(
        public_key=identity.public.encode(),
        payload_type=payload_type,
        payload=payload,
        signature=identity.sign(_signed(domain, payload_type, payload)),
    ).SerializeToString()
    if len(envelope) > ENVELOPE_LIMIT:
        raise UsageError(f"an envelope of {len(envelope)} bytes is over the limit of {ENVELOPE_LIMIT}")
    return envelope


def open_envelope(data: bytes, domain: str, payload_type: bytes) -> tuple[PublicKey, bytes]:
    """The key that signed, and the payload; PeerError unless it is of that type and signed for that domain."""
    if len(data) > ENVELOPE_LIMIT:
        raise PeerError(f"an envelope of {len(data)} bytes is over the limit of {ENVELOPE_LIMIT}")
    envelope = pb.parse(records_pb2.Envelope, data)
    if envelope.payload_type != payload_type:
        raise PeerError(f"an envelope of the type {envelope.payload_type[:32].hex()} where {payload_type.hex()} was due")
    key = PublicKey.decode(envelope.public_key)
    if not key.verify(envelope.signature, _signed(domain, payload_type, envelope.payload)):
        raise PeerError("an envelope with a bad signature")
    return key, envelope.payload


def _signed(domain: str, payload_type: bytes, payload: bytes) -> bytes:
    return frame(domain.encode()) + frame(payload_type) + frame(payload)


class PeerRecord(NamedTuple):
    peer: bytes
    sequence: int
    addresses: tuple[Address, ...]


def sign_record(identity: Identity, addresses: Sequence[Address], sequence: int) -> bytes:
    """`sequence` must grow from one record to the next; others take nanoseconds of the wall clock."""
    if not 0 <= sequence < 1 << 64:
        raise UsageError(f"the sequence {sequence} does not fit 64 bits")
    record = records_pb2.PeerRecord(
        peer_id=identity.peer,
        seq=sequence,
        addresses=[records_pb2.PeerRecord.AddressInfo(multiaddr=address.encode()) for address in addresses],
    )
    return seal_envelope(identity, DOMAIN, PAYLOAD_TYPE, record.SerializeToString())


def read_record(data: bytes) -> PeerRecord:
    """PeerError unless it is signed by the peer that it is about; addresses of kinds unknown here are left out."""
    key, payload = open_envelope(data, DOMAIN, PAYLOAD_TYPE)
    record = pb.parse(records_pb2.PeerRecord, payload)
    if record.peer_id != key.peer:
        raise PeerError("a peer record that another peer has signed")
    addresses = []
    for info in record.addresses[:ADDRESS_LIMIT]:
        with suppress(PeerError):
            addresses.append(Address.decode(info.multiaddr))
    return PeerRecord(key.peer, record.seq, tuple(addresses))
