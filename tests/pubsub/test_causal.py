"""Causal order: each rule on one machine, then any order of arrival, loss and copies, judged by the checker of histories."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from libweft.bench.runs.property_checks import Event, causal, fifo, integrity, tell
from libweft.overlays.claims import ID
from libweft.overlays.overlay import Overlay
from libweft.peer.codec import FRAME_LIMIT, msgpack
from libweft.peer.dispatch import receive
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.fake.env import FakeEnv
from libweft.peer.libp2p.ids import Identity
from libweft.peer.machine import MS, SECOND, Link, Message, MessageId, Peer
from libweft.peer.trace.kinds import DELIVER, DUPLICATE, JOINED, PUBLISH, REJECT
from libweft.pubsub.claims import NUMBER, check_order
from libweft.pubsub.flood import Flood
from libweft.pubsub.message import OrderHeader, Publication, Verdict
from libweft.pubsub.ordering.causal import ASKED, ID_BYTES, PROTOCOL, Ask, Before, Causal, CausalConfig, Copy
from libweft.pubsub.ordering.group import CUT
from libweft.pubsub.router import HEADERS, KEYS, LARGEST, TOPIC, too_large
from libweft.pubsub.signing import Signing
from tests.pubsub.apps import Inbox

LINK = Link(1, True, PROTOCOL)


class Node:
    """A node of its own world: what it sends by flood is `published`, what it asks is `asked`."""

    def __init__(self, me: Peer = 0, config: CausalConfig = CausalConfig(), app: Inbox | None = None) -> None:  # noqa: B008
        self.env = FakeEnv(me=me)
        self.app = app or Inbox()
        overlay = Overlay(self.env)
        self.router = Flood(self.env, overlay, self.app)
        self.order = Causal(self.env, self.router, self.app, config)
        self.order.open("t")
        self.router.join("t")

    def says(self, data: bytes) -> Publication:
        return self.order.publish("t", data)

    def hears(self, *several: Publication) -> None:
        for publication in several:
            receive(self.router, 99, publication)

    def linked(self, *peers: Peer) -> None:
        for peer in peers:
            self.order.link_up(peer, LINK)

    @property
    def data(self) -> list[bytes]:
        return [publication.data for publication in self.app.delivered]

    def sent(self, kind: type[Message]) -> list[tuple[Peer, Message]]:
        return [(peer, m) for peer, m in self.env.take() if isinstance(m, kind)]

    def asked(self) -> list[tuple[Peer, tuple[MessageId, ...]]]:
        return [(peer, m.ids) for peer, m in self.sent(Ask) if isinstance(m, Ask)]

    def rejected(self, reason: str) -> list[MessageId | None]:
        return [row.msg for row in self.env.traced if row.kind == REJECT and row.reason == reason]


def dialogue() -> tuple[Publication, Publication, Publication]:
    """A question, its answer by another, and thanks for it."""
    a, b = Node(1), Node(2)
    question = a.says(b"question")
    b.hears(question)
    answer = b.says(b"answer")
    a.hears(answer)
    return question, answer, a.says(b"thanks")


def test_a_message_names_what_it_directly_comes_after_and_no_more() -> None:
    question, answer, thanks = dialogue()
    assert question.order == OrderHeader(1, 1, ())
    assert answer.order == OrderHeader(1, 1, (question.id,))
    assert thanks.order == OrderHeader(1, 2, (answer.id,)), "the answer covers the question"


def test_the_barrier_of_figure_2_of_vcube_ps() -> None:
    p0, p1, p2 = Node(0), Node(1), Node(2)
    first = p0.says(b"m0,1")
    p1.hears(first)
    second, other = p1.says(b"m1,1"), p2.says(b"m2,1")
    p1.hears(other)
    last = p1.says(b"m1,2")
    assert second.order is not None and second.order.dependencies == (first.id,)
    assert last.order is not None and set(last.order.dependencies) == {second.id, other.id}


def test_a_message_waits_for_what_it_comes_after() -> None:
    question, answer, thanks = dialogue()
    node = Node()
    node.hears(thanks, answer)
    assert node.data == []
    node.hears(question)
    assert node.data == [b"question", b"answer", b"thanks"]
    assert [row.msg for row in node.env.traced if row.kind == DELIVER] == [question.id, answer.id, thanks.id]


def test_what_is_published_comes_after_what_the_router_has_not_handed_back_yet() -> None:
    node = Node()
    node.router.publish = lambda publication: None  # type: ignore[method-assign]
    first, second, third = node.says(b"1"), node.says(b"2"), node.says(b"3")
    assert [p.order.dependencies for p in (first, second, third) if p.order] == [(), (first.id,), (second.id,)]


def test_an_order_waits_longer_over_a_router_that_repairs() -> None:
    node = Node(me=9)
    node.router.repair = 60 * SECOND
    question, answer, _ = dialogue()
    node.hears(answer)
    node.env.advance(CausalConfig().patience + 30 * SECOND)
    assert node.data == []
    node.hears(question)
    assert node.data == [question.data, answer.data]


def test_concurrent_messages_do_not_wait_for_each_other() -> None:
    one, other, node = Node(1).says(b"one"), Node(2).says(b"other"), Node()
    node.hears(other, one)
    assert node.data == [b"other", b"one"]


def test_what_does_not_come_is_asked_for_from_neighbours_in_turn() -> None:
    question, answer, _ = dialogue()
    node = Node(config=CausalConfig(ask_source=9))
    node.linked(11, 12, 13, 14)
    node.env.advance(CausalConfig().young)
    node.hears(answer)
    node.env.advance(250 * MS - 1)
    assert node.asked() == [], "the router may bring it yet"
    node.env.advance(1)
    first = node.asked()
    node.env.advance(500 * MS)
    second = node.asked()
    assert all(ids == (question.id,) for _, ids in first + second)
    assert sorted(peer for peer, _ in first + second if isinstance(peer, int)) == [11, 12, 13, 14]


def test_a_young_subscription_asks_at_once_for_what_those_said_of_whom_it_has_heard_nothing() -> None:
    question, answer, thanks = dialogue()
    third, node = Node(3), Node(config=CausalConfig(ask_peers=1))
    third.hears(question, answer, thanks)
    node.linked(11)
    node.hears(answer)
    assert node.asked() == [(11, (question.id,))]
    node.hears(question, third.says(b"welcome"))
    assert node.asked() == [], "its source is known, so the router brings it"
    node.env.advance(250 * MS)
    assert node.asked() == [(11, (thanks.id,))]


def test_in_the_end_the_publisher_of_what_waits_is_asked_for_it_has_delivered_that() -> None:
    question, answer, _ = dialogue()
    node = Node()
    node.hears(answer)
    node.env.advance(5 * SECOND)
    assert set(node.asked()) == {(2, (question.id,))}


def test_who_has_it_answers_with_a_copy_and_the_router_takes_it_as_any_other() -> None:
    question, answer, _ = dialogue()
    node, neighbour = Node(5), Node(6)
    neighbour.hears(question)
    node.linked(6)
    node.hears(answer)
    ((_, ask),) = node.sent(Ask)
    receive(neighbour.order, 5, ask)
    ((peer, copy),) = neighbour.sent(Copy)
    assert peer == 5
    receive(node.order, 6, copy)
    assert node.data == [b"question", b"answer"]
    assert question.id in node.router.seen


def test_what_is_held_is_given_to_who_asks_too() -> None:
    question, answer, thanks = dialogue()
    node = Node()
    node.hears(answer)
    receive(node.order, 5, Ask("t", SECOND, (answer.id, question.id, thanks.id)))
    assert node.sent(Copy) == [(5, Copy.of(answer))]


def test_a_copy_that_was_not_asked_for_from_that_peer_is_not_looked_at() -> None:
    question, answer, thanks = dialogue()
    node = Node()
    node.linked(11)
    node.hears(answer)
    node.env.advance(250 * MS)
    receive(node.order, 12, Copy.of(question))
    receive(node.order, 11, Copy.of(thanks))
    assert node.data == []
    assert [row.kind for row in node.env.traced].count(DUPLICATE) == 2
    receive(node.order, 11, Copy.of(question))
    assert node.data == [b"question", b"answer"]


def test_a_forged_copy_is_refused_and_the_true_one_is_still_asked_for_elsewhere() -> None:
    identity = Identity.from_seed(bytes(32))
    author = Node(identity.peer)
    author.router.signing = Signing(identity)
    first, second = author.says(b"first"), author.says(b"second")
    node = Node(b"me", CausalConfig(ask_peers=1))
    node.router.signing = Signing(Identity.from_seed(bytes(31) + b"\x01"))
    node.linked(b"liar", b"friend")
    node.hears(second)
    node.env.advance(250 * MS)
    node.env.advance(500 * MS)
    asked = [peer for peer, _ in node.asked()]
    assert set(asked[:2]) == {b"liar", b"friend"}
    receive(node.order, b"liar", Copy.of(replace(first, data=b"forged")))
    assert node.data == []
    assert node.rejected("a false signature") == [first.id]
    receive(node.order, b"liar", Copy.of(replace(first, data=b"forged again")))
    assert len(node.rejected("a false signature")) == 1, "an ask is answered once"
    receive(node.order, b"friend", Copy.of(first))
    assert node.data == [b"first", b"second"]


class Censor(Inbox):
    validates = True

    def validate(self, sender: Peer, publication: Publication, answer: Callable[[Verdict], None]) -> None:
        answer(Verdict.REJECT if publication.data == b"question" else Verdict.ACCEPT)


def test_a_copy_passes_the_validators_and_nothing_waits_for_what_they_refuse() -> None:
    question, answer, _ = dialogue()
    node = Node(app=Censor())
    node.linked(11)
    node.hears(answer)
    node.env.advance(250 * MS)
    receive(node.order, 11, Copy.of(question))
    assert node.data == [b"answer"]
    assert node.rejected("reject") == [question.id]


def test_what_nobody_brings_is_given_up_after_the_patience_counted_traced_and_not_delivered_any_more() -> None:
    question, answer, _ = dialogue()
    node = Node()
    node.hears(answer)
    node.env.advance(10 * SECOND - 1)
    assert node.data == []
    node.env.advance(SECOND)
    assert node.data == [b"answer"]
    assert (node.order.given_up, node.rejected("given up")) == (1, [question.id])
    node.hears(question)
    assert node.data == [b"answer"]
    assert (node.order.late, node.rejected("late")) == (1, [question.id])
    assert node.env.clock.waiting == 0


def test_what_is_here_of_a_source_comes_before_what_follows_one_that_was_given_up() -> None:
    other, author = Node(1).says(b"other"), Node(2)
    author.hears(other)
    first, _, third = author.says(b"first"), author.says(b"second"), author.says(b"third")
    node = Node(config=CausalConfig(patience=SECOND))
    node.hears(third)
    node.env.advance(900 * MS)
    node.hears(first)
    node.env.advance(SECOND)
    assert node.data == [], "third waits for second no longer, but for first"
    node.env.advance(SECOND)
    assert node.data == [b"first", b"third"]


def test_who_waits_for_what_its_source_went_on_without_waits_for_what_that_one_names() -> None:
    """The author's second message comes after its first by way of a question alone, which the validator refuses."""
    far, author, other, friend = Node(1), Node(2), Node(3), Node(4)
    start = far.says(b"start")
    author.hears(start)
    first = author.says(b"first")
    other.hears(start, first)
    friend.hears(start, first)
    question, reply = other.says(b"question"), friend.says(b"reply")
    author.hears(question)
    second = author.says(b"second")
    node = Node(app=Censor())
    node.hears(first, reply, second, question)
    assert node.data == [b"second"], "the reply waits for start, which the first names"
    node.hears(start)
    assert node.data == [b"second", b"start", b"reply"] and node.rejected("late") == [first.id]


