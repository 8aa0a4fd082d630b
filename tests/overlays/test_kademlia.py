"""Kademlia by hand, one machine on a FakeEnv or some on a FakeWire: joining, the table, values, providers, and hostile peers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from libweft.overlays.kademlia.config import TOLD, KademliaConfig
from libweft.overlays.kademlia.messages import PROTOCOL, AddProvider, FindNode, GetProviders, GetValue, Ping, PutValue, Record
from libweft.overlays.kademlia.put_and_get import Kademlia
from libweft.overlays.kademlia.records import RecordLimits, Validator
from libweft.overlays.kademlia.routing import CHECKS, CHORES, LATELY, QUERIES
from libweft.overlays.kademlia.space import BITS, name_of, place_of, place_of_key, topic_key
from libweft.overlays.kademlia.wire import KEY_LIMIT
from libweft.peer.dispatch import ask, receive
from libweft.peer.errors import PeerError, Refused, UsageError
from libweft.peer.fake.env import FakeEnv, FakeRequest
from libweft.peer.fake.wire import FakeWire
from libweft.peer.machine import SECOND, Build, Link, Message, Peer, PeerInfo

AGES = 10**9 * SECOND
DAY = 86_400 * SECOND
STILL = KademliaConfig(
    k=4, alpha=3, spares=2, few=0, near_every=AGES, refresh_every=AGES, republish_every=AGES, value_ttl=2 * AGES,
    provider_ttl=2 * AGES,
)  # fmt: skip
"""Nothing happens by itself."""
LONG = 20 * SECOND
LASTING = replace(STILL, near_every=10 * SECOND, near_asks=0)  # a link that was up for LONG has lasted
LIVELY = replace(STILL, few=2, near_every=10 * SECOND, refresh_every=600 * SECOND, republish_every=600 * SECOND)


class Newest:
    """The greatest value is the best; one with an x in it is not valid."""

    def valid(self, key: bytes, value: bytes) -> bool:
        return b"x" not in value

    def best(self, key: bytes, values: Sequence[bytes]) -> bytes:
        return max(values)


VALIDATORS: dict[str, Validator] = {"new": Newest()}
KEY = b"/new/key"


class Bench:
    """One machine with the id 0 and its Env; `incarnation` counts links."""

    def __init__(
        self, *contacts: Peer, config: KademliaConfig = STILL, started: bool = True, limits: RecordLimits | None = None
    ) -> None:
        self.env = FakeEnv(me=0)
        self.machine = Kademlia(self.env, contacts, config, VALIDATORS, limits)
        self.incarnation = 0
        if started:
            self.machine.start()

    def up(self, *peers: Peer) -> int:
        for peer in peers:
            self.incarnation += 1
            self.machine.link_up(peer, Link(self.incarnation, True, PROTOCOL))
        return self.incarnation

    def down(self, peer: Peer, incarnation: int = 0) -> None:
        self.machine.link_down(peer, incarnation, "gone")

    def ask(self, sender: Peer, msg: Message) -> Any:
        """The machine's answer to a request."""
        replies: list[Message] = []
        ask(self.machine, sender, msg, replies.append)
        [reply] = replies
        return reply

    def asked(self) -> list[FakeRequest]:
        """Requests made since the last call."""
        return self.env.take_requests()

    def answer(self, request: FakeRequest, *closer: Peer, **fields: Any) -> None:
        """As a peer does that was reached: its link is up."""
        if request.peer not in self.machine.links:
            self.up(request.peer)
        assert isinstance(request.msg, FindNode | GetValue | GetProviders)
        request.reply(type(request.msg)(request.msg.key, closer=tuple(map(PeerInfo, closer)), **fields))

    def settle(self, answer: Callable[[FakeRequest], None] | None = None) -> list[FakeRequest]:
        """Answer all that is asked, by default with no names, until nothing more is; all that were asked."""
        every: list[FakeRequest] = []
        while requests := self.asked():
            every += requests
            for request in requests:
                if isinstance(request.msg, PutValue):
                    request.reply(request.msg)
                elif answer is not None:
                    answer(request)
                else:
                    self.answer(request)
        return every

    def live(self, us: int) -> list[FakeRequest]:
        """Let time pass among peers that answer at once; all that were asked."""
        every = self.settle()
        for _ in range(us // SECOND):
            self.env.advance(SECOND)
            every += self.settle()
        return every

    def held(self, key: bytes) -> bytes | None:
        stored = self.machine.records.stored(key, self.env.now())
        return stored.value if stored is not None else None

    @property
    def known(self) -> list[Peer]:
        return sorted(self.machine.table)


def peers_in(machine: Kademlia, bucket: int, count: int) -> list[Peer]:
    found = (number for number in range(1, 1 << 20) if machine.table.bucket_of_peer(number) == bucket)
    return [next(found) for _ in range(count)]


def crowded() -> Bench:
    """So many are nearer that nobody in the farthest bucket is among the k nearest of all."""
    bench = Bench()
    bench.up(*peers_in(bench.machine, 1, STILL.k))
    return bench


def whom(requests: Sequence[FakeRequest]) -> list[Peer]:
    return [request.peer for request in requests]


def key_of(value: bytes) -> bytes:
    return b"/sha256/" + sha256(value).digest()


def info(*peers: Peer) -> tuple[PeerInfo, ...]:
    return tuple(map(PeerInfo, peers))


# Joining.


def test_who_joins_looks_its_own_place_up_by_its_contacts() -> None:
    bench = Bench(7, 8)
    requests = bench.asked()
    assert sorted(whom(requests)) == [7, 8]
    assert {request.msg for request in requests} == {FindNode(name_of(0))}


def test_a_node_without_contacts_waits_and_itself_is_no_contact() -> None:
    for bench in (Bench(), Bench(0)):
        assert bench.asked() == [] and bench.machine.contacts == () and not bench.machine.has_joined


def test_a_join_has_ended_when_those_named_on_the_way_have_answered_and_then_it_is_told() -> None:
    bench, told = Bench(7, started=False), list[str]()
    bench.machine.joined.append(lambda: told.append("joined"))
    bench.machine.start()
    [request] = bench.asked()
    bench.answer(request, 8, 9)
    assert told == [] and not bench.machine.has_joined
    bench.settle()
    assert told == ["joined"] and bench.machine.has_joined and bench.known == [7, 8, 9]


def test_a_join_that_reached_nobody_is_tried_again_after_ever_longer_pauses() -> None:
    config = replace(STILL, first_retry=SECOND, last_retry=5 * SECOND)
    bench = Bench(7, config=config)
    pauses = []
    for _ in range(5):
        [request] = bench.asked()
        request.fail("timeout")
        begun = bench.env.now()
        due = bench.env.clock.due
        assert due is not None
        bench.env.advance(due - begun)
        pauses.append((due - begun) // SECOND)
    assert pauses == [1, 2, 4, 5, 5]
    [request] = bench.asked()
    bench.answer(request)
    assert bench.machine.has_joined and bench.machine.pause == SECOND


def test_a_node_that_lost_everybody_joins_again_by_one_row_of_retries() -> None:
    bench = Bench(7, config=replace(STILL, near_every=10 * SECOND, last_retry=20 * SECOND))
    bench.settle()
    bench.machine.table.drop(7)
    for _ in range(60):
        bench.env.advance(10 * SECOND)
        for request in bench.asked():
            assert request.peer == 7
            request.fail("refused")
    before = bench.env.clock.waiting
    asked = 0
    for _ in range(6):
        bench.env.advance(10 * SECOND)
        for request in bench.asked():
            asked += 1
            request.fail("refused")
    assert asked <= 12 and bench.env.clock.waiting <= before <= 4


def test_after_the_join_buckets_with_few_contacts_are_filled_by_lookups() -> None:
    bench = Bench(*range(1, 60), config=replace(STILL, few=3), started=False)
    table = bench.machine.table
    bench.machine.start()
    own = [request for request in bench.settle() if request.msg == FindNode(name_of(0))]
    assert own and bench.machine.has_joined
    looked = set(bench.machine.refreshed) - {BITS}
    nearest = table.nearest(table.mine, STILL.k)
    outer = range(min(table.bucket_of_peer(peer) for peer in nearest))
    assert looked <= set(outer)


# The table.


def test_only_a_peer_that_was_reached_gets_into_the_table() -> None:
    bench = Bench(7)
    [request] = bench.asked()
    bench.answer(request, 8, 9)
    assert bench.known == [7]
    by_peer = {request.peer: request for request in bench.asked()}
    bench.answer(by_peer[8])
    by_peer[9].fail("refused")
    assert bench.known == [7, 8]


def test_who_asks_without_serving_is_in_nobody_s_table() -> None:
    bench = Bench()
    for msg in (FindNode(b"key"), GetValue(b"key"), GetProviders(b"key"), Ping(), PutValue(b"key", Record(b"key", b"v"))):
        bench.ask(5, msg)
    receive(bench.machine, 5, AddProvider(b"key", info(5)))
    assert bench.known == []


def test_whose_link_came_up_is_seen_and_each_word_from_it_makes_it_the_newest() -> None:
    bench = Bench()
    a, b = peers_in(bench.machine, 0, 2)
    bench.up(a, b)
    assert list(bench.machine.table.buckets[0]) == [a, b]
    bench.ask(a, FindNode(b"key"))
    assert list(bench.machine.table.buckets[0]) == [b, a]


def test_who_cannot_be_dialled_or_does_not_answer_leaves_the_table() -> None:
    bench = Bench()
    bench.up(1, 2, 3)
    bench.down(1)
    assert bench.known == [2, 3]
    bench.machine.lookup(b"key", lambda _: None)
    for request in bench.asked():
        if request.peer == 2:
            request.fail("timeout")
        else:
            bench.answer(request)
    assert bench.known == [3]


def test_an_answer_names_the_k_nearest_but_not_the_asker() -> None:
    bench = Bench()
    bench.up(*range(1, 30))
    place = place_of_key(b"key")
    for asker in range(1, 30):
        reply = bench.ask(asker, FindNode(b"key"))
        others = sorted((peer for peer in bench.machine.table if peer != asker), key=lambda peer: place_of(peer) ^ place)
        assert reply == FindNode(b"key", info(*others[: STILL.k]))


def test_who_is_looked_for_is_named_first_if_it_is_known_though_it_is_in_no_table() -> None:
    bench = Bench()
    bench.up(*range(1, 20))
    bench.env.learn(client := PeerInfo(77, ("/memory/77",)))
    first, *others = bench.ask(9, FindNode(name_of(77))).closer
    assert first == client and len(others) == STILL.k
    for sender, key in ((77, name_of(77)), (9, name_of(78)), (9, b"key"), (9, name_of(5)), (9, name_of(0))):
        told = [each.peer for each in bench.ask(sender, FindNode(key)).closer]
        assert 77 not in told and len({*told}) == STILL.k


def test_an_answer_says_where_the_peers_are() -> None:
    bench = Bench()
    there = PeerInfo(5, ("/ip4/192.0.2.1/tcp/4001",))
    bench.env.learn(there)
    bench.up(5)
    assert bench.ask(9, FindNode(b"key")).closer == (there,)
    assert bench.ask(9, GetValue(b"key")) == GetValue(b"key", None, (there,))
    assert bench.ask(9, GetProviders(b"key")) == GetProviders(b"key", (), (there,))
    assert bench.ask(9, Ping()) == Ping()


def test_whom_an_answer_names_is_learned_with_its_addresses_and_nothing_is_learned_of_one_without() -> None:
    bench = Bench(7)
    [request] = bench.asked()
    bench.up(7)
    named = (PeerInfo(8, ("/memory/8",)), PeerInfo(9))
    request.reply(FindNode(name_of(0), named))
    assert bench.env.infos == {8: named[0]}


def test_a_full_bucket_checks_its_oldest_which_answers_and_stays() -> None:
    bench = crowded()
    *first, late = peers_in(bench.machine, 0, STILL.k + 1)
    for peer in first:
        bench.down(peer, bench.up(peer))
    bench.asked()
    bench.up(late)
    [request] = bench.asked()
    assert (request.peer, request.msg) == (first[0], FindNode(name_of(0)))
    bench.answer(request)
    assert list(bench.machine.table.buckets[0]) == [*first[1:], first[0]]


def test_a_full_bucket_s_oldest_that_does_not_answer_gives_way_to_the_newcomer() -> None:
    bench = crowded()
    *first, late = peers_in(bench.machine, 0, STILL.k + 1)
    for peer in first:
        bench.down(peer, bench.up(peer))
    bench.asked()
    bench.up(late)
    [request] = bench.asked()
    request.fail("timeout")
    assert list(bench.machine.table.buckets[0]) == [*first[1:], late]


def test_the_oldest_of_a_full_bucket_is_not_checked_while_its_link_is_up_nor_twice_within_a_minute() -> None:
    bench = crowded()
    *first, late, later = peers_in(bench.machine, 0, STILL.k + 2)
    bench.up(*first)
    bench.up(late)
    assert bench.asked() == [] and list(bench.machine.table.buckets[0]) == [*first[1:], first[0]]
    gone = crowded()
    for peer in first:
        gone.down(peer, gone.up(peer))
    gone.asked()
    gone.up(late)
    assert len(gone.asked()) == 1
    gone.up(later)
    assert gone.asked() == []
    gone.env.advance(LATELY)
    gone.asked()
    gone.ask(late, FindNode(b"key"))
    assert len(gone.asked()) == 1


def test_a_near_contact_whose_link_fell_is_checked_and_a_far_one_is_not() -> None:
    bench = Bench(config=LASTING)
    bench.up(*range(1, 60))
    bench.env.advance(LONG)
    table = bench.machine.table
    near = table.nearest(table.mine, STILL.k)
    far = next(peer for peer in table if peer not in near)
    bench.asked()
    bench.down(far, bench.machine.links[far][0])
    assert bench.asked() == []
    bench.down(near[0], bench.machine.links[near[0]][0])
    [request] = bench.asked()
    assert (request.peer, request.msg) == (near[0], FindNode(name_of(0)))
    request.fail("timeout")
    assert near[0] not in table


def test_a_near_contact_that_cuts_each_link_at_once_is_not_dialled_without_end() -> None:
    bench = Bench(config=LASTING)
    asked = 0
    for _ in range(50):
        bench.down(5, bench.up(5))
        for request in bench.asked():
            asked += 1
            bench.answer(request)
    assert asked == 0


def test_the_end_of_an_old_link_is_no_end_of_a_newer_one() -> None:
    bench = Bench(config=LASTING)
    old = bench.up(5)
    bench.up(5)
    bench.env.advance(LONG)
    bench.down(5, old)
    assert bench.asked() == [] and 5 in bench.machine.links


def test_now_and_then_a_few_of_the_nearest_are_asked_for_the_own_place_and_new_ones_near_it_too() -> None:
    bench = Bench(config=replace(STILL, near_every=10 * SECOND, near_asks=2))
    bench.up(*range(10, 60))
    table = bench.machine.table
    bench.env.advance(10 * SECOND)
    first, second = bench.asked()
    near = table.nearest(table.mine, STILL.k)
    assert {first.peer, second.peer} <= set(near) and first.msg == FindNode(name_of(0))
    strangers = range(1_000, 3_000)
    nearer = min(strangers, key=lambda peer: place_of(peer) ^ table.mine)
    farther = max(strangers, key=lambda peer: place_of(peer) ^ table.mine)
    bench.answer(first, nearer, farther, 0, near[1])
    assert whom(bench.asked()) == [nearer]


def test_near_ones_of_a_full_bucket_that_name_each_other_are_checked_once_and_kept() -> None:
    """Otherwise each answer would name one that is near and not known, without end."""
    bench = Bench()
    near = sorted(peers_in(bench.machine, 3, STILL.k + 3), key=lambda peer: place_of(peer) ^ bench.machine.table.mine)
    bench.up(*near[3:])
    bench.machine._check(near[3])
    asked: list[FakeRequest] = []
    while (requests := bench.asked()) and len(asked) < 50:
        asked += requests
        for request in requests:
            bench.answer(request, *(peer for peer in near[:4] if peer != request.peer))
    assert sorted(whom(asked)) == sorted(near[:4])
    assert bench.machine.table.nearest(bench.machine.table.mine, STILL.k) == near[: STILL.k]


def test_checks_under_way_are_bounded() -> None:
    bench = Bench(config=replace(STILL, k=20))
    bench.up(7)
    bench.machine._check(7)
    [request] = bench.asked()
    bench.answer(request, *range(100, 140))
    assert len(bench.asked()) == CHECKS == len(bench.machine.asking)


def looked_into(bench: Bench, requests: Sequence[FakeRequest]) -> set[int]:
    """The buckets of all places that were looked up; BITS is the own."""
    keys = {request.msg.key for request in requests if isinstance(request.msg, FindNode)}
    return {bench.machine.table.bucket_of(place_of_key(key)) for key in keys}


def test_a_bucket_that_no_lookup_went_into_lately_is_refreshed_and_the_own_place_looked_up() -> None:
    bench = Bench(config=replace(STILL, refresh_every=100 * SECOND))
    bench.up(*range(1, 200))
    bench.live(100 * SECOND)
    assert bench.machine.has_joined and bench.machine._outer() >= 3
    assert looked_into(bench, bench.live(100 * SECOND)) == {BITS, *range(bench.machine._outer())}


def test_a_bucket_that_a_lookup_went_into_is_left_alone() -> None:
    bench = Bench(config=replace(STILL, refresh_every=100 * SECOND))
    bench.up(*range(1, 200))
    bench.live(200 * SECOND)
    due = bench.env.clock.due
    assert due is not None
    bench.live(due - bench.env.now() - SECOND)
    key = next(key for key in (b"%d" % n for n in range(99)) if bench.machine.table.bucket_of(place_of_key(key)) == 1)
    bench.machine.lookup(key, lambda _: None)
    bench.settle()
    assert looked_into(bench, bench.live(2 * SECOND)) == {BITS, 0, *range(2, bench.machine._outer())}


# Lookups.


def test_a_lookup_tells_the_nearest_that_answered() -> None:
    bench, found = Bench(), list[Sequence[PeerInfo]]()
    bench.up(1, 2, 3)
    bench.machine.lookup(b"key", found.append)
    strangers: dict[Peer, list[Peer]] = {1: [11, 12], 2: [12, 13], 3: [1]}
    bench.settle(lambda request: bench.answer(request, *strangers.get(request.peer, [])))
    place = place_of_key(b"key")
    nearest = sorted([1, 2, 3, 11, 12, 13], key=lambda peer: place_of(peer) ^ place)
    assert found == [list(info(*nearest[: STILL.k]))]


def test_a_slow_peer_does_not_hold_up_the_next_and_its_late_answer_counts() -> None:
    bench, found = Bench(config=replace(STILL, alpha=1)), list[Sequence[PeerInfo]]()
    bench.up(1, 2)
    bench.machine.lookup(b"key", found.append)
    [slow] = bench.asked()
    bench.env.advance(STILL.slow - 1)
    assert bench.asked() == []
    bench.env.advance(1)
    [quick] = bench.asked()
    bench.answer(quick)
    assert found == []
    bench.answer(slow)
    assert [{each.peer for each in one} for one in found] == [{1, 2}]


def test_a_peer_that_does_not_answer_in_time_has_failed() -> None:
    bench, found = Bench(), list[Sequence[PeerInfo]]()
    bench.up(1)
    bench.machine.lookup(b"key", found.append)
    bench.env.advance(STILL.patience - 1)
    assert found == []
    bench.env.advance(1)
    assert found == [[]] and bench.known == []


def test_who_failed_at_once_is_asked_once_more_and_who_took_too_long_is_not() -> None:
    """The link may have been closing just then."""
    bench, found = Bench(), list[Sequence[PeerInfo]]()
    bench.up(1, 2)
    bench.machine.lookup(b"key", found.append)
    first = {request.peer: request for request in bench.asked()}
    first[1].fail("closed")
    first[2].fail("timeout")
    [again] = bench.asked()
    assert (again.peer, again.msg, bench.known) == (1, FindNode(b"key"), [1])
    again.fail("closed")
    assert bench.asked() == [] and found == [[]] and bench.known == []


def test_an_answer_without_the_key_is_one_too() -> None:
    """Other libraries leave it out."""
    bench, found = Bench(), list[Sequence[PeerInfo]]()
    bench.up(1)
    bench.machine.lookup(b"key", found.append)
    bench.settle(lambda request: request.reply(FindNode(b"")))
    assert found == [list(info(1))]


def test_of_an_answer_no_more_than_k_names_are_taken() -> None:
    bench = Bench()
    bench.up(1)
    bench.machine.lookup(b"key", lambda _: None)
    [request] = bench.asked()
    bench.answer(request, *range(100, 200))
    [query] = bench.machine.asked.running
    assert set(query.lookup.owner) - {0, 1} == {100, 101, 102, 103}


@pytest.mark.parametrize("reply", [Ping(), FindNode(b"other"), GetValue(b"key"), PutValue(b"key", Record(b"key", b"v"))])
def test_an_answer_of_another_kind_or_key_is_the_peer_s_fault_and_the_lookup_goes_on(reply: Message) -> None:
    bench, found = Bench(), list[Sequence[PeerInfo]]()
    bench.up(1, 2)
    bench.machine.lookup(b"key", found.append)
    for request in bench.asked():
        if request.peer == 1:
            with pytest.raises(PeerError, match="in answer to FindNode"):
                request.reply(reply)
        else:
            bench.answer(request)
    assert found == [list(info(2))] and bench.known == [2]


def test_a_check_answered_with_another_kind_is_the_peer_s_fault_and_it_is_not_checked_again_for_it() -> None:
    bench = Bench(config=LASTING)
    incarnation = bench.up(5)
    bench.env.advance(LONG)
    bench.machine._check(5)
    [request] = bench.asked()
    with pytest.raises(PeerError, match="Ping in answer to FindNode"):
        request.reply(Ping())
    assert bench.known == [] and bench.machine.asking == {}
    bench.down(5, incarnation)
    assert bench.asked() == []


def test_lookups_beyond_the_limit_wait_for_those_before_them() -> None:
    bench, ended = Bench(), list[int]()
    bench.up(1)
    for number in range(QUERIES + 3):
        bench.machine.lookup(b"key %d" % number, lambda _, number=number: ended.append(number))  # type: ignore[misc]
    assert len(bench.machine.asked.running) == QUERIES and len(bench.machine.asked.waiting) == 3
    first, *_ = requests = bench.asked()
    assert len(requests) == QUERIES
    bench.answer(first)
    [next_] = bench.asked()
    assert ended == [0]
    for request in (*requests[1:], next_):
        bench.answer(request)
    bench.settle()
    assert sorted(ended) == list(range(QUERIES + 3)) and not bench.machine.asked.running and not bench.machine.asked.waiting


def test_thousands_of_lookups_that_wait_end_in_turn_when_the_last_contact_is_lost() -> None:
    bench, ended = Bench(), list[Any]()
    bench.up(1)
    for number in range(3_000):
        bench.machine.lookup(b"key %d" % number, ended.append)
    for request in bench.asked():
        request.fail("gone")
    bench.settle(lambda request: request.fail("gone"))
    assert ended == [[]] * 3_000


def test_a_lookup_with_more_paths_takes_one_share_of_the_start_for_each() -> None:
    bench = Bench()
    bench.up(1, 2, 3)
    bench.machine.lookup(b"key", lambda _: None, paths=3)
    [query] = bench.machine.asked.running
    assert len(query.lookup.paths) == 3


@pytest.mark.parametrize(
    "call",
    [
        *(lambda m: m.put("key", b"value", SECOND, print), lambda m: m.put(b"key", "text", SECOND, print)),
        *(lambda m: m.put(b"key", bytearray(b"value"), SECOND, print), lambda m: m.put(b"key", b"value", 60.5 * SECOND, print)),
        *(lambda m: m.put(b"key", b"value", True, print), lambda m: m.put(b"key", b"value", SECOND, None)),
        *(lambda m: m.get("key", print), lambda m: m.get(b"key", None)),
        *(lambda m: m.lookup(7, print), lambda m: m.lookup(b"key", 7)),
        *(lambda m: m.provide("key"), lambda m: m.provide(b"key", 7), lambda m: m.withdraw(bytearray(b"key"))),
        *(lambda m: m.announce(b"topic"), lambda m: m.announce("\ud800"), lambda m: m.unannounce(None)),
        *(lambda m: m.find(b"topic", 1, print), lambda m: m.find("topic", 1.5, print), lambda m: m.find("topic", 0, print)),
        *(lambda m: m.find("topic", 1, None), lambda m: m.find_providers("key", 1, print)),
    ],
)
def test_an_argument_of_a_wrong_type_is_refused_at_the_call_and_leaves_nothing_behind(call: Callable[[Any], None]) -> None:
    bench = Bench()
    bench.up(1)
    with pytest.raises(UsageError):
        call(bench.machine)
    assert bench.asked() == [] and not bench.machine.mine and not bench.machine.provided


@pytest.mark.parametrize("key", [b"", bytes(KEY_LIMIT + 1)])
def test_a_key_that_no_frame_would_carry_is_refused_at_the_call(key: bytes) -> None:
    machine = Bench().machine
    calls: list[Callable[[], None]] = [
        lambda: machine.lookup(key, print),
        lambda: machine.put(key, b"value", SECOND, print),
        lambda: machine.get(key, print),
        lambda: machine.provide(key),
        lambda: machine.find_providers(key, 1, print),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="a key of"):
            call()


# Values.


def test_a_value_is_stored_with_the_k_nearest_and_done_hears_how_many_took_it() -> None:
    bench, taken = Bench(), list[int]()
    bench.up(*range(1, 30))
    bench.machine.put(KEY, b"value", SECOND, taken.append)
    table, place = bench.machine.table, place_of_key(KEY)
    nearest = table.nearest(place, STILL.k)
    stores: list[FakeRequest] = []
    while requests := bench.asked():
        for request in requests:
            if isinstance(request.msg, PutValue):
                stores.append(request)
            else:
                bench.answer(request)
    assert sorted(whom(stores)) == sorted(nearest)
    assert {request.msg for request in stores} == {PutValue(KEY, Record(KEY, b"value", ttl=1))}
    stores[0].fail("timeout")
    for request in stores[1:]:
        request.reply(request.msg)
    assert taken == [STILL.k - 1]


def test_who_is_one_of_the_nearest_itself_keeps_the_value_too_and_a_client_does_not() -> None:
    near = Bench()
    near.up(1, 2)
    near.machine.put(KEY, b"value", SECOND, print)
    near.settle()
    assert near.held(KEY) == b"value"
    client = Bench(config=replace(STILL, server=False))
    client.up(1, 2)
    client.machine.put(KEY, b"value", SECOND, lambda taken: None)
    client.settle()
    assert client.machine.records.values == {}
    far = Bench()
    far.up(*range(1, 200))
    table = far.machine.table
    key = next(key for key in (b"%d" % n for n in range(999)) if all(
        place_of(peer) ^ place_of_key(key) < table.mine ^ place_of_key(key) for peer in table.nearest(place_of_key(key), STILL.k)
    ))  # fmt: skip
    far.machine.put(key, b"value", SECOND, lambda taken: None)
    far.settle()
    assert far.machine.records.values == {}


def test_without_contacts_nobody_takes_a_value_and_that_is_told() -> None:
    bench, taken = Bench(), list[int]()
    bench.machine.put(KEY, b"value", SECOND, taken.append)
    assert taken == [0]


def test_an_answer_to_a_value_that_is_none_is_the_peer_s_fault_and_counts_as_not_taken() -> None:
    bench, taken = Bench(), list[int]()
    bench.up(1)
    bench.machine.put(KEY, b"value", SECOND, taken.append)
    [request] = bench.asked()
    bench.answer(request)
    [put] = bench.asked()
    with pytest.raises(PeerError, match="Ping in answer to PutValue"):
        put.reply(Ping())
    assert taken == [0]


def test_a_value_that_is_to_last_less_than_a_second_is_refused_at_the_call() -> None:
    with pytest.raises(UsageError, match="a second at least"):
        Bench().machine.put(KEY, b"1", SECOND - 1, print)


def test_a_value_that_is_too_large_or_not_valid_is_refused_at_the_call() -> None:
    machine = Bench(limits=RecordLimits(value=5)).machine
    with pytest.raises(UsageError, match="over the limit"):
        machine.put(KEY, b"larger", SECOND, print)
    with pytest.raises(UsageError, match="refuses this value"):
        machine.put(KEY, b"x", SECOND, print)
    assert machine.mine == {}


def test_a_value_that_does_not_fit_its_key_is_its_sender_s_fault() -> None:
    bench = Bench(limits=RecordLimits(value=5))
    wrong = [(KEY, Record(KEY, b"x")), (KEY, Record(b"/new/other", b"a")), (KEY, Record(KEY, b"larger")), (b"", Record(b"", b""))]
    for key, record in wrong:
        with pytest.raises(PeerError, match="does not fit its key"):
            bench.ask(5, PutValue(key, record))
    assert bench.machine.records.values == {}


def test_a_value_taken_is_echoed_and_told_to_who_asks() -> None:
    bench = Bench()
    put = PutValue(KEY, Record(KEY, b"1"))
    assert bench.ask(5, put) == put
    assert bench.ask(6, GetValue(KEY)).record == Record(KEY, b"1", ttl=STILL.value_ttl // SECOND)
    assert bench.ask(6, GetValue(b"/new/other")).record is None


def test_a_value_for_which_there_is_no_room_is_not_echoed_and_its_sender_is_not_to_blame() -> None:
    bench = Bench(limits=RecordLimits(values=1))
    near, far = sorted((KEY, b"/new/other"), key=lambda key: place_of_key(key) ^ bench.machine.table.mine)
    bench.ask(5, PutValue(near, Record(near, b"1")))
    with pytest.raises(Refused, match="no room"):
        bench.ask(5, PutValue(far, Record(far, b"1")))
    assert [*bench.machine.records.values] == [near]


def test_on_the_wire_only_those_who_had_room_count_as_having_taken_a_value() -> None:
    wire, taken = FakeWire(codec=True), list[int]()
    network(wire, 5, STILL)
    for number in (2, 3):
        full = machine(wire, number).records
        full.limits = RecordLimits(values=0)
    machine(wire, 4).put(KEY, b"value", DAY, taken.append)
    wire.run(SECOND)
    assert taken == [2] and wire.errors == [] and holders(wire, KEY) == [0, 1, 4]


def test_an_echo_of_another_value_says_that_the_value_was_not_taken() -> None:
    bench, taken = Bench(), list[int]()
    bench.up(1, 2, 3)
    bench.machine.put(KEY, b"value", SECOND, taken.append)
    answers = iter([Record(KEY, b"value"), Record(KEY, b"another"), Record(b"", b"")])
    while requests := bench.asked():
        for request in requests:
            if isinstance(request.msg, PutValue):
                request.reply(PutValue(KEY, next(answers)))
            else:
                bench.answer(request)
    assert taken == [1]


def test_a_value_no_better_than_the_one_held_changes_nothing() -> None:
    bench = Bench()
    bench.ask(5, PutValue(KEY, Record(KEY, b"2")))
    assert bench.ask(6, PutValue(KEY, Record(KEY, b"1"))) == PutValue(KEY, Record(KEY, b"1"))
    assert bench.held(KEY) == b"2"
    bench.ask(7, PutValue(KEY, Record(KEY, b"3")))
    assert bench.held(KEY) == b"3"


def test_a_value_expires_after_its_time() -> None:
    bench = Bench(config=replace(STILL, value_ttl=10 * SECOND))
    bench.ask(5, PutValue(KEY, Record(KEY, b"1")))
    bench.env.advance(10 * SECOND)
    assert bench.ask(6, GetValue(KEY)).record is None


def get(bench: Bench, told: dict[Peer, bytes], found: list[bytes | None], **options: Any) -> list[tuple[Peer, bytes]]:
    """Whom the values told were corrected to."""
    bench.machine.get(KEY, found.append, **options)
    asked = bench.settle(
        lambda request: bench.answer(request, record=Record(KEY, told[request.peer]) if request.peer in told else None)
    )
    return sorted((request.peer, request.msg.record.value) for request in asked if isinstance(request.msg, PutValue))


def test_the_best_value_is_found_and_who_told_an_older_one_is_told_the_better() -> None:
    bench, found = Bench(), list[bytes | None]()
    bench.up(1, 2, 3, 4)
    assert get(bench, {1: b"1", 2: b"2", 3: b"1", 4: b"2"}, found) == [(1, b"2"), (3, b"2")]
    assert found == [b"2"]


def test_the_nearest_that_lacks_the_value_is_told_it() -> None:
    bench, found = Bench(), list[bytes | None]()
    bench.up(1, 2, 3, 4)
    place = place_of_key(KEY)
    a, b, c, _ = sorted([1, 2, 3, 4], key=lambda peer: place_of(peer) ^ place)
    assert get(bench, {a: b"1", c: b"1"}, found) == [(b, b"1")]


def test_so_many_equal_values_as_the_quorum_end_the_search() -> None:
    bench, found = Bench(config=replace(STILL, quorum=2, alpha=1)), list[bytes | None]()
    bench.up(1, 2, 3, 4)
    bench.machine.get(KEY, found.append)
    for _ in range(2):
        [request] = bench.asked()
        assert found == []
        bench.answer(request, record=Record(KEY, b"1"))
    assert found == [b"1"]
    assert not any(isinstance(request.msg, GetValue) for request in bench.asked())


def test_what_is_held_here_counts_and_is_corrected_when_it_is_older() -> None:
    bench, found = Bench(), list[bytes | None]()
    bench.ask(5, PutValue(KEY, Record(KEY, b"1")))
    bench.machine.get(KEY, found.append)
    assert found == [b"1"]
    bench.up(1)
    get(bench, {1: b"2"}, found)
    assert found == [b"1", b"2"] and bench.held(KEY) == b"2"


def test_values_that_are_not_valid_or_under_another_key_are_not_found() -> None:
    bench, found = Bench(), list[bytes | None]()
    bench.up(1, 2, 3)
    records = {1: Record(KEY, b"x"), 2: Record(b"/new/other", b"9"), 3: Record(KEY, bytes(1 << 17))}
    bench.machine.get(KEY, found.append)
    bench.settle(lambda request: bench.answer(request, record=records[request.peer]))  # type: ignore[index]
    assert found == [None]


def test_a_value_by_its_hash_can_be_told_by_one_alone() -> None:
    env = FakeEnv(me=0)
    machine, found = Kademlia(env, (), STILL), list[bytes | None]()
    for peer in range(1, 6):
        machine.link_up(peer, Link(peer, True, PROTOCOL))
    key = key_of(b"true")
    machine.get(key, found.append)
    while requests := env.take_requests():
        for request in requests:
            value = b"true" if request.peer == 3 else b"false"
            request.reply(GetValue(key, Record(key, value)) if isinstance(request.msg, GetValue) else request.msg)
    assert found == [b"true"]


def puts(requests: Sequence[FakeRequest]) -> list[Peer]:
    return [request.peer for request in requests if isinstance(request.msg, PutValue)]


def holder() -> Bench:
    """Just after its turn to store again, which comes each 100 s, it was given a value."""
    bench = Bench(config=replace(STILL, republish_every=100 * SECOND))
    bench.up(1, 2)
    due = bench.env.clock.due
    assert due is not None
    bench.env.advance(due + 1)
    bench.ask(5, PutValue(KEY, Record(KEY, b"1")))
    return bench


def test_who_holds_a_value_stores_it_with_the_nearest_again_when_nobody_else_did() -> None:
    bench = holder()
    assert [sorted(puts(bench.live(100 * SECOND))) for _ in range(3)] == [[], [1, 2], []]


def test_the_first_to_store_a_value_again_spares_the_others() -> None:
    bench = holder()
    for _ in range(4):
        assert puts(bench.live(100 * SECOND)) == []
        bench.ask(1, PutValue(KEY, Record(KEY, b"1")))


def test_a_value_is_kept_for_as_long_as_its_author_wants_and_no_longer_than_this_node_does() -> None:
    bench = Bench(config=replace(STILL, value_ttl=100 * SECOND))
    for key, ttl in ((b"short", 40), (b"long", 1_000), (b"unsaid", 0)):
        bench.ask(5, PutValue(key, Record(key, b"1", ttl=ttl)))
    bench.env.advance(39 * SECOND)
    told = {key: bench.ask(6, GetValue(key)).record.ttl for key in (b"short", b"long", b"unsaid")}
    assert told == {b"short": 1, b"long": 61, b"unsaid": 61}
    bench.env.advance(2 * SECOND)
    assert bench.ask(6, GetValue(b"short")).record is None
    assert bench.ask(6, GetValue(b"long")).record is not None


def test_a_value_ends_with_its_time_though_all_its_holders_store_it_again() -> None:
    wire = FakeWire()
    network(wire, 6, replace(STILL, k=20, republish_every=600 * SECOND))
    machine(wire, 3).put(KEY, b"1", 3_600 * SECOND, lambda taken: None)
    wire.run(3_000 * SECOND)
    assert holders(wire, KEY) == list(range(6))
    wire.run(1_300 * SECOND)
    assert holders(wire, KEY) == []


def test_of_ten_holders_one_stores_a_value_again_in_each_time() -> None:
    wire = FakeWire()
    network(wire, 10, replace(STILL, k=20, republish_every=600 * SECOND))
    machine(wire, 3).put(KEY, b"1", DAY, lambda taken: None)
    wire.run(SECOND)
    assert holders(wire, KEY) == list(range(10))
    for node in wire.nodes:
        node.envs[0].requests.clear()
    wire.run(1_200 * SECOND)
    again = [peer for node in wire.nodes for peer in puts(node.envs[0].requests)]
    assert 9 <= len(again) <= 2 * 9


def test_the_publisher_stores_its_value_again_until_its_time_is_over() -> None:
    bench = Bench(config=replace(STILL, republish_every=100 * SECOND, server=False))
    bench.up(1)
    bench.machine.put(KEY, b"1", 200 * SECOND, lambda taken: None)
    bench.settle()
    turns = [len(puts(bench.live(100 * SECOND))) for _ in range(4)]
    assert turns == [1, 1, 0, 0] and bench.machine.mine == {}


def holder_of(count: int) -> tuple[Bench, list[bytes]]:
    """Its turn to store so many values again has just come."""
    bench, keys = Bench(config=replace(STILL, republish_every=100 * SECOND)), [b"key %d" % number for number in range(count)]
    bench.up(1)
    for key in keys:
        bench.ask(5, PutValue(key, Record(key, b"1")))
    while not bench.machine.upkeep.running:
        bench.env.advance(SECOND)
    return bench, keys


def test_a_lookup_that_is_asked_for_does_not_wait_for_values_that_are_stored_again() -> None:
    bench, _ = holder_of(500)
    ended: list[Any] = []
    assert len(bench.machine.due) == 500 - CHORES and len(bench.asked()) == CHORES
    bench.machine.lookup(b"wanted", ended.append)
    [request] = bench.asked()
    assert request.msg == FindNode(b"wanted")
    bench.answer(request)
    assert len(ended) == 1 and len(bench.machine.due) == 500 - CHORES


def test_of_many_values_each_is_stored_again_by_a_few_lookups_at_a_time_though_users_never_stop_asking() -> None:
    bench, keys = holder_of(200)
    for number in range(2 * QUERIES):
        bench.machine.lookup(b"user %d" % number, lambda _: None)
    stored: list[bytes] = []
    while requests := bench.asked():
        assert len(bench.machine.upkeep.running) <= CHORES and not bench.machine.upkeep.waiting
        for request in requests:
            if isinstance(request.msg, PutValue):
                stored.append(request.msg.key)
                request.reply(request.msg)
            elif isinstance(request.msg, FindNode) and request.msg.key in keys:
                bench.answer(request)  # nobody answers the users
    assert sorted(stored) == sorted(keys)


def test_a_value_that_another_stored_while_it_waited_for_its_turn_is_not_stored_again() -> None:
    bench, keys = holder_of(CHORES + 2)
    spared, left = bench.machine.due
    bench.ask(1, PutValue(spared, Record(spared, b"1")))
    stored = {request.msg.key for request in bench.settle() if isinstance(request.msg, PutValue)}
    assert stored == {*keys} - {spared} and left in stored


# Providers.


def test_nobody_speaks_for_another_provider() -> None:
    bench = Bench()
    there = PeerInfo(5, ("/memory/5",))
    receive(bench.machine, 5, AddProvider(KEY, (there, PeerInfo(6, ("/memory/6",)))))
    assert bench.ask(9, GetProviders(KEY)).providers == (there,)
    assert 6 not in bench.env.infos and bench.env.infos[5] == there


def test_providers_and_their_keys_are_bounded_and_so_is_an_answer() -> None:
    bench = Bench(limits=RecordLimits(keys=3, providers=100))
    for peer in range(1, 300):
        receive(bench.machine, peer, AddProvider(KEY, info(peer)))
        receive(bench.machine, 1, AddProvider(b"key %d" % peer, info(1)))
    records = bench.machine.records
    assert len(records.providers) == 3 and len(records.providers[KEY]) == 100
    assert len(bench.ask(9, GetProviders(KEY)).providers) == TOLD


def test_one_peer_cannot_fill_all_keys_with_itself() -> None:
    bench = Bench(limits=RecordLimits(keys=100, provided=40))
    for number in range(1_000):
        receive(bench.machine, 1, AddProvider(b"spam %d" % number, info(1)))
    receive(bench.machine, 2, AddProvider(KEY, info(2)))
    assert bench.ask(9, GetProviders(KEY)).providers == info(2)
    assert len(bench.machine.records.providers) == 41


def test_who_provides_tells_the_k_nearest_by_a_message_without_an_answer_and_again_until_it_withdraws() -> None:
    bench, told = Bench(config=replace(STILL, republish_every=100 * SECOND)), list[int]()
    bench.up(*range(1, 30))
    bench.machine.provide(KEY, told.append)
    bench.settle()
    nearest = bench.machine.table.nearest(place_of_key(KEY), STILL.k)
    add = AddProvider(KEY, info(0))
    assert bench.env.take() == [(peer, add) for peer in nearest] and told == [STILL.k] and add.alone
    bench.live(100 * SECOND)
    assert bench.env.take() == [(peer, add) for peer in nearest]
    bench.machine.withdraw(KEY)
    bench.live(100 * SECOND)
    assert bench.env.take() == []


def test_who_withdraws_while_it_looks_tells_nobody() -> None:
    bench, told = Bench(), list[int]()
    bench.up(1)
    bench.machine.provide(KEY, told.append)
    bench.machine.withdraw(KEY)
    bench.settle()
    assert bench.env.take() == [] and told == [1]


def test_a_search_for_providers_ends_when_there_are_enough_and_learns_where_they_are() -> None:
    bench, found = Bench(config=replace(STILL, alpha=1)), list[Sequence[PeerInfo]]()
    bench.up(1, 2, 3)
    bench.machine.find_providers(KEY, 3, found.append)
    there = [PeerInfo(peer, (f"/memory/{peer}",)) for peer in (20, 21, 22, 23)]
    for providers in (there[:2], there[1:]):
        assert found == []
        [request] = bench.asked()
        bench.answer(request, providers=tuple(providers))
    assert found == [there[:3]] and bench.asked() == []
    assert sorted(bench.env.infos) == [20, 21, 22]


def test_of_an_answer_no_more_providers_are_taken_than_a_weft_node_would_tell() -> None:
    bench, found = Bench(), list[Sequence[PeerInfo]]()
    bench.up(1)
    bench.machine.find_providers(KEY, 1_000, found.append)
    bench.settle(lambda request: bench.answer(request, providers=info(*range(100, 400))))
    assert len(found[0]) == TOLD


def test_topics_are_announced_and_found_under_their_keys() -> None:
    bench, found = Bench(), list[Sequence[PeerInfo]]()
    bench.up(1)
    bench.machine.announce("news")
    bench.settle()
    assert bench.env.take() == [(1, AddProvider(topic_key("news"), info(0)))]
    bench.machine.find("news", 5, found.append)
    bench.settle(lambda request: bench.answer(request, providers=info(0, 7)))
    assert [[each.peer for each in one] for one in found] == [[0, 7]]
    bench.machine.unannounce("news")
    assert bench.machine.provided == {}


def test_who_withdraws_names_itself_no_more_whatever_others_still_say() -> None:
    bench, found = Bench(), list[Sequence[PeerInfo]]()
    bench.up(1)
    bench.machine.announce("news")
    bench.settle()
    key = topic_key("news")
    assert bench.ask(9, GetProviders(key)).providers == info(0)
    bench.machine.find("news", 1, found.append)
    bench.machine.unannounce("news")
    assert bench.ask(9, GetProviders(key)).providers == ()
    bench.settle()
    bench.machine.find("news", 1, found.append)
    bench.settle(lambda request: bench.answer(request, providers=info(0, 7)))
    assert found == [[], [PeerInfo(7)]]
    bench.machine.unannounce("news")


# Life.


def test_a_sample_is_of_the_table_without_repetition() -> None:
    bench = Bench()
    bench.up(*range(1, 30))
    sample = bench.machine.sample(5)
    assert len(set(sample)) == 5 and set(sample) <= set(bench.machine.table)
    assert sorted(bench.machine.sample(1_000)) == bench.known


def test_after_a_restart_with_state_a_node_joins_by_those_it_knew() -> None:
    before = Bench()
    assert before.machine.snapshot() is None
    before.env.learn(PeerInfo(5, ("/memory/5",)))
    before.up(5, 6)
    state = before.machine.snapshot()
    assert state is not None
    after = Bench(7, started=False)
    after.machine.restore(state)
    assert after.known == []
    after.machine.start()
    assert sorted(whom(after.asked())) == [5, 6, 7] and after.env.infos == {5: PeerInfo(5, ("/memory/5",))}


def test_after_stop_no_timer_is_left_but_those_of_open_requests_and_nothing_new_is_asked() -> None:
    bench = Bench(7, config=LIVELY)
    bench.asked()[0].fail("refused")  # a retry is due
    bench.up(1, 2, 3)
    bench.machine.lookup(b"key", lambda _: None)
    bench.machine.get(KEY, lambda _: None)
    bench.machine._check(1)
    requests = bench.asked()
    assert requests
    bench.machine.stop()
    assert bench.env.clock.waiting == len(requests)
    for number, request in enumerate(requests):
        if number % 2:
            bench.answer(request, 50, 51)
        else:
            request.fail("closed")
    bench.env.advance(2_000 * SECOND)
    assert bench.asked() == [] and bench.env.take() == [] and bench.env.clock.waiting == 0


def test_what_is_under_way_or_waits_at_stop_ends_once_with_nothing_found() -> None:
    bench, ended = Bench(), list[Any]()
    bench.up(1, 2)
    bench.machine.put(KEY, b"value", DAY, lambda taken: ended.append(("put", taken)))
    for request in bench.asked():
        bench.answer(request)
    first, second = bench.asked()
    first.reply(first.msg)
    for _ in range(QUERIES):
        bench.machine.lookup(b"key", ended.append)
    bench.machine.get(b"other", ended.append)
    bench.machine.put(b"other", b"value", DAY, ended.append)
    bench.machine.provide(b"other", ended.append)
    bench.machine.find("news", 1, ended.append)
    requests = bench.asked()
    bench.machine.stop()
    wanted: list[Any] = [*[[]] * QUERIES, None, 0, 0, [], ("put", 1)]
    assert ended == wanted
    for request in requests:
        bench.answer(request)
    second.reply(second.msg)
    assert ended == wanted and bench.asked() == [] and bench.env.take() == []


def test_a_call_after_stop_is_refused_and_only_to_withdraw_is_not() -> None:
    bench = Bench()
    bench.machine.announce("news")
    bench.machine.stop()
    calls: list[Callable[[], None]] = [
        lambda: bench.machine.lookup(b"key", print),
        lambda: bench.machine.get(b"key", print),
        lambda: bench.machine.put(b"key", b"value", DAY, print),
        lambda: bench.machine.announce("olds"),
        lambda: bench.machine.find("news", 1, print),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="stopped"):
            call()
    bench.machine.unannounce("news")
    assert not bench.machine.provided and not bench.machine.mine


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("k", 0), ("k", TOLD + 1), ("alpha", 0), ("paths", 0), ("spares", -1), ("patience", 0), ("last_retry", 1)),
        *(("protocol", "kad"), ("protocol", "/"), ("protocol", "/a b"), ("protocol", "/weft/kadpubsub/1.0.0")),
        *(("protocol", "/floodsub/1.0.0"), ("protocol", "/meshsub/1.1.0"), ("protocol", "/ipfs/ping/1.0.0")),
        *(("slow", 1), ("near_every", 999)),  # seconds where microseconds are meant
    ],
)
def test_a_config_that_makes_no_sense_is_refused_and_says_which_field(field: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"kademlia: {field} is"):
        replace(STILL, **{field: value})


