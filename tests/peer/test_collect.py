"""Collected traces: what a round trip tells of a clock, what a peer holds, what a collector takes, and what it leaves out."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from libweft.peer.errors import PeerError, UsageError
from libweft.peer.libp2p.address import Address
from libweft.peer.libp2p.ids import Identity
from libweft.peer.live.collect import buffer as buffers
from libweft.peer.live.collect.buffer import Buffer
from libweft.peer.live.collect.clock import DRIFT, Clock, Offset
from libweft.peer.live.collect.collector import CollectConfig, Collector, collecting
from libweft.peer.live.collect.folder import Entry, Folder
from libweft.peer.live.collect.messages import (
    DEPENDENCIES,
    FRAME,
    FROM_COLLECTOR,
    FROM_PEER,
    PROTOCOL,
    REASON,
    ROWS,
    Ask,
    Batch,
    Hello,
    Taken,
    Told,
    pack_batch,
)
from libweft.peer.live.collect.peer_account import Account, Standing
from libweft.peer.live.collect.sender import Sender
from libweft.peer.live.collect.stream import FrameStream
from libweft.peer.live.host import Host, HostConfig, open_host
from libweft.peer.machine import SECOND, Lane, MessageId
from libweft.peer.trace.files import read_rows
from libweft.peer.trace.kinds import DELIVER, JOINED, PUBLISH, ROLE, SEND, Row, TraceError
from libweft.peer.trace.tables import node_key
from tests.peer.test_host import DEADLINE_S, FOUR
from tests.waiting import until

ME, OTHER = (Identity.from_seed(bytes(31) + bytes([n])).peer for n in (1, 2))
QUICK = CollectConfig(write_s=0.05, ask_s=0.05)


def row(t: int, kind: str = DELIVER, msg: MessageId | None = None, reason: str | None = None) -> Row:
    return (t, ME, kind, "news", msg, OTHER, 1, None, 10, Lane.PAYLOAD, reason, ())


def batch(number: int, *rows: Row, lost: int = 0) -> Batch:
    [read] = FROM_PEER.unpack(pack_batch(number, lost, rows or (row(number),)))
    assert isinstance(read, Batch)
    return read


def account(quota: int = 1 << 20) -> Account:
    """Of a peer whose clock is a second behind."""
    found = Account(ME, quota)
    found.clock.heard(2 * SECOND, SECOND, 2 * SECOND)
    found.greet(7)
    return found


# The clock.


delays = st.integers(0, 2 * SECOND)


@given(
    st.integers(-(10**15), 10**15),
    st.floats(-DRIFT, DRIFT),
    st.lists(st.tuples(st.integers(0, 30 * SECOND), delays, delays), min_size=1, max_size=20),
    st.integers(0, 60 * SECOND),
)
def test_the_truth_is_within_the_error_whatever_the_two_ways_take(
    offset: int, drift: float, trips: list[tuple[int, int, int]], later: int
) -> None:
    """`offset` is what the peer's clock lacks at time 0; from then on it drifts."""
    clock, now = Clock(), 0
    for pause, there, back in trips:
        asked = now + pause
        now = asked + there + back
        clock.heard(asked, asked + there - offset - round(drift * (asked + there)), now)
    now += later
    found = clock.now(now)
    assert found is not None
    assert abs(found.offset - (offset + drift * now)) <= found.error + 2


def test_the_shortest_round_trip_counts() -> None:
    clock = Clock()
    for there, back in ((90_000, 10), (100, 100), (10, 50_000)):
        clock.heard(0, there - 5 * SECOND, there + back)
    assert clock.now(0) == Offset(5 * SECOND, 101)


