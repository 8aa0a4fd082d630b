"""The chat in a terminal or over pipes: lines in, lines out.

On a terminal this module takes the letters one by one (no readline) and knows what is being typed, so that a line that
comes in is written above it and the input line is drawn again. Elsewhere there is neither prompt nor ANSI. What others
wrote is printed so that no control character of theirs reaches the terminal.
A line that begins with / is a command; // says one that begins with /.
Bounds: LINE bytes a line of input; what is printed waits in the chat's feed, at most.
"""

from __future__ import annotations

import codecs
import os
import re
import termios
import tty
import unicodedata
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import datetime

import trio

from libweft.examples.chat.app import AnyEvent, Chat, Feed, Missed, Refused
from libweft.examples.chat.room import Came, Line, Renamed, Room, Said, Went, short
from libweft.peer.errors import UsageError

LINE = 1 << 16
ESCAPE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|O.|[^\[O])")  # a key such as an arrow, which edits nothing here
UNFINISHED = re.compile(r"\x1b(\[[0-?]{0,16}|O)?\Z")  # one whose end has not come yet
HELP = """\
/join ROOM   enter a room, or go back to one; what you type is said there
/leave       leave the room
/rooms       the rooms you are in
/who         who is here
/peers       the neighbours of this peer, and what it has done
/name NEW    another name
/quit        leave
//TEXT       say a line that begins with /"""


