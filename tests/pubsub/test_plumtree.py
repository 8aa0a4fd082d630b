"""Plumtree by hand on a FakeEnv: one test a rule of the paper, one a trap, and what a hostile or slow peer can do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import trio
from msgspec.structs import replace as replace_message
from trio.testing import MockClock

from libweft.overlays.overlay import Overlay
from libweft.overlays.static import Static
from libweft.peer.codec import msgpack
from libweft.peer.dispatch import receive
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.fake.env import FakeEnv, Traced
from libweft.peer.fake.wire import FakeWire
from libweft.peer.machine import MS, SECOND, Build, Env, Lane, Machine, Message, MessageId, Peer
from libweft.peer.sim.latency import Uniform
from libweft.peer.sim.simulator import Simulator
from libweft.peer.trace.kinds import DELIVER, DUPLICATE, GRAFT, PRUNE, PUBLISH, RECEIVE, REJECT
from libweft.peer.trace.tracer import Tracer
from libweft.pubsub.interests import Interest
from libweft.pubsub.message import OrderHeader, Publication, Verdict
from libweft.pubsub.plumtree import (
    ANNOUNCERS,
    BURST,
    IDS,
    KNOWN,
    OLDEST,
    PROTOCOL,
    ROUNDS,
    Gossip,
    Graft,
    Heard,
    IHave,
    Plumtree,
    PlumtreeConfig,
    Prune,
    Summary,
)
from libweft.pubsub.seen import TTL
from libweft.pubsub.signing import Signing
from tests.peer.live_world import JUMP_S, LiveWorld, identity

DEFAULT = PlumtreeConfig(summary_every=10**9 * SECOND)  # no summary comes by itself
FIRST, SECOND_WAIT = DEFAULT.first_wait, DEFAULT.second_wait


class Judge:
    """An app that keeps what it gets, and holds every verdict back until the test speaks it."""

    def __init__(self, validates: bool = False) -> None:
        self.validates = validates
        self.cases: list[tuple[Peer, Publication, Callable[[Verdict], None]]] = []
        self.delivered: list[Publication] = []

    def validate(self, sender: Peer, publication: Publication, answer: Callable[[Verdict], None]) -> None:
        self.cases.append((sender, publication, answer))

    def deliver(self, publication: Publication) -> None:
        self.delivered.append(publication)

    def joined(self, interest: Interest) -> None: ...


class Given(Overlay):
    """Neighbours by decree."""

    def set(self, *peers: Peer) -> None:
        for peer in [peer for peer in self.neighbors if peer not in peers]:
            self._down(peer, "decreed")
        for peer in peers:
            self._up(peer)


class Node:
    """One machine with neighbours 1, 2 and 3, subscribed to "t"."""

    def __init__(
        self, config: PlumtreeConfig = DEFAULT, *, validates: bool = False, neighbors: Sequence[Peer] = (1, 2, 3)
    ) -> None:
        self.env = FakeEnv(me=0)
        self.app = Judge(validates)
        self.overlay = Given(FakeEnv(me=0, clock=self.env.clock))
        self.router = Plumtree(self.env, self.overlay, self.app, config)
        self.overlay.set(*neighbors)
        self.router.join("t")
        self.env.take_traced()

    @property
    def eager(self) -> list[Peer]:
        return list(self.router.tree.eager)

    @property
    def lazy(self) -> list[Peer]:
        return list(self.router.tree.lazy)

    def hears(self, sender: Peer, msg: Message) -> list[tuple[Peer, Message]]:
        """What it sends in answer."""
        self.env.take()
        receive(self.router, sender, msg)
        return self.env.take()

    def waits(self, us: int) -> list[tuple[Peer, Message]]:
        self.env.take()
        self.env.advance(us)
        return self.env.take()

    def kinds(self) -> list[str]:
        return [row.kind for row in self.env.take_traced()]


def mid(sequence: int = 1, source: Peer = 9) -> MessageId:
    return MessageId(source, 1, sequence)


def message(sequence: int = 1, source: Peer = 9, data: bytes = b"data") -> Publication:
    return Publication(mid(sequence, source), "t", data)


def gossip(sequence: int = 1, round: int = 1, source: Peer = 9, data: bytes = b"data", age: int = 0) -> Gossip:
    return Gossip.of(message(sequence, source, data), round, age=age)


def ihave(*sequences: int, round: int = 1) -> IHave:
    return IHave(tuple((mid(sequence), round) for sequence in sequences))


def graft(*sequences: int, payload: bool = True) -> Graft:
    return Graft(tuple(mid(sequence) for sequence in sequences), payload)


def unconnected(wire: FakeWire, app: Judge) -> Plumtree:
    """A node that becomes a neighbour of whom the wire connects it to."""

    def machines(env: Callable[[], Env]) -> Sequence[Machine]:
        overlay = Static(env(), (), (PROTOCOL,))
        return [overlay, Plumtree(env(), overlay, app)]

    router = wire.nodes[wire.add(machines)].machines[-1]
    assert isinstance(router, Plumtree)
    router.join("t")
    return router


def lazy_node(config: PlumtreeConfig = DEFAULT) -> Node:
    """2 and 3 have become lazy."""
    node = Node(config)
    for peer in (2, 3):
        node.hears(peer, Prune(mid(99)))
    return node


# Gossip and tree construction.


def test_all_neighbours_begin_as_eager() -> None:
    assert (Node().eager, Node().lazy) == ([1, 2, 3], [])


def test_a_publication_goes_to_all_eager_links_in_round_one() -> None:
    node = Node()
    mine = node.router.compose("t", b"x")
    node.router.publish(mine)
    assert node.env.take() == [(peer, Gossip.of(mine, 1)) for peer in (1, 2, 3)]
    assert node.app.delivered == [mine]
    assert [(row.kind, row.hops) for row in node.env.take_traced()] == [(PUBLISH, 0), (DELIVER, 0)]


def test_the_first_copy_is_delivered_and_pushed_on_a_round_later() -> None:
    node = Node()
    assert node.hears(1, gossip(round=4)) == [(2, gossip(round=5)), (3, gossip(round=5))]
    assert node.app.delivered == [message()]
    assert [(row.kind, row.hops) for row in node.env.take_traced()] == [(RECEIVE, 4), (DELIVER, 4)]


def test_lazy_links_get_an_announcement_with_the_round_of_the_payload() -> None:
    node = lazy_node()
    assert node.hears(1, gossip(round=4)) == [(2, ihave(1, round=5)), (3, ihave(1, round=5))]


def test_second_copy_prunes_its_sender() -> None:
    node = Node()
    node.hears(1, gossip())
    assert node.hears(2, gossip()) == [(2, Prune(mid()))]
    assert (node.eager, node.lazy) == ([1, 3], [2])
    assert node.app.delivered == [message()]
    assert node.kinds() == [RECEIVE, DELIVER, DUPLICATE, PRUNE]


def test_a_prune_makes_its_sender_lazy_and_is_not_answered() -> None:
    node = Node()
    assert node.hears(2, Prune(mid())) == []
    assert (node.eager, node.lazy) == ([1, 3], [2])


def test_a_first_copy_makes_its_sender_eager() -> None:
    node = lazy_node()
    node.hears(2, gossip())
    assert (node.eager, node.lazy) == ([1, 2], [3])


def test_a_publisher_prunes_who_sends_its_message_back() -> None:
    node = Node()
    mine = node.router.compose("t", b"x")
    node.router.publish(mine)
    assert node.hears(3, Gossip.of(mine, 2)) == [(3, Prune(mine.id))]


def test_who_does_not_subscribe_forwards_and_does_not_deliver() -> None:
    node = Node()
    node.router.leave("t")
    assert len(node.hears(1, gossip())) == 2
    assert node.app.delivered == []


def test_all_of_a_publication_travels() -> None:
    whole = Publication(mid(), "t", b"x", OrderHeader(1, 2, (mid(7),)), (("price", 3),), b"signed", b"key")
    frame = msgpack(Plumtree.kinds).pack([Gossip.of(whole, 3)])[0]
    (back,) = msgpack(Plumtree.kinds).unpack(frame)
    assert isinstance(back, Gossip)
    assert (back.publication(), back.round) == (whole, 3)


def test_rounds_stop_at_a_limit_instead_of_overflowing() -> None:
    node = Node()
    assert node.hears(1, gossip(round=ROUNDS))[0] == (2, gossip(round=ROUNDS))


def test_on_the_wire_it_has_a_protocol_of_its_own() -> None:
    assert Plumtree.protocols == (PROTOCOL,) == ("/weft/plumtree/1.0.0",)


def test_only_payloads_are_on_the_payload_lane_and_announcements_may_be_dropped() -> None:
    lanes = {kind: kind.lane for kind in Plumtree.kinds}
    assert lanes == {
        Gossip: Lane.PAYLOAD,
        IHave: Lane.LAZY,
        Summary: Lane.LAZY,
        Graft: Lane.CONTROL,
        Prune: Lane.CONTROL,
        Heard: Lane.CONTROL,
    }


# Tree repair.


def test_an_announcement_of_a_known_message_is_ignored() -> None:
    node = Node()
    node.hears(1, gossip())
    assert node.hears(2, ihave(1)) == []
    assert node.waits(10 * SECOND) == []


def test_a_message_that_was_announced_and_does_not_come_is_asked_for_after_the_first_wait() -> None:
    node = lazy_node()
    assert node.hears(2, ihave(1)) == []
    assert node.waits(FIRST - 1) == []
    assert node.waits(1) == [(2, graft(1))]
    assert (node.eager, node.lazy) == ([1, 2], [3])
    assert [(row.kind, row.msg, row.peer) for row in node.env.traced] == [(GRAFT, mid(), 2)]


def test_after_the_shorter_second_wait_the_next_announcer_is_asked() -> None:
    node = lazy_node()
    node.hears(2, ihave(1))
    node.hears(3, ihave(1))
    assert node.waits(FIRST) == [(2, graft(1))]
    assert node.waits(SECOND_WAIT - 1) == []
    assert node.waits(1) == [(3, graft(1))]
    assert SECOND_WAIT < FIRST


def test_a_later_announcer_does_not_begin_the_wait_again() -> None:
    node = lazy_node()
    node.hears(2, ihave(1))
    node.waits(FIRST // 2)
    node.hears(3, ihave(1))
    assert node.waits(FIRST - FIRST // 2) == [(2, graft(1))]


@pytest.mark.parametrize("waited", [0, FIRST, FIRST + SECOND_WAIT])
def test_a_message_that_comes_is_asked_for_no_more(waited: int) -> None:
    node = lazy_node()
    node.hears(2, ihave(1))
    node.waits(waited)
    node.hears(1, gossip())
    assert node.waits(10 * SECOND) == []
    assert not node.router.awaited and not node.router.asked and not node.router.opened


def test_each_message_has_waits_of_its_own() -> None:
    node = lazy_node()
    node.hears(2, ihave(1))
    node.waits(FIRST // 2)
    node.hears(3, ihave(2))
    sent = [(node.env.now(), *sent) for _ in range(10) for sent in node.waits(FIRST // 10)]
    assert sent == [(FIRST, 2, graft(1)), (FIRST * 3 // 2, 3, graft(2)), (FIRST * 3 // 2, 2, graft(1))]


def test_a_graft_makes_its_sender_eager_and_is_answered_with_the_payload() -> None:
    node = lazy_node()
    node.hears(1, gossip(round=4))
    assert node.hears(2, graft(1)) == [(2, gossip(round=5))]
    assert (node.eager, node.lazy) == ([1, 2], [3])


def test_a_graft_for_several_messages_is_answered_with_all_of_them() -> None:
    node = lazy_node()
    node.hears(1, gossip(1))
    node.hears(1, gossip(2))
    assert node.hears(2, graft(2, 1, 7)) == [(2, gossip(2, 2)), (2, gossip(1, 2))]


def test_a_graft_for_no_payload_only_makes_the_link_eager() -> None:
    node = lazy_node()
    node.hears(1, gossip())
    assert node.hears(2, graft(1, payload=False)) == []
    assert node.eager == [1, 2]


def test_messages_due_together_are_asked_for_together() -> None:
    node = lazy_node()
    node.hears(2, ihave(1, 2))
    node.hears(3, ihave(3))
    assert node.waits(FIRST) == [(2, graft(1, 2)), (3, graft(3))]


# The traps.


def test_trap_a_a_new_neighbour_is_eager() -> None:
    """The text on failures speaks of the lazy set; the algorithm says eager."""
    node = lazy_node()
    node.overlay.set(1, 2, 3, 4)
    assert (node.eager, node.lazy) == ([1, 4], [2, 3])


def test_trap_b_a_payload_is_held_for_longer_than_an_announcer_may_be_asked() -> None:
    node = lazy_node()
    node.hears(1, gossip())
    longest = DEFAULT.first_wait + DEFAULT.graft_tries * DEFAULT.second_wait
    node.waits(longest)
    assert node.hears(2, graft(1)) == [(2, gossip(round=2, age=longest))]
    with pytest.raises(UsageError, match="outlast"):
        PlumtreeConfig(first_wait=SECOND, second_wait=SECOND, graft_tries=3, held_age=4 * SECOND)


def test_trap_b_a_graft_for_a_payload_that_is_gone_makes_the_link_eager_all_the_same() -> None:
    node = lazy_node()
    node.hears(1, gossip())
    node.waits(DEFAULT.held_age)
    assert node.hears(2, graft(1)) == []
    assert node.eager == [1, 2]


def test_trap_c_neither_payload_nor_announcement_goes_back_to_who_sent_the_message() -> None:
    """The pseudo-code passes `myself` where the sender is meant."""
    node = lazy_node(replace(DEFAULT, batch=0))
    assert node.hears(1, gossip(1)) == [(2, ihave(1, round=2)), (3, ihave(1, round=2))]
    assert node.hears(2, gossip(2)) == [(1, gossip(2, 2)), (3, ihave(2, round=2))]
    assert node.hears(3, gossip(3)) == [(1, gossip(3, 2)), (2, gossip(3, 2))]


def test_trap_d_with_no_announcer_left_it_stops_and_a_later_announcement_begins_again() -> None:
    node = lazy_node(replace(DEFAULT, graft_tries=1))
    node.hears(2, ihave(1))
    assert node.waits(FIRST) == [(2, graft(1))]
    assert node.waits(10 * SECOND) == []
    assert not node.router.asked and not node.router.opened
    assert node.hears(3, ihave(1)) == []
    assert node.waits(FIRST) == [(3, graft(1))]


def test_equal_payloads_are_different_messages() -> None:
    node = Node()
    node.hears(1, gossip(1, data=b"same"))
    node.hears(1, gossip(2, data=b"same"))
    node.hears(1, gossip(1, source=8, data=b"same"))
    assert len(node.app.delivered) == 3


# Optimisation.


def far(threshold: int, round: int, announced: int) -> list[tuple[Peer, Message]]:
    """2 announced the message in a round, and now 1 brings it in another."""
    node = lazy_node(replace(DEFAULT, threshold=threshold))
    node.hears(2, ihave(1, round=announced))
    return [sent for sent in node.hears(1, gossip(round=round)) if not isinstance(sent[1], IHave)]


def test_a_payload_by_a_way_longer_by_the_threshold_changes_to_the_announcer_s_link() -> None:
    assert far(3, round=5, announced=2) == [(2, graft(1, payload=False)), (1, Prune(mid()))]


@pytest.mark.parametrize(("threshold", "round", "announced"), [(3, 4, 2), (3, 2, 5), (0, 100, 1), (1, 3, 3)])
def test_a_payload_by_a_way_that_is_not_much_longer_changes_nothing(threshold: int, round: int, announced: int) -> None:
    assert far(threshold, round, announced) == []


def test_the_nearest_announcer_is_taken() -> None:
    node = lazy_node(replace(DEFAULT, threshold=3))
    node.hears(2, ihave(1, round=3))
    node.hears(3, ihave(1, round=2))
    node.hears(1, gossip(round=8))
    assert (node.eager, node.lazy) == ([3], [2, 1])


def test_the_announcer_that_takes_over_gets_no_copy_of_what_it_has() -> None:
    node = lazy_node(replace(DEFAULT, threshold=3))
    node.hears(2, ihave(1, round=2))
    sent = node.hears(1, gossip(round=5))
    assert not [m for _, m in sent if isinstance(m, Gossip)]


def test_the_optimisation_waits_for_validation() -> None:
    node = Node(replace(DEFAULT, threshold=3), validates=True)
    node.hears(2, Prune(mid(99)))
    node.hears(2, ihave(1, round=2))
    assert node.hears(1, gossip(round=5)) == []
    node.app.cases[0][2](Verdict.ACCEPT)
    assert node.env.take() == [(3, gossip(round=6)), (2, ihave(1, round=6)), (2, graft(1, payload=False)), (1, Prune(mid()))]


def test_what_waits_for_a_verdict_is_bounded_and_leaves_nothing_behind() -> None:
    node = Node(replace(DEFAULT, threshold=1), validates=True)
    for number in range(Plumtree.pending_topic + 10):
        node.hears(2, ihave(number, round=1))
        node.hears(1, gossip(number, round=5))
    assert len(node.router.pending_gossip) == Plumtree.pending_topic
    for _, _, answer in node.app.cases:
        answer(Verdict.REJECT)
    assert not node.router.pending_gossip


def test_an_announcer_that_is_gone_does_not_take_over() -> None:
    node = lazy_node(replace(DEFAULT, threshold=3))
    node.hears(2, ihave(1, round=2))
    node.overlay.set(1, 3)
    assert node.hears(1, gossip(round=8)) == [(3, ihave(1, round=9))]


# Validation.


def test_nothing_is_pushed_announced_or_held_before_the_verdict() -> None:
    node = Node(validates=True)
    node.hears(3, Prune(mid(99)))
    assert node.hears(1, gossip()) == []
    assert node.hears(2, graft(1)) == []
    node.app.cases[0][2](Verdict.ACCEPT)
    assert node.env.take() == [(2, gossip(round=2)), (3, ihave(1, round=2))]
    assert node.app.delivered == [message()]


@pytest.mark.parametrize("verdict", [Verdict.IGNORE, Verdict.REJECT])
def test_what_is_not_accepted_is_neither_pushed_nor_held_nor_asked_for_again(verdict: Verdict) -> None:
    node = Node(validates=True)
    node.hears(1, gossip())
    node.app.cases[0][2](verdict)
    assert node.env.take() == []
    assert node.hears(2, graft(1)) == []
    assert node.hears(3, ihave(1)) == []
    assert node.waits(10 * SECOND) == []
    assert REJECT in node.kinds()


def test_a_sender_that_became_lazy_before_the_verdict_gets_no_announcement_back() -> None:
    node = Node(validates=True)
    node.hears(3, Prune(mid()))
    for number in (1, 2):
        node.hears(1, gossip(number))
        node.hears(1, Prune(mid()))
    for _, _, answer in node.app.cases:
        answer(Verdict.ACCEPT)
    node.env.advance(SECOND)
    assert [peer for peer, _ in node.env.take()] == [2, 3, 2, 3]


def test_verdicts_may_come_after_an_id_was_forgotten_and_came_again() -> None:
    node = Node(replace(DEFAULT, held_age=TTL), validates=True)
    node.hears(1, gossip(1))
    node.waits(3 * TTL)
    node.hears(1, gossip(2))
    node.hears(1, gossip(1))
    for _, _, answer in node.app.cases:
        answer(Verdict.ACCEPT)
    assert len(node.app.delivered) == 3
    assert not node.router.pending_gossip
    node.waits(2 * TTL)
    node.router.held.expire(node.env.now())
    assert not node.router.held.messages and not node.router.held.bytes


# Neighbours that come and go.


def test_a_neighbour_that_goes_is_neither_eager_nor_lazy_and_is_asked_for_nothing() -> None:
    node = lazy_node()
    node.hears(2, ihave(1))
    node.hears(3, ihave(1))
    node.overlay.set(1, 3)
    assert (node.eager, node.lazy) == ([1], [3])
    assert node.waits(FIRST) == [(3, graft(1))]


def test_a_message_whose_last_announcer_went_is_forgotten() -> None:
    node = lazy_node()
    node.hears(2, ihave(1))
    node.overlay.set(1, 3)
    assert node.waits(10 * SECOND) == []
    assert not node.router.awaited and not node.router.opened


def test_a_neighbour_that_comes_back_is_eager_again() -> None:
    node = lazy_node()
    node.overlay.set(1, 3)
    node.overlay.set(1, 3, 2)
    assert (node.eager, node.lazy) == ([1, 2], [3])


def test_a_stranger_s_message_is_taken_and_it_is_neither_eager_nor_lazy() -> None:
    node = Node()
    assert [peer for peer, _ in node.hears(7, gossip())] == [1, 2, 3]
    assert node.hears(7, gossip()) == [(7, Prune(mid()))]
    assert node.hears(7, graft(1)) == [(7, gossip(round=2))]
    node.hears(7, Prune(mid()))
    assert (node.eager, node.lazy) == ([1, 2, 3], [])


def test_a_stranger_s_announcement_is_taken() -> None:
    """A neighbour may speak before this end's overlay has told of it."""
    node = Node()
    node.hears(7, ihave(1))
    assert node.waits(FIRST) == [(7, graft(1))]
    assert node.eager == [1, 2, 3]


