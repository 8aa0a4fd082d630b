"""The checker of histories: the papers' own examples, then each property kept and broken by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from libweft.bench.runs.property_checks import (
    Event,
    Recorder,
    Story,
    Violation,
    agreement,
    causal,
    complete,
    fifo,
    gapless,
    integrity,
    read,
    tell,
    total,
    validity,
)
from libweft.bench.runs.run import run
from libweft.bench.runs.scenario import Scenario, Workload
from libweft.peer.errors import UsageError
from libweft.peer.sim.faults import Reorder
from libweft.peer.trace.kinds import DELIVER, JOINED, LEAVE, NODE_DOWN, PUBLISH

CHECKS: tuple[Callable[[Iterable[Story]], list[Violation]], ...] = (fifo, causal, total, gapless, complete, agreement, integrity)


def events(text: str) -> list[Event]:
    """`1+a` node 1 publishes a, `2-a` node 2 delivers it, `2(` it joins, `2)` leaves, `2!` dies; all on one topic."""
    kinds = {"+": PUBLISH, "-": DELIVER, "(": JOINED, ")": LEAVE, "!": NODE_DOWN}
    return [Event(int(word[0]), kinds[word[1]], None if word[1] == "!" else "t", word[2:] or None) for word in text.split()]


def broken(text: str) -> dict[str, list[Violation]]:
    stories = tell(events(text))
    return {check.__name__: found for check in CHECKS if (found := check(stories))}


# Figure 2 of VCube-PS, figure 1 of VCube-PB.

TALK = "0( 1( 2( 0+m01 0-m01 1-m01 1+m11 1-m11 2+m21 2-m21 1-m21 1+m12 1-m12 "


def test_figure_2_of_vcube_ps() -> None:
    (story,) = tell(events(TALK))
    number, past = story.number, {}
    for name in story.names:
        past[name] = {other for other in story.names if story.past[number[name]] >> number[other] & 1}
    assert past == {"m01": set(), "m11": {"m01"}, "m21": set(), "m12": {"m01", "m11", "m21"}}
    swapped = Violation(2, "m21", "m11")
    assert broken(TALK + "0-m11 0-m21 0-m12 2-m01 2-m11 2-m12") == {"total": [swapped, swapped]}, "against 0, and against 1"


def test_who_delivers_the_effect_before_its_cause_breaks_causal_order() -> None:
    found = broken(TALK + "0-m12 0-m11 0-m21 2-m01 2-m11 2-m12")
    assert found["causal"] == [Violation(0, "m12", "m11"), Violation(0, "m12", "m21")]
    assert found["fifo"] == [Violation(0, "m12", "m11")]


def test_a_late_subscriber_may_lack_what_was_before_it() -> None:
    """p3 of both papers: it comes after m21, and delivers m12 without it."""
    assert broken(TALK + "3( 3-m12 0-m11 0-m21 0-m12 2-m01 2-m11 2-m12").keys() == {"total"}


# Figures 2.1, 2.2 and 4.1 of the thesis on LoCaPS: red events of three publishers, e21 -> e32 -> e33.

RED = "1+e13 2+e21 3-e21 3) 3+e32 3+e33 2+e22 1+e14 2+e24 3+e35 "


def test_a_history_between_its_cuts_keeps_all() -> None:
    assert broken(RED + "5( 5-e13 5-e22 5-e32 5-e33 5-e14 5-e24 5-e35") == {}


def test_a_missing_event_between_the_cuts_breaks_gapless_delivery() -> None:
    """s5 of figure 2.2 lacks e22."""
    assert broken(RED + "5( 5-e13 5-e21 5-e32 5-e33 5-e14 5-e24 5-e35")["gapless"] == [Violation(5, "e24", "e22")]


def test_a_history_may_be_gapless_and_not_causally_complete() -> None:
    """Figure 4.1(b): it begins with e21 and e33, and e32 is between them."""
    assert broken(RED + "5( 5-e13 5-e21 5-e33 5-e22 5-e14 5-e24 5-e35") == {"complete": [Violation(5, "e33", "e32")]}


def test_two_histories_in_different_orders_break_total_order() -> None:
    text = "1+x 2+y 5( 6( 5-x 5-y 6-y 6-x"
    assert broken(text) == {"total": [Violation(6, "y", "x")]}


# Each property broken by hand.


def test_fifo_names_each_late_one_and_the_latest_before_it() -> None:
    assert broken("1+a 1+b 1+c 5-c 5-a 5-b")["fifo"] == [Violation(5, "c", "a"), Violation(5, "c", "b")]
    assert broken("1+a 1+b 2+c 5-a 5-c 5-b") == {}


def test_happened_before_goes_over_what_others_heard() -> None:
    assert broken("1+a 2-a 2+b 3-b 3+c 5-c 5-a")["causal"] == [Violation(5, "c", "a")]
    assert "causal" not in broken("1+a 2+b 2-a 5-b 5-a"), "2 heard a after it said b"


def test_topics_are_apart() -> None:
    other = [Event(1, PUBLISH, "u", "a"), Event(2, DELIVER, "u", "a"), Event(2, PUBLISH, "t", "b")]
    assert not causal(tell([*other, Event(5, DELIVER, "t", "b"), Event(5, DELIVER, "u", "a")]))


def test_a_life_knows_nothing_of_an_earlier_one() -> None:
    assert "causal" in broken("1+a 2-a 2+b 5-b 5-a")
    assert "causal" not in broken("1+a 2-a 2! 2+b 5-b 5-a")
    assert broken("1+a 5-a 5! 5-a") == {}


def test_a_new_subscription_is_a_new_history() -> None:
    assert "causal" in broken("1+a 2-a 2+b 5( 5-b 5-a")
    assert "causal" not in broken("1+a 2-a 2+b 5( 5-b 5) 5( 5-a")
    assert broken("1+a 5( 5-a 5) 5( 5-a")["integrity"] == [Violation(5, "a")]


def test_integrity_is_broken_by_copies_and_by_what_nobody_had_published() -> None:
    assert broken("1+a 5-a 5-a 5-b 5-c 1+c") == {"integrity": [Violation(5, "b"), Violation(5, "c"), Violation(5, "a")]}


def test_agreement_asks_of_correct_subscribers_what_was_published_after_their_first_delivery() -> None:
    assert broken("1+z 5( 6( 5-z 6-z 1+a 5-a") == {"agreement": [Violation(6, "a")]}
    assert broken("1+z 5( 6( 5-z 1+a 5-a 1+b 5-b 6-b") == {}, "6 begins with b"
    assert broken("1+z 5( 6( 5-z 6-z 1+a 5-a 6)") == {}
    assert broken("1+z 5( 6( 5-z 6-z 1+a 5-a 6!") == {}
    assert broken("1+z 5( 6( 5-z 6-z 1+a 5-a 5!") == {}, "whoever delivered it is not correct either"
    stories = tell(events("1+z 5( 6( 5-z 6-z 1+a 5-a 1+b 5-b"))
    assert agreement(stories, until=7) == [Violation(6, "a")]


def test_who_is_in_force_and_never_delivers_anything_breaks_agreement_and_validity() -> None:
    def lacking(text: str, until: int | None = None) -> list[list[Violation]]:
        stories = tell(events(text))
        return [agreement(stories, until), validity(stories, until)]

    both = [Violation(6, "a"), Violation(6, "b")]
    assert lacking("1( 5( 6( 1+a 1-a 5-a 1+b 1-b 5-b") == [both, both]
    assert lacking("1( 5( 1+a 1-a 5-a 6( 1+b 1-b 5-b") == [both[1:], both[1:]], "it came after a"
    assert lacking("1( 5( 6( 1+a 1-a 5-a 1+b 1-b 5-b", until=6) == [both[:1], both[:1]], "b may be on its way"
    assert lacking("1( 5( 1+a 1-a 5-a 6(") == [[], []]
    assert lacking("1( 5( 6( 1+a 1-a 5-a 6)") == lacking("1( 5( 6( 1+a 1-a 5-a 6!") == [[], []], "it left, or is not correct"
    assert lacking("1( 5( 6( 6) 1+a 1-a 5-a 6(") == [[], []], "it subscribed again after a"
    assert lacking("1( 5( 6( 6! 6( 1+a 1-a 5-a") == [both[:1], both[:1]], "it began anew before a"
    assert lacking("1( 5( 1+a 5-a 1!") == lacking("5( 6( 1+a 5-a 5! 1!") == [[], []], "none of those that had it is correct"
    assert lacking("1+a 5( 6( 1! 5-a")[1] == [], "nothing was published since"
    assert lacking("5( 6(") == [[], []]


def test_a_folder_tells_the_same_as_the_rows_in_memory(tmp_path: Path) -> None:
    """A flood over links in order keeps causal order while no link is added; here copies overtake each other."""
    work = Workload(messages=12, rate=40.0, topics=2)
    scenario = Scenario(nodes=8, warmup=1, window=2, workload=work, faults=(Reorder(p=0.5, ms=500.0),))
    recorder = Recorder()
    run(scenario, trace=tmp_path / "trace", observer=recorder)
    in_memory, stored = tell(recorder.events), tell(read(tmp_path / "trace"))
    assert sum(len(story.names) for story in stored) == 12
    for check in CHECKS:
        assert len(check(in_memory)) == len(check(stored))
    assert len(causal(stored)) > 0


def test_a_folder_without_a_trace_or_with_half_a_file_is_no_history(tmp_path: Path) -> None:
    """A checker that finds nothing wrong in nothing would pass whatever is misspelt."""
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(UsageError, match="no trace in"):
            read(folder)
    (tmp_path / "rows-00000.parquet").write_bytes(b"PAR1")
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path)


def test_validity_asks_for_what_the_living_published_of_them_and_of_correct_subscribers() -> None:
    def lacking(text: str) -> list[Violation]:
        return validity(tell(events(text)))

    assert lacking("1( 1+a 1-a 5( 5-a") == []
    assert lacking("1( 1+a") == [Violation(1, "a")]
    assert lacking("1+z 5( 5-z 1+a") == [Violation(5, "a")], "1 does not subscribe, and delivers nothing"
    assert lacking("1+z 5( 5-z 1+a 1!") == [], "who dies may take it along"
    assert lacking("1! 1+z 5( 5-z 1+a") == [Violation(5, "a")], "that was another life"
    assert lacking("1+z 5( 5-z 1+a 5)") == []
    assert validity(tell(events("1+z 5( 5-z 1+a")), until=3) == []
