"""`weft bench load`: one host under many links: what a link costs in memory, and a quiet one in CPU time.

A process runs the host, a few others run the clients: each client is a host of its own, with an identity, one link and one
stream. When all links are up, each sends a message each `every` seconds, from a moment of its own on. The host checks each
client's numbers; a link that goes down before the end, or a number that does not come, is an error.

Memory is the host's resident set, once before the first link and once at the end, with whatever garbage there is. CPU time is
the host's own, from the first message to the last, as seconds a minute. Clients are not measured.
Bounds: what the config of the host allows is raised to the number of links; open files are raised as far as the system lets.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import trio

from libweft.bench.perf.child import command
from libweft.bench.perf.link import Child
from libweft.bench.perf.link_sides import say
from libweft.bench.progress import Progress
from libweft.peer.errors import UsageError, WeftError
from libweft.peer.libp2p.address import Address
from libweft.peer.libp2p.ids import Identity
from libweft.peer.live.driver import run_stack
from libweft.peer.live.host import HostConfig, open_host
from libweft.peer.machine import SECOND, Env, Link, Machine, Message, Peer, upon

PROCESSES = 4
DIALS = 32  # at once, of one process: all together stay below the handshakes that a host takes at once
SPARE = 64  # files beside the links, and links beside those asked for
SETTLE_S = 10.0  # what was sent has so long to arrive
PADDING = bytes(92)
AIM_KB = 60


def bench_load(links: int, seconds: float, every: float, *, progress: Progress | None = None) -> dict[str, Any]:
    """The figures; errors are counted, not raised. UsageError where the system does not let a process have as many files."""
    if links < 1 or not 0 < every <= seconds:
        raise UsageError("at least one link, and 0 < --every <= --seconds")
    hard = _files()
    if links + SPARE > hard:
        raise UsageError(f"--links {links} needs {links + SPARE} open files, and this system allows {hard}; see ulimit -Hn")
    tell = progress or (lambda share, word: None)
    count = int(seconds / every)
    with ExitStack() as stack:
        host = stack.enter_context(_child("host", links, count, every))
        address = host.hear()["address"]
        tell(0.0, f"{links} links")
        shares = [links // PROCESSES + (number < links % PROCESSES) for number in range(PROCESSES)]
        clients = [stack.enter_context(_child("clients", share, count, every, address)) for share in shares if share]
        failed = [reason for client in clients for reason in client.hear()["failed"]]
        host.tell("go")
        host.hear()
        for client in clients:
            client.tell("go")
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            tell(passed / seconds, "messages")
            time.sleep(min(1.0, seconds - passed))
        lost = [reason for client in clients for reason in client.hear()["lost"]]
        host.tell("report")
        figures = host.hear()
        for client in clients:
            client.tell("close")
    return _result(links, seconds, every, count * links, figures, failed + lost)


def _child(*words: object) -> Child:
    return Child([*command("libweft.bench.perf.load"), *map(str, words)])


def _result(
    links: int, seconds: float, every: float, due: int, figures: dict[str, Any], problems: Sequence[str]
) -> dict[str, Any]:
    before, after = figures["rss_before_kb"], figures["rss_after_kb"]
    lost, missed = links - figures["links"], due - figures["messages"]
    return {
        "links": figures["links"],
        "seconds": seconds,
        "every": every,
        "messages": figures["messages"],
        "links_lost": lost,
        "messages_missed": missed,
        "out_of_order": figures["out_of_order"],
        "errors": lost + missed + figures["out_of_order"],
        "problems": sorted({*problems, *figures["downs"]})[:5],
        "rss_before_mb": before / 1024,
        "rss_after_mb": after / 1024,
        "kb_a_link": (after - before) / links,
        "kb_a_link_aim": AIM_KB,
        "setup_cpu_ms_a_link": 1000 * figures["setup_cpu_s"] / links,
        "cpu_s_a_minute": figures["cpu_s"] * 60 / figures["wall_s"],
    }


# The processes.


class Beat(Message, frozen=True, tag=1):
    number: int
    padding: bytes


class Hub(Machine):
    """Counts what each client sends."""

    protocols = ("/weft/bench/load/1.0.0",)

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.heard: dict[Peer, int] = {}
        self.messages = 0
        self.out_of_order = 0
        self.downs: list[str] = []

    def link_up(self, peer: Peer, link: Link) -> None:
        self.heard.setdefault(peer, 0)

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        self.downs.append(reason)

    @upon(Beat)
    def _beat(self, sender: Peer, msg: Beat) -> None:
        self.messages += 1
        self.out_of_order += msg.number != self.heard[sender]
        self.heard[sender] = msg.number + 1


class Client(Machine):
    """Holds one link; `begin` starts to send."""

    protocols = Hub.protocols

    def __init__(self, env: Env, hub: Peer, count: int, every: float) -> None:
        super().__init__(env)
        self.hub = hub
        self.count = count
        self.every = round(every * SECOND)
        self.sent = 0
        self.up = False
        self.down: str | None = None
        self.settled = trio.Event()  # linked, or the dial has failed
        self.done = trio.Event()

    def dial(self) -> None:
        self.env.connect(self.hub)

    def link_up(self, peer: Peer, link: Link) -> None:
        self.up = True
        self.settled.set()

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        self.up = False
        self.down = reason
        self.settled.set()
        self.done.set()

    def begin(self) -> None:
        if self.up:
            self.env.after(self.env.rng.randrange(self.every), self._beat)

    def _beat(self) -> None:
        if not self.up:
            return
        self.env.send(self.hub, Beat(self.sent, PADDING))
        self.sent += 1
        if self.sent < self.count:
            self.env.after(self.every, self._beat)
        else:
            self.done.set()


async def run_host(links: int, count: int) -> None:
    most = links + SPARE
    config = HostConfig(links=most, links_an_ip=most, high_water=most, low_water=most)
    hubs: list[Hub] = []

    def build(env: Callable[[], Env]) -> Sequence[Machine]:
        hubs.append(Hub(env()))
        return hubs

    async with open_host(Identity.new(), listen=["/ip4/127.0.0.1/tcp/0"], config=config) as host, run_stack(host, build):
        [hub] = hubs
        before, cpu = rss_kb(), time.process_time()
        say({"address": str(host.addresses[0])})
        await _word("go")
        began, wall = time.process_time(), time.monotonic()
        say({})
        await _word("report")
        spent, lasted = time.process_time() - began, time.monotonic() - wall
        with trio.move_on_after(SETTLE_S):
            while hub.messages < links * count:
                await trio.sleep(0.1)
        figures = {"links": len(host.links), "messages": hub.messages, "out_of_order": hub.out_of_order, "downs": hub.downs}
        costs = {"setup_cpu_s": began - cpu, "cpu_s": spent, "wall_s": lasted}
        say({**figures, **costs, "rss_before_kb": before, "rss_after_kb": rss_kb()})
        await _word("")


async def run_clients(links: int, count: int, every: float, address: str) -> None:
    hub = Address.parse(address)
    limit = trio.CapacityLimiter(DIALS)
    clients: list[Client] = []
    async with trio.open_nursery() as nursery:
        for _ in range(links):
            await nursery.start(_client, hub, count, every, clients)
        async with trio.open_nursery() as dials:
            for client in clients:
                dials.start_soon(_dialled, client, limit)
        say({"failed": [str(client.down) for client in clients if not client.up]})
        await _word("go")
        up = [client for client in clients if client.up]
        for client in up:
            client.begin()
        for client in up:
            await client.done.wait()
        say({"lost": [str(client.down) for client in up if not client.up]})
        await _word("close")
        nursery.cancel_scope.cancel()


async def _client(
    hub: Address, count: int, every: float, clients: list[Client], task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    peer = hub.peer
    assert peer is not None

    def build(env: Callable[[], Env]) -> Sequence[Machine]:
        clients.append(Client(env(), peer, count, every))
        return clients[-1:]

    async with open_host(Identity.new()) as host:
        host.learn(peer, [hub])
        async with run_stack(host, build):
            task_status.started()
            await trio.sleep_forever()


async def _dialled(client: Client, limit: trio.CapacityLimiter) -> None:
    async with limit:
        client.dial()
        await client.settled.wait()


async def _word(due: str) -> None:
    """The parent's next word; without a parent there is no more to do."""
    word = (await trio.wrap_file(sys.stdin).readline()).strip()
    if due and word != due:
        raise WeftError(f"{due} was due from the bench, not {word!r}")


def rss_kb() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1])


def _files() -> int:
    """As many open files as this process may have, from now on."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else sys.maxsize


def main(kind: str, links: str, count: str, every: str, address: str = "") -> None:
    _files()
    if kind == "host":
        trio.run(run_host, int(links), int(count))
    else:
        trio.run(run_clients, int(links), int(count), float(every), address)


if __name__ == "__main__":
    main(*sys.argv[1:])
