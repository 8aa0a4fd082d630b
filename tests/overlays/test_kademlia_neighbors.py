"""Neighbours over Kademlia: who is held, who is let in, and that both ends agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from libweft.overlays.kademlia.config import KademliaConfig
from libweft.overlays.kademlia.neighbors import CHOOSE, FULL, LEFT, NEAREST, PROTOCOL, KademliaNeighbors, Leave, Take
from libweft.overlays.kademlia.put_and_get import Kademlia
from libweft.overlays.kademlia.space import place_of, place_of_key
from libweft.peer.dispatch import receive
from libweft.peer.errors import UsageError
from libweft.peer.fake.env import FakeEnv
from libweft.peer.fake.wire import FakeWire
from libweft.peer.machine import SECOND, Build, Env, Link, Machine, Message, Peer, PeerInfo, upon

AGES = 10**9 * SECOND
STILL = KademliaConfig(k=4, near_every=AGES, refresh_every=AGES, republish_every=AGES)
LIVELY = replace(STILL, near_every=10 * SECOND)
FOREIGN = "/meshsub/1.1.0"
LINKS = 3


class Witness:
    def __init__(self) -> None:
        self.heard: list[tuple[str, Peer]] = []

    def neighbor_up(self, peer: Peer) -> None:
        self.heard.append(("up", peer))

    def neighbor_down(self, peer: Peer, reason: str) -> None:
        self.heard.append(("down", peer))


class Bench:
    """The two machines of node 0 on Envs of their own; `incarnation` counts links."""

    def __init__(self, *known: Peer, links: int = LINKS) -> None:
        self.below, self.env = FakeEnv(me=0), FakeEnv(me=0, seed=1)
        self.kademlia = Kademlia(self.below, (), STILL)
        self.machine = KademliaNeighbors(self.env, self.kademlia, links, [FOREIGN])
        self.witness = Witness()
        self.machine.watchers.append(self.witness)
        self.incarnation = 0
        for peer in known:
            self.kademlia.table.see(peer)
        self.machine.start()

    def choose(self) -> list[Peer]:
        """The next look for neighbours; who is held after it."""
        self.env.advance(CHOOSE)
        return list(self.machine.held)

    def up(self, peer: Peer, protocol: str = PROTOCOL) -> int:
        self.incarnation += 1
        self.machine.link_up(peer, Link(self.incarnation, True, protocol))
        return self.incarnation

    def down(self, peer: Peer, incarnation: int = 0) -> None:
        """As a driver does it: the hold goes with the link."""
        self.env.holds.pop(peer, None)
        self.machine.link_down(peer, incarnation, "gone")

    def hear(self, peer: Peer, msg: Message) -> list[tuple[Peer, Message]]:
        self.env.take()
        receive(self.machine, peer, msg)
        return self.env.take()

    @property
    def neighbors(self) -> list[Peer]:
        return list(self.machine.neighbors)


def test_links_are_held_to_the_nearest_and_to_one_of_each_farthest_bucket() -> None:
    bench = Bench(*range(1, 60), links=5)
    held, table = bench.choose(), bench.kademlia.table
    assert held[:NEAREST] == table.nearest(table.mine, NEAREST) and len(held) == 5
    assert [table.bucket_of_peer(peer) for peer in held[NEAREST:]] == [0, 1, 2]
    assert list(bench.env.holds) == held and bench.neighbors == []


def test_a_neighbour_is_told_by_take_once_its_link_is_up() -> None:
    bench = Bench(1)
    assert bench.choose() == [1] and bench.env.take() == []
    bench.up(1)
    assert bench.env.take() == [(1, Take())]
    assert bench.neighbors == [1] and bench.witness.heard == [("up", 1)]


def test_who_has_a_link_already_is_told_at_once() -> None:
    bench = Bench(1)
    bench.up(1)
    assert bench.neighbors == [] and bench.env.take() == []
    assert bench.choose() == [1] and bench.env.take() == [(1, Take())] and bench.neighbors == [1]


def test_each_join_of_kademlia_is_followed_by_a_choice() -> None:
    bench = Bench(1)
    for heard in bench.kademlia.joined:
        heard()
    assert list(bench.machine.held) == [1]


def test_who_takes_is_held_and_is_a_neighbour() -> None:
    bench = Bench()
    bench.up(9)
    assert bench.hear(9, Take()) == []
    assert bench.neighbors == [9] and list(bench.machine.takers) == [9] and list(bench.env.holds) == [9]
    bench.hear(9, Take())
    assert bench.neighbors == [9]


def test_whoever_comes_when_there_is_no_room_is_told_to_leave() -> None:
    bench = Bench()
    for peer in range(1, 2 * LINKS + 1):
        bench.up(peer)
        assert bench.hear(peer, Take()) == []
    bench.up(50)
    assert bench.hear(50, Take()) == [(50, Leave(FULL))]
    assert 50 not in bench.neighbors and 50 not in bench.env.holds
    assert bench.hear(1, Take()) == []


def test_one_that_is_held_here_is_let_in_though_there_is_no_room_for_others() -> None:
    """Both chose each other: a no to its TAKE would leave a neighbour at one end only."""
    bench = Bench(50)
    bench.choose()
    bench.up(50)
    for peer in range(1, 2 * LINKS + 1):
        bench.up(peer)
        bench.hear(peer, Take())
    assert bench.hear(50, Take()) == []
    assert 50 in bench.neighbors and len(bench.machine.takers) == 2 * LINKS


def test_who_is_told_to_leave_goes_and_asks_somebody_else_but_not_the_same_before_the_next_look() -> None:
    bench = Bench(1, 2, links=1)
    [first] = bench.choose()
    bench.up(first)
    bench.env.take()
    bench.hear(first, Leave(FULL))
    [second] = bench.machine.held
    assert second != first and first not in bench.env.holds and bench.neighbors == []
    bench.hear(second, Leave(FULL))
    assert bench.machine.held == {}
    assert len(bench.choose()) == 1


def test_a_taker_that_leaves_is_let_go() -> None:
    bench = Bench()
    bench.up(9)
    bench.hear(9, Take())
    bench.hear(9, Leave(LEFT))
    assert bench.neighbors == [] and bench.machine.takers == {} and bench.env.holds == {}
    assert bench.witness.heard == [("up", 9), ("down", 9)]


def test_a_farewell_of_a_stranger_is_nothing() -> None:
    bench = Bench()
    bench.up(9)
    bench.hear(9, Leave(LEFT))
    assert bench.machine.refused == {}


def test_no_links_at_all_are_refused() -> None:
    with pytest.raises(UsageError, match="links is 0"):
        Bench(links=0)


def test_a_lost_neighbour_is_replaced_at_once_by_somebody_else() -> None:
    bench = Bench(1, 2, 3, 4, 5, links=1)
    [first] = bench.choose()
    incarnation = bench.up(first)
    bench.down(first, incarnation)
    [second] = bench.machine.held
    assert second != first and bench.neighbors == []


def test_one_that_cuts_each_link_is_not_dialled_again_before_the_next_look() -> None:
    bench = Bench(1, links=1)
    bench.choose()
    for _ in range(3):
        bench.down(1, bench.up(1))
        assert bench.machine.held == {} and bench.env.holds == {}
    assert bench.choose() == [1]


def test_a_dial_that_failed_is_not_repeated_before_the_next_look() -> None:
    bench = Bench(1, links=1)
    assert bench.choose() == [1]
    bench.down(1)
    assert bench.machine.held == {} and bench.env.holds == {}
    assert bench.choose() == [1]


def test_the_end_of_an_old_link_is_no_end_of_a_newer_one() -> None:
    bench = Bench(1)
    bench.choose()
    old = bench.up(1)
    bench.up(1)
    bench.down(1, old)
    assert bench.neighbors == [1] and bench.machine.linked == {1: 2}


def test_a_peer_that_lacks_the_protocol_but_speaks_the_router_s_is_a_neighbour_while_its_link_is_up() -> None:
    bench = Bench()
    incarnation = bench.up(9, FOREIGN)
    assert bench.neighbors == [9] and bench.env.take() == [] and bench.env.holds == {}
    bench.down(9, incarnation)
    assert bench.neighbors == []


def test_after_stop_no_timer_is_left_and_each_neighbour_is_told_once() -> None:
    bench = Bench(1, 2, 3)
    bench.choose()
    for peer in (1, 2):
        bench.up(peer)
        bench.hear(peer, Take())
    bench.up(9)
    bench.hear(9, Take())
    bench.machine.stop()
    assert sorted(bench.env.take()) == [(1, Leave(LEFT)), (2, Leave(LEFT)), (9, Leave(LEFT))]
    assert bench.env.clock.waiting == 0


def test_the_powers_are_those_of_kademlia() -> None:
    bench = Bench(1, 2, 3)
    found: list[object] = []
    assert sorted(bench.machine.sample(9)) == [1, 2, 3]
    calls: list[Callable[[], None]] = [
        lambda: bench.machine.lookup(b"key", found.append),
        lambda: bench.machine.announce("news"),
        lambda: bench.machine.find("news", 3, found.append),
        lambda: bench.machine.put(b"key", b"value", SECOND, found.append),
        lambda: bench.machine.get(b"key", found.append),
    ]
    for call in calls:
        call()
        while requests := bench.below.take_requests():
            for request in requests:
                request.reply(request.msg)
    nearest = bench.kademlia.table.nearest(place_of_key(b"key"), 3)
    assert found == [list(map(PeerInfo, nearest)), [PeerInfo(0)], 3, b"value"]
    bench.machine.unannounce("news")
    assert bench.kademlia.provided == {}


# On the wire.


class Foreigner(Machine):
    """Another library's router: it speaks that protocol, and Kademlia, and no more."""

    protocols = (FOREIGN,)

    @upon(Take)
    def on_anything(self, sender: Peer, msg: Take) -> None:
        raise AssertionError("it does not speak this")