def test_nobody_begins_to_wait_for_what_its_source_has_left_behind() -> None:
    far, author, other = Node(1), Node(2), Node(3)
    author.hears(far.says(b"start"))
    first = author.says(b"first")
    second = replace(author.says(b"second"), order=OrderHeader(1, 2, ()))
    question = author.says(b"question")
    reply = replace(other.says(b"reply"), order=OrderHeader(1, 1, (question.id,)))
    node = Node(app=Censor())
    node.hears(first, second, reply, question)
    assert node.data == [b"second", b"reply"]


def test_what_a_source_has_gone_on_without_is_given_up_and_told() -> None:
    author, other = Node(1), Node(2)
    first = author.says(b"first")
    other.hears(first)
    answer = other.says(b"answer")
    second = replace(author.says(b"second"), order=OrderHeader(1, 2, ()))
    node = Node()
    node.hears(answer, second)
    assert node.data == [b"second", b"answer"]
    assert (node.order.given_up, node.rejected("given up")) == (1, [first.id])


def test_who_joins_late_does_not_wait_for_what_came_before() -> None:
    question, answer, thanks = dialogue()
    old, young = Node(5), Node(6)
    old.hears(question, answer)
    old.env.advance(60 * SECOND)
    young.env.clock.now = 55 * SECOND
    young.order.close("t")
    young.order.open("t")
    young.linked(5)
    young.hears(thanks)
    ((_, ask),) = young.sent(Ask)
    receive(old.order, 6, ask)
    ((_, before),) = old.sent(Before)
    receive(young.order, 5, before)
    assert young.data == [b"thanks"]
    assert (young.order.before, young.order.given_up) == (1, 0)
    young.hears(question)
    assert young.data == [b"thanks"], "the cut says that it came before, too"


