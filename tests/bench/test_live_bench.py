"""`weft bench live` in small: every delivery is counted once, losses are told, figures fit together; no time is judged."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from libweft.__main__ import main
from libweft.bench.perf import live, live_side
from libweft.bench.perf.live import LiveConfig
from libweft.bench.perf.live_side import NUMBER, Plan, Run, Tally
from libweft.bench.perf.rivals.programs import Program, go_libp2p, js_libp2p
from libweft.peer.errors import WeftError
from libweft.pubsub.gossipsub.config import GossipSubConfig
from libweft.pubsub.gossipsub.router import GossipSub
from libweft.pubsub.live.api import PubSub
from libweft.pubsub.live.subscription import Message, Subscription

NODES = 4
SMALL = ("--nodes", str(NODES), "--messages", "20", "--size", "100", "--rate", "20", "--seconds", "0.5", "--repetitions", "1")
OURS = [f"{name}, 100 B" for name in live.STACKS.values()]


def check_cases(result: dict[str, Any], names: list[str]) -> None:
    assert list(result["cases"]) == names
    for figures in result["cases"].values():
        assert figures["burst"] == 20 * (NODES - 1)
        assert figures["delivered"] == figures["at_rate"] == 1
        assert figures["doubled"] == 0
        assert 0 < figures["p50_ms"] <= figures["p99_ms"]
        assert 0 < figures["least"] == figures["cpu_us"] == figures["most"]
        assert figures["deliveries_s"] > 0


@pytest.mark.live
def test_every_weft_case_delivers_every_message_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "live", *SMALL, "--no-rivals", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    check_cases(result, OURS)
    assert (result["nodes"], result["links"], result["ratios"]) == (NODES, 6, {})
    assert result["rivals"] == dict.fromkeys(("py-libp2p", "js-libp2p", "go-libp2p"), "left out")


@pytest.mark.live
@pytest.mark.slow
def test_other_libraries_are_measured_beside(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "live", *SMALL, "--stack", "static/gossipsub", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    there = ["py-libp2p", "js-libp2p", *(["go-libp2p"] if shutil.which("go") else [])]
    check_cases(result, [f"{name}, 100 B" for name in ("weft gossipsub", *there)])
    assert result["rivals"]["py-libp2p"].startswith("0.8") and result["rivals"]["js-libp2p"].startswith("gossipsub 17")
    assert list(result["ratios"]) == [f"{name} / weft gossipsub, 100 B" for name in there]
    for name, ratio in result["ratios"].items():
        theirs, ours = (result["cases"][f"{side}, 100 B"]["cpu_us"] for side in name.removesuffix(", 100 B").split(" / "))
        assert ratio["median"] == ratio["least"] == ratio["most"] == pytest.approx(theirs / ours)


def test_a_rival_that_cannot_be_installed_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert go_libp2p("go_libp2p_live") == Program("left out: no go on the PATH")
    monkeypatch.setenv("WEFT_INTEROP_CACHE", str(tmp_path))
    assert js_libp2p("js_libp2p_live.mjs") == Program("left out: FileNotFoundError: [Errno 2] No such file or directory: 'npm'")


def test_rivals_and_ratios_are_shown_below_the_cases(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fake_runs(monkeypatch, {"weft": [a_run(0.01)], "py-libp2p": [a_run(0.1)]})
    assert main(["bench", "live", "--quick", "--stack", "hyparview/plumtree"]) == 0
    shown = capsys.readouterr().out
    assert "\npy-libp2p: 0.8.1\njs-libp2p: no npm\n" in shown and "py-libp2p / weft, 100 B" in shown


@pytest.mark.live
def test_a_stack_is_chosen_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ("--stack", "static/gossipsub", "--stack", "hyparview/gossipsub")
    assert main(["bench", "live", *SMALL, *chosen, "--no-rivals", "--json"]) == 0
    check_cases(json.loads(capsys.readouterr().out), ["weft gossipsub, 100 B", "weft hyparview/gossipsub, 100 B"])
    assert LiveConfig(stacks=("gossipsub", "plumtree")).ours == LiveConfig(stacks=("static/gossipsub", "hyparview/plumtree")).ours
    assert main(["bench", "live", "--stack", "static/gosipsub"]) == 2
    assert "did you mean static/gossipsub?" in capsys.readouterr().err


@pytest.mark.live
def test_a_profile_shares_out_the_whole_time_of_each_case() -> None:
    config = LiveConfig(NODES, 300, (100,), 20.0, 0.1, 1)
    result = live.profile_live(config)
    assert list(result["parts"]) == OURS
    for case, parts in result["parts"].items():
        assert result["samples"][case] > 0
        for shares in (parts, result["functions"][case]):
            assert sum(shares.values()) == pytest.approx(result["cpu_us"][case])
        assert parts["signatures"] > 0
    rows = live.profile_rows(result)
    assert [row["us a delivery"] for row in rows[-2:]] == ["all", "samples"]


# Counting.


def data(number: int) -> bytes:
    return number.to_bytes(NUMBER) + b"rest"


def test_a_tally_counts_each_message_once_a_node_but_its_publisher() -> None:
    tally, full = Tally(nodes=3, first=3, count=2), []
    tally.full = lambda: full.append(tally.deliveries)
    for node in range(3):
        tally.took(node, data(3))
        tally.took(node, data(4))
    assert (tally.deliveries, tally.due, tally.doubled, len(tally.ms), full) == (4, 4, 0, 4, [4])
    tally.took(1, data(3))
    assert (tally.deliveries, tally.doubled) == (4, 1)


def test_a_tally_takes_no_message_of_another_part() -> None:
    tally = Tally(nodes=3, first=3, count=2)
    for number in (0, 2, 5, 6):
        tally.took(1, data(number))
    assert (tally.deliveries, tally.doubled) == (0, 0)


class Network:
    """Hands every message to all nodes but those that `loses` names, as `Run` sees it."""

    def __init__(self, plan: Plan, loses: tuple[int, ...] = ()) -> None:
        self.run = Run(plan, self.publish)
        self.nodes = [node for node in range(plan.nodes) if node not in loses]
        self.published: list[tuple[int, float, int]] = []

    async def publish(self, node: int, message: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.published.append((node, trio.current_time(), len(message)))
        for other in self.nodes:
            self.run.tally.took(other, message)


PLAN = Plan("static/flood", nodes=3, edges=(), size=10, warmup=2, burst=5, rate=4.0, paced=3)


async def test_nodes_publish_in_turn_messages_of_the_size_and_at_the_rate(autojump_clock: MockClock) -> None:
    network = Network(PLAN)
    await network.run.warm_up()
    begun = trio.current_time()
    paced = await network.run.paced()
    assert [at - begun for _, at, _ in network.published[2:]] == [0.0, 0.25, 0.5]
    burst = await network.run.burst()
    assert (paced["deliveries"], burst["deliveries"], len(paced["ms"])) == (6, 10, 6)
    assert [node for node, _, _ in network.published] == [number % 3 for number in range(2 + 3 + 5)]
    assert {size for _, _, size in network.published} == {10}


async def test_what_does_not_come_is_lost_after_a_while(autojump_clock: MockClock) -> None:
    network = Network(PLAN, loses=(2,))
    begun = trio.current_time()
    burst = await network.run.burst()
    assert trio.current_time() - begun == pytest.approx(live_side.PATIENCE_S, abs=2 * live_side.POLL_S)
    assert (burst["deliveries"], burst["due"]) == (6, 10)  # node 2 misses four, and published one


class Flooded:
    """A node to whose subscriber all messages of a plan come at once."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    @asynccontextmanager
    async def subscribe(self, topic: str, *, buffer: int = 256) -> AsyncIterator[Subscription]:
        subscription = Subscription(topic, buffer, "drop oldest")
        for number in range(self.plan.messages):
            subscription.put(cast(Message, SimpleNamespace(data=data(number))))
        subscription.close()
        yield subscription


