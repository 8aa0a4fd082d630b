"""gossipsub.attacks: what sybils do to the messages of honest nodes, with the defences of GossipSub 1.1 and without them.

The evaluation of version 1.1 has 1,000 honest nodes with 20 links each, a tenth of which publish, and up to 4,000 sybils on one
topic; links take 25 ms, with a tenth of jitter. Its nodes publish 120 messages of 2 KiB a second for three minutes. Here it is
RATE a second until there are MESSAGES, after a minute of peace and a minute and a half of the attack. The parameters are the
evaluation's, but for the deliveries that a mesh peer owes (P3): they are fewer as the messages are, or honest peers would owe
more than there is.

The rows of the hardened router are judged: at least 99.9 % of the honest messages reach honest subscribers (the evaluation: all),
and all but a hundredth of the deliveries within 2 s. Those of the plain mesh (no score, no flood publishing, no peer exchange, no
gater: version 1.0) are there to show the damage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from libweft.bench.papers.figure import Figure, Row, measured, number
from libweft.bench.papers.figure_runs import Lab
from libweft.bench.runs.attacks import AnyAttack, Silent
from libweft.bench.runs.scenario import Options, Scenario, Workload
from libweft.peer.machine import SECOND
from libweft.peer.sim.latency import Uniform
from libweft.peer.trace.kinds import DELIVER, JOINED, LEAVE, NODE_DOWN, PUBLISH

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NODES, QUICK_NODES = 1_000, 60
PUBLISHERS = 0.1
DEGREE, QUICK_DEGREE = 20, 10
PEACE = 60.0  # until the sybils come, as in the evaluation
DAWN = 10.0  # after which honest nodes dial each other, where sybils are first
WARMUP = 150.0  # the deficit of a silent peer counts a minute after its GRAFT, and a heartbeat later it is gone
MESSAGES, QUICK_MESSAGES = 200, 50
RATE, EVALUATED = 5.0, 120.0
WINDOW = 20.0
REACHED, SLOWEST = 99.9, 2_000.0

EVALUATION: Options = {"d": 8, "d_lo": 6, "d_hi": 12, "d_score": 6, "d_lazy": 12, "px": False}
OWED = f"mesh_deliveries_threshold={10 * RATE / EVALUATED}, mesh_deliveries_cap={400 * RATE / EVALUATED}"
ROUTERS: dict[str, Options] = {
    "hardened": EVALUATION | {"score": "filecoin", "score_with": OWED, "flood_publish": True},
    "plain": EVALUATION | {"score": "off", "flood_publish": False, "gater": False},
}
QUICK = ("peace", "cold boot", "covert flash", "addresses shared")


def attacks(nodes: int, messages: int) -> dict[str, tuple[AnyAttack, ...]]:
    """The evaluation's, in sybils to one honest node; what a sybil dials is its too. A covert one behaves half of the time."""
    tenth = tuple(range(nodes // 10))
    many, few = 100, 20
    return {
        "peace": (),
        "eclipse of one": (Silent(at=PEACE, nodes=nodes, degree=1, targets=(0,)),),
        "eclipse of a tenth": (Silent(at=PEACE, nodes=nodes, degree=len(tenth), targets=tenth),),
        "eclipse of all": (Silent(at=PEACE, nodes=4 * nodes, degree=many),),
        "censoring of one": (Silent(at=PEACE, nodes=2 * nodes, degree=many, forwards=1.0, censors=(0,)),),
        "half dropped": (Silent(at=PEACE, nodes=2 * nodes, degree=many, forwards=0.5),),
        "cold boot": (Silent(at=0.0, nodes=4 * nodes, degree=few),),
        "attack at dawn": (Silent(at=0.0, nodes=4 * nodes, degree=few),),
        "covert flash": (Silent(at=0.0, nodes=4 * nodes, degree=few, turn=WARMUP + messages / RATE / 2),),
        "addresses shared": (Silent(at=PEACE, nodes=4 * nodes, degree=many, hosts=max(1, nodes // 40)),),
    }


def rows(lab: Lab) -> list[Row]:
    nodes, messages = (QUICK_NODES, QUICK_MESSAGES) if lab.quick else (NODES, MESSAGES)
    chosen = {name: attack for name, attack in attacks(nodes, messages).items() if not lab.quick or name in QUICK}
    cases = [(name, router) for name in chosen for router in ROUTERS]
    scenarios = [
        scenario(nodes, seed, chosen[name], router, quick=lab.quick, dawn=name == "attack at dawn")
        for name, router in cases
        for seed in lab.seeds
    ]
    found = lab.measure(scenarios)
    table = []
    for place, (name, router) in enumerate(cases):
        runs = found[place * lab.runs : (place + 1) * lab.runs]
        judged = router == "hardened"
        reached = [100 * number(measures, "reliability") for measures in runs]
        slowest = [number(measures, "latency_ms", "p99") for measures in runs]
        table.append(measured(f"{name}, {router}: reached (%)", REACHED, reached, 0.0, "least" if judged else "no"))
        table.append(measured(f"{name}, {router}: p99 (ms)", SLOWEST, slowest, 0.0, "most" if judged else "no"))
    return table


def scenario(nodes: int, seed: int, attack: tuple[AnyAttack, ...], router: str, *, quick: bool, dawn: bool = False) -> Scenario:
    """Where addresses are shared, P6 counts; the evaluation has it in that run alone.

    At dawn honest nodes are there, and know nobody but the sybils that dial them, until they dial each other.
    """
    options = dict(ROUTERS[router])
    overlay: Options = {"degree": QUICK_DEGREE if quick else DEGREE}
    if dawn:
        overlay["dial_after"] = round(DAWN * SECOND)
    if router == "hardened" and any(each.hosts for each in attack):
        options["score_with"] = f"{OWED}, colocation_weight=-10, colocation_threshold=5"
    return Scenario(
        stack="static/gossipsub",
        nodes=nodes,
        seed=seed,
        warmup=WARMUP,
        window=WINDOW,
        overlay=overlay,
        router=options,
        latency=Uniform(low=22.5, high=27.5),
        workload=Workload(messages=QUICK_MESSAGES if quick else MESSAGES, rate=RATE, publishers=PUBLISHERS, size=2_048),
        attacks=attack,
    )


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    """How late the last hundredth is, side by side; what nobody waits for is a line at 2 s."""
    late = {router: [row for row in rows if f", {router}: p99" in row.name] for router in ROUTERS}
    names = [row.name.partition(",")[0] for row in late["hardened"]]
    for shift, (router, several) in zip((-0.2, 0.2), late.items(), strict=True):
        axes.barh([place + shift for place in range(len(names))], [row.ours for row in several], height=0.4, label=router)
    axes.axvline(SLOWEST, color="grey", linestyle=":")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("p99 of the latency (ms)")
    axes.legend()


FIGURE = Figure(
    kinds=(PUBLISH, DELIVER, JOINED, LEAVE, NODE_DOWN),
    runs=1,
    quick_runs=1,
    rows=rows,
    draw=draw,
)