def test_before_is_not_believed_of_a_source_that_was_heard_here() -> None:
    author, node = Node(1), Node()
    first, second, third = author.says(b"1"), author.says(b"2"), author.says(b"3")
    node.linked(11)
    node.hears(first, third)
    node.env.advance(250 * MS)
    receive(node.order, 11, Before("t", (second.id,), (third.id,)))
    assert node.data == [b"1"]
    assert node.order.before == 0


def test_a_liar_keeps_nothing_out_once_a_subscription_has_begun() -> None:
    question, answer, _ = dialogue()
    other, node = Node(3), Node()
    node.linked(11)
    node.hears(other.says(b"other"))
    node.env.advance(11 * SECOND)
    node.hears(answer)
    node.env.advance(250 * MS)
    future = replace(other.says(b"later").id, sequence=1_000)
    receive(node.order, 11, Before("t", (question.id,), (future,)))
    node.hears(other.says(b"latest"), *other.app.delivered)
    assert node.data == [b"other", b"answer", b"later", b"latest"]


def test_a_liar_that_says_where_a_subscription_begins_mutes_nobody_for_longer_than_that_takes() -> None:
    node, ghost = Node(), MessageId(11, 1, 1)
    node.linked(11)
    node.hears(Publication(MessageId(11, 1, 2), "t", b"lie", OrderHeader(1, 2, (ghost,))))
    node.env.advance(250 * MS)
    receive(node.order, 11, Before("t", (ghost,), (MessageId(3, 1, NUMBER),)))
    node.hears(Publication(MessageId(3, 1, 1), "t", b"early", OrderHeader(1, 1)))
    assert (node.data, node.order.late) == ([b"lie"], 1)
    node.env.advance(CausalConfig().longest)
    node.hears(Publication(MessageId(3, 1, 2), "t", b"later", OrderHeader(1, 2)))
    assert node.data == [b"lie", b"later"]