def test_an_estimate_ages_until_a_longer_round_trip_is_better() -> None:
    clock = Clock()
    clock.heard(0, 0, 100)
    long = 2_000
    clock.heard(SECOND, SECOND, SECOND + long)
    assert (found := clock.now(SECOND)) is not None and found.error < long // 2
    clock.heard(20 * SECOND, 20 * SECOND, 20 * SECOND + long)
    assert clock.now(20 * SECOND + long) == Offset(long // 2, long // 2 + 1)


def test_a_clock_that_was_stopped_is_believed_at_once() -> None:
    clock = Clock()
    clock.heard(0, 0, 10)
    clock.heard(SECOND, SECOND - 3_600 * SECOND, SECOND + 4_000)
    assert (found := clock.now(SECOND)) is not None and found.offset == 3_600 * SECOND + 2_000


# What a peer holds.


def fill(held: Buffer, *rows: Row) -> None:
    for one in rows:
        held.observe(*one)


def test_what_does_not_fit_is_dropped_and_counted_and_told() -> None:
    held = Buffer(rows=3)
    fill(held, *map(row, range(5)))
    assert (len(held), held.dropped) == (3, 2)
    first = held.after(0)
    assert first is not None and FROM_PEER.unpack(first.data) == (batch(1, *map(row, range(3)), lost=2),)
    fill(held, row(5))
    assert (len(held), held.dropped) == (3, 3), "what was packed still takes room"
    held.written(1)
    fill(held, row(6))
    second = held.after(1)
    assert second is not None and FROM_PEER.unpack(second.data) == (batch(2, row(6), lost=1),), "each loss is told once"


def test_a_batch_is_kept_until_it_is_written() -> None:
    held = Buffer()
    fill(held, row(1))
    first = held.after(0)
    fill(held, row(2))
    assert first is not None and held.after(0) is first and held.after(0) is first
    second = held.after(1)
    assert second is not None and second.number == 2 and held.after(2) is None
    held.written(1)
    assert held.after(0) is second
    held.written(2)
    assert len(held) == 0 and held.after(0) is None


def test_packed_bytes_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "BYTES", 1)
    held = Buffer(rows=2 * ROWS)
    fill(held, *map(row, range(2 * ROWS)))
    assert held.after(0) is not None and held.after(1) is None
    held.written(1)
    assert held.after(1) is not None


texts = st.text(max_size=2 * REASON)
ids = st.builds(MessageId, st.binary(max_size=40), st.integers(0, 1 << 40), st.integers(0, 1 << 24))
rows = st.builds(
    lambda t, kind, topic, msg, reason, deps: (t, ME, kind, topic, msg, OTHER, None, 1, 2, Lane.LAZY, reason, tuple(deps)),
    *(st.integers(0, 1 << 60), st.sampled_from([SEND, DELIVER, ROLE])),
    *(st.none() | st.text(max_size=1_024), st.none() | ids, st.none() | texts, st.lists(ids, max_size=DEPENDENCIES + 10)),
)


@given(st.lists(rows, max_size=60))
def test_any_rows_become_batches_that_a_collector_reads(emitted: list[Row]) -> None:
    held, number, read = Buffer(), 0, 0
    fill(held, *emitted)
    while (packed := held.after(number)) is not None:
        assert len(packed.data) <= FRAME
        [found] = FROM_PEER.unpack(packed.data)
        assert isinstance(found, Batch) and found.number == packed.number == number + 1
        for wire, whole in zip(found.rows, emitted[read : read + packed.rows], strict=True):
            again = wire.row(ME, wire.t)
            assert (
                again[:10] == whole[:10]
                and (again[10] or "") == (whole[10] or "")[:REASON]
                and again[11] == whole[11][:DEPENDENCIES]
            )
        number, read = packed.number, read + packed.rows
    assert read == len(emitted) and not held.dropped


def test_a_row_that_is_larger_than_a_frame_costs_itself_alone() -> None:
    huge = (1, ME, DELIVER, "x" * FRAME, None, None, None, None, None, None, None, ())
    held = Buffer()
    fill(held, row(1), huge, row(2))
    numbers: list[int] = []
    while (packed := held.after(numbers[-1] if numbers else 0)) is not None:
        numbers.append(packed.number)
    assert held.dropped == 1 and numbers == list(range(1, len(numbers) + 1)) and len(held) == 2


