"""The simulator: order, links that take time and fail, lives of a node, what is counted, and the same run for the same seed."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libweft.bench.runs.replay import command
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Churn, Network, Scenario, Workload
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.machine import (
    MS,
    SECOND,
    Build,
    Env,
    Lane,
    Link,
    Machine,
    Message,
    MessageId,
    Peer,
    PeerInfo,
    Reply,
    answers,
    upon,
)
from libweft.peer.sim import faults, latency
from libweft.peer.sim.latency import Constant, Uniform
from libweft.peer.sim.network import Half
from libweft.peer.sim.simulator import Simulator
from libweft.peer.trace.tracer import Tracer
from tests.conftest import note_replay

ROOT = Path(__file__).parents[2]
DRAWS = pytest.mark.parametrize("draw", ["copy", "send"])


class Word(Message, frozen=True, tag=1):
    text: str


class Alarm(Message, frozen=True, tag=2):
    lane: ClassVar[Lane] = Lane.URGENT

    text: str


class Load(Message, frozen=True, tag=3):
    lane: ClassVar[Lane] = Lane.PAYLOAD

    id: MessageId
    topic: str
    text: str


class Hint(Message, frozen=True, tag=4):
    lane: ClassVar[Lane] = Lane.LAZY

    text: str


class Spare(Message, frozen=True, tag=5):
    droppable: ClassVar[bool] = True

    text: str


class Question(Message, frozen=True, tag=6):
    text: str


class Probe(Machine):
    """Writes down all that it is told, and when. A word that says `poison` is a peer's fault, one that says `bug` is ours."""

    protocols: tuple[str, ...] = ("/test/probe",)

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.got: list[tuple[int, Peer, str]] = []
        self.ups: list[tuple[int, Peer, Link]] = []
        self.downs: list[tuple[int, Peer, int, str]] = []
        self.lost: list[tuple[int, Peer, str]] = []
        self.drains: list[tuple[int, Peer]] = []
        self.replies: list[tuple[int, Peer, str]] = []
        self.failures: list[tuple[int, Peer, str]] = []
        self.restored: bytes | None = None
        self.started = 0

    def start(self) -> None:
        self.started = self.env.now()

    def stop(self) -> None:
        for peer in [peer for _, peer, _ in self.ups]:
            self.env.send(peer, Word("goodbye"))

    def link_up(self, peer: Peer, link: Link) -> None:
        self.ups.append((self.env.now(), peer, link))

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        self.downs.append((self.env.now(), peer, incarnation, reason))

    def drained(self, peer: Peer) -> None:
        self.drains.append((self.env.now(), peer))

    def dropped(self, peer: Peer, msg: Message) -> None:
        self.lost.append((self.env.now(), peer, msg.text))  # type: ignore[attr-defined]

    def snapshot(self) -> bytes:
        return b"as it was"

    def restore(self, state: bytes) -> None:
        self.restored = state

    @upon(Word)
    def on_word(self, sender: Peer, msg: Word) -> None:
        if msg.text == "poison":
            raise PeerError("poison")
        if msg.text == "bug":
            raise ZeroDivisionError("bug")
        self._note(sender, msg)

    @upon(Alarm)
    def on_alarm(self, sender: Peer, msg: Alarm) -> None:
        self._note(sender, msg)

    @upon(Load)
    def on_load(self, sender: Peer, msg: Load) -> None:
        self._note(sender, msg)

    @upon(Hint)
    def on_hint(self, sender: Peer, msg: Hint) -> None:
        self._note(sender, msg)

    @upon(Spare)
    def on_spare(self, sender: Peer, msg: Spare) -> None:
        self._note(sender, msg)

    @answers(Question, Word)
    def on_question(self, sender: Peer, msg: Question, reply: Reply) -> None:
        self._note(sender, msg)
        if msg.text != "silence":
            reply(Word(f"answer to {msg.text}"))

    def ask(self, peer: Peer, text: str, timeout: int = SECOND) -> None:
        self.env.request(peer, Question(text), timeout, self._replied, self._failed)

    def _note(self, sender: Peer, msg: Any) -> None:
        self.got.append((self.env.now(), sender, msg.text))

    def _replied(self, peer: Peer, msg: Word) -> None:
        self.replies.append((self.env.now(), peer, msg.text))

    def _failed(self, peer: Peer, reason: str) -> None:
        self.failures.append((self.env.now(), peer, reason))

    @property
    def texts(self) -> list[str]:
        return [text for _, _, text in self.got]


class Second(Probe):
    protocols = ("/test/second",)


def build(env: Callable[[], Env]) -> list[Machine]:
    return [Probe(env())]


def build_two(env: Callable[[], Env]) -> list[Machine]:
    return [Probe(env()), Second(env())]


def probes(sim: Simulator, count: int, stack: Build = build) -> list[Probe]:
    return [probe(sim, sim.add(stack)) for _ in range(count)]


def probe(sim: Simulator, node: int, place: int = 0) -> Probe:
    machine = sim.nodes[node].machines[place]
    assert isinstance(machine, Probe)
    return machine


