"""weft's Kademlia and the kad-dht of other libraries, in one network: peers, values and providers found both ways.

Three weft nodes and two others stand in a row, each told of its neighbour there only:
    weft[2] - weft[0] - other[0] - weft[1] - other[1]
All of them keep every record, for a bucket has room for more than there are. So where one side must have been told by the other,
weft's nodes forget what they keep, or get it without the others' knowing.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio

from libweft.overlays.kademlia.config import KademliaConfig
from libweft.overlays.kademlia.messages import Record
from libweft.overlays.kademlia.put_and_get import Kademlia
from libweft.overlays.kademlia.space import topic_key
from libweft.peer.errors import alone
from libweft.peer.libp2p.ids import Identity, parse_peer, peer_text
from libweft.peer.live.driver import run_stack
from libweft.peer.live.host import Host, open_host
from libweft.peer.machine import SECOND, Env, Peer, PeerInfo
from tests import waiting
from tests.interop.foreign import DEADLINE, Foreign, foreign
from tests.interop.test_weft import HERE, needs

pytestmark = [pytest.mark.slow, pytest.mark.live]

LANGUAGES = ("js", "go")
PREFIX = "/weft-test"
CONFIG = KademliaConfig(protocol=f"{PREFIX}/kad/1.0.0", near_every=SECOND, quorum=20)  # a quorum of all: each is asked
TOPIC = "weft/interop"
HOUR = 3_600 * SECOND


class Last:
    """As with the others: of several values the last in the order of bytes is the best."""

    def valid(self, key: bytes, value: bytes) -> bool:
        return True

    def best(self, key: bytes, values: Sequence[bytes]) -> bytes:
        return max(values)


class Weft:
    def __init__(self, host: Host, dht: Kademlia) -> None:
        self.host = host
        self.dht = dht
        self.peer = peer_text(host.peer)
        self.place = str(host.addresses[0].without_peer())

    @property
    def idle(self) -> bool:
        return not self.host.dialling and not self.host.handshakes and all(link.told for link in self.host.links.values())

    async def ask(self, do: Callable[..., None], *args: Any) -> Any:
        """Call what tells its outcome to a callback, and wait for that."""
        outcome, told = trio.open_memory_channel[Any](1)
        do(*args, outcome.send_nowait)
        with trio.fail_after(DEADLINE):
            return await told.receive()

    async def find(self, peer: str) -> PeerInfo:
        """As soon as it is found: when two dial each other at once, the link that is closed costs a lookup the peer behind it."""
        name = parse_peer(peer)
        with trio.fail_after(DEADLINE):
            while True:
                for info in await self.ask(self.dht.lookup, name):
                    if info.peer == name:
                        assert isinstance(info, PeerInfo)
                        return info

    def value(self, key: bytes) -> bytes | None:
        stored = self.dht.records.stored(key, self.dht.env.now())
        return stored.value if stored is not None else None

    def forget(self) -> None:
        records = self.dht.records
        for key in list(records.values):
            records._remove(key)
        records.providers.clear()


@asynccontextmanager
async def weft(*contacts: str) -> AsyncIterator[Weft]:
    def build(env: Callable[[], Env]) -> list[Kademlia]:
        return [Kademlia(env(), peers, CONFIG, {"weft": Last()})]

    peers: list[Peer] = []
    with alone():
        async with open_host(Identity.new(), listen=HERE) as host:
            for text in contacts:
                peer, addresses = host._where(text)
                host.learn(peer, addresses)
                peers.append(peer)
            async with run_stack(host, build) as driver:
                [dht] = driver.machines
                assert isinstance(dht, Kademlia)
                yield Weft(host, dht)


class Network:
    def __init__(self, wefts: Sequence[Weft], others: Sequence[Foreign]) -> None:
        self.wefts = wefts
        self.others = others

    async def until(self, true: Callable[[], bool], what: str) -> None:
        await waiting.until(true, what)

    async def full(self) -> None:
        """All are in the table of each, and nobody dials any more."""
        rest = len(self.wefts) + len(self.others) - 1
        for other in self.others:
            await other.ask("dht_peers", count=rest)
        await self.until(lambda: all(len(node.dht.table) == rest and node.idle for node in self.wefts), f"{rest} contacts each")

    def explain(self) -> str:
        """What all of them know; weft's own log is in pytest's."""
        lines = []
        for node in self.wefts:
            dht = node.dht
            lines.append(f"--- weft {node.peer} at {node.place}")
            lines.append(f"contacts {[peer_text(peer) for peer in dht.table if isinstance(peer, bytes)]}")
            lines.append(f"values { ({key: stored.value for key, stored in dht.records.values.items()}) }")
            lines.append(f"providers {dht.records.providers}")
        return "\n".join([*lines, *(other._complaint(f"is {other.peer}") for other in self.others)])


@asynccontextmanager
async def network(language: str) -> AsyncIterator[Network]:
    needs(language)
    async with AsyncExitStack() as stack:
        others = [await stack.enter_async_context(foreign(language, "--dht", PREFIX)) for _ in range(2)]
        first = await stack.enter_async_context(weft())
        second = await stack.enter_async_context(weft(others[0].addrs[0]))
        third = await stack.enter_async_context(weft(str(first.host.addresses[0])))
        made = Network([first, second, third], others)
        try:
            await others[0].ask("dial", addr=str(first.host.addresses[0]))
            await others[1].ask("dial", addr=str(second.host.addresses[0]))
            row = ((first, others[0].peer), (first, third.peer), (second, others[1].peer))
            await made.until(lambda: all(parse_peer(peer) in node.dht.table for node, peer in row), "its neighbours in the row")
            await others[0].ask("dht_peers", count=2)
            yield made
        except Exception:
            print(made.explain())
            raise


@pytest.fixture(autouse=True)
def _nothing_to_complain_of(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Of no peer's messages anything was wrong."""
    caplog.set_level(logging.DEBUG, "libweft")
    yield
    assert [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.WARNING] == []


