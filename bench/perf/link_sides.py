"""One of the two processes of `weft bench link`: sends or receives, by weft or by bare TCP, and tells what it spent.

`python -m libweft.bench.perf.link_sides CASE COUNT PROFILED [ADDRESS]`: without an address it listens, and says where. It ends
with one line of JSON: messages, CPU seconds, and samples of whose code ran.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import FrameType
from typing import Any, TypeAlias

import trio

from libweft.peer.errors import PeerError, WeftError
from libweft.peer.libp2p.address import Address
from libweft.peer.libp2p.ids import Identity
from libweft.peer.live.driver import run_stack
from libweft.peer.live.host import Host, open_host
from libweft.peer.live.link import Stream
from libweft.peer.machine import SECOND, Build, Env, Machine, Message, Peer, Reply, answers, upon
from libweft.peer.machine import Link as MachineLink

HERE = "127.0.0.1"
SIZE = 100
PAD = bytes(SIZE - 8)
JOINED = 1 << 16
QUEUED = 1 << 18  # bytes that the sender lets wait: more than one flush takes, so that `drained` will come
LIMIT_S = 600
SAMPLE_S = 0.001

PARTS = {
    "libweft.peer.libp2p.noise": "cipher",
    "libweft.peer.libp2p.yamux": "yamux",
    "libweft.peer.libp2p.frame": "framing",
    "libweft.peer.codec": "codec",
    "libweft.peer.dispatch": "dispatch",
    "libweft.peer.libp2p.multistream": "multistream",
    "libweft.peer.live.link": "link",
    "libweft.peer.live.host": "driver and outbox",
    "libweft.peer.live.driver": "driver and outbox",
    "libweft.peer.live.outbox": "driver and outbox",
    "libweft.peer.machine": "driver and outbox",
    "libweft.peer.live.transport": "system calls",  # around `send` and `recv` it has a line or two
    "trio._core._io_epoll": "system calls",
    "__main__": "the machine itself",
}


class Meter:
    """CPU time of this process between `start` and `stop`, and with `profiled` whose code spent it."""

    def __init__(self, profiled: bool) -> None:
        self.cpu_s = 0.0
        self.messages = 0
        self.samples: Counter[str] = Counter()
        self._profiled = profiled

    def start(self) -> None:
        if self._profiled:
            signal.signal(signal.SIGPROF, self._sample)
            signal.setitimer(signal.ITIMER_PROF, SAMPLE_S, SAMPLE_S)
        self.cpu_s -= time.process_time()

    def stop(self, messages: int) -> None:
        self.cpu_s += time.process_time()
        self.messages = messages
        if self._profiled:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def _sample(self, number: int, frame: FrameType | None) -> None:
        """Count the innermost function that belongs to a part; the standard library works for whoever called it."""
        while frame is not None:
            module, function = frame.f_globals.get("__name__", ""), frame.f_code.co_qualname
            if part_of(module, function) != "other":
                self.samples[f"{module}:{function}"] += 1
                return
            frame = frame.f_back
        self.samples["other:"] += 1


def part_of(module: str, function: str) -> str:
    if module == "libweft.peer.live.driver" and function.startswith("Inlet."):
        return "dispatch"
    return PARTS.get(module) or ("trio" if module.partition(".")[0] in ("trio", "outcome") else "other")


Side: TypeAlias = Callable[[int, Meter, str | None], Awaitable[None]]
OnTcp: TypeAlias = Callable[[trio.SocketStream, int, Meter], Awaitable[None]]


def say(said: dict[str, Any]) -> None:
    print(json.dumps(said), flush=True)


def numbered(number: int) -> bytes:
    return number.to_bytes(8) + PAD


def check_number(data: bytes, number: int) -> None:
    if len(data) != SIZE or int.from_bytes(data[:8]) != number:
        raise WeftError(f"message {number} was due, and {int.from_bytes(data[:8])} came, of {len(data)} bytes")


class Begin(Message, frozen=True, tag=0):
    """Asks for Go: the clocks start."""


class Go(Message, frozen=True, tag=1): ...


class Numbered(Message, frozen=True, tag=2):
    data: bytes


class Answer(Message, frozen=True, tag=3):
    data: bytes


class Done(Message, frozen=True, tag=4):
    count: int


class Bench(Machine):
    """Either side of a weft case: the dialler, which has a `target`, is over when it is done, the listener when that has left."""

    protocols = ("/weft/bench/link/1.0.0",)

    def __init__(self, env: Env, count: int, meter: Meter, over: trio.Event, target: Peer | None) -> None:
        super().__init__(env)
        self.count = count
        self.meter = meter
        self.over = over
        self.target = target
        self.next = 0

    def start(self) -> None:
        if self.target is not None:
            self.env.connect(self.target)

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        if self.next < self.count:
            raise WeftError(f"the link went down: {reason}")
        self.over.set()

    def check(self, data: bytes) -> None:
        check_number(data, self.next)
        self.next += 1


class Sender(Bench):
    def link_up(self, peer: Peer, link: MachineLink) -> None:
        self.env.send(peer, Begin())

    @upon(Go)
    def _go(self, sender: Peer, msg: Go) -> None:
        self.meter.start()
        self.drained(sender)

    def drained(self, peer: Peer) -> None:
        env, last = self.env, self.count
        while self.next < last and env.backlog(peer) < QUEUED:
            env.send(peer, Numbered(numbered(self.next)))
            self.next += 1

    @upon(Done)
    def _done(self, sender: Peer, msg: Done) -> None:
        self.meter.stop(msg.count)
        self.over.set()


class Receiver(Bench):
    @upon(Begin)
    def _begin(self, sender: Peer, msg: Begin) -> None:
        self.env.send(sender, Go())
        self.meter.start()

    @upon(Numbered)
    def _numbered(self, sender: Peer, msg: Numbered) -> None:
        self.check(msg.data)
        if self.next == self.count:
            self.meter.stop(self.next)
            self.env.send(sender, Done(self.next))


class Asker(Bench):
    def link_up(self, peer: Peer, link: MachineLink) -> None:
        self.env.request(peer, Begin(), LIMIT_S * SECOND, self._go, self._failed)

    @upon(Go)  # as a reply; nobody sends it otherwise
    def _go(self, peer: Peer, reply: Go) -> None:
        self.meter.start()
        self._ask(peer)

    def _ask(self, peer: Peer) -> None:
        self.env.request(peer, Numbered(numbered(self.next)), LIMIT_S * SECOND, self._answered, self._failed)

    @upon(Answer)
    def _answered(self, peer: Peer, reply: Answer) -> None:
        self.check(reply.data)
        if self.next < self.count:
            self._ask(peer)
        else:
            self.meter.stop(self.next)
            self.over.set()

    def _failed(self, peer: Peer, reason: str) -> None:
        raise WeftError(f"a request failed: {reason}")


class Answerer(Bench):
    @answers(Begin, Go)
    def _begin(self, sender: Peer, msg: Begin, reply: Reply) -> None:
        reply(Go())
        self.meter.start()

    @answers(Numbered, Answer)
    def _numbered(self, sender: Peer, msg: Numbered, reply: Reply) -> None:
        self.check(msg.data)
        reply(Answer(msg.data))
        if self.next == self.count:
            self.meter.stop(self.next)


async def weft_machines(listener: type[Bench], dialler: type[Bench], count: int, meter: Meter, address: str | None) -> None:
    over = trio.Event()
    machines: list[Bench] = []
    target = Address.parse(address) if address is not None else None

    def build(env: Callable[[], Env]) -> Sequence[Machine]:
        kind = listener if target is None else dialler
        machines.append(kind(env(), count, meter, over, target.peer if target is not None else None))
        return machines

    async with open_host(Identity.new(), listen=_listen_on(address)) as host:
        if target is not None and target.peer is not None:
            host.learn(target.peer, [target])
        await _run(host, build, over)


async def _run(host: Host, build: Build, over: trio.Event) -> None:
    async with run_stack(host, build):
        if host.addresses:
            say({"address": str(host.addresses[0])})
        await over.wait()


async def weft_stream(count: int, meter: Meter, address: str | None) -> None:
    protocol, over = "/weft/bench/echo/1.0.0", trio.Event()

    async def serve(stream: Stream) -> None:
        try:
            await echo(stream, count, meter)
            await stream.receive_some()  # until the dialler leaves
        finally:
            over.set()

    async with open_host(Identity.new(), listen=_listen_on(address)) as host:
        if address is None:
            host.handle(protocol, serve)
            say({"address": str(host.addresses[0])})
            await over.wait()
        else:
            async with await host.open_stream(address, [protocol]) as stream:
                await ask(stream, count, meter)


def _listen_on(address: str | None) -> list[str]:
    return [f"/ip4/{HERE}/tcp/0"] if address is None else []


async def echo(stream: trio.abc.Stream, count: int, meter: Meter) -> None:
    """The listener's side of round trips; the first is not counted."""
    await stream.send_all(await exactly(stream, SIZE))
    meter.start()
    for number in range(count):
        data = await exactly(stream, SIZE)
        check_number(data, number)
        await stream.send_all(data)
    meter.stop(count)


