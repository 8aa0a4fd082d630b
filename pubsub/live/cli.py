"""The commands that need no bench: `weft node`, `collect`, `ping`, `pub`, `sub` and `stacks`.

Here are their flags. Their work is in `libweft.pubsub.live.shell`, which is imported when it runs, so that the help of `weft`
needs neither trio nor cryptography.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType
from typing import NoReturn, TypeAlias

from libweft.pubsub.live.defaults import LISTEN, STACK

Run: TypeAlias = Callable[[argparse.Namespace], None]
Add: TypeAlias = Callable[[str, str, Run], argparse.ArgumentParser]


def add_commands(add: Add) -> None:
    """`add(name, summary, run)` makes a parser; the command `weft` brings it."""
    _add_node(add("node", "run a live peer until it is stopped", _later("node")))
    _add_collect(add("collect", "gather the traces of live peers in one folder", _later("collect")))
    _add_ping(add("ping", "ping a peer", _later("ping")))
    _add_pub(add("pub", "publish the lines of standard input", _later("pub")))
    _add_sub(add("sub", "print what is published to topics", _later("sub")))
    _add_stacks(add("stacks", "list the stacks, or the options and promises of one", _list_stacks))


def _add_node(parser: argparse.ArgumentParser) -> None:
    _add_flags(parser, LISTEN)
    parser.add_argument("--topic", action="append", default=[], metavar="TOPIC", help="subscribe to it; may be given again")
    parser.add_argument("--metrics", type=int, metavar="PORT", help="serve Prometheus metrics on 127.0.0.1; 0 for any port")


def _add_collect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="where to; new, empty, or collected into before")
    _add_host(parser, LISTEN)
    parser.add_argument("--quota", type=int, default=1_024, metavar="MB", help="what one peer may send in all; default: 1024")
    parser.add_argument("--peers", type=int, default=1_024, metavar="N", help="how many may send; default: 1024")


def _add_ping(parser: argparse.ArgumentParser) -> None:
    _add_json(parser)
    parser.add_argument("address", metavar="ADDR", help="/ip4/HOST/tcp/PORT/p2p/PEER-ID")
    parser.add_argument("--count", type=int, default=3, metavar="N", help="how often; default: 3")
    parser.add_argument("--key", type=Path, metavar="FILE", help="the identity to do it with; made on first use")
    _add_psk(parser)


def _add_pub(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    _add_flags(parser, ())
    parser.add_argument("--wait", type=float, default=30.0, metavar="S", help="seconds to wait for a neighbour; default: 30")


def _add_sub(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    _add_flags(parser, LISTEN)
    parser.add_argument("--stdin", action="store_true", help="publish the lines of standard input on the same topic")
    parser.add_argument("--order", default="none", metavar="ORDER", help="none, fifo or causal; default: none")
    parser.add_argument("--count", type=int, metavar="N", help="leave after so many messages")


def _add_stacks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stack", nargs="?", metavar="STACK", help="tell its promises, and its options with their defaults")
    _add_json(parser, "instead of a table")


def _add_flags(parser: argparse.ArgumentParser, listen: Sequence[str]) -> None:
    parser.add_argument("--stack", default=STACK, metavar="STACK", help=f"default: {STACK}; see weft stacks")
    _add_host(parser, listen)
    parser.add_argument("--bootstrap", action="append", default=[], metavar="ADDR", help="a peer to begin with, with its /p2p/ID")
    parser.add_argument("--trace", type=Path, metavar="DIR", help="write a trace there")
    parser.add_argument("--collector", metavar="ADDR", help="send the trace to the `weft collect` there, with its /p2p/ID")


def _add_host(parser: argparse.ArgumentParser, listen: Sequence[str]) -> None:
    _add_json(parser)
    parser.set_defaults(default_listen=listen)
    where = listen[0] if listen else "nowhere"
    parser.add_argument("--listen", action="append", metavar="ADDR", help=f"default: {where}; may be given again")
    parser.add_argument("--key", type=Path, metavar="FILE", help="the node's identity; made on first use. Default: a new one")
    parser.add_argument("--allow", action="append", metavar="PEER-ID", help="take links of these peers alone")
    parser.add_argument("--deny", action="append", default=[], metavar="PEER-ID", help="take no link of this peer")
    parser.add_argument("--log", default="warning", metavar="LEVEL", help="debug, info, warning or error; default: warning")
    _add_psk(parser)


def _add_psk(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--psk", type=Path, metavar="FILE", help="the key of a private network, as in libp2p's swarm.key")


def _add_json(parser: argparse.ArgumentParser, how: str = "a line") -> None:
    parser.add_argument("--json", action="store_true", help=f"print JSON, one object {how}")


@contextmanager
def loading() -> Iterator[None]:
    """Let Ctrl-C end the process at once while modules load, because Python may lose or wrap an interrupt that is raised then."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler or current_thread() is not main_thread():
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    os.write(2, b"weft: interrupted\n")
    os._exit(130)


def _later(name: str) -> Run:
    def run(args: argparse.Namespace) -> None:
        with loading():
            shell = import_module("libweft.pubsub.live.shell")
        getattr(shell, name)(args)

    return run


def _list_stacks(args: argparse.Namespace) -> None:
    with loading():
        from libweft.pubsub.live.catalogue import show_stack, show_stacks

    if args.stack is None:
        show_stacks(args.json)
    else:
        show_stack(args.stack, args.json)
