"""Latency models: what they draw, what they cost a sender or a receiver, and what a slow uplink does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from math import erf, exp, pi, sqrt
from pathlib import Path
from random import Random
from statistics import fmean, median, stdev
from typing import Any, TypeAlias

import pytest

from libweft.peer.machine import MS, SECOND, Lane, Message
from libweft.peer.sim.latency import Constant, LogNormal, Matrix, Model, Normal, Uniform, VCubePB, VCubePS
from libweft.peer.sim.simulator import Simulator
from libweft.peer.trace.kinds import DROP, QUEUE
from libweft.peer.trace.tracer import Tracer
from tests.peer.test_sim import Alarm, Hint, Probe, Spare, Word, load, pair, probes

MANY = 20_000
SURE = 4.5  # standard errors: fails by chance once in 100,000 seeds, and the seed is fixed

# What is drawn.


def draws(model: Model, seed: int = 1, count: int = MANY) -> list[int]:
    stream = model.stream(Random(seed))
    assert stream is not None
    return list(islice(stream, count))


def about(drawn: Sequence[int], mean_ms: float, sd_ms: float) -> None:
    """The mean is where it should be, by the standard error of so many draws, and the spread within a twentieth."""
    assert abs(fmean(drawn) / MS - mean_ms) < SURE * sd_ms / sqrt(len(drawn)) + 1e-3
    assert stdev(drawn) / MS == pytest.approx(sd_ms, rel=0.05)


def test_constant_is_always_the_same() -> None:
    assert set(draws(Constant(ms=12.5))) == {12_500}


def test_uniform_has_the_mean_and_spread_of_its_bounds_and_never_leaves_them() -> None:
    drawn = draws(Uniform(low=10.0, high=100.0))
    about(drawn, 55.0, 90 / sqrt(12))
    assert 10 * MS <= min(drawn) < 10.1 * MS and 99.9 * MS < max(drawn) <= 100 * MS


def test_uniform_reaches_both_of_its_bounds() -> None:
    assert set(draws(Uniform(low=0.0, high=0.003))) == {0, 1, 2, 3}
    assert set(draws(Uniform(low=7.0, high=7.0))) == {7_000}


def test_normal_has_its_mean_and_deviation() -> None:
    drawn = draws(Normal(mean=80.0, sd=10.0))
    about(drawn, 80.0, 10.0)
    within_one = sum(70 * MS <= draw <= 90 * MS for draw in drawn) / MANY
    assert within_one == pytest.approx(erf(1 / sqrt(2)), abs=SURE * 0.5 / sqrt(MANY))


def test_normal_is_cut_off_at_zero() -> None:
    drawn = draws(Normal(mean=0.0, sd=10.0))
    assert min(drawn) == 0
    assert sum(draw == 0 for draw in drawn) / MANY == pytest.approx(0.5, abs=SURE * 0.5 / sqrt(MANY))
    assert fmean(drawn) / MS == pytest.approx(10 / sqrt(2 * pi), rel=0.05)


def test_lognormal_has_its_median_and_mean() -> None:
    drawn = draws(LogNormal(median=50.0, sigma=0.5))
    assert median(drawn) / MS == pytest.approx(50.0, rel=0.02)
    mean = 50 * exp(0.125)
    about(drawn, mean, mean * sqrt(exp(0.25) - 1))
    assert min(drawn) > 0


def test_lognormal_never_takes_more_than_an_hour() -> None:
    drawn = draws(LogNormal(median=1_000.0, sigma=10.0))
    assert max(drawn) == 3_600 * SECOND


@pytest.mark.parametrize("model", [Uniform(), Normal(), LogNormal(), VCubePS(setting="program"), VCubePB()])
def test_draws_depend_on_the_seed_and_on_nothing_else(model: Model) -> None:
    assert draws(model, 1, 200) == draws(model, 1, 200) != draws(model, 2, 200)


def test_the_simulator_uses_the_model_for_every_copy() -> None:
    sim = Simulator(2, Uniform(low=10.0, high=20.0))
    a, b = pair(sim)
    for number in range(400):
        sim.at((number + 2) * SECOND, a.env.send, 1, Word(str(number)))
    sim.run(500 * SECOND)
    taken = [t - (number + 2) * SECOND for number, (t, *_) in enumerate(b.got)]
    assert len(taken) == 400 and min(taken) >= 10 * MS and max(taken) <= 20 * MS
    assert fmean(taken) / MS == pytest.approx(15.0, abs=SURE * 10 / sqrt(12 * 400))


# A matrix from a file.


def matrix(tmp_path: Path, text: str) -> Matrix:
    path = tmp_path / "matrix.txt"
    path.write_text(text)
    return Matrix(file=str(path))


def test_a_matrix_gives_each_direction_its_own_delay_and_repeats_for_more_nodes(tmp_path: Path) -> None:
    model = matrix(tmp_path, "0 10 20.5\n\n30, 0, 40\n50,60,0\n")
    assert (model.delay(0, 1), model.delay(1, 0), model.delay(0, 2)) == (10_000, 30_000, 20_500)
    assert model.delay(3, 4) == model.delay(0, 1)
    assert model.delay(5, 0) == 50_000


def test_copies_and_dials_take_the_time_of_the_matrix(tmp_path: Path) -> None:
    sim = Simulator(1, matrix(tmp_path, "0 10\n30 0\n"))
    a, b = pair(sim)
    assert (a.ups[0][0], b.ups[0][0]) == (40 * MS, 50 * MS)
    a.env.send(1, Word("there"))
    b.env.send(0, Word("back"))
    sim.run(2 * SECOND)
    assert (b.got[0][0], a.got[0][0]) == (SECOND + 10 * MS, SECOND + 30 * MS)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "square"),
        ("1 2\n", "square"),
        ("1 2\n3\n", "square"),
        ("1 x\n3 4\n", "line 1"),
        ("1 2\n3 nan\n", "line 2"),
        ("1 2\n3 inf\n", "line 2"),
        ("1 2\n3 1e400\n", "line 2"),
        ("1 -2\n3 4\n", "0 to 3600000"),
        ("1 2\n3 3600001\n", "0 to 3600000"),
    ],
)
def test_a_bad_matrix_is_refused_in_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        matrix(tmp_path, text)
    assert "\n" not in str(caught.value) and "matrix.txt" in str(caught.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_matrix_that_cannot_be_read_is_refused_in_one_line(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "matrix.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"matrix\.txt cannot be read") as caught:
        Matrix(file=str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Constant, {"ms": -1.0}),
        (Constant, {"ms": float("nan")}),
        (Constant, {"ms": float("inf")}),
        (Constant, {"ms": 3_600_001.0}),
        (Uniform, {"low": -0.1}),
        (Uniform, {"low": 20.0, "high": 10.0}),
        (Uniform, {"high": float("nan")}),
        (Normal, {"mean": -1.0}),
        (Normal, {"sd": -1.0}),
        (Normal, {"sd": float("inf")}),
        (LogNormal, {"median": -1.0}),
        (LogNormal, {"sigma": -0.1}),
        (LogNormal, {"sigma": 10.1}),
        (LogNormal, {"sigma": float("nan")}),
        (VCubePS, {"t_pp": -1.0}),
        (VCubePS, {"t_pc": float("nan")}),
        (VCubePS, {"t_t": 3_600_001.0}),
        (VCubePB, {"low": 20.0, "high": 10.0}),
        (VCubePB, {"unit": -1.0}),
    ],
)
def test_a_value_out_of_range_is_refused_in_one_line(kind: type[Model], values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(values))) as caught:
        kind(**values)
    assert "\n" not in str(caught.value)


# VCube-PS: one copy leaves a node at a time.


def star(sim: Simulator, leaves: int, settle: int = SECOND) -> tuple[Probe, list[Probe]]:
    """A node that holds a link to each of the others."""
    hub, *others = probes(sim, leaves + 1)
    for peer in range(1, leaves + 1):
        hub.env.connect(peer)
    sim.run(settle)
    return hub, others


def everyone(others: Sequence[Probe]) -> tuple[int, ...]:
    return tuple(range(1, len(others) + 1))


def arrivals(sim: Simulator, others: Sequence[Probe], since: int) -> list[float]:
    """When each got its first copy, in milliseconds."""
    sim.run(since + 60 * SECOND)
    return [(other.got[0][0] - since) / MS for other in others]


def test_in_the_paper_the_first_copy_takes_processing_transmission_and_propagation_and_each_further_one_a_unit_more() -> None:
    sim = Simulator(1, VCubePS())
    hub, others = star(sim, 10)
    hub.env.send_all(everyone(others), load(1))
    assert arrivals(sim, others, SECOND) == [102 + place for place in range(10)]


def test_in_the_paper_copies_of_two_sends_share_one_queue() -> None:
    sim = Simulator(1, VCubePS())
    hub, others = star(sim, 4)
    hub.env.send_all((1, 2), load(1))
    hub.env.send_all((3, 4), load(2))
    assert arrivals(sim, others, SECOND) == [102, 103, 104, 105]


def test_in_the_paper_the_times_can_be_set() -> None:
    sim = Simulator(1, VCubePS(t_pp=20.0, t_pc=3.0, t_t=5.0))
    hub, others = star(sim, 3)
    hub.env.send_all(everyone(others), load(1))
    assert arrivals(sim, others, SECOND) == [28, 33, 38]


def test_in_the_paper_control_messages_cost_the_sender_nothing_and_do_not_wait() -> None:
    sim = Simulator(1, VCubePS())
    hub, others = star(sim, 12)
    hub.env.send_all(tuple(range(1, 11)), load(1))
    hub.env.send(11, Word("an acknowledgement"))
    hub.env.send(12, Alarm("urgent"))
    taken = arrivals(sim, others, SECOND)
    assert taken[:10] == [102 + place for place in range(10)]
    assert taken[10:] == [101, 101]


def test_which_lanes_are_free_can_be_set() -> None:
    sim = Simulator(1, VCubePS(free=("payload",)))
    hub, others = star(sim, 4)
    hub.env.send_all((1, 2), load(1))
    hub.env.send_all((3, 4), Word("charged"))
    assert arrivals(sim, others, SECOND) == [101, 101, 102, 103]


def test_in_the_program_control_messages_are_charged_too() -> None:
    sim = Simulator(1, VCubePS(setting="program", t_pp=0.001, t_t=100.0))
    hub, others = star(sim, 6, 10 * SECOND)
    hub.env.send_all((1, 2, 3), load(1))
    hub.env.send_all((4, 5, 6), Word("charged"))
    taken = [round(t / 100) for t in arrivals(sim, others, 10 * SECOND)]
    assert taken in ([0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6])


def test_in_the_program_free_lanes_can_be_set() -> None:
    sim = Simulator(1, VCubePS(setting="program", free=("control",)))
    hub, others = star(sim, 6)
    hub.env.send_all((1, 2, 3), load(1))
    hub.env.send_all((4, 5, 6), Word("free"))
    assert set(arrivals(sim, others, SECOND)[3:]) <= {99, 100}


def test_in_the_program_the_kth_copy_of_an_idle_node_leaves_after_k_minus_1_or_k_units_at_equal_odds() -> None:
    runs = 300
    first_departures = []
    for seed in range(runs):
        sim = Simulator(seed, VCubePS(setting="program"))
        hub, others = star(sim, 5)
        hub.env.send_all(everyone(others), load(1))
        taken = arrivals(sim, others, SECOND)
        assert all(t == int(t) for t in taken)
        early = [99 <= t - place <= 100 for place, t in enumerate(taken)]
        late = [100 <= t - place <= 101 for place, t in enumerate(taken)]
        assert all(early) or all(late)
        first_departures.append(fmean(t - place - 99.5 for place, t in enumerate(taken)))
    # k - 0.5 units on average, and half a unit less than t_pp on the way
    assert fmean(first_departures) == pytest.approx(0.5, abs=SURE * sqrt(0.25 + 0.05) / sqrt(runs))


def test_in_the_program_propagation_is_99_or_100_at_equal_odds() -> None:
    drawn = draws(VCubePS(setting="program"))
    assert set(drawn) == {99 * MS, 100 * MS}
    assert drawn.count(99 * MS) / MANY == pytest.approx(0.5, abs=SURE * 0.5 / sqrt(MANY))


def test_a_receiver_costs_nothing_in_vcube_ps() -> None:
    sim = Simulator(1, VCubePS())
    everybody = probes(sim, 5)
    for each in everybody[1:]:
        each.env.connect(0)
    sim.run(SECOND)
    for number, each in enumerate(everybody[1:]):
        each.env.send(0, load(number))
    sim.run(2 * SECOND)
    assert [t for t, *_ in everybody[0].got] == [SECOND + 102 * MS] * 4


def test_the_length_of_the_queue_is_sampled_with_the_new_copy() -> None:
    rows = Rows()
    sim = Simulator(1, VCubePS(), Tracer(observer=rows))
    hub, others = star(sim, 3)
    hub.env.send_all(everyone(others), load(1))
    hub.env.send_all((2,), load(2))
    sim.run(2 * SECOND)
    assert [(row[4], row[7]) for row in rows.of(QUEUE)] == [(load(1).id, 1), (load(1).id, 2), (load(1).id, 3), (load(2).id, 4)]


class Rows:
    """Keeps the rows of a trace, as `Tracer.emit` orders them."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def observe(self, *row: Any) -> None:
        self.seen.append(row)

    def of(self, kind: str) -> list[tuple[Any, ...]]:
        return [row for row in self.seen if row[2] == kind]


