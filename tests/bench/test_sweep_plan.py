"""The plan of a sweep: which points a file makes, and what it is refused for before anything runs."""

from __future__ import annotations

import tomllib
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libweft.bench.runs.replay import to_toml
from libweft.bench.runs.scenario import Scenario, Workload
from libweft.bench.sweep import plan as sweep_plan
from libweft.bench.sweep.plan import Plan, plan_of
from libweft.peer.errors import UsageError
from libweft.peer.sim.faults import MassCrash
from libweft.peer.sim.latency import Constant, Uniform

SCENARIOS = Path(__file__).parents[2] / "bench" / "scenarios"


def plan(text: str) -> Plan:
    return plan_of(tomllib.loads(text), "s.toml")


def test_a_point_is_one_value_of_each_axis_over_the_base() -> None:
    made = plan("[base]\nnodes = 30\nworkload.size = 7\n[grid]\nworkload.rate = [1.0, 2.0]\nwindow = [5.0, 6.0]")
    found = [(point.scenario.workload.rate, point.scenario.window) for point in made.points]
    assert found == [(1.0, 5.0), (1.0, 6.0), (2.0, 5.0), (2.0, 6.0)]
    assert all(point.scenario.nodes == 30 and point.scenario.workload.size == 7 for point in made.points)
    assert made.points[1].settings == {"workload.rate": 1.0, "window": 6.0}
    assert made.points[1].name == "workload.rate=1.0, window=6.0"


def test_a_file_without_axes_has_the_base_as_its_only_point() -> None:
    made = plan("[base]\nnodes = 30")
    assert [point.scenario for point in made.points] == [Scenario(nodes=30)]
    assert made.points[0].name == "base" and made.seeds == (1,)


def test_a_dotted_key_may_be_quoted() -> None:
    assert plan('[grid]\n"workload.rate" = [1.0, 2.0]') == plan("[grid]\nworkload.rate = [1.0, 2.0]")


def test_keys_of_a_variant_change_together_and_the_empty_one_is_the_base() -> None:
    made = plan('[[variants]]\nname = "plain"\n[[variants]]\nname = "large"\nnodes = 300\nworkload.messages = 5')
    assert [point.scenario for point in made.points] == [Scenario(), Scenario(nodes=300, workload=Workload(messages=5))]
    assert [point.name for point in made.points] == ["variant=plain", "variant=large"]


def test_variants_may_be_several_axes() -> None:
    faults = '[[variants.faults]]\nname = "calm"\n[[variants.faults]]\nname = "crash"\n'
    faults += 'faults = [{kind = "mass_crash", share = 0.5}]\n'
    stack = '[[variants.stack]]\nname = "flood"\n[[variants.stack]]\nname = "tree"\nstack = "hyparview/plumtree"\n'
    made = plan(faults + stack)
    assert [tuple(point.settings.values()) for point in made.points] == [
        *(("calm", "flood"), ("calm", "tree"), ("crash", "flood"), ("crash", "tree"))
    ]
    assert isinstance(made.points[2].scenario.faults[0], MassCrash)


def test_a_table_with_a_kind_is_one_value_and_one_key_of_it_another() -> None:
    one = '[[variants]]\nname = "a"\nlatency = {kind = "constant", ms = 5.0}\n'
    whole = plan(one + '[[variants]]\nname = "b"\nlatency.high = 50.0')
    assert [point.scenario.latency for point in whole.points] == [Constant(ms=5.0), Uniform(low=10.0, high=50.0)]


def test_an_empty_table_clears_what_the_base_has() -> None:
    made = plan('[base]\noverlay.degree = 4\n[[variants]]\nname = "tree"\nstack = "hyparview/plumtree"\noverlay = {}')
    assert made.points[0].scenario.overlay == {}


CONSTANT = '{kind = "constant", ms = 5.0}'


def test_a_longer_key_is_set_inside_of_the_shorter_one_whichever_axis_comes_first() -> None:
    whole = plan(f'[grid]\nlatency = [{CONSTANT}]\n[[variants]]\nname = "a"\nlatency.draw = "send"')
    assert whole.points[0].scenario.latency == Constant(ms=5.0, draw="send")
    part = plan(f'[grid]\nlatency.draw = ["send"]\n[[variants]]\nname = "a"\nlatency = {CONSTANT}')
    assert part.points[0].scenario.latency == Constant(ms=5.0, draw="send")


