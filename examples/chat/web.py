"""The chat as a page: one HTML file and a WebSocket, served by hypercorn on 127.0.0.1.

Other users of this machine and web sites in the same browser reach that port too, so three things must be right: the
path holds a token that is drawn at each start and printed to the user alone; Host is this very address, which a name
that was bound anew to 127.0.0.1 is not; and Origin of the WebSocket is the page itself. The page's policy lets it run its own
script by hash and connect to this port, nothing else; and it puts whatever peers wrote into the document as text.

To the page go its whole state at first, then what changes: `self`, `room`, `members`, `said`, `notice`. From it come Say, Enter,
Leave and Rename.
Bounds: PAGES pages at a time, MESSAGE bytes from a page; what it does not read fast enough is dropped, and all told anew.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import trio

from libweft.examples.chat.app import AnyEvent, Chat, Missed, Refused
from libweft.examples.chat.room import Came, Line, Renamed, Room, Said, Went, short
from libweft.peer.errors import UsageError

if TYPE_CHECKING:
    from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, HTTPScope, Scope, WebsocketScope

PAGE = Path(__file__).with_name("page.html")
PAGES = 16
MESSAGE = 1 << 15

Told: TypeAlias = dict[str, object]


class Command(msgspec.Struct, frozen=True, tag_field="kind"):
    pass


class Say(Command, frozen=True, tag="say"):
    room: str
    text: str


class Enter(Command, frozen=True, tag="enter"):
    room: str


class Leave(Command, frozen=True, tag="leave"):
    room: str


class Rename(Command, frozen=True, tag="rename"):
    name: str


AnyCommand: TypeAlias = Say | Enter | Leave | Rename
_decoder: msgspec.json.Decoder[AnyCommand] = msgspec.json.Decoder(AnyCommand)


class Web:
    """An ASGI application for one chat; `origin` is known once it is served."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.token = secrets.token_urlsafe(24)
        self.origin = ""
        self._page = PAGE.read_bytes()
        self._pages = 0

    @property
    def url(self) -> str:
        return f"{self.origin}/{self.token}/"

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if scope["type"] == "http":
            await self._http(scope, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await _lifespan(receive, send)

    async def _http(self, scope: HTTPScope, send: ASGISendCallable) -> None:
        found = self._is_ours(scope, "") and scope["method"] == "GET"
        body = self._page if found else b"not found\n"
        kind = b"text/html; charset=utf-8" if found else b"text/plain"
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *self._headers()]
        await send({"type": "http.response.start", "status": 200 if found else 404, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _websocket(self, scope: WebsocketScope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        await receive()  # that it wants to connect
        if not self._is_ours(scope, "ws") or _header(scope, b"origin") != self.origin or self._pages >= PAGES:
            await send({"type": "websocket.close", "code": 1008, "reason": None})
            return
        self._pages += 1
        try:
            await send({"type": "websocket.accept", "subprotocol": None, "headers": []})
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, send)
                await self._read(receive, send)
                nursery.cancel_scope.cancel()
        finally:
            self._pages -= 1

    def _is_ours(self, scope: HTTPScope | WebsocketScope, rest: str) -> bool:
        wanted, path = f"/{self.token}/{rest}".encode(), scope["path"].encode("utf-8", "replace")
        return bool(self.origin) and f"http://{_header(scope, b'host')}" == self.origin and secrets.compare_digest(path, wanted)

    def _headers(self) -> Iterator[tuple[bytes, bytes]]:
        script, style = (_hash(self._page, tag) for tag in (b"script", b"style"))
        sockets = self.origin.replace("http", "ws", 1)
        yield (
            b"content-security-policy",
            f"default-src 'none'; script-src '{script}'; style-src '{style}'; connect-src {sockets}; img-src data:; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'".encode(),
        )
        yield b"cache-control", b"no-store"
        yield b"referrer-policy", b"no-referrer"
        yield b"x-content-type-options", b"nosniff"
        yield b"cross-origin-opener-policy", b"same-origin"
        yield b"cross-origin-resource-policy", b"same-origin"

    async def _read(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        while (event := await receive())["type"] == "websocket.receive":
            try:
                await self._do(_decoder.decode(event["text"] or ""))
            except (UsageError, msgspec.MsgspecError) as error:
                await _tell(send, {"kind": "notice", "text": str(error)})

    async def _do(self, command: AnyCommand) -> None:
        if isinstance(command, Say):
            await self.chat.say(command.room, command.text)
        elif isinstance(command, Enter):
            await self.chat.enter(command.room)
        elif isinstance(command, Leave):
            await self.chat.leave(command.room)
        else:
            await self.chat.rename(command.name)

    async def _write(self, send: ASGISendCallable) -> None:
        with self.chat.feed() as feed:
            view = View(self.chat)
            for told in view.everything():
                await _tell(send, told)
            async for event in feed:
                for told in view.news(event):
                    await _tell(send, told)


class View:
    """What one page has been told, so that it is told no more than what is new."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self._rooms: dict[str, tuple[Room, frozenset[str]]] = {}  # those told of, with the names that two peers share there

    def everything(self) -> Iterator[Told]:
        self._rooms.clear()
        yield from self._changed()

    def news(self, event: AnyEvent) -> Iterator[Told]:
        if isinstance(event, Missed):
            yield from self.everything()
        elif isinstance(event, Refused):
            text = f"{event.room}: the history that {short(event.peer)} gave was refused: {event.reason}"
            yield {"kind": "notice", "text": text}
        elif isinstance(event, Said | Came | Went | Renamed):
            room = self.chat.rooms.get(event.room)
            if room is not None:
                yield from self._in_room(room, event)
        else:
            yield from self._changed()

    def _changed(self) -> Iterator[Told]:
        chat = self.chat
        names = {peer: room.shown(peer, one.name) for room in chat.rooms.values() for peer, one in room.members.items()}
        yield {
            "kind": "self",
            "peer": chat.node.peer,
            "name": chat.name,
            "invitation": chat.invitation,
            "rooms": list(chat.rooms),
            "neighbors": [{"peer": peer, "name": names.get(peer, short(peer))} for peer in chat.neighbors],
        }
        for room in chat.rooms.values():
            if self._rooms.get(room.name, (None,))[0] is not room:
                yield self._whole(room)

    def _in_room(self, room: Room, event: Said | Came | Went | Renamed) -> Iterator[Told]:
        if self._rooms.get(room.name) != (room, room.shared_names()):
            yield self._whole(room)
        elif isinstance(event, Said):
            yield {"kind": "said", "room": room.name, "line": _line(room, event.line)}
        if not isinstance(event, Said):
            yield {"kind": "members", "room": room.name, "members": _members(room)}
            if event.peer in self.chat.neighbors:
                yield from self._changed()

    def _whole(self, room: Room) -> Told:
        self._rooms[room.name] = room, room.shared_names()
        lines = [_line(room, line) for line in room.lines]
        return {"kind": "room", "room": room.name, "lines": lines, "members": _members(room)}


def check(port: int) -> None:
    """Raise a UsageError if no page can be served, or not at that port."""
    if find_spec("hypercorn") is None:
        raise UsageError("--web needs hypercorn: pip install 'libweft[web]'")
    if not 0 <= port < 1 << 16:
        raise UsageError(f"--port {port}: a port is a number from 1 to 65535, or 0 for any that is free")


async def serve(chat: Chat, port: int, *, task_status: trio.TaskStatus[str]) -> None:
    """Serve until cancelled; starts with the URL."""
    from hypercorn.config import Config
    from hypercorn.trio import serve as run

    web = Web(chat)
    config = Config()
    config.loglevel = "WARNING"
    config.include_server_header = False
    config.websocket_max_message_size = MESSAGE
    config.graceful_timeout = 0.5
    with _bound(port) as sock:
        web.origin = "http://{}:{}".format(*sock.getsockname())
        config.bind = [f"fd://{os.dup(sock.fileno())}"]  # hypercorn closes it
    async with trio.open_nursery() as nursery:
        await nursery.start(run, web, config)
        task_status.started(web.url)


def _bound(port: int) -> socket.socket:
    sock = socket.socket()
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
    except (OSError, OverflowError) as error:
        sock.close()
        raise UsageError(f"cannot serve on port {port}: {error}") from None
    return sock


async def _lifespan(receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    while True:
        if (await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        else:
            await send({"type": "lifespan.shutdown.complete"})
            return


async def _tell(send: ASGISendCallable, told: Told) -> None:
    await send({"type": "websocket.send", "bytes": None, "text": msgspec.json.encode(told).decode()})


def _line(room: Room, line: Line) -> Told:
    key = f"{line.peer}-{line.id.epoch}-{line.id.sequence}"
    return {"id": key, "at": line.at, "peer": line.peer, "name": room.shown(line.peer, line.name), "text": line.text}


def _members(room: Room) -> list[Told]:
    found: list[Told] = [{"peer": peer, "name": room.shown(peer, member.name)} for peer, member in room.members.items()]
    return sorted(found, key=lambda member: str(member["name"]).casefold())


def _header(scope: HTTPScope | WebsocketScope, name: bytes) -> str | None:
    """None where it is missing or comes twice."""
    found = [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]
    return found[0] if len(found) == 1 else None


def _hash(page: bytes, tag: bytes) -> str:
    (inside,) = re.findall(b"<%s>(.*?)</%s>" % (tag, tag), page, re.DOTALL)
    return f"sha256-{b64encode(sha256(inside).digest()).decode()}"
