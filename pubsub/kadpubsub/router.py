"""KadPubSub's machine: what comes in is judged here, and goes to the side of the node that it concerns.

A node is subscriber, registrar, publisher and delegate at once, and each is a file of this package. A publisher looks at what its
node knows as subscriber and as registrar, and a subscriber near its own topic registers at its own node; else none knows the
others' state.

Below it needs an overlay with `lookup` and `known`; neighbours it needs none. Above it promises each message once while its id
is remembered.
Bounds: those of its sides; the ids in `libweft.pubsub.seen`.
"""

from __future__ import annotations

from collections.abc import Iterable

from libweft.overlays.claims import check_infos, learn
from libweft.overlays.overlay import Overlay
from libweft.overlays.powers import Lookups, power_of
from libweft.peer.errors import PeerError, UsageError
from libweft.peer.machine import Env, Link, Message, Peer, PeerInfo, Reply, Timer, answers, upon
from libweft.peer.trace.kinds import DUPLICATE, REJECT
from libweft.pubsub.interests import Interest
from libweft.pubsub.kadpubsub.config import DEFAULTS, KadPubSubConfig
from libweft.pubsub.kadpubsub.delegation import Tree
from libweft.pubsub.kadpubsub.inquiry import Audience
from libweft.pubsub.kadpubsub.messages import (
    Ask,
    Back,
    Delegate,
    Done,
    Got,
    Nearest,
    Register,
    Registered,
    Still,
    Subscribers,
    Unregister,
    Update,
)
from libweft.pubsub.kadpubsub.registration import Registrations
from libweft.pubsub.kadpubsub.registry import Registries
from libweft.pubsub.kadpubsub.unjudged import Held, Unjudged
from libweft.pubsub.kadpubsub.vicinity import Vicinity
from libweft.pubsub.message import Publication
from libweft.pubsub.router import App, Router
from libweft.pubsub.seen import Seen


