"""`weft bench lookups` and the case `kademlia-table` of `weft bench micro`, small."""

from __future__ import annotations

import json

import pytest

from libweft.__main__ import main
from libweft.bench.perf import lookups
from libweft.bench.perf.kademlia_table_cost import measure_tables
from libweft.bench.perf.lookups import Field, bench_lookups, summary
from libweft.peer.errors import UsageError


def test_all_phases_are_measured_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "lookups", "--nodes", "60", "--lookups", "20", "--json", "--quiet"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert list(result["phases"]) == ["calm", "churn", "after"]
    assert all(phase["lookups"] >= 19 for phase in result["phases"].values())
    assert result["phases"]["calm"]["exact"] == 1
    assert result["values_after_crash"] == 1
    assert result["honest_4_paths"] > 0.9 and result["nodes_with_liars"] == 60


def test_the_network_with_liars_is_smaller_where_that_of_the_others_is_large_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "MISLED", 50)
    result = bench_lookups(60, 10, 1, 0.1)
    assert (result["nodes"], result["nodes_with_liars"]) == (60, 50)


def test_a_node_that_nobody_knows_shows_in_the_figures() -> None:
    """Not all is 1 whatever happens."""
    field = Field(40, seed=1)
    for number in range(40):
        field.machine(number).table.drop(7)
    assert summary(field.lookups(30))["exact"] < 1


@pytest.mark.parametrize("wrong", [{"nodes": 5}, {"count": 1}, {"churn": 0.0}])
def test_what_makes_no_sense_is_refused_with_the_range(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="must be from"):
        bench_lookups(**({"nodes": 100, "count": 10, "seed": 1, "churn": 0.1} | wrong))  # type: ignore[arg-type]


def test_the_own_table_is_exact() -> None:
    found = measure_tables(quick=True)
    assert found["exact"] == 1 and {"insert_us", "nearest_us"} <= set(found)


def test_the_table_of_the_package_is_measured_beside_it() -> None:
    pytest.importorskip("kademlia")
    assert {"kademlia_insert_us", "kademlia_nearest_us", "kademlia_exact"} <= set(measure_tables(quick=True))
