"""`weft sweep` on a fake simulator: what is run, kept, run again, summed up and shown. `spark/test_tasks.py` has the real one."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any

import pytest
from pyarrow import parquet

from libweft.__main__ import main
from libweft.bench.cli import sweep as sweep_command
from libweft.bench.runs.replay import command
from libweft.bench.runs.scenario import Scenario
from libweft.bench.sweep import execution as sweep
from libweft.bench.sweep import run_cache as keeping
from libweft.bench.sweep.plan import Plan, plan_of
from libweft.bench.sweep.run_cache import RunCache, key_of

ROOT = Path(__file__).parents[2]
PLAN = plan_of({"seeds": 3, "grid": {"nodes": [10, 20]}}, "s.toml")


class World:
    """Stands in for the simulator: reliability is the seed over 10, and some scenarios are poison."""

    def __init__(self) -> None:
        self.runs: list[Scenario] = []
        self.poison: Callable[[Scenario], BaseException | None] = lambda scenario: None
        self.opened = 0

    def run(self, scenario: Scenario, trace: Path | None = None) -> dict[str, Any]:
        if (error := self.poison(scenario)) is not None:
            raise error
        self.runs.append(scenario)
        if trace is not None:
            trace.mkdir(parents=True)
            (trace / "manifest.json").write_text("{}")
        about = {"stack": scenario.stack, "nodes": scenario.nodes, "seed": scenario.seed, "peak_rss_mb": 1.0}
        found = {"reliability": scenario.seed / 10, "rmr": None, "latency_ms": {"mean": 5.0, "p99": 9.0}, "bytes": 7}
        return {**about, **found, "trace": None, "trace_hash": "ab"}

    @contextmanager
    def pool(self) -> Iterator[Executor]:
        self.opened += 1
        with ThreadPoolExecutor(1) as threads:
            yield threads

    def sweep(self, plan: Plan, keep: Path, **settings: Any) -> dict[str, Any]:
        return sweep.sweep(plan, self.pool, RunCache(keep), **settings)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    module = ModuleType("libweft.bench.runs.run")
    vars(module).update(run=made.run)
    monkeypatch.setitem(sys.modules, "libweft.bench.runs.run", module)
    return made


def seeds_and_nodes(world: World) -> list[tuple[int, int]]:
    return [(scenario.seed, scenario.nodes) for scenario in world.runs]


def test_each_point_runs_with_each_seed_and_all_points_come_before_the_next_seed(world: World, tmp_path: Path) -> None:
    result = world.sweep(PLAN, tmp_path)
    assert seeds_and_nodes(world) == [(1, 10), (1, 20), (2, 10), (2, 20), (3, 10), (3, 20)]
    assert [(point["point"], point["runs"], point["failed"]) for point in result["points"]] == [
        *(("nodes=10", 3, 0), ("nodes=20", 3, 0))
    ]
    assert result["simulated"] == 6 and result["known_before"] == 0 and result["failures"] == []
    assert result["runs"][0] == {
        **{"nodes": 10, "seed": 1, "reliability": 0.1, "rmr": None, "latency_ms_mean": 5.0, "latency_ms_p99": 9.0},
        **{"bytes": 7, "trace_hash": "ab"},
    }


def test_the_interval_is_student_s_for_95_percent_over_the_seeds(world: World, tmp_path: Path) -> None:
    measures = world.sweep(PLAN, tmp_path)["points"][0]["measures"]
    half = 4.3027 * 0.1 / math.sqrt(3)  # 4.3027: Student's table, 95 %, 2 degrees of freedom
    assert measures["reliability"] == pytest.approx({"mean": 0.2, "low": 0.2 - half, "high": 0.2 + half, "runs": 3}, abs=1e-5)
    assert measures["bytes"] == {"mean": 7.0, "low": 7.0, "high": 7.0, "runs": 3}
    assert {"rmr", "trace_hash", "seed", "nodes"}.isdisjoint(measures)


def test_one_run_has_a_mean_and_no_interval(world: World, tmp_path: Path) -> None:
    (point,) = world.sweep(plan_of({}, "s.toml"), tmp_path)["points"]
    assert point["measures"]["reliability"] == {"mean": 0.1, "low": None, "high": None, "runs": 1}
    assert point["point"] == "base"


def test_what_is_done_is_not_run_again_and_no_worker_starts_for_it(world: World, tmp_path: Path) -> None:
    first = world.sweep(PLAN, tmp_path)
    world.runs.clear()
    again = world.sweep(PLAN, tmp_path)
    assert world.runs == [] and world.opened == 1
    assert again == {**first, "simulated": 0, "known_before": 6, "pool": None}
    assert sweep_command.last_line(again) == "0 runs made, 6 known before"


def test_a_sweep_tells_how_well_it_used_the_cores(world: World, tmp_path: Path) -> None:
    pool = world.sweep(PLAN, tmp_path)["pool"]
    assert pool["concurrency"] == pytest.approx(pool["cpu_s"] / pool["wall_s"]) and pool["start_s"] >= 0.0
    told = {"start_s": 7.06, "wall_s": 50.0, "cpu_s": 95.0, "concurrency": 1.9}
    line = sweep_command.last_line({"simulated": 1_200, "known_before": 4, "pool": told})
    assert line == "1,200 runs made, 4 known before; 50.0 s after 7.1 s of start, 95.0 CPU seconds: 1.90 at a time"


def test_a_run_whose_trace_fails_has_failed_though_its_measures_are_known(world: World, tmp_path: Path) -> None:
    world.sweep(PLAN, tmp_path / "keep")
    world.poison = lambda scenario: OSError("no room") if scenario.seed == 2 else None
    result = world.sweep(PLAN, tmp_path / "keep", traces=tmp_path / "traces")
    assert [(point["runs"], point["failed"]) for point in result["points"]] == [(2, 1), (2, 1)]
    assert len(result["failures"]) == 2 and len(result["runs"]) == 4


def test_more_seeds_and_values_run_alone(world: World, tmp_path: Path) -> None:
    world.sweep(PLAN, tmp_path)
    world.runs.clear()
    world.sweep(plan_of({"seeds": 4, "grid": {"nodes": [10, 20, 30]}}, "s.toml"), tmp_path)
    assert sorted(seeds_and_nodes(world)) == [(1, 30), (2, 30), (3, 30), (4, 10), (4, 20), (4, 30)]


def test_other_code_runs_all_again(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world.sweep(PLAN, tmp_path)
    monkeypatch.setattr(keeping, "_code", lambda: b"other")
    assert world.sweep(PLAN, tmp_path)["simulated"] == 6


def test_a_worker_with_other_code_is_refused(world: World) -> None:
    scenario = Scenario()
    assert sweep.simulated(scenario, key_of("sweep", scenario), None)["reliability"] == 0.1
    with pytest.raises(Exception, match="the worker has other code or another Python"):
        sweep.simulated(scenario, "1234", None)


def test_an_interrupt_keeps_what_was_done(world: World, tmp_path: Path) -> None:
    kept = Event()

    def interrupt(scenario: Scenario) -> KeyboardInterrupt | None:
        return KeyboardInterrupt() if (scenario.seed, scenario.nodes) == (2, 20) and kept.wait(60) else None

    world.poison = interrupt
    with pytest.raises(KeyboardInterrupt):
        world.sweep(PLAN, tmp_path, progress=lambda share, word: kept.set() if word == "3 of 6 runs" else None)
    world.poison = lambda scenario: None
    world.runs.clear()
    world.sweep(PLAN, tmp_path)
    assert (2, 20) in seeds_and_nodes(world) and {(1, 10), (1, 20), (2, 10)}.isdisjoint(seeds_and_nodes(world))


KILLED = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import ModuleType
from libweft.bench.sweep import execution as sweep, plan as sweep_plan
from libweft.bench.sweep.run_cache import RunCache

def run(scenario):
    if scenario.seed == 3 and kept.wait(60):
        os._exit(9)
    return {"reliability": scenario.seed / 10, "trace_hash": "before"}

def progress(share, word):
    if word == "4 of 6 runs":
        kept.set()

kept = Event()
module = ModuleType("libweft.bench.runs.run")
module.run = run
sys.modules["libweft.bench.runs.run"] = module
plan = sweep_plan.plan_of({"seeds": 3, "grid": {"nodes": [10, 20]}}, "s.toml")
sweep.sweep(plan, lambda: ThreadPoolExecutor(1), RunCache(Path(sys.argv[1])), progress=progress)
"""


