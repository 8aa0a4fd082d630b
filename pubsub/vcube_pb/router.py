"""VCube-PB: reliable causal broadcast in topics, whose publishers need not subscribe, where any node may crash.

J. P. de Araujo, L. A. Rodrigues, L. Arantes, E. P. Duarte Jr., P. Sens: "VCube-PB: uma solucao publish/subscribe autonoma e
escalavel com difusao confiavel causal", SBRC 2017. VCube-Top is the overlay `vcube` with the sets of a topic's subscribers and
publishers over it; trees and acknowledgements are those of `libweft.pubsub.vcube_ps`. Causal delivery is an order's to add; here
is what it needs: each message of a correct source comes to each correct subscriber, once, and those of a source in order. So:
- A publisher registers (REG), and a subscriber subscribes, with all nodes; each is in force when all have acknowledged, and says
  by then who subscribes. Until then nothing goes out, and what comes in waits: it is neither handed on nor delivered.
- Who hands these on may not know all members yet; so where some came or went meanwhile they are made known once more, and what
  was missed is asked for.
- What a child that is down was to hand on goes to the next of its cluster; a source that is down is taken over (`broadcast`).
- A node that knows of no subscriber, since it began anew, declines to hand on.
- A detector may be wrong: see `recovery`. So who was taken for down subscribes again by itself, and gets what it missed.
- CHECKLEAVE empties `first_rec` of the topic whenever somebody leaves; here what is known of a source stays (`streams`).

The guarantee covers who subscribes in force and stays up, or was taken for down for less than `kept_for`; it ends where the
bounds on what is kept are reached. With `fixed_root` all goes by one tree: the rival of the paper's section 6.
Below it needs the overlay `vcube`. Bounds: those of its parts and of VCube-PS; `held_bytes` of what waits to be in force.
"""

from __future__ import annotations

import msgspec

from libweft.overlays.overlay import Overlay
from libweft.overlays.vcube.cube import DIMENSION
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.machine import SECOND, Env, MessageId, Peer, Reply, Timer, answers, upon
from libweft.peer.trace.kinds import PUBLISH, REJECT
from libweft.pubsub.interests import Interest
from libweft.pubsub.message import Publication, weight
from libweft.pubsub.numbering import bind
from libweft.pubsub.router import App
from libweft.pubsub.vcube_pb.broadcast import ReliableBroadcasts
from libweft.pubsub.vcube_pb.config import DEFAULTS, VCubePBConfig
from libweft.pubsub.vcube_pb.message_cache import stream_of
from libweft.pubsub.vcube_pb.messages import AskMissing, AskSince, Decline, Missing, Since, Unreg, check_numbers, check_position
from libweft.pubsub.vcube_pb.recovery import HELPERS, Recovery
from libweft.pubsub.vcube_ps.messages import Change, Pub, Reg, Standing, Sub, check_standings
from libweft.pubsub.vcube_ps.streams import Item
from libweft.pubsub.vcube_ps.trees import FILTERS, LATE, NOWHERE, SETTLED, Trees
from libweft.pubsub.vcube_ps.views import Views


class Waiting:
    """A subscription that is not in force yet: what came meanwhile, and what this node published."""

    __slots__ = ("bytes", "came", "own")

    def __init__(self) -> None:
        self.own: list[Publication] = []
        self.came: list[Item] = []
        self.bytes = 0