def node(contacts: Sequence[Peer], links: int = LINKS) -> Build:
    def build(env: Callable[[], Env]) -> list[Machine]:
        kademlia = Kademlia(env(), contacts, LIVELY)
        return [kademlia, KademliaNeighbors(env(), kademlia, links, [FOREIGN]), Foreigner(env())]

    return build


def foreigner(contacts: Sequence[Peer]) -> Build:
    return lambda env: [Kademlia(env(), contacts, LIVELY), Foreigner(env())]


def views(wire: FakeWire) -> dict[Any, dict[Any, None]]:
    found = {each.me: each.machines[1] for each in wire.nodes if each.alive}
    return {me: machine.neighbors for me, machine in found.items() if isinstance(machine, KademliaNeighbors)}


def check_symmetric(wire: FakeWire) -> None:
    """Both ends agree, all are connected, and nobody has more than its bound."""
    found = views(wire)
    assert all(me in found[peer] for me, view in found.items() for peer in view)
    assert all(1 <= len(view) <= 3 * LINKS for view in found.values())
    reached, frontier = set[Any](), [next(iter(found))]
    while frontier:
        peer = frontier.pop()
        if peer not in reached:
            reached.add(peer)
            frontier += found[peer]
    assert reached == found.keys() and wire.errors == []


