"""A py-libp2p peer for the interop tests: TCP, Noise, Yamux, identify, ping and floodsub with StrictSign.
With --gossipsub it speaks GossipSub in place of floodsub, and with --degree N has N peers in a mesh.

It listens on 127.0.0.1, prints one line when it is ready, then takes one JSON object a line and answers each with one.
The language is told in tests/interop/foreign.py. Commands are carried out one after the other. Logs go to stderr.
It runs in an environment of its own, with the packages of versions.toml and none of weft's.

What to know of py-libp2p's floodsub:
- Sequence numbers count up from the clock in whole seconds, so three of their eight bytes are zeros in front. js-libp2p's
  floodsub strips them before it checks the signature, and drops every message. Here they count from the clock in nanoseconds.
- 32 messages may wait for a peer, and 32 for a subscriber; what is over that is dropped, and publish() says nothing. Publishing
  never gives way to the sender, so a burst of 200 arrives as 32. Here both bounds are raised.
- Every message carries `key`; an arriving one need not. When `from` holds the key, a `key` beside it is not looked at.
- A publisher hears its own messages. Here they are left out.
- It relays only topics that it has subscribed to itself.
- Every RPC carries a signed peer record in field 4, which no other implementation has: a reader must skip it.
- A dial takes 0.25 s at least.
- It keeps the protocols and addresses that identify tells but not the agent, so `identify` asks the peer once more.

What to know of py-libp2p's gossipsub:
- It has no defaults for its degrees; a heartbeat is 120 s by default, and 30 s at least, whatever was set, where it finds the
  network's health poor. Here it is 1 s as everywhere, and what adapts is off.
- More than 10 messages a second of one peer in a topic are neither passed on nor, being its own, published. Here that is off.
- /meshsub/1.4.0 and 2.0.0, which it knows too, are its own; they are not offered here.
- It grafts at once who subscribes while the mesh has fewer than its least. It takes every GRAFT, with a full mesh too, and prunes
  in the next heartbeat; that PRUNE has no back-off, and it keeps none for itself. To a GRAFT for a topic that it is not in it
  answers with a PRUNE.
- Who has a back-off gets no IHAVE from it.
- IDONTWANT goes to all in the mesh for every message, its own too, and to whom it has it from. It keeps 10 ids a peer until the
  next heartbeat.
- In every heartbeat it may graft two more than it needs (opportunistic grafting); not here with --degree.
- Who subscribes is sent the messages of the last heartbeats.
- The id of a message is as in Go. One that happens to be the ASCII text of a hex number is read as that number.
"""

# mypy: ignore-errors
from __future__ import annotations

import argparse
import functools
import json
import logging
import sys
import time
import traceback
from collections import Counter, defaultdict
from contextlib import AsyncExitStack

import trio
from libp2p import new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.host.ping import PingService
from libp2p.identity.identify.identify import ID as IDENTIFY
from libp2p.identity.identify.pb.identify_pb2 import Identify
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.pubsub import pubsub as libp2p_pubsub
from libp2p.pubsub.floodsub import PROTOCOL_ID as FLOODSUB
from libp2p.pubsub.floodsub import FloodSub
from libp2p.pubsub.gossipsub import PROTOCOL_ID, PROTOCOL_ID_V11, PROTOCOL_ID_V12, PROTOCOL_ID_V13, GossipSub
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as Noise
from libp2p.tools.anyio_service import background_trio_service
from libp2p.utils.varint import read_length_prefixed_protobuf
from multiaddr import Multiaddr

POLL = 0.02
UNBOUNDED = 1_000_000

libp2p_pubsub.SUBSCRIPTION_CHANNEL_SIZE = UNBOUNDED
libp2p_pubsub.RpcQueue = functools.partial(libp2p_pubsub.RpcQueue, max_size=UNBOUNDED)


PROTOCOLS = [PROTOCOL_ID_V13, PROTOCOL_ID_V12, PROTOCOL_ID_V11, PROTOCOL_ID, FLOODSUB]
KINDS = ("graft", "prune", "ihave", "iwant", "idontwant")


