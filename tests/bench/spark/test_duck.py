"""DuckDB as the second opinion: it agrees with the oracle and with Spark, and the benchmark that compares the two."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Churn, Network, Scenario, Workload
from libweft.bench.spark import analysis, duck, generate, speed
from libweft.bench.spark.generate import Generator
from libweft.bench.spark.traces import MESSAGES, ROWS, Run, Traces, look_over
from libweft.peer.errors import UsageError, WeftError
from libweft.peer.machine import SECOND
from libweft.peer.sim.faults import Loss, MassCrash
from tests.bench.spark.random_traces import ARROW, Case, drawn
from tests.bench.spark.test_agreement import KEYS, backwards, disagreements, of_oracle

SEEDS, RUNS = 1_000, 200
SMALL = 16  # messages a part


def duck_answer(runs: Sequence[Run]) -> dict[str, Any]:
    with duck.connect(runs) as connection:
        assert list(duck.measure(connection)) == list(duck.STEPS)
        return duck.answer(connection)


def test_duckdb_agrees_with_the_oracle(tmp_path: Path) -> None:
    cases = [backwards(), *map(drawn, range(SEEDS, SEEDS + RUNS))]
    found = by_keys(duck_answer([stored(case, number, tmp_path / str(number)) for number, case in enumerate(cases)]))
    wrong = [(case, told) for number, case in enumerate(cases) if (told := disagreements(found[number], of_oracle(case)))]
    if wrong:
        case, told = min(wrong, key=lambda one: len(one[0].rows))
        pytest.fail("\n".join([f"{len(wrong)} of {len(cases)} runs disagree; the smallest:", case.told(), *told]))


def by_keys(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Each run's figures, and its tables by their keys."""
    runs = [{"figures": figures, **{name: {} for name in KEYS}} for figures in answer["runs"]]
    for name, keys in KEYS.items():
        table = answer["tables"][name]
        for row in table["rows"]:
            values = dict(zip(table["columns"], row, strict=True))
            runs[values.pop("run")][name][tuple(values.pop(key) for key in keys)] = values
    return runs


def stored(case: Case, number: int, folder: Path) -> Run:
    """As a run would have written it."""
    folder.mkdir()
    side = [{"msg": msg, **origin._asdict()} for msg, origin in case.side]
    for name, ddl, values in (("rows", ROWS, [r._asdict() for r in case.rows]), ("messages", MESSAGES, side)):
        schema = pa.schema([(column, ARROW[type_]) for column, type_ in (column.split() for column in ddl.split(", "))])
        pq.write_table(pa.Table.from_pylist(values, schema), folder / f"{name}-00000.parquet")
    scenario = {"window": case.window / SECOND, "faults": [{"at": at / SECOND} for at in case.faults]}
    return Run(number, str(number), folder, {"scenario": scenario})


def test_duckdb_agrees_with_spark_on_generated_and_simulated_runs(spark: SparkSession, traces: list[Path]) -> None:
    found = analysis.analyze(spark, traces, graph=False)
    wanted = duck_answer([look_over(number, trace.name, trace) for number, trace in enumerate(traces)])
    assert not [*speed.differences(found, wanted)]
    (_, *generated), (_, *simulated) = found["tables"]["order"]["rows"]
    assert all(simulated[:4]) and all(generated[4:]), "there is something to disagree on"


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Some 60,000 generated events, and a run in which nodes come and go, crash and lose messages, on several topics."""
    folder = tmp_path_factory.mktemp("traces")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generate, "MESSAGES_A_PART", SMALL)
        Generator(3).write(folder / "generated", 60_000)
    run(scenario(), trace=folder / "simulated", counters=False)
    return [folder / "generated", folder / "simulated"]


def scenario() -> Scenario:
    return Scenario(
        nodes=60,
        window=4.0,
        workload=Workload(topics=5, interests=2, subscribers=0.8, publishers=2, messages=60, rate=30.0, arrivals="poisson"),
        churn=Churn(session=30.0, start=5.0, subscriptions=20.0),
        network=Network(bandwidth=50_000, queue=4_000),
        faults=(Loss(p=0.4), MassCrash(at=6.0, share=0.2)),
    )


def test_a_difference_is_found_and_told(traces: list[Path]) -> None:
    answer = duck_answer([look_over(0, "generated", traces[0])])
    for place, word in ((("runs", 0, "latency_ms", "p99"), "latency_ms"), (("tables", "queues", "rows", 0, 3), "queues")):
        other = copy.deepcopy(answer)
        *path, last = place
        inner: Any = other
        for step in path:
            inner = inner[step]
        inner[last] *= 1 + 1e-8
        (told,) = speed.differences(other, answer)
        assert word in told
    assert not [*speed.differences(answer, answer)]


@pytest.fixture
def bench(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small traces, and one session, since a process has one at a time, and here it is that of all tests."""
    monkeypatch.setattr(generate, "MESSAGES_A_PART", SMALL)
    monkeypatch.setattr(speed, "spark_session", lambda *_, **__: nullcontext(spark))


