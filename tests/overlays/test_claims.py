"""What a peer may say of another: the bounds, and that the largest messages made within them fit a frame."""

from __future__ import annotations

from typing import Any

import pytest

from libweft.overlays import xbot
from libweft.overlays.claims import ADDRESSES, ID, RECORD, TEXT, check_infos, told
from libweft.overlays.hyparview import messages as hyparview
from libweft.overlays.hyparview.config import LIST_LIMIT, HyParViewConfig
from libweft.overlays.hyparview.machine import HyParView
from libweft.overlays.vcube.config import VCubeConfig
from libweft.overlays.vcube.cube import DIMENSION, PLACES
from libweft.overlays.vcube.machine import VCube
from libweft.overlays.vcube.messages import COUNTER, LIST, Admitted, AreYouUp, Join, Member, News, Report, check
from libweft.overlays.xbot import XBot
from libweft.peer.codec import FRAME_LIMIT, msgpack
from libweft.peer.dispatch import ask, receive
from libweft.peer.errors import PeerError
from libweft.peer.fake.env import FakeEnv
from libweft.peer.machine import Message, PeerInfo

LETTERS = ("x", "\N{LATIN SMALL LETTER E WITH ACUTE}", "\N{SNOWMAN}", "\N{GRINNING FACE}")  # one to four bytes each
MOST = (1 << 64) - 1
ME = b"me"


def name(number: int) -> bytes:
    return b"%0*d" % (ID, number)


def fat(number: int, letter: str = LETTERS[-1]) -> PeerInfo:
    """The longest claim that is let in."""
    text = letter * (TEXT // len(letter.encode()))
    return PeerInfo(name(number), (text,) * ADDRESSES, bytes(RECORD))


def fat_member(place: int) -> Member:
    return Member(place, fat(place), COUNTER // 2)


@pytest.mark.parametrize("letter", LETTERS)
def test_an_address_is_measured_in_bytes(letter: str) -> None:
    check_infos(ME, (fat(1, letter),))
    text = fat(1, letter).addresses[0]
    for more in (letter, "x" * (1 + TEXT - len(text.encode()))):
        with pytest.raises(PeerError, match="longer ones"):
            check_infos(ME, (PeerInfo(name(1), (text + more,)),))


def vcube_s() -> list[Message]:
    members = tuple(fat_member(PLACES - 1 - number) for number in range(LIST))
    one = fat_member(PLACES - LIST - 1)
    check(ME, (one, *members[1:]))
    return [
        Join(one.info, one.counter, one), Admitted(one), AreYouUp(one, one, MOST, MOST, MOST),
        Report(one, members, MOST, MOST, True), News(members, DIMENSION),
    ]  # fmt: skip


def hyparview_s() -> list[Message]:
    infos, one, reason = tuple(map(fat, range(LIST_LIMIT + 1))), fat(LIST_LIMIT + 1), hyparview.MADE_ROOM
    check_infos(ME, (one, *infos))
    return [
        hyparview.Join(one, MOST), hyparview.ForwardJoin(one, MOST), hyparview.Neighbor(one, MOST, True),
        hyparview.NeighborReply(MOST, True), hyparview.Disconnect(True, reason), hyparview.Shuffle(one, MOST, infos, MOST),
        hyparview.ShuffleReply(MOST, infos), hyparview.KeepAlive(),
    ]  # fmt: skip


def xbot_s() -> list[Message]:
    return [
        *hyparview_s(), xbot.Optimization(fat(1), MOST, fat(2)), xbot.Replace(MOST, name(1), fat(2)),
        xbot.ReplaceReply(MOST, True), xbot.Switch(fat(1), MOST, name(2)), xbot.Probe(MOST), xbot.ProbeReply(MOST),
    ]  # fmt: skip


@pytest.mark.parametrize(("kind", "messages"), [(VCube, vcube_s()), (HyParView, hyparview_s()), (XBot, xbot_s())])
def test_the_largest_message_of_each_kind_fits_a_frame(kind: type[VCube | HyParView], messages: list[Message]) -> None:
    codec = msgpack(kind.kinds)
    assert {type(msg) for msg in messages} == {*kind.kinds}
    assert max(map(codec.size, messages)) < 0.6 * FRAME_LIMIT
    for msg in messages:
        assert list(codec.unpack(codec.pack([msg])[0])) == [msg]


def test_a_member_that_was_told_all_that_can_be_said_answers_a_newcomer() -> None:
    env = FakeEnv(me=ME)
    cube, codec = VCube(env, (), VCubeConfig()), msgpack(VCube.kinds)
    cube.start()
    for first in range(1, 3 * LIST, LIST):
        receive(cube, name(1), News(tuple(map(fat_member, range(first, first + LIST))), 0))
    since, more, heard = 0, True, 0
    while more:
        said: list[Any] = []
        ask(cube, b"newcomer", AreYouUp(Member(1 << 9, PeerInfo(b"newcomer"), 0), None, env.epoch, since, 1), said.append)
        (report,) = said
        codec.pack([report])
        since, more, heard = report.upto, report.more, heard + len(report.members)
    assert heard > 3 * LIST


def test_what_others_made_known_in_other_ways_is_handed_on_as_far_as_it_may_be_said() -> None:
    """An address of a signed record may have a thousand bytes, and as text several times as many."""
    env = FakeEnv(me=ME)
    short, long = "/ip4/192.0.2.1/tcp/1", "/ip4/192.0.2.1/tcp/1" + "/p2p-circuit" * 500
    env.learn(PeerInfo(name(1), (long, short, *(f"/ip4/192.0.2.2/tcp/{port}" for port in range(1, 40))), bytes(RECORD + 1)))
    info = told(env, name(1))
    check_infos(ME, (info,))
    assert info.addresses[0] == short and len(info.addresses) == ADDRESSES and info.record is None
    env.learn(fat(2))
    assert told(env, name(2)) == fat(2)
    assert told(env, name(3)) == PeerInfo(name(3))


@pytest.mark.parametrize("kind", [HyParView, XBot])
def test_whatever_a_node_knows_of_its_neighbours_it_introduces_them_within_the_bounds(kind: type[HyParView]) -> None:
    env = FakeEnv(me=ME)
    machine, codec = kind(env, ()), msgpack(kind.kinds)
    size = HyParViewConfig().active_size
    for number in range(size + 1):
        addresses = tuple(f"/ip4/192.0.2.1/tcp/{number}{port}" + "/p2p-circuit" * 500 for port in range(99))
        receive(machine, name(number), hyparview.Join(PeerInfo(name(number)), 1))
        env.learn(PeerInfo(name(number), addresses, bytes(2 * RECORD)))
    introduced = [msg for _, msg in env.take() if isinstance(msg, hyparview.ShuffleReply)]
    assert introduced
    for msg in introduced:
        codec.pack([msg])
        check_infos(ME, msg.peers)
