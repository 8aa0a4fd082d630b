"""The process of one weft case of `weft bench live`: all nodes on loopback, messages among them, and what they cost.

`python -m libweft.bench.perf.live_side PLAN`: the plan is one JSON object, made by `libweft.bench.perf.live`; the answer is one
line of JSON. Every node subscribes, and they publish in turn; a delivery is a message handed to a subscriber other than its
publisher. The parts, in order: all nodes up, and with GossipSub their meshes; a warm-up, one message at a time; memory; messages
at a fixed rate, whose latencies are from the publish call to the subscriber's hands; the burst, whose CPU and wall time are from
the first publish call to the last delivery. A part ends when all its deliveries have come, or none has for PATIENCE_S seconds;
what has not come by then is lost, and its time ends with the last delivery, as near as POLL_S tells.

With `profiled` it samples whose code runs in the burst, as `weft bench link --profile` does.
Bounds: LIMIT_S seconds in all.
"""

from __future__ import annotations

import sys
import time
from array import array
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from types import FrameType
from typing import Any, TypeAlias

import msgspec
import trio

from libweft.bench.perf.link_sides import Meter, say
from libweft.bench.perf.link_sides import part_of as part_below
from libweft.bench.perf.load import rss_kb
from libweft.peer.errors import WeftError
from libweft.pubsub.gossipsub.router import GossipSub
from libweft.pubsub.live.api import PubSub

HERE = "/ip4/127.0.0.1/tcp/0"
TOPIC = "bench"
NUMBER = 4  # bytes that a message begins with
PATIENCE_S = 10.0
POLL_S = 0.1
LIMIT_S = 280

PARTS = {
    "libweft.peer.libp2p.ids": "signatures",
    "libweft.pubsub.signing": "signatures",
    "libweft.pubsub.rpc": "codec",
    "libweft.pubsub.live.api": "api",
    "libweft.pubsub.live.subscription": "api",
    "libweft.pubsub.live.validate": "api",
    "libweft.pubsub.seen": "router",
    "libweft.pubsub.router": "router",
    "libweft.pubsub.flood": "router",
    "libweft.pubsub.plumtree": "router",
    **{
        f"libweft.pubsub.gossipsub.{name}": "router"
        for name in ("router", "mesh", "gossip", "mcache", "ids", "contacts", "filters")
    },
    **{
        f"libweft.pubsub.gossipsub.{name}": "score"
        for name in ("peer_policy", "score", "counters", "deliveries", "promises", "gater")
    },
    "libweft.pubsub.gossipsub.wire": "codec",
    "libweft.pubsub.message": "router",
    "libweft.pubsub.ordering.order": "router",
    "libweft.pubsub.ordering.fifo": "router",
    "libweft.overlays.overlay": "overlay",
    "libweft.overlays.static": "overlay",
    "libweft.overlays.hyparview.machine": "overlay",
    "libweft.overlays.xbot": "overlay",
    "__main__": "the bench itself",
}


class Plan(msgspec.Struct, frozen=True):
    stack: str
    nodes: int
    edges: tuple[tuple[int, int], ...]  # of the graph, for overlays that do not make their own; the lower number first
    size: int
    warmup: int
    burst: int
    rate: float  # messages a second, all nodes together
    paced: int  # messages at that rate
    profiled: bool = False

    @property
    def messages(self) -> int:
        return self.warmup + self.paced + self.burst


class Tally:
    """Who got which message, from number `first` on; each counts once."""

    def __init__(self, nodes: int, first: int, count: int) -> None:
        self.nodes = nodes
        self.first = first
        self.count = count
        self.due = count * (nodes - 1)
        self.deliveries = 0
        self.doubled = 0
        self.ms = array("d")
        self.full: Callable[[], None] = _nothing
        self._got = bytearray(nodes * count)
        self._sent_at = array("d", bytes(8 * count))

    def sends(self, number: int) -> None:
        self._sent_at[number - self.first] = time.perf_counter()

    def took(self, node: int, data: bytes) -> None:
        number = int.from_bytes(data[:NUMBER])
        place = number - self.first
        if number % self.nodes == node or not 0 <= place < self.count:  # its own, or of a part that is over
            return
        at = place * self.nodes + node
        if self._got[at]:
            self.doubled += 1
            return
        self._got[at] = 1
        self.ms.append(1_000 * (time.perf_counter() - self._sent_at[place]))
        self.deliveries += 1
        if self.deliveries == self.due:
            self.full()


class Sampler(Meter):
    """A Meter that knows the parts above `peer` too."""

    def _sample(self, number: int, frame: FrameType | None) -> None:
        while frame is not None:
            module, function = frame.f_globals.get("__name__", ""), frame.f_code.co_qualname
            if part_of(module, function) != "other":
                self.samples[f"{module}:{function}"] += 1
                return
            frame = frame.f_back
        self.samples["other:"] += 1


def part_of(module: str, function: str) -> str:
    return PARTS.get(module) or part_below(module, function)


Publish: TypeAlias = Callable[[int, bytes], Awaitable[object]]


