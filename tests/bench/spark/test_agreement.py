"""Three ways to the same figures: the oracle by cases made by hand, the counters against it, and Spark against it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from pyspark.sql import SparkSession

from libweft.bench.runs.counters import Counters
from libweft.bench.spark import analysis
from libweft.bench.spark.traces import Traces
from libweft.peer.machine import SECOND, Lane
from libweft.peer.trace.kinds import DELIVER, DROP, JOIN, JOINED, LEAVE, NODE_DOWN, PUBLISH, QUEUE, RECEIVE, SEND
from tests.bench.spark.oracle import Oracle, Origin, Row, Verdict, counted, counted_ms, spread
from tests.bench.spark.random_traces import Case, cases, drawn, side_by_side

WINDOW = 100
SEEDS, RUNS = 0, 150
NORMAL_95 = 1.959964
KEYS: dict[str, tuple[str, ...]] = {
    **{"by_topic": ("topic",), "over_time": ("from_s",), "by_hop": ("hops",), "order": (), "recovery": ("at_s",)},
    **dict.fromkeys(("load", "queues", "barriers", "subscription"), ("what",)),
    **{"latency_distribution": ("what", "low_ms", "high_ms"), "load_distribution": ("what", "low", "high")},
}
ORIGINS = {n: Origin(0, 1, n) for n in range(1, 9)}


def oracle(*rows: Row | list[Row]) -> Oracle:
    return Oracle([r for one in rows for r in (one if isinstance(one, list) else [one])], ORIGINS, WINDOW)


def joined(*nodes: int, t: int = 0, topic: str | None = "a") -> list[Row]:
    return [Row(t, node, JOINED, topic) for node in nodes]


def publish(t: int = 10, msg: int = 1, node: int = 0, topic: str | None = "a", after: tuple[int, ...] = ()) -> Row:
    return Row(t, node, PUBLISH, topic, msg, hops=0, dependencies=after)


def deliver(t: int, *nodes: int, msg: int = 1, hops: int | None = 1) -> list[Row]:
    return [Row(t, node, DELIVER, "a", msg, hops=hops) for node in nodes]


def receive(t: int, *nodes: int, msg: int = 1) -> list[Row]:
    return [Row(t, node, RECEIVE, "a", msg) for node in nodes]


def send(t: int, copies: int | None, lane: str | None = "payload", kind: str = SEND, msg: int | None = 1, size: int = 10) -> Row:
    return Row(t, 0, kind, "a", msg, copies=copies, bytes=size, lane=lane)


def test_reliability_is_over_those_who_stayed_for_the_window() -> None:
    told = oracle(joined(0, 1, 2, 3, 4), Row(110, 3, LEAVE, "a"), publish(), deliver(110, 1, 3), deliver(111, 2), joined(5, t=11))
    assert told.figures()["reliability"] == Fraction(1, 3), "of 1, 2 and 4: 3 left at the end of the window"
    assert told.figures()["deliveries"] == 3


def test_an_end_at_the_time_of_a_beginning_leaves_no_stay() -> None:
    told = oracle(joined(1, 2, t=5), Row(5, 1, NODE_DOWN), Row(5, 2, LEAVE, "b"))
    assert not told.joined(1, "a", 5, 5)
    assert told.joined(2, "a", 5, 99)
    assert not told.joined(2, "a", 4, 99)


def test_copies_are_those_on_links_since_the_publish() -> None:
    sends = [send(9, 50), send(10, 5), send(11, None), send(12, 2, kind=DROP), send(13, 7, None)]
    told = oracle(publish(), sends, receive(20, 1, 2))
    assert told.figures()["payload_messages"] == 4
    assert told.figures()["rmr"] == 1
    assert (told.figures()["control_messages"], told.figures()["bytes"]) == (7, 630)


def test_nothing_to_take_a_mean_of_is_none() -> None:
    found = oracle(publish(), send(10, 3)).figures()
    nothing = dict.fromkeys(("mean", "p50", "p90", "p99", "max"))
    assert found["latency_ms"] == found["reception_ms"] == nothing
    absent = {name for name, value in found.items() if value is None}
    assert absent == {
        *("reliability", "reliability_min", "rmr", "payload_per_delivery", "false_positives", "ldh_mean", "ldh_max", "last_ms"),
        *("control_per_delivery", "bytes_per_delivery"),
    }
    assert (found["messages"], found["deliveries"], found["payload_messages"], found["bytes"]) == (1, 0, 3, 30)


def test_first_rows_are_by_time_then_by_the_fewest_hops() -> None:
    at_once = [row for hops in (None, 4, 3) for row in deliver(20, 1, hops=hops)]
    told = oracle(publish(), deliver(30, 1, hops=1), at_once, deliver(9, 1, hops=9))
    assert told.last_hop(told.messages[0]) == 3
    assert told.by_hop() == {3: counted_ms([10])}


def test_the_first_publish_counts_and_of_one_time_that_of_the_smallest_node() -> None:
    told = oracle(publish(12, node=0), publish(10, node=3), publish(10, node=2), deliver(15, 0, 2, 3))
    assert told.messages == [publish(10, node=2)]
    assert set(told.deliveries[told.messages[0]]) == {0, 3}


def test_receptions_by_strangers_are_false_positives_and_have_no_latency() -> None:
    found = oracle(joined(1), joined(2, t=21), publish(), receive(20, 0, 1, 2), receive(30, 2)).figures()
    assert found["false_positives"] == Fraction(1, 2)
    assert found["reception_ms"]["max"] == found["reception_ms"]["mean"] == Fraction(1, 100)


def test_topics_and_times_part_the_messages() -> None:
    told = oracle(publish(10), publish(19, 2, topic=None), publish(20, 3), deliver(25, 1, msg=3), deliver(40, 1, msg=2))
    assert {topic: found["messages"] for topic, found in told.by_topic().items()} == {"a": 2, None: 1}
    assert {bucket: found["messages"] for bucket, found in told.over_time(10).items()} == {0: 2, 1: 1}
    assert told.by_topic()["a"]["last_ms"] == Fraction(5, 1_000)


def test_load_is_over_all_nodes_that_have_a_row() -> None:
    load = oracle(send(1, 3), send(2, None, "lazy"), send(3, 4, None), send(4, 9, kind=DROP), joined(1, 2), receive(5, 1)).load()
    assert load == {
        **{"payload": [3, 0, 0], "control": [5, 0, 0], "bytes": [80, 0, 0], "dropped": [9, 0, 0]},
        **{"receptions": [0, 1, 0], "duplicates": [0, 0, 0], "deliveries": [0, 0, 0]},
    }


def test_queues_and_barriers() -> None:
    rows = [publish(10, 1), publish(11, 2, after=(1, 7)), *receive(20, 1, 2, 0), *deliver(25, 1, 0), *deliver(15, 2)]
    told = oracle(rows, Row(1, 0, QUEUE, copies=4), Row(2, 0, QUEUE, copies=8))
    assert (told.waiting(), told.barriers(), told.held_back()) == ([4, 8], [0, 2], [5])


def test_fifo_is_broken_by_what_came_strictly_after_a_later_one() -> None:
    arrivals = [*deliver(10, 1, msg=3), *deliver(10, 1, msg=1), *deliver(11, 1, msg=2)]
    told = oracle(publish(1, 1), publish(2, 2), publish(3, 3), arrivals)
    assert told.order()["fifo"] == Verdict(3, 1)


def test_a_gap_is_a_message_before_it_that_the_node_was_there_for() -> None:
    rows = [publish(1, 1), publish(2, 3), publish(3, 4, topic="b"), *deliver(9, 1, 2, msg=3), *deliver(10, 1, 0, msg=1)]
    assert oracle(rows, joined(1), joined(2, t=2)).order()["gapless"] == Verdict(1, 1)
    assert oracle(rows, joined(1), joined(2, t=1)).order()["gapless"] == Verdict(2, 2)
    assert oracle(rows, joined(1), Row(9, 1, LEAVE, "a")).order()["gapless"] == Verdict(0, 0)


def test_a_dependency_is_asked_of_who_was_there_for_it() -> None:
    rows = [publish(1, 1, node=2), publish(2, 5, after=(1, 8)), *deliver(9, 1, 2, 3, msg=5), *deliver(9, 1, msg=1)]
    assert oracle(rows, joined(1, 2, 3)).order()["causal"] == Verdict(2, 1), "1 had it, 3 not; 2 is its publisher; 8 is unknown"
    assert oracle(rows, joined(1, 2, t=2), joined(3)).order()["causal"] == Verdict(1, 1)


def test_a_subscription_lasts_from_the_latest_join_to_the_first_joined() -> None:
    joins = [Row(t, 1, JOIN, "a") for t in (1, 4, 20)] + [Row(0, 1, JOIN, "b")]
    assert oracle(joins, joined(1, t=3), joined(1, t=6), joined(1, t=9), joined(2, t=9)).subscriptions() == [2, 2]


def test_recovery_is_from_the_fault_to_the_first_of_only_whole_messages() -> None:
    rows = [*joined(1), *(publish(t, msg) for msg, t in enumerate((10, 20, 30, 40), 1)), *deliver(45, 1, msg=1)]
    told = oracle(rows, deliver(45, 1, msg=3), deliver(45, 1, msg=4))
    assert {fault: found["recovered"] for fault, found in told.recovery([5, 25, 41]).items()} == {5: None, 25: 5, 41: None}
    assert told.recovery([5]) == {5: {"messages": 4, "lowest": 0, "recovered": 25}}


def test_a_percentile_is_the_smallest_value_with_that_share_at_or_below() -> None:
    assert spread(range(1, 102)) == {"mean": 51, "p50": 51, "p90": 91, "p99": 100, "max": 101}
    assert spread([3, 1, 1]) == {"mean": Fraction(5, 3), "p50": 1, "p90": 3, "p99": 3, "max": 3}


@given(cases())
def test_the_counters_agree_with_the_oracle(case: Case) -> None:
    assert not differences(of_counters(case), case.oracle().figures()), case.told()


def test_the_counters_agree_with_the_oracle_on_many_seeds() -> None:
    for case in map(drawn, range(SEEDS, SEEDS + 300)):
        assert not differences(of_counters(case), case.oracle().figures()), case.told()


def of_counters(case: Case) -> dict[str, Any]:
    """What the counters make of the rows, in the order in which the oracle settles ties."""
    counters = Counters(case.window)
    for r in sorted(case.rows, key=_settled):
        lane = None if r.lane is None else Lane[r.lane.upper()]
        dependencies = tuple(case.ids[msg] for msg in r.dependencies or ())
        msg = None if r.msg is None else case.ids[r.msg]
        counters.observe(r.t, r.node, r.kind, r.topic, msg, r.peer, r.hops, r.copies, r.bytes, lane, r.reason, dependencies)
    counters.finish(case.rows[-1].t if case.rows else 0)
    return counters.figures()


def _settled(r: Row) -> tuple[int, bool, int, bool, int]:
    """A publish before what follows from it, that of the smallest node first; then the fewest hops."""
    return (r.t, r.kind != PUBLISH, r.node if r.kind == PUBLISH else 0, r.hops is None, r.hops or 0)


def differences(found: Mapping[Any, Any], wanted: Mapping[Any, Any]) -> list[str]:
    """By name, of what both have; counts are equal, and means to nine places."""
    told = []
    for name in found.keys() & wanted.keys():
        if isinstance(wanted[name], Mapping):
            told += [f"{name} {more}" for more in differences(found[name], wanted[name])]
        elif not same(found[name], wanted[name]):
            told.append(f"{name}: {found[name]} where the oracle has {wanted[name]}")
    return told


def same(found: Any, wanted: Any) -> bool:
    if isinstance(found, list) and isinstance(wanted, list):
        return all(map(same, found, wanted))
    if found is None or wanted is None or isinstance(wanted, int):
        return bool(found == wanted)
    return bool(found == pytest.approx(float(wanted), rel=1e-9, abs=1e-9))


def test_spark_agrees_with_the_oracle(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All runs side by side, in one analysis, since most of its time goes to planning whatever the rows are."""
    runs = [backwards(), *map(drawn, range(SEEDS, SEEDS + RUNS))]
    found = spark_figures(spark, side_by_side(spark, runs, tmp_path), monkeypatch)
    wrong = [(case, told) for number, case in enumerate(runs) if (told := disagreements(found[number], of_oracle(case)))]
    if wrong:
        case, told = min(wrong, key=lambda one: len(one[0].rows))
        pytest.fail("\n".join([f"{len(wrong)} of {len(runs)} runs disagree; the smallest:", case.told(), *told]))