async def ask(stream: trio.abc.Stream, count: int, meter: Meter) -> None:
    await stream.send_all(numbered(0))
    await exactly(stream, SIZE)
    meter.start()
    for number in range(count):
        await stream.send_all(numbered(number))
        check_number(await exactly(stream, SIZE), number)
    meter.stop(count)


async def exactly(stream: trio.abc.Stream, size: int) -> bytes:
    data = bytes(await stream.receive_some(size))
    while len(data) < size:
        more = await stream.receive_some(size - len(data))
        if not more:
            raise PeerError("the stream ended early")
        data += more
    return data


async def tcp(listen: OnTcp, dial: OnTcp, count: int, meter: Meter, address: str | None) -> None:
    if address is not None:
        host, _, port = address.rpartition(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await dial(stream, count, meter)
        return
    [listener] = await trio.open_tcp_listeners(0, host=HERE)
    async with listener:
        say({"address": "{}:{}".format(*listener.socket.getsockname()[:2])})
        async with await listener.accept() as stream:
            await listen(stream, count, meter)


async def send_each(stream: trio.SocketStream, count: int, meter: Meter) -> None:
    await _begin(stream, meter)
    for number in range(count):
        data = numbered(number)
        await stream.send_all(len(data).to_bytes(4) + data)
    meter.stop(int.from_bytes(await exactly(stream, 8)))


async def send_joined(stream: trio.SocketStream, count: int, meter: Meter) -> None:
    await _begin(stream, meter)
    joined = bytearray()
    for number in range(count):
        data = numbered(number)
        joined += len(data).to_bytes(4)
        joined += data
        if len(joined) >= JOINED:
            await stream.send_all(joined)
            joined = bytearray()
    await stream.send_all(joined)
    meter.stop(int.from_bytes(await exactly(stream, 8)))


async def _begin(stream: trio.SocketStream, meter: Meter) -> None:
    await stream.send_all(b"?")
    await exactly(stream, 1)
    meter.start()


async def take_each(stream: trio.SocketStream, count: int, meter: Meter) -> None:
    await stream.send_all(await exactly(stream, 1))
    meter.start()
    for number in range(count):
        size = int.from_bytes(await exactly(stream, 4))
        check_number(await exactly(stream, size), number)
    meter.stop(count)
    await stream.send_all(count.to_bytes(8))


async def take_joined(stream: trio.SocketStream, count: int, meter: Meter) -> None:
    await stream.send_all(await exactly(stream, 1))
    meter.start()
    held, number = b"", 0
    while number < count:
        more = await stream.receive_some(JOINED)
        if not more:
            raise PeerError("the stream ended early")
        held += more
        at, end = 0, len(held)
        while at + 4 <= end and (stop := at + 4 + int.from_bytes(held[at : at + 4])) <= end:
            check_number(held[at + 4 : stop], number)
            number += 1
            at = stop
        held = held[at:]
    meter.stop(number)
    await stream.send_all(number.to_bytes(8))


SIDES: dict[str, Side] = {
    "weft": partial(weft_machines, Receiver, Sender),
    "weft request": partial(weft_machines, Answerer, Asker),
    "weft stream": weft_stream,
    "tcp": partial(tcp, take_each, send_each),
    "tcp joined": partial(tcp, take_joined, send_joined),
    "tcp echo": partial(tcp, echo, ask),
}


async def side(name: str, count: int, profiled: bool, address: str | None) -> None:
    meter = Meter(profiled)
    with trio.fail_after(LIMIT_S):
        await SIDES[name](count, meter, address)
    say({"messages": meter.messages, "cpu_s": meter.cpu_s, "samples": meter.samples})


if __name__ == "__main__":
    trio.run(side, sys.argv[1], int(sys.argv[2]), bool(int(sys.argv[3])), sys.argv[4] if len(sys.argv) > 4 else None)