async def test_the_bench_itself_drops_nothing_of_a_burst() -> None:
    plan = Plan("static/flood", nodes=2, edges=(), size=10, warmup=2, burst=2_000, rate=4.0, paced=3)
    run = Network(plan).run
    run.tally = Tally(plan.nodes, 0, plan.messages)
    await live_side.take(1, cast(PubSub, Flooded(plan)), run)
    assert run.tally.deliveries == len(range(0, plan.messages, 2))  # the others are its own


class Grafted:
    """A router of GossipSub as `meshed` sees it."""

    def __init__(self, subscribers: int, mesh: int) -> None:
        self.config = GossipSubConfig()
        self.subscribers = {live_side.TOPIC: dict.fromkeys(range(subscribers))} if subscribers else {}
        self.meshes = SimpleNamespace(topics={live_side.TOPIC: SimpleNamespace(peers=dict.fromkeys(range(mesh)))})


@pytest.mark.parametrize(
    ("subscribers", "mesh", "up"), [(0, 0, False), (2, 2, False), (3, 2, False), (3, 3, True), (9, 4, False), (9, 5, True)]
)
def test_a_mesh_is_up_when_all_neighbours_are_known_and_enough_are_in_it(subscribers: int, mesh: int, up: bool) -> None:
    assert live_side.meshed(cast(GossipSub, Grafted(subscribers, mesh)), 3) is up


