"""StrictSign: whoever publishes signs, and what is not signed by its author goes no further.

As in libp2p: the signature is over `libp2p-pubsub:` and the message without signature and key; the key travels only where
the author's peer id does not hold it. A router asks after it has seen that a message is new, since verifying costs more
than everything else that is done with a copy. The keys of authors heard last are kept: to read one out of a peer id costs a
third of a verification.
Bounds: KEYS keys.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from libweft.peer.errors import PeerError
from libweft.peer.libp2p.ids import Identity, PublicKey, key_in
from libweft.pubsub.message import Publication
from libweft.pubsub.rpc import canonical, unsigned

PREFIX = b"libp2p-pubsub:"
KEYS = 1_024


class Signing:
    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._key = b"" if key_in(identity.peer) is not None else identity.public.encode()
        self._inlined = lru_cache(KEYS)(key_in)

    def sign(self, publication: Publication) -> Publication:
        return msgspec.structs.replace(publication, signature=self._identity.sign(_signed(publication)), key=self._key)

    def problem(self, publication: Publication) -> str | None:
        """Why the message is not its author's; None when it is."""
        if not publication.signature:
            return "no signature"
        if not canonical(publication.id):
            return "an id that no author gives"
        try:
            key = self._author(publication)
        except PeerError as error:
            return str(error)
        return None if key.verify(publication.signature, _signed(publication)) else "a false signature"

    def _author(self, publication: Publication) -> PublicKey:
        source = publication.id.source
        if not isinstance(source, bytes):
            raise PeerError("an author without a key")
        inlined = self._inlined(source)
        if not publication.key:
            if inlined is None:
                raise PeerError("no key of its author")
            return inlined
        key = PublicKey.decode(publication.key)
        if key.peer != source:
            raise PeerError("the key of another author")
        return key


def _signed(publication: Publication) -> bytes:
    return PREFIX + unsigned(publication)
