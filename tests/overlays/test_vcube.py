"""VCube by hand, on a fake wire, in the simulator and live: places, tests, crashes, wrong suspicions, claims and growth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from libweft.overlays.vcube import machine
from libweft.overlays.vcube.config import VCubeConfig
from libweft.overlays.vcube.cube import DIMENSION, PLACES, places, to_set
from libweft.overlays.vcube.machine import VCube
from libweft.overlays.vcube.members import Census, Founders, Roll
from libweft.overlays.vcube.messages import COUNTER, LIST, NEVER, Admitted, AreYouUp, Join, Member, News, Report, check
from libweft.peer.codec import msgpack
from libweft.peer.dispatch import ask, receive
from libweft.peer.errors import PeerError, Refused, UsageError
from libweft.peer.fake.env import FakeEnv
from libweft.peer.fake.wire import FakeWire
from libweft.peer.machine import MS, SECOND, Build, Machine, Message, Peer, PeerInfo
from libweft.peer.sim.latency import Constant, Uniform
from libweft.peer.sim.simulator import Simulator
from tests.peer.live_world import LiveWorld
from tests.waiting import until

CONFIG = VCubeConfig()
PAPER = VCubeConfig(announce=False, patience=100 * MS, tries=1)  # events by test replies alone
ME = 5


class Crowd:
    def __init__(self) -> None:
        self.heard: list[tuple[str, Peer | None]] = []

    def member_up(self, peer: Peer) -> None:
        self.heard.append(("up", peer))

    def member_down(self, peer: Peer) -> None:
        self.heard.append(("down", peer))

    def member_gone(self, peer: Peer) -> None:
        self.heard.append(("gone", peer))

    def placed(self) -> None:
        self.heard.append(("placed", None))

    def doubted(self) -> None:
        self.heard.append(("doubted", None))


def member(index: int, peer: Peer | None = None, counter: int = 0) -> Member:
    return Member(index, PeerInfo(index if peer is None else peer), counter)


def founder(nodes: int = 8, me: int = ME, config: VCubeConfig = CONFIG) -> tuple[VCube, FakeEnv, Crowd]:
    env, crowd = FakeEnv(me=me), Crowd()
    cube = VCube(env, Founders(nodes), config)
    cube.crowd.append(crowd)
    cube.start()
    return cube, env, crowd


def newcomer(*contacts: Peer, me: Peer = ME) -> tuple[VCube, FakeEnv, Crowd]:
    env, crowd = FakeEnv(me=me), Crowd()
    cube = VCube(env, contacts)
    cube.crowd.append(crowd)
    cube.start()
    return cube, env, crowd


def answer(cube: VCube, sender: Peer, msg: Message) -> Any:
    said: list[Message] = []
    ask(cube, sender, msg, said.append)
    (reply,) = said
    return reply


def a_test(tester: Member, yours: Member | None = None, since: int = 0, epoch: int = NEVER, digest: int = 0) -> AreYouUp:
    return AreYouUp(tester, yours, epoch, since, digest)


def told(env: FakeEnv) -> list[tuple[Peer, Message]]:
    return [(peer, msg) for peer, msg in env.take() if isinstance(msg, News)]


def test_all_that_a_node_has_is_in_its_slots() -> None:
    cube, _, _ = founder()
    assert vars(cube) == {}


# The roll.


def test_the_newer_state_wins_and_of_two_claims_the_lower_peer() -> None:
    assert member(1, 7, 2).beats(member(1, 3, 0))
    assert member(1, 3, 2).beats(member(1, 7, 2))
    assert not member(1, 3, 2).beats(member(1, 3, 2))


def test_of_an_empty_place_one_that_is_down_says_nothing() -> None:
    roll = Roll()
    assert roll.merge(member(1, counter=3)) == []
    assert roll.known == 0


def test_a_peer_that_turns_up_at_another_place_has_left_the_one_before() -> None:
    roll = Roll()
    roll.merge(member(1, 9))
    changes = roll.merge(member(2, 9, 2))
    assert [change.now for change in changes] == [member(1, 9, 1), member(2, 9, 2)]
    assert (roll.where, roll.up) == ({9: 2}, 1 << 2)
    assert roll.merge(member(3, 9, 0)) == []


@given(st.permutations([member(i % 4, i % 6, n) for i, n in enumerate([0, 0, 2, 0, 3, 2, 1, 4, 4, 2, 6, 5])]))
def test_rolls_that_saw_the_same_agree_on_who_is_up_and_on_the_digest(several: list[Member]) -> None:
    """Of members whose peers stay where they are; one that moves is settled by its own next word."""
    still = [m for m in several if m.peer == m.index]
    one, other = Roll(), Roll()
    for m in [*still, *still]:
        one.merge(m)
    for m in [*reversed(still), *still]:
        other.merge(m)
    assert (one.members, one.up, one.digest) == (other.members, other.up, other.digest)


def test_who_asks_again_is_told_what_is_new_in_pages() -> None:
    roll = Roll()
    for index in range(2 * LIST + 5):
        roll.merge(member(index))
    page, upto, more = roll.since(0)
    assert ([m.index for m in page], more) == (list(range(LIST)), True)
    page, upto, more = roll.since(upto)
    assert ([m.index for m in page], more) == (list(range(LIST, 2 * LIST)), True)
    page, upto, more = roll.since(upto)
    assert ([m.index for m in page], more) == (list(range(2 * LIST, 2 * LIST + 5)), False)
    roll.merge(member(3, counter=1))
    assert roll.since(upto) == ((member(3, counter=1),), upto + 1, False)


# Places.


def test_who_has_no_contacts_begins_the_cube_at_place_0() -> None:
    cube, _, crowd = newcomer()
    assert (cube.index, cube.ready, crowd.heard) == (0, True, [("placed", None)])


def test_a_founder_has_the_place_of_its_number_and_the_first_of_each_cluster_as_neighbours() -> None:
    cube, env, _ = founder(8)
    assert (cube.index, list(cube.neighbors), list(env.holds)) == (5, [4, 7, 1], [4, 7, 1])


def test_only_simulated_nodes_have_places_by_order() -> None:
    with pytest.raises(UsageError, match="live nodes join"):
        VCube(FakeEnv(me=b"live"), Founders(4))
    with pytest.raises(UsageError, match="more than the"):
        Founders(PLACES + 1)


def test_a_newcomer_asks_its_contact_pulls_the_roll_and_is_a_member_then() -> None:
    cube, env, crowd = newcomer(1)
    (asked,) = env.take_requests()
    assert (asked.peer, asked.msg) == (1, Join(PeerInfo(ME), 0, None))
    asked.reply(Admitted(member(2, ME)))
    assert (cube.index, cube.ready) == (2, False)
    (test,) = env.take_requests()
    assert isinstance(test.msg, AreYouUp) and test.peer == 1
    test.reply(Report(member(0, 1), (member(3, 8),), 1, 2, False))
    assert cube.ready and crowd.heard == [("placed", None)]
    assert list(cube.neighbors) == [8, 1]
    assert told(env) == [(8, News((member(2, ME),), 0)), (1, News((member(2, ME),), 1))]


def test_a_newcomer_whose_admitter_goes_before_it_told_the_members_asks_another() -> None:
    cube, env, _ = newcomer(1, 2)
    env.take_requests()[0].reply(Admitted(member(2, ME)))
    for _ in range(CONFIG.tries):
        env.take_requests()[0].fail("timeout")
    assert cube.index is None and cube.roll.members == {}
    env.advance(SECOND)
    assert env.take_requests()[0].peer == 2


def test_a_newcomer_to_whom_a_contact_answers_what_no_member_says_asks_another() -> None:
    _, env, _ = newcomer(1, 2)
    with pytest.raises(PeerError):
        env.take_requests()[0].reply(Admitted(member(PLACES, ME)))
    env.advance(SECOND)
    (asked,) = env.take_requests()
    assert (asked.peer, type(asked.msg)) == (2, Join)


@pytest.mark.parametrize("wrong", [Report(member(0, 3), (), 1, 2, False), Report(member(0, 1), (member(-1),), 1, 2, False)])
def test_a_newcomer_whose_admitter_reports_what_no_member_says_asks_another(wrong: Report) -> None:
    cube, env, _ = newcomer(1, 2)
    env.take_requests()[0].reply(Admitted(member(2, ME)))
    with pytest.raises(PeerError):
        env.take_requests()[0].reply(wrong)
    assert cube.index is None and cube.roll.members == {}
    env.advance(SECOND)
    (asked,) = env.take_requests()
    assert (asked.peer, type(asked.msg)) == (2, Join)
    asked.reply(Admitted(member(3, ME)))
    env.take_requests()[0].reply(Report(member(0, 2), (), 1, 2, False))
    assert cube.ready and cube.index == 3


@pytest.mark.parametrize("answers", [True, False])
def test_who_is_admitted_again_while_all_its_tests_are_under_way_gets_ready(
    monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    monkeypatch.setattr(machine, "TESTS", 1)
    cube, env, _ = founder(8, config=VCubeConfig(tries=1, round_every=10**15))
    cube.suspect(7)
    (test,) = env.take_requests()
    receive(cube, 4, News((member(ME, 3, 2),), 0))
    (asked,) = env.take_requests()
    asked.reply(Admitted(member(9, ME, 4)))
    assert env.take_requests() == [] and not cube.ready
    if not answers:
        test.fail("timeout")
        env.advance(SECOND)
        env.take_requests()[0].reply(Admitted(member(9, ME, 4)))
        (test,) = env.take_requests()
    test.reply(Report(member(0, test.peer), (), 1, 2, False))
    assert cube.ready


def test_a_member_gives_the_empty_place_nearest_to_its_own() -> None:
    cube, _, _ = founder(6)
    assert answer(cube, 20, Join(PeerInfo(20), 0, None)) == Admitted(member(7, 20))
    assert answer(cube, 21, Join(PeerInfo(21), 0, None)) == Admitted(member(6, 21))


def test_a_full_cube_grows() -> None:
    cube, _, _ = founder(8)
    assert answer(cube, 20, Join(PeerInfo(20), 0, None)) == Admitted(member(13, 20))
    assert cube.dimension == 4


def test_the_largest_cube_refuses() -> None:
    cube, _, _ = founder(8)
    cube.roll.known = (1 << PLACES) - 1
    with pytest.raises(Refused, match="full"):
        answer(cube, 20, Join(PeerInfo(20), 0, None))


def test_a_place_is_used_again_only_when_its_owner_has_been_gone_for_a_while() -> None:
    cube, env, _ = founder(8, config=VCubeConfig(round_every=10**15))
    receive(cube, 4, News((member(3, counter=1),), 0))
    assert answer(cube, 20, Join(PeerInfo(20), 0, None)).member.index == 13
    for newcomer in range(21, 28):
        assert answer(cube, newcomer, Join(PeerInfo(newcomer), 0, None)).member.index >= 8
    env.advance(CONFIG.reuse_after)
    assert answer(cube, 30, Join(PeerInfo(30), 0, None)) == Admitted(member(3, 30, 2))


def test_who_was_a_member_gets_its_place_again_with_a_higher_counter() -> None:
    cube, _, crowd = founder(8)
    receive(cube, 4, News((member(3, counter=1),), 0))
    assert answer(cube, 3, Join(PeerInfo(3), 0, None)) == Admitted(member(3, counter=2))
    assert answer(cube, 3, Join(PeerInfo(3), 0, None)) == Admitted(member(3, counter=4))  # it restarted before anybody saw it
    assert crowd.heard == [("placed", None), ("down", 3), ("up", 3), ("up", 3)]


def test_of_two_that_claim_a_place_the_higher_peer_gives_way_and_asks_again() -> None:
    cube, env, _ = newcomer(1)
    env.take_requests()[0].reply(Admitted(member(2, ME)))
    env.take_requests()[0].reply(Report(member(0, 1), (), 1, 2, False))
    receive(cube, 1, News((member(2, 9),), 0))  # a higher peer id: nothing to us
    assert cube.index == 2
    receive(cube, 1, News((member(2, 4),), 0))
    assert not cube.ready and not cube.neighbors
    asked = env.take_requests()[-1]
    assert isinstance(asked.msg, Join)
    assert (asked.peer, asked.msg.lost, asked.msg.counter) == (1, member(2, 4), 2)
    asked.reply(Admitted(member(3, ME, 2)))
    assert (cube.index, cube.counter) == (3, 2)


def test_an_admitter_hears_with_the_ask_who_has_the_place_that_was_lost() -> None:
    cube, _, _ = founder(6)
    answer(cube, 20, Join(PeerInfo(20), 0, None))
    again = answer(cube, 20, Join(PeerInfo(20), 2, member(7, 10)))
    assert again == Admitted(member(6, 20, 2))
    assert cube.roll.members[7] == member(7, 10)


def test_nodes_that_all_have_contacts_and_nobody_to_admit_them_begin_a_cube() -> None:
    wire = FakeWire()
    for contacts in ((1,), (0,), (1, 0)):
        wire.add(building(contacts))
    wire.run(60 * SECOND)
    cubes = [cube_of(node.machines) for node in wire.nodes]
    assert sorted(cube.index for cube in cubes if cube.index is not None) == [0, 1, 2]
    assert len({cube.roll.up for cube in cubes}) == 1


# Tests.


def test_a_round_tests_one_cluster_and_log_n_rounds_all() -> None:
    _, env, _ = founder(8)
    env.advance(3 * SECOND)
    assert sorted(request.peer for request in env.take_requests()) == [1, 4, 7]


def test_who_does_not_answer_twice_is_down_and_the_members_are_told() -> None:
    cube, env, crowd = founder(8)
    cube.suspect(7)
    (request,) = env.take_requests()
    request.fail("timeout")
    assert crowd.heard == [("placed", None)]
    (request,) = env.take_requests()
    request.fail("timeout")
    assert crowd.heard[1:] == [("down", 7)]
    assert cube.roll.members[7] == member(7, counter=1)
    assert told(env) == [(peer, News((member(7, counter=1),), height)) for height, peer in enumerate((4, 6, 1))]
    assert list(cube.neighbors) == [4, 1, 6]


def test_the_paper_s_own_way_tells_only_by_replies() -> None:
    cube, env, _ = founder(8, config=PAPER)
    cube.suspect(7)
    env.take_requests()[0].fail("timeout")
    assert told(env) == []
    report = answer(cube, 1, a_test(member(1), since=8, epoch=env.epoch))
    assert report == Report(member(ME), (member(7, counter=1),), env.epoch, 9, False)


def test_one_that_knows_the_same_is_told_nothing() -> None:
    cube, _, _ = founder(8)
    assert answer(cube, 1, a_test(member(1), digest=cube.roll.digest)).members == ()
    assert len(answer(cube, 1, a_test(member(1))).members) == 8


def test_who_hears_that_it_is_down_raises_its_counter_and_says_so() -> None:
    cube, env, _ = founder(8)
    receive(cube, 4, News((member(ME, counter=1),), 0))
    assert cube.counter == 2
    assert told(env)[0] == (4, News((member(ME, counter=2),), 0))
    report = answer(cube, 1, a_test(member(1), yours=member(ME, counter=3)))
    assert report.me == member(ME, counter=4)


def test_a_dead_owner_of_its_place_is_no_reason_to_leave_it() -> None:
    cube, _, _ = founder(8)
    receive(cube, 4, News((member(ME, 77, 3),), 0))
    assert (cube.index, cube.counter) == (ME, 4)


@pytest.mark.parametrize("below", range(1, 7))
def test_whoever_owns_a_place_beats_what_is_said_of_it_while_there_is_a_counter_above_and_then_leaves_it(below: int) -> None:
    cube, env, _ = founder(8)
    lie = member(ME, counter=COUNTER - below)
    receive(cube, 4, News((lie,), 0))
    if below == 1:
        (asked,) = env.take_requests()
        assert (cube.index, asked.msg) == (None, Join(PeerInfo(ME), 2, lie))
        return
    assert cube.index == ME and cube.own().up
    assert cube.own() == lie or cube.own().beats(lie)
    check(ME, (cube.own(),))


def test_who_leaves_a_place_that_is_worn_gets_another_and_nobody_that_one_while_it_is_known() -> None:
    cube, env, _ = founder(4, me=0, config=VCubeConfig(round_every=10**15))
    for m in (member(3, counter=COUNTER - 1), member(2, counter=COUNTER - 3)):
        receive(cube, 1, News((m,), 0))
    moved = answer(cube, 3, Join(PeerInfo(3), 2, member(3, counter=COUNTER - 1))).member
    assert moved == member(4, 3, 2) and cube.roll.of(3) == moved
    assert answer(cube, 2, Join(PeerInfo(2), 0, None)).member == member(2, counter=COUNTER - 2)
    env.advance(CONFIG.reuse_after)
    given = [answer(cube, peer, Join(PeerInfo(peer), 0, None)).member.index for peer in range(20, 24)]
    assert sorted(given) == [5, 6, 7, 8]


def test_a_place_that_is_had_again_is_not_forgotten_with_whoever_had_it_before() -> None:
    cube, env, crowd = newcomer(1)
    env.take_requests()[0].reply(Admitted(member(2, ME)))
    env.take_requests()[0].reply(Report(member(0, 1), (), 1, 2, False))
    receive(cube, 1, News((member(2, 4),), 0))
    receive(cube, 1, News((member(2, 4, 1),), 0))
    env.take_requests()[-1].reply(Admitted(member(2, ME, 2)))
    env.take_requests()[-1].reply(Report(member(0, 1), (), 1, 2, False))
    env.advance(CONFIG.forget_after + 2 * CONFIG.round_every)
    assert cube.roll.of(ME) == member(2, ME, 2) and ("gone", ME) not in crowd.heard


def test_a_broken_link_to_a_neighbour_is_looked_into() -> None:
    cube, env, _ = founder(8)
    cube.link_down(7, 1, "reset")
    cube.link_down(3, 1, "reset")
    assert [request.peer for request in env.take_requests()] == [7]


def test_who_is_down_for_long_is_forgotten_and_its_place_empty() -> None:
    cube, env, crowd = founder(8)
    receive(cube, 4, News((member(3, counter=1),), 0))
    env.advance(CONFIG.forget_after + 2 * SECOND)
    assert 3 not in cube.roll.members and ("gone", 3) in crowd.heard


def test_news_go_on_only_if_they_are_news() -> None:
    cube, env, _ = founder(8)
    news = News((member(2, counter=1), member(1)), 2)
    receive(cube, 1, news)
    assert told(env) == [(4, News((member(2, counter=1),), 0)), (7, News((member(2, counter=1),), 1))]
    receive(cube, 1, news)
    assert told(env) == []


def test_who_stops_says_so() -> None:
    cube, env, _ = founder(8)
    cube.stop()
    assert [(peer, msg.members) for peer, msg in told(env)] == [(p, (member(ME, counter=1),)) for p in (4, 7, 1)]  # type: ignore[attr-defined]


def test_an_oracle_tests_nobody_and_shares_one_roll() -> None:
    census = Census(8)
    one, other = VCube(FakeEnv(me=1), census), VCube(FakeEnv(me=2), census)
    one.start()
    assert one.roll is other.roll and one.ready
    assert one.env.clock.waiting == 0  # type: ignore[attr-defined]


# The border.


@pytest.mark.parametrize(
    "msg",
    [
        News((member(PLACES),), 0),
        News((member(-1),), 0),
        News((member(1, counter=COUNTER),), 0),
        News((member(1, counter=-1),), 0),
        News((member(1, b"bytes"),), 0),
        News((member(1),) * (LIST + 1), 0),
        News((member(1, counter=2),), DIMENSION + 1),
    ],
)
def test_what_no_member_says_is_its_sender_s_fault(msg: News) -> None:
    cube, _, _ = founder(8)
    with pytest.raises(PeerError):
        receive(cube, 1, msg)


@pytest.mark.parametrize(
    "msg",
    [
        Join(PeerInfo(2), 0, None),
        Join(PeerInfo(1), -1, None),
        Join(PeerInfo(1), 0, member(PLACES)),
        a_test(member(2)),
        a_test(member(1, counter=1)),
        a_test(member(1), yours=member(ME, counter=COUNTER)),
    ],
)
def test_a_request_in_another_s_name_or_out_of_bounds_is_its_sender_s_fault(msg: Message) -> None:
    cube, _, _ = founder(8)
    with pytest.raises(PeerError):
        answer(cube, 1, msg)


def test_a_peer_that_never_ends_its_report_is_not_asked_for_ever() -> None:
    cube, env, _ = founder(8)
    cube.suspect(7)
    for _ in range(10 * PLACES // LIST):
        requests = env.take_requests()
        if not requests:
            return
        requests[0].reply(Report(member(7), (), 1, 1, True))
    pytest.fail("it asks on and on")


def test_every_message_passes_the_codec() -> None:
    codec = msgpack(VCube.kinds)
    info = PeerInfo(b"p" * 38, ("/ip4/1.2.3.4/tcp/1",), b"record")
    full = tuple(Member(index, info, 2) for index in range(LIST))
    said = [Join(info, 2, full[0]), Admitted(full[0]), AreYouUp(full[0], None, NEVER, 0, 1 << 63), News(full, 3)]
    for msg in [*said, Report(full[0], full, 1, 2, True)]:
        assert list(codec.unpack(codec.pack([msg])[0])) == [msg]
    check(b"me", full)


# Whole cubes.


def cube_of(machines: Sequence[Machine]) -> VCube:
    (cube,) = (machine for machine in machines if isinstance(machine, VCube))
    return cube


def building(contacts: Sequence[Peer], config: VCubeConfig = CONFIG) -> Build:
    return lambda env: [VCube(env(), contacts, config)]


def live_cubes(sim: Simulator) -> list[VCube]:
    return [cube_of(node.machines) for node in sim.nodes.values() if node.up]


def rounds_until_known(nodes: int, crashes: int, seed: int) -> int:
    """Until all that are up know which are, in rounds; the crashes are at once, and any nodes'."""
    sim, founders = Simulator(seed, Constant(ms=1.0)), Founders(nodes)
    for _ in range(nodes):
        sim.add(building(founders, PAPER))
    sim.run(Random(seed).randrange(3 * SECOND))
    dead = Random(seed).sample(range(nodes), crashes)
    for node in dead:
        sim.crash(node, "test")
    truth = to_set(range(nodes)) & ~to_set(dead)
    for rounds in range(4 * nodes):
        if all(cube.roll.up == truth for cube in live_cubes(sim)):
            return rounds
        sim.run(sim.now + SECOND)
    pytest.fail("they never come to know")