# Figures.


def a_run(cpu_s: float, deliveries: int = 100, ms: tuple[float, ...] = (1.0, 2.0, 3.0)) -> dict[str, Any]:
    part = {"due": 100, "deliveries": deliveries, "doubled": 0, "cpu_s": cpu_s, "wall_s": 2.0, "ms": list(ms), "samples": {}}
    return {"up_s": 1.0, "base_kb": 1_000, "rss_kb": 3_000, "burst": part, "paced": part}


def fake_runs(monkeypatch: pytest.MonkeyPatch, runs: dict[str, list[dict[str, Any]]]) -> None:
    monkeypatch.setattr(live, "_once", lambda name, plan, side: runs[name].pop(0))
    rivals = {"py-libp2p": Program("0.8.1", ("python",)), "js-libp2p": Program("no npm")}
    monkeypatch.setattr(live, "RIVALS", {name: partial(rivals.get, name) for name in rivals})


def test_figures_are_medians_and_ratios_those_inside_a_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    weft = [a_run(0.01), a_run(0.02, deliveries=50), a_run(0.03)]
    theirs = [a_run(0.1), a_run(0.8), a_run(0.9)]
    fake_runs(monkeypatch, {"weft": weft, "weft flood": [a_run(0.01)] * 3, "py-libp2p": theirs})
    result = live.bench_live(LiveConfig(nodes=20, sizes=(100,), repetitions=3, stacks=("hyparview/plumtree", "static/flood")))
    figures = result["cases"]["weft, 100 B"]
    assert (figures["least"], figures["cpu_us"], figures["most"]) == pytest.approx((100, 300, 400))
    assert (figures["deliveries_s"], figures["delivered"], figures["kb_a_node"]) == (50, 0.5, 100)
    assert (figures["p50_ms"], figures["p99_ms"]) == (2.0, 3.0)
    assert result["ratios"]["py-libp2p / weft, 100 B"] == {"least": 10, "median": 20, "most": pytest.approx(30), "aim": 30}
    assert [row["case"] for row in live.rows(result)] == ["weft", "weft flood", "py-libp2p"]
    assert [row["CPU time"] for row in live.ratio_rows(result)] == list(result["ratios"])
    assert result["rivals"] == {"py-libp2p": "0.8.1", "js-libp2p": "no npm"}


