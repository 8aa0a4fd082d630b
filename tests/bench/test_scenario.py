from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libweft.bench.runs.reading import assignment, load, merge, validate
from libweft.bench.runs.replay import command, to_toml
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Churn, Network, Scenario, TraceSettings, Workload, head_count, to_dict
from libweft.bench.runs.toml_values import value_of
from libweft.peer.errors import UsageError
from libweft.peer.sim import faults, latency
from libweft.peer.trace.kinds import KINDS
from libweft.pubsub import stacks

SCENARIOS = Path(__file__).parents[2] / "bench" / "scenarios"


def refusal(tmp_path: Path, text: str) -> str:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load(path)
    line = str(caught.value)
    assert line.startswith(f"{path}: ")
    assert "\n" not in line
    return line.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("nodes = -1", "nodes", "is -1; it must be a whole number from 1 to 1000000"),
        ("nodes = 1000001", "nodes", "is 1000001"),
        ("nodes = 1.5", "nodes", "is 1.5"),
        ("nodes = true", "nodes", "is true"),
        ("nodes = 'many'", "nodes", 'is "many"'),
        ("nodes = 1979-05-27", "nodes", "is 1979-05-27"),
        ("nodes = [1]", "nodes", "is a list"),
        ("seed = 9223372036854775808", "seed", "from 0 to 9223372036854775807"),
        ("stack = 5", "stack", "a string"),
        ("window = 0", "window", "a number above 0, up to 31536000"),
        ("duration = 'long'", "duration", "a number from 0 to 31536000"),
        ("duration = 1", "duration", "at least the warmup, 5.0"),
        ("warmup = nan", "warmup", "is nan"),
        ("warmup = inf", "warmup", "is inf"),
        ("nodez = 1", "nodez", 'did you mean "nodes"? allowed: stack, nodes, seed'),
        ("rate = 1", "rate", 'did you mean "workload.rate"?'),
        ('"a\\nb" = 1', '"a\\nb"', "is no key"),
        ("workload = 3", "workload", "a table"),
        ("overlay = 3", "overlay", "a table"),
        ("[workload]\nsizes = 1", "workload.sizes", 'did you mean "size"? allowed: topics, popularity'),
        ("[workload]\nsize = 900001", "workload.size", "from 0 to 900000"),
        ("[workload]\nsize = 1" + "0" * 400, "workload.size", "from 0 to 900000"),
        ("[workload]\nrate = nan", "workload.rate", "is nan"),
        ("[workload]\nrate = 1" + "0" * 400, "workload.rate", "up to 1000000"),
        ("[workload]\nrate = 1e-9\nmessages = 1000", "workload.rate", "more than a year"),
        ("[workload]\npopularity = 'zip'", "workload.popularity", 'did you mean "zipf"? allowed: exponential, uniform, zipf'),
        ("[workload]\nsubscribers = 1.5", "workload.subscribers", "a whole number from 0 to 1000000, or a number from 0 to 1"),
        ("[workload]\npublishers = 101", "workload.publishers", "up to 100"),
        ("[workload]\npublishers = 0", "workload.publishers", "somebody must publish"),
        ("[workload]\ninterests = 2", "workload.interests", "workload.topics at most, 1"),
        ("[network]\ncodec = 1", "network.codec", "true or false"),
        ("[churn]\ncorrelated = 2", "churn.correlated", "a number from 0 to 1"),
        ("join_every = 1.0", "join_every", "would come at 99 s, after the warmup, 5.0"),
        ("warmup = 100.0\njoin_every = 1.0\n[churn]\nsession = 9", "churn.start", "before the last node has come, at 99 s"),
        ("[churn]\nstart = 9\nstop = 8", "churn.stop", "at least churn.start, 9.0"),
        ("[churn]\nswaps = 9\nsubscriptions = 8", "churn.swaps", "a run has one of them"),
        ("[trace]\nlevel = 'all'", "trace.level", "allowed: default, full, none"),
        ("[trace]\nkinds = ['publis']", "trace.kinds", 'did you mean "publish"?'),
        ("[trace]\nkinds = [1]", "trace.kinds[0]", "a string"),
        ("latency = 'uniform'", "latency", "a table with a kind: constant, uniform"),
        ("[latency]\nlow = 3", "latency", "has no kind; it must be one of constant, uniform"),
        ("[latency]\nkind = 'unifrm'", "latency.kind", 'did you mean "uniform"?'),
        ("[latency]\nkind = 'uniform'\nlo = 3", "latency.lo", "allowed: kind, low, high, draw"),
        ("[latency]\nkind = 'uniform'\nlow = 'a'", "latency.low", "a number"),
        ("[latency]\nkind = 'uniform'\nlow = 300", "latency.high", "is below low"),
        ("[latency]\nkind = 'constant'\nms = nan", "latency.ms", "is nan"),
        ("[latency]\nkind = 'matrix'", "latency.file", "is missing"),
        ("[latency]\nkind = 'matrix'\nfile = '/nowhere'", "latency", "/nowhere cannot be read"),
        ("[latency]\nkind = 'matrix'\nfile = 'x'\nrows = [[1]]", "latency.rows", "latency.file"),
        ("faults = 3", "faults", "a list, each item a table with a kind: loss"),
        ("faults = [3]", "faults[0]", "a table with a kind: loss"),
        ("[[faults]]\nkind = 'los'", "faults[0].kind", 'did you mean "loss"?'),
        ("[[faults]]\np = 0.1", "faults[0]", "has no kind"),
        ("[[faults]]\nkind = 'loss'", "faults[0].p", "is missing; it must be a number"),
        ("[[faults]]\nkind = 'loss'\np = 3", "faults[0].p", "from 0 to 1"),
        ("[[faults]]\nkind = 'loss'\np = 0.1\nq = 1", "faults[0].q", "allowed: kind, at, duration"),
        ("[[faults]]\nkind = 'loss'\np = 0.1\nsources = ['a']", "faults[0].sources[0]", "a whole number"),
        ("[[faults]]\nkind = 'corrupt'\np = 0.1", "faults[0]", "network.codec = true"),
        ("[[faults]]\nkind = 'crash'\nnodes = [100]", "faults[0]", "node 100; nodes are numbered from 0 to 99"),
        ("[overlay]\ndegree = [1]", "overlay.degree", "is a list"),
        ("[overlay]\ndegree = nan", "overlay.degree", "is nan"),
        ("[overlay]\n'a b' = 1", "overlay", 'the key "a b"'),
    ],
)
def test_a_wrong_key_or_value_is_named_with_what_is_allowed(tmp_path: Path, text: str, key: str, says: str) -> None:
    line = refusal(tmp_path, text)
    assert line.startswith(key)
    assert says in line


