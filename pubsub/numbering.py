"""The numbers that a source gives a publication on its way, under the source's signature.

A router that counts what each source publishes acts on these numbers: what has a lower one than what was delivered is late. So
whoever hands a message on must not be able to change them. Where messages are signed, the source writes them into a last
attribute when it sends the message, and signs that; so they go wherever the publication goes, and cost no second verification.
Asked for: a `Signing`, or none where nothing is signed, as in the simulator; then nothing is written and all is believed.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

import msgspec

from libweft.pubsub.carrier import Spread
from libweft.pubsub.signing import Signing

ATTRIBUTE = "weft:numbers"
MISNUMBERED = "not the numbers that its source gave it"


class Numbered(Spread, frozen=True):
    """`counted` are the names of the fields that its source signs."""

    counted: ClassVar[tuple[str, ...]]


M = TypeVar("M", bound=Numbered)


def bind(signing: Signing | None, m: M) -> M:
    """As its source sends it."""
    if signing is None:
        return m
    numbered = msgspec.structs.replace(m, attributes=(*m.attributes, (ATTRIBUTE, _text(m))))
    signed = signing.sign(numbered.publication())
    return msgspec.structs.replace(numbered, signature=signed.signature, key=signed.key)


def is_bound(m: Numbered) -> bool:
    """Whether its numbers are those that are written into it; whether its source wrote them, the signature says."""
    return m.attributes[-1:] == ((ATTRIBUTE, _text(m)),)


def _text(m: Numbered) -> str:
    return " ".join(str(getattr(m, name)) for name in m.counted)