def pair(sim: Simulator, settle: int = SECOND) -> tuple[Probe, Probe]:
    """Two nodes with a link, held by the first."""
    a, b = probes(sim, 2)
    a.env.connect(b.env.me)
    sim.run(settle)
    assert len(a.ups) == len(b.ups) == 1
    return a, b


def load(number: int, text: str = "") -> Load:
    return Load(MessageId(0, 0, number), "t", text)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """A run that would never end fails instead."""

    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"not done within {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# Order.


def test_things_happen_in_order_of_time_and_then_of_their_scheduling() -> None:
    sim, seen = Simulator(), list[str]()
    sim.at(5 * MS, seen.append, "third")
    sim.at(3 * MS, seen.append, "first")
    sim.at(3 * MS, seen.append, "second")
    sim.at(3 * MS, sim.at, 0, seen.append, "of the past, so now")
    sim.at(70 * SECOND, seen.append, "last")
    sim.run(100 * SECOND)
    assert seen == ["first", "second", "of the past, so now", "third", "last"]
    assert sim.now == 100 * SECOND


@DRAWS
def test_timers_and_copies_of_one_moment_come_in_the_order_of_their_scheduling(draw: Any) -> None:
    sim = Simulator(latency=Constant(ms=50.0, draw=draw))
    a, b = pair(sim)
    b.env.after(50 * MS, b.got.append, (0, 0, "timer first"))
    a.env.send(1, Word("copy"))
    b.env.after(50 * MS, b.got.append, (0, 0, "timer last"))
    sim.run(2 * SECOND)
    assert b.texts == ["timer first", "copy", "timer last"]


def test_a_run_handles_what_is_due_at_its_last_moment_and_nothing_later() -> None:
    sim, seen = Simulator(), list[str]()
    sim.at(SECOND, seen.append, "due")
    sim.at(2 * SECOND, seen.append, "later")
    sim.run(SECOND)
    assert (seen, sim.now) == (["due"], SECOND)
    sim.run(3 * SECOND)
    assert seen == ["due", "later"]


def test_a_run_ends_though_something_else_is_due_a_moment_after_its_end() -> None:
    sim, seen = Simulator(), list[str]()
    sim.at(501, seen.append, "later")
    with within(60):
        sim.run(500)
    assert (seen, sim.now) == ([], 500)
    with within(60):
        sim.run(501)
    assert seen == ["later"]


def test_a_run_into_the_past_is_refused() -> None:
    sim = Simulator()
    sim.run(SECOND)
    with pytest.raises(UsageError, match="1000000 us already"):
        sim.run(SECOND - 1)


def test_a_timer_of_the_past_is_refused() -> None:
    (a,) = probes(Simulator(), 1)
    with pytest.raises(UsageError, match="lies in the past"):
        a.env.after(-1, print)


@DRAWS
@given(gaps=st.lists(st.integers(0, 40 * MS), min_size=1, max_size=40), seed=st.integers(0, 10**6))
@settings(max_examples=40)
def test_a_link_keeps_the_order_of_what_was_sent_and_a_close_comes_last(draw: Any, gaps: list[int], seed: int) -> None:
    sim = Simulator(seed, Uniform(low=1.0, high=100.0, draw=draw))
    a, b = pair(sim)
    t = sim.now
    for place, gap in enumerate(gaps):
        t += gap
        sim.at(t, a.env.send, 1, Word(str(place)))
    sim.at(t, a.env.disconnect, 1)
    sim.run(t + SECOND)
    assert b.texts == [str(place) for place in range(len(gaps))]
    assert b.got[-1][0] <= b.downs[0][0]
    assert [reason for *_, reason in b.downs] == ["closed"]


@DRAWS
def test_copies_of_one_send_and_single_sends_keep_one_order(draw: Any) -> None:
    sim = Simulator(3, Uniform(low=1.0, high=100.0, draw=draw))
    a, *others = probes(sim, 4)
    for peer in (1, 2, 3):
        a.env.connect(peer)
    sim.run(SECOND)
    for number in range(100):
        if number % 3:
            sim.at(SECOND + number * MS, a.env.send_all, (1, 2, 3), Word(str(number)))
        else:
            for peer in (1, 2, 3):
                sim.at(SECOND + number * MS, a.env.send, peer, Word(str(number)))
    sim.run(3 * SECOND)
    assert [other.texts for other in others] == [[str(number) for number in range(100)]] * 3


def test_with_a_draw_a_send_all_copies_arrive_together_and_with_a_draw_a_copy_they_do_not() -> None:
    spans = {}
    for draw in ("copy", "send"):
        sim = Simulator(1, Uniform(low=1.0, high=100.0, draw=draw))
        a, *others = probes(sim, 6)
        for peer in range(1, 6):
            a.env.connect(peer)
        sim.run(SECOND)
        a.env.send_all((1, 2, 3, 4, 5), Word("all"))
        sim.run(2 * SECOND)
        arrivals = [other.got[0][0] for other in others]
        spans[draw] = max(arrivals) - min(arrivals)
    assert spans["send"] == 0 < spans["copy"]


