"""py-libp2p's side of `weft bench link`: Noise, Yamux, one stream; run by a Python that has it and none of weft.

    python py_libp2p_link.py "py-libp2p" COUNT 0             the listener: says {"address": ...}, then its figures
    python py_libp2p_link.py "py-libp2p" COUNT 0 ADDRESS     the dialler; "py-libp2p echo" does round trips

One way, a message is a varint of its length and 100 bytes in one `write`, as its own protocols do it. Its own reader of such
frames reads the varint byte by byte; here large reads are cut instead, which costs it less.
"""

# mypy: ignore-errors
from __future__ import annotations

import json
import sys
import time

import trio
from libp2p import new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as Noise
from multiaddr import Multiaddr

PROTOCOL = "/weft/bench/link/1.0.0"
SIZE = 100
PAD = bytes(SIZE - 8)
READ = 1 << 16


class Meter:
    cpu_s = 0.0
    messages = 0

    def start(self) -> None:
        self.cpu_s -= time.process_time()

    def stop(self, messages: int) -> None:
        self.cpu_s += time.process_time()
        self.messages = messages


def say(**said) -> None:
    print(json.dumps(said), flush=True)


def numbered(number: int) -> bytes:
    return number.to_bytes(8, "big") + PAD


def check_number(data: bytes, number: int) -> None:
    if len(data) != SIZE or int.from_bytes(data[:8], "big") != number:
        raise ValueError(f"message {number} was due")


async def exactly(stream, size: int) -> bytes:
    data = await stream.read(size)
    while len(data) < size:
        data += await stream.read(size - len(data))
    return data


async def send(stream, count: int, meter: Meter) -> None:
    await stream.write(b"?")
    await exactly(stream, 1)
    meter.start()
    for number in range(count):
        data = numbered(number)
        await stream.write(bytes([len(data)]) + data)
    meter.stop(int.from_bytes(await exactly(stream, 8), "big"))


async def take(stream, count: int, meter: Meter) -> None:
    await stream.write(await exactly(stream, 1))
    meter.start()
    held, number = b"", 0
    while number < count:
        held += await stream.read(READ)
        at, end = 0, len(held)
        while at < end and (stop := at + 1 + held[at]) <= end:
            check_number(held[at + 1 : stop], number)
            number += 1
            at = stop
        held = held[at:]
    meter.stop(number)
    await stream.write(number.to_bytes(8, "big"))


async def ask(stream, count: int, meter: Meter) -> None:
    await stream.write(numbered(0))
    await exactly(stream, SIZE)
    meter.start()
    for number in range(count):
        await stream.write(numbered(number))
        check_number(await exactly(stream, SIZE), number)
    meter.stop(count)


async def echo(stream, count: int, meter: Meter) -> None:
    await stream.write(await exactly(stream, SIZE))
    meter.start()
    for number in range(count):
        data = await exactly(stream, SIZE)
        check_number(data, number)
        await stream.write(data)
    meter.stop(count)


async def main(name: str, count: int, address: str | None) -> None:
    listen, dial = (echo, ask) if name.endswith("echo") else (take, send)
    meter, over = Meter(), trio.Event()
    keys = create_new_key_pair()
    noise = Noise(keys, noise_privkey=create_noise_key_pair().private_key)
    host = new_host(key_pair=keys, sec_opt={NOISE: noise}, muxer_preference="YAMUX")

    async def serve(stream) -> None:
        await listen(stream, count, meter)
        over.set()

    async with host.run(listen_addrs=[Multiaddr("/ip4/127.0.0.1/tcp/0")]):
        if address is None:
            host.set_stream_handler(PROTOCOL, serve)
            say(address=str(host.get_addrs()[0]))
            await over.wait()
        else:
            info = info_from_p2p_addr(Multiaddr(address))
            await host.connect(info)
            await dial(await host.new_stream(info.peer_id, [PROTOCOL]), count, meter)
        say(messages=meter.messages, cpu_s=meter.cpu_s)
        sys.stdin.read()  # until both have said their figures: closing early would take the other's last message away


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]), sys.argv[4] if len(sys.argv) > 4 else None)
