"""A discussion as a workload: who asks, who answers what and when, read from the rows of small runs."""

from __future__ import annotations

from collections import Counter

import pytest

from libweft.bench.runs.property_checks import Event, Recorder
from libweft.bench.runs.reading import validate
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Scenario, Workload
from libweft.peer.errors import UsageError
from libweft.peer.machine import MS, SECOND, MessageId, Peer
from libweft.peer.sim.latency import Constant
from libweft.peer.trace.kinds import DELIVER, PUBLISH


class Timed(Recorder):
    """What the checks need, with times."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int, Event]] = []

    def observe(self, t: int, node: Peer, kind: str, *rest: object) -> None:
        self.rows.append((t, Event(node, kind, *rest[:2])))  # type: ignore[arg-type]

    def of(self, kind: str) -> list[tuple[int, Event]]:
        return [(t, event) for t, event in self.rows if event.kind == kind]


def heard(work: Workload, nodes: int = 20) -> Timed:
    """On a full graph, where every message takes 50 ms."""
    timed = Timed()
    told = Scenario(nodes=nodes, overlay={"graph": "full"}, latency=Constant(ms=50), window=2.0, workload=work)
    run(told, observer=timed, hashed=False)
    return timed


def test_each_subscriber_speaks_once_and_answers_within_the_wait() -> None:
    timed = heard(Workload(messages=1, answers=1, answer_ms=100))
    published = timed.of(PUBLISH)
    assert Counter(event.node for _, event in published) == Counter(range(20))
    asked, answers = published[0][0], [t for t, _ in published[1:]]
    assert all(asked + 50 * MS <= t < asked + 150 * MS for t in answers)
    assert all((t - asked) % MS == 0 for t in answers)


def test_an_answer_waits_for_as_many_messages_as_it_needs() -> None:
    timed = heard(Workload(messages=3, rate=3.0, answers=3, answer_ms=1))
    others: Counter[Peer] = Counter()
    said = 0
    for _, event in timed.rows:
        if event.kind == PUBLISH:
            said += 1
            assert said <= 3 or others[event.node] >= 3
        elif event.kind == DELIVER and isinstance(event.msg, MessageId) and event.msg.source != event.node:
            others[event.node] += 1
    assert said == 20


def test_who_is_to_ask_and_hears_somebody_first_answers_and_asks_no_more() -> None:
    timed = heard(Workload(messages=5, rate=0.5, answers=19, answer_ms=1))
    published = timed.of(PUBLISH)
    asked = published[0][0]
    assert [t - asked for t, _ in published[:5]] == [0, 50 * MS, 50 * MS, 50 * MS, 50 * MS], "the moments are 10 s apart at most"
    assert len({event.node for _, event in published}) == len(published)


def test_questions_go_round_the_topics_and_nobody_has_more_turns_than_allowed() -> None:
    timed = heard(Workload(topics=4, interests=2, messages=4, answers=1, turns=3, answer_ms=500))
    said = Counter((event.node, event.topic) for _, event in timed.of(PUBLISH))
    assert {topic for _, topic in said} == {"t0", "t1", "t2", "t3"}
    assert set(said.values()) == {3}
    assert len(said) == 40


def test_the_run_goes_on_for_a_window_after_the_answers() -> None:
    timed = heard(Workload(messages=1, answers=1))
    assert timed.rows[-1][0] <= timed.of(PUBLISH)[-1][0] + 2 * SECOND
    delivered = Counter(event.msg for _, event in timed.of(DELIVER))
    assert delivered == dict.fromkeys((event.msg for _, event in timed.of(PUBLISH)), 20)


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (Workload(answers=1, publishers=3), "leave out publishers and arrivals"),
        (Workload(answers=1, arrivals="poisson"), "leave out publishers and arrivals"),
    ],
)
def test_what_a_discussion_cannot_heed_is_refused(work: Workload, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        validate(Scenario(workload=work))


def test_more_questions_than_a_topic_has_subscribers_are_refused() -> None:
    with pytest.raises(UsageError, match=r"workload\.messages is 21"):
        heard(Workload(messages=21, answers=1))
