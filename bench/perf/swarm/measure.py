"""`weft bench swarm`: live peers in several processes, some of which are killed while they talk; and the same in the simulator.

All peers subscribe to one topic, some send to it, and meanwhile processes get SIGKILL and peers join
(`libweft.bench.perf.swarm.plan`). Every message of a sender that survives must reach, exactly once, every peer that was up
throughout. Then the same plan runs in the simulator (`libweft.bench.perf.swarm.twin`), and the two sets of deliveries, (message,
peer), must be the same.

Between the two, without kills, the highest rate is sought that the swarm holds: doubled until it fails, then the geometric mean
of one held and one not. A rate is held when every message came once to every peer, GRACE_S after the step's end at the latest,
and the senders kept their pace: the last message of none left later than BEHIND_S after its moment.

Latency is from the call of `publish` to the application, at the peers that were up throughout; a sender's own copy is left out.
CPU time is that of the processes that live on, with all that their peers do, by all that those deliver.
Bounds: those of `libweft.bench.perf.swarm.live`; STEPS of the ramp. Logs are kept only where something failed.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf, sqrt
from pathlib import Path
from typing import Any

import trio

from libweft.bench.perf.swarm.live import START_S, Load, Outcome, Swarm, running, within
from libweft.bench.perf.swarm.plan import QUICK, SETTLE_S, Judgement, Plan, SwarmConfig, Told, draw, judge, pairs, percentile
from libweft.bench.perf.swarm.twin import Twin
from libweft.bench.progress import Progress
from libweft.peer.errors import UsageError, WeftError

AGAIN_S = 1.0  # when all has come, what comes too often has so long to show
GRACE_S = 2.0  # more than a lost payload needs to be missed and asked for
BEHIND_S = 0.5
NEAR = 1.1  # the ratio of two rates, one held and one not, between which no other is tried
STEPS = 16
SHARES = {"p50": 0.5, "p99": 0.99, "max": 1.0}

CLAIM = "Every message of a surviving sender came exactly once to every peer that was up throughout, live and in the simulator."


def configured(quick: bool, asked: Mapping[str, Any]) -> SwarmConfig:
    """The default or the short form, with what was asked for in its place."""
    known = {name: asked[name] for name in SwarmConfig.__dataclass_fields__ if name in asked}
    return replace(QUICK if quick else SwarmConfig(), **known)


def bench_swarm(config: SwarmConfig, *, progress: Progress | None = None) -> dict[str, Any]:
    """The figures; `problems` says what was not as it must be, and `logs` where to look. WeftError when a swarm cannot run."""
    plan = draw(config)
    if not plan.surviving:
        raise UsageError("all senders are among the killed, so nothing would be judged; try another --seed or more --senders")
    with _sigterm_interrupts():
        return _logged(plan, progress or (lambda share, word: None))


def _logged(plan: Plan, tell: Progress) -> dict[str, Any]:
    folder, kept = Path(tempfile.mkdtemp(prefix="weft-swarm-")), False
    try:
        result = _both(plan, folder, tell)
        kept = bool(result["logs"])
        return result
    except WeftError as error:
        kept = True
        raise WeftError(f"{error}; the logs are in {folder}") from error
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """As Ctrl-C does, so that nothing is left behind; while the swarm runs, `libweft.bench.perf.swarm.live` sees to it."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _both(plan: Plan, folder: Path, tell: Progress) -> dict[str, Any]:
    outcome, rates, logs = trio.run(_live, plan, folder, tell)
    tell(0.9, "the simulator")
    began = time.process_time()
    told = Twin(plan).run()
    spent = time.process_time() - began
    twin = judge(plan.due(), plan.throughout, told)
    same = _delivered(plan, told) == _delivered(plan, outcome.told)
    simulator = {**_counts(twin), "same_deliveries": same, "cpu_s": spent}
    problems = [*_problems("live", outcome.judgement, logs), *_problems("in the simulator", twin)]
    live = {"processes_killed": outcome.dead, **figures(outcome, plan.throughout)}
    return {**_about(plan), **live, "simulator": simulator, "ramp": rates, "problems": problems, "logs": logs}


async def _live(plan: Plan, folder: Path, tell: Progress) -> tuple[Outcome, dict[str, Any] | None, list[str]]:
    """What came of the kills and joins, the ramp, and the logs of those that something was wrong with."""
    tell(0.0, f"{plan.config.peers} peers")
    async with running(plan, folder) as swarm:
        outcome = await kills_and_joins(swarm, tell)
        logs = [] if outcome.judgement.faultless else await swarm.explain(outcome.judgement)
        rates = await ramp(swarm, lambda word: tell(0.7, word)) if plan.config.step and not logs else None
    return outcome, rates, logs


