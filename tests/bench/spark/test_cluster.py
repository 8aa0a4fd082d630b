"""What Spark computes on a cluster is what it computes embedded: a master, two workers and a Spark Connect server on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import partial
from itertools import zip_longest
from math import isclose
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from libweft.bench.runs.replay import command
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Scenario, Workload
from libweft.bench.spark.analysis import analyze
from libweft.bench.spark.tasks import SparkExecutor
from libweft.bench.sweep.execution import sweep
from libweft.bench.sweep.plan import plan_of
from libweft.bench.sweep.run_cache import RunCache
from libweft.peer.sim.faults import MassCrash
from tests.bench.spark.cluster import ROOT, Cluster, standalone
from tests.conftest import note_replay

pytestmark = [pytest.mark.slow, pytest.mark.live]

SCENARIO = Scenario(
    stack="hyparview/plumtree",
    nodes=40,
    warmup=10.0,
    workload=Workload(messages=20, rate=5.0),
    faults=(MassCrash(at=11.0, share=0.2),),
)
PLAN = """
seeds = 3
base = {nodes = 30, workload = {messages = 3}}
[grid]
workload.size = [10, 500]
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster"), workers=2) as started:
        yield started


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, which are compared."""
    folder = tmp_path_factory.mktemp("traces")
    for seed in (1, 2):
        scenario = replace(SCENARIO, seed=seed)
        note_replay(command(scenario))
        run(scenario, trace=folder / f"run-{seed}")
    return folder


@pytest.fixture(scope="module")
def embedded(spark: SparkSession, traces: Path) -> dict[str, Any]:
    return _as_json(analyze(spark, [traces]))


def weft(cluster: Cluster, *words: str) -> dict[str, Any]:
    """A command that is to work; it takes little memory, and its driver listens on loopback alone."""
    words = (sys.executable, "-m", "libweft", *words, "--json")
    done = subprocess.run(words, cwd=ROOT, env=cluster.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_an_analysis_on_workers_tells_what_the_embedded_one_does(
    cluster: Cluster, traces: Path, embedded: dict[str, Any]
) -> None:
    found = weft(cluster, "analyze", str(traces), "--master", cluster.master, "--memory", "512m")
    assert different(found, embedded) == []


def test_an_analysis_through_spark_connect_tells_what_the_embedded_one_does(
    cluster: Cluster, traces: Path, embedded: dict[str, Any]
) -> None:
    with cluster.connect() as remote:
        assert different(weft(cluster, "analyze", str(traces), "--master", remote), embedded) == []


def test_a_sweep_on_workers_tells_what_the_embedded_one_does(cluster: Cluster, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(PLAN)
    here = sweep(plan_of(tomllib.loads(PLAN), "s.toml"), partial(SparkExecutor, spark), RunCache(tmp_path / "here"))
    words = ("sweep", str(tmp_path / "s.toml"), "--keep", str(tmp_path / "there"), "--master", cluster.master, "--memory", "512m")
    there = weft(cluster, *words)
    assert _of_no_machine(there["runs"]) == _of_no_machine(here["runs"]) and len(there["runs"]) == 6
    executors = {path.parts[-1] for path in cluster.folder.glob("work/app-*/*")}
    assert len(executors) == 2


def different(one: dict[str, Any], other: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Where two analyses are not the same, row by row. In the last digit a mean of fractions hangs on the order of its sum."""
    assert one.keys() == other.keys() and one["tables"].keys() == other["tables"].keys()
    pairs = [("runs", one["runs"], other["runs"]), ("warnings", one["warnings"], other["warnings"])]
    pairs += [(name, table["rows"], other["tables"][name]["rows"]) for name, table in one["tables"].items()]
    return [(name, *rows) for name, *both in pairs for rows in zip_longest(*both) if not _same(*rows)]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return isclose(one, other, rel_tol=1e-12)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    return bool(one == other)


def _as_json(analysis: dict[str, Any]) -> dict[str, Any]:
    """As the command prints it."""
    return dict(msgspec.json.decode(msgspec.json.encode(analysis)))


def _of_no_machine(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in run.items() if name != "cpu_s"} for run in runs]