class CountedGossipSub(GossipSub):
    """All that it says of control goes through the one method, and all that it hears through the other."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.sent = defaultdict(Counter)
        self.received = defaultdict(Counter)

    def send_rpc(self, peer_id, rpc, priority=False) -> None:
        count(self.sent[peer_id], rpc)
        super().send_rpc(peer_id, rpc, priority)

    async def handle_rpc(self, rpc, sender_peer_id) -> None:
        count(self.received[sender_peer_id], rpc)
        await super().handle_rpc(rpc, sender_peer_id)


def count(counts: Counter, rpc) -> None:
    for kind in KINDS:
        for one in getattr(rpc.control, kind):
            counts[kind] += len(one.messageIDs) if hasattr(one, "messageIDs") else 1


def gossipsub(degree: int | None) -> GossipSub:
    degrees = (6, 4, 12) if degree is None else (degree, degree, degree)
    router = CountedGossipSub(
        PROTOCOLS,
        *degrees,
        heartbeat_interval=1,
        adaptive_gossip_enabled=False,
        spam_protection_enabled=False,
    )
    if degree is not None:
        router.scorer = None  # without which it grafts no more than it needs
    return router


def say(event: str, **fields) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


class Node:
    def __init__(self, host, pubsub, nursery) -> None:
        self.host = host
        self.pubsub = pubsub
        self.nursery = nursery
        self.commands = {
            "dial": self.dial,
            "ping": self.ping,
            "identify": self.identify,
            "subscribe": self.subscribe,
            "peers": self.peers,
            "publish": self.publish,
            "unsubscribe": self.unsubscribe,
            "mesh": self.mesh,
            "control": self.control,
        }

    async def connect(self, addr: str) -> ID:
        info = info_from_p2p_addr(Multiaddr(addr))
        await self.host.connect(info)
        return info.peer_id

    async def dial(self, addr: str) -> None:
        peer = await self.connect(addr)
        say("dialled", peer=peer.to_base58())

    async def ping(self, addr: str) -> None:
        peer = await self.connect(addr)
        start = time.perf_counter()
        await PingService(self.host).ping(peer)
        say("pinged", ms=(time.perf_counter() - start) * 1000)

    async def identify(self, peer: str) -> None:
        who = ID.from_string(peer)
        while not self.host.get_network().get_connections(who):
            await trio.sleep(POLL)
        stream = await self.host.new_stream(who, [IDENTIFY])
        told = Identify.FromString(await read_length_prefixed_protobuf(stream))
        await stream.close()
        addrs = [str(Multiaddr(addr)) for addr in told.listen_addrs]
        say("identified", peer=who.to_base58(), agent=told.agent_version, protocols=list(told.protocols), addrs=addrs)

    async def subscribe(self, topic: str) -> None:
        known = topic in self.pubsub.topic_ids
        subscription = await self.pubsub.subscribe(topic)
        if not known:
            self.nursery.start_soon(self.read, topic, subscription)
        say("subscribed")

    async def read(self, topic: str, subscription) -> None:
        while True:
            try:
                message = await subscription.get()
            except trio.EndOfChannel:  # unsubscribed
                return
            author = ID(message.from_id)
            if author != self.host.get_id():
                say("message", topic=topic, **{"from": author.to_base58()}, data=message.data.decode(errors="replace"))

    async def peers(self, topic: str, count: int) -> None:
        while len(self.pubsub.peer_topics.get(topic, set()) & self.pubsub.peer_queues.keys()) < count:
            await trio.sleep(POLL)
        say("peers")

    async def publish(self, topic: str, data: list[str]) -> None:
        for text in data:
            await self.pubsub.publish(topic, text.encode())
        say("published", count=len(data))

    async def unsubscribe(self, topic: str) -> None:
        await self.pubsub.unsubscribe(topic)
        say("unsubscribed")

    async def mesh(self, topic: str) -> None:
        say("mesh", peers=[peer.to_base58() for peer in self.pubsub.router.mesh.get(topic, ())])

    async def control(self, peer: str) -> None:
        router, who = self.pubsub.router, ID.from_string(peer)
        say("control", sent=router.sent[who], received=router.received[who])

    async def run(self) -> None:
        async for line in trio.wrap_file(sys.stdin):
            name = None
            try:
                command = json.loads(line)
                name = command.pop("do")
                if name == "quit":
                    return
                await self.commands[name](**command)
            except Exception as error:  # noqa: BLE001 - the test that sent the command is told
                traceback.print_exc()
                say("error", do=name, text=repr(error))


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gossipsub", action="store_true")
    parser.add_argument("--degree", type=int)
    options = parser.parse_args()
    logging.basicConfig()
    logging.getLogger("libp2p").propagate = True
    logging.getLogger("libp2p.pubsub").setLevel(logging.DEBUG)  # the only place that tells why a message was dropped
    keys = create_new_key_pair()
    noise = Noise(keys, noise_privkey=create_noise_key_pair().private_key)
    host = new_host(key_pair=keys, sec_opt={NOISE: noise}, muxer_preference="YAMUX")
    async with host.run(listen_addrs=[Multiaddr("/ip4/127.0.0.1/tcp/0")]), trio.open_nursery() as nursery:
        router = gossipsub(options.degree) if options.gossipsub else FloodSub([FLOODSUB])
        pubsub = libp2p_pubsub.Pubsub(host, router, strict_signing=True)
        pubsub.counter = time.time_ns()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(background_trio_service(pubsub))
            if options.gossipsub:
                await stack.enter_async_context(background_trio_service(router))
            await pubsub.wait_until_ready()
            say("ready", peer=host.get_id().to_base58(), addrs=[str(addr) for addr in host.get_addrs()])
            await Node(host, pubsub, nursery).run()
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