class KadPubSub(Router):
    protocols = ("/weft/kadpubsub/1.0.0",)

    def __init__(self, env: Env, overlay: Overlay, app: App, config: KadPubSubConfig = DEFAULTS) -> None:
        super().__init__(env, overlay, app)
        self.config = config
        self.seen = Seen()
        self.registries = Registries(env, config)
        lookups = power_of(overlay, Lookups)
        self.vicinity = Vicinity(env, config, lookups, self.registries)
        self.registrations = Registrations(env, config, lookups, self.registries, self._in_force)
        self.audience = Audience(env, config, self.registrations, self._begin, self._lost)
        self.held = Held(config.held_bytes)
        self.tree = Tree(env, config, self.held, self._lost)
        self.unjudged = Unjudged(self.held)
        self.sweeper: Timer | None = None

    def start(self) -> None:
        self.sweeper = self.env.after(self.config.expiry, self._sweep)

    def stop(self) -> None:
        if self.sweeper is not None:
            self.sweeper.cancel()
        self.vicinity.stop()
        self.tree.stop()
        self.audience.stop()
        self.registrations.stop()

    def _sweep(self) -> None:
        self.sweeper = self.env.after(self.config.expiry, self._sweep)
        self.registries.sweep()
        self.audience.sweep()

    # Subscribing.

    def _join(self, interest: Interest) -> None:
        if not isinstance(interest, str):
            del self.interests[interest]
            self._sort_out_filters()
            raise UsageError("kadpubsub finds subscribers by topic; a filter needs a stack that reaches all, as hyparview/flood")
        self.registrations.join(interest)

    def _leave(self, interest: Interest) -> None:
        assert isinstance(interest, str)
        self.registrations.leave(interest)

    @answers(Register, Registered)
    def register(self, sender: Peer, msg: Register, reply: Reply) -> None:
        check_infos(self.env.me, (msg.me,))
        if msg.me.peer != sender:
            raise PeerError("a peer registers another")
        learn(self.env, msg.me)
        reply(Registered(self.registries.add(msg.topic, msg.me)))
        self.vicinity.watch(msg.topic)

    @upon(Unregister)
    def unregister(self, sender: Peer, msg: Unregister) -> None:
        self.registries.remove(msg.topic, sender)

    # Who subscribes.

    @answers(Ask, Subscribers)
    def ask(self, sender: Peer, msg: Ask, reply: Reply) -> None:
        if msg.after is not None:
            check_infos(self.env.me, (PeerInfo(msg.after),))
        leased = self.registries.lease(msg.topic, sender)
        subscribers, more = self.registries.page(msg.topic, msg.after)
        reply(Subscribers(msg.topic, tuple(subscribers), leased, more))

    @upon(Update)
    def update(self, sender: Peer, msg: Update) -> None:
        check_infos(self.env.me, (msg.subscriber,))
        self.audience.update(sender, msg)

    @upon(Nearest)
    def nearest(self, sender: Peer, msg: Nearest) -> None:
        check_infos(self.env.me, msg.nearest)
        self.registrations.nearer(sender, msg)
        self.audience.nearer(sender, msg)

    # The way of a message.

    def unplaced(self) -> int:
        return self.audience.waiting() + self.tree.untaken()

    def _spread(self, publication: Publication) -> None:
        self.seen.note(publication.id, self.env.now())
        self.audience.reach(publication)

    def _begin(self, publication: Publication, subscribers: Iterable[PeerInfo]) -> None:
        self.tree.begin(publication, 0, (), subscribers)

    def _lost(self, publication: Publication) -> None:
        """A message of this node that not all will have, since it has too many on their way."""
        self.refused += 1
        self.trace(REJECT, publication.topic, publication.id, None, 0, "too many messages on their way")

    @upon(Delegate)
    def delegate(self, sender: Peer, m: Delegate) -> None:
        m.check(self.env.me)
        if self.seen.has(m.id):
            self._again(sender, m)
        elif m.topic in self.interests:
            self._first(sender, m)
        else:
            self._hands_back(sender, m)  # only subscribers carry; it has left, or somebody names it who never was one

    def _first(self, sender: Peer, m: Delegate) -> None:
        self.seen.note(m.id, self.env.now())
        if m.rest:
            self.env.send(sender, Got(m.id))
        self._entrust(sender, m)
        self._received(sender, m.publication(), m.hops + 1)
        if not m.rest and m.id in self.unjudged:
            self.env.send(sender, Got(m.id))  # DONE waits for a verdict, and who sent it must not take it for lost

    def brought(self, sender: Peer, publication: Publication) -> None:
        """With no list: whoever was to hand this node one may still do so, and gets it back."""
        if publication.topic not in self.interests:
            return
        if self.seen.has(publication.id):
            if self.tracing:
                self.trace(DUPLICATE, publication.topic, publication.id, sender)
        else:
            self.seen.note(publication.id, self.env.now())
            self._received(sender, publication)

    def _again(self, sender: Peer, m: Delegate) -> None:
        """The list may be another. The message is the one that was accepted here: a second one may be forged."""
        if self.tracing:
            self.trace(DUPLICATE, m.topic, m.id, sender)
        task = self.tree.tasks.get(m.id)
        if not m.rest:
            self.env.send(sender, Got(m.id) if m.id in self.unjudged else Done(m.id))
        elif task is not None:
            self.env.send(sender, Got(m.id))
            self.tree.add(task, sender, m.rest)
        elif m.id in self.unjudged:
            self.env.send(sender, Got(m.id))
            self._entrust(sender, m)
        else:
            self._hands_back(sender, m)

    def _entrust(self, sender: Peer, m: Delegate) -> None:
        if not self.unjudged.add(sender, m) and m.rest:
            self._hands_back(sender, m)

    def _hands_back(self, sender: Peer, m: Delegate) -> None:
        if m.rest:
            self.tree.give_back((sender,), m.id)
        else:
            self.env.send(sender, Done(m.id))

    def _forward(self, publication: Publication, sender: Peer) -> None:
        lists = self.unjudged.pop(publication.id)
        hops = min((entrusted.hops for entrusted in lists), default=0) + 1
        rest = [info for entrusted in lists for info in entrusted.rest]
        self.tree.begin(publication, hops, [entrusted.sender for entrusted in lists], rest)

    def _refused(self, publication: Publication) -> None:
        """Those who gave it to this node took it for good, and may hand it on to others."""
        for entrusted in self.unjudged.pop(publication.id):
            if entrusted.rest:
                self.tree.give_back((entrusted.sender,), publication.id)
            else:
                self.env.send(entrusted.sender, Done(publication.id))

    def _forged(self, publication: Publication) -> None:
        self.seen.discard(publication.id)

    @upon(Got)
    def got(self, sender: Peer, msg: Got) -> None:
        self.tree.got(sender, msg.id)

    @upon(Done)
    def done(self, sender: Peer, msg: Done) -> None:
        self.tree.done(sender, msg.id)

    @upon(Back)
    def back(self, sender: Peer, msg: Back) -> None:
        self.tree.back(sender, msg.id)

    @upon(Still)
    def still(self, sender: Peer, msg: Still) -> None:
        if msg.id in self.tree.tasks or msg.id in self.unjudged:
            self.env.send(sender, Got(msg.id))
        elif (sender, msg.id) in self.tree.returned or not self.seen.has(msg.id):
            self.env.send(sender, Back(msg.id))
        else:
            self.env.send(sender, Done(msg.id))

    # Links.

    def link_up(self, peer: Peer, link: Link) -> None:
        self.tree.link_up(peer, link.incarnation)

    def link_down(self, peer: Peer, incarnation: int, reason: str) -> None:
        self.tree.link_down(peer, incarnation)

    def dropped(self, peer: Peer, msg: Message) -> None:
        if isinstance(msg, Delegate):
            self.tree.failed(peer)