# VCube-PB: a receiver handles one message a unit.


def test_a_hop_of_vcube_pb_takes_10_to_20_ms() -> None:
    drawn = draws(VCubePB())
    about(drawn, 15.0, 10 / sqrt(12))
    assert min(drawn) >= 10 * MS and max(drawn) <= 20 * MS
    sim = Simulator(1, VCubePB())
    a, b = pair(sim)
    a.env.send(1, Word("x"))
    sim.run(2 * SECOND)
    assert SECOND + 10 * MS <= b.got[0][0] <= SECOND + 20 * MS


def test_a_receiver_of_vcube_pb_handles_one_message_a_ms_in_order_of_arrival() -> None:
    sim = Simulator(1, VCubePB(low=10.0, high=10.0))
    everybody = probes(sim, 6)
    for each in everybody[1:]:
        each.env.connect(0)
    sim.run(SECOND)
    for number in (3, 1, 5, 2, 4):
        everybody[number].env.send(0, Word(str(number)))
    sim.at(SECOND + 500, everybody[1].env.send, 0, Word("half a unit later"))
    sim.at(SECOND + 50 * MS, everybody[2].env.send, 0, Word("when it is idle"))
    sim.run(2 * SECOND)
    assert everybody[0].texts == ["3", "1", "5", "2", "4", "half a unit later", "when it is idle"]
    assert [(t - SECOND) / MS for t, *_ in everybody[0].got] == [10, 11, 12, 13, 14, 15, 60]


