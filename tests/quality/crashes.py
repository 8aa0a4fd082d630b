"""Crashes at the worst moments, found in what a run itself did: while a publisher or a forwarder hands on, and then its heirs.

Each is an ordinary scenario, so its command replays it. A node sends one copy each millisecond (the latency `vcube-ps`), so a
crash can be between two children. A scene is made step by step: what happens up to a crash is the same with it and without,
so the run without it says who has what then.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Literal, NamedTuple

from msgspec.structs import replace

from libweft.bench.runs.property_checks import Recorder
from libweft.bench.runs.replay import command
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Churn, Network, Scenario, Workload
from libweft.peer.machine import SECOND, MessageId, Peer
from libweft.peer.sim.faults import AnyFault, Crash, Partition
from libweft.peer.sim.latency import VCubePS
from libweft.peer.trace.kinds import PUBLISH, RECEIVE, SEND
from tests.conftest import note_replay

NODES = (9, 12, 16)
COPY = 1_000  # microseconds that one copy keeps its sender
FIRST = 5.0


class Moment(NamedTuple):
    """A node begins to hand a message on."""

    t: int
    node: Peer
    message: MessageId
    published: bool


class Moments(Recorder):
    """What a history needs, and each first copy sent by whoever published or received a message."""

    def __init__(self) -> None:
        super().__init__()
        self.moments: list[Moment] = []
        self._has: dict[tuple[Peer, MessageId], bool] = {}

    def observe(self, t: int, node: Peer, kind: str, topic: str | None, msg: MessageId | None, *rest: object) -> None:
        super().observe(t, node, kind, topic, msg, *rest)  # type: ignore[arg-type]
        if msg is None:
            return
        if kind in (PUBLISH, RECEIVE):
            self._has.setdefault((node, msg), kind == PUBLISH)
        elif kind == SEND and (published := self._has.pop((node, msg), None)) is not None:
            self.moments.append(Moment(t, node, msg, published))


def base(seed: int) -> Scenario:
    """Two seconds of talk; all publish, some do not subscribe. In half of the seeds nodes and subscriptions come and go too."""
    rng = Random(f"base {seed}")
    restless = seed % 2 == 1
    churn = Churn(session=60.0, subscriptions=15.0, start=4.5, stop=8.0) if restless else Churn()
    work = Workload(messages=16, rate=8.0, arrivals="poisson", order="causal", subscribers=0.75)
    return Scenario(
        stack="vcube/vcube-pb",
        nodes=rng.choice(NODES),
        seed=seed,
        warmup=FIRST,
        window=45.0,
        overlay={"start": "order", "patience": SECOND},
        router={"window": rng.choice((1, 1, 4))},
        latency=VCubePS(t_pp=rng.choice((10.0, 30.0))),
        network=Network(detection=rng.choice((0.5, 2.0)), dial_timeout=1.0),
        workload=work,
        churn=churn,
    )


def scene(seed: int) -> Scenario:
    """One to four crashes, each in the midst of handing on; every other one is of somebody who has what the one before had."""
    rng, told = Random(f"crashes {seed}"), base(seed)
    crashes = rng.randint(1, 4)
    before: Moment | None = None
    for _ in range(crashes):
        moments = [m for m in played(told, note=False).moments if m.t >= FIRST * SECOND]
        before = _worst(rng, moments, before)
        if before is None:
            break
        at = (before.t + rng.randrange(4 * COPY)) / SECOND
        faults: tuple[AnyFault, ...] = (*told.faults, Crash(at=at, nodes=(int(before.node),)))
        told = replace(told, faults=faults)
    return told


def _worst(rng: Random, moments: Sequence[Moment], before: Moment | None) -> Moment | None:
    heirs = [m for m in moments if before is not None and m.message == before.message and m.t > before.t]
    publishers = [m for m in moments if m.published]
    pool = heirs if heirs and rng.random() < 0.7 else publishers if rng.random() < 0.6 else moments
    return rng.choice(pool) if pool else None


def parted(seed: int) -> Scenario:
    """One node, or half of them, out of the others' reach for a while: all take each other for down, and none is."""
    rng = Random(f"parted {seed}")
    how: Literal["isolate", "halves"] = rng.choice(("isolate", "halves"))
    parting = Partition(at=FIRST + 2 * rng.random(), duration=rng.choice((4.0, 8.0, 15.0)), how=how)
    return replace(base(2 * seed), window=60.0, faults=(parting,))


def played(told: Scenario, note: bool = True) -> Moments:
    if note:
        note_replay(command(told))
    moments = Moments()
    run(told, observer=moments, hashed=False)
    return moments
