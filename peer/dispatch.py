"""What every driver does with the machines of a stack: who gets a message, who answers a request, who hears of a link.

The simulator, the fake wire and a driver on sockets share it, so that they cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from libweft.peer.errors import PeerError, UsageError
from libweft.peer.machine import Lane, Machine, Message, MessageId, Peer, speaks


def receive(machine: Machine, sender: Peer, msg: Message) -> None:
    """Hand a message to its handler; a kind that has none is the sender's fault."""
    handler = machine.handlers.get(type(msg))
    if handler is None:
        raise PeerError(f"{type(machine).__name__} takes no {type(msg).__name__}")
    handler(machine, sender, msg)


def ask(machine: Machine, sender: Peer, msg: Message, reply: Callable[[Message], None]) -> None:
    """Hand a request to what answers it; `reply` hears the answer now or later, and refuses a second one."""
    answerer = machine.answerers.get(type(msg))
    if answerer is None:
        raise PeerError(f"{type(machine).__name__} answers no {type(msg).__name__}")
    answerer(machine, sender, msg, _once(reply))


def told(mine: Sequence[Machine], theirs: Sequence[Machine]) -> list[tuple[Machine, str]]:
    """My machines that hear of a link between two stacks, and by which protocol; one that names none hears of all."""
    return told_by(mine, [protocol for machine in theirs if machine.serves for protocol in machine.protocols])


def told_by(mine: Sequence[Machine], theirs: Sequence[str]) -> list[tuple[Machine, str]]:
    """The same, where only the protocols of the other side are known."""
    spoken = [protocol for machine in mine for protocol in machine.protocols]
    common = [protocol for protocol in theirs if protocol in spoken]
    named = [(machine, (*machine.protocols, *machine.watches)) for machine in mine]
    agreed = [(machine, speaks(names, common) if names else "") for machine, names in named]
    return [(machine, protocol) for machine, protocol in agreed if protocol is not None]


def hears(machine: Machine, mine: Sequence[Machine], theirs: Sequence[Machine]) -> bool:
    return any(hearer is machine for hearer, _ in told(mine, theirs))


def twin(machine: Machine, theirs: Sequence[Machine]) -> Machine | None:
    """The machine of the other stack that speaks this one's protocol. If it does not serve, it takes answers and nothing else."""
    return next((other for other in theirs if speaks(machine.protocols, other.protocols)), None)


def about(msg: Message) -> tuple[str | None, MessageId | None]:
    """By what a trace knows a message: a payload has a topic and an id, control traffic has neither."""
    return (msg.topic, msg.id) if msg.lane is Lane.PAYLOAD else (None, None)  # type: ignore[attr-defined]


def _once(reply: Callable[[Message], None]) -> Callable[[Message], None]:
    replies: list[Message] = []

    def first(msg: Message) -> None:
        if replies:
            raise UsageError("a request is answered once")
        replies.append(msg)
        reply(msg)

    return first
