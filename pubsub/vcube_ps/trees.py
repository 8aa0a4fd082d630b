"""The gate, the trees and the subscriptions of VCube-PS and VCube-PB: Algorithms 1 and 2 of VCube-PS but for its FIFO reception.

A publisher sends by the tree that the hypercube gives among the topic's subscribers, `window` messages at a time; SUB goes to all
nodes, UNS and PUB to the topic's subscribers; ACKs come back when all below have the message, and carry who subscribes. A
subscriber holds links to its children, so that a message meets no dial.

Below it needs the overlay `vcube`; with its oracle, subscriptions are known at once, or those before `oracle_until` are. It knows
no filters. What members say of others' subscriptions is believed; the numbers of what they hand on are its source's
(`libweft.pubsub.numbering`).
Bounds: those of `broadcast` and `views`; CHANNELS; `held_bytes` of messages that wait for the gate, beyond which one is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import ClassVar

import msgspec

from libweft.overlays.overlay import Overlay
from libweft.overlays.powers import power_of
from libweft.overlays.vcube.cube import DIMENSION
from libweft.overlays.vcube.messages import Member
from libweft.overlays.vcube.places import Places
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.machine import MS, SECOND, Env, Message, MessageId, Peer, PeerInfo, Timer, upon
from libweft.peer.trace.kinds import DUPLICATE, REJECT
from libweft.pubsub.claims import NUMBER
from libweft.pubsub.interests import Interest
from libweft.pubsub.message import Publication, weight
from libweft.pubsub.numbering import MISNUMBERED, bind, is_bound
from libweft.pubsub.router import TOPIC, App, Router
from libweft.pubsub.vcube_ps.broadcast import Broadcasts
from libweft.pubsub.vcube_ps.config import DEFAULTS, VCubePSConfig
from libweft.pubsub.vcube_ps.messages import TOPICS, Ack, Change, Pub, Reg, Standing, Sub, Told, Uns, check_standings
from libweft.pubsub.vcube_ps.streams import Item
from libweft.pubsub.vcube_ps.views import Views

CHANNELS = 4_096
HOLDS = 256  # topics whose children are linked to
STIRRED = 10 * SECOND  # a guess, some rounds of the overlay: members that came or went so long ago are known to all
RESTLESS = 60 * SECOND  # a guess: where members never stop coming and going it is done all the same
NEVER = -(1 << 60)
SETTLED = 500 * MS  # a guess: so long after a change links follow it, many changes at once

NOWHERE = Member(0, PeerInfo(0), 0)  # until it is sent: a node may have no place yet when it subscribes
GATE_FULL = "too much waits for the gate"
FILTERS = "a filter needs a stack that reaches all, as hyparview/flood"
LATE = "later ones were delivered"


class Channel:
    """What this node sends to a topic: `br_queue` of the paper, and what is on its way."""

    __slots__ = ("alone", "bytes", "flights", "informed", "last", "next", "pumping", "queue")

    def __init__(self, number: int) -> None:
        self.queue: deque[Publication | Change] = deque()
        self.bytes = 0
        self.flights: dict[MessageId, int] = {}
        self.alone = False  # a SUB or UNS is on its way
        self.informed = False  # a SUB or REG was on its way since this node has its place: it knows who subscribes
        self.pumping = False
        self.next = number
        self.last: int | None = None  # when a message was last sent

    @property
    def floor(self) -> int:
        return min(self.flights.values(), default=self.next)


class Arrival:
    """A message that is not judged yet, and who waits for its ACK."""

    __slots__ = ("genuine", "message", "parents", "said")

    def __init__(self, message: Pub, sender: Peer, said: tuple[Standing, ...]) -> None:
        self.message = message
        self.parents = {sender: message.height}
        self.said = said
        self.genuine = False


class Trees(Router):
    """What VCube-PS and VCube-PB share; how a source's messages are put in order is theirs."""

    name: ClassVar[str]

    def __init__(self, env: Env, overlay: Overlay, app: App, config: VCubePSConfig = DEFAULTS) -> None:
        super().__init__(env, overlay, app)
        self.cube = power_of(overlay, Places)
        self.config = config
        self.views = Views(self.cube)
        self.broadcasts = Broadcasts(env, self.cube, self.views, config, self._finished)
        self.channels: dict[str, Channel] = {}
        self.arrivals: dict[MessageId, Arrival] = {}
        self.held: dict[Peer, None] = {}  # links to children
        self.has_been_placed = False
        self.settling: Timer | None = None
        self.renewing: Timer | None = None
        self.fresh = False  # there is a subscription that was not made known again
        self.changed = self.first_changed = NEVER  # when members last came or went, and first since that subscription
        self.cube.crowd.append(self)

    def stop(self) -> None:
        self.broadcasts.stop()
        for timer in (self.settling, self.renewing):
            if timer is not None:
                timer.cancel()

    @property
    def reached(self) -> tuple[Peer, ...]:
        return (*self.overlay.everyone, *(peer for peer in self.held if peer not in self.overlay.neighbors))

    def unplaced(self) -> int:
        """What waits for the gate, and one for each message that not all have acknowledged: links to them may not be up yet."""
        return self._gated() + sum(len(channel.flights) for channel in self.channels.values() if not channel.alone)

    def _gated(self) -> int:
        return sum(channel.bytes for channel in self.channels.values())

    # Algorithm 1.

    def _join(self, interest: Interest) -> None:
        if not isinstance(interest, str):
            del self.interests[interest]
            self._sort_out_filters()
            raise UsageError(f"{self.name} knows subscribers by topic; {FILTERS}")
        self._settle_soon()
        if self._omniscient:
            self._tell_census(interest, True)
            self._in_force(interest)
        else:
            self._begin(interest)

    def _leave(self, interest: Interest) -> None:
        assert isinstance(interest, str)
        self._settle_soon()
        if self._omniscient:
            self._tell_census(interest, False)
        else:
            self._change(interest, Uns)

    @property
    def _omniscient(self) -> bool:
        return self.cube.census is not None and self.env.now() < self.config.oracle_until

    @property
    def is_founder(self) -> bool:
        """Of a simulation: it was there before the first SUB, and knows all the others."""
        return self.cube.base > 0

    def _begin(self, topic: str) -> None:
        self._freshen()
        self._change(topic, Sub)

    def _tell_census(self, topic: str, subscribed: bool) -> None:
        census, index = self.cube.census, self.cube.index
        assert census is not None and index is not None
        others = census.subscribers.get(topic, 0) & ~(1 << index)
        census.subscribers[topic] = others | 1 << index if subscribed else others

    def _change(self, topic: str, kind: type[Change]) -> None:
        key = self._next_id()
        self.views.note(topic, Standing(self.env.me, kind is Sub, key.epoch, key.sequence))
        self._channel(topic).queue.append(kind(key, topic, 0) if kind is Uns else Sub(key, topic, 0, NOWHERE))
        self._pump(topic)

    def _spread(self, publication: Publication) -> None:
        channel, size = self._channel(publication.topic), weight(publication)
        if channel.queue and self._gated() + size > self.config.held_bytes:
            self.refused += 1
            self.trace(REJECT, publication.topic, publication.id, None, 0, GATE_FULL)
            return
        channel.queue.append(publication)
        channel.bytes += size
        self._pump(publication.topic)

    # START_MSG_PROPAGATION.

    def _channel(self, topic: str) -> Channel:
        """Numbers go up by one; a channel that was forgotten goes on with a number above all that it had."""
        channel = self.channels.get(topic)
        if channel is None:
            if len(self.channels) >= CHANNELS:
                for name in [name for name, other in self.channels.items() if not other.queue and not other.flights][:1]:
                    del self.channels[name]
            channel = self.channels[topic] = Channel(self.sequence)
        return channel

    def _pump(self, topic: str) -> None:
        """Send what the gate lets through. What ends at once, for want of children, does not come in here again.

        There may be no channel: one that nothing is sent in goes for another.
        """
        channel = self.channels.get(topic)
        if channel is None or channel.pumping or not self.cube.ready:
            return
        channel.pumping = True
        while channel.queue and not channel.alone:
            head = channel.queue[0]
            if len(channel.flights) >= (1 if isinstance(head, Change) else self.config.window):
                break
            channel.queue.popleft()
            self._start(channel, head)
        channel.pumping = False

    def _start(self, channel: Channel, head: Publication | Change) -> None:
        number = channel.next
        self.broadcasts.note(head.id)
        if isinstance(head, Publication):
            channel.bytes -= weight(head)
            channel.next += 1
            base = min(channel.floor, number)
            channel.flights[head.id] = number
            self._launch(Pub.of(head, number, base))
        else:
            channel.alone = True
            channel.flights[head.id] = number
            if isinstance(head, Sub):
                channel.informed = True
                head = msgspec.structs.replace(head, member=self.cube.own())
            self.broadcasts.begin(head, {}, DIMENSION, True)

    def _launch(self, message: Pub) -> None:
        self.broadcasts.begin(bind(self.signing, message), {}, DIMENSION, True)

    def _finished(self, topic: str, key: MessageId) -> None:
        """All have it."""
        channel = self.channels[topic]
        del channel.flights[key]
        if channel.alone:
            channel.alone = False
            own = self.views.of(topic, self.env.me)
            if topic in self.interests and own is not None and (own.epoch, own.sequence) == (key.epoch, key.sequence):
                self._in_force(topic)
                self._settle_soon()
        self._pump(topic)

    # HANDLE_RECEIVED_MSG.

    @upon(Pub)
    def pub(self, sender: Peer, m: Pub) -> None:
        m.check(self.env.me)
        if self.signing is not None and not is_bound(m):
            self.trace(REJECT, m.topic, m.id, sender, m.hops, MISNUMBERED)
        else:
            self._copy(sender, m)

    def _copy(self, sender: Peer, m: Pub) -> None:
        """What is signed is verified of the first copy, and of one that is handed on in its stead."""
        arrival = self.arrivals.get(m.id)
        if arrival is None and m.id not in self.broadcasts.known:
            self.broadcasts.note(m.id)
            self.arrivals[m.id] = Arrival(m, sender, self._says(m))
            self._received(sender, m.publication(), m.hops)
            return
        if self.tracing:
            self.trace(DUPLICATE, m.topic, m.id, sender)
        if arrival is not None:
            arrival.parents[sender] = max(m.height, arrival.parents.get(sender, 0))
        elif not self.broadcasts.would_hand_on(m) or (problem := self._problem(m.publication())) is None:
            self._again(m)
            self.broadcasts.again(sender, m)
        else:
            self.trace(REJECT, m.topic, m.id, sender, m.hops, problem)

    def brought(self, sender: Peer, publication: Publication) -> None:
        """An order above makes the order of each source too, so a copy that it asked for needs no number."""
        if publication.id in self.broadcasts.known:
            self.trace(DUPLICATE, publication.topic, publication.id, sender)
        else:
            self.broadcasts.note(publication.id)
            self._received(sender, publication)

    def _again(self, m: Pub) -> None:
        """A copy of one that is known. It may be the first with a number, where an order brought the message."""
        raise NotImplementedError

    def _genuine(self, sender: Peer, publication: Publication) -> None:
        if (arrival := self.arrivals.get(publication.id)) is not None:
            arrival.genuine = True

    def _accepted(self, sender: Peer, publication: Publication, hops: int | None) -> None:
        arrival = self.arrivals.pop(publication.id, None)
        if arrival is None:  # an order had asked for it
            self._hand_up([Item(publication, hops)])
            return
        m = arrival.message
        self.broadcasts.hand_on(m, arrival.parents, max(arrival.parents.values()), arrival.said)
        if m.topic in self.interests:
            self._hand_up(self._arrived(m, Item(publication, hops)))

    def _says(self, m: Pub) -> tuple[Standing, ...]:
        """Line 96 of the paper: the source may not know this subscriber. Nor that this one left, or never came back to it."""
        subscribed = m.topic in self.interests
        if (subscribed and self._follows(m)) or self._omniscient:
            return ()
        own = self.views.of(m.topic, self.env.me)
        if not subscribed:
            return (own or Standing(self.env.me, False, self.env.epoch, 0),)
        return (own,) if own is not None else ()

    def _follows(self, m: Pub) -> bool:
        """Whether something of its source and topic came before."""
        raise NotImplementedError

    def _arrived(self, m: Pub, item: Item | None) -> list[Item]:
        """What may be handed up now, in the order of its source; a message that was refused is None."""
        raise NotImplementedError

    def _refused(self, publication: Publication) -> None:
        """It goes no further, but the gate of its source must not wait for it. What is forged has no number of its source's."""
        self.broadcasts.known[publication.id] = DIMENSION
        arrival = self.arrivals.pop(publication.id, None)
        if arrival is None:  # an order had asked for it
            return
        self.env.send_all(tuple(arrival.parents), Ack(publication.id, arrival.said))
        if arrival.genuine and publication.topic in self.interests:
            self._hand_up(self._arrived(arrival.message, None))

    def _forged(self, publication: Publication) -> None:
        self.broadcasts.known.pop(publication.id, None)

    def _hand_up(self, items: Iterable[Item]) -> None:
        for item in items:
            if item.publication.topic in self.interests:
                self._deliver(item.publication, item.hops)

    @upon(Sub)
    def sub(self, sender: Peer, m: Sub) -> None:
        if m.member.peer != m.id.source:
            raise PeerError("a subscription or registration that gives another's place")
        self.cube.introduce(m.member)
        self._changed(sender, m, True)

    @upon(Reg)
    def reg(self, sender: Peer, m: Reg) -> None:
        self.sub(sender, m)

    @upon(Uns)
    def uns(self, sender: Peer, m: Uns) -> None:
        self._changed(sender, m, False)

    def _changed(self, sender: Peer, m: Change, subscribed: bool) -> None:
        m.check(self.env.me)
        if m.id in self.broadcasts.known:
            self.broadcasts.again(sender, m)
            return
        self.broadcasts.note(m.id)
        fresh = m.id.source != self.env.me and self._noted(m, subscribed)
        self.broadcasts.hand_on(m, {sender: m.height}, m.height, self.broadcasts.says(m))
        if fresh and not subscribed:
            self._gone(m)
        if fresh and m.topic in self.interests:
            self._settle_soon()

    def _gone(self, m: Change) -> None:
        """The source of the change is no longer what it was."""

    def _noted(self, m: Change, subscribed: bool) -> bool:
        return self.views.note(m.topic, Standing(m.id.source, subscribed, m.id.epoch, m.id.sequence))

    @upon(Ack)
    def ack(self, sender: Peer, m: Ack) -> None:
        if m.view:
            check_standings(self.env.me, m.view)
        self.broadcasts.acked(sender, m)

    @upon(Told)
    def told(self, sender: Peer, m: Told) -> None:
        for topic, epoch, sequence in m.topics:
            if len(topic) > TOPIC or not (0 <= epoch <= NUMBER and 0 <= sequence <= NUMBER):
                raise PeerError("a subscription with a number that no node counts to")
            if self.views.note(topic, Standing(sender, True, epoch, sequence)) and topic in self.interests:
                self._settle_soon()

    # Members and links.

    def _freshen(self) -> None:
        """Something is about to be made known to all."""
        if self.changed + STIRRED < self.env.now():
            self.changed = self.first_changed = NEVER  # all have heard of that
        self.fresh = True

    def _stirred(self) -> None:
        self.changed = self.env.now()
        if self.first_changed == NEVER:
            self.first_changed = self.changed

    def _renew_later(self) -> None:
        if self.renewing is None:
            self.renewing = self.env.after(STIRRED, self._renew_if_stirred)

    def _renew_if_stirred(self) -> None:
        """Members came or went around a SUB, so who handed it on may not have known them all: once more, when that is over."""
        self.renewing = None
        if self.changed == NEVER:
            self.fresh = False
        elif self.changed + STIRRED > self.env.now() and self.env.now() < self.first_changed + RESTLESS:
            self._renew_later()
        else:
            self.changed, self.first_changed, self.fresh = NEVER, NEVER, False
            self._renew()

    def _renew(self) -> None:
        for interest in list(self.interests):
            assert isinstance(interest, str)
            self._change(interest, Sub)

    def placed(self) -> None:
        """Others may not know of it yet."""
        if not self.is_founder:
            self._stirred()
        self._say_again()
        self.has_been_placed = True
        for topic in list(self.channels):
            self._pump(topic)
        self._settle_soon()

    def _say_again(self) -> None:
        """Who has a new place has missed what was said meanwhile; so it subscribes again."""
        if self.has_been_placed and self.cube.census is None:
            for interest in list(self.interests):
                assert isinstance(interest, str)
                self._begin(interest)

    def doubted(self) -> None: ...

    def member_up(self, peer: Peer) -> None:
        """It was not there when SUB went round, or it forgot."""
        self._stirred()
        own = [(topic, self.views.of(topic, self.env.me)) for topic in self.interests if isinstance(topic, str)]
        told = [(topic, standing.epoch, standing.sequence) for topic, standing in own if standing is not None]
        for begin in range(0, len(told), TOPICS):
            self.env.send(peer, Told(tuple(told[begin : begin + TOPICS])))
        self._settle_soon()

    def member_down(self, peer: Peer) -> None:
        self._stirred()
        self.broadcasts.down(peer)
        self._settle_soon()

    def member_gone(self, peer: Peer) -> None:
        self.views.forget(peer)

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        lost = self.held.pop(peer, 0) is None
        if incarnation and self.broadcasts.waits_for(peer):
            self.broadcasts.broken(peer)
        if lost:
            self.cube.suspect(peer)
            self._settle_soon()

    def dropped(self, peer: Peer, msg: Message) -> None:
        if isinstance(msg, Pub | Change):
            self.cube.suspect(peer)

    def _settle_soon(self) -> None:
        if self.settling is None and self._topics():
            self.settling = self.env.after(SETTLED, self._settle_links)

    def _topics(self) -> list[str]:
        """Those that this node hands on."""
        return [topic for topic in self.interests if isinstance(topic, str)]

    def _settle_links(self) -> None:
        """The children of this node in any tree are the first of each of its clusters."""
        self.settling = None
        wanted: dict[Peer, None] = {}
        for topic in self._topics()[:HOLDS]:
            heads = self.broadcasts.heads.of(topic, Pub, self.views.subscribers(topic))
            wanted |= dict.fromkeys(peer for peer in heads if peer is not None)
        gone, new = [peer for peer in self.held if peer not in wanted], [peer for peer in wanted if peer not in self.held]
        self.held = wanted
        for peer in gone:
            self.env.disconnect(peer)
        for peer in new:
            self.env.connect(peer)
