"""The numbers of a source are its own: whoever hands a message on cannot change them, and silence it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest
import trio
from msgspec.structs import replace

from libweft.overlays.vcube.machine import VCube
from libweft.overlays.vcube.members import Founders
from libweft.peer.dispatch import receive
from libweft.peer.fake.env import FakeEnv
from libweft.peer.machine import SECOND, Env, Message, Peer
from libweft.peer.trace.kinds import REJECT
from libweft.pubsub.live.api import PubSub, PubSubConfig
from libweft.pubsub.message import Publication
from libweft.pubsub.numbering import MISNUMBERED, bind, is_bound
from libweft.pubsub.scribe.messages import Publish
from libweft.pubsub.vcube_pb.router import VCubePB
from libweft.pubsub.vcube_ps.messages import Ack, Pub, Standing
from libweft.pubsub.vcube_ps.router import VCubePS
from tests.pubsub.apps import Inbox
from tests.pubsub.scribe_desk import Desk, delivered

KINDS = (VCubePS, VCubePB)
HERE = ("/ip4/127.0.0.1/tcp/0",)


class Wax:
    """In the place of `Signing`, where peers are numbers: a signature is what was signed."""

    def sign(self, publication: Publication) -> Publication:
        return replace(publication, signature=_signed(publication))

    def problem(self, publication: Publication) -> str | None:
        return None if publication.signature == _signed(publication) else "a false signature"


def _signed(publication: Publication) -> bytes:
    return msgspec.msgpack.encode(replace(publication, signature=b""))


def node(kind: type[VCubePS | VCubePB], me: int) -> Any:
    """One of four that subscribe; to node 3 all comes from node 0 by node 2."""
    env, cube = FakeEnv(me=me), VCube(FakeEnv(me=me), Founders(4))
    router = kind(env, cube, Inbox())
    router.signing = Wax()  # type: ignore[assignment]
    cube.start()
    router.start()
    router.join("t")
    for child, msg in env.take():
        receive(router, child, Ack(msg.id, ()))  # type: ignore[attr-defined]
    for peer in range(4):
        router.views.note("t", Standing(peer, True, 1, 1))
    env.take_traced()
    return router


def published(kind: type[VCubePS | VCubePB], count: int) -> list[Pub]:
    """What node 2 hears of node 0."""
    source = node(kind, 0)
    for number in range(count):
        source.publish(source.compose("t", b"%d" % number))
    return [msg for peer, msg in source.env.take() if peer == 2]


def later(m: Pub, by: int = 1_000) -> Pub:
    return replace(m, number=m.number + by, base=m.base + by)


def rewritten(m: Pub, by: int = 1_000) -> Pub:
    return bind(Forger(), replace(later(m, by), attributes=()))  # type: ignore[arg-type]


class Forger(Wax):
    def sign(self, publication: Publication) -> Publication:
        return replace(publication, signature=b"mine")


def without(m: Pub, by: int = 1_000) -> Pub:
    return replace(later(m, by), attributes=())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lie", [later, rewritten, without])
def test_a_relay_that_changes_a_number_silences_nobody(kind: type[VCubePS | VCubePB], lie: Any) -> None:
    first, *others = published(kind, 3)
    receiver = node(kind, 3)
    receive(receiver, 2, lie(first))
    assert receiver.app.delivered == [] and receiver.env.take_traced()[-1].kind == REJECT
    for m in (first, *others):
        receive(receiver, 2, m)
    assert [p.data for p in receiver.app.delivered] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lie", [later, rewritten, without])
def test_nor_by_a_second_copy(kind: type[VCubePS | VCubePB], lie: Any) -> None:
    first, second, third = published(kind, 3)
    receiver = node(kind, 3)
    receive(receiver, 2, first)
    receive(receiver, 2, lie(first, 1))
    receive(receiver, 2, lie(first))
    receive(receiver, 2, second)
    receive(receiver, 2, third)
    assert [p.data for p in receiver.app.delivered] == [b"0", b"1", b"2"]


def test_a_relay_to_the_root_cannot_change_a_number_either() -> None:
    source = Desk(7)
    source.router.signing = Wax()  # type: ignore[assignment]
    for number in range(2):
        source.publish(b"%d" % number)
    first, second = [msg for _, msg in source.sent() if isinstance(msg, Publish)]
    root = Desk(0)
    root.router.signing = Wax()  # type: ignore[assignment]
    root.attached(1)
    root.hears(6, replace(first, number=9, base=9))
    assert root.env.take_traced()[-1].reason == MISNUMBERED
    for m in (first, second):
        root.hears(6, m.onward())
    assert delivered(root) == [b"0", b"1"]
    child = Desk(1)
    child.router.signing = Wax()  # type: ignore[assignment]
    child.attached()
    for _, msg in root.sent():
        if not isinstance(msg, Publish):
            child.hears(0, replace(msg, reign=child.tree.reign) if hasattr(msg, "reign") else msg)
    assert delivered(child) == [b"0", b"1"]


def test_where_nothing_is_signed_nothing_is_written() -> None:
    source = Desk(7)
    source.publish()
    ((_, msg),) = source.sent()
    assert msg.attributes == () and bind(None, msg) is msg and not is_bound(msg)


# Live.


class Liar:
    """The Env of a relay that raises the number of the first message that it hands to each."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self.told: dict[Peer, None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def send(self, peer: Peer, msg: Message) -> None:
        if isinstance(msg, Pub) and peer not in self.told:
            self.told[peer] = None
            msg = later(msg)
        self._env.send(peer, msg)


@pytest.mark.live
@pytest.mark.parametrize("stack", ["vcube/vcube-ps", "vcube/vcube-pb"])
async def test_live_nodes_hear_all_of_a_source_behind_a_relay_that_lies(stack: str) -> None:
    config = PubSubConfig(router={"patience": SECOND})
    with trio.fail_after(120):
        async with AsyncExitStack() as opened:
            nodes: list[PubSub] = []
            inboxes = []
            for _ in range(4):
                bootstrap = nodes[0].addresses if nodes else ()
                nodes.append(
                    await opened.enter_async_context(PubSub.open(stack, bootstrap=bootstrap, listen=HERE, config=config))
                )
                inboxes.append(await opened.enter_async_context(nodes[-1].subscribe("t")))
            relay: Any = nodes[2].router
            liar = Liar(relay.broadcasts._env)
            for said in ([b"true"], [b"%02d" % turn for turn in range(5)]):
                for data in said:
                    await nodes[0].publish("t", data)
                for inbox in inboxes:
                    assert [(await anext(inbox)).data for _ in said] == said
                relay.broadcasts._env = liar
            assert liar.told, "nobody was behind it"
