"""What a host does for those who mean well: addresses, families, private networks, streams of one's own, the marks."""

from __future__ import annotations

import secrets
import socket
import struct
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import pytest
import trio

from libweft.peer.errors import PeerError, UsageError, WeftError
from libweft.peer.libp2p.address import Address
from libweft.peer.libp2p.ids import Identity, peer_text
from libweft.peer.libp2p.records import read_record
from libweft.peer.live import identify
from libweft.peer.live.host import Host, HostConfig, open_host
from libweft.peer.live.link import LiveLink, Stream, StreamError
from libweft.peer.live.transport import DialError, secured
from tests.waiting import until

ECHO = "/test/echo/1.0.0"
FOUR, SIX = "/ip4/127.0.0.1/tcp/0", "/ip6/::1/tcp/0"
DEADLINE_S = 60


def host(listen: str | None = None, config: HostConfig | None = None) -> AbstractAsyncContextManager[Host]:
    return open_host(Identity.new(), listen=[listen] if listen else [], config=config)


async def echo(stream: Stream) -> None:
    while data := await stream.receive_some():
        await stream.send_all(data)


# Addresses.


@pytest.mark.live
@pytest.mark.parametrize("listen", [FOUR, SIX])
async def test_either_family_can_be_listened_on_and_dialled(listen: str) -> None:
    with trio.fail_after(DEADLINE_S):
        async with host(listen) as a, host() as b:
            (address,) = a.addresses
            assert address.port != 0 and address.peer == a.peer
            assert await b.ping(address) > 0
            assert b.links[a.peer].outbound and not a.links[b.peer].outbound


@pytest.mark.live
async def test_a_host_on_both_families_is_one_peer() -> None:
    with trio.fail_after(DEADLINE_S):
        async with open_host(Identity.new(), listen=[FOUR, SIX]) as a, host() as b:
            first, second = [await b.connect(address) for address in a.addresses]
            assert first is second and len(a.links) == 1


@pytest.mark.live
async def test_a_wildcard_stands_for_addresses_that_others_can_dial() -> None:
    with trio.fail_after(DEADLINE_S):
        async with host("/ip4/0.0.0.0/tcp/0") as a, host() as b:
            assert "0.0.0.0" not in {address.host for address in a.addresses}
            assert await b.ping(a.addresses[0]) > 0


class Nameless(trio.abc.HostnameResolver):
    """Knows no name. Where no server of names answers, a real one takes longer to say so than a dial may last."""

    async def getaddrinfo(self, *about: object) -> Any:
        await trio.lowlevel.checkpoint()
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def getnameinfo(self, *about: object) -> Any:
        raise NotImplementedError


@pytest.mark.live
async def test_of_several_addresses_one_that_works_is_enough() -> None:
    trio.socket.set_custom_hostname_resolver(Nameless())
    with trio.fail_after(DEADLINE_S):
        async with host(FOUR) as a, host() as b:
            dead = [Address.parse("/ip4/127.0.0.1/tcp/1"), Address.parse("/dns4/nowhere.invalid/tcp/1")]
            far = Address.parse("/ip4/192.0.2.1/tcp/9")  # an address that no packet reaches
            b.learn(a.peer, [*dead, far, a.addresses[0]])
            assert await b.ping(a.peer) > 0


@pytest.mark.live
async def test_a_name_is_resolved() -> None:
    with trio.fail_after(DEADLINE_S):
        async with host(FOUR) as a, host() as b:
            name = Address.parse(f"/dns4/localhost/tcp/{a.addresses[0].port}").with_peer(a.peer)
            assert await b.ping(name) > 0


@pytest.mark.live
async def test_what_was_tried_is_told_when_nothing_works() -> None:
    stranger = Identity.new().peer
    async with host() as b:
        with pytest.raises(DialError, match="no address"):
            await b.connect(stranger)
        with pytest.raises(DialError, match="refused"):
            await b.connect(Address.parse("/ip4/127.0.0.1/tcp/1").with_peer(stranger))
        with pytest.raises(DialError, match="only tcp"):
            await b.connect(Address.parse("/ip4/127.0.0.1/udp/1/quic-v1").with_peer(stranger))
        for wrong in ("/ip4/127.0.0.1/tcp/1", "127.0.0.1", "/ip4/1.2.3.4.5/tcp/1"):
            with pytest.raises(UsageError):
                await b.connect(wrong)
        with pytest.raises(UsageError, match="itself"):
            await b.connect(b.peer)
        assert b.counts["dials_failed"] == 3 and not b.links