# Dialling.


def test_a_dial_takes_a_round_trip_and_shows_at_the_other_end_a_way_later() -> None:
    sim = Simulator(latency=Constant(ms=50.0))
    a, b = pair(sim)
    assert [t for t, *_ in a.ups] == [100 * MS]
    assert [t for t, *_ in b.ups] == [150 * MS]
    assert (a.ups[0][2].outbound, b.ups[0][2].outbound) == (True, False)


def test_a_dial_to_a_node_that_is_down_is_refused_after_a_round_trip() -> None:
    sim = Simulator(latency=Constant(ms=50.0))
    a, _ = probes(sim, 2)
    sim.crash(1)
    a.env.connect(1)
    sim.run(10 * SECOND)
    assert a.downs == [(100 * MS, 1, 0, "refused")]


def test_a_dial_to_a_node_that_does_not_exist_is_refused() -> None:
    sim = Simulator(latency=Constant(ms=50.0))
    (a,) = probes(sim, 1)
    a.env.connect(7)
    sim.run(10 * SECOND)
    assert a.downs == [(100 * MS, 7, 0, "refused")]


def test_a_dial_towards_a_node_behind_nat_fails_after_the_dial_timeout_and_its_own_dial_succeeds() -> None:
    sim = Simulator(latency=Constant(ms=50.0), dial_timeout=3 * SECOND)
    a, b = probes(sim, 2)
    sim.inject([faults.Nat(nodes=(1,))])
    sim.run(0)
    a.env.connect(1)
    sim.run(10 * SECOND)
    assert a.downs == [(3 * SECOND, 1, 0, "no answer")]
    b.env.connect(0)
    sim.run(20 * SECOND)
    assert len(a.ups) == len(b.ups) == 1


def test_a_dial_that_was_overtaken_does_not_end_a_later_one() -> None:
    sim = Simulator(latency=Constant(ms=50.0), dial_timeout=5 * SECOND)
    a, b = probes(sim, 2)
    sim.inject([faults.Nat(nodes=(1,))])
    sim.at(1, a.env.connect, 1)  # would fail at 5 s
    sim.at(SECOND, b.env.connect, 0)
    sim.at(2 * SECOND, b.env.disconnect, 0)
    sim.at(3 * SECOND, a.env.connect, 1)  # fails at 8 s
    sim.run(20 * SECOND)
    assert [(t, incarnation) for t, _, incarnation, _ in a.downs if not incarnation] == [(8 * SECOND, 0)]


def test_a_node_that_dials_itself_is_told_that_it_cannot() -> None:
    sim = Simulator()
    (a,) = probes(sim, 1)
    a.env.connect(0)
    assert a.downs == []
    sim.run(SECOND)
    assert [(peer, incarnation) for _, peer, incarnation, _ in a.downs] == [(0, 0)]


def test_later_links_have_higher_incarnations_the_same_at_both_ends() -> None:
    sim = Simulator(latency=Constant(ms=5.0))
    a, b = pair(sim)
    for _ in range(3):
        a.env.disconnect(1)
        sim.run(sim.now + SECOND)
        a.env.connect(1)
        sim.run(sim.now + SECOND)
    seen = [link.incarnation for *_, link in a.ups]
    assert seen == [link.incarnation for *_, link in b.ups] == sorted(set(seen))
    assert len(seen) == 4
    assert [incarnation for _, _, incarnation, _ in a.downs] == seen[:3]


@DRAWS
@given(seed=st.integers(0, 10**6), gap=st.integers(0, 300 * MS))
@settings(max_examples=40)
def test_simultaneous_dials_settle_on_one_link(draw: Any, seed: int, gap: int) -> None:
    sim = Simulator(seed, Uniform(low=1.0, high=100.0, draw=draw))
    a, b = probes(sim, 2)
    sim.at(0, a.env.connect, 1)
    sim.at(gap, b.env.connect, 0)
    sim.at(gap, a.env.send, 1, Word("from a"))
    sim.at(gap, b.env.send, 0, Word("from b"))
    sim.run(5 * SECOND)
    assert [link.incarnation for *_, link in a.ups] == [link.incarnation for *_, link in b.ups]
    assert (len(a.ups), a.downs, b.downs) == (1, [], [])
    assert (a.texts, b.texts) == (["from b"], ["from a"])


def test_what_was_learned_of_a_peer_is_given_back() -> None:
    (a,) = probes(Simulator(), 1)
    assert a.env.info(5) == PeerInfo(5)
    a.env.learn(PeerInfo(5, ("/ip4/1.2.3.4",)))
    assert a.env.info(5).addresses == ("/ip4/1.2.3.4",)


# Messages that wait for a dial.