# What a collector takes.


def test_times_become_the_collectors() -> None:
    taken = account()
    taken.take(batch(1, row(5 * SECOND), row(6 * SECOND)), 10, 100 * SECOND)
    assert [one[:2] for one in taken.rows] == [(6 * SECOND, ME), (7 * SECOND, ME)]


def test_no_row_is_of_the_future_and_none_goes_back() -> None:
    taken = account()
    taken.take(batch(1, row(50 * SECOND), row(1 << 60)), 10, 51 * SECOND + 5)
    taken.clock.heard(60 * SECOND, 60 * SECOND, 60 * SECOND)  # its clock was set meanwhile
    taken.take(batch(2, row(49 * SECOND), row(60 * SECOND)), 10, 61 * SECOND)
    assert [one[0] for one in taken.rows] == [51 * SECOND, 51 * SECOND + 5, 51 * SECOND + 5, 60 * SECOND]


def test_rows_are_of_the_peer_that_sent_them() -> None:
    taken = account()
    foreign = (1, OTHER, JOINED, "news", None, None, None, None, None, None, None, ())
    taken.take(batch(1, foreign), 10, 9 * SECOND)
    assert [one[1] for one in taken.rows] == [ME]


@pytest.mark.parametrize("msg", [None, MessageId(OTHER, 1, 1)])
def test_a_publish_of_somebody_elses_message_is_refused(msg: MessageId | None) -> None:
    taken = account()
    with pytest.raises(PeerError, match="somebody else"):
        taken.take(batch(1, row(1), row(2, PUBLISH, msg)), 10, 9 * SECOND)
    assert not taken.rows and taken.standing.number == 0
    taken.take(batch(1, row(2, PUBLISH, MessageId(ME, 1, 1))), 10, 9 * SECOND)
    assert len(taken.rows) == 1


def test_a_batch_that_comes_again_is_passed_over() -> None:
    taken = account()
    for number in (1, 1, 2, 1, 5):
        taken.take(batch(number, lost=1), 10, 9 * SECOND)
    assert [one[0] for one in taken.rows] == [SECOND + 1, SECOND + 2, SECOND + 5]
    assert taken.standing == Standing(7, 5, 30, 3, 0, SECOND + 5)
    assert taken.greet(7) == 0, "nothing of it is written"
    taken.written = taken.standing
    assert (taken.greet(7), taken.greet(8)) == (5, 0)
    taken.take(batch(1), 10, 9 * SECOND)
    assert taken.rows[-1][0] == SECOND + 5 and taken.standing.number == 1, "a new start counts from one again"


def test_beyond_its_quota_a_peer_is_counted_and_not_kept() -> None:
    taken = account(quota=25)
    for number in range(1, 5):
        taken.take(batch(number, row(1), row(2)), 10, 9 * SECOND)
    assert len(taken.rows) == 4 and taken.standing[:5] == (7, 4, 20, 0, 4)


# The folder.


def entry(peer: bytes, number: int, *rows: Row) -> Entry:
    return Entry(peer, rows, Standing(7, number, 100 * number, 2, 0, rows[-1][0]), Offset(-5, 3))


def test_a_later_start_goes_on_where_the_last_one_was_killed(tmp_path: Path) -> None:
    first = Folder(tmp_path)
    first.write(10, [entry(ME, 1, row(1, PUBLISH, MessageId(ME, 1, 1))), entry(OTHER, 1, row(2))])
    first.write(20, [entry(ME, 2, row(3))])
    first.release()  # and no word to say that it is complete
    (tmp_path / ".rows-00002.parquet.tmp").write_bytes(b"half of")
    second = Folder(tmp_path)
    assert {peer: standing.number for peer, standing in second.standings.items()} == {ME: 2, OTHER: 1}
    second.write(30, [entry(OTHER, 2, row(4))])
    second.complete()
    second.release()
    assert read_rows(tmp_path)["t"].to_pylist() == [1, 2, 3, 4]
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert (manifest["status"], manifest["rows"], manifest["parts"]) == ("complete", 4, 3)
    assert len(manifest["clock_offsets"]) == len(manifest["lost"]) == 2
    clocks = pq.read_table(tmp_path / "clocks-00001.parquet").to_pylist()
    assert clocks == [{"node": node_key(ME), "t": 20, "offset": -5, "error": 3}]


