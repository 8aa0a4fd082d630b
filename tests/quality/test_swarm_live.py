"""A live swarm in small, in processes of its own: kills and joins lose and double nothing, what goes wrong shows, nobody stays.

No time is judged but that a run ends at all: machines are shared.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from libweft.__main__ import main
from libweft.bench.perf.swarm import live as swarm_live
from libweft.bench.perf.swarm import measure as swarm
from libweft.bench.perf.swarm.plan import QUICK, SwarmConfig, draw

pytestmark = [pytest.mark.slow, pytest.mark.live]

DEADLINE_S = 120.0
TINY = SwarmConfig(peers=8, senders=3, rate=4.0, seconds=5.0, killed=2, joining=1, processes=2, seed=2, step=0.0)

FAULTY = """
from libweft.bench.perf.swarm import process
from libweft.bench.perf.swarm.plan import HEAD, Tally

note = Tally.note

def faulty(self, data, now):
    run, sender, number, sent = HEAD.unpack_from(data)
    if (self.peer, number) == ({deaf}, 3):
        return
    note(self, data, now)
    if (self.peer, number) == ({stammers}, 5):
        note(self, data, now)

Tally.note = faulty
process.main()
"""


TELLING = """
from contextlib import nullcontext
from libweft.__main__ import main
from libweft.bench.cli import perf

perf.progress = lambda quiet: nullcontext(lambda share, word: print(word, flush=True))
raise SystemExit(main(["bench", "swarm", "--quick"]))
"""


def told(result: dict[str, Any]) -> str:
    """What a failure prints: the figures, and the logs that were kept."""
    logs = [f"{log}:\n{Path(log).read_text(errors='replace')[-4_000:]}" for log in result["logs"]]
    return "\n".join([json.dumps({name: value for name, value in result.items() if name != "logs"}), *logs])


def test_every_message_of_a_survivor_comes_once_to_all_that_were_up_throughout(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["bench", "swarm", "--quick", "--json"])
    result = json.loads(capsys.readouterr().out)
    plan = draw(QUICK)
    assert status == 0, told(result)
    assert result["expected"] == result["delivered"] == len(plan.surviving) * plan.messages * len(plan.throughout)
    assert result["missing"] == result["doubled"] == 0
    assert result["processes_killed"] == len(plan.deaths) > 1
    assert (result["killed"], result["joined"]) == (list(plan.killed), QUICK.joining)
    assert result["simulator"]["same_deliveries"]
    assert result["simulator"]["delivered"] == result["delivered"]
    assert 0 < result["latency_ms"]["p50"] <= result["latency_ms"]["p99"] <= result["latency_ms"]["max"]
    assert result["cpu_us_a_delivery"] > 0


def test_the_highest_rate_is_one_that_was_held_below_one_that_was_not() -> None:
    few = SwarmConfig(peers=4, senders=2, rate=20.0, seconds=1.0, killed=0, joining=0, processes=1, step=0.5)
    result = swarm.bench_swarm(few)
    steps = result["ramp"]["steps"]
    held = [step["messages_a_second"] for step in steps if step["held"]]
    highest = max(held, default=0.0)  # none, on a machine that has too much else to do
    assert result["ramp"]["messages_a_second"] == highest
    assert result["ramp"]["deliveries_a_second"] == 3 * highest
    assert len(steps) == swarm.STEPS or any(step["messages_a_second"] > highest for step in steps if not step["held"])
    assert all(step["why"] for step in steps if not step["held"])
    assert [row["held"] for row in swarm.rows(result)].count(True) == len(held)


def test_what_is_missing_or_doubled_is_said_and_the_logs_of_its_processes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    deaf, stammers = draw(TINY).throughout[:2]
    monkeypatch.setattr(swarm_live, "COMMAND", [sys.executable, "-c", FAULTY.format(deaf=deaf, stammers=stammers)])
    survivors = len(draw(TINY).surviving)

    async def all_but_those_came(self: swarm_live.Swarm, due: dict[int, int], peers: Sequence[int]) -> None:
        while await self._came(due, peers) < sum(due.values()) * len(peers) - survivors:
            await trio.sleep(swarm_live.LOOK_S)

    monkeypatch.setattr(swarm_live.Swarm, "all_came", all_but_those_came)
    result = swarm.bench_swarm(TINY)
    assert (result["missing"], result["simulator"]["same_deliveries"]) == (survivors, False)
    assert result["doubled"] >= survivors
    assert f"{survivors} of {result['expected']} deliveries are missing, at the peers {deaf}" in result["problems"][0]
    assert f"came twice, at the peers {stammers}" in result["problems"][1]
    assert result["problems"][-1] == f"see {' '.join(result['logs'])}"
    logs = [Path(log) for log in result["logs"]]
    assert any(f"peer {deaf}: eager" in log.read_text() for log in logs), told(result)
    shutil.rmtree(logs[0].parent)


@contextmanager
def swarming(folder: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """The command in the midst of its run, with its logs in the folder, and the numbers of its processes."""
    command, pipe, env = [sys.executable, "-c", TELLING], subprocess.PIPE, os.environ | {"TMPDIR": str(folder)}
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=env) as parent:
        try:
            assert parent.stdout is not None
            assert "kills and joins\n" in parent.stdout
            pids = children(parent.pid)
            assert QUICK.processes <= len(pids) <= len(draw(QUICK).homes())  # the first kill may have been
            yield parent, pids
        finally:
            parent.kill()


def children(parent: int) -> list[int]:
    """By what each process says of its parent: a parent's own lists change as its threads end."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if int(stat.read_text(errors="replace").rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return sorted(found)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("interrupt", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_an_interrupt_leaves_neither_processes_nor_logs_behind(interrupt: signal.Signals, tmp_path: Path) -> None:
    with swarming(tmp_path) as (parent, pids):
        parent.send_signal(interrupt)
        _, errors = parent.communicate(timeout=DEADLINE_S)
        assert (parent.returncode, errors) == (130, "weft: interrupted\n")
        assert all(map(gone, pids))
        assert list(tmp_path.iterdir()) == []


def test_processes_whose_parent_is_killed_end_by_themselves(tmp_path: Path) -> None:
    with swarming(tmp_path) as (parent, pids):
        os.kill(parent.pid, signal.SIGKILL)
        wait_for(lambda: all(map(gone, pids)))