def test_who_has_not_been_there_itself_says_nothing_of_what_came_before() -> None:
    question, _, _ = dialogue()
    node = Node()
    node.hears(question)
    receive(node.order, 5, Ask("t", 0, (question.id,)))
    assert node.sent(Before) == []


def test_a_restarted_node_takes_what_it_said_in_an_earlier_life_as_any_message() -> None:
    question, answer, thanks = dialogue()
    again = Node(1)
    again.env.epoch = 2
    again.hears(thanks)
    assert again.data == []
    again.hears(question, answer)
    assert again.data == [b"question", b"answer", b"thanks"]


def test_what_the_app_says_while_it_is_told_comes_after_that_and_not_after_what_comes_next() -> None:
    question, answer, _ = dialogue()
    said: list[Publication] = []

    class Echo(Inbox):
        def deliver(self, publication: Publication) -> None:
            super().deliver(publication)
            if publication.data == b"question":
                said.append(node.says(b"echo"))

    node = Node(app=Echo())
    node.hears(answer, question)
    assert said[0].order is not None and said[0].order.dependencies == (question.id,)
    assert node.data == [b"question", b"echo", b"answer"]


def test_messages_without_a_header_and_other_topics_pass() -> None:
    node = Node()
    node.router.join("plain")
    node.hears(Publication(MessageId(9, 1, 5), "t", b"bare"))
    node.hears(Publication(MessageId(9, 1, 6), "plain", b"plain", OrderHeader(1, 3)))
    assert node.data == [b"bare", b"plain"]


