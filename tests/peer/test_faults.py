"""Faults: each kind leaves its mark and ends, none crashes the run, and a list can be settled, saved, replayed and shrunk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from math import sqrt
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libweft.bench.runs.replay import command
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Network, Scenario, Workload
from libweft.peer.errors import UsageError
from libweft.peer.machine import MS, SECOND
from libweft.peer.sim import faults
from libweft.peer.sim.faults import (
    AnyFault,
    BurstLoss,
    Corrupt,
    Crash,
    Cut,
    DelaySpike,
    Duplicate,
    Loss,
    MassCrash,
    Nat,
    Partition,
    Reorder,
    Reset,
    Restart,
    Skew,
    SlowNode,
    Truncate,
)
from libweft.peer.sim.latency import Constant, Uniform
from libweft.peer.sim.simulator import Simulator
from tests.conftest import note_replay
from tests.peer.test_sim import Probe, Word, pair, probe, probes

SURE = 4.5  # standard errors; the seeds are fixed
DRAWS = pytest.mark.parametrize("draw", ["copy", "send"])
WAY = 10 * MS

Talk = tuple[Simulator, Probe, Probe]


def talk(plan: Sequence[AnyFault], count: int = 200, gap: int = 10 * MS, draw: Any = "copy", **options: Any) -> Talk:
    """One end of a link says its numbers to the other from 2 s on, `gap` apart."""
    sim = Simulator(1, Constant(ms=WAY / MS, draw=draw), **options)
    a, b = pair(sim)
    sim.inject(plan)
    for number in range(count):
        sim.at(2 * SECOND + number * gap, a.env.send_all, (1,), Word(str(number)))
    sim.run(2 * SECOND + count * gap + 20 * SECOND)
    return sim, a, b


def numbers(machine: Probe) -> list[int]:
    return [int(text) for text in machine.texts]


def delays(machine: Probe, gap: int = 10 * MS) -> dict[int, int]:
    """How long each number took to its first copy."""
    return {int(text): t - 2 * SECOND - int(text) * gap for t, _, text in reversed(machine.got)}


@DRAWS
def test_without_faults_every_copy_arrives_once_in_order_and_on_time(draw: Any) -> None:
    sim, a, b = talk([], draw=draw)
    assert numbers(b) == list(range(200)) and set(delays(b).values()) == {WAY}
    assert a.downs == b.downs == [] and not sim.network.counts


# Copies.


@DRAWS
def test_loss_takes_its_share_of_the_copies(draw: Any) -> None:
    sim, _, b = talk([Loss(p=0.3)], 2_000, draw=draw)
    lost = 2_000 - len(b.got)
    assert lost == sim.network.counts["lost"]
    assert lost / 2_000 == pytest.approx(0.3, abs=SURE * sqrt(0.21 / 2_000))
    assert numbers(b) == sorted(numbers(b))


@DRAWS
def test_loss_touches_only_its_sources_and_targets_while_it_lasts(draw: Any) -> None:
    _, _, b = talk([Loss(at=2.5, duration=0.5, p=1.0, sources=(0,), targets=(1,))], draw=draw)
    assert numbers(b) == [n for n in range(200) if not 500 <= n * 10 + WAY / MS < 1_000]
    for untouched in (Loss(p=1.0, sources=(1,)), Loss(p=1.0, targets=(0,)), Loss(p=1.0, sources=(0,), targets=(7,))):
        _, _, b = talk([untouched], draw=draw)
        assert len(b.got) == 200


def test_burst_loss_comes_in_spells() -> None:
    sim, _, b = talk([BurstLoss(p=0.05, stay=0.8)], 5_000)
    arrived = set(numbers(b))
    spells = [len(list(group)) for gone, group in groupby(range(5_000), lambda n: n not in arrived) if gone]
    assert sum(spells) == sim.network.counts["burst_lost"] == 5_000 - len(b.got)
    assert fmean(spells) == pytest.approx(1 / (1 - 0.8), abs=SURE * sqrt(0.8) / 0.2 / sqrt(len(spells)))
    gaps = [len(list(group)) for gone, group in groupby(range(5_000), lambda n: n not in arrived) if not gone]
    assert fmean(gaps) == pytest.approx(1 / 0.05, abs=SURE * sqrt(0.95) / 0.05 / sqrt(len(gaps)))


def test_each_link_has_bad_spells_of_its_own() -> None:
    sim = Simulator(1, Constant(ms=10.0))
    hub, *others = probes(sim, 3)
    hub.env.connect(1)
    hub.env.connect(2)
    sim.run(SECOND)
    sim.inject([BurstLoss(p=0.1, stay=0.9)])
    for number in range(300):
        sim.at((number + 200) * 10 * MS, hub.env.send_all, (1, 2), Word(str(number)))
    sim.run(20 * SECOND)
    assert set(numbers(others[0])) != set(numbers(others[1]))


@DRAWS
def test_duplicates_are_further_copies_of_what_arrived(draw: Any) -> None:
    sim, _, b = talk([Duplicate(p=0.3)], 2_000, draw=draw)
    further = len(b.got) - 2_000
    assert set(numbers(b)) == set(range(2_000)) and max(Counter(numbers(b)).values()) == 2
    assert further == sim.network.counts["duplicated"]
    assert further / 2_000 == pytest.approx(0.3, abs=SURE * sqrt(0.21 / 2_000))


@DRAWS
def test_reordering_holds_copies_back_so_that_others_overtake_them_and_loses_none(draw: Any) -> None:
    sim, _, b = talk([Reorder(p=0.2, ms=50.0)], 1_000, draw=draw)
    assert sorted(numbers(b)) == list(range(1_000)) != numbers(b)
    late = [delay for delay in delays(b).values() if delay > WAY]
    assert 0 < len(late) <= sim.network.counts["reordered"]
    assert 40 * MS < max(late) - WAY <= 50 * MS + 1
    assert sim.network.counts["reordered"] / 1_000 == pytest.approx(0.2, abs=SURE * sqrt(0.16 / 1_000))


@DRAWS
def test_a_delay_spike_makes_every_copy_late_while_it_lasts(draw: Any) -> None:
    _, _, b = talk([DelaySpike(at=2.495, duration=0.5, ms=5.0)], draw=draw)
    assert numbers(b) == list(range(200))
    assert delays(b) == {n: WAY + 5 * MS if 50 <= n < 100 else WAY for n in range(200)}


def test_two_delay_spikes_add_up() -> None:
    _, _, b = talk([DelaySpike(ms=5.0), DelaySpike(ms=7.0)])
    assert set(delays(b).values()) == {WAY + 12 * MS}


@DRAWS
@pytest.mark.parametrize(
    "fault",
    [
        Loss(p=0.5, sources=(0,)),
        BurstLoss(p=0.5, sources=(0,)),
        Duplicate(p=0.5, sources=(0,)),
        Reorder(p=0.5, sources=(0,)),
        DelaySpike(ms=5.0, sources=(0,)),
        Cut(at=2.5, duration=0.5, sources=(0,)),
        Partition(at=2.5, duration=0.5, groups=((0,), (1,))),
        SlowNode(nodes=(0,), factor=2.0),
    ],
    ids=lambda fault: fault.__struct_config__.tag,
)
def test_a_fault_on_one_link_shifts_no_draw_on_another(draw: Any, fault: AnyFault) -> None:
    def elsewhere(plan: Sequence[AnyFault]) -> list[tuple[Any, ...]]:
        sim = Simulator(1, Uniform(low=1.0, high=9.0, draw=draw))
        everybody = probes(sim, 4)
        everybody[0].env.connect(1)
        everybody[2].env.connect(3)
        sim.run(SECOND)
        sim.inject(plan)
        for number in range(200):
            sim.at(2 * SECOND + number * 10 * MS, everybody[0].env.send, 1, Word("here"))
            sim.at(2 * SECOND + number * 10 * MS, everybody[2].env.send, 3, Word(str(number)))
        sim.run(20 * SECOND)
        return [*everybody[3].got]

    others: list[AnyFault] = [Loss(p=0.3, sources=(2,)), Reorder(p=0.3, sources=(2,))]
    assert elsewhere([fault, *others]) == elsewhere(others)


def test_faults_of_the_same_moment_are_all_in_force() -> None:
    sim, _, b = talk([Loss(p=0.1), Duplicate(p=0.1), DelaySpike(ms=5.0), Reorder(p=0.1)], 1_000)
    assert all(sim.network.counts[name] for name in ("lost", "duplicated", "reordered"))
    assert min(delays(b).values()) >= WAY + 5 * MS


# Frames.


@pytest.mark.parametrize("fault", [Corrupt(p=0.3), Truncate(p=0.3)])
def test_a_damaged_frame_is_decoded_or_costs_the_link_and_never_the_run(fault: AnyFault) -> None:
    sim, a, b = talk([fault], 2_000, codec=True)
    damaged = sim.network.counts["corrupted" if isinstance(fault, Corrupt) else "truncated"]
    assert damaged > 0
    reasons = [reason for *_, reason in b.downs]
    assert 0 < len(reasons) <= damaged and all(reason.startswith("peer error:") for reason in reasons)
    assert {reason for *_, reason in a.downs} == {"closed"}
    untouched = [text for text in b.texts if text.isdigit() and int(text) < 2_000]
    assert len(untouched) > 100


def test_a_truncated_frame_always_costs_the_link() -> None:
    sim, _, b = talk([Truncate(p=1.0)], 50, gap=SECOND, codec=True)
    assert b.got == [] and len(b.downs) == sim.network.counts["truncated"] > 30


def test_a_corrupt_frame_may_be_read_as_something_else() -> None:
    _, _, b = talk([Corrupt(p=1.0)], 300, gap=200 * MS, codec=True)
    assert b.got and b.downs
    assert all(text != str(round((t - WAY - 2 * SECOND) / (200 * MS))) for t, _, text in b.got)


def test_a_frame_that_is_damaged_twice_costs_the_link_too() -> None:
    sim, _, b = talk([Truncate(p=1.0), Truncate(p=0.9), Corrupt(p=0.9)], 100, gap=SECOND, codec=True)
    assert sim.network.counts["truncated"] > 100
    assert len(b.got) < 5  # what is left of a frame may be a message by chance


@pytest.mark.parametrize("fault", [Corrupt(p=1.0), Truncate(p=1.0)])
def test_frames_can_be_damaged_only_where_there_are_some(fault: AnyFault) -> None:
    with pytest.raises(UsageError, match="codec"):
        talk([fault])


def test_requests_and_replies_survive_damage_with_one_outcome_each() -> None:
    sim = Simulator(3, Constant(ms=10.0), codec=True)
    a, _ = pair(sim)
    sim.inject([Corrupt(p=0.3), Truncate(at=60.0, p=0.3)])
    for number in range(400):
        sim.at((number + 10) * 200 * MS, a.ask, 1, str(number))
    sim.run(120 * SECOND)
    assert len(a.replies) + len(a.failures) == 400
    assert len(a.replies) > 50 < len(a.failures)


# Cuts and partitions.


@DRAWS
def test_a_cut_that_ends_before_it_is_detected_only_delays(draw: Any) -> None:
    sim, a, b = talk([Cut(at=2.5, duration=1.0, sources=(0,), targets=(1,))], draw=draw, detection=5 * SECOND)
    assert sim.network.counts["cut"] > 0
    assert a.downs == b.downs == []
    assert sorted(numbers(b)) == list(range(200))
    held = [t for t, _, text in b.got if 50 <= int(text) < 150]
    assert min(held) >= 3_500 * MS
    assert max(held) <= 3_500 * MS + 3 * WAY


@DRAWS
@pytest.mark.parametrize("gap", [3 * MS, 10 * MS, 25 * MS])
def test_the_order_is_kept_across_the_end_of_a_cut(draw: Any, gap: int) -> None:
    _, _, b = talk([Cut(at=2.1, duration=0.3, sources=(0,))], gap=gap, draw=draw)
    assert numbers(b) == list(range(200))


@DRAWS
def test_the_order_is_kept_across_the_end_of_a_cut_whatever_each_copy_takes(draw: Any) -> None:
    sim = Simulator(4, Uniform(low=1.0, high=80.0, draw=draw))
    a, b = pair(sim)
    sim.inject([Cut(at=2.0 + tenth, duration=0.5, sources=(0,)) for tenth in range(5)])
    for number in range(1_000):
        sim.at(2 * SECOND + number * 7 * MS, a.env.send, 1, Word(str(number)))
    sim.run(20 * SECOND)
    assert numbers(b) == list(range(1_000))


def test_a_cut_goes_one_way() -> None:
    sim = Simulator(1, Constant(ms=10.0))
    a, b = pair(sim)
    sim.inject([Cut(at=2.0, duration=2.0, sources=(0,), targets=(1,))])
    sim.at(3 * SECOND, a.env.send, 1, Word("held back"))
    sim.at(3 * SECOND, b.env.send, 0, Word("passes"))
    sim.run(10 * SECOND)
    assert a.got == [(3_010 * MS, 1, "passes")]
    assert [text for *_, text in b.got] == ["held back"] and b.got[0][0] >= 4 * SECOND


def test_a_cut_that_lasts_takes_the_link_down_at_both_ends_and_it_can_be_dialled_after_the_cut() -> None:
    sim = Simulator(1, Constant(ms=10.0), detection=3 * SECOND, dial_timeout=SECOND)
    a, b = pair(sim)
    sim.inject([Cut(at=2.0, duration=8.0, sources=(0,), targets=(1,))])
    sim.at(3 * SECOND, a.env.send, 1, Word("lost with the link"))
    sim.at(6 * SECOND, a.env.connect, 1)
    sim.at(7_500 * MS, b.env.connect, 0)
    sim.at(11 * SECOND, a.env.send, 1, Word("healed"))
    sim.run(20 * SECOND)
    down = (5 * SECOND, a.ups[0][2].incarnation, "timeout")
    assert [(t, i, reason) for t, _, i, reason in a.downs] == [down, (7 * SECOND, 0, "no answer")]
    assert [(t, i, reason) for t, _, i, reason in b.downs] == [down, (8_500 * MS, 0, "no answer")]
    assert b.texts == ["healed"]


@pytest.mark.parametrize("how", ["release", "leave"])
def test_a_close_does_not_cross_a_cut(how: str) -> None:
    sim = Simulator(1, Constant(ms=10.0), detection=5 * SECOND)
    a, b = pair(sim)
    sim.inject([Cut(at=2.0, duration=2.0, sources=(0,), targets=(1,))])
    sim.at(3 * SECOND, a.env.send, 1, Word("sent before the close"))
    sim.at(3 * SECOND, a.env.disconnect if how == "release" else sim.leave, 1 if how == "release" else 0)
    sim.run(20 * SECOND)
    assert b.texts[:1] == ["sent before the close"]
    assert len(b.downs) == 1 and b.downs[0][0] >= 4 * SECOND


def mesh(count: int, **options: Any) -> tuple[Simulator, list[Probe]]:
    """Everyone has a link to everyone; numbers are said by all to all at 3, 20 and 40 s."""
    sim = Simulator(1, Constant(ms=10.0), **options)
    everybody = probes(sim, count)
    for place, each in enumerate(everybody):
        for peer in range(place):
            each.env.connect(peer)
    sim.run(SECOND)
    for t in (3, 20, 40):
        for place, each in enumerate(everybody):
            sim.at(t * SECOND, each.env.send_all, tuple(peer for peer in range(count) if peer != place), Word(str(t)))
    return sim, everybody


def heard(everybody: Sequence[Probe], text: str) -> list[set[int]]:
    return [{int(sender) for _, sender, said in each.got if said == text} for each in everybody]


def reach(groups: Sequence[Sequence[int]], count: int) -> list[set[int]]:
    """Whom each node hears when only those in its group get through."""
    return [{peer for group in groups if node in group for peer in group if peer != node} for node in range(count)]


@pytest.mark.parametrize("how", ["groups", "halves", "isolate"])
def test_a_partition_parts_its_groups_until_it_heals(how: Any) -> None:
    groups = ((0, 3), (1, 4, 5)) if how == "groups" else ()
    (plan,) = faults.settle([Partition(at=2.0, duration=28.0, how=how, groups=groups)], range(6), Random(1))
    sizes = {"groups": [2, 3], "halves": [3, 3], "isolate": [1, 5]}
    assert isinstance(plan, Partition) and sorted(map(len, plan.groups)) == sizes[how]
    sim, everybody = mesh(6, detection=5 * SECOND, dial_timeout=SECOND)
    sim.inject([plan])
    sim.run(60 * SECOND)
    outside = [node for node in range(6) if not any(node in group for group in plan.groups)]
    inside = [(*group, *outside) for group in plan.groups]
    expected = [reach(inside, 6)[node] if node not in outside else set(range(6)) - {node} for node in range(6)]
    assert heard(everybody, "20") == expected != [set(range(6)) - {node} for node in range(6)]
    assert heard(everybody, "40") == [set(range(6)) - {node} for node in range(6)]
    parted = {(a, b) for a in plan.groups[0] for b in plan.groups[1]}
    falls = [(node, fall) for node, each in enumerate(everybody) for fall in each.downs]
    fallen = {(node, peer) for node, (_, peer, _, reason) in falls if reason == "timeout"}
    assert fallen == parted | {(b, a) for a, b in parted}


def test_a_partition_that_heals_before_it_is_detected_loses_nothing() -> None:
    sim, everybody = mesh(4, detection=5 * SECOND)
    sim.inject([Partition(at=2.0, duration=3.0, groups=((0, 1), (2, 3)))])
    sim.run(60 * SECOND)
    assert heard(everybody, "3") == [set(range(4)) - {node} for node in range(4)]
    assert all(each.downs == [] for each in everybody)
    assert sim.network.counts["cut"] == 8


# Links.


def test_a_reset_breaks_the_link_of_a_pair_at_both_ends_with_what_is_in_flight() -> None:
    sim = Simulator(1, Constant(ms=50.0))
    a, b, c = probes(sim, 3)
    a.env.connect(1)
    a.env.connect(2)
    sim.run(SECOND)
    sim.inject([Reset(at=2.0, a=1, b=0)])
    sim.at(1_980 * MS, a.env.send_all, (1, 2), Word("in flight"))
    sim.at(1_980 * MS, b.env.send, 0, Word("in flight"))
    sim.at(3 * SECOND, a.env.send_all, (1, 2), Word("on a new link"))
    sim.run(10 * SECOND)
    assert [(t, peer, reason) for t, peer, _, reason in a.downs] == [(2 * SECOND, 1, "reset")]
    assert [(t, peer, reason) for t, peer, _, reason in b.downs] == [(2 * SECOND, 0, "reset")]
    assert (a.texts, b.texts, c.texts) == ([], ["on a new link"], ["in flight", "on a new link"])
    assert sim.network.counts["reset"] == 1


@pytest.mark.parametrize(("share", "broken"), [(0.4, 6), (1.0, 15)])
def test_a_reset_without_a_pair_breaks_a_share_of_all_links(share: float, broken: int) -> None:
    sim, everybody = mesh(6)
    sim.inject([Reset(at=2.0, share=share)])
    sim.run(2_500 * MS)
    assert sim.network.counts["reset"] == broken
    assert [len(each.downs) for each in everybody] == [len({peer for _, peer, _, _ in each.downs}) for each in everybody]
    assert sum(len(each.downs) for each in everybody) == 2 * broken


@pytest.mark.parametrize("draw", ["copy", "send"])
def test_a_reset_of_a_link_that_one_end_has_not_accepted_yet_leaves_no_ghost(draw: Any) -> None:
    sim = Simulator(1, Constant(ms=50.0, draw=draw))
    a, b = probes(sim, 2)
    a.env.connect(1)  # up here at 100 ms, there at 150
    sim.inject([Reset(at=0.12, a=0, b=1)])
    sim.run(5 * SECOND)
    assert [(t, reason) for t, _, _, reason in a.downs] == [(120 * MS, "reset")]
    assert len(b.ups) == len(b.downs)
    b.env.send(0, Word("hello"))
    sim.run(10 * SECOND)
    assert a.texts == ["hello"]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_fault_that_begins_while_a_link_is_coming_up_takes_hold_of_both_directions(reverse: bool) -> None:
    sim = Simulator(1, Constant(ms=50.0))
    a, b = probes(sim, 2)
    a.env.connect(1)  # up here at 100 ms, there at 150
    sim.inject([Loss(at=0.12, p=1.0)])
    sender, receiver = (b, a) if reverse else (a, b)
    sim.at(SECOND, sender.env.send, receiver.env.me, Word("lost"))
    sim.run(5 * SECOND)
    assert (receiver.got, sim.network.counts["lost"]) == ([], 1)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_fault_that_ends_while_a_link_is_coming_up_lets_go_of_both_directions(reverse: bool) -> None:
    sim = Simulator(1, Constant(ms=50.0))
    a, b = probes(sim, 2)
    sim.inject([Loss(at=0.0, duration=0.12, p=1.0)])
    a.env.connect(1)
    sender, receiver = (b, a) if reverse else (a, b)
    sim.at(SECOND, sender.env.send, receiver.env.me, Word("arrives"))
    sim.run(5 * SECOND)
    assert receiver.texts == ["arrives"]


def test_dials_towards_a_node_behind_nat_fail_while_it_lasts() -> None:
    sim = Simulator(1, Constant(ms=10.0), dial_timeout=SECOND)
    a, b = probes(sim, 2)
    sim.inject([Nat(nodes=(1,), duration=10.0), Nat(at=5.0, nodes=(1,), duration=10.0)])
    for second in (2, 12, 20):
        sim.at(second * SECOND, a.env.send, 1, Word(str(second)))
    sim.run(30 * SECOND)
    assert [(t, incarnation, reason) for t, _, incarnation, reason in a.downs] == [
        (3 * SECOND, 0, "no answer"),
        (13 * SECOND, 0, "no answer"),
    ]
    assert [text for *_, text in a.lost] == ["2", "12"] and b.texts == ["20"]


# Nodes.


def test_a_crash_takes_down_the_nodes_it_names() -> None:
    sim, everybody = mesh(5)
    sim.inject([Crash(at=2.0, nodes=(1, 3))])
    sim.run(30 * SECOND)
    assert [node for node in range(5) if sim.nodes[node].up] == [0, 2, 4]
    assert heard(everybody, "20") == [{2, 4}, set(), {0, 4}, set(), {0, 2}]
    assert sorted(int(peer) for _, peer, _, reason in everybody[0].downs if reason == "timeout") == [1, 3]


@pytest.mark.parametrize("state", [True, False])
def test_a_restart_brings_the_nodes_back_with_their_state_or_without(state: bool) -> None:
    sim = Simulator(1, Constant(ms=10.0))
    everybody = probes(sim, 3)
    for each in everybody:
        each.env.store["key"] = b"kept"
    sim.inject([Restart(at=2.0, nodes=(0, 2), down=3.0, state=state)])
    sim.run(4_900 * MS)
    assert [sim.nodes[node].up for node in range(3)] == [False, True, False]
    sim.run(10 * SECOND)
    again = [probe(sim, node) for node in range(3)]
    assert [each.started for each in again] == [5 * SECOND, 0, 5 * SECOND]
    assert again[1] is everybody[1]
    kept: tuple[dict[str, bytes], bytes | None] = ({"key": b"kept"}, b"as it was") if state else ({}, None)
    assert [(dict(again[node].env.store), again[node].restored) for node in (0, 2)] == [kept, kept]
    assert again[0].env.epoch != everybody[0].env.epoch


def test_a_mass_crash_is_settled_into_its_share_of_victims() -> None:
    (plan,) = faults.settle([MassCrash(at=2.0, share=0.3)], range(10), Random(1))
    assert isinstance(plan, Crash) and plan.at == 2.0
    assert len(set(plan.nodes)) == 3 and set(plan.nodes) <= set(range(10))
    sim, _ = mesh(10)
    sim.inject([plan])
    sim.run(3 * SECOND)
    assert [node for node in range(10) if not sim.nodes[node].up] == list(plan.nodes)


@pytest.mark.parametrize("fault", [MassCrash(share=0.5), Partition(how="halves"), Partition(how="isolate")])
def test_a_fault_that_leaves_its_victims_to_chance_is_refused_until_it_is_settled(fault: AnyFault) -> None:
    sim, _ = mesh(4)
    with pytest.raises(UsageError, match="settle"):
        sim.inject([fault])
        sim.run(3 * SECOND)


@pytest.mark.parametrize(
    "fault", [Crash(at=2.0, nodes=(9, 0)), Restart(at=2.0, nodes=(9, 0)), Nat(nodes=(9,)), Skew(nodes=(9,), factor=2.0)]
)
def test_a_fault_that_names_a_node_that_is_not_there_passes_it_by(fault: AnyFault) -> None:
    sim, everybody = mesh(3)
    sim.inject([fault])
    sim.run(2_500 * MS)
    assert sim.nodes[0].up != isinstance(fault, Crash | Restart)
    sim.run(10 * SECOND)
    assert everybody[1].got


@DRAWS
def test_all_that_a_slow_node_sends_and_gets_takes_longer(draw: Any) -> None:
    sim = Simulator(1, Constant(ms=10.0, draw=draw))
    slow, *others = probes(sim, 3)
    for each, peer in ((slow, 1), (slow, 2), (others[0], 2)):
        each.env.connect(peer)
    sim.run(SECOND)
    sim.inject([SlowNode(at=2.0, duration=3.0, nodes=(0,), factor=4.0)])
    for second in (3, 6):
        for node, each in enumerate((slow, *others)):
            for peer in range(3):
                if peer != node:
                    sim.at(second * SECOND + peer * 200 * MS, each.env.send, peer, Word(f"{node}>{peer}"))
    sim.run(10 * SECOND)
    taken = {(t // SECOND, text): t % (200 * MS) for each in (slow, *others) for t, _, text in each.got}
    pairs = [f"{node}>{peer}" for node in range(3) for peer in range(3) if peer != node]
    assert {text: taken[3, text] for text in pairs} == {text: 40 * MS if "0" in text else 10 * MS for text in pairs}
    assert {text: taken[6, text] for text in pairs} == dict.fromkeys(pairs, 10 * MS)


def test_timers_of_a_skewed_node_run_longer_while_it_lasts() -> None:
    sim = Simulator(1)
    skewed, plain = probes(sim, 2)
    sim.inject([Skew(at=1.0, duration=10.0, nodes=(0,), factor=1.5)])
    fired = list[tuple[str, int, int]]()
    for second in (0, 2, 20):
        for name, each in (("skewed", skewed), ("plain", plain)):
            sim.at(second * SECOND, set_timer, each, name, second, fired)
    sim.run(30 * SECOND)
    assert sorted(fired) == [
        *(("plain", second, (second + 4) * SECOND) for second in (0, 2, 20)),
        ("skewed", 0, 4 * SECOND),
        ("skewed", 2, 8 * SECOND),
        ("skewed", 20, 24 * SECOND),
    ]


def set_timer(machine: Probe, name: str, second: int, fired: list[tuple[str, int, int]]) -> None:
    machine.env.after(4 * SECOND, lambda: fired.append((name, second, machine.env.now())))


def test_the_end_of_one_skew_does_not_end_another() -> None:
    sim = Simulator(1)
    (skewed,) = probes(sim, 1)
    sim.inject([Skew(at=0.0, duration=5.0, nodes=(0,), factor=2.0), Skew(at=1.0, duration=20.0, nodes=(0,), factor=3.0)])
    fired = list[tuple[str, int, int]]()
    sim.at(10 * SECOND, set_timer, skewed, "late", 10, fired)
    sim.at(22 * SECOND, set_timer, skewed, "after both", 22, fired)
    sim.run(60 * SECOND)
    assert fired == [("late", 10, 22 * SECOND), ("after both", 22, 26 * SECOND)]


def test_a_skew_outlasts_a_restart() -> None:
    sim = Simulator(1)
    probes(sim, 1)
    sim.inject([Skew(nodes=(0,), factor=2.0), Restart(at=1.0, nodes=(0,))])
    fired = list[tuple[str, int, int]]()
    sim.at(5 * SECOND, lambda: set_timer(probe(sim, 0), "again", 5, fired))
    sim.run(30 * SECOND)
    assert fired == [("again", 5, 13 * SECOND)]


# Every kind.

MARKS: dict[type[AnyFault], AnyFault] = {
    Loss: Loss(at=2.0, p=0.5),
    BurstLoss: BurstLoss(at=2.0, p=0.5),
    Duplicate: Duplicate(at=2.0, p=0.5),
    Reorder: Reorder(at=2.0, p=0.5),
    DelaySpike: DelaySpike(at=2.0, ms=5.0),
    Corrupt: Corrupt(at=2.0, p=0.5),
    Truncate: Truncate(at=2.0, p=0.5),
    Cut: Cut(at=2.0, sources=(0,), duration=1.0),
    Partition: Partition(at=2.0, duration=1.0),
    Reset: Reset(at=2.0, share=0.5),
    Crash: Crash(at=2.0, nodes=(1,)),
    Restart: Restart(at=2.0, nodes=(1,)),
    MassCrash: MassCrash(at=2.0, share=0.5),
    SlowNode: SlowNode(at=2.0, nodes=(0,), factor=2.0),
    Nat: Nat(at=2.0, nodes=(5,)),
    Skew: Skew(at=2.0, nodes=(0,), factor=2.0),
}
KINDS = pytest.mark.parametrize("kind", MARKS, ids=lambda kind: kind.__struct_config__.tag)


def marks(plan: Sequence[AnyFault]) -> tuple[object, ...]:
    """All that six nodes live through: one says a word to all by a timer each 100 ms, and one dials a stranger at 5 s."""
    sim = Simulator(1, Constant(ms=10.0), codec=True)
    everybody = probes(sim, 6)
    for peer in range(1, 5):
        everybody[0].env.connect(peer)
    sim.run(SECOND)
    sim.inject(faults.settle(plan, range(6), Random(1)))
    hub, ticks = everybody[0], list[int]()

    def tick() -> None:
        ticks.append(hub.env.now())
        hub.env.send_all((1, 2, 3, 4), Word(str(len(ticks))))
        hub.env.after(100 * MS, tick)

    hub.env.after(100 * MS, tick)
    sim.at(5 * SECOND, everybody[1].env.connect, 5)
    sim.run(20 * SECOND)
    return ticks, [(each.got, each.ups, each.downs, each.lost) for each in everybody]


@KINDS
def test_every_kind_leaves_its_mark(kind: type[AnyFault]) -> None:
    assert marks([MARKS[kind]]) != marks([])
    assert marks([MARKS[kind]]) == marks([MARKS[kind]])


@KINDS
def test_no_kind_leaves_a_mark_before_its_time(kind: type[AnyFault]) -> None:
    assert marks([msgspec.structs.replace(MARKS[kind], at=21.0)]) == marks([])


def test_every_kind_is_tried() -> None:
    assert set(MARKS) == set(get_args(AnyFault))


# Settled, saved, replayed, shrunk.

LEFT_TO_CHANCE: list[AnyFault] = [
    MassCrash(at=5.0, share=0.2),
    Partition(at=3.0, how="halves"),
    Partition(at=4.0, how="isolate"),
    MassCrash(at=1.0, share=0.5),
]


def settled(plan: Sequence[AnyFault], seed: int = 1) -> list[AnyFault]:
    return faults.settle(plan, range(40), Random(seed))


def test_settling_names_every_victim_and_orders_by_time() -> None:
    plan = settled([*LEFT_TO_CHANCE, Loss(at=4.5, p=0.1)])
    assert [fault.at for fault in plan] == [1.0, 3.0, 4.0, 4.5, 5.0]
    crash, halves, one, loss, last = plan
    assert isinstance(crash, Crash) and isinstance(last, Crash) and (len(crash.nodes), len(last.nodes)) == (20, 8)
    assert isinstance(halves, Partition) and isinstance(one, Partition) and halves.how == one.how == "groups"
    for parted in (halves, one):
        assert sorted(node for group in parted.groups for node in group) == list(range(40))
    assert loss == Loss(at=4.5, p=0.1)


def test_settling_depends_on_the_seed() -> None:
    assert settled(LEFT_TO_CHANCE) == settled(LEFT_TO_CHANCE) != settled(LEFT_TO_CHANCE, 2)


def test_settling_does_not_depend_on_the_order_of_the_list() -> None:
    for turn in range(1, 4):
        assert settled(LEFT_TO_CHANCE[turn:] + LEFT_TO_CHANCE[:turn]) == settled(LEFT_TO_CHANCE)


def test_what_is_settled_stays_as_it_is_with_any_seed() -> None:
    plan = settled(LEFT_TO_CHANCE)
    assert settled(plan, 2) == plan


def test_one_more_fault_does_not_change_the_victims_of_the_others() -> None:
    plan, more = settled(LEFT_TO_CHANCE), settled([MassCrash(at=0.5, share=0.1), *LEFT_TO_CHANCE])
    assert more[1:] == plan


def test_equal_faults_draw_victims_of_their_own() -> None:
    first, second = settled([MassCrash(at=1.0, share=0.5), MassCrash(at=2.0, share=0.5)])
    assert isinstance(first, Crash) and isinstance(second, Crash) and first.nodes != second.nodes


shares = st.floats(0, 1)
moments = st.floats(0, 1e9)
some = st.lists(st.integers(0, 99), max_size=4).map(tuple)
positive = st.floats(0, 1e6, exclude_min=True)
on_links: dict[str, Any] = {"at": moments, "duration": moments, "sources": some, "targets": some}
any_fault: st.SearchStrategy[AnyFault] = st.one_of(
    st.builds(Loss, **on_links, p=shares),
    st.builds(BurstLoss, **on_links, p=shares, stay=shares),
    st.builds(Duplicate, **on_links, p=shares),
    st.builds(Reorder, **on_links, p=shares, ms=positive),
    st.builds(DelaySpike, **on_links, ms=positive),
    st.builds(Corrupt, **on_links, p=shares),
    st.builds(Truncate, **on_links, p=shares),
    st.builds(Cut, **on_links),
    st.builds(Partition, at=moments, duration=moments, how=st.sampled_from(["halves", "isolate"])),
    st.builds(Partition, at=moments, how=st.just("groups"), groups=st.tuples(some, some)),
    st.builds(Reset, at=moments, a=st.integers(0, 9), b=st.integers(10, 19)),
    st.builds(Reset, at=moments, share=shares.filter(bool)),
    st.builds(Crash, at=moments, nodes=some),
    st.builds(Restart, at=moments, nodes=some, down=moments, state=st.booleans()),
    st.builds(MassCrash, at=moments, share=shares),
    st.builds(SlowNode, at=moments, duration=moments, nodes=some, factor=positive),
    st.builds(Nat, at=moments, duration=moments, nodes=some),
    st.builds(Skew, at=moments, duration=moments, nodes=some, factor=positive),
)


@given(plan=st.lists(any_fault, max_size=12))
@settings(max_examples=150)
def test_a_list_that_was_saved_is_loaded_as_it_was(plan: list[AnyFault], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "plan.json"
    faults.save(path, plan)
    assert faults.load(path) == plan


def test_a_saved_list_can_be_read_by_eye(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    faults.save(path, [Loss(at=1.0, p=0.5), Crash(at=2.0, nodes=(3,))])
    text = path.read_text()
    assert '"kind": "loss"' in text and '"nodes"' in text and text.endswith("]\n") and text.count("\n") > 5


STORM = Scenario(
    nodes=30,
    seed=3,
    warmup=3.0,
    window=5.0,
    network=Network(codec=True, detection=2.0, dial_timeout=2.0),
    workload=Workload(messages=15, rate=5.0),
    faults=(
        Loss(at=1.0, p=0.02),
        BurstLoss(at=2.0, p=0.01),
        Duplicate(at=2.0, p=0.02),
        Reorder(at=2.0, p=0.05),
        DelaySpike(at=3.0, duration=1.0, ms=30.0),
        Corrupt(at=3.0, p=0.01),
        Truncate(at=3.5, p=0.01),
        Cut(at=4.0, duration=1.0, sources=(1, 2)),
        Partition(at=4.5, duration=3.0),
        Partition(at=5.0, duration=1.0, how="isolate"),
        Reset(at=4.2, share=0.1),
        Reset(at=4.3, a=0, b=1),
        Crash(at=5.0, nodes=(4,)),
        Restart(at=4.0, nodes=(5, 6), state=False),
        MassCrash(at=5.5, share=0.1),
        SlowNode(at=3.0, nodes=(7,), factor=3.0),
        Nat(at=4.0, nodes=(8, 9)),
        Skew(at=3.0, nodes=(10,), factor=1.5),
    ),
)


def replayed(plan: Sequence[AnyFault], **fields: Any) -> dict[str, Any]:
    scenario = msgspec.structs.replace(STORM, faults=tuple(plan), **fields)
    note_replay(command(scenario))
    return run(scenario)


@DRAWS
def test_a_saved_list_replays_to_the_same_hash(tmp_path: Path, draw: Any) -> None:
    path = tmp_path / "plan.json"
    scenario = msgspec.structs.replace(STORM, latency=Uniform(low=10.0, high=100.0, draw=draw))
    note_replay(command(scenario))
    first = run(scenario, save_faults=path)
    plan = faults.load(path)
    assert len(plan) == len(STORM.faults) and not any(isinstance(fault, MassCrash) for fault in plan)
    again = replayed(plan, latency=scenario.latency)
    assert (again["trace_hash"], again["events"], again["faults"]) == (first["trace_hash"], first["events"], first["faults"])
    assert {"lost", "duplicated", "reordered", "corrupted", "truncated", "cut", "reset", "closed"} <= set(first["faults"])


def test_a_shrunk_list_still_runs_and_what_was_deleted_is_missed(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    note_replay(command(STORM))
    whole = run(STORM, save_faults=path)
    plan, missed = faults.load(path), list[AnyFault]()
    for place, fault in enumerate(plan):
        shrunk = plan[:place] + plan[place + 1 :]
        assert settled(shrunk) == shrunk
        if replayed(shrunk)["trace_hash"] != whole["trace_hash"]:
            missed.append(fault)
    assert len(missed) > len(plan) / 2  # some happen to touch nothing: a reset of a link that is not there


# What is refused.


def refusal(make: Callable[[], object], error: type[Exception]) -> str:
    with pytest.raises(error) as caught:
        make()
    line = str(caught.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    ("kind", "values", "named"),
    [
        (Loss, {"p": 1.1}, "p is 1.1"),
        (Loss, {"p": -0.1}, "p is -0.1"),
        (Loss, {"p": float("nan")}, "p is nan"),
        (Loss, {"p": 0.5, "at": -1.0}, "at is -1.0 s"),
        (Loss, {"p": 0.5, "at": float("inf")}, "at is inf s"),
        (Loss, {"p": 0.5, "duration": -1.0}, "duration is -1.0 s"),
        (Loss, {"p": 0.5, "duration": float("nan")}, "duration is nan s"),
        (BurstLoss, {"p": 0.5, "stay": 2.0}, "stay is 2.0"),
        (Reorder, {"p": 0.5, "ms": 0.0}, "ms is 0.0"),
        (Reorder, {"p": 0.5, "ms": float("inf")}, "ms is inf"),
        (DelaySpike, {"ms": -5.0}, "ms is -5.0"),
        (Reset, {"share": 1.5}, "share is 1.5"),
        (MassCrash, {"share": -0.5}, "share is -0.5"),
        (Restart, {"nodes": (1,), "down": -1.0}, "down is -1.0 s"),
        (SlowNode, {"nodes": (1,), "factor": 0.0}, "factor is 0.0"),
        (Skew, {"nodes": (1,), "factor": 1e7}, "factor is 1"),
    ],
)
def test_a_value_out_of_range_is_refused_in_one_line(kind: type, values: dict[str, Any], named: str) -> None:
    assert named in refusal(lambda: kind(**values), ValueError)


@pytest.mark.parametrize("values", [{"a": 1}, {"b": 1}, {"a": 1, "share": 0.5}])
def test_a_reset_of_half_a_pair_is_refused(values: dict[str, Any]) -> None:
    refusal(lambda: Reset(at=1.0, **values), ValueError)


def test_a_partition_into_named_groups_must_name_them() -> None:
    refusal(lambda: Partition(how="groups"), ValueError)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"", "not one"),
        (b"[", "not one"),
        (b"{}", "array"),
        (b"[1]", "object"),
        (b'[{"kind": "loss"}]', "`p`"),
        (b'[{"p": 0.5}]', "kind"),
        (b'[{"kind": "gremlins"}]', "gremlins"),
        (b'[{"kind": "loss", "p": "much"}]', "float"),
        (b'[{"kind": "loss", "p": 1.5}]', "from 0 to 1"),
        (b'[{"kind": "loss", "p": 0.5, "at": -1}]', "from 0 to"),
        (b'[{"kind": "loss", "p": NaN}]', "not one"),
        (b'[{"kind": "loss", "p": 1e400}]', "not one"),
        (b'[{"kind": "loss", "p": 0.5, "colour": "red"}]', "colour"),
        (b'[{"kind": "crash", "nodes": [1.5]}]', "int"),
        (b'[{"kind": "partition", "how": "thirds"}]', "thirds"),
        (b'[{"kind": "lo\xff\xfes", "p": 0.5}]', "not one"),
        (b"[" * 100_000, "not one"),
        (b'[{"kind":' * 100_000, "not one"),
    ],
    ids=range(18),
)
def test_a_file_that_is_no_list_of_faults_is_refused_in_one_line(tmp_path: Path, text: bytes, complaint: str) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(text)
    line = refusal(lambda: faults.load(path), UsageError)
    assert "plan.json" in line and complaint in line


def test_a_file_that_cannot_be_read_is_refused_in_one_line(tmp_path: Path) -> None:
    assert "nowhere.json" in refusal(lambda: faults.load(tmp_path / "nowhere.json"), UsageError)
    refusal(lambda: faults.load(tmp_path), UsageError)
