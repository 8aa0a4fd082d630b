"""To whom a message goes, one's own and others': mesh, fanout, all subscribers, direct and floodsub peers; and its id."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from libweft.peer.libp2p.pb import rpc_pb2
from libweft.peer.machine import EPOCH_BITS, SECOND, MessageId, PeerInfo
from libweft.peer.trace.kinds import DUPLICATE, PUBLISH, REJECT
from libweft.pubsub.gossipsub.ids import BY_NAME
from libweft.pubsub.gossipsub.messages import Graft, IDontWant, IWant
from libweft.pubsub.gossipsub.recent_publishes import SPAN, Fresh
from libweft.pubsub.gossipsub.wire import MeshCodec
from libweft.pubsub.message import Publication, Verdict
from libweft.pubsub.rpc import PUBLISH_TAG, Subscriptions, field, sequence_number
from libweft.pubsub.signing import Signing
from tests.peer.live_world import identity
from tests.pubsub.gossipsub.world import FLOODSUB, Node, message

SMALL: dict[str, Any] = {"d": 2, "d_lo": 2, "d_hi": 4, "d_score": 1, "d_out": 0}


# One's own.


def test_with_flood_publish_it_goes_to_all_subscribers_that_are_known() -> None:
    node = Node("t", **SMALL)
    node.up(*range(1, 8))
    node.up(8, topics=("other",))
    node.publish()
    assert node.told(Publication) == list(range(1, 8)) and node.mesh() == [1, 2]


def test_without_flood_publish_it_goes_to_the_mesh() -> None:
    node = Node("t", flood_publish=False, **SMALL)
    node.up(*range(1, 8))
    mine = node.publish()
    assert node.env.take() == [(1, mine), (2, mine)]


def test_without_a_subscription_it_goes_to_a_fanout_that_stays_the_same() -> None:
    node = Node(flood_publish=False, **SMALL)
    node.up(*range(1, 8))
    node.publish()
    node.publish()
    assert len(node.fanout()) == 2 and node.told(Publication) == sorted(2 * node.fanout())
    assert node.said(Graft) == [] and node.app.delivered == []


def test_a_publisher_that_joins_later_publishes_to_its_mesh_and_hears_others() -> None:
    node = Node(flood_publish=False, **SMALL)
    node.up(*range(1, 8))
    node.publish()
    inside = node.fanout()
    node.router.join("t")
    node.forget()
    mine = node.publish()
    assert node.mesh() == inside == node.told(Publication)
    node.hear(7, message())
    assert node.app.delivered == [mine, message()]


def test_a_topic_that_is_only_published_to_is_never_announced() -> None:
    node = Node(flood_publish=False, **SMALL)
    node.up(1)
    node.publish()
    node.beat(3)
    assert {type(msg).__name__ for _, msg in node.env.take()} == {"Publication"}
    node.hear(1, message())
    assert node.app.delivered == []


def test_who_subscribes_a_moment_after_a_message_was_published_gets_it() -> None:
    node = Node(**SMALL)
    node.up(1, topics=())
    mine, other = node.publish(), node.publish("other")
    node.hear(1, Subscriptions(((True, "t"),)))
    assert node.env.take() == [(1, mine)]
    node.hear(1, Subscriptions(((True, "other"),)))
    assert node.env.take() == [(1, other)]
    node.wait(SPAN)
    node.up(2)
    assert node.env.take() == [], "by then it is no longer new"


def test_without_flood_publish_so_many_as_a_mesh_has_get_it_later() -> None:
    node = Node(flood_publish=False, **SMALL)
    node.up(1, 2, 3, topics=())
    mine = node.publish()
    for peer in (1, 2, 3):
        node.hear(peer, Subscriptions(((True, "t"),)))
    assert node.env.take() == [(1, mine), (2, mine)]


def test_leaving_and_coming_again_brings_a_message_as_often_as_asking_for_it() -> None:
    node = Node("t", **SMALL)
    node.up(1, topics=())
    node.publish()
    for _ in range(10):
        node.hear(1, Subscriptions(((True, "t"),)), Subscriptions(((False, "t"),)))
    assert len(node.said(Publication, 1)) == 3


def test_who_may_have_nothing_or_refused_it_gets_nothing_later() -> None:
    node = Node("t", **SMALL)
    node.up(1, 2, topics=())
    mine = node.publish()
    node.rate(p1=-1_000)
    node.hear(2, IDontWant((node.key(mine),)))
    for peer in (1, 2):
        node.hear(peer, Subscriptions(((True, "t"),)))
    assert node.said(Publication) == []


def test_what_was_published_waits_for_the_first_words_of_a_link_and_for_no_others() -> None:
    node = Node(**SMALL)
    node.up(1, topics=())
    assert node.router.unplaced() == 0
    node.publish()
    assert node.router.unplaced() == 1
    node.hear(1, Subscriptions(((True, "other"),)))
    assert node.router.unplaced() == 0
    node.up(2, topics=())
    assert node.router.unplaced() == 1
    node.wait(SPAN)
    assert node.router.unplaced() == 0, "who has nothing to say is not waited for"


def test_of_new_messages_so_many_are_remembered() -> None:
    fresh = Fresh(span=10, limit=3)
    for number in range(5):
        fresh.note(f"{number % 2}", b"%d" % number, number)
    assert (fresh.of("0", 5), fresh.of("1", 5), len(fresh)) == ((b"2", b"4"), (b"3",), 3)
    assert fresh.of("0", 12) == (b"4",)
    fresh.expire(14)
    assert (len(fresh), fresh._topics) == (0, {})


def test_a_message_that_nobody_subscribes_to_goes_to_nobody_and_is_no_error() -> None:
    for flood_publish in (True, False):
        node = Node(flood_publish=flood_publish)
        node.up(1, topics=("other",))
        node.publish()
        assert node.env.take() == []


def test_who_subscribes_gets_its_own_message_once() -> None:
    node = Node("t")
    node.up(1)
    mine = node.publish()
    node.forget()
    node.hear(1, mine)
    assert node.app.delivered == [mine] and node.env.take() == [] and node.value(1) == 0
    assert [row.kind for row in node.env.traced] == [DUPLICATE]


def test_the_same_message_published_twice_is_sent_and_delivered_once_and_no_error() -> None:
    node = Node("t", message_id="sha256")
    node.up(1)
    node.publish(data=b"same")
    node.publish(data=b"same")
    assert len(node.said(Publication, 1)) == len(node.app.delivered) == 1
    assert [row.kind for row in node.env.traced].count(PUBLISH) == 1


def test_many_messages_at_once_all_go_out() -> None:
    node = Node("t")
    node.up(1, 2, 3)
    several = [node.publish(data=b"%d" % number) for number in range(50)]
    for peer in (1, 2, 3):
        assert node.said(Publication, peer) == several


def test_an_own_message_can_be_asked_for() -> None:
    node = Node("t")
    node.up(1)
    mine = node.publish()
    node.up(2)
    node.hear(2, IWant((node.key(mine),)))
    assert node.env.take() == [(2, mine)]


# Forwarding.


def test_a_first_copy_goes_to_the_mesh_but_its_sender() -> None:
    node = Node("t", **SMALL)
    node.up(*range(1, 6))
    node.hear(1, message())
    assert node.env.take() == [(2, message())] and node.app.delivered == [message()]


def test_what_comes_from_outside_the_mesh_goes_to_all_of_it() -> None:
    node = Node("t", **SMALL)
    node.up(*range(1, 6))
    node.hear(5, message())
    assert node.told(Publication) == [1, 2]


def test_its_author_gets_no_copy() -> None:
    node = Node("t", **SMALL)
    node.up(1, 2, 3)
    node.hear(3, message(source=1))
    assert node.told(Publication) == [2]


def test_a_second_copy_is_neither_forwarded_nor_delivered() -> None:
    node = Node("t", **SMALL)
    node.up(1, 2)
    node.hear(1, message())
    node.forget()
    node.hear(2, message())
    assert node.env.take() == [] and node.app.delivered == [message()]


def test_a_message_of_a_topic_that_is_not_joined_is_not_carried() -> None:
    node = Node("t")
    node.up(1, 2, topics=("t", "other"))
    node.hear(1, message(topic="other"))
    assert node.env.take() == [] and node.app.delivered == [] and not node.router.seen.has(node.key(message(topic="other")))


@pytest.mark.parametrize("verdict", [Verdict.IGNORE, Verdict.REJECT])
def test_what_is_not_accepted_goes_nowhere(verdict: Verdict) -> None:
    node = Node("t", validates=True)
    node.up(1, 2)
    node.hear(1, message())
    assert node.env.take() == []
    node.app.cases[0][2](verdict)
    assert node.env.take() == [] and node.app.delivered == []
    assert [row.reason for row in node.env.traced if row.kind == REJECT] == [verdict.value]


def test_what_is_accepted_goes_to_those_who_are_in_the_mesh_by_then() -> None:
    node = Node("t", validates=True, **SMALL)
    node.up(1, 2)
    node.hear(1, message())
    node.down(2)
    node.up(3)
    node.app.cases[0][2](Verdict.ACCEPT)
    assert node.told(Publication) == [3] and node.app.delivered == [message()]


def test_a_verdict_after_the_topic_was_left_sends_nothing() -> None:
    node = Node("t", validates=True)
    node.up(1, 2)
    node.hear(1, message())
    node.router.leave("t")
    node.forget()
    node.app.cases[0][2](Verdict.ACCEPT)
    assert node.env.take() == [] and node.app.delivered == []


# Direct and floodsub peers.


def test_a_direct_peer_gets_every_message_of_its_topics_whatever_its_score() -> None:
    for flood_publish in (True, False):
        node = Node("t", flood_publish=flood_publish, **SMALL)
        node.router.contacts.add_direct(PeerInfo(5))
        node.up(1, 2, 5)
        node.rate(p5=-10_000)
        node.hear(1, message())
        node.publish()
        assert len(node.said(Publication, 5)) == 2


def test_a_direct_peer_gets_nothing_of_topics_it_does_not_subscribe_to() -> None:
    node = Node("t", **SMALL)
    node.router.contacts.add_direct(PeerInfo(5))
    node.up(1, 2)
    node.up(5, topics=("other",))
    node.hear(1, message())
    assert node.told(Publication) == [2]


def test_what_a_direct_peer_sends_is_heard_whatever_its_score() -> None:
    node = Node("t")
    node.router.contacts.add_direct(PeerInfo(5))
    node.up(1, 5)
    node.rate(p5=-10_000)
    node.hear(5, message())
    assert node.app.delivered == [message()] and node.told(Publication) == [1]


@pytest.mark.parametrize("flood_publish", [True, False])
def test_a_floodsub_peer_gets_every_message_of_its_topics(flood_publish: bool) -> None:
    node = Node("t", flood_publish=flood_publish, **SMALL)
    node.up(1, 2)
    node.up(7, 8, protocol=FLOODSUB)
    node.hear(7, message())
    assert node.told(Publication) == [1, 2, 8]
    node.forget()
    node.publish()
    assert node.told(Publication) == [1, 2, 7, 8]


def test_a_floodsub_peer_is_in_no_fanout_and_gets_what_is_published_all_the_same() -> None:
    node = Node(flood_publish=False, **SMALL)
    node.up(7, protocol=FLOODSUB)
    node.publish()
    assert node.fanout() == [] and node.told(Publication) == [7]


def test_when_the_last_floodsub_peer_has_left_nothing_is_sent_to_it() -> None:
    node = Node("t", **SMALL)
    node.up(1, 2)
    node.up(7, protocol=FLOODSUB)
    node.down(7)
    node.hear(1, message())
    assert node.told(Publication) == [2] and node.router.plain == 0


def test_nobody_gets_two_copies_of_one_message() -> None:
    node = Node("t", flood_publish=False, **SMALL)
    node.up(1, 2)
    node.router.contacts.add_direct(PeerInfo(3))
    node.up(3)
    node.up(4, protocol=FLOODSUB)
    node.publish()
    assert node.told(Publication) == [1, 2, 3, 4]


# Ids.


def test_a_topic_may_have_an_id_function_of_its_own() -> None:
    node = Node("t", "u")
    node.up(1, topics=("t", "u"))
    node.router.ids["u"] = lambda publication: sha256(publication.data).digest()
    for number in (1, 2):
        node.hear(1, message(number, "t"), message(number, "u"))
    assert [(each.topic, each.id.sequence) for each in node.app.delivered] == [("t", 1), ("u", 1), ("t", 2)]


@pytest.mark.parametrize("name", BY_NAME)
def test_the_id_function_is_chosen_by_its_name(name: str) -> None:
    node = Node("t", message_id=name, me=identity(0).peer)
    publication = Publication(MessageId(identity(9).peer, 1, 5), "t", b"data")
    assert node.key(publication) == BY_NAME[name](publication)


def test_an_old_message_of_several_topics_is_of_the_last() -> None:
    """Where the topic was a list once, one-topic messages are to the byte what they are now."""
    codec = MeshCodec(numbered=True)
    [frame] = codec.pack([message()])
    old = rpc_pb2.Message.FromString(rpc_pb2.RPC.FromString(frame).publish[0].SerializeToString())
    several = field(b"\x22", b"first") + old.SerializeToString()
    assert codec.unpack(field(PUBLISH_TAG, several)) == [message()]


def test_sequence_numbers_of_an_author_rise() -> None:
    node = Node("t")
    numbers = [int.from_bytes(sequence_number(node.publish().id)) for _ in range(20)]
    assert numbers == sorted(set(numbers)) and all(number < 1 << 64 for number in numbers)
    last = (1 << EPOCH_BITS) - 1
    node.router.sequence = last - 1
    assert [node.publish().id for _ in range(3)] == [MessageId(0, 1, last), MessageId(0, 2, 0), MessageId(0, 2, 1)]


# Signatures and sizes.


def signed(node: Node) -> Publication:
    node.router.signing = Signing(identity(0))
    return Signing(identity(9)).sign(Publication(MessageId(identity(9).peer, 1, 1), "t", b"true"))


def test_what_its_author_signed_is_delivered_and_what_is_published_is_signed() -> None:
    node = Node("t", me=identity(0).peer)
    true = signed(node)
    node.up(b"1")
    node.hear(b"1", true)
    assert node.app.delivered == [true]
    assert Signing(identity(1)).problem(node.publish()) is None


def test_a_forged_copy_is_blamed_and_does_not_keep_the_true_one_out() -> None:
    node = Node("t", me=identity(0).peer)
    true = signed(node)
    node.up(b"1", b"2")
    node.hear(b"1", Publication(true.id, "t", b"lies", signature=true.signature))
    assert node.app.delivered == [] and node.value(b"1") == -10
    node.hear(b"2", true)
    assert node.app.delivered == [true] and node.value(b"2") > 0


@pytest.mark.parametrize(("signature", "key"), [(b"", b""), (b"short", b""), (b"x" * 64, b""), (b"x" * 64, b"no key")])
def test_a_signature_or_key_that_is_none_is_blamed_and_raises_nothing(signature: bytes, key: bytes) -> None:
    node = Node("t", me=identity(0).peer)
    true = signed(node)
    node.up(b"1")
    node.hear(b"1", Publication(true.id, "t", b"true", signature=signature, key=key))
    assert node.app.delivered == [] and node.value(b"1") == -10


def test_where_nothing_is_signed_nothing_is_checked() -> None:
    node = Node("t")
    node.up(1)
    node.hear(1, message())
    assert node.app.delivered == [message()] and node.publish().signature == b""


def test_a_message_over_the_size_limit_is_blamed_and_goes_nowhere() -> None:
    node = Node("t")
    node.router.size = 100
    node.up(1, 2)
    node.hear(1, message(data=bytes(101)))
    node.hear(2, message(2, data=bytes(100)))
    assert [each.id.sequence for each in node.app.delivered] == [2]
    assert node.value(1) == -10 and node.told(Publication) == [1]


def test_a_message_is_new_again_long_after_it_was_forgotten() -> None:
    node = Node("t", seen_ttl=10 * SECOND)
    node.up(1)
    node.hear(1, message())
    node.wait(9 * SECOND)
    node.hear(1, message())
    assert len(node.app.delivered) == 1
    node.wait(30 * SECOND)
    node.hear(1, message(2), message())
    assert len(node.app.delivered) == 3