def test_a_topic_has_one_order_at_a_time() -> None:
    order = Node().order
    with pytest.raises(UsageError, match="'t' is open with the order causal on this node; a topic has one order at a time"):
        order.open("t", "fifo")
    order.open("f", "fifo")
    with pytest.raises(UsageError, match="'f' is open with the order fifo"):
        order.open("f")
    order.close("f")
    order.open("f")


def test_closing_drops_what_is_held_and_a_later_subscription_says_more_after_all_that_was_heard() -> None:
    question, answer, thanks = dialogue()
    node = Node()
    node.hears(question, thanks)
    node.router.leave("t")
    node.order.close("t")
    node.env.advance(60 * SECOND)
    assert (node.data, node.order.held, node.order.held_bytes, node.env.clock.waiting) == ([b"question"], 0, 0, 0)
    node.order.open("t")
    said = node.says(b"back")
    assert said.order == OrderHeader(1, 1, (question.id,))
    assert answer.id not in said.order.dependencies


def test_closing_delivers_what_is_held_where_the_topic_is_subscribed_without_the_order() -> None:
    question, answer, thanks = dialogue()
    other = Publication(MessageId(8, 1, 1), "t", b"other", OrderHeader(1, 1, (thanks.id,)))
    node = Node()
    node.order.open("t")
    node.hears(other, question, thanks)
    node.order.close("t")
    assert node.data == [b"question"], "it is still open"
    node.order.close("t")
    assert node.data == [b"question", b"thanks", b"other"]
    assert (node.order.held, node.order.held_bytes, node.rejected("given up")) == (0, 0, [answer.id])
    assert not node.order.is_open("t")
    node.hears(answer)
    assert node.data[3:] == [b"answer"]


def test_a_topic_on_which_nothing_was_said_or_heard_is_forgotten_when_it_is_closed() -> None:
    order = Node().order
    for topic in ("silent", "spoken"):
        order.open(topic)
    order.publish("spoken", b"x")
    for topic in ("silent", "spoken"):
        order.close(topic)
    assert [*order.groups] == ["t", "spoken"]


def test_what_is_held_is_bounded_in_all_and_for_each_source_and_the_oldest_goes_first() -> None:
    author = Node(1)
    lost, *several = [author.says(b"%d" % number) for number in range(10)]
    node = Node(config=CausalConfig(held_each=4))
    node.hears(*several[:4])
    assert node.data == []
    node.hears(several[4])
    assert node.data == [b"1", b"2", b"3", b"4", b"5"]
    assert node.rejected("given up") == [lost.id]
    heavy = Node(config=CausalConfig(held_bytes=300))
    heavy.hears(*several[:3])
    assert heavy.data == [b"1", b"2"] or heavy.data == [b"1", b"2", b"3"]
    assert heavy.order.held_bytes <= 300


def invented(number: int, count: int, data: bytes = b"") -> Publication:
    """A message on another topic that waits for so many that never were."""
    names = tuple(MessageId(100 + number, 1, n) for n in range(count))
    return Publication(MessageId(9, 1, number), "loud", data, OrderHeader(1, number, names))


@pytest.mark.parametrize(
    ("config", "loud"),
    (
        (CausalConfig(wanted=20), [invented(n, 9) for n in range(3)]),
        (CausalConfig(held=12), [invented(n, 1) for n in range(10)]),
        (CausalConfig(held_bytes=6_000), [invented(n, 1, bytes(2_000)) for n in range(3)]),
    ),
)
def test_a_topic_that_holds_or_wants_too_much_makes_room_itself(config: CausalConfig, loud: list[Publication]) -> None:
    author = Node(1)
    several = [author.says(b"%d" % number) for number in range(6)]
    node = Node(config=config)
    node.order.open("loud")
    node.router.join("loud")
    node.hears(*several[1:], *loud)
    assert node.order.given_up > 0 and {p.topic for p in node.app.delivered} == {"loud"}
    node.hears(several[0])
    assert [p.data for p in node.app.delivered if p.topic == "t"] == [p.data for p in several]


