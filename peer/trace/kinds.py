"""The rows of a trace: their kinds, their columns, and who may look at them.

One schema for simulated and live runs, one row for each event. This module is all that a machine needs of the trace.
"""

from __future__ import annotations

from typing import Final, Literal, Protocol, TypeAlias

from libweft.peer.errors import WeftError
from libweft.peer.machine import Lane, MessageId, Peer

SCHEMA = 1
NODE_UP: Final = "node_up"
NODE_DOWN: Final = "node_down"
LINK_UP: Final = "link_up"
LINK_DOWN: Final = "link_down"
NEIGHBOR_UP: Final = "neighbor_up"
NEIGHBOR_DOWN: Final = "neighbor_down"
JOIN: Final = "join"
JOINED: Final = "joined"
LEAVE: Final = "leave"
PUBLISH: Final = "publish"
SEND: Final = "send"
RECEIVE: Final = "receive"
DUPLICATE: Final = "duplicate"
DELIVER: Final = "deliver"
REJECT: Final = "reject"
DROP: Final = "drop"
GRAFT: Final = "graft"
PRUNE: Final = "prune"
QUEUE: Final = "queue"
ROLE: Final = "role"
KINDS: Final = (
    *(NODE_UP, NODE_DOWN, LINK_UP, LINK_DOWN, NEIGHBOR_UP, NEIGHBOR_DOWN, JOIN, JOINED, LEAVE, PUBLISH),
    *(SEND, RECEIVE, DUPLICATE, DELIVER, REJECT, DROP, GRAFT, PRUNE, QUEUE, ROLE),
)
Level: TypeAlias = Literal["none", "default", "full"]
Row: TypeAlias = tuple[
    int,
    Peer,
    str,
    str | None,
    MessageId | None,
    Peer | None,
    int | None,
    int | None,
    int | None,
    Lane | None,
    str | None,
    tuple[MessageId, ...],
]
"""t, node, kind, topic, msg, peer, hops, copies, size, lane, reason, dependencies: in the order of `Tracer.emit`."""


class TraceError(WeftError):
    """The trace could not be written; what was written before is whole."""


class Observer(Protocol):
    """Sees every row as it is emitted, hops filled in, whether files are written or not."""

    def observe(
        self,
        t: int,
        node: Peer,
        kind: str,
        topic: str | None,
        msg: MessageId | None,
        peer: Peer | None,
        hops: int | None,
        copies: int | None,
        size: int | None,
        lane: Lane | None,
        reason: str | None,
        dependencies: tuple[MessageId, ...],
    ) -> None: ...