# The summary.

EVERY = PlumtreeConfig().summary_every


def summary(number: int, *told: tuple[int, int]) -> Summary:
    """Sequences and ages."""
    return Summary(number, tuple((mid(sequence), age) for sequence, age in told))


def test_a_neighbour_that_comes_up_hears_of_all_that_is_held_oldest_first_with_ages() -> None:
    node = Node()
    node.hears(1, gossip(1, age=5))
    node.waits(SECOND)
    node.hears(1, gossip(2))
    node.env.take()
    node.overlay.set(1, 2, 3, 4)
    assert node.env.take() == [(4, summary(2, (1, SECOND + 5), (2, 0)))]


def test_with_nothing_held_there_is_no_summary() -> None:
    node = Node()
    node.overlay.set(4)
    assert node.env.take() == []


def test_the_summary_can_be_switched_off() -> None:
    node = Node(PlumtreeConfig(summary=False))
    node.hears(1, gossip())
    node.env.take()
    node.overlay.set(1, 2, 3, 4)
    assert node.env.take() == []
    assert node.waits(10 * EVERY) == []


def test_what_a_summary_names_and_does_not_come_is_asked_for() -> None:
    node = Node()
    node.waits(10 * SECOND)
    node.hears(1, gossip(1))
    assert node.hears(4, summary(3, (1, SECOND), (2, SECOND), (3, 2 * SECOND))) == []
    assert node.waits(FIRST) == [(4, graft(2, 3))]