@given(st.integers(2, 64), st.integers(0, 1 << 30), st.data())
@settings(max_examples=12, deadline=None)
def test_all_know_of_any_crashes_within_log2_n_squared_rounds(nodes: int, seed: int, data: st.DataObject) -> None:
    crashes = data.draw(st.integers(0, nodes - 1))
    log = (nodes - 1).bit_length()
    assert rounds_until_known(nodes, crashes, seed) <= max(2, log * log)


@pytest.mark.slow
@pytest.mark.parametrize("crashes", [1, 256, 1_000])
def test_in_a_cube_of_1024_too(crashes: int) -> None:
    assert rounds_until_known(1_024, crashes, crashes) <= 100


def agreed(cubes: Sequence[VCube]) -> bool:
    """All are members, at places of their own, and know exactly each other."""
    if not all(cube.ready for cube in cubes) or len({cube.index for cube in cubes}) < len(cubes):
        return False
    up = {cube.index: cube.env.me for cube in cubes}
    return all({index: cube.roll.peer(index) for index in places(cube.roll.up)} == up for cube in cubes)


def settle(sim: Simulator, seconds: int) -> None:
    until = sim.now + seconds * SECOND
    while not agreed(live_cubes(sim)):
        assert sim.now < until, "they do not agree"
        sim.run(sim.now + SECOND)