def test_messages_that_name_each_other_do_not_wait_for_ever() -> None:
    one, other = MessageId(8, 1, 1), MessageId(9, 1, 1)
    node = Node(config=CausalConfig(longest=20 * SECOND))
    node.hears(*(Publication(a, "t", b"ring", OrderHeader(1, 1, (b,))) for a, b in ((one, other), (other, one))))
    node.env.advance(19 * SECOND)
    assert node.data == []
    node.env.advance(2 * SECOND)
    assert node.data == [b"ring", b"ring"]
    assert node.order.held == 0 and node.env.clock.waiting == 0


def test_sources_and_ids_given_up_and_the_barrier_are_bounded() -> None:
    node = Node(config=CausalConfig(sources=3, dependencies=4, given_up=2, patience=SECOND))
    node.hears(*(Node(source).says(b"x") for source in range(10, 20)))
    said = node.says(b"y")
    assert said.order is not None and len(said.order.dependencies) == 4
    assert node.order.cut == 6
    for number in range(5):
        missing = MessageId(50 + number, 1, 1)
        node.hears(Publication(MessageId(60 + number, 1, 1), "t", b"z", OrderHeader(1, 1, (missing,))))
    node.env.advance(3 * SECOND)
    group = node.order.groups["t"]
    assert (len(group.last_delvs), len(group.given_up), node.order.given_up) == (3, 2, 5)


def test_a_source_with_many_lives_has_a_node_forget_no_other() -> None:
    node = Node(config=CausalConfig(sources=8))
    node.hears(*(Node(source).says(b"x") for source in (1, 2, 3)))
    node.hears(*(Publication(MessageId(9, epoch, 1), "t", b"x", OrderHeader(epoch, 1)) for epoch in range(20)))
    group = node.order.groups["t"]
    assert [*group.last_delvs] == [(1, 1), (2, 1), (3, 1), (9, 17), (9, 18), (9, 19)]
    node.order.close("t")
    node.order.open("t")
    node.hears(*(Publication(MessageId(9, epoch, 1), "t", b"x", OrderHeader(epoch, 1)) for epoch in range(20, 40)))
    assert (1, 1) in group.earlier and len(group.last_delvs) == 1
    node.hears(*(Node(source).says(b"x") for source in range(10, 30)))
    assert len(group.last_delvs) == 8 and sum(group.lives.values()) == 8 and not group.earlier


def test_a_message_that_names_too_many_covers_only_those_that_it_waits_for() -> None:
    node = Node(config=CausalConfig(dependencies=2))
    one, other = Node(1).says(b"one"), Node(2).says(b"other")
    many = Publication(MessageId(8, 1, 1), "t", b"many", OrderHeader(1, 1, (one.id, one.id, other.id)))
    node.hears(one, other, many)
    said = node.says(b"y")
    assert said.order is not None and said.order.dependencies == (other.id, many.id)


def test_an_asker_gets_so_many_ids_a_second_and_none_over_a_full_link() -> None:
    question, _, _ = dialogue()
    node = Node(config=CausalConfig(asks=ASKED))
    node.hears(question)
    ask = Ask("t", SECOND, (question.id,) * ASKED)
    receive(node.order, 5, ask)
    assert len(node.sent(Copy)) == ASKED
    receive(node.order, 5, ask)
    assert node.sent(Copy) == []
    node.env.advance(SECOND)
    node.env.backlogs[5] = 1 << 20
    receive(node.order, 5, ask)
    assert node.sent(Copy) == []


def test_what_is_kept_for_others_is_bounded_by_number_and_age() -> None:
    author, node = Node(1), Node(config=CausalConfig(kept=3))
    several = [author.says(b"%d" % number) for number in range(5)]
    node.hears(*several)
    receive(node.order, 5, Ask("t", 1 << 40, tuple(each.id for each in several)))
    assert [m.data for _, m in node.sent(Copy) if isinstance(m, Copy)] == [b"2", b"3", b"4"]
    node.env.advance(60 * SECOND)
    receive(node.order, 5, Ask("t", 1 << 40, tuple(each.id for each in several)))
    assert node.sent(Copy) == []
    assert len(node.order.kept) == node.order.kept.bytes == 0