@pytest.mark.live
async def test_a_port_that_is_taken_is_told_and_nothing_stays_open() -> None:
    async with host(FOUR) as a:
        taken = str(a.addresses[0].without_peer())
        with pytest.raises(UsageError, match="in use"):
            async with open_host(Identity.new(), listen=[SIX, taken]):
                pass


# Identify.


@pytest.mark.live
async def test_each_side_learns_protocols_addresses_and_the_signed_record_of_the_other() -> None:
    with trio.fail_after(DEADLINE_S):
        async with host(FOUR) as a, host(FOUR) as b:
            a.handle(ECHO, echo)
            link = await b.connect(a.addresses[0])
            assert ECHO in link.protocols
            await until(lambda: a.peer in b.known and b.peer in a.known and b.peer in a.links)
            record = a.known[b.peer].record
            assert record is not None and read_record(record).addresses == tuple(
                address.without_peer() for address in b.addresses
            )


@pytest.mark.live
async def test_a_peer_that_is_late_to_say_what_it_speaks_is_asked_again() -> None:
    """As one that stood still for a while; till it answers the link has no protocols."""
    with trio.fail_after(DEADLINE_S):
        async with host(FOUR) as a, host(config=HostConfig(identify_s=0.2)) as b:
            a.handle(ECHO, echo)
            answer, asked = a._answer_identify, list[Stream]()

            async def late(stream: Stream) -> None:
                asked.append(stream)
                if len(asked) == 1:
                    await trio.sleep_forever()
                await answer(stream)

            a.unhandle(identify.ID)
            a.handle(identify.ID, late)
            link = await b.connect(a.addresses[0])
            await until(lambda: ECHO in link.protocols)
            assert len(asked) > 1


@pytest.mark.live
async def test_a_protocol_that_comes_later_is_pushed() -> None:
    changes: list[tuple[str, ...]] = []

    class Watcher:
        def link_up(self, link: LiveLink) -> None: ...
        def link_down(self, link: LiveLink, reason: str) -> None: ...
        def protocols_changed(self, link: LiveLink, before: tuple[str, ...]) -> None:
            changes.append(before)

    with trio.fail_after(DEADLINE_S):
        async with host(FOUR) as a, host() as b:
            b.watchers.append(Watcher())
            link = await b.connect(a.addresses[0])
            await until(lambda: a.links[b.peer].told)
            a.handle(ECHO, echo)
            await until(lambda: ECHO in link.protocols)
            a.unhandle(ECHO)
            await until(lambda: ECHO not in link.protocols)
    assert len(changes) == 2


@pytest.mark.live
async def test_a_protocol_that_comes_after_the_peer_asked_and_before_its_link_is_told_is_pushed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def late(self: Host, stream: Stream) -> None:
        if self is b:
            await until(lambda: ECHO in a.protocols)
        await stream.send_all(self._description(stream.link))

    monkeypatch.setattr(Host, "_answer_identify", late)
    with trio.fail_after(DEADLINE_S):
        async with host(FOUR) as a, host() as b:
            link = await b.connect(a.addresses[0])
            assert not a.links[b.peer].told
            a.handle(ECHO, echo)
            await until(lambda: ECHO in link.protocols)


# Streams of one's own.


@pytest.mark.live
async def test_bytes_of_any_size_come_back_over_many_streams_at_once() -> None:
    async def ask(b: Host, address: Address, data: bytes) -> None:
        async with await b.open_stream(address, [ECHO]) as stream, trio.open_nursery() as nursery:
            nursery.start_soon(send, stream, data)
            heard = bytearray()
            while chunk := await stream.receive_some():
                heard += chunk
            assert heard == data

    async def send(stream: Stream, data: bytes) -> None:
        await stream.send_all(data)
        await stream.send_eof()

    with trio.fail_after(DEADLINE_S):
        async with host(FOUR) as a, host() as b:
            a.handle(ECHO, echo)
            async with trio.open_nursery() as nursery:
                for size in (0, 1, 1_000, 300_000, 2_000_000):
                    nursery.start_soon(ask, b, a.addresses[0], secrets.token_bytes(size))
            (link,) = b.links.values()
            await until(lambda: not link.streams and not a.links[b.peer].streams)