CONTACTS: dict[str, Callable[[int, Random], tuple[int, ...]]] = {
    "the first": lambda number, rng: (0,) if number else (),
    "any earlier one": lambda number, rng: (rng.randrange(number),) if number else (),
    "one another, the first too": lambda number, rng: tuple({(number + 1) % 20, rng.randrange(20)} - {number}),
}


@pytest.mark.parametrize("way", CONTACTS)
def test_all_that_join_at_once_have_places_of_their_own(way: str) -> None:
    sim, rng = Simulator(7, Uniform(), codec=True), Random(7)
    for number in range(20):
        sim.add(building(CONTACTS[way](number, rng)))
    settle(sim, 120)


def test_who_crashes_and_restarts_without_state_has_its_place_again() -> None:
    sim = Simulator(3, Uniform())
    for number in range(12):
        sim.add(building((0,) if number else ()))
    settle(sim, 30)
    before = {cube.env.me: cube.index for cube in live_cubes(sim)}
    for node in (3, 7):
        sim.restart(node, down=40 * SECOND, state=False)
    settle(sim, 39)
    assert len(live_cubes(sim)) == 10
    sim.run(sim.now + 40 * SECOND)
    settle(sim, 60)
    assert {cube.env.me: cube.index for cube in live_cubes(sim)} == before