@pytest.mark.parametrize(("name", "value"), [("patience", 0), ("slack", 1 << 61), ("held", True), ("young", -1), ("asks", 1.5)])
def test_a_config_refuses_what_cannot_be(name: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"causal: {name} is {value}; it must be a whole number, [01] to "):
        CausalConfig(**{name: value})  # type: ignore[arg-type]


FALSE = (
    *(MessageId(source, 1, 1) for source in (bytes(ID + 1), b"", 7)),
    *(MessageId(b"x", *numbers) for numbers in ((-1, 1), (1, NUMBER + 1))),
)


@pytest.mark.parametrize("false", FALSE)
def test_a_message_that_names_what_no_node_has_is_refused_and_nothing_is_asked_for(false: MessageId) -> None:
    liar, node = b"liar", Node(b"me")
    node.linked(b"friend")
    message = Publication(MessageId(liar, 1, 1), "t", b"x", OrderHeader(1, 1, (false,)))
    node.hears(message)
    node.env.advance(20 * SECOND)
    assert (node.data, node.order.held, node.asked(), node.rejected("a false order")) == ([], 0, [], [message.id])


@pytest.mark.parametrize("false", FALSE)
def test_who_asks_for_or_answers_with_an_id_that_no_node_has_is_at_fault(false: MessageId) -> None:
    node = Node(b"me")
    for message in (Ask("t", SECOND, (false,)), Before("t", (false,), ()), Before("t", (), (false,))):
        with pytest.raises(PeerError):
            receive(node.order, b"liar", message)


def test_a_false_id_that_a_validator_refuses_is_not_remembered_as_given_up() -> None:
    node = Node(b"me", app=Censor())
    node.hears(Publication(MessageId(bytes(60_000), 1, 1), "t", b"question", OrderHeader(1, 1)))
    assert not node.order.groups["t"].given_up


def test_a_router_that_judges_headers_judges_the_ids_in_them() -> None:
    check_order(OrderHeader(1, 1, (MessageId(5, 1, 1), MessageId(bytes(ID), NUMBER, NUMBER))))
    for false in (MessageId(bytes(ID + 1), 1, 1), MessageId(b"x", 1, NUMBER + 1)):
        with pytest.raises(PeerError):
            check_order(OrderHeader(1, 1, (false,)))


