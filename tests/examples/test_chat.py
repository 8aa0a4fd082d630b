"""The chat of examples/: its messages and rooms alone, its nodes on loopback, its terminal, and who may reach its page."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import socket
import struct
import sys
import termios
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any, TypeVar, cast

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from libweft.examples.chat import room as rooms
from libweft.examples.chat import web, wire
from libweft.examples.chat.__main__ import main
from libweft.examples.chat.app import Chat, ChatConfig, Feed, Missed, Refused, now, open_chat
from libweft.examples.chat.room import Came, Renamed, Room, Said, Went, short
from libweft.examples.chat.terminal import Editor, columns, harmless
from libweft.examples.chat.wire import Bye, Here, Say
from libweft.peer.errors import PeerError, UsageError, alone
from libweft.peer.libp2p.frame import frame
from libweft.peer.libp2p.ids import Identity, peer_text
from libweft.peer.live.link import Stream
from libweft.peer.machine import EPOCH_BITS, MessageId
from libweft.pubsub.live.api import PubSub
from libweft.pubsub.live.defaults import STACK
from libweft.pubsub.message import Publication
from libweft.pubsub.signing import Signing
from tests.examples.websocket import Refused as RefusedSocket
from tests.examples.websocket import WebSocket, open_websocket
from tests.waiting import until

HERE = ("/ip4/127.0.0.1/tcp/0",)
DEADLINE_S = 240
ROOT = Path(__file__).parent.parent.parent
APART = "static/flood"  # where it matters who is whose neighbour
NOW = 1_700_000_000_000
ADA, BOB = (Identity.from_seed(bytes([number]) * 32) for number in (1, 2))
E = TypeVar("E")
Open = Callable[..., Awaitable[Chat]]


def signed(identity: Identity, message: wire.AnyMessage, number: int, room: str = "lobby") -> Publication:
    key = MessageId(identity.peer, 1, number)
    return Signing(identity).sign(Publication(key, wire.topic_of(room), wire.encode(message)))


def say(identity: Identity, text: str, number: int, *, at: int = NOW, name: str = "ada", room: str = "lobby") -> Publication:
    return signed(identity, Say(sent=at, name=name, text=text), number, room)


def here(identity: Identity, number: int, *, at: int = NOW, name: str = "ada", every: int = 10) -> Publication:
    return signed(identity, Here(sent=at, name=name, every=every), number)


# Messages.


@pytest.mark.parametrize("message", [Say(sent=1, name="ada", text="hi\n<b>"), Here(sent=1, name="ada", every=10), Bye(sent=1)])
def test_a_message_is_read_as_it_was_written(message: wire.AnyMessage) -> None:
    assert wire.read(wire.encode(message)) == message


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello",
        b"[]",
        b"\xff",
        b"[" * 16_000,
        b'{"kind": "say", "sent": 1, "name": "ada", "text": "x", "version": 2}',
        b'{"kind": "shout", "sent": 1, "name": "ada", "text": "x"}',
        b'{"kind": "say", "sent": 1, "name": "ada"}',
        b'{"kind": "say", "sent": 1, "name": "ada", "text": ""}',
        b'{"kind": "say", "sent": -1, "name": "ada", "text": "x"}',
        b'{"kind": "say", "sent": 9e99, "name": "ada", "text": "x"}',
        b'{"kind": "say", "sent": 1, "name": "ada", "text": "%s"}' % (b"x" * (wire.TEXT + 1)),
        b'{"kind": "say", "sent": 1, "name": "ada: bob", "text": "x"}',
        b'{"kind": "say", "sent": 1, "name": "ada#12345678", "text": "x"}',
        b'{"kind": "say", "sent": 1, "name": "a\\u202eda", "text": "x"}',
        b'{"kind": "say", "sent": 1, "name": "\\uff41da", "text": "x"}',
        b'{"kind": "say", "sent": 1, "name": "", "text": "x"}',
        b'{"kind": "here", "sent": 1, "name": "ada", "every": 0}',
        b'{"kind": "here", "sent": 1, "name": "ada", "every": 100000}',
        b'{"kind": "bye", "sent": 1, "x": "%s"}' % (b"x" * wire.SIZE),
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    assert wire.read(data) is None


@given(st.binary() | st.text().map(str.encode))
def test_reading_never_raises(data: bytes) -> None:
    wire.read(data)


def test_a_line_of_the_longest_text_fits_whatever_its_letters() -> None:
    for letter in ("x", "\x00", "\U0001f600"):
        data = wire.encode(Say(sent=NOW, name="n" * wire.NAME, text=letter * wire.TEXT))
        assert len(data) <= wire.SIZE and wire.read(data) is not None
        assert len(wire.encode_history([say(ADA, letter * wire.TEXT, 1)], 1)) <= wire.ENTRY


@pytest.mark.parametrize("name", ["", "   ", "a b", "a/b", "x" * 25, "a\x1b", "#", "-x"])
def test_what_cannot_be_a_name_is_told(name: str) -> None:
    with pytest.raises(UsageError):
        wire.check_name(name)


def test_names_of_all_scripts_are_names_and_wide_letters_are_made_narrow() -> None:
    assert [wire.check_name(name) for name in ("zoë", "नमस्ते", "王", " \uff41\uff44\uff41 ")] == ["zoë", "नमस्ते", "王", "ada"]


# History on the wire.


def history(data: bytes, room: str = "lobby") -> list[Publication]:
    reader = wire.History(room, Signing(BOB))
    found = [publication for at in range(len(data)) for publication in reader.feed(data[at : at + 1])]
    reader.finish()
    return found


def test_a_history_is_read_as_it_was_written_and_keeps_the_last_lines() -> None:
    publications = [say(ADA, f"line {number}", number) for number in range(150)]
    assert history(wire.encode_history(publications[:3], wire.COUNT)) == publications[:3]
    assert history(wire.encode_history(publications[:9], 2)) == publications[7:9]
    assert history(wire.encode_history(publications, 10_000)) == publications[-wire.COUNT :]


def test_a_history_of_long_lines_stays_within_its_bytes() -> None:
    publications = [say(ADA, "\U0001f600" * wire.TEXT, number) for number in range(60)]
    data = wire.encode_history(publications, wire.COUNT)
    assert len(data) <= wire.BYTES
    found = history(data)
    assert found == publications[-len(found) :] and len(found) > 20


def entry(publication: object) -> bytes:
    return frame(msgspec.msgpack.encode(publication))


TRUE = say(ADA, "I owe you 10", 1)


def renumbered(epoch: int, sequence: int) -> Publication:
    return msgspec.structs.replace(TRUE, id=MessageId(ADA.peer, epoch, sequence))


FORGED = {
    "changed": (entry(msgspec.structs.replace(TRUE, data=TRUE.data.replace(b"10", b"99"))), "false signature"),
    "unsigned": (entry(msgspec.structs.replace(TRUE, signature=b"")), "no signature"),
    "signed by another": (entry(msgspec.structs.replace(TRUE, id=MessageId(BOB.peer, 1, 1))), "false signature"),
    "with another's key": (entry(msgspec.structs.replace(TRUE, key=BOB.public.encode())), "another author"),
    "with another id": (entry(renumbered(1, 2)), "false signature"),
    "with an id that adds up to the same": (entry(renumbered(1 - 1, 1 + (1 << EPOCH_BITS))), "another form"),
    "with a negative id": (entry(renumbered(-1, 1)), "another form"),
    "with a huge id": (entry(renumbered((1 << 64) - 1, 1)), "another form"),
    "by nobody": (entry(msgspec.structs.replace(TRUE, id=MessageId(5, 1, 1))), "another form"),
    "of another room": (entry(say(ADA, "hi", 1, room="other")), "another room"),
    "no line": (entry(here(ADA, 1)), "something else"),
    "no message": (entry(Signing(ADA).sign(Publication(MessageId(ADA.peer, 1, 1), TRUE.topic, b"{}"))), "something else"),
    "no publication": (entry([1, 2]), "does not fit"),
    "too long": (frame(bytes(wire.ENTRY + 1)), "over the limit"),
    "too many": (b"".join(entry(say(ADA, "x", number)) for number in range(wire.COUNT + 1)), "more than"),
    "half": (entry(TRUE)[:-1], "ended inside"),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_history_is_refused(case: str) -> None:
    data, reason = FORGED[case]
    with pytest.raises(PeerError, match=reason):
        history(data)


# A room.


def test_who_announces_itself_is_here_until_it_is_silent_for_too_long() -> None:
    room, peer = Room("lobby"), peer_text(ADA.peer)
    assert room.heard(here(ADA, 1), NOW) == [Came("lobby", peer, "ada")]
    assert room.heard(here(ADA, 2, at=NOW + 10_000), NOW + 10_000) == []
    assert room.tick(NOW + 45_000) == []
    assert room.tick(NOW + 45_001) == [Went("lobby", peer, "ada", said_so=False)]
    assert room.tick(NOW + 45_002) == [] and not room.members


def test_a_farewell_ends_presence_and_an_older_announcement_does_not_bring_it_back() -> None:
    room, peer = Room("lobby"), peer_text(ADA.peer)
    old = here(ADA, 1)
    room.heard(old, NOW)
    assert room.heard(signed(ADA, Bye(sent=NOW), 2), NOW) == [Went("lobby", peer, "ada", said_so=True)]
    assert room.heard(old, NOW) == [] == room.heard(signed(ADA, Bye(sent=NOW), 3), NOW)
    assert room.heard(here(ADA, 4), NOW) == [Came("lobby", peer, "ada")]


def test_an_announcement_of_another_day_counts_for_nothing() -> None:
    room = Room("lobby")
    assert room.heard(here(ADA, 1, at=NOW - 86_400_000), NOW) == [] == room.heard(here(ADA, 2, at=NOW + 86_400_000), NOW)


def test_another_name_is_told_once() -> None:
    room = Room("lobby")
    room.heard(here(ADA, 1), NOW)
    assert room.heard(here(ADA, 2, name="countess"), NOW) == [Renamed("lobby", peer_text(ADA.peer), "ada", "countess")]
    assert room.heard(here(ADA, 3, name="countess"), NOW) == []


def test_a_line_comes_once_live_or_recalled_and_makes_its_author_present() -> None:
    room, line = Room("lobby"), say(ADA, "hi", 1)
    came, said = room.heard(line, NOW)
    assert isinstance(came, Came) and isinstance(said, Said) and said.line.text == "hi" and not said.past
    assert room.recalled(line, NOW) == [] == room.heard(line, NOW)
    (said,) = room.recalled(say(BOB, "yo", 1, name="bob"), NOW)
    assert said.past and list(room.members) == [peer_text(ADA.peer)]


def test_lines_stand_in_the_order_of_their_time_but_never_after_now() -> None:
    room = Room("lobby")
    room.heard(say(ADA, "future", 1, at=NOW + 86_400_000), NOW)
    room.heard(say(ADA, "second", 2, at=NOW - 1_000), NOW)
    room.recalled(say(BOB, "first", 1, at=NOW - 2_000), NOW)
    room.heard(say(ADA, "last", 3, at=NOW + 5), NOW + 5)
    assert [line.text for line in room.lines] == ["first", "second", "future", "last"]


def test_a_room_keeps_no_more_than_it_may() -> None:
    room = Room("lobby")
    for number in range(rooms.KEPT + 20):
        room.heard(say(ADA, f"{number}", number, at=NOW + number), NOW + number)
    assert [line.text for line in room.lines] == [f"{number}" for number in range(20, rooms.KEPT + 20)]
    assert room.recalled(say(ADA, "0", 0, at=NOW), NOW + 1_000) == []  # older than all that is kept
    for number in range(500, 600):
        room.heard(say(ADA, "\x00" * wire.TEXT, number, at=NOW + number), NOW + number)
    assert sum(len(line.publication.data) for line in room.lines) <= rooms.KEPT_BYTES


def test_a_crowd_is_bounded_and_announces_itself_more_seldom() -> None:
    room, crowd = Room("lobby"), [Identity.from_seed(number.to_bytes(32)) for number in range(1, rooms.MEMBERS + 2)]
    assert room.period == rooms.PERIOD
    for identity in crowd:
        *_, last = room.heard(here(identity, 1), NOW)
    assert len(room.members) == rooms.MEMBERS
    assert last == Went("lobby", peer_text(crowd[0].peer), "ada", said_so=False)
    assert room.period == rooms.MEMBERS / rooms.CROWD


def test_two_peers_with_one_name_are_told_apart() -> None:
    room, ada, liar = Room("lobby"), peer_text(ADA.peer), peer_text(BOB.peer)
    room.heard(here(ADA, 1), NOW)
    assert room.shown(ada, "ada") == "ada" and not room.shared_names()
    room.heard(say(BOB, "send money", 1, name="Ada"), NOW)
    assert room.shown(ada, "ada") == f"ada#{short(ada)}" and room.shown(liar, "Ada") == f"Ada#{short(liar)}"
    room.heard(here(BOB, 2, name="bob"), NOW)
    assert room.shared_names() == {"ada"}  # what it said as Ada is still to be read
    assert room.shown(liar, "bob") == "bob"


# What is typed, and what is shown.


def test_the_editor_gives_lines_and_knows_backspace_and_arrows() -> None:
    editor = Editor()
    assert editor.feed("grü".encode()[:-1]) == [] and editor.typed == "gr"
    assert editor.feed("grü".encode()[-1:]) == [] and editor.typed == "grü"
    assert editor.feed(b"\x7fu\x1b[A\x1b[1;5C\x1bOPss\n") == ["gruss"] and editor.typed == ""
    assert editor.feed(b"a b\x17c\x15d\r\n") == ["d", ""]
    assert editor.feed(b"x\x1b") == [] and editor.feed(b"[D") == [] and editor.feed(b"y") == []
    assert editor.typed == "xy" and editor.feed(b"\x04") == []
    assert editor.feed(b"\x15\x04") == [None]


def test_an_escape_that_never_ends_does_not_swallow_what_comes_later() -> None:
    editor = Editor()
    for _ in range(10):
        editor.feed("\x1b[é".encode())
    editor.feed(b"\x15ok")
    assert editor.typed.endswith("ok")


@given(st.lists(st.binary(max_size=8)))
def test_the_editor_takes_whatever_comes(pieces: list[bytes]) -> None:
    editor = Editor()
    for piece in pieces:
        editor.feed(piece)
        assert editor.typed.isprintable() and columns(editor.drawn("[lobby] ", 20)) < 20


def test_control_characters_are_made_harmless() -> None:
    assert harmless("a\x1b[2Jb\r\n\x07\u202ec\x9bd") == r"a\x1b[2Jb\r\n\x07\u202ec\x9bd"
    assert harmless("grüß 王 😀") == "grüß 王 😀"


async def test_a_feed_that_is_not_read_counts_what_it_missed() -> None:
    feed = Feed()
    event = Came("lobby", "peer", "ada")
    for _ in range(1_010):
        feed.put(event)
    assert [await anext(feed) for _ in range(1_000)] == [event] * 1_000
    feed.put(event)
    assert [await anext(feed), await anext(feed)] == [Missed(10), event]


async def test_a_feed_has_caught_up_when_its_reader_has_done_with_all_that_was_in_it(autojump_clock: object) -> None:
    feed, done = Feed(), []

    async def read() -> None:
        async for event in feed:
            await trio.sleep(1)
            done.append(event)

    async with trio.open_nursery() as nursery:
        await feed.caught_up()
        nursery.start_soon(read)
        for _ in range(3):
            feed.put(Came("lobby", "peer", "ada"))
        await feed.caught_up()
        assert len(done) == 3
        nursery.cancel_scope.cancel()


# Nodes on loopback.


def chatting(
    name: str, *friends: Chat, rooms: tuple[str, ...] = ("lobby",), stack: str = STACK
) -> AbstractAsyncContextManager[Chat]:
    join = [friend.node.addresses[0] for friend in friends]
    return open_chat(ChatConfig(name=name, join=join, listen=HERE, rooms=rooms, stack=stack))


async def stay(opening: AbstractAsyncContextManager[Chat], *, task_status: trio.TaskStatus[Chat]) -> None:
    async with opening as chat:
        task_status.started(chat)
        await trio.sleep_forever()


@pytest.fixture
async def open_chats() -> AsyncIterator[Open]:
    """Opens chats, as `chatting` does, that stay to the end of the test."""
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:

            async def opened(*args: Any, **kwargs: Any) -> Chat:
                return cast(Chat, await nursery.start(stay, chatting(*args, **kwargs)))

            yield opened
            nursery.cancel_scope.cancel()


def texts(chat: Chat, room: str = "lobby") -> list[str]:
    return [line.text for line in chat.rooms[room].lines] if room in chat.rooms else []


def names(chat: Chat, room: str = "lobby") -> set[str]:
    return {member.name for member in chat.rooms[room].members.values()}


async def first(feed: Feed, kind: type[E]) -> E:
    async for event in feed:
        if isinstance(event, kind):
            return event
    raise AssertionError


@pytest.mark.live
async def test_two_hear_each_other_and_know_who_is_here(open_chats: Open) -> None:
    ada = await open_chats("ada")
    bob = await open_chats("bob", ada)
    await until(lambda: names(ada) == names(bob) == {"ada", "bob"})
    await ada.say("lobby", "  hello\tbob ")
    await until(lambda: texts(bob) == ["hello\tbob"])
    await bob.say("lobby", "hello ada")
    await until(lambda: texts(ada) == texts(bob) == ["hello\tbob", "hello ada"])
    assert bob.rooms["lobby"].lines[0].peer == ada.node.peer
    await bob.rename("robert")
    await until(lambda: names(ada) == {"ada", "robert"})


@pytest.mark.live
async def test_a_message_goes_through_a_third_and_leaving_is_told(open_chats: Open) -> None:
    middle = await open_chats("middle", stack=APART)
    ada = await open_chats("ada", middle, stack=APART)
    async with chatting("bob", middle, stack=APART) as bob:
        await until(lambda: names(ada) == names(bob) == {"ada", "bob", "middle"})
        await bob.say("lobby", "through the middle")
        await until(lambda: texts(ada) == ["through the middle"])
        assert bob.node.peer not in ada.neighbors
        with ada.feed() as feed:
            await bob.leave("lobby")
            assert await first(feed, Went) == Went("lobby", bob.node.peer, "bob", said_so=True)
            await bob.enter("lobby")
            assert (await first(feed, Came)).peer == bob.node.peer
    await until(lambda: names(ada) == {"ada", "middle"})  # closing says farewell


@pytest.mark.live
async def test_rooms_are_apart(open_chats: Open) -> None:
    ada = await open_chats("ada", rooms=("lobby", "garden"))
    bob = await open_chats("bob", ada)
    await until(lambda: names(ada) == {"ada", "bob"})
    await ada.say("garden", "flowers")
    await ada.say("lobby", "chairs")
    await until(lambda: texts(bob) == ["chairs"])
    assert names(ada, "garden") == {"ada"}
    with pytest.raises(UsageError, match="not in garden"):
        await bob.say("garden", "let me in")
    async with trio.open_nursery() as nursery:  # at once, as from a terminal and a page
        nursery.start_soon(bob.enter, "garden")
        nursery.start_soon(bob.enter, "garden")
    await until(lambda: texts(bob, "garden") == ["flowers"])
    await bob.leave("garden")
    assert list(bob.rooms) == ["lobby"]
    assert "--room lobby --room garden" in (ada.invitation or "") and "--room" not in (bob.invitation or "")
    assert (ada.invitation or "").startswith("python -m libweft.examples.chat --name bob --join /ip4/")


@pytest.mark.live
async def test_who_comes_late_gets_what_was_said_from_a_neighbour_though_the_author_is_gone(open_chats: Open) -> None:
    middle = await open_chats("middle", stack=APART)
    async with chatting("ada", middle, stack=APART) as ada:
        await until(lambda: "ada" in names(middle))
        for number in range(wire.COUNT + 5):
            await ada.say("lobby", f"line {number}")
        await until(lambda: len(texts(middle)) == wire.COUNT + 5)
        gone = ada.node.peer
    late = await open_chats("late", middle, stack=APART)
    await until(lambda: len(texts(late)) == wire.COUNT)
    assert texts(late) == [f"line {number}" for number in range(5, wire.COUNT + 5)]
    assert {line.peer for line in late.rooms["lobby"].lines} == {gone} and gone not in late.rooms["lobby"].members
    await late.say("lobby", "thanks")
    await until(lambda: texts(middle)[-1] == "thanks")
    assert len(texts(middle)) == wire.COUNT + 6


@pytest.mark.live
async def test_a_neighbour_that_enters_later_is_asked_again(open_chats: Open) -> None:
    ada = await open_chats("ada", rooms=("garden",), stack=APART)
    middle = await open_chats("middle", ada, rooms=("elsewhere",), stack=APART)
    await ada.say("garden", "flowers")
    late = await open_chats("late", middle, rooms=("garden",), stack=APART)
    await until(lambda: names(late, "garden") == {"ada", "late"})
    assert texts(late, "garden") == []
    await middle.enter("garden")
    await until(lambda: texts(middle, "garden") == texts(late, "garden") == ["flowers"])


@pytest.mark.live
async def test_a_neighbour_that_knew_nothing_yet_is_asked_again() -> None:
    answers = [b"", b"", entry(say(BOB, "flowers", 1))]

    async def answer(stream: Stream) -> None:
        await stream.send_all(answers.pop(0))

    with trio.fail_after(DEADLINE_S):
        async with PubSub.open(APART, listen=HERE) as friend:
            friend.host.handle(wire.HISTORY, answer)
            config = ChatConfig(name="ada", join=friend.addresses, listen=HERE, stack=APART)
            async with open_chat(config) as ada:
                while texts(ada) != ["flowers"]:
                    await friend.publish(wire.topic_of("lobby"), wire.encode(Here(sent=now(), name="friend", every=5)))
                    await trio.sleep(0.05)
    assert answers == []


async def lie(data: bytes, stream: Stream) -> None:
    await stream.send_all(data)


@pytest.mark.live
async def test_a_neighbour_that_forges_history_is_found_out_and_what_is_true_stands() -> None:
    with trio.fail_after(DEADLINE_S):
        async with PubSub.open(APART, listen=HERE) as liar:
            liar.host.handle(wire.HISTORY, partial(lie, entry(say(BOB, "true", 1)) + FORGED["changed"][0]))
            config = ChatConfig(name="ada", join=liar.addresses, listen=HERE, rooms=(), stack=APART)
            async with open_chat(config) as ada:
                with ada.feed() as feed:
                    await ada.enter("lobby")
                    refused = await first(feed, Refused)
                    assert (refused.peer, refused.reason) == (liar.peer, "a line of history with a false signature")
                    assert (await first(feed, Said)).line.text == "true"
                assert texts(ada) == ["true"]
                await until(lambda: names(ada) == {"ada"})
                await ada.say("lobby", "the link stays")
                assert ada.neighbors == (liar.peer,)


@pytest.mark.live
async def test_malformed_messages_on_the_topic_cost_nothing(open_chats: Open) -> None:
    ada = await open_chats("ada")
    with trio.fail_after(DEADLINE_S):
        async with PubSub.open(bootstrap=ada.node.addresses, listen=()) as stranger:
            await stranger.neighbors_up()
            for data in (b"hello", b"{}", wire.encode(Say(sent=1, name="x#y", text="z"))):
                await stranger.publish(wire.topic_of("lobby"), data)
            await stranger.publish(wire.topic_of("lobby"), wire.encode(Say(sent=1, name="x", text="well formed")))
            await until(lambda: texts(ada) == ["well formed"])
            assert ada.node.stats()["rejected"] == 3 and ada.node.neighbors == [stranger.peer]


@pytest.mark.live
@pytest.mark.parametrize("request_", [b"", frame(b"\xff"), frame(msgspec.msgpack.encode([1, "a/b", 5])), frame(bytes(2_000))])
async def test_who_asks_for_history_wrongly_loses_its_link(open_chats: Open, request_: bytes) -> None:
    ada = await open_chats("ada")
    with trio.fail_after(DEADLINE_S):
        async with PubSub.open(bootstrap=ada.node.addresses, listen=()) as stranger:
            await stranger.neighbors_up()
            link = stranger.host.links[ada.node.host.peer]
            async with await stranger.host.open_stream(ada.node.peer, [wire.HISTORY]) as stream:
                await stream.send_all(request_)
                await stream.send_eof()
                await link.over.wait()


@pytest.mark.live
async def test_a_room_that_nobody_is_in_has_no_history(open_chats: Open) -> None:
    ada = await open_chats("ada")
    async with (
        PubSub.open(bootstrap=ada.node.addresses, listen=()) as stranger,
        await stranger.host.open_stream(ada.node.host.addresses[0], [wire.HISTORY]) as stream,
    ):
        await stream.send_all(wire.encode_ask("nowhere"))
        assert await stream.receive_some() == b""


# The program: at a terminal, and over pipes.


class Pty:
    """A program at a terminal of its own, and what stands on its screen."""

    def __init__(self, process: trio.Process, master: int) -> None:
        self.process = process
        self.master = master
        self.output = ""

    async def type(self, text: str) -> None:
        os.write(self.master, text.encode())
        await trio.lowlevel.checkpoint()

    async def shows(self, pattern: str) -> re.Match[str]:
        """Wait until the screen has it."""
        while (found := re.search(pattern, "\n".join(self.screen()))) is None:
            await trio.lowlevel.wait_readable(self.master)
            try:
                self.output += os.read(self.master, 1 << 16).decode("utf-8", "replace")
            except OSError:  # what Linux says at the end
                raise AssertionError(f"ended; no {pattern!r} in {self.output!r}") from None
        return found

    def screen(self) -> list[str]:
        lines = []
        for line in self.output.split("\n"):
            shown = ""
            for piece in re.split(r"(\r|\x1b\[K)", line.removesuffix("\r")):
                # nothing here writes over the middle of a line without clearing it first
                shown = "" if piece in ("\r", "\x1b[K") else shown + piece
            lines.append(shown)
        return lines


AT_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C is a signal
os.execv(sys.argv[1], sys.argv[1:])
"""


