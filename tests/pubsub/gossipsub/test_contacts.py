"""Whom a node keeps links to: peers of meshes, those it was introduced to, those an overlay found, and direct peers."""

from __future__ import annotations

from typing import Any

import pytest

from libweft.overlays.overlay import Overlay
from libweft.overlays.static import Static
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.fake.env import FakeEnv
from libweft.peer.machine import Link, PeerInfo
from libweft.pubsub.gossipsub.contacts import DIALS, DIRECT
from libweft.pubsub.gossipsub.messages import Graft, Prune, Pruned
from libweft.pubsub.gossipsub.wire import MeshCodec
from libweft.pubsub.message import Publication
from tests.pubsub.gossipsub.world import FLOODSUB, V10, V11, Finder, Node, message, pruned

SMALL: dict[str, Any] = {"d": 2, "d_lo": 2, "d_hi": 4, "d_score": 1, "d_out": 0}
TRUSTED = 100.0


def introducer(**config: Any) -> Node:
    """Peer 1 may introduce others."""
    node = Node("t", **{**SMALL, **config})
    node.up(1)
    node.rate(p1=TRUSTED)
    return node


# Introducing others.


def test_who_is_pruned_is_introduced_to_others_of_the_topic_by_their_records() -> None:
    node = Node("t", **SMALL)
    node.env.learn(PeerInfo(2, ("/ip4/1.2.3.4/tcp/1",), b"signed by 2"))
    node.up(1, 2, 3)
    node.up(4, topics=("other",))
    node.router.leave("t")
    [said] = pruned(node, 1)
    assert set(said.peers) == {PeerInfo(2, (), b"signed by 2"), PeerInfo(3)} and said.backoff == 10


def test_only_so_many_are_introduced_and_they_are_drawn_by_lot() -> None:
    node = Node("t", px_peers=5, **SMALL)
    node.up(*range(1, 40))
    node.router.leave("t")
    first, second = (pruned(node, peer)[0].peers for peer in (1, 2))
    assert len(first) == len(set(first)) == 5 and first != second


def test_the_most_that_others_read_fit_one_message_of_the_wire() -> None:
    infos = tuple(PeerInfo(number, (), bytes(300)) for number in range(16))
    codec = MeshCodec(numbered=True)
    assert codec.unpack(codec.pack([Prune((Pruned("t", infos, 60),))])[0]) == [Prune((Pruned("t", infos, 60),))]


@pytest.mark.parametrize(("version", "count"), [(V11, 2), (V10, 0)])
def test_who_reads_no_introductions_gets_none(version: str, count: int) -> None:
    node = Node("t", **SMALL)
    node.up(1, protocol=version)
    node.up(2, 3)
    node.router.leave("t")
    assert len(pruned(node, 1)[0].peers) == count


def test_floodsub_peers_are_introduced_to_nobody() -> None:
    node = Node("t", **SMALL)
    node.up(1, 2)
    node.up(3, protocol=FLOODSUB)
    node.router.leave("t")
    assert pruned(node, 1)[0].peers == (PeerInfo(2),)


def test_without_px_nobody_is_introduced_and_no_introduction_is_taken() -> None:
    node = introducer(px=False)
    node.up(2, 3)
    node.prunes(1, px=[PeerInfo(8)])
    assert 8 not in node.env.holds
    node.router.leave("t")
    assert pruned(node, 2)[0].peers == ()


# Being introduced.


def test_who_is_introduced_is_learned_by_its_record_and_dialled() -> None:
    node = introducer()
    node.prunes(1, px=[PeerInfo(8, (), b"signed by 8"), PeerInfo(9)])
    assert node.env.infos == {8: PeerInfo(8, (), b"signed by 8")}
    assert {8, 9} <= set(node.env.holds)


def test_nobody_is_dialled_who_is_there_already_or_is_this_node() -> None:
    node = introducer()
    node.up(2, topics=())
    node.prunes(1, px=[PeerInfo(0), PeerInfo(1), PeerInfo(2)])
    assert set(node.env.holds) == {1} and node.router.contacts.dialled == {}


def test_of_one_introduction_only_so_many_are_taken_by_lot() -> None:
    node = introducer(px_peers=3)
    node.prunes(1, px=[PeerInfo(peer) for peer in range(100, 150)])
    dialled = sorted(node.router.contacts.dialled)
    assert len(dialled) == 3 and dialled != [100, 101, 102]


def test_dials_under_way_are_bounded_until_some_have_ended() -> None:
    node = introducer()
    node.prunes(1, px=[PeerInfo(peer) for peer in range(100, 116)])
    assert len(node.router.contacts.dialled) == DIALS
    first, second, *_ = node.router.contacts.dialled
    node.router.link_down(first, 0, "nobody there")
    node.router.link_up(second, Link(50, True, "/meshsub/1.1.0"))
    assert first not in node.router.contacts.held and second in node.router.contacts.held
    node.prunes(1, px=[PeerInfo(peer) for peer in range(200, 216)])
    assert len(node.router.contacts.dialled) == DIALS


@pytest.mark.parametrize("info", [PeerInfo(b"bytes"), PeerInfo(8, (), bytes(5_000)), PeerInfo(8, ("x",) * 17)], ids=str)
def test_an_introduction_that_no_honest_peer_makes_is_its_senders_fault(info: PeerInfo) -> None:
    node = introducer()
    with pytest.raises(PeerError):
        node.prunes(1, px=[info])


