"""Links: the first words on one, what each version understands, what is left when it goes, and who is not listened to at all."""

from __future__ import annotations

import pytest

from libweft.peer.errors import PeerError, UsageError
from libweft.peer.libp2p.pb import rpc_pb2
from libweft.peer.machine import SECOND, Link
from libweft.peer.trace.kinds import REJECT
from libweft.pubsub.gossipsub.filters import CHANGES, Blacklist, allow_list, matching
from libweft.pubsub.gossipsub.messages import Extensions, Graft, IDontWant, IHave, IWant, Prune, Pruned, Test
from libweft.pubsub.gossipsub.router import LETTERS, LEVELS, TOLD, GossipSub
from libweft.pubsub.gossipsub.wire import MeshCodec
from libweft.pubsub.interests import Filter
from libweft.pubsub.message import Publication, Verdict
from libweft.pubsub.router import TOPIC
from libweft.pubsub.rpc import Subscriptions
from tests.pubsub.gossipsub.world import FLOODSUB, V10, V11, V12, V13, Node, message

EVERYTHING = (
    message(),
    Subscriptions(((True, "t"),)),
    IHave((("t", (b"1",)),)),
    IWant((b"1",)),
    IDontWant((b"1",)),
    Graft(("t",)),
    Prune((Pruned("t"),)),
    Extensions(),
    Test(),
)


# The first words.


def test_a_new_link_is_told_all_topics_in_one_message() -> None:
    node = Node("a", "b", "c")
    node.router.link_up(1, Link(1, True, V12))
    assert node.env.take() == [(1, Subscriptions(((True, "a"), (True, "b"), (True, "c"))))]


def test_many_topics_are_told_in_several_messages() -> None:
    node = Node(*(f"{number}" for number in range(TOLD + 1)))
    node.router.link_up(1, Link(1, True, V12))
    assert [len(each.changes) for each in node.said(Subscriptions, 1)] == [TOLD, 1]


def test_where_there_is_nothing_to_say_nothing_is_said() -> None:
    node = Node()
    node.router.link_up(1, Link(1, True, V13))
    assert node.env.take() == []


def test_a_later_subscription_and_its_end_are_told_to_all() -> None:
    node = Node()
    node.up(1, 2, topics=())
    node.router.join("t")
    node.router.leave("t")
    said = [Subscriptions(((True, "t"),)), Subscriptions(((False, "t"),))]
    assert [node.said(Subscriptions, peer) for peer in (1, 2)] == [said, said]