def test_a_summary_s_messages_from_before_this_node_s_start_are_left_alone() -> None:
    node = Node()
    node.waits(SECOND)
    assert node.hears(4, summary(2, (1, SECOND), (2, SECOND + 1))) == []
    assert node.waits(FIRST) == [(4, graft(1))]
    assert node.hears(4, summary(9, (2, 3 * SECOND))) == [(4, Heard(9))]


def test_who_has_all_that_a_summary_names_says_so_and_who_does_not_says_it_when_it_hears_it_again() -> None:
    node = Node()
    node.waits(SECOND)
    node.hears(1, gossip(1))
    assert node.hears(2, summary(7, (1, 0), (2, 0))) == []
    node.hears(2, gossip(2))
    assert node.hears(2, summary(7, (1, 0), (2, 0))) == [(2, Heard(7))]


def told(node: Node, us: int) -> list[tuple[Peer, Message]]:
    """What is said of a summary while time passes."""
    return [(peer, m) for peer, m in node.waits(us) if isinstance(m, Summary)]


def test_neighbours_hear_again_and_again_of_what_they_are_not_known_to_have_until_they_have_it() -> None:
    """Every announcement may be lost, and the summary too: the last message before silence is found all the same."""
    node = Node(PlumtreeConfig())
    node.hears(1, gossip())
    rounds = [told(node, EVERY) for _ in range(4)]
    assert [[peer for peer, _ in sent] for sent in rounds] == [[], [2, 3], [2, 3], [2, 3]]
    node.hears(2, Heard(1))
    assert [peer for peer, _ in told(node, EVERY)] == [3]
    node.hears(3, Heard(1))
    assert node.waits(10 * EVERY) == []
    assert node.env.clock.waiting == 0


