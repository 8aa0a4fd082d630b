"""The score against a slow model that reads the whole history, and its bounds after any."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libweft.peer.machine import MS, SECOND
from libweft.pubsub.gossipsub import score as score_module
from libweft.pubsub.gossipsub.score import Score
from libweft.pubsub.gossipsub.score_config import PeerScore, ScoreConfig, Thresholds, TopicScore

MODEL_TOPICS = {
    "t": TopicScore(
        topic_weight=0.5,
        time_in_mesh_weight=0.25,
        time_in_mesh_quantum=SECOND,
        time_in_mesh_cap=5.0,
        first_deliveries_weight=1.0,
        first_deliveries_decay=0.75,
        first_deliveries_cap=3.0,
        mesh_deliveries_weight=-1.0,
        mesh_deliveries_decay=0.5,
        mesh_deliveries_cap=4.0,
        mesh_deliveries_threshold=2.0,
        mesh_deliveries_window=10 * MS,
        mesh_deliveries_activation=SECOND,
        mesh_failure_weight=-0.5,
        mesh_failure_decay=0.5,
        invalid_weight=-2.0,
        invalid_decay=0.75,
    )
}
MODEL_TOPICS["u"] = replace(MODEL_TOPICS["t"], topic_weight=2.0, invalid_weight=-1.0, mesh_deliveries_window=0)
MODEL_PEER = PeerScore(
    topic_score_cap=4.0,
    app_weight=0.5,
    colocation_weight=-1.0,
    colocation_threshold=1,
    behaviour_weight=-1.0,
    behaviour_threshold=1.0,
    behaviour_decay=0.5,
    decay_to_zero=0.1,
    retain=4 * SECOND,
)
MODEL = ScoreConfig(MODEL_PEER, None, Thresholds(), MODEL_TOPICS)

Event = tuple[int, str, int, str, bytes, str]
"""Time, what happened, peer, topic, message, address."""
HAPPENINGS = ["join", "left", "graft", "prune", "validating", "delivered", "duplicate", "duplicate", "rejected", "ignored"]
HAPPENINGS += ["invalid", "penalize", "refresh", "refresh"]
steps = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 5 * MS, SECOND]),
        st.sampled_from(HAPPENINGS),
        st.integers(0, 3),
        st.sampled_from(["t", "u", "uncounted"]),
        st.sampled_from([b"k", b"l", b"m"]),
        st.sampled_from(["", "1.2.3.4", "1.2.3.5"]),
    ),
    max_size=60,
)


def app(peer: Any) -> float:
    return 1.0 if peer == 3 else 0.0


def tell(score: Score, event: Event) -> None:
    now, what, peer, topic, key, address = event
    arguments: dict[str, tuple[Any, ...]] = {
        "join": (peer, address),
        "left": (peer, now),
        "rejected": (peer, key, topic),
        "ignored": (key,),
        "invalid": (peer, topic),
        "penalize": (peer, 2),
        "refresh": (now,),
    }
    arguments |= dict.fromkeys(("graft", "prune"), (peer, topic, now))
    getattr(score, what)(*arguments.get(what, (peer, key, topic, now)))


class Slow:
    """Plain tables of (peer, topic), and a score worked out anew from the definition each time."""

    def __init__(self) -> None:
        self.known: dict[int, bool] = {}  # whether connected
        self.expires: dict[int, int] = {}
        self.address: dict[int, str] = {}
        self.penalties: dict[int, float] = {}
        self.counts: dict[tuple[str, int, str], float] = {}
        self.grafted: dict[tuple[int, str], int] = {}
        self.time: dict[tuple[int, str], int] = {}
        self.records: dict[bytes, tuple[str, int, int, list[int]]] = {}  # state, time, first, others

    def add(self, name: str, peer: int, topic: str, amount: float = 1.0) -> None:
        if peer not in self.known or topic not in MODEL_TOPICS:
            return
        score = MODEL_TOPICS[topic]
        caps = {"first": score.first_deliveries_cap, "mesh": score.mesh_deliveries_cap}
        total = self.counts.get((name, peer, topic), 0.0) + amount
        self.counts[name, peer, topic] = min(total, caps.get(name, total))

    def mesh(self, peer: int, topic: str) -> None:
        if (peer, topic) in self.grafted:
            self.add("mesh", peer, topic)

    def deficit(self, peer: int, topic: str) -> float:
        return max(0.0, MODEL_TOPICS[topic].mesh_deliveries_threshold - self.counts.get(("mesh", peer, topic), 0.0)) ** 2

    def leave(self, peer: int, topic: str, now: int) -> None:
        grafted = self.grafted.pop((peer, topic), None)
        self.time.pop((peer, topic), None)
        if grafted is not None and now - grafted > MODEL_TOPICS[topic].mesh_deliveries_activation:
            self.add("failure", peer, topic, self.deficit(peer, topic))

    def forget(self, peer: int) -> None:
        for table in (self.known, self.expires, self.address, self.penalties):
            table.pop(peer, None)
        self.counts = {key: count for key, count in self.counts.items() if key[1] != peer}
        self.grafted = {key: at for key, at in self.grafted.items() if key[0] != peer}
        self.time = {key: at for key, at in self.time.items() if key[0] != peer}

    def tell(self, event: Event) -> None:
        now, what, peer, topic, key, address = event
        counted = topic in MODEL_TOPICS
        record = self.records.get(key)
        match what:
            case "join":
                self.known[peer], self.address[peer] = True, address
                self.expires.pop(peer, None)
            case "left" if self.known.get(peer):
                if self.value(peer) > 0:
                    self.forget(peer)
                    return
                for named in MODEL_TOPICS:
                    self.leave(peer, named, now)
                    self.counts.pop(("first", peer, named), None)
                self.known[peer], self.expires[peer] = False, now + MODEL_PEER.retain
            case "graft" if counted and peer in self.known:
                self.grafted[peer, topic] = now
                self.time[peer, topic] = 0
            case "prune" if counted:
                self.leave(peer, topic, now)
            case "validating" if counted and record is None:
                self.records[key] = ("pending", 0, peer, [])
            case "delivered" if counted or record is not None:
                state, _, first, others = record or ("pending", 0, peer, [])
                if state == "pending":
                    self.records[key] = ("valid", now, first, others)
                    self.add("first", peer, topic)
                    for each in [peer, *(other for other in others if other != peer)]:
                        self.mesh(each, topic)
            case "duplicate" if record is not None:
                self.copy(record, peer, topic, now)
            case "rejected":
                state, at, first, others = record or ("pending", 0, peer, [])
                self.add("invalid", peer, topic)
                if state == "pending" and (record is not None or counted):
                    for other in others:
                        self.add("invalid", other, topic)
                    self.records[key] = ("invalid", at, first, others)
            case "ignored" if record is not None and record[0] == "pending":
                self.records[key] = ("dropped", *record[1:])
            case "invalid":
                self.add("invalid", peer, topic)
            case "penalize" if peer in self.known:
                self.penalties[peer] = self.penalties.get(peer, 0.0) + 2
            case "refresh":
                self.refresh(now)

    def copy(self, record: tuple[str, int, int, list[int]], peer: int, topic: str, now: int) -> None:
        state, at, first, others = record
        new = peer != first and peer not in others
        if state == "invalid":
            self.add("invalid", peer, topic)
        elif state == "pending" and new:
            others.append(peer)
        elif state == "valid" and new and self.near(peer, topic, now - at):
            others.append(peer)
            self.mesh(peer, topic)

    def near(self, peer: int, topic: str, late: int) -> bool:
        return (peer, topic) in self.grafted and late <= MODEL_TOPICS[topic].mesh_deliveries_window

    def refresh(self, now: int) -> None:
        for peer, end in tuple(self.expires.items()):
            if end <= now:
                self.forget(peer)
        decays = {"first": "first_deliveries_decay", "mesh": "mesh_deliveries_decay"}
        decays |= {"failure": "mesh_failure_decay", "invalid": "invalid_decay"}
        for (name, peer, topic), count in self.counts.items():
            if self.known[peer]:
                less = count * getattr(MODEL_TOPICS[topic], decays[name])
                self.counts[name, peer, topic] = less if less >= MODEL_PEER.decay_to_zero else 0.0
        for peer, count in self.penalties.items():
            if self.known[peer]:
                less = count * MODEL_PEER.behaviour_decay
                self.penalties[peer] = less if less >= MODEL_PEER.decay_to_zero else 0.0
        for key, at in self.grafted.items():
            self.time[key] = now - at

    def value(self, peer: int) -> float:
        if peer not in self.known:
            return 0.0
        total = 0.0
        for topic, score in MODEL_TOPICS.items():
            time = self.time.get((peer, topic), 0)
            part = min(time // score.time_in_mesh_quantum, score.time_in_mesh_cap) * score.time_in_mesh_weight
            part += score.first_deliveries_weight * self.counts.get(("first", peer, topic), 0.0)
            if time > score.mesh_deliveries_activation:
                part += score.mesh_deliveries_weight * self.deficit(peer, topic)
            part += score.mesh_failure_weight * self.counts.get(("failure", peer, topic), 0.0)
            part += score.invalid_weight * self.counts.get(("invalid", peer, topic), 0.0) ** 2
            total += score.topic_weight * part
        near = sum(address == self.address[peer] for address in self.address.values()) if self.address[peer] else 0
        total = min(total, MODEL_PEER.topic_score_cap) + 0.5 * app(peer) - max(0, near - 1) ** 2
        return total - max(0.0, self.penalties.get(peer, 0.0) - 1) ** 2


@given(taken=steps)
@settings(max_examples=400)
def test_the_score_is_that_of_a_slow_model_after_any_history(taken: list[Any]) -> None:
    score, slow, now = Score(MODEL, app), Slow(), 0
    joins = [(0, "join", peer, "t", b"", "") for peer in range(3)]
    for wait, *event in [*joins, *taken]:
        now += wait
        happened: Event = (now, *event)
        tell(score, happened)
        slow.tell(happened)
        for peer in range(4):
            assert score.value(peer) == pytest.approx(slow.value(peer)), happened
            assert sum(score.explain(peer).values()) == pytest.approx(slow.value(peer))


@given(taken=steps, often=st.integers(1, 4))
@settings(max_examples=300)
def test_what_is_below_a_threshold_is_so_by_the_slow_model_too(taken: list[Any], often: int) -> None:
    """Asked at times only: between them scores rise and fall, and what is kept of the last answer must not be trusted too far."""
    score, slow, now = Score(MODEL, app), Slow(), 0
    joins = [(0, "join", peer, "t", b"", "") for peer in range(3)]
    for number, (wait, *event) in enumerate([*joins, *taken]):
        now += wait
        tell(score, (now, *event))
        slow.tell((now, *event))
        for peer in range(4) if number % often == 0 else ():
            for threshold in (-31.7, -8.3, -1.3, 0.7, 5.9):
                assert score.is_below(peer, threshold) == (slow.value(peer) < threshold)


@given(taken=steps)
@settings(max_examples=200)
def test_the_bounds_hold_after_any_history(taken: list[Any]) -> None:
    limits, now = {"RETAINED": 2, "TOPICS": 1}, 0
    with pytest.MonkeyPatch.context() as patch:
        for name, limit in limits.items():
            patch.setattr(score_module, name, limit)
        score = Score(ScoreConfig(MODEL_PEER, MODEL_TOPICS["t"], Thresholds()))
        joined: dict[int, None] = {}
        for wait, what, peer, *rest in taken:
            now += wait
            tell(score, (now, what, peer, *rest))
            if what == "join":
                joined[peer] = None
            elif what == "left":
                joined.pop(peer, None)
            assert len(score._peers) <= len(joined) + 2
            assert len(score._colocation) <= len(score._peers)
            assert set(score._retained) == {each for each, stats in score._peers.items() if not stats.connected}