async def kills_and_joins(swarm: Swarm, tell: Progress) -> Outcome:
    plan, config = swarm.plan, swarm.plan.config
    began = await swarm.begin(Load(plan.senders, config.rate, config.seconds))
    with within(config.seconds + START_S, "the senders to send all, and for the kills and joins"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(swarm.change, began)
            nursery.start_soon(_tell_on, tell, began, config.seconds)
            await swarm.all_sent(plan.surviving)
    with trio.move_on_after(SETTLE_S):
        await swarm.all_came(plan.due(), plan.throughout)
    await trio.sleep(AGAIN_S)
    return await swarm.outcome(plan.due(), plan.throughout)


async def _tell_on(tell: Progress, began: float, seconds: float) -> None:
    while (passed := time.monotonic() - began) < seconds:
        tell(0.1 + 0.6 * max(0.0, passed) / seconds, "kills and joins")
        await trio.sleep(min(1.0, seconds - passed))


# The highest rate.


async def ramp(swarm: Swarm, tell: Callable[[str], None]) -> dict[str, Any]:
    config, steps = swarm.plan.config, list[dict[str, Any]]()
    held, failed, rate = 0.0, inf, config.rate * config.senders
    while rate and len(steps) < STEPS:
        tell(f"{rate:,.0f} messages a second")
        steps.append(await _step(swarm, rate))
        held, failed = (rate, failed) if steps[-1]["held"] else (held, rate)
        rate = next_rate(held, failed)
    highest = max((step["messages_a_second"] for step in steps if step["held"]), default=0.0)
    others = len(swarm.plan.last) - 1
    return {"step_s": config.step, "messages_a_second": highest, "deliveries_a_second": highest * others, "steps": steps}


def next_rate(held: float, failed: float) -> float:
    """From the highest that was held, 0 for none, and the lowest that was not, infinite for none; 0 when they are near."""
    if failed == inf:
        return 2 * held
    if not held:
        return failed / 2 if failed > 1 else 0.0
    return sqrt(held * failed) if failed / held > NEAR else 0.0


async def _step(swarm: Swarm, rate: float) -> dict[str, Any]:
    plan, seconds = swarm.plan, swarm.plan.config.step
    senders = (*plan.surviving, *(peer for peer in plan.last if peer not in plan.senders))[: plan.config.senders]
    load = Load({sender: place / rate for place, sender in enumerate(senders)}, rate / len(senders), seconds)
    due = dict.fromkeys(senders, load.count)
    await swarm.unite()
    began = await swarm.begin(load)
    with trio.move_on_after(began + seconds + GRACE_S - time.monotonic()) as in_time:
        await swarm.all_sent(senders)
        await swarm.all_came(due, plan.last)
    await swarm.quiet(due, plan.last)
    found = await swarm.outcome(due, plan.last)
    behind = len(swarm.behind) < len(senders) or found.behind_s > BEHIND_S
    why = "the senders fell behind" if behind else failure(found.judgement, in_time=not in_time.cancelled_caught)
    return {"messages_a_second": sum(due.values()) / seconds, "held": not why, "why": why, **figures(found, plan.last)}


def failure(judged: Judgement, *, in_time: bool) -> str:
    """Why a rate was not held; nothing when it was."""
    if judged.missing:
        return "messages are missing"
    if judged.doubled:
        return "messages came twice"
    return "" if in_time else "messages came late"


# What is shown.


def figures(outcome: Outcome, peers: Sequence[int]) -> dict[str, Any]:
    late: Counter[int] = Counter()
    for peer in peers:
        late.update(outcome.told[peer].late)
    deliveries = sum(sum(told.late.values()) for told in outcome.told.values())
    return {
        **_counts(outcome.judgement),
        "latency_ms": {name: percentile(late, share) / 10 if late else None for name, share in SHARES.items()},
        "cpu_us_a_delivery": 1e6 * outcome.cpu_s / deliveries if deliveries else None,
        "behind_ms": 1e3 * outcome.behind_s,
    }


def shown(result: Mapping[str, Any]) -> dict[str, Any]:
    """The figures as a table has them, the ramp's steps left out."""
    plain = {name: value for name, value in result.items() if name not in ("problems", "logs", "ramp")}
    listed = {name: ", ".join(map(str, plain[name])) or "none" for name in ("killed", "senders_killed")}
    rates = {f"highest {name}": result["ramp"][name] for name in ("messages_a_second", "deliveries_a_second") if result["ramp"]}
    return plain | listed | rates


def rows(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a step of the ramp, in order of the rates."""
    steps = sorted((result["ramp"] or {"steps": []})["steps"], key=lambda step: float(step["messages_a_second"]))
    plain = ("messages_a_second", "held", "why", "cpu_us_a_delivery", "behind_ms")
    return [{name: step[name] for name in plain} | {"p99_ms": step["latency_ms"]["p99"]} for step in steps]


def _about(plan: Plan) -> dict[str, Any]:
    config = plan.config
    asked = {name: getattr(config, name) for name in ("peers", "senders", "rate", "seconds", "size", "seed")}
    killed = {"killed": list(plan.killed), "senders_killed": [peer for peer in plan.killed if peer in plan.senders]}
    return {**asked, "processes": len(plan.homes()), **killed, "joined": len(plan.arrivals)}


def _counts(judged: Judgement) -> dict[str, int]:
    return {"expected": judged.expected, "delivered": judged.delivered, "missing": judged.lost, "doubled": judged.again}


def _delivered(plan: Plan, told: dict[int, Told]) -> set[tuple[int, int, int]]:
    return pairs(plan.due(), plan.throughout, told)


def _problems(where: str, judged: Judgement, logs: Sequence[str] = ()) -> list[str]:
    found = []
    if judged.missing:
        peers = ", ".join(map(str, judged.missing))
        found.append(f"{where}, {judged.lost} of {judged.expected} deliveries are missing, at the peers {peers}")
    if judged.doubled:
        found.append(f"{where}, {judged.again} messages came twice, at the peers {', '.join(map(str, judged.doubled))}")
    return [*found, *([f"see {' '.join(logs)}"] if logs else [])]
