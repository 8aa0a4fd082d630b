"""The static overlay by hand: dialling, inbound peers, retries, and what watchers hear."""

from __future__ import annotations

import pytest

from libweft.overlays.powers import KeyRouting, Sampling, power_of
from libweft.overlays.static import FIRST_RETRY, LAST_RETRY, Static
from libweft.peer.errors import UsageError
from libweft.peer.fake.env import FakeEnv
from libweft.peer.machine import MS, SECOND, Link, Peer

PROTOCOL = "/test/1"


class Witness:
    def __init__(self) -> None:
        self.heard: list[tuple[str, Peer] | tuple[str, Peer, str]] = []

    def neighbor_up(self, peer: Peer) -> None:
        self.heard.append(("up", peer))

    def neighbor_down(self, peer: Peer, reason: str) -> None:
        self.heard.append(("down", peer, reason))


def started(*contacts: Peer, dial_after: int = 0) -> tuple[Static, FakeEnv, Witness]:
    env, witness = FakeEnv(me=0), Witness()
    overlay = Static(env, contacts, [PROTOCOL], dial_after)
    overlay.watchers.append(witness)
    overlay.start()
    return overlay, env, witness


def up(overlay: Static, peer: Peer, incarnation: int = 1, outbound: bool = True) -> None:
    overlay.link_up(peer, Link(incarnation, outbound, PROTOCOL))


def down(overlay: Static, env: FakeEnv, peer: Peer, incarnation: int = 1, reason: str = "timeout") -> None:
    """As a driver does it: the hold goes with the link."""
    env.holds.pop(peer, None)
    overlay.link_down(peer, incarnation, reason)


def test_start_dials_every_contact_in_order() -> None:
    overlay, env, _ = started(3, 1, 2)
    assert list(env.holds) == [3, 1, 2]
    assert overlay.neighbors == {}


def test_who_dials_later_has_those_who_dial_it_as_neighbours_meanwhile() -> None:
    overlay, env, _ = started(1, 2, dial_after=10 * SECOND)
    up(overlay, 3, outbound=False)
    env.advance(10 * SECOND - 1)
    assert list(env.holds) == []
    assert list(overlay.neighbors) == [3]
    env.advance(1)
    assert list(env.holds) == [1, 2]


def test_it_watches_the_router_s_protocol_and_has_none_of_its_own() -> None:
    overlay, _, _ = started()
    assert (overlay.protocols, overlay.watches) == ((), (PROTOCOL,))


def test_a_contact_is_a_neighbour_once_its_link_is_up() -> None:
    overlay, env, witness = started(1, 2)
    up(overlay, 2)
    assert list(overlay.neighbors) == [2]
    assert witness.heard == [("up", 2)]
    assert [(row.kind, row.peer) for row in env.traced] == [("neighbor_up", 2)]


def test_a_peer_that_dialled_us_is_a_neighbour_too() -> None:
    overlay, env, witness = started(1)
    up(overlay, 9, outbound=False)
    assert list(overlay.neighbors) == [9]
    assert witness.heard == [("up", 9)]
    assert 9 not in env.holds


def test_watchers_hear_why_a_neighbour_went() -> None:
    overlay, env, witness = started(1)
    up(overlay, 1)
    env.take_traced()
    down(overlay, env, 1, reason="reset")
    assert overlay.neighbors == {}
    assert witness.heard == [("up", 1), ("down", 1, "reset")]
    assert [(row.kind, row.peer, row.reason) for row in env.traced] == [("neighbor_down", 1, "reset")]


def test_watchers_hear_nothing_of_a_dial_that_failed() -> None:
    overlay, env, witness = started(1)
    down(overlay, env, 1, incarnation=0, reason="refused")
    assert witness.heard == []
    assert env.traced == []


def test_a_new_link_to_a_neighbour_is_not_told_again() -> None:
    overlay, _, witness = started(1)
    up(overlay, 1)
    up(overlay, 1, incarnation=2)
    assert witness.heard == [("up", 1)]


