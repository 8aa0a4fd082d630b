"""weft and the peers of other libraries, each as dialler and as listener: identify, ping, and signed floodsub both ways."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from libweft.peer.libp2p.ids import parse_peer, peer_text
from libweft.pubsub.flood import PROTOCOL
from libweft.pubsub.live.api import PubSub
from tests import waiting
from tests.interop.foreign import Foreign, foreign, missing

pytestmark = [pytest.mark.slow, pytest.mark.live]

TOPIC = "weft/interop"
COUNT = 100
LANGUAGES = ("js", "py", "go", "rust")
HERE = ("/ip4/127.0.0.1/tcp/0",)


def needs(*languages: str) -> None:
    for language in languages:
        if (reason := missing(language)) is not None:
            pytest.skip(f"{language}: {reason}")


async def until(true: Callable[[], bool], node: Foreign, what: str) -> None:
    """As `waiting.until`. A failure shows what the other side said; weft's own log is in pytest's."""
    await waiting.until(true, lambda: node._complaint(what))


async def dialled_by_weft(node: PubSub, other: Foreign) -> None:
    assert peer_text((await node.host.connect(other.addrs[0])).peer) == other.peer


async def dialled_by_the_other(node: PubSub, other: Foreign) -> None:
    assert (await other.ask("dial", addr=str(node.host.addresses[0])))["peer"] == peer_text(node.host.peer)
    await until(lambda: parse_peer(other.peer) in node.host.links, other, "its link")


DIALS = {"weft dials": dialled_by_weft, "weft listens": dialled_by_the_other}


@pytest.mark.parametrize("dial", DIALS.values(), ids=DIALS)
@pytest.mark.parametrize("language", LANGUAGES)
async def test_ping_identify_and_a_hundred_messages_each_way(
    language: str, dial: Callable[[PubSub, Foreign], Awaitable[None]]
) -> None:
    needs(language)
    async with PubSub.open("static/flood", listen=HERE) as node, foreign(language) as other, node.subscribe(TOPIC) as messages:
        await dial(node, other)
        peer = parse_peer(other.peer)
        assert await node.host.ping(peer) > 0
        assert (await other.ask("ping", addr=str(node.host.addresses[0])))["ms"] > 0
        assert PROTOCOL in node.host.links[peer].protocols
        await other_knows(other, node)
        await other.ask("subscribe", topic=TOPIC)
        await other.ask("peers", topic=TOPIC, count=1)
        await until(lambda: peer in node.router.overlay.neighbors, other, "its neighbour")
        texts = [f"{language} says {number}" for number in range(COUNT)]
        await other.ask("publish", topic=TOPIC, data=texts)
        await until(lambda: len(messages) >= COUNT, other, f"{COUNT} messages")
        heard = [await anext(messages) for _ in range(len(messages))]
        assert sorted(message.data.decode() for message in heard) == sorted(texts)
        assert {message.source for message in heard} == {other.peer}
        ours = [f"weft says {number}" for number in range(COUNT)]
        for text in ours:
            await node.publish(TOPIC, text.encode())
        received = await other.wait_messages(COUNT)
        assert sorted(message["data"] for message in received) == sorted(ours)
        assert {message["from"] for message in received} == {peer_text(node.host.peer)}
        assert len(node.host.links) == 1


async def other_knows(other: Foreign, node: PubSub) -> None:
    known = await other.ask("identify", peer=peer_text(node.host.peer))
    assert known["agent"].startswith("weft/")
    assert {PROTOCOL, "/ipfs/id/1.0.0", "/ipfs/ping/1.0.0"} <= set(known["protocols"])
    place = str(node.host.addresses[0].without_peer())
    assert place in {addr.split("/p2p/")[0] for addr in known["addrs"]}


@pytest.mark.parametrize(("one", "two"), [("js", "py"), ("py", "go")])
async def test_weft_passes_on_what_others_signed(one: str, two: str) -> None:
    """The two are not connected: each hears the other through weft."""
    needs(one, two)
    async with PubSub.open("static/flood", listen=HERE) as node, foreign(one) as a, foreign(two) as b, node.subscribe(TOPIC):
        for other in (a, b):
            await other.ask("subscribe", topic=TOPIC)
            await dialled_by_the_other(node, other)
            await other.ask("peers", topic=TOPIC, count=1)
        await until(lambda: len(node.router.overlay.neighbors) == 2, a, "two neighbours")
        for author, hearer in ((a, b), (b, a)):
            texts = [f"{author.language} says {number}" for number in range(COUNT)]
            await author.ask("publish", topic=TOPIC, data=texts)
            received = await hearer.wait_messages(COUNT)
            assert sorted(message["data"] for message in received) == sorted(texts)
            assert {message["from"] for message in received} == {author.peer}