def spark_figures(spark: SparkSession, traces: Traces, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The one place that knows what the analysis looks like: each run's figures, and its tables by their keys."""
    monkeypatch.setattr(analysis, "load_runs", lambda *_: traces)
    answer = analysis.analyze(spark, [], graph=False)
    runs = [{"figures": run, **{name: {} for name in KEYS}} for run in answer["runs"]]
    for name, keys in KEYS.items():
        table = answer["tables"][name]
        assert len(table["rows"]) < analysis.SHOWN, "some are not shown"
        for row in table["rows"]:
            values = dict(zip(table["columns"], row, strict=True))
            runs[values.pop("run")][name][tuple(values.pop(key) for key in keys)] = values
    return runs


def backwards() -> Case:
    """A message delivered before that was published which precedes it and on which it depends, between two stays."""
    stays = [*joined(1), Row(4, 1, LEAVE, "a"), *joined(1, t=5)]
    rows = [*stays, publish(1, 2, after=(1,)), *deliver(2, 1, msg=2), publish(8, 1)]
    return Case(tuple(sorted(rows, key=lambda r: r.t)), tuple(ORIGINS.items()), WINDOW, (), {})


def of_oracle(case: Case) -> dict[str, Any]:
    """What the analysis should say of it, by the names that it has there."""
    told = case.oracle()
    return {
        "figures": told.figures() | {"ci95": {name: interval(v) for name, v in told.over_messages(told.messages).items()}},
        "by_topic": {(topic,): flat(found) for topic, found in told.by_topic().items()},
        "over_time": over_time(told),
        "by_hop": {(hops,): found for hops, found in told.by_hop().items()},
        "load": {(what,): counted(values) for what, values in told.load().items() if values},
        "queues": some({("waiting",): counted(told.waiting())}),
        "barriers": some({("barrier",): counted(told.barriers()), ("held back, ms",): counted_ms(told.held_back())}),
        "order": {(): verdicts(told)} if told.latencies(told.messages) else {},
        "subscription": some({("subscription, ms",): counted_ms(told.subscriptions())}),
        "recovery": {(at / SECOND,): seconds(found) for at, found in told.recovery(case.faults).items()},
        "latencies": latencies(told),
        "loads": told.load(),
    }


def verdicts(told: Oracle) -> dict[str, int]:
    return {f"{name}_{what}": number for name, verdict in told.order().items() for what, number in verdict._asdict().items()}


def latencies(told: Oracle) -> dict[str, list[int]]:
    """What the bars are of."""
    of_members = told.reception_latencies(told.messages)
    return {"delivery": told.latencies(told.messages), "reception": of_members, "held back": told.held_back()}


def flat(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, **found["latency_ms"]}


def over_time(told: Oracle) -> dict[tuple[float], dict[str, Any]]:
    """Stretches of whole seconds, sixty of them at most."""
    times = [p.t for p in told.messages]
    width = ((max(times) - min(times)) // (60 * SECOND) + 1) * SECOND if times else SECOND
    return {((min(times) + stretch * width) / SECOND,): flat(found) for stretch, found in told.over_time(width).items()}


def some(found: dict[tuple[str], dict[str, Any]]) -> dict[tuple[str], dict[str, Any]]:
    """Only what there was any of has a row."""
    return {key: numbers for key, numbers in found.items() if numbers["count"]}


def seconds(found: dict[str, Any]) -> dict[str, Any]:
    recovered = found["recovered"]
    return found | {"recovered_s": None if recovered is None else Fraction(recovered, SECOND)}


def interval(values: Sequence[Fraction]) -> list[float] | None:
    if len(values) < 2:
        return None
    middle, half = float(statistics.mean(values)), NORMAL_95 * statistics.stdev(values) / len(values) ** 0.5
    return [middle - half, middle + half]


def disagreements(found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Of figures and tables; a row that only one of the two has is one, too."""
    told = differences(found, wanted)
    for name in KEYS.keys() & wanted.keys():
        told += [f"{name}: no row {key}" for key in wanted[name].keys() - found[name].keys()]
        told += [f"{name}: row {key} is of nothing" for key in found[name].keys() - wanted[name].keys()]
    return (
        told
        + histograms(found["latency_distribution"], wanted["latencies"], 1_000)
        + histograms(found["load_distribution"], wanted["loads"], 1)
    )


def histograms(
    found: Mapping[tuple[str, float, float], Mapping[str, int]], wanted: Mapping[str, list[int]], unit: int
) -> list[str]:
    """Each bar holds what is from low to below high, and together they hold all."""
    told, left = [], {what: len(values) for what, values in wanted.items()}
    for (what, low, high), bar in found.items():
        (count,) = bar.values()
        left[what] -= count
        if count != sum(1 for value in wanted[what] if round(low * unit) <= value < round(high * unit)):
            told.append(f"{what} from {low} to {high}: {count}, of {wanted[what]}")
    return told + [f"{what}: {count} in no bar" for what, count in left.items() if count]