class Run:
    """Publishes to the network part by part; `tally` is that of the part under way."""

    def __init__(self, plan: Plan, publish: Publish) -> None:
        self.tally = Tally(plan.nodes, 0, 0)
        self.plan = plan
        self._publish = publish
        self._next = 0

    async def warm_up(self) -> None:
        """One message at a time, so that each has arrived before the next shapes a tree or a mesh."""
        for _ in range(self.plan.warmup):
            await self._part(1, 0.0, Meter(False))

    async def paced(self) -> dict[str, Any]:
        return await self._part(self.plan.paced, 1 / self.plan.rate, Meter(False))

    async def burst(self) -> dict[str, Any]:
        return await self._part(self.plan.burst, 0.0, Sampler(self.plan.profiled))

    async def _part(self, count: int, every: float, meter: Meter) -> dict[str, Any]:
        tally = self.tally = Tally(self.plan.nodes, self._next, count)
        self._next += count
        clock = Clock(tally, meter)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(clock.watch)
            await self._send(tally, every)
            clock.all_sent = True
        came = {"due": tally.due, "deliveries": tally.deliveries, "doubled": tally.doubled}
        return {**came, "cpu_s": clock.cpu_s, "wall_s": clock.wall_s, "ms": tally.ms.tolist(), "samples": meter.samples}

    async def _send(self, tally: Tally, every: float) -> None:
        began = trio.current_time()
        pad = bytes(self.plan.size - NUMBER)
        for place in range(tally.count):
            if every:
                await trio.sleep_until(began + place * every)
            number = tally.first + place
            tally.sends(number)
            await self._publish(number % tally.nodes, number.to_bytes(NUMBER) + pad)


class Clock:
    """CPU and wall time of a part, until its last delivery."""

    def __init__(self, tally: Tally, meter: Meter) -> None:
        self.all_sent = False
        self.cpu_s = self.wall_s = 0.0
        self._tally = tally
        self._meter = meter
        self._done = trio.Event()
        tally.full = self._full
        self._began = time.perf_counter(), time.process_time()
        meter.start()

    async def watch(self) -> None:
        """The time is noted at the first look that finds more deliveries than the last."""
        seen, quiet = -1, 0.0
        while quiet < PATIENCE_S and not self._done.is_set():
            if self._tally.deliveries != seen or not self.all_sent:
                seen, quiet = self._tally.deliveries, 0.0
                self._note()
            with trio.move_on_after(POLL_S):
                await self._done.wait()
            quiet += POLL_S
        self._meter.stop(self._tally.deliveries)

    def _full(self) -> None:
        self._note()
        self._done.set()

    def _note(self) -> None:
        wall, cpu = self._began
        self.wall_s, self.cpu_s = time.perf_counter() - wall, time.process_time() - cpu


def _nothing() -> None: ...


async def main(plan: Plan) -> None:
    base = rss_kb()
    began = trio.current_time()
    async with AsyncExitStack() as stack:
        nodes = await open_nodes(plan, stack)
        run = Run(plan, lambda node, data: nodes[node].publish(TOPIC, data))
        async with trio.open_nursery() as nursery:
            for number, node in enumerate(nodes):
                await nursery.start(take, number, node, run)
            await connected(plan, nodes)
            up_s = trio.current_time() - began
            await run.warm_up()
            memory = {"base_kb": base, "rss_kb": rss_kb()}
            parts = {"paced": await run.paced(), "burst": await run.burst()}
            nursery.cancel_scope.cancel()
    say({"up_s": up_s, **memory, **parts})


async def open_nodes(plan: Plan, stack: AsyncExitStack) -> list[PubSub]:
    nodes: list[PubSub] = []
    for number in range(plan.nodes):
        bootstrap = [nodes[contact].addresses[0] for contact in contacts(plan, number)]
        nodes.append(await stack.enter_async_context(PubSub.open(plan.stack, bootstrap=bootstrap, listen=[HERE])))
    return nodes


def contacts(plan: Plan, number: int) -> Sequence[int]:
    """A static overlay is the graph of the plan; others make their own, from the first node on."""
    if plan.stack.startswith("static/"):
        return [lower for lower, higher in plan.edges if higher == number]
    return [0] if number else []


async def connected(plan: Plan, nodes: Sequence[PubSub]) -> None:
    for number, node in enumerate(nodes):
        due = sum(number in edge for edge in plan.edges) if plan.stack.startswith("static/") else min(3, plan.nodes - 1)
        await node.neighbors_up(due)
        while isinstance(node.router, GossipSub) and not meshed(node.router, due):
            await trio.sleep(POLL_S)


def meshed(router: GossipSub, due: int) -> bool:
    """Whether so many neighbours are known to subscribe, and of them the mesh has as many as it wants at least."""
    known, mesh = router.subscribers.get(TOPIC, {}), router.meshes.topics[TOPIC].peers
    return len(known) >= due and len(mesh) >= min(router.config.d_lo, len(known))


async def take(number: int, node: PubSub, run: Run, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """The buffer holds all there is: the bench asks what the network loses, so the application must not be what loses."""
    async with node.subscribe(TOPIC, buffer=run.plan.messages) as messages:
        task_status.started()
        async for message in messages:
            run.tally.took(number, message.data)


async def limited(plan: Plan) -> None:
    with trio.move_on_after(LIMIT_S):
        await main(plan)
        return
    raise WeftError(f"{plan.stack}: not done in {LIMIT_S} s")


if __name__ == "__main__":
    trio.run(limited, msgspec.json.decode(sys.argv[1], type=Plan))
