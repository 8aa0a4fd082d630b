"""python -m libweft.examples.chat --name ada: a chat in this terminal, and with --web in a browser too."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import trio

from libweft.examples.chat import web
from libweft.examples.chat.app import Chat, ChatConfig, Feed, open_chat
from libweft.examples.chat.terminal import Screen, Terminal, open_screen
from libweft.peer.errors import WeftError, alone
from libweft.pubsub.live.defaults import LISTEN, STACK

PATIENCE_S = 10.0
QUIET_S = 5.0  # at a terminal, where nothing waits for it


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    config = ChatConfig(
        name=args.name,
        join=args.join,
        rooms=args.room or ["lobby"],
        listen=args.listen or LISTEN,
        key=args.key,
        stack=args.stack,
    )
    port = args.port if args.web or args.port else None
    try:
        if port is not None:
            web.check(port)
        with alone(), open_screen() as screen:
            trio.run(_chat, config, screen, port)
    except WeftError as error:
        print(f"chat: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("chat: interrupted", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m libweft.examples.chat", description="A chat among peers; nobody serves it.")
    parser.add_argument("--name", required=True, help="what others call you")
    parser.add_argument("--join", action="append", default=[], metavar="ADDR", help="a friend's address; may be given again")
    parser.add_argument("--room", action="append", metavar="ROOM", help="default: lobby; may be given again")
    parser.add_argument("--listen", action="append", metavar="ADDR", help=f"default: {LISTEN[0]}; may be given again")
    parser.add_argument("--key", type=Path, metavar="FILE", help="your identity; made on first use. Default: a new one")
    parser.add_argument("--stack", default=STACK, metavar="STACK", help=f"default: {STACK}")
    parser.add_argument("--web", action="store_true", help="serve a page on 127.0.0.1, for you alone")
    parser.add_argument("--port", type=int, default=0, metavar="PORT", help="of that page; default: any")
    return parser


async def _chat(config: ChatConfig, screen: Screen, port: int | None) -> None:
    with alone():
        async with open_chat(config) as chat, trio.open_nursery() as nursery:
            await nursery.start(_stop_on_signal, nursery.cancel_scope)
            with chat.feed() as feed:
                await _talk(chat, screen, feed, config, port)
            nursery.cancel_scope.cancel()


async def _talk(chat: Chat, screen: Screen, feed: Feed, config: ChatConfig, port: int | None) -> None:
    terminal = Terminal(chat, screen, feed)
    async with trio.open_nursery() as nursery:
        if chat.invitation:
            await screen.print(f"* a friend types: {chat.invitation}")
        if port is not None:
            await screen.print(f"* your page: {await nursery.start(web.serve, chat, port)}")
        nursery.start_soon(terminal.run_output)
        if config.join and screen.editor is None:
            # what is piped in must not be said before somebody hears it
            await nursery.start(_watch_for_neighbors, chat, screen, PATIENCE_S)
        elif config.join:
            nursery.start_soon(_watch_for_neighbors, chat, screen, QUIET_S)
        if await terminal.run_input() or port is None:
            nursery.cancel_scope.cancel()


async def _watch_for_neighbors(
    chat: Chat, screen: Screen, patience: float, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Says that nobody answers, and then that somebody does; starts when there is a neighbour or patience has ended."""
    with trio.move_on_after(patience) as limit:
        await chat.node.neighbors_up()
    if limit.cancelled_caught:
        await screen.print("* nobody has answered yet; trying again meanwhile")
    task_status.started()
    if limit.cancelled_caught:
        await chat.node.neighbors_up()
        await screen.print("* somebody has answered")


async def _stop_on_signal(scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            scope.cancel()
            return


if __name__ == "__main__":
    sys.exit(main())