@pytest.mark.live
async def test_a_protocol_that_the_peer_does_not_speak_is_told_and_the_link_stays() -> None:
    with trio.fail_after(DEADLINE_S):
        async with host(FOUR) as a, host() as b:
            a.handle(ECHO, echo)
            with pytest.raises(StreamError):
                await b.open_stream(a.addresses[0], ["/test/none/1.0.0"])
            stream = await b.open_stream(a.peer, ["/test/none/1.0.0", ECHO])
            assert stream.protocol == ECHO
            await stream.aclose()
            with pytest.raises(UsageError, match="handler already"):
                a.handle(ECHO, echo)


@pytest.mark.live
async def test_a_handler_that_blames_the_peer_costs_its_link_and_one_that_breaks_its_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def blame(stream: Stream) -> None:
        raise PeerError("not like this")

    async def broken(stream: Stream) -> None:
        raise ZeroDivisionError

    with trio.fail_after(DEADLINE_S):
        async with host(FOUR) as a, host() as b:
            a.handle(ECHO, blame)
            with suppress(StreamError):  # the link may close before the answer to the proposal has left
                await b.open_stream(a.addresses[0], [ECHO])
            await until(lambda: not a.links and not b.links)
        async with host(FOUR) as a, host() as b:
            a.handle(ECHO, broken)
            stream = await b.open_stream(a.addresses[0], [ECHO])
            with pytest.raises(trio.BrokenResourceError):
                await stream.receive_some()
            assert await b.ping(a.peer) > 0
    assert "ZeroDivisionError" in caplog.text


# Private networks.


@pytest.mark.live
async def test_only_those_with_the_networks_key_reach_each_other() -> None:
    ours = HostConfig(psk=secrets.token_bytes(32), handshake_s=DEADLINE_S)
    theirs = HostConfig(psk=secrets.token_bytes(32), handshake_s=1)
    none = HostConfig(handshake_s=1)
    with trio.fail_after(DEADLINE_S):
        async with host(FOUR, ours) as a, host(None, ours) as friend, host(None, theirs) as stranger, host(None, none) as public:
            assert await friend.ping(a.addresses[0]) > 0
            for other in (stranger, public):
                with pytest.raises(WeftError):
                    await other.connect(a.addresses[0])
            assert list(a.links) == [friend.peer]


# The marks.


@pytest.mark.live
async def test_above_the_high_mark_the_longest_silent_links_go_and_protected_ones_stay() -> None:
    config = HostConfig(low_water=2, high_water=4, links=8, grace_s=0)
    with trio.fail_after(DEADLINE_S):
        async with host(FOUR, config) as a, trio.open_nursery() as nursery:
            others: list[Host] = []
            for number in range(5):
                ready = trio.Event()
                nursery.start_soon(_linked, a, others, ready)
                await ready.wait()
                await until(lambda count=number: told(a, others[count]))  # type: ignore[misc]
                if number == 0:
                    a.protect(others[0].peer)
            await until(lambda: len(a.links) <= 2)
            assert others[0].peer in a.links and others[1].peer not in a.links
            nursery.cancel_scope.cancel()


def told(a: Host, other: Host) -> bool:
    """Whether all that the other says at first has been heard: then it falls silent."""
    return other.peer in a.links and a.links[other.peer].told


async def _linked(a: Host, others: list[Host], ready: trio.Event) -> None:
    async with host() as other:
        others.append(other)
        await other.connect(a.addresses[0])
        ready.set()
        await trio.sleep_forever()


def test_marks_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="low_water"):
        HostConfig(low_water=10, high_water=5)


async def test_a_host_remembers_only_so_many_peers() -> None:
    async with host(None, HostConfig(remembered=3)) as a:
        peers = [Identity.new().peer for _ in range(5)]
        for peer in peers:
            a.learn(peer, [Address.parse("/ip4/127.0.0.1/tcp/1")] * 40)
        assert list(a.known) == peers[2:]
        assert peer_text(peers[4]) not in {str(address) for address in a.known[peers[4]].addresses}


