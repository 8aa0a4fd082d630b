"""A node of a `kademlia` network by hand, on an Env that records: what it answers, whom it believes, where it looks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libweft.overlays.kademlia_udp import wire
from libweft.overlays.kademlia_udp.config import HOUR, KademliaUdpConfig
from libweft.overlays.kademlia_udp.handover import HANDED, HANDOVERS
from libweft.overlays.kademlia_udp.lookup import ASKS
from libweft.overlays.kademlia_udp.machine import PROBES, WAITING, WALKS, KademliaUdp
from libweft.overlays.kademlia_udp.wire import (
    UNUSABLE,
    VALUE_LIMIT,
    Contact,
    Value,
    contact,
    digest,
    find_node,
    find_value,
    nodes,
    ping,
    read_call,
    read_nodes,
    store,
    stun,
)
from libweft.peer.datagram import CONTENT_LIMIT, Address, OnFail, OnReply
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.fake.env import FakeClock, FakeTimer
from libweft.peer.machine import SECOND

ME = bytes(20)
encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode


class Asked:
    """A request that waits for the test to settle it."""

    def __init__(self, address: Address, content: bytes, on_reply: OnReply, on_fail: OnFail) -> None:
        self.address = address
        self.content = content
        self.name = read_call(content).name
        self._on_reply = on_reply
        self._on_fail = on_fail

    def reply(self, answer: Any) -> None:
        """As the Endpoint does it: a reply that does not fit is a failure."""
        try:
            self._on_reply(self.address, encode(answer))
        except PeerError as error:
            self._on_fail(self.address, str(error))

    def fail(self) -> None:
        self._on_fail(self.address, "timeout")


class RecordingEnv:
    def __init__(self) -> None:
        self.me: Address = ("192.0.2.100", 4_000)
        self.rng = Random(0)
        self.counts: Counter[str] = Counter()
        self.clock = FakeClock()
        self.asked: list[Asked] = []

    def now(self) -> int:
        return self.clock.now

    def after(self, delay: int, action: Callable[..., None], *args: Any) -> FakeTimer:
        return self.clock.after(delay, action, *args)

    def send(self, address: Address, data: bytes) -> None:
        raise AssertionError("this protocol has requests and replies alone")

    def request(self, address: Address, content: bytes, timeout: int, on_reply: OnReply, on_fail: OnFail) -> None:
        self.asked.append(Asked(address, content, on_reply, on_fail))

    def take(self, name: str = "") -> list[Asked]:
        """Those of the name, and they are gone; the others stay."""
        taken = [asked for asked in self.asked if name in ("", asked.name)]
        self.asked = [asked for asked in self.asked if asked not in taken]
        return taken

    def advance(self, us: int) -> None:
        until = self.clock.now + us
        while self.clock.fire(until):
            pass


def node(number: int) -> Contact:
    """Number n is at distance n from the node under test, and at an address of its own."""
    return contact(number.to_bytes(20, "big"), (f"198.51.{number % 50_000 // 250}.{number % 250 + 1}", 4_000))


def entries(found: Sequence[Contact]) -> list[Any]:
    return [(one.id, *one.address) for one in found]


class Bench:
    def __init__(self, *known: int, bootstrap: Sequence[Address] = (), **config: Any) -> None:
        self.env = RecordingEnv()
        self.config = KademliaUdpConfig(id=ME, **config)
        self.machine = KademliaUdp(self.env, bootstrap, self.config)
        self.machine.start()
        for number in known:
            self.machine.table.add(node(number), 0)

    def hear(self, content: bytes, sender: Address = ("203.0.113.1", 4_000)) -> Any:
        answers: list[bytes] = []
        self.machine.asked(sender, content, answers.append)
        [answer] = answers
        return decode(answer)

    @property
    def known(self) -> list[int]:
        return sorted(known.number for known in self.machine.table)


class Outcome:
    """What a call ended with."""

    def __init__(self) -> None:
        self.results: list[Any] = []

    def __call__(self, result: Any) -> None:
        self.results.append(result)


# The wire.


@pytest.mark.parametrize("value", [0, 127, -33, (1 << 64) - 1, -(1 << 63), 1.5, True, "", "é" * 40, b"", b"x" * 300])
def test_the_bytes_are_those_of_the_package(value: Value) -> None:
    theirs = pytest.importorskip("umsgpack")
    key = digest("key")
    assert stun() == theirs.packb(["stun", ()])
    assert ping(ME) == theirs.packb(["ping", (ME,)])
    assert find_node(ME, key) == theirs.packb(["find_node", (ME, key)])
    assert find_value(ME, key) == theirs.packb(["find_value", (ME, key)])
    assert store(ME, key, value) == theirs.packb(["store", (ME, key, value)])
    assert nodes([node(1)]) == theirs.packb([(node(1).id, *node(1).address)])
    assert encode({"value": value}) == theirs.packb({"value": value})
    assert read_call(theirs.packb(["store", (ME, key, value)])).value == value


def test_a_text_and_its_bytes_are_one_key_and_its_place_is_its_sha1() -> None:
    assert digest("abc") == digest(b"abc") == bytes.fromhex("a9993e364706816aba3e25717850c26c9cd0d89d")


@pytest.mark.parametrize("value", [None, [1], {"a": 1}, 1 << 64, "\ud800", bytearray(3), (1, 2)])
def test_what_the_network_does_not_take_is_refused_at_once(value: Any) -> None:
    bench = Bench(1)
    with pytest.raises(UsageError):
        bench.machine.set("key", value, Outcome())
    assert bench.env.asked == []


def test_a_value_is_as_long_as_a_datagram_has_room_and_no_longer() -> None:
    longest = bytes(VALUE_LIMIT - 3)
    assert len(store(ME, ME, longest)) == CONTENT_LIMIT
    with pytest.raises(UsageError, match="split it"):
        store(ME, ME, longest + b"x")


def test_a_key_is_a_text_or_bytes() -> None:
    with pytest.raises(UsageError, match="a key is a text or bytes"):
        Bench().machine.get(5, Outcome())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "request_",
    [
        *(b"", b"\xc1", b"\x91" * 5_000, encode(None), encode(["ping"]), encode(["ping", ME]), encode(["ping", [ME, ME]])),
        *(encode(["ping", ["a" * 20]]), encode(["ping", [bytes(19)]]), encode(["nothing", [ME]]), encode([b"ping", [ME]])),
        *(encode(["store", [ME, ME, None]]), encode(["store", [ME, ME, [1]]]), encode(["store", [ME, bytes(21), 1]])),
        *(encode(["find_node", [ME]]), encode(["stun", [ME]]), encode({"ping": [ME]}), ping(ME) + b"x"),
    ],
)
def test_a_request_that_does_not_fit_is_the_peer_s_fault_and_changes_nothing(request_: bytes) -> None:
    bench = Bench()
    with pytest.raises(PeerError):
        bench.hear(request_)
    assert bench.env.asked == [] and len(bench.machine.values) == 0


# Answering.


def test_a_ping_is_answered_by_the_id_and_a_stun_by_the_sender_s_address() -> None:
    bench = Bench()
    assert bench.hear(ping(node(5).id)) == ME
    assert bench.hear(stun(), ("203.0.113.9", 99)) == ["203.0.113.9", 99]


def test_what_was_stored_is_found_and_else_the_nearest_nodes_are_told() -> None:
    bench = Bench(1, 2)
    key = digest("key")
    told = bench.hear(find_value(node(9).id, key))
    assert sorted(entry[0] for entry in told) == [node(1).id, node(2).id]
    assert bench.hear(store(node(9).id, key, "value")) is True
    assert bench.hear(find_value(node(9).id, key)) == {"value": "value"}


def test_find_node_tells_the_k_nearest_of_all_and_never_the_asker() -> None:
    bench = Bench(*range(1, 100, 3), *(1 << bit for bit in range(8, 60)))
    target = 16
    told = [int.from_bytes(entry[0], "big") for entry in bench.hear(find_node(node(16).id, node(target).id))]
    others = sorted((number for number in bench.known if number != 16), key=lambda number: number ^ target)
    assert told == others[:20]


def test_a_value_without_room_is_refused_unless_it_is_nearer_than_another() -> None:
    bench = Bench(values=2)
    asker = node(9).id
    for number, taken in ((100, True), (200, True), (300, False), (50, True), (200, False)):
        assert bench.hear(store(asker, node(number).id, number)) is taken
    assert sorted(int.from_bytes(key, "big") for key in bench.machine.values.kept) == [50, 100]


def test_a_value_over_the_limit_of_bytes_pushes_out_nobody_in_vain() -> None:
    bench = Bench(value_bytes=1_000, value_size=900)
    asker = node(9).id
    assert bench.hear(store(asker, node(5).id, bytes(600)))
    assert bench.hear(store(asker, node(100).id, bytes(300)))
    assert not bench.hear(store(asker, node(50).id, bytes(800)))
    assert not bench.hear(store(asker, node(1).id, bytes(950)))
    assert len(bench.machine.values) == 2
    assert bench.hear(store(asker, node(50).id, bytes(350)))
    assert sorted(int.from_bytes(key, "big") for key in bench.machine.values.kept) == [5, 50]
    assert bench.machine.values.bytes == 603 + 353


# Whom it believes.


def test_who_asks_is_in_the_table_only_after_it_answered_a_ping_and_under_the_id_that_it_answered() -> None:
    bench = Bench()
    bench.hear(find_node(node(5).id, ME), node(5).address)
    [asked] = bench.env.take()
    assert (asked.address, asked.name) == (node(5).address, "ping")
    assert bench.known == []
    asked.reply(node(6).id)
    assert bench.known == [6]


def test_a_forged_address_costs_one_ping_at_a_time_and_gets_no_values() -> None:
    bench = Bench()
    for number in range(30):
        bench.hear(store(node(number).id, digest(str(number)), number), node(5).address)
    assert [asked.name for asked in bench.env.take()] == ["ping"]
    for number in range(2 * PROBES):
        bench.hear(ping(node(number).id), node(number).address)
    assert len(bench.env.take()) == PROBES - 1


def test_an_id_stays_with_the_address_that_had_it_first_as_long_as_that_answers() -> None:
    bench = Bench(5)
    thief: Address = ("203.0.113.66", 66)
    for answers in (True, False):
        bench.hear(ping(node(5).id), thief)
        [asked] = bench.env.take()
        asked.reply(node(5).id)
        [check] = bench.env.take()
        assert check.address == node(5).address
        if answers:
            check.reply(node(5).id)
            assert next(iter(bench.machine.table)).address == node(5).address
        else:
            check.fail()
            bench.env.take()[0].fail()
            assert bench.known == []


def test_an_address_has_one_contact() -> None:
    bench = Bench(5)
    bench.hear(ping(node(9).id), node(5).address)
    bench.env.take()[0].reply(node(9).id)
    assert [(known.number, known.address) for known in bench.machine.table] == [(9, node(5).address)]


def test_what_is_not_answered_is_asked_once_more_and_then_the_contact_is_given_up() -> None:
    bench = Bench(5)
    bench.machine.get("key", Outcome())
    bench.env.take()[0].fail()
    assert bench.known == [5]
    bench.env.take()[0].fail()
    assert bench.known == []
    assert bench.env.asked == []


def test_a_newcomer_to_a_full_bucket_is_a_spare_and_takes_the_place_of_one_that_died() -> None:
    bucket = range(1 << 100, (1 << 100) + 20)
    bench = Bench(*bucket)
    new = node((1 << 100) + 30)
    bench.hear(ping(new.id), new.address)
    bench.env.take()[0].reply(new.id)
    assert bench.known == [*bucket]
    [silent] = bench.env.take()
    assert silent.address == node(bucket[0]).address
    silent.fail()
    bench.env.take()[0].fail()
    assert bench.known == [*bucket[1:], new.number]


def test_one_that_is_heard_of_is_no_longer_the_first_to_be_doubted() -> None:
    bucket = range(1 << 100, (1 << 100) + 20)
    bench = Bench(*bucket)
    bench.hear(ping(node(bucket[0]).id), node(bucket[0]).address)
    assert bench.env.take() == []
    new = node((1 << 100) + 30)
    bench.hear(ping(new.id), new.address)
    bench.env.take()[0].reply(new.id)
    assert bench.env.take()[0].address == node(bucket[1]).address


def test_itself_is_no_contact() -> None:
    bench = Bench(bootstrap=[("198.51.100.1", 1)])
    done = Outcome()
    bench.machine.join(done)
    bench.env.take()[0].reply(ME)
    assert done.results == [0]
    bench.hear(ping(ME))
    assert bench.env.asked == []


@pytest.mark.parametrize(
    ("host", "port"),
    [
        *(("example.org", 1), ("", 1), ("127.0.0.1", 1), ("::1", 1), ("::ffff:127.0.0.1", 1), ("0.0.0.0", 1), ("224.0.0.1", 1)),
        *(("255.255.255.255", 1), ("fe80::1%eth0", 1), ("198.51.100.1", 0), ("198.51.100.1", 1 << 16), ("198.51.100.1", -1)),
        *(("198.51.100.01", 1), ("1", 1)),
    ],
)
def test_a_node_at_an_address_where_nothing_should_be_sent_is_left_out_and_counted(host: str, port: int) -> None:
    counts: Counter[str] = Counter()
    told = encode([(node(1).id, host, port), (node(2).id, *node(2).address)])
    assert read_nodes(told, 20, ("203.0.113.1", 1), counts) == [node(2)]
    assert counts == {UNUSABLE: 1}


@pytest.mark.parametrize("answer", [{"value": 7}, []])
def test_an_answer_is_decoded_once(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    decode_ = Mock(side_effect=wire._decode_found)
    monkeypatch.setattr(wire, "_decode_found", decode_)
    wire.read_value(encode(answer), 20, ("203.0.113.1", 1), Counter())
    assert decode_.call_count == 1


def test_a_loopback_address_is_believed_from_the_same_machine() -> None:
    told = encode([(node(1).id, "127.0.0.1", 5)])
    assert read_nodes(told, 20, ("127.0.0.1", 9), Counter())[0].address == ("127.0.0.1", 5)


# Looking.


def test_a_lookup_has_alpha_requests_under_way_and_ends_when_the_k_nearest_have_answered() -> None:
    bench = Bench(*range(1, 40), k=5)
    done = Outcome()
    bench.machine.get(b"", done)
    target = int.from_bytes(digest(b""), "big")
    order = sorted(bench.known, key=lambda number: number ^ target)
    asked: list[Asked] = []
    while bench.env.asked:
        assert len(bench.env.asked) <= 3
        [one, *bench.env.asked] = bench.env.asked
        asked.append(one)
        one.reply([])
    assert [one.address for one in asked] == [node(number).address for number in order[:5]]
    assert done.results == [None]


def test_a_lookup_goes_to_nearer_nodes_that_it_is_told_of_and_past_those_that_do_not_answer() -> None:
    bench = Bench(1, k=3)
    done = Outcome()
    place = int.from_bytes(digest("key"), "big")
    near = [contact((place ^ number).to_bytes(20, "big"), node(number + 10).address) for number in range(1, 6)]
    bench.machine.set("key", "value", done)
    bench.env.take("find_node")[0].reply(entries(near[2:]))
    bench.env.asked.pop(0).reply(entries(near[:2] + near[3:4]))
    while asked := bench.env.take("find_node"):
        for one in asked:
            one.fail() if one.address == near[0].address else one.reply([])
    stores = bench.env.take("store")
    assert [one.address for one in stores] == [one.address for one in near[1:4]]
    for one, taken in zip(stores, (True, False, True), strict=True):
        one.reply(taken)
    assert done.results == [2]


def test_only_the_k_nearest_are_asked_and_the_next_one_when_one_of_them_fails() -> None:
    bench = Bench(1, k=2)
    place = int.from_bytes(digest("key"), "big")
    near = [contact((place ^ number).to_bytes(20, "big"), node(number + 10).address) for number in range(1, 4)]
    bench.machine.get("key", Outcome())
    bench.env.take("find_value")[0].reply(entries(near[:2]))
    first, second = bench.env.take("find_value")
    second.reply(entries(near[2:]))
    assert bench.env.take("find_value") == []
    first.fail()
    bench.env.take("find_value")[0].fail()
    assert [one.address for one in bench.env.take("find_value")] == [near[2].address]


def test_one_address_under_many_ids_is_asked_once_and_stored_at_once() -> None:
    bench = Bench(1)
    done = Outcome()
    bench.machine.set("key", "value", done)
    told = [contact(digest(str(number)), node(7).address) for number in range(20)]
    bench.env.take("find_node")[0].reply(entries(told))
    [asked] = bench.env.take("find_node")
    asked.reply([])
    assert sorted(one.address for one in bench.env.take("store")) == [node(1).address, node(7).address]


def test_nodes_that_make_up_ever_nearer_ones_do_not_keep_a_lookup_for_ever() -> None:
    bench = Bench(1)
    done = Outcome()
    bench.machine.get("key", done)
    target, step = int.from_bytes(digest("key"), "big"), 0
    while asked := bench.env.take("find_value"):
        for one in asked:
            step += 1
            numbers = [target ^ (1 << 150 - step % 140) + 20 * step + entry for entry in range(20)]
            fake = [contact(number.to_bytes(20, "big"), node(1_000 * step + number % 997).address) for number in numbers]
            one.reply(entries(fake))
    assert done.results == [None]
    assert step <= ASKS


@pytest.mark.parametrize("answer", [entries([node(2)]) * 21, [(bytes(19), "198.51.100.1", 1)], [1], 5, {"value": []}, {}])
def test_an_answer_that_does_not_fit_is_no_answer(answer: Any) -> None:
    bench = Bench(1)
    done = Outcome()
    bench.machine.get("key", done)
    for _ in range(2):
        bench.env.take("find_value")[0].reply(answer)
    assert done.results == [None]
    assert bench.known == []


def test_a_value_that_no_store_could_have_brought_is_no_answer() -> None:
    bench = Bench(1)
    done = Outcome()
    bench.machine.get("key", done)
    for _ in range(2):
        bench.env.take("find_value")[0].reply({"value": bytes(VALUE_LIMIT)})
    assert done.results == [None]


def test_of_several_values_the_commonest_counts_and_equal_numbers_of_other_types_are_others() -> None:
    bench = Bench(1, 2, 3)
    done = Outcome()
    bench.machine.get("key", done)
    for one, value in zip(bench.env.take("find_value"), (True, 1, 1), strict=True):
        assert done.results == []
        one.reply({"value": value})
    assert done.results == [1] and type(done.results[0]) is int


def test_the_nearest_node_that_had_no_value_gets_it() -> None:
    bench = Bench(1, 2, 3)
    done = Outcome()
    bench.machine.get("key", done)
    first, second, third = bench.env.take("find_value")
    first.reply([])
    second.reply([])
    third.reply({"value": "value"})
    assert done.results == ["value"]
    [given] = bench.env.take("store")
    assert given.address == first.address
    assert read_call(given.content).value == "value"


def test_an_own_value_needs_nobody() -> None:
    bench = Bench(1)
    done = Outcome()
    bench.hear(store(node(1).id, digest("key"), False), node(1).address)
    bench.machine.get("key", done)
    assert done.results == [False]
    assert bench.env.asked == []


def test_without_contacts_nothing_is_stored_and_nothing_found() -> None:
    bench = Bench()
    done = Outcome()
    bench.machine.set("key", 1, done)
    bench.machine.get("key", done)
    assert done.results == [0, None]
    assert len(bench.machine.values) == 0


def test_calls_beyond_those_at_once_wait_and_beyond_those_are_refused() -> None:
    bench = Bench(1)
    done = Outcome()
    for _ in range(WALKS + WAITING):
        bench.machine.get("key", done)
    assert len(bench.env.asked) == WALKS
    with pytest.raises(UsageError, match="wait for some of them"):
        bench.machine.get("key", done)
    while asked := bench.env.take("find_value"):
        assert len(asked) <= WALKS
        for one in asked:
            one.reply([])
        bench.env.advance(0)
    assert len(done.results) == WALKS + WAITING
    assert bench.machine.walks == 0


# Storing, and handing over.


def test_a_value_is_kept_here_too_where_this_node_is_among_the_nearest() -> None:
    for key, here in ((node(0).id, True), (node(1 << 158).id, False)):
        bench = Bench(*(number + (1 << 158) for number in range(1, 4)), k=3)
        bench.machine._begin(lambda bench=bench, key=key: bench.machine._set(key, "value", Outcome()))  # type: ignore[misc]
        while asked := bench.env.take("find_node"):
            for one in asked:
                one.reply([])
        assert (key in bench.machine.values.kept) is here


def test_a_newcomer_is_handed_the_values_that_it_should_have_one_after_the_other() -> None:
    """Key 1 is nearest to this node, and of the others the newcomer, 8, is near enough; key 4 is node 4's to hand over."""
    bench = Bench(4, 16, 32, k=2)
    asker = node(4)
    for number in (1, 2, 4):
        bench.hear(store(asker.id, node(number).id, number), asker.address)
    bench.hear(ping(node(8).id), node(8).address)
    bench.env.take()[0].reply(node(8).id)
    handed = []
    while asked := bench.env.take():
        [one] = asked
        assert (one.address, one.name) == (node(8).address, "store")
        handed.append(read_call(one.content).value)
        one.reply(True)
    assert sorted(handed) == [1, 2]
    assert bench.machine.handovers.under_way == 0