def test_a_sweep_that_was_killed_goes_on_with_what_was_under_way(world: World, tmp_path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, check=False).returncode == 9
    result = world.sweep(PLAN, tmp_path)
    assert seeds_and_nodes(world) == [(3, 10), (3, 20)]
    assert [run["trace_hash"] for run in result["runs"]] == ["before"] * 4 + ["ab"] * 2


def test_a_poisoned_set_fails_alone_and_is_named_with_its_replay(world: World, tmp_path: Path) -> None:
    world.poison = lambda scenario: ZeroDivisionError("by\nzero") if scenario.nodes == 20 and scenario.seed > 1 else None
    result = world.sweep(PLAN, tmp_path)
    assert [(point["runs"], point["failed"]) for point in result["points"]] == [(3, 0), (1, 2)]
    assert [(failure["point"], failure["seed"], failure["error"]) for failure in result["failures"]] == [
        *(("nodes=20", 2, "ZeroDivisionError: by"), ("nodes=20", 3, "ZeroDivisionError: by"))
    ]
    assert result["failures"][0]["replay"] == command(PLAN.runs[3].scenario)
    assert [row["failed"] for row in sweep_command.table(result)] == [0, 2]


def test_a_failed_run_is_tried_again(world: World, tmp_path: Path) -> None:
    world.poison = lambda scenario: MemoryError() if scenario.nodes == 20 else None
    assert len(world.sweep(PLAN, tmp_path)["failures"]) == 3
    world.poison = lambda scenario: None
    world.runs.clear()
    assert world.sweep(PLAN, tmp_path)["failures"] == []
    assert seeds_and_nodes(world) == [(1, 20), (2, 20), (3, 20)]


