"""A live peer from the shell: what `weft node`, `weft collect`, `weft ping`, `weft pub` and `weft sub` do.

All but ping open a node (`libweft.pubsub.live.api`) from the same flags. They end on Ctrl-C or SIGTERM, and then close their
links after what was sent. What arrives is printed so that no peer can move the cursor of the terminal it is read on.
Bounds: a line of standard input has LINE bytes at most, and lines are published no faster than they leave.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, get_args

import trio

from libweft.peer.errors import UsageError, WeftError
from libweft.peer.errors import alone as unwrapped
from libweft.peer.libp2p.ids import Identity, parse_peer, peer_text
from libweft.peer.live.collect.collector import CollectConfig, collecting
from libweft.peer.live.host import HostConfig, open_host
from libweft.peer.live.key_file import load_identity
from libweft.pubsub.live import isolation as alone
from libweft.pubsub.live.api import Ordered, PubSub, PubSubConfig, check_topic
from libweft.pubsub.live.subscription import Message
from libweft.pubsub.stacks import full_name

LINE = 1 << 16


def node(args: argparse.Namespace) -> None:
    for topic in args.topic:
        check_topic(topic)
    _run(partial(_node, args))


async def _node(args: argparse.Namespace) -> None:
    async with _opened(args) as live, _until_stopped() as nursery:
        for topic in args.topic:
            nursery.start_soon(_join, live, topic)
        if args.metrics is not None:
            from libweft.peer.live.metrics import serve_metrics

            port = await nursery.start(serve_metrics, live.host, live.driver, "127.0.0.1", args.metrics)
            print(f"metrics on http://127.0.0.1:{port}/metrics", file=sys.stderr, flush=True)
        if args.json:
            print(json.dumps({"peer": live.peer, "addresses": live.addresses, "stack": live.stack}), flush=True)
        else:
            print(*live.addresses or [f"{live.peer} (listens nowhere)"], sep="\n", flush=True)
        await trio.sleep_forever()


async def _join(live: PubSub, topic: str) -> None:
    async with live.subscribe(topic) as messages:
        async for _ in messages:
            pass


def collect(args: argparse.Namespace) -> None:
    _run(partial(_collect, args))


async def _collect(args: argparse.Namespace) -> None:
    config = CollectConfig(quota=args.quota << 20, peers=args.peers)
    identity = load_identity(args.key) if args.key is not None else Identity.new()
    listen = args.listen if args.listen is not None else args.default_listen
    opened = open_host(identity, listen=listen, config=_host(args))
    async with opened as host, collecting(host, args.directory, config), _until_stopped():
        addresses = list(map(str, host.addresses))
        if args.json:
            print(json.dumps({"peer": peer_text(host.peer), "addresses": addresses}), flush=True)
        else:
            print(*addresses, sep="\n", flush=True)
        await trio.sleep_forever()


def ping(args: argparse.Namespace) -> None:
    if args.count < 1:
        raise UsageError(f"--count {args.count}: one at least")
    _run(partial(_ping, args))


async def _ping(args: argparse.Namespace) -> None:
    identity = load_identity(args.key) if args.key is not None else Identity.new()
    times = []
    async with open_host(identity, config=HostConfig(psk=_psk(args.psk))) as host:
        link = await host.connect(args.address)
        for number in range(args.count):
            if number:
                await trio.sleep(0.2)
            with trio.move_on_after(10) as limit:
                times.append(await host.ping(link.peer) * 1_000)
            if limit.cancelled_caught:
                raise WeftError(f"no answer from {args.address} in 10 s")
            if not args.json:
                print(f"{times[-1]:.2f} ms", flush=True)
    found = {"peer": peer_text(link.peer), "ms": times, "min": min(times), "median": median(times), "max": max(times)}
    if args.json:
        print(json.dumps(found), flush=True)
    else:
        print(f"min {found['min']:.2f}, median {found['median']:.2f}, max {found['max']:.2f} ms", flush=True)


def pub(args: argparse.Namespace) -> None:
    if not 0 <= args.wait < 1e9:
        raise UsageError(f"--wait {args.wait:g}: seconds, 0 at least")
    check_topic(args.topic)
    _run(partial(_pub, args))


async def _pub(args: argparse.Namespace) -> None:
    if not args.bootstrap and not args.listen:
        raise UsageError("weft pub needs somebody to publish to: --bootstrap ADDR, or --listen ADDR to be found at")
    async with _opened(args) as live, _until_stopped():
        if await alone.nobody(live, args.wait):
            reason = await alone.why(live, args.bootstrap, live.stack)
            raise WeftError(f"no neighbour in {args.wait:g} s, so nothing was published; {reason}")
        published = await _publish_lines(live, args.topic)
        await live.flushed()
        if args.json:
            print(json.dumps({"topic": args.topic, "published": published}), flush=True)


async def _publish_lines(live: PubSub, topic: str) -> int:
    published = 0
    async for line in _lines():
        await live.publish(topic, line.rstrip(b"\r"))
        published += 1
    return published


async def _lines() -> AsyncIterator[bytes]:
    """Of standard input, read in a thread, since a terminal cannot be waited for otherwise.

    By its number and not through `sys.stdin`: a thread that still reads there when the program ends holds its lock, and
    Python aborts.
    """
    held = b""
    while data := await trio.to_thread.run_sync(os.read, 0, 1 << 16, abandon_on_cancel=True):
        *whole, held = (held + data).split(b"\n")
        for line in whole:
            yield line
        if len(held) > LINE:
            raise UsageError(f"a line of standard input is longer than {LINE} bytes")
    if held:
        yield held


def sub(args: argparse.Namespace) -> None:
    if args.count is not None and args.count < 1:
        raise UsageError(f"--count {args.count}: one at least")
    if args.stdin and len(args.topics) != 1:
        raise UsageError("--stdin publishes on the topic that is subscribed to, so name one")
    if args.order not in get_args(Ordered):
        raise UsageError(f"--order {args.order}: none, fifo or causal")
    _run(partial(_sub, args))


async def _sub(args: argparse.Namespace) -> None:
    async with _opened(args) as live, _until_stopped() as nursery:
        numbers = count(1)
        done = trio.Event()

        def show(message: Message) -> None:
            if not done.is_set():
                _show(message, args.json)
                if next(numbers) == args.count:
                    done.set()

        for topic in args.topics:
            await nursery.start(_hear, live, topic, args.order, show)
        for address in live.addresses:
            print(address, file=sys.stderr, flush=True)
        if args.stdin:
            nursery.start_soon(_publish_lines, live, args.topics[0])
        await done.wait()
        if lost := live.stats()["refused"]:
            print(f"weft: {lost} messages came faster than they could be printed, and were lost", file=sys.stderr)


async def _hear(
    live: PubSub, topic: str, order: Ordered, show: Callable[[Message], None], *, task_status: trio.TaskStatus[None]
) -> None:
    async with live.subscribe(topic, order=order, when_full="wait") as messages:
        task_status.started()
        async for message in messages:
            show(message)


def _show(message: Message, as_json: bool) -> None:
    if as_json:
        print(json.dumps(_json(message)), flush=True)
    else:
        text = message.data.decode("utf-8", "backslashreplace")
        print("".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text), flush=True)


def _json(message: Message) -> dict[str, Any]:
    """`data` is text where it is text, else base64, and then `encoding` says so."""
    found = {"from": message.source, "topic": message.topic, "id": message.id}
    try:
        return found | {"data": message.data.decode()}
    except UnicodeDecodeError:
        return found | {"data": b64encode(message.data).decode(), "encoding": "base64"}


def _opened(args: argparse.Namespace) -> AbstractAsyncContextManager[PubSub]:
    config = PubSubConfig(trace=args.trace, collector=args.collector, host=_host(args))
    listen = args.listen if args.listen is not None else args.default_listen
    if (stack := full_name(args.stack)) != args.stack:
        print(f"the stack is {stack}", file=sys.stderr, flush=True)
    return PubSub.open(stack, bootstrap=args.bootstrap, listen=listen, key=args.key, config=config)


def _host(args: argparse.Namespace) -> HostConfig:
    if args.log.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise UsageError(f"--log {args.log}: debug, info, warning or error")
    logging.basicConfig(level=args.log.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return HostConfig(
        psk=_psk(args.psk),
        allow=None if args.allow is None else frozenset(map(parse_peer, args.allow)),
        deny=frozenset(map(parse_peer, args.deny)),
    )


def _psk(path: Path | None) -> bytes | None:
    if path is None:
        return None
    from libweft.peer.libp2p.pnet import read_key

    try:
        return read_key(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read the network's key {path}: {error.strerror}") from error
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _run(main: Callable[[], Awaitable[None]]) -> None:
    """Run `main` in trio. Ctrl-C is raised at a checkpoint only: in a callback of Python's own, it would be ignored."""
    with unwrapped():
        trio.run(main, restrict_keyboard_interrupt_to_checkpoints=True)


@asynccontextmanager
async def _until_stopped() -> AsyncIterator[trio.Nursery]:
    """Ctrl-C and SIGTERM end the block as if it had come to its end, so that links close after what was sent."""
    with unwrapped():
        async with trio.open_nursery() as nursery:
            await nursery.start(_stop_on_signal, nursery.cancel_scope)
            yield nursery
            nursery.cancel_scope.cancel()


async def _stop_on_signal(scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            scope.cancel()
            return