def test_a_newcomer_that_is_farther_than_k_others_is_handed_nothing() -> None:
    bench = Bench(4, 16, k=2)
    bench.machine.values.put(node(1).id, 1, 0)
    bench.hear(ping(node(64).id), node(64).address)
    bench.env.take()[0].reply(node(64).id)
    assert bench.known == [4, 16, 64]
    assert bench.env.asked == []


def test_handing_over_ends_with_the_first_that_is_not_answered() -> None:
    bench = Bench()
    for number in (1, 2, 3):
        bench.machine.values.put(node(number).id, number, 0)
    bench.hear(ping(node(8).id), node(8).address)
    bench.env.take()[0].reply(node(8).id)
    bench.env.take("store")[0].fail()
    bench.env.take("store")[0].fail()
    assert bench.env.asked == []
    assert bench.machine.handovers.under_way == 0


def test_only_so_many_newcomers_are_handed_values_at_once() -> None:
    bench = Bench()
    bench.machine.values.put(node(1).id, 1, 0)
    for number in range(2 * HANDOVERS):
        new = node((1 << 100) + (number << 90))
        bench.hear(ping(new.id), new.address)
        bench.env.take("ping")[0].reply(new.id)
    assert len(bench.env.take("store")) == HANDOVERS


def test_while_no_handover_can_begin_a_newcomer_costs_no_look_at_the_values() -> None:
    bench = Bench()
    bench.machine.values.put(node(1).id, 1, 0)
    bench.machine.handovers.under_way = HANDOVERS
    del bench.machine.values.by_distance
    bench.hear(ping(node(8).id), node(8).address)
    bench.env.take()[0].reply(node(8).id)
    assert bench.known == [8] and bench.env.asked == []