def test_progress_counts_runs_and_failures_and_begins_where_it_stopped(world: World, tmp_path: Path) -> None:
    world.sweep(plan_of({"seeds": 2, "grid": {"nodes": [10, 20]}}, "s.toml"), tmp_path)
    world.poison = lambda scenario: ValueError() if scenario.nodes == 20 else None
    told: list[tuple[float, str]] = []
    world.sweep(PLAN, tmp_path, progress=lambda share, word: told.append((round(share, 3), word)))
    assert told == [(0.667, "starting the workers"), (0.833, "5 of 6 runs"), (1.0, "6 of 6 runs, 1 failed")]


def test_a_trace_that_is_missing_is_written_by_running_again(world: World, tmp_path: Path) -> None:
    keep, traces = tmp_path / "keep", tmp_path / "traces"
    world.sweep(PLAN, keep)
    result = world.sweep(PLAN, keep, traces=traces)
    assert result["simulated"] == 6
    assert sorted(run["trace"] for run in result["runs"]) == sorted(str(path) for path in traces.iterdir())
    world.runs.clear()
    assert world.sweep(PLAN, keep, traces=traces)["simulated"] == 0


def test_half_a_trace_does_not_count(world: World, tmp_path: Path) -> None:
    key = key_of("sweep", PLAN.runs[0].scenario)
    for name in (f"{key}.part", key):  # killed in a run, and between its trace and its measures
        (tmp_path / "traces" / name).mkdir(parents=True)
    result = world.sweep(PLAN, tmp_path / "keep", traces=tmp_path / "traces")
    assert result["simulated"] == 6 and result["failures"] == []
    assert len([*(tmp_path / "traces").glob("*/manifest.json")]) == 6
    assert not [*(tmp_path / "traces").glob("*.part")]


def test_the_table_shows_means_and_intervals(world: World, tmp_path: Path) -> None:
    row = sweep_command.table(world.sweep(PLAN, tmp_path))[0]
    assert row["nodes"] == "10" and row["runs"] == 3 and "failed" not in row
    assert row["reliability"] == "0.2 ± 0.25" and row["latency_ms_mean"] == "5 ± 0" and row["rmr"] is None


MIXED = {"grid": {"workload": {"subscribers": [1, 1.0]}, "faults": [[], [{"kind": "loss", "p": 0.5}]]}}


def test_files_have_all_measures_of_all_runs(world: World, tmp_path: Path) -> None:
    runs = world.sweep(plan_of(MIXED, "s.toml"), tmp_path / "keep")["runs"]
    sweep.write_csv(tmp_path / "runs.csv", runs)
    sweep.write_parquet(tmp_path / "runs.parquet", runs)
    with (tmp_path / "runs.csv").open(newline="") as file:
        lines = [*csv.DictReader(file)]
    rows = parquet.read_table(tmp_path / "runs.parquet").to_pylist()
    assert [row["workload.subscribers"] for row in rows] == ["1", "1", "1.0", "1.0"]  # a node is not all of them
    assert [row["faults"] for row in rows[:2]] == ["[]", '[{kind = "loss", p = 0.5}]']
    assert [row["reliability"] for row in rows] == [0.1] * 4 and [row["rmr"] for row in rows] == [None] * 4
    assert [line["workload.subscribers"] for line in lines] == ["1", "1", "1.0", "1.0"]
    assert lines[0]["latency_ms_p99"] == "9.0" and lines[0]["rmr"] == ""
    assert not [*tmp_path.glob("*.part")]


def test_columns_that_only_some_runs_have_are_there(tmp_path: Path) -> None:
    sweep.write_parquet(tmp_path / "runs.parquet", [{"seed": 1}, {"seed": 2, "faults_lost": 3}])
    assert parquet.read_table(tmp_path / "runs.parquet").to_pylist()[0] == {"seed": 1, "faults_lost": None}


# The command.

Weft = Callable[..., tuple[int, str, str]]


