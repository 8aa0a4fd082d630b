"""Each definition by a few rows made by hand, then all of them against a reference that looks at all rows at once."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libweft.bench.runs.counters import Counters, percentile
from libweft.peer.machine import Lane, MessageId, Peer
from libweft.peer.trace.kinds import (
    DELIVER,
    DROP,
    DUPLICATE,
    JOIN,
    JOINED,
    LEAVE,
    NODE_DOWN,
    NODE_UP,
    PUBLISH,
    RECEIVE,
    REJECT,
    SEND,
)
from libweft.peer.trace.tracer import Tracer

WINDOW = 100
M, N = MessageId(0, 1, 1), MessageId(0, 1, 2)
TIMES = ("mean", "p50", "p90", "p99", "max")
Row = dict[str, Any]


def row(t: int, node: Peer, kind: str, topic: str = "a", **more: Any) -> Row:
    return {"t": t, "node": node, "kind": kind, "topic": topic, **more}


def joined(*nodes: Peer, t: int = 0, topic: str = "a") -> list[Row]:
    return [row(t, node, JOINED, topic) for node in nodes]


def publish(t: int = 10, msg: MessageId = M, topic: str = "a") -> Row:
    return row(t, msg.source, PUBLISH, topic, msg=msg, hops=0)


def deliver(t: int, *nodes: Peer, msg: MessageId = M, hops: int | None = 1) -> list[Row]:
    return [row(t, node, DELIVER, msg=msg, hops=hops) for node in nodes]


def receive(t: int, *nodes: Peer, msg: MessageId = M) -> list[Row]:
    return [row(t, node, RECEIVE, msg=msg, peer=msg.source, hops=1) for node in nodes]


def send(t: int, copies: int, lane: Lane = Lane.PAYLOAD, kind: str = SEND, **more: Any) -> Row:
    return row(t, 0, kind, copies=copies, lane=lane, **{"msg": M, "size": 10, **more})


def count(*rows: Row | Iterable[Row], window: int = WINDOW, finish: int = 1_000) -> dict[str, Any]:
    counters = Counters(window)
    tracer = Tracer(level="none", observer=counters)
    for one in rows:
        for each in [one] if isinstance(one, dict) else one:
            tracer.emit(**each)
    counters.finish(finish)
    return counters.figures()


def test_a_run_without_messages_has_no_figures() -> None:
    figures = count()
    nothing = dict.fromkeys(TIMES)
    assert figures == {
        **dict.fromkeys(("reliability", "reliability_min", "rmr", "payload_per_delivery", "false_positives")),
        **dict.fromkeys(("ldh_mean", "ldh_max", "last_ms")),
        **{"latency_ms": nothing, "reception_ms": nothing},
        **dict.fromkeys(("messages", "deliveries", "control_messages", "bytes"), 0),
    }


def test_reliability_is_the_share_of_the_expected_that_delivered() -> None:
    assert count(joined(1, 2, 3, 4), publish(), deliver(20, 1, 2, 3))["reliability"] == 0.75


def test_the_publisher_counts_neither_above_nor_below_the_line() -> None:
    figures = count(joined(0, 1, 2), publish(), deliver(10, 0, hops=0), deliver(20, 1))
    assert figures["reliability"] == 0.5
    assert figures["deliveries"] == 1
    assert figures["latency_ms"]["mean"] == 0.01
    assert figures["ldh_max"] == 1


def test_a_publisher_alone_delivers_to_nobody() -> None:
    figures = count(joined(0), publish(), send(10, 1), deliver(50, 0, hops=7), receive(50, 0))
    assert figures["deliveries"] == 0
    absent = ("reliability", "ldh_max", "last_ms", "rmr", "payload_per_delivery", "false_positives")
    assert all(figures[name] is None for name in absent)
    assert figures["latency_ms"]["max"] is figures["reception_ms"]["max"] is None


def test_who_joined_after_the_publish_is_not_expected() -> None:
    assert count(joined(1, t=10), publish(10), joined(2, t=11), deliver(20, 1, 2))["reliability"] == 1
    assert count(joined(1, t=10), publish(10), joined(2, t=11), deliver(20, 1))["reliability"] == 1


def test_the_time_of_the_publish_is_in_time_in_whatever_order_rows_stand() -> None:
    assert count(publish(10), joined(1, t=10), joined(2, t=11))["reliability"] == 0
    assert count(publish(10), joined(1, t=11))["reliability"] is None


def test_only_the_joined_row_starts_a_membership() -> None:
    assert count(row(0, 1, NODE_UP), row(0, 1, JOIN), publish())["reliability"] is None


@pytest.mark.parametrize("end", [LEAVE, NODE_DOWN])
@pytest.mark.parametrize(("t", "reliability"), [(10, 1), (60, 1), (110, 1), (111, 0.5)])
def test_the_expected_stay_joined_and_up_to_the_end_of_the_window(end: str, t: int, reliability: float) -> None:
    rows = [*joined(1, 2), publish(10), *deliver(10, 1), row(t, 2, end)]
    assert count(rows)["reliability"] == reliability


@pytest.mark.parametrize("end", [LEAVE, NODE_DOWN])
def test_who_comes_back_within_the_window_is_not_expected(end: str) -> None:
    rows = [*joined(1, 2), publish(10), *deliver(20, 1), row(30, 2, end), *joined(2, t=40)]
    assert count(rows)["reliability"] == 1


def test_who_came_back_before_the_publish_is_expected() -> None:
    assert count(joined(1), row(3, 1, NODE_DOWN), joined(1, t=4), publish(10))["reliability"] == 0


def test_an_end_and_a_join_at_the_same_time_make_no_member() -> None:
    for end in (LEAVE, NODE_DOWN):
        assert count(row(5, 1, end), joined(1, t=5), publish(10))["reliability"] is None
        assert count(joined(1, t=5), row(5, 1, end), publish(10))["reliability"] is None
        assert count(row(5, 1, end), joined(1, t=5), joined(1, t=6), publish(10))["reliability"] == 0


def test_a_second_joined_row_changes_nothing() -> None:
    assert count(joined(1), publish(10), joined(1, t=20))["reliability"] == 0


def test_a_node_that_goes_down_leaves_all_its_topics() -> None:
    rows = [*joined(1, 2), *joined(1, 2, topic="b"), row(5, 1, NODE_DOWN), publish(10), publish(10, N, "b")]
    rows += [*deliver(20, 2), *deliver(20, 2, msg=N)]
    assert count(rows)["reliability_min"] == 1


def test_a_leave_ends_one_topic_only() -> None:
    rows = [*joined(1), *joined(1, topic="b"), row(5, 1, LEAVE, "b"), publish(10), publish(10, N, "b")]
    assert count(rows)["reliability"] == 0, "topic a still expects node 1; topic b expects nobody and is left out"


def test_other_topics_are_not_expected() -> None:
    assert count(joined(1), joined(2, topic="b"), publish(), deliver(20, 1))["reliability"] == 1


@pytest.mark.parametrize(("t", "reliability"), [(110, 1), (111, 0)])
def test_a_delivery_counts_up_to_the_very_end_of_the_window(t: int, reliability: float) -> None:
    figures = count(joined(1), publish(10), deliver(t, 1))
    assert figures["reliability"] == reliability
    assert figures["deliveries"] == 1
    assert figures["latency_ms"]["max"] == figures["last_ms"] == (t - 10) / 1_000


def test_a_reception_just_before_the_end_of_the_window_does_not_end_it() -> None:
    assert count(joined(1), publish(10), receive(109, 1), deliver(110, 1))["reliability"] == 1


def test_a_delivery_by_who_was_not_expected_adds_nothing_to_reliability() -> None:
    assert count(joined(1, 2), publish(), joined(3, t=20), deliver(30, 1, 3))["reliability"] == 0.5


def test_reliability_is_a_mean_over_messages_that_expect_somebody() -> None:
    rows = [*joined(1, 2), publish(10), *deliver(20, 1, 2), publish(20, N), *deliver(30, 1, msg=N)]
    figures = count(rows, publish(30, MessageId(0, 1, 3), "nobody"))
    assert (figures["messages"], figures["reliability"], figures["reliability_min"]) == (3, 0.75, 0.5)


def test_messages_are_judged_at_the_end_of_their_own_window() -> None:
    rows = [*joined(1, 2), publish(10), publish(60, N), *deliver(70, 1, 2), row(130, 2, LEAVE), *deliver(140, 1, msg=N)]
    figures = count(rows)
    assert figures["reliability"] == 1, "the first window was over when node 2 left, the second was not"


def test_a_row_of_any_kind_lets_time_pass() -> None:
    counters = Counters(WINDOW)
    tracer = Tracer(level="none", observer=counters)
    for one in [*joined(1), publish(10), *deliver(20, 1), row(111, 9, "queue")]:
        tracer.emit(**one)
    assert counters.figures()["reliability"] == 1
    message = counters._published[M]
    assert not message.seen, "what each node did is packed once the window is over"
    tracer.emit(**deliver(112, 2)[0])
    assert message.deliveries == 2
    assert not message.seen, "and packed again after a late row"


def test_finish_judges_what_is_still_open() -> None:
    assert count(joined(1), publish(10), finish=20)["reliability"] == 0


def test_rmr_is_copies_for_each_receiver_less_one() -> None:
    figures = count(publish(), send(10, 4), send(11, 2), receive(12, 1, 2, 3))
    assert figures["rmr"] == 6 / 3 - 1


def test_copies_dropped_before_they_left_do_not_count() -> None:
    rows = [publish(), send(10, 4), send(11, 1, kind=DROP), *receive(12, 1, 2, 3), *deliver(12, 1)]
    figures = count(rows)
    assert figures["rmr"] == 0
    assert figures["payload_per_delivery"] == 3


def test_only_payload_of_the_message_counts_as_its_copies() -> None:
    rows = [publish(), send(10, 2), send(10, 9, Lane.LAZY), send(10, 9, Lane.CONTROL), send(10, 9, msg=None)]
    rows += [send(10, 9, Lane.LAZY, DROP), send(10, 9, kind=DROP, msg=None), *receive(12, 1), row(13, 1, DUPLICATE, msg=M)]
    assert count(rows)["rmr"] == 1


def test_a_send_row_without_copies_is_one_copy() -> None:
    figures = count(publish(), row(10, 0, SEND, msg=M, lane=Lane.PAYLOAD, size=7), receive(12, 1))
    assert (figures["rmr"], figures["bytes"]) == (0, 7)


def test_rmr_is_left_out_where_nobody_received() -> None:
    figures = count(publish(), send(10, 4), publish(10, N), send(10, 3, msg=N), receive(12, 1, msg=N))
    assert figures["rmr"] == 2


def test_forwarders_and_those_who_rejected_are_receivers() -> None:
    figures = count(joined(1), publish(), send(10, 2), receive(12, 1, 2), row(12, 2, REJECT, msg=M))
    assert figures["rmr"] == 0


def test_a_node_that_forgot_and_receives_again_counts_once() -> None:
    again = [*receive(20, 1), *deliver(20, 1, hops=2), row(25, 1, NODE_DOWN), *receive(30, 1), *deliver(30, 1, hops=5)]
    for later in ([], [*receive(500, 1, 2), *deliver(500, 1), *receive(600, 1, 2)]):
        figures = count(joined(1), publish(10), send(10, 2), again, later)
        assert figures["deliveries"] == 1
        assert figures["ldh_max"] == 2
        assert figures["rmr"] == (0 if later else 1)
        assert figures["latency_ms"]["max"] == figures["last_ms"] == 0.01


def test_sends_and_receptions_after_the_window_still_count() -> None:
    rows = [publish(), send(10, 1), *receive(12, 1), send(500, 3), *receive(501, 2), *deliver(502, 2, hops=9)]
    figures = count(rows)
    assert (figures["rmr"], figures["payload_per_delivery"], figures["ldh_max"]) == (1, 4, 9)


def test_payload_per_delivery_sees_relays() -> None:
    figures = count(joined(3), publish(), send(10, 1), send(11, 1), send(12, 1), receive(12, 1, 2, 3), deliver(13, 3))
    assert (figures["rmr"], figures["payload_per_delivery"]) == (0, 3)


def test_payload_per_delivery_is_a_mean_over_messages_that_were_delivered() -> None:
    rows = [publish(), send(10, 2), *deliver(11, 1), publish(12, N), send(12, 4, msg=N), *deliver(13, 1, msg=N)]
    assert count(rows, publish(14, MessageId(0, 1, 3)))["payload_per_delivery"] == 3


def test_false_positives_are_first_receptions_by_non_subscribers_pooled() -> None:
    rows = [*joined(1), publish(), *receive(12, 1, 2), publish(13, N), *receive(14, 1, 3, msg=N), *receive(15, 4, msg=N)]
    rows += [row(16, 5, DUPLICATE, msg=N), *receive(17, 0, msg=N)]
    assert count(rows)["false_positives"] == 3 / 5


def test_who_subscribes_is_judged_at_the_time_of_the_reception() -> None:
    assert count(publish(), joined(1, t=11), receive(12, 1))["false_positives"] == 0
    assert count(joined(1), publish(), row(11, 1, LEAVE), receive(12, 1))["false_positives"] == 1
    assert count(joined(1), publish(), receive(12, 1), row(13, 1, LEAVE))["false_positives"] == 0


def test_a_reception_is_judged_by_time_in_whatever_order_rows_stand() -> None:
    assert count(publish(), receive(12, 1), joined(1, t=12))["false_positives"] == 0
    assert count(joined(1), publish(), receive(12, 1), row(12, 1, LEAVE))["false_positives"] == 1


def test_late_receptions_count_as_false_positives_too() -> None:
    assert count(joined(1), publish(), receive(12, 1), receive(900, 2))["false_positives"] == 0.5


def test_the_last_delivery_hop_is_the_largest_among_deliveries() -> None:
    rows = [publish(), *deliver(11, 1, hops=2), *deliver(12, 2, hops=5), *deliver(13, 3, hops=3), *deliver(13, 4, hops=None)]
    rows += [publish(14, N), *deliver(15, 1, msg=N, hops=2), row(16, 9, RECEIVE, msg=N, peer=0, hops=9)]
    figures = count(rows, publish(17, MessageId(0, 1, 3)))
    assert (figures["ldh_mean"], figures["ldh_max"]) == (3.5, 5)


def test_latency_runs_from_the_publish_call_over_all_pairs() -> None:
    rows = [publish(1_000), *deliver(2_000, 1), *deliver(4_000, 2), publish(5_000, N), *deliver(10_000, 1, msg=N)]
    figures = count(rows)
    assert figures["latency_ms"] == {"mean": 3, "p50": 3, "p90": 5, "p99": 5, "max": 5}
    assert figures["last_ms"] == (3 + 5) / 2


def test_latency_to_receive_is_over_subscribers_and_apart_from_delivery() -> None:
    figures = count(joined(1, 2), publish(1_000), receive(2_000, 1, 7), receive(4_000, 2), deliver(9_000, 1, 2), window=9_000)
    assert figures["reception_ms"] == {"mean": 2, "p50": 1, "p90": 3, "p99": 3, "max": 3}
    assert figures["latency_ms"]["mean"] == 8


def test_the_mean_over_messages_of_the_last_leaves_out_those_never_delivered() -> None:
    assert count(publish(), deliver(1_010, 1), publish(2_000, N))["last_ms"] == 1


def test_control_is_what_is_not_payload_by_copies() -> None:
    rows = [send(1, 2, Lane.CONTROL, msg=None), send(2, 3, Lane.URGENT), send(3, 4, Lane.LAZY), send(4, 5), send(5, 9, kind=DROP)]
    assert count(rows)["control_messages"] == 9


def test_bytes_are_those_of_every_copy_of_every_lane() -> None:
    assert count(send(1, 2, Lane.CONTROL, size=7), send(2, 3, size=100), send(3, 5, size=None))["bytes"] == 314


def test_rows_of_a_message_that_nobody_published_here_are_left_out() -> None:
    figures = count(joined(1), send(1, 3), receive(2, 1), deliver(3, 1))
    assert (figures["messages"], figures["deliveries"], figures["false_positives"]) == (0, 0, None)
    assert figures["bytes"] == 30


def test_peers_may_be_bytes() -> None:
    m = MessageId(b"zoe", 5, 1)
    rows = [*joined(b"ann", b"bob", b"zoe"), publish(10, m), *deliver(10, b"zoe", msg=m), *deliver(20, b"bob", msg=m)]
    figures = count(rows)
    assert (figures["reliability"], figures["deliveries"]) == (0.5, 1)


def test_a_percentile_is_the_smallest_value_with_that_share_at_or_below() -> None:
    assert percentile(array("q", range(1, 101)), 99) == 99
    assert percentile(array("q", range(1, 102)), 99) == 100
    assert percentile(array("q", [3, 1, 2, 4]), 50) == 2
    assert percentile(array("q", [3, 1, 2]), 50) == 2
    assert percentile(array("q", range(100)), 7) == 6, "seven of a hundred, though 0.07 * 100 > 7"
    assert percentile(array("q", [5]), 1) == 5


@given(st.lists(st.integers(-(2**62), 2**62) | st.integers(0, 100_000), min_size=1), st.integers(1, 100))
def test_percentiles_are_those_of_the_sorted_values(values: list[int], percent: int) -> None:
    assert percentile(array("q", values), percent) == sorted(values)[math.ceil(percent * len(values) / 100) - 1]


NODES, TOPICS = range(4), ("a", "b")
IDS = [MessageId(source, 1, sequence) for source in (0, 1) for sequence in (1, 2)]
KINDS = (*(JOINED,) * 3, LEAVE, NODE_DOWN, *(PUBLISH,) * 3, SEND, DROP, *(RECEIVE,) * 3, *(DELIVER,) * 3, DUPLICATE, "queue")


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    """Steps of time are often nought, and often just the window, so that ties and borders are met."""
    t, rows, published = 0, [], dict[MessageId, str]()
    for _ in range(draw(st.integers(0, 40))):
        t += draw(st.sampled_from((0, 0, 0, 1, 2, 9, 10, 11)))
        kind, node, topic = draw(st.sampled_from(KINDS)), draw(st.sampled_from(NODES)), draw(st.sampled_from(TOPICS))
        if kind == PUBLISH:
            fresh = [m for m in IDS if m not in published]
            if fresh:
                published[fresh[0]] = topic
                rows.append(row(t, fresh[0].source, PUBLISH, topic, msg=fresh[0], hops=0))
        elif kind in (SEND, DROP, RECEIVE, DELIVER, DUPLICATE):
            if published:
                msg = draw(st.sampled_from(sorted(published)))
                rows.append(row(t, node, kind, published[msg], msg=msg, **draw(DETAILS[kind])))
        else:
            rows.append(row(t, node, kind, topic))
    return rows


SENT = st.fixed_dictionaries({"copies": st.integers(1, 5), "lane": st.sampled_from(Lane), "size": st.integers(1, 9)})
HEARD = st.fixed_dictionaries({"hops": st.none() | st.integers(1, 9)})
DETAILS = {SEND: SENT, DROP: SENT, RECEIVE: HEARD, DELIVER: HEARD, DUPLICATE: st.just({})}


class Reference:
    """The definitions read aloud: every question is put to all rows, and none of them is clever."""

    def __init__(self, rows: list[Row], window: int) -> None:
        self.rows, self.window = rows, window
        self.messages = [r for r in rows if r["kind"] == PUBLISH]

    def joined(self, node: Peer, topic: str, start: int, end: int) -> bool:
        ends = [
            r["t"]
            for r in self.rows
            if r["node"] == node and (r["kind"] == NODE_DOWN or (r["kind"] == LEAVE and r["topic"] == topic))
        ]
        joins = [r["t"] for r in self.rows if (r["node"], r["kind"], r["topic"]) == (node, JOINED, topic) and r["t"] <= start]
        return any(not any(j <= e <= end for e in ends) for j in joins)

    def firsts(self, kind: str, p: Row) -> list[Row]:
        found: dict[Peer, Row] = {}
        for r in self.rows:
            if r["kind"] == kind and r.get("msg") == p["msg"] and r["node"] != p["node"]:
                found.setdefault(r["node"], r)
        return list(found.values())

    def reliability(self, p: Row) -> float | None:
        end = p["t"] + self.window
        expected = [n for n in NODES if n != p["node"] and self.joined(n, p["topic"], p["t"], end)]
        heard = [r["node"] for r in self.firsts(DELIVER, p) if r["t"] <= end]
        return len([n for n in expected if n in heard]) / len(expected) if expected else None

    def copies(self, p: Row) -> int:
        payload = [r for r in self.rows if r.get("msg") == p["msg"] and r.get("lane") is Lane.PAYLOAD]
        return sum(r["copies"] * {SEND: 1, DROP: -1}[r["kind"]] for r in payload)

    def hop(self, p: Row) -> int | None:
        return max((r["hops"] for r in self.firsts(DELIVER, p) if r["hops"] is not None), default=None)

    def subscribed(self, p: Row, r: Row) -> bool:
        return self.joined(r["node"], p["topic"], r["t"], r["t"])

    def figures(self) -> dict[str, Any]:
        delivered = [(p, r) for p in self.messages for r in self.firsts(DELIVER, p)]
        received = [(p, r) for p in self.messages for r in self.firsts(RECEIVE, p)]
        wanted = [(p, r) for p, r in received if self.subscribed(p, r)]
        shares = [s for p in self.messages if (s := self.reliability(p)) is not None]
        hops = [h for p in self.messages if (h := self.hop(p)) is not None]
        n1 = [(self.copies(p), len(x)) for p in self.messages if (x := self.firsts(RECEIVE, p))]
        per = [(self.copies(p), len(x)) for p in self.messages if (x := self.firsts(DELIVER, p))]
        sends = [r for r in self.rows if r["kind"] == SEND]
        return {
            "messages": len(self.messages),
            "deliveries": len(delivered),
            "reliability": mean(shares),
            "reliability_min": min(shares, default=None),
            "rmr": mean([m / n - 1 for m, n in n1]),
            "payload_per_delivery": mean([m / n for m, n in per]),
            "false_positives": (len(received) - len(wanted)) / len(received) if received else None,
            "ldh_mean": mean(hops),
            "ldh_max": max(hops, default=None),
            "latency_ms": spread([r["t"] - p["t"] for p, r in delivered]),
            "reception_ms": spread([r["t"] - p["t"] for p, r in wanted]),
            "last_ms": mean(
                [max(r["t"] for r in x) / 1e3 - p["t"] / 1e3 for p in self.messages if (x := self.firsts(DELIVER, p))]
            ),
            "control_messages": sum(r["copies"] for r in sends if r["lane"] is not Lane.PAYLOAD),
            "bytes": sum(r["copies"] * r["size"] for r in sends),
        }


def mean(values: list[Any]) -> float | None:
    return sum(values) / len(values) if values else None


def spread(values: list[int]) -> dict[str, float | None]:
    if not values:
        return dict.fromkeys(TIMES)
    ranked = sorted(values)
    enough = {share: share * len(values) for share in (50, 90, 99)}
    found = {f"p{p}": next(v for v in ranked if sum(x <= v for x in values) * 100 >= n) / 1e3 for p, n in enough.items()}
    return {"mean": sum(values) / len(values) / 1e3, **found, "max": ranked[-1] / 1e3}


def observed(rows: list[Row], window: int) -> dict[str, Any]:
    """Straight into the counters: a tracer would fill in hops."""
    counters = Counters(window)
    blank: Row = dict.fromkeys(("msg", "peer", "hops", "copies", "size", "lane", "reason"))
    for r in rows:
        counters.observe(**{**blank, "dependencies": (), **r})
    counters.finish(rows[-1]["t"] if rows else 0)
    return counters.figures()


@given(histories(), st.sampled_from((0, 1, 10, 20)))
def test_counters_agree_with_the_definitions_read_aloud(rows: list[Row], window: int) -> None:
    found, wanted = observed(rows, window), Reference(rows, window).figures()
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name] == (pytest.approx(value) if value is not None else None), name