def test_a_key_of_one_point_is_not_set_in_another() -> None:
    one = f'[[variants.latency]]\nname = "a"\nlatency = {CONSTANT}\n'
    made = plan(one + '[[variants.network]]\nname = "once"\nlatency.draw = "send"\n[[variants.network]]\nname = "plain"')
    assert [point.scenario.latency.draw for point in made.points] == ["send", "copy"]


def test_another_kind_is_set_before_its_parameters() -> None:
    made = plan(f'[base]\nlatency = {CONSTANT}\n[grid]\nlatency.high = [50.0]\nlatency.low = [1.0]\nlatency.kind = ["uniform"]')
    assert made.points[0].scenario.latency == Uniform(low=1.0, high=50.0)


def test_seeds_are_counted_on_from_that_of_the_base() -> None:
    made = plan("seeds = 3\n[base]\nseed = 7\n[grid]\nnodes = [10, 20]")
    assert made.seeds == (7, 8, 9)
    assert [(run.scenario.seed, run.scenario.nodes) for run in made.runs] == [
        *((7, 10), (7, 20), (8, 10), (8, 20), (9, 10), (9, 20))
    ]
    assert plan("seeds = [5, 2]").seeds == (5, 2)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[gird]", 's.toml: gird is no key of a sweep; did you mean "grid"? allowed: seeds, base, grid, variants'),
        ("nodes = 5", "nodes is no key of a sweep; it is one of a scenario, so write it below"),
        ("base = 5", "base must be a table, written below a line [base]"),
        ("grid = [1]", "grid must be a table"),
        ("[base]\nnods = 5", 's.toml: base: nods is no key; did you mean "nodes"?'),
        ("[base]\nnodes = 0", "s.toml: base: nodes is 0; it must be a whole number"),
        ("[grid]\nworkload.rte = [1.0]", 's.toml: grid.workload.rte: workload.rte is no key; did you mean "rate"?'),
        ("[grid]\nnodes = []", "s.toml: grid.nodes is an empty list; give the values to try"),
        ("[grid]\nnodes = 5", "s.toml: grid.nodes is not a list; give the values to try"),
        ("[grid]\nlatency = {kind = 'constant', ms = 5.0}", "s.toml: grid.latency is not a list"),
        ("[grid]\nnodes = [50, 'many']", 's.toml: grid.nodes: nodes is "many"; it must be a whole number'),
        ("[grid]\nnodes = [5, 6]\n'window' = [-1.0]", "grid.window: window is -1.0; it must be a number above 0"),
        ("[grid]\nnodes.x = [5]", "s.toml: grid.nodes.x: nodes.x is no key; nodes is not a table"),
        ("[grid]\nseed = [5]", "s.toml: grid.seed sets the seed; seeds = at the top of the file does that"),
        ("[grid]\nstack = ['flod']", "s.toml: grid.stack: "),
        ("[grid]\nwindow = [5.0, 5]", "the points window=5.0 and window=5 are the same scenario; leave one out"),
        ("[grid]\n'workload.rate' = [1.0]\nworkload.rate = [2.0]", "s.toml: grid.workload.rate is there twice"),
        ("[base]\nworkload.publishers = 50\n[grid]\nnodes = [10]", "workload.publishers is 50; it must be a number of nodes"),
        ("variants = 5", "s.toml: variants must be tables, each written below a line [[variants]]"),
        ("[[variants]]\nnodes = 5", "s.toml: variants, number 1, has no name"),
        ("[[variants]]\nname = 'a'\n[[variants]]\nname = 'a'\nnodes = 5", 's.toml: variants has "a" twice; names must differ'),
        ("[[variants]]\nname = 'a'\nnods = 5", 's.toml: variants "a": nods is no key; did you mean "nodes"?'),
        ("[[variants]]\nname = 'a'\nseed = 5", 's.toml: variants "a" sets the seed'),
        ("[[variants]]\nname = 'a'\nnodes = 5\n[grid]\nnodes = [6]", "both variant and nodes set nodes; leave it to one of them"),
        ("[[variants.size]]\nname = 'a'", "variants.size is no name of an axis; allowed: stack, nodes"),
        ("[[variants.nodes]]\nname = 'a'\n[grid]\nnodes = [5]", "grid.nodes and variants.nodes are one axis"),
        ("seeds = 0", "s.toml: seeds must be how many, from 1 to 10,000, or a list"),
        ("seeds = true", "seeds must be how many"),
        ("seeds = []", "seeds must be how many"),
        ("seeds = [1, -2]", "seeds must be how many"),
        ("seeds = [1, 1]", "seeds has one of them twice"),
        ("seeds = 2\n[base]\nseed = 9223372036854775807", "seeds must be how many"),
        ("seeds = 101\n[grid]\nnodes = [1, 2]\nwindow = [" + "1.0," * 50 + "]", "10,100 runs (2 nodes x 50 window x 101 seeds)"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(text: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan(text)
    assert told in str(caught.value) and "\n" not in str(caught.value) and "command line" not in str(caught.value)


def test_a_wrong_point_is_named() -> None:
    with pytest.raises(UsageError, match=r"\(at the point nodes=10, workload\.publishers=20\)"):
        plan("[grid]\nnodes = [30, 10]\nworkload.publishers = [5, 20]")


@pytest.mark.parametrize("content", [None, b"\xff", b"grid = ["])
def test_a_file_that_cannot_be_read_is_told_in_one_line(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "s.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=r"s\.toml: the sweep ") as caught:
        sweep_plan.load(path)
    assert "\n" not in str(caught.value)


def test_the_example_is_a_plan() -> None:
    assert len(sweep_plan.load(SCENARIOS / "sweep.toml").runs) == 60


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "nodes": st.integers(20, 60),
    "window": st.integers(1, 90).map(float),
    "overlay.degree": st.integers(3, 9),
    "workload.messages": st.integers(0, 99),
    "latency.low": st.integers(0, 10).map(float),
    "latency.draw": st.sampled_from(["copy", "send"]),
    "network.codec": st.booleans(),
}
grids = st.lists(st.sampled_from(sorted(VALUES)), unique=True, max_size=4).flatmap(
    lambda keys: st.fixed_dictionaries({key: st.lists(VALUES[key], min_size=1, max_size=3, unique=True) for key in keys})
)
variants = st.sampled_from(
    [{}, {"stack": "static/plumtree"}, {"latency": {"kind": "uniform", "low": 1.0, "high": 200.0}, "churn": {"session": 50.0}}]
)


@given(grid=grids, first=variants, seeds=st.integers(1, 3), chance=st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter_and_points_are_distinct(
    grid: dict[str, list[Any]], first: dict[str, Any], seeds: int, chance: Random
) -> None:
    tables = {
        "seeds": seeds,
        "base": {"nodes": 50, "workload": {"rate": 2.0, "size": 5}},
        "variants": [{"name": "one", **first}, {"name": "two", "warmup": 6.0, "attacks": []}],
        "grid": grid,
    }
    made, other = plan_of(tables, "a"), plan_of(shuffled(tables, chance), "b")
    distinct = {to_toml(point.scenario) for point in made.points}
    count = 2
    for values in grid.values():
        count *= len(values)
    assert len(made.points) == len(distinct) == len({point.name for point in made.points}) == count
    assert {to_toml(point.scenario) for point in other.points} == distinct
    assert len({to_toml(run.scenario) for run in made.runs}) == count * seeds


def shuffled(table: dict[str, Any], chance: Random) -> dict[str, Any]:
    """The same table, its keys and those of its tables in another order."""
    names = chance.sample(list(table), len(table))
    return {name: _shuffled(table[name], chance) for name in names}


def _shuffled(value: Any, chance: Random) -> Any:
    if isinstance(value, list):
        return [_shuffled(item, chance) for item in value]
    return shuffled(value, chance) if isinstance(value, dict) else value
