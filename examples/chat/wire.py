"""The messages of the chat: JSON on a room's topic, typed MessagePack in the history protocol.

On the topic stand a line that is said (Say), an announcement of presence (Here), which holds for a while, and a farewell
(Bye). They are JSON so that any subscriber of the topic can read along. The author is not in them: it is whoever signed the
publication. History is a request and then publications just as their authors signed them, a frame each, up to the end
of the stream; so a neighbour can keep lines back, but neither forge nor change one.

Names are of letters, digits and `-_.` alone, since `#` and `:` have a meaning where names are shown, and a shell must take
them as they are.
Bounds: SIZE bytes a message, TEXT characters a line, NAME a name or a room; in a history COUNT lines and BYTES in all.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec

from libweft.peer.errors import PeerError, UsageError, WeftError
from libweft.peer.libp2p.frame import Frames, frame
from libweft.pubsub.message import Publication
from libweft.pubsub.rpc import rpc
from libweft.pubsub.signing import Signing

PREFIX = "weft/chat/"
HISTORY = "/weft/chat/history/1.0.0"
SIZE = 16_384
TEXT = 2_000
NAME = 24
COUNT = 100
BYTES = 1 << 18
ENTRY = SIZE + 4_096  # a publication around its data: id, topic, signature, and perhaps a key
REQUEST = 1_024
EVERY = (5, 600)  # seconds between announcements

Milliseconds: TypeAlias = int
Sent: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
"""Milliseconds since 1970 by the author's clock; more than a browser can count is refused."""
Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME)]


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What a later version adds is passed over; what it changes has another number."""

    version: Literal[1] = 1
    sent: Sent


class Say(ChatMessage, frozen=True, kw_only=True, tag="say"):
    name: Name
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=TEXT)]


class Here(ChatMessage, frozen=True, kw_only=True, tag="here"):
    """The author is in the room, and will say so again in `every` seconds."""

    name: Name
    every: Annotated[int, msgspec.Meta(ge=EVERY[0], le=EVERY[1])]


class Bye(ChatMessage, frozen=True, kw_only=True, tag="bye"):
    pass


class Ask(msgspec.Struct, frozen=True, array_like=True):
    """For the last lines of a room."""

    version: Literal[1]
    room: Name
    count: Annotated[int, msgspec.Meta(ge=1, le=COUNT)]


AnyMessage: TypeAlias = Say | Here | Bye

_encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[AnyMessage] = msgspec.json.Decoder(AnyMessage)
_pack = msgspec.msgpack.Encoder().encode
_unpack_ask = msgspec.msgpack.Decoder(Ask).decode
_unpack_entry = msgspec.msgpack.Decoder(Publication).decode
_codec = rpc(numbered=False)


def check_name(name: str, what: str = "name") -> str:
    """UsageError for what cannot be a name; letters that look alike in two widths are made one."""
    name = unicodedata.normalize("NFKC", name.strip())
    if not _is_name(name):
        raise UsageError(f"{name[: 2 * NAME]!r} is no {what}: 1 to {NAME} letters, digits, or any of _.- inside")
    return name


def topic_of(room: str) -> str:
    return PREFIX + check_name(room, "room")


def encode(message: AnyMessage) -> bytes:
    return _encode(message)


def read(data: bytes) -> AnyMessage | None:
    """None for what is no message of the chat."""
    if len(data) > SIZE:
        return None
    try:
        found = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(found, Say | Here) and not (_is_name(found.name) and unicodedata.is_normalized("NFKC", found.name)):
        return None
    return found


def is_message(publication: Publication) -> bool:
    """The validator of a room's topic."""
    return read(publication.data) is not None


def encode_ask(room: str) -> bytes:
    return frame(_pack(Ask(1, room, COUNT)))


def read_ask(data: bytes) -> Ask:
    try:
        found = _unpack_ask(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PeerError(f"a request for history that does not fit: {error}") from None
    if not _is_name(found.room):
        raise PeerError("a request for the history of what is no room")
    return found


def encode_history(publications: Sequence[Publication], count: int) -> bytes:
    """The last ones, as many as the bounds allow, the oldest first."""
    entries: list[bytes] = []
    size = 0
    for publication in reversed(publications[-min(count, COUNT) :]):
        entry = frame(_pack(publication))
        size += len(entry)
        if size > BYTES:
            break
        entries.append(entry)
    return b"".join(reversed(entries))


class History:
    """Reads what a neighbour answers. A PeerError says that it breaks the protocol or forges; what came before stands."""

    def __init__(self, room: str, signing: Signing) -> None:
        self._topic = topic_of(room)
        self._signing = signing
        self._frames = Frames(ENTRY)
        self._size = 0
        self._count = 0

    def feed(self, data: bytes) -> Iterator[Publication]:
        self._size += len(data)
        if self._size > BYTES:
            raise PeerError(f"a history of more than {BYTES} bytes")
        entries = self._frames.feed(data)
        self._count += len(entries)
        if self._count > COUNT:
            raise PeerError(f"a history of more than {COUNT} lines")
        yield from map(self._entry, entries)

    def finish(self) -> int:
        """The number of lines."""
        self._frames.finish()
        return self._count

    def _entry(self, data: bytes) -> Publication:
        try:
            publication = _unpack_entry(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise PeerError(f"a line of history that does not fit: {error}") from None
        if not _is_canonical(publication):
            raise PeerError("a line of history in another form than the one it was signed in")
        if (problem := self._signing.problem(publication)) is not None:
            raise PeerError(f"a line of history with {problem}")
        if publication.topic != self._topic:
            raise PeerError("a line of another room's history")
        if not isinstance(read(publication.data), Say):
            raise PeerError("something else than a line in a history")
        return publication


def _is_canonical(publication: Publication) -> bool:
    """Whether it could have come over the topic as it is.

    A signature is over the wire form, where epoch and sequence are one number: without this a neighbour could hand out one
    signed line many times, under ids that add up to the same.
    """
    try:
        return list(_codec.unpack(_codec.pack([publication])[0])) == [publication]
    except (OverflowError, ValueError, WeftError):
        return False


def _is_name(name: str) -> bool:
    if not 0 < len(name) <= NAME or name.startswith("-"):
        return False
    return all(letter in "-_." or unicodedata.category(letter)[0] in "LMN" for letter in name)
