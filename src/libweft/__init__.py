"""weft: peer-to-peer publish/subscribe. Each protocol is a machine without IO, which runs live or in a simulator.

    from libweft import PubSub

    async with PubSub.open(bootstrap=[...]) as node, node.subscribe("chat") as messages:
        await node.publish("chat", b"hello")
        async for message in messages:
            print(message.source, message.data)

The layers, from the top. Each imports only what is below it:

    libweft.examples   programs to read and to run: a chat, and embedding in asyncio and in plain threads
    libweft.bench      scenarios, runs of the simulator, the analysis of traces on Spark, figures of papers
    libweft.pubsub     routers, which carry a publication to its subscribers; orders; the API, in `libweft.pubsub.live`
    libweft.overlays   which peers are neighbours, and how a peer or a key is found
    libweft.peer       the contract of a machine, libp2p's protocols, and the worlds in which a machine runs

An application needs only the names that this module exports. They are loaded when they are first used, so that
`import libweft` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from libweft.peer.errors import PeerError, UsageError, WeftError
    from libweft.peer.libp2p.ids import Identity
    from libweft.peer.live.embed import in_asyncio, in_thread
    from libweft.peer.live.host import HostConfig
    from libweft.pubsub.live.api import PubSub, PubSubConfig
    from libweft.pubsub.live.subscription import Message, Subscription
    from libweft.pubsub.message import Verdict

__version__ = "0.1.0"

__all__ = [
    "HostConfig",
    "Identity",
    "Message",
    "PeerError",
    "PubSub",
    "PubSubConfig",
    "Subscription",
    "UsageError",
    "Verdict",
    "WeftError",
    "__version__",
    "in_asyncio",
    "in_thread",
]

_HOMES = {
    "HostConfig": "libweft.peer.live.host",
    "Identity": "libweft.peer.libp2p.ids",
    "Message": "libweft.pubsub.live.subscription",
    "PeerError": "libweft.peer.errors",
    "PubSub": "libweft.pubsub.live.api",
    "PubSubConfig": "libweft.pubsub.live.api",
    "Subscription": "libweft.pubsub.live.subscription",
    "UsageError": "libweft.peer.errors",
    "Verdict": "libweft.pubsub.message",
    "WeftError": "libweft.peer.errors",
    "in_asyncio": "libweft.peer.live.embed",
    "in_thread": "libweft.peer.live.embed",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'libweft' has no attribute {name!r}; it exports {', '.join(__all__)}")
    found: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