# Mistakes, and what comes after the end.


@pytest.mark.live
async def test_what_makes_no_sense_is_told_at_the_call_and_the_host_lives() -> None:
    with trio.fail_after(DEADLINE_S):
        async with host(FOUR) as a, host() as b:
            for target in (None, 5, 1.5):
                with pytest.raises(UsageError):
                    await b.connect(target)  # type: ignore[arg-type]
            for name in (5, "", "no-slash", "/\ud800", "/x" * 500):
                with pytest.raises(UsageError):
                    a.handle(name, echo)  # type: ignore[arg-type]
            with pytest.raises(UsageError):
                await b.open_stream(a.addresses[0], ECHO)
            with pytest.raises(UsageError):
                async with open_host(Identity.new(), listen=FOUR):
                    pass
            for _ in range(300):
                with pytest.raises(WeftError):
                    await b.open_stream(a.addresses[0], [""])
            assert await b.ping(a.addresses[0]) > 0
            (link,) = b.links.values()
            stream = await b.open_stream(a.peer, ["/ipfs/ping/1.0.0"])
            with pytest.raises(UsageError):
                await stream.receive_some(0)
            await stream.aclose()
            with pytest.raises(trio.ClosedResourceError):
                await stream.receive_some()
        with pytest.raises(UsageError, match="closed"):
            await b.connect(a.peer)
        assert link.reason is not None


@pytest.mark.parametrize(
    "wrong", [{"dial_s": -1}, {"psk": b"short"}, {"psk": "x" * 32}, {"allow": "12D3"}, {"deny": ["12D3KooW"]}, {"idle_s": 0}]
)
def test_a_config_that_makes_no_sense_is_refused(wrong: dict) -> None:
    with pytest.raises(UsageError):
        HostConfig(**wrong)


@pytest.mark.live
async def test_where_somebody_else_answers_the_next_address_is_tried() -> None:
    with trio.fail_after(DEADLINE_S):
        async with host(FOUR) as a, host(FOUR) as other, host() as b:
            b.learn(a.peer, [other.addresses[0], a.addresses[0]])
            assert await b.ping(a.peer) > 0
            assert b.known[a.peer].addresses[0] == a.addresses[0].without_peer()


async def test_hearsay_pushes_out_neither_what_worked_nor_who_is_held() -> None:
    async with host(None, HostConfig(remembered=3)) as a:
        held, place = Identity.new().peer, Address.parse("/ip4/127.0.0.1/tcp/1")
        a.learn(held, [place])
        a.protect(held)
        a.learn(held, [Address.parse(f"/ip4/127.0.0.1/tcp/{port}") for port in range(2, 40)], hearsay=True)
        for _ in range(5):
            a.learn(Identity.new().peer, [place], hearsay=True)
        assert a.known[held].addresses[0] == place and len(a.known) == 3


@pytest.mark.live
async def test_connections_reset_in_the_handshake_leave_the_host_up() -> None:
    with trio.fail_after(DEADLINE_S):
        async with host(FOUR) as a, host() as b:
            for _ in range(200):
                sock = socket.create_connection((a.addresses[0].host, a.addresses[0].port))
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.sendall(b"\x13/multistream/1.0.0\n\x07/noise\n")
                await trio.lowlevel.checkpoint()
                sock.close()
            assert await b.ping(a.addresses[0]) > 0


@pytest.mark.live
async def test_a_link_that_comes_up_when_the_host_has_closed_is_closed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = trio.Event()

    async def slow(*args: Any, **kwargs: Any) -> Any:
        done = await secured(*args, **kwargs)
        await gate.wait()
        return done

    monkeypatch.setattr("libweft.peer.live.host.secured", slow)
    with trio.fail_after(DEADLINE_S):
        async with host(FOUR) as a, host() as b, trio.open_nursery() as nursery:

            async def connect() -> None:
                with suppress(DialError):
                    await b.connect(a.addresses[0])

            nursery.start_soon(connect)
            await until(lambda: a.handshakes == 1)
            await a.close()
            gate.set()
            await until(lambda: a.handshakes == 0)
            await until(lambda: not a.links and not b.links)
