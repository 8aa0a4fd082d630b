"""`weft bench swarm` without live peers: its plan, what it counts and judges, its twin in the simulator, and how it fails."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import swarm, swarm_live
from bench.cli import main
from bench.swarm_plan import HEAD, QUICK, Plan, SwarmConfig, Tally, Told, draw, judge, pairs, payload, percentile, spans, united
from bench.swarm_twin import Twin
from peer.errors import UsageError, WeftError
from peer.machine import SECOND

SMALL = SwarmConfig(peers=12, senders=4, rate=2.0, seconds=10.0, killed=3, joining=3, processes=2, seed=3, step=0.0)

configs = st.builds(
    SwarmConfig,
    peers=st.integers(10, 60),
    senders=st.integers(1, 10),
    killed=st.integers(0, 8),
    joining=st.integers(0, 8),
    processes=st.integers(1, 6),
    seed=st.integers(0, 1 << 40),
)


# The plan.


@given(configs)
def test_every_first_peer_has_one_process_and_the_victims_of_a_death_one_of_their_own(config: SwarmConfig) -> None:
    plan = draw(config)
    homes = plan.homes()
    assert sorted(peer for home in homes for peer in home) == list(range(config.peers))
    assert homes[config.processes :] == [death.peers for death in plan.deaths]
    assert len(plan.killed) == len(set(plan.killed)) == config.killed
    assert set(plan.throughout) == set(range(config.peers)) - set(plan.killed)


@given(configs)
def test_who_joins_comes_in_order_through_peers_that_are_up_then(config: SwarmConfig) -> None:
    plan = draw(config)
    assert [arrival.peer for arrival in plan.arrivals] == list(range(config.peers, config.peers + config.joining))
    for before, after in pairwise(plan.arrivals):
        assert before.at <= after.at
    for arrival in plan.arrivals:
        dead = {peer for death in plan.deaths if death.at <= arrival.at for peer in death.peers}
        assert 0 < len(set(arrival.contacts)) == len(arrival.contacts)
        assert not dead.intersection(arrival.contacts) and max(arrival.contacts) < config.peers


@given(configs)
def test_all_that_changes_does_so_while_messages_are_sent(config: SwarmConfig) -> None:
    plan = draw(config)
    moments = [*(death.at for death in plan.deaths), *(arrival.at for arrival in plan.arrivals)]
    assert all(0 < moment < config.seconds for moment in moments)
    assert all(0 <= phase < 1 / config.rate for phase in plan.senders.values())


def test_a_seed_gives_one_plan_and_another_seed_another() -> None:
    assert draw(SwarmConfig(seed=1)) == draw(SwarmConfig(seed=1)) != draw(SwarmConfig(seed=2))


def test_victims_are_drawn_among_all_so_that_senders_are_killed_too() -> None:
    plans = [draw(SwarmConfig(seed=seed)) for seed in range(10)]
    assert any(len(plan.surviving) < len(plan.senders) for plan in plans)
    assert all(set(plan.surviving) == set(plan.senders) - set(plan.killed) for plan in plans)


def test_several_victims_die_together_and_others_alone() -> None:
    sizes = sorted(len(death.peers) for death in draw(SwarmConfig()).deaths)
    assert sizes == [1, 1, 1, 1, 1, 1, 4]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"peers": 2}, "--peers is 2; it must be at least 3"),
        ({"size": HEAD.size - 1}, f"--size is {HEAD.size - 1}"),
        ({"killed": -1}, "--killed is -1"),
        ({"killed": 49}, "fewer than two peers left"),
        ({"senders": 51}, "more senders than peers"),
        ({"rate": 0.001}, "less than one message"),
    ],
)
def test_what_makes_no_swarm_is_refused(asked: Mapping[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        SwarmConfig(**asked)


def test_a_swarm_whose_senders_are_all_killed_is_refused() -> None:
    config = SwarmConfig(peers=3, senders=1, killed=1, processes=1)
    doomed = next(each for seed in range(50) if not draw(each := replace(config, seed=seed)).surviving)
    with pytest.raises(UsageError, match="all senders are among the killed"):
        swarm.bench_swarm(doomed)


def test_flags_are_laid_over_the_default_or_the_short_form() -> None:
    assert swarm.configured(False, {"peers": 30, "quiet": True}) == SwarmConfig(peers=30)
    assert swarm.configured(True, {"seed": 7}) == replace(QUICK, seed=7)


# What is counted and judged.


@given(st.sets(st.integers(0, 60)))
def test_spans_say_the_same_as_the_numbers_and_have_gaps_between(numbers: set[int]) -> None:
    found = spans(numbers)
    assert {number for first, last in found for number in range(first, last + 1)} == numbers
    assert all(after[0] > before[1] + 1 for before, after in pairwise(found))


def heard(peer: int, *messages: tuple[int, int]) -> Told:
    tally = Tally(peer)
    for sender, number in messages:
        tally.note(payload(0, sender, number, 0, 64), 0)
    return tally.told()


def test_a_message_counts_once_and_a_second_copy_is_doubled() -> None:
    told = heard(1, (5, 0), (5, 1), (5, 1), (5, 3))
    assert told.heard == {5: [(0, 1), (3, 3)]}
    assert told.doubled == [(5, 1)]


def test_what_was_sent_in_another_run_counts_no_more() -> None:
    tally = Tally(1)
    tally.begin(2)
    tally.note(payload(1, 5, 0, 0, 64), 0)
    tally.note(payload(2, 5, 1, 0, 64), 0)
    assert tally.told().heard == {5: [(1, 1)]}
    assert (tally.count([5]), tally.count([6])) == (1, 0)


def test_latency_is_counted_for_messages_of_others_alone() -> None:
    tally = Tally(1)
    tally.note(payload(0, 1, 0, 1_000, 64), 900_000)
    tally.note(payload(0, 2, 0, 1_000, 64), 3_540)
    assert tally.told().late == {25: 1}


def test_a_payload_has_the_size_that_was_asked_for() -> None:
    assert len(payload(1, 2, 3, 4, 256)) == 256


def test_all_delivered_once_is_faultless() -> None:
    told = {peer: heard(peer, (0, 0), (0, 1)) for peer in (0, 1)}
    judged = judge({0: 2}, [0, 1], told)
    assert judged.faultless
    assert (judged.expected, judged.delivered, judged.lost, judged.again) == (4, 4, 0, 0)


def test_what_is_missing_is_named_by_peer_and_sender() -> None:
    told = {0: heard(0, (0, 0), (0, 1), (0, 2)), 1: heard(1, (0, 1))}
    judged = judge({0: 3}, [0, 1, 2], told)
    assert judged.missing == {1: {0: [(0, 0), (2, 2)]}, 2: {0: [(0, 2)]}}
    assert (judged.expected, judged.delivered, judged.lost) == (9, 4, 5)
    assert not judged.faultless


def test_a_second_copy_is_a_fault_even_where_nothing_is_due() -> None:
    told = {0: heard(0, (0, 0)), 9: heard(9, (4, 7), (4, 7))}
    judged = judge({0: 1}, [0], told)
    assert (judged.lost, judged.again, judged.doubled) == (0, 1, {9: [(4, 7)]})
    assert not judged.faultless


def test_the_set_of_deliveries_has_the_senders_and_peers_asked_for() -> None:
    told = {0: heard(0, (0, 0), (3, 0)), 1: heard(1, (0, 0)), 2: heard(2, (0, 0))}
    assert pairs({0: 1}, [0, 1], told) == {(0, 0, 0), (0, 0, 1)}


@pytest.mark.parametrize(("share", "value"), [(0.5, 0.2), (0.51, 0.3), (0.99, 0.4), (1.0, 0.4)])
def test_a_percentile_is_the_smallest_value_with_that_share_at_or_below_it(share: float, value: float) -> None:
    assert percentile({4: 1, 1: 1, 2: 1, 3: 1}, share) == value
    assert percentile({}, share) is None


def test_an_overlay_is_united_by_links_that_both_ends_have() -> None:
    square = {0: [1, 2, 3], 1: [0, 2, 3], 2: [0, 1, 3], 3: [0, 1, 2]}
    assert united(square)
    other = {peer + 4: [near + 4 for near in several] for peer, several in square.items()}
    assert not united(square | other)
    assert not united(square | other | {3: [0, 1, 2, 4]})  # 4 knows nothing of it
    assert united(square | other | {3: [0, 1, 2, 4], 4: [5, 6, 7, 3]})


def test_an_overlay_is_not_united_while_somebody_has_few_neighbours() -> None:
    assert united({0: [1, 2], 1: [0, 2], 2: [0, 1]})  # more there are not
    assert not united({0: [1, 2, 3], 1: [0, 2], 2: [0, 1], 3: [0]})


# The highest rate.


def test_a_rate_doubles_until_it_fails_and_then_the_two_are_brought_together() -> None:
    held, failed, tried = 0.0, inf, [40.0]
    while tried[-1]:
        held, failed = (tried[-1], failed) if tried[-1] < 300 else (held, tried[-1])
        tried.append(swarm.next_rate(held, failed))
    assert tried[:4] == [40.0, 80.0, 160.0, 320.0]
    assert 300 / swarm.NEAR < held < 300 <= failed


def test_a_rate_that_fails_at_once_is_halved_down_to_none() -> None:
    assert swarm.next_rate(0.0, 40.0) == 20.0
    assert swarm.next_rate(0.0, 0.9) == 0.0


def test_a_rate_is_held_only_by_messages_that_came_once_and_in_time() -> None:
    all_there, missing = {0: heard(0, (0, 0))}, {0: heard(0)}
    twice = {0: heard(0, (0, 0), (0, 0))}
    assert swarm.failure(judge({0: 1}, [0], all_there), in_time=True) == ""
    assert swarm.failure(judge({0: 1}, [0], all_there), in_time=False) == "messages came late"
    assert swarm.failure(judge({0: 1}, [0], missing), in_time=False) == "messages are missing"
    assert swarm.failure(judge({0: 1}, [0], twice), in_time=True) == "messages came twice"


# The twin.


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_in_the_simulator_every_message_of_a_survivor_comes_once_to_all_that_were_up_throughout(seed: int) -> None:
    plan = draw(replace(SMALL, seed=seed))
    twin = Twin(plan)
    told = twin.run()
    judged = judge(plan.due(), plan.throughout, told)
    assert judged.faultless, judged
    assert judged.expected == len(plan.surviving) * plan.messages * len(plan.throughout)
    assert sorted(told) == sorted(plan.last) == sorted(twin.sim.live)


def test_peers_that_join_in_the_simulator_hear_what_is_sent_from_then_on() -> None:
    plan = draw(SMALL)
    told = Twin(plan).run()
    for arrival in plan.arrivals:
        later = [number for number in range(plan.messages) if number / plan.config.rate > arrival.at + 1]
        assert later
        for sender in plan.surviving:
            assert set(later) <= {number for _, number, _ in pairs({sender: 1}, [arrival.peer], told)}


class Unplanned(Twin):
    """One that was to be up throughout is not."""

    @property
    def victim(self) -> int:
        return next(peer for peer in self.plan.throughout if peer not in self.plan.senders)

    def _schedule(self, began: int) -> None:
        super()._schedule(began)
        self.sim.at(began + 5 * SECOND, self.sim.crash, self.victim)


def test_the_twin_shows_what_a_peer_did_not_get() -> None:
    plan = draw(SMALL)
    twin = Unplanned(plan)
    told = twin.run()
    assert list(judge(plan.due(), plan.throughout, told).missing) == [twin.victim]
    assert pairs(plan.due(), plan.throughout, told) != pairs(plan.due(), plan.throughout, Twin(plan).run())


# How it fails.


def pretended(plan: Plan, **changes: Any) -> dict[str, Any]:
    judged = judge(plan.due(), plan.throughout, {})
    figures = {"expected": judged.expected, "delivered": 0, "missing": judged.lost, "doubled": 0}
    named = {"killed": [1], "senders_killed": [], "ramp": None, "problems": [], "logs": []}
    return {**figures, **named, **changes}


def test_what_is_missing_makes_the_command_fail_with_a_line_that_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = pretended(draw(SMALL), problems=["live, 3 of 9 deliveries are missing, at the peers 4", "see a.log"])
    monkeypatch.setattr(swarm, "bench_swarm", lambda config, progress: result)
    assert main(["bench", "swarm", "--quick", "--json"]) == 1
    found = capsys.readouterr()
    assert json.loads(found.out)["problems"] == result["problems"]
    assert found.err == "weft: live, 3 of 9 deliveries are missing, at the peers 4; see a.log\n"


def test_a_faultless_swarm_ends_with_the_claim(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(swarm, "bench_swarm", lambda config, progress: pretended(draw(SMALL)))
    assert main(["bench", "swarm", "--quick"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == swarm.CLAIM


def test_a_process_that_ends_by_itself_ends_the_bench_and_its_log_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swarm_live, "COMMAND", [sys.executable, "-c", "1 / 0"])
    with pytest.raises(WeftError, match="ZeroDivisionError: division by zero; the logs are in") as caught:
        swarm.bench_swarm(SMALL)
    folder = Path(str(caught.value).rpartition(" ")[2])
    written = [log.read_text() for log in folder.glob("process-*.log")]
    shutil.rmtree(folder)
    assert any("Traceback" in text for text in written)


def test_processes_that_do_not_begin_are_killed_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = f"import os, time; open({str(tmp_path)!r} + f'/{{os.getpid()}}', 'w'); time.sleep(600)"
    monkeypatch.setattr(swarm_live, "COMMAND", [sys.executable, "-c", program])
    monkeypatch.setattr(swarm_live, "START_S", 2.0)
    with pytest.raises(WeftError, match="2 s were not enough for the processes to begin") as caught:
        swarm.bench_swarm(SMALL)
    shutil.rmtree(str(caught.value).rpartition(" ")[2])
    pids = [int(path.name) for path in tmp_path.iterdir()]
    assert pids
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