# Hostile peers.


SOMEBODY = st.integers(0, 30)
NAMED = st.lists(SOMEBODY.map(PeerInfo), max_size=12).map(tuple)
SOME_KEYS = st.sampled_from([KEY, b"/new/other", b"key", b"", name_of(0), topic_key("news")])
VALUES = st.sampled_from([b"", b"1", b"2", b"x", bytes(100)])
RECORDS = st.builds(Record, SOME_KEYS, VALUES, st.just(""), st.integers(0, 2**32 - 1))
WORDS: st.SearchStrategy[Message] = st.one_of(
    st.builds(FindNode, SOME_KEYS, NAMED),
    st.builds(GetValue, SOME_KEYS, st.none() | RECORDS, NAMED),
    st.builds(PutValue, SOME_KEYS, RECORDS),
    st.builds(GetProviders, SOME_KEYS, NAMED, NAMED),
    st.builds(AddProvider, SOME_KEYS, NAMED),
    st.just(Ping()),
)
DEEDS = st.one_of(
    st.tuples(st.just("say"), st.integers(1, 30), WORDS),
    st.tuples(st.just("reply"), st.integers(0, 99), WORDS),
    st.tuples(st.just("honest"), st.integers(0, 99), NAMED),
    st.tuples(st.just("fail"), st.integers(0, 99), st.none()),
    st.tuples(st.just("up"), st.integers(1, 30), st.none()),
    st.tuples(st.just("down"), st.integers(1, 30), st.booleans()),
    st.tuples(st.just("wait"), st.integers(0, 700), st.none()),
    st.tuples(st.just("want"), st.integers(0, 4), SOME_KEYS.filter(bool)),
)
LIMITS = RecordLimits(values=3, bytes=120, value=60, keys=2, providers=4)


