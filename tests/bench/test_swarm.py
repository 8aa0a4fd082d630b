"""`weft bench swarm` without live peers: its plan, what it counts and judges, its twin in the simulator, and how it fails."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from libweft.__main__ import main
from libweft.bench.perf.swarm import live as swarm_live
from libweft.bench.perf.swarm import measure as swarm
from libweft.bench.perf.swarm import messages as words
from libweft.bench.perf.swarm.live import START_S, Child, Load, Swarm
from libweft.bench.perf.swarm.plan import (
    HEAD,
    QUICK,
    Plan,
    SwarmConfig,
    Tally,
    Told,
    draw,
    judge,
    pairs,
    payload,
    percentile,
    spans,
    united,
)
from libweft.bench.perf.swarm.twin import Twin
from libweft.peer.errors import UsageError, WeftError
from libweft.peer.machine import SECOND

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
        ({"killed": 49}, "--killed is 49; fewer than two of the 50 peers would be left"),
        ({"senders": 51}, "--senders is 51, more than the 50 peers"),
        ({"joining": 951}, "--peers and --joining are 1001 together; it must be at most 1000"),
        ({"rate": 0.001}, "less than one message"),
        ({"rate": nan}, "--rate is nan; it must be at least 0"),
        ({"rate": inf}, "--rate is inf; it must be at most 100000"),
        ({"seconds": inf}, "--seconds is inf; it must be at most 86400"),
        ({"step": nan}, "--step is nan; it must be at least 0"),
        ({"step": inf}, "--step is inf; it must be at most 3600"),
        ({"size": (1 << 16) + 1}, "--size is 65537; it must be at most 65536"),
        ({"processes": 10**12}, "--processes is 1000000000000; it must be at most 100"),
        ({"rate": 1_000.0, "seconds": 600.0}, "more than 10000000 deliveries"),
    ],
)
def test_what_makes_no_swarm_is_refused(asked: Mapping[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        SwarmConfig(**asked)
    assert said in str(caught.value)


@pytest.mark.parametrize(("flag", "value"), [("--rate", "nan"), ("--rate", "inf"), ("--seconds", "inf")])
def test_a_number_without_end_is_refused_with_one_line(flag: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "swarm", flag, value]) == 2
    found = capsys.readouterr().err
    assert found.startswith(f"weft: {flag} is {value}; it must be at ") and found.count("\n") == 1


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


@pytest.mark.parametrize(("share", "value"), [(0.25, 1), (0.5, 2), (0.51, 3), (0.99, 4), (1.0, 4)])
def test_a_percentile_is_the_smallest_value_with_that_share_at_or_below_it(share: float, value: int) -> None:
    assert percentile({4: 1, 1: 1, 2: 1, 3: 1}, share) == value
    assert percentile({4: 10, 1: 10, 2: 10, 3: 10}, share) == value


@pytest.mark.parametrize(("late", "shown"), [({25: 99, 30: 1, 9: 0}, (2.5, 2.5, 3.0)), ({}, (None, None, None))])
def test_latencies_are_shown_in_milliseconds_where_there_are_any(late: dict[int, int], shown: tuple[float | None, ...]) -> None:
    outcome = swarm_live.Outcome(judge({}, [], {}), {0: Told({}, [], late)}, 1.0, 0.0, 0)
    assert tuple(swarm.figures(outcome, [0])["latency_ms"].values()) == shown


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


def test_processes_that_do_not_begin_are_killed_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    processes, open_process = list[trio.Process](), trio.lowlevel.open_process

    async def opened(*args: Any, **options: Any) -> trio.Process:
        processes.append(await open_process(*args, **options))
        return processes[-1]

    monkeypatch.setattr(trio.lowlevel, "open_process", opened)
    monkeypatch.setattr(swarm_live, "COMMAND", [sys.executable, "-c", "import time; time.sleep(600)"])
    monkeypatch.setattr(swarm_live, "START_S", 2.0)
    with pytest.raises(WeftError, match="2 s were not enough for the processes to begin") as caught:
        swarm.bench_swarm(SMALL)
    shutil.rmtree(str(caught.value).rpartition(" ")[2])
    assert processes
    for process in processes:
        assert process.returncode == -signal.SIGKILL
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)


# A process that answers late or never.


SLOW = """
import trio
from libweft.bench.perf.swarm import process
from libweft.bench.perf.swarm import messages as words
from pathlib import Path

obey = process.Process.obey

async def slow(self, command):
    if isinstance(command, words.Count):
        process.say(words.Sent(0, 0, 0.0))
        while not Path({sign!r}).exists():
            await trio.sleep(0.01)
    return await obey(self, command)