@pytest.fixture
def weft(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Weft:
    monkeypatch.setattr("libweft.bench.cli.sweep.spark_tasks", lambda master, memory: world.pool())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text("seeds = 2\n[grid]\nnodes = [10, 20]\n")

    def call(*words: str) -> tuple[int, str, str]:
        status = main(["sweep", *words])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def test_the_command_prints_a_row_a_point_and_keeps_runs(weft: Weft, tmp_path: Path) -> None:
    status, out, err = weft("s.toml")
    assert status == 0 and err == ""
    *rows, last = out.splitlines()[2:]
    assert [line.split()[:2] for line in rows] == [["10", "2"], ["20", "2"]] and last.startswith("4 runs made, 0 known before; ")
    assert len([*(tmp_path / "weft-runs").glob("*.json")]) == 4


def test_the_command_prints_json_and_writes_files(weft: Weft, tmp_path: Path) -> None:
    status, out, _ = weft("s.toml", "--json", "--csv", "new/runs.csv", "--parquet", "new/runs.parquet")
    assert status == 0 and json.loads(out)["seeds"] == [1, 2] and len(json.loads(out)["runs"]) == 4
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["runs.csv", "runs.parquet"]


def test_the_command_writes_a_page_of_the_sweep(weft: Weft, world: World, tmp_path: Path) -> None:
    world.poison = lambda scenario: ValueError("bad luck") if (scenario.nodes, scenario.seed) == (20, 2) else None
    status, _, _ = weft("s.toml", "--report", "new/sweep.html")
    text = (tmp_path / "new" / "sweep.html").read_text(encoding="utf-8")
    assert status == 1 and "<h1>Sweep s</h1>" in text and "bad luck" in text and "replay: <code>weft sim" in text


def test_the_command_takes_another_number_of_seeds(weft: Weft) -> None:
    assert json.loads(weft("s.toml", "--json", "--seeds", "3")[1])["seeds"] == [1, 2, 3]
    status, _, err = weft("s.toml", "--seeds", "0")
    assert status == 2 and "seeds" in err


def test_the_shipped_sweep_has_two_hundred_runs_with_ten_seeds(weft: Weft) -> None:
    told = json.loads(weft(str(ROOT / "bench" / "scenarios" / "sweep.toml"), "--seeds", "10", "--list", "--json")[1])
    assert told["runs"] == 200


def test_the_command_lists_points_and_runs_nothing(weft: Weft, world: World, tmp_path: Path) -> None:
    status, out, _ = weft("s.toml", "--list")
    assert status == 0 and "nodes=20" in out and "2 points x 2 seeds = 4 runs" in out
    told = json.loads(weft("s.toml", "--list", "--json")[1])
    assert told["points"][0] == {"point": "nodes=10", "command": command(Scenario(nodes=10))} and told["runs"] == 4
    assert world.opened == 0 and [path.name for path in tmp_path.iterdir()] == ["s.toml"]


def test_the_command_names_each_failure_and_fails(weft: Weft, world: World) -> None:
    world.poison = lambda scenario: ZeroDivisionError("by zero") if scenario.nodes == 20 else None
    status, out, err = weft("s.toml")
    assert status == 1 and "10" in out
    first, second, last = err.splitlines()
    assert first == (
        "weft: failed: nodes=20, seed 1: ZeroDivisionError: by zero; "
        "replay: weft sim --set stack=static/flood --set nodes=20 --set seed=1"
    )
    assert "seed 2" in second and last == "weft: 2 of 4 runs failed; the others are kept in weft-runs"


def test_the_command_names_so_many_failures_and_counts_the_others(weft: Weft, world: World, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("seeds = 50")
    world.poison = lambda scenario: ZeroDivisionError("by zero")
    _, _, err = weft("s.toml")
    assert err.count("replay: ") == 30 and "weft: failed: 20 more, which --json shows\n" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["none.toml"], "none.toml: the sweep cannot be read"),
        (["s.toml", "--csv", "."], ". is a folder; name a file"),
        (["s.toml", "--parquet", "s.toml/runs"], "cannot write into s.toml: "),
        (["s.toml", "--traces", "s.toml/traces"], "cannot write into s.toml/traces: "),
        (["s.toml", "--master", "mars://"], "--master or SPARK_REMOTE 'mars://'"),
        (["none-level.toml", "--traces", "t"], "--traces: nothing would be written, since trace.level is none"),
        ([], "the following arguments are required: SWEEP.toml"),
    ],
)
def test_what_is_asked_wrongly_is_told_before_anything_runs(
    weft: Weft, world: World, tmp_path: Path, words: list[str], told: str
) -> None:
    (tmp_path / "none-level.toml").write_text('[base]\ntrace.level = "none"\n')
    status, _, err = weft(*words)
    assert status == 2 and told in err and err.count("\n") == 1 and world.opened == 0