class Siege:
    """One machine, and peers that say whatever they like; `open` are the requests that nobody has settled."""

    def __init__(self) -> None:
        self.bench = Bench(1, 2, config=replace(LIVELY, few=5), limits=LIMITS)
        self.open: list[FakeRequest] = []
        self.wanted = self.ended = 0

    def do(self, deed: str, number: int, what: Any) -> None:
        bench = self.bench
        match deed:
            case "say":
                kind = type(what)
                if kind in bench.machine.answerers:
                    replies: list[Message] = []
                    try:
                        ask(bench.machine, number, what, replies.append)
                    except Refused:
                        assert kind is PutValue and replies == []
                        return
                    assert [type(reply) for reply in replies] == [kind]
                else:
                    receive(bench.machine, number, what)
            case "reply" if self.open:
                self.open.pop(number % len(self.open)).reply(what)
            case "honest" if self.open:
                request = self.open.pop(number % len(self.open))
                bench.up(request.peer)
                if isinstance(request.msg, PutValue):
                    request.reply(request.msg)
                else:
                    request.reply(type(request.msg)(request.msg.key, closer=what))  # type: ignore[attr-defined]
            case "fail" if self.open:
                self.open.pop(number % len(self.open)).fail("closed")
            case "up":
                bench.up(number)
            case "down":
                bench.down(number, bench.machine.links.get(number, (0, 0))[0] if what else 0)
            case "wait":
                bench.env.advance(number * SECOND)
            case "want":
                self.want(number, what)

    def want(self, number: int, key: bytes) -> None:
        machine = self.bench.machine
        value = b"1" if key != b"key" else b"anything"
        self.wanted += 1
        [
            lambda: machine.lookup(key, self.end),
            lambda: machine.get(key, self.end, paths=3),
            lambda: machine.put(key, value, SECOND, self.end),
            lambda: machine.find_providers(key, 3, self.end),
            lambda: machine.provide(key, self.end),
        ][number]()

    def end(self, _: object) -> None:
        self.ended += 1

    def check(self) -> None:
        bench, machine = self.bench, self.bench.machine
        self.open = [request for request in (*self.open, *bench.asked()) if not request.settled]
        table, records = machine.table, machine.records
        assert all(len(bucket) <= machine.config.k for bucket in table.buckets.values())
        assert all(len(waiting) <= machine.config.spares for waiting in table.waiting.values())
        for turns, most in ((machine.asked, QUERIES), (machine.upkeep, CHORES)):
            assert len(turns.running) <= most and (not turns.waiting or len(turns.running) == most)
        assert len(machine.asking) <= CHECKS and len(machine.upkeep.waiting) <= 1
        assert len(records.values) <= 3 and records.held <= 120 and len(records.providers) <= 2
        assert all(len(known) <= 4 for known in records.providers.values())
        assert all(b"x" not in stored.value for key, stored in records.values.items() if key.startswith(b"/new/"))
        assert bench.env.clock.waiting <= 4 + 2 * len(self.open)
        assert 0 not in table and len(table) == len(list(table))
        bench.env.take()


