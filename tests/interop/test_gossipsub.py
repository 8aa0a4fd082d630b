"""weft and the GossipSub of other libraries in one mesh: every message once, and each kind of control as both sides counted it.

Who should learn of a message by gossip alone is kept apart from its author by a node that has no mesh (a degree of 0): it
refuses every GRAFT, so what comes to it goes no further, but that it announces it.
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import combinations, product

import pytest
import trio

from libweft.overlays.description import Options
from libweft.peer.libp2p.ids import parse_peer
from libweft.pubsub import stacks
from libweft.pubsub.gossipsub.messages import IDontWant
from libweft.pubsub.live.subscription import Message
from tests.interop.foreign import DEADLINE, missing
from tests.interop.meshes import CONTROL, TOPIC, CountedGossipSub, Network, has, other, says, weft
from tests.interop.test_weft import needs

pytestmark = [pytest.mark.slow, pytest.mark.live]

COUNT = 200
FEW = 20
LARGE = 2_048  # bytes: more than the least for which anybody says IDONTWANT
LANGUAGES = ("js", "py", "go", "rust")
# Nor are others introduced, who would find a way round it.
NO_MESH: Options = {"d": 0, "d_lo": 0, "d_hi": 0, "d_out": 0, "px": False}


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "libweft")
    monkeypatch.setitem(stacks.ROUTERS, "gossipsub", replace(stacks.ROUTERS["gossipsub"], machine=CountedGossipSub))


async def test_the_others_without_weft_hear_each_other_and_count_alike() -> None:
    needs("js", "py", "go")
    async with other("js", "--gossipsub") as a, other("py", "--gossipsub") as b, other("go", "--gossipsub") as c:
        made = Network([a, b, c])
        await made.dial_all()
        await made.all_hear_all(FEW, LARGE)
        for one, two in combinations(made.nodes, 2):
            sent, received = await made.agreed(one, two)
            assert sent["graft"] + received["graft"] >= 1


@pytest.mark.parametrize("language", LANGUAGES)
async def test_two_and_two_in_one_mesh_hear_each_other_once(language: str) -> None:
    """Then one of each leaves, and tells it by PRUNE. Who sends GRAFT is a matter of chance here, but not below."""
    needs(language)
    async with weft() as w, other(language, "--gossipsub") as o, weft() as v, other(language, "--gossipsub") as p:
        made = Network([w, o, v, p])
        await made.dial_all()
        await made.all_hear_all(COUNT, LARGE)
        for one, two in product((w, v), (o, p)):
            sent, received = await made.agreed(one, two)
            assert sent["graft"] + received["graft"] >= 1
            assert sent["idontwant"] > 0
            assert received["idontwant"] > 0

        await o.leave()
        await w.leave()

        async def left() -> bool:
            return await v.mesh() == {p.peer} and await p.mesh() == {v.peer}

        await made.until(left, "end of those who left")
        assert (await made.agreed(v, o))[1]["prune"] == 1
        assert (await made.agreed(w, p))[0]["prune"] == 1
        await v.publish(["to one"])
        await p.publish(["to the other"])
        await made.until(lambda: has(p, (v.peer, "to one")), "message")
        await made.until(lambda: has(v, (p.peer, "to the other")), "message")
        assert [len(await node.heard()) for node in made.nodes] == [3 * COUNT, 3 * COUNT, 3 * COUNT + 1, 3 * COUNT + 1]


@pytest.mark.parametrize("language", LANGUAGES)
async def test_weft_asks_for_what_another_announces(language: str) -> None:
    """weft - other - weft, where the other has no mesh: it has the messages from their author, and only announces them."""
    needs(language)
    async with weft() as author, other(language, "--gossipsub", "--degree", "0") as middle, weft() as end:
        made = Network([author, middle, end])
        await author.dial(middle)
        await middle.dial(end)
        await made.pruned(middle, author, end)
        texts = says(author, FEW)
        await author.publish(texts)
        for node in (middle, end):
            await made.hears(node, [(author, texts)])
        sent, received = await made.agreed(end, middle)
        assert (sent["graft"], received["prune"]) == (1, 1)
        assert received["ihave"] >= FEW
        assert sent["iwant"] >= FEW
        sent, received = await made.agreed(author, middle)
        assert (sent["graft"], received["prune"]) == (1, 1)
        assert (sent["iwant"], received["iwant"]) == (0, 0)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_another_asks_for_what_weft_announces(language: str) -> None:
    """weft - weft - other, where the one in the middle has no mesh."""
    needs(language)
    async with weft() as author, weft(options=NO_MESH) as middle, other(language, "--gossipsub") as end:
        made = Network([author, middle, end])
        await author.dial(middle)
        await middle.dial(end)
        await made.pruned(middle, author, end)
        texts = says(author, FEW)
        await author.publish(texts)
        for node in (middle, end):
            await made.hears(node, [(author, texts)])
        sent, received = await made.agreed(middle, end)
        assert (sent["prune"], received["graft"]) == (1, 1)
        assert sent["ihave"] >= FEW
        assert received["iwant"] >= FEW


@pytest.mark.parametrize("language", LANGUAGES)
async def test_another_does_not_send_what_weft_does_not_want(language: str) -> None:
    """weft - other - weft: the one at the end refuses a message before it was published, and gets the next.

    Refusals are forgotten in a heartbeat or a few, so that it may take several tries.
    """
    needs(language)
    async with weft() as author, other(language, "--gossipsub") as middle, weft() as end:
        made = Network([author, middle, end])
        await author.dial(middle)
        await middle.dial(end)
        await made.meshed((author, middle), (middle, end))
        tries = 0

        async def spared() -> bool:
            nonlocal tries
            tries += 1
            refused = author.router.compose(TOPIC, f"refused {tries} ".ljust(LARGE, ".").encode())
            end.router.env.send(parse_peer(middle.peer), IDontWant((author.router.key(refused),)))
            await made.agreed(end, middle)
            author.router.publish(refused)
            await made.until(lambda: has(middle, (author.peer, refused.data.decode())), "message in the middle")
            await author.publish([f"wanted {tries}"])
            await made.until(lambda: has(end, (author.peer, f"wanted {tries}")), "message at the end")
            return not await has(end, (author.peer, refused.data.decode()))

        await made.until(spared, "message that was spared")


@pytest.mark.parametrize("language", LANGUAGES)
async def test_weft_does_not_send_what_another_does_not_want(language: str) -> None:
    """All three are connected. What the author sends to both, weft holds back until the other has refused it."""
    needs(language)
    async with weft() as author, other(language, "--gossipsub") as wary, weft() as slow:
        made = Network([author, wary, slow])
        await made.dial_all()
        name = parse_peer(wary.peer)

        async def refused(message: Message) -> bool:
            while name not in slow.router.gossip.unwanted.get(slow.router.key(message.publication), ()):
                await trio.sleep(0.01)
            return True

        slow.node.validate(TOPIC, refused)
        texts = says(author, FEW, LARGE)
        await author.publish(texts)
        for node in (wary, slow):
            await made.hears(node, [(author, texts)])
        assert slow.router.sent[name]["publication"] == 0


@pytest.mark.parametrize("language", ("go", "py"))  # js wants a score of 10 of who introduces, rust does not dial
async def test_another_dials_whom_weft_introduces(language: str) -> None:
    """weft - weft - other: the one in the middle leaves the topic."""
    needs(language)
    async with weft() as one, weft() as middle, other(language, "--gossipsub") as two:
        made = Network([one, middle, two])
        await middle.dial(one)
        await middle.dial(two)
        await made.meshed((one, middle), (middle, two))
        await middle.leave()
        await made.meshed((one, two))
        [link] = [link for peer, link in one.node.host.links.items() if peer == parse_peer(two.peer)]
        assert not link.outbound


async def test_all_libraries_in_one_mesh_hear_each_other_through_weft() -> None:
    """They are not connected but through weft: the signatures that each made hold with the others."""
    languages = [language for language in LANGUAGES if missing(language) is None]
    async with AsyncExitStack() as stack:
        middle = await stack.enter_async_context(weft())
        others = [await stack.enter_async_context(other(language, "--gossipsub")) for language in languages]
        made = Network([middle, *others])
        for each in others:
            await each.dial(middle)
        await made.meshed(*((middle, node) for node in others))
        await made.all_hear_all(COUNT // 2)


@pytest.mark.parametrize("language", ("js", "py", "go"))  # rust has no peer of floodsub alone
async def test_a_peer_of_floodsub_alone_hears_weft_s_mesh_and_is_heard(language: str) -> None:
    """weft - weft - floodsub: the first is in the mesh of the second."""
    needs(language)
    async with weft() as far, weft() as near, other(language) as plain:
        made = Network([far, near, plain])
        await near.dial(far)
        await plain.dial(near)
        await made.meshed((far, near))
        await plain.node.ask("peers", topic=TOPIC, count=1)
        name = parse_peer(plain.peer)

        async def known() -> bool:
            return name in near.router.subscribers.get(TOPIC, ())

        await made.until(known, "subscription")
        assert near.router.parties[name].level == 0
        await made.all_hear_all(COUNT // 2)
        assert not any(near.router.sent[name][kind] + near.router.received[name][kind] for kind in CONTROL)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_weft_s_floodsub_hears_another_s_mesh_and_is_heard(language: str) -> None:
    """weft - other - weft's floodsub: the first is in the mesh of the second."""
    needs(language)
    async with weft() as far, other(language, "--gossipsub") as near, weft("static/flood") as plain:
        made = Network([far, near, plain])
        await near.dial(far)
        await plain.dial(near)
        await made.meshed((far, near))
        await near.node.ask("peers", topic=TOPIC, count=2)
        with trio.fail_after(DEADLINE):
            await plain.node.neighbors_up()
        await made.all_hear_all(COUNT // 2)
        if language != "js":  # js-libp2p may graft a peer of floodsub, which overlooks that and hears all the same
            assert plain.peer not in await near.mesh()