def test_messages_wait_for_the_dial_and_arrive_in_order() -> None:
    sim = Simulator(latency=Constant(ms=50.0))
    a, b = probes(sim, 2)
    for text in "abc":
        a.env.send(1, Word(text))
    sim.run(SECOND)
    assert [(t, text) for t, _, text in b.got] == [(150 * MS, "a"), (150 * MS, "b"), (150 * MS, "c")]


def test_what_waits_for_a_dial_is_bounded_and_what_is_too_much_comes_back() -> None:
    sim = Simulator(latency=Constant(ms=50.0))
    a, b = probes(sim, 2)
    texts = [str(number) for number in range(2_000)]
    for text in texts:
        a.env.send(1, Word(text))
    assert a.lost == []
    sim.run(50 * MS)
    sent = len(texts) - len(a.lost)
    assert 0 < sent <= 1_000
    assert [text for *_, text in a.lost] == texts[sent:]
    sim.run(SECOND)
    assert b.texts == texts[:sent]


def test_messages_that_wait_for_a_dial_that_fails_come_back() -> None:
    sim = Simulator(latency=Constant(ms=50.0))
    a, _ = probes(sim, 2)
    sim.crash(1)
    a.env.send(1, Word("one"))
    a.env.send(1, Word("two"))
    sim.run(SECOND)
    assert a.lost == [(100 * MS, 1, "one"), (100 * MS, 1, "two")]


def test_a_message_for_which_the_peer_has_no_machine_comes_back() -> None:
    sim = Simulator(latency=Constant(ms=50.0))
    sim.add(build_two)
    sim.add(build)
    probe(sim, 0).env.connect(1)
    sim.run(SECOND)
    probe(sim, 0, 1).env.send(1, Word("for nobody"))
    sim.run(2 * SECOND)
    assert [text for *_, text in probe(sim, 0, 1).lost] == ["for nobody"]
    assert probe(sim, 1).got == []


# Crashes and departures.


def test_a_crash_shows_only_after_the_detection_delay_and_what_is_sent_until_then_vanishes() -> None:
    sim = Simulator(latency=Constant(ms=50.0), detection=4 * SECOND)
    a, b = pair(sim)
    sim.at(SECOND, sim.crash, 1)
    sim.at(3 * SECOND, a.env.send, 1, Word("into the void"))
    sim.run(5 * SECOND - 1)
    assert a.downs == [] and a.lost == []
    sim.run(10 * SECOND)
    assert a.downs == [(5 * SECOND, 1, a.ups[0][2].incarnation, "timeout")]
    assert (b.got, a.lost) == ([], [])


def test_what_a_node_sent_before_it_crashed_still_arrives() -> None:
    sim = Simulator(latency=Constant(ms=50.0))
    a, b = pair(sim)
    sim.at(2 * SECOND, b.env.send, 0, Word("last words"))
    sim.at(2 * SECOND, sim.crash, 1)
    sim.run(20 * SECOND)
    assert a.got == [(2_050 * MS, 1, "last words")]


def test_a_crashed_node_does_nothing_more() -> None:
    sim = Simulator(latency=Constant(ms=50.0))
    a, b = pair(sim)
    b.env.after(2 * SECOND, b.env.send, 0, Word("from beyond"))
    b.env.after(2 * SECOND, b.got.append, (0, 0, "a timer"))
    a.env.send(1, Word("in flight"))
    sim.crash(1)
    b.env.send(0, Word("from beyond"))
    b.env.connect(0)
    sim.run(20 * SECOND)
    assert (a.got, b.got) == ([], [])


def test_a_node_that_leaves_says_goodbye_and_its_links_close_after_it() -> None:
    sim = Simulator(latency=Constant(ms=50.0))
    a, b = pair(sim)
    sim.at(2 * SECOND, sim.leave, 1)
    sim.run(20 * SECOND)
    assert a.got == [(2_050 * MS, 1, "goodbye")]
    assert a.downs == [(2_050 * MS, 1, a.ups[0][2].incarnation, "closed")]
    assert b.downs == [] and not sim.nodes[1].up


def test_crashing_or_leaving_twice_changes_nothing() -> None:
    sim = Simulator(latency=Constant(ms=50.0))
    a, _ = pair(sim)
    for _ in range(2):
        sim.crash(1)
        sim.leave(1)
        sim.restart(1, SECOND, True)
    sim.run(20 * SECOND)
    assert len(a.downs) == 1 and not sim.nodes[1].up


# Holds and idle links.


def two_pairs(sim: Simulator) -> tuple[Probe, Probe, Probe, Probe]:
    """Two nodes with two machines each, and a link that both machines of the first hold."""
    sim.add(build_two)
    sim.add(build_two)
    probe(sim, 0, 0).env.connect(1)
    probe(sim, 0, 1).env.connect(1)
    sim.run(SECOND)
    return probe(sim, 0, 0), probe(sim, 0, 1), probe(sim, 1, 0), probe(sim, 1, 1)