@given(st.lists(DEEDS, max_size=60))
@settings(max_examples=120, phases=(Phase.explicit, Phase.generate))
def test_whatever_peers_say_all_is_bounded_nothing_but_a_peer_error_comes_out_and_each_search_ends(
    deeds: list[tuple[str, int, Any]],
) -> None:
    siege = Siege()
    for deed in deeds:
        try:
            siege.do(*deed)
        except PeerError:
            assert deed[0] in ("say", "reply")
        siege.check()
    for _ in range(100):
        siege.check()
        if not siege.open:
            break
        siege.open.pop().fail("over")
    assert siege.ended == siege.wanted


# On the wire.


def build(contacts: Sequence[Peer], config: KademliaConfig) -> Build:
    return lambda env: [Kademlia(env(), contacts, config, VALIDATORS)]


def network(wire: FakeWire, count: int, config: KademliaConfig) -> None:
    """Nodes that joined one after the other, through the first."""
    for number in range(count):
        wire.add(build([0] if number else [], config))
        wire.run()


def machine(wire: FakeWire, number: int) -> Kademlia:
    found = wire.nodes[number].machines[0]
    assert isinstance(found, Kademlia)
    return found


def holders(wire: FakeWire, key: bytes) -> list[int]:
    return [node.me for node in wire.nodes if machine(wire, node.me).records.stored(key, wire.now) is not None]


