"""py-libp2p's GossipSub in `weft bench live`: all nodes in this process; run by a Python that has it and none of weft.

    python py_libp2p_live.py PLAN

The plan is that of bench/perf/live_side.py, and so are the parts, the counting and the answer.

Noise, Yamux, Ed25519, strict signing, `/meshsub/1.1.0`, the usual degrees (6, 4, 12) and a heartbeat a second. Links are those of
the plan's graph. As it comes, a burst is lost: ten messages a second and topic are let through, 32 may wait for a peer and 32
for a subscriber, and publish() says nothing. So the spam protection is off, and both queues are as good as unbounded.
"""

# mypy: ignore-errors
from __future__ import annotations

import functools
import json
import logging
import sys
import time
from array import array
from contextlib import AsyncExitStack

import trio
from libp2p import new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.pubsub import pubsub as libp2p_pubsub
from libp2p.pubsub.gossipsub import GossipSub
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as Noise
from libp2p.tools.anyio_service import background_trio_service
from multiaddr import Multiaddr

TOPIC = "bench"
MESHSUB = "/meshsub/1.1.0"
NUMBER = 4
UNBOUNDED = 1_000_000
DIALS = 8  # at once: each waits a quarter of a second for nothing
PATIENCE_S = 10.0
POLL_S = 0.1
LIMIT_S = 280

libp2p_pubsub.SUBSCRIPTION_CHANNEL_SIZE = UNBOUNDED
libp2p_pubsub.RpcQueue = functools.partial(libp2p_pubsub.RpcQueue, max_size=UNBOUNDED)


class Tally:
    def __init__(self, nodes: int, first: int, count: int) -> None:
        self.nodes = nodes
        self.first = first
        self.count = count
        self.due = count * (nodes - 1)
        self.deliveries = 0
        self.doubled = 0
        self.ms = array("d")
        self.full = lambda: None
        self.got = bytearray(nodes * count)
        self.sent_at = array("d", bytes(8 * count))

    def took(self, node: int, data: bytes) -> None:
        number = int.from_bytes(data[:NUMBER], "big")
        place = number - self.first
        if number % self.nodes == node or not 0 <= place < self.count:
            return
        at = place * self.nodes + node
        if self.got[at]:
            self.doubled += 1
            return
        self.got[at] = 1
        self.ms.append(1_000 * (time.perf_counter() - self.sent_at[place]))
        self.deliveries += 1
        if self.deliveries == self.due:
            self.full()


class Clock:
    def __init__(self, tally: Tally) -> None:
        self.all_sent = False
        self.tally = tally
        self.done = trio.Event()
        tally.full = self.is_full
        self.began = time.perf_counter(), time.process_time()

    async def watch(self) -> None:
        seen, quiet = -1, 0.0
        while quiet < PATIENCE_S and not self.done.is_set():
            if self.tally.deliveries != seen or not self.all_sent:
                seen, quiet = self.tally.deliveries, 0.0
                self.note()
            with trio.move_on_after(POLL_S):
                await self.done.wait()
            quiet += POLL_S

    def is_full(self) -> None:
        self.note()
        self.done.set()

    def note(self) -> None:
        wall, cpu = self.began
        self.wall_s, self.cpu_s = time.perf_counter() - wall, time.process_time() - cpu


class Run:
    def __init__(self, plan: dict, nodes: list) -> None:
        self.plan = plan
        self.nodes = nodes
        self.next = 0
        self.tally = Tally(len(nodes), 0, 0)

    async def part(self, count: int, every: float) -> dict:
        tally = self.tally = Tally(len(self.nodes), self.next, count)
        self.next += count
        clock = Clock(tally)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(clock.watch)
            await self.send(tally, every)
            clock.all_sent = True
        came = {"due": tally.due, "deliveries": tally.deliveries, "doubled": tally.doubled}
        return {**came, "cpu_s": clock.cpu_s, "wall_s": clock.wall_s, "ms": tally.ms.tolist(), "samples": {}}

    async def send(self, tally: Tally, every: float) -> None:
        began = trio.current_time()
        pad = bytes(self.plan["size"] - NUMBER)
        for place in range(tally.count):
            if every:
                await trio.sleep_until(began + place * every)
            number = tally.first + place
            tally.sent_at[place] = time.perf_counter()
            await self.nodes[number % tally.nodes].publish(TOPIC, number.to_bytes(NUMBER, "big") + pad)


async def open_node(stack: AsyncExitStack):
    keys = create_new_key_pair()
    noise = Noise(keys, noise_privkey=create_noise_key_pair().private_key)
    host = new_host(key_pair=keys, sec_opt={NOISE: noise}, muxer_preference="YAMUX")
    await stack.enter_async_context(host.run(listen_addrs=[Multiaddr("/ip4/127.0.0.1/tcp/0")]))
    router = GossipSub([MESHSUB], 6, 4, 12, heartbeat_interval=1, spam_protection_enabled=False)
    pubsub = libp2p_pubsub.Pubsub(host, router, strict_signing=True)
    await stack.enter_async_context(background_trio_service(pubsub))
    await stack.enter_async_context(background_trio_service(router))
    await pubsub.wait_until_ready()
    return pubsub


async def connect(nodes: list, edges: list) -> None:
    limit = trio.CapacityLimiter(DIALS)

    async def dial(one: int, other: int) -> None:
        async with limit:
            await nodes[other].host.connect(info_from_p2p_addr(nodes[one].host.get_addrs()[0]))

    async with trio.open_nursery() as nursery:
        for edge in edges:
            nursery.start_soon(dial, *edge)


async def meshed(nodes: list, edges: list) -> None:
    """Until each knows that all its neighbours subscribe, and has a mesh of as many as it wants at least."""
    for number, node in enumerate(nodes):
        degree = sum(number in edge for edge in edges)
        while len(node.peer_topics.get(TOPIC, set()) & node.peer_queues.keys()) < degree or len(
            node.router.mesh.get(TOPIC, ())
        ) < min(degree, node.router.degree_low):
            await trio.sleep(POLL_S)


async def take(number: int, subscription, run: Run) -> None:
    while True:
        message = await subscription.get()
        run.tally.took(number, message.data)


def rss_kb() -> int:
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("VmRSS:")).split()[1])


async def main(plan: dict) -> None:
    base, began = rss_kb(), trio.current_time()
    async with AsyncExitStack() as stack:
        nodes = [await open_node(stack) for _ in range(plan["nodes"])]
        run = Run(plan, nodes)
        async with trio.open_nursery() as nursery:
            for number, node in enumerate(nodes):
                nursery.start_soon(take, number, await node.subscribe(TOPIC), run)
            await connect(nodes, plan["edges"])
            await meshed(nodes, plan["edges"])
            said = {"up_s": trio.current_time() - began}
            for _ in range(plan["warmup"]):
                await run.part(1, 0.0)
            said |= {"base_kb": base, "rss_kb": rss_kb()}
            said["paced"] = await run.part(plan["paced"], 1 / plan["rate"])
            said["burst"] = await run.part(plan["burst"], 0.0)
            print(json.dumps(said), flush=True)
            nursery.cancel_scope.cancel()


async def limited(plan: dict) -> None:
    with trio.fail_after(LIMIT_S):
        await main(plan)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    trio.run(limited, json.loads(sys.argv[1]))
