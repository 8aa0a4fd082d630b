"""The gater: off while validation keeps up, then odds by what an address sent, and nothing kept for ever."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libweft.peer.errors import UsageError
from libweft.peer.machine import SECOND
from libweft.pubsub.gossipsub.gater import Gater, GaterConfig

CONFIG = GaterConfig(retain=10 * SECOND)
A, B, C = 1, 2, 3
RUNS = 2_000


def gated(*peers: tuple[int, str | None], config: GaterConfig = CONFIG) -> Gater:
    gater = Gater(config, Random(7))
    for peer, ip in peers:
        gater.join(peer, ip)
    return gater


def overload(gater: Gater, now: int = 0) -> None:
    gater.validated()
    gater.throttled(now)


def odds(gater: Gater, peer: int, now: int = 0) -> float:
    return sum(gater.accepts(peer, now) for _ in range(RUNS)) / RUNS


def test_all_pass_while_nothing_was_throttled() -> None:
    gater = gated((A, "1.2.3.4"))
    for _ in range(100):
        gater.rejected(A)
    assert odds(gater, A) == 1


def test_under_overload_the_odds_are_deliveries_to_the_weighted_sum_of_all() -> None:
    gater = gated((A, "1.2.3.4"))
    overload(gater)
    for count, tell in ((9, gater.delivered), (8, gater.duplicate), (4, gater.ignored), (1, gater.rejected)):
        for _ in range(count):
            tell(A)
    assert odds(gater, A) == pytest.approx((1 + 9) / (1 + 9 + 8 * 0.125 + 4 + 16), abs=0.04)


def test_who_only_delivers_always_passes_and_who_only_sends_rubbish_seldom() -> None:
    gater = gated((A, "1.2.3.4"), (B, "1.2.3.5"))
    overload(gater)
    for _ in range(100):
        gater.delivered(A)
        gater.rejected(B)
    assert odds(gater, A) == 1
    assert odds(gater, B) < 0.01


def test_a_newcomer_and_a_stranger_pass_under_overload() -> None:
    gater = gated((A, "1.2.3.4"))
    overload(gater)
    assert odds(gater, A) == odds(gater, B) == 1


def test_a_small_share_of_throttled_messages_is_no_overload() -> None:
    gater = gated((A, "1.2.3.4"))
    gater.rejected(A)
    for _ in range(100):
        gater.validated()
    for _ in range(32):
        gater.throttled(0)
    assert odds(gater, A) == 1
    gater.throttled(0)
    assert odds(gater, A) < 1


def test_the_gate_opens_a_quiet_minute_after_the_last_throttling() -> None:
    gater = gated((A, "1.2.3.4"))
    gater.rejected(A)
    overload(gater, now=5 * SECOND)
    assert odds(gater, A, 65 * SECOND) < 1
    assert odds(gater, A, 65 * SECOND + 1) == 1


def test_the_gate_opens_when_the_throttled_count_has_decayed() -> None:
    gater = gated((A, "1.2.3.4"), config=replace(CONFIG, global_decay=0.05))
    gater.rejected(A)
    overload(gater)
    gater.refresh(SECOND)
    assert odds(gater, A, SECOND) < 1
    gater.refresh(2 * SECOND)
    assert odds(gater, A, 2 * SECOND) == 1


def test_counts_of_an_address_decay_while_somebody_is_there() -> None:
    gater = gated((A, "1.2.3.4"), config=replace(CONFIG, source_decay=0.01, global_decay=0.99))
    gater.rejected(A)
    overload(gater)
    gater.refresh(SECOND)
    assert odds(gater, A) == pytest.approx(1 / 1.16, abs=0.04)
    gater.refresh(2 * SECOND)
    assert odds(gater, A) == 1


@pytest.mark.parametrize("what", ["delivered", "duplicate", "ignored", "rejected"])
def test_each_count_decays_and_those_of_strangers_are_dropped(what: str) -> None:
    gater = gated((A, "1.2.3.4"), config=replace(CONFIG, source_decay=0.5))
    for peer in (A, A, B):
        getattr(gater, what)(peer)
    assert getattr(gater._sources["1.2.3.4"], what) == 2
    gater.refresh(SECOND)
    assert getattr(gater._sources["1.2.3.4"], what) == 1
    assert list(gater._sources) == ["1.2.3.4"]


def test_peers_of_one_address_share_its_odds_and_others_do_not() -> None:
    gater = gated((A, "1.2.3.4"), (B, "1.2.3.4"), (C, "1.2.3.5"))
    overload(gater)
    for _ in range(10):
        gater.rejected(A)
    assert odds(gater, B) < 0.1
    assert odds(gater, C) == 1


def test_peers_of_one_ipv6_network_share_their_odds() -> None:
    gater = gated((A, "2001:db8::1"), (B, "2001:db8::2"), (C, "2001:db8:0:1::1"))
    overload(gater)
    gater.rejected(A)
    assert odds(gater, B) < 0.5
    assert odds(gater, C) == 1


@pytest.mark.parametrize("ip", [None, "", "127.0.0.1"])
def test_peers_without_an_address_stand_for_themselves(ip: str | None) -> None:
    gater = gated((A, ip), (B, ip))
    overload(gater)
    gater.rejected(A)
    assert odds(gater, A) < 0.5
    assert odds(gater, B) == 1


def test_what_an_address_sent_is_retained_when_its_peers_have_left() -> None:
    gater = gated((A, "1.2.3.4"))
    overload(gater)
    gater.rejected(A)
    gater.left(A, 0)
    gater.refresh(9 * SECOND)
    gater.join(B, "1.2.3.4")
    assert odds(gater, B, 9 * SECOND) < 0.5


def test_an_address_is_forgotten_in_its_time_after_the_last_peer_left() -> None:
    gater = gated((A, "1.2.3.4"), (B, "1.2.3.4"))
    overload(gater)
    gater.rejected(A)
    gater.left(A, 0)
    gater.refresh(20 * SECOND)
    assert odds(gater, B, 20 * SECOND) < 0.5, "one is there still"
    gater.left(B, 20 * SECOND)
    gater.refresh(30 * SECOND)
    gater.join(A, "1.2.3.4")
    assert odds(gater, A, 30 * SECOND) == 1


def test_an_address_that_somebody_came_back_to_is_not_forgotten() -> None:
    gater = gated((A, "1.2.3.4"))
    overload(gater)
    gater.rejected(A)
    gater.left(A, 0)
    gater.join(B, "1.2.3.4")
    gater.refresh(20 * SECOND)
    gater.join(C, "1.2.3.4")
    assert odds(gater, C, 20 * SECOND) < 0.5


def test_of_too_many_addresses_nobody_is_left_of_the_oldest_goes() -> None:
    gater = gated(config=replace(CONFIG, sources=2))
    for peer in (A, B, C):
        gater.join(peer, f"1.2.3.{peer}")
    for now, peer in enumerate((B, A, C)):
        gater.left(peer, now)
    assert list(gater._sources) == ["1.2.3.1", "1.2.3.3"]


def test_a_peer_that_never_sent_anything_leaves_nothing_behind() -> None:
    gater = gated((A, "1.2.3.4"), (B, None))
    for peer in (A, B, A):
        gater.left(peer, 0)
    gater.refresh(10 * SECOND)
    assert not gater._sources and not gater._left and not gater._peers and not gater._keys


def test_a_second_join_of_a_peer_counts_once() -> None:
    gater = gated((A, "1.2.3.4"), (A, "1.2.3.4"))
    gater.left(A, 0)
    gater.refresh(10 * SECOND)
    assert not gater._sources


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threshold", 0.0),
        ("threshold", nan),
        ("threshold", inf),
        ("quiet", SECOND - 1),
        ("global_decay", 1.0),
        ("source_decay", 0.0),
        ("decay_interval", 0),
        ("decay_to_zero", 1.0),
        ("retain", -1),
        ("duplicate_weight", 0.0),
        ("ignore_weight", 0.5),
        ("reject_weight", inf),
        ("sources", 0),
    ],
)
def test_a_parameter_out_of_range_is_refused_by_its_name(name: str, value: float) -> None:
    changed: dict[str, Any] = {name: value}
    with pytest.raises(UsageError, match=f"^{name} is .* must be "):
        replace(CONFIG, **changed)


def test_the_defaults_are_those_of_go() -> None:
    config = GaterConfig()
    assert config.global_decay == pytest.approx(0.96235, abs=1e-5)
    assert config.source_decay == pytest.approx(0.99872, abs=1e-5)
    assert config.retain == 6 * 3_600 * SECOND


steps = st.lists(st.tuples(st.sampled_from(["join", "left", "refresh"]), st.integers(0, 12), st.integers(0, 5)), max_size=60)


@given(taken=steps)
def test_addresses_nobody_is_left_of_are_bounded_and_the_others_are_kept(taken: list[tuple[str, int, int]]) -> None:
    gater, present = gated(config=replace(CONFIG, sources=2)), dict[int, str]()
    for now, (what, peer, host) in enumerate(taken):
        if what == "join":
            gater.join(peer, f"1.2.3.{host}")
            present.setdefault(peer, f"1.2.3.{host}")
        elif what == "left":
            gater.left(peer, now * SECOND)
            present.pop(peer, None)
        else:
            gater.refresh(now * SECOND)
        used = set(present.values())
        assert used <= set(gater._sources)
        assert len(gater._sources) <= len(used) + 2
        assert {key: gater._sources[key].peers for key in used} == {ip: list(present.values()).count(ip) for ip in used}