@pytest.fixture
def no_spark(bench: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "_spark_answer", answer_by_duckdb)


def answer_by_duckdb(traces: Traces, watch: speed.Stopwatch) -> dict[str, Any]:
    """In the place of Spark, which takes longer to plan than to compute."""
    for step in (*duck.STEPS, "tables"):
        watch(step)
    return duck_answer(traces.about)


@pytest.mark.usefixtures("bench")
@pytest.mark.slow
def test_the_benchmark_goes_through_the_steps_of_the_analysis(monkeypatch: pytest.MonkeyPatch) -> None:
    """By Spark in the first repetition."""
    by_spark = speed._spark_answer
    answers: list[dict[str, Any]] = []

    def answer(traces: Traces, watch: speed.Stopwatch) -> dict[str, Any]:
        answers.append((answer_by_duckdb if answers else by_spark)(traces, watch))
        return answers[-1]

    monkeypatch.setattr(speed, "_spark_answer", answer)
    (size,) = speed.bench_spark([30_000], repetitions=1)["sizes"]
    assert list(size["steps"]) == [*duck.STEPS, "tables"]
    assert all(spent["spark_first_s"] > 0 < spent["duckdb_s"] for spent in size["steps"].values())
    assert len(answers[0]["tables"]["recovery"]["rows"]) == len(speed.FAULTS), "there is something to find"


@pytest.mark.usefixtures("no_spark")
def test_the_benchmark_tells_each_step_of_each_size(tmp_path: Path) -> None:
    told: list[tuple[float, str]] = []
    result = speed.bench_spark([60_000, 2_000], repetitions=1, folder=tmp_path / "kept", progress=lambda *one: told.append(one))
    json.dumps(result)
    large, small = result["sizes"]
    assert large["rows"] >= 60_000 > small["rows"] >= 2_000 and large["mb"] > small["mb"] > 0
    for size in (large, small):
        for name in ("spark_first_s", "spark_s", "duckdb_s"):
            assert size["per_million"][name] == pytest.approx(size["total"][name] * 1e6 / size["rows"])
        assert size["total"]["ratio"] == size["per_million"]["ratio"] == size["total"]["spark_s"] / size["total"]["duckdb_s"]
        assert size["spark_peak_mb"] > 100 and size["duckdb_peak_mb"] > 10
    assert result["linearity"] == large["per_million"]["spark_s"] / small["per_million"]["spark_s"]
    lines = [(row["events"], row["step"].replace(" ", "_")) for row in speed.rows(result)]
    steps = [*duck.STEPS, "tables", "total", "total_a_million"]
    assert lines == [(size["rows"], step) for size in (large, small) for step in steps]
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {"events-2000", "events-60000"}
    shares = [share for share, _ in told]
    assert shares == sorted(shares) and shares[0] >= 0 and shares[-1] <= 1


def test_medians_leave_out_the_first_turn() -> None:
    turns = [({"a": spark}, {"a": duckdb}) for spark, duckdb in ((90.0, 50.0), (4.0, 2.0), (6.0, 9.0), (5.0, 1.0))]
    assert speed._medians(turns) == {"a": {"spark_first_s": 90.0, "spark_s": 5.0, "duckdb_s": 2.0, "ratio": 2.5}}


@pytest.mark.usefixtures("no_spark")
def test_a_kept_trace_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Generator(7).write(tmp_path / "events-1000", 1_000)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    monkeypatch.setattr(speed, "Generator", None)
    assert speed.bench_spark([1_000], repetitions=1, folder=tmp_path)["linearity"] is None
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.usefixtures("bench")
def test_engines_that_disagree_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(traces: Traces, watch: speed.Stopwatch) -> dict[str, Any]:
        found = answer_by_duckdb(traces, watch)
        found["runs"][0]["deliveries"] += 1
        return found

    monkeypatch.setattr(speed, "_spark_answer", answer)
    with pytest.raises(WeftError, match=r"disagree on .*events-1000.*: deliveries"):
        speed.bench_spark([1_000], repetitions=1)


@pytest.mark.parametrize(("events", "repetitions"), [([], 3), ([0], 3), ([1_000, -1], 3), ([1_000], 0)])
def test_nothing_to_measure_is_a_usage_error(events: list[int], repetitions: int) -> None:
    with pytest.raises(UsageError, match="above 0"):
        speed.bench_spark(events, repetitions=repetitions)


def test_without_duckdb_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(UsageError, match="pip install duckdb"):
        speed.bench_spark([1_000])
    with pytest.raises(UsageError, match="pip install duckdb"):
        duck.connect([])
