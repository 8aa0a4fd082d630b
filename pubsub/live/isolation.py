"""A node that nobody hears: why, as far as a dial of its first bootstrap peer tells, and a warning of it.

A node may be alone for a reason: the others come later. So it is warned of once, in the log, and goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from libweft.peer.errors import UsageError, WeftError

if TYPE_CHECKING:
    from libweft.pubsub.live.api import PubSub

log = logging.getLogger("libweft.pubsub")

WARN_S = 10.0  # a guess: a join takes a second or two
DIAL_S = 5.0


async def warn(node: PubSub, bootstrap: Sequence[str], stack: str) -> None:
    """Who has no bootstrap peer is the first, and waits for others."""
    with suppress(UsageError):  # the node was closed meanwhile
        if bootstrap and await nobody(node, WARN_S):
            log.warning("no neighbour in %g s, and this node goes on waiting; %s", WARN_S, await why(node, bootstrap, stack))


async def nobody(node: PubSub, seconds: float) -> bool:
    """Whether no neighbour came that speaks the router's protocol."""
    with trio.move_on_after(seconds) as limit:
        await node.neighbors_up()
    return limit.cancelled_caught


async def why(node: PubSub, bootstrap: Sequence[str], stack: str) -> str:
    if not bootstrap:
        return f"nobody dialled {' '.join(node.addresses)}"
    try:
        with trio.fail_after(DIAL_S):
            await node.host.connect(bootstrap[0])
    except (WeftError, trio.TooSlowError) as error:
        text = str(error) or "no answer"
        return text if bootstrap[0] in text else f"{bootstrap[0]}: {text}"  # most errors of a dial name it
    serves = ", and is it a server and no client" if stack.startswith("kademlia/") else ""
    return f"{bootstrap[0]} is up: does it run {stack}{serves}?"