@pytest.mark.parametrize(("nodes", "links"), [(2, 1), (4, 6), (7, 21), (20, 60)])
def test_the_graph_is_a_ring_with_six_links_a_node_where_there_are_as_many(nodes: int, links: int) -> None:
    edges = live.graph(nodes)
    assert len(set(edges)) == len(edges) == links
    assert all(0 <= low < high < nodes for low, high in edges)
    assert all((min(a, b), max(a, b)) in edges for a, b in ((node, (node + 1) % nodes) for node in range(nodes)))
    assert live.graph(nodes) == edges


def test_a_static_overlay_dials_each_link_once_and_others_the_first_node() -> None:
    plan = Plan("static/flood", 4, ((0, 1), (0, 3), (1, 2), (2, 3)), 100, 0, 1, 1.0, 1)
    assert [live_side.contacts(plan, node) for node in range(4)] == [[], [0], [1], [0, 2]]
    assert [live_side.contacts(live.plan_of(LiveConfig(), "weft", 100), node) for node in range(3)] == [[], [0], [0]]


@pytest.mark.parametrize("part", ["burst", "paced"])
def test_a_case_that_delivers_nothing_ends_the_bench(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        def __init__(self, command: list[str], folder: Path | None) -> None: ...
        def __enter__(self) -> Silent:
            return self

        def __exit__(self, *error: object) -> None: ...
        def hear(self) -> dict[str, Any]:
            return a_run(0.1) | {part: a_run(0.1, deliveries=0)[part]}

    monkeypatch.setattr(live, "Child", Silent)
    with pytest.raises(WeftError, match="weft: nothing was delivered"):
        live.bench_live(LiveConfig(rivals=False))


@pytest.mark.parametrize(
    ("module", "function", "part"),
    [
        ("libweft.peer.libp2p.ids", "PublicKey.verify", "signatures"),
        ("libweft.pubsub.plumtree", "Plumtree._push", "router"),
        ("libweft.pubsub.gossipsub.wire", "MeshCodec.pack", "codec"),
        ("libweft.pubsub.gossipsub.peer_policy", "Standing.duplicate", "score"),
        ("libweft.overlays.xbot", "Xbot.start", "overlay"),
        ("libweft.pubsub.live.subscription", "Subscription.put", "api"),
        ("libweft.peer.libp2p.noise", "Channel.seal", "cipher"),
        ("socket", "socket.accept", "other"),
    ],
)
def test_a_function_belongs_to_a_part(module: str, function: str, part: str) -> None:
    assert live_side.part_of(module, function) == part


@pytest.mark.parametrize(
    ("flag", "value", "problem"),
    [
        ("--nodes", "1", "2 to 100 nodes"),
        ("--nodes", "101", "2 to 100 nodes"),
        ("--messages", "19", "20 to 100000 messages"),
        ("--messages", "100000000000", "20 to 100000 messages"),
        ("--rate", "inf", "at most 100000 messages"),
        ("--rate", "1e5", "at most 100000 messages"),
        ("--seconds", "inf", "--seconds is below 280"),
        ("--seconds", "280", "--seconds is below 280"),
        ("--repetitions", "0", "one repetition"),
        ("--size", "3", "4 to 65536 bytes"),
        ("--size", "65537", "4 to 65536 bytes"),
    ],
)
def test_what_makes_no_sense_is_refused(flag: str, value: str, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "live", flag, value]) == 2
    found = capsys.readouterr().err
    assert problem in found and found.count("\n") == 1


@pytest.mark.parametrize(("rate", "seconds"), [("0", "10"), ("2", "0.4"), ("-1", "-5"), ("nan", "1")])
def test_a_rate_must_bring_one_message_at_least(rate: str, seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "live", "--rate", rate, "--seconds", seconds]) == 2
    assert "--rate is above 0" in capsys.readouterr().err
