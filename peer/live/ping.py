"""Ping, `/ipfs/ping/1.0.0`: 32 random bytes come back on the same stream, as often as asked.

Bounds: an answerer keeps one ping's bytes, and ends the stream when none comes for IDLE_S.
"""

from __future__ import annotations

import secrets

import trio

from libweft.peer.errors import PeerError
from libweft.peer.live.link import Stream

PING = "/ipfs/ping/1.0.0"
SIZE = 32
IDLE_S = 60.0


async def answer(stream: Stream) -> None:
    """Echo until the other side ends; runs as the protocol's handler."""
    held = b""
    while True:
        data = b""
        with trio.move_on_after(IDLE_S):
            data = await stream.receive_some(SIZE)
        if not data:
            return
        held += data
        if len(held) >= SIZE:
            await stream.send_all(held[:SIZE])
            held = held[SIZE:]


async def ping(stream: Stream) -> float:
    """Seconds until the same bytes came back; PeerError when others did."""
    challenge = secrets.token_bytes(SIZE)
    began = trio.current_time()
    await stream.send_all(challenge)
    heard = b""
    while len(heard) < SIZE:
        data = await stream.receive_some(SIZE - len(heard))
        if not data:
            raise PeerError("the peer ended the ping stream")
        heard += data
    if heard != challenge:
        raise PeerError("the peer sent back other bytes than it was pinged with")
    return trio.current_time() - began