def test_who_was_wrongly_suspected_comes_back_by_itself() -> None:
    sim, founders = Simulator(5, Uniform()), Founders(16)
    for _ in range(16):
        sim.add(building(founders))
    sim.run(2 * SECOND)
    accuser = cube_of(sim.nodes[3].machines)
    accuser._tell([accuser.roll.members[9].down()])
    sim.run(sim.now + 200 * MS)
    assert any(not cube.roll.up >> 9 & 1 for cube in live_cubes(sim))
    settle(sim, 20)
    assert cube_of(sim.nodes[9].machines).counter == 2


LIES = {
    "it is down": lambda counter: member(ME, counter=counter),
    "a lower peer has its place": lambda counter: member(ME, 3, counter),
    "a higher peer, which there is not, has its place": lambda counter: member(ME, 70, counter),
    "it has a lower place": lambda counter: member(2, ME, counter),
    "it has a higher place": lambda counter: member(6, ME, counter),
    "it has a place that was empty": lambda counter: member(11, ME, counter),
}


@pytest.mark.parametrize("knows", [False, True])
def test_no_lie_leaves_one_without_contacts_without_a_place(knows: bool) -> None:
    """Alone, or with a member that is dead by now."""
    env = FakeEnv(me=5)
    cube = VCube(env, ())
    cube.start()
    if knows:
        receive(cube, 3, News((Member(1, PeerInfo(3), 0),), 0))
    receive(cube, 99, News((Member(0, PeerInfo(5), COUNTER - 1),), 0))
    for _ in range(100):
        for request in env.take_requests():
            request.fail("no way there")
        env.advance(SECOND)
    assert cube.index is not None and cube.ready
    said: list[Message] = []
    ask(cube, 7, Join(PeerInfo(7), 0, None), said.append)
    assert isinstance(said[0], Admitted)


