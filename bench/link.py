"""`weft bench link`: what a message costs between two processes on loopback, beside bare TCP on trio and beside py-libp2p.

Machines are shared and noisy, so every figure is CPU time of both processes together; the cases take turns, each in two
processes of its own, and medians of a repetition's ratios are what counts. A message is 100 bytes that begin with its number;
receivers check every number, so a message that was lost, doubled or overtaken ends the bench.

One way: `weft` is a machine that sends through the driver (Noise, Yamux, default config) and waits for `drained` when enough is
queued; `tcp` is one `send_all` a message and a reader that reads frame by frame; `tcp joined` writes 64 KiB at a time and cuts
frames out of large reads: the most that trio can do, and without a cipher; `py-libp2p` writes once a message and cuts large
reads. Round trips, one at a time: `weft request` is `Env.request`, a stream each; the others echo on one stream.

Counted is the time between two signals: the listener starts its clock when a first message has come, the dialler when that was
answered; the listener stops at the last message, the dialler when it hears so. Dialling and handshakes come before.

`--profile` interrupts the weft cases each millisecond of CPU time (as often as the kernel's clock allows) and notes whose code
runs. C code counts for the Python function that called it: the cipher is under `cipher`, the kernel under `system calls`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from types import FrameType, TracebackType
from typing import Any, TypeAlias

import trio

from bench.show import Report
from peer.address import Address
from peer.driver import run_stack
from peer.errors import PeerError, UsageError, WeftError
from peer.host import Host, open_host
from peer.ids import Identity
from peer.link import Stream
from peer.machine import SECOND, Build, Env, Machine, Message, Peer, Reply, answers, upon
from peer.machine import Link as MachineLink

ROOT = Path(__file__).resolve().parent.parent
RIVAL = Path(__file__).resolve().parent / "rivals" / "py_libp2p_link.py"
HERE = "127.0.0.1"
SIZE = 100
PAD = bytes(SIZE - 8)
JOINED = 1 << 16
QUEUED = 1 << 18  # bytes that the sender lets wait: more than one flush takes, so that `drained` will come
LIMIT_S = 600
LEAST = 50
SAMPLE_S = 0.001


@dataclass(frozen=True)
class Case:
    """`share` of the messages asked for: a case that is a hundred times slower needs fewer for a figure as good."""

    kind: str
    share: float
    rival: bool = False


CASES = {
    "weft": Case("one way", 1.0),
    "tcp": Case("one way", 0.1),
    "tcp joined": Case("one way", 1.0),
    "py-libp2p": Case("one way", 0.02, rival=True),
    "weft request": Case("round trips", 0.01),
    "weft stream": Case("round trips", 0.02),
    "tcp echo": Case("round trips", 0.04),
    "py-libp2p echo": Case("round trips", 0.005, rival=True),
}

RATIOS = {  # of messages or round trips a CPU second, and what is aimed at
    "weft / tcp joined": 0.2,
    "weft / tcp": None,
    "weft / py-libp2p": 10.0,
    "weft request / tcp echo": None,
    "weft stream / tcp echo": None,
    "weft stream / py-libp2p echo": None,
}

PARTS = {
    "peer.noise": "cipher",
    "peer.yamux": "yamux",
    "peer.frame": "framing",
    "peer.codec": "codec",
    "peer.dispatch": "dispatch",
    "peer.multistream": "multistream",
    "peer.link": "link",
    "peer.host": "driver and outbox",
    "peer.driver": "driver and outbox",
    "peer.outbox": "driver and outbox",
    "peer.machine": "driver and outbox",
    "peer.transport": "system calls",  # around `send` and `recv` it has a line or two
    "trio._core._io_epoll": "system calls",
    "__main__": "the machine itself",
}


# The parent: starts the processes, and makes figures of what they say.


def bench_link(messages: int, repetitions: int, *, rivals: bool = True, progress: Report | None = None) -> dict[str, Any]:
    """All cases; WeftError when one of them fails. Where py-libp2p cannot be installed, `rivals` says why."""
    _check(messages, repetitions)
    tell = progress or (lambda share, word: None)
    tell(0.0, "py-libp2p")
    python, about = _py_libp2p() if rivals else (None, "left out")
    names = [name for name, case in CASES.items() if python is not None or not case.rival]
    spent: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number in range(repetitions):
        for place, name in enumerate(names):
            tell((number + place / len(names)) / repetitions, name)
            spent[name].append(_once(name, messages, _command(name, python)))
    return {
        "messages": messages,
        "repetitions": repetitions,
        "size": SIZE,
        "rivals": {"py-libp2p": about},
        "cases": {name: _figures(name, found) for name, found in spent.items()},
        "ratios": _ratios(spent),
    }


def profile_link(messages: int, repetitions: int, *, progress: Report | None = None) -> dict[str, Any]:
    """For each weft case and side, which share of its CPU time each part takes."""
    _check(messages, repetitions)
    tell = progress or (lambda share, word: None)
    names = [name for name in CASES if name.startswith("weft")]
    sides: dict[str, Counter[str]] = {}
    for number in range(repetitions):
        for place, name in enumerate(names):
            tell((number + place / len(names)) / repetitions, name)
            found = _once(name, messages, _command(name, None), profiled=True)
            for side in ("dialler", "listener"):
                sides.setdefault(f"{name}, {side}", Counter()).update(found[side]["samples"])
    return {
        "messages": messages,
        "repetitions": repetitions,
        "samples": {side: samples.total() for side, samples in sides.items()},
        "parts": {side: _shares(_by_part(samples)) for side, samples in sides.items()},
        "functions": {side: _shares(samples) for side, samples in sides.items()},
    }


def _shares(samples: Counter[str]) -> dict[str, float]:
    return {name: count / samples.total() for name, count in samples.most_common()}


def _by_part(samples: Counter[str]) -> Counter[str]:
    parts: Counter[str] = Counter()
    for function, count in samples.items():
        parts[_part(*function.split(":"))] += count
    return parts


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"case": name, **figures} for name, figures in result["cases"].items()]


def ratio_rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"ratio": name, **figures} for name, figures in result["ratios"].items()]


def profile_rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    """One row a part, in percent, and the number of samples last; the JSON has each function too."""
    shares = result["parts"]
    parts = sorted({part for found in shares.values() for part in found}, key=lambda part: -shares["weft, dialler"].get(part, 0))
    table = [{"percent": part} | {side: round(100 * found.get(part, 0.0), 1) for side, found in shares.items()} for part in parts]
    return [*table, {"percent": "samples", **result["samples"]}]


def _check(messages: int, repetitions: int) -> None:
    if messages < LEAST or repetitions < 1:
        raise UsageError(f"at least {LEAST} messages and one repetition")


def _count(name: str, messages: int) -> int:
    return max(LEAST, round(messages * CASES[name].share))


def _command(name: str, python: str | None) -> list[str]:
    return [str(python), "-I", str(RIVAL)] if CASES[name].rival else [sys.executable, "-m", "bench.link"]


def _once(name: str, messages: int, command: Sequence[str], *, profiled: bool = False) -> dict[str, Any]:
    """What both sides say of one run."""
    count = _count(name, messages)
    with ExitStack() as stack:
        words = [*command, name, str(count), str(int(profiled))]
        listener = stack.enter_context(Child(words))
        dialler = stack.enter_context(Child([*words, listener.hear()["address"]]))
        found = {"dialler": dialler.hear(), "listener": listener.hear()}
    heard = [side["messages"] for side in found.values()]
    if heard != [count, count]:
        raise WeftError(f"{name}: {count} messages were due, but the two sides count {heard[0]} and {heard[1]}")
    return {"count": count, **found}


class Child:
    """A process that says one JSON object a line; it ends with the block, by itself if nothing went wrong."""

    def __init__(self, command: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._errors, text=True, bufsize=1)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._process.wait(0 if kind else 30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise WeftError(f"a process of the bench failed: {self._last_words()}")
        said: dict[str, Any] = json.loads(line)
        return said

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(word + "\n")
        except BrokenPipeError:
            raise WeftError(f"a process of the bench failed: {self._last_words()}") from None

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return lines[-1] if lines else f"exit {self._process.returncode}"


def _py_libp2p() -> tuple[str | None, str]:
    """The Python that has it, and its version; or None and why not. It is installed where the interop tests have theirs."""
    if not (ROOT / "tests" / "interop" / "foreign.py").exists():
        return None, "left out: only a source tree can install it"
    program = "from tests.interop.foreign import *; print(install('py'), versions('py')['packages']['libp2p'], sep='\\n')"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        return None, f"left out: {done.stderr.strip().splitlines()[-1]}"
    place, version = done.stdout.splitlines()
    return str(Path(place) / "venv" / "bin" / "python"), version


def _figures(name: str, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "kind": CASES[name].kind,
        "count": found[0]["count"],
        "per_cpu_s": median(map(_rate, found)),
        "dialler_us": median(_us(run, "dialler") for run in found),
        "listener_us": median(_us(run, "listener") for run in found),
    }


def _rate(run: dict[str, Any]) -> float:
    return 1e6 / (_us(run, "dialler") + _us(run, "listener"))


def _us(run: dict[str, Any], side: str) -> float:
    return 1e6 * float(run[side]["cpu_s"]) / int(run["count"])


def _ratios(spent: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, float | None]]:
    """Inside each repetition, then the median; least and most tell how far to trust it."""
    ratios: dict[str, dict[str, float | None]] = {}
    for name, aim in RATIOS.items():
        ours, theirs = name.split(" / ")
        if theirs in spent:
            each = [_rate(a) / _rate(b) for a, b in zip(spent[ours], spent[theirs], strict=True)]
            ratios[name] = {"median": median(each), "least": min(each), "most": max(each), "aim": aim}
    return ratios


# One of the two processes.


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
            if _part(module, function) != "other":
                self.samples[f"{module}:{function}"] += 1
                return
            frame = frame.f_back
        self.samples["other:"] += 1


def _part(module: str, function: str) -> str:
    if module == "peer.driver" and function.startswith("Inlet."):
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
