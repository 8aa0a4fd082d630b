"""`weft demo`: the main job in some seconds, for somebody who has just arrived.

It floods 1,000 nodes in calm weather and then under loss and crashes, and shows what that costs and what gets through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.run import run
from bench.scenario import Scenario, Workload
from peer.faults import AnyFault, Loss, MassCrash

NODES = 1_000
WARMUP = 5.0

WEATHER: dict[str, tuple[AnyFault, ...]] = {
    "calm": (),
    "10% of copies lost": (Loss(at=WARMUP, p=0.1),),
    "30% of nodes crash": (MassCrash(at=WARMUP, share=0.3),),
    "60% of nodes crash": (MassCrash(at=WARMUP, share=0.6),),
    "10% lost, 30% crash": (Loss(at=WARMUP, p=0.1), MassCrash(at=WARMUP, share=0.3)),
}


def demo(progress: Callable[[float, str], None] | None = None) -> list[dict[str, Any]]:
    """One row for each kind of weather."""
    rows = []
    for done, (name, faults) in enumerate(WEATHER.items()):
        if progress is not None:
            progress(done / len(WEATHER), f"static/flood, {NODES} nodes, {name}")
        rows.append(_row(name, run(scenario(faults))))
    return rows


def scenario(faults: tuple[AnyFault, ...]) -> Scenario:
    return Scenario(nodes=NODES, warmup=WARMUP, overlay={"degree": 5}, workload=Workload(messages=50, rate=10.0), faults=faults)


def _row(name: str, figures: dict[str, Any]) -> dict[str, Any]:
    kept = ("deliveries", "reliability", "rmr", "ldh_mean")
    latency = figures["latency_ms"]
    return {"weather": name, **{key: figures[key] for key in kept}, "p50_ms": latency["p50"], "p99_ms": latency["p99"]}