@pytest.mark.parametrize("below", range(1, 7))
@pytest.mark.parametrize("what", LIES)
def test_no_lie_takes_a_node_out_of_the_cube_for_good(what: str, below: int) -> None:
    """Told twice, of all places that the node has, and at any counter up to the last."""
    sim, founders = Simulator(1, Constant(ms=1.0)), Founders(8)
    for _ in range(8):
        sim.add(building(founders, VCubeConfig(tries=1, patience=100 * MS)))
    lie = LIES[what](COUNTER - below)
    for at in (10, 60):
        sim.at(at * SECOND, lambda: receive(cube_of(sim.nodes[1].machines), 2, News((lie,), DIMENSION)))
    sim.run(120 * SECOND)
    cubes = live_cubes(sim)
    places = {cube.index for cube in cubes}
    assert all(cube.ready for cube in cubes) and len(places) == 8
    for cube in cubes:
        assert [other.env.me for other in cubes if cube.roll.of(other.env.me) != other.own()] == []
        assert cube.roll.up == to_set(place for place in places if place is not None)
        assert cube.env.me not in cube.neighbors


def test_cubes_that_came_apart_are_one_again() -> None:
    """Two begin a cube each; somebody who knows both brings them together, and places taken twice are settled."""
    sim = Simulator(9, Uniform())
    for contacts in ((), (), (0,), (1,), (0,), (1,), (0, 1)):
        sim.add(building(contacts))
    settle(sim, 120)


