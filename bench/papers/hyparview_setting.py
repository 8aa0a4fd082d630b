"""The experiments of the HyParView and Plumtree papers, as scenarios: what is theirs, and how their cycles become time.

J. Leitão, J. Pereira, L. Rodrigues: "HyParView: a membership protocol for reliable gossip-based broadcast", DSN 2007, and
"Epidemic Broadcast Trees", SRDS 2007. 10,000 nodes, active view 5, passive view 30, walks of 6 and 3, shuffles of 3 and 4:
all are the defaults of `libweft.overlays.hyparview`. Nodes join one by one, each through a random one of those before it.

Their simulator counts cycles, and whatever a message sets off is over before the next begins. So a cycle lasts `CYCLE`, in
which a message and all it sets off are a moment: a crash is noticed after a tenth of a second, and a dial to a dead peer
fails after another. Each node shuffles once a cycle, at a moment of its own. Probes of known peers, which the papers do not have,
are off, and keep-alives are as rare as shuffles. What else `libweft.overlays.hyparview` does after a mass crash beyond the paper
is on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from libweft.bench.papers.figure import Measures
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.runs.scenario import Network, Scenario
from libweft.peer.machine import SECOND

NODES = 10_000
CYCLE = 20_000.0
GAP = 0.01
NOTICED = 0.1
OVERLAY: dict[str, bool | int | float | str] = {
    "shuffle_every": round(CYCLE * SECOND),
    "keepalive_every": round(CYCLE * SECOND),
    "probe_every": 0,
    "last_retry": round(6 * CYCLE * SECOND),
}


def warmed(nodes: int, seed: int, cycles: float, stack: str = "hyparview/flood") -> Scenario:
    """All have joined and lived through so many cycles when the first message is published, at `warmup`."""
    return Scenario(
        stack=stack,
        nodes=nodes,
        seed=seed,
        join_every=GAP,
        warmup=nodes * GAP + cycles * CYCLE,
        overlay=OVERLAY,
        network=Network(detection=NOTICED, dial_timeout=NOTICED),
    )


def by_crash(lab: Lab, crashes: Iterable[float], scenario: Callable[[float, int], Scenario]) -> dict[float, list[Measures]]:
    """The measures of all runs, by the share that crashed; `scenario` makes one of a share and a seed."""
    asked = [(crashed, seed) for crashed in crashes for seed in lab.seeds]
    found = lab.measure([scenario(crashed, seed) for crashed, seed in asked])
    sorted_out: dict[float, list[Measures]] = {crashed: [] for crashed, _ in asked}
    for (crashed, _), measures in zip(asked, found, strict=True):
        sorted_out[crashed].append(measures)
    return sorted_out