def harmless(text: str) -> str:
    """With every character that could move a cursor or change a direction written as an escape."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def columns(text: str) -> int:
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.category(letter) == "Mn" for letter in text)


class Editor:
    """What is being typed. It takes keys as a terminal sends them and gives back whole lines, None for the end."""

    def __init__(self) -> None:
        self.typed = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def feed(self, data: bytes) -> list[str | None]:
        keys = ESCAPE.sub("", self._held + self._decoder.decode(data))
        self._held = found[0] if (found := UNFINISHED.search(keys)) else ""
        keys = keys.removesuffix(self._held)
        return [line for key in keys for line in self._key(key)]

    def _key(self, key: str) -> list[str | None]:
        if key in "\r\n":
            line, self.typed = self.typed, ""
            return [line]
        if key == "\x04" and not self.typed:
            return [None]
        if key in "\x08\x7f":
            self.typed = self.typed[:-1]
        elif key == "\x15":
            self.typed = ""
        elif key == "\x17":
            self.typed = self.typed.rstrip().rpartition(" ")[0]
        elif key.isprintable() and len(self.typed) < LINE:
            self.typed += key
        return []

    def drawn(self, prompt: str, width: int) -> str:
        """The input line; of a long one the end."""
        shown = (prompt + self.typed)[-width:]
        while columns(shown) >= width:
            shown = shown[1:]
        return shown


class Screen:
    """Where lines are printed; on a terminal, above the input line."""

    def __init__(self, editor: Editor | None) -> None:
        self.editor = editor
        self.prompt = ""
        self._lock = trio.Lock()

    async def print(self, *lines: str) -> None:
        async with self._lock:
            text = "".join(f"{line}\n" for line in lines)
            if self.editor is not None:
                text = "\r\x1b[K" + text + self.editor.drawn(self.prompt, _width())
            # in a thread: a terminal that was stopped by Ctrl-S takes nothing, and must not stop the node
            await trio.to_thread.run_sync(_write, text.encode("utf-8", "replace"), abandon_on_cancel=True)

    async def redraw(self) -> None:
        if self.editor is not None:
            await self.print()


class Terminal:
    def __init__(self, chat: Chat, screen: Screen, feed: Feed) -> None:
        self.chat = chat
        self.screen = screen
        self.feed = feed
        self.room: str | None = None
        self._left: Room | None = None  # the last one: what was said there may wait to be shown
        self._show(next(iter(chat.rooms), None))

    async def run_input(self) -> bool:
        """True after /quit, false when the input has ended."""
        async for line in _lines(self.screen):
            try:
                if not await self.take(line):
                    return True
            except UsageError as error:
                await self.screen.print(f"* {harmless(str(error))}")
        return False

    async def run_output(self) -> None:
        async for event in self.feed:
            if (text := self.describe(event)) is not None:
                await self.screen.print(text)

    async def take(self, line: str) -> bool:
        """Say it, or do what it commands; false for /quit."""
        if not line.strip():
            return True
        if not line.startswith("/") or line.startswith("//"):
            await self.chat.say(self._current(), line.removeprefix("/") if line.startswith("//") else line)
            return True
        command, _, rest = line[1:].strip().partition(" ")
        if command == "quit":
            return False
        await self._command(command, rest.strip())
        return True

    async def _command(self, command: str, rest: str) -> None:
        if command == "join":
            self._show(await self.chat.enter(rest))
            await self.screen.print(f"* you are in {self.room}")
        elif command == "leave":
            await self._leave(self._current())
        elif command == "rooms":
            await self.screen.print(*(f"* {room.name}: {len(room.members)} here" for room in self.chat.rooms.values()))
        elif command == "who":
            await self.screen.print(f"* in {self._current()}: {', '.join(_members(self.chat.rooms[self._current()]))}")
        elif command == "peers":
            await self.screen.print(*self._peers())
        elif command == "name":
            await self.chat.rename(rest)
            await self.screen.print(f"* you are {self.chat.name} now")
        elif command == "help":
            await self.screen.print(*HELP.splitlines())
        else:
            raise UsageError(f"there is no command /{command}; see /help")

    async def _leave(self, room: str) -> None:
        """What was said before is shown before."""
        self._left = self.chat.rooms[room]
        await self.chat.leave(room)
        await self.feed.caught_up()
        self._show(next(iter(self.chat.rooms), None))
        await self.screen.print(f"* you left {room}; " + (f"you are in {self.room}" if self.room else "/join another"))

    def describe(self, event: AnyEvent) -> str | None:
        """As a line; None for what is not told here."""
        if isinstance(event, Missed):
            return f"* {event.count} events came too fast to be shown"
        if not isinstance(event, Said | Came | Went | Renamed | Refused):
            return None
        room = self.chat.rooms.get(event.room, self._left)
        if room is None or room.name != event.room:
            return None
        if isinstance(event, Said):
            return _said(room, event.line)
        if isinstance(event, Refused):
            return f"* [{event.room}] the history that {short(event.peer)} gave was refused: {harmless(event.reason)}"
        if event.peer == self.chat.node.peer:
            return None
        name = room.shown(event.peer, event.name)
        if isinstance(event, Came):
            return f"* [{event.room}] {name} is here"
        if isinstance(event, Went):
            return f"* [{event.room}] {name} {'has left' if event.said_so else 'is silent'}"
        return f"* [{event.room}] {event.before} is {name} now"

    def _peers(self) -> list[str]:
        names = {peer: room.shown(peer, one.name) for room in self.chat.rooms.values() for peer, one in room.members.items()}
        stats = ", ".join(f"{value} {key}" for key, value in self.chat.node.stats().items())
        return [*(f"* {peer} {names.get(peer, '')}".rstrip() for peer in self.chat.neighbors), f"* {stats}"]

    def _current(self) -> str:
        if self.room is None or self.room not in self.chat.rooms:
            raise UsageError("you are in no room; /join one")
        return self.room

    def _show(self, room: str | None) -> None:
        self.room = room
        self.screen.prompt = f"[{room or 'no room'}] "


@contextmanager
def open_screen() -> Iterator[Screen]:
    """Takes letter by letter from a terminal while it is open; Ctrl-C and Ctrl-Z keep their meaning."""
    if not (os.isatty(0) and os.isatty(1)) or os.environ.get("TERM") == "dumb":
        yield Screen(None)
        return
    before = termios.tcgetattr(0)
    try:
        tty.setcbreak(0)
        yield Screen(Editor())
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        _write(b"\r\n")


async def _lines(screen: Screen) -> AsyncIterator[str]:
    """Of standard input, by its number and in a thread: see `libweft.pubsub.live.cli`."""
    if screen.editor is None:
        async for piped in _piped():
            yield piped
        return
    await screen.redraw()
    while data := await trio.to_thread.run_sync(os.read, 0, 4_096, abandon_on_cancel=True):
        for line in screen.editor.feed(data):
            if line is None:
                return
            yield line
        await screen.redraw()


async def _piped() -> AsyncIterator[str]:
    held = b""
    while data := await trio.to_thread.run_sync(os.read, 0, 1 << 16, abandon_on_cancel=True):
        *whole, held = (held + data).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace").rstrip("\r")
        if len(held) > LINE:
            raise UsageError(f"a line of standard input is longer than {LINE} bytes")
    if held:
        yield held.decode("utf-8", "replace")


def _said(room: Room, line: Line) -> str:
    time = datetime.fromtimestamp(line.at / 1_000).strftime("%H:%M")
    return f"{time} [{room.name}] {room.shown(line.peer, line.name)}: {harmless(line.text)}"


def _members(room: Room) -> list[str]:
    return sorted(room.shown(peer, member.name) for peer, member in room.members.items())


def _width() -> int:
    try:
        return max(os.get_terminal_size(1).columns or 80, 20)
    except OSError:
        return 80


def _write(data: bytes) -> None:
    """All of it; a reader that has gone away is no error of ours."""
    while data:
        try:
            data = data[os.write(1, data) :]
        except BrokenPipeError:
            return
