from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from libweft.__main__ import main
from libweft.bench.cli import show
from libweft.bench.runs.replay import command
from libweft.bench.runs.scenario import Scenario
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.sim import faults, latency
from libweft.pubsub import stacks

ROOT = Path(__file__).parents[2]
SMALL = ["sim", "--nodes", "40", "--degree", "4", "--messages", "3", "--seed", "7"]
FIGURES = {
    *("stack", "nodes", "seed", "messages", "deliveries", "reliability", "reliability_min", "rmr", "payload_per_delivery"),
    *("false_positives", "window_s", "ldh_mean", "ldh_max", "latency_ms", "control_messages", "bytes", "events", "virtual_s"),
    *("cpu_s", "events_per_cpu_s", "peak_rss_mb", "trace", "trace_hash"),
}

Outcome = tuple[int, str, str]
Weft = Callable[..., Outcome]
Runs = list[tuple[Scenario, dict[str, Any]]]


@pytest.fixture
def weft(capsys: pytest.CaptureFixture[str]) -> Weft:
    def call(*words: str) -> Outcome:
        status = main(words)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Stands in for the simulator and remembers what it was asked for."""
    asked: Runs = []

    def run(scenario: Scenario, **rest: Any) -> dict[str, Any]:
        asked.append((scenario, rest))
        return {"stack": scenario.stack, "reliability": 1.0, "rmr": float("nan"), "latency_ms": {"mean": 50.5, "max": 99.0}}

    _instead(monkeypatch, "libweft.bench.runs.run", run=run)
    return asked


def _instead(monkeypatch: pytest.MonkeyPatch, name: str, **members: object) -> None:
    module = ModuleType(name)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)


def asked(runs: Runs, weft: Weft, *words: str) -> Scenario:
    status, _, err = weft("sim", *words)
    assert (status, err) == (0, "")
    return runs[-1][0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--stack", "static/flod"], ["--stack: ", "static/flod", "static/flood"]),
        (["--nodes", "-5"], ["--nodes: nodes is -5; it must be a whole number from 1 to 1000000"]),
        (["--nodes", "99999999999999999999"], ["--nodes: nodes is 99999999999999999999"]),
        (["--nodes", "many"], ['--nodes: nodes is "many"']),
        (["--nodes", "1e3"], ["--nodes: nodes is 1000.0", "a whole number"]),
        (["--nodes"], ["--nodes", "expected one argument"]),
        (["--node", "5"], ["--node is not understood; did you mean --nodes?", "weft sim --help"]),
        (["--size", "-1"], ["--size: workload.size is -1"]),
        (["--size", "999999999"], ["--size: workload.size is 999999999", "to 900000"]),
        (["--rate", "nan"], ["--rate: workload.rate is nan"]),
        (["--rate", "0"], ["--rate: workload.rate is 0", "above 0"]),
        (["--popularity", "zip"], ["--popularity: workload.popularity", 'did you mean "zipf"?', "uniform"]),
        (["--churn", "inf"], ["--churn: churn.session is inf"]),
        (["--duration", "2"], ["--duration: duration is 2.0", "warmup"]),
        (["--trace-level", "all"], ["--trace-level: trace.level", "none"]),
        (["--kinds", "send,recieve"], ["--kinds: trace.kinds", 'did you mean "receive"?']),
        (["--latency", "gauss:1,2"], ["--latency: latency is 'gauss:1,2'", "normal:50,10"]),
        (["--latency", "uniform:10"], ["--latency: latency is 'uniform:10'", "uniform:10,100"]),
        (["--latency", "constant:"], ["--latency: latency is 'constant:'"]),
        (["--latency", "matrix:"], ["--latency: latency is 'matrix:'"]),
        (["--latency", "constant:slow"], ['--latency: latency.ms is "slow"', "a number"]),
        (["--latency", "uniform:100,10"], ["--latency: latency.high (10.0) is below low"]),
        (["--latency", "matrix:/nowhere"], ["--latency: ", "/nowhere cannot be read"]),
        (["--latency", "vcube-ps:fast"], ["--latency: latency.setting", "paper, program"]),
        (["--latency", "vcube-pb", "--draw", "send"], ["--draw: latency.draw", "copy"]),
        (["--loss", "2"], ["--loss: faults[0].p is 2.0", "from 0 to 1"]),
        (["--loss", "0.1", "--crash", "most"], ['--crash: faults[1].share is "most"']),
        (["--faults", "/nowhere"], ["/nowhere cannot be read"]),
        (["--set", "nodes"], ["--set", "KEY=VALUE"]),
        (["--set", "nodez=5"], ["--set nodez: nodez is no key", 'did you mean "nodes"?']),
        (["--set", "workload.size=big"], ['--set workload.size: workload.size is "big"']),
        (["--set", "overlay.nonsense=5"], ["--set overlay.nonsense: ", "nonsense"]),
        (["--stack", "kademlia/flood", "--set", "overlay.k=0"], ["--set overlay.k: overlay.k is 0; it must be at least 1"]),
        (["--stack", "hyparview/flood", "--set", "overlay.ka=60"], ["--set overlay.ka: overlay.ka + kp is"]),
        (["--stack", "kademlia/kadpubsub", "--set", "router.lease=0"], ["--set router.lease: router.lease is 0"]),
        (["--stack", "hyparview/plumtree", "--set", "router.held_messages=99999"], ["--set router.held_messages: "]),
        (["--stack", "kademlia/flood", "--set", "overlay.server=false"], ["--set overlay.server: ", "clients alone"]),
        (["--set", 'faults=[{kind="loss"}]'], ["--set faults: faults[0].p is missing"]),
        (["--set", 'faults=[{kind="truncate", p=0.1}]'], ["--set faults: faults[0]", "network.codec = true"]),
        (["--trace", "/tmp/x", "--trace-level", "none"], ["--trace: ", "trace.level"]),
        (["/nowhere.toml"], ["/nowhere.toml: the scenario cannot be read: No such file"]),
        (["/tmp"], ["/tmp: the scenario cannot be read: Is a directory"]),
        (["a.toml", "b.toml"], ["b.toml is not understood"]),
    ],
)
def test_bad_usage_is_one_line_that_names_the_flag_and_exits_2(weft: Weft, words: list[str], says: list[str]) -> None:
    status, out, err = weft("sim", *words)
    assert (status, out) == (2, "")
    assert err.startswith("weft: ")
    assert err.count("\n") == 1
    assert all(part in err for part in says), err


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"nodes = ", "not valid TOML"),
        (b"\x7fELF\x02\xff\xfe\x00", "not text in UTF-8"),
        (b"\x00\x01\x02", "not valid TOML"),
        (b"nodes = '5'", 'nodes is "5"'),
        (b"[[faults]]\nkind = 'loss'\np = 'x'", 'faults[0].p is "x"'),
    ],
)
def test_a_bad_file_is_one_line_that_names_it(weft: Weft, tmp_path: Path, raw: bytes, says: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(raw)
    status, out, err = weft("sim", str(path), "--nodes", "10")
    assert (status, out) == (2, "")
    assert err.startswith(f"weft: {path}: ")
    assert err.count("\n") == 1
    assert says in err


def test_a_fault_of_a_saved_list_that_does_not_fit_names_the_list(weft: Weft, tmp_path: Path) -> None:
    path = tmp_path / "faults.json"
    faults.save(path, [faults.Crash(at=6, nodes=(500,))])
    status, _, err = weft("sim", "--nodes", "50", "--faults", str(path))
    assert status == 2
    assert err == f"weft: --faults {path}: faults[0] names node 500; nodes are numbered from 0 to 49\n"


@pytest.mark.parametrize("words", [[], ["bench"]])
def test_without_a_command_it_shows_help_and_exits_2(weft: Weft, words: list[str]) -> None:
    status, out, err = weft(*words)
    assert (status, out) == (2, "")
    assert err.startswith("usage: weft")


def test_an_unknown_command_lists_the_known_ones(weft: Weft) -> None:
    status, _, err = weft("simulate")
    assert status == 2
    assert err.count("\n") == 1
    assert "'node', 'collect', 'ping', 'pub', 'sub', 'stacks', 'sim', 'sweep', 'analyze', 'demo', 'reproduce', 'bench'" in err


def test_the_version_is_one_line(weft: Weft) -> None:
    status, out, _ = weft("--version")
    assert status == 0
    assert out.startswith("weft ")


@pytest.mark.parametrize("words", [["sim"], ["analyze"], ["demo"], ["reproduce"], ["bench", "micro"], ["bench", "spark"]])
def test_every_command_has_help(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([*words, "--help"])
    assert left.value.code == 0
    assert "--json" in capsys.readouterr().out


def test_flags_set_the_keys_they_name(weft: Weft, runs: Runs) -> None:
    words = ["--topics", "9", "--popularity", "zipf", "--rate", ".5", "--codec", "--kinds", "send, drop"]
    scenario = asked(runs, weft, *SMALL[1:], *words)
    assert (scenario.nodes, scenario.overlay, scenario.seed) == (40, {"degree": 4}, 7)
    assert (scenario.workload.topics, scenario.workload.popularity, scenario.workload.rate) == (9, "zipf", 0.5)
    assert scenario.network.codec
    assert scenario.trace.kinds == ("send", "drop")


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("constant:50", latency.Constant(ms=50)),
        ("uniform:10,100", latency.Uniform(low=10, high=100)),
        ("normal:50,10", latency.Normal(mean=50, sd=10)),
        ("lognormal:50,.5", latency.LogNormal(median=50, sigma=0.5)),
        ("vcube-ps", latency.VCubePS()),
        ("vcube-ps:program", latency.VCubePS(setting="program")),
        ("vcube-pb", latency.VCubePB()),
    ],
)
def test_latency_has_short_forms(weft: Weft, runs: Runs, text: str, model: latency.Latency) -> None:
    assert asked(runs, weft, "--latency", text).latency == model


def test_one_draw_a_send_goes_with_any_latency(weft: Weft, runs: Runs) -> None:
    assert asked(runs, weft, "--draw", "send").latency == latency.Uniform(draw="send")
    assert asked(runs, weft, "--latency", "constant:5", "--draw", "send").latency == latency.Constant(ms=5, draw="send")


def test_flags_override_the_file_and_set_overrides_flags(weft: Weft, runs: Runs, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text("nodes = 20\nseed = 3\n[network]\ncodec = true\n[workload]\nsize = 10\n")
    scenario = asked(runs, weft, str(path), "--nodes", "30", "--no-codec", "--size", "20", "--set", "workload.size=30")
    assert (scenario.nodes, scenario.seed, scenario.network.codec, scenario.workload.size) == (30, 3, False, 30)


def test_faults_of_flags_follow_those_of_the_file_and_begin_when_warm(weft: Weft, runs: Runs, tmp_path: Path) -> None:
    path, saved = tmp_path / "own.toml", tmp_path / "faults.json"
    path.write_text("[[faults]]\nkind = 'duplicate'\np = 0.5\n")
    faults.save(saved, [faults.Crash(at=1, nodes=(3,))])
    words = [str(path), "--loss", "0.1", "--crash", "0.2", "--faults", str(saved), "--set", "warmup=8"]
    assert asked(runs, weft, *words).faults == (
        faults.Duplicate(p=0.5),
        faults.Crash(at=1, nodes=(3,)),
        faults.Loss(at=8, p=0.1),
        faults.MassCrash(at=8, share=0.2),
    )


def test_the_printed_scenario_is_a_file_that_gives_it_again(weft: Weft, runs: Runs, tmp_path: Path) -> None:
    words = ["--nodes", "30", "--loss", "0.1", "--latency", "constant:5", "--set", "overlay.graph=ring"]
    status, out, _ = weft("sim", *words, "--print")
    assert (status, runs) == (0, [])
    path = tmp_path / "printed.toml"
    path.write_text(out)
    assert asked(runs, weft, str(path)) == asked(runs, weft, *words)


def test_the_command_of_a_scenario_is_understood(weft: Weft, runs: Runs) -> None:
    scenario = asked(runs, weft, "--loss", "0.1", "--latency", "constant:5", "--set", "overlay.graph=ring", "--kinds", "send")
    assert asked(runs, weft, *shlex.split(command(scenario))[2:]) == scenario


def test_json_is_all_of_stdout(weft: Weft, runs: Runs) -> None:
    status, out, err = weft("sim", "--json", "--trace", "somewhere", "--save-faults", "there")
    assert (status, err, out.count("\n")) == (0, "", 1)
    assert json.loads(out)["rmr"] is None
    assert runs[-1][1] == {"trace": Path("somewhere"), "save_faults": Path("there"), "progress": None}


def test_people_get_a_table_and_are_told_where_the_trace_is(weft: Weft, runs: Runs) -> None:
    _, out, _ = weft("sim", "--trace", "some[where]")
    assert "static/flood" in out
    assert "latency ms mean" in out
    assert out.endswith("The trace is in some[where].\n")


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (UsageError("ask otherwise"), 2, "weft: ask otherwise\n"),
        (PeerError("a peer\nbroke it"), 1, "weft: a peer broke it\n"),
        (OSError(28, "No space left on device", "/full/x"), 1, "weft: /full/x: No space left on device\n"),
        (OSError("odd"), 1, "weft: odd\n"),
        (MemoryError(), 1, "weft: out of memory; try fewer nodes or messages\n"),
        (KeyboardInterrupt(), 130, "weft: interrupted\n"),
    ],
)
def test_a_failed_run_is_one_line(
    weft: Weft, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, line: str
) -> None:
    def run(*_: object, **__: object) -> None:
        raise error

    _instead(monkeypatch, "libweft.bench.runs.run", run=run)
    assert weft("sim") == (status, "", line)


def test_an_interrupted_sweep_says_where_its_runs_are(weft: Weft, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def sweep(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("libweft.bench.sweep.execution.sweep", sweep)
    (tmp_path / "s.toml").write_text("[grid]\nnodes = [8, 9]\n")
    status, out, err = weft("sweep", str(tmp_path / "s.toml"), "--keep", str(tmp_path / "kept"))
    assert (status, out) == (130, "")
    assert err == f"weft: interrupted: what is done is kept in {tmp_path / 'kept'}, and the same command goes on with the rest\n"


def test_demo_prints_its_rows(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"stack": "static/flood", "loss": 0.1, "nodes": 1000}, {"stack": "other", "reliability": None}]
    result = {"rows": rows, "warnings": ["a clock jumps"], "report": "/there/weft-demo.html"}
    monkeypatch.setattr("libweft.bench.cli.demo.demo", lambda args, tell: result)
    assert json.loads(weft("demo", "--json")[1]) == result
    _, out, err = weft("demo")
    assert "1,000" in out
    assert "reliability" in out
    assert out.splitlines()[-1].endswith("/there/weft-demo.html"), "the report's path is printed last"
    assert err == "weft: warning: a clock jumps\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["reproduce"], "name a figure, or --all"),
        (["reproduce", "--all", "vcube-ps.fig6"], "name figures or say --all"),
        (["reproduce", "flod.percolation"], "did you mean"),
        (["reproduce", "flod.*"], "weft reproduce --list"),
        (["bench", "spark", "--events", "many"], "such as 10000000"),
    ],
)
def test_what_cannot_be_measured_is_said_before_spark_starts(weft: Weft, words: list[str], told: str) -> None:
    status, out, err = weft(*words)
    assert (status, out) == (2, "")
    assert told in err and err.count("\n") == 1


def test_stacks_lists_stacks_and_the_options_of_one(weft: Weft) -> None:
    assert "vcube/vcube-ps" in weft("stacks")[1].split()
    assert "router.window=16 " in weft("stacks", "vcube/vcube-ps")[1]
    listed = json.loads(weft("stacks", "--json")[1])["stacks"]
    assert [each["stack"] for each in listed] == stacks.names()
    assert all(each["promises"] and each["papers"] and each["router"] for each in listed)
    told = json.loads(weft("stacks", "static/flood", "--json")[1])["options"]
    assert [each["option"] for each in told] == ["overlay.graph", "overlay.degree", "overlay.dial_after", "router.announce"]
    assert "did you mean" in weft("stacks", "static/flod")[2]


def test_reproduce_lists_its_figures(weft: Weft) -> None:
    assert "flood.percolation" in weft("reproduce", "--list")[1]
    assert "flood.percolation" not in weft("reproduce", "--list", "plumtree.*")[1]
    assert json.loads(weft("reproduce", "--list", "--json")[1])["figures"][0]["id"] == "flood.percolation"


def test_bench_micro_passes_its_flags_and_prints_a_row_a_case(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, bool]] = []

    def micro(cases: object, quick: bool, progress: object) -> dict[str, Any]:
        calls.append((cases, quick))
        return {"cases": {"flood-10000": {"events_per_cpu_s": 300_000.0, "ratio": 1.25}}}

    _instead(monkeypatch, "libweft.bench.perf.micro", micro=micro)
    assert json.loads(weft("bench", "micro", "--json")[1])["cases"]["flood-10000"]["ratio"] == 1.25
    _, out, _ = weft("bench", "micro", "--quick", "--case", "a", "--case", "b")
    assert calls == [(None, False), (["a", "b"], True)]
    assert "flood-10000" in out
    assert "300,000" in out


def test_a_bar_shows_only_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.5, 1.5])
    monkeypatch.setattr(show, "monotonic", lambda: next(clock))
    bar = show._Bar()
    bar(0.1, "running")
    assert bar.shown is None
    bar(0.4, "running")
    assert bar.shown is not None
    assert bar.shown.tasks[0].completed == 0.4
    bar.close()


def python(*words: str, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("words", [["--print"], ["--json"], []])
def test_a_reader_that_has_left_is_no_error(words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = python("-m", "libweft", *SMALL, *words, stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_topic_that_is_named_like_a_command_of_the_bench_loads_no_bench() -> None:
    program = "import sys, libweft.__main__ as c; c.main(['pub', 'sim', '--no']); sys.exit('libweft.bench' in sys.modules)"
    assert python("-c", program).returncode == 0


def test_help_does_not_import_what_only_runs_need() -> None:
    slow = "'rich', 'pyarrow', 'trio', 'pyspark', 'cryptography', 'libweft.bench'"
    done = python("-c", f"import sys, libweft.__main__ as c; c.main([]); sys.exit(any(name in sys.modules for name in ({slow})))")
    assert done.returncode == 0, done.stderr


def test_sim_gives_every_figure(weft: Weft) -> None:
    status, out, err = weft(*SMALL, "--json")
    assert (status, err) == (0, "")
    result = json.loads(out.splitlines()[-1])
    assert result.keys() >= FIGURES
    assert (result["nodes"], result["messages"], result["reliability"], result["trace"]) == (40, 3, 1.0, None)


def test_the_same_seed_gives_the_same_hash_and_another_seed_another(weft: Weft) -> None:
    def digest(*more: str) -> object:
        return json.loads(weft(*SMALL, "--loss", "0.05", "--json", *more)[1])["trace_hash"]

    assert digest() == digest()
    assert digest() != digest("--seed", "8")


def test_a_run_for_people_ends_in_a_table(weft: Weft) -> None:
    status, out, err = weft(*SMALL)
    assert (status, err) == (0, "")
    assert "reliability" in out


def test_saved_faults_replay_to_the_same_hash(weft: Weft, tmp_path: Path) -> None:
    saved = tmp_path / "faults.json"
    first = json.loads(weft(*SMALL, "--crash", "0.3", "--save-faults", str(saved), "--json")[1])
    again = json.loads(weft(*SMALL, "--faults", str(saved), "--json")[1])
    assert first["trace_hash"] == again["trace_hash"]


def test_a_trace_folder_that_cannot_be_written_is_one_line(weft: Weft, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    status, out, err = weft(*SMALL, "--trace", str(tmp_path / "file" / "trace"))
    assert status in (1, 2)
    assert out == ""
    assert err.startswith("weft: ")
    assert err.count("\n") == 1


def test_a_steep_popularity_does_not_draw_for_ever(capsys: pytest.CaptureFixture[str]) -> None:
    steep = "sim --nodes 20 --degree 3 --messages 2 --topics 100 --popularity zipf --exponent 100 --interests 50 --json"
    assert main(steep.split()) == 0
    assert '"reliability":1.0' in capsys.readouterr().out


def test_a_usage_error_leaves_no_trace_folder(tmp_path: Path) -> None:
    edges = tmp_path / "edges"
    edges.write_text("0 x\n")
    assert main(["sim", "--set", f"overlay.graph={edges}", "--trace", str(tmp_path / "run")]) == 2
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_stream_that_is_closed_costs_no_run(closed: str) -> None:
    command = f"{sys.executable} -m libweft sim --nodes 20 --messages 1 {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr + done.stdout) == (0, False)


def test_an_argument_that_is_no_text_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--nodes", "a\udcff"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.live
def test_a_folder_that_is_something_else_is_not_collected_into(weft: Weft, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    status, _, err = weft("collect", str(tmp_path), "--listen", "/ip4/127.0.0.1/tcp/0")
    assert status == 2 and "neither empty nor a folder of weft collect" in err and err.count("\n") == 1