def test_a_folder_has_one_collector_and_must_be_its_own(tmp_path: Path) -> None:
    first = Folder(tmp_path / "a")
    with pytest.raises(UsageError, match="another collector"):
        Folder(tmp_path / "a")
    first.release()
    Folder(tmp_path / "a").release()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "manifest.json").write_text('{"schema": 1}')
    with pytest.raises(UsageError, match="neither empty nor"):
        Folder(tmp_path / "b")
    (tmp_path / "a" / "rows-00000.parquet").write_bytes(b"nonsense")
    with pytest.raises(UsageError, match="no part of a collected trace"):
        Folder(tmp_path / "a")


# Both sides on loopback.


@asynccontextmanager
async def collector(folder: Path, config: CollectConfig = QUICK) -> AsyncIterator[tuple[Host, Collector]]:
    async with open_host(Identity.new(), listen=[FOUR]) as host, collecting(host, folder, config) as found:
        yield host, found


@asynccontextmanager
async def stranger(host: Host) -> AsyncIterator[tuple[Host, FrameStream]]:
    async with open_host(Identity.new()) as mine, await mine.open_stream(host.addresses[0], [PROTOCOL]) as stream:
        yield mine, FrameStream(stream, FROM_PEER, FROM_COLLECTOR)


async def heard(frames: FrameStream) -> int:
    """Answer until it says what was taken."""
    while True:
        found = await frames.next()
        assert found is not None
        if isinstance(found[0], Taken):
            return found[0].number
        assert isinstance(found[0], Ask)
        await frames.send(Told(found[0].number, 5))


@pytest.mark.live
async def test_a_batch_is_acknowledged_when_it_is_on_disk(tmp_path: Path) -> None:
    with trio.fail_after(DEADLINE_S):
        async with collector(tmp_path) as (host, _), stranger(host) as (mine, frames):
            await frames.send(Hello(7))
            assert await heard(frames) == 0
            await frames.send_packed([pack_batch(3, 0, [row(5)])])
            assert await heard(frames) == 3
            [found] = read_rows(tmp_path).to_pylist()
            assert found["node"] == node_key(mine.peer) and found["t"] > 10**15, "an hour before 1970 became now"


@pytest.mark.live
@pytest.mark.parametrize(
    "said",
    [
        [b"nonsense"],
        [b"\xc1" * (FRAME + 1)],
        [pack_batch(1, 0, [row(1)])],
        FROM_PEER.pack((Hello(1), Hello(1))),
        FROM_PEER.pack((Hello(1), Told(99, 1))),
        [*FROM_PEER.pack((Hello(1),)), pack_batch(1, 0, [row(1)])],
    ],
    ids=["nonsense", "a frame too large", "no greeting", "two greetings", "an answer to nothing", "a batch before its time"],
)
async def test_who_breaks_the_protocol_loses_its_link_and_nobody_else(tmp_path: Path, said: list[bytes]) -> None:
    with trio.fail_after(DEADLINE_S):
        async with collector(tmp_path) as (host, found), stranger(host) as (_, honest), stranger(host) as (bad, frames):
            await honest.send(Hello(7))
            await heard(honest)
            await frames.send_packed(said)
            await until(lambda: bad.peer not in host.links)
            await until(lambda: bad.peer not in found.accounts)
            await honest.send_packed([pack_batch(1, 0, [row(5)])])
            assert await heard(honest) == 1