def test_a_cut_says_nothing_of_a_source_that_had_said_nothing_before() -> None:
    node = Node()
    node.env.advance(10 * SECOND)
    node.hears(Publication(MessageId(7, 1, 1), "t", b"old", OrderHeader(1, 1)))
    node.env.advance(SECOND)
    node.hears(Publication(MessageId(8, 1, 0), "t", b"new", OrderHeader(1, 1)))
    receive(node.order, 9, Ask("t", SECOND // 2, (MessageId(7, 1, 1),)))
    ((_, before),) = node.sent(Before)
    assert before == Before("t", (MessageId(7, 1, 1),), (MessageId(7, 1, 1),))


def largest(number: int) -> MessageId:
    return MessageId(number.to_bytes(ID), NUMBER, NUMBER - 1)


def test_the_largest_ids_in_full_tables_fit_a_frame() -> None:
    topic, size, node = "\U0001f9f5" * TOPIC, msgpack((Ask, Copy, Before)).size, Node(b"me")
    node.order.open(topic)
    node.router.join(topic)
    node.linked(b"friend")
    node.env.advance(10 * SECOND)
    node.hears(*(Publication(largest(n), topic, b"", OrderHeader(1, 1)) for n in range(2 * CUT)))
    author, ids = MessageId(b"author", 1, 1), tuple(largest(1 << 20 | n) for n in range(CausalConfig().dependencies))
    node.hears(Publication(author, topic, bytes(LARGEST), OrderHeader(1, 1, ids), (), b"", bytes(KEYS)))
    node.env.advance(SECOND)
    receive(node.order, b"friend", Ask(topic, SECOND // 2, tuple(largest(n) for n in range(ASKED))))
    receive(node.order, b"friend", Ask(topic, 20 * SECOND, (author,)))
    sent = [m for _, m in node.env.take()]
    asks = [m for m in sent if isinstance(m, Ask)]
    befores = [m for m in sent if isinstance(m, Before)]
    copies = [m for m in sent if isinstance(m, Copy)]
    assert len(asks[0].ids) == ASKED and len(befores[0].cut) == CUT and copies[0].id == author
    assert max(map(size, asks)) < 10 << 10 and max(map(size, befores)) < 100 << 10 and max(map(size, copies)) < FRAME_LIMIT


def test_what_is_published_after_as_much_as_there_may_be_has_a_header_that_routers_take() -> None:
    most = HEADERS // ID_BYTES
    node = Node(b"me", CausalConfig(dependencies=most))
    node.hears(*(Publication(largest(n), "t", b"", OrderHeader(1, 1)) for n in range(2 * most)))
    said = node.says(b"x")
    assert said.order is not None and len(said.order.dependencies) == most and not too_large(said, LARGEST)
    with pytest.raises(UsageError, match="causal: dependencies is 683; no router takes more than 682"):
        CausalConfig(dependencies=most + 1)


# Any order of arrival, loss and copies.


class World:
    """Some nodes that talk; every message goes to each other node when the test says so."""

    def __init__(self, size: int) -> None:
        self.nodes = [Node(me) for me in range(size)]
        self.events = [Event(me, JOINED, "t") for me in range(size)]
        self.way: list[tuple[int, Publication]] = []
        for node in self.nodes:
            node.linked(*(peer for peer in range(size) if peer != node.env.me))

    def publish(self, me: int) -> None:
        publication = self.nodes[me].says(b"%d" % len(self.events))
        self.way += [(peer, publication) for peer in range(len(self.nodes)) if peer != me]
        self.note()

    def arrive(self, place: int, lost: bool = False, twice: bool = False) -> None:
        if self.way:
            peer, publication = self.way.pop(place % len(self.way))
            if not lost:
                self.nodes[peer].hears(publication, *([publication] if twice else []))
            self.note()

    def advance(self, us: int) -> None:
        """Time passes for all, and what they ask of each other arrives at once."""
        for node in self.nodes:
            node.env.advance(us)
        self.note()
        while sent := [(node.env.me, *one) for node in self.nodes for one in node.env.take()]:
            for me, peer, m in sent:
                if isinstance(peer, int) and not isinstance(m, Publication):
                    receive(self.nodes[peer].order, me, m)
                self.note()

    def note(self) -> None:
        for node in self.nodes:
            rows = [row for row in node.env.take_traced() if row.kind in (PUBLISH, DELIVER)]
            self.events += [Event(node.env.me, row.kind, row.topic, row.msg) for row in rows]

    def violations(self) -> Sequence[object]:
        stories = tell(self.events)
        return [*causal(stories), *fifo(stories), *integrity(stories)]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 3)),
        st.tuples(st.sampled_from(("arrive", "twice", "lost", "arrive")), st.integers(0, 99)),
        st.tuples(st.just("wait"), st.sampled_from((10 * MS, 300 * MS, 6 * SECOND))),
    ),
    max_size=40,
)


def play(world: World, moves: list[tuple[str, int]], lossy: bool) -> None:
    for what, number in moves:
        if what == "publish":
            world.publish(number)
        elif what == "wait":
            world.advance(number)
        else:
            world.arrive(number, lost=what == "lost" and lossy, twice=what == "twice")


@settings(max_examples=60)
@given(steps)
def test_nothing_is_lost_where_nothing_is_lost_and_never_is_anything_out_of_order(moves: list[tuple[str, int]]) -> None:
    world = World(4)
    play(world, [move for move in moves if move[0] != "wait"], lossy=False)
    while world.way:
        world.arrive(len(world.way) // 2)
    assert world.violations() == []
    published = sum(event.kind == PUBLISH for event in world.events)
    assert [len(node.data) for node in world.nodes] == [published] * 4
    assert all(node.order.held == node.order.given_up == node.order.late == 0 for node in world.nodes)


@settings(max_examples=80)
@given(steps)
def test_with_losses_never_is_anything_out_of_order_and_nothing_waits_for_ever(moves: list[tuple[str, int]]) -> None:
    world = World(4)
    play(world, moves, lossy=True)
    for _ in range(8):
        world.advance(3 * SECOND)
    assert world.violations() == []
    for node in world.nodes:
        assert node.order.held == node.order.held_bytes == 0
        assert node.env.clock.waiting == 0
        assert not node.order.groups["t"].waiting and not node.order.groups["t"].wanted