def test_who_was_introduced_is_grafted_when_its_link_is_up() -> None:
    node = introducer()
    node.prunes(1, px=[PeerInfo(8)])
    node.up(8, outbound=True)
    assert node.mesh() == [8] and node.router.contacts.dialled == {}


# Overlays that find or sample.


def finding(**config: Any) -> tuple[Node, Finder]:
    overlay = Finder()
    return Node("t", overlay=overlay, **{**SMALL, **config}), overlay


def test_an_overlay_that_finds_is_told_of_topics_that_are_joined_and_left() -> None:
    node, overlay = finding()
    assert overlay.announced == ["t"]
    node.router.leave("t")
    assert overlay.announced == []


def test_subscribers_are_sought_while_a_mesh_has_too_few() -> None:
    node, overlay = finding(discover_every=10)
    node.beat()
    assert [(topic, count) for topic, count, _ in overlay.asked] == [("t", 4)]
    node.beat(9)
    assert len(overlay.asked) == 1
    node.beat()
    assert len(overlay.asked) == 2


def test_a_mesh_that_has_enough_seeks_nobody() -> None:
    node, overlay = finding()
    node.up(1, 2)
    node.beat(30)
    assert overlay.asked == []


def test_who_was_found_is_learned_and_dialled() -> None:
    node, overlay = finding()
    node.up(9, topics=())
    node.beat()
    overlay.asked[0][2]([PeerInfo(7, ("/ip4/1.2.3.4/tcp/1",)), PeerInfo(8), PeerInfo(0), PeerInfo(9)])
    assert set(node.env.holds) == {7, 8} and 7 in node.env.infos


def test_no_more_are_dialled_than_were_asked_for() -> None:
    node, overlay = finding()
    node.beat()
    overlay.asked[0][2]([PeerInfo(peer) for peer in range(1, 50)])
    assert sorted(node.env.holds) == [1, 2, 3, 4]


def test_where_nobody_can_be_found_by_topic_a_sample_of_the_overlay_is_dialled() -> None:
    overlay = Static(FakeEnv(), (), ())
    for peer in range(1, 4):
        overlay.link_up(peer, Link(1, True, ""))
    node = Node("t", overlay=overlay, **SMALL)
    node.beat()
    assert sorted(node.env.holds) == [1, 2, 3]


def test_an_overlay_that_can_neither_find_nor_sample_is_asked_for_nothing() -> None:
    node = Node("t", overlay=Overlay(FakeEnv()), **SMALL)
    node.beat(20)
    assert node.env.holds == {}


# Links that are held.


def test_a_link_of_the_mesh_is_held_from_here_whoever_grafted() -> None:
    node = Node("t", **SMALL)
    node.up(1)
    node.up(2, topics=())
    node.hear(2, Graft(("t",)))
    assert sorted(node.env.holds) == [1, 2]


def test_links_beyond_the_spare_ones_are_let_go_the_longest_held_first() -> None:
    node = Node("t", spare=3, **SMALL)
    node.up(*range(1, 9))
    node.grafts(3, 4)
    node.prunes(1, 2, 3, 4)
    node.grafts(5, 6)
    node.beat()
    assert sorted(node.env.holds) == [2, 3, 4, 5, 6]
    node.prunes(5, 6)
    node.beat()
    assert len(node.env.holds) == 3 + len(node.mesh())


def test_links_of_meshes_fanouts_direct_peers_and_dials_are_not_spare() -> None:
    node = Node("t", spare=0, flood_publish=False, **SMALL)
    node.up(1)
    node.up(2, topics=("u",))
    node.router.contacts.hold(2)
    node.publish("u")
    node.router.contacts.add_direct(PeerInfo(3))
    node.up(3, topics=())
    node.rate(p1=TRUSTED)
    node.hear(1, Prune((Pruned("other"),)))
    node.router.contacts._dial(4)
    node.beat()
    assert sorted(node.env.holds) == [1, 2, 3, 4]


# Direct peers.


def test_a_direct_peer_is_dialled_when_it_is_named() -> None:
    node = Node()
    node.router.contacts.add_direct(PeerInfo(5, ("/ip4/1.2.3.4/tcp/1",)))
    assert 5 in node.env.holds and 5 in node.env.infos


def test_a_direct_peer_whose_link_is_lost_is_dialled_again_in_time() -> None:
    node = Node("t", direct_every=5, **SMALL)
    node.router.contacts.add_direct(PeerInfo(5))
    node.env.holds.clear()
    node.beat(5)
    assert 5 in node.env.holds
    node.up(5)
    node.beat(2)
    node.down(5)
    node.env.holds.clear()
    node.beat(2)
    assert node.env.holds == {}
    node.beat()
    assert 5 in node.env.holds
    node.up(5)
    node.hear(5, message())
    node.publish()
    assert len(node.said(Publication, 5)) == 1 and message() in node.app.delivered


def test_a_direct_peer_that_is_removed_is_not_dialled_again() -> None:
    node = Node(direct_every=1)
    node.router.contacts.add_direct(PeerInfo(5))
    node.router.link_down(5, 0, "nobody there")
    node.env.holds.clear()
    node.router.contacts.remove_direct(5)
    node.beat(3)
    assert node.env.holds == {}


def test_direct_peers_are_bounded() -> None:
    node = Node()
    for peer in range(1, DIRECT + 1):
        node.router.contacts.add_direct(PeerInfo(peer))
    node.router.contacts.add_direct(PeerInfo(1))
    with pytest.raises(UsageError):
        node.router.contacts.add_direct(PeerInfo(DIRECT + 1))
