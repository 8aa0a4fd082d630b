"""One process of a live swarm: runs some of its peers, does what the parent says, and tells what they delivered.

`python -m libweft.bench.perf.swarm.process` speaks `libweft.bench.perf.swarm.messages` on stdin and stdout. Peers are whole nodes
of their own with default options: host, identity, `hyparview/plumtree`, signatures. What they log goes to stderr.

The parent kills it when it has no more use for it, and some in the midst of things, which is what the bench is about. Without a
parent (stdin ends) it ends by itself. CPU time is this process's own, since the last `Begin`.
"""

from __future__ import annotations

import logging
import os
import resource
import sys
import time
from typing import NamedTuple

import msgspec
import trio

from libweft.bench.perf.swarm import messages as words
from libweft.bench.perf.swarm.plan import TOPIC, Tally, payload
from libweft.peer.errors import alone
from libweft.pubsub.live.api import PubSub
from libweft.pubsub.plumtree import Plumtree

LISTEN = ("/ip4/127.0.0.1/tcp/0",)
BUFFER = 1 << 14  # messages: the bench asks what the network loses, so the application's buffer must not be what loses

log = logging.getLogger("libweft.swarm")


def say(answer: words.Answer, number: int = 0) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(words.Said(answer, number)) + b"\n")
    sys.stdout.buffer.flush()


class Member(NamedTuple):
    """A peer of the swarm that runs here."""

    node: PubSub
    tally: Tally


class Process:
    """The peers here, and what is done with each command."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.members: dict[int, Member] = {}
        self.run = 0
        self.sending = trio.CancelScope()
        self.began = time.process_time()

    async def obey(self, command: words.Command) -> words.Answer:
        match command:
            case words.Open():
                return await self._open(command)
            case words.Begin():
                self._begin(command.run)
            case words.Send():
                self.nursery.start_soon(self._send, command)
            case words.Stop():
                self.sending.cancel()
            case words.Count():
                return self._count(command)
            case words.Look():
                return words.Looked({peer: member.node.neighbors for peer, member in self.members.items()})
            case words.Report():
                return self._report()
            case words.Explain():
                self._explain(command.peers)
        return words.Done()

    async def _open(self, command: words.Open) -> words.Opened:
        node: PubSub = await self.nursery.start(self._live, command)
        log.info("peer %d is %s", command.peer, node.peer)
        return words.Opened(node.peer, node.addresses)

    async def _live(self, command: words.Open, task_status: trio.TaskStatus[PubSub] = trio.TASK_STATUS_IGNORED) -> None:
        async with (
            PubSub.open(bootstrap=command.bootstrap, listen=LISTEN) as node,
            node.subscribe(TOPIC, buffer=BUFFER) as messages,
        ):
            member = self.members[command.peer] = Member(node, Tally(command.peer))
            member.tally.begin(self.run)
            task_status.started(node)
            async for message in messages:
                member.tally.note(message.data, _now())

    def _begin(self, run: int) -> None:
        self.run = run
        for member in self.members.values():
            member.tally.begin(run)
        self.began = time.process_time()

    async def _send(self, command: words.Send) -> None:
        with trio.CancelScope() as self.sending:
            async with trio.open_nursery() as nursery:
                for sender, at in command.senders.items():
                    nursery.start_soon(self._publish, sender, at, command)

    async def _publish(self, sender: int, at: float, command: words.Send) -> None:
        node, due = self.members[sender].node, at
        for number in range(command.count):
            due = at + number * command.every
            await trio.sleep(max(0.0, due - time.monotonic()))
            await node.publish(TOPIC, payload(command.run, sender, number, _now(), command.size))
        say(words.Sent(command.run, sender, time.monotonic() - due))

    def _count(self, command: words.Count) -> words.Counted:
        here = [self.members[peer] for peer in command.peers if peer in self.members]
        return words.Counted(sum(member.tally.count(command.senders) for member in here))

    def _report(self) -> words.Reported:
        told = {peer: member.tally.told() for peer, member in self.members.items()}
        return words.Reported(told, time.process_time() - self.began)

    def _explain(self, peers: list[int]) -> None:
        for peer in peers:
            node = self.members[peer].node
            router = node.router
            assert isinstance(router, Plumtree)
            log.info("peer %d: %s, neighbours %s", peer, node.stats(), node.neighbors)
            tree, waiting = router.tree, len(router.awaited) + len(router.asked)
            log.info("peer %d: eager %d, lazy %d, awaits %d", peer, len(tree.eager), len(tree.lazy), waiting)


async def run() -> None:
    with alone():
        async with trio.open_nursery() as nursery:
            process = Process(nursery)
            say(words.Ready())
            async for line in words.lines(trio.lowlevel.FdStream(os.dup(sys.stdin.fileno()))):
                asked = msgspec.json.decode(line, type=words.Asked)
                say(await process.obey(asked.command), asked.number)
            nursery.cancel_scope.cancel()


def _now() -> int:
    return time.monotonic_ns() // 1_000


def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s.%(msecs)03d %(name)s %(message)s", datefmt="%H:%M:%S")
    trio.run(run)


if __name__ == "__main__":
    main()
