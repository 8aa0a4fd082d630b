"""The protobuf messages of libp2p, and of its traces, generated from the .proto files beside them by `make protobuf`.

Each file has a package of its own, `weft.NAME`, so that its descriptors never collide with those of another library.
All are proto3 with `optional` fields, where some specs have proto2: the bytes are the same, and presence is kept, but a
string that is no UTF-8 fails to parse (in proto2 it would come out as bytes), and an enum value that the schema does
not know reads as its number (in proto2 as the first of the enum).
"""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from libweft.peer.errors import PeerError

Kind = TypeVar("Kind", bound=Message)


def parse(kind: type[Kind], data: bytes) -> Kind:
    """One message from a peer's bytes; whatever does not parse is a PeerError."""
    try:
        return kind.FromString(data)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:  # the last two from protobuf in pure Python
        raise PeerError(f"this is no {kind.DESCRIPTOR.name}: {error}") from None
