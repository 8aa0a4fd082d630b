"""What a caller may hand to Kademlia, checked at the call: later it would be a fault of the machine, and stop its whole stack."""

from __future__ import annotations

from libweft.overlays.kademlia.wire import KEY_LIMIT
from libweft.peer.errors import UsageError
from libweft.peer.machine import SECOND


def check_key(key: object) -> None:
    if not isinstance(key, bytes):
        raise UsageError(f"a key is bytes, not {_kind(key)}")
    if not 0 < len(key) <= KEY_LIMIT:
        raise UsageError(f"a key of {len(key)} bytes; it must have 1 to {KEY_LIMIT}")


def check_value(value: object, limit: int) -> None:
    if not isinstance(value, bytes):
        raise UsageError(f"a value is bytes, not {_kind(value)}")
    if len(value) > limit:
        raise UsageError(f"a value of {len(value)} bytes is over the limit of {limit}")


def check_ttl(ttl: object) -> None:
    if type(ttl) is not int:
        raise UsageError(f"ttl is {ttl!r:.80}; it must be a whole number of microseconds")
    if ttl < SECOND:
        raise UsageError(f"a value that is to last {ttl} microseconds; a second at least")


def check_topic(topic: object) -> None:
    if not isinstance(topic, str):
        raise UsageError(f"a topic is a text, not {_kind(topic)}")
    try:
        topic.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the topic {topic!a:.80} is no text in UTF-8") from None


def check_count(n: object) -> None:
    if type(n) is not int or n < 1:
        raise UsageError(f"n is {n!r:.80}; it must be a whole number of at least 1")


def check_done(done: object) -> None:
    if not callable(done):
        raise UsageError(f"done is {done!r:.80}; it must be something to call")


def _kind(thing: object) -> str:
    return type(thing).__name__