def test_a_newcomer_is_handed_so_many_values_and_the_nearest_to_this_node_first() -> None:
    bench = Bench()
    for number in range(1, HANDED + 100):
        bench.machine.values.put(node(number).id, number, 0)
    handed = bench.machine.handovers.due(node(1 << 100))
    assert handed == [node(number).id for number in range(HANDED, 0, -1)]


def test_whose_answer_names_an_id_without_room_is_no_newcomer_whatever_it_claimed() -> None:
    bucket = range((1 << 100) + 10, (1 << 100) + 50)
    bench = Bench(*bucket)
    bench.machine.values.put(node(1).id, 1, 0)
    full = node((1 << 100) + 5)
    assert bench.machine.handovers.due(full) == [node(1).id]
    bench.hear(ping(node(8).id), full.address)
    bench.env.take("ping")[0].reply(full.id)
    assert bench.env.asked == [] and len(bench.known) == 20


def test_who_takes_an_id_without_room_is_no_longer_known_by_the_one_it_had() -> None:
    bucket = range((1 << 100) + 10, (1 << 100) + 50)
    bench = Bench(7, *bucket)
    bench.hear(ping(node(8).id), node(7).address)
    bench.env.take("ping")[0].reply(node((1 << 100) + 5).id)
    assert bench.known == [*bucket[:20]]