def places(addrs: Sequence[str]) -> set[str]:
    return {addr.split("/p2p/")[0] for addr in addrs}


@pytest.mark.parametrize("language", LANGUAGES)
async def test_each_finds_each_other_by_its_peer_id_alone(language: str) -> None:
    async with network(language) as made:
        for node in made.wefts:
            for other in made.others:
                found = await node.find(other.peer)
                assert places(found.addresses) >= places(other.addrs)
                answer = await other.ask("dht_find_peer", peer=node.peer)
                assert answer["peer"] == node.peer
                assert node.place in places(answer["addrs"])
        await made.full()
        assert all(isinstance(peer, bytes) and node.host.known[peer].addresses for node in made.wefts for peer in node.dht.table)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_values_put_by_one_side_are_got_by_the_other(language: str) -> None:
    async with network(language) as made:
        await made.full()
        first, second, third = made.wefts
        one, two = made.others

        assert await first.ask(first.dht.put, b"/weft/ours", b"by weft", HOUR) == 4
        for other in made.others:
            assert (await other.ask("dht_get", key="/weft/ours"))["value"] == "by weft"

        second.dht._keep(Record(b"/weft/ours alone", b"kept by weft"))
        assert (await two.ask("dht_get", key="/weft/ours alone"))["value"] == "kept by weft"

        await one.ask("dht_put", key="/weft/theirs", value=f"by {language}")
        for node in made.wefts:
            assert node.value(b"/weft/theirs") == f"by {language}".encode()
            node.forget()
        for key, value in ((b"/weft/theirs", f"by {language}"), (b"/weft/ours", "by weft")):  # only the others have them now
            assert await third.ask(third.dht.get, key) == value.encode()
        assert await third.ask(third.dht.get, b"/weft/nobody's") is None


@pytest.mark.parametrize("language", LANGUAGES)
async def test_who_finds_an_old_value_tells_its_holder_the_new_one(language: str) -> None:
    async with network(language) as made:
        await made.full()
        first, second, third = made.wefts
        one, two = made.others

        await one.ask("dht_put", key="/weft/x", value="1")
        for node in made.wefts:
            node.dht._keep(Record(b"/weft/x", b"2"))
        assert await third.ask(third.dht.get, b"/weft/x") == b"2"
        for node in made.wefts:
            node.forget()

        async def both_have_it() -> bool:
            """Each of the two asks the other, and itself."""
            return [(await other.ask("dht_get", key="/weft/x"))["value"] for other in made.others] == ["2", "2"]

        await waiting.until_answer(both_have_it, "weft's corrections, for which weft does not wait")

        for node in (first, second):
            node.dht._keep(Record(b"/weft/x", b"1"))
        assert (await two.ask("dht_get", key="/weft/x"))["value"] == "2"
        await made.until(lambda: all(node.value(b"/weft/x") == b"2" for node in (first, second)), "the new value")


@pytest.mark.parametrize("language", LANGUAGES)
async def test_providers_told_by_one_side_are_found_by_the_other(language: str) -> None:
    """Under the key where go-libp2p-pubsub's discovery looks for the subscribers of a topic."""
    text, key = f"floodsub:{TOPIC}", topic_key(TOPIC)
    async with network(language) as made:
        await made.full()
        first, second, third = made.wefts
        one, two = made.others

        async def found_by(other: Foreign, text: str) -> dict[str, set[str]]:
            answer = await other.ask("dht_find_providers", key=text)
            return {peer: places(addrs) for peer, addrs in zip(answer["peers"], answer["addrs"], strict=True)}

        def kept(node: Weft, peer: str) -> bool:
            return parse_peer(peer) in node.dht.records.providers.get(key, {})

        async def found(node: Weft) -> dict[str, set[str]]:
            infos = await node.ask(node.dht.find_providers, key, 20)
            return {peer_text(info.peer): places(info.addresses) for info in infos}

        assert await first.ask(first.dht.provide, key) == 4
        await made.until(lambda: kept(second, first.peer) and kept(third, first.peer), "weft's provider")
        for node in made.wefts:
            node.forget()

        async def first_is_found() -> bool:
            return first.peer in await found(third)

        await waiting.until_answer(first_is_found, "weft's provider, whose arrival nobody confirms")
        assert first.place in (await found(third))[first.peer]
        for other in made.others:
            assert first.place in (await found_by(other, text))[first.peer]

        await one.ask("dht_provide", key=text)
        await made.until(lambda: all(kept(node, one.peer) for node in made.wefts), "the other's provider")
        third.forget()
        assert (await found(third))[one.peer] >= places(one.addrs)
        assert (await found_by(two, text))[one.peer] >= places(one.addrs)

        alone = topic_key("weft/alone")
        second.dht.records.provide(alone, third.dht.env.info(third.host.peer), second.dht.env.now() + HOUR)
        assert third.place in (await found_by(two, "floodsub:weft/alone"))[third.peer]