def test_a_summary_says_nothing_of_what_came_since_the_last_and_may_be_on_its_way() -> None:
    node = Node(PlumtreeConfig(), neighbors=(1, 2))
    node.hears(1, gossip(1))
    node.waits(EVERY)
    node.hears(1, gossip(2))
    ((_, first),) = told(node, EVERY)
    assert isinstance(first, Summary)
    assert (first.number, [id for id, _ in first.held]) == (1, [mid(1)])
    node.hears(2, Heard(1))
    ((_, second),) = told(node, EVERY)
    assert isinstance(second, Summary)
    assert (second.number, [id for id, _ in second.held]) == (2, [mid(2)])


@pytest.mark.parametrize(
    "says",
    [gossip(), ihave(1), Prune(mid()), summary(1, (1, 0))],
    ids=lambda m: type(m).__name__,
)
def test_a_neighbour_that_has_shown_that_it_has_a_message_does_not_hear_of_it(says: Message) -> None:
    node = Node(PlumtreeConfig(), neighbors=(1, 2))
    node.hears(1, gossip())
    node.hears(2, says)
    assert told(node, 5 * EVERY) == []
    assert node.env.clock.waiting == 0


def test_who_announced_a_message_before_it_came_does_not_hear_of_it() -> None:
    node = Node(PlumtreeConfig(), neighbors=(1, 2))
    node.hears(2, ihave(1))
    node.hears(1, gossip())
    assert told(node, 5 * EVERY) == []