def nearest_of(peers: Sequence[int], key: bytes, k: int, but: int | None = None) -> list[int]:
    return sorted((peer for peer in peers if peer != but), key=lambda peer: place_of(peer) ^ place_of_key(key))[:k]


@pytest.fixture(scope="module")
def forty() -> Iterator[FakeWire]:
    """Joined, and none of them lively; tests only look things up in it."""
    wire = FakeWire(codec=True)
    network(wire, 40, replace(LIVELY, near_asks=3))
    wire.run(60 * SECOND)
    yield wire
    assert wire.errors == []


def test_on_a_wire_of_forty_every_lookup_is_exact(forty: FakeWire) -> None:
    for asker in range(40):
        for key in (b"key %d" % asker, name_of((asker + 1) % 40), name_of(asker)):
            found: list[Sequence[PeerInfo]] = []
            machine(forty, asker).lookup(key, found.append)
            forty.run(SECOND)
            assert [each.peer for each in found[0]] == nearest_of(range(40), key, STILL.k, asker)


def test_on_a_wire_of_forty_a_value_is_at_the_nearest_and_all_find_it(forty: FakeWire) -> None:
    taken: list[int] = []
    machine(forty, 7).put(KEY, b"1", DAY, taken.append)
    forty.run(SECOND)
    assert taken == [STILL.k]
    near = set(nearest_of(range(40), KEY, STILL.k))
    assert near <= set(holders(forty, KEY)) | {7}
    found: list[bytes | None] = []
    for asker in range(40):
        machine(forty, asker).get(KEY, found.append)
    forty.run(SECOND)
    assert found == [b"1"] * 40