@pytest.mark.live
@pytest.mark.parametrize("words", [[], [Hello(1)]], ids=["nothing at all", "no time"])
async def test_who_is_silent_loses_its_place(tmp_path: Path, words: list[Hello]) -> None:
    with trio.fail_after(DEADLINE_S):
        config = CollectConfig(write_s=0.05, answer_s=0.2)
        async with collector(tmp_path, config) as (host, found), stranger(host) as (mine, frames):
            for word in words:
                await frames.send(word)
            await until(lambda: mine.peer not in host.links and not found.accounts)


@pytest.mark.live
async def test_a_peer_more_than_there_may_be_is_refused(tmp_path: Path) -> None:
    with trio.fail_after(DEADLINE_S):
        async with collector(tmp_path, CollectConfig(write_s=0.05, peers=1)) as (host, _), stranger(host) as (_, frames):
            await frames.send(Hello(7))
            await heard(frames)
            async with stranger(host) as (_, other):
                with pytest.raises(trio.BrokenResourceError):
                    await other.next()


@pytest.mark.live
async def test_a_stream_is_not_read_while_too_much_waits_to_be_written(tmp_path: Path) -> None:
    config = CollectConfig(write_s=3_600, waiting_a_peer=1)
    with trio.fail_after(DEADLINE_S):
        async with collector(tmp_path, config) as (host, found), stranger(host) as (_, frames):
            most = 0
            write = found.write

            async def watched() -> None:
                nonlocal most
                most = max(most, found.waiting)
                await write()

            found.write = watched  # type: ignore[method-assign]
            await frames.send(Hello(7))
            await heard(frames)
            one = pack_batch(1, 0, [row(5)])
            await frames.send_packed([pack_batch(number, 0, [row(5)]) for number in range(1, 9)])
            while await heard(frames) < 8:
                pass
            assert most <= len(one), "though the time to write had not come"


@pytest.mark.live
async def test_a_folder_that_cannot_be_written_ends_the_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise TraceError("no space left")

    monkeypatch.setattr(Folder, "write", full)
    with trio.fail_after(DEADLINE_S), pytest.raises(TraceError):
        async with collector(tmp_path) as (host, _), stranger(host) as (_, frames):
            await frames.send(Hello(7))
            await heard(frames)
            await frames.send_packed([pack_batch(1, 0, [row(5)])])
            await trio.sleep_forever()


def holds_rows(collector: Collector) -> bool:
    return any(account.rows for account in collector.accounts.values())


@pytest.mark.live
async def test_what_was_under_way_when_the_collector_died_comes_once(tmp_path: Path) -> None:
    """It dies after each part, with no goodbye; another on the same port goes on with the folder."""
    identity, held, told = Identity.new(), Buffer(), 0
    async with trio.open_nursery() as nursery:
        with trio.fail_after(DEADLINE_S):
            async with open_host(Identity.new(), config=HostConfig(close_s=0.1)) as mine:
                listen = FOUR
                for life in range(3):
                    async with open_host(identity, listen=[listen], config=HostConfig(close_s=0.1)) as host:
                        listen = str(host.addresses[0].without_peer())
                        if not life:
                            address = Address.parse(str(host.addresses[0]))
                            nursery.start_soon(Sender(mine, address, held, 7, lambda: 5).run)
                        folder = Folder(tmp_path)
                        found = Collector(folder, QUICK)
                        host.handle(PROTOCOL, found.serve)
                        fill(held, *(row(told + n) for n in range(3_000)))
                        told += 3_000
                        await until(partial(holds_rows, found))
                        await found.write()
                        folder.release()
                async with open_host(identity, listen=[listen]) as host, collecting(host, tmp_path, QUICK):
                    await until(lambda: len(held) == 0)
        nursery.cancel_scope.cancel()
    assert read_rows(tmp_path).num_rows == told and held.dropped == 0
