"""Calls as Spark tasks: what comes back, what a failure costs, and a small sweep with a poisoned set of parameters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tomllib
from functools import partial
from operator import floordiv
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from libweft.bench.papers.figure_runs import Lab
from libweft.bench.runs.replay import command
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Scenario, Workload
from libweft.bench.spark.tasks import Pool, SparkExecutor
from libweft.bench.sweep.execution import sweep
from libweft.bench.sweep.plan import plan_of
from libweft.bench.sweep.run_cache import RunCache
from libweft.peer.errors import WeftError
from tests.conftest import note_replay

ROOT = Path(__file__).parents[3]
POISONED = """
seeds = 2
base = {nodes = 30, workload = {messages = 3}}
[grid]
workload.size = [10, 500]
[[variants]]
name = "plain"
[[variants]]
name = "poison"
nodes = 150
overlay = {graph = "er", degree = 2}
"""


def test_a_call_comes_back_with_its_result_or_its_error(spark: SparkSession) -> None:
    with SparkExecutor(spark) as pool:
        fine, wrong = pool.submit(floordiv, 7, 2), pool.submit(floordiv, 7, 0)
        assert fine.result() == 3
        with pytest.raises(WeftError, match=r"^ZeroDivisionError: integer division or modulo by zero$"):
            wrong.result()


def test_a_process_that_dies_costs_its_call_alone(spark: SparkSession) -> None:
    with SparkExecutor(spark) as pool:
        dead, fine = pool.submit(os._exit, 3), pool.submit(os.getpid)
        with pytest.raises(WeftError, match=r"^its Spark task was lost: ") as caught:
            dead.result()
        assert "\n" not in str(caught.value)
        assert fine.result() != os.getpid()
        assert pool.submit(floordiv, 7, 2).result() == 3


STAY = "import pathlib, time; pathlib.Path({path!r}).touch(); time.sleep(600)"


def test_calls_under_way_end_with_a_block_that_fails(spark: SparkSession, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "abcde"]
    with pytest.raises(KeyError), SparkExecutor(spark) as pool:
        calls = [pool.submit(exec, STAY.format(path=str(path))) for path in paths]
        deadline = time.monotonic() + 120
        while sum(path.exists() for path in paths) < 2:  # whichever came first
            assert time.monotonic() < deadline
            time.sleep(0.05)
        raise KeyError
    assert all(call.done() for call in calls) and calls[-1].cancelled()
    with SparkExecutor(spark, 1) as pool:
        assert pool.submit(floordiv, 7, 2).result() == 3


def test_two_cores_have_two_calls_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    """Each says that it is there, and waits for the other to say so."""
    meet = 'touch "$1"; for i in $(seq 600); do [ -e "$2" ] && exit 0; sleep 0.1; done; exit 1'
    a, b = tmp_path / "a", tmp_path / "b"
    with SparkExecutor(spark) as pool:
        calls = [pool.submit(subprocess.call, ["sh", "-c", meet, "sh", str(me), str(you)]) for me, you in ((a, b), (b, a))]
        assert [call.result() for call in calls] == [0, 0]


def test_a_sweep_measures_what_runs_here_do_and_a_poisoned_set_fails_alone(spark: SparkSession, tmp_path: Path) -> None:
    pool = partial(SparkExecutor, spark)
    plan = plan_of(tomllib.loads(POISONED), "s.toml")
    result = sweep(plan, pool, RunCache(tmp_path / "keep"), traces=tmp_path / "traces")
    assert [(point["settings"]["variant"], point["runs"], point["failed"]) for point in result["points"]] == [
        *(("plain", 2, 0), ("plain", 2, 0), ("poison", 0, 2), ("poison", 0, 2))
    ]
    assert all(failure["error"].startswith("no connected er graph") for failure in result["failures"])
    assert all(failure["replay"].startswith("weft sim ") for failure in result["failures"])
    fine = [each.scenario for each in plan.runs if each.point.settings["variant"] == "plain"]
    for scenario, found in zip(fine, result["runs"], strict=True):
        note_replay(command(scenario))
        here = run(scenario)
        assert found["trace_hash"] == here["trace_hash"] and found["bytes"] == here["bytes"]
        assert found["latency_ms_p99"] == here["latency_ms"]["p99"]
        manifest = json.loads((Path(found["trace"]) / "manifest.json").read_text())
        assert manifest["scenario"]["seed"] == found["seed"]
    again = sweep(plan, pool, RunCache(tmp_path / "keep"), traces=tmp_path / "traces")
    assert again["known_before"] == 4 and again["points"] == result["points"]


@pytest.mark.slow
def test_a_reproduction_measures_in_tasks_what_it_does_here(spark: SparkSession) -> None:
    scenarios = [Scenario(nodes=20, seed=seed, workload=Workload(messages=2)) for seed in (1, 2, 3)]
    kinds = ("publish", "send", "receive", "deliver", "joined", "leave", "node_down")
    pools: tuple[Pool | None, ...] = (None, partial(SparkExecutor, spark, 2))
    here, there = (Lab(spark, kinds, pool=pool, jobs=2).measure(scenarios) for pool in pools)
    of_place = dict.fromkeys(("trace", "cpu_s"))
    assert [{**found, **of_place} for found in there] == [{**found, **of_place} for found in here]
    assert all(found["reliability"] == 1.0 for found in there)


LONGER = """
seeds = 8
base = {stack = "hyparview/plumtree", nodes = 60, workload = {messages = 20}}
[[variants]]
name = "plain"
[[variants]]
name = "poison"
stack = "static/flood"
nodes = 150
overlay = {graph = "er", degree = 2}
"""


@pytest.mark.live
@pytest.mark.slow
def test_a_sweep_whose_driver_is_killed_is_ended_by_repeating_it_and_tells_what_one_at_a_stroke_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "s.toml").write_text(LONGER)
    keep, traces = tmp_path / "keep", tmp_path / "traces"
    asked = (str(tmp_path / "s.toml"), "--json", "--master", "local[2]", "--memory", "1g", "--keep", str(keep))
    words = (sys.executable, "-m", "libweft", "sweep", *asked, "--traces", str(traces))
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL) as driver:
        deadline = time.monotonic() + 300
        while len([*keep.glob("*.json")]) < 2:
            assert driver.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        driver.kill()
    before = {path.name: path.read_bytes() for path in keep.glob("*.json")}
    assert 2 <= len(before) < 8
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    resumed = json.loads(done.stdout)
    assert resumed["known_before"] == len(before) and resumed["simulated"] == 8 - len(before)
    assert {name: (keep / name).read_bytes() for name in before} == before

    plan = plan_of(tomllib.loads(LONGER), "s.toml")
    whole = sweep(plan, partial(SparkExecutor, spark), RunCache(tmp_path / "keep-2"), traces=tmp_path / "traces-2")
    of_machine = ("cpu_s", "trace")
    for mine, other in zip(resumed["runs"], whole["runs"], strict=True):
        assert {**mine, **dict.fromkeys(of_machine)} == {**other, **dict.fromkeys(of_machine)}
        files = [{path.name: path.read_bytes() for path in Path(run["trace"]).glob("*.parquet")} for run in (mine, other)]
        assert files[0] == files[1] and files[0]

    assert done.returncode == 1 and resumed["failures"] == whole["failures"] and len(whole["failures"]) == 8
    poisoned = [run.scenario for run in plan.runs if run.point.settings["variant"] == "poison"]
    lines = done.stderr.splitlines()
    assert [line.partition("; replay: ")[2] for line in lines[:-1]] == [command(scenario) for scenario in poisoned]


@pytest.mark.live
@pytest.mark.slow
def test_the_command_sweeps_on_a_spark_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(POISONED)
    words = [sys.executable, "-m", "libweft", "sweep", str(tmp_path / "s.toml"), "--json", "--keep", str(tmp_path / "keep")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and json.loads(done.stdout)["simulated"] == 4
    assert done.stderr.count("weft: failed: variant=poison") == 4
    assert done.stderr.splitlines()[-1].startswith("weft: 4 of 8 runs failed; the others are kept in ")
