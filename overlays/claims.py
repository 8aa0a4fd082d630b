"""What a peer may say of another: lists of `PeerInfo` are judged here, at the border of each machine that takes them.

Bounds: ADDRESSES of one peer, of TEXT bytes each, a RECORD of so many bytes; an id of ID bytes. The length of a list is its
machine's own to bound. What a node hands on is bound by the same (`told`): so it fits a frame, and nobody refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence

from libweft.peer.errors import PeerError
from libweft.peer.machine import Env, Peer, PeerInfo

ADDRESSES = 16  # of one peer, as many as a host remembers
TEXT = 256  # bytes: letters may take four each
RECORD = 4_096
ID = 64  # libp2p's longest peer id has 42 bytes


def learn(env: Env, info: PeerInfo) -> None:
    """One who is only named says nothing of where it is; to learn that would be to forget what is known."""
    if info.addresses or info.record is not None:
        env.learn(info)


def told(env: Env, peer: Peer) -> PeerInfo:
    """What is known of a peer, as far as others may say it: by other ways than these messages a node comes to know more."""
    info = env.info(peer)
    if not info.addresses and info.record is None:
        return info
    addresses = tuple(text for text in info.addresses if _fits(text))[:ADDRESSES]
    return PeerInfo(info.peer, addresses, info.record if info.record is None or len(info.record) <= RECORD else None)


def check_infos(me: Peer, infos: Sequence[PeerInfo]) -> None:
    """Whatever no honest peer says is a PeerError."""
    for info in infos:
        check_peer(me, info.peer)
        if info.addresses or info.record is not None:
            _check_claims(info)


def check_peer(me: Peer, peer: Peer) -> None:
    """Peers are of one kind with `me`."""
    kind = type(me)
    if type(peer) is not kind or (kind is bytes and not 0 < len(peer) <= ID):  # type: ignore[arg-type]
        raise PeerError("no peer has such an id")


def _check_claims(info: PeerInfo) -> None:
    if len(info.addresses) > ADDRESSES or not all(map(_fits, info.addresses)):
        raise PeerError("a peer with more addresses, or longer ones, than any has")
    if info.record is not None and len(info.record) > RECORD:
        raise PeerError(f"a peer record over {RECORD} bytes")


def _fits(text: str) -> bool:
    return len(text.encode()) <= TEXT