def test_a_link_closes_only_when_both_machines_have_released_it() -> None:
    sim = Simulator(latency=Constant(ms=50.0), idle=10 * SECOND)
    first, second, *others = two_pairs(sim)
    first.env.disconnect(1)
    sim.run(30 * SECOND)
    assert all(not machine.downs for machine in (first, second, *others))
    second.env.disconnect(1)
    sim.run(31 * SECOND)
    assert [[reason for *_, reason in machine.downs] for machine in (first, second)] == [["released"]] * 2
    assert [[reason for *_, reason in machine.downs] for machine in others] == [["closed"]] * 2


def test_a_machine_that_holds_twice_releases_once() -> None:
    sim = Simulator(latency=Constant(ms=50.0))
    a, b = pair(sim)
    a.env.connect(1)
    a.env.disconnect(1)
    sim.run(2 * SECOND)
    assert len(a.downs) == len(b.downs) == 1


def test_both_machines_hear_of_a_dial_that_failed() -> None:
    sim = Simulator(latency=Constant(ms=50.0))
    sim.add(build_two)
    probe(sim, 0, 0).env.connect(5)
    probe(sim, 0, 1).env.connect(5)
    sim.run(SECOND)
    assert [(t, incarnation) for t, _, incarnation, _ in probe(sim, 0, 0).downs] == [(100 * MS, 0)]
    assert probe(sim, 0, 0).downs == probe(sim, 0, 1).downs


@DRAWS
def test_a_link_that_nobody_holds_closes_when_it_was_idle_for_a_while(draw: Any) -> None:
    sim = Simulator(latency=Constant(ms=50.0, draw=draw), idle=10 * SECOND)
    a, b = probes(sim, 2)
    a.env.send(1, Word("hello"))
    sim.run(9 * SECOND)
    assert a.downs == b.downs == []
    sim.run(30 * SECOND)
    assert len(a.downs) == len(b.downs) == 1
    assert {reason for *_, reason in a.downs + b.downs} == {"idle", "closed"}


def test_links_that_are_over_leave_nothing_for_the_collector() -> None:
    """None runs in a simulation, and an overlay makes links by the hundred thousand."""
    sim = Simulator(latency=Constant(ms=50.0), idle=SECOND, detection=SECOND)
    a, b, c, _ = probes(sim, 4)
    sim.run(SECOND)
    gc.collect()
    gc.disable()
    try:
        a.env.send(1, Word("idle"))
        for peer in (1, 2):
            b.env.connect(peer)
            c.env.connect(peer)
        c.env.connect(3)
        sim.run(2 * SECOND)
        sim.crash(3)
        sim.inject([faults.Reset(at=2.5, share=0.5)])
        for peer in (1, 2):
            b.env.disconnect(peer)
            c.env.disconnect(peer)
        sim.run(30 * SECOND)
        assert not any(node.links for node in sim.nodes.values())
        assert not [half for half in gc.get_objects() if isinstance(half, Half) and half.source >= 0]
    finally:
        gc.enable()


@DRAWS
@pytest.mark.parametrize("user", [0, 1])
def test_a_link_in_use_is_not_idle(draw: Any, user: int) -> None:
    sim = Simulator(latency=Constant(ms=50.0, draw=draw), idle=10 * SECOND)
    ends = probes(sim, 2)
    ends[0].env.send(1, Word("hello"))
    for second in range(4, 40, 4):
        sim.at(second * SECOND, ends[user].env.send, 1 - user, Word(str(second)))
    sim.run(45 * SECOND)
    assert [end.downs for end in ends] == [[], []]
    sim.run(60 * SECOND)
    assert [len(end.downs) for end in ends] == [1, 1]


@DRAWS
@pytest.mark.parametrize("holder", [0, 1])
def test_a_link_that_either_end_holds_is_never_idle(draw: Any, holder: int) -> None:
    sim = Simulator(latency=Constant(ms=50.0, draw=draw), idle=SECOND)
    a, b = probes(sim, 2)
    a.env.send(1, Word("hello"))
    sim.at(500 * MS, (a, b)[holder].env.connect, 1 - holder)
    sim.run(30 * SECOND)
    assert a.downs == b.downs == []


# Requests.


def test_a_request_is_answered_after_a_round_trip() -> None:
    sim = Simulator(latency=Constant(ms=50.0))
    a, b = pair(sim)
    a.ask(1, "x")
    sim.run(5 * SECOND)
    assert (b.got, a.replies) == ([(1_050 * MS, 0, "x")], [(1_100 * MS, 1, "answer to x")])
    assert a.failures == []


def test_a_request_without_an_answer_fails_at_its_timeout() -> None:
    sim = Simulator(latency=Constant(ms=50.0))
    a, _ = pair(sim)
    a.ask(1, "silence", timeout=3 * SECOND)
    sim.run(10 * SECOND)
    assert (a.replies, a.failures) == ([], [(4 * SECOND, 1, "timeout")])


def test_a_request_fails_when_its_link_goes_down_and_never_again() -> None:
    sim = Simulator(latency=Constant(ms=50.0), detection=2 * SECOND)
    a, _ = pair(sim)
    a.ask(1, "silence", timeout=9 * SECOND)
    sim.crash(1)
    sim.run(30 * SECOND)
    assert a.failures == [(3 * SECOND, 1, "timeout")]