def test_a_single_name_becomes_the_full_name_of_its_usual_stack(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("stack = 'plumtree'")
    assert load(tmp_path / "s.toml").stack == "hyparview/plumtree"
    assert run(Scenario(stack="plumtree", nodes=4, workload=Workload(messages=1)))["stack"] == "hyparview/plumtree"


def test_attacks_are_of_gossipsub_by_whatever_name(tmp_path: Path) -> None:
    attacked = 'attacks = [{kind = "silent", at = 1.0, nodes = 2}]'
    assert "are of gossipsub, and the stack is hyparview/plumtree" in refusal(tmp_path, f'stack = "plumtree"\n{attacked}')
    path = tmp_path / "attacked.toml"
    path.write_text(f'stack = "gossipsub"\n{attacked}')
    assert load(path).stack == "static/gossipsub"


def test_the_stack_and_its_options_are_checked(tmp_path: Path) -> None:
    assert "static/flod" in refusal(tmp_path, "stack = 'static/flod'")
    assert "degre" in refusal(tmp_path, "[overlay]\ndegre = 5")
    assert "fanout" in refusal(tmp_path, "[router]\nfanout = 5")


@pytest.mark.parametrize("raw", [b"nodes = ", b"[a\n", b"nodes = 1\nnodes = 2", b"\xff\xfe\x00", b"x = " + b"[" * 5_000])
def test_a_file_that_is_no_toml_is_refused_in_one_line(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(raw)
    with pytest.raises(UsageError, match=r"broken\.toml: the scenario is n") as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.toml: the scenario cannot be read: No such file"):
        load(tmp_path / "absent.toml")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        load(tmp_path)


def test_an_endless_file_is_not_read_to_its_end() -> None:
    with pytest.raises(UsageError, match="16000000 bytes at most"):
        load(Path("/dev/zero"))


def test_a_scenario_built_by_a_program_is_checked_too() -> None:
    validate(Scenario())
    with pytest.raises(UsageError, match="the scenario: nodes is -4"):
        validate(Scenario(nodes=-4))


@pytest.mark.parametrize("path", sorted({*SCENARIOS.glob("*.toml")} - {SCENARIOS / "sweep.toml"}), ids=lambda path: path.stem)
def test_the_examples_are_valid(path: Path) -> None:
    assert load(path).nodes >= 100


def test_a_share_is_of_the_nodes_and_a_count_is_of_nodes() -> None:
    assert [head_count(share, 50) for share in (0, 0.001, 0.5, 1.0, 2, 50)] == [0, 1, 25, 50, 2, 50]


@pytest.mark.parametrize(("text", "value"), [("5", 5), ("0.5", 0.5), ("true", True), ("[1, 2]", [1, 2]), ('"5"', "5")])
def test_the_value_of_a_flag_is_toml_where_it_can_be(text: str, value: object) -> None:
    assert value_of(text) == value


@pytest.mark.parametrize("text", ["ring", "1979-05-27", "", " a", "1\nother = 2", "a.b", "1" * 5_000])
def test_else_it_is_a_string(text: str) -> None:
    assert value_of(text) == text


@pytest.mark.parametrize("text", ["", "nodes", "=3", "a..b=3", ".a=3"])
def test_an_assignment_without_a_key_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not KEY=VALUE"):
        assignment(text)


def test_later_settings_override_earlier_ones_and_leave_the_base_alone() -> None:
    base = merge(None, [("nodes", 20), ("overlay.degree", 4)])
    changed = merge(base, [("nodes", 30), ("overlay.degree", 6), ("nodes", 40)])
    assert (base.nodes, base.overlay) == (20, {"degree": 4})
    assert (changed.nodes, changed.overlay) == (40, {"degree": 6})


def test_another_latency_model_forgets_the_parameters_of_the_first() -> None:
    assert merge(None, [("latency.kind", "constant"), ("latency.ms", 7)]).latency == latency.Constant(ms=7)
    assert merge(None, [("latency.kind", "uniform"), ("latency.low", 7)]).latency == latency.Uniform(low=7, high=100)


@pytest.mark.parametrize(
    ("pairs", "line"),
    [
        ([("nodes", -1)], "--nodes: nodes is -1"),
        ([("workload.size", "x")], '--set workload.size: workload.size is "x"'),
        ([("nodes.x", 3)], "--set nodes.x: nodes.x is no key"),
        ([("latency.kind", "constant"), ("latency.ms", -4)], "--set latency.ms: latency.ms is -4"),
        ([("latency.low", 500)], "--set latency.low: latency.high (100.0) is below low"),
        ([("warmup", 100), ("duration", 4)], "--set duration: duration is 4.0"),
        ([("stack", "no/such")], "--set stack: "),
    ],
)
def test_a_wrong_setting_names_its_flag(pairs: list[tuple[str, object]], line: str) -> None:
    with pytest.raises(UsageError) as caught:
        merge(None, pairs, {"nodes": "--nodes"})
    assert str(caught.value).startswith(line)


def test_a_contradiction_with_the_base_names_the_flag_that_made_it() -> None:
    base = Scenario(duration=20.0)
    with pytest.raises(UsageError, match="--set warmup: duration is 20"):
        merge(base, [("warmup", 30)])


def test_the_default_scenario_is_a_short_command() -> None:
    assert command(Scenario()) == "weft sim --set stack=static/flood --set nodes=100 --set seed=1"


def test_a_latency_matrix_is_replayed_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a matrix.txt"
    path.write_text("0 5\n5 0\n")
    scenario = Scenario(latency=latency.Matrix(file=str(path)))
    assert "rows" not in to_dict(scenario)["latency"]
    assert replayed(scenario) == scenario


def replayed(scenario: Scenario) -> Scenario:
    words = shlex.split(command(scenario))
    assert words[:2] == ["weft", "sim"]
    assert set(words[2::2]) <= {"--set"}
    return merge(None, [assignment(text) for text in words[3::2]])


seconds = st.floats(0, 1e6)
period = st.floats(0.001, 1e6)
share = st.floats(0, 1)
node = st.integers(0, 9)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
option = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(-1e300, 1e300) | text
options = st.dictionaries(st.from_regex(r"[A-Za-z0-9_-]{1,10}", fullmatch=True), option, max_size=3)

latencies = st.one_of(
    st.builds(latency.Constant, ms=st.floats(0, 1000), draw=st.sampled_from(["copy", "send"])),
    st.builds(latency.Uniform, low=st.floats(0, 10), high=st.floats(10, 100)),
    st.builds(latency.LogNormal, median=st.floats(0, 100), sigma=st.floats(0, 10)),
    st.builds(latency.VCubePS, setting=st.sampled_from(["paper", "program"]), free=st.none() | st.just(("lazy", "urgent"))),
    st.builds(latency.VCubePB),
)
some_faults = st.one_of(
    st.builds(faults.Loss, at=seconds, p=share, sources=st.tuples(node, node)),
    st.builds(faults.Corrupt, at=seconds, duration=seconds, p=share),
    st.builds(faults.Partition, at=seconds, how=st.sampled_from(["halves", "isolate"])),
    st.builds(faults.Partition, how=st.just("groups"), groups=st.tuples(st.tuples(node), st.tuples(node, node))),
    st.builds(faults.Reset, at=seconds, a=st.just(0), b=st.integers(1, 9)),
    st.builds(faults.Reset, at=seconds, share=st.floats(0.01, 1)),
    st.builds(faults.Restart, nodes=st.tuples(node), down=st.floats(0, 100), state=st.booleans()),
    st.builds(faults.MassCrash, share=share),
)
workloads = st.builds(
    Workload,
    topics=st.integers(5, 50),
    popularity=st.sampled_from(["uniform", "zipf", "exponential"]),
    exponent=st.floats(0, 10),
    subscribers=share | st.integers(0, 10),
    interests=st.integers(1, 5),
    publishers=st.floats(0.01, 1),
    messages=st.integers(0, 1000),
    rate=st.floats(0.01, 1e6),
    arrivals=st.sampled_from(["regular", "poisson"]),
    order=st.sampled_from(["none", "fifo", "causal"]),
    size=st.integers(0, 900_000),
    answer_ms=st.integers(0, 10_000),
    turns=st.integers(1, 10),
)
networks = st.builds(Network, codec=st.just(True), bandwidth=st.floats(0, 1e12), queue=st.integers(1, 2**40), idle=period)
churns = st.builds(Churn, session=seconds, replace=st.booleans(), correlated=share, every=period, stop=st.none() | seconds)
traces = st.builds(
    TraceSettings, level=st.sampled_from(["none", "default", "full"]), kinds=st.lists(st.sampled_from(sorted(KINDS))).map(tuple)
)
scenarios = st.builds(
    Scenario,
    stack=text,
    nodes=st.integers(10, 1_000_000),
    seed=st.integers(0, 2**63 - 1),
    duration=st.none() | st.floats(1e6, 3e7),
    warmup=seconds,
    window=period,
    overlay=options,
    router=options,
    latency=latencies,
    network=networks,
    workload=workloads,
    churn=churns,
    faults=st.lists(some_faults, max_size=3).map(tuple),
    trace=traces,
)


@pytest.fixture(scope="module")
def any_stack() -> Any:
    """Text must survive whatever it says, so here every name is a stack and every option is known."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stacks, "check", lambda *_: None)
        patch.setattr(stacks, "full_name", lambda name: name)
        yield


@given(scenario=scenarios)
def test_the_command_replays_the_scenario(any_stack: None, scenario: Scenario) -> None:
    again = replayed(scenario)
    assert again == scenario
    assert command(scenario).isprintable()
    for given_options, options_again in ((scenario.overlay, again.overlay), (scenario.router, again.router)):
        assert [type(value) for value in given_options.values()] == [type(value) for value in options_again.values()]


@given(scenario=scenarios)
def test_the_toml_is_the_scenario(any_stack: None, tmp_path_factory: pytest.TempPathFactory, scenario: Scenario) -> None:
    path = tmp_path_factory.getbasetemp() / "scenario.toml"
    path.write_text(to_toml(scenario), encoding="utf-8", newline="")
    assert load(path) == scenario