@asynccontextmanager
async def at_terminal(*argv: str) -> AsyncIterator[Pty]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 300, 0, 0))
    before = termios.tcgetattr(slave)
    process = await trio.lowlevel.open_process(
        [sys.executable, "-c", AT_TERMINAL, *command(*argv)],
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    pty_ = Pty(process, master)
    try:
        yield pty_
        assert await process.wait() == 0
        assert termios.tcgetattr(slave) == before
    except BaseException:
        print("the screen of", *argv, *pty_.screen(), sep="\n")
        raise
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
        os.close(slave)
        os.close(master)


def command(*argv: str) -> list[str]:
    return [sys.executable, "-m", "libweft.examples.chat", "--listen", HERE[0], *argv]


@asynccontextmanager
async def at_pipe(*argv: str) -> AsyncIterator[trio.Process]:
    """A program whose input stays open; what it prints nobody reads."""
    process = await trio.lowlevel.open_process(command(*argv), cwd=ROOT, stdin=PIPE, stdout=DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            assert process.stdin is not None
            await process.stdin.aclose()


async def piped(text: bytes, *argv: str) -> tuple[int, str, str]:
    done = await trio.run_process(
        command(*argv),
        cwd=ROOT,
        stdin=text,
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.live
async def test_two_people_at_two_terminals_and_one_at_a_pipe() -> None:
    with trio.fail_after(DEADLINE_S):
        async with at_terminal("--name", "ada") as ada:
            invitation = await ada.shows(r"a friend types: python -m libweft\.examples\.chat --name bob (--join \S+)")
            there = invitation[1].split()
            await ada.type("before bob\n")
            await ada.shows(r"\d\d:\d\d \[lobby\] ada: before bob")
            async with at_terminal("--name", "bob", *there) as bob:
                await bob.shows(r"\[lobby\] ada: before bob")
                await bob.shows("ada is here")
                await ada.shows("bob is here")
                await bob.type("half a li")
                await bob.shows(r"\[lobby\] half a li$")
                await ada.type("do not disturb\n")
                await bob.shows(r"\[lobby\] ada: do not disturb\n\[lobby\] half a li$")
                await bob.type("ne\n")
                await ada.shows(r"\d\d:\d\d \[lobby\] bob: half a line\n")
                await bob.shows(r"bob: half a line\n\[lobby\] $")

                async with at_pipe("--name", "eve", *there) as eve:
                    assert eve.stdin is not None
                    await eve.stdin.send_all(b"\x1b[2Jboo\r\n")
                    await bob.shows(r"eve: \\x1b\[2Jboo\n")  # before the farewell, which may come by another way
                    await eve.stdin.aclose()
                    assert await eve.wait() == 0
                await bob.shows(r"eve has left")

                await bob.type("/who\n/peers\n/rooms\n/help\n/nonsense\n")
                await bob.shows(r"in lobby: ada, bob\n")
                await bob.shows(r"\* 12D3KooW\w+ ada\n")
                await bob.shows(r"\* lobby: 2 here")
                await bob.shows(r"/leave +leave the room")
                await bob.shows(r"there is no command /nonsense")
                await bob.type("/join garden\n")
                await bob.shows(r"you are in garden\n\[garden\] $")
                await bob.type("//alone\n")
                await bob.shows(r"\[garden\] bob: /alone")
                await bob.type("/leave\n")
                await bob.shows(r"you left garden; you are in lobby\n\[lobby\] $")
                await bob.type("/name ada\n")
                await ada.shows(r"bob is ada#\w{8} now")
                await bob.type("trust me\n")
                await ada.shows(r"\[lobby\] ada#\w{8}: trust me")
                await bob.type("/quit\n")
            await ada.shows(r"ada(#\w{8})? has left")
            await ada.type("\x03")  # Ctrl-C


@pytest.mark.live
async def test_what_was_said_before_leaving_is_shown_before_it() -> None:
    with trio.fail_after(DEADLINE_S):
        async with at_terminal("--name", "ada", "--room", "den", "--room", "lobby") as ada:
            await ada.shows(r"\[den\] $")
            await ada.type("one\ntwo\n/leave\nthree\n/leave\n")  # at once
            await ada.shows(r"\[den\] ada: one\n\d\d:\d\d \[den\] ada: two\n\* you left den; you are in lobby\n")
            await ada.shows(r"you are in lobby\n\d\d:\d\d \[lobby\] ada: three\n\* you left lobby; /join another\n")
            await ada.type("/quit\n")


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address that refuses, and is nobody else's meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"/ip4/127.0.0.1/tcp/{bound.getsockname()[1]}/p2p/{peer_text(ADA.peer)}"


@pytest.mark.live
async def test_a_terminal_tells_once_that_nobody_answers_and_when_somebody_does(nobody: str) -> None:
    with trio.fail_after(DEADLINE_S):
        async with at_terminal("--name", "ada", "--join", nobody) as ada:
            invitation = await ada.shows(r"--join (\S+)\n")
            await ada.shows(r"\* nobody has answered yet")
            await ada.type("is anybody there\n")
            await ada.shows(r"ada: is anybody there\n")
            async with open_chat(ChatConfig(name="bob", join=[invitation[1]], listen=HERE)):
                await ada.shows(r"\* somebody has answered\n")
                await ada.shows("bob is here")
            await ada.shows("bob has left")
            screen = "\n".join(ada.screen())
            assert screen.count("nobody has answered") == screen.count("somebody has answered") == 1
            await ada.type("/quit\n")


@pytest.mark.live
async def test_a_pipe_that_nobody_answers_says_its_lines_all_the_same(nobody: str) -> None:
    with trio.fail_after(DEADLINE_S):
        code, out, _ = await piped(b"/rooms\n", "--name", "ada", "--join", nobody)
    assert code == 0 and re.search(r"\* nobody has answered yet.*\n(.*\n)*\* lobby: \d here\n", out)


@pytest.mark.live
async def test_a_pipe_says_its_lines_and_ends_without_a_prompt_or_ansi() -> None:
    with trio.fail_after(DEADLINE_S):
        code, out, err = await piped(b"hello\n/rooms\n\n/join\nlast", "--name", "ada", "--room", "den")
    assert (code, err) == (0, "")
    assert "\x1b" not in out and "--room den\n" in out
    assert re.search(r"^\* den: \d here$", out, re.MULTILINE) and "is no room" in out


@pytest.mark.live
@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (["--name", "a b"], "is no name"),
        (["--name", "ada", "--room", "/"], "is no room"),
        (["--name", "ada", "--join", "/ip4/127.0.0.1/tcp/1"], "/p2p/"),
        (["--name", "ada", "--listen", "nowhere"], "nowhere"),
        (["--name", "ada", "--stack", "no/stack"], "no stack"),
    ],
)
def test_what_is_asked_wrongly_is_told_in_one_line(argv: list[str], word: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    out, err = capfd.readouterr()
    assert out == "" and err.count("\n") == 1 and word in err


# The page: who may reach it. What it looks like in a browser is in test_chat_browser.py.


@asynccontextmanager
async def served(chat: Chat) -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        yield await nursery.start(web.serve, chat, 0)
        nursery.cancel_scope.cancel()


async def get(url: str, host: str | None = None, path: str | None = None, method: str = "GET") -> tuple[int, str]:
    """Status, and everything after the first line."""
    _, _, place, rest = url.split("/", 3)
    name, _, port = place.partition(":")
    async with await trio.open_tcp_stream(name, int(port)) as stream:
        head = f"{method} {path or '/' + rest} HTTP/1.1\r\nHost: {host or place}\r\nConnection: close\r\n\r\n"
        await stream.send_all(head.encode())
        status, _, answer = b"".join([data async for data in stream]).decode().partition("\r\n")
    return int(status.split()[1]), answer


@pytest.mark.live
async def test_the_page_is_for_who_has_its_address(open_chats: Open) -> None:
    ada = await open_chats("ada")
    async with served(ada) as url:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", url)
        status, answer = await get(url)
        assert status == 200 and "<title>weft chat</title>" in answer
        assert "default-src 'none'; script-src 'sha256-" in answer and "cache-control: no-store" in answer.lower()
        port = url.split(":")[2].split("/")[0]
        for wrong in ("evil.example", f"evil.example:{port}", f"localhost:{port}", "127.0.0.1", f"127.0.0.1:{port}.evil.example"):
            assert (await get(url, host=wrong))[0] == 404
        for path in ("/", "/favicon.ico", "/x/", url.split("/", 3)[2], f"/{url.split('/')[3]}", f"/{url.split('/')[3]}x/"):
            status, answer = await get(url, path=path if path.startswith("/") else f"/{path}")
            assert status == 404 and "weft" not in answer
        assert (await get(url, method="POST"))[0] == 404
        token = url.split("/")[3]
    async with served(ada) as url:
        assert token not in url


@pytest.mark.live
async def test_the_websocket_is_for_the_page_alone(open_chats: Open) -> None:
    ada = await open_chats("ada")
    async with served(ada) as url:
        socket, origin = url.replace("http", "ws") + "ws", url.rsplit("/", 2)[0]
        for wrong in (None, "null", "http://evil.example", origin + ".evil.example", origin.replace("http", "https")):
            with pytest.raises(RefusedSocket):
                async with open_websocket(socket, origin=wrong):
                    pass
        with pytest.raises(RefusedSocket):
            async with open_websocket(socket.replace("/ws", "x/ws"), origin=origin):
                pass
        with pytest.raises(RefusedSocket):
            async with open_websocket(socket, origin=origin, host="evil.example"):
                pass
        async with open_websocket(socket, origin=origin) as page:
            assert (await page.receive())["name"] == "ada"


async def told(page: WebSocket, kind: str) -> Any:
    while (message := await page.receive())["kind"] != kind:
        pass
    return message


@pytest.mark.live
async def test_a_page_is_told_all_and_then_what_is_new(open_chats: Open) -> None:
    ada = await open_chats("ada")
    bob = await open_chats("bob", ada)
    await until(lambda: names(ada) == names(bob) == {"ada", "bob"})
    await bob.say("lobby", "first")
    await until(lambda: texts(ada) == ["first"] and ada.neighbors == (bob.node.peer,))
    async with served(ada) as url, open_websocket(url.replace("http", "ws") + "ws", origin=url.rsplit("/", 2)[0]) as page:
        found = await told(page, "self")
        assert found["peer"] == ada.node.peer and found["rooms"] == ["lobby"]
        assert found["neighbors"] == [{"peer": bob.node.peer, "name": "bob"}]
        found = await told(page, "room")
        assert [line["text"] for line in found["lines"]] == ["first"]
        assert [member["name"] for member in found["members"]] == ["ada", "bob"]
        await page.send({"kind": "say", "room": "lobby", "text": "from the page"})
        assert (await told(page, "said"))["line"]["text"] == "from the page"
        await until(lambda: texts(bob) == ["first", "from the page"])
        await bob.rename("ADA")  # then all lines are told anew, with both names told apart
        found = await told(page, "room")
        assert [line["name"] for line in found["lines"]] == ["bob", f"ada#{short(ada.node.peer)}"]
        assert {member["name"] for member in found["members"]} == {f"ada#{short(ada.node.peer)}", f"ADA#{short(bob.node.peer)}"}
        await page.send({"kind": "enter", "room": "garden"})
        assert (await told(page, "room"))["room"] == "garden"
        await page.send({"kind": "leave", "room": "lobby"})
        while (await told(page, "self"))["rooms"] != ["garden"]:
            pass
        for bad in ({"kind": "say", "room": "lobby", "text": "x"}, {"kind": "rename", "name": "a b"}, {"kind": "x"}, 5):
            await page.send(bad)
            assert (await told(page, "notice"))["text"]
        await page.send({"kind": "rename", "name": "countess"})
        while (await told(page, "self"))["name"] != "countess":
            pass


@pytest.mark.live
async def test_a_port_that_is_taken_is_told(open_chats: Open) -> None:
    ada = await open_chats("ada")
    async with served(ada) as url:
        with pytest.raises(UsageError, match="cannot serve on port"), alone():
            async with trio.open_nursery() as nursery:
                await nursery.start(web.serve, ada, int(url.split(":")[2].split("/")[0]))