def test_a_request_whose_dial_fails_fails_once() -> None:
    sim = Simulator(latency=Constant(ms=50.0))
    a, _ = probes(sim, 2)
    sim.crash(1)
    a.ask(1, "x", timeout=9 * SECOND)
    sim.run(30 * SECOND)
    assert a.failures == [(100 * MS, 1, "refused")]


def test_a_request_made_after_a_release_is_not_lost_with_the_old_link() -> None:
    sim = Simulator(latency=Constant(ms=50.0))
    a, _ = pair(sim)
    a.env.disconnect(1)
    a.ask(1, "x")
    sim.run(10 * SECOND)
    assert [text for *_, text in a.replies] == ["answer to x"]
    assert a.failures == []


# Lives.


def test_a_restart_with_state_keeps_the_store_and_the_snapshot() -> None:
    sim = Simulator(latency=Constant(ms=50.0))
    (a,) = probes(sim, 1)
    a.env.store["index"] = b"7"
    sim.at(SECOND, sim.restart, 0, 2 * SECOND, True)
    sim.run(2 * SECOND)
    assert not sim.nodes[0].up
    sim.run(10 * SECOND)
    again = probe(sim, 0)
    assert again is not a and again.started == 3 * SECOND
    assert (dict(again.env.store), again.restored) == ({"index": b"7"}, b"as it was")


def test_a_restart_without_state_begins_with_nothing() -> None:
    sim = Simulator(latency=Constant(ms=50.0))
    (a,) = probes(sim, 1)
    a.env.store["index"] = b"7"
    sim.at(SECOND, sim.restart, 0, 2 * SECOND, False)
    sim.run(10 * SECOND)
    again = probe(sim, 0)
    assert again is not a and again.started == 3 * SECOND
    assert (dict(again.env.store), again.restored) == ({}, None)


def test_the_machines_of_a_node_have_stores_of_their_own() -> None:
    sim = Simulator()
    sim.add(build_two)
    sim.add(build_two)
    probe(sim, 0, 0).env.store["k"] = b"v"
    assert [dict(probe(sim, node, place).env.store) for node, place in ((0, 1), (1, 0))] == [{}, {}]


@pytest.mark.parametrize("state", [True, False])
@pytest.mark.parametrize("down", [0, SECOND])
def test_the_epoch_differs_at_each_start(state: bool, down: int) -> None:
    sim = Simulator(latency=Constant(ms=50.0))
    (a,) = probes(sim, 1)
    epochs = [a.env.epoch]
    for _ in range(3):
        sim.restart(0, down, state)
        sim.run(sim.now + down)
        epochs.append(probe(sim, 0).env.epoch)
    assert epochs == sorted(set(epochs))


def test_what_is_told_at_each_start_is_told_after_the_machines_started() -> None:
    sim, starts = Simulator(), list[tuple[int, int]]()
    sim.add(build, lambda node: starts.append((node.id, node.machines[0].env.now())))
    sim.restart(0, SECOND, True)
    sim.run(2 * SECOND)
    assert starts == [(0, 0), (0, SECOND)]


@DRAWS
def test_a_node_that_came_back_is_dialled_anew_and_its_old_link_is_gone(draw: Any) -> None:
    sim = Simulator(latency=Constant(ms=50.0, draw=draw), detection=5 * SECOND)
    a, _ = pair(sim)
    sim.restart(1, SECOND, True)
    sim.at(3 * SECOND, a.env.send, 1, Word("to the dead"))
    sim.at(4 * SECOND, lambda: probe(sim, 1).env.send(0, Word("back again")))
    sim.at(5 * SECOND, a.env.send, 1, Word("to the living"))
    sim.run(30 * SECOND)
    assert a.texts == ["back again"] and probe(sim, 1).texts == ["to the living"]
    assert [link.incarnation for *_, link in a.ups] == sorted(link.incarnation for *_, link in a.ups)
    assert [(incarnation, reason) for _, _, incarnation, reason in a.downs] == [(a.ups[0][2].incarnation, "replaced")]


# Whose fault it is.


@DRAWS
@pytest.mark.parametrize("codec", [False, True])
def test_a_peers_fault_costs_one_link(draw: Any, codec: bool) -> None:
    sim = Simulator(latency=Constant(ms=50.0, draw=draw), codec=codec)
    a, b, c = probes(sim, 3)
    a.env.connect(1)
    a.env.connect(2)
    sim.run(SECOND)
    b.env.send(0, Word("poison"))
    b.env.send(0, Word("never taken"))
    sim.run(2 * SECOND)
    assert [(peer, reason) for _, peer, _, reason in a.downs] == [(1, "peer error: poison")]
    assert [(peer, reason) for _, peer, _, reason in b.downs] == [(0, "closed")]
    c.env.send(0, Word("still here"))
    sim.run(3 * SECOND)
    assert (a.texts, c.downs) == (["still here"], [])