def test_a_confirmation_of_what_was_never_told_changes_nothing() -> None:
    node = Node(PlumtreeConfig(), neighbors=(1, 2))
    node.hears(1, gossip())
    for number in (0, 2, 1 << 60):
        node.hears(2, Heard(number))
    node.hears(7, Heard(1))
    assert [peer for peer, _ in told(node, 2 * EVERY)] == [2]


def test_what_is_more_than_a_summary_takes_follows_when_the_first_part_is_confirmed() -> None:
    node = Node(PlumtreeConfig(), neighbors=(1, 2))
    for number in range(IDS + 5):
        node.hears(1, gossip(number))
    ((_, first),) = told(node, 2 * EVERY)
    assert isinstance(first, Summary)
    assert (first.number, len(first.held)) == (IDS, IDS)
    ((peer, second),) = node.hears(2, Heard(IDS))
    assert isinstance(second, Summary)
    assert (peer, second.number, [id for id, _ in second.held]) == (2, IDS + 5, [mid(IDS + n) for n in range(5)])
    assert node.hears(2, Heard(IDS)) == []


def test_a_neighbour_that_comes_back_hears_of_all_again() -> None:
    node = Node(PlumtreeConfig(), neighbors=(1, 2))
    node.hears(1, gossip())
    node.hears(2, Heard(1))
    node.overlay.set(1)
    node.env.take()
    node.overlay.set(1, 2)
    assert node.env.take() == [(2, summary(1, (1, 0)))]


def test_summaries_end_with_the_last_neighbour_and_with_what_is_held() -> None:
    node = Node(PlumtreeConfig(), neighbors=(1, 2))
    node.hears(1, gossip())
    node.overlay.set()
    node.waits(2 * EVERY)
    assert node.env.clock.waiting == 0
    other = Node(PlumtreeConfig(), neighbors=(1, 2))
    other.hears(1, gossip())
    assert told(other, PlumtreeConfig().held_age)
    assert told(other, 2 * EVERY) == []
    assert other.env.clock.waiting == 0


# Ages.


def test_a_payload_is_as_old_as_the_time_that_nodes_have_had_it() -> None:
    node = lazy_node()
    node.hears(1, gossip(age=4 * SECOND))
    node.waits(SECOND)
    assert node.hears(2, graft(1)) == [(2, gossip(round=2, age=5 * SECOND))]
    judged = Node(validates=True, neighbors=(1, 2))
    judged.hears(1, gossip(age=4 * SECOND))
    judged.waits(SECOND)
    judged.app.cases[0][2](Verdict.ACCEPT)
    assert judged.env.take() == [(2, gossip(round=2, age=5 * SECOND))]


def test_a_payload_that_comes_late_is_held_no_longer_than_elsewhere() -> None:
    """Else it could go from node to node for ever, and come back to those who have forgotten its id."""
    node = lazy_node()
    node.hears(1, gossip(1))
    node.hears(1, gossip(2, age=DEFAULT.held_age - SECOND))
    node.waits(SECOND)
    assert node.hears(2, graft(1, 2)) == [(2, gossip(1, 2, age=SECOND))]
    node.overlay.set(1, 2, 3, 4)
    assert node.env.take() == [(4, summary(2, (1, SECOND)))]


def test_who_got_a_message_late_does_not_bring_it_back_to_one_that_has_forgotten_it() -> None:
    """1 hears of it at 119 s and remembers its id until 240 s; 2 gets it at 209 s, and by its own clock has it for 100 s more."""
    wire, apps = FakeWire(), [Judge() for _ in range(3)]
    routers = [unconnected(wire, app) for app in apps]
    wire.run(119 * SECOND)
    wire.connect(0, 1)
    wire.run()
    routers[0].publish(routers[0].compose("t", b"x"))
    wire.run(90 * SECOND)
    wire.connect(0, 2)
    wire.run(5 * SECOND)
    assert [p.data for p in apps[2].delivered] == [b"x"]
    wire.run(30 * SECOND)
    routers[1].publish(routers[1].compose("t", b"y"))
    wire.connect(1, 2)
    wire.run(30 * SECOND)
    assert [[p.data for p in app.delivered] for app in apps] == [[b"x", b"y"]] * 3


def test_an_age_never_overflows() -> None:
    node = Node(validates=True, neighbors=(1, 2))
    node.hears(1, gossip(age=OLDEST))
    node.waits(SECOND)
    node.app.cases[0][2](Verdict.ACCEPT)
    assert node.env.take() == [(2, gossip(round=2, age=OLDEST))]


# What is lost, dropped or slow.


def test_a_lost_graft_is_sent_again() -> None:
    node = lazy_node()
    node.hears(2, ihave(1))
    asked = [sent for _ in range(10) for sent in node.waits(FIRST)]
    assert asked == [(2, graft(1))] * DEFAULT.graft_tries


def test_a_dropped_graft_is_sent_again() -> None:
    node = lazy_node()
    node.hears(2, ihave(1))
    ((peer, lost),) = node.waits(FIRST)
    node.router.dropped(peer, lost)
    assert node.waits(SECOND_WAIT) == [(2, graft(1))]


@pytest.mark.parametrize("lost", [gossip(round=2), ihave(1, round=2)])
def test_what_told_of_a_message_and_was_dropped_is_announced_when_the_link_has_drained(lost: Message) -> None:
    node = Node()
    node.hears(1, gossip())
    node.router.dropped(2, lost)
    node.env.take()
    node.router.drained(3)
    assert node.env.take() == []
    node.router.drained(2)
    assert node.env.take() == [(2, ihave(1, round=2))]
    node.router.drained(2)
    assert node.env.take() == []