def test_all_topics_of_a_peer_together_have_so_many_letters() -> None:
    """Five thousand of the longest would take twenty megabytes a link."""
    node = Node()
    node.up(1, topics=())
    longest = [f"{number}".ljust(TOPIC, "x") for number in range(LETTERS // TOPIC + 10)]
    for topic in longest:
        node.hear(1, Subscriptions(((True, topic), (True, "y" * TOPIC))))
    party = node.router.parties[1]
    assert sum(map(len, party.topics)) == party.letters == LETTERS
    node.hear(1, Subscriptions(((False, longest[0]),)), Subscriptions(((True, longest[-1]),)))
    assert longest[-1] in party.topics and longest[0] not in party.topics and party.letters == LETTERS


def test_a_peer_is_known_from_its_link_on_with_its_version_and_direction() -> None:
    node = Node()
    node.router.link_up(1, Link(7, True, V11))
    party = node.router.parties[1]
    assert (party.level, party.outbound, party.incarnation, node.router.reached) == (11, True, 7, (1,))


def test_a_link_of_another_protocol_is_of_no_use() -> None:
    node = Node()
    node.router.link_up(1, Link(1, True, "/other/1.0.0"))
    assert node.router.parties == {}


def test_the_newest_protocol_is_preferred_and_floodsub_comes_last() -> None:
    assert GossipSub.protocols == (V13, V12, V11, V10, FLOODSUB) == tuple(LEVELS)


@pytest.mark.parametrize(
    ("version", "powers"),
    [(V13, (1, 1, 1)), (V12, (1, 1, 1)), (V11, (1, 1, 0)), (V10, (1, 0, 0)), (FLOODSUB, (0, 0, 0))],
)
def test_each_version_has_its_powers(version: str, powers: tuple[int, int, int]) -> None:
    node = Node()
    node.up(1, protocol=version)
    router = node.router
    assert (router.is_meshing(1), router.knows_backoff(1), router.knows_idontwant(1)) == powers


# Extensions.


def test_extensions_are_the_first_words_to_a_peer_of_version_13() -> None:
    node = Node("t", test_extension=True)
    node.router.link_up(1, Link(1, True, V13))
    assert node.env.take() == [(1, Extensions(test=True)), (1, Subscriptions(((True, "t"),)))]
    frame = MeshCodec(numbered=True).pack([Extensions(test=True), Subscriptions(((True, "t"),))])[0]
    rpc = rpc_pb2.RPC.FromString(frame)
    assert rpc.control.extensions.testExtension and len(rpc.subscriptions) == 1


@pytest.mark.parametrize("version", [V12, V11, V10, FLOODSUB])
def test_extensions_are_not_said_to_older_versions(version: str) -> None:
    node = Node("t", test_extension=True)
    node.router.link_up(1, Link(1, True, version))
    assert node.said(Extensions) == []
    node.hear(1, Extensions(test=True))
    assert node.said(Test) == []


def test_where_both_have_the_test_extension_it_is_sent_once() -> None:
    node = Node(test_extension=True)
    node.up(1, 2, topics=())
    node.hear(1, Extensions(test=True))
    node.hear(2, Extensions(test=False))
    assert node.env.take() == [(1, Test())]


def test_where_only_the_other_has_the_test_extension_nothing_is_sent() -> None:
    node = Node()
    node.up(1, topics=())
    node.hear(1, Extensions(test=True), Test())
    assert node.env.take() == []


def test_extensions_later_than_the_first_words_are_blamed_and_not_answered() -> None:
    node = Node(test_extension=True)
    node.up(1, topics=())
    node.hear(1, Subscriptions(()), Extensions(test=True))
    assert node.env.take() == [] and node.value(1) < 0


def test_a_new_link_may_say_extensions_anew() -> None:
    node = Node(test_extension=True)
    node.up(1, topics=())
    node.hear(1, Extensions(test=True))
    node.down(1)
    node.up(1, topics=())
    node.hear(1, Extensions(test=True))
    assert node.said(Test, 1) == [Test()] and node.value(1) == 0


# Subscriptions of peers.


def test_subscriptions_of_peers_come_and_go() -> None:
    node = Node()
    node.up(1, 2, topics=())
    node.hear(1, Subscriptions(((True, "a"), (True, "b"))))
    node.hear(2, Subscriptions(((True, "a"),)))
    node.hear(2, Subscriptions(((True, "a"),)))
    assert {topic: list(peers) for topic, peers in node.router.subscribers.items()} == {"a": [1, 2], "b": [1]}
    node.hear(1, Subscriptions(((False, "a"), (False, "never"))))
    assert {topic: list(peers) for topic, peers in node.router.subscribers.items()} == {"a": [2], "b": [1]}


def test_a_topic_that_nobody_subscribes_to_any_more_leaves_nothing() -> None:
    node = Node()
    node.up(1, topics=[f"{number}" for number in range(100)])
    node.hear(1, Subscriptions(tuple((False, f"{number}") for number in range(100))))
    assert node.router.subscribers == {} and node.router.parties[1].topics == {}
    node.up(2, topics=("a",))
    node.down(2)
    assert node.router.subscribers == {}


def test_topics_of_one_peer_are_bounded_and_those_it_ends_make_room() -> None:
    node = Node(subscriptions=3)
    node.up(1, topics=("a", "b", "c", "d"))
    assert list(node.router.parties[1].topics) == ["a", "b", "c"]
    node.hear(1, Subscriptions(((False, "a"),)), Subscriptions(((True, "d"),)))
    assert list(node.router.parties[1].topics) == ["b", "c", "d"] and list(node.router.subscribers) == ["b", "c", "d"]


def test_a_topic_longer_than_any_message_may_have_is_not_remembered() -> None:
    node = Node()
    node.up(1, topics=("x" * (TOPIC + 1), "y" * TOPIC))
    assert list(node.router.subscribers) == ["y" * TOPIC]


def test_too_many_subscriptions_in_one_message_are_the_peers_fault() -> None:
    node = Node()
    node.up(1, topics=())
    with pytest.raises(PeerError):
        node.hear(1, Subscriptions(tuple((True, f"{number}") for number in range(CHANGES + 1))))


def test_only_topics_that_the_filter_allows_are_remembered() -> None:
    node = Node()
    node.router.filter = matching(r"^news/")
    node.up(1, topics=("news/a", "old/b"))
    assert list(node.router.subscribers) == ["news/a"]


def test_a_topic_that_the_filter_does_not_allow_cannot_be_joined() -> None:
    node = Node()
    node.router.filter = allow_list(["t"])
    node.up(1, topics=())
    with pytest.raises(UsageError):
        node.router.join("other")
    assert node.router.interests == {} and node.env.take() == [] and node.app.in_force == []
    node.router.join("t")
    assert node.app.in_force == ["t"]


def test_a_content_filter_is_refused_and_leaves_nothing() -> None:
    node = Node()
    with pytest.raises(UsageError):
        node.router.join(Filter((("price", "<", 10),)))
    assert node.router.interests == {} and node.router.filters == ()


def test_who_may_not_be_in_a_topic_is_in_no_mesh_and_gets_nothing_of_it() -> None:
    node = Node("t")
    node.router.admits = lambda peer, topic: peer != 1 or topic != "t"
    node.up(1, topics=("t", "u"))
    node.up(2)
    node.hear(1, Graft(("t",)))
    assert node.mesh() == [2]
    node.forget()
    mine = node.publish()
    node.hear(1, IWant((node.key(mine),)))
    assert node.told(Publication) == [2] and list(node.router.subscribers["u"]) == [1]


# When a link goes.


def test_nothing_is_left_of_a_peer_whose_link_is_gone() -> None:
    node = Node("t", flood_publish=False)
    node.up(1, 2, topics=("t", "u"))
    node.publish("u")
    node.hear(1, IHave((("t", (b"1",)),)), IDontWant((b"2",)))
    node.down(1)
    router = node.router
    assert list(router.parties) == [2] and node.mesh() == [2] and node.fanout("u") == [2]
    assert {peer for peers in router.subscribers.values() for peer in peers} == {2}
    assert len(router.standing.promises) == 0 and 1 not in router.contacts.held
    node.beat(3)
    assert router.gossip.unwanted == {}
    node.forget()
    node.publish()
    assert node.told(Publication) == [2]


def test_a_later_link_takes_the_place_of_the_earlier_whose_end_is_then_no_news() -> None:
    node = Node("t")
    node.up(1)
    assert node.mesh() == [1]
    node.router.link_up(1, Link(50, False, V11))
    assert node.mesh() == [] and node.router.subscribers == {} and node.router.parties[1].level == 11
    node.hear(1, Subscriptions(((True, "t"),)))
    node.router.link_down(1, 1, "the older one")
    assert node.mesh() == [1] and node.router.parties[1].incarnation == 50


def test_a_dial_that_failed_leaves_nothing() -> None:
    node = Node("t")
    node.router.contacts._dial(5)
    node.router.link_down(5, 0, "nobody there")
    assert node.router.contacts.held == node.router.contacts.dialled == {}


@pytest.mark.parametrize("late", EVERYTHING, ids=lambda msg: type(msg).__name__)
def test_what_comes_late_of_a_link_that_is_gone_is_passed_over(late: Publication) -> None:
    node = Node("t")
    node.up(1)
    node.down(1)
    node.forget()
    node.hear(1, late)
    assert node.env.take() == [] and node.app.delivered == [] and node.router.subscribers == {}
    assert len(node.router.meshes.backoff) == 0 and node.router.gossip.unwanted == {}


def test_a_verdict_that_comes_after_its_senders_link_has_gone_is_as_good() -> None:
    node = Node("t", validates=True)
    node.up(1, 2)
    node.hear(1, message())
    node.down(1)
    node.app.cases[0][2](Verdict.ACCEPT)
    assert node.app.delivered == [message()] and node.told(Publication) == [2]


# The blacklist.


def test_who_is_blacklisted_loses_its_link_when_it_comes_up() -> None:
    node = Node("t")
    node.router.blacklist.add(1, 0)
    with pytest.raises(PeerError, match="blacklisted"):
        node.router.link_up(1, Link(1, False, V13))
    assert node.router.parties == {} and node.env.take() == []


@pytest.mark.parametrize("said", EVERYTHING, ids=lambda msg: type(msg).__name__)
def test_who_is_shut_out_gets_nothing_more_and_loses_its_link_with_its_next_word(said: Publication) -> None:
    node = Node("t")
    node.up(1, 2)
    node.router.shut_out(1)
    node.publish()
    node.beat()
    assert node.mesh() == [2] and node.told(Publication) == [2] and 1 not in node.env.holds
    with pytest.raises(PeerError, match="blacklisted"):
        node.hear(1, said)


def test_messages_of_a_blacklisted_author_are_rejected_and_nobody_is_blamed() -> None:
    node = Node("t")
    node.up(1, 2)
    node.router.blacklist.add(99, 0)
    node.hear(1, message())
    assert node.app.delivered == [] and node.env.take() == [] and node.value(1) == 0
    assert [(row.kind, row.reason) for row in node.env.traced] == [(REJECT, "blacklisted source")]
    node.router.blacklist.remove(99)
    node.hear(1, message())
    assert node.app.delivered == [message()]


def test_a_timed_blacklist_lets_a_peer_come_back() -> None:
    node = Node("t")
    node.router.blacklist = Blacklist(ttl=10 * SECOND)
    node.router.shut_out(1)
    node.wait(10 * SECOND)
    node.up(1)
    assert node.mesh() == [1]


# Starting and stopping.


def test_a_node_that_has_stopped_has_no_timers() -> None:
    node = Node("t")
    node.up(1)
    node.router.stop()
    assert node.env.clock.waiting == 0
