"""Messages between the parent of a swarm and its processes: a JSON object per line, commands one way, answers the other.

A process sends Ready first. It answers each command by one line, in order, which repeats the number of the command, so that the
parent can skip an answer that it has stopped waiting for. A `Sent` comes without a command.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeAlias

import msgspec
import trio

from libweft.bench.perf.swarm.plan import Told


class Open(msgspec.Struct, tag=True):
    """Bring up a peer; answered when it is subscribed."""

    peer: int
    bootstrap: list[str]


class Begin(msgspec.Struct, tag=True):
    """A new run: tallies and clocks start anew."""

    run: int


class Send(msgspec.Struct, tag=True):
    """Senders of this process, with the moment (of the machine's monotonic clock) at which each begins."""

    run: int
    senders: dict[int, float]
    count: int
    every: float
    size: int


class Stop(msgspec.Struct, tag=True):
    """Send no more."""


class Count(msgspec.Struct, tag=True):
    """How many messages of these senders have come to these peers."""

    peers: list[int]
    senders: list[int]


class Look(msgspec.Struct, tag=True):
    """Who is whose neighbour."""


class Report(msgspec.Struct, tag=True): ...


class Explain(msgspec.Struct, tag=True):
    """Write to the log what these peers know; for those that miss something."""

    peers: list[int]


class Ready(msgspec.Struct, tag=True): ...


class Done(msgspec.Struct, tag=True): ...


class Opened(msgspec.Struct, tag=True):
    id: str
    addresses: list[str]


class Counted(msgspec.Struct, tag=True):
    messages: int


class Looked(msgspec.Struct, tag=True):
    neighbors: dict[int, list[str]]


class Reported(msgspec.Struct, tag=True):
    told: dict[int, Told]
    cpu_s: float


class Sent(msgspec.Struct, tag=True):
    """`late` is by how many seconds the last message left after its moment."""

    run: int
    sender: int
    late: float


Command: TypeAlias = Open | Begin | Send | Stop | Count | Look | Report | Explain
Answer: TypeAlias = Ready | Done | Opened | Counted | Looked | Reported | Sent


class Asked(msgspec.Struct):
    number: int
    command: Command


class Said(msgspec.Struct):
    """`number` is that of the command; what comes by itself has none."""

    answer: Answer
    number: int = 0


async def lines(stream: trio.abc.ReceiveStream) -> AsyncIterator[bytes]:
    """What comes, line by line, until it ends; half a line at the end is none."""
    rest = bytearray()
    async for data in stream:
        *whole, left = (rest + data).split(b"\n")
        rest = bytearray(left)
        for line in whole:
            yield bytes(line)