class VCubePB(Trees):
    """`informed`: topics of which this node was told who subscribes."""

    name = "vcube-pb"
    protocols = ("/weft/vcube-pb/1.0.0",)
    repair = 20 * SECOND  # a guess: a link that breaks, a test that fails twice, and a tree after that

    def __init__(self, env: Env, overlay: Overlay, app: App, config: VCubePBConfig = DEFAULTS) -> None:
        super().__init__(env, overlay, app, config)
        self.config: VCubePBConfig = config
        self.editors = Views(self.cube)
        self.broadcasts: ReliableBroadcasts = ReliableBroadcasts(env, self.cube, self.views, self.editors, config, self._finished)
        self.recovery = Recovery(env, self.cube, self.views, config, self._hand_up)
        self.changes: dict[MessageId, Change] = {}  # of this node's own, not acknowledged by all yet
        self.renewals: dict[MessageId, None] = {}  # of these, those that say once more what was in force
        self.doubt: Timer | None = None
        self.registered: dict[str, None] = {}
        self.informed: dict[str, None] = {}
        self.waits: dict[str, Waiting] = {}

    def stop(self) -> None:
        super().stop()
        if self.doubt is not None:
            self.doubt.cancel()

    # Algorithm 5.1.

    def _join(self, interest: Interest) -> None:
        if isinstance(interest, str):
            self.waits[interest] = Waiting()
        super()._join(interest)

    def _leave(self, interest: Interest) -> None:
        assert isinstance(interest, str)
        self.recovery.began.pop(interest, None)
        self.recovery.streams.leave(interest)
        super()._leave(interest)
        self._let_in(interest)

    def advertise(self, interest: Interest) -> None:
        if not isinstance(interest, str):
            raise UsageError(f"vcube-pb knows publishers by topic; {FILTERS}")
        if interest not in self.registered:
            self.registered[interest] = None
            if self.cube.census is None:
                self._freshen()
                self._change(interest, Reg)
            else:
                self.informed[interest] = None
            self._settle_soon()

    def withdraw(self, interest: Interest) -> None:
        if interest in self.registered:
            assert isinstance(interest, str)
            del self.registered[interest]
            if self.cube.census is None:
                self._change(interest, Unreg)

    def publish(self, publication: Publication) -> None:
        """Who subscribes and is not in force yet delivers its own when it is: agreement is owed from then on."""
        waiting = self.waits.get(publication.topic)
        if waiting is None:
            super().publish(publication)
            return
        dependencies = publication.order.dependencies if publication.order else ()
        self.trace(PUBLISH, publication.topic, publication.id, None, 0, None, dependencies)
        waiting.own.append(publication)
        self._spread(publication)

    def _spread(self, publication: Publication) -> None:
        topic = publication.topic
        if topic not in self.interests and topic not in self.registered:
            self.advertise(topic)
        super()._spread(publication)

    def _pump(self, topic: str) -> None:
        """A channel may go while its topic's change is on its way."""
        if topic in self.informed:
            super()._pump(topic)

    def _launch(self, message: Pub) -> None:
        now, channel = self.env.now(), self.channels[message.topic]
        message = msgspec.structs.replace(message, elder=now - channel.last if channel.last is not None else None)
        message = bind(self.signing, message)
        channel.last = now
        self.recovery.kept.add(message, self.env.now())
        self.broadcasts.publish(message)

    # VCUBE_JOIN and VCUBE_LEAVE.

    def _change(self, topic: str, kind: type[Change], again: bool = False) -> None:
        key = self._next_id()
        views = self.editors if kind in (Reg, Unreg) else self.views
        views.note(topic, Standing(self.env.me, issubclass(kind, Sub), key.epoch, key.sequence))
        self._channel(topic)
        if again:
            self.renewals[key] = None
        self.changes[key] = kind(key, topic, 0, NOWHERE) if issubclass(kind, Sub) else kind(key, topic, 0)
        if self.cube.ready:
            self._say(key)

    def _say(self, key: MessageId) -> None:
        """Not after what this node publishes, as in VCube-PS: whoever waits to be in force would wait for others who do."""
        change = self.changes[key]
        if self.fresh:
            self._renew_later()
        if isinstance(change, Sub):
            change = msgspec.structs.replace(change, member=self.cube.own())
        self.broadcasts.note(key)
        self.broadcasts.begin(change, {}, DIMENSION, True)

    def _finished(self, topic: str, key: MessageId) -> None:
        change = self.changes.pop(key, None)
        if change is None:
            super()._finished(topic, key)
            return
        again = self.renewals.pop(key, 0) is None
        if isinstance(change, Sub):
            self.informed[topic] = None
        if type(change) is Sub and topic in self.interests and topic not in self.recovery.began and self._newest(topic, key):
            self._in_force(topic)
            self._settle_soon()
        if again:
            self._catch_up(topic)
        self._pump(topic)

    def _newest(self, topic: str, key: MessageId) -> bool:
        own = self.views.of(topic, self.env.me)
        return own is not None and (own.epoch, own.sequence) == (key.epoch, key.sequence)

    def _in_force(self, interest: Interest) -> None:
        assert isinstance(interest, str)
        self.informed[interest] = None
        self.recovery.began[interest] = self.env.now()
        super()._in_force(interest)
        self._let_in(interest)

    def _let_in(self, topic: str) -> None:
        """What waited for the subscription to be in force, or to be over."""
        waiting = self.waits.pop(topic, None)
        if waiting is None:
            return
        if topic in self.interests:
            for publication in waiting.own:
                self._deliver(publication)
        for item in waiting.came:
            if self._can_hand_on(topic):
                self._take(item)
            else:
                self._pass_on(item.publication.id)

    def _pass_on(self, key: MessageId) -> None:
        arrival = self.arrivals.pop(key, None)
        self.broadcasts.known.pop(key, None)
        for parent in arrival.parents if arrival is not None else ():
            self._decline(parent, key)

    # Algorithm 5.2.

    def _copy(self, sender: Peer, m: Pub) -> None:
        if not self._can_hand_on(m.topic):
            self._decline(sender, m.id)
            return
        super()._copy(sender, m)

    def _decline(self, sender: Peer, key: MessageId) -> None:
        self.env.send(sender, Decline(key, Standing(self.env.me, False, self.env.epoch, 0)))

    def _can_hand_on(self, topic: str) -> bool:
        return topic in self.informed or topic in self.interests or self.cube.census is not None

    def _again(self, m: Pub) -> None:
        if m.id.source == self.env.me:
            return
        known = self.recovery.kept.get(m.id)
        if known is None:
            if self._problem(m.publication()) is not None:
                return
            if self.broadcasts.known[m.id] < DIMENSION:  # else it was refused, or served long ago
                self.recovery.kept.add(m.onward(), self.env.now())
        self._hand_up(self._arrived(known or m, None))

    def _follows(self, m: Pub) -> bool:
        return stream_of(m) in self.recovery.streams.streams

    def _accepted(self, sender: Peer, publication: Publication, hops: int | None) -> None:
        waiting, item = self.waits.get(publication.topic), Item(publication, hops)
        if waiting is None:
            self._take(item)
        elif waiting.bytes + weight(publication) <= self.config.held_bytes:
            waiting.came.append(item)
            waiting.bytes += weight(publication)
        else:  # who sent it sends it again
            self.arrivals.pop(publication.id, None)
            self.broadcasts.known.pop(publication.id, None)

    def _take(self, item: Item) -> None:
        """Line 42: what comes of a source that is down is taken over at once."""
        arrival, publication = self.arrivals.pop(item.publication.id, None), item.publication
        if arrival is None:  # an order had asked for it
            self._hand_up([item])
            return
        m, source = arrival.message, self.cube.roll.of(publication.id.source)
        self.recovery.kept.add(m.onward(), self.env.now())
        height = max(arrival.parents.values()) if source is not None and source.up else DIMENSION
        self.broadcasts.hand_on(m, arrival.parents, height, arrival.said)
        self._hand_up(self._arrived(m, item))

    def _arrived(self, m: Pub, item: Item | None) -> list[Item]:
        if (began := self.recovery.began.get(m.topic)) is None:
            return []
        late = self.recovery.streams.late
        whole = m.elder is None or m.elder > self.env.now() - began
        items = self.recovery.streams.arrived(stream_of(m), m.number, item, whole)
        if self.recovery.streams.late > late and item is not None:
            self.trace(REJECT, m.topic, m.id, None, m.hops, LATE)
        return items

    @upon(Decline)
    def decline(self, sender: Peer, m: Decline) -> None:
        check_standings(self.env.me, (m.standing,))
        if m.standing.peer != sender or m.standing.subscribed:
            raise PeerError("a peer declines in the name of another")
        self.broadcasts.declined(sender, m)

    @upon(Unreg)
    def unreg(self, sender: Peer, m: Unreg) -> None:
        self._changed(sender, m, False)

    def _noted(self, m: Change, subscribed: bool) -> bool:
        views = self.editors if isinstance(m, Reg | Unreg) else self.views
        return views.note(m.topic, Standing(m.id.source, subscribed, m.id.epoch, m.id.sequence))

    def _topics(self) -> list[str]:
        topics = dict.fromkeys((*super()._topics(), *self.registered))
        if self.config.fixed_root and self.cube.index == 0 and self.cube.census is not None:
            topics |= dict.fromkeys(self.cube.census.subscribers)
        return list(topics)

    # Algorithm 5.3, CHECKLEAVE; and what a detector that may be wrong needs.

    def member_down(self, peer: Peer) -> None:
        super().member_down(peer)
        for message in self.recovery.kept.unacknowledged(peer):
            self.broadcasts.take_over(message)

    def member_up(self, peer: Peer) -> None:
        super().member_up(peer)
        for topic in self.recovery.began:
            self.recovery.ask_since(peer, topic)

    def member_gone(self, peer: Peer) -> None:
        super().member_gone(peer)
        self.editors.forget(peer)

    def _say_again(self) -> None:
        for key in [key for key in self.changes if key not in self.broadcasts.known]:
            self._say(key)
        if self.has_been_placed:
            self.doubted()

    def doubted(self) -> None:
        """Many doubt at once; what was missed is asked for once, when it is over."""
        if self.doubt is None and self.cube.census is None:
            self.doubt = self.env.after(SETTLED, self._renew_in_doubt)

    def _renew_in_doubt(self) -> None:
        self.doubt = None
        self._renew()

    def _renew(self) -> None:
        for topic in self.interests:
            assert isinstance(topic, str)
            self._change(topic, Sub, again=True)
        for topic in self.registered:
            self._change(topic, Reg, again=True)

    def _catch_up(self, topic: str) -> None:
        if topic in self.recovery.began:
            others = self.recovery.others(topic)
            for peer in self.env.rng.sample(others, min(HELPERS, len(others))):
                self.recovery.ask_since(peer, topic)

    @answers(AskMissing, Missing)
    def ask_missing(self, sender: Peer, msg: AskMissing, reply: Reply) -> None:
        self.recovery.asked_missing(sender, msg, reply)

    @answers(AskSince, Since)
    def ask_since(self, sender: Peer, msg: AskSince, reply: Reply) -> None:
        check_numbers(msg.epoch, msg.sequence, msg.age)
        for position in msg.known:
            check_position(self.env.me, position)
        if self.views.note(msg.topic, Standing(sender, True, msg.epoch, msg.sequence)) and msg.topic in self.interests:
            self._settle_soon()
        self.recovery.asked_since(sender, msg, reply)