def test_a_lost_contact_is_dialled_again_after_a_second() -> None:
    overlay, env, _ = started(1)
    up(overlay, 1)
    down(overlay, env, 1)
    env.advance(FIRST_RETRY - 1)
    assert 1 not in env.holds
    env.advance(1)
    assert 1 in env.holds


def test_each_failed_dial_doubles_the_delay_up_to_a_minute() -> None:
    overlay, env, _ = started(1)
    delays = []
    for _ in range(10):
        down(overlay, env, 1, incarnation=0, reason="refused")
        before = env.now()
        while 1 not in env.holds:
            env.advance(100 * MS)
        delays.append(env.now() - before)
    assert delays == [min(FIRST_RETRY << n, LAST_RETRY) for n in range(10)]
    assert delays[-1] == LAST_RETRY


def test_a_link_that_came_up_makes_the_next_delay_short_again() -> None:
    overlay, env, _ = started(1)
    for _ in range(4):
        down(overlay, env, 1, incarnation=0)
        env.advance(LAST_RETRY)
    up(overlay, 1)
    down(overlay, env, 1)
    env.advance(FIRST_RETRY)
    assert 1 in env.holds


def test_a_lost_peer_that_is_no_contact_is_not_dialled() -> None:
    overlay, env, witness = started(1)
    up(overlay, 9, outbound=False)
    down(overlay, env, 9, reason="closed")
    env.advance(10 * LAST_RETRY)
    assert 9 not in env.holds
    assert env.clock.waiting == 0
    assert witness.heard == [("up", 9), ("down", 9, "closed")]


def test_a_contact_that_came_back_by_itself_is_not_dialled() -> None:
    overlay, env, _ = started(1)
    up(overlay, 1)
    down(overlay, env, 1)
    up(overlay, 1, incarnation=2, outbound=False)
    env.advance(LAST_RETRY)
    assert 1 not in env.holds


def test_a_contact_whose_link_flaps_has_one_timer() -> None:
    overlay, env, _ = started(1)
    for incarnation in range(1, 50):
        up(overlay, 1, incarnation, outbound=False)
        down(overlay, env, 1, incarnation)
        env.advance(MS)
    assert env.clock.waiting == 1


def test_everyone_equals_the_neighbours_at_every_moment_and_in_order() -> None:
    overlay, env, _ = started(1, 2, 3)
    for peer in (3, 1, 9, 2):
        up(overlay, peer)
        assert overlay.everyone == tuple(overlay.neighbors)
    for peer in (1, 9):
        down(overlay, env, peer)
        assert overlay.everyone == tuple(overlay.neighbors)
    assert overlay.everyone == (3, 2)


def test_a_watcher_sees_the_new_neighbours_already() -> None:
    overlay, env, _ = started(1)
    seen: list[tuple[Peer, ...]] = []

    class Looker(Witness):
        def neighbor_up(self, peer: Peer) -> None:
            seen.append(overlay.everyone)

        def neighbor_down(self, peer: Peer, reason: str) -> None:
            seen.append(overlay.everyone)

    overlay.watchers.append(Looker())
    up(overlay, 1)
    down(overlay, env, 1)
    assert seen == [(1,), ()]


def test_a_sample_is_of_different_neighbours_and_no_more_than_there_are() -> None:
    overlay, _, _ = started()
    for peer in range(1, 9):
        up(overlay, peer)
    sample = overlay.sample(5)
    assert len(set(sample)) == 5
    assert set(sample) <= set(overlay.neighbors)
    assert sorted(overlay.sample(50), key=str) == sorted(overlay.neighbors, key=str)


def test_a_power_that_it_lacks_is_named() -> None:
    overlay, _, _ = started()
    with pytest.raises(UsageError, match="Static has no key routing"):
        power_of(overlay, KeyRouting)
    assert power_of(overlay, Sampling) is overlay