@given(
    st.lists(st.integers(1, 255), max_size=12, unique=True), st.lists(st.integers(0, 255), max_size=12, unique=True),
    st.integers(1, 255), st.integers(1, 4),
)  # fmt: skip
def test_a_value_is_handed_over_where_nobody_is_nearer_than_this_node_and_less_than_k_than_the_newcomer(
    known: list[int], keys: list[int], new: int, k: int
) -> None:
    bench = Bench(*(number for number in known if number != new), k=k)
    for number in keys:
        bench.machine.values.put(node(number).id, number, 0)
    others = [number for number in bench.known if number != new]
    due = [
        key for key in sorted(keys, reverse=True)
        if all(other ^ key > key for other in others) and sum(other ^ key < new ^ key for other in others) < k
    ]  # fmt: skip
    assert bench.machine.handovers.due(node(new)) == [node(key).id for key in due]


# What happens by itself.


def test_a_value_is_stored_again_after_an_hour_unless_another_node_did_so_and_is_forgotten_after_a_week() -> None:
    bench = Bench(1)
    bench.hear(store(node(1).id, digest("key"), 7), node(1).address)
    bench.env.advance(HOUR - SECOND)
    assert bench.env.take("store") == [] and bench.env.take("find_node") == []
    bench.hear(store(node(1).id, digest("key"), 7), node(1).address)
    bench.env.advance(HOUR // 2)
    assert [asked for asked in bench.env.take("find_node") if read_call(asked.content).key == digest("key")] == []
    again = Bench(1, refresh_every=1_000 * HOUR)
    again.hear(store(node(1).id, digest("key"), 7), node(1).address)
    again.env.advance(HOUR + 60 * SECOND)
    [asked] = again.env.take("find_node")
    asked.reply([])
    assert [one.address for one in again.env.take("store")] == [node(1).address]


def test_a_value_that_is_no_longer_near_is_passed_on_each_hour_and_not_more_often() -> None:
    bench = Bench((1 << 158) + 1, k=1, refresh_every=1_000 * HOUR)
    bench.machine.values.put(node(1 << 158).id, 7, 0)
    bench.env.advance(HOUR + 60 * SECOND)
    bench.env.take("find_node")[0].reply([])
    bench.env.take("store")[0].reply(True)
    bench.env.advance(HOUR - 120 * SECOND)
    assert bench.env.take("find_node") == []
    bench.env.advance(180 * SECOND)
    assert len(bench.env.take("find_node")) == 1


def test_a_value_that_nobody_renews_is_forgotten_after_its_life() -> None:
    bench = Bench()
    bench.hear(store(node(1).id, digest("key"), 7))
    bench.env.advance(bench.config.life - SECOND)
    assert bench.machine.values.get(digest("key"), bench.env.now()) == 7
    bench.env.advance(SECOND)
    assert bench.machine.values.get(digest("key"), bench.env.now()) is None
    bench.env.advance(bench.config.tick_every)
    assert len(bench.machine.values) == 0


def test_a_bucket_without_a_lookup_for_an_hour_is_looked_into() -> None:
    bench = Bench(1 << 100)
    bench.env.advance(HOUR + 60 * SECOND)
    [asked] = bench.env.take("find_node")
    assert int.from_bytes(read_call(asked.content).key, "big").bit_length() == 101
    asked.reply([])
    bench.env.advance(HOUR // 2)
    assert bench.env.take("find_node") == []


def test_the_longest_silent_are_asked_whether_they_live() -> None:
    bench = Bench(1)
    bench.env.advance(bench.config.tick_every)
    assert [(asked.name, asked.address) for asked in bench.env.take()] == [("ping", node(1).address)]


def test_a_node_that_lost_all_contacts_joins_again() -> None:
    place = ("198.51.100.7", 7)
    bench = Bench(bootstrap=[place])
    bench.env.advance(bench.config.tick_every)
    [asked] = bench.env.take()
    assert (asked.name, asked.address) == ("ping", place)
    asked.reply(node(7).id)
    assert bench.known == [7]


def test_a_node_that_stops_has_no_timer_left() -> None:
    bench = Bench(1)
    bench.machine.stop()
    assert bench.env.clock.waiting == 0


@pytest.mark.parametrize(
    "config",
    [
        *({"id": b"short"}, {"id": "a" * 20}, {"id": 5}, {"k": 0}, {"k": 65}, {"k": "x"}, {"alpha": 0}, {"patience": 0}),
        *({"patience": 0.5}, {"tries": 0}, {"tries": 11}, {"life": 0}, {"values": -1}, {"value_bytes": 0}),
    ],
)
def test_a_config_that_cannot_work_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="kademlia"):
        KademliaUdpConfig(**config)


def test_a_key_that_is_no_text_in_utf8_is_refused() -> None:
    with pytest.raises(UsageError, match="UTF-8"):
        digest("\ud800")