@DRAWS
@pytest.mark.parametrize("codec", [False, True])
def test_an_exception_of_a_machine_comes_out_of_the_run_with_seed_and_virtual_time(draw: Any, codec: bool) -> None:
    sim = Simulator(17, Constant(ms=50.0, draw=draw), codec=codec)
    a, _ = pair(sim)
    a.env.send(1, Word("bug"))
    with pytest.raises(ZeroDivisionError, match="bug") as caught:
        sim.run(5 * SECOND)
    assert caught.value.__notes__ == ["simulation: seed 17, virtual time 1.050000 s"]


def test_a_message_that_no_handler_takes_costs_the_link() -> None:
    sim = Simulator(latency=Constant(ms=50.0))
    a, b = pair(sim)
    a.env.send(1, Question("told, not asked"))
    sim.run(3 * SECOND)
    assert len(a.downs) == len(b.downs) == 1


def test_a_stack_that_is_built_out_of_order_is_refused() -> None:
    def crooked(env: Callable[[], Env]) -> list[Machine]:
        low, high = Probe(env()), Probe(env())
        return [high, low]

    with pytest.raises(UsageError, match="lowest machine first"):
        Simulator().add(crooked)


# What is counted.


@DRAWS
@pytest.mark.parametrize("codec", [False, True])
def test_events_are_copies_handed_timers_fired_and_link_upcalls(draw: Any, codec: bool) -> None:
    sim = Simulator(latency=Constant(ms=50.0, draw=draw), codec=codec, detection=SECOND)
    (a, b, c), fired = probes(sim, 3), list[str]()
    a.env.connect(1)
    a.env.connect(2)
    a.env.send(1, Word("waits for the dial"))
    sim.run(SECOND)
    assert sim.events == (events := 4 + 1)  # link_up four times, one copy

    a.env.send_all((1, 2), Word("both"))
    b.env.send(0, Word("one"))
    a.env.send_all((1, 2), Word("but one"), 2)
    sim.run(2 * SECOND)
    assert sim.events == (events := events + 2 + 1 + 1)

    a.env.after(MS, fired.append, "a")
    a.env.after(MS, fired.append, "cancelled").cancel()
    sim.at(sim.now + MS, fired.append, "no machine's")
    sim.run(3 * SECOND)
    assert sim.events == (events := events + 1)

    a.env.send(2, Word("vanishes"))
    a.env.after(10 * MS, fired.append, "a")
    c.env.after(10 * MS, fired.append, "a dead node's")
    sim.crash(2)
    sim.run(6 * SECOND)
    assert sim.events == (events := events + 1 + 1)  # the timer that lived, and link_down
    assert fired == ["a", "no machine's", "a"]

    b.ask(0, "x")
    sim.run(9 * SECOND)
    assert sim.events == (events := events + 2)  # the request and its reply; its timer was cancelled

    b.env.connect(2)
    b.env.send(0, Word("poison"))
    sim.run(12 * SECOND)
    assert sim.events == events + 1 + 1 + 2  # a dial that failed, the poison, link_down at both ends


def test_copies_that_a_fault_takes_are_no_events_and_those_that_it_adds_are() -> None:
    for fault, copies in ((faults.Loss(p=1.0), 0), (faults.Duplicate(p=1.0), 2)):
        sim = Simulator(latency=Constant(ms=50.0))
        a, b = pair(sim)
        sim.inject([fault])
        before = sim.events
        sim.at(2 * SECOND, a.env.send, 1, Word("x"))
        sim.run(5 * SECOND)
        assert len(b.got) == copies
        assert sim.events == before + copies


def test_a_copy_that_no_machine_takes_is_no_event() -> None:
    sim = Simulator(latency=Constant(ms=50.0))
    sim.add(build_two)
    sim.add(build)
    probe(sim, 0).env.connect(1)
    sim.run(SECOND)
    before = sim.events
    probe(sim, 0, 1).env.send(1, Word("for nobody"))
    sim.run(2 * SECOND)
    assert sim.events == before


def test_a_node_that_dials_itself_has_one_link_upcall() -> None:
    sim = Simulator()
    (a,) = probes(sim, 1)
    a.env.connect(0)
    sim.run(SECOND)
    assert (len(a.downs), sim.events) == (1, 1)


# The same run for the same seed.

EVENTFUL = Scenario(
    nodes=40,
    seed=5,
    warmup=3.0,
    window=6.0,
    network=Network(detection=2.0, dial_timeout=2.0),
    workload=Workload(messages=15, rate=5.0, topics=3, interests=2, subscribers=0.7, publishers=10),
    churn=Churn(session=20.0, subscriptions=8.0),
    faults=(
        faults.Loss(at=1.0, p=0.05),
        faults.Reorder(at=2.0, p=0.1),
        faults.Partition(at=4.0, duration=3.0),
        faults.MassCrash(at=5.0, share=0.1),
        faults.Restart(at=4.5, nodes=(1, 2)),
        faults.Reset(at=5.5, share=0.1),
    ),
)