def test_what_was_dropped_and_is_held_no_more_is_not_announced() -> None:
    node = Node(replace(DEFAULT, held_messages=1))
    node.hears(1, gossip(1))
    node.router.dropped(2, gossip(1, 2))
    node.hears(1, gossip(2))
    node.env.take()
    node.router.drained(2)
    assert node.env.take() == []


def test_what_was_dropped_for_a_link_that_is_gone_is_not_kept() -> None:
    node = Node()
    node.hears(1, gossip())
    node.router.dropped(2, gossip(round=2))
    node.overlay.set(1, 3)
    node.router.dropped(2, gossip(round=2))
    assert not node.router.unsent


def test_a_link_that_never_drains_keeps_no_more_than_is_held() -> None:
    node = Node(replace(DEFAULT, held_messages=5))
    for number in range(50):
        node.hears(1, gossip(number))
        node.router.dropped(2, gossip(number, 2))
    assert len(node.router.unsent[2]) == 5


def test_payloads_that_are_asked_for_wait_until_a_full_link_has_drained() -> None:
    node = lazy_node()
    for number in (1, 2):
        node.hears(1, gossip(number))
    node.env.backlogs[2] = BURST
    assert node.hears(2, graft(1, 2)) == []
    node.env.backlogs[2] = 0
    node.router.drained(2)
    assert node.env.take() == [(2, gossip(1, 2)), (2, gossip(2, 2))]
    node.router.drained(2)
    assert node.env.take() == []


def test_payloads_that_wait_end_with_their_link() -> None:
    node = lazy_node()
    node.hears(1, gossip(1))
    node.env.backlogs[7] = BURST
    node.hears(7, graft(1))
    node.router.link_down(7, 1, "gone")
    node.env.backlogs[7] = 0
    node.router.drained(7)
    assert node.env.take() == []


def test_a_partition_s_worth_of_messages_does_not_overload_the_link_that_healed() -> None:
    """All of them together are far more than an outbox takes, and an overloaded link would be given up."""
    wire, apps = FakeWire(limit=1 << 20), [Judge(), Judge()]
    router, _ = (unconnected(wire, app) for app in apps)
    wire.run(SECOND)
    for _ in range(100):
        router.publish(router.compose("t", bytes(100_000)))
    wire.connect(0, 1)
    wire.run(10 * SECOND)
    assert len(apps[1].delivered) == 100
    assert 1 in wire.nodes[0].links


# Messages that overlap.


def shape(node: Node, number: int) -> list[bool]:
    """Publish so many messages; which of them shape the tree."""
    for _ in range(number):
        node.router.publish(node.router.compose("t", b""))
    return [m.shapes for peer, m in node.env.take() if isinstance(m, Gossip) and peer == 1]


def test_a_second_copy_of_a_message_that_does_not_shape_the_tree_prunes_nobody() -> None:
    node = Node()
    quiet = replace_message(gossip(), shapes=False)
    assert [m for _, m in node.hears(1, quiet)] == [replace_message(quiet, round=2)] * 2
    assert node.hears(2, quiet) == []
    assert (node.eager, node.lazy) == ([1, 2, 3], [])
    assert DUPLICATE in node.kinds()


def test_a_message_that_does_not_shape_the_tree_is_not_optimised_for() -> None:
    node = lazy_node(replace(DEFAULT, threshold=3))
    node.hears(2, ihave(1, round=2))
    assert [m for _, m in node.hears(1, replace_message(gossip(round=8), shapes=False)) if not isinstance(m, IHave)] == []


def test_a_message_that_does_not_shape_the_tree_mends_it_all_the_same() -> None:
    node = lazy_node()
    node.hears(2, replace_message(gossip(), shapes=False))
    assert node.eager == [1, 2]


def test_one_message_in_a_settling_time_shapes_the_tree() -> None:
    node = Node()
    assert shape(node, 3) == [True, False, False]
    node.waits(DEFAULT.settle - 1)
    assert shape(node, 1) == [False]


def test_a_message_of_somebody_else_that_shapes_the_tree_counts_too() -> None:
    node = Node()
    node.hears(1, gossip())
    assert shape(node, 1) == [False]


def test_messages_that_do_not_overlap_all_shape_the_tree() -> None:
    node = Node()
    for _ in range(20):
        assert shape(node, 1) == [True]
        node.waits(DEFAULT.settle)


def test_the_busier_the_network_the_rarer_its_messages_shape_the_tree() -> None:
    shares = []
    for number in (1, 10):
        node, shaped = Node(), []
        for _ in range(300):
            node.hears(1, gossip(1_000 + node.router.sequence))
            for other in range(number):
                node.hears(1, replace_message(gossip(10_000 + 100 * node.router.sequence + other), shapes=False))
            node.waits(DEFAULT.settle)
            shaped += shape(node, 1)
            node.waits(DEFAULT.settle)
        shares.append(sum(shaped) / 300)
    assert shares[0] == pytest.approx(1 / 2, abs=0.1)
    assert shares[1] == pytest.approx(1 / 11, abs=0.05)


def test_without_a_settling_time_every_message_shapes_the_tree_as_in_the_paper() -> None:
    assert all(shape(Node(replace(DEFAULT, settle=0)), 10))


def test_who_is_eager_already_is_asked_before_a_second_link_becomes_it() -> None:
    node = lazy_node()
    for peer in (2, 1, 3):
        node.hears(peer, ihave(1))
    assert [sent for _ in range(3) for sent in node.waits(FIRST)][:3] == [(1, graft(1)), (2, graft(1)), (3, graft(1))]


def test_a_graft_that_was_not_needed_is_undone() -> None:
    node = lazy_node()
    node.hears(2, ihave(1))
    node.waits(FIRST)
    assert node.hears(1, replace_message(gossip(), shapes=False))[0] == (2, Prune(mid()))
    assert (node.eager, node.lazy) == ([1], [3, 2])
    assert node.kinds() == [GRAFT, PRUNE, RECEIVE, DELIVER]


def test_a_graft_that_brought_the_message_stays_and_so_does_a_link_that_was_eager_before() -> None:
    node = lazy_node()
    for peer in (1, 2):
        node.hears(peer, ihave(1))
    node.waits(FIRST + SECOND_WAIT)
    node.hears(2, gossip())
    assert (node.eager, node.lazy) == ([1, 2], [3])


# Batches of announcements.


