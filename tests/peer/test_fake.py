"""The fakes that users test their machines with: what is recorded, in which order things happen, and what a fault costs."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libweft.peer.dispatch import ask, receive
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.fake.env import FakeEnv, Traced
from libweft.peer.fake.wire import FakeWire
from libweft.peer.machine import MS, SECOND, Env, Lane, Link, Machine, Message, Peer, PeerInfo, Reply, upon
from tests.peer.small_machines import Answer, Keeper, Note, Oracle, Question, keepers, oracle


class Rumour(Message, frozen=True, tag=1):
    lane: ClassVar[Lane] = Lane.LAZY

    text: bytes


class Burst(Message, frozen=True, tag=2):
    text: bytes


class Talker(Machine):
    """Keeps a log of its upcalls; answers a burst that says `again` with the same, and breaks at `break`."""

    protocols = ("/test/talker",)

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.log: list[tuple[object, ...]] = []

    def start(self) -> None:
        self.log.append(("start",))

    def stop(self) -> None:
        self.env.send(1, Burst(b"last words"))

    def link_up(self, peer: Peer, link: Link) -> None:
        self.log.append(("up", peer))

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        self.log.append(("down", peer, incarnation, reason))

    def drained(self, peer: Peer) -> None:
        self.log.append(("drained", peer, self.env.backlog(peer)))

    def dropped(self, peer: Peer, msg: Message) -> None:
        self.log.append(("dropped", peer, msg))

    @upon(Rumour)
    def on_rumour(self, sender: Peer, msg: Rumour) -> None:
        self.log.append(("rumour", sender))

    @upon(Burst)
    def on_burst(self, sender: Peer, msg: Burst) -> None:
        self.log.append(("burst", sender, msg.text))
        if msg.text == b"again":
            self.env.send(sender, msg)
        elif msg.text == b"break":
            raise ZeroDivisionError


def talkers(wire: FakeWire, count: int = 2) -> list[Talker]:
    for _ in range(count):
        wire.add(lambda env: [Talker(env())])
    machines = [node.machines[0] for node in wire.nodes]
    return [machine for machine in machines if isinstance(machine, Talker)]


def is_env(env: Env) -> Env:
    """Checked by mypy: the fake has all that the contract asks for."""
    return env


# FakeEnv


def test_it_is_an_env() -> None:
    env = is_env(FakeEnv(me=b"peer", epoch=7))
    assert (env.me, env.epoch, env.now(), env.tracing) == (b"peer", 7, 0, True)


def test_the_same_seed_gives_the_same_chance() -> None:
    draws = [FakeEnv(seed=seed).rng.random() for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


def test_what_is_sent_is_recorded_until_taken() -> None:
    env = FakeEnv()
    env.send(1, Note("one"))
    env.send_all((2, 3, 4), Note("all"), 3)
    assert env.take() == [(1, Note("one")), (2, Note("all")), (4, Note("all"))]
    assert env.take() == env.sent == []


def test_holds_infos_backlog_and_store_are_kept() -> None:
    env = FakeEnv()
    env.connect(2)
    env.connect(1)
    env.disconnect(2)
    env.disconnect(9)
    env.learn(PeerInfo(4, ("somewhere",)))
    env.backlogs[1] = 99
    env.store["index"] = b"1"
    assert list(env.holds) == [1]
    assert (env.info(4), env.info(5)) == (PeerInfo(4, ("somewhere",)), PeerInfo(5))
    assert (env.backlog(1), env.backlog(2), env.store["index"]) == (99, 0, b"1")


def test_traces_hold_the_time() -> None:
    env = FakeEnv()
    env.advance(5)
    env.trace("join", topic="news")
    assert env.take_traced() == [Traced(5, "join", "news")]
    assert env.traced == []


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(0, 9))
def test_timers_fire_in_exact_order_of_time_and_sequence(delays: list[int], us: int) -> None:
    env, fired = FakeEnv(), list[tuple[int, int]]()
    for sequence, delay in enumerate(delays):
        env.after(delay, lambda *key: fired.append(key), delay, sequence)
    env.advance(us)
    assert fired == sorted((delay, sequence) for sequence, delay in enumerate(delays) if delay <= us)
    assert env.now() == us
    assert env.clock.waiting == len(delays) - len(fired)


def test_a_timer_sees_its_own_time_and_one_it_sets_fires_in_the_same_advance() -> None:
    env, seen = FakeEnv(), list[int]()

    def again() -> None:
        seen.append(env.now())
        env.after(3, again)

    env.after(3, again)
    env.advance(10)
    assert seen == [3, 6, 9]
    assert env.clock.due == 12


def test_a_cancelled_timer_does_not_fire_and_cancelling_late_or_twice_is_nothing() -> None:
    env, fired = FakeEnv(), list[str]()
    cancelled, done = env.after(1, fired.append, "no"), env.after(1, fired.append, "yes")
    cancelled.cancel()
    env.advance(1)
    cancelled.cancel()
    done.cancel()
    assert fired == ["yes"]
    assert env.clock.due is None


def test_a_timer_in_the_past_is_a_mistake() -> None:
    with pytest.raises(UsageError):
        FakeEnv().after(-1, print)


def test_a_recorded_request_is_settled_once() -> None:
    machine = Oracle(env := FakeEnv())
    machine.ask(1, 4)
    machine.ask(2, 5)
    first, second = env.take_requests()
    assert (first.peer, first.msg, first.timeout) == (1, Question(4), SECOND)
    first.reply(Answer(8))
    first.fail("too late")
    env.advance(SECOND)
    second.reply(Answer(10))
    assert machine.heard == [(1, Answer(8))]
    assert machine.failed == [(2, "timeout")]
    assert env.clock.waiting == 0


def test_receive_and_ask_find_the_handler_and_blame_the_sender_of_what_has_none() -> None:
    keeper, replies = Keeper(FakeEnv(), "/test"), list[Message]()
    receive(keeper, 3, Note("hi"))
    ask(Oracle(FakeEnv()), 3, Question(4), replies.append)
    assert (keeper.notes, replies) == ([(3, "hi")], [Answer(8)])
    with pytest.raises(PeerError):
        receive(keeper, 3, Question(1))
    with pytest.raises(PeerError):
        ask(keeper, 3, Question(1), replies.append)


def test_a_second_reply_is_a_mistake() -> None:
    replies: list[Reply] = []

    class Twice(Oracle):
        answerers: ClassVar = {Question: lambda self, sender, msg, reply: replies.append(reply)}

    ask(Twice(FakeEnv()), 1, Question(4), lambda msg: None)
    replies[0](Answer(1))
    with pytest.raises(UsageError):
        replies[0](Answer(1))


# FakeWire


@pytest.mark.parametrize("codec", [False, True])
def test_nothing_happens_inside_a_call_and_steps_go_in_order(codec: bool) -> None:
    wire = FakeWire(codec=codec)
    one, two = talkers(wire)
    one.env.send(1, Burst(b"x"))
    assert (one.log, two.log) == ([("start",)], [("start",)])
    assert one.env.backlog(1) == len(b"\x92\x02\xc4\x01x")
    assert wire.step()
    assert (one.log[1:], two.log[1:]) == ([("up", 1)], [("up", 0)])
    assert wire.step() and not wire.step()
    assert two.log[2:] == [("burst", 0, b"x")]
    assert one.log[2:] == [("drained", 1, 0)]


def test_connect_makes_a_link_that_no_machine_holds() -> None:
    wire = FakeWire()
    one, two = talkers(wire)
    wire.connect(0, 1)
    wire.run()
    assert (one.log[1:], two.log[1:]) == ([("up", 1)], [("up", 0)])
    assert wire.nodes[0].holders(1) == []


def test_a_cut_loses_what_is_on_its_way_and_the_next_message_dials_anew() -> None:
    wire = FakeWire()
    one, two = talkers(wire)
    wire.connect(0, 1)
    wire.run()
    one.env.send(1, Burst(b"lost"))
    wire.cut(0, 1)
    one.env.send(1, Burst(b"found"))
    wire.run()
    assert two.log[1:] == [("up", 0), ("down", 0, 1, "cut"), ("up", 0), ("burst", 0, b"found")]
    assert one.env.backlog(1) == 0


def test_a_stop_closes_the_links_after_the_last_words() -> None:
    wire = FakeWire()
    _, two = talkers(wire)
    wire.connect(0, 1)
    wire.run()
    wire.stop(0)
    wire.run()
    assert two.log[2:] == [("burst", 0, b"last words"), ("down", 0, 1, "closed")]
    two.env.send(0, Rumour(b"anybody?"))
    wire.run()
    assert two.log[4:] == [("down", 0, 0, "no such peer, or it is down"), ("dropped", 0, Rumour(b"anybody?"))]


def test_timers_of_a_crashed_node_do_not_fire() -> None:
    wire, fired = FakeWire(), list[str]()
    one, two = talkers(wire)
    one.env.after(SECOND, fired.append, "one")
    two.env.after(SECOND, fired.append, "two")
    wire.crash(0)
    wire.run(SECOND)
    assert fired == ["two"]
    assert wire.now == SECOND


@pytest.mark.parametrize("codec", [False, True])
def test_a_peer_error_is_recorded_and_what_else_that_peer_sent_is_not_looked_at(codec: bool) -> None:
    wire = FakeWire(codec=codec)
    a, b = wire.add(keepers({})), wire.add(keepers({}))
    sender, victim = (wire.nodes[node].machines[0] for node in (a, b))
    assert isinstance(victim, Keeper)
    for text in ("good", "poison", "after"):
        sender.env.send(b, Note(text))
    wire.run()
    assert [(node, peer, str(error)) for node, peer, error in wire.errors] == [(b, a, "poison")]
    assert victim.notes == [(a, "good")]
    assert len(victim.downs) == 1


def test_a_kind_that_a_machine_does_not_take_is_the_senders_fault() -> None:
    wire = FakeWire()
    one, two = talkers(wire)
    one.env.send(1, Note("not of this protocol"))
    wire.run()
    assert [(node, peer) for node, peer, _ in wire.errors] == [(1, 0)]
    assert [entry[0] for entry in two.log] == ["start", "up", "down"]


def test_a_message_to_a_peer_without_the_protocol_is_dropped_and_a_request_fails() -> None:
    wire = FakeWire()
    [one] = talkers(wire, 1)
    asker = Oracle(one.env)
    wire.add(keepers({}))
    one.env.send(1, Burst(b"x"))
    asker.ask(1, 4)
    wire.run()
    assert one.log[1:] == [("dropped", 1, Burst(b"x"))]
    assert asker.failed == [(1, "no link")]


def test_a_frame_that_does_not_fit_is_the_senders_fault() -> None:
    wire = FakeWire(codec=True)
    one, _ = talkers(wire)
    one.env.send(1, Answer(3))
    wire.run()
    assert [(node, peer) for node, peer, _ in wire.errors] == [(1, 0)]


def test_an_error_of_the_machine_itself_is_loud() -> None:
    wire = FakeWire()
    one, _ = talkers(wire)
    one.env.send(1, Burst(b"break"))
    with pytest.raises(ZeroDivisionError):
        wire.run()


def test_a_full_outbox_drops_what_is_lazy_and_else_costs_the_link() -> None:
    wire = FakeWire(limit=100)
    one, two = talkers(wire)
    wire.connect(0, 1)
    wire.run()
    lazy, urgent = Rumour(b"x" * 60), Burst(b"y" * 60)
    for msg in (lazy, lazy):
        one.env.send(1, msg)
    wire.run()
    assert ("dropped", 1, lazy) in one.log and two.log.count(("rumour", 0)) == 1
    one.env.send(1, lazy)
    one.env.send(1, urgent)
    wire.run()
    assert two.log[-1] == ("down", 0, 1, "the outbox is full")


def test_two_machines_that_never_rest_are_a_mistake() -> None:
    wire = FakeWire()
    one, _ = talkers(wire)
    one.env.send(1, Burst(b"again"))
    with pytest.raises(UsageError, match="no rest"):
        wire.run()


def test_a_build_that_asks_for_too_many_envs_is_a_mistake() -> None:
    with pytest.raises(UsageError):
        FakeWire().add(lambda env: [Talker(env()), Talker(env())][1:])


def test_a_reply_over_a_link_that_was_cut_is_not_heard() -> None:
    wire = FakeWire()
    a, b = wire.add(oracle), wire.add(oracle)
    asker = wire.nodes[a].machines[0]
    assert isinstance(asker, Oracle)
    asker.ask(b, 3)
    wire.run(MS)
    wire.cut(a, b)
    wire.run(SECOND)
    assert (asker.heard, asker.failed) == ([], [(b, "cut")])


def test_two_runs_are_the_same() -> None:
    def run() -> list[list[float]]:
        wire = FakeWire(seed=5)
        return [[talker.env.rng.random() for _ in range(3)] for talker in talkers(wire)]

    first, second = run(), run()
    assert first == second and first[0] != first[1]
