"""What holds for every table, every shelf of values and every datagram."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libweft.overlays.kademlia_udp.config import KademliaUdpConfig
from libweft.overlays.kademlia_udp.machine import PROBES, KademliaUdp
from libweft.overlays.kademlia_udp.storage import Table, Values
from libweft.overlays.kademlia_udp.wire import Value, contact, encode, find_node, find_value, nodes, ping, read_call, store, stun
from libweft.peer.datagram import CONTENT_LIMIT, GARBAGE, UNASKED, Address
from libweft.peer.machine import SECOND
from libweft.peer.sim.datagram import SimDatagrams
from libweft.peer.sim.simulator import Simulator

K = 4
ids = st.one_of(st.binary(min_size=20, max_size=20), st.integers(0, 64).map(lambda number: number.to_bytes(20, "big")))
addresses: st.SearchStrategy[Address] = st.tuples(st.integers(1, 40).map(lambda number: f"198.51.100.{number}"), st.just(4_000))
values: st.SearchStrategy[Value] = st.one_of(
    st.integers(-(1 << 63), (1 << 64) - 1), st.floats(), st.booleans(), st.text(max_size=300), st.binary(max_size=300)
)


@given(values)
def test_every_value_has_the_bytes_of_the_package_both_ways(value: Value) -> None:
    theirs = pytest.importorskip("umsgpack")
    content = store(bytes(20), bytes(20), value)
    assert content == theirs.packb(["store", (bytes(20), bytes(20), value)])
    read, unpacked = read_call(content).value, theirs.unpackb(content)[1][2]
    assert type(read) is type(unpacked) is type(value)
    assert encode(read) == encode(unpacked) == encode(value)  # no NaN is equal to itself


@given(ids, st.lists(st.tuples(st.booleans(), ids, addresses), max_size=80), ids)
def test_a_table_is_bounded_has_one_contact_an_address_and_tells_the_exact_nearest(
    me: bytes, steps: list[tuple[bool, bytes, Address]], key: bytes
) -> None:
    table = Table(me, K)
    for adds, node, address in steps:
        if not adds:
            table.remove(address)
        elif node != me and table.get(node) is None:
            table.add(contact(node, address), 0)
    known = list(table)
    assert len({one.id for one in known}) == len({one.address for one in known}) == len(known) == len(table)
    assert all(len(bucket.contacts) <= K and len(bucket.spares) <= K for bucket in table.buckets.values())
    assert all(len(bucket.contacts) == K or not bucket.spares for bucket in table.buckets.values())
    shelves = [shelf for bucket in table.buckets.values() for shelf in (bucket.contacts, bucket.spares)]
    assert {one.address: one.id for shelf in shelves for one in shelf.values()} == table.ids
    number = int.from_bytes(key, "big")
    assert table.nearest(key, K) == sorted(known, key=lambda one: one.number ^ number)[:K]


@given(st.integers(1, 5), st.integers(0, 30))
def test_a_bucket_has_k_contacts_and_k_spares_however_many_come(k: int, count: int) -> None:
    table = Table(bytes(20), k)
    for number in range(count):
        silent = table.add(contact(((1 << 100) + number).to_bytes(20, "big"), ("198.51.100.1", number)), 0)
        assert (silent is not None) is (k <= number < 2 * k)
    assert len(table) == min(k, count)
    assert len(table.ids) == min(2 * k, count)


@given(ids, st.lists(st.tuples(ids, st.integers(0, 60), st.integers(0, 30)), max_size=60))
def test_values_are_bounded_and_what_is_kept_is_never_farther_than_what_was_refused(
    me: bytes, steps: list[tuple[bytes, int, int]]
) -> None:
    shelf, now = Values(me, 5, 200, 50, 100), 0
    for key, size, later in steps:
        now += later
        before = dict(shelf.kept)
        taken = shelf.put(key, bytes(size), now)
        assert len(shelf) <= 5 and shelf.bytes <= 200
        assert shelf.bytes == sum(kept.size for kept in shelf.kept.values())
        assert all(now - kept.since < 100 for kept in shelf.kept.values())
        assert sorted(shelf.kept) == sorted(key for _, key in shelf.by_distance)
        assert (shelf.get(key, now) == bytes(size)) or not taken
        gone = [old for old, kept in before.items() if old not in shelf.kept and kept.since > now - 100]
        assert taken or not gone
        assert all(shelf._place(old) > shelf._place(key) for old in gone)


def network() -> tuple[SimDatagrams[KademliaUdp], KademliaUdp]:
    """Two nodes that know each other."""
    sim = Simulator()
    net: SimDatagrams[KademliaUdp] = SimDatagrams(sim)
    config = KademliaUdpConfig(values=3)
    first = net.add(lambda env: KademliaUdp(env, config=config))
    second = net.add(lambda env: KademliaUdp(env, [first.me], config))
    second.machine.join(lambda _: None)
    sim.run(10 * SECOND)
    return net, second.machine


contents = st.one_of(
    st.binary(max_size=60),
    st.builds(store, ids, ids, values),
    st.builds(ping, ids),
    st.builds(find_node, ids, ids),
    st.builds(find_value, ids, ids),
    st.just(stun()),
    values.map(encode),
    st.recursive(values, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner)).map(encode),
)
datagrams = st.one_of(
    st.binary(max_size=60),
    st.builds(lambda kind, number, content: kind + number + content, st.sampled_from([b"\0", b"\1", b"\2"]), ids, contents),
    st.just(bytes(CONTENT_LIMIT + 22)),
)


@given(st.lists(st.tuples(addresses, datagrams), max_size=25))
def test_no_datagram_raises_and_each_is_answered_or_counted(heard: list[tuple[Address, bytes]]) -> None:
    net, machine = network()
    [_, node] = net.nodes.values()
    for sender, data in heard:
        before = Counter(node.counts), net.counts["sent"]
        node.take(sender, data)
        dropped = (node.counts - before[0]).total()
        assert dropped == 1 or net.counts["sent"] - before[1] in (1, 2)
        assert dropped == 0 or net.counts["sent"] == before[1]
    net.sim.run(net.sim.now + 20 * SECOND)
    assert set(node.counts) <= {GARBAGE, UNASKED}
    assert len(machine.table) == 1, "nobody who does not answer a ping"
    assert len(machine.values) <= 3 and not machine.probes and not node.pending and len(machine.probes) <= PROBES


@given(st.lists(contents, min_size=1, max_size=3), st.booleans())
def test_no_reply_raises_and_a_call_ends_whatever_comes(replies: list[bytes], gets: bool) -> None:
    net, machine = network()
    [_, node] = net.nodes.values()
    ended: list[object] = []
    other = next(iter(machine.table)).address
    net.crash(other)
    if gets:
        machine.get("key", ended.append)
    else:
        machine.set("key", 1, ended.append)
    for reply in replies:
        for number in list(node.pending):
            node.take(other, b"\1" + number + reply)
    net.sim.run(net.sim.now + 60 * SECOND)
    assert len(ended) == 1
    assert machine.walks == 0 and not node.pending


def test_an_answer_of_k_nodes_with_the_longest_addresses_fits_a_datagram() -> None:
    longest = contact(bytes(20), ("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255", 65_535))
    assert len(nodes([longest] * 64)) <= CONTENT_LIMIT
