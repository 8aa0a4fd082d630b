"""VCube-PB on real sockets: peers are killed and others join while five publish, and the guarantees hold in the traces of all.

One process and one clock, so the rows of all peers are in the order in which things happened. No time is judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import pytest
import trio

from libweft.bench.runs.property_checks import (
    Event,
    Recorder,
    Story,
    Subscription,
    Violation,
    agreement,
    causal,
    fifo,
    integrity,
    tell,
    validity,
)
from libweft.peer.trace.kinds import DELIVER, NODE_DOWN, PUBLISH
from libweft.peer.trace.tracer import Tracer
from libweft.pubsub.live import api
from libweft.pubsub.live.api import PubSub
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.live]

STACK = "vcube/vcube-pb"
HERE = ("/ip4/127.0.0.1/tcp/0",)
DEADLINE_S = 400
PEERS, PUBLISHERS, MESSAGES, KILLED, JOINING = 32, 5, 20, 4, 4


class Swarm:
    def __init__(self, opened: AsyncExitStack) -> None:
        self.recorder = Recorder()
        self.nodes: list[PubSub] = []
        self.inboxes: dict[PubSub, Any] = {}
        self.done: set[PubSub] = set()
        self._opened = opened

    @contextmanager
    def tracing(self, folder: object, stack: str, buffer: object) -> Iterator[Tracer]:
        yield Tracer(observer=self.recorder, hashed=False)

    async def join(self) -> None:
        """Any peer that is there admits."""
        bootstrap = self.nodes[-1].addresses if self.nodes else ()
        node = await self._opened.enter_async_context(PubSub.open(STACK, bootstrap=bootstrap, listen=HERE))
        self.inboxes[node] = await self._opened.enter_async_context(node.subscribe("t", order="causal", buffer=1_000))
        self.nodes.append(node)

    def kill(self, node: PubSub) -> None:
        self.nodes.remove(node)
        node.driver.stopped = True
        node.host.halt("crash")
        self.recorder.events.append(Event(node.host.peer, NODE_DOWN))

    async def talk(self, node: PubSub) -> None:
        """Each message comes after whatever came before it."""
        for turn in range(MESSAGES):
            if node not in self.nodes:
                return
            await node.publish("t", b"%d" % turn)
            await anext(self.inboxes[node])
        self.done.add(node)

    def count(self, kind: str) -> int:
        return sum(event.kind == kind for event in self.recorder.events)

    def stories(self) -> list[Story]:
        return tell(self.recorder.events)

    async def delivered(self, count: int) -> None:
        await until(lambda: self.count(DELIVER) >= count, lambda: f"{count} deliveries, of {self.count(DELIVER)}")

    async def said(self, speakers: list[PubSub]) -> None:
        while not set(speakers) <= self.done:
            await trio.sleep(0.01)

    async def all_have_all(self, last: int) -> None:
        with trio.move_on_after(DEADLINE_S * 3 / 4):
            while self.lacking(last):
                await trio.sleep(0.1)
        assert self.lacking(last) == []

    def lacking(self, last: int) -> list[Violation]:
        """What the guarantees promise to whoever is there, and of the last messages any: they may wait for what they name."""
        (story,) = told = self.stories()
        final = range(len(story.names) - last, len(story.names))
        gaps = ((history, number) for history in _lasting(told) for number in final if not history.delivered >> number & 1)
        return [*validity(told), *agreement(told), *(Violation(history.node, story.names[number]) for history, number in gaps)]


def _lasting(told: list[Story]) -> list[Subscription]:
    return [history for story in told for history in story.subscriptions if history.ended is None]


async def test_peers_killed_and_joining_break_no_guarantee(monkeypatch: pytest.MonkeyPatch) -> None:
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as talks, AsyncExitStack() as opened:
            swarm = Swarm(opened)
            monkeypatch.setattr(api, "_tracing", swarm.tracing)
            for _ in range(PEERS):
                await swarm.join()
            speakers, silent = swarm.nodes[:PUBLISHERS], swarm.nodes[PUBLISHERS + 3 :: 7]
            for node in speakers:
                talks.start_soon(swarm.talk, node)
            await swarm.delivered(10 * PEERS)
            swarm.kill(speakers[0])
            for node in silent[: KILLED - 1]:
                swarm.kill(node)
            for _ in range(JOINING):
                await swarm.join()
            await swarm.said(speakers[1:])
            assert len(swarm.nodes) == PEERS - KILLED + JOINING
            for node in swarm.nodes[-JOINING:]:
                await node.publish("t", b"here")
            await swarm.all_have_all(JOINING)
            told = swarm.stories()
            assert (causal(told), integrity(told), fifo(told)) == ([], [], [])
            assert swarm.count(PUBLISH) >= (PUBLISHERS - 1) * MESSAGES + JOINING
            assert len(_lasting(told)) == len(swarm.nodes)
            talks.cancel_scope.cancel()