def test_on_a_wire_of_forty_all_providers_are_found_by_all(forty: FakeWire) -> None:
    for provider in (3, 9, 27):
        machine(forty, provider).announce("news")
    forty.run(SECOND)
    found: list[Sequence[PeerInfo]] = []
    for asker in range(40):
        machine(forty, asker).find("news", 10, found.append)
    forty.run(SECOND)
    assert [sorted(each.peer for each in one) for one in found] == [[3, 9, 27]] * 40


def test_a_client_joins_and_asks_and_no_server_knows_it() -> None:
    wire = FakeWire(codec=True)
    network(wire, 6, replace(STILL, k=6))
    client = wire.add(build([0], replace(STILL, k=6, server=False)))
    wire.run(SECOND)
    asker = machine(wire, client)
    assert asker.has_joined and sorted(asker.table) == list(range(6))
    found: list[bytes | None] = []
    asker.put(KEY, b"1", DAY, lambda taken: asker.get(KEY, found.append))
    wire.run(SECOND)
    assert found == [b"1"] and holders(wire, KEY) == list(range(6))
    assert not any(client in machine(wire, number).table for number in range(6))
    assert wire.errors == []


def test_dead_nodes_leave_the_tables_of_those_near_them_and_lookups_pass_them_over() -> None:
    wire = FakeWire()
    network(wire, 20, LIVELY)
    for number in (2, 5, 11, 17):
        wire.crash(number)
    wire.run(120 * SECOND)
    living = [number for number in range(20) if wire.nodes[number].alive]
    for asker in living:
        found: list[Sequence[PeerInfo]] = []
        machine(wire, asker).lookup(KEY, found.append)
        wire.run(10 * SECOND)
        assert [each.peer for each in found[0]] == nearest_of(living, KEY, STILL.k, asker)


def test_a_node_that_stops_in_order_is_asked_no_more() -> None:
    wire = FakeWire()
    network(wire, 8, replace(LIVELY, k=8))
    wire.run(60 * SECOND)
    wire.stop(3)
    wire.run(60 * SECOND)
    assert not any(3 in machine(wire, number).table for number in range(8) if number != 3)
    assert wire.errors == []