def test_an_announcement_after_a_quiet_time_leaves_at_once_and_those_that_follow_together() -> None:
    node = lazy_node()
    assert node.hears(1, gossip(1)) == [(2, ihave(1, round=2)), (3, ihave(1, round=2))]
    assert node.hears(1, gossip(2)) == []
    node.waits(MS)
    assert node.hears(1, gossip(3)) == []
    assert node.waits(DEFAULT.batch) == [(2, ihave(2, 3, round=2)), (3, ihave(2, 3, round=2))]
    assert node.waits(SECOND) == []


def test_without_batches_every_announcement_leaves_at_once() -> None:
    node = lazy_node(replace(DEFAULT, batch=0))
    assert [len(node.hears(1, gossip(number))) for number in range(5)] == [2] * 5


def test_a_full_batch_leaves_at_once() -> None:
    node = lazy_node()
    node.hears(1, gossip(0))
    sent = [sent for number in range(1, IDS + 2) for sent in node.hears(1, gossip(number))]
    assert [(peer, len(m.announced)) for peer, m in sent if isinstance(m, IHave)] == [(2, IDS), (3, IDS)]


def test_a_batch_for_a_neighbour_that_went_is_not_sent() -> None:
    node = lazy_node()
    node.hears(1, gossip(1))
    node.hears(1, gossip(2))
    node.overlay.set(1, 3)
    assert [peer for peer, _ in node.waits(SECOND)] == [3]


# A tree for each source.


def test_each_source_may_have_a_tree_of_its_own() -> None:
    node = Node(replace(DEFAULT, per_source=True))
    node.hears(1, gossip(1, source=8))
    node.hears(2, gossip(1, source=8))
    assert [peer for peer, m in node.hears(1, gossip(2, source=8)) if isinstance(m, Gossip)] == [3]
    assert [peer for peer, _ in node.hears(1, gossip(1, source=9))] == [2, 3]
    node.hears(3, Prune(mid(1, source=9)))
    assert node.router.trees[9].lazy == (3,)
    assert node.router.trees[8].lazy == (2,)


def test_neighbours_come_and_go_in_every_tree() -> None:
    node = Node(replace(DEFAULT, per_source=True))
    node.hears(1, gossip(1, source=8))
    node.hears(2, Prune(mid(1, source=8)))
    node.overlay.set(1, 2, 4)
    assert (node.router.trees[8].eager, node.router.trees[8].lazy) == ((1, 4), (2,))


def test_of_too_many_trees_the_longest_unused_is_forgotten() -> None:
    node = Node(replace(DEFAULT, per_source=True, trees=2))
    for source in (5, 6, 5, 7):
        node.hears(2, Prune(mid(1, source)))
    assert list(node.router.trees) == [5, 7]


# Bounds.


def test_a_message_that_is_published_twice_is_held_once() -> None:
    node = Node()
    mine = node.router.compose("t", b"x")
    node.router.publish(mine)
    node.router.publish(mine)
    node.waits(DEFAULT.held_age)
    node.hears(1, gossip())
    assert list(node.router.held.messages) == [mid()]


def test_payloads_are_held_by_number() -> None:
    node = Node(replace(DEFAULT, held_messages=3))
    for number in range(10):
        node.hears(1, gossip(number))
    assert list(node.router.held.messages) == [mid(7), mid(8), mid(9)]


def test_payloads_are_held_by_bytes_attributes_included() -> None:
    node = Node(replace(DEFAULT, held_bytes=10_000))
    for number in range(10):
        node.hears(1, gossip(number, data=bytes(2_000)))
    assert 3 <= len(node.router.held.messages) <= 5
    wordy = Publication(mid(50), "t", b"", None, (("name", "x" * 20_000),))
    node.hears(1, Gossip.of(wordy, 1))
    assert not node.router.held.messages
    assert node.router.held.bytes == 0


def test_payloads_are_held_by_age() -> None:
    node = Node()
    node.hears(1, gossip(1))
    node.waits(DEFAULT.held_age - 1)
    assert node.hears(2, graft(1)) == [(2, gossip(1, 2, age=DEFAULT.held_age - 1))]
    node.waits(1)
    assert node.hears(2, graft(1)) == []
    node.hears(1, gossip(2))
    assert list(node.router.held.messages) == [mid(2)]


def test_who_is_known_to_have_a_message_is_bounded() -> None:
    node = Node()
    node.hears(1, gossip())
    for peer in range(100, 300):
        node.hears(peer, ihave(1))
    assert len(node.router.held.messages[mid()].known) == KNOWN


def test_who_announces_what_it_never_sends_is_bounded_and_forgotten() -> None:
    node = Node(replace(DEFAULT, missing=50, missing_each=20))
    for start in range(0, 1_000, 100):
        node.hears(2, ihave(*range(start, start + 100)))
    assert len(node.router.awaited) == 20
    asked = [m for _ in range(10) for _, m in node.waits(FIRST)]
    assert sum(len(m.ids) for m in asked if isinstance(m, Graft)) == 20 * DEFAULT.graft_tries
    assert not node.router.awaited and not node.router.asked and not node.router.opened


def test_a_liar_leaves_room_for_others() -> None:
    node = Node(replace(DEFAULT, missing=50, missing_each=20))
    node.hears(2, ihave(*range(100)))
    node.hears(3, ihave(500))
    assert mid(500) in node.router.awaited


def test_all_missing_ids_together_are_bounded() -> None:
    node = Node(replace(DEFAULT, missing=50, missing_each=20))
    for peer in range(1, 9):
        node.hears(peer, ihave(*range(100 * peer, 100 * peer + 100)))
    assert len(node.router.awaited) == 50
    node.waits(FIRST)
    node.hears(9, ihave(5_000))
    assert len(node.router.awaited) + len(node.router.asked) == 50


def test_the_announcers_of_one_id_are_bounded() -> None:
    node = Node()
    for peer in range(100, 200):
        node.hears(peer, ihave(1))
    assert len(node.router.awaited[mid()].announcers) == ANNOUNCERS


@pytest.mark.parametrize(
    "huge",
    [
        IHave(tuple((mid(number), 1) for number in range(IDS + 1))),
        Summary(1, tuple((mid(number), 1) for number in range(IDS + 1))),
        Graft(tuple(mid(number) for number in range(IDS + 1))),
        gossip(round=-1),
        gossip(round=ROUNDS + 1),
        IHave(((mid(), -1),)),
        Summary(1, ((mid(), -1),)),
        Summary(1, ((mid(), OLDEST + 1),)),
        Summary(-1, ()),
        Heard(-1),
        Heard((1 << 60) + 1),
        gossip(age=-1),
        gossip(age=OLDEST + 1),
    ],
)
def test_a_list_too_long_or_a_number_out_of_range_is_the_peer_s_fault(huge: Message) -> None:
    codec = msgpack(Plumtree.kinds)
    with pytest.raises(PeerError):
        codec.unpack(codec.pack([huge])[0])