def test_the_unit_of_vcube_pb_can_be_set() -> None:
    sim = Simulator(1, VCubePB(low=10.0, high=10.0, unit=7.0))
    a, b = pair(sim)
    for text in "xyz":
        a.env.send(1, Word(text))
    sim.run(2 * SECOND)
    assert [(t - SECOND) / MS for t, *_ in b.got] == [10, 17, 24]


def test_lanes_that_cost_a_receiver_of_vcube_pb_nothing_do_not_wait() -> None:
    sim = Simulator(1, VCubePB(low=10.0, high=10.0, unit=7.0, free=("control",)))
    a, b = pair(sim)
    a.env.send(1, load(1))
    a.env.send(1, load(2))
    a.env.send(1, Word("x"))
    a.env.send(1, Word("y"))
    sim.run(2 * SECOND)
    assert [(t - SECOND) // MS for t, *_ in b.got] == [10, 10, 10, 17]


def test_where_all_are_linked_a_dial_takes_no_time() -> None:
    for linked, first in ((False, 30), (True, 10)):
        sim = Simulator(1, VCubePB(low=10.0, high=10.0, linked=linked))
        a, b = probes(sim, 2)
        a.env.send(1, Word("x"))
        sim.run(SECOND)
        assert [t // MS for t, *_ in b.got] == [first]


def test_a_close_does_not_overtake_what_waits_at_a_busy_receiver() -> None:
    sim = Simulator(1, VCubePB(low=10.0, high=10.0))
    a, b = pair(sim)
    for text in "vwxyz":
        a.env.send(1, Word(text))
    a.env.disconnect(1)
    sim.run(2 * SECOND)
    assert b.texts == [*"vwxyz"]
    assert b.downs[0][0] >= b.got[-1][0]


# A slow uplink.


def size_of(machine: Probe, msg: Message) -> int:
    return machine.codec().size(msg)


def slow(bytes_a_second: float, **settings: Any) -> tuple[Simulator, Probe, Probe]:
    sim = Simulator(1, Constant(ms=10.0), bandwidth=bytes_a_second, **settings)
    a, b = pair(sim)
    return sim, a, b


@pytest.mark.parametrize("codec", [False, True])
@pytest.mark.parametrize("draw", ["copy", "send"])
def test_copies_leave_one_at_a_time_as_fast_as_the_bandwidth_allows(draw: Any, codec: bool) -> None:
    sim = Simulator(1, Constant(ms=10.0, draw=draw), bandwidth=10_000.0, codec=codec)
    hub, others = star(sim, 5)
    msg = Word("x" * 96)
    assert size_of(hub, msg) == 100
    hub.env.send_all(everyone(others), msg)
    assert arrivals(sim, others, SECOND) == [20, 30, 40, 50, 60]


def test_a_bigger_message_takes_longer() -> None:
    sim, a, b = slow(10_000.0)
    for length in (46, 96, 196):
        a.env.send(1, Word("x" * length))
    sim.run(2 * SECOND)
    sizes = [size_of(a, Word("x" * length)) for length in (46, 96, 196)]
    spent = [sum(sizes[: place + 1]) / 10 for place in range(3)]
    assert [(t - SECOND) / MS - 10 for t, *_ in b.got] == spent


def test_each_node_has_an_uplink_of_its_own() -> None:
    sim, a, b = slow(10_000.0)
    a.env.send(1, Word("x" * 96))
    b.env.send(0, Word("x" * 96))
    sim.run(2 * SECOND)
    assert a.got[0][0] == b.got[0][0] == SECOND + 20 * MS


def test_what_is_queued_leaves_by_lanes_urgent_before_control_before_payload_before_lazy() -> None:
    sim, a, b = slow(10_000.0)
    a.env.send(1, Word("on its way"))
    for msg in (Hint("lazy"), load(1, "payload"), Word("control"), Alarm("urgent"), Alarm("urgent too")):
        sim.at(SECOND + 100, a.env.send, 1, msg)
    sim.run(3 * SECOND)
    assert b.texts == ["on its way", "urgent", "urgent too", "control", "payload", "lazy"]


def test_an_urgent_message_does_not_stop_or_repeat_what_is_leaving() -> None:
    sim, a, b = slow(10_000.0)
    big, small = Word("b" * 996), Alarm("u")
    a.env.send(1, big)
    sim.at(SECOND + 50 * MS, a.env.send, 1, small)
    sim.run(3 * SECOND)
    spent = [size_of(a, big) * 100, (size_of(a, big) + size_of(a, small)) * 100]
    assert [(t - SECOND - 10 * MS, text[0]) for t, _, text in b.got] == [(spent[0], "b"), (spent[1], "u")]


def test_a_lazy_message_beyond_the_bound_is_dropped_and_told() -> None:
    rows = Rows()
    sim, a, b = slow(1_000.0, queue=300, tracer=Tracer(observer=rows))
    sent = [f"{number:096}" for number in range(5)]
    for text in sent:
        a.env.send(1, Hint(text))
    sim.run(20 * SECOND)
    assert b.texts == sent[:3]
    assert [(peer, text) for _, peer, text in a.lost] == [(1, text) for text in sent[3:]]
    assert [(row[1], row[5], row[7], row[9]) for row in rows.of(DROP)] == [(0, 1, 1, Lane.LAZY)] * 2
    assert a.downs == b.downs == []


@pytest.mark.parametrize("codec", [False, True])
def test_a_message_that_is_declared_droppable_is_dropped_like_a_lazy_one(codec: bool) -> None:
    sim, a, b = slow(1_000.0, queue=300, codec=codec)
    sent = [f"{number:096}" for number in range(5)]
    for text in sent:
        a.env.send(1, Spare(text))
    sim.run(20 * SECOND)
    assert b.texts == sent[:3]
    assert [text for *_, text in a.lost] == sent[3:]
    assert a.downs == b.downs == []


@pytest.mark.parametrize("codec", [False, True])
def test_any_other_message_beyond_the_bound_takes_the_link_down_for_overload_after_what_was_queued(codec: bool) -> None:
    sim, a, b = slow(1_000.0, queue=300, codec=codec)
    sent = [f"{number:096}" for number in range(4)]
    for text in sent:
        a.env.send(1, Word(text))
    sim.run(20 * SECOND)
    assert [(t, reason) for t, _, _, reason in a.downs] == [(SECOND, "overload")]
    assert b.texts == sent[:3]
    assert [reason for *_, reason in b.downs] == ["closed"]
    assert b.downs[0][0] >= b.got[-1][0]
    assert [text for *_, text in a.lost] == sent[3:]


def test_a_message_larger_than_the_bound_leaves_when_nothing_else_waits() -> None:
    sim, a, b = slow(10_000.0, queue=50)
    a.env.send(1, Word("x" * 96))
    sim.run(2 * SECOND)
    assert len(b.got) == 1 and a.downs == []


def test_the_backlog_is_what_has_not_left_and_drained_tells_when_it_is_gone() -> None:
    sim, a, b = slow(10_000.0)
    for _ in range(3):
        a.env.send(1, Word("x" * 96))
    assert a.env.backlog(1) == 300
    sim.run(SECOND + 15 * MS)
    assert (a.env.backlog(1), a.drains) == (200, [])
    sim.run(2 * SECOND)
    assert (a.env.backlog(1), a.drains) == (0, [(SECOND + 30 * MS, 1)])
    assert b.env.backlog(0) == 0 and b.drains == []


def test_without_a_limit_nothing_waits() -> None:
    sim = Simulator(1, Constant(ms=10.0))
    a, _ = pair(sim)
    a.env.send(1, Word("x" * 96))
    assert a.env.backlog(1) == 0


def by_lanes(**settings: Any) -> tuple[Simulator, Probe, Probe]:
    """A word of a hundred bytes takes 100 ms."""
    return slow(1_000.0, **settings)


def in_line(**settings: Any) -> tuple[Simulator, Probe, Probe]:
    """Any copy takes 100 ms."""
    sim = Simulator(1, VCubePS(t_pp=10.0, t_pc=0.0, t_t=100.0, free=()), **settings)
    a, b = pair(sim)
    return sim, a, b


Make: TypeAlias = Callable[..., tuple[Simulator, Probe, Probe]]
EITHER = pytest.mark.parametrize("make", [by_lanes, in_line])


def test_in_plain_order_the_backlog_is_what_has_not_left_and_drained_tells_when_it_is_gone() -> None:
    sim, a, b = in_line()
    for text in "xyz":
        a.env.send(1, Word(text))
    assert a.env.backlog(1) == 3
    sim.run(SECOND + 150 * MS)
    assert (a.env.backlog(1), a.drains) == (2, [])
    sim.run(2 * SECOND)
    assert (a.env.backlog(1), a.drains) == (0, [(SECOND + 300 * MS, 1)])
    assert [(t - SECOND) // MS for t, *_ in b.got] == [110, 210, 310]


def test_a_free_copy_waits_for_no_turn_but_overtakes_nothing_on_its_link() -> None:
    sim = Simulator(1, VCubePS(t_pp=10.0, t_pc=0.0, t_t=100.0, free=("control",)))
    hub, others = star(sim, 2)
    for number in (1, 2):
        hub.env.send(1, load(number, "payload"))
    for peer in (1, 2):
        hub.env.send(peer, Word("free"))
    sim.run(20 * SECOND)
    assert [[((t - SECOND) // MS, text) for t, _, text in other.got] for other in others] == [
        [(110, "payload"), (210, "payload"), (210, "free")],
        [(10, "free")],
    ]


def test_what_never_left_keeps_its_turn_and_is_dropped_once() -> None:
    rows = Rows()
    sim = Simulator(1, VCubePS(t_pp=10.0, t_pc=0.0, t_t=100.0, free=()), Tracer(observer=rows), detection=50 * MS)
    hub, others = star(sim, 2)
    for peer in (1, 1, 2):
        hub.env.send(peer, Word("x"))
    sim.crash(1)
    sim.at(SECOND + 200 * MS, sim.crash, 0)
    sim.run(20 * SECOND)
    assert [len(other.got) for other in others] == [0, 0]
    assert [(row[0] // MS, row[5]) for row in rows.of(DROP)] == [(1_050, 1), (1_050, 1), (1_200, 2)]


@EITHER
def test_a_node_that_leaves_sends_what_waits_at_its_uplink_first(make: Make) -> None:
    sim, a, b = make()
    for text in ("x" * 96, "y" * 96):
        a.env.send(1, Word(text))
    sim.leave(0)
    sim.run(20 * SECOND)
    assert [text[0] for text in b.texts] == ["x", "y", "g"]
    assert [reason for *_, reason in b.downs] == ["closed"]


@EITHER
def test_what_waits_at_the_uplink_of_a_node_that_crashed_is_gone(make: Make) -> None:
    sim, a, b = make()
    for text in ("x" * 96, "y" * 96):
        a.env.send(1, Word(text))
    sim.at(SECOND + 150 * MS, sim.crash, 0)
    sim.run(20 * SECOND)
    assert [text[0] for text in b.texts] == ["x"]


@EITHER
def test_a_crash_ends_the_flushing_of_a_link_that_was_released_and_the_other_end_finds_out(make: Make) -> None:
    sim, a, b = make(detection=2 * SECOND)
    for text in ("x" * 96, "y" * 96):
        a.env.send(1, Word(text))
    a.env.disconnect(1)
    sim.at(SECOND + 150 * MS, sim.crash, 0)
    sim.run(20 * SECOND)
    assert [text[0] for text in b.texts] == ["x"]
    assert [(t, reason) for t, _, _, reason in b.downs] == [(SECOND + 2_150 * MS, "timeout")]


@EITHER
def test_a_message_that_waited_at_the_uplink_of_a_link_that_went_down_comes_back(make: Make) -> None:
    sim, a, b = make(detection=50 * MS)
    a.env.send(1, Word("x" * 96))
    a.env.send(1, Word("y" * 96))
    sim.crash(1)
    sim.run(20 * SECOND)
    assert (b.texts, [text[0] for *_, text in a.lost]) == ([], ["x", "y"])
    assert a.downs[0][0] == SECOND + 50 * MS
