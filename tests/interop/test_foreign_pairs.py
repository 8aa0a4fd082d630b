"""The foreign peers among each other: what they can do without weft, weft's own tests may ask of them."""

from __future__ import annotations

import pytest

from tests.interop.foreign import Foreign, foreign, missing

pytestmark = [pytest.mark.slow, pytest.mark.live]

TOPIC = "weft/interop"
COUNT = 20
PAIRS = (
    ("js", "py"),
    ("py", "js"),
    ("go", "js"),
    ("js", "go"),
    ("go", "py"),
    ("py", "go"),
    # not js: rust-libp2p refuses the one in 256 of its messages that has a short sequence number
    ("rust", "go"),
    ("go", "rust"),
    ("rust", "py"),
    ("py", "rust"),
)


def needs(*languages: str) -> None:
    for language in languages:
        if (reason := missing(language)) is not None:
            pytest.skip(f"{language}: {reason}")


async def knows(node: Foreign, other: Foreign) -> None:
    known = await node.ask("identify", peer=other.peer)
    assert known["peer"] == other.peer
    assert known["agent"]
    assert {"/floodsub/1.0.0", "/ipfs/id/1.0.0", "/ipfs/ping/1.0.0"} <= set(known["protocols"])
    assert {addr.split("/p2p/")[0] for addr in known["addrs"]} >= {addr.split("/p2p/")[0] for addr in other.addrs}


async def hears(node: Foreign, author: Foreign) -> None:
    """All that the other publishes, once each and under its name; in any order, for js checks several messages at a time."""
    texts = [f"{author.language} says {number}" for number in range(COUNT)]
    assert await author.ask("publish", topic=TOPIC, data=texts) == {"event": "published", "count": COUNT}
    heard = await node.wait_messages(COUNT)
    assert {(message["from"], message["topic"]) for message in heard} == {(author.peer, TOPIC)}
    assert sorted(message["data"] for message in heard) == sorted(texts)


@pytest.mark.parametrize(("dialler", "listener"), PAIRS)
async def test_two_implementations_ping_identify_and_hear_each_other(dialler: str, listener: str) -> None:
    needs(dialler, listener)
    async with foreign(dialler) as one, foreign(listener) as other:
        assert (await one.ask("dial", addr=other.addrs[0]))["peer"] == other.peer
        for node, peer in ((one, other), (other, one)):
            assert (await node.ask("ping", addr=peer.addrs[0]))["ms"] > 0
            await knows(node, peer)
            await node.ask("subscribe", topic=TOPIC)
        for node in (one, other):
            await node.ask("peers", topic=TOPIC, count=1)
        await hears(one, other)
        await hears(other, one)


@pytest.mark.parametrize("relay", ("js", "py", "go"))
async def test_a_message_is_passed_on_with_its_signature_whole(relay: str) -> None:
    """js and py are not connected: the signature that the one made reaches the other through a third, and holds."""
    needs("js", "py", relay)
    async with foreign(relay) as middle, foreign("js") as one, foreign("py") as other:
        for node in (one, other, middle):
            await node.ask("subscribe", topic=TOPIC)
        for node in (one, other):
            await node.ask("dial", addr=middle.addrs[0])
            await node.ask("peers", topic=TOPIC, count=1)
        await middle.ask("peers", topic=TOPIC, count=2)
        await hears(one, other)
        await hears(other, one)


async def test_a_failed_command_shows_what_the_node_said() -> None:
    async with foreign("js") as node:
        with pytest.raises(AssertionError, match=r"(?s)dial .* failed: .*--- its stdout\n.*\"ready\".*--- its stderr\n.*Error"):
            await node.ask("dial", addr="/ip4/127.0.0.1/tcp/1")
        with pytest.raises(AssertionError, match="no such command"):
            await node.ask("dance")


async def test_a_node_that_ends_is_noticed_at_once() -> None:
    with pytest.raises(AssertionError, match="ended"):
        async with foreign("py") as node:
            await node.ask("quit")
