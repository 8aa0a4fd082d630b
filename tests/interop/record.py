"""Records what peers of other libraries and weft say to each other: `python -m tests.interop.record [js py go]`.

One recording for each that dials weft, and one for each that weft dials: multistream, Noise, Yamux, identify and ping both
ways, floodsub's subscriptions, and a few signed messages each way. Weft's keys are fixed, so that `tests/peer/test_recorded.py`
can read the other side's bytes again, and say again what weft said. A recording is one file in tests/peer/recorded.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from functools import partialmethod
from hashlib import sha256
from pathlib import Path
from unittest.mock import patch

import trio

from libweft.peer.libp2p.ids import Identity, parse_peer
from libweft.peer.libp2p.noise import Handshake
from libweft.peer.live import identify, transport
from libweft.pubsub.live.api import PubSub
from tests.interop.foreign import foreign
from tests.interop.test_weft import HERE, TOPIC, dialled_by_the_other, dialled_by_weft, other_knows, until
from tests.peer.recorded.replay import Chunk, Recording

LANGUAGES = ("js", "py", "go")
COUNT = 3


class Tap:
    """What went over the one wire of a run, and what identify told."""

    def __init__(self) -> None:
        self.wires = 0
        self.chunks: list[Chunk] = []
        self.told: list[identify.Identified] = []

    def wire(self, sock: object) -> transport.Wire:
        self.wires += 1
        return _TappedWire(self, sock)

    def read(self, frames: Sequence[bytes], peer: bytes) -> identify.Identified:
        said = _read(frames, peer)
        self.told.append(said)
        return said


class _TappedWire(transport.Wire):
    def __init__(self, tap: Tap, sock: object) -> None:
        super().__init__(sock)  # type: ignore[arg-type]
        self._chunks = tap.chunks

    async def receive(self) -> bytes:
        """Noted when the reader has it, not when the kernel had it: in between weft may have spoken."""
        if data := await super().receive():
            self._chunks.append(Chunk(False, data))
        return data

    def send_now(self, data: bytes | memoryview) -> int:
        sent = super().send_now(data)
        if sent:
            self._chunks.append(Chunk(True, bytes(data[:sent])))
        return sent


_read = identify.read


def key(name: str, use: str) -> bytes:
    """A throw-away key, the same at each recording."""
    return sha256(f"weft, for tests alone: {name} {use}".encode()).digest()


async def record(language: str, *, outbound: bool) -> Path:
    name = f"{language}-{'listens' if outbound else 'dials'}"
    seed, static, ephemeral = (key(name, use) for use in ("identity", "static", "ephemeral"))
    tap = Tap()
    fixed = partialmethod(Handshake.__init__, static=static, ephemeral=ephemeral)
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(transport, "Wire", tap.wire),
        patch.object(Handshake, "__init__", fixed),
        patch.object(identify, "read", tap.read),
    ):
        texts = tuple(f"{language} says {number}" for number in range(COUNT))
        ours = tuple(f"weft says {number}" for number in range(COUNT))
        opened = PubSub.open("static/flood", listen=HERE, key=key_file(Path(folder), seed))
        async with foreign(language) as other, opened as node, node.subscribe(TOPIC) as heard:
            await (dialled_by_weft if outbound else dialled_by_the_other)(node, other)
            peer = parse_peer(other.peer)
            await until(lambda: peer in node.host.links and node.host.links[peer].told, other, "its identify")
            await node.host.ping(peer)
            await other.ask("ping", addr=str(node.host.addresses[0]))
            await other_knows(other, node)
            await other.ask("subscribe", topic=TOPIC)
            await other.ask("peers", topic=TOPIC, count=1)
            await until(lambda: peer in node.router.overlay.neighbors, other, "its neighbour")
            await other.ask("publish", topic=TOPIC, data=texts)
            await until(lambda: len(heard) >= COUNT, other, "its messages")
            for text in ours:
                await node.publish(TOPIC, text.encode())
            await other.wait_messages(COUNT)
            speaks, protocols = node.host.protocols, node.host.links[peer].protocols
    assert tap.wires == 1, f"{name}: {tap.wires} connections instead of one"
    [agent] = {told.agent for told in tap.told}
    assert agent is not None
    recording = Recording(
        *(outbound, seed, static, ephemeral, speaks, other.peer, protocols, agent, TOPIC, ours, texts, tuple(tap.chunks))
    )
    return recording.save(name)


def key_file(folder: Path, seed: bytes) -> Path:
    path = folder / "key"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(Identity.from_seed(seed).encode())
    return path


async def record_all(languages: Sequence[str]) -> None:
    for language in languages:
        for outbound in (True, False):
            path = await record(language, outbound=outbound)
            print(f"{path.relative_to(Path.cwd())}: {path.stat().st_size} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.record", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("languages", nargs="*", default=LANGUAGES, metavar="language", help=f"of {', '.join(LANGUAGES)}")
    trio.run(record_all, parser.parse_args().languages)


if __name__ == "__main__":
    main()