def test_the_longest_lists_that_are_allowed_fit_a_frame() -> None:
    codec, long = msgpack(Plumtree.kinds), MessageId(bytes(42), 1 << 40, 1 << 20)
    for most in (IHave(((long, ROUNDS),) * IDS), Summary(1 << 60, ((long, TTL),) * IDS), Graft((long,) * IDS)):
        assert codec.unpack(codec.pack([most])[0]) == (most,)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"first_wait": 0}, {"graft_tries": 0}, {"threshold": -1}, {"held_messages": 0}, {"missing": 0}, {"trees": 0}),
        *({"summary_every": 0}, {"held_age": TTL + 1}, {"held_messages": 1 << 20}),
    ],
)
def test_a_config_that_cannot_work_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        replace(DEFAULT, **wrong)  # type: ignore[arg-type]


# The same stack in every world.

RING = [(i, (i + 1) % 10) for i in range(10)] + [(0, 5), (1, 6), (2, 7), (3, 8), (4, 9)]


class Plan:
    """Ten nodes on a ring with chords; each publishes once, and then whoever is asked to."""

    def __init__(self) -> None:
        self.apps = [Judge() for _ in range(10)]
        self.routers: list[Plumtree] = []
        self.published: list[MessageId] = []
        self.rows: Counter[tuple[str, MessageId | None]] = Counter()

    def observe(self, t: int, node: Peer, kind: str, topic: str | None, msg: MessageId | None, *_: Any, **__: Any) -> None:
        self.rows[kind, msg] += 1

    def builds(self, peer: Callable[[int], Peer], signed: bool) -> list[Build]:
        return [self._build(node, [peer(b) for a, b in RING if a == node], signed) for node in range(10)]

    def _build(self, node: int, contacts: Sequence[Peer], signed: bool) -> Build:
        def machines(env: Callable[[], Env]) -> Sequence[Machine]:
            overlay = Static(env(), contacts, (PROTOCOL,))
            router = Plumtree(env(), overlay, self.apps[node])
            router.signing = Signing(identity(node)) if signed else None
            self.routers.append(router)
            return [overlay, router]

        return machines

    def join(self) -> None:
        for router in self.routers:
            router.join("t")

    def publish(self, node: int) -> None:
        mine = self.routers[node].compose("t", b"same")
        self.published.append(mine.id)
        self.routers[node].publish(mine)

    def check(self, nodes: Sequence[int]) -> None:
        """Each has every message once."""
        for node in nodes:
            assert Counter(p.id for p in self.apps[node].delivered) == Counter(self.published)

    def went_by_a_tree(self, nodes: int) -> bool:
        """Whether the last message came to all others once, and nobody had to ask for it."""
        return [self.rows[kind, self.published[-1]] for kind in (RECEIVE, DUPLICATE, GRAFT)] == [nodes - 1, 0, 0]


def test_ten_nodes_on_a_fake_wire_with_the_codec() -> None:
    plan, wire = Plan(), FakeWire(codec=True)
    for build in plan.builds(lambda n: n, signed=False):
        wire.add(build)
    wire.run(5 * SECOND)
    plan.join()
    trees = []
    for node in range(10):
        plan.publish(node)
        wire.run(5 * SECOND)
        plan.rows = Counter((row.kind, row.msg) for entry in wire.nodes for row in entry.envs[1].traced)
        trees.append(plan.went_by_a_tree(10))
    plan.check(range(10))
    assert trees == [False] + [True] * 9
    assert wire.errors == []


@pytest.mark.parametrize("codec", [False, True])
@pytest.mark.parametrize("draw", ["copy", "send"])
def test_ten_nodes_in_the_simulator(codec: bool, draw: str) -> None:
    plan = Plan()
    latency = Uniform(low=1.0, high=200.0, draw=draw)  # type: ignore[arg-type]
    sim = Simulator(3, latency, Tracer(level="none", observer=plan), codec=codec)
    for build in plan.builds(lambda n: n, signed=False):
        sim.add(build)
    sim.run(5 * SECOND)
    plan.join()
    trees = []
    for node in range(10):
        plan.publish(node)
        sim.run(sim.now + 10 * SECOND)
        trees.append(plan.went_by_a_tree(10))
    plan.check(range(10))
    assert trees == [False] + [True] * 9


@pytest.mark.live
def test_ten_nodes_on_loopback_before_and_after_two_of_them_crash() -> None:
    plan = Plan()

    async def rest(world: LiveWorld, nodes: int) -> None:
        """On a busy machine the clock may jump while a copy is under way, and it is asked for: some more messages mend that."""
        for number in range(20):
            plan.publish(number % nodes)
            await world.run(5 * SECOND)
            if plan.went_by_a_tree(nodes):
                return
        raise AssertionError(f"no tree after 20 messages: {plan.rows}")

    async def play() -> None:
        async with trio.open_nursery() as nursery:
            world, tracer = LiveWorld(nursery), Tracer(level="none", observer=plan)
            for build in plan.builds(lambda n: identity(n).peer, signed=True):
                world.add(build, tracer)
            await world.run(5 * SECOND)
            plan.join()
            for node in range(5):
                plan.publish(node)
                await world.run(3 * SECOND)
            await rest(world, 10)
            plan.check(range(10))
            for node in (8, 9):
                world.crash(world.peer(node))
            for node in range(5, 8):
                plan.publish(node)
                await world.run(10 * SECOND)
            await rest(world, 8)
            plan.check(range(8))
            world.close()
            nursery.cancel_scope.cancel()

    trio.run(play, clock=MockClock(autojump_threshold=JUMP_S))


def test_the_same_seed_gives_the_same_rows() -> None:
    def rows() -> list[list[Traced]]:
        plan, wire, rng = Plan(), FakeWire(seed=5), Random(5)
        for build in plan.builds(lambda n: n, signed=False):
            wire.add(build)
        wire.run(SECOND)
        plan.join()
        for _ in range(10):
            plan.publish(rng.randrange(10))
            wire.cut(*rng.choice(RING))
            wire.run(rng.randrange(3 * SECOND))
        return [node.envs[1].traced for node in wire.nodes]

    assert rows() == rows()