def measured(scenario: Scenario) -> dict[str, Any]:
    note_replay(command(scenario))
    return run(scenario)


@DRAWS
def test_the_same_seed_gives_the_same_run_and_another_seed_another(draw: Any) -> None:
    scenario = changed(EVENTFUL, latency=Uniform(low=10.0, high=100.0, draw=draw))
    one, two, other = measured(scenario), measured(scenario), measured(changed(scenario, seed=6))
    assert one["trace_hash"] == two["trace_hash"] != other["trace_hash"]
    assert one["events"] == two["events"]


def changed(scenario: Scenario, **fields: Any) -> Scenario:
    return Scenario(**{name: getattr(scenario, name) for name in scenario.__struct_fields__} | fields)


def test_the_same_seed_gives_the_same_hash_in_processes_that_hash_differently() -> None:
    note_replay(command(EVENTFUL))
    program = (
        "from libweft.bench.runs.run import run; from tests.peer.test_sim import EVENTFUL; print(run(EVENTFUL)['trace_hash'])"
    )
    hashes = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    ]
    assert hashes[0] == hashes[1] == f"{measured(EVENTFUL)['trace_hash']}\n"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"latency": Uniform(low=10.0, high=100.0, draw="send")},
        {"latency": latency.VCubePS()},
        {"latency": latency.VCubePB()},
        {"network": Network(bandwidth=10_000.0)},
        {"faults": (faults.Loss(p=0.2), faults.Duplicate(p=0.2), faults.Reset(at=4.0, share=0.5))},
    ],
    ids=["copy", "send", "vcube-ps", "vcube-pb", "bandwidth", "faults"],
)
def test_the_real_codec_in_the_loop_gives_the_same_trace_as_messages_by_reference(options: dict[str, Any]) -> None:
    scenario = Scenario(**{"nodes": 30, "warmup": 3.0, "window": 3.0, "network": Network(), **options})
    network = {name: getattr(scenario.network, name) for name in scenario.network.__struct_fields__}
    coded = changed(scenario, network=Network(**network | {"codec": True}))
    by_reference, by_codec = measured(scenario), measured(coded)
    assert by_reference["trace_hash"] == by_codec["trace_hash"]
    assert by_reference["events"] == by_codec["events"]


@DRAWS
def test_a_fault_that_touches_nothing_shifts_no_draw(draw: Any) -> None:
    plain = changed(EVENTFUL, churn=Churn(), latency=Uniform(low=10.0, high=100.0, draw=draw))
    idle = (
        faults.Loss(at=1.5, p=0.5, sources=(3,), targets=(3,)),
        faults.Duplicate(at=1.5, p=0.5, sources=(4,), targets=(4,)),
        faults.DelaySpike(at=1.5, ms=50.0, sources=(5,), targets=(5,)),
        faults.Crash(at=1.5, nodes=()),
    )
    more = changed(plain, faults=plain.faults + idle)
    assert measured(plain)["trace_hash"] == measured(more)["trace_hash"]


def test_streams_of_chance_are_told_apart_by_name_and_seed() -> None:
    def draws(seed: int, name: str) -> list[float]:
        stream = Simulator(seed).stream(name)
        return [stream.random() for _ in range(5)]

    assert draws(1, "a") == draws(1, "a")
    assert draws(1, "a") != draws(1, "b")
    assert draws(1, "a") != draws(2, "a")


def test_each_node_has_a_stream_of_chance_of_its_own_in_each_life() -> None:
    sim = Simulator(1)
    a, b = probes(sim, 2)
    first = [a.env.rng.random(), b.env.rng.random()]
    sim.restart(0, SECOND, True)
    sim.run(2 * SECOND)
    assert len({*first, probe(sim, 0).env.rng.random()}) == 3


def traced(stops: Sequence[int], draw: Any) -> tuple[str | None, int]:
    tracer = Tracer()
    sim = Simulator(9, Uniform(low=1.0, high=20.0, draw=draw), tracer, detection=300 * MS)
    everyone = probes(sim, 8)
    for place, each in enumerate(everyone):
        each.env.connect((place + 1) % 8)
        each.env.connect((place + 3) % 8)
        sim.at(place * 7_001, each.env.send_all, tuple(peer for peer in range(8) if peer != place), load(place))
        each.env.after(place * 1_537, each.env.send, (place + 2) % 8, Word(str(place)))
    sim.inject([faults.Loss(at=0.05, p=0.3, duration=0.1), faults.Crash(at=0.1, nodes=(5,))])
    for stop in stops:
        with within(60):
            sim.run(stop)
    return tracer.hash, sim.events


@DRAWS
def test_a_run_in_slices_equals_one_run(draw: Any) -> None:
    end = SECOND
    whole = traced([end], draw)
    assert traced([*range(0, end, 1_024), end], draw) == whole
    assert traced([*range(0, 200 * MS, 333), end], draw) == whole
    assert traced([7_001, 7_001, 14_002, end], draw) == whole