@pytest.mark.parametrize("codec", [False, True])
def test_on_a_wire_of_ten_neighbours_are_symmetric_and_stay_so_when_some_go(codec: bool) -> None:
    wire = FakeWire(codec=codec, seed=3)
    wire.add(lambda env: _without_foreign(env, []))
    for _ in range(9):
        wire.add(lambda env: _without_foreign(env, [0]))
    wire.run(60 * SECOND)
    check_symmetric(wire)
    wire.crash(4)
    wire.stop(7)
    wire.cut(1, next(iter(views(wire)[1])))
    wire.run(60 * SECOND)
    assert len(views(wire)) == 8
    check_symmetric(wire)


def _without_foreign(env: Callable[[], Env], contacts: Sequence[Peer]) -> list[Machine]:
    kademlia = Kademlia(env(), contacts, LIVELY)
    return [kademlia, KademliaNeighbors(env(), kademlia, LINKS, ())]


def test_foreign_peers_are_neighbours_by_their_links_and_nobody_is_at_fault() -> None:
    wire = FakeWire()
    wire.add(node([]))
    wire.add(foreigner([0]))
    wire.add(node([0, 1]))
    wire.run(60 * SECOND)
    found = views(wire)
    assert set(found[0]) == {1, 2} and set(found[2]) == {0, 1}
    wire.crash(1)
    wire.run(60 * SECOND)
    assert set(found[0]) == {2} and set(found[2]) == {0} and wire.errors == []


# The way to a key.


def test_the_next_hop_is_the_nearest_contact_that_is_nearer_than_this_node() -> None:
    bench = Bench(*range(1, 9))
    for number in range(50):
        key = b"%d" % number
        place = place_of_key(key)
        closest = min(range(9), key=lambda peer: place_of(peer) ^ place)
        assert bench.machine.next_hop(key) == (closest or None)


def test_who_knows_nobody_is_the_root_of_all_and_one_with_contacts_waits() -> None:
    assert Bench().machine.next_hop(b"key") is None and Bench().machine.can_route
    env = FakeEnv(me=0)
    joining = KademliaNeighbors(FakeEnv(me=0), Kademlia(env, (1,), STILL), LINKS, [FOREIGN])
    assert not joining.can_route


def test_a_contact_that_is_suspected_is_asked_and_forgotten_if_it_does_not_answer() -> None:
    bench = Bench(1, 2)
    bench.machine.suspect(1)
    bench.machine.suspect(7)
    assert [request.peer for request in bench.below.requests] == [1]
    bench.below.take_requests()[0].fail("timeout")
    assert 1 not in bench.kademlia.table