@pytest.mark.live
async def test_live_nodes_join_crash_and_are_missed() -> None:
    async with trio.open_nursery() as nursery:
        world = LiveWorld(nursery)
        peers = [world.add(building((world.peer(0),) if number else ())) for number in range(6)]

        def cubes() -> list[VCube]:
            return [cube_of(world.machines(peer)) for peer in peers]

        await until(lambda: agreed(cubes()))
        world.crash(peers.pop(4))
        await until(lambda: agreed(cubes()))
        world.close()
        nursery.cancel_scope.cancel()


def test_who_hears_that_it_was_taken_for_down_tells_those_above() -> None:
    cube, _, crowd = founder(8)
    receive(cube, 1, News((member(ME, counter=1),), 0))
    assert cube.counter == 2 and crowd.heard[1:] == [("doubted", None)]


# The way to a key.


@given(st.integers(2, 100), st.binary(max_size=8), st.integers(0, 1 << 30))
@settings(max_examples=60)
def test_from_any_node_the_way_ends_at_one_root_within_log2_n_steps(nodes: int, key: bytes, seed: int) -> None:
    """Some are down, and all know it."""
    down = Random(seed).sample(range(nodes), Random(seed).randrange(nodes - 1))
    cubes = {me: VCube(FakeEnv(me=me), Founders(nodes)) for me in range(nodes) if me not in down}
    for cube in cubes.values():
        for gone in down:
            cube.roll.put(member(gone, counter=1))
    roots = set()
    for me in cubes:
        at, steps = me, 0
        while (hop := cubes[at].next_hop(key)) is not None:
            assert isinstance(hop, int)
            at, steps = hop, steps + 1
        roots.add(at)
        assert steps <= (nodes - 1).bit_length()
    assert len(roots) == 1


def test_keys_are_spread_over_the_members() -> None:
    cube, _, _ = founder(nodes=8, me=0)
    assert sum(cube.next_hop(b"%d" % key) is None for key in range(800)) == pytest.approx(100, abs=40)


def test_who_asks_for_the_way_hears_when_it_may_be_another() -> None:
    cube, _, _ = founder()
    heard: list[None] = []
    cube.rerouted.append(lambda: heard.append(None))
    receive(cube, 1, News((member(7, counter=1),), 0))
    assert len(heard) == 1
    receive(cube, 1, News((member(7, counter=1),), 0))
    assert len(heard) == 1
    newcomer = VCube(FakeEnv(me=9), (1,))
    newcomer.start()
    assert not newcomer.can_route and cube.can_route
