"""A WebSocket client of the least size, for the chat's page and for a browser's DevTools."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Event, Ping, RejectConnection, Request, TextMessage


class Refused(Exception):
    """The server does not want this connection."""


class WebSocket:
    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._wire = WSConnection(ConnectionType.CLIENT)
        self._text = ""
        self._events: list[Event] = []

    async def shake_hands(self, host: str, target: str, headers: list[tuple[bytes, bytes]]) -> None:
        await self._stream.send_all(self._wire.send(Request(host=host, target=target, extra_headers=headers)))
        event = await self._event()
        if isinstance(event, RejectConnection):
            raise Refused(event.status_code)
        assert isinstance(event, AcceptConnection), event

    async def send(self, value: object) -> None:
        await self._stream.send_all(self._wire.send(TextMessage(json.dumps(value))))

    async def receive(self) -> Any:
        while True:
            event = await self._event()
            if isinstance(event, TextMessage):
                self._text += event.data
                if event.message_finished:
                    text, self._text = self._text, ""
                    return json.loads(text)
            elif isinstance(event, Ping):
                await self._stream.send_all(self._wire.send(event.response()))
            elif isinstance(event, CloseConnection):
                raise EOFError(event.reason)

    async def _event(self) -> Event:
        while True:
            self._events += self._wire.events()
            if self._events:
                return self._events.pop(0)
            data = await self._stream.receive_some()
            if not data:
                raise EOFError
            self._wire.receive_data(bytes(data))


@asynccontextmanager
async def open_websocket(url: str, *, origin: str | None = None, host: str | None = None) -> AsyncIterator[WebSocket]:
    """With the Host and Origin that are given, true or not."""
    place = urlsplit(url)
    assert place.hostname is not None and place.port is not None
    stream = await trio.open_tcp_stream(place.hostname, place.port)
    async with stream:
        socket = WebSocket(stream)
        headers = [] if origin is None else [(b"Origin", origin.encode())]
        await socket.shake_hands(host or place.netloc, place.path, headers)
        yield socket