process.Process.obey = slow
process.main()
"""


@pytest.mark.live
async def test_an_answer_that_nobody_waits_for_any_more_is_not_taken_for_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sign, child, impatient = tmp_path / "sign", Child(0, [], tmp_path), trio.CancelScope()
    monkeypatch.setattr(swarm_live, "COMMAND", [sys.executable, "-c", SLOW.format(sign=str(sign))])
    with trio.fail_after(START_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(child.run, lambda sent: impatient.cancel())
            await child.hear(words.Ready)
            with impatient:
                await child.ask(words.Count([], []), words.Counted)
            assert impatient.cancelled_caught
            sign.touch()
            assert await child.ask(words.Look(), words.Looked) == words.Looked({})
            assert await child.ask(words.Count([], []), words.Counted) == words.Counted(0)
            nursery.cancel_scope.cancel()


class Puppet(Child):
    """Says at once that it is done, but never answers commands of the kinds it is deaf to."""

    deaf: tuple[type, ...] = ()
    swarm: Swarm

    async def ask(self, command: words.Command, kind: type[Any]) -> Any:
        if isinstance(command, self.deaf):
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        if isinstance(command, words.Send):
            for sender in command.senders:
                self.swarm.sent(words.Sent(command.run, sender, 0.0))
        return kind()

    def kill(self) -> None:
        self.killed = True


def puppets(folder: Path, *deaf: type) -> Swarm:
    plan = draw(replace(SMALL, rate=20.0, seconds=0.2))
    children = [Puppet(number, peers, folder) for number, peers in enumerate(plan.homes())]
    found = Swarm(plan, children)
    found.addresses = {peer: [] for peer in range(plan.config.peers)}
    for child in children:
        child.swarm, child.deaf = found, deaf
    return found


Wait = Callable[[Swarm], Awaitable[object]]
LOAD = Load({0: 0.0}, 1.0, 1.0)
LOST = judge({0: 1}, [0], {})
WAITS: dict[str, tuple[type, Wait, str]] = {
    "begin": (words.Begin, lambda swarm: swarm.begin(LOAD), "the processes to begin a run"),
    "send": (words.Send, lambda swarm: swarm.begin(LOAD), "the processes to begin a run"),
    "stop": (words.Stop, lambda swarm: swarm.quiet({}, []), "the senders to stop"),
    "outcome": (words.Report, lambda swarm: swarm.outcome({}, []), "the processes to tell what came"),
    "explain": (words.Explain, lambda swarm: swarm.explain(LOST), "the processes to explain what is wrong"),
    "joins": (words.Open, lambda each: swarm.kills_and_joins(each, lambda share, word: None), "the kills and joins"),
}


@pytest.mark.parametrize("name", WAITS)
async def test_no_wait_on_a_process_is_without_end(name: str, tmp_path: Path, autojump_clock: MockClock) -> None:
    deaf, wait, what = WAITS[name]
    with trio.fail_after(10 * START_S), pytest.raises(WeftError, match=f"120 s were not enough for .*{what}"):
        await wait(puppets(tmp_path, deaf))


# SIGTERM.


ENDED = """
import signal, sys
from libweft.__main__ import main
from libweft.bench.perf.swarm import live

if {ignored}:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
live.COMMAND = [sys.executable, "-c", {program!r}]
raise SystemExit(main(["bench", "swarm", "--quick", "--quiet"]))
"""

ENDS = """
import os, signal, sys
try:
    os.mkdir({sign!r})
    os.kill(os.getppid(), signal.SIGTERM)
except FileExistsError:
    pass
sys.stdin.read()
"""


@pytest.mark.parametrize("ignored", [False, True], ids=["", "where Ctrl-C is ignored"])
def test_sigterm_leaves_no_folder_behind(ignored: bool, tmp_path: Path) -> None:
    folder, program = tmp_path / "logs", ENDS.format(sign=str(tmp_path / "sign"))
    folder.mkdir()
    command = [sys.executable, "-c", ENDED.format(ignored=ignored, program=program)]
    ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"TMPDIR": str(folder)}, timeout=START_S)
    assert (tmp_path / "sign").exists()
    assert (ended.returncode, ended.stderr) == (130, "weft: interrupted\n")
    assert list(folder.iterdir()) == []


def test_sigterm_in_the_simulator_leaves_no_folder_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    before, folders = signal.getsignal(signal.SIGTERM), list[Path]()

    def both(plan: Plan, folder: Path, tell: object) -> dict[str, Any]:
        folders.append(folder)
        assert signal.getsignal(signal.SIGTERM) != before
        signal.raise_signal(signal.SIGTERM)
        return {"logs": []}

    monkeypatch.setattr(swarm, "_both", both)
    with pytest.raises(KeyboardInterrupt):
        swarm.bench_swarm(SMALL)
    assert not folders[0].exists()
    assert signal.getsignal(signal.SIGTERM) == before
